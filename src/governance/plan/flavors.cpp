// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/flavors.h"

#include <algorithm>
#include <limits>
#include <map>

namespace fairlead::governance {
namespace {

// How good a flavor is for a resource, worse to better; Kueue's "granular mode".
enum class Rank { NoFit, NoCandidates, Preempt, Reclaim, Fit };
struct Standing {
  Rank rank = Rank::NoFit;
  int borrow_level = 0;
};
constexpr Standing worst{Rank::NoFit, std::numeric_limits<int>::max()};
constexpr Standing best{Rank::Fit, 0};

Mode mode_of(Rank rank) { return rank == Rank::NoFit ? Mode::NoFit : rank == Rank::Fit ? Mode::Fit : Mode::Preempt; }
std::optional<Possibility> possibility_of(Rank rank) {
  switch (rank) {
    case Rank::NoCandidates: return Possibility::NoCandidates;
    case Rank::Preempt: return Possibility::Preempt;
    case Rank::Reclaim: return Possibility::Reclaim;
    default: return std::nullopt;
  }
}

bool better(const Standing& a, const Standing& b, const QueuePolicies& policies) {
  if (a.rank == Rank::NoFit) return false;
  if (b.rank == Rank::NoFit) return true;
  if ((a.rank == Rank::NoCandidates) != (b.rank == Rank::NoCandidates)) return b.rank == Rank::NoCandidates;
  if (policies.preempt_rather_than_borrow) return a.borrow_level != b.borrow_level ? a.borrow_level < b.borrow_level : a.rank > b.rank;
  return a.rank != b.rank ? a.rank > b.rank : a.borrow_level < b.borrow_level;
}

bool go_on(const Standing& s, const QueuePolicies& policies) {
  if (s.rank == Rank::NoFit || s.rank == Rank::NoCandidates) return true;
  return ((s.rank == Rank::Preempt || s.rank == Rank::Reclaim) && policies.next_if_preempting) || (s.borrow_level != 0 && policies.next_if_borrowing);
}

struct Quoted {
  Standing standing;
  std::optional<Why> why;
  NoFitReason no_fit = NoFitReason::None;
};

class Assigner {
 public:
  Assigner(World& world, const AssignInput& input)
      : world_(world), input_(input), queue_(world.queues[input.queue]), workload_(world.workloads[input.workload]) {}

  Assignment run() {
    Assignment result;
    result.progress = {.tried = {}, .generation = queue_.generation, .cycle = input_.cycle, .kind = workload_.kind};
    for (const std::vector<std::size_t>& group : grouped()) {
      if (!assign_group(group, result)) {
        explain_no_fit(result);
        return result;
      }
    }
    if (result.mode() != Mode::NoFit && world_.rules.gates.topology) find_places(result);
    explain_no_fit(result);
    return result;
  }

 private:
  // Pod sets that must share flavors: those of one named group, else each alone.
  std::vector<std::vector<std::size_t>> grouped() const {
    std::vector<std::vector<std::size_t>> groups;
    std::map<std::string, std::size_t> named;
    for (std::size_t i = 0; i < workload_.asks.size(); ++i) {
      const auto& group = workload_.spec.pod_sets[i].topology.group;
      if (group) {
        const auto [at, fresh] = named.emplace(*group, groups.size());
        if (!fresh) {
          groups[at->second].push_back(i);
          continue;
        }
      }
      groups.push_back({i});
    }
    return groups;
  }

