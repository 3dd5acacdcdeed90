// SPDX-License-Identifier: Apache-2.0
// Every sentence of store.h, on every driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "apiserver/store/store.h"
#include "apiserver/store/store_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

struct Driver {
  const char* name;
  std::function<std::unique_ptr<Store>(const std::string& folder, HistoryLimits)> open;
};

class StoreContract : public testing::TestWithParam<Driver> {
 protected:
  void open(HistoryLimits limits = {}) {
    store_.reset();
    store_ = GetParam().open(folder_.path, limits);
    ASSERT_NE(store_, nullptr);
  }
  void SetUp() override { open(); }
  Entry must(Write write) {
    auto entry = store_->write_and_wait(std::move(write));
    if (!entry) {
      ADD_FAILURE() << entry.error().message;
      return {};
    }
    return *entry;
  }
  Code refused(Write write) {
    auto entry = store_->write_and_wait(std::move(write));
    EXPECT_FALSE(entry) << "was accepted as revision " << (entry ? entry->revision : 0);
    return entry ? Code::Internal : entry.error().code;
  }
  std::vector<std::string> keys(const std::string& prefix, Revision at = 0) {
    auto range = store_->range(prefix, "", 0, at);
    if (!range) {
      ADD_FAILURE() << range.error().message;
      return {};
    }
    std::vector<std::string> out;
    for (const Entry& entry : range->entries) out.push_back(entry.key + "=" + *entry.value.bytes());
    return out;
  }

  TempFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_P(StoreContract, RevisionsCountWritesFromOne) {
  EXPECT_EQ(store_->revision(), 0);
  EXPECT_EQ(must(create("/a", "x")).revision, 1);
  EXPECT_EQ(must(put("/a", "y")).revision, 2);
  EXPECT_EQ(must(create("/b", "z")).revision, 3);
  EXPECT_EQ(must(erase("/a")).revision, 4);
  EXPECT_EQ(store_->revision(), 4);
}

TEST_P(StoreContract, RefusedWritesTakeNoRevision) {
  must(create("/a", "x"));
  EXPECT_EQ(refused(create("/a", "x")), Code::Exists);
  EXPECT_EQ(refused(put("/a", "x", 7)), Code::Conflict);
  EXPECT_EQ(refused(erase("/b")), Code::NotFound);
  EXPECT_EQ(store_->revision(), 1);
  EXPECT_EQ(must(put("/a", "y", 1)).revision, 2);
}

TEST_P(StoreContract, PutsTheRevisionIntoTheBytes) {
  must(create("/other", ""));
  const Entry entry = must(put("/a", "{\"rv\":\"", 0, "\"}"));
  EXPECT_EQ(*entry.value.bytes(), "{\"rv\":\"2\"}");
  EXPECT_EQ(*store_->get("/a")->value.bytes(), "{\"rv\":\"2\"}");
  EXPECT_EQ(*must(put("/only-before", "x")).value.bytes(), "x3");
  EXPECT_EQ(*must(put("/only-after", "", 0, "x")).value.bytes(), "4x");
}

TEST_P(StoreContract, AnEmptyTemplateIsAnEmptyValueNotADeletion) {
  EXPECT_EQ(*must(put("/a", "")).value.bytes(), "");
  open();
  if (std::string(GetParam().name) == "Memory") return;
  ASSERT_TRUE(store_->get("/a"));
  EXPECT_EQ(*store_->get("/a")->value.bytes(), "");
}

struct Expectation {
  const char* name;
  Revision before;  // revision of the key when the write comes; 0: absent
  bool deletes;
  std::optional<Revision> expected;
  std::optional<Code> want;  // none: accepted
};

TEST_P(StoreContract, ChecksWhatAWriteExpects) {
  const Expectation rows[] = {
      {"create when absent", 0, false, 0, {}},
      {"create when there", 1, false, 0, Code::Exists},
      {"put without expectation, absent", 0, false, {}, {}},
      {"put without expectation, there", 1, false, {}, {}},
      {"put at the right revision", 1, false, 1, {}},
      {"put at another revision", 1, false, 9, Code::Conflict},
      {"put expecting one that is gone", 0, false, 1, Code::Conflict},
      {"delete without expectation", 1, true, {}, {}},
      {"delete at the right revision", 1, true, 1, {}},
      {"delete at another revision", 1, true, 9, Code::Conflict},
      {"delete what is not there", 0, true, {}, Code::NotFound},
      {"delete what is not there, expecting it", 0, true, 1, Code::NotFound},
      {"delete expecting nothing there", 1, true, 0, Code::Exists},
  };
  for (const Expectation& row : rows) {
    SCOPED_TRACE(row.name);
    const std::string key = std::string("/") + row.name;
    Revision there = 0;
    if (row.before != 0) there = must(create(key, "x")).revision;
    if (there == 0) there = must(create(std::string("/filler/") + row.name, "x")).revision;  // so that 1 never is a real revision here
    std::optional<Revision> expected = row.expected;
    if (expected == 1) expected = there;
    if (expected == 9) expected = there + 1'000;
    const Write write = row.deletes ? erase(key, expected) : put(key, "y", expected);
    auto entry = store_->write_and_wait(write);
    ASSERT_EQ(!entry, row.want.has_value()) << (entry ? "accepted" : entry.error().message);
    if (!entry) {
      EXPECT_EQ(entry.error().code, *row.want);
      EXPECT_THAT(entry.error().message, HasSubstr(key));
      if (row.want == Code::Conflict && row.before != 0) {
        EXPECT_THAT(entry.error().message, HasSubstr(std::to_string(there)));
      }
    } else {
      EXPECT_EQ(entry->revision, there + 1);
      EXPECT_EQ(store_->get(key).has_value(), !row.deletes);
    }
  }
}

TEST_P(StoreContract, RefusesAnEmptyKeyAndAnEnormousValue) {
  EXPECT_EQ(refused(put("", "x")), Code::Invalid);
  EXPECT_EQ(refused(put("/a", std::string((16 << 20) + 1, 'x'))), Code::Invalid);
  EXPECT_EQ(must(put("/a", std::string((16 << 20) - 16, 'x'))).revision, 1);
  open();
  EXPECT_LE(store_->revision(), 1);
}

TEST_P(StoreContract, ADeleteGivesTheLastValueAndTheRevisionOfTheDeletion) {
  must(create("/a", "last"));
  const Entry entry = must(erase("/a"));
  EXPECT_EQ(entry.revision, 2);
  EXPECT_EQ(*entry.value.bytes(), "last1");
  EXPECT_EQ(store_->get("/a"), std::nullopt);
}

TEST_P(StoreContract, RangeIsInKeyOrderByPrefixInPages) {
  for (const char* key : {"/pods/b/1", "/pods/a/2", "/pods/a/1", "/podsx/a", "/nodes/n", "/pods/a/10"}) must(create(key, "v"));
  EXPECT_THAT(keys("/pods/"), ElementsAre("/pods/a/1=v3", "/pods/a/10=v6", "/pods/a/2=v2", "/pods/b/1=v1"));
  EXPECT_THAT(keys("/pods/a/"), ElementsAre("/pods/a/1=v3", "/pods/a/10=v6", "/pods/a/2=v2"));
  EXPECT_THAT(keys("/none"), ElementsAre());
  EXPECT_EQ(keys("").size(), 6U);

  std::vector<std::string> seen;
  std::string after;
  for (int pages = 1; pages <= 2; ++pages) {
    auto page = store_->range("/pods/", after, 2, 0);
    ASSERT_TRUE(page);
    EXPECT_EQ(page->entries.size(), 2U);
    EXPECT_EQ(page->more, pages == 1);
    EXPECT_EQ(page->revision, 6);
    for (const Entry& entry : page->entries) seen.push_back(entry.key);
    after = page->entries.back().key;
  }
  EXPECT_THAT(seen, ElementsAre("/pods/a/1", "/pods/a/10", "/pods/a/2", "/pods/b/1"));
  auto end = store_->range("/pods/", after, 2, 0);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->entries.empty());
  EXPECT_FALSE(end->more);
}

