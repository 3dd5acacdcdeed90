// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/books.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/encoding.h"
#include "governance/plan/admission_checks.h"
#include "governance/plan/books_internal.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/pods_ready.h"
#include "governance/plan/run_limit.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

// Versions of both engines are numbers that grow; what is none is taken as new.
bool older(const std::string& a, const std::string& b) {
  std::uint64_t x = 0, y = 0;
  const auto read = [](const std::string& text, std::uint64_t& into) { return std::from_chars(text.data(), text.data() + text.size(), into).ec == std::errc{}; };
  return read(a, x) && read(b, y) && x < y;
}

// In the order of its text; of what is no UUID some number that is always the same.
Uid uid_from(const std::string& text) {
  std::string digits;
  for (const char c : text)
    if (c != '-') digits += c;
  Uid uid;
  const auto read = [&](std::size_t from, std::uint64_t& into) {
    const auto [end, error] = std::from_chars(digits.data() + from, digits.data() + from + 16, into, 16);
    return error == std::errc{} && end == digits.data() + from + 16;
  };
  if (digits.size() == 32 && read(0, uid.high) && read(16, uid.low)) return uid;
  const std::string hash = sha256(text);
  for (std::size_t i = 0; i < 8; ++i) uid.high = uid.high << 8 | static_cast<unsigned char>(hash[i]), uid.low = uid.low << 8 | static_cast<unsigned char>(hash[i + 8]);
  return uid;
}

const Json& note_of(const Json& object) { return object["metadata"]["annotations"][kQuotaScheduleNote]; }

// Out of line for a while: another controller says when it is back.
bool is_out_of_line(const std::string& reason) { return reason == kPodsReadyTimeout || reason == kAdmissionCheck; }

// Since when it stands in line: whose pods were not ready in time, or who is to be tried again by a check, goes behind those that were there then.
std::int64_t in_line_since(const WorkloadSpec& spec) { return (spec.evicted.is && is_out_of_line(spec.evicted.reason) ? spec.evicted.since : spec.created).time_since_epoch().count(); }

}  // namespace

Books::Books(BooksOptions options) : options_(options), engine_(EngineSpec{.fair = options.fair}) {}

// ---- what there is

void Books::set_fair(bool fair) {
  if (options_.fair == fair) return;
  options_.fair = fair;
  stale_ = true;
}

void Books::set_queue(const std::string& name, const Json& object) {
  changed_.queues.insert({"", name});
  if (object.is_null()) {
    stale_ = queues_.erase(name) > 0 || stale_;
    return;
  }
  QueueEntry& entry = queues_[name];
  // A status of our own changes nothing that is decided on.
  const bool news = entry.object.is_null() || !(entry.object["spec"] == object["spec"]) || kube::deleting(entry.object) != kube::deleting(object) || !(note_of(entry.object) == note_of(object));
  entry.object = object;
  if (!news) return;
  stale_ = true;
  auto read = read_queue(object);
  entry.readable = read.has_value();
  entry.why = read ? "" : read.error().message;
  if (read) entry.spec = std::move(*read), entry.schedule.own = entry.spec.groups;  // else as it was when it could be read, without admitting anything
  else if (entry.spec.name.empty()) entry.spec.name = name;
  read_schedule(entry.schedule, object);
  (void)follow(entry.schedule, entry.spec.groups);
  scheduled(entry.schedule);
  entry.drains = object["spec"]["stopPolicy"].string() == "HoldAndDrain";
}

void Books::set_cohort(const std::string& name, const Json& object) {
  changed_.cohorts.insert({"", name});
  if (object.is_null()) {
    stale_ = cohorts_.erase(name) > 0 || stale_;
    return;
  }
  CohortEntry& entry = cohorts_[name];
  const bool news = entry.object.is_null() || !(entry.object["spec"] == object["spec"]) || !(note_of(entry.object) == note_of(object));
  entry.object = object;
  if (!news) return;
  stale_ = true;
  auto read = read_cohort(object);
  entry.why = read ? "" : read.error().message;
  if (read) entry.spec = std::move(*read), entry.schedule.own = entry.spec.groups;
  else if (entry.spec.name.empty()) entry.spec.name = name;
  read_schedule(entry.schedule, object);
  if (entry.why.empty()) entry.why = forbidden_in(entry.schedule, entry.spec.parent, true);
  (void)follow(entry.schedule, entry.spec.groups);
  scheduled(entry.schedule);
}

