// SPDX-License-Identifier: Apache-2.0
#include "node/plan/cdi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::node {

using kube::Json;

namespace {

constexpr std::size_t kMost = 4'096;  // of anything in one file
constexpr std::array<std::string_view, 6> kStages{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"};

bool is_path(const std::string& text) { return text.starts_with('/') && text.find('\0') == std::string::npos && text.size() <= 4'096; }

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list.items())
    if (one.is_string()) out.push_back(one.string());
  return out;
}

Result<CdiEdits> parse_edits(const Json& json, const std::string& where) {
  CdiEdits out;
  for (const char* const list : {"env", "deviceNodes", "mounts", "hooks"})
    if (json[list].items().size() > kMost) return fail(Code::Invalid, fmt::format("{}.{}: too long", where, list));
  for (std::string& one : texts_of(json["env"])) {
    if (one.find('=') == std::string::npos || one.starts_with('=') || one.find('\0') != std::string::npos) return fail(Code::Invalid, fmt::format("{}.env: KEY=VALUE is expected", where));
    out.env.push_back(std::move(one));
  }
  for (const Json& node : json["deviceNodes"].items()) {
    CdiNode one{.path = node["path"].string(), .host_path = node["hostPath"].string_or(node["path"].string()), .permissions = node["permissions"].string_or("rwm")};
    if (node["fileMode"].is_number()) one.mode = static_cast<std::uint32_t>(node["fileMode"].integer() & 0777);
    if (node["uid"].is_number()) one.uid = node["uid"].integer();
    if (node["gid"].is_number()) one.gid = node["gid"].integer();
    if (one.permissions.find_first_not_of("rwm") != std::string::npos || one.uid.value_or(0) < 0 || one.gid.value_or(0) < 0) return fail(Code::Invalid, fmt::format("{}.deviceNodes: permissions are of r, w and m, owners are numbers from 0 on", where));
    if (!is_path(one.path) || !is_path(one.host_path)) return fail(Code::Invalid, fmt::format("{}.deviceNodes: a path is expected", where));
    out.nodes.push_back(std::move(one));
  }
  for (const Json& mount : json["mounts"].items()) {
    MountSpec one{.source = mount["hostPath"].string(), .target = mount["containerPath"].string(), .type = mount["type"].string_or("bind"), .options = texts_of(mount["options"])};
    if (!is_path(one.target) || (one.type == "bind" && !is_path(one.source))) return fail(Code::Invalid, fmt::format("{}.mounts: hostPath and containerPath are expected", where));
    if (one.type == "bind" && std::ranges::find(one.options, "bind") == one.options.end() && std::ranges::find(one.options, "rbind") == one.options.end()) one.options.emplace_back("rbind");
    out.mounts.push_back(std::move(one));
  }
  for (const Json& hook : json["hooks"].items()) {
    ContainerHook one{.stage = hook["hookName"].string(), .path = hook["path"].string(), .args = texts_of(hook["args"]), .env = texts_of(hook["env"]), .timeout_seconds = hook["timeout"].integer()};
    if (std::ranges::find(kStages, one.stage) == kStages.end() || !is_path(one.path) || one.timeout_seconds < 0) return fail(Code::Invalid, fmt::format("{}.hooks: a known hookName and a path are expected", where));
    out.hooks.push_back(std::move(one));
  }
  return out;
}

// "7" or "0:3"; its parts as numbers, for the order.
std::vector<long> numbers_of(const std::string& name) {
  std::vector<long> out;
  for (const std::string& part : split(name, ':')) {
    if (part.empty() || part.size() > 6 || part.find_first_not_of("0123456789") != std::string::npos) return {};
    out.push_back(std::stol(part));
  }
  return out;
}

}  // namespace

