// SPDX-License-Identifier: Apache-2.0
#include "kube/patch.h"

#include <gmock/gmock.h>

#include <fstream>

namespace fairlead::kube {
namespace {

using testing::HasSubstr;

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *std::move(parsed) : Json();
}

struct Row {
  const char *target, *patch, *result;
};

TEST(MergePatch, FollowsRfc7386) {
  for (const auto& [target, patch, result] : std::vector<Row>{{R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},  // the examples of its appendix
                                                              {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
                                                              {R"({"a":"b"})", R"({"a":null})", "{}"},
                                                              {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
                                                              {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
                                                              {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
                                                              {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
                                                              {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
                                                              {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
                                                              {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
                                                              {R"({"a":"foo"})", "null", "null"},
                                                              {R"({"a":"foo"})", R"("bar")", R"("bar")"},
                                                              {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
                                                              {"[1,2]", R"({"a":"b","c":null})", R"({"a":"b"})"},
                                                              {"{}", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
                                                              {R"({"a":1,"b":2,"c":3})", R"({"b":null,"d":4,"a":null})", R"({"c":3,"d":4})"}}) {
    EXPECT_EQ(print_json(merge_patch(json(target), json(patch))), result) << target << " " << patch;
  }
}

TEST(MergePatch, LargeMapsAgreeWithSmallOnes) {
  Json target = Json::object(), patch = Json::object();
  for (int i = 0; i < 5'000; ++i) target.members().emplace_back("k" + std::to_string(i), i);
  for (int i = 0; i < 10'000; i += 2) patch.members().emplace_back("k" + std::to_string(i), i % 4 == 0 ? Json() : Json("new"));
  const Json merged = merge_patch(target, patch);
  EXPECT_EQ(merged.members().size(), 5'000u - 1'250u + 1'250u);
  EXPECT_FALSE(merged.has("k4"));
  EXPECT_EQ(merged["k2"].string(), "new");
  EXPECT_EQ(merged["k3"].integer(), 3);
  EXPECT_EQ(merged["k9998"].string(), "new");
}

TEST(JsonPatch, DoesAllSixOperations) {
  for (const auto& [target, patch, result] : std::vector<Row>{
           {R"({"a":1})", R"([{"op":"add","path":"/b","value":2}])", R"({"a":1,"b":2})"},
           {R"({"a":1})", R"([{"op":"add","path":"/a","value":2}])", R"({"a":2})"},
           {R"({"a":[1,2]})", R"([{"op":"add","path":"/a/1","value":9}])", R"({"a":[1,9,2]})"},
           {R"({"a":[1,2]})", R"([{"op":"add","path":"/a/-","value":9}])", R"({"a":[1,2,9]})"},
           {R"({"a":[1,2]})", R"([{"op":"add","path":"/a/2","value":9}])", R"({"a":[1,2,9]})"},
           {R"({"a":1})", R"([{"op":"add","path":"","value":[7]}])", "[7]"},
           {R"({"a":1,"b":2})", R"([{"op":"remove","path":"/a"}])", R"({"b":2})"},
           {R"({"a":[1,2,3]})", R"([{"op":"remove","path":"/a/0"},{"op":"remove","path":"/a/1"}])", R"({"a":[2]})"},
           {R"({"a":{"b":[{"c":1}]}})", R"([{"op":"replace","path":"/a/b/0/c","value":null}])", R"({"a":{"b":[{"c":null}]}})"},
           {R"({"a":{"b":1},"c":{}})", R"([{"op":"move","from":"/a/b","path":"/c/d"}])", R"({"a":{},"c":{"d":1}})"},
           {R"({"a":[1,2,3]})", R"([{"op":"move","from":"/a/0","path":"/a/2"}])", R"({"a":[2,3,1]})"},
           {R"({"a":1})", R"([{"op":"move","from":"/a","path":"/a"}])", R"({"a":1})"},
           {R"({"a":{"b":1}})", R"([{"op":"copy","from":"/a","path":"/c"},{"op":"replace","path":"/c/b","value":2}])", R"({"a":{"b":1},"c":{"b":2}})"},
           {R"({"a/b":{"~m":1}})", R"([{"op":"test","path":"/a~1b/~0m","value":1.0},{"op":"replace","path":"/a~1b/~0m","value":2}])", R"({"a/b":{"~m":2}})"},
           {R"({"a":{"b":1}})", R"([{"op":"replace","path":"/a/c","value":2}])", R"({"a":{"b":1,"c":2}})"},
           {R"({"":{"":1}})", R"([{"op":"replace","path":"//","value":2}])", R"({"":{"":2}})"},
           {R"({"metadata":{"annotations":{"example.com/x":"1"}}})", R"([{"op":"remove","path":"/metadata/annotations/example.com~1x"}])", R"({"metadata":{"annotations":{}}})"},
           {"{}", "[]", "{}"}}) {
    const auto patched = json_patch(json(target), json(patch));
    ASSERT_TRUE(patched) << patch << ": " << patched.error().message;
    EXPECT_EQ(print_json(*patched), result) << patch;
  }
}

TEST(JsonPatch, RefusesWhatDoesNotFit) {
  struct Wrong {
    const char* patch;
    Code code;
    const char* message;
  };
  const Json target = json(R"({"a":{"b":[1,2]},"s":"text"})");
  for (const auto& [patch, code, message] : std::vector<Wrong>{
           {"{}", Code::Invalid, "a JSON patch must be an array of operations"},
           {"[1]", Code::Invalid, "not an object"},
           {R"([{"op":"test","path":"/a/b/0","value":2}])", Code::Conflict, "operation 0 (test): testing value /a/b/0 failed"},
           {R"([{"op":"test","path":"/x","value":2}])", Code::Invalid, "there is no /x"},
           {R"([{"op":"add","path":"/x/y","value":2}])", Code::Invalid, "operation 0 (add): there is no /x"},
           {R"([{"op":"add","path":"/a/b/3","value":2}])", Code::Invalid, "there is no /a/b/3"},
           {R"([{"op":"add","path":"/a/b/01","value":2}])", Code::Invalid, "there is no"},
           {R"([{"op":"add","path":"/a/b/x","value":2}])", Code::Invalid, "there is no"},
           {R"([{"op":"add","path":"/s/x","value":2}])", Code::Invalid, "there is no"},
           {R"([{"op":"replace","path":"/a/b/-","value":2}])", Code::Invalid, "there is no"},
           {R"([{"op":"remove","path":"/a/b/2"}])", Code::Invalid, "there is no"},
           {R"([{"op":"add","path":"/x"}])", Code::Invalid, "needs a value"},
           {R"([{"op":"add","path":"x","value":1}])", Code::Invalid, "must start with /"},
           {R"([{"op":"add","path":"/~2","value":1}])", Code::Invalid, "neither ~0 nor ~1"},
           {R"([{"op":"add","value":1}])", Code::Invalid, "\"path\" must be a string"},
           {R"([{"op":"move","path":"/a/c","from":"/a"}])", Code::Invalid, "cannot move into itself"},
           {R"([{"op":"copy","path":"/c"}])", Code::Invalid, "\"from\" must be a string"},
           {R"([{"op":"frobnicate","path":"/a"}])", Code::Invalid, "unknown operation \"frobnicate\""}}) {
    const auto patched = json_patch(target, json(patch));
    ASSERT_FALSE(patched) << patch;
    EXPECT_EQ(patched.error().code, code) << patch;
    EXPECT_THAT(patched.error().message, HasSubstr(message)) << patch;
  }
}

TEST(JsonPatch, CannotBeMadeToExplode) {
  Json doubling = Json::array(), nesting = Json::array(), many = Json::array();
  for (int i = 0; i < 64; ++i) doubling.push(json(R"({"op":"copy","from":"/a","path":"/a/-"})"));
  for (int i = 0; i < 64; ++i) nesting.push(json(R"({"op":"copy","from":"/n","path":"/n/0"})"));
  for (int i = 0; i < 10'001; ++i) many.push(json(R"({"op":"test","path":"/a/0","value":1})"));
  EXPECT_EQ(json_patch(json(R"({"a":[1]})"), doubling).error().code, Code::Exhausted);
  EXPECT_THAT(json_patch(json(R"({"n":[[[[[[[[1]]]]]]]]})"), many).error().message, HasSubstr("at most"));
  const auto nested = json_patch(json(R"({"n":[1]})"), json(R"([{"op":"copy","from":"/n","path":"/n/0"},{"op":"copy","from":"/n","path":"/n/0"}])"));
  ASSERT_TRUE(nested);
  std::string deep = R"({"n":)" + std::string(200, '[') + "1" + std::string(200, ']') + "}";
  std::string path = "/n";
  for (int i = 0; i < 199; ++i) path += "/0";
  EXPECT_THAT(json_patch(json(deep), Json::array({Json::object({{"op", "copy"}, {"from", "/n"}, {"path", path + "/0"}})})).error().message, HasSubstr("nested deeper"));
  EXPECT_EQ(json_patch(json(R"({"n":[1]})"), nesting).error().code, Code::Exhausted);
}

const Type* pod() { return TypeTable::builtin().find_kind("v1", "Pod"); }

std::string strategic(std::string_view target, std::string_view patch, const Type* type = pod()) {
  const auto merged = strategic_merge(json(target), json(patch), TypeTable::builtin(), type);
  return merged ? print_json(*merged) : "error: " + merged.error().message;
}

TEST(StrategicMerge, MergesListsByKey) {
  EXPECT_EQ(strategic(R"({"spec":{"containers":[{"name":"a","image":"1","env":[{"name":"X","value":"1"}]},{"name":"b","image":"1"}]}})",
                      R"({"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"a","image":"2","$setElementOrder/env":[{"name":"Y"},{"name":"X"}],
                          "env":[{"name":"Y","value":"2"}]}]}})"),
            R"({"spec":{"containers":[{"name":"a","image":"2","env":[{"name":"Y","value":"2"},{"name":"X","value":"1"}]},{"name":"b","image":"1"}]}})");
}

TEST(StrategicMerge, MergesPortsByTheirNumber) {
  EXPECT_EQ(strategic(R"({"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"http"},{"containerPort":443}]}]}})",
                      R"({"spec":{"containers":[{"name":"a","ports":[{"containerPort":443,"name":"https"},{"containerPort":80,"$patch":"delete"}]}]}})"),
            R"({"spec":{"containers":[{"name":"a","ports":[{"containerPort":443,"name":"https"}]}]}})");
}

TEST(StrategicMerge, DeletesReplacesAndReorders) {
  const char* three = R"({"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}})";
  EXPECT_EQ(strategic(three, R"({"spec":{"containers":[{"name":"b","$patch":"delete"},{"name":"absent","$patch":"delete"}]}})"), R"({"spec":{"containers":[{"name":"a"},{"name":"c"}]}})");
  EXPECT_EQ(strategic(three, R"({"spec":{"containers":[{"name":"z"},{"$patch":"replace"}]}})"), R"({"spec":{"containers":[{"name":"z"}]}})");
  EXPECT_EQ(strategic(three, R"({"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}]}})"), R"({"spec":{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}})");
  EXPECT_EQ(strategic(three, R"({"spec":{"containers":[{"name":"new"}]}})"), R"({"spec":{"containers":[{"name":"new"},{"name":"a"},{"name":"b"},{"name":"c"}]}})");
  EXPECT_EQ(strategic(R"({"spec":{"nodeSelector":{"a":"1"}}})", R"({"spec":{"nodeSelector":{"$patch":"replace","b":"2"}}})"), R"({"spec":{"nodeSelector":{"b":"2"}}})");
  EXPECT_EQ(strategic(R"({"spec":{"nodeSelector":{"a":"1"}}})", R"({"spec":{"nodeSelector":{"$patch":"delete"}}})"), R"({"spec":{"nodeSelector":{}}})");
  EXPECT_EQ(strategic(R"({"spec":{"nodeSelector":{"a":"1"}}})", R"({"spec":{"nodeSelector":{"a":null,"b":"2"}}})"), R"({"spec":{"nodeSelector":{"b":"2"}}})");
}

