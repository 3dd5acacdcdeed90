// SPDX-License-Identifier: Apache-2.0
#include "placement/control/event_writer.h"

#include <fmt/format.h>

#include "base/log.h"

namespace fairlead::placement {

using kube::Json;

bool EventWriter::due(const std::string& uid, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  if (last_.size() >= remembered) last_.clear();
  const auto [it, first] = last_.emplace(uid + "/" + reason, now);
  if (!first && now - it->second < quiet) return false;
  it->second = now;
  ++count_;
  return true;
}

void EventWriter::write(const kube::Resource& resource, const Json& about, EventKind kind, const std::string& reason, const std::string& message) {
  if (!due(kube::uid_of(about), reason)) return;
  const Instant now = clock_.now();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = count_;
  }
  const std::string space = kube::space_of(about).empty() ? "default" : kube::space_of(about);
  const std::string time = print_time(now);
  // As client-go names them: unique by time; the counter tells apart what a virtual clock does not.
  const std::string name = fmt::format("{}.{:x}", kube::name_of(about), static_cast<std::uint64_t>(now.time_since_epoch().count()) + number);
  Json involved = Json::object({{"kind", resource.kind}, {"namespace", kube::space_of(about)}, {"name", kube::name_of(about)}, {"uid", kube::uid_of(about)}, {"apiVersion", resource.api_version()}});
  if (!kube::version_of(about).empty()) involved.set("resourceVersion", kube::version_of(about));
  const Json event = Json::object({
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata", Json::object({{"name", name}, {"namespace", space}})},
      {"involvedObject", std::move(involved)},
      {"reason", reason},
      {"message", message.substr(0, 1024)},
      {"source", Json::object({{"component", component_}})},
      {"firstTimestamp", time},
      {"lastTimestamp", time},
      {"count", 1},
      {"type", kind == EventKind::Normal ? "Normal" : "Warning"},
      {"reportingComponent", component_},
      {"reportingInstance", component_},
  });
  if (auto made = api_.create(kube::resources::events, event); !made) {
    log_debug("event not written", {{"object", kube::key_of(about).text()}, {"reason", reason}, {"why", made.error().message}});
  }
}

}  // namespace fairlead::placement
