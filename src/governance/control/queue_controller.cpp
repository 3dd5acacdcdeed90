// SPDX-License-Identifier: Apache-2.0
#include "governance/control/queue_controller.h"

#include <algorithm>
#include <utility>

#include "api/team_crds.h"
#include "base/log.h"
#include "governance/plan/teams.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;

namespace {

constexpr std::chrono::nanoseconds kTendEvery = 1s, kScheduleEvery = 60s;

// A key says of which kind it is: no name has a slash.
ObjectKey key_of_kind(const char* plural, const ObjectKey& key) { return {key.space, std::string(plural) + "/" + key.name}; }
std::pair<std::string, ObjectKey> kind_of_key(const ObjectKey& key) {
  const std::size_t slash = key.name.find('/');
  return {key.name.substr(0, slash), {key.space, slash == std::string::npos ? "" : key.name.substr(slash + 1)}};
}

// Of a pod: where it is, whether it has ended, what it asks for; of a node its heartbeats change nothing.
bool changes_places(const kube::Change& change) {
  if (!change.before || !change.after) return true;
  const Json &before = *change.before, &after = *change.after;
  if (change.object()["spec"].has("containers")) return !(before["spec"]["nodeName"] == after["spec"]["nodeName"]) || !(before["status"]["phase"] == after["status"]["phase"]) || !(before["spec"]["containers"] == after["spec"]["containers"]);
  const auto ready = [](const Json& node) {
    const Json* found = kube::find_condition(node, "Ready");
    return found == nullptr ? std::string() : (*found)["status"].string() + (*found)["lastTransitionTime"].string();
  };
  return !(before["metadata"]["labels"] == after["metadata"]["labels"]) || !(before["spec"] == after["spec"]) || !(before["status"]["allocatable"] == after["status"]["allocatable"]) || ready(before) != ready(after);
}

std::vector<std::string> definitions() {
  std::vector<std::string> out;
  for (const Json& crd : api::queue_crds()) out.push_back(kube::name_of(crd));
  for (const Json& crd : api::team_crds()) out.push_back(kube::name_of(crd));
  return out;
}

}  // namespace

Result<std::string> why_governance_is_off(kube::KubeApi& api) {
  for (const std::string& name : definitions()) {
    auto crd = api.get(kube::resources::crds, {"", name});
    if (!crd && crd.error().code == Code::NotFound) return "there is no definition " + name + ": install it (fairlead install, or the chart) and start the server again";
    if (!crd) return pass(std::move(crd.error()), "read definition " + name);
    if (api::is_queue_crd(*crd) && !api::is_our_queue_crd(*crd)) return "definition " + name + " belongs to somebody else";
  }
  return std::string();
}

std::vector<kube::Controller::Source> QueueController::sources() const {
  std::vector<Source> out;
  for (const kube::Resource& resource : {queues::cluster_queues, queues::cohorts, queues::flavors, queues::topologies, queues::checks, queues::local_queues, queues::workloads, kube::resources::namespaces, api::teams::configs})
    out.push_back({resource, "", [plural = resource.plural](const kube::Change& change) { return std::vector<ObjectKey>{key_of_kind(plural.c_str(), kube::key_of(change.object()))}; }});
  // Of no account unless a flavor has a topology.
  for (const kube::Resource& resource : {kube::resources::nodes, kube::resources::pods})
    out.push_back({resource, "", [this, plural = resource.plural](const kube::Change& change) {
                     if (!follows_places_ || !changes_places(change)) return std::vector<ObjectKey>();
                     return std::vector<ObjectKey>{key_of_kind(plural.c_str(), kube::key_of(change.object()))};
                   }});
  return out;
}

std::optional<kube::Access> QueueController::access() const {
  kube::Access access;
  return access.may({"get"}, kube::resources::crds, "", "", definitions())
      .may({"get"}, queues::workloads)
      .may({"update"}, queues::workloads, "status")
      .may({"update"}, queues::cluster_queues)
      .may({"update"}, queues::cluster_queues, "status")
      .may({"update"}, queues::cohorts, "status")
      .may({"update"}, queues::local_queues, "status")
      .may({"create"}, kube::resources::events);
}

// All that is there is told before anything is decided: the first decision is made in the first reconcile().
void QueueController::start(const kube::Caches& caches) {
  caches_ = &caches;
  const std::lock_guard lock(mutex_);
  take_log_up();
  books_.set_time(clock_.now());
  follow_policy();
  caches.of(kube::resources::namespaces).each("", [this](const Json& object) { books_.set_space(kube::name_of(object), object); });
  caches.of(queues::topologies).each("", [this](const Json& object) { books_.set_topology(kube::name_of(object), object); });
  caches.of(queues::flavors).each("", [this](const Json& object) { books_.set_flavor(kube::name_of(object), object); });
  follow_places();
  caches.of(queues::checks).each("", [this](const Json& object) { books_.set_check(kube::name_of(object), object); });
  caches.of(queues::cohorts).each("", [this](const Json& object) { books_.set_cohort(kube::name_of(object), object); });
  caches.of(queues::cluster_queues).each("", [this](const Json& object) { books_.set_queue(kube::name_of(object), object); });
  caches.of(queues::local_queues).each("", [this](const Json& object) { books_.set_local_queue(kube::key_of(object), object); });
  caches.of(queues::workloads).each("", [this](const Json& object) { books_.set_workload(kube::key_of(object), object); });
}

