// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "placement/plan/match.h"

namespace fairlead::placement {
namespace {

// A node while the plan is made.
struct Bin {
  Node node;
  Resources used;
  std::vector<const Pod*> pods;
};

bool siblings(const Pod& a, const Pod& b) {
  if (!a.owner.empty() || !b.owner.empty()) return a.owner == b.owner;
  return a.key.space == b.key.space && !a.labels.empty() && a.labels == b.labels;
}

class Planner {
 public:
  explicit Planner(Snapshot& snapshot) {
    std::sort(snapshot.nodes.begin(), snapshot.nodes.end(), [](const Node& a, const Node& b) { return a.name < b.name; });
    std::sort(snapshot.pods.begin(), snapshot.pods.end(), [](const Pod& a, const Pod& b) { return a.key < b.key; });
    for (Node& node : snapshot.nodes) bins_.push_back({std::move(node), {}, {}});
    for (const Pod& pod : snapshot.pods) {
      if (pod.finished) continue;
      if (pending(pod)) {
        queue_.push_back(&pod);
      } else if (Bin* bin = find(pod.node)) {
        put(pod, *bin);
      }
    }
    std::sort(queue_.begin(), queue_.end(), [](const Pod* a, const Pod* b) {
      return std::tuple(-a->priority, a->created, std::cref(a->key)) < std::tuple(-b->priority, b->created, std::cref(b->key));
    });
  }

  Plan run() {
    Plan plan;
    for (const Pod* pod : queue_) {
      std::map<std::string, int> refusals;
      if (Bin* bin = choose(*pod, refusals)) {
        put(*pod, *bin);
        plan.places.push_back({pod->key, pod->uid, bin->node.name});
      } else {
        plan.waits.push_back({pod->key, pod->uid, why(*pod, refusals)});
      }
    }
    return plan;
  }

 private:
  Bin* find(const std::string& name) {
    if (name.empty()) return nullptr;
    const auto it = std::lower_bound(bins_.begin(), bins_.end(), name, [](const Bin& bin, const std::string& key) { return bin.node.name < key; });
    return it != bins_.end() && it->node.name == name ? &*it : nullptr;
  }

  static void put(const Pod& pod, Bin& bin) {
    bin.used += pod.requests;
    bin.pods.push_back(&pod);
  }

  // Why the pod may not be on the node, in the order in which Kubernetes asks; several resources may be short at once. Empty: it may.
  std::vector<std::string> refuse(const Pod& pod, const Bin& bin) const {
    const Node& node = bin.node;
    static const Taint cordoned{.key = "node.kubernetes.io/unschedulable", .value = "", .effect = Effect::NoSchedule, .added = std::nullopt};
    if (node.unschedulable && !tolerates(pod, cordoned)) return {"node(s) were unschedulable"};
    if (node.deleting) return {"node(s) were being deleted"};
    if (const Taint* taint = first_forbidding_taint(pod, node)) return {fmt::format("node(s) had untolerated taint {{{}: {}}}", taint->key, taint->value)};
    if (!node.ready) return {"node(s) were not ready"};
    if (!selects(pod, node)) return {"node(s) didn't match Pod's node affinity/selector"};
    for (const Pod* other : bin.pods) {
      for (const auto& port : pod.host_ports) {
        if (other->host_ports.contains(port)) return {"node(s) didn't have free ports for the requested pod ports"};
      }
    }
    std::vector<std::string> short_of;
    if (bin.used.pods + 1 > node.allocatable.pods) short_of.push_back("Too many pods");
    if (pod.requests.cpu.value > 0 && pod.requests.cpu.value > node.allocatable.cpu.value - bin.used.cpu.value) short_of.push_back("Insufficient cpu");
    if (pod.requests.memory.value > 0 && pod.requests.memory.value > node.allocatable.memory.value - bin.used.memory.value) short_of.push_back("Insufficient memory");
    for (const auto& [name, amount] : pod.requests.extended) {
      if (amount > 0 && amount > amount_of(node.allocatable, name) - amount_of(bin.used, name)) short_of.push_back("Insufficient " + name);
    }
    if (!short_of.empty()) return short_of;
    return refuse_neighbours(pod, bin);
  }

  static std::int64_t amount_of(const Resources& resources, const std::string& name) {
    const auto it = resources.extended.find(name);
    return it == resources.extended.end() ? 0 : it->second;
  }

  // Is there a pod that `wanted` says yes to in the same domain of `key` as `bin`?
  template <class Wanted>
  bool any_in_domain(const Bin& bin, const std::string& key, const Wanted& wanted) const {
    const auto here = bin.node.labels.find(key);
    if (here == bin.node.labels.end()) return false;
    for (const Bin& other : bins_) {
      const auto there = other.node.labels.find(key);
      if (there == other.node.labels.end() || there->second != here->second) continue;
      if (std::any_of(other.pods.begin(), other.pods.end(), [&](const Pod* one) { return wanted(*one); })) return true;
    }
    return false;
  }

