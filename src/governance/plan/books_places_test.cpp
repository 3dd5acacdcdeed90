// SPDX-License-Identifier: Apache-2.0
// Workloads whose pods get a place: two racks of two hosts.
#include "governance/plan/books_lab.h"
#include "governance/replay/decision_replay.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;

class PlacesOfBooks : public BooksOf {
 protected:
  PlacesOfBooks() {
    books_.set_flavor("default", yaml("{metadata: {name: default}, spec: {topologyName: site}}"));
    topology();
    for (const char* host : {"a1", "a2", "b1", "b2"}) node(host, std::string(1, host[0]), "4");
    put_queue("q", "{namespaceSelector: {}, preemption: {withinClusterQueue: LowerPriority}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 100}]}]}]}");
  }
  void topology() { books_.set_topology("site", yaml("{metadata: {name: site}, spec: {levels: [{nodeLabel: cloud/rack}, {nodeLabel: kubernetes.io/hostname}]}}")); }
  void node(const std::string& name, const std::string& rack, const std::string& cpu, const std::string& ready = "True", const std::string& since = "2026-11-22T09:00:00Z", bool cordoned = false) {
    books_.set_node(name, yaml(fmt::format("{{metadata: {{name: {0}, labels: {{cloud/rack: {1}, kubernetes.io/hostname: {0}}}}}, spec: {{unschedulable: {5}}}, status: {{allocatable: {{cpu: '{2}', pods: '10'}}, "
                                           "conditions: [{{type: Ready, status: '{3}', lastTransitionTime: '{4}'}}]}}}}", name, rack, cpu, ready, since, cordoned)));
  }
  void gang(const std::string& name, int pods, const std::string& cpu, const std::string& request, int priority = 0, const std::string& queue = "q") {
    const int number = ++submitted_;
    put(yaml(fmt::format("{{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {{name: {0}, namespace: lab, uid: 00000000-0000-0000-0000-{1:012d}, creationTimestamp: '2026-11-22T10:00:{2:02d}Z'}}, "
                         "spec: {{queueName: {6}, priority: {7}, podSets: [{{name: main, count: {3}, topologyRequest: {5}, template: {{spec: {{containers: [{{name: c, resources: {{requests: {{cpu: '{4}'}}}}}}]}}}}}}]}}}}",
                         name, number, number % 60, pods, cpu, request, queue, priority)));
  }
  void pod(const std::string& name, const std::string& node, const std::string& cpu, const std::string& annotations = "{}") {
    books_.set_pod({"lab", name}, yaml(fmt::format("{{metadata: {{name: {0}, namespace: lab, annotations: {3}}}, spec: {{nodeName: {1}, containers: [{{name: c, resources: {{requests: {{cpu: '{2}'}}}}}}]}}, status: {{phase: Running}}}}", name, node, cpu, annotations)));
  }
  std::string where(const std::string& name) { return text(read_topology_assignment(at(name)["status"]["admission"]["podSetAssignments"].items().at(0)["topologyAssignment"])); }
};

TEST_F(PlacesOfBooks, AGangGoesToOneRackAndWaitsWhereNoneHasRoom) {
  gang("g1", 6, "1", "{required: cloud/rack}");
  settle();
  ASSERT_TRUE(admitted("g1")) << says("g1", "QuotaReserved");
  EXPECT_EQ(where("g1"), "a1:4 a2:2");
  EXPECT_EQ(at("g1")["status"]["admission"]["podSetAssignments"].items()[0]["topologyAssignment"]["levels"].items()[0].string(), "kubernetes.io/hostname");
  gang("g2", 6, "1", "{required: cloud/rack}"), gang("g3", 3, "1", "{required: cloud/rack}");
  settle();
  EXPECT_EQ(where("g2"), "b1:4 b2:2");
  EXPECT_FALSE(admitted("g3"));
  EXPECT_THAT(says("g3", "QuotaReserved"), HasSubstr("False TopologyPlacementFailed: couldn't assign flavors to pod set main: topology \"site\" allows to fit only 2 out of 3 pod(s)"));
  stopped("g2");
  Json gone = at("g2");
  books_.set_workload({"lab", "g2"}, Json());
  settle();
  EXPECT_TRUE(admitted("g3"));
}

