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

void tell(kube::KubeApi& api, const Json& job, const TrainingNote& note, Instant now) {
  const std::string key = fmt::format("{}/{}/{}/{}", kube::uid_of(job), note.reason, note.message, now.time_since_epoch().count());
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

// The first error that is not "it is so already", or that of a write that was decided on something older.
Result<void> first_of(const std::vector<Result<void>>& results, std::string_view doing) {
  for (const auto& one : results)
    if (!one && one.error().code != Code::Exists && one.error().code != Code::NotFound) return pass(Error(one.error()), doing);
  return {};
}

}  // namespace

std::vector<kube::Controller::Source> TrainingController::sources() const {
  // Pods whose node is no longer fit: their jobs are looked at at once.
  const auto of_node = [this](const kube::Change& change) {
    std::vector<ObjectKey> jobs;
    if (!change.before || !change.after || is_unhealthy(*change.before) == is_unhealthy(*change.after) || caches_ == nullptr) return jobs;
    const std::string& node = kube::name_of(*change.after);
    caches_->of(resources::pods).each("", [&](const Json& pod) {
      if (const std::string& job = pod["metadata"]["labels"][kJobLabel].string(); !job.empty() && pod["spec"]["nodeName"].string() == node) jobs.push_back({kube::space_of(pod), job});
    });
    return jobs;
  };
  std::vector<Source> out{{kJobs, "", kube::key_itself}, {resources::pods, "", kube::key_of_owner(kJobs.kind)}, {resources::nodes, "", of_node}};
  if (queues_ == Queues::Ours) out.push_back({api::queues::workloads, "", kube::key_of_owner(kJobs.kind)});
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
  bool admitted = false;
  caches_->of(api::queues::workloads).each(kube::space_of(job), [&](const Json& workload) {
    const Json* owner = kube::controller_of(workload);
    if (owner != nullptr && (*owner)["uid"].string() == kube::uid_of(job) && kube::condition_is_true(workload, "Admitted") && !kube::condition_is_true(workload, "Evicted") && !kube::deleting(workload)) admitted = true;
  });
  return admitted;
}

Result<TrainingController::Seen> TrainingController::observe(Json job) {
  Seen out;
  TrainingInput in;
  caches_->of(resources::pods).each(kube::space_of(job), [&](const Json& pod) {
    const Json* owner = kube::controller_of(pod);
    if (owner == nullptr || (*owner)["uid"].string() != kube::uid_of(job)) return;
    if (const std::string& node = pod["spec"]["nodeName"].string(); !node.empty() && !in.nodes.contains(node)) in.nodes[node] = caches_->of(resources::nodes).get({"", node}).value_or(Json());
    out.pods.push_back(pod);
  });
  const auto ask = agents_to_ask(job, out.pods);
  std::vector<AgentAt> agents;
  for (const auto& [pod, at] : ask) agents.push_back(at);
  const auto said = agents_->status(agents);
  std::size_t i = 0;
  for (const auto& [pod, at] : ask) {
    const auto& answer = said[i++];
    in.agents[pod] = answer ? AgentSeen{AgentSeen::How::Answered, *answer} : AgentSeen{AgentSeen::How::Silent, {}};
  }
  in.admitted = is_admitted(job);
  in.job = std::move(job);
  in.pods = out.pods;
  in.now = clock_.now();
  out.plan = plan_training(in);
  return out;
}

