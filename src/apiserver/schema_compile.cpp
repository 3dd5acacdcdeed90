// SPDX-License-Identifier: Apache-2.0
// From openAPIV3Schema to SchemaNode, with the structural rules of apiextensions: every field has a type, value checks carry none, defaults are valid.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apiserver/schema.h"
#include "apiserver/schema_node.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr int depth_limit = 100;
constexpr std::array<std::string_view, 47> known_members{
    "$schema", "additionalItems", "additionalProperties", "allOf", "anyOf", "default", "definitions", "dependencies", "description", "enum", "example", "exclusiveMaximum", "exclusiveMinimum",
    "externalDocs", "format", "id", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "nullable", "oneOf",
    "pattern", "patternProperties", "properties", "required", "title", "type", "uniqueItems", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations", "$ref", "x-kubernetes-group-version-kind", "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy"};
constexpr std::array<std::string_view, 6> types{"array", "boolean", "integer", "number", "object", "string"};

enum class Place { Structural, ValueCheck };  // value checks are the nodes below allOf, anyOf, oneOf and not

std::optional<std::int64_t> count_at(const Json& from, const char* name) {
  const Json& value = from[name];
  return value.is_number() ? std::optional(value.integer()) : std::nullopt;
}
std::optional<double> number_at(const Json& from, const char* name) {
  const Json& value = from[name];
  return value.is_number() ? std::optional(value.number()) : std::nullopt;
}

std::unique_ptr<SchemaNode> compile_node(const Json& from, const std::string& path, Place place, int depth, FieldErrors& errors, bool types_allowed = false);

void compile_children(const Json& from, const std::string& path, Place place, int depth, SchemaNode& node, FieldErrors& errors) {
  for (const auto& [name, child] : from["properties"].members()) {
    auto compiled = compile_node(child, fmt::format("{}.properties[{}]", path, name), place, depth + 1, errors);
    node.properties.insert_or_assign(name, std::move(compiled));
  }
  if (const Json* additional = from.find("additionalProperties")) {
    if (additional->is_object()) node.additional = compile_node(*additional, path + ".additionalProperties", place, depth + 1, errors);
    else node.additional_any = additional->boolean();
    if (place == Place::Structural && !node.properties.empty() && (node.additional || node.additional_any))
      errors.forbidden(path + ".additionalProperties", "additionalProperties and properties are mutual exclusive");
  }
  if (const Json* items = from.find("items")) {
    if (items->is_object()) node.items = compile_node(*items, path + ".items", place, depth + 1, errors);
    else errors.forbidden(path + ".items", "items must be a schema object and not an array");
  }
  const bool int_or_string = from["x-kubernetes-int-or-string"].boolean() || place == Place::ValueCheck;
  const auto checks = [&](const char* name, std::vector<std::unique_ptr<SchemaNode>>& into) {
    const auto& all = from[name].items();
    for (std::size_t i = 0; i < all.size(); ++i) into.push_back(compile_node(all[i], fmt::format("{}.{}[{}]", path, name, i), Place::ValueCheck, depth + 1, errors, int_or_string));
  };
  checks("allOf", node.all_of);
  checks("anyOf", node.any_of);
  checks("oneOf", node.one_of);
  if (const Json* none = from.find("not")) node.none_of = compile_node(*none, path + ".not", Place::ValueCheck, depth + 1, errors);
}

void compile_list(const Json& from, const std::string& path, SchemaNode& node, FieldErrors& errors) {
  const std::string& list_type = from["x-kubernetes-list-type"].string();
  if (list_type == "set") node.list_type = ListType::Set;
  else if (list_type == "map") node.list_type = ListType::Map;
  else if (!list_type.empty() && list_type != "atomic") errors.unsupported_value(path + ".x-kubernetes-list-type", list_type, {"atomic", "set", "map"});
  node.atomic_map = from["x-kubernetes-map-type"].string() == "atomic";
  for (const Json& key : from["x-kubernetes-list-map-keys"].items()) node.list_map_keys.push_back(key.string());
  if (node.list_type == ListType::Map && node.list_map_keys.empty()) errors.required(path + ".x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map");
  if (node.list_type != ListType::Map && !node.list_map_keys.empty()) errors.forbidden(path + ".x-kubernetes-list-map-keys", "must be empty if x-kubernetes-list-type is not map");
  if (from["uniqueItems"].boolean()) errors.forbidden(path + ".uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic");
}

void compile_bounds(const Json& from, const std::string& path, SchemaNode& node, FieldErrors& errors) {
  node.minimum = number_at(from, "minimum");
  node.maximum = number_at(from, "maximum");
  node.multiple_of = number_at(from, "multipleOf");
  if (node.multiple_of && *node.multiple_of <= 0) {
    errors.invalid(path + ".multipleOf", from["multipleOf"], "must be greater than 0");
    node.multiple_of.reset();
  }
  node.exclusive_minimum = from["exclusiveMinimum"].boolean();
  node.exclusive_maximum = from["exclusiveMaximum"].boolean();
  node.min_length = count_at(from, "minLength");
  node.max_length = count_at(from, "maxLength");
  node.min_items = count_at(from, "minItems");
  node.max_items = count_at(from, "maxItems");
  node.min_properties = count_at(from, "minProperties");
  node.max_properties = count_at(from, "maxProperties");
  for (const Json& one : from["enum"].items()) node.allowed.push_back(one);
  for (const Json& one : from["required"].items()) node.required.push_back(one.string());
  if (const std::string& pattern = from["pattern"].string(); !pattern.empty()) {
    re2::RE2::Options options(re2::RE2::Quiet);
    options.set_max_mem(1 << 20);
    node.pattern = std::make_unique<re2::RE2>(pattern, options);
    if (!node.pattern->ok()) {
      errors.invalid(path + ".pattern", pattern, fmt::format("must be a valid regular expression, but isn't: {}", node.pattern->error()));
      node.pattern.reset();
    }
  }
}

void check_list_keys(const SchemaNode& node, const std::string& path, FieldErrors& errors) {
  if (!node.items || node.list_map_keys.empty()) return;
  const SchemaNode& item = *node.items;
  for (const std::string& key : node.list_map_keys) {
    const auto found = item.properties.find(key);
    if (found == item.properties.end()) {
      std::string shown;
      for (const std::string& one : node.list_map_keys) shown += fmt::format("{}\"{}\"", shown.empty() ? "" : ", ", one);
      errors.add(fmt::format("{}.x-kubernetes-list-map-keys: Invalid value: []string{{{}}}: entries must all be names of item properties", path, shown));
      return;
    }
    const bool required = std::find(item.required.begin(), item.required.end(), key) != item.required.end();
    if (!required && !found->second->default_value)
      errors.required(fmt::format("{}.items.properties[{}].default", path, key), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property");
  }
}

// `types_allowed`: the two checks of an int-or-string name their types.
std::unique_ptr<SchemaNode> compile_node(const Json& from, const std::string& path, Place place, int depth, FieldErrors& errors, bool types_allowed) {
  auto made = std::make_unique<SchemaNode>();
  SchemaNode& node = *made;
  if (!from.is_object()) {
    errors.invalid(path, from, "must be a schema object");
    return made;
  }
  if (depth > depth_limit) {
    errors.invalid(path, "", fmt::format("schemas are at most {} levels deep", depth_limit));
    return made;
  }
  for (const auto& [name, value] : from.members())
    if (std::find(known_members.begin(), known_members.end(), name) == known_members.end()) errors.invalid(path, name, "unknown field in a schema");
  if (from.has("$ref")) errors.forbidden(path + ".$ref", "$ref is not supported");
  for (const char* name : {"definitions", "dependencies", "patternProperties", "additionalItems", "id"})
    if (from.has(name)) errors.forbidden(path + "." + name, fmt::format("{} is not supported", name));

  node.type = from["type"].string();
  node.format = from["format"].string();
  node.nullable = from["nullable"].boolean();
  node.int_or_string = from["x-kubernetes-int-or-string"].boolean();
  node.preserve_unknown = from["x-kubernetes-preserve-unknown-fields"].boolean();
  node.embedded_resource = from["x-kubernetes-embedded-resource"].boolean();
  compile_rules(from["x-kubernetes-validations"], node);
  node.rules = !node.own_rules.empty();
  if (!node.type.empty() && std::find(types.begin(), types.end(), node.type) == types.end())
    errors.unsupported_value(path + ".type", node.type, {types.begin(), types.end()});
  if (place == Place::Structural) {
    const std::string_view where = depth == 0 ? "must not be empty at the root" : "must not be empty for specified object fields";
    if (node.type.empty() && !node.int_or_string && !node.preserve_unknown && !from.has("$ref")) errors.required(path + ".type", where);
    if (!node.type.empty() && node.int_or_string) errors.invalid(path + ".type", node.type, "must be empty if x-kubernetes-int-or-string is true");
    if (node.type == "array" && !from.has("items")) errors.required(path + ".items", "must be specified");
  } else {
    if (from.has("default")) errors.forbidden(path + ".default", "must be undefined to be structural");
    if (!node.type.empty() && !types_allowed) errors.forbidden(path + ".type", "must be empty to be structural");
    for (const char* name : {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string", "nullable"})
      if (from[name].boolean()) errors.forbidden(fmt::format("{}.{}", path, name), "must be false to be structural");
  }
  compile_bounds(from, path, node, errors);
  compile_list(from, path, node, errors);
  compile_children(from, path, place, depth, node, errors);
  if (place == Place::Structural && node.list_type == ListType::Map) check_list_keys(node, path, errors);
  if (const Json* value = from.find("default"); value && place == Place::Structural) node.default_value = *value;

  node.defaults_below = node.default_value.has_value() || (node.items && node.items->defaults_below) || (node.additional && node.additional->defaults_below);
  node.rules = node.rules || (node.items && node.items->rules) || (node.additional && node.additional->rules);
  for (const auto& [name, child] : node.properties) {
    node.defaults_below = node.defaults_below || child->defaults_below;
    node.rules = node.rules || child->rules;
  }
  return made;
}

}  // namespace

std::shared_ptr<const Schema> Schema::compile(const Json& open_api, const std::string& path, FieldErrors& errors) {
  FieldErrors own;
  auto root = compile_node(open_api, path, Place::Structural, 0, own);
  if (root->type != "object" && own.empty()) own.invalid(path + ".type", root->type, "must be object at the root");
  if (own.empty()) check_defaults(*root, path, own);
  for (const std::string& text : own.texts()) errors.add(text);
  if (!own.empty()) return nullptr;
  // The object's own frame is checked elsewhere.
  root->embedded_resource = true;
  return std::shared_ptr<const Schema>(new Schema(std::move(root)));
}

}  // namespace fairlead::apiserver
