// SPDX-License-Identifier: Apache-2.0
// Ownership and server-side apply as pure functions. Expectations are what kube-apiserver 1.33 answers to the same writes.
#include "apiserver/apply_managed.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apiserver/registry_test_kit.h"
#include "apiserver/schema.h"
#include "apiserver/validation.h"
#include "base/rng.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using test::json;
using testing::HasSubstr;

const kube::Type& type_of(std::string_view version, std::string_view kind) {
  const kube::Type* type = kube::TypeTable::builtin().find_kind(version, kind);
  INVARIANT(type != nullptr);
  return *type;
}

FieldWriter by(std::string manager, std::string time = "2026-01-01T00:00:00Z") { return {.manager = std::move(manager), .api_version = "v1", .time = std::move(time)}; }
std::string text_of(const FieldSet& set) {
  std::string out;
  set.append(out);
  return out;
}
std::string fields_by(const ManagedFields& managed, std::string_view manager) {
  for (const ManagedEntry& entry : managed)
    if (entry.manager == manager) return text_of(entry.fields);
  return "none";
}

// A place under test: an object with its owners, written to by several managers.
struct Place {
  explicit Place(const kube::Type& of) : type(&of), shape(Shape::of(of)), object(zero_object(&of)) {}
  explicit Place(const Schema& schema) : shape(Shape::of(schema.root())), object(zero_object(nullptr)) {}

  void update(const std::string& manager, std::string_view yaml) {
    const Json next = json(yaml);
    // A new object is tracked from nothing; later ones only if somebody is known.
    managed = after_update(std::move(managed), object, next, shape, by(manager));
    object = next;
  }
  Result<void> apply(const std::string& manager, std::string_view yaml, bool force = false) {
    auto done = apply_configuration(object, json(yaml), managed, type, shape, by(manager), force);
    if (!done) return std::unexpected(std::move(done.error()));
    object = std::move(done->object);
    managed = std::move(done->managed);
    return {};
  }

  const kube::Type* type = nullptr;
  Shape shape;
  Json object;
  ManagedFields managed;
};

TEST(Apply, OwnsWhatItMentions) {
  Place place(type_of("v1", "ConfigMap"));
  ASSERT_TRUE(place.apply("a", "{metadata: {name: c, labels: {x: '1'}}, data: {k: v, l: w}}"));
  EXPECT_EQ(fields_by(place.managed, "a"), R"({"f:data":{"f:k":{},"f:l":{}},"f:metadata":{"f:labels":{"f:x":{}}}})");
  EXPECT_EQ(place.object["data"]["l"].string(), "w");
}

TEST(Apply, WhatItGivesUpGoesUnlessOthersOwnIt) {
  Place place(type_of("v1", "ConfigMap"));
  ASSERT_TRUE(place.apply("a", "{data: {k: v, l: w, m: x}}"));
  ASSERT_TRUE(place.apply("b", "{data: {l: w}}"));  // shared
  ASSERT_TRUE(place.apply("a", "{data: {k: v}}"));
  EXPECT_EQ(place.object["data"], json("{k: v, l: w}"));
  EXPECT_EQ(fields_by(place.managed, "b"), R"({"f:data":{"f:l":{}}})");
  ASSERT_TRUE(place.apply("b", "{}"));
  EXPECT_EQ(place.object["data"], json("{k: v}"));
  EXPECT_EQ(fields_by(place.managed, "b"), "none");
  ASSERT_TRUE(place.apply("b", "{data: {}}"));
  ASSERT_TRUE(place.apply("a", "{data: {}}"));
  EXPECT_EQ(fields_by(place.managed, "a"), R"({"f:data":{}})");
  EXPECT_EQ(fields_by(place.managed, "b"), R"({"f:data":{}})");  // what is in it went, not the map
  ASSERT_TRUE(place.apply("b", "{}"));
  ASSERT_TRUE(place.apply("a", "{}"));
  EXPECT_FALSE(place.object.has("data"));
}

