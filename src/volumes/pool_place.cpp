// SPDX-License-Identifier: Apache-2.0
#include "volumes/pool_place.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/loop_device.h"
#include "base/process.h"
#include "base/units.h"
#include "volumes/file_pool.h"

namespace fairlead::volumes {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t least_pool = std::int64_t{1} << 30;
constexpr auto limit = 600s;

std::string above(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == 0 || slash == path.npos ? "/" : path.substr(0, slash);
}

// Is something mounted at the folder, and is it this image?
enum class Mounted { Nothing, Image, Other };
Result<Mounted> look_at(const PoolPlace& place) {
  struct stat own {}, over {}, image {};
  if (::stat(place.folder.c_str(), &own) != 0) return errno == ENOENT ? Result<Mounted>(Mounted::Nothing) : fail_errno(errno, "look at " + place.folder);
  if (::stat(above(place.folder).c_str(), &over) != 0) return fail_errno(errno, "look at " + above(place.folder));
  if (own.st_dev == over.st_dev) return Mounted::Nothing;
  if (place.image.empty() || ::stat(place.image.c_str(), &image) != 0 || major(own.st_dev) != 7) return Mounted::Other;
  const Fd loop(::open(fmt::format("/dev/loop{}", minor(own.st_dev)).c_str(), O_RDONLY | O_CLOEXEC));
  loop_info64 about{};
  if (!loop || ::ioctl(loop.get(), LOOP_GET_STATUS64, &about) != 0) return fail_errno(errno, fmt::format("look at /dev/loop{}", minor(own.st_dev)));
  return about.lo_device == image.st_dev && about.lo_inode == image.st_ino ? Mounted::Image : Mounted::Other;
}

Result<void> sync_folder(const std::string& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd && ::fsync(fd.get()) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "sync " + folder));
}