TEST(StrategicMerge, RetainsOnlyNamedKeys) {
  EXPECT_EQ(strategic(R"({"spec":{"volumes":[{"name":"v","emptyDir":{}}]}})",
                      R"({"spec":{"$setElementOrder/volumes":[{"name":"v"}],"volumes":[{"$retainKeys":["name","hostPath"],"name":"v","hostPath":{"path":"/p"}}]}})"),
            R"({"spec":{"volumes":[{"name":"v","hostPath":{"path":"/p"}}]}})");
  EXPECT_EQ(strategic(R"({"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}})", R"({"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}})",
                      TypeTable::builtin().find_kind("apps/v1", "Deployment")),
            R"({"spec":{"strategy":{"type":"Recreate"}}})");
  EXPECT_THAT(strategic(R"({"spec":{"volumes":[{"name":"v"}]}})", R"({"spec":{"volumes":[{"$retainKeys":["name"],"name":"v","hostPath":{}}]}})"), HasSubstr("superset"));
}

TEST(StrategicMerge, TreatsPrimitiveListsAsSets) {
  const char* two = R"({"metadata":{"finalizers":["a","b"]}})";
  EXPECT_EQ(strategic(two, R"({"metadata":{"$setElementOrder/finalizers":["b","c"],"finalizers":["c"]}})"), R"({"metadata":{"finalizers":["a","b","c"]}})");
  EXPECT_EQ(strategic(two, R"({"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"$setElementOrder/finalizers":["b"]}})"), R"({"metadata":{"finalizers":["b"]}})");
  EXPECT_EQ(strategic(two, R"({"metadata":{"finalizers":null}})"), R"({"metadata":{}})");
  EXPECT_EQ(strategic(R"({"metadata":{}})", R"({"metadata":{"$setElementOrder/finalizers":["a"],"finalizers":["a"],"$deleteFromPrimitiveList/finalizers":["x"]}})"),
            R"({"metadata":{"finalizers":["a"]}})");
}