TEST_P(StoreContract, RangeAtAnOlderRevisionShowsWhatWasThen) {
  must(create("/p/a", "a"));  // 1
  must(create("/p/b", "b"));  // 2
  must(put("/p/a", "A"));     // 3
  must(erase("/p/b"));        // 4
  must(create("/p/c", "c"));  // 5
  must(create("/p/b", "B"));  // 6
  EXPECT_THAT(keys("/p/", 1), ElementsAre("/p/a=a1"));
  EXPECT_THAT(keys("/p/", 2), ElementsAre("/p/a=a1", "/p/b=b2"));
  EXPECT_THAT(keys("/p/", 3), ElementsAre("/p/a=A3", "/p/b=b2"));
  EXPECT_THAT(keys("/p/", 4), ElementsAre("/p/a=A3"));
  EXPECT_THAT(keys("/p/", 5), ElementsAre("/p/a=A3", "/p/c=c5"));
  EXPECT_THAT(keys("/p/", 6), ElementsAre("/p/a=A3", "/p/b=B6", "/p/c=c5"));
  EXPECT_EQ(keys("/p/"), keys("/p/", 6));
  auto page = store_->range("/p/", "", 1, 2);
  ASSERT_TRUE(page);
  EXPECT_TRUE(page->more);
  EXPECT_EQ(page->revision, 2);
  auto rest = store_->range("/p/", page->entries.back().key, 1, 2);
  ASSERT_TRUE(rest);
  EXPECT_EQ(rest->entries[0].key, "/p/b");
  EXPECT_FALSE(rest->more);
  auto future = store_->range("/p/", "", 0, 7);
  ASSERT_FALSE(future);
  EXPECT_EQ(future.error().code, Code::Invalid);
}

TEST_P(StoreContract, WatchTellsThePastThenThePresentWithoutAGap) {
  must(create("/p/a", "a"));
  must(create("/q/x", "x"));
  must(put("/p/a", "b"));
  Recorder all, late;
  auto from_start = store_->watch("/p/", 0, all.watcher());
  ASSERT_TRUE(from_start);
  EXPECT_THAT(all.texts(), ElementsAre("1 /p/a =a1", "3 /p/a =b3")) << "past events come before watch returns";
  auto from_one = store_->watch("/p/", 1, late.watcher());
  ASSERT_TRUE(from_one);
  must(erase("/p/a"));
  must(create("/q/y", "y"));
  must(create("/p/a", "c"));
  EXPECT_THAT(all.texts(), ElementsAre("1 /p/a =a1", "3 /p/a =b3", "4 /p/a gone", "6 /p/a =c6"));
  EXPECT_THAT(late.texts(), ElementsAre("3 /p/a =b3", "4 /p/a gone", "6 /p/a =c6"));
  const auto events = all.events();
  EXPECT_EQ(events[0].before, nullptr);
  EXPECT_EQ(events[0].before_revision, 0);
  EXPECT_EQ(*events[1].before.bytes(), "a1");
  EXPECT_EQ(events[1].before_revision, 1);
  EXPECT_EQ(*events[2].before.bytes(), "b3");
  EXPECT_EQ(events[3].before, nullptr);
}

TEST_P(StoreContract, ADroppedWatchIsSilent) {
  Recorder seen;
  auto watch = store_->watch("/", 0, seen.watcher());
  ASSERT_TRUE(watch);
  must(create("/a", "x"));
  watch->reset();
  must(create("/b", "x"));
  EXPECT_THAT(seen.texts(), ElementsAre("1 /a =x1"));
}

TEST_P(StoreContract, AWatchMayOutliveTheStore) {
  Recorder seen;
  auto watch = store_->watch("/", 0, seen.watcher());
  ASSERT_TRUE(watch);
  store_.reset();
  watch->reset();
}

