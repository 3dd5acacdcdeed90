// SPDX-License-Identifier: Apache-2.0
// A full disk and failing operations: what is refused, what stops the process, and what is there afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "apiserver/store/faulty_vfs.h"
#include "apiserver/store/store.h"
#include "apiserver/store/store_test_kit.h"

namespace fairlead::apiserver {
namespace {

using namespace test;
using testing::HasSubstr;

class StoreFault : public testing::Test {
 protected:
  std::unique_ptr<Store> open(std::size_t history = 100'000) {
    auto store = open_sqlite_store({.path = folder_.path + "/store.db", .vfs = disk_.vfs(), .history = {.events = history}, .compact_after = 4, .fatal = [this](const std::string& why) {
                                      const std::lock_guard lock(mutex_);
                                      fatal_ = why;
                                      changed_.notify_all();
                                    }});
    if (!store) ADD_FAILURE() << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  // Writes without waiting for an answer; returns when the store answered or stopped.
  std::optional<Result<Entry>> write_or_stop(Store& store, Write write) {
    struct Answer {
      std::optional<Result<Entry>> value;
    };
    auto answer = std::make_shared<Answer>();
    store.write(std::move(write), [this, answer](Result<Entry> result) {
      const std::lock_guard lock(mutex_);
      answer->value = std::move(result);
      changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer->value || fatal_; });
    return answer->value;
  }

  TempFolder folder_;
  FaultyDisk disk_{1};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> fatal_;
};

TEST_F(StoreFault, AFullDiskRefusesWritesAndServesReadsUntilThereIsRoom) {
  auto store = open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store->write_and_wait(create("/a" + std::to_string(i), std::string(3'000, 'x'))));
  Recorder seen;
  auto watch = store->watch("/", 5, seen.watcher());
  disk_.limit_size(disk_.size());
  for (int i = 0; i < 20; ++i) {
    auto entry = store->write_and_wait(create("/b" + std::to_string(i), std::string(30'000, 'y')));
    ASSERT_FALSE(entry);
    EXPECT_EQ(entry.error().code, Code::Exhausted);
    EXPECT_THAT(entry.error().message, HasSubstr("no room"));
    EXPECT_EQ(store->get("/b" + std::to_string(i)), std::nullopt);
  }
  EXPECT_EQ(store->revision(), 5);
  EXPECT_EQ(store->range("/", "", 0, 0)->entries.size(), 5U);
  EXPECT_TRUE(seen.events().empty()) << "a refused write must not be told to watchers";

  disk_.limit_size(-1);
  auto entry = store->write_and_wait(create("/b0", "z"));
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(entry->revision, 6);
  EXPECT_EQ(seen.texts(), std::vector<std::string>{"6 /b0 =z6"});

  store.reset();
  disk_.power_cycle();
  store = open();
  EXPECT_EQ(store->revision(), 6);
  EXPECT_EQ(store->range("/", "", 0, 0)->entries.size(), 6U);
  EXPECT_FALSE(fatal_);
}

// At every size a disk can be full at, a batch is there whole or refused whole, and a power cut afterwards changes nothing of that.
TEST_F(StoreFault, WhateverRoomIsLeftAnAnswerIsTrue) {
  int refusals = 0, successes = 0;
  for (std::int64_t room = 0; room < 120'000; room += 1'733) {
    FaultyDisk disk(static_cast<std::uint64_t>(room) + 5);
    bool stopped = false;
    const SqliteOptions options{.path = folder_.path + "/full.db", .vfs = disk.vfs(), .fatal = [&](const std::string&) { stopped = true; }};
    std::vector<std::string> accepted;
    {
      auto store = open_sqlite_store(options);
      ASSERT_TRUE(store);
      disk.limit_size(disk.size() + room);
      std::atomic<int> answers{0};
      std::mutex mutex;
      for (int i = 0; i < 12; ++i) {
        const std::string key = "/k" + std::to_string(i);
        if (i < 6) {  // one by one first, then a batch
          if ((*store)->write_and_wait(create(key, std::string(9'000, 'x')))) accepted.push_back(key);
          ++answers;
          continue;
        }
        (*store)->write(create(key, std::string(9'000, 'x')), [&, key](const Result<Entry>& entry) {
          const std::lock_guard lock(mutex);
          if (entry) accepted.push_back(key);
          EXPECT_TRUE(entry || entry.error().code == Code::Exhausted);
          ++answers;
        });
      }
      store->reset();  // answers all
      ASSERT_EQ(answers.load(), 12);
    }
    ASSERT_FALSE(stopped);
    refusals += 12 - static_cast<int>(accepted.size());
    successes += static_cast<int>(accepted.size());
    disk.limit_size(-1);
    disk.power_cycle();
    auto store = open_sqlite_store(options);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->range("/", "", 0, 0)->entries.size(), accepted.size()) << "room " << room;
    for (const std::string& key : accepted) EXPECT_TRUE((*store)->get(key)) << key;
  }
  EXPECT_GT(refusals, 50);
  EXPECT_GT(successes, 50);
}

TEST_F(StoreFault, AFailedFsyncStopsTheProcessWithoutAnAnswer) {
  auto store = open();
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  disk_.fail_next(FaultyDisk::Fault::SyncIo);
  EXPECT_FALSE(write_or_stop(*store, create("/b", "x")).has_value()) << "was answered";
  ASSERT_TRUE(fatal_);
  EXPECT_THAT(*fatal_, HasSubstr("not known"));
  EXPECT_EQ(store->get("/b"), std::nullopt) << "must not be shown either";
  store.reset();
  disk_.power_cycle();
  store = open();
  EXPECT_TRUE(store->get("/a"));
}

// fsync said no, but the data is there: after a restart the write counts, with its revision, and the next one gets another.
TEST_F(StoreFault, AWriteOfUnknownOutcomeIsWholeAfterTheRestart) {
  auto store = open();
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  disk_.fail_next(FaultyDisk::Fault::SyncIoThough);
  EXPECT_FALSE(write_or_stop(*store, create("/b", "x")).has_value());
  store.reset();
  fatal_.reset();
  disk_.power_cycle();
  store = open();
  ASSERT_TRUE(store->get("/b"));
  EXPECT_EQ(store->get("/b")->revision, 2);
  EXPECT_EQ(store->write_and_wait(create("/c", "x"))->revision, 3);
}

// What a dead process had written but not synced is visible to the next one. It must be made durable before anybody sees it.
TEST_F(StoreFault, WhatARestartShowsSurvivesAPowerCut) {
  auto store = open();
  ASSERT_TRUE(store->write_and_wait(create("/a", "x")));
  disk_.fail_next(FaultyDisk::Fault::SyncIo);
  EXPECT_FALSE(write_or_stop(*store, create("/b", "x")).has_value());
  store.reset();  // the process dies; the machine and its page cache live
  fatal_.reset();
  store = open();
  const bool shown = store->get("/b").has_value();
  EXPECT_TRUE(shown);
  const Revision revision = store->revision();
  store.reset();
  for (int i = 0; i < 5; ++i) {
    disk_.power_cycle();
    store = open();
    EXPECT_EQ(store->revision(), revision);
    EXPECT_EQ(store->get("/b").has_value(), shown);
    store.reset();
  }
}

TEST_F(StoreFault, AnUnreadableOrFailingDiskStopsItToo) {
  auto store = open();
  disk_.fail_next(FaultyDisk::Fault::WriteIo);
  EXPECT_FALSE(write_or_stop(*store, create("/a", std::string(10'000, 'x'))).has_value());
  EXPECT_TRUE(fatal_);
  store.reset();
  fatal_.reset();
  disk_.power_cycle();
  store = open();
  EXPECT_TRUE(store->write_and_wait(create("/a", "x")));
}

// Every write and sync of a workload with checkpoints and compaction, failed one after another: nothing told is lost.
TEST_F(StoreFault, AFaultAtAnyPointLosesNothingTold) {
  int stops = 0;
  for (const auto kind : {FaultyDisk::Fault::WriteIo, FaultyDisk::Fault::SyncIo, FaultyDisk::Fault::SyncIoThough, FaultyDisk::Fault::TruncateIo}) {
    for (int skip = 0; skip < 60; ++skip) {
      FaultyDisk disk(static_cast<std::uint64_t>(skip) * 10 + static_cast<std::uint64_t>(kind));
      std::atomic<bool> stopped{false};
      std::map<std::string, Revision> told;
      const SqliteOptions options{.path = folder_.path + "/any.db", .vfs = disk.vfs(), .history = {.events = 3}, .compact_after = 1, .fatal = [&](const std::string&) { stopped = true; }};
      disk.fail_next(kind, skip);
      if (auto store = open_sqlite_store(options)) {
        for (int i = 0; i < 25 && !stopped; ++i) {
          const std::string key = "/k" + std::to_string(i % 7);
          std::atomic<int> answered{0};
          std::optional<Revision> revision;
          (*store)->write(put(key, std::string(2'000, 'x')), [&](const Result<Entry>& entry) {
            if (entry) revision = entry->revision;
            answered = 1;
          });
          while (answered == 0 && !stopped) std::this_thread::yield();
          if (answered != 0 && revision) told[key] = *revision;
        }
        store->reset();
      }
      stops += stopped ? 1 : 0;
      stopped = false;
      disk.power_cycle();
      auto store = open_sqlite_store(options);
      ASSERT_TRUE(store) << store.error().message << " kind " << static_cast<int>(kind) << " skip " << skip;
      for (const auto& [key, revision] : told) {
        auto entry = (*store)->get(key);
        ASSERT_TRUE(entry) << key << " skip " << skip;
        ASSERT_GE(entry->revision, revision);
      }
    }
  }
  EXPECT_GT(stops, 40);
}

TEST_F(StoreFault, RevisionsGoOnAfterEverythingIsDeletedAndCompacted) {
  Revision last = 0;
  {
    auto store = open(2);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(store->write_and_wait(create("/k" + std::to_string(i), "x")));
    for (int i = 0; i < 30; ++i) last = store->write_and_wait(erase("/k" + std::to_string(i)))->revision;
  }
  for (int restart = 0; restart < 3; ++restart) {
    disk_.power_cycle();
    auto store = open(1);
    EXPECT_EQ(store->revision(), last);
    EXPECT_TRUE(store->range("/", "", 0, 0)->entries.empty());
    last = store->write_and_wait(create("/k", "x"))->revision;
    EXPECT_EQ(last, 61 + 2 * restart);
    last = store->write_and_wait(erase("/k"))->revision;
  }
}

}  // namespace
}  // namespace fairlead::apiserver
