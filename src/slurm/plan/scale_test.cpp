// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/scale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <set>

#include "slurm/plan/scale_test_pods.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};
const std::string kOurs = "fairlead: scale-down of u1 generation 2";

std::string describe(const ScaleStep& step) {
  if (const auto* end = std::get_if<EndPod>(&step)) return fmt::format("end worker-{}", end->ordinal);
  const auto& tell = std::get<TellSlurm>(step);
  return fmt::format("{} {}{}", text(tell.verb), tell.node, tell.verb == NodeVerb::Drain ? "" : fmt::format("{}{}", tell.arguments.empty() ? "" : " ", fmt::join(tell.arguments, " ")));
}

// ---- one worker beyond the size: every transition
struct Row {
  const char* name;
  const char* pod;     // "running", "ready", "pending", "pulling", "half", "failed", "deleting", "" for none
  const char* state;   // of the node, flags by '+'; "" for no record; "?" when Slurm does not answer
  const char* reason;
  const char* job;     // its state; "" for none
  const char* memory;  // of the worker; "" for none
  const char* steps;   // joined by ", "
  const char* becomes; // the state remembered; "" for forgotten
  const char* note;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

Json remembered(const char* state, bool seen) {
  Json worker = Json::object({{"name", "worker-2"}, {"state", state}, {"uid", "p2"}, {"since", print_time(kNow - 60s)}, {"drainedSince", print_time(kNow - 60s)}});
  if (seen) worker.set("emptySeen", print_micro_time(kNow - 3s));
  return Json::object({{"generation", 2}, {"plannedGeneration", 2}, {"workers", Json::array({worker})}});
}
Json memory_of(const std::string& name) {
  if (name.empty()) return Json::object({{"generation", 2}});
  if (name == "seen") return remembered("Drained", true);
  if (name == "unregistered") return remembered("Unregistered", true);
  if (name == "just seen") {
    Json out = remembered("Drained", true);
    out.find("workers")->items()[0].set("emptySeen", print_micro_time(kNow));
    return out;
  }
  if (name == "another pod") {
    Json out = remembered("Drained", true);
    out.find("workers")->items()[0].set("uid", "p1");
    return out;
  }
  return remembered(name.c_str(), false);
}

struct Inputs {
  std::map<int, Json> pods;
  ScaleInput in;
  ScalePlan plan() {
    in.pods.clear();
    for (const auto& [ordinal, pod] : pods) in.pods[ordinal] = &pod;
    const ScalePlan once = plan_scale(in), again = plan_scale(in);
    EXPECT_EQ(kube::print_json(once.memory), kube::print_json(again.memory));
    EXPECT_EQ(once.steps.size(), again.steps.size());
    return once;
  }
};
Inputs inputs(const Row& row) {
  Inputs out;
  out.in = {.cluster_uid = "u1", .generation = 2, .size = 2, .memory = memory_of(row.memory), .now = kNow};
  for (const int i : {0, 1}) out.pods[i] = pod_object(i, "Running", true, fmt::format("p{}", i));
  const std::string pod = row.pod, state = row.state;
  if (pod == "running" || pod == "ready" || pod == "deleting") out.pods[2] = pod_object(2, "Running", pod == "ready", "p2");
  if (pod == "pending") out.pods[2] = pod_object(2, "Pending", false, "p2");
  if (pod == "pulling" || pod == "half") out.pods[2] = half_started(2, "p2", pod == "half");
  if (pod == "failed") out.pods[2] = pod_object(2, "Failed", false, "p2");
  if (pod == "deleting") out.pods[2].child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  if (state == "?") return out;
  SlurmView view{.at = kNow};
  for (const int i : {0, 1}) view.nodes[fmt::format("worker-{}", i)] = {.name = fmt::format("worker-{}", i), .state = {"IDLE"}};
  if (!state.empty()) {
    SlurmNode node{.name = "worker-2", .reason = row.reason, .by = "root", .answers = true};
    std::size_t at = 0;
    for (auto plus = state.find('+'); plus != state.npos; at = plus + 1, plus = state.find('+', at)) node.state.push_back(state.substr(at, plus - at));
    node.state.push_back(state.substr(at));
    node.cpus = node.state[0] == "MIXED" ? 1 : 0;
    view.nodes["worker-2"] = node;
  }
  if (*row.job) view.jobs.push_back({.id = "7", .user = "ada", .state = row.job, .nodes = {"worker-2"}, .end = kNow + 600s});
  out.in.view = std::move(view);
  return out;
}
class Leaving : public testing::TestWithParam<Row> {};
TEST_P(Leaving, GoesStepByStep) {
  const Row& row = GetParam();
  Inputs its = inputs(row);
  const ScalePlan plan = its.plan();
  EXPECT_THAT(plan.ordinals, ElementsAre(0, 1));
  std::vector<std::string> steps;
  for (const auto& step : plan.steps) steps.push_back(describe(step));
  EXPECT_EQ(fmt::format("{}", fmt::join(steps, ", ")), row.steps);
  const auto& workers = plan.memory["workers"].items();
  EXPECT_EQ(workers.empty() ? "" : workers[0]["state"].string(), row.becomes);
  EXPECT_THAT(fmt::format("{}", fmt::join(plan.notes, "; ")), HasSubstr(row.note));
  EXPECT_EQ(plan.look_again.has_value(), !workers.empty());
  if (*row.memory || *row.pod) {
    EXPECT_TRUE(needs_look(its.in));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Rows, Leaving,
    testing::Values(
        Row{"in_service", "ready", "IDLE", "", "", "", "drain worker-2", "Draining", "worker-2 is being drained"},
        Row{"busy", "ready", "MIXED", "", "RUNNING", "", "drain worker-2", "Draining", "being drained"},
        Row{"down_and_not_drained", "running", "DOWN", "Not responding", "", "", "drain worker-2", "Draining", ""},
        Row{"draining", "ready", "MIXED+DRAIN", kOurs.c_str(), "RUNNING", "Draining", "", "Draining", "waits for job 7 of ada (until 2027-01-15T08:10:00Z)"},
        Row{"completing", "ready", "IDLE+COMPLETING+DRAIN", kOurs.c_str(), "COMPLETING", "Draining", "", "Draining", "waits for job 7"},
        Row{"completing_without_a_job", "ready", "IDLE+COMPLETING+DRAIN", kOurs.c_str(), "", "seen", "", "Draining", "waits for its last job to end"},
        Row{"a_job_that_holds_no_cpu", "ready", "IDLE+DRAIN", kOurs.c_str(), "SUSPENDED", "seen", "", "Draining", "waits for job 7"},
        Row{"unknown_state", "ready", "UNKNOWN+DRAIN", kOurs.c_str(), "", "seen", "", "Draining", ""},
        Row{"empty_once", "ready", "IDLE+DRAIN", kOurs.c_str(), "", "Draining", "", "Drained", "worker-2 is drained and empty"},
        Row{"the_same_look", "ready", "IDLE+DRAIN", kOurs.c_str(), "", "just seen", "", "Drained", ""},
        Row{"empty_twice", "ready", "IDLE+DRAIN", kOurs.c_str(), "", "seen", "end worker-2", "Drained", ""},
        Row{"empty_twice_but_another_pod", "ready", "IDLE+DRAIN", kOurs.c_str(), "", "another pod", "", "Drained", ""},
        Row{"empty_and_down", "running", "DOWN+DRAIN", kOurs.c_str(), "", "seen", "end worker-2", "Drained", ""},
        Row{"undrained_by_a_person_in_between", "ready", "IDLE", "", "", "seen", "drain worker-2", "Draining", ""},
        Row{"drained_by_a_person", "ready", "MIXED+DRAIN", "disk", "RUNNING", "", "", "Draining", "drained by root (disk) and waits for job 7"},
        Row{"drained_by_a_person_and_empty", "ready", "IDLE+DRAIN", "disk", "", "", "", "Drained", ""},
        Row{"drained_by_a_person_and_empty_twice", "ready", "IDLE+DRAIN", "disk", "", "seen", "end worker-2", "Drained", ""},
        Row{"silence", "ready", "?", "", "", "", "", "Draining", "Slurm does not say"},
        Row{"silence_and_not_ready", "running", "?", "", "", "unregistered", "", "Unregistered", "Slurm does not say"},
        Row{"silence_after_a_look", "ready", "?", "", "", "seen", "", "Drained", "Slurm does not say"},
        Row{"never_ran", "pending", "", "", "", "", "end worker-2", "Ending", ""},
        Row{"never_ran_and_silence", "pending", "?", "", "", "", "end worker-2", "Ending", ""},
        Row{"never_ran_but_slurm_counts_jobs", "pending", "MIXED", "", "RUNNING", "", "drain worker-2", "Draining", ""},
        Row{"never_ran_but_a_record_is_in_service", "pending", "IDLE", "", "", "", "drain worker-2", "Draining", ""},
        Row{"half_started_and_in_service", "half", "IDLE", "", "", "", "drain worker-2", "Draining", ""},
        Row{"half_started_and_silence", "half", "?", "", "", "", "", "Draining", "Slurm does not say"},
        Row{"half_started_and_unregistered", "half", "", "", "", "", "", "Unregistered", "Slurm does not know it"},
        Row{"half_started_and_empty_once", "half", "IDLE+DRAIN", kOurs.c_str(), "", "Draining", "", "Drained", ""},
        Row{"half_started_and_empty_twice", "half", "IDLE+DRAIN", kOurs.c_str(), "", "seen", "end worker-2", "Drained", ""},
        Row{"pulling_and_silence", "pulling", "?", "", "", "", "", "Draining", "Slurm does not say"},
        Row{"pulling_and_in_service", "pulling", "IDLE", "", "", "", "drain worker-2", "Draining", ""},
        Row{"pulling_and_unregistered", "pulling", "", "", "", "", "", "Unregistered", ""},
        Row{"pulling_and_unregistered_twice", "pulling", "", "", "", "unregistered", "end worker-2", "Unregistered", ""},
        Row{"has_ended", "failed", "IDLE+DRAIN", kOurs.c_str(), "", "Draining", "", "Drained", ""},
        Row{"has_ended_twice", "failed", "IDLE+DRAIN", kOurs.c_str(), "", "seen", "end worker-2", "Drained", ""},
        Row{"has_ended_and_in_service", "failed", "IDLE", "", "", "", "drain worker-2", "Draining", ""},
        Row{"has_ended_and_unregistered", "failed", "", "", "", "unregistered", "end worker-2", "Unregistered", ""},
        Row{"expected_to_fail_by_a_person", "ready", "IDLE+FAIL", "disk", "", "", "", "Drained", ""},
        Row{"expected_to_fail_and_empty_twice", "ready", "IDLE+FAIL", "disk", "", "seen", "end worker-2", "Drained", ""},
        Row{"expected_to_fail_and_busy", "ready", "MIXED+FAIL", "disk", "RUNNING", "", "", "Draining", "drained by root (disk) and waits for job 7"},
        Row{"has_ended_and_silence", "failed", "?", "", "", "", "", "Draining", "Slurm does not say"},
        Row{"has_ended_but_slurm_counts_jobs", "failed", "MIXED+DRAIN", kOurs.c_str(), "RUNNING", "Draining", "", "Draining", ""},
        Row{"unregistered", "running", "", "", "", "", "", "Unregistered", "Slurm does not know it"},
        Row{"unregistered_after_it_was_drained", "running", "", "", "", "seen", "", "Unregistered", ""},
        Row{"unregistered_twice", "running", "", "", "", "unregistered", "end worker-2", "Unregistered", ""},
        Row{"registered_since", "ready", "IDLE+DRAIN", "disk", "", "unregistered", "", "Drained", ""},
        Row{"unregistered_and_ready", "ready", "", "", "", "seen", "", "Draining", "Slurm does not know it"},
        Row{"ending", "deleting", "IDLE+DRAIN", kOurs.c_str(), "", "seen", "", "Ending", "worker-2 is ending"},
        Row{"pod_gone", "", "IDLE+DRAIN", kOurs.c_str(), "", "Ending", "forget worker-2", "RecordLeft", "the record of worker-2 is being deleted"},
        Row{"pod_gone_drained_by_a_person", "", "IDLE+DRAIN", "disk", "", "Draining", "forget worker-2", "RecordLeft", ""},
        Row{"pod_gone_and_silence", "", "?", "", "", "Ending", "", "RecordLeft", "not known yet"},
        Row{"pod_gone_but_jobs", "", "MIXED+DRAIN", kOurs.c_str(), "RUNNING", "Ending", "", "RecordLeft", "still counts jobs"},
        Row{"pod_gone_and_in_service", "", "IDLE", "", "", "Ending", "drain worker-2", "RecordLeft", ""},
        Row{"drained_by_us_and_expected_to_fail", "ready", "MIXED+DRAIN+FAIL", kOurs.c_str(), "RUNNING", "Draining", "", "Draining", "drained by root"},
        Row{"pod_gone_expected_to_fail", "", "IDLE+FAIL", "disk", "", "Ending", "", "RecordLeft", ""},
        Row{"pod_and_record_gone", "", "", "", "", "RecordLeft", "", "", ""},
        Row{"ghost_of_ours", "", "IDLE+DRAIN", kOurs.c_str(), "", "", "forget worker-2", "RecordLeft", ""},
        Row{"ghost_down", "", "DOWN+NOT_RESPONDING", "Not responding", "", "", "", "Found", ""},
        Row{"ghost_down_twice", "", "DOWN+NOT_RESPONDING", "Not responding", "", "Found", "", "Found", ""},
        Row{"somebodys_live_node", "", "IDLE", "", "", "", "", "Found", "worker-2 is in Slurm without a pod"},
        Row{"somebodys_live_node_still", "", "IDLE", "", "", "Found", "", "Found", ""},
        Row{"somebodys_drained_node", "", "IDLE+DRAIN", "disk", "", "Found", "", "Found", ""},
        Row{"somebodys_busy_node", "", "MIXED", "", "RUNNING", "", "", "Found", "still counts jobs"}),
    [](const auto& row) { return row.param.name; });

TEST(Ghosts, AreForgottenWhenSlurmCalledThemDeadTwice) {
  Inputs its = inputs(Row{"", "", "DOWN", "Not responding", "", "", "", "", ""});
  its.in.memory = its.plan().memory;
  EXPECT_THAT(its.plan().steps, IsEmpty()) << "the same look";
  its.in.view->at += 299s;
  EXPECT_THAT(its.plan().steps, IsEmpty()) << "somebody's own node may be starting again";
  its.in.view->at += 1s;
  const auto plan = its.plan();
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(describe(plan.steps[0]), "forget worker-2");
}

TEST(Ghosts, OnlySilentAreNotForgotten) {
  Inputs its = inputs(Row{"", "", "IDLE+NOT_RESPONDING", "", "", "", "", "", ""});
  for (int i = 0; i < 3; ++i) {
    const auto plan = its.plan();
    EXPECT_THAT(plan.steps, IsEmpty());
    its.in.memory = plan.memory;
    its.in.view->at += 1000s;
  }
}

TEST(ATakenName, IsLeftAlone) {
  // A worker whose label or owner was edited away lives on, whatever is remembered and whatever Slurm says of it now.
  for (const char* state : {"IDLE+DRAIN", "DOWN", "DOWN+NOT_RESPONDING", "IDLE"})
    for (const char* memory : {"", "Draining", "Ending", "RecordLeft", "Found"}) {
      Inputs its = inputs(Row{"", "", state, kOurs.c_str(), "", memory, "", "", ""});
      its.in.taken = {2};
      for (int i = 0; i < 3; ++i) {
        const auto plan = its.plan();
        EXPECT_THAT(plan.steps, IsEmpty()) << state << " " << memory;
        EXPECT_EQ(plan.notes.size(), *memory ? 1u : 0u);
        its.in.memory = plan.memory;
        its.in.view->at += 400s;
      }
    }
}

TEST(Returning, TakesBackWhatIsOursWhenTheWorkerCanServe) {
  struct Case {
    const char* pod;
    const char* state;
    std::string reason;
    const char* memory;
    bool answers;
    const char* steps;
  };
  const std::string restarted = "fairlead: the worker restarted and its processes are gone";
  for (const Case& one : {Case{"ready", "IDLE+DRAIN", kOurs, "Drained", true, "undrain worker-2"}, Case{"ready", "MIXED+DRAIN", kOurs, "", true, "undrain worker-2"}, Case{"ready", "IDLE+DRAIN", kOurs, "seen", false, ""},
                          Case{"running", "IDLE+DRAIN", kOurs, "seen", true, ""}, Case{"deleting", "IDLE+DRAIN", kOurs, "seen", true, ""}, Case{"", "IDLE+DRAIN", kOurs, "seen", true, ""},
                          Case{"ready", "IDLE+DRAIN", "disk", "seen", true, ""}, Case{"ready", "IDLE+DRAIN", "disk; fairlead: scale-down", "seen", true, ""}, Case{"ready", "IDLE", "", "seen", true, ""},
                          Case{"ready", "DOWN+DRAIN", kOurs, "Draining", true, "undrain worker-2"}, Case{"ready", "DOWN+DRAIN", restarted, "Draining", true, ""}, Case{"ready", "DOWN", kOurs, "Draining", true, ""}, Case{"ready", "IDLE+DRAIN+FAIL", kOurs, "Draining", true, ""}, Case{"ready", "?", "", "Draining", true, ""}}) {
    Inputs its = inputs(Row{"", one.pod, one.state, one.reason.c_str(), "", one.memory, "", "", ""});
    its.in.size = 3;
    if (its.in.view && its.in.view->nodes.contains("worker-2")) its.in.view->nodes["worker-2"].answers = one.answers;
    const auto plan = its.plan();
    std::vector<std::string> steps;
    for (const auto& step : plan.steps) steps.push_back(describe(step));
    EXPECT_EQ(fmt::format("{}", fmt::join(steps, ", ")), one.steps) << one.pod << " " << one.state << " " << one.reason << " " << one.memory;
  }
}

TEST(Deadline, EndsJobsOnlyWhenItIsOverAndNeverByDefault) {
  using Policy = api::SlurmScaleDown::Policy;
  const auto steps = [](Policy policy, std::chrono::seconds after, const char* reason, const char* job) {
    Inputs its = inputs(Row{"", "ready", "MIXED+DRAIN", reason, job, "Draining", "", "", ""});
    its.in.rules = {.policy = policy, .after = after};  // worker-2 leaves since a minute
    const auto plan = its.plan();
    return (plan.steps.empty() ? std::string() : describe(plan.steps[0])) + "|" + plan.notes[0];
  };
  EXPECT_THAT(steps(Policy::Wait, 0s, kOurs.c_str(), "RUNNING"), testing::StartsWith("|"));
  EXPECT_THAT(steps(Policy::Requeue, 61s, kOurs.c_str(), "RUNNING"), testing::AllOf(testing::StartsWith("|"), HasSubstr("which is put back into the queue at 2027-01-15T08:00:01Z")));
  EXPECT_THAT(steps(Policy::Requeue, 60s, kOurs.c_str(), "RUNNING"), testing::StartsWith("requeue worker-2 7|"));
  EXPECT_THAT(steps(Policy::Kill, 60s, kOurs.c_str(), "RUNNING"), testing::StartsWith("cancel worker-2 7|"));
  // From when it was to leave, not from when a person drained it.
  EXPECT_THAT(steps(Policy::Kill, 61s, "disk", "RUNNING"), testing::StartsWith("|"));
  EXPECT_THAT(steps(Policy::Kill, 60s, kOurs.c_str(), "COMPLETING"), testing::StartsWith("|"));
  Inputs failing = inputs(Row{"", "ready", "MIXED+FAIL", "disk", "RUNNING", "Draining", "", "", ""});
  failing.in.rules = {.policy = Policy::Kill, .after = 0s};
  EXPECT_THAT(failing.plan().steps, IsEmpty()) << "its owner's matter";
}

// A worker that leaves with a job on it, under `kill` after an hour: what is done at which minute.
struct Hour {
  Inputs its = inputs(Row{"", "ready", "MIXED", "", "RUNNING", "", "", "", ""});
  SlurmView view = *its.in.view;
  Hour() { its.in.rules = {.policy = api::SlurmScaleDown::Policy::Kill, .after = 3600s}; }
  // `generation` 0: as before. The drain is carried out as it is in Slurm.
  std::string at(int minute, int size, std::int64_t generation, bool answers = true) {
    its.in.now = kNow + std::chrono::minutes(minute);
    view.at = its.in.now;
    its.in.size = size;
    if (generation) its.in.generation = generation;
    its.in.view = answers ? std::optional(view) : std::nullopt;
    const auto plan = its.plan();
    its.in.memory = kube::parse_json(kube::print_json(plan.memory)).value();
    std::vector<std::string> steps;
    for (const auto& step : plan.steps) steps.push_back(describe(step));
    if (!steps.empty() && steps[0] == "drain worker-2") drain(kOurs);
    return fmt::format("{}", fmt::join(steps, ", "));
  }
  void drain(const std::string& reason) { view.nodes["worker-2"].state = {"MIXED", "DRAIN"}, view.nodes["worker-2"].reason = reason; }
  void undrain() { view.nodes["worker-2"].state = {"MIXED"}, view.nodes["worker-2"].reason = ""; }
};
TEST(Deadline, IsCountedFromWhenTheDrainWasSeen) {
  Hour one;
  EXPECT_EQ(one.at(0, 2, 0), "drain worker-2");
  EXPECT_EQ(one.at(1, 2, 0), "");
  EXPECT_EQ(one.at(60, 2, 0), "");
  EXPECT_EQ(one.at(61, 2, 0), "cancel worker-2 7");
}
TEST(Deadline, IsForgottenWhenTheWorkerIsWantedAgain) {
  for (const bool answers : {true, false}) {
    Hour one;
    EXPECT_EQ(one.at(0, 2, 2), "drain worker-2");
    one.view.nodes["worker-2"].answers = false;  // its slurmd: it cannot be undrained
    EXPECT_EQ(one.at(1, 2, 2), "");
    EXPECT_EQ(one.at(59, 3, 3, answers), "");
    EXPECT_EQ(one.at(61, 2, 4), "") << answers;
    EXPECT_EQ(one.at(120, 2, 4), "");
    EXPECT_EQ(one.at(121, 2, 4), "cancel worker-2 7");
  }
}
TEST(Deadline, IsForgottenWhenTheWorkerMayHaveBeenWantedUnseen) {
  Hour one;
  EXPECT_EQ(one.at(0, 2, 2), "drain worker-2");
  EXPECT_EQ(one.at(1, 2, 2), "");
  EXPECT_EQ(one.at(61, 2, 4), "") << "larger and smaller again, or paused and not any more, in one look";
  EXPECT_EQ(one.at(119, 2, 5), "") << "one edit of something else changes nothing";
  EXPECT_EQ(one.at(121, 2, 6), "cancel worker-2 7");
}
TEST(Deadline, RunsOnlyWhileTheWorkerGetsNoJobs) {
  Hour one;
  EXPECT_EQ(one.at(0, 2, 0, false), "");
  EXPECT_EQ(one.at(90, 2, 0), "drain worker-2") << "Slurm was silent for longer than the deadline";
  EXPECT_EQ(one.at(91, 2, 0), "");
  one.undrain();  // a person; a new job comes
  EXPECT_EQ(one.at(149, 2, 0), "drain worker-2");
  EXPECT_EQ(one.at(152, 2, 0), "");
  EXPECT_EQ(one.at(211, 2, 0), "");
  EXPECT_EQ(one.at(212, 2, 0), "cancel worker-2 7");
}
TEST(Deadline, IsOfOneDrain) {
  Hour one;
  EXPECT_EQ(one.at(0, 2, 0), "drain worker-2");
  one.view.nodes["worker-2"].since = "2027-01-15T08:00:00Z";
  EXPECT_EQ(one.at(1, 2, 0), "");
  one.view.nodes["worker-2"].since = "2027-01-15T09:00:30Z";  // undrained and drained again between two looks
  EXPECT_EQ(one.at(61, 2, 0), "");
  EXPECT_EQ(one.at(120, 2, 0), "");
  EXPECT_EQ(one.at(121, 2, 0), "cancel worker-2 7");
}
TEST(Deadline, IsOfOnePod) {
  Hour one;
  EXPECT_EQ(one.at(0, 2, 0), "drain worker-2");
  EXPECT_EQ(one.at(1, 2, 0), "");
  one.its.pods[2] = pod_object(2, "Running", true, "p9");
  EXPECT_EQ(one.at(61, 2, 0), "");
}

TEST(WaitingJobs, ThatInsistOnALeavingWorkerAreNamed) {
  Inputs its = inputs(Row{"", "", "", "", "", "", "", "", ""});
  its.in.view->jobs = {{.id = "9", .user = "ada", .state = "PENDING", .requested = {"worker-2"}}, {.id = "10", .user = "ada", .state = "PENDING", .requested = {"worker-0"}}, {.id = "11", .user = "bo", .state = "PENDING"}};
  auto plan = its.plan();
  EXPECT_THAT(*plan.jobs, testing::AllOf(HasSubstr("job 9 of ada asks for worker-2"), HasSubstr("scontrol update jobid=9 reqnodelist="), testing::Not(HasSubstr("job 10"))));
  EXPECT_TRUE(plan.look_again) << "until it is gone";
  its.in.view.reset();
  EXPECT_FALSE(its.plan().jobs);
  EXPECT_FALSE(needs_look(its.in));
  its.in.jobs_wait = true;
  EXPECT_TRUE(needs_look(its.in));
}

TEST(Looks, AreTakenOnceForEachGenerationAndWhileSomethingLeaves) {
  Inputs its = inputs(Row{"", "", "", "", "", "", "", "", ""});
  EXPECT_FALSE(needs_look(its.in));
  its.in.generation = 3;
  EXPECT_TRUE(needs_look(its.in));
  const auto plan = its.plan();
  EXPECT_EQ(plan.memory["generation"].integer(), 3);
  EXPECT_FALSE(plan.look_again);
  its.in.generation = 2;
  its.in.look_due = true;
  EXPECT_TRUE(needs_look(its.in)) << "a drain of ours may have come back";
  its.in.look_due = false;
  its.in.generation = 3;
  its.in.view.reset();
  EXPECT_TRUE(its.plan().look_again) << "until Slurm answers";
  EXPECT_EQ(its.plan().memory["generation"].integer(), 2);
}

TEST(Looks, AskForTheJobsOfWhoeverMayLeave) {
  Inputs its = inputs(Row{"", "", "", "", "", "", "", "", ""});
  EXPECT_EQ(nodes_of_interest(its.in), "worker-[2-10000]");
  its.in.size = 10'000;
  EXPECT_EQ(nodes_of_interest(its.in), "");
  its.in.size = 2, its.in.rules.strict_ordinals = false;
  EXPECT_EQ(nodes_of_interest(its.in), "");
}

// ---- without strict ordinals
struct Worker {
  const char* state;
  int minutes = -1;  // of its job; -1: none
  bool is_ready = true;
};
std::vector<int> kept(const std::vector<Worker>& workers, int size, Json memory = {}, bool answers = true, std::set<int> named = {}) {
  Inputs its;
  its.in = {.generation = 2, .size = size, .rules = {.strict_ordinals = false}, .first = std::move(named), .memory = std::move(memory), .now = kNow};
  SlurmView view{.at = kNow};
  for (int i = 0; i < static_cast<int>(workers.size()); ++i) {
    const auto& one = workers[static_cast<std::size_t>(i)];
    its.pods[i] = pod_object(i, "Running", one.is_ready, fmt::format("p{}", i));
    const std::string name = fmt::format("worker-{}", i), state = one.state;
    SlurmNode node{.name = name, .state = {state.substr(0, state.find('+'))}};
    if (state.find("+DRAIN") != state.npos) node.state.push_back("DRAIN");
    view.nodes[name] = node;
    if (one.minutes >= 0) view.jobs.push_back({.id = std::to_string(i + 1), .state = "RUNNING", .nodes = {name}, .end = one.minutes ? std::optional(kNow + std::chrono::minutes(one.minutes)) : std::nullopt});
  }
  if (answers) its.in.view = std::move(view);
  return its.plan().ordinals;
}
TEST(Victims, AreIdleOnesFirstThenThoseSoonestFreeThenTheHighest) {
  const Worker idle{"IDLE"}, busy{"MIXED", 60}, soon{"MIXED", 5}, endless{"MIXED", 0};
  EXPECT_THAT(kept({idle, idle, idle}, 2), ElementsAre(0, 1));
  EXPECT_THAT(kept({idle, busy, busy}, 2), ElementsAre(1, 2));
  EXPECT_THAT(kept({busy, soon, endless}, 2), ElementsAre(0, 2));
  EXPECT_THAT(kept({endless, busy, busy}, 1), ElementsAre(0));
  EXPECT_THAT(kept({idle, {"IDLE", -1, false}, idle}, 2), ElementsAre(0, 2)) << "unready before idle";
  EXPECT_THAT(kept({idle, {"IDLE+DRAIN"}, idle}, 2), ElementsAre(0, 2)) << "drained by a person and empty before idle";
  EXPECT_THAT(kept({idle, {"MIXED+DRAIN", 60}, idle}, 2), ElementsAre(0, 1)) << "drained by a person and busy is busy";
  EXPECT_THAT(kept({idle, busy, busy}, 2, Json{}, false), ElementsAre(0, 1, 2)) << "unknown: nobody is chosen";
  EXPECT_THAT(kept({idle, busy, idle}, 2, Json{}, true, {1}), ElementsAre(0, 2)) << "who is named goes, idle ones or not";
  EXPECT_THAT(kept({idle, busy, idle}, 3, Json{}, true, {1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({idle, busy, idle}, 2, Json{}, false, {1}), ElementsAre(0, 1, 2)) << "unknown: nobody is chosen";
  EXPECT_THAT(kept({idle, busy}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({}, 2), ElementsAre(0, 1));
}
TEST(Victims, ChangePlacesWithAnIdleWorkerAndStayOtherwise) {
  const auto memory = [](std::vector<Json> ordinals) { return Json::object({{"generation", 2}, {"ordinals", Json::array(std::move(ordinals))}}); };
  EXPECT_THAT(kept({{"MIXED", 60}, {"MIXED+DRAIN", 60}, {"IDLE"}}, 2, memory({0, 2})), ElementsAre(0, 1));
  EXPECT_THAT(kept({{"MIXED", 5}, {"MIXED+DRAIN", 60}, {"MIXED", 60}}, 2, memory({0, 2})), ElementsAre(0, 2));
  EXPECT_THAT(kept({{"IDLE"}, {"IDLE+DRAIN"}, {"IDLE"}}, 2, memory({0, 2})), ElementsAre(0, 2));
  EXPECT_THAT(kept({{"IDLE"}, {"IDLE+DRAIN"}, {"IDLE"}}, 3, memory({0, 2})), ElementsAre(0, 1, 2));
  EXPECT_THAT(kept({{"IDLE"}, {"IDLE+DRAIN"}, {"IDLE"}}, 4, memory({0, 2})), ElementsAre(0, 1, 2, 3));
}

TEST(WorkerOrdinals, AreDecimalNumbersAsPodsHaveThem) {
  EXPECT_EQ(worker_ordinal("worker-0"), 0);
  EXPECT_EQ(worker_ordinal("worker-12"), 12);
  for (const char* bad : {"worker-", "worker-01", "worker--1", "worker-1a", "workers-1", "worker-999999999", "login-0", ""}) EXPECT_FALSE(worker_ordinal(bad)) << bad;
}

TEST(View, IsTheWholeAnswerOrNothing) {
  const std::string whole =
      R"({"answered":true,"at":"2026-11-21T20:20:47.305246Z","nodes":[{"name":"worker-0","state":["MIXED","DRAIN"],"cpus":3,"reason":"fairlead: scale-down of ab","by":"root","since":"2026-11-21T20:20:47Z","slurmd":true}],)"
      R"("jobs":[{"id":"1_1","user":"root","state":"RUNNING","nodes":["worker-0"],"requested":["worker-0"],"end":"2026-11-21T20:30:46Z","limit":"10:00"}]})";
  const auto view = read_slurm_view(whole);
  ASSERT_TRUE(view) << view.error().message;
  const auto& node = view->nodes.at("worker-0");
  EXPECT_TRUE(node.has("DRAIN") && node.answers && node.cpus == 3 && node.by == "root" && node.since == "2026-11-21T20:20:47Z");
  EXPECT_FALSE(is_empty(*view, node));
  EXPECT_EQ(view->jobs_on("worker-0").size(), 1u);
  EXPECT_EQ(print_time(*view->jobs[0].end), "2026-11-21T20:30:46Z");
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_FALSE(read_slurm_view(whole.substr(0, i))) << i;
  for (const char* bad : {"", "{}", "[]", R"({"answered":false,"at":"2026-11-21T20:20:47Z","nodes":[],"jobs":[]})", R"({"answered":true,"nodes":[],"jobs":[]})", R"({"answered":true,"at":"2026-11-21T20:20:47Z","nodes":[]})",
                          R"({"answered":true,"at":"2026-11-21T20:20:47Z","nodes":[{"name":"w","state":[],"cpus":0}],"jobs":[]})", R"({"answered":true,"at":"2026-11-21T20:20:47Z","nodes":[{"name":"w","state":["IDLE"]}],"jobs":[]})",
                          R"({"answered":true,"at":"2026-11-21T20:20:47Z","nodes":[],"jobs":[{"id":"--all","state":"RUNNING"}]})", R"({"answered":true,"at":"2026-11-21T20:20:47Z","nodes":[],"jobs":[{"id":"1","state":"RUNNING","nodes":"worker-0"}]})"})
    EXPECT_FALSE(read_slurm_view(bad)) << bad;
}

// ---- workers that may come (design 016)
TEST(ScaleExpected, SlurmIsToldOfWorkersThatMayComeAndKeepsThem) {
  ScaleInput in{.cluster_uid = "u1", .generation = 2, .size = 1, .expected = 4, .definition = "CPUs=2 RealMemory=256 Feature=worker", .memory = memory_of(""), .now = kNow};
  in.view = SlurmView{.at = kNow, .has_queue = true};
  const auto put = [&](int ordinal, std::vector<std::string> state, std::string reason = "") {
    const std::string name = fmt::format("worker-{}", ordinal);
    in.view->nodes[name] = {.name = name, .state = std::move(state), .reason = std::move(reason), .total = {2, 256, 0}};
  };
  const auto steps = [&] {
    std::vector<std::string> out;
    for (const auto& step : plan_scale(in).steps) out.push_back(describe(step));
    return out;
  };
  const std::string definition = " CPUs=2 RealMemory=256 Feature=worker";
  EXPECT_THAT(steps(), ElementsAre("expect worker-0" + definition, "expect worker-1" + definition, "expect worker-2" + definition, "expect worker-3" + definition));
  for (int i = 0; i < 3; ++i) put(i, {"DOWN", "NOT_RESPONDING"}, "fairlead: comes when a job needs it");
  put(3, {"IDLE", "DRAIN"}, kOurs);
  EXPECT_THAT(steps(), IsEmpty()) << "neither forgotten nor told again";
  EXPECT_THAT(plan_scale(in).memory["workers"].items(), IsEmpty());
  put(1, {"FUTURE"});                   // begun, and the operator died
  put(2, {"IDLE", "NOT_RESPONDING"});
  EXPECT_THAT(steps(), ElementsAre("expect worker-1" + definition, "expect worker-2" + definition));
  put(1, {"DOWN"});
  put(2, {"DOWN"});
  in.definition = "CPUs=4 RealMemory=256 Feature=worker";
  EXPECT_THAT(steps(), ElementsAre("expect worker-1 " + in.definition, "expect worker-2 " + in.definition, "expect worker-3 " + in.definition)) << "worker-0 is wanted: it says itself what it has";
  in.expected = 0;
  EXPECT_THAT(steps(), ElementsAre("forget worker-3")) << "switched off";
  in.view.reset();
  in.expected = 4;
  EXPECT_THAT(steps(), IsEmpty());
}

TEST(ScaleExpected, JobsThatInsistOnAWorkerThatMayComeAreNotLost) {
  ScaleInput in{.cluster_uid = "u1", .generation = 2, .size = 0, .expected = 2, .memory = memory_of(""), .now = kNow};
  in.view = SlurmView{.at = kNow};
  in.view->jobs.push_back({.id = "7", .user = "ada", .state = "PENDING", .requested = {"worker-1"}});
  EXPECT_EQ(plan_scale(in).jobs, "");
  in.view->jobs[0].requested = {"worker-2"};
  EXPECT_THAT(*plan_scale(in).jobs, HasSubstr("job 7 of ada asks for worker-2"));
}

// ---- workers that are made anew
struct Renewal {
  std::map<int, Json> pods;
  SlurmView view;
  ScaleInput in;
  explicit Renewal(int size) {
    in = {.cluster_uid = "u1", .generation = 2, .size = size, .memory = Json::object({{"generation", 2}}), .now = kNow};
    view.at = kNow;
    for (int i = 0; i < size; ++i) {
      pods[i] = pod_object(i, "Running", true, fmt::format("old{}", i));
      view.nodes[fmt::format("worker-{}", i)] = {.name = fmt::format("worker-{}", i), .state = {"IDLE"}, .by = "root", .answers = true};
      in.renew.insert(i);
    }
  }
  void busy(int ordinal, std::chrono::seconds left) {
    const std::string name = fmt::format("worker-{}", ordinal);
    view.nodes[name].state = {"MIXED"}, view.nodes[name].cpus = 1;
    view.jobs.push_back({.id = std::to_string(ordinal), .user = "ada", .state = "RUNNING", .nodes = {name}, .end = kNow + left});
  }
  void drained(int ordinal) {
    SlurmNode& node = view.nodes[fmt::format("worker-{}", ordinal)];
    node.state.push_back("DRAIN");
    node.reason = kOurs;
  }
  std::string round(bool answers = true) {
    in.now += 5s, view.at += 5s;
    in.pods.clear();
    for (const auto& [ordinal, pod] : pods) in.pods[ordinal] = &pod;
    in.view = answers ? std::optional(view) : std::nullopt;
    EXPECT_TRUE(needs_look(in) || in.renew.empty());
    const ScalePlan plan = plan_scale(in);
    in.memory = plan.memory;
    notes = fmt::format("{}", fmt::join(plan.notes, "; "));
    std::vector<std::string> out;
    for (const auto& step : plan.steps) out.push_back(describe(step));
    EXPECT_EQ(plan.ordinals.size(), static_cast<std::size_t>(in.size));
    return fmt::format("{}", fmt::join(out, ", "));
  }
  std::string notes;
};

TEST(Renewal, OneAfterTheOtherLeavesAndComesBack) {
  Renewal world(3);
  EXPECT_EQ(world.round(), "drain worker-0");
  EXPECT_THAT(world.notes, HasSubstr("worker-1, worker-2 are made anew for other mounts when others have come back"));
  world.drained(0);
  EXPECT_EQ(world.round(), "") << "seen empty once";
  EXPECT_EQ(world.round(), "end worker-0");
  world.pods.erase(0), world.in.renew.erase(0);
  EXPECT_EQ(world.round(), "") << "it is not back";
  world.pods[0] = pod_object(0, "Running", false, "new0");
  EXPECT_EQ(world.round(), "") << "it is not ready";
  EXPECT_EQ(world.round(false), "") << "Slurm does not answer";
  world.pods[0] = pod_object(0, "Running", true, "new0");
  EXPECT_EQ(world.round(), "undrain worker-0");
  world.view.nodes["worker-0"].state = {"IDLE"};
  EXPECT_EQ(world.round(), "drain worker-1");
}

// A machine that is to be empty is no matter of taste: its worker goes although it is not ready, and the policy says what becomes of its jobs.
TEST(Renewal, AWorkerWhoseMachineIsToBeEmptyGoesAlsoWhenItIsNotReady) {
  Renewal world(2);
  world.in.renew = {1}, world.in.moved = {1};
  world.pods[1] = pod_object(1, "Running", false, "p1");
  EXPECT_EQ(world.round(), "drain worker-1");
  EXPECT_THAT(world.notes, Not(HasSubstr("mounts")));
  world.drained(1);
  EXPECT_EQ(world.round(), "");
  EXPECT_EQ(world.round(), "end worker-1");
  EXPECT_EQ(world.pods.size(), 2u);
}
// Machines that are tried with one another are wanted empty at the same time: their workers do not wait for one another, nor for others.
TEST(Renewal, WorkersWhoseMachinesMeetLeaveTogether) {
  Renewal world(3);
  world.in.renew = {0, 1, 2}, world.in.moved = {0, 1, 2};
  EXPECT_EQ(world.round(), "drain worker-0") << "one of ten at a time, and one at least";
  world.in.together = {1, 2};
  EXPECT_EQ(world.round(), "drain worker-0, drain worker-1, drain worker-2");
}
TEST(Renewal, JobsOfAWorkerWhoseMachineIsToBeEmptyFollowThePolicy) {
  Renewal world(2);
  world.in.rules.policy = api::SlurmScaleDown::Policy::Requeue;
  world.in.rules.after = 10s;
  world.in.renew = {0}, world.in.moved = {0};
  world.busy(0, 9000s);
  EXPECT_EQ(world.round(), "drain worker-0");
  world.drained(0);
  EXPECT_EQ(world.round(), "");
  EXPECT_THAT(world.notes, HasSubstr("put back into the queue at"));
  EXPECT_EQ(world.round(), "");
  EXPECT_THAT(world.round(), HasSubstr("requeue worker-0"));
}

TEST(Renewal, BusyOnesComeLastAndKeepTheirJobsWhateverThePolicy) {
  Renewal world(3);
  world.in.rules.policy = api::SlurmScaleDown::Policy::Kill;
  world.in.rules.after = 1s;
  world.busy(0, 900s);
  world.busy(2, 300s);
  EXPECT_EQ(world.round(), "drain worker-1");
  world.in.renew.erase(1);
  EXPECT_EQ(world.round(), "drain worker-2") << "the shortest time left";
  world.drained(2);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(world.round(), "");
  world.view.nodes["worker-0"].state = {"IDLE"}, world.view.nodes["worker-0"].cpus = 0;
  std::erase_if(world.view.jobs, [](const auto& job) { return job.id == "0"; });
  EXPECT_EQ(world.round(), "drain worker-0") << "it is empty now, and need not wait for the other one's job";
  EXPECT_THAT(world.notes, HasSubstr("worker-2 is drained and waits for job 2 of ada"));
}

TEST(Renewal, ATenthAtOnce) {
  Renewal world(30);
  EXPECT_EQ(world.round(), "drain worker-0, drain worker-1, drain worker-2");
}

// Jobs have all the time that the policy gives them from when their worker is beyond the size, however long it waited to be made anew before.
TEST(Renewal, AScaleDownAfterItWaitsAnew) {
  Renewal world(1);
  world.in.rules.policy = api::SlurmScaleDown::Policy::Kill;
  world.in.rules.after = 60s;
  world.busy(0, 900s);
  EXPECT_EQ(world.round(), "drain worker-0");
  world.drained(0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(world.round(), "");
  world.in.size = 0, ++world.in.generation;
  for (int i = 0; i < 12; ++i) EXPECT_EQ(world.round(), "") << i;
  EXPECT_EQ(world.round(), "cancel worker-0 0");
}

TEST(Renewal, WhatIsWantedNoMoreIsTakenBack) {
  Renewal world(2);
  EXPECT_EQ(world.round(), "drain worker-0");
  world.drained(0);
  EXPECT_EQ(world.round(), "");
  world.in.renew.clear();
  EXPECT_EQ(world.round(), "undrain worker-0") << "the mounts are as they were";
}

TEST(Renewal, APersonsDrainStays) {
  Renewal world(2);
  world.view.nodes["worker-0"].state = {"IDLE", "DRAIN"}, world.view.nodes["worker-0"].reason = "disk";
  EXPECT_EQ(world.round(), "");
  EXPECT_EQ(world.round(), "end worker-0");
  world.in.renew.erase(0);
  world.pods[0] = pod_object(0, "Running", true, "new0");
  EXPECT_EQ(world.round(), "drain worker-1") << "worker-0 is not undrained, and holds nobody up";
}

TEST(Renewal, NothingHappensWithoutSlurm) {
  Renewal world(2);
  EXPECT_EQ(world.round(false), "");
  world.view.nodes.erase("worker-0");
  EXPECT_EQ(world.round(), "drain worker-1") << "of a worker that Slurm does not know nobody knows what runs there";
}

}  // namespace
}  // namespace fairlead::slurm
