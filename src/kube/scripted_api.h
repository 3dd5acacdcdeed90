// SPDX-License-Identifier: Apache-2.0
// For tests: a KubeApi with one resource, whose watches a test feeds and breaks by hand.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "kube/kube_api.h"

namespace fairlead::kube {

inline Json test_object(const std::string& space, const std::string& name, int version) {
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", space}, {"resourceVersion", std::to_string(version)}})}});
}

// Refuses everything; a test overrides what it needs.
class BareApi : public KubeApi {
 public:
  Result<Json> get(const Resource&, const ObjectKey&) override { return refuse(); }
  Result<List> list(const Resource&, const std::string&, const ListOptions& = {}) override { return refuse(); }
  Result<std::unique_ptr<Watch>> watch(const Resource&, const std::string&, const WatchOptions&) override { return refuse(); }
  Result<Json> create(const Resource&, const Json&) override { return refuse(); }
  Result<Json> update(const Resource&, const Json&) override { return refuse(); }
  Result<Json> update_status(const Resource&, const Json&) override { return refuse(); }
  Result<Json> patch(const Resource&, const ObjectKey&, PatchType, const Json&, const std::string& = "") override { return refuse(); }
  Result<Json> post(const Resource&, const ObjectKey&, const std::string&, const Json&) override { return refuse(); }
  Result<void> remove(const Resource&, const ObjectKey&, const DeleteOptions& = {}) override { return refuse(); }
  Result<ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return refuse(); }

 private:
  static std::unexpected<Error> refuse() { return fail(Code::Unsupported, "not in this test"); }
};

class ScriptedApi final : public KubeApi {
 public:
  // What a list shows; a running watch is not told.
  void put(const Json& object, int version) {
    const std::lock_guard lock(mutex_);
    objects_.insert_or_assign(key_of(object), object);
    version_ = version;
  }
  void drop(const ObjectKey& key, int version) {
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
    version_ = version;
  }
  // For the open watch, or the next one.
  void event(EventType type, Json object) {
    const std::lock_guard lock(mutex_);
    events_.push_back(WatchEvent{type, std::move(object)});
    changed_.notify_all();
  }
  void break_watch(Code code) {
    const std::lock_guard lock(mutex_);
    events_.push_back(fail(code, "scripted"));
    changed_.notify_all();
  }
  void fail_next_list(Code code) {
    const std::lock_guard lock(mutex_);
    list_failures_.push_back(code);
  }
  int lists() const {
    const std::lock_guard lock(mutex_);
    return lists_;
  }
  std::vector<std::string> watched_from() const {
    const std::lock_guard lock(mutex_);
    return watched_from_;
  }
  // Waits for the count-th watch.
  bool wait_for_watch(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return watched_from_.size() >= count; });
  }

  Result<List> list(const Resource&, const std::string&, const ListOptions&) override {
    const std::lock_guard lock(mutex_);
    ++lists_;
    if (!list_failures_.empty()) {
      const Code code = list_failures_.front();
      list_failures_.pop_front();
      return fail(code, "scripted");
    }
    List out{.resource_version = std::to_string(version_)};
    for (const auto& [key, object] : objects_) out.items.push_back(object);
    return out;
  }
  Result<std::unique_ptr<Watch>> watch(const Resource&, const std::string&, const WatchOptions& options) override {
    const std::lock_guard lock(mutex_);
    watched_from_.push_back(options.resource_version);
    changed_.notify_all();
    return std::make_unique<ScriptedWatch>(*this);
  }
  Result<Json> get(const Resource&, const ObjectKey&) override { return fail(Code::Unsupported, "scripted"); }
  Result<Json> create(const Resource&, const Json&) override { return fail(Code::Unsupported, "scripted"); }
  Result<Json> update(const Resource&, const Json&) override { return fail(Code::Unsupported, "scripted"); }
  Result<Json> update_status(const Resource&, const Json&) override { return fail(Code::Unsupported, "scripted"); }
  Result<Json> patch(const Resource&, const ObjectKey&, PatchType, const Json&, const std::string&) override { return fail(Code::Unsupported, "scripted"); }
  Result<Json> post(const Resource&, const ObjectKey&, const std::string&, const Json&) override { return fail(Code::Unsupported, "scripted"); }
  Result<void> remove(const Resource&, const ObjectKey&, const DeleteOptions&) override { return fail(Code::Unsupported, "scripted"); }
  Result<ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    return fail(Code::Unsupported, "scripted");
  }

 private:
  class ScriptedWatch final : public Watch {
   public:
    explicit ScriptedWatch(ScriptedApi& api) : api_(api) {}
    Result<std::optional<WatchEvent>> next(std::chrono::milliseconds limit) override {
      std::unique_lock lock(api_.mutex_);
      api_.changed_.wait_for(lock, limit, [&] { return closed_ || !api_.events_.empty(); });
      if (closed_) return fail(Code::Unavailable, "closed");
      if (api_.events_.empty()) return std::optional<WatchEvent>();
      auto event = std::move(api_.events_.front());
      api_.events_.pop_front();
      if (!event) return std::unexpected(std::move(event.error()));
      return std::move(*event);
    }
    void close() override {
      const std::lock_guard lock(api_.mutex_);
      closed_ = true;
      api_.changed_.notify_all();
    }

   private:
    ScriptedApi& api_;
    bool closed_ = false;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ObjectKey, Json> objects_;
  int version_ = 1;
  int lists_ = 0;
  std::deque<Code> list_failures_;
  std::deque<Result<WatchEvent>> events_;
  std::vector<std::string> watched_from_;
};

}  // namespace fairlead::kube
