// SPDX-License-Identifier: Apache-2.0
// Operations on training plans, and clusters that name one, against the objects that they write.
#include <gmock/gmock.h>

#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class TrainingPlans : public testing::Test {
 protected:
  static constexpr const char* type = "ml.p5.4xlarge";
  TrainingPlans() {
    site.node_role("node");
    ada = site.user("ada", {everything});
  }
  void spare(const std::string& name) {
    Json node = Json::object({{"metadata", Json::object({{"name", name}, {"labels", Json::object({{api::kSpareLabel, "true"}, {"node.kubernetes.io/instance-type", type}})}})}, {"status", *kube::parse_json(R"({"capacity": {"cpu": "16", "memory": "256Gi", "nvidia.com/gpu": "1"}})")}});
    kube::set_condition(node, {"Ready", "True", "", ""}, site.clock.now());
    ASSERT_TRUE(site.api.create(kube::resources::nodes, node));
  }
  TestSite::Said call(const std::string& operation, const Json& input) { return call_as(ada, operation, input); }
  TestSite::Said call_as(const Credentials& who, const std::string& operation, const Json& input) {
    const auto said = site.call(who, operation, input);
    if (said.status == 200 && !site.model().operation(operation)->output.empty()) {
      const auto fits = site.model().check(site.model().shape(site.model().operation(operation)->output), said.json);
      EXPECT_TRUE(fits.has_value()) << operation << ": " << (fits ? "" : fits.error().message) << kube::print_json(said.json);
    }
    return said;
  }
  std::string why(const std::string& operation, const Json& input) {
    const auto said = call(operation, input);
    return said.code + ": " + said.message;
  }
  Json question(int count, int hours, Json more = Json::object()) const {
    Json out = Json::object({{"InstanceType", type}, {"InstanceCount", count}, {"DurationHours", hours}, {"TargetResources", Json::array({Json("hyperpod-cluster")})}});
    for (const auto& [key, value] : more.members()) out.set(key, value);
    return out;
  }
  std::string offer(int count, int hours, Json more = Json::object()) {
    const auto said = call("SearchTrainingPlanOfferings", question(count, hours, std::move(more)));
    EXPECT_EQ(said.status, 200) << said.body;
    return said.json["TrainingPlanOfferings"].items().empty() ? "" : said.json["TrainingPlanOfferings"].items()[0]["TrainingPlanOfferingId"].string();
  }
  static std::string arn(const std::string& name) { return "arn:aws:sagemaker:fairlead-1:111122223333:training-plan/" + name; }
  // As the controller does it.
  void decide(const std::string& object_name, bool granted = true) {
    Json object = site.api.all("trainingplans").at({"", object_name});
    const api::TrainingPlan plan = api::read_training_plan(object);
    Json status = Json::object();
    if (granted) status.set("granted", Json::object({{"instanceType", plan.type}, {"instanceCount", plan.count}})).set("startTime", print_time(*plan.start)).set("endTime", print_time(plan.end)).set("phase", "Active").set("instances", *kube::parse_json(R"({"kept": 2, "inUse": 1, "available": 1, "unhealthy": 0})"));
    else status.set("failed", true).set("phase", "Failed").set("message", "there is no room");
    object.set("status", std::move(status));
    ASSERT_TRUE(site.api.put(api::kTrainingPlans, object));
  }
  void plan(const std::string& name, int count, int hours, Json more = Json::object()) {
    const auto said = call("CreateTrainingPlan", Json::object({{"TrainingPlanName", name}, {"TrainingPlanOfferingId", offer(count, hours, std::move(more))}}));
    ASSERT_EQ(said.status, 200) << said.body;
    decide(api::plan_object_name(name));
  }
  double at(int hours) const { return epoch(site.clock.now() + std::chrono::hours(hours)); }
  Json cluster(const std::string& name, int count, const std::string& plan_arn_of, const char* of_type = type) const {
    Json gpu = Json::object({{"InstanceGroupName", "gpu"}, {"InstanceType", of_type}, {"InstanceCount", count}, {"ExecutionRole", "arn:aws:iam::111122223333:role/node"}, {"SlurmConfig", *kube::parse_json(R"({"NodeType": "Compute", "PartitionNames": ["train"]})")}});
    if (!plan_arn_of.empty()) gpu.set("TrainingPlanArn", plan_arn_of);
    Json head = *kube::parse_json(R"({"InstanceGroupName": "head", "InstanceType": "ml.c5.large", "InstanceCount": 1, "ExecutionRole": "arn:aws:iam::111122223333:role/node", "SlurmConfig": {"NodeType": "Controller"}})");
    return Json::object({{"ClusterName", name}, {"NodeProvisioningMode", "Continuous"}, {"InstanceGroups", Json::array({std::move(head), std::move(gpu)})}});
  }
  TestSite site;
  Credentials ada;
};

