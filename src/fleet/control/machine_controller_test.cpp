// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/machine_controller.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "fleet/fake_host.h"
#include "kube/fenced_api.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::IsEmpty;

using kube::TinyApi;

class Machines : public testing::Test {
 protected:
  ~Machines() override { EXPECT_THAT(checked_.refusals(), IsEmpty()); }
  Machines() {
    host_.on_step = [this](const std::string& node, Step step) { steps_.push_back(node + " " + name(step)); };
    controller_.start(api_);
  }
  void add(const std::string& machine) {
    Json object = Json::object({{"apiVersion", "fairlead.dev/v1alpha1"}, {"kind", "Machine"}, {"metadata", Json::object({{"name", machine}, {"uid", "uid-" + machine}})},
                                {"spec", Json::object({{"local", Json::object({{"cpu", "2"}})}})}});
    ASSERT_TRUE(api_.create(kube::resources::machines, object));
  }
  void set(const std::string& machine, const std::string& field, const std::string& value) {
    Json object = api_.all("machines").at({"", machine});
    object.child("spec").set(field, value);
    ASSERT_TRUE(api_.update(kube::resources::machines, object));
  }
  const Json& object(const std::string& machine) { return api_.all("machines").at({"", machine}); }
  std::string phase(const std::string& machine) { return object(machine)["status"]["phase"].string(); }
  // Reconciles all machines until a whole round writes nothing. Errors are retried, as the runner would.
  void settle() {
    for (int round = 0; round < 50; ++round) {
      const auto before = api_.all("machines");
      for (const auto& [key, machine] : before) (void)controller_.reconcile(key);
      if (api_.all("machines") == before) return;
    }
    ADD_FAILURE() << "does not settle";
  }

