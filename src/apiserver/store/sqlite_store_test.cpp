// SPDX-License-Identifier: Apache-2.0
// What only the driver with a disk does: restarts, locks, versions, damage, compaction, backup, being killed.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "apiserver/store/sqlite_handle.h"
#include "apiserver/store/store.h"
#include "apiserver/store/store_test_kit.h"
#include "base/process.h"
#include "base/rng.h"
#include "base/test_rounds.h"

namespace fairlead::apiserver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Store> must_open(SqliteOptions options) {
  auto store = open_sqlite_store(std::move(options));
  if (!store) ADD_FAILURE() << store.error().message;
  return store ? std::move(*store) : nullptr;
}

void run_sql(const std::string& path, const std::string& sql) {
  auto database = open_database(path, "", SQLITE_OPEN_READWRITE);
  ASSERT_TRUE(database) << database.error().message;
  auto done = execute(database->get(), sql.c_str());
  ASSERT_TRUE(done) << done.error().message;
}

std::int64_t count_rows(const std::string& path) {
  auto database = open_database(path, "", SQLITE_OPEN_READWRITE);
  INVARIANT(database);
  sqlite3_db_config(database->get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  auto statement = prepare(database->get(), "SELECT count(*) FROM log");
  INVARIANT(statement && sqlite3_step(statement->get()) == SQLITE_ROW);
  return sqlite3_column_int64(statement->get(), 0);
}

TEST(SqliteStore, ARestartKeepsObjectsRevisionsAndTheHistoryOfWatches) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  {
    auto store = must_open({.path = path});
    ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
    ASSERT_TRUE(store->write_and_wait(put("/a", "y")));
    ASSERT_TRUE(store->write_and_wait(create("/b", std::string("\0binary\xff", 8))));
    ASSERT_TRUE(store->write_and_wait(erase("/a")));
  }
  auto store = must_open({.path = path});
  EXPECT_EQ(store->revision(), 4);
  EXPECT_EQ(store->get("/a"), std::nullopt);
  EXPECT_EQ(*store->get("/b")->value.bytes(), std::string("\0binary\xff", 8) + "3");
  Recorder seen;
  auto watch = store->watch("/a", 0, seen.watcher());
  ASSERT_TRUE(watch) << watch.error().message;
  EXPECT_THAT(seen.texts(), ElementsAre("1 /a =x1", "2 /a =y2", "4 /a gone"));
  EXPECT_EQ(*seen.events()[2].before.bytes(), "y2");
  EXPECT_EQ(store->range("/", "", 0, 2)->entries.size(), 1U);
  EXPECT_EQ(store->write_and_wait(create("/c", "x"))->revision, 5);
}

TEST(SqliteStore, FilesAreForTheOwnerOnly) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  auto store = must_open({.path = path});
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    struct stat info {};
    ASSERT_EQ(::stat((path + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600U) << suffix;
  }
}

TEST(SqliteStore, ASecondUserIsRefused) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  auto store = must_open({.path = path});
  auto second = open_sqlite_store({.path = path});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::Conflict);
  EXPECT_THAT(second.error().message, HasSubstr("pid " + std::to_string(::getpid())));
  store.reset();
  EXPECT_TRUE(open_sqlite_store({.path = path}));
}

