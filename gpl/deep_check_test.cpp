// SPDX-License-Identifier: GPL-3.0-or-later
#include "deep_check.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::HasSubstr;

struct DeepCheck : testing::Test {
  DeepCheck() {
    char name[] = "/tmp/fairlead-deep-XXXXXX";
    folder = ::mkdtemp(name);
    options.limit = std::chrono::seconds(3);
    options.folder = folder;
    options.most_disk = 4 << 20;
    options.most_memory = 8 << 20;
    options.last_word = folder + "/last";
  }
  ~DeepCheck() override { std::filesystem::remove_all(folder); }
  std::string word() const { return *read_file(options.last_word); }
  std::string folder;
  DeepCheckOptions options;
};

TEST_F(DeepCheck, AWellMachinePassesAndSaysWhatWasTried) {
  EXPECT_EQ(run_deep_check(options), 0);
  EXPECT_THAT(word(), testing::AllOf(HasSubstr("all the same"), HasSubstr("memory: 8 MiB"), HasSubstr("disk: 4 MiB written")));
  EXPECT_TRUE(std::filesystem::is_empty(folder) || !std::filesystem::exists(folder + "/.fairlead-deep-check"));
}

TEST_F(DeepCheck, OneWrongResultIsAFault) {
  options.flip_at = 5;
  EXPECT_EQ(run_deep_check(options), kFaultFound);
  EXPECT_THAT(word(), testing::AllOf(HasSubstr("processor"), HasSubstr("is right")));
}

TEST_F(DeepCheck, WhatCannotBeTriedIsNoFault) {
  options.folder = folder + "/nowhere";
  EXPECT_EQ(run_deep_check(options), 125);
  EXPECT_THAT(word(), HasSubstr("could not be made"));
}

TEST_F(DeepCheck, GpusAreCountedByNvidiaSmi) {
  EXPECT_EQ(count_gpus("GPU 0: NVIDIA H100 (UUID: GPU-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)\n  MIG 1g\n"), 2);
  EXPECT_EQ(count_gpus("No devices found.\n"), 0);
  const std::string before = ::getenv("PATH");
  const auto stand_in = [&](const std::string& name, const std::string& script) {
    std::ofstream(folder + "/" + name) << "#!/bin/sh\n" << script;
    ::chmod((folder + "/" + name).c_str(), 0755);
  };
  ::setenv("PATH", (folder + ":" + before).c_str(), 1);
  options.gpus = 2;
  stand_in("nvidia-smi", "echo 'GPU 0: x'\n");
  EXPECT_EQ(run_deep_check(options), kFaultFound);
  EXPECT_EQ(word(), "devices: 1 GPUs of 2");
  stand_in("nvidia-smi", "echo 'NVIDIA-SMI could not find libnvidia-ml.so'; exit 12\n");
  EXPECT_EQ(run_deep_check(options), 125) << "its library is missing: that says nothing of GPUs";
  stand_in("nvidia-smi", "echo 'No devices were found'; exit 6\n");
  EXPECT_EQ(run_deep_check(options), kFaultFound);
  stand_in("nvidia-smi", "echo 'GPU 0: x'; echo 'GPU 1: x'\n");
  stand_in("dcgmi", "echo '| GPU Memory                | Fail - GPU 1                                   |'; exit 1\n");
  EXPECT_EQ(run_deep_check(options), kFaultFound);
  stand_in("dcgmi", "echo 'no host engine'; exit 1\n");
  EXPECT_EQ(run_deep_check(options), 0);
  EXPECT_THAT(word(), HasSubstr("could not try them"));
  stand_in("nvidia-smi", "for i in $(seq 1 $FAIRLEAD_MOCK_GPUS); do echo \"GPU $i: Fairlead Mock GPU (UUID: x)\"; done\n");
  EXPECT_EQ(run_deep_check(options), 0);
  EXPECT_THAT(word(), HasSubstr("2 GPUs by its Node's word; nvidia-smi is a stand-in"));
  ::setenv("PATH", before.c_str(), 1);
  ::unsetenv("FAIRLEAD_MOCK_GPUS");
}

TEST(DeepCheckDcgm, OnlyTestsOfHardwareCount) {
  EXPECT_EQ(dcgm_fault("| PCIe                      | Fail - GPU 3                                   |\n"), "PCIe: Fail - GPU 3");
  EXPECT_EQ(dcgm_fault("| Permissions and OS Blocks | Fail                                           |\nError: Failed to connect\n| PCIe | Pass - All |\n"), "");
}

TEST(DeepCheckOptions, AreReadFromTheEnvironment) {
  EXPECT_EQ(deep_check_options({{"FAIRLEAD_CHECK_SECONDS", "90"}, {"FAIRLEAD_CHECK_GPUS", "8"}})->limit, std::chrono::seconds(90));
  EXPECT_FALSE(deep_check_options({{"FAIRLEAD_CHECK_SECONDS", "x"}}));
  EXPECT_FALSE(deep_check_options({{"FAIRLEAD_CHECK_GPUS", "-1"}}));
}

}  // namespace
}  // namespace fairlead::companion
