// SPDX-License-Identifier: Apache-2.0
#include "base/test_rounds.h"
#include "slurm/plan/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "base/rng.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

const Instant kStart = *parse_time("2026-11-22T04:10:30Z");

Json check(const std::string& spec) {
  auto parsed = kube::parse_yaml("{metadata: {name: gpu, namespace: lab, uid: u-1, generation: 2, creationTimestamp: '2026-11-22T04:10:00Z'}, spec: {name: gpu, slurmClusterRefName: demo, " + (spec.find("checkType") == spec.npos ? std::string("checkType: slurmJob, ") : std::string()) + spec + "}}");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}

// Slurm with some workers, and what the operator and people do there.
struct World {
  Json object;
  std::map<std::string, SlurmNode> nodes;
  std::vector<CheckJob> jobs;
  Instant now = kStart;
  bool answers = true;
  int next_id = 7;
  std::vector<std::string> comments;
  explicit World(const std::string& spec, int workers = 3) : object(check(spec)) {
    for (int i = 0; i < workers; ++i) set(fmt::format("worker-{}", i), {"IDLE", "DYNAMIC_NORM"});
  }
  void set(const std::string& name, std::vector<std::string> state, std::string reason = "") { nodes[name] = {.name = name, .state = std::move(state), .reason = std::move(reason)}; }
  CheckInput input() {
    CheckInput in{.rules = read_check(object), .object = object, .now = now};
    for (const auto& [name, node] : nodes) {
      in.workers.push_back(name);
      in.machines[name] = "machine-of-" + name;
    }
    if (answers && needs_look(in)) in.view = CheckView{nodes, jobs};
    return in;
  }
  // One round, all of its steps taken.
  std::vector<std::string> round() {
    CheckPlan plan = plan_check(input());
    std::vector<std::string> out;
    for (const auto& step : plan.steps) {
      out.push_back(describe(step));
      if (const auto* submit = std::get_if<SubmitJobs>(&step))
        for (const auto& node : submit->nodes) jobs.push_back({.id = std::to_string(next_id++), .run = submit->run, .state = "RUNNING", .requested = node == "-" ? std::vector<std::string>() : std::vector{node}, .nodes = {node == "-" ? "worker-0" : node}});
      if (const auto* gone = std::get_if<RemoveJob>(&step)) std::erase_if(jobs, [&](const CheckJob& job) { return job.id == gone->name; });
      if (const auto* drained = std::get_if<DrainNode>(&step)) set(drained->node, {"IDLE", "DRAIN"}, drained->reason);
      if (const auto* cancel = std::get_if<CancelJob>(&step))
        for (auto& job : jobs)
          if (job.id == cancel->id) job.state = "CANCELLED";
      if (const auto* comment = std::get_if<CommentNode>(&step)) comments.push_back(comment->node + ": " + comment->text);
    }
    object = plan.object;
    return out;
  }
  void end(const std::string& node, const std::string& state, int exit = 0, int signal = 0) {
    for (auto& job : jobs)
      if (job.nodes == std::vector{node} && job.state == "RUNNING") job.state = state, job.exit_code = exit, job.signal = signal;
  }
  void end_all() {
    for (auto& job : jobs)
      if (job.state == "RUNNING") job.state = "COMPLETED";
  }
  // The next time at which the schedule is due, with these workers failing.
  void whole_run(const std::vector<std::string>& failing) {
    now += 1h;
    round();
    for (const auto& node : failing) end(node, "FAILED", 1);
    end_all();
    round();
  }
  std::string condition(const char* type) {
    const Json* found = kube::find_condition(object, type);
    return found ? fmt::format("{} {}: {}", (*found)["status"].string(), (*found)["reason"].string(), (*found)["message"].string()) : "absent";
  }
  std::string status() { return object["status"]["slurmJobsStatus"]["lastRunStatus"].string(); }
};

constexpr const char* kHourly = "suspend: false, runAfterCreation: false, schedule: '0 * * * *', slurmJobSpec: {sbatchScript: x, eachWorkerJobs: true}, failureReactions: {drainSlurmNode: {drainReasonPrefix: '[node_problem]'}}";

