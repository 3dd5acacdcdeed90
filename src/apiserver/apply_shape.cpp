// SPDX-License-Identifier: Apache-2.0
#include "apiserver/apply_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <unordered_set>

#include "apiserver/schema.h"
#include "apiserver/schema_node.h"
#include "base/encoding.h"

namespace fairlead::apiserver {

using kube::Field;
using kube::FieldType;
using kube::Json;
using kube::ListKind;
using kube::Type;

namespace {

// Types that k8s.io/api marks with +structType=atomic: also as items of lists, where the table's mark of a field does not reach.
bool atomic_struct(const Type* type) {
  static const auto atomic = [] {
    constexpr std::array<std::string_view, 20> names{"SecretReference", "ObjectFieldSelector", "ResourceFieldSelector", "ConfigMapKeySelector", "SecretKeySelector", "NodeSelector",
                                                     "NodeSelectorTerm", "TopologySelectorTerm", "EndpointAddress", "EndpointPort", "ObjectReference", "LocalObjectReference",
                                                     "TypedLocalObjectReference", "ScopeSelector", "OwnerReference", "LabelSelector", "Subject", "RoleRef",
                                                     "CrossVersionObjectReference", "ServiceBackendPort"};
    std::unordered_set<const Type*> out;
    for (const Type* one : kube::TypeTable::builtin().all())
      if (std::find(names.begin(), names.end(), one->name.substr(one->name.rfind('.') + 1)) != names.end()) out.insert(one);
    return out;
  }();
  return atomic.contains(type);
}

const Type* object_meta() {
  static const Type* type = kube::TypeTable::builtin().find("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
  return type;
}

const Field* meta_field() {
  static const Field field{.json = "metadata", .type = FieldType::Message, .message = object_meta(), .omit_empty = true};
  return &field;
}

bool frame_text(std::string_view name) { return name == "apiVersion" || name == "kind"; }

// A key that an item leaves out has its field's default, as in Kubernetes' OpenAPI: "" and 0 for what Go always has, TCP for protocols.
std::optional<Json> key_default(const Field* field, std::string_view key) {
  if (key == "protocol") return Json("TCP");
  if (field == nullptr || !field->required) return std::nullopt;
  if (field->type == FieldType::String) return Json("");
  if (field->type == FieldType::Int32 || field->type == FieldType::Int64) return Json(0);
  return std::nullopt;
}

std::string value_text(const Json& value) {  // as structured-merge-diff shows a value of the wrong type
  if (value.is_object()) return "map";
  if (value.is_array()) return "list";
  return "&value.valueUnstructured{Value:" + print_json(value) + "}";
}

bool is_struct(const Field& field) { return field.type == FieldType::Message && !field.repeated && !field.map && !field.message->bare_list(); }

Json zero_of(const Type& type, bool root) {
  Json out = Json::object();
  for (const Field& field : type.fields) {
    if (root && frame_text(field.json)) continue;
    if (field.inlined && field.message != nullptr) {
      Json inner = zero_of(*field.message, false);
      for (auto& [name, value] : inner.members()) out.set(name, std::move(value));
      continue;
    }
    const bool pointer = !field.required && !field.omit_empty;
    if (pointer || field.json.empty()) continue;
    if (is_struct(field)) {
      out.set(field.json, zero_of(*field.message, false));
    } else if (!field.repeated && !field.map && (field.type == FieldType::Time || field.type == FieldType::MicroTime)) {
      out.set(field.json, nullptr);
    } else if (field.required) {
      Json zero;
      if (!field.repeated && !field.map && field.type == FieldType::String) zero = "";
      if (!field.repeated && !field.map && (field.type == FieldType::Int32 || field.type == FieldType::Int64)) zero = 0;
      if (!field.repeated && !field.map && field.type == FieldType::Bool) zero = false;
      out.set(field.json, std::move(zero));
    }
  }
  return out;
}

}  // namespace

const Json& zero_object(const Type* type) {
  static const Json empty = Json::object();
  if (type == nullptr) return empty;
  static std::mutex mutex;
  static std::map<const Type*, Json> cache;
  const std::scoped_lock lock(mutex);
  const auto found = cache.find(type);
  if (found != cache.end()) return found->second;
  return cache.emplace(type, zero_of(*type, true)).first->second;
}

Shape Shape::of(const Kind& kind) {
  if (kind.type != nullptr) return of(*kind.type);
  if (kind.schema) return of(kind.schema->root());
  return deduced();
}

Shape Shape::of(const SchemaNode& root) { return of_node(root); }

Shape Shape::element_of(const Field& field) {
  switch (field.type) {
    case FieldType::Message:
      if (field.message->bare_list()) return scalar(nullptr);
      return Shape(What::Struct, field.message, nullptr, nullptr, (field.atomic && !field.map) || atomic_struct(field.message));
    case FieldType::Any:
    case FieldType::SchemaOr: return deduced();
    default: return scalar(&field);
  }
}

Shape Shape::of_field(const Field& field) {
  if (field.repeated) return Shape(What::List, nullptr, &field, nullptr, false);
  if (field.map) return Shape(What::Map, nullptr, &field, nullptr, field.atomic);
  return element_of(field);
}

Shape::Relation Shape::list_relation() const {
  if (what_ == What::Node) {
    if (node_->list_type == ListType::Set) return Relation::Set;
    return node_->list_type == ListType::Map ? Relation::Keyed : Relation::Leaf;
  }
  if (what_ != What::List) return Relation::Leaf;
  const ListKind kind = field_->list_type != ListKind::None ? field_->list_type : field_->list;
  if (kind == ListKind::Set) return Relation::Set;
  return kind == ListKind::Map ? Relation::Keyed : Relation::Leaf;
}

bool Shape::lists() const { return what_ == What::List || (what_ == What::Node && node_->type == "array"); }

bool Shape::maps() const {
  if (what_ == What::Node) return node_->type == "object" || (node_->type.empty() && !node_->int_or_string);
  return what_ == What::Struct || what_ == What::Map || what_ == What::Deduced;
}

bool Shape::atomic() const {
  if (lists()) return list_relation() == Relation::Leaf;
  if (what_ == What::Node) return maps() && node_->atomic_map;
  return (what_ == What::Struct || what_ == What::Map) && atomic_;
}

Shape::Relation Shape::relation(const Json& value) const {
  if (value.is_array() || (value.is_null() && lists())) return lists() ? list_relation() : Relation::Leaf;
  if (value.is_object() || value.is_null()) return maps() && !atomic() ? Relation::Map : Relation::Leaf;
  return Relation::Leaf;
}

bool Shape::declares(std::string_view name) const {
  if (what_ == What::Struct) return type_->find(name) != nullptr;
  if (what_ != What::Node) return false;
  return node_->properties.contains(name) || (node_->embedded_resource && (frame_text(name) || name == "metadata"));
}

std::optional<Shape> Shape::member(std::string_view name) const {
  switch (what_) {
    case What::Struct: {
      const Field* field = type_->find(name);
      return field == nullptr ? std::nullopt : std::optional(of_field(*field));
    }
    case What::Map: return element_of(*field_);
    case What::Deduced: return deduced();
    case What::List:
    case What::Scalar: return std::nullopt;
    case What::Node: break;
  }
  if (node_->embedded_resource && frame_text(name)) return scalar(nullptr);
  if (node_->embedded_resource && name == "metadata") return of_field(*meta_field());
  const auto found = node_->properties.find(name);
  if (found != node_->properties.end()) return of_node(*found->second);
  if (node_->additional) return of_node(*node_->additional);
  const bool open = node_->preserve_unknown || node_->additional_any || (node_->type.empty() && !node_->int_or_string);
  return open ? std::optional(deduced()) : std::nullopt;
}

Shape Shape::item() const {
  if (what_ == What::List) return element_of(*field_);
  if (what_ == What::Node && node_->items) return of_node(*node_->items);
  return deduced();
}

Result<PathElement> Shape::element(const Json& item) const {
  if (list_relation() == Relation::Set) {
    if (item.is_object()) return fail(Code::Invalid, "associative list without keys has an element that's a map type");
    if (item.is_array()) return fail(Code::Invalid, "not supported: associative list with lists as elements");
    if (item.is_null()) return fail(Code::Invalid, "associative list without keys has an element that's an explicit null");
    return PathElement::value(item);
  }
  if (item.is_null()) return fail(Code::Invalid, "associative list with keys may not have a null element");
  if (!item.is_object()) return fail(Code::Invalid, "associative list with keys may not have non-map elements");
  std::vector<kube::JsonMember> keys;
  const auto add = [&](std::string_view key, const auto& otherwise) {
    if (const Json* value = item.find(key)) {
      keys.emplace_back(std::string(key), *value);
      return true;
    }
    std::optional<Json> given = otherwise();
    if (given) keys.emplace_back(std::string(key), std::move(*given));
    return given.has_value();
  };
  const auto missing = [](std::string_view key) {
    return fail(Code::Invalid, fmt::format("associative list with keys has an element that omits key field \"{}\" (and doesn't have default value)", key));
  };
  if (what_ == What::Node) {
    for (const std::string& key : node_->list_map_keys) {
      const auto otherwise = [&]() -> std::optional<Json> {
        if (!node_->items) return std::nullopt;
        const auto found = node_->items->properties.find(key);
        return found == node_->items->properties.end() ? std::nullopt : found->second->default_value;
      };
      if (!add(key, otherwise)) return missing(key);
    }
    return PathElement::key(std::move(keys));
  }
  std::string_view rest = field_->list_keys.empty() ? field_->merge_key : field_->list_keys;
  if (const Json* only = !rest.empty() && rest.find(',') == std::string_view::npos ? item.find(rest) : nullptr; only != nullptr && only->is_string()) return PathElement::key(rest, only->string());
  while (!rest.empty()) {
    const std::string_view key = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), key.size() + 1));
    const Field* of = field_->message == nullptr ? nullptr : field_->message->find(key);
    if (!add(key, [&] { return key_default(of, key); })) return missing(key);
  }
  return PathElement::key(std::move(keys));
}

