// SPDX-License-Identifier: Apache-2.0
#include "kube/json.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace fairlead::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error().message);
  return parsed ? *std::move(parsed) : Json();
}

struct Text {
  const char* name;
  std::string in, out;
};
class JsonText : public testing::TestWithParam<Text> {};
TEST_P(JsonText, PrintsCompactly) {
  EXPECT_EQ(print_json(json(GetParam().in)), GetParam().out);
  EXPECT_EQ(json(GetParam().out), json(GetParam().in));
}
INSTANTIATE_TEST_SUITE_P(
    Values, JsonText,
    testing::Values(Text{"null", " null ", "null"}, Text{"bools", "[true, false]", "[true,false]"}, Text{"order_kept", R"({"b":1,"a":{"d":[],"c":{}}})", R"({"b":1,"a":{"d":[],"c":{}}})"},
                    Text{"int_limits", "[9223372036854775807,-9223372036854775808]", "[9223372036854775807,-9223372036854775808]"},
                    Text{"beyond_int64", "9223372036854775808", "9223372036854775808"}, Text{"beyond_uint64", "[36893488147419103232]", "[36893488147419103232]"},
                    Text{"beside_a_big_integer_the_others_stay", "[36893488147419103232,5555555555555555555,-9223372036854775808,-9223372036854775809,9223372036854775807]", "[36893488147419103232,5555555555555555555,-9223372036854775808,-9223372036854775808,9223372036854775807]"},
                    Text{"big_integer_in_string_stays", R"(["36893488147419103232\"1",36893488147419103232])", R"(["36893488147419103232\"1",36893488147419103232])"},
                    Text{"doubles_shortest", "[0.1,1.5e300,1e-7,2.50]", "[0.1,1.5e+300,1e-07,2.5]"}, Text{"integral_double", "1.0", "1"},
                    Text{"escapes", R"("a\"b\\c\/\n\r\t\b\u0001<>&\u00e9")", "\"a\\\"b\\\\c/\\n\\r\\t\\u0008\\u0001<>&\xC3\xA9\""}, Text{"surrogate_pair", R"("\ud83d\ude00")", "\"\xF0\x9F\x98\x80\""},
                    Text{"last_duplicate_counts", R"({"a":1,"b":2,"a":3})", R"({"a":3,"b":2})"}),
    [](const auto& row) { return row.param.name; });

TEST(JsonText, RefusesWhatRfc8259DoesNotAllow) {
  for (const std::string text : {"", " ", "{", "[1,]", "{\"a\":1,}", "'a'", "{a:1}", "01", "+1", ".5", "1.", "nul", "NaN", "1 2", "\"a\nb\"", "\"\\x\"", "\"\\ud800\"", "\"\\udc00\"", "\"\xff\"",
                                 "\xEF\xBB\xBF{}x", "[1]//c", "1e999", "123456789012345678901x"}) {
    const auto parsed = parse_json(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::Invalid);
    EXPECT_THAT(parsed.error().message, HasSubstr("invalid JSON"));
  }
}

TEST(JsonText, NothingAtAllIsRefusedToo) {
  EXPECT_FALSE(parse_json(std::string_view()));  // its pointer is null: no library may copy from there
  EXPECT_FALSE(parse_json(""));
}

TEST(JsonText, StopsAtTheDepthLimit) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(250)));
  EXPECT_FALSE(parse_json(nested(300)));
  EXPECT_FALSE(parse_json(nested(1'000'000)));
  EXPECT_FALSE(parse_json(nested(20), {.depth_limit = 10}));
  EXPECT_TRUE(parse_json(nested(250))) << "a lower limit does not stay";
}

TEST(JsonText, TellsWhereMembersOccurTwice) {
  std::vector<std::string> duplicates;
  const auto parsed = parse_json(R"({"spec":{"containers":[{"image":"a","image":"b"},{"env":[{"name":1,"name":2}]}]},"spec2":{},"spec":3})", {.duplicates = &duplicates});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(duplicates, ElementsAre("spec.containers[0].image", "spec.containers[1].env[0].name", "spec"));
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"k" + std::to_string(i) + "\":0,";
  duplicates.clear();
  ASSERT_TRUE(parse_json(large + R"("k7":1})", {.duplicates = &duplicates}));
  EXPECT_THAT(duplicates, ElementsAre("k7"));
}

