// SPDX-License-Identifier: Apache-2.0
#include "apiserver/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_set>

#include "apiserver/schema_node.h"
#include "base/clock.h"
#include "base/encoding.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

bool frame_member(std::string_view name) { return name == "apiVersion" || name == "kind" || name == "metadata"; }

std::string below(const std::string& path, std::string_view name) { return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name); }

const SchemaNode* child_of(const SchemaNode& node, std::string_view name) {
  const auto found = node.properties.find(name);
  if (found != node.properties.end()) return found->second.get();
  return node.additional.get();
}

void fill_defaults(Json& value, const SchemaNode& node) {
  if (!node.defaults_below) return;
  if (value.is_object()) {
    for (const auto& [name, child] : node.properties) {
      if (!child->default_value) continue;
      const Json* there = value.find(name);
      if (!there || (there->is_null() && !child->nullable)) value.set(name, *child->default_value);
    }
    for (auto& [name, member] : value.members())
      if (const SchemaNode* child = child_of(node, name)) fill_defaults(member, *child);
  } else if (value.is_array() && node.items) {
    for (Json& item : value.items()) {
      if (item.is_null() && !node.items->nullable && node.items->default_value) item = *node.items->default_value;
      fill_defaults(item, *node.items);
    }
  }
}

// A null that is not allowed counts as nothing sent, unless there is a default for it.
void drop_nulls(Json& value, const SchemaNode& node) {
  if (value.is_object()) {
    std::erase_if(value.members(), [&](const kube::JsonMember& member) {
      const SchemaNode* child = member.second.is_null() ? child_of(node, member.first) : nullptr;
      return child != nullptr && !child->nullable && !child->default_value && !child->type.empty();
    });
    for (auto& [name, member] : value.members())
      if (const SchemaNode* child = child_of(node, name)) drop_nulls(member, *child);
  } else if (value.is_array() && node.items) {
    for (Json& item : value.items()) drop_nulls(item, *node.items);
  }
}

void cut(Json& value, const SchemaNode& node, const std::string& path, std::vector<std::string>& unknown) {
  if (value.is_array()) {
    if (!node.items) return;
    for (std::size_t i = 0; i < value.items().size(); ++i) cut(value.items()[i], *node.items, fmt::format("{}[{}]", path, i), unknown);
    return;
  }
  if (!value.is_object()) return;
  const bool open = node.preserve_unknown || node.additional_any;
  auto& members = value.members();
  std::erase_if(members, [&](const kube::JsonMember& member) {
    if (open || child_of(node, member.first) || (node.embedded_resource && frame_member(member.first))) return false;
    unknown.push_back(below(path, member.first));
    return true;
  });
  for (auto& [name, member] : members) {
    if (node.embedded_resource && frame_member(name)) continue;
    if (const SchemaNode* child = child_of(node, name)) cut(member, *child, below(path, name), unknown);
  }
}

bool all_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
}

bool is_ipv4(std::string_view text) {
  const auto parts = split(text, '.');
  return parts.size() == 4 && std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
           return !part.empty() && part.size() <= 3 && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); }) && (part.size() == 1 || part[0] != '0') &&
                  std::stoi(part) <= 255;
         });
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (const std::size_t at : {8u, 13u, 18u, 23u})
    if (text[at] != '-') return false;
  std::string digits(text);
  std::erase(digits, '-');
  return digits.size() == 32 && all_hex(digits);
}

// Formats that are not in this list are accepted unchecked, as in Kubernetes.
bool format_fits(const std::string& format, const std::string& text) {
  if (format == "date-time") return parse_time(text).has_value();
  if (format == "date") return text.size() == 10 && parse_time(text + "T00:00:00Z").has_value();
  if (format == "byte") return parse_base64(text).has_value();
  if (format == "ipv4") return is_ipv4(text);
  if (format == "uuid") return is_uuid(text);
  return true;
}

// As Go shows a map[string]interface{} with %#v.
std::string go_map(const Json& object) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : object.members()) parts.push_back(fmt::format("\"{}\":{}", name, print_json(value)));
  std::sort(parts.begin(), parts.end());
  return fmt::format("map[string]interface {{}}{{{}}}", fmt::join(parts, ", "));
}

class Checker {
 public:
  explicit Checker(FieldErrors& errors) : errors_(errors) {}

  void check(const Json& value, const SchemaNode& node, const std::string& path) {
    if (value.is_null()) {
      if (!node.nullable) wrong_type(value, node, path);
      return;
    }
    if (!type_fits(value, node)) return wrong_type(value, node, path);
    check_value(value, node, path);
    if (value.is_object()) check_object(value, node, path);
    if (value.is_array()) check_array(value, node, path);
  }

