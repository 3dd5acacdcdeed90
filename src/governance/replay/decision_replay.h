// SPDX-License-Identifier: Apache-2.0
// A decision log (plan/decision_record.h) told to the engine again: does it decide the same, byte for byte?
#pragma once
#include <string_view>
#include <vector>

#include "governance/replay/replay.h"

namespace fairlead::governance {

bool is_decision_log(std::string_view text);  // or the end of one

// One outcome for each part of the log that began with an empty engine ("TIME by WHO (lines A-B)"); its detail tells the line that differs, or that no such log has. What stands before the first part is skipped: the log begins in the
// middle. A last line without an end is what a crash left, and is passed over.
std::vector<CaseOutcome> replay_decisions(std::string_view text);

}  // namespace fairlead::governance