TEST_F(TrainingPlans, AreOfferedMadeAndTold) {
  spare("a"), spare("b");
  const auto found = call("SearchTrainingPlanOfferings", question(2, 36));
  ASSERT_EQ(found.json["TrainingPlanOfferings"].items().size(), 1u);
  const Json& offering = found.json["TrainingPlanOfferings"].items()[0];
  EXPECT_EQ(offering["UpfrontFee"].string(), "0");
  EXPECT_EQ(offering["DurationHours"].integer(), 36);
  EXPECT_EQ(offering["ReservedCapacityOfferings"].items()[0]["InstanceCount"].integer(), 2);
  EXPECT_EQ(offering["ReservedCapacityOfferings"].items()[0]["StartTime"].number(), at(0));
  const Json input = Json::object({{"TrainingPlanName", "Spring"}, {"TrainingPlanOfferingId", offering["TrainingPlanOfferingId"]}, {"Tags", *kube::parse_json(R"([{"Key": "team", "Value": "vision"}])")}});
  const auto made = call("CreateTrainingPlan", input);
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(made.json["TrainingPlanArn"].string(), arn("Spring"));
  EXPECT_EQ(call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "Spring"}})).json["Status"].string(), "Pending");
  EXPECT_EQ(call("CreateTrainingPlan", input).code, "ResourceInUse");
  EXPECT_EQ(offer(1, 1), offer(1, 1, Json::object({{"StartTimeAfter", at(36)}}))) << "what is asked for is not offered to others";
  decide(api::plan_object_name("Spring"));
  const auto told = call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "Spring"}})).json;
  EXPECT_EQ(told["Status"].string(), "Active");
  EXPECT_EQ(told["TrainingPlanName"].string(), "Spring");
  EXPECT_EQ(told["TotalInstanceCount"].integer(), 2);
  EXPECT_EQ(told["InUseInstanceCount"].integer(), 1);
  EXPECT_EQ(told["EndTime"].number(), at(36));
  EXPECT_EQ(told["DurationHours"].integer(), 36);
  const std::string capacity = told["ReservedCapacitySummaries"].items()[0]["ReservedCapacityArn"].string();
  EXPECT_THAT(capacity, HasSubstr(":reserved-capacity/"));
  EXPECT_EQ(call("DescribeReservedCapacity", Json::object({{"ReservedCapacityArn", capacity}})).json["AvailableInstanceCount"].integer(-1), 1);
  EXPECT_THAT(call("ListUltraServersByReservedCapacity", Json::object({{"ReservedCapacityArn", capacity}})).json["UltraServers"].items(), IsEmpty());
  EXPECT_EQ(call("DescribeReservedCapacity", Json::object({{"ReservedCapacityArn", "arn:aws:sagemaker:fairlead-1:111122223333:reserved-capacity/none"}})).code, "ResourceNotFound");
  EXPECT_EQ(call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "spring"}})).code, "ResourceNotFound") << "names know case";
  EXPECT_EQ(call("ListTags", Json::object({{"ResourceArn", arn("Spring")}})).json["Tags"].items()[0]["Value"].string(), "vision");
  EXPECT_EQ(call("AddTags", Json::object({{"ResourceArn", arn("Spring")}, {"Tags", *kube::parse_json(R"([{"Key": "cost", "Value": "none"}])")}})).json["Tags"].items().size(), 2u);
  EXPECT_EQ(call("ListTags", Json::object({{"ResourceArn", arn("winter")}})).code, "ResourceNotFound");
  site.clock.advance(36h);
  EXPECT_EQ(call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "Spring"}})).json["Status"].string(), "Expired") << "by the clock, whoever wrote last";
}

