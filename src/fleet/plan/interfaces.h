// SPDX-License-Identifier: Apache-2.0
// Which network interfaces nodes are to have, and what is told of them. Pure; docs/design/068-network-interfaces.md.
//
// An address must not be on two machines. So where one is going to be is written down (status.node) before its node is told, and it goes to no other node, and is free for nobody, until the one of before has told that it has it no more, or is no Node any more.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/network_interface.h"
#include "base/clock.h"

namespace fairlead::fleet {

struct InterfaceSnapshot {
  std::vector<kube::Json> interfaces;
  std::map<std::string, std::string> instances;  // that are there, with their nodes
  std::map<std::string, kube::Json> nodes;
};
struct InterfacePlan {
  std::map<std::string, std::string> notes;  // by node: what its annotation kInterfacesNote is to be; empty: none
  std::vector<kube::Json> objects;           // to be updated: without an attachment, or without finalizer
  std::vector<kube::Json> statuses;          // before the notes: what they are about to do is known
  bool empty() const { return notes.empty() && objects.empty() && statuses.empty(); }
};
// This node was not told of it, and does not say that it has it: it is not there for certain. Of a copy of the Node that may be old it says nothing.
bool has_left(const std::string& id, const kube::Json& node);
InterfacePlan plan_interfaces(const InterfaceSnapshot& seen, Instant now);

}  // namespace fairlead::fleet
