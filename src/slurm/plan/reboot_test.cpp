// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reboot.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "slurm/plan/checks.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using namespace std::chrono_literals;

const Instant kStart = *parse_time("2026-11-22T04:10:30Z");
constexpr const char* kReason = "[p] fairlead: check gpu: 1 of its last 1 results failed, the last one in job 7; then its machine is rebooted";
constexpr const char* kSpec = "checkType: slurmJob, suspend: true, slurmJobSpec: {sbatchScript: x, eachWorkerJobs: true}, failureReactions: {drainSlurmNode: {drainReasonPrefix: '[p]'}}, extensions: {maxDrained: 1, reboot: ";
constexpr const char* kPods = "checkType: k8sJob, suspend: true, k8sJobSpec: {jobContainer: {image: i, command: [x]}}, failureReactions: {drainSlurmNode: {drainReasonPrefix: '[p]'}}, extensions: {maxDrained: 1, eachWorker: true, reboot: ";

Json check(const std::string& spec) {
  auto parsed = kube::parse_yaml("{metadata: {name: gpu, namespace: lab, uid: u-1, generation: 2, creationTimestamp: '2026-11-22T04:10:00Z'}, spec: {name: gpu, slurmClusterRefName: demo, " + spec + "}}");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}

// Slurm with two workers, the machine of worker-1, and an operator that may die anywhere. worker-1 is bad until its machine is rebooted, and then, too, where `hopeless`.
struct World {
  Json object;
  std::map<std::string, SlurmNode> nodes;
  std::map<std::string, std::string> trials;
  std::vector<CheckJob> jobs;
  RebootMachine machine{.machine = "m1", .ready = true, .worker_ready = true, .boot = "boot-0"};
  Instant now = kStart;
  bool answers = true, works = false, hopeless = false, fixed = false, companion = true;
  int next_id = 7, boots = 0, reboots_under_way = 0;
  std::set<std::string> requests;
  std::vector<std::string> promises;  // that were broken
  explicit World(const std::string& spec) : object(check(spec)) {
    for (const char* name : {"worker-0", "worker-1"}) nodes[name] = {.name = name, .state = {"IDLE"}};
  }
  SlurmNode& bad() { return nodes["worker-1"]; }
  CheckInput input() {
    CheckInput in{.rules = read_check(object), .object = object, .workers = {"worker-0", "worker-1"}, .machines = {{"worker-0", "m0"}, {"worker-1", "m1"}}, .now = now};
    if (!answers || !needs_look(in)) return in;
    CheckView view{.nodes = nodes, .jobs = jobs};
    if (companion) {
      view.knows_trials = true;
      view.trials = trials;
      for (const auto& worker : reboot_workers(in))
        if (nodes[worker].has("DRAIN") && !(worker == "worker-1" && works)) view.empty.insert(worker);
    }
    in.view = std::move(view);
    for (const auto& worker : reboot_workers(in)) in.reboots[worker] = worker == "worker-1" ? machine : RebootMachine{.unknown = "no such machine"};
    return in;
  }
  // In Slurm, as its tools would.
  void take(const CheckStep& step) {
    if (const auto* submit = std::get_if<SubmitJobs>(&step))
      for (const auto& node : submit->nodes) {
        if (std::any_of(jobs.begin(), jobs.end(), [&](const CheckJob& one) { return one.run == submit->run && one.requested == std::vector{node}; })) continue;
        const bool said_no = node == "worker-1" && (hopeless || !fixed);
        jobs.push_back({.id = std::to_string(next_id++), .run = submit->run, .state = said_no ? "FAILED" : "COMPLETED", .requested = {node}, .nodes = {node}, .exit_code = said_no ? 1 : 0});
      }
    if (const auto* drain = std::get_if<DrainNode>(&step); drain && !nodes[drain->node].has("DRAIN")) nodes[drain->node].state = {"IDLE", "DRAIN"}, nodes[drain->node].reason = drain->reason;
    if (const auto* ask = std::get_if<AskReboot>(&step)) {
      if (works) promises.push_back("asked while a job was on it");
      if (bad().reason != kReason && !bad().reason.ends_with(kThenReboot)) promises.push_back("asked although it is not ours");
      requests.insert(ask->id);
      machine.asked = ask->id;
    }
    if (const auto* begin = std::get_if<BeginTrial>(&step); begin && nodes[begin->node].reason == begin->reason) {
      trials[begin->node] = begin->reservation;
      nodes[begin->node].state = {"IDLE"}, nodes[begin->node].reason.clear();
    }
    if (const auto* end = std::get_if<SettleTrial>(&step)) {
      SlurmNode& node = nodes[end->node];
      const bool ours = node.has("DRAIN") && node.reason == end->reason, reserved = trials.contains(end->node) && trials[end->node] == end->reservation;
      if (end->next != "-" && (ours || (reserved && !node.has("DRAIN")))) node.state = {"IDLE", "DRAIN"}, node.reason = end->next;
      if (end->next == "-" && ours) node.state = {"IDLE"}, node.reason.clear();
      if (reserved) trials.erase(end->node);
    }
  }
  // What the machine does meanwhile (src/fleet).
  void machine_goes_on() {
    if (machine.phase == "Rebooting") {
      machine.phase = "Done", machine.boot = fmt::format("boot-{}", ++boots), fixed = true;
    } else if (!machine.asked.empty() && machine.asked != machine.noted) {
      machine.noted = machine.asked, machine.phase = "Rebooting";
      machine.reboots.emplace_back(machine.asked, now);
    }
  }
  void look_for_broken_promises() {
    const bool serves = !bad().has("DRAIN") && trials.empty();
    if (serves && requests.size() == 1 && !fixed) promises.push_back("in service before the reboot");
    if (serves && requests.size() == 1 && hopeless) promises.push_back("in service although the check fails");
  }
  // The operator dies before step `dies` (-1: not at all; the number of steps: before it writes down what it did).
  std::vector<std::string> round(int dies = -1) {
    CheckPlan plan = plan_check(input());
    std::vector<std::string> out;
    int i = 0;
    for (const auto& step : plan.steps) {
      if (i++ == dies) return out;
      out.push_back(describe(step));
      take(step);
      look_for_broken_promises();
    }
    if (i == dies) return out;
    object = plan.object;
    return out;
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      round();
      machine_goes_on();
      now += 5s;
    }
  }
  std::string condition() {
    const Json* found = kube::find_condition(object, "Rebooting");
    return found ? fmt::format("{} {}: {}", (*found)["status"].string(), (*found)["reason"].string(), (*found)["message"].string()) : "absent";
  }
  std::string stage() { return object["status"]["checks"]["reboots"]["worker-1"]["stage"].string(); }
};

