// SPDX-License-Identifier: Apache-2.0
#include "fleet/teardown.h"

#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "fleet/cgroups.h"
#include "fleet/fabric.h"
#include "fleet/netns.h"
#include "fleet/processes.h"
#include "fleet/site.h"

namespace fairlead::fleet {

namespace {

constexpr auto kLimit = std::chrono::milliseconds(15'000);
constexpr auto kServerGrace = std::chrono::milliseconds(8'000);

// Remembers the first failure and goes on.
class FirstFailure {
 public:
  void note(Result<void> outcome, const std::string& doing) {
    if (!outcome && !first_) first_ = std::move(outcome.error()).in(doing);
  }
  Result<void> result() && {
    if (first_) return std::unexpected(std::move(*first_));
    return {};
  }

 private:
  std::optional<Error> first_;
};

Result<void> unmount_below(const std::string& dir) {
  auto mounts = read_file("/proc/self/mountinfo");
  if (!mounts) return std::unexpected(std::move(mounts.error()));
  for (const auto& point : mounts_below(*mounts, dir))
    if (::umount2(point.c_str(), MNT_DETACH) != 0 && errno != EINVAL && errno != ENOENT) return fail_errno(errno, "unmount " + point);
  return {};
}

}  // namespace

Result<void> teardown_site(const std::string& state_dir, const TeardownOptions& options, const std::function<void(const std::string&)>& tell) {
  const Site site = site_of(state_dir);
  if (site.dir == "/" || site.dir.empty()) return fail(Code::Invalid, "the root folder is no state folder");
  if (exists(site.dir) && !exists(site.dir + "/run") && !exists(site.dir + "/pki") && !exists(site.dir + "/nodes") && !exists(site.dir + "/images"))
    if (auto names = list_dir(site.dir); names && !names->empty())
      return fail(Code::Invalid, fmt::format("{} does not look like a state folder of Fairlead; nothing was removed", site.dir));
  const auto say = [&](const std::string& what) {
    if (tell) tell(what);
  };
  FirstFailure failures;

  // The server first: it would start again what we stop.
  for (const auto& process : find_site_processes(site))
    if (process.role == Role::Server) {
      failures.note(stop_process(process.identity, kServerGrace, kLimit), "stop the server");
      say(fmt::format("stopped fairlead-server (process {})", process.identity.pid));
    }
  // Twice: a start that was under way when the server ended may show only now.
  for (int round = 0; round < 2; ++round)
    for (const auto& process : find_site_processes(site)) {
      failures.note(kill_process(process.identity, kLimit), "stop node " + process.node);
      if (round == 0) say(fmt::format("stopped node {}", process.node));
    }
  if (auto hierarchies = cgroup_hierarchies()) {
    const bool there = cgroup_exists(*hierarchies, site.cgroup());
    failures.note(remove_cgroup(*hierarchies, site.cgroup(), kLimit), "remove cgroups");
    if (there) say("removed cgroups /" + site.cgroup());
  }
  if (is_pinned(site.fabric_pin()) || has_link(site.host_link())) {
    failures.note(Fabric(site, Ranges{}).tear_down(), "remove the network");
    say("removed the network " + site.host_link());
  }
  if (options.before_files)
    if (auto done = options.before_files(); !done) {
      failures.note(std::move(done), "take the volumes away");
      return std::move(failures).result();
    }
  failures.note(unmount_below(site.dir), "unmount what is below " + site.dir);

  if (exists(site.dir)) {
    auto names = list_dir(site.dir);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const auto& name : *names) {
      // A pool of volumes that is there still is not this site's: its own has gone by now.
      if (name == "pool" && exists(site.dir + "/pool/pool.id")) continue;
      if (name == "images" && options.keep_images) continue;
      if (options.keep_data && (name == "volumes" || name.starts_with("store.db") || name == "pki" || name == "pool.img")) continue;
      failures.note(remove_tree(site.dir + "/" + name), "remove " + site.dir + "/" + name);
    }
    if (::rmdir(site.dir.c_str()) == 0)
      say("removed " + site.dir);
    else
      say("kept " + site.dir + (options.keep_data ? " (images and data)" : "/images"));
  }
  return std::move(failures).result();
}

std::vector<std::string> site_leftovers(const std::string& state_dir) {
  const Site site = site_of(state_dir);
  std::vector<std::string> left;
  for (const auto& process : find_site_processes(site))
    left.push_back(process.role == Role::Server ? fmt::format("process {} (fairlead-server)", process.identity.pid) : fmt::format("process {} (node {})", process.identity.pid, process.node));
  if (auto mounts = read_file("/proc/self/mountinfo"))
    for (const auto& point : mounts_below(*mounts, site.dir)) left.push_back("mount " + point);
  if (auto hierarchies = cgroup_hierarchies())
    for (const auto& hierarchy : *hierarchies)
      if (exists(hierarchy.mount + "/" + site.cgroup())) left.push_back("cgroup " + hierarchy.mount + "/" + site.cgroup());
  if (has_link(site.host_link())) left.push_back("link " + site.host_link());
  if (is_pinned(site.fabric_pin())) left.push_back("network namespace " + site.fabric_pin());
  return left;
}

}  // namespace fairlead::fleet
