// SPDX-License-Identifier: Apache-2.0
// Power cuts at seeded random points of a workload of concurrent writers, on a disk that drops, reorders and tears what was not synced.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "apiserver/store/faulty_vfs.h"
#include "apiserver/store/store.h"
#include "apiserver/store/store_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using namespace test;

// A revision, said by key and value ("gone" for a deletion).
struct Fact {
  std::string key;
  std::optional<std::string> value;
  friend bool operator==(const Fact&, const Fact&) = default;
};

// What callers were told, and everything they asked for. Thread-safe.
class Ledger {
 public:
  void asked(const std::string& id) {
    const std::lock_guard lock(mutex_);
    asked_.insert(id);
  }
  // Somebody was told (a writer, a watcher, a reader after a restart): from now on it must stay.
  void told(Revision revision, Fact fact) {
    const std::lock_guard lock(mutex_);
    const auto [it, fresh] = told_.emplace(revision, fact);
    if (!fresh && it->second != fact) broken_.push_back("revision " + std::to_string(revision) + " was " + it->second.key + ", now " + fact.key);
  }
  std::map<Revision, Fact> facts() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  bool was_asked(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    return asked_.contains(id);
  }
  std::vector<std::string> broken() const {
    const std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> asked_;
  std::map<Revision, Fact> told_;
  std::vector<std::string> broken_;
};

struct World {
  std::uint64_t seed;
  SqliteOptions::Sync sync;
  TempFolder& folder;
  FaultyDisk disk;
  Ledger ledger;
  Rng rng;
  std::uint64_t next_id = 0;
  std::vector<std::string> broken;

  World(std::uint64_t the_seed, SqliteOptions::Sync the_sync, TempFolder& the_folder)
      : seed(the_seed), sync(the_sync), folder(the_folder), disk(the_seed * 77 + 1), rng(the_seed) {}

  std::string path() const { return folder.path + "/store.db"; }

