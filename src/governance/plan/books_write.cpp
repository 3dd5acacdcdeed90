// SPDX-License-Identifier: Apache-2.0
// What is written: of Workloads, and why they wait.
#include <fmt/format.h>

#include <algorithm>

#include "governance/plan/admission_checks.h"
#include "governance/plan/books_internal.h"
#include "governance/plan/flavors.h"
#include "governance/plan/kueue_read.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

std::string Books::barred_why(const QueueEntry& queue, const PodSetSpec& pods, const ResourceGroup& group, const std::string& flavor) const {
  const FlavorEntry* entry = find_in(flavors_, flavor);
  if (entry == nullptr || !entry->why.empty()) return fmt::format("flavor {} not found", flavor);
  if (std::string why = place_obstacle(queue, pods, *entry, group); !why.empty()) return why;
  if (const Taint* taint = forbidding_taint(entry->spec.node.taints, pods.needs.tolerations, entry->spec.tolerations))
    return fmt::format("untolerated taint {{{} {} {} <nil>}} in flavor {}", taint->key, taint->value, taint->effect, flavor);
  return affinity_allows(pods.needs, entry->spec.node) ? "" : fmt::format("flavor {} doesn't match node affinity", flavor);
}

std::string Books::path_of(const std::string& queue) const {
  const Ledger& ledger = engine_.ledger();
  std::string path;
  for (NodeId node = ledger.leaf(queue); node != no_node; node = ledger.parent(node)) path = "/" + ledger.name(node) + path;
  return path.empty() ? "/" + queue : path;
}

std::pair<std::string, std::string> Books::wait_of(const Item& item) const {
  const EngineWait& wait = engine_.wait(item.class_id);
  const Ledger& ledger = engine_.ledger();
  const QueueEntry* queue = queue_of(item);
  const NodeId leaf = ledger.leaf(item.what.queue);
  std::string flavor, resource = wait.resource;
  if (leaf != no_node && wait.column != no_column) flavor = ledger.name(leaf, wait.column).flavor, resource = ledger.name(leaf, wait.column).resource;
  std::size_t at = 0;
  Amount asked = 0;
  const EngineClass least = fewest(item.what);  // what the engine says is of them
  for (std::size_t p = least.pod_sets.size(); p-- > 0;)
    for (const auto& [name, amount] : least.pod_sets[p].total)
      if (name == resource) at = p, asked = plus(asked, amount);
  const std::string pods = at < item.spec.pod_sets.size() ? item.spec.pod_sets[at].name : "main";
  const std::string few = item.what.can_be_cut() && at < least.pod_sets.size() ? fmt::format(" with {} of {} pods", least.pod_sets[at].count, item.what.pod_sets[at].count) : "";
  const auto text = [&](const std::string& why) { return fmt::format("couldn't assign flavors to pod set {}{}: {}", pods, few, why); };
  switch (wait.rule) {
    case EngineWait::Rule::NoQueue: return {"Misconfigured", fmt::format("ClusterQueue {} doesn't exist", item.what.queue)};
    case EngineWait::Rule::Stopped: return {"Suspended", fmt::format("ClusterQueue {} is inactive", item.what.queue)};
    case EngineWait::Rule::NoQuota: return {"NoMatchingFlavor", text(fmt::format("resource {} unavailable in ClusterQueue", resource))};
    case EngineWait::Rule::NoFlavor: {
      std::vector<std::string> whys;
      if (queue != nullptr && at < item.spec.pod_sets.size())
        for (const ResourceGroup& group : queue->spec.groups)
          if (std::find(group.resources.begin(), group.resources.end(), resource) != group.resources.end())
            for (const QueueFlavor& one : group.flavors)
              if (std::string why = barred_why(*queue, item.spec.pod_sets[at], group, one.name); !why.empty()) whys.push_back(std::move(why));
      return {"NoMatchingFlavor", text(fmt::format("{}", fmt::join(whys, ", ")))};
    }
    case EngineWait::Rule::ExceedsMax:
      return {"ExceedsMaxQuota", text(fmt::format("insufficient quota for {} in flavor {}, previously considered podsets requests (0) + current podset request ({}) > maximum capacity ({})", resource, flavor, amount_text(resource, asked),
                                                  amount_text(resource, minus(asked, wait.missing))))};
    case EngineWait::Rule::Short:
      return {"WaitingForQuota", text(fmt::format("insufficient unused quota for {} in flavor {}, {} more needed{}", resource, flavor, amount_text(resource, wait.missing), item.kept ? "; what is given back is kept for it" : ""))};
    case EngineWait::Rule::Kept: {
      const ObjectKey* by = workload_of(wait.by);
      return {"WaitingForQuota", fmt::format("what is free is kept for {}, which has waited longer", by == nullptr ? "another workload" : "workload " + by->text())};
    }
    case EngineWait::Rule::Behind: return {"WaitingForQuota", "waits behind an earlier workload of its StrictFIFO queue"};
    case EngineWait::Rule::NoPlace: {
      std::size_t set = 0;
      while (set + 1 < least.pod_sets.size() && !least.pod_sets[set].place) ++set;
      const std::string name = set < item.spec.pod_sets.size() ? item.spec.pod_sets[set].name : "main";
      return {"TopologyPlacementFailed", fmt::format("couldn't assign flavors to pod set {}: {}{}", name, wait.detail, item.kept ? "; what is given back is kept for it" : "")};
    }
    case EngineWait::Rule::None: break;
  }
  return {"PendingEvaluation", "The workload waits for its turn"};
}

