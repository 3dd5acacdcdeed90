// SPDX-License-Identifier: Apache-2.0
// AllowedPattern: a regular expression over a whole value, in time that grows with the value alone.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace re2 {
class RE2;
}

namespace fairlead::formation {

// Of all patterns of one template, and again of all matches of one request: some tenths of a second.
inline constexpr std::size_t kMostPatternSteps = std::size_t{32} << 20;

class Pattern {
 public:
  // Invalid: the expression cannot be used (look-ahead and back-references, which Java knows, are not served), or comes to more than 1 MiB.
  static Result<Pattern> make(const std::string& text);
  bool matches_whole(std::string_view value) const;
  // Steps that making it has taken, and a match of so many bytes takes at most: bounds, for budgets.
  std::size_t cost_to_make() const;
  std::size_t cost_to_match(std::size_t bytes) const;

 private:
  explicit Pattern(std::shared_ptr<const re2::RE2> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const re2::RE2> compiled_;
};

}  // namespace fairlead::formation
