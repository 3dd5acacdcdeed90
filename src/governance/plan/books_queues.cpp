// SPDX-License-Identifier: Apache-2.0
// Queues: what is wrong with them, what is counted of them, their statuses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "governance/plan/books_internal.h"
#include "governance/plan/flavors.h"
#include "governance/plan/kueue_read.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

std::string Books::cycle_of(const std::string& cohort) const {
  std::vector<std::string> path;
  for (std::string at = cohort; !at.empty();) {
    if (const auto seen = std::find(path.begin(), path.end(), at); seen != path.end()) return fmt::format("{} -> {}", fmt::join(seen, path.end(), " -> "), at);
    path.push_back(at);
    const CohortEntry* entry = find_in(cohorts_, at);
    at = entry == nullptr ? "" : entry->spec.parent;
  }
  return "";
}

// What a CRD's rules forbid where they are evaluated; told on either engine.
static std::string forbidden(const std::vector<ResourceGroup>& groups, const std::string& cohort, bool of_cohort) {
  std::set<std::string> flavors, resources;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ResourceGroup& group = groups[g];
    for (const std::string& resource : group.resources)
      if (!resources.insert(resource).second) return fmt::format("spec.resourceGroups[{}].coveredResources: {} is covered twice", g, resource);
    for (std::size_t f = 0; f < group.flavors.size(); ++f) {
      const std::string at = fmt::format("spec.resourceGroups[{}].flavors[{}]", g, f);
      if (!flavors.insert(group.flavors[f].name).second) return fmt::format("{}.name: {} is named twice", at, group.flavors[f].name);
      if (group.flavors[f].resources.size() != group.resources.size()) return fmt::format("{}.resources: {} are named, coveredResources has {}", at, group.flavors[f].resources.size(), group.resources.size());
      for (std::size_t r = 0; r < group.flavors[f].resources.size(); ++r) {
        const auto& [name, limits] = group.flavors[f].resources[r];
        const std::string here = fmt::format("{}.resources[{}]", at, r);
        if (std::find(group.resources.begin(), group.resources.end(), name) == group.resources.end()) return fmt::format("{}.name: {} is not among coveredResources", here, name);
        if (limits.nominal == unlimited) return here + ".nominalQuota: more than can be counted";
        const char* const without = of_cohort ? "a parent" : "a cohort";
        if (cohort.empty() && limits.borrow != unlimited) return fmt::format("{}.borrowingLimit: without {} there is nobody to borrow from", here, without);
        if (cohort.empty() && limits.lend != unlimited) return fmt::format("{}.lendingLimit: without {} there is nobody to lend to", here, without);
        if (limits.lend != unlimited && limits.lend > limits.nominal) return here + ".lendingLimit: more than nominalQuota";
      }
    }
  }
  return "";
}

// Of its own quotas and of those in each of its windows, whichever is in force.
std::string Books::forbidden_in(const Scheduled& schedule, const std::string& cohort, bool of_cohort) {
  if (std::string wrong = forbidden(schedule.own, cohort, of_cohort); !wrong.empty()) return wrong;
  if (!schedule.wrong.empty()) return schedule.wrong;
  for (const QuotaWindow& window : schedule.windows) {
    const auto groups = in_window(schedule.own, window);
    if (!groups) continue;
    if (std::string wrong = forbidden(*groups, cohort, of_cohort); !wrong.empty()) return fmt::format("metadata.annotations[{}]: in window \"{}\": {}", kQuotaScheduleNote, window.name, wrong);
  }
  return "";
}

std::string Books::forbidden_in(const QueueEntry& queue) {
  const QueuePolicies& policies = queue.spec.policies;
  if (policies.preempt_rather_than_borrow && !(policies.next_if_borrowing && policies.next_if_preempting))
    return "spec.flavorFungibility.preference: PreemptionOverBorrowing needs TryNextFlavor as whenCanBorrow and as whenCanPreempt";
  return forbidden_in(queue.schedule, queue.spec.cohort, false);
}

