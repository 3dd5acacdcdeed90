// SPDX-License-Identifier: Apache-2.0
// Operations that make and change clusters, against the objects that they write.
#include <gmock/gmock.h>

#include "api/instance_types.h"
#include "api/volume_key.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* role = "arn:aws:iam::111122223333:role/node";

class MadeClusters : public testing::Test {
 protected:
  MadeClusters() {
    site.node_role("node");
    ada = site.user("ada", {everything});
  }
  Json group(const std::string& name, const std::string& type, int count, const std::string& node_type, const std::string& partition = "") const {
    Json slurm = Json::object({{"NodeType", node_type}});
    if (!partition.empty()) slurm.set("PartitionNames", Json::array({Json(partition)}));
    return Json::object({{"InstanceGroupName", name}, {"InstanceType", type}, {"InstanceCount", count}, {"ExecutionRole", role}, {"SlurmConfig", std::move(slurm)}});
  }
  Json request(const std::string& name = "ml", int workers = 2, bool continuous = true) const {
    Json out = Json::object({{"ClusterName", name}, {"InstanceGroups", Json::array({group("head", "ml.c5.large", 1, "Controller"), group("gpu", "ml.g5.xlarge", workers, "Compute", "train")})}});
    if (continuous) out.set("NodeProvisioningMode", "Continuous");
    return out;
  }
  TestSite::Said call(const std::string& operation, const Json& input) {
    const auto said = site.call(ada, operation, input);
    if (said.status == 200 && !site.model().operation(operation)->output.empty()) {
      const auto fits = site.model().check(site.model().shape(site.model().operation(operation)->output), said.json);
      EXPECT_TRUE(fits.has_value()) << operation << ": " << (fits ? "" : fits.error().message) << kube::print_json(said.json);
    }
    return said;
  }
  const Json& object(const std::string& name = "ml") { return site.api.all("clusters").at({"", name}); }
  const Json& group_of(const std::string& name, const std::string& cluster = "ml") {
    for (const Json& one : object(cluster)["spec"]["instanceGroups"].items())
      if (one["instanceGroupName"].string() == name) return one;
    throw std::out_of_range(name);
  }
  // As the controller does it.
  void tell(const std::string& phase) {
    Json changed = object();
    changed.child("status").set("phase", phase);
    ASSERT_TRUE(site.api.put(api::kClusters, changed));
    site.index.put(object());
  }
  std::string instance(const std::string& group_name, int number, const std::string& phase = "Running", int attempt = 1) {
    const std::string uid = kube::uid_of(object()), id = api::instance_id_of(uid, group_name, number, attempt);
    EXPECT_TRUE(site.api.put(api::kInstances, Json::object({{"metadata", Json::object({{"name", id}, {"uid", "u-" + id}, {"creationTimestamp", "2026-11-25T12:00:00Z"}})},
                                                {"spec", Json::object({{"cluster", "ml"}, {"clusterUid", uid}, {"instanceGroupName", group_name}, {"number", number}, {"attempt", attempt}, {"nodeLogicalId", api::logical_id_of(uid, group_name, number)}, {"instanceType", "ml.g5.xlarge"}})},
                                                {"status", Json::object({{"phase", phase}, {"node", "hyperpod-" + id}, {"address", "10.77.1.4"}})}})));
    return id;
  }
  TestSite site;
  Credentials ada;
};

TEST_F(MadeClusters, CreateIsAnObjectAndToldAtOnce) {
  Json input = request();
  input.set("Tags", Json::array({Json::object({{"Key", "team"}, {"Value", "vision"}})}));
  const auto said = call("CreateCluster", input);
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["ClusterArn"].string(), site.arn(object()));
  EXPECT_EQ(group_of("gpu")["slurmConfig"]["partitionNames"].items()[0].string(), "train");
  // The index does not know it yet: who made it asks at once.
  for (const std::string& name : {std::string("ml"), said.json["ClusterArn"].string()}) {
    const auto told = call("DescribeCluster", Json::object({{"ClusterName", name}}));
    ASSERT_EQ(told.status, 200) << told.body;
    EXPECT_EQ(told.json["ClusterStatus"].string(), "Creating");
    EXPECT_EQ(told.json["NodeProvisioningMode"].string(), "Continuous");
    EXPECT_EQ(kube::print_json(told.json["Orchestrator"]), R"({"Slurm":{}})");
    const Json& gpu = told.json["InstanceGroups"].items()[1];
    EXPECT_EQ(gpu["InstanceType"].string(), "ml.g5.xlarge");
    EXPECT_EQ(gpu["TargetCount"].integer(), 2);
    EXPECT_EQ(gpu["CurrentCount"].integer(-1), 0);
    EXPECT_EQ(gpu["ExecutionRole"].string(), role);
    EXPECT_EQ(gpu["SlurmConfig"]["NodeType"].string(), "Compute");
  }
  site.index.put(object());
  EXPECT_EQ(call("ListClusters", Json::object()).json["ClusterSummaries"].items().size(), 1u);
  EXPECT_EQ(call("ListTags", Json::object({{"ResourceArn", site.arn(object())}})).json["Tags"].items()[0]["Value"].string(), "vision");
}

TEST_F(MadeClusters, ANameIsTakenOnce) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  EXPECT_EQ(call("CreateCluster", request()).code, "ResourceInUse");
  // Who may make a SlurmCluster somewhere takes no name away from others.
  site.cluster("lab", "slurm");
  ASSERT_EQ(call("CreateCluster", request("slurm")).status, 200);
  site.index.put(object("slurm"));
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "slurm"}})).json["ClusterArn"].string(), site.arn(object("slurm")));
  ASSERT_EQ(call("CreateCluster", request("ML")).status, 200) << "names know case";
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "ML"}})).json["ClusterName"].string(), "ML");
  EXPECT_EQ(call("CreateCluster", request("ML")).code, "ResourceInUse");
}

TEST_F(MadeClusters, WhatIsNotServedOrCannotBeIsRefusedAndNothingIsMade) {
  const auto with = [&](const std::function<void(Json&)>& change) {
    Json input = request();
    change(input);
    const auto said = call("CreateCluster", input);
    return said.code + ": " + said.message;
  };
  const auto group_field = [&](const char* field, Json value) {
    return with([&](Json& input) { input.child("InstanceGroups").items()[1].set(field, std::move(value)); });
  };
  EXPECT_THAT(group_field("InstanceStorageConfigs", Json::array({Json::object({{"EbsVolumeConfig", Json::object({{"VolumeSizeInGB", 10}})}})})), HasSubstr("ValidationException: spec.instanceGroups[1].instanceStorageConfigs: served where Kubernetes orchestrates"));
  const auto scripts = [&](const char* uri, const char* on_create) { return group_field("LifeCycleConfig", Json::object({{"SourceS3Uri", uri}, {"OnCreate", on_create}})); };
  EXPECT_THAT(scripts("s3://sagemaker-x/y", "/etc/passwd"), HasSubstr("lifeCycleConfig.onCreate: \"/etc/passwd\" is not the path of a file below sourceS3Uri"));
  EXPECT_THAT(scripts("s3://sagemaker-x/y", "a/../../b"), HasSubstr("lifeCycleConfig.onCreate"));
  EXPECT_THAT(scripts("s3://sagemaker-x/y/../../z", "a.sh"), HasSubstr("is not of the form s3://BUCKET/PREFIX"));
  EXPECT_THAT(scripts("s3://Upper/y", "a.sh"), HasSubstr("is not of the form s3://BUCKET/PREFIX"));
  EXPECT_THAT(scripts("https://sagemaker-x/y", "a.sh"), HasSubstr("ValidationException"));
  EXPECT_THAT(group_field("LifeCycleConfig", Json::object({{"SourceS3Uri", "s3://sagemaker-x/y"}})), HasSubstr("onCreate or onInitComplete is expected"));
  EXPECT_THAT(group_field("LifeCycleConfig", Json::object({{"OnCreate", "a.sh"}})), HasSubstr("lifeCycleConfig.sourceS3Uri: the folder of the scripts is expected"));
  EXPECT_THAT(group_field("ExecutionRole", "arn:aws:iam::111122223333:role/nobody"), HasSubstr("ValidationException: Role arn:aws:iam::111122223333:role/nobody not found: "));
  EXPECT_THAT(group_field("ExecutionRole", "arn:aws:iam::999999999999:role/node"), HasSubstr("999999999999:role/node"));
  EXPECT_THAT(group_field("SlurmConfig", Json::object({{"NodeType", "Compute"}})), HasSubstr("a group of compute nodes is in one partition"));
  EXPECT_THAT(group_field("MinInstanceCount", 9), HasSubstr("minInstanceCount: 9 is not a whole number from 0 to instanceCount (2)"));
  EXPECT_THAT(group_field("InstanceGroupName", "head"), HasSubstr("\"head\" is there twice"));
  EXPECT_THAT(with([&](Json& input) { input.child("InstanceGroups").items().erase(input.child("InstanceGroups").items().begin()); }), HasSubstr("0 groups with nodeType Controller"));
  EXPECT_THAT(with([&](Json& input) { input.child("InstanceGroups").items()[0].set("InstanceCount", 4); }), HasSubstr("4 controllers; 1 to 3 are possible"));
  EXPECT_THAT(with([&](Json& input) { input.set("Orchestrator", Json::object({{"Eks", Json::object({{"ClusterArn", "arn:aws:eks:fairlead-1:111122223333:cluster/x"}})}})); }), HasSubstr("EKS cluster arn:aws:eks:fairlead-1:111122223333:cluster/x not found: this site works with arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"));
  EXPECT_THAT(group_field("KubernetesConfig", Json::object({{"Labels", Json::object({{"a", "b"}})}})), HasSubstr("only clusters that Kubernetes orchestrates have it"));
  EXPECT_TRUE(site.api.all("clusters").empty());
}

