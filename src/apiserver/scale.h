// SPDX-License-Identifier: Apache-2.0
// The scale subresource of kinds from CRDs: autoscaling/v1 Scale made of an object, and taken back into it. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// Where the numbers are: ".spec.replicas". `selector` may be empty.
struct ScalePaths {
  std::string spec, status, selector;
};
// The names in ".spec.a.b". Invalid, in Kubernetes' words: not of this form (no lists, no quotes).
Result<std::vector<std::string>> simple_path(std::string_view path);
// What is at a simple path; null: nothing.
const kube::Json* at_simple_path(const kube::Json& object, std::string_view path);

// Internal: the object has no number at paths.spec, as in Kubernetes.
Result<kube::Json> scale_of(const kube::Json& object, const ScalePaths& paths);
// The object with the number of a Scale. Invalid: `Scale.autoscaling "x" is invalid: spec.replicas: ...`.
Result<kube::Json> with_scale(kube::Json object, const kube::Json& scale, const ScalePaths& paths);

}  // namespace fairlead::apiserver