TEST(Reboots, ComeAfterTheDrainAndBeforeThePass) {
  World world(std::string(kSpec) + "{}}");
  EXPECT_THAT(world.round(), ElementsAre("run 1795320600 on worker-0,worker-1"));
  EXPECT_THAT(world.round(), ElementsAre("drain worker-1 (1 at most): [p] fairlead: check gpu: 1 of its last 1 results failed, the last one in job 8; then its machine is rebooted"));
  EXPECT_THAT(world.round(), IsEmpty()) << "seen drained";
  EXPECT_THAT(world.round(), IsEmpty()) << "seen empty";
  const auto asked = world.round();
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_THAT(asked[0], StartsWith("reboot machine m1 of worker-1 (request "));
  EXPECT_EQ(world.round().size(), 0U) << "asked, not taken up yet";
  world.machine_goes_on();
  world.round();
  world.machine.ready = world.machine.worker_ready = false;
  world.machine_goes_on();
  world.round();
  EXPECT_EQ(world.stage(), "Wait");
  EXPECT_THAT(world.condition(), StartsWith("True UnderWay: worker-1: machine m1 reboots: its node is not ready"));
  world.machine.ready = true;
  world.round();
  EXPECT_THAT(world.condition(), HasSubstr("the worker's pod is not ready"));
  world.machine.worker_ready = true;
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.round(), ElementsAre(StartsWith("try worker-1 in fairlead-check-")));
  world.bad().state.push_back("NOT_RESPONDING");
  EXPECT_THAT(world.round(), IsEmpty()) << "a job would wait for long";
  world.bad().state = {"IDLE"};
  EXPECT_THAT(world.round(), ElementsAre(AllOf(StartsWith("run 9"), HasSubstr(" on worker-1 in fairlead-check-"))));
  EXPECT_TRUE(world.trials.contains("worker-1")) << "nobody's job can come";
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.round(), ElementsAre(testing::EndsWith(": -")));
  EXPECT_FALSE(world.bad().has("DRAIN"));
  EXPECT_THAT(world.trials, IsEmpty());
  world.round();
  EXPECT_EQ(world.condition(), "False None: the last one, at 2026-11-22T04:10:30Z: worker-1 serves again: machine m1 was rebooted, and the check has passed (job 9)");
  EXPECT_THAT(world.round(), IsEmpty());
  EXPECT_THAT(world.promises, IsEmpty());
}

