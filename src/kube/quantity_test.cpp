// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/rng.h"
#include "kube/selector.h"

namespace fairlead::kube {
namespace {

constexpr auto top = INT64_MAX;
constexpr auto bottom = INT64_MIN;

struct Row {
  const char* in;
  const char* text;
  std::int64_t value, milli;
};
// From resource.ParseQuantity of apimachinery 0.33.5, with the canonical text and, where int64 overflows there, saturated here.
TEST(Quantity, ReadsRoundsAndPrintsAsApimachinery) {
  for (const Row& row : std::vector<Row>{{"0", "0", 0, 0},
                                         {"1", "1", 1, 1000},
                                         {"-1", "-1", -1, -1000},
                                         {"+1", "1", 1, 1000},
                                         {"005", "5", 5, 5000},
                                         {"100m", "100m", 1, 100},
                                         {"0.5", "500m", 1, 500},
                                         {".5", "500m", 1, 500},
                                         {"5.", "5", 5, 5000},
                                         {"1.5", "1500m", 2, 1500},
                                         {"1.5Gi", "1536Mi", 1610612736, 1610612736000},
                                         {"0.5Ki", "512", 512, 512000},
                                         {"1Ki", "1Ki", 1024, 1024000},
                                         {"1023", "1023", 1023, 1023000},
                                         {"1024Ki", "1Mi", 1048576, 1048576000},
                                         {"1024", "1024", 1024, 1024000},
                                         {"1025Ki", "1025Ki", 1049600, 1049600000},
                                         {"1e3", "1e3", 1000, 1000000},
                                         {"1E3", "1e3", 1000, 1000000},
                                         {"1e+3", "1e3", 1000, 1000000},
                                         {"1E", "1E", 1000000000000000000, top},
                                         {"1e-3", "1e-3", 1, 1},
                                         {"100e-2", "1", 1, 1000},
                                         {"12e6", "12e6", 12000000, 12000000000},
                                         {"0Ki", "0", 0, 0},
                                         {"0e999999", "0", 0, 0},
                                         {"1000m", "1", 1, 1000},
                                         {"1000k", "1M", 1000000, 1000000000},
                                         {"1000000", "1M", 1000000, 1000000000},
                                         {"123456789n", "123456789n", 1, 124},
                                         {"1n", "1n", 1, 1},
                                         {"0.1n", "1n", 1, 1},
                                         {"-0.1n", "-1n", -1, -1},
                                         {"1u", "1u", 1, 1},
                                         {"8Ei", "9223372036854775807", top, top},
                                         {"7Ei", "7Ei", 8070450532247928832, top},
                                         {"-9Ei", "-9223372036854775807", -top, bottom},
                                         {"10E", "10E", top, top},
                                         {"9223372036854775808", "9223372036854775808", top, top},
                                         {"100000000000000000000", "100E", top, top},
                                         {"1e-400", "1e-9", 1, 1},
                                         {"1.500k", "1500", 1500, 1500000},
                                         {"0.000000001", "1n", 1, 1},
                                         {"1.0000000001", "1000000001n", 2, 1001},
                                         {"0.1Mi", "104857600m", 104858, 104857600},
                                         {"3.7Mi", "3879731200m", 3879732, 3879731200},
                                         {"0.1Ki", "102400m", 103, 102400},
                                         {"0.0001Ki", "102400u", 1, 103},
                                         {"1P", "1P", 1000000000000000, 1000000000000000000},
                                         {"-1.5Gi", "-1536Mi", -1610612736, -1610612736000},
                                         {"-100m", "-100m", -1, -100}}) {
    const auto quantity = Quantity::parse(row.in);
    ASSERT_TRUE(quantity) << row.in;
    EXPECT_EQ(quantity->text(), row.text) << row.in;
    EXPECT_EQ(quantity->value(), row.value) << row.in;
    EXPECT_EQ(quantity->milli_value(), row.milli) << row.in;
  }
}

TEST(Quantity, RefusesWhatIsNone) {
  for (const char* text : {"", ".", "+", "-", "Mi", "+.", "1.2.3", " 1", "1 ", "1Mi ", "0x1", "1e1.5", "1_000", "abc", "--1"}) {
    const auto parsed = Quantity::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'") << text;
  }
  for (const char* text : {"1K", "1ki", "1e", "1ee3", "12i", "1m0", "1Kim", "1e99999999999"}) {
    const auto parsed = Quantity::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().message, "unable to parse quantity's suffix") << text;
  }
  EXPECT_EQ(Quantity::parse("1e400").error().message, "quantity 1e400 is out of range");
}

TEST(Quantity, ReadsJsonNumbers) {
  EXPECT_EQ(Quantity::from_json(2)->text(), "2");
  EXPECT_EQ(Quantity::from_json(0.25)->text(), "250m");
  EXPECT_EQ(Quantity::from_json(1e21)->value(), top);
  EXPECT_EQ(Quantity::from_json("2Gi")->value(), 2147483648);
  EXPECT_FALSE(Quantity::from_json(true));
  EXPECT_FALSE(Quantity::from_json(nullptr));
}

TEST(Quantity, EqualsByValue) {
  EXPECT_EQ(*Quantity::parse("1Ki"), *Quantity::parse("1024"));
  EXPECT_EQ(*Quantity::parse("1"), *Quantity::parse("1000m"));
  EXPECT_FALSE(*Quantity::parse("1") == *Quantity::parse("2"));
}

TEST(QuantityProperty, CanonicalTextMeansTheSame) {
  static const std::vector<std::string> suffixes = {"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "e-5", "E7"};
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    std::string text = rng.below(3) == 0 ? "-" : "";
    text += std::to_string(rng.next() >> rng.below(64));
    if (rng.below(2)) text += "." + std::to_string(rng.next() >> rng.below(64));
    text += suffixes[rng.below(suffixes.size())];
    const auto quantity = Quantity::parse(text);
    if (!quantity) continue;  // out of range
    const auto again = Quantity::parse(quantity->text());
    ASSERT_TRUE(again) << text << " -> " << quantity->text();
    EXPECT_EQ(*again, *quantity) << text << " -> " << quantity->text();
    EXPECT_EQ(again->text(), quantity->text()) << text;
  }
}

}  // namespace
}  // namespace fairlead::kube
