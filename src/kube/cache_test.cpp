// SPDX-License-Identifier: Apache-2.0
#include "kube/cache.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "kube/scripted_api.h"

namespace fairlead::kube {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// "+n/a@3" first seen, "~n/a@4" changed, "-n/a" gone.
std::string print(const Change& change) {
  const std::string key = key_of(change.object()).text();
  if (!change.after) return "-" + key;
  return (change.before ? "~" : "+") + key + "@" + version_of(*change.after);
}
std::vector<std::string> print(const std::vector<Change>& changes) {
  std::vector<std::string> out;
  for (const auto& change : changes) out.push_back(print(change));
  return out;
}
std::vector<std::string> names(const std::vector<Json>& objects) {
  std::vector<std::string> out;
  for (const auto& object : objects) out.push_back(key_of(object).text() + "@" + version_of(object));
  return out;
}

TEST(Cache, ReplaceTellsTheDifference) {
  Cache cache;
  EXPECT_THAT(print(cache.replace({test_object("n", "b", 2), test_object("n", "a", 1)})), ElementsAre("+n/a@1", "+n/b@2"));
  const auto changes = cache.replace({test_object("n", "b", 2), test_object("n", "c", 3), test_object("m", "a", 4)});
  EXPECT_THAT(print(changes), ElementsAre("+m/a@4", "+n/c@3", "-n/a"));
  EXPECT_EQ(version_of(*changes[2].before), "1");
  EXPECT_THAT(print(cache.replace({test_object("n", "b", 5)})), ElementsAre("~n/b@5", "-m/a", "-n/c"));
}

TEST(Cache, AppliesEventsAndIgnoresWhatIsNoNews) {
  Cache cache;
  EXPECT_EQ(print(*cache.apply({EventType::Added, test_object("n", "a", 1)})), "+n/a@1");
  EXPECT_EQ(cache.apply({EventType::Modified, test_object("n", "a", 1)}), std::nullopt);
  const auto change = cache.apply({EventType::Modified, test_object("n", "a", 2)});
  EXPECT_EQ(print(*change), "~n/a@2");
  EXPECT_EQ(version_of(*change->before), "1");
  EXPECT_EQ(cache.apply({EventType::Bookmark, test_object("", "", 9)}), std::nullopt);
  EXPECT_EQ(print(*cache.apply({EventType::Deleted, test_object("n", "a", 3)})), "-n/a");
  EXPECT_EQ(cache.apply({EventType::Deleted, test_object("n", "a", 3)}), std::nullopt);
  EXPECT_THAT(cache.list(""), IsEmpty());
}

// What an engine keeps: here a number that decodes to an object of that version.
AtRest kept(const std::shared_ptr<const int>& version) {
  return {version, [](const void* held) { return test_object("n", "a", *static_cast<const int*>(held)); }};
}

TEST(Cache, HoldsWhatTheEngineHoldsAndLetsItGo) {
  Cache cache;
  const auto first = std::make_shared<const int>(1), second = std::make_shared<const int>(2);
  cache.apply({EventType::Added, test_object("n", "a", 1), kept(first)});
  EXPECT_EQ(first.use_count(), 2) << "the cache holds the engine's own";
  EXPECT_EQ(version_of(*cache.get({"n", "a"})), "1");
  const auto change = cache.apply({EventType::Modified, test_object("n", "a", 2), kept(second)});
  EXPECT_EQ(version_of(*change->before), "1");
  EXPECT_EQ(first.use_count(), 1);
  std::vector<std::string> seen;
  cache.each("n", [&](const Json& object) { seen.push_back(version_of(object)); });
  EXPECT_THAT(seen, ElementsAre("2"));
  std::vector<std::string> told;
  cache.replace(Cache::Entries{}, [&](const Change& one) { told.push_back(print(one)); });
  EXPECT_THAT(told, ElementsAre("-n/a"));
  EXPECT_EQ(second.use_count(), 1);
}

TEST(AtRest, OfAnObjectIsThatObject) {
  const Json object = test_object("n", "a", 3);
  const AtRest at_rest = AtRest::of(object);
  EXPECT_TRUE(at_rest);
  EXPECT_EQ(at_rest.json(), object);
  EXPECT_FALSE(AtRest());
  EXPECT_TRUE(AtRest().json().is_null());
}

TEST(Cache, ReadsOneANamespaceOrAllByKey) {
  Cache cache;
  cache.replace({test_object("b", "x", 1), test_object("a", "z", 2), test_object("a", "y", 3), test_object("", "node", 4)});
  EXPECT_THAT(names(cache.list("")), ElementsAre("node@4", "a/y@3", "a/z@2", "b/x@1"));
  EXPECT_THAT(names(cache.list("a")), ElementsAre("a/y@3", "a/z@2"));
  EXPECT_THAT(cache.list("c"), IsEmpty());
  EXPECT_EQ(*cache.get({"a", "y"}), test_object("a", "y", 3));
  EXPECT_EQ(cache.get({"a", "x"}), std::nullopt);
}

// Collects what an informer tells.
class Told {
 public:
  Informer::OnChange listener() {
    return [this](const Change& change) {
      const std::lock_guard lock(mutex_);
      told_.push_back(print(change));
      changed_.notify_all();
    };
  }
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 20s, [&] { return told_.size() >= count; });
    return told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> told_;
};

