// SPDX-License-Identifier: Apache-2.0
// Makes objects so in the pool of one daemon, and tells of it (plan/decide.h). One controller for each kind; objects of other pools are not looked at.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/controller.h"
#include "volumes/plan/decide.h"
#include "volumes/volume_pool.h"

namespace fairlead::volumes {

struct PoolSite {
  kube::KubeApi& api;
  const Clock& clock;
  VolumePool& pool;
  std::string name;                                 // of the VolumePool
  std::string node_selector{};                      // for a VolumePool that is made now
  // Names of devices as links (device_links.h); none: they are not made.
  std::function<Result<void>(const std::string& name, const std::string& volume, const std::string& device)> link{}, unlink{};
  HostBoard* hosts = nullptr;                       // further machines, of a pool in Ceph; none: there are none
  std::function<Result<void>(const std::string& volume)> settle{};  // of one that is attached for writing: replays the log of the file system on it, if there is one; none: it is not done
};
// Volumes, Snapshots, Attachments, the VolumePool itself, and with `hosts` what is asked of its VolumeHosts.
std::vector<std::unique_ptr<kube::Controller>> pool_controllers(const PoolSite& site);

// All that they ask of an API, whichever pool it is, and keys of encrypted volumes.
kube::Access pool_access();

}  // namespace fairlead::volumes
