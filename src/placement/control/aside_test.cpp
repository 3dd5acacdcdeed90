// SPDX-License-Identifier: Apache-2.0
#include "placement/control/aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <vector>

namespace fairlead::placement {
namespace {

TEST(Aside, DoesItsWorkInOrderAndDropsWhatDoesNotFit) {
  std::latch begun(1), go(1), over(1);
  std::vector<int> done;
  Aside aside(2);
  aside.run([&] {
    begun.count_down();
    go.wait();
    done.push_back(0);
  });
  begun.wait();
  aside.run([&] { done.push_back(1); });
  aside.run([&] {
    done.push_back(2);
    over.count_down();
  });
  aside.run([&] { done.push_back(3); });
  EXPECT_EQ(aside.dropped(), 1u);
  go.count_down();
  over.wait();
  EXPECT_THAT(done, testing::ElementsAre(0, 1, 2));
}

TEST(Aside, SeveralThreadsWorkAtOnce) {
  std::latch together(3), over(3);
  Aside aside(10, 3);
  for (int i = 0; i < 3; ++i)
    aside.run([&] {
      together.arrive_and_wait();  // would never end with fewer threads
      over.count_down();
    });
  over.wait();
  EXPECT_EQ(aside.dropped(), 0u);
}

TEST(Aside, ItsEndWaitsForTheWorkUnderWay) {
  std::latch begun(1), go(1);
  bool done = false;
  std::jthread later;
  {
    Aside aside(10);
    aside.run([&] {
      begun.count_down();
      go.wait();
      done = true;
    });
    begun.wait();
    later = std::jthread([&] { go.count_down(); });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace fairlead::placement
