// SPDX-License-Identifier: Apache-2.0
// Volumes, Snapshots, Attachments and VolumePools (fairlead.dev/v1alpha1) as values: what is asked of a pool's daemon, and what it tells of it. Pure; docs/design/070-volume-objects.md.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kVolumePools{"fairlead.dev", "v1alpha1", "volumepools", "VolumePool", false};
inline const kube::Resource kVolumes{"fairlead.dev", "v1alpha1", "volumes", "Volume", false};
inline const kube::Resource kSnapshots{"fairlead.dev", "v1alpha1", "snapshots", "Snapshot", false};
inline const kube::Resource kAttachments{"fairlead.dev", "v1alpha1", "attachments", "Attachment", false};
std::vector<kube::Json> volume_crds();

inline constexpr const char* kVolumeDriver = "csi.fairlead.dev";                 // of CSI: of PersistentVolumes and StorageClasses
inline constexpr const char* kVolumeFinalizer = "fairlead.dev/volume";           // of the three, as long as a pool may hold something of it
inline constexpr const char* kAdoptNote = "fairlead.dev/adopt";                  // "true" on a new Volume or Snapshot: what its pool has under this name without an object is its own
inline constexpr const char* kPoolLabel = "topology.fairlead.dev/pool";          // of a Node: the first pool that it reaches
inline constexpr const char* kFurtherPool = "pool.fairlead.dev/";               // and a pool's name, of a Node: "true": it reaches that one as well (docs/design/079)
inline constexpr const char* kRequestedName = "fairlead.dev/requested-name";     // what a client called it, where that is no name of an object
inline constexpr const char* kForPods = "fairlead.dev/for-pods";                 // label of an Attachment that follows pods and is ended with them: "true" where the embedded engine made it, "csi" where the CSI driver did
inline constexpr const char* kForPod = "fairlead.dev/for-pod";                   // annotation of an Attachment: uid of the pod that has the volume alone (ReadWriteOncePod)
inline constexpr const char* kVolumeKeySpace = "fairlead-volume-keys";           // namespace of the Secrets that open encrypted volumes: data vN is version N, 32 bytes, and the highest closes
inline constexpr const char* kServiceKey = "service";                            // by which volumes are encrypted that name none: made when it is first asked for; others are made by people
inline constexpr const char* kLocalFast = "local-fast";                          // a raw file on XFS with reflink, shown by the kernel's loop device
inline constexpr const char* kLocalManaged = "local-managed";                    // the same file behind an engine of the volume's own (src/disk), which limits its I/O
inline constexpr const char* kDistributed = "distributed";                       // an image in a Ceph pool, behind an engine of its own; of pools there, which have no other class
inline constexpr const char* kVolumeClasses = "local-fast, local-managed and distributed";  // in words
inline constexpr std::int64_t kLeastVolume = std::int64_t{1} << 30, kMostVolume = std::int64_t{64} << 40;  // bytes; mkfs.xfs refuses less than 300 MB

