// SPDX-License-Identifier: Apache-2.0
#include "apiserver/token_root_controller.h"

namespace fairlead::apiserver {

using kube::Json;
namespace r = kube::resources;

namespace {
constexpr const char* map_name = "kube-root-ca.crt";
constexpr std::chrono::minutes look_again{5};  // somebody may have removed or changed it
}

std::vector<kube::Controller::Source> RootCertificateController::sources() const {
  // ConfigMaps themselves are not watched: that would keep all of them in memory.
  return {{r::namespaces, "", kube::key_itself}};
}

Result<kube::Next> RootCertificateController::reconcile(const kube::ObjectKey& key) {
  const auto space = api_.get(r::namespaces, key);
  if (!space && space.error().code == Code::NotFound) return kube::Next{};
  if (!space) return std::unexpected(space.error());
  if (kube::deleting(*space)) return kube::Next{};
  const Json data = Json::object({{"ca.crt", ca_pem_}});
  const auto now = api_.get(r::config_maps, {key.name, map_name});
  Result<Json> done = Json();
  if (!now && now.error().code == Code::NotFound) {
    Json metadata = Json::object({{"name", map_name}, {"namespace", key.name}});
    metadata.set("annotations", Json::object({{"kubernetes.io/description", "The certificate authority of this site's API server. It is written by the server; changes are undone."}}));
    done = api_.create(r::config_maps, Json::object({{"metadata", std::move(metadata)}, {"data", data}}));
  } else if (!now) {
    return std::unexpected(now.error());
  } else if (!((*now)["data"] == data)) {
    Json next = *now;
    next.set("data", data);
    done = api_.update(r::config_maps, next);
  }
  const auto harmless = [](Code code) { return code == Code::Exists || code == Code::Forbidden || code == Code::NotFound; };
  if (!done && !harmless(done.error().code)) return pass(std::move(done.error()), std::string("write ") + map_name);
  return kube::Next{look_again};
}

}  // namespace fairlead::apiserver
