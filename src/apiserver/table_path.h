// SPDX-License-Identifier: Apache-2.0
// The part of JSONPath that printer columns use: .a.b, ['a.b'], [0], [-1], [*], .*, [?(@.type=="Ready")]. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::apiserver {

class TablePath {
 public:
  // ".spec.x", "{.spec.x}" and "spec.x" mean the same. Invalid: says where it stopped.
  static Result<TablePath> parse(std::string_view text);
  // All that it selects, in document order; pointers into `object`.
  std::vector<const kube::Json*> find(const kube::Json& object) const;

 private:
  struct Step {
    enum class What { Member, Index, All, Filter } what = What::Member;
    std::string member;                // of Member
    std::int64_t index = 0;            // of Index; negative from the end
    std::vector<std::string> left;     // of Filter: @.a.b
    bool equal = true, exists = false; // of Filter: ==, !=, or only present
    kube::Json right;
  };
  friend struct PathParser;
  std::vector<Step> steps_;
};

}  // namespace fairlead::apiserver
