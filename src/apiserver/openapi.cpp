// SPDX-License-Identifier: Apache-2.0
#include "apiserver/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"

namespace fairlead::apiserver {
namespace {

using kube::Field;
using kube::FieldType;
using kube::Json;
using kube::ListKind;
using kube::Type;

constexpr std::string_view object_meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
constexpr std::string_view list_meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
constexpr std::string_view time_name = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
constexpr std::string_view micro_time_name = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
constexpr std::string_view quantity_name = "io.k8s.apimachinery.pkg.api.resource.Quantity";
constexpr std::string_view int_or_string_name = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

Json reference(std::string_view name) { return Json::object({{"$ref", fmt::format("#/components/schemas/{}", name)}}); }
Json typed(std::string_view type) { return Json::object({{"type", type}}); }
Json typed(std::string_view type, std::string_view format) { return Json::object({{"type", type}, {"format", format}}); }
Json gvk(const kube::Resource& resource) { return Json::object({{"group", resource.group}, {"kind", resource.kind}, {"version", resource.version}}); }

// Scalars that Kubernetes names: references, so that explain shows <Quantity> and not <Object>.
Json named_scalar(std::string_view name) {
  if (name == quantity_name) return Json::object({{"oneOf", Json::array({typed("string"), typed("number")})}});
  if (name == int_or_string_name) return Json::object({{"format", "int-or-string"}, {"oneOf", Json::array({typed("integer"), typed("string")})}});
  return typed("string", "date-time");
}

class Schemas {
 public:
  void need(const Type* type) {
    if (type != nullptr && done_.insert(std::string(type->name)).second) waiting_.push_back(type);
  }
  void need(std::string_view name) { need(kube::TypeTable::builtin().find(name)); }
  void mark(const std::string& type_name, Json kind_gvk) { gvks_[type_name].push_back(std::move(kind_gvk)); }

  Json finish() {
    Json out = Json::object();
    while (!waiting_.empty()) {
      const Type* type = waiting_.back();
      waiting_.pop_back();
      all_.emplace(std::string(type->name), object_schema(*type));
    }
    for (const std::string_view name : scalars_) all_.emplace(std::string(name), named_scalar(name));
    for (auto& [name, schema] : all_) out.set(name, std::move(schema));
    return out;
  }
  void add(std::string name, Json schema) { all_.emplace(std::move(name), std::move(schema)); }

 private:
  Json element(const Field& field) {
    const auto scalar = [this](std::string_view name) {
      scalars_.insert(name);
      return reference(name);
    };
    switch (field.type) {
      case FieldType::String: return typed("string");
      case FieldType::Bool: return typed("boolean");
      case FieldType::Int32: return typed("integer", "int32");
      case FieldType::Int64: return typed("integer", "int64");
      case FieldType::Double: return typed("number", "double");
      case FieldType::Bytes: return typed("string", "byte");
      case FieldType::Quantity: return scalar(quantity_name);
      case FieldType::IntOrString: return scalar(int_or_string_name);
      case FieldType::Time: return scalar(time_name);
      case FieldType::MicroTime: return scalar(micro_time_name);
      case FieldType::Any:
      case FieldType::SchemaOr: return Json::object({{"x-kubernetes-preserve-unknown-fields", true}});
      case FieldType::Message: break;
    }
    if (field.message == nullptr) return typed("object");
    if (field.message->bare_list()) {
      Json list = typed("array");
      list.set("items", element(field.message->fields.front()));
      return list;
    }
    need(field.message);
    return reference(field.message->name);
  }

