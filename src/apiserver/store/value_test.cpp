// SPDX-License-Identifier: Apache-2.0
#include "apiserver/store/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apiserver/registry_bytes.h"
#include "apiserver/store/index.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using testing::ElementsAre;

// What stands between < and > is common.
void between_angles(std::string_view bytes, std::vector<std::string_view>& parts) {
  for (std::size_t at = 0; (at = bytes.find('<', at)) != std::string_view::npos;) {
    const std::size_t end = bytes.find('>', at);
    if (end == std::string_view::npos) return;
    parts.push_back(bytes.substr(at + 1, end - at - 1));
    at = end;
  }
}

std::string joined(const Value& value) {
  std::vector<std::string_view> pieces;
  value.pieces(pieces);
  std::string out;
  for (const std::string_view piece : pieces) out += piece;
  return out;
}

const std::string long_text(200, 'x'), other_text(300, 'y');

TEST(Value, IsWholeUntilItIsPackedAndTheSameBytesAfter) {
  ValuePool pool(between_angles);
  for (const std::string& bytes : {std::string(), std::string("short"), "<" + long_text + ">", "a<" + long_text + ">b<" + other_text + ">", "<" + long_text + "><" + long_text + ">", std::string("<short>")}) {
    const Value whole{bytes}, packed = pool.pack(whole);
    EXPECT_EQ(*packed.bytes(), bytes);
    EXPECT_EQ(joined(packed), bytes);
    EXPECT_EQ(packed.size(), bytes.size());
    EXPECT_TRUE(bytes.starts_with(packed.head()));
  }
  EXPECT_EQ(pool.size(), 2u);
  EXPECT_FALSE(pool.pack(Value()));
  EXPECT_EQ(Value().bytes(), nullptr);
  EXPECT_EQ(Value().size(), 0u);
}

TEST(Value, WhatIsCommonIsHeldOnce) {
  ValuePool pool(between_angles);
  const Value a = pool.pack(Value("a<" + long_text + ">")), b = pool.pack(Value("b<" + long_text + ">"));
  ASSERT_EQ(a.held()->inserts.size(), 1u);
  EXPECT_EQ(a.held()->inserts[0].text, b.held()->inserts[0].text);
  EXPECT_EQ(a.held()->own, "a<>");
  EXPECT_EQ(pool.pack(a).held(), a.held()) << "packed twice";
}

TEST(Value, AWholeOneIsReadWithoutACopy) {
  const Value whole("text");
  EXPECT_EQ(whole.bytes().get(), &whole.held()->own);
}

TEST(ValuePool, ForgetsWhatNobodyHolds) {
  ValuePool pool(between_angles);
  const Value kept = pool.pack(Value("<" + long_text + ">"));
  for (int i = 0; i < 10'000; ++i) pool.pack(Value("<" + std::to_string(i) + long_text + ">"));
  EXPECT_LE(pool.size(), 1'024u);
  EXPECT_EQ(pool.pack(Value("z<" + long_text + ">")).held()->inserts[0].text, kept.held()->inserts[0].text);
}

TEST(ValuePool, RandomValuesComeBackAsTheyWere) {
  Rng rng(7);
  ValuePool pool(between_angles);
  std::vector<std::pair<Value, std::string>> kept;
  for (int i = 0; i < 5'000; ++i) {
    std::string bytes;
    for (std::uint64_t parts = rng.below(4); parts > 0; --parts)
      bytes += std::string(rng.below(5), 'a') + "<" + std::string(120 + rng.below(20), static_cast<char>('b' + rng.below(20))) + ">";
    Value value = pool.pack(Value(bytes));
    if (kept.size() < 500) kept.emplace_back(std::move(value), std::move(bytes));
    else kept[rng.below(500)] = {std::move(value), std::move(bytes)};
  }
  for (const auto& [value, bytes] : kept) ASSERT_EQ(*value.bytes(), bytes);
}

TEST(Index, KeepsAndTellsPackedValuesAlsoOfOneBatch) {
  Index index({}, between_angles);
  std::vector<StoreEvent> told;
  const auto watch = index.watch("", 0, [&](const StoreEvent& event) { told.push_back(event); });
  const std::string first = "1<" + long_text + ">", second = "2<" + long_text + ">";
  index.publish({{.revision = 1, .key = "/a", .value = Value(first), .before = {}},
                 {.revision = 2, .key = "/a", .value = Value(second), .before = Value(first), .before_revision = 1}});
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(*told[1].before.bytes(), first);
  EXPECT_EQ(told[1].before.held(), told[0].value.held()) << "the history holds it twice";
  EXPECT_EQ(told[1].value.held(), index.current("/a").value.held());
  EXPECT_EQ(told[0].value.held()->inserts[0].text, told[1].value.held()->inserts[0].text);
}

TEST(CommonParts, AreTheFieldsThatManagersOwn) {
  const auto parts_of = [](std::string_view bytes) {
    std::vector<std::string_view> parts;
    common_parts(bytes, parts);
    return parts;
  };
  const std::string start = R"({"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"7")";
  EXPECT_THAT(parts_of(start + R"(,"managedFields":[{"manager":"a","fieldsV1":{"f:x":{"k:{\"name\":\"}\"}":{}}}},{"manager":"\"fieldsV1\":","time":"t","fieldsV1":{"f:y":{}},"subresource":"status"}],"name":"n"}})"),
              ElementsAre(R"({"f:x":{"k:{\"name\":\"}\"}":{}}})", R"({"f:y":{}})"));
  EXPECT_THAT(parts_of(start + R"(,"name":"fieldsV1","labels":{"fieldsV1":{}}}})"), ElementsAre());
  EXPECT_THAT(parts_of(start + R"(,"managedFields":[{"manager":"a","fieldsV1":{"f:x":)"), ElementsAre());
  EXPECT_THAT(parts_of(""), ElementsAre());
}

}  // namespace
}  // namespace fairlead::apiserver
