// SPDX-License-Identifier: Apache-2.0
// Sets of fields as in metadata.managedFields (fieldsV1): trees of path elements. Format and order are those of sigs.k8s.io/structured-merge-diff v4. Pure values.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// One step of a path: a member `f:name`, an item of a list by its keys `k:{"name":"x"}`, of a set by its value `v:"x"`, of an atomic list by its index `i:0`.
struct PathElement {
  enum class Kind : std::uint8_t { Field, Key, Value, Index };
  Kind kind = Kind::Field;
  std::string text;  // the name, or compact JSON: keys sorted by name, the value, the index

  static PathElement field(std::string_view name) { return {Kind::Field, std::string(name)}; }
  static PathElement value(const kube::Json& value) { return {Kind::Value, print_json(value)}; }
  static PathElement key(std::vector<kube::JsonMember> fields);  // sorts them
  static PathElement key(std::string_view name, std::string_view value);
  // Fields first, then keys, values, indices; numbers in keys and values by size.
  friend std::strong_ordering operator<=>(const PathElement& a, const PathElement& b);
  friend bool operator==(const PathElement& a, const PathElement& b) = default;
};
using FieldPath = std::vector<PathElement>;
// `.spec.ports[port=80,protocol="TCP"].targetPort`, as conflicts name fields.
std::string path_text(const FieldPath& path);

class FieldSet {
 public:
  struct Node;
  // Invalid: no JSON object of path elements. Elements of an unknown kind are left out, as Kubernetes does. At most 128 levels.
  static Result<FieldSet> parse(const kube::Json& fields_v1);
  kube::Json json() const;
  void append(std::string& out) const;  // compact JSON: {"f:spec":{"f:replicas":{}}}

  bool empty() const { return nodes_.empty(); }
  bool has(const FieldPath& path) const;
  void insert(const FieldPath& path);
  const FieldSet& below(const PathElement& element) const;  // an empty set if there is nothing
  bool member(const PathElement& element) const;
  FieldSet& descend(const PathElement& element);  // made if absent; a set that stays empty must be taken out by tidy()
  void tidy();
  const std::vector<Node>& nodes() const { return nodes_; }
  std::vector<Node>& nodes() { return nodes_; }
  std::size_t size() const;  // of members at all levels

  FieldSet united(const FieldSet& other) const;
  FieldSet intersected(const FieldSet& other) const;
  FieldSet without(const FieldSet& other) const;            // members of other; what lies below them stays
  FieldSet without_trees(const FieldSet& other) const;      // members of other and all below them
  // Each member's path; members of a level before what is below.
  void each(const std::function<void(const FieldPath&)>& visit) const;
  friend bool operator==(const FieldSet& a, const FieldSet& b);

 private:
  Node* find(const PathElement& element);
  const Node* find(const PathElement& element) const;
  Node& make(const PathElement& element);
  std::vector<Node> nodes_;  // sorted; no node is both childless and no member
};
struct FieldSet::Node {
  PathElement element;
  bool member = false;
  FieldSet children;
  friend bool operator==(const Node& a, const Node& b) = default;
};

// `f:name`, `k:{...}` and so on. Unsupported: an unknown kind.
Result<PathElement> parse_path_element(std::string_view text);
std::string print(const PathElement& element);

}  // namespace fairlead::apiserver
