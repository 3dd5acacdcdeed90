// SPDX-License-Identifier: Apache-2.0
#include "governance/control/teams_controller.h"

#include <algorithm>
#include <set>

#include "api/team_crds.h"
#include "api/user_roles.h"
#include "base/log.h"
#include "governance/plan/team_policy.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;
namespace resources = kube::resources;

namespace {

const kube::Resource self_reviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", false};

bool ours(const Json& object) { return object["metadata"]["labels"][kTeamsLabel].string() == "true"; }

// Made from policy and quotas, and taken away with them; a queue before its flavors.
const std::vector<const kube::Resource*>& made_kinds() {
  static const std::vector<const kube::Resource*> kinds{&queues::local_queues, &queues::cluster_queues, &queues::cohorts, &queues::flavors, &queues::priority_classes, &api::rbac::cluster_role_bindings, &resources::admission_policy_bindings, &resources::admission_policies};
  return kinds;
}

}  // namespace

std::vector<kube::Controller::Source> TeamsController::sources() const {
  const std::vector<ObjectKey> one{{"", "teams"}};
  const auto always = [one](const kube::Change&) { return one; };
  // Heartbeats change nothing for quotas.
  const auto of_node = [one](const kube::Change& change) {
    if (change.before && change.after && (*change.before)["metadata"]["labels"] == (*change.after)["metadata"]["labels"] && (*change.before)["status"]["allocatable"] == (*change.after)["status"]["allocatable"] &&
        kube::deleting(*change.before) == kube::deleting(*change.after))
      return std::vector<ObjectKey>{};
    return one;
  };
  const auto of_team = [one](const kube::Change& change) { return ours(change.object()) || kube::name_of(change.object()).starts_with(space_of_team("")) ? one : std::vector<ObjectKey>{}; };
  const auto of_members = [one](const kube::Change& change) { return kube::name_of(change.object()) == kTeamMembers ? one : std::vector<ObjectKey>{}; };
  std::vector<Source> out{{api::teams::configs, "", always}, {api::teams::quotas, "", always}, {resources::nodes, "", of_node}, {resources::namespaces, "", of_team}, {api::rbac::role_bindings, "", of_members}};
  for (const kube::Resource* kind : made_kinds()) out.push_back({*kind, "", kind == &queues::priority_classes ? decltype(out.front().keys)(always) : of_team});
  return out;
}

std::optional<kube::Access> TeamsController::access() const {
  kube::Access access;
  access.may({"update"}, api::teams::configs, "status").may({"update"}, api::teams::quotas, "status").may({"create", "update"}, resources::namespaces).may({"create"}, resources::events);
  access.may({"create", "update"}, api::rbac::role_bindings).may({"bind"}, api::rbac::cluster_roles, "", "", {api::team_member_role, api::team_viewer_role});
  for (const kube::Resource* kind : made_kinds()) access.may({"create", "update", "delete"}, *kind);
  access.may({"create"}, self_reviews);
  return access;
}

Result<kube::Next> TeamsController::reconcile(const ObjectKey&) {
  TeamsInput in;
  in.configs = caches_->of(api::teams::configs).list("");
  in.quotas = caches_->of(api::teams::quotas).list("");
  in.nodes = caches_->of(resources::nodes).list("");
  for (Json& object : caches_->of(resources::namespaces).list("")) in.spaces.emplace(kube::name_of(object), std::move(object));
  for (Json& object : caches_->of(queues::cluster_queues).list("")) in.queues.emplace(kube::name_of(object), std::move(object));
  for (Json& object : caches_->of(api::rbac::role_bindings).list(""))
    if (kube::name_of(object) == kTeamMembers) in.bindings.emplace(kube::space_of(object), std::move(object));
  in.server = self();
  for (const Json& object : caches_->of(queues::priority_classes).list(""))
    if (!ours(object) && !kube::deleting(object)) in.other_classes.insert(kube::name_of(object));
  const TeamsPlan plan = plan_teams(in);
  for (const auto& [resource, verdicts] : {std::pair{&api::teams::configs, &plan.configs}, std::pair{&api::teams::quotas, &plan.quotas}})
    for (const Verdict& verdict : *verdicts)
      if (auto said = say(*resource, verdict); !said) return std::unexpected(std::move(said.error()));
  // What one team's object is refused for keeps no other from its own.
  std::optional<Error> first;
  for (const TeamObject& wanted : plan.objects)
    if (auto made = make(wanted); !made && !first) first = std::move(made.error());
  if (auto gone = take_away(plan); !gone && !first) first = std::move(gone.error());
  if (first) return std::unexpected(std::move(*first));
  return kube::Next{};
}

