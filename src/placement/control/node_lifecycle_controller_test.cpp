// SPDX-License-Identifier: Apache-2.0
#include "placement/control/node_lifecycle_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "placement/control/test_cluster.h"

namespace fairlead::placement {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::IsEmpty;
const auto& pods = kube::resources::pods;
const auto& nodes = kube::resources::nodes;
const auto& leases = kube::resources::leases;

class NodeLife : public testing::Test {
 protected:
  void SetUp() override {
    restart();
    cluster_.put(nodes, make_node("n"));
    renew();
  }
  void restart() {
    controller_ = std::make_unique<NodeLifecycleController>(cluster_, clock_);
    controller_->start(cluster_);
  }
  void renew() { cluster_.put(leases, make_lease("n", "renewal " + std::to_string(++renewals_))); }
  // Reconciles until it asks for nothing at once; what the runner does.
  kube::Next settle() {
    for (int i = 0; i < 10; ++i) {
      cluster_.refresh_all();
      const auto writes = cluster_.writes.size();
      auto next = controller_->reconcile({"", "n"});
      EXPECT_TRUE(next) << next.error().message;
      if (!next || cluster_.writes.size() == writes) return next ? *next : kube::Next{};
    }
    ADD_FAILURE() << "does not settle";
    return {};
  }
  std::string ready() {
    const Json* condition = kube::find_condition(node_ = cluster_.object(nodes, {"", "n"}), "Ready");
    return condition == nullptr ? "" : (*condition)["status"].string() + " " + (*condition)["reason"].string();
  }
  std::vector<std::string> taints() {
    std::vector<std::string> out;
    const Json node = cluster_.object(nodes, {"", "n"});
    for (const Json& taint : node["spec"]["taints"].items()) out.push_back(taint["key"].string() + ":" + taint["effect"].string());
    return out;
  }
  bool dying(const std::string& pod) { return kube::deleting(cluster_.object(pods, {"default", pod})); }