struct Verdict {
  const char* state;
  int exit, signal;
  CheckResult want;
};
TEST(Checks, OnlyAScriptThatSaysNoMakesANodeBad) {
  for (const auto& row : {Verdict{"COMPLETED", 0, 0, CheckResult::Good}, Verdict{"FAILED", 1, 0, CheckResult::Bad}, Verdict{"FAILED", 125, 0, CheckResult::Bad}, Verdict{"FAILED", 126, 0, CheckResult::Unknown},
                          Verdict{"FAILED", 127, 0, CheckResult::Unknown}, Verdict{"FAILED", 137, 0, CheckResult::Unknown}, Verdict{"FAILED", 0, 9, CheckResult::Unknown}, Verdict{"FAILED", 0, 0, CheckResult::Unknown},
                          Verdict{"TIMEOUT", 0, 15, CheckResult::Unknown}, Verdict{"NODE_FAIL", 0, 0, CheckResult::Unknown}, Verdict{"CANCELLED", 0, 15, CheckResult::Unknown}, Verdict{"OUT_OF_MEMORY", 0, 125, CheckResult::Unknown},
                          Verdict{"PREEMPTED", 0, 0, CheckResult::Unknown}, Verdict{"RUNNING", 0, 0, CheckResult::Going}, Verdict{"PENDING", 0, 0, CheckResult::Going}, Verdict{"COMPLETING", 256, 0, CheckResult::Going},
                          Verdict{"SOMETHING_NEW", 1, 0, CheckResult::Going}})
    EXPECT_EQ(static_cast<int>(verdict_of({.id = "1", .run = "1", .state = row.state, .exit_code = row.exit, .signal = row.signal})), static_cast<int>(row.want)) << row.state << " " << row.exit << " " << row.signal;
}

TEST(Checks, RunAtTheirTimeOnEachWorkerAndDrainTheOneThatFails) {
  World world(kHourly);
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_FALSE(needs_look(world.input()));
  EXPECT_EQ(world.condition("Scheduled"), "True Waiting: runs next at 2026-11-22T05:00:00Z");
  world.now = *parse_time("2026-11-22T05:00:01Z");
  EXPECT_THAT(world.round(), ElementsAre("run 1795323600 on worker-0,worker-1,worker-2"));
  EXPECT_EQ(world.status(), "InProgress");
  EXPECT_THAT(world.round(), IsEmpty()) << "they run";
  world.end("worker-1", "FAILED", 3);
  world.end_all();
  EXPECT_THAT(world.round(), ElementsAre("drain worker-1 (1 at most): [node_problem] fairlead: check gpu: 1 of its last 1 results failed, the last one in job 8"));
  EXPECT_EQ(world.status(), "Failed");
  EXPECT_EQ(world.condition("Passed"), "False Failed: 2 passed, 1 failed: worker-1 (job 8, exit status 3)");
  EXPECT_EQ(world.object["status"]["slurmJobsStatus"]["lastRunFailJobsAndReasons"].items()[0]["jobID"].string(), "8");
  EXPECT_THAT(world.round(), IsEmpty());
  // Brought back by somebody: it begins anew, and is not drained for what is past.
  world.set("worker-1", {"IDLE"});
  EXPECT_THAT(world.round(), IsEmpty());
  world.whole_run({});
  EXPECT_EQ(world.status(), "Complete");
  EXPECT_THAT(world.condition("Passed"), StartsWith("True Complete: 3 passed"));
  EXPECT_EQ(world.object["status"]["observedGeneration"].integer(), 2);
}

TEST(Checks, EachPlanSaysTheSameTwice) {
  World world(kHourly);
  world.round();
  world.now += 1h;
  const CheckInput in = world.input();
  const CheckPlan one = plan_check(in), two = plan_check(in);
  ASSERT_EQ(one.steps.size(), 1U);
  EXPECT_EQ(describe(one.steps[0]), describe(two.steps[0]));
  EXPECT_EQ(one.object, two.object);
}

