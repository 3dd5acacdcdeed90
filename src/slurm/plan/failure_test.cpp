// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/failure.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;

Json json(const std::string& text) {
  auto parsed = kube::parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : Json();
}
Json node(const std::string& ready, const std::string& taints = "[]") {
  return json(R"({"metadata":{"name":"m1"},"spec":{"taints":)" + taints + R"(},"status":{"conditions":[{"type":"Ready","status":")" + ready + "\"}]}}");
}
Json pod(const std::string& state, const std::string& last = "{}", const std::string& name = "worker-1") {
  return json(R"({"metadata":{"name":")" + name + R"(","uid":"p1"},"spec":{"nodeName":"m1"},"status":{"phase":"Running","containerStatuses":[{"name":"munge","state":{"terminated":{"exitCode":1,"finishedAt":"2026-11-21T20:00:00Z"}}},{"name":"slurmd","state":)" +
              state + R"(,"lastState":)" + last + "}]}}");
}
const std::string kRunning = R"({"running":{"startedAt":"2026-11-21T20:00:00Z"}})", kWaiting = R"({"waiting":{"reason":"CrashLoopBackOff"}})",
                  kEnded = R"({"terminated":{"exitCode":137,"finishedAt":"2026-11-21T20:10:00Z"}})", kOut = R"([{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}])";

struct Row {
  const char* name;
  Json pod, node;
  const char* ended;  // empty: no proof
  bool machine;
};
class Proves : public testing::TestWithParam<Row> {};
TEST_P(Proves, ADeathOrNothing) {
  const auto& [name, pod, node, ended, machine] = GetParam();
  const auto proof = proof_of_death(pod, "slurmd", node.is_null() ? nullptr : &node);
  ASSERT_EQ(proof.has_value(), *ended != 0);
  if (!proof) return;
  EXPECT_EQ(proof->ended, ended);
  EXPECT_EQ(proof->machine, machine);
}
INSTANTIATE_TEST_SUITE_P(
    Rows, Proves,
    testing::Values(Row{"runs", pod(kRunning), node("True"), "", false}, Row{"ended", pod(kEnded), node("True"), "2026-11-21T20:10:00Z", false}, Row{"restarting", pod(kWaiting, kEnded), node("True"), "2026-11-21T20:10:00Z", false},
                    Row{"runs_again", pod(kRunning, kEnded), node("True"), "", false}, Row{"never_started", pod(kWaiting), node("True"), "", false},
                    // What a machine reported before it fell silent is old.
                    Row{"ended_on_a_silent_machine", pod(kEnded), node("Unknown"), "", false}, Row{"ended_nobody_knows_where", pod(kEnded), Json(), "", false},
                    Row{"silent", pod(kRunning), node("Unknown"), "", false}, Row{"silent_and_off", pod(kRunning), node("Unknown", kOut), "-", true}, Row{"off", pod(kRunning), node("False", kOut), "-", true},
                    // A machine that is said to be off and reports: one of the two is wrong.
                    Row{"said_to_be_off_but_ready", pod(kRunning), node("True", kOut), "", false}, Row{"said_to_be_off_but_ready_and_ended", pod(kEnded), node("True", kOut), "", false},
                    Row{"cordoned", pod(kRunning), node("Unknown", R"([{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}])"), "", false}),
    [](const auto& row) { return row.param.name; });

class Failures : public testing::Test {
 protected:
  Failures() { view_.nodes["worker-1"] = {.name = "worker-1", .state = {"MIXED"}}; }
  FailureInput input(bool look = true) {
    FailureInput in{.memory = memory_};
    in.pods["worker-1"] = &pod_;
    in.nodes["m1"] = &node_;
    if (look) in.view = view_;
    return in;
  }
  FailurePlan plan(bool look = true) {
    auto plan = plan_failures(input(look));
    memory_ = plan.memory;
    return plan;
  }
  Json pod_ = pod(kRunning), node_ = node("True"), memory_;
  SlurmView view_;
};

