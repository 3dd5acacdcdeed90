// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "base/rng.h"
#include "kube/json.h"
#include "kube/yaml_tags.h"

namespace fairlead::kube {
namespace {

using testing::HasSubstr;

std::string as_json(std::string_view yaml) {
  const auto parsed = parse_yaml(yaml);
  if (!parsed) return "error: " + parsed.error().message;
  std::string out;
  for (const Json& document : *parsed) out += (out.empty() ? "" : "|") + print_json(document);
  return out;
}

struct Scalar {
  const char* yaml;
  const char* json;
};
// Expected values: what sigs.k8s.io/yaml 1.4.0 (goyaml.v2) makes of `v: <yaml>`.
TEST(Yaml, ResolvesScalarsAsGoyamlDoes) {
  for (const auto& [yaml, want] : std::vector<Scalar>{
           {"yes", "true"},        {"On", "true"},         {"y", "true"},         {"n", "false"},         {"off", "false"},     {"NO", "false"},      {"yEs", R"("yEs")"},
           {"True", "true"},       {"tRue", R"("tRue")"},  {"~", "null"},         {"Null", "null"},       {"", "null"},         {"nULL", R"("nULL")"}, {"'yes'", R"("yes")"},
           {"\"1\"", R"("1")"},    {"12", "12"},           {"+12", "12"},         {"-12", "-12"},         {"0x1F", "31"},       {"-0x1f", "-31"},     {"0755", "493"},
           {"0o17", "15"},         {"0b101", "5"},         {"1_000", "1000"},     {"08", "8"},            {"1e3", "1000"},      {"1.5", "1.5"},       {".5", "0.5"},
           {"5.", "5"},            {"1.5.2", R"("1.5.2")"}, {"1:20", R"("1:20")"}, {"2020-01-02", R"("2020-01-02")"}, {"2020-01-02T03:04:05Z", R"("2020-01-02T03:04:05Z")"},
           {"100m", R"("100m")"},  {"2Gi", R"("2Gi")"},    {"0x", R"("0x")"},     {"9223372036854775807", "9223372036854775807"},
           {"18446744073709551615", "18446744073709551616"}, {"1e400", R"("1e400")"}, {"!!str 12", R"("12")"}, {"!!int \"12\"", "12"}, {"!!float 3", "3"},
           {"!!binary aGk=", R"("hi")"}, {"!mine 12", R"("12")"}, {".inf", "error"},  {"-.inf", "error"},     {".nan", "error"},    {"!!int x", "error"}, {"!!binary '*'", "error"},
           {"NaN", R"("NaN")"},    {"[a, 1, yes]", R"(["a",1,true])"}, {"{a: 1}", R"({"a":1})"}}) {
    const std::string got = as_json(std::string("v: ") + yaml + "\n");
    if (std::string_view(want) == "error") {
      EXPECT_THAT(got, HasSubstr("error: line 1")) << yaml;
    } else {
      EXPECT_EQ(got, std::string(R"({"v":)") + want + "}") << yaml;
    }
  }
}

TEST(Yaml, ReadsDocumentsAndSkipsEmptyOnes) {
  EXPECT_EQ(as_json("a: 1\n---\n# only a comment\n---\nb: 2\n---\n"), R"({"a":1}|{"b":2})");
  EXPECT_EQ(as_json(""), "");
  EXPECT_EQ(as_json("# nothing\n"), "");
  EXPECT_EQ(as_json("---\n---\n"), "");
  EXPECT_EQ(as_json("%YAML 1.1\n---\nk\xC3\xA9y: [a  , b ]\n...\n---\nb\n"), "{\"k\xC3\xA9y\":[\"a\",\"b\"]}|\"b\"");
  EXPECT_EQ(as_json("{\"json\": [1, \"two\"]}"), R"({"json":[1,"two"]})");
  EXPECT_EQ(as_json("\xEF\xBB\xBF" "a: 1"), R"({"a":1})");
  EXPECT_EQ(as_json("a: 1\r\nb: 2\r\n"), R"({"a":1,"b":2})");
}

TEST(Yaml, ReadsBlocksKeysAnchorsAndMerges) {
  EXPECT_EQ(as_json("a: |\n  x\n    y\n\n  z\nb: >-\n  one\n  two\n"), R"({"a":"x\n  y\n\nz\n","b":"one two"})");
  EXPECT_EQ(as_json("\"\\N\\_\\x85\\u00e9\\N\"\n"), "\"\xC2\x85\xC2\xA0\xC2\x85\xC3\xA9\xC2\x85\"");
  EXPECT_EQ(as_json("1: a\ntrue: b\n1.5: c\n? d\n: e\n"), R"({"1":"a","true":"b","1.5":"c","d":"e"})");
  EXPECT_EQ(as_json("a: &x {k: [1]}\nb: *x\n"), R"({"a":{"k":[1]},"b":{"k":[1]}})");
  EXPECT_EQ(as_json("base: &b {x: 1, z: 2}\nmore: {<<: *b, z: 3}\nlist: {<<: [{z: 1}, {z: 2, w: 3}]}\n"), R"({"base":{"x":1,"z":2},"more":{"z":3,"x":1},"list":{"z":1,"w":3}})");
}

TEST(Yaml, SaysWhereItIsWrong) {
  EXPECT_THAT(as_json("a: 1\nb: [1, 2\nc: 3\n"), HasSubstr("error: line "));
  EXPECT_EQ(as_json("a: 1\nb: 2\na: 3\n"), "error: line 3, column 4: key \"a\" occurs twice in one map");
  EXPECT_THAT(as_json("a: *x\n"), HasSubstr("line 1"));
  EXPECT_THAT(as_json("a: &x [*x]\n"), HasSubstr("error"));
  EXPECT_THAT(as_json("? [1]\n: 2\n"), HasSubstr("cannot be a key"));
  EXPECT_THAT(as_json("null: 1\n"), HasSubstr("cannot be a key"));
  EXPECT_THAT(as_json("<<: 1\n"), HasSubstr("<< wants"));
  EXPECT_THAT(as_json("a: \xff\n"), HasSubstr("not UTF-8"));
  EXPECT_THAT(as_json(std::string("a: b\nc: \0", 9)), HasSubstr("line 2"));
  EXPECT_THAT(as_json(std::string(1000, '[') + std::string(1000, ']')), HasSubstr("error"));
  EXPECT_THAT(as_json("a: b\n\tc: d\n"), HasSubstr("error: line"));
  EXPECT_THAT(as_json(", 0x1f ,s"), HasSubstr("this does not belong here"));
  EXPECT_EQ(as_json("[1]\n[2]\n"), "error: line 2, column 1: this does not belong here");
  EXPECT_EQ(as_json("a: |\nb: c\nd\n"), "error: line 3, column 1: no ':' after \"d\"");
  EXPECT_EQ(as_json("a: 1\nfoo\n"), "error: line 2, column 1: no ':' after \"foo\"");
  EXPECT_EQ(as_json("a:\nb: {c, d: 1}\n? e\nf:\n"), R"({"a":null,"b":{"c":null,"d":1},"e":null,"f":null})");
}

TEST(Yaml, RefusesDocumentsThatExplode) {
  std::string bomb = "a0: &a0 [" + std::string(1000, '1') + "]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j ? ", " : "") + before;
    bomb += "]\n";
  }
  EXPECT_THAT(as_json(bomb), HasSubstr("expand"));
}

TEST(Yaml, PrintsBlockStyle) {
  const auto pod = parse_json(R"({"kind":"Pod","metadata":{"name":"x","labels":{},"annotations":{"a":"yes"}},"spec":{"containers":[{"name":"c","image":"reg:5000/a:b","args":["-v","1",""]}],
    "volumes":[],"m":3,"f":1.5,"script":"#!/bin/sh\necho hi\n","nested":[[1,2],[]]}})");
  ASSERT_TRUE(pod);
  EXPECT_EQ(print_yaml(*pod), R"(kind: Pod
metadata:
  name: x
  labels: {}
  annotations:
    a: "yes"
spec:
  containers:
  - name: c
    image: reg:5000/a:b
    args:
    - "-v"
    - "1"
    - ""
  volumes: []
  m: 3
  f: 1.5
  script: |
    #!/bin/sh
    echo hi
  nested:
  - - 1
    - 2
  - []
)");
}

