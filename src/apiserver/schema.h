// SPDX-License-Identifier: Apache-2.0
// Structural schemas of CustomResourceDefinitions: what an object of the kind may look like, its defaults, and what is cut away. Immutable, thread-safe, pure.
// Known: types, properties, additionalProperties, items, required, enum, numeric bounds, multipleOf, lengths, pattern (RE2, as Kubernetes), formats
// (int32, int64, date-time, date, byte, ipv4, ipv6, uuid, duration, email and others unchecked), nullable, default, allOf/anyOf/oneOf/not as value checks, x-kubernetes-
// int-or-string, preserve-unknown-fields, embedded-resource, list-type set and map with keys, map-type, x-kubernetes-validations (CEL, docs/design/046-cel.md).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apiserver/validation.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct SchemaNode;

class Schema {
 public:
  // Compiles spec.versions[i].schema.openAPIV3Schema. What is wrong with the schema itself is told in `errors` below `path`; nullptr then.
  static std::shared_ptr<const Schema> compile(const kube::Json& open_api, const std::string& path, FieldErrors& errors);
  ~Schema();

  // Fills in defaults. Metadata of the object itself is not touched.
  void apply_defaults(kube::Json& object) const;
  // Cuts away what the schema does not know; gives their paths ("spec.foo") in document order.
  std::vector<std::string> prune(kube::Json& object) const;
  // Then x-kubernetes-validations, unless what was found would lead them astray (a wrong type, something missing or too long). `old`: what is stored; null: nothing. What does not fit a rule but is as it was is not complained of.
  void validate(const kube::Json& object, FieldErrors& errors, const kube::Json* old = nullptr) const;
  const SchemaNode& root() const { return *root_; }
  std::vector<std::string> rules_left_out() const;  // "spec.size: RULE: WHY", of rules that cannot be evaluated here

 private:
  explicit Schema(std::unique_ptr<SchemaNode> root);
  std::unique_ptr<SchemaNode> root_;
};

}  // namespace fairlead::apiserver
