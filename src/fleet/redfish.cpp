// SPDX-License-Identifier: Apache-2.0
#include "fleet/redfish.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/encoding.h"
#include "http/client.h"
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

class RedfishControl final : public PowerControl {
 public:
  Result<PowerState> state(const BmcAccess& access) override {
    auto system = look(access);
    if (!system) return std::unexpected(std::move(system.error()));
    return system->state;
  }

  Result<void> act(const BmcAccess& access, PowerAction action) override {
    auto system = look(access);
    if (!system) return std::unexpected(std::move(system.error()));
    // Asked for what is, some answer with an error.
    if (action == PowerAction::On ? system->state == PowerState::On : system->state == PowerState::Off && action != PowerAction::ForceRestart) return {};
    if (system->reset.empty()) return fail(Code::Unsupported, "its BMC offers no reset of this system (ComputerSystem.Reset)");
    auto type = redfish_reset_type(*system, action);
    if (!type) return std::unexpected(std::move(type.error()));
    auto answer = ask(access, "POST", system->reset, kube::print_json(Json::object({{"ResetType", *type}})), "the reset");
    if (!answer) return std::unexpected(std::move(answer.error()));
    return {};
  }

 private:
  static Result<std::string> ask(const BmcAccess& access, const char* method, const std::string& target, std::string body, const char* what) {
    http::ClientOptions options{.host = access.bmc.host, .port = access.bmc.port, .ca_pem = access.bmc.ca_pem};
    // Nobody is trusted until somebody said whom: the refusal then tells the key that was seen.
    if (options.ca_pem.empty()) options.server_key = access.bmc.server_key.empty() ? "-" : access.bmc.server_key;
    options.request_timeout = std::chrono::seconds(30);
    options.kept_connections = 1;
    auto client = http::Client::make(std::move(options));
    if (!client) return pass(std::move(client.error()), "its BMC's certificate authority");
    http::ClientRequest request{.method = method, .target = target, .headers = {{"Authorization", "Basic " + base64(access.user + ":" + access.password)}, {"Accept", "application/json"}, {"OData-Version", "4.0"}}, .body = std::move(body)};
    if (!request.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    auto answer = (*client)->request(request);
    if (!answer) {
      if (access.bmc.ca_pem.empty() && access.bmc.server_key.empty() && answer.error().message.find("(SHA-256)") != std::string::npos)
        return fail(Code::Unavailable, fmt::format("nobody has said whom to trust as its BMC. {}: if that is it, `fairlead node bmc NAME --key ...` with that key", answer.error().message));
      return fail(Code::Unavailable, fmt::format("its BMC does not answer: {}", answer.error().message));
    }
    if (answer->status == 401 || answer->status == 403) return fail(Code::Unauthorized, fmt::format("its BMC refuses user \"{}\" (status {}): see Secret {}", access.user, answer->status, access.bmc.secret));
    if (answer->status == 404) return fail(Code::NotFound, fmt::format("its BMC has no {} ({})", target, what));
    if (answer->status < 200 || answer->status > 299) {
      const std::string why = read_redfish_error(answer->body);
      return fail(answer->status < 500 ? Code::Unsupported : Code::Unavailable, fmt::format("its BMC answered {} about {}{}{}", answer->status, what, why.empty() ? "" : ": ", why));
    }
    return std::move(answer->body);
  }

  static Result<RedfishSystem> look(const BmcAccess& access) {
    std::string path = access.bmc.system;
    if (!path.starts_with('/')) {
      auto found = find_system(access);
      if (!found) return std::unexpected(std::move(found.error()));
      path = std::move(*found);
    }
    auto body = ask(access, "GET", path, "", "the system");
    if (!body) return std::unexpected(std::move(body.error()));
    return read_redfish_system(*body);
  }

  static Result<std::string> find_system(const BmcAccess& access) {
    auto root = ask(access, "GET", "/redfish/v1/", "", "its root");
    if (!root) return std::unexpected(std::move(root.error()));
    auto systems = read_redfish_root(*root);
    if (!systems) return std::unexpected(std::move(systems.error()));
    auto list = ask(access, "GET", *systems, "", "its systems");
    if (!list) return std::unexpected(std::move(list.error()));
    auto members = read_redfish_members(*list);
    if (!members) return std::unexpected(std::move(members.error()));
    const std::string& wanted = access.bmc.system;
    std::vector<std::string> found;
    for (const std::string& member : *members)
      if (wanted.empty() || member.substr(member.rfind('/') + 1) == wanted) found.push_back(member);
    if (found.size() == 1) return found[0];
    if (members->size() > 8) members->resize(8);
    if (found.empty()) return fail(Code::NotFound, wanted.empty() ? "its BMC has no system" : fmt::format("its BMC has no system {}: there are {}", wanted, fmt::join(*members, ", ")));
    // One of several that is guessed would be somebody else's machine.
    return fail(Code::Invalid, fmt::format("its BMC has several systems ({}): say which one is this host (fairlead node bmc NAME --system)", fmt::join(*members, ", ")));
  }
};

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

std::unique_ptr<PowerControl> make_redfish_control() { return std::make_unique<RedfishControl>(); }

}  // namespace fairlead::fleet
