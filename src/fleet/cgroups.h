// SPDX-License-Identifier: Apache-2.0
// A node's cgroups: one folder of the same name in every hierarchy (v1, hybrid or v2). Made before its first process, removed after its last.
#pragma once
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace fairlead::fleet {

struct CgroupHierarchy {
  std::string mount;                     // "/sys/fs/cgroup/memory"
  bool v2 = false;
  std::vector<std::string> controllers;  // of v1: "memory", "name=systemd"
};
// The hierarchies mounted here, from /proc/self/mountinfo.
std::vector<CgroupHierarchy> parse_hierarchies(std::string_view mountinfo);
Result<std::vector<CgroupHierarchy>> cgroup_hierarchies();

// Makes `path` ("fairlead-ab12cd/worker-0") in every hierarchy; `memory` limits everything below it together.
Result<void> make_cgroup(const std::vector<CgroupHierarchy>& all, const std::string& path, Bytes memory);
bool cgroup_exists(const std::vector<CgroupHierarchy>& all, const std::string& path);
// Kills what is still in it or below, then removes it everywhere. Unavailable: something in it does not die within `limit`.
Result<void> remove_cgroup(const std::vector<CgroupHierarchy>& all, const std::string& path, std::chrono::milliseconds limit);

}  // namespace fairlead::fleet
