// SPDX-License-Identifier: GPL-3.0-or-later
#include "id_mark.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"

namespace fairlead::companion {
namespace {

struct IdMark : testing::Test {
  void SetUp() override {
    char name[] = "/tmp/fairlead-ids-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    state = name;
  }
  void TearDown() override { (void)remove_tree(state); }
  // A saved state as Slurm's header has it.
  void save(const std::string& name, std::uint32_t next) {
    std::string bytes("\0\0\0\x11PROTOCOL_VERSION\0\x26\0\0\0\0\0\x65\x01\x02\x03", 31);
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(next >> shift & 0xff);
    ASSERT_TRUE(write_file_atomically(state + "/" + name, bytes + std::string(100, 'j'), 0600));
  }
  std::uint32_t prepare(IdRange range = {}) {
    auto next = prepare_ids(state, range, ::getuid(), ::getgid());
    EXPECT_TRUE(next) << (next ? "" : next.error().message);
    return next.value_or(0);
  }
  std::uint32_t mark() { return read_id_mark(state).value_or(std::nullopt).value_or(0); }
  std::string state;
};

TEST_F(IdMark, ANewStateBeginsAtTheFirstId) {
  EXPECT_EQ(prepare({.first = 1000}), 1000u);
  EXPECT_EQ(mark(), 1000u);
}
TEST_F(IdMark, WhatWasSavedIsTheMarkWhereThereWasNone) {
  save("job_state", 77);
  EXPECT_EQ(prepare(), 77u);
  EXPECT_EQ(mark(), 77u);
}
TEST_F(IdMark, AnOlderStateIsRaisedToTheMark) {
  save("job_state", 77);
  save("job_state.old", 70);
  ASSERT_TRUE(write_id_mark(state, 1100, ::getuid(), ::getgid()));
  EXPECT_EQ(prepare(), 1100u);
  EXPECT_EQ(id_in_state(state), 1100u);
  ::unlink((state + "/job_state").c_str());
  EXPECT_EQ(id_in_state(state), 1100u) << "the other one, too";
}
TEST_F(IdMark, ANewerStateRaisesTheMark) {
  save("job_state", 5000);
  ASSERT_TRUE(write_id_mark(state, 1100, ::getuid(), ::getgid()));
  EXPECT_EQ(prepare(), 5000u);
  EXPECT_EQ(mark(), 5000u);
}
TEST_F(IdMark, WhereTheRangeBeganAnewTheLowerOneIsAhead) {
  const IdRange range{.first = 10, .end = 10'010};
  save("job_state", 10'000);
  ASSERT_TRUE(write_id_mark(state, 110, ::getuid(), ::getgid()));
  EXPECT_EQ(prepare(range), 110u);
  EXPECT_EQ(id_in_state(state), 110u);
}
TEST_F(IdMark, RaisingNeverLowers) {
  ASSERT_TRUE(raise_id_mark(state, 500, ::getuid(), ::getgid()));
  ASSERT_TRUE(raise_id_mark(state, 400, ::getuid(), ::getgid()));
  EXPECT_EQ(mark(), 500u);
  ASSERT_TRUE(raise_id_mark(state, 600, ::getuid(), ::getgid()));
  EXPECT_EQ(mark(), 600u);
}
TEST_F(IdMark, ADamagedMarkIsRefused) {
  ASSERT_TRUE(write_id_mark(state, 500, ::getuid(), ::getgid()));
  std::string text = *read_file(state + "/fairlead-ids");
  for (const std::string& damaged : {text.substr(0, 40), std::string(), std::string(64, '\0'), "x" + text.substr(1), text.substr(0, 26) + '9' + text.substr(27)}) {
    ASSERT_TRUE(write_file_atomically(state + "/fairlead-ids", damaged, 0644));
    EXPECT_FALSE(read_id_mark(state)) << damaged;
    EXPECT_FALSE(prepare_ids(state, {}, ::getuid(), ::getgid()));
  }
}
TEST_F(IdMark, AStateThatIsNotUnderstoodIsLeftAlone) {
  ASSERT_TRUE(write_file_atomically(state + "/job_state", "something else, but long enough to hold a header of a state", 0600));
  ASSERT_TRUE(write_id_mark(state, 500, ::getuid(), ::getgid()));
  EXPECT_EQ(prepare(), 500u);
  EXPECT_EQ(*read_file(state + "/job_state"), "something else, but long enough to hold a header of a state");
}
TEST_F(IdMark, TheRangeIsThatOfTheConfiguration) {
  EXPECT_EQ(id_range("ClusterName=c\n"), (IdRange{}));
  EXPECT_EQ(id_range("FirstJobId=500\n maxjobid = 90000 # few\n"), (IdRange{.first = 500, .end = 90'000}));
  EXPECT_EQ(id_range("FirstJobId=nine\nMaxJobId=99999999999\n"), (IdRange{}));
  EXPECT_EQ(id_range("FirstJobId=500\nMaxJobId=400\n"), (IdRange{})) << "Slurm refuses it";
}
TEST_F(IdMark, WhatADaemonCameToIsLeftForTheNext) {
  ASSERT_TRUE(write_file_atomically(state + "/slurm.conf", "ClusterName=c\n", 0644));
  IdKeeper keeper(state, state + "/slurm.conf");
  std::map<std::string, std::string> environment;
  ASSERT_TRUE(keeper.before_start(state, environment));
  EXPECT_EQ(environment["FAIRLEAD_STATE"], state);
  // The daemon: the mark a block ahead, the page behind what it gave.
  ASSERT_TRUE(write_id_mark(state, 1001, ::getuid(), ::getgid()));
  std::string page = *read_file(environment["FAIRLEAD_ID_PAGE"]);
  ASSERT_GE(page.size(), 12u);
  FILE* file = ::fopen(environment["FAIRLEAD_ID_PAGE"].c_str(), "r+");
  ASSERT_NE(file, nullptr);
  const std::uint32_t next = 42;
  ::fseek(file, 8, SEEK_SET);
  ::fwrite(&next, sizeof next, 1, file);
  ::fclose(file);
  keeper.after_end(state);
  EXPECT_EQ(mark(), 42u);
  ASSERT_TRUE(keeper.before_start(state, environment));
  ASSERT_TRUE(write_id_mark(state, 1042, ::getuid(), ::getgid()));
  keeper.after_end(state);
  EXPECT_EQ(mark(), 42u) << "it gave no id";
}

}  // namespace
}  // namespace fairlead::companion
