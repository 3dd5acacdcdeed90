// SPDX-License-Identifier: Apache-2.0
#include "training/control/training_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/queue_crds.h"
#include "api/training_crd.h"
#include "base/encoding.h"
#include "base/log.h"
#include "kube/many.h"
#include "training/plan/training_plan.h"

namespace fairlead::training {

using kube::Json;
using kube::ObjectKey;
namespace resources = kube::resources;

struct TrainingController::Seen {
  std::vector<Json> pods;
  TrainingPlan plan;
};

namespace {

constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";

constexpr int kLooks = 10;                        // so often an agent that does not answer is asked as if it were to answer soon
constexpr std::chrono::seconds kAskSilent{8};     // and then so often
enum class Often { Each, Once };
constexpr Often kOnce = Often::Once;

void tell(kube::KubeApi& api, const Json& job, const TrainingNote& note, Instant now, Often often = Often::Each) {
  const std::string key = fmt::format("{}/{}/{}/{}", kube::uid_of(job), note.reason, note.message, often == Often::Once ? 0 : now.time_since_epoch().count());
  Json event = Json::object({{"apiVersion", "v1"},
                             {"kind", "Event"},
                             {"metadata", Json::object({{"name", fmt::format("{}.{}", kube::name_of(job), hex(sha256(key)).substr(0, 16))}, {"namespace", kube::space_of(job)}})},
                             {"involvedObject", Json::object({{"apiVersion", kJobs.api_version()}, {"kind", kJobs.kind}, {"name", kube::name_of(job)}, {"namespace", kube::space_of(job)}, {"uid", kube::uid_of(job)}})},
                             {"reason", note.reason},
                             {"message", note.message.substr(0, 1024)},
                             {"type", note.warning ? "Warning" : "Normal"},
                             {"source", Json::object({{"component", "fairlead-training"}})},
                             {"firstTimestamp", print_time(now)},
                             {"lastTimestamp", print_time(now)},
                             {"count", 1}});
  if (auto made = api.create(resources::events, event); !made && made.error().code != Code::Exists) log_debug("event was not written", {{"reason", made.error().message}});
}

}  // namespace

std::vector<ObjectKey> TrainingController::note(const kube::Change& change, std::set<std::string> Index::*list) const {
  const auto job_of = [](const std::optional<Json>& object) {
    const Json* owner = object ? kube::controller_of(*object) : nullptr;
    const bool ours = owner != nullptr && (*owner)["kind"].string() == kJobs.kind && (*owner)["apiVersion"].string().starts_with(kJobs.group + "/");
    return ours ? std::optional(ObjectKey{kube::space_of(*object), (*owner)["name"].string()}) : std::nullopt;
  };
  const auto before = job_of(change.before), after = job_of(change.after);
  std::set<ObjectKey> out;
  const std::lock_guard lock(mutex_);
  if (after) {
    (index_[*after].*list).insert(kube::name_of(*change.after));
    if (const std::string& node = (*change.after)["spec"]["nodeName"].string(); !node.empty()) by_node_[node].insert(*after);
    out.insert(*after);
  }
  if (before && before != after) {  // gone, or another's by now
    if (const auto at = index_.find(*before); at != index_.end()) {
      (at->second.*list).erase(kube::name_of(*change.before));
      if (at->second.pods.empty() && at->second.workloads.empty()) index_.erase(at);
    }
    out.insert(*before);
  }
  return {out.begin(), out.end()};
}

std::vector<kube::Controller::Source> TrainingController::sources() const {
  // A node that is no longer fit, or is again: the jobs on it are looked at at once.
  const auto of_node = [this](const kube::Change& change) {
    const std::string& node = kube::name_of(change.object());
    const std::lock_guard lock(mutex_);
    const auto jobs = by_node_.find(node);
    if (jobs == by_node_.end()) return std::vector<ObjectKey>();
    const std::vector<ObjectKey> out(jobs->second.begin(), jobs->second.end());
    if (!change.after) by_node_.erase(jobs);
    if (change.before && change.after && is_unhealthy(*change.before) == is_unhealthy(*change.after)) return std::vector<ObjectKey>();
    return out;
  };
  std::vector<Source> out{{kJobs, "", kube::key_itself}, {resources::pods, "", [this](const kube::Change& change) { return note(change, &Index::pods); }}, {resources::nodes, "", of_node}};
  if (queues_ == Queues::Ours) out.push_back({api::queues::workloads, "", [this](const kube::Change& change) { return note(change, &Index::workloads); }});
  return out;
}

std::optional<kube::Access> TrainingController::access() const {
  return kube::Access()
      .may({"get", "delete"}, kJobs)
      .may({"update"}, kJobs, "status")
      .may({"update"}, kJobs, "finalizers")
      .may({"create", "patch", "delete"}, resources::pods)
      .may({"create"}, resources::events)
      .may({"get"}, resources::crds, "", "", {api::kTrainingCrd});
}

// By the words of its Workload, which governance makes: a job is there before its queue has seen it.
bool TrainingController::is_admitted(const Json& job) const {
  if (queues_ == Queues::None || job["metadata"]["labels"][kQueueLabel].string().empty()) return true;
  std::set<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = index_.find(kube::key_of(job)); at != index_.end()) names = at->second.workloads;
  }
  return std::ranges::any_of(names, [&](const std::string& name) {
    const auto workload = caches_->of(api::queues::workloads).get({kube::space_of(job), name});
    const Json* owner = workload ? kube::controller_of(*workload) : nullptr;
    return owner != nullptr && (*owner)["uid"].string() == kube::uid_of(job) && kube::condition_is_true(*workload, "Admitted") && !kube::condition_is_true(*workload, "Evicted") && !kube::deleting(*workload);
  });
}

