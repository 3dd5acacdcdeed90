// SPDX-License-Identifier: Apache-2.0
#include "api/network_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hyperpod/operations.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;

constexpr const char *first = "eni-0a1b2c3d", *node_one = "i-00000000000000001", *node_two = "i-00000000000000002";

struct Attaching : testing::Test {
  TestSite site;
  Credentials ada = site.user("ada", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "ec2:AttachNetworkInterface"], "Resource": "*"}})"});
  Json cluster;
  void SetUp() override {
    make(R"({"eks": {"clusterArn": "arn:aws:eks:fairlead-1:111122223333:cluster/fairlead"}})");
    node("w1", "v1.33.0-fairlead.1");
    instance(node_one, "w1");
    interface(first);
  }
  void make(const char* orchestrator) {
    cluster = *site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", "blue"}, {"annotations", Json::object({{api::kArnBegin, "arn:aws:sagemaker:fairlead-1:111122223333:cluster/"}})}})}, {"spec", Json::object({{"clusterName", "blue"}, {"orchestrator", *kube::parse_json(orchestrator)}, {"nodeProvisioningMode", "Continuous"}, {"instanceGroups", Json::array()}})}, {"status", Json::object({{"phase", "InService"}})}}));
    site.index.put(cluster);
  }
  void node(const char* name, const char* version) { ASSERT_TRUE(site.api.create(kube::resources::nodes, Json::object({{"metadata", Json::object({{"name", name}})}, {"status", Json::object({{"nodeInfo", Json::object({{"kubeletVersion", version}})}})}}))); }
  void instance(const char* id, const char* node, const char* phase = "Running") { ASSERT_TRUE(site.api.put(api::kInstances, Json::object({{"metadata", Json::object({{"name", id}, {"uid", std::string("u-") + id}})}, {"spec", Json::object({{"cluster", "blue"}, {"clusterUid", kube::uid_of(cluster)}, {"instanceGroupName", "w"}, {"number", 1}})}, {"status", Json::object({{"phase", phase}, {"node", node}})}}))); }
  void interface(const std::string& id, const char* address = "10.0.3.7/24") { ASSERT_TRUE(site.api.create(api::kNetworkInterfaces, Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object({{"addresses", Json::array({Json(address)})}})}}))); }
  TestSite::Said attach(const char* node, const std::string& id = first) { return site.call(ada, "AttachClusterNodeNetworkInterface", Json::object({{"ClusterName", "blue"}, {"NodeId", node}, {"NetworkInterfaceId", id}})); }
  Json object(const std::string& id = first) { return site.api.all("networkinterfaces").at({"", id}); }
};

TEST_F(Attaching, IsWrittenAtTheInterfaceAndDoneOnce) {
  const auto said = attach(node_one);
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(said.json["AttachmentId"].string(), api::attachment_id(first, node_one));
  EXPECT_EQ(said.json["NodeId"].string(), node_one);
  EXPECT_EQ(said.json["NetworkInterfaceId"].string(), first);
  EXPECT_EQ(object()["spec"]["attachment"]["instanceId"].string(), node_one);
  EXPECT_THAT(object()["spec"]["attachment"]["by"].string(), HasSubstr(":user/ada"));
  EXPECT_TRUE(kube::has_finalizer(object(), api::kInterfaceFinalizer));
  const std::string version = kube::version_of(object());
  EXPECT_EQ(attach(node_one).json["AttachmentId"], said.json["AttachmentId"]);
  EXPECT_EQ(kube::version_of(object()), version);
}

TEST_F(Attaching, OneInterfaceIsOnOneNode) {
  node("w2", "v1.33.0-fairlead.1");
  instance(node_two, "w2");
  ASSERT_EQ(attach(node_one).status, 200);
  EXPECT_THAT(attach(node_two).message, HasSubstr("is attached to i-00000000000000001"));
  Json leaving = object();
  leaving.child("spec").erase("attachment");
  leaving.set("status", Json::object({{"node", "w1"}, {"phase", "Detaching"}}));
  ASSERT_TRUE(site.api.put(api::kNetworkInterfaces, leaving));
  EXPECT_THAT(attach(node_two).message, HasSubstr("is being taken from the node that had it"));
}

TEST_F(Attaching, WhatCannotBeIsRefusedAndChangesNothing) {
  EXPECT_EQ(attach(node_two).code, "ResourceNotFound");
  EXPECT_THAT(attach(node_one, "eni-0a1b2c3e").message, HasSubstr("kubectl get networkinterfaces"));
  EXPECT_EQ(attach(node_one, "eni-0a1b2c3e").code, "ResourceNotFound");
  node("k1", "v1.33.2");
  instance(node_two, "k1");
  EXPECT_THAT(attach(node_two).message, HasSubstr("has a kubelet of its own"));
  instance(node_two, "w1", "Pending");
  EXPECT_THAT(attach(node_two).message, HasSubstr("is Pending: an interface is attached to one that is Running"));
  interface("eni-0a1b2c3f", "10.0.3.7");
  EXPECT_THAT(attach(node_one, "eni-0a1b2c3f").message, HasSubstr("no address with the length of its network"));
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:Describe*", "Resource": "*"}})"});
  EXPECT_EQ(site.call(bob, "AttachClusterNodeNetworkInterface", Json::object({{"ClusterName", "blue"}, {"NodeId", node_one}, {"NetworkInterfaceId", first}})).code, "AccessDeniedException");
  const Credentials cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}, {"Effect": "Allow", "Action": "ec2:AttachNetworkInterface", "Resource": "arn:aws:ec2:*:*:network-interface/eni-0a1b2c30"}]})"});
  EXPECT_EQ(site.call(cid, "AttachClusterNodeNetworkInterface", Json::object({{"ClusterName", "blue"}, {"NodeId", node_one}, {"NetworkInterfaceId", first}})).code, "AccessDeniedException") << "an address may stand for rights elsewhere";
  for (int i = 0; i < 16; ++i) interface(fmt::format("eni-0000000{:x}", i));
  for (int i = 0; i < 15; ++i) ASSERT_EQ(attach(node_one, fmt::format("eni-0000000{:x}", i)).status, 200) << i;
  EXPECT_EQ(attach(node_one, "eni-0000000f").code, "ResourceLimitExceeded");
  EXPECT_FALSE(object()["spec"].has("attachment"));
}

TEST_F(Attaching, NodesOfSlurmArePods) {
  ASSERT_TRUE(site.api.remove(api::kClusters, {"", "blue"}));
  make(R"({"slurm": {}})");
  instance(node_one, "w1");
  EXPECT_THAT(attach(node_one).message, HasSubstr("orchestrated by Slurm, whose nodes are pods here"));
}

}  // namespace
}  // namespace fairlead::hyperpod
