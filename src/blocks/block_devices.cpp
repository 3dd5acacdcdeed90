// SPDX-License-Identifier: Apache-2.0
#include "blocks/block_devices.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "blocks/ublk.h"

namespace fairlead::blocks {
namespace {

using namespace std::chrono_literals;

constexpr auto limit = 300s;
constexpr std::size_t probed = 1 << 20;

Result<std::pair<std::uint32_t, std::uint32_t>> parse_numbers(std::string_view text) {
  std::uint32_t major = 0, minor = 0;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return fail(Code::Internal, "no device number");
  const auto one = std::from_chars(text.data(), text.data() + colon, major), two = std::from_chars(text.data() + colon + 1, text.data() + text.size(), minor);
  if (one.ec != std::errc() || two.ec != std::errc() || one.ptr != text.data() + colon || two.ptr != text.data() + text.size()) return fail(Code::Internal, "no device number");
  return std::pair(major, minor);
}

// As mountinfo writes blanks and the like.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else out += text[i];
  }
  return out;
}

Result<Output> call(std::vector<std::string> argv) { return run({.argv = std::move(argv)}, limit); }
std::string last_words(const Output& output) {
  std::string text = std::string(trim(output.err.empty() ? output.out : output.err));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.size() > 500 ? "..." + text.substr(text.size() - 500) : text;
}
Result<void> called(std::vector<std::string> argv) {
  const std::string name = argv[0];
  auto done = call(std::move(argv));
  if (!done) return std::unexpected(std::move(done.error()));
  return done->exit.code == 0 ? Result<void>() : Result<void>(fail(Code::Internal, fmt::format("{}: exit status {}: {}", name, done->exit.code, last_words(*done))));
}

// "ID.POOLID.disk", and on further machines of a pool "ID.GENERATION.POOLID.disk": what an engine serves, whose mount may be gone with it.
bool is_served(std::string_view name, const std::string& volume) {
  if (constexpr std::string_view gone = " (deleted)"; name.ends_with(gone)) name.remove_suffix(gone.size());
  constexpr std::string_view end = ".disk";
  if (!name.starts_with(volume + ".") || !name.ends_with(end)) return false;
  name.remove_prefix(volume.size() + 1), name.remove_suffix(end.size());
  if (const std::size_t dot = name.find('.'); dot != name.npos && dot > 0 && name.substr(0, dot).find_first_not_of("0123456789") == name.npos) name.remove_prefix(dot + 1);
  return name.size() == 36 && name.find('.') == name.npos;
}

