// SPDX-License-Identifier: Apache-2.0
// For the tests of controllers: objects in maps behind KubeApi, caches that show them only when told, failures on demand. Semantics of a real API server where
// these controllers depend on them: resourceVersion conflicts, status and spec kept apart, binding once.
#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kube/cache.h"
#include "kube/controller.h"
#include "kube/kube_api.h"
#include "kube/patch.h"

namespace fairlead::placement::test {

using kube::Json;
using kube::ObjectKey;
using kube::Resource;

class Cluster final : public kube::KubeApi, public kube::Caches {
 public:
  const kube::Reader& of(const Resource& resource) const override { return caches_[resource]; }

  // The caches see everything that is there now. Returns the changes of one resource, as an informer tells them.
  std::vector<kube::Change> refresh(const Resource& resource) {
    std::vector<Json> all;
    for (const auto& [key, object] : objects_[resource]) all.push_back(object);
    return caches_[resource].replace(all);
  }
  // Of all that these controllers watch, and tells them. What they want to be reconciled.
  std::vector<ObjectKey> refresh_all(const std::vector<kube::Controller::Source>& sources = {}) {
    std::vector<ObjectKey> keys;
    std::set<Resource> resources{kube::resources::pods, kube::resources::nodes, kube::resources::leases};
    for (const auto& source : sources) resources.insert(source.resource);
    for (const Resource& resource : resources) {
      for (const kube::Change& change : refresh(resource))
        for (const auto& source : sources)
          if (source.resource == resource)
            for (ObjectKey& key : source.keys(change)) keys.push_back(std::move(key));
    }
    return keys;
  }
  // Puts an object as it is, whatever was there.
  void put(const Resource& resource, Json object) { store(resource, std::move(object)); }
  Json object(const Resource& resource, const ObjectKey& key) { return has(resource, key) ? objects_[resource][key] : Json(); }
  bool has(const Resource& resource, const ObjectKey& key) { return objects_[resource].contains(key); }
  std::vector<Json> all(const Resource& resource) {
    std::vector<Json> out;
    for (const auto& [key, object] : objects_[resource]) out.push_back(object);
    return out;
  }
  // The next write of this verb gives this error. `though`: yet it is done (its answer was lost).
  void fail_next(const std::string& verb, Code code, bool though = false) { failures_[verb].push_back({code, though}); }
  // Every write after so many fails, as if the process had ended; below zero: none.
  void die_after(int more_writes) { writes_left_ = more_writes; }
  void drop(const Resource& resource, const ObjectKey& key) { objects_[resource].erase(key); }
  std::vector<std::string> writes;  // "post default/p binding"

