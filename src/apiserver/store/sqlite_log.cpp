// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/sqlite_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "apiserver/store/sqlite_schema.h"
#include "base/log.h"

namespace fairlead::apiserver {
namespace {

constexpr int application_id = 0x4661726c;  // "Farl"
constexpr int checkpoint_pages = 4'000;     // 16 MB of log: long enough to be rare under load, short enough to open fast

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

std::string how_to_restore(const std::string& path) {
  return fmt::format("; to restore: stop the server, move {0}, {0}-wal and {0}-shm away, copy a backup to {0}", path);
}

// One process at a time. The lock goes with the descriptor, so a crash leaves none behind.
Result<Fd> lock_store(const std::string& path) {
  const std::string name = path + ".lock";
  Fd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "open " + name);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno(errno, "lock " + name);
    char holder[32] = {};
    const auto length = ::pread(fd.get(), holder, sizeof holder - 1, 0);
    return fail(Code::Conflict, fmt::format("open store {}: another process{} uses it; stop that one first", path,
                                            length > 0 ? fmt::format(" (pid {})", holder) : ""));
  }
  const std::string pid = std::to_string(::getpid());
  // For the message above only: not worth failing for.
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) log_debug("store lock: pid not written", {{"path", name}});
  return fd;
}

// SQLite would make the file readable for all; and a new name is durable only once its folder is.
Result<void> create_private(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(errno, "open store " + path);
  const std::string folder = folder_of(path);
  const Fd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || ::fsync(directory.get()) != 0) return fail_errno(errno, "sync " + folder);
  return {};
}

Result<std::int64_t> read_number(sqlite3* database, const char* sql) {
  auto statement = prepare(database, sql);
  if (!statement) return std::unexpected(std::move(statement.error()));
  const int code = sqlite3_step(statement->get());
  if (code == SQLITE_ROW) return sqlite3_column_int64(statement->get(), 0);
  if (code == SQLITE_DONE) return 0;
  return fail_sqlite(database, sql);
}

Result<void> check_pages(sqlite3* database, const std::string& path) {
  auto check = prepare(database, "PRAGMA quick_check(1)");
  if (!check) return pass(std::move(check.error()), "open store " + path);
  if (sqlite3_step(check->get()) != SQLITE_ROW) return fail_sqlite(database, "check store " + path);
  const std::string verdict = reinterpret_cast<const char*>(sqlite3_column_text(check->get(), 0));
  if (verdict != "ok") return fail(Code::Invalid, fmt::format("open store {}: damaged: {}", path, verdict));
  return {};
}

int remember_pages(void* pages, sqlite3*, const char*, int count) {
  *static_cast<int*>(pages) = count;
  return SQLITE_OK;
}

}  // namespace

Result<std::unique_ptr<SqliteLog>> SqliteLog::open(const SqliteOptions& options) {
  std::unique_ptr<SqliteLog> log(new SqliteLog);
  log->path_ = options.path;
  auto opened = log->prepare_file(options);
  if (opened) opened = log->prepare_schema();
  if (!opened) {
    log->lost_ = true;  // closes without writing
    Error error = std::move(opened.error());
    if (error.code == Code::Invalid) error.message += how_to_restore(options.path);
    return std::unexpected(std::move(error));
  }
  return log;
}

