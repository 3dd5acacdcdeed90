// SPDX-License-Identifier: Apache-2.0
// How each place of an object is owned and merged: from the type table for built-in kinds, from the structural schema for kinds of CRDs.
// A small value that points into tables that outlive it (the type table, a Kind's schema).
#pragma once
#include <optional>
#include <string_view>

#include "apiserver/apply_fields.h"
#include "apiserver/registry.h"
#include "kube/type_table.h"

namespace fairlead::apiserver {

struct SchemaNode;

class Shape {
 public:
  // Leaf: a scalar, or a list or map that is owned and replaced as a whole. Struct and Map: member by member; Set: by value; Keyed: by the keys of its items.
  enum class Relation { Leaf, Map, Set, Keyed };

  static Shape of(const Kind& kind);
  static Shape of(const kube::Type& type) { return Shape(What::Struct, &type, nullptr, nullptr, false); }
  static Shape of(const SchemaNode& root);

  // What `value` is here. A value of another type than declared is a leaf; so is null, unless the place is a map or list.
  Relation relation(const kube::Json& value) const;
  bool lists() const;                        // a list is declared here
  bool maps() const;                         // a map or struct is declared here (or anything)
  bool atomic() const;                       // declared as a map or list that is owned as a whole
  bool declares(std::string_view name) const;  // a member with a type of its own, not just any key of a map
  // nullopt: members of this name are not known here.
  std::optional<Shape> member(std::string_view name) const;
  Shape item() const;
  // How an item of a Set or Keyed list is found. Invalid: a key is missing, or the item is no map or scalar.
  Result<PathElement> element(const kube::Json& item) const;
  // Why a scalar does not fit ("expected string, got &{1}"); empty: it fits, or nothing is known.
  std::string scalar_complaint(const kube::Json& value) const;

 private:
  enum class What { Struct, Map, List, Scalar, Deduced, Node };
  Shape(What what, const kube::Type* type, const kube::Field* field, const SchemaNode* node, bool atomic) : what_(what), atomic_(atomic), type_(type), field_(field), node_(node) {}
  static Shape element_of(const kube::Field& field);
  static Shape of_field(const kube::Field& field);
  static Shape deduced() { return Shape(What::Deduced, nullptr, nullptr, nullptr, false); }
  static Shape scalar(const kube::Field* field) { return Shape(What::Scalar, nullptr, field, nullptr, false); }
  static Shape of_node(const SchemaNode& node) { return Shape(What::Node, nullptr, nullptr, &node, false); }
  Relation list_relation() const;

  What what_;
  bool atomic_;
  const kube::Type* type_;
  const kube::Field* field_;
  const SchemaNode* node_;
};

// The object as it is before anything is set: structs that Go always has, null lists, zero numbers of fields without omitempty; apiVersion and kind left out.
// What a create is compared with. Of a kind from a CRD: an empty object. Cached for built-in types.
const kube::Json& zero_object(const kube::Type* type);

}  // namespace fairlead::apiserver
