// SPDX-License-Identifier: Apache-2.0
#include "apiserver/gc_controller.h"

#include <algorithm>

#include "apiserver/registry_bytes.h"
#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::chrono::milliseconds look_again{500};
constexpr std::string_view foreground = "foregroundDeletion", orphan = "orphan";

// Events are not worth an index: they own nothing and nobody owns them.
bool worth_following(const kube::Resource& resource) { return !(resource.group.empty() && resource.plural == kube::resources::events.plural); }

bool interesting(std::string_view bytes) { return mentions(bytes, "\"ownerReferences\"") || mentions(bytes, "\"deletionTimestamp\""); }

bool gone_already(const Result<void>& result) { return result || result.error().code == Code::NotFound || result.error().code == Code::Conflict; }

}  // namespace

struct GcController::Followed {
  kube::Resource resource;
  std::unique_ptr<Subscription> subscription;
};

GcController::GcController(Registry& registry, kube::KubeApi& api) : registry_(registry), api_(api) {}

GcController::~GcController() { followed_.clear(); }

bool GcController::idle() const {
  const std::scoped_lock lock(mutex_);
  return dirty_.empty();
}

// Kinds come and go with CRDs. One version stands for all.
void GcController::follow_kinds() {
  std::set<std::pair<std::string, std::string>> lost;
  {
    const std::scoped_lock lock(mutex_);
    lost.swap(lost_);
  }
  for (const auto& key : lost) followed_.erase(key);
  const auto table = registry_.kinds();
  std::set<std::pair<std::string, std::string>> served;
  for (const auto& kind : one_of_each(*table)) {
    const std::pair key(kind->resource.group, kind->resource.plural);
    if (!worth_following(kind->resource) || !served.insert(key).second || followed_.contains(key)) continue;
    auto followed = std::make_unique<Followed>();
    followed->resource = kind->resource;
    auto subscription = registry_.watch(*kind, "", {.lines = false}, [this, resource = kind->resource](const RegistryEvent& event) { on_event(resource, event); });
    if (!subscription) {
      log_warn("garbage collection cannot follow a kind, trying again", {{"resource", kind->resource.plural}, {"error", subscription.error().message}});
      continue;
    }
    followed->subscription = std::move(*subscription);
    followed_.emplace(key, std::move(followed));
  }
  std::erase_if(followed_, [&](const auto& entry) { return !served.contains(entry.first); });
}

// On the store's publishing thread: notes what there is to look at.
void GcController::on_event(const kube::Resource& resource, const RegistryEvent& event) {
  // Most objects have no owners and are not being deleted (one that lost its owners may stay noted: what is noted only says where to look). The deletion of any
  // object matters to those it owns.
  if (event.failure) {
    log_warn("garbage collection lost sight of a kind, following it anew", {{"resource", resource.plural}, {"error", event.failure->message}});
    const std::scoped_lock lock(mutex_);
    lost_.insert({resource.group, resource.plural});
    return;
  }
  const bool gone = event.type == kube::EventType::Deleted;
  if (event.type == kube::EventType::Bookmark || (!gone && !interesting(*event.object.bytes))) return;
  const auto object = kube::parse_json(*event.object.bytes);
  if (!object) return;
  const Node node{resource.group, resource.plural, kube::space_of(*object), kube::name_of(*object)};
  std::set<std::string> owners;
  if (!gone)
    for (const Json& reference : (*object)["metadata"]["ownerReferences"].items()) owners.insert(reference["uid"].string());
  const std::scoped_lock lock(mutex_);
  const auto before = owners_.find(node);
  if (before != owners_.end()) {
    for (const std::string& uid : before->second) {
      const auto found = dependents_.find(uid);
      found->second.erase(node);
      if (found->second.empty()) dependents_.erase(found);
    }
  }
  const bool new_owners = before == owners_.end() ? !owners.empty() : before->second != owners;
  if (before != owners_.end()) owners_.erase(before);
  for (const std::string& uid : owners) dependents_[uid].insert(node);
  const bool waits = kube::deleting(*object) && (kube::has_finalizer(*object, foreground) || kube::has_finalizer(*object, orphan));
  if (!gone && (new_owners || waits)) dirty_.insert(node);
  if (!owners.empty()) owners_.emplace(node, std::move(owners));
  if (gone || waits)
    if (const auto found = dependents_.find(kube::uid_of(*object)); found != dependents_.end()) dirty_.insert(found->second.begin(), found->second.end());
}

Result<kube::Next> GcController::reconcile(const kube::ObjectKey&) {
  follow_kinds();
  std::set<Node> dirty;
  {
    const std::scoped_lock lock(mutex_);
    dirty.swap(dirty_);
  }
  for (const Node& node : dirty) {
    if (auto looked = look_at(node); !looked) {
      log_warn("garbage collection looks again later", {{"resource", node.plural}, {"name", node.space + "/" + node.name}, {"error", looked.error().message}});
      const std::scoped_lock lock(mutex_);
      dirty_.insert(node);
    }
  }
  return kube::Next{look_again};
}

std::vector<GcController::Node> GcController::dependents_of(const std::string& uid) const {
  const std::scoped_lock lock(mutex_);
  const auto found = dependents_.find(uid);
  return found == dependents_.end() ? std::vector<Node>() : std::vector<Node>(found->second.begin(), found->second.end());
}

std::optional<kube::Resource> GcController::resource_of(const Node& node) const {
  const auto found = followed_.find({node.group, node.plural});
  return found == followed_.end() ? std::nullopt : std::optional(found->second->resource);
}

