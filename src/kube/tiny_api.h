// SPDX-License-Identifier: Apache-2.0
// For tests of controllers: objects by resource and key with a server's rules of versions, finalizers and preconditions, read back at once.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kube/controller.h"
#include "kube/patch.h"
#include "kube/selector.h"

namespace fairlead::kube {

class TinyApi : public KubeApi, public Caches {
 public:
  struct View final : Reader {
    std::map<ObjectKey, Json>* objects = nullptr;
    std::optional<Json> get(const ObjectKey& key) const override {
      const auto found = objects->find(key);
      return found == objects->end() ? std::nullopt : std::optional(found->second);
    }
    std::vector<Json> list(const std::string& space) const override {
      std::vector<Json> all;
      for (const auto& [key, object] : *objects)
        if (space.empty() || key.space == space) all.push_back(object);
      return all;
    }
  };
  const Reader& of(const Resource& resource) const override {
    View& view = views_[resource.plural];
    view.objects = &objects_[resource.plural];
    return view;
  }
  std::map<ObjectKey, Json>& all(const std::string& plural) { return objects_[plural]; }
  // Equal for as long as nothing is written, and nothing goes. Cheap.
  std::pair<std::int64_t, std::size_t> mark() const {
    std::size_t count = 0;
    for (const auto& [plural, objects] : objects_) count += objects.size();
    return {static_cast<std::int64_t>(version_), count};
  }
  std::function<std::string()> stamp;  // when objects are made; none: nobody asks

  // Whatever the object's version.
  Result<Json> put(const Resource& resource, Json object) {
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    const auto key = key_of(object);
    if (deleting(object) && object["metadata"]["finalizers"].items().empty())
      objects_[resource.plural].erase(key);
    else
      objects_[resource.plural].insert_or_assign(key, object);
    return object;
  }
  Result<Json> get(const Resource& resource, const ObjectKey& key) override {
    const auto found = objects_[resource.plural].find(key);
    if (found == objects_[resource.plural].end()) return fail(Code::NotFound, "not found");
    return found->second;
  }
  Result<Json> create(const Resource& resource, const Json& object) override {
    if (objects_[resource.plural].contains(key_of(object))) return fail(Code::Exists, "exists");
    Json made = object;
    if (uid_of(made).empty()) made.child("metadata").set("uid", "uid-" + std::to_string(version_ + 1));
    if (stamp) made.child("metadata").set("creationTimestamp", stamp());
    return put(resource, std::move(made));
  }
  Result<Json> update(const Resource& resource, const Json& object) override {
    auto now = get(resource, key_of(object));
    if (!now) return now;
    if (version_of(*now) != version_of(object)) return fail(Code::Conflict, "stale");
    return put(resource, object);
  }
  Result<Json> update_status(const Resource& resource, const Json& object) override {
    ++status_writes;
    auto now = get(resource, key_of(object));
    if (!now) return now;
    if (version_of(*now) != version_of(object)) return fail(Code::Conflict, "stale");
    now->set("status", object["status"]);
    return put(resource, std::move(*now));
  }
  Result<Json> patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& = "") override {
    if (type != PatchType::Merge) return fail(Code::Unsupported, "only merge patches");
    auto now = get(resource, key);
    if (!now) return now;
    if (!version_of(patch).empty() && version_of(patch) != version_of(*now)) return fail(Code::Conflict, "stale");
    return put(resource, merge_patch(std::move(*now), patch));
  }
  Result<void> remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) override {
    auto now = get(resource, key);
    if (!now) return std::unexpected(std::move(now.error()));
    if (!options.uid.empty() && options.uid != uid_of(*now)) return fail(Code::Conflict, "another one");
    if (!options.resource_version.empty() && options.resource_version != version_of(*now)) return fail(Code::Conflict, "stale");
    if (!deleting(*now)) now->child("metadata").set("deletionTimestamp", stamp ? stamp() : "2026-01-01T00:00:00Z");
    if (auto done = put(resource, std::move(*now)); !done) return std::unexpected(std::move(done.error()));
    return {};
  }
  Result<List> list(const Resource& resource, const std::string& space, const ListOptions& options = {}) override {
    auto chosen = LabelSelector::parse(options.label_selector);
    if (!chosen) return std::unexpected(std::move(chosen.error()));
    constexpr std::string_view by_node = "spec.nodeName=";
    const bool of_node = options.field_selector.starts_with(by_node);
    if ((!options.field_selector.empty() && !of_node) || !options.continue_token.empty()) return fail(Code::Unsupported, "list by fields or further parts");
    List out{.items = {}, .resource_version = std::to_string(version_), .continue_token = {}};
    for (const auto& [key, object] : objects_[resource.plural])
      if ((space.empty() || key.space == space) && chosen->matches(object["metadata"]["labels"]) && (!of_node || object["spec"]["nodeName"].string() == options.field_selector.substr(by_node.size()))) out.items.push_back(object);
    if (options.limit > 0 && static_cast<std::int64_t>(out.items.size()) > options.limit) {
      out.items.resize(static_cast<std::size_t>(options.limit));
      out.continue_token = "more";  // which is not served
    }
    return out;
  }
  Result<std::unique_ptr<Watch>> watch(const Resource&, const std::string&, const WatchOptions&) override { return fail(Code::Unsupported, "watch"); }
  Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override { return posted ? posted(resource, key, subresource, body) : fail(Code::Unsupported, "post"); }
  std::function<Result<Json>(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body)> posted;  // none: nothing can be posted
  Result<ExecResult> exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string&, std::chrono::milliseconds) override {
    std::string line = pod.text() + " " + container;
    for (const auto& word : command) line += " " + word;
    const std::lock_guard lock(exec_mutex_);  // pods may be asked by several threads
    commands.push_back(std::move(line));
    return answer ? answer(command) : ExecResult{};
  }
  std::function<ExecResult(const std::vector<std::string>& command)> answer;  // none: everything succeeds and says nothing
  int status_writes = 0;
  std::vector<std::string> commands;

 private:
  std::mutex exec_mutex_;
  std::int64_t version_ = 0;
  mutable std::map<std::string, std::map<ObjectKey, Json>> objects_;
  mutable std::map<std::string, View> views_;
};

}  // namespace fairlead::kube