double Books::cohort_weight(const std::string& name) const {
  const CohortEntry* cohort = find_in(cohorts_, name);
  return cohort == nullptr ? 1 : cohort->spec.weight;
}

void Books::judge(QueueEntry& queue) const {
  std::vector<std::string> messages;
  const auto wrong = [&](const char* reason, std::string message) {
    if (queue.active) queue.reason = reason;
    queue.active = false;
    messages.push_back(std::move(message));
  };
  queue.active = true;
  if (kube::deleting(queue.object)) {
    queue.active = false, queue.reason = "Terminating", queue.message = "Can't admit new workloads; clusterQueue is terminating";
    return;
  }
  if (!queue.readable) wrong("Misconfigured", queue.why);
  else if (const std::string forbids = forbidden_in(queue); !forbids.empty()) wrong("Misconfigured", forbids);
  if (queue.spec.stopped) wrong("Stopped", "is stopped");
  std::vector<std::string> missing;
  for (const ResourceGroup& group : queue.spec.groups)
    for (const QueueFlavor& named : group.flavors) {
      const FlavorEntry* flavor = find_in(flavors_, named.name);
      if (flavor == nullptr) missing.push_back(named.name);
      else if (!flavor->why.empty()) wrong("Misconfigured", fmt::format("ResourceFlavor {}: {}", named.name, flavor->why));
      else if (!flavor->spec.topology.empty() && !topologies_.contains(flavor->spec.topology)) wrong("TopologyNotFound", fmt::format("there is no Topology \"{}\" for TAS flavor \"{}\"", flavor->spec.topology, named.name));
    }
  if (!missing.empty()) wrong("FlavorNotFound", fmt::format("references missing ResourceFlavor(s): {}", fmt::join(missing, ",")));
  std::set<std::string> checks(queue.spec.checks.begin(), queue.spec.checks.end());
  for (const auto& [name, on] : queue.spec.checks_on) checks.insert(name);
  std::vector<std::string> absent, inactive;
  for (const std::string& name : checks) {
    const bool* active = find_in(checks_, name);
    if (active == nullptr) absent.push_back(name);
    else if (!*active) inactive.push_back(name);
  }
  if (!absent.empty()) wrong("AdmissionCheckNotFound", fmt::format("references missing AdmissionCheck(s): {}", fmt::join(absent, ",")));
  if (!inactive.empty()) wrong("AdmissionCheckInactive", fmt::format("references inactive AdmissionCheck(s): {}", fmt::join(inactive, ",")));
  if (const std::string cycle = cycle_of(queue.spec.cohort); !cycle.empty()) wrong("Misconfigured", fmt::format("spec.cohortName: its cohorts are a cycle: {}", cycle));
  for (std::string at = queue.spec.cohort; !at.empty() && cycle_of(at).empty();) {
    const CohortEntry* cohort = find_in(cohorts_, at);
    if (cohort == nullptr) break;
    if (!cohort->why.empty()) wrong("Misconfigured", fmt::format("Cohort {}: {}", at, cohort->why));
    at = cohort->spec.parent;
  }
  if (queue.active) {
    queue.reason = "Ready", queue.message = "Can admit new workloads";
    if (!queue.schedule.window.empty()) queue.message += fmt::format("; quotas of window \"{}\"{}", queue.schedule.window, queue.schedule.until ? " until " + print_time(*queue.schedule.until) : "");
    if (queue.spec.by_usage_history && !times_.past) queue.message += "; spec.admissionScope has no effect without fairShareHistory in the SchedulerConfig: jobs of its local queues go by priority and age, whatever each has used";
  } else queue.message = fmt::format("Can't admit new workloads: {}.", fmt::join(messages, ", "));
}

