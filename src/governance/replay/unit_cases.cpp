// SPDX-License-Identifier: Apache-2.0
// Small tables: amounts, shares, orders, policies.
#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/partial.h"
#include "governance/replay/case_io.h"
#include "governance/replay/groups.h"

namespace fairlead::governance {
namespace {

using kube::Json;

// What stands in the input or beside it.
const Json& of(const Json& one, const char* name) { return one["input"].has(name) ? one["input"][name] : one[name]; }

// Queues and cohorts under any of the names that the tables use.
Result<WorldSpec> read_trees(const Json& one) {
  WorldSpec spec;
  for (const char* name : {"clusterQueues", "clusterQueue", "lendingClusterQueue", "otherClusterQueue", "cqs"})
    if (auto done = read_queues(of(one, name), name, spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_cohorts(of(one, "cohorts"), "cohorts", spec); !done) return std::unexpected(std::move(done.error()));
  return spec;
}

Json amounts_json(const Ledger& ledger, NodeId leaf, const auto& amount) {
  Json json = Json::object();
  for (Column c = 0; c < ledger.width(leaf); ++c)
    if (ledger.defined(leaf, c)) json.set(usage_key(ledger.name(leaf, c).flavor, ledger.name(leaf, c).resource), amount(leaf, c));
  return json;
}

}  // namespace

Result<std::string> replay_available(const Json& one) {
  auto spec = read_trees(one);
  if (!spec) return std::unexpected(std::move(spec.error()));
  World world = build_world(std::move(*spec));
  for (const auto& [queue, usage] : one["input"]["usage"].members()) {
    auto read = read_usage(usage, "input.usage." + queue);
    if (!read) return std::unexpected(std::move(read.error()));
    use(world, queue, *read);
  }
  Json available = Json::object(), potential = Json::object();
  for (const Queue& queue : world.queues) {
    available.set(queue.spec.name, amounts_json(world.ledger, queue.node, [&](NodeId leaf, Column c) { return Json(std::max<Amount>(0, world.ledger.available(leaf, c))); }));
    potential.set(queue.spec.name, amounts_json(world.ledger, queue.node, [&](NodeId leaf, Column c) { return Json(world.ledger.potential(leaf, c)); }));
  }
  return difference(one["expected"], Json::object({{"wantAvailable", std::move(available)}, {"wantPotentiallyAvailable", std::move(potential)}}));
}

Result<std::string> replay_dominant_share(const Json& one) {
  auto spec = read_trees(one);
  if (!spec) return std::unexpected(std::move(spec.error()));
  World world = build_world(std::move(*spec));
  auto usage = read_usage(one["input"]["usage"], "input.usage");
  if (!usage) return std::unexpected(std::move(usage.error()));
  use(world, of(one, "clusterQueue")["metadata"]["name"].string(), *usage);
  auto asked = read_usage(one["input"]["flvResQ"], "input.flvResQ");
  if (!asked) return std::unexpected(std::move(asked.error()));
  Json got = Json::array();
  for (const Json& wanted : one["expected"]["want"].items()) {
    const std::string& name = wanted["name"].string();
    const NodeId node = wanted["nodeType"].boolean() || wanted["nodeType"].integer() != 0 ? world.ledger.cohort(name) : world.ledger.leaf(name);
    if (node == no_node) return fail(Code::Invalid, fmt::format("expected.want: \"{}\" is no queue or cohort of the case", name));
    std::vector<Use> more;
    for (const auto& [column, amount] : *asked)
      if (const Column c = world.ledger.column(node, column.flavor, column.resource); c != no_column) more.push_back({c, amount});
    const Share share = world.ledger.share_with(node, more);
    Json entry = Json::object({{"name", name}, {"drValue", share.rounded()}, {"borrowing", share.borrowing}, {"nodeType", wanted["nodeType"]}});
    if (share.ratio != 0) entry.set("drName", world.ledger.resource_names(node)[share.resource]);
    got.push(std::move(entry));
  }
  return difference(one["expected"], Json::object({{"want", std::move(got)}}));
}

Result<std::string> replay_borrowing_on(const Json& one) {
  auto spec = read_trees(one);
  if (!spec) return std::unexpected(std::move(spec.error()));
  World world = build_world(std::move(*spec));
  const std::string& name = of(one, "clusterQueue")["metadata"]["name"].string();
  const NodeId node = world.ledger.leaf(name);
  if (node == no_node) return fail(Code::Invalid, "clusterQueue: a ClusterQueue is expected");
  auto usage = read_usage(one["input"]["usage"], "input.usage");
  if (!usage) return std::unexpected(std::move(usage.error()));
  use(world, name, *usage);
  auto asked = read_usage(one["input"]["requestedFRs"], "input.requestedFRs");
  if (!asked) return std::unexpected(std::move(asked.error()));
  std::vector<Use> requested;
  for (const auto& [column, amount] : *asked)
    if (const Column c = world.ledger.column(node, column.flavor, column.resource); c != no_column) requested.push_back({c, amount});
  return difference(one["expected"], Json::object({{"wantBorrowing", world.ledger.share(node).borrowing}, {"wantBorrowingOnRequested", world.ledger.borrowing_on(node, requested)}}));
}

Result<std::string> replay_preemption_policy(const Json& one) {
  const Json& input = one["input"];
  World world;
  read_gates(input["featureGates"], world.rules.gates);
  auto preemptor = read_workload(input["preemptor"]);
  if (!preemptor) return pass(std::move(preemptor.error()), "input.preemptor");
  auto candidate = read_workload(input["candidate"]);
  if (!candidate) return pass(std::move(candidate.error()), "input.candidate");
  const std::string& policy = input["policy"].string();
  const std::map<std::string_view, PreemptionPolicy> policies{{"", PreemptionPolicy::Never}, {"Never", PreemptionPolicy::Never}, {"LowerPriority", PreemptionPolicy::LowerPriority}, {"LowerOrNewerEqualPriority", PreemptionPolicy::LowerOrNewerEqualPriority}, {"Any", PreemptionPolicy::Any}};
  const auto at = policies.find(policy);
  if (at == policies.end()) return fail(Code::Invalid, fmt::format("input.policy: \"{}\" is no policy", policy));
  return difference(one["expected"], Json::object({{"want", policy_allows(world, at->second, *preemptor, *candidate)}}));
}

Result<std::string> replay_pod_set_reducer(const Json& one) {
  std::vector<CountRange> ranges;
  for (const Json& pod_set : one["input"]["podSets"].items()) {
    const auto full = static_cast<std::int32_t>(pod_set["count"].integer());
    ranges.push_back({full, static_cast<std::int32_t>(pod_set["minCount"].integer(full))});
  }
  const std::int64_t limit = one["input"]["countLimit"].integer();
  const auto found = largest_that_fits(ranges, [&](const std::vector<std::int32_t>& counts) -> std::optional<std::int64_t> {
    std::int64_t sum = 0;
    for (const std::int32_t count : counts) sum += count;
    return sum <= limit ? std::optional(sum) : std::nullopt;
  });
  return difference(one["expected"], Json::object({{"wantCount", found.value_or(0)}, {"wantFound", found.has_value()}}));
}

// In which order queues lose workloads: one each time, while usage stays as it is.
Result<std::string> replay_queue_ordering(const Json& one) {
  auto spec = read_trees(one);
  if (!spec) return std::unexpected(std::move(spec.error()));
  if (auto done = read_workloads(one["input"]["admitted"], "input.admitted", {}, *spec); !done) return std::unexpected(std::move(done.error()));
  spec->rules.fair = true;
  World world = build_world(std::move(*spec));
  const std::uint32_t preemptor = world.queue_named(one["input"]["preemptorCQ"].string());
  if (preemptor == none) return fail(Code::Invalid, "input.preemptorCQ: no such ClusterQueue in the case");
  std::vector<WorkloadId> candidates;
  for (const Json& name : one["input"]["candidateCQs"].items())
    if (const std::uint32_t q = world.queue_named(name.string()); q != none) candidates.insert(candidates.end(), world.queues[q].held.begin(), world.queues[q].held.end());
  FairOrder order(world, preemptor, candidates);
  Json got = Json::array();
  for (std::uint32_t q = order.next(); q != none; q = order.next()) {
    const auto& actions = one["input"]["actions"].items();
    const bool drop = got.items().size() < actions.size() && actions[got.items().size()].string() == "drop";
    got.push(world.queues[q].spec.name);
    if (drop) order.drop(q);
    else order.pop(q);
  }
  return difference(one["expected"], Json::object({{"wantOrder", std::move(got)}}));
}

Result<std::string> replay_entry_ordering(const Json& one) {
  World world;
  read_gates(one["input"]["featureGates"], world.rules.gates);
  world.rules.eviction_time_orders = one["input"]["workloadOrdering"]["podsReadyRequeuingTimestamp"].string() != "Creation";
  std::vector<Head> heads;
  for (std::size_t i = 0; i < one["input"]["input"].items().size(); ++i) {
    const Json& entry = one["input"]["input"].items()[i];
    auto workload = read_workload(entry);
    if (!workload) return pass(std::move(workload.error()), fmt::format("input.input[{}]", i));
    heads.push_back({.workload = static_cast<WorkloadId>(i), .has_quota = workload->reserved.is, .preemptor = entry["isPreemptor"].boolean(), .borrow_level = static_cast<int>(entry["assignment"]["borrowing"].integer())});
    world.workloads.push_back({.spec = std::move(*workload)});
  }
  std::stable_sort(heads.begin(), heads.end(), [&](const Head& a, const Head& b) { return compare_heads(world, a, b) < 0; });
  Json got = Json::array();
  for (const Head& head : heads) got.push(world.workloads[head.workload].spec.name);
  return difference(one["expected"], Json::object({{"wantOrder", std::move(got)}}));
}

// Which workload of a queue comes first where usage history counts.
Result<std::string> replay_history_admission(const Json& one) {
  const Json& input = one["input"];
  WorldSpec spec;
  if (auto done = read_queues(input["cq"], "input.cq", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_local_queues(input["lqs"], "input.lqs", spec); !done) return std::unexpected(std::move(done.error()));
  if (auto done = read_workloads(input["wls"], "input.wls", {}, spec); !done) return std::unexpected(std::move(done.error()));
  read_gates(input["featureGates"], spec.rules.gates);
  spec.rules.usage_history = !input["afsConfig"].is_null();
  HistoryRules rules;
  for (const auto& [resource, weight] : input["afsConfig"]["resourceWeights"].members()) rules.resource_weights[resource] = weight.number();
  Engine engine{.world = {}, .spaces = {}, .local_queues = {}, .history = UsageHistory(rules), .second_pass = {}};
  for (LocalQueueSpec& local : spec.local_queues) {
    local.queue = input["cq"]["metadata"]["name"].string();
    engine.local_queues[local.key()] = local;
  }
  for (const WorkloadSpec& workload : spec.workloads) {  // without an object its queue counts with weight 1
    const std::string key = workload.space + "/" + workload.local_queue;
    if (!engine.local_queues.contains(key)) {
      const LocalQueueSpec local{.space = workload.space, .name = workload.local_queue, .queue = input["cq"]["metadata"]["name"].string()};
      spec.local_queues.push_back(local);
      engine.local_queues[key] = local;
    }
  }
  for (const auto& [key, consumed] : input["initConsumedResources"].members()) {
    auto amounts = read_amounts(consumed, "input.initConsumedResources." + key);
    if (!amounts) return std::unexpected(std::move(amounts.error()));
    UsageHistory::Values values;
    for (const auto& [resource, amount] : *amounts) values[resource] = resource == "cpu" ? static_cast<double>(amount) / 1000 : static_cast<double>(amount);
    engine.history.set(key, std::move(values));
  }
  engine.world = build_world(std::move(spec));
  engine.start();
  const WorkloadId first = engine.pending.pop(0);
  Json got = Json::object();
  if (first != none) got.set("name", engine.world.workloads[first].spec.key());
  const Json& wanted = one["expected"]["wantWl"]["metadata"];
  Json want = Json::object();
  if (!wanted.is_null()) want.set("name", wanted["namespace"].string() + "/" + wanted["name"].string());
  return difference(want, got, "wantWl");
}

}  // namespace fairlead::governance
