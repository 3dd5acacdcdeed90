// SPDX-License-Identifier: Apache-2.0
#include "governance/control/slurm_ledger_controller.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/network_ways.h"
#include "base/encoding.h"
#include "base/log.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using What = LedgerStep::What;
using namespace std::chrono_literals;
namespace queues = api::queues;
namespace resources = kube::resources;

namespace {

constexpr auto kLook = 2s;                    // at Slurm, while a cluster takes part
constexpr auto kQuiet = 2min;                 // so long nothing of ours is to be seen before a cluster without quotas is left alone
constexpr std::size_t kStepsAtOnce = 40;      // a round stays within seconds
constexpr std::size_t kAskedAtOnce = 2'000;   // jobs by number

std::vector<std::string> companion(std::vector<std::string> words) {
  words.insert(words.begin(), "/opt/fairlead/bin/fairlead-slurm");
  return words;
}

bool in_slurm(What what) { return what == What::Hold || what == What::Release || what == What::Requeue || what == What::Comment; }

}  // namespace

std::vector<kube::Controller::Source> SlurmLedgerController::sources() const {
  const auto who_takes_part = [this](const kube::Change&) { return governed(); };
  const auto nothing = [](const kube::Change&) { return std::vector<ObjectKey>(); };
  return {{resources::slurm_clusters, "", kube::key_itself},
          {queues::workloads, "", [this](const kube::Change& change) { return note_workload(change); }},
          {queues::local_queues, "", nothing},
          {queues::priority_classes, "", who_takes_part},
          {resources::pods, "", nothing}};  // a head is looked for when it is asked
}

std::optional<kube::Access> SlurmLedgerController::access() const {
  return kube::Access()
      .may({"get"}, resources::slurm_clusters)
      .may({"get", "create", "update", "delete"}, queues::workloads)
      .may({"update"}, queues::workloads, "status")
      .may({"list"}, resources::pods)
      .may({"get", "create"}, resources::pods, "exec")
      .may({"create"}, resources::events);
}

std::vector<ObjectKey> SlurmLedgerController::note_workload(const kube::Change& change) const {
  const auto cluster = cluster_of_workload(change.object());
  if (!cluster) return {};
  const std::lock_guard lock(mutex_);
  if (change.after) {
    owned_[*cluster].insert(kube::key_of(change.object()));
  } else if (const auto at = owned_.find(*cluster); at != owned_.end()) {
    at->second.erase(kube::key_of(change.object()));
    if (at->second.empty()) owned_.erase(at);
  }
  return {*cluster};
}

std::vector<ObjectKey> SlurmLedgerController::governed() const {
  std::vector<ObjectKey> out;
  if (caches_ != nullptr)
    caches_->of(resources::slurm_clusters).each("", [&](const Json& cluster) {
      if (!cluster["spec"]["extensions"]["quota"].is_null()) out.push_back(kube::key_of(cluster));
    });
  return out;
}

std::vector<Json> SlurmLedgerController::workloads_of(const ObjectKey& cluster) const {
  std::set<ObjectKey> keys;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = owned_.find(cluster); at != owned_.end()) keys = at->second;
  }
  std::vector<Json> out;
  for (const ObjectKey& key : keys)
    if (auto workload = caches_->of(queues::workloads).get(key); workload && cluster_of_workload(*workload) == cluster) out.push_back(std::move(*workload));
  return out;
}

std::optional<ObjectKey> SlurmLedgerController::ready_head(const Json& cluster) const {
  std::optional<ObjectKey> out;
  caches_->of(resources::pods).each(kube::space_of(cluster), [&](const Json& pod) {
    const Json* owner = kube::controller_of(pod);
    if (owner == nullptr || (*owner)["uid"].string() != kube::uid_of(cluster) || pod["metadata"]["labels"][api::kSlurmRoleLabel].string() != "controller") return;
    if (kube::deleting(pod) || !kube::condition_is_true(pod, "Ready")) return;
    // A witness votes and has no Slurm.
    const auto& containers = pod["spec"]["containers"].items();
    if (std::none_of(containers.begin(), containers.end(), [](const Json& one) { return one["name"].string() == "slurmctld"; })) return;
    if (!out || kube::name_of(pod) < out->name) out = kube::key_of(pod);
  });
  return out;
}

void SlurmLedgerController::read_queues(LedgerInput& in) const {
  const ObjectKey own = kube::key_of(in.cluster);
  for (const auto& line : in.quota.lines) {
    const ObjectKey key{line.space, line.queue};
    const auto queue = caches_->of(queues::local_queues).get(key);
    if (!queue) {
      in.barred[key] = fmt::format("there is no LocalQueue {}", key.text());
    } else if (line.space != own.space) {
      bool open = false;
      for (const std::string& word : split((*queue)["metadata"]["annotations"][api::kSlurmClustersOfQueue].string(), ',')) open = open || trim(word) == own.text();
      if (!open) in.barred[key] = fmt::format("LocalQueue {} lets this cluster in with annotation {}={}", key.text(), api::kSlurmClustersOfQueue, own.text());
    }
    if (line.priority_class.empty()) continue;
    if (const auto found = caches_->of(queues::priority_classes).get({"", line.priority_class}))
      in.priorities[line.priority_class] = {.value = (*found)["value"].integer(), .ref = Json::object({{"group", queues::priority_classes.group}, {"kind", queues::priority_classes.kind}, {"name", line.priority_class}}), .problem = ""};
  }
}

