// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/cycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace fairlead::governance {
namespace {

struct Entry {
  Decision decision;
  Head head;
  bool nominated = false;  // looked at in full; else it is inadmissible as it stands
};

enum class Room { Yes, NoQuota, NoPlace };

class Cycle {
 public:
  Cycle(Engine& engine) : engine_(engine), world_(engine.world) {}

  std::vector<Decision> run() {
    ++engine_.cycle;
    weigh_local_queues();
    std::vector<Entry> entries = nominate();
    {
      const WorldTrial trial(world_);  // what this cycle gives out counts for those after it, and is applied for good below
      if (world_.rules.fair) in_fair_order(entries);
      else in_classical_order(entries);
    }
    std::vector<Decision> decisions;
    for (Entry& entry : entries) decisions.push_back(std::move(entry.decision));
    return decisions;
  }

 private:
  // Victims of a queue that looks at usage history are ordered by what their local queue used.
  void weigh_local_queues() {
    if (!world_.rules.usage_history || !world_.rules.gates.usage_history) return;
    for (Workload& w : world_.workloads) {
      w.local_use.reset();
      if (w.queue == none || !world_.queues[w.queue].spec.by_usage_history) continue;
      const std::string key = w.spec.space + "/" + w.spec.local_queue;
      const auto local = engine_.local_queues.find(key);
      w.local_use = engine_.history.use(key, local == engine_.local_queues.end() ? 1 : local->second.weight);
    }
  }

  std::vector<Entry> nominate() {
    std::vector<Entry> entries;
    const auto add = [&](WorkloadId w, bool preemptor) {
      Workload& workload = world_.workloads[w];
      const bool second = needs_second_pass(workload.spec);
      if (workload.counted && !second) return;  // it holds quota already
      Entry entry;
      entry.decision.workload = entry.head.workload = w;
      entry.decision.queue = entry.head.queue = workload.queue;
      entry.head.has_quota = workload.spec.reserved.is;
      entry.head.preemptor = preemptor;
      if (auto [reason, message, requeue] = inadmissible(workload); !message.empty()) {
        entry.decision.reason = reason;
        entry.decision.message = message;
        entry.decision.requeue = requeue;
      } else {
        entry.nominated = true;
        record(entry, assign(world_, w, workload.queue, engine_.cycle, nullptr));
      }
      entries.push_back(std::move(entry));
    };
    for (const WorkloadId w : std::exchange(engine_.second_pass, {})) add(w, false);
    for (std::uint32_t q = 0; q < world_.queues.size(); ++q) {
      if (!world_.queues[q].active) continue;
      const WorkloadId w = engine_.pending.pop(q);
      if (w != none) add(w, engine_.pending.is_preemptor(q, w));
    }
    return entries;
  }

  struct Refusal {
    std::string reason, message;
    Requeue requeue = Requeue::Generic;
  };
  Refusal inadmissible(const Workload& w) const {
    for (const CheckState& check : w.spec.checks)
      if (check.state == "Retry" || check.state == "Rejected") return {"PendingEvaluation", "The workload has failed admission checks", {}};
    const Queue& queue = world_.queues[w.queue];
    if (!queue.active) return {"Suspended", fmt::format("ClusterQueue {} is inactive", queue.spec.name), {}};
    const auto space = engine_.spaces.find(w.spec.space);
    if (space == engine_.spaces.end()) return {"Misconfigured", fmt::format("workload namespace \"{}\" does not exist", w.spec.space), {}};
    if (!queue.spec.namespaces || !queue.spec.namespaces->matches(space->second)) return {"Misconfigured", "workload namespace doesn't match ClusterQueue selector", Requeue::NamespaceMismatch};
    for (const PodSetSpec& pod_set : w.spec.pod_sets)
      if (!pod_set.invalid.empty()) return {"Misconfigured", "resources validation failed: " + pod_set.invalid, {}};
    return {};
  }

