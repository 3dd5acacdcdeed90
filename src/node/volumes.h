// SPDX-License-Identifier: Apache-2.0
// A pod's volumes as folders and files on the node, and the mounts of its containers made from them.
#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "node/plan/claim.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

// One file of a configMap, secret, downwardAPI or projected volume.
struct VolumeFile {
  std::string path;  // relative, below the volume
  std::string bytes;
  std::uint32_t mode = 0644;
  std::int64_t owner = 0;  // user
  friend bool operator==(const VolumeFile&, const VolumeFile&) = default;
};

struct VolumeSources {
  EnvironmentSources objects;
  std::function<Result<kube::Json>(const std::string& name)> claim, volume;  // PersistentVolumeClaim, PersistentVolume. NotFound: there is none
  std::function<Result<kube::Json>()> node;
  std::function<Result<kube::Json>(const std::string& volume)> attachment;  // of a volume of csi.fairlead.dev to this node, as it is now. NotFound: it is not attached here
  // A token of the pod's service account for this audience ("": the API's own). The same one again until it is to be replaced.
  std::function<Result<std::string>(const std::string& audience, std::int64_t seconds)> token;
};

// The files of a volume that is made of API objects, sorted by path. Pure but for `sources`. Invalid and NotFound name what is missing.
Result<std::vector<VolumeFile>> volume_files(const kube::Json& pod, const kube::Json& volume, const VolumeSources& sources);
bool made_of_objects(const kube::Json& volume);

// Makes the folder's visible content equal to `files` in one step: the files live in a folder of their own behind the link `..data`, and swapping
// that link shows all of the new content or none. Returns whether anything changed. `group`: owner group of the files, -1 for root.
Result<bool> publish_files(const std::string& folder, const std::vector<VolumeFile>& files, std::int64_t group = -1);

class Volumes {
 public:
  Volumes(std::string pods_dir, std::string volumes_dir) : pods_dir_(std::move(pods_dir)), volumes_dir_(std::move(volumes_dir)) {}
  // Makes or refreshes all volumes of the pod. Repeatable. Unavailable, NotFound: something is missing yet, the message names it.
  Result<void> prepare(const kube::Json& pod, const VolumeSources& sources) const;
  // Rewrites the volumes that are made of API objects if those changed.
  Result<void> refresh(const kube::Json& pod, const VolumeSources& sources) const;
  // Volumes whose device has grown: what is on them takes it up.
  Result<void> grow(const kube::Json& pod);
  // What uses more of the disk than it may, as a sentence; empty: nothing does. An emptyDir by its sizeLimit; a container (its layer and its logs) by its limit
  // of ephemeral-storage; all together by the sum of those, if every container has one. Walks the folders that have a limit. `logs`: the pod's folder.
  std::string over_limit(const kube::Json& pod, const std::string& logs) const;
  // The container's volumeMounts. Binds subPath targets, so that what a user's path means cannot change between check and use.
  // `variables`: the container's environment, for subPathExpr.
  Result<std::vector<MountSpec>> mounts(const kube::Json& pod, const kube::Json& container, const VolumeSources& sources,
                                        const std::vector<std::pair<std::string, std::string>>& variables = {}) const;

  // The container's volumeDevices, as they are now: for `owner` and `group`, numbered, and of volumes that are attached to this node. Unavailable: not yet, or not known.
  Result<std::vector<Device>> devices(const kube::Json& pod, const kube::Json& container, const VolumeSources& sources, std::int64_t owner, std::int64_t group) const;

 private:
  std::string folder(const std::string& uid, const std::string& volume) const { return pods_dir_ + "/" + uid + "/volumes/" + volume; }
  Result<void> prepare_one(const kube::Json& pod, const kube::Json& volume, const VolumeSources& sources) const;
  Result<ClaimPlace> place_of(const kube::Json& reference, const VolumeSources& sources) const;
  // A directory of the site's own volumes folder.
  bool is_own(const std::string& path) const { return path.starts_with(volumes_dir_ + "/"); }
  // Where the volume's content is on the node.
  Result<std::string> source_of(const kube::Json& pod, const kube::Json& volume, const VolumeSources& sources) const;
  std::string pods_dir_, volumes_dir_;
  std::mutex mutex_;
  std::map<std::string, std::int64_t> sizes_;  // of devices, by where they are mounted
};

// The files of /etc that a node writes for its pods.
struct EtcFiles {
  std::string hosts, hostname, resolv;
};
struct DnsConfig {
  std::string server;       // the responder's address
  std::string domain;       // "cluster.local"
  std::string node_resolv;  // text of the node's own resolv.conf
};
// With setHostnameAsFQDN and a subdomain the whole name. At most 63 characters of the first part.
std::string pod_hostname(const kube::Json& pod, const std::string& domain);
// `pod_ip`: several are separated by commas.
EtcFiles make_etc_files(const kube::Json& pod, const std::string& pod_ip, const std::string& node_name, const DnsConfig& dns);

}  // namespace fairlead::node