struct VolumeSpec {
  std::string pool, klass = kLocalFast;
  std::int64_t size = 0;                          // bytes, whole MiB
  std::string from_volume, from_snapshot;         // one at most: whose content it begins with
  std::int64_t iops = 0, throughput = 0;          // operations and bytes a second, of local-managed and distributed; 0: no limit
  bool encrypted = false;                         // of local-managed and distributed
  std::string key;                                // by which its own key is wrapped; empty: the service's
  friend bool operator==(const VolumeSpec&, const VolumeSpec&) = default;
};
// Invalid: names the field.
Result<VolumeSpec> read_volume(const kube::Json& object);
// "10Gi", "1.5Ti", bytes. Rounded up to whole MiB. Invalid: none, or out of range.
Result<std::int64_t> parse_volume_size(const kube::Json& value);
// Operations a second: none, or kLeastIops at least. Invalid.
Result<std::int64_t> parse_iops(const kube::Json& value);
// Bytes a second from MiB a second, as EBS counts (125), or a quantity with its unit ("125Mi"): none, or kLeastThroughput at least. Invalid.
Result<std::int64_t> parse_throughput(const kube::Json& value);
// What can change of a volume: of a VolumeAttributesClass, and of CSI's mutable parameters. Of class `klass`. iops, throughput (MiB a second) and tagSpecification_N: "KEY=VALUE". Invalid: names the parameter.
struct VolumeChange {
  std::optional<std::int64_t> iops, throughput;   // throughput: bytes a second; nothing: it stays as it is
  std::map<std::string, std::string> tags;        // beside those that are there
  bool empty() const { return !iops && !throughput && tags.empty(); }
};
Result<VolumeChange> read_volume_change(const std::map<std::string, std::string>& parameters, std::string_view klass);
void apply(const VolumeChange& change, kube::Json& volume);
inline constexpr std::int64_t kLeastIops = 100, kMostIops = 10'000'000, kLeastThroughput = 1 << 20, kMostThroughput = std::int64_t{1} << 40;  // less would let the kernel take a waiting request for a hung one
bool is_volume_class(std::string_view name);
// For who names none: what pools with these classes have, by an engine where limits or encryption are asked for.
std::string default_class(const std::vector<std::string>& classes, bool engine);
bool limits_in_force(const kube::Json& volume);  // those that its spec asks for, by what its pool says
std::string print_volume_size(std::int64_t bytes);  // "10Gi": as it is written into a spec

// Objects to be created, with their finalizer.
kube::Json new_volume(const std::string& name, const VolumeSpec& spec);
bool is_read_only(const kube::Json& persistent);  // a PersistentVolume of the driver: it says so, or all that it allows is ReadOnlyMany
kube::Json new_snapshot(const std::string& name, const std::string& volume, const std::string& pool);
kube::Json new_attachment(const std::string& volume, const std::string& pool, const std::string& node, bool read_only, bool replay_log = false);
std::string attachment_name(std::string_view volume, std::string_view node);  // one for each two

bool is_device_name(std::string_view name);       // /dev/xvda to /dev/xvdz, /dev/sda to /dev/sdz
bool is_volume_name(std::string_view name);       // 1 to 63 of a-z 0-9 -, beginning and ending with none of -
// Of the pool on a node of its own: the node's name in lower case, with - where names of volumes have no . or _.
std::string pool_name_for(std::string_view node);
// A name for what a client calls by any text: itself where that is a name, else `prefix` and 17 hexadecimal digits of its hash.
std::string name_for(std::string_view requested, std::string_view prefix);
// As EC2 calls it: its name where that is such an id, else one of its name's hash. prefix: "vol-", "snap-".
std::string ec2_id(std::string_view name, std::string_view prefix);

struct PoolFacts {
  std::string name, id;
  std::int64_t size = 0, promised = 0, limit = 0, free = 0;  // bytes; limit: that may be promised in all
  std::vector<std::string> classes, nodes;                   // nodes: that reach it, sorted
  std::optional<Instant> heard;                              // its daemon's last word
  std::int64_t left() const { return limit > promised ? limit - promised : 0; }
  bool reaches(std::string_view node) const;
};
PoolFacts read_pool(const kube::Json& object);
inline constexpr std::chrono::seconds kPoolSilence{90};      // after which a pool counts as silent

struct PoolWish {
  std::int64_t size = 0;
  std::string klass = kLocalFast;
  std::vector<std::string> pools;                            // empty: any
  std::string node;                                          // that is to reach it; empty: any
};
// required of a PersistentVolume's nodeAffinity: nodes that reach the pool, as their first or a further one.
kube::Json reaches_pool(const std::string& pool);
// The one with the most left, then the first by name. Exhausted, NotFound, Unavailable: says why none will do; Unavailable if one that is silent might.
Result<std::string> choose_pool(const std::vector<PoolFacts>& pools, const PoolWish& wish, Instant now);
// The classes that are meant where none is named, the first that pools have: a machine's own disk before Ceph. engine: limits or encryption are asked for.
std::vector<std::string> meant_classes(bool engine);
// Of a wish whose class may be empty. The next class is looked for only where no pool has the one before.
struct PoolAndClass {
  std::string pool, klass;
};
Result<PoolAndClass> choose_pool_and_class(const std::vector<PoolFacts>& pools, PoolWish wish, bool engine, Instant now);

}  // namespace fairlead::api
