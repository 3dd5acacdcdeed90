// SPDX-License-Identifier: Apache-2.0
// The network of a site's local nodes: a namespace with one bridge that every node hangs on, which also routes between nodes, their pods and the host.
//
//   host fl<id> 10.77.0.1/16 ═══ up0 ┐
//                                    ├─ br0 10.77.0.2/16 (routes 10.78.n.0/24 via 10.77.1.n)
//   node n eth0 10.77.1.n/16 ═══ n<n>┘
//
// The host itself gets one link and one route (the pods' range) and forwards nothing. Where the ranges are of both families, all of it is there twice: fd00:77::1, ::2, ::100 + n,
// fd00:78:0:n::/64.
#pragma once
#include <string>

#include "api/machine.h"
#include "base/fd.h"
#include "fleet/plan/addresses.h"
#include "fleet/plan/machine_plan.h"
#include "fleet/site.h"

namespace fairlead::fleet {

class Fabric {
 public:
  Fabric(Site site, Ranges ranges) : site_(std::move(site)), ranges_(ranges) {}
  // Makes what is missing of the namespace, the bridge, the host's link, addresses and routes. Conflict: a range is in use.
  Result<void> stand_up() const;
  // A new link into the network namespace of process `pid`, with its address and default route. Replaces what hangs at that seat.
  Result<void> connect(const api::Seat& seat, pid_t pid) const;
  Result<void> set_link(const api::Seat& seat, api::Link link) const;
  Result<void> disconnect(const api::Seat& seat) const;  // nothing to do if there is none
  // How the seat's link is; `pid` is the living node (0: none). `stale`: a link is there although no node is at its end.
  Result<Wire> look(const api::Seat& seat, pid_t pid, bool& stale) const;
  Result<void> tear_down() const;

 private:
  Result<void> stand_up_six(const Fd& space, const Ranges::Six& six) const;
  Site site_;
  Ranges ranges_;
};

// Routes of this machine, of /proc/net/route's form and of /proc/net/ipv6_route's.
std::vector<Route> parse_routes(std::string_view proc_net_route);
std::vector<Route6> parse_routes6(std::string_view proc_net_ipv6_route);
// Is a range of the site in use by something else on this machine? A sentence; empty: free. A machine without IPv6 has no such routes.
Result<std::string> find_conflict(const Ranges& ranges, const Site& site);

}  // namespace fairlead::fleet
