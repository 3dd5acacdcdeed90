// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "governance/plan/admission_checks.h"
#include "governance/plan/explain_remedies.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pods_ready.h"
#include "governance/plan/slurm_workload.h"
#include "governance/plan/views.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using Place = Books::Place;

namespace {

std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return text;
}

bool below(const Ledger& ledger, NodeId node, NodeId top) {
  for (; node != no_node; node = ledger.parent(node))
    if (node == top) return true;
  return false;
}

// Members below whose idle quota nobody else sees.
void kept_below(const Ledger& ledger, NodeId node, NodeId own, Column column, std::vector<Missing::Kept>& out) {
  for (const NodeId child : ledger.children(node)) {
    if (child == own) continue;
    if (const Amount idle = ledger.local_available(child, column); idle > 0) out.push_back({ledger.is_leaf(child) ? "ClusterQueue" : "Cohort", ledger.name(child), idle});
    if (!ledger.is_leaf(child)) kept_below(ledger, child, own, column, out);
  }
}

void fill_limit(const Ledger& ledger, NodeId node, NodeId leaf, Missing& out) {
  const Column column = ledger.column(leaf, out.flavor, out.resource);
  const Limits limits = ledger.limits(node, column);
  out.limit_kind = ledger.is_leaf(node) ? "ClusterQueue" : "Cohort", out.limit_of = ledger.name(node);
  if (ledger.has_parent(node)) out.limit_field = "borrowingLimit", out.limit = limits.borrow;
  else if (ledger.is_leaf(node)) out.limit_field = "nominalQuota", out.limit = limits.nominal;
  else out.limit_field = "quota", out.limit = ledger.subtree(node, column);
  if (!ledger.is_leaf(node)) kept_below(ledger, node, leaf, column, out.kept);
  std::sort(out.kept.begin(), out.kept.end(), [](const auto& a, const auto& b) { return std::tuple(-a.amount, a.name) < std::tuple(-b.amount, b.name); });
}

// The lowest node of the path whose limit makes `potential` what it is.
NodeId bound_of(const Ledger& ledger, NodeId leaf, Column column) {
  for (NodeId node = leaf;; node = ledger.parent(node)) {
    if (!ledger.has_parent(node)) return node;
    const Limits limits = ledger.limits(node, column);
    if (limits.borrow != unlimited && plus(ledger.subtree(node, column), limits.borrow) <= plus(ledger.local(node, column), ledger.potential(ledger.parent(node), column))) return node;
  }
}

std::vector<Missing> missing_of(const Books& books, const Books::Standing& standing) {
  std::vector<Missing> out;
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(standing.what->queue);
  const auto queue = books.queue_view(standing.what->queue);
  if (leaf == no_node || !queue) return out;
  const EngineWait& wait = books.engine().wait(standing.class_id);
  const EngineClass asks = fewest(*standing.what);
  for (const ResourceGroup& group : queue->spec->groups)
    for (const QueueFlavor& flavor : group.flavors)
      for (const std::string& resource : group.resources) {
        const Column column = ledger.column(leaf, flavor.name, resource);
        if (column == no_column || !ledger.defined(leaf, column)) continue;
        Missing one{.flavor = flavor.name, .resource = resource};
        for (const EnginePodSet& pods : asks.pod_sets)
          if (std::find(pods.barred.begin(), pods.barred.end(), flavor.name) == pods.barred.end())
            for (const auto& [name, amount] : pods.total)
              if (name == resource) one.asked = plus(one.asked, amount);
        const Amount most = ledger.potential(leaf, column);
        const auto tight = ledger.tight(leaf, column);
        one.never = one.asked > most;
        one.available = one.never ? most : std::max<Amount>(0, tight.available);
        one.missing = minus(one.asked, one.available);
        if (one.asked <= 0 || one.missing <= 0) continue;
        fill_limit(ledger, one.never ? bound_of(ledger, leaf, column) : tight.node, leaf, one);
        const bool first = column == wait.column && (wait.rule == EngineWait::Rule::Short || wait.rule == EngineWait::Rule::ExceedsMax);
        if (first) one.missing = wait.missing;  // where other parts of it take of the same flavor, more than this one asks
        out.insert(first ? out.begin() : out.end(), std::move(one));
      }
  return out;
}

