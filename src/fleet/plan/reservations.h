// SPDX-License-Identifier: Apache-2.0
// Training plans in force: which machines are kept for which plan, what is granted, what is refused, what is told. Pure; docs/design/059-training-plans.md.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/reservations.h"
#include "kube/json.h"

namespace fairlead::fleet {

struct ReservationPlan {
  // What label and annotation of a Node are to be; empty: none.
  struct Mark {
    std::string node, plan, wanted_back;
    std::string version;                   // of the Node on which that was decided; another one is not written
    friend bool operator==(const Mark&, const Mark&) = default;
  };
  std::vector<Mark> marks;                 // of those that are otherwise, by node
  struct Status {
    std::string plan;
    kube::Json status;
  };
  std::vector<Status> statuses;            // those that are otherwise
  // Of each type the oldest request, where there is room for it: granted once its machines are marked and seen so by the API itself (is_secured).
  struct Due {
    std::string plan, extension, type;     // extension: its id; empty: the plan itself
    api::Commitment wanted;
  };
  std::vector<Due> due;
  std::optional<Instant> look_again;
};

// `objects`: TrainingPlans, fresh from the API. `waiting`: Inventory::waiting. Equal arguments give equal plans; once its writes have had their effect, and nothing is due, there are none. O(machines * plans of their type); 10,000 machines in 40 plans: cluster_plan_bench.cpp.
ReservationPlan plan_reservations(const std::vector<kube::Json>& objects, const std::vector<api::PlanMachine>& machines, const std::map<std::string, int>& waiting, Instant now);

// Are so many machines marked that nothing that was promised in that time is promised twice? `machines`: of Nodes that were just read.
bool is_secured(const ReservationPlan::Due& due, const api::Plans& plans, const std::vector<api::PlanMachine>& machines, Instant now);
// The plan's status once that is granted.
kube::Json granted_status(const kube::Json& object, const ReservationPlan::Due& due, Instant now);

api::Plans read_plans(const std::vector<kube::Json>& objects);  // without those that are being deleted

}  // namespace fairlead::fleet
