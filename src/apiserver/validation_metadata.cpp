// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "apiserver/rbac_kinds.h"
#include "apiserver/registry_names.h"
#include "apiserver/validation.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// As Go prints bad values: strings quoted, others as JSON.
std::string shown(const Json& value) {
  std::string text = print_json(value);
  constexpr std::size_t enough = 256;
  if (text.size() > enough) text = text.substr(0, enough) + "...";
  return text;
}

constexpr std::size_t annotations_limit = 256 * 1024;

}  // namespace

void FieldErrors::required(const std::string& path, std::string_view detail) {
  texts_.push_back(detail.empty() ? path + ": Required value" : fmt::format("{}: Required value: {}", path, detail));
}
void FieldErrors::invalid(const std::string& path, const Json& value, std::string_view detail) {
  texts_.push_back(fmt::format("{}: Invalid value: {}: {}", path, shown(value), detail));
}
void FieldErrors::unsupported_value(const std::string& path, const Json& value, const std::vector<std::string_view>& supported) {
  std::string list;
  for (const auto one : supported) list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", one);
  texts_.push_back(fmt::format("{}: Unsupported value: {}: supported values: {}", path, shown(value), list));
}
void FieldErrors::forbidden(const std::string& path, std::string_view detail) { texts_.push_back(fmt::format("{}: Forbidden: {}", path, detail)); }
void FieldErrors::duplicate(const std::string& path, const Json& value) { texts_.push_back(fmt::format("{}: Duplicate value: {}", path, shown(value))); }
void FieldErrors::invalid_as(const std::string& path, std::string_view shown, std::string_view detail) { texts_.push_back(fmt::format("{}: Invalid value: {}: {}", path, shown, detail)); }
void FieldErrors::duplicate_as(const std::string& path, std::string_view shown, std::string_view detail) {
  texts_.push_back(fmt::format("{}: Duplicate value: {}{}{}", path, shown, detail.empty() ? "" : ": ", detail));
}
void FieldErrors::not_found(const std::string& path, const Json& value) { texts_.push_back(fmt::format("{}: Not found: {}", path, shown(value))); }
void FieldErrors::too_long(const std::string& path, std::size_t limit) { texts_.push_back(fmt::format("{}: Too long: may not be more than {} bytes", path, limit)); }
void FieldErrors::too_many(const std::string& path, std::size_t actual, std::size_t limit) {
  texts_.push_back(fmt::format("{}: Too many: {}: must have at most {} items", path, actual, limit));
}
void FieldErrors::not_supported_here(const std::string& path, std::string_view remedy) {
  texts_.push_back(fmt::format("{}: Forbidden: not supported by the embedded engine{}{}", path, remedy.empty() ? "" : "; ", remedy));
}
std::unexpected<Error> FieldErrors::error(const kube::Resource& resource, std::string_view name) const {
  const std::string all = texts_.size() == 1 ? texts_.front() : fmt::format("[{}]", fmt::join(texts_, ", "));
  return fail(Code::Invalid, fmt::format("{} \"{}\" is invalid: {}", kind_text(resource), name, all));
}

std::string check_dns_1035_label(std::string_view name) {
  const bool fine = kube::check_dns_label(name).empty() && !name.empty() && name.front() >= 'a' && name.front() <= 'z';
  if (fine) return {};
  return "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. "
         "'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
}

