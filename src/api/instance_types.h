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
  int max_pods;      // 0: not documented
  bool arm;
};
const std::vector<InstanceType>& instance_types();             // by name
const InstanceType* find_instance_type(std::string_view name);  // nullptr: the API has no such type

// What status.capacity of a Node lacks of the type, with both numbers; empty: it may be called that. Devices must be as many; cores at least; memory at least nine tenths, since firmware and kernel keep some.
std::string why_not_of_type(const InstanceType& type, const kube::Json& node);
// Does a taint keep new work away? Not those that say in other words that the node does not answer or is cordoned: these are looked at apart, with the patience that they deserve.
bool closed_by_taints(const kube::Json& node);
// What is declared of a machine that is made to be of this type.
std::map<std::string, std::string> capacity_of(const InstanceType& type);

}  // namespace fairlead::api