  PodSetFlavors draft(std::size_t i) const {
    const PodSetAsk& ask = workload_.asks[i];
    PodSetFlavors result{.name = workload_.spec.pod_sets[i].name, .count = ask.count, .requests = ask.total, .error = {}, .topology = {}};
    const HeldPodSet* held = nullptr;
    if (workload_.spec.admission && world_.rules.gates.topology)
      for (const HeldPodSet& entry : workload_.spec.admission->pod_sets)
        if (entry.name == result.name) held = &entry;
    if (input_.counts != nullptr && ask.count != 0 && (*input_.counts)[i] != ask.count && (held == nullptr || !held->topology)) {
      result.count = (*input_.counts)[i];
      for (auto& [resource, amount] : result.requests) amount = times(amount / ask.count, result.count);
    }
    const ResourceId pods = world_.resource_named("pods");
    if (queue_.group_of(pods) != nullptr) {
      const auto at = std::lower_bound(result.requests.begin(), result.requests.end(), pods, [](const auto& entry, ResourceId wanted) { return entry.first < wanted; });
      if (at != result.requests.end() && at->first == pods) at->second = result.count;
      else result.requests.insert(at, {pods, result.count});
    }
    if (held != nullptr) {  // a second pass keeps what is there
      for (const auto& [resource, flavor] : held->flavors) {
        const FlavorChoice kept{.resource = world_.resource_named(resource), .flavor = world_.flavor_named(flavor), .mode = Mode::Fit};
        if (kept.resource != none && kept.flavor != none) result.flavors.push_back(kept);  // gone ones are sought anew
      }
      result.topology = held->topology;
      result.topology_pending = held->topology_pending;
    }
    return result;
  }

  // False: a pod set of the group has no flavors; the search ends.
  bool assign_group(const std::vector<std::size_t>& group, Assignment& result) {
    std::vector<PodSetFlavors> drafts;
    Amounts requests;
    for (const std::size_t i : group) {
      drafts.push_back(draft(i));
      for (const auto& [resource, amount] : drafts.back().requests) {
        const auto at = std::lower_bound(requests.begin(), requests.end(), resource, [](const auto& entry, ResourceId wanted) { return entry.first < wanted; });
        if (at != requests.end() && at->first == resource) at->second = plus(at->second, amount);
        else requests.insert(at, {resource, amount});
      }
    }
    std::map<ResourceId, FlavorChoice> chosen;
    for (const PodSetFlavors& one : drafts)
      for (const FlavorChoice& choice : one.flavors) chosen[choice.resource] = choice;
    std::map<FlavorId, Attempt> attempts;
    std::vector<Why> reasons;
    for (const ResourceId resource : in_search_order(requests)) {
      const Amount amount = amount_of(requests, resource);
      const Group* resources = queue_.group_of(resource);
      if (resources == nullptr && (amount == 0 || world_.rules.gates.ignore_undeclared)) continue;
      if (chosen.contains(resource)) continue;  // came with another resource of its group
      std::vector<Why> whys;
      std::vector<Attempt> tried;
      const std::vector<FlavorChoice> choices = search(group, requests, resource, resources, result.uses, whys, tried);
      merge_attempts(attempts, tried, resource, resources);
      if (choices.empty()) {
        chosen.clear();
        reasons = whys;
        break;
      }
      for (const FlavorChoice& choice : choices) chosen[choice.resource] = choice;
      reasons.insert(reasons.end(), whys.begin(), whys.end());
    }
    bool complete = true;
    for (PodSetFlavors& one : drafts) {
      one.flavors.clear();
      for (const auto& [resource, choice] : chosen) {
        const bool asked = std::any_of(one.requests.begin(), one.requests.end(), [&](const auto& entry) { return entry.first == resource; });
        // One that asks for nothing goes where the topology of its group leads.
        const bool follows = one.requests.empty() && group.size() > 0 && workload_.spec.pod_sets[group[0]].topology.group && world_.flavors[choice.flavor].topology != nullptr;
        if (asked || follows) one.flavors.push_back(choice);
      }
      one.reasons = reasons;
      for (const auto& [flavor, attempt] : attempts) one.attempts.push_back(attempt);
      if (!one.requests.empty() && one.flavors.empty()) complete = false;
      add(std::move(one), result);
    }
    return complete;
  }

