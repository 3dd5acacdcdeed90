// SPDX-License-Identifier: GPL-3.0-or-later
// What people changed in one version of the shared root is done to another one, where that does not contradict the new image: three ways, with the manifest as the common beginning.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "manifest.h"
#include "records.h"

namespace fairlead::companion {

// Paths that are no part of a version: mounts of the node, people's own folders, what this program writes, and where it puts what it could not carry over.
const std::set<std::string>& outside_of_versions();
inline constexpr const char* kConflicts = "/var/lib/fairlead/jail-conflicts";  // in the new version: FROM/PATH, and FROM.txt with the reasons
inline constexpr const char* kReplaced = "/var/lib/fairlead/jail-replaced";    // in a version that is not current: what those who still live in it are told
inline constexpr const char* kLinkCache = "/etc/ld.so.cache";                  // made again, never carried

struct Conflict {
  std::string path, why;
  friend bool operator==(const Conflict&, const Conflict&) = default;
};
struct ReplayPlan {
  std::vector<std::string> remove;   // deepest first
  std::vector<std::string> copy;     // folders before what is in them
  std::vector<std::string> merge;    // records.h
  std::vector<Conflict> conflicts;   // the new image's stands; the other copy is kept
  bool link_cache = false;           // libraries came or went
  friend bool operator==(const ReplayPlan&, const ReplayPlan&) = default;
};
// base: the old version as it was filled; mine: as it is; theirs: the new version as its image gave it. Only what `mine` differs from `base` in counts, and of that only what `theirs` did not change, too. Logs, caches and
// backups that programs write for themselves are never conflicts: the log that people know goes on, and byte code of the new image stays. O(entries).
ReplayPlan plan_replay(const Manifest& base, const Manifest& mine, const Manifest& theirs);

// Files and links that are not as they were, by their times: what a version holds that was not there when it was looked at. Neither what programs write for themselves nor what was removed.
std::vector<std::string> written_since(const Manifest& then, const Manifest& now);

struct Replayed {
  std::uint64_t files = 0, removed = 0;
  std::vector<std::string> records;     // "ada", "jq": of merged files
  std::vector<Conflict> conflicts;
};
struct ReplayOptions {
  std::string from, to;            // paths of the two roots; nobody else writes to the second
  std::string from_name;           // of the old version
  std::string base_files;          // a folder with the merged files of the old version as they were filled, "etc/passwd"
  std::function<Result<void>(const std::string& root)> link_cache;  // makes kLinkCache anew
  std::function<void()> on_step;   // for tests
};
// Done once on a root that is as its image gave it. What cannot be placed (its folder is no folder any more) is a conflict, not an error. What could not be read, for any reason but
// that it is gone, is an error: of the disk, the network, or descriptors; so is a file of records (records.h) that cannot be merged.
Result<Replayed> replay(const ReplayPlan& plan, const Manifest& mine, const ReplayOptions& options);

}  // namespace fairlead::companion
