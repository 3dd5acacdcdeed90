// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/node_place_controller.h"

#include <gtest/gtest.h>

#include "api/cluster.h"
#include "api/identity_crds.h"
#include "api/volume.h"
#include "fleet/plan/node_place.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
namespace resources = kube::resources;

struct PlaceSite {
  kube::TinyApi api;
  kube::CheckedApi checked{api, kube::full_access(NodePlaceController(api, {.id_changes = true, .space = "fairlead-system"}))};
  NodePlaceController controller{checked, {.id_changes = true, .space = "fairlead-system"}};
  std::string cluster_id;
  PlaceSite() {
    controller.start(api);
    put(resources::config_maps, R"({"metadata": {"name": "fairlead-aws", "namespace": "fairlead-system"}, "data": {"region": "north-east-7"}})");
    put(resources::nodes, R"({"metadata": {"name": "w0", "labels": {"fairlead.dev/instance": "i-1"}}})");
    put(api::kClusters, R"({"metadata": {"name": "lab"}, "spec": {"clusterName": "lab", "orchestrator": {"eks": {"clusterArn": "arn:aws:eks:north-east-7:123456789012:cluster/fairlead"}}}})");
    const std::string uid = kube::uid_of(api.all("clusters").at({"", "lab"}));
    cluster_id = api::entity_id(uid);
    put(api::kInstances, R"({"metadata": {"name": "i-1"}, "spec": {"cluster": "lab", "clusterUid": ")" + uid + R"("}, "status": {"node": "w0"}})");
  }
  void put(const kube::Resource& resource, const std::string& text) {
    const auto made = api.create(resource, *kube::parse_json(text));
    ASSERT_TRUE(made) << made.error().message;
  }
  void pool(const std::string& name, const std::string& nodes) { put(api::kVolumePools, R"({"metadata": {"name": ")" + name + R"("}, "status": {"id": "x", "nodes": )" + nodes + "}}"); }
  void patch(const char* plural, const char* name, const char* text) {
    const kube::Resource& resource = std::string(plural) == "nodes" ? resources::nodes : std::string(plural) == "instances" ? api::kInstances : api::kVolumePools;
    ASSERT_TRUE(api.patch(resource, {"", name}, kube::PatchType::Merge, *kube::parse_json(text)));
  }
  kube::Next settle() {
    kube::Next last;
    for (int i = 0; i < 3; ++i) {
      const auto next = controller.reconcile({"", "w0"});
      EXPECT_TRUE(next) << next.error().message;
      if (next) last = *next;
    }
    EXPECT_TRUE(checked.refusals().empty()) << checked.refusals().front();
    return last;
  }
  std::string said() {
    const Json& node = api.all("nodes").at({"", "w0"});
    return node["metadata"]["labels"][kRegionLabel].string_or("-") + " " + node["metadata"]["labels"][kZoneLabel].string_or("-") + " " + node["spec"]["providerID"].string_or("-");
  }
  std::string id(const std::string& zone) const { return "aws:///" + zone + "/sagemaker/cluster/hyperpod-" + cluster_id + "-i-1"; }
};

TEST(NodePlaces, AreThePoolsThatNodesReach) {
  PlaceSite site;
  site.settle();
  EXPECT_EQ(site.said(), "- - -") << "there is no pool yet";
  site.pool("shelf", R"(["w0", "w1"])");
  site.pool("other", R"(["w1"])");
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
  // Of several the one that the node's label names.
  site.pool("attic", R"(["w0"])");
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 attic " + site.id("shelf"));
  site.patch("nodes", "w0", R"({"metadata": {"labels": {"topology.fairlead.dev/pool": "shelf"}}})");
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
  // A pool that is not there for a moment takes nothing away.
  ASSERT_TRUE(site.api.remove(api::kVolumePools, {"", "shelf"}));
  ASSERT_TRUE(site.api.remove(api::kVolumePools, {"", "attic"}));
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
  // It is given back.
  site.patch("nodes", "w0", R"({"metadata": {"labels": {"fairlead.dev/instance": null}}})");
  site.settle();
  EXPECT_EQ(site.said(), "- - -");
}

