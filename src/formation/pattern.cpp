// SPDX-License-Identifier: Apache-2.0
#include "formation/pattern.h"

#include <re2/re2.h>

#include <algorithm>

namespace fairlead::formation {
namespace {

constexpr std::size_t kStepsToCompile = 256;  // of one instruction, as matches count it

std::size_t size_of(const RE2& expression) { return static_cast<std::size_t>(std::max(1, expression.ProgramSize())); }

}  // namespace

Result<Pattern> Pattern::make(const std::string& text) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  auto compiled = std::make_shared<const RE2>(text, options);
  if (!compiled->ok()) return fail(Code::Invalid, "not a regular expression that is served here: " + compiled->error());
  return Pattern(std::move(compiled));
}

bool Pattern::matches_whole(std::string_view value) const { return RE2::FullMatch(re2::StringPiece(value.data(), value.size()), *compiled_); }
std::size_t Pattern::cost_to_make() const { return size_of(*compiled_) * kStepsToCompile; }
std::size_t Pattern::cost_to_match(std::size_t bytes) const { return size_of(*compiled_) * (bytes + 1); }

}  // namespace fairlead::formation