void Books::set_flavor(const std::string& name, const Json& object) {
  if (object.is_null()) {
    stale_ = flavors_.erase(name) > 0 || stale_;
    return;
  }
  FlavorEntry& entry = flavors_[name];
  const bool news = entry.object.is_null() || !(entry.object["spec"] == object["spec"]);
  entry.object = object;
  if (!news) return;
  stale_ = true;
  auto read = read_flavor(object);
  entry.why = read ? "" : read.error().message;
  if (read) entry.spec = std::move(*read);
}

void Books::set_check(const std::string& name, const Json& object) {
  const auto at = checks_.find(name);
  if (object.is_null()) {
    if (at == checks_.end()) return;
    checks_.erase(at);
  } else {
    const bool active = kube::condition_is_true(object, "Active") && !kube::deleting(object);
    if (at != checks_.end() && at->second == active) return;
    checks_[name] = active;
  }
  // Others' checks change nothing here.
  const auto names = [&](const QueueSpec& spec) { return std::ranges::find(spec.checks, name) != spec.checks.end() || std::ranges::any_of(spec.checks_on, [&](const auto& rule) { return rule.first == name; }); };
  if (std::ranges::any_of(queues_, [&](const auto& queue) { return names(queue.second.spec); })) stale_ = true;
}

void Books::set_space(const std::string& name, const Json& object) {
  const Json labels = object["metadata"]["labels"];
  if (object.is_null()) spaces_.erase(name);
  else if (Json& before = spaces_[name]; before == labels) return;
  else before = labels;
  for (auto at = items_.lower_bound({name, ""}); at != items_.end() && at->first.space == name; ++at) unsettled_.insert(at->first);
}

void Books::set_local_queue(const ObjectKey& key, const Json& object) {
  changed_.local_queues.insert(key);
  if (object.is_null()) {
    past_.forget(key);
    if (local_queues_.erase(key) == 0) return;
  } else {
    LocalEntry& entry = local_queues_[key];
    const bool news = entry.object.is_null() || !(entry.object["spec"] == object["spec"]);
    entry.object = object;
    past_.restore(key, object["status"], told_now_);
    if (!news) return;
    auto read = read_local_queue(object);
    entry.readable = read.has_value();
    entry.why = read ? "" : read.error().message;
    if (read) entry.spec = std::move(*read);
    entry.drains = object["spec"]["stopPolicy"].string() == "HoldAndDrain";
  }
  lines_are_stale_ = true;
  for (auto at = items_.lower_bound({key.space, ""}); at != items_.end() && at->first.space == key.space; ++at)
    if (at->second.spec.local_queue == key.name) unsettled_.insert(at->first);
}

void Books::set_workload(const ObjectKey& key, const Json& object) {
  auto at = items_.find(key);
  if (at != items_.end() && (object.is_null() || at->second.spec.uid != kube::uid_of(object))) {
    leave(at->second);
    at->second.spec = {};
    at->second.deleting = true;
    count(key, at->second);
    items_.erase(at);
    unsettled_.erase(key);
    at = items_.end();
  }
  if (object.is_null()) return;
  if (at != items_.end() && (older(kube::version_of(object), at->second.version) || kube::version_of(object) == at->second.version)) return;
  Item& item = items_[key];
  if (item.version != kube::version_of(object)) item.writing = false;  // a write on the earlier version has landed in this one, or never will
  item.object = kube::AtRest::of(object);
  item.version = kube::version_of(object);
  item.deleting = kube::deleting(object);
  auto read = read_workload(object);
  item.invalid = read ? "" : read.error().message;
  if (read) item.spec = std::move(*read);
  else if (item.spec.name.empty()) item.spec.space = key.space, item.spec.name = key.name, item.spec.uid = kube::uid_of(object), item.spec.local_queue = object["spec"]["queueName"].string();
  unsettled_.insert(key);
}

// ---- the record

void Books::record(Instant now) {
  if (!recorder_) recorder_.emplace();
  recorder_->set_time(now);
}

void Books::stop_recording() { recorder_.reset(); }

std::string Books::take_record() { return recorder_ ? recorder_->take() : std::string(); }

