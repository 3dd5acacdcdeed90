// SPDX-License-Identifier: Apache-2.0
// A JSON value while a request or a reconcile works on it. Objects at rest stay bytes (see store, caches): no tree is kept.
#pragma once
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace fairlead::kube {

class Json;
using JsonMember = std::pair<std::string, Json>;

// Values by value; object members keep their order; lookups are linear (Kubernetes objects have few members a level).
class Json {
 public:
  enum class Type { Null, Bool, Int, Double, String, Array, Object };
  using ArrayType = std::vector<Json>;
  using ObjectType = std::vector<JsonMember>;

  Json();
  Json(std::nullptr_t);
  Json(bool value);
  Json(int value);
  Json(std::int64_t value);
  Json(double value);
  Json(const char* text);
  Json(std::string text);
  Json(std::string_view text);
  static Json array();
  static Json array(std::vector<Json> items);
  static Json object();
  // Json::object({{"name", "x"}, {"count", 3}})
  static Json object(std::vector<JsonMember> members);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  Type type() const;
  bool is_null() const { return type() == Type::Null; }
  bool is_string() const { return type() == Type::String; }
  bool is_object() const { return type() == Type::Object; }
  bool is_array() const { return type() == Type::Array; }
  bool is_bool() const { return type() == Type::Bool; }
  bool is_number() const { return type() == Type::Int || type() == Type::Double; }

  // Reads that never fail: of another type, the default.
  const std::string& string() const;  // ""
  std::string string_or(std::string_view otherwise) const;
  bool boolean(bool otherwise = false) const;
  std::int64_t integer(std::int64_t otherwise = 0) const;  // a double with an integral value counts
  double number(double otherwise = 0) const;
  const ArrayType& items() const;     // of an array; else empty
  const ObjectType& members() const;  // of an object; else empty
  ArrayType& items();                 // makes this an array if it is null; INVARIANT otherwise
  ObjectType& members();              // makes this an object if it is null; INVARIANT otherwise

  // Member access: a null Json where there is none. Chains: pod["spec"]["nodeName"].string()
  const Json& operator[](std::string_view key) const;
  const Json& operator[](const char* key) const { return (*this)[std::string_view(key)]; }
  const Json* find(std::string_view key) const;  // nullptr: absent (a present null is a value)
  Json* find(std::string_view key);
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // "metadata.labels" style lookup for fixed paths without dots in names.
  const Json& at(std::string_view dotted) const;

  // Writes: makes objects on the way. set replaces or appends.
  Json& set(std::string_view key, Json value);  // returns *this
  Json& child(std::string_view key);            // the member, made as null if absent
  bool erase(std::string_view key);
  void push(Json value);

  friend bool operator==(const Json&, const Json&);  // member order does not matter; 1 and 1.0 are equal

 private:
  struct Storage;
  std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, std::unique_ptr<ArrayType>, std::unique_ptr<ObjectType>> value_;
};

struct ParseOptions {
  std::size_t depth_limit = 256;
  // Filled, if given, with paths like `spec.containers[0].image` that occur twice in one object (the last value counts, as in Go).
  std::vector<std::string>* duplicates = nullptr;
};
// Strict RFC 8259, UTF-8 checked, by simdjson. Invalid: with the reason. Integers outside int64 become doubles.
Result<Json> parse_json(std::string_view text, const ParseOptions& options = {});

// Compact, members in order, no needless escapes; doubles shortest round-trip.
std::string print_json(const Json& value);
void append_json(std::string& out, const Json& value);
void append_json_string(std::string& out, std::string_view text);
std::string print_json_indented(const Json& value, int spaces = 2);  // for people

// YAML as Kubernetes reads it (YAML 1.1 scalars as sigs.k8s.io/yaml: on/off/yes/no are booleans only where yaml.v2 does so), one or many documents;
// empty documents are skipped. Invalid: "line 3, column 7: ..."; a key that occurs twice in one map is Invalid too.
Result<std::vector<Json>> parse_yaml(std::string_view text);
std::string print_yaml(const Json& value);  // block style, ends with a newline

}  // namespace fairlead::kube