TEST_F(MadeClusters, EventsAreToldTheNewestFirstAndByWhatIsAsked) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  site.index.put(object());
  const std::string id = instance("gpu", 1);
  const auto event = [&](const char* name, const char* time, const char* type, const char* level, const Json& more, const std::string& uid) {
    Json spec = Json::object({{"clusterUid", uid}, {"resourceType", type}, {"level", level}, {"kind", "k"}, {"time", time}, {"description", std::string("event ") + name}, {"metadata", Json::object()}});
    for (const auto& [key, value] : more.members()) spec.set(key, value);
    EXPECT_TRUE(site.api.create(api::kClusterEvents, Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "cluster-ml"}})}, {"spec", std::move(spec)}})));
  };
  const std::string uid = kube::uid_of(object());
  const std::string first = "00000000-0000-4000-8000-000000000001", second = "00000000-0000-4000-8000-000000000002", third = "00000000-0000-4000-8000-000000000003", other = "00000000-0000-4000-8000-000000000004";
  event(first.c_str(), "2026-11-25T12:00:00Z", "Cluster", "Info", Json::object(), uid);
  event(second.c_str(), "2026-11-25T12:01:00Z", "InstanceGroup", "Info", Json::object({{"instanceGroupName", "gpu"}, {"metadata", Json::object({{"instanceCount", 0}, {"targetCount", 2}})}}), uid);
  event(third.c_str(), "2026-11-25T12:02:00Z", "Instance", "Error", Json::object({{"instanceGroupName", "gpu"}, {"instanceId", id}, {"nodeLogicalId", api::logical_id_of(uid, "gpu", 1)}, {"metadata", Json::object({{"failureMessage", "no route"}, {"lcsExecutionState", "Failed"}})}}), uid);
  event(other.c_str(), "2026-11-25T12:03:00Z", "Cluster", "Info", Json::object(), "of one that had its name");
  const auto ids = [&](Json input) {
    const auto said = call("ListClusterEvents", input.set("ClusterName", "ml"));
    EXPECT_EQ(said.status, 200) << said.body;
    std::string out;
    for (const Json& one : said.json["Events"].items()) out += one["EventId"].string().back();
    return out + (said.json.has("NextToken") ? "+" : "");
  };
  EXPECT_EQ(ids(Json::object()), "321");
  EXPECT_EQ(ids(Json::object({{"SortBy", "EventTime"}, {"SortOrder", "Ascending"}})), "123");
  EXPECT_EQ(ids(Json::object({{"InstanceGroupName", "gpu"}})), "32");
  EXPECT_EQ(ids(Json::object({{"NodeId", id}})), "3");
  EXPECT_EQ(ids(Json::object({{"ResourceType", "Cluster"}})), "1");
  EXPECT_EQ(ids(Json::object({{"EventTimeAfter", 1795608030}})), "32");
  EXPECT_EQ(ids(Json::object({{"EventTimeBefore", 1795608030}})), "1");
  EXPECT_EQ(ids(Json::object({{"MaxResults", 2}})), "32+");
  const auto token = call("ListClusterEvents", Json::object({{"ClusterName", "ml"}, {"MaxResults", 2}})).json["NextToken"];
  EXPECT_EQ(ids(Json::object({{"MaxResults", 2}, {"NextToken", token}})), "1");
  const auto told = call("DescribeClusterEvent", Json::object({{"ClusterName", "ml"}, {"EventId", third}}));
  ASSERT_EQ(told.status, 200) << told.body;
  EXPECT_EQ(told.json["EventDetails"]["EventLevel"].string(), "Error");
  EXPECT_EQ(told.json["EventDetails"]["EventDetails"]["EventMetadata"]["Instance"]["FailureMessage"].string(), "no route");
  EXPECT_EQ(told.json["EventDetails"]["EventDetails"]["EventMetadata"]["Instance"]["LcsExecutionState"].string(), "Failed");
  EXPECT_EQ(call("DescribeClusterEvent", Json::object({{"ClusterName", "ml"}, {"EventId", second}})).json["EventDetails"]["EventDetails"]["EventMetadata"]["InstanceGroupScaling"]["TargetCount"].integer(), 2);
  for (const std::string& id_of : {other, std::string("00000000-0000-4000-8000-000000000009")}) EXPECT_EQ(call("DescribeClusterEvent", Json::object({{"ClusterName", "ml"}, {"EventId", id_of}})).code, "ResourceNotFound");
  EXPECT_EQ(call("ListClusterEvents", Json::object({{"ClusterName", "none"}})).code, "ResourceNotFound");
}

TEST_F(MadeClusters, ScriptsOfAGroupAreToldAsTheyWereGiven) {
  Json input = request("scripted");
  const Json config = Json::object({{"SourceS3Uri", "s3://sagemaker-x/base/"}, {"OnCreate", "utils/on_create.sh"}, {"OnInitComplete", "on_init.sh"}});
  input.child("InstanceGroups").items()[1].set("LifeCycleConfig", config);
  ASSERT_EQ(call("CreateCluster", input).status, 200);
  const Json object = site.api.all("clusters").at({"", "scripted"});
  const api::Cluster read = api::read_cluster(object);
  EXPECT_EQ(read.groups[1].scripts.bucket, "sagemaker-x");
  EXPECT_EQ(read.groups[1].scripts.prefix, "base");
  EXPECT_EQ(read.groups[1].scripts.on_create, "utils/on_create.sh");
  EXPECT_EQ(read.arn, site.arn(object)) << "scripts are told the cluster's ARN";
  site.index.put(object);
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "scripted"}})).json["InstanceGroups"].items()[1]["LifeCycleConfig"], config);
}

// As scripts from before SlurmConfig ask for them.
TEST_F(MadeClusters, RolesOfGroupsMayComeFromTheFileBesideTheScripts) {
  Json input = request("ml", 2, false);
  for (Json& one : input.child("InstanceGroups").items()) {
    one.erase("SlurmConfig");
    one.set("LifeCycleConfig", Json::object({{"SourceS3Uri", "s3://sagemaker-lab/base"}, {"OnCreate", "on_create.sh"}}));
  }
  EXPECT_THAT(call("CreateCluster", input).message, HasSubstr("there is no s3://sagemaker-lab/base/provisioning_parameters.json"));
  EXPECT_TRUE(site.api.all("clusters").empty());
  std::string workers = R"({"instance_group_name": "gpu", "partition_name": "train"})";
  site.read_object = [&](const std::string& bucket, const std::string& key) -> Result<std::string> {
    EXPECT_EQ(bucket + "/" + key, "sagemaker-lab/base/provisioning_parameters.json");
    return R"({"version": "1.0.0", "workload_manager": "slurm", "controller_group": "head", "worker_groups": [)" + workers + "]}";
  };
  ASSERT_EQ(call("CreateCluster", input).status, 200);
  EXPECT_EQ(group_of("head")["slurmConfig"]["nodeType"].string(), "Controller");
  EXPECT_EQ(group_of("gpu")["slurmConfig"]["partitionNames"].items()[0].string(), "train");
  // Another group, once the file knows it; those that are there keep their place.
  tell("InService");
  Json more = input["InstanceGroups"].items()[1];
  more.set("InstanceGroupName", "cpu");
  const Json update = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({input["InstanceGroups"].items()[1], more})}});
  EXPECT_THAT(call("UpdateCluster", update).message, HasSubstr("group cpu has no SlurmConfig"));
  workers += R"(, {"instance_group_name": "cpu", "partition_name": "cpu"})";
  ASSERT_EQ(call("UpdateCluster", update).status, 200);
  EXPECT_EQ(group_of("cpu")["slurmConfig"]["partitionNames"].items()[0].string(), "cpu");
  EXPECT_EQ(group_of("gpu")["slurmConfig"]["partitionNames"].items()[0].string(), "train");
}

