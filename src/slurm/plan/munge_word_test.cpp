// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/munge_word.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using testing::HasSubstr;

// As unmunge of munge 0.5.15 prints it.
std::string unmunge(const char* status, const char* encoded, const char* decoded) {
  return std::string("STATUS:           ") + status + "\nENCODE_HOST:      controller-0 (10.42.0.7)\nENCODE_TIME:      2026-11-23 00:41:07 +0000 (" + encoded + ")\nDECODE_TIME:      2026-11-23 00:49:07 +0000 (" + decoded +
         ")\nTTL:              300\nCIPHER:           aes128 (4)\nMAC:              sha256 (5)\nZIP:              none (0)\nUID:              root (0)\nGID:              root (0)\nLENGTH:           0\n\n";
}

struct Case {
  const char *name, *status, *encoded, *decoded, *words, *reason, *remedy;
};
class MungeWords : public testing::TestWithParam<Case> {};
TEST_P(MungeWords, BecomeAReasonWithARemedy) {
  const auto word = read_munge_word(unmunge(GetParam().status, GetParam().encoded, GetParam().decoded));
  ASSERT_TRUE(word);
  EXPECT_EQ(munge_words(*word), GetParam().words);
  const auto trouble = munge_trouble(*word);
  ASSERT_EQ(trouble.has_value(), *GetParam().reason != '\0');
  if (!trouble) return;
  EXPECT_STREQ(trouble->reason, GetParam().reason);
  EXPECT_THAT(trouble->remedy, HasSubstr(GetParam().remedy));
}
INSTANTIATE_TEST_SUITE_P(
    Rows, MungeWords,
    testing::Values(Case{"ahead", "Expired credential (15)", "1795394467", "1795394947", "munge there says of the head's credential: Expired credential (its clock is about 8 minutes ahead of the head's)", "ClocksApart", "chrony"},
                    Case{"behind", "Rewound credential (16)", "1795394947", "1795394467", "munge there says of the head's credential: Rewound credential (its clock is about 8 minutes behind the head's)", "ClocksApart", "chrony"},
                    Case{"taken", "Success (0)", "1795394467", "1795394467", "munge there says of the head's credential: Success", "", ""}),
    [](const auto& row) { return row.param.name; });

// unmunge has no status of what it cannot decode: it ends with 14 and this on its error output.
TEST(MungeWords, OfAKeyThatDiffersAreAnError) {
  for (const char* output : {"unmunge: Error: Invalid credential", "unmunge: Error: Invalid credential\n", "unmunge: Error: Invalid credential\nand more\n"}) {
    const auto word = read_munge_word(output);
    ASSERT_TRUE(word) << output;
    EXPECT_FALSE(word->ahead);
    EXPECT_EQ(munge_words(*word), "munge there says of the head's credential: Invalid credential");
    const auto trouble = munge_trouble(*word);
    ASSERT_TRUE(trouble);
    EXPECT_STREQ(trouble->reason, "KeyOrClock");
    EXPECT_THAT(trouble->remedy, HasSubstr("condition KeysMatch"));
  }
}

TEST(MungeWords, OfNobodyElseAreTaken) {
  EXPECT_FALSE(read_munge_word(""));
  EXPECT_FALSE(read_munge_word("STATUS: Everything is fine (0)\n"));
  EXPECT_FALSE(read_munge_word("unmunge: Error: "));
  EXPECT_FALSE(read_munge_word("unmunge: Error: Unable to access \"/run/munge/munge.socket.2\": No such file or directory\n"));
  EXPECT_FALSE(read_munge_word("\nSTATUS: Success (0)\n")) << "what the credential carries";
  EXPECT_FALSE(read_munge_word("STATUS: Success (0)\nENCODE_TIME: soon\nDECODE_TIME: (99999999999999999999999)\n")->ahead);
}

}  // namespace
}  // namespace fairlead::slurm
