// SPDX-License-Identifier: Apache-2.0
#include "fleet/host_wire.h"

#include <fmt/format.h>

#include <array>

#include "kube/selector.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

constexpr std::array<std::string_view, 9> kCalls = {"ready", "observe", "start", "connect", "set-link", "kill", "stop", "remove", "watch"};
constexpr std::array<std::string_view, 3> kWires = {"none", "cut", "up"};
constexpr std::size_t kMostEntries = 256;

Json strings(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map) out.set(key, value);
  return out;
}

Result<std::map<std::string, std::string>> read_strings(const Json& from, std::string_view field) {
  std::map<std::string, std::string> out;
  if (from.members().size() > kMostEntries) return fail(Code::Invalid, fmt::format("{}: more than {} entries", field, kMostEntries));
  for (const auto& [key, value] : from.members()) {
    if (!value.is_string() || key.empty() || key.size() > 512 || value.string().size() > 512) return fail(Code::Invalid, fmt::format("{}: names and values are short strings", field));
    out[key] = value.string();
  }
  return out;
}

template <std::size_t N>
Result<std::size_t> index_of(const std::array<std::string_view, N>& names, const std::string& name, std::string_view field) {
  for (std::size_t i = 0; i < N; ++i)
    if (names[i] == name) return i;
  return fail(Code::Invalid, fmt::format("{}: {:.40} is unknown", field, name));
}

bool needs_name(HostCall call) { return call != HostCall::Ready && call != HostCall::SetLink && call != HostCall::Watch; }
bool needs_seat(HostCall call) { return call == HostCall::Start || call == HostCall::Connect || call == HostCall::SetLink; }

Result<void> read_seat(const Json& from, const Ranges& ranges, HostCall call, api::Seat& into) {
  const std::int64_t index = from.integer();
  if (index == 0 && !needs_seat(call)) return {};  // looked at or removed before it was given one
  if (index < 1 || index > kLastSeat) return fail(Code::Invalid, fmt::format("seat: 1 to {} are possible", kLastSeat));
  into = seat_of(ranges, static_cast<int>(index));
  return {};
}

Result<void> read_spec(const Json& from, api::MachineSpec& into) {
  auto capacity = read_strings(from["capacity"], "capacity");
  if (!capacity) return std::unexpected(std::move(capacity.error()));
  if (!capacity->contains("cpu") || !capacity->contains("memory")) return fail(Code::Invalid, "capacity: cpu and memory are missing");
  auto labels = read_strings(from["labels"], "labels");
  if (!labels) return std::unexpected(std::move(labels.error()));
  into.capacity = std::move(*capacity);
  into.labels = std::move(*labels);
  const Json& taints = from["taints"];
  if (!taints.is_null() && (!taints.is_array() || taints.items().size() > kMostEntries)) return fail(Code::Invalid, "taints: a list is expected");
  into.taints = taints.is_null() ? Json::array() : taints;
  return {};
}

}  // namespace

std::string print_request(const HostRequest& request) {
  const auto& spec = request.machine.spec;
  Json out = Json::object({{"call", std::string(kCalls.at(static_cast<std::size_t>(request.call)))},
                           {"site", Json::object({{"nodes", request.site.node_range}, {"pods", request.site.pod_range}, {"port", static_cast<int>(request.site.api_port)}, {"ca", request.site.ca_pem}})},
                           {"name", request.machine.name},
                           {"seat", request.machine.seat.index}});
  // A machine from before the site had IPv6 keeps the one family.
  if (request.machine.seat.index != 0 && request.machine.seat.address6.empty() && request.site.pod_range.find(',') != std::string::npos) out.set("one_family", true);
  if (request.call == HostCall::Start) out.set("spec", Json::object({{"capacity", strings(spec.capacity)}, {"labels", strings(spec.labels)}, {"taints", spec.taints}}));
  if (request.call == HostCall::SetLink) out.set("cut", request.link == api::Link::Cut);
  if (request.call == HostCall::Stop) out.set("grace_ms", static_cast<std::int64_t>(request.grace.count()));
  return kube::print_json(out);
}

