// SPDX-License-Identifier: Apache-2.0
// Can clusters that Kubernetes orchestrates be made on this Kubernetes? Facts in, findings with remedies out: run before anything is made, by CreateCluster and by `fairlead cluster preflight` (docs/design/063).
// Pure; look.h finds the facts out.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::orchestrator {

// As ConfigMap fairlead-networks (api::identities::networks_name) says it: "subnet-0a1b2c3d": "private 10.0.0.0/16 fd00::/64".
struct Network {
  bool is_private = false;
  bool ipv4 = false, ipv6 = false;  // by its ranges; neither: it names none
  friend bool operator==(const Network&, const Network&) = default;
};
// Invalid: a sentence that says what is expected.
Result<Network> read_network(std::string_view text);

struct NetworkPlugin {
  std::string name;     // "Amazon VPC CNI", "Cilium", ...
  std::string where;    // its DaemonSet: "kube-system/aws-node"
  std::string version;  // "1.18.3"; empty: its image does not tell
  friend bool operator==(const NetworkPlugin&, const NetworkPlugin&) = default;
};
// Of a DaemonSet; nothing: it is none that is recognised.
std::optional<NetworkPlugin> plugin_of(const kube::Json& daemon_set);

// What could not be found out has a sentence in `unknown`, by the name of the check, and is otherwise empty.
struct Facts {
  std::string version;               // of the API: "1.33"
  std::string authentication_mode;   // as EKS DescribeCluster tells it
  std::set<std::string> missing;     // kinds without which there are no such clusters: "clusters.fairlead.dev"
  std::set<std::string> missing_extras;  // without which less is served
  std::vector<NetworkPlugin> plugins;    // by `where`
  int own_nodes = 0;                 // run by Fairlead's agent, which brings their network
  int other_nodes = 0, other_ready = 0;
  std::map<std::string, std::string> without_network;  // other nodes whose kubelet says that there is no network: its words
  bool ipv4 = false, ipv6 = false;   // of Services
  bool ipv6_first = false;           // they get an address of IPv6 unless they ask for both
  std::set<std::string> nodes_without_ipv6;
  std::optional<std::map<std::string, Result<Network>>> networks;  // nothing: the site says nothing of them
  std::map<std::string, std::string> unknown;
};

struct Role {
  std::string of;        // "group workers"
  std::string arn;
  bool accelerated = false;  // its nodes have GPUs or Neuron devices
  bool found = true;
};
// What a cluster would use.
struct Asked {
  std::vector<std::string> subnets;
  std::vector<Role> nodes;          // ExecutionRole, one for each group
  std::optional<Role> autoscaler;   // ClusterRole
};

enum class Verdict { Ok, Warning, Unknown, Failed };  // Failed alone keeps a cluster from being made
std::string_view text(Verdict verdict);
struct Finding {
  std::string check;     // charts, version, authentication, cni, subnets, ipv6, roles
  Verdict verdict = Verdict::Ok;
  std::string what;      // one sentence
  std::string advice;    // what to do; empty where nothing is to be done
  friend bool operator==(const Finding&, const Finding&) = default;
};
// One for each check, in the order in which a user should see to them.
std::vector<Finding> check(const Facts& facts, const Asked& asked);
// "cni: what; advice" of those that failed, joined; empty: none did.
std::string objections(const std::vector<Finding>& findings);
kube::Json to_json(const std::vector<Finding>& findings);  // {"ready": BOOL, "findings": [{check, verdict, message, advice}]}

}  // namespace fairlead::orchestrator
