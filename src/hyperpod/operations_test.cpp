// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/operations.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "hyperpod/paging.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json json(const std::string& text) { return *kube::parse_json(text); }
// Every answer has to be what the model says: SDKs of typed languages believe it.
void expect_shape(const TestSite::Said& said, const std::string& operation) {
  const auto done = TestSite::model().check(TestSite::model().shape(TestSite::model().operation(operation)->output), said.json);
  EXPECT_TRUE(done) << operation << ": " << done.error().message << "\n" << said.body;
}

struct Governed : testing::Test {
  TestSite site;
  Credentials ada = site.user("ada", {everything});
  std::string cluster = site.arn(site.cluster("demo", "demo"));

  Json quota_input(const std::string& name, const std::string& team) const {
    return Json::object({{"Name", name}, {"ClusterArn", cluster}, {"Description", "für " + team},
                         {"ComputeQuotaConfig", json(R"({"ComputeQuotaResources": [{"InstanceType": "ml.g5.xlarge", "Count": 2}, {"InstanceType": "ml.p5.48xlarge", "Accelerators": 4, "VCpu": 10.5, "MemoryInGiB": 64}], "ResourceSharingConfig": {"Strategy": "LendAndBorrow", "BorrowLimit": 100}, "PreemptTeamTasks": "Never"})")},
                         {"ComputeQuotaTarget", Json::object({{"TeamName", team}, {"FairShareWeight", 30}})}, {"ActivationState", "Enabled"}, {"Tags", json(R"([{"Key": "owner", "Value": "ml"}])")}});
  }
  std::string quota(const std::string& name, const std::string& team) {
    const auto made = site.call(ada, "CreateComputeQuota", quota_input(name, team));
    EXPECT_EQ(made.code, "") << made.message;
    expect_shape(made, "CreateComputeQuota");
    return made.json["ComputeQuotaId"].string();
  }
  // As the API server and the controller would: another version, and what was decided about it.
  void decided(const kube::Resource& resource, const std::string& name, const std::string& status, const std::string& message, std::int64_t generation) {
    Json object = *site.api.get(resource, {"", name});
    object.child("metadata").set("generation", generation);
    kube::set_condition(object, {"Accepted", status, "Reason", message}, site.clock.now());
    ASSERT_TRUE(site.api.put(resource, object));
  }
};

TEST_F(Governed, AQuotaIsAnObjectAndBack) {
  const std::string id = quota("Vision-Quota", "vision");
  EXPECT_THAT(id, testing::MatchesRegex("[a-z0-9]{12}"));
  ASSERT_EQ(site.api.all("computequotas").size(), 1U);
  const Json object = site.api.all("computequotas").begin()->second;
  EXPECT_EQ(object["spec"], json(R"({"computeQuotaResources": [{"instanceType": "ml.g5.xlarge", "count": 2}, {"instanceType": "ml.p5.48xlarge", "accelerators": 4, "vCpu": 10.5, "memoryInGiB": 64}], "resourceSharingConfig": {"strategy": "LendAndBorrow", "borrowLimit": 100},
    "preemptTeamTasks": "Never", "teamName": "vision", "fairShareWeight": 30, "activationState": "Enabled"})"));
  const auto said = site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}}));
  expect_shape(said, "DescribeComputeQuota");
  const Json wanted = quota_input("Vision-Quota", "vision");
  for (const char* const field : {"Name", "ClusterArn", "Description", "ComputeQuotaConfig", "ComputeQuotaTarget", "ActivationState"}) EXPECT_EQ(said.json[field], wanted[field]) << field;
  EXPECT_EQ(said.json["Status"].string(), "Creating");
  EXPECT_EQ(said.json["ComputeQuotaVersion"].integer(), 1);
  EXPECT_EQ(said.json["CreatedBy"]["IamIdentity"]["Arn"].string(), "arn:aws:iam::111122223333:user/ada");
  decided(api::teams::quotas, kube::name_of(object), "True", "", 1);
  EXPECT_EQ(site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}})).json["Status"].string(), "Created");
  decided(api::teams::quotas, kube::name_of(object), "False", "9 wanted, 0 of 4 are left", 1);
  const auto failed = site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}}));
  EXPECT_EQ(failed.json["Status"].string(), "CreateFailed");
  EXPECT_EQ(failed.json["FailureReason"].string(), "9 wanted, 0 of 4 are left");
}