Result<void> GcController::look_at(const Node& node) {
  const auto resource = resource_of(node);
  if (!resource) return {};  // the kind is gone, and its objects with it
  const auto object = api_.get(*resource, {node.space, node.name});
  if (!object && object.error().code == Code::NotFound) return {};
  if (!object) return std::unexpected(object.error());
  if (kube::deleting(*object)) return finish_owner(*resource, *object);
  return collect(*resource, *object);
}

GcController::Owner GcController::find_owner(const Json& dependent, const Json& reference) {
  const std::string& version = reference["apiVersion"].string();
  const auto slash = version.find('/');
  const std::string group = slash == std::string::npos ? std::string() : version.substr(0, slash);
  for (const auto& kind : one_of_each(*registry_.kinds())) {
    if (kind->resource.group != group || kind->resource.kind != reference["kind"].string()) continue;
    if (kind->resource.namespaced && kube::space_of(dependent).empty()) return Owner::Unknown;  // such an owner cannot be named
    const kube::ObjectKey key{kind->resource.namespaced ? kube::space_of(dependent) : std::string(), reference["name"].string()};
    const auto owner = api_.get(kind->resource, key);
    if (!owner) return owner.error().code == Code::NotFound && registry_.kinds()->find(kind->resource.group, kind->resource.version, kind->resource.plural) ? Owner::Gone : Owner::Unknown;
    if (kube::uid_of(*owner) != reference["uid"].string()) return Owner::Gone;  // another one of that name
    return kube::deleting(*owner) && kube::has_finalizer(*owner, foreground) ? Owner::Waiting : Owner::There;
  }
  return Owner::Unknown;
}

Result<void> GcController::collect(const kube::Resource& resource, const Json& object) {
  const auto& references = object["metadata"]["ownerReferences"].items();
  if (references.empty()) return {};
  Json kept = Json::array();
  std::size_t waiting = 0, gone = 0;
  for (const Json& reference : references) {
    const Owner owner = find_owner(object, reference);
    if (owner == Owner::Unknown) return {};
    if (owner == Owner::There) kept.push(reference);
    if (owner == Owner::Waiting) ++waiting;
    if (owner == Owner::Gone) ++gone;
  }
  kube::DeleteOptions options{.uid = kube::uid_of(object), .resource_version = kube::version_of(object)};
  if (!kept.items().empty()) {
    if (gone + waiting == 0) return {};
    // Somebody still owns it: only the references to the others go.
    const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", options.resource_version}, {"uid", options.uid}, {"ownerReferences", kept}})}});
    auto patched = api_.patch(resource, kube::key_of(object), kube::PatchType::Merge, patch);
    if (!patched && patched.error().code != Code::NotFound) return std::unexpected(std::move(patched.error()));
    return {};
  }
  const bool has_own = !dependents_of(kube::uid_of(object)).empty();
  if (waiting > 0 && has_own) options.propagation = kube::DeleteOptions::Propagation::Foreground;
  auto removed = api_.remove(resource, kube::key_of(object), options);
  if (removed) log_info("collected", {{"resource", resource.plural}, {"name", kube::key_of(object).text()}});
  if (!removed && removed.error().code == Code::Conflict) return std::unexpected(std::move(removed.error()));  // it changed: look again
  if (!gone_already(removed)) return std::unexpected(std::move(removed.error()));
  return {};
}

// Removes foregroundDeletion or orphan from an owner once its dependents allow it.
Result<void> GcController::finish_owner(const kube::Resource& resource, const Json& object) {
  const bool orphans = kube::has_finalizer(object, orphan), waits = kube::has_finalizer(object, foreground);
  if (!orphans && !waits) return {};
  const std::string& uid = kube::uid_of(object);
  bool blocked = false;
  for (const Node& node : dependents_of(uid)) {
    const auto of = resource_of(node);
    if (!of) continue;
    auto dependent = api_.get(*of, {node.space, node.name});
    if (!dependent && dependent.error().code == Code::NotFound) continue;
    if (!dependent) return std::unexpected(std::move(dependent.error()));
    Json kept = Json::array();
    bool blocks = false, owned = false;
    for (const Json& reference : (*dependent)["metadata"]["ownerReferences"].items()) {
      if (reference["uid"].string() != uid) {
        kept.push(reference);
        continue;
      }
      owned = true;
      blocks = reference["blockOwnerDeletion"].boolean();
    }
    if (!owned) continue;
    if (orphans) {
      const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*dependent)}, {"ownerReferences", std::move(kept)}})}});
      auto patched = api_.patch(*of, kube::key_of(*dependent), kube::PatchType::Merge, patch);
      if (!patched && patched.error().code != Code::NotFound) return std::unexpected(std::move(patched.error()));
      continue;
    }
    if (!kube::deleting(*dependent))
      if (auto collected = collect(*of, *dependent); !collected) return collected;
    // It may be gone at once; then it blocks nothing.
    const auto left = blocks ? api_.get(*of, {node.space, node.name}) : Result<Json>(fail(Code::NotFound, ""));
    blocked = blocked || left || left.error().code != Code::NotFound;
  }
  if (blocked) {
    // Looked at again with every round until nothing holds it.
    const std::scoped_lock lock(mutex_);
    dirty_.insert({resource.group, resource.plural, kube::space_of(object), kube::name_of(object)});
    return {};
  }
  Json next = object;
  kube::remove_finalizer(next, orphans ? orphan : foreground);
  auto written = api_.update(resource, next);
  if (!written && written.error().code != Code::NotFound) return std::unexpected(std::move(written.error()));
  return {};
}

}  // namespace fairlead::apiserver
