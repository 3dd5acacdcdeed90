// SPDX-License-Identifier: Apache-2.0
#include "kube/change_notifier.h"

#include <gmock/gmock.h>

#include <thread>

#include "kube/scripted_api.h"

namespace fairlead::kube {
namespace {

constexpr auto kLong = std::chrono::seconds(20);
constexpr auto kAtOnce = std::chrono::nanoseconds(0);

bool comes_true(const std::function<bool()>& what) {
  for (int n = 0; n < 2000 && !what(); ++n) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return what();
}

TEST(ChangeNotifier, WakesEachWhoWaitsForTheObjectAndNobodyElse) {
  ScriptedApi api;
  api.put(test_object("n", "a", 3), 5);
  ChangeNotifier notifier(api, {resources::pods});
  ASSERT_TRUE(comes_true([&] { return notifier.synced(); }));
  auto one = notifier.waiter(resources::pods, {"n", "a"}), two = notifier.waiter(resources::pods, {"n", "a"});
  auto other = notifier.waiter(resources::pods, {"n", "b"}), kind = notifier.waiter(resources::nodes, {"n", "a"});
  api.event(EventType::Modified, test_object("n", "a", 6));
  EXPECT_TRUE(one.wait(kLong));
  EXPECT_TRUE(two.wait(kLong));
  EXPECT_FALSE(one.wait(kAtOnce)) << "it was told of that change";
  EXPECT_FALSE(other.wait(kAtOnce));
  EXPECT_FALSE(kind.wait(kAtOnce));
}

TEST(ChangeNotifier, TellsOfWhatComesAndGoesAndOfAChangeBeforeTheWait) {
  ScriptedApi api;
  ChangeNotifier notifier(api, {resources::pods});
  auto waiter = notifier.waiter(resources::pods, {"n", "a"}), last = notifier.waiter(resources::pods, {"n", "z"});
  api.event(EventType::Added, test_object("n", "a", 6));
  EXPECT_TRUE(waiter.wait(kLong));
  api.event(EventType::Deleted, test_object("n", "a", 7));
  EXPECT_TRUE(waiter.wait(kLong));
  api.event(EventType::Added, test_object("n", "a", 8));
  api.event(EventType::Added, test_object("n", "z", 9));
  EXPECT_TRUE(last.wait(kLong));
  EXPECT_TRUE(waiter.wait(kAtOnce)) << "it changed before it was waited for";
  auto fresh = notifier.waiter(resources::pods, {"n", "a"});
  EXPECT_FALSE(fresh.wait(kAtOnce)) << "what was before it does not count";
}

TEST(ChangeNotifier, TellsWhatAGapInTheWatchHid) {
  ScriptedApi api;
  api.put(test_object("n", "a", 3), 5);
  ChangeNotifier notifier(api, {resources::pods});
  ASSERT_TRUE(api.wait_for_watch(1));
  auto waiter = notifier.waiter(resources::pods, {"n", "a"});
  api.put(test_object("n", "a", 8), 9);
  api.break_watch(Code::Expired);
  EXPECT_TRUE(waiter.wait(kLong));
}

TEST(ChangeNotifier, AWaiterOutlivesIt) {
  ScriptedApi api;
  auto notifier = std::make_unique<ChangeNotifier>(api, std::vector<Resource>{resources::pods});
  auto waiter = notifier->waiter(resources::pods, {"n", "a"});
  const auto moved = std::move(waiter);
  notifier.reset();
}

TEST(ChangeNotifier, WaitersComeAndGoWhileChangesAreTold) {
  ScriptedApi api;
  ChangeNotifier notifier(api, {resources::pods});
  ASSERT_TRUE(api.wait_for_watch(1));
  std::vector<std::jthread> threads;
  std::atomic<int> woken{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t](const std::stop_token& stop) {
      while (!stop.stop_requested()) woken += notifier.waiter(resources::pods, {"n", std::to_string(t % 2)}).wait(std::chrono::milliseconds(1)) ? 1 : 0;
    });
  int version = 10;
  EXPECT_TRUE(comes_true([&] {
    for (int n = 0; n < 20; ++n, ++version) api.event(EventType::Modified, test_object("n", std::to_string(version % 2), version));
    return woken > 50;
  }));
}

}  // namespace
}  // namespace fairlead::kube
