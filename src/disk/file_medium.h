// SPDX-License-Identifier: Apache-2.0
// A file, read and written past the page cache.
#pragma once
#include <memory>
#include <string>

#include "disk/medium.h"

namespace fairlead::disk {

// Conflict: another process serves it. The lock is of the open file and goes with the process. Invalid: it is no regular file.
Result<std::unique_ptr<Medium>> open_file_medium(const std::string& path, bool read_only);

}  // namespace fairlead::disk