  // The order in which resources are looked at shows where the first one fails: Kueue goes by the FNV-1a hash of the name.
  std::vector<ResourceId> in_search_order(const Amounts& requests) const {
    std::vector<std::pair<std::uint64_t, ResourceId>> hashed;
    for (const auto& [resource, amount] : requests) {
      std::uint64_t hash = 0xcbf29ce484222325ULL;
      for (const char c : world_.resources[resource]) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
      hashed.emplace_back(hash, resource);
    }
    std::sort(hashed.begin(), hashed.end());
    std::vector<ResourceId> order;
    for (const auto& [hash, resource] : hashed) order.push_back(resource);
    return order;
  }

  void add(PodSetFlavors one, Assignment& result) {
    std::vector<std::pair<ResourceId, int>> tried;
    for (const FlavorChoice& choice : one.flavors) {
      result.borrow_level = std::max(result.borrow_level, choice.borrow_level);
      tried.emplace_back(choice.resource, choice.tried);
      const Column c = queue_.column(choice.flavor, choice.resource);
      if (c == no_column) continue;
      const Amount amount = amount_of(one.requests, choice.resource);
      const auto use = std::find_if(result.uses.begin(), result.uses.end(), [&](const Use& u) { return u.column == c; });
      if (use != result.uses.end()) use->amount = plus(use->amount, amount);
      else result.uses.push_back({c, amount});
    }
    result.progress.tried.push_back(std::move(tried));
    result.pod_sets.push_back(std::move(one));
  }

  // Where the last attempt stopped, and one further.
  std::size_t first_flavor(std::size_t pod_set, ResourceId resource) const {
    if (!workload_.progress || !world_.rules.gates.fungibility || pod_set >= workload_.progress->tried.size()) return 0;
    for (const auto& [r, last] : workload_.progress->tried[pod_set])
      if (r == resource) return static_cast<std::size_t>(last + 1);
    return 0;
  }

  bool nominated(const std::vector<std::size_t>& pod_sets, ResourceId resource, FlavorId flavor) const {
    for (const std::size_t i : pod_sets)
      if (i < input_.nominated->size())
        for (const auto& [r, f] : (*input_.nominated)[i])
          if (r == resource && f == flavor) return true;
    return false;
  }