TEST_F(Governed, OnlyTheNewestVersionIsChanged) {
  const std::string id = quota("vision", "vision");
  decided(api::teams::quotas, "vision", "True", "", 3);
  Json change = Json::object({{"ComputeQuotaId", id}, {"TargetVersion", 2}, {"ActivationState", "Disabled"}});
  const auto stale = site.call(ada, "UpdateComputeQuota", change);
  EXPECT_EQ(stale.code, "ConflictException");
  EXPECT_THAT(stale.message, HasSubstr("TargetVersion 2 is not the current version, 3"));
  change.set("TargetVersion", 3);
  const auto done = site.call(ada, "UpdateComputeQuota", change);
  expect_shape(done, "UpdateComputeQuota");
  const Json spec = site.api.get(api::teams::quotas, {"", "vision"})->operator[]("spec");
  EXPECT_EQ(spec["activationState"].string(), "Disabled");
  EXPECT_EQ(spec["computeQuotaResources"].items().size(), 2U);  // what was not said stays
  Json other = Json::object({{"ComputeQuotaId", id}, {"TargetVersion", 3}, {"ComputeQuotaTarget", json(R"({"TeamName": "speech"})")}});
  EXPECT_THAT(site.call(ada, "UpdateComputeQuota", other).message, HasSubstr("does not change"));
  const auto described = site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}}));
  EXPECT_EQ(described.json["LastModifiedBy"]["IamIdentity"]["Arn"].string(), "arn:aws:iam::111122223333:user/ada");
  EXPECT_EQ(site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}, {"ComputeQuotaVersion", 1}})).code, "ResourceNotFound");
}

// What a schedule or another field of ours says is not lost by a client that does not know it.
TEST_F(Governed, FieldsThatAwsDoesNotHaveStay) {
  const std::string id = quota("vision", "vision");
  Json object = *site.api.get(api::teams::quotas, {"", "vision"});
  object.child("spec").set("schedule", json(R"([{"name": "night", "computeQuotaResources": []}])"));
  ASSERT_TRUE(site.api.put(api::teams::quotas, object));
  EXPECT_EQ(site.call(ada, "UpdateComputeQuota", Json::object({{"ComputeQuotaId", id}, {"TargetVersion", 1}, {"ComputeQuotaConfig", json(R"({"PreemptTeamTasks": "LowerPriority"})")}})).code, "");
  const Json spec = site.api.get(api::teams::quotas, {"", "vision"})->operator[]("spec");
  EXPECT_EQ(spec["schedule"].items().size(), 1U);
  EXPECT_FALSE(spec.has("computeQuotaResources"));  // a configuration is replaced as a whole
  expect_shape(site.call(ada, "DescribeComputeQuota", Json::object({{"ComputeQuotaId", id}})), "DescribeComputeQuota");
}

