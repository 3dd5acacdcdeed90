// SPDX-License-Identifier: Apache-2.0
// Removing all of a site from this machine, with or without a running server, from whatever half-finished state it is in.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::fleet {

struct TeardownOptions {
  bool keep_images = true;   // images/ is costly to build and belongs to no cluster
  bool keep_data = false;    // volumes/ and the store: false removes them
  std::function<Result<void>()> before_files;  // called once no node runs, before anything is unmounted or removed; where it fails, nothing more is done
};
// Server, nodes, mounts below the state folder, cgroups, links and namespaces, then the state's files. Goes on after a failure and returns
// the first one; may be repeated. `tell` hears each thing done, in a few words.
Result<void> teardown_site(const std::string& state_dir, const TeardownOptions& options, const std::function<void(const std::string&)>& tell = {});

// What of a site is still on this machine: processes, mounts, cgroups, links, namespaces. Empty: nothing.
std::vector<std::string> site_leftovers(const std::string& state_dir);

}  // namespace fairlead::fleet