TrainingController::Seen TrainingController::observe(Json job) {
  Seen out;
  TrainingInput in;
  const ObjectKey key = kube::key_of(job);
  std::set<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = index_.find(key); at != index_.end()) names = at->second.pods;
  }
  for (const std::string& name : names) {
    auto pod = caches_->of(resources::pods).get({key.space, name});
    const Json* owner = pod ? kube::controller_of(*pod) : nullptr;
    if (owner == nullptr || (*owner)["uid"].string() != kube::uid_of(job)) continue;
    if (const std::string& node = (*pod)["spec"]["nodeName"].string(); !node.empty() && !in.nodes.contains(node)) in.nodes[node] = caches_->of(resources::nodes).get({"", node}).value_or(Json());
    out.pods.push_back(std::move(*pod));
  }
  // One that does not answer is asked at every look for a while, and then less often: it may take seconds, and others wait.
  const auto now = clock_.monotonic();
  const auto ask = agents_to_ask(job, out.pods);
  std::map<AgentAt, Silence> silent;
  {
    const std::lock_guard lock(mutex_);
    silent = silent_[key];
  }
  std::erase_if(silent, [&](const auto& one) { return std::ranges::none_of(ask, [&](const auto& other) { return other.second == one.first; }); });
  std::vector<AgentAt> agents;
  for (const auto& [pod, at] : ask)
    if (const auto before = silent.find(at); before == silent.end() || now >= before->second.ask_at) agents.push_back(at);
  std::map<AgentAt, AgentSeen> seen;
  const auto look = [&](const std::vector<AgentAt>& at_these) {
    const auto said = agents_->status(at_these);
    for (std::size_t i = 0; i < at_these.size(); ++i) {
      if (said[i]) {
        seen[at_these[i]] = {AgentSeen::How::Answered, *said[i]};
        silent.erase(at_these[i]);
      } else if (said[i].error().code != Code::Exhausted) {
        seen.erase(at_these[i]);
        Silence& silence = silent[at_these[i]];
        if (silence.looks == 0) silence.since = clock_.monotonic();
        if (++silence.looks > kLooks) silence.ask_at = clock_.monotonic() + kAskSilent;
      }
    }
    for (const auto& [pod, at] : ask) {
      if (const auto answer = seen.find(at); answer != seen.end()) in.agents[pod] = answer->second;
      else if (const auto silence = silent.find(at); silence != silent.end()) in.agents[pod] = {AgentSeen::How::Silent, {}, std::chrono::floor<std::chrono::seconds>(clock_.monotonic() - silence->second.since)};
    }
  };
  look(agents);
  in.admitted = is_admitted(job);
  in.in_queue = queues_ == Queues::Ours && !job["metadata"]["labels"][kQueueLabel].string().empty();
  in.job = std::move(job);
  in.pods = out.pods;
  in.now = clock_.now();
  out.plan = plan_training(in);
  // Nobody begins on a silence that is some seconds old.
  std::vector<AgentAt> others;
  for (const auto& [pod, at] : ask)
    if (std::ranges::find(agents, at) == agents.end()) others.push_back(at);
  if (!others.empty() && std::ranges::any_of(out.plan.orders, [](const PodOrder& one) { return one.what == Agents::Order::What::Start; })) {
    look(others);
    out.plan = plan_training(in);
  }
  const std::lock_guard lock(mutex_);
  if (silent.empty()) silent_.erase(key);
  else silent_[key] = std::move(silent);
  return out;
}