TEST_F(Failures, SlurmIsToldOnceAndAsLongAsItDoesNotKnow) {
  EXPECT_FALSE(needs_look(input()));
  EXPECT_THAT(plan().steps, IsEmpty());
  node_ = node("Unknown", kOut);
  EXPECT_TRUE(needs_look(input()));
  EXPECT_THAT(plan(false).steps, IsEmpty()) << "whether Slurm knows is not known";
  EXPECT_TRUE(plan(false).look_again);
  const auto told = plan();
  ASSERT_EQ(told.steps.size(), 1U);
  EXPECT_EQ(told.steps[0].verb, NodeVerb::Died);
  EXPECT_EQ(told.steps[0].node, "worker-1");
  EXPECT_THAT(told.steps[0].arguments, ElementsAre("-", "died: machine m1 is out of service"));
  EXPECT_THAT(told.settled, IsEmpty()) << "its pod stays until Slurm has given up the jobs";
  EXPECT_EQ(plan().steps.size(), 1U) << "told, but nobody saw that it had an effect";
  // DOWN, and its job is still listed as running: Slurm is in the midst of it.
  view_.nodes["worker-1"].state = {"DOWN"};
  view_.jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"worker-0", "worker-1"}}};
  EXPECT_EQ(plan().steps.size(), 1U);
  view_.jobs[0].state = "COMPLETING";
  const auto known = plan();
  EXPECT_THAT(known.steps, IsEmpty());
  EXPECT_THAT(known.settled, ElementsAre("worker-1"));
  EXPECT_FALSE(needs_look(input(false)));
  // A worker of that name that lives again, or dies again, is another matter.
  node_ = node("True");
  EXPECT_TRUE(plan().memory.is_null());
  view_.nodes["worker-1"].state = {"IDLE"};
  pod_ = pod(kWaiting, kEnded);
  EXPECT_TRUE(needs_look(input()));
  EXPECT_THAT(plan().steps.at(0).arguments, ElementsAre("2026-11-21T20:10:00Z", "died: its container ended with 137"));
  view_.nodes.erase("worker-1");
  EXPECT_THAT(plan().steps, IsEmpty()) << "Slurm does not know of it any more";
  EXPECT_THAT(plan().settled, IsEmpty()) << "one container is not its machine";
}

TEST_F(Failures, TheConfirmedEndOfAPodThatIsGoneIsToldUntilNoJobIsLeftThere) {
  auto in = [this] {
    auto gone = input();
    gone.pods.clear();
    gone.ended["worker-1"] = *proof_of_death(pod(kEnded), "slurmd", &node_);
    return gone;
  };
  view_.jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"worker-1"}}};
  EXPECT_TRUE(needs_look(in()));
  const auto told = plan_failures(in());
  EXPECT_THAT(told.steps.at(0).arguments, ElementsAre("2026-11-21T20:10:00Z", "died: its container ended with 137"));
  EXPECT_THAT(told.ends_known, IsEmpty());
  auto blind = in();
  blind.view.reset();
  EXPECT_THAT(plan_failures(blind).steps, IsEmpty());
  EXPECT_THAT(plan_failures(blind).ends_known, IsEmpty());
  view_.jobs.clear();
  EXPECT_THAT(plan_failures(in()).steps, IsEmpty());
  EXPECT_THAT(plan_failures(in()).ends_known, ElementsAre("worker-1"));
}