TEST_F(TrainingPlans, WhatIsNotThereIsNotOfferedAndNotMade) {
  spare("a"), spare("b");
  EXPECT_EQ(offer(3, 1), "");
  const std::string old = offer(2, 5);
  plan("one", 1, 10);
  EXPECT_EQ(offer(2, 5, Json::object({{"EndTimeBefore", at(12)}})), "");
  EXPECT_NE(offer(1, 5), "");
  EXPECT_NE(offer(2, 5), "") << "after the first one";
  EXPECT_THAT(why("CreateTrainingPlan", Json::object({{"TrainingPlanName", "two"}, {"TrainingPlanOfferingId", old}})), HasSubstr("ResourceLimitExceeded: Offering " + old + " is not there any more: 2 instances of type ml.p5.4xlarge can be promised"));
  const std::string early = offer(1, 5);
  site.clock.advance(2h);
  EXPECT_THAT(why("CreateTrainingPlan", Json::object({{"TrainingPlanName", "two"}, {"TrainingPlanOfferingId", early}})), HasSubstr("ResourceNotFound: TrainingPlanOfferingId"));
  EXPECT_THAT(why("CreateTrainingPlan", Json::object({{"TrainingPlanName", "two"}, {"TrainingPlanOfferingId", "tpo-abc"}})), HasSubstr("search again"));
  EXPECT_FALSE(site.api.all("trainingplans").contains({"", "two"}));
}

