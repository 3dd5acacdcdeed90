// SPDX-License-Identifier: Apache-2.0
#include "blocks/staging.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "blocks/block_devices.h"

namespace fairlead::blocks {

Result<void> make_folder(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash > 0)
    if (auto made = make_dirs(path.substr(0, slash), 0750); !made) return made;
  if (::mkdir(path.c_str(), 0750) != 0 && errno != EEXIST) return fail_errno(errno, "make " + path);
  struct stat about {};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return fail(Code::Invalid, path + " is no folder");
  return {};
}

Result<void> stage(const Stage& wanted) {
  const auto all = mounts();
  if (!all) return std::unexpected(all.error());
  const auto there = mount_at(*all, wanted.place);
  const auto device = device_of(wanted.volume, wanted.device, there ? &*there : nullptr);
  if (!device) return std::unexpected(device.error());
  const bool read_only = wanted.read_only || device->read_only;
  if (there) {
    if (!shows(*there, *device)) return fail(Code::Internal, fmt::format("something else is mounted at {}", wanted.place));
    if (there->read_only != read_only || (!wanted.type.empty() && there->type != wanted.type)) return fail(Code::Exists, fmt::format("volume {} is at {} as {}{}", wanted.volume, wanted.place, there->type, there->read_only ? ", read-only" : ""));
    return {};
  }
  auto type = file_system_on(*device);
  if (!type) return std::unexpected(std::move(type.error()));
  if (type->empty()) {
    if (read_only) return fail(Code::Conflict, fmt::format("volume {} is empty and read-only: it cannot be formatted", wanted.volume));
    type = wanted.type.empty() ? "ext4" : wanted.type;
    log_info("a volume is formatted", {{"volume", wanted.volume}, {"device", device->path}, {"type", *type}});
    if (auto done = make_file_system(*device, *type); !done) return done;
  } else {
    if (*type != "ext4" && *type != "xfs") return fail(Code::Conflict, fmt::format("volume {} holds {}, which is not mounted: it is left as it is", wanted.volume, *type));
    if (!wanted.type.empty() && *type != wanted.type) return fail(Code::Conflict, fmt::format("volume {} holds {}, and {} is asked for: it is not formatted anew", wanted.volume, *type, wanted.type));
    if (auto done = check_file_system(*device, *type, read_only); !done) return done;
  }
  if (auto made = make_folder(wanted.place); !made) return made;
  if (auto done = mount_device(*device, *type, wanted.place, wanted.flags, read_only); !done) return done;
  // One that was restored into a larger volume, or whose volume grew meanwhile.
  if (*type == "xfs" && !read_only)
    if (auto done = grow_file_system(*device, *type, wanted.place); !done) log_warn("a file system is not as large as its volume", {{"volume", wanted.volume}, {"why", done.error().message}});
  return {};
}

Result<void> settle(const std::string& volume, const std::string& told) {
  const auto held = open_device(volume, told);
  if (!held) return std::unexpected(held.error());
  const Device& device = held->device;
  if (device.read_only) return {};
  const auto type = file_system_on(device);
  if (!type && type.error().code != Code::Conflict) return std::unexpected(type.error());
  if (!type || (*type != "ext4" && *type != "xfs")) return {};
  if (*type == "ext4") return check_file_system(device, *type, false);
  // xfs does that in the kernel alone. In a mount table of this thread's own: whatever happens, nothing stays mounted. There it hides a folder that the tools do not need; nothing is made, for the root may be read-only.
  const std::string place = exists("/mnt") ? "/mnt" : exists("/tmp") ? "/tmp" : "/run";
  Result<void> done;
  std::thread([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      done = fail_errno(errno, "make a mount table of one's own");
      return;
    }
    done = mount_device(device, *type, place, {}, false);
    if (done) {
      if (auto grown = grow_file_system(device, *type, place); !grown) log_warn("a file system is not as large as its volume", {{"volume", volume}, {"why", grown.error().message}});
      if (::umount2(place.c_str(), UMOUNT_NOFOLLOW) != 0) done = fail_errno(errno, fmt::format("unmount volume {}", volume));
    }
  }).join();
  return done;
}

Result<void> grow_to_device(const std::string& place, std::int64_t& known) {
  const auto all = mounts();
  if (!all) return std::unexpected(all.error());
  const auto there = mount_at(*all, place);
  if (!there || there->read_only || (there->type != "xfs" && there->type != "ext4")) return {};
  // By what the kernel calls it: its number is of now.
  const auto about = read_file(fmt::format("/sys/dev/block/{}:{}/uevent", there->major, there->minor), 64_KiB);
  if (!about) return std::unexpected(about.error());
  Device device{.path = {}, .major = there->major, .minor = there->minor, .read_only = false};
  for (const std::string& line : split(*about, '\n'))
    if (line.starts_with("DEVNAME=")) device.path = "/dev/" + line.substr(8);
  if (device.path.empty()) return fail(Code::Internal, fmt::format("what is mounted at {} is of no device", place));
  const auto size = device_size(device);
  if (!size) return std::unexpected(size.error());
  if (*size == known) return {};
  if (auto done = grow_file_system(device, there->type, place); !done) {
    if (done.error().code == Code::Unsupported) known = *size;  // when it is mounted next
    return done;
  }
  known = *size;
  return {};
}

}  // namespace fairlead::blocks
