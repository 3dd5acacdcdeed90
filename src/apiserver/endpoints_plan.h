// SPDX-License-Identifier: Apache-2.0
// Which EndpointSlices a Service has. Pure. As Kubernetes' endpointslice controller: one slice per address family and set of ports, at most 100 endpoints each.
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::apiserver {

struct SlicePlan {
  std::vector<kube::Json> create, update;  // update: whole objects with their resourceVersion
  std::vector<std::string> remove;         // by name
  bool empty() const { return create.empty() && update.empty() && remove.empty(); }
};
// `pods`: those that the selector means. `slices`: those that this controller made for the service.
SlicePlan plan_slices(const kube::Json& service, const std::vector<kube::Json>& pods, const std::vector<kube::Json>& slices);

}  // namespace fairlead::apiserver