// The loop device that has the image, whoever set it up; empty: none.
Result<std::string> shown_by(const std::string& image) {
  struct stat about {};
  if (::stat(image.c_str(), &about) != 0) return errno == ENOENT ? Result<std::string>("") : fail_errno(errno, "look at " + image);
  const auto names = list_dir("/sys/block");
  if (!names) return std::unexpected(names.error());
  for (const std::string& name : *names) {
    if (!name.starts_with("loop") || !exists("/sys/block/" + name + "/loop")) continue;
    const Fd loop(::open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    loop_info64 seen{};
    if (loop && ::ioctl(loop.get(), LOOP_GET_STATUS64, &seen) == 0 && seen.lo_device == about.st_dev && seen.lo_inode == about.st_ino) return "/dev/" + name;
  }
  return std::string();
}

Result<void> make_image(const PoolPlace& place) {
  if (place.size < least_pool) return fail(Code::Invalid, fmt::format("{} is not there: say how large it is to be, {} at least", place.image, print(Bytes{least_pool})));
  if (auto made = make_dirs(above(place.image), 0700); !made) return made;
  // Under another name until it is whole: what has the image's name is never formatted.
  const std::string unfinished = place.image + ".new";
  if (::unlink(unfinished.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + unfinished);
  {
    const Fd fd(::open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return fail_errno(errno, "make " + unfinished);
    const int done = place.sparse ? ::ftruncate(fd.get(), place.size) : ::fallocate(fd.get(), 0, 0, place.size);
    if (done != 0) {
      const int error = errno;
      ::unlink(unfinished.c_str());
      if (error == ENOSPC) return fail(Code::Exhausted, fmt::format("{} has not {} free for a pool: make room, ask for less, or say --sparse", above(place.image), print(Bytes{place.size})));
      return fail_errno(error, "size " + unfinished);
    }
  }
  auto made = run_checked({.argv = {"mkfs.xfs", "-q", "-m", "reflink=1", "-L", "fairlead", unfinished}}, limit);
  if (!made) return pass(std::move(made.error()), "make the file system of the pool");
  const Fd fd(::open(unfinished.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return fail_errno(errno, "sync " + unfinished);
  if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, place.image.c_str(), RENAME_NOREPLACE) != 0) return fail_errno(errno, "name " + place.image);
  return sync_folder(above(place.image));
}

// Of the image that is mounted there, also what was mounted by an older version and is used. Where it cannot be, the pool is as right, and slower.
void pass_cache(const PoolPlace& place) {
  struct stat about {};
  if (::stat(place.folder.c_str(), &about) != 0) return;
  const std::string device = fmt::format("/dev/loop{}", minor(about.st_dev));
  if (const auto passes = loop_past_cache(device); !passes.value_or(false)) log_warn("the pool's image is read and written through the page cache: a sync takes longer", {{"image", place.image}, {"device", device}, {"why", passes ? "what it lies on cannot do otherwise" : passes.error().message}});
}

}  // namespace

Result<void> prepare_place(const PoolPlace& place) {
  if (auto made = make_dirs(place.folder, 0700); !made) return made;
  if (place.image.empty()) return {};
  const auto mounted = look_at(place);
  if (!mounted) return std::unexpected(mounted.error());
  if (*mounted == Mounted::Image) {
    pass_cache(place);
    return {};
  }
  if (*mounted == Mounted::Other) return fail(Code::Invalid, fmt::format("something else is mounted at {}", place.folder));
  if (!exists(place.image))
    if (auto made = make_image(place); !made) return made;
  const auto names = list_dir(place.folder);
  if (!names) return std::unexpected(names.error());
  if (!names->empty()) return fail(Code::Invalid, fmt::format("{} is not empty: the pool would hide what is there", place.folder));
  auto done = run_checked({.argv = {"mount", "-t", "xfs", "-o", "loop,nosuid,nodev,noexec,noatime", place.image, place.folder}}, limit);
  if (!done) return pass(std::move(done.error()), "mount the pool");
  pass_cache(place);
  return {};
}

Result<void> destroy_place(const PoolPlace& place, bool keep) {
  const auto mounted = look_at(place);
  if (!mounted) return std::unexpected(mounted.error());
  if (!place.image.empty() && *mounted == Mounted::Other) return fail(Code::Invalid, fmt::format("something else is mounted at {}", place.folder));
  if (exists(place.folder + "/pool.id")) {
    auto pool = open_file_pool(place.folder);
    if (!pool) return std::unexpected(std::move(pool.error()));
    const auto ids = (*pool)->ids();
    if (!ids) return std::unexpected(ids.error());
    // All are looked at before one is taken away. Of nodes that have just ended the kernel lets go a moment later.
    std::vector<std::pair<std::string, std::string>> shown;
    std::string used;
    for (int tries = 0; tries < 50; ++tries) {
      if (tries > 0) ::usleep(100'000);
      shown.clear(), used.clear();
      for (const std::string& id : *ids) {
        const auto seen = (*pool)->look(id);
        if (!seen) return std::unexpected(seen.error());
        for (const DeviceSeen& device : seen->devices) {
          if ((*pool)->is_used(device.name).value_or(true)) used = fmt::format("{} shows volume {} and is used: unmount it first", device.name, id);
          shown.emplace_back(id, device.name);
        }
      }
      if (used.empty()) break;
    }
    if (!used.empty()) return fail(Code::Conflict, used);
    for (const auto& [id, device] : shown)
      if (auto done = (*pool)->detach(id, device); !done) return done;
    for (const std::string& id : *ids) {
      const auto seen = (*pool)->look(id);
      if (!seen) return std::unexpected(seen.error());
      if (!seen->engine) continue;
      if (auto done = (*pool)->stop_engine(id); !done) return done;
    }
  }
  if (place.image.empty()) return {};
  // Mounted where this process does not see it, in a service's own mount table, say.
  if (*mounted == Mounted::Nothing)
    if (auto shown = shown_by(place.image); !shown || !shown->empty()) return shown ? fail(Code::Conflict, fmt::format("{} shows {}, which is not mounted at {} here: stop who has it first", *shown, place.image, place.folder)) : Result<void>(std::unexpected(std::move(shown.error())));
  // The kernel lets go of devices a moment later.
  for (int tries = 0; *mounted == Mounted::Image && ::umount2(place.folder.c_str(), 0) != 0; ++tries) {
    if (errno != EBUSY || tries == 100) return errno == EBUSY ? fail(Code::Conflict, fmt::format("{} is in use", place.folder)) : fail_errno(errno, "unmount " + place.folder);
    ::usleep(50'000);
  }
  if (::rmdir(place.folder.c_str()) != 0 && errno != ENOENT && errno != ENOTEMPTY) return fail_errno(errno, "remove " + place.folder);
  for (const std::string& path : {keep ? std::string() : place.image, place.image + ".new"})
    if (!path.empty() && ::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "delete " + path);
  return {};
}

}  // namespace fairlead::volumes