  void record(Entry& entry, Assigned assigned) {
    Decision& decision = entry.decision;
    decision.assignment = std::move(assigned.assignment);
    decision.victims = std::move(assigned.victims);
    decision.message = message(world_, decision.assignment);
    world_.workloads[decision.workload].progress = decision.assignment.progress;
    entry.head.borrow_level = decision.assignment.borrow_level;
    entry.head.uses = net_uses(entry, decision.assignment.uses);
  }

  std::vector<Use> net_uses(const Entry& entry, const std::vector<Use>& uses) const { return entry.head.has_quota ? std::vector<Use>{} : uses; }
  std::vector<std::pair<FlavorId, DomainUse>> net_places(const Entry& entry) const { return new_places(world_, entry.head.workload, entry.head.queue, entry.decision.assignment, true); }

  void in_classical_order(std::vector<Entry>& entries) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < entries.size(); ++i)
      if (entries[i].nominated) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return compare_heads(world_, entries[a].head, entries[b].head) < 0; });
    for (const std::size_t i : order) process(entries[i]);
  }

  void in_fair_order(std::vector<Entry>& entries) {
    std::vector<Head> heads;
    std::vector<bool> open;
    for (const Entry& entry : entries) {
      heads.push_back(entry.head);
      open.push_back(entry.nominated);
    }
    // One head of a queue competes: a second pass gives way to the queue's own head, and is tried again.
    for (std::size_t i = 0; i < entries.size(); ++i)
      for (std::size_t later = i + 1; later < entries.size(); ++later)
        if (open[later] && entries[later].head.queue == entries[i].head.queue) open[i] = false;
    while (std::find(open.begin(), open.end(), true) != open.end()) {
      const std::size_t pick = fairest(world_, heads, open);
      open[pick] = false;
      process(entries[pick]);
    }
  }

  Room room(const Entry& entry, const std::vector<Use>& uses, const std::vector<std::pair<FlavorId, DomainUse>>& places, const std::vector<Victim>& victims) {
    WorldTrial trial(world_);
    std::set<WorkloadId> gone = taken_;
    for (const Victim& victim : victims) gone.insert(victim.workload);
    for (const WorkloadId w : gone) world_.take_usage(w);
    const NodeId node = world_.queues[entry.head.queue].node;
    for (const Use& use : uses)
      if (std::max<Amount>(0, world_.ledger.available(node, use.column)) < use.amount) return Room::NoQuota;
    for (const auto& [flavor, use] : places)
      if (!world_.flavors[flavor].topology->fits(std::span(&use, 1))) return Room::NoPlace;
    return Room::Yes;
  }

  bool overlaps(const std::vector<Victim>& victims) const {
    return std::any_of(victims.begin(), victims.end(), [&](const Victim& victim) { return taken_.contains(victim.workload); });
  }

  // Others were first: where their victims are ours too, or our place is taken, the decision is made anew with the flavors it had.
  Room refresh(Entry& entry, std::vector<Use>& uses, std::vector<std::pair<FlavorId, DomainUse>>& places) {
    Decision& decision = entry.decision;
    uses = net_uses(entry, decision.assignment.uses);
    places = net_places(entry);
    const Room before = room(entry, uses, places, decision.victims);
    const bool overlap = overlaps(decision.victims) && world_.rules.gates.recompute_overlaps;
    if (!overlap && !(before == Room::NoPlace && world_.rules.gates.recompute_topology)) return before;
    const std::vector<PodSetSpec>& pod_sets = world_.workloads[decision.workload].spec.pod_sets;
    Nomination nominated(pod_sets.size());
    for (const PodSetFlavors& one : decision.assignment.pod_sets)
      for (std::size_t i = 0; i < pod_sets.size(); ++i)
        if (pod_sets[i].name == one.name)
          for (const FlavorChoice& choice : one.flavors) nominated[i].emplace_back(choice.resource, choice.flavor);
    world_.workloads[decision.workload].progress.reset();
    if (overlap) {
      WorldTrial trial(world_);  // as if the victims of others had stopped
      for (const WorkloadId w : taken_) world_.take_usage(w), world_.leave(w);
      record(entry, assign(world_, decision.workload, decision.queue, engine_.cycle, &nominated));
      trial.close();
      for (const WorkloadId w : taken_) world_.come_back(w);
      if (decision.assignment.mode() == Mode::Fit) decision.assignment.set_mode(Mode::DeferredFit);
    } else {
      record(entry, assign(world_, decision.workload, decision.queue, engine_.cycle, &nominated));
    }
    uses = net_uses(entry, decision.assignment.uses);
    places = net_places(entry);
    return room(entry, uses, places, decision.victims);
  }

  void use(const Entry& entry, const std::vector<Use>& uses, const std::vector<std::pair<FlavorId, DomainUse>>& places) {
    world_.ledger.add(world_.queues[entry.head.queue].node, uses);
    for (const auto& [flavor, domain] : places) world_.flavors[flavor].topology->add(std::span(&domain, 1));
  }

  void skip(Decision& decision, std::string message) {
    decision.skipped = true;
    decision.reason = "WaitingForQuota";
    decision.message = std::move(message);
    decision.requeue = Requeue::FailedAfterNomination;
    if (!world_.rules.gates.preserve_scan) world_.workloads[decision.workload].progress.reset();
  }

  void process(Entry& entry) {
    Decision& decision = entry.decision;
    Workload& workload = world_.workloads[decision.workload];
    const Queue& queue = world_.queues[decision.queue];
    std::vector<Use> uses;
    std::vector<std::pair<FlavorId, DomainUse>> places;
    const Room fits = refresh(entry, uses, places);
    const Mode mode = decision.assignment.mode();
    if (world_.rules.gates.fail_fast_replacement && has_unhealthy_place(workload.spec) && mode != Mode::Fit) {
      decision.kind = Decision::Kind::Evict;
      return;
    }
    if (mode == Mode::NoFit) {
      decision.requeue = Requeue::NoFit;
      decision.reason = text(decision.assignment.no_fit);
      return;
    }
    if (mode == Mode::Preempt && decision.victims.empty()) {
      decision.requeue = Requeue::NoCandidates;
      decision.reason = "WaitingForQuota";
      // Who cannot simply take it back later holds what it can have, so that others do not take it meanwhile.
      if (queue.spec.policies.reclaim != PreemptionPolicy::Any || (world_.rules.gates.prioritize_preemptors && entry.head.preemptor)) use(entry, net_uses(entry, reservable(entry)), places);
      return;
    }
    if (mode == Mode::Preempt && world_.rules.gates.preemption_gates && workload.spec.closed_preemption_gate) {
      decision.reason = "AdmissionGated";
      decision.message = "Workload requires preemption, but it's gated";
      decision.requeue = Requeue::PreemptionGated;
      workload.progress.reset();
      return;
    }
    if (mode == Mode::DeferredFit) {
      decision.message = "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete";
      decision.reason = "WaitingForPreemptedWorkloads";
      decision.requeue = Requeue::PendingPreemption;
      workload.progress.reset();
      use(entry, uses, places);
      return;
    }
    if (overlaps(decision.victims)) return skip(decision, "Workload has overlapping preemption targets with another workload");
    if (fits != Room::Yes) return skip(decision, "Workload no longer fits after processing another workload");
    for (const Victim& victim : decision.victims) taken_.insert(victim.workload);
    use(entry, uses, places);
    if (mode == Mode::Preempt) {
      decision.kind = Decision::Kind::Preempt;
      decision.reason = "WaitingForPreemptedWorkloads";
      decision.message += fmt::format(". Pending the preemption of {} workload(s)", decision.victims.size());
      decision.requeue = Requeue::PendingPreemption;
      workload.progress.reset();
      return;
    }
    decision.kind = Decision::Kind::Admit;
  }

  // Up to what is its own, or up to its borrowing limit where it would borrow.
  std::vector<Use> reservable(const Entry& entry) const {
    const Assignment& assignment = entry.decision.assignment;
    const NodeId node = world_.queues[entry.head.queue].node;
    std::vector<Use> uses;
    for (const Use& use : assignment.uses) {
      const Limits limits = world_.ledger.limits(node, use.column);
      const Amount used = world_.ledger.usage(node, use.column);
      if (assignment.borrow_level > 0) uses.push_back({use.column, limits.borrow == unlimited ? use.amount : std::min(use.amount, minus(plus(limits.nominal, limits.borrow), used))});
      else uses.push_back({use.column, std::max<Amount>(0, std::min(use.amount, minus(limits.nominal, used)))});
    }
    return uses;
  }

  Engine& engine_;
  World& world_;
  std::set<WorkloadId> taken_;  // victims of this cycle
};