Result<void> TrainingController::make_pods(const Json& job, const Seen& seen) {
  const std::vector<Json>& wanted = seen.plan.create;
  const ObjectKey key = kube::key_of(job);
  {
    const std::lock_guard lock(mutex_);
    if (const auto before = refused_.find(key); wanted.empty() || (before != refused_.end() && clock_.monotonic() < before->second.again_at)) return {};
  }
  const auto made = kube::create_all(api_, resources::pods, wanted);
  std::optional<Error> out;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i]) continue;
    const Error& error = made[i].error();
    if (error.code == Code::Exists) {
      // Ours, and the cache does not know it yet; or somebody else's, which stays.
      const auto there = api_.get(resources::pods, kube::key_of(wanted[i]));
      const Json* owner = there ? kube::controller_of(*there) : nullptr;
      if (!there || (owner != nullptr && (*owner)["uid"].string() == kube::uid_of(job)) || kube::deleting(*there)) continue;
      out = Error(Code::Exists, fmt::format("a pod {} is there that does not belong to this job: delete it, or give the job another name", kube::name_of(wanted[i])));
    } else {
      if (error.code == Code::Unavailable || error.code == Code::Conflict) return pass(Error(error), "make the pods of HyperPodPyTorchJob " + key.text());
      out = error;
    }
    // Said once, however often it is tried.
    tell(api_, job, {true, "FailedCreate", out->message}, clock_.now(), kOnce);
  }
  const std::lock_guard lock(mutex_);
  if (!out) {
    refused_.erase(key);
    return {};
  }
  // What it has is looked after as before; these are tried again by and by.
  Refusal& refusal = refused_[key];
  refusal.again_at = clock_.monotonic() + std::min<std::chrono::seconds>(std::chrono::seconds(60), std::chrono::seconds(2 << std::min(refusal.times++, 5)));
  log_warn("pods of a training job are refused", {{"job", key.text()}, {"reason", out->message}});
  return {};
}

Result<void> TrainingController::give_orders(const Json& job, const Seen& seen, bool& again) {
  const TrainingPlan& plan = seen.plan;
  // An address may be another pod's by now, and a cache may not know it yet: who is told is looked up.
  auto now = api_.list(resources::pods, kube::space_of(job), {.label_selector = fmt::format("{}={}", kJobLabel, kube::name_of(job))});
  if (!now) return pass(std::move(now.error()), "list the pods of HyperPodPyTorchJob " + kube::key_of(job).text());
  std::map<std::string, Json> there;
  for (Json& pod : now->items) there[kube::name_of(pod)] = std::move(pod);
  std::vector<Agents::Order> orders;
  bool starts = true;
  for (const PodOrder& order : plan.orders) {
    const auto then = std::ranges::find_if(seen.pods, [&](const Json& one) { return kube::name_of(one) == order.pod; });
    if (!there.contains(order.pod))  // without our label
      if (auto pod = api_.get(resources::pods, {kube::space_of(job), order.pod})) there[order.pod] = std::move(*pod);
    const auto at = there.find(order.pod);
    if (at == there.end() || kube::uid_of(at->second) != kube::uid_of(*then) || (kube::deleting(at->second) && order.what == Agents::Order::What::Start) || at->second["status"]["podIP"].string() != order.at.address) {
      again = true;
      starts = starts && order.what != Agents::Order::What::Start;
      continue;
    }
    orders.push_back({.at = order.at, .what = order.what, .start = order.start, .stop = order.stop});
  }
  // All begin together, or none.
  if (!starts) std::erase_if(orders, [](const Agents::Order& one) { return one.what == Agents::Order::What::Start; });
  const auto told = agents_->tell(orders);
  for (std::size_t i = 0; i < told.size(); ++i)
    if (!told[i]) log_warn("an agent of a training job was not reached", {{"job", kube::key_of(job).text()}, {"address", orders[i].at.address}, {"reason", told[i].error().message}});
  return {};
}

