// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/ephemeral_claim.h"

#include <fmt/format.h>

#include "kube/pod_claims.h"

namespace fairlead::storage {

using kube::Json;

EphemeralNext next_for_ephemeral(const Json& pod, const Json& volume, const std::optional<Json>& claim) {
  const std::string& phase = pod["status"]["phase"].string();
  if (kube::deleting(pod) || phase == "Succeeded" || phase == "Failed") return {};
  const std::string name = kube::claim_of(pod, volume);
  if (claim) return {.make = {}, .why = kube::is_for_pod(*claim, kube::uid_of(pod)) ? "" : fmt::format("PVC {} was not created for pod {} (pod is not owner)", kube::space_of(pod) + "/" + name, kube::space_of(pod) + "/" + kube::name_of(pod))};
  const Json& from = volume["ephemeral"]["volumeClaimTemplate"];
  Json metadata = Json::object({{"name", name}, {"namespace", kube::space_of(pod)}});
  for (const char* const field : {"labels", "annotations"})
    if (from["metadata"][field].is_object()) metadata.set(field, from["metadata"][field]);
  Json owner = kube::owner_reference(pod);
  owner.set("apiVersion", "v1").set("kind", "Pod");
  metadata.set("ownerReferences", Json::array({std::move(owner)}));
  return {.make = Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", std::move(metadata)}, {"spec", from["spec"]}}), .why = {}};
}

}  // namespace fairlead::storage
