// SPDX-License-Identifier: Apache-2.0
// Notes alone; the lock itself is tried on a real Ceph (store_test.cpp).
#include "ceph/image_use.h"

#include <gtest/gtest.h>

#include "ceph/trashed.h"

namespace fairlead::ceph {
namespace {

TEST(Allowances, AreReadAsTheyAreWritten) {
  for (const char* text : {"h1 3", "read h1 3", "read h1 3 h2 5"}) {
    const auto read = read_allowance(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(print(*read), text);
  }
  for (const char* text : {"", "h1", "h1 0", "h1 -1", "h1 3 h2 5", "read", "read h1", "read h1 x", "h1 3x", " h1 3"}) EXPECT_FALSE(read_allowance(text)) << text;
  struct Row {
    const char *before, *host;
    std::int64_t generation;
    Use use;
    const char* after;
  };
  for (const Row& row : {Row{"", "h1", 3, Use::Reads, "read h1 3"}, Row{"read h1 3", "h2", 5, Use::Reads, "read h1 3 h2 5"}, Row{"read h1 3 h2 5", "h1", 7, Use::Reads, "read h1 7 h2 5"}, Row{"read h1 3 h2 5", "h1", 7, Use::Writes, "h1 7"}, Row{"h1 3", "h2", 5, Use::Reads, "read h2 5"}})
    EXPECT_EQ(print(with(read_allowance(row.before), row.host, row.generation, row.use)), row.after) << row.before;
  EXPECT_EQ(print(*without(read_allowance("read h1 3 h2 5"), 3)), "read h2 5");
  EXPECT_EQ(print(*without(read_allowance("read h1 3 h2 5"), 9)), "read h1 3 h2 5");
  for (const char* text : {"", "h1 3", "read h1 3"}) EXPECT_FALSE(without(read_allowance(text), 3)) << text;
}

TEST(Addresses, AreComparedWithoutTheirKind) {
  for (const char* text : {"10.0.0.1:0/77", "v1:10.0.0.1:0/77", "v2:10.0.0.1:0/77"}) EXPECT_EQ(plain_address(text), "10.0.0.1:0/77");
  EXPECT_EQ(plain_address("v2:[fd00::1]:0/77"), "[fd00::1]:0/77");
}

TEST(EngineNotes, AreOfTheVolumeAndNoOther) {
  const std::map<std::string, std::string> notes{{"engine.a", "h1 client.1 x"}, {"engine.a.3", "h2 client.2 y"}, {"engine.ab", "h3 client.3 z"}, {"engine.b.3", "h4 client.4 w"}, {"may.a", "read h1 3"}};
  EXPECT_EQ(engine_notes_of(notes, "a"), (std::vector<std::string>{"engine.a", "engine.a.3"}));
  EXPECT_EQ(engine_of(notes, "a")->host, "h1");
  EXPECT_EQ(reader_of(notes, "a", 3)->address, "y");
  EXPECT_FALSE(reader_of(notes, "a", 4));
  EXPECT_FALSE(reader_of(notes, "ab", 3));
}

TEST(Trash, SaysWhoseAndWhy) {
  const std::string value = std::string("\x02\x01\x18\0\0\0\x03\x03\0\0\0s-0", 14) + std::string(17, '\0');
  EXPECT_EQ(read_trashed(value), (Trashed{.name = "s-0", .source = 3}));
  for (std::size_t size = 0; size < 14; ++size) EXPECT_FALSE(read_trashed(value.substr(0, size))) << size;
}

}  // namespace
}  // namespace fairlead::ceph