UsageHistory::Values whole_units(const World& world, const Workload& w) {
  UsageHistory::Values values;
  for (const PodSetAsk& ask : w.asks)
    for (const auto& [resource, amount] : ask.total) values[world.resources[resource]] += world.resources[resource] == "cpu" ? static_cast<double>(amount) / 1000 : static_cast<double>(amount);
  return values;
}

bool topologies_pending(const WorkloadSpec& w) {
  return w.admission && std::any_of(w.admission->pod_sets.begin(), w.admission->pod_sets.end(), [](const HeldPodSet& held) { return !held.topology && held.topology_pending; });
}
bool checks_ready(const WorkloadSpec& w) {
  return std::all_of(w.checks.begin(), w.checks.end(), [](const CheckState& check) { return check.state == "Ready"; });
}

// All checks that its flavors need are there; whether they are done is another question.
bool has_required_checks(const QueueSpec& queue, const WorkloadSpec& w) {
  const auto has = [&](const std::string& name) { return std::any_of(w.checks.begin(), w.checks.end(), [&](const CheckState& check) { return check.name == name; }); };
  for (const std::string& check : queue.checks)
    if (!has(check)) return false;
  for (const auto& [check, on] : queue.checks_on) {
    const bool needed = on.empty() || std::any_of(on.begin(), on.end(), [&](const std::string& flavor) {
      return std::any_of(w.admission->pod_sets.begin(), w.admission->pod_sets.end(), [&](const HeldPodSet& held) {
        return std::any_of(held.flavors.begin(), held.flavors.end(), [&](const auto& entry) { return entry.second == flavor; });
      });
    });
    if (needed && !has(check)) return false;
  }
  return true;
}

