// SPDX-License-Identifier: Apache-2.0
// The engine of a volume in a Ceph pool (fairlead-rbd serve), as it is started on the machine of the pool's daemon and on others; and the header that says how an encrypted one is opened.
#pragma once
#include <string>
#include <utility>

#include "base/files.h"
#include "base/result.h"
#include "blocks/disk_control.h"
#include "volumes/store_process.h"

namespace fairlead::volumes {

struct RbdEngine {
  const CephPlace& place;
  std::string pool_id, id;
  std::int64_t generation = 0;   // 0: on the machine of the pool's daemon
  std::string folder, name;      // of its socket and mount, and as which it is served (shown.h)
  bool read_only = false;
  blocks::DiskLimits limits;
};
// Until it serves. key: that opens the data, 64 bytes; empty: it is not encrypted. It is erased.
Result<void> start_rbd_engine(const RbdEngine& engine, std::string key);

// The header of an encrypted volume as a file, which cryptsetup needs; in /run, and gone with this.
class HeaderFile {
 public:
  static Result<HeaderFile> make(const std::string& path, const std::string& bytes);
  HeaderFile(HeaderFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  HeaderFile& operator=(HeaderFile&&) = delete;
  ~HeaderFile();
  const std::string& path() const { return path_; }
  Result<std::string> bytes() const;

 private:
  explicit HeaderFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace fairlead::volumes
