// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/kueue_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "governance/plan/pod_requests.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::Quantity;

std::unexpected<Error> wrong(const std::string& path, std::string_view why) { return fail(Code::Invalid, fmt::format("{}: {}", path, why)); }
std::string item(const std::string& path, std::string_view list, std::size_t index) { return fmt::format("{}.{}[{}]", path, list, index); }

Result<Quantity> quantity(const Json& value, const std::string& path) {
  if (!value.is_string() && !value.is_number()) return wrong(path, "a quantity is expected, such as \"4\" or \"16Gi\"");
  auto parsed = Quantity::from_json(value);
  if (!parsed) return pass(std::move(parsed.error()), path);
  return *parsed;
}

Amount request_of(const Quantity& q, std::string_view resource) { return resource == "cpu" ? q.milli_value() : q.value(); }

Result<double> weight_of(const Json& spec, const std::string& path) {
  const Json& weight = spec["fairSharing"]["weight"];
  if (weight.is_null()) return 1.0;
  auto parsed = quantity(weight, path + ".fairSharing.weight");
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  const std::string text = parsed->text();
  // Weights are small and may be fractions: the exact text, by way of milli-units where that loses nothing.
  const double value = static_cast<double>(parsed->milli_value()) / 1000.0;
  if (value < 0 || text.starts_with('-')) return wrong(path + ".fairSharing.weight", "a weight is 0 or more");
  return value;
}

Result<std::vector<ResourceGroup>> read_groups(const Json& groups, const std::string& path) {
  std::vector<ResourceGroup> result;
  for (std::size_t g = 0; g < groups.items().size(); ++g) {
    const Json& group = groups.items()[g];
    ResourceGroup read;
    for (const Json& resource : group["coveredResources"].items()) read.resources.push_back(resource.string());
    for (std::size_t f = 0; f < group["flavors"].items().size(); ++f) {
      const Json& flavor = group["flavors"].items()[f];
      QueueFlavor into{.name = flavor["name"].string(), .resources = {}};
      const std::string at = item(item(path, "resourceGroups", g), "flavors", f);
      if (into.name.empty()) return wrong(at + ".name", "a flavor's name is expected");
      for (std::size_t r = 0; r < flavor["resources"].items().size(); ++r) {
        const Json& resource = flavor["resources"].items()[r];
        const std::string here = item(at, "resources", r);
        const std::string& name = resource["name"].string();
        if (name.empty()) return wrong(here + ".name", "a resource's name is expected");
        Limits limits;
        for (const auto& [field, slot] : {std::pair<const char*, Amount*>{"nominalQuota", &limits.nominal}, {"borrowingLimit", &limits.borrow}, {"lendingLimit", &limits.lend}}) {
          if (resource[field].is_null()) continue;
          auto amount = read_quota(resource[field], name, here + "." + field);
          if (!amount) return std::unexpected(std::move(amount.error()));
          *slot = *amount;
        }
        into.resources.emplace_back(name, limits);
      }
      read.flavors.push_back(std::move(into));
    }
    result.push_back(std::move(read));
  }
  return result;
}

Result<PreemptionPolicy> read_policy(const Json& value, const std::string& path) {
  const std::string& text = value.string();
  if (text.empty() || text == "Never") return PreemptionPolicy::Never;
  if (text == "LowerPriority") return PreemptionPolicy::LowerPriority;
  if (text == "LowerOrNewerEqualPriority") return PreemptionPolicy::LowerOrNewerEqualPriority;
  if (text == "Any") return PreemptionPolicy::Any;
  return wrong(path, fmt::format("\"{}\" is none of Never, LowerPriority, LowerOrNewerEqualPriority, Any", text));
}

