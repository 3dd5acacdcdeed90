// SPDX-License-Identifier: GPL-3.0-or-later
#include "sets_jail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "copy_tree.h"
#include "jail_layout.h"

namespace fairlead::companion {
namespace {

Result<std::set<std::string>> left_out(const std::string& volume, int fd) {
  std::set<std::string> out = {std::string("/") + kRestoredFolder, "/lost+found"};
  auto layout = read_layout(fd);
  if (!layout && layout.error().code != Code::NotFound) return std::unexpected(std::move(layout.error()));
  if (!layout || *layout != Layout::Versions) return out;
  auto root = find_root(fd);
  if (!root && root.error().code != Code::NotFound) return std::unexpected(std::move(root.error()));
  auto versions = list_dir(volume + "/" + kVersions);
  if (!versions && versions.error().code != Code::NotFound) return std::unexpected(std::move(versions.error()));
  if (versions)
    for (const std::string& name : *versions)
      if (!root || name != root->version) out.insert(fmt::format("/{}/{}", kVersions, name));
  return out;
}

std::pair<std::string, std::string> parts_of(const std::string& path) {  // "/a/b" -> "a", "b"; "/a" -> ".", "a"
  const auto slash = path.rfind('/');
  return {slash == 0 ? "." : path.substr(1, slash - 1), path.substr(slash + 1)};
}

// A folder below another one, kept open until another is asked for. Links on the way that lead out are refused.
class Below {
 public:
  explicit Below(std::string root) : root_(std::move(root)) {}
  Result<int> open(const std::string& path) {
    if (fd_ && path == path_) return fd_.get();
    auto fd = open_beneath(root_, path, O_RDONLY | O_DIRECTORY);
    if (!fd) return std::unexpected(std::move(fd.error()));
    fd_ = std::move(*fd);
    path_ = path;
    return fd_.get();
  }

 private:
  const std::string root_;
  std::string path_;
  Fd fd_;
};

Manifest manifest_of(const std::string& set) {  // as it was read back
  if (auto text = read_file(set + "/jail.manifest", 4096_MiB))
    if (auto manifest = parse_manifest(*text)) return std::move(*manifest);
  return {};
}

bool is_unchanged(const JailCopy& copy, const std::string& path, const ManifestEntry& entry) {
  const auto before = copy.before.find(path);
  return entry.type == 'f' && entry.ctime != 0 && before != copy.before.end() && before->second == entry;
}

// Of the folder that something was in: it went away, or became something else.
bool is_gone(const Error& error) { return error.code == Code::NotFound || error.code == Code::Forbidden || error.code == Code::Invalid; }

}  // namespace

Result<JailCopy> look_at_jail(const std::string& volume, const std::string& set_before) {
  JailCopy out;
  const Fd fd(::open(volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + volume);
  auto leave_out = left_out(volume, fd.get());
  if (!leave_out) return std::unexpected(std::move(leave_out.error()));
  if (!set_before.empty())
    if (auto text = read_file(set_before + "/jail.seen", 4096_MiB))
      if (auto before = parse_manifest(*text)) out.before = std::move(*before);
  const auto began = std::chrono::duration_cast<std::chrono::nanoseconds>(SystemClock().now().time_since_epoch()).count();
  auto seen = scan_tree(fd.get(), {.leave_out = *leave_out, .known = &out.before, .read = false, .bytes = &out.new_bytes});
  if (!seen) return std::unexpected(std::move(seen.error()));
  out.seen = std::move(*seen);
  // Within one tick of the kernel's clock a file can change twice: what is that young counts as changed the next time.
  for (auto& [path, entry] : out.seen)
    if (entry.type == 'f' && entry.ctime > began - 2'000'000'000) entry.ctime = 0;
  return out;
}

Result<void> copy_jail(const JailCopy& copy, const std::string& volume, const std::string& set, const std::string& set_before) {
  const std::string to = set + "/jail", older = set_before + "/jail";
  const Manifest sound = set_before.empty() ? Manifest() : manifest_of(set_before);
  Below from(volume), target(to), linked(older);
  for (const auto& [path, entry] : copy.seen) {
    const auto [parent, name] = parts_of(path);
    auto there = target.open(parent);
    if (!there) {
      if (is_gone(there.error())) continue;  // of a folder that went away
      return std::unexpected(std::move(there.error()));
    }
    if (const auto had = sound.find(path); is_unchanged(copy, path, entry) && had != sound.end() && had->second.type == 'f' && had->second.size == entry.size) {
      auto at = linked.open(parent);
      if (at && ::linkat(*at, name.c_str(), *there, name.c_str(), 0) == 0) continue;
    }
    auto source = from.open(parent);
    if (!source) {
      if (is_gone(source.error())) continue;
      return std::unexpected(std::move(source.error()));
    }
    auto done = copy_entry(*source, *there, name, path);
    if (done) continue;
    if (done.error().code != Code::NotFound) return std::unexpected(std::move(done.error()));
    (void)::unlinkat(*there, name.c_str(), 0);
  }
  return write_file_durably(set + "/jail.seen", print_manifest(copy.seen), 0600);
}

Result<void> links_are_sound(const JailCopy& copy, const std::string& set, const std::string& set_before) {
  const Manifest now = manifest_of(set), sound = manifest_of(set_before);
  for (const auto& [path, entry] : now) {
    const auto seen = copy.seen.find(path);
    const auto had = sound.find(path);
    if (seen == copy.seen.end() || had == sound.end() || !is_unchanged(copy, path, seen->second)) continue;
    if (!same(entry, had->second)) return fail(Code::Invalid, fmt::format("{}/jail{} is not what was written there", set_before, path));
  }
  return {};
}

}  // namespace fairlead::companion
