// SPDX-License-Identifier: Apache-2.0
#include "governance/control/conversion_controller.h"

#include "base/log.h"

namespace fairlead::governance {

using kube::Json;

namespace {
constexpr std::chrono::seconds look_again{2};
}

std::vector<kube::ObjectKey> ConversionController::keys(const kube::Change& change) {
  if (!api::is_our_queue_crd(change.object())) return {};
  return {kube::key_of(change.object())};
}

std::optional<kube::Access> ConversionController::access() const {
  std::vector<std::string> names;
  for (const Json& crd : api::queue_crds()) names.push_back(kube::name_of(crd));
  return kube::Access().may({"patch"}, kube::resources::crds, "", "", std::move(names));
}

Result<kube::Next> ConversionController::reconcile(const kube::ObjectKey& key) {
  const auto crd = caches_->of(kube::resources::crds).get(key);
  if (!crd || kube::deleting(*crd) || !api::is_our_queue_crd(*crd)) return kube::Next{};
  const auto webhook = where_();
  if (!webhook) return kube::Next{look_again};
  const Json patch = api::conversion_change(*crd, *webhook);
  if (patch.is_null()) return kube::Next{};
  auto done = api_.patch(kube::resources::crds, key, kube::PatchType::Merge, patch);
  if (!done && done.error().code == Code::NotFound) return kube::Next{};
  if (!done) return pass(std::move(done.error()), "tell where the conversion webhook is");
  log_info("the definition knows its conversion webhook", {{"definition", key.name}});
  return kube::Next{};
}

}  // namespace fairlead::governance
