// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/views.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::placement {
namespace {

using kube::Json;

std::optional<Effect> read_effect(const std::string& text) {
  if (text == "NoSchedule") return Effect::NoSchedule;
  if (text == "PreferNoSchedule") return Effect::PreferNoSchedule;
  if (text == "NoExecute") return Effect::NoExecute;
  return std::nullopt;
}

void set_resource(Resources& resources, const std::string& name, const kube::Quantity& amount) {
  if (name == "cpu") {
    resources.cpu = {amount.milli_value()};
  } else if (name == "memory") {
    resources.memory = {amount.value()};
  } else if (name == "pods") {
    resources.pods = amount.value();
  } else if (name != "ephemeral-storage" && name != "storage") {
    resources.extended[name] = amount.value();
  }
}

Resources read_resources(const Json& list, const std::string& where, std::vector<std::string>& problems) {
  Resources out;
  for (const auto& [name, value] : list.members()) {
    if (auto amount = kube::Quantity::from_json(value)) {
      set_resource(out, name, *amount);
    } else {
      problems.push_back(fmt::format("{}.{}: {}", where, name, amount.error().message));
    }
  }
  return out;
}

// Requests of a container; a limit without a request is the request.
Resources container_requests(const Json& container, std::vector<std::string>& problems) {
  Json merged = container["resources"]["limits"].is_object() ? container["resources"]["limits"] : Json::object();
  for (const auto& [name, value] : container["resources"]["requests"].members()) merged.set(name, value);
  return read_resources(merged, fmt::format("resources of container {}", container["name"].string()), problems);
}

void take_larger(Resources& into, const Resources& other) {
  into.cpu = std::max(into.cpu, other.cpu);
  into.memory = std::max(into.memory, other.memory);
  for (const auto& [name, amount] : other.extended) into.extended[name] = std::max(into.extended[name], amount);
}

// Init containers run one after another before the others, those with restartPolicy Always go on beside them.
Resources effective_requests(const Json& spec, std::vector<std::string>& problems) {
  Resources together, sidecars, peak;
  for (const Json& container : spec["initContainers"].items()) {
    const Resources own = container_requests(container, problems);
    if (container["restartPolicy"].string() == "Always") {
      sidecars += own;
      take_larger(peak, sidecars);
    } else {
      Resources now = sidecars;
      now += own;
      take_larger(peak, now);
    }
  }
  for (const Json& container : spec["containers"].items()) together += container_requests(container, problems);
  together += sidecars;
  take_larger(together, peak);
  together += read_resources(spec["overhead"], "overhead", problems);
  together.pods = 1;
  return together;
}

std::optional<NodeRequirement> read_requirement(const Json& json, bool field, std::vector<std::string>& problems) {
  static const std::map<std::string, NodeRequirement::Op> ops = {
      {"In", NodeRequirement::Op::In},   {"NotIn", NodeRequirement::Op::NotIn}, {"Exists", NodeRequirement::Op::Exists}, {"DoesNotExist", NodeRequirement::Op::DoesNotExist},
      {"Gt", NodeRequirement::Op::Gt},   {"Lt", NodeRequirement::Op::Lt},
  };
  NodeRequirement out{.key = json["key"].string(), .values = {}, .field = field};
  const auto op = ops.find(json["operator"].string());
  if (op == ops.end()) {
    problems.push_back(fmt::format("node affinity: unknown operator \"{}\"", json["operator"].string()));
    return std::nullopt;
  }
  if (field && out.key != "metadata.name") {
    problems.push_back(fmt::format("node affinity: field {} is not supported; metadata.name is", out.key));
    return std::nullopt;
  }
  out.op = op->second;
  for (const Json& value : json["values"].items()) out.values.push_back(value.string());
  return out;
}

NodeTerm read_node_term(const Json& json, std::vector<std::string>& problems) {
  NodeTerm out;
  for (const Json& expression : json["matchExpressions"].items()) {
    if (auto requirement = read_requirement(expression, false, problems)) out.push_back(std::move(*requirement));
  }
  for (const Json& expression : json["matchFields"].items()) {
    if (auto requirement = read_requirement(expression, true, problems)) out.push_back(std::move(*requirement));
  }
  return out;
}

// A label selector, narrowed by what the pod itself has under some keys (matchLabelKeys) or must not have (mismatchLabelKeys).
std::optional<kube::LabelSelector> read_selector(const Json& json, const kube::Labels& labels, const char* where, std::vector<std::string>& problems) {
  Json object = json["labelSelector"];
  for (const auto& [list, op] : {std::pair{"matchLabelKeys", "In"}, std::pair{"mismatchLabelKeys", "NotIn"}}) {
    for (const Json& key : json[list].items()) {
      const auto label = labels.find(key.string());
      if (label == labels.end() || !object.is_object()) continue;
      object.child("matchExpressions").push(Json::object({{"key", key}, {"operator", op}, {"values", Json::array({label->second})}}));
    }
  }
  auto selector = kube::LabelSelector::from_object(object);
  if (selector) return std::move(*selector);
  problems.push_back(fmt::format("{}: {}", where, selector.error().message));
  return std::nullopt;
}

std::optional<PodTerm> read_pod_term(const Json& json, const Pod& pod, const char* where, std::vector<std::string>& problems) {
  auto selector = read_selector(json, pod.labels, where, problems);
  if (!selector) return std::nullopt;
  PodTerm term{.selector = std::move(*selector), .spaces = {}, .topology_key = json["topologyKey"].string(), .space_selector = std::nullopt};
  for (const Json& name : json["namespaces"].items()) term.spaces.insert(name.string());
  const Json& spaces = json["namespaceSelector"];
  if (!spaces.is_object()) {
    if (term.spaces.empty()) term.spaces.insert(pod.key.space);
    return term;
  }
  auto chosen = kube::LabelSelector::from_object(spaces);
  if (!chosen) {
    problems.push_back(fmt::format("{}: namespaceSelector: {}", where, chosen.error().message));
    return std::nullopt;
  }
  if (chosen->empty()) term.spaces.clear();  // every namespace
  else term.space_selector = std::move(*chosen);
  return term;
}

std::vector<PodTerm> read_pod_terms(const Json& list, Pod& pod, const char* where) {
  std::vector<PodTerm> out;
  for (const Json& json : list.items()) {
    if (auto term = read_pod_term(json, pod, where, pod.problems)) out.push_back(std::move(*term));
  }
  return out;
}

void read_affinity(const Json& affinity, Pod& pod) {
  const Json& node = affinity["nodeAffinity"];
  if (const Json& required = node["requiredDuringSchedulingIgnoredDuringExecution"]; required.is_object()) {
    pod.required.emplace();
    for (const Json& term : required["nodeSelectorTerms"].items()) pod.required->push_back(read_node_term(term, pod.problems));
  }
  for (const Json& preferred : node["preferredDuringSchedulingIgnoredDuringExecution"].items()) {
    pod.preferred.push_back({preferred["weight"].integer(), read_node_term(preferred["preference"], pod.problems)});
  }
  const Json &near = affinity["podAffinity"], &apart = affinity["podAntiAffinity"];
  pod.near = read_pod_terms(near["requiredDuringSchedulingIgnoredDuringExecution"], pod, "pod affinity");
  pod.apart = read_pod_terms(apart["requiredDuringSchedulingIgnoredDuringExecution"], pod, "pod anti-affinity");
  for (const auto& [list, sign] : {std::pair{&near, 1}, std::pair{&apart, -1}}) {
    for (const Json& preferred : (*list)["preferredDuringSchedulingIgnoredDuringExecution"].items()) {
      auto term = read_pod_term(preferred["podAffinityTerm"], pod, "preferred pod affinity", pod.problems);
      if (term) pod.liked.push_back({sign * preferred["weight"].integer(), std::move(*term)});
    }
  }
}

void read_spreads(const Json& list, Pod& pod) {
  for (const Json& json : list.items()) {
    auto selector = read_selector(json, pod.labels, "topologySpreadConstraints", pod.problems);
    if (!selector) continue;
    pod.spreads.push_back({.max_skew = std::max<std::int64_t>(1, json["maxSkew"].integer(1)), .topology_key = json["topologyKey"].string(),
                           .required = json["whenUnsatisfiable"].string() != "ScheduleAnyway", .selector = std::move(*selector),
                           .min_domains = std::max<std::int64_t>(1, json["minDomains"].integer(1)), .honor_affinity = json["nodeAffinityPolicy"].string() != "Ignore",
                           .honor_taints = json["nodeTaintsPolicy"].string() == "Honor"});
  }
}

Toleration read_toleration(const Json& json) {
  Toleration out{.key = json["key"].string(), .exists = json["operator"].string() == "Exists", .value = json["value"].string(),
                 .effect = read_effect(json["effect"].string()), .seconds = std::nullopt};
  if (json["tolerationSeconds"].is_number()) out.seconds = std::max<std::int64_t>(0, json["tolerationSeconds"].integer());
  return out;
}

Instant read_instant(const Json& value) {
  auto time = parse_time(value.string());
  return time ? *time : Instant{};
}

}  // namespace

