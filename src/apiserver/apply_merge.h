// SPDX-License-Identifier: Apache-2.0
// What server-side apply does with values: compare, merge, take away, by the shapes of their places. The rules are those of sigs.k8s.io/structured-merge-diff v4. Pure.
#pragma once
#include <string>
#include <vector>

#include "apiserver/apply_fields.h"
#include "apiserver/apply_shape.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct Comparison {
  FieldSet removed, modified, added;  // as seen from left to right; disjoint
  bool same() const { return removed.empty() && modified.empty() && added.empty(); }
};
Comparison compare(const kube::Json& left, const kube::Json& right, const Shape& shape);

// Every leaf and every item that the value mentions: what an applied configuration owns.
FieldSet fields_of(const kube::Json& value, const Shape& shape);
// `right` wins where both have a leaf; nothing is removed. Lists keep the order of `left`, or take that of `right` where it has something to say.
kube::Json merge(const kube::Json& left, const kube::Json& right, const Shape& shape);
kube::Json remove_fields(const kube::Json& value, const FieldSet& fields, const Shape& shape);
// With the declared members on the way to others: a set of a.b.c owns a as well.
FieldSet with_named(const FieldSet& set, const Shape& shape);
// What was owned below a place that is atomic by now is owned as this place.
FieldSet reconciled(FieldSet set, const Shape& shape);

// What is wrong with an applied configuration: members that are not declared, scalars of another type, items that occur twice; `.spec.foo: field not declared in schema`.
std::vector<std::string> configuration_errors(const kube::Json& value, const Shape& shape);

// fieldsV1 of what `right` adds to or changes in `left`, written at once (no trees): the path of a create. Empty: nothing. Equals
// print(compare(left, right).modified united with added) without metadata's system fields, and without `skip_status` if it is set.
std::string changed_fields(const kube::Json& left, const kube::Json& right, const Shape& shape, bool skip_status);
// Fields of metadata (and the frame) that nobody owns.
const FieldSet& system_fields();

}  // namespace fairlead::apiserver
