// SPDX-License-Identifier: GPL-3.0-or-later
// Fills a jail volume with a root file system, or adopts the one that is there (jail_layout.h). May be killed at any moment and run again: `current` leads to a whole root or is not there.
#pragma once
#include <functional>
#include <string>

#include "copy_tree.h"
#include "jail_layout.h"

namespace fairlead::companion {

struct PopulateOptions {
  std::string volume;              // a folder
  std::string source = "/";        // whose root it becomes
  std::string version;             // its name, if one is made
  std::set<std::string> leave_out; // of the source: what is mounted there
  std::function<void()> on_step;   // before each change; for tests
};
struct Populated {
  JailRoot root;
  bool made = false;  // now; else it was there before
  Copied copied;
  std::vector<std::string> users;  // taken over from a volume that held only users and homes
};

// One at a time: a second one waits. Invalid: the volume holds something that is neither a jail nor a root file system; nothing of it was touched.
Result<Populated> populate(const PopulateOptions& options);

// Lines of `more` (passwd, group, shadow or gshadow) that `base` has no name for; of passwd and group only people's, numbers from 1000 on, without nobody.
// `names` of these lines are appended to `taken`; for shadow and gshadow only lines whose name is in it count.
enum class Accounts { Numbered, Named };
std::string merged_accounts(const std::string& base, const std::string& more, Accounts kind, std::vector<std::string>& taken);

// Mount points below "/" by /proc/self/mountinfo, with its escapes undone.
std::set<std::string> mount_points(const std::string& mountinfo);

int run_populate(const std::vector<std::string>& arguments);  // the command

}  // namespace fairlead::companion