void SlurmLedgerController::tell_cluster(const Json& cluster, const std::string& reason, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    std::string& last = told_[{kube::key_of(cluster), reason}];
    if (last == message) return;
    last = message;
  }
  if (message.empty()) return;
  log_warn("slurm jobs and quotas", {{"cluster", kube::key_of(cluster).text()}, {"reason", reason}, {"message", message}});
  tell(api_, resources::slurm_clusters, cluster, {true, reason, message}, clock_.now());
}

// Of a cluster that is not there (any more): its jobs are over once none of its pods is left.
Result<kube::Next> SlurmLedgerController::let_cluster_go(const std::vector<Json>& workloads, const ObjectKey& key, const std::string& uid) {
  auto pods = api_.list(resources::pods, key.space, {.label_selector = std::string(api::kSlurmClusterLabel) + "=" + key.name});
  if (!pods) return pass(std::move(pods.error()), "list the pods of SlurmCluster " + key.text());
  for (const Json& pod : pods->items)
    if (const Json* owner = kube::controller_of(pod); owner != nullptr && (*owner)["uid"].string() == uid) return kube::Next{kLook};
  const Json cluster = Json::object({{"metadata", Json::object({{"name", key.name}, {"namespace", key.space}, {"uid", uid}})}});
  return take(plan_ledger({.cluster = cluster, .quota = {}, .gone = true, .jobs = {}, .asked = {}, .workloads = workloads, .barred = {}, .priorities = {}, .now = clock_.now()}), key, std::nullopt);
}

Result<void> SlurmLedgerController::apply(const LedgerStep& step, const std::optional<ObjectKey>& head) {
  const ObjectKey key = kube::key_of(step.object);
  if (in_slurm(step.what)) {
    if (!head) return fail(Code::Unavailable, "no head is ready");
    if (!step.object.is_null()) {  // decided on this very state of the Workload, which a cache may be behind
      auto now = api_.get(queues::workloads, key);
      if (!now) return fail(now.error().code == Code::NotFound ? Code::Conflict : now.error().code, now.error().message);
      if (kube::version_of(*now) != kube::version_of(step.object)) return fail(Code::Conflict, "the Workload has changed");
    }
    std::vector<std::string> words = {std::string(text(step.what)), step.job};
    if (step.what == What::Comment) words.push_back(step.text);
    auto ran = api_.exec(*head, "slurmctld", companion(std::move(words)), "", 25s);
    if (!ran) return fail(Code::Unavailable, ran.error().message);
    if (ran->exit_code == 0) return {};
    return fail(ran->exit_code == 3 ? Code::Conflict : ran->exit_code == 1 ? Code::Invalid : Code::Unavailable, std::string(trim(ran->err)));
  }
  auto done = [&]() -> Result<void> {
    if (step.what == What::DeleteWorkload) return api_.remove(queues::workloads, key, {.grace_seconds = {}, .uid = kube::uid_of(step.object), .resource_version = kube::version_of(step.object), .propagation = kube::DeleteOptions::Propagation::Background});
    auto written = step.what == What::CreateWorkload   ? api_.create(queues::workloads, step.object)
                   : step.what == What::UpdateWorkload ? api_.update(queues::workloads, step.object)
                                                       : api_.update_status(queues::workloads, step.object);
    if (!written) return std::unexpected(std::move(written.error()));
    return {};
  }();
  // Made by a round that the cache has not seen yet; gone meanwhile.
  if (!done && (done.error().code == Code::Exists || done.error().code == Code::NotFound)) return fail(Code::Conflict, done.error().message);
  return done;
}

Result<kube::Next> SlurmLedgerController::take(const LedgerPlan& plan, const ObjectKey& key, const std::optional<ObjectKey>& head) {
  std::optional<Error> problem;
  std::size_t taken = 0;
  for (const LedgerStep& step : plan.steps) {
    if (taken++ == kStepsAtOnce) return kube::Next{100ms};
    auto done = apply(step, head);
    if (done) {
      if (step.note) tell(api_, queues::workloads, step.object, *step.note, clock_.now());
      log_debug("step of a slurm job", {{"cluster", key.text()}, {"job", step.job}, {"step", std::string(text(step.what))}});
      continue;
    }
    log_info("step of a slurm job put off", {{"cluster", key.text()}, {"job", step.job}, {"step", std::string(text(step.what))}, {"reason", done.error().message}});
    if (done.error().code == Code::Unavailable) return kube::Next{kLook};  // who does not answer once is not asked for each job
    if (done.error().code != Code::Conflict && !problem) problem = std::move(done.error()).in(fmt::format("{} of job {}", text(step.what), step.job));
  }
  if (problem) return std::unexpected(std::move(*problem));
  return kube::Next{kLook};  // until it is settled
}