TEST_F(Governed, NamesTeamsAndClustersAreChecked) {
  quota("vision", "vision");
  EXPECT_EQ(site.call(ada, "CreateComputeQuota", quota_input("vision", "speech")).code, "ConflictException");
  EXPECT_THAT(site.call(ada, "CreateComputeQuota", quota_input("other", "vision")).message, HasSubstr("Team vision has a compute quota already"));
  Json nowhere = quota_input("x", "x");
  nowhere.set("ClusterArn", "arn:aws:sagemaker:fairlead-1:111122223333:cluster/abcdef012345");
  const auto said = site.call(ada, "CreateComputeQuota", nowhere);
  EXPECT_EQ(said.code, "ResourceNotFound");
  EXPECT_THAT(said.message, HasSubstr("not found"));
  Json twice = quota_input("y", "y");
  twice.set("Tags", json(R"([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}])"));
  EXPECT_EQ(site.call(ada, "CreateComputeQuota", twice).code, "ValidationException");
  twice.set("Tags", json(R"([{"Key": "AWS:x", "Value": "1"}])"));
  EXPECT_THAT(site.call(ada, "CreateComputeQuota", twice).message, HasSubstr("reserved"));
  EXPECT_EQ(site.api.all("computequotas").size(), 1U);
}

TEST_F(Governed, ASiteHasOnePolicy) {
  const Json input = Json::object({{"Name", "policy"}, {"ClusterArn", cluster}, {"SchedulerConfig", json(R"({"PriorityClasses": [{"Name": "training", "Weight": 90}], "FairShare": "Enabled", "IdleResourceSharing": "Enabled"})")}});
  const auto made = site.call(ada, "CreateClusterSchedulerConfig", input);
  expect_shape(made, "CreateClusterSchedulerConfig");
  EXPECT_EQ(site.api.get(api::teams::configs, {"", "policy"})->operator[]("spec"), json(R"({"priorityClasses": [{"name": "training", "weight": 90}], "fairShare": "Enabled", "idleResourceSharing": "Enabled"})"));
  Json second = input;
  second.set("Name", "second");
  EXPECT_EQ(site.call(ada, "CreateClusterSchedulerConfig", second).code, "ConflictException");
  const Json id = Json::object({{"ClusterSchedulerConfigId", made.json["ClusterSchedulerConfigId"]}});
  const auto said = site.call(ada, "DescribeClusterSchedulerConfig", id);
  expect_shape(said, "DescribeClusterSchedulerConfig");
  EXPECT_EQ(said.json["SchedulerConfig"], input["SchedulerConfig"]);
  expect_shape(site.call(ada, "ListClusterSchedulerConfigs"), "ListClusterSchedulerConfigs");
  EXPECT_EQ(site.call(ada, "DeleteClusterSchedulerConfig", id).body, "{}");
  EXPECT_EQ(site.call(ada, "DeleteClusterSchedulerConfig", id).code, "ResourceNotFound");
  EXPECT_TRUE(site.api.all("schedulerconfigs").empty());
}

TEST_F(Governed, WhatPoliciesAllowIsAllThatIsDone) {
  const std::string vision = quota("vision", "vision"), speech = quota("speech", "speech");
  const std::string arn = "arn:aws:sagemaker:fairlead-1:111122223333:compute-quota/";
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sagemaker:DescribeComputeQuota", "Resource": ")" + arn + vision + R"("}, {"Effect": "Allow", "Action": "sagemaker:*ComputeQuota", "Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/owner": "bob"}}}]})"});
  const auto code = [&](const char* operation, const std::string& id) { return site.call(bob, operation, Json::object({{"ComputeQuotaId", id}})).code; };
  EXPECT_EQ(code("DescribeComputeQuota", vision), "");
  EXPECT_EQ(code("DescribeComputeQuota", speech), "AccessDeniedException");
  EXPECT_EQ(code("DeleteComputeQuota", vision), "AccessDeniedException");
  // Whether it is there is none of his business.
  EXPECT_EQ(code("DescribeComputeQuota", "000000000000"), "AccessDeniedException");
  EXPECT_EQ(site.call(bob, "ListComputeQuotas").code, "AccessDeniedException");
  EXPECT_EQ(site.call(ada, "AddTags", Json::object({{"ResourceArn", arn + speech}, {"Tags", json(R"([{"Key": "owner", "Value": "bob"}])")}})).code, "");
  EXPECT_EQ(code("DescribeComputeQuota", speech), "");
  EXPECT_EQ(code("DeleteComputeQuota", speech), "");
  const auto cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:CreateComputeQuota", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/owner": "cid"}}}})"});
  EXPECT_EQ(site.call(cid, "CreateComputeQuota", quota_input("c", "c")).code, "AccessDeniedException");
  Json his = quota_input("c", "c");
  his.set("Tags", json(R"([{"Key": "owner", "Value": "cid"}])"));
  // Tags at creation need the right to tag, too.
  EXPECT_THAT(site.call(cid, "CreateComputeQuota", his).message, HasSubstr("sagemaker:AddTags"));
  EXPECT_EQ(site.api.all("computequotas").size(), 1U);
}

