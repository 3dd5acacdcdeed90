// SPDX-License-Identifier: Apache-2.0
// The pool of volumes that a site of this machine has (fairlead up --volumes): its daemon, and what is left of it at the end.
#pragma once
#include <string>

#include "cli/command.h"
#include "cli/site_files.h"

namespace fairlead::cli {

inline constexpr const char* kLocalPool = "local";  // its name

// The daemon runs when this returns; what it tells: "runs already", "12 GiB". NotFound: fairlead-volumes is not installed.
Result<std::string> start_volumes(Context& context, const SiteSettings& settings, Progress& progress);
// The daemon is ended, and its pool is mounted no more. `keep`: the pool's file stays, with all that is in it. Nothing where there is none.
Result<void> end_volumes(Context& context, bool keep);

}  // namespace fairlead::cli
