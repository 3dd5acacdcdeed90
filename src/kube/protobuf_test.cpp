// SPDX-License-Identifier: Apache-2.0
// Bodies made by Go (tools/typetable/bodies): every kind decodes to the JSON that Go prints for the same object.
#include <gmock/gmock.h>

#include <fstream>

#include "base/encoding.h"
#include "base/rng.h"
#include "kube/type_table.h"

namespace fairlead::kube {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

struct Body {
  Json json;
  std::string bytes;
};
std::vector<Body> go_bodies() {
  std::ifstream file(SOURCE_DIR "/src/kube/testdata/protobuf_bodies.txt");
  std::vector<Body> bodies;
  for (std::string json, packed; std::getline(file, json) && std::getline(file, packed);) bodies.push_back({*parse_json(json), *parse_base64(packed)});
  return bodies;
}

std::string difference(const Json& a, const Json& b, const std::string& path = "") {
  if (a == b) return "";
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.members())
      if (auto found = difference(value, b[key], path + "." + key); !found.empty()) return found;
    for (const auto& [key, value] : b.members())
      if (!a.has(key)) return path + "." + key + ": only in Go: " + print_json(value);
  }
  if (a.is_array() && b.is_array() && a.items().size() == b.items().size()) {
    for (std::size_t i = 0; i < a.items().size(); ++i)
      if (auto found = difference(a.items()[i], b.items()[i], path + "[" + std::to_string(i) + "]"); !found.empty()) return found;
  }
  return path + ": " + print_json(a) + " here, " + print_json(b) + " in Go";
}

TEST(Protobuf, DecodesWhatGoEncodes) {
  const auto bodies = go_bodies();
  ASSERT_GT(bodies.size(), 60u);
  for (const Body& body : bodies) {
    ASSERT_TRUE(is_protobuf(body.bytes));
    const auto decoded = decode_protobuf(body.bytes, TypeTable::builtin());
    ASSERT_TRUE(decoded) << decoded.error().message << " in " << print_json(body.json).substr(0, 200);
    EXPECT_EQ(difference(*decoded, body.json), "") << body.json["kind"].string();
    const Type* type = TypeTable::builtin().find_kind(body.json["apiVersion"].string(), body.json["kind"].string());
    ASSERT_NE(type, nullptr) << print_json(body.json).substr(0, 200);
    EXPECT_THAT(unknown_fields(*decoded, *type), IsEmpty()) << type->name;
    EXPECT_THAT(type_errors(*decoded, *type), IsEmpty()) << type->name;
  }
}

std::string envelope(std::string_view api_version, std::string_view kind, std::string_view raw) {
  const auto field = [](int number, std::string_view bytes) {
    std::string out(1, static_cast<char>(number << 3 | 2));
    for (std::size_t length = bytes.size(); true; length >>= 7) {
      out += static_cast<char>((length & 0x7f) | (length > 0x7f ? 0x80 : 0));
      if (length <= 0x7f) break;
    }
    return out + std::string(bytes);
  };
  return std::string("k8s\0", 4) + field(1, field(1, api_version) + field(2, kind)) + field(2, raw);
}
std::string decoded(const std::string& body) {
  const auto object = decode_protobuf(body, TypeTable::builtin());
  return object ? print_json(*object) : "error: " + object.error().message;
}

TEST(Protobuf, SkipsFieldsOfNewerClients) {
  EXPECT_EQ(decoded(envelope("v1", "ConfigMap", std::string("\xf8\x07\x05\x0a\x03\x0a\x01n", 8))), R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"}})");
}

TEST(Protobuf, KeepsTheLastOfEqualMapKeys) {
  EXPECT_EQ(decoded(envelope("v1", "ConfigMap", std::string("\x12\x06\x0a\x01k\x12\x01" "1\x12\x06\x0a\x01k\x12\x01" "2\x12\x03\x0a\x01j", 21))),
            R"({"apiVersion":"v1","kind":"ConfigMap","data":{"k":"2","j":""}})");
}

TEST(Protobuf, SaysWhatIsWrong) {
  EXPECT_EQ(decoded("{}"), "error: protobuf body: does not start with k8s\\0");
  EXPECT_EQ(decoded(envelope("v1", "Foo", "")), "error: protobuf body: no kind \"Foo\" is known for version \"v1\"");
  EXPECT_EQ(decoded(envelope("v1", "Pod", "\x0a")), "error: protobuf body: unexpected end");
  EXPECT_EQ(decoded(envelope("v1", "Pod", "\x0a\x05x")), "error: protobuf body: unexpected end");
  EXPECT_EQ(decoded(envelope("v1", "Pod", "\x08\x01")), "error: protobuf body: field 1 has wire type 0");
  EXPECT_EQ(decoded(envelope("v1", "Pod", "\x0b")), "error: protobuf body: wire type 3");
  EXPECT_EQ(decoded(envelope("v1", "Pod", std::string("\x02\x00", 2))), "error: protobuf body: field number 0");
  EXPECT_EQ(decoded(envelope("v1", "Pod", "\x0a\x03\x0a\x01\xff")), "error: protobuf body: a string is not UTF-8");
}

TEST(Protobuf, StopsAtTheDepthLimit) {
  std::string schema;  // JSONSchemaProps.not (31) in itself
  for (int i = 0; i < 300; ++i) {
    std::string length;
    for (std::size_t rest = schema.size(); true; rest >>= 7) {
      length += static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
      if (rest <= 0x7f) break;
    }
    const unsigned tag = TypeTable::builtin().find("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")->find("not")->number << 3 | 2;
    schema = std::string{static_cast<char>(tag | 0x80), static_cast<char>(tag >> 7)} + length + schema;
  }
  const auto wrapped = [](char tag, const std::string& inner) {
    std::string length;
    for (std::size_t rest = inner.size(); true; rest >>= 7) {
      length += static_cast<char>((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
      if (rest <= 0x7f) break;
    }
    return std::string(1, tag) + length + inner;
  };
  // spec(2).versions(7).schema(4).openAPIV3Schema(1)
  EXPECT_THAT(decoded(envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", wrapped(0x12, wrapped(0x3a, wrapped(0x22, wrapped(0x0a, schema)))))), HasSubstr("nested deeper"));
}

TEST(ProtobufProperty, DamagedBodiesNeverCrash) {
  const auto bodies = go_bodies();
  for (std::uint64_t seed = 0; seed < 5'000; ++seed) {
    Rng rng(seed);
    std::string bytes = bodies[rng.below(bodies.size())].bytes;
    for (auto n = rng.below(4) + 1; n > 0; --n) bytes[4 + rng.below(bytes.size() - 4)] = static_cast<char>(rng.next());
    if (rng.below(3) == 0) bytes.resize(4 + rng.below(bytes.size() - 4));
    if (const auto object = decode_protobuf(bytes, TypeTable::builtin())) {
      EXPECT_TRUE(parse_json(print_json(*object))) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace fairlead::kube
