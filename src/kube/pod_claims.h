// SPDX-License-Identifier: Apache-2.0
// Which claims a pod's volumes are: those that it names, and those that are made for it and go with it (generic ephemeral volumes). Pure. Source: Kubernetes' k8s.io/component-helpers/storage/ephemeral.
#pragma once
#include <string>

#include "kube/object.h"

namespace fairlead::kube {

inline bool is_ephemeral(const Json& volume) { return volume["ephemeral"]["volumeClaimTemplate"].is_object(); }
// The claim's name, in the pod's namespace; empty: this volume is none.
inline std::string claim_of(const Json& pod, const Json& volume) { return is_ephemeral(volume) ? name_of(pod) + "-" + volume["name"].string() : volume["persistentVolumeClaim"]["claimName"].string(); }
// Whether the claim was made for the pod of this uid. Another of that name is somebody's, and the pod does not get it.
inline bool is_for_pod(const Json& claim, const std::string& pod_uid) {
  const Json* owner = controller_of(claim);
  return owner != nullptr && (*owner)["kind"].string() == "Pod" && (*owner)["uid"].string() == pod_uid;
}

}  // namespace fairlead::kube
