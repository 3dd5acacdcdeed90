// SPDX-License-Identifier: Apache-2.0
// What one waiting pod wants to know of every node: may it be there, why not, and how good is it there. Filters and scores are those of kube-scheduler's default profile,
// in its order and words.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "placement/plan/board.h"

namespace fairlead::placement {

// Reasons by number; those that are asked for often have fixed ones.
class Reasons {
 public:
  enum Known { None, Ports, Pods, Cpu, Memory, SpreadLabel, SpreadSkew, Near, Apart, TheyApart, NoVictims };
  int number(const std::string& text);
  const std::string& text(int number) const { return texts_[static_cast<std::size_t>(number)]; }

 private:
  std::vector<std::string> texts_{"",
                                  "node(s) didn't have free ports for the requested pod ports",
                                  "Too many pods",
                                  "Insufficient cpu",
                                  "Insufficient memory",
                                  "node(s) didn't match pod topology spread constraints (missing required label)",
                                  "node(s) didn't match pod topology spread constraints",
                                  "node(s) didn't match pod affinity rules",
                                  "node(s) didn't match pod anti-affinity rules",
                                  "node(s) didn't satisfy existing pods anti-affinity rules",
                                  "No preemption victims found for incoming pod"};
  std::map<std::string, int> numbers_;
};

// What does not change while a plan is made: names, labels, taints. The same for pods that ask the same.
struct Fixed {
  std::vector<int> refusal;                // per node: the reason, or 0
  std::vector<bool> selected;              // per node: node affinity and selector hold
  std::vector<bool> tolerated;             // per node: no forbidding taint
  std::vector<std::int64_t> preferred;
  std::vector<int> disliked;
  std::int64_t most_preferred = 0;
  int most_disliked = 0;
};
std::string fixed_text(const Pod& pod);  // equal for pods with the same Fixed
// The pools that the volumes of these claims will be in on the node, one for each, as the provisioner will choose: of those that have the class the one with the most left, then the first by name, claim by claim. Else why not, in `why`.
std::optional<std::vector<std::string>> pools_for(const std::vector<PoolNeed>& needs, const Node& node, const Pools& pools, std::string& why);
// pools: a node whose pools have no class or no room for the pod's claims is refused.
Fixed fix(const Board& board, const Pod& pod, Reasons& reasons, const Pools& pools = {});

class Ask {
 public:
  Ask(const Board& board, Board::PodIndex pod, const Fixed& fixed, Reasons& reasons);
  bool fits(Board::NodeIndex node) const;
  // Why not; several resources may be short at once. Empty: it fits.
  std::vector<int> refusals(Board::NodeIndex node) const;
  // Whether nobody's leaving could help.
  bool fixed(Board::NodeIndex node) const { return fixed_.refusal[static_cast<std::size_t>(node)] != 0; }
  // The best of all nodes that may; equal ones by name; -1: none.
  Board::NodeIndex best() const;
  // Counts over domains are taken when an Ask is made; after pods were put or taken, again.
  void recount();

 private:
  struct Count {                         // of a spread constraint
    const Board::Constraint* constraint;
    std::vector<int> per_domain;         // -1: the domain does not count
    int least = 0, most = 0;
  };
  int refuse_ports(Board::NodeIndex node) const;
  bool short_of_anything(const Board::Bin& bin) const;
  void shortages(const Board::Bin& bin, std::vector<int>& out) const;
  int refuse_spread(Board::NodeIndex node) const;
  int refuse_neighbours(Board::NodeIndex node) const;
  std::int64_t free_percent(const Board::Bin& bin) const;
  std::int64_t liking(Board::NodeIndex node) const;
  std::int64_t crowd(Board::NodeIndex node) const;

  const Board& board_;
  const Board::PodIndex index_;
  const Board::Entry& entry_;
  const Pod& pod_;
  const Fixed& fixed_;
  Reasons& reasons_;
  std::vector<int> about_;               // terms of others that mean this pod
  std::vector<Count> counts_;
  bool prefers_spread_ = false;
};

}  // namespace fairlead::placement
