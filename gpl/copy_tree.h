// SPDX-License-Identifier: GPL-3.0-or-later
// Copies a root file system: files (shared blocks where the file system can, holes stay holes), folders, links, hard links, devices and pipes, with owner, mode, extended attributes and times.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct CopyOptions {
  std::set<std::string> leave_out;  // paths below the source, "/proc": of a folder an empty one stands there, of anything else an empty file
  std::function<void()> on_entry;   // before each entry; for tests
};
struct Copied {
  std::uint64_t entries = 0, bytes = 0;
  std::uint64_t without = 0;           // attributes or devices that the target cannot hold
  std::vector<std::string> examples;   // of these, at most five: "/usr/bin/ping: security.capability: Operation not supported"
};

// `from` and `to` are open folders; `to` is empty and nobody else writes there. Any error but those counted in `without` ends it: half a copy is left for the caller to remove. Sockets are not copied.
Result<Copied> copy_tree(int from, int to, const CopyOptions& options);


// One entry of an open folder, under a name that is free in `to`: a file, link, device or pipe, or a folder without what is in it. A folder that is there already is given the other's owner, mode and attributes.
// Hard links become files of their own.
Result<Copied> copy_entry(int from, int to, const std::string& name, const std::string& path);

}  // namespace fairlead::companion
