// SPDX-License-Identifier: Apache-2.0
#include "agent/instance_volume.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "base/loop_device.h"
#include "base/process.h"
#include "blocks/block_devices.h"

namespace fairlead::agent {

using Step = VolumePlan::Step;

namespace {

constexpr std::string_view suffix = ".img", unfinished = ".img.new", growing = ".grows", of_pool = ".pool";
constexpr std::int64_t gibibyte = std::int64_t{1} << 30;
constexpr auto limit = std::chrono::minutes(10);

std::string image_of(const VolumePlaces& places, const std::string& instance) { return places.folder + "/" + instance + std::string(suffix); }

// There while it grows: a death in between leaves a file that is larger than its file system.
std::string mark_of(const VolumePlaces& places, const std::string& instance) { return places.folder + "/" + instance + std::string(growing); }

// That its volume is one of a pool, and how large its file system is there: GiB, in decimal digits.
std::string pool_note_of(const VolumePlaces& places, const std::string& instance) { return places.folder + "/" + instance + std::string(of_pool); }

// As mountinfo has it: without links, and with octal escapes. Empty: it is not there.
Result<std::string> resolved(const std::string& path) {
  char buffer[4096];
  if (::realpath(path.c_str(), buffer) == nullptr) return errno == ENOENT ? Result<std::string>("") : fail_errno(errno, "resolve " + path);
  std::string out;
  for (const char c : std::string_view(buffer))
    if (c == ' ' || c == '\t' || c == '\n' || c == '\\') out += fmt::format("\\{:03o}", static_cast<unsigned>(c));
    else out += c;
  return out;
}

// The device that is mounted there last, "/dev/loop3"; empty: nothing is. By the kernel's own table.
Result<std::string> device_at(const std::string& mount_point) {
  auto place = resolved(mount_point);
  if (!place || place->empty()) return place;
  auto text = read_file("/proc/self/mountinfo", 8_MiB);
  if (!text) return std::unexpected(std::move(text.error()));
  std::string out;
  for (const std::string& line : split(*text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() < 10 || words[4] != *place) continue;
    const auto dash = std::find(words.begin() + 6, words.end(), "-");
    out = dash != words.end() && words.end() - dash > 2 ? *(dash + 2) : "?";
  }
  return out;
}

// The file behind a loop device; empty: it is none. The kernel marks one that was deleted.
std::string backing_of(const std::string& device) {
  if (!device.starts_with("/dev/loop")) return "";
  auto text = read_file("/sys/block/" + device.substr(5) + "/loop/backing_file", 64_KiB);
  return text ? std::string(trim(*text)) : "";
}

// Is it behind a loop device? A mount in another namespace, a pod's, keeps the file system alive when ours is gone. An error: it cannot be known.
Result<bool> is_attached(const std::string& image) {
  struct stat about {};
  if (::stat(image.c_str(), &about) != 0) return errno == ENOENT ? Result<bool>(false) : fail_errno(errno, "look at " + image);
  auto devices = list_dir("/sys/block");
  if (!devices) return std::unexpected(std::move(devices.error()));
  if (devices->empty()) return fail(Code::Unavailable, "no block device is seen here, so whether the file is in use cannot be known: mount sysfs at /sys");
  const std::string_view own_name = std::string_view(image).substr(image.rfind('/') + 1);
  for (const std::string& device : *devices) {
    if (!device.starts_with("loop")) continue;
    const std::string note = "/sys/block/" + device + "/loop/backing_file";
    auto text = read_file(note, 64_KiB);
    if (!text && !exists(note)) continue;  // one that is free has none
    const Fd opened(::open(("/dev/" + device).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    loop_info64 info{};
    if (opened && ::ioctl(opened.get(), LOOP_GET_STATUS64, &info) == 0) {
      if (info.lo_device == about.st_dev && info.lo_inode == about.st_ino) return true;
      continue;
    }
    if (opened && errno == ENXIO) continue;  // free by now
    if (!text) return std::unexpected(std::move(text.error()));
    // No device file here: by its name, which only this instance's has.
    std::string_view backing = trim(*text);
    if (backing.ends_with(" (deleted)")) backing.remove_suffix(10);
    if (backing.substr(backing.rfind('/') + 1) == own_name) return true;
  }
  return false;
}

// Best effort: not every file system knows it.
void set_immutable(const std::string& folder, bool on) {
  const Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int flags = 0;
  if (!opened || ::ioctl(opened.get(), FS_IOC_GETFLAGS, &flags) != 0 || ((flags & FS_IMMUTABLE_FL) != 0) == on) return;
  flags ^= FS_IMMUTABLE_FL;
  if (::ioctl(opened.get(), FS_IOC_SETFLAGS, &flags) != 0) log_warn("the place of a volume cannot be made unwritable", {{"folder", folder}, {"error", std::strerror(errno)}});
}

// Is this the device of that Volume? By the name of what is behind it.
bool is_shown_by(const std::string& device, const std::string& volume) {
  const auto seen = blocks::device_of(volume);
  return seen && seen->path == device;
}

Result<blocks::OpenDevice> device_of_volume(const std::string& instance) {
  auto out = blocks::open_device(instance);
  return out || out.error().code != Code::NotFound ? std::move(out) : fail(Code::Unavailable, fmt::format("Volume {} is not shown on this machine: see its Attachment (kubectl get attachments)", instance));
}

Result<void> note_pool(const VolumePlaces& places, const std::string& instance, std::int64_t gib) { return write_file_durably(pool_note_of(places, instance), std::to_string(gib), 0600); }

// Only what is empty for certain is formatted (a death in the middle of that is seen by a mark on the device); a file system that is there is its own, since its name is that of no other instance.
Result<void> make_on_pool(const VolumePlaces& places, const std::string& instance) {
  if (auto done = make_dirs(places.folder, 0700); !done) return done;
  const auto shown = device_of_volume(instance);
  if (!shown) return std::unexpected(shown.error());
  const auto size = blocks::device_size(shown->device);
  if (!size) return std::unexpected(size.error());
  const auto type = blocks::file_system_on(shown->device);
  if (!type) return std::unexpected(type.error());
  if (!type->empty() && *type != "xfs") return fail(Code::Conflict, fmt::format("Volume {} holds {}, which is none of this instance's: it is left as it is", instance, *type));
  if (type->empty())
    if (auto made = blocks::make_file_system(shown->device, "xfs"); !made) return made;
  return note_pool(places, instance, *size / gibibyte);
}

Result<void> mount_of_pool(const VolumePlaces& places, const std::string& instance) {
  const auto shown = device_of_volume(instance);
  if (!shown) return std::unexpected(shown.error());
  if (auto done = make_dirs(places.mount_point); !done) return done;
  set_immutable(places.mount_point, false);
  return blocks::mount_device(shown->device, "xfs", places.mount_point, {"nosuid", "nodev"}, false);
}

Result<void> grow_on_pool(const VolumePlaces& places, const std::string& instance, std::int64_t gib) {
  const auto shown = device_of_volume(instance);
  if (!shown) return std::unexpected(shown.error());
  const auto size = blocks::device_size(shown->device);
  if (!size) return std::unexpected(size.error());
  if (*size / gibibyte < gib) return fail(Code::Unavailable, fmt::format("Volume {} has {} GiB yet", instance, *size / gibibyte));
  if (auto done = blocks::grow_file_system(shown->device, "xfs", places.mount_point); !done) return done;
  return note_pool(places, instance, *size / gibibyte);
}

// Its data goes with the Volume; here is forgotten that it was there, once nobody on this machine has it mounted.
Result<void> forget_pool(const VolumePlaces& places, const std::string& instance) {
  const auto shown = blocks::open_device(instance);
  if (!shown && shown.error().code != Code::NotFound) return std::unexpected(shown.error());
  if (shown) {
    Fd alone;
    for (int i = 0; i < 10; ++i) {
      alone = Fd(::open(shown->device.path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC));
      if (alone || errno != EBUSY) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the kernel lets go of a device a moment after its last mount
    }
    if (!alone) return errno == EBUSY ? fail(Code::Unavailable, fmt::format("the volume of {} is in use: what has it mounted (a pod) is to end first", instance)) : fail_errno(errno, "open " + shown->device.path);
  }
  return ::unlink(pool_note_of(places, instance).c_str()) == 0 || errno == ENOENT ? Result<void>() : fail_errno(errno, "forget the volume of " + instance);
}

Result<VolumeView> look(const VolumePlaces& places) {
  VolumeView out;
  if (exists(places.folder)) {
    auto names = list_dir(places.folder);
    if (!names) return std::unexpected(std::move(names.error()));
    std::sort(names->begin(), names->end());
    for (const std::string& name : *names) {
      if (name.ends_with(unfinished) || (name.ends_with(growing) && !exists(image_of(places, name.substr(0, name.size() - growing.size()))))) out.litter.push_back(name);
      if (name.ends_with(of_pool)) {
        const auto text = read_file(places.folder + "/" + name, 64_KiB);
        if (!text) return std::unexpected(text.error());
        std::int64_t gib = 0;
        (void)std::from_chars(text->data(), text->data() + text->size(), gib);
        out.images.push_back({.instance = name.substr(0, name.size() - of_pool.size()), .gib = gib, .pool = true});
      }
      if (!name.ends_with(suffix)) continue;
      struct stat about {};
      if (::stat((places.folder + "/" + name).c_str(), &about) != 0) return fail_errno(errno, "look at " + name);
      const std::string instance = name.substr(0, name.size() - suffix.size());
      out.images.push_back({.instance = instance, .gib = exists(mark_of(places, instance)) ? 0 : about.st_size / gibibyte, .pool = false});
    }
  }
  auto device = device_at(places.mount_point);
  if (!device) return std::unexpected(std::move(device.error()));
  if (!device->empty()) {
    char real[4096];
    const std::string folder = ::realpath(places.folder.c_str(), real) != nullptr ? real : places.folder;
    const std::string backing = backing_of(*device);
    for (const auto& image : out.images)
      if (image.pool ? is_shown_by(*device, image.instance) : backing == folder + "/" + image.instance + std::string(suffix)) out.mounted = image.instance;
    out.foreign = out.mounted.empty();
  } else if (exists(places.mount_point)) {
    auto names = list_dir(places.mount_point);
    if (!names) return std::unexpected(std::move(names.error()));
    out.occupied = !names->empty();
  }
  return out;
}

Result<void> set_size(const std::string& path, std::int64_t bytes, int flags) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
  if (!fd) return fail_errno(errno, "open " + path);
  if (::ftruncate(fd.get(), bytes) != 0) return fail_errno(errno, "size " + path);
  if (::fsync(fd.get()) != 0) return fail_errno(errno, "sync " + path);
  return {};
}

// Room is not set aside: what is not there at the moment would only be found out when it is written.
Result<void> check_room(const std::string& folder, std::int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return fail_errno(errno, "look at " + folder);
  const auto room = static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  if (room < bytes) return fail(Code::Exhausted, fmt::format("{} GiB are asked for, and {} has {:.1f} GiB free: make room, or ask for less", bytes / gibibyte, folder, static_cast<double>(room) / static_cast<double>(gibibyte)));
  return {};
}

Result<void> make(const VolumePlaces& places, const std::string& instance, std::int64_t gib) {
  if (auto done = make_dirs(places.folder, 0700); !done) return done;
  if (auto done = check_room(places.folder, gib * gibibyte); !done) return done;
  const std::string path = places.folder + "/" + instance + std::string(unfinished);
  // A new file each time: only what nobody has ever had a volume by is formatted.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
  if (auto done = set_size(path, gib * gibibyte, O_CREAT | O_EXCL); !done) return done;
  if (auto done = run_checked({.argv = {"mkfs.xfs", "-q", "-f", "-L", "sagemaker", path}}, limit); !done) return std::unexpected(std::move(done.error()));
  if (::rename(path.c_str(), image_of(places, instance).c_str()) != 0) return fail_errno(errno, "name " + path);
  return {};
}

Result<void> mount_it(const VolumePlaces& places, const std::string& instance) {
  // Its name is on disk before anybody writes into it.
  const Fd folder(::open(places.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return fail_errno(errno, "sync " + places.folder);
  if (auto done = make_dirs(places.mount_point); !done) return done;
  set_immutable(places.mount_point, false);
  auto done = run_checked({.argv = {"mount", "-t", "xfs", "-o", "loop,nosuid,nodev", image_of(places, instance), places.mount_point}}, limit);
  if (!done) return std::unexpected(std::move(done.error()));
  auto device = device_at(places.mount_point);
  if (!device) return std::unexpected(std::move(device.error()));
  if (const auto passes = loop_past_cache(*device); !passes.value_or(false)) log_warn("a volume's image is read and written through the page cache: a sync takes longer", {{"device", *device}, {"why", passes ? "what it lies on cannot do otherwise" : passes.error().message}});
  return {};
}

Result<void> grow(const VolumePlaces& places, const std::string& instance, std::int64_t gib) {
  const std::string image = image_of(places, instance);
  struct stat about {};
  if (::stat(image.c_str(), &about) != 0) return fail_errno(errno, "look at " + image);
  if (auto done = check_room(places.folder, gib * gibibyte - static_cast<std::int64_t>(about.st_blocks) * 512); !done) return done;
  if (auto done = write_file_durably(mark_of(places, instance), "", 0600); !done) return done;
  if (about.st_size < gib * gibibyte)  // never smaller
    if (auto done = set_size(image, gib * gibibyte, 0); !done) return done;
  auto device = device_at(places.mount_point);
  if (!device) return std::unexpected(std::move(device.error()));
  for (const auto& argv : {std::vector<std::string>{"losetup", "--set-capacity", *device}, std::vector<std::string>{"xfs_growfs", places.mount_point}})
    if (auto done = run_checked({.argv = argv}, limit); !done) return std::unexpected(std::move(done.error()));
  if (::unlink(mark_of(places, instance).c_str()) != 0) return fail_errno(errno, "note that the volume has grown");
  return {};
}

Result<void> take(const VolumePlaces& places, const VolumePlan::Due& due) {
  switch (due.step) {
    case Step::Unmount:
      if (::umount2(places.mount_point.c_str(), 0) != 0) return errno == EBUSY ? fail(Code::Unavailable, fmt::format("{} is in use: what runs there is to end first", places.mount_point)) : fail_errno(errno, "unmount " + places.mount_point);
      return {};  // the folder stays: another local node may have its own volume mounted there, which the kernel would take off with it
    case Step::Delete: {
      if (due.pool) return forget_pool(places, due.instance);
      // The kernel lets go of a device a moment after its last mount.
      auto attached = is_attached(image_of(places, due.instance));
      for (int i = 0; i < 10 && attached && *attached; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        attached = is_attached(image_of(places, due.instance));
      }
      if (!attached) return std::unexpected(std::move(attached.error()));
      if (*attached) return fail(Code::Unavailable, fmt::format("the volume of {} is in use: what has it mounted (a pod) is to end first", due.instance));
      for (const std::string& path : {image_of(places, due.instance), mark_of(places, due.instance)})
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "delete the volume of " + due.instance);
      return {};
    }
    case Step::Make: return due.pool ? make_on_pool(places, due.instance) : make(places, due.instance, due.gib);
    case Step::Grow: return due.pool ? grow_on_pool(places, due.instance, due.gib) : grow(places, due.instance, due.gib);
    case Step::Mount: return due.pool ? mount_of_pool(places, due.instance) : mount_it(places, due.instance);
  }
  return fail(Code::Internal, "no such step");
}

const char* name(Step step) {
  switch (step) {
    case Step::Unmount: return "unmount";
    case Step::Delete: return "delete";
    case Step::Make: return "make";
    case Step::Grow: return "grow";
    case Step::Mount: return "mount";
  }
  return "?";
}

}  // namespace

VolumePlan plan_volume(const std::optional<api::VolumeOrder>& order, const VolumeView& seen) {
  VolumePlan out;
  const std::string place = api::kVolumePath;
  const std::string foreign = fmt::format("something else is mounted at {}: unmount it, or ask for no volume", place), occupied = fmt::format("there are files in {}, which a volume would hide: move them away", place);
  if (!order) {
    if (!seen.mounted.empty() || seen.images.empty()) return out;
    if (seen.foreign) out.refused = foreign;
    else if (seen.occupied) out.refused = occupied;
    else if (seen.images.size() > 1) out.refused = fmt::format("the volumes of {} instances are there, and no order says whose is to be mounted", seen.images.size());
    else out.steps.push_back({Step::Mount, seen.images.front().instance, 0, seen.images.front().pool});
    return out;
  }
  const auto own = std::find_if(seen.images.begin(), seen.images.end(), [&](const auto& image) { return image.instance == order->instance; });
  if (order->released) {
    out.litter = seen.litter;
    if (own == seen.images.end()) return out;
    // What is mounted there may stand on top of it.
    if (seen.foreign) return {.steps = {}, .litter = {}, .refused = fmt::format("something else is mounted at {}: unmount it, and the volume of {} is deleted", place, order->instance)};
    if (seen.mounted == order->instance) out.steps.push_back({Step::Unmount, order->instance, 0, own->pool});
    out.steps.push_back({Step::Delete, order->instance, 0, own->pool});
    return out;
  }
  if (seen.foreign) return {.steps = {}, .litter = {}, .refused = foreign};
  if (seen.occupied) return {.steps = {}, .litter = {}, .refused = occupied};
  out.litter = seen.litter;
  // An order may be of yesterday (a Node that somebody put back): what another instance has goes by a release that names it, and by nothing else.
  const auto other = std::find_if(seen.images.begin(), seen.images.end(), [&](const auto& image) { return image.instance != order->instance; });
  if (other != seen.images.end()) out.refused = fmt::format("the volume of instance {} is there: it is deleted when it is released", other->instance);
  const bool mounted = seen.mounted == order->instance;
  if (other != seen.images.end() && (own == seen.images.end() || (!mounted && !seen.mounted.empty()))) return out;
  if (own != seen.images.end() && own->pool != order->pool) {
    out.refused = order->pool ? "its volume is a file of this machine, and one of a pool is ordered: replace the instance" : "its volume is one of a pool, and a file of this machine is ordered: replace the instance";
    return out;
  }
  if (own == seen.images.end()) out.steps.push_back({Step::Make, order->instance, order->gib, order->pool});
  if (!mounted) out.steps.push_back({Step::Mount, order->instance, 0, order->pool});
  if (own != seen.images.end() && own->gib < order->gib) out.steps.push_back({Step::Grow, order->instance, order->gib, order->pool});
  return out;
}

api::VolumeState settle_volume(const VolumePlaces& places, const std::optional<api::VolumeOrder>& order) {
  api::VolumeState out;
  if (order) out.of = order->instance;
  const auto tell = [&](const VolumeView& seen) {
    out.instance = seen.mounted;
    for (const auto& image : seen.images) {
      if (!seen.mounted.empty() && image.instance == seen.mounted) out.gib = image.gib, out.pool = image.pool;
      // One that waits for nothing but its mount is named last: another is in its way.
      if (seen.mounted.empty() && (out.instance.empty() || out.instance == out.of)) out.instance = image.instance;
    }
    const bool bare = seen.mounted.empty() && !seen.foreign && !seen.occupied;
    if (bare && (order || !seen.images.empty())) set_immutable(places.mount_point, !seen.images.empty());
  };
  auto seen = look(places);
  if (!seen) {
    // Where volumes were never kept none is there, whatever is at their place.
    if (order || exists(places.folder)) out.failed = seen.error().message;
    return out;
  }
  const VolumePlan plan = plan_volume(order, *seen);
  out.failed = plan.refused;
  for (const std::string& name : plan.litter)
    if (::unlink((places.folder + "/" + name).c_str()) != 0 && errno != ENOENT) log_warn("a file that was left half made stays", {{"file", name}, {"error", std::strerror(errno)}});
  for (const VolumePlan::Due& due : plan.steps) {
    log_info("volume step", {{"step", name(due.step)}, {"instance", due.instance}, {"gib", std::to_string(due.gib)}});
    if (auto done = take(places, due); !done) {
      out.failed = fmt::format("{} the volume: {}", name(due.step), done.error().message);
      log_warn("volume step failed", {{"step", name(due.step)}, {"instance", due.instance}, {"error", done.error().message}});
      break;
    }
  }
  if (!plan.steps.empty()) seen = look(places);
  if (seen) tell(*seen);
  else out.failed = seen.error().message;
  return out;
}

VolumeKeeper::VolumeKeeper(VolumePlaces places, std::function<void()> changed) : places_(std::move(places)), changed_(std::move(changed)) {
  if (exists(places_.folder)) state_ = settle_volume(places_, std::nullopt);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

VolumeKeeper::~VolumeKeeper() {
  thread_.request_stop();
  wake_.notify_all();
}

void VolumeKeeper::ask(std::optional<api::VolumeOrder> order) {
  {
    const std::lock_guard lock(mutex_);
    if (order != order_) state_.reset();
    order_ = std::move(order);
    asked_ = true;
  }
  wake_.notify_all();
}

std::optional<api::VolumeState> VolumeKeeper::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void VolumeKeeper::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, stop, [this] { return asked_; });
    if (stop.stop_requested()) return;
    asked_ = false;
    const auto order = order_;
    lock.unlock();
    api::VolumeState now = settle_volume(places_, order);
    lock.lock();
    if (order != order_) continue;  // of what is asked now nothing is known yet
    const bool other = !state_ || *state_ != now;
    state_ = std::move(now);
    if (!other) continue;
    lock.unlock();
    changed_();
    lock.lock();
  }
}

}  // namespace fairlead::agent
