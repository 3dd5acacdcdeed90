// SPDX-License-Identifier: Apache-2.0
#include "api/instance_volume.h"

#include <fmt/format.h>

#include "api/machine.h"

namespace fairlead::api {

using kube::Json;

namespace {

// It becomes part of a path.
bool is_instance_id(std::string_view id) { return id.size() > 2 && id.size() <= 40 && id.starts_with("i-") && id.find_first_not_of("0123456789abcdef", 2) == id.npos; }

}  // namespace

std::string print_volume_order(const VolumeOrder& order) {
  Json out = Json::object({{"instance", order.instance}});
  if (order.released) out.set("released", true);
  else out.set("gib", order.gib);
  if (order.pool && !order.released) out.set("pool", true);
  return kube::print_json(out);
}

Result<VolumeOrder> parse_volume_order(std::string_view text) {
  const auto json = kube::parse_json(std::string(text), {.depth_limit = 4});
  if (!json || !json->is_object()) return fail(Code::Invalid, fmt::format("{}: a JSON object is expected", kVolumeNote));
  VolumeOrder out{.instance = (*json)["instance"].string(), .gib = (*json)["gib"].integer(), .released = (*json)["released"].boolean(), .pool = (*json)["pool"].boolean()};
  if (!is_instance_id(out.instance)) return fail(Code::Invalid, fmt::format("{}: the id of an instance is expected", kVolumeNote));
  if (out.released) out.gib = 0, out.pool = false;
  else if (out.gib < 1 || out.gib > kMostVolumeGib) return fail(Code::Invalid, fmt::format("{}: gib is 1 to {}", kVolumeNote, kMostVolumeGib));
  return out;
}

std::string print_volume_state(const VolumeState& state) {
  Json out = Json::object();
  if (!state.instance.empty()) out.set("instance", state.instance).set("gib", state.gib);
  if (!state.of.empty()) out.set("of", state.of);
  if (!state.failed.empty()) out.set("failed", state.failed);
  if (state.pool) out.set("pool", true);
  return kube::print_json(out);
}

VolumeState read_volume_state(const Json& node) {
  const auto json = kube::parse_json(node["metadata"]["annotations"][kVolumeStateNote].string(), {.depth_limit = 4});
  if (!json || !json->is_object()) return {};
  return {.instance = (*json)["instance"].string(), .gib = (*json)["gib"].integer(), .of = (*json)["of"].string(), .failed = (*json)["failed"].string(), .pool = (*json)["pool"].boolean()};
}

std::string volume_of_another(const Json& node, std::string_view instance) {
  const VolumeState state = read_volume_state(node);
  if (!state.instance.empty() && state.instance != instance) return state.instance;
  const auto order = parse_volume_order(node["metadata"]["annotations"][kVolumeNote].string());
  const bool answered = order && state.of == order->instance && state.failed.empty();
  return order && order->instance != instance && !answered && is_run_by_agent(node) ? order->instance : "";
}

}  // namespace fairlead::api
