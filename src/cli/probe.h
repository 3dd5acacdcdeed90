// SPDX-License-Identifier: Apache-2.0
// Looks at this machine for preflight.h. Changes nothing.
#pragma once
#include "cli/command.h"
#include "cli/preflight.h"
#include "cli/site_files.h"

namespace fairlead::cli {

MachineFacts probe_machine(const Context& context, const SiteSettings& settings);

}  // namespace fairlead::cli
