// SPDX-License-Identifier: Apache-2.0
// What `install` puts into a cluster, and whom a thing belongs to that is there already. Pure.
#pragma once
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/install_volumes.h"
#include "kube/access.h"
#include "kube/json.h"

namespace fairlead::cli {

struct InstallOptions {
  std::string space = "fairlead-system";
  std::string image = "fairlead-server:" FAIRLEAD_VERSION;
  std::string watch_namespace;  // empty: clusters of all namespaces
  int replicas = 2;             // 0: no Deployment; the server runs elsewhere, as this service account
  std::string agent_image = "fairlead-agent:" FAIRLEAD_VERSION;
  std::string companion_dir = "/var/lib/fairlead/bin";  // of each node, filled by the agent; empty: Slurm's image brings the companion, and there is no agent
  std::string slurm_image;      // empty: the server's default
  bool aws = false;             // AWS clients are served, at Service fairlead-aws
  VolumeOptions volumes;        // block volumes on the cluster's nodes
  bool local_nodes = false;     // nodes of local machines may read what their network is made from: names, routes, policies
};

inline constexpr const char* kPartOf = "app.kubernetes.io/part-of";  // = "fairlead": what install made
inline constexpr const char* kManagedBy = "app.kubernetes.io/managed-by";
inline constexpr const char* kVersion = "fairlead.dev/version";

// In the order in which they must be made: namespace, CRDs, accounts, roles, bindings, the Deployment,
// the agent's DaemonSet, and what volumes need. Roles hold `server` (what the server's controllers
// declare) and its Lease, nothing else. Equal arguments give equal manifests.
std::vector<kube::Json> install_manifests(const InstallOptions& options, const kube::Access& server);

enum class Owner { Us, Nobody, Somebody };
struct Ownership {
  Owner owner = Owner::Nobody;
  std::string who;      // "Helm release soperator in namespace slurm-system", "kubectl-client-side-apply"
  std::string release;  // of Helm, and its namespace
  std::string release_space;
};
// By labels and annotations, then by the managers of its fields. `wanted`: what we would put there; equal content of nobody's is ours to take.
Ownership owner_of(const kube::Json& existing, const kube::Json& wanted);

// Controllers that still run for a foreign thing, each a few words: Leases renewed lately whose name ends with a domain of `group`, Deployments of its Helm release
// with running pods.
std::vector<std::string> running_controllers(const std::string& group, const Ownership& owner, const std::vector<kube::Json>& leases, const std::vector<kube::Json>& deployments, Instant now);

// Is `a` an older version than `b` ("0.9.1" < "0.10.0")? Unreadable parts count as 0.
bool older_version(const std::string& a, const std::string& b);

}  // namespace fairlead::cli
