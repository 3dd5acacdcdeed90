// SPDX-License-Identifier: Apache-2.0
// Which addresses the nodes and pods of a site get. Node n: base + 256 + n of the node range; its pods: the n-th /24 of the pod range. With ranges of IPv6 besides: base + 0x100 + n of
// that of nodes, the n-th /64 of that of pods.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/machine.h"
#include "base/result.h"

namespace fairlead::fleet {

struct Network {  // IPv4
  std::uint32_t base = 0;
  int bits = 0;
  std::uint32_t last() const { return bits == 0 ? ~0U : bits >= 32 ? base : base | (~0U >> bits); }
  friend bool operator==(const Network&, const Network&) = default;
};
Result<Network> parse_network(std::string_view text);  // "10.77.0.0/16"; "10.1.2.3" is a /32. Invalid: malformed, or bits set below the mask.
std::string print_address(std::uint32_t address);
std::string print_network(const Network& network);
bool overlap(const Network& a, const Network& b);

using Address6 = std::array<std::uint8_t, 16>;
struct Network6 {  // IPv6
  Address6 base{};
  int bits = 0;
  friend bool operator==(const Network6&, const Network6&) = default;
};
Result<Network6> parse_network6(std::string_view text);  // "fd00:77::/64". Invalid: malformed, or bits set below the mask.
std::string print_address(const Address6& address);
std::string print_network(const Network6& network);
bool overlap(const Network6& a, const Network6& b);

// The ranges of a site. Of IPv4 both are a /16; of IPv6 there are two or none: nodes in a /112 or larger, pods in a /56 or larger.
struct Ranges {
  struct Six {
    Network6 nodes, pods;
    friend bool operator==(const Six&, const Six&) = default;
  };
  Network nodes{.base = 0x0a4d0000, .bits = 16};  // 10.77.0.0/16
  Network pods{.base = 0x0a4e0000, .bits = 16};   // 10.78.0.0/16
  std::optional<Six> six{};
};
// Each text is an IPv4 range and perhaps, after a comma, an IPv6 one: "10.78.0.0/16,fd00:78::/56". Where only pods have one of IPv6, nodes get kNodes6. Invalid: a sentence.
Result<Ranges> parse_ranges(std::string_view nodes, std::string_view pods);
std::string print_nodes(const Ranges& ranges);  // as parse_ranges takes them
std::string print_pods(const Ranges& ranges);
inline constexpr std::string_view kNodes6 = "fd00:77::/64";

std::string host_address(const Ranges& ranges);    // 10.77.0.1: where nodes find the API server
std::string fabric_address(const Ranges& ranges);  // 10.77.0.2: the router between nodes, pods and the host
std::string host_address6(const Ranges::Six& ranges);    // fd00:77::1
std::string fabric_address6(const Ranges::Six& ranges);  // fd00:77::2

inline constexpr int kLastSeat = 254;
api::Seat seat_of(const Ranges& ranges, int index);
// The lowest free index. Exhausted: all are taken.
Result<api::Seat> choose_seat(const Ranges& ranges, const std::set<int>& taken);

// A route of the host: where it leads and by which device.
struct Route {
  Network to;
  std::string device;
};
// Is a range in use by something that is not ours (devices of other names)? A sentence for the user; empty: free.
std::string route_conflict(const Ranges& ranges, const std::vector<Route>& routes, std::string_view our_device);
struct Route6 {
  Network6 to;
  std::string device;
};
std::string route_conflict(const Ranges::Six& ranges, const std::vector<Route6>& routes, std::string_view our_device);

}  // namespace fairlead::fleet
