// SPDX-License-Identifier: Apache-2.0
// Which Kubernetes objects a SlurmCluster consists of. Names follow the source operator (controller-0, worker-0, C-worker-svc, C-munge, C-slurm-configs).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/network_ways.h"
#include "api/slurm_cluster.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {

struct ObjectOptions {
  RenderFacts render;
  // A pod volume source that holds the program fairlead-slurm, mounted at /opt/fairlead/bin; null: the image has it there.
  kube::Json companion;
  std::vector<std::string> closed_ranges;  // api::SlurmNetwork
  bool reads_machines = true;              // does the operator read Nodes? Else no worker waits for the proof of another pod's end (plan/failure.h)
  std::string conf_needs;                  // what heads are made for: start_settings (accounting.h) of the slurm.conf that they mount
  std::string token_mark;                  // of the key that tokens are signed with (plan/rest.h)
};

enum class Role { Controller, Worker, Login, Exporter, Rest };
std::string_view text(Role role);
std::string pod_name(Role role, int ordinal);
std::string pod_name(const api::SlurmCluster& cluster, Role role, int ordinal);  // a worker's is SET-ORDINAL, and so is its name in Slurm

// Everything but the Secrets with keys (made once, see keys.h) and claims named by the user.
std::vector<kube::Json> desired_services(const api::SlurmCluster& cluster);
std::vector<kube::Json> desired_config_maps(const api::SlurmCluster& cluster, const ObjectOptions& options);
std::vector<kube::Json> desired_claims(const api::SlurmCluster& cluster, Role role, const std::vector<int>& ordinals);  // of claim templates: one per pod that is to be there
// The claim with the size that its template asks for by now; none where that is no larger, or the claim is not ours, not bound yet or on its way out. Claims never shrink.
std::optional<kube::Json> grown_claim(const kube::Json& have, const kube::Json& wanted);
std::vector<kube::Json> desired_policies(const api::SlurmCluster& cluster, const ObjectOptions& options);  // NetworkPolicies; none where the cluster is not isolated
// Carries two hashes as annotations, kept apart: a changed template replaces the pod, changed configuration is reloaded in place.
kube::Json desired_pod(const api::SlurmCluster& cluster, Role role, int ordinal, const ObjectOptions& options);

// Of the sub-mounts that a pod of the role is made with, and what they come from: another mark, and the pod is to be made anew for them. Told apart from the template's hash, which changes for more.
std::string mounts_mark(const api::SlurmCluster& cluster, Role role);
inline constexpr const char* kMounts = "fairlead.dev/sub-mounts";

bool is_witness(const kube::Json& pod);  // among heads: one that runs no slurmctld

std::string config_hash(const api::SlurmCluster& cluster, const RenderFacts& facts);

inline constexpr const char* kTemplateHash = "fairlead.dev/template-hash";
inline constexpr const char* kConfigHash = "fairlead.dev/config-hash";
inline constexpr const char* kClusterLabel = api::kSlurmClusterLabel;
inline constexpr const char* kRoleLabel = api::kSlurmRoleLabel;

std::string quorum_secret(const api::SlurmCluster& cluster);   // where there are several heads
std::string exporter_service(const api::SlurmCluster& cluster);
std::string active_service(const api::SlurmCluster& cluster);  // its endpoint is the head that serves (plan/heads.h)
std::string munge_secret(const api::SlurmCluster& cluster);
std::string sshd_keys_secret(const api::SlurmCluster& cluster);
std::string client_key_secret(const api::SlurmCluster& cluster);

}  // namespace fairlead::slurm