void QueueController::follow_policy() {
  const std::vector<Json> configs = caches_->of(api::teams::configs).list("");
  books_.set_fair(shares_fairly(configs));
  books_.set_time_rules(time_rules_of(configs));
}

void QueueController::follow_places() {
  if (follows_places_ || !books_.wants_places()) return;
  follows_places_ = true;
  caches_->of(kube::resources::nodes).each("", [this](const Json& object) { books_.set_node(kube::name_of(object), object); });
  caches_->of(kube::resources::pods).each("", [this](const Json& object) { books_.set_pod(kube::key_of(object), object); });
}

void QueueController::look(const ObjectKey& key) {
  const auto [kind, named] = kind_of_key(key);
  const auto now = [&, &at = named](const kube::Resource& resource) { return caches_->of(resource).get(at).value_or(Json()); };
  if (kind == queues::workloads.plural) {
    books_.again(named);
    books_.set_workload(named, now(queues::workloads));
  } else if (kind == queues::cluster_queues.plural) {
    books_.set_queue(named.name, now(queues::cluster_queues));
  } else if (kind == queues::cohorts.plural) {
    books_.set_cohort(named.name, now(queues::cohorts));
  } else if (kind == queues::flavors.plural) {
    books_.set_flavor(named.name, now(queues::flavors));
    follow_places();
  } else if (kind == queues::topologies.plural) {
    books_.set_topology(named.name, now(queues::topologies));
  } else if (kind == kube::resources::nodes.plural) {
    books_.set_node(named.name, now(kube::resources::nodes));
  } else if (kind == kube::resources::pods.plural) {
    books_.set_pod(named, now(kube::resources::pods));
  } else if (kind == queues::checks.plural) {
    books_.set_check(named.name, now(queues::checks));
  } else if (kind == queues::local_queues.plural) {
    books_.set_local_queue(named, now(queues::local_queues));
  } else if (kind == kube::resources::namespaces.plural) {
    books_.set_space(named.name, now(kube::resources::namespaces));
  } else if (kind == api::teams::configs.plural) {
    follow_policy();
  }
}

std::vector<ObjectKey> QueueController::decide(const ObjectKey& but) {
  take_log_up();
  books_.set_time(clock_.now());
  const bool first = !std::exchange(decided_, true);
  books_.decide(first ? std::optional(clock_.now()) : std::nullopt);
  if (books_.needs_tending() && clock_.monotonic() - tended_ >= kTendEvery) {
    tended_ = clock_.monotonic();
    if (books_.tend(clock_.now())) books_.decide();
  }
  if (logs_) log_decisions();
  const Books::Changed changed = books_.take_changed();
  std::vector<ObjectKey> out;
  const auto add = [&](const kube::Resource& resource, const std::set<ObjectKey>& keys) {
    for (const ObjectKey& key : keys)
      if (ObjectKey one = key_of_kind(resource.plural.c_str(), key); one != but) out.push_back(std::move(one));
  };
  add(queues::workloads, changed.workloads);
  add(queues::local_queues, changed.local_queues);
  add(queues::cluster_queues, changed.queues);
  add(queues::cohorts, changed.cohorts);
  // Looked at once a second until what is lost is dealt with: of a node that is gone there is no other key.
  if (const ObjectKey tick = key_of_kind(kube::resources::nodes.plural.c_str(), {}); books_.has_sick_nodes() && but != tick) out.push_back(tick);
  return out;
}

// The time of what is recorded; or, where the log could not be written for a while, a record that begins here.
void QueueController::take_log_up() {
  if (!log_ || (!logs_ && !log_->ready())) return;
  books_.record(clock_.now());
  if (std::exchange(logs_, true)) return;
  log_begun_ = false;
  books_.fill_anew();
}

void QueueController::log_decisions() {
  using Then = DecisionSink::Then;
  const auto header = [this] { return decision_log_header(clock_.now(), options_.log_by); };
  std::string lines = books_.take_record();
  if (lines.empty()) return;
  Then then = std::exchange(log_begun_, true) ? log_->append(std::move(lines)) : log_->begin(header() + lines);
  if (then == Then::BeginAnew) {
    books_.fill_anew();
    books_.decide();
    then = log_->begin(header() + books_.take_record());
  }
  if (then != Then::Off) return;
  books_.stop_recording();
  logs_ = false;
}

void QueueController::wake_all(const std::vector<ObjectKey>& keys) const {
  for (const ObjectKey& key : keys) wake_(key);
}