TEST(Informer, ListsThenFollows) {
  ScriptedApi api;
  api.put(test_object("n", "a", 3), 5);
  Told told;
  const Informer informer(api, resources::pods, "", told.listener());
  EXPECT_THAT(told.wait(1), ElementsAre("+n/a@3"));
  api.event(EventType::Added, test_object("n", "b", 6));
  api.event(EventType::Modified, test_object("n", "a", 7));
  api.event(EventType::Deleted, test_object("n", "b", 8));
  EXPECT_THAT(told.wait(4), ElementsAre("+n/a@3", "+n/b@6", "~n/a@7", "-n/b"));
  EXPECT_TRUE(informer.synced());
  EXPECT_THAT(api.watched_from(), ElementsAre("5"));
  EXPECT_THAT(names(informer.cache().list("")), ElementsAre("n/a@7"));
}

TEST(Informer, ResumesFromTheLastVersionSeenAfterABreak) {
  ScriptedApi api;
  Told told;
  const Informer informer(api, resources::pods, "", told.listener());
  api.event(EventType::Added, test_object("n", "a", 6));
  api.event(EventType::Bookmark, test_object("", "", 9));
  api.break_watch(Code::Unavailable);
  api.event(EventType::Added, test_object("n", "b", 10));
  EXPECT_THAT(told.wait(2), ElementsAre("+n/a@6", "+n/b@10"));
  EXPECT_THAT(api.watched_from(), ElementsAre("1", "9"));
  EXPECT_EQ(api.lists(), 1);
}

TEST(Informer, ListsAgainWhenTheHistoryIsGoneAndTellsWhatWasMissed) {
  ScriptedApi api;
  api.put(test_object("n", "gone", 2), 2);
  api.put(test_object("n", "kept", 3), 3);
  Told told;
  const Informer informer(api, resources::pods, "", told.listener());
  told.wait(2);
  ASSERT_TRUE(api.wait_for_watch(1));
  api.drop({"n", "gone"}, 20);
  api.put(test_object("n", "new", 21), 21);
  api.break_watch(Code::Expired);
  EXPECT_THAT(told.wait(4), ElementsAre("+n/gone@2", "+n/kept@3", "+n/new@21", "-n/gone"));
  ASSERT_TRUE(api.wait_for_watch(2));
  EXPECT_THAT(api.watched_from(), ElementsAre("3", "21"));
}

TEST(Informer, KeepsTryingToList) {
  ScriptedApi api;
  api.put(test_object("n", "a", 2), 2);
  api.fail_next_list(Code::Unavailable);
  Told told;
  const Informer informer(api, resources::pods, "", told.listener());
  EXPECT_THAT(told.wait(1), ElementsAre("+n/a@2"));
  EXPECT_EQ(api.lists(), 2);
}

}  // namespace
}  // namespace fairlead::kube