  Json field_schema(const Field& field) {
    Json inner = element(field);
    if (field.map) {
      Json out = typed("object");
      out.set("additionalProperties", std::move(inner));
      return out;
    }
    if (!field.repeated) {
      // A reference with company goes into allOf: members beside $ref are ignored by the standard.
      if (field.retain_keys && inner.has("$ref")) inner = Json::object({{"allOf", Json::array({std::move(inner)})}});
      if (field.retain_keys) inner.set("x-kubernetes-patch-strategy", "retainKeys");
      return inner;
    }
    Json out = typed("array");
    out.set("items", std::move(inner));
    static constexpr const char* list_types[] = {nullptr, "atomic", "set", "map"};  // by ListKind
    if (field.list_type != ListKind::None) out.set("x-kubernetes-list-type", list_types[static_cast<int>(field.list_type)]);
    if (field.list_type == ListKind::Map) {
      Json keys = Json::array();
      for (const std::string& key : split(field.list_keys, ',')) keys.push(key);
      out.set("x-kubernetes-list-map-keys", std::move(keys));
    }
    if (field.list == ListKind::Set || field.list == ListKind::Map) out.set("x-kubernetes-patch-strategy", field.retain_keys ? "merge,retainKeys" : "merge");
    if (field.list == ListKind::Map) out.set("x-kubernetes-patch-merge-key", field.merge_key);
    return out;
  }

  void collect(const Type& type, Json& properties, Json& required) {
    for (const Field& field : type.fields) {
      if (field.inlined && field.message != nullptr) {
        collect(*field.message, properties, required);
        continue;
      }
      properties.set(field.json, field_schema(field));
      if (field.required) required.push(Json(field.json));
    }
  }

  Json object_schema(const Type& type) {
    Json properties = Json::object(), required = Json::array();
    const auto marked = gvks_.find(std::string(type.name));
    if (marked != gvks_.end()) properties.set("apiVersion", typed("string")).set("kind", typed("string"));
    collect(type, properties, required);
    Json out = typed("object");
    out.set("properties", std::move(properties));
    if (!required.items().empty()) out.set("required", std::move(required));
    if (marked != gvks_.end()) out.set("x-kubernetes-group-version-kind", Json::array(marked->second));
    return out;
  }

