// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/node_place.h"

#include <gtest/gtest.h>

#include "kube/object.h"
#include "kube/tiny_api.h"

namespace fairlead::fleet {
namespace {

using kube::Json;
namespace resources = kube::resources;

const NodePlace here{.region = "fairlead-1", .zone = "shelf", .cluster = "abc123def456", .instance = "i-0a1b2c3d4e5f60718"};
constexpr const char* id_here = "aws:///shelf/sagemaker/cluster/hyperpod-abc123def456-i-0a1b2c3d4e5f60718";

// A node in an API: what is planned is written, until there is nothing more.
struct Lab {
  kube::TinyApi api;
  explicit Lab(const char* node) { EXPECT_TRUE(api.create(resources::nodes, *kube::parse_json(node))); }
  const Json& node() { return api.all("nodes").begin()->second; }
  int settle(const std::optional<NodePlace>& place, bool id_changes) {
    int writes = 0;
    for (; writes < 5; ++writes) {
      const Json patch = plan_node_place(node(), place, id_changes);
      if (patch.is_null()) break;
      EXPECT_TRUE(api.patch(resources::nodes, {"", "w0"}, kube::PatchType::Merge, patch));
    }
    return writes;
  }
  std::string said() {
    const Json& labels = node()["metadata"]["labels"];
    return labels[kRegionLabel].string_or("-") + " " + labels[kZoneLabel].string_or("-") + " " + node()["spec"]["providerID"].string_or("-");
  }
  bool noted() { return node()["metadata"]["annotations"].has(kPlaceNote); }
};

TEST(NodePlace, IsSaidOnceAndTakenBackWhereThatCanBe) {
  for (const bool id_changes : {true, false}) {
    Lab lab(R"({"metadata": {"name": "w0", "labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"podCIDR": "10.0.0.0/24"}})");
    EXPECT_EQ(lab.settle(here, id_changes), 1);
    EXPECT_EQ(lab.said(), std::string("fairlead-1 shelf ") + id_here);
    // It reaches no pool for now: what was said stays.
    NodePlace lost = here;
    lost.zone = "";
    EXPECT_EQ(lab.settle(lost, id_changes), 0);
    // Another pool: the instance is the same, and so is its id.
    NodePlace moved = here;
    moved.zone = "other";
    EXPECT_EQ(lab.settle(moved, id_changes), 1);
    EXPECT_EQ(lab.said(), std::string("fairlead-1 other ") + id_here);
    EXPECT_EQ(lab.settle(std::nullopt, id_changes), 1);
    EXPECT_EQ(lab.said(), id_changes ? "- - -" : std::string("- - ") + id_here);
    EXPECT_EQ(lab.noted(), !id_changes) << "what is ours still";
    NodePlace next = here;
    next.instance = "i-00000000000000002";
    EXPECT_EQ(lab.settle(next, id_changes), 1);
    EXPECT_EQ(lab.said(), std::string("fairlead-1 shelf ") + (id_changes ? provider_id(next) : id_here));
    EXPECT_EQ(lab.node()["metadata"]["labels"]["a"].string(), "b");
    EXPECT_EQ(lab.node()["metadata"]["annotations"]["c"].string(), "d");
    EXPECT_EQ(lab.node()["spec"]["podCIDR"].string(), "10.0.0.0/24");
  }
}

TEST(NodePlace, StraightFromOneInstanceToAnother) {
  Lab lab(R"({"metadata": {"name": "w0"}})");
  lab.settle(here, true);
  NodePlace next = here;
  next.cluster = "zzz123def456", next.instance = "i-00000000000000002";
  EXPECT_EQ(lab.settle(next, true), 1);
  EXPECT_EQ(lab.said(), "fairlead-1 shelf " + provider_id(next));
  // An id is the whole of it, not its beginning.
  NodePlace longer = here;
  longer.cluster = "xabc123def456";
  EXPECT_EQ(lab.settle(longer, true), 1);
  EXPECT_EQ(lab.settle(here, true), 1);
  EXPECT_EQ(lab.said(), std::string("fairlead-1 shelf ") + id_here);
}

TEST(NodePlace, WhatOthersSaidStays) {
  for (const bool id_changes : {true, false}) {
    Lab lab(R"({"metadata": {"name": "w0", "labels": {"topology.kubernetes.io/zone": "rack-7"}}, "spec": {"providerID": "metal://7"}})");
    EXPECT_EQ(lab.settle(here, id_changes), 1);
    EXPECT_EQ(lab.said(), "fairlead-1 rack-7 metal://7");
    EXPECT_EQ(lab.settle(std::nullopt, id_changes), 1);
    EXPECT_EQ(lab.said(), "- rack-7 metal://7");
    EXPECT_FALSE(lab.noted());
  }
  // The same words, but theirs.
  Lab same(R"({"metadata": {"name": "w0", "labels": {"topology.kubernetes.io/zone": "shelf", "topology.kubernetes.io/region": "fairlead-1"}}, "spec": {"providerID": "aws:///shelf/sagemaker/cluster/hyperpod-abc123def456-i-0a1b2c3d4e5f60718"}})");
  EXPECT_EQ(same.settle(here, true), 0);
  EXPECT_EQ(same.settle(std::nullopt, true), 0);
  // Said by us, then by somebody else.
  Lab changed(R"({"metadata": {"name": "w0"}})");
  changed.settle(here, true);
  ASSERT_TRUE(changed.api.patch(resources::nodes, {"", "w0"}, kube::PatchType::Merge, *kube::parse_json(R"({"metadata": {"labels": {"topology.kubernetes.io/region": "north"}}, "spec": {"providerID": "metal://7"}})")));
  EXPECT_EQ(changed.settle(here, true), 1) << "the note";
  EXPECT_EQ(changed.said(), "north shelf metal://7");
  changed.settle(std::nullopt, true);
  EXPECT_EQ(changed.said(), "north - metal://7");
}

TEST(NodePlace, NothingIsSaidBeforeItIsKnown) {
  NodePlace nowhere = here;
  nowhere.zone = "";
  EXPECT_TRUE(plan_node_place(*kube::parse_json(R"({"metadata": {"name": "w0"}})"), nowhere, true).is_null());
  nowhere = here;
  nowhere.region = "";
  EXPECT_TRUE(plan_node_place(*kube::parse_json(R"({"metadata": {"name": "w0"}})"), nowhere, true).is_null());
  // A cloud's controller is about to say it.
  Lab lab(R"({"metadata": {"name": "w0"}, "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]}})");
  EXPECT_EQ(lab.settle(here, true), 0);
  // A note that is none is nobody's: nothing there is ours.
  for (const char* note : {"{", "[]", "7", "\"x\"", "{\\\"labels\\\": 7, \\\"providerID\\\": []}"}) {
    Lab odd((std::string(R"({"metadata": {"name": "w0", "labels": {"topology.kubernetes.io/zone": "rack-7"}, "annotations": {"fairlead.dev/place": ")") + (note[0] == '"' ? "\\\"x\\\"" : note) + R"("}}, "spec": {"providerID": "metal://7"}})").c_str());
    odd.settle(here, true);
    EXPECT_EQ(odd.said(), "fairlead-1 rack-7 metal://7") << note;
    odd.settle(std::nullopt, true);
    EXPECT_EQ(odd.said(), "- rack-7 metal://7") << note;
  }
}

}  // namespace
}  // namespace fairlead::fleet
