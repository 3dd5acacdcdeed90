// SPDX-License-Identifier: Apache-2.0
// ActiveChecks that really run (docs/design/014): when, on which nodes, and what follows from what they say. Pure: the object, what was remembered in its status, the cluster's workers and what Slurm knows in;
// steps, status and when to look again out. Asked again with the same arguments it says the same; a step may be repeated.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kube/object.h"
#include "slurm/plan/check_view.h"
#include "slurm/plan/cron.h"

namespace fairlead::slurm {

// An ActiveCheck (slurm.nebius.ai/v1alpha1) as a value, of type slurmJob.
struct CheckRules {
  std::string name, uid, cluster;
  Instant created;
  std::optional<Cron> schedule;  // none: suspended
  bool after_creation = true;    // one run when it is first seen, also of a suspended one
  bool each_worker = false;      // one job on each worker; else one job on any
  std::int64_t most_jobs = 0;    // of a run; 0: as many as there are workers
  std::chrono::seconds deadline{1800};
  // spec.extensions: a worker is drained when `failures` of its last `of` results are failures, the last one among them.
  int failures = 1, of = 1;
  // The most workers that are out of service for checks at once: of all checks of the cluster together.
  int budget_nodes = 0, budget_percent = 10;  // nodes 0: the percentage, and one at least
  bool drain = false, comment = false, comment_success = false;
  std::string drain_prefix, comment_prefix, success_prefix;
  std::vector<std::string> depends_on;
  std::vector<std::string> problems, ignored;
};
// Never fails: what cannot be read becomes a problem, and the check does not run. `script` is told apart: it may lie in a ConfigMap.
CheckRules read_check(const kube::Json& object);

struct CheckInput {
  CheckRules rules;
  kube::Json object;                 // whose status is written
  std::vector<std::string> workers;  // of the cluster, in order, by their names in Slurm
  std::vector<std::string> unmet;    // of depends_on: have not passed yet
  std::string waits_for;             // why nothing may run now (no cluster, no head, no script); empty: it may
  const char* waits_reason = "";     // in one word
  std::optional<CheckView> view;     // none: Slurm was not asked, or did not answer: then nothing is concluded
  Instant now;
};

struct SubmitJobs {  // the script on each of these nodes, where this run has no job yet; "-": anywhere
  std::string run;
  std::vector<std::string> nodes;
};
struct CancelJob { std::string id; };
struct DrainNode { std::string node, reason; int most = 0; };  // unless `most` are out of service for checks already
struct CommentNode { std::string node, text; };                // unless somebody else's comment is there
using CheckStep = std::variant<SubmitJobs, CancelJob, DrainNode, CommentNode>;
std::string describe(const CheckStep& step);

struct CheckPlan {
  std::vector<CheckStep> steps;  // to be taken before the object is written, so that none is forgotten
  kube::Json object;             // with its new status
  std::optional<std::chrono::nanoseconds> look_again;
};

// Must Slurm be asked before the plan is made?
bool needs_look(const CheckInput& input);
CheckPlan plan_check(const CheckInput& input);
// sbatch did not take the job: no result, told.
void note_refused(kube::Json& object, const std::string& node, const std::string& words, Instant now);

// What a job that has ended says of its node. Only a script that ran to its end and said no says that the node is bad: exit status 1 to 125. Anything else (killed, out of time, not found, cancelled, the node gone)
// is unknown, and nothing follows from it.
enum class CheckResult { Going, Good, Bad, Unknown };
CheckResult verdict_of(const CheckJob& job);

inline constexpr std::string_view kCheckMark = "fairlead: check ";  // in every reason and comment of a check, behind the user's prefix

}  // namespace fairlead::slurm
