// SPDX-License-Identifier: Apache-2.0
// A group's minInstanceCount, of which HyperPod says: what has not come to it within three hours goes back to what was good before, so that its machines are there for others. Source: docs.aws.amazon.com, SageMaker AI developer guide, "Continuous
// provisioning for enhanced cluster operations" (MinInstanceCount). Pure.
//
// What is kept of it (status.instanceGroups[].minimum): {min, target: what is asked for; good, goodMin: what it goes back to; since: from when it lacks them, absent once it had them; held: its time has not begun; rolledBack: when it was given up; message}.
#pragma once
#include <chrono>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::fleet {

struct MinimumLook {
  int min = 0, target = 0, running = 0;
  int target_before = 0;  // what the status told last; 0: it told nothing
  bool held = false;      // it waits for a reservation to begin: that is no lack
};
// What is to be kept after this look; null: nothing. What is asked for anew is tried anew, from `now` on.
kube::Json next_minimum(const kube::Json& before, const MinimumLook& look, Instant now, std::chrono::seconds patience);
// Is what is asked for given up, and not yet taken back?
bool gives_up(const kube::Json& minimum, int min, int target);

}  // namespace fairlead::fleet
