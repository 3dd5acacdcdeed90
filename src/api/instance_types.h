// SPDX-License-Identifier: Apache-2.0
// The instance types that HyperPod's API names, and what a machine must have to be called one.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

inline constexpr const char* kInstanceTypeLabel = "node.kubernetes.io/instance-type";
inline constexpr const char* kGpuResource = "nvidia.com/gpu";
inline constexpr const char* kNeuronResource = "aws.amazon.com/neurondevice";

struct InstanceType {
  const char* name;  // "ml.p5.48xlarge"
  int cpus, memory_gib, gpus, neurons, efa;
  int max_pods;      // as documented; 0: it is not
  bool arm;
};
const std::vector<InstanceType>& instance_types();             // by name
const InstanceType* find_instance_type(std::string_view name);  // nullptr: the API has no such type

// What status.capacity of a Node lacks of the type, with both numbers; empty: it may be called that. Devices must be as many; cores at least; memory at least nine tenths, since firmware and kernel keep some.
std::string why_not_of_type(const InstanceType& type, const kube::Json& node);
// Does a taint keep new work away? Not those that say in other words that the node does not answer or is cordoned: these are looked at apart, with the patience that they deserve.
bool closed_by_taints(const kube::Json& node);
// The most pods that a node of this type holds where Kubernetes orchestrates: HyperPod's own table, or, of types that it leaves out, a value of ours, by the rule that its rows follow (addresses of one network interface, but the first).
int most_pods(const InstanceType& type);
// Why this Node would hold more than that; empty: it does not. By status.allocatable, which its kubelet and who places pods go by. Nodes of Fairlead's agent are told the number by their annotation, and take it.
std::string why_too_many_pods(const InstanceType& type, const kube::Json& node);
// Annotation of a Node: the most pods that its agent says it holds, and runs.
inline constexpr const char* kMaxPodsNote = "fairlead.dev/max-pods";

// What is declared of a machine that is made to be of this type.
std::map<std::string, std::string> capacity_of(const InstanceType& type);

}  // namespace fairlead::api
