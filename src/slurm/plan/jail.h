// SPDX-License-Identifier: Apache-2.0
// The shared root file system of a cluster: filled once by a pod, before anything runs in it. What the program in that pod does to the volume, gpl/jail_layout.h says.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "slurm/plan/objects.h"

namespace fairlead::slurm {

std::string populate_pod_name(const api::SlurmCluster& cluster);
// Names the version that the image gives: equal images, equal names.
std::string jail_version(const api::SlurmCluster& cluster);
// The version that somebody asked to be current; empty: whichever is. Not looked at: whether it is a name that a version can have.
std::string asked_version(const api::SlurmCluster& cluster);
bool is_version_name(std::string_view name);  // as gpl/jail_layout.h
// With `nodes`: it makes the version that is asked for current beside the one that is; of these pods some may still live in an old one.
kube::Json populate_pod(const api::SlurmCluster& cluster, const ObjectOptions& options, const std::optional<std::vector<std::string>>& nodes = std::nullopt);

struct JailPlan {
  bool ready = true;                        // pods that live in the jail may be made
  std::optional<kube::Condition> condition; // JailReady; none where the cluster has no jail
  std::optional<kube::Condition> updated;   // JailUpdated: of the version that was asked for; none where nobody ever asked
  kube::Json memory;                        // status.jail: {clusterUid, layout, version, versions, asked, unsure, update, attempts, failedPod, failedAt}
  bool make_pod = false;
  bool renew = false;                       // the pod is one for another version
  std::string end_pod;                      // why the pod that is there is to be deleted; empty: it stays
  std::optional<std::chrono::nanoseconds> look_again;
};
// `pod`: the one of that name, or null. What it says when it has ended decides; an unreadable word is a failure. A failed one is made anew 10 s, 20 s, ... up to five minutes after it was first seen so. What was filled once for this cluster is
// remembered and not looked at again, until another version is asked for: then the pod is made anew for that, and whatever comes of it, the root that is in use is ready. A request that is taken back ends
// the pod that works for it, and one more pod says which version is current.
JailPlan plan_jail(const api::SlurmCluster& cluster, const kube::Json& memory, const kube::Json* pod, Instant now);

}  // namespace fairlead::slurm