  std::vector<std::string> refuse_neighbours(const Pod& pod, const Bin& bin) const {
    for (const PodTerm& term : pod.near) {
      if (!bin.node.labels.contains(term.topology_key)) return {"node(s) didn't match pod affinity rules"};
      if (any_in_domain(bin, term.topology_key, [&](const Pod& other) { return means(term, other); })) continue;
      // The first of pods that want to be near each other has nobody to be near to.
      const bool nobody = std::none_of(bins_.begin(), bins_.end(), [&](const Bin& any) {
        return std::any_of(any.pods.begin(), any.pods.end(), [&](const Pod* other) { return means(term, *other); });
      });
      if (!(nobody && means(term, pod))) return {"node(s) didn't match pod affinity rules"};
    }
    for (const PodTerm& term : pod.apart) {
      if (any_in_domain(bin, term.topology_key, [&](const Pod& other) { return means(term, other); })) return {"node(s) didn't match pod anti-affinity rules"};
    }
    // Those already there may not want it either.
    for (const Bin& other : bins_) {
      for (const Pod* there : other.pods) {
        for (const PodTerm& term : there->apart) {
          const auto mine = bin.node.labels.find(term.topology_key), theirs = other.node.labels.find(term.topology_key);
          const bool same = mine != bin.node.labels.end() && theirs != other.node.labels.end() && mine->second == theirs->second;
          if (same && means(term, pod)) return {"node(s) didn't satisfy existing pods anti-affinity rules"};
        }
      }
    }
    return {};
  }

  struct Fit {
    Bin* bin;
    std::int64_t free, sibling_count, preferred, disliked;
  };

  // Percent of CPU and memory that stays free, averaged; what the node does not tell counts as nothing free.
  static std::int64_t free_percent(const Pod& pod, const Bin& bin) {
    const auto percent = [](std::int64_t all, std::int64_t used) { return all <= 0 || used >= all ? 0 : static_cast<std::int64_t>(static_cast<__int128>(all - used) * 100 / all); };
    return (percent(bin.node.allocatable.cpu.value, bin.used.cpu.value + pod.requests.cpu.value) +
            percent(bin.node.allocatable.memory.value, bin.used.memory.value + pod.requests.memory.value)) / 2;
  }

  Bin* choose(const Pod& pod, std::map<std::string, int>& refusals) {
    if (!pod.problems.empty()) return nullptr;
    std::vector<Fit> fits;
    std::int64_t most_siblings = 0, most_preferred = 0, most_disliked = 0;
    for (Bin& bin : bins_) {
      const auto reasons = refuse(pod, bin);
      for (const std::string& reason : reasons) ++refusals[reason];
      if (!reasons.empty()) continue;
      const auto count = std::count_if(bin.pods.begin(), bin.pods.end(), [&](const Pod* other) { return siblings(pod, *other); });
      fits.push_back({&bin, free_percent(pod, bin), count, preference(pod, bin.node), disliked_taints(pod, bin.node)});
      most_siblings = std::max(most_siblings, fits.back().sibling_count);
      most_preferred = std::max(most_preferred, fits.back().preferred);
      most_disliked = std::max(most_disliked, fits.back().disliked);
    }
    // The weights of Kubernetes' own scheduler: resources 1, taints 3, node affinity 2, spreading 2; each part scaled to 0..100 over the nodes that fit.
    const auto scaled = [](std::int64_t part, std::int64_t most) { return most == 0 ? 0 : part * 100 / most; };
    const Fit* best = nullptr;
    std::int64_t best_score = 0;
    for (const Fit& fit : fits) {  // in order of names, so of equal ones the first wins
      const std::int64_t score = fit.free + 3 * (100 - scaled(fit.disliked, most_disliked)) + 2 * scaled(fit.preferred, most_preferred) +
                                 2 * (100 - scaled(fit.sibling_count, most_siblings));
      if (best == nullptr || score > best_score) {
        best = &fit;
        best_score = score;
      }
    }
    return best == nullptr ? nullptr : best->bin;
  }

  std::string why(const Pod& pod, const std::map<std::string, int>& refusals) const {
    if (!pod.problems.empty()) return fmt::format("this pod cannot be placed: {}.", fmt::join(pod.problems, "; "));
    if (bins_.empty()) return "no nodes available to schedule pods";
    std::vector<std::string> parts;
    for (const auto& [reason, count] : refusals) parts.push_back(fmt::format("{} {}", count, reason));
    std::sort(parts.begin(), parts.end());
    return fmt::format("0/{} nodes are available: {}.", bins_.size(), fmt::join(parts, ", "));
  }

  std::vector<Bin> bins_;           // by name
  std::vector<const Pod*> queue_;   // into the snapshot
};

}  // namespace

Plan plan_placement(Snapshot snapshot) { return Planner(snapshot).run(); }

std::string print(const Plan& plan) {
  std::string out;
  for (const Place& place : plan.places) out += fmt::format("{} -> {}\n", place.pod.text(), place.node);
  for (const Wait& wait : plan.waits) out += fmt::format("{} waits: {}\n", wait.pod.text(), wait.why);
  return out;
}

}  // namespace fairlead::placement
