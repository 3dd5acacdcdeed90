// SPDX-License-Identifier: Apache-2.0
// A policy (SchedulerConfig) and quotas of teams (ComputeQuota) as the objects of Kueue that follow from them, with the names, labels and percentages that users of SageMaker HyperPod's task governance know.
// Pure: no clock, no I/O; equal input gives equal objects. docs/design/029-teams.md.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/team_crds.h"
#include "governance/plan/amount.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::governance {

inline constexpr const char* kTeamsLabel = api::teams::made_label;      // "true" on all that follows from policy and quotas
inline constexpr const char* kTeamCohort = "hyperpod-teams";
inline constexpr const char* kTeamMembers = "team-members";            // RoleBinding in a team's namespace: its subjects are the members, and are people's to write
inline constexpr const char* kScheduleOf = "fairlead.dev/quota-schedule-of";  // annotation of a queue whose schedule (quota_schedule.h) follows from a ComputeQuota: its name
inline constexpr const char* kInstanceType = "node.kubernetes.io/instance-type";

// What nodes with one label of instance type can give. cpu in thousandths, all else in whole units.
struct InstanceType {
  std::int64_t nodes = 0;
  std::map<std::string, Amount> smallest;  // of each resource, what the smallest of them has
  std::map<std::string, Amount> capacity;  // all of them together
};
// By type. Nodes that are being deleted do not count; those that are not ready do.
std::map<std::string, InstanceType> read_instance_types(const std::vector<kube::Json>& nodes);

struct TeamsInput {
  std::vector<kube::Json> configs;   // SchedulerConfig
  std::vector<kube::Json> quotas;    // ComputeQuota, with status
  std::vector<kube::Json> nodes;
  std::map<std::string, kube::Json> spaces;  // namespaces by name
  std::map<std::string, kube::Json> queues;  // ClusterQueues by name
  std::map<std::string, kube::Json> bindings;  // RoleBindings `team-members` by namespace
  std::set<std::string> other_classes;         // WorkloadPriorityClasses that were not made for teams
  std::string server;                          // the user that the server is for the API; empty: not known, or of system:masters
};

struct Verdict {
  kube::ObjectKey key;
  kube::Condition accepted;
  kube::Condition capacity;                 // CapacityShort; of quotas alone
  kube::Json in_force;                      // of a quota: the spec that counts; null: none does
  kube::Json allocated;                     // [{instanceType, resources: {name: quantity}}]
  kube::Json schedule;                      // of a quota with one: its windows, each with its `allocated`; null: none
};

struct TeamObject {
  kube::Resource resource;
  kube::Json object;  // the fields that are to be; null: not there; others are as they are
};

struct TeamsPlan {
  std::vector<TeamObject> objects;  // in the order in which they are to be made
  std::vector<Verdict> configs, quotas;
};
TeamsPlan plan_teams(const TeamsInput& input);

// The SchedulerConfig in force, the oldest; null: none.
const kube::Json* policy_in_force(const std::vector<kube::Json>& configs);
// Whether the policy in force shares by weight; without a policy: yes.
bool shares_fairly(const std::vector<kube::Json>& configs);

std::string space_of_team(const std::string& team);        // hyperpod-ns-TEAM
std::string queue_of_team(const std::string& team);        // hyperpod-ns-TEAM-clusterqueue
std::string viewers_of_team(const std::string& team);      // hyperpod-ns-TEAM-members, a ClusterRoleBinding
std::string local_queue_of_team(const std::string& team);  // hyperpod-ns-TEAM-localqueue

// Is every field of `wanted` in `have`, lists of the same length? Fields that the API adds do not matter.
bool holds_fields(const kube::Json& have, const kube::Json& wanted);
// `have` (null: a new one) with the fields of `wanted`, without those that are null there.
kube::Json with_fields(kube::Json have, const kube::Json& wanted);

}  // namespace fairlead::governance