void QueueController::take(const ObjectKey& key, const Json& workload) {
  std::vector<ObjectKey> others;
  {
    const std::lock_guard lock(mutex_);
    books_.set_workload(key, workload);
    others = decide({});
  }
  wake_all(others);
}

Result<kube::Next> QueueController::write_workload(const ObjectKey& key, Books::Write write) {
  auto done = api_.update_status(queues::workloads, write.object);
  if (done) {
    take(key, *done);
    for (const Note& note : write.notes) tell(api_, queues::workloads, write.object, note, clock_.now());
    if (write.admits) log_debug("workload admitted", {{"workload", key.text()}, {"queue", write.object["status"]["admission"]["clusterQueue"].string()}});
    return kube::Next{};
  }
  Error problem = std::move(done.error());
  if (problem.code == Code::NotFound) return kube::Next{};  // its deletion will be told
  if (problem.code == Code::Invalid || problem.code == Code::Forbidden || problem.code == Code::Unsupported || problem.code == Code::Exhausted) {
    // Nothing was written: others may have what it was to get until it is tried again.
    std::vector<ObjectKey> others;
    {
      const std::lock_guard lock(mutex_);
      if (write.admits && books_.refused(key, problem.message)) others = decide(key_of_kind(queues::workloads.plural.c_str(), key));
    }
    wake_all(others);
  } else if (problem.code != Code::Conflict) {
    // Nobody knows: what the API has now is looked at.
    if (auto now = api_.get(queues::workloads, key)) take(key, *now);
    else if (now.error().code == Code::NotFound) take(key, Json());
  }
  return pass(std::move(problem), "write status of Workload " + key.text());
}

// Quotas with a schedule are looked at again when it changes them; sooner, because clocks jump.
Result<kube::Next> QueueController::reconcile(const ObjectKey& key) {
  auto next = look_and_write(key);
  const auto [kind, named] = kind_of_key(key);
  if (!next || next->again_after || (kind != queues::cluster_queues.plural && kind != queues::cohorts.plural)) return next;
  const std::lock_guard lock(mutex_);
  if (const auto at = kind == queues::cohorts.plural ? books_.cohort_changes_at(named.name) : books_.queue_changes_at(named.name))
    next->again_after = std::clamp<std::chrono::nanoseconds>(*at - clock_.now(), 1ms, kScheduleEvery);
  return next;
}

Result<kube::Next> QueueController::look_and_write(const ObjectKey& key) {
  const auto [kind, named] = kind_of_key(key);
  std::vector<ObjectKey> others;
  std::optional<Books::Write> write;
  std::optional<Json> status, in_use;
  const kube::Resource* resource = nullptr;
  std::chrono::nanoseconds later{};
  bool tends = false, sick = false;
  {
    const std::lock_guard lock(mutex_);
    books_.set_time(clock_.now());  // of what is told
    look(key);
    others = decide(key);
    tends = books_.needs_tending();
    sick = books_.has_sick_nodes();
    const Instant now = clock_.now();
    if (kind == queues::workloads.plural) {
      write = books_.write_of(named, now);
      if (!write || !write->words_only) {
        written_at_.erase(key);
      } else if (const auto [at, first] = written_at_.try_emplace(key, clock_.monotonic()); !first || options_.words_every == 0ns) {
        later = at->second + options_.words_every - clock_.monotonic();
        if (later <= later.zero()) written_at_.erase(at);
      } else {
        later = options_.words_every;
      }
    }
    if (kind == queues::cluster_queues.plural) status = books_.queue_status(named.name, now), in_use = books_.queue_in_use(named.name), resource = &queues::cluster_queues;
    if (kind == queues::local_queues.plural) status = books_.local_queue_status(named, now), resource = &queues::local_queues;
    if (kind == queues::cohorts.plural) status = books_.cohort_status(named.name), resource = &queues::cohorts;
    if (status) {
      const auto at = written_at_.find(key);
      if (at != written_at_.end()) later = at->second + options_.status_every - clock_.monotonic();
      if (later <= later.zero()) written_at_[key] = clock_.monotonic();
    } else if (resource != nullptr && !caches_->of(*resource).get(named)) {
      written_at_.erase(key);
    }
  }
  wake_all(others);
  if ((kind == api::teams::configs.plural && tends) || (kind == kube::resources::nodes.plural && sick)) return kube::Next{kTendEvery};
  if (write && write->words_only && later > later.zero()) return kube::Next{later};
  if (write) return write_workload(named, std::move(*write));
  if (in_use) {  // its status follows on the version that comes of this
    if (auto done = api_.update(queues::cluster_queues, *in_use); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "finalizer of ClusterQueue " + named.name);
    return kube::Next{};
  }
  if (!status) return kube::Next{};
  if (later > later.zero()) return kube::Next{later};
  auto done = api_.update_status(*resource, *status);
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "write status of " + resource->kind + " " + named.text());
  return kube::Next{};
}

}  // namespace fairlead::governance
