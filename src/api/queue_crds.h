// SPDX-License-Identifier: Apache-2.0
// The objects of task governance: Kueue's kinds of group kueue.x-k8s.io as CustomResourceDefinitions (docs/governance.md). The group is Kueue's: where Kueue itself is installed its definitions stay as they are,
// all of them, and task governance stays off there.
#pragma once
#include <string_view>
#include <vector>

#include "kube/access.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline constexpr std::string_view queue_group = "kueue.x-k8s.io";
inline constexpr const char* queue_in_use = "kueue.x-k8s.io/resource-in-use";  // finalizer of queues and of Workloads
inline constexpr const char* queue_managed = "kueue.x-k8s.io/managed";        // label ("true") and finalizer of pods that are in queues

// ResourceFlavor, Topology, WorkloadPriorityClass, AdmissionCheck, Cohort, ClusterQueue, LocalQueue, Workload; v1beta1 and v1beta2 are served, v1beta2 is stored.
std::vector<kube::Json> queue_crds();
bool is_queue_crd(const kube::Json& crd);
// Whether the definition that is in a cluster is one of Fairlead's: by the label that each of its makers gives it (the server, `fairlead install`, the chart).
bool is_our_queue_crd(const kube::Json& crd);
// The first of a cluster's definitions that is of this group and somebody else's; nullptr: none. With one, the whole group is left alone: a controller of that owner may work with all of them.
const kube::Json* foreign_queue_crd(const std::vector<kube::Json>& crds);

// Where the webhook is that converts between the versions: a URL, or a Service (port 443); and whose certificate it has.
struct QueueWebhook {
  std::string url;             // empty: the Service
  std::string space, service;
  std::string ca_pem;
};
// spec.conversion of the definitions whose versions differ (Workload, ClusterQueue, LocalQueue, Cohort, AdmissionCheck). queue_crds() names a webhook that nobody has: until somebody says where it is, v1beta1 of these
// fails and nothing is lost.
kube::Json queue_conversion(const QueueWebhook& webhook);
// The merge patch, on the state of `crd`, that makes its conversion so; null: it is so, or its versions differ in their names alone.
kube::Json conversion_change(const kube::Json& crd, const QueueWebhook& webhook);

// What a server needs to share its webhook's authority with others, in its own namespace: a Secret of this name. The Service in front of them has the same.
inline constexpr const char* queue_webhook_name = "fairlead-webhooks";
inline constexpr int queue_webhook_port = 9443;  // of pods
kube::Access queue_webhook_access(const std::string& space);

namespace queues {
extern const kube::Resource flavors, topologies, priority_classes, checks, cohorts, cluster_queues, local_queues, workloads;  // v1beta2
}

}  // namespace fairlead::api