TEST(Reboots, OfPodsKeepTheDrainUntilTheyHavePassed) {
  World world(std::string(kPods) + "{}}");
  for (int i = 0; i < 30; ++i) {
    world.rounds(1);
    EXPECT_TRUE(world.trials.empty());
  }
  EXPECT_FALSE(world.bad().has("DRAIN"));
  EXPECT_EQ(world.boots, 1);
  EXPECT_THAT(world.condition(), HasSubstr("serves again"));
}

class HopelessWorker : public testing::TestWithParam<const char*> {};
TEST_P(HopelessWorker, StaysDrainedAndIsNotRebootedAgain) {
  World world(std::string(GetParam()) + "{}}");
  world.hopeless = true;
  world.rounds(60);
  EXPECT_EQ(world.boots, 1);
  EXPECT_THAT(world.bad().reason, testing::MatchesRegex(R"(\[p\] fairlead: check gpu: failed again after the reboot of m1 \(job [0-9]+, exit status 1\))"));
  EXPECT_THAT(world.trials, IsEmpty());
  EXPECT_THAT(world.condition(), AllOf(StartsWith("False None"), HasSubstr("stays drained"), HasSubstr("state=undrain")));
}
INSTANTIATE_TEST_SUITE_P(Rows, HopelessWorker, testing::Values(kSpec, kPods), [](const auto& row) { return row.index == 0 ? "slurm" : "pods"; });

// What keeps a drained worker's machine from being asked.
struct Row {
  const char* name;
  void (*set)(World&);
  const char* told;
};
class Hindrance : public testing::TestWithParam<Row> {};
TEST_P(Hindrance, IsToldAndNothingIsAsked) {
  World world(std::string(kSpec) + "{drainSeconds: 600}}");
  world.round();
  world.round();
  GetParam().set(world);
  for (int i = 0; i < 5; ++i) {
    world.round();
    world.now += 10s;
  }
  EXPECT_THAT(world.requests, IsEmpty());
  EXPECT_THAT(world.condition(), HasSubstr(GetParam().told));
  if (!world.answers) return;
  world.now += 700s;
  world.round();
  EXPECT_EQ(world.stage(), "GivenUp");
  EXPECT_THAT(world.condition(), AllOf(HasSubstr("was not rebooted within 600 s"), HasSubstr(GetParam().told)));
  world.works = false;
  world.machine = {.machine = "m1", .ready = true, .worker_ready = true, .boot = "boot-0"};
  world.rounds(10);
  EXPECT_THAT(world.requests, IsEmpty()) << "a person is to look";
}
INSTANTIATE_TEST_SUITE_P(Rows, Hindrance,
                         testing::Values(Row{"jobs", [](World& w) { w.works = true; }, "jobs are on it"}, Row{"other_pods", [](World& w) { w.machine.others = {"lab/controller-0"}; }, "other pods run on machine m1: lab/controller-0"},
                                         Row{"not_ours", [](World& w) { w.machine.cannot = "node m1 is not a machine that Fairlead brought up"; }, "is not a machine that Fairlead brought up"},
                                         Row{"unknown", [](World& w) { w.machine.unknown = "node m1: time-out"; }, "node m1: time-out"}, Row{"silent_node", [](World& w) { w.machine.ready = false; }, "node m1 is not ready"},
                                         Row{"no_boot_id", [](World& w) { w.machine.boot.clear(); }, "is not ready"}, Row{"old_head", [](World& w) { w.companion = false; }, "made by a version"},
                                         Row{"rebooted_today", [](World& w) { w.machine.reboots = {{"another", w.now - 23h}}; }, "rebooted 1 times in the last 24 hours"},
                                         Row{"somebody_else_asks", [](World& w) { w.machine.asked = "another"; }, "asked to reboot by somebody else"}),
                         [](const auto& row) { return row.param.name; });

