// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/scale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>
#include <set>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};
const std::string kOurs = "fairlead: scale-down of u1 generation 2";

Json pod_object(int ordinal, const char* phase, bool is_ready, const std::string& uid) {
  return Json::object({{"metadata", Json::object({{"name", fmt::format("worker-{}", ordinal)}, {"uid", uid}})},
                       {"status", Json::object({{"phase", phase}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", is_ready ? "True" : "False"}})})}})}});
}
// Pending, on a machine: an injected sidecar cannot be pulled, while slurmd runs or not.
Json half_started(int ordinal, const std::string& uid, bool slurmd) {
  Json pod = pod_object(ordinal, "Pending", false, uid);
  pod.set("spec", Json::object({{"nodeName", "n1"}}));
  const Json waiting = Json::object({{"name", "sidecar"}, {"state", Json::object({{"waiting", Json::object({{"reason", "ImagePullBackOff"}})}})}});
  const Json running = Json::object({{"name", "slurmd"}, {"state", Json::object({{"running", Json::object({{"startedAt", "2026-01-01T00:00:00Z"}})}})}});
  pod.child("status").set("containerStatuses", slurmd ? Json::array({waiting, running}) : Json::array({waiting}));
  return pod;
}
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
std::vector<int> kept(const std::vector<Worker>& workers, int size, Json memory = {}, bool answers = true) {
  Inputs its;
  its.in = {.generation = 2, .size = size, .rules = {.strict_ordinals = false}, .memory = std::move(memory), .now = kNow};
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

// ---- a Slurm and a Kubernetes that behave, an operator that dies at any step, and people who do what they like
class Site {
 public:
  Site(std::uint32_t seed, bool strict) : random_(seed) {
    rules_.strict_ordinals = strict;
    const auto dice = pick(3);
    rules_.policy = dice == 0 ? api::SlurmScaleDown::Policy::Requeue : dice == 1 ? api::SlurmScaleDown::Policy::Kill : api::SlurmScaleDown::Policy::Wait;
    rules_.after = 15s;
  }

  void live(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += std::chrono::seconds(pick(4));
      switch (pick(12)) {
        case 0: resize(); break;
        case 1: submit(); break;
        case 2: finish_job(); break;
        case 3: drain_by_hand(); break;
        case 4: undrain_by_hand(); break;
        case 5: silent_ = pick(3) == 0; break;
        case 6: delete_pod_by_hand(); break;
        case 7: notice_the_dead(); break;
        case 8: kubelet(); break;
        default: operate(pick(4) == 0 ? pick(4) : 1000); break;
      }
    }
  }

  // Nobody interferes any more, jobs end: everything comes to rest, and all is as it should be.
  void rest() {
    silent_ = false;
    resting_ = true;
    jobs_.clear();
    for (int i = 0; i < 60; ++i) {
      now_ += 10s;  // a record that nobody knows stays for minutes
      kubelet(true);
      notice_the_dead();
      operate(1000);
    }
    resting_ = false;
    std::set<std::string> pods, records;
    for (const auto& [ordinal, pod] : pods_) pods.insert(fmt::format("worker-{}", ordinal));
    for (const auto& [name, node] : nodes_) {
      records.insert(name);
      EXPECT_FALSE(node.drained && node.reason.starts_with(kScaleDownReason)) << name << " stays drained by us";
    }
    EXPECT_EQ(pods.size(), static_cast<std::size_t>(size_));
    EXPECT_EQ(records, pods);
    EXPECT_TRUE(memory_["workers"].is_null()) << kube::print_json(memory_);
    if (rules_.strict_ordinals && size_ > 0) {
      EXPECT_TRUE(pods.contains(fmt::format("worker-{}", size_ - 1)));
    }
  }

 private:
  struct Node {
    bool drained = false, failing = false, down = false, silent = false;
    std::string reason, since;
    bool closed() const { return drained || failing; }
    int empty_looks = 0;  // in a row, drained and empty
  };
  // Also larger and smaller again, or the other way round, before anybody looks.
  void resize() {
    for (int edits = 1 + pick(3); edits > 0; --edits) {
      size_ = pick(5), ++generation_;
      for (int i = 0; i < 5; ++i) {
        if (i < size_) beyond_since_.erase(i);
        else beyond_since_.emplace(i, now_);
      }
    }
  }
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint32_t>(below)); }
  static std::string name(int ordinal) { return fmt::format("worker-{}", ordinal); }
  bool busy(const std::string& node) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.second == node; });
  }
  template <class Map>
  auto any(Map& map) {
    auto at = map.begin();
    if (!map.empty()) std::advance(at, pick(static_cast<int>(map.size())));
    return at;
  }

  void submit() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    if (!at->second.closed() && !at->second.down && !at->second.silent && alive(at->first)) jobs_[++last_job_] = at->first;
  }
  bool alive(const std::string& node) {
    return slurmds_.contains(*worker_ordinal(node));
  }
  void finish_job() {
    if (!jobs_.empty()) jobs_.erase(any(jobs_));
  }
  void drain_by_hand() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    (pick(3) == 0 ? at->second.failing : at->second.drained) = true, at->second.reason = "a person's", by_hand_.insert(at->first);
    at->second.since = print_time(now_);
    closed_since_.emplace(at->first, now_);
  }
  void undrain_by_hand() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    at->second.drained = at->second.failing = false, at->second.reason = "", by_hand_.erase(at->first), closed_since_.erase(at->first);
  }
  void delete_pod_by_hand() {
    if (!pods_.empty() && pick(3) == 0) any(pods_)->second.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  }
  // Slurm's time-out: a node without a slurmd is down, and its jobs are over there.
  void notice_the_dead() {
    for (auto& [node, its] : nodes_)
      if (!alive(node)) {
        its.down = its.silent = true;
        if (its.reason.empty()) its.reason = "Not responding";
        std::erase_if(jobs_, [&](const auto& job) { return job.second == node; });
      }
  }
  void kubelet(bool all = false) {
    for (auto at = pods_.begin(); at != pods_.end();) {
      auto& [ordinal, pod] = *at;
      if (!all && pick(2) == 0) {
        ++at;
        continue;
      }
      if (kube::deleting(pod)) {
        slurmds_.erase(ordinal);
        at = pods_.erase(at);
        continue;
      }
      const bool pending = pod["status"]["phase"].string() == "Pending";
      if (!slurmds_.contains(ordinal)) {
        slurmds_.insert(ordinal);
        pod.set("spec", Json::object({{"nodeName", "n1"}}));
        const int told = all ? 2 : pick(4);  // what Kubernetes shows of it: nothing yet, or Pending for a sidecar's sake, or all
        pod.set("status", told == 0 ? pod["status"] : told == 1 ? half_started(ordinal, "", true)["status"] : pod_object(ordinal, "Running", false, "")["status"]);
      } else if (!nodes_.contains(name(ordinal)) || nodes_[name(ordinal)].down || !kube::condition_is_true(pod, "Ready")) {
        Node& node = nodes_[name(ordinal)];  // registers; ReturnToService=2
        if (node.down && !node.closed()) node.reason = "";
        node.down = node.silent = false;
        if (!pending || all || pick(3) == 0) pod.set("status", pod_object(ordinal, "Running", true, "")["status"]);
      }
      ++at;
    }
  }

  SlurmView look() {
    SlurmView view{.at = now_};
    for (auto& [node, its] : nodes_) {
      SlurmNode out{.name = node, .state = {its.down ? "DOWN" : busy(node) ? "MIXED" : "IDLE"}, .cpus = busy(node), .reason = its.reason, .by = "root", .since = its.since, .answers = alive(node)};
      if (its.drained) out.state.push_back("DRAIN");
      if (its.failing) out.state.push_back("FAIL");
      if (its.silent) out.state.push_back("NOT_RESPONDING");
      view.nodes[node] = out;
    }
    for (const auto& [id, node] : jobs_)
      if (!rules_.strict_ordinals || *worker_ordinal(node) >= size_) view.jobs.push_back({.id = std::to_string(id), .user = "u", .state = "RUNNING", .nodes = {node}, .end = now_ + 100s});
    return view;
  }

  // One round of the operator, which dies after `lives` things done: the status is the first.
  void operate(int lives) {
    ScaleInput in{.cluster_uid = "u1", .generation = generation_, .size = size_, .rules = rules_, .memory = memory_, .now = now_};
    for (const auto& [ordinal, pod] : pods_) in.pods[ordinal] = &pod;
    const bool asked = needs_look(in);
    if (asked && !silent_) in.view = look();
    const ScalePlan plan = plan_scale(in);
    if (in.view && !rules_.strict_ordinals) idle_ones_first(plan, *in.view);
    if (lives-- <= 0) return;
    memory_ = plan.memory;
    if (in.view)  // what a look showed counts when it was written down
      for (auto& [node, its] : nodes_) its.empty_looks = its.closed() && is_empty(*in.view, in.view->nodes.at(node)) ? its.empty_looks + 1 : 0;
    if (!resting_) submit();  // in the meantime
    for (const auto& step : plan.steps) {
      if (lives-- <= 0) return;
      if (const auto* end = std::get_if<EndPod>(&step)) end_pod(end->ordinal, in.view.has_value());
      else tell(std::get<TellSlurm>(step), in.view.has_value());
    }
    for (const int ordinal : plan.ordinals)
      if (!pods_.contains(ordinal)) pods_[ordinal] = pod_object(ordinal, "Pending", false, fmt::format("uid-{}", ++last_uid_));
  }

  void idle_ones_first(const ScalePlan& plan, const SlurmView& view) {
    for (const auto& [ordinal, pod] : pods_) {
      if (kube::deleting(pod) || std::find(plan.ordinals.begin(), plan.ordinals.end(), ordinal) != plan.ordinals.end() || !busy(name(ordinal))) continue;
      for (const int stays : plan.ordinals) {
        const auto node = view.nodes.find(name(stays));
        EXPECT_TRUE(node != view.nodes.end() && !is_empty(view, node->second)) << name(ordinal) << " is busy and leaves, " << name(stays) << " idles and stays";
      }
    }
  }

  void end_pod(int ordinal, bool answered) {
    Json& pod = pods_.at(ordinal);
    if (slurmds_.contains(ordinal)) {
      EXPECT_TRUE(answered);
      EXPECT_FALSE(busy(name(ordinal))) << "a pod with a job is deleted";
      if (nodes_.contains(name(ordinal))) {
        EXPECT_TRUE(nodes_[name(ordinal)].closed());
        EXPECT_GE(nodes_[name(ordinal)].empty_looks, 2);
      }
    }
    pod.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  }

  // As fairlead-slurm does it.
  void tell(const TellSlurm& step, bool answered) {
    EXPECT_TRUE(answered);
    const auto found = nodes_.find(step.node);
    if (found == nodes_.end()) return;
    Node& node = found->second;
    switch (step.verb) {
      case NodeVerb::Drain:
        EXPECT_FALSE(node.failing);
        if (!node.drained) node.drained = true, node.reason = step.arguments.at(0), node.since = print_time(now_), closed_since_.emplace(step.node, now_);
        break;
      case NodeVerb::Undrain:
        EXPECT_THAT(node.reason, testing::StartsWith(kScaleDownReason));
        EXPECT_FALSE(by_hand_.contains(step.node));
        node.drained = false, node.reason = "", closed_since_.erase(step.node);
        break;
      case NodeVerb::Forget:
        EXPECT_FALSE(busy(step.node));
        EXPECT_FALSE(pods_.contains(*worker_ordinal(step.node)));
        nodes_.erase(found), by_hand_.erase(step.node), closed_since_.erase(step.node);
        break;
      case NodeVerb::Requeue:
      case NodeVerb::Cancel:
        EXPECT_NE(rules_.policy, api::SlurmScaleDown::Policy::Wait);
        EXPECT_TRUE(node.closed());
        EXPECT_GE(now_ - closed_since_.at(step.node), rules_.after);
        if (rules_.strict_ordinals) {
          EXPECT_GE(now_ - beyond_since_.at(*worker_ordinal(step.node)), rules_.after);
        }
        for (const auto& id : step.arguments) jobs_.erase(std::stoi(id));
        break;
      case NodeVerb::Died: ADD_FAILURE() << "no scale-down says that a worker died"; break;
    }
  }

  std::mt19937 random_;
  api::SlurmScaleDown rules_;
  Instant now_ = kNow;
  int size_ = 2, last_job_ = 0, last_uid_ = 0;
  std::int64_t generation_ = 1;
  bool silent_ = false, resting_ = false;
  Json memory_;
  std::map<int, Json> pods_;
  std::map<std::string, Node> nodes_;
  std::map<int, std::string> jobs_;  // id -> node
  std::set<std::string> by_hand_;    // drained by people
  std::set<int> slurmds_;            // that run, whatever Kubernetes shows of their pods
  std::map<int, Instant> beyond_since_;          // the size
  std::map<std::string, Instant> closed_since_;  // nodes that get no new jobs
};

TEST(Property, NoJobIsLostNoForeignDrainUndoneAndAllComesToRest) {
  const std::uint32_t seeds = std::getenv("FAIRLEAD_FULL") ? 5000 : 80;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Site site(seed, seed % 2 == 0);
    for (int part = 0; part < 3; ++part) {
      site.live(150);
      site.rest();
    }
    if (testing::Test::HasFailure()) return;
  }
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

}  // namespace
}  // namespace fairlead::slurm