// Its container may end while it waits for the one before it, whose jobs Slurm still counts there.
TEST_F(Failures, AProofIsOfOnePodAndOneMachine) {
  view_.nodes["worker-1"].cpus = 1;
  view_.jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"worker-1"}}};
  view_.nodes["worker-1"].pod = "p1";
  view_.nodes["worker-1"].machine = "m1";
  pod_ = pod(kWaiting, kEnded);
  EXPECT_THAT(plan().steps.at(0).arguments, ElementsAre("2026-11-21T20:10:00Z", "died: its container ended with 137", "p1@"));
  view_.nodes["worker-1"].pod = "p0";
  view_.nodes["worker-1"].machine = "m0";
  EXPECT_THAT(plan().steps, IsEmpty());
  node_ = node("Unknown", kOut);
  memory_ = Json();
  EXPECT_THAT(plan().steps, IsEmpty()) << "another machine's death";
  EXPECT_THAT(plan().settled, ElementsAre("worker-1")) << "and nothing of Slurm's was on this one";
  memory_ = Json();
  view_.nodes["worker-1"].machine = "m1";
  EXPECT_THAT(plan().steps.at(0).arguments, ElementsAre("-", "died: machine m1 is out of service", "@m1")) << "whichever pod it was";
  auto gone = input();
  gone.pods.clear();
  const Json alive = node("True");
  gone.ended["worker-1"] = *proof_of_death(pod(kEnded), "slurmd", &alive);
  EXPECT_THAT(plan_failures(gone).steps, IsEmpty()) << "Slurm's is the pod before that";
  EXPECT_THAT(plan_failures(gone).ends_known, ElementsAre("worker-1"));
  view_.nodes["worker-1"].pod = "p1";
  gone.view = view_;
  EXPECT_THAT(plan_failures(gone).steps.at(0).arguments, ElementsAre("2026-11-21T20:10:00Z", "died: its container ended with 137", "p1@"));
}