 private:
  static bool type_fits(const Json& value, const SchemaNode& node) {
    constexpr double beyond = 9223372036854775808.0;
    const bool whole = value.type() == Json::Type::Int || (value.is_number() && std::trunc(value.number()) == value.number() && std::fabs(value.number()) < beyond);
    if (node.int_or_string) return value.is_string() || whole;
    if (node.type.empty()) return true;
    if (node.type == "object") return value.is_object();
    if (node.type == "array") return value.is_array();
    if (node.type == "string") return value.is_string();
    if (node.type == "boolean") return value.is_bool();
    if (node.type == "number") return value.is_number();
    if (node.type == "integer") return whole;
    return false;
  }

  void wrong_type(const Json& value, const SchemaNode& node, const std::string& path) {
    const std::string type = node.int_or_string ? "integer,string" : node.type;
    if (type.empty()) return;
    const char* actual = "object";
    if (value.is_null()) actual = "null";
    if (value.is_array()) actual = "array";
    if (value.is_string()) actual = "string";
    if (value.is_bool()) actual = "boolean";
    if (value.is_number()) actual = value.type() == Json::Type::Int ? "integer" : "number";
    errors_.invalid(path, actual, fmt::format("{} in body must be of type {}: \"{}\"", path, type, actual));
  }

  void check_bounds(const Json& value, const SchemaNode& node, const std::string& path) {
    const double number = value.number();
    if (node.minimum && (node.exclusive_minimum ? number <= *node.minimum : number < *node.minimum))
      errors_.invalid(path, value, fmt::format("{} in body should be greater than {}{}", path, node.exclusive_minimum ? "" : "or equal to ", *node.minimum));
    if (node.maximum && (node.exclusive_maximum ? number >= *node.maximum : number > *node.maximum))
      errors_.invalid(path, value, fmt::format("{} in body should be less than {}{}", path, node.exclusive_maximum ? "" : "or equal to ", *node.maximum));
    if (node.multiple_of && std::fabs(std::remainder(number, *node.multiple_of)) > 1e-9)
      errors_.invalid(path, value, fmt::format("{} in body should be a multiple of {}", path, *node.multiple_of));
    if (node.format == "int32" && (number < -2147483648.0 || number > 2147483647.0)) errors_.invalid(path, value, fmt::format("{} in body must be of type int32: \"{}\"", path, print_json(value)));
    if (node.format == "int64" && value.type() != Json::Type::Int && std::fabs(number) >= 9223372036854775808.0)
      errors_.invalid(path, value, fmt::format("{} in body must be of type int64: \"{}\"", path, print_json(value)));
  }

  void check_text(const Json& value, const SchemaNode& node, const std::string& path) {
    const std::string& text = value.string();
    const auto length = static_cast<std::int64_t>(code_points(text));
    if (node.max_length && length > *node.max_length) errors_.too_long(path, static_cast<std::size_t>(*node.max_length));
    if (node.min_length && length < *node.min_length) errors_.invalid(path, value, fmt::format("{} in body should be at least {} chars long", path, *node.min_length));
    if (node.pattern && !re2::RE2::PartialMatch(text, *node.pattern)) errors_.invalid(path, value, fmt::format("{} in body should match '{}'", path, node.pattern->pattern()));
    if (!node.format.empty() && !format_fits(node.format, text)) errors_.invalid(path, value, fmt::format("{} in body must be of type {}: {}", path, node.format, print_json(value)));
  }

  void check_value(const Json& value, const SchemaNode& node, const std::string& path) {
    if (value.is_number()) check_bounds(value, node, path);
    if (value.is_string()) check_text(value, node, path);
    if (!node.allowed.empty() && std::find(node.allowed.begin(), node.allowed.end(), value) == node.allowed.end()) {
      std::vector<std::string> shown;
      for (const Json& one : node.allowed) shown.push_back(one.is_string() ? one.string() : print_json(one));
      errors_.unsupported_value(path, value, {shown.begin(), shown.end()});
    }
    for (const auto& one : node.all_of) check(value, *one, path);
    const auto count_fitting = [&](const auto& ones) {
      return std::count_if(ones.begin(), ones.end(), [&](const auto& one) {
        FieldErrors tried;
        Checker(tried).check(value, *one, path);
        return tried.empty();
      });
    };
    // Kubernetes' checker loses the place of these, and tells what the first alternative lacks.
    const auto none = [&](const auto& ones, std::string_view must) {
      errors_.add(fmt::format("<nil>: Invalid value: \"\": \"{}\" must validate {}", path, must));
      check(value, *ones.front(), path);
    };
    if (!node.any_of.empty() && count_fitting(node.any_of) == 0) none(node.any_of, "at least one schema (anyOf)");
    if (!node.one_of.empty()) {
      const auto fitting = count_fitting(node.one_of);
      if (fitting == 0) none(node.one_of, "one and only one schema (oneOf). Found none valid");
      if (fitting > 1) errors_.add(fmt::format("<nil>: Invalid value: \"\": \"{}\" must validate one and only one schema (oneOf). Found {} valid alternatives", path, fitting));
    }
    if (node.none_of) {
      FieldErrors tried;
      Checker(tried).check(value, *node.none_of, path);
      if (tried.empty()) errors_.add(fmt::format("<nil>: Invalid value: \"\": \"{}\" must not validate the schema (not)", path));
    }
  }

