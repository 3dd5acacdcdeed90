// SPDX-License-Identifier: GPL-3.0-or-later
#include "replay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "copy_tree.h"

namespace fairlead::companion {
namespace {

const ManifestEntry* find(const Manifest& in, const std::string& path) {
  const auto at = in.find(path);
  return at == in.end() ? nullptr : &at->second;
}

bool below(std::string_view path, std::string_view folder) { return path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/'; }

bool is_byte_code(std::string_view path) { return path.find("/__pycache__/") != path.npos; }

// What programs write for themselves.
bool is_volatile(std::string_view path) {
  for (const char* folder : {"/var/log", "/var/cache", "/var/lib/apt/lists", "/var/lib/apt/periodic"})
    if (below(path, folder)) return true;
  return (below(path, "/etc") && path.ends_with('-')) || (below(path, "/var/lib/dpkg") && (path.ends_with("-old") || path.ends_with("/lock") || path.ends_with("/lock-frontend"))) || path == "/var/lib/dpkg/available" ||
         path == "/etc/.pwd.lock" || path == "/var/lib/fairlead/users.lock" || path == "/etc/mtab" || path == "/etc/machine-id";
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// A folder of a root, with no link on the way: what is a link in one root may be a folder in the other.
Fd open_folder(int root, const std::string& path) {
  open_how how{};
  how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  return Fd(static_cast<int>(::syscall(SYS_openat2, root, path.empty() ? "." : path.c_str() + 1, &how, sizeof how)));
}

// Somebody made something else of a folder on the way, or of the whole way one that cannot be walked: told, and never a reason to fail every try. Any other error but ENOENT says nothing of what is there.
bool is_no_folder(int error) { return error == ENOTDIR || error == ELOOP || error == EXDEV || error == ENAMETOOLONG; }

class Replayer {
 public:
  Replayer(const ReplayPlan& plan, const Manifest& mine, const ReplayOptions& options) : plan_(plan), mine_(mine), options_(options) {}

  Result<Replayed> run() {
    from_ = Fd(::open(options_.from.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    to_ = Fd(::open(options_.to.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!from_ || !to_) return fail_errno(errno, "open " + (from_ ? options_.to : options_.from));
    for (const auto& path : plan_.remove)
      if (auto done = remove(path); !done) return std::unexpected(std::move(done.error()));
    for (const auto& path : plan_.copy)
      if (auto done = copy(path); !done) return std::unexpected(std::move(done.error()));
    for (const auto& path : plan_.merge)
      if (auto done = merge(path); !done) return std::unexpected(std::move(done.error()));
    for (const auto& conflict : plan_.conflicts)
      if (auto done = set_aside(conflict); !done) return std::unexpected(std::move(done.error()));
    if (auto done = list_conflicts(); !done) return std::unexpected(std::move(done.error()));
    step();
    if (plan_.link_cache && options_.link_cache)
      if (auto made = options_.link_cache(options_.to); !made) out_.conflicts.push_back({kLinkCache, "was not made anew (run ldconfig): " + made.error().message});
    return std::move(out_);
  }

 private:
  void step() const {
    if (options_.on_step) options_.on_step();
  }

  Result<void> remove(const std::string& path) {
    step();
    const Fd folder = open_folder(to_.get(), folder_of(path));
    if (!folder && errno == ENOENT) return {};
    if (!folder && !is_no_folder(errno)) return fail_errno(errno, "open the folder of " + path);
    if (!folder) {
      out_.conflicts.push_back({path, "removed here, its folder is no folder in the new image"});
      return {};
    }
    const auto name = name_of(path);
    if (::unlinkat(folder.get(), name.c_str(), 0) == 0 || (errno == EISDIR && ::unlinkat(folder.get(), name.c_str(), AT_REMOVEDIR) == 0)) ++out_.removed;
    else if (errno == ENOTEMPTY || errno == EEXIST) out_.conflicts.push_back({path, "removed here, the new image has more in it"});
    else if (errno != ENOENT) return fail_errno(errno, "remove " + path);
    return {};
  }

  // Folders that the new image lacks are made as the old version has them. No folder: something else stands there.
  Result<Fd> folder_for(const std::string& path) {
    if (Fd there = open_folder(to_.get(), path)) return there;
    if (is_no_folder(errno)) return Fd();
    if (errno != ENOENT) return fail_errno(errno, "open " + path + " in the new version");
    auto parent = folder_for(folder_of(path));
    if (!parent || !*parent) return parent;
    const Fd from = open_folder(from_.get(), folder_of(path));
    if (!from && errno != ENOENT && !is_no_folder(errno)) return fail_errno(errno, "open the folder of " + path);
    if (!from) return Fd();
    auto made = copy_entry(from.get(), parent->get(), name_of(path), path);
    if (!made) return std::unexpected(std::move(made.error()));
    return open_folder(to_.get(), path);
  }

  Result<void> copy(const std::string& path) {
    step();
    const ManifestEntry& entry = mine_.at(path);
    const std::string name = name_of(path);
    const Fd from = open_folder(from_.get(), folder_of(path));
    if (!from && errno == ENOENT) return {};  // gone since it was looked at
    if (!from && !is_no_folder(errno)) return fail_errno(errno, "open the folder of " + path);
    if (!from) {
      out_.conflicts.push_back({path, "its folder cannot be opened, and no copy was made"});
      return {};
    }
    auto to = folder_for(folder_of(path));
    if (!to) return std::unexpected(std::move(to.error()));
    if (!*to) return set_aside({path, "its folder is no folder in the new image"});
    struct stat there{};
    if (::fstatat(to->get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && !(S_ISDIR(there.st_mode) && entry.type == 'd')) {
      if (::unlinkat(to->get(), name.c_str(), S_ISDIR(there.st_mode) ? AT_REMOVEDIR : 0) != 0) {
        if (errno == ENOTEMPTY || errno == EEXIST) return set_aside({path, "a folder with other things in the new image"});
        return fail_errno(errno, "replace " + path);
      }
    }
    struct stat info{};
    if (::fstatat(from.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? Result<void>{} : Result<void>(fail_errno(errno, "stat " + path));
    ++out_.files;
    if (!S_ISDIR(info.st_mode) && info.st_nlink > 1) {
      const auto [first, is_first] = linked_.try_emplace({info.st_dev, info.st_ino}, path.substr(1));
      if (!is_first && ::linkat(to_.get(), first->second.c_str(), to->get(), name.c_str(), 0) == 0) return {};
    }
    auto copied = copy_entry(from.get(), to->get(), name, path);
    if (copied || copied.error().code == Code::NotFound) return {};
    return std::unexpected(std::move(copied.error()));
  }

  Result<void> merge(const std::string& path) {
    step();
    const auto read = [&](int root, const std::string& shown) -> Result<std::string> {
      const Fd folder = open_folder(root, folder_of(path));
      const Fd file(folder ? ::openat(folder.get(), name_of(path).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1);
      if (!file) return fail_errno(errno, "open " + shown + path);
      return read_file(fmt::format("/proc/self/fd/{}", file.get()));
    };
    auto base = read_file(options_.base_files + path);
    auto mine = read(from_.get(), options_.from), theirs = read(to_.get(), options_.to);
    // With people's records or packages left out nobody could log in to the new version: no reason to go on.
    if (!base) return pass(std::move(base.error()), "merge " + path);
    if (!theirs) return pass(std::move(theirs.error()), "merge " + path);
    if (!mine && mine.error().code == Code::NotFound) return set_aside({path, "could not be merged: " + mine.error().message});
    if (!mine) return pass(std::move(mine.error()), "merge " + path);
    Merged merged = merge_records(*records_of(path), *base, *mine, *theirs);
    for (auto& why : merged.conflicts) out_.conflicts.push_back({path, std::move(why)});
    if (!merged.conflicts.empty())
      if (auto kept = keep(path); !kept) return kept;
    out_.records.insert(out_.records.end(), merged.carried.begin(), merged.carried.end());
    if (merged.text == *theirs) return {};
    // In place: it keeps the owner and mode that the new image gave it, and nobody reads it yet.
    const Fd folder = open_folder(to_.get(), folder_of(path));
    const Fd file(folder ? ::openat(folder.get(), name_of(path).c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW) : -1);
    if (!file) return fail_errno(errno, "write " + path);
    for (std::size_t at = 0; at < merged.text.size();) {
      const ssize_t n = ::write(file.get(), merged.text.data() + at, merged.text.size() - at);
      if (n <= 0) return fail_errno(n == 0 ? ENOSPC : errno, "write " + path);
      at += static_cast<std::size_t>(n);
    }
    return {};
  }

  Result<void> set_aside(Conflict conflict) {
    const std::string path = conflict.path;
    out_.conflicts.push_back(std::move(conflict));
    return keep(path);
  }

  // The copy that did not win.
  Result<void> keep(const std::string& path) {
    step();
    const ManifestEntry* entry = find(mine_, path);
    if (!entry || entry->type == 'd') return {};
    const std::string inside = fmt::format("{}/{}{}", kConflicts, options_.from_name, folder_of(path));
    if (inside.size() + name_of(path).size() >= PATH_MAX - 1) {
      out_.conflicts.push_back({path, "its path is too long for a copy of it to be kept"});
      return {};
    }
    if (auto made = aside_folder(inside); !made) return made;
    const Fd to = open_folder(to_.get(), inside);
    if (!to) return fail_errno(errno, "open " + inside);
    const Fd from = open_folder(from_.get(), folder_of(path));
    if (!from && (errno == ENOENT || is_no_folder(errno))) return {};  // it is in the list
    if (!from) return fail_errno(errno, "open the folder of " + path);
    ::unlinkat(to.get(), name_of(path).c_str(), 0);
    auto copied = copy_entry(from.get(), to.get(), name_of(path), path);
    if (copied || copied.error().code == Code::NotFound) return {};
    return std::unexpected(std::move(copied.error()));
  }

  // The topmost is root's alone: set-user-id programs among the copies are nobody's to run.
  Result<void> aside_folder(const std::string& path) {
    std::string done;
    for (const auto& part : split(path.substr(1), '/')) {
      const Fd parent = open_folder(to_.get(), done);
      if (!parent) return fail_errno(errno, "open " + done + " in the new version");
      done += "/" + part;
      if (::mkdirat(parent.get(), part.c_str(), done == kConflicts ? 0700 : 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make " + done);
    }
    return {};
  }

  Result<void> list_conflicts() {
    if (out_.conflicts.empty()) return {};
    std::string text = fmt::format("# What of version {} was not carried over, since the image of this version has it otherwise. The old copies are in {}/{}\n", options_.from_name, kConflicts, options_.from_name);
    for (const auto& one : out_.conflicts) text += one.path + ": " + one.why + "\n";
    if (auto made = aside_folder(kConflicts); !made) return made;
    const Fd folder = open_folder(to_.get(), kConflicts);
    const std::string name = options_.from_name + ".txt";
    if (folder) ::unlinkat(folder.get(), name.c_str(), 0);
    const Fd file(folder ? ::openat(folder.get(), name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600) : -1);
    if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return fail_errno(errno ? errno : ENOSPC, "write the list of conflicts");
    return {};
  }

  const ReplayPlan& plan_;
  const Manifest& mine_;
  const ReplayOptions& options_;
  Fd from_, to_;
  Replayed out_;
  std::map<std::pair<dev_t, ino_t>, std::string> linked_;
};

}  // namespace

const std::set<std::string>& outside_of_versions() {
  static const std::set<std::string> paths = {"/proc", "/sys", "/dev", "/run", "/tmp", "/home", "/root", "/etc/slurm", "/var/spool/slurmd", "/opt/fairlead", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname", kReplaced};
  return paths;
}

ReplayPlan plan_replay(const Manifest& base, const Manifest& mine, const Manifest& theirs) {
  ReplayPlan out;
  std::set<std::string> paths;
  for (const auto& [path, entry] : mine)
    if (const auto* before = find(base, path); !before || !same(*before, entry)) paths.insert(path);
  for (const auto& [path, entry] : base)
    if (!mine.contains(path)) paths.insert(path);
  for (const auto& path : paths) {
    const ManifestEntry *b = find(base, path), *m = find(mine, path), *t = find(theirs, path);
    if (path == kLinkCache) {
      out.link_cache = true;
      continue;
    }
    if (m && t && same(*m, *t)) continue;
    if (is_byte_code(path)) {
      if (m && !t) out.copy.push_back(path);  // Python makes it again where it does not fit
      continue;
    }
    if (is_volatile(path)) {
      if (m) out.copy.push_back(path);
      continue;
    }
    if (!m) {
      if (!t) continue;
      if (same(*b, *t)) out.remove.push_back(path);
      else out.conflicts.push_back({path, "removed here, changed in the new image"});
      continue;
    }
    if (b && t && m->type == 'f' && b->type == 'f' && t->type == 'f' && records_of(path)) {
      out.merge.push_back(path);
      continue;
    }
    if (!t && !b) out.copy.push_back(path);
    else if (!t) out.conflicts.push_back({path, "changed here, gone from the new image"});
    else if (!b) out.conflicts.push_back({path, "added here and in the new image"});
    else if (same(*b, *t)) out.copy.push_back(path);
    else out.conflicts.push_back({path, "changed here and in the new image"});
  }
  std::reverse(out.remove.begin(), out.remove.end());
  return out;
}

std::vector<std::string> written_since(const Manifest& then, const Manifest& now) {
  std::vector<std::string> out;
  for (const auto& [path, entry] : now) {
    if (entry.type == 'd' || path == kLinkCache || is_byte_code(path) || is_volatile(path)) continue;
    ManifestEntry unread = entry;
    const ManifestEntry* before = find(then, path);
    if (before) unread.hash = before->hash;
    if (!before || unread != *before) out.push_back(path);
  }
  return out;
}

Result<Replayed> replay(const ReplayPlan& plan, const Manifest& mine, const ReplayOptions& options) { return Replayer(plan, mine, options).run(); }

}  // namespace fairlead::companion