// Of the flavors whose places it may have: the first thing that it asks of them.
std::vector<Column> columns_with_places(const Books& books, const EngineClass& what) {
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(what.queue);
  const auto queue = books.queue_view(what.queue);
  std::vector<Column> out;
  if (!queue) return out;
  for (const EnginePodSet& pods : what.pod_sets)
    for (const ResourceGroup& group : queue->spec->groups)
      for (const QueueFlavor& flavor : group.flavors) {
        if (!pods.place || std::find(pods.barred.begin(), pods.barred.end(), flavor.name) != pods.barred.end()) continue;
        for (const auto& [resource, amount] : pods.total) {
          const Column column = ledger.column(leaf, flavor.name, resource);
          if (amount <= 0 || column == no_column || !ledger.defined(leaf, column)) continue;
          if (std::find(out.begin(), out.end(), column) == out.end()) out.push_back(column);
          break;
        }
      }
  return out;
}

// Of what a queue runs, in the order in which it keeps it, what is beyond its own quota.
std::map<ObjectKey, Amount> borrowed_in(const Books& books, const std::string& queue, Column column, const std::vector<std::pair<ObjectKey, Books::Standing>>& running) {
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(queue);
  std::map<ObjectKey, Amount> out;
  if (leaf == no_node || !ledger.has_parent(leaf)) return out;
  std::vector<const std::pair<ObjectKey, Books::Standing>*> keeps;
  for (const auto& one : running)
    if (one.second.queue == queue && one.second.place != Place::Stopping) keeps.push_back(&one);
  std::sort(keeps.begin(), keeps.end(), [](const auto* a, const auto* b) {
    const auto rank = [](const auto* one) { return std::tuple(-one->second.spec->priority, !one->second.spec->reserved.is, one->second.spec->reserved.since, one->second.spec->uid); };
    return rank(a) < rank(b);
  });
  Amount before = 0;
  const Amount own = ledger.limits(leaf, column).nominal;
  for (const auto* one : keeps)
    for (const Use& use : uses_of(books.engine(), *one->second.what, one->second.job))
      if (use.column == column) {
        const Amount after = plus(before, use.amount);
        out[one->first] = std::max<Amount>(0, minus(after, std::max(before, own)));
        before = after;
      }
  return out;
}

using Standings = std::vector<std::pair<ObjectKey, Books::Standing>>;

Standings holding(const Books& books) {
  Standings out;
  for (const ObjectKey& key : books.workloads())
    if (auto standing = books.standing(key); standing && !standing->spec->finished.is && standing->place != Place::Out && standing->place != Place::Waiting) out.emplace_back(key, std::move(*standing));
  return out;
}

std::vector<Holder> holders_of(const Books& books, const Standings& held, NodeId top, Column column) {
  const Ledger& ledger = books.engine().ledger();
  std::vector<Holder> out;
  std::map<std::string, std::map<ObjectKey, Amount>> borrowed;
  for (const auto& [key, standing] : held) {
    const NodeId leaf = ledger.leaf(standing.queue);
    if (leaf == no_node || !below(ledger, leaf, top)) continue;
    for (const Use& use : uses_of(books.engine(), *standing.what, standing.job)) {
      if (use.column != column || use.amount <= 0) continue;
      if (!borrowed.contains(standing.queue)) borrowed[standing.queue] = borrowed_in(books, standing.queue, column, held);
      const auto own = borrowed[standing.queue].find(key);
      out.push_back({.workload = key, .owner = owner_of(standing.object), .queue = standing.queue, .priority = standing.spec->priority, .amount = use.amount, .borrowed = own == borrowed[standing.queue].end() ? 0 : own->second,
                     .stopping = standing.place == Place::Stopping});
    }
  }
  std::sort(out.begin(), out.end(), [](const Holder& a, const Holder& b) { return std::tuple(-a.amount, a.workload) < std::tuple(-b.amount, b.workload); });
  return out;
}

