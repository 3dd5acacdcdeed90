// SPDX-License-Identifier: Apache-2.0
#include "kube/type_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

namespace fairlead::kube {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const TypeTable& table() { return TypeTable::builtin(); }
const Type& type(std::string_view api_version, std::string_view kind) {
  const Type* found = table().find_kind(api_version, kind);
  EXPECT_NE(found, nullptr) << api_version << " " << kind;
  return *found;
}

TEST(TypeTable, KnowsKindsByVersion) {
  EXPECT_EQ(type("v1", "Pod").name, "io.k8s.api.core.v1.Pod");
  EXPECT_EQ(type("apps/v1", "Deployment").name, "io.k8s.api.apps.v1.Deployment");
  EXPECT_EQ(type("apiextensions.k8s.io/v1", "CustomResourceDefinition").name, "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition");
  EXPECT_EQ(type("coordination.k8s.io/v1", "DeleteOptions").name, "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
  EXPECT_EQ(table().find_kind("v1", "Deployment"), nullptr);
  EXPECT_EQ(table().find_kind("v2", "Pod"), nullptr);
  EXPECT_EQ(table().find("io.k8s.api.core.v1.PodSpec")->find("containers")->merge_key, "name");
  EXPECT_EQ(table().find("absent"), nullptr);
  EXPECT_TRUE(TypeTable::source_version().starts_with("v0.33."));
}

TEST(TypeTable, IsSoundThroughout) {
  std::set<std::string_view> names;
  for (const Type* one : table().all()) {
    EXPECT_TRUE(names.insert(one->name).second) << one->name;
    EXPECT_EQ(table().find(one->name), one);
    std::set<std::uint32_t> numbers;
    std::set<std::string_view> members;
    for (const Field& field : one->fields) {
      if (field.number) {
        EXPECT_TRUE(numbers.insert(field.number).second) << one->name << " " << field.json;
      }
      if (!field.json.empty()) {
        EXPECT_TRUE(members.insert(field.json).second) << one->name << " " << field.json;
      }
      EXPECT_EQ(field.json.empty(), field.inlined) << one->name << " " << field.number;
      EXPECT_EQ(field.message != nullptr, field.type == FieldType::Message || field.type == FieldType::SchemaOr) << one->name << " " << field.json;
      EXPECT_FALSE(field.map && field.repeated);
      EXPECT_EQ(field.list == ListKind::Map, !field.merge_key.empty()) << one->name << " " << field.json;
      if (field.list == ListKind::Map) {
        EXPECT_NE(field.message->find(field.merge_key), nullptr) << one->name << " " << field.json;
      }
      if (field.list_type == ListKind::Map) {
        EXPECT_FALSE(field.list_keys.empty()) << one->name << " " << field.json;
      }
    }
  }
}

TEST(TypeTable, TellsStrategiesApart) {
  const Type& spec = *table().find("io.k8s.api.core.v1.PodSpec");
  EXPECT_EQ(spec.find("volumes")->list, ListKind::Map);
  EXPECT_TRUE(spec.find("volumes")->retain_keys);
  EXPECT_EQ(spec.find("tolerations")->list, ListKind::Atomic);
  EXPECT_TRUE(spec.find("containers")->required);
  EXPECT_FALSE(spec.find("hostNetwork")->required);
  const Type& container = *table().find("io.k8s.api.core.v1.Container");
  EXPECT_EQ(container.find("ports")->merge_key, "containerPort");
  EXPECT_EQ(container.find("ports")->list_keys, "containerPort,protocol");
  EXPECT_EQ(table().find("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")->find("finalizers")->list, ListKind::Set);
  const Type& volume = *table().find("io.k8s.api.core.v1.Volume");
  ASSERT_NE(volume.find("emptyDir"), nullptr) << "through the inlined VolumeSource";
  EXPECT_EQ(volume.find("emptyDir")->message->name, "io.k8s.api.core.v1.EmptyDirVolumeSource");
  EXPECT_EQ(volume.find(""), nullptr);
}

TEST(UnknownFields, AreNamedByPath) {
  const auto unknown = [](std::string_view kind, std::string_view text) { return unknown_fields(*parse_json(text), type("v1", kind)); };
  EXPECT_THAT(unknown("Pod", R"({"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"any":"x"}},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"nodeSelector":{"a":"b"}}})"), IsEmpty());
  EXPECT_THAT(unknown("Pod", R"({"metdata":{},"spec":{"containers":[{"image":"a"},{"imag":"b","env":[{"nme":"x"}]}],"volumes":[{"emptyDir":{"size":1}}]},"status":{"x":{"y":1}}})"),
              ElementsAre("metdata", "spec.containers[1].imag", "spec.containers[1].env[0].nme", "spec.volumes[0].emptyDir.size", "status.x"));
  EXPECT_THAT(unknown("Pod", R"({"spec":{"Containers":[]}})"), ElementsAre("spec.Containers"));
  EXPECT_THAT(unknown("Pod", R"({"spec":"text","metadata":[1]})"), IsEmpty()) << "wrong types are type_errors' business";
  const Type& crd = type("apiextensions.k8s.io/v1", "CustomResourceDefinition");
  EXPECT_THAT(unknown_fields(*parse_json(R"({"spec":{"versions":[{"schema":{"openAPIV3Schema":{"properties":{"a":{"items":{"typ":"x"},"default":{"any":1},"additionalProperties":true,
    "x-kubernetes-int-or-string":true}}}}}]}})"), crd),
              ElementsAre("spec.versions[0].schema.openAPIV3Schema.properties.a.items.typ"));
}

