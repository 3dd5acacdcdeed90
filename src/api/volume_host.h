// SPDX-License-Identifier: Apache-2.0
// VolumeHost (fairlead.dev/v1alpha1): a further machine on which volumes of a pool in Ceph are shown. Its spec is what the pool's daemon asks, its status what the machine tells. Pure; docs/design/077-volumes-on-other-machines.md.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kVolumeHosts{"fairlead.dev", "v1alpha1", "volumehosts", "VolumeHost", false};
kube::Json volume_host_crd();
std::string volume_host_name(std::string_view pool, std::string_view host);  // "POOL.HOST"
inline constexpr const char* kForceDetach = "fairlead.dev/force-detach";      // "true" on an Attachment that is deleted: it ends although its machine does not answer, which Ceph shuts out before
inline constexpr std::chrono::seconds kHostSilence{30};                       // after which a machine counts as silent

// What is asked of one attachment of a volume. Sizes in bytes, limits as in api/volume.h.
struct AskedVolume {
  std::string id;
  std::int64_t generation = 0;      // of the attachment by which it was first shown there
  bool show = true;                 // false: it is to go
  bool read_only = false, encrypted = false;
  std::int64_t size = 0, iops = 0, throughput = 0;
  std::vector<std::string> names{};  // of its device (spec.deviceName of Attachments), and no others; sorted
  friend bool operator==(const AskedVolume&, const AskedVolume&) = default;
};
// A name of a device; with a message it is asked for, and is not this volume's.
struct ToldName {
  std::string name, message{};
  friend bool operator==(const ToldName&, const ToldName&) = default;
};
// What there is of one.
struct ToldVolume {
  std::string id;
  std::int64_t generation = 0;
  bool heard = false;               // it is what was asked (`show`) that this is the answer to; false: nothing was asked of it
  bool show = true;
  std::string device;               // empty: none
  std::int64_t device_size = 0;
  std::optional<bool> used;
  bool engine = false, failed = false;
  std::int64_t engine_size = 0, iops = 0, throughput = 0, reads = 0, writes = 0, read_bytes = 0, written_bytes = 0, waited_ns = 0;
  std::string message;              // why it is not as it was asked
  std::vector<ToldName> names{};    // that lead to it, and those that do not and were asked for
  bool there() const { return engine || !device.empty() || !names.empty(); }
  friend bool operator==(const ToldVolume&, const ToldVolume&) = default;
};
struct VolumeHostFacts {
  std::string name, pool, host;     // name: of the object
  std::string node_selector;        // of the nodes there, as kubectl -l takes them
  std::string pool_id;              // by which the daemon asks
  std::string id;                   // of the machine, which lasts as long as its folder
  std::string told_pool_id;         // of which it tells
  std::string heard;                // the machine's last word, as it is written
  std::vector<AskedVolume> asked;
  std::vector<ToldVolume> told;
};
// What cannot be read is left out: a name that is none (of a device too), a generation that is not 1 at least, a second one of the same.
VolumeHostFacts read_volume_host(const kube::Json& object);
kube::Json new_volume_host(const std::string& pool, const std::string& host, const std::string& node_selector);
kube::Json to_json(const AskedVolume& asked);
kube::Json to_json(const ToldVolume& told);

}  // namespace fairlead::api
