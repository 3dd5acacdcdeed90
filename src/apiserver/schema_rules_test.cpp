// SPDX-License-Identifier: Apache-2.0
// What kube-apiserver 1.33 said to the same definition and the same objects.
#include <gmock/gmock.h>

#include "apiserver/schema.h"
#include "base/files.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << text;
  return parsed->at(0);
}

const std::shared_ptr<const Schema>& ship() {
  static const std::shared_ptr<const Schema> schema = [] {
    FieldErrors errors;
    const auto text = read_file(std::string(SOURCE_DIR) + "/tests/data/definition-rules.yaml");
    EXPECT_TRUE(text);
    auto out = Schema::compile(yaml(*text)["spec"]["versions"].items().at(0)["schema"]["openAPIV3Schema"], "", errors);
    EXPECT_THAT(errors.texts(), IsEmpty());
    return out;
  }();
  return schema;
}
std::vector<std::string> said(const std::string& spec, const std::string& old = "", const std::string& name = "a") {
  const auto object = [&](const std::string& of) { return yaml("{metadata: {name: " + name + "}, spec: " + of + "}"); };
  const Json next = object(spec), before = old.empty() ? Json() : object(old);
  FieldErrors errors;
  ship()->validate(next, errors, old.empty() ? nullptr : &before);
  return errors.texts();
}

TEST(SchemaRules, ComplainAsKubernetesDoes) {
  EXPECT_THAT(said("{crew: 5}"), IsEmpty());
  EXPECT_THAT(said("{crew: 1}", "", "titanic"), ElementsAre("<nil>: Invalid value: \"object\": not again"));
  EXPECT_THAT(said("{crew: 0}"), ElementsAre("spec.crew: Invalid value: \"integer\": failed rule: self > 0"));
  EXPECT_THAT(said("{crew: 1, least: 3}"), ElementsAre("spec: Invalid value: \"object\": least is far too many"));
  EXPECT_THAT(said("{crew: 1, bad: 0}"), ElementsAre("spec: Invalid value: \"object\": division by zero evaluating rule: !has(self.bad) || 10 / self.bad > 1"));
  EXPECT_THAT(said("{ratio: 12}"), ElementsAre("spec.ratio: Invalid value: \"number\": failed rule: self / 2.0 < 5.0"));
  EXPECT_THAT(said("{at: '2019-01-01T00:00:00Z'}"), ElementsAre("spec.at: Invalid value: \"string\": failed rule: self > timestamp('2020-01-01T00:00:00Z')"));
  for (const char* any : {"1", "x"}) EXPECT_THAT(said(std::string("{any: ") + any + "}"), ElementsAre("spec.any: Invalid value: \"\": failed rule: type(self) == int ? self > 1 : self != 'x'"));
  EXPECT_THAT(said("{tags: {abcdefg: x}}"), ElementsAre("spec.tags.[a]: Invalid value: \"object\": long key"));
  EXPECT_THAT(said("{list: [b, a]}"), ElementsAre("spec.list: Duplicate value: \"array\""));
  EXPECT_THAT(said("{least: 5}"), ElementsAre("spec: Invalid value: \"object\": no such key: crew evaluating rule: !has(self.least) || self.least <= self.crew"));
  EXPECT_THAT(said("{crew: 5000, ratio: 20}"), ElementsAre("spec.crew: Invalid value: 5000: spec.crew in body should be less than or equal to 1000", "spec.ratio: Invalid value: \"number\": failed rule: self / 2.0 < 5.0"));
  EXPECT_THAT(said("{name: true, ratio: 20}"), ElementsAre("spec.name: Invalid value: \"boolean\": spec.name in body must be of type string: \"boolean\"",
                                                           "<nil>: Invalid value: \"null\": some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"));
}

