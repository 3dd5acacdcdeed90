// SPDX-License-Identifier: Apache-2.0
// Nodes and what is on them while a plan is made: free resources, and how many pods of which kind are in which domain of which label. Every question about one node costs
// a few comparisons: labels, selectors and names are looked at once, when the board is set up.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "placement/plan/place.h"

namespace fairlead::placement {

class Board {
 public:
  using PodIndex = int;
  using NodeIndex = int;

  // `pods`: all that matter, sorted by key. Pods on nodes are put there.
  Board(std::vector<const Node*> nodes, std::vector<const Pod*> pods, const Spaces& spaces);

  struct Bin {
    const Node* node = nullptr;
    std::int64_t cpu = 0, memory = 0, pods = 0;  // free; below zero when over-committed by hand
    std::vector<std::int64_t> extended;           // free, by number of the resource
    std::vector<PodIndex> on;
    std::vector<const std::pair<std::string, std::int64_t>*> ports;
  };
  // A term of affinity between pods, counted over the domains of its label.
  struct Term {
    int counter = 0;   // which pods it means
    int key = 0;       // which label makes the domains
    std::vector<int> means;                // per domain: pods that it means
    std::vector<int> kept_apart;           // per domain: pods that hold it as required anti-affinity
    std::vector<std::int64_t> liked;       // per domain: weights of pods that hold it as a preference (or 1 as required affinity)
    int total = 0, holders = 0;            // pods meant in any domain; pods that hold it in any of the two ways
  };
  struct Constraint {
    const Spread* spread = nullptr;
    int counter = 0, key = 0;
    bool counts_itself = false;
  };
  struct Entry {
    const Pod* pod = nullptr;
    std::vector<std::pair<int, std::int64_t>> extended;
    int labels = 0;      // its class of namespace and labels
    int siblings = -1;   // its group
    std::vector<int> near, apart;                         // terms
    std::vector<std::pair<int, std::int64_t>> liked;      // terms and weights
    std::vector<Constraint> constraints;
    bool doomed = false;                                  // leaves: deleted, or chosen to make room
  };

  const std::vector<Bin>& bins() const { return bins_; }
  const Bin& bin(NodeIndex node) const { return bins_[static_cast<std::size_t>(node)]; }
  const Entry& entry(PodIndex pod) const { return entries_[static_cast<std::size_t>(pod)]; }
  int size() const { return static_cast<int>(entries_.size()); }
  NodeIndex find(std::string_view node) const;  // -1: not there
  const Term& term(int number) const { return terms_[static_cast<std::size_t>(number)]; }
  // The domain of a node under a label; -1: it has no such label.
  int domain(int key, NodeIndex node) const { return keys_[static_cast<std::size_t>(key)].of[static_cast<std::size_t>(node)]; }
  int domains(int key) const { return keys_[static_cast<std::size_t>(key)].count; }
  int count(int counter, NodeIndex node) const { return counters_[static_cast<std::size_t>(counter)].per_node[static_cast<std::size_t>(node)]; }
  int siblings(int group, NodeIndex node) const { return group < 0 ? 0 : groups_[static_cast<std::size_t>(group)][static_cast<std::size_t>(node)]; }
  const std::string& resource(int number) const { return resources_[static_cast<std::size_t>(number)]; }
  // Terms held by others that mean this pod.
  std::vector<int> terms_about(PodIndex pod) const;
  bool means(int counter, PodIndex pod) const { return counters_[static_cast<std::size_t>(counter)].matches[static_cast<std::size_t>(entry(pod).labels)]; }
  std::int64_t lowest_priority() const { return lowest_priority_; }  // of all pods ever put

  void put(PodIndex pod, NodeIndex node);
  void take(PodIndex pod, NodeIndex node);
  void doom(PodIndex pod) { entries_[static_cast<std::size_t>(pod)].doomed = true; }
  std::uint64_t changes() const { return changes_; }  // puts and takes so far

 private:
  struct Key {
    std::vector<int> of;
    int count = 0;
  };
  struct Counter {
    kube::LabelSelector selector;
    PodTerm term;                     // of affinity; of a spread, with one namespace
    bool skips_deleting = false;
    std::vector<bool> matches;        // by class of labels
    std::vector<int> per_node;
    std::vector<int> terms;
  };
  int key_number(const std::string& label);
  int counter_number(const PodTerm& term, bool skips_deleting);
  int term_number(const PodTerm& term);
  int resource_number(const std::string& name);
  void read(const Pod& pod);
  void change(PodIndex pod, NodeIndex node, int sign);

  std::vector<Bin> bins_;
  std::vector<Entry> entries_;
  std::vector<Term> terms_;
  std::vector<Counter> counters_;
  std::vector<Key> keys_;
  std::vector<std::vector<int>> groups_;        // siblings per node
  std::vector<std::string> resources_;
  std::vector<std::vector<int>> counters_of_;   // by class of labels
  std::vector<const Pod*> class_sample_;
  std::map<std::string, int> key_numbers_, counter_numbers_;
  std::map<std::pair<int, int>, int> term_numbers_;
  std::unordered_map<std::string, int> resource_numbers_, class_numbers_, group_numbers_;
  std::int64_t lowest_priority_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace fairlead::placement