TEST(StrategicMerge, ReplacesAtomicAndUnknownLists) {
  EXPECT_EQ(strategic(R"({"spec":{"tolerations":[{"key":"a"}],"unknown":[{"name":"x"}]}})", R"({"spec":{"tolerations":[{"key":"b"}],"unknown":[{"name":"y","z":null}]}})"),
            R"({"spec":{"tolerations":[{"key":"b"}],"unknown":[{"name":"y"}]}})");
  EXPECT_EQ(strategic(R"({"a":{"b":1}})", R"({"a":{"c":2,"b":null},"l":[{"$patch":"delete","name":"x"}]})", nullptr), R"({"a":{"c":2},"l":[]})");
}

TEST(StrategicMerge, TaintAndCordonAsKubectlSends) {
  const Type* node = TypeTable::builtin().find_kind("v1", "Node");
  EXPECT_EQ(strategic(R"({"metadata":{"name":"n"},"spec":{}})", R"({"spec":{"unschedulable":true,"taints":[{"effect":"NoSchedule","key":"k","value":"v"}]}})", node),
            R"({"metadata":{"name":"n"},"spec":{"unschedulable":true,"taints":[{"effect":"NoSchedule","key":"k","value":"v"}]}})");
  EXPECT_EQ(strategic(R"({"spec":{"unschedulable":true}})", R"({"spec":{"unschedulable":null}})", node), R"({"spec":{}})");
}

