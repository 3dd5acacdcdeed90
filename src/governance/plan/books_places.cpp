// SPDX-License-Identifier: Apache-2.0
// Places of pods: topologies, nodes and what others use of them, told to the engine; and workloads whose node is lost. docs/design/042-places-in-the-continuous-mode.md.
#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/books_internal.h"
#include "governance/plan/flavors.h"
#include "governance/plan/pod_requests.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

constexpr const char* kHost = "kubernetes.io/hostname";
// How long a node may not be ready before the pods on it get another place, as in Kueue (NodeFailureDelay).
constexpr std::chrono::seconds kNodeIsLostAfter{30};

bool same_node(const TopologyNode& a, const TopologyNode& b) { return a.labels == b.labels && a.taints == b.taints && a.ready == b.ready && a.unschedulable == b.unschedulable && a.allocatable == b.allocatable; }

std::string host_of(const TopologyNode& node) {
  const auto label = node.labels.find(kHost);
  return label == node.labels.end() ? node.name : label->second;
}

bool is_on(const TopologyAssignment& where, const std::string& host) {
  return !where.levels.empty() && where.levels.back() == kHost && std::ranges::any_of(where.domains, [&](const DomainPods& domain) { return domain.count > 0 && !domain.values.empty() && domain.values.back() == host; });
}

}  // namespace

void Books::set_topology(const std::string& name, const Json& object) {
  std::vector<std::string> levels;
  for (const Json& level : object["spec"]["levels"].items()) levels.push_back(level["nodeLabel"].string());
  const auto at = topologies_.find(name);
  if (object.is_null() || levels.empty() ? at == topologies_.end() : at != topologies_.end() && at->second == levels) return;
  if (object.is_null() || levels.empty()) topologies_.erase(at);
  else topologies_[name] = std::move(levels);
  stale_ = true;
}

bool Books::wants_places() const {
  return std::ranges::any_of(flavors_, [](const auto& flavor) { return !flavor.second.spec.topology.empty(); });
}

void Books::set_node(const std::string& name, const Json& object) {
  const auto at = nodes_.find(name);
  if (object.is_null()) {
    if (at == nodes_.end()) return;
    sick_[host_of(at->second.node)] = {.since = {}, .done = false};
    nodes_.erase(at);
    nodes_are_stale_ = true;
    return;
  }
  NodeEntry next{.node = read_topology_node(object), .not_ready_since = {}};
  if (!next.node.ready) {  // without a word of it: since it is there
    const Json* ready = kube::find_condition(object, "Ready");
    next.not_ready_since = parse_time(ready != nullptr ? (*ready)["lastTransitionTime"].string() : object["metadata"]["creationTimestamp"].string()).value_or(Instant{});
  }
  const std::string host = host_of(next.node);
  if (next.node.ready) sick_.erase(host);
  else if (const auto sick = sick_.find(host); sick == sick_.end() || sick->second.since != next.not_ready_since) sick_[host] = {.since = next.not_ready_since, .done = false};
  if (at != nodes_.end() && same_node(at->second.node, next.node)) {
    at->second.not_ready_since = next.not_ready_since;
    return;
  }
  nodes_[name] = std::move(next);
  nodes_are_stale_ = true;
}

// A pod with a place of ours is known by what was put into its template with its gate: its workload's name, and what it asks for.
bool Books::has_own_place(const Json& pod) {
  const Json& notes = pod["metadata"]["annotations"];
  if (!notes.has(kWorkloadNote)) return false;
  return std::ranges::any_of(kTopologyNotes, [&](const char* one) { return notes.has(one); });
}

void Books::set_pod(const ObjectKey& key, const Json& object) {
  const std::string& phase = object["status"]["phase"].string();
  OtherPod next;
  if (!object.is_null() && phase != "Succeeded" && phase != "Failed" && !object["spec"]["nodeName"].string().empty() && !has_own_place(object)) {
    next.node = object["spec"]["nodeName"].string();
    if (auto requests = pod_requests(object["spec"], "spec")) next.requests = std::move(*requests);
  }
  const auto at = other_pods_.find(key);
  if (at == other_pods_.end() ? next.node.empty() : at->second == next) return;
  const auto count = [&](const OtherPod& pod, int sign) {
    ContinuousEngine::OtherUse& use = node_use_[pod.node];
    use.pods += sign;
    for (const auto& [name, amount] : pod.requests) {
      Amount& sum = use.requests[name];
      sum = sign > 0 ? plus(sum, amount) : minus(sum, amount);
      if (sum == 0) use.requests.erase(name);
    }
    used_anew_.insert(pod.node);
  };
  if (at != other_pods_.end()) count(at->second, -1);
  if (next.node.empty()) {
    other_pods_.erase(at);
    return;
  }
  count(next, +1);
  other_pods_[key] = std::move(next);
}

std::vector<TopologyNode> Books::node_list() const {
  std::vector<TopologyNode> out;
  for (const auto& [name, entry] : nodes_) out.push_back(entry.node);
  return out;
}

void Books::tell_places() {
  if (nodes_are_stale_ && places_in_effect_) {
    nodes_are_stale_ = false;
    const std::vector<TopologyNode> all = node_list();
    engine_.set_nodes(all);
    if (recorder_) recorder_->nodes(all);
    // Who was promised a place that is gone stands in line again.
    for (auto& [key, item] : items_)
      if (item.place == Place::Promised && engine_.misplaced(item.job)) {
        leave(item);
        unsettled_.insert(key);
      }
  }
  for (const std::string& node : std::exchange(used_anew_, {})) {
    const auto at = node_use_.find(node);
    const ContinuousEngine::OtherUse use = at == node_use_.end() ? ContinuousEngine::OtherUse{} : at->second;
    if (at != node_use_.end() && use == ContinuousEngine::OtherUse{}) node_use_.erase(at);
    engine_.set_others(node, use);
    if (recorder_) recorder_->others(node, use);
  }
}

