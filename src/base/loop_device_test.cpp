// SPDX-License-Identifier: Apache-2.0
#include "base/loop_device.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"

namespace fairlead {
namespace {

using namespace std::chrono_literals;

struct LoopDevice : testing::Test {
  LoopDevice() {
    char folder[] = "/var/tmp/fairlead-loop-XXXXXX";
    top = ::mkdtemp(folder);
  }
  ~LoopDevice() override {
    for (; !shown.empty(); shown.pop_back()) EXPECT_TRUE(run_checked({.argv = {"losetup", "--detach", shown.back()}}, 10s));
    EXPECT_TRUE(remove_tree(top));
  }
  void SetUp() override {
    if (::geteuid() != 0 || !exists("/dev/loop-control")) GTEST_SKIP() << "needs root and loop devices";
  }
  void show(const std::string& name, const std::string& sector = "512") {
    ASSERT_TRUE(write_file_atomically(top + "/" + name, "", 0600));
    ASSERT_EQ(::truncate((top + "/" + name).c_str(), 64 << 20), 0);
    show_over(top + "/" + name, sector);
  }
  void show_over(const std::string& file, const std::string& sector = "512") {
    auto device = run_checked({.argv = {"losetup", "--find", "--show", "--sector-size", sector, file}}, 10s);
    ASSERT_TRUE(device) << device.error().message;
    shown.emplace_back(trim(*device));
  }
  std::string dio() const { return std::string(trim(*read_file("/sys/block/" + shown.back().substr(5) + "/loop/dio", 64_KiB))); }
  std::string top;
  std::vector<std::string> shown;
};

TEST_F(LoopDevice, PassesThePageCacheOnceAsked) {
  show("file");
  EXPECT_EQ(dio(), "0");
  EXPECT_EQ(*loop_past_cache(shown.back()), true);
  EXPECT_EQ(dio(), "1");
  EXPECT_EQ(*loop_past_cache(shown.back()), true) << "again is nothing";
  EXPECT_EQ(dio(), "1");
}

TEST_F(LoopDevice, GoesOnAsItWasWhereItsFileCannot) {
  // Its sectors are smaller than those of what its file lies on.
  show("disk", "4096");
  show_over(shown.back());
  EXPECT_EQ(*loop_past_cache(shown.back()), false);
  EXPECT_EQ(dio(), "0");
}

TEST_F(LoopDevice, IsTold) {
  EXPECT_FALSE(loop_past_cache("/dev/null"));
  EXPECT_FALSE(loop_past_cache(top + "/none"));
}

}  // namespace
}  // namespace fairlead
