// SPDX-License-Identifier: Apache-2.0
#include "formation/pattern.h"

#include <re2/re2.h>

namespace fairlead::formation {

Result<bool> matches_whole(const std::string& pattern, std::string_view value) {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  const RE2 expression(pattern, options);
  if (!expression.ok()) return fail(Code::Invalid, "not a regular expression that is served here: " + expression.error());
  return RE2::FullMatch(re2::StringPiece(value.data(), value.size()), expression);
}

}  // namespace fairlead::formation
