// SPDX-License-Identifier: Apache-2.0
// For tests: a KubeApi in memory, for any resource. Deleting a pod marks it as the real API does; grace 0 removes it.
#pragma once
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "kube/kube_api.h"
#include "kube/patch.h"

namespace fairlead::node {

class MemoryApi final : public kube::KubeApi {
 public:
  using Json = kube::Json;
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find({resource.plural, key});
    if (it == objects_.end()) return fail(Code::NotFound, resource.plural + " \"" + key.name + "\" not found");
    return it->second;
  }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions&) override {
    const std::lock_guard lock(mutex_);
    kube::List out{.items = {}, .resource_version = std::to_string(version_), .continue_token = {}};
    for (const auto& [at, object] : objects_)
      if (at.first == resource.plural && (space.empty() || at.second.space == space)) out.items.push_back(object);
    return out;
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override {
    const std::int64_t from = options.resource_version.empty() ? 0 : std::stoll(options.resource_version);
    return std::unique_ptr<kube::Watch>(new Following(*this, resource.plural, space, from));
  }
  Result<Json> create(const kube::Resource& resource, const Json& given) override {
    const std::lock_guard lock(mutex_);
    const auto at = std::pair(resource.plural, kube::key_of(given));
    if (objects_.contains(at)) return fail(Code::Exists, at.second.text());
    Json object = given;
    if (kube::uid_of(object).empty()) object.child("metadata").set("uid", "uid-" + at.second.name + "-" + std::to_string(version_));
    return write(at, std::move(object), kube::EventType::Added);
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override {
    const std::lock_guard lock(mutex_);
    return write({resource.plural, kube::key_of(object)}, object, kube::EventType::Modified);
  }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return update(resource, object); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& change,
                     const std::string&) override {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find({resource.plural, key});
    if (it == objects_.end()) return fail(Code::NotFound, key.text());
    const std::string& uid = kube::uid_of(change);
    if (!uid.empty() && uid != kube::uid_of(it->second)) return fail(Code::Conflict, "uid");
    if (type != kube::PatchType::Strategic) return write(it->first, kube::merge_patch(it->second, change), kube::EventType::Modified);
    auto merged = kube::strategic_merge(it->second, change, kube::TypeTable::builtin(),
                                        kube::TypeTable::builtin().find_kind(resource.api_version(), resource.kind));
    if (!merged) return merged;
    return write(it->first, std::move(*merged), kube::EventType::Modified);
  }
  // TokenRequests only: "TOKEN-1", "TOKEN-2", ... for an hour.
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey&, const std::string& subresource, const Json& body) override {
    if (resource.plural != "serviceaccounts" || subresource != "token") return fail(Code::Unsupported, "post");
    const std::lock_guard lock(mutex_);
    if (!tokens_given) return fail(Code::Unavailable, "no tokens now");
    Json out = body;
    out.set("status", Json::object({{"token", "TOKEN-" + std::to_string(++tokens_)},
                                    {"expirationTimestamp", print_time(token_clock->now() + std::chrono::hours(1))}}));
    return out;
  }
  bool tokens_given = true;
  const Clock* token_clock = &system_clock_;
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find({resource.plural, key});
    if (it == objects_.end()) return fail(Code::NotFound, key.text());
    if (!options.uid.empty() && options.uid != kube::uid_of(it->second)) return fail(Code::Conflict, "uid");
    const std::int64_t grace = options.grace_seconds.value_or(it->second["spec"]["terminationGracePeriodSeconds"].integer(30));
    if (resource.plural == "pods" && grace > 0) {
      Json object = it->second;
      object.child("metadata")
          .set("deletionTimestamp", print_time(SystemClock().now() + std::chrono::seconds(grace)))
          .set("deletionGracePeriodSeconds", grace);
      (void)write(it->first, std::move(object), kube::EventType::Modified);
      return {};
    }
    Json object = it->second;
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    history_.push_back({version_, it->first, {kube::EventType::Deleted, object}});
    objects_.erase(it);
    changed_.notify_all();
    return {};
  }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&,
                                std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "exec");
  }
  // Waits until `holds` is true of what is stored. False: not within `limit`.
  template <class Holds>
  bool wait_until(const Holds& holds, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return holds(objects_); });
  }
  using At = std::pair<std::string, kube::ObjectKey>;
  using Objects = std::map<At, Json>;

 private:
  struct Past {
    std::int64_t version;
    At at;
    kube::WatchEvent event;
  };
  class Following final : public kube::Watch {
   public:
    Following(MemoryApi& api, std::string plural, std::string space, std::int64_t from)
        : api_(api), plural_(std::move(plural)), space_(std::move(space)), from_(from) {}
    Result<std::optional<kube::WatchEvent>> next(std::chrono::milliseconds limit) override {
      std::unique_lock lock(api_.mutex_);
      std::optional<kube::WatchEvent> out;
      api_.changed_.wait_for(lock, limit, [&] {
        if (closed_) return true;
        for (const Past& past : api_.history_) {
          if (past.version <= from_) continue;
          from_ = past.version;
          if (past.at.first != plural_ || (!space_.empty() && past.at.second.space != space_)) continue;
          out = past.event;
          return true;
        }
        return false;
      });
      if (closed_) return fail(Code::Unavailable, "closed");
      return out;
    }
    void close() override {
      const std::lock_guard lock(api_.mutex_);
      closed_ = true;
      api_.changed_.notify_all();
    }

   private:
    MemoryApi& api_;
    const std::string plural_, space_;
    std::int64_t from_;
    bool closed_ = false;
  };
  Json write(const At& at, Json object, kube::EventType type) {
    object.child("metadata").set("resourceVersion", std::to_string(++version_));
    objects_[at] = object;
    history_.push_back({version_, at, {type, object}});
    changed_.notify_all();
    return object;
  }
  SystemClock system_clock_;
  int tokens_ = 0;  // under mutex_, as all below
  std::mutex mutex_;
  std::condition_variable changed_;
  Objects objects_;
  std::vector<Past> history_;
  std::int64_t version_ = 1;
};

}  // namespace fairlead::node