// A null is as if it were not there: it takes nothing away.
TEST_F(Governed, NullsChangeNothing) {
  const std::string id = quota("vision", "vision");
  const Json before = site.api.get(api::teams::quotas, {"", "vision"})->operator[]("spec");
  EXPECT_EQ(site.call(ada, "UpdateComputeQuota", json(R"({"ComputeQuotaId": ")" + id + R"(", "TargetVersion": 1, "ComputeQuotaConfig": null, "ComputeQuotaTarget": null, "ActivationState": null, "Description": null})")).code, "");
  EXPECT_EQ(site.api.get(api::teams::quotas, {"", "vision"})->operator[]("spec"), before);
  EXPECT_EQ(site.call(ada, "ListComputeQuotas", json(R"({"Status": null, "ClusterArn": null, "NextToken": null})")).json["ComputeQuotaSummaries"].items().size(), 1U);
  EXPECT_EQ(site.call(ada, "ListClusters", json(R"({"TrainingPlanArn": null})")).json["ClusterSummaries"].items().size(), 1U);
}

// Conditions of policies know no case: a second tag must not stand for the first.
TEST_F(Governed, TagsThatDifferInCaseAreRefused) {
  const std::string arn = "arn:aws:sagemaker:fairlead-1:111122223333:compute-quota/" + quota("vision", "vision");
  const auto add = [&](const Credentials& who, const char* tags) { return site.call(who, "AddTags", Json::object({{"ResourceArn", arn}, {"Tags", json(tags)}})); };
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:AddTags", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/Team": "blue"}}}})"});
  EXPECT_EQ(add(bob, R"([{"Key": "Team", "Value": "blue"}])").code, "");
  EXPECT_EQ(add(bob, R"([{"Key": "Team", "Value": "red"}])").code, "AccessDeniedException");
  EXPECT_THAT(add(bob, R"([{"Key": "Team", "Value": "red"}, {"Key": "team", "Value": "blue"}])").message, HasSubstr("differ only in case"));
  EXPECT_THAT(add(bob, R"([{"Key": "team", "Value": "blue"}])").message, HasSubstr("differ only in case"));
  const auto cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "*", "Resource": "*", "Condition": {"StringEquals": {"sagemaker:ResourceTag/team": "blue"}}}]})"});
  EXPECT_EQ(site.call(cid, "ListTags", Json::object({{"ResourceArn", arn}})).code, "AccessDeniedException");
}

// Of two that were made at once the older stays, whoever made it and by what means.
TEST_F(Governed, OfTwoQuotasOfATeamTheOlderStays) {
  Racing racing(site.api);
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(racing)), site.clock, FrontOptions{.per_second = 0, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  racing.before_create = [&] { ASSERT_TRUE(site.api.create(api::teams::quotas, Json::object({{"metadata", Json::object({{"name", "a-first"}})}, {"spec", Json::object({{"teamName", "vision"}})}}))); };
  EXPECT_THAT(site.call(ada, "CreateComputeQuota", quota_input("late", "vision")).message, HasSubstr("Team vision has a compute quota already: a-first"));
  EXPECT_EQ(site.api.all("computequotas").size(), 1U);
}

