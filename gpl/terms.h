// SPDX-License-Identifier: GPL-3.0-or-later
// Slurm's state on a volume that all heads share: VOLUME/terms/N holds the state of term N, and no other folder of state exists. Whoever takes over renames it to N+1. rename() succeeds for one; every path of an earlier
// holder leads nowhere from then on, so that it cannot save, and what it does not save it does not confirm.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

struct Term {
  std::uint64_t number = 0;
  std::string path;
};

// A new term, for `holder` (one line, kept in it for people). Only under a lease. The state of a head that was alone (files in VOLUME itself) is moved into it first; being killed at any point and called again is the same.
// `allowed` is asked last before the rename: a volume may have kept us waiting beyond the lease.
//   Conflict: another took it meanwhile, or it is not allowed any more. Invalid: there was state and it is not there; nothing is started empty. Costs a few writes, whatever the size of the state.
Result<Term> take_term(const std::string& volume, const std::string& holder, uid_t owner, gid_t group, const std::function<bool()>& allowed = [] { return true; });
// Where the state lies now: of one head alone, in the volume itself, or of the highest term. NotFound: nowhere.
struct StateAt {
  std::string path;
  std::optional<std::uint64_t> term;
};
Result<StateAt> find_state(const std::string& volume);
// Is an entry of the volume Slurm's own, as against ours and the file system's?
bool is_of_slurm(const std::string& name);
// No once another took over. Unknown (an error) where the volume does not answer.
Result<bool> still_there(const Term& term);
// To be called while the daemon runs, until it says yes: the state was saved, and from now on a volume without it is not a new one.
Result<bool> mark_saved(const std::string& volume, const Term& term);
bool was_saved(const std::string& volume);  // it is marked so

}  // namespace fairlead::companion
