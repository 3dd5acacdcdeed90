// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/match.h"

#include <algorithm>
#include <charconv>

namespace fairlead::placement {
namespace {

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool holds(const NodeRequirement& requirement, const Node& node) {
  using Op = NodeRequirement::Op;
  const auto label = node.labels.find(requirement.key);
  const bool there = requirement.field || label != node.labels.end();
  const std::string& value = requirement.field ? node.name : there ? label->second : requirement.key;
  const bool listed = there && std::find(requirement.values.begin(), requirement.values.end(), value) != requirement.values.end();
  switch (requirement.op) {
    case Op::In: return listed;
    case Op::NotIn: return !listed;  // also when the label is absent
    case Op::Exists: return there;
    case Op::DoesNotExist: return !there;
    case Op::Gt:
    case Op::Lt: {
      if (!there || requirement.values.size() != 1) return false;
      const auto have = whole_number(value), want = whole_number(requirement.values[0]);
      if (!have || !want) return false;
      return requirement.op == Op::Gt ? *have > *want : *have < *want;
    }
  }
  return false;
}

}  // namespace

bool tolerates(const Toleration& toleration, const Taint& taint) {
  if (toleration.effect && *toleration.effect != taint.effect) return false;
  if (toleration.key.empty()) return toleration.exists;
  return toleration.key == taint.key && (toleration.exists || toleration.value == taint.value);
}

bool tolerates(const Pod& pod, const Taint& taint) {
  return std::any_of(pod.tolerations.begin(), pod.tolerations.end(), [&](const Toleration& one) { return tolerates(one, taint); });
}

const Taint* first_forbidding_taint(const Pod& pod, const Node& node) {
  for (const Taint& taint : node.taints) {
    if (taint.effect != Effect::PreferNoSchedule && !tolerates(pod, taint)) return &taint;
  }
  return nullptr;
}

int disliked_taints(const Pod& pod, const Node& node) {
  return static_cast<int>(
      std::count_if(node.taints.begin(), node.taints.end(), [&](const Taint& taint) { return taint.effect == Effect::PreferNoSchedule && !tolerates(pod, taint); }));
}

bool matches(const NodeTerm& term, const Node& node) {
  return !term.empty() && std::all_of(term.begin(), term.end(), [&](const NodeRequirement& one) { return holds(one, node); });
}

bool selects(const Pod& pod, const Node& node) {
  for (const auto& [key, value] : pod.node_selector) {
    const auto label = node.labels.find(key);
    if (label == node.labels.end() || label->second != value) return false;
  }
  if (!pod.required) return true;
  return std::any_of(pod.required->begin(), pod.required->end(), [&](const NodeTerm& term) { return matches(term, node); });
}

std::int64_t preference(const Pod& pod, const Node& node) {
  std::int64_t sum = 0;
  for (const PreferredTerm& preferred : pod.preferred) {
    // Unlike a required term, an empty preference means every node.
    if (preferred.term.empty() || matches(preferred.term, node)) sum += preferred.weight;
  }
  return sum;
}

bool means(const PodTerm& term, const Pod& other, const Spaces& spaces) {
  if (!term.selector.matches(other.labels)) return false;
  if (term.spaces.contains(other.key.space)) return true;
  if (!term.space_selector) return term.spaces.empty();
  const auto labels = spaces.find(other.key.space);
  return labels != spaces.end() && term.space_selector->matches(labels->second);
}

}  // namespace fairlead::placement
