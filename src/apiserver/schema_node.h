// SPDX-License-Identifier: Apache-2.0
// One node of a compiled schema; schema_compile.cpp makes it, schema.cpp uses it.
#pragma once
#include <re2/re2.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::apiserver {

enum class ListType { Atomic, Set, Map };

struct SchemaNode {
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
};

class FieldErrors;
// Defaults must fit their schemas: `x.default: Invalid value: ...` for each that does not.
void check_defaults(const SchemaNode& node, const std::string& path, FieldErrors& errors);

}  // namespace fairlead::apiserver
