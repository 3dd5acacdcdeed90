// SPDX-License-Identifier: Apache-2.0
// The part of DNS (RFC 1035) that a name responder for one domain needs: one question in, an answer out. Pure.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::node {

struct DnsQuestion {
  std::uint16_t id = 0;
  std::uint16_t flags = 0;
  std::string name;  // lower case, without the last dot; as text "pod.svc.ns.svc.cluster.local"
  std::uint16_t type = 1, type_class = 1;
  std::string wire;  // the question section as it came, to be given back
  bool edns = false;
};
constexpr std::uint16_t dns_a = 1, dns_ptr = 12, dns_aaaa = 28;

// Invalid: not a query with exactly one question.
Result<DnsQuestion> parse_dns_query(std::string_view packet);

struct DnsAnswer {
  enum class Kind { Found, NoSuchName, Refused } kind = Kind::Refused;
  std::vector<std::string> addresses;  // of the family that was asked for, or both; none: the name exists, without such an address
  std::string pointer;                 // of a reverse question: the host's name
};
// At most `limit` bytes; what does not fit is left out and the packet marked as truncated.
std::string print_dns_answer(const DnsQuestion& question, const DnsAnswer& answer, std::size_t limit);
// For a packet that cannot be parsed but has an id; empty: not even that.
std::string print_dns_error(std::string_view packet);

// Names below the domain of the cluster, from what is known of services and pods.
struct DnsPod {
  std::string space, name, hostname, subdomain;
  std::vector<std::string> addresses;  // of either family
  std::vector<std::pair<std::string, std::string>> labels;
  bool ready = false;
  friend bool operator==(const DnsPod&, const DnsPod&) = default;
};
using DnsPods = std::shared_ptr<const std::vector<DnsPod>>;  // never null
struct DnsService {
  std::string space, name;
  std::vector<std::string> addresses;  // of either family; none: headless
  std::vector<std::pair<std::string, std::string>> selector;
  bool not_ready_too = false;
};
struct DnsNames {
  std::string domain;
  std::function<std::optional<DnsService>(const std::string& space, const std::string& name)> service;
  std::function<DnsPods(const std::string& space)> pods;  // "" : of all namespaces
};
// service.ns.svc.domain: the addresses of its ready pods (all, if it publishes those not ready); hostname.service.ns.svc.domain: the pod's.
// A gives the IPv4 addresses, AAAA those of version 6.
// 1.2.78.10.in-addr.arpa, and the same by nibbles below ip6.arpa: the name of the pod with that address, if it has a hostname in a service (Slurm asks for it on every allocation).
// Names outside the domain are refused: this is no resolver for the world.
DnsAnswer resolve_name(const DnsQuestion& question, const DnsNames& names);

}  // namespace fairlead::node