// The operator dies between a step and the write of its status: the same run again, and no second job.
TEST(Checks, AnOperatorThatForgotGoesOnWithTheSameRun) {
  World world(kHourly);
  world.round();
  world.now += 1h;
  const Json before = world.object;
  world.round();
  const auto jobs = world.jobs;
  world.object = before;
  world.now += 20s;
  EXPECT_THAT(world.round(), IsEmpty()) << "each has a job of this run";
  EXPECT_EQ(world.jobs.size(), jobs.size());
  world.end_all();
  world.round();
  EXPECT_EQ(world.status(), "Complete");
}

struct Waits {
  const char* name;
  std::vector<std::string> state;
  bool runs, waits;  // neither: left out of this run
};
class CheckPlaces : public testing::TestWithParam<Waits> {};
TEST_P(CheckPlaces, AreNeverTakenFromAnybody) {
  World world(kHourly, 1);
  world.round();
  world.set("worker-0", GetParam().state);
  world.now += 1h;
  EXPECT_EQ(world.round().size(), GetParam().runs ? 1U : 0U);
  EXPECT_EQ(world.status(), GetParam().runs || GetParam().waits ? "InProgress" : "Error");
  if (GetParam().waits) {
    world.set("worker-0", {"MIXED"});
    EXPECT_THAT(world.round(), ElementsAre(StartsWith("run ")));
  }
  if (!GetParam().runs && !GetParam().waits) {
    EXPECT_THAT(world.condition("Passed"), HasSubstr("not checked, since they were busy or out of service: worker-0"));
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, CheckPlaces,
                         testing::Values(Waits{"idle", {"IDLE"}, true, false}, Waits{"some_room", {"MIXED"}, true, false}, Waits{"full", {"ALLOCATED"}, false, true}, Waits{"completing", {"MIXED", "COMPLETING"}, false, true},
                                         Waits{"drained", {"IDLE", "DRAIN"}, false, false}, Waits{"failing", {"IDLE", "FAIL"}, false, false}, Waits{"down", {"DOWN"}, false, false}, Waits{"silent", {"IDLE", "NOT_RESPONDING"}, false, false},
                                         Waits{"reserved", {"IDLE", "RESERVED"}, false, false}, Waits{"maintenance", {"IDLE", "MAINTENANCE"}, false, false}),
                         [](const auto& row) { return row.param.name; });

TEST(Checks, AWorkerThatStaysBusyIsLeftToTheNextRun) {
  World world(kHourly, 2);
  world.round();
  world.set("worker-1", {"ALLOCATED"});
  world.now += 1h;
  EXPECT_THAT(world.round(), ElementsAre(HasSubstr("on worker-0")));
  world.end_all();
  world.round();
  EXPECT_EQ(world.status(), "InProgress");
  world.now += 1h;
  world.round();
  EXPECT_EQ(world.status(), "Complete");
  EXPECT_THAT(world.condition("Passed"), HasSubstr("busy or out of service: worker-1"));
  EXPECT_THAT(world.round(), ElementsAre(HasSubstr("on worker-0"))) << "the next one";
}

TEST(Checks, KOfNWithTheLastOneFailing) {
  World world(std::string(kHourly) + ", extensions: {failures: 2, of: 3, maxDrained: 3}");
  world.round();
  world.whole_run({"worker-1"});
  EXPECT_FALSE(world.nodes["worker-1"].drained());
  world.whole_run({});
  EXPECT_FALSE(world.nodes["worker-1"].drained());
  world.whole_run({"worker-1"});
  EXPECT_TRUE(world.nodes["worker-1"].drained());
  EXPECT_THAT(world.nodes["worker-1"].reason, HasSubstr("2 of its last 3 results failed"));
  world.whole_run({"worker-2"});
  for (int i = 0; i < 3; ++i) world.whole_run({});
  world.whole_run({"worker-2"});
  EXPECT_FALSE(world.nodes["worker-2"].drained()) << "the first failure is too long ago";
}

TEST(Checks, UnknownResultsHaveNoReaction) {
  World world(kHourly);
  world.round();
  world.now += 1h;
  world.round();
  world.end("worker-0", "TIMEOUT", 0, 15);
  world.end("worker-1", "FAILED", 127);
  world.jobs.pop_back();  // and one that Slurm has forgotten
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_EQ(world.status(), "Error");
  EXPECT_THAT(world.condition("Passed"), AllOf(StartsWith("Unknown Error: 0 passed; 3 without a result"), HasSubstr("worker-0 (job 7, TIMEOUT)"), HasSubstr("worker-2 (Slurm knows its job no more)")));
}

TEST(Checks, ASilentSlurmProvesNothing) {
  World world(kHourly);
  world.round();
  world.answers = false;
  world.now += 1h;
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.condition("Scheduled"), StartsWith("False SlurmSilent"));
  world.answers = true;
  EXPECT_THAT(world.round(), ElementsAre(StartsWith("run 1795323600")));
}

