// SPDX-License-Identifier: Apache-2.0
// Where objects live: one revision counter, compare-and-write by key, ranges and watches. Drivers: SqliteStore, MemoryStore (tests, simulation).
// A write is published to memory, watchers and its waiting caller in revision order, and only after it is durable.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/store/value.h"
#include "base/clock.h"
#include "base/result.h"

namespace fairlead::apiserver {

using Revision = std::int64_t;  // 1, 2, 3, ...; never reissued, not after a crash either

// The bytes of an object hold its own revision (metadata.resourceVersion), which is known only when the write is ordered: the store writes
// bytes = before + decimal(revision) + after. `after` and `before` may be empty only together with the other (then bytes = "").
struct Template {
  std::string before, after;
};

struct Write {
  std::string key;                      // "/group/plural/namespace/name"
  std::optional<Revision> expected;     // current revision that the key must have; 0: must not exist; empty: any
  std::optional<Template> value;        // empty: delete
};
struct Entry {
  std::string key;
  Revision revision = 0;
  Value value;
};
struct StoreEvent {
  Revision revision = 0;
  std::string key;
  Value value;   // null: deleted
  Value before;  // null: created
  Revision before_revision = 0;
};

struct Range {
  std::vector<Entry> entries;
  Revision revision = 0;      // of the snapshot
  bool more = false;
};

// Called with events in revision order, on the store's publishing thread: must not block and must not call the store's txn.
using StoreWatcher = std::function<void(const StoreEvent&)>;
class Subscription {  // dropping it ends the watch; afterwards the watcher is not called and not running
 public:
  virtual ~Subscription() = default;
};

class Store {
 public:
  virtual ~Store() = default;
  // Asynchronous: `done` is called once, on the publishing thread, after the write is durable and visible (or refused).
  // Conflict: `expected` does not hold (the message names key and current revision; NotFound: delete of an absent key; Exists: expected 0 but there).
  // Invalid: empty key, or key and value above 16 MiB. Exhausted: disk full, or more than 100'000 writes (256 MiB) waiting (then `done` is called before
  // write returns); reads go on. A failed fsync is never answered: the process stops. `done` must not block; it may call write, not write_and_wait.
  using Done = std::function<void(Result<Entry>)>;  // the entry written; for a delete the last value with the revision of the deletion
  virtual void write(Write write, Done done) = 0;
  // The same, waiting. Not from a watcher or a `done`.
  Result<Entry> write_and_wait(Write write);

  virtual std::optional<Entry> get(const std::string& key) const = 0;
  // Keys with this prefix, in key order, after `after` (exclusive; "" from the start), at most `limit` (0: all), as of `at` (0: now).
  // Expired: `at` is older than the history kept. Invalid: `at` is above the current revision.
  virtual Result<Range> range(const std::string& prefix, const std::string& after, std::size_t limit, Revision at) const = 0;
  virtual Revision revision() const = 0;
  // All events of keys with this prefix and a revision above `from`, past ones first (called before this returns), without a gap.
  // Expired: `from` is older than the history kept. Invalid: from is above the current revision.
  // Every event is delivered before the `done` of its write is called. The watcher may drop its own subscription.
  virtual Result<std::unique_ptr<Subscription>> watch(const std::string& prefix, Revision from, StoreWatcher watcher) = 0;
};

struct HistoryLimits {
  std::size_t events = 100'000;          // a watch can start this far back,
  std::size_t bytes = 32 * 1024 * 1024;  // unless the values of these events are bigger than this together
};
// `common`: parts that values share in memory; none: nothing is shared.
std::unique_ptr<Store> make_memory_store(HistoryLimits limits = {}, CommonParts common = {});

struct SqliteOptions {
  std::string path;              // the file; its folder must exist. An advisory lock refuses a second process.
  std::string vfs;               // SQLite VFS name; empty: the default
  enum class Sync { Full, Off } sync = Sync::Full;  // Off exists for the negative control of the durability test
  HistoryLimits history;
  CommonParts common = {};  // parts that values share in memory; none: nothing is shared. The file holds every value whole
  std::size_t compact_after = 1'000;  // superseded rows beyond the history before they are removed
  // Called when a write failed and nobody can know whether it is durable. Must not return in production; empty: log and abort.
  // If it returns (tests), nothing is answered any more.
  std::function<void(const std::string& why)> fatal;
};
// A file of an older Fairlead is brought to the present schema; a copy as it was before stays beside it (sqlite_schema.h).
// Conflict: another process has it open. Unsupported: written by a newer Fairlead. Invalid: not a store, or damaged (the message says how to restore).
// NotFound: its folder is missing.
Result<std::unique_ptr<Store>> open_sqlite_store(SqliteOptions options);
// A consistent copy of a live or closed store, also from another process; `target` is replaced whole or not at all.
// Restore is copying it back with the server stopped (and removing PATH-wal and PATH-shm).
Result<void> backup_sqlite_store(const std::string& path, const std::string& target);

}  // namespace fairlead::apiserver
