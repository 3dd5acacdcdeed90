// SPDX-License-Identifier: Apache-2.0
#include "apiserver/event_recorder.h"

#include <fmt/format.h>

#include "base/log.h"

namespace fairlead::apiserver {

using kube::Json;

void record_event(kube::KubeApi& api, const Clock& clock, const std::string& component, const kube::Resource& resource, const Json& about, bool warning, const std::string& reason,
                  const std::string& message) {
  const std::string time = print_time(clock.now());
  const std::string space = kube::space_of(about).empty() ? "default" : kube::space_of(about);
  const Json event = Json::object({
      {"apiVersion", "v1"},
      {"kind", "Event"},
      {"metadata", Json::object({{"generateName", kube::name_of(about).substr(0, 50) + "."}, {"namespace", space}})},
      {"involvedObject", Json::object({{"kind", resource.kind}, {"namespace", kube::space_of(about)}, {"name", kube::name_of(about)}, {"uid", kube::uid_of(about)},
                                       {"apiVersion", resource.api_version()}, {"resourceVersion", kube::version_of(about)}})},
      {"reason", reason},
      {"message", message.substr(0, 1024)},
      {"source", Json::object({{"component", component}})},
      {"firstTimestamp", time},
      {"lastTimestamp", time},
      {"count", 1},
      {"type", warning ? "Warning" : "Normal"},
      {"reportingComponent", component},
  });
  if (auto made = api.create(kube::resources::events, event); !made) log_debug("event not written", {{"object", kube::key_of(about).text()}, {"reason", reason}, {"why", made.error().message}});
}

}  // namespace fairlead::apiserver