TEST(SqliteStore, SaysWhatIsWrongWithAFileItCannotUse) {
  TempFolder folder;
  const auto refusal = [&](const std::string& path) {
    auto store = open_sqlite_store({.path = path});
    EXPECT_FALSE(store) << path;
    return store ? Error{} : store.error();
  };
  EXPECT_EQ(refusal(folder.path + "/none/store.db").code, Code::NotFound);

  const std::string garbage = folder.path + "/garbage.db";
  ASSERT_TRUE(write_file_atomically(garbage, std::string(20'000, 'g'), 0600));
  Error error = refusal(garbage);
  EXPECT_EQ(error.code, Code::Invalid);
  EXPECT_THAT(error.message, HasSubstr("to restore"));

  const std::string foreign = folder.path + "/foreign.db";
  ASSERT_TRUE(write_file_atomically(foreign, "", 0600));
  run_sql(foreign, "CREATE TABLE people(name)");
  error = refusal(foreign);
  EXPECT_EQ(error.code, Code::Invalid);
  EXPECT_THAT(error.message, HasSubstr("another program"));

  const std::string newer = folder.path + "/newer.db";
  must_open({.path = newer}).reset();
  run_sql(newer, "UPDATE meta SET value = 3 WHERE name = 'schema'; INSERT INTO programs VALUES(3, '9.8.7')");
  error = refusal(newer);
  EXPECT_EQ(error.code, Code::Unsupported);
  EXPECT_THAT(error.message, HasSubstr("newer Fairlead 9.8.7 (schema 3); this is " FAIRLEAD_VERSION ", which knows schema 2: start that version, or restore a backup"));
  ASSERT_TRUE(write_file_atomically(newer + ".schema-2", "", 0600));
  EXPECT_THAT(refusal(newer).message, HasSubstr("go back to " + newer + ".schema-2"));
}

// A file as schema 1 had it: two objects, five revisions.
void make_first_schema(const std::string& path) {
  auto store = must_open({.path = path});
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  ASSERT_TRUE(store->write_and_wait(put("/a", "y")));
  ASSERT_TRUE(store->write_and_wait(create("/b", "z")));
  ASSERT_TRUE(store->write_and_wait(create("/c", "z")));
  ASSERT_TRUE(store->write_and_wait(erase("/c")));
  store.reset();
  run_sql(path, "DROP TABLE programs; UPDATE meta SET value = 1 WHERE name = 'schema'");
}

TEST(SqliteStore, AnOlderFileIsMigratedAndKeepsItsRevisionsAndHistory) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  make_first_schema(path);
  for (int start = 0; start < 2; ++start) {
    auto store = must_open({.path = path});
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->revision(), 5);
    EXPECT_EQ(*store->get("/a")->value.bytes(), "y2");
    Recorder seen;
    auto watch = store->watch("/", 1, seen.watcher());
    ASSERT_TRUE(watch) << watch.error().message;
    EXPECT_EQ(seen.texts().size(), 4U);
  }
  auto database = open_database(path, "", SQLITE_OPEN_READWRITE);
  ASSERT_TRUE(database);
  auto schema = prepare(database->get(), "SELECT value || ' ' || (SELECT program FROM programs WHERE schema = 2) FROM meta WHERE name = 'schema'");
  ASSERT_TRUE(schema) << schema.error().message;
  ASSERT_EQ(sqlite3_step(schema->get()), SQLITE_ROW);
  EXPECT_STREQ(reinterpret_cast<const char*>(sqlite3_column_text(schema->get(), 0)), "2 " FAIRLEAD_VERSION);
}

TEST(SqliteStore, TheCopyOfBeforeAMigrationGoesOnAboveAllRevisionsGivenOutSince) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db", copy = path + ".schema-1";
  make_first_schema(path);
  Revision last = 0;
  {
    auto store = must_open({.path = path});
    ASSERT_NE(store, nullptr);
    last = store->write_and_wait(put("/a", "after"))->revision;
  }
  struct stat info {};
  ASSERT_EQ(::stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_FALSE(exists(copy + "-wal"));
  EXPECT_EQ(count_rows(copy), 2);
  ASSERT_EQ(::rename(copy.c_str(), path.c_str()), 0);  // the server is stopped, so the log of the newer file is empty
  ::unlink((path + "-wal").c_str());
  ::unlink((path + "-shm").c_str());
  auto store = must_open({.path = path});
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(*store->get("/a")->value.bytes(), "y2");
  EXPECT_EQ(*store->get("/b")->value.bytes(), "z3");
  EXPECT_EQ(store->get("/c"), std::nullopt);
  EXPECT_GT(store->revision(), last);
  Recorder seen;
  EXPECT_EQ(store->watch("/", last, seen.watcher()).error().code, Code::Expired);
  EXPECT_GT(store->write_and_wait(put("/a", "again"))->revision, last + 1'000'000);
}

TEST(SqliteStore, WithoutACopyNothingIsMigrated) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  make_first_schema(path);
  ASSERT_EQ(::mkdir((path + ".schema-1").c_str(), 0700), 0);  // in the way
  for (int start = 0; start < 2; ++start) {
    auto store = open_sqlite_store({.path = path});
    ASSERT_FALSE(store);
    EXPECT_THAT(store.error().message, HasSubstr("keep " + path));
  }
  ASSERT_EQ(::rmdir((path + ".schema-1").c_str()), 0);
  EXPECT_TRUE(open_sqlite_store({.path = path}));
}

