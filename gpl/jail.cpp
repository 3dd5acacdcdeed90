// SPDX-License-Identifier: GPL-3.0-or-later
#include "jail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "prepare.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

extern "C" const char fairlead_spank_jail_begin[], fairlead_spank_jail_end[];  // jail/bytes.S

namespace fairlead::companion {
namespace {

constexpr const char* kRunFolder = "/run/fairlead";

constexpr const char* kMark = "/run/fairlead/jail";

// A mark that an earlier container left means nothing: it must be seen through the jail as well.
bool is_mounted() {
  struct stat outside{}, inside{};
  return ::stat(kMark, &outside) == 0 && ::stat((std::string(kJail) + kMark).c_str(), &inside) == 0 && outside.st_dev == inside.st_dev && outside.st_ino == inside.st_ino;
}

// By descriptors, so that no link that a user of the jail made can lead a mount somewhere else.
Result<void> bind(int from, int to, const std::string& what) {
  const Fd tree(static_cast<int>(::syscall(SYS_open_tree, from, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE)));
  if (!tree) return fail_errno(errno, "copy the mount " + what);
  if (::syscall(SYS_move_mount, tree.get(), "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) return fail_errno(errno, "mount " + what);
  return {};
}

Result<void> bind(int root, const Bind& wanted) {
  const Fd from(::open(wanted.from.c_str(), O_PATH | O_CLOEXEC | (wanted.kind == Kind::Folder ? O_DIRECTORY : 0)));
  if (!from && errno == ENOENT && !wanted.needed) return {};
  if (!from) return fail_errno(errno, "open " + wanted.from);
  auto to = mount_point(root, wanted.to, wanted.kind);
  if (!to && !wanted.needed) {
    log_warn("not in the jail", {{"path", wanted.to}, {"reason", to.error().message}});
    return {};
  }
  if (!to) return std::unexpected(std::move(to.error()));
  return bind(from.get(), to->get(), wanted.to);
}

Result<void> bind_home(int jail) {
  auto from = open_in_root(jail, "/home", O_PATH | O_DIRECTORY);
  if (!from) return std::unexpected(std::move(from.error()));
  const Fd to(::open("/home", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!to) return fail_errno(errno, "open /home");
  return bind(from->get(), to.get(), "/home");
}

Result<void> write_plug_in() {
  const std::string plug_in = std::string(kRunFolder) + "/spank_jail.so";
  if (auto written = write_file_atomically(plug_in, std::string_view(fairlead_spank_jail_begin, static_cast<std::size_t>(fairlead_spank_jail_end - fairlead_spank_jail_begin)), 0755); !written) return written;
  return write_file_atomically(std::string(kRunFolder) + "/plugstack.conf", fmt::format("required {} {}\n", plug_in, kJail), 0644);
}

}  // namespace

std::vector<Bind> jail_binds(const JailRoot& root, const std::string& volume, const std::string& sub_mounts) {
  std::vector<Bind> out = {{"/proc", "/proc"},
                           {"/sys", "/sys"},
                           {"/dev", "/dev"},
                           {"/run", "/run"},  // munge's socket, Slurm's fetched files; never shared between nodes
                           {"/tmp", "/tmp"},  // of this node, for all jobs on it
                           {"/etc/slurm", "/etc/slurm", Kind::Folder, false},
                           {"/var/spool/slurmd", "/var/spool/slurmd", Kind::Folder, false},  // batch scripts, and slurmstepd's own sockets
                           {"/opt/fairlead/bin", "/opt/fairlead/bin", Kind::Folder, false},
                           {"/etc/resolv.conf", "/etc/resolv.conf", Kind::File, false},
                           {"/etc/hosts", "/etc/hosts", Kind::File, false},
                           {"/etc/hostname", "/etc/hostname", Kind::File, false}};
  if (root.layout == Layout::Versions)
    for (const char* people : {"/home", "/root"}) out.push_back({volume + people, people});
  std::vector<Bind> more;
  for (const auto& line : split(sub_mounts, '\n'))
    if (const auto equals = line.find('='); equals != std::string::npos) more.push_back({"/mnt/jail-mounts/" + line.substr(0, equals), line.substr(equals + 1)});
  std::sort(more.begin(), more.end(), [](const Bind& a, const Bind& b) { return a.to < b.to; });
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

bool lives_in_jail() {
  const char* mode = std::getenv("FAIRLEAD_JAIL");
  return mode && std::string_view(mode) == "mount";
}

Result<void> prepare_jail() {
  const char* mode = std::getenv("FAIRLEAD_JAIL");
  if (!mode) return {};
  const Fd volume(::open(kJailVolume, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!volume) return fail_errno(errno, std::string("open ") + kJailVolume);
  auto root = find_root(volume.get());
  if (!root) return pass(std::move(root.error()), "find the root in the jail volume");
  if (!lives_in_jail()) {
    // Through "current", so that what is looked up is always of the version that new steps enter.
    if (auto linked = replace_link(root->layout == Layout::Versions ? fmt::format("{}/{}", kJailVolume, kCurrent) : std::string(kJailVolume), kJail); !linked) return linked;
    if (auto made = make_dirs(kRunFolder, 0755); !made) return made;
    return {};
  }
  if (auto made = make_dirs(kRunFolder, 0755); !made) return made;
  if (auto made = make_dirs(kJail, 0755); !made) return made;
  if (auto written = write_plug_in(); !written) return written;
  if (is_mounted()) return {};
  auto whole = open_in_root(volume.get(), root->path, O_PATH | O_DIRECTORY);
  if (!whole) return std::unexpected(std::move(whole.error()));
  {
    const Fd place(::open(kJail, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!place) return fail_errno(errno, std::string("open ") + kJail);
    if (auto bound = bind(whole->get(), place.get(), kJail); !bound) return bound;
  }
  // Opened anew: this is the mount, and the rest goes into it.
  const Fd jail(::open(kJail, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!jail) return fail_errno(errno, std::string("open ") + kJail);
  const char* sub_mounts = std::getenv("FAIRLEAD_JAIL_MOUNTS");
  for (const Bind& wanted : jail_binds(*root, kJailVolume, sub_mounts ? sub_mounts : ""))
    if (auto bound = bind(jail.get(), wanted); !bound) return pass(std::move(bound.error()), "prepare the jail");
  // By a mount, not a link as without a jail: a shell on the node then gives Slurm the folder by the name that it has in the jail.
  if (auto bound = bind_home(jail.get()); !bound) return bound;
  // Last: the plug-in enters no root that lacks it.
  if (auto written = write_file_atomically(kMark, (root->layout == Layout::Versions ? root->version : "adopted") + "\n", 0644); !written) return written;
  log_info("the jail is ready", {{"layout", std::string(text(root->layout))}, {"version", root->version}});
  return {};
}

}  // namespace fairlead::companion
