// SPDX-License-Identifier: Apache-2.0
// One node of a compiled schema; schema_compile.cpp makes it, schema.cpp uses it.
#pragma once
#include <re2/re2.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cel/cel.h"
#include "kube/json.h"

namespace fairlead::apiserver {

class FieldErrors;
enum class ListType { Atomic, Set, Map };

// One of x-kubernetes-validations.
struct SchemaRule {
  cel::Program test;
  std::optional<cel::Program> message_of;  // messageExpression
  std::string message, reason, field_path;
  bool transition = false;  // it asks what was there before
};

struct SchemaNode : cel::Shape {
  std::string type;  // "" : any
  std::string format;
  bool nullable = false, int_or_string = false, preserve_unknown = false, embedded_resource = false, rules = false, atomic_map = false;
  std::optional<kube::Json> default_value;
  bool defaults_below = false;  // some default is in or below this node
  std::vector<kube::Json> allowed;  // enum
  std::optional<double> minimum, maximum, multiple_of;
  bool exclusive_minimum = false, exclusive_maximum = false;
  std::optional<std::int64_t> min_length, max_length, min_items, max_items, min_properties, max_properties;
  bool unique_items = false;
  std::unique_ptr<re2::RE2> pattern;
  std::map<std::string, std::unique_ptr<SchemaNode>, std::less<>> properties;
  std::unique_ptr<SchemaNode> additional;  // of every other member
  bool additional_any = false;             // additionalProperties: true
  std::unique_ptr<SchemaNode> items;
  std::vector<std::string> required;
  ListType list_type = ListType::Atomic;
  std::vector<std::string> list_map_keys;
  std::vector<std::unique_ptr<SchemaNode>> all_of, any_of, one_of;
  std::unique_ptr<SchemaNode> none_of;  // not
  std::vector<SchemaRule> own_rules;
  std::vector<std::string> rules_left_out;  // why, of those that cannot be evaluated here: own ones

  Kind shape_kind() const override;
  const cel::Shape* shape_of(std::string_view member) const override;
  const cel::Shape* shape_of_items() const override { return items.get(); }
};
// From x-kubernetes-validations of a node into its own_rules and rules_left_out.
void compile_rules(const kube::Json& from, SchemaNode& node);
// Evaluates them in and below the root; `errors`: what was found of the object before.
void check_rules(const SchemaNode& root, const kube::Json& object, const kube::Json* old, FieldErrors& errors);

// Defaults must fit their schemas: `x.default: Invalid value: ...` for each that does not.
void check_defaults(const SchemaNode& node, const std::string& path, FieldErrors& errors);

}  // namespace fairlead::apiserver