TEST(Apply, ConflictsNameManagersAndFields) {
  Place place(type_of("v1", "ConfigMap"));
  ASSERT_TRUE(place.apply("a", "{data: {k: v, l: w}}"));
  const auto one = place.apply("b", "{data: {k: other}}");
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, Code::Conflict);
  EXPECT_EQ(one.error().message, "Apply failed with 1 conflict: conflict with \"a\": .data.k");
  const auto two = place.apply("b", "{data: {k: other, l: other}}");
  EXPECT_EQ(two.error().message, "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\n- .data.l");
  place.update("kubectl-edit", "{data: {k: edited, l: w}}");
  EXPECT_EQ(place.apply("b", "{data: {k: other}}").error().message, "Apply failed with 1 conflict: conflict with \"kubectl-edit\" using v1: .data.k");
}

TEST(Apply, ForceTakesOver) {
  Place place(type_of("v1", "ConfigMap"));
  ASSERT_TRUE(place.apply("a", "{data: {k: v, l: w}}"));
  ASSERT_TRUE(place.apply("b", "{data: {k: other}}", true));
  EXPECT_EQ(place.object["data"]["k"].string(), "other");
  EXPECT_EQ(fields_by(place.managed, "a"), R"({"f:data":{"f:l":{}}})");
  EXPECT_EQ(fields_by(place.managed, "b"), R"({"f:data":{"f:k":{}}})");
}

TEST(Apply, ListsOfMapsMergeByTheirKeys) {
  Place place(type_of("v1", "Service"));
  ASSERT_TRUE(place.apply("a", "{spec: {ports: [{port: 80, name: http}, {port: 443, name: https}]}}"));
  EXPECT_EQ(fields_by(place.managed, "a"),
            R"({"f:spec":{"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}},"k:{\"port\":443,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}})");
  ASSERT_TRUE(place.apply("b", "{spec: {ports: [{port: 53, protocol: UDP, name: dns}]}}"));
  ASSERT_TRUE(place.apply("a", "{spec: {ports: [{port: 443, name: tls}]}}"));
  EXPECT_EQ(place.object["spec"]["ports"], json("[{port: 443, name: tls}, {port: 53, protocol: UDP, name: dns}]"));
}

TEST(Apply, SetsMergeByValueAndAtomicListsAsAWhole) {
  Place place(type_of("v1", "Pod"));
  ASSERT_TRUE(place.apply("a", "{metadata: {finalizers: [x/1, x/2]}, spec: {containers: [{name: m, image: i, command: [run, a]}]}}"));
  ASSERT_TRUE(place.apply("b", "{metadata: {finalizers: [x/3]}}"));
  EXPECT_EQ(place.object["metadata"]["finalizers"], json("[x/1, x/2, x/3]"));
  EXPECT_EQ(fields_by(place.managed, "b"), R"({"f:metadata":{"f:finalizers":{"v:\"x/3\"":{}}}})");
  EXPECT_EQ(place.apply("b", "{metadata: {finalizers: [x/3]}, spec: {containers: [{name: m, command: [run, b]}]}}").error().message,
            "Apply failed with 1 conflict: conflict with \"a\": .spec.containers[name=\"m\"].command");
  ASSERT_TRUE(place.apply("a", "{metadata: {finalizers: [x/2]}, spec: {containers: [{name: m, image: i}]}}"));
  EXPECT_EQ(place.object["metadata"]["finalizers"], json("[x/2, x/3]"));
  EXPECT_FALSE(place.object["spec"]["containers"].items()[0].has("command"));
}

TEST(Apply, OwnersOfObjectsAreAtomicItems) {
  Place place(type_of("v1", "ConfigMap"));
  ASSERT_TRUE(place.apply("a", "{metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u1}]}}"));
  EXPECT_EQ(fields_by(place.managed, "a"), R"({"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"u1\"}":{}}}})");
}

TEST(Apply, BeforeFirstApplyOwnsWhatNobodyWasKnownToOwn) {
  Place place(type_of("v1", "ConfigMap"));
  place.object = json("{apiVersion: v1, kind: ConfigMap, metadata: {name: c, uid: u}, data: {k: v, l: w}}");
  ASSERT_FALSE(place.apply("a", "{data: {k: other}}"));
  ASSERT_TRUE(place.apply("a", "{data: {k: other}}", true));
  EXPECT_EQ(fields_by(place.managed, "before-first-apply"), R"({"f:data":{".":{},"f:l":{}}})");
}

