// SPDX-License-Identifier: Apache-2.0
// Where the running program lies: the others of this project lie beside it.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace fairlead {

// The absolute path of the running program. Where its file was replaced meanwhile (an upgrade), the path that it was started from. Internal: no /proc.
Result<std::string> own_program();
// The path of a program in the same folder. It need not exist.
Result<std::string> program_beside(std::string_view name);

}  // namespace fairlead