std::string Shape::scalar_complaint(const Json& value) const {
  if (value.is_null()) return {};
  const auto wrong = [&](std::string_view wanted) { return fmt::format("expected {}, got {}", wanted, value_text(value)); };
  if (lists()) return value.is_array() ? "" : wrong("list");
  if (what_ == What::Struct || what_ == What::Map || (what_ == What::Node && node_->type == "object")) return value.is_object() ? "" : wrong("map");
  if (what_ == What::Node) {
    if (node_->int_or_string) return value.is_object() || value.is_array() ? wrong("scalar") : "";
    if (node_->type == "string" && node_->format.empty()) return value.is_string() ? "" : wrong("string");
    if (node_->type == "integer" || node_->type == "number") return value.is_number() ? "" : wrong("numeric (int or float)");
    if (node_->type == "boolean") return value.is_bool() ? "" : wrong("boolean");
    return {};
  }
  if (what_ != What::Scalar || field_ == nullptr) return {};
  switch (field_->type) {
    case FieldType::String:
    case FieldType::Bytes: return value.is_string() ? "" : wrong("string");
    case FieldType::Bool: return value.is_bool() ? "" : wrong("boolean");
    case FieldType::Int32:
    case FieldType::Int64:
    case FieldType::Double: return value.is_number() ? "" : wrong("numeric (int or float)");
    default: return value.is_object() || value.is_array() ? wrong("scalar") : "";
  }
}

}  // namespace fairlead::apiserver
