// SPDX-License-Identifier: GPL-3.0-or-later
// What a version of the shared root was before anybody worked in it: one line per entry, kept on the jail volume outside of every root (.fairlead-jail.manifests/V). Without it nobody can tell a user's change
// from the image's own.
#pragma once
#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead::companion {

struct ManifestEntry {
  char type = 'f';  // f file, d folder, l link, c or b device, p pipe
  unsigned mode = 0, uid = 0, gid = 0;
  std::uint64_t size = 0;       // of a file; the number of a device
  std::int64_t mtime = 0, ctime = 0;  // ns; say only whether a file must be read again
  std::string hash;             // 32 bytes: SHA-256 of a file's bytes and extended attributes; of a folder's attributes, if it has any; else empty
  std::string target;           // of a link
  friend bool operator==(const ManifestEntry&, const ManifestEntry&) = default;
};
// The same to whoever uses it: all but the times.
bool same(const ManifestEntry& a, const ManifestEntry& b);

using Manifest = std::map<std::string, ManifestEntry>;  // by path: "/usr/bin/jq"; the root itself is not in it

// Invalid: not one of ours, cut off, or of a later form.
std::string print_manifest(const Manifest& manifest);
Result<Manifest> parse_manifest(std::string_view text);

struct ScanOptions {
  std::set<std::string> leave_out;   // paths: neither they nor what is below
  const Manifest* known = nullptr;   // a file with the times, size and owner that stand there is not read again
  std::function<void()> on_entry;    // for tests
  bool read = true;                  // else no file is read: the hash of one that is not known stays empty
  std::uint64_t* bytes = nullptr;    // grows by what takes room on the disk and is not known
};
// All of a tree that may be in use: what goes away meanwhile is not there. Never follows a link. Sockets are left out. Reads every file that is not known.
Result<Manifest> scan_tree(int root, const ScanOptions& options);

}  // namespace fairlead::companion
