// SPDX-License-Identifier: Apache-2.0
// Whole cycles: what is admitted, who is pre-empted, what waits and why, and where it waits.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "governance/plan/pod_requests.h"
#include "governance/replay/case_io.h"
#include "governance/replay/groups.h"

namespace fairlead::governance {
namespace {

using kube::Json;

// Namespaces of the recorded cases.
std::map<std::string, kube::Labels> known_spaces() {
  std::map<std::string, kube::Labels> spaces{{"default", {}}};
  for (const char* name : {"eng-alpha", "eng-beta", "eng-gamma"}) spaces[name] = {{"dep", "eng"}};
  spaces["sales"] = {{"dep", "sales"}};
  spaces["lend"] = {{"dep", "lend"}};
  return spaces;
}

double seconds_of(const std::string& text) {  // "10s", "1m30s", "1h0m0s"
  double total = 0, number = 0, fraction = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= '0' && c <= '9') {
      if (fraction == 0) number = number * 10 + (c - '0');
      else number += (c - '0') * fraction, fraction /= 10;
    } else if (c == '.') {
      fraction = 0.1;
    } else {
      const bool milli = c == 'm' && i + 1 < text.size() && text[i + 1] == 's';
      total += number * (c == 'h' ? 3600 : milli ? 0.001 : c == 'm' ? 60 : 1);
      if (milli) ++i;
      number = fraction = 0;
    }
  }
  return total;
}

struct Run {
  Engine engine{.world = {}, .spaces = known_spaces(), .local_queues = {}, .history = UsageHistory(), .second_pass = {}};
  std::map<std::string, std::string> told;      // workload -> reason of QuotaReserved=False
  std::set<std::string> had_quota, was_evicted;  // before
  std::set<std::string> settled;                 // admitted before, with nothing to replace: no news of this run

  std::string key(WorkloadId w) const { return engine.world.workloads[w].spec.key(); }

  void cycle(const std::string& error) {
    const auto refuse = [&](WorkloadId) { return error; };
    for (const Decision& decision : run_cycle(engine, error.empty() ? std::function<std::string(WorkloadId)>{} : refuse)) {
      const std::string name = key(decision.workload);
      if (decision.kind == Decision::Kind::Admit) {
        told.erase(name);
      } else if (decision.kind != Decision::Kind::Evict && decision.tell && error.empty()) {
        told[name] = decision.reason;
      }
    }
  }
};