std::string Books::waits_for(const ObjectKey& workload) const {
  const Item* item = find_in(items_, workload);
  if (item == nullptr || item->place == Place::Running || item->place == Place::Stopping) return "";
  return item->place == Place::Out ? item->out_message : wait_of(*item).second;
}

std::optional<Books::Write> Books::write_of(const ObjectKey& workload, Instant now) {
  const auto at = items_.find(workload);
  if (at == items_.end() || at->second.spec.finished.is) return std::nullopt;
  Item& item = at->second;
  Write out{.object = item.object.json(), .notes = {}, .admits = false};
  const auto waits = [&](const std::string& reason, const std::string& message) {
    const Json* before = kube::find_condition(out.object, "QuotaReserved");
    const bool other = before == nullptr || (*before)["reason"].string() != reason || (*before)["status"].string() != "False";
    if (const auto others = waiting_.find(item.class_id); !other && item.place == Place::Waiting && others != waiting_.end() && others->second.size() > kept_up) return false;
    if (!tell_waiting(out.object, reason, message, now)) return false;
    out.words_only = !other;
    if (other) out.notes.push_back({true, "Pending", message});
    return true;
  };
  bool changed = false;
  switch (item.place) {
    case Place::Running:
      if (held(item.spec)) {
        if (item.moved_from.empty() || !item.seen_held) return std::nullopt;
        const std::string from = fmt::format("{}", fmt::join(item.moved_from, ", "));
        if (!tell_moved(out.object, engine_.places_of(item.job), item.moved_from)) return std::nullopt;
        out.notes.push_back({true, "NodeReplaced", fmt::format("Its pods of node {}, which is lost, have another place", from)});
        return out;
      }
      {
        const Admission admission = admission_for(item);
        const QueueEntry* queue = find_in(queues_, item.what.queue);
        changed = tell_admitted(out.object, admission, queue == nullptr ? std::set<std::string>{} : checks_of(queue->spec, flavors_of(admission_of(admission))), now);
      }
      out.admits = item.writing = true;
      {
        const auto waited = std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::seconds>(now - item.spec.created).count());
        out.notes.push_back({false, "QuotaReserved", fmt::format("Quota reserved in ClusterQueue {}, wait time since queued was {}s", item.what.queue, waited)});
        if (kube::condition_is_true(out.object, "Admitted")) out.notes.push_back({false, "Admitted", fmt::format("Admitted by ClusterQueue {}, wait time since reservation was 0s", item.what.queue)});
      }
      break;
    case Place::Stopping:
      if (!held(item.spec)) {
        if (item.seen_held || !item.writing) return std::nullopt;
        // Nobody knows what came of its admission: after this write it cannot land any more, or it has and this one is refused.
        changed = tell_waiting(out.object, "PendingEvaluation", "Its quota went to another workload before it could start. " + item.evict_message, now);
        break;
      }
      if (item.spec.evicted.is || item.evict_reason.empty()) return std::nullopt;
      changed = tell_evicted(out.object, item.evict_reason, item.evict_message, item.preempted, now);
      if (item.preempted) out.notes.push_back({false, "Preempted", item.evict_message});
      out.notes.push_back({false, "EvictedDueTo" + item.evict_reason, item.evict_message});
      break;
    case Place::Promised: changed = waits("WaitingForPreemptedWorkloads", fmt::format("Quota is promised. Pending the preemption of {} workload(s)", item.waits_for_victims)); break;
    case Place::Waiting: {
      const auto [reason, message] = wait_of(item);
      changed = waits(reason, message);
      break;
    }
    case Place::Out:
      if (item.out_message.empty()) return std::nullopt;
      changed = waits(item.out_reason, item.out_message);
      break;
  }
  if (!changed) return std::nullopt;
  return out;
}

bool Books::refused(const ObjectKey& workload, const std::string& why) {
  const auto at = items_.find(workload);
  if (at == items_.end()) return false;
  Item& item = at->second;
  item.writing = false;
  if (held(item.spec) || (item.place != Place::Running && item.place != Place::Stopping)) return false;
  leave(item);
  item.refused = why.empty() ? "unknown" : why;
  unsettled_.insert(workload);
  return true;
}

void Books::again(const ObjectKey& workload) {
  const auto at = items_.find(workload);
  if (at == items_.end() || at->second.refused.empty()) return;
  at->second.refused.clear();
  unsettled_.insert(workload);
}

Books::Changed Books::take_changed() { return std::exchange(changed_, {}); }

}  // namespace fairlead::governance