void Books::fill_anew() {
  if (stale_) configure();
  if (recorder_) recorder_->begin_anew();
  const ContinuousEngine before = std::move(engine_);
  engine_ = ContinuousEngine(EngineSpec{.fair = options_.fair});
  const EngineSpec spec = quotas();
  engine_.configure(spec);
  if (recorder_) recorder_->config(spec);
  tell_places_again();
  lines_.clear();
  tell_lines();
  waiting_.clear();
  const std::vector<ObjectKey> keys = std::exchange(by_job_, {});
  const auto place = [&](const ObjectKey& key, Item& item, JobId job, Place as) {
    item.job = job, item.place = as, item.class_id = engine_.class_of(job);
    if (by_job_.size() <= job) by_job_.resize(job + 1);
    by_job_[job] = key;
    if (as == Place::Waiting) waiting_[item.class_id].insert(key);
  };
  for (const JobId old : before.holders()) {
    const ObjectKey& key = keys[old];
    Item& item = items_.at(key);
    const auto as = item.place == Place::Stopping ? ContinuousEngine::Adopted::Stopping : ContinuousEngine::Adopted::Running;
    const ClassId what = define(item.what);
    const auto flavors = before.flavors_of(old);
    const auto created = item.spec.created.time_since_epoch().count();
    const PlacesOf places = before.places_of(old);
    const JobId job = engine_.adopt(what, before.uid(old), created, flavors, as, places);
    if (recorder_) recorder_->adopt(job, what, before.uid(old), created, key, flavors, as, places);
    place(key, item, job, item.place);
    if (item.saved && item.place == Place::Running) tell_saved(item, item.saved->time_since_epoch().count());
    if (engine_.shielded(job) && !before.shielded(old)) {
      engine_.expose(job);
      if (recorder_) recorder_->expose(job);
    }
  }
  for (auto& [key, item] : items_) {
    if (item.place != Place::Waiting && item.place != Place::Promised) continue;
    if (item.place == Place::Promised) touch(key);  // another may be promised it now
    item.what = item.asks;
    const ClassId what = define(item.what);
    const Uid uid = before.uid(item.job);
    const auto since = in_line_since(item.spec);
    const JobId job = engine_.submit(what, uid, since);
    if (recorder_) recorder_->submit(job, what, uid, since, key);
    place(key, item, job, Place::Waiting);
  }
  keep_again();
}

// ---- what it means for the engine

