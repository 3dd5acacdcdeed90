// SPDX-License-Identifier: GPL-3.0-or-later
// Fills a jail volume with a root file system, or adopts the one that is there (jail_layout.h). May be killed at any moment and run again: `current` leads to a whole root or is not there. On request it makes another
// version current: one that is there still (a way back), or one that it makes beside the old one and carries people's packages and files over to.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "copy_tree.h"
#include "jail_layout.h"
#include "replay.h"

namespace fairlead::companion {

struct PopulateOptions {
  std::string volume;              // a folder
  std::string source = "/";        // whose root it becomes
  std::string version;             // its name, if one is made
  std::set<std::string> leave_out; // of the source: what is mounted there
  std::function<void()> on_step;   // before each change; for tests
  bool renew = false;              // `version` is to be current, whichever is now
  std::size_t keep = 1;            // old versions
  std::vector<std::string> nodes;  // that live in the jail: whoever has not said what it uses may use anything
  std::chrono::milliseconds wait_for_packages{120'000};  // for package managers and adduser at work in the old version
  std::function<Result<void>(const std::string& root)> link_cache;  // ReplayOptions
  std::function<std::uint64_t()> free_bytes;  // of the volume, 0: not known; for tests
};
struct Populated {
  JailRoot root;
  bool made = false;  // now; else it was there before
  Copied copied;
  std::vector<std::string> users;  // taken over from a volume that held only users and homes
  std::string from;                // the version that was current before; empty: none was replaced
  bool built = false;              // else it was there still, as it was left
  Replayed replayed;
  std::vector<std::string> versions;  // that are on the volume now
  std::vector<std::string> removed, kept;  // old ones; "V: worker-0 uses it"
};

// One at a time: a second one waits. Invalid: the volume holds something that is neither a jail nor a root file system; nothing of it was touched; or an adopted
// root is asked to be renewed. Exhausted: a version would not fit, and nothing was written, or did not, and what was written is gone again. Unavailable: packages are being installed in the old version for longer than it waits.
Result<Populated> populate(const PopulateOptions& options);

// Lines of `more` (passwd, group, shadow or gshadow) that `base` has no name for; of passwd and group only people's, numbers from 1000 on, without nobody.
// `names` of these lines are appended to `taken`; for shadow and gshadow only lines whose name is in it count.
enum class Accounts { Numbered, Named };
std::string merged_accounts(const std::string& base, const std::string& more, Accounts kind, std::vector<std::string>& taken);

// Mount points below "/" by /proc/self/mountinfo, with its escapes undone.
std::set<std::string> mount_points(const std::string& mountinfo);

int run_populate(const std::vector<std::string>& arguments);  // the command

}  // namespace fairlead::companion
