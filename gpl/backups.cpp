// SPDX-License-Identifier: GPL-3.0-or-later
// A backup counts when it was loaded into a database beside the live one and, dumped from there, gave the same bytes.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "database.h"
#include "mariadb.h"
#include "set_database.h"

namespace fairlead::companion {
namespace {

constexpr const char* kFolder = "/var/backups/accounting";
constexpr const char* kLive = kLiveDatabase;
constexpr const char* kScratch = kLoadedDatabase;
constexpr const char* kReplaced = kReplacedDatabase;
constexpr const char* kShut = "/var/backups/accounting/.slurmdbd-is-shut-out";
constexpr auto kLimit = std::chrono::minutes(120);
constexpr const char* kData = "/var/lib/mysql";
constexpr auto kQuestion = std::chrono::seconds(30);

std::string path_of(const std::string& name) { return std::string(kFolder) + "/" + name; }

Fd open_for_reading(const std::string& path) { return Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)); }

Result<std::string> checksum(const std::vector<std::vector<std::string>>& programs, int in) {
  auto all = programs;
  all.push_back({"sha256sum"});
  auto out = pipeline_text(all, in, kLimit);
  if (!out) return out;
  return out->substr(0, 64);
}
Result<std::string> checksum_of(const std::string& path) {
  const Fd in = open_for_reading(path);
  if (!in) return fail_errno(errno, "open " + path);
  return checksum({{"cat"}}, in.get());
}
Result<std::string> contents_of(const std::string& path) {  // uncompressed
  const Fd in = open_for_reading(path);
  if (!in) return fail_errno(errno, "open " + path);
  return checksum({{"gzip", "-dc"}}, in.get());
}

Result<void> change(const std::string& sql) {
  auto done = ask_database(sql, std::chrono::minutes(10));
  if (!done) return std::unexpected(std::move(done.error()));
  return {};
}

// Loads a backup beside the live database and proves that it is whole. On success it stays there until it is dropped.
Result<void> load(const std::string& path) {
  if (auto made = change(fmt::format("DROP DATABASE IF EXISTS {0}; CREATE DATABASE {0}", kScratch)); !made) return made;
  const Fd in = open_for_reading(path);
  if (!in) return fail_errno(errno, "open " + path);
  if (auto loaded = pipeline({{"gzip", "-dc"}, client(kScratch)}, in.get(), -1, kLimit); !loaded) return pass(std::move(loaded.error()), "load the backup");
  auto written = contents_of(path);
  if (!written) return std::unexpected(std::move(written.error()));
  auto read = checksum({dumper(kScratch)}, -1);
  if (!read) return std::unexpected(std::move(read.error()));
  if (*written != *read) return fail(Code::Invalid, "the backup, loaded again, does not give what was written");
  return {};
}
void unload() {
  if (auto gone = change(fmt::format("DROP DATABASE IF EXISTS {}", kScratch)); !gone) log_warn("the loaded backup stays until the next one", {{"reason", gone.error().message}});
}