void Books::count(const ObjectKey& key, Item& item) {
  const bool holds = held(item.spec) && !item.spec.finished.is && !item.spec.uid.empty();
  const LocalEntry* lq = find_in(local_queues_, ObjectKey{item.spec.space, item.spec.local_queue});
  const bool pending = !holds && !item.deleting && item.place != Place::Out;
  const std::string queue = holds ? item.spec.admission->queue : lq == nullptr ? "" : lq->spec.queue;
  const ObjectKey local = item.spec.local_queue.empty() ? ObjectKey{} : ObjectKey{key.space, item.spec.local_queue};
  Sums amounts;
  if (holds)
    for (const HeldPodSet& pods : item.spec.admission->pod_sets)
      for (const auto& [resource, flavor] : pods.flavors) {
        Amount& sum = amounts[{flavor, resource}];
        sum = plus(sum, used(item.spec, pods, resource));
      }
  const bool admitted = holds && item.spec.admitted.is;
  if (item.queue == queue && item.local == local && item.pending == pending && item.reserving == holds && item.admitted == admitted && item.amounts == amounts) return;
  const auto apply = [&](int sign) {
    const auto one = [&](Tally& tally) {
      tally.pending += sign * item.pending, tally.reserving += sign * item.reserving, tally.admitted += sign * item.admitted;
      for (const auto& [what, amount] : item.amounts) {
        for (Sums* sums : {&tally.reservation, item.admitted ? &tally.usage : nullptr}) {
          if (sums == nullptr) continue;
          Amount& sum = (*sums)[what];
          sum = sign > 0 ? plus(sum, amount) : minus(sum, amount);
          if (sum == 0) sums->erase(what);
        }
      }
    };
    if (!item.queue.empty()) {
      one(queue_tallies_[item.queue]);
      changed_.queues.insert({"", item.queue});
    }
    if (!item.local.name.empty()) {
      one(local_tallies_[item.local]);
      changed_.local_queues.insert(item.local);
    }
  };
  // What was not counted yet counts from its reservation on; what is counted and changes, from now on.
  const Instant since = item.amounts.empty() && item.spec.reserved.is ? item.spec.reserved.since : told_now_;
  follow_past(item, -1, told_now_);
  apply(-1);
  item.queue = queue, item.local = local, item.pending = pending, item.reserving = holds, item.admitted = admitted, item.amounts = std::move(amounts);
  apply(+1);
  follow_past(item, +1, since);
  // Shares of others in the tree move with it.
  if (!options_.fair) return;
  const Ledger& ledger = engine_.in_use();
  const NodeId leaf = ledger.leaf(queue);
  if (leaf == no_node) return;
  for (NodeId node = ledger.parent(leaf); node != no_node; node = ledger.parent(node)) changed_.cohorts.insert({"", ledger.name(node)});
}

static Json usage_list(const QueueSpec& spec, const std::map<FlavorResource, Amount>& sums, bool borrowed) {
  Json out = Json::array();
  for (const ResourceGroup& group : spec.groups)
    for (const QueueFlavor& flavor : group.flavors) {
      Json resources = Json::array();
      for (const auto& [resource, limits] : flavor.resources) {
        const auto at = sums.find({flavor.name, resource});
        const Amount total = at == sums.end() ? 0 : at->second;
        Json one = Json::object({{"name", resource}, {"total", amount_text(resource, total)}});
        if (borrowed) one.set("borrowed", amount_text(resource, std::max<Amount>(0, minus(total, limits.nominal))));
        resources.push(std::move(one));
      }
      out.push(Json::object({{"name", flavor.name}, {"resources", std::move(resources)}}));
    }
  return out;
}