TEST_P(StoreContract, AWatcherMayDropItselfAndReadTheStore) {
  std::unique_ptr<Subscription> watch;
  int calls = 0;
  bool visible = false;
  auto opened = store_->watch("/", 0, [&](const StoreEvent& event) {
    ++calls;
    visible = store_->get(event.key).has_value();
    watch.reset();
  });
  ASSERT_TRUE(opened);
  watch = std::move(*opened);
  must(create("/a", "x"));
  must(create("/b", "x"));
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(visible);
}

TEST_P(StoreContract, WatchersAreCalledBeforeTheWriterIsAnswered) {
  std::atomic<Revision> told{0};
  auto watch = store_->watch("/", 0, [&](const StoreEvent& event) { told = event.revision; });
  ASSERT_TRUE(watch);
  for (int i = 1; i <= 50; ++i) {
    const Entry entry = must(create("/k" + std::to_string(i), "x"));
    EXPECT_EQ(told.load(), entry.revision);
  }
}

TEST_P(StoreContract, ADoneMayWriteAgain) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<Entry>> second;
  store_->write(create("/a", "x"), [&](const Result<Entry>& first) {
    ASSERT_TRUE(first);
    store_->write(put("/a", "y", first->revision), [&](Result<Entry> result) {
      const std::lock_guard lock(mutex);
      second = std::move(result);
      changed.notify_one();
    });
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return second.has_value(); });
  ASSERT_TRUE(*second);
  EXPECT_EQ((*second)->revision, 2);
}

// From within a `done` nothing is taken from the queue, so it fills up exactly.
TEST_P(StoreContract, TooManyWaitingWritesAreRefusedAtOnce) {
  std::atomic<int> accepted{0}, refused{0}, refused_inside{0};
  Store* store = store_.get();  // reset() below clears the pointer before the store has finished
  store->write(create("/first", ""), [&](const Result<Entry>&) {
    for (int i = 0; i < 100'010; ++i) {
      store->write(put("/k" + std::to_string(i % 10), ""), [&](const Result<Entry>& entry) {
        if (entry) ++accepted;
        if (!entry && entry.error().code == Code::Exhausted) ++refused;
      });
    }
    refused_inside = refused.load();
  });
  store_.reset();  // answers what waits
  EXPECT_EQ(accepted.load(), 100'000);
  EXPECT_EQ(refused_inside.load(), 10) << "refused before write returns";
  EXPECT_EQ(refused.load(), 10);
}

TEST_P(StoreContract, HistoryOlderThanItsLimitIsExpired) {
  open({.events = 5});
  const Revision start = store_->revision();
  for (int i = 0; i < 12; ++i) must(put("/a" + std::to_string(i % 3), "x"));
  const Revision now = start + 12;
  Recorder seen;
  auto old = store_->watch("/", now - 6, seen.watcher());
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, Code::Expired);
  EXPECT_TRUE(seen.events().empty());
  auto old_range = store_->range("/", "", 0, now - 6);
  ASSERT_FALSE(old_range);
  EXPECT_EQ(old_range.error().code, Code::Expired);
  EXPECT_TRUE(store_->range("/", "", 0, now - 5));
  auto oldest = store_->watch("/", now - 5, seen.watcher());
  ASSERT_TRUE(oldest);
  EXPECT_EQ(seen.events().size(), 5U);
  auto future = store_->watch("/", now + 1, seen.watcher());
  ASSERT_FALSE(future);
  EXPECT_EQ(future.error().code, Code::Invalid);
}

