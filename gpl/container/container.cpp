// SPDX-License-Identifier: GPL-3.0-or-later
#include "container.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/mount.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"
#include "../jail_layout.h"

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

namespace fairlead::companion {
namespace {

void tell(char kind, std::string_view text) {
  std::string record(1, kind);
  record.append(text.substr(0, text.find('\0')));
  record += '\0';
  for (std::size_t at = 0; at < record.size();) {
    const ssize_t written = ::write(STDOUT_FILENO, record.data() + at, record.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) ::_exit(1);  // nobody listens any more
    at += static_cast<std::size_t>(written);
  }
}

// `attributes`: MOUNT_ATTR_*, for all that is mounted below, too.
Result<void> bind(int from, int to, std::uint64_t attributes, bool recursive, const std::string& what) {
  const Fd tree(static_cast<int>(::syscall(SYS_open_tree, from, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0))));
  if (!tree) return fail_errno(errno, "copy the mount " + what);
  mount_attr wanted{};
  wanted.attr_set = attributes;
  wanted.propagation = MS_PRIVATE;
  if (::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &wanted, sizeof wanted) != 0) return fail_errno(errno, "restrict the mount " + what);
  if (::syscall(SYS_move_mount, tree.get(), "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) return fail_errno(errno, "mount " + what);
  return {};
}

class Container {
 public:
  explicit Container(const ContainerOptions& options) : options_(options), old_root_(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

  // All places to mount upon are made before anything is mounted: afterwards a path may lead into what is shared with others, and nothing is made there with root's rights.
  Result<void> make(const Image& image, const std::string& lower, const std::vector<MountSpec>& mounts) {
    if (auto root = overlay(lower); !root) return root;
    // Nothing that the user could change the meaning of is trusted to raise rights: neither what the image brings nor what is mounted into it.
    for (const char* path : {"/proc", "/sys", "/dev", "/tmp"})
      if (auto added = add_own(path, path, Kind::Folder, MOUNT_ATTR_NOSUID, true); !added) return added;
    // Batch scripts lie there, and what MPI's processes find one another by.
    if (exists("/var/spool/slurmd"))
      if (auto added = add_own("/var/spool/slurmd", "/var/spool/slurmd", Kind::Folder, MOUNT_ATTR_NOSUID, false); !added) return added;
    for (const char* path : {"/etc/hosts", "/etc/resolv.conf", "/etc/hostname"})
      if (exists(path))
        if (auto added = add_own(path, path, Kind::File, MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY, false); !added) return added;
    if (auto known = accounts(); !known) return known;
    if (options_.mount_home)
      if (auto added = add_users({.from = options_.user.home, .to = options_.user.home}, "--container-mount-home"); !added) return added;
    for (const auto& mount : mounts)
      if (auto added = add_users(mount, "--container-mounts"); !added) return added;
    // slurmstepd changes into the folder of the job before it lets go of the task: without one of that name it would complain.
    char here[4096];
    if (::getcwd(here, sizeof here)) (void)mount_point(root_.get(), here, Kind::Folder);
    if (options_.working_directory.empty() && image.config.working_directory.starts_with('/')) (void)mount_point(root_.get(), image.config.working_directory, Kind::Folder);

    for (const auto& added : added_) {
      auto place = open_in_root(root_.get(), added.to, O_PATH | (added.kind == Kind::Folder ? O_DIRECTORY : 0));
      if (!place) return fail(place.error().code, fmt::format("{}: {} is not there: what is mounted above it has no such {}", added.option, added.to, added.kind == Kind::Folder ? "folder" : "file"));
      if (auto bound = bind(added.from.get(), place->get(), added.attributes, added.recursive, added.to); !bound) return pass(std::move(bound.error()), added.option);
    }
    if (auto started = start_folder(image.config); !started) return started;
    mount_attr closed{};
    closed.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    if (::syscall(SYS_mount_setattr, root_.get(), "", AT_EMPTY_PATH, &closed, sizeof closed) != 0) return fail_errno(errno, "make the image's root read-only");
    return {};
  }

 private:
  Result<void> overlay(const std::string& lower) {
    if (auto made = make_dirs(options_.at, 0755); !made) return made;
    // Places to mount upon are made in memory; they go with the last process of the task.
    if (::mount("fairlead", options_.at.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0755") != 0) return fail_errno(errno, "mount " + options_.at);
    const std::string upper = options_.at + "/upper", work = options_.at + "/work", root = options_.at + "/root";
    for (const auto& folder : {upper, work, root})
      if (auto made = make_dirs(folder, 0755); !made) return made;
    const std::string how = fmt::format("lowerdir={},upperdir={},workdir={}", lower, upper, work);
    if (::mount("fairlead", root.c_str(), "overlay", MS_NOSUID | MS_NODEV, how.c_str()) != 0) return fail_errno(errno, "mount the image");
    root_ = Fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_) return fail_errno(errno, "open the image's root");
    return {};
  }

  struct Added {
    Fd from;
    std::string to, option;
    Kind kind;
    std::uint64_t attributes;
    bool recursive;
  };

  Result<void> add(Fd from, const std::string& to, Kind kind, std::uint64_t attributes, bool recursive, std::string option) {
    if (auto place = mount_point(root_.get(), to, kind); !place) return pass(std::move(place.error()), option);
    added_.push_back({.from = std::move(from), .to = to, .option = std::move(option), .kind = kind, .attributes = attributes, .recursive = recursive});
    return {};
  }

  Result<void> add_own(const std::string& from, const std::string& to, Kind kind, std::uint64_t attributes, bool recursive) {
    Fd source(::open(from.c_str(), O_PATH | O_CLOEXEC | (kind == Kind::Folder ? O_DIRECTORY : 0)));
    if (!source) return fail_errno(errno, "open " + from);
    return add(std::move(source), to, kind, attributes, recursive, "prepare the image");
  }

  // With the rights of the user: who may not reach it outside does not reach it inside.
  Result<void> add_users(const MountSpec& mount, const std::string& option) {
    std::string from = mount.from;
    if (from[0] != '/') {
      char here[4096];
      if (!::getcwd(here, sizeof here)) return fail_errno(errno, "find the folder of the job");
      from = std::string(here) + "/" + from;
    }
    auto source = open_as(options_.user, old_root_.get(), from, O_PATH);
    if (!source) return pass(std::move(source.error()), option);
    struct stat info{};
    if (::fstat(source->get(), &info) != 0) return fail_errno(errno, fmt::format("{}: {}", option, from));
    const std::uint64_t attributes = MOUNT_ATTR_NOSUID | (mount.read_only ? MOUNT_ATTR_RDONLY : 0) | (mount.no_exec ? MOUNT_ATTR_NOEXEC : 0);
    return add(std::move(*source), mount.to, S_ISDIR(info.st_mode) ? Kind::Folder : Kind::File, attributes, mount.recursive, option);
  }

  // Programs ask who they run as. The image's own accounts stay.
  Result<void> accounts() {
    const User& user = options_.user;
    const passwd* entry = ::getpwuid(user.uid);
    const group* of_user = ::getgrgid(user.gid);
    const std::string group_name = of_user ? of_user->gr_name : user.name;
    const std::string lines[2] = {fmt::format("{}:x:{}:{}:{}:{}:{}", user.name, user.uid, user.gid, entry && entry->pw_gecos ? entry->pw_gecos : "", user.home, "/bin/sh"), fmt::format("{}:x:{}:", group_name, user.gid)};
    const std::string files[2] = {"passwd", "group"};
    for (int i = 0; i < 2; ++i) {
      std::string text;
      // Regular files of a sensible size only: what else stands there is the image's mistake.
      if (auto fd = open_in_root(root_.get(), "/etc/" + files[i], O_RDONLY | O_NONBLOCK); fd) {
        struct stat info{};
        if (::fstat(fd->get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size < (4 << 20)) {
          text.resize(static_cast<std::size_t>(info.st_size));
          const ssize_t got = ::pread(fd->get(), text.data(), text.size(), 0);
          text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
        }
      }
      const std::string made = options_.at + "/" + files[i];
      if (auto written = write_file_atomically(made, with_account(text, lines[i]), 0644); !written) return written;
      if (auto added = add_own(made, "/etc/" + files[i], Kind::File, MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY, false); !added) return added;
    }
    return {};
  }

  Result<void> start_folder(const ImageConfig& config) {
    const bool asked = !options_.working_directory.empty();
    std::string folder = asked ? options_.working_directory : config.working_directory;
    if (folder.empty()) folder = "/";
    if (folder[0] != '/') return fail(Code::Invalid, fmt::format("--container-workdir={}: must be an absolute path", folder));
    if (auto there = open_in_root(root_.get(), folder, O_PATH | O_DIRECTORY); !there && asked) return fail(there.error().code, fmt::format("--container-workdir={}: the image and what is mounted into it have no such folder", folder));
    else if (!there) folder = "/";
    tell('W', folder);
    return {};
  }

  const ContainerOptions& options_;
  Fd old_root_, root_;
  std::vector<Added> added_;  // in the order in which they are mounted
};

Result<void> prepare(const ContainerOptions& options) {
  auto name = parse_image_name(options.image);
  if (!name) return std::unexpected(std::move(name.error()));
  auto mounts = parse_mount_specs(options.mounts);
  if (!mounts) return std::unexpected(std::move(mounts.error()));
  const auto task = identify(options.task);
  if (!task) return std::unexpected(Error(task.error()));
  auto image = find_image(*name, options.user, options.cache, options.environment);
  if (!image) return pass(std::move(image.error()), "image " + options.image);
  char node[256] = {};
  ::gethostname(node, sizeof node - 1);
  CacheOptions cache{.folder = options.cache};
  cache.before_unpack = [&] { tell('S', fmt::format("unpacking image {} on {}", options.image, node)); };
  auto lower = provide_image(cache, image->hex, image->manifest, image->open_blob, *task);
  if (!lower) return pass(std::move(lower.error()), "image " + options.image);
  if (auto made = Container(options).make(*image, *lower, *mounts); !made) return made;
  for (const char* locale : {"LANG", "LANGUAGE", "LC_ALL"})
    if (std::find(options.keep.begin(), options.keep.end(), locale) == options.keep.end()) tell('U', locale);
  for (const auto& entry : container_environment(image->config, options.keep)) tell('V', entry);
  return {};
}

template <class Number>
bool number(const std::string& text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

int run_container(const std::vector<std::string>& arguments) {
  // It dies with the task, and so does what it started: a job that is cancelled while its image is unpacked is over at once.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::close_range(3, ~0U, 0);  // what slurmstepd holds is nobody's business below
  ::umask(022);
  ContainerOptions options;
  bool good = arguments.size() > 1;
  for (std::size_t i = 1; good && i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    const auto equals = argument.find('=');
    const std::string key = argument.substr(0, equals), value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (key == "at") options.at = value;
    else if (key == "cache") options.cache = value;
    else if (key == "image") options.image = value;
    else if (key == "mounts") options.mounts = value;
    else if (key == "workdir") options.working_directory = value;
    else if (key == "env") options.keep = split(value, ',');
    else if (key == "home") options.mount_home = true;
    else if (key == "uid") good = number(value, options.user.uid);
    else if (key == "gid") good = number(value, options.user.gid);
    else if (key == "group") good = number(value, options.user.groups.emplace_back());
    else if (key == "task") good = number(value, options.task);
    else good = false;
  }
  // What may hold a password does not come by arguments.
  for (char** variable = environ; *variable; ++variable)
    if (const std::string_view entry(*variable); entry.starts_with("FAIRLEAD_SET_"))
      if (const auto equals = entry.find('='); equals != entry.npos) options.environment[std::string(entry.substr(13, equals - 13))] = entry.substr(equals + 1);
  if (!good || options.at.empty() || options.cache.empty() || options.task != ::getppid()) {
    tell('E', "the companion was called wrongly");
    return 2;
  }
  if (const passwd* entry = ::getpwuid(options.user.uid)) {
    options.user.name = entry->pw_name;
    options.user.home = entry->pw_dir;
  }
  if (options.user.home.empty() || options.user.home[0] != '/') options.user.home = "/";
  if (options.user.name.empty()) options.user.name = fmt::format("u{}", options.user.uid);
  // Access to files is asked for with the user's groups.
  if (::setgroups(options.user.groups.size(), options.user.groups.data()) != 0) {
    tell('E', "cannot take the groups of the user");
    return 1;
  }
  if (auto done = prepare(options); !done) {
    tell('E', done.error().message);
    return 1;
  }
  tell('K', "");
  return 0;
}

}  // namespace fairlead::companion
