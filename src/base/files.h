// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/units.h"

namespace fairlead {

// The whole file. Exhausted: larger than `limit`.
Result<std::string> read_file(const std::string& path, Bytes limit = 64_MiB);

// Old or new content, never a mixture, also after a power cut: a temporary file in the same folder, fsync, rename,
// fsync of the folder. `mode` is exact (no umask).
Result<void> write_file_durably(const std::string& path, std::string_view bytes, mode_t mode);
// The same without fsync: atomic to readers, may be lost in a power cut.
Result<void> write_file_atomically(const std::string& path, std::string_view bytes, mode_t mode);

Result<void> make_dirs(const std::string& path, mode_t mode = 0755);
// Removes the tree; never follows links, never crosses into another mount (fails with Unavailable if one is there).
Result<void> remove_tree(const std::string& path);
Result<std::vector<std::string>> list_dir(const std::string& path);  // names, sorted, without . and ..
bool exists(const std::string& path);

// Opens `path` (relative) below the folder `root` by openat2 with RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS: a link or
// ".." that leads out gives Forbidden. For every path that a user gave us.
Result<Fd> open_beneath(const std::string& root, const std::string& path, int flags, mode_t mode = 0);

}  // namespace fairlead