TEST_F(Governed, TagsAreOfAllKinds) {
  const std::string id = quota("vision", "vision");
  for (const std::string& arn : {"arn:aws:sagemaker:fairlead-1:111122223333:compute-quota/" + id, cluster}) {
    const Json of = Json::object({{"ResourceArn", arn}});
    Json add = of;
    add.set("Tags", json(R"([{"Key": "cost", "Value": "7"}, {"Key": "Größe", "Value": "XL"}])"));
    const auto added = site.call(ada, "AddTags", add);
    expect_shape(added, "AddTags");
    EXPECT_EQ(site.call(ada, "AddTags", add).json, added.json);  // again: the same
    Json drop = of;
    drop.set("TagKeys", json(R"(["cost", "owner", "none"])"));
    EXPECT_EQ(site.call(ada, "DeleteTags", drop).code, "");
    const auto listed = site.call(ada, "ListTags", of);
    expect_shape(listed, "ListTags");
    EXPECT_EQ(listed.json["Tags"], json(R"([{"Key": "Größe", "Value": "XL"}])"));
    Json many = of;
    many.set("Tags", Json::array());
    for (int i = 0; i < 50; ++i) many.child("Tags").push(Json::object({{"Key", fmt::format("k{}", i)}, {"Value", ""}}));
    EXPECT_THAT(site.call(ada, "AddTags", many).message, HasSubstr("at most 50 tags"));
  }
  const auto code = [&](const char* arn) { return site.call(ada, "ListTags", Json::object({{"ResourceArn", arn}})).code; };
  EXPECT_EQ(code("arn:aws:sagemaker:fairlead-1:111122223333:training-job/x"), "ResourceNotFound");
  EXPECT_EQ(code("arn:aws:sagemaker:fairlead-1:111122223333:compute-quota/000000000000"), "ResourceNotFound");
  EXPECT_EQ(code("arn:aws:sagemaker:fairlead-1:999900001111:compute-quota/000000000000"), "AccessDeniedException");  // another account's: its owner would have to allow it, too
}

struct Clusters : testing::Test {
  TestSite site;
  Credentials ada = site.user("ada", {everything});
  void pod(const std::string& role, const std::string& name, const std::string& node, const char* phase = "Running", bool ready = true) {
    Json object = Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "demo"}, {"labels", Json::object({{"fairlead.dev/slurm-cluster", "demo"}, {"fairlead.dev/slurm-role", role}})}})},
                                {"spec", Json::object({{"nodeName", node}})},
                                {"status", Json::object({{"phase", phase}, {"startTime", "2026-11-25T11:00:00Z"}, {"podIPs", json(R"([{"ip": "10.78.1.2"}, {"ip": "fd00::2"}])")}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}})})}})}});
    ASSERT_TRUE(site.api.create(kube::resources::pods, object));
  }
  void node(const std::string& name, const char* type = "ml.g5.xlarge") {
    ASSERT_TRUE(site.api.create(kube::resources::nodes, Json::object({{"metadata", Json::object({{"name", name}, {"labels", Json::object({{"node.kubernetes.io/instance-type", type}})}})}})));
  }
};

