// SPDX-License-Identifier: GPL-3.0-or-later
#include "populate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "versions.h"

namespace fairlead::companion {
namespace {

constexpr const char* kLock = ".fairlead-jail.lock";
constexpr const char* kNextMarker = ".fairlead-jail.new";
constexpr const char* kNextLink = ".fairlead-jail.current";
constexpr const char* kUsersLock = "/var/lib/fairlead/users.lock";
constexpr std::string_view kPeoples[] = {"home", "root"};  // shared by all versions

std::string name_of(std::string_view line) { return std::string(line.substr(0, line.find(':'))); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (auto& line : split(text, '\n'))
    if (!line.empty()) out.push_back(std::move(line));
  return out;
}

Result<void> write_at(int folder, const char* name, std::string_view bytes, mode_t mode) {
  ::unlinkat(folder, name, 0);
  const Fd fd(::openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, std::string("make ") + name);
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return fail_errno(errno ? errno : ENOSPC, std::string("write ") + name);
  if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) return fail_errno(errno, std::string("write ") + name);
  return {};
}

// What is there besides ours and the file system's own.
Result<std::vector<std::string>> foreign_entries(const std::string& volume) {
  auto names = list_dir(volume);
  if (!names) return names;
  std::erase_if(*names, [](const std::string& name) { return name.starts_with(kJailMarker) || name == "lost+found"; });
  return names;
}

class Populator {
 public:
  Populator(const PopulateOptions& options, Fd volume) : options_(options), volume_(std::move(volume)) {}

  Result<Populated> run() {
    auto layout = read_layout(volume_.get());
    if (!layout && layout.error().code != Code::NotFound) return std::unexpected(std::move(layout.error()));
    if (!layout) {
      auto decided = decide();
      if (!decided) return std::unexpected(std::move(decided.error()));
      layout = *decided;
    }
    if (*layout == Layout::Versions) {
      auto there = find_root(volume_.get());
      if (!there && there.error().code != Code::NotFound) return std::unexpected(std::move(there.error()));
      if (there)
        if (auto noted = note_served(there->version); !noted) return std::unexpected(std::move(noted.error()).in("note the version that serves"));
      if (!there)
        if (auto made = make_version(); !made) return std::unexpected(std::move(made.error()).in("fill the jail"));
      if (there && options_.renew && there->version != options_.version)
        if (auto renewed = renew(*there); !renewed) return std::unexpected(std::move(renewed.error()).in(fmt::format("make version {} of the jail", options_.version)));
    } else if (options_.renew) {
      return fail(Code::Invalid, "the root file system on the volume was there before and is used as it is: there are no versions of it");
    }
    auto root = find_root(volume_.get());
    if (!root) return std::unexpected(std::move(root.error()));
    out_.root = std::move(*root);
    if (out_.root.layout == Layout::Versions) {
      tell_old_versions(out_.root.version);
      tidy();
    }
    return std::move(out_);
  }

 private:
  void step() const {
    if (options_.on_step) options_.on_step();
  }