  // One flavor for all resources of the group that `resource` is of.
  std::vector<FlavorChoice> search(const std::vector<std::size_t>& pod_sets, const Amounts& requests, ResourceId resource, const Group* group, const std::vector<Use>& earlier,
                                   std::vector<Why>& whys, std::vector<Attempt>& tried) {
    if (group == nullptr) {
      whys.push_back({.kind = Why::Kind::ResourceUnavailable, .resource = resource, .detail = {}});
      return {};
    }
    const QueuePolicies& policies = queue_.spec.policies;
    std::vector<FlavorChoice> chosen;
    Standing chosen_standing = worst;
    int attempted = -1;
    for (std::size_t f = first_flavor(pod_sets[0], resource); f < group->flavors.size(); ++f) {
      attempted = static_cast<int>(f);
      const FlavorId flavor = group->flavors[f];
      if (input_.nominated != nullptr && !nominated(pod_sets, resource, flavor)) {
        whys.push_back({.kind = Why::Kind::NotNominated, .flavor = flavor, .resource = resource, .detail = {}});
        continue;
      }
      const std::vector<std::string>& allowed = workload_.spec.allowed_flavors;
      if (world_.rules.gates.allowed_flavors && !allowed.empty() && std::find(allowed.begin(), allowed.end(), world_.flavors[flavor].name) == allowed.end()) {
        whys.push_back({.kind = Why::Kind::NotAllowed, .flavor = flavor, .detail = {}});
        continue;
      }
      std::optional<Why> blocked;
      for (const std::size_t i : pod_sets)
        if (blocked = obstacle(world_, input_.queue, flavor, *group, workload_.spec.pod_sets[i]); blocked) break;
      if (blocked) {
        whys.push_back(*blocked);
        tried.push_back({.flavor = flavor, .reasons = {*blocked}, .no_fit = NoFitReason::NoMatchingFlavor});
        continue;
      }
      std::vector<FlavorChoice> choices;
      Standing standing = best;
      Attempt attempt{.flavor = flavor};
      for (const auto& [r, amount] : requests) {
        if (std::find(group->resources.begin(), group->resources.end(), r) == group->resources.end()) continue;
        Quoted quoted = quote(flavor, r, amount, earlier);
        if (quoted.why) {
          attempt.reasons.push_back(*quoted.why);
          whys.push_back(*quoted.why);
          attempt.no_fit = std::max(attempt.no_fit, quoted.no_fit);
        }
        attempt.borrow_level = std::max(attempt.borrow_level, quoted.standing.borrow_level);
        if (better(standing, quoted.standing, policies)) standing = quoted.standing;
        if (standing.rank != Rank::NoFit) choices.push_back({.resource = r, .flavor = flavor, .mode = mode_of(quoted.standing.rank), .borrow_level = quoted.standing.borrow_level});
      }
      attempt.mode = mode_of(standing.rank);
      attempt.possibility = possibility_of(standing.rank);
      tried.push_back(std::move(attempt));
      const bool stop = world_.rules.gates.fungibility ? !go_on(standing, policies) : standing.rank == Rank::Fit;
      if (stop || (world_.rules.gates.fungibility ? better(standing, chosen_standing, policies) : standing.rank > chosen_standing.rank)) {
        chosen = std::move(choices);
        chosen_standing = standing;
      }
      if (stop) break;
    }
    if (world_.rules.gates.fungibility)
      for (FlavorChoice& choice : chosen) choice.tried = attempted == static_cast<int>(group->flavors.size()) - 1 ? -1 : attempted;
    if (chosen_standing.rank == Rank::Fit) whys.clear();
    return chosen;
  }

  Quoted quote(FlavorId flavor, ResourceId resource, Amount amount, const std::vector<Use>& earlier) {
    const Column c = queue_.column(flavor, resource);
    Amount before = 0, available = 0, most = 0;
    if (c != no_column) {
      for (const Use& use : earlier)
        if (use.column == c) before = use.amount;
      available = std::max<Amount>(0, world_.ledger.available(queue_.node, c));
      most = world_.ledger.potential(queue_.node, c);
    }
    const Amount wanted = plus(before, amount);
    if (wanted > most)
      return {.standing = {Rank::NoFit, 0}, .why = Why{.kind = Why::Kind::ExceedsMax, .flavor = flavor, .resource = resource, .earlier = before, .asked = amount, .most = most, .node = queue_.node, .detail = {}}, .no_fit = NoFitReason::ExceedsMaxQuota};
    const Ledger::Level level = c == no_column ? Ledger::Level{} : world_.ledger.borrow_level(queue_.node, c, wanted);
    if (wanted <= available) return {.standing = {Rank::Fit, level.height}, .why = {}};
    Quoted quoted{.standing = {Rank::NoFit, level.height}, .why = Why{.kind = Why::Kind::NeedsMore, .flavor = flavor, .resource = resource, .missing = minus(wanted, available), .node = limiting_node(world_.ledger, queue_.node, c), .detail = {}},
                  .no_fit = NoFitReason::WaitingForQuota};
    const QueuePolicies& policies = queue_.spec.policies;
    const bool while_borrowing = policies.borrow_within_cohort || (world_.rules.fair && policies.reclaim != PreemptionPolicy::Never);
    if (world_.ledger.limits(queue_.node, c).nominal < wanted && !level.below_root && !while_borrowing) return quoted;
    const Foreseen foreseen = input_.oracle ? input_.oracle(c, wanted) : foresee(world_, input_.workload, input_.queue, c, wanted);
    quoted.standing.borrow_level = foreseen.borrow_level;
    quoted.standing.rank = foreseen.possibility == Possibility::NoCandidates ? Rank::NoCandidates : foreseen.possibility == Possibility::Preempt ? Rank::Preempt : Rank::Reclaim;
    quoted.no_fit = NoFitReason::None;
    return quoted;
  }