TEST(JsonText, WritesInvalidUtf8AsReplacement) {
  EXPECT_EQ(print_json(Json(std::string("a\xff"))), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(print_json(Json(std::string("\xED\xA0\x80"))), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(print_json(Json(std::string("\xE2\x82"))), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(print_json(Json(std::string("\xE2\x82\xAC"))), "\"\xE2\x82\xAC\"");
  EXPECT_EQ(print_json(Json(std::nan(""))), "null");
}

TEST(JsonText, IndentsForPeople) {
  EXPECT_EQ(print_json_indented(json(R"({"a":[1,{"b":[]}],"c":{}})")), "{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ],\n  \"c\": {}\n}");
}

TEST(Json, ReadsNeverFail) {
  const Json pod = json(R"({"spec":{"nodeName":"n1","replicas":3,"half":0.5,"on":true,"list":[1]}})");
  EXPECT_EQ(pod["spec"]["nodeName"].string(), "n1");
  EXPECT_EQ(pod.at("spec.nodeName").string(), "n1");
  EXPECT_TRUE(pod["spec"]["nodeName"]["deeper"]["still"].is_null());
  EXPECT_EQ(pod["spec"]["replicas"].string(), "");
  EXPECT_EQ(pod["spec"]["nodeName"].integer(7), 7);
  EXPECT_EQ(pod["spec"]["half"].integer(7), 7);
  EXPECT_EQ(Json(3.0).integer(7), 3);
  EXPECT_EQ(Json(1e30).integer(7), 7);
  EXPECT_EQ(pod["spec"]["replicas"].number(), 3.0);
  EXPECT_TRUE(pod["spec"]["on"].boolean());
  EXPECT_TRUE(pod["nothing"].boolean(true));
  EXPECT_TRUE(pod["spec"]["nodeName"].items().empty());
  EXPECT_TRUE(pod["spec"]["list"].members().empty());
  EXPECT_EQ(pod["x"].string_or("y"), "y");
  EXPECT_EQ(pod.find("metadata"), nullptr);
  EXPECT_NE(json(R"({"a":null})").find("a"), nullptr);
}

TEST(Json, WritesMakeObjectsOnTheWay) {
  Json pod;
  pod.child("metadata").child("labels").set("a", "b");
  pod.child("spec").child("containers").push(Json::object({{"name", "c"}}));
  pod.set("kind", "Pod").set("kind", "Node");
  EXPECT_EQ(print_json(pod), R"({"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]},"kind":"Node"})");
  EXPECT_TRUE(pod.child("metadata").erase("labels"));
  EXPECT_FALSE(pod.erase("labels"));
  EXPECT_FALSE(Json("text").erase("a"));
  EXPECT_DEATH(pod.child("kind").set("x", 1), "invariant");
}

TEST(Json, EqualityIgnoresMemberOrderAndNumberKind) {
  EXPECT_EQ(json(R"({"a":1,"b":[1,2],"c":{"x":1,"y":2}})"), json(R"({"c":{"y":2,"x":1.0},"a":1.0,"b":[1,2]})"));
  EXPECT_NE(json("[1,2]"), json("[2,1]"));
  EXPECT_NE(json(R"({"a":1})"), json(R"({"a":1,"b":null})"));
  EXPECT_NE(json(R"({"a":1,"b":2})"), json(R"({"a":1,"c":2})"));
  EXPECT_NE(Json(std::numeric_limits<std::int64_t>::max()), Json(9223372036854775808.0));
  EXPECT_NE(Json(0), Json(false));
  EXPECT_NE(Json("1"), Json(1));
}

TEST(Json, MovesAreSafeWithinOneTree) {
  Json tree = json(R"({"a":{"b":{"c":1}}})");
  tree = std::move(tree.child("a").child("b"));
  EXPECT_EQ(print_json(tree), R"({"c":1})");
  Json copy = json(R"({"a":{"b":2}})");
  copy = copy["a"];
  EXPECT_EQ(print_json(copy), R"({"b":2})");
  Json from = json("{}");
  const Json to = std::move(from);
  EXPECT_TRUE(from.is_null());  // NOLINT: that a moved-from value is null is the promise
  EXPECT_TRUE(to.is_object());
}

}  // namespace
}  // namespace fairlead::kube
