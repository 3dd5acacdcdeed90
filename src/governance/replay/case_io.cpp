// SPDX-License-Identifier: Apache-2.0
#include "governance/replay/case_io.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::governance {
namespace {

using kube::Json;

// An array, an object by name, one object, or nothing.
template <class Read, class Into>
Result<void> read_list(const Json& list, const std::string& path, Read&& read, Into& into) {
  const auto add = [&](const Json& object, const std::string& at) -> Result<void> {
    auto value = read(object);
    if (!value) return pass(std::move(value.error()), at);
    into.push_back(std::move(*value));
    return {};
  };
  if (list.is_null()) return {};
  if (list.is_object() && list.has("metadata")) return add(list, path);
  if (list.is_object()) {
    for (const auto& [name, object] : list.members())
      if (auto done = add(object, path + "." + name); !done) return done;
    return {};
  }
  if (!list.is_array()) return fail(Code::Invalid, path + ": a list of objects is expected");
  for (std::size_t i = 0; i < list.items().size(); ++i)
    if (auto done = add(list.items()[i], fmt::format("{}[{}]", path, i)); !done) return done;
  return {};
}

bool is_nothing(const Json& value) {
  switch (value.type()) {
    case Json::Type::Null: return true;
    case Json::Type::Bool: return !value.boolean();
    case Json::Type::Int:
    case Json::Type::Double: return value.number() == 0;
    case Json::Type::String: return value.string().empty();
    case Json::Type::Array: return value.items().empty();
    case Json::Type::Object: return std::all_of(value.members().begin(), value.members().end(), [](const auto& member) { return is_nothing(member.second); });
  }
  return false;
}

std::string shown(const Json& value) {
  std::string text = kube::print_json(value);
  if (text.size() > 600) text = text.substr(0, 600) + "...";
  return text;
}

}  // namespace

Result<void> read_flavors(const Json& list, const std::string& path, WorldSpec& into) { return read_list(list, path, read_flavor, into.flavors); }
Result<void> read_queues(const Json& list, const std::string& path, WorldSpec& into) { return read_list(list, path, read_queue, into.queues); }
Result<void> read_cohorts(const Json& list, const std::string& path, WorldSpec& into) { return read_list(list, path, read_cohort, into.cohorts); }
Result<void> read_local_queues(const Json& list, const std::string& path, WorldSpec& into) { return read_list(list, path, read_local_queue, into.local_queues); }
Result<void> read_workloads(const Json& list, const std::string& path, const RequestRules& rules, WorldSpec& into) {
  return read_list(list, path, [&](const Json& object) { return read_workload(object, rules); }, into.workloads);
}

Result<void> read_topologies(const Json& list, const std::string& path, WorldSpec& into) {
  return read_list(list, path, [](const Json& object) -> Result<TopologyShape> {
    TopologyShape shape{.name = object["metadata"]["name"].string(), .levels = {}, .flavor_labels = {}, .tolerations = {}};
    if (shape.name.empty()) return fail(Code::Invalid, "metadata.name: a name is expected");
    for (const Json& level : object["spec"]["levels"].items()) shape.levels.push_back(level["nodeLabel"].string());
    return shape;
  }, into.topologies);
}

void read_nodes(const Json& nodes, const Json& pods, WorldSpec& into) {
  for (const Json& node : nodes.items()) into.nodes.push_back(read_topology_node(node));
  for (const Json& pod : pods.items()) {
    const std::string& phase = pod["status"]["phase"].string();
    const std::string& node = pod["spec"]["nodeName"].string();
    // Pods of topology workloads are counted with these.
    if (node.empty() || phase == "Succeeded" || phase == "Failed" || pod["metadata"]["labels"].has("kueue.x-k8s.io/tas")) continue;
    auto requests = read_pod_set(Json::object({{"name", "pod"}, {"count", 1}, {"template", Json::object({{"spec", pod["spec"]}})}}), "pods");
    if (requests) into.other_pods.push_back({node, std::move(requests->raw)});
  }
}

void read_gates(const Json& gates, Gates& into) {
  for (const auto& [name, on] : gates.members()) into.set(name, on.boolean());
}

Result<RequestRules> read_request_rules(const Json& transformations, const Json& excluded_prefixes) {
  RequestRules rules;
  for (const Json& prefix : excluded_prefixes.items()) rules.excluded_prefixes.push_back(prefix.string());
  for (std::size_t i = 0; i < transformations.items().size(); ++i) {
    const Json& one = transformations.items()[i];
    Transformation& rule = rules.transformations[one["input"].string()];
    rule.replace = one["strategy"].string() == "Replace";
    rule.multiply_by = one["multiplyBy"].string();
    for (const auto& [name, factor] : one["outputs"].members()) {
      auto quantity = kube::Quantity::from_json(factor);
      if (!quantity) return pass(std::move(quantity.error()), fmt::format("resourceTransformations[{}].outputs[{}]", i, name));
      rule.outputs.emplace(name, *quantity);
    }
  }
  return rules;
}

Result<std::map<FlavorResource, Amount>> read_usage(const Json& usage, const std::string& path) {
  std::map<FlavorResource, Amount> amounts;
  for (const auto& [key, amount] : usage.members()) {
    auto name = kube::parse_json(key);
    if (!name || (*name)["Resource"].string().empty()) return fail(Code::Invalid, fmt::format("{}: \"{}\" is no {{\"Flavor\", \"Resource\"}} pair", path, key));
    amounts[{(*name)["Flavor"].string(), (*name)["Resource"].string()}] = amount.integer();
  }
  return amounts;
}

