// SPDX-License-Identifier: Apache-2.0
// Inside of engine.h: places of pods in flavors with a topology. docs/design/042-places-in-the-continuous-mode.md.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "governance/plan/engine.h"

namespace fairlead::governance {

struct PlaceSet {  // a pod set of a class
  std::uint32_t pod_set = 0;
  TopologyPodSet ask;
};

// Where the pods of a job are.
struct EnginePlacement {
  struct Set {
    std::uint32_t pod_set = 0;
    std::string flavor;
    TopologyAssignment where;
    PodAmounts per_pod;
    std::vector<DomainUse> uses;
    friend bool operator==(const Set& a, const Set& b) { return a.pod_set == b.pod_set && a.flavor == b.flavor && a.where == b.where; }
  };
  std::vector<Set> sets;
  friend bool operator==(const EnginePlacement&, const EnginePlacement&) = default;
};

struct PlaceWaiter {
  ClassId what = 0;
  std::uint32_t generation = 0;
  std::int64_t missing = 1;  // pods that must be given back, counted in pods of the class; less cannot help it
  PodAmounts per_pod;        // of those
  bool counted = false;      // else whatever is given back may do
};

struct Site {  // a flavor
  std::string flavor;
  Topology now, in_use;             // as `ledger` and `in_use` of the engine
  std::optional<Topology> claimed;  // as `claimed`
  std::vector<PlaceWaiter> waiters;
};

class Sites {
 public:
  Sites() = default;
  Sites(const Sites& other) { *this = other; }
  Sites& operator=(const Sites& other);
  Sites(Sites&&) noexcept = default;
  Sites& operator=(Sites&&) noexcept = default;
  ~Sites() = default;

  bool empty() const { return all.empty(); }
  Site* find(std::string_view flavor);
  const Site* find(std::string_view flavor) const;
  // Which of the three.
  enum class Which : std::uint8_t { Now, InUse, Claimed };
  void change(Which which, const EnginePlacement& place, bool add);
  bool fits_in_use(const EnginePlacement& place);  // exactly there, beside all that is in use
  void claim_none() {
    for (Site& site : all) site.claimed.reset();
  }
  void claim_begins() {
    for (Site& site : all) site.claimed = site.now;
  }

  std::vector<Site> all;
  std::shared_ptr<ResourceIds> ids = std::make_shared<ResourceIds>();
  std::vector<TopologyNode> nodes;
  std::map<std::string, ContinuousEngine::OtherUse> others;
};

// What is done to `now` and `claimed` while it lives is undone.
class PlacesTrial {
 public:
  explicit PlacesTrial(Sites& sites) : sites_(sites) {
    for (Site& site : sites_.all) marks_.emplace_back(site.now.mark(), site.claimed ? site.claimed->mark() : 0);
  }
  PlacesTrial(const PlacesTrial&) = delete;
  PlacesTrial& operator=(const PlacesTrial&) = delete;
  ~PlacesTrial() {
    for (std::size_t i = 0; i < marks_.size(); ++i) {
      sites_.all[i].now.undo(marks_[i].first);
      if (sites_.all[i].claimed) sites_.all[i].claimed->undo(marks_[i].second);
    }
  }

 private:
  Sites& sites_;
  std::vector<std::pair<std::size_t, std::size_t>> marks_;
};

}  // namespace fairlead::governance
