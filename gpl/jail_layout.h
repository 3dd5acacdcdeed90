// SPDX-License-Identifier: GPL-3.0-or-later
// What a jail volume holds. Either root file systems side by side:
//
//   .fairlead-jail      "versions"
//   versions/V/         a whole root file system; while it is being filled it is called V.tmp and nobody looks at it
//   current             a link to versions/V: what new steps and sessions enter. Changed by one rename
//   home/ root/         people's files, the same in every version
//
// or a root file system that was there before us, used as it is:
//
//   .fairlead-jail      "adopted"
#pragma once
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace fairlead::companion {

inline constexpr const char* kJailMarker = ".fairlead-jail";
inline constexpr const char* kVersions = "versions";
inline constexpr const char* kCurrent = "current";

enum class Layout { Versions, Adopted };
std::string_view text(Layout layout);

struct JailRoot {
  Layout layout = Layout::Versions;
  std::string version;  // empty when adopted
  std::string path;     // below the volume: "versions/V" or "."
};

// A version is named by up to 64 of a-z, 0-9 and "-", not beginning with "-": safe as a file name and never one that is being filled.
bool is_version_name(std::string_view name);
// NotFound: nobody has filled or adopted the volume yet. Invalid: not understood; nothing may be written then.
Result<Layout> read_layout(int volume);
// The root that new steps enter. NotFound as above, or filled but for the last step.
Result<JailRoot> find_root(int volume);

// Whether two paths lead to the same file. One that leads nowhere does not; an error is none of both: a file system that does not answer says nothing.
Result<bool> same_file(const std::string& a, const std::string& b);

// Opens below `root`, as chroot would resolve it: absolute links and ".." stay inside, whatever the users of the jail made of it.
Result<Fd> open_in_root(int root, const std::string& path, int flags);
enum class Kind { Folder, File };
// A place to mount upon (O_PATH), made if it is not there. Several nodes may do so at once.
Result<Fd> mount_point(int root, const std::string& path, Kind kind);

}  // namespace fairlead::companion
