// SPDX-License-Identifier: Apache-2.0
// One function for each kind of case. Each gives "" or the difference; Invalid: the case does not follow the format.
#pragma once
#include <string>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::governance {

Result<std::string> replay_available(const kube::Json& one);
Result<std::string> replay_dominant_share(const kube::Json& one);
Result<std::string> replay_borrowing_on(const kube::Json& one);
Result<std::string> replay_preemption_policy(const kube::Json& one);
Result<std::string> replay_pod_set_reducer(const kube::Json& one);
Result<std::string> replay_queue_ordering(const kube::Json& one);
Result<std::string> replay_entry_ordering(const kube::Json& one);
Result<std::string> replay_history_admission(const kube::Json& one);
Result<std::string> replay_assign_flavors(const kube::Json& one);      // assign-flavors, hierarchical, reclaim-before-priority-preemption, is-no-fit...
Result<std::string> replay_preemption_targets(const kube::Json& one);
Result<std::string> replay_cycle(const kube::Json& one);
Result<std::string> replay_last_context(const kube::Json& one);
Result<std::string> replay_topology(const kube::Json& one);

}  // namespace fairlead::governance
