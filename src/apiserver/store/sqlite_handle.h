// SPDX-License-Identifier: Apache-2.0
// SQLite's handles with owners, and its answers as values. For the files of this folder that talk to SQLite.
#pragma once
#include <sqlite3.h>

#include <memory>
#include <string>

#include "base/result.h"

namespace fairlead::apiserver {

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// "disk I/O error (SQLite 1034, No space left on device)": the last failure on this connection.
std::string sqlite_reason(sqlite3* database);
// Exhausted: no room. Unavailable: locked by another connection, or an I/O error. Invalid: not a database, or damaged. Internal: anything else.
std::unexpected<Error> fail_sqlite(sqlite3* database, std::string_view doing);
// Whether the last failure means that the file system has no room (full, or over quota).
bool sqlite_out_of_space(sqlite3* database);

Result<Database> open_database(const std::string& path, const std::string& vfs, int flags);
Result<void> execute(sqlite3* database, const char* sql);
Result<Statement> prepare(sqlite3* database, std::string_view sql);
// A consistent copy of an open store, for its owner only, durable; `target` is replaced whole or not at all. `change` is SQL that is done to the copy first.
Result<void> copy_store(sqlite3* database, const std::string& path, const std::string& target, const std::string& change = "");

}  // namespace fairlead::apiserver