TEST(SchemaRules, CompareWithWhatWasThere) {
  const std::string old = "{crew: 5, name: x, flag: f, decks: [{name: d, size: 5}, {name: e, size: 3}]}";
  EXPECT_THAT(said(old, old), IsEmpty());
  EXPECT_THAT(said("{crew: 5, name: z, flag: f}", old), ElementsAre("spec.name: Forbidden: name does not change"));
  EXPECT_THAT(said("{crew: 5, name: x}", old), ElementsAre("spec: Invalid value: \"object\": flag may not come or go"));
  EXPECT_THAT(said("{crew: 5, name: x, flag: f, decks: [{name: e, size: 2}, {name: d, size: 5}]}", old), ElementsAre("spec.decks[0].size: Invalid value: \"integer\": decks do not shrink"));
  EXPECT_THAT(said("{crew: 5, name: x, flag: f, decks: [{name: f, size: 1}, {name: d, size: 6}]}", old), IsEmpty());
}

// A rule that came later does not hold up changes of something else.
// Our own, as they are installed.
TEST(SchemaRules, ExtensionsOfTrainingPlansNeitherChangeNorGo) {
  const auto text = read_file(std::string(SOURCE_DIR) + "/deploy/helm/fairlead/files/crds/trainingplans.fairlead.dev.yaml");
  ASSERT_TRUE(text);
  FieldErrors none;
  const auto schema = Schema::compile(yaml(*text)["spec"]["versions"].items().at(0)["schema"]["openAPIV3Schema"], "", none);
  ASSERT_THAT(none.texts(), IsEmpty());
  const auto plan = [](const std::string& extensions) { return yaml("{spec: {instanceType: ml.p5.48xlarge, instanceCount: 1, endTime: '2026-12-01T00:00:00Z'" + extensions + "}}"); };
  const auto change = [&](const std::string& from, const std::string& to) {
    const Json before = plan(from), next = plan(to);
    FieldErrors errors;
    schema->validate(next, errors, &before);
    return errors.texts();
  };
  const std::string x = "{id: first, startTime: '2026-12-01T00:00:00Z', endTime: '2026-12-02T00:00:00Z', requestedAt: '2026-11-26T12:00:00Z'}", earlier = "{id: first, startTime: '2026-12-01T00:00:00Z', endTime: '2026-12-02T00:00:00Z', requestedAt: '2026-11-20T12:00:00Z'}", y = "{id: later, startTime: '2026-12-02T00:00:00Z', endTime: '2026-12-03T00:00:00Z'}";
  EXPECT_THAT(change("", ", extensions: [" + x + "]"), IsEmpty());
  EXPECT_THAT(change(", extensions: [" + x + "]", ", extensions: [" + x + ", " + y + "]"), IsEmpty());
  for (const std::string& to : {std::string(), std::string(", extensions: []"), ", extensions: [" + earlier + "]", ", extensions: [" + y + "]"}) EXPECT_THAT(change(", extensions: [" + x + "]", to), ElementsAre(HasSubstr("an extension that was asked for neither changes nor goes"))) << to;
  EXPECT_THAT(change("", ", extensions: [" + x + ", " + earlier + "]"), ElementsAre(HasSubstr("Duplicate value"))) << "one of a name";
}

TEST(SchemaRules, WhatIsAsItWasIsNotComplainedOf) {
  EXPECT_THAT(said("{crew: 0, ratio: 1}", "{crew: 0}"), IsEmpty());
  EXPECT_THAT(said("{crew: -1}", "{crew: 0}"), ElementsAre(HasSubstr("failed rule: self > 0")));
}

TEST(SchemaRules, EndThoughTheyAreMany) {
  FieldErrors errors;
  const auto schema = Schema::compile(yaml("{type: object, properties: {l: {type: array, items: {type: integer}, x-kubernetes-validations: [{rule: 'self.all(a, self.all(b, self.all(c, a + b + c >= 0)))'}]}}}"), "", errors);
  ASSERT_TRUE(schema);
  Json list = Json::array();
  for (int i = 0; i < 1'000; ++i) list.push(i);
  schema->validate(Json::object({{"l", std::move(list)}}), errors);
  EXPECT_THAT(errors.texts(), ElementsAre(HasSubstr("cost limit exceeded evaluating rule: self.all(a")));
}

}  // namespace
}  // namespace fairlead::apiserver
