// SPDX-License-Identifier: GPL-3.0-or-later
// The process that follows `current` on a worker or login node.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "jail.h"
#include "versions.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;

constexpr auto kLook = 1s;       // how often `current` is read: one link of the volume
constexpr auto kUnused = 15s;    // for so long no process had it as its root: a step that is being started opened it before

enum class Seen { Gone, Unknown, Known };

// A session's process belongs to its user, and sshd's own for it to nobody that we could be: their roots are shown to CAP_SYS_PTRACE. A login node from before it had that looks as the user.
Seen root_of(const std::string& process, struct stat& root) {
  const std::string link = process + "/root";
  if (::stat(link.c_str(), &root) == 0) return Seen::Known;
  if (errno == ENOENT || errno == ESRCH) return Seen::Gone;
  struct stat owner{};
  if (::stat(process.c_str(), &owner) != 0) return errno == ENOENT || errno == ESRCH ? Seen::Gone : Seen::Unknown;
  ::setfsgid(owner.st_gid);
  ::setfsuid(owner.st_uid);
  const bool known = ::stat(link.c_str(), &root) == 0;
  const int error = errno;
  ::setfsuid(0);
  ::setfsgid(0);
  return known ? Seen::Known : error == ENOENT || error == ESRCH ? Seen::Gone : Seen::Unknown;
}

void follow(const std::string& node) {
  const SystemClock clock;
  std::string current, complaint;
  std::map<std::string, std::chrono::nanoseconds> unused_since;
  while (true) {
    auto entered = enter_current(node);
    if (!entered && entered.error().message != complaint) {
      complaint = entered.error().message;
      log_warn("this node keeps the version of the jail that it has", {{"version", current}, {"reason", complaint}});
    } else if (entered) {
      complaint.clear();
      if (*entered != current && !current.empty()) log_info("new steps and sessions enter another version of the jail", {{"version", *entered}, {"before", current}});
      current = *entered;
      // Only where there is something to take down is anything looked at.
      if (auto names = list_dir(kJailVersions); names) {
        std::erase_if(*names, [&](const std::string& name) { return name.starts_with('.') || name == current; });
        if (names->empty()) unused_since.clear();
        else {
          auto keep = versions_in_use();
          const auto now = clock.monotonic();
          for (const auto& name : *names) {
            if (keep.contains(name)) unused_since.erase(name);
            else if (now - unused_since.try_emplace(name, now).first->second < kUnused) keep.insert(name);
          }
          if (auto left = leave_versions(node, keep); !left) log_warn("an old version of the jail is still mounted", {{"reason", left.error().message}});
        }
      }
    }
    std::this_thread::sleep_for(entered ? kLook : 5s);
  }
}

}  // namespace

std::set<std::string> versions_in_use() {
  std::set<std::string> out, all;
  std::map<std::pair<dev_t, ino_t>, std::string> roots;
  auto names = list_dir(kJailVersions);
  if (!names) return out;
  for (const auto& name : *names) {
    if (name.starts_with('.')) continue;
    all.insert(name);
    struct stat info{};
    if (::stat((std::string(kJailVersions) + "/" + name).c_str(), &info) != 0) return all;
    roots[{info.st_dev, info.st_ino}] = name;
  }
  auto processes = list_dir("/proc");
  if (!processes) return all;
  for (const auto& process : *processes) {
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    struct stat root{};
    const Seen seen = root_of("/proc/" + process, root);
    if (seen == Seen::Unknown) return all;
    if (seen == Seen::Gone) continue;
    if (const auto at = roots.find({root.st_dev, root.st_ino}); at != roots.end()) out.insert(at->second);
  }
  return out;
}

void leave_jail() {
  if (!lives_in_jail() || mounted_versions().empty()) return;
  if (auto noted = note_use(kJailVolume, own_node(), versions_in_use()); !noted) log_warn("the jail volume still says what this node used", {{"reason", noted.error().message}});
}

void keep_jail() {
  if (!lives_in_jail()) return;
  const Fd volume(::open(kJailVolume, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto root = volume ? find_root(volume.get()) : Result<JailRoot>(fail_errno(errno, "open the jail volume"));
  if (!root || root->layout != Layout::Versions) return;
  const std::string node = own_node();
  const pid_t child = ::fork();
  if (child < 0) return log_warn("nothing follows new versions of the jail on this node", {{"error", std::strerror(errno)}});
  if (child > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may mount; what a session of root could do to it is bounded by the rights that it has beyond that session, and this.
  ::prctl(PR_SET_DUMPABLE, 0);
  ::prctl(PR_SET_NAME, "fairlead-jail");
  follow(node);
  ::_exit(0);
}

}  // namespace fairlead::companion
