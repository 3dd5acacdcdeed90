// SPDX-License-Identifier: Apache-2.0
#include "apiserver/event_controller.h"

#include <algorithm>

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::chrono::seconds sweep_every{60};

// The latest time that the event names; the creation if none parses.
Instant last_seen(const Json& event) {
  Instant latest{};
  for (const Json* time : {&event["metadata"]["creationTimestamp"], &event["firstTimestamp"], &event["lastTimestamp"], &event["eventTime"], &event["series"]["lastObservedTime"]})
    if (const auto parsed = parse_time(time->string())) latest = std::max(latest, *parsed);
  return latest;
}

}  // namespace

Result<kube::Next> EventController::reconcile(const kube::ObjectKey&) {
  const Instant oldest = clock_.now() - lifetime_;
  kube::ListOptions page{.limit = 500};
  do {
    auto list = api_.list(kube::resources::events, "", page);
    if (!list && list.error().code == Code::Expired) break;  // the rest at the next sweep
    if (!list) return pass(std::move(list.error()), "list events");
    for (const Json& event : list->items) {
      if (last_seen(event) >= oldest) continue;
      auto removed = api_.remove(kube::resources::events, kube::key_of(event), {.uid = kube::uid_of(event), .resource_version = kube::version_of(event)});
      const bool fine = removed || removed.error().code == Code::NotFound || removed.error().code == Code::Conflict;
      if (!fine) return pass(std::move(removed.error()), "forget an event");
    }
    page.continue_token = list->continue_token;
  } while (!page.continue_token.empty());
  return kube::Next{sweep_every};
}

}  // namespace fairlead::apiserver
