// SPDX-License-Identifier: Apache-2.0
#include "node/events.h"

#include <fmt/format.h>

#include "base/log.h"
#include "kube/object.h"

namespace fairlead::node {
using kube::Json;

Events::Events(kube::KubeApi& api, const Clock& clock, std::string node_name) : api_(api), clock_(clock), node_name_(std::move(node_name)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
}

Events::~Events() {
  thread_.request_stop();
  thread_.join();
}

void Events::tell(const Json& object, Type type, const std::string& reason, const std::string& message) {
  const std::string space = kube::space_of(object).empty() ? "default" : kube::space_of(object);
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  if (recent_.size() > 2000) std::erase_if(recent_, [&](const auto& item) { return now - item.second > std::chrono::minutes(5); });
  const std::string key = kube::uid_of(object) + "/" + reason + "/" + message;
  if (const auto it = recent_.find(key); it != recent_.end() && now - it->second < std::chrono::minutes(5)) return;
  if (queue_.size() >= 500) return;
  recent_[key] = now;
  const std::string time = print_time(clock_.now());
  const auto stamp = static_cast<std::uint64_t>(clock_.now().time_since_epoch().count());
  queue_.push_back(
      Json::object({{"apiVersion", "v1"},
                    {"kind", "Event"},
                    {"metadata", Json::object({{"name", fmt::format("{}.{:x}", kube::name_of(object), stamp + count_++)}, {"namespace", space}})},
                    {"involvedObject", Json::object({{"apiVersion", object["apiVersion"].string_or("v1")},
                                                     {"kind", object["kind"].string_or("Pod")},
                                                     {"namespace", kube::space_of(object)},
                                                     {"name", kube::name_of(object)},
                                                     {"uid", kube::uid_of(object)}})},
                    {"reason", reason},
                    {"message", message.substr(0, 1024)},
                    {"type", type == Type::Normal ? "Normal" : "Warning"},
                    {"source", Json::object({{"component", "fairlead-agent"}, {"host", node_name_}})},
                    {"reportingComponent", "fairlead-agent"},
                    {"reportingInstance", node_name_},
                    {"firstTimestamp", time},
                    {"lastTimestamp", time},
                    {"count", 1}}));
  changed_.notify_one();
}

void Events::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !queue_.empty(); }), !stop.stop_requested()) {
    const Json event = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (auto made = api_.create(kube::resources::events, event); !made) log_debug("event was not written", {{"reason", made.error().message}});
    lock.lock();
  }
}

}  // namespace fairlead::node
