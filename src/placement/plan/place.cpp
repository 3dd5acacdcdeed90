// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "placement/plan/ask.h"
#include "placement/plan/preempt.h"

namespace fairlead::placement {
namespace {

// Pods on nodes and those that wait, by key.
std::vector<const Pod*> living(const std::vector<const Pod*>& pods) {
  std::vector<const Pod*> out;
  out.reserve(pods.size());
  for (const Pod* pod : pods)
    if (!pod->finished && (!pod->node.empty() || pending(*pod))) out.push_back(pod);
  std::sort(out.begin(), out.end(), [](const Pod* a, const Pod* b) { return a->key < b->key; });
  return out;
}

const Spaces no_spaces;

class Planner {
 public:
  explicit Planner(const View& view) : view_(view), board_(view.nodes, living(view.pods), view.spaces == nullptr ? no_spaces : *view.spaces) {
    for (Board::PodIndex pod = 0; pod < board_.size(); ++pod)
      if (pending(*board_.entry(pod).pod)) queue_.push_back(pod);
    std::sort(queue_.begin(), queue_.end(), [&](Board::PodIndex a, Board::PodIndex b) {
      const Pod &left = *board_.entry(a).pod, &right = *board_.entry(b).pod;
      return std::tuple(-left.priority, left.created, a) < std::tuple(-right.priority, right.created, b);
    });
    for (const Budget* budget : view.budgets) {
      budgets_.budgets.push_back(budget);
      budgets_.allowed.push_back(std::max<std::int64_t>(0, budget->allowed));
    }
    for (const Claim* claim : view.claims) claims_[claim->key] = claim;
    if (view.pools != nullptr) pools_ = *view.pools;
  }

  Plan run() {
    for (const Board::PodIndex pod : queue_) decide(pod);
    return std::move(plan_);
  }

 private:
  // As the pod is, and where its claims bind it.
  std::string text_of(const Pod& pod) const {
    if (pod.claims.empty() || !view_.claims_known) return fixed_text(pod);
    const Pod bound = bound_by_claims(pod);
    // What pools have left changes as pods are placed.
    const bool takes = std::any_of(bound.pools.begin(), bound.pools.end(), [](const PoolNeed& one) { return one.bytes > 0; });
    return fixed_text(bound) + (takes ? fmt::format("\nroom {}", taken_) : "");
  }
  Pod bound_by_claims(const Pod& pod) const {
    Pod out = pod;
    if (!view_.claims_known) return out;
    for (const std::string& name : pod.claims)
      if (const auto claim = claims_.find({pod.key.space, name}); claim != claims_.end())
        if (auto need = need_of(*claim->second)) out.pools.push_back(std::move(*need));
    return out;
  }
  std::optional<PoolNeed> need_of(const Claim& claim) const {
    if (!claim.wants_pool) return claim.pool.empty() ? std::nullopt : std::optional(PoolNeed{.pool = claim.pool, .classes = {}, .bytes = 0, .bound = true});
    PoolNeed out{.pool = claim.pool, .classes = claim.classes, .bytes = claim.bytes, .bound = false};
    // Copies share their blocks with what they are of.
    if (const auto source = claims_.find({claim.key.space, claim.source_claim}); !claim.source_claim.empty() && source != claims_.end() && source->second->bound && !source->second->pool.empty()) out.pool = source->second->pool;
    if (view_.snapshots != nullptr && !claim.source_snapshot.empty())
      if (const auto source = view_.snapshots->find(claim.source_snapshot); source != view_.snapshots->end()) out.pool = source->second;
    return out;
  }
  const Fixed& fixed(const Pod& pod) {
    const auto [found, fresh] = fixed_.try_emplace(text_of(pod));
    if (fresh) found->second = fix(board_, bound_by_claims(pod), reasons_, pools_);
    return found->second;
  }

  void wait(const Pod& pod, std::string why, std::string preemption = {}) { plan_.waits.push_back({pod.key, pod.uid, std::move(why), std::move(preemption)}); }

