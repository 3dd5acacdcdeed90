// SPDX-License-Identifier: Apache-2.0
#include "api/instance_types.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

namespace {

std::int64_t milli(const Json& capacity, const char* resource) {
  const auto amount = kube::Quantity::from_json(capacity[resource]);
  return amount ? amount->milli_value() : 0;
}

}  // namespace

const std::vector<InstanceType>& instance_types() {
  static const std::vector<InstanceType> all{
#include "api/instance_types.inc"
  };
  return all;
}

const InstanceType* find_instance_type(std::string_view name) {
  const auto& all = instance_types();
  const auto found = std::lower_bound(all.begin(), all.end(), name, [](const InstanceType& type, std::string_view wanted) { return type.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

std::string why_not_of_type(const InstanceType& type, const Json& node) {
  const Json& capacity = node["status"]["capacity"];
  for (const auto& [resource, wanted] : {std::pair(kGpuResource, type.gpus), std::pair(kNeuronResource, type.neurons)})
    if (const std::int64_t has = milli(capacity, resource) / 1000; has != wanted) return fmt::format("{} has {} of {}; this machine has {}", type.name, wanted, resource, has);
  if (const std::int64_t has = milli(capacity, "cpu"); has < type.cpus * 1000) return fmt::format("{} has {} CPUs; this machine has {:g}", type.name, type.cpus, static_cast<double>(has) / 1000);
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  if (const std::int64_t has = milli(capacity, "memory") / 1000; has < type.memory_gib * gib / 10 * 9) return fmt::format("{} has {} GiB of memory; this machine has {:.1f}", type.name, type.memory_gib, static_cast<double>(has) / gib);
  return "";
}

int most_pods(const InstanceType& type) {
  if (type.max_pods > 0) return type.max_pods;
  return type.cpus <= 2 ? 9 : type.cpus <= 8 ? 14 : type.cpus < 64 ? 29 : 49;
}

std::string why_too_many_pods(const InstanceType& type, const Json& node) {
  const std::int64_t has = milli(node["status"]["allocatable"], "pods") / 1000;
  if (has <= most_pods(type)) return "";
  return fmt::format("{} holds {} pods at most{}; this machine's kubelet takes {}: set maxPods: {} in its KubeletConfiguration and start it anew", type.name, most_pods(type), type.max_pods > 0 ? "" : " (a value of Fairlead's: HyperPod documents none)", has, most_pods(type));
}

std::map<std::string, std::string> capacity_of(const InstanceType& type) {
  std::map<std::string, std::string> out{{"cpu", std::to_string(type.cpus)}, {"memory", fmt::format("{}Gi", type.memory_gib)}};
  if (type.gpus > 0) out[kGpuResource] = std::to_string(type.gpus);
  if (type.neurons > 0) out[kNeuronResource] = std::to_string(type.neurons);
  return out;
}

bool closed_by_taints(const Json& node) {
  const auto& taints = node["spec"]["taints"].items();
  return std::any_of(taints.begin(), taints.end(), [](const Json& taint) {
    const std::string& key = taint["key"].string();
    return taint["effect"].string() != "PreferNoSchedule" && key != "node.kubernetes.io/not-ready" && key != "node.kubernetes.io/unreachable" && key != "node.kubernetes.io/unschedulable";
  });
}

}  // namespace fairlead::api