std::optional<Json> Books::queue_status(const std::string& name, Instant now) const {
  const QueueEntry* queue = find_in(queues_, name);
  if (queue == nullptr || queue->reason.empty()) return std::nullopt;
  const Tally* found = find_in(queue_tallies_, name);
  const Tally tally = found == nullptr ? Tally{} : *found;
  Json object = queue->object;
  kube::set_condition(object, {.type = "Active", .status = queue->active ? "True" : "False", .reason = queue->reason, .message = queue->message}, now);
  Json& status = object.child("status");
  status.set("flavorsReservation", usage_list(queue->spec, tally.reservation, true)).set("flavorsUsage", usage_list(queue->spec, tally.usage, true));
  status.set("pendingWorkloads", tally.pending).set("reservingWorkloads", tally.reserving).set("admittedWorkloads", tally.admitted);
  if (const NodeId leaf = engine_.in_use().leaf(name); options_.fair && leaf != no_node) status.set("fairSharing", Json::object({{"weightedShare", engine_.in_use().share(leaf).rounded()}}));
  else status.erase("fairSharing");
  return object["status"] == queue->object["status"] ? std::nullopt : std::optional(std::move(object));
}

std::optional<Json> Books::queue_in_use(const std::string& name) const {
  const QueueEntry* queue = find_in(queues_, name);
  if (queue == nullptr) return std::nullopt;
  const Tally* tally = find_in(queue_tallies_, name);
  const bool used = tally != nullptr && tally->reserving > 0, has = kube::has_finalizer(queue->object, kInUse), going = kube::deleting(queue->object);
  Json object = queue->object;
  if (used && !has && !going) kube::add_finalizer(object, kInUse);
  else if (!used && has && going) kube::remove_finalizer(object, kInUse);
  else return std::nullopt;
  return object;
}

std::optional<Json> Books::local_queue_status(const ObjectKey& key, Instant now) const {
  const LocalEntry* local = find_in(local_queues_, key);
  if (local == nullptr) return std::nullopt;
  const QueueEntry* queue = local->readable ? find_in(queues_, local->spec.queue) : nullptr;
  const Tally* found = find_in(local_tallies_, key);
  const Tally tally = found == nullptr ? Tally{} : *found;
  kube::Condition active{.type = "Active", .status = "False", .reason = "", .message = "Can't submit new workloads to clusterQueue"};
  if (!local->readable) active.reason = "Misconfigured", active.message = local->why;
  else if (local->spec.stopped) active.reason = "Stopped", active.message = "LocalQueue is stopped";
  else if (queue == nullptr) active.reason = "ClusterQueueDoesNotExist";
  else if (!queue->active) active.reason = "ClusterQueueIsInactive";
  else active.status = "True", active.reason = "Ready", active.message = "Can submit new workloads to localQueue";
  Json object = local->object;
  kube::set_condition(object, active, now);
  Json& status = object.child("status");
  status.set("pendingWorkloads", tally.pending).set("reservingWorkloads", tally.reserving).set("admittedWorkloads", tally.admitted);
  if (queue != nullptr) status.set("flavorsReservation", usage_list(queue->spec, tally.reservation, false)).set("flavorsUsage", usage_list(queue->spec, tally.usage, false));
  if (times_.past) {
    Json past = past_.status(key, weighed_at_);
    // Where nothing is used and nothing was there is no news in another time.
    if (!past["consumedResources"].members().empty() || !status["fairSharing"]["admissionFairSharingStatus"]["consumedResources"].members().empty()) status.set("fairSharing", Json::object({{"weightedShare", 0}, {"admissionFairSharingStatus", std::move(past)}}));
  } else if (status["fairSharing"].has("admissionFairSharingStatus")) status.erase("fairSharing");
  return object["status"] == local->object["status"] ? std::nullopt : std::optional(std::move(object));
}

std::optional<Json> Books::cohort_status(const std::string& name) const {
  const CohortEntry* cohort = find_in(cohorts_, name);
  const NodeId node = engine_.in_use().cohort(name);
  if (cohort == nullptr || node == no_node) return std::nullopt;
  Json object = cohort->object;
  if (options_.fair && !object["status"].is_object()) object.set("status", Json::object());
  if (options_.fair) object.child("status").set("fairSharing", Json::object({{"weightedShare", engine_.in_use().share(node).rounded()}}));
  else if (object["status"].has("fairSharing")) object.child("status").erase("fairSharing");
  return object["status"] == cohort->object["status"] ? std::nullopt : std::optional(std::move(object));
}

}  // namespace fairlead::governance
