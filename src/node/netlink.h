// SPDX-License-Identifier: Apache-2.0
// The few things that a node asks of the kernel's network set-up, by rtnetlink. Addresses and ranges of both families.
#pragma once
#include <map>
#include <set>
#include <string>

#include "base/result.h"

namespace fairlead::node {

Result<void> set_link_up(const std::string& link);
// Makes the bridge if it is not there, gives it "10.78.3.1/24" or "fd00:78:0:3::1/64" and raises it. Repeatable.
Result<void> ensure_bridge(const std::string& link, const std::string& address);
// Takes an address away again. Repeatable; no such link: nothing to do.
Result<void> drop_address(const std::string& link, const std::string& address);
// The first IPv4 address of a link; empty: it has none. NotFound: no such link.
Result<std::string> address_of(const std::string& link);

// All IPv4 addresses of this network namespace.
Result<std::set<std::string>> own_addresses();

// Makes this network namespace hand IPv4 packets on. Repeatable.
Result<void> route_ipv4();
// Makes this network namespace hand IPv6 packets on, and addresses in it count at once: nobody is asked whether they are taken, as they are given out by us. Repeatable.
Result<void> route_ipv6();

// Routes that we made, told apart from others by their protocol number: "10.78.4.0/24" -> "10.77.1.4".
using Routes = std::map<std::string, std::string>;
Result<Routes> our_routes();
Result<void> set_route(const std::string& range, const std::string& gateway);  // makes or replaces
Result<void> delete_route(const std::string& range);                           // repeatable

}  // namespace fairlead::node
