// SPDX-License-Identifier: Apache-2.0
// What services add to a node's packet filter: which endpoint a new connection goes to, and who keeps going to the same one. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "node/plan/network_text.h"

namespace fairlead::node {

// The mark of the connections that came in by a node port: they leave under this node's address, so that replies come back through it.
inline constexpr std::uint32_t node_port_mark = 0x4000;

struct ServiceRules {
  std::set<std::string> addresses;       // elements "10.79.0.5 . tcp . 80 : goto service_1"
  std::set<std::string> ports;           // of all of the node's addresses: "tcp . 30080 : goto port_2"
  std::set<std::string> deserted;        // "10.79.0.6 . tcp . 80": nobody answers there
  std::set<std::string> deserted_ports;  // "tcp . 30081"
  std::string chains;
  // With session affinity: of each address ("10.79.0.5 . tcp . 80") and port ("tcp . 30080") the marks of its endpoints. They are of the endpoint's address alone, so that
  // they mean the same when rules are made anew.
  std::map<std::string, std::set<std::uint32_t>> marks;
};

// `chain_count` goes on counting, so that names differ. Ready endpoints; if a service has none, those that end and serve still. externalTrafficPolicy and internalTrafficPolicy Local:
// endpoints of this node alone.
ServiceRules service_rules(const std::vector<kube::Json>& services, const std::vector<kube::Json>& endpoint_slices, const std::string& node_name, Family family, int& chain_count);

// Who goes to which endpoint, as the kernel knows it: an element of the map affinity4 or affinity6.
struct Session {
  std::string client, address, protocol;
  std::int64_t port = 0;
  std::uint32_t mark = 0;
  std::int64_t timeout = 0, expires = 0;  // seconds
  friend bool operator==(const Session&, const Session&) = default;
};
// Reads the answer to `nft -j list map inet fairlead affinityN`. Elements that it does not understand are left out.
Result<std::vector<Session>> parse_sessions(std::string_view text);
// The command that puts those back which still mean something; empty: none does.
std::string keep_sessions(const std::vector<Session>& sessions, const ServiceRules& rules, Family family);

}  // namespace fairlead::node
