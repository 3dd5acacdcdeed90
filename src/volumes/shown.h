// SPDX-License-Identifier: Apache-2.0
// What shows a pool's volumes on this machine: the kernel's loop devices, on the volume's file or on the one that its engine serves; or a ublk device of its engine's (blocks/ublk.h). Sources: loop(4), Linux' include/uapi/linux/loop.h.
// An engine's file: /run/fairlead-volumes/POOL/ID/disk/ID.POOLID.disk, POOL being the first 8 characters of the pool's id; its socket: /run/fairlead-volumes/POOL/ID/control.
#pragma once
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "blocks/ublk.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

class Shown {
 public:
  explicit Shown(std::string pool_id) : pool_(std::move(pool_id)) {}
  std::string run_folder() const { return "/run/fairlead-volumes/" + pool_.substr(0, 8); }
  std::string folder_of(const std::string& id) const { return run_folder() + "/" + id; }
  std::string socket_of(const std::string& id) const { return folder_of(id) + "/control"; }
  std::string served_as(const std::string& id) const { return id + "." + pool_ + ".disk"; }

  // Devices that show the volume by its engine or, where it has a file here, without; sorted. An engine's file has a name like nothing else, and is asked nothing: one that hangs would hold up every look.
  Result<std::vector<DeviceSeen>> devices(const std::string& id, const struct stat* file) const;
  // Nothing: there is no engine. Unavailable: it does not answer.
  Result<std::optional<EngineSeen>> engine(const std::string& id) const;
  Result<void> limit(const std::string& id, const blocks::DiskLimits& limits) const;
  Result<void> grow_engine(const std::string& id) const;
  // Until it is gone; `lock`: by whose flock it claims what it serves, none: it has none. Conflict: its device is there still. Unavailable: it has not ended.
  Result<void> stop_engine(const std::string& id, const Fd& lock) const;
  // path: of the file; empty: the one that its engine serves.
  Result<void> attach(const std::string& id, const std::string& path, bool read_only) const;
  Result<void> detach(const std::string& id, const std::string& device, const struct stat* file) const;
  Result<void> grow(const std::string& id, const std::string& device, const struct stat* file) const;
  static std::optional<bool> is_used(const std::string& device);
  static std::optional<std::string> behind(const std::string& device);  // the name, without folders, of the file that "/dev/loop3" shows; nothing: it shows none

 private:
  Result<void> detach_ublk(const std::string& id, int number) const;
  Result<std::unique_ptr<blocks::Ublk>> still_shows_ublk(const std::string& id, int number) const;  // Unavailable: no more
  Result<void> still_shows(const Fd& loop, const std::string& id, const std::string& device, const struct stat* file) const;
  const std::string pool_;
};

}  // namespace fairlead::volumes