// Where the fault is, of what stands in no line.
std::optional<FieldChange> wrong_of(const Books& books, const ObjectKey& key, const Books::Standing& standing) {
  const WorkloadSpec& spec = *standing.spec;
  if (!spec.active) return FieldChange{"Workload", key, "spec.active", Json(false), Json(true), ""};
  if (spec.admission_gate) return FieldChange{"Workload", key, "metadata.annotations[kueue.x-k8s.io/admission-gated-by]", Json(), Json(), ""};
  if (!spec.requeued.is && (spec.requeued.reason == kPodsReadyTimeout || spec.requeued.reason == kAdmissionCheck)) return std::nullopt;  // time alone mends it
  if (std::ranges::any_of(spec.checks, [](const CheckState& check) { return check.state == "Retry" || check.state == "Rejected"; })) return FieldChange{"Workload", key, "status.admissionChecks", Json(), Json(), standing.message};
  const Json* local = books.local_queue({spec.space, spec.local_queue});
  if (local == nullptr) return FieldChange{"Workload", key, "spec.queueName", Json(spec.local_queue), Json(), ""};
  const ObjectKey local_key{spec.space, spec.local_queue};
  const std::string& name = (*local)["spec"]["clusterQueue"].string();
  const auto stop = [](const std::string& kind, const ObjectKey& at, const Json& object) { return FieldChange{kind, at, "spec.stopPolicy", object["spec"]["stopPolicy"], Json("None"), ""}; };
  const auto stopped = [](const Json& object) { return object["spec"]["stopPolicy"].string().starts_with("Hold"); };
  if (stopped(*local)) return stop("LocalQueue", local_key, *local);
  const auto queue = books.queue_view(name);
  if (!queue) return FieldChange{"LocalQueue", local_key, "spec.clusterQueue", Json(name), Json(), ""};
  if (stopped(*queue->object)) return stop("ClusterQueue", {"", name}, *queue->object);
  if (!queue->active) {  // its message names the field, or what it refers to
    const std::string field = queue->reason == "FlavorNotFound" ? "spec.resourceGroups" : queue->reason == "AdmissionCheckInactive" || queue->reason == "AdmissionCheckNotFound" ? "spec.admissionChecksStrategy" : "spec";
    return FieldChange{"ClusterQueue", {"", name}, field, Json(), Json(), queue->message};
  }
  if (standing.message.find("namespace") != std::string::npos) return FieldChange{"ClusterQueue", {"", name}, "spec.namespaceSelector", (*queue->object)["spec"]["namespaceSelector"], Json(), ""};
  if (!standing.message.empty()) return FieldChange{"Workload", key, "spec.podSets", Json(), Json(), standing.message};
  return std::nullopt;
}

// Who could take what a running one has: newcomers are tried on forks of the engine.
std::vector<Taker> takers_of(const Books& books, const Books::Standing& standing) {
  std::vector<Taker> out;
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(standing.queue);
  if (leaf == no_node) return out;
  const std::vector<Use> uses = uses_of(books.engine(), *standing.what, standing.job);
  int tries = 64;
  const auto loses_to = [&](const std::string& queue, const QueueSpec& spec, const std::vector<Use>& asks, std::int64_t priority) {
    if (--tries < 0) return false;
    ContinuousEngine fork(books.engine());
    fork.expose(standing.job);
    EngineClass what{.queue = queue, .priority = priority, .pod_sets = {}};
    for (const Use& ask : asks) {  // each on its own flavor alone
      const FlavorResource& name = ledger.name(leaf, ask.column);
      EnginePodSet& pods = what.pod_sets.emplace_back();
      pods.total.emplace_back(name.resource, ask.amount);
      for (const ResourceGroup& group : spec.groups)
        for (const QueueFlavor& flavor : group.flavors)
          if (flavor.name != name.flavor) pods.barred.push_back(flavor.name);
    }
    const JobId newcomer = fork.submit(fork.define(what), Uid{~0ULL, ~0ULL}, standing.spec->created.time_since_epoch().count() + 1);
    std::vector<EngineDecision> decisions;
    fork.drain(decisions);
    return std::any_of(decisions.begin(), decisions.end(), [&](const EngineDecision& one) { return one.kind == EngineDecision::Kind::Preempted && one.job == standing.job && one.by == newcomer; });
  };
  for (const NodeId other : ledger.leaves(ledger.tree(leaf))) {
    const auto queue = books.queue_view(ledger.name(other));
    if (!queue || !queue->active) continue;
    const PreemptionPolicy policy = other == leaf ? queue->spec->policies.within_queue : queue->spec->policies.reclaim;
    if (policy == PreemptionPolicy::Never) continue;
    std::vector<Use> own;  // what is its own and not used by it
    for (const Use& use : uses)
      if (const Amount rest = std::min(use.amount, std::max<Amount>(0, minus(ledger.limits(other, use.column).nominal, ledger.usage(other, use.column)))); rest > 0) own.push_back({use.column, rest});
    const std::int64_t same = standing.spec->priority, above = same == std::numeric_limits<std::int64_t>::max() ? same : same + 1;
    bool found = false;
    for (const bool of_own : {true, false}) {
      const std::vector<Use>& asks = of_own ? own : uses;
      if (found || asks.empty() || (of_own && other == leaf)) continue;
      for (const std::int64_t priority : {same, above})
        if (!found && (found = loses_to(ledger.name(other), *queue->spec, asks, priority))) out.push_back({.queue = ledger.name(other), .above = priority == same ? std::nullopt : std::optional(same), .own_quota = of_own});
    }
  }
  return out;
}

