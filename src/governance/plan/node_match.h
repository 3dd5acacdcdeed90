// SPDX-License-Identifier: Apache-2.0
// May a pod be on that node: taints, node selector, node affinity, as Kubernetes answers it. For nodes, and for flavors seen as nodes. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kube/json.h"
#include "kube/selector.h"

namespace fairlead::governance {

struct Taint {
  std::string key, value, effect;  // effect: NoSchedule, NoExecute, PreferNoSchedule
  friend bool operator==(const Taint&, const Taint&) = default;
};
std::string text(const Taint& taint);  // "gpu=present:NoSchedule"

struct Toleration {
  std::string key, op, value, effect;  // op: "", Equal, Exists, Lt, Gt
  friend bool operator==(const Toleration&, const Toleration&) = default;
};

// One requirement of nodeSelectorTerms; matchFields (metadata.name) have `field` set.
struct NodeRequirement {
  std::string key, op;  // In, NotIn, Exists, DoesNotExist, Gt, Lt
  std::vector<std::string> values;
  bool field = false;
  friend bool operator==(const NodeRequirement&, const NodeRequirement&) = default;
};
using NodeTerm = std::vector<NodeRequirement>;  // all must hold; an empty one matches nothing
struct PreferredNodeTerm {
  std::int64_t weight = 0;
  NodeTerm term;
  friend bool operator==(const PreferredNodeTerm&, const PreferredNodeTerm&) = default;
};

// What a pod template says about nodes.
struct NodeNeeds {
  std::vector<Toleration> tolerations;
  kube::Labels selector;                         // spec.nodeSelector
  std::optional<std::vector<NodeTerm>> required;  // of node affinity; none: any node
  std::vector<PreferredNodeTerm> preferred;
  friend bool operator==(const NodeNeeds&, const NodeNeeds&) = default;
};

struct NodeFacts {
  std::string name;
  kube::Labels labels;
  std::vector<Taint> taints;
};

bool tolerates(const Toleration& toleration, const Taint& taint);
// The first taint that forbids scheduling (NoSchedule, NoExecute) and is not tolerated by either list; nullptr: none.
const Taint* forbidding_taint(const std::vector<Taint>& taints, const std::vector<Toleration>& tolerations, const std::vector<Toleration>& more = {});
bool has_labels(const kube::Labels& labels, const kube::Labels& wanted);
bool matches(const NodeTerm& term, const NodeFacts& node);
bool matches_any(const std::vector<NodeTerm>& terms, const NodeFacts& node);
// Sum of the weights of the preferred terms that hold.
std::int64_t preference(const std::vector<PreferredNodeTerm>& preferred, const NodeFacts& node);

// Readers of core/v1 JSON; what is not understood is left out, except operators, which then never match.
std::vector<Taint> read_taints(const kube::Json& taints);
std::vector<Toleration> read_tolerations(const kube::Json& tolerations);
kube::Labels read_labels(const kube::Json& labels);
NodeNeeds read_node_needs(const kube::Json& pod_spec);
NodeNeeds& read_node_affinity(const kube::Json& node_affinity, NodeNeeds& into);

}  // namespace fairlead::governance
