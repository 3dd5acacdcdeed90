// SPDX-License-Identifier: Apache-2.0
// ActiveChecks that really run (docs/design/014): when, on which nodes, and what follows from what they say. Pure: the object, what was remembered in its status, the cluster's workers and what Slurm knows in;
// steps, status and when to look again out. Asked again with the same arguments it says the same; a step may be repeated.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/cron.h"
#include "kube/object.h"
#include "slurm/plan/check_view.h"
#include "slurm/plan/reboot.h"

namespace fairlead::slurm {

// An ActiveCheck (slurm.nebius.ai/v1alpha1) as a value.
struct CheckRules {
  std::string name, uid, cluster;
  Instant created;
  std::optional<Cron> schedule;  // none: suspended
  bool after_creation = true;    // one run when it is first seen, also of a suspended one
  bool pods = false;             // of type k8sJob: Kubernetes Jobs (check_jobs.h), not Slurm's
  bool each_worker = false;      // one job on each worker; else one job on any
  std::int64_t most_jobs = 0;    // of a run; 0: as many as there are workers
  std::size_t keep_good = 3, keep_bad = 16;  // Kubernetes Jobs of earlier runs
  std::chrono::seconds deadline{1800};
  // spec.extensions: a worker is drained when `failures` of its last `of` results are failures, the last one among them.
  int failures = 1, of = 1;
  // The most workers that are out of service for checks at once: of all checks of the cluster together.
  int budget_nodes = 0, budget_percent = 10;  // nodes 0: the percentage, and one at least
  bool drain = false, comment = false, comment_success = false;
  std::string drain_prefix, comment_prefix, success_prefix;
  std::optional<RebootRules> reboot;  // the machine of a worker that it has drained
  std::vector<std::string> depends_on;
  std::vector<std::string> problems, ignored;
};
// Never fails: what cannot be read becomes a problem, and the check does not run. `script` is told apart: it may lie in a ConfigMap.
CheckRules read_check(const kube::Json& object);

struct CheckInput {
  CheckRules rules;
  kube::Json object;                 // whose status is written
  std::vector<std::string> workers;  // of the cluster, in order, by their names in Slurm
  std::map<std::string, std::string> machines{};  // of a check of type k8sJob: the Nodes that workers are on
  std::map<std::string, RebootMachine> reboots{};  // of the workers of reboot_workers
  std::vector<std::string> unmet;    // of depends_on: have not passed yet
  std::string waits_for;             // why nothing may run now (no cluster, no head, no script); empty: it may
  const char* waits_reason = "";     // in one word
  std::optional<CheckView> view;     // none: Slurm was not asked, or did not answer: then nothing is concluded
  Instant now;
};

struct SubmitJobs {  // the script on each of these nodes, where this run has no job yet; "-": anywhere
  std::string run;
  std::vector<std::string> nodes;
  std::string reservation{};  // to be run in it
};
struct CancelJob { std::string id; };
struct RemoveJob { std::string name, uid; };  // a Kubernetes Job of an earlier run
struct DrainNode { std::string node, reason; int most = 0; };  // unless `most` are out of service for checks already
struct CommentNode { std::string node, text; };                // unless somebody else's comment is there
using CheckStep = std::variant<SubmitJobs, CancelJob, RemoveJob, DrainNode, CommentNode, AskReboot, BeginTrial, SettleTrial>;
std::string describe(const CheckStep& step);

struct CheckPlan {
  std::vector<CheckStep> steps;  // to be taken before the object is written, so that none is forgotten
  kube::Json object;             // with its new status
  std::vector<std::string> told;  // reboots that have come to their end, for the log
  std::optional<std::chrono::nanoseconds> look_again;
};

// Workers of which the look must say whether anything is on them; after it, those whose machines must be known (`reboots`).
std::vector<std::string> reboot_workers(const CheckInput& input);
// Must Slurm, or Kubernetes, be asked before the plan is made?
bool needs_look(const CheckInput& input);
// Must Slurm be, beside the Jobs of a check of type k8sJob? Not where the check is of no worker.
bool needs_nodes(const CheckInput& input);
CheckPlan plan_check(const CheckInput& input);
// A check of which a worker is being tried leaves a reservation that nobody would take away: it carries this finalizer while that may be so, from before the reservation is made.
inline constexpr const char* kTrialFinalizer = "fairlead.dev/check-trial";
bool is_trying(const kube::Json& object);
// The check is being deleted: its tries are ended, and their workers stay drained, with a reason that says so. Nothing else is done. With a view only.
CheckPlan plan_end_of_trials(const CheckInput& input);
// sbatch, or Kubernetes, did not take the job of that run: no result, told.
void note_refused(kube::Json& object, const std::string& node, const std::string& words, const std::string& run);

// What a job that has ended says of its node. Only a script that ran to its end and said no says that the node is bad: exit status 1 to 125. Anything else (killed, out of time, not found, cancelled, the node gone)
// is unknown, and nothing follows from it.
enum class CheckResult { Going, Good, Bad, Unknown };
CheckResult verdict_of(const CheckJob& job);

// A run takes at most so many workers, by turns, and so much is remembered of them: the object stays far below what an API server stores.
inline constexpr std::size_t kMostTargets = 2000;

inline constexpr std::string_view kCheckMark = "fairlead: check ";  // in every reason and comment of a check, behind the user's prefix

}  // namespace fairlead::slurm