// The same whatever the order of members: an API gives those of its own types in one order, those of a definition's in another.
void append_ordered(std::string& out, const Json& value) {
  if (value.is_array()) {
    out += '[';
    for (const Json& item : value.items()) append_ordered(out, item), out += ',';
    out += ']';
  } else if (value.is_object()) {
    std::vector<const kube::JsonMember*> members;
    for (const auto& member : value.members()) members.push_back(&member);
    std::sort(members.begin(), members.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    out += '{';
    for (const auto* member : members) kube::append_json_string(out, member->first), out += ':', append_ordered(out, member->second), out += ',';
    out += '}';
  } else {
    kube::append_json(out, value);
  }
}

// All of a pod set's template that any decision reads.
std::string shape_of(const Json& pod_set) {
  const Json& spec = pod_set["template"]["spec"];
  std::string shape;
  for (const char* field : {"nodeSelector", "affinity", "tolerations", "runtimeClassName", "overhead", "topologySpreadConstraints", "resourceClaims", "priority", "resources"}) {
    append_ordered(shape, spec[field]);
    shape += '\n';
  }
  for (const char* list : {"initContainers", "containers"}) {
    for (const Json& container : spec[list].items()) {
      append_ordered(shape, container["resources"]);
      append_ordered(shape, container["ports"]);
    }
    shape += '\n';
  }
  append_ordered(shape, pod_set["topologyRequest"]);
  append_ordered(shape, pod_set["minCount"]);
  return shape + pod_set["name"].string();
}

Result<Instant> time_at(const Json& value, const std::string& path) {
  if (value.string().empty()) return Instant{};
  auto time = parse_time(value.string());
  if (!time) return pass(std::move(time.error()), path);
  return *time;
}

Result<void> read_status(const Json& status, WorkloadSpec& into) {
  for (std::size_t i = 0; i < status["conditions"].items().size(); ++i) {
    const Json& condition = status["conditions"].items()[i];
    auto since = time_at(condition["lastTransitionTime"], item("status", "conditions", i) + ".lastTransitionTime");
    if (!since) return std::unexpected(std::move(since.error()));
    const std::string& type = condition["type"].string();
    Condition* slot = type == "QuotaReserved" ? &into.reserved : type == "Admitted" ? &into.admitted : type == "Evicted" ? &into.evicted : type == "Preempted" ? &into.preempted
                      : type == "Finished" ? &into.finished : type == "Requeued" ? &into.requeued : nullptr;
    if (slot != nullptr) *slot = {.is = condition["status"].string() == "True", .reason = condition["reason"].string(), .since = *since};
  }
  if (!status["admission"].is_null()) {
    auto admission = read_admission(status["admission"], "status.admission");
    if (!admission) return std::unexpected(std::move(admission.error()));
    into.admission = std::move(*admission);
  }
  for (const Json& pods : status["reclaimablePods"].items()) into.reclaimable[pods["name"].string()] = static_cast<std::int32_t>(pods["count"].integer());
  for (const Json& node : status["unhealthyNodes"].items()) into.unhealthy_nodes.push_back(node["name"].string());
  for (const Json& check : status["admissionChecks"].items()) {
    CheckState state{.name = check["name"].string(), .state = check["state"].string(), .updates = {}};
    for (const Json& update : check["podSetUpdates"].items()) {
      NodeNeeds& needs = state.updates[update["name"].string()];
      needs.selector = read_labels(update["nodeSelector"]);
      needs.tolerations = read_tolerations(update["tolerations"]);
    }
    into.checks.push_back(std::move(state));
  }
  if (!status["requeueState"]["requeueAt"].is_null()) {
    auto at = time_at(status["requeueState"]["requeueAt"], "status.requeueState.requeueAt");
    if (!at) return std::unexpected(std::move(at.error()));
    into.requeue_at = *at;
  }
  return {};
}

}  // namespace

Result<Amount> read_quota(const Json& value, std::string_view resource, const std::string& path) {
  auto parsed = quantity(value, path);
  if (!parsed) return std::unexpected(std::move(parsed.error()));
  if (parsed->value() < 0) return wrong(path, fmt::format("{} is negative", parsed->text()));
  if (parsed->value() >= unlimited / (resource == "cpu" ? 1000 : 1)) return unlimited;
  return request_of(*parsed, resource);
}

Result<NamedAmounts> read_amounts(const Json& list, const std::string& path, Negative negative) {
  NamedAmounts amounts;
  for (const auto& [name, value] : list.members()) {
    auto parsed = quantity(value, fmt::format("{}[{}]", path, name));
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    if (negative == Negative::Refused && parsed->value() < 0) return wrong(fmt::format("{}[{}]", path, name), fmt::format("{} is negative", parsed->text()));
    amounts[name] = std::max<Amount>(0, request_of(*parsed, name));
  }
  return amounts;
}

