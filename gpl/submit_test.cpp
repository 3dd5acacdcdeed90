// SPDX-License-Identifier: GPL-3.0-or-later
#include "submit.h"

#include <gmock/gmock.h>

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Submission, TheKeyGoesIntoTheComment) {
  auto read = read_submission({"--key", "nightly-7", "-n", "4", "train.sh", "--epochs", "3"}, "own");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->limit_seconds, 120);
  EXPECT_THAT(read->sbatch, ElementsAre("--parsable", "--comment=submit-key=nightly-7", "-n", "4", "train.sh", "--epochs", "3"));
}
TEST(Submission, WithoutAKeyItHasOneOfItsOwn) {
  auto read = read_submission({"--for=5", "--comment=of mine", "--", "train.sh"}, "once-1");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->limit_seconds, 5);
  EXPECT_THAT(read->sbatch, ElementsAre("--parsable", "--comment=of mine submit-key=once-1", "train.sh"));
}
TEST(Submission, WhatIsWrongIsTold) {
  struct Row { std::vector<std::string> arguments; const char* want; };
  for (const Row& row : {Row{{"--key"}, "--key needs a value"}, Row{{"--key", "a b", "x"}, "not \"a b\""}, Row{{"--key", std::string(129, 'a'), "x"}, "1 to 128"}, Row{{"--for", "soon", "x"}, "not \"soon\""},
                         Row{{"--for", "0", "x"}, "1 to 86400"}, Row{{"--wrap=true", "--comment=mine"}, "before the options of sbatch"}, Row{{"--comme", "x", "y"}, "before the options of sbatch"}}) {
    auto read = read_submission(row.arguments, "own");
    ASSERT_FALSE(read) << row.want;
    EXPECT_THAT(read.error().message, HasSubstr(row.want));
  }
  EXPECT_TRUE(read_submission({"script", "--comment=of the script"}, "own")) << "an argument of the script";
}
TEST(Submission, WhatWasRefusedIsNotTriedAgain) {
  EXPECT_TRUE(may_try_again("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n"));
  EXPECT_TRUE(may_try_again("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"));
  EXPECT_TRUE(may_try_again("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n"));
  EXPECT_FALSE(may_try_again("sbatch: error: Batch job submission failed: Invalid partition name specified\n"));
  EXPECT_FALSE(may_try_again("sbatch: error: submit-key=a is that of job 7, which has another script, other arguments or another array\nsbatch: error: Batch job submission failed: Duplicate job id\n"));
  EXPECT_FALSE(may_try_again("sbatch: unrecognized option '--nods'\n"));
}

}  // namespace
}  // namespace fairlead::companion
