// SPDX-License-Identifier: Apache-2.0
#include "apiserver/node_ports.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::apiserver {

using kube::Json;

namespace {

bool has_ports(const Json& spec) { return spec["type"].string() == "NodePort" || spec["type"].string() == "LoadBalancer"; }

std::set<int> ports_of(const Json& spec) {
  std::set<int> out;
  for (const Json& port : spec["ports"].items())
    if (const std::int64_t number = port["nodePort"].integer(); number >= NodePorts::first && number <= NodePorts::last) out.insert(static_cast<int>(number));
  return out;
}

// Of a service that has no node ports any more: what the user did not touch goes with its type.
void leave_type(Json& spec, const Json& old) {
  if (ports_of(spec) == ports_of(old))
    for (Json& port : spec.child("ports").items())
      if (port.is_object()) port.erase("nodePort");
  for (const char* field : {"externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"})
    if (spec[field] == old[field]) spec.erase(field);
}

void keep_old(Json& ports, const Json& old) {
  std::set<std::int64_t> used;
  for (const Json& port : std::as_const(ports).items())
    for (const Json& before : old["ports"].items())
      if (port["nodePort"].integer() != 0 && port["nodePort"] == before["nodePort"]) used.insert(port["nodePort"].integer());
  for (Json& port : ports.items()) {
    if (!port.is_object() || std::as_const(port)["nodePort"].integer() != 0) continue;
    for (const Json& before : old["ports"].items()) {
      const std::int64_t number = before["nodePort"].integer();
      if (before["name"].string() != std::as_const(port)["name"].string() || number == 0 || !used.insert(number).second) continue;
      port.set("nodePort", number);
      break;
    }
  }
}

}  // namespace

int NodePorts::take(const std::string& uid) {
  for (int tried = first; tried <= last; ++tried) {
    const int port = next_;
    next_ = next_ == last ? first : next_ + 1;
    if (holders_.emplace(port, uid).second) return port;
  }
  return 0;
}

std::string NodePorts::hold(std::int64_t port, const std::string& uid) {
  if (port < first || port > last) return fmt::format("provided port is not in the valid range. The range of valid ports is {}-{}", first, last);
  const auto [holder, fresh] = holders_.emplace(static_cast<int>(port), uid);
  return fresh || holder->second == uid ? "" : "provided port is already allocated";
}

void NodePorts::assign(Json& spec, const Json* old, const std::string& uid, FieldErrors& errors) {
  Json* ports = spec.find("ports");
  if (ports == nullptr || !ports->is_array()) return;
  const bool had = old != nullptr && has_ports(*old);
  if (!has_ports(spec)) {
    if (had) leave_type(spec, *old);
    return;
  }
  if (had) keep_old(*ports, *old);
  std::map<std::int64_t, std::int64_t> by_port;  // the same port of two protocols has one node port
  for (const Json& port : std::as_const(*ports).items())
    if (port["nodePort"].integer() != 0) by_port.emplace(port["port"].integer(), port["nodePort"].integer());
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (std::size_t i = 0; i < ports->items().size(); ++i) {
    Json& port = ports->items()[i];
    if (!port.is_object()) continue;
    const std::string at = fmt::format("spec.ports[{}].nodePort", i);
    if (std::as_const(port)["nodePort"].integer() == 0) {
      const auto other = by_port.find(std::as_const(port)["port"].integer());
      const std::int64_t number = other != by_port.end() ? other->second : take(uid);
      if (number == 0) return errors.invalid(at, 0, fmt::format("failed to allocate a nodePort: range {}-{} is full", first, last));
      by_port.emplace(std::as_const(port)["port"].integer(), number);
      port.set("nodePort", number);
    }
    const std::int64_t number = std::as_const(port)["nodePort"].integer();
    if (const std::string why = hold(number, uid); !why.empty()) return errors.invalid(at, number, why);
    if (!seen.emplace(std::as_const(port)["protocol"].string_or("TCP"), number).second) return errors.duplicate(at, number);
  }
}

void NodePorts::note(const std::string& uid, const Json& spec) {
  const std::set<int> now = has_ports(spec) ? ports_of(spec) : std::set<int>();
  for (const int port : stored_[uid])
    if (const auto holder = holders_.find(port); !now.contains(port) && holder != holders_.end() && holder->second == uid) holders_.erase(holder);
  for (const int port : now) holders_.emplace(port, uid);
  stored_[uid] = now;
  if (now.empty()) stored_.erase(uid);
}

void NodePorts::drop(const std::string& uid) {
  std::erase_if(holders_, [&](const auto& entry) { return entry.second == uid; });
  stored_.erase(uid);
}

}  // namespace fairlead::apiserver