TEST(Apply, KubectlsOwnClientSideApplyIsNoConflict) {
  const std::string last = R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"c"},"data":{"k":"v"}})";
  Place place(type_of("v1", "ConfigMap"));
  Json object = json("{data: {k: v, l: w}}");
  object.child("metadata").child("annotations").set(last_applied_annotation, last);
  place.update("kubectl-client-side-apply", kube::print_yaml(object));
  ASSERT_TRUE(place.apply("kubectl", "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {k: new}}"));
  EXPECT_EQ(place.object["data"], json("{k: new, l: w}"));
  // The annotation follows, so that client-side apply can go on.
  EXPECT_EQ(place.object["metadata"]["annotations"][last_applied_annotation].string(), "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"new\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}\n");
  EXPECT_EQ(place.apply("kubectl", "{data: {k: new, l: other}}").error().message, "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using v1: .data.l");
  EXPECT_FALSE(place.apply("other", "{data: {k: x}}"));
}

TEST(Updates, TakeFieldsFromOthersAndForgetWhatIsRemoved) {
  Place place(type_of("v1", "ConfigMap"));
  place.update("one", "{data: {k: v, l: w}}");
  EXPECT_EQ(fields_by(place.managed, "one"), R"({"f:data":{".":{},"f:k":{},"f:l":{}}})");
  place.update("two", "{data: {k: v, l: other}}");
  EXPECT_EQ(fields_by(place.managed, "one"), R"({"f:data":{".":{},"f:k":{}}})");
  EXPECT_EQ(fields_by(place.managed, "two"), R"({"f:data":{"f:l":{}}})");
  place.update("three", "{data: {l: other}}");
  EXPECT_EQ(fields_by(place.managed, "one"), R"({"f:data":{}})");
  EXPECT_EQ(fields_by(place.managed, "three"), "none");  // removing owns nothing
}

TEST(Updates, StatusAndTheRestAreApart) {
  const kube::Type& type = type_of("v1", "Pod");
  const Json before = json("{metadata: {name: p}, spec: {}, status: {}}"), after = json("{metadata: {name: p}, spec: {nodeName: n}, status: {phase: Running}}");
  FieldWriter writer = by("agent");
  writer.only_status = true;
  writer.subresource = "status";
  const ManagedFields status = after_update({}, before, after, Shape::of(type), writer);
  EXPECT_EQ(print_managed(status), R"([{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:phase":{}}},"manager":"agent","operation":"Update","subresource":"status","time":"2026-01-01T00:00:00Z"}])");
  writer = by("agent");
  writer.skip_status = true;
  EXPECT_EQ(fields_by(after_update({}, before, after, Shape::of(type), writer), "agent"), R"({"f:spec":{"f:nodeName":{}}})");
}

TEST(Updates, OnlyTenUpdatersAreToldApart) {
  const Shape shape = Shape::of(type_of("v1", "ConfigMap"));
  ManagedFields managed;
  Json object = json("{data: {}}");
  for (int i = 0; i < 15; ++i) {
    Json next = object;
    next.child("data").set(fmt::format("k{}", i), "v");
    managed = after_update(std::move(managed), object, next, shape, by(fmt::format("m{:02}", i), fmt::format("2026-01-01T00:00:{:02}Z", i)));
    object = next;
  }
  EXPECT_EQ(managed.size(), 10U);
  EXPECT_EQ(fields_by(managed, "ancient-changes"), R"({"f:data":{"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{},"f:k4":{},"f:k5":{}}})");
  EXPECT_EQ(fields_by(managed, "m14"), R"({"f:data":{"f:k14":{}}})");
}

std::shared_ptr<const Schema> schema_of(std::string_view yaml) {
  FieldErrors errors;
  auto schema = Schema::compile(json(yaml), "schema", errors);
  EXPECT_TRUE(errors.empty()) << (errors.empty() ? "" : errors.texts().front());
  return schema;
}

