// SPDX-License-Identifier: Apache-2.0
#include "apiserver/apply_fields.h"

#include <gtest/gtest.h>

#include "apiserver/registry_test_kit.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using test::json;

FieldSet set_of(std::string_view text) {
  auto parsed = FieldSet::parse(json(text));
  if (!parsed) ADD_FAILURE() << parsed.error().message;
  return parsed ? std::move(*parsed) : FieldSet();
}
std::string text_of(const FieldSet& set) {
  std::string out;
  set.append(out);
  return out;
}

struct Row {
  const char *name, *in, *out;
};
class FieldsText : public testing::TestWithParam<Row> {};
TEST_P(FieldsText, IsReadAndWrittenInOneOrder) { EXPECT_EQ(text_of(set_of(GetParam().in)), GetParam().out); }
INSTANTIATE_TEST_SUITE_P(
    Forms, FieldsText,
    testing::Values(Row{"empty", "{}", "{}"}, Row{"leaf", R"({"f:a":{}})", R"({"f:a":{}})"}, Row{"dot_alone_is_a_leaf", R"({"f:a":{".":{}}})", R"({"f:a":{}})"},
                    Row{"member_with_children", R"({"f:a":{"f:b":{},".":{}}})", R"({"f:a":{".":{},"f:b":{}}})"}, Row{"sorted", R"({"f:b":{},"f:a":{}})", R"({"f:a":{},"f:b":{}})"},
                    Row{"keys_in_one_form", R"({"k:{\"port\": 80, \"a\": 1}":{}})", R"({"k:{\"a\":1,\"port\":80}":{}})"},
                    Row{"keys_by_number", R"({"k:{\"port\":443}":{},"k:{\"port\":80}":{}})", R"({"k:{\"port\":80}":{},"k:{\"port\":443}":{}})"},
                    Row{"numbers_within_text_by_character", R"({"k:{\"name\":\"a9\"}":{},"k:{\"name\":\"a10\"}":{},"k:{\"name\":\"a1\"}":{}})", R"({"k:{\"name\":\"a1\"}":{},"k:{\"name\":\"a10\"}":{},"k:{\"name\":\"a9\"}":{}})"},
                    Row{"numbers_after_text_by_size", R"({"k:{\"a\":\"x\\\"\",\"port\":443}":{},"k:{\"a\":\"x\\\"\",\"port\":80}":{}})", R"({"k:{\"a\":\"x\\\"\",\"port\":80}":{},"k:{\"a\":\"x\\\"\",\"port\":443}":{}})"},
                    Row{"kinds_in_order", R"({"i:2":{},"v:\"x\"":{},"k:{\"n\":\"a\"}":{},"f:z":{}})", R"({"f:z":{},"k:{\"n\":\"a\"}":{},"v:\"x\"":{},"i:2":{}})"},
                    Row{"unknown_kinds_are_left_out", R"({"x:1":{},"f:a":{}})", R"({"f:a":{}})"}, Row{"twice_counts_once", R"({"v:1":{},"v:1 ":{"f:a":{}}})", R"({"v:1":{".":{},"f:a":{}}})"}),
    [](const auto& row) { return row.param.name; });

TEST(Fields, WhatIsMalformedIsRefused) {
  for (const char* text : {"[]", R"({"a":{}})", R"({"k:[]":{}})", R"({"v:":{}})", R"({"i:x":{}})", R"({"f:a":1})", R"({"":{}})", R"({"k:{":{}})"})
    EXPECT_FALSE(FieldSet::parse(json(text)).has_value()) << text;
  std::string deep = "{}";
  for (int i = 0; i < 140; ++i) deep = R"({"f:a":)" + deep + "}";
  EXPECT_FALSE(FieldSet::parse(json(deep)).has_value());
}

TEST(Fields, PathsReadAsKubernetesPrintsThem) {
  const FieldPath path{PathElement::field("spec"), PathElement::field("ports"), PathElement::key({{"protocol", "TCP"}, {"port", 80}}), PathElement::field("targetPort")};
  EXPECT_EQ(path_text(path), R"(.spec.ports[port=80,protocol="TCP"].targetPort)");
  EXPECT_EQ(path_text({PathElement::field("metadata"), PathElement::field("finalizers"), PathElement::value("a/b")}), R"(.metadata.finalizers[="a/b"])");
}

TEST(Fields, SetsAreAddedAndTakenAway) {
  const FieldSet a = set_of(R"({"f:m":{".":{},"f:x":{},"f:y":{}},"f:s":{}})"), b = set_of(R"({"f:m":{".":{},"f:y":{},"f:z":{}}})");
  EXPECT_EQ(text_of(a.united(b)), R"({"f:m":{".":{},"f:x":{},"f:y":{},"f:z":{}},"f:s":{}})");
  EXPECT_EQ(text_of(a.intersected(b)), R"({"f:m":{".":{},"f:y":{}}})");
  EXPECT_EQ(text_of(a.without(b)), R"({"f:m":{"f:x":{}},"f:s":{}})");
  EXPECT_EQ(text_of(a.without_trees(b)), R"({"f:s":{}})");
  EXPECT_EQ(a.size(), 4U);
  EXPECT_TRUE(a.has({PathElement::field("m"), PathElement::field("x")}));
  EXPECT_FALSE(a.has({PathElement::field("m"), PathElement::field("z")}));
}

FieldSet random_set(Rng& rng) {
  FieldSet out;
  for (int i = 0; i < 6; ++i) {
    FieldPath path;
    for (std::uint64_t depth = 1 + rng.below(3), at = 0; at < depth; ++at) {
      const auto which = static_cast<std::int64_t>(rng.below(3));
      if (rng.below(3) == 0) path.push_back(PathElement::key({{"k", which}}));
      else path.push_back(PathElement::field(std::string(1, static_cast<char>('a' + which))));
    }
    out.insert(path);
  }
  return out;
}

TEST(FieldsProperty, SetLawsHoldAndTextIsFaithful) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    const FieldSet a = random_set(rng), b = random_set(rng);
    EXPECT_EQ(set_of(text_of(a)), a) << "seed " << seed;
    EXPECT_EQ(a.united(b), b.united(a)) << "seed " << seed;
    EXPECT_EQ(a.without(b).united(a.intersected(b)), a) << "seed " << seed;
    EXPECT_TRUE(a.without(b).intersected(b).empty()) << "seed " << seed;
    EXPECT_EQ(a.united(b).size() + a.intersected(b).size(), a.size() + b.size()) << "seed " << seed;
    std::size_t count = 0;
    FieldSet again;
    a.each([&](const FieldPath& path) {
      again.insert(path);
      ++count;
    });
    EXPECT_EQ(again, a) << "seed " << seed;
    EXPECT_EQ(count, a.size());
  }
}

}  // namespace
}  // namespace fairlead::apiserver
