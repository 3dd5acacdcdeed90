// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/node_volumes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/volume.h"
#include "api/volume_key.h"
#include "hyperpod/operations.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;

constexpr const char *cluster_begin = "arn:aws:sagemaker:fairlead-1:111122223333:cluster/", *one = "i-00000000000000001", *two = "i-00000000000000002", *volume_id = "vol-0123456789abcdef0";

// The documents that AWS gives for this, as they are (accounts and regions aside).
constexpr const char* attach_policy = R"({"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": ["sagemaker:AttachClusterNodeVolume"], "Resource": "arn:aws:sagemaker:fairlead-1:111122223333:cluster/*"},
  {"Effect": "Allow", "Action": ["eks:DescribeCluster"], "Resource": "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"},
  {"Effect": "Allow", "Action": ["ec2:AttachVolume", "ec2:DescribeVolume"], "Resource": "arn:aws:ec2:fairlead-1:111122223333:volume/*"}]})";
constexpr const char* detach_policy = R"({"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": ["sagemaker:DetachClusterNodeVolume"], "Resource": "arn:aws:sagemaker:fairlead-1:111122223333:cluster/*"},
  {"Effect": "Allow", "Action": ["eks:DescribeCluster"], "Resource": "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"},
  {"Effect": "Allow", "Action": ["ec2:DetachVolume", "ec2:DescribeVolume"], "Resource": "arn:aws:ec2:fairlead-1:111122223333:volume/*"}]})";

struct NodeVolumes : testing::Test {
  TestSite site;
  Credentials ada = site.user("ada", {attach_policy, detach_policy});
  Json cluster;
  std::string arn;
  void SetUp() override {
    make(R"({"eks": {"clusterArn": "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})");
    instance(one, "w1");
    instance(two, "w2");
    volume(volume_id);
    ASSERT_TRUE(site.api.create(api::kVolumePools, Json::object({{"metadata", Json::object({{"name", "here"}})}, {"status", Json::object({{"nodes", Json::array({Json("w1"), Json("w2")})}})}})));
  }
  void make(const char* orchestrator) {
    cluster = *site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", "blue"}, {"annotations", Json::object({{api::kArnBegin, cluster_begin}})}})}, {"spec", Json::object({{"clusterName", "blue"}, {"orchestrator", *kube::parse_json(orchestrator)}, {"nodeProvisioningMode", "Continuous"}, {"instanceGroups", Json::array()}})}, {"status", Json::object({{"phase", "InService"}})}}));
    site.index.put(cluster);
    arn = cluster_begin + entity_id(kube::uid_of(cluster));
  }
  void instance(const char* id, const char* node, const char* phase = "Running") { ASSERT_TRUE(site.api.put(api::kInstances, Json::object({{"metadata", Json::object({{"name", id}, {"uid", std::string("u-") + id}})}, {"spec", Json::object({{"cluster", "blue"}, {"clusterUid", kube::uid_of(cluster)}, {"instanceGroupName", "w"}, {"number", 1}})}, {"status", Json::object({{"phase", phase}, {"node", node}})}}))); }
  void volume(const std::string& name, const char* phase = "Available") {
    Json object = api::new_volume(name, {.pool = "here", .size = std::int64_t{1} << 30, .from_volume = {}, .from_snapshot = {}});
    object.set("status", Json::object({{"phase", phase}}));
    ASSERT_TRUE(site.api.create(api::kVolumes, object));
  }
  TestSite::Said say(const char* action, const char* node, const std::string& id = volume_id) { return site.call(ada, action, Json::object({{"ClusterArn", arn}, {"NodeId", node}, {"VolumeId", id}})); }
  TestSite::Said attach(const char* node, const std::string& id = volume_id) { return say("AttachClusterNodeVolume", node, id); }
  TestSite::Said detach(const char* node, const std::string& id = volume_id) { return say("DetachClusterNodeVolume", node, id); }
};

TEST_F(NodeVolumes, AttachedDetachedAndTheSameAgain) {
  auto said = attach(one);
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["Status"].string(), "attaching");
  EXPECT_EQ(said.json["DeviceName"].string(), "/dev/xvdf");
  EXPECT_EQ(said.json["VolumeId"].string(), volume_id);
  EXPECT_EQ(said.json["ClusterArn"].string(), arn);
  Json attachment = site.api.get(api::kAttachments, {"", std::string(volume_id) + ".w1"}).value();
  EXPECT_EQ(attachment["metadata"]["ownerReferences"].items()[0]["name"].string(), one) << "it goes with the instance";
  attachment.set("status", Json::object({{"phase", "Attached"}, {"device", "/dev/loop3"}}));
  ASSERT_TRUE(site.api.put(api::kAttachments, attachment));
  EXPECT_EQ(attach(one).json["Status"].string(), "attached");
  EXPECT_THAT(attach(two).message, HasSubstr("HyperPod - Ec2ErrCode: IncorrectState"));
  EXPECT_EQ(attach(two).code, "ValidationException");
  volume("data");
  const std::string other = api::ec2_id("data", "vol-");
  EXPECT_EQ(attach(two, other).json["DeviceName"].string(), "/dev/xvdg") << "names are of the machine";
  EXPECT_TRUE(site.api.get(api::kAttachments, {"", "data.w2"})) << "a volume of any name has an id";
  said = detach(one);
  EXPECT_EQ(said.json["Status"].string(), "detaching") << said.body;
  EXPECT_THAT(detach(two).message, HasSubstr("HyperPod - Ec2ErrCode: InvalidAttachment.NotFound"));
}

TEST_F(NodeVolumes, WhatCannotBeIsRefusedWithTheCodeThatDriversKnow) {
  EXPECT_THAT(attach(one, "vol-00000000").message, HasSubstr("HyperPod - Ec2ErrCode: InvalidVolume.NotFound"));
  EXPECT_EQ(attach("i-00000000000000009").code, "ResourceNotFound");
  volume("vol-0123456789abcdef1", "Creating");
  EXPECT_THAT(attach(one, "vol-0123456789abcdef1").message, HasSubstr("IncorrectState"));
  instance(two, "w2", "Pending");
  EXPECT_THAT(attach(two).message, HasSubstr("IncorrectState"));
  instance(two, "w9");
  EXPECT_THAT(attach(two).message, HasSubstr("InvalidVolume.ZoneMismatch"));
  for (std::size_t i = 0; i < kMostVolumesOfANode; ++i) {
    volume(fmt::format("v{}", i));
    ASSERT_TRUE(site.api.create(api::kAttachments, api::new_attachment(fmt::format("v{}", i), "here", "w1", false)));
  }
  EXPECT_THAT(attach(one).message, HasSubstr("HyperPod - Ec2ErrCode: AttachmentLimitExceeded"));
  Json of_pods = api::new_attachment(volume_id, "here", "w1", false);
  of_pods.child("metadata").set("labels", Json::object({{api::kForPods, "csi"}}));
  ASSERT_TRUE(site.api.create(api::kAttachments, of_pods));
  EXPECT_THAT(detach(one).message, HasSubstr("attached for pods"));
}

TEST_F(NodeVolumes, ExactlyThePermissionsOfTheDocuments) {
  const auto who = [&](const char* name, const char* left_out) {
    std::string text = attach_policy;
    const auto at = text.find(left_out);
    return site.user(name, {text.replace(at, std::string(left_out).size(), "s3:GetObject")});
  };
  for (const auto& [name, action] : {std::pair("b", "sagemaker:AttachClusterNodeVolume"), {"c", "eks:DescribeCluster"}, {"d", "ec2:AttachVolume"}}) {
    const auto said = site.call(who(name, action), "AttachClusterNodeVolume", Json::object({{"ClusterArn", arn}, {"NodeId", one}, {"VolumeId", volume_id}}));
    EXPECT_EQ(said.code, "AccessDeniedException") << action;
    EXPECT_THAT(said.message, HasSubstr(action));
  }
  EXPECT_TRUE(site.api.all("attachments").empty());
  const Credentials attacher = site.user("e", {attach_policy});
  EXPECT_EQ(site.call(attacher, "AttachClusterNodeVolume", Json::object({{"ClusterArn", arn}, {"NodeId", one}, {"VolumeId", volume_id}})).status, 200);
  EXPECT_EQ(site.call(attacher, "DetachClusterNodeVolume", Json::object({{"ClusterArn", arn}, {"NodeId", one}, {"VolumeId", volume_id}})).code, "AccessDeniedException");
}

TEST_F(NodeVolumes, OfClustersThatKubernetesOrchestrates) {
  ASSERT_TRUE(site.api.remove(api::kClusters, {"", "blue"}));
  make(R"({"slurm": {}})");
  EXPECT_THAT(attach(one).message, HasSubstr("orchestrated by Slurm"));
}

TEST(DeviceNames, AreGivenOutInOrderAndComeToAnEnd) {
  std::vector<std::string> taken;
  while (const auto name = free_device_name(taken)) taken.push_back(*name);
  EXPECT_EQ(taken.size(), 42u);
  EXPECT_EQ(taken.front(), "/dev/xvdf");
  EXPECT_EQ(taken.back(), "/dev/sdz");
  taken.erase(taken.begin() + 3);
  EXPECT_EQ(free_device_name(taken), "/dev/xvdi");
}

// The key policy that HyperPod's documentation has for this, as it is (accounts and regions aside).
constexpr const char* key_policy = R"({"Version": "2012-10-17", "Id": "customer-key", "Statement": [
  {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/ada"}, "Action": "kms:DescribeKey", "Resource": "*"},
  {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:user/ada"}, "Action": "kms:CreateGrant", "Resource": "*", "Condition": {
    "StringEquals": {"kms:CallerAccount": "111122223333", "kms:ViaService": "ec2.fairlead-1.amazonaws.com"},
    "ForAnyValue:StringEquals": {"kms:EncryptionContextKeys": "aws:ebs:id"},
    "Bool": {"kms:GrantIsForAWSResource": true},
    "ForAllValues:StringEquals": {"kms:GrantOperations": ["Decrypt"]}}}]})";

TEST_F(NodeVolumes, WhatIsTheInstancesOwnStays) {
  ASSERT_EQ(attach(one).status, 200);
  Json attachment = site.api.get(api::kAttachments, {"", std::string(volume_id) + ".w1"}).value();
  attachment.child("metadata").child("labels").set("fairlead.dev/instance-volume", one);
  ASSERT_TRUE(site.api.update(api::kAttachments, attachment));
  EXPECT_THAT(detach(one).message, HasSubstr("Ec2ErrCode: OperationNotPermitted. Volume vol-0123456789abcdef0 is the instance's own"));
}

struct CustomerKey : NodeVolumes {
  void SetUp() override {
    NodeVolumes::SetUp();
    Json object = api::new_volume("vol-0123456789abcdef1", {.pool = "here", .klass = api::kLocalManaged, .size = std::int64_t{1} << 30, .from_volume = {}, .from_snapshot = {}, .encrypted = true, .key = "mine"});
    object.set("status", Json::object({{"phase", "Available"}, {"key", "mine"}}));
    ASSERT_TRUE(site.api.create(api::kVolumes, object));
    ASSERT_TRUE(site.api.create(api::kVolumeKeys, Json::object({{"metadata", Json::object({{"name", "mine"}})}, {"spec", Json::object({{"grants", "Required"}, {"policy", key_policy}})}})));
  }
  void policy(std::string from, const std::string& to) {
    Json key = site.api.get(api::kVolumeKeys, {"", "mine"}).value();
    std::string text = key_policy;
    const auto at = text.find(from);
    ASSERT_NE(at, text.npos);
    key.child("spec").set("policy", text.replace(at, from.size(), to));
    ASSERT_TRUE(site.api.update(api::kVolumeKeys, key));
  }
  const std::string secret = "vol-0123456789abcdef1";
};

TEST_F(CustomerKey, TheDocumentsPolicyLetsAttachAndTheAttachmentHasTheGrant) {
  const auto said = attach(one, secret);
  ASSERT_EQ(said.status, 200) << said.body;
  const Json attachment = site.api.get(api::kAttachments, {"", secret + ".w1"}).value();
  ASSERT_TRUE(api::read_grant(attachment));
  EXPECT_EQ(api::read_grant(attachment)->key, "mine");
  EXPECT_TRUE(api::is_granted({attachment}, secret, "mine"));
  policy("kms:CreateGrant", "kms:ListGrants");
  EXPECT_EQ(detach(one, secret).status, 200) << "detaching needs nothing of the key";
}

TEST_F(CustomerKey, EachOfItsConditionsCounts) {
  for (const auto& [from, to] : {std::pair("kms:DescribeKey", "kms:GetKeyPolicy"), {"kms:CreateGrant", "kms:ListGrants"}, {"user/ada", "user/bob"}, {R"("kms:CallerAccount": "111122223333")", R"("kms:CallerAccount": "444455556666")"}, {"ec2.fairlead-1", "s3.fairlead-1"}, {"aws:ebs:id", "aws:s3:arn"}, {R"("kms:GrantIsForAWSResource": true)", R"("kms:GrantIsForAWSResource": false)"}, {R"(["Decrypt"])", R"(["Encrypt"])"}}) {
    policy(from, to);
    const auto said = attach(one, secret);
    EXPECT_EQ(said.code, "AccessDeniedException") << to << said.body;
    EXPECT_THAT(said.message, HasSubstr("kms:"));
  }
  EXPECT_TRUE(site.api.all("attachments").empty());
}

TEST_F(CustomerKey, AClosedKeyIsToldWithEc2sCode) {
  Json key = site.api.get(api::kVolumeKeys, {"", "mine"}).value();
  key.child("spec").set("enabled", false);
  ASSERT_TRUE(site.api.update(api::kVolumeKeys, key));
  EXPECT_THAT(attach(one, secret).message, HasSubstr("HyperPod - Ec2ErrCode: InvalidKMSKey.InvalidState"));
  EXPECT_EQ(attach(one).status, 200) << "others have nothing to do with it";
}

}  // namespace
}  // namespace fairlead::hyperpod
