// SPDX-License-Identifier: Apache-2.0
#include "node/plan/pod_plan.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "kube/object.h"
#include "node/plan/pod_status.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const Instant epoch = *parse_time("2026-01-02T03:04:05Z");

class PodBuilder {
 public:
  explicit PodBuilder(const char* policy = "Always") {
    seen.pod =
        Json::object({{"metadata", Json::object({{"name", "p"}, {"namespace", "default"}, {"uid", "u"}})},
                      {"spec", Json::object({{"restartPolicy", policy}, {"terminationGracePeriodSeconds", 30}, {"containers", Json::array()}})}});
    seen.accepted = epoch;
    seen.host_ip = "10.0.0.1";
  }
  PodBuilder& main(const char* name) { return add("containers", name); }
  PodBuilder& init(const char* name) { return add("initContainers", name); }
  PodBuilder& sidecar(const char* name) {
    add("initContainers", name);
    seen.pod.find("spec")->find("initContainers")->items().back().set("restartPolicy", "Always");
    return *this;
  }
  PodBuilder& sandbox() {
    seen.sandbox = "s1";
    seen.ip = "10.1.0.2";
    seen.on_disk = true;
    return *this;
  }
  PodBuilder& running(const char* name, int number = 0) {
    Attempt& attempt = last(name, number);
    attempt.started = epoch;
    attempt.sandbox = seen.sandbox;
    seen.containers[name].ready = seen.containers[name].started = true;
    return *this;
  }
  PodBuilder& ended(const char* name, int code, int number = 0, int backoff = 0, std::chrono::seconds ran = 1s, const char* in = "s1") {
    Attempt& attempt = last(name, number);
    attempt.started = epoch;
    attempt.backoff_seconds = backoff;
    attempt.sandbox = in;
    attempt.end = Attempt::End{.code = code, .signal = 0, .at = epoch + ran, .reason = code == 0 ? "Completed" : "Error", .message = {}};
    return *this;
  }
  PodBuilder& deleting(std::chrono::seconds grace = 30s) {
    seen.pod.child("metadata")
        .set("deletionTimestamp", print_time(epoch + grace))
        .set("deletionGracePeriodSeconds", static_cast<std::int64_t>(grace.count()));
    return *this;
  }
  PodBuilder& phase(const char* text) {
    seen.pod.child("status").set("phase", text);
    return *this;
  }
  // The attempt was started with an image that the pod names no more.
  PodBuilder& other_image(const char* name) {
    seen.containers[name].latest->image = "busybox:0";
    return *this;
  }
  // The end of the attempt stands in the pod's status.
  PodBuilder& told(const char* name) {
    const Json ended = Json::object({{"containerID", std::string("crun://id-") + name}});
    seen.pod.child("status").child("containerStatuses").push(Json::object({{"name", name}, {"state", Json::object({{"terminated", ended}})}}));
    return *this;
  }
  PodSeen seen;

 private:
  PodBuilder& add(const char* list, const char* name) {
    seen.pod.child("spec").child(list).push(Json::object({{"name", name}, {"image", "busybox:1"}}));
    return *this;
  }
  Attempt& last(const char* name, int number) {
    seen.on_disk = true;
    Attempt attempt{.number = number,
                    .id = std::string("id-") + name,
                    .sandbox = "s1",
                    .image = "busybox:1",
                    .image_id = "sha256:x",
                    .created = epoch,
                    .started = {},
                    .backoff_seconds = 0,
                    .end = {}};
    seen.containers[name].latest = attempt;
    return *seen.containers[name].latest;
  }
};

