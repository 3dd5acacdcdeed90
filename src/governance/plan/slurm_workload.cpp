// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/slurm_workload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/encoding.h"
#include "governance/plan/run_time.h"
#include "kube/object.h"

namespace fairlead::governance {

using kube::Json;
using What = LedgerStep::What;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMostWaiting = 500;   // Workloads of jobs that wait, for one cluster
constexpr auto kRemembered = 10min;         // a finished one stays so long, for people to see
constexpr std::size_t kLongestComment = 200;

// Jobs by number, tasks by theirs.
struct ByNumber {
  static std::pair<std::int64_t, std::int64_t> of(const std::string& id) {
    const auto bar = id.find('_');
    const auto number = [](std::string_view text) {
      std::int64_t value = 0;
      for (const char c : text.substr(0, 15)) value = c >= '0' && c <= '9' ? value * 10 + (c - '0') : value;
      return value;
    };
    return {number(std::string_view(id).substr(0, bar)), bar == id.npos ? -1 : number(std::string_view(id).substr(bar + 1))};
  }
  bool operator()(const std::string& a, const std::string& b) const { return std::pair(of(a), a) < std::pair(of(b), b); }
};

std::string memory_text(std::int64_t mib, std::int64_t over) {
  if (mib % over == 0) return fmt::format("{}Mi", mib / over);
  return std::to_string((mib * 1024 * 1024 + over - 1) / over);
}
std::string cpu_text(std::int64_t cpus, std::int64_t over) {
  if (cpus % over == 0) return std::to_string(cpus / over);
  return fmt::format("{}m", (cpus * 1000 + over - 1) / over);
}

Json pod_sets_of(const LedgerJob& job) {
  Json out = Json::array();
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    const LedgerJob::Part& part = job.parts[i];
    // GPUs have no halves.
    const std::int64_t count = part.gpus % part.nodes == 0 ? part.nodes : 1;
    Json requests = Json::object();
    if (part.cpus > 0) requests.set("cpu", cpu_text(part.cpus, count));
    if (part.memory_mib > 0) requests.set("memory", memory_text(part.memory_mib, count));
    if (part.gpus > 0) requests.set("nvidia.com/gpu", std::to_string(part.gpus / count));
    out.push(Json::object({{"name", i == 0 ? "main" : fmt::format("part-{}", i)},
                           {"count", count},
                           {"template", Json::object({{"spec", Json::object({{"containers", Json::array({Json::object({{"name", "slurm"}, {"resources", Json::object({{"requests", std::move(requests)}})}})})}})}})}}));
  }
  return out;
}

std::string size_of(const LedgerJob& job) {
  std::string out;
  for (const LedgerJob::Part& part : job.parts) out += fmt::format("{}nodes={},cpus={},memory={}Mi,gpus={}", out.empty() ? "" : ";", part.nodes, part.cpus, part.memory_mib, part.gpus);
  return out;
}

std::string plain(std::string_view words) {
  std::string out;
  for (const char c : words.substr(0, 60)) out += c > ' ' && c < 127 && c != '"' ? c : '?';
  return out;
}

class LedgerPlanner {
 public:
  explicit LedgerPlanner(const LedgerInput& in) : in_(in) {}
  LedgerPlan plan();