TEST(Checks, TheBudgetHoldsForAllChecksTogether) {
  World world(std::string(kHourly) + ", extensions: {maxDrained: 20%}", 10);
  world.set("worker-9", {"IDLE", "DRAIN"}, "fairlead: check other: 1 of its last 1 results failed, the last one in job 3");
  world.set("worker-8", {"IDLE", "DRAIN"}, "disk, ada looks at it");
  world.round();
  world.whole_run({"worker-0", "worker-1", "worker-2"});
  EXPECT_TRUE(world.nodes["worker-0"].drained());
  EXPECT_FALSE(world.nodes["worker-1"].drained() || world.nodes["worker-2"].drained());
  EXPECT_THAT(world.condition("Scheduled"), HasSubstr("worker-1, worker-2 failed and stay in service, for 2 may be out of service for checks at once"));
  EXPECT_EQ(world.nodes["worker-8"].reason, "disk, ada looks at it");
  world.set("worker-9", {"IDLE"});
  EXPECT_THAT(world.round(), ElementsAre(StartsWith("drain worker-1 (2 at most)"))) << "room for one more";
  world.whole_run({});
  EXPECT_FALSE(world.nodes["worker-2"].drained()) << "it has passed since";
}

TEST(Checks, AJobThatDoesNotStartIsGivenUp) {
  World world(std::string(kHourly) + ", activeDeadlineSeconds: 600", 1);
  world.round();
  world.now += 1h;
  world.round();
  world.jobs[0].state = "PENDING";
  world.now += 10min;
  EXPECT_THAT(world.round(), IsEmpty());
  world.now += 1s;
  EXPECT_THAT(world.round(), ElementsAre("cancel 7"));
  world.round();
  EXPECT_EQ(world.status(), "Error");
  EXPECT_EQ(world.object["status"]["slurmJobsStatus"]["lastRunCancelledJobs"].items()[0].string(), "7");
}

TEST(Checks, RunOnceAfterCreationAlsoWhenSuspended) {
  World world("suspend: true, slurmJobSpec: {sbatchScript: x}, successReactions: {commentSlurmNode: {commentPrefix: 'ok'}}");
  EXPECT_THAT(world.round(), ElementsAre("run 1795320600 on -"));
  world.end_all();
  EXPECT_THAT(world.round(), ElementsAre("comment worker-0: ok fairlead: check gpu passed in job 7 at 2026-11-22T04:10:30Z"));
  EXPECT_EQ(world.status(), "Complete");
  EXPECT_THAT(world.condition("Scheduled"), StartsWith("False Suspended"));
  world.now += 24h * 400;
  EXPECT_THAT(world.round(), IsEmpty());
}

TEST(Checks, OfSeveralNodesNobodyIsToBlame) {
  World world("suspend: true, slurmJobSpec: {sbatchScript: x}, failureReactions: {drainSlurmNode: {}, commentSlurmNode: {}}");
  world.round();
  world.jobs[0].nodes = {"worker-0", "worker-1"};
  world.jobs[0].state = "FAILED";
  world.jobs[0].exit_code = 1;
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.condition("Passed"), HasSubstr("1 failed: worker-0,worker-1 (job 7, exit status 1)"));
}

