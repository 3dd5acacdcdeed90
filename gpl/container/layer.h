// SPDX-License-Identifier: GPL-3.0-or-later
// Applies the layers of an image, tar archives that outsiders wrote, to a folder. Every path is resolved beneath that folder, as chroot would: links that earlier entries made lead nowhere else.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

// Up to `room` bytes to `to`; 0 is the end.
using ByteSource = std::function<Result<std::size_t>(char* to, std::size_t room)>;
// Takes gzip off, of several members too; what is not gzip goes through as it is. Unsupported: zstd, xz or bzip2.
class Unzip {
 public:
  explicit Unzip(ByteSource from);
  Unzip(Unzip&&) noexcept;
  ~Unzip();
  Result<std::size_t> read(char* to, std::size_t room);

 private:
  struct State;
  State* state_;
};

// What may still be written. Exhausted, with the numbers, when it does not suffice.
struct DiskShare {
  std::uint64_t bytes = 0, limit = 0;               // counted so far: each entry takes a block
  std::function<Result<void>()> look = nullptr;     // asked every 64 MiB: has the disk room?
  Result<void> take(std::uint64_t more);
  std::uint64_t looked_at = 0;
};

struct LayerReport {
  std::uint64_t entries = 0, left_out = 0;  // left out: devices
};
// All files belong to root. They lose set-user-id and set-group-id bits, and others get what the owner has but the right to write: whoever may read the image may read all of it. Whiteouts remove what lower layers brought.
// Invalid: no tar archive, or one that names ".."; Exhausted: no room. What an error leaves is the caller's to remove.
Result<LayerReport> apply_layer(int root, const ByteSource& tar, DiskShare& room);

}  // namespace fairlead::companion