 private:
  void one(const std::string& id);
  void with_workload(const LedgerJob* job, const std::string& id, const Json& workload);
  void let_go(const LedgerJob* job, const std::string& id, const Json& workload);
  void finished(const LedgerJob* job, const std::string& id, const Json& workload);
  void waiting(const LedgerJob& job, const Json& workload);
  void unknown(const LedgerJob& job);
  // Why no queue can take it; empty: its line.
  std::string obstacle(const LedgerJob& job, const api::SlurmQuotaLine*& line, JobPriority& priority) const;
  bool changed(const LedgerJob& job, const Json& workload) const;
  void step(What what, const std::string& id, Json object, std::string text = "", std::optional<Note> note = std::nullopt) {
    out_.steps.push_back({.what = what, .job = id, .object = std::move(object), .text = std::move(text), .note = std::move(note)});
  }
  void say(const LedgerJob& job, const Json& workload, std::string words) {
    words.resize(std::min(words.size(), kLongestComment));
    if (job.comment != words) step(What::Comment, job.id, workload, std::move(words));
  }
  bool follow_limit(const LedgerJob& job, const Json& workload) {
    Json next = workload;
    if (!put_time_limit(next, job.limit_seconds)) return false;
    step(What::UpdateWorkload, job.id, std::move(next));
    return true;
  }
  void no_finalizer(const std::string& id, const Json& workload) {
    Json next = workload;
    kube::remove_finalizer(next, kSlurmJob);
    step(What::UpdateWorkload, id, std::move(next));
  }

  const LedgerInput& in_;
  LedgerPlan out_;
  std::map<std::string, const Json*> workloads_;
  std::size_t waiting_ = 0;
};

