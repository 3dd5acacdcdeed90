// SPDX-License-Identifier: Apache-2.0
#include "node/cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::node {
namespace {

Result<void> write_value(const std::string& path, const std::string& value) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + path);
  if (::write(fd.get(), value.data(), value.size()) < 0) return fail_errno(errno, fmt::format("write \"{}\" to {}", value, path));
  return {};
}

std::int64_t number_in(const std::string& path, std::string_view key = {}) {
  const auto text = read_file(path, 64_KiB);
  if (!text) return 0;
  if (key.empty()) return std::strtoll(text->c_str(), nullptr, 10);
  for (const std::string& line : split(*text, '\n'))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ') return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  return 0;
}

bool is_folder(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Depth first: a cgroup can be removed only when it has no children.
Result<void> remove_group(const std::string& folder) {
  auto names = list_dir(folder);
  if (!names) {
    if (names.error().code == Code::NotFound) return {};
    return std::unexpected(std::move(names.error()));
  }
  for (const std::string& name : *names)
    if (is_folder(folder + "/" + name))
      if (auto removed = remove_group(folder + "/" + name); !removed) return removed;
  if (const auto text = read_file(folder + "/cgroup.procs"))
    for (const std::string& line : split(*text, '\n'))
      if (const auto pid = std::strtol(line.c_str(), nullptr, 10); pid > 1) ::kill(static_cast<pid_t>(pid), SIGKILL);
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return {};
  return fail_errno(errno, "remove " + folder);
}

}  // namespace

std::vector<CgroupWrite> cgroup_writes(CgroupVersion version, const Limits& limits) {
  std::vector<CgroupWrite> out;
  constexpr std::int64_t period = 100'000;
  if (version == CgroupVersion::V1) {
    if (limits.cpu_shares) out.push_back({"cpu", "cpu.shares", std::to_string(*limits.cpu_shares)});
    if (limits.cpu) {
      out.push_back({"cpu", "cpu.cfs_period_us", std::to_string(period)});
      out.push_back({"cpu", "cpu.cfs_quota_us", std::to_string(std::max<std::int64_t>(limits.cpu->value * period / 1000, 1000))});
    }
    if (limits.memory) out.push_back({"memory", "memory.limit_in_bytes", std::to_string(limits.memory->value)});
    if (limits.pids) out.push_back({"pids", "pids.max", std::to_string(*limits.pids)});
    return out;
  }
  // The weight that the kernel's documentation and runtimes derive from shares: 2..262144 becomes 1..10000.
  if (limits.cpu_shares)
    out.push_back({"", "cpu.weight", std::to_string(1 + (std::clamp<std::int64_t>(*limits.cpu_shares, 2, 262144) - 2) * 9999 / 262142)});
  if (limits.cpu) out.push_back({"", "cpu.max", fmt::format("{} {}", std::max<std::int64_t>(limits.cpu->value * period / 1000, 1000), period)});
  if (limits.memory) out.push_back({"", "memory.max", std::to_string(limits.memory->value)});
  if (limits.pids) out.push_back({"", "pids.max", std::to_string(*limits.pids)});
  return out;
}

Result<CgroupTree> CgroupTree::open(std::string mount) {
  struct statfs info{};
  if (::statfs(mount.c_str(), &info) != 0) return fail_errno(errno, "look at " + mount);
  if (info.f_type == CGROUP2_SUPER_MAGIC) return CgroupTree(std::move(mount), CgroupVersion::V2, {});
  auto names = list_dir(mount);
  if (!names) return std::unexpected(std::move(names.error()));
  std::vector<std::string> controllers;
  for (const std::string& name : *names) {
    const std::string folder = mount + "/" + name;
    if (is_folder(folder) && ::statfs(folder.c_str(), &info) == 0 && info.f_type == CGROUP_SUPER_MAGIC) controllers.push_back(name);
  }
  if (controllers.empty()) return fail(Code::Unsupported, "no cgroup hierarchy is mounted in " + mount);
  return CgroupTree(std::move(mount), CgroupVersion::V1, std::move(controllers));
}

