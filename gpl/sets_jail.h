// SPDX-License-Identifier: GPL-3.0-or-later
// The shared root in a set: what has not changed since the set before is a hard link to the file there.
#pragma once
#include <cstdint>
#include <string>

#include "base/result.h"
#include "manifest.h"

namespace fairlead::companion {

struct JailCopy {
  Manifest seen, before;        // the volume now, and when the set before was made: by times, nothing is read
  std::uint64_t new_bytes = 0;  // that are to be copied
};
// `set_before`: a folder, or empty. Versions that are not current, what is being filled and what a restore left are not part of it.
Result<JailCopy> look_at_jail(const std::string& volume, const std::string& set_before);
// Into `set`/jail, which is empty, and `set`/jail.seen. What goes away meanwhile is not in it.
Result<void> copy_jail(const JailCopy& copy, const std::string& volume, const std::string& set, const std::string& set_before);
// Is what was linked still what the set before says of it? By `set`/jail.manifest. Invalid: that set has rotted.
Result<void> links_are_sound(const JailCopy& copy, const std::string& set, const std::string& set_before);

inline constexpr const char* kRestoredFolder = "restored";  // of the volume: where a restore puts files

}  // namespace fairlead::companion