// In process nobody needs to ask, and such a review is not there: it is of system:masters.
std::string TeamsController::self() {
  if (!self_) {
    const auto told = api_.create(self_reviews, Json::object({{"apiVersion", self_reviews.api_version()}, {"kind", self_reviews.kind}}));
    if (!told && told.error().code != Code::NotFound && told.error().code != Code::Unsupported) {
      log_warn("who this server is for the API is not known: what it makes in namespaces of teams may be refused", {{"error", told.error().message}});
      return "";
    }
    self_ = told ? (*told)["status"]["userInfo"]["username"].string() : std::string();
  }
  return *self_;
}

Result<void> TeamsController::say(const kube::Resource& resource, const Verdict& verdict) {
  const auto have = caches_->of(resource).get(verdict.key);
  if (!have) return {};
  Json object = *have;
  kube::set_condition(object, verdict.accepted, clock_.now());
  if (resource == api::teams::quotas) {
    kube::set_condition(object, verdict.capacity, clock_.now());
    if (!verdict.in_force.is_null()) {
      const std::string& team = verdict.in_force["teamName"].string();
      object.child("status").set("inForce", verdict.in_force).set("allocated", verdict.allocated).set("namespace", space_of_team(team)).set("clusterQueue", queue_of_team(team)).set("localQueue", local_queue_of_team(team));
      if (!verdict.schedule.is_null()) object.child("status").set("schedule", verdict.schedule);
      else object.child("status").erase("schedule");
    }
  }
  object.child("status").set("observedGeneration", object["metadata"]["generation"].integer());
  if (object == *have) return {};
  const Json* before = kube::find_condition(*have, "Accepted");
  auto written = api_.update_status(resource, object);
  if (!written) return pass(std::move(written.error()), "write the status of " + resource.plural + "/" + verdict.key.name);
  if (before == nullptr || (*before)["reason"].string() != verdict.accepted.reason) tell(api_, resource, *written, {verdict.accepted.status != "True", verdict.accepted.reason, verdict.accepted.message}, clock_.now());
  return {};
}

Result<void> TeamsController::make(const TeamObject& wanted) {
  const ObjectKey key = kube::key_of(wanted.object);
  const auto have = caches_->of(wanted.resource).get(key);
  if (!have) {
    auto made = api_.create(wanted.resource, with_fields(Json(), wanted.object));
    if (!made) return pass(std::move(made.error()), "make " + wanted.resource.plural + "/" + key.text());
    log_info("made for a team", {{"kind", wanted.resource.kind}, {"name", key.text()}});
    return {};
  }
  if (kube::deleting(*have) || holds_fields(*have, wanted.object)) return {};
  if (!ours(*have)) {
    log_warn("an object of that name is there that was not made for teams: it stays as it is; delete it, or give it the label, to have it made", {{"kind", wanted.resource.kind}, {"name", key.text()}, {"label", std::string(kTeamsLabel) + "=true"}});
    return {};
  }
  if (wanted.object.has("roleRef") && !((*have)["roleRef"] == wanted.object["roleRef"])) {  // it can never be changed
    log_warn("a binding of that name is there with another role: it stays as it is; delete it, to have it made", {{"kind", wanted.resource.kind}, {"name", key.text()}});
    return {};
  }
  auto written = api_.update(wanted.resource, with_fields(*have, wanted.object));
  if (!written) return pass(std::move(written.error()), "change " + wanted.resource.plural + "/" + key.text());
  return {};
}

Result<void> TeamsController::take_away(const TeamsPlan& plan) {
  std::set<std::pair<std::string, ObjectKey>> wanted;
  for (const TeamObject& one : plan.objects) wanted.emplace(one.resource.plural, kube::key_of(one.object));
  for (const kube::Resource* kind : made_kinds())
    for (const Json& object : caches_->of(*kind).list("")) {
      if (!ours(object) || kube::deleting(object) || wanted.contains({kind->plural, kube::key_of(object)})) continue;
      auto gone = api_.remove(*kind, kube::key_of(object), {.uid = kube::uid_of(object), .resource_version = kube::version_of(object)});
      if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "delete " + kind->plural + "/" + kube::key_of(object).text());
      log_info("of a team that has no quota any more", {{"kind", kind->kind}, {"name", kube::key_of(object).text()}});
    }
  // People's work may be in it.
  for (const Json& space : caches_->of(resources::namespaces).list("")) {
    if (!ours(space) || kube::deleting(space) || wanted.contains({resources::namespaces.plural, kube::key_of(space)}) || space["metadata"]["labels"][kActivateQuota].string() == "Disabled") continue;
    auto written = api_.update(resources::namespaces, with_fields(space, Json::object({{"metadata", Json::object({{"labels", Json::object({{kActivateQuota, "Disabled"}})}})}})));
    if (!written) return pass(std::move(written.error()), "change namespace " + kube::name_of(space));
  }
  return {};
}

}  // namespace fairlead::governance