TEST_F(PlacesOfBooks, WhatOthersUseIsNotThereAndTheirEndWakesWhoWaits) {
  for (const char* host : {"a1", "a2", "b1", "b2"}) pod(fmt::format("other-{}", host), host, "2");
  pod("ours", "a1", "4", "{kueue.x-k8s.io/workload: w, kueue.x-k8s.io/podset-required-topology: cloud/rack}");  // counted with its workload
  gang("g", 6, "1", "{required: cloud/rack}");
  settle();
  EXPECT_THAT(says("g", "QuotaReserved"), HasSubstr("only 4 out of 6"));
  books_.set_pod({"lab", "other-b2"}, Json());
  settle();
  EXPECT_EQ(where("g"), "b1:2 b2:4");
}

TEST_F(PlacesOfBooks, ANodeThatComesOrIsMadeLargerWakesWhoWaits) {
  gang("g", 10, "1", "{required: cloud/rack}"), gang("h", 5, "1", "{required: kubernetes.io/hostname}");
  settle();
  EXPECT_FALSE(admitted("g") || admitted("h"));
  node("a3", "a", "4");
  settle();
  EXPECT_TRUE(admitted("g"));
  node("b1", "b", "5");
  settle();
  EXPECT_EQ(where("h"), "b1:5");
}

TEST_F(PlacesOfBooks, AQueueOfSuchFlavorsAlonePlacesAllPods) {
  submit("plain", "q", "3");
  settle();
  EXPECT_EQ(where("plain"), "a1:1");
}

TEST_F(PlacesOfBooks, AFlavorWithoutATopologyIsForThoseWhoAskForNone) {
  books_.set_flavor("loose", yaml("{metadata: {name: loose}, spec: {}}"));
  put_queue("q", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: loose, resources: [{name: cpu, nominalQuota: 5}]}, {name: default, resources: [{name: cpu, nominalQuota: 100}]}]}]}");
  submit("plain", "q", "3"), submit("plain2", "q", "3"), gang("g", 2, "1", "{preferred: cloud/rack}"), gang("odd", 1, "1", "{required: cloud/block}");
  settle();
  EXPECT_TRUE(admitted("plain") && admitted("g"));
  EXPECT_EQ(at("plain")["status"]["admission"]["podSetAssignments"].items()[0]["flavors"]["cpu"].string(), "loose");
  EXPECT_FALSE(admitted("plain2")) << "the other flavor is for those who ask for a place";
  EXPECT_EQ(at("g")["status"]["admission"]["podSetAssignments"].items()[0]["flavors"]["cpu"].string(), "default");
  EXPECT_EQ(says("odd", "QuotaReserved"), "False NoMatchingFlavor: couldn't assign flavors to pod set main: Flavor \"loose\" does not support TopologyAwareScheduling, Flavor \"default\" does not contain the requested level");
}

TEST_F(PlacesOfBooks, WithoutItsTopologyAQueueIsInactiveAndSaysSo) {
  books_.set_topology("site", Json());
  gang("g", 1, "1", "{required: cloud/rack}");
  settle();
  const Json status = (*books_.queue_status("q", now_))["status"];
  EXPECT_EQ(status["conditions"].items()[0]["reason"].string(), "TopologyNotFound");
  EXPECT_EQ(status["conditions"].items()[0]["message"].string(), "Can't admit new workloads: there is no Topology \"site\" for TAS flavor \"default\".");
  topology();
  settle();
  EXPECT_TRUE(admitted("g"));
}

TEST_F(PlacesOfBooks, RoomInPiecesIsMadeByPreemption) {
  for (const char* name : {"l1", "l2", "l3", "l4"}) gang(name, 1, "3", "{required: kubernetes.io/hostname}");
  settle();
  gang("big", 1, "4", "{required: kubernetes.io/hostname}", 10);
  settle();
  EXPECT_EQ(says("big", "QuotaReserved"), "False WaitingForPreemptedWorkloads: Quota is promised. Pending the preemption of 1 workload(s)");
  EXPECT_EQ(kube::condition_is_true(at("l4"), "Evicted"), true);
  stopped("l4");
  EXPECT_TRUE(admitted("big"));
  EXPECT_EQ(where("big"), "b2:1");
}

