// SPDX-License-Identifier: Apache-2.0
// Which addresses the nodes and pods of a site get. Node n: base + 256 + n of the node range; its pods: the n-th /24 of the pod range.
#pragma once
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
  std::uint32_t last() const { return bits == 0 ? ~0U : base | (~0U >> bits); }
  friend bool operator==(const Network&, const Network&) = default;
};
Result<Network> parse_network(std::string_view text);  // "10.77.0.0/16"; "10.1.2.3" is a /32. Invalid: malformed, or bits set below the mask.
std::string print_address(std::uint32_t address);
std::string print_network(const Network& network);
bool overlap(const Network& a, const Network& b);

// The two ranges of a site, both /16.
struct Ranges {
  Network nodes{.base = 0x0a4d0000, .bits = 16};  // 10.77.0.0/16
  Network pods{.base = 0x0a4e0000, .bits = 16};   // 10.78.0.0/16
};
Result<Ranges> parse_ranges(std::string_view nodes, std::string_view pods);

std::string host_address(const Ranges& ranges);    // 10.77.0.1: where nodes find the API server
std::string fabric_address(const Ranges& ranges);  // 10.77.0.2: the router between nodes, pods and the host

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

}  // namespace fairlead::fleet
