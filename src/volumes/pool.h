// SPDX-License-Identifier: Apache-2.0
// What a pool is to those who decide: its files, the devices that show them, and the steps that change them. Each step is durable when it returns, and harmless when it is taken again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "blocks/disk_control.h"

namespace fairlead::volumes {

struct FileSeen {
  std::int64_t size = 0;            // bytes
  bool ours = true;                 // its mark says that it is this one's
  std::int64_t allocated = 0, extents = 0;  // bytes and pieces on disk; a copy takes longer the more pieces there are
  std::int64_t born = 0;            // nanoseconds since 1970: a copy's content is of this moment or later
};
struct DeviceSeen {
  std::string name;                 // "/dev/loop3"
  std::int64_t size = 0;
  std::optional<bool> used;         // mounted, or held open by somebody; nothing: not known, or not asked (is_used)
  friend bool operator==(const DeviceSeen&, const DeviceSeen&) = default;
};
// The engine of a volume, which serves its file to the device.
struct EngineSeen {
  std::int64_t size = 0;            // that it serves
  blocks::DiskLimits limits;
  bool failed = false;              // it could not sync once, and takes no more
  std::int64_t reads = 0, writes = 0, read_bytes = 0, written_bytes = 0, waited_ns = 0;  // since it began; waited: for its limits, in sum
};
// All that there is of one id.
struct Sight {
  std::optional<FileSeen> volume, snapshot, part;  // part: half made
  std::vector<DeviceSeen> devices;                 // that show the volume, by its engine or without
  std::optional<EngineSeen> engine;                // none: it is dead, or was never started
};
struct Room {
  std::int64_t size = 0, free = 0;  // bytes, of the file system
};

// Its methods may be called from several threads, of one id by one at a time.
class Pool {
 public:
  virtual ~Pool() = default;
  virtual Result<std::string> id() = 0;                    // made with the pool, for ever
  virtual bool is_distributed() = 0;                       // its volumes are of class distributed, and of no other; each has an engine
  virtual Result<Room> room() = 0;
  virtual Result<Sight> look(const std::string& id) = 0;   // an error: what is there is not known. O(devices of the machine)
  virtual Result<Sight> look_at_files(const std::string& id) { return look(id); }  // the same, perhaps without devices and engine. O(1)
  // Whether somebody has it mounted or open for himself; nothing: not known. To ask is to hold it for a moment: who mounts it just then is refused, so it is asked only where it decides.
  virtual std::optional<bool> is_used(const std::string& device) = 0;
  virtual Result<std::vector<std::string>> ids() = 0;      // of which there is a file with a name of ours, sorted
  // ID.part: of this size and zero, or with what the source holds now. Exhausted: no room. Unsupported: no copies here.
  // key: encrypted, with a key of its own which that one of the keyring opens; empty: as it is.
  virtual Result<void> make_part(const std::string& id, std::int64_t size, const std::string& key) = 0;
  virtual Result<void> copy_part(const std::string& id, const std::string& source, bool of_snapshot, std::int64_t size) = 0;  // size: at least the source's
  virtual Result<void> drop_part(const std::string& id) = 0;
  virtual Result<void> publish(const std::string& id, bool snapshot) = 0;  // the part becomes the file
  virtual Result<void> remove(const std::string& id, bool snapshot) = 0;
  virtual Result<void> grow_file(const std::string& id, std::int64_t size) = 0;
  virtual Result<void> grow_device(const std::string& id, const std::string& device) = 0;  // to its file's size
  virtual Result<void> can_encrypt() = 0;                  // Unsupported: says what is missing
  virtual Result<std::int64_t> key_version(const std::string& key) = 0;                    // that closes now
  virtual Result<std::int64_t> rewrap(const std::string& id, bool snapshot) = 0;           // its key is closed by the current version, which is returned
  // Engines: a process for each volume that has one, which outlives this one.
  virtual bool has_engines() = 0;                          // can be started here
  // What it says of itself; nothing: there is none. Unavailable: it does not answer.
  virtual Result<std::optional<EngineSeen>> engine(const std::string& id) {
    auto seen = look(id);
    return seen ? Result<std::optional<EngineSeen>>(std::move(seen->engine)) : std::unexpected(std::move(seen.error()));
  }
  virtual Result<void> start_engine(const std::string& id, bool read_only, const blocks::DiskLimits& limits) = 0;
  virtual Result<void> stop_engine(const std::string& id) = 0;                             // Conflict: the device is there still
  virtual Result<void> grow_engine(const std::string& id) = 0;                             // to its file's size
  virtual Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) = 0; // holds when it returns
  // Of volumes that are shown on further machines: which engine may take one, that of `host` (by its id) for the attachment `generation`: alone, or beside others that read it too. One that is not named begins no more. Unsupported: there are none such in this pool.
  virtual Result<void> allow(const std::string& id, const std::string& host, std::int64_t generation, bool read_only) { return fail(Code::Unsupported, id + " is shown on one machine alone: " + host + " is asked for its attachment " + std::to_string(generation) + (read_only ? ", read-only" : "")); }
  virtual Result<void> withdraw(const std::string& id, std::int64_t) { return fail(Code::Unsupported, id + " is shown on one machine alone"); }  // that one may not
  virtual Result<void> shut_out(const std::string& id, std::int64_t generation, bool) { return withdraw(id, generation); }  // and if it serves the volume, nothing of it is read or written any more
  virtual Result<void> ended(const std::string& id, std::int64_t generation) { return withdraw(id, generation); }           // it serves no more, as its machine says: what a death has left of it goes
  // managed: what is shown is what the engine serves.
  virtual Result<void> attach(const std::string& id, bool read_only, bool managed) = 0;
  virtual Result<void> detach(const std::string& id, const std::string& device) = 0;       // asked of the kernel; whether it is so is seen later
};

}  // namespace fairlead::volumes