  std::set<std::string> done_;
  std::vector<const Type*> waiting_;
  std::set<std::string_view> scalars_;
  std::map<std::string, std::vector<Json>> gvks_;
  std::map<std::string, Json> all_;  // sorted: equal tables give equal bytes
};

Json custom_schema(const Kind& kind) {
  Json out = kind.open_api.is_object() ? kind.open_api : typed("object");
  if (!out.has("type")) out.set("type", "object");
  Json& properties = out.child("properties");
  if (!properties.is_object()) properties = Json::object();
  properties.set("apiVersion", typed("string")).set("kind", typed("string"));
  properties.set("metadata", Json::object({{"allOf", Json::array({reference(object_meta)})}}));
  out.set("x-kubernetes-group-version-kind", Json::array({gvk(kind.resource)}));
  return out;
}

Json list_schema(const Kind& kind) {
  Json items = typed("array");
  items.set("items", reference(schema_name(kind)));
  Json properties = Json::object({{"apiVersion", typed("string")}, {"items", std::move(items)}, {"kind", typed("string")}, {"metadata", reference(list_meta)}});
  Json out = typed("object");
  out.set("properties", std::move(properties)).set("required", Json::array({"items"}));
  Json list_gvk = gvk(kind.resource);
  list_gvk.set("kind", kind.list_kind.empty() ? kind.resource.kind + "List" : kind.list_kind);
  out.set("x-kubernetes-group-version-kind", Json::array({std::move(list_gvk)}));
  return out;
}

// --- paths ---

Json parameter(std::string_view where, std::string_view name, std::string_view type = "string") {
  Json out = Json::object({{"name", name}, {"in", where}});
  if (where == "path") out.set("required", true);
  out.set("schema", typed(type));
  return out;
}

Json query_parameters(std::string_view action) {
  Json out = Json::array();
  const auto add = [&out](std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) out.push(parameter("query", name));
  };
  add({"pretty"});
  if (action == "post" || action == "put" || action == "patch") add({"dryRun", "fieldManager", "fieldValidation"});
  if (action == "delete" || action == "deletecollection") add({"dryRun", "gracePeriodSeconds", "propagationPolicy"});
  if (action == "list" || action == "deletecollection") add({"continue", "fieldSelector", "labelSelector", "limit", "resourceVersion", "resourceVersionMatch"});
  if (action == "list") add({"allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds", "watch"});
  return out;
}

Json content(std::string_view schema, std::initializer_list<std::string_view> types) {
  Json out = Json::object();
  for (const std::string_view type : types) out.set(type, Json::object({{"schema", reference(schema)}}));
  return Json::object({{"content", std::move(out)}});
}

enum class Strategic { Yes, No };  // kubectl apply reads from here whether it may send a strategic merge patch

Json operation(std::string_view action, const Json& kind_gvk, std::string_view schema, const std::string& id, Strategic strategic = Strategic::Yes) {
  Json out = Json::object({{"operationId", id}, {"parameters", query_parameters(action)}});
  if (action == "patch") {
    Json types = Json::object();
    for (const char* type : {"application/json-patch+json", "application/merge-patch+json"}) types.set(type, Json::object({{"schema", typed("object")}}));
    if (strategic == Strategic::Yes) types.set("application/strategic-merge-patch+json", Json::object({{"schema", typed("object")}}));
    out.set("requestBody", Json::object({{"content", std::move(types)}, {"required", true}}));
  } else if (action == "post" || action == "put") {
    Json body = content(schema, {"application/json", "application/yaml"});
    body.set("required", true);
    out.set("requestBody", std::move(body));
  }
  Json answer = content(schema, {"application/json"});
  answer.set("description", "OK");
  out.set("responses", Json::object({{action == "post" ? "201" : "200", std::move(answer)}}));
  out.set("x-kubernetes-action", action).set("x-kubernetes-group-version-kind", kind_gvk);
  return out;
}

void add_paths(const Kind& kind, Json& paths) {
  const kube::Resource& resource = kind.resource;
  const std::string root = resource.group.empty() ? "/api/" + resource.version : fmt::format("/apis/{}/{}", resource.group, resource.version);
  const std::string place = resource.namespaced ? root + "/namespaces/{namespace}/" + resource.plural : root + "/" + resource.plural;
  const std::string schema = schema_name(kind), list = schema + "List";
  const Json own = gvk(resource);
  const Strategic strategic = kind.type != nullptr ? Strategic::Yes : Strategic::No;
  const auto id = [&](std::string_view verb, std::string_view rest = "") { return fmt::format("{}{}{}{}", verb, resource.namespaced ? "Namespaced" : "", resource.kind, rest); };
  const auto with_place = [&](Json item, bool named) {
    if (named) item.child("parameters").push(parameter("path", "name"));
    if (resource.namespaced) item.child("parameters").push(parameter("path", "namespace"));
    return item;
  };
  paths.set(place, with_place(Json::object({{"get", operation("list", own, list, id("list"))},
                                            {"post", operation("post", own, schema, id("create"))},
                                            {"delete", operation("deletecollection", own, list, id("deleteCollection"))}}),
                              false));
  paths.set(place + "/{name}", with_place(Json::object({{"get", operation("get", own, schema, id("read"))},
                                                        {"put", operation("put", own, schema, id("replace"))},
                                                        {"patch", operation("patch", own, schema, id("patch"), strategic)},
                                                        {"delete", operation("delete", own, schema, id("delete"))}}),
                                          true));
  if (resource.namespaced) {
    paths.set(root + "/" + resource.plural, Json::object({{"get", operation("list", own, list, fmt::format("list{}ForAllNamespaces", resource.kind))}}));
  }
  if (kind.status_subresource) {
    paths.set(place + "/{name}/status", with_place(Json::object({{"get", operation("get", own, schema, id("read", "Status"))},
                                                                 {"put", operation("put", own, schema, id("replace", "Status"))},
                                                                 {"patch", operation("patch", own, schema, id("patch", "Status"), strategic)}}),
                                                   true));
  }
}

}  // namespace

