// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "api/cluster.h"
#include "kube/scripted_api.h"
#include "kube/tiny_api.h"
#include "notify/control/cluster_event_controller.h"
#include "notify/plan/render.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct ClusterEvents : testing::Test {
  kube::TinyApi api;
  kube::CheckedApi checked{api, kube::full_access(ClusterEventController(api, {}))};
  ClusterEventController controller{checked, {}};
  ClusterEvents() {
    controller.start(api);
    put(api::kClusters, R"({"metadata": {"name": "ml-a1", "uid": "u1", "annotations": {"fairlead.dev/arn-begin": "arn:aws:sagemaker:eu-x-1:111122223333:cluster/"}}, "spec": {"clusterName": "ML", "instanceGroups": []}})");
    put(api::kClusters, R"({"metadata": {"name": "other", "uid": "u2"}, "spec": {"instanceGroups": []}})");
  }
  ~ClusterEvents() override { EXPECT_TRUE(checked.refusals().empty()) << checked.refusals().front(); }
  void put(const kube::Resource& resource, const std::string& text) { ASSERT_TRUE(api.create(resource, *kube::parse_json(text))) << text; }
  void topic(const std::string& space, const std::string& name, const std::string& rule) {
    put(kTopics, R"({"metadata": {"name": ")" + name + R"(", "namespace": ")" + space + R"(", "creationTimestamp": "2026-11-26T12:00:00Z"}, "spec": {"channels": [{"name": "pager", "webhook": {"url": "https://x"}}], "clusterEvents": )" + rule + "}}");
  }
  kube::ObjectKey event(const std::string& name, const std::string& level, const std::string& cluster = "ml-a1", const std::string& time = "2026-11-26T12:30:00Z") {
    put(api::kClusterEvents, R"({"metadata": {"name": ")" + name + R"(", "namespace": "cluster-)" + cluster + R"(", "uid": "e-)" + name + R"(", "labels": {"fairlead.dev/cluster": ")" + cluster + R"("}}, "spec": {"clusterUid": ")" + (cluster == "ml-a1" ? "u1" : "u2") +
                                 R"(", "resourceType": "Instance", "level": ")" + level + R"(", "kind": "InstanceFailed", "time": ")" + time + R"(", "description": "Instance i-1 of group gpu has failed", "instanceGroupName": "gpu", "instanceId": "i-1", "nodeLogicalId": "l-1", "metadata": {"failureMessage": "on_create.sh: it ended with 3"}}})");
    return {"cluster-" + cluster, name};
  }
  bool go(const kube::ObjectKey& key) { return static_cast<bool>(controller.reconcile(key)); }
  std::vector<std::string> told() {
    std::vector<std::string> out;
    for (const auto& [key, one] : api.all("notifications")) out.push_back(key.space + "/" + one["spec"]["topic"].string());
    return out;
  }
  bool marked(const kube::ObjectKey& key) { return api.all("clusterevents").at(key)["metadata"]["annotations"].has("fairlead.dev/notified"); }
};