TEST_F(TrainingPlans, WhatIsNotServedIsRefusedByName) {
  EXPECT_THAT(why("SearchTrainingPlanOfferings", Json::object({{"UltraServerType", "ml.u-p6e-gb200x72"}, {"DurationHours", 1}})), HasSubstr("ValidationException: UltraServerType is not served"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", question(1, 1, Json::object({{"TargetResources", Json::array({Json("training-job")})}}))), HasSubstr("TargetResources: training-job is not served"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", Json::object({{"DurationHours", 1}})), HasSubstr("InstanceType is needed"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", Json::object({{"InstanceType", type}})), HasSubstr("DurationHours is needed"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", question(0, 1)), HasSubstr("at least one instance"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", question(1, 1, Json::object({{"InstanceType", "ml.g5.xlarge"}}))), HasSubstr("ValidationException"));
  spare("a");
  EXPECT_THAT(why("CreateTrainingPlan", Json::object({{"TrainingPlanName", "x"}, {"TrainingPlanOfferingId", offer(1, 1)}, {"SpareInstanceCountPerUltraServer", 1}})), HasSubstr("SpareInstanceCountPerUltraServer is not served"));
}

TEST_F(TrainingPlans, AreListedByStatusNameAndStart) {
  for (const char* name : {"a", "b", "c"}) spare(name);
  plan("zeta", 1, 1), plan("Alpha", 1, 3), plan("later", 1, 1, Json::object({{"StartTimeAfter", at(5)}}));
  const auto names = [&](Json input) {
    std::string out;
    const auto said = call("ListTrainingPlans", input);
    for (const Json& one : said.json["TrainingPlanSummaries"].items()) out += one["TrainingPlanName"].string() + " ";
    return out;
  };
  EXPECT_EQ(names(Json::object({{"SortBy", "TrainingPlanName"}})), "Alpha later zeta ");
  EXPECT_EQ(names(Json::object({{"SortBy", "StartTime"}, {"SortOrder", "Descending"}, {"MaxResults", 1}})), "later ");
  EXPECT_EQ(names(*kube::parse_json(R"({"Filters": [{"Name": "Status", "Value": "Scheduled"}]})")), "later ");
  EXPECT_EQ(names(Json::object({{"StartTimeBefore", at(1)}, {"SortBy", "TrainingPlanName"}})), "Alpha zeta ");
  const auto first = call("ListTrainingPlans", Json::object({{"MaxResults", 2}, {"SortBy", "TrainingPlanName"}})).json;
  EXPECT_EQ(names(Json::object({{"MaxResults", 2}, {"SortBy", "TrainingPlanName"}, {"NextToken", first["NextToken"]}})), "zeta ");
  EXPECT_EQ(call("ListTrainingPlans", Json::object({{"SortBy", "StartTime"}, {"NextToken", first["NextToken"]}})).code, "ValidationException");
}

TEST_F(TrainingPlans, AreExtended) {
  spare("a");
  plan("one", 1, 10);
  const Json question = Json::object({{"TrainingPlanArn", arn("one")}, {"DurationHours", 5}});
  EXPECT_THAT(why("SearchTrainingPlanOfferings", Json::object({{"TrainingPlanArn", arn("one")}, {"DurationHours", 4369}})), HasSubstr("an extension has 4368 hours at most"));
  EXPECT_THAT(why("SearchTrainingPlanOfferings", Json::object({{"TrainingPlanArn", arn("none")}, {"DurationHours", 1}})), HasSubstr("ResourceNotFound"));
  const auto found = call("SearchTrainingPlanOfferings", question).json;
  ASSERT_EQ(found["TrainingPlanExtensionOfferings"].items().size(), 1u);
  const Json& offering = found["TrainingPlanExtensionOfferings"].items()[0];
  EXPECT_EQ(offering["StartDate"].number(), at(10));
  EXPECT_EQ(offering["EndDate"].number(), at(15));
  const Json input = Json::object({{"TrainingPlanExtensionOfferingId", offering["TrainingPlanExtensionOfferingId"]}});
  const auto extended = call("ExtendTrainingPlan", input);
  ASSERT_EQ(extended.status, 200) << extended.body;
  EXPECT_EQ(extended.json["TrainingPlanExtensions"].items()[0]["Status"].string(), "Pending");
  EXPECT_EQ(call("ExtendTrainingPlan", input).status, 200) << "the same again is the same";
  EXPECT_THAT(call("SearchTrainingPlanOfferings", question).json["TrainingPlanExtensionOfferings"].items(), IsEmpty()) << "it is asked for already";
  Json object = site.api.all("trainingplans").at({"", "one"});
  ASSERT_EQ(object["spec"]["extensions"].items().size(), 1u);
  object.child("status").set("endTime", print_time(site.clock.now() + 15h)).set("extensions", Json::array({Json::object({{"id", offering["TrainingPlanExtensionOfferingId"]}, {"granted", true}})}));
  ASSERT_TRUE(site.api.put(api::kTrainingPlans, object));
  const auto history = call("DescribeTrainingPlanExtensionHistory", Json::object({{"TrainingPlanArn", arn("one")}})).json["TrainingPlanExtensions"];
  ASSERT_EQ(history.items().size(), 1u);
  EXPECT_EQ(history.items()[0]["Status"].string(), "Scheduled");
  EXPECT_EQ(call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "one"}})).json["DurationHours"].integer(), 15);
  plan("two", 1, 2, Json::object({{"StartTimeAfter", at(15)}}));
  EXPECT_THAT(call("SearchTrainingPlanOfferings", question).json["TrainingPlanExtensionOfferings"].items(), IsEmpty()) << "another has them then";
  EXPECT_THAT(why("ExtendTrainingPlan", Json::object({{"TrainingPlanExtensionOfferingId", "tpe-x"}})), HasSubstr("ResourceNotFound"));
  const std::string id = entity_id(kube::uid_of(object));
  const Instant end = site.clock.now() + 15h;
  EXPECT_THAT(why("ExtendTrainingPlan", Json::object({{"TrainingPlanExtensionOfferingId", api::extension_id({id, {end - 1h, end}})}})), HasSubstr("by now: search again"));
  EXPECT_THAT(why("ExtendTrainingPlan", Json::object({{"TrainingPlanExtensionOfferingId", api::extension_id({id, {end, end + 1h}})}})), HasSubstr("is not there any more"));
}

