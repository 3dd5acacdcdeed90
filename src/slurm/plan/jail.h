// SPDX-License-Identifier: Apache-2.0
// The shared root file system of a cluster: filled once by a pod, before anything runs in it. What the program in that pod does to the volume, gpl/jail_layout.h says.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "slurm/plan/objects.h"

namespace fairlead::slurm {

std::string populate_pod_name(const api::SlurmCluster& cluster);
// Names the version that the image gives: equal images, equal names.
std::string jail_version(const api::SlurmCluster& cluster);
kube::Json populate_pod(const api::SlurmCluster& cluster, const ObjectOptions& options);

struct JailPlan {
  bool ready = true;                        // pods that live in the jail may be made
  std::optional<kube::Condition> condition; // JailReady; none where the cluster has no jail
  kube::Json memory;                        // status.jail: {clusterUid, layout, version, attempts, failedPod, failedAt}
  bool make_pod = false;
  std::string end_pod;                      // why the pod that is there is to be deleted; empty: it stays
  std::optional<std::chrono::nanoseconds> look_again;
};
// `pod`: the one of that name, or null. What it says when it has ended decides; an unreadable word is a failure. A failed one is made anew 10 s, 20 s, ... up to five minutes after it was first seen so. What was filled once for this cluster is
// remembered and not looked at again.
JailPlan plan_jail(const api::SlurmCluster& cluster, const kube::Json& memory, const kube::Json* pod, Instant now);

}  // namespace fairlead::slurm