std::string awkward_text(Rng& rng) {
  static const std::vector<std::string> pieces = {"a", "B", "0", "1", "-", ":", " ", "#", "\n", "\t", "'", "\"", "\\", "|", ">", "&", "*", "!", "%", "@", "`", "{", "}", "[", "]", ",", "?", "~", ".", "_", "=", "yes",
                                                  "null", "0x1", "1e3", "2020-01-01", "\r", "\x01", "\x7f", "\xC2\x85", "\xE2\x80\xA8", "\xEF\xBB\xBF", "\xC3\xA9", "\xF0\x9F\x98\x80", "---", "...", ": ", " #", "\n\n", "  "};
  std::string text;
  for (auto n = rng.below(6); n > 0; --n) text += pieces[rng.below(pieces.size())];
  return text;
}

Json random_json(Rng& rng, int depth) {
  switch (rng.below(depth > 0 ? 9 : 7)) {
    case 0: return nullptr;
    case 1: return rng.below(2) == 0;
    case 2: return static_cast<std::int64_t>(rng.next());
    case 3: return static_cast<double>(static_cast<std::int64_t>(rng.next())) / 1024.0;
    case 7: {
      Json array = Json::array();
      for (auto n = rng.below(4); n > 0; --n) array.push(random_json(rng, depth - 1));
      return array;
    }
    case 8: {
      Json object = Json::object();
      for (auto n = rng.below(4); n > 0; --n) object.set(rng.below(20) == 0 ? std::string(2000, 'k') : awkward_text(rng), random_json(rng, depth - 1));
      return object;
    }
    default: return awkward_text(rng);
  }
}

