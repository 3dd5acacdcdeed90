// SPDX-License-Identifier: Apache-2.0
#include "fleet/redfish.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/encoding.h"
#include "http/client.h"
#include "kube/json.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

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
    options.connect_timeout = std::chrono::seconds(3);
    options.request_timeout = std::chrono::seconds(15);
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

std::unique_ptr<PowerControl> make_redfish_control() { return std::make_unique<RedfishControl>(); }

}  // namespace fairlead::fleet