Result<HostRequest> parse_request(std::string_view text) {
  auto json = kube::parse_json(text, {.depth_limit = 16});
  if (!json) return pass(std::move(json.error()), "request");
  HostRequest out;
  auto call = index_of(kCalls, (*json)["call"].string(), "call");
  if (!call) return std::unexpected(std::move(call.error()));
  out.call = static_cast<HostCall>(*call);
  const Json& site = (*json)["site"];
  auto ranges = parse_ranges(site["nodes"].string(), site["pods"].string());
  if (!ranges) return std::unexpected(std::move(ranges.error()));
  out.site = {.node_range = print_nodes(*ranges), .pod_range = print_pods(*ranges), .api_port = 0, .ca_pem = site["ca"].string()};
  const std::int64_t port = site["port"].integer();
  if (port < 1 || port > 65'535) return fail(Code::Invalid, "site.port: 1 to 65535 are possible");
  out.site.api_port = static_cast<unsigned short>(port);
  if (out.site.ca_pem.empty() || out.site.ca_pem.size() > 64 * 1024) return fail(Code::Invalid, "site.ca: a certificate is expected");
  out.machine.name = (*json)["name"].string();
  if (needs_name(out.call))
    if (const std::string wrong = kube::check_dns_label(out.machine.name); !wrong.empty()) return fail(Code::Invalid, "name: " + wrong);
  if ((*json)["one_family"].boolean()) ranges->six.reset();
  if (auto seat = read_seat((*json)["seat"], *ranges, out.call, out.machine.seat); !seat) return std::unexpected(std::move(seat.error()));
  if (out.call == HostCall::Start)
    if (auto spec = read_spec((*json)["spec"], out.machine.spec); !spec) return std::unexpected(std::move(spec.error()));
  out.link = (*json)["cut"].boolean() ? api::Link::Cut : api::Link::Connected;
  const std::int64_t grace = (*json)["grace_ms"].integer();
  if (grace < 0 || grace > 600'000) return fail(Code::Invalid, "grace_ms: 0 to 600000 are possible");
  out.grace = std::chrono::milliseconds(grace);
  return out;
}

std::string print_answer(const Result<Observation>& answer) {
  if (!answer)
    return kube::print_json(Json::object({{"error", Json::object({{"code", static_cast<int>(answer.error().code)}, {"message", answer.error().message}})}}));
  Json seen = Json::object({{"leftovers", answer->leftovers}, {"wire", std::string(kWires.at(static_cast<std::size_t>(answer->wire)))}});
  if (answer->process)
    seen.set("process", Json::object({{"pid", static_cast<std::int64_t>(answer->process->pid)}, {"ticks", static_cast<std::int64_t>(answer->process->start_ticks)}}));
  if (answer->started_at) seen.set("started_ns", static_cast<std::int64_t>(answer->started_at->time_since_epoch().count()));
  return kube::print_json(Json::object({{"seen", std::move(seen)}}));
}

Result<Observation> parse_answer(std::string_view text) {
  auto json = kube::parse_json(text, {.depth_limit = 16});
  if (!json) return pass(std::move(json.error()), "answer of fairlead-machines");
  if (const Json* error = json->find("error")) {
    const std::int64_t code = (*error)["code"].integer(-1);
    const bool known = code >= 0 && code <= static_cast<std::int64_t>(Code::Internal);
    return fail(known ? static_cast<Code>(code) : Code::Internal, (*error)["message"].string());
  }
  const Json& seen = (*json)["seen"];
  Observation out;
  auto wire = index_of(kWires, seen["wire"].string(), "wire");
  if (!wire) return std::unexpected(std::move(wire.error()));
  out.wire = static_cast<Wire>(*wire);
  out.leftovers = seen["leftovers"].boolean();
  if (const Json* process = seen.find("process"))
    out.process = ProcessIdentity{.pid = static_cast<pid_t>((*process)["pid"].integer(-1)), .start_ticks = static_cast<std::uint64_t>((*process)["ticks"].integer())};
  if (const Json* started = seen.find("started_ns")) out.started_at = Instant(std::chrono::nanoseconds(started->integer()));
  return out;
}

}  // namespace fairlead::fleet