TEST(Yaml, TagsOfItsOwnAreMadeOfByWhoAsks) {
  const auto named = [](std::string_view tag, Json value) -> Result<Json> {
    if (tag == "!Bad") return fail(Code::Invalid, "no such tag");
    return Json::object({{std::string(tag.substr(1)), std::move(value)}});
  };
  const auto read = parse_tagged_yaml("a: !Ref x\nb: !Join ['', [!Ref y, 2]]\nc: !Map {k: !Ref z}\nd: ! \"plain\"\ne: !!str 5\nf: !Ref 5", named);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(print_json(read->front()), R"({"a":{"Ref":"x"},"b":{"Join":["",[{"Ref":"y"},2]]},"c":{"Map":{"k":{"Ref":"z"}}},"d":"plain","e":"5","f":{"Ref":"5"}})");
  EXPECT_EQ(print_json(parse_yaml("a: !Ref x")->front()), R"({"a":"x"})");
  EXPECT_EQ(parse_tagged_yaml("a:\n  b: !Bad x", named).error().message, "line 2, column 6: no such tag");
  EXPECT_FALSE(parse_tagged_yaml("!Ref a: b", named));
}

TEST(YamlProperty, WhatItPrintsItReadsBack) {
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    const Json value = random_json(rng, 4);
    if (value.is_null()) continue;
    const std::string text = print_yaml(value);
    const auto read = parse_yaml(text);
    ASSERT_TRUE(read) << "seed " << seed << ": " << read.error().message << "\n" << text;
    ASSERT_EQ(read->size(), 1u) << "seed " << seed << "\n" << text;
    ASSERT_EQ(read->front(), value) << "seed " << seed << "\n" << text << "\n" << print_json(value) << "\n" << print_json(read->front());
    const auto json = parse_json(print_json(value));
    ASSERT_TRUE(json && *json == value) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::kube
