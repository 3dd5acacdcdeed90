// SPDX-License-Identifier: Apache-2.0
// Time: quotas with a schedule (docs/design/044-quota-schedule.md), weights that follow what was used (045-usage-history.md), reservations, minimum run times, checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "governance/plan/books_internal.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

// ---- quotas with a schedule

void Books::read_schedule(Scheduled& schedule, const Json& object) {
  const Json& note = object["metadata"]["annotations"][kQuotaScheduleNote];
  schedule.windows.clear(), schedule.wrong.clear();
  if (note.is_null()) return;
  auto read = read_quota_schedule(note.string());
  for (std::size_t i = 0; read && i < read->size(); ++i)
    if (auto groups = in_window(schedule.own, (*read)[i]); !groups) read = std::unexpected(std::move(groups.error()));
  if (read) schedule.windows = std::move(*read);
  else schedule.wrong = fmt::format("metadata.annotations[{}]: {}", kQuotaScheduleNote, read.error().message);
}

// The window of now; true: it is another than before.
bool Books::follow(Scheduled& schedule, std::vector<ResourceGroup>& groups) const {
  const QuotaWindow* const window = window_at(schedule.windows, told_now_);
  schedule.until = next_change(schedule.windows, told_now_);
  const bool changed = schedule.window != (window == nullptr ? "" : window->name);
  schedule.window = window == nullptr ? "" : window->name;
  groups = schedule.own;
  if (window == nullptr) return changed;
  if (auto in = in_window(schedule.own, *window)) groups = std::move(*in);
  return changed;
}

void Books::scheduled(const Scheduled& schedule) {
  if (schedule.until && (!changes_at_ || *schedule.until < *changes_at_)) changes_at_ = schedule.until;
}

void Books::set_time(Instant now) {
  const bool back = now < told_now_;
  told_now_ = now;
  if (!changes_at_ || (now < *changes_at_ && !back)) return;
  changes_at_.reset();
  for (auto& [name, queue] : queues_) {
    if (queue.schedule.windows.empty()) continue;
    if (follow(queue.schedule, queue.spec.groups)) stale_ = true;
    scheduled(queue.schedule);
    changed_.queues.insert({"", name});
  }
  for (auto& [name, cohort] : cohorts_) {
    if (cohort.schedule.windows.empty()) continue;
    if (follow(cohort.schedule, cohort.spec.groups)) stale_ = true;
    scheduled(cohort.schedule);
    changed_.cohorts.insert({"", name});
  }
}

std::optional<Instant> Books::queue_changes_at(const std::string& name) const {
  const QueueEntry* queue = find_in(queues_, name);
  return queue == nullptr ? std::nullopt : queue->schedule.until;
}

std::optional<Instant> Books::cohort_changes_at(const std::string& name) const {
  const CohortEntry* cohort = find_in(cohorts_, name);
  return cohort == nullptr ? std::nullopt : cohort->schedule.until;
}

std::string Books::cohort_window(const std::string& name) const {
  const CohortEntry* cohort = find_in(cohorts_, name);
  return cohort == nullptr ? "" : cohort->schedule.window;
}

std::vector<std::pair<Instant, EngineSpec>> Books::quotas_ahead(Instant until, std::size_t most) const {
  std::vector<std::pair<Instant, EngineSpec>> out;
  if (!changes_at_) return out;
  Books ahead(options_);  // no workloads: quotas do not depend on them
  ahead.queues_ = queues_, ahead.cohorts_ = cohorts_, ahead.flavors_ = flavors_, ahead.checks_ = checks_, ahead.topologies_ = topologies_, ahead.times_ = times_, ahead.weights_ = weights_;
  ahead.told_now_ = told_now_, ahead.changes_at_ = changes_at_;
  while (out.size() < most && ahead.changes_at_ && *ahead.changes_at_ <= until) {
    const Instant at = *ahead.changes_at_;
    ahead.set_time(at);
    out.emplace_back(at, ahead.quotas());
  }
  return out;
}

// ---- what was used lately

// What its local queue holds of it, more or less by so much since then.
void Books::follow_past(const Item& item, int sign, Instant since) {
  if (item.amounts.empty() || item.local.name.empty()) return;
  PastAmounts more;
  for (const auto& [what, amount] : item.amounts) more[what.resource] += sign * static_cast<double>(amount);
  past_.use(item.local, more, since, told_now_);
}

