// SPDX-License-Identifier: Apache-2.0
// Jobs of a SlurmCluster as Workloads, and the decisions on those carried back to Slurm: held until admitted, released, held and requeued when evicted. docs/design/033-slurm-jobs-in-the-ledger.md.
// Pure: at most one step for each job, from what is there; after any step, and after a crash before or behind it, the next one follows from Slurm's answer and the objects alone.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "api/slurm_quota.h"
#include "base/result.h"
#include "governance/plan/books.h"
#include "governance/plan/job_workload.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char* kSlurmJob = "fairlead.dev/slurm-job";            // annotation: NAMESPACE/CLUSTER/JOB; and the finalizer that keeps a Workload while its job may run
inline constexpr const char* kSlurmClusterUid = "fairlead.dev/slurm-cluster-uid";  // label
inline constexpr const char* kSlurmSize = "fairlead.dev/slurm-size";          // annotation: what the job asked for when its pod sets were written

struct LedgerJob {
  std::string id, state, reason, user, account, comment;  // as Slurm says them; comment: AdminComment
  struct Part {
    std::int64_t nodes = 1, cpus = 0, memory_mib = 0, gpus = 0;  // in all
  };
  std::vector<Part> parts;
  bool is_held = false, is_held_by_user = false;  // while it waits: by an administrator (us), by its user
  bool depends = false;                            // waits for other jobs
  std::int64_t limit_seconds = 0;                  // at most so long it runs; 0: no end, or not known
  bool waits() const { return state == "PENDING"; }
  bool over() const;
  bool cleans_up() const { return state == "COMPLETING"; }  // its nodes are not free yet
  bool held() const { return waits() && is_held; }
  bool held_by_user() const { return waits() && is_held_by_user; }
  bool marked() const { return comment.starts_with("fairlead: "); }  // held by us, or seen by us
};
// What `fairlead-slurm queue-look` prints, by id. Invalid: not the whole answer; nothing is known then.
Result<std::map<std::string, LedgerJob>> read_ledger_jobs(std::string_view json);

struct LedgerInput {
  kube::Json cluster;                                     // metadata of the SlurmCluster
  api::SlurmQuota quota;
  bool gone = false;                                      // it is not there any more, and none of its pods
  std::optional<std::map<std::string, LedgerJob>> jobs;   // none: Slurm did not answer
  std::set<std::string> asked;                            // jobs that Slurm was asked for by number in the same look
  std::vector<kube::Json> workloads;                      // of this cluster
  std::map<kube::ObjectKey, std::string> barred;          // LocalQueues of the lines that this cluster may not use, and why
  std::map<std::string, JobPriority> priorities;          // by class
  Instant now;
};

struct LedgerStep {
  enum class What { CreateWorkload, UpdateWorkload, WorkloadStatus, DeleteWorkload, Hold, Release, Requeue, Comment };
  What what = What::Comment;
  std::string job;
  kube::Json object;              // the Workload as it is to be; of a step in Slurm: as it was decided on, null where there is none
  std::string text;               // of Comment
  std::optional<Note> note;       // about the Workload
};
std::string_view text(LedgerStep::What what);

struct LedgerPlan {
  std::vector<LedgerStep> steps;               // the most urgent first
  std::vector<std::string> runs_unadmitted;    // jobs
  std::map<std::string, std::string> no_queue;  // jobs that no queue can take, and why
};

// Without an answer of Slurm: nothing.
LedgerPlan plan_ledger(const LedgerInput& in);

std::string job_of_workload(const kube::Json& workload);                         // "7_3"; empty: it is of no job of Slurm
std::optional<kube::ObjectKey> cluster_of_workload(const kube::Json& workload);
kube::Json ledger_workload(const kube::Json& cluster, const LedgerJob& job, const api::SlurmQuotaLine& line, const JobPriority& priority);

}  // namespace fairlead::governance