  void add_reason(std::vector<Why>& reasons, const Why& why) const {
    if (std::find(reasons.begin(), reasons.end(), why) == reasons.end()) reasons.push_back(why);
  }

  void merge_attempts(std::map<FlavorId, Attempt>& into, const std::vector<Attempt>& from, ResourceId resource, const Group* group) const {
    for (const Attempt& attempt : from) {
      const auto [at, fresh] = into.emplace(attempt.flavor, attempt);
      if (fresh) continue;
      Attempt& merged = at->second;
      merged.mode = std::min(merged.mode, attempt.mode);
      merged.borrow_level = std::max(merged.borrow_level, attempt.borrow_level);
      if (attempt.possibility && (!merged.possibility || *attempt.possibility < *merged.possibility)) merged.possibility = attempt.possibility;
      for (const Why& why : attempt.reasons) add_reason(merged.reasons, why);
      merged.no_fit = std::max(merged.no_fit, attempt.no_fit);
    }
    if (from.empty()) return;
    for (auto& [flavor, attempt] : into) {
      if (std::find(group->flavors.begin(), group->flavors.end(), flavor) == group->flavors.end()) continue;
      if (std::any_of(from.begin(), from.end(), [&, id = flavor](const Attempt& a) { return a.flavor == id; })) continue;
      attempt.mode = Mode::NoFit;
      add_reason(attempt.reasons, {.kind = Why::Kind::NotProvided, .flavor = flavor, .resource = resource, .detail = {}});
      attempt.no_fit = NoFitReason::NoMatchingFlavor;
    }
  }

  // All pod sets have quota, now or after pre-emption: is there a place for them?
  void find_places(Assignment& result) {
    const std::vector<FlavorQuestion> questions = placement_questions(world_, input_.workload, input_.queue, result);
    if (result.mode() == Mode::Fit) {
      const Placement placement = place(world_, input_.workload, questions, false);
      if (placement.ok()) {
        take_placement(world_, input_.workload, result, placement);
        result.places = new_places(world_, input_.workload, input_.queue, result, false);
      } else if (PodSetFlavors* failed = result.pod_set(placement.failed_pod_set)) {
        failed->reasons.push_back({.kind = Why::Kind::Topology, .flavor = placement.failed_flavor, .detail = placement.reason});
        for (FlavorChoice& choice : failed->flavors) choice.mode = Mode::Preempt;
        result.fixed_mode = Mode::Preempt;
      }
    }
    if (result.mode() != Mode::Preempt || !workload_.spec.unhealthy_nodes.empty()) return;
    const Placement placement = place(world_, input_.workload, questions, true);
    if (!placement.ok()) {  // not even if all others stop
      PodSetFlavors* failed = result.pod_set(placement.failed_pod_set);
      if (failed == nullptr) return;
      for (Attempt& attempt : failed->attempts)
        if (attempt.flavor == placement.failed_flavor) attempt.mode = Mode::NoFit, attempt.no_fit = NoFitReason::TopologyPlacementFailed;
      for (FlavorChoice& choice : failed->flavors) choice.mode = Mode::NoFit;
      result.fixed_mode = Mode::NoFit;
      return;
    }
    for (const FlavorQuestion& question : questions)  // room is there, but in pieces: others must go
      for (const TopologyPodSet& asked : question.pod_sets)
        if (PodSetFlavors* one = result.pod_set(asked.name)) {
          for (FlavorChoice& choice : one->flavors) choice.mode = Mode::Preempt;
          result.fixed_mode = Mode::Preempt;
        }
  }