// A backup and a restore load into the same database beside the live one, and a restore must not lose its file to pruning: one at a time. Waits for the other; held until the descriptor is closed.
Fd one_at_a_time(bool wait = true) {
  Fd lock(::open(path_of(".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock && ::flock(lock.get(), wait ? LOCK_EX : LOCK_EX | LOCK_NB) != 0) lock = Fd();
  return lock;
}

// What a restore compares, keeps and replaces is to be one state: slurmdbd writes nothing meanwhile, slurmctld keeps it. A file says so, by which somebody else lets it in again where the restore is killed; the database does so
// itself at its start.
Result<void> let_in() {
  if (auto opened = change("ALTER USER IF EXISTS 'slurm'@'%' ACCOUNT UNLOCK"); !opened) return opened;
  ::unlink(kShut);
  return {};
}
Result<void> shut_out() {
  if (auto written = write_file_durably(kShut, "", 0600); !written) return written;
  if (auto locked = change("ALTER USER 'slurm'@'%' ACCOUNT LOCK"); !locked) return locked;
  for (int i = 0; i < 300; ++i) {
    auto connections = ask_database("SELECT id FROM information_schema.processlist WHERE user = 'slurm'", kQuestion);
    if (!connections) return std::unexpected(std::move(connections.error()));
    if (trim(*connections).empty()) return {};
    for (const std::string& id : split(trim(*connections), '\n'))
      if (!id.empty()) (void)ask_database("KILL " + std::to_string(std::atoll(id.c_str())), kQuestion);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return fail(Code::Unavailable, "slurmdbd's connections do not end");
}
class ShutOut {
 public:
  ShutOut() = default;
  ShutOut(const ShutOut&) = delete;
  ShutOut& operator=(const ShutOut&) = delete;
  ~ShutOut() {
    if (auto opened = let_in(); !opened) log_warn("slurmdbd is let in again when the database answers", {{"reason", opened.error().message}});
  }
};
// Of a restore that was killed.
void let_in_whom_nobody_keeps_out() {
  if (!exists(kShut)) return;
  const Fd alone = one_at_a_time(false);
  if (!alone || !exists(kShut)) return;
  if (let_in()) log_warn("a restore was interrupted; slurmdbd is let in again");
}

Result<void> sync_folder() {
  const Fd folder(::open(kFolder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return fail_errno(errno, "write " + std::string(kFolder));
  return {};
}

// Trying a backup loads all of it beside the live tables, on their volume: where that would run full, live records could not be written.
Result<void> room_for_a_try() {
  auto size = ask_database(fmt::format("SELECT COALESCE(SUM(data_length + index_length), 0) FROM information_schema.tables WHERE table_schema = '{}'", kLive), kQuestion);
  if (!size) return std::unexpected(std::move(size.error()));
  struct statvfs volume {};
  if (::statvfs(kData, &volume) != 0) return fail_errno(errno, "how much room the database has");
  const auto need = static_cast<std::uint64_t>(std::max(0LL, std::atoll(size->c_str()))) / 4 * 5 + (std::uint64_t{64} << 20), free = std::uint64_t{volume.f_bavail} * volume.f_frsize;
  if (free >= need) return {};
  return fail(Code::Exhausted, fmt::format("the volume of the database has {} MiB free, and a backup is loaded beside the live tables to be tried: {} MiB are wanted; make the claim larger", free >> 20, need >> 20));
}

// Whole and tried; its checksum. On an error there is no such file.
Result<std::string> dump_and_try(const std::string& path) {
  auto tables = ask_database(fmt::format("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{}'", kLive), kQuestion);
  if (!tables) return std::unexpected(std::move(tables.error()));
  if (trim(*tables) == "0") return fail(Code::Unavailable, "slurmdbd has made no tables yet");
  if (auto room = room_for_a_try(); !room) return std::unexpected(std::move(room.error()));
  Fd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!out) return fail_errno(errno, "create " + path);
  auto done = pipeline({dumper(kLive), {"gzip", "-n"}}, -1, out.get(), kLimit);
  if (done && ::fsync(out.get()) != 0) done = fail_errno(errno, "write " + path);
  if (done) done = load(path);
  unload();
  auto sum = done ? checksum_of(path) : Result<std::string>(std::unexpected(done.error()));
  if (!sum) ::unlink(path.c_str());
  return sum;
}

// "NAME" once it is there, whole and tried. The caller holds the lock. Names have whole seconds: what is there under one is not written over, the next second comes.
Result<std::string> back_up() {
  const SystemClock clock;
  std::string name = backup_name(clock.now());
  for (; exists(path_of(name)); name = backup_name(clock.now())) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::string partial = path_of("." + name + ".partial");
  ::unlink(partial.c_str());  // of a try that was killed in this second
  auto sum = dump_and_try(partial);
  if (!sum) return sum;
  auto done = write_file_durably(path_of(name + ".sha256"), *sum + "  " + name + "\n", 0600);
  if (done && ::rename(partial.c_str(), path_of(name).c_str()) != 0) done = fail_errno(errno, "rename to " + name);
  if (done) done = sync_folder();
  if (!done) {
    ::unlink(partial.c_str());
    return std::unexpected(std::move(done.error()));
  }
  return name;
}

std::vector<std::string> names() {
  auto list = list_dir(kFolder);
  return list ? *list : std::vector<std::string>();
}

std::optional<Instant> newest(const std::vector<std::string>& list) {
  std::optional<Instant> out;
  for (const std::string& name : list)
    if (const auto at = backup_time(name); at && std::find(list.begin(), list.end(), name + ".sha256") != list.end() && (!out || *at > *out)) out = at;
  return out;
}

std::int64_t seconds_of(const char* name, std::int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

int refuse(const std::string& why) {
  std::fprintf(stderr, "restore-accounting: %s\n", why.c_str());
  return 1;
}

Result<std::vector<std::string>> tables_of(const std::string& database) {
  auto list = ask_database(fmt::format("SELECT table_name FROM information_schema.tables WHERE table_schema = '{}' AND table_type = 'BASE TABLE'", database), kQuestion);
  if (!list) return std::unexpected(std::move(list.error()));
  return table_names(*list);
}

// The last thing that happened in it: a time in seconds; 0: nothing yet.
Result<std::int64_t> last_change(const std::string& database) {
  auto tables = tables_of(database);
  if (!tables) return std::unexpected(std::move(tables.error()));
  std::int64_t out = 0;
  for (const std::string& table : *tables) {
    if (table != "txn_table" && !table.ends_with("_job_table")) continue;
    auto value = ask_database(fmt::format("SELECT COALESCE(MAX({}), 0) FROM `{}`.`{}`", table == "txn_table" ? "timestamp" : "mod_time", database, table), std::chrono::minutes(5));
    if (!value) return std::unexpected(std::move(value.error()));
    out = std::max<std::int64_t>(out, std::atoll(value->c_str()));
  }
  return out;
}

// The loaded backup takes the place of the live tables, in one statement, while slurmdbd is shut out.
Result<void> exchange() {
  auto live = tables_of(kLive), loaded = tables_of(kScratch);
  if (!live) return std::unexpected(std::move(live.error()));
  if (!loaded) return std::unexpected(std::move(loaded.error()));
  if (loaded->empty()) return fail(Code::Invalid, "the backup holds no tables");
  if (auto made = change(fmt::format("DROP DATABASE IF EXISTS {0}; CREATE DATABASE {0}", kReplaced)); !made) return made;
  if (auto done = change(exchange_statement(*live, *loaded)); !done) return done;
  return change(fmt::format("DROP DATABASE {}; DROP DATABASE {}", kReplaced, kScratch));
}

// A dump takes the place of the live tables. `kept`: the backup of what was replaced, where that is newer. The caller holds the lock.
Result<void> put_back(const std::string& path, const std::string& sum, bool force, std::string& kept) {
  auto have = checksum_of(path);
  if (!have) return pass(std::move(have.error()), "read the backup");
  if (sum != *have) return fail(Code::Invalid, path + " is damaged: its checksum is another; nothing was changed");
  // They may be all that is left of the newest records.
  auto aside = tables_of(kReplaced);
  if (!aside) return fail(Code::Invalid, "what an earlier restore left is unknown: " + aside.error().message + "; nothing was changed");
  if (!aside->empty()) return fail(Code::Invalid, fmt::format("an earlier restore was interrupted: {} tables are in database {}. Put them back or drop that database (docs/slurm-accounting.md); nothing was changed", aside->size(), kReplaced));
  if (auto room = room_for_a_try(); !room) return fail(Code::Invalid, room.error().message + "; nothing was changed");
  if (auto loaded = load(path); !loaded) {
    unload();
    return fail(Code::Invalid, loaded.error().message + "; nothing was changed");
  }
  const ShutOut shut;
  if (auto out = shut_out(); !out) {
    unload();
    return fail(Code::Invalid, "slurmdbd cannot be shut out meanwhile: " + out.error().message + "; nothing was changed");
  }
  auto live = last_change(kLive), backed = last_change(kScratch);
  if (!live || !backed) {
    unload();
    return fail(Code::Invalid, "what is newer is unknown: " + (live ? backed.error().message : live.error().message) + "; nothing was changed");
  }
  if (*live > *backed && !force) {
    unload();
    return fail(Code::Invalid, fmt::format("the database has records of {}, the backup ends at {}: what lies between would be lost; nothing was changed. --force does it all the same, after another backup",
                              print_time(Instant(std::chrono::seconds(*live))), print_time(Instant(std::chrono::seconds(*backed)))));
  }
  if (*live > *backed) {
    unload();
    auto backup = back_up();
    if (!backup) return fail(Code::Invalid, "what would be replaced cannot be backed up: " + backup.error().message + "; nothing was changed");
    kept = *backup;
    if (auto loaded = load(path); !loaded) {
      unload();
      return fail(Code::Invalid, loaded.error().message + "; nothing was changed");
    }
  }
  if (auto done = exchange(); !done) return fail(Code::Invalid, done.error().message + "; where tables of database " + kReplaced + " are left, docs/slurm-accounting.md says what to do with them, else nothing was changed");
  return {};
}

}  // namespace

Result<std::string> dump_accounting(const std::string& path) {
  const Fd alone = one_at_a_time();
  if (!alone) return fail(Code::Unavailable, "the folder of the backups cannot be locked");
  ::unlink(path.c_str());  // of a try that was killed
  return dump_and_try(path);
}

Result<std::string> put_back_accounting(const std::string& path, const std::string& sum) {
  const Fd alone = one_at_a_time();
  if (!alone) return fail(Code::Unavailable, "the folder of the backups cannot be locked");
  // Asked a second time, by somebody who was killed while the first time ended: what was put aside then is kept in a backup, and the live tables are those asked for.
  if (auto aside = tables_of(kReplaced); aside && !aside->empty()) {
    auto live = checksum({dumper(kLive)}, -1), wanted = contents_of(path);
    if (live && wanted && *live == *wanted) {
      if (auto gone = change(fmt::format("DROP DATABASE {}; DROP DATABASE IF EXISTS {}", kReplaced, kScratch)); !gone) return std::unexpected(std::move(gone.error()));
      return std::string();
    }
  }
  std::string kept;
  if (auto done = put_back(path, sum, true, kept); !done) return std::unexpected(std::move(done.error()));
  return kept;
}

Result<std::int64_t> last_accounted_job(const std::string& cluster) {
  const std::string table = cluster + "_job_table";
  auto tables = tables_of(kLive);
  if (!tables) return std::unexpected(std::move(tables.error()));
  if (std::find(tables->begin(), tables->end(), table) == tables->end()) return 0;
  auto value = ask_database(fmt::format("SELECT COALESCE(MAX(id_job), 0) FROM `{}`.`{}`", kLive, table), std::chrono::minutes(5));
  if (!value) return std::unexpected(std::move(value.error()));
  return std::atoll(value->c_str());
}

int run_backups() {
  ::signal(SIGTERM, [](int) { ::_exit(0); });
  serve_sets();
  const auto interval = std::chrono::seconds(std::max<std::int64_t>(10, seconds_of("FAIRLEAD_BACKUP_SECONDS", 86'400)));
  const int keep = static_cast<int>(std::clamp<std::int64_t>(seconds_of("FAIRLEAD_BACKUP_KEEP", 7), 1, 1000));
  const SystemClock clock;
  std::string last_trouble;
  int failures = 0;
  while (true) {
    let_in_whom_nobody_keeps_out();
    const Instant now = clock.now();
    const auto last = newest(backups_until(names(), now));
    if (last && now < *last + interval) {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      continue;
    }
    const Fd alone = one_at_a_time();
    if (!alone) {
      // A restore may be at it.
      if (last_trouble != kFolder) log_warn("no backup is made: the folder of the backups cannot be locked; look at its volume", {{"folder", kFolder}});
      last_trouble = kFolder;
      std::this_thread::sleep_for(std::chrono::seconds(30));
      continue;
    }
    for (const std::string& name : backups_to_remove(names(), 1 << 20)) ::unlink(path_of(name).c_str());  // of a run that was killed
    auto done = back_up();
    if (done) {
      log_info("the accounting database is backed up and the backup was read back", {{"name", *done}});
      last_trouble.clear();
      failures = 0;
      for (const std::string& name : backups_to_remove(backups_until(names(), clock.now()), keep)) {
        if (::unlink(path_of(name).c_str()) == 0) log_info("an old backup is removed", {{"name", name}});
      }
      continue;
    }
    if (done.error().message != last_trouble) log_warn("the accounting database is not backed up; tried again", {{"reason", done.error().message}});
    last_trouble = done.error().message;
    ::flock(alone.get(), LOCK_UN);
    // Each try costs the live database something; while slurmdbd has made no tables it costs nothing.
    if (done.error().code != Code::Unavailable) failures = std::min(failures + 1, 10);
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(interval, std::chrono::seconds(5) * (1 << failures)));
  }
}

int check_backups() {
  const auto interval = std::chrono::seconds(std::max<std::int64_t>(10, seconds_of("FAIRLEAD_BACKUP_SECONDS", 86'400)));
  const Instant now = SystemClock().now();
  const auto last = newest(backups_until(names(), now));
  if (last && now < *last + 2 * interval) return 0;
  std::fprintf(stderr, "the newest backup is %s\n", last ? print_time(*last).c_str() : "not there yet");
  return 1;
}

int list_backups() {
  const auto list = names();
  for (const std::string& name : list)
    if (backup_time(name) && std::find(list.begin(), list.end(), name + ".sha256") != list.end()) {
      struct stat info {};
      if (::stat(path_of(name).c_str(), &info) == 0) std::printf("%s %lld\n", name.c_str(), static_cast<long long>(info.st_size));
    }
  return 0;
}

int restore_accounting(const std::vector<std::string>& arguments) {
  std::string name;
  bool force = false;
  for (const std::string& argument : arguments) {
    if (argument == "--force") force = true;
    else if (name.empty() && !argument.starts_with("-")) name = argument;
    else return refuse("give the name of a backup (list-backups) or latest, and --force");
  }
  const Fd alone = one_at_a_time();
  if (!alone) return refuse("the folder of the backups cannot be locked; nothing was changed");
  const auto list = names();
  if (name == "latest")
    if (const auto at = newest(backups_until(list, SystemClock().now()))) name = backup_name(*at);
  if (!backup_time(name) || std::find(list.begin(), list.end(), name) == list.end()) return refuse(fmt::format("there is no backup \"{}\"; see list-backups", name));
  auto want = read_file(path_of(name + ".sha256"));
  if (!want) return refuse("the checksum of the backup cannot be read: " + want.error().message);
  std::string kept;
  auto done = put_back(path_of(name), want->substr(0, 64), force, kept);
  if (!kept.empty()) std::printf("what is replaced is kept in %s\n", kept.c_str());
  if (!done) return refuse(done.error().message);
  std::printf("the accounting database is that of %s; delete the pods accounting-0 and accounting-1, so that slurmdbd reads it anew\n", name.c_str());
  return 0;
}

}  // namespace fairlead::companion
