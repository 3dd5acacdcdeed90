// SPDX-License-Identifier: Apache-2.0
#include "apiserver/crd_controller.h"

#include "apiserver/crd.h"
#include "apiserver/remove_all.h"
#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {
constexpr std::chrono::milliseconds look_again{500};
}

Result<kube::Next> CrdController::reconcile(const kube::ObjectKey& key) {
  const auto crd = api_.get(kube::resources::crds, key);
  if (!crd && crd.error().code == Code::NotFound) return kube::Next{};
  if (!crd) return std::unexpected(crd.error());
  if (!kube::deleting(*crd) || !kube::has_finalizer(*crd, crd_finalizer)) return kube::Next{};
  for (const auto& kind : one_of_each(*registry_.kinds())) {
    if (kind->resource.group != (*crd)["spec"]["group"].string() || kind->resource.plural != (*crd)["spec"]["names"]["plural"].string()) continue;
    for (int look = 0; look < 2; ++look) {
      auto left = remove_all(api_, kind->resource, "");
      if (!left) return std::unexpected(std::move(left.error()));
      if (*left == 0) break;
      if (look == 1) return kube::Next{look_again};
    }
    break;
  }
  Json finalizers = Json::array();
  for (const Json& one : (*crd)["metadata"]["finalizers"].items())
    if (one.string() != crd_finalizer) finalizers.push(one);
  const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*crd)}, {"finalizers", std::move(finalizers)}})}});
  auto done = api_.patch(kube::resources::crds, key, kube::PatchType::Merge, patch);
  if (!done && done.error().code == Code::Conflict) return kube::Next{look_again};
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "finish " + key.name);
  log_info("custom resource definition removed", {{"crd", key.name}});
  return kube::Next{};
}

}  // namespace fairlead::apiserver
