// SPDX-License-Identifier: Apache-2.0
// What a change would do: told to a fork of the books, and compared with the same books without it. Pure; nothing is written anywhere. docs/design/032-foresee.md.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

struct WhatIfInput {
  // As books_of() takes them. Beside them, where a change needs them: existing Jobs, WorkloadPriorityClasses and PriorityClasses for Jobs; ComputeQuotas and Nodes for what teams are given.
  std::vector<kube::Json> objects;
  std::vector<kube::Json> changes;   // each is merged into the object of its name (RFC 7386), or is a new one
  std::vector<std::string> without;  // "KIND/NAME": taken away
  std::string space;                 // of those that name no namespace
  Instant now{};
};

// What a change is about, and whether the input has to hold more than books need.
struct WhatIfNeeds {
  bool jobs = false;   // priority classes, and the Jobs that are named
  bool teams = false;  // ComputeQuotas and Nodes
};
Result<WhatIfNeeds> needs_of(const std::vector<kube::Json>& changes, const std::vector<std::string>& without);

struct WhatIf {
  struct Change {
    std::string kind;
    kube::ObjectKey key;
    std::string what;  // Created, Changed, Unchanged, Removed
  };
  struct Problem {  // why a change does not do what it says
    std::string kind;
    kube::ObjectKey key;
    std::string reason, message;
  };
  // A workload that is elsewhere than without the change, once all that is stopped has stopped.
  struct Shift {
    kube::ObjectKey workload;
    std::string owner, queue;
    std::optional<Books::Place> before;  // none: it is new
    std::optional<Books::Place> after;   // none: it is taken away
    int position_before = 0, position_after = 0;  // in the line of its queue; 0: in none
    bool anew = false;                   // it is stopped because it is changed itself
    std::optional<VictimReason> preempted;
    kube::ObjectKey preempted_by;        // no name: for nobody
    std::vector<kube::ObjectKey> after_stop_of;  // it starts once these have stopped
    std::string waits_for, reason;       // after: of what does not run
  };
  std::vector<Change> changes;  // with what follows of quotas of teams
  std::vector<Problem> problems;
  std::vector<Shift> starts, stops, waits, moves, leaves;  // waits: new in a line; leaves: stands in no line any more, or is gone
  std::map<kube::ObjectKey, std::string> owners;           // of all that are named: "job/train"
  bool settled = true;          // false: workloads went on stopping one another
};

// Invalid: a document or a name that cannot be meant; NotFound: what is to be taken away is not there.
Result<WhatIf> whatif(const WhatIfInput& input);
kube::Json to_json(const WhatIf& answer);

}  // namespace fairlead::governance
