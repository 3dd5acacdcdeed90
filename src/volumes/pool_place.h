// SPDX-License-Identifier: Apache-2.0
// The folder of a pool: one on an XFS that is there, or an image file that is made and mounted. Blocks; needs root.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"

namespace fairlead::volumes {

struct PoolPlace {
  std::string folder;        // absolute
  std::string image;         // absolute; empty: the folder is on a file system that is there
  std::int64_t size = 0;     // bytes, of an image that is made now
  bool sparse = false;       // its room is not set aside: what holds it may be full before the pool is
};
// The folder is there when this returns, and an image is mounted there. Idempotent after a death at any step; an image that is there is never formatted. Invalid: no size for one that is to be made, or something else is mounted there.
Result<void> prepare_place(const PoolPlace& place);
// What is shown and used by nobody is shown no more, the image is unmounted and deleted with all that is in it; a folder without an image is left as it is. Conflict: a volume is used, or another process has the pool.
// `keep`: the image stays, unmounted.
Result<void> destroy_place(const PoolPlace& place, bool keep = false);

}  // namespace fairlead::volumes
