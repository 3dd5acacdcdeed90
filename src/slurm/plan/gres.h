// SPDX-License-Identifier: Apache-2.0
// gres.conf. slurmd reads it again at each `scontrol reconfigure`, and ends by fatal() where its devices are not those that the file says, or other flags or AutoDetect than when it started (Slurm 22.05,
// src/common/gres.c: _my_stat, prev_env and autodetect_flags are never forgotten): then the steps of its worker end with it. So a worker that runs keeps the lines that it was made with until its pod is gone.
#pragma once
#include <map>
#include <string>

#include "api/slurm_cluster.h"
#include "kube/json.h"

namespace fairlead::slurm {

inline constexpr const char* kGres = "fairlead.dev/gres";  // annotation of a worker's pod: its lines, each with its line break

// The lines of a worker of this kind, without NodeName; "": none.
std::string gres_of(const api::SlurmCluster& view);

// By name of the pod: the lines of those that run with others than the resource asks for now. `mounted` is the gres.conf that the pods were given, which tells of pods without the annotation.
std::map<std::string, std::string> running_gres(const api::SlurmCluster& cluster, const std::map<std::string, kube::Json>& pods, const std::string& mounted);

std::string render_gres(const api::SlurmCluster& cluster, const std::map<std::string, std::string>& running);

}  // namespace fairlead::slurm