TEST_F(Clusters, ASlurmClusterIsOneOfHyperPod) {
  const Json demo = site.cluster("demo", "demo");
  for (const char* const name : {"n0", "n1", "n2"}) node(name);
  pod("controller", "controller-0", "n0");
  pod("login", "login-0", "n0");
  pod("worker", "worker-0", "n1");
  pod("worker", "worker-1", "n2", "Pending", false);
  pod("accounting", "accounting-0", "n0");
  const auto listed = site.call(ada, "ListClusters");
  expect_shape(listed, "ListClusters");
  EXPECT_EQ(listed.json["ClusterSummaries"].items().at(0)["ClusterArn"].string(), site.arn(demo));
  for (const std::string& name : {std::string("demo"), site.arn(demo)}) {
    const auto said = site.call(ada, "DescribeCluster", Json::object({{"ClusterName", name}}));
    expect_shape(said, "DescribeCluster");
    EXPECT_EQ(said.json["ClusterStatus"].string(), "InService");
    const auto& groups = said.json["InstanceGroups"].items();
    ASSERT_EQ(groups.size(), 3U);
    EXPECT_EQ(groups[0]["SlurmConfig"]["NodeType"].string(), "Controller");
    EXPECT_EQ(groups[0]["InstanceType"].string(), "ml.g5.xlarge");
    EXPECT_EQ(groups[2]["InstanceGroupName"].string(), "worker");
    EXPECT_EQ(groups[2]["CurrentCount"].integer(), 1);
    EXPECT_EQ(groups[2]["TargetCount"].integer(), 2);
    EXPECT_EQ(groups[2]["Status"].string(), "Degraded");
  }
  const auto nodes = site.call(ada, "ListClusterNodes", Json::object({{"ClusterName", "demo"}, {"SortBy", "NAME"}}));
  expect_shape(nodes, "ListClusterNodes");
  std::vector<std::string> names, states;
  std::set<std::string> ids;
  for (const Json& one : nodes.json["ClusterNodeSummaries"].items()) {
    names.push_back(one["NodeLogicalId"].string());
    states.push_back(one["InstanceStatus"]["Status"].string());
    ids.insert(one["InstanceId"].string());
  }
  EXPECT_THAT(names, ElementsAre("controller-0", "login-0", "worker-0", "worker-1"));
  EXPECT_THAT(states, ElementsAre("Running", "Running", "Running", "Pending"));
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_EQ(site.call(ada, "ListClusterNodes", Json::object({{"ClusterName", "demo"}, {"InstanceGroupNameContains", "work"}})).json["ClusterNodeSummaries"].items().size(), 2U);
  for (const std::string& id : ids) {
    const auto one = site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}, {"NodeId", id}}));
    expect_shape(one, "DescribeClusterNode");
    EXPECT_EQ(one.json["NodeDetails"]["InstanceId"].string(), id);
    EXPECT_EQ(one.json["NodeDetails"]["PrivatePrimaryIp"].string(), "10.78.1.2");
  }
  EXPECT_EQ(site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}, {"NodeLogicalId", "worker-1"}})).json["NodeDetails"]["InstanceStatus"]["Status"].string(), "Pending");
  EXPECT_EQ(site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}, {"NodeId", "i-00000000"}})).code, "ResourceNotFound");
  EXPECT_EQ(site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}})).code, "ValidationException");
  EXPECT_EQ(site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}, {"NodeId", "i-00000000"}, {"NodeLogicalId", "worker-1"}})).code, "ValidationException");
}

// What cannot be read is not told to be nothing: a set of workers that is missing from the answer would look well.
TEST_F(Clusters, WhatCannotBeReadIsAnError) {
  site.cluster("demo", "demo");
  Racing hurt(site.api);
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(hurt)), site.clock, FrontOptions{.per_second = 0, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  const Json demo = Json::object({{"ClusterName", "demo"}});
  EXPECT_EQ(site.call(ada, "DescribeCluster", demo).code, "");
  for (const char* const plural : {"nodesets", "pods"}) {
    hurt.unreadable = plural;
    EXPECT_EQ(site.call(ada, "DescribeCluster", demo).code, "ServiceUnavailable") << plural;
  }
}

TEST_F(Clusters, AnInstanceKeepsItsIdOnItsMachine) {
  site.cluster("demo", "demo");
  node("n0");
  node("n1");
  pod("worker", "worker-0", "n0");
  const auto id = [&] { return site.call(ada, "DescribeClusterNode", Json::object({{"ClusterName", "demo"}, {"NodeLogicalId", "worker-0"}})).json["NodeDetails"]["InstanceId"].string(); };
  const std::string first = id();
  site.api.all("pods").clear();
  pod("worker", "worker-0", "n0");  // started again
  EXPECT_EQ(id(), first);
  site.api.all("pods").clear();
  pod("worker", "worker-0", "n1");  // on another machine
  EXPECT_NE(id(), first);
}