  // Why a pod cannot be placed wherever it is; empty: nothing.
  std::string against(const Pod& pod) const {
    if (!pod.problems.empty()) return fmt::format("this pod cannot be placed: {}.", fmt::join(pod.problems, "; "));
    if (board_.bins().empty()) return "no nodes available to schedule pods";
    if (!view_.claims_known) return {};
    for (const std::string& name : pod.claims) {
      const auto claim = claims_.find({pod.key.space, name});
      const auto nowhere = [&](const std::string& text) { return fmt::format("0/{} nodes are available: {}.", board_.bins().size(), text); };
      if (claim == claims_.end()) return nowhere(fmt::format("persistentvolumeclaim \"{}\" not found", name));
      if (claim->second->deleting) return nowhere(fmt::format("persistentvolumeclaim \"{}\" is being deleted", name));
      if (!claim->second->bound && !claim->second->waits_for_pod) return nowhere("pod has unbound immediate PersistentVolumeClaims");
    }
    return {};
  }

  // A pod goes to its node once its claims are bound; those that wait for it are told the node.
  bool choose_claims(const Pod& pod, const Node& on) {
    const std::string& node = on.name;
    bool all_bound = true;
    if (!view_.claims_known) return true;
    std::vector<PoolNeed> needs = bound_by_claims(pod).pools;
    std::string why;
    if (const auto chosen = pools_for(needs, on, pools_, why))
      for (std::size_t i = 0; i < needs.size(); ++i)
        if (const auto pool = needs[i].bytes > 0 ? pools_.find((*chosen)[i]) : pools_.end(); pool != pools_.end() && pool->second.left) *pool->second.left -= needs[i].bytes, ++taken_;
    for (const std::string& name : pod.claims) {
      const Claim& claim = *claims_.at({pod.key.space, name});
      if (claim.bound) continue;
      all_bound = false;
      plan_.claims.push_back({claim.key, node});
    }
    return all_bound;
  }

  void decide(Board::PodIndex index) {
    const Pod& pod = *board_.entry(index).pod;
    if (std::string why = against(pod); !why.empty()) return wait(pod, std::move(why), not_helpful(pod));
    // One that asks the same failed a moment ago, and nothing was put since.
    std::string same = text_of(pod) + alike(index);
    if (const auto failed = failed_.find(same); failed != failed_.end() && failed->second.changes == board_.changes() && pod.nominated.empty())
      return wait(pod, failed->second.why, failed->second.preemption);
    Ask ask(board_, index, fixed(pod), reasons_);
    Board::NodeIndex node = board_.find(pod.nominated);
    if (node < 0 || !ask.fits(node)) node = ask.best();
    if (node >= 0) {
      board_.put(index, node);
      if (choose_claims(pod, *board_.bin(node).node)) plan_.places.push_back({pod.key, pod.uid, board_.bin(node).node->name});
      return;
    }
    std::string why = refusals(ask), preemption;
    if (!give_room(index, ask, preemption)) {
      // Only pods without a nominated node come here with the same answer each time.
      failed_[std::move(same)] = {board_.changes(), why, preemption};
    }
    wait(pod, std::move(why), std::move(preemption));
  }

  // Whether room is, or will be, made for it. Then the node counts it already, so that nobody less important takes the room.
  bool give_room(Board::PodIndex index, Ask& ask, std::string& preemption) {
    const Pod& pod = *board_.entry(index).pod;
    if (!pod.may_preempt) {
      preemption = "preemption: not eligible due to preemptionPolicy=Never.";
      return false;
    }
    if (const Board::NodeIndex nominated = board_.find(pod.nominated); nominated >= 0 && !ask.fixed(nominated)) {
      const auto& on = board_.bin(nominated).on;
      const bool leaving = std::any_of(on.begin(), on.end(), [&](Board::PodIndex other) { return board_.entry(other).pod->deleting && board_.entry(other).pod->priority < pod.priority; });
      if (leaving) {
        preemption = "preemption: not eligible due to a terminating pod on the nominated node.";
        board_.put(index, nominated);
        return true;
      }
    }
    auto room = make_room(board_, index, ask, budgets_, reasons_, preemption);
    if (!room) return false;
    Preempt preempt{.pod = pod.key, .uid = pod.uid, .node = board_.bin(room->node).node->name, .victims = {}};
    for (const Board::PodIndex victim : room->victims) {
      const Pod& leaves = *board_.entry(victim).pod;
      preempt.victims.push_back({leaves.key, leaves.uid});
      budgets_.charge(leaves);
      board_.doom(victim);
    }
    std::sort(preempt.victims.begin(), preempt.victims.end(), [](const auto& a, const auto& b) { return a.pod < b.pod; });
    plan_.preempts.push_back(std::move(preempt));
    board_.put(index, room->node);
    return true;
  }