Result<kube::Next> SlurmLedgerController::reconcile(const ObjectKey& key) {
  std::vector<Json> own = workloads_of(key);
  auto cluster = caches_->of(resources::slurm_clusters).get(key);
  if (!cluster) {
    if (own.empty()) return kube::Next{};
    auto now = api_.get(resources::slurm_clusters, key);
    if (now) cluster = std::move(*now);
    else if (now.error().code != Code::NotFound) return pass(std::move(now.error()), "read SlurmCluster " + key.text());
  }
  // Those of a cluster that had this name before, or of one that is gone.
  std::map<std::string, std::vector<Json>> others;
  std::erase_if(own, [&](Json& workload) {
    const std::string uid = workload["metadata"]["labels"][kSlurmClusterUid].string();
    if (cluster && uid == kube::uid_of(*cluster)) return false;
    others[uid].push_back(std::move(workload));
    return true;
  });
  for (const auto& [uid, workloads] : others)
    if (auto gone = let_cluster_go(workloads, key, uid); !gone) return gone;
  if (!cluster) return others.empty() ? kube::Next{} : kube::Next{kLook};

  LedgerInput in{.cluster = *cluster, .quota = api::read_slurm_quota(*cluster), .gone = false, .jobs = {}, .asked = {}, .workloads = std::move(own), .barred = {}, .priorities = {}, .now = clock_.now()};
  // Without quotas Slurm is asked until nothing of ours is left there, once after each start of this program.
  {
    const std::lock_guard lock(mutex_);
    if (in.quota.on) settled_.erase(key);
    else if (in.workloads.empty() && settled_.contains(key)) return others.empty() ? kube::Next{} : kube::Next{kLook};
  }
  const auto head = ready_head(*cluster);
  if (!head) return kube::Next{kLook};
  read_queues(in);
  std::vector<std::string> words = {"queue-look"};
  for (const Json& workload : in.workloads)
    if (std::string id = job_of_workload(workload); !id.empty() && in.asked.size() < kAskedAtOnce) in.asked.insert(std::move(id));
  if (!in.asked.empty()) words.insert(words.end(), {"--of", fmt::format("{}", fmt::join(in.asked, ","))});
  auto ran = api_.exec(*head, "slurmctld", companion(std::move(words)), "", 25s);
  if (!ran) {
    log_info("what Slurm knows of its jobs is unknown", {{"head", head->text()}, {"reason", ran.error().message}});
    return kube::Next{kLook};
  }
  if (ran->exit_code == 2 && !in.quota.on) return kube::Next{};
  if (ran->exit_code == 2) {  // its usage: the companion comes with the pod
    tell_cluster(*cluster, "OldHead", fmt::format("pod {} was made by a version that keeps no quotas of jobs: delete it when its cluster can do without it for a moment, and it is made anew", head->name));
    return kube::Next{30s};
  }
  if (ran->exit_code == 0) {
    auto jobs = read_ledger_jobs(ran->out);
    if (jobs) in.jobs = std::move(*jobs);
    else log_warn("what Slurm said of its jobs is not understood", {{"head", head->text()}, {"reason", jobs.error().message}});
  } else {
    log_info("what Slurm knows of its jobs is unknown", {{"head", head->text()}, {"reason", std::string(trim(ran->err))}});
  }
  if (!in.jobs) return kube::Next{kLook};
  const LedgerPlan plan = plan_ledger(in);
  if (!in.quota.on && plan.steps.empty() && in.workloads.empty()) {
    // What was submitted while the configuration without holds was on its way is seen a little later.
    const std::lock_guard lock(mutex_);
    const auto since = quiet_.emplace(key, in.now).first->second;
    if (in.now >= since + kQuiet) settled_.insert(key), quiet_.erase(key);
  } else {
    const std::lock_guard lock(mutex_);
    quiet_.erase(key);
  }
  const auto first = [](const std::vector<std::string>& jobs) { return fmt::format("{}{}", fmt::join(jobs.begin(), jobs.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(jobs.size(), 10)), ", "), jobs.size() > 10 ? ", ..." : ""); };
  tell_cluster(*cluster, "RunsUnadmitted", plan.runs_unadmitted.empty() ? "" : fmt::format("{} jobs run although no queue admitted them: {}", plan.runs_unadmitted.size(), first(plan.runs_unadmitted)));
  std::string lost;
  if (!plan.no_queue.empty()) lost = fmt::format("{} jobs wait without a queue; job {}: {}", plan.no_queue.size(), plan.no_queue.begin()->first, plan.no_queue.begin()->second);
  tell_cluster(*cluster, "NoQueue", lost);
  return take(plan, key, head);
}

}  // namespace fairlead::governance