TEST(TypeErrors, SayWhatWasExpected) {
  const auto errors = [](std::string_view api_version, std::string_view kind, std::string_view text) { return type_errors(*parse_json(text), type(api_version, kind)); };
  EXPECT_THAT(errors("apps/v1", "Deployment", R"({"spec":{"replicas":"3","paused":"yes","template":{"spec":{"containers":[{"name":1,"ports":[{"containerPort":80}]},"c"],"nodeSelector":{"a":1}}}}})"),
              ElementsAre("spec.replicas: expected integer, got string", "spec.paused: expected boolean, got string", "spec.template.spec.containers[1]: expected object, got string",
                          "spec.template.spec.containers[0].name: expected string, got integer", "spec.template.spec.nodeSelector.a: expected string, got integer"));
  EXPECT_THAT(errors("apps/v1", "Deployment", R"({"spec":{"replicas":3000000000,"minReadySeconds":1.5,"revisionHistoryLimit":2.0}})"),
              ElementsAre("spec.replicas: expected 32-bit integer, got integer", "spec.minReadySeconds: expected integer, got number"));
  EXPECT_THAT(errors("v1", "Pod", R"({"metadata":{"labels":[],"creationTimestamp":"yesterday","deletionTimestamp":"2026-01-02T03:04:05Z"},"spec":{"containers":{},
    "overhead":{"cpu":"1","memory":"2GB","x":3}}})"),
              ElementsAre("metadata.labels: expected object, got array", "metadata.creationTimestamp: expected RFC 3339 time, got \"yesterday\"", "spec.containers: expected array, got object",
                          "spec.overhead.memory: expected quantity, got \"2GB\""));
  EXPECT_THAT(errors("v1", "Secret", R"({"data":{"a":"aGk=","b":"*","c":"aG\nk=\n","d":null}})"), ElementsAre("data.b: expected base64 string, got \"*\""));
  for (const char* time : {"2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00.123456789Z", "x"})
    EXPECT_THAT(errors("coordination.k8s.io/v1", "Lease", fmt::format(R"({{"spec":{{"renewTime":"{}"}}}})", time)),
                ElementsAre(fmt::format("spec.renewTime: expected RFC 3339 time with microseconds, got \"{}\"", time)));
  EXPECT_THAT(errors("coordination.k8s.io/v1", "Lease", R"({"spec":{"renewTime":"2024-01-01T00:00:00.123456+01:00"}})"), IsEmpty());
  EXPECT_THAT(errors("v1", "Service", R"({"spec":{"ports":[{"port":80,"targetPort":"http"},{"port":81,"targetPort":1},{"port":82,"targetPort":true}]}})"),
              ElementsAre("spec.ports[2].targetPort: expected integer or string, got boolean"));
  EXPECT_THAT(errors("authentication.k8s.io/v1", "TokenReview", R"({"status":{"user":{"extra":{"a":["b"],"c":"d"}}}})"), ElementsAre("status.user.extra.c: expected array of string, got string"));
  EXPECT_THAT(errors("apiextensions.k8s.io/v1", "CustomResourceDefinition", R"({"spec":{"versions":[{"schema":{"openAPIV3Schema":{"additionalProperties":1,"items":[{}],"not":{"type":1}}}}]}})"),
              ElementsAre("spec.versions[0].schema.openAPIV3Schema.additionalProperties: expected object or boolean, got integer",
                          "spec.versions[0].schema.openAPIV3Schema.not.type: expected string, got integer"));
  EXPECT_THAT(errors("v1", "Pod", "[]"), ElementsAre("expected object, got array"));
  EXPECT_THAT(errors("v1", "Pod", R"({"spec":null,"metadata":{"labels":null,"finalizers":null}})"), IsEmpty());
}

TEST(GoForm, ZerosGoAndComeAsGoWritesThem) {
  const Type& pod = *TypeTable::builtin().find_kind("v1", "Pod");
  Json object = *parse_json(R"({"metadata":{"name":"p"},"spec":{"hostNetwork":false,"nodeName":"","priority":0,"volumes":[],"containers":[{"name":"m","args":[],"stdin":false,"env":[{"name":"e","value":""}]}]},
    "status":{"conditions":[{"type":"Ready","status":"True","message":""}]}})");
  drop_zeros(object, pod);
  EXPECT_EQ(print_json(object), R"({"metadata":{"name":"p"},"spec":{"priority":0,"containers":[{"name":"m","env":[{"name":"e"}]}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}})");
  add_zeros(object, pod);
  EXPECT_EQ(print_json(object),
            R"({"metadata":{"name":"p"},"spec":{"priority":0,"containers":[{"name":"m","env":[{"name":"e"}],"resources":{}}]},"status":{"conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":null}]}})");
  const Json once = object;
  drop_zeros(object, pod);
  add_zeros(object, pod);
  EXPECT_EQ(object, once);
}

}  // namespace
}  // namespace fairlead::kube
