// SPDX-License-Identifier: Apache-2.0
// What is next for a claim of a class of csi.fairlead.dev, and for a PersistentVolume whose claim has gone. Pure; docs/design/072-claims-on-volumes.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/volume.h"
#include "base/clock.h"

namespace fairlead::storage {

struct ClaimNext {
  enum class Do { Nothing, MakeVolume, DropVolume, Settle, MakePersistent, GrowVolume, GrowPersistent, TellModify, ModifyVolume, ModifyPersistent };
  Do what = Do::Nothing;
  kube::Json object;              // of MakeVolume and MakePersistent: to be created; of Settle, Grow* and Modify*: to be updated; of TellModify: the claim, whose status is; of DropVolume: that failed and holds nothing
  std::string reason, message;    // of an event at the claim; empty: nothing to tell
  bool look_again = false;        // what it waits for is no change of the claim's
  friend bool operator==(const ClaimNext&, const ClaimNext&) = default;
};
struct ClaimSeen {
  kube::Json claim, storage_class;
  std::vector<api::PoolFacts> pools;
  std::optional<kube::Json> volume, persistent;  // pvc-UID, or what the claim is bound to
  std::optional<kube::Json> attributes{};                      // the VolumeAttributesClass that the claim names
  std::optional<kube::Json> source_claim{}, source{};  // of source_of(claim): the claim; the Snapshot, or the Volume behind the claim
};
// What a claim's volume is to begin with (spec.dataSourceRef, else spec.dataSource).
struct ClaimSource {
  enum class Kind { None, Claim, Snapshot, Unknown };
  Kind kind = Kind::None;
  std::string name;
};
ClaimSource source_of(const kube::Json& claim);
// Claims are of namespaces, Snapshots of the cluster: one is for the claims of that namespace whose claim's volume it was taken of (its tags say so).
bool may_have(const kube::Json& claim, const kube::Json& snapshot);
// On a Volume until its PersistentVolume is about to be made: the claim's uid. Who goes before takes it with him; afterwards the PersistentVolume says what becomes of it.
inline constexpr const char* kProvisioning = "fairlead.dev/provisioning";
// A Volume that is being made for a claim which has gone.
bool is_left_over(const kube::Json& volume, const std::optional<kube::Json>& claim, bool has_persistent);
bool is_of_ours(const kube::Json& storage_class);
std::string volume_name_for(const kube::Json& claim);  // "pvc-UID"
ClaimNext next_for_claim(const ClaimSeen& seen, Instant now);

// A PersistentVolume of the driver, and the Volume behind it.
struct PersistentNext {
  enum class Do { Nothing, DeleteVolume, DropPersistent };
  Do what = Do::Nothing;
};
PersistentNext next_for_persistent(const kube::Json& persistent, const std::optional<kube::Json>& volume);

}  // namespace fairlead::storage