Result<void> set_up(const Json& one, const Json& queues, const Json& workloads, Run& run) {
  const Json& config = one["config"];
  WorldSpec spec;
  if (auto done = read_flavors(one["resourceFlavors"], "resourceFlavors", spec); !done) return done;
  if (auto done = read_queues(queues, "clusterQueues", spec); !done) return done;
  if (auto done = read_cohorts(one["cohorts"], "cohorts", spec); !done) return done;
  if (auto done = read_local_queues(one["localQueues"], "localQueues", spec); !done) return done;
  if (auto done = read_topologies(one["topologies"], "topologies", spec); !done) return done;
  auto rules = read_request_rules(one["resourceTransformations"], one["excludeResourcePrefixes"]);
  if (!rules) return std::unexpected(std::move(rules.error()));
  for (const char* list : {"limitRanges", "objects"})
    for (const Json& object : one[list].items())
      if (auto done = add_limit_range(object, rules->limit_ranges[object["metadata"]["namespace"].string()]); !done) return done;
  if (auto done = read_workloads(workloads, "workloads", *rules, spec); !done) return done;
  read_nodes(one["nodes"], one["pods"], spec);
  const auto inactive = [](const Json& check) {
    const auto& conditions = check["status"]["conditions"].items();
    return std::any_of(conditions.begin(), conditions.end(), [](const Json& condition) { return condition["type"].string() == "Active" && condition["status"].string() != "True"; });
  };
  for (const Json& check : one["admissionChecks"].items())
    if (!inactive(check)) spec.check_controllers[check["metadata"]["name"].string()] = check["spec"]["controllerName"].string();
  read_gates(config["featureGates"], spec.rules.gates);
  spec.rules.gates.ignore_undeclared = config["quotaCheckStrategy"].string() == "IgnoreUndeclared";
  spec.rules.fair = config["fairSharing"].boolean();
  spec.admissions_count = false;
  spec.rules.usage_history = !config["admissionFairSharing"].is_null();
  if (!config["now"].is_null()) {
    auto now = parse_time(config["now"].string());
    if (!now) return pass(std::move(now.error()), "config.now");
    spec.rules.now = *now;
  }
  HistoryRules history{.half_life_seconds = seconds_of(config["admissionFairSharing"]["usageHalfLifeTime"].string()), .sampling_seconds = seconds_of(config["admissionFairSharing"]["usageSamplingInterval"].string()), .resource_weights = {}};
  for (const auto& [resource, weight] : config["admissionFairSharing"]["resourceWeights"].members()) history.resource_weights[resource] = weight.number();
  run.engine.history = UsageHistory(std::move(history));
  const std::string& gone = config["deleteLocalQueueBeforeScheduling"].string();
  for (const LocalQueueSpec& local : spec.local_queues) {
    LocalQueueSpec known = local;
    if (known.name == gone) known.weight = 1;  // the object is not there: its work is, and counts with weight 1
    run.engine.local_queues[local.key()] = known;
    if (const Json& usage = config["initialLocalQueueUsage"][local.name]; usage.is_object()) {
      auto amounts = read_amounts(usage, "config.initialLocalQueueUsage." + local.name);
      if (!amounts) return std::unexpected(std::move(amounts.error()));
      UsageHistory::Values values;
      for (const auto& [resource, amount] : *amounts) values[resource] = resource == "cpu" ? static_cast<double>(amount) / 1000 : static_cast<double>(amount);
      run.engine.history.set(local.key(), std::move(values));
    }
  }
  for (const WorkloadSpec& workload : spec.workloads) {
    if (workload.reserved.is) run.had_quota.insert(workload.key());
    if (workload.admitted.is && workload.unhealthy_nodes.empty()) run.settled.insert(workload.key());
    if (workload.evicted.is) run.was_evicted.insert(workload.key());
    if (!workload.reserved.is && !workload.reserved.reason.empty()) run.told[workload.key()] = workload.reserved.reason;
  }
  run.engine.world = build_world(std::move(spec));
  run.engine.start();
  return {};
}

std::vector<std::string> sorted(std::vector<std::string> list) {
  std::sort(list.begin(), list.end());
  return list;
}

std::string compare_lists(const char* name, const std::vector<std::string>& want, const std::vector<std::string>& got) {
  const auto a = sorted(want), b = sorted(got);
  return a == b ? "" : fmt::format("{}: want [{}], got [{}]", name, fmt::join(a, ", "), fmt::join(b, ", "));
}

std::string compare_summary(const Json& wanted, const Run& run) {
  const World& world = run.engine.world;
  std::vector<std::string> admitted, preempted, evicted, pending, w_admitted, w_preempted, w_evicted, w_pending;
  for (const Workload& w : world.workloads) {
    const std::string key = w.spec.key();
    if (w.deleted) continue;
    if (w.spec.reserved.is && !run.had_quota.contains(key)) admitted.push_back(fmt::format("{} in {}{}", key, w.spec.admission->queue, w.spec.admitted.is ? "" : " (reserved)"));
    if (w.spec.evicted.is && !run.was_evicted.contains(key)) {
      if (w.spec.evicted.reason == "Preempted") preempted.push_back(key + " " + w.spec.preempted.reason);
      else evicted.push_back(key + " " + w.spec.evicted.reason);
    }
    if (!w.spec.reserved.is && !w.spec.finished.is) {
      const auto reason = run.told.find(key);
      pending.push_back(key + " " + (reason == run.told.end() ? "-" : reason->second));
    }
  }
  for (const Json& entry : wanted["admittedThisRun"].items()) w_admitted.push_back(fmt::format("{} in {}{}", entry["workload"].string(), entry["clusterQueue"].string(), entry["admitted"].boolean() ? "" : " (reserved)"));
  for (const Json& entry : wanted["preempted"].items()) w_preempted.push_back(entry["workload"].string() + " " + entry["reason"].string());
  for (const Json& entry : wanted["evictedOther"].items()) w_evicted.push_back(entry["workload"].string() + " " + entry["reason"].string());
  for (const Json& entry : wanted["pending"].items()) w_pending.push_back(entry["workload"].string() + " " + (entry["reason"].is_null() ? "-" : entry["reason"].string()));
  for (const auto& [name, want, got] : {std::tuple{"admittedThisRun", &w_admitted, &admitted}, {"preempted", &w_preempted, &preempted}, {"evictedOther", &w_evicted, &evicted}, {"pending", &w_pending, &pending}})
    if (auto found = compare_lists(name, *want, *got); !found.empty()) return found;
  return {};
}

