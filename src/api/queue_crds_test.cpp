// SPDX-License-Identifier: Apache-2.0
#include "api/queue_crds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/crds.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;

Json crd_of(const std::string& plural) {
  for (Json& one : queue_crds())
    if (one["spec"]["names"]["plural"].string() == plural) return std::move(one);
  return {};
}
const Json& schema_of(const Json& crd) {
  for (const Json& version : crd["spec"]["versions"].items())
    if (version["storage"].boolean()) return version["schema"]["openAPIV3Schema"];
  return crd["nothing"];
}

TEST(QueueCrds, StoreV1beta2AndAreMarkedAsOurs) {
  std::vector<std::string> kinds;
  for (const Json& crd : queue_crds()) {
    kinds.push_back(crd["spec"]["names"]["kind"].string());
    EXPECT_EQ(crd["spec"]["versions"].items()[0]["name"].string(), "v1beta2") << "the stored one comes first: who takes the first needs no conversion";
    EXPECT_TRUE(crd["spec"]["versions"].items()[0]["storage"].boolean());
    EXPECT_TRUE(is_our_queue_crd(crd)) << kube::name_of(crd);
  }
  EXPECT_THAT(kinds, ElementsAre("ResourceFlavor", "Topology", "WorkloadPriorityClass", "AdmissionCheck", "Cohort", "ClusterQueue", "LocalQueue", "Workload"));
}

TEST(QueueCrds, HaveTheDefaultsThatUsersRelyOn) {
  const Json queues = crd_of("clusterqueues"), workloads = crd_of("workloads");
  const Json& spec = schema_of(queues)["properties"]["spec"]["properties"];
  EXPECT_EQ(spec["queueingStrategy"]["default"].string(), "BestEffortFIFO");
  EXPECT_EQ(spec["preemption"]["properties"]["reclaimWithinCohort"]["default"].string(), "Never");
  EXPECT_EQ(spec["flavorFungibility"]["properties"]["whenCanBorrow"]["default"].string(), "MayStopSearch");
  EXPECT_EQ(spec["fairSharing"]["properties"]["weight"]["default"].integer(), 1);
  const Json& sets = schema_of(workloads)["properties"]["spec"]["properties"]["podSets"];
  EXPECT_EQ(sets["items"]["properties"]["name"]["default"].string(), "main");
  EXPECT_EQ(sets["maxItems"].integer(), 18);
  EXPECT_TRUE(sets["items"]["properties"]["template"]["x-kubernetes-preserve-unknown-fields"].boolean());
}

TEST(QueueCrds, ResourcesAreWhatTheDefinitionsSay) {
  for (const kube::Resource* one : {&queues::flavors, &queues::topologies, &queues::priority_classes, &queues::checks, &queues::cohorts, &queues::cluster_queues, &queues::local_queues, &queues::workloads}) {
    const Json crd = crd_of(one->plural);
    EXPECT_EQ(crd["spec"]["names"]["kind"].string(), one->kind);
    EXPECT_EQ(crd["spec"]["scope"].string() == "Namespaced", one->namespaced) << one->plural;
    EXPECT_EQ(crd["spec"]["group"].string() + "/" + crd["spec"]["versions"].items()[0]["name"].string(), one->api_version());
  }
}

TEST(QueueCrds, OneOfSomebodyElseMakesTheGroupTheirs) {
  std::vector<Json> there = crds();
  EXPECT_EQ(foreign_queue_crd(there), nullptr);
  for (Json& crd : there)
    if (kube::name_of(crd) == "workloads.kueue.x-k8s.io") crd.child("metadata").set("labels", Json::object({{"app.kubernetes.io/name", "kueue"}}));
  ASSERT_NE(foreign_queue_crd(there), nullptr);
  EXPECT_EQ(kube::name_of(*foreign_queue_crd(there)), "workloads.kueue.x-k8s.io");
  const Json other = Json::object({{"metadata", Json::object({{"name", "things.example.com"}})}, {"spec", Json::object({{"group", "example.com"}})}});
  EXPECT_EQ(foreign_queue_crd({other}), nullptr);
}

}  // namespace
}  // namespace fairlead::api
