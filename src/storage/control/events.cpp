// SPDX-License-Identifier: Apache-2.0
#include "storage/control/events.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "base/log.h"

namespace fairlead::storage {

using kube::Json;

void tell(kube::KubeApi& api, const Clock& clock, const std::string& component, const kube::Resource& resource, const Json& about, const std::string& reason, const std::string& message) {
  if (reason.empty()) return;
  const std::string time = print_time(clock.now());
  // Named by what it says: a second of the same is there already.
  const std::string name = fmt::format("{}.{}", kube::name_of(about).substr(0, 200), hex(sha256(fmt::format("{}\n{}\n{}", kube::uid_of(about), reason, message))).substr(0, 16));
  const Json event = Json::object({{"apiVersion", "v1"},
                                   {"kind", "Event"},
                                   {"metadata", Json::object({{"name", name}, {"namespace", kube::space_of(about)}})},
                                   {"involvedObject", Json::object({{"kind", resource.kind}, {"namespace", kube::space_of(about)}, {"name", kube::name_of(about)}, {"uid", kube::uid_of(about)}, {"apiVersion", resource.api_version()}, {"resourceVersion", kube::version_of(about)}})},
                                   {"reason", reason},
                                   {"message", message.substr(0, 1024)},
                                   {"source", Json::object({{"component", component}})},
                                   {"firstTimestamp", time},
                                   {"lastTimestamp", time},
                                   {"count", 1},
                                   {"type", reason.find("Failed") != std::string::npos ? "Warning" : "Normal"},
                                   {"reportingComponent", component}});
  if (auto made = api.create(kube::resources::events, event); !made && made.error().code != Code::Exists) log_debug("event not written", {{"object", kube::key_of(about).text()}, {"reason", reason}, {"why", made.error().message}});
}

}  // namespace fairlead::storage
