// SPDX-License-Identifier: Apache-2.0
#include "apiserver/crd.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "apiserver/conversion.h"
#include "apiserver/schema.h"
#include "apiserver/schema_node.h"
#include "apiserver/table_path.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

void check_kind_name(const Json& names, const char* field, FieldErrors& errors) {
  std::string text = names[field].string();
  if (text.empty()) return;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (const auto why = check_dns_1035_label(text); !why.empty())
    errors.invalid(fmt::format("spec.names.{}", field), names[field], "may have mixed case, but should otherwise match: " + why);
}

void check_names(const Json& names, FieldErrors& errors) {
  for (const char* field : {"plural", "singular", "kind", "listKind"})
    if (names[field].string().empty()) errors.required(fmt::format("spec.names.{}", field));
  for (const char* field : {"plural", "singular"})
    if (const std::string& text = names[field].string(); !text.empty())
      if (const auto why = check_dns_1035_label(text); !why.empty()) errors.invalid(fmt::format("spec.names.{}", field), text, why);
  check_kind_name(names, "kind", errors);
  check_kind_name(names, "listKind", errors);
  const auto check_words = [&](const char* list) {
    for (std::size_t i = 0; i < names[list].items().size(); ++i)
      if (const auto why = check_dns_1035_label(names[list].items()[i].string()); !why.empty())
        errors.invalid(fmt::format("spec.names.{}[{}]", list, i), names[list].items()[i], why);
  };
  check_words("shortNames");
  if (!names["kind"].string().empty() && names["kind"] == names["listKind"]) errors.invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same");
  check_words("categories");
}

bool contains(std::initializer_list<std::string_view> words, std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); }

