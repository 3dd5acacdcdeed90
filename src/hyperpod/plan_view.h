// SPDX-License-Identifier: Apache-2.0
// Training plans, as operations on clusters and on plans look at them. For the operations alone.
#pragma once
#include <string>
#include <vector>

#include "api/reservations.h"
#include "hyperpod/operations.h"

namespace fairlead::hyperpod {

// All that are there, fresh from the API, without those that are being deleted.
Answer<std::vector<Json>> training_plans(const Sources& sources);
// By its ARN, fresh. ResourceNotFound: none of this site.
Answer<Json> find_plan(const Sources& sources, const Site& site, const std::string& arn);
// The same, if the caller may do this to it. Who may not learns nothing of what is there.
Answer<Json> allowed_plan(const Sources& sources, const Call& call, const char* action, const std::string& arn);
// Plans that groups of CreateCluster and UpdateCluster name: the caller may use them (the action, on the plan), they are there, of the group's type, and have so many. `before`: the cluster as it is; null: there is none.
Answer<void> check_plans(const Sources& sources, const Call& call, const char* action, const Json& input, const Json& before);
// What a group of a Cluster object calls its plan, as an ARN; and that plan's status, null where there is none.
std::string plan_arn(const Site& site, const std::string& named);
Json plan_status(const Sources& sources, const Site& site, const std::string& named, Instant now);

}  // namespace fairlead::hyperpod
