// SPDX-License-Identifier: GPL-3.0-or-later
// Sets: slurmctld's state, the accounting database and the shared root as they fit together (docs/design/017). In a folder of a volume of their own:
//
//   sets/20261122T001500Z/     a set, seen only when it is whole and was read back:
//     set                      a card: cluster, at, next-id, parts, sizes, checksums of the manifests
//     state/ state.manifest    job_state before all others, so that what a job needs is there
//     database.sql.gz          dumped before the state was copied
//     jail/ jail.manifest      the shared root: what had not changed since the set before is a hard link to the file there
//     jail.seen                what the shared root looked like when it was copied
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "card.h"

namespace fairlead::companion {

struct SetInfo {
  std::string name, cluster;
  Instant at;
  std::uint32_t next_id = 0;
  std::uint64_t bytes = 0;          // of all parts; what is linked counts in full
  std::vector<std::string> parts;   // of state, database, jail
  Card card;
  bool has(const std::string& part) const;
};

// "20261122T001500Z"
std::string set_name(Instant at);
std::optional<Instant> set_time(const std::string& name);
// Names of sets that go when `keep` stay. Those of a time after `now` push none out and stay.
std::vector<std::string> sets_to_remove(std::vector<std::string> names, int keep, Instant now);

struct MakeSet {
  std::string folder;                 // holds sets/
  std::string state, jail;            // volumes; jail empty: that part is left out
  std::string cluster, version;       // version: of Slurm, as people read it
  Instant now;
  // Writes the dump there. None: that part is left out. Gives what the card is to say of it: "database.sum", "database.last-id".
  std::function<Result<Card>(const std::string& path)> dump;
  std::function<void()> on_step;      // for tests
  std::function<std::uint64_t(const std::string& folder)> free_bytes;  // for tests
};
// One at a time. NotFound: there is no state yet. Exhausted: there is no room, and nothing was written. On any error nothing is left but what the next call removes.
Result<SetInfo> make_set(const MakeSet& options);

std::vector<std::string> set_names(const std::string& folder);  // oldest first
Result<SetInfo> read_set(const std::string& folder, const std::string& name);  // its card alone
// Every byte of it against its manifests. Invalid: it is damaged, and where. Another error: it could not be read.
Result<void> check_set(const std::string& folder, const SetInfo& set, const std::vector<std::string>& parts);
Result<void> remove_set(const std::string& folder, const std::string& name);  // never half: it stops being a set first
void remove_unfinished(const std::string& folder);

// slurmctld's state of a live or dead head, to an empty folder.
Result<void> copy_state(const std::string& volume, const std::string& to);
// A folder with all that lies in another one. What cannot be held there (devices, attributes) is an error for none.
Result<void> copy_whole(const std::string& from, const std::string& to);
std::uint64_t bytes_in(const std::string& folder);

}  // namespace fairlead::companion
