// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/provisioning.h"

#include <gmock/gmock.h>

namespace fairlead::hyperpod {
namespace {

using kube::Json;
using testing::HasSubstr;

constexpr const char* kFile = R"({"version": "1.0.0", "workload_manager": "slurm", "controller_group": "controller-machine", "login_group": "login-group",
  "worker_groups": [{"instance_group_name": "worker-group-1", "partition_name": "partition-1"}], "fsx_dns_name": "fs-1.example", "fsx_mountname": "a"})";

struct Roles : testing::Test {
  // Groups as CreateCluster has them.
  static Json spec(const std::vector<std::string>& names, const char* uri = "s3://sagemaker-lab/base/") {
    Json groups = Json::array();
    for (const std::string& name : names) {
      Json group = Json::object({{"instanceGroupName", name}});
      if (uri != nullptr) group.set("lifeCycleConfig", Json::object({{"sourceS3Uri", uri}, {"onCreate", "on_create.sh"}}));
      groups.push(std::move(group));
    }
    return Json::object({{"instanceGroups", std::move(groups)}});
  }
  std::string settle(Json& of) {
    const auto done = settle_roles(of, [this](const std::string& bucket, const std::string& key) -> Result<std::string> {
      asked.push_back(bucket + "/" + key);
      if (!file) return fail(code, "there is no such object");
      return *file;
    });
    return done ? "" : done.error().message;
  }
  std::vector<std::string> asked;
  std::optional<std::string> file = kFile;
  Code code = Code::NotFound;
};

TEST_F(Roles, TheFileBesideTheScriptsSaysWhatEachGroupIs) {
  Json of = spec({"controller-machine", "login-group", "worker-group-1"});
  ASSERT_EQ(settle(of), "");
  EXPECT_EQ(kube::print_json(of["instanceGroups"].items()[0]["slurmConfig"]), R"({"nodeType":"Controller"})");
  EXPECT_EQ(kube::print_json(of["instanceGroups"].items()[1]["slurmConfig"]), R"({"nodeType":"Login"})");
  EXPECT_EQ(kube::print_json(of["instanceGroups"].items()[2]["slurmConfig"]), R"({"nodeType":"Compute","partitionNames":["partition-1"]})");
  EXPECT_THAT(asked, testing::ElementsAre("sagemaker-lab/base/provisioning_parameters.json")) << "once";
  of = spec({"controller-machine"}, "s3://sagemaker-lab");
  ASSERT_EQ(settle(of), "");
  EXPECT_EQ(asked.back(), "sagemaker-lab/provisioning_parameters.json");
}

TEST_F(Roles, WhoSaysWhatItIsNeedsNone) {
  Json of = spec({"a"});
  of.child("instanceGroups").items()[0].set("slurmConfig", Json::object({{"nodeType", "Controller"}}));
  EXPECT_EQ(settle(of), "");
  Json eks = spec({"a"});
  eks.child("orchestrator").set("eks", Json::object({{"clusterArn", "arn"}}));
  EXPECT_EQ(settle(eks), "");
  EXPECT_FALSE(eks["instanceGroups"].items()[0].has("slurmConfig"));
  EXPECT_TRUE(asked.empty());
}

TEST_F(Roles, WhatIsMissingIsSaid) {
  const auto why = [&](Json of) { return settle(of); };
  EXPECT_THAT(why(spec({"controller-machine", "gpu"})), HasSubstr("group gpu has no SlurmConfig, and s3://sagemaker-lab/base/provisioning_parameters.json names it neither as controller_group"));
  EXPECT_THAT(why(spec({"gpu"}, nullptr)), HasSubstr("and no LifeCycleConfig beside whose scripts"));
  Json continuous = spec({"controller-machine"});
  continuous.set("nodeProvisioningMode", "Continuous");
  EXPECT_THAT(why(continuous), HasSubstr("with NodeProvisioningMode Continuous it is required"));
  file.reset();
  EXPECT_THAT(why(spec({"gpu"})), HasSubstr("there is no s3://sagemaker-lab/base/provisioning_parameters.json"));
  code = Code::Forbidden;
  EXPECT_THAT(why(spec({"gpu"})), HasSubstr("cannot be read"));
  Json none = spec({"gpu"});
  const auto done = settle_roles(none, nullptr);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("serves no S3"));
}

TEST_F(Roles, AFileThatDoesNotSayItIsRefused) {
  const auto why = [](const char* text) {
    const auto read = read_provisioning(text);
    return read ? std::string() : read.error().message;
  };
  EXPECT_THAT(why("{"), HasSubstr("it is no JSON"));
  EXPECT_THAT(why("[]"), HasSubstr("it is no JSON object"));
  EXPECT_THAT(why("{}"), HasSubstr("workload_manager is null"));
  EXPECT_THAT(why(R"({"workload_manager": "pbs"})"), HasSubstr("workload_manager is \"pbs\""));
  EXPECT_THAT(why(R"({"workload_manager": "slurm"})"), HasSubstr("controller_group: the name"));
  EXPECT_THAT(why(R"({"workload_manager": "slurm", "controller_group": "c", "login_group": 4})"), HasSubstr("login_group: the name"));
  EXPECT_THAT(why(R"({"workload_manager": "slurm", "controller_group": "c", "worker_groups": {}})"), HasSubstr("worker_groups: a list"));
  EXPECT_THAT(why(R"({"workload_manager": "slurm", "controller_group": "c", "worker_groups": [{"instance_group_name": "w"}]})"), HasSubstr("partition_name is missing"));
  EXPECT_THAT(why(R"({"workload_manager": "slurm", "controller_group": "c", "worker_groups": [{"instance_group_name": "c", "partition_name": "p"}]})"), HasSubstr("group c has a role already"));
  EXPECT_EQ(why(R"({"workload_manager": "slurm", "controller_group": "c", "login_group": ""})"), "");
}

}  // namespace
}  // namespace fairlead::hyperpod
