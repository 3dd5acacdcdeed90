// SPDX-License-Identifier: Apache-2.0
#include "placement/control/placement_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "placement/control/test_cluster.h"

namespace fairlead::placement {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
const auto& pods = kube::resources::pods;
const auto& nodes = kube::resources::nodes;

class Placing : public testing::Test {
 protected:
  void SetUp() override { controller_.start(cluster_); }
  Result<kube::Next> step() {
    cluster_.refresh_all(controller_.sources());
    return controller_.reconcile({"", "all"});
  }
  std::string node_of(const std::string& pod) { return cluster_.object(pods, {"default", pod})["spec"]["nodeName"].string(); }
  std::vector<std::string> event_reasons() {
    std::vector<std::string> out;
    for (const Json& event : cluster_.all(kube::resources::events)) out.push_back(event["reason"].string() + " " + event["involvedObject"]["name"].string());
    std::sort(out.begin(), out.end());
    return out;
  }

  Cluster cluster_;
  ManualClock clock_{Instant(std::chrono::hours(1'000))};
  PlacementController controller_{cluster_, clock_};
};

TEST_F(Placing, BindsWhatFitsAndTellsWhatDoesNot) {
  cluster_.put(nodes, make_node("a"));
  cluster_.put(pods, make_pod("fits"));
  cluster_.put(pods, make_pod("big", "9"));
  ASSERT_TRUE(step());
  EXPECT_EQ(node_of("fits"), "a");
  EXPECT_EQ(node_of("big"), "");
  const Json big = cluster_.object(pods, {"default", "big"});
  const Json* condition = kube::find_condition(big, "PodScheduled");
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ((*condition)["status"].string(), "False");
  EXPECT_EQ((*condition)["reason"].string(), "Unschedulable");
  EXPECT_EQ((*condition)["message"].string(), "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.");
  EXPECT_EQ(big["status"]["phase"].string(), "Pending");
  EXPECT_THAT(event_reasons(), ElementsAre("FailedScheduling big", "Scheduled fits"));
}

TEST_F(Placing, IsQuietWhenNothingChanges) {
  cluster_.put(nodes, make_node("a"));
  cluster_.put(pods, make_pod("fits"));
  cluster_.put(pods, make_pod("big", "9"));
  ASSERT_TRUE(step());
  const auto writes = cluster_.writes;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(step());
  EXPECT_EQ(cluster_.writes, writes);
}

TEST_F(Placing, AWaitingPodIsPlacedWhenThereIsRoomAtLast) {
  cluster_.put(pods, make_pod("p"));
  ASSERT_TRUE(step());
  EXPECT_EQ((*kube::find_condition(cluster_.object(pods, {"default", "p"}), "PodScheduled"))["message"].string(), "no nodes available to schedule pods");
  cluster_.put(nodes, make_node("a"));
  ASSERT_TRUE(step());
  EXPECT_EQ(node_of("p"), "a");
}

// The cache is behind: it does not show our own binding yet. A more important pod must not get the same room.
TEST_F(Placing, CountsItsOwnBindingsBeforeTheCacheShowsThem) {
  cluster_.put(nodes, make_node("a", "1"));
  cluster_.put(pods, make_pod("first"));
  ASSERT_TRUE(step());
  ASSERT_EQ(node_of("first"), "a");
  Json stale = make_pod("first");
  Json urgent = make_pod("urgent");
  urgent.child("spec").set("priority", 1'000).set("preemptionPolicy", "Never");
  cluster_.put(pods, urgent);
  const Json bound = cluster_.object(pods, {"default", "first"});
  cluster_.put(pods, stale);  // only for the cache
  cluster_.refresh_all(controller_.sources());
  cluster_.put(pods, bound);
  ASSERT_TRUE(controller_.reconcile({"", "all"}));
  EXPECT_EQ(node_of("urgent"), "");
  ASSERT_TRUE(step());
  EXPECT_EQ(node_of("urgent"), "");
}

TEST_F(Placing, AsksWhenTheAnswerToABindingWasLost) {
  for (const bool done : {true, false}) {
    SCOPED_TRACE(done ? "it was done" : "it was not done");
    Cluster cluster;
    PlacementController controller(cluster, clock_);
    controller.start(cluster);
    cluster.put(nodes, make_node("a", "1"));
    cluster.put(pods, make_pod("first"));
    cluster.refresh_all(controller.sources());
    cluster.fail_next("post", Code::Unavailable, done);
    EXPECT_EQ(controller.reconcile({"", "all"}).error().code, Code::Unavailable);
    Json urgent = make_pod("urgent");
    urgent.child("spec").set("priority", 1'000).set("preemptionPolicy", "Never");
    cluster.put(pods, urgent);
    // The cache learns of the new pod, but not of what became of the first.
    const Json truth = cluster.object(pods, {"default", "first"});
    cluster.put(pods, make_pod("first"));
    cluster.refresh_all(controller.sources());
    cluster.put(pods, truth);
    auto again = controller.reconcile({"", "all"});
    EXPECT_TRUE(again || again.error().code == Code::Conflict) << again.error().message;  // the pod it tells to wait has changed meanwhile
    EXPECT_EQ(cluster.object(pods, {"default", "urgent"})["spec"]["nodeName"].string(), done ? "" : "a");
  }
}

TEST_F(Placing, OneRefusedBindingDoesNotKeepTheOthersWaiting) {
  cluster_.put(nodes, make_node("a"));
  cluster_.put(pods, make_pod("one"));
  cluster_.put(pods, make_pod("two"));
  cluster_.fail_next("post", Code::Conflict);
  EXPECT_EQ(step().error().code, Code::Conflict);
  EXPECT_EQ(node_of("one"), "");
  EXPECT_EQ(node_of("two"), "a");
  ASSERT_TRUE(step());
  EXPECT_EQ(node_of("one"), "a");
}

TEST_F(Placing, APodThatIsGoneIsNoError) {
  cluster_.put(nodes, make_node("a"));
  cluster_.put(pods, make_pod("p"));
  cluster_.refresh_all(controller_.sources());
  cluster_.fail_next("post", Code::NotFound);
  EXPECT_TRUE(controller_.reconcile({"", "all"}));
}

TEST_F(Placing, EventsAreFewHoweverOftenTheReasonChanges) {
  cluster_.put(pods, make_pod("p", "9"));
  for (int i = 0; i < 30; ++i) {
    cluster_.put(nodes, make_node("n" + std::to_string(i)));
    ASSERT_TRUE(step());
    clock_.advance(1s);
  }
  EXPECT_THAT(event_reasons(), ElementsAre("FailedScheduling p"));
  clock_.advance(60s);
  cluster_.put(nodes, make_node("another"));
  ASSERT_TRUE(step());
  EXPECT_EQ(event_reasons().size(), 2U);
}

Json important(const std::string& name, const std::string& cpu = "1") {
  Json pod = make_pod(name, cpu);
  pod.child("spec").set("priority", 1'000);
  return pod;
}

TEST_F(Placing, MakesRoomForTheMoreImportant) {
  cluster_.put(nodes, make_node("a", "1"));
  cluster_.put(pods, make_pod("low", "1", "a"));
  cluster_.put(pods, important("high"));
  ASSERT_TRUE(step());
  const Json high = cluster_.object(pods, {"default", "high"}), low = cluster_.object(pods, {"default", "low"});
  EXPECT_EQ(high["status"]["nominatedNodeName"].string(), "a");
  EXPECT_TRUE(kube::deleting(low));
  EXPECT_EQ((*kube::find_condition(low, "DisruptionTarget"))["reason"].string(), "PreemptionByScheduler");
  EXPECT_THAT(event_reasons(), ElementsAre("FailedScheduling high", "Preempted low"));
  // While the victim ends, nothing more happens, and nobody else takes the room.
  cluster_.put(pods, make_pod("late"));
  ASSERT_TRUE(step());
  EXPECT_EQ(cluster_.object(pods, {"default", "high"})["status"]["nominatedNodeName"].string(), "a");
  cluster_.drop(pods, {"default", "low"});
  ASSERT_TRUE(step());
  EXPECT_EQ(node_of("high"), "a");
  EXPECT_EQ(node_of("late"), "");
}

// The process ends after each write of pre-emption; a new one comes to the same end.
TEST_F(Placing, MakingRoomSurvivesARestartAtEveryStep) {
  for (int writes = 0; writes < 5; ++writes) {
    SCOPED_TRACE(testing::Message() << "dies after " << writes << " writes");
    Cluster cluster;
    cluster.put(nodes, make_node("a", "2"));
    for (const char* name : {"low1", "low2"}) cluster.put(pods, make_pod(name, "1", "a"));
    cluster.put(pods, important("high", "2"));
    cluster.die_after(writes);
    {
      PlacementController first(cluster, clock_);
      first.start(cluster);
      cluster.refresh_all(first.sources());
      (void)first.reconcile({"", "all"});
    }
    cluster.die_after(-1);
    PlacementController second(cluster, clock_);
    second.start(cluster);
    for (int i = 0; i < 3; ++i) {
      cluster.refresh_all(second.sources());
      ASSERT_TRUE(second.reconcile({"", "all"}));
      for (const char* name : {"low1", "low2"})
        if (kube::deleting(cluster.object(pods, {"default", name}))) cluster.drop(pods, {"default", name});
    }
    EXPECT_EQ(cluster.object(pods, {"default", "high"})["spec"]["nodeName"].string(), "a");
    EXPECT_EQ(cluster.all(pods).size(), 1U);
  }
}

TEST_F(Placing, ManyWritersPlaceTheSame) {
  Cluster cluster;
  for (const char* name : {"a", "b", "c"}) cluster.put(nodes, make_node(name, "100"));
  for (int i = 0; i < 60; ++i) cluster.put(pods, make_pod("p" + std::to_string(i)));
  PlacementController controller(cluster, clock_, {.writers = 8});
  controller.start(cluster);
  cluster.refresh_all(controller.sources());
  ASSERT_TRUE(controller.reconcile({"", "all"}));
  for (int i = 0; i < 60; ++i) EXPECT_NE(cluster.object(pods, {"default", "p" + std::to_string(i)})["spec"]["nodeName"].string(), "");
}

TEST_F(Placing, WaitsForClaimsAndTellsThemTheNode) {
  const kube::Resource classes{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
  const auto& claims = kube::resources::claims;
  Cluster cluster;
  PlacementController controller(cluster, clock_, {.claims = true});
  controller.start(cluster);
  const auto reconcile = [&] {
    cluster.refresh_all(controller.sources());
    return controller.reconcile({"", "all"});
  };
  Json pod = make_pod("p");
  pod.child("spec").set("volumes", Json::array({Json::object({{"name", "v"}, {"persistentVolumeClaim", Json::object({{"claimName", "home"}})}})}));
  cluster.put(nodes, make_node("a"));
  cluster.put(pods, pod);
  ASSERT_TRUE(reconcile());
  EXPECT_THAT((*kube::find_condition(cluster.object(pods, {"default", "p"}), "PodScheduled"))["message"].string(), HasSubstr("persistentvolumeclaim \"home\" not found"));
  Json claim = Json::object({{"metadata", Json::object({{"name", "home"}, {"namespace", "default"}})}, {"spec", Json::object({{"storageClassName", "later"}})}, {"status", Json::object({{"phase", "Pending"}})}});
  cluster.put(claims, claim);
  ASSERT_TRUE(reconcile());
  EXPECT_THAT((*kube::find_condition(cluster.object(pods, {"default", "p"}), "PodScheduled"))["message"].string(), HasSubstr("unbound immediate"));
  cluster.put(classes, Json::object({{"metadata", Json::object({{"name", "later"}})}, {"volumeBindingMode", "WaitForFirstConsumer"}}));
  ASSERT_TRUE(reconcile());
  claim = cluster.object(claims, {"default", "home"});
  EXPECT_EQ(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].string(), "a");
  EXPECT_EQ(cluster.object(pods, {"default", "p"})["spec"]["nodeName"].string(), "");
  claim.child("status").set("phase", "Bound");
  cluster.put(claims, claim);
  ASSERT_TRUE(reconcile());
  EXPECT_EQ(cluster.object(pods, {"default", "p"})["spec"]["nodeName"].string(), "a");
}

// What a StorageClass and a claim say of the pools that will do, as the provisioner reads it.
TEST(PlacementController, SendsAClaimToAPoolThatHasItsClassAndItsSource) {
  const auto& claims = kube::resources::claims;
  const kube::Resource classes{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false}, pools{"fairlead.dev", "v1alpha1", "volumepools", "VolumePool", false}, snapshots{"fairlead.dev", "v1alpha1", "snapshots", "Snapshot", false};
  Cluster cluster;
  ManualClock clock{Instant(std::chrono::hours(1'000))};
  PlacementController controller(cluster, clock, {.claims = true, .pools = true});
  controller.start(cluster);
  // a reaches a pool of files, b one of files and Ceph, c one of files without engines.
  const auto labelled = [&](const char* name, const char* first, const char* further) {
    Json node = make_node(name);
    node.child("metadata").child("labels").set("topology.fairlead.dev/pool", first);
    if (*further != 0) node.child("metadata").child("labels").set(std::string("pool.fairlead.dev/") + further, "true");
    cluster.put(nodes, node);
  };
  labelled("a", "pa", ""), labelled("b", "pb", "ceph"), labelled("c", "pc", "");
  const auto pool = [&](const char* name, std::initializer_list<const char*> has) {
    Json list = Json::array({});
    for (const char* const one : has) list.push(one);
    cluster.put(pools, Json::object({{"metadata", Json::object({{"name", name}})}, {"status", Json::object({{"limit", "100Gi"}, {"promised", "0"}, {"classes", list}})}}));
  };
  pool("pa", {"local-fast", "local-managed"}), pool("pb", {"local-fast"}), pool("pc", {"local-fast"}), pool("ceph", {"distributed"});
  cluster.put(snapshots, Json::object({{"metadata", Json::object({{"name", "then"}})}, {"spec", Json::object({{"pool", "pc"}})}}));
  int number = 0;
  const auto goes_to = [&](Json parameters, Json more = Json::object({})) {
    const std::string name = "n" + std::to_string(++number);
    cluster.put(classes, Json::object({{"metadata", Json::object({{"name", name}})}, {"provisioner", "csi.fairlead.dev"}, {"volumeBindingMode", "WaitForFirstConsumer"}, {"parameters", std::move(parameters)}}));
    Json spec = Json::object({{"storageClassName", name}, {"resources", Json::object({{"requests", Json::object({{"storage", "1Gi"}})}})}});
    for (const auto& [key, value] : more.members()) spec.set(key, value);
    cluster.put(claims, Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "default"}})}, {"spec", std::move(spec)}, {"status", Json::object({{"phase", "Pending"}})}}));
    Json pod = make_pod(name);
    pod.child("spec").set("volumes", Json::array({Json::object({{"name", "v"}, {"persistentVolumeClaim", Json::object({{"claimName", name}})}})}));
    cluster.put(pods, pod);
    cluster.refresh_all(controller.sources());
    EXPECT_TRUE(controller.reconcile({"", "all"}));
    const std::string node = cluster.object(claims, {"default", name})["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].string();
    const Json now = cluster.object(pods, {"default", name});
    const Json* const condition = kube::find_condition(now, "PodScheduled");
    return node.empty() && condition != nullptr ? (*condition)["message"].string() : node;
  };
  EXPECT_EQ(goes_to(Json::object({{"class", "distributed"}})), "b");
  EXPECT_EQ(goes_to(Json::object({{"class", "local-managed"}})), "a");
  EXPECT_EQ(goes_to(Json::object({{"pool", "pc"}})), "c");
  EXPECT_THAT(goes_to(Json::object({{"class", "gold"}})), HasSubstr("3 node(s) reached no pool with class gold"));
  // Without a class: by an engine where that is needed. b has one in Ceph alone, c has none.
  EXPECT_THAT(goes_to(Json::object({{"encrypted", "true"}})), testing::AnyOf("a", "b"));
  EXPECT_EQ(goes_to(Json::object({{"encrypted", "true"}, {"pool", "ceph"}})), "b");
  EXPECT_THAT(goes_to(Json::object({{"iops", "500"}, {"pool", "pc"}})), HasSubstr("3 node(s)"));
  EXPECT_EQ(goes_to(Json::object({}), Json::object({{"dataSourceRef", Json::object({{"apiGroup", "fairlead.dev"}, {"kind", "Snapshot"}, {"name", "then"}})}})), "c");
  EXPECT_FALSE(goes_to(Json::object({}), Json::object({{"dataSource", Json::object({{"apiGroup", "fairlead.dev"}, {"kind", "Snapshot"}, {"name", "gone"}})}})).starts_with("0/3")) << "of one that is not there the provisioner tells";
}

TEST_F(Placing, WakesForWhatMattersOnly) {
  const auto sources = controller_.sources();
  const auto& pod_keys = sources[0].keys;
  const auto& node_keys = sources[1].keys;
  const Json waiting = make_pod("p"), placed = make_pod("p", "1", "a");
  Json running = placed;
  running.child("status").set("phase", "Running");
  Json finished = placed;
  finished.child("status").set("phase", "Succeeded");
  EXPECT_FALSE(pod_keys({.before = {}, .after = waiting}).empty());
  EXPECT_FALSE(pod_keys({.before = waiting, .after = placed}).empty());
  EXPECT_THAT(pod_keys({.before = placed, .after = running}), IsEmpty());
  EXPECT_FALSE(pod_keys({.before = running, .after = finished}).empty());
  EXPECT_THAT(pod_keys({.before = finished, .after = {}}), IsEmpty());
  EXPECT_FALSE(pod_keys({.before = running, .after = {}}).empty());

  const Json node = make_node("a");
  Json heartbeat = node;
  heartbeat.child("metadata").set("resourceVersion", "99");
  heartbeat.child("status").child("conditions").items()[0].set("lastHeartbeatTime", "2026-01-01T00:00:00Z");
  EXPECT_THAT(node_keys({.before = node, .after = heartbeat}), IsEmpty());
  EXPECT_FALSE(node_keys({.before = node, .after = make_node("a", "8")}).empty());
  EXPECT_FALSE(node_keys({.before = node, .after = make_node("a", "4", "False")}).empty());
}

}  // namespace
}  // namespace fairlead::placement
