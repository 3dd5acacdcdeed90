// SPDX-License-Identifier: Apache-2.0
// What is next for a volume of a pod that lives and dies with it. Pure. Source: the Kubernetes documentation, "Ephemeral Volumes": the claim is POD-VOLUME, owned by the pod.
#pragma once
#include <optional>
#include <string>

#include "kube/json.h"

namespace fairlead::storage {

struct EphemeralNext {
  kube::Json make;   // a claim to be created; null: none
  std::string why;   // it cannot be made: for an event at the pod
};
// `volume`: one with a volumeClaimTemplate. `claim`: what has its name.
EphemeralNext next_for_ephemeral(const kube::Json& pod, const kube::Json& volume, const std::optional<kube::Json>& claim);

}  // namespace fairlead::storage