  Result<std::unique_ptr<Store>> open(std::atomic<bool>& stopped) {
    return open_sqlite_store({.path = path(), .vfs = disk.vfs(), .sync = sync, // The short history is above the 12 writes that can be under way: what nobody was told of must not be compacted unseen.
                              .history = {.events = seed % 3 == 0 ? 16UL : 100'000UL},
                              .compact_after = 4, .fatal = [&stopped](const std::string&) { stopped = true; }});
  }

  // One life: open, check what is there against what was told, write until the power goes (or `calm`), die.
  void live(bool calm) {
    std::atomic<bool> stopped{false};
    auto store = open(stopped);
    if (!store) {
      if (!disk.dark()) broken.push_back("cannot open: " + store.error().message);
      return;
    }
    check(**store);
    auto watch = (*store)->watch("/", (*store)->revision(), [this](const StoreEvent& event) { tell(event); });
    INVARIANT(watch);
    work(**store, calm ? 3 : 60, stopped);
  }

  void tell(const StoreEvent& event) { ledger.told(event.revision, Fact{event.key, event.value ? std::optional(*event.value.bytes()) : std::nullopt}); }

  void work(Store& store, int rounds, std::atomic<bool>& stopped) {
    std::vector<std::thread> writers;
    for (int w = 0; w < 3; ++w) {
      writers.emplace_back([&, this, writer_rng = Rng(rng.next()), first = next_id + static_cast<std::uint64_t>(w) * 100'000]() mutable {
        std::uint64_t id = first;
        for (int round = 0; round < rounds && !stopped; ++round) {
          auto open_writes = std::make_shared<std::atomic<int>>(0);  // outlives a writer that gives up
          const int burst = 1 + static_cast<int>(writer_rng.below(4));
          for (int i = 0; i < burst; ++i) {
            const std::string key = "/k/" + std::to_string(writer_rng.below(8));
            const std::string name = std::to_string(seed) + ":" + std::to_string(id++);
            const bool deletes = writer_rng.below(4) == 0;
            const std::size_t size = writer_rng.below(8) == 0 ? 20'000 : writer_rng.below(900);
            ++*open_writes;
            ledger.asked(name);
            auto done = [this, key, deletes, open_writes](const Result<Entry>& entry) {
              if (entry) ledger.told(entry->revision, Fact{key, deletes ? std::nullopt : std::optional(*entry->value.bytes())});
              --*open_writes;
            };
            store.write(deletes ? erase(key) : put(key, name + "|", {}, "|" + std::string(size, static_cast<char>('a' + id % 26))), done);
          }
          while (*open_writes != 0 && !stopped) std::this_thread::yield();  // answered, or never to be
        }
      });
    }
    for (std::thread& writer : writers) writer.join();
    next_id += 1'000'000;
  }
  // Nothing told is lost or changed; nothing is there that nobody asked for; all that is there is whole, in one order without a gap.
  void check(Store& store) {
    const Revision now = store.revision();
    auto facts = ledger.facts();
    if (!facts.empty() && facts.rbegin()->first > now) broken.push_back("revision " + std::to_string(facts.rbegin()->first) + " is lost, now " + std::to_string(now));
    Revision start = 0;
    std::vector<StoreEvent> events;
    while (start <= now) {
      events.clear();
      if (store.watch("/", start, [&](const StoreEvent& event) { events.push_back(event); })) break;
      ++start;
    }
    Revision expected = start;
    for (const StoreEvent& event : events) {
      if (event.revision != ++expected) broken.push_back("gap before " + std::to_string(event.revision));
      if (event.value && !whole(event)) broken.push_back("torn value at " + std::to_string(event.revision));
      tell(event);
    }
    if (expected != now) broken.push_back("history ends at " + std::to_string(expected) + ", revision is " + std::to_string(now));

    std::map<std::string, std::pair<Revision, std::string>> state;
    Revision known = 0;
    for (const auto& [revision, fact] : ledger.facts()) {
      if (revision > now) break;
      if (revision != ++known) {
        broken.push_back("revision " + std::to_string(known) + " was compacted though nobody was told of it");
        known = revision;
      }
      if (fact.value) {
        state[fact.key] = {revision, *fact.value};
      } else {
        state.erase(fact.key);
      }
    }
    auto range = store.range("/", "", 0, 0);
    INVARIANT(range);
    std::map<std::string, std::pair<Revision, std::string>> there;
    for (const Entry& entry : range->entries) there[entry.key] = {entry.revision, *entry.value.bytes()};
    if (there != state) broken.push_back("the objects are not what the writes say");
    for (std::string& text : ledger.broken()) broken.push_back(std::move(text));
  }

  // "seed:id|revision|aaaa...": the writer's name, the right revision, one repeated letter.
  bool whole(const StoreEvent& event) const {
    const auto text = event.value.bytes();
    const auto first = text->find('|');
    const auto second = text->find('|', first + 1);
    if (first == std::string::npos || second == std::string::npos) return false;
    if (text->substr(first + 1, second - first - 1) != std::to_string(event.revision)) return false;
    if (!ledger.was_asked(text->substr(0, first))) return false;
    const std::string_view rest = std::string_view(*text).substr(second + 1);
    return rest.empty() || rest.find_first_not_of(rest[0]) == std::string_view::npos;
  }
};

struct Tally {
  int cuts = 0;
  std::uint64_t lost_pieces = 0;
  int broken_worlds = 0;
  std::vector<std::string> first_broken;
  std::size_t told = 0;
};

Tally cut_power(int worlds, SqliteOptions::Sync sync) {
  TempFolder folder;  // for the lock files only: the data is on the faulty disk
  Tally tally;
  constexpr int cuts_each = 4;
  for (int seed = 1; seed <= worlds; ++seed) {
    World world(static_cast<std::uint64_t>(seed), sync, folder);
    for (int cut = 0; cut < cuts_each && world.broken.empty(); ++cut) {
      // Early cuts hit creation and recovery, late ones the middle of the work and compaction.
      world.disk.cut_power_after(world.rng.below(cut % 2 == 0 ? 200 : 40));
      world.live(false);
      tally.cuts += world.disk.dark() ? 1 : 0;
      world.disk.power_cycle();
    }
    if (world.broken.empty()) world.live(true);   // all must be there now, and writing goes on
    if (world.broken.empty()) world.live(true);   // and after an orderly end
    tally.lost_pieces += world.disk.lost_pieces();
    tally.told += world.ledger.facts().size();
    if (!world.broken.empty()) {
      ++tally.broken_worlds;
      if (tally.first_broken.empty()) {
        tally.first_broken = world.broken;
        tally.first_broken.push_back("seed " + std::to_string(seed));
      }
    }
  }
  return tally;
}

int scale() { return std::getenv("FAIRLEAD_FULL") != nullptr ? 10 : 1; }

TEST(StoreCrash, NoAcknowledgedWriteIsLostAndNoRevisionReused) {
  const Tally tally = cut_power(300 * scale(), SqliteOptions::Sync::Full);
  EXPECT_EQ(tally.broken_worlds, 0) << testing::PrintToString(tally.first_broken);
  EXPECT_GE(tally.cuts, 1'000 * scale());
  EXPECT_GT(tally.lost_pieces, 1'000U) << "the disk lost nothing: the test would prove nothing";
  EXPECT_GT(tally.told, 10'000U);
  RecordProperty("power_cuts", tally.cuts);
  RecordProperty("writes_told", static_cast<int>(tally.told));
}

// The same test must be able to fail: without fsync, writes are lost.
TEST(StoreCrash, WithoutSyncTheSameTestFindsLosses) {
  const Tally tally = cut_power(40, SqliteOptions::Sync::Off);
  EXPECT_GT(tally.broken_worlds, 10);
  ASSERT_FALSE(tally.first_broken.empty());
}

}  // namespace
}  // namespace fairlead::apiserver