TEST(ApplyCustom, FollowsTheSchema) {
  const auto schema = schema_of(R"(
type: object
properties:
  spec:
    type: object
    properties:
      set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      keyed:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [name, port]
        items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer, default: 7}, v: {type: string}}}
      plain: {type: array, items: {type: string}}
      whole: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true}
)");
  Place place(*schema);
  ASSERT_TRUE(place.apply("a", "{spec: {set: [x], keyed: [{name: nn, v: '1'}], plain: [p], whole: {k: v}, open: {deep: {a: 1}, list: [1]}}}"));
  EXPECT_EQ(fields_by(place.managed, "a"),
            R"({"f:spec":{"f:keyed":{"k:{\"name\":\"nn\",\"port\":7}":{".":{},"f:name":{},"f:v":{}}},"f:open":{"f:deep":{".":{},"f:a":{}},"f:list":{}},"f:plain":{},"f:set":{"v:\"x\"":{}},"f:whole":{}}})");
  ASSERT_TRUE(place.apply("b", "{spec: {set: [y], keyed: [{name: nn, port: 8}], open: {deep: {b: 2}}}}"));
  EXPECT_EQ(place.object["spec"]["set"], json("[x, y]"));
  EXPECT_EQ(place.object["spec"]["keyed"].items().size(), 2U);
  EXPECT_EQ(place.object["spec"]["open"]["deep"], json("{a: 1, b: 2}"));
  EXPECT_EQ(place.apply("b", "{spec: {plain: [q], whole: {k: w}}}").error().message, "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.plain\n- .spec.whole");
}

TEST(ApplyCustom, APlaceThatBecameAtomicIsOwnedAsAWhole) {
  const auto schema = schema_of("{type: object, properties: {spec: {type: object, properties: {m: {type: object, x-kubernetes-map-type: atomic, additionalProperties: {type: string}}}}}}");
  const auto before = FieldSet::parse(json(R"({"f:spec":{"f:m":{"f:a":{},"f:b":{}}}})"));
  EXPECT_EQ(text_of(reconciled(*before, Shape::of(schema->root()))), R"({"f:spec":{"f:m":{}}})");
}

TEST(Configuration, IsCheckedAgainstTheType) {
  const Shape pod = Shape::of(type_of("v1", "Pod"));
  struct Row {
    const char *yaml, *error;
  };
  for (const Row& row : {Row{"{spec: {nope: 1}}", ".spec.nope: field not declared in schema"},
                         Row{"{spec: {containers: [{name: a}, {name: a}]}}", ".spec.containers: duplicate entries for key [name=\"a\"]"},
                         Row{"{spec: {nodeName: 1}}", ".spec.nodeName: expected string, got &value.valueUnstructured{Value:1}"}, Row{"{spec: {containers: {}}}", ".spec.containers: expected list, got map"},
                         Row{"{spec: {containers: [{name: a, env: [{name: e, valu: x}]}]}}", ".spec.containers[name=\"a\"].env[name=\"e\"].valu: field not declared in schema"}}) {
    EXPECT_THAT(configuration_errors(json(row.yaml), pod), testing::ElementsAre(row.error));
  }
  EXPECT_TRUE(configuration_errors(json("{apiVersion: v1, kind: Pod, metadata: {name: p, creationTimestamp: null}, spec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}}"), pod).empty());
}

TEST(Managed, RequestsName) {
  EXPECT_EQ(manager_name("given", "kubectl/v1"), "given");
  EXPECT_EQ(manager_name("", "kubectl/v1.33 (linux)"), "kubectl");
  EXPECT_EQ(manager_name("", ""), "unknown");
  EXPECT_EQ(manager_name("", std::string(200, 'x')).size(), 128U);
  EXPECT_EQ(manager_name("", std::string(127, 'x') + "\xC3\xA9").size(), 127U);  // no half character
}

TEST(Managed, IsReadStrictlyAndResetByEmptiness) {
  for (const char* text : {"{}", "[{}]", "[{operation: Update, apiVersion: v1}]", "[{operation: Fly, apiVersion: v1, fieldsType: FieldsV1}]", "[{operation: Update, fieldsType: FieldsV1}]",
                           "[{operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {x: {}}}]"})
    EXPECT_FALSE(parse_managed(json(text)).has_value()) << text;
  EXPECT_TRUE(resets_managed(json("[]")));
  EXPECT_TRUE(resets_managed(json("[{}]")));
  EXPECT_FALSE(resets_managed(json("[{manager: x}]")));
  EXPECT_FALSE(resets_managed(Json()));
}

