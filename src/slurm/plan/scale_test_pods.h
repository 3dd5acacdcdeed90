// SPDX-License-Identifier: Apache-2.0
// Pods of workers as the tests of scale-down need them.
#pragma once
#include <fmt/format.h>

#include <string>

#include "kube/object.h"

namespace fairlead::slurm {

inline kube::Json pod_object(int ordinal, const char* phase, bool is_ready, const std::string& uid) {
  using kube::Json;
  return Json::object({{"metadata", Json::object({{"name", fmt::format("worker-{}", ordinal)}, {"uid", uid}})},
                       {"status", Json::object({{"phase", phase}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", is_ready ? "True" : "False"}})})}})}});
}
// Pending, on a machine: an injected sidecar cannot be pulled, while slurmd runs or not.
inline kube::Json half_started(int ordinal, const std::string& uid, bool slurmd) {
  using kube::Json;
  Json pod = pod_object(ordinal, "Pending", false, uid);
  pod.set("spec", Json::object({{"nodeName", "n1"}}));
  const Json waiting = Json::object({{"name", "sidecar"}, {"state", Json::object({{"waiting", Json::object({{"reason", "ImagePullBackOff"}})}})}});
  const Json running = Json::object({{"name", "slurmd"}, {"state", Json::object({{"running", Json::object({{"startedAt", "2026-01-01T00:00:00Z"}})}})}});
  pod.child("status").set("containerStatuses", slurmd ? Json::array({waiting, running}) : Json::array({waiting}));
  return pod;
}
}  // namespace fairlead::slurm