TEST(NodePlaces, WhatANodeSaysOfItselfIsNotEnough) {
  PlaceSite site;
  site.pool("shelf", R"(["w0"])");
  site.patch("instances", "i-1", R"({"status": {"node": "w1"}})");
  site.settle();
  EXPECT_EQ(site.said(), "- - -");
  site.patch("instances", "i-1", R"({"status": {"node": "w0"}})");
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
  // What does not agree now takes nothing back either: it may be a view of before.
  for (const char* node : {"w1", ""}) {
    site.patch("instances", "i-1", (std::string(R"({"status": {"node": ")") + node + "\"}}").c_str());
    site.settle();
    EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
  }
  ASSERT_TRUE(site.api.remove(api::kInstances, {"", "i-1"}));
  site.settle();
  EXPECT_EQ(site.said(), "north-east-7 shelf " + site.id("shelf"));
}

TEST(NodePlaces, NodesOfSlurmAndOfSitesWithoutARegionAreLeftAlone) {
  PlaceSite slurm;
  slurm.pool("shelf", R"(["w0"])");
  slurm.api.all("clusters").at({"", "lab"}).child("spec").erase("orchestrator");
  slurm.settle();
  EXPECT_EQ(slurm.said(), "- - -");
  PlaceSite site;
  site.pool("shelf", R"(["w0"])");
  ASSERT_TRUE(site.api.remove(resources::config_maps, {"fairlead-system", "fairlead-aws"}));
  EXPECT_TRUE(site.settle().again_after.has_value());
  EXPECT_EQ(site.said(), "- - -");
  site.put(resources::config_maps, R"({"metadata": {"name": "fairlead-aws", "namespace": "fairlead-system"}, "data": {"region": "south-9-7"}})");
  site.settle();
  EXPECT_EQ(site.said(), "south-9-7 shelf " + site.id("shelf"));
  // A cluster that is not known yet: looked for again.
  PlaceSite early;
  early.pool("shelf", R"(["w0"])");
  early.api.all("clusters").clear();
  EXPECT_TRUE(early.settle().again_after.has_value());
  EXPECT_EQ(early.said(), "- - -");
}

TEST(NodePlaces, ChangesThatMatterWakeIt) {
  PlaceSite site;
  const auto keys = [&](const kube::Resource& resource, const char* before, const char* after) {
    for (const auto& source : site.controller.sources())
      if (source.resource == resource) {
        std::string out;
        const auto object = [](const char* text) { return text == nullptr ? std::nullopt : std::optional(*kube::parse_json(text)); };
        for (const kube::ObjectKey& key : source.keys({.before = object(before), .after = object(after)})) out += key.name + " ";
        return out;
      }
    return std::string("no source");
  };
  EXPECT_EQ(keys(api::kInstances, R"({"metadata": {"name": "i-1"}})", R"({"metadata": {"name": "i-1"}, "status": {"node": "w0"}})"), "w0 ");
  EXPECT_EQ(keys(api::kInstances, R"({"metadata": {"name": "i-1"}, "status": {"node": "w0"}})", R"({"metadata": {"name": "i-1"}, "status": {"node": "w0", "phase": "Running"}})"), "");
  EXPECT_EQ(keys(api::kVolumePools, nullptr, R"({"metadata": {"name": "p"}, "status": {"nodes": ["w0", "w1"]}})"), "w0 w1 ");
  EXPECT_EQ(keys(api::kVolumePools, R"({"status": {"nodes": ["w0"]}})", R"({"status": {"nodes": ["w0"], "free": 7}})"), "");
  EXPECT_EQ(keys(resources::nodes, R"({"metadata": {"name": "w0", "labels": {"fairlead.dev/instance": "i-1"}}})", R"({"metadata": {"name": "w0", "labels": {}}})"), "w0 ");
  EXPECT_EQ(keys(resources::nodes, R"({"metadata": {"name": "w0", "labels": {"fairlead.dev/instance": "i-1"}}})", R"({"metadata": {"name": "w0", "labels": {"fairlead.dev/instance": "i-1"}}, "status": {"x": 1}})"), "");
  EXPECT_EQ(keys(resources::nodes, R"({"metadata": {"name": "w0"}})", R"({"metadata": {"name": "w0", "labels": {"a": "b"}}})"), "") << "no instance, and nothing of ours";
}

}  // namespace
}  // namespace fairlead::fleet
