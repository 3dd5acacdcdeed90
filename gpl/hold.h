// SPDX-License-Identifier: GPL-3.0-or-later
// A file on the volume of slurmctld's state: while it is there, slurmctld is not to run (docs/design/017). The companion of each head obeys it; who placed it takes it away.
#pragma once
#include <optional>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

struct Hold {
  std::string id, kind, reason;  // kind: restore, export, moved, import
  std::string sum;               // of an import: SHA-256 of the code that opens it (cluster_move.h), in hexadecimal digits
  friend bool operator==(const Hold&, const Hold&) = default;
};

// None: slurmctld may run. One that is not understood holds, too. An error: the volume does not answer.
Result<std::optional<Hold>> read_hold(const std::string& volume);
// Conflict: another one is there, which stays. The same one again: nothing is done, unless it says something else now.
Result<void> place_hold(const std::string& volume, const Hold& hold);
// Only that one. Gone already: nothing is done.
Result<void> lift_hold(const std::string& volume, const std::string& id);

// Said by the companion of the head that would run slurmctld, when it has none: nothing writes into the state.
Result<void> note_held(const std::string& volume, const std::string& id);
bool is_held(const std::string& volume, const std::string& id);

}  // namespace fairlead::companion