std::string print(const Action& action) {
  struct Printer {
    std::string operator()(const EnsureSandbox&) { return "sandbox"; }
    std::string operator()(const StartContainer& a) {
      return "start " + a.name + " " + std::to_string(a.attempt) + (a.backoff_seconds ? " after " + std::to_string(a.backoff_seconds) : "");
    }
    std::string operator()(const BeginStop& a) { return "stop " + a.name + " in " + std::to_string((a.deadline - epoch) / 1s); }
    std::string operator()(const SendStopSignal& a) { return "signal " + a.name; }
    std::string operator()(const Kill& a) { return "kill " + a.name; }
    std::string operator()(const ReleaseSandbox&) { return "release"; }
    std::string operator()(const Forget&) { return "forget"; }
    std::string operator()(const ConfirmDeletion&) { return "confirm"; }
  };
  return std::visit(Printer{}, action);
}

std::vector<std::string> actions(const PodSeen& seen, Instant now = epoch) {
  std::vector<std::string> out;
  for (const Action& action : plan_pod(seen, now).actions) out.push_back(print(action));
  return out;
}

struct Case {
  const char* name;
  PodSeen seen;
  std::vector<std::string> want;
  std::chrono::seconds at = 0s;
  const char* phase = nullptr;  // reported; nullptr: not looked at
};
class PlanPod : public testing::TestWithParam<Case> {};
TEST_P(PlanPod, DoesTheNextThing) {
  const PodPlan plan = plan_pod(GetParam().seen, epoch + GetParam().at);
  EXPECT_EQ(actions(GetParam().seen, epoch + GetParam().at), GetParam().want);
  if (GetParam().phase != nullptr) {
    EXPECT_EQ(plan.status["phase"].string(), GetParam().phase);
  }
}

PodSeen with_stop(PodBuilder builder, const char* name, Stop stop) {
  builder.seen.containers[name].stop = stop;
  return builder.seen;
}
PodSeen with_trouble(PodBuilder builder, const char* name) {
  builder.seen.containers[name].trouble = Trouble{.reason = "ErrImageNeverPull", .message = "no", .retry_at = epoch + 5s};
  return builder.seen;
}
PodSeen failing_probe(PodBuilder builder, const char* name) {
  builder.seen.containers[name].failed_liveness = true;
  return builder.seen;
}
PodSeen refused(PodBuilder builder) {
  builder.seen.refusal = "no";
  return builder.seen;
}
PodSeen limited(PodBuilder builder) {
  builder.seen.pod.child("spec").set("activeDeadlineSeconds", 10);
  return builder.seen;
}

