// SPDX-License-Identifier: Apache-2.0
// What of a snapshot each part of the plan looks at. Pure; what is borrowed lives as long as the snapshot.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/plan/reconcile.h"
#include "slurm/plan/size.h"

namespace fairlead::slurm {

// By name; null: not there.
const kube::Json* find(const std::map<std::string, kube::Json>& in, const std::string& name);

bool owned_by(const kube::Json& object, const api::SlurmCluster& cluster);
bool of_role(const kube::Json& pod, const api::SlurmCluster& cluster, Role role);
bool pod_ready(const kube::Json& pod);
bool pod_over(const kube::Json& pod);
// Of the environment of any of its containers; empty: not there.
std::string setting_of_pod(const kube::Json& pod, std::string_view name);
// Of "login-7" or, of a worker, "SET-7"; -1: no such name.
int ordinal_of(const std::string& name, const api::SlurmCluster& view, Role role);

// The resource with its NodeSets.
api::SlurmCluster read_as_written(const Snapshot& snapshot, const std::string& default_image);
// With the images that are in force, which are others than the resource names while the cluster goes from one version of Slurm to another (plan/upgrade.h).
api::SlurmCluster read_cluster(const Snapshot& snapshot, const std::string& default_image);
// Slurm's tools on any head reach the slurmctld that serves. Null: none is ready.
const kube::Json* ready_head(const Snapshot& snapshot, const api::SlurmCluster& cluster);
// The daemon that serves reads the files of its own pod. Null: nobody knows which.
const kube::Json* serving_head(const Snapshot& snapshot, const api::SlurmCluster& cluster, const std::optional<ActiveHead>& active);

// The kinds of workers with the sizes that are in force: of those that follow the queue, what `sizes` says, or what the last plan left where it says nothing.
SizeInput size_input(const Snapshot& snapshot, const api::SlurmCluster& cluster, Instant now);
std::vector<api::SlurmCluster> views_in_force(const SizeInput& input, const api::SlurmCluster& cluster, const std::map<std::string, int>& sizes);
// Of a view whose number follows the queue; null: it does not.
const api::SlurmAutoscale* autoscale_of(const api::SlurmCluster& view);

// Of the size, by number; which of them are to be made anew, and what they said of the people in them.
std::vector<LoginPod> login_pods(const Snapshot& snapshot, const api::SlurmCluster& cluster);
// Was the pod made with other sub-mounts than these (mounts_mark)? False where that is not known.
bool wants_other_mounts(const kube::Json& pod, const std::string& mark);
ScaleInput scale_input(const Snapshot& snapshot, const api::SlurmCluster& view, Instant now);
FailureInput failure_input(const Snapshot& snapshot, const api::SlurmCluster& cluster, Instant now);
// Workers that run have their part in gres.conf.
ObjectOptions with_gres(const Snapshot& snapshot, const api::SlurmCluster& cluster, ObjectOptions options);
Rollout rollout_of(const Snapshot& snapshot, const api::SlurmCluster& cluster, const ObjectOptions& options, Instant now);
// Workers and login nodes whose copy is to be looked at once slurmctld runs with `hash`.
std::vector<ConfigOf> unseen_configs(const Snapshot& snapshot, const api::SlurmCluster& cluster, const std::string& hash);

}  // namespace fairlead::slurm