Result<void> TrainingController::act(const Json& job, const Seen& seen, bool& again) {
  const TrainingPlan& plan = seen.plan;
  const std::string &space = kube::space_of(job), title = "HyperPodPyTorchJob " + kube::key_of(job).text();
  for (const ObjectKey& key : plan.remove) {
    const auto pod = std::ranges::find_if(seen.pods, [&](const Json& one) { return kube::name_of(one) == key.name; });
    const auto gone = api_.remove(resources::pods, key, {.grace_seconds = {}, .uid = plan.uids.at(key.name), .resource_version = kube::version_of(*pod), .propagation = kube::DeleteOptions::Propagation::Background});
    if (gone || gone.error().code == Code::NotFound) continue;
    if (gone.error().code != Code::Conflict) return pass(Error(gone.error()), fmt::format("delete pod {} of {}", key.name, title));
    again = true;  // it has changed since: it is looked at anew
  }
  if (auto made = first_of(kube::create_all(api_, resources::pods, plan.create), "make the pods of " + title); !made) {
    if (made.error().code == Code::Forbidden || made.error().code == Code::Invalid) tell(api_, job, {true, "FailedCreate", made.error().message}, clock_.now());
    return made;
  }
  for (const auto& [name, rank] : plan.ranks) {
    const auto pod = std::ranges::find_if(seen.pods, [&](const Json& one) { return kube::name_of(one) == name; });
    const Json patch = Json::object({{"metadata", Json::object({{"uid", kube::uid_of(*pod)}, {"resourceVersion", kube::version_of(*pod)}, {"labels", Json::object({{kRankLabel, std::to_string(rank)}})}})}});
    if (auto done = api_.patch(resources::pods, kube::key_of(*pod), kube::PatchType::Merge, patch); !done) return pass(std::move(done.error()), fmt::format("give pod {} of {} its rank", name, title));
  }
  if (!plan.ranks.empty()) again = true;
  if (plan.orders.empty()) return {};
  // An address may be another pod's by now, and a cache may not know it yet: who is told is looked up.
  auto now = api_.list(resources::pods, space, {.label_selector = fmt::format("{}={}", kJobLabel, kube::name_of(job))});
  if (!now) return pass(std::move(now.error()), "list the pods of " + title);
  std::vector<Agents::Order> orders;
  for (const PodOrder& order : plan.orders) {
    const auto at = std::ranges::find_if(now->items, [&](const Json& one) { return kube::name_of(one) == order.pod; });
    const auto then = std::ranges::find_if(seen.pods, [&](const Json& one) { return kube::name_of(one) == order.pod; });
    if (at == now->items.end() || kube::uid_of(*at) != kube::uid_of(*then) || (kube::deleting(*at) && order.what == Agents::Order::What::Start) || (*at)["status"]["podIP"].string() != order.at.address) {
      again = true;
      return {};
    }
    orders.push_back({.at = order.at, .what = order.what, .start = order.start, .stop = order.stop});
  }
  const auto told = agents_->tell(orders);
  for (std::size_t i = 0; i < told.size(); ++i)
    if (!told[i]) log_warn("an agent of a training job was not reached", {{"job", kube::key_of(job).text()}, {"pod", plan.orders[i].pod}, {"reason", told[i].error().message}});
  return {};
}

Result<kube::Next> TrainingController::reconcile(const ObjectKey& key) {
  // What is decided here starts and stops processes: on what is, not on what a cache remembers.
  auto job = api_.get(kJobs, key);
  if (!job && job.error().code == Code::NotFound) return kube::Next{};
  if (!job) return pass(std::move(job.error()), "read HyperPodPyTorchJob " + key.text());
  auto seen = observe(*job);
  if (!seen) return std::unexpected(std::move(seen.error()));
  const TrainingPlan& plan = seen->plan;
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
    for (const TrainingNote& note : plan.notes) {
      log_info("training job", {{"job", key.text()}, {"what", note.reason}, {"why", note.message}});
      tell(api_, *job, note, clock_.now());
    }
  }
  bool again = false;
  if (auto done = act(*job, *seen, again); !done) return std::unexpected(std::move(done.error()));
  if (again) return kube::Next{std::chrono::milliseconds(200)};
  if (plan.again) return kube::Next{*plan.again};
  return kube::Next{};
}

Result<std::string> why_training_is_off(kube::KubeApi& api) {
  auto crd = api.get(resources::crds, {"", api::kTrainingCrd});
  if (!crd && crd.error().code == Code::NotFound) return fmt::format("there is no definition {}: install it (fairlead install, or the chart) and start the server again", api::kTrainingCrd);
  if (!crd) return pass(std::move(crd.error()), fmt::format("read definition {}", api::kTrainingCrd));
  return api::is_our_training_crd(*crd) ? "" : fmt::format("definition {} belongs to somebody else", api::kTrainingCrd);
}

}  // namespace fairlead::training
