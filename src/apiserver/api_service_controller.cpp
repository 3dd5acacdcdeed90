// SPDX-License-Identifier: Apache-2.0
#include "apiserver/api_service_controller.h"

#include <algorithm>

#include "apiserver/kinds/resources.h"
#include "apiserver/service_addresses.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

const kube::ObjectKey key_of_both{"default", "kubernetes"};
constexpr std::chrono::minutes look_again{5};  // its address may have been somebody else's

std::vector<kube::ObjectKey> if_ours(const kube::Change& change) {
  return kube::key_of(change.object()) == key_of_both ? std::vector<kube::ObjectKey>{key_of_both} : std::vector<kube::ObjectKey>{};
}
std::vector<kube::ObjectKey> if_its_namespace(const kube::Change& change) {
  return kube::name_of(change.object()) == key_of_both.space ? std::vector<kube::ObjectKey>{key_of_both} : std::vector<kube::ObjectKey>{};
}

Json named(const Json& now, const Json& labels) {
  Json out = now.is_object() ? now : Json::object({{"metadata", Json::object({{"name", key_of_both.name}, {"namespace", key_of_both.space}})}});
  for (const auto& [name, value] : labels.members()) out.child("metadata").child("labels").set(name, value);
  return out;
}

}  // namespace

std::string api_service_address(const std::vector<std::string>& service_ranges) {
  for (const std::string& text : service_ranges)
    if (const auto range = AddressRange::parse(text); range && !range->six()) return range->at(1);
  return {};
}

Json wanted_api_service(const Json& now, const ApiServiceOptions& options) {
  Json out = named(now, Json::object({{"component", "apiserver"}, {"provider", "kubernetes"}}));
  Json& spec = out.child("spec");
  if (!spec.is_object()) spec = Json::object();
  spec.set("type", "ClusterIP").set("clusterIP", options.service_address).set("clusterIPs", Json::array({options.service_address}));
  spec.set("ipFamilies", Json::array({"IPv4"})).set("ipFamilyPolicy", "SingleStack");
  spec.set("ports", Json::array({Json::object({{"name", "https"}, {"protocol", "TCP"}, {"port", 443}, {"targetPort", options.port}})}));
  spec.erase("selector");
  return out;
}

Json wanted_api_slice(const Json& now, const ApiServiceOptions& options) {
  Json out = named(now, Json::object({{std::string(workloads::slice_service_label), key_of_both.name}}));
  out.set("addressType", "IPv4");
  out.set("endpoints", Json::array({Json::object({{"addresses", Json::array({options.address})}, {"conditions", Json::object({{"ready", true}})}})}));
  out.set("ports", Json::array({Json::object({{"name", "https"}, {"protocol", "TCP"}, {"port", options.port}})}));
  return out;
}

std::vector<kube::Controller::Source> ApiServiceController::sources() const {
  return {{kube::resources::namespaces, "", if_its_namespace}, {kube::resources::services, key_of_both.space, if_ours}, {workloads::endpoint_slices, key_of_both.space, if_ours}};
}

Result<kube::Next> ApiServiceController::reconcile(const kube::ObjectKey& key) {
  if (options_.service_address.empty() || key != key_of_both) return kube::Next{};
  const auto bring = [&](const kube::Resource& resource, auto wanted) -> Result<void> {
    const auto now = api_.get(resource, key);
    if (!now && now.error().code != Code::NotFound) return std::unexpected(now.error());
    const Json next = wanted(now ? *now : Json(), options_);
    if (now && next == *now) return {};
    auto done = now ? api_.update(resource, next) : api_.create(resource, next);
    if (!done) return pass(std::move(done.error()), "write the " + resource.kind + " kubernetes");
    return {};
  };
  if (auto done = bring(kube::resources::services, wanted_api_service); !done) return std::unexpected(std::move(done.error()));
  if (auto done = bring(workloads::endpoint_slices, wanted_api_slice); !done) return std::unexpected(std::move(done.error()));
  return kube::Next{look_again};
}

}  // namespace fairlead::apiserver
