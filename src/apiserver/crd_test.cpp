// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/crd.h"
#include "apiserver/registry_test_kit.h"
#include "apiserver/schema.h"

namespace fairlead::apiserver::test {
namespace {

using testing::HasSubstr;

std::shared_ptr<const Schema> schema_of(std::string_view yaml) {
  FieldErrors errors;
  auto schema = Schema::compile(json(yaml), "", errors);
  for (const std::string& text : errors.texts()) ADD_FAILURE() << text;
  return schema;
}

constexpr std::string_view rich = R"(
type: object
required: [spec]
properties:
  spec:
    type: object
    required: [size]
    properties:
      size: {type: integer, minimum: 1, maximum: 10, format: int32}
      ratio: {type: number, exclusiveMinimum: true, minimum: 0}
      mode: {type: string, enum: [A, B], default: A}
      name: {type: string, pattern: '^[a-z]+$', minLength: 2, maxLength: 4}
      port: {x-kubernetes-int-or-string: true}
      note: {type: string, nullable: true}
      when: {type: string, format: date-time}
      flag: {type: boolean, default: true}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true}
      labels: {type: object, additionalProperties: {type: string}, maxProperties: 2}
      nested: {type: object, default: {}, properties: {depth: {type: integer, default: 3}}}
      words: {type: array, x-kubernetes-list-type: set, items: {type: string}, maxItems: 3}
      parts:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [id]
        items: {type: object, required: [id], properties: {id: {type: string}, v: {type: integer, default: 7}}}
      template: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
      either: {type: object, properties: {a: {type: string}, b: {type: string}}, oneOf: [{required: [a]}, {required: [b]}]}
)";

