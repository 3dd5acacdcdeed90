// SPDX-License-Identifier: Apache-2.0
#include "apiserver/namespace_controller.h"

#include <fmt/format.h>

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
  if (!left->none()) {
    // One more look: most objects are gone at once, pods end in their own time.
    left = empty(key.name);
    if (!left) return std::unexpected(std::move(left.error()));
    if (!left->none()) {
      if (auto told = tell(*object, *left); !told) return std::unexpected(std::move(told.error()));
      return kube::Next{look_again};
    }
  }
  const Json patch = Json::object({{"spec", Json::object({{"finalizers", Json::array()}})}});
  auto done = api_.patch(namespaces, key, kube::PatchType::Merge, patch, "finalize");
  if (!done && done.error().code == Code::Conflict) return kube::Next{look_again};  // something came in between
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "finish namespace " + key.name);
  log_info("namespace removed", {{"namespace", key.name}});
  return kube::Next{};
}

Result<NamespaceController::Left> NamespaceController::empty(const std::string& space) {
  Left left;
  std::set<std::pair<std::string, std::string>> done;  // once for all versions of a kind
  for (const auto& kind : one_of_each(*registry_.kinds())) {
    const kube::Resource& resource = kind->resource;
    if (!resource.namespaced || !done.insert({resource.group, resource.plural}).second) continue;
    const auto removed = remove_all(api_, resource, space);
    if (!removed && removed.error().code == Code::NotFound) continue;  // its CRD went meanwhile
    if (!removed) return std::unexpected(removed.error());
    if (*removed == 0) continue;
    const auto list = api_.list(resource, space);
    if (!list) return std::unexpected(list.error());
    if (!list->items.empty()) left.objects[resource.plural + "." + resource.group] = list->items.size();
    for (const Json& one : list->items)
      for (const Json& finalizer : one["metadata"]["finalizers"].items()) ++left.finalizers[finalizer.string()];
  }
  return left;
}

// In the words of Kubernetes' namespace controller.
Result<void> NamespaceController::tell(Json space, const Left& left) {
  std::string objects, finalizers;
  for (const auto& [name, count] : left.objects) objects += fmt::format("{}{} has {} resource instances", objects.empty() ? "" : ", ", name, count);
  for (const auto& [name, count] : left.finalizers) finalizers += fmt::format("{}{} in {} resource instances", finalizers.empty() ? "" : ", ", name, count);
  const bool held = !left.finalizers.empty();
  const Json before = space;
  for (const kube::Condition& condition : {
           kube::Condition{"NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"},
           kube::Condition{"NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", "All legacy kube types successfully parsed"},
           kube::Condition{"NamespaceDeletionContentFailure", "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
           kube::Condition{"NamespaceContentRemaining", "True", "SomeResourcesRemain", "Some resources are remaining: " + objects},
           kube::Condition{"NamespaceFinalizersRemaining", held ? "True" : "False", held ? "SomeFinalizersRemain" : "ContentHasNoFinalizers",
                           held ? "Some content in the namespace has finalizers remaining: " + finalizers : "All content-preserving finalizers finished"},
       })
    kube::set_condition(space, condition, clock_.now());
  if (space == before) return {};
  auto written = api_.update_status(kube::resources::namespaces, space);
  const bool fine = written || written.error().code == Code::NotFound || written.error().code == Code::Conflict;
  if (!fine) return pass(std::move(written.error()), "tell namespace " + kube::name_of(space) + " what is left");
  return {};
}

}  // namespace fairlead::apiserver