Resources& Resources::operator+=(const Resources& other) {
  cpu.value += other.cpu.value;
  memory.value += other.memory.value;
  pods += other.pods;
  for (const auto& [name, amount] : other.extended) extended[name] += amount;
  return *this;
}

Node read_node(const Json& node) {
  Node out{.name = kube::name_of(node), .uid = kube::uid_of(node), .labels = kube::labels_of(node)};
  for (const Json& json : node["spec"]["taints"].items()) {
    const auto effect = read_effect(json["effect"].string());
    if (!effect) continue;
    Taint taint{.key = json["key"].string(), .value = json["value"].string(), .effect = *effect, .added = std::nullopt};
    if (auto added = parse_time(json["timeAdded"].string())) taint.added = *added;
    out.taints.push_back(std::move(taint));
  }
  // The first pool by its own label, further ones by theirs (docs/design/079).
  constexpr std::string_view further = "pool.fairlead.dev/";
  const auto first = out.labels.find("topology.fairlead.dev/pool");
  if (first != out.labels.end()) out.pools.push_back(first->second);
  for (auto one = out.labels.lower_bound(std::string(further)); one != out.labels.end() && one->first.starts_with(further); ++one)
    if (std::string pool = one->first.substr(further.size()); one->second == "true" && (out.pools.empty() || out.pools.front() != pool)) out.pools.push_back(std::move(pool));
  out.unschedulable = node["spec"]["unschedulable"].boolean();
  out.ready = kube::condition_is_true(node, "Ready");
  out.deleting = kube::deleting(node);
  std::vector<std::string> ignored;  // a quantity that cannot be read is a resource that is not there
  const Json& allocatable = node["status"]["allocatable"];
  out.allocatable = read_resources(allocatable.is_object() ? allocatable : node["status"]["capacity"], "allocatable", ignored);
  return out;
}

