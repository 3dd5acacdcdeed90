// SPDX-License-Identifier: Apache-2.0
#include "apiserver/namespace_controller.h"

#include <set>

#include "apiserver/remove_all.h"
#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {
constexpr std::chrono::milliseconds look_again{500};
}

Result<kube::Next> NamespaceController::reconcile(const kube::ObjectKey& key) {
  const kube::Resource& namespaces = kube::resources::namespaces;
  const auto object = api_.get(namespaces, key);
  if (!object && object.error().code == Code::NotFound) return kube::Next{};
  if (!object) return std::unexpected(object.error());
  if (!kube::deleting(*object)) {
    const Json account = Json::object({{"metadata", Json::object({{"name", "default"}, {"namespace", key.name}})}});
    if (api_.get(kube::resources::service_accounts, {key.name, "default"})) return kube::Next{};
    auto made = api_.create(kube::resources::service_accounts, account);
    const bool fine = made || made.error().code == Code::Exists || made.error().code == Code::Forbidden || made.error().code == Code::NotFound;
    if (!fine) return pass(std::move(made.error()), "make the default service account");
    return kube::Next{};
  }
  auto left = empty(key.name);
  if (!left) return std::unexpected(std::move(left.error()));
  if (*left > 0) {
    // One more look: most objects are gone at once, pods end in their own time.
    left = empty(key.name);
    if (!left) return std::unexpected(std::move(left.error()));
    if (*left > 0) return kube::Next{look_again};
  }
  const Json patch = Json::object({{"spec", Json::object({{"finalizers", Json::array()}})}});
  auto done = api_.patch(namespaces, key, kube::PatchType::Merge, patch, "finalize");
  if (!done && done.error().code == Code::Conflict) return kube::Next{look_again};  // something came in between
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "finish namespace " + key.name);
  log_info("namespace removed", {{"namespace", key.name}});
  return kube::Next{};
}

Result<std::size_t> NamespaceController::empty(const std::string& space) {
  std::size_t left = 0;
  std::set<std::pair<std::string, std::string>> done;  // once for all versions of a kind
  for (const auto& kind : registry_.kinds()->kinds) {
    if (!kind->resource.namespaced || !done.insert({kind->resource.group, kind->resource.plural}).second) continue;
    auto count = remove_all(api_, kind->resource, space);
    if (!count && count.error().code == Code::NotFound) continue;  // its CRD went meanwhile
    if (!count) return count;
    left += *count;
  }
  return left;
}

}  // namespace fairlead::apiserver