  // An empty volume, or one with users and homes of a cluster that had no jail, is to be filled; one with a root is taken as it is.
  Result<Layout> decide() {
    auto names = foreign_entries(options_.volume);
    if (!names) return pass(std::move(names.error()), "look at the jail volume");
    const bool only_users = std::all_of(names->begin(), names->end(), [](const std::string& name) { return name == "etc" || name == "home"; });
    Layout layout = Layout::Versions;
    if (!only_users) {
      const auto shell = open_in_root(volume_.get(), "/bin/sh", O_PATH);
      const auto users = open_in_root(volume_.get(), "/etc/passwd", O_PATH);
      if (!shell || !users)
        return fail(Code::Invalid, fmt::format("the jail volume holds {}{} but no root file system (no {}); nothing was written. Give an empty volume, or one with a whole root",
                                               fmt::join(names->begin(), names->begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names->size(), 5)), ", "), names->size() > 5 ? ", ..." : "",
                                               shell ? "/etc/passwd" : "/bin/sh"));
      layout = Layout::Adopted;
    }
    step();
    if (auto written = write_at(volume_.get(), kNextMarker, std::string(text(layout)) + "\n", 0644); !written) return std::unexpected(std::move(written.error()));
    step();
    if (auto done = settle(volume_.get(), kNextMarker, volume_.get(), kJailMarker); !done) return std::unexpected(std::move(done.error()));
    out_.made = layout == Layout::Adopted;
    return layout;
  }

  // A rename that a power cut does not undo.
  static Result<void> settle(int from, const char* name, int to, const char* as) {
    if (::renameat(from, name, to, as) != 0) return fail_errno(errno, std::string("rename to ") + as);
    if (::fsync(to) != 0) return fail_errno(errno, std::string("sync ") + as);
    return {};
  }

  Result<void> make_version() {
    if (!is_version_name(options_.version)) return fail(Code::Invalid, "\"" + options_.version + "\" is no name of a version");
    step();
    if (::mkdirat(volume_.get(), kVersions, 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make versions/");
    const Fd versions(::openat(volume_.get(), kVersions, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!versions) return fail_errno(errno, "open versions/");
    struct stat info{};
    if (::fstatat(versions.get(), options_.version.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (auto filled = fill(versions.get(), nullptr); !filled) return filled;
    }
    return flip();
  }

  Result<void> flip() {
    step();
    ::unlinkat(volume_.get(), kNextLink, 0);
    if (::symlinkat((std::string(kVersions) + "/" + options_.version).c_str(), volume_.get(), kNextLink) != 0) return fail_errno(errno, "make the link \"current\"");
    step();
    out_.made = true;
    if (auto settled = settle(volume_.get(), kNextLink, volume_.get(), kCurrent); !settled) return settled;
    return note_served(options_.version);
  }

  // After the link: a version that never became current must not be taken for one that people left. Killed before it, the next run does it first of all.
  Result<void> note_served(const std::string& version) const {
    auto history = read_history(options_.volume);
    if (!history) return std::unexpected(std::move(history.error()));
    if (history->empty() || history->back() != version) {
      step();
      if (auto noted = note_current(options_.volume, version); !noted) return noted;
    }
    const std::string unserved = unserved_path(options_.volume, version);
    if (!exists(unserved)) return {};
    step();
    if (::unlink(unserved.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + unserved);
    return {};
  }

  // Whether a version that is on the volume served before and was left; else it was built and its run killed before the flip, and what people did since is not in it.
  Result<bool> was_left() const {
    auto history = read_history(options_.volume);
    if (!history) return std::unexpected(std::move(history.error()));
    if (std::find(history->begin(), history->end(), options_.version) != history->end()) return true;
    if (exists(unserved_path(options_.volume, options_.version))) return false;
    return fail(Code::Invalid, fmt::format("version {} is on the volume, but the volume does not know that it was ever in use: it is neither taken as it is nor built anew. Ask for another name, or for it when versions/{} is removed",
                                           options_.version, options_.version));
  }

  // Beside the old one, which is in use all the while.
  Result<void> renew(const JailRoot& old) {
    if (!is_version_name(options_.version)) return fail(Code::Invalid, "\"" + options_.version + "\" is no name of a version");
    const Fd versions(::openat(volume_.get(), kVersions, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!versions) return fail_errno(errno, "open versions/");
    out_.from = old.version;
    struct stat info{};
    if (::fstatat(versions.get(), options_.version.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      auto left = was_left();
      if (!left) return std::unexpected(std::move(left.error()));
      if (*left) return flip();
      step();
      // Nobody ever entered it.
      if (auto removed = remove_tree(options_.volume + "/" + kVersions + "/" + options_.version + ".tmp"); !removed) return removed;
      step();
      if (auto taken = settle(versions.get(), options_.version.c_str(), versions.get(), (options_.version + ".tmp").c_str()); !taken) return taken;
    }
    out_.built = true;
    auto text = read_file(manifest_path(options_.volume, old.version), 4096_MiB);
    if (!text) return fail(Code::Invalid, fmt::format("what people changed in version {} cannot be told, for it has no manifest: {}", old.version, text.error().message));
    auto base = parse_manifest(*text);
    if (!base) return std::unexpected(std::move(base.error()));
    base_ = &*base;
    auto filled = fill(versions.get(), &old);
    base_ = nullptr;
    if (!filled) return filled;
    auto flipped = flip();
    if (flipped && mine_)
      if (auto noted = write_file_durably(carried_path(options_.volume, old.version), print_manifest(*mine_), 0600); !noted) log_warn("the old version will be kept", {{"version", old.version}, {"reason", noted.error().message}});
    mine_.reset();
    // Before the locks are let go: who waited for them lives in the old version, and is refused there.
    if (flipped) tell_old_versions(options_.version);
    busy_.clear();
    return flipped;
  }

  // dpkg, apt and the tools for users of every node take these locks: while we hold them nobody is half-way through a change of the old version, and who waits for them is refused when another version is current.
  Result<void> hold_packages(int root) {
    const SystemClock clock;
    const auto until = clock.monotonic() + options_.wait_for_packages;
    for (const char* path : {kUsersLock, "/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/etc/.pwd.lock"}) {
      const std::string folder = std::string(path).substr(0, std::string_view(path).rfind('/'));
      auto parent = open_in_root(root, folder, O_RDONLY | O_DIRECTORY);
      if (!parent && parent.error().code == Code::NotFound) continue;  // no such tools here
      if (!parent) return std::unexpected(std::move(parent.error()));
      // As they make it themselves.
      Fd fd(::openat(parent->get(), path + folder.size() + 1, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
      if (!fd) return fail_errno(errno, std::string("open ") + path + " of the old version");
      struct flock whole{};
      whole.l_type = F_WRLCK;
      // flock(1) takes its lock by flock(2), the others by fcntl(2); on one machine these know nothing of each other.
      while ((path == kUsersLock ? ::flock(fd.get(), LOCK_EX | LOCK_NB) : ::fcntl(fd.get(), F_OFD_SETLK, &whole)) != 0) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) return fail_errno(errno, std::string("lock ") + path + " of the old version");
        if (clock.monotonic() > until) return fail(Code::Unavailable, fmt::format("packages or users are being changed in the old version ({} is locked); it is tried again", path));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      busy_.push_back(std::move(fd));
    }
    return {};
  }

  // What is changed in a version that is not current is in no other: adduser and dpkg look for this file when they have their locks (several_at_once). A version that has no place for it tells nobody.
  void tell_old_versions(const std::string& current) const {
    auto names = list_dir(options_.volume + "/" + kVersions);
    if (!names) return log_warn("old versions do not know that they are old", {{"reason", names.error().message}});
    for (const auto& name : *names) {
      if (!is_version_name(name)) continue;
      auto root = open_in_root(volume_.get(), std::string(kVersions) + "/" + name, O_RDONLY | O_DIRECTORY);
      auto own = root ? open_in_root(root->get(), folder_of_replaced(), O_RDONLY | O_DIRECTORY) : std::move(root);
      if (!own && own.error().code == Code::NotFound) continue;
      const char* file = kReplaced + folder_of_replaced().size() + 1;
      struct stat info{};
      const bool told = own && ::fstatat(own->get(), file, &info, AT_SYMLINK_NOFOLLOW) == 0;
      if (own && told == (name != current)) continue;
      step();
      Result<void> done;
      if (!own) done = std::unexpected(std::move(own.error()));
      else if (name != current)
        done = write_at(own->get(), file, fmt::format("fairlead: this session lives in version {} of the shared root, and {} has taken its place: nothing was changed here, where nobody would find it. Log in anew\n", name, current), 0644);
      else if (::unlinkat(own->get(), file, 0) != 0) done = fail_errno(errno, std::string("remove ") + kReplaced);
      if (!done) log_warn("a version does not know whether it is old", {{"version", name}, {"reason", done.error().message}});
    }
  }
  static std::string folder_of_replaced() { return std::string(kReplaced).substr(0, std::string_view(kReplaced).rfind('/')); }

  Result<void> carry_over(const std::string& path, const JailRoot& old, const Manifest& theirs) {
    auto from = open_in_root(volume_.get(), old.path, O_RDONLY | O_DIRECTORY);
    if (!from) return std::unexpected(std::move(from.error()));
    if (auto held = hold_packages(from->get()); !held) return held;
    auto mine = scan_tree(from->get(), {.leave_out = outside_of_versions(), .known = base_, .on_entry = options_.on_step});
    if (!mine) return pass(std::move(mine.error()), "look at the old version");
    auto done = replay(plan_replay(*base_, *mine, theirs), *mine,
                       {.from = options_.volume + "/" + old.path, .to = path, .from_name = old.version, .base_files = base_files_path(options_.volume, old.version), .link_cache = options_.link_cache, .on_step = options_.on_step});
    if (!done) return pass(std::move(done.error()), "carry over what people changed");
    out_.replayed = std::move(*done);
    mine_ = std::move(*mine);
    return {};
  }

  // Jobs and sessions write on in a version that is not current, and nobody carries that over. Empty: it holds nothing that was written since.
  std::string only_there(const std::string& version) const {
    auto text = read_file(carried_path(options_.volume, version), 4096_MiB);
    if (!text) return "it is not known what was written in it alone";
    auto then = parse_manifest(*text);
    if (!then) return "it is not known what was written in it alone: " + then.error().message;
    auto root = open_in_root(volume_.get(), std::string(kVersions) + "/" + version, O_RDONLY | O_DIRECTORY);
    auto now = root ? scan_tree(root->get(), {.leave_out = outside_of_versions(), .read = false}) : Result<Manifest>(std::unexpected(std::move(root.error())));
    if (!now) return "it could not be looked at: " + now.error().message;
    const auto late = written_since(*then, *now);
    return late.empty() ? "" : fmt::format("{} files in it were written after another version came: {}{}", late.size(), fmt::join(late.begin(), late.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(late.size(), 3)), ", "), late.size() > 3 ? ", ..." : "");
  }

  // As the image gave it: before people's records and files come to it.
  Result<Manifest> write_manifest(int root) {
    auto manifest = scan_tree(root, {.leave_out = outside_of_versions(), .known = nullptr, .on_entry = options_.on_step});
    if (!manifest) return pass(std::move(manifest.error()), "list the new version");
    const std::string folder = base_files_path(options_.volume, options_.version);
    step();
    if (auto removed = remove_tree(folder); !removed) return std::unexpected(std::move(removed.error()));
    for (const auto& [path, entry] : *manifest) {
      if (entry.type != 'f' || !records_of(path)) continue;
      auto fd = open_in_root(root, path, O_RDONLY | O_NOFOLLOW);
      if (!fd) return std::unexpected(std::move(fd.error()));
      auto text = read_file(fmt::format("/proc/self/fd/{}", fd->get()));
      if (!text) return std::unexpected(std::move(text.error()));
      if (auto made = make_dirs(folder + path.substr(0, path.rfind('/')), 0700); !made) return std::unexpected(std::move(made.error()));
      step();
      if (auto written = write_file_durably(folder + path, *text, 0600); !written) return std::unexpected(std::move(written.error()));
    }
    step();
    if (auto made = make_dirs(folder, 0700); !made) return std::unexpected(std::move(made.error()));
    if (auto written = write_file_durably(manifest_path(options_.volume, options_.version), print_manifest(*manifest), 0600); !written) return std::unexpected(std::move(written.error()));
    return manifest;
  }

  // What another run left half made, and old versions that nobody needs. Never a reason to fail: the current one is whole.
  void tidy() {
    const auto unhappy = [&](const Error& error) { log_warn("old versions were not looked after", {{"reason", error.message}}); };
    const std::string folder = options_.volume + "/" + kVersions;
    auto names = list_dir(folder);
    if (!names) return unhappy(names.error());
    std::vector<std::string> there;
    for (const auto& name : *names) {
      if (is_version_name(name)) there.push_back(name);
      else if (name.ends_with(".tmp")) {
        step();
        if (auto removed = remove_tree(folder + "/" + name); !removed) unhappy(removed.error());
      }
    }
    if (options_.renew) {
      auto uses = read_uses(options_.volume);
      auto history = read_history(options_.volume);
      Removal plan;
      if (uses && history) plan = plan_removal(there, *history, out_.root.version, options_.keep, *uses, options_.nodes);
      else unhappy(uses ? history.error() : uses.error());
      out_.kept = std::move(plan.kept);
      for (const auto& version : plan.remove) {
        if (const std::string why = only_there(version); !why.empty()) {
          out_.kept.push_back(version + ": " + why);
          continue;
        }
        step();
        // Under a name that nobody takes for a whole one.
        const std::string path = folder + "/" + version;
        if (::rename(path.c_str(), (path + ".tmp").c_str()) != 0) {
          unhappy({Code::Internal, "rename " + path});
          continue;
        }
        std::erase(there, version);
        out_.removed.push_back(version);
        step();
        if (auto removed = remove_tree(path + ".tmp"); !removed) unhappy(removed.error());
      }
    }
    // Of what is gone, also where an earlier run was killed before this.
    const std::string manifests = manifest_path(options_.volume, "");
    if (auto listed = list_dir(manifests); listed)
      for (const auto& name : *listed)
        if (std::find(there.begin(), there.end(), name.substr(0, name.find('.'))) == there.end()) {
          step();
          if (auto removed = remove_tree(manifests + name); !removed) unhappy(removed.error());
        }
    out_.versions = std::move(there);
  }

  // The volume is full for everybody when it is full: people's jobs write there, too.
  Result<void> look_for_room(const JailRoot* old) const {
    std::uint64_t image = 0, added = 0, free = 0;
    const Fd from(::open(options_.source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!from) return fail_errno(errno, "open " + options_.source);
    if (auto looked = scan_tree(from.get(), {.leave_out = options_.leave_out, .read = false, .bytes = &image}); !looked) return pass(std::move(looked.error()), "look at the image");
    if (old) {
      auto root = open_in_root(volume_.get(), old->path, O_RDONLY | O_DIRECTORY);
      if (!root) return std::unexpected(std::move(root.error()));
      if (auto looked = scan_tree(root->get(), {.leave_out = outside_of_versions(), .known = base_, .read = false, .bytes = &added}); !looked) return pass(std::move(looked.error()), "look at the old version");
    }
    if (options_.free_bytes) {
      free = options_.free_bytes();
    } else {
      struct statvfs there{};
      if (::fstatvfs(volume_.get(), &there) != 0) return fail_errno(errno, "see how much is free on the jail volume");
      free = static_cast<std::uint64_t>(there.f_bavail) * there.f_frsize;
      if (there.f_blocks == 0) free = 0;
      else if (free == 0) free = 1;
    }
    const std::uint64_t need = (image + added) / 10 * 11;
    if (free == 0 || free >= need) return {};  // some network file systems say nothing
    const auto mib = [](std::uint64_t bytes) { return (bytes >> 20) + 1; };
    return fail(Code::Exhausted, fmt::format("the jail volume has {} MiB free, and version {} needs {} MiB ({} MiB of the image, {} MiB that people added, a tenth more); nothing was written", mib(free) - 1, options_.version, mib(need), mib(image),
                                             mib(added)));
  }

  Result<void> fill(int versions, const JailRoot* old) {
    const std::string folder = options_.volume + "/" + kVersions;
    // Of a run that was killed, for this version or another.
    auto names = list_dir(folder);
    if (!names) return std::unexpected(std::move(names.error()));
    for (const auto& name : *names)
      if (name.ends_with(".tmp")) {
        step();
        if (auto removed = remove_tree(folder + "/" + name); !removed) return removed;
      }
    if (auto room = look_for_room(old); !room) return room;
    auto filled = fill_unfinished(versions, old);
    if (!filled)
      if (auto removed = remove_tree(folder + "/" + options_.version + ".tmp"); !removed) log_warn("a version that could not be made whole is still on the volume", {{"version", options_.version}, {"reason", removed.error().message}});
    return filled;
  }

  Result<void> fill_unfinished(int versions, const JailRoot* old) {
    const std::string unfinished = options_.version + ".tmp", path = options_.volume + "/" + kVersions + "/" + unfinished;
    step();
    if (::mkdirat(versions, unfinished.c_str(), 0700) != 0) return fail_errno(errno, "make " + path);
    const Fd to(::openat(versions, unfinished.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    const Fd from(::open(options_.source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!to || !from) return fail_errno(errno, "open " + (to ? options_.source : path));
    auto copied = copy_tree(from.get(), to.get(), {.leave_out = options_.leave_out, .on_entry = options_.on_step});
    if (!copied) return std::unexpected(std::move(copied.error()));
    out_.copied = std::move(*copied);
    for (const std::string_view people : kPeoples)
      if (auto shared = share(to.get(), std::string(people)); !shared) return shared;
    if (auto names = node_files(to.get()); !names) return names;
    auto manifest = write_manifest(to.get());
    if (!manifest) return std::unexpected(std::move(manifest.error()));
    if (old) {
      if (auto carried = carry_over(path, *old, *manifest); !carried) return carried;
    } else if (auto users = take_over_users(to.get()); !users) {
      return users;
    }
    auto filled = scan_tree(to.get(), {.leave_out = outside_of_versions(), .read = false});
    if (!filled) return pass(std::move(filled.error()), "list the new version");
    step();
    if (auto written = write_file_durably(carried_path(options_.volume, options_.version), print_manifest(*filled), 0600); !written) return written;
    step();
    // Everything, before the name by which it will be believed.
    if (::syncfs(to.get()) != 0) return fail_errno(errno, "sync " + path);
    step();
    if (auto written = write_file_durably(unserved_path(options_.volume, options_.version), "", 0600); !written) return written;
    step();
    return settle(versions, unfinished.c_str(), versions, options_.version.c_str());
  }

  // People's files lie beside the versions; the first version's own become theirs.
  Result<void> share(int root, const std::string& name) {
    struct stat info{};
    const bool in_root = ::fstatat(root, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
    step();
    if (in_root) {
      // Never over one that is there, be it empty: running nodes have that very folder mounted. (RENAME_NOREPLACE network file systems lack; nobody else makes folders here, for the volume is locked.)
      struct stat there{};
      if (::fstatat(volume_.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) return fail_errno(errno, "look at " + name + " of the volume");
        if (::renameat(root, name.c_str(), volume_.get(), name.c_str()) != 0) return fail_errno(errno, "share " + name);
      }
      if (auto removed = remove_tree(options_.volume + "/" + kVersions + "/" + options_.version + ".tmp/" + name); !removed) return removed;
    } else if (::mkdirat(volume_.get(), name.c_str(), name == "root" ? 0700 : 0755) != 0 && errno != EEXIST) {
      return fail_errno(errno, "make " + name);
    }
    step();
    auto made = mount_point(root, "/" + name, Kind::Folder);
    return made ? Result<void>{} : Result<void>(std::unexpected(std::move(made.error())));
  }

  // Each node has its own of these mounted there: plain files, not links that lead into another system's /run.
  Result<void> node_files(int root) const {
    auto etc = open_in_root(root, "/etc", O_RDONLY | O_DIRECTORY);
    if (!etc) return std::unexpected(std::move(etc.error()));
    for (const char* name : {"resolv.conf", "hosts", "hostname"})
      if (auto written = write_at(etc->get(), name, "", 0644); !written) return written;
    for (const char* folder : {"/proc", "/sys", "/dev", "/run", "/tmp", "/etc/slurm", "/var/spool/slurmd", "/opt/fairlead/bin"})
      if (auto made = mount_point(root, folder, Kind::Folder); !made) return std::unexpected(std::move(made.error()));
    return several_at_once(root);
  }

  // Tools that know of one machine only: apt-get gives up where another has dpkg's lock, and adduser keeps the lock under which it chooses a number below /run.
  static Result<void> several_at_once(int root) {
    if (auto apt = open_in_root(root, "/etc/apt/apt.conf.d", O_RDONLY | O_DIRECTORY); apt)
      if (auto written = write_at(apt->get(), "90fairlead-jail", "// Several nodes install into this root: wait for one another.\nDPkg::Lock::Timeout \"600\";\n", 0644); !written) return written;
    // After its lock, and apt's: an old version is not changed any more (tell_old_versions).
    const std::string look = fmt::format("if [ -e {} ]; then cat {} >&2; exit 1; fi", kReplaced, kReplaced);
    if (auto dpkg = open_in_root(root, "/etc/dpkg/dpkg.cfg.d", O_RDONLY | O_DIRECTORY); dpkg)
      if (auto written = write_at(dpkg->get(), "fairlead-jail", "# Sessions outlive the version of the shared root that they live in.\npre-invoke=" + look + "\n", 0644); !written) return written;
    auto own = mount_point(root, "/var/lib/fairlead", Kind::Folder), programs = mount_point(root, "/usr/local/sbin", Kind::Folder);
    if (!own || !programs) return std::unexpected(std::move(own ? programs.error() : own.error()));
    auto folder = open_in_root(root, "/usr/local/sbin", O_RDONLY | O_DIRECTORY);
    if (!folder) return std::unexpected(std::move(folder.error()));
    for (const char* name : {"adduser", "addgroup"}) {
      struct stat info{};
      if (!open_in_root(root, std::string("/usr/sbin/") + name, O_PATH) || !open_in_root(root, "/usr/bin/flock", O_PATH) || ::fstatat(folder->get(), name, &info, AT_SYMLINK_NOFOLLOW) == 0) continue;
      const std::string script = fmt::format("#!/bin/sh\n# On two nodes at once it would choose the same number twice.\nexec /usr/bin/flock {} /bin/sh -c '{}; exec /usr/sbin/{} \"$@\"' {} \"$@\"\n", kUsersLock, look, name, name);
      if (auto written = write_at(folder->get(), name, script, 0755); !written) return written;
    }
    return {};
  }

  Result<void> take_over_users(int root) {
    auto before = open_in_root(volume_.get(), "/etc", O_RDONLY | O_DIRECTORY);
    if (!before) return {};
    auto etc = open_in_root(root, "/etc", O_RDONLY | O_DIRECTORY);
    if (!etc) return std::unexpected(std::move(etc.error()));
    std::vector<std::string> groups;
    for (const auto& [name, kind, mode] : {std::tuple{"passwd", Accounts::Numbered, 0644}, {"shadow", Accounts::Named, 0640}, {"group", Accounts::Numbered, 0644}, {"gshadow", Accounts::Named, 0640}}) {
      const auto read = [&](int folder) {
        auto text = read_file(fmt::format("/proc/self/fd/{}/{}", folder, name));
        return text ? *text : std::string();
      };
      auto& taken = std::string_view(name).ends_with("group") || std::string_view(name) == "gshadow" ? groups : out_.users;
      const std::string base = read(etc->get()), merged = merged_accounts(base, read(before->get()), kind, taken);
      if (merged == base) continue;
      struct stat info{};
      const bool known = ::fstatat(etc->get(), name, &info, 0) == 0;
      step();
      if (auto written = write_at(etc->get(), name, merged, static_cast<mode_t>(mode)); !written) return written;
      if (known && ::fchownat(etc->get(), name, info.st_uid, info.st_gid, 0) != 0) return fail_errno(errno, std::string("chown ") + name);
    }
    return {};
  }

  const PopulateOptions& options_;
  const Fd volume_;
  Populated out_;
  const Manifest* base_ = nullptr;  // of the version that is replaced
  std::optional<Manifest> mine_;    // what of it was carried over
  std::vector<Fd> busy_;            // its locks
};

// In a JSON string; what is not ASCII is not needed to know which file is meant.
std::string quoted(std::string_view text, std::size_t most = 160) {
  std::string out = "\"";
  for (const char c : text.substr(0, most)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c < ' ' || c > '~' ? '?' : c;
  }
  return out + (text.size() > most ? "...\"" : "\"");
}

template <class Many>
std::string some(const Many& many, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < std::min(many.size(), most); ++i) out += (i ? "," : "") + quoted(many[i]);
  return "[" + out + "]";
}

std::string report(const Populated& done, std::chrono::nanoseconds took, std::size_t most) {
  std::string out = fmt::format("{{\"layout\":\"{}\",\"version\":\"{}\",\"made\":{},\"entries\":{},\"bytes\":{},\"without\":{},\"seconds\":{:.1f}", text(done.root.layout), done.root.version, done.made, done.copied.entries,
                                done.copied.bytes, done.copied.without, std::chrono::duration<double>(took).count());
  out += ",\"versions\":" + some(done.versions, most);
  if (!done.from.empty()) {
    std::vector<std::string> conflicts;
    for (const auto& one : done.replayed.conflicts) conflicts.push_back(one.path + ": " + one.why);
    out += fmt::format(",\"from\":\"{}\",\"built\":{},\"files\":{},\"removedFiles\":{},\"recordCount\":{},\"records\":{},\"conflictCount\":{},\"conflicts\":{},\"removed\":{},\"kept\":{}", done.from, done.built,
                       done.replayed.files, done.replayed.removed, done.replayed.records.size(), some(done.replayed.records, most), conflicts.size(), some(conflicts, most), some(done.removed, most), some(done.kept, most));
  }
  return out + "}";
}

// Kubernetes keeps 4096 bytes of a last word, and half of one says nothing.
std::string report(const Populated& done, std::chrono::nanoseconds took) {
  for (std::size_t most = 12;; --most)
    if (std::string out = report(done, took, most); out.size() <= 4000 || most == 0) return out;
}

}  // namespace

std::string merged_accounts(const std::string& base, const std::string& more, Accounts kind, std::vector<std::string>& taken) {
  std::set<std::string> known;
  for (const auto& line : lines_of(base)) known.insert(name_of(line));
  std::string out = base;
  if (!out.empty() && out.back() != '\n') out += '\n';
  for (const auto& line : lines_of(more)) {
    const std::string name = name_of(line);
    if (name.empty() || known.contains(name)) continue;
    if (kind == Accounts::Named) {
      if (std::find(taken.begin(), taken.end(), name) == taken.end()) continue;
    } else {
      const auto fields = split(line, ':');
      unsigned number = 0;
      if (fields.size() < 4) continue;
      const auto [end, error] = std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), number);
      if (error != std::errc() || end != fields[2].data() + fields[2].size() || number < 1000 || number >= 65534) continue;
      taken.push_back(name);
    }
    known.insert(name);
    out += line + "\n";
  }
  return out;
}

std::set<std::string> mount_points(const std::string& mountinfo) {
  std::set<std::string> out;
  for (const auto& line : lines_of(mountinfo)) {
    const auto fields = split(line, ' ');
    if (fields.size() < 5) continue;
    std::string path;
    for (std::size_t i = 0; i < fields[4].size(); ++i) {
      const std::string_view rest = std::string_view(fields[4]).substr(i);
      unsigned value = 0;
      if (rest.size() >= 4 && rest[0] == '\\' && std::from_chars(rest.data() + 1, rest.data() + 4, value, 8).ptr == rest.data() + 4) {
        path += static_cast<char>(value);
        i += 3;
      } else {
        path += rest[0];
      }
    }
    if (path != "/") out.insert(std::move(path));
  }
  return out;
}

Result<Populated> populate(const PopulateOptions& options) {
  Fd volume(::open(options.volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!volume) return fail_errno(errno, "open " + options.volume);
  const Fd lock(::openat(volume.get(), kLock, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail_errno(errno, std::string("make ") + kLock);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  while (::fcntl(lock.get(), F_OFD_SETLKW, &whole) != 0)
    if (errno != EINTR) return fail_errno(errno, "lock the jail volume");
  return Populator(options, std::move(volume)).run();
}

int run_populate(const std::vector<std::string>& arguments) {
  PopulateOptions options{.volume = "/mnt/jail-volume"};
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (arguments[i] == "--renew") {
      options.renew = true;
      continue;
    }
    if (arguments[i] == "--volume") options.volume = value;
    else if (arguments[i] == "--version") options.version = value;
    else if (arguments[i] == "--nodes" && !value.empty()) options.nodes = split(value, ',');
    ++i;
  }
  options.link_cache = [](const std::string& root) -> Result<void> {
    // This image's own program, in the new root.
    auto made = run_checked({.argv = {"ldconfig", "-r", root}}, std::chrono::seconds(300));
    return made ? Result<void>{} : Result<void>(std::unexpected(std::move(made.error())));
  };
  const SystemClock clock;
  const auto started = clock.monotonic();
  std::string told;
  int status = 0;
  auto mounts = read_file("/proc/self/mountinfo");
  if (mounts) {
    options.leave_out = mount_points(*mounts);
    log_info("looking at the jail volume", {{"volume", options.volume}, {"version", options.version}});
    auto done = populate(options);
    if (done) {
      told = report(*done, clock.monotonic() - started);
      for (const auto& example : done->copied.examples) log_warn("the volume cannot hold this", {{"what", example}});
    } else {
      told = done.error().message;
      status = 1;
    }
  } else {
    told = mounts.error().message;
    status = 1;
  }
  std::fprintf(status == 0 ? stdout : stderr, "%s\n", told.c_str());
  // Where Kubernetes looks for a last word.
  if (exists("/dev/termination-log")) {
    const Fd log(::open("/dev/termination-log", O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (log && ::write(log.get(), told.data(), told.size()) < 0) log_warn("the last word was not written", {});
  }
  return status;
}

}  // namespace fairlead::companion
