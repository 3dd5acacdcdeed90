// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/identity_crds.h"
#include "kube/access.h"
#include "kube/tiny_api.h"

namespace fairlead::orchestrator {
namespace {

using kube::Json;
using testing::HasSubstr;

Json daemon_set(const char* name, const char* container, const char* image) {
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "kube-system"}})}, {"spec", Json::object({{"template", Json::object({{"spec", Json::object({{"containers", Json::array({Json::object({{"name", container}, {"image", image}})})}})}})}})}});
}

Json node(const char* name, const char* kubelet, bool ready, const char* message, const char* address, const char* range) {
  return Json::object({{"metadata", Json::object({{"name", name}})},
                       {"spec", Json::object({{"podCIDRs", Json::array({Json(range)})}})},
                       {"status", Json::object({{"nodeInfo", Json::object({{"kubeletVersion", kubelet}})}, {"addresses", Json::array({Json::object({{"type", "InternalIP"}, {"address", address}})})},
                                                {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}, {"message", message}})})}})}});
}

// A server with the rights of the AWS face sees all of it.
TEST(Look, IsLookedAtThroughTheApiAlone) {
  kube::TinyApi api;
  kube::CheckedApi checked(api, api::identities::aws_access("fairlead-system"));
  ASSERT_TRUE(api.create({"apps", "v1", "daemonsets", "DaemonSet", true}, daemon_set("aws-node", "aws-node", "x/amazon-k8s-cni:v1.18.3")));
  ASSERT_TRUE(api.create(kube::resources::nodes, node("own", "v1.30.0-fairlead.0.9", true, "", "10.77.1.2", "10.78.1.0/24")));
  ASSERT_TRUE(api.create(kube::resources::nodes, node("good", "v1.33.1", true, "", "fd00::1", "fd01::/64")));
  ASSERT_TRUE(api.create(kube::resources::nodes, node("bad", "v1.33.1", false, "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized", "10.0.0.3", "10.78.2.0/24")));
  ASSERT_TRUE(api.create(kube::resources::services, Json::object({{"metadata", Json::object({{"name", "kubernetes"}, {"namespace", "default"}})}, {"spec", Json::object({{"clusterIP", "10.96.0.1"}, {"ipFamilies", Json::array({Json("IPv4")})}})}})));
  ASSERT_TRUE(api.create(kube::resources::config_maps, Json::object({{"metadata", Json::object({{"name", api::identities::networks_name}, {"namespace", "fairlead-system"}})}, {"data", Json::object({{"subnet-1", "private 10.0.0.0/16"}, {"subnet-2", "?"}})}})));
  const Facts facts = look(checked, "fairlead-system");
  EXPECT_THAT(checked.refusals(), testing::IsEmpty());
  EXPECT_THAT(facts.unknown, testing::IsEmpty());
  EXPECT_THAT(facts.missing, testing::IsEmpty());
  EXPECT_EQ(facts.plugins, (std::vector<NetworkPlugin>{{"Amazon VPC CNI", "kube-system/aws-node", "1.18.3"}}));
  EXPECT_EQ(facts.own_nodes, 1);
  EXPECT_EQ(facts.other_nodes, 2);
  EXPECT_EQ(facts.other_ready, 1);
  EXPECT_EQ(facts.without_network.size(), 1u);
  EXPECT_TRUE(facts.ipv4 && facts.ipv6 && !facts.ipv6_first) << "two families, told by the nodes' ranges";
  EXPECT_EQ(facts.nodes_without_ipv6, (std::set<std::string>{"own", "bad"}));
  ASSERT_TRUE(facts.networks);
  EXPECT_TRUE(facts.networks->at("subnet-1")->is_private);
  EXPECT_FALSE(facts.networks->at("subnet-2"));
}

// One that lets us see nothing, and one without our kinds.
struct Closed final : kube::KubeApi {
  Code code;
  explicit Closed(Code with) : code(with) {}
  Result<Json> get(const kube::Resource&, const kube::ObjectKey&) override { return fail(code, "no"); }
  Result<kube::List> list(const kube::Resource& resource, const std::string&, const kube::ListOptions&) override {
    if (code == Code::NotFound && resource.group != "fairlead.dev" && resource.group != "apps") return kube::List{};
    return fail(code, "no");
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource&, const std::string&, const kube::WatchOptions&) override { return fail(code, "no"); }
  Result<Json> create(const kube::Resource&, const Json&) override { return fail(code, "no"); }
  Result<Json> update(const kube::Resource&, const Json&) override { return fail(code, "no"); }
  Result<Json> update_status(const kube::Resource&, const Json&) override { return fail(code, "no"); }
  Result<Json> patch(const kube::Resource&, const kube::ObjectKey&, kube::PatchType, const Json&, const std::string&) override { return fail(code, "no"); }
  Result<Json> post(const kube::Resource&, const kube::ObjectKey&, const std::string&, const Json&) override { return fail(code, "no"); }
  Result<void> remove(const kube::Resource&, const kube::ObjectKey&, const kube::DeleteOptions&) override { return fail(code, "no"); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(code, "no"); }
};

TEST(Look, WhatMayNotBeSeenIsUnknownAndWhatIsNotThereIsMissing) {
  Closed closed(Code::Forbidden);
  Facts facts = look(closed, "fairlead-system");
  facts.version = "1.33";
  EXPECT_THAT(facts.missing, testing::IsEmpty());
  const auto findings = check(facts, Asked{});
  EXPECT_EQ(objections(findings), "");
  for (const Finding& one : findings)
    if (one.check == "charts" || one.check == "cni" || one.check == "ipv6") {
      EXPECT_EQ(text(one.verdict), "unknown") << one.check;
    }

  Closed bare(Code::NotFound);
  facts = look(bare, "fairlead-system");
  EXPECT_EQ(facts.missing, (std::set<std::string>{"clusters.fairlead.dev", "instances.fairlead.dev", "clusterevents.fairlead.dev"}));
  EXPECT_EQ(facts.unknown.count("cni"), 0u) << "an engine without DaemonSets";
  EXPECT_THAT(objections(check(facts, Asked{})), HasSubstr("charts: clusterevents.fairlead.dev, clusters.fairlead.dev, instances.fairlead.dev are not installed; install Fairlead's chart"));
}

}  // namespace
}  // namespace fairlead::orchestrator