TEST_P(StoreContract, HistoryIsBoundedInBytesToo) {
  open({.events = 1'000, .bytes = 50'000});
  for (int i = 0; i < 100; ++i) must(put("/a", std::string(10'000, 'x')));
  EXPECT_FALSE(store_->watch("/", store_->revision() - 10, [](const StoreEvent&) {}));
  EXPECT_TRUE(store_->watch("/", store_->revision() - 2, [](const StoreEvent&) {}));
}

// Writers race each other and watches that start in between: revisions have no gap, each watch sees exactly what follows its start, and of
// several creations of one key one succeeds.
TEST_P(StoreContract, ConcurrentWritersAndWatchesAgreeOnOneOrder) {
  constexpr int writers = 4, each = 150, watches = 12;
  std::atomic<int> created{0};
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      for (int i = 0; i < each; ++i) {
        if (auto entry = store_->write_and_wait(create("/race/" + std::to_string(i), "w" + std::to_string(w) + " at "))) ++created;
        std::optional<Revision> expected;
        if (auto now = store_->get("/counter")) expected = now->revision;
        auto counted = store_->write_and_wait(put("/counter", "x", expected.value_or(0)));
        EXPECT_TRUE(counted || counted.error().code == Code::Conflict || counted.error().code == Code::Exists) << counted.error().message;
      }
    });
  }
  std::vector<Recorder> seen(watches);
  std::vector<Revision> starts(watches);
  std::vector<std::unique_ptr<Subscription>> open_watches;
  for (int i = 0; i < watches; ++i) {
    starts[i] = i % 3 == 0 ? 0 : store_->revision();
    auto watch = store_->watch("/", starts[i], seen[i].watcher());
    ASSERT_TRUE(watch) << watch.error().message;
    open_watches.push_back(std::move(*watch));
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(created.load(), each);
  for (int i = 0; i < watches; ++i) {
    const auto events = seen[i].events();
    ASSERT_EQ(static_cast<Revision>(events.size()), store_->revision() - starts[i]) << "watch " << i;
    for (std::size_t n = 0; n < events.size(); ++n) ASSERT_EQ(events[n].revision, starts[i] + static_cast<Revision>(n) + 1);
  }
}

// The same random writes on the store and on a plain map give the same answers, at every revision.
TEST_P(StoreContract, AgreesWithAPlainMap) {
  Rng rng(7);
  std::map<std::string, std::pair<Revision, std::string>> model;
  std::vector<std::vector<std::string>> at_revision{{}};
  for (int step = 0; step < 400; ++step) {
    const std::string key = "/k/" + std::to_string(rng.below(12));
    const auto there = model.find(key);
    const Revision now = there == model.end() ? 0 : there->second.first;
    std::optional<Revision> expected;
    if (rng.below(2) == 0) expected = rng.below(3) == 0 ? now + 1 : now;
    const bool deletes = rng.below(3) == 0;
    auto entry = store_->write_and_wait(deletes ? erase(key, expected) : put(key, "v", expected));
    const bool want = (!expected || *expected == now) && !(deletes && now == 0);
    ASSERT_EQ(entry.has_value(), want) << "step " << step;
    if (!want) continue;
    ASSERT_EQ(entry->revision, static_cast<Revision>(at_revision.size()));
    if (deletes) {
      model.erase(key);
    } else {
      model[key] = {entry->revision, "v" + std::to_string(entry->revision)};
    }
    std::vector<std::string> state;
    for (const auto& [k, v] : model) state.push_back(k + "=" + v.second);
    at_revision.push_back(state);
  }
  for (Revision r = 1; r < static_cast<Revision>(at_revision.size()); ++r) ASSERT_EQ(keys("/k/", r), at_revision[static_cast<std::size_t>(r)]) << r;
}

TEST_P(StoreContract, WritesThatWaitWhenItClosesAreAnswered) {
  std::atomic<int> answered{0};
  for (int i = 0; i < 300; ++i) store_->write(create("/a" + std::to_string(i), "x"), [&](const Result<Entry>& entry) { answered += entry ? 1 : 0; });
  store_.reset();
  EXPECT_EQ(answered.load(), 300);
}

std::unique_ptr<Store> open_file(const std::string& folder, HistoryLimits limits) {
  auto store = open_sqlite_store({.path = folder + "/store.db", .history = limits});
  if (!store) ADD_FAILURE() << store.error().message;
  return store ? std::move(*store) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Drivers, StoreContract,
                         testing::Values(Driver{"Memory", [](const std::string&, HistoryLimits limits) { return make_memory_store(limits); }},
                                         Driver{"Sqlite", open_file}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::apiserver