// To an engine that knows nothing of them yet.
void Books::tell_places_again() {
  nodes_are_stale_ = true;
  for (const auto& [node, use] : node_use_) used_anew_.insert(node);
  tell_places();
}

std::vector<EngineSpec::Places> Books::place_specs() const {
  std::vector<EngineSpec::Places> out;
  for (const auto& [name, flavor] : flavors_) {
    const std::vector<std::string>* levels = find_in(topologies_, flavor.spec.topology);
    if (!flavor.why.empty() || levels == nullptr) continue;
    out.push_back({.flavor = name, .shape = {.name = flavor.spec.topology, .levels = *levels, .flavor_labels = flavor.spec.node.labels, .tolerations = flavor.spec.tolerations}});
  }
  return out;
}

bool Books::places_all(const QueueEntry& queue) const {
  bool any = false;
  for (const ResourceGroup& group : queue.spec.groups)
    for (const QueueFlavor& named : group.flavors) {
      const FlavorEntry* flavor = find_in(flavors_, named.name);
      if (flavor == nullptr || flavor->spec.topology.empty()) return false;
      any = true;
    }
  return any;
}

std::optional<PlaceAsk> Books::place_ask(const PodSetSpec& pods, std::int32_t count, const QueueEntry& queue) const {
  const bool asked = pods.topology.explicit_ask();
  if (!asked && !places_all(queue)) return std::nullopt;
  return PlaceAsk{.ask = pods.topology, .implied = !asked, .count = count, .per_pod = pods.raw, .needs = pods.needs};
}

// Why the flavor is not for the pod set, as far as places go; empty: it may be.
std::string Books::place_obstacle(const QueueEntry& queue, const PodSetSpec& pods, const FlavorEntry& flavor, const ResourceGroup& group) const {
  const std::string& name = flavor.spec.node.name;
  const bool has = !flavor.spec.topology.empty();
  if (!pods.topology.explicit_ask()) return has && !places_all(queue) ? fmt::format("Flavor \"{}\" supports only TopologyAwareScheduling", name) : "";
  if (!has) {
    // One that gives none of the pods' own resources may stand beside one with a topology.
    const bool gives = std::ranges::any_of(group.resources, [&](const std::string& resource) { return pods.raw.contains(resource); });
    return gives ? fmt::format("Flavor \"{}\" does not support TopologyAwareScheduling", name) : "";
  }
  const std::vector<std::string>* levels = find_in(topologies_, flavor.spec.topology);
  const auto known = [&](const std::string& level) { return levels != nullptr && std::ranges::find(*levels, level) != levels->end(); };
  const TopologyAsk& ask = pods.topology;
  const bool all = (!ask.required || known(*ask.required)) && (ask.required || !ask.preferred || known(*ask.preferred)) && std::ranges::all_of(ask.slices, [&](const SliceLayer& layer) { return known(layer.level); });
  return all ? "" : fmt::format("Flavor \"{}\" does not contain the requested level", name);
}

PlacesOf Books::places_held(const Item& item) const {
  PlacesOf out;
  bool any = false;
  for (const HeldPodSet& pods : item.spec.admission->pod_sets) {
    out.push_back(pods.topology);
    any = any || pods.topology;
  }
  return any ? out : PlacesOf{};
}

// ---- lost nodes

void Books::look_for_lost_nodes(const Item& item) {
  if (!places_in_effect_ || !item.spec.admission) return;
  std::set<std::string> hosts;
  for (const HeldPodSet& pods : item.spec.admission->pod_sets)
    if (pods.topology && !pods.topology->levels.empty() && pods.topology->levels.back() == kHost)
      for (const DomainPods& domain : pods.topology->domains)
        if (domain.count > 0 && !domain.values.empty()) hosts.insert(domain.values.back());
  for (const auto& [name, entry] : nodes_) hosts.erase(host_of(entry.node));
  for (const std::string& host : hosts) sick_.try_emplace(host, Sick{});
}

bool Books::replace_lost(Instant now) {
  bool changed = false;
  for (auto& [host, sick] : sick_) {
    if (sick.done || !places_in_effect_) continue;
    if (sick.since != Instant{} && now - sick.since < kNodeIsLostAfter) continue;
    sick.done = true;
    for (auto& [key, item] : items_) {
      if (item.place != Place::Running || !item.seen_held || !item.spec.admission || item.spec.owned_by_pod) continue;
      if (std::ranges::none_of(item.spec.admission->pod_sets, [&, &lost = host](const HeldPodSet& pods) { return pods.topology && is_on(*pods.topology, lost); })) continue;
      changed = true;
      const std::string problem = engine_.replace(item.job, host);
      if (recorder_) recorder_->replace(item.job, host);
      if (problem.empty()) {
        item.moved_from.push_back(host);
      } else {
        item.evict_reason = "NodeFailures";
        item.evict_message = fmt::format("Its node {} is lost, and there is no other place for the pods that it had: {}", host, problem);
        engine_.stop(item.job);
        if (recorder_) recorder_->stop(item.job);
        item.place = Place::Stopping;
      }
      touch(key);
    }
  }
  return changed;
}

}  // namespace fairlead::governance