bool may_wait(const World& world, const WorkloadSpec& w) {
  return w.active && !w.finished.is && !w.reserved.is && !(world.rules.gates.admission_gates && w.admission_gate);
}

void give_quota(Engine& engine, Decision& decision) {
  World& world = engine.world;
  Workload& w = world.workloads[decision.workload];
  const Queue& queue = world.queues[decision.queue];
  const bool fresh = !w.spec.reserved.is;
  const UsageHistory::Values asked = whole_units(world, w);
  if (w.counted) {
    world.take_usage(decision.workload);
    world.leave(decision.workload);
  }
  w.spec.admission = admission_of(world, decision.queue, decision.assignment);
  if (fresh) w.spec.reserved = {.is = true, .reason = "QuotaReserved", .since = world.rules.now};
  w.spec.unhealthy_nodes.clear();
  if (has_required_checks(queue.spec, w.spec) && checks_ready(w.spec) && !topologies_pending(w.spec) && !w.spec.admitted.is) w.spec.admitted = {.is = true, .reason = "Admitted", .since = world.rules.now};
  decision.admitted = w.spec.admitted.is;
  world.count_in(decision.workload);
  world.come_back(decision.workload);
  world.give_usage(decision.workload);
  if (fresh && world.rules.usage_history && world.rules.gates.usage_history && queue.spec.by_usage_history) engine.history.push_penalty(w.spec.space + "/" + w.spec.local_queue, w.spec.key(), asked);
}

void take_quota_back(Engine& engine, const Decision& decision, const WorkloadSpec& before, const std::vector<PodSetAsk>& asks) {
  World& world = engine.world;
  Workload& w = world.workloads[decision.workload];
  world.take_usage(decision.workload);
  world.leave(decision.workload);
  w.spec = before;
  w.asks = asks;
  w.held.clear();
  w.places.clear();
  ++world.queues[decision.queue].generation;
  engine.history.drop_penalty(w.spec.space + "/" + w.spec.local_queue, w.spec.key());
}

}  // namespace

