// SPDX-License-Identifier: Apache-2.0
// What a pool's daemon does for an object next, and what it tells of it. Pure; docs/design/070-volume-objects.md.
//
// Data is bound to an object by its uid, not by its name. What the pool has for another is not touched, and what it was to have and has not is not made anew.
#pragma once
#include <optional>
#include <string>

#include "api/volume.h"
#include "volumes/plan/ledger.h"

namespace fairlead::volumes {

struct Task {
  enum class Do { Nothing, AddFinalizer, DropFinalizer, Adopt, Make, Grow, Limit, Remove, Attach, Detach };
  Do what = Do::Nothing;
  std::int64_t size = 0;                // of Make and Grow
  std::string source;                   // of Make: an entry's id; empty: zeros
  std::int64_t generation = 0;          // of Detach
  std::optional<Limits> managed{};      // of Make and Limit: it has an engine
  std::string key{};                    // of Make: it is to be encrypted by it
  std::string phase, message;           // of the status, where nothing is done; else while it is under way
  bool soon = false;                    // what is waited for comes without a change of the object: look again
  friend bool operator==(const Task&, const Task&) = default;
};

// What is known beside the object itself.
struct Known {
  std::string pool_id;
  std::optional<Entry> entry;                    // of the object's name; of an Attachment: of its volume's
  std::optional<kube::Json> source;              // object that spec.source names; of Snapshot and Attachment: the Volume
  std::optional<Entry> source_entry;             // what the pool has of it
  std::optional<Intent> begun{};                 // of a Volume: Grow or Limit, and has not come about
  bool distributed = false;                      // the pool lies in a Ceph pool
  bool reached = false;                          // of an Attachment: its node reaches this pool
};
Task decide_volume(const kube::Json& object, const Known& known);
Task decide_snapshot(const kube::Json& object, const Known& known);
Task decide_attachment(const kube::Json& object, const Known& known);

// How long writers wait at most while a volume of so many pieces is copied: 100 µs for each, and a millisecond. Measured on XFS: 80 to 95 µs for the first copy of pieces that nobody shares yet, 17 to 22 for those after it (bench/RESULTS.md).
std::int64_t stall_milliseconds(std::int64_t extents);

}  // namespace fairlead::volumes
