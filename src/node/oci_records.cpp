// SPDX-License-Identifier: Apache-2.0
#include "node/oci_records.h"

#include "kube/json.h"

namespace fairlead::node {
namespace {
using kube::Json;

Json when(Instant time) { return static_cast<std::int64_t>(time.time_since_epoch().count()); }
Instant when(const Json& value) { return Instant(std::chrono::nanoseconds(value.integer())); }

Json identity(const ProcessIdentity& process) {
  return Json::object({{"pid", static_cast<std::int64_t>(process.pid)}, {"start_ticks", static_cast<std::int64_t>(process.start_ticks)}});
}
ProcessIdentity identity(const Json& value) {
  return {.pid = static_cast<pid_t>(value["pid"].integer(-1)), .start_ticks = static_cast<std::uint64_t>(value["start_ticks"].integer())};
}

}  // namespace

std::string print_attempt(const Attempt& attempt) {
  Json out = Json::object({{"number", attempt.number},
                           {"id", attempt.id},
                           {"sandbox", attempt.sandbox},
                           {"image", attempt.image},
                           {"image_id", attempt.image_id},
                           {"created_ns", when(attempt.created)},
                           {"backoff_seconds", attempt.backoff_seconds}});
  if (!attempt.devices.empty()) {
    Json devices = Json::object();
    for (const auto& [resource, granted] : attempt.devices) {
      Json list = Json::array();
      for (const GrantedDevice& one : granted) list.push(Json::object({{"name", one.name}, {"nodes", Json::array(std::vector<Json>(one.nodes.begin(), one.nodes.end()))}}));
      devices.set(resource, std::move(list));
    }
    out.set("devices", std::move(devices));
  }
  if (attempt.started) out.set("started_ns", when(*attempt.started));
  if (attempt.end)
    out.set("end", Json::object({{"code", attempt.end->code},
                                 {"signal", attempt.end->signal},
                                 {"at_ns", when(attempt.end->at)},
                                 {"reason", attempt.end->reason},
                                 {"message", attempt.end->message}}));
  return kube::print_json(out);
}

Result<Attempt> parse_attempt(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  Attempt out{.number = static_cast<int>((*json)["number"].integer()),
              .id = (*json)["id"].string(),
              .sandbox = (*json)["sandbox"].string(),
              .image = (*json)["image"].string(),
              .image_id = (*json)["image_id"].string(),
              .created = when((*json)["created_ns"]),
              .started = {},
              .backoff_seconds = static_cast<int>((*json)["backoff_seconds"].integer()),
              .end = {}};
  for (const auto& [resource, granted] : (*json)["devices"].members())
    for (const Json& one : granted.items()) {
      GrantedDevice& device = out.devices[resource].emplace_back(GrantedDevice{.name = one["name"].string(), .nodes = {}});
      for (const Json& node : one["nodes"].items()) device.nodes.push_back(node.string());
    }
  if (json->has("started_ns")) out.started = when((*json)["started_ns"]);
  if (const Json& end = (*json)["end"]; end.is_object())
    out.end = Attempt::End{.code = static_cast<int>(end["code"].integer()),
                           .signal = static_cast<int>(end["signal"].integer()),
                           .at = when(end["at_ns"]),
                           .reason = end["reason"].string(),
                           .message = end["message"].string()};
  return out;
}

std::string print_pod_record(const PodRecord& record) {
  return kube::print_json(
      Json::object({{"uid", record.uid}, {"namespace", record.space}, {"name", record.name}, {"accepted_ns", when(record.accepted)}}));
}

Result<PodRecord> parse_pod_record(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  return PodRecord{.uid = (*json)["uid"].string(),
                   .space = (*json)["namespace"].string(),
                   .name = (*json)["name"].string(),
                   .accepted = when((*json)["accepted_ns"])};
}

std::string print_sandbox(const Sandbox& sandbox) { return kube::print_json(Json::object({{"id", sandbox.id}, {"ip", sandbox.ip}})); }

Result<Sandbox> parse_sandbox(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  return Sandbox{.id = (*json)["id"].string(), .ip = (*json)["ip"].string()};
}

std::string print_processes(const ContainerProcesses& processes) {
  return kube::print_json(Json::object({{"container", identity(processes.container)}, {"monitor", identity(processes.monitor)}}));
}

Result<ContainerProcesses> parse_processes(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  return ContainerProcesses{.container = identity((*json)["container"]), .monitor = identity((*json)["monitor"])};
}

}  // namespace fairlead::node