Budget read_budget(const Json& budget) {
  Budget out{.space = kube::space_of(budget), .selector = {}, .allowed = budget["status"]["disruptionsAllowed"].integer()};
  auto selector = kube::LabelSelector::from_object(budget["spec"]["selector"]);
  if (!selector) selector = kube::LabelSelector::from_object(Json());  // it selects nothing
  if (selector) out.selector = std::move(*selector);
  return out;
}

Pod read_pod(const Json& pod) {
  const Json& spec = pod["spec"];
  Pod out{.key = kube::key_of(pod), .uid = kube::uid_of(pod)};
  out.created = read_instant(pod["metadata"]["creationTimestamp"]);
  out.priority = spec["priority"].integer();
  out.labels = kube::labels_of(pod);
  if (const Json* owner = kube::controller_of(pod)) out.owner = (*owner)["uid"].string();
  out.node = spec["nodeName"].string();
  const std::string& phase = pod["status"]["phase"].string();
  out.finished = phase == "Succeeded" || phase == "Failed";
  out.deleting = kube::deleting(pod);
  out.gated = !spec["schedulingGates"].items().empty();
  const std::string& scheduler = spec["schedulerName"].string();
  out.ours = scheduler.empty() || scheduler == "default-scheduler";
  out.requests = effective_requests(spec, out.problems);
  for (const auto& [key, value] : spec["nodeSelector"].members()) out.node_selector[key] = value.string();
  read_affinity(spec["affinity"], out);
  for (const Json& toleration : spec["tolerations"].items()) out.tolerations.push_back(read_toleration(toleration));
  read_spreads(spec["topologySpreadConstraints"], out);
  out.may_preempt = spec["preemptionPolicy"].string() != "Never";
  out.nominated = pod["status"]["nominatedNodeName"].string();
  for (const Json& volume : spec["volumes"].items()) {
    if (const std::string& claim = volume["persistentVolumeClaim"]["claimName"].string(); !claim.empty()) out.claims.push_back(claim);
    if (volume["ephemeral"].is_object()) out.claims.push_back(out.key.name + "-" + volume["name"].string());
  }
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : spec[list].items()) {
      for (const Json& port : container["ports"].items()) {
        if (const auto number = port["hostPort"].integer(); number > 0) out.host_ports.emplace(port["protocol"].string_or("TCP"), number);
      }
    }
  }
  return out;
}

}  // namespace fairlead::placement