TEST(Reboots, OfADayAgoDoNotCount) {
  World world(std::string(kSpec) + "{}}");
  world.machine.reboots = {{"another", kStart - 25h}};
  world.rounds(20);
  EXPECT_EQ(world.boots, 1);
}

TEST(Reboots, ASilentSlurmPermitsNothing) {
  World world(std::string(kSpec) + "{}}");
  world.round();
  world.round();
  world.round();
  world.answers = false;
  world.rounds(20);
  EXPECT_THAT(world.requests, IsEmpty());
  EXPECT_EQ(world.stage(), "Empty");
}

// Whatever we are about: what a person sets stays.
TEST(Reboots, APersonTakesOverAtAnyTime) {
  for (int at = 3; at < 16; ++at)
    for (const bool drains : {true, false}) {
      World world(std::string(kSpec) + "{}}");
      world.rounds(at);
      if (drains) world.bad().state = {"IDLE", "DRAIN"}, world.bad().reason = "ada has it";
      else world.bad().state = {"IDLE"}, world.bad().reason.clear();
      const auto asked = world.requests.size();
      world.rounds(30);
      EXPECT_EQ(world.bad().reason, drains ? "ada has it" : "") << at;
      EXPECT_EQ(world.bad().has("DRAIN"), drains) << at;
      EXPECT_EQ(world.requests.size(), asked) << at << ": nothing more is asked for";
      EXPECT_THAT(world.trials, IsEmpty()) << at;
    }
}

TEST(Reboots, OfACheckThatRebootsNoMoreLeaveTheWorkerDrained) {
  for (int at = 2; at < 10; ++at) {
    World world(std::string(kSpec) + "{}}");
    world.rounds(at);
    if (!world.bad().has("DRAIN") && world.trials.empty()) break;
    world.object.child("spec").child("extensions").erase("reboot");
    world.rounds(20);
    EXPECT_TRUE(world.bad().has("DRAIN")) << at;
    EXPECT_THAT(world.trials, IsEmpty()) << at;
  }
}

TEST(Reboots, AreOfDrainsThatSaySoAlone) {
  for (const char* reason : {"[p] fairlead: check gpu: 1 of its last 1 results failed, the last one in job 7", "fairlead: check other: 1 of 1; then its machine is rebooted", "fairlead: check gpu: x fairlead: check other: 1 of 1; then its machine is rebooted",
                             "ada: then its machine is rebooted", "; then its machine is rebooted"}) {
    World world(std::string(kSpec) + "{}}");
    world.bad().state = {"IDLE", "DRAIN"};
    world.bad().reason = reason;
    world.rounds(20);
    EXPECT_THAT(world.requests, IsEmpty()) << reason;
    EXPECT_EQ(world.bad().reason, reason);
  }
}