Result<void> SqliteLog::prepare_file(const SqliteOptions& options) {
  const std::string folder = folder_of(path_);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return fail(Code::NotFound, fmt::format("open store {}: no folder {}", path_, folder));
  auto lock = lock_store(path_);
  if (!lock) return std::unexpected(std::move(lock.error()));
  lock_ = std::move(*lock);
  if (options.vfs.empty()) {
    if (auto created = create_private(path_); !created) return created;
  }
  auto database = open_database(path_, options.vfs, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
  if (!database) return std::unexpected(std::move(database.error()));
  database_ = std::move(*database);
  sqlite3* db = database_.get();

  // SQLite's own checkpoints hide a failed fsync and would forget what it was about: every checkpoint here is ours, with its outcome looked at.
  sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_wal_hook(db, remember_pages, &log_pages_);

  // Before anything is changed: is this ours, and do we know its version?
  auto id = read_number(db, "PRAGMA application_id");
  if (!id) return pass(std::move(id.error()), "open store " + path_);
  auto tables = read_number(db, "SELECT count(*) FROM sqlite_master");
  if (!tables) return pass(std::move(tables.error()), "open store " + path_);
  const bool empty = *id == 0 && *tables == 0;
  if (!empty && *id != application_id) return fail(Code::Invalid, fmt::format("open store {}: a database of another program", path_));
  std::int64_t schema = store_schema;
  if (!empty) {
    auto version = read_number(db, "SELECT value FROM meta WHERE name = 'schema'");
    if (!version) return pass(std::move(version.error()), "open store " + path_);
    schema = *version;
    if (schema > store_schema) return std::unexpected(newer_schema(db, path_, schema));
  }

  // EXTRA is FULL plus a sync of the folder when a rollback journal is removed. It matters once, before WAL mode is on: a journal that comes back after a
  // power cut would undo the switch to WAL, and the log with all that was acknowledged would be thrown away with it. (Found by store_crash_test.)
  const char* sync = options.sync == SqliteOptions::Sync::Full ? "PRAGMA synchronous=EXTRA" : "PRAGMA synchronous=OFF";
  for (const char* sql : {"PRAGMA page_size=8192", sync, "PRAGMA journal_mode=WAL", "PRAGMA cache_size=-4096", "PRAGMA temp_store=MEMORY"}) {
    if (auto done = execute(db, sql); !done) return pass(std::move(done.error()), "open store " + path_);
  }
  if (!empty) {
    if (auto checked = check_pages(db, path_); !checked) return checked;
    if (schema < store_schema) {
      if (auto done = migrate_schema(db, path_, schema); !done) return done;
    }
  } else if (auto done = create_schema(db, application_id); !done) {
    return pass(std::move(done.error()), "create store " + path_);
  }

  // A process that died between writing and syncing leaves a log that we can read but that a power cut could still take back. Showing it and then
  // losing it would reissue revisions: make it durable first. (The checkpoint syncs the log before it moves anything.)
  if (sqlite3_wal_checkpoint_v2(db, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) != SQLITE_OK && !sqlite_out_of_space(db) &&
      (sqlite3_extended_errcode(db) & 0xff) != SQLITE_BUSY) {
    return fail_sqlite(db, "sync store " + path_);
  }
  return {};
}

Result<void> SqliteLog::prepare_schema() {
  const std::pair<Statement*, const char*> statements[] = {
      {&insert_, "INSERT INTO log(revision, prev, key, value) VALUES(?1, ?2, ?3, ?4)"},
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&drop_superseded_, "DELETE FROM log WHERE revision IN (SELECT prev FROM log WHERE revision > ?1 AND revision <= ?2 AND prev > 0)"},
      {&drop_deletions_, "DELETE FROM log WHERE revision > ?1 AND revision <= ?2 AND value IS NULL"},
      {&set_meta_, "UPDATE meta SET value = CASE name WHEN 'compacted' THEN ?1 ELSE ?2 END WHERE name IN ('compacted', 'revision')"},
  };
  for (const auto& [statement, sql] : statements) {
    auto prepared = prepare(database_.get(), sql);
    if (!prepared) return pass(std::move(prepared.error()), "open store " + path_);
    *statement = std::move(*prepared);
  }
  auto compacted = read_number(database_.get(), "SELECT value FROM meta WHERE name = 'compacted'");
  if (!compacted) return pass(std::move(compacted.error()), "open store " + path_);
  auto revision = read_number(database_.get(), "SELECT value FROM meta WHERE name = 'revision'");
  if (!revision) return pass(std::move(revision.error()), "open store " + path_);
  compacted_ = *compacted;
  revision_ = *revision;
  return {};
}

SqliteLog::~SqliteLog() {
  if (!database_ || lost_) return;
  // The log is durable as it is; moving it into the table only makes the next start faster. What fails is tried again there.
  if (sqlite3_wal_checkpoint_v2(database_.get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr) != SQLITE_OK) {
    log_warn("store: last checkpoint failed", {{"path", path_}, {"why", sqlite_reason(database_.get())}});
  }
}

Result<void> SqliteLog::read(const std::function<void(Row)>& row) {
  auto select = prepare(database_.get(), "SELECT revision, prev, key, value FROM log ORDER BY revision");
  if (!select) return pass(std::move(select.error()), "read store " + path_);
  sqlite3_stmt* statement = select->get();
  const auto damaged = [&](std::string what) { return fail(Code::Invalid, fmt::format("open store {}: damaged: {}{}", path_, what, how_to_restore(path_))); };
  Revision last = 0;
  Revision above = 0;  // rows above compacted
  int code = SQLITE_OK;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
    Row next;
    next.revision = sqlite3_column_int64(statement, 0);
    next.previous = sqlite3_column_int64(statement, 1);
    next.key.assign(reinterpret_cast<const char*>(sqlite3_column_text(statement, 2)), static_cast<std::size_t>(sqlite3_column_bytes(statement, 2)));
    if (sqlite3_column_type(statement, 3) != SQLITE_NULL) {
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, 3));
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement, 3));
      next.value = size == 0 ? Value(std::string()) : Value(std::string(bytes, size));
    }
    last = next.revision;
    if (last > compacted_ && last != compacted_ + ++above) return damaged(fmt::format("revision {} follows {}", last, compacted_ + above - 1));
    row(std::move(next));
  }
  if (code != SQLITE_DONE) {
    auto error = fail_sqlite(database_.get(), "read store " + path_).error();
    if (error.code == Code::Invalid) error.message += how_to_restore(path_);
    return std::unexpected(std::move(error));
  }
  if (compacted_ + above < revision_) return damaged(fmt::format("the last revision is {}, {} was written before", compacted_ + above, revision_));
  revision_ = compacted_ + above;
  return {};
}