  Cluster cluster_;
  ManualClock clock_{Instant(std::chrono::hours(1'000))};
  std::unique_ptr<NodeLifecycleController> controller_;
  int renewals_ = 0;
  Json node_;
};

TEST_F(NodeLife, ANodeThatRenewsIsLeftAlone) {
  for (int i = 0; i < 20; ++i) {
    const kube::Next next = settle();
    EXPECT_TRUE(next.again_after);
    clock_.advance(10s);
    renew();
  }
  EXPECT_EQ(ready(), "True KubeletReady");
  EXPECT_THAT(taints(), IsEmpty());
  EXPECT_THAT(cluster_.writes, IsEmpty());
}

TEST_F(NodeLife, ASilentNodeIsMarkedJustAfterFortySecondsAndComesBack) {
  settle();
  clock_.advance(40s);
  const kube::Next next = settle();
  EXPECT_EQ(ready(), "True KubeletReady");
  ASSERT_TRUE(next.again_after);
  EXPECT_LE(*next.again_after, 1ms);
  clock_.advance(*next.again_after);
  settle();
  EXPECT_EQ(ready(), "Unknown NodeStatusUnknown");
  EXPECT_THAT(taints(), ElementsAre("node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"));

  renew();
  settle();
  EXPECT_EQ(ready(), "True KubeletReady") << "what it said before it fell silent";
  EXPECT_THAT(taints(), IsEmpty());
  clock_.advance(41s);
  settle();
  EXPECT_EQ(ready(), "Unknown NodeStatusUnknown") << "and again";
}

TEST_F(NodeLife, ANodeWithoutALeaseIsMarkedToo) {
  cluster_.put(nodes, make_node("n"));
  Cluster fresh;
  NodeLifecycleController controller(fresh, clock_);
  controller.start(fresh);
  fresh.put(nodes, make_node("n"));
  fresh.refresh_all();
  ASSERT_TRUE(controller.reconcile({"", "n"}));
  clock_.advance(41s);
  ASSERT_TRUE(controller.reconcile({"", "n"}));
  EXPECT_EQ((*kube::find_condition(fresh.object(nodes, {"", "n"}), "Ready"))["status"].string(), "Unknown");
}

TEST_F(NodeLife, AfterItsOwnRestartEveryNodeHasTheWholeTimeAgain) {
  settle();
  clock_.advance(39s);
  restart();
  settle();
  clock_.advance(39s);
  settle();
  EXPECT_EQ(ready(), "True KubeletReady");
  clock_.advance(2s);
  settle();
  EXPECT_EQ(ready(), "Unknown NodeStatusUnknown");
  restart();  // it does not know what the node said before
  settle();
  EXPECT_EQ(ready(), "True LeaseRenewed") << "seen just now; silence has to be observed";
  EXPECT_THAT(taints(), IsEmpty());
}

TEST_F(NodeLife, AWrongClockOnTheNodeDoesNoHarm) {
  for (int i = 0; i < 10; ++i) {
    cluster_.put(leases, make_lease("n", "1970-01-01T00:00:" + std::to_string(10 + i) + ".000000Z"));
    settle();
    clock_.advance(30s);
  }
  EXPECT_EQ(ready(), "True KubeletReady");
}

TEST_F(NodeLife, ANodeThatSaysItIsNotReadyIsTaintedSo) {
  cluster_.put(nodes, make_node("n", "4", "False"));
  settle();
  EXPECT_THAT(taints(), ElementsAre("node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"));
  Json node = cluster_.object(nodes, {"", "n"});
  node.child("spec").child("taints").push(Json::object({{"key", "mine"}, {"effect", "NoSchedule"}}));
  node.child("status").child("conditions").items()[0].set("status", "True");
  cluster_.put(nodes, node);
  settle();
  EXPECT_THAT(taints(), ElementsAre("mine:NoSchedule")) << "only its own taints go";
}

TEST_F(NodeLife, PodsOfASilentNodeAreDeletedGracefullyAfterTheGrace) {
  cluster_.put(pods, make_pod("p", "1", "n"));
  cluster_.put(pods, make_pod("elsewhere", "1", "m"));
  Json patient = make_pod("patient", "1", "n");
  patient.child("spec").set("tolerations", Json::array({Json::object({{"operator", "Exists"}})}));
  cluster_.put(pods, patient);
  Json hasty = make_pod("hasty", "1", "n");
  hasty.child("spec").set("tolerations", Json::array({Json::object({{"key", "node.kubernetes.io/unreachable"}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 30}})}));
  cluster_.put(pods, hasty);
  settle();
  clock_.advance(41s);
  kube::Next next = settle();
  EXPECT_FALSE(dying("hasty"));
  ASSERT_TRUE(next.again_after);
  EXPECT_LE(*next.again_after, 30s);
  clock_.advance(30s);
  next = settle();
  EXPECT_TRUE(dying("hasty"));
  EXPECT_FALSE(dying("p"));
  ASSERT_TRUE(next.again_after);
  clock_.advance(*next.again_after);
  settle();
  EXPECT_TRUE(dying("p"));
  EXPECT_FALSE(dying("patient"));
  EXPECT_FALSE(dying("elsewhere"));
  clock_.advance(1h);
  EXPECT_EQ(settle().again_after, std::nullopt);
  EXPECT_FALSE(dying("patient"));
}

TEST_F(NodeLife, PatienceCountsFromTheTaintAcrossOurRestart) {
  cluster_.put(pods, make_pod("p", "1", "n"));
  Json node = make_node("n");
  node.child("spec").set("taints", Json::array({Json::object({{"key", "maintenance"}, {"effect", "NoExecute"}, {"timeAdded", print_time(clock_.now())}})}));
  cluster_.put(nodes, node);
  Json tolerant = make_pod("tolerant", "1", "n");
  tolerant.child("spec").set("tolerations", Json::array({Json::object({{"key", "maintenance"}, {"operator", "Exists"}, {"tolerationSeconds", 100}})}));
  cluster_.put(pods, tolerant);
  settle();
  EXPECT_TRUE(dying("p")) << "a taint that it does not tolerate at all";
  clock_.advance(60s);
  restart();
  settle();
  EXPECT_FALSE(dying("tolerant"));
  clock_.advance(40s);
  settle();
  EXPECT_TRUE(dying("tolerant"));
}

TEST_F(NodeLife, ANodeThatComesBackInTimeKeepsItsPods) {
  cluster_.put(pods, make_pod("p", "1", "n"));
  settle();
  clock_.advance(41s);
  settle();
  clock_.advance(299s);
  renew();
  settle();
  clock_.advance(30s);
  renew();
  settle();
  EXPECT_FALSE(dying("p"));
}

TEST_F(NodeLife, AConcurrentChangeIsAConflictAndTriedAgain) {
  settle();
  clock_.advance(41s);
  cluster_.fail_next("update_status", Code::Conflict);
  cluster_.refresh_all();
  EXPECT_EQ(controller_->reconcile({"", "n"}).error().code, Code::Conflict);
  settle();
  EXPECT_EQ(ready(), "Unknown NodeStatusUnknown");
}

TEST_F(NodeLife, ANodeOfTheSameNameMadeAnewStartsAnew) {
  settle();
  clock_.advance(41s);
  Json again = make_node("n");
  again.child("metadata").set("uid", "uid-2");
  cluster_.put(nodes, again);
  settle();
  EXPECT_EQ(ready(), "True KubeletReady");
}

TEST_F(NodeLife, PodsOfAGoneNodeAreRemovedAfterAWhile) {
  cluster_.put(pods, make_pod("p", "1", "n"));
  settle();
  cluster_.drop(nodes, {"", "n"});
  EXPECT_EQ(settle().again_after, 40s);
  clock_.advance(39s);
  settle();
  EXPECT_TRUE(cluster_.has(pods, {"default", "p"}));
  // It is back in time: everything is as it was, and the time begins anew.
  cluster_.put(nodes, make_node("n"));
  settle();
  cluster_.drop(nodes, {"", "n"});
  settle();
  clock_.advance(39s);
  settle();
  ASSERT_TRUE(cluster_.has(pods, {"default", "p"}));
  clock_.advance(1s);
  // The cache has not heard of the node's return.
  cluster_.refresh_all();
  cluster_.put(nodes, make_node("n"));
  ASSERT_TRUE(controller_->reconcile({"", "n"}));
  ASSERT_TRUE(cluster_.has(pods, {"default", "p"}));
  cluster_.drop(nodes, {"", "n"});
  settle();
  EXPECT_FALSE(cluster_.has(pods, {"default", "p"}));
  EXPECT_EQ(settle().again_after, std::nullopt);
}

TEST_F(NodeLife, MapsLeasesAndPodsToNodes) {
  const auto sources = controller_->sources();
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_THAT(sources[1].keys({.before = {}, .after = make_lease("n", "x")}), ElementsAre(ObjectKey{"", "n"}));
  EXPECT_THAT(sources[2].keys({.before = {}, .after = make_pod("p", "1", "n")}), ElementsAre(ObjectKey{"", "n"}));
  EXPECT_THAT(sources[2].keys({.before = make_pod("p", "1", "n"), .after = make_pod("p", "1", "n")}), IsEmpty());
  EXPECT_THAT(sources[2].keys({.before = {}, .after = make_pod("p")}), IsEmpty());
}

// A pod that comes to a node on which nobody is disturbed is no reason to look at it, until the node changes.
TEST_F(NodeLife, PodsLeadToANodeOnlyWhileItMayDisturbThem) {
  const auto keys = [&](const std::string& node) { return controller_->sources()[2].keys({.before = {}, .after = make_pod("p", "1", node)}); };
  EXPECT_THAT(keys("n"), ElementsAre(ObjectKey{"", "n"}));  // not looked at yet
  settle();
  EXPECT_THAT(keys("n"), IsEmpty());
  EXPECT_THAT(keys("other"), ElementsAre(ObjectKey{"", "other"}));
  clock_.advance(41s);
  settle();
  EXPECT_THAT(taints(), testing::Contains("node.kubernetes.io/unreachable:NoExecute"));
  EXPECT_THAT(keys("n"), ElementsAre(ObjectKey{"", "n"}));
  renew();
  settle();
  EXPECT_THAT(keys("n"), IsEmpty());
  cluster_.drop(nodes, {"", "n"});
  settle();
  EXPECT_THAT(keys("n"), ElementsAre(ObjectKey{"", "n"}));
}

}  // namespace
}  // namespace fairlead::placement