INSTANTIATE_TEST_SUITE_P(
    Life, PlanPod,
    testing::Values(
        Case{.name = "first_a_sandbox", .seen = PodBuilder().main("m").seen, .want = {"sandbox"}, .phase = "Pending"},
        Case{.name = "then_all_main_containers",
             .seen = PodBuilder().main("m").main("n").sandbox().seen,
             .want = {"start m 0", "start n 0"},
             .phase = "Pending"},
        Case{.name = "init_containers_come_first",
             .seen = PodBuilder().init("a").init("b").main("m").sandbox().seen,
             .want = {"start a 0"},
             .phase = "Pending"},
        Case{.name = "one_init_container_at_a_time",
             .seen = PodBuilder().init("a").init("b").main("m").sandbox().running("a").seen,
             .want = {},
             .phase = "Pending"},
        Case{.name = "the_next_init_container",
             .seen = PodBuilder().init("a").init("b").main("m").sandbox().ended("a", 0).seen,
             .want = {"start b 0"}},
        Case{.name = "main_after_init", .seen = PodBuilder().init("a").main("m").sandbox().ended("a", 0).seen, .want = {"start m 0"}},
        Case{.name = "a_new_sandbox_runs_init_again",
             .seen = PodBuilder().init("a").main("m").sandbox().ended("a", 0, 0, 0, 1s, "old").ended("m", 1, 0, 0, 1s, "old").seen,
             .want = {"start a 1"},
             .at = 5s},
        Case{.name = "a_failed_init_container_is_restarted",
             .seen = PodBuilder().init("a").main("m").sandbox().ended("a", 1).seen,
             .want = {"start a 1"},
             .at = 2s},
        Case{.name = "with_never_a_failed_init_container_fails_the_pod",
             .seen = PodBuilder("Never").init("a").main("m").sandbox().ended("a", 1).seen,
             .want = {"release"},
             .phase = "Failed"},
        Case{.name = "running_needs_nothing", .seen = PodBuilder().main("m").sandbox().running("m").seen, .want = {}, .phase = "Running"},
        Case{.name = "a_cut_off_start_is_repeated",
             .seen =
                 [] {
                   PodBuilder b;
                   b.main("m").sandbox().running("m", 2);
                   b.seen.containers["m"].latest->started.reset();
                   return b.seen;
                 }(),
             .want = {"start m 2"}},
        Case{.name = "trouble_waits", .seen = with_trouble(PodBuilder().main("m").sandbox(), "m"), .want = {}, .phase = "Pending"},
        Case{.name = "trouble_is_tried_again", .seen = with_trouble(PodBuilder().main("m").sandbox(), "m"), .want = {"start m 0"}, .at = 5s},
        Case{.name = "a_refused_pod_fails", .seen = refused(PodBuilder().main("m")), .want = {}, .phase = "Failed"}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Restart, PlanPod,
    testing::Values(
        Case{.name = "the_first_restart_is_at_once",
             .seen = PodBuilder().main("m").sandbox().ended("m", 1).seen,
             .want = {"start m 1"},
             .at = 1s,
             .phase = "Running"},
        Case{.name = "the_second_waits", .seen = PodBuilder().main("m").sandbox().ended("m", 1, 1).seen, .want = {}, .at = 10s, .phase = "Running"},
        Case{.name = "ten_seconds", .seen = PodBuilder().main("m").sandbox().ended("m", 1, 1).seen, .want = {"start m 2 after 10"}, .at = 11s},
        Case{.name = "then_twenty", .seen = PodBuilder().main("m").sandbox().ended("m", 1, 2, 10).seen, .want = {}, .at = 20s},
        Case{.name = "exit_0_is_restarted_with_always",
             .seen = PodBuilder("Always").main("m").sandbox().ended("m", 0).seen,
             .want = {"start m 1"},
             .at = 1s},
        Case{.name = "exit_0_ends_with_on_failure",
             .seen = PodBuilder("OnFailure").main("m").sandbox().ended("m", 0).seen,
             .want = {"release"},
             .phase = "Succeeded"},
        Case{.name = "exit_1_is_restarted_with_on_failure",
             .seen = PodBuilder("OnFailure").main("m").sandbox().ended("m", 1).seen,
             .want = {"start m 1"},
             .at = 1s},
        Case{.name = "exit_1_fails_with_never",
             .seen = PodBuilder("Never").main("m").sandbox().ended("m", 1).seen,
             .want = {"release"},
             .phase = "Failed"},
        Case{.name = "one_of_two_still_runs",
             .seen = PodBuilder("Never").main("m").main("n").sandbox().ended("m", 1).running("n").seen,
             .want = {},
             .phase = "Running"},
        Case{.name = "an_ended_pod_is_never_started_again", .seen = PodBuilder().main("m").phase("Failed").seen, .want = {}},
        Case{.name = "after_its_deadline_it_is_stopped",
             .seen = limited(PodBuilder().main("m").sandbox().running("m")),
             .want = {"stop m in 40"},
             .at = 10s,
             .phase = "Running"},
        Case{.name = "and_has_failed",
             .seen = limited(PodBuilder().main("m").sandbox().ended("m", 143)),
             .want = {"release"},
             .at = 12s,
             .phase = "Failed"}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Stopping, PlanPod,
    testing::Values(
        Case{.name = "deletion_begins_a_stop", .seen = PodBuilder().main("m").sandbox().running("m").deleting().seen, .want = {"stop m in 30"}},
        Case{.name = "the_hook_is_waited_for",
             .seen = with_stop(PodBuilder().main("m").sandbox().running("m").deleting(), "m", {.deadline = epoch + 30s}),
             .want = {},
             .at = 5s},
        Case{.name = "then_the_signal",
             .seen = with_stop(PodBuilder().main("m").sandbox().running("m").deleting(), "m", {.deadline = epoch + 30s, .hook_done = true}),
             .want = {"signal m"},
             .at = 5s},
        Case{.name = "once",
             .seen = with_stop(PodBuilder().main("m").sandbox().running("m").deleting(), "m",
                               {.deadline = epoch + 30s, .hook_done = true, .signalled = true}),
             .want = {},
             .at = 5s},
        Case{.name = "killed_at_the_deadline",
             .seen = with_stop(PodBuilder().main("m").sandbox().running("m").deleting(), "m", {.deadline = epoch + 30s}),
             .want = {"kill m"},
             .at = 30s},
        Case{.name = "a_shorter_grace_shortens_a_stop",
             .seen = with_stop(PodBuilder().main("m").sandbox().running("m").deleting(2s), "m",
                               {.deadline = epoch + 30s, .hook_done = true, .signalled = true}),
             .want = {"kill m"},
             .at = 3s},
        Case{.name = "when_all_has_ended_everything_goes",
             .seen = PodBuilder().main("m").sandbox().ended("m", 143).deleting().seen,
             .want = {"release", "forget", "confirm"}},
        Case{.name = "a_pod_never_seen_is_confirmed", .seen = PodBuilder().main("m").deleting().seen, .want = {"confirm"}},
        Case{.name = "nothing_is_started_while_deleting",
             .seen = PodBuilder().main("m").main("n").sandbox().running("m").deleting().seen,
             .want = {"stop m in 30"}},
        Case{.name = "a_failed_probe_stops_the_container",
             .seen = failing_probe(PodBuilder().main("m").sandbox().running("m"), "m"),
             .want = {"stop m in 30"}}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(
    ImageChange, PlanPod,
    testing::Values(
        Case{.name = "the_container_is_stopped",
             .seen = PodBuilder("Never").main("m").main("n").sandbox().running("m").running("n").other_image("m").seen,
             .want = {"stop m in 30"},
             .phase = "Running"},
        Case{.name = "and_started_anew_whatever_the_policy",
             .seen = PodBuilder("Never").main("m").main("n").sandbox().ended("m", 143).running("n").other_image("m").seen,
             .want = {"start m 1"},
             .at = 1s,
             .phase = "Running"},
        Case{.name = "without_a_pause",
             .seen = PodBuilder().main("m").sandbox().ended("m", 1, 4, 80).other_image("m").seen,
             .want = {"start m 5"},
             .at = 1s,
             .phase = "Running"},
        Case{.name = "the_last_one_of_a_pod_too",
             .seen = PodBuilder("OnFailure").main("m").sandbox().ended("m", 0).other_image("m").seen,
             .want = {"start m 1"},
             .at = 1s,
             .phase = "Running"},
        Case{.name = "one_that_had_ended_before_stays_ended",
             .seen = PodBuilder("Never").main("m").main("n").sandbox().ended("m", 0).told("m").running("n").other_image("m").seen,
             .want = {},
             .at = 1s,
             .phase = "Running"},
        Case{.name = "an_ended_pod_stays_ended",
             .seen = PodBuilder("Never").main("m").ended("m", 0).other_image("m").phase("Succeeded").seen,
             .want = {}},
        Case{.name = "a_sidecar_too",
             .seen = PodBuilder("Never").sidecar("s").main("m").sandbox().running("s").running("m").other_image("s").seen,
             .want = {"stop s in 30"},
             .phase = "Running"},
        Case{.name = "an_init_container_that_is_done_is_not_run_again",
             .seen = PodBuilder("Never").init("a").main("m").sandbox().ended("a", 0).running("m").other_image("a").seen,
             .want = {},
             .phase = "Running"},
        Case{.name = "a_deletion_goes_before",
             .seen = PodBuilder().main("m").sandbox().ended("m", 143).other_image("m").deleting().seen,
             .want = {"release", "forget", "confirm"}}),
    [](const auto& row) { return row.param.name; });

PodSeen unstarted(PodBuilder builder, const char* name) {
  builder.seen.containers[name].started = builder.seen.containers[name].ready = false;
  return builder.seen;
}
PodSeen half_hook(PodBuilder builder) {
  builder.seen.containers["m"].stop = Stop{.deadline = epoch + 30s, .hook_done = false, .hook_until = epoch + 3s};
  return builder.seen;
}
INSTANTIATE_TEST_SUITE_P(
    Sidecars, PlanPod,
    testing::Values(
        Case{.name = "a_sidecar_comes_before_what_follows_it",
             .seen = PodBuilder().sidecar("s").init("a").main("m").sandbox().seen,
             .want = {"start s 0"}},
        Case{.name = "which_waits_until_it_has_started",
             .seen = unstarted(PodBuilder().sidecar("s").init("a").main("m").sandbox().running("s"), "s"),
             .want = {},
             .phase = "Pending"},
        Case{.name = "and_then_comes", .seen = PodBuilder().sidecar("s").init("a").main("m").sandbox().running("s").seen, .want = {"start a 0"}},
        Case{.name = "a_sidecar_that_ended_is_restarted_whatever_the_policy",
             .seen = PodBuilder("Never").sidecar("s").init("a").main("m").sandbox().ended("s", 0).ended("a", 0).running("m").seen,
             .want = {"start s 1"},
             .at = 5s,
             .phase = "Running"},
        Case{.name = "main_containers_are_not_held_up_by_it",
             .seen = PodBuilder().sidecar("s").main("m").main("n").sandbox().ended("s", 1, 3, 300).running("m").seen,
             .want = {"start n 0"},
             .at = 5s},
        Case{.name = "it_is_stopped_after_the_main_containers",
             .seen = PodBuilder("Never").sidecar("s").main("m").sandbox().running("s").ended("m", 0).seen,
             .want = {"stop s in 31"},
             .phase = "Running"},
        Case{.name = "the_last_sidecar_first",
             .seen = PodBuilder("Never").sidecar("s").sidecar("t").main("m").sandbox().running("s").running("t").ended("m", 0).seen,
             .want = {"stop t in 31"}},
        Case{.name = "then_the_pod_has_ended",
             .seen = PodBuilder("Never").sidecar("s").main("m").sandbox().ended("s", 143).ended("m", 0).seen,
             .want = {"release"},
             .phase = "Succeeded"},
        Case{.name = "a_deletion_stops_main_containers_first",
             .seen = PodBuilder().sidecar("s").main("m").sandbox().running("s").running("m").deleting().seen,
             .want = {"stop m in 30"}},
        Case{.name = "and_everything_at_the_deadline",
             .seen = with_stop(PodBuilder().sidecar("s").main("m").sandbox().running("s").running("m").deleting(), "m",
                               {.deadline = epoch + 30s, .hook_done = true, .signalled = true, .killed = true}),
             .want = {"stop s in 31"},
             .at = 31s},
        Case{.name = "a_sleeping_hook_is_waited_for",
             .seen = half_hook(PodBuilder().main("m").sandbox().running("m").deleting()),
             .want = {},
             .at = 2s},
        Case{.name = "and_ends_by_itself",
             .seen = half_hook(PodBuilder().main("m").sandbox().running("m").deleting()),
             .want = {"signal m"},
             .at = 3s}),
    [](const auto& row) { return row.param.name; });

TEST(PodStatus, ASidecarsReadinessCounts) {
  PodBuilder builder;
  builder.sidecar("s").main("m").sandbox().running("s").running("m");
  const auto status = [&] { return Json::object({{"status", plan_pod(builder.seen, epoch).status}}); };
  EXPECT_TRUE(kube::condition_is_true(status(), "Ready"));
  EXPECT_TRUE(status()["status"]["initContainerStatuses"].items()[0]["ready"].boolean());
  builder.seen.containers["s"].ready = false;
  EXPECT_FALSE(kube::condition_is_true(status(), "Ready"));
  EXPECT_TRUE(kube::condition_is_true(status(), "Initialized"));
}

TEST(PodStatus, APodOfTheHostsNetworkHasItsAddressAlsoIfItEndedBeforeItWasTold) {
  PodBuilder builder("Never");
  builder.main("m").sandbox().ended("m", 0);
  builder.seen.pod.child("spec").set("hostNetwork", true);
  builder.seen.sandbox.clear();
  builder.seen.ip.clear();
  builder.seen.on_disk = true;
  builder.seen.host_ip = "10.0.0.9";
  const Json status = plan_pod(builder.seen, epoch).status;
  ASSERT_EQ(status["phase"].string(), "Succeeded");
  EXPECT_EQ(status["podIP"].string(), "10.0.0.9");
  builder.seen.host_ip = "10.0.0.9,fd00:77::109";
  const Json both = plan_pod(builder.seen, epoch).status;
  EXPECT_EQ(kube::print_json(both["podIPs"]), R"([{"ip":"10.0.0.9"},{"ip":"fd00:77::109"}])");
}

TEST(StatusPatch, NamesWhatIsGoneAndLeavesWhatIsOthers) {
  PodBuilder builder;
  builder.main("m").sandbox().running("m");
  builder.seen.pod.set(
      "status",
      *kube::parse_json(
          R"({"podIPs": [{"ip": "10.1.0.9"}, {"ip": "10.1.0.2"}], "reason": "Old", "conditions": [{"type": "Theirs", "status": "True"}]})"));
  const Json patch = status_patch(builder.seen.pod, plan_pod(builder.seen, epoch).status);
  EXPECT_EQ(patch["metadata"]["uid"].string(), "u");
  const Json& status = patch["status"];
  EXPECT_EQ(kube::print_json(status["podIPs"]), R"([{"ip":"10.1.0.2"},{"$patch":"delete","ip":"10.1.0.9"}])");
  EXPECT_TRUE(status.has("reason") && status["reason"].is_null());
  for (const Json& condition : status["conditions"].items()) EXPECT_NE(condition["type"].string(), "Theirs");
}

TEST(Backoff, DoublesToFiveMinutesAndStartsOverAfterALongRun) {
  Attempt attempt{.number = 0,
                  .id = {},
                  .sandbox = {},
                  .image = {},
                  .image_id = {},
                  .created = epoch,
                  .started = epoch,
                  .backoff_seconds = 0,
                  .end = Attempt::End{.at = epoch + 1s}};
  std::vector<int> pauses;
  for (int i = 0; i < 9; ++i) {
    pauses.push_back(next_backoff_seconds(attempt));
    attempt.backoff_seconds = pauses.back();
    ++attempt.number;
  }
  EXPECT_THAT(pauses, ElementsAre(0, 10, 20, 40, 80, 160, 300, 300, 300));
  attempt.end->reason = "ContainerStatusUnknown";
  EXPECT_EQ(next_backoff_seconds(attempt), 0);
  attempt.end->reason = "Error";
  attempt.end->at = epoch + 10min;
  EXPECT_EQ(next_backoff_seconds(attempt), 0);
}

TEST(PodStatus, HasEveryFieldThatClientsRequire) {
  const Json status = plan_pod(PodBuilder().init("a").main("m").sandbox().ended("a", 0).running("m", 1).seen, epoch).status;
  for (const char* field :
       {"phase", "conditions", "hostIP", "podIP", "podIPs", "startTime", "containerStatuses", "initContainerStatuses", "qosClass"})
    EXPECT_TRUE(status.has(field)) << field;
  const Json& main = status["containerStatuses"].items()[0];
  for (const char* field : {"name", "image", "imageID", "ready", "restartCount", "state", "lastState", "started", "containerID"})
    EXPECT_TRUE(main.has(field)) << field;
  EXPECT_EQ(main["restartCount"].integer(), 1);
  for (const char* type : {"Initialized", "Ready", "ContainersReady", "PodScheduled"})
    EXPECT_TRUE(kube::condition_is_true(Json::object({{"status", status}}), type)) << type;
}

TEST(PodStatus, TransitionTimesMoveOnlyWithTheStatus) {
  PodBuilder builder;
  builder.main("m").sandbox().running("m");
  const Json first = plan_pod(builder.seen, epoch).status;
  builder.seen.pod.set("status", first);
  EXPECT_EQ(plan_pod(builder.seen, epoch + 1h).status, first);
  builder.seen.containers["m"].ready = false;
  const Json changed = plan_pod(builder.seen, epoch + 1h).status;
  EXPECT_EQ((*kube::find_condition(Json::object({{"status", changed}}), "Ready"))["lastTransitionTime"].string(), print_time(epoch + 1h));
  EXPECT_EQ((*kube::find_condition(Json::object({{"status", changed}}), "Initialized"))["lastTransitionTime"].string(), print_time(epoch));
}

TEST(PodStatus, SaysWhyAContainerWaits) {
  const auto waiting = [](const PodSeen& seen) {
    return plan_pod(seen, epoch + 2s).status["containerStatuses"].items()[0]["state"]["waiting"]["reason"].string();
  };
  EXPECT_EQ(waiting(PodBuilder().main("m").sandbox().seen), "ContainerCreating");
  EXPECT_EQ(waiting(PodBuilder().init("a").main("m").sandbox().running("a").seen), "PodInitializing");
  EXPECT_EQ(waiting(with_trouble(PodBuilder().main("m").sandbox(), "m")), "ErrImageNeverPull");
  EXPECT_EQ(waiting(PodBuilder().main("m").sandbox().ended("m", 1, 1).seen), "CrashLoopBackOff");
}

TEST(PodStatus, AContainerWithAnotherImageIsAwaitedAndNeverCalledEnded) {
  const PodSeen seen = PodBuilder("Never").main("m").main("n").sandbox().ended("m", 143).running("n").other_image("m").seen;
  const Json status = make_status(seen, {}, epoch + 2s);
  const Json& first = status["containerStatuses"].items()[0];
  EXPECT_EQ(first["state"]["waiting"]["reason"].string(), "ContainerCreating");
  EXPECT_EQ(first["lastState"]["terminated"]["exitCode"].integer(), 143);
}

TEST(PodStatus, ReadinessGatesHoldReadyBack) {
  PodBuilder builder;
  builder.main("m").sandbox().running("m");
  builder.seen.pod.child("spec").set("readinessGates", Json::array({Json::object({{"conditionType", "x/ok"}})}));
  const auto ready = [&] { return kube::condition_is_true(Json::object({{"status", plan_pod(builder.seen, epoch).status}}), "Ready"); };
  EXPECT_FALSE(ready());
  builder.seen.pod.child("status").set("conditions", Json::array({Json::object({{"type", "x/ok"}, {"status", "True"}})}));
  EXPECT_TRUE(ready());
}

TEST(Qos, FollowsRequestsAndLimits) {
  const auto of = [](Json resources) {
    return qos_class(
        Json::object({{"spec", Json::object({{"containers", Json::array({Json::object({{"name", "m"}, {"resources", std::move(resources)}})})}})}}));
  };
  const Json both = Json::object({{"cpu", "1"}, {"memory", "1Gi"}});
  EXPECT_EQ(of(Json::object()), "BestEffort");
  EXPECT_EQ(of(Json::object({{"requests", both}})), "Burstable");
  EXPECT_EQ(of(Json::object({{"limits", both}})), "Guaranteed");
  EXPECT_EQ(of(Json::object({{"limits", both}, {"requests", Json::object({{"cpu", "1000m"}, {"memory", "1024Mi"}})}})), "Guaranteed");
}

// A world that does what the plan says, with containers that end at random: whatever happens, promises hold.
TEST(PlanPodProperty, KeepsItsPromisesInAnyOrderOfEvents) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const char* policies[] = {"Always", "OnFailure", "Never"};
    PodBuilder builder(policies[rng.below(3)]);
    builder.init("a").main("m").main("n");
    PodSeen& seen = builder.seen;
    Instant now = epoch;
    bool confirmed = false;
    for (int step = 0; step < 200 && !confirmed; ++step) {
      const PodPlan plan = plan_pod(seen, now);
      ASSERT_EQ(plan.actions, plan_pod(seen, now).actions);
      for (const Action& action : plan.actions) {
        if (std::holds_alternative<EnsureSandbox>(action)) builder.sandbox(), seen.sandbox = "s" + std::to_string(step);
        if (const auto* start = std::get_if<StartContainer>(&action)) {
          auto& one = seen.containers[start->name];
          ASSERT_FALSE(one.latest && one.latest->running()) << "seed " << seed;
          ASSERT_FALSE(kube::deleting(seen.pod)) << "seed " << seed;
          if (start->name != "a") {
            const auto& init = seen.containers["a"].latest;
            ASSERT_TRUE(init && init->end && init->end->code == 0 && init->sandbox == seen.sandbox) << "seed " << seed;
          }
          one.previous = one.latest;
          one.latest = Attempt{.number = start->attempt,
                               .id = "i",
                               .sandbox = seen.sandbox,
                               .image = {},
                               .image_id = {},
                               .created = now,
                               .started = now,
                               .backoff_seconds = start->backoff_seconds,
                               .end = {}};
        }
        if (const auto* stop = std::get_if<BeginStop>(&action))
          seen.containers[stop->name].stop = Stop{.deadline = stop->deadline, .hook_done = true};
        if (const auto* sent = std::get_if<SendStopSignal>(&action)) seen.containers[sent->name].stop->signalled = true;
        if (const auto* kill = std::get_if<Kill>(&action)) {
          seen.containers[kill->name].latest->end = Attempt::End{.code = 137, .signal = 9, .at = now, .reason = "Error", .message = {}};
          seen.containers[kill->name].stop.reset();
        }
        if (std::holds_alternative<ReleaseSandbox>(action)) {
          for (const auto& [name, one] : seen.containers) ASSERT_FALSE(one.latest && one.latest->running()) << "seed " << seed;
          seen.sandbox.clear();
        }
        if (std::holds_alternative<Forget>(action)) seen.on_disk = false;
        if (std::holds_alternative<ConfirmDeletion>(action)) confirmed = true;
      }
      if (!plan.status.is_null()) {
        const std::string before = seen.pod["status"]["phase"].string();
        if (before == "Succeeded" || before == "Failed") {
          ASSERT_EQ(plan.status["phase"].string(), before) << "seed " << seed;
        }
        if (plan.actions.empty()) seen.pod.set("status", plan.status);
      }
      now += std::chrono::seconds(1 + rng.below(20));
      for (auto& [name, one] : seen.containers) {
        if (!one.latest || !one.latest->running() || rng.below(3) != 0) continue;
        one.latest->end = Attempt::End{.code = static_cast<int>(rng.below(2)), .signal = 0, .at = now, .reason = "Error", .message = {}};
        one.stop.reset();
      }
      if (step == 60) builder.deleting((now - epoch) / 1s * 1s + 30s);
    }
    EXPECT_TRUE(confirmed) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::node
