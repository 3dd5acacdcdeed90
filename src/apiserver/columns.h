// SPDX-License-Identifier: Apache-2.0
// Cells of `kubectl get`: a small JSONPath for additionalPrinterColumns and the computed columns of built-in kinds.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apiserver/registry.h"

namespace fairlead::apiserver {

// The subset that printer columns use: .a.b, ['a'], \. inside names, [2], [-1], [*], [?(@.type=="Ready")] (also != and a bare path: it exists).
class JsonPath {
 public:
  static Result<JsonPath> parse(std::string_view text);  // with or without braces. Invalid: what is not understood, and where
  std::vector<const kube::Json*> find(const kube::Json& object) const;

 private:
  struct Child { std::string name; };
  struct Index { std::int64_t at; };
  struct All {};
  struct Filter {
    std::vector<std::string> path;
    enum class Op { Exists, Equal, NotEqual } op = Op::Exists;
    kube::Json literal;
  };
  std::vector<std::variant<Child, Index, All, Filter>> steps_;
};

// The value of a column for one object: a string, integer, boolean or null (kubectl prints <none>); dates become ages ("5m", "<unknown>").
kube::Json cell_of(const Column& column, const kube::Json& object, Instant now);

// The columns of built-in kinds (by resource, as kubectl prints them) and those of a kind that names none: NAME and AGE.
std::vector<Column> builtin_columns(const kube::Resource& resource);
std::vector<Column> default_columns();
Column name_column();
Column age_column();

}  // namespace fairlead::apiserver