bool Books::weigh(Instant now, bool anyway) {
  if (!times_.past) {
    if (!anyway || weights_.empty()) return false;
    weights_.clear();
    for (const auto& [key, local] : local_queues_) changed_.local_queues.insert(key);
    return stale_ = true;
  }
  if (!anyway && now >= weighed_at_ && now - weighed_at_ < times_.past->every()) return false;
  weighed_at_ = now;
  lines_are_stale_ = true;
  std::map<std::string, PastAmounts> used;
  for (const auto& [key, local] : local_queues_) {
    changed_.local_queues.insert(key);
    if (!local.readable) continue;
    for (const auto& [resource, amount] : past_.at(key, now)) used[local.spec.queue][resource] += amount;
  }
  const auto nominal_of = [](const std::vector<ResourceGroup>& groups) {
    std::map<std::string, double> out;
    for (const ResourceGroup& group : groups)
      for (const QueueFlavor& flavor : group.flavors)
        for (const auto& [resource, limits] : flavor.resources) out[resource] += static_cast<double>(limits.nominal);
    return out;
  };
  std::vector<PastNode> nodes;
  for (const auto& [name, cohort] : cohorts_) nodes.push_back({.name = name, .parent = cohort.spec.parent, .leaf = false, .weight = cohort.spec.weight, .used = {}, .nominal = nominal_of(cohort.spec.groups)});
  for (const auto& [name, queue] : queues_) nodes.push_back({.name = name, .parent = queue.spec.cohort, .leaf = true, .weight = queue.spec.weight, .used = used[name], .nominal = nominal_of(queue.spec.groups)});
  const std::vector<PastWeight> next = weights_by_past(nodes, times_.past->strength);
  // Less than a twentieth is not worth that everything is looked at anew.
  bool moved = weights_.size() != nodes.size();
  for (std::size_t n = 0; n < nodes.size() && !moved; ++n) {
    const PastWeight* told = find_in(weights_, std::pair(nodes[n].name, nodes[n].leaf));
    moved = told == nullptr || std::abs(told->factor - next[n].factor) > 0.05 * std::max(told->factor, next[n].factor);
  }
  std::map<std::pair<std::string, bool>, PastWeight> all;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    PastWeight& into = all[{nodes[n].name, nodes[n].leaf}] = next[n];
    if (!moved) into.factor = weights_.at({nodes[n].name, nodes[n].leaf}).factor;
  }
  weights_ = std::move(all);
  stale_ = stale_ || moved;
  return moved;
}

std::string Books::line_of(const ObjectKey& local, const QueueEntry* queue) const { return !times_.past || queue == nullptr || !queue->spec.by_usage_history ? std::string() : local.text(); }

// Of queues whose local queues go by what they used: what each will have used by the next time if what runs goes on, so that nothing counts for nothing, and what one more job would add to that. As a part of what the queue could have at
// most, so that resources can be compared.
void Books::tell_lines() {
  lines_are_stale_ = false;
  if (!times_.past) return;
  const Ledger& ledger = engine_.in_use();
  for (const auto& [key, local] : local_queues_) {
    const QueueEntry* queue = local.readable ? find_in(queues_, local.spec.queue) : nullptr;
    const std::string name = line_of(key, queue);
    const NodeId leaf = name.empty() ? no_node : ledger.leaf(local.spec.queue);
    if (leaf == no_node) continue;
    std::map<std::string, double> most;
    for (const ResourceGroup& group : queue->spec.groups)
      for (const QueueFlavor& flavor : group.flavors)
        for (const auto& [resource, limits] : flavor.resources)
          if (const Column column = ledger.column(leaf, flavor.name, resource); column != no_column) most[resource] += static_cast<double>(ledger.potential(leaf, column));
    const PastAmounts used = past_.at(key, told_now_ + times_.past->every());
    const double weight = local.spec.weight > 0 ? local.spec.weight : 1;
    ContinuousEngine::LineUse use{.last = local.spec.weight <= 0, .used = {}, .per_unit = {}};
    for (const auto& [resource, all] : most) {
      if (all <= 0) continue;
      use.per_unit[resource] = times_.past->part_of_next() / (all * weight);
      if (const auto at = used.find(resource); at != used.end() && at->second > 0) use.used[resource] = at->second / (all * weight);
    }
    if (const auto told = lines_.find(name); told != lines_.end() && told->second == use) continue;
    engine_.set_line(name, use);
    if (recorder_) recorder_->set_line(name, use);
    lines_[name] = std::move(use);
  }
}

std::optional<PastWeight> Books::past_weight(const std::string& name, bool leaf) const {
  const PastWeight* found = find_in(weights_, std::pair(name, leaf));
  return found == nullptr ? std::nullopt : std::optional(*found);
}

// ---- reservations, minimum run times, checkpoints

// Since when it has waited without a break.
static Instant waits_since(const WorkloadSpec& spec) {
  Instant out = spec.created;
  if (spec.evicted.since > out) out = spec.evicted.since;
  if (spec.requeued.since > out) out = spec.requeued.since;
  return out;
}

