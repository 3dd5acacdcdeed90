// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_events.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

namespace fairlead::fleet {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

const Instant now = *parse_time("2026-11-26T12:00:00Z");

Json cluster(const char* status) { return Json::object({{"metadata", Json::object({{"name", "ml"}, {"uid", "u"}, {"generation", 3}})}, {"status", *kube::parse_json(status)}}); }
Json instance(const std::string& id, const char* status, const char* spec = R"({"instanceGroupName": "gpu", "nodeLogicalId": "l"})") { return Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", *kube::parse_json(spec)}, {"status", *kube::parse_json(status)}}); }
// "LEVEL KIND: description [failure]"
std::vector<std::string> told(const std::vector<Json>& events) {
  std::vector<std::string> out;
  for (const Json& event : events) {
    const Json& spec = event["spec"];
    out.push_back(fmt::format("{} {}: {}{}", spec["level"].string(), spec["kind"].string(), spec["description"].string(), spec["metadata"].has("failureMessage") ? " [" + spec["metadata"]["failureMessage"].string() + "]" : ""));
  }
  return out;
}
std::vector<Json> events(const char* before, const char* after, const std::vector<std::pair<Json, Json>>& instances = {}) {
  std::vector<InstanceChange> changes;
  for (const auto& [object, status] : instances) changes.push_back({&object, &status});
  return cluster_events(cluster(before), *kube::parse_json(after), changes, now);
}
std::vector<std::string> of_instance(const char* before, const char* after, const char* spec = R"({"instanceGroupName": "gpu", "nodeLogicalId": "l"})") { return told(events("{}", "{}", {{instance("i-1", before, spec), *kube::parse_json(after)}})); }

TEST(ClusterEvents, OfTheCluster) {
  EXPECT_THAT(told(events("{}", R"({"phase": "Creating"})")), ElementsAre("Info ClusterStatus: The cluster is Creating"));
  EXPECT_THAT(told(events(R"({"phase": "Creating"})", R"({"phase": "InService", "message": "x"})")), ElementsAre("Info ClusterStatus: The cluster was Creating and is InService"));
  EXPECT_THAT(told(events(R"({"phase": "Updating"})", R"({"phase": "RollingBack", "message": "no machine"})")), ElementsAre("Error ClusterStatus: The cluster was Updating and is RollingBack [no machine]"));
  EXPECT_THAT(told(events(R"({"phase": "InService"})", R"({"phase": "InService"})")), IsEmpty());
}

TEST(ClusterEvents, OfItsSlurm) {
  EXPECT_THAT(told(events(R"({"message": ""})", R"({"message": "Slurm: spec.size: 9 is too many", "slurmConfigHash": ""})")), ElementsAre("Error SlurmConfigRefused: The configuration of Slurm is not applied [spec.size: 9 is too many]"));
  EXPECT_THAT(told(events(R"({"message": "Slurm: x"})", R"({"message": "Slurm: x"})")), IsEmpty());
  EXPECT_THAT(told(events(R"({"slurmConfigHash": "a"})", R"({"slurmConfigHash": "b"})")), ElementsAre("Info SlurmConfigApplied: Slurm has the cluster's configuration"));
  EXPECT_THAT(told(events(R"({"slurmConfigHash": "b"})", R"({"slurmConfigHash": "b"})")), IsEmpty());
}

TEST(ClusterEvents, OfReservationsAndOfTheFewestThatDidNotCome) {
  const auto group = [](const char* more) { return fmt::format(R"({{"instanceGroups": [{{"instanceGroupName": "gpu", "current": 0, "target": 2, "issued": 2, "status": "Creating"{}}}]}})", more); };
  EXPECT_THAT(told(events(group("").c_str(), group(R"(, "reservation": "Missing", "message": "waits for training plan p")").c_str())), ElementsAre("Warn CapacityReservationMissing: Group gpu does without its training plan [waits for training plan p]"));
  EXPECT_THAT(told(events(group(R"(, "reservation": "Missing")").c_str(), group(R"(, "reservation": "InForce")").c_str())), ElementsAre("Info CapacityReservationFound: Group gpu has its training plan"));
  const char* const gone_back = R"(, "minimum": {"good": 1, "rolledBack": "2026-11-26T12:00:00Z", "message": "1 of 2"}, "message": "i-2: no machine of type a is free")";
  EXPECT_THAT(told(events(group(R"(, "message": "i-2: no machine of type a is free")").c_str(), group(gone_back).c_str())), ElementsAre("Error MinCountRolledBack: Group gpu goes back to 1 instances [1 of 2; i-2: no machine of type a is free]"));
  EXPECT_THAT(told(events(group(gone_back).c_str(), group(gone_back).c_str())), IsEmpty());
}

TEST(ClusterEvents, OfInstancesThatComeAndGoForOthers) {
  EXPECT_THAT(of_instance(R"({"phase": "Pending"})", R"({"phase": "Running", "runningSince": "t", "node": "w0"})", R"({"instanceGroupName": "gpu", "nodeLogicalId": "l", "replaces": "r-1"})"), ElementsAre("Info InstanceProvisioned: Instance i-1 of group gpu runs on node w0", "Info ReplaceCompleted: Instance i-1 of group gpu runs in the place of one that was replaced"));
  const Json gone = instance("i-1", "{}");
  EXPECT_THAT(told(cluster_events(cluster("{}"), *kube::parse_json("{}"), {{&gone, nullptr}}, now)), ElementsAre("Info InstanceTerminated: Instance i-1 of group gpu is gone"));
}

TEST(ClusterEvents, OfItsGroups) {
  const auto group = [](int current, int target, const char* status, const char* message = "") { return fmt::format(R"({{"instanceGroups": [{{"instanceGroupName": "gpu", "current": {}, "target": {}, "issued": 2, "status": "{}", "message": "{}"}}]}})", current, target, status, message); };
  EXPECT_THAT(told(events("{}", group(0, 2, "Creating").c_str())), ElementsAre("Info ScalingStarted: Group gpu is to have 2 instances; 0 run"));
  EXPECT_THAT(told(events(group(1, 2, "Creating").c_str(), group(2, 2, "InService").c_str())), ElementsAre("Info ScalingCompleted: Group gpu has its 2 instances"));
  EXPECT_THAT(told(events(group(2, 2, "InService").c_str(), group(2, 2, "InService").c_str())), IsEmpty());
  EXPECT_THAT(told(events(group(1, 2, "Creating").c_str(), group(1, 2, "Degraded", "i-2: no machine of type ml.g5.xlarge is free").c_str())), ElementsAre("Warn CapacityMissing: Group gpu waits for machines [i-2: no machine of type ml.g5.xlarge is free]"));
  EXPECT_THAT(told(events(group(1, 2, "Degraded", "i-2: no machine of type a").c_str(), group(1, 2, "Degraded", "i-2: no machine of type a, 2 in use").c_str())), IsEmpty());
  EXPECT_THAT(told(events(group(0, 0, "Deleting").c_str(), group(0, 0, "Deleted").c_str())), ElementsAre("Info Deleted: Group gpu is gone"));
}

TEST(ClusterEvents, OfTheFewestThatAreAskedFor) {
  Json of = cluster(R"({"instanceGroups": [{"instanceGroupName": "gpu", "current": 1, "target": 4, "issued": 4}]})");
  of.set("spec", *kube::parse_json(R"({"instanceGroups": [{"instanceGroupName": "gpu", "minInstanceCount": 2}]})"));
  const auto now_has = [&](int current) { return cluster_events(of, *kube::parse_json(fmt::format(R"({{"instanceGroups": [{{"instanceGroupName": "gpu", "current": {}, "target": 4, "issued": 4}}]}})", current)), {}, now); };
  const auto reached = now_has(2);
  EXPECT_THAT(told(reached), ElementsAre("Info MinCountReached: Group gpu has 2 instances, and 2 at least are asked for"));
  EXPECT_EQ(reached[0]["spec"]["metadata"]["minCount"].integer(), 2);
  EXPECT_THAT(now_has(1), IsEmpty());
}

TEST(ClusterEvents, OfLinksOfWhichNothingCanBeTold) {
  const char* const once = R"({"phase": "DeepHealthCheckInProgress", "healthCheck": {"id": "c1", "stage": "Checking", "meeting": {"again": 1, "why": "links: 1 of 1 does not work"}}})";
  EXPECT_THAT(of_instance(R"({"phase": "DeepHealthCheckInProgress", "healthCheck": {"id": "c1", "stage": "Checking", "meeting": {"round": "r"}}})", once), ElementsAre("Warn DeepHealthCheckUndecided: What is wrong with the links of instance i-1 of group gpu cannot be told; they are tried again [links: 1 of 1 does not work]"));
  EXPECT_THAT(of_instance(once, R"({"phase": "DeepHealthCheckInProgress", "healthCheck": {"id": "c1", "stage": "Checking", "meeting": {"again": 2, "why": "links: 1 of 1 does not work"}}})"), IsEmpty());
}

TEST(ClusterEvents, OfItsInstances) {
  EXPECT_THAT(of_instance(R"({"phase": "Pending"})", R"({"phase": "Running", "runningSince": "t", "node": "n"})"), ElementsAre("Info InstanceProvisioned: Instance i-1 of group gpu runs on node n"));
  EXPECT_THAT(of_instance(R"({"phase": "Running", "runningSince": "t"})", R"({"phase": "Pending", "runningSince": "t", "message": "its machine is not ready"})"), ElementsAre("Warn InstanceNotReady: Instance i-1 of group gpu does not run [its machine is not ready]"));
  EXPECT_THAT(of_instance(R"({"phase": "Pending", "runningSince": "t"})", R"({"phase": "Running", "runningSince": "t"})"), ElementsAre("Info InstanceReady: Instance i-1 of group gpu runs again"));
  EXPECT_THAT(of_instance(R"({"phase": "Pending"})", R"({"phase": "Failure", "message": "Node n is gone"})"), ElementsAre("Error InstanceFailed: Instance i-1 of group gpu has failed [Node n is gone]"));
  EXPECT_THAT(of_instance(R"({"phase": "Pending"})", R"({"phase": "Failure", "message": "on_create.sh: it ended with 3", "lifecycle": {"onCreate": {"phase": "Failed", "exitCode": 3, "message": "on_create.sh: it ended with 3"}}})"),
              ElementsAre("Error LifecycleScript: Lifecycle script OnCreate of instance i-1 of group gpu failed with exit status 3 [on_create.sh: it ended with 3]"));
  EXPECT_THAT(of_instance("{}", R"({"lifecycle": {"onInitComplete": {"phase": "Succeeded", "exitCode": 0}}})"), ElementsAre("Info LifecycleScript: Lifecycle script OnInitComplete of instance i-1 of group gpu has run"));
  EXPECT_THAT(of_instance(R"({"phase": "Running"})", R"({"phase": "ShuttingDown"})"), ElementsAre("Info InstanceTerminating: Instance i-1 of group gpu goes"));
  EXPECT_THAT(of_instance(R"({"phase": "Running"})", R"({"phase": "ShuttingDown"})", R"({"instanceGroupName": "gpu", "replace": {"id": "r"}})"), ElementsAre("Info InstanceTerminating: Instance i-1 of group gpu goes, since it is replaced"));
  EXPECT_THAT(of_instance(R"({"phase": "Running", "runningSince": "t"})", R"({"phase": "Pending", "runningSince": "t", "reboot": {"id": "b", "stage": "Emptying"}})"), ElementsAre("Info RebootStarted: Instance i-1 of group gpu is to be rebooted when it is empty; asked for by somebody"));
  EXPECT_THAT(of_instance(R"({"reboot": {"id": "b", "stage": "Rebooting"}})", R"({"reboot": {"id": "b", "stage": "Failed", "message": "its machine is gone"}})"), ElementsAre("Error RebootFailed: Instance i-1 of group gpu was not rebooted [its machine is gone]"));
}

TEST(ClusterEvents, ToldAgainAreTheSame) {
  const auto names = [](const std::vector<Json>& all) {
    std::set<std::string> out;
    for (const Json& one : all) out.insert(kube::name_of(one));
    return out;
  };
  const auto once = events("{}", R"({"phase": "Creating", "instanceGroups": [{"instanceGroupName": "gpu", "current": 0, "target": 2}]})");
  EXPECT_EQ(names(once).size(), 2u);
  EXPECT_EQ(names(once), names(events("{}", R"({"phase": "Creating", "instanceGroups": [{"instanceGroupName": "gpu", "current": 0, "target": 2}]})")));
  for (const std::string& name : names(once)) EXPECT_THAT(name, testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
}

TEST(ClusterEvents, OfManyAtOnceAFewAreNamed) {
  std::vector<std::pair<Json, Json>> many;
  for (int i = 0; i < 500; ++i) many.emplace_back(instance(fmt::format("i-{}", i), R"({"phase": "Pending"})"), *kube::parse_json(R"({"phase": "Running", "runningSince": "t"})"));
  for (int i = 0; i < 30; ++i) many.emplace_back(instance(fmt::format("i-bad-{}", i), R"({"phase": "Pending"})"), *kube::parse_json(R"({"phase": "Failure", "message": "x"})"));
  const auto all = events("{}", "{}", many);
  EXPECT_EQ(all.size(), 20u + 30u + 1u) << "what failed is told of each";
  EXPECT_EQ(told(all).back(), "Info InstanceProvisioned: The same of 480 more instances of group gpu");
}

TEST(ClusterEvents, TheNewestOfNinetyDaysAreKept) {
  std::vector<Json> all;
  const auto add = [&](const std::string& name, Instant time) { all.push_back(Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", Json::object({{"time", print_time(time)}})}})); };
  for (int i = 0; i < 510; ++i) add(fmt::format("e{:03}", i), now - std::chrono::minutes(i));
  auto forget = events_to_forget(all, now);
  EXPECT_EQ(forget.size(), 10u);
  EXPECT_EQ(kube::name_of(*forget.front()), "e500");
  all.clear();
  add("old", now - 91 * 24h);
  add("young", now - 89 * 24h);
  forget = events_to_forget(all, now);
  ASSERT_EQ(forget.size(), 1u);
  EXPECT_EQ(kube::name_of(*forget.front()), "old");
}

}  // namespace
}  // namespace fairlead::fleet
