// SPDX-License-Identifier: Apache-2.0
#include "placement/control/event_writer.h"

#include <fmt/format.h>

#include "base/log.h"
#include "kube/many.h"

namespace fairlead::placement {

using kube::Json;

std::optional<std::uint64_t> EventWriter::due(const std::string& uid, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  if (last_.size() >= remembered) last_.clear();
  const auto [it, first] = last_.emplace(uid + "/" + reason, now);
  if (!first && now - it->second < quiet) return std::nullopt;
  it->second = now;
  return ++count_;
}

std::optional<Json> EventWriter::event(const kube::Resource& resource, const Json& about, EventKind kind, const std::string& reason, const std::string& message) {
  const auto number = due(kube::uid_of(about), reason);
  if (!number) return std::nullopt;
  const Instant now = clock_.now();
  const std::string space = kube::space_of(about).empty() ? "default" : kube::space_of(about);
  const std::string time = print_time(now);
  // As client-go names them: unique by time; the counter tells apart what a virtual clock does not.
  const std::string name = fmt::format("{}.{:x}", kube::name_of(about), static_cast<std::uint64_t>(now.time_since_epoch().count()) + *number);
  Json involved = Json::object({{"kind", resource.kind}, {"namespace", kube::space_of(about)}, {"name", kube::name_of(about)}, {"uid", kube::uid_of(about)}, {"apiVersion", resource.api_version()}});
  if (!kube::version_of(about).empty()) involved.set("resourceVersion", kube::version_of(about));
  return Json::object({
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
}

namespace {
void tell_lost(const Json& about, const std::string& reason, const Error& why) {
  log_debug("event not written", {{"object", kube::key_of(about).text()}, {"reason", reason}, {"why", why.message}});
}
}  // namespace

void EventWriter::write(const kube::Resource& resource, const Json& about, EventKind kind, const std::string& reason, const std::string& message) {
  const auto told = event(resource, about, kind, reason, message);
  if (!told) return;
  if (auto made = api_.create(kube::resources::events, *told); !made) tell_lost(about, reason, made.error());
}

void EventWriter::write_all(const kube::Resource& resource, const std::vector<Note>& notes) {
  std::vector<Json> events;
  std::vector<const Note*> of;
  for (const Note& note : notes) {
    auto told = event(resource, note.about, note.kind, note.reason, note.message);
    if (!told) continue;
    events.push_back(std::move(*told));
    of.push_back(&note);
  }
  if (events.empty()) return;
  const auto made = kube::create_all(api_, kube::resources::events, std::move(events));
  for (std::size_t i = 0; i < made.size(); ++i)
    if (!made[i]) tell_lost(of[i]->about, of[i]->reason, made[i].error());
}

}  // namespace fairlead::placement
