// SPDX-License-Identifier: GPL-3.0-or-later
// The way back of a set (docs/design/017). An intent is written first; from then on each call goes on where the one before stopped, however it was ended.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "card.h"

namespace fairlead::companion {

struct RestoreSet {
  std::string folder, state, jail;  // as of MakeSet
  std::string cluster;
  // Puts that dump in the place of the live database; may be asked again for the same. Gives what the answer says: "last-id".
  // Unavailable: not known yet, ask again. Another error: nothing was changed.
  std::function<Result<Card>(const Card& intent)> restore_database;
  // Takes the request back, if nobody has begun to carry it out; from then on nobody does.
  std::function<bool(const Card& intent)> withdraw;
  std::function<void()> on_step;    // for tests: before each change
  std::function<std::uint64_t(const std::string& folder)> free_bytes;  // for tests
  std::chrono::seconds wait_for_heads{600};
  Instant now;
  std::string import = {};          // the hold of an import, under which an empty cluster is filled and which stays (cluster_move.h); empty: a restore
};

// One restore at a time. Conflict: another one is under way. Invalid: the set is of another cluster, or damaged, or lacks a part.
// `parts`: of state, database, jail. Everything is checked before the intent is written.
Result<Card> begin_restore(const RestoreSet& options, const std::string& set, const std::vector<std::string>& parts, const std::string& id);
// The intent of the restore that is under way; NotFound: none is.
Result<Card> read_intent(const std::string& folder);
// One round. True: it has ended, and `restores/ID` says how. Unavailable: it waits, and for what. Other errors: told, and tried again.
Result<bool> carry_on_restore(const RestoreSet& options);
Result<Card> read_outcome(const std::string& folder, const std::string& id);
// Whoever begins something that lasts (a restore, an export, an import) has this until the intent is written: of two who ask at once one sees the other.
Result<Fd> alone_to_begin(const std::string& folder);

// The highest id that is known to have been given, plus one: of this set, of the state that was replaced, of the database, of the file `mark`.
Result<void> write_mark(const std::string& folder, const std::string& cluster, std::uint32_t next_id);  // never goes back
std::uint32_t read_mark_of(const std::string& folder);
inline constexpr std::size_t kReplacedKept = 3;      // states that restores put aside, the newest ones
inline constexpr std::uint32_t kIdsInDoubt = 10'000;  // left out where the state that was replaced cannot be read

}  // namespace fairlead::companion
