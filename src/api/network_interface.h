// SPDX-License-Identifier: Apache-2.0
// Network interfaces of a site that nodes of clusters take up (AttachClusterNodeNetworkInterface): an address, and the MAC that goes with it from node to node. NetworkInterfaces (fairlead.dev/v1alpha1) are made by an administrator, named by their id; attaching writes
// spec.attachment. What a Node's agent is to have, and what it has, are annotations of the Node. Pure; docs/design/068-network-interfaces.md.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kNetworkInterfaces{"fairlead.dev", "v1alpha1", "networkinterfaces", "NetworkInterface", false};
kube::Json network_interface_crd();

inline constexpr const char* kInterfaceFinalizer = "fairlead.dev/network-interface";  // while it may be on a node
inline constexpr const char* kInterfacesNote = "fairlead.dev/network-interfaces";             // written by the server: InterfaceOrders
inline constexpr const char* kInterfacesStateNote = "fairlead.dev/network-interfaces-state";  // written by the agent: InterfaceStates

inline constexpr const char* kInterfaceLeftNote = "fairlead.dev/network-interface-left";      // written by the server: which one this Node gave up last, so that what was decided before meets another version

bool is_interface_id(std::string_view text);  // "eni-" and 8 or 17 hexadecimal digits

// What a node is to have.
struct InterfaceOrder {
  std::string id;
  std::vector<std::string> addresses;  // with the length of their network, as the kernel prints them: "10.0.3.7/24", "fd00::7/64"
  std::string mac;                     // of the id, whoever has it
  std::string link;                    // of the node, which it is put upon; empty: the one in the same range, else that of the default route
  friend bool operator==(const InterfaceOrder&, const InterfaceOrder&) = default;
};
using InterfaceOrders = std::vector<InterfaceOrder>;  // by id
std::string print_interface_orders(const InterfaceOrders& orders);  // empty: none
Result<InterfaceOrders> parse_interface_orders(std::string_view text);  // Invalid: then nothing is done. Empty text: none

inline constexpr const char* kInterfaceClaimed = "it is put up";  // of a state: begun, and not told of yet
// By id: why it is not as was ordered; empty: it is. What is not named is not there.
using InterfaceStates = std::map<std::string, std::string>;
std::string print_interface_states(const InterfaceStates& states);
Result<InterfaceStates> read_interface_states(const kube::Json& node);  // Invalid: nothing is known of it

struct NetworkInterface {
  InterfaceOrder order;
  std::string instance, attachment;  // empty: it is free
  std::string node;                  // of the status: where it is, or may still be
  std::string problem;               // of the spec: then it is attached to nothing
};
NetworkInterface read_network_interface(const kube::Json& object);
std::string attachment_id(std::string_view interface, std::string_view instance);  // "eni-attach-...": the same for the same two

}  // namespace fairlead::api