// What needs nobody's leave comes first: a ready spare is not to wait for a pod that a quota refuses.
Result<void> TrainingController::act(const Json& job, const Seen& seen, bool& again) {
  const TrainingPlan& plan = seen.plan;
  const std::string title = "HyperPodPyTorchJob " + kube::key_of(job).text();
  std::map<std::string, const Json*> pods;
  for (const Json& pod : seen.pods) pods[kube::name_of(pod)] = &pod;
  for (const ObjectKey& key : plan.remove) {
    const auto gone = api_.remove(resources::pods, key, {.grace_seconds = {}, .uid = plan.uids.at(key.name), .resource_version = kube::version_of(*pods.at(key.name)), .propagation = kube::DeleteOptions::Propagation::Background});
    if (gone || gone.error().code == Code::NotFound) continue;
    if (gone.error().code != Code::Conflict) return pass(Error(gone.error()), fmt::format("delete pod {} of {}", key.name, title));
    again = true;  // it has changed since: it is looked at anew
  }
  for (const auto& [name, rank] : plan.ranks) {
    const Json& pod = *pods.at(name);
    const Json patch = Json::object({{"metadata", Json::object({{"uid", kube::uid_of(pod)}, {"resourceVersion", kube::version_of(pod)}, {"labels", Json::object({{kRankLabel, rank < 0 ? Json() : Json(std::to_string(rank))}})}})}});
    if (auto done = api_.patch(resources::pods, kube::key_of(pod), kube::PatchType::Merge, patch); !done) return pass(std::move(done.error()), fmt::format("give pod {} of {} its rank", name, title));
  }
  if (!plan.ranks.empty()) again = true;
  if (!plan.orders.empty())
    if (auto done = give_orders(job, seen, again); !done) return done;
  return make_pods(job, seen);
}

Result<kube::Next> TrainingController::reconcile(const ObjectKey& key) {
  // What is decided here starts and stops processes: on what is, not on what a cache remembers.
  auto job = api_.get(kJobs, key);
  if (!job && job.error().code == Code::NotFound) {
    const std::lock_guard lock(mutex_);
    silent_.erase(key);
    refused_.erase(key);
    for (auto& [node, jobs] : by_node_) jobs.erase(key);
    return kube::Next{};
  }
  if (!job) return pass(std::move(job.error()), "read HyperPodPyTorchJob " + key.text());
  const auto began = clock_.monotonic();
  const Seen seen = observe(*job);
  const TrainingPlan& plan = seen.plan;
  if (plan.remove_job) {
    auto gone = api_.remove(kJobs, key, {.grace_seconds = {}, .uid = kube::uid_of(*job), .resource_version = kube::version_of(*job), .propagation = kube::DeleteOptions::Propagation::Background});
    if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "delete HyperPodPyTorchJob " + key.text());
    return kube::Next{};
  }
  if (!plan.status.is_null()) {
    Json changed = *job;
    changed.set("status", plan.status);
    auto written = api_.update_status(kJobs, changed);
    if (!written && written.error().code == Code::NotFound) return kube::Next{};
    if (!written) return pass(std::move(written.error()), "write the status of HyperPodPyTorchJob " + key.text());
  }
  for (const TrainingNote& note : plan.notes) {
    log_info("training job", {{"job", key.text()}, {"what", note.reason}, {"why", note.message}});
    tell(api_, *job, note, clock_.now(), plan.status.is_null() ? kOnce : Often::Each);
  }
  bool again = false;
  if (auto done = act(*job, seen, again); !done) return std::unexpected(std::move(done.error()));
  // A job whose agents take their time is looked at less often: others wait meanwhile.
  const std::chrono::nanoseconds rest = 4 * (clock_.monotonic() - began);
  if (again) return kube::Next{std::max<std::chrono::nanoseconds>(std::chrono::milliseconds(200), rest)};
  if (plan.again) return kube::Next{std::max<std::chrono::nanoseconds>(*plan.again, rest)};
  return kube::Next{};
}

Result<std::string> why_training_is_off(kube::KubeApi& api) {
  auto crd = api.get(resources::crds, {"", api::kTrainingCrd});
  if (!crd && crd.error().code == Code::NotFound) return fmt::format("there is no definition {}: install it (fairlead install, or the chart) and start the server again", api::kTrainingCrd);
  if (!crd) return pass(std::move(crd.error()), fmt::format("read definition {}", api::kTrainingCrd));
  return api::is_our_training_crd(*crd) ? "" : fmt::format("definition {} belongs to somebody else", api::kTrainingCrd);
}

}  // namespace fairlead::training