std::string LedgerPlanner::obstacle(const LedgerJob& job, const api::SlurmQuotaLine*& line, JobPriority& priority) const {
  line = in_.quota.line_of(job.account);
  if (line == nullptr) {
    std::vector<std::string> known;
    for (const auto& one : in_.quota.lines) known.push_back(one.account);
    return fmt::format("account {} has no queue in this cluster; there are: {}", job.account.empty() ? "(none)" : plain(job.account), known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
  if (const auto why = in_.barred.find({line->space, line->queue}); why != in_.barred.end()) return why->second;
  if (!line->priority_class.empty()) {
    const auto found = in_.priorities.find(line->priority_class);
    if (found == in_.priorities.end()) return fmt::format("there is no WorkloadPriorityClass {}", line->priority_class);
    priority = found->second;
  }
  return "";
}

bool LedgerPlanner::changed(const LedgerJob& job, const Json& workload) const {
  const api::SlurmQuotaLine* line = nullptr;
  JobPriority priority;
  if (!obstacle(job, line, priority).empty()) return true;
  return workload["metadata"]["annotations"][kSlurmSize].string() != size_of(job) || kube::space_of(workload) != line->space || workload["spec"]["queueName"].string() != line->queue;
}

// It is being deleted: its job stops first, and goes back into the queue without quota.
void LedgerPlanner::let_go(const LedgerJob* job, const std::string& id, const Json& workload) {
  if (!kube::has_finalizer(workload, kSlurmJob)) return;
  if (job == nullptr || job->over() || job->held() || !in_.quota.on) {
    // Of a cluster without quotas: what runs goes on, what waits is let go.
    if (job != nullptr && job->held() && !in_.quota.on) return step(What::Release, id, workload);
    return no_finalizer(id, workload);
  }
  if (job->waits()) return step(What::Hold, id, workload);
  if (!job->cleans_up()) step(What::Requeue, id, workload, "", Note{true, "Stopped", "Its Workload was deleted: the job is held and put back into the queue"});
}

void LedgerPlanner::finished(const LedgerJob* job, const std::string& id, const Json& workload) {
  if (job != nullptr && !job->over()) {  // put back into the queue by hand after its end
    if (job->waits() && !job->held()) return job->held_by_user() ? void() : step(What::Hold, id, workload);
    return step(What::DeleteWorkload, id, workload);
  }
  if (kube::has_finalizer(workload, kSlurmJob)) return no_finalizer(id, workload);
  const auto since = parse_time((*kube::find_condition(workload, "Finished"))["lastTransitionTime"].string());
  if (!since || in_.now >= *since + kRemembered) step(What::DeleteWorkload, id, workload);
}

void LedgerPlanner::waiting(const LedgerJob& job, const Json& workload) {
  const api::SlurmQuotaLine* line = nullptr;
  JobPriority priority;
  const std::string why = obstacle(job, line, priority);
  if (!job.waits()) {
    if (!job.cleans_up()) {
      out_.runs_unadmitted.push_back(job.id);
      say(job, workload, "fairlead: runs although no queue admitted it");
    }
    return;
  }
  if (job.held_by_user()) return;
  if (!job.held()) return step(What::Hold, job.id, workload);
  if (holds_quota(workload)) return;  // of an admission that is not complete
  if (!why.empty() || kube::space_of(workload) != line->space) return step(What::DeleteWorkload, job.id, workload);
  const Json wanted = ledger_workload(in_.cluster, job, *line, priority);
  const Json& now = workload["spec"];
  if (changed(job, workload) || now["priority"].integer() != priority.value) {
    Json next = workload;
    for (const char* field : {"queueName", "podSets", "priority", "priorityClassRef"}) {
      if (wanted["spec"][field].is_null()) next.child("spec").erase(field);
      else next.child("spec").set(field, wanted["spec"][field]);
    }
    next.child("metadata").child("annotations").set(kSlurmSize, size_of(job));
    (void)put_time_limit(next, job.limit_seconds);
    return step(What::UpdateWorkload, job.id, std::move(next));
  }
  if (follow_limit(job, workload)) return;
  const Json* requeued = kube::find_condition(workload, "Requeued");
  const std::string again = requeued != nullptr ? fmt::format("taken back ({}), ", plain((*requeued)["reason"].string())) : "";
  say(job, workload, fmt::format("fairlead: {}waits for quota of queue {}/{}", again, line->space, line->queue));
}

void LedgerPlanner::with_workload(const LedgerJob* job, const std::string& id, const Json& workload) {
  if (kube::deleting(workload)) return let_go(job, id, workload);
  if (!in_.quota.on) {
    if (job != nullptr && job->held()) return step(What::Release, id, workload);
    return step(What::DeleteWorkload, id, workload);
  }
  if (kube::condition_is_true(workload, "Finished")) return finished(job, id, workload);
  if (job == nullptr || job->over()) {
    Json next = workload;
    const bool succeeded = job != nullptr && job->state == "COMPLETED";
    tell_finished(next, succeeded, job == nullptr ? (in_.gone ? "The SlurmCluster is gone" : "Slurm does not know the job any more") : fmt::format("The job ended as {}", job->state), in_.now);
    return step(What::WorkloadStatus, id, std::move(next));
  }
  const bool held_quota = holds_quota(workload);
  if (held_quota && kube::condition_is_true(workload, "Evicted")) {
    if (job->held()) {
      Json next = workload;
      tell_stopped(next, in_.now);
      return step(What::WorkloadStatus, id, std::move(next));
    }
    const Json* evicted = kube::find_condition(workload, "Evicted");
    if (job->waits()) return step(What::Hold, id, workload);
    if (!job->cleans_up()) step(What::Requeue, id, workload, "", Note{false, "Stopped", (*evicted)["message"].string()});
    return;
  }
  if (!held_quota || !kube::condition_is_true(workload, "Admitted")) return waiting(*job, workload);
  const std::string queue = fmt::format("{}/{}", kube::space_of(workload), workload["spec"]["queueName"].string());
  if (job->waits() && changed(*job, workload)) {
    if (!job->held()) return step(What::Hold, id, workload);
    return step(What::DeleteWorkload, id, workload, "", Note{true, "Stopped", "The job was changed after it was admitted: it is queued anew"});
  }
  if (job->held()) return step(What::Release, id, workload, "", Note{false, "Started", fmt::format("Admitted by clusterQueue {}", workload["status"]["admission"]["clusterQueue"].string())});
  if (follow_limit(*job, workload)) return;
  say(*job, workload, fmt::format("fairlead: admitted by queue {}", queue));
}

// A job without a Workload.
void LedgerPlanner::unknown(const LedgerJob& job) {
  const api::SlurmQuotaLine* line = nullptr;
  JobPriority priority;
  const std::string why = obstacle(job, line, priority);
  if (!job.waits() && !job.cleans_up()) out_.runs_unadmitted.push_back(job.id);
  if (job.held_by_user() || job.cleans_up()) return;
  if (job.waits() && !job.held()) return step(What::Hold, job.id, Json());
  if (!why.empty()) {
    out_.no_queue[job.id] = why;
    return say(job, Json(), "fairlead: " + why);
  }
  if (job.waits() && job.depends) return say(job, Json(), "fairlead: gets into its queue when the jobs that it depends on have ended");
  if (job.waits() && ++waiting_ > kMostWaiting) return;  // behind so many others of its cluster
  step(What::CreateWorkload, job.id, ledger_workload(in_.cluster, job, *line, priority));
}

void LedgerPlanner::one(const std::string& id) {
  const auto known = in_.jobs ? in_.jobs->find(id) : std::map<std::string, LedgerJob>::const_iterator();
  const LedgerJob* job = in_.jobs && known != in_.jobs->end() ? &known->second : nullptr;
  const auto workload = workloads_.find(id);
  // Nobody was asked for it: it is not known to be over.
  if (job == nullptr && !in_.gone && !in_.asked.contains(id)) return;
  if (workload != workloads_.end()) return with_workload(job, id, *workload->second);
  if (job == nullptr || job->over()) return;
  if (in_.quota.on) return unknown(*job);
  if (job->held() && job->marked()) step(What::Release, id, Json());
}

LedgerPlan LedgerPlanner::plan() {
  if (!in_.jobs && !in_.gone) return {};
  std::set<std::string, ByNumber> ids;
  for (const Json& workload : in_.workloads) {
    const std::string id = job_of_workload(workload);
    if (id.empty() || workload["metadata"]["labels"][kSlurmClusterUid].string() != kube::uid_of(in_.cluster)) continue;
    const auto [at, first] = workloads_.emplace(id, &workload);
    // Moved to the queue of another namespace: the old one goes first.
    if (!first && kube::deleting(workload)) at->second = &workload;
    ids.insert(id);
    if (!holds_quota(workload) && !kube::condition_is_true(workload, "Finished")) ++waiting_;
  }
  if (in_.jobs)
    for (const auto& [id, job] : *in_.jobs)
      if (job.user != "nobody") ids.insert(id);  // checks of nodes are nobody's
  for (const std::string& id : ids) one(id);
  const auto urgency = [](const LedgerStep& step) {
    switch (step.what) {
      case What::Hold: return 0;
      case What::Requeue: return 1;
      case What::WorkloadStatus: return 2;
      case What::Release: return 3;
      case What::Comment: return 5;
      default: return 4;
    }
  };
  std::stable_sort(out_.steps.begin(), out_.steps.end(), [&](const LedgerStep& a, const LedgerStep& b) { return urgency(a) < urgency(b); });
  return std::move(out_);
}

bool job_number(std::string_view id) {
  const auto digits = [](std::string_view text) { return !text.empty() && text.size() < 12 && text.find_first_not_of("0123456789") == text.npos; };
  const auto bar = id.find('_');
  return digits(id.substr(0, bar)) && (bar == id.npos || digits(id.substr(bar + 1)));
}

}  // namespace

std::string_view text(What what) {
  switch (what) {
    case What::CreateWorkload: return "create Workload";
    case What::UpdateWorkload: return "update Workload";
    case What::WorkloadStatus: return "write status of Workload";
    case What::DeleteWorkload: return "delete Workload";
    case What::Hold: return "queue-hold";
    case What::Release: return "queue-release";
    case What::Requeue: return "queue-requeue";
    case What::Comment: return "queue-comment";
  }
  return "";
}

bool LedgerJob::over() const {
  static const std::set<std::string, std::less<>> words = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED"};
  return words.contains(state);
}

Result<std::map<std::string, LedgerJob>> read_ledger_jobs(std::string_view json) {
  auto read = kube::parse_json(json);
  if (!read) return pass(std::move(read.error()), "what Slurm knows of its jobs");
  if (!(*read)["jobs"].is_array()) return fail(Code::Invalid, "what Slurm knows of its jobs: no list of jobs");
  std::map<std::string, LedgerJob> out;
  for (const Json& from : (*read)["jobs"].items()) {
    LedgerJob job{.id = from["id"].string(), .state = from["state"].string(), .reason = from["reason"].string(), .user = from["user"].string(), .account = from["account"].string(), .comment = from["comment"].string(), .parts = {}, .is_held = from["held"].boolean(), .is_held_by_user = from["heldByUser"].boolean(), .depends = from["depends"].boolean(), .limit_seconds = std::max<std::int64_t>(0, from["limitSeconds"].integer())};
    // The id becomes an argument of a command.
    if (!job_number(job.id) || job.state.empty()) return fail(Code::Invalid, "a job without id or state");
    for (const Json& one : from["parts"].items()) {
      const LedgerJob::Part part{.nodes = one["nodes"].integer(-1), .cpus = one["cpus"].integer(-1), .memory_mib = one["memory"].integer(-1), .gpus = one["gpus"].integer(-1)};
      constexpr std::int64_t most = 1'000'000'000'000;
      if (part.nodes < 1 || part.nodes > 1'000'000 || part.cpus < 0 || part.cpus > most || part.memory_mib < 0 || part.memory_mib > most || part.gpus < 0 || part.gpus > most) return fail(Code::Invalid, fmt::format("size of job {}", job.id));
      job.parts.push_back(part);
    }
    if (job.parts.empty()) return fail(Code::Invalid, fmt::format("job {} without size", job.id));
    std::string id = job.id;
    if (!out.emplace(std::move(id), std::move(job)).second) return fail(Code::Invalid, "a job is there twice");
  }
  return out;
}

std::string job_of_workload(const Json& workload) {
  const std::string& at = workload["metadata"]["annotations"][kSlurmJob].string();
  const auto slash = at.rfind('/');
  if (slash == at.npos || !cluster_of_workload(workload)) return "";
  std::string id = at.substr(slash + 1);
  return job_number(id) ? id : "";
}

std::optional<kube::ObjectKey> cluster_of_workload(const Json& workload) {
  const auto words = split(workload["metadata"]["annotations"][kSlurmJob].string(), '/');
  if (words.size() != 3 || words[0].empty() || words[1].empty()) return std::nullopt;
  return kube::ObjectKey{words[0], words[1]};
}

Json ledger_workload(const Json& cluster, const LedgerJob& job, const api::SlurmQuotaLine& line, const JobPriority& priority) {
  const std::string &space = kube::space_of(cluster), &name = kube::name_of(cluster);
  std::string of = job.id;
  std::replace(of.begin(), of.end(), '_', '-');
  Json spec = Json::object({{"queueName", line.queue}, {"podSets", pod_sets_of(job)}, {"priority", priority.value}});
  if (!priority.ref.is_null()) spec.set("priorityClassRef", priority.ref);
  const std::string digest = hex(sha256(fmt::format("{}\n{}\n{}\n{}", space, name, kube::uid_of(cluster), job.id))).substr(0, 8);
  Json out = Json::object({{"apiVersion", "kueue.x-k8s.io/v1beta2"},
                             {"kind", "Workload"},
                             {"metadata", Json::object({{"name", fmt::format("slurm-{}-{}-{}", name.substr(0, 200), of, digest)},
                                                        {"namespace", line.space},
                                                        {"labels", Json::object({{kSlurmClusterUid, kube::uid_of(cluster)}})},
                                                        {"annotations", Json::object({{kSlurmJob, fmt::format("{}/{}/{}", space, name, job.id)}, {kSlurmSize, size_of(job)}})},
                                                        {"finalizers", Json::array({kSlurmJob})}})},
                             {"spec", std::move(spec)}});
  (void)put_time_limit(out, job.limit_seconds);
  return out;
}

LedgerPlan plan_ledger(const LedgerInput& in) { return LedgerPlanner(in).plan(); }

}  // namespace fairlead::governance