Result<std::string> compare_admissions(const Json& wanted, const char* field, const Run& run, bool news_only) {
  Json want = Json::object(), got = Json::object();
  for (const auto& [key, admission] : wanted.members()) {
    auto normal = normal_admission(admission, std::string("expected.") + field + "." + key);
    if (!normal) return std::unexpected(std::move(normal.error()));
    want.set(key, std::move(*normal));
  }
  for (const Workload& w : run.engine.world.workloads) {
    if (!w.counted || w.deleted || (news_only && run.settled.contains(w.spec.key()))) continue;
    got.set(w.spec.key(), admission_json(*w.spec.admission));
  }
  return difference(want, got, field);
}

std::string compare_queues(const Json& wanted, const char* field, const Run& run, bool parked) {
  std::vector<std::string> want, got;
  for (const auto& [queue, list] : wanted.members())
    for (const Json& key : list.items()) want.push_back(queue + ": " + key.string());
  for (std::uint32_t q = 0; q < run.engine.world.queues.size(); ++q)
    for (const WorkloadId w : parked ? run.engine.pending.parked(q) : run.engine.pending.active(q)) got.push_back(run.engine.world.queues[q].spec.name + ": " + run.key(w));
  return compare_lists(field, want, got);
}

}  // namespace

Result<std::string> replay_cycle(const Json& one) {
  Run run;
  if (auto done = set_up(one, one["clusterQueues"], one["workloads"], run); !done) return std::unexpected(std::move(done.error()));
  const Json& injected = one["config"]["injectedAdmissionError"];
  const std::string error = injected.is_null() ? "" : injected.is_string() ? injected.string() : kube::print_json(injected);
  for (std::int64_t cycle = 0; cycle < one["config"]["cycles"].integer(1); ++cycle) run.cycle(error);
  const Json& expected = one["expected"];
  if (expected.has("summary"))
    if (auto found = compare_summary(expected["summary"], run); !found.empty()) return found;
  if (expected.has("assignments")) {
    auto found = compare_admissions(expected["assignments"], "assignments", run, false);
    if (!found || !found->empty()) return found;
  }
  if (expected.has("newAssignments")) {
    auto found = compare_admissions(expected["newAssignments"], "newAssignments", run, true);
    if (!found || !found->empty()) return found;
  }
  for (const auto& [field, parked] : {std::pair<const char*, bool>{"left", false}, {"inadmissible", true}})
    if (expected.has(field))
      if (auto found = compare_queues(expected[field], field, run, parked); !found.empty()) return found;
  return std::string();
}

// Two cycles with something deleted between them: where the search for flavors goes on.
Result<std::string> replay_last_context(const Json& one) {
  Run run;
  const Json& input = one["input"];
  if (auto done = set_up(one, input["cqs"], input["workloads"], run); !done) return std::unexpected(std::move(done.error()));
  run.cycle("");
  for (const Json& gone : input["deleteWorkloads"].items()) {
    const std::string key = gone["Namespace"].string() + "/" + gone["Name"].string();
    for (WorkloadId w = 0; w < run.engine.world.workloads.size(); ++w)
      if (run.key(w) == key) run.engine.remove(w);
  }
  run.cycle("");
  return compare_admissions(one["expected"]["wantAdmissionsOnSecondSchedule"], "wantAdmissionsOnSecondSchedule", run, false);
}

}  // namespace fairlead::governance
