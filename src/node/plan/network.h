// SPDX-License-Identifier: Apache-2.0
// What the kernel's packet filter of a node must hold: addresses of services, ports of the host, who may speak with whom. Pure: objects in, the text
// of one nftables table out. Nothing of an object's text gets into it but addresses and numbers that were checked.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "kube/json.h"
#include "node/plan/service_rules.h"

namespace fairlead::node {

struct NetworkSeen {
  std::string node_name;
  std::vector<std::string> own_ranges;      // of this node's pods: "10.78.3.0/24", "fd00:78:3::/64"
  std::vector<std::string> own_gateways;    // where names are answered; pods may always ask there
  std::vector<std::string> cluster_ranges;  // ranges and addresses of all nodes: never hidden behind this node's address
  bool metadata = false;                    // this node answers the address of metadata services itself
  bool masquerade = false;                  // hide pods behind the node's address towards everything else
  std::vector<kube::Json> pods, namespaces, services, endpoint_slices, policies;
};

// The table `inet fairlead`, to be given to `nft -f -`: it replaces what was there in one transaction. Equal arguments give equal texts.
//   Services with a cluster IP, also by their node ports: a new connection goes to one of the ready endpoints at random, or where its client went before; without any it is rejected.
//   The machine's metadata, by whomever it is told, is for no pod but those of pods_with_role().
//   hostPort of this node's pods. NetworkPolicy of this node's pods, both directions; replies always pass; the node itself may always reach its pods.
std::string network_rules(const NetworkSeen& seen);
// Pods of this node that are nodes of a Slurm cluster of instances (api/node_identity.h), by their IPv4 addresses: "NAMESPACE/NAME" of the SlurmCluster that made them. What others write on pods of their own counts for nothing.
std::map<std::string, std::string> pods_with_role(const std::vector<kube::Json>& pods, const std::string& node_name);
// What is to follow them in the same transaction, so that clients of services with session affinity keep their endpoints.
std::string keep_sessions(const NetworkSeen& seen, const std::vector<Session>& sessions);

}  // namespace fairlead::node
