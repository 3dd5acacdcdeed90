// SPDX-License-Identifier: Apache-2.0
// The file: one append-only table of writes, read whole at start. One owner, one thread at a time; knows nothing of watchers or callers.
//
//   log(revision INTEGER PRIMARY KEY, prev, key, value)   value NULL: a deletion; prev: revision of the row it supersedes, 0: none
//   meta(name, value)                                     schema (sqlite_schema.h), compacted, revision
//
// Rows above `compacted` are all there, so their revisions have no gap; at or below it only the current row of each key is. The current revision
// is the larger of the last row's and the one in meta, which every compaction writes: it stays known when the last row was a deletion.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/store/sqlite_handle.h"
#include "apiserver/store/store.h"
#include "base/fd.h"

namespace fairlead::apiserver {

class SqliteLog {
 public:
  // Errors as open_sqlite_store. What it finds is durable when this returns, also what an earlier process had written and not yet synced.
  static Result<std::unique_ptr<SqliteLog>> open(const SqliteOptions& options);
  ~SqliteLog();

  struct Row {
    Revision revision = 0;
    Revision previous = 0;
    std::string key;
    Value value;  // null: deleted
  };
  Revision compacted() const { return compacted_; }
  // Every row in revision order. Invalid: damaged.
  Result<void> read(const std::function<void(Row)>& row);
  Revision revision() const { return revision_; }  // after read()

  // What a write to the disk came to. Full: nothing of it is there. Unknown: it may or may not survive; the process must stop.
  enum class Outcome { Done, Full, Busy, Unknown };
  // One transaction; on Done it is durable.
  Outcome append(const std::vector<StoreEvent>& events);
  // Removes up to `count` steps' worth of rows that are superseded at or below `upto`. Done: compacted() moved.
  Outcome compact(Revision upto, Revision count);
  // Moves the write-ahead log into the table when it is long enough.
  Outcome checkpoint_if_long();
  const std::string& reason() const { return reason_; }  // of the last outcome that was not Done

 private:
  SqliteLog() = default;
  Result<void> prepare_file(const SqliteOptions& options);
  Result<void> prepare_schema();
  Outcome roll_back(bool committing);
  Outcome checkpoint();
  bool step(sqlite3_stmt* statement);

  std::string path_;
  Fd lock_;
  Database database_;
  Statement insert_, begin_, commit_, rollback_, drop_superseded_, drop_deletions_, set_meta_;
  Revision compacted_ = 0;
  Revision revision_ = 0;
  int log_pages_ = 0;       // in the write-ahead log, told by SQLite at each commit
  bool lost_ = false;       // an outcome is unknown: touch nothing more
  std::string reason_;
};

}  // namespace fairlead::apiserver