TEST_F(PlacesOfBooks, PodsOfALostNodeGetAnotherPlaceAndTheOthersStay) {
  gang("g", 6, "1", "{preferred: cloud/rack}");
  settle();
  ASSERT_EQ(where("g"), "a1:4 a2:2");
  node("a2", "a", "4", "Unknown", "2026-11-22T10:00:50Z");
  settle();
  EXPECT_TRUE(books_.needs_tending());
  EXPECT_FALSE(books_.tend(now_)) << "not for 10 s";
  settle();
  EXPECT_EQ(where("g"), "a1:4 a2:2");
  EXPECT_TRUE(books_.tend(now_ + 20s));
  settle();
  EXPECT_TRUE(admitted("g"));
  EXPECT_EQ(where("g"), "a1:4 b1:2");
  EXPECT_EQ(notes_.back(), "g NodeReplaced");
  EXPECT_FALSE(books_.needs_tending());
}

TEST_F(PlacesOfBooks, WhereThereIsNoOtherPlaceItIsEvictedAndQueuedAgain) {
  gang("g", 6, "1", "{required: cloud/rack}");
  settle();
  ASSERT_EQ(where("g"), "a1:4 a2:2");
  books_.set_node("a1", Json());  // it is gone: no need to wait
  settle();
  EXPECT_TRUE(books_.tend(now_));
  settle();
  EXPECT_THAT(says("g", "Evicted"), HasSubstr("True NodeFailures: Its node a1 is lost, and there is no other place for the pods that it had: "));
  stopped("g");
  EXPECT_TRUE(admitted("g"));
  EXPECT_EQ(where("g"), "b1:4 b2:2");
}

TEST_F(PlacesOfBooks, ACordonedNodeTakesNoPodsAndLosesNone) {
  gang("g", 6, "1", "{required: cloud/rack}");
  settle();
  node("a1", "a", "4", "True", "2026-11-22T09:00:00Z", true);
  settle();
  EXPECT_FALSE(books_.tend(now_ + 3600s));
  settle();
  EXPECT_TRUE(admitted("g"));
  EXPECT_EQ(where("g"), "a1:4 a2:2");
}

TEST_F(PlacesOfBooks, ASuccessorCountsWhatIsPlacedAndFindsNodesThatWereLostMeanwhile) {
  gang("g", 6, "1", "{preferred: cloud/rack}");
  settle();
  Books next;
  next.set_space("lab", yaml("{metadata: {name: lab, labels: {team: a}}}"));
  std::swap(books_, next);
  books_.set_flavor("default", yaml("{metadata: {name: default}, spec: {topologyName: site}}"));
  topology();
  for (const char* host : {"a1", "b1", "b2"}) node(host, std::string(1, host[0]), "4");
  put_queue("q", "{namespaceSelector: {}, resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: 100}]}]}]}");
  books_.set_workload({"lab", "g"}, at("g"));
  gang("h", 1, "1", "{required: kubernetes.io/hostname}");
  books_.decide();
  EXPECT_TRUE(books_.tend(now_));
  settle();
  EXPECT_EQ(where("g"), "a1:4 b1:2");
  EXPECT_NE(where("h"), "a1:1");
}

TEST_F(PlacesOfBooks, TheRecordIsDecidedAgainTheSame) {
  books_.record(now_);
  books_.fill_anew();
  gang("g1", 6, "1", "{required: cloud/rack}"), gang("g2", 6, "1", "{preferred: cloud/rack}", 5), gang("g3", 4, "1", "{unconstrained: true}");
  pod("other", "b2", "1500m");
  settle();
  gang("g4", 8, "1", "{required: cloud/rack}", 50);
  settle();
  node("b2", "b", "4", "False", "2026-11-22T09:30:00Z");
  settle();
  (void)books_.tend(now_);
  settle();
  books_.set_pod({"lab", "other"}, Json());
  settle();
  const auto outcomes = replay_decisions(decision_log_header(now_) + books_.take_record());
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].kind, CaseOutcome::Kind::Passed) << outcomes[0].detail;
}

}  // namespace
}  // namespace fairlead::governance