TEST_F(TrainingPlans, GroupsOfClustersNameOne) {
  spare("a"), spare("b");
  plan("one", 2, 10);
  ASSERT_EQ(call("CreateCluster", cluster("ml", 2, arn("one"))).status, 200);
  ASSERT_EQ(call("CreateCluster", cluster("other", 1, "")).status, 200);
  for (const char* name : {"ml", "other"}) site.index.put(site.api.all("clusters").at({"", name}));
  const auto told = call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json["InstanceGroups"].items()[1];
  EXPECT_EQ(told["TrainingPlanArn"].string(), arn("one"));
  EXPECT_EQ(told["TrainingPlanStatus"].string(), "Active");
  const auto listed = call("ListClusters", Json::object({{"TrainingPlanArn", arn("one")}})).json["ClusterSummaries"];
  ASSERT_EQ(listed.items().size(), 1u);
  EXPECT_EQ(listed.items()[0]["ClusterName"].string(), "ml");
  EXPECT_EQ(listed.items()[0]["TrainingPlanArns"].items()[0].string(), arn("one"));
  EXPECT_EQ(call("ListClusters", Json::object()).json["ClusterSummaries"].items().size(), 2u);
  EXPECT_THAT(why("CreateCluster", cluster("x", 3, arn("one"))), HasSubstr("ResourceLimitExceeded: Training plan one has 2 instances; groups of this request want 3"));
  EXPECT_THAT(why("CreateCluster", cluster("x", 1, arn("one"), "ml.g5.xlarge")), HasSubstr("the plan has instances of type ml.p5.4xlarge, the group wants ml.g5.xlarge"));
  EXPECT_THAT(why("CreateCluster", cluster("x", 1, arn("none"))), HasSubstr("ValidationException: Training plan " + arn("none") + " not found"));
  Json heads = cluster("x", 1, "");
  heads.child("InstanceGroups").items()[0].set("TrainingPlanArn", arn("one")).set("InstanceType", type);
  EXPECT_THAT(why("CreateCluster", heads), HasSubstr("only groups of compute nodes have a training plan"));
  // What an update leaves out stays.
  Json update = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({cluster("ml", 1, "")["InstanceGroups"].items()[1]})}});
  ASSERT_EQ(call("UpdateCluster", update).status, 200);
  EXPECT_EQ(site.api.all("clusters").at({"", "ml"})["spec"]["instanceGroups"].items()[1]["trainingPlanArn"].string(), arn("one"));
  site.clock.advance(11h);
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json["InstanceGroups"].items()[1]["TrainingPlanStatus"].string(), "Expired");
  EXPECT_THAT(why("CreateCluster", cluster("x", 1, arn("one"))), HasSubstr("the plan is Expired"));
  update.child("InstanceGroups").items()[0].set("TrainingPlanArn", arn("one"));
  EXPECT_EQ(call("UpdateCluster", update).status, 200) << "the plan that it has, whatever became of it";
  plan("two", 1, 10);
  update.child("InstanceGroups").items()[0].set("TrainingPlanArn", arn("two"));
  EXPECT_EQ(call("UpdateCluster", update).status, 200) << "and on with the next one";
}

