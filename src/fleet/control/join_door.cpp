// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/join_door.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "api/instance_types.h"
#include "base/log.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr std::string_view kNodePrefix = "system:node:";

http::Response say(int status, std::string body) { return {.status = status, .headers = {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}, .body = std::move(body) + "\n"}; }
http::Response say(int status, const Json& body) { return say(status, kube::print_json(body)); }
http::Response refuse(int status, const std::string& why) {
  http::Response out = say(status, Json::object({{"message", why}}));
  if (status == 503) out.headers.push_back({"Retry-After", "1"});
  return out;
}

// An address that others can reach a host at.
std::string why_not_address(const std::string& text) {
  in_addr four{};
  if (::inet_pton(AF_INET, text.c_str(), &four) != 1) return fmt::format("\"{}\" is not an IPv4 address", text);
  const std::uint32_t value = ntohl(four.s_addr);
  if (value >> 24 == 127 || value >> 24 == 0 || value >> 28 == 14 || value >> 28 == 15 || value >> 16 == 0xa9fe) return fmt::format("{} is an address at which no other machine reaches it", text);
  return "";
}

bool is_host(const http::Peer& peer) { return std::ranges::find(peer.organizations, api::kHostsGroup) != peer.organizations.end(); }
std::string node_of(const http::Peer& peer) { return peer.common_name.starts_with(kNodePrefix) ? peer.common_name.substr(kNodePrefix.size()) : ""; }

}  // namespace

http::Response JoinDoor::answer(const http::Request& request) {
  if (request.target.path == api::kRenewPath) return request.method == "POST" ? renew(request) : refuse(405, "POST is expected");
  if (request.method == "POST") return join(request);
  if (request.method != "GET") return refuse(405, "GET or POST is expected");
  Json out = Json::object({{"servers", Json::array(std::vector<Json>(options_.servers.begin(), options_.servers.end()))}, {"ca", options_.ca_pem}});
  if (options_.servers.empty()) out.set("message", options_.why_nowhere);
  return say(200, out);
}

Result<std::optional<api::Machine>> JoinDoor::machine(const std::string& name, Json* object) {
  auto got = api_.get(resources::machines, {"", name});
  if (!got && got.error().code == Code::NotFound) return std::optional<api::Machine>();
  if (!got) return std::unexpected(std::move(got.error()));
  auto out = api::read_machine(*got);
  if (object != nullptr) *object = std::move(*got);
  return std::optional(std::move(out));
}

Result<std::string> JoinDoor::certify(const std::string& signing_request, const std::string& name, const std::string& address) const {
  return options_.sign(signing_request, {.common_name = std::string(kNodePrefix) + name, .organizations = {"system:nodes", api::kHostsGroup}, .dns_names = {}, .ip_addresses = {address}, .server = true, .client = true, .valid = options_.valid});
}