bool SqliteLog::step(sqlite3_stmt* statement) {
  const int code = sqlite3_step(statement);
  sqlite3_reset(statement);
  return code == SQLITE_DONE;
}

// After a failed step. `committing`: the failed step was the COMMIT.
SqliteLog::Outcome SqliteLog::roll_back(bool committing) {
  reason_ = sqlite_reason(database_.get());
  const bool full = sqlite_out_of_space(database_.get());
  const bool busy = !committing && (sqlite3_extended_errcode(database_.get()) & 0xff) == SQLITE_BUSY;
  // No room is the one failure with a known outcome: the frame that commits is the last one written, and it was not written whole. (SQLite pads after it
  // only on disks without "powersafe overwrite", which no disk of this century lacks by its default.) Anything else, or a failed rollback: unknown.
  const bool clean = sqlite3_get_autocommit(database_.get()) != 0 || step(rollback_.get());
  if (clean && full) return Outcome::Full;
  if (clean && busy) return Outcome::Busy;
  lost_ = true;
  return Outcome::Unknown;
}

SqliteLog::Outcome SqliteLog::append(const std::vector<StoreEvent>& events) {
  INVARIANT(!lost_ && !events.empty());
  if (!step(begin_.get())) return roll_back(false);
  sqlite3_stmt* insert = insert_.get();
  for (const StoreEvent& event : events) {
    sqlite3_bind_int64(insert, 1, event.revision);
    sqlite3_bind_int64(insert, 2, event.before_revision);
    sqlite3_bind_text(insert, 3, event.key.data(), static_cast<int>(event.key.size()), SQLITE_STATIC);
    const auto bytes = event.value.bytes();  // outlives the step below
    if (bytes) {
      sqlite3_bind_blob(insert, 4, bytes->data(), static_cast<int>(bytes->size()), SQLITE_STATIC);
    } else {
      sqlite3_bind_null(insert, 4);
    }
    if (!step(insert)) return roll_back(false);
  }
  if (!step(commit_.get())) return roll_back(true);
  revision_ = events.back().revision;
  return Outcome::Done;
}

SqliteLog::Outcome SqliteLog::compact(Revision upto, Revision count) {
  INVARIANT(!lost_ && upto <= revision_);
  const Revision target = std::min(upto, compacted_ + count);
  if (target <= compacted_) return Outcome::Done;
  if (!step(begin_.get())) return roll_back(false);
  for (sqlite3_stmt* statement : {drop_superseded_.get(), drop_deletions_.get()}) {
    sqlite3_bind_int64(statement, 1, compacted_);
    sqlite3_bind_int64(statement, 2, target);
    if (!step(statement)) return roll_back(false);
  }
  sqlite3_bind_int64(set_meta_.get(), 1, target);
  sqlite3_bind_int64(set_meta_.get(), 2, revision_);
  if (!step(set_meta_.get())) return roll_back(false);
  if (!step(commit_.get())) return roll_back(true);
  compacted_ = target;
  return Outcome::Done;
}

SqliteLog::Outcome SqliteLog::checkpoint_if_long() { return log_pages_ < checkpoint_pages ? Outcome::Done : checkpoint(); }

SqliteLog::Outcome SqliteLog::checkpoint() {
  INVARIANT(!lost_);
  const int code = sqlite3_wal_checkpoint_v2(database_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (code == SQLITE_OK) {
    log_pages_ = 0;  // the next commit starts the log anew, unless a backup is reading; then it tells a long one again
    return Outcome::Done;
  }
  reason_ = sqlite_reason(database_.get());
  if (sqlite_out_of_space(database_.get())) return Outcome::Full;  // the log keeps what the table could not take
  if ((code & 0xff) == SQLITE_BUSY) return Outcome::Busy;
  lost_ = true;
  return Outcome::Unknown;
}

}  // namespace fairlead::apiserver