void Books::set_time_rules(const TimeRules& rules) {
  if (times_.min_run.has_value() != rules.min_run.has_value() || times_.past.has_value() != rules.past.has_value()) stale_ = true;
  const bool other_past = times_.past != rules.past;
  const bool was = std::exchange(times_, rules).least_lost_work;
  past_.set_half_life(times_.past ? times_.past->half_life : std::chrono::seconds(0), told_now_);
  if (other_past) (void)weigh(told_now_, true);  // the rules are told once a second
  if (!was || times_.least_lost_work) return;
  for (auto& [key, item] : items_)
    if (item.place == Place::Running && std::exchange(item.saved, std::nullopt)) tell_saved(item, ContinuousEngine::never_saved);
}

void Books::tell_saved(const Item& item, std::int64_t at) {
  engine_.saved(item.job, at);
  if (recorder_) recorder_->saved(item.job, at);
}

// Of all, whether or not they say anything of checkpoints: they are compared.
void Books::follow_saved(Instant now) {
  if (!times_.least_lost_work) return;
  for (auto& [key, item] : items_) {
    if (item.place != Place::Running || !item.spec.admitted.is) continue;
    const Instant saved = last_saved(item.spec.admitted.since, item.spec.checkpoint_every, item.spec.checkpointed_at, now);
    if (item.saved == saved) continue;
    item.saved = saved;
    tell_saved(item, saved.time_since_epoch().count());
  }
}

// Who has run for so long may be pre-empted from now on.
bool Books::expose_due(Instant now) {
  bool changed = false;
  std::erase_if(fresh_, [&](const ObjectKey& key) {
    const auto at = items_.find(key);
    if (at == items_.end() || at->second.place != Place::Running || !engine_.shielded(at->second.job)) return true;
    if (at->second.seen_held && !at->second.spec.admitted.is) {  // it waits for its checks: it runs nothing, and its time begins when it does
      engine_.expose(at->second.job);
      if (recorder_) recorder_->expose(at->second.job);
      at->second.waits_for_checks = true;
      return changed = true;
    }
    if (!at->second.spec.admitted.is || !times_.min_run || now - at->second.spec.admitted.since < *times_.min_run) return false;
    engine_.expose(at->second.job);
    if (recorder_) recorder_->expose(at->second.job);
    return changed = true;
  });
  return changed;
}

bool Books::keep_for(const Item& item) {
  if (!engine_.keep_for(item.job)) return false;
  if (recorder_) recorder_->keep(item.job);
  return true;
}

void Books::keep_again() {
  std::erase_if(kept_for_, [this](const ObjectKey& key) {
    const auto at = items_.find(key);
    if (at == items_.end()) return true;
    Item& item = at->second;
    if (item.kept && item.place == Place::Waiting && keep_for(item)) return false;
    item.kept = false;
    return true;
  });
}

bool Books::tend(Instant now) {
  set_time(now);
  follow_saved(now);
  bool changed = weigh(now);
  changed = expose_due(now) || changed;
  changed = replace_lost(now) || changed;
  std::erase_if(kept_for_, [&](const ObjectKey& key) {
    const auto at = items_.find(key);
    if (at == items_.end() || !at->second.kept) return true;
    Item& item = at->second;
    if (item.place == Place::Waiting && times_.reservation && now - item.kept_since < times_.reservation->hold) return false;
    item.kept = false;
    if (item.place != Place::Waiting) return true;
    item.not_kept_before = now + (times_.reservation ? times_.reservation->after : std::chrono::seconds(0));
    engine_.keep_no_more(item.job);
    if (recorder_) recorder_->keep_no_more(item.job);
    touch(key);
    return changed = true;
  });
  return keep_due(now, false) || changed;
}

bool Books::keep_due(Instant now, bool unseen) {
  if (!times_.reservation || kept_for_.size() >= most_kept_for) return false;
  bool changed = false;
  std::vector<std::pair<Instant, JobId>> due;
  for (const JobId job : engine_.firsts(unseen)) {
    const Item* item = item_of(job);
    if (item == nullptr || item->kept || item->place != Place::Waiting || now < item->not_kept_before) continue;
    if (const Instant since = waits_since(item->spec); now - since >= times_.reservation->after) due.emplace_back(since, job);
  }
  std::sort(due.begin(), due.end());
  for (const auto& [since, job] : due) {
    if (kept_for_.size() >= most_kept_for) break;
    Item& item = *item_of(job);
    if (!keep_for(item)) continue;
    item.kept = changed = true;
    item.kept_since = now;
    kept_for_.push_back(by_job_[job]);
    touch(by_job_[job]);
  }
  return changed;
}

}  // namespace fairlead::governance