TEST(Checks, AScheduleThatWasSwitchedOffMakesUpForNothing) {
  World world(kHourly);
  world.round();
  world.object.child("spec").set("suspend", true);
  world.now += 5h;
  EXPECT_THAT(world.round(), IsEmpty());
  world.object.child("spec").set("suspend", false);
  world.now += 5h;
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.condition("Scheduled"), StartsWith("True Waiting: runs next at 2026-11-22T15:00:00Z"));
}

TEST(Checks, WaitForTheOthersThatTheyDependOn) {
  World world(std::string(kHourly) + ", dependsOn: [first]");
  world.round();
  world.now += 1h;
  CheckInput in = world.input();
  in.unmet = {"first"};
  in.view.reset();
  const CheckPlan plan = plan_check(in);
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_EQ((*kube::find_condition(plan.object, "Scheduled"))["reason"].string(), "WaitsForOthers");
}

TEST(Checks, TakeAFewWorkersInTurnWhereAskedTo) {
  World world("suspend: false, runAfterCreation: false, schedule: '0 * * * *', slurmJobSpec: {sbatchScript: x, eachWorkerJobs: true, maxNumberOfJobs: 2}", 6);
  world.round();
  std::set<std::string> seen;
  for (int i = 0; i < 12; ++i) {
    const auto before = world.jobs.size();
    world.whole_run({});
    EXPECT_EQ(world.jobs.size() - before, 2U);
    for (auto job = world.jobs.begin() + static_cast<std::ptrdiff_t>(before); job != world.jobs.end(); ++job) seen.insert(job->nodes[0]);
  }
  EXPECT_EQ(seen.size(), 6U);
}

TEST(Checks, RefusedJobsAreNoResult) {
  World world(kHourly, 1);
  world.round();
  world.now += 1h;
  CheckPlan plan = plan_check(world.input());
  note_refused(plan.object, "worker-0", "Invalid generic resource (gres) specification", "1795323600");
  world.object = plan.object;
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_EQ(world.status(), "Error");
  EXPECT_THAT(world.condition("Passed"), HasSubstr("worker-0 (Slurm refused the job: Invalid generic resource"));
}

// Kubernetes Jobs instead of Slurm's, with the same machinery behind them.
constexpr const char* kPods = "suspend: false, runAfterCreation: false, schedule: '0 * * * *', checkType: k8sJob, k8sJobSpec: {jobContainer: {image: i, command: [x]}}, successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 2, "
                              "failureReactions: {drainSlurmNode: {drainReasonPrefix: '[node_problem]'}}";
std::string k8s_status(const World& world) { return world.object["status"]["k8sJobsStatus"]["lastJobStatus"].string(); }

TEST(Checks, OfPodsDrainTheWorkerWhosePodSaysNo) {
  World world(std::string(kPods) + ", extensions: {eachWorker: true, failures: 2, of: 2}");
  world.round();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(world.nodes["worker-1"].drained());
    world.whole_run({"worker-1"});
    EXPECT_EQ(k8s_status(world), "Failed");
  }
  EXPECT_EQ(world.nodes["worker-1"].reason, "[node_problem] fairlead: check gpu: 2 of its last 2 results failed, the last one in job 11");
  EXPECT_FALSE(world.nodes["worker-0"].drained());
  EXPECT_EQ(world.object["status"]["k8sJobsStatus"]["lastJobName"].string(), "gpu-1795327200");
  EXPECT_TRUE(world.object["status"]["slurmJobsStatus"].is_null());
}

TEST(Checks, OfPodsWithoutWorkersHaveNoReaction) {
  World world(kPods);
  world.round();
  EXPECT_FALSE(needs_nodes(world.input()));
  world.now += 1h;
  EXPECT_THAT(world.round(), ElementsAre("run 1795323600 on -"));
  world.jobs[0].state = "FAILED", world.jobs[0].exit_code = 3, world.jobs[0].nodes.clear();
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_EQ(world.condition("Passed"), "False Failed: 0 passed, 1 failed: job 7, exit status 3");
  EXPECT_THAT(world.condition("FieldsIgnored"), HasSubstr("spec.failureReactions.drainSlurmNode (it is of no worker: see spec.extensions.eachWorker)"));
}

