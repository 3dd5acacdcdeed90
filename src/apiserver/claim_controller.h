// SPDX-License-Identifier: Apache-2.0
// PersistentVolumeClaims and PersistentVolumes on shared directories. Below the volumes folder:
//   NAMESPACE/NAME-UID      0755, owned by root; what the volume pvc-UID of a claim stands for. The claim's annotation fairlead.dev/path names it for nodes
//   released/NAMESPACE-NAME-UID   what a deleted claim without a class leaves, unless its annotation fairlead.dev/reclaim says Delete
// A claim is bound to a volume that is there and fits (same class, enough room, its modes and selector), else one is made for it: at once, or when a pod that uses it was
// placed (class with WaitForFirstConsumer). A volume whose claim is gone is removed with its directory (Delete) or stays as Released (Retain).
// Volumes of the CSI driver are bound alike, and made, attached, grown and deleted by others (storage/).
// The size asked for of a directory is written down, not enforced. A claim that a pod uses is not deleted before that pod has ended, nor a volume that a claim has.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

inline constexpr std::string_view claim_finalizer = "kubernetes.io/pvc-protection";
inline constexpr std::string_view claim_path_annotation = "fairlead.dev/path";
inline constexpr std::string_view claim_reclaim_annotation = "fairlead.dev/reclaim";
inline constexpr std::string_view claim_pool_annotation = "fairlead.dev/pool";           // of a claim whose volume is in a pool: for placement
inline constexpr std::string_view claim_pool_label = "topology.fairlead.dev/pool";

// Claims by namespace and name, volumes by name alone.
class ClaimController final : public kube::Controller {
 public:
  ClaimController(kube::KubeApi& api, const Clock& clock, std::string volumes_folder) : api_(api), clock_(clock), folder_(std::move(volumes_folder)) {}
  std::string name() const override { return "claim"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { claims_ = &caches.of(kube::resources::claims); }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> bind(kube::Json claim);
  Result<kube::Next> release(const kube::Json& claim);
  Result<kube::Next> keep_volume(kube::Json volume);
  // The volume for the claim; null: none yet, and the claim was told why.
  Result<kube::Json> choose(const kube::Json& claim);
  Result<kube::Json> find_static(const kube::Json& claim);
  Result<kube::Json> make_volume(const kube::Json& claim, const std::string& reclaim);
  Result<void> tell(const kube::Json& claim, bool warning, const std::string& reason, const std::string& message);
  Result<bool> in_use(const kube::Json& claim);
  Result<void> drop_volume(const kube::Json& volume);
  // Relative to the folder; empty: not beneath it.
  std::string path_of(const kube::Json& volume) const;
  kube::KubeApi& api_;
  const Clock& clock_;
  std::string folder_;
  const kube::Reader* claims_ = nullptr;
};

}  // namespace fairlead::apiserver