TEST(StrategicMerge, SaysWhatIsWrong) {
  const char* target = R"({"spec":{"containers":[{"name":"a"}]}})";
  EXPECT_EQ(strategic(target, "[]"), "error: a strategic merge patch must be an object");
  EXPECT_THAT(strategic(target, R"({"spec":{"containers":[{"image":"x"}]}})"), HasSubstr("does not contain declared merge key: name"));
  EXPECT_THAT(strategic(target, R"({"spec":{"containers":["a"]}})"), HasSubstr("is not an object"));
  EXPECT_THAT(strategic(target, R"({"spec":{"containers":[{"$patch":"delete"}]}})"), HasSubstr("no merge key"));
  EXPECT_THAT(strategic(target, R"({"spec":{"containers":[{"name":"a","$patch":"odd"}]}})"), HasSubstr("unknown patch type"));
  EXPECT_THAT(strategic(target, R"({"spec":{"$patch":"odd"}})"), HasSubstr("unknown patch type"));
  EXPECT_THAT(strategic(target, R"({"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"a"}]}})"), HasSubstr("doesn't match"));
  EXPECT_THAT(strategic(target, R"({"spec":{"$retainKeys":1}})"), HasSubstr("must be a list"));
  EXPECT_THAT(strategic(R"({"metadata":{"finalizers":["a"]}})", R"({"metadata":{"$deleteFromPrimitiveList/finalizers":1}})"), HasSubstr("must be a list"));
}

// Cases by tools/typetable/patches: patches as kubectl makes them, results as apimachinery has them.
TEST(StrategicMerge, AgreesWithApimachinery) {
  std::ifstream file(SOURCE_DIR "/src/kube/testdata/strategic_patches.jsonl");
  int cases = 0, wrong = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json row = json(line);
    const auto merged = strategic_merge(row["target"], row["patch"], TypeTable::builtin(), TypeTable::builtin().find(row["type"].string()));
    if (row.has("error")) continue;  // its errors are partly accidents of Go's types; the useful ones are in the test above
    ASSERT_TRUE(merged) << merged.error().message << "\n" << line;
    if (*merged == row["result"]) continue;
    if (++wrong < 4) ADD_FAILURE() << "case " << cases << "\ntarget " << print_json(row["target"]) << "\npatch  " << print_json(row["patch"]) << "\nours   " << print_json(*merged) << "\nwant   " << print_json(row["result"]);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cases, 400);
}

}  // namespace
}  // namespace fairlead::kube
