// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/sqlite_schema.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>

#include "apiserver/store/sqlite_handle.h"
#include "base/log.h"

namespace fairlead::apiserver {
namespace {

constexpr const char* first_schema =
    "CREATE TABLE log(revision INTEGER PRIMARY KEY, prev INTEGER NOT NULL, key TEXT NOT NULL, value BLOB);"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('schema', 1), ('compacted', 0), ('revision', 0);";
// steps[i] leads from schema i + 1 to the next.
constexpr const char* steps[] = {
    "CREATE TABLE programs(schema INTEGER PRIMARY KEY, program TEXT NOT NULL);",
};
static_assert(store_schema == std::size(steps) + 1);

// Revisions that the newer program may give out before somebody goes back; a decimal, so that people see it.
constexpr std::int64_t revision_gap = 1'000'000'000;

std::string steps_from(std::int64_t schema) {
  std::string sql;
  for (auto next = static_cast<std::size_t>(schema) - 1; next < std::size(steps); ++next) sql += steps[next];
  return sql + fmt::format("UPDATE meta SET value = {0} WHERE name = 'schema'; INSERT OR REPLACE INTO programs VALUES({0}, '{1}');", store_schema, FAIRLEAD_VERSION);
}

// All or nothing, also where it fails in the middle.
Result<void> in_one_transaction(sqlite3* database, const std::string& sql) {
  auto done = execute(database, ("BEGIN IMMEDIATE;" + sql + "COMMIT").c_str());
  if (!done && sqlite3_get_autocommit(database) == 0) sqlite3_exec(database, "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

// As a compaction of everything would leave it, and the counter moved on: the program of before sees a file like any other.
std::string close_history() {
  return fmt::format(
      "PRAGMA journal_mode=DELETE; BEGIN IMMEDIATE;"
      "UPDATE meta SET value = max(value, coalesce((SELECT max(revision) FROM log), 0)) + {} WHERE name = 'revision';"
      "DELETE FROM log WHERE revision IN (SELECT prev FROM log WHERE prev > 0);"
      "DELETE FROM log WHERE value IS NULL;"
      "UPDATE meta SET value = (SELECT value FROM meta WHERE name = 'revision') WHERE name = 'compacted';"
      "COMMIT",
      revision_gap);
}

}  // namespace

std::string copy_before(const std::string& path, std::int64_t schema) { return fmt::format("{}.schema-{}", path, schema); }

Result<void> create_schema(sqlite3* database, int application_id) {
  return in_one_transaction(database, fmt::format("PRAGMA application_id={};{}{}", application_id, first_schema, steps_from(1)));
}

Result<void> migrate_schema(sqlite3* database, const std::string& path, std::int64_t from) {
  const std::string copy = copy_before(path, from);
  if (from < 1) return fail(Code::Invalid, fmt::format("open store {}: damaged: schema {}", path, from));
  if (auto copied = copy_store(database, path, copy, close_history()); !copied) return pass(std::move(copied.error()), fmt::format("keep {} as it is before it is brought to schema {}", path, store_schema));
  if (auto done = in_one_transaction(database, steps_from(from)); !done) return pass(std::move(done.error()), fmt::format("bring {} from schema {} to {}", path, from, store_schema));
  log_info("store brought to a new schema", {{"path", path}, {"from", std::to_string(from)}, {"to", std::to_string(store_schema)}, {"copy_of_before", copy}});
  return {};
}

Error newer_schema(sqlite3* database, const std::string& path, std::int64_t schema) {
  std::string program;
  if (auto named = prepare(database, "SELECT program FROM programs ORDER BY schema DESC LIMIT 1"); named && sqlite3_step(named->get()) == SQLITE_ROW)
    program = fmt::format(" {}", reinterpret_cast<const char*>(sqlite3_column_text(named->get(), 0)));
  std::string back;
  for (std::int64_t known = store_schema; known > 0 && back.empty(); --known)
    if (const std::string copy = copy_before(path, known); ::access(copy.c_str(), F_OK) == 0)
      back = fmt::format("; or, with the server stopped, go back to {1}, which is as before that version: move {0}, {0}-wal and {0}-shm away, copy it to {0}", path, copy);
  return {Code::Unsupported, fmt::format("open store {}: written by a newer Fairlead{} (schema {}); this is {}, which knows schema {}: start that version{}", path, program, schema, FAIRLEAD_VERSION,
                                         store_schema, back.empty() ? ", or restore a backup made by this one" : back)};
}

}  // namespace fairlead::apiserver
