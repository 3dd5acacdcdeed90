// SPDX-License-Identifier: Apache-2.0
// Case files against the engine: each case is decided anew and compared with the answer it carries. Format: tests/data/governance/README.md.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::governance {

struct CaseOutcome {
  enum class Kind { Passed, Failed, Skipped };
  std::string id;
  Kind kind = Kind::Passed;
  std::string detail;  // the first difference, or the feature that is not there
};

// Invalid: the file is not what the format says; with the path of the field.
Result<std::vector<CaseOutcome>> replay(std::string_view file_text);

}  // namespace fairlead::governance
