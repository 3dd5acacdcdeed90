// SPDX-License-Identifier: GPL-3.0-or-later
#include "jail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/mount.h>
#include <sys/mount.h>
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
#include "versions.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

extern "C" const char fairlead_spank_jail_begin[], fairlead_spank_jail_end[];  // jail/bytes.S

namespace fairlead::companion {
namespace {

constexpr const char* kRunFolder = "/run/fairlead";
constexpr const char* kAdopted = "adopted";

constexpr const char* kMark = "/run/fairlead/jail";

std::string place_of(const std::string& name) { return std::string(kJailVersions) + "/" + name; }
std::string complete_mark(const std::string& name) { return std::string(kJailVersions) + "/." + name; }

// A mark of an earlier container means nothing: the mounts must be there. An error: nothing is known, and nothing may be taken down.
Result<bool> complete(const std::string& name, const JailRoot& root) {
  if (!exists(complete_mark(name))) return false;
  auto whole = same_file(place_of(name), std::string(kJailVolume) + "/" + root.path);
  if (!whole || !*whole) return whole;
  return same_file(place_of(name) + "/run", "/run");
}

// A mark that an earlier container left means nothing: it must be seen through the jail as well.
bool is_mounted() {
  struct stat outside{}, inside{};
  return ::stat(kMark, &outside) == 0 && ::stat((std::string(kJail) + kMark).c_str(), &inside) == 0 && outside.st_dev == inside.st_dev && outside.st_ino == inside.st_ino;
}

bool leads_to(const std::string& place) {
  char target[256];
  const ssize_t size = ::readlink(kJail, target, sizeof target);
  return size >= 0 && std::string_view(target, static_cast<std::size_t>(size)) == place;
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

// A root with all that belongs into it, at a place of its own.
Result<void> assemble(int volume, const JailRoot& root, const std::string& name) {
  const std::string at = place_of(name), mark = complete_mark(name);
  auto whole = open_in_root(volume, root.path, O_PATH | O_DIRECTORY);
  if (!whole) return std::unexpected(std::move(whole.error()));
  if (auto made = make_dirs(at, 0755); !made) return made;
  // What an earlier try left half done.
  ::unlink(mark.c_str());
  while (::umount2(at.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  {
    const Fd place(::open(at.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!place) return fail_errno(errno, "open " + at);
    if (auto bound = bind(whole->get(), place.get(), at); !bound) return bound;
  }
  // What is mounted in it is mounted here alone, and goes from here alone.
  if (::mount("", at.c_str(), nullptr, MS_PRIVATE, nullptr) != 0) return fail_errno(errno, "make private " + at);
  // Opened anew: this is the mount, and the rest goes into it.
  const Fd jail(::open(at.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!jail) return fail_errno(errno, "open " + at);
  const char* sub_mounts = std::getenv("FAIRLEAD_JAIL_MOUNTS");
  for (const Bind& wanted : jail_binds(root, kJailVolume, sub_mounts ? sub_mounts : ""))
    if (auto bound = bind(jail.get(), wanted); !bound) return pass(std::move(bound.error()), "prepare the jail");
  return write_file_atomically(mark, "", 0644);
}

Result<void> write_plug_in() {
  const std::string plug_in = std::string(kRunFolder) + "/spank_jail.so";
  if (auto written = write_file_atomically(plug_in, std::string_view(fairlead_spank_jail_begin, static_cast<std::size_t>(fairlead_spank_jail_end - fairlead_spank_jail_begin)), 0755); !written) return written;
  return write_file_atomically(std::string(kRunFolder) + "/plugstack.conf", fmt::format("required {} {}\n", plug_in, kJail), 0644);
}

// Written where it differs from what was written last.
Result<void> say_use(const std::string& node, const std::set<std::string>& versions) {
  static std::set<std::string> said;
  if (said == versions) return {};
  if (auto noted = note_use(kJailVolume, node, versions); !noted) return noted;
  said = versions;
  return {};
}

}  // namespace

std::string own_node() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

std::set<std::string> mounted_versions() {
  std::set<std::string> out;
  auto names = list_dir(kJailVersions);
  if (names)
    for (const auto& name : *names)
      if (is_version_name(name) && name != kAdopted) out.insert(name);
  return out;
}

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
    // For the options that it gives to srun and sbatch.
    return write_plug_in();
  }
  if (auto made = make_dirs(kRunFolder, 0755); !made) return made;
  if (auto written = write_plug_in(); !written) return written;
  if (is_mounted()) return {};
  auto version = enter_current(own_node());
  if (!version) return std::unexpected(std::move(version.error()));
  const Fd jail(::open(kJail, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!jail) return fail_errno(errno, std::string("open ") + kJail);
  // By a mount, not a link as without a jail: a shell on the node then gives Slurm the folder by the name that it has in the jail.
  if (auto bound = bind_home(jail.get()); !bound) return bound;
  // Last: the plug-in enters no root that lacks it. Written once, for the plug-in compares it through both ways.
  if (auto written = write_file_atomically(kMark, "ready\n", 0644); !written) return written;
  log_info("the jail is ready", {{"layout", std::string(text(root->layout))}, {"version", *version}});
  return {};
}

Result<std::string> enter_current(const std::string& node) {
  const Fd volume(::open(kJailVolume, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!volume) return fail_errno(errno, std::string("open ") + kJailVolume);
  auto root = find_root(volume.get());
  if (!root) return pass(std::move(root.error()), "find the root in the jail volume");
  if (root->layout == Layout::Versions) {
    auto uses = mounted_versions();
    // Until it is still current after this node has said that it uses it: then nobody removes it.
    for (std::string noted; noted != root->version;) {
      noted = root->version;
      uses.insert(noted);
      // A full volume must not keep the node from working: what it uses is then not known, and is kept.
      if (auto said = say_use(node, uses); !said) log_warn("the jail volume does not say what this node uses", {{"reason", said.error().message}});
      root = find_root(volume.get());
      if (!root) return pass(std::move(root.error()), "find the root in the jail volume");
    }
  }
  const std::string name = root->layout == Layout::Versions ? root->version : kAdopted, at = place_of(name);
  auto whole = complete(name, *root);
  if (!whole) return std::unexpected(std::move(whole.error()));
  // Sessions and steps are in what /mnt/jail leads to: made anew, it would be gone from under them.
  if (!*whole && leads_to(at) && is_mounted()) return fail(Code::Invalid, fmt::format("the mounts of {} are not whole, and in use: delete this pod when it is idle", at));
  if (!*whole)
    if (auto made = assemble(volume.get(), *root, name); !made) return std::unexpected(std::move(made.error()));
  if (auto linked = replace_link(at, kJail); !linked) return std::unexpected(std::move(linked.error()));
  // For people and tests.
  (void)write_file_atomically(std::string(kRunFolder) + "/jail-version", name + "\n", 0644);
  return name;
}

Result<std::set<std::string>> leave_versions(const std::string& node, const std::set<std::string>& in_use) {
  char target[256];
  const ssize_t size = ::readlink(kJail, target, sizeof target);
  if (size < 0) return fail_errno(errno, std::string("read ") + kJail);
  const std::string active(target, static_cast<std::size_t>(size));
  const auto before = mounted_versions();
  for (const auto& name : before) {
    const std::string at = place_of(name);
    if (at == active || in_use.contains(name)) continue;
    ::unlink(complete_mark(name).c_str());
    while (::umount2(at.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
    }
    if (errno != EINVAL) return fail_errno(errno, "take down " + at);
    if (::rmdir(at.c_str()) != 0) return fail_errno(errno, "remove " + at);
    log_info("an old version of the jail is no longer used here", {{"version", name}});
  }
  auto now = mounted_versions();
  if (now != before)
    if (auto said = say_use(node, now); !said) return std::unexpected(std::move(said.error()));
  return now;
}

}  // namespace fairlead::companion
