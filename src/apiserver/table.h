// SPDX-License-Identifier: Apache-2.0
// metav1.Table and PartialObjectMetadata: what `kubectl get` shows. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry.h"
#include "apiserver/table_path.h"
#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::apiserver {

enum class Include { Metadata, Object, None };
// The query parameter includeObject. Invalid: another word.
Result<Include> parse_include(std::string_view text);

// The columns of one kind, with their paths parsed once. Starts with Name, but for built-in kinds that have it elsewhere; a kind without columns has Name and Age.
class TableShape {
 public:
  explicit TableShape(const Kind& kind);
  kube::Json definitions() const;
  kube::Json row(const kube::Json& object, Include include, Instant now) const;

 private:
  struct Shaped {
    Column column;
    TablePath path;
    bool broken = false;  // its path does not parse: the cell stays empty
  };
  std::vector<Shaped> columns_;
};

// {kind: Table, metadata, columnDefinitions, rows}. `with_definitions` false: later events of a watch.
kube::Json table_frame(const TableShape& shape, kube::Json metadata, std::vector<kube::Json> rows, bool with_definitions = true);
// Kind and apiVersion of PartialObjectMetadata with the object's metadata.
kube::Json partial_object(const kube::Json& object);

}  // namespace fairlead::apiserver
