// SPDX-License-Identifier: Apache-2.0
// Pods and nodes as placement sees them: values read once from their JSON. Reading never fails; what cannot be honoured is named in `problems`.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"
#include "kube/json.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::placement {

// What a pod asks for or a node can give. Ephemeral storage is not counted.
struct Resources {
  MilliCpu cpu;
  Bytes memory;
  std::int64_t pods = 0;
  std::map<std::string, std::int64_t> extended;  // "nvidia.com/gpu" -> 8; also hugepages-*
  Resources& operator+=(const Resources& other);
  friend bool operator==(const Resources&, const Resources&) = default;
};

enum class Effect { NoSchedule, PreferNoSchedule, NoExecute };
struct Taint {
  std::string key, value;
  Effect effect = Effect::NoSchedule;
  std::optional<Instant> added;
  friend bool operator==(const Taint&, const Taint&) = default;
};

struct Toleration {
  std::string key;              // empty with `exists`: any key
  bool exists = false;          // operator Exists; else the values must be equal
  std::string value;
  std::optional<Effect> effect;            // none: all effects
  std::optional<std::int64_t> seconds;     // for NoExecute; none: for ever
};

// What a claim wants of the pools of volumes that a node reaches.
struct PoolNeed {
  std::string pool;            // this one; empty: any that has the class
  std::vector<std::string> classes = {};  // of volumes; one after the other, as far as no pool of the node has the one before
  std::int64_t bytes = 0;      // that will be taken there
  bool bound = false;          // its volume is there
  friend bool operator==(const PoolNeed&, const PoolNeed&) = default;
};
// What a pool says of itself.
struct PoolView {
  std::optional<std::int64_t> left;  // bytes that may be promised still; nothing: it does not say, and is taken
  std::vector<std::string> classes = {};  // of volumes; none: it does not say
  friend bool operator==(const PoolView&, const PoolView&) = default;
};
using Pools = std::map<std::string, PoolView>;  // by name. Of one that is not here nothing is known, and it is taken

struct Node {
  std::string name, uid;
  kube::Labels labels;
  std::vector<Taint> taints;
  bool unschedulable = false;
  bool ready = false;           // condition Ready is True
  bool deleting = false;
  Resources allocatable;
  std::vector<std::string> pools = {};  // of volumes that it reaches, by its labels; the first one first
  friend bool operator==(const Node&, const Node&) = default;
};

// One requirement of nodeSelectorTerms; matchFields (metadata.name) have `field` set.
struct NodeRequirement {
  enum class Op { In, NotIn, Exists, DoesNotExist, Gt, Lt } op = Op::In;
  std::string key;
  std::vector<std::string> values;
  bool field = false;
};
using NodeTerm = std::vector<NodeRequirement>;  // all must hold; an empty one matches nothing
struct PreferredTerm {
  std::int64_t weight = 0;
  NodeTerm term;
};

// Pods that must (not) be in the same topology domain.
struct PodTerm {
  kube::LabelSelector selector;
  std::set<std::string> spaces;  // namespaces of the pods meant; empty: all
  std::string topology_key;
  std::optional<kube::LabelSelector> space_selector;  // further namespaces, by their labels
};
struct PreferredPodTerm {
  std::int64_t weight = 0;  // below zero: rather not
  PodTerm term;
};
// topologySpreadConstraints: how unevenly the pods that `selector` means (in the pod's own namespace) may be spread over the domains of a label.
struct Spread {
  std::int64_t max_skew = 1;
  std::string topology_key;
  bool required = true;            // DoNotSchedule; else ScheduleAnyway
  kube::LabelSelector selector;
  std::int64_t min_domains = 1;    // fewer domains than this: the emptiest counts as empty
  bool honor_affinity = true;      // nodes that the pod may not choose do not count
  bool honor_taints = false;
};

struct Pod {
  kube::ObjectKey key;
  std::string uid;
  Instant created{};
  std::int64_t priority = 0;
  kube::Labels labels;
  std::string owner;            // uid of the controlling owner; empty: none
  std::string node;             // spec.nodeName; empty: waits to be placed
  bool finished = false;        // Succeeded or Failed: holds no resources
  bool deleting = false;
  bool gated = false;           // spec.schedulingGates
  bool ours = true;             // schedulerName is default-scheduler
  Resources requests;           // effective ones, `pods` is 1
  kube::Labels node_selector;
  std::optional<std::vector<NodeTerm>> required;  // any of them; none given: no requirement
  std::vector<PreferredTerm> preferred;
  std::vector<Toleration> tolerations;
  std::vector<PodTerm> near, apart;  // required podAffinity and podAntiAffinity
  std::vector<PreferredPodTerm> liked;  // preferred ones of both
  std::vector<Spread> spreads;
  bool may_preempt = true;           // preemptionPolicy is not Never
  std::string nominated;             // status.nominatedNodeName
  std::vector<std::string> claims;   // names of claims in its namespace
  std::vector<PoolNeed> pools;       // that its node has to reach, by those claims
  std::set<std::pair<std::string, std::int64_t>> host_ports;  // {protocol, port}
  std::vector<std::string> problems;  // sentences; such a pod waits
};

// A PodDisruptionBudget, as far as pre-emption looks at it.
struct Budget {
  std::string space;
  kube::LabelSelector selector;
  std::int64_t allowed = 0;  // status.disruptionsAllowed
};
// A PersistentVolumeClaim, as far as placement waits for it.
struct Claim {
  kube::ObjectKey key;
  bool bound = false;
  bool waits_for_pod = false;  // its class binds when a pod was placed
  std::string pool;            // that its node has to reach; empty: any node will do
  bool wants_pool = false;     // it is not bound yet, and will be in some pool: `pool` where its class names one, else one that has a class of `classes`
  std::vector<std::string> classes = {};
  std::int64_t bytes = 0;      // that it will take there; 0: a node was chosen for it already
  std::string source_claim, source_snapshot;  // one at most: it will be in the pool of that claim of its namespace, or of that Snapshot
  bool deleting = false;
  friend bool operator==(const Claim&, const Claim&) = default;
};

Node read_node(const kube::Json& node);
Budget read_budget(const kube::Json& budget);
Pod read_pod(const kube::Json& pod);
// Whether it waits for a decision of ours.
inline bool pending(const Pod& pod) { return pod.node.empty() && !pod.finished && !pod.deleting && !pod.gated && pod.ours; }

}  // namespace fairlead::placement