  // Within a resource group the flavor that is nearest to fitting counts; across groups and pod sets the worst.
  void explain_no_fit(Assignment& result) const {
    if (!world_.rules.gates.observability || result.mode() != Mode::NoFit) return;
    NoFitReason overall = NoFitReason::None;
    for (const PodSetFlavors& one : result.pod_sets) {
      if (one.mode() != Mode::NoFit) continue;
      if (one.attempts.empty()) {
        overall = std::max(overall, NoFitReason::NoMatchingFlavor);
        continue;
      }
      std::map<int, NoFitReason> of_group;
      for (std::size_t a = 0; a < one.attempts.size(); ++a) {
        const Attempt& attempt = one.attempts[a];
        if (attempt.mode != Mode::NoFit) continue;
        bool found = false;
        for (std::size_t g = 0; g < queue_.groups.size(); ++g) {
          const auto& flavors = queue_.groups[g].flavors;
          if (std::find(flavors.begin(), flavors.end(), attempt.flavor) == flavors.end()) continue;
          found = true;
          const auto [at, fresh] = of_group.emplace(static_cast<int>(g), attempt.no_fit);
          if (!fresh) at->second = std::min(at->second, attempt.no_fit);
        }
        if (!found) of_group[-1 - static_cast<int>(a)] = attempt.no_fit;
      }
      for (const auto& [group, reason] : of_group) overall = std::max(overall, reason);
    }
    result.no_fit = overall;
  }

  World& world_;
  const AssignInput& input_;
  const Queue& queue_;
  const Workload& workload_;
};

}  // namespace

std::string_view text(Mode mode) {
  switch (mode) {
    case Mode::NoFit: return "NoFit";
    case Mode::Preempt: return "Preempt";
    case Mode::DeferredFit: return "DeferredFit";
    case Mode::Fit: return "Fit";
  }
  return "";
}

Mode PodSetFlavors::mode() const {
  if (!error.empty()) return Mode::NoFit;
  if (reasons.empty()) return Mode::Fit;
  if (flavors.empty()) return Mode::NoFit;
  return std::min_element(flavors.begin(), flavors.end(), [](const FlavorChoice& a, const FlavorChoice& b) { return a.mode < b.mode; })->mode;
}

Mode Assignment::mode() const {
  if (pod_sets.empty()) return Mode::NoFit;
  if (fixed_mode) return *fixed_mode;
  Mode worst_mode = Mode::Fit;
  for (const PodSetFlavors& one : pod_sets) worst_mode = std::min(worst_mode, one.mode());
  return worst_mode;
}

void Assignment::set_mode(Mode mode) {
  fixed_mode = mode;
  for (PodSetFlavors& one : pod_sets)
    for (FlavorChoice& choice : one.flavors) choice.mode = mode;
}

PodSetFlavors* Assignment::pod_set(std::string_view name) {
  const auto at = std::find_if(pod_sets.begin(), pod_sets.end(), [&](const PodSetFlavors& one) { return one.name == name; });
  return at == pod_sets.end() ? nullptr : &*at;
}

std::string message(const World& world, const Assignment& assignment) {
  std::string all;
  for (const PodSetFlavors& one : assignment.pod_sets) {
    if (one.error.empty() && one.reasons.empty()) continue;
    if (!one.error.empty()) return "failed to assign flavors to pod set " + one.name + ": " + one.error;
    std::vector<std::string> texts;
    for (const Why& why : one.reasons) texts.push_back(text(world, why));
    std::sort(texts.begin(), texts.end());
    if (!all.empty()) all += "; ";
    all += "couldn't assign flavors to pod set " + one.name + ": ";
    for (std::size_t i = 0; i < texts.size(); ++i) all += (i == 0 ? "" : ", ") + texts[i];
  }
  return all;
}

Assignment assign_flavors(World& world, const AssignInput& input) { return Assigner(world, input).run(); }

}  // namespace fairlead::governance
