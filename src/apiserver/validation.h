// SPDX-License-Identifier: Apache-2.0
// What an object must be before it is stored: metadata, built-in kinds and what may change in them. Pure: values in, complaints out, in Kubernetes' words.
// Features that the embedded engine does not have are complaints too ("Forbidden: ... is not supported by the embedded engine"): never ignored.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

// Complaints about fields, as apimachinery's field.ErrorList prints them.
class FieldErrors {
 public:
  void required(const std::string& path, std::string_view detail = {});
  void invalid(const std::string& path, const kube::Json& value, std::string_view detail);
  void unsupported_value(const std::string& path, const kube::Json& value, const std::vector<std::string_view>& supported);
  void forbidden(const std::string& path, std::string_view detail);
  void duplicate(const std::string& path, const kube::Json& value);
  // The same of structures, printed already (go_text.h).
  void invalid_as(const std::string& path, std::string_view shown, std::string_view detail);
  void duplicate_as(const std::string& path, std::string_view shown, std::string_view detail = {});
  void not_found(const std::string& path, const kube::Json& value);
  void too_long(const std::string& path, std::size_t limit);
  void too_many(const std::string& path, std::size_t actual, std::size_t limit);
  void not_supported_here(const std::string& path, std::string_view remedy);  // by the embedded engine
  void add(std::string text) { texts_.push_back(std::move(text)); }
  bool empty() const { return texts_.empty(); }
  const std::vector<std::string>& texts() const { return texts_; }
  // Invalid: `Pod "x" is invalid: [a: Required value, b: ...]`
  std::unexpected<Error> error(const kube::Resource& resource, std::string_view name) const;

 private:
  std::vector<std::string> texts_;
};

// As kube::check_dns_label of RFC 1123, but it begins with a letter. Empty: fine; else why not.
std::string check_dns_1035_label(std::string_view name);
// Name (or generateName), labels, annotations, finalizers, owners. The namespace was decided before.
void check_metadata(const kube::Resource& resource, const kube::Json& object, FieldErrors& errors);
void check_metadata_change(const kube::Json& old, const kube::Json& next, FieldErrors& errors);

// Built-in kinds; nothing for others.
void check_object(const kube::Resource& resource, const kube::Json& object, FieldErrors& errors);
void check_change(const kube::Resource& resource, const kube::Json& old, const kube::Json& next, FieldErrors& errors);

void check_pod(const kube::Json& pod, FieldErrors& errors);
void check_pod_change(const kube::Json& old, const kube::Json& next, FieldErrors& errors);

// Removes members that the type does not have and nulls, as a typed decoder would; quantities become their canonical text.
void prune_to_type(kube::Json& object, const kube::Type& type);
// Leaves what ObjectMeta has of what clients may send; wrong types are an error (400).
Result<void> clean_metadata(kube::Json& object);

}  // namespace fairlead::apiserver