std::string amount_text(std::string_view resource, Amount amount) {
  if (amount == unlimited) return "<unlimited>";
  if (resource == "cpu") return amount % 1000 == 0 ? fmt::format("{}", amount / 1000) : fmt::format("{}m", amount);
  if ((resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-")) && amount != 0) {
    static constexpr std::array<const char*, 7> suffixes{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    std::size_t suffix = 0;
    while (amount % 1024 == 0 && suffix + 1 < suffixes.size()) amount /= 1024, ++suffix;
    if (suffix > 0 || amount <= -1024 || amount >= 1024) return fmt::format("{}{}", amount, suffixes[suffix]);
  }
  static constexpr std::array<const char*, 7> decimal{"", "k", "M", "G", "T", "P", "E"};
  std::size_t suffix = 0;
  while (amount != 0 && amount % 1000 == 0 && suffix + 1 < decimal.size()) amount /= 1000, ++suffix;
  return fmt::format("{}{}", amount, decimal[suffix]);
}

Result<FlavorSpec> read_flavor(const Json& object) {
  FlavorSpec flavor;
  flavor.node.name = object["metadata"]["name"].string();
  if (flavor.node.name.empty()) return wrong("metadata.name", "a name is expected");
  flavor.node.labels = read_labels(object["spec"]["nodeLabels"]);
  flavor.node.taints = read_taints(object["spec"]["nodeTaints"]);
  flavor.tolerations = read_tolerations(object["spec"]["tolerations"]);
  flavor.topology = object["spec"]["topologyName"].string();
  return flavor;
}

Result<QueueSpec> read_queue(const Json& object) {
  const Json& spec = object["spec"];
  QueueSpec queue;
  queue.name = object["metadata"]["name"].string();
  if (queue.name.empty()) return wrong("metadata.name", "a name is expected");
  queue.cohort = spec.has("cohortName") ? spec["cohortName"].string() : spec["cohort"].string();
  auto weight = weight_of(spec, "spec");
  if (!weight) return std::unexpected(std::move(weight.error()));
  queue.weight = *weight;
  const std::string& strategy = spec["queueingStrategy"].string();
  if (!strategy.empty() && strategy != "BestEffortFIFO" && strategy != "StrictFIFO") return wrong("spec.queueingStrategy", fmt::format("\"{}\" is neither BestEffortFIFO nor StrictFIFO", strategy));
  queue.strict_fifo = strategy == "StrictFIFO";
  const std::string& stop = spec["stopPolicy"].string();
  queue.stopped = stop == "Hold" || stop == "HoldAndDrain";
  queue.by_usage_history = spec["admissionScope"]["admissionMode"].string() == "UsageBasedAdmissionFairSharing";
  if (!spec["namespaceSelector"].is_null()) {
    auto selector = kube::LabelSelector::from_object(spec["namespaceSelector"]);
    if (!selector) return pass(std::move(selector.error()), "spec.namespaceSelector");
    queue.namespaces = std::move(*selector);
  }
  auto groups = read_groups(spec["resourceGroups"], "spec");
  if (!groups) return std::unexpected(std::move(groups.error()));
  queue.groups = std::move(*groups);
  QueuePolicies& policies = queue.policies;
  const Json& preemption = spec["preemption"];
  for (const auto& [field, slot] : {std::pair<const char*, PreemptionPolicy*>{"withinClusterQueue", &policies.within_queue}, {"reclaimWithinCohort", &policies.reclaim}}) {
    auto policy = read_policy(preemption[field], std::string("spec.preemption.") + field);
    if (!policy) return std::unexpected(std::move(policy.error()));
    *slot = *policy;
  }
  const Json& borrow = preemption["borrowWithinCohort"];
  policies.borrow_within_cohort = borrow["policy"].string() == "LowerPriority";
  if (!borrow["maxPriorityThreshold"].is_null()) policies.borrow_threshold = borrow["maxPriorityThreshold"].integer();
  const Json& fungibility = spec["flavorFungibility"];
  // MayStopSearch; Borrow and Preempt are its old names. What is absent is as if it were stopping there only where Kueue's defaulting did not run: never "next".
  const std::string& when_preempt = fungibility["whenCanPreempt"].string();
  policies.next_if_preempting = fungibility.is_null() || when_preempt == "TryNextFlavor";
  policies.next_if_borrowing = fungibility["whenCanBorrow"].string() == "TryNextFlavor";
  policies.preempt_rather_than_borrow = fungibility["preference"].string() == "PreemptionOverBorrowing";
  for (const Json& check : spec["admissionChecks"].items()) queue.checks.push_back(check.string());
  for (const Json& rule : spec["admissionChecksStrategy"]["admissionChecks"].items()) {
    std::vector<std::string> on;
    for (const Json& flavor : rule["onFlavors"].items()) on.push_back(flavor.string());
    queue.checks_on.emplace_back(rule["name"].string(), std::move(on));
  }
  return queue;
}

Result<CohortSpec> read_cohort(const Json& object) {
  const Json& spec = object["spec"];
  CohortSpec cohort;
  cohort.name = object["metadata"]["name"].string();
  if (cohort.name.empty()) return wrong("metadata.name", "a name is expected");
  cohort.parent = spec.has("parentName") ? spec["parentName"].string() : spec["parent"].string();
  auto weight = weight_of(spec, "spec");
  if (!weight) return std::unexpected(std::move(weight.error()));
  cohort.weight = *weight;
  auto groups = read_groups(spec["resourceGroups"], "spec");
  if (!groups) return std::unexpected(std::move(groups.error()));
  cohort.groups = std::move(*groups);
  return cohort;
}

Result<LocalQueueSpec> read_local_queue(const Json& object) {
  LocalQueueSpec queue{.space = object["metadata"]["namespace"].string(), .name = object["metadata"]["name"].string(), .queue = object["spec"]["clusterQueue"].string()};
  if (queue.name.empty()) return wrong("metadata.name", "a name is expected");
  auto weight = weight_of(object["spec"], "spec");
  if (!weight) return std::unexpected(std::move(weight.error()));
  queue.weight = *weight;
  const std::string& stop = object["spec"]["stopPolicy"].string();
  queue.stopped = stop == "Hold" || stop == "HoldAndDrain";
  return queue;
}

Result<PodSetSpec> read_pod_set(const Json& pod_set, const std::string& path, const RequestRules& rules) {
  PodSetSpec read;
  read.name = pod_set["name"].string();
  const std::int64_t count = pod_set.has("count") ? pod_set["count"].integer(-1) : 1;
  if (count < 0 || count > std::numeric_limits<std::int32_t>::max()) return wrong(path + ".count", "a number of pods is expected");
  read.count = static_cast<std::int32_t>(count);
  if (!pod_set["minCount"].is_null()) {
    const std::int64_t least = pod_set["minCount"].integer(-1);
    if (least < 0 || least > count) return wrong(path + ".minCount", fmt::format("a number between 0 and the count, {}, is expected", count));
    read.min_count = static_cast<std::int32_t>(least);
  }
  const Json& spec = pod_set["template"]["spec"];
  auto requests = pod_requests(spec, path + ".template.spec");
  if (!requests) return std::unexpected(std::move(requests.error()));
  read.raw = std::move(*requests);
  auto invalid = contradiction(spec, path + ".template.spec");
  if (!invalid) return std::unexpected(std::move(invalid.error()));
  read.invalid = std::move(*invalid);
  read.per_pod = transformed(read.raw, rules);
  read.needs = read_node_needs(spec);
  read.topology = read_topology_ask(pod_set["topologyRequest"]);
  read.shape = shape_of(pod_set);
  return read;
}

Result<Admission> read_admission(const Json& admission, const std::string& path) {
  Admission read{.queue = admission["clusterQueue"].string(), .pod_sets = {}};
  if (read.queue.empty()) return wrong(path + ".clusterQueue", "a queue's name is expected");
  for (std::size_t i = 0; i < admission["podSetAssignments"].items().size(); ++i) {
    const Json& assignment = admission["podSetAssignments"].items()[i];
    HeldPodSet held{.name = assignment["name"].string(), .flavors = {}, .usage = {}, .count = {}, .topology = {}};
    for (const auto& [resource, flavor] : assignment["flavors"].members()) held.flavors[resource] = flavor.string();
    auto usage = read_amounts(assignment["resourceUsage"], item(path, "podSetAssignments", i) + ".resourceUsage");
    if (!usage) return std::unexpected(std::move(usage.error()));
    held.usage = std::move(*usage);
    if (!assignment["count"].is_null()) held.count = static_cast<std::int32_t>(std::clamp<std::int64_t>(assignment["count"].integer(), 0, std::numeric_limits<std::int32_t>::max()));
    if (!assignment["topologyAssignment"].is_null()) held.topology = read_topology_assignment(assignment["topologyAssignment"]);
    held.topology_pending = assignment["delayedTopologyRequest"].string() == "Pending";
    read.pod_sets.push_back(std::move(held));
  }
  return read;
}

Result<WorkloadSpec> read_workload(const Json& object, const RequestRules& rules) {
  const Json& meta = object["metadata"];
  const Json& spec = object["spec"];
  WorkloadSpec workload;
  workload.space = meta["namespace"].string();
  workload.name = meta["name"].string();
  if (workload.name.empty()) return wrong("metadata.name", "a name is expected");
  workload.uid = meta["uid"].string();
  auto created = time_at(meta["creationTimestamp"], "metadata.creationTimestamp");
  if (!created) return std::unexpected(std::move(created.error()));
  workload.created = *created;
  workload.local_queue = spec["queueName"].string();
  workload.priority = spec["priority"].integer();
  workload.active = spec["active"].boolean(true);
  const std::string& boost = meta["annotations"]["kueue.x-k8s.io/priority-boost"].string();
  std::int32_t value = 0;
  if (const auto [end, error] = std::from_chars(boost.data(), boost.data() + boost.size(), value); error == std::errc{} && end == boost.data() + boost.size()) workload.boost = value;
  if (const std::string& allowed = meta["annotations"]["kueue.x-k8s.io/workload-allowed-resource-flavors"].string(); !allowed.empty())
    for (std::size_t at = 0; at <= allowed.size();) {
      const std::size_t comma = std::min(allowed.find(',', at), allowed.size());
      workload.allowed_flavors.push_back(allowed.substr(at, comma - at));
      at = comma + 1;
    }
  read_checkpoints(meta["annotations"], workload.checkpoint_every, workload.checkpointed_at);
  workload.admission_gate = !meta["annotations"]["kueue.x-k8s.io/admission-gated-by"].string().empty();
  const auto& owners = meta["ownerReferences"].items();
  workload.owned_by_pod = owners.size() == 1 && owners[0]["kind"].string() == "Pod";
  for (const Json& gate : spec["preemptionGates"].items()) {
    const auto& states = object["status"]["preemptionGates"].items();
    const bool open = std::any_of(states.begin(), states.end(), [&](const Json& state) { return state["name"] == gate["name"] && state["position"].string() == "Open"; });
    workload.closed_preemption_gate = workload.closed_preemption_gate || !open;
  }
  for (std::size_t i = 0; i < spec["podSets"].items().size(); ++i) {
    auto pod_set = read_pod_set(spec["podSets"].items()[i], item("spec", "podSets", i), rules);
    if (!pod_set) return std::unexpected(std::move(pod_set.error()));
    if (const auto ranges = rules.limit_ranges.find(workload.space); ranges != rules.limit_ranges.end() && pod_set->invalid.empty()) {
      auto outside = outside_limits(spec["podSets"].items()[i]["template"]["spec"], ranges->second, item("spec", "podSets", i) + ".template.spec");
      if (!outside) return std::unexpected(std::move(outside.error()));
      pod_set->invalid = std::move(*outside);
    }
    workload.pod_sets.push_back(std::move(*pod_set));
  }
  if (auto status = read_status(object["status"], workload); !status) return std::unexpected(std::move(status.error()));
  return workload;
}

}  // namespace fairlead::governance
