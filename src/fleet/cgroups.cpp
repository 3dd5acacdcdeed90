// SPDX-License-Identifier: Apache-2.0
#include "fleet/cgroups.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"

namespace fairlead::fleet {

std::vector<CgroupHierarchy> parse_hierarchies(std::string_view mountinfo) {
  std::vector<CgroupHierarchy> all;
  for (const auto& line : split(mountinfo, '\n')) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4) continue;
    const std::string& type = *(dash + 1);
    if (type != "cgroup" && type != "cgroup2") continue;
    if (std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.mount == fields[4]; })) continue;
    CgroupHierarchy hierarchy{.mount = fields[4], .v2 = type == "cgroup2", .controllers = {}};
    if (!hierarchy.v2)
      for (const auto& option : split(*(dash + 3), ','))
        if (option != "rw" && option != "ro") hierarchy.controllers.push_back(option);
    all.push_back(std::move(hierarchy));
  }
  return all;
}

Result<std::vector<CgroupHierarchy>> cgroup_hierarchies() {
  auto mounts = read_file("/proc/self/mountinfo");
  if (!mounts) return std::unexpected(std::move(mounts.error()));
  auto all = parse_hierarchies(*mounts);
  if (all.empty()) return fail(Code::Unsupported, "no cgroups are mounted on this machine (mount cgroup2 at /sys/fs/cgroup)");
  return all;
}

namespace {

// cgroupfs files take one write(2); no temporary file, no rename.
Result<void> write_control(const std::string& path, const std::string& value) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + path);
  if (::write(fd.get(), value.data(), value.size()) < 0) return fail_errno(errno, fmt::format("write {} to {}", value, path));
  return {};
}

std::string read_control(const std::string& path) {
  auto text = read_file(path);
  return text ? std::string(trim(*text)) : "";
}

bool controls(const CgroupHierarchy& hierarchy, std::string_view controller) {
  return std::find(hierarchy.controllers.begin(), hierarchy.controllers.end(), controller) != hierarchy.controllers.end();
}

// The folder and those above it, from the hierarchy's root down.
Result<void> make_levels(const CgroupHierarchy& hierarchy, const std::string& path) {
  std::string at = hierarchy.mount;
  for (const auto& part : split(path, '/')) {
    if (hierarchy.v2) {
      // What a parent does not hand down, its children cannot limit.
      for (const auto& controller : split(read_control(at + "/cgroup.controllers"), ' '))
        if (!controller.empty()) (void)write_control(at + "/cgroup.subtree_control", "+" + controller);
    }
    const std::string parent = at;
    at += "/" + part;
    if (::mkdir(at.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make the cgroup " + at);
    if (controls(hierarchy, "cpuset"))  // a v1 cpuset takes no process before it has cores and memory
      for (const char* file : {"/cpuset.cpus", "/cpuset.mems"})
        if (read_control(at + file).empty())
          if (auto done = write_control(at + file, read_control(parent + file)); !done) return done;
  }
  return {};
}

void collect_below(const std::string& dir, std::vector<std::string>& deepest_first) {
  auto names = list_dir(dir);
  if (!names) return;
  for (const auto& name : *names) {
    struct stat about {};
    const std::string path = dir + "/" + name;
    if (::lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode)) collect_below(path, deepest_first);
  }
  deepest_first.push_back(dir);
}

// Kills the members of one cgroup. The pidfd is taken before membership is checked again, so a reused number is never hit.
void kill_members(const std::string& dir) {
  if (exists(dir + "/freezer.state")) (void)write_control(dir + "/freezer.state", "THAWED");  // the frozen do not die
  for (const auto& line : split(read_control(dir + "/cgroup.procs"), '\n')) {
    const pid_t pid = static_cast<pid_t>(std::atoi(line.c_str()));
    if (pid <= 1 || pid == ::getpid()) continue;
    Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!pidfd) continue;
    const auto members = split(read_control(dir + "/cgroup.procs"), '\n');
    if (std::find(members.begin(), members.end(), line) == members.end()) continue;
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
  }
}

}  // namespace

Result<void> make_cgroup(const std::vector<CgroupHierarchy>& all, const std::string& path, Bytes memory) {
  for (const auto& hierarchy : all) {
    if (auto done = make_levels(hierarchy, path); !done) return done;
    const std::string dir = hierarchy.mount + "/" + path;
    const std::string limit = hierarchy.v2 ? dir + "/memory.max" : dir + "/memory.limit_in_bytes";
    if (memory.value > 0 && (hierarchy.v2 ? exists(limit) : controls(hierarchy, "memory")))
      if (auto done = write_control(limit, std::to_string(memory.value)); !done) return pass(std::move(done.error()), "limit the memory of " + path);
  }
  return {};
}

bool cgroup_exists(const std::vector<CgroupHierarchy>& all, const std::string& path) {
  return std::any_of(all.begin(), all.end(), [&](const auto& hierarchy) { return exists(hierarchy.mount + "/" + path); });
}

Result<void> remove_cgroup(const std::vector<CgroupHierarchy>& all, const std::string& path, std::chrono::milliseconds limit) {
  constexpr auto kPause = std::chrono::milliseconds(10);  // the kernel lets go of a dying member a little after its parent hears of it, and tells nobody
  for (auto waited = std::chrono::milliseconds(0);; waited += kPause) {
    std::string busy;
    for (const auto& hierarchy : all) {
      std::vector<std::string> dirs;
      if (exists(hierarchy.mount + "/" + path)) collect_below(hierarchy.mount + "/" + path, dirs);
      for (const auto& dir : dirs) {
        if (::rmdir(dir.c_str()) == 0 || errno == ENOENT) continue;
        busy = dir;
        kill_members(dir);
      }
    }
    if (busy.empty()) return {};
    if (waited >= limit) return fail(Code::Unavailable, fmt::format("the cgroup {} still has members", busy));
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace fairlead::fleet