struct ValidCase {
  const char* name;
  const char* spec;
  const char* want;  // empty: valid
};
class Validation : public testing::TestWithParam<ValidCase> {};
TEST_P(Validation, OfSchemas) {
  FieldErrors errors;
  schema_of(rich)->validate(json(fmt::format("{{spec: {}}}", GetParam().spec)), errors);
  const std::string got = errors.empty() ? "" : errors.texts().front();
  EXPECT_LE(errors.texts().size(), 1u);
  EXPECT_EQ(got, GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(
    All, Validation,
    testing::Values(ValidCase{"minimal", "{size: 1}", ""}, ValidCase{"required", "{}", "spec.size: Required value"},
                    ValidCase{"type", "{size: x}", "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""},
                    ValidCase{"fraction", "{size: 1.5}", "spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \"number\""},
                    ValidCase{"minimum", "{size: 0}", "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"},
                    ValidCase{"maximum", "{size: 11}", "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"},
                    ValidCase{"exclusive", "{size: 1, ratio: 0}", "spec.ratio: Invalid value: 0: spec.ratio in body should be greater than 0"},
                    ValidCase{"enumeration", "{size: 1, mode: C}", "spec.mode: Unsupported value: \"C\": supported values: \"A\", \"B\""},
                    ValidCase{"pattern", "{size: 1, name: ABC}", "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'"},
                    ValidCase{"too_short", "{size: 1, name: a}", "spec.name: Invalid value: \"a\": spec.name in body should be at least 2 chars long"},
                    ValidCase{"too_long", "{size: 1, name: abcde}", "spec.name: Too long: may not be more than 4 bytes"},
                    ValidCase{"integer_or_string", "{size: 1, port: 80}", ""}, ValidCase{"string_or_integer", "{size: 1, port: http}", ""},
                    ValidCase{"neither", "{size: 1, port: 1.5}", "spec.port: Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\""},
                    ValidCase{"nullable", "{size: 1, note: null}", ""},
                    ValidCase{"null", "{size: 1, flag: null}", "spec.flag: Invalid value: \"null\": spec.flag in body must be of type boolean: \"null\""},
                    ValidCase{"time", "{size: 1, when: '2026-01-01T00:00:00Z'}", ""},
                    ValidCase{"bad_time", "{size: 1, when: soon}", "spec.when: Invalid value: \"soon\": spec.when in body must be of type date-time: \"soon\""},
                    ValidCase{"any_below_preserved", "{size: 1, free: {a: [1, {b: c}]}}", ""},
                    ValidCase{"values_of_map", "{size: 1, labels: {a: 1}}", "spec.labels.a: Invalid value: \"integer\": spec.labels.a in body must be of type string: \"integer\""},
                    ValidCase{"too_many_properties", "{size: 1, labels: {a: a, b: b, c: c}}", "spec.labels: Too many: 3: must have at most 2 items"},
                    ValidCase{"set_twice", "{size: 1, words: [a, b, a]}", "spec.words[2]: Duplicate value: \"a\""},
                    ValidCase{"too_many_items", "{size: 1, words: [a, b, c, d]}", "spec.words: Too many: 4: must have at most 3 items"},
                    ValidCase{"map_twice", "{size: 1, parts: [{id: a}, {id: a, v: 1}]}", "spec.parts[1]: Duplicate value: map[string]interface {}{\"id\":\"a\"}"},
                    ValidCase{"embedded", "{size: 1, template: {apiVersion: v1, kind: Pod, metadata: {}}}", ""},
                    ValidCase{"embedded_without_kind", "{size: 1, template: {apiVersion: v1}}", "spec.template.kind: Required value: must not be empty"},
                    ValidCase{"one_of", "{size: 1, either: {a: x}}", ""},
                    ValidCase{"both_of", "{size: 1, either: {a: x, b: x}}", "<nil>: Invalid value: \"\": \"spec.either\" must validate one and only one schema (oneOf). Found 2 valid alternatives"}),
    [](const auto& row) { return row.param.name; });

TEST(Schema, DefaultsAndPruning) {
  const auto schema = schema_of(rich);
  Json object = json("{apiVersion: x/v1, kind: K, metadata: {a: b}, extra: 1, spec: {size: 1, zzz: 1, mode: null, free: {q: 1}, parts: [{id: a, w: 1}], template: {metadata: {x: yy}, spec: {a: b}, other: 1}}}");
  EXPECT_THAT(schema->prune(object), testing::ElementsAre("extra", "spec.zzz", "spec.parts[0].w", "spec.template.other"));
  schema->apply_defaults(object);
  EXPECT_EQ(object, json("{apiVersion: x/v1, kind: K, metadata: {a: b}, spec: {size: 1, mode: A, free: {q: 1}, parts: [{id: a, v: 7}], template: {metadata: {x: yy}, spec: {a: b}}, flag: true, nested: {depth: 3}}}"));
  const Json once = object;
  schema->apply_defaults(object);
  EXPECT_TRUE(schema->prune(object).empty());
  EXPECT_EQ(object, once);
}

struct BadSchemaCase {
  const char* name;
  const char* schema;
  const char* want;
};
class BadSchema : public testing::TestWithParam<BadSchemaCase> {};
TEST_P(BadSchema, IsTold) {
  FieldErrors errors;
  EXPECT_EQ(Schema::compile(json(GetParam().schema), "s", errors), nullptr);
  ASSERT_FALSE(errors.empty());
  EXPECT_EQ(errors.texts().front(), GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(
    All, BadSchema,
    testing::Values(BadSchemaCase{"untyped", "{type: object, properties: {a: {}}}", "s.properties[a].type: Required value: must not be empty for specified object fields"},
                    BadSchemaCase{"root", "{type: string}", "s.type: Invalid value: \"string\": must be object at the root"},
                    BadSchemaCase{"array", "{type: object, properties: {a: {type: array}}}", "s.properties[a].items: Required value: must be specified"},
                    BadSchemaCase{"pattern", "{type: object, properties: {a: {type: string, pattern: '('}}}",
                                  "s.properties[a].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: missing ): ("},
                    BadSchemaCase{"unique", "{type: object, properties: {a: {type: array, uniqueItems: true, items: {type: string}}}}",
                                  "s.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"},
                    BadSchemaCase{"reference", "{type: object, $ref: x}", "s.$ref: Forbidden: $ref is not supported"}),
    [](const auto& row) { return row.param.name; });

std::string crd_yaml(std::string_view version_extra = "", std::string_view names_extra = "") {
  return fmt::format(R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: boats.sea.example.org}}
spec:
  group: sea.example.org
  scope: Namespaced
  names: {{plural: boats, kind: Boat, shortNames: [bt]{}}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    additionalPrinterColumns: [{{name: Crew, type: integer, jsonPath: '.spec.crew'}}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{crew: {{type: integer, minimum: 0, default: 2}}}}}}
          status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
{}
)", names_extra, version_extra);
}

struct BoatWorld : World {
  explicit BoatWorld(std::string_view extra = "") {
    auto made = World::create(*crds, json(crd_yaml(extra)), "");
    must(made);
    crd = object_of(made);
  }
  std::shared_ptr<const Kind> boats(const std::string& version = "v1") const { return kind("boats", "sea.example.org", version); }
  Result<Written> sail(std::string_view yaml, FieldValidation validation = FieldValidation::Strict) {
    return World::create(*boats(), json(yaml), "default", {.validation = validation});
  }
  std::shared_ptr<const Kind> crds = kind("customresourcedefinitions", "apiextensions.k8s.io");
  Json crd;
};

TEST(Crd, IsServedWhenItsCreateIsAnswered) {
  World before;
  const auto generation = before.registry->kinds()->generation;
  BoatWorld world;
  EXPECT_GT(world.registry->kinds()->generation, generation);
  EXPECT_TRUE(kube::condition_is_true(world.crd, "Established"));
  EXPECT_TRUE(kube::condition_is_true(world.crd, "NamesAccepted"));
  EXPECT_EQ(world.crd["status"]["acceptedNames"]["listKind"].string(), "BoatList");
  EXPECT_EQ(world.crd["status"]["storedVersions"], json("[v1]"));
  const auto kind = world.boats();
  ASSERT_TRUE(kind);
  EXPECT_EQ(kind->singular, "boat");
  EXPECT_TRUE(kind->status_subresource);
  EXPECT_EQ(kind->columns.size(), 1u);
  const auto boat = world.sail("{apiVersion: sea.example.org/v1, kind: Boat, metadata: {name: b}, status: {x: 1}}");
  ASSERT_TRUE(boat) << boat.error().message;
  EXPECT_FALSE(object_of(boat).has("status"));
}

TEST(Crd, ObjectsAreDefaultedPrunedAndChecked) {
  BoatWorld world;
  EXPECT_EQ(object_of(world.sail("{metadata: {name: a}, spec: {}}"))["spec"]["crew"].integer(), 2);
  EXPECT_THAT(message_of(world.sail("{metadata: {name: b}, spec: {sails: 3}}")), HasSubstr("strict decoding error: unknown field \"spec.sails\""));
  const auto warned = world.sail("{metadata: {name: c}, spec: {sails: 3}}", FieldValidation::Warn);
  ASSERT_TRUE(warned);
  EXPECT_THAT(warned->warnings, testing::ElementsAre("unknown field \"spec.sails\""));
  EXPECT_FALSE(object_of(warned)["spec"].has("sails"));
  EXPECT_EQ(message_of(world.sail("{metadata: {name: d}, spec: {crew: -1}}")),
            "Boat.sea.example.org \"d\" is invalid: spec.crew: Invalid value: -1: spec.crew in body should be greater than or equal to 0");
}

TEST(Crd, AnObjectOfAnotherKindIsRefused) {
  BoatWorld world;
  EXPECT_EQ(message_of(world.sail("{apiVersion: sea.example.org/v1, kind: Ship, metadata: {name: s}}")), "Ship.sea.example.org \"s\" is invalid: kind: Invalid value: \"Ship\": must be Boat");
}

TEST(Crd, GenerationFollowsTheSpecOnly) {
  BoatWorld world;
  const kube::ObjectKey key{"default", "a"};
  world.must(world.sail("{metadata: {name: a}, spec: {crew: 1}}"));
  world.must(world.patch(*world.boats(), key, "{metadata: {labels: {x: yy}}}"));
  EXPECT_EQ(world.get(*world.boats(), key)["metadata"]["generation"].integer(), 1);
  world.must(world.patch(*world.boats(), key, "{status: {depth: 3}, spec: {crew: 5}}", kube::PatchType::Merge, "status"));
  EXPECT_EQ(world.get(*world.boats(), key)["status"]["depth"].integer(), 3);
  EXPECT_EQ(world.get(*world.boats(), key)["spec"]["crew"].integer(), 1);
  EXPECT_EQ(world.get(*world.boats(), key)["metadata"]["generation"].integer(), 1);
  world.must(world.patch(*world.boats(), key, "{spec: {crew: 4}, status: {depth: 9}}"));
  EXPECT_EQ(world.get(*world.boats(), key)["metadata"]["generation"].integer(), 2);
  EXPECT_EQ(world.get(*world.boats(), key)["status"]["depth"].integer(), 3);
}

TEST(Crd, VersionsShowTheSameObject) {
  BoatWorld world(R"(
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
)");
  world.must(world.sail("{metadata: {name: a}, spec: {crew: 1}}"));
  const Json second = world.get(*world.boats("v2"), {"default", "a"});
  EXPECT_EQ(second["apiVersion"].string(), "sea.example.org/v2");
  EXPECT_EQ(second["spec"]["crew"].integer(), 1);
  std::vector<std::string> lines;
  const auto watching = world.registry->watch(*world.boats("v2"), "", {}, [&](const RegistryEvent& event) { lines.push_back(*event.line); });
  world.must(world.patch(*world.boats("v2"), {"default", "a"}, "{spec: {crew: 6}}"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("\"apiVersion\":\"sea.example.org/v2\""));
  EXPECT_EQ(world.get(*world.boats(), {"default", "a"})["apiVersion"].string(), "sea.example.org/v1");
}

TEST(Crd, RulesThatCannotBeEvaluatedAreKeptAndTold) {
  World world;
  std::string yaml = crd_yaml();
  yaml.replace(yaml.find("crew: {type: integer,"), 21, "crew: {x-kubernetes-validations: [{rule: 'self > 0', messageExpression: 'ip(self)'}, {rule: 'quantity(self).isInteger()'}, {rule: 'self =< 5'}, {rule: 'self > oldSelf', optionalOldSelf: true}], type: integer,");
  const auto made = world.create(*world.kind("customresourcedefinitions", "apiextensions.k8s.io"), json(yaml), "");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->warnings, testing::ElementsAre(HasSubstr("\"self > 0\": its messageExpression (the rule holds, with its message): ERROR: 1:1: undeclared reference to 'ip'"), HasSubstr("not evaluated by the embedded engine: spec.crew: \"quantity(self).isInteger()\": ERROR: 1:1: undeclared reference to 'quantity'"), HasSubstr("\"self =< 5\""), HasSubstr("optionalOldSelf is not supported")));
  EXPECT_THAT(*made->object.bytes, HasSubstr("self > 0"));
}

TEST(Crd, GoesWithItsObjects) {
  BoatWorld world;
  world.must(world.sail("{metadata: {name: a}}"));
  const kube::ObjectKey key{"", "boats.sea.example.org"};
  EXPECT_FALSE(world.remove(*world.crds, key)->removed);
  EXPECT_TRUE(kube::condition_is_true(world.get(*world.crds, key), "Terminating"));
  EXPECT_EQ(world.sail("{metadata: {name: b}}").error().code, Code::Forbidden);
  EXPECT_EQ(world.patch(*world.crds, key, "{metadata: {finalizers: []}}").error().code, Code::Conflict);
  world.must(world.remove(*world.boats(), {"default", "a"}));
  const auto done = world.patch(*world.crds, key, "{metadata: {finalizers: []}}");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->removed);
  EXPECT_EQ(world.registry->kinds()->find("sea.example.org", "v1", "boats"), nullptr);
}

TEST(Crd, IsThereAgainAfterARestart) {
  BoatWorld world;
  world.must(world.sail("{metadata: {name: a}}"));
  world.api.reset();
  world.registry.reset();
  auto again = Registry::open(*world.store, world.clock, {});
  ASSERT_TRUE(again);
  const auto kind = (*again)->kinds()->find("sea.example.org", "v1", "boats");
  ASSERT_TRUE(kind);
  EXPECT_TRUE((*again)->get(*kind, {"default", "a"}));
}

struct BadCrdCase {
  const char* name;
  const char* from;
  const char* to;
  const char* want;
};
class BadCrd : public testing::TestWithParam<BadCrdCase> {};
TEST_P(BadCrd, IsRefused) {
  World world;
  std::string yaml = crd_yaml();
  const auto at = yaml.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  yaml.replace(at, std::string_view(GetParam().from).size(), GetParam().to);
  EXPECT_THAT(message_of(world.create(*world.kind("customresourcedefinitions", "apiextensions.k8s.io"), json(yaml), "")), HasSubstr(GetParam().want));
}
INSTANTIATE_TEST_SUITE_P(All, BadCrd,
                         testing::Values(BadCrdCase{"name", "name: boats.sea", "name: ships.sea", "metadata.name: Invalid value: \"ships.sea.example.org\": must be spec.names.plural+\".\"+spec.group"},
                                         BadCrdCase{"scope", "scope: Namespaced", "scope: Wide", "spec.scope: Unsupported value: \"Wide\""},
                                         BadCrdCase{"storage", "storage: true", "storage: false", "must have exactly one version marked as storage version"},
                                         BadCrdCase{"column", ".spec.crew", ".spec[", "additionalPrinterColumns[0].JSONPath: Invalid value"},
                                         BadCrdCase{"column_path", "'.spec.crew'", "spec", "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec\": must be a simple json path starting with ."},
                                         BadCrdCase{"column_type", "Crew, type: integer", "Crew, type: frob", "additionalPrinterColumns[0].type: Invalid value: \"frob\": must be one of boolean,date,integer,number,string"},
                                         BadCrdCase{"column_format", "Crew, type: integer", "Crew, format: frob, type: integer", "additionalPrinterColumns[0].format: Invalid value: \"frob\": must be one of byte,"},
                                         BadCrdCase{"short_name", "shortNames: [bt]", "shortNames: [Bad]", "spec.names.shortNames[0]: Invalid value: \"Bad\": a DNS-1035 label must consist of"},
                                         BadCrdCase{"kind_name", "kind: Boat,", "kind: 1Boat,", "spec.names.kind: Invalid value: \"1Boat\": may have mixed case, but should otherwise match: a DNS-1035 label"},
                                         BadCrdCase{"same_kinds", "kind: Boat,", "kind: Boat, listKind: Boat,", "spec.names.listKind: Invalid value: \"Boat\": kind and listKind may not be the same"},
                                         BadCrdCase{"no_stored_version", "storage: true", "storage: false", "status.storedVersions: Invalid value: []string(nil): must have at least one stored version"},
                                         BadCrdCase{"conversion", "scope: Namespaced", "scope: Namespaced\n  conversion: {strategy: Frob}", "spec.conversion.strategy: Unsupported value: \"Frob\": supported values: \"None\", \"Webhook\""},
                                         BadCrdCase{"defaults_kept_unknown", "scope: Namespaced", "scope: Namespaced\n  preserveUnknownFields: true",
                                                    "[spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema, spec.preserveUnknownFields: Invalid value: true: cannot set to true"},
                                         BadCrdCase{"name_before_group", "group: sea.example.org", "group: Bad_Group", "[metadata.name: Invalid value: \"boats.sea.example.org\""},
                                         BadCrdCase{"schema", "type: integer, minimum", "minimum", "must not be empty for specified object fields"},
                                         BadCrdCase{"webhook", "scope: Namespaced", "scope: Namespaced\n  conversion: {strategy: Webhook}", "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::apiserver::test
