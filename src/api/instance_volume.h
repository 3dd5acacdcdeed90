// SPDX-License-Identifier: Apache-2.0
// The volume of an instance (InstanceStorageConfigs, EbsVolumeConfig): what a cluster asks of a Node's agent, and what that agent says has become of it. Both are annotations of the Node (docs/design/063). Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::api {

inline constexpr const char* kVolumeNote = "fairlead.dev/instance-volume";             // written by the cluster
inline constexpr const char* kVolumeStateNote = "fairlead.dev/instance-volume-state";  // written by the agent
inline constexpr const char* kVolumeTroubleNote = "fairlead.dev/instance-volume-trouble";  // written by who makes Volumes of instances: what the one of this node's waits for
inline constexpr const char* kInstanceVolume = "fairlead.dev/instance-volume";         // label of a Volume and its Attachment: the instance whose they are, after which both are called
inline constexpr const char* kVolumePath = "/opt/sagemaker";                           // where it is mounted, as in HyperPod
inline constexpr std::int64_t kMostVolumeGib = 16'384;

// Whose volume is to be there. No order at all changes nothing: what is there stays.
struct VolumeOrder {
  std::string instance;       // "i-..."; what another one has is in its way until that is released
  std::int64_t gib = 0;       // at least so large
  bool released = false;      // that instance has left: its volume is deleted
  bool pool = false;          // it is the Volume of a pool that is called as the instance, attached to the node; else a file of the machine's own disk
  friend bool operator==(const VolumeOrder&, const VolumeOrder&) = default;
};
std::string print_volume_order(const VolumeOrder& order);
Result<VolumeOrder> parse_volume_order(std::string_view text);  // Invalid: it is none; then nothing is done

struct VolumeState {
  std::string instance;       // whose volume is there; empty: nobody's
  std::int64_t gib = 0;       // 0: it is not mounted, or grows
  std::string of;             // instance of the order that this is the answer to; empty: there was none
  std::string failed;         // why what it ordered is not so; empty: it is
  bool pool = false;          // what is there is a Volume of a pool; an agent of before makes a file whatever is ordered
  friend bool operator==(const VolumeState&, const VolumeState&) = default;
};
std::string print_volume_state(const VolumeState& state);
VolumeState read_volume_state(const kube::Json& node);          // nothing that can be read: nobody's
// Whose volume is on the node still, other than of `instance` (empty: anybody's), or may be: its agent was to delete it, and has not told that it did. Empty: nobody's is known.
std::string volume_of_another(const kube::Json& node, std::string_view instance);

}  // namespace fairlead::api
