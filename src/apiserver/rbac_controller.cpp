// SPDX-License-Identifier: Apache-2.0
#include "apiserver/rbac_controller.h"

#include "apiserver/rbac_defaults.h"
#include "apiserver/rbac_kinds.h"

namespace fairlead::apiserver {

using kube::Json;

std::vector<kube::Controller::Source> RoleAggregationController::sources() const {
  return {{rbac_resources::cluster_roles, "", [](const kube::Change&) -> std::vector<kube::ObjectKey> { return {{"", "all"}}; }}};
}

void RoleAggregationController::start(const kube::Caches& caches) { roles_ = &caches.of(rbac_resources::cluster_roles); }

Result<kube::Next> RoleAggregationController::reconcile(const kube::ObjectKey&) {
  const std::vector<Json> all = roles_->list("");
  for (const Json& role : all) {
    if (!role["aggregationRule"].is_object() || kube::deleting(role)) continue;
    Json rules = aggregated_rules(role, all);
    if (rules == role["rules"] || (rules.items().empty() && role["rules"].items().empty())) continue;
    // The version that was read: a role that changed meanwhile comes again. An aggregate of aggregates settles over the changes that this makes.
    Json next = role;
    next.set("rules", std::move(rules));
    auto done = api_.update(rbac_resources::cluster_roles, next);
    if (!done && done.error().code != Code::NotFound && done.error().code != Code::Conflict) return pass(std::move(done.error()), "aggregate role " + kube::name_of(role));
  }
  return kube::Next{};
}

}  // namespace fairlead::apiserver
