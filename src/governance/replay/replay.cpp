// SPDX-License-Identifier: Apache-2.0
#include "governance/replay/replay.h"

#include <fmt/format.h>

#include <map>

#include "governance/replay/groups.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using Replay = Result<std::string> (*)(const Json&);

const std::map<std::string_view, Replay>& groups() {
  static const std::map<std::string_view, Replay> table{
      {"available", replay_available},
      {"dominant-resource-share", replay_dominant_share},
      {"is-borrowing-on", replay_borrowing_on},
      {"satisfies-preemption-policy", replay_preemption_policy},
      {"pod-set-reducer-search", replay_pod_set_reducer},
      {"make-cluster-queue-ordering", replay_queue_ordering},
      {"entry-ordering", replay_entry_ordering},
      {"fs-admission", replay_history_admission},
      {"assign-flavors", replay_assign_flavors},
      {"hierarchical", replay_assign_flavors},
      {"reclaim-before-priority-preemption", replay_assign_flavors},
      {"is-no-fit-due-to-capacity-and-limits", replay_assign_flavors},
      {"last-scheduling-context", replay_last_context},
      {"find-topology-assignments", replay_topology},
  };
  return table;
}

// Alpha features that this engine does not have; of elastic jobs the placement, of concurrent admission the choice of flavors are there.
std::string missing_feature(const Json& one, Replay run) {
  static constexpr std::string_view missing[] = {"ConcurrentAdmission", "SchedulerLibraryIntegration", "WAS", "ElasticJobsViaWorkloadSlices", "ElasticJobsViaWorkloadSlicesWithTAS", "KueueDRAIntegrationConsumableCapacity", "DynamicResourceAllocation"};
  for (const Json* gates : {&one["config"]["featureGates"], &one["input"]["featureGates"]})
    for (const auto& [name, on] : gates->members())
      for (const std::string_view feature : missing)
        if (name == feature && on.boolean() && !(run == replay_topology && feature.starts_with("Elastic")) && !(run == replay_assign_flavors && feature == "ConcurrentAdmission")) return name;
  if (!one["input"]["replaceWl"].is_null() || !one["input"]["preemptWorkloadSlice"].is_null()) return "ElasticJobsViaWorkloadSlices";
  return {};
}

Result<Replay> group_of(const Json& file) {
  const std::string& group = file["group"].string();
  const std::string& kind = file["kind"].string();
  if (group.empty()) return fail(Code::Invalid, "group: the name of a group is expected, such as \"preemption\"");
  if (kind == "preemption-targets") return replay_preemption_targets;
  if (kind == "scheduling-cycle") return replay_cycle;
  if (kind != "unit-table") return fail(Code::Invalid, fmt::format("kind: \"{}\" is none of preemption-targets, scheduling-cycle, unit-table", kind));
  const auto at = groups().find(group);
  if (at != groups().end()) return at->second;
  std::string known;
  for (const auto& [name, replay] : groups()) known += (known.empty() ? "" : ", ") + std::string(name);
  return fail(Code::Invalid, fmt::format("group: \"{}\" is none of the unit tables: {}", group, known));
}

}  // namespace

Result<std::vector<CaseOutcome>> replay(std::string_view file_text) {
  auto file = kube::parse_json(file_text);
  if (!file) return std::unexpected(std::move(file.error()));
  auto run = group_of(*file);
  if (!run) return std::unexpected(std::move(run.error()));
  if (!(*file)["cases"].is_array()) return fail(Code::Invalid, "cases: a list is expected");
  std::vector<CaseOutcome> outcomes;
  for (std::size_t i = 0; i < (*file)["cases"].items().size(); ++i) {
    const Json& one = (*file)["cases"].items()[i];
    CaseOutcome outcome{.id = one["id"].string(), .detail = {}};
    const std::string path = fmt::format("cases[{}]", i);
    if (outcome.id.empty()) return fail(Code::Invalid, path + ".id: a name is expected");
    if (!one["expected"].is_object()) return fail(Code::Invalid, path + ".expected: an object is expected");
    if (outcome.detail = missing_feature(one, *run); !outcome.detail.empty()) {
      outcome.kind = CaseOutcome::Kind::Skipped;
    } else {
      auto difference = (*run)(one);
      if (!difference) return pass(std::move(difference.error()), fmt::format("{} ({})", path, outcome.id));
      outcome.detail = std::move(*difference);
      outcome.kind = outcome.detail.empty() ? CaseOutcome::Kind::Passed : CaseOutcome::Kind::Failed;
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace fairlead::governance