TEST(NewObjects, AreWrittenAsComparedWithNothing) {
  struct Row {
    const char *version, *kind, *yaml, *want;
  };
  for (const Row& row : {
           Row{"v1", "ConfigMap", "{metadata: {name: c, labels: {a: b}}, data: {k: v}}", R"({"f:data":{".":{},"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:a":{}}}})"},
           Row{"v1", "Pod", "{metadata: {name: c}, spec: {containers: [{name: m, image: i, resources: {}, args: [a]}], restartPolicy: Always, securityContext: {}}, status: {phase: Pending}}",
               R"({"f:spec":{"f:containers":{"k:{\"name\":\"m\"}":{".":{},"f:args":{},"f:image":{},"f:name":{},"f:resources":{}}},"f:restartPolicy":{},"f:securityContext":{}}})"},
           Row{"v1", "ServiceAccount", "{metadata: {name: c}}", ""},
       }) {
    const kube::Type& type = type_of(row.version, row.kind);
    EXPECT_EQ(changed_fields(zero_object(&type), json(row.yaml), Shape::of(type), true), row.want);
  }
}

Json random_value(Rng& rng, int depth) {
  static const std::vector<std::string> names{"name", "a", "b", "containers", "env", "labels", "annotations", "ports", "spec", "metadata", "finalizers", "image", "resources", "limits", "volumes"};
  const auto pick = rng.below(depth > 5 ? 3 : 7);
  if (pick == 0) return Json(names[rng.below(names.size())]);
  if (pick == 1) return Json(static_cast<std::int64_t>(rng.below(3)));
  if (pick == 2) return Json::object();
  if (pick == 3) {
    std::vector<Json> items;
    for (std::uint64_t i = rng.below(3); i > 0; --i) items.push_back(random_value(rng, depth + 1));
    return Json::array(std::move(items));
  }
  Json out = Json::object();
  for (std::uint64_t i = rng.below(5); i > 0; --i) out.set(names[rng.below(names.size())], random_value(rng, depth + 1));
  return out;
}

// The quick writer and the comparison are two ways to the same set, on objects that do not even fit the type.
TEST(NewObjectsProperty, QuickWriterAgreesWithTheComparison) {
  const kube::Type& type = type_of("v1", "Pod");
  const Shape shape = Shape::of(type);
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed);
    Json object = Json::object();
    object.set("metadata", random_value(rng, 1)).set("spec", random_value(rng, 1)).set("data", random_value(rng, 1));
    if (!object["metadata"].is_object()) object.set("metadata", Json::object());
    const Comparison changes = compare(zero_object(&type), object, shape);
    const FieldSet want = changes.modified.united(changes.added).without(system_fields());
    const std::string got = changed_fields(zero_object(&type), object, shape, false);
    EXPECT_EQ(got.empty() ? "{}" : got, text_of(want)) << "seed " << seed << "\n" << kube::print_json(object);
  }
}

TEST(MergeProperty, AppliedTwiceIsAppliedOnceAndLastWordCounts) {
  const kube::Type& type = type_of("v1", "Pod");
  const Shape shape = Shape::of(type);
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    Rng rng(seed);
    Json live = Json::object(), config = Json::object();
    live.set("spec", random_value(rng, 1)).set("metadata", random_value(rng, 2));
    config.set("spec", random_value(rng, 1)).set("metadata", random_value(rng, 2));
    if (!configuration_errors(config, shape).empty() || !configuration_errors(live, shape).empty()) continue;
    const Json once = merge(live, config, shape);
    EXPECT_EQ(merge(once, config, shape), once) << "seed " << seed;
    // Nothing that was said is left out.
    EXPECT_TRUE(compare(config, once, shape).modified.empty()) << "seed " << seed;
    EXPECT_TRUE(compare(config, once, shape).removed.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::apiserver