TEST_F(TrainingPlans, PoliciesAreAskedFirst) {
  spare("a");
  plan("one", 1, 10), decide("one");
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["sagemaker:CreateCluster", "iam:PassRole"], "Resource": ["arn:aws:sagemaker:*:*:cluster/*", "arn:aws:iam::*:role/*"]}, {"Effect": "Allow", "Action": "sagemaker:DescribeTrainingPlan", "Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/team": "vision"}}}]})"});
  for (const auto& [operation, input] : std::map<std::string, Json>{{"SearchTrainingPlanOfferings", question(1, 1)},
                                                                       {"CreateTrainingPlan", Json::object({{"TrainingPlanName", "two"}, {"TrainingPlanOfferingId", "x"}})},
                                                                       {"DescribeTrainingPlan", Json::object({{"TrainingPlanName", "one"}})},
                                                                       {"ListTrainingPlans", Json::object()},
                                                                       {"DescribeReservedCapacity", Json::object({{"ReservedCapacityArn", "arn:aws:sagemaker:fairlead-1:111122223333:reserved-capacity/none"}})},
                                                                       {"ListUltraServersByReservedCapacity", Json::object({{"ReservedCapacityArn", "arn:aws:sagemaker:fairlead-1:111122223333:reserved-capacity/none"}})},
                                                                       {"ExtendTrainingPlan", Json::object({{"TrainingPlanExtensionOfferingId", "x"}})},
                                                                       {"DescribeTrainingPlanExtensionHistory", Json::object({{"TrainingPlanArn", arn("one")}})},
                                                                       {"CreateCluster", cluster("ml", 1, arn("one"))}})
    EXPECT_EQ(site.call(bob, operation, input).code, "AccessDeniedException") << operation;
  ASSERT_EQ(call("AddTags", Json::object({{"ResourceArn", arn("one")}, {"Tags", *kube::parse_json(R"([{"Key": "team", "Value": "vision"}])")}})).status, 200);
  EXPECT_EQ(call_as(bob, "DescribeTrainingPlan", Json::object({{"TrainingPlanName", "one"}})).status, 200);
}

TEST_F(TrainingPlans, ThatWereRefusedSayWhy) {
  spare("a");
  ASSERT_EQ(call("CreateTrainingPlan", Json::object({{"TrainingPlanName", "one"}, {"TrainingPlanOfferingId", offer(1, 1)}})).status, 200);
  decide("one", false);
  const auto told = call("DescribeTrainingPlan", Json::object({{"TrainingPlanName", "one"}})).json;
  EXPECT_EQ(told["Status"].string(), "Failed");
  EXPECT_EQ(told["StatusMessage"].string(), "there is no room");
  EXPECT_THAT(told["ReservedCapacitySummaries"].items(), IsEmpty());
  EXPECT_NE(offer(1, 1), "") << "it has nothing";
}

// One that an administrator made by hand, of a type that the API's plans do not know, is told all the same.
TEST_F(TrainingPlans, MadeByHandAreTold) {
  ASSERT_TRUE(site.api.create(api::kTrainingPlans, *kube::parse_json(R"({"metadata": {"name": "hand.made"}, "spec": {"instanceType": "ml.g5.xlarge", "instanceCount": 1, "endTime": "2026-11-26T12:00:00Z"}})")));
  const auto listed = site.call(ada, "ListTrainingPlans", Json::object()).json["TrainingPlanSummaries"];
  ASSERT_EQ(listed.items().size(), 1u);
  EXPECT_EQ(listed.items()[0]["TrainingPlanArn"].string(), arn("hand.made"));
  EXPECT_EQ(listed.items()[0]["Status"].string(), "Pending");
}

}  // namespace
}  // namespace fairlead::hyperpod