std::string schema_name(const Kind& kind) {
  if (kind.type != nullptr) return std::string(kind.type->name);
  std::vector<std::string> parts = split(kind.resource.group, '.');
  std::reverse(parts.begin(), parts.end());
  return fmt::format("{}.{}.{}", fmt::join(parts, "."), kind.resource.version, kind.resource.kind);
}

kube::Json open_api_document(const KindTable& table, const GroupVersion& group_version) {
  Schemas schemas;
  Json paths = Json::object();
  schemas.need(object_meta);
  schemas.need(list_meta);
  const auto is_here = [&](const Kind& kind) { return kind.resource.group == group_version.group && kind.resource.version == group_version.version; };
  for (const auto& kind : table.kinds) {
    if (is_here(*kind) && kind->type != nullptr) schemas.mark(std::string(kind->type->name), gvk(kind->resource));
  }
  for (const auto& kind : table.kinds) {
    if (!is_here(*kind)) continue;
    add_paths(*kind, paths);
    schemas.add(schema_name(*kind) + "List", list_schema(*kind));
    if (kind->type != nullptr) {
      schemas.need(kind->type);
    } else {
      schemas.add(schema_name(*kind), custom_schema(*kind));
    }
  }
  for (const Review& review : reviews()) {
    if (review.group != group_version.group || review.version != group_version.version) continue;
    const kube::Resource resource{std::string(review.group), std::string(review.version), std::string(review.plural), std::string(review.kind), false};
    const Type* type = kube::TypeTable::builtin().find_kind(resource.api_version(), resource.kind);
    if (type == nullptr) continue;
    schemas.mark(std::string(type->name), gvk(resource));
    schemas.need(type);
    paths.set(fmt::format("/apis/{}/{}/{}", review.group, review.version, review.plural),
              Json::object({{"post", operation("post", gvk(resource), type->name, fmt::format("create{}", review.kind))}}));
  }
  Json out = Json::object({{"openapi", "3.0.0"}, {"info", Json::object({{"title", "Kubernetes"}, {"version", "v1.33.0"}})}});
  out.set("paths", std::move(paths)).set("components", Json::object({{"schemas", schemas.finish()}}));
  return out;
}

OpenApi::Document OpenApi::document_locked(const KindTable& table, const GroupVersion& group_version) {
  std::vector<std::shared_ptr<const Kind>> kinds;
  for (const auto& kind : table.kinds) {
    if (kind->resource.group == group_version.group && kind->resource.version == group_version.version) kinds.push_back(kind);
  }
  Cached& cached = cached_[group_version];
  if (!cached.document.bytes || cached.kinds != kinds) {
    auto bytes = std::make_shared<const std::string>(print_json(open_api_document(table, group_version)));
    cached.document.hash = hex(sha256(*bytes));
    cached.document.bytes = std::move(bytes);
    cached.kinds = std::move(kinds);
  }
  return cached.document;
}

std::optional<OpenApi::Document> OpenApi::document(const KindTable& table, const GroupVersion& group_version) {
  const auto served = group_versions(table);
  if (std::find(served.begin(), served.end(), group_version) == served.end()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return document_locked(table, group_version);
}

http::Buffer OpenApi::index(const KindTable& table) {
  Json paths = Json::object();
  const auto served = group_versions(table);
  const std::lock_guard lock(mutex_);
  std::erase_if(cached_, [&](const auto& entry) { return std::find(served.begin(), served.end(), entry.first) == served.end(); });
  for (const GroupVersion& group_version : served) {
    const std::string path = (group_version.group.empty() ? "api/" : "apis/") + group_version.text();
    paths.set(path, Json::object({{"serverRelativeURL", fmt::format("/openapi/v3/{}?hash={}", path, document_locked(table, group_version).hash)}}));
  }
  return std::make_shared<const std::string>(print_json(Json::object({{"paths", std::move(paths)}})));
}

}  // namespace fairlead::apiserver
