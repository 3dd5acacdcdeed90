// SPDX-License-Identifier: Apache-2.0
#include "apiserver/table.h"

#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

const char* const sample = R"({"metadata":{"name":"m","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a.b/c":"v"}},
  "spec":{"gpus":8,"ratio":0.5,"on":true,"list":["x","y"]},
  "status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Fine","status":"False"}]}})";

TEST(TablePath, SelectsWhatPrinterColumnsName) {
  const kube::Json object = *kube::parse_json(sample);
  struct Row {
    const char* path;
    std::vector<std::string> want;
  };
  for (const Row& row : {Row{".spec.gpus", {"8"}}, Row{"{.spec.gpus}", {"8"}}, Row{"spec.gpus", {"8"}}, Row{".metadata.labels['a.b/c']", {"\"v\""}},
                         Row{".metadata.labels.a\\.b/c", {"\"v\""}}, Row{".spec.list[1]", {"\"y\""}}, Row{".spec.list[-1]", {"\"y\""}}, Row{".spec.list[*]", {"\"x\"", "\"y\""}},
                         Row{".spec.list[7]", {}}, Row{".status.conditions[?(@.type==\"Ready\")].status", {"\"True\""}},
                         Row{".status.conditions[?(@.type=='Fine')].status", {"\"False\""}}, Row{".status.conditions[?(@.type != 'Fine')].status", {"\"True\""}},
                         Row{".status.conditions[?(@.status)].type", {"\"Ready\"", "\"Fine\""}}, Row{".none.of.it", {}}}) {
    auto path = TablePath::parse(row.path);
    ASSERT_TRUE(path) << row.path << ": " << path.error().message;
    std::vector<std::string> found;
    for (const kube::Json* value : path->find(object)) found.push_back(kube::print_json(*value));
    EXPECT_EQ(found, row.want) << row.path;
  }
}

TEST(TablePath, RefusesWhatItDoesNotUnderstand) {
  for (const char* bad : {".a[", ".a[x]", ".a[?(b)]", ".a[?(@.b=1)]", ".a['b]", ".a[?(@.b=='c')", ".a..b"}) {
    auto path = TablePath::parse(bad);
    EXPECT_FALSE(path) << bad;
  }
}

TEST(Table, ConvertsCellsToTheirColumnTypes) {
  const kube::Json object = *kube::parse_json(sample);
  Kind kind;
  const auto column = [](const char* name, const char* type, const char* path) {
    Column out;
    out.name = name, out.type = type, out.path = path;
    return out;
  };
  kind.columns = {column("GPUs", "integer", ".spec.gpus"),   column("Ratio", "number", ".spec.ratio"),   column("On", "boolean", ".spec.on"),
                  column("List", "string", ".spec.list[*]"), column("Wrong", "integer", ".spec.on"),     column("None", "string", ".spec.nothing"),
                  column("Age", "date", ".metadata.creationTimestamp")};
  const TableShape shape(kind);
  const Instant now = *parse_time("2026-01-01T00:05:00Z");
  const kube::Json row = shape.row(object, Include::Metadata, now);
  EXPECT_EQ(kube::print_json(row["cells"]), R"(["m",8,0.5,true,"x,y",null,null,"5m"])");
  EXPECT_EQ(row["object"]["kind"].string(), "PartialObjectMetadata");
  EXPECT_TRUE(row["object"]["spec"].is_null());
  EXPECT_EQ(shape.definitions().items().size(), 8u);
  EXPECT_EQ(shape.definitions().items()[0]["format"].string(), "name");
  EXPECT_EQ(shape.row(object, Include::Object, now)["object"]["spec"]["gpus"].integer(), 8);
  EXPECT_TRUE(shape.row(object, Include::None, now)["object"].is_null());
}

TEST(Table, ABuiltInKindPutsItsNameWhereItWants) {
  Kind kind;
  Column first, name;
  first.name = "Reason", first.cell = [](const kube::Json& object, Instant) { return object["reason"]; };
  name.name = "Name", name.format = "name", name.cell = [](const kube::Json& object, Instant) { return object["metadata"]["name"]; };
  kind.columns = {first, name};
  const TableShape shape(kind);
  const kube::Json event = *kube::parse_json(R"({"metadata":{"name":"e"},"reason":"Fell"})");
  EXPECT_EQ(kube::print_json(shape.row(event, Include::None, {})["cells"]), R"(["Fell","e"])");
  EXPECT_EQ(shape.definitions().items()[0]["format"].string(), "");
}

TEST(Table, AKindWithoutColumnsShowsNameAndAge) {
  const kube::Json object = *kube::parse_json(sample);
  const TableShape shape{Kind{}};
  EXPECT_EQ(kube::print_json(shape.row(object, Include::None, *parse_time("2026-01-01T00:00:42Z"))["cells"]), R"(["m","42s"])");
  const kube::Json frame = table_frame(shape, kube::Json::object({{"resourceVersion", "7"}}), {}, false);
  EXPECT_EQ(frame["columnDefinitions"].items().size(), 0u);
  EXPECT_EQ(frame["apiVersion"].string(), "meta.k8s.io/v1");
}

}  // namespace
}  // namespace fairlead::apiserver