  std::string not_helpful(const Pod& pod) const {
    if (!pod.problems.empty() || board_.bins().empty()) return {};
    return fmt::format("preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling.", board_.bins().size());
  }

  std::string refusals(const Ask& ask) {
    std::map<int, int> counts;
    for (Board::NodeIndex node = 0; node < static_cast<int>(board_.bins().size()); ++node)
      for (const int reason : ask.refusals(node)) ++counts[reason];
    std::vector<std::string> parts;
    for (const auto& [reason, count] : counts) parts.push_back(fmt::format("{} {}", count, reasons_.text(reason)));
    std::sort(parts.begin(), parts.end());
    return fmt::format("0/{} nodes are available: {}.", board_.bins().size(), fmt::join(parts, ", "));
  }

  // What two pods must have in common, beside `fixed_text`, to be refused alike.
  std::string alike(Board::PodIndex index) const {
    const Board::Entry& entry = board_.entry(index);
    const Pod& pod = *entry.pod;
    std::string out = fmt::format("\n{} {} {} {} {}", pod.priority, pod.may_preempt, pod.requests.cpu.value, pod.requests.memory.value, entry.labels);
    for (const auto& [number, amount] : entry.extended) out += fmt::format(" {}:{}", number, amount);
    for (const auto& [protocol, port] : pod.host_ports) out += fmt::format(" {}/{}", protocol, port);
    for (const int term : entry.near) out += fmt::format(" +{}", term);
    for (const int term : entry.apart) out += fmt::format(" -{}", term);
    for (const Board::Constraint& one : entry.constraints)
      out += fmt::format(" ~{},{},{},{},{},{},{}", one.counter, one.key, one.spread->max_skew, one.spread->required, one.spread->min_domains, one.spread->honor_affinity,
                         one.spread->honor_taints);
    return out;
  }

  struct Failed {
    std::uint64_t changes = 0;
    std::string why, preemption;
  };
  const View& view_;
  Reasons reasons_;
  Board board_;
  std::vector<Board::PodIndex> queue_;
  Budgets budgets_;
  std::map<kube::ObjectKey, const Claim*> claims_;
  Pools pools_;
  int taken_ = 0;  // how often some of it was
  std::unordered_map<std::string, Fixed> fixed_;
  std::unordered_map<std::string, Failed> failed_;
  Plan plan_;
};

}  // namespace

Plan plan_placement(const View& view) { return Planner(view).run(); }

Plan plan_placement(const Snapshot& snapshot) {
  View view{.nodes = {}, .pods = {}, .budgets = {}, .claims = {}, .claims_known = snapshot.claims_known, .spaces = &snapshot.spaces, .pools = &snapshot.pools, .snapshots = &snapshot.snapshots};
  const auto point = [](const auto& values, auto& into) {
    for (const auto& value : values) into.push_back(&value);
  };
  point(snapshot.nodes, view.nodes);
  point(snapshot.pods, view.pods);
  point(snapshot.budgets, view.budgets);
  point(snapshot.claims, view.claims);
  return plan_placement(view);
}

std::string print(const Plan& plan) {
  std::string out;
  for (const Place& place : plan.places) out += fmt::format("{} -> {}\n", place.pod.text(), place.node);
  for (const ChooseNode& one : plan.claims) out += fmt::format("claim {} -> {}\n", one.claim.text(), one.node);
  for (const Preempt& preempt : plan.preempts) {
    out += fmt::format("{} makes room on {}:", preempt.pod.text(), preempt.node);
    for (const auto& victim : preempt.victims) out += " " + victim.pod.text();
    out += '\n';
  }
  for (const Wait& wait : plan.waits) out += fmt::format("{} waits: {}{}{}\n", wait.pod.text(), wait.why, wait.preemption.empty() ? "" : " ", wait.preemption);
  return out;
}

}  // namespace fairlead::placement
