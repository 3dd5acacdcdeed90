// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "kube/controller.h"

namespace fairlead::kube {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::Le;
using Time = WorkQueue::Time;

const ObjectKey a{"x", "a"}, b{"x", "b"}, c{"x", "c"};
Result<Next> nothing() { return Next{}; }
Result<Next> again(Time after) { return Next{after}; }
Result<Next> failed(Code code) { return fail(code, "because"); }

TEST(WorkQueue, GivesTheEarliestDueFirstThenTheFirstAdded) {
  WorkQueue queue(Rng(1));
  queue.add(c, 0s, 5s);
  queue.add(b, 0s, 2s);
  queue.add(a, 0s, 2s);
  EXPECT_EQ(queue.next_due(), 2s);
  EXPECT_EQ(queue.take(1s), std::nullopt);
  EXPECT_EQ(queue.take(9s), b);
  EXPECT_EQ(queue.take(9s), a);
  EXPECT_EQ(queue.take(9s), c);
  EXPECT_EQ(queue.take(9s), std::nullopt);
  EXPECT_EQ(queue.next_due(), std::nullopt);
}

TEST(WorkQueue, AnEarlierDueTimeWins) {
  WorkQueue queue(Rng(1));
  queue.add(a, 0s, 10s);
  queue.add(a, 0s, 20s);
  EXPECT_EQ(queue.next_due(), 10s);
  queue.add(a, 1s);
  EXPECT_EQ(queue.next_due(), 1s);
  EXPECT_EQ(queue.size(), 1U);
}

TEST(WorkQueue, AChangeWhileOutMakesItDueAgain) {
  WorkQueue queue(Rng(1));
  queue.add(a, 0s);
  EXPECT_EQ(queue.take(0s), a);
  queue.add(a, 1s);
  EXPECT_EQ(queue.take(1s), std::nullopt);
  queue.done(a, 2s, nothing());
  EXPECT_EQ(queue.take(2s), a);
  queue.done(a, 2s, nothing());
  EXPECT_EQ(queue.size(), 0U);
}

TEST(WorkQueue, AChangeWhileOutDoesNotWaitForTheBackOff) {
  WorkQueue queue(Rng(1));
  queue.add(a, 0s);
  for (int i = 0; i < 10; ++i) {
    queue.take(1h * i);
    queue.done(a, 1h * i, failed(Code::Unavailable));
  }
  queue.take(100h);
  queue.add(a, 100h);
  queue.done(a, 100h, failed(Code::Unavailable));
  EXPECT_EQ(queue.next_due(), 100h);
  EXPECT_EQ(queue.failures(a), 11);
}

TEST(WorkQueue, ComesBackWhenTheControllerAsks) {
  WorkQueue queue(Rng(1));
  queue.add(a, 0s);
  queue.take(0s);
  queue.done(a, 1s, again(30s));
  EXPECT_EQ(queue.next_due(), 31s);
  queue.add(a, 2s, 1h);  // a later wish does not move it
  EXPECT_EQ(queue.next_due(), 31s);
}

TEST(WorkQueue, ConflictsReturnAtOnceAndAreNoFailures) {
  WorkQueue queue(Rng(1));
  queue.add(a, 0s);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(queue.take(1s * i), a);
    queue.done(a, 1s * i, failed(Code::Conflict));
    EXPECT_EQ(queue.next_due(), 1s * i + 5ms);
    EXPECT_EQ(queue.failures(a), 0);
  }
}

TEST(WorkQueue, FailuresBackOffDoublingToAMinuteWithJitter) {
  std::set<Time> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    WorkQueue queue((Rng(seed)));
    queue.add(a, 0s);
    Time now = 0s;
    for (int i = 0; i < 40; ++i) {
      ASSERT_EQ(queue.take(now), a);
      queue.done(a, now, failed(Code::Internal));
      const Time want = i < 14 ? std::min<Time>(5ms * (1 << i), 60s) : 60s;
      EXPECT_THAT(*queue.next_due() - now, AllOf(Ge(want), Le(want + want / 5))) << "failure " << i;
      EXPECT_EQ(queue.failures(a), i + 1);
      now = *queue.next_due();
    }
    seen.insert(now);
    queue.take(now);
    queue.done(a, now, nothing());
    EXPECT_EQ(queue.failures(a), 0);
  }
  EXPECT_EQ(seen.size(), 20U);  // the jitter differs
}

TEST(WorkQueueProperty, AKeyIsNeverOutTwiceAndNoChangeIsLost) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    WorkQueue queue((Rng(seed)));
    std::map<ObjectKey, int> owed;  // changes that no later take has covered
    std::set<ObjectKey> out;
    Time now = 0s;
    for (int step = 0; step < 300; ++step) {
      now += Time(rng.below(20'000'000));
      const ObjectKey key{"n", std::string(1, static_cast<char>('a' + rng.below(5)))};
      switch (rng.below(3)) {
        case 0:
          queue.add(key, now);
          ++owed[key];
          break;
        case 1:
          if (const auto taken = queue.take(now)) {
            EXPECT_TRUE(out.insert(*taken).second) << "seed " << seed;
            owed[*taken] = 0;
          }
          break;
        default:
          if (!out.empty()) {
            const ObjectKey back = *out.begin();
            out.erase(out.begin());
            queue.done(back, now, rng.below(2) == 0 ? nothing() : failed(Code::Unavailable));
          }
      }
    }
    for (const auto& key : out) queue.done(key, now, nothing());
    while (const auto key = queue.take(now + 1h)) {
      owed[*key] = 0;
      queue.done(*key, now + 1h, nothing());
    }
    for (const auto& [key, count] : owed) EXPECT_EQ(count, 0) << "seed " << seed << " " << key.text();
    EXPECT_EQ(queue.size(), 0U);
  }
}

TEST(Keys, OfTheObjectAndOfItsOwner) {
  const auto owned = [](const char* owner) {
    return Json::object({{"metadata", Json::object({{"name", "p"},
                                                    {"namespace", "n"},
                                                    {"ownerReferences", Json::array({Json::object({{"kind", "Job"}, {"name", owner}, {"controller", true}})})}})}});
  };
  EXPECT_THAT(key_itself({.before = owned("j")}), testing::ElementsAre(ObjectKey{"n", "p"}));
  EXPECT_THAT(key_of_owner("Job")({.before = owned("j"), .after = owned("j")}), testing::ElementsAre(ObjectKey{"n", "j"}));
  EXPECT_THAT(key_of_owner("Job")({.before = owned("j"), .after = owned("k")}), testing::ElementsAre(ObjectKey{"n", "j"}, ObjectKey{"n", "k"}));
  EXPECT_THAT(key_of_owner("Deployment")({.after = owned("j")}), testing::IsEmpty());
}

}  // namespace
}  // namespace fairlead::kube