std::vector<std::string> CgroupTree::folders(const std::string& path) const {
  if (version_ == CgroupVersion::V2) return {mount_ + path};
  std::vector<std::string> out;
  for (const std::string& controller : controllers_) out.push_back(mount_ + "/" + controller + path);
  return out;
}

std::string CgroupTree::file(const std::string& controller, const std::string& path, const std::string& name) const {
  return version_ == CgroupVersion::V2 ? mount_ + path + "/" + name : mount_ + "/" + controller + path + "/" + name;
}

Result<void> CgroupTree::make(const std::string& path, const Limits& limits) const {
  if (path.size() < 2 || path[0] != '/' || path.find("/..") != std::string::npos) return fail(Code::Invalid, "not the path of a cgroup: " + path);
  for (const std::string& folder : folders(path)) {
    const std::string root = folder.substr(0, folder.size() - path.size());
    for (std::size_t at = 0; at != std::string::npos;) {
      at = path.find('/', at + 1);
      const std::string part = root + path.substr(0, at);
      const std::string parent = part.substr(0, part.find_last_of('/'));
      if (version_ == CgroupVersion::V2) {
        // What the parent may hand down. A controller that it cannot (processes in it, threaded groups) stays unlimited; writing its file then fails
        // below.
        if (const auto offered = read_file(parent + "/cgroup.controllers", 4_KiB))
          for (const std::string& controller : split(trim(*offered), ' '))
            if (!controller.empty()) (void)write_value(parent + "/cgroup.subtree_control", "+" + controller);
      }
      const bool made = ::mkdir(part.c_str(), 0755) == 0;
      if (!made && errno != EEXIST) return fail_errno(errno, "make cgroup " + part);
      // A new cpuset of version 1 is empty and takes no process before it has CPUs and memory nodes.
      if (made && version_ == CgroupVersion::V1 && root.ends_with("/cpuset"))
        for (const char* name : {"/cpuset.cpus", "/cpuset.mems"})
          if (const auto value = read_file(parent + name, 64_KiB)) (void)write_value(part + name, std::string(trim(*value)));
    }
  }
  for (const CgroupWrite& write : cgroup_writes(version_, limits)) {
    if (version_ == CgroupVersion::V1 && std::find(controllers_.begin(), controllers_.end(), write.controller) == controllers_.end()) continue;
    if (auto written = write_value(file(write.controller, path, write.file), write.value); !written) return written;
  }
  return {};
}

Result<void> CgroupTree::enter(const std::string& path, pid_t pid) const {
  for (const std::string& folder : folders(path))
    if (auto written = write_value(folder + "/cgroup.procs", std::to_string(pid)); !written) return written;
  return {};
}

Result<void> CgroupTree::remove(const std::string& path) const {
  if (path.size() < 2) return fail(Code::Invalid, "not the path of a cgroup: " + path);
  for (const std::string& folder : folders(path))
    if (auto removed = remove_group(folder); !removed) return removed;
  // The folders that crun makes where the version 2 mount of a hybrid set-up was taken away.
  if (version_ == CgroupVersion::V1) (void)remove_group(mount_ + "/unified" + path);
  return {};
}

std::int64_t CgroupTree::oom_kills(const std::string& path) const {
  return version_ == CgroupVersion::V1 ? number_in(file("memory", path, "memory.oom_control"), "oom_kill")
                                       : number_in(file("", path, "memory.events"), "oom_kill");
}

CgroupTree::Usage CgroupTree::usage(const std::string& path) const {
  if (version_ == CgroupVersion::V1)
    return {.memory_bytes = number_in(file("memory", path, "memory.usage_in_bytes")),
            .cpu_nanoseconds = number_in(file("cpuacct", path, "cpuacct.usage")),
            .pids = number_in(file("pids", path, "pids.current"))};
  return {.memory_bytes = number_in(file("", path, "memory.current")),
          .cpu_nanoseconds = number_in(file("", path, "cpu.stat"), "usage_usec") * 1000,
          .pids = number_in(file("", path, "pids.current"))};
}

}  // namespace fairlead::node