namespace {

std::string check_name(const kube::Resource& resource, std::string_view name) {
  if (resource.group.empty() && resource.plural == "services") return check_dns_1035_label(name);
  if (resource.group.empty() && resource.plural == "namespaces") return kube::check_dns_label(name);
  if (resource.group == rbac_resources::roles.group) return check_path_segment(name);
  return kube::check_dns_subdomain(name);
}

void check_name_fields(const kube::Resource& resource, const Json& metadata, FieldErrors& errors) {
  const std::string& name = metadata["name"].string();
  const std::string& generate = metadata["generateName"].string();
  if (name.empty() && generate.empty()) {
    errors.required("metadata.name", "name or generateName is required");
    return;
  }
  if (!name.empty())
    if (const auto why = check_name(resource, name); !why.empty()) errors.invalid("metadata.name", name, why);
  if (!generate.empty() && name.empty()) {
    // The suffix is appended later: a trailing '-' or '.' is fine here.
    if (const auto why = check_name(resource, generate + "x"); !why.empty()) errors.invalid("metadata.generateName", generate, why);
  }
}

void check_owners(const Json& owners, FieldErrors& errors) {
  const Json* controller = nullptr;
  for (std::size_t i = 0; i < owners.items().size(); ++i) {
    const Json& owner = owners.items()[i];
    // Kubernetes does not say which of them.
    const std::string& version = owner["apiVersion"].string();
    if (version.empty() || version.ends_with('/') || std::count(version.begin(), version.end(), '/') > 1) errors.invalid("metadata.ownerReferences.apiVersion", version, "version must not be empty");
    for (const char* field : {"kind", "name", "uid"})
      if (owner[field].string().empty()) errors.invalid(fmt::format("metadata.ownerReferences.{}", field), "", fmt::format("{} must not be empty", field));
    if (!owner["controller"].boolean()) continue;
    if (controller) {
      errors.invalid("metadata.ownerReferences", "", fmt::format("Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                                                                  (*controller)["name"].string(), owner["name"].string()));
    }
    controller = &owner;
  }
}

}  // namespace

void check_metadata(const kube::Resource& resource, const Json& object, FieldErrors& errors) {
  const Json& metadata = object["metadata"];
  check_name_fields(resource, metadata, errors);
  for (const auto& [key, value] : metadata["labels"].members()) {
    if (const auto why = kube::check_label_key(key); !why.empty()) errors.invalid("metadata.labels", key, why);
    if (const auto why = kube::check_label_value(value.string()); !why.empty()) errors.invalid("metadata.labels", value, why);
  }
  std::size_t total = 0;
  for (const auto& [key, value] : metadata["annotations"].members()) {
    std::string lower = key;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (const auto why = kube::check_label_key(lower); !why.empty()) errors.invalid("metadata.annotations", key, why);
    total += key.size() + value.string().size();
  }
  if (total > annotations_limit) errors.too_long("metadata.annotations", annotations_limit);
  // Of kinds that CRDs define Kubernetes demands less.
  const bool custom = resource.group.find('.') != std::string::npos && !resource.group.ends_with(".k8s.io");
  for (std::size_t i = 0; i < metadata["finalizers"].items().size(); ++i) {
    const Json& finalizer = metadata["finalizers"].items()[i];
    const std::string& text = finalizer.string();
    const bool standard = text == "orphan" || text == "foregroundDeletion" || text == "kubernetes";
    if (const auto why = kube::check_label_key(text); !why.empty()) errors.invalid("metadata.finalizers", finalizer, why);
    else if (!custom && !standard && text.find('/') == std::string::npos)
      errors.invalid(fmt::format("metadata.finalizers[{}]", i), finalizer, "name is neither a standard finalizer name nor is it fully qualified");
  }
  check_owners(metadata["ownerReferences"], errors);
}

void check_metadata_change(const Json& old, const Json& next, FieldErrors& errors) {
  if (!kube::deleting(old)) return;
  std::vector<std::string> added;
  for (const Json& finalizer : next["metadata"]["finalizers"].items())
    if (!kube::has_finalizer(old, finalizer.string())) added.push_back("\"" + finalizer.string() + "\"");
  if (!added.empty())
    errors.forbidden("metadata.finalizers",
                     fmt::format("no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}", fmt::join(added, ", ")));
}

namespace {

void prune_value(Json& value, const kube::Field& field) {
  if (field.type == kube::FieldType::Message && field.message) {
    if (value.is_object()) prune_to_type(value, *field.message);
    return;
  }
  if (field.type == kube::FieldType::Quantity && (value.is_string() || value.is_number())) {
    if (auto quantity = kube::Quantity::from_json(value)) value = quantity->text();
  }
}

}  // namespace

void prune_to_type(Json& object, const kube::Type& type) {
  if (!object.is_object()) return;
  auto& members = object.members();
  std::erase_if(members, [&](Json::ObjectType::value_type& member) {
    if (member.first == "apiVersion" || member.first == "kind" || member.first == "metadata") return false;
    return member.second.is_null() || !type.find(member.first);
  });
  for (auto& [name, value] : members) {
    const kube::Field* field = type.find(name);
    if (!field) continue;
    if (field->repeated && value.is_array()) {
      for (Json& item : value.items()) prune_value(item, *field);
    } else if (field->map && value.is_object()) {
      for (auto& [key, item] : value.members()) {
        if (item.is_null() && field->type == kube::FieldType::String) item = "";  // the zero value, as Go reads it
        prune_value(item, *field);
      }
    } else {
      prune_value(value, *field);
    }
  }
}

Result<void> clean_metadata(Json& object) {
  constexpr std::array<std::string_view, 13> known{"name",   "generateName", "namespace",       "uid",        "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
                                                   "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"};
  Json& metadata = object.child("metadata");
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object()) return fail(Code::Invalid, "unable to decode: metadata must be an object");
  std::erase_if(metadata.members(), [&](const auto& member) { return member.second.is_null() || std::find(known.begin(), known.end(), member.first) == known.end(); });
  for (auto& [name, value] : metadata.members()) {
    if (name == "labels" || name == "annotations") {
      if (!value.is_object()) return fail(Code::Invalid, fmt::format("unable to decode: metadata.{} must be an object with strings", name));
      for (auto& [key, text] : value.members()) {
        if (text.is_null()) text = "";
        if (!text.is_string()) return fail(Code::Invalid, fmt::format("unable to decode: metadata.{}[{}] must be a string, not {}", name, key, print_json(text)));
      }
    } else if (name == "ownerReferences" || name == "finalizers") {
      if (!value.is_array()) return fail(Code::Invalid, fmt::format("unable to decode: metadata.{} must be a list", name));
      for (const Json& item : value.items())
        if (name == "finalizers" ? !item.is_string() : !item.is_object()) return fail(Code::Invalid, fmt::format("unable to decode: metadata.{}: {} is no valid item", name, print_json(item)));
    } else if (name == "generation" || name == "deletionGracePeriodSeconds") {
      if (!value.is_number()) return fail(Code::Invalid, fmt::format("unable to decode: metadata.{} must be an integer", name));
    } else if (!value.is_string()) {
      return fail(Code::Invalid, fmt::format("unable to decode: metadata.{} must be a string, not {}", name, print_json(value)));
    }
  }
  // Empty lists and maps are as good as none (omitempty in Go).
  std::erase_if(metadata.members(), [](const auto& member) {
    return (member.second.is_object() && member.second.members().empty()) || (member.second.is_array() && member.second.items().empty());
  });
  return {};
}

}  // namespace fairlead::apiserver
