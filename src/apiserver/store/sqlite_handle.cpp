// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/sqlite_handle.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace fairlead::apiserver {

std::string sqlite_reason(sqlite3* database) {
  const int code = sqlite3_extended_errcode(database);
  const int system = sqlite3_system_errno(database);
  char text[128];
  if (system == 0) return fmt::format("{} (SQLite {})", sqlite3_errmsg(database), code);
  return fmt::format("{} (SQLite {}, {})", sqlite3_errmsg(database), code, strerror_r(system, text, sizeof text));
}

bool sqlite_out_of_space(sqlite3* database) {
  const int code = sqlite3_extended_errcode(database);
  if ((code & 0xff) == SQLITE_FULL) return true;
  // SQLite tells ENOSPC apart, but not a quota. A refused write of the log is as harmless as with a full disk; a refused fsync is not.
  return code == SQLITE_IOERR_WRITE && (sqlite3_system_errno(database) == EDQUOT || sqlite3_system_errno(database) == ENOSPC);
}

std::unexpected<Error> fail_sqlite(sqlite3* database, std::string_view doing) {
  Code code = Code::Internal;
  switch (sqlite3_extended_errcode(database) & 0xff) {
    case SQLITE_FULL: code = Code::Exhausted; break;
    case SQLITE_BUSY: case SQLITE_LOCKED: case SQLITE_IOERR: case SQLITE_CANTOPEN: code = Code::Unavailable; break;
    case SQLITE_CORRUPT: case SQLITE_NOTADB: code = Code::Invalid; break;
    case SQLITE_READONLY: case SQLITE_PERM: code = Code::Forbidden; break;
    default: break;
  }
  return fail(code, fmt::format("{}: {}", doing, sqlite_reason(database)));
}

Result<Database> open_database(const std::string& path, const std::string& vfs, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags, vfs.empty() ? nullptr : vfs.c_str());
  Database database(raw);  // also on failure, for the message
  if (!database) return fail(Code::Exhausted, fmt::format("open {}: no memory", path));
  if (code != SQLITE_OK) return fail_sqlite(database.get(), "open " + path);
  sqlite3_extended_result_codes(database.get(), 1);
  sqlite3_busy_timeout(database.get(), 5'000);
  return database;
}

Result<void> execute(sqlite3* database, const char* sql) {
  if (sqlite3_exec(database, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return fail_sqlite(database, sql);
  return {};
}

Result<Statement> prepare(sqlite3* database, std::string_view sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v3(database, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &raw, nullptr) != SQLITE_OK) {
    return fail_sqlite(database, sql);
  }
  return Statement(raw);
}

}  // namespace fairlead::apiserver
