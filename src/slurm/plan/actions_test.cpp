// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/actions.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ActionWords, AreReadAsPeopleTypeThem) {
  EXPECT_TRUE(action_of_reason("Action:Reboot").exact);
  EXPECT_EQ(action_of_reason("Action:Replace").action, NodeAction::Replace);
  for (const char* reason : {"action:reboot", "Action: Reboot", "Action:Reboot.", " Action:Reboot ", "ACTION-REBOOT"}) {
    EXPECT_EQ(action_of_reason(reason).action, NodeAction::Reboot) << reason;
    EXPECT_FALSE(action_of_reason(reason).exact) << reason;
  }
  for (const char* reason : {"", "Action", "Reboot", "Action:Rebooted by Ada", "No Action:Reboot", "Action:Reboot or Replace", "fairlead: scale-down"}) EXPECT_EQ(action_of_reason(reason).action, NodeAction::None) << reason;
}

struct Actions : testing::Test {
  Actions() { node.set("metadata", Json::object({{"name", "m1"}, {"uid", "n1"}})).set("status", Json::object({{"nodeInfo", Json::object({{"bootID", "b1"}})}})); }
  ActionsPlan look(bool answers = true) {
    ActionsInput in{.memory = memory};
    in.pods["gpu-0"] = &pod;
    in.nodes[kube::name_of(node)] = &node;
    if (answers) in.view = SlurmView{.nodes = {{"gpu-0", slurm}}};
    ActionsPlan plan = plan_actions(in);
    memory = plan.memory;
    return plan;
  }
  void pod_is(const char* uid, const char* machine, bool ready) {
    pod = Json::object({{"metadata", Json::object({{"name", "gpu-0"}, {"uid", uid}})}, {"spec", Json::object({{"nodeName", machine}})}, {"status", Json::object({{"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}})})}})}});
  }
  Json node = Json::object(), pod, memory;
  SlurmNode slurm{.name = "gpu-0", .state = {"IDLE", "FAIL"}, .reason = "Action:Reboot", .by = "root", .since = "2026-11-26T20:00:00Z"};
};

TEST_F(Actions, AreToldUntilTheMachineHasBootedAndThenLifted) {
  pod_is("u1", "m1", true);
  ActionsPlan plan = look();
  EXPECT_THAT(plan.steps, IsEmpty());
  const Json entry = memory["gpu-0"];
  EXPECT_EQ(entry["action"].string(), "Reboot");
  EXPECT_EQ(entry["uid"].string(), "u1");
  EXPECT_THAT(plan.notes, testing::ElementsAre(HasSubstr("gpu-0 is to be rebooted")));
  look();
  EXPECT_EQ(memory["gpu-0"], entry);
  look(false);
  EXPECT_EQ(memory["gpu-0"], entry) << "silence changes nothing";
  pod_is("u2", "m1", true);  // made anew for another reason
  EXPECT_THAT(look().steps, IsEmpty());
  EXPECT_EQ(memory["gpu-0"], entry);
  node.child("status").child("nodeInfo").set("bootID", "b2");
  pod_is("u2", "m1", false);
  EXPECT_THAT(look().steps, IsEmpty()) << "not ready yet";
  pod_is("u2", "m1", true);
  plan = look();
  ASSERT_THAT(plan.steps, SizeIs(1));
  EXPECT_EQ(plan.steps[0].verb, NodeVerb::Lift);
  EXPECT_THAT(plan.steps[0].arguments, testing::ElementsAre("Action:Reboot"));
  slurm.state = {"IDLE"};  // Slurm keeps the words
  plan = look();
  EXPECT_TRUE(memory.is_null());
  EXPECT_THAT(plan.notes, IsEmpty());
}

TEST_F(Actions, AReplacementIsDoneOnAnotherMachineAlone) {
  slurm.reason = "action:replace";
  slurm.state = {"DOWN"};
  pod_is("u1", "m1", true);
  EXPECT_THAT(look().notes, testing::ElementsAre(HasSubstr("is taken for Action:Replace")));
  node.child("status").child("nodeInfo").set("bootID", "b2");
  pod_is("u2", "m1", true);
  EXPECT_THAT(look().steps, IsEmpty());
  node.child("metadata").set("name", "m2").set("uid", "n2");
  pod_is("u3", "m2", true);
  EXPECT_THAT(look().steps, SizeIs(1));
}

TEST_F(Actions, EachTimeIsAnother) {
  pod_is("u1", "m1", true);
  look();
  const std::string first = memory["gpu-0"]["id"].string();
  slurm.since = "2026-11-26T21:00:00Z";
  look();
  EXPECT_EQ(memory["gpu-0"]["id"].string(), first) << "the same word, written down again";
  slurm.state = {"IDLE"};
  look();
  slurm.state = {"IDLE", "FAIL"};
  look();
  EXPECT_NE(memory["gpu-0"]["id"].string(), first);
}

TEST_F(Actions, OfNobodyKnowsWhichMachineNothingIsTold) {
  pod_is("u1", "elsewhere", true);
  look();
  EXPECT_TRUE(memory.is_null());
  slurm.state = {"MIXED"};
  pod_is("u1", "m1", true);
  look();
  EXPECT_TRUE(memory.is_null()) << "in service";
}

}  // namespace
}  // namespace fairlead::slurm