TEST_F(ClusterEvents, AreToldTopicsOfTheSiteAndOfTheirCluster) {
  topic("fairlead-system", "all", "{}");
  topic("cluster-ml-a1", "own", R"({"levels": ["Info", "Warn", "Error"]})");
  topic("cluster-other", "others", R"({"levels": ["Info", "Warn", "Error"]})");
  topic("team", "curious", R"({"levels": ["Info", "Warn", "Error"]})");
  put(kTopics, R"({"metadata": {"name": "heads", "namespace": "fairlead-system"}, "spec": {"channels": [{"name": "pager", "webhook": {"url": "https://x"}}]}})");
  const auto error = event("a", "Error");
  EXPECT_TRUE(go(error));
  EXPECT_THAT(told(), UnorderedElementsAre("fairlead-system/all", "cluster-ml-a1/own"));
  EXPECT_TRUE(marked(error));
  api.all("notifications").clear();
  EXPECT_TRUE(go(error));
  EXPECT_THAT(told(), IsEmpty()) << "once";
  EXPECT_TRUE(go(event("b", "Info")));
  EXPECT_THAT(told(), UnorderedElementsAre("cluster-ml-a1/own"));
}

TEST_F(ClusterEvents, AreChosenByClusterAndKind) {
  topic("fairlead-system", "by-title", R"({"clusters": ["ML"]})");
  topic("fairlead-system", "by-object", R"({"clusters": ["ml-a1"]})");
  topic("fairlead-system", "another", R"({"clusters": ["other"]})");
  topic("fairlead-system", "by-kind", R"({"kinds": ["InstanceFailed"]})");
  topic("fairlead-system", "another-kind", R"({"kinds": ["ClusterStatus"]})");
  EXPECT_TRUE(go(event("a", "Warn")));
  EXPECT_THAT(told(), UnorderedElementsAre("fairlead-system/by-title", "fairlead-system/by-object", "fairlead-system/by-kind"));
}

// Each form is a letter of its own; levels and kinds choose among the first alone.
TEST_F(ClusterEvents, ComeInTheFormsThatATopicAsksFor) {
  topic("fairlead-system", "states", R"({"detailTypes": ["ClusterStateChange"]})");
  topic("fairlead-system", "health", R"({"detailTypes": ["NodeHealth"], "levels": ["Error"]})");
  topic("fairlead-system", "all", R"({"detailTypes": ["ClusterEvent", "ClusterStateChange", "NodeHealth"], "levels": ["Info", "Warn", "Error"]})");
  const auto failed = event("a", "Error");  // InstanceFailed: of the first form alone
  EXPECT_TRUE(go(failed));
  EXPECT_THAT(told(), UnorderedElementsAre("fairlead-system/all"));
  const auto change = [&](const kube::ObjectKey& key, const char* kind, const char* metadata) {
    Json object = api.all("clusterevents").at(key);
    object.child("spec").set("kind", kind).set("metadata", *kube::parse_json(metadata));
    ASSERT_TRUE(api.put(api::kClusterEvents, object));
  };
  const auto envelopes = [&] {
    std::map<std::string, Json> out;
    for (const auto& [key, one] : api.all("notifications")) out[one["spec"]["topic"].string() + " " + one["spec"]["event"]["envelope"]["detail-type"].string()] = one["spec"]["event"];
    api.all("notifications").clear();
    return out;
  };
  envelopes();
  const auto state = event("b", "Info");
  change(state, "ClusterStatus", R"({"clusterStatus": "InService"})");
  EXPECT_TRUE(go(state));
  auto letters = envelopes();
  ASSERT_EQ(letters.size(), 3u);
  const Json told_state = letters.at("states SageMaker HyperPod Cluster State Change");
  EXPECT_EQ(told_state["summary"].string(), "Cluster ML is InService");
  const Json& detail = told_state["envelope"]["detail"];
  EXPECT_EQ(detail["ClusterStatus"].string(), "InService");
  EXPECT_TRUE(detail["ClusterArn"].string().starts_with("arn:aws:sagemaker:eu-x-1:111122223333:cluster/")) << detail["ClusterArn"].string();
  EXPECT_EQ(detail["NodeRecovery"].string(), "Automatic");
  EXPECT_NE(letters.at("all SageMaker HyperPod Cluster Event")["envelope"]["id"], letters.at("all SageMaker HyperPod Cluster State Change")["envelope"]["id"]);
  for (const auto& [kind, metadata, status, repair, reason] : {std::tuple("InstanceNotReady", R"({"failureMessage": "its kubelet is silent"})", "Unhealthy", "None", "its kubelet is silent"),
                                                               {"RebootStarted", R"({"repairAction": "Reboot", "healthReason": "label sagemaker.amazonaws.com/node-health-status=x"})", "Unhealthy", "Reboot", "label sagemaker.amazonaws.com/node-health-status=x"},
                                                               {"DeepHealthCheckFailed", R"({"failureMessage": "GPU 3 is gone"})", "Unhealthy", "Replace", "GPU 3 is gone"},
                                                               {"DeepHealthCheckPassed", "{}", "Healthy", "None", "Instance i-1 of group gpu has failed"}}) {
    SCOPED_TRACE(kind);
    const auto key = event(std::string("h") + kind, "Info");
    change(key, kind, metadata);
    EXPECT_TRUE(go(key));
    letters = envelopes();
    ASSERT_EQ(letters.size(), 3u) << "both forms to one topic, one to the other";
    const Json& health = letters.at("health SageMaker HyperPod Cluster Node Health Event")["envelope"]["detail"];
    EXPECT_EQ(health["InstanceId"].string(), "i-1");
    EXPECT_EQ(health["HealthSummary"]["HealthStatus"].string(), status);
    EXPECT_EQ(health["HealthSummary"]["RepairAction"].string(), repair);
    EXPECT_EQ(health["HealthSummary"]["HealthStatusReason"].string(), reason);
  }
  // A reboot that a person asked for says nothing of health.
  const auto asked = event("c", "Info");
  change(asked, "RebootStarted", "{}");
  EXPECT_TRUE(go(asked));
  EXPECT_EQ(envelopes().size(), 1u);
}

TEST_F(ClusterEvents, OfBeforeATopicWasThereAreNotToldIt) {
  const auto old = event("a", "Error", "ml-a1", "2026-11-26T11:59:59Z");
  topic("fairlead-system", "all", "{}");
  EXPECT_TRUE(go(old));
  EXPECT_THAT(told(), IsEmpty());
  EXPECT_FALSE(marked(old));
}

TEST_F(ClusterEvents, OfAClusterThatIsGoneAreToldNobody) {
  topic("fairlead-system", "all", "{}");
  const auto key = event("a", "Error");
  api.all("clusters").erase({"", "ml-a1"});
  EXPECT_TRUE(go(key));
  put(api::kClusters, R"({"metadata": {"name": "ml-a1", "uid": "u9"}, "spec": {"instanceGroups": []}})");
  EXPECT_TRUE(go(key));
  EXPECT_THAT(told(), IsEmpty());
}

// A death between the Notification and the mark makes the same one again, not another.
TEST_F(ClusterEvents, ADeathInBetweenTellsNothingTwice) {
  topic("fairlead-system", "all", "{}");
  const auto key = event("a", "Error");
  EXPECT_TRUE(go(key));
  Json unmarked = api.all("clusterevents").at(key);
  unmarked.child("metadata").child("annotations").erase("fairlead.dev/notified");
  ASSERT_TRUE(api.put(api::kClusterEvents, unmarked));
  EXPECT_TRUE(go(key));
  EXPECT_EQ(told().size(), 1u);
  EXPECT_TRUE(marked(key));
}

TEST_F(ClusterEvents, ComeAsThoseOfEventBridgeWithTheFailuresWords) {
  topic("fairlead-system", "all", "{}");
  EXPECT_TRUE(go(event("0f3ab7d2-1111-4222-8333-944455556666", "Error")));
  const Json stored = api.all("notifications").begin()->second;
  const auto event = read_event(stored["spec"]["event"]);
  ASSERT_TRUE(event) << event.error().message;
  EXPECT_EQ(event->type, EventType::ClusterEvent);
  EXPECT_EQ(event_json(*event), stored["spec"]["event"]) << "read and written it is the same";
  const Post post = render_webhook(*event, "0123456789abcdef", *parse_time("2026-11-26T12:31:00Z"));
  const auto body = kube::parse_json(post.body);
  ASSERT_TRUE(body);
  EXPECT_EQ((*body)["detail-type"].string(), "SageMaker HyperPod Cluster Event");
  EXPECT_EQ((*body)["source"].string(), "aws.sagemaker");
  EXPECT_EQ((*body)["account"].string(), "111122223333");
  EXPECT_EQ((*body)["region"].string(), "eu-x-1");
  EXPECT_EQ((*body)["time"].string(), "2026-11-26T12:30:00Z");
  const std::string arn = "arn:aws:sagemaker:eu-x-1:111122223333:cluster/" + api::entity_id("u1");
  EXPECT_EQ((*body)["resources"].items().at(0).string(), arn);
  const Json& details = (*body)["detail"]["EventDetails"];
  EXPECT_EQ(details["ClusterArn"].string(), arn);
  EXPECT_EQ(details["ClusterName"].string(), "ML");
  EXPECT_EQ(details["EventId"].string(), "0f3ab7d2-1111-4222-8333-944455556666");
  EXPECT_EQ(details["EventLevel"].string(), "Error");
  EXPECT_EQ(details["InstanceId"].string(), "i-1");
  EXPECT_EQ(details["EventDetails"]["EventMetadata"]["Instance"]["FailureMessage"].string(), "on_create.sh: it ended with 3");
  EXPECT_NE((*body)["id"].string(), details["EventId"].string());
  EXPECT_THAT(summary(*event), HasSubstr("Cluster ML: ERROR: Instance i-1 of group gpu has failed"));
}

// What cannot be made for one topic for good keeps no other from it.
TEST_F(ClusterEvents, ARefusedTopicHoldsUpNoOther) {
  topic("fairlead-system", "all", "{}");
  topic("cluster-ml-a1", "own", "{}");
  struct Refusing final : kube::BareApi {
    explicit Refusing(kube::KubeApi& to) : api(to) {}
    kube::KubeApi& api;
    Code code = Code::Forbidden;
    Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api.get(resource, key); }
    Result<Json> create(const kube::Resource& resource, const Json& object) override {
      if (object["spec"]["topic"].string() == "own") return fail(code, "exceeded quota");
      return api.create(resource, object);
    }
    Result<Json> update(const kube::Resource& resource, const Json& object) override { return api.update(resource, object); }
  } refusing(checked);
  ClusterEventController other(refusing, {});
  other.start(api);
  const auto key = event("a", "Error");
  EXPECT_TRUE(other.reconcile(key));
  EXPECT_THAT(told(), UnorderedElementsAre("fairlead-system/all"));
  EXPECT_TRUE(marked(key));
  refusing.code = Code::Unavailable;
  const auto later = event("b", "Error");
  EXPECT_FALSE(other.reconcile(later)) << "it is tried again";
  EXPECT_FALSE(marked(later));
}

}  // namespace
}  // namespace fairlead::notify