TEST(SqliteStore, RefusesADamagedFile) {
  const char* damages[] = {
      "DELETE FROM log WHERE revision = 5",                                    // a hole
      "DELETE FROM log WHERE revision > 15; UPDATE meta SET value = 20 WHERE name = 'revision'",  // the end is missing
      "UPDATE log SET prev = 3 WHERE revision = 7",                            // another order
  };
  for (const char* damage : damages) {
    TempFolder folder;
    const std::string path = folder.path + "/store.db";
    {
      auto store = must_open({.path = path});
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->write_and_wait(put("/k" + std::to_string(i % 3), "x")));
    }
    run_sql(path, damage);
    auto store = open_sqlite_store({.path = path});
    ASSERT_FALSE(store) << damage;
    EXPECT_EQ(store.error().code, Code::Invalid);
    EXPECT_THAT(store.error().message, HasSubstr("restore"));
  }
}

TEST(SqliteStore, RefusesATornTable) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  {
    auto store = must_open({.path = path});
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(store->write_and_wait(create("/k" + std::to_string(i), std::string(500, 'x'))));
  }
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string zeros(8192, '\0');
  ASSERT_EQ(::pwrite(fd.get(), zeros.data(), zeros.size(), 5 * 8192), 8192);
  auto store = open_sqlite_store({.path = path});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code, Code::Invalid) << store.error().message;
  EXPECT_THAT(store.error().message, HasSubstr("restore"));
}

TEST(SqliteStore, SupersededRowsAreRemovedWhenIdleAndNothingElse) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  {
    auto store = must_open({.path = path, .history = {.events = 10}, .compact_after = 50});
    for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(store->write_and_wait(put("/k" + std::to_string(i % 20), "x")));
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->write_and_wait(erase("/k" + std::to_string(i))));
    // The committer compacts while nobody writes. Watched from outside, bounded.
    std::int64_t rows = count_rows(path);
    for (int look = 0; look < 1'000 && rows > 100; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      rows = count_rows(path);
    }
    EXPECT_LE(rows, 100);
    EXPECT_EQ(store->range("/", "", 0, 0)->entries.size(), 10U);
  }
  auto store = must_open({.path = path});
  EXPECT_EQ(store->revision(), 2'010);
  EXPECT_EQ(store->range("/", "", 0, 0)->entries.size(), 10U);
  EXPECT_EQ(*store->get("/k19")->value.bytes(), "x2000");
}

TEST(SqliteStore, ABackupOfALiveStoreIsOneMoment) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db", copy = folder.path + "/copy.db";
  auto store = must_open({.path = path});
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    // Two keys that always move together in order: a copy never shows the second ahead of the first.
    for (int i = 0; !stop; ++i) {
      EXPECT_TRUE(store->write_and_wait(put("/first", std::to_string(i) + " at ")));
      EXPECT_TRUE(store->write_and_wait(put("/second", std::to_string(i) + " at ")));
    }
  });
  for (int round = 0; round < 5; ++round) {
    const Revision before = store->revision();
    auto made = backup_sqlite_store(path, copy);
    ASSERT_TRUE(made) << made.error().message;
    const Revision after = store->revision();
    struct stat info {};
    ASSERT_EQ(::stat(copy.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U);
    auto restored = must_open({.path = copy});
    EXPECT_GE(restored->revision(), before);
    EXPECT_LE(restored->revision(), after);
    auto first = restored->get("/first"), second = restored->get("/second");
    if (first && second) {
      EXPECT_GE(std::atoi(first->value.bytes()->c_str()), std::atoi(second->value.bytes()->c_str()));
    }
    EXPECT_TRUE(restored->write_and_wait(create("/restored", "x"))) << "a restored store goes on";
  }
  stop = true;
  writer.join();
  auto left = list_dir(folder.path);
  ASSERT_TRUE(left);
  for (const std::string& name : *left) EXPECT_THAT(name, testing::Not(HasSubstr(".tmp")));
}