std::string usage_key(const std::string& flavor, const std::string& resource) {
  return kube::print_json(Json::object({{"Flavor", flavor}, {"Resource", resource}}));
}

void use(World& world, std::string_view queue, const std::map<FlavorResource, Amount>& usage) {
  const NodeId leaf = world.ledger.leaf(queue);
  if (leaf == no_node) return;
  for (const auto& [name, amount] : usage)
    if (const Column c = world.ledger.column(leaf, name.flavor, name.resource); c != no_column) world.ledger.add(leaf, c, amount);
}

std::string difference(const Json& wanted, const Json& got, const std::string& path) {
  if (is_nothing(wanted) && is_nothing(got)) return {};
  if (wanted.is_object() && got.is_object()) {
    for (const auto& [name, value] : wanted.members())
      if (auto found = difference(value, got[name], path + "." + name); !found.empty()) return found;
    for (const auto& [name, value] : got.members())
      if (!wanted.has(name) && !is_nothing(value)) return fmt::format("{}.{}: want nothing, got {}", path, name, shown(value));
    return {};
  }
  if (wanted.is_array() && got.is_array() && wanted.items().size() == got.items().size()) {
    if (path.ends_with(".reasons")) {  // a set
      std::vector<std::string> a, b;
      for (const Json& item : wanted.items()) a.push_back(item.string());
      for (const Json& item : got.items()) b.push_back(item.string());
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      if (a == b) return {};
    }
    for (std::size_t i = 0; i < wanted.items().size(); ++i)
      if (auto found = difference(wanted.items()[i], got.items()[i], fmt::format("{}[{}]", path, i)); !found.empty()) return found;
    return {};
  }
  if (wanted == got) return {};
  return fmt::format("{}: want {}, got {}", path.empty() ? "." : path, shown(wanted), shown(got));
}

Json admission_json(const Admission& admission) {
  Json pod_sets = Json::array();
  for (const HeldPodSet& held : admission.pod_sets) {
    Json one = Json::object({{"name", held.name}});
    if (held.count) one.set("count", static_cast<std::int64_t>(*held.count));
    Json flavors = Json::object(), usage = Json::object();
    for (const auto& [resource, flavor] : held.flavors) flavors.set(resource, flavor);
    for (const auto& [resource, amount] : held.usage) usage.set(resource, amount_text(resource, amount));
    one.set("flavors", std::move(flavors)).set("resourceUsage", std::move(usage));
    if (held.topology) one.set("topologyAssignment", v1beta1_json(*held.topology));
    if (held.topology_pending) one.set("delayedTopologyRequest", "Pending");
    pod_sets.push(std::move(one));
  }
  return Json::object({{"clusterQueue", admission.queue}, {"podSetAssignments", std::move(pod_sets)}});
}

Result<Json> normal_admission(const Json& admission, const std::string& path) {
  auto read = read_admission(admission, path);
  if (!read) return std::unexpected(std::move(read.error()));
  return admission_json(*read);
}

Json assignment_json(const World& world, const Assignment& assignment) {
  Json pod_sets = Json::array(), tried = Json::array();
  for (const PodSetFlavors& one : assignment.pod_sets) {
    Json flavors = Json::object(), requests = Json::object(), last = Json::object(), attempts = Json::array();
    for (const FlavorChoice& choice : one.flavors) {
      const std::string& resource = world.resources[choice.resource];
      flavors.set(resource, Json::object({{"borrow", choice.borrow_level}, {"mode", text(choice.mode)}, {"name", world.flavors[choice.flavor].name}, {"triedFlavorIdx", choice.tried}}));
      last.set(resource, choice.tried);
    }
    for (const auto& [resource, amount] : one.requests) requests.set(world.resources[resource], amount_text(world.resources[resource], amount));
    const auto texts = [&](const std::vector<Why>& reasons) {
      std::vector<std::string> list;
      for (const Why& why : reasons) list.push_back(text(world, why));
      std::sort(list.begin(), list.end());
      Json sorted = Json::array();
      for (std::string& entry : list) sorted.push(std::move(entry));
      return sorted;
    };
    for (const Attempt& attempt : one.attempts) {
      Json told = Json::object({{"flavor", world.flavors[attempt.flavor].name}, {"mode", text(attempt.mode)}, {"borrow", attempt.borrow_level}});
      if (attempt.possibility) told.set("preemptionPossibility", *attempt.possibility == Possibility::NoCandidates ? "NoCandidates" : *attempt.possibility == Possibility::Preempt ? "Preempt" : "Reclaim");
      told.set("reasons", texts(attempt.reasons));
      told.set("noFitReason", text(attempt.no_fit));
      attempts.push(std::move(told));
    }
    Json status = Json::object({{"reasons", texts(one.reasons)}});
    if (!one.error.empty()) status.set("err", one.error);
    pod_sets.push(Json::object({{"name", one.name}, {"count", static_cast<std::int64_t>(one.count)}, {"flavors", std::move(flavors)}, {"requests", std::move(requests)}, {"status", std::move(status)}, {"flavorAssignmentAttempts", std::move(attempts)}}));
    tried.push(std::move(last));
  }
  return Json::object({{"borrowing", assignment.borrow_level}, {"noFitReason", text(assignment.no_fit)}, {"podSets", std::move(pod_sets)}, {"lastState", Json::object({{"lastTriedFlavorIdx", std::move(tried)}})}});
}

}  // namespace fairlead::governance