// "has 3 of 8 pods", "takes 2 to 8 pods"
std::string pods_text(const Books::Standing& standing) {
  std::vector<std::string> out;
  const bool has = standing.place != Place::Waiting && standing.place != Place::Out;
  for (std::size_t p = 0; p < standing.spec->pod_sets.size(); ++p) {
    const PodSetSpec& pods = standing.spec->pod_sets[p];
    if (!pods.min_count || *pods.min_count <= 0 || *pods.min_count >= pods.count) continue;
    const auto held = standing.spec->admission && p < standing.spec->admission->pod_sets.size() ? standing.spec->admission->pod_sets[p].count : std::nullopt;
    const std::int32_t count = held ? *held : standing.place != Place::Out && p < standing.what->pod_sets.size() ? standing.what->pod_sets[p].count : 0;
    out.push_back(has && count > 0 ? fmt::format("has {} of {} pods", count, pods.count) : fmt::format("takes {} to {} pods", *pods.min_count, pods.count));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

static std::optional<Explanation> explained(const Books& books, const ObjectKey& workload) {
  const auto standing = books.standing(workload);
  if (!standing) return std::nullopt;
  Explanation out{.workload = workload, .owner = owner_of(standing->object), .queue = standing->queue, .priority = standing->spec->priority, .place = standing->place, .finished = standing->spec->finished.is};
  if (out.finished) return out;
  out.reason = standing->reason, out.message = standing->message;
  out.waits_for = waits_text(books, *standing);
  out.pods = pods_text(*standing);
  out.safe = standing->shielded, out.safe_until = standing->safe_until;
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(standing->queue);
  const Standings held = holding(books);
  constexpr std::size_t most = 20;
  const auto cut = [&] {
    if (out.holders.size() <= most) return;
    out.more_holders = out.holders.size() - most;
    out.holders.resize(most);
  };
  if (standing->place == Place::Waiting || standing->place == Place::Promised) {
    const auto line = books.engine().in_line(standing->queue);
    const auto at = std::find(line.begin(), line.end(), standing->job);
    out.position = at == line.end() ? 0 : static_cast<int>(at - line.begin()) + 1;
    out.strict = standing->place == Place::Waiting && books.engine().wait(standing->class_id).rule == EngineWait::Rule::Behind;
    if (out.strict)
      for (auto before = line.begin(); before != at && out.ahead.size() < most; ++before)
        if (const ObjectKey* key = books.workload_of(*before)) out.ahead.push_back(*key);
    if (const EngineWait& wait = books.engine().wait(standing->class_id); standing->place == Place::Waiting && wait.rule == EngineWait::Rule::Kept)
      if (const ObjectKey* key = books.workload_of(wait.by)) out.ahead.push_back(*key);
  }
  switch (standing->place) {
    case Place::Out: {
      out.wrong = wrong_of(books, workload, *standing);
      if (out.wrong && !out.wrong->to.is_null()) {
        Remedy remedy{.waits_until = {}, .window = {}, .ending = {}, .changes = {*out.wrong}, .stops = {}};
        if (helps(books, workload, remedy)) out.remedies.push_back(std::move(remedy));
      }
      return out;
    }
    case Place::Promised:
      for (const Use& use : uses_of(books.engine(), *standing->what, standing->job))
        for (Holder& holder : holders_of(books, held, ledger.root(leaf), use.column))
          if (holder.stopping && std::none_of(out.holders.begin(), out.holders.end(), [&](const Holder& one) { return one.workload == holder.workload; })) out.holders.push_back(std::move(holder));
      cut();
      return out;
    case Place::Waiting: break;
    case Place::Running:
    case Place::Stopping:
      for (const Use& use : uses_of(books.engine(), *standing->what, standing->job)) {
        const FlavorResource& name = ledger.name(leaf, use.column);
        const auto borrowed = borrowed_in(books, standing->queue, use.column, held);
        const auto own = borrowed.find(workload);
        out.has.push_back({.workload = workload, .owner = fmt::format("{} in {}", name.resource, name.flavor), .queue = standing->queue, .priority = out.priority, .amount = use.amount, .borrowed = own == borrowed.end() ? 0 : own->second,
                           .stopping = standing->place == Place::Stopping});
      }
      if (standing->place == Place::Running) out.takers = takers_of(books, *standing);
      return out;
  }
  out.missing = missing_of(books, *standing);
  const EngineWait& wait = books.engine().wait(standing->class_id);
  if (leaf != no_node && wait.column != no_column && wait.rule == EngineWait::Rule::Short) out.holders = holders_of(books, held, wait.node, wait.column);
  std::vector<ObjectKey> placed;  // who has places in its flavors
  if (leaf != no_node && wait.rule == EngineWait::Rule::NoPlace) {
    for (const Column column : columns_with_places(books, *standing->what))
      for (Holder& holder : holders_of(books, held, ledger.root(leaf), column)) {
        if (holder.stopping || holder.workload == workload || std::find(placed.begin(), placed.end(), holder.workload) != placed.end()) continue;
        placed.push_back(holder.workload);
        out.held = ledger.name(leaf, column).resource;
        out.holders.push_back(std::move(holder));
      }
  }
  // Whose end may help: who uses anything of what it misses, anywhere in the tree; in a strict queue, who stands before it.
  std::vector<ObjectKey> candidates = out.ahead;
  candidates.insert(candidates.end(), placed.begin(), placed.end());
  if (wait.rule == EngineWait::Rule::Short) {
    std::map<ObjectKey, std::pair<bool, Amount>> sizes;  // of the limit's node, amount
    for (const Missing& one : out.missing)
      for (const Holder& holder : holders_of(books, held, ledger.root(leaf), ledger.column(leaf, one.flavor, one.resource)))
        if (!holder.stopping && holder.workload != workload) sizes.try_emplace(holder.workload, std::any_of(out.holders.begin(), out.holders.end(), [&](const Holder& it) { return it.workload == holder.workload; }), holder.amount);
    for (const auto& [key, size] : sizes) candidates.push_back(key);
    std::stable_sort(candidates.begin(), candidates.end(), [&](const ObjectKey& a, const ObjectKey& b) { return sizes[a] > sizes[b]; });
  }
  out.remedies = find_remedies(books, workload, candidates);
  cut();
  return out;
}

std::optional<Explanation> explain(const Books& books, const ObjectKey& workload) {
  auto out = explained(books, workload);
  if (!out) return out;
  const auto name = [&](const std::vector<ObjectKey>& keys) {
    for (const ObjectKey& key : keys)
      if (const auto standing = books.standing(key))
        if (std::string owner = owner_of(standing->object); !owner.empty()) out->owners[key] = std::move(owner);
  };
  name(out->ahead);
  for (const Remedy& remedy : out->remedies) name(remedy.ending), name(remedy.stops);
  return out;
}

Result<ObjectKey> find_workload(const Books& books, const std::string& space, const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size()) return fail(Code::Invalid, fmt::format("usage: \"{}\" is none of job/NAME, workload/NAME and slurm/CLUSTER/JOB", text));
  const std::string name = text.substr(slash + 1);
  std::string kind = lower(text.substr(0, slash));
  kind = kind.substr(0, kind.find('.'));
  const auto singular = [](std::string word) { return word.ends_with("s") ? word.substr(0, word.size() - 1) : word; };
  const bool direct = singular(kind) == "workload" || kind == "kwl";
  std::vector<std::string> there;
  std::optional<ObjectKey> found;
  // A job of Slurm: its Workload lies beside its queue, its cluster may be elsewhere.
  if (kind == "slurm") {
    for (const ObjectKey& key : books.workloads()) {
      const Json object = books.standing(key)->object;
      const auto cluster = cluster_of_workload(object);
      if (!cluster || (cluster->space != space && key.space != space)) continue;
      const std::string job = fmt::format("{}/{}", cluster->name, job_of_workload(object));
      if (job == name) return key;
      if (there.size() < 10) there.push_back("slurm/" + job);
    }
    return fail(Code::NotFound, fmt::format("there is no workload of {} in namespace {}; there are {} (-n names the namespace of the cluster or of the queue)", text, space, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
  }
  for (const ObjectKey& key : books.workloads()) {
    if (key.space != space) continue;
    const auto standing = books.standing(key);
    if (direct ? key.name == name : owner_of(standing->object) == singular(kind) + "/" + name) {
      // Of several of one Job (it was changed while it ran) the one that is not at its end.
      if (!found || !standing->spec->finished.is) found = key;
    }
    if (there.size() < 10 && !standing->spec->finished.is) there.push_back(direct || owner_of(standing->object).empty() ? "workload/" + key.name : owner_of(standing->object));
  }
  if (found) return *found;
  if (there.empty()) return fail(Code::NotFound, fmt::format("there is no workload of {} in namespace {}, nor any other: has the job the label kueue.x-k8s.io/queue-name? (-n names another namespace)", text, space));
  return fail(Code::NotFound, fmt::format("there is no workload of {} in namespace {}; there are {}", text, space, fmt::join(there, ", ")));
}

}  // namespace fairlead::governance