TEST(Checks, OfPodsKeepAFewJobsOfEarlierRuns) {
  World world(std::string(kPods) + ", extensions: {eachWorker: true, maxDrained: 1}");
  world.round();
  std::set<std::string> left;
  for (int i = 0; i < 6; ++i) {
    world.whole_run({});
    left.clear();
    for (const auto& job : world.jobs) left.insert(job.run);
    EXPECT_LE(world.jobs.size(), 3U + 1U + (i > 0 ? 3U : 0U)) << "this run's, and the limit of those before";
  }
  EXPECT_THAT(left, Contains("1795341600"));
  for (auto& job : world.jobs) job.state = "TIMEOUT";
  world.whole_run({});
  EXPECT_EQ(std::count_if(world.jobs.begin(), world.jobs.end(), [](const auto& job) { return job.state == "TIMEOUT"; }), 2);
}

// What has not been written down yet is not removed: the write of the status may fail after the steps.
TEST(Checks, OfPodsNeverLoseTheResultOfARunThatIsNotWrittenDown) {
  World world(std::string(kPods) + ", extensions: {eachWorker: true}");
  for (const char* limit : {"successfulJobsHistoryLimit", "failedJobsHistoryLimit"}) world.object.child("spec").set(limit, 0);
  world.round();
  world.now += 1h;
  world.round();
  world.end("worker-1", "FAILED", 1);
  world.end_all();
  const Json before = world.object;
  world.round();
  world.set("worker-1", {"IDLE"});
  world.object = before;
  EXPECT_THAT(world.round(), ElementsAre(StartsWith("drain worker-1")));
  EXPECT_EQ(k8s_status(world), "Failed");
}