TEST_F(Clusters, TwoOfOneNameAreToldApartByTheirArns) {
  const Json one = site.cluster("a", "train"), two = site.cluster("b", "train", false);
  EXPECT_THAT(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", "train"}})).message, HasSubstr("in namespaces a and b"));
  EXPECT_EQ(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", site.arn(one)}})).json["ClusterStatus"].string(), "InService");
  EXPECT_EQ(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", site.arn(two)}})).json["ClusterStatus"].string(), "Creating");
  EXPECT_EQ(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", "none"}})).code, "ResourceNotFound");
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:*", "Resource": ")" + site.arn(one) + R"("}})"});
  EXPECT_EQ(site.call(bob, "DescribeCluster", Json::object({{"ClusterName", site.arn(one)}})).code, "");
  EXPECT_EQ(site.call(bob, "DescribeCluster", Json::object({{"ClusterName", site.arn(two)}})).code, "AccessDeniedException");
  // Whether there is one of this name is not to be seen from a refusal.
  site.cluster("c", "prod");
  for (const char* const operation : {"DescribeCluster", "ListClusterNodes"}) {
    const std::string there = site.call(bob, operation, Json::object({{"ClusterName", "prod"}})).message, none = site.call(bob, operation, Json::object({{"ClusterName", "none"}})).message;
    EXPECT_EQ(there, "User: arn:aws:iam::111122223333:user/bob is not authorized to perform: sagemaker:" + std::string(operation) + " on resource: prod");
    EXPECT_EQ(none, "User: arn:aws:iam::111122223333:user/bob is not authorized to perform: sagemaker:" + std::string(operation) + " on resource: none");
  }
}

// Whatever comes and goes between pages: what is there all the time is seen once, in order, and the reading ends.
TEST(Paging, WhatStaysIsSeenOnce) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(300, 100'000); ++seed) {
    Rng rng(seed);
    const auto entry = [&](const std::string& id) { return Entry{.name = fmt::format("n{}", rng.below(4)), .id = id, .created = Instant(std::chrono::seconds(rng.below(5))), .status = rng.below(2) == 0 ? "A" : "B", .cluster = {}}; };
    std::vector<Entry> stays, comes;
    for (std::uint64_t i = rng.below(12); i > 0; --i) stays.push_back(entry(fmt::format("s{}", i)));
    const char* const orders[] = {"CREATION_TIME", "Name", "Status"};
    Json input = Json::object({{"SortBy", orders[rng.below(3)]}, {"MaxResults", static_cast<std::int64_t>(1 + rng.below(4))}});
    if (rng.below(2) == 0) input.set("SortOrder", "Descending");
    std::vector<std::string> seen, wanted;
    int pages = 0;
    for (std::string token = "-"; !token.empty(); ++pages) {
      ASSERT_LT(pages, 200) << seed;
      if (token != "-") input.set("NextToken", token);
      std::vector<Entry> now = stays;
      comes.clear();
      for (std::uint64_t i = rng.below(4); i > 0; --i) now.push_back(entry(fmt::format("t{}-{}", pages, i)));
      for (std::size_t i = now.size(); i > 1; --i) std::swap(now[i - 1], now[rng.below(i)]);
      const auto page = page_of(now, input, [](const Entry& one) { return Json(one.id); });
      ASSERT_TRUE(page) << seed;
      ASSERT_LE(page->items.items().size(), static_cast<std::size_t>(input["MaxResults"].integer()));
      for (const Json& one : page->items.items())
        if (one.string().starts_with("s")) seen.push_back(one.string());
      token = page->next;
    }
    input.erase("NextToken");
    input.set("MaxResults", 100);
    const auto whole = page_of(stays, input, [](const Entry& one) { return Json(one.id); });
    for (const Json& one : whole->items.items()) wanted.push_back(one.string());
    ASSERT_EQ(seen, wanted) << seed;
  }
}

TEST(Paging, ATokenIsOfItsQuestion) {
  std::vector<Entry> entries;
  for (int i = 0; i < 5; ++i) entries.push_back({.name = fmt::format("n{}", i), .id = fmt::format("{}", i), .created = {}, .status = {}, .cluster = {}});
  Json input = Json::object({{"MaxResults", 2}, {"NameContains", "n"}});
  const std::string token = page_of(entries, input, [](const Entry& one) { return Json(one.id); })->next;
  input.set("NextToken", token).set("MaxResults", 3);  // another size of a page is the same question
  EXPECT_EQ(page_of(entries, input, [](const Entry& one) { return Json(one.id); })->items, *kube::parse_json(R"(["2", "3", "4"])"));
  input.set("NameContains", "n1");
  EXPECT_EQ(page_of(entries, input, [](const Entry& one) { return Json(one.id); }).error().code, "ValidationException");
  for (const char* const bad : {"x", "AAAA", "W10=", "WzEsMiwzLDRd"}) {
    input.set("NextToken", bad);
    EXPECT_EQ(page_of(entries, input, [](const Entry& one) { return Json(one.id); }).error().code, "ValidationException") << bad;
  }
}

TEST(ClusterIndex, KnowsWhatIsThere) {
  ClusterIndex index;
  const auto cluster = [](const char* space, const char* name, const char* uid) { return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", space}, {"uid", uid}})}}); };
  index.put(cluster("a", "x", "1"));
  index.put(cluster("b", "x", "2"));
  index.put(cluster("a", "y", "3"));
  EXPECT_EQ(index.named("x").size(), 2U);
  EXPECT_EQ(index.with_id(entity_id("2"))->key.space, "b");
  EXPECT_EQ(index.in_space("a"), 2U);
  index.put(cluster("b", "x", "4"));  // made anew
  EXPECT_FALSE(index.with_id(entity_id("2")));
  EXPECT_EQ(index.with_id(entity_id("4"))->name, "x");
  index.drop({"a", "x"});
  index.drop({"a", "x"});
  EXPECT_EQ(index.named("x").size(), 1U);
  EXPECT_EQ(index.in_space("a"), 1U);
  index.drop({"a", "y"});
  index.drop({"b", "x"});
  EXPECT_TRUE(index.all().empty());
  EXPECT_EQ(index.in_space("a"), 0U);
}

TEST(Entity, NamesOfKubernetes) {
  EXPECT_EQ(object_name_of("vision"), "vision");
  std::set<std::string> names;
  for (const char* const name : {"Vision", "VISION", "vision", "v", "V", "a-b", "A-b"}) {
    const std::string object = object_name_of(name);
    EXPECT_TRUE(names.insert(object).second) << name;
    EXPECT_THAT(object, testing::MatchesRegex("[a-z0-9]([-a-z0-9.]*[a-z0-9])?")) << name;
  }
  EXPECT_LE(object_name_of(std::string(64, 'A')).size(), 63U);
  using api::identities::Type;
  names.clear();
  for (const char* const name : {"ada", "a.b", "a-b", "a_b", "a@b", "a+b", "a-", "-", "a"}) EXPECT_TRUE(names.insert(api::identities::object_name(Type::User, name)).second) << name;
  EXPECT_EQ(api::identities::object_name(Type::User, "Ada"), api::identities::object_name(Type::User, "ada"));  // names are unique without regard to case
  EXPECT_EQ(api::identities::object_name(Type::Role, "a.B"), api::identities::object_name(Type::Role, "A.b"));
}

}  // namespace
}  // namespace fairlead::hyperpod