void check_columns(const Json& columns, const std::string& path, FieldErrors& errors) {
  for (std::size_t i = 0; i < columns.items().size(); ++i) {
    const Json& column = columns.items()[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    if (column["name"].string().empty()) errors.required(at + ".name");
    const std::string& type = column["type"].string();
    if (type.empty()) errors.required(at + ".type", "must be one of boolean,date,integer,number,string");
    else if (!contains({"boolean", "date", "integer", "number", "string"}, type)) errors.invalid(at + ".type", type, "must be one of boolean,date,integer,number,string");
    if (const std::string& format = column["format"].string(); !format.empty() && !contains({"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}, format))
      errors.invalid(at + ".format", format, "must be one of byte,date,date-time,double,float,int32,int64,password");
    // Kubernetes' name for the field, here as there.
    const std::string& json_path = column["jsonPath"].string();
    if (json_path.empty()) errors.required(at + ".JSONPath");
    else if (json_path.front() != '.') errors.invalid(at + ".JSONPath", json_path, "must be a simple json path starting with .");
    else if (const auto parsed = TablePath::parse(json_path); !parsed) errors.invalid(at + ".JSONPath", json_path, parsed.error().message);
  }
}

void check_scale(const Json& scale, const std::string& path, FieldErrors& errors) {
  const auto one = [&](const char* name, bool required, const std::vector<std::string_view>& roots, std::string_view why) {
    const std::string& text = scale[name].string();
    if (text.empty() && required) errors.required(fmt::format("{}.{}", path, name));
    if (text.empty()) return;
    if (const auto names = simple_path(text); !names) errors.invalid(fmt::format("{}.{}", path, name), text, names.error().message);
    else if (std::none_of(roots.begin(), roots.end(), [&](std::string_view root) { return text.starts_with(root); })) errors.invalid(fmt::format("{}.{}", path, name), text, why);
  };
  one("specReplicasPath", true, {".spec."}, "should be a json path under .spec");
  one("statusReplicasPath", true, {".status."}, "should be a json path under .status");
  one("labelSelectorPath", false, {".spec.", ".status."}, "should be a json path under either .spec or .status");
}

const SchemaNode* node_at(const Schema* schema, const std::vector<std::string>& names) {
  const SchemaNode* node = schema == nullptr ? nullptr : &schema->root();
  for (const std::string& name : names) {
    if (node == nullptr) return nullptr;
    const auto found = node->properties.find(name);
    node = found == node->properties.end() ? nullptr : found->second.get();
  }
  return node;
}

void check_selectable(const Json& fields, const Schema* schema, const std::string& path, FieldErrors& errors) {
  constexpr std::size_t most = 8;
  if (fields.items().size() > most) errors.too_many(path, fields.items().size(), most);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < fields.items().size(); ++i) {
    const std::string& text = fields.items()[i]["jsonPath"].string();
    const std::string at = fmt::format("{}[{}].jsonPath", path, i);
    if (text.empty()) {
      errors.required(at, "must be a valid JSON path");
      continue;
    }
    const auto names = simple_path(text);
    const SchemaNode* node = names ? node_at(schema, *names) : nullptr;
    if (!names) errors.invalid(at, text, names.error().message);
    else if (names->front() == "metadata") errors.invalid(at, text, "must not point to fields in metadata");
    else if (node == nullptr) errors.invalid(at, text, "is an invalid path: does not refer to a valid field");
    else if (node->type != "string" && node->type != "boolean" && node->type != "integer")
      errors.invalid(at, text, "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.");
    if (!seen.insert(text).second) errors.duplicate(at, text);
  }
}

// With one version, Kubernetes names its parts as if they stood in spec itself. True: it has defaults.
bool check_version(const Json& version, const std::string& path, bool alone, FieldErrors& errors) {
  const std::string inner = alone ? "spec" : path;
  std::shared_ptr<const Schema> compiled;
  const std::string& name = version["name"].string();
  if (name.empty()) errors.required(path + ".name");
  else if (const auto why = check_dns_1035_label(name); !why.empty()) errors.invalid(path + ".name", name, why);
  for (const char* field : {"served", "storage"})
    if (!version[field].is_bool()) errors.required(path + "." + field);
  const Json* schema = version["schema"].find("openAPIV3Schema");
  if (!schema) errors.required(path + ".schema.openAPIV3Schema", "schemas are required");
  else compiled = Schema::compile(*schema, inner + (alone ? ".validation.openAPIV3Schema" : ".schema.openAPIV3Schema"), errors);
  if (const Json* scale = version["subresources"].find("scale")) check_scale(*scale, inner + ".subresources.scale", errors);
  check_selectable(version["selectableFields"], compiled.get(), inner + ".selectableFields", errors);
  check_columns(version["additionalPrinterColumns"], inner + ".additionalPrinterColumns", errors);
  return compiled != nullptr && compiled->root().defaults_below;
}

std::string conflict_with(const Json& crd, const KindTable& others) {
  const Json& names = crd["spec"]["names"];
  std::set<std::string> words{names["plural"].string(), names["singular"].string()};
  for (const Json& name : names["shortNames"].items()) words.insert(name.string());
  for (const auto& kind : others.kinds) {
    if (kind->resource.group != crd["spec"]["group"].string() || kind->resource.plural == names["plural"].string()) continue;
    if (kind->resource.kind == names["kind"].string() || kind->list_kind == names["listKind"].string())
      return fmt::format("\"{}\" is already in use by {}", names["kind"].string(), kind->resource.plural);
    for (const std::string& word : words)
      if (word == kind->resource.plural || word == kind->singular || std::find(kind->short_names.begin(), kind->short_names.end(), word) != kind->short_names.end())
        return fmt::format("\"{}\" is already in use by {}", word, kind->resource.plural);
  }
  return {};
}

std::shared_ptr<Kind> kind_of(const Json& crd, const Json& version) {
  const Json& names = crd["spec"]["names"];
  auto kind = std::make_shared<Kind>();
  kind->resource = {crd["spec"]["group"].string(), version["name"].string(), names["plural"].string(), names["kind"].string(), crd["spec"]["scope"].string() == "Namespaced"};
  kind->list_kind = names["listKind"].string();
  kind->singular = names["singular"].string();
  for (const Json& name : names["shortNames"].items()) kind->short_names.push_back(name.string());
  for (const Json& name : names["categories"].items()) kind->categories.push_back(name.string());
  kind->status_subresource = version["subresources"].has("status");
  kind->open_api = version["schema"]["openAPIV3Schema"];
  FieldErrors ignored;  // it was checked when the CRD was written
  kind->schema = Schema::compile(kind->open_api, "", ignored);
  if (const Json* scale = version["subresources"].find("scale")) {
    kind->scale = ScalePaths{(*scale)["specReplicasPath"].string(), (*scale)["statusReplicasPath"].string(), (*scale)["labelSelectorPath"].string()};
    kind->subresources.emplace_back("scale");
  }
  for (const Json& field : version["selectableFields"].items()) {
    const auto steps = simple_path(field["jsonPath"].string());
    const SchemaNode* node = steps ? node_at(kind->schema.get(), *steps) : nullptr;
    if (node == nullptr) continue;
    kind->selectable_fields.push_back(field["jsonPath"].string().substr(1));
    if (node->type != "string") kind->unquoted_fields.push_back(kind->selectable_fields.back());
  }
  for (const Json& column : version["additionalPrinterColumns"].items())
    kind->columns.push_back({.name = column["name"].string(), .type = column["type"].string(), .format = column["format"].string(), .description = column["description"].string(),
                             .priority = static_cast<int>(column["priority"].integer()), .path = column["jsonPath"].string()});
  kind->storage = version["storage"].boolean();
  return kind;
}

}  // namespace

namespace {

void check_group(const std::string& group, FieldErrors& errors) {
  if (group.empty()) errors.required("spec.group");
  else if (const auto why = kube::check_dns_subdomain(group); !why.empty()) errors.invalid("spec.group", group, why);
  else if (group.find('.') == std::string::npos) errors.invalid("spec.group", group, "should be a domain with at least one dot");
  else if (group == "coordination.k8s.io" || group == "apiextensions.k8s.io") errors.invalid("spec.group", group, "is a built-in group");
}

void check_versions(const Json& spec, FieldErrors& errors) {
  const auto& versions = spec["versions"].items();
  FieldErrors of_versions;
  std::size_t storage = 0;
  std::set<std::string> names;
  bool defaults = false;
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const std::string path = fmt::format("spec.versions[{}]", i);
    defaults = check_version(versions[i], path, versions.size() == 1, of_versions) || defaults;
    if (!names.insert(versions[i]["name"].string()).second) of_versions.duplicate(path + ".name", versions[i]["name"]);
    storage += versions[i]["storage"].boolean() ? 1 : 0;
  }
  if (defaults && spec["preserveUnknownFields"].boolean()) errors.invalid("spec.preserveUnknownFields", true, "must be false in order to use defaults in the schema");
  for (const std::string& text : of_versions.texts()) errors.add(text);
  constexpr std::string_view one = "must have exactly one version marked as storage version";
  if (versions.empty()) errors.add(fmt::format("spec.versions: Invalid value: []apiextensions.CustomResourceDefinitionVersion{{}}: {}", one));
  else if (storage != 1) errors.invalid("spec.versions", static_cast<std::int64_t>(storage), one);
}

// What status.storedVersions would become.
void check_stored(const Json& spec, FieldErrors& errors) {
  std::string first;
  for (const Json& version : spec["versions"].items()) {
    if (!version["storage"].boolean()) continue;
    if (first.empty()) first = version["name"].string();
    else errors.add(fmt::format("status.storedVersions: Invalid value: []string{{\"{}\"}}: must have the storage version {}", first, version["name"].string()));
  }
  if (first.empty()) errors.add("status.storedVersions: Invalid value: []string(nil): must have at least one stored version");
}

// Guarded like in Kubernetes, where these groups need an approval annotation.
void check_approval(const Json& crd, FieldErrors& errors) {
  const std::string& group = crd["spec"]["group"].string();
  const bool guarded = group.ends_with(".k8s.io") || group == "k8s.io" || group.ends_with(".kubernetes.io") || group == "kubernetes.io";
  if (guarded && !kube::annotations_of(crd).contains("api-approved.kubernetes.io"))
    errors.required("metadata.annotations[api-approved.kubernetes.io]", "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111");
}

}  // namespace

// In Kubernetes' order.
void check_crd(const Json& crd, FieldErrors& errors) {
  const Json& spec = crd["spec"];
  const std::string& group = spec["group"].string();
  const std::string wanted = spec["names"]["plural"].string() + "." + group;
  if (kube::name_of(crd) != wanted) errors.invalid("metadata.name", kube::name_of(crd), "must be spec.names.plural+\".\"+spec.group");
  check_group(group, errors);
  if (const std::string& scope = spec["scope"].string(); scope != "Cluster" && scope != "Namespaced") errors.unsupported_value("spec.scope", scope, {"Cluster", "Namespaced"});
  check_versions(spec, errors);
  check_names(spec["names"], errors);
  check_conversion(spec["conversion"], errors);
  check_stored(spec, errors);
  check_approval(crd, errors);
  if (spec["preserveUnknownFields"].boolean()) errors.invalid("spec.preserveUnknownFields", true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead");
}

void check_crd_change(const Json& old, const Json& next, FieldErrors& errors) {
  for (const char* field : {"group", "scope"})
    if (!(old["spec"][field] == next["spec"][field])) errors.invalid(fmt::format("spec.{}", field), next["spec"][field], "field is immutable");
  for (const char* field : {"plural", "kind"})
    if (!(old["spec"]["names"][field] == next["spec"]["names"][field])) errors.invalid(fmt::format("spec.names.{}", field), next["spec"]["names"][field], "field is immutable");
  for (const Json& stored : next["status"]["storedVersions"].items()) {
    const auto& versions = next["spec"]["versions"].items();
    if (std::none_of(versions.begin(), versions.end(), [&](const Json& version) { return version["name"] == stored; }))
      errors.invalid("status.storedVersions", stored, "must appear in spec.versions");
  }
}

void set_crd_status(Json& crd, const KindTable& others, Instant now) {
  const std::string conflict = conflict_with(crd, others);
  Json& status = crd.child("status");
  if (!status.is_object()) status = Json::object();
  status.set("acceptedNames", conflict.empty() ? crd["spec"]["names"] : Json::object({{"plural", ""}, {"kind", ""}}));
  std::string storage;
  for (const Json& version : crd["spec"]["versions"].items())
    if (version["storage"].boolean()) storage = version["name"].string();
  Json stored = crd["status"]["storedVersions"];
  if (!stored.is_array()) stored = Json::array();
  const auto& all = stored.items();
  if (std::find(all.begin(), all.end(), Json(storage)) == all.end()) stored.push(storage);
  crd.child("status").set("storedVersions", std::move(stored));
  kube::set_condition(crd, {"NamesAccepted", conflict.empty() ? "True" : "False", conflict.empty() ? "NoConflicts" : "NamesConflict", conflict.empty() ? "no conflicts found" : conflict}, now);
  kube::set_condition(crd, {"Established", conflict.empty() ? "True" : "False", conflict.empty() ? "InitialNamesAccepted" : "NotAccepted",
                            conflict.empty() ? "the initial names have been accepted" : "not all names are accepted"}, now);
  // Said where everybody looks: a rule that is not evaluated refuses nothing.
  constexpr std::string_view rules_condition = "ValidationRulesEvaluated";
  if (const auto left_out = crd_warnings(crd); !left_out.empty()) {
    kube::set_condition(crd, {std::string(rules_condition), "False", "NotSupported", fmt::format("{}", fmt::join(left_out, "; ")).substr(0, 32'000)}, now);
  } else {
    std::erase_if(crd.child("status").child("conditions").items(), [&](const Json& one) { return one["type"].string() == rules_condition; });
  }
  if (kube::deleting(crd)) kube::set_condition(crd, {"Terminating", "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"}, now);
  // CRD conditions have no observedGeneration (before 1.34): with it, a strict client could not write back what it read.
  for (kube::Json& condition : crd.child("status").child("conditions").items()) condition.erase("observedGeneration");
}

std::vector<std::string> crd_warnings(const Json& crd) {
  std::vector<std::string> out;
  for (const Json& version : crd["spec"]["versions"].items()) {
    FieldErrors ignored;
    const auto schema = Schema::compile(version["schema"]["openAPIV3Schema"], "", ignored);
    if (schema)
      for (const std::string& rule : schema->rules_left_out()) out.push_back(fmt::format("spec.versions[{}]: not evaluated by the embedded engine: {}", version["name"].string(), rule));
  }
  return out;
}

std::vector<std::shared_ptr<const Kind>> kinds_of(const Json& crd) {
  std::vector<std::shared_ptr<const Kind>> out;
  if (!kube::condition_is_true(crd, "Established")) return out;
  const auto hook = hook_of(crd);
  const Json* stored = nullptr;
  for (const Json& version : crd["spec"]["versions"].items())
    if (version["storage"].boolean()) stored = &version;
  bool others_stored = false;
  for (const Json& version : crd["status"]["storedVersions"].items()) others_stored = others_stored || stored == nullptr || !(version == (*stored)["name"]);
  std::shared_ptr<const Schema> storage_schema;
  if (FieldErrors ignored; hook && stored != nullptr) storage_schema = Schema::compile((*stored)["schema"]["openAPIV3Schema"], "", ignored);
  for (const Json& version : crd["spec"]["versions"].items()) {
    if (!version["served"].boolean()) continue;
    auto kind = kind_of(crd, version);
    if (stored != nullptr) kind->storage_version = (*stored)["name"].string();
    if (!kind->storage) kind->storage_schema = storage_schema;
    kind->conversion = hook;
    kind->converts = hook && (!kind->storage || others_stored);
    out.push_back(std::move(kind));
  }
  return out;
}

}  // namespace fairlead::apiserver
