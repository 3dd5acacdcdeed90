// SPDX-License-Identifier: Apache-2.0
// What was used lately, and the weights that follow from it: who has used more than its part weighs less for a while. Pure. docs/design/045-usage-history.md.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::governance {

// spec.fairShareHistory of the SchedulerConfig in force.
struct PastRules {
  std::chrono::seconds half_life{0};  // what was used so long ago counts half
  double strength = 3;                // who has used nothing weighs 1 + strength times its weight; 0: nothing follows from it
  std::chrono::nanoseconds every() const;  // how often weights are computed
  double part_of_next() const;             // what is used from now until then counts as so much on average
  friend bool operator==(const PastRules&, const PastRules&) = default;
};

using PastAmounts = std::map<std::string, double>;  // by resource, in the units of Amount (amount.h), on average over the half-life

// By local queue. O(resources) each.
class PastUse {
 public:
  void set_half_life(std::chrono::seconds half_life, Instant now);  // 0: nothing is counted, and what was is forgotten
  // What the object's status says, which the books hear at first and later as an echo: counts once.
  void restore(const kube::ObjectKey& local, const kube::Json& status, Instant now);
  // It holds so much more from now on; of what is more, since then. Negative: less.
  void use(const kube::ObjectKey& local, const PastAmounts& more, Instant since, Instant now);
  void forget(const kube::ObjectKey& local);
  PastAmounts at(const kube::ObjectKey& local, Instant now) const;
  // For status.fairSharing.admissionFairSharingStatus.
  kube::Json status(const kube::ObjectKey& local, Instant now) const;

 private:
  struct Entry {
    PastAmounts consumed, using_now;
    Instant at{};
    std::optional<Instant> restored;  // as of then; of one whose object was never seen: none
  };
  double kept(Instant from, Instant to) const;  // of what was consumed, 0..1
  void advance(Entry& entry, Instant now) const;

  std::chrono::seconds half_life_{0};
  std::map<kube::ObjectKey, Entry> entries_;
};

struct PastNode {
  std::string name, parent;  // parent: a cohort, which need not be among the nodes; empty: a root
  bool leaf = true;
  double weight = 1;
  PastAmounts used;           // of leaves
  std::map<std::string, double> nominal;
};
struct PastWeight {
  double factor = 1;          // of its weight: more than 1 if it used less than its part
  double used = 0, due = 0;   // its part of what its siblings and it used lately, and of their weights: 0..1
};
// In the order of the nodes. O(nodes x (depth + resources)).
std::vector<PastWeight> weights_by_past(const std::vector<PastNode>& nodes, double strength);

}  // namespace fairlead::governance