// Who may pass a role reads with it what the role may read, and no more.
TEST_F(MadeClusters, ScriptsAreReadByTheRoleOfTheirGroup) {
  Json input = request("ml");
  input.child("InstanceGroups").items()[1].set("LifeCycleConfig", Json::object({{"SourceS3Uri", "s3://sagemaker-lab/base"}, {"OnCreate", "on_create.sh"}}));
  const std::string trust = R"({"Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}})";
  const auto with = [&](std::vector<std::string> policies, const char* attached = nullptr) {
    Json more = Json::object({{"trustPolicy", trust}});
    if (attached != nullptr) more.set("attachedPolicies", Json::array({Json(std::string("arn:aws:iam::aws:policy/") + attached)}));
    site.identity("Role", "node", std::move(policies), more);
    const auto said = call("CreateCluster", input);
    if (said.status == 200) {
      EXPECT_TRUE(site.api.remove(api::kClusters, {"", "ml"}));
    }
    return said.message;
  };
  const std::string team = R"({"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::sagemaker-lab/base/*"}})", deny = R"({"Statement": {"Effect": "Deny", "Action": "s3:*", "Resource": "*"}})";
  EXPECT_THAT(with({}), HasSubstr("role/node of group gpu may not read its lifecycle scripts: allow it s3:GetObject on arn:aws:s3:::sagemaker-lab/base/on_create.sh"));
  EXPECT_EQ(with({team}), "");
  EXPECT_THAT(with({team, deny}), HasSubstr("may not read"));
  EXPECT_EQ(with({}, "AmazonSageMakerClusterInstanceRolePolicy"), "");
  EXPECT_THAT(with({deny}, "AmazonSageMakerClusterInstanceRolePolicy"), HasSubstr("may not read"));
  EXPECT_THAT(with({}, "AmazonEKS_CNI_Policy"), HasSubstr("may not read"));
  input.child("InstanceGroups").items()[1].child("LifeCycleConfig").set("SourceS3Uri", "s3://others/base");
  EXPECT_THAT(with({team}), HasSubstr("may not read"));
  EXPECT_THAT(with({}, "AmazonSageMakerClusterInstanceRolePolicy"), HasSubstr("may not read"));
  EXPECT_EQ(with({}, "AmazonS3ReadOnlyAccess"), "");
}

// Who scales a group by name, type, count and role does not mean that its scripts and labels are to go.
TEST_F(MadeClusters, WhatAnUpdateDoesNotNameOfAGroupStays) {
  Json input = request();
  input.child("InstanceGroups").items()[1].set("LifeCycleConfig", Json::object({{"SourceS3Uri", "s3://sagemaker-lab/base"}, {"OnCreate", "on_create.sh"}}));
  ASSERT_EQ(call("CreateCluster", input).status, 200);
  tell("InService");
  Json fewer = request("ml", 5)["InstanceGroups"].items()[1];
  fewer.erase("SlurmConfig");
  ASSERT_EQ(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({fewer})}})).status, 200);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 5);
  EXPECT_EQ(group_of("gpu")["lifeCycleConfig"]["onCreate"].string(), "on_create.sh");
  EXPECT_EQ(group_of("gpu")["slurmConfig"]["nodeType"].string(), "Compute");
}

TEST_F(MadeClusters, OfKubernetesHaveLabelsAndTaintsAsTheyAreWritten) {
  Json workers = Json::object({{"InstanceGroupName", "workers"}, {"InstanceType", "ml.g5.xlarge"}, {"InstanceCount", 2}, {"ExecutionRole", role},
                               {"KubernetesConfig", Json::object({{"Labels", Json::object({{"Team", "Vision"}, {"example.com/Pool", "a"}})}, {"Taints", Json::array({Json::object({{"Key", "Gpu"}, {"Value", "yes"}, {"Effect", "NoSchedule"}})})}})}});
  Json input = Json::object({{"ClusterName", "k"}, {"NodeProvisioningMode", "Continuous"}, {"Orchestrator", Json::object({{"Eks", Json::object({{"ClusterArn", "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})}})}, {"InstanceGroups", Json::array({workers})}});
  EXPECT_THAT(call("CreateCluster", input).message, HasSubstr("VpcConfig is required"));
  input.set("VpcConfig", Json::object({{"SecurityGroupIds", Json::array({Json("sg-12345678")})}, {"Subnets", Json::array({Json("subnet-12345678")})}}));
  ASSERT_EQ(call("CreateCluster", input).status, 200);
  const Json& config = group_of("workers", "k")["kubernetesConfig"];
  EXPECT_EQ(kube::print_json(config["labels"]), R"({"Team":"Vision","example.com/Pool":"a"})");
  EXPECT_EQ(kube::print_json(config["taints"]), R"([{"key":"Gpu","value":"yes","effect":"NoSchedule"}])");
  const auto told = call("DescribeCluster", Json::object({{"ClusterName", "k"}}));
  EXPECT_EQ(told.json["Orchestrator"]["Eks"]["ClusterArn"].string(), "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead");
  EXPECT_EQ(told.json["InstanceGroups"].items()[0]["KubernetesConfig"]["CurrentLabels"]["Team"].string(), "Vision");
  EXPECT_EQ(told.json["InstanceGroups"].items()[0]["KubernetesConfig"]["DesiredTaints"].items()[0]["Key"].string(), "Gpu");
  EXPECT_EQ(told.json["VpcConfig"]["Subnets"].items().size(), 1u);
  Json checked = workers, second = input;
  checked.set("OnStartDeepHealthChecks", Json::array({Json("InstanceStress")}));
  second.set("ClusterName", "checked").set("InstanceGroups", Json::array({checked}));
  EXPECT_THAT(call("CreateCluster", second).message, HasSubstr("kubernetesConfig.taints: not in a group with onStartDeepHealthChecks"));
  workers.child("KubernetesConfig").child("Labels").set("fairlead.dev/instance", "i-0");
  EXPECT_THAT(call("UpdateCluster", Json::object({{"ClusterName", "k"}, {"InstanceGroups", Json::array({workers})}})).message, HasSubstr("it is not yours to set"));
}

TEST_F(MadeClusters, OfKubernetesHaveVolumes) {
  const auto workers = [&](Json configs) {
    return Json::object({{"InstanceGroupName", "workers"}, {"InstanceType", "ml.g5.xlarge"}, {"InstanceCount", 2}, {"ExecutionRole", role}, {"InstanceStorageConfigs", std::move(configs)}});
  };
  const auto volume = [](Json config) { return Json::array({Json::object({{"EbsVolumeConfig", std::move(config)}})}); };
  const auto sized = [&](int gib) { return volume(Json::object({{"VolumeSizeInGB", gib}})); };
  const auto create = [&](Json configs) {
    return call("CreateCluster", Json::object({{"ClusterName", "k"}, {"NodeProvisioningMode", "Continuous"}, {"Orchestrator", Json::object({{"Eks", Json::object({{"ClusterArn", "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})}})}, {"VpcConfig", Json::object({{"SecurityGroupIds", Json::array({Json("sg-12345678")})}, {"Subnets", Json::array({Json("subnet-12345678")})}})}, {"InstanceGroups", Json::array({workers(std::move(configs))})}}));
  };
  for (const auto& [configs, says] : {std::pair(volume(Json::object({{"VolumeSizeInGB", 10}, {"VolumeKmsKeyId", "alias/mine"}})), "InstanceStorageConfigs of group workers: VolumeKmsKeyId: Alias arn:aws:kms:fairlead-1:111122223333:alias/mine is not found"),
                                      std::pair(volume(Json::object({{"VolumeSizeInGB", 10}, {"VolumeKmsKeyId", ""}})), "volumeKmsKeyId names no key"),
                                      std::pair(volume(Json::object({{"RootVolume", true}, {"VolumeKmsKeyId", "alias/mine"}})), "rootVolume is not served: the root of a machine is its own"),
                                      std::pair(volume(Json::object()), "volumeSizeInGB is a whole number from 1 to 16384"),
                                      std::pair(Json::array({sized(1).items()[0], sized(2).items()[0]}), "one volume beside the root is served"),
                                      std::pair(Json::array({Json::object({{"FsxLustreConfig", Json::object({{"DnsName", "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"}, {"MountName", "m"}})}})}), "FSx file systems are not served")}) {
    const auto said = create(configs);
    EXPECT_EQ(said.code, "ValidationException") << said.body;
    EXPECT_THAT(said.message, HasSubstr(says));
  }
  ASSERT_EQ(create(sized(500)).status, 200);
  EXPECT_EQ(api::read_cluster(object("k")).groups[0].volume_gib, 500);
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "k"}})).json["InstanceGroups"].items()[0]["InstanceStorageConfigs"], sized(500));
  const auto update = [&](Json group) { return call("UpdateCluster", Json::object({{"ClusterName", "k"}, {"InstanceGroups", Json::array({std::move(group)})}})); };
  EXPECT_THAT(update(workers(sized(400))).message, HasSubstr("a volume does not shrink (it has 500 GiB)"));
  Json without = workers(sized(1));
  without.erase("InstanceStorageConfigs");
  ASSERT_EQ(update(without).status, 200);
  EXPECT_EQ(api::read_cluster(object("k")).groups[0].volume_gib, 500) << "what is not said stays";
  ASSERT_EQ(update(workers(sized(600))).status, 200);
  EXPECT_EQ(api::read_cluster(object("k")).groups[0].volume_gib, 600);
}

TEST_F(MadeClusters, KeysOfVolumesAreAskedForInTheCallersName) {
  const auto made = site.api.create(api::kVolumeKeys, *kube::parse_json(R"({"metadata": {"name": "mine"}, "spec": {"aliases": ["alias/mine"]}})"));
  ASSERT_TRUE(made);
  const auto config = [](const char* key) { return Json::array({Json::object({{"EbsVolumeConfig", Json::object({{"VolumeSizeInGB", 10}, {"VolumeKmsKeyId", key}})}})}); };
  const auto workers = [&](const char* key, int count = 1) { return Json::array({Json::object({{"InstanceGroupName", "workers"}, {"InstanceType", "ml.g5.xlarge"}, {"InstanceCount", count}, {"ExecutionRole", role}, {"InstanceStorageConfigs", config(key)}})}); };
  const Json input = Json::object({{"ClusterName", "k"}, {"NodeProvisioningMode", "Continuous"}, {"Orchestrator", Json::object({{"Eks", Json::object({{"ClusterArn", "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})}})}, {"VpcConfig", Json::object({{"SecurityGroupIds", Json::array({Json("sg-12345678")})}, {"Subnets", Json::array({Json("subnet-12345678")})}})}, {"InstanceGroups", workers("alias/mine")}});
  const auto user = [&](const char* name, const std::string& kms) { return site.user(name, {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["sagemaker:*", "iam:PassRole"], "Resource": "*"})" + kms + "]}"}); };
  EXPECT_THAT(site.call(user("eve", ""), "CreateCluster", input).message, HasSubstr("kms:GenerateDataKeyWithoutPlaintext"));
  EXPECT_THAT(site.call(user("bob", R"(, {"Effect": "Allow", "Action": ["kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey"], "Resource": "*"})"), "CreateCluster", input).message, HasSubstr("kms:CreateGrant"));
  Json key = site.api.get(api::kVolumeKeys, {"", "mine"}).value();
  key.child("spec").set("enabled", false);
  key = site.api.update(api::kVolumeKeys, key).value();
  EXPECT_THAT(call("CreateCluster", input).message, HasSubstr("InstanceStorageConfigs of group workers: key mine is disabled"));
  EXPECT_TRUE(site.api.all("clusters").empty());
  key.child("spec").set("enabled", true);
  ASSERT_TRUE(site.api.update(api::kVolumeKeys, key));
  const auto cal = user("cal", R"(, {"Effect": "Allow", "Action": "kms:GenerateDataKeyWithoutPlaintext", "Resource": "*"}, {"Effect": "Allow", "Action": ["kms:DescribeKey", "kms:CreateGrant"], "Resource": "*", "Condition": {"StringEquals": {"kms:ViaService": "ec2.fairlead-1.amazonaws.com"}}})");
  ASSERT_EQ(site.call(cal, "CreateCluster", input).status, 200);
  EXPECT_EQ(api::read_cluster(object("k")).groups[0].volume_key, "alias/mine");
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "k"}})).json["InstanceGroups"].items()[0]["InstanceStorageConfigs"], config("alias/mine"));
  const auto update = [&](Json groups) { return call("UpdateCluster", Json::object({{"ClusterName", "k"}, {"InstanceGroups", std::move(groups)}})); };
  EXPECT_THAT(update(workers("alias/aws/ebs")).message, HasSubstr("VolumeKmsKeyId does not change"));
  EXPECT_EQ(update(workers("alias/mine", 2)).status, 200);
}

TEST_F(MadeClusters, OfAKubernetesThatCannotHaveThemAreRefusedBeforeAnythingIsMade) {
  const Json workers = Json::object({{"InstanceGroupName", "workers"}, {"InstanceType", "ml.g5.xlarge"}, {"InstanceCount", 2}, {"ExecutionRole", role}});
  Json input = Json::object({{"ClusterName", "k"}, {"NodeProvisioningMode", "Continuous"}, {"Orchestrator", Json::object({{"Eks", Json::object({{"ClusterArn", "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})}})}, {"VpcConfig", Json::object({{"SecurityGroupIds", Json::array({Json("sg-12345678")})}, {"Subnets", Json::array({Json("subnet-12345678")})}})}, {"InstanceGroups", Json::array({workers})}});
  const kube::Resource daemon_sets{"apps", "v1", "daemonsets", "DaemonSet", true};
  ASSERT_TRUE(site.api.create(daemon_sets, *kube::parse_json(R"({"metadata": {"name": "aws-node", "namespace": "kube-system"}, "spec": {"template": {"spec": {"containers": [{"name": "aws-node", "image": "x/amazon-k8s-cni:v1.17.0"}]}}}})")));
  ASSERT_TRUE(site.api.create(kube::resources::config_maps, *kube::parse_json(R"({"metadata": {"name": "fairlead-networks", "namespace": "fairlead-system"}, "data": {"subnet-12345678": "public 10.0.0.0/16"}})")));
  input.set("ClusterRole", role);
  auto said = call("CreateCluster", input);
  EXPECT_EQ(said.code, "ValidationException");
  EXPECT_THAT(said.message, HasSubstr("This Kubernetes cannot orchestrate the cluster: cni: Amazon VPC CNI (kube-system/aws-node) is 1.17.0; 1.18.3 or newer is needed"));
  EXPECT_THAT(said.message, HasSubstr("subnets: subnet-12345678 is public"));
  EXPECT_THAT(said.message, HasSubstr("roles: ClusterRole is the ExecutionRole of group workers"));
  EXPECT_TRUE(site.api.all("clusters").empty());
  // What Slurm orchestrates is asked none of it.
  EXPECT_EQ(call("CreateCluster", request()).status, 200);
  ASSERT_TRUE(site.api.remove(daemon_sets, {"kube-system", "aws-node"}));
  ASSERT_TRUE(site.api.remove(kube::resources::config_maps, {"fairlead-system", "fairlead-networks"}));
  input.erase("ClusterRole");
  EXPECT_EQ(call("CreateCluster", input).status, 200) << "what is not known keeps nobody from it";
}

TEST_F(MadeClusters, RolesHaveToBePassed) {
  const auto eve = site.user("eve", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}})"});
  const auto said = site.call(eve, "CreateCluster", request());
  EXPECT_EQ(said.code, "AccessDeniedException");
  EXPECT_THAT(said.message, HasSubstr("iam:PassRole"));
  const auto bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}, {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "*", "Condition": {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}}]})"});
  EXPECT_EQ(site.call(bob, "CreateCluster", request()).status, 200);
  // A role that he may not pass is not looked for either.
  Json other = request("other");
  other.child("InstanceGroups").items()[0].set("ExecutionRole", "arn:aws:iam::111122223333:role/nobody");
  EXPECT_EQ(site.call(eve, "CreateCluster", other).code, "AccessDeniedException");
}

TEST_F(MadeClusters, TypesAndNetworksOfARequestDecide) {
  const auto who = [&](const char* name, const char* more) { return site.user(name, {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["sagemaker:*", "iam:PassRole"], "Resource": "*"}, )" + std::string(more) + "]}"}); };
  const auto eve = who("eve", R"({"Effect": "Deny", "Action": ["sagemaker:CreateCluster", "sagemaker:UpdateCluster"], "Resource": "*", "Condition": {"ForAnyValue:StringLike": {"sagemaker:InstanceTypes": "ml.g5*"}}})");
  EXPECT_EQ(site.call(eve, "CreateCluster", request()).code, "AccessDeniedException");
  Json plain = request();
  plain.child("InstanceGroups").items()[1].set("InstanceType", "ml.m5.large");
  EXPECT_EQ(site.call(eve, "CreateCluster", plain).status, 200);
  tell("InService");
  Json more = request()["InstanceGroups"].items()[1];
  more.set("InstanceGroupName", "more");
  const Json update = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({more})}});
  EXPECT_EQ(site.call(eve, "UpdateCluster", update).code, "AccessDeniedException");
  EXPECT_EQ(call("UpdateCluster", update).status, 200);
  // A role whose tags he may not pass.
  site.identity("Role", "node", {}, Json::object({{"trustPolicy", R"({"Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}})"}, {"tags", Json::array({Json::object({{"key", "team"}, {"value", "other"}})})}}));
  const auto bob = who("bob", R"({"Effect": "Deny", "Action": "iam:PassRole", "Resource": "*", "Condition": {"StringEquals": {"iam:ResourceTag/team": "other"}}})");
  EXPECT_THAT(site.call(bob, "CreateCluster", request("bobs")).message, HasSubstr("iam:PassRole"));
}

TEST_F(MadeClusters, RolesHaveToTrustTheService) {
  const auto with = [&](const char* name, const char* trust, const char* operation = "CreateCluster") {
    site.identity("Role", "node", {}, trust == nullptr ? Json::object() : Json::object({{"trustPolicy", trust}}));
    const auto said = call(operation, request(name));
    return said.code + ": " + said.message;
  };
  for (const char* const trust : {static_cast<const char*>(nullptr),
                                  R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"AWS": "111122223333"}, "Action": "sts:AssumeRole"}})",
                                  R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}})",
                                  R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:TagSession"}})",
                                  R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}, {"Effect": "Deny", "Principal": "*", "Action": "sts:*"}]})",
                                  R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole", "Condition": {"StringEquals": {"aws:SourceAccount": "999999999999"}}}})",
                                  R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole", "Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:fairlead-1:111122223333:notebook-instance/*"}}}})"}) {
    const std::string said = with("ml", trust);
    EXPECT_THAT(said, testing::StartsWith("ValidationException: Could not assume role arn:aws:iam::111122223333:role/node. Please ensure that the role exists and allows principal 'sagemaker.amazonaws.com' to assume the role")) << (trust == nullptr ? "none" : trust);
    EXPECT_THAT(said, HasSubstr(R"("Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"})"));
  }
  EXPECT_TRUE(site.api.all("clusters").empty());
  EXPECT_THAT(with("ml", R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": ["ec2.amazonaws.com", "sagemaker.amazonaws.com"]}, "Action": "sts:AssumeRole", "Condition": {"StringEquals": {"aws:SourceAccount": "111122223333"}, "ArnLike": {"aws:SourceArn": "arn:aws:sagemaker:*:111122223333:cluster/*"}}}})"), testing::StartsWith(": "));
  site.index.put(object("ml"));
  // What is given out again later is looked at again.
  site.identity("Role", "node", {});
  EXPECT_THAT(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroups", request()["InstanceGroups"]}})).message, HasSubstr("Could not assume role"));
}

// A role for scaling is assumed by another service; one that serves both will do.
TEST_F(MadeClusters, ARoleOfTheClusterTrustsAnotherService) {
  const auto with = [&](const char* name, const char* service) {
    site.identity("Role", "scale", {}, Json::object({{"trustPolicy", fmt::format(R"({{"Statement": {{"Effect": "Allow", "Principal": {{"Service": "{}"}}, "Action": "sts:AssumeRole"}}}})", service)}}));
    return call("CreateCluster", request(name).set("ClusterRole", "arn:aws:iam::111122223333:role/scale")).message;
  };
  EXPECT_THAT(with("a", "ec2.amazonaws.com"), HasSubstr("allows principal 'hyperpod.sagemaker.amazonaws.com'"));
  EXPECT_EQ(with("b", "hyperpod.sagemaker.amazonaws.com"), "");
  EXPECT_EQ(with("c", "sagemaker.amazonaws.com"), "");
}

// The role that is found is the one that he may pass, path and all.
TEST_F(MadeClusters, APathThatIsMadeUpPassesNoOtherRole) {
  site.node_role("admin");
  const auto bea = site.user("bea", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}, {"Effect": "Allow", "Action": "iam:PassRole", "Resource": "arn:aws:iam::111122223333:role/dev/*"}]})"});
  Json input = request();
  for (Json& one : input.child("InstanceGroups").items()) one.set("ExecutionRole", "arn:aws:iam::111122223333:role/dev/admin");
  const auto said = site.call(bea, "CreateCluster", input);
  EXPECT_EQ(said.code, "ValidationException");
  EXPECT_THAT(said.message, HasSubstr("role/dev/admin not found"));
}

// A change that was taken back is neither told nor asked for again by the next one.
TEST_F(MadeClusters, AChangeThatWasTakenBackIsOver) {
  ASSERT_EQ(call("CreateCluster", request("ml", 2, false)).status, 200);
  Json now = object();
  now.child("status").set("phase", "InService").set("good", Json::object({{"generation", 1}, {"spec", now["spec"]}})).set("failed", Json::object({{"generation", 2}, {"message", "no machine"}}));
  now.child("metadata").set("generation", 2);
  for (Json& one : now.child("spec").child("instanceGroups").items())
    if (one["instanceGroupName"].string() == "gpu") one.set("instanceCount", 100).set("issued", 100);
  ASSERT_TRUE(site.api.put(api::kClusters, now));
  site.index.put(object());
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json["InstanceGroups"].items()[1]["TargetCount"].integer(), 2);
  ASSERT_EQ(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({group("people", "ml.t3.medium", 1, "Login")})}})).status, 200);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 2);
  EXPECT_EQ(group_of("gpu")["issued"].integer(), 100) << "numbers that were given out stay so";
}

TEST_F(MadeClusters, WhoMayNotCostsTheApiNothing) {
  const auto eve = site.user("eve", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}})"});
  Racing watched(site.api);
  watched.unreadable = "clusters";
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(watched)), site.clock, FrontOptions{.per_second = 0, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  const std::string arn = "arn:aws:sagemaker:fairlead-1:111122223333:cluster/aaaaaaaaaaaa";
  EXPECT_EQ(site.call(eve, "DescribeCluster", Json::object({{"ClusterName", arn}})).code, "AccessDeniedException");
  EXPECT_EQ(site.call(ada, "DescribeCluster", Json::object({{"ClusterName", arn}})).code, "ServiceUnavailable") << "who may is told what is there";
}

TEST_F(MadeClusters, TokensAreKeptToABound) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  Json now = object();
  for (int i = 0; i < 500; ++i) now.child("spec").child("additions").push(Json::object({{"token", std::to_string(i)}, {"at", print_time(site.clock.now())}}));
  ASSERT_TRUE(site.api.put(api::kClusters, now));
  Json input = Json::object({{"ClusterName", "ml"}, {"ClientToken", "t"}, {"NodesToAdd", Json::array({Json::object({{"InstanceGroupName", "gpu"}, {"IncrementTargetCountBy", 1}})})}});
  EXPECT_EQ(call("BatchAddClusterNodes", input).code, "ThrottlingException");
  site.clock.advance(std::chrono::hours(8));
  EXPECT_EQ(call("BatchAddClusterNodes", input).status, 200);
  EXPECT_EQ(object()["spec"]["additions"].items().size(), 1u);
}

TEST_F(MadeClusters, UpdateChangesWhatIsNamed) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  Json changed = group("gpu", "ml.g5.xlarge", 5, "Compute", "train");
  Json input = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({changed, group("cpu", "ml.m5.xlarge", 1, "Compute", "cpu")})}});
  ASSERT_EQ(call("UpdateCluster", input).status, 200);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 5);
  EXPECT_EQ(group_of("head")["instanceCount"].integer(), 1);
  EXPECT_EQ(object()["spec"]["instanceGroups"].items().size(), 3u);
  ASSERT_EQ(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroupsToDelete", Json::array({Json("cpu")})}})).status, 200);
  EXPECT_EQ(object()["spec"]["instanceGroups"].items().size(), 2u);
  EXPECT_THAT(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroupsToDelete", Json::array({Json("head")})}})).message, HasSubstr("has the controllers"));
  changed.set("InstanceType", "ml.g5.2xlarge");
  EXPECT_THAT(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({changed})}})).message, HasSubstr("InstanceType of group gpu does not change"));
  changed.set("InstanceType", "ml.g5.xlarge").set("SlurmConfig", Json::object({{"NodeType", "Compute"}, {"PartitionNames", Json::array({Json("other")})}}));
  EXPECT_THAT(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({changed})}})).message, HasSubstr("PartitionNames of group gpu do not change"));
  EXPECT_EQ(call("UpdateCluster", Json::object({{"ClusterName", "none"}, {"InstanceGroupsToDelete", Json::array({Json("x")})}})).code, "ResourceNotFound");
}

TEST_F(MadeClusters, AllOrNothingIsChangedWhenItIsInService) {
  ASSERT_EQ(call("CreateCluster", request("ml", 2, false)).status, 200);
  const Json input = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({group("gpu", "ml.g5.xlarge", 3, "Compute", "train")})}});
  EXPECT_EQ(call("UpdateCluster", input).code, "ConflictException");
  tell("InService");
  EXPECT_EQ(call("UpdateCluster", input).status, 200);
  EXPECT_THAT(call("BatchAddClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodesToAdd", Json::array({Json::object({{"InstanceGroupName", "gpu"}, {"IncrementTargetCountBy", 1}})})}})).message, HasSubstr("NodeProvisioningMode Continuous"));
}

TEST_F(MadeClusters, ManagedSlurmIsNotUpdatedOverPartitionsOfPeople) {
  const auto strategy = [](const char* which) { return Json::object({{"Slurm", Json::object({{"SlurmConfigStrategy", which}})}}); };
  EXPECT_THAT(call("CreateCluster", request("other", 2, true).set("Orchestrator", strategy("Merge"))).message, HasSubstr("not for NodeProvisioningMode Continuous"));
  ASSERT_EQ(call("CreateCluster", request("ml", 2, false).set("Orchestrator", strategy("Managed"))).status, 200);
  tell("InService");
  const Json input = Json::object({{"ClusterName", "ml"}, {"InstanceGroups", Json::array({group("gpu", "ml.g5.xlarge", 3, "Compute", "train")})}});
  const auto update = [&](Json with = Json()) { return call("UpdateCluster", with.is_null() ? input : Json(input).set("Orchestrator", std::move(with))); };
  EXPECT_EQ(update().status, 200) << "nothing is there yet";
  const auto lines = [&](std::vector<Json> of) { return Json::object({{"partitionConfiguration", Json::object({{"configType", "custom"}, {"rawConfig", Json::array(std::move(of))}})}}); };
  Json slurm = *site.api.create(kube::resources::slurm_clusters, Json::object({{"metadata", Json::object({{"name", "ml"}, {"namespace", "cluster-ml"}, {"annotations", Json::object({{"fairlead.dev/partitions", "dev,train"}})}})}, {"spec", lines({"PartitionName=dev Nodes=ALL", "PartitionName=train Nodes=gpu"})}}));
  tell("InService");
  EXPECT_EQ(update().status, 200);
  ASSERT_TRUE(site.api.update(kube::resources::slurm_clusters, slurm.set("spec", lines({"PartitionName=dev Nodes=ALL", "PartitionName=night Nodes=gpu"}))));
  tell("InService");
  const auto refused = update();
  EXPECT_EQ(refused.code, "ValidationException");
  EXPECT_THAT(refused.message, HasSubstr("SlurmCluster cluster-ml/ml has partitions that are of no group: night."));
  EXPECT_EQ(update(strategy("Overwrite")).status, 200);
  EXPECT_EQ(object()["spec"]["orchestrator"]["slurm"]["slurmConfigStrategy"].string(), "Overwrite");
  tell("InService");
  EXPECT_EQ(update(strategy("Managed")).code, "ValidationException");
  EXPECT_EQ(update(strategy("Merge")).status, 200);
  tell("InService");
  ASSERT_TRUE(site.api.remove(kube::resources::slurm_clusters, {"cluster-ml", "ml"}, {}));
  ASSERT_EQ(update(strategy("Managed")).status, 200);
  ASSERT_TRUE(site.api.create(kube::resources::slurm_clusters, Json::object({{"metadata", Json::object({{"name", "ml"}, {"namespace", "cluster-ml"}})}, {"spec", lines({"PartitionName=night Nodes=gpu"})}})));
  tell("InService");
  EXPECT_EQ(update().code, "ValidationException");
  ASSERT_EQ(call("UpdateCluster", Json(input).set("NodeProvisioningMode", "Continuous")).status, 200) << "which keeps them";
  EXPECT_FALSE(object()["spec"]["orchestrator"]["slurm"].has("slurmConfigStrategy")) << "it has no meaning any more";
}

struct ToldAlarms final : api::Alarms {
  api::Alarm told;
  std::map<std::string, api::Alarm> look(const std::vector<std::string>& names) const override {
    std::map<std::string, api::Alarm> out;
    for (const std::string& name : names) out[name] = told;
    return out;
  }
};

TEST_F(MadeClusters, AnUpdateIsNotBegunUnderAnAlarm) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  tell("InService");
  const auto alarms = std::make_shared<ToldAlarms>();
  site.alarms = alarms;
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(site.api)), site.clock, FrontOptions{.per_second = 0, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  using State = api::Alarm::State;
  const auto ask = [&](const char* names = R"([{"AlarmName": "slow"}])") {
    return call("UpdateClusterSoftware", Json::object({{"ClusterName", "ml"}, {"DeploymentConfig", Json::object({{"AutoRollbackConfiguration", *kube::parse_json(names)}, {"RollingUpdatePolicy", *kube::parse_json(R"({"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "RollbackMaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 50}})")}})}}));
  };
  for (const auto& [state, words] : {std::pair(State::Firing, "alarm slow fires now: why; the update is not begun"), {State::Pending, "alarm slow is about to fire: why"}, {State::Missing, "there is no alarm slow: why"}, {State::Unknown, "whether alarm slow is well is not known: why"}}) {
    alarms->told = {.state = state, .message = "why"};
    const auto said = ask();
    EXPECT_EQ(said.code, "ValidationException");
    EXPECT_THAT(said.message, HasSubstr(words));
  }
  alarms->told = {.state = State::Ok, .message = {}};
  EXPECT_THAT(ask(R"([{"AlarmName": "slow"}, {"AlarmName": "slow"}])").message, HasSubstr("alarm slow is there twice"));
  EXPECT_TRUE(object()["spec"]["softwareUpdate"].is_null());
  ASSERT_EQ(ask().status, 200);
  const api::SoftwareUpdate read = api::read_cluster(object()).software;
  EXPECT_EQ(read.alarms, std::vector<std::string>{"slow"});
  EXPECT_EQ(read.back_batch.of(8), 4);
}

TEST_F(MadeClusters, AnUpdateOfTheSoftwareIsARequestInTheSpec) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  tell("Creating");
  EXPECT_EQ(call("UpdateClusterSoftware", Json::object({{"ClusterName", "ml"}})).code, "ConflictException");
  tell("InService");
  const auto ask = [&](const char* more) {
    Json input = *kube::parse_json(more);
    input.set("ClusterName", "ml");
    return call("UpdateClusterSoftware", input);
  };
  for (const auto& [more, words] : std::map<std::string, std::string>{
           {R"({"InstanceGroups": [{"InstanceGroupName": "cpu"}]})", "InstanceGroups[0]: there is no group cpu"},
           {R"({"InstanceGroups": [{"InstanceGroupName": "gpu"}, {"InstanceGroupName": "gpu"}]})", "InstanceGroups[1]: group gpu is there twice"},
           {R"({"InstanceGroups": [{"InstanceGroupName": "gpu", "ImageReleaseVersion": "1.2.3"}]})", "ImageReleaseVersion is not served yet"},
           {R"({"ImageId": "ami-0123456789abcdef0"})", "ImageId: only default is served yet"},
           {R"({"DeploymentConfig": {"AutoRollbackConfiguration": [{"AlarmName": "a"}]}})", "AutoRollbackConfiguration: this server knows of no alarms"},
           {R"({"DeploymentConfig": {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "RollbackMaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}}}})", "RollbackMaximumBatchSize: an update is rolled back where AutoRollbackConfiguration names an alarm"},
           {R"({"DeploymentConfig": {"AutoRollbackConfiguration": [{"AlarmName": "a"}], "RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "RollbackMaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 101}}}})", "RollbackMaximumBatchSize.Value: a percentage is 100 at most"},
           {R"({"DeploymentConfig": {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 101}}}})", "a percentage is 100 at most"}}) {
    const auto said = ask(more.c_str());
    EXPECT_EQ(said.code, "ValidationException") << more;
    EXPECT_THAT(said.body, HasSubstr(words));
  }
  EXPECT_TRUE(object()["spec"]["softwareUpdate"].is_null());
  const auto said = ask(R"({"InstanceGroups": [{"InstanceGroupName": "gpu"}], "DeploymentConfig": {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "CAPACITY_PERCENTAGE", "Value": 25}}, "WaitIntervalInSeconds": 60}})");
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_TRUE(said.json.has("ClusterArn"));
  const Json asked = object()["spec"]["softwareUpdate"];
  EXPECT_EQ(asked["instanceGroups"].items().size(), 1u);
  const api::SoftwareUpdate read = api::read_cluster(object()).software;
  EXPECT_TRUE(read.of("gpu") && !read.of("head"));
  EXPECT_EQ(read.batch.of(8), 2);
  EXPECT_EQ(read.batch.of(3), 1);
  EXPECT_EQ(read.wait, std::chrono::seconds(60));
  // At once, before the controller has seen it; and there is one at a time.
  site.index.put(object());
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json["ClusterStatus"].string(), "SystemUpdating");
  EXPECT_EQ(ask("{}").code, "ConflictException");
  // As the controller tells it.
  Json changed = object();
  changed.child("status").set("softwareUpdate", Json::object({{"id", asked["id"]}, {"phase", "InProgress"}, {"instanceGroups", *kube::parse_json(R"([{"instanceGroupName": "gpu", "status": "InProgress"}])")}})).set("phase", "SystemUpdating");
  ASSERT_TRUE(site.api.put(api::kClusters, changed));
  const auto described = call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json;
  EXPECT_EQ(described["ClusterStatus"].string(), "SystemUpdating");
  EXPECT_FALSE(described["InstanceGroups"].items()[0].has("SoftwareUpdateStatus"));
  EXPECT_EQ(described["InstanceGroups"].items()[1]["SoftwareUpdateStatus"].string(), "InProgress");
  EXPECT_EQ(described["InstanceGroups"].items()[1]["ActiveSoftwareUpdateConfig"]["WaitIntervalInSeconds"].integer(), 60);
  const std::string id = instance("gpu", 1);
  Json done = site.api.all("instances").at({"", id});
  done.child("status").set("software", Json::object({{"id", asked["id"]}, {"stage", "Done"}, {"updated", "2026-11-26T12:00:00Z"}}));
  ASSERT_TRUE(site.api.put(api::kInstances, done));
  EXPECT_TRUE(call("DescribeClusterNode", Json::object({{"ClusterName", "ml"}, {"NodeId", id}})).json["NodeDetails"].has("LastSoftwareUpdateTime"));
  EXPECT_TRUE(call("ListClusterNodes", Json::object({{"ClusterName", "ml"}})).json["ClusterNodeSummaries"].items()[0].has("LastSoftwareUpdateTime"));
}

// Whoever asked for a change and waits for InService does not find that of before.
TEST_F(MadeClusters, AChangeIsToldBeforeTheControllerHasSeenIt) {
  ASSERT_EQ(call("CreateCluster", request("ml", 2, false)).status, 200);
  Json served = object();
  served.child("metadata").set("generation", 1);
  served.child("status").set("phase", "InService").set("observedGeneration", 1);
  ASSERT_TRUE(site.api.put(api::kClusters, served));
  EXPECT_EQ(cluster_status(object()), "InService");
  served.child("metadata").set("generation", 2);
  ASSERT_TRUE(site.api.put(api::kClusters, served));
  EXPECT_EQ(cluster_status(object()), "Updating");
  served.child("spec").set("nodeProvisioningMode", "Continuous");
  EXPECT_EQ(cluster_status(served), "InService");
}

TEST_F(MadeClusters, DeleteIsAlwaysPossible) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  Json held = object();
  kube::add_finalizer(held, api::kClusterFinalizer);
  ASSERT_TRUE(site.api.put(api::kClusters, held));
  EXPECT_EQ(call("DeleteCluster", Json::object({{"ClusterName", "ml"}})).status, 200);
  EXPECT_TRUE(kube::deleting(object()));
  EXPECT_EQ(call("DeleteCluster", Json::object({{"ClusterName", "ml"}})).status, 200);
  EXPECT_EQ(call("DescribeCluster", Json::object({{"ClusterName", "ml"}})).json["ClusterStatus"].string(), "Deleting");
  EXPECT_EQ(call("UpdateCluster", Json::object({{"ClusterName", "ml"}, {"NodeRecovery", "None"}})).code, "ConflictException");
  site.api.all("clusters").clear();
  EXPECT_EQ(call("DeleteCluster", Json::object({{"ClusterName", "ml"}})).code, "ResourceNotFound");
  site.cluster("lab", "slurm");
  EXPECT_THAT(call("DeleteCluster", Json::object({{"ClusterName", "slurm"}})).message, HasSubstr("delete SlurmCluster lab/slurm"));
  EXPECT_EQ(site.api.all("slurmclusters").size(), 1u);
}

TEST_F(MadeClusters, AddedNodesAreNamedAndATokenAddsThemOnce) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  const auto ask = [&](const std::string& token, int count, const std::string& to = "gpu") {
    Json input = Json::object({{"ClusterName", "ml"}, {"NodesToAdd", Json::array({Json::object({{"InstanceGroupName", to}, {"IncrementTargetCountBy", count}})})}});
    if (!token.empty()) input.set("ClientToken", token);
    return call("BatchAddClusterNodes", input);
  };
  const auto first = ask("t1", 2);
  ASSERT_EQ(first.status, 200) << first.body;
  ASSERT_EQ(first.json["Successful"].items().size(), 2u);
  EXPECT_EQ(first.json["Successful"].items()[0]["Status"].string(), "Pending");
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 4);
  const std::string uid = kube::uid_of(object());
  EXPECT_EQ(first.json["Successful"].items()[1]["NodeLogicalId"].string(), api::logical_id_of(uid, "gpu", 2));
  // Again: the same ids, as they are by now.
  instance("gpu", 1);
  const auto again = ask("t1", 2);
  EXPECT_EQ(again.json["Successful"].items()[0]["NodeLogicalId"], first.json["Successful"].items()[0]["NodeLogicalId"]);
  EXPECT_EQ(again.json["Successful"].items()[0]["Status"].string(), "Running");
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 4);
  EXPECT_THAT(ask("t1", 3).message, HasSubstr("ClientToken was used for another request"));
  const auto other = ask("t2", 1);
  EXPECT_EQ(other.json["Successful"].items()[0]["NodeLogicalId"].string(), api::logical_id_of(uid, "gpu", 3));
  EXPECT_EQ(ask("", 1).json["Successful"].items().size(), 1u);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 6);
  // Eight hours later it is another call.
  site.clock.advance(std::chrono::hours(8));
  EXPECT_EQ(ask("t1", 2).json["Successful"].items()[0]["NodeLogicalId"].string(), api::logical_id_of(uid, "gpu", 5));
  const auto nowhere = ask("t3", 4, "none");
  EXPECT_THAT(nowhere.json["Successful"].items(), IsEmpty());
  EXPECT_EQ(nowhere.json["Failed"].items()[0]["ErrorCode"].string(), "InstanceGroupNotFound");
  EXPECT_EQ(nowhere.json["Failed"].items()[0]["FailedCount"].integer(), 4);
}

// A number that the controller has given out, and told in status, is not given out again.
TEST_F(MadeClusters, AddedNodesGetNumbersThatNobodyHas) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  Json told = object();
  told.child("status").set("instanceGroups", Json::array({Json::object({{"instanceGroupName", "gpu"}, {"issued", 7}})}));
  ASSERT_TRUE(site.api.put(api::kClusters, told));
  const auto said = call("BatchAddClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodesToAdd", Json::array({Json::object({{"InstanceGroupName", "gpu"}, {"IncrementTargetCountBy", 1}})})}}));
  EXPECT_EQ(said.json["Successful"].items()[0]["NodeLogicalId"].string(), api::logical_id_of(kube::uid_of(object()), "gpu", 8));
}

TEST_F(MadeClusters, DeletedNodesLowerTheTargetInOneWrite) {
  ASSERT_EQ(call("CreateCluster", request("ml", 3)).status, 200);
  const std::string first = instance("gpu", 1), third = instance("gpu", 3), head = instance("head", 1);
  const std::string logical = api::logical_id_of(kube::uid_of(object()), "gpu", 3);
  const auto said = call("BatchDeleteClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodeIds", Json::array({Json(first), Json(head), Json("i-0123456789abcdef0")})}, {"NodeLogicalIds", Json::array({Json(logical)})}}));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(kube::print_json(said.json["Successful"]), fmt::format(R"(["{}"])", first));
  EXPECT_EQ(said.json["Failed"].items()[0]["Code"].string(), "InvalidNodeStatus");
  EXPECT_EQ(said.json["Failed"].items()[1]["Code"].string(), "NodeIdNotFound");
  EXPECT_EQ(said.json["SuccessfulNodeLogicalIds"].items()[0].string(), logical);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 1);
  EXPECT_EQ(group_of("gpu")["retired"].string(), "1,3");
  EXPECT_EQ(group_of("head")["instanceCount"].integer(), 1);
  // Said twice it counts once.
  const auto again = call("BatchDeleteClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodeIds", Json::array({Json(first)})}}));
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 1);
  EXPECT_EQ(call("BatchDeleteClusterNodes", Json::object({{"ClusterName", "ml"}})).code, "ValidationException");
}

TEST_F(MadeClusters, RebootAndReplaceAreRequestsAtTheInstance) {
  ASSERT_EQ(call("CreateCluster", request("ml", 3)).status, 200);
  tell("InService");
  const std::string one = instance("gpu", 1), two = instance("gpu", 2), head = instance("head", 1), gone = instance("gpu", 3, "ShuttingDown");
  const auto reboot = call("BatchRebootClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodeIds", Json::array({Json(one), Json(head), Json(gone)})}}));
  EXPECT_EQ(reboot.json["Successful"].items().size(), 2u);
  EXPECT_EQ(reboot.json["Failed"].items()[0]["ErrorCode"].string(), "InvalidInstanceStatus");
  EXPECT_EQ(site.api.all("instances").at({"", one})["spec"]["reboot"]["by"].string(), "arn:aws:iam::111122223333:user/ada");
  EXPECT_EQ(call("BatchRebootClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodeIds", Json::array({Json(one)})}})).json["Failed"].items()[0]["ErrorCode"].string(), "InstanceIdInUse");
  const auto replace = call("BatchReplaceClusterNodes", Json::object({{"ClusterName", "ml"}, {"NodeLogicalIds", Json::array({Json(api::logical_id_of(kube::uid_of(object()), "gpu", 2))})}, {"NodeIds", Json::array({Json(head)})}}));
  EXPECT_EQ(replace.json["SuccessfulNodeLogicalIds"].items().size(), 1u);
  EXPECT_EQ(replace.json["Failed"].items()[0]["Message"].string(), "A Slurm controller is not replaced");
  EXPECT_FALSE(site.api.all("instances").at({"", two})["spec"]["replace"]["id"].string().empty());
}

// A cluster of the same id in another account, region or partition is none.
TEST_F(MadeClusters, WhatIsOfAnotherAccountIsNotThere) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  tell("InService");
  const std::string own = site.arn(object()), id = own.substr(own.rfind('/') + 1), node = instance("gpu", 1);
  const std::string before = kube::print_json(object());
  for (const char* const begin : {"arn:aws:sagemaker:fairlead-1:999900001111:cluster/", "arn:aws:sagemaker:us-east-1:111122223333:cluster/", "arn:aws-cn:sagemaker:fairlead-1:111122223333:cluster/"}) {
    const std::string other = std::string(begin) + id;
    for (const auto& [operation, input] : std::vector<std::pair<const char*, Json>>{{"DescribeCluster", {}}, {"ListClusterNodes", {}}, {"ListClusterEvents", {}}, {"DeleteCluster", {}}, {"DescribeClusterNode", Json::object({{"NodeId", node}})}, {"BatchRebootClusterNodes", Json::object({{"NodeIds", Json::array({Json(node)})}})},
                                                                                   {"BatchDeleteClusterNodes", Json::object({{"NodeIds", Json::array({Json(node)})}})}, {"UpdateClusterSoftware", {}}, {"UpdateCluster", Json::object({{"InstanceGroups", request("ml", 9)["InstanceGroups"]}})}}) {
      Json of = input.is_object() ? input : Json::object();
      of.set("ClusterName", other);
      const auto said = call(operation, of);
      EXPECT_EQ(said.status, 400) << operation << other << said.body;
      EXPECT_THAT(said.code, testing::AnyOf("AccessDeniedException", "ResourceNotFound", "ValidationException")) << operation << other;
    }
  }
  EXPECT_EQ(kube::print_json(object()), before);
  EXPECT_TRUE(site.api.all("instances").at({"", node})["spec"]["reboot"].is_null());
}

// An SDK whose answer was lost sends its request again, and who has seen one may: neither boots a machine twice, nor takes the disks of the one that came.
TEST_F(MadeClusters, WhatIsSentAgainIsDoneOnce) {
  ASSERT_EQ(call("CreateCluster", request("ml", 3)).status, 200);
  tell("InService");
  const std::string one = instance("gpu", 1), two = instance("gpu", 2), logical = api::logical_id_of(kube::uid_of(object()), "gpu", 2);
  const auto send = [&](const char* operation, const Json& input, const char* invocation) {
    http::Request of = site.request(operation, kube::print_json(input));
    if (invocation != nullptr) of.headers.emplace_back("amz-sdk-invocation-id", invocation);
    sign_request(of, ada, "fairlead-1", "sagemaker", site.clock.now());
    return site.send(std::move(of));
  };
  const auto at = [&](const std::string& id) { return site.api.all("instances").at({"", id}); };
  const Json reboot = Json::object({{"ClusterName", "ml"}, {"NodeIds", Json::array({Json(one)})}});
  for (const char* const invocation : {"i-1", static_cast<const char*>(nullptr)}) {
    ASSERT_EQ(send("BatchRebootClusterNodes", reboot, invocation).json["Successful"].items().size(), 1u);
    const std::string id = at(one)["spec"]["reboot"]["id"].string();
    EXPECT_EQ(send("BatchRebootClusterNodes", reboot, invocation).json["Successful"].items().size(), 1u) << "while it is under way";
    Json done = at(one);
    done.child("status").set("reboot", Json::object({{"id", id}, {"stage", "Done"}}));
    ASSERT_TRUE(site.api.put(api::kInstances, done));
    if (invocation != nullptr) site.clock.advance(5s);  // an SDK signs it anew
    EXPECT_EQ(send("BatchRebootClusterNodes", reboot, invocation).json["Successful"].items().size(), 1u);
    EXPECT_EQ(at(one)["spec"]["reboot"]["id"].string(), id);
  }
  const Json replace = Json::object({{"ClusterName", "ml"}, {"NodeLogicalIds", Json::array({Json(logical)})}});
  ASSERT_EQ(send("BatchReplaceClusterNodes", replace, "i-2").json["SuccessfulNodeLogicalIds"].items().size(), 1u);
  const std::string id = at(two)["spec"]["replace"]["id"].string();
  // As the controller makes the next one.
  ASSERT_TRUE(site.api.remove(api::kInstances, {"", two}));
  Json next = at(instance("gpu", 2, "Running", 2));
  next.child("spec").set("replaces", id);
  ASSERT_TRUE(site.api.put(api::kInstances, next));
  EXPECT_EQ(send("BatchReplaceClusterNodes", replace, "i-2").json["SuccessfulNodeLogicalIds"].items().size(), 1u);
  EXPECT_TRUE(at(kube::name_of(next))["spec"]["replace"].is_null()) << "it is what came of that request";
  EXPECT_EQ(send("BatchReplaceClusterNodes", replace, "i-3").json["SuccessfulNodeLogicalIds"].items().size(), 1u);
  EXPECT_FALSE(at(kube::name_of(next))["spec"]["replace"].is_null()) << "another request";
}

TEST_F(MadeClusters, HealthChecksAreRequestsAtInstancesInUse) {
  ASSERT_EQ(call("CreateCluster", request("ml", 4)).status, 200);
  const std::string one = instance("gpu", 1), two = instance("gpu", 2), pending = instance("gpu", 3, "Pending"), gone = instance("gpu", 4, "ShuttingDown"), head = instance("head", 1);
  const auto asked = [&](const std::string& id) { return !site.api.all("instances").at({"", id})["spec"]["healthCheck"]["id"].string().empty(); };
  const auto check = [&](const std::string& group, const std::vector<std::string>& ids, const char* what = "InstanceStress") {
    Json entry = Json::object({{"InstanceGroupName", group}, {"DeepHealthChecks", Json::array({Json(what)})}});
    if (!ids.empty()) entry.set("InstanceIds", Json::array(std::vector<Json>(ids.begin(), ids.end())));
    return call("StartClusterHealthCheck", Json::object({{"ClusterName", "ml"}, {"DeepHealthCheckConfigurations", Json::array({entry, entry})}}));
  };
  EXPECT_THAT(check("gpu", {one}).message, HasSubstr("InService"));
  tell("InService");
  EXPECT_THAT(check("none", {}).message, HasSubstr("DeepHealthCheckConfigurations[0].InstanceGroupName: cluster ml has no group none"));
  EXPECT_THAT(check("head", {}).message, HasSubstr("has no compute nodes"));
  EXPECT_THAT(check("gpu", {head}).message, HasSubstr("group gpu has no instance " + head));
  EXPECT_THAT(check("gpu", {pending}).message, HasSubstr("is Pending: one that is Running can be checked"));
  for (const std::string& id : {one, two, pending, gone, head}) EXPECT_FALSE(asked(id));
  const auto said = check("gpu", {one});
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_TRUE(said.json["ClusterArn"].string().ends_with(api::entity_id(kube::uid_of(object()))));
  EXPECT_TRUE(asked(one));
  EXPECT_FALSE(asked(two));
  ASSERT_EQ(check("gpu", {}).status, 200);
  EXPECT_TRUE(asked(two));
  for (const std::string& id : {pending, gone, head}) EXPECT_FALSE(asked(id));
  // What two entries name is checked once, for all that they ask for.
  const Json both = Json::array({Json::object({{"InstanceGroupName", "gpu"}, {"InstanceIds", Json::array({Json(two)})}, {"DeepHealthChecks", Json::array({Json("InstanceStress")})}}), Json::object({{"InstanceGroupName", "gpu"}, {"DeepHealthChecks", Json::array({Json("InstanceConnectivity")})}})});
  ASSERT_EQ(call("StartClusterHealthCheck", Json::object({{"ClusterName", "ml"}, {"DeepHealthCheckConfigurations", both}})).status, 200);
  const auto checks = [&](const std::string& id) { return kube::print_json(site.api.all("instances").at({"", id})["spec"]["healthCheck"]["checks"]); };
  EXPECT_EQ(checks(one), R"(["InstanceConnectivity"])");
  EXPECT_EQ(checks(two), R"(["InstanceConnectivity","InstanceStress"])");
}

TEST_F(MadeClusters, NodesAreTold) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  const std::string one = instance("gpu", 1), old = instance("gpu", 2, "ShuttingDown"), now = instance("gpu", 2, "Pending", 2);
  Json waiting = site.api.all("instances").at({"", now});
  waiting.child("status").erase("node");
  ASSERT_TRUE(site.api.put(api::kInstances, waiting));
  EXPECT_EQ(call("ListClusterNodes", Json::object({{"ClusterName", "ml"}})).json["ClusterNodeSummaries"].items().size(), 2u) << "one has no instance yet";
  const auto all = call("ListClusterNodes", Json::object({{"ClusterName", "ml"}, {"IncludeNodeLogicalIds", true}, {"SortBy", "NAME"}}));
  EXPECT_EQ(all.json["ClusterNodeSummaries"].items().size(), 3u);
  const auto node = call("DescribeClusterNode", Json::object({{"ClusterName", "ml"}, {"NodeId", one}}));
  ASSERT_EQ(node.status, 200) << node.body;
  EXPECT_EQ(node.json["NodeDetails"]["PrivatePrimaryIp"].string(), "10.77.1.4");
  EXPECT_EQ(node.json["NodeDetails"]["InstanceStatus"]["Status"].string(), "Running");
  const auto latest = call("DescribeClusterNode", Json::object({{"ClusterName", "ml"}, {"NodeLogicalId", api::logical_id_of(kube::uid_of(object()), "gpu", 2)}}));
  EXPECT_EQ(latest.json["NodeDetails"]["InstanceStatus"]["Status"].string(), "Pending");
  EXPECT_EQ(call("DescribeClusterNode", Json::object({{"ClusterName", "ml"}, {"NodeId", "i-0123456789abcdef0"}})).code, "ResourceNotFound");
}

// The controller writes status all the time: a change takes its turn.
TEST_F(MadeClusters, AChangeThatMeetsTheControllersWritesIsMadeAgain) {
  ASSERT_EQ(call("CreateCluster", request()).status, 200);
  Racing busy(site.api);
  int between = 3;
  busy.after_get = [&](const kube::Resource& resource, const Json& read) {
    if (resource.plural != "clusters" || between-- <= 0) return;
    Json changed = read;
    changed.child("status").set("summary", std::to_string(between));
    EXPECT_TRUE(site.api.put(resource, changed));
  };
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, all_operations(site.sources(busy)), site.clock, FrontOptions{.per_second = 0, .iam = {}, .eks = {}, .eks_cluster = {}, .audit = {}});
  const auto said = call("BatchAddClusterNodes", Json::object({{"ClusterName", "ml"}, {"ClientToken", "t"}, {"NodesToAdd", Json::array({Json::object({{"InstanceGroupName", "gpu"}, {"IncrementTargetCountBy", 2}})})}}));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["Successful"].items().size(), 2u);
  EXPECT_EQ(group_of("gpu")["instanceCount"].integer(), 4);
}

// Two sources of one fact.
TEST(InstanceTypes, AreThoseOfTheModel) {
  const auto& shape = TestSite::model().shape("ClusterInstanceType");
  std::vector<std::string> ours, theirs(shape.values.begin(), shape.values.end());
  for (const api::InstanceType& type : api::instance_types()) ours.emplace_back(type.name);
  std::sort(theirs.begin(), theirs.end());
  EXPECT_EQ(ours, theirs);
  const api::InstanceType* p5 = api::find_instance_type("ml.p5.48xlarge");
  ASSERT_NE(p5, nullptr);
  EXPECT_EQ(p5->gpus, 8);
  EXPECT_EQ(p5->max_pods, 49);
  EXPECT_EQ(api::most_pods(*p5), 49);
  EXPECT_EQ(api::find_instance_type("ml.p5"), nullptr);
}

}  // namespace
}  // namespace fairlead::hyperpod
