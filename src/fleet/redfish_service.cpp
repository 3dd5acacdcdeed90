// SPDX-License-Identifier: Apache-2.0
#include "fleet/redfish_service.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "kube/json.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

constexpr const char* kSystems = "/redfish/v1/Systems";

http::Response told(int status, const Json& body) { return {.status = status, .headers = {{"Content-Type", "application/json"}, {"OData-Version", "4.0"}}, .body = kube::print_json(body)}; }
http::Response refused(int status, const std::string& why) {
  return told(status, Json::object({{"error", Json::object({{"code", "Base.1.8.GeneralError"}, {"message", "See the extended information."}, {"@Message.ExtendedInfo", Json::array({Json::object({{"MessageId", "Base.1.8.GeneralError"}, {"Message", why}})})}})}}));
}
const char* power_word(PowerState state) { return state == PowerState::Changing ? "PoweringOff" : name(state); }

}  // namespace

Result<std::unique_ptr<RedfishService>> RedfishService::open(RedfishServiceOptions options) {
  std::unique_ptr<RedfishService> out(new RedfishService(std::move(options)));
  auto server = http::Server::start({.address = out->options_.address, .port = out->options_.port, .tls = out->options_.tls, .threads = 1, .body_limit = 64_KiB}, [self = out.get()](http::Request request, std::shared_ptr<http::Exchange> exchange) { exchange->respond(self->answer(request)); });
  if (!server) return std::unexpected(std::move(server.error()));
  out->server_ = std::move(*server);
  return out;
}

http::Response RedfishService::answer(const http::Request& request) {
  std::string path = request.target.path;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  // The root alone is told to everybody (DSP0266, 13.3.5).
  if (path == "/redfish/v1") return told(200, Json::object({{"@odata.id", "/redfish/v1/"}, {"@odata.type", "#ServiceRoot.v1_5_0.ServiceRoot"}, {"Id", "RootService"}, {"Name", "Root Service"}, {"RedfishVersion", "1.8.0"}, {"Systems", Json::object({{"@odata.id", kSystems}})}}));
  if (http::find(request.headers, "authorization") != "Basic " + base64(options_.user + ":" + options_.password)) return refused(401, "The credentials are not those of a user.");
  if (path == kSystems && request.method == "GET") {
    Json members = Json::array();
    for (const std::string& system : options_.systems) members.push(Json::object({{"@odata.id", fmt::format("{}/{}", kSystems, system)}}));
    return told(200, Json::object({{"@odata.id", kSystems}, {"@odata.type", "#ComputerSystemCollection.ComputerSystemCollection"}, {"Name", "Systems"}, {"Members@odata.count", static_cast<std::int64_t>(options_.systems.size())}, {"Members", std::move(members)}}));
  }
  const auto& parts = request.target.segments;
  if (parts.size() < 4 || !path.starts_with(std::string(kSystems) + "/") || std::find(options_.systems.begin(), options_.systems.end(), parts[3]) == options_.systems.end()) return refused(404, "The resource is missing.");
  const std::string& system = parts[3];
  const std::string own = fmt::format("{}/{}", kSystems, system), reset = own + "/Actions/ComputerSystem.Reset";
  const std::lock_guard lock(mutex_);
  if (path == own && request.method == "GET") {
    const auto state = options_.state(system);
    if (!state) return refused(500, state.error().message);
    return told(200, Json::object({{"@odata.id", own}, {"@odata.type", "#ComputerSystem.v1_13_0.ComputerSystem"}, {"Id", system}, {"Name", "System " + system}, {"PowerState", power_word(*state)},
                                   {"Actions", Json::object({{"#ComputerSystem.Reset", Json::object({{"target", reset}, {"ResetType@Redfish.AllowableValues", Json::array(std::vector<Json>(options_.reset_types.begin(), options_.reset_types.end()))}})}})}}));
  }
  if (path == reset && request.method == "POST") {
    const auto body = kube::parse_json(request.body);
    const std::string type = body ? (*body)["ResetType"].string() : "";
    if (std::find(options_.reset_types.begin(), options_.reset_types.end(), type) == options_.reset_types.end()) return refused(400, fmt::format("The value {} for the parameter ResetType is not in the list of acceptable values.", type));
    if (const auto done = options_.reset(system, type); !done) return refused(500, done.error().message);
    return {.status = 204};
  }
  return refused(405, "The method is not allowed.");
}

}  // namespace fairlead::fleet