  Result<Json> get(const Resource& resource, const ObjectKey& key) override {
    const std::lock_guard lock(mutex_);
    if (!has(resource, key)) return fail(Code::NotFound, key.text());
    return object(resource, key);
  }
  Result<kube::List> list(const Resource&, const std::string&, const kube::ListOptions&) override { return fail(Code::Unsupported, "list"); }
  Result<std::unique_ptr<kube::Watch>> watch(const Resource&, const std::string&, const kube::WatchOptions&) override { return fail(Code::Unsupported, "watch"); }
  Result<Json> create(const Resource& resource, const Json& object) override {
    return write("create", resource, kube::key_of(object), "", [&]() -> Result<Json> {
      if (has(resource, kube::key_of(object))) return fail(Code::Exists, kube::key_of(object).text());
      return store(resource, object);
    });
  }
  Result<Json> update(const Resource& resource, const Json& object) override {
    return write("update", resource, kube::key_of(object), "", [&]() -> Result<Json> {
      auto current = same_version(resource, object);
      if (!current) return current;
      Json next = object;
      next.set("status", (*current)["status"]);
      return store(resource, next);
    });
  }
  Result<Json> update_status(const Resource& resource, const Json& object) override {
    return write("update_status", resource, kube::key_of(object), "", [&]() -> Result<Json> {
      auto current = same_version(resource, object);
      if (!current) return current;
      Json next = *current;
      next.set("status", object["status"]);
      return store(resource, next);
    });
  }
  Result<Json> patch(const Resource& resource, const ObjectKey& key, kube::PatchType, const Json& patch, const std::string& subresource) override {
    return write("patch", resource, key, subresource, [&]() -> Result<Json> {
      if (!has(resource, key)) return fail(Code::NotFound, key.text());
      auto next = kube::merge_patch(object(resource, key), patch);
      return store(resource, next);
    });
  }
  Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) override {
    return write("post", resource, key, subresource, [&]() -> Result<Json> {
      if (!has(resource, key)) return fail(Code::NotFound, key.text());
      Json pod = object(resource, key);
      if (kube::uid_of(body) != kube::uid_of(pod)) return fail(Code::Conflict, "another pod");
      if (!pod["spec"]["nodeName"].string().empty()) return fail(Code::Conflict, "already assigned");
      pod.child("spec").set("nodeName", body["target"]["name"]);
      return store(resource, pod);
    });
  }
  Result<void> remove(const Resource& resource, const ObjectKey& key, const kube::DeleteOptions& options) override {
    auto done = write("remove", resource, key, "", [&]() -> Result<Json> {
      if (!has(resource, key)) return fail(Code::NotFound, key.text());
      Json now = object(resource, key);
      if (options.uid != kube::uid_of(now)) return fail(Code::Conflict, "another object");
      if (options.grace_seconds) {
        if (has(kube::resources::nodes, {"", now["spec"]["nodeName"].string()})) return fail(Code::Invalid, "never forced, never hurried while its node is there");
        objects_[resource].erase(key);
        return now;
      }
      now.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");  // graceful: its agent finishes it
      return store(resource, now);
    });
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }
  Result<kube::ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "exec");
  }

 private:
  Json store(const Resource& resource, Json object) {
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    const ObjectKey key = kube::key_of(object);
    objects_[resource].insert_or_assign(key, object);
    return object;
  }
  Result<Json> same_version(const Resource& resource, const Json& object) {
    const ObjectKey key = kube::key_of(object);
    if (!has(resource, key)) return fail(Code::NotFound, key.text());
    Json current = this->object(resource, key);
    if (kube::version_of(current) != kube::version_of(object)) return fail(Code::Conflict, key.text() + " was changed");
    return current;
  }
  template <class Change>
  Result<Json> write(const std::string& verb, const Resource& resource, const ObjectKey& key, const std::string& subresource, const Change& change) {
    const std::lock_guard lock(mutex_);
    if (resource != kube::resources::events) writes.push_back(verb + " " + key.text() + (subresource.empty() ? "" : " " + subresource));
    if (writes_left_ == 0) return fail(Code::Unavailable, "the process has ended");
    if (writes_left_ > 0 && resource != kube::resources::events) --writes_left_;
    auto& failures = failures_[verb];
    if (failures.empty() || resource == kube::resources::events) return change();
    const auto [code, though] = failures.front();
    failures.pop_front();
    if (though) {
      if (auto done = change(); !done) return done;
    }
    return fail(code, "told to fail");
  }

  struct Failure {
    Code code;
    bool though;
  };
  mutable std::map<Resource, kube::Cache> caches_;
  std::map<Resource, std::map<ObjectKey, Json>> objects_;
  std::map<std::string, std::deque<Failure>> failures_;
  int version_ = 0, writes_left_ = -1;
  std::mutex mutex_;  // guards the objects against the threads of a controller
};

// Objects by name, ready to be changed.
inline Json make_node(const std::string& name, const std::string& cpu = "4", const std::string& ready = "True") {
  return Json::object({{"metadata", Json::object({{"name", name}, {"uid", "uid-" + name}})},
                       {"spec", Json::object()},
                       {"status", Json::object({{"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready}, {"reason", "KubeletReady"}, {"message", "fine"}})})},
                                                {"allocatable", Json::object({{"cpu", cpu}, {"memory", "8Gi"}, {"pods", "110"}})}})}});
}
inline Json make_pod(const std::string& name, const std::string& cpu = "1", const std::string& node = "") {
  Json spec = Json::object({{"containers", Json::array({Json::object({{"name", "c"}, {"resources", Json::object({{"requests", Json::object({{"cpu", cpu}})}})}})})}});
  if (!node.empty()) spec.set("nodeName", node);
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "default"}, {"uid", "uid-" + name}, {"creationTimestamp", "2026-01-01T00:00:00Z"}})},
                       {"spec", std::move(spec)},
                       {"status", Json::object({{"phase", "Pending"}})}});
}
inline Json make_lease(const std::string& node, const std::string& renewed) {
  return Json::object({{"metadata", Json::object({{"name", node}, {"namespace", "kube-node-lease"}})}, {"spec", Json::object({{"renewTime", renewed}})}});
}

}  // namespace fairlead::placement::test
