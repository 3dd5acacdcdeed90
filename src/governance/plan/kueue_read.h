// SPDX-License-Identifier: Apache-2.0
// Kueue's objects (v1beta2; v1beta1 where only names differ) to plain values. Invalid: the path of the field, what stands there, what is expected. Unknown fields are passed over.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "governance/plan/model.h"
#include "kube/json.h"

namespace fairlead::governance {

// What a request for one resource counts as (resources.transformations of Kueue's configuration).
struct Transformation {
  bool replace = false;  // else the input is retained beside the outputs
  std::string multiply_by;
  std::map<std::string, kube::Quantity> outputs;
};
// What the LimitRanges of a namespace allow a container and a pod.
struct LimitRangeSummary {
  NamedAmounts container_max, container_min, pod_max, pod_min;
};
struct RequestRules {
  std::map<std::string, LimitRangeSummary> limit_ranges;  // by namespace
  std::vector<std::string> excluded_prefixes;
  std::map<std::string, Transformation> transformations;
};

Result<FlavorSpec> read_flavor(const kube::Json& object);
Result<QueueSpec> read_queue(const kube::Json& object);
Result<CohortSpec> read_cohort(const kube::Json& object);
Result<LocalQueueSpec> read_local_queue(const kube::Json& object);
Result<WorkloadSpec> read_workload(const kube::Json& object, const RequestRules& rules = {});
Result<PodSetSpec> read_pod_set(const kube::Json& pod_set, const std::string& path, const RequestRules& rules = {});
Result<Admission> read_admission(const kube::Json& admission, const std::string& path);

// A quota: unlimited where it does not fit. A request: cut to the largest number. cpu in thousandths.
Result<Amount> read_quota(const kube::Json& quantity, std::string_view resource, const std::string& path);
enum class Negative : std::uint8_t { Zero, Refused };
Result<NamedAmounts> read_amounts(const kube::Json& resource_list, const std::string& path, Negative negative = Negative::Zero);
// In Kubernetes' canonical form: "1500m", "3Gi".
std::string amount_text(std::string_view resource, Amount amount);

}  // namespace fairlead::governance
