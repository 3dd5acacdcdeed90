// SPDX-License-Identifier: Apache-2.0
#include "governance/control/queue_kinds.h"

#include <fmt/format.h>

#include <charconv>

#include "base/encoding.h"
#include "base/log.h"

namespace fairlead::governance {

using kube::Json;

void tell(kube::KubeApi& api, const kube::Resource& resource, const Json& about, const Note& note, Instant now) {
  const std::string at = print_time(now), space = kube::space_of(about).empty() ? "default" : kube::space_of(about);
  const std::string hash = hex(sha256(kube::uid_of(about) + kube::version_of(about) + note.reason + note.message)).substr(0, 16);
  const Json event = Json::object({{"apiVersion", "v1"},
                                   {"kind", "Event"},
                                   {"metadata", Json::object({{"name", fmt::format("{}.{}", kube::name_of(about).substr(0, 230), hash)}, {"namespace", space}})},
                                   {"involvedObject", Json::object({{"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"name", kube::name_of(about)}, {"namespace", kube::space_of(about)}, {"uid", kube::uid_of(about)}})},
                                   {"reason", note.reason},
                                   {"message", note.message.substr(0, 1000)},
                                   {"type", note.warning ? "Warning" : "Normal"},
                                   {"source", Json::object({{"component", "fairlead-server"}})},
                                   {"firstTimestamp", at},
                                   {"lastTimestamp", at},
                                   {"count", 1}});
  if (auto made = api.create(kube::resources::events, event); !made && made.error().code != Code::Exists) log_debug("event was not written", {{"reason", made.error().message}});
}

bool version_before(const std::string& a, const std::string& b) {
  std::uint64_t x = 0, y = 0;
  const auto read = [](const std::string& text, std::uint64_t& into) { return std::from_chars(text.data(), text.data() + text.size(), into).ec == std::errc{}; };
  return read(a, x) && read(b, y) && x < y;
}

}  // namespace fairlead::governance