TEST(Checks, AStatusStaysSmallWhateverHappensOnManyWorkers) {
  World world(std::string(kHourly) + ", extensions: {failures: 2, of: 20, maxDrained: 1}", 5000);
  world.round();
  world.now += 1h;
  for (int i = 0; i < 50; ++i) world.round();
  EXPECT_EQ(world.jobs.size(), kMostTargets);
  for (auto& job : world.jobs) job.state = "FAILED", job.exit_code = 1;
  EXPECT_LT(kube::print_json(world.object).size(), 500'000U);
  world.round();
  EXPECT_EQ(world.status(), "Failed");
  EXPECT_THAT(world.condition("Passed"), AllOf(HasSubstr("2000 failed: "), HasSubstr(", 1980 more")));
  for (int i = 0; i < test_rounds(2, 2); ++i) {
    world.jobs.clear();
    world.now += 1h;
    for (int k = 0; k < 50; ++k) world.round();
    for (auto& job : world.jobs) job.state = "FAILED", job.exit_code = 1;
    world.round();
  }
  EXPECT_LT(kube::print_json(world.object).size(), 500'000U);
  EXPECT_LT(world.condition("Scheduled").size(), 2000U);
}

struct Bad {
  const char *name, *spec, *want;
};
class CheckProblems : public testing::TestWithParam<Bad> {};
TEST_P(CheckProblems, AreSaidAndNothingRuns) {
  World world(GetParam().spec);
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.condition("Scheduled"), AllOf(StartsWith("False Invalid"), HasSubstr(GetParam().want)));
}
INSTANTIATE_TEST_SUITE_P(Rows, CheckProblems,
                         testing::Values(Bad{"schedule", "suspend: false, schedule: 'every day'", "spec.schedule: \"every day\" has 2 fields"}, Bad{"k_over_n", "extensions: {failures: 3, of: 2}", "3 failures of the last 2"},
                                         Bad{"deadline", "activeDeadlineSeconds: 0", "activeDeadlineSeconds: 0"}, Bad{"budget", "extensions: {maxDrained: 120%}", "maxDrained: \"120%\""}, Bad{"no_budget", "extensions: {maxDrained: 0}", "maxDrained: 0"},
                                         Bad{"word", "extensions: {maxDrained: all}", "maxDrained: \"all\""},
                                         Bad{"no_image", "checkType: k8sJob, k8sJobSpec: {jobContainer: {command: [x]}}", "spec.k8sJobSpec.jobContainer.image: name the image"},
                                         Bad{"nothing_to_run", "checkType: k8sJob, k8sJobSpec: {jobContainer: {image: i}}", "give command or args, or a script"},
                                         Bad{"variable_of_ours", "checkType: k8sJob, k8sJobSpec: {scriptRefName: s, jobContainer: {image: i, env: [{name: FAIRLEAD_CHECK, value: x}]}}", "\"FAIRLEAD_CHECK\" is set by Fairlead"}),
                         [](const auto& row) { return row.param.name; });

TEST(Checks, AUsersPrefixIsNoneOfOurReasons) {
  EXPECT_EQ(read_check(check("failureReactions: {drainSlurmNode: {drainReasonPrefix: 'fairlead: scale-down of x'}}")).drain_prefix, "");
  EXPECT_EQ(read_check(check("failureReactions: {drainSlurmNode: {drainReasonPrefix: \" [hardware_problem]\\n\"}}")).drain_prefix, "[hardware_problem]");
}

TEST(Checks, WhatHasNoEffectIsNamed) {
  World world("suspend: true, runAfterCreation: false, hostUsers: true, slurmJobSpec: {sbatchScript: x, jobContainer: {image: i}}, successReactions: {drainSlurmNode: {}}");
  world.round();
  EXPECT_EQ(world.condition("FieldsIgnored"), "True NotInThisVersion: without effect in this version: spec.hostUsers, spec.slurmJobSpec.jobContainer, spec.successReactions.drainSlurmNode");
}

// Whatever happens: no more than the budget, nothing of a person's touched, no drain without enough failures that a script said.
TEST(ChecksProperty, ManyRandomDays) {
  for (std::uint64_t seed = 0, seeds = test_rounds<std::uint64_t>(100, 2000); seed < seeds; ++seed) {
    Rng rng(seed);
    World world(std::string(kHourly) + ", extensions: {failures: 2, of: 3, maxDrained: 2}", 6);
    std::map<std::string, int> bad;  // since it came into service
    const auto pick = [&] { return fmt::format("worker-{}", rng.next() % 6); };
    for (int step = 0; step < 150; ++step) {
      world.now += std::chrono::minutes(rng.next() % 40);
      world.answers = rng.next() % 8 != 0;
      const std::string node = pick();
      switch (rng.next() % 6) {
        case 0: if (!world.nodes[node].drained()) world.set(node, {"IDLE", "DRAIN"}, "by ada"); break;
        case 1: world.set(node, {rng.next() % 2 ? "IDLE" : "ALLOCATED"}); break;
        case 2: world.end(node, "TIMEOUT"); break;
        case 3:
          for (auto& job : world.jobs)
            if (job.nodes[0] == node && job.state == "RUNNING") ++bad[node];
          world.end(node, "FAILED", 1);
          break;
        case 4: std::erase_if(world.jobs, [](const auto& job) { return job.state != "RUNNING"; }); break;
        default: world.end_all();
      }
      const auto before = world.nodes;
      const bool looked = world.answers && needs_look(world.input());
      const Json memory = world.object;
      std::vector<std::string> steps = world.round();
      const bool lost = rng.next() % 10 == 0;  // the write
      if (lost) world.object = memory;
      int ours = 0;
      for (const auto& [name, now] : world.nodes) {
        ours += now.reason.find(kCheckMark) != now.reason.npos;
        const SlurmNode& was = before.at(name);
        if (was.drained()) {
          EXPECT_EQ(now.reason, was.reason) << "seed " << seed;
        } else if (now.drained()) {
          EXPECT_GE(bad[name], 2) << "seed " << seed << " " << name;
        }
        if (was.drained() && looked && !lost) bad[name] = 0;
      }
      EXPECT_LE(ours, 2) << "seed " << seed;
      if (!world.answers) {
        EXPECT_THAT(steps, IsEmpty()) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::slurm