Result<CdiKind> parse_cdi(std::string_view text) {
  auto documents = kube::parse_yaml(text);  // JSON is YAML
  if (!documents) return std::unexpected(std::move(documents.error()));
  if (documents->size() != 1 || !documents->front().is_object()) return fail(Code::Invalid, "one object is expected");
  const Json& json = documents->front();
  CdiKind out{.kind = json["kind"].string(), .commons = {}, .devices = {}};
  const std::size_t slash = out.kind.find('/');
  if (json["cdiVersion"].string().empty() || slash == std::string::npos || !kube::check_label_key(out.kind).empty()) return fail(Code::Invalid, "cdiVersion and kind (such as nvidia.com/gpu) are expected");
  auto common = parse_edits(json["containerEdits"], "containerEdits");
  if (!common) return std::unexpected(std::move(common.error()));
  out.commons.push_back(std::move(*common));
  if (json["devices"].items().size() > kMost) return fail(Code::Invalid, "devices: too many");
  for (const Json& device : json["devices"].items()) {
    const std::string& name = device["name"].string();
    if (name.empty() || name.size() > 128) return fail(Code::Invalid, "devices: each has a name");
    auto edits = parse_edits(device["containerEdits"], fmt::format("devices[{}].containerEdits", name));
    if (!edits) return std::unexpected(std::move(edits.error()));
    if (!out.devices.emplace(name, CdiDevice{std::move(*edits)}).second) return fail(Code::Invalid, fmt::format("devices: {} is there twice", name));
  }
  return out;
}

std::vector<std::string> handed_out(const CdiKind& kind) {
  std::vector<std::string> whole, parts, others;
  for (const auto& [name, device] : kind.devices) {
    const std::size_t numbers = numbers_of(name).size();
    if (name != "all") (numbers == 1 ? whole : numbers == 2 ? parts : others).push_back(name);
  }
  std::vector<std::string>& out = !whole.empty() ? whole : !parts.empty() ? parts : others;
  std::ranges::sort(out, [](const std::string& a, const std::string& b) {
    const auto x = numbers_of(a), y = numbers_of(b);
    return x != y ? x < y : a < b;
  });
  return std::move(out);
}

void lay_over(CdiKind& into, CdiKind later) {
  const std::size_t shift = into.commons.size();
  for (CdiEdits& common : later.commons) into.commons.push_back(std::move(common));
  for (auto& [name, device] : later.devices) {
    device.common += shift;
    into.devices.insert_or_assign(name, std::move(device));
  }
}

Result<std::vector<GrantedDevice>> choose_devices(const CdiKind& kind, const std::vector<GrantedDevice>& taken, std::int64_t count) {
  std::vector<GrantedDevice> out;
  std::int64_t free = 0;
  for (std::string& name : handed_out(kind)) {
    GrantedDevice one{.name = std::move(name), .nodes = {}};
    for (const CdiNode& node : kind.devices.at(one.name).edits.nodes) one.nodes.push_back(node.host_path);
    std::ranges::sort(one.nodes);
    // Parts of one GPU share some of their nodes: it is all of them that tell.
    if (std::ranges::any_of(taken, [&](const GrantedDevice& other) { return other.name == one.name || (!one.nodes.empty() && other.nodes == one.nodes); })) continue;
    ++free;
    if (static_cast<std::int64_t>(out.size()) < count) out.push_back(std::move(one));
  }
  if (static_cast<std::int64_t>(out.size()) < count) return fail(Code::Exhausted, fmt::format("{} of {} are asked for, {} are free on this node", count, kind.kind, free));
  return out;
}

CdiEdits edits_for(const CdiKind& kind, const std::vector<GrantedDevice>& devices) {
  CdiEdits out;
  const auto add = [&](const CdiEdits& one) {
    out.env.insert(out.env.end(), one.env.begin(), one.env.end());
    out.nodes.insert(out.nodes.end(), one.nodes.begin(), one.nodes.end());
    out.mounts.insert(out.mounts.end(), one.mounts.begin(), one.mounts.end());
    out.hooks.insert(out.hooks.end(), one.hooks.begin(), one.hooks.end());
  };
  std::vector<std::size_t> commons;
  for (const GrantedDevice& device : devices)
    if (const std::size_t common = kind.devices.at(device.name).common; std::ranges::find(commons, common) == commons.end()) {
      commons.push_back(common);
      add(kind.commons.at(common));
    }
  for (const GrantedDevice& device : devices) add(kind.devices.at(device.name).edits);
  return out;
}

std::map<std::string, std::int64_t> asked_devices(const Json& container) {
  std::map<std::string, std::int64_t> out;
  for (const char* const list : {"requests", "limits"})
    for (const auto& [name, amount] : container["resources"][list].members()) {
      if (name.find('/') == std::string::npos) continue;
      const auto quantity = kube::Quantity::from_json(amount);
      if (quantity && quantity->value() > 0) out[name] = quantity->value();
    }
  return out;
}

}  // namespace fairlead::node