bool needs_second_pass(const WorkloadSpec& w) {
  if (w.finished.is || w.evicted.is || !w.reserved.is) return false;
  return (!w.checks.empty() && checks_ready(w) && topologies_pending(w) && !w.admitted.is) || has_unhealthy_place(w);
}

void Engine::start() {
  pending = Pending(world, [this](WorkloadId a, WorkloadId b, WorkloadId sticky) {
    const Workload& first = world.workloads[a];
    const Workload& second = world.workloads[b];
    if (world.rules.usage_history && world.rules.gates.usage_history && world.queues[first.queue].spec.by_usage_history) {
      const auto use = [&](const Workload& w) {
        const std::string key = w.spec.space + "/" + w.spec.local_queue;
        const auto local = local_queues.find(key);
        return history.use(key, local == local_queues.end() ? 1 : local->second.weight);
      };
      if (const double ua = use(first), ub = use(second); ua != ub) return ua < ub ? -1 : 1;
    }
    return compare_in_queue(world, a, b, sticky);
  });
  for (WorkloadId w = 0; w < world.workloads.size(); ++w) {
    const Workload& workload = world.workloads[w];
    if (workload.queue == none) continue;
    if (needs_second_pass(workload.spec)) second_pass.push_back(w);
    const auto local = local_queues.find(workload.spec.space + "/" + workload.spec.local_queue);
    if (!workload.counted && may_wait(world, workload.spec) && local != local_queues.end() && !local->second.stopped) pending.push(w);
  }
}

void Engine::remove(WorkloadId w) {
  Workload& workload = world.workloads[w];
  workload.deleted = true;
  if (workload.queue == none) return;
  const Queue& own = world.queues[workload.queue];
  if (workload.counted) {
    world.take_usage(w);
    world.leave(w);
    workload.held.clear();
    workload.places.clear();
    ++world.queues[workload.queue].generation;
  }
  pending.forget(w);
  for (const NodeId leaf : world.ledger.leaves(world.ledger.tree(own.node))) pending.wake(world.queue_at(leaf));
}

std::vector<Decision> run_cycle(Engine& engine, const std::function<std::string(WorkloadId)>& refused) {
  World& world = engine.world;
  std::vector<Decision> decisions = Cycle(engine).run();
  for (Decision& decision : decisions) {
    Workload& w = world.workloads[decision.workload];
    if (decision.kind == Decision::Kind::Admit) {
      const WorkloadSpec before = w.spec;
      const std::vector<PodSetAsk> asks = w.asks;
      give_quota(engine, decision);
      const std::string error = refused ? refused(decision.workload) : "";
      if (error.empty()) {
        w.progress.reset();
        continue;
      }
      take_quota_back(engine, decision, before, asks);
      decision.kind = Decision::Kind::Wait;
      decision.message = error;
      decision.tell = false;
      if (error.find("not found") == std::string::npos && may_wait(world, w.spec)) engine.pending.requeue(decision.workload, Requeue::FailedAfterNomination);
      continue;
    }
    for (const Victim& victim : decision.victims) {
      if (decision.kind != Decision::Kind::Preempt) break;
      Workload& gone = world.workloads[victim.workload];
      if (gone.spec.evicted.is) continue;
      gone.spec.evicted = {.is = true, .reason = "Preempted", .since = world.rules.now};
      gone.spec.preempted = {.is = true, .reason = std::string(text(victim.reason)), .since = world.rules.now};
    }
    if (decision.kind == Decision::Kind::Evict) {
      if (refused && !refused(decision.workload).empty()) {
        decision.kind = Decision::Kind::Wait;
        decision.tell = false;
        continue;
      }
      w.spec.evicted = {.is = true, .reason = "NodeFailures", .since = world.rules.now};
      continue;
    }
    if (needs_second_pass(w.spec)) {
      engine.second_pass.push_back(decision.workload);
      decision.tell = false;
      continue;
    }
    if (decision.reason.empty()) decision.reason = "Pending";
    if (may_wait(world, w.spec)) engine.pending.requeue(decision.workload, decision.requeue);
  }
  return decisions;
}

}  // namespace fairlead::governance