  void check_object(const Json& value, const SchemaNode& node, const std::string& path) {
    const auto count = static_cast<std::int64_t>(value.members().size());
    if (node.max_properties && count > *node.max_properties) errors_.too_many(path, static_cast<std::size_t>(count), static_cast<std::size_t>(*node.max_properties));
    if (node.min_properties && count < *node.min_properties) errors_.invalid(path, count, fmt::format("{} in body should have at least {} properties", path, *node.min_properties));
    for (const std::string& name : node.required)
      if (!value.has(name)) errors_.required(below(path, name));
    if (node.embedded_resource && !path.empty())
      for (const char* name : {"apiVersion", "kind"})
        if (value[name].string().empty()) errors_.required(below(path, name), "must not be empty");
    for (const auto& [name, member] : value.members()) {
      if (node.embedded_resource && frame_member(name)) continue;
      if (const SchemaNode* child = child_of(node, name)) check(member, *child, node.properties.contains(name) ? below(path, name) : fmt::format("{}.{}", path, name));
    }
  }

  void check_array(const Json& value, const SchemaNode& node, const std::string& path) {
    const auto& items = value.items();
    const auto count = static_cast<std::int64_t>(items.size());
    if (node.max_items && count > *node.max_items) errors_.too_many(path, items.size(), static_cast<std::size_t>(*node.max_items));
    if (node.min_items && count < *node.min_items) errors_.invalid(path, count, fmt::format("{} in body should have at least {} items", path, *node.min_items));
    std::unordered_set<std::string> seen;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", path, i);
      if (node.items) check(items[i], *node.items, at);
      if (node.list_type == ListType::Set && !seen.insert(print_json(items[i])).second) errors_.duplicate(at, items[i]);
      if (node.list_type == ListType::Map && items[i].is_object()) {
        Json key = Json::object();
        for (const std::string& name : node.list_map_keys) {
          if (items[i].has(name)) key.set(name, items[i][name]);
          else if (node.items && std::find(node.items->required.begin(), node.items->required.end(), name) != node.items->required.end()) continue;  // said already
          else if (!node.items || !node.items->properties.contains(name) || !node.items->properties.at(name)->default_value) errors_.required(at + "." + name);
        }
        if (!seen.insert(print_json(key)).second) errors_.add(fmt::format("{}: Duplicate value: {}", at, go_map(key)));
      }
    }
  }

  FieldErrors& errors_;
};

}  // namespace

void check_defaults(const SchemaNode& node, const std::string& path, FieldErrors& errors) {
  if (node.default_value) {
    FieldErrors wrong;
    Checker(wrong).check(*node.default_value, node, "");
    for (const std::string& text : wrong.texts()) errors.add(path + ".default" + (text.starts_with(':') ? "" : ".") + text);
    Json cut_value = *node.default_value;
    std::vector<std::string> unknown;
    cut(cut_value, node, "", unknown);
    if (wrong.empty() && !unknown.empty()) errors.invalid(path + ".default", *node.default_value, "must not have unknown fields");
  }
  for (const auto& [name, child] : node.properties) check_defaults(*child, fmt::format("{}.properties[{}]", path, name), errors);
  if (node.items) check_defaults(*node.items, path + ".items", errors);
  if (node.additional) check_defaults(*node.additional, path + ".additionalProperties", errors);
}

Schema::Schema(std::unique_ptr<SchemaNode> root) : root_(std::move(root)) {}
Schema::~Schema() = default;

void Schema::apply_defaults(Json& object) const {
  drop_nulls(object, *root_);
  fill_defaults(object, *root_);
}

std::vector<std::string> Schema::prune(Json& object) const {
  std::vector<std::string> unknown;
  cut(object, *root_, "", unknown);
  return unknown;
}

void Schema::validate(const Json& object, FieldErrors& errors, const Json* old) const {
  FieldErrors own;
  Checker(own).check(object, *root_, "");
  if (root_->rules) check_rules(*root_, object, old, own);
  for (const std::string& text : own.texts()) errors.add(text);
}

}  // namespace fairlead::apiserver
