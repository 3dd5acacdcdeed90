// SPDX-License-Identifier: Apache-2.0
#include "cli/preflight.h"

#include <gmock/gmock.h>

#include <functional>

namespace fairlead::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

MachineFacts good_machine() {
  MachineFacts facts;
  facts.root = true;
  facts.os_id = "debian";
  facts.os_version = "12";
  facts.os_name = "Debian GNU/Linux 12 (bookworm)";
  facts.architecture = "x86_64";
  facts.disk_free_bytes = 20'000'000'000;
  facts.memory_bytes = 8'000'000'000;
  facts.cores = 2;
  return facts;
}

TEST(Preflight, AGoodMachineMayGoOn) { EXPECT_THAT(object_to(good_machine(), {}), IsEmpty()); }

TEST(Preflight, WhatCannotBeFoundOutIsNoReasonAgainst) {
  MachineFacts facts;
  facts.root = true;
  EXPECT_THAT(object_to(facts, {}), IsEmpty());
}

struct Case {
  const char* name;
  std::function<void(MachineFacts&, Needs&)> change;
  const char* want;    // of what is wrong
  const char* advice;  // of what to do
};
class PreflightObjection : public testing::TestWithParam<Case> {};
TEST_P(PreflightObjection, IsOneSentenceThatSaysWhatToDo) {
  MachineFacts facts = good_machine();
  Needs needs;
  GetParam().change(facts, needs);
  const auto objections = object_to(facts, needs);
  ASSERT_EQ(objections.size(), 1u);
  EXPECT_THAT(objections[0].what, HasSubstr(GetParam().want));
  EXPECT_THAT(objections[0].advice, HasSubstr(GetParam().advice));
  EXPECT_EQ(objections[0].sentence().find('\n'), std::string::npos);
}
INSTANTIATE_TEST_SUITE_P(
    Cli, PreflightObjection,
    testing::Values(Case{"not_root", [](auto& f, auto&) { f.root = false; }, "not root", "sudo"},
                    Case{"ubuntu_passes_as_debian_like_but_fedora_not", [](auto& f, auto&) { f.os_id = "fedora"; f.os_name = "Fedora Linux 40"; f.os_version = "40"; }, "Fedora Linux 40, not Debian 12", "tools/packages.txt"},
                    Case{"old_debian", [](auto& f, auto&) { f.os_version = "11"; }, "Debian 11", "Debian 12"},
                    Case{"odd_processor", [](auto& f, auto&) { f.architecture = "riscv64"; }, "riscv64", "x86_64"},
                    Case{"little_disk_for_image", [](auto& f, auto&) { f.disk_free_bytes = 2'000'000'000; }, "too little disk: 2.0 GB free", "--state-dir"},
                    Case{"little_disk_even_with_image", [](auto& f, auto& n) { f.disk_free_bytes = 100'000'000; n.image_present = true; }, "0.5 GB needed", "make room"},
                    Case{"little_memory", [](auto& f, auto&) { f.memory_bytes = 1'900'000'000; }, "1.9 GB in this machine", "larger machine"},
                    Case{"port", [](auto& f, auto&) { f.port_taken = true; f.port_holder = "nginx (process 12)"; }, "port 6443 is taken by nginx (process 12)", "--port"},
                    Case{"port_of_nobody_known", [](auto& f, auto& n) { f.port_taken = true; n.port = 7000; }, "port 7000 is taken", "--port"},
                    Case{"range", [](auto& f, auto&) { f.network_conflict = "the network 10.77.0.0/16 is in use here (wg0 leads to 10.0.0.0/8); choose another range with --node-range"; }, "wg0", "--node-range"},
                    Case{"foreign_folder", [](auto& f, auto&) { f.state_dir_is_foreign = true; }, "/var/lib/fairlead holds files", "--state-dir"},
                    Case{"read_only", [](auto& f, auto&) { f.state_dir_read_only = true; }, "cannot be written", "--state-dir"},
                    Case{"programs", [](auto& f, auto&) { f.missing_programs = {"crun", "conmon"}; }, "missing: crun, conmon", "apt-get install"},
                    Case{"kernel", [](auto& f, auto&) { f.missing_features = {"overlayfs"}; }, "overlayfs", "kernel"},
                    Case{"no_network", [](auto& f, auto&) { f.mirror_needed = true; f.mirror = "deb.debian.org"; }, "no network: deb.debian.org", "proxy"}),
    [](const auto& row) { return row.param.name; });

TEST(Preflight, AllReasonsAreToldInOrder) {
  MachineFacts facts = good_machine();
  facts.root = false;
  facts.memory_bytes = 1;
  facts.disk_free_bytes = 1;
  std::vector<std::string> what;
  for (const auto& one : object_to(facts, {})) what.push_back(one.what.substr(0, 12));
  EXPECT_THAT(what, ElementsAre("not root", "too little d", "too little m"));
}

TEST(Preflight, UpAloneDoesNotNeedDebian) {
  MachineFacts facts = good_machine();
  facts.os_id = "fedora";
  EXPECT_THAT(object_to(facts, {.debian = false}), IsEmpty());
}

}  // namespace
}  // namespace fairlead::cli