const Instant kMade = *parse_time("2026-11-21T20:00:00Z");
Json had(const std::string& ready, const std::string& since, const std::string& taints = "[]") {
  return json(R"({"metadata":{"name":"m0"},"spec":{"taints":)" + taints + R"(},"status":{"conditions":[{"type":"Ready","status":")" + ready + R"(","lastTransitionTime":")" + since + "\"}]}}");
}
struct OrphanRow {
  const char* name;
  Json node;
  int after;  // seconds since the waiting pod was made
  bool dead;
};
class Orphans : public testing::TestWithParam<OrphanRow> {};
TEST_P(Orphans, AreDeadWhenTheirMachineSaysSoOrIsOff) {
  const auto& [name, node, after, dead] = GetParam();
  Json waiting = pod(kRunning);
  waiting.child("metadata").set("creationTimestamp", "2026-11-21T20:00:00Z");
  waiting.child("spec").set("terminationGracePeriodSeconds", 30);
  const auto proof = proof_of_orphan(waiting, "m0", node.is_null() ? nullptr : &node, kMade + std::chrono::seconds(after));
  ASSERT_EQ(proof.has_value(), dead);
  if (proof) {
    EXPECT_EQ(proof->ended, "2026-11-21T20:00:00Z") << "a slurmd that started later is not its";
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, Orphans,
                         testing::Values(OrphanRow{"silent", had("Unknown", "2026-11-21T20:00:30Z"), 100'000, false}, OrphanRow{"unknown", Json(), 100'000, false},
                                         OrphanRow{"not_ready", had("False", "2026-11-21T20:00:30Z"), 100'000, false}, OrphanRow{"off", had("Unknown", "2026-11-21T20:00:30Z", kOut), 5, true},
                                         OrphanRow{"said_to_be_off_but_ready", had("True", "2026-11-21T20:00:30Z", kOut), 100'000, false},
                                         // Its kubelet may not have been asked for a while: silence shows after 50 s only.
                                         OrphanRow{"ready", had("True", "2026-11-21T10:00:00Z"), 119, false}, OrphanRow{"ready_for_long", had("True", "2026-11-21T10:00:00Z"), 120, true},
                                         OrphanRow{"back", had("True", "2026-11-21T20:10:00Z"), 719, false}, OrphanRow{"back_for_long", had("True", "2026-11-21T20:10:00Z"), 720, true},
                                         OrphanRow{"since_when_is_not_said", had("True", ""), 100'000, false}, OrphanRow{"another_machine", node("True"), 100'000, false}),
                         [](const auto& row) { return row.param.name; });

TEST_F(Failures, AWorkerWaitsForThePodThatHadItsName) {
  pod_.child("metadata").set("creationTimestamp", "2026-11-21T20:00:00Z");
  pod_.child("spec").set("containers", *kube::parse_json(R"([{"name":"slurmd","env":[{"name":"FAIRLEAD_POD_UID"}]}])"));
  const Json silent = had("Unknown", "2026-11-21T20:00:30Z"), off = had("Unknown", "2026-11-21T20:00:30Z", kOut), back = had("True", "2026-11-21T20:10:00Z");
  auto at = [&](int seconds, const Json* machine) {
    auto in = input();
    if (machine) in.nodes["m0"] = machine;
    in.now = kMade + std::chrono::seconds(seconds);
    return in;
  };
  EXPECT_FALSE(needs_look(at(4, &silent))) << "it only just starts";
  EXPECT_EQ(plan_failures(at(4, &silent)).look_later, std::chrono::seconds(5));
  EXPECT_TRUE(needs_look(at(5, &silent)));
  EXPECT_THAT(may_wait(at(5, &silent)), ElementsAre("worker-1"));
  EXPECT_THAT(plan_failures(at(5, &silent)).notes, IsEmpty()) << "Slurm knows nobody's slurmd there";
  auto& node = view_.nodes["worker-1"];
  node.pod = "p0";
  node.machine = "m0";
  EXPECT_THAT(plan_failures(at(5, &silent)).notes, IsEmpty()) << "and nothing runs there";
  node.cpus = 2;
  view_.jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"worker-1"}}};
  const auto waits = plan_failures(at(5, &silent));
  EXPECT_THAT(waits.steps, IsEmpty());
  EXPECT_THAT(waits.notes, ElementsAre(testing::HasSubstr("kubectl taint node m0 node.kubernetes.io/out-of-service")));
  EXPECT_TRUE(waits.look_again);
  EXPECT_THAT(plan_failures(at(5, nullptr)).steps, IsEmpty()) << "a machine that is not there proves nothing";
  EXPECT_THAT(plan_failures(at(5, nullptr)).notes, ElementsAre(testing::HasSubstr("scontrol update nodename=worker-1 state=down"))) << "and has no Node to be tainted";
  EXPECT_THAT(plan_failures(at(5, &off)).steps.at(0).arguments, ElementsAre("2026-11-21T20:00:00Z", "died: machine m0 is out of service", "p0@m0"));
  EXPECT_THAT(plan_failures(at(700, &back)).notes, ElementsAre("worker-1 waits until machine m0 has ended the pod that had its name before"));
  EXPECT_THAT(plan_failures(at(720, &back)).steps.at(0).arguments, ElementsAre("2026-11-21T20:00:00Z", "died: its pod was deleted, and machine m0 has reported ever since", "p0@m0"));
  node.pod = "p1";
  EXPECT_THAT(plan_failures(at(720, &back)).steps, IsEmpty()) << "the slurmd is its own";
  pod_.child("status").set("conditions", *kube::parse_json(R"([{"type":"Ready","status":"True"}])"));
  EXPECT_THAT(may_wait(at(720, &back)), IsEmpty());
  node.pod = "p0";
  EXPECT_THAT(plan_failures(at(720, &back)).steps, IsEmpty()) << "it serves: what is written down is old";
  pod_.child("status").set("conditions", Json::array());
  pod_.child("spec").set("containers", *kube::parse_json(R"([{"name":"slurmd"}])"));
  EXPECT_THAT(plan_failures(at(720, &back)).steps, IsEmpty()) << "made by an operator that knows no marks, over one that did";
}

TEST_F(Failures, ASecondPowerCutIsAnotherDeath) {
  const auto off = [](const std::string& since) {
    return json(R"({"metadata":{"name":"m1"},"spec":{"taints":)" + kOut + R"(},"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":")" + since + "\"}]}}");
  };
  const Json first = off("2026-11-21T20:00:00Z"), second = off("2026-11-21T21:00:00Z");
  EXPECT_NE(proof_of_death(pod_, "slurmd", &first)->of, proof_of_death(pod_, "slurmd", &second)->of);
}

}  // namespace
}  // namespace fairlead::slurm
