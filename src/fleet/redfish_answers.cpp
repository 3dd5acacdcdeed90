// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "fleet/redfish.h"
#include "kube/json.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

constexpr std::size_t kLargest = 1 << 20;

Result<Json> document(std::string_view body, const char* what) {
  if (body.size() > kLargest) return fail(Code::Invalid, fmt::format("its answer about {} has {} bytes", what, body.size()));
  auto read = kube::parse_json(body);
  if (!read || !read->is_object()) return fail(Code::Invalid, fmt::format("its answer about {} is no JSON object", what));
  return read;
}

// A link that stays on this service: "/redfish/v1/Systems/1".
Result<std::string> path_of(const Json& link, const char* what) {
  const std::string& path = link.string();
  const bool plain = std::all_of(path.begin(), path.end(), [](unsigned char c) { return c > ' ' && c < 0x7f; });
  if (path.size() < 2 || path.size() > 512 || path[0] != '/' || path[1] == '/' || path[1] == '\\' || !plain || path.find('#') != path.npos) return fail(Code::Invalid, fmt::format("its link to {} is not a path of its own", what));
  return path;
}

}  // namespace

Result<std::string> read_redfish_root(std::string_view body) {
  auto root = document(body, "its root");
  if (!root) return std::unexpected(std::move(root.error()));
  return path_of((*root)["Systems"]["@odata.id"], "its systems");
}

Result<std::vector<std::string>> read_redfish_members(std::string_view body) {
  auto list = document(body, "its systems");
  if (!list) return std::unexpected(std::move(list.error()));
  const Json& members = (*list)["Members"];
  if (!members.is_array()) return fail(Code::Invalid, "its list of systems has no Members");
  std::vector<std::string> out;
  for (const Json& member : members.items()) {
    auto path = path_of(member["@odata.id"], "a system");
    if (!path) return std::unexpected(std::move(path.error()));
    while (path->size() > 2 && path->back() == '/') path->pop_back();
    out.push_back(std::move(*path));
  }
  return out;
}

Result<RedfishSystem> read_redfish_system(std::string_view body) {
  auto read = document(body, "the system");
  if (!read) return std::unexpected(std::move(read.error()));
  RedfishSystem out;
  const std::string& power = (*read)["PowerState"].string();
  if (power == "On") out.state = PowerState::On;
  else if (power == "Off") out.state = PowerState::Off;
  else if (power == "PoweringOn" || power == "PoweringOff" || power == "Paused") out.state = PowerState::Changing;
  else return fail(Code::Invalid, "its BMC does not say whether the power is on (PowerState)");
  const Json& reset = (*read)["Actions"]["#ComputerSystem.Reset"];
  if (!reset["target"].is_string()) return out;
  auto path = path_of(reset["target"], "the reset");
  if (!path) return std::unexpected(std::move(path.error()));
  out.reset = std::move(*path);
  for (const Json& type : reset["ResetType@Redfish.AllowableValues"].items())
    if (type.is_string() && type.string().size() <= 64) out.reset_types.push_back(type.string());
  return out;
}

std::string read_redfish_error(std::string_view body) {
  auto read = document(body, "an error");
  if (!read) return "";
  const Json& error = (*read)["error"];
  const Json& extended = error["@Message.ExtendedInfo"];
  // The general text says that there is more to be read; the first of these says what.
  std::string text = extended.items().empty() ? "" : extended.items()[0]["Message"].string();
  if (text.empty()) text = error["message"].string();
  std::string out;
  for (const char c : text.substr(0, 300)) out += c >= ' ' && c < 0x7f ? c : ' ';
  return out;
}

Result<std::string> redfish_reset_type(const RedfishSystem& system, PowerAction action) {
  std::vector<std::string> ways;
  switch (action) {
    case PowerAction::On: ways = {"On", "ForceOn"}; break;
    case PowerAction::ForceOff: ways = {"ForceOff"}; break;
    case PowerAction::GracefulShutdown: ways = {"GracefulShutdown", "PushPowerButton"}; break;
    case PowerAction::ForceRestart: ways = {"ForceRestart", "PowerCycle", "FullPowerCycle"}; break;
  }
  if (system.reset_types.empty()) return ways[0];
  for (const std::string& way : ways)
    if (std::find(system.reset_types.begin(), system.reset_types.end(), way) != system.reset_types.end()) return way;
  return fail(Code::Unsupported, fmt::format("its BMC takes no {} ({})", ways[0], fmt::join(system.reset_types, ", ")));
}

}  // namespace fairlead::fleet
