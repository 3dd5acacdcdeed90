// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/node_match.h"

#include <algorithm>
#include <charconv>

namespace fairlead::governance {
namespace {

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool in_order(const std::string& low, const std::string& high) {
  const auto a = whole_number(low), b = whole_number(high);
  return a && b && *a < *b;
}

bool holds(const NodeRequirement& requirement, const NodeFacts& node) {
  const auto label = node.labels.find(requirement.key);
  const bool there = requirement.field ? requirement.key == "metadata.name" : label != node.labels.end();
  static const std::string nothing;
  const std::string& value = !there ? nothing : requirement.field ? node.name : label->second;
  const bool listed = there && std::find(requirement.values.begin(), requirement.values.end(), value) != requirement.values.end();
  if (requirement.op == "In") return listed;
  if (requirement.op == "NotIn") return !listed;  // also where the label is absent
  if (requirement.op == "Exists") return there;
  if (requirement.op == "DoesNotExist") return !there;
  if (!there || requirement.values.size() != 1) return false;
  if (requirement.op == "Gt") return in_order(requirement.values[0], value);
  return requirement.op == "Lt" && in_order(value, requirement.values[0]);
}

NodeTerm read_term(const kube::Json& term) {
  NodeTerm out;
  const auto read = [&](const kube::Json& list, bool field) {
    for (const kube::Json& one : list.items()) {
      NodeRequirement requirement{.key = one["key"].string(), .op = one["operator"].string(), .values = {}, .field = field};
      for (const kube::Json& value : one["values"].items()) requirement.values.push_back(value.string());
      out.push_back(std::move(requirement));
    }
  };
  read(term["matchExpressions"], false);
  read(term["matchFields"], true);
  return out;
}

}  // namespace

std::string text(const Taint& taint) {
  std::string out = taint.key;
  if (!taint.value.empty()) out += "=" + taint.value;
  if (!taint.effect.empty() || !taint.value.empty()) out += ":" + taint.effect;
  return out;
}

bool tolerates(const Toleration& toleration, const Taint& taint) {
  if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
  if (!toleration.key.empty() && toleration.key != taint.key) return false;
  if (toleration.op.empty() || toleration.op == "Equal") return toleration.value == taint.value;
  if (toleration.op == "Exists") return true;
  if (toleration.op == "Lt") return in_order(taint.value, toleration.value);
  return toleration.op == "Gt" && in_order(toleration.value, taint.value);
}

const Taint* forbidding_taint(const std::vector<Taint>& taints, const std::vector<Toleration>& tolerations, const std::vector<Toleration>& more) {
  for (const Taint& taint : taints) {
    if (taint.effect != "NoSchedule" && taint.effect != "NoExecute") continue;
    const auto tolerated = [&](const Toleration& toleration) { return tolerates(toleration, taint); };
    if (std::none_of(tolerations.begin(), tolerations.end(), tolerated) && std::none_of(more.begin(), more.end(), tolerated)) return &taint;
  }
  return nullptr;
}

bool has_labels(const kube::Labels& labels, const kube::Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& pair) {
    const auto label = labels.find(pair.first);
    return label != labels.end() && label->second == pair.second;
  });
}

bool matches(const NodeTerm& term, const NodeFacts& node) {
  return !term.empty() && std::all_of(term.begin(), term.end(), [&](const NodeRequirement& one) { return holds(one, node); });
}

bool matches_any(const std::vector<NodeTerm>& terms, const NodeFacts& node) {
  return std::any_of(terms.begin(), terms.end(), [&](const NodeTerm& term) { return matches(term, node); });
}

std::int64_t preference(const std::vector<PreferredNodeTerm>& preferred, const NodeFacts& node) {
  std::int64_t sum = 0;
  for (const PreferredNodeTerm& one : preferred) {
    if (matches(one.term, node)) sum += one.weight;
  }
  return sum;
}

std::vector<Taint> read_taints(const kube::Json& taints) {
  std::vector<Taint> out;
  for (const kube::Json& one : taints.items()) out.push_back({.key = one["key"].string(), .value = one["value"].string(), .effect = one["effect"].string()});
  return out;
}

std::vector<Toleration> read_tolerations(const kube::Json& tolerations) {
  std::vector<Toleration> out;
  for (const kube::Json& one : tolerations.items()) {
    out.push_back({.key = one["key"].string(), .op = one["operator"].string(), .value = one["value"].string(), .effect = one["effect"].string()});
  }
  return out;
}

kube::Labels read_labels(const kube::Json& labels) {
  kube::Labels out;
  for (const auto& [key, value] : labels.members()) out[key] = value.string();
  return out;
}

NodeNeeds& read_node_affinity(const kube::Json& node_affinity, NodeNeeds& into) {
  const kube::Json& required = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"];
  if (required.is_object()) {
    into.required.emplace();
    for (const kube::Json& term : required["nodeSelectorTerms"].items()) into.required->push_back(read_term(term));
  }
  for (const kube::Json& one : node_affinity["preferredDuringSchedulingIgnoredDuringExecution"].items()) {
    into.preferred.push_back({.weight = one["weight"].integer(), .term = read_term(one["preference"])});
  }
  return into;
}

NodeNeeds read_node_needs(const kube::Json& pod_spec) {
  NodeNeeds needs;
  needs.tolerations = read_tolerations(pod_spec["tolerations"]);
  needs.selector = read_labels(pod_spec["nodeSelector"]);
  return read_node_affinity(pod_spec["affinity"]["nodeAffinity"], needs);
}

}  // namespace fairlead::governance