TEST(Reboots, AMachineThatRefusesLeavesItToAPerson) {
  World world(std::string(kSpec) + "{}}");
  for (int i = 0; i < 5; ++i) world.round();
  ASSERT_EQ(world.requests.size(), 1U);
  world.machine.noted = world.machine.asked, world.machine.phase = "Refused", world.machine.message = "spec.power is Off";
  world.round();
  world.round();
  EXPECT_EQ(world.stage(), "GivenUp");
  EXPECT_THAT(world.condition(), HasSubstr("spec.power is Off"));
}

TEST(Reboots, WithoutAResultThreeTimesItStaysDrained) {
  World world(std::string(kSpec) + "{}}");
  for (int i = 0; i < 80; ++i) {
    for (auto& job : world.jobs)
      if (is_try(job.run)) job.state = "TIMEOUT";
    world.rounds(1);
  }
  EXPECT_EQ(std::count_if(world.jobs.begin(), world.jobs.end(), [](const CheckJob& one) { return is_try(one.run); }), 3);
  EXPECT_THAT(world.bad().reason, HasSubstr("had no result after the reboot of m1"));
  EXPECT_TRUE(world.bad().has("DRAIN"));
}

TEST(Reboots, ATryCountsInTheBudget) {
  World world(std::string(kSpec) + "{}}");
  world.nodes["worker-0"].state = {"IDLE"};
  world.trials["worker-1"] = "fairlead-check-0123";
  world.round();
  for (auto& job : world.jobs) job.state = "FAILED", job.exit_code = 1;
  EXPECT_THAT(world.round(), IsEmpty()) << "one is out of service already";
}

// Killed before each step of each round, and before each write: the same end, one request, and no promise broken on the way.
TEST(Reboots, AnOperatorThatDiesAnywhereComesToTheSameEnd) {
  for (const char* spec : {kSpec, kPods})
    for (const bool hopeless : {false, true})
      for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(100, 2'000); ++seed) {
        Rng rng(seed);
        World world(std::string(spec) + "{}}");
        world.hopeless = hopeless;
        for (int i = 0; i < 120; ++i) {
          world.answers = rng.below(8) != 0;
          world.works = world.requests.empty() && rng.below(3) == 0;
          world.round(rng.below(2) ? static_cast<int>(rng.below(3)) : -1);
          if (rng.below(2)) world.machine_goes_on();
          if (rng.below(10) == 0 && !world.jobs.empty() && is_try(world.jobs.back().run)) world.jobs.pop_back();  // slurmctld forgot it
          world.now += 5s;
        }
        world.answers = true, world.works = false;
        world.rounds(40);
        EXPECT_THAT(world.promises, IsEmpty()) << "seed " << seed;
        EXPECT_EQ(world.requests.size(), 1U) << "seed " << seed;
        EXPECT_EQ(world.boots, 1) << "seed " << seed;
        EXPECT_EQ(world.bad().has("DRAIN"), hopeless) << "seed " << seed << " " << world.condition();
        EXPECT_THAT(world.trials, IsEmpty()) << "seed " << seed;
      }
}

TEST(RebootRules, AreReadWithTheirLimits) {
  std::vector<std::string> problems;
  const RebootRules rules = read_reboot_rules(kube::parse_yaml("{drainSeconds: 60, perDay: 3}")->at(0), problems);
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_EQ(rules.drain, 60s);
  EXPECT_EQ(rules.per_day, 3);
  for (const char* bad : {"{perDay: 0}", "{drainSeconds: soon}", "{per_day: 1}", "true"}) {
    problems.clear();
    read_reboot_rules(kube::parse_yaml(bad)->at(0), problems);
    EXPECT_EQ(problems.size(), 1U) << bad;
  }
  EXPECT_THAT(read_check(check("checkType: slurmJob, slurmJobSpec: {sbatchScript: x}, extensions: {reboot: {}}")).problems, ElementsAre(HasSubstr("give spec.failureReactions.drainSlurmNode")));
}

}  // namespace
}  // namespace fairlead::slurm
