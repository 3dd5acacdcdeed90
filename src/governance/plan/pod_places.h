// SPDX-License-Identifier: Apache-2.0
// What pods say of the place that they want, as annotations, and how they get the one that their Workload was given. Pure. docs/design/042-places-in-the-continuous-mode.md.
// The rules by which ranks go to domains are Kueue's (pkg/controller/tas/topology_ungater.go, v0.20).
#pragma once
#include <string>
#include <vector>

#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::governance {

// Puts the topologyRequest of a pod set, from the annotations of its pods (or their template). Nothing where they ask for none. The problem, with the annotation's name; empty: none.
std::string put_topology_request(kube::Json& pod_set, const kube::Json& metadata);

// Has the pod set a place in the Workload's admission?
bool has_place(const kube::Json& workload, const std::string& pod_set);
// A template of pods that are to get their place each on its own: by a gate, and with the name of their Workload. Nothing where the pod set has no place.
void put_place_gate(kube::Json& pod_template, const kube::Json& workload, const std::string& pod_set);
// A single pod, which gets its place at once: the same notes without the gate.
void put_place_notes(kube::Json& pod, const kube::Json& workload);
bool waits_for_place(const kube::Json& pod);  // behind the gate

struct PodPlace {
  kube::ObjectKey pod;
  kube::Labels selector;  // labels of the nodes that it may run on
};
// Of `pods`, which are all that the Workload has of this pod set and that have not ended, those that have no place yet (`placed` says no): by their rank where all of them have one, else in the order of their names to what is free in the
// order of the domains. Who finds none waits for another's end.
std::vector<PodPlace> places_for(const kube::Json& workload, const std::string& pod_set, const std::vector<const kube::Json*>& pods, bool (*placed)(const kube::Json& pod));
// It has a node selector for a domain that its Workload has no place in any more: its node is lost, and its place is elsewhere.
bool is_astray(const kube::Json& workload, const std::string& pod_set, const kube::Json& pod);

}  // namespace fairlead::governance
