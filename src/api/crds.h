// SPDX-License-Identifier: Apache-2.0
// The CustomResourceDefinitions that the server installs at start, so that Fairlead's own kinds are there before the first file is applied.
#pragma once
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

// machines.fairlead.dev, slurmclusters, nodesets and activechecks of slurm.nebius.ai, notificationtopics.fairlead.dev, notifications.fairlead.dev, schedulerconfigs, computequotas, inquiries, identities, managedpolicies, clusters, instances, clusterevents, trainingplans, networkinterfaces, volumepools, volumes, snapshots, attachments, volumekeys and volumehosts of fairlead.dev, hyperpodpytorchjobs of sagemaker.amazonaws.com, then queue_crds(); complete manifests, in this order.
std::vector<kube::Json> crds();
kube::Json parse_crd(const char* yaml);  // one document of ours: INVARIANT that it can be read
kube::Json machine_crd();
kube::Json notification_topic_crd();
kube::Json notification_crd();

}  // namespace fairlead::api
