// SPDX-License-Identifier: Apache-2.0
#include "apiserver/endpoints_controller.h"

#include <fmt/format.h>

#include "apiserver/endpoints_plan.h"
#include "apiserver/kinds/resources.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::string selector_text(const Json& selector) {
  const auto made = kube::LabelSelector::from_object(Json::object({{"matchLabels", selector}}));
  return made ? made->text() : std::string();
}

bool fine(const Error& error) { return error.code == Code::NotFound || error.code == Code::Exists; }

std::vector<kube::ObjectKey> service_of_slice(const kube::Change& change) {
  const Json& slice = change.object();
  const Json& labels = slice["metadata"]["labels"];
  if (labels[workloads::slice_manager_label].string() != workloads::slice_manager) return {};
  return {{kube::space_of(slice), labels[workloads::slice_service_label].string()}};
}

// What an endpoint shows of a pod.
bool looks_the_same(const kube::Change& change) {
  if (!change.before || !change.after) return false;
  const Json &a = *change.before, &b = *change.after;
  return a["metadata"]["labels"] == b["metadata"]["labels"] && a["spec"]["nodeName"] == b["spec"]["nodeName"] && a["status"]["phase"] == b["status"]["phase"] &&
         a["status"]["podIP"] == b["status"]["podIP"] && a["status"]["podIPs"] == b["status"]["podIPs"] && kube::deleting(a) == kube::deleting(b) &&
         kube::condition_is_true(a, "Ready") == kube::condition_is_true(b, "Ready");
}

}  // namespace

std::vector<kube::Controller::Source> EndpointsController::sources() const {
  return {{kube::resources::services, "", kube::key_itself},
          {kube::resources::pods, "", [this](const kube::Change& change) { return services_of(change); }},
          {workloads::endpoint_slices, "", service_of_slice}};
}

std::vector<kube::ObjectKey> EndpointsController::services_of(const kube::Change& change) const {
  if (looks_the_same(change)) return {};
  std::vector<kube::ObjectKey> out;
  for (const Json& service : services_->list(kube::space_of(change.object()))) {
    const Json& selector = service["spec"]["selector"];
    if (selector.members().empty()) continue;
    const auto made = kube::LabelSelector::from_object(Json::object({{"matchLabels", selector}}));
    const auto meant = [&](const std::optional<Json>& pod) { return pod && made && made->matches((*pod)["metadata"]["labels"]); };
    if (meant(change.before) || meant(change.after)) out.push_back(kube::key_of(service));
  }
  return out;
}

Result<kube::Next> EndpointsController::reconcile(const kube::ObjectKey& key) {
  auto service = api_.get(kube::resources::services, key);
  if (!service && service.error().code != Code::NotFound) return std::unexpected(std::move(service.error()));
  const std::string ours = fmt::format("{}={},{}={}", workloads::slice_service_label, key.name, workloads::slice_manager_label, workloads::slice_manager);
  auto slices = api_.list(workloads::endpoint_slices, key.space, {.label_selector = ours});
  if (!slices) return pass(std::move(slices.error()), "list slices of service " + key.text());
  SlicePlan plan;
  const bool serves = service && !kube::deleting(*service) && !(*service)["spec"]["selector"].members().empty();
  if (serves) {
    auto pods = api_.list(kube::resources::pods, key.space, {.label_selector = selector_text((*service)["spec"]["selector"])});
    if (!pods) return pass(std::move(pods.error()), "list pods of service " + key.text());
    plan = plan_slices(*service, pods->items, slices->items);
  } else if (!service || (*service)["spec"]["selector"].members().empty()) {
    for (const Json& slice : slices->items) plan.remove.push_back(kube::name_of(slice));
  }
  for (const Json& slice : plan.create) {
    auto made = api_.create(workloads::endpoint_slices, slice);
    // A namespace that goes takes no more slices.
    if (!made && !fine(made.error()) && made.error().code != Code::Forbidden) return pass(std::move(made.error()), "make a slice of service " + key.text());
  }
  for (const Json& slice : plan.update) {
    auto written = api_.update(workloads::endpoint_slices, slice);
    if (!written && !fine(written.error())) return pass(std::move(written.error()), "change a slice of service " + key.text());
  }
  for (const std::string& name : plan.remove) {
    auto removed = api_.remove(workloads::endpoint_slices, {key.space, name});
    if (!removed && !fine(removed.error())) return pass(std::move(removed.error()), "remove a slice of service " + key.text());
  }
  return kube::Next{};
}

}  // namespace fairlead::apiserver