http::Response JoinDoor::join(const http::Request& request) {
  if (request.body.size() > kLongestJoin) return refuse(413, "a request to join is shorter");
  const auto asked = api::parse_join_request(request.body);
  if (!asked) return refuse(400, asked.error().message);
  const auto key = http::fingerprint_of_request(asked->signing_request);
  if (!key) return refuse(400, key.error().message);
  if (const std::string why = why_not_address(asked->facts.address); !why.empty()) return refuse(400, "facts.address: " + why);
  const std::lock_guard lock(deciding_);
  // Somebody else may write the same machine: what was decided is decided anew on what is there then.
  for (int attempt = 0; attempt < 8; ++attempt) {
    Json object;
    auto there = machine(asked->name, &object);
    if (!there) return refuse(503, there.error().message);
    JoinView view{.machine = std::move(*there), .others = {}, .node = {}, .from = request.peer.address, .address_trouble = {}};
    // Who has no token makes nobody look any further.
    if (is_token_of(view.machine, asked->secret)) {
      auto all = api_.list(resources::machines, "");
      if (!all) return refuse(503, all.error().message);
      for (const Json& one : all->items) view.others.push_back(api::read_machine(one));
      auto node = api_.get(resources::nodes, {"", asked->name});
      if (!node && node.error().code != Code::NotFound) return refuse(503, node.error().message);
      if (node) view.node = std::move(*node);
      if (options_.why_not_address) view.address_trouble = options_.why_not_address(asked->facts.address);
    }
    const JoinPlan plan = plan_join(view, *asked, *key, clock_.now());
    if (!plan.accepted()) {
      tell_refusal(*asked, request.peer.address, plan);
      return refuse(plan.status, plan.why);
    }
    // Signed before it is written down, so that what cannot be signed leaves nothing; it counts once it is written.
    auto certificate = certify(asked->signing_request, asked->name, asked->facts.address);
    if (!certificate) return refuse(500, certificate.error().message);
    if (plan.record) {
      object.child("status").set("host", *plan.record).set("address", asked->facts.address);
      if (auto written = api_.update_status(resources::machines, object); !written) {
        if (written.error().code == Code::Conflict) continue;
        return refuse(503, written.error().message);
      }
    }
    const api::Machine& host = *view.machine;
    api::JoinAnswer out{.certificate = std::move(*certificate), .ca_pem = options_.ca_pem, .pod_cidr = host.seat.pod_cidr, .cluster_domain = options_.cluster_domain, .pods_range = options_.pods_range, .volumes_dir = options_.volumes_dir, .companion_dir = options_.companion_dir, .labels = host.spec.labels, .taints = host.spec.taints};
    out.labels[api::kHostLabel] = "true";
    if (!host.spec.host->instance_type.empty()) out.labels[api::kInstanceTypeLabel] = host.spec.host->instance_type;
    log_info("host joined", {{"machine", asked->name}, {"address", asked->facts.address}, {"key", key->substr(0, 16)}, {"again", plan.record ? "no" : "yes"}});
    return say(200, api::print_join_answer(out));
  }
  return refuse(503, "others write this machine all the time: try again");
}

void JoinDoor::tell_refusal(const api::JoinRequest& asked, const std::string& from, const JoinPlan& plan) {
  const std::lock_guard lock(telling_);
  const auto now = clock_.monotonic();
  if (told_ && now - *told_ < std::chrono::seconds(1)) return;
  told_ = now;
  log_warn("a host was not let in", {{"machine", asked.name}, {"from", from}, {"status", std::to_string(plan.status)}, {"why", plan.why}});
}

Result<void> JoinDoor::check_node(const std::string& user, const std::vector<std::string>& groups, const Json* old, const Json& next) {
  if (std::ranges::find(groups, api::kHostsGroup) == groups.end() || !user.starts_with(kNodePrefix)) return {};
  const auto there = machine(user.substr(kNodePrefix.size()));
  if (!there) return std::unexpected(there.error());
  if (!*there) return fail(Code::Forbidden, "its machine is not of this site any more");
  if (const std::string why = why_not_own_node(**there, old, next); !why.empty()) return fail(Code::Forbidden, why);
  return {};
}

http::Response JoinDoor::renew(const http::Request& request) {
  const std::string name = node_of(request.peer);
  if (!is_host(request.peer) || name.empty()) return refuse(401, "the certificate of a host that joined is expected");
  if (request.body.size() > kLongestJoin) return refuse(413, "a request to renew is shorter");
  const auto json = kube::parse_json(request.body);
  const std::string signing_request = json ? (*json)["request"].string() : "";
  const auto key = http::fingerprint_of_request(signing_request);
  if (!key) return refuse(400, key.error().message);
  const auto there = machine(name);
  if (!there) return refuse(503, there.error().message);
  for (const std::string& one : {request.peer.key, *key})
    if (const std::string why = why_not_host(*there, one); !why.empty()) return refuse(401, why);
  auto certificate = certify(signing_request, name, (*there)->host.address);
  if (!certificate) return refuse(500, certificate.error().message);
  log_info("certificate of a host renewed", {{"machine", name}});
  return say(200, Json::object({{"certificate", *certificate}}));
}

Result<void> JoinDoor::check(const http::Peer& peer) {
  if (!is_host(peer)) return {};
  const auto there = machine(node_of(peer));
  if (!there) return std::unexpected(there.error());
  if (const std::string why = why_not_host(*there, peer.key); !why.empty()) return fail(Code::Unauthorized, why);
  return {};
}

}  // namespace fairlead::fleet
