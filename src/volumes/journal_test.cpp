// SPDX-License-Identifier: Apache-2.0
#include "volumes/journal.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/rng.h"

namespace fairlead::volumes {
namespace {

using kube::Json;

TEST(Journal, RecordsAreReadAsTheyWereWritten) {
  const std::string bytes = frame_record("one") + frame_record("") + frame_record(std::string(100'000, 'x'));
  const auto read = read_records(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->texts.size(), 3u);
  EXPECT_EQ(read->texts[2].size(), 100'000u);
  EXPECT_EQ(read->good, bytes.size());
  EXPECT_TRUE(read_records("")->texts.empty());
}

// Wherever it is cut, what is whole is read, and what is not is left out.
TEST(Journal, ATornEndIsLeftOut) {
  const std::string first = frame_record("first"), second = frame_record("second"), bytes = first + second;
  for (std::size_t at = 0; at <= bytes.size(); ++at) {
    for (const std::string& tail : {std::string(), std::string(bytes.size() - at, '\0')}) {
      const auto read = read_records(bytes.substr(0, at) + tail);
      ASSERT_TRUE(read) << at;
      EXPECT_EQ(read->texts.size(), at < first.size() ? 0u : at < bytes.size() ? 1u : 2u) << at;
    }
  }
}

TEST(Journal, ABadRecordWithGoodOnesBehindItIsNotPassedOver) {
  const std::string first = frame_record("first"), bytes = first + frame_record("second") + frame_record("third");
  for (std::size_t at = first.size(); at < first.size() + 18; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    const auto read = read_records(damaged);
    ASSERT_FALSE(read) << at;
    EXPECT_EQ(read.error().code, Code::Internal);
    EXPECT_NE(read.error().message.find("damaged at byte 17"), std::string::npos) << read.error().message;
  }
}

struct JournalFiles : testing::Test {
  const std::string folder = testing::TempDir() + "fairlead-journal-" + random_uuid(), path = folder + "/journal";
  JournalFiles() { EXPECT_TRUE(make_dirs(folder)); }
  ~JournalFiles() override { (void)remove_tree(folder); }
};

TEST_F(JournalFiles, OneProcessHasItAndFindsWhatWasWritten) {
  std::vector<Json> records;
  {
    auto file = open_journal_file(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(open_journal_file(path).error().code, Code::Unavailable);
    auto journal = Journal::open(std::move(*file), records);
    ASSERT_TRUE(journal);
    EXPECT_TRUE(records.empty());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*journal)->append(Json::object({{"n", i}})));
  }
  ASSERT_TRUE(write_file_durably(path, *read_file(path) + "FVJ1torn", 0600));
  {
    auto journal = Journal::open(std::move(*open_journal_file(path)), records);
    ASSERT_TRUE(journal);
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[2]["n"].integer(), 2);
    ASSERT_TRUE((*journal)->replace({Json::object({{"n", 9}})}));
    ASSERT_TRUE((*journal)->append(Json::object({{"n", 10}})));
  }
  ASSERT_TRUE(Journal::open(std::move(*open_journal_file(path)), records));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1]["n"].integer(), 10);
}

}  // namespace
}  // namespace fairlead::volumes
