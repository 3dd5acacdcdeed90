// SPDX-License-Identifier: Apache-2.0
#include "placement/control/aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>

namespace fairlead::placement {
namespace {

using testing::ElementsAre;

TEST(Aside, HandsOverInOrderWhatCameMeanwhileAndDropsWhatDoesNotFit) {
  std::latch begun(1), go(1), over(2);
  std::vector<std::vector<int>> calls;
  bool first = true;
  Aside<int> aside(3, 2, [&](std::vector<int> some) {
    calls.push_back(std::move(some));
    if (std::exchange(first, false)) {
      begun.count_down();
      go.wait();
    } else {
      over.count_down();
    }
  });
  aside.add({0});
  begun.wait();
  aside.add({1});
  aside.add({2, 3, 4});  // three may wait
  EXPECT_EQ(aside.dropped(), 1u);
  go.count_down();
  over.wait();
  EXPECT_THAT(calls, ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
}

TEST(Aside, ItsEndWaitsForTheCallUnderWay) {
  std::latch begun(1), go(1);
  bool done = false;
  std::jthread later;
  {
    Aside<int> aside(10, 10, [&](const std::vector<int>&) {
      begun.count_down();
      go.wait();
      done = true;
    });
    aside.add({1});
    begun.wait();
    later = std::jthread([&] { go.count_down(); });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace fairlead::placement