EngineSpec Books::quotas() {
  EngineSpec spec{.fair = options_.fair, .shields = times_.min_run.has_value(), .places = place_specs()};
  places_in_effect_ = !spec.places.empty();
  const auto weight = [this](const std::string& name, bool leaf, double written) {
    const PastWeight* past = find_in(weights_, std::pair(name, leaf));
    return past == nullptr || written <= 0 ? written : std::max(0.001, std::round(written * past->factor * 1'000) / 1'000);
  };
  for (const auto& [name, cohort] : cohorts_) {
    spec.nodes.push_back({.name = name, .parent = cohort.spec.parent, .leaf = false, .weight = weight(name, false, cohort.spec.weight), .quotas = quotas_of(cohort.spec.groups)});
    changed_.cohorts.insert({"", name});
  }
  for (auto& [name, queue] : queues_) {
    judge(queue);
    // A queue that admits nothing lends nothing, as in Kueue; what it runs stays its own.
    spec.nodes.push_back({.name = name, .parent = queue.active ? queue.spec.cohort : "", .leaf = true, .weight = weight(name, true, queue.spec.weight), .quotas = quotas_of(queue.spec.groups)});
    EngineQueue into{.name = name, .strict_fifo = queue.spec.strict_fifo, .policies = queue.spec.policies, .stopped = !queue.active, .groups = {}};
    for (const ResourceGroup& group : queue.spec.groups) {
      EngineQueue::Group& covers = into.groups.emplace_back();
      covers.resources = group.resources;
      for (const QueueFlavor& flavor : group.flavors) covers.flavors.push_back(flavor.name);
    }
    spec.queues.push_back(std::move(into));
    changed_.queues.insert({"", name});
  }
  for (const auto& [key, queue] : local_queues_) changed_.local_queues.insert(key);
  return spec;
}

void Books::configure() {
  stale_ = false;
  const EngineSpec spec = quotas();
  engine_.configure(spec);
  if (recorder_) recorder_->config(spec);
  lines_are_stale_ = true;  // what a queue could have is another amount
  keep_again();
  for (const auto& [key, item] : items_) unsettled_.insert(key);
}

ClassId Books::define(const EngineClass& what) {
  const ClassId id = engine_.define(what);
  if (recorder_) recorder_->define(id, what);
  return id;
}

const Books::QueueEntry* Books::queue_of(const Item& item) const {
  const LocalEntry* local = find_in(local_queues_, ObjectKey{item.spec.space, item.spec.local_queue});
  return local == nullptr || !local->readable ? nullptr : find_in(queues_, local->spec.queue);
}

EngineClass Books::class_of(const Item& item, const QueueEntry& queue) const {
  EngineClass out{.queue = queue.spec.name, .priority = item.spec.priority, .line = line_of({item.spec.space, item.spec.local_queue}, &queue), .pod_sets = {}};
  const auto covers_pods = std::any_of(queue.spec.groups.begin(), queue.spec.groups.end(), [](const ResourceGroup& group) { return std::find(group.resources.begin(), group.resources.end(), "pods") != group.resources.end(); });
  for (const PodSetSpec& pods : item.spec.pod_sets) {
    const std::int32_t count = left_of(item.spec, pods.name, pods.count);
    EnginePodSet& into = out.pod_sets.emplace_back();
    NamedAmounts asks = pods.per_pod;
    if (covers_pods) asks["pods"] = 1;
    for (const auto& [resource, amount] : asks) into.total.emplace_back(resource, times(amount, count));
    into.place = place_ask(pods, count, queue);
    if (pods.min_count && *pods.min_count > 0 && *pods.min_count < count) {
      into.count = count, into.least = *pods.min_count;
      for (const auto& [resource, amount] : asks) into.each.push_back(amount);
    }
    for (const ResourceGroup& group : queue.spec.groups)
      for (const QueueFlavor& flavor : group.flavors)
        if (!barred_why(queue, pods, group, flavor.name).empty()) into.barred.push_back(flavor.name);
  }
  return out;
}

EngineClass Books::class_of_held(const Item& item) const {
  const std::string& queue = item.spec.admission->queue;
  EngineClass out{.queue = queue, .priority = item.spec.priority, .line = line_of({item.spec.space, item.spec.local_queue}, find_in(queues_, queue)), .pod_sets = {}};
  for (const HeldPodSet& pods : item.spec.admission->pod_sets) {
    EnginePodSet& into = out.pod_sets.emplace_back();
    for (const auto& [resource, amount] : pods.usage) into.total.emplace_back(resource, used(item.spec, pods, resource));
    if (!pods.topology) continue;
    const auto asked = std::ranges::find_if(item.spec.pod_sets, [&](const PodSetSpec& one) { return one.name == pods.name; });
    PlaceAsk& place = into.place.emplace();
    place.count = static_cast<std::int32_t>(std::min<std::int64_t>(pods_in(*pods.topology), 0x7fffffff));
    if (asked == item.spec.pod_sets.end()) {
      for (const auto& [resource, amount] : pods.usage) place.per_pod[resource] = place.count > 0 ? amount / place.count : 0;
      continue;
    }
    place.ask = asked->topology, place.implied = !asked->topology.explicit_ask(), place.per_pod = asked->raw, place.needs = asked->needs;
  }
  return out;
}

std::vector<std::vector<std::string>> Books::flavors_held(const Item& item) const {
  std::vector<std::vector<std::string>> out;
  for (const HeldPodSet& pods : item.spec.admission->pod_sets) {
    std::vector<std::string>& into = out.emplace_back();
    for (const auto& [resource, amount] : pods.usage) {
      const std::string* flavor = find_in(pods.flavors, resource);
      into.push_back(flavor == nullptr ? "" : *flavor);
    }
  }
  return out;
}

Admission Books::admission_for(const Item& item) const {
  Admission out{.queue = item.what.queue, .pod_sets = {}};
  const auto flavors = engine_.flavors_of(item.job);
  const PlacesOf places = engine_.places_of(item.job);
  for (std::size_t p = 0; p < item.what.pod_sets.size() && p < item.spec.pod_sets.size(); ++p) {
    const std::int32_t count = item.what.pod_sets[p].count > 0 ? item.what.pod_sets[p].count : left_of(item.spec, item.spec.pod_sets[p].name, item.spec.pod_sets[p].count);
    HeldPodSet held{.name = item.spec.pod_sets[p].name, .flavors = {}, .usage = {}, .count = count, .topology = p < places.size() ? places[p] : std::nullopt};
    const auto& total = item.what.pod_sets[p].total;
    for (std::size_t r = 0; r < total.size() && p < flavors.size() && r < flavors[p].size(); ++r) {
      if (flavors[p][r].empty()) continue;  // nothing is asked of what the queue does not have
      held.flavors[total[r].first] = flavors[p][r];
      held.usage[total[r].first] = total[r].second;
    }
    out.pod_sets.push_back(std::move(held));
  }
  return out;
}

std::pair<std::string, std::string> Books::obstacle_of(const Item& item) const {
  const WorkloadSpec& spec = item.spec;
  if (item.deleting) return {"Deleting", ""};
  if (!item.invalid.empty()) return {"Misconfigured", item.invalid};
  if (!spec.active) return {"Suspended", "The workload is deactivated"};
  if (spec.admission_gate) return {"Suspended", "The workload is held by its annotation kueue.x-k8s.io/admission-gated-by"};
  if (!spec.requeued.is && spec.requeued.reason == kPodsReadyTimeout)
    return {"PendingEvaluation", "Its pods were not all ready in time" + (spec.requeue_at ? ": it stands in line again at " + print_time(*spec.requeue_at) : std::string())};
  if (!spec.requeued.is && spec.requeued.reason == kAdmissionCheck)
    return {"PendingEvaluation", "An admission check is to be tried again" + (spec.requeue_at ? ": it stands in line again at " + print_time(*spec.requeue_at) : std::string())};
  if (std::ranges::any_of(spec.checks, [](const CheckState& check) { return check.state == "Retry" || check.state == "Rejected"; })) return {"PendingEvaluation", "The workload has failed admission checks: " + unready_checks(item.object.json())};
  if (!item.refused.empty()) return {"PendingEvaluation", "The API did not take the admission: " + item.refused};
  const LocalEntry* local = find_in(local_queues_, ObjectKey{spec.space, spec.local_queue});
  if (local == nullptr) return {"Misconfigured", fmt::format("LocalQueue {} doesn't exist", spec.local_queue)};
  if (!local->readable) return {"Misconfigured", fmt::format("LocalQueue {}: {}", spec.local_queue, local->why)};
  if (local->spec.stopped) return {"Suspended", fmt::format("LocalQueue {} is stopped", spec.local_queue)};
  const QueueEntry* queue = find_in(queues_, local->spec.queue);
  if (queue == nullptr) return {"Misconfigured", fmt::format("ClusterQueue {} doesn't exist", local->spec.queue)};
  if (!queue->active) return {"Suspended", queue->spec.stopped ? fmt::format("ClusterQueue {} is stopped", local->spec.queue) : fmt::format("ClusterQueue {} is inactive", local->spec.queue)};
  const Json* labels = find_in(spaces_, spec.space);
  if (!queue->spec.namespaces || labels == nullptr || !queue->spec.namespaces->matches(*labels)) return {"Misconfigured", "Workload namespace doesn't match ClusterQueue selector"};
  for (const PodSetSpec& pods : spec.pod_sets) {
    if (!pods.invalid.empty()) return {"Misconfigured", "resources validation failed: " + pods.invalid};
  }
  return {};
}

// Why what runs has to stop, beside other workloads.
std::pair<std::string, std::string> Books::drain_of(const Item& item) const {
  if (!item.spec.active) return {"Deactivated", deactivation_text(item.object.json())};
  const LocalEntry* local = find_in(local_queues_, ObjectKey{item.spec.space, item.spec.local_queue});
  if (local != nullptr && local->drains) return {"LocalQueueStopped", "The LocalQueue is stopped"};
  const QueueEntry* queue = find_in(queues_, item.spec.admission->queue);
  if (queue != nullptr && queue->drains) return {"ClusterQueueStopped", "The ClusterQueue is stopped"};
  return {};
}

Books::Item* Books::item_of(JobId job) {
  if (job >= by_job_.size()) return nullptr;
  const auto at = items_.find(by_job_[job]);
  return at == items_.end() || at->second.place == Place::Out || at->second.job != job ? nullptr : &at->second;
}

void Books::enter(const ObjectKey& key, Item& item, JobId job, Place place) {
  item.job = job, item.place = place;
  item.class_id = engine_.class_of(job);
  item.seen_held = item.writing = item.kept = false;
  item.out_reason.clear(), item.out_message.clear(), item.evict_reason.clear(), item.evict_message.clear();
  item.preempted.reset();
  item.moved_from.clear();
  item.saved.reset();
  item.waits_for_checks = false;
  item.preempted_by = {};
  if (by_job_.size() <= job) by_job_.resize(job + 1);
  by_job_[job] = key;
  if (place == Place::Waiting) waiting_[item.class_id].insert(key);
  if (place == Place::Running && engine_.shielded(job)) fresh_.insert(key);
}

void Books::leave(Item& item) {
  if (item.place == Place::Out) return;
  if (const auto at = waiting_.find(item.class_id); at != waiting_.end()) {
    at->second.erase(by_job_[item.job]);
    if (at->second.empty()) waiting_.erase(at);
  }
  engine_.leave(item.job);
  if (recorder_) recorder_->leave(item.job);
  item.place = Place::Out;
  item.seen_held = item.writing = false;
}

void Books::settle(const ObjectKey& key, Item& item) {
  const WorkloadSpec& spec = item.spec;
  const auto created = spec.created.time_since_epoch().count();
  if (spec.finished.is) {
    leave(item);
    item.out_reason = "Finished", item.out_message.clear();
    return count(key, item);
  }
  if (held(spec)) {
    if (item.place != Place::Running && item.place != Place::Stopping) {
      leave(item);
      item.what = class_of_held(item);
      const auto as = spec.evicted.is ? ContinuousEngine::Adopted::Stopping : ContinuousEngine::Adopted::Running;
      const ClassId what = define(item.what);
      const auto flavors = flavors_held(item);
      const PlacesOf places = places_held(item);
      const JobId job = engine_.adopt(what, uid_from(spec.uid), created, flavors, as, places);
      if (recorder_) recorder_->adopt(job, what, uid_from(spec.uid), created, key, flavors, as, places);
      look_for_lost_nodes(item);
      enter(key, item, job, spec.evicted.is ? Place::Stopping : Place::Running);
    } else if (item.what.queue != spec.admission->queue) {  // somebody else moved it
      leave(item);
      return settle(key, item);
    } else {
      EngineClass next = item.what;
      next.priority = spec.priority;
      next.line = line_of({spec.space, spec.local_queue}, find_in(queues_, next.queue));
      for (std::size_t p = 0; p < next.pod_sets.size() && p < spec.admission->pod_sets.size(); ++p)
        for (auto& [resource, amount] : next.pod_sets[p].total)
          if (spec.admission->pod_sets[p].usage.contains(resource)) amount = used(spec, spec.admission->pod_sets[p], resource);
      if (!(next == item.what)) {
        item.what = std::move(next);
        item.class_id = define(item.what);
        engine_.recount(item.job, item.class_id);
        if (recorder_) recorder_->recount(item.job, item.class_id);
      }
    }
    item.seen_held = true;
    if (item.waits_for_checks && spec.admitted.is) {
      item.waits_for_checks = false;
      if (times_.min_run && item.place == Place::Running) {
        engine_.shield(item.job);
        if (recorder_) recorder_->shield(item.job);
        if (engine_.shielded(item.job)) fresh_.insert(key);
      }
    }
    if (!item.moved_from.empty() && places_held(item) == engine_.places_of(item.job)) item.moved_from.clear();
    if (item.place == Place::Running) {
      std::tie(item.evict_reason, item.evict_message) = drain_of(item);
      if (spec.evicted.is || item.deleting || !item.evict_reason.empty()) {
        engine_.stop(item.job);
        if (recorder_) recorder_->stop(item.job);
        item.place = Place::Stopping;
      }
    }
    if (item.place == Place::Stopping && !spec.evicted.is) touch(key);
    return count(key, item);
  }
  // It has no quota, as far as the API says.
  if (item.place == Place::Stopping && !item.seen_held && item.writing) return count(key, item);  // what came of its admission will be told
  if (item.place == Place::Stopping || (item.place == Place::Running && item.seen_held)) leave(item);  // it has stopped, or its reservation was taken away
  auto [reason, message] = obstacle_of(item);
  if (!reason.empty()) {
    if (item.place == Place::Running && item.writing) return count(key, item);
    leave(item);
    item.out_reason = std::move(reason), item.out_message = std::move(message);
    touch(key);
    return count(key, item);
  }
  EngineClass what = class_of(item, *queue_of(item));
  if (item.place == Place::Out || !(what == item.asks)) {
    if (item.place == Place::Running && item.writing) return count(key, item);
    leave(item);
    item.asks = item.what = std::move(what);
    const ClassId asks = define(item.what);
    const JobId job = engine_.submit(asks, uid_from(spec.uid), in_line_since(spec));
    if (recorder_) recorder_->submit(job, asks, uid_from(spec.uid), in_line_since(spec), key);
    enter(key, item, job, Place::Waiting);
  }
  touch(key);
  count(key, item);
}

void Books::decide(std::optional<Instant> begin) {
  if (begin) set_time(*begin);
  for (int round = 0; round < 1'000; ++round) {
    if (stale_) configure();
    tell_places();
    if (lines_are_stale_) tell_lines();
    // Who holds quota comes first, in the order in which it was reserved.
    std::vector<ObjectKey> keys;
    for (const ObjectKey& key : std::exchange(unsettled_, {}))
      if (items_.contains(key)) keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [this](const ObjectKey& a, const ObjectKey& b) {
      const Item &x = items_.at(a), &y = items_.at(b);
      const bool first = held(x.spec), second = held(y.spec);
      if (first != second) return first;
      if (!first) return false;
      return std::tie(x.spec.reserved.since, x.spec.uid) < std::tie(y.spec.reserved.since, y.spec.uid);
    });
    for (const ObjectKey& key : keys) settle(key, items_.at(key));
    if (begin && round == 0) {
      if (weigh(*begin, true)) configure();
      follow_saved(*begin);
      (void)expose_due(*begin);
      (void)keep_due(*begin, true);
    }
    std::vector<EngineDecision> decisions;
    engine_.drain(decisions);
    if (recorder_) recorder_->decided(engine_, decisions);
    std::map<JobId, int> victims;
    for (const EngineDecision& decision : decisions) {
      if (decision.kind == EngineDecision::Kind::Waits) {
        const auto at = waiting_.find(decision.kind_of_job);
        if (at == waiting_.end()) continue;
        std::size_t told = 0;
        for (const ObjectKey& key : at->second)
          if (++told <= kept_up) touch(key);
          else break;
        continue;
      }
      Item* item = item_of(decision.job);
      if (item == nullptr) continue;
      const ObjectKey key = by_job_[decision.job];
      touch(key);
      if (decision.kind == EngineDecision::Kind::Preempted) {
        ++victims[decision.by];
        const Item* by = item_of(decision.by);
        item->place = Place::Stopping;
        item->preempted = decision.reason;
        item->preempted_by = by == nullptr ? ObjectKey{} : by_job_[decision.by];
        item->evict_reason = "Preempted";
        item->evict_message = preemption_text(by == nullptr ? Json() : by->object.json(), decision.reason, by == nullptr ? "" : path_of(by->what.queue), path_of(item->what.queue));
        if (!item->seen_held) unsettled_.insert(key);  // nothing was started
      } else {
        if (const auto at = waiting_.find(item->class_id); at != waiting_.end() && at->second.erase(key) > 0 && at->second.empty()) waiting_.erase(at);
        item->place = decision.kind == EngineDecision::Kind::Admitted ? Place::Running : Place::Promised;
        item->class_id = engine_.class_of(decision.job);
        item->kept = false;
        if (engine_.shielded(decision.job)) fresh_.insert(key);
        if (!item->what.pod_sets.empty() && item->what.can_be_cut()) item->what = engine_.what(item->class_id);
        if (const auto told = victims.find(decision.job); told != victims.end()) item->waits_for_victims = told->second;  // else as it was promised before
      }
      count(key, *item);
    }
    if (unsettled_.empty()) return;
  }
}

}  // namespace fairlead::governance
