// SPDX-License-Identifier: Apache-2.0
// The network interfaces that this node is told to have (api/network_interface.h): each a macvlan upon one of the node's links, with the MAC and the addresses of its id, named by it. They stay while the agent is away, and come back with it after the machine's reboot. By `ip` of iproute2.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "api/network_interface.h"
#include "base/result.h"
#include "kube/kube_api.h"

namespace fairlead::agent {

// A link of this machine, as `ip -json -details address show` tells.
struct Link {
  std::string name, kind, alias, mac, parent;   // kind: "macvlan", "veth", ...; empty: a card
  std::vector<std::string> addresses;           // with the length of their network; without those of the link alone (fe80::) and what routers or DHCP gave
  bool up = false;
};
struct LinkView {
  std::vector<Link> links;
  std::string default_link, default_link6;      // of the default routes; empty: there is none
};
Result<LinkView> parse_links(std::string_view addresses, std::string_view routes, std::string_view routes6);  // what `ip` printed

// What leads to it, as words for `ip`, in this order; one that fails is its interface's failure. Links of others, whatever their names, are left alone.
struct InterfaceSteps {
  struct Step {
    std::string id;                             // whose it is
    std::vector<std::string> words;
  };
  std::vector<Step> steps;
  std::map<std::string, std::string> failed;    // by id: why nothing is done for it
};
InterfaceSteps plan_links(const api::InterfaceOrders& orders, const LinkView& seen);
std::string link_name(std::string_view id);     // of 15 characters at most

// Looks, does what is due, and looks again. What could not be taken away is among the states, too. Unavailable: `ip` does not run; nothing is known then.
std::string ip_program();                       // its path; empty: it is missing
Result<api::InterfaceStates> settle_interfaces(const api::InterfaceOrders& orders, const std::string& ip = ip_program());

// One round for this Node, as it was read just now: what is new is claimed in the Node's annotation before it is put up, by the version in which it was ordered, so that who takes an order back knows whether it was begun. Conflict: the Node has changed; the next round will do. `look`: also where nothing is ordered and nothing told; what an agent of before left is taken away.
using Settle = std::function<Result<api::InterfaceStates>(const api::InterfaceOrders&)>;
Result<void> keep_interfaces(kube::KubeApi& api, const kube::Json& node, const Settle& settle, bool look = false);

}  // namespace fairlead::agent
