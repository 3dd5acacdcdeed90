// SPDX-License-Identifier: Apache-2.0
// PersistentVolumeClaims on shared directories: a claim is bound as soon as its directory is there. Below the volumes folder:
//   NAMESPACE/NAME-UID      0755, owned by root; named relative to the folder in the claim's annotation fairlead.dev/path
//   released/NAMESPACE-NAME-UID   what a deleted claim leaves, unless its annotation fairlead.dev/reclaim says Delete
// The size asked for is written down, not enforced. A claim that a pod uses is not deleted before that pod has ended.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

inline constexpr std::string_view claim_finalizer = "kubernetes.io/pvc-protection";
inline constexpr std::string_view claim_path_annotation = "fairlead.dev/path";
inline constexpr std::string_view claim_reclaim_annotation = "fairlead.dev/reclaim";

class ClaimController final : public kube::Controller {
 public:
  ClaimController(kube::KubeApi& api, const Clock& clock, std::string volumes_folder) : api_(api), clock_(clock), folder_(std::move(volumes_folder)) {}
  std::string name() const override { return "claim"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> bind(kube::Json claim);
  Result<kube::Next> release(const kube::Json& claim);
  Result<bool> in_use(const kube::Json& claim);
  kube::KubeApi& api_;
  const Clock& clock_;
  std::string folder_;
};

}  // namespace fairlead::apiserver
