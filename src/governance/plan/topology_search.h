// SPDX-License-Identifier: Apache-2.0
// One search for a place: given how many pods each leaf can hold, which leaves get how many. Internal to topology*.cpp; the rules are in docs/design/024-topology.md.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "governance/plan/topology_tree.h"

namespace fairlead::governance {

// How much a domain can hold; while places are handed out: how much it is given. "led": with one leader pod in it as well.
struct Room {
  std::int64_t pods = 0, led_pods = 0;
  std::int64_t slices = 0, led_slices = 0;  // whole groups of slice_size; below the level of slices 0
  std::int64_t liking = 0;                  // preferred node affinity, summed
  std::int32_t leaders = 0;                 // 1: a leader fits (is placed) here
};

struct SearchAsk {
  std::int64_t count = 0;       // of workers
  std::int32_t leaders = 0;     // 0 or 1
  std::int64_t slice_size = 1;
  int level = 0;                // where all pods should be in one domain
  int slice_level = 0;          // where each slice must be in one domain; not above `level`
  std::vector<std::int64_t> inner;  // per level: size of the finer groups that it must not split; 0: none
  bool required = false, unconstrained = false;
  bool least_free = false;      // smallest first instead of the tightest single domain
  bool by_liking = false;
  bool balanced = false;
};

// What is missing.
struct Shortage {
  enum class Kind { NoDomains, NoFit, Unplaceable } kind = Kind::NoFit;
  int level = 0;
  std::int64_t fit = 0;
};

class TopologySearch {
 public:
  // `rooms`: one per domain of the tree; those of leaves hold pods, led_pods, leaders and liking, the others anything.
  TopologySearch(const TopologyTree& tree, std::vector<Room>& rooms, const SearchAsk& ask) : tree_(tree), rooms_(rooms), ask_(ask) {}

  // Sums leaves up into their domains.
  void roll_up();
  // On success `leaves` are those with pods or leaders, in order, and their rooms say how many.
  std::optional<Shortage> place(std::vector<DomainId>& leaves);

 private:
  enum class Unit { Pods, Slices };
  using Domains = std::vector<DomainId>;
  struct Greedy {
    bool fits = false;
    std::int64_t used = 0;
    DomainId last_led = no_domain, last = no_domain;
  };

  Room& room(DomainId domain) { return rooms_[static_cast<std::size_t>(domain)]; }
  const Room& room(DomainId domain) const { return rooms_[static_cast<std::size_t>(domain)]; }
  std::int64_t slices_asked() const { return ask_.count / ask_.slice_size; }
  void roll_up(DomainRange range, int level, bool inner);
  void sum_children(DomainId domain, int level, bool inner);

  bool before_led(DomainId a, DomainId b) const;
  bool before(DomainId a, DomainId b) const;
  Domains sorted_led(Domains domains) const;
  Domains sorted(Domains domains) const;
  Domains children_of(const Domains& domains) const;
  static Domains all_of(DomainRange range);

  // Where to start from: domains of one level that hold everything.
  std::optional<Shortage> choose(Domains& chosen, int& level);
  DomainId single(DomainRange range) const;
  std::optional<Shortage> spread(DomainRange range, int level, Domains& chosen);
  DomainId tightest(const DomainId* begin, const DomainId* end, std::int64_t needed, std::int32_t leaders, Unit unit) const;
  Domains leader_first(Domains domains, std::int64_t needed, std::int32_t leaders, Unit unit) const;
  // Hands `count` pods (and leaders) to `domains` in their order; false: they do not hold them.
  bool distribute(Domains domains, std::int64_t count, std::int32_t leaders, std::int64_t size, Unit unit, Domains& given);
  std::optional<Shortage> descend(Domains chosen, int level, bool balanced, Domains& leaves);

  // topology_balance.cpp
  bool choose_balanced(Domains& chosen, int& level);
  Greedy try_greedy(const Domains& domains) const;
  bool fits_pruned(const Domains& group, std::int64_t threshold, std::int64_t& used);
  void prune(DomainId domain, std::int64_t threshold);
  void clear(DomainId domain, bool leaders_only);
  void restore(DomainRange range, const std::vector<Room>& from);
  Domains smallest_set(const Domains& domains, bool by_entropy) const;
  bool place_evenly(const Domains& domains, std::int64_t threshold, Domains& chosen);
  double entropy(DomainId domain) const;

  const TopologyTree& tree_;
  std::vector<Room>& rooms_;
  const SearchAsk& ask_;
};

}  // namespace fairlead::governance