  ManualClock clock_{Instant(std::chrono::hours(500'000))};
  TinyApi api_;
  FakeHost host_{clock_};
  // As on a real cluster: only what is declared, and every write says what it was decided on.
  kube::CheckedApi checked_{api_, kube::full_access(MachineController(api_, host_, clock_))};
  kube::FencedApi fenced_{checked_, []() -> Result<std::int64_t> { return 1; }};
  MachineController controller_{fenced_, host_, clock_};
  std::vector<std::string> steps_;
};

TEST_F(Machines, AMachineBecomesANode) {
  add("worker-0");
  settle();
  EXPECT_THAT(steps_, ElementsAre("worker-0 start", "worker-0 connect"));
  const Json& status = object("worker-0")["status"];
  EXPECT_EQ(status["phase"].string(), "Running");
  EXPECT_EQ(status["address"].string(), "10.77.1.1");
  EXPECT_EQ(status["podCIDR"].string(), "10.78.1.0/24");
  EXPECT_FALSE(status.has("podCIDRs"));
  EXPECT_EQ(status["starts"].integer(), 1);
  EXPECT_GT(status["pid"].integer(), 0);
  EXPECT_TRUE(kube::condition_is_true(object("worker-0"), "Ready"));
}

TEST_F(Machines, WithTwoFamiliesAMachineIsToldBothOfItsAddresses) {
  MachineController both(fenced_, host_, clock_, {.ranges = *parse_ranges("10.77.0.0/16", "10.78.0.0/16,fd00:78::/56")});
  both.start(api_);
  add("a");
  ASSERT_TRUE(both.reconcile({"", "a"}));  // finalizer
  ASSERT_TRUE(both.reconcile({"", "a"}));  // seat
  EXPECT_EQ(kube::print_json(object("a")["status"]["addresses"]), R"(["10.77.1.1","fd00:77::101"])");
  EXPECT_EQ(kube::print_json(object("a")["status"]["podCIDRs"]), R"(["10.78.1.0/24","fd00:78:0:1::/64"])");
}

TEST_F(Machines, TheSeatIsWrittenBeforeAnythingIsMade) {
  add("a");
  ASSERT_TRUE(controller_.reconcile({"", "a"}));  // finalizer
  ASSERT_TRUE(controller_.reconcile({"", "a"}));  // seat
  EXPECT_EQ(object("a")["status"]["index"].integer(), 1);
  EXPECT_THAT(steps_, IsEmpty());
}

TEST_F(Machines, SeatsAreDistinctStableAndReused) {
  for (const char* one : {"a", "b", "c"}) add(one);
  settle();
  EXPECT_EQ(object("b")["status"]["index"].integer(), 2);
  ASSERT_TRUE(api_.remove(kube::resources::machines, {"", "a"}, {}));
  settle();
  EXPECT_FALSE(api_.all("machines").contains({"", "a"}));
  EXPECT_EQ(object("b")["status"]["index"].integer(), 2);
  add("d");
  settle();
  EXPECT_EQ(object("d")["status"]["index"].integer(), 1);
}

TEST_F(Machines, ARunningNodeIsAdoptedByANewController) {
  add("a");
  settle();
  steps_.clear();
  const int writes = api_.status_writes;
  MachineController second(api_, host_, clock_);
  second.start(api_);
  ASSERT_TRUE(second.reconcile({"", "a"}));
  EXPECT_THAT(steps_, IsEmpty());
  EXPECT_EQ(api_.status_writes, writes);
}

TEST_F(Machines, PowerAndLinkFollowTheSpec) {
  add("a");
  settle();
  steps_.clear();
  set("a", "link", "Cut");
  settle();
  EXPECT_EQ(phase("a"), "Cut");
  EXPECT_EQ(kube::find_condition(object("a"), "Ready")->operator[]("reason").string(), "Cut");
  set("a", "link", "Connected");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  set("a", "power", "Off");
  settle();
  EXPECT_EQ(phase("a"), "Off");
  EXPECT_FALSE(object("a")["status"].has("pid"));
  clock_.advance(1min);
  set("a", "power", "On");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  EXPECT_EQ(object("a")["status"]["starts"].integer(), 2);
  EXPECT_THAT(steps_, ElementsAre("a cut", "a heal", "a kill", "a start", "a connect"));
}

// The host saw its first process end: nobody must wait until its silence has become long.
TEST_F(Machines, AMachineThatIsOffIsOutOfServiceForEverybody) {
  add("a");
  settle();
  Json node = *kube::parse_json(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"a","uid":"n1"},"spec":{"taints":[{"key":"mine","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"Ready","status":"True"}]}})");
  ASSERT_TRUE(api_.create(kube::resources::nodes, node));
  const auto seen = [this] { return kube::print_json(api_.all("nodes").at({"", "a"})["spec"]["taints"]) + (kube::condition_is_true(api_.all("nodes").at({"", "a"}), "Ready") ? " ready" : " not ready"); };
  settle();
  EXPECT_EQ(seen(), R"([{"key":"mine","effect":"NoSchedule"}] ready)");
  set("a", "power", "Off");
  settle();
  EXPECT_EQ(seen(), R"([{"key":"mine","effect":"NoSchedule"},{"key":"node.kubernetes.io/out-of-service","value":"machine-off","effect":"NoSchedule"}] not ready)");
  settle();
  clock_.advance(1min);
  set("a", "power", "On");
  settle();
  EXPECT_EQ(seen(), R"([{"key":"mine","effect":"NoSchedule"}] not ready)") << "that it is ready it says itself";
  // Somebody else's statement is not ours to take back.
  node = api_.all("nodes").at({"", "a"});
  node.child("spec").set("taints", *kube::parse_json(R"([{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}])"));
  ASSERT_TRUE(api_.put(kube::resources::nodes, node));
  set("a", "power", "Off");
  settle();
  clock_.advance(1min);
  set("a", "power", "On");
  settle();
  EXPECT_EQ(seen(), R"([{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}] not ready)");
}

TEST_F(Machines, ADeadNodeIsStartedAgainButNotInALoop) {
  add("a");
  settle();
  host_.crash("a");
  settle();
  EXPECT_EQ(phase("a"), "Pending");
  const auto next = controller_.reconcile({"", "a"});
  ASSERT_TRUE(next);
  ASSERT_TRUE(next->again_after);
  clock_.advance(*next->again_after);
  settle();
  EXPECT_EQ(phase("a"), "Running");
}

TEST_F(Machines, AFailedStepIsToldAndTriedAgain) {
  add("a");
  host_.fail_next(Step::Connect, 1);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(controller_.reconcile({"", "a"}));
  const auto outcome = controller_.reconcile({"", "a"});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message, "connect machine a: connect: made to fail");
  EXPECT_EQ(kube::find_condition(object("a"), "Ready")->operator[]("reason").string(), "StepFailed");
  settle();
  EXPECT_EQ(phase("a"), "Running");
  EXPECT_THAT(steps_, ElementsAre("a start", "a connect"));
}

TEST_F(Machines, ADeletedOneLeavesNothing) {
  add("a");
  settle();
  ASSERT_TRUE(api_.create(kube::resources::nodes, Json::object({{"metadata", Json::object({{"name", "a"}})}})));
  ASSERT_TRUE(api_.remove(kube::resources::machines, {"", "a"}, {}));
  host_.fail_next(Step::Remove, 2);
  settle();
  settle();
  EXPECT_THAT(api_.all("machines"), IsEmpty());
  EXPECT_THAT(api_.all("nodes"), IsEmpty());
  EXPECT_EQ(*host_.observe("a", {}), Observation{});
}

// docs/design/022.
class MachineReboots : public Machines {
 protected:
  void ask(const std::string& machine, const std::string& id) {
    Json object = api_.all("machines").at({"", machine});
    object.child("spec").set("reboot", Json::object({{"id", id}, {"by", "a test"}}));
    ASSERT_TRUE(api_.update(kube::resources::machines, object));
  }
  const Json& noted(const std::string& machine) { return object(machine)["status"]["reboot"]; }
  int count(const std::string& step) { return static_cast<int>(std::count(steps_.begin(), steps_.end(), step)); }
};

TEST_F(MachineReboots, AreStoppedAndStartedOnceForEachRequest) {
  add("a");
  settle();
  const auto pid = object("a")["status"]["pid"].integer();
  ask("a", "one");
  ASSERT_TRUE(controller_.reconcile({"", "a"}));
  EXPECT_EQ(noted("a")["phase"].string(), "Rebooting");
  EXPECT_EQ(noted("a")["was"]["pid"].integer(), pid) << "written down before it is stopped";
  EXPECT_THAT(steps_, ElementsAre("a start", "a connect"));
  settle();
  EXPECT_THAT(steps_, ElementsAre("a start", "a connect", "a kill", "a start", "a connect"));
  EXPECT_EQ(noted("a")["phase"].string(), "Done");
  EXPECT_NE(object("a")["status"]["pid"].integer(), pid);
  EXPECT_EQ(object("a")["status"]["starts"].integer(), 2);
  EXPECT_EQ(object("a")["status"]["reboots"].items().size(), 1U);
  settle();
  ask("a", "one");
  settle();
  EXPECT_EQ(count("a start"), 2);
  ask("a", "two");
  settle();
  EXPECT_EQ(count("a start"), 3);
  EXPECT_EQ(noted("a")["id"].string(), "two");
  EXPECT_EQ(object("a")["status"]["reboots"].items().size(), 2U);
}

// Killed at each step: what a new controller does is told by what is written down and by what runs, so that one request is one reboot.
TEST_F(MachineReboots, HappenOnceWhoeverDies) {
  for (const Step step : {Step::Kill, Step::Start, Step::Connect})
    for (int times = 1; times < 4; ++times) {
      const std::string name = "m" + std::to_string(static_cast<int>(step)) + std::to_string(times);
      add(name);
      settle();
      clock_.advance(1min);
      ask(name, "x");
      host_.fail_next(step, times);
      for (int i = 0; i < 12; ++i) {
        (void)controller_.reconcile({"", name});
        clock_.advance(11s);
      }
      settle();
      EXPECT_EQ(noted(name)["phase"].string(), "Done") << name;
      EXPECT_EQ(count(name + " start"), 2) << name;
      EXPECT_EQ(count(name + " kill"), 1) << name;
      EXPECT_EQ(object(name)["status"]["reboots"].items().size(), 1U) << name;
    }
}

// The write of what happened is lost, again and again: the process that runs is not the one that was to end.
TEST_F(MachineReboots, AreNotRepeatedWhenTheirEndWasNotWrittenDown) {
  add("a");
  settle();
  ask("a", "x");
  ASSERT_TRUE(controller_.reconcile({"", "a"}));
  for (int i = 0; i < 3; ++i) {
    const Json before = object("a");
    ASSERT_TRUE(controller_.reconcile({"", "a"}));
    ASSERT_TRUE(api_.put(kube::resources::machines, before));
  }
  settle();
  EXPECT_EQ(count("a kill"), 1);
  EXPECT_EQ(noted("a")["phase"].string(), "Done");
}

TEST_F(MachineReboots, AreRefusedWhileThePowerIsOffAndNotMadeUpFor) {
  add("a");
  settle();
  set("a", "power", "Off");
  settle();
  ask("a", "x");
  settle();
  EXPECT_EQ(noted("a")["phase"].string(), "Refused");
  clock_.advance(1min);
  set("a", "power", "On");
  settle();
  EXPECT_EQ(count("a start"), 2) << "the power alone";
  EXPECT_FALSE(object("a")["status"].has("reboots"));
}

TEST_F(MachineReboots, OfOneThatDiedMeanwhileAreDoneByItsStart) {
  add("a");
  settle();
  clock_.advance(1min);
  ask("a", "x");
  ASSERT_TRUE(controller_.reconcile({"", "a"}));
  host_.crash("a");
  settle();
  EXPECT_EQ(noted("a")["phase"].string(), "Done");
  EXPECT_EQ(count("a start"), 2);
}

}  // namespace
}  // namespace fairlead::fleet
