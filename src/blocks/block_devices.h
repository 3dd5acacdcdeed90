// SPDX-License-Identifier: Apache-2.0
// The kernel's side of a node: which device shows a volume, what is on it, and what is mounted where. Sources: proc(5) mountinfo, loop(4), blkid(8), e2fsck(8), mount(2).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::blocks {

struct Device {
  std::string path;               // "/dev/loop3"; the file is there when this is returned
  std::uint32_t major = 0, minor = 0;
  bool read_only = false;
  friend bool operator==(const Device&, const Device&) = default;
};
std::string device_path(std::uint32_t major, std::uint32_t minor);  // "/dev/loop3"; empty: there is none now
// The one device of this machine that shows the volume, by the name of the file behind it (ID.volume, or ID.POOLID.disk of an engine, ID.GENERATION.POOLID.disk on a further machine of a pool). NotFound: none does. Conflict: several do.
Result<Device> device_of(const std::string& volume);
// Devices of one machine that bear the volume's name may be of several sites, each with a volume called so. Which is meant: the one that is mounted there already, else `told`, where the pool's daemon said that it shows it ("/dev/loop3"; it may be a word of before the last boot), else the only one.
struct MountEntry;
Result<Device> device_of(const std::string& volume, const std::string& told, const MountEntry* mounted);
// The same, and open: as long as `open` is there its number shows this volume and no other, since the kernel gives a loop device's number out again after its last close. Unavailable: it went meanwhile.
struct OpenDevice {
  Device device;
  Fd open;
};
Result<OpenDevice> open_device(const std::string& volume, const std::string& told = {});

struct MountEntry {
  std::uint32_t major = 0, minor = 0;
  std::string root, place, type;  // root: within its file system ("/loop3" of a device file that is bound somewhere)
  bool read_only = false;         // of this mount, or of its file system
  friend bool operator==(const MountEntry&, const MountEntry&) = default;
};
Result<std::vector<MountEntry>> parse_mounts(std::string_view text);  // of /proc/self/mountinfo
Result<std::vector<MountEntry>> mounts();
// The one on top there; nothing: it is no mount point.
std::optional<MountEntry> mount_at(const std::vector<MountEntry>& all, const std::string& place);
// Is it of this device: its file system, or its file itself?
bool shows(const MountEntry& mount, const Device& device);

// What is on a device. `type` empty: nothing at all, for certain (first and last MiB are zeros, blkid finds nothing). An error: it cannot be known.
Result<std::string> file_system_on(const Device& device);
Result<void> make_file_system(const Device& device, const std::string& type);
// Before it is mounted: mended where that loses nothing, and as large as its device where its kind grows at rest. Internal: it is damaged beyond that, and nothing is changed.
Result<void> check_file_system(const Device& device, const std::string& type, bool read_only);
// While it is mounted. Unsupported: this kind does not grow so here.
Result<void> grow_file_system(const Device& device, const std::string& type, const std::string& place);
Result<std::int64_t> device_size(const Device& device);

// The last part of `place` is no link when this returns; what leads there is the orchestrator's. Invalid: it is one, or not absolute.
Result<void> check_place(const std::string& place);
Result<void> mount_device(const Device& device, const std::string& type, const std::string& place, const std::vector<std::string>& flags, bool read_only);
Result<void> bind_mount(const std::string& from, const std::string& place, bool read_only);
Result<void> unmount(const std::string& place);  // what is no mount is none

}  // namespace fairlead::blocks
