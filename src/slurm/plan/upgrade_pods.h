// SPDX-License-Identifier: Apache-2.0
// A cluster's pods as plan/upgrade.h sees them, and the pods that are asked which Slurm an image holds. Pure.
#pragma once
#include <map>
#include <string>

#include "slurm/plan/reconcile.h"
#include "slurm/plan/upgrade.h"

namespace fairlead::slurm {

inline constexpr const char* kVersionRole = "version";
inline constexpr const char* kWithoutBackup = "fairlead.dev/upgrade-without-backup";  // annotation of the SlurmCluster: "true"

// `cluster` as the resource says it.
UpgradePlan upgrade_of(const Snapshot& snapshot, const api::SlurmCluster& cluster, Instant now);
// Puts the images in force in the place of those that the resource names.
void use_images(api::SlurmCluster& cluster, const std::map<std::string, std::string>& images);

std::string version_pod_name(const api::SlurmCluster& cluster, const std::string& image);
// Runs the first of slurmctld, slurmdbd, slurmd, sinfo that there is with -V and leaves what it says as its last word.
kube::Json version_pod(const api::SlurmCluster& cluster, const std::string& image);
// One of those that has said all it will, or cannot be tried again before a while.
struct VersionPodEnd { const kube::Json* pod; std::string why; };
std::vector<VersionPodEnd> version_pods_to_end(const Snapshot& snapshot, const api::SlurmCluster& cluster, const std::vector<std::string>& asked, Instant now);

}  // namespace fairlead::slurm
