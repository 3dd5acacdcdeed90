// SPDX-License-Identifier: Apache-2.0
// Slurm's configuration files from the resource: a pure function, so that equal specs give equal bytes and a hash tells what runs.
#pragma once
#include <map>
#include <string>

#include "api/slurm_cluster.h"

namespace fairlead::slurm {

struct RenderFacts {
  std::string cluster_domain = "cluster.local";
  std::map<std::string, std::string> running_gres;  // plan/gres.h
};

// How job steps are held on a worker, and why.
struct Confinement {
  bool cgroups = false;
  std::string reason;   // CamelCase, for a condition
  std::string message;
};
// cgroup v1 works inside a privileged container with a cgroup namespace on Slurm 22.05; its cgroup/v2 plug-in needs systemd's scopes, which a
// container does not have, so v2 falls back to proctrack/linuxproc.
Confinement confinement_of(const api::SlurmCluster& cluster);

// slurm.conf, cgroup.conf, gres.conf by file name. For Slurm 22.05: configless, dynamic workers (slurmd -Z) that join partition `main` by their feature.
// Holds of the user's part what read_custom_config takes; whether it is fit to be given to a daemon, its problems tell.
std::map<std::string, std::string> render_config(const api::SlurmCluster& cluster, const RenderFacts& facts);

// What a worker says of itself when it registers: the argument of `slurmd --conf`.
std::string worker_definition(const api::SlurmCluster& cluster);

// GPUs of one worker by its resources ("nvidia.com/gpu", "amd.com/gpu", "gpu"); none in a cluster of type "cpu".
int worker_gpus(const api::SlurmCluster& cluster);

// The one name of whoever serves: of the head, or, where there are several, of the service that stands for the elected one.
std::string controller_address(const api::SlurmCluster& cluster, const RenderFacts& facts);
inline bool elected(const api::SlurmCluster& cluster) { return cluster.controller.size > 1 || cluster.was_elected; }
// Pods controller-0, -1, ...: the heads and, of two, a witness, which votes and serves never.
inline int voters(const api::SlurmCluster& cluster) { return cluster.controller.size == 2 ? 3 : cluster.controller.size; }
std::string render_sshd_config(const api::SlurmCluster& cluster);

}  // namespace fairlead::slurm