TEST(SqliteStore, ABackupNeverReplacesTheStoreAndLeavesNothingHalfDone) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  auto store = must_open({.path = path});
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  EXPECT_EQ(backup_sqlite_store(path, path).error().code, Code::Invalid);
  EXPECT_EQ(backup_sqlite_store(path, folder.path + "/./store.db").error().code, Code::Invalid);
  EXPECT_EQ(backup_sqlite_store(folder.path + "/none.db", folder.path + "/copy.db").error().code, Code::NotFound);
  EXPECT_EQ(backup_sqlite_store(path, folder.path + "/none/copy.db").error().code, Code::NotFound);
  EXPECT_FALSE(exists(folder.path + "/none.db"));
}

// The child of the test below: writes as fast as it can and says on descriptor 3 what was acknowledged.
TEST(SqliteStoreChild, DISABLED_AcknowledgesOnAPipe) {
  const char* path = std::getenv("FAIRLEAD_STORE_CHILD");
  ASSERT_NE(path, nullptr);
  auto store = must_open({.path = path, .history = {.events = 50}, .compact_after = 100});
  std::vector<std::jthread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      for (int i = 0;; ++i) {
        const std::string key = "/w" + std::to_string(w) + "/" + std::to_string(i % 20);
        auto entry = store->write_and_wait(put(key, "v"));
        if (!entry) ::_exit(3);
        // Below PIPE_BUF, so lines of several writers never mix.
        const std::string line = key + " " + std::to_string(entry->revision) + "\n";
        if (::write(3, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(4);
      }
    });
  }
}

TEST(SqliteStore, AKilledProcessLosesNothingItAcknowledged) {
  TempFolder folder;
  const std::string path = folder.path + "/store.db";
  std::map<std::string, Revision> told;
  std::set<Revision> revisions;
  Rng rng(20);
  std::size_t acknowledged = 0;
  const int rounds = test_rounds(30, 300);
  for (int round = 0; round < rounds; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Fd reading(ends[0]), writing(ends[1]);
    Command command{.argv = {"/proc/self/exe", "--gtest_filter=SqliteStoreChild.*", "--gtest_also_run_disabled_tests"},
                    .environment = std::map<std::string, std::string>{{"FAIRLEAD_STORE_CHILD", path}},
                    .pass = {{writing.get(), 3}},
                    .die_with_parent = true};
    char self[4096] = {};
    ASSERT_GT(::readlink("/proc/self/exe", self, sizeof self - 1), 0);
    command.argv[0] = self;
    auto child = Child::start(command);
    ASSERT_TRUE(child) << child.error().message;
    writing.reset();
    // Killed after a random number of acknowledgements, so in the middle of whatever it does then; the rest of the pipe still counts.
    const std::size_t kill_after = acknowledged + 1 + rng.below(400);
    std::string pending;
    char buffer[4096];
    bool killed = false;
    ssize_t count = 0;
    while ((count = ::read(reading.get(), buffer, sizeof buffer)) > 0) {
      pending.append(buffer, static_cast<std::size_t>(count));
      for (auto end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
        const auto space = pending.find(' ');
        const Revision revision = std::atoll(pending.c_str() + space + 1);
        EXPECT_TRUE(revisions.insert(revision).second) << "revision " << revision << " was given out twice";
        Revision& latest = told[pending.substr(0, space)];
        latest = std::max(latest, revision);
        pending.erase(0, end + 1);
        ++acknowledged;
      }
      if (!killed && acknowledged >= kill_after) {
        ASSERT_TRUE(child->signal(SIGKILL));
        killed = true;
      }
    }
    auto exit = child->wait(std::chrono::seconds(20));
    ASSERT_TRUE(exit && *exit);
    ASSERT_EQ((*exit)->signal, SIGKILL) << "the child ended by itself with " << (*exit)->code;

    auto store = must_open({.path = path});
    ASSERT_NE(store, nullptr);
    ASSERT_GE(store->revision(), *revisions.rbegin());
    for (const auto& [key, revision] : told) {
      auto entry = store->get(key);
      ASSERT_TRUE(entry) << key;
      ASSERT_GE(entry->revision, revision) << key;
      ASSERT_EQ(*entry->value.bytes(), "v" + std::to_string(entry->revision));
    }
  }
  EXPECT_GT(acknowledged, static_cast<std::size_t>(rounds) * 20);
}

}  // namespace
}  // namespace fairlead::apiserver
