// SPDX-License-Identifier: Apache-2.0
#include "volumes/shown.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <thread>

#include "base/files.h"
#include "blocks/ublk.h"
#include "volumes/plan/ledger.h"

namespace fairlead::volumes {

using namespace std::chrono_literals;
namespace {

// The name, without folders, of the file behind a loop device, as the kernel tells it without asking who serves the file; nothing: there is none.
std::optional<std::string> backing_of(const std::string& loop) {
  auto text = read_file("/sys/block/" + loop + "/loop/backing_file", 64_KiB);
  if (!text) return std::nullopt;
  std::string_view name = *text;
  if (name.ends_with('\n')) name.remove_suffix(1);
  if (constexpr std::string_view gone = " (deleted)"; name.ends_with(gone)) name.remove_suffix(gone.size());
  return std::string(name.substr(name.rfind('/') + 1));
}
Result<std::int64_t> size_of(const std::string& device) {
  const auto blocks = read_file("/sys/block/" + device + "/size", 64_KiB);
  std::int64_t size = 0;
  if (!blocks || std::from_chars(blocks->data(), blocks->data() + blocks->size(), size).ec != std::errc()) return fail(Code::Unavailable, "how large /dev/" + device + " is cannot be read");
  return size * 512;
}
// By the name in /sys/block; nothing: it is none of ublk.
std::optional<int> ublk_number(std::string_view device) {
  int number = -1;
  if (!device.starts_with("ublkb") || std::from_chars(device.data() + 5, device.data() + device.size(), number).ec != std::errc() || number < 0) return std::nullopt;
  return number;
}
bool is_engines(std::string_view name) { return name.ends_with(".disk") && name.size() > 42; }  // ID.POOLID.disk
Result<void> told(Result<blocks::DiskStatus> answer) { return answer ? Result<void>() : Result<void>(std::unexpected(std::move(answer.error()))); }

}  // namespace

// By device and inode: names of files are of whoever set the device up.
Result<std::vector<DeviceSeen>> Shown::devices(const std::string& id, const struct stat* file) const {
  const std::string own = served_as(id);
  const auto names = list_dir("/sys/block");
  if (!names) return std::unexpected(names.error());
  std::vector<DeviceSeen> out;
  for (const std::string& name : *names) {
    if (!name.starts_with("loop") || !exists("/sys/block/" + name + "/loop")) continue;  // no file behind it
    const std::string path = "/dev/" + name;
    const auto backing = backing_of(name);
    if (backing && is_engines(*backing)) {
      if (*backing != own) continue;
      const auto size = size_of(name);
      if (!size) return std::unexpected(size.error());
      out.push_back({.name = path, .size = *size, .used = std::nullopt});
      continue;
    }
    // Others' are not opened: to close one that goes with its last user, as mount(8) makes them, takes the kernel milliseconds. A volume's file has one name.
    if (file == nullptr || (backing && *backing != id + ".volume")) continue;
    const Fd loop(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!loop) {
      if (errno == ENOENT || errno == ENXIO) continue;
      return fail_errno(errno, "open " + path);
    }
    loop_info64 about{};
    if (::ioctl(loop.get(), LOOP_GET_STATUS64, &about) != 0) {
      if (errno == ENXIO) continue;  // it went meanwhile
      return fail_errno(errno, "look at " + path);
    }
    if (about.lo_device != file->st_dev || about.lo_inode != file->st_ino) continue;
    std::uint64_t size = 0;
    if (::ioctl(loop.get(), BLKGETSIZE64, &size) != 0) return fail_errno(errno, "look at " + path);
    out.push_back({.name = path, .size = static_cast<std::int64_t>(size), .used = std::nullopt});
  }
  // What its engine shows itself, which has a link from before it is there: where ublk cannot be asked it is not known what one leads to, and there is nothing of ours without.
  if (std::any_of(names->begin(), names->end(), [](const auto& name) { return ublk_number(name).has_value(); })) {
    const auto control = blocks::Ublk::open();
    const auto links = blocks::ublk_links();
    if (!links) return std::unexpected(links.error());
    if (!control && std::find(links->begin(), links->end(), own) != links->end()) return fail(Code::Unavailable, fmt::format("which device shows {} is not known: {}", id, control.error().message));
    const auto all = control ? (*control)->devices() : std::vector<blocks::UblkDevice>();
    if (!all) return std::unexpected(all.error());
    for (const auto& one : *all) {
      if (one.mark != blocks::ublk_mark(own) || !exists("/sys/block/" + one.name())) continue;
      const auto size = size_of(one.name());
      if (!size) return std::unexpected(size.error());
      out.push_back({.name = one.path(), .size = *size, .used = std::nullopt});
    }
  }
  std::sort(out.begin(), out.end(), [](const DeviceSeen& a, const DeviceSeen& b) { return a.name < b.name; });
  return out;
}

Result<std::optional<EngineSeen>> Shown::engine(const std::string& id) const {
  auto engine = blocks::ask_disk(socket_of(id), {});
  if (engine) return EngineSeen{.size = engine->size, .limits = engine->limits, .failed = engine->failed, .reads = engine->reads, .writes = engine->writes, .read_bytes = engine->read_bytes, .written_bytes = engine->written_bytes, .waited_ns = engine->waited_ns};
  if (engine.error().code == Code::NotFound) return std::nullopt;
  return std::unexpected(std::move(engine.error()));
}

std::optional<std::string> Shown::behind(const std::string& device) { return device.starts_with("/dev/loop") ? backing_of(device.substr(5)) : std::nullopt; }

// Who has it mounted, in whatever namespace, has claimed it.
std::optional<bool> Shown::is_used(const std::string& device) {
  if (const Fd claim(::open(device.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC)); claim) return false;
  return errno == EBUSY ? std::optional(true) : std::nullopt;
}

Result<void> Shown::grow_engine(const std::string& id) const { return told(blocks::ask_disk(socket_of(id), {.what = blocks::DiskRequest::Do::Grow, .limits = {}}, std::chrono::seconds(20))); }
Result<void> Shown::limit(const std::string& id, const blocks::DiskLimits& limits) const { return told(blocks::ask_disk(socket_of(id), {.what = blocks::DiskRequest::Do::Limit, .limits = limits})); }

// The kernel lets go of the file a moment after the device, and the process of the volume's file a moment after its answer.
Result<void> Shown::stop_engine(const std::string& id, const Fd& lock) const {
  Error last{Code::Unavailable, "the engine of " + id + " has not ended"};
  // Mostly it is over after some milliseconds; all pauses together are 5 s.
  auto pause = 1ms;
  for (int tries = 0; tries < 105; ++tries, pause = std::min(2 * pause, 50ms)) {
    auto done = blocks::ask_disk(socket_of(id), {.what = blocks::DiskRequest::Do::Stop, .limits = {}});
    if (!done && done.error().code == Code::NotFound && (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0)) {
      (void)::rmdir(run_folder().c_str());  // if it was the last
      return {};
    }
    if (!done && done.error().code != Code::NotFound) last = std::move(done.error());
    std::this_thread::sleep_for(pause);
  }
  return std::unexpected(std::move(last));
}

Result<void> Shown::attach(const std::string& id, const std::string& own_file, bool read_only) const {
  if (own_file.empty())  // an engine that shows a device itself has done so since it began
    if (const auto engine = blocks::ask_disk(socket_of(id), {}); engine && engine->ublk >= 0)
      return fail(Code::Unavailable, fmt::format("the engine of {} shows it as /dev/ublkb{}, which is not seen here: this process needs /dev of the machine, and /dev/ublk-control", id, engine->ublk));
  const std::string path = own_file.empty() ? fmt::format("{}/disk/{}", folder_of(id), served_as(id)) : own_file;
  const Fd file(::open(path.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return fail_errno(errno, "open " + path);
  const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (!control) return fail_errno(errno, "open /dev/loop-control");
  loop_config config{};
  config.fd = static_cast<__u32>(file.get());
  // Said, always the same: left to the kernel it is what direct I/O to this file needs at the moment, 4096 once its blocks are shared, and a file system made on sectors of 512 is not mounted on those.
  config.block_size = kBlock;
  config.info.lo_flags = LO_FLAGS_DIRECT_IO | (read_only ? LO_FLAGS_READ_ONLY : 0);
  std::snprintf(reinterpret_cast<char*>(config.info.lo_file_name), LO_NAME_SIZE, "%s", id.c_str());
  // A free one may be another's by the time that it is asked for.
  for (int tries = 0; tries < 64; ++tries) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno(errno, "find a free loop device");
    const std::string name = fmt::format("/dev/loop{}", number);
    if (!exists(name) && ::mknod(name.c_str(), S_IFBLK | 0600, makedev(7, static_cast<unsigned>(number))) != 0 && errno != EEXIST) return fail_errno(errno, "make " + name);
    const Fd loop(::open(name.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC));
    if (!loop) return fail_errno(errno, "open " + name);
    if (::ioctl(loop.get(), LOOP_CONFIGURE, &config) == 0) return {};
    if (errno != EBUSY) return fail_errno(errno, "show " + id + " by " + name);
  }
  return fail(Code::Unavailable, "no loop device stays free long enough");
}

// One of ublk is not taken from who has it open, whoever asks. Its engine says from then on that it is of no use.
Result<void> Shown::detach_ublk(const std::string& id, int number) const {
  auto control = still_shows_ublk(id, number);
  if (!control) return std::unexpected(std::move(control.error()));
  if (auto stopped = (*control)->stop(number); !stopped) return stopped;
  if (auto removed = (*control)->remove(number); !removed) return removed;
  blocks::unlink_ublk(served_as(id));
  return {};
}

Result<std::unique_ptr<blocks::Ublk>> Shown::still_shows_ublk(const std::string& id, int number) const {
  auto control = blocks::Ublk::open();
  if (!control) return control;
  const auto same = (*control)->is(number, blocks::ublk_mark(served_as(id)));
  if (!same) return std::unexpected(same.error());
  if (!*same) return fail(Code::Unavailable, fmt::format("/dev/ublkb{} shows {} no more", number, id));
  return control;
}

Result<void> Shown::detach(const std::string& id, const std::string& device, const struct stat* file) const {
  if (const auto number = ublk_number(device.substr(device.rfind('/') + 1))) return detach_ublk(id, *number);
  const Fd loop(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!loop) return fail_errno(errno, "open " + device);
  if (auto same = still_shows(loop, id, device, file); !same) return same;
  return ::ioctl(loop.get(), LOOP_CLR_FD, 0) == 0 || errno == ENXIO ? Result<void>() : Result<void>(fail_errno(errno, "take " + device + " away"));
}

Result<void> Shown::grow(const std::string& id, const std::string& device, const struct stat* file) const {
  if (ublk_number(device.substr(device.rfind('/') + 1))) return grow_engine(id);  // which does both
  const Fd loop(::open(device.c_str(), O_RDONLY | O_CLOEXEC));
  if (!loop) return fail_errno(errno, "open " + device);
  if (auto same = still_shows(loop, id, device, file); !same) return same;
  return ::ioctl(loop.get(), LOOP_SET_CAPACITY, 0) == 0 ? Result<void>() : Result<void>(fail_errno(errno, "grow " + device));
}

// Numbers of devices are given out again: the one that was seen may be another's by now.
Result<void> Shown::still_shows(const Fd& loop, const std::string& id, const std::string& device, const struct stat* file) const {
  if (const auto backing = backing_of(device.substr(device.rfind('/') + 1)); backing && is_engines(*backing)) return *backing == served_as(id) ? Result<void>() : fail(Code::Unavailable, fmt::format("{} shows {} no more", device, id));
  loop_info64 about{};
  if (file == nullptr) return fail(Code::Unavailable, fmt::format("{} shows {} no more", device, id));
  if (::ioctl(loop.get(), LOOP_GET_STATUS64, &about) != 0) return errno == ENXIO ? fail(Code::Unavailable, device + " has gone meanwhile") : fail_errno(errno, "look at " + device);
  if (about.lo_device != file->st_dev || about.lo_inode != file->st_ino) return fail(Code::Unavailable, fmt::format("{} shows {} no more", device, id));
  return {};
}

}  // namespace fairlead::volumes