// The pool's daemon gives its devices the volume's name; what losetup made has a path there.
bool is_of_pool(const std::string& path, const std::string& volume) {
  const Fd loop(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  loop_info64 about{};
  if (!loop || ::ioctl(loop.get(), LOOP_GET_STATUS64, &about) != 0) return !loop && errno == ENOENT;
  return volume.substr(0, LO_NAME_SIZE - 1) == reinterpret_cast<const char*>(about.lo_file_name);
}

// Has the file behind the device anything but zeros? Nothing: it cannot be asked.
std::optional<bool> file_has_data(const Device& device) {
  const auto name = read_file("/sys/block" + device.path.substr(device.path.rfind('/')) + "/loop/backing_file", 64_KiB);
  const Fd file(name ? ::open(std::string(trim(*name)).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1), loop(::open(device.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat seen {};
  loop_info64 about{};
  if (!file || !loop || ::fstat(file.get(), &seen) != 0 || ::fsync(loop.get()) != 0 || ::ioctl(loop.get(), LOOP_GET_STATUS64, &about) != 0 || about.lo_device != seen.st_dev || about.lo_inode != seen.st_ino) return std::nullopt;
  std::vector<char> buffer(probed);
  for (off_t at = 0; (at = ::lseek(file.get(), at, SEEK_DATA)) >= 0;) {
    const ssize_t n = ::pread(file.get(), buffer.data(), buffer.size(), at);
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    if (std::any_of(buffer.begin(), buffer.begin() + n, [](char c) { return c != 0; })) return true;
    at += n;
  }
  return false;
}

// What a format that was broken off is known by: a block a MiB before the end, which neither mkfs writes to but for odd sizes (and they discard nothing). It is there from before mkfs begins until it has ended; nothing was ever mounted till then.
constexpr std::size_t mark_size = 4096;
std::string format_mark() {
  std::string out = "fairlead: a file system is being made here, and nothing else is on this device\n";
  out.resize(mark_size, '\0');
  return out;
}
Result<void> write_mark(const Device& device, const std::string& text) {
  const Fd fd(::open(device.path.c_str(), O_WRONLY | O_CLOEXEC));
  const auto size = device_size(device);
  if (!size) return std::unexpected(size.error());
  if (!fd || ::pwrite(fd.get(), text.data(), text.size(), *size - static_cast<std::int64_t>(probed)) != static_cast<ssize_t>(text.size()) || ::fsync(fd.get()) != 0) return fail_errno(errno, "write to " + device.path);
  return {};
}
bool is_half_formatted(const Device& device) {
  const Fd fd(::open(device.path.c_str(), O_RDONLY | O_CLOEXEC));
  const auto size = device_size(device);
  std::string text(mark_size, '\0');
  return fd && size && ::pread(fd.get(), text.data(), text.size(), *size - static_cast<std::int64_t>(probed)) == static_cast<ssize_t>(text.size()) && text == format_mark();
}

Result<Device> read_device(const std::string& name) {
  const std::string folder = "/sys/block/" + name;
  const auto text = read_file(folder + "/dev", 64_KiB), ro = read_file(folder + "/ro", 64_KiB);
  const auto numbers = text ? parse_numbers(trim(*text)) : Result<std::pair<std::uint32_t, std::uint32_t>>(std::unexpected(text.error()));
  if (!numbers) return pass(numbers.error(), "look at " + folder);
  return Device{.path = "/dev/" + name, .major = numbers->first, .minor = numbers->second, .read_only = ro && trim(*ro) == "1"};
}

// What engines show themselves: found by name, and believed by the mark that the kernel keeps.
Result<void> add_ublk_of(const std::string& volume, std::vector<Device>& out) {
  const auto links = ublk_links();
  if (!links) return std::unexpected(links.error());
  for (const std::string& name : *links) {
    if (!is_served(name, volume)) continue;
    const auto control = Ublk::open();
    const auto all = control ? (*control)->devices() : Result<std::vector<UblkDevice>>(std::unexpected(control.error()));
    if (!all) return pass(all.error(), "see which device shows " + name);
    for (const UblkDevice& one : *all) {
      if (one.mark != ublk_mark(name) || !exists("/sys/block/" + one.name())) continue;
      auto device = read_device(one.name());
      if (!device) return std::unexpected(std::move(device.error()));
      out.push_back(std::move(*device));
    }
  }
  return {};
}

// In the order in which the kernel lists them.
Result<std::vector<Device>> devices_of(const std::string& volume) {
  const auto names = list_dir("/sys/block");
  if (!names) return std::unexpected(names.error());
  if (names->empty()) return fail(Code::Unavailable, "no block device is seen here, so whether one shows a volume cannot be known: mount sysfs at /sys");
  std::vector<Device> out;
  for (const std::string& name : *names) {
    if (!name.starts_with("loop")) continue;
    const std::string folder = "/sys/block/" + name;
    const auto backing = read_file(folder + "/loop/backing_file", 64_KiB);
    if (!backing) {
      if (!exists(folder + "/loop/backing_file")) continue;  // one that is free has none
      return std::unexpected(backing.error());
    }
    // Its file, or what its engine serves.
    const std::string file(trim(*backing)), base = file.substr(file.rfind('/') + 1);
    if (!is_served(base, volume) && (base != volume + ".volume" || !is_of_pool("/dev/" + name, volume))) continue;
    auto device = read_device(name);
    if (!device) return std::unexpected(std::move(device.error()));
    out.push_back(std::move(*device));
  }
  if (auto added = add_ublk_of(volume, out); !added) return std::unexpected(std::move(added.error()));
  return out;
}

}  // namespace

Result<Device> device_of(const std::string& volume) { return device_of(volume, "", nullptr); }

std::string device_path(std::uint32_t major, std::uint32_t minor) {
  char target[4096];
  const ssize_t size = ::readlink(fmt::format("/sys/dev/block/{}:{}", major, minor).c_str(), target, sizeof target);
  if (size <= 0) return "";
  const std::string_view path(target, static_cast<std::size_t>(size));
  return fmt::format("/dev/{}", path.substr(path.rfind('/') + 1));
}

Result<Device> device_of(const std::string& volume, const std::string& told, const MountEntry* mounted) {
  const auto all = devices_of(volume);
  if (!all) return std::unexpected(all.error());
  if (all->empty()) return fail(Code::NotFound, fmt::format("no device of this machine shows volume {}", volume));
  auto out = mounted == nullptr ? all->end() : std::find_if(all->begin(), all->end(), [&](const Device& one) { return shows(*mounted, one); });
  if (out == all->end()) out = std::find_if(all->begin(), all->end(), [&](const Device& one) { return one.path == told; });
  if (out == all->end() && all->size() > 1) return fail(Code::Conflict, fmt::format("{} and {} both show a volume {}: which of them is meant is not known", (*all)[0].path, (*all)[1].path, volume));
  if (out == all->end()) out = all->begin();
  struct stat about {};
  if (::stat(out->path.c_str(), &about) != 0) {
    if (errno != ENOENT) return fail_errno(errno, "look at " + out->path);
    if (::mknod(out->path.c_str(), S_IFBLK | 0600, makedev(out->major, out->minor)) != 0 && errno != EEXIST) return fail_errno(errno, "make " + out->path);
  } else if (!S_ISBLK(about.st_mode) || about.st_rdev != makedev(out->major, out->minor)) return fail(Code::Conflict, fmt::format("{} is another device", out->path));
  return *out;
}

Result<OpenDevice> open_device(const std::string& volume, const std::string& told) {
  auto seen = device_of(volume, told, nullptr);
  if (!seen) return std::unexpected(std::move(seen.error()));
  Fd fd(::open(seen->path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!fd || ::fstat(fd.get(), &about) != 0) return fail_errno(errno, "open " + seen->path);
  // It was somebody else's before it was open, perhaps; from here on it stays what it is.
  const auto now = device_of(volume, told, nullptr);
  if (!now && now.error().code != Code::NotFound) return std::unexpected(now.error());
  if (!now || *now != *seen || !S_ISBLK(about.st_mode) || about.st_rdev != makedev(now->major, now->minor)) return fail(Code::Unavailable, fmt::format("{} showed volume {} a moment ago, and does no more", seen->path, volume));
  return OpenDevice{.device = std::move(*seen), .open = std::move(fd)};
}

Result<std::vector<MountEntry>> parse_mounts(std::string_view text) {
  std::vector<MountEntry> out;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto words = split(line, ' ');
    const auto dash = words.size() < 10 ? words.end() : std::find(words.begin() + 6, words.end(), "-");
    if (words.size() < 10 || words.end() - dash < 4) return fail(Code::Internal, "a line of the mount table cannot be read");
    const auto numbers = parse_numbers(words[2]);
    if (!numbers) return std::unexpected(numbers.error());
    const auto has_ro = [](const std::string& options) {
      const auto all = split(options, ',');
      return std::find(all.begin(), all.end(), "ro") != all.end();
    };
    out.push_back({.major = numbers->first, .minor = numbers->second, .root = unescaped(words[3]), .place = unescaped(words[4]), .type = dash[1], .read_only = has_ro(words[5]) || has_ro(dash[3])});
  }
  return out;
}

Result<std::vector<MountEntry>> mounts() {
  const auto text = read_file("/proc/thread-self/mountinfo", 32_MiB);
  return text ? parse_mounts(*text) : Result<std::vector<MountEntry>>(std::unexpected(text.error()));
}

std::optional<MountEntry> mount_at(const std::vector<MountEntry>& all, const std::string& place) {
  char real[4096];
  const std::string path = ::realpath(place.c_str(), real) != nullptr ? real : place;
  for (auto one = all.rbegin(); one != all.rend(); ++one)
    if (one->place == path) return *one;
  return std::nullopt;
}

bool shows(const MountEntry& mount, const Device& device) {
  if (mount.major == device.major && mount.minor == device.minor) return true;
  // A device file that is bound: the file system is that of /dev, its root the file.
  return mount.root.ends_with(device.path.substr(device.path.rfind('/'))) && (mount.type == "devtmpfs" || mount.type == "tmpfs" || mount.root.ends_with(device.path));
}

Result<std::string> file_system_on(const Device& device) {
  if (is_half_formatted(device)) return std::string();
  // 0: something is there, 2: nothing is; all else says nothing.
  auto found = call({"blkid", "-p", "-u", "filesystem,raid,crypto,other", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device.path});
  if (!found) return std::unexpected(std::move(found.error()));
  if (found->exit.code == 0) {
    std::string type;
    for (const std::string& line : split(found->out, '\n'))
      if (line.starts_with("TYPE=")) type = line.substr(5);
      else if (line.starts_with("PTTYPE=") && type.empty()) type = "partitions (" + line.substr(7) + ")";
    return type.empty() ? Result<std::string>(fail(Code::Internal, fmt::format("what is on {} cannot be told: blkid: {}", device.path, last_words(*found)))) : type;
  }
  if (found->exit.code != 2) return fail(Code::Internal, fmt::format("what is on {} cannot be told: blkid: exit status {}: {}", device.path, found->exit.code, last_words(*found)));
  const Fd fd(::open(device.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, "open " + device.path);
  const auto size = device_size(device);
  if (!size) return std::unexpected(size.error());
  if (file_has_data(device).value_or(false)) return fail(Code::Conflict, fmt::format("{} holds data of no known kind: it is not formatted. Is it a raw volume? Then ask for it as a block device", device.path));
  std::vector<char> buffer(probed);
  for (const std::int64_t from : {std::int64_t{0}, std::max<std::int64_t>(0, *size - static_cast<std::int64_t>(probed))}) {
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(static_cast<std::int64_t>(probed), *size - from));
    std::size_t got = 0;
    while (got < wanted) {
      const ssize_t n = ::pread(fd.get(), buffer.data() + got, wanted - got, from + static_cast<std::int64_t>(got));
      if (n < 0 && errno == EINTR) continue;
      // What cannot be read is no empty disk.
      if (n <= 0) return n < 0 ? fail_errno(errno, "read " + device.path) : fail(Code::Internal, fmt::format("{} ends before its size", device.path));
      got += static_cast<std::size_t>(n);
    }
    if (std::any_of(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(wanted), [](char c) { return c != 0; }))
      return fail(Code::Conflict, fmt::format("{} holds data of no known kind: it is not formatted. Is it a raw volume? Then ask for it as a block device", device.path));
  }
  return std::string();
}

Result<void> make_file_system(const Device& device, const std::string& type) {
  if (auto marked = write_mark(device, format_mark()); !marked) return marked;
  auto made = type == "xfs" ? called({"mkfs.xfs", "-q", "-K", "-f", device.path}) : called({"mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard", "-F", device.path});
  // Where the file system has something of its own there, that is not touched.
  return made && is_half_formatted(device) ? write_mark(device, std::string(mark_size, '\0')) : made;
}

Result<void> check_file_system(const Device& device, const std::string& type, bool read_only) {
  if (type != "ext4" || read_only) return {};  // xfs looks at itself when it is mounted
  // One that is mounted somewhere is somebody's already: it is not looked at under his hands.
  if (const Fd alone(::open(device.path.c_str(), O_RDONLY | O_EXCL | O_CLOEXEC)); !alone) return errno == EBUSY ? Result<void>() : Result<void>(fail_errno(errno, "open " + device.path));
  // Looked at without a write first: e2fsck -p writes bad descriptors over their good copies before it gives up.
  if (auto looked = call({"dumpe2fs", "-h", device.path}); looked && looked->out.find("needs_recovery") != std::string::npos) (void)call({"e2fsck", "-p", "-E", "journal_only", device.path});
  auto done = call({"e2fsck", "-n", device.path});
  if (!done) return std::unexpected(std::move(done.error()));
  if (done->exit.code >= 4) return fail(Code::Internal, fmt::format("the file system on {} is damaged: e2fsck: exit status {}: {}. Nothing was changed: take a snapshot, then mend it by hand", device.path, done->exit.code, last_words(*done)));
  done = call({"e2fsck", "-p", device.path});
  if (!done) return std::unexpected(std::move(done.error()));
  if (done->exit.code >= 4) return fail(Code::Internal, fmt::format("the file system on {} is damaged: e2fsck: exit status {}: {}. Nothing was changed: take a snapshot, then mend it by hand", device.path, done->exit.code, last_words(*done)));
  // Growth at rest needs no rights that growth while it is mounted does.
  const auto size = device_size(device);
  if (!size) return std::unexpected(size.error());
  auto about = call({"dumpe2fs", "-h", device.path});
  if (!about || about->exit.code != 0) return about ? fail(Code::Internal, fmt::format("dumpe2fs {}: {}", device.path, last_words(*about))) : Result<void>(std::unexpected(std::move(about.error())));
  std::int64_t blocks = 0, block = 0;
  for (const std::string& line : split(about->out, '\n'))
    for (const auto& [name, into] : {std::pair("Block count:", &blocks), {"Block size:", &block}})
      if (line.starts_with(name)) {
        const std::string_view number = trim(std::string_view(line).substr(std::string_view(name).size()));
        (void)std::from_chars(number.data(), number.data() + number.size(), *into);
      }
  if (blocks <= 0 || block <= 0) return fail(Code::Internal, fmt::format("dumpe2fs {} tells no size", device.path));
  if (*size - blocks * block < 1024 * block) return {};  // less than a piece by which it grows
  if (auto checked = call({"e2fsck", "-f", "-p", device.path}); !checked || checked->exit.code >= 4) return checked ? fail(Code::Internal, fmt::format("the file system on {} is damaged: {}", device.path, last_words(*checked))) : Result<void>(std::unexpected(std::move(checked.error())));
  return called({"resize2fs", device.path});
}

Result<void> grow_file_system(const Device& device, const std::string& type, const std::string& place) {
  if (type == "xfs") return called({"xfs_growfs", "-d", place});
  if (type != "ext4") return fail(Code::Unsupported, fmt::format("a file system of type {} is not grown here", type));
  auto done = call({"resize2fs", device.path});
  if (!done) return std::unexpected(std::move(done.error()));
  if (done->exit.code == 0) return {};
  if (last_words(*done).find("ermission") != std::string::npos) return fail(Code::Unsupported, fmt::format("ext4 does not grow while it is mounted here (that needs CAP_SYS_RESOURCE): it grows when the volume is mounted next, or use xfs"));
  return fail(Code::Internal, fmt::format("resize2fs: {}", last_words(*done)));
}

Result<std::int64_t> device_size(const Device& device) {
  const Fd fd(::open(device.path.c_str(), O_RDONLY | O_CLOEXEC));
  std::uint64_t size = 0;
  if (!fd) return fail_errno(errno, "open " + device.path);
  if (::ioctl(fd.get(), BLKGETSIZE64, &size) != 0) return fail_errno(errno, "size of " + device.path);
  return static_cast<std::int64_t>(size);
}

Result<void> check_place(const std::string& place) {
  if (!place.starts_with('/') || place.size() > 4000 || place.find('\0') != std::string::npos) return fail(Code::Invalid, fmt::format("\"{}\": an absolute path is expected", place.substr(0, 200)));
  const auto parts = split(place, '/');
  if (std::any_of(parts.begin(), parts.end(), [](const std::string& part) { return part == ".." || part == "."; })) return fail(Code::Invalid, fmt::format("\"{}\": a path without . and .. is expected", place.substr(0, 200)));
  struct stat about {};
  if (::lstat(place.c_str(), &about) == 0 && S_ISLNK(about.st_mode)) return fail(Code::Invalid, fmt::format("{} is a link", place));
  return {};
}

Result<void> mount_device(const Device& device, const std::string& type, const std::string& place, const std::vector<std::string>& flags, bool read_only) {
  std::string options = read_only ? "ro" : "rw";
  if (read_only && type == "xfs") options += ",norecovery";  // a log that is to be replayed would be a write
  if (read_only && type == "ext4") options += ",noload";
  // A snapshot or a clone has the uuid of what it is of: both are mounted.
  if (type == "xfs") options += ",nouuid";
  for (const std::string& flag : flags) options += "," + flag;
  auto done = call({"mount", "--no-canonicalize", "-t", type, "-o", options, device.path, place});
  if (!done) return std::unexpected(std::move(done.error()));
  return done->exit.code == 0 ? Result<void>() : Result<void>(fail(Code::Internal, fmt::format("mount {} ({}): {}", device.path, type, last_words(*done))));
}

Result<void> bind_mount(const std::string& from, const std::string& place, bool read_only) {
  // By descriptor: what the place is cannot change between its check and its use.
  const Fd to(::open(place.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!to) return fail_errno(errno, "open " + place);
  const std::string target = fmt::format("/proc/self/fd/{}", to.get());
  if (::mount(from.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) return fail_errno(errno, fmt::format("bind {} to {}", from, place));
  if (!read_only) return {};
  // What the mount has beside (nosuid, nodev, noexec) is said again, or it would go.
  struct statvfs about {};
  unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
  if (::statvfs(place.c_str(), &about) == 0) flags |= (about.f_flag & ST_NOSUID ? MS_NOSUID : 0) | (about.f_flag & ST_NODEV ? MS_NODEV : 0) | (about.f_flag & ST_NOEXEC ? MS_NOEXEC : 0) | (about.f_flag & ST_NOATIME ? MS_NOATIME : 0);
  if (::mount(nullptr, place.c_str(), nullptr, flags, nullptr) == 0) return {};
  const int error = errno;
  ::umount2(place.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
  return fail_errno(error, fmt::format("make {} read-only", place));
}

Result<void> unmount(const std::string& place) {
  // As often as something is there; a stack of them would be left otherwise.
  for (int times = 0; times < 16; ++times) {
    const auto all = mounts();
    if (!all) return std::unexpected(all.error());
    if (!mount_at(*all, place)) return {};
    if (::umount2(place.c_str(), UMOUNT_NOFOLLOW) != 0 && errno != EINVAL) return errno == EBUSY ? fail(Code::Conflict, fmt::format("{} is in use", place)) : fail_errno(errno, "unmount " + place);
  }
  return fail(Code::Internal, fmt::format("{} is mounted again and again", place));
}

}  // namespace fairlead::blocks
