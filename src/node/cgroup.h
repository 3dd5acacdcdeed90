// SPDX-License-Identifier: Apache-2.0
// The node's part of the cgroup tree, for version 1 (also in hybrid set-ups) and version 2.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

enum class CgroupVersion { V1, V2 };

// {file in the group's folder, content}, by controller for version 1. Pure.
struct CgroupWrite {
  std::string controller;  // "" for version 2
  std::string file, value;
  friend bool operator==(const CgroupWrite&, const CgroupWrite&) = default;
};
std::vector<CgroupWrite> cgroup_writes(CgroupVersion version, const Limits& limits);

class CgroupTree {
 public:
  // `mount`: /sys/fs/cgroup, or a folder with a mounted hierarchy in tests.
  static Result<CgroupTree> open(std::string mount = "/sys/fs/cgroup");
  CgroupVersion version() const { return version_; }
  // Makes the group in every controller with these limits; repeatable. `path` begins with a slash. With version 2 the controllers are handed down on
  // the way.
  Result<void> make(const std::string& path, const Limits& limits) const;
  // Moves a process into the group, in every controller.
  Result<void> enter(const std::string& path, pid_t pid) const;
  // Kills whatever is in the group and below, then removes it. Unavailable: processes are still dying, try again.
  Result<void> remove(const std::string& path) const;
  // How many processes of the group the kernel killed for lack of memory; 0 also when there is no such group.
  std::int64_t oom_kills(const std::string& path) const;
  struct Usage {
    std::int64_t memory_bytes = 0, cpu_nanoseconds = 0, pids = 0;
  };
  Usage usage(const std::string& path) const;

 private:
  CgroupTree(std::string mount, CgroupVersion version, std::vector<std::string> controllers)
      : mount_(std::move(mount)), version_(version), controllers_(std::move(controllers)) {}
  std::vector<std::string> folders(const std::string& path) const;
  std::string file(const std::string& controller, const std::string& path, const std::string& name) const;
  std::string mount_;
  CgroupVersion version_;
  std::vector<std::string> controllers_;  // folders of version 1
};

}  // namespace fairlead::node
