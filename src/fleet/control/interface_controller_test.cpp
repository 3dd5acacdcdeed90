// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/interface_controller.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <optional>
#include <set>

#include "api/cluster.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/test_rounds.h"
#include "fleet/control/cluster_test_site.h"
#include "fleet/plan/interfaces.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;

constexpr const char *first = "eni-0a1b2c3d", *other = "eni-0a1b2c3e";

struct InterfaceSite {
  kube::TinyApi api;
  ManualClock clock{*parse_time("2026-11-27T12:00:00Z")};
  std::unique_ptr<MortalApi> mortal;
  std::unique_ptr<kube::FencedApi> fenced;
  std::unique_ptr<InterfaceController> controller;
  InterfaceSite() { restart(); }
  void restart(int dies_at = -1, MortalApi::Death how = MortalApi::Death::Before) {
    mortal = std::make_unique<MortalApi>(api);
    mortal->dies_at = dies_at, mortal->how = how;
    fenced = std::make_unique<kube::FencedApi>(*mortal, []() -> Result<std::int64_t> { return 1; });
    controller = std::make_unique<InterfaceController>(*fenced, clock);
    controller->start(api);
  }
  void interface(const char* id, const char* address = "10.0.3.7/24") {
    ASSERT_TRUE(api.create(api::kNetworkInterfaces, Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object({{"addresses", Json::array({Json(address)})}})}})));
  }
  void node(const char* name, const char* version = "v1.33.0-fairlead.1") { ASSERT_TRUE(api.create(resources::nodes, Json::object({{"metadata", Json::object({{"name", name}})}, {"status", Json::object({{"nodeInfo", Json::object({{"kubeletVersion", version}})}})}}))); }
  void instance(const char* id, const char* node) {
    ASSERT_TRUE(api.create(api::kInstances, Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object()}, {"status", Json::object({{"node", node}})}})));
  }
  void attach(const char* id, const char* instance) {
    Json object = api.all("networkinterfaces").at({"", id});
    object.child("spec").set("attachment", Json::object({{"instanceId", instance}, {"attachmentId", api::attachment_id(id, instance)}}));
    kube::add_finalizer(object, api::kInterfaceFinalizer);
    ASSERT_TRUE(api.update(api::kNetworkInterfaces, object));
  }
  void settle() {
    controller->start(api);
    for (int i = 0; i < 20; ++i) (void)controller->reconcile(InterfaceController::kAll);
  }
  // What the agent of the node does: all that it is told, or nothing.
  void act(const char* name, const char* failing = "") {
    Json node = api.all("nodes").at({"", name});
    api::InterfaceStates states;
    const auto orders = api::parse_interface_orders(node["metadata"]["annotations"][api::kInterfacesNote].string());
    ASSERT_TRUE(orders);
    for (const api::InterfaceOrder& one : *orders) states.emplace(one.id, failing);
    const std::string text = api::print_interface_states(states);
    ASSERT_TRUE(api.patch(resources::nodes, {"", name}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kInterfacesStateNote, text.empty() ? Json() : Json(text)}})}})}})));
  }
  std::string status(const char* id) {
    const Json& object = api.all("networkinterfaces").at({"", id});
    return object["status"]["phase"].string() + (object["status"]["node"].string().empty() ? "" : " " + object["status"]["node"].string());
  }
  std::string message(const char* id) { return api.all("networkinterfaces").at({"", id})["status"]["message"].string(); }
  std::string note(const char* node) { return api.all("nodes").at({"", node})["metadata"]["annotations"][api::kInterfacesNote].string(); }
};

TEST(Interfaces, GoWithTheirInstance) {
  InterfaceSite site;
  site.node("w0");
  site.interface(first);
  site.settle();
  EXPECT_EQ(site.status(first), "Available");
  site.instance("i-0a1b2c3d4e5f60718", "w0");
  site.attach(first, "i-0a1b2c3d4e5f60718");
  site.settle();
  EXPECT_EQ(site.status(first), "Attaching w0");
  EXPECT_THAT(site.note("w0"), HasSubstr("10.0.3.7/24"));
  site.act("w0", "there is no link eth7");
  site.settle();
  EXPECT_EQ(site.status(first), "Failed w0");
  EXPECT_EQ(site.message(first), "there is no link eth7");
  site.act("w0");
  site.settle();
  EXPECT_EQ(site.status(first), "Attached w0");
  ASSERT_TRUE(site.api.remove(api::kInstances, {"", "i-0a1b2c3d4e5f60718"}));
  site.settle();
  EXPECT_EQ(site.status(first), "Detaching w0") << "its node has not said that it has it no more";
  EXPECT_EQ(site.note("w0"), "");
  EXPECT_TRUE(site.api.all("networkinterfaces").at({"", first})["spec"].has("attachment"));
  site.act("w0");
  site.settle();
  EXPECT_EQ(site.status(first), "Available");
  EXPECT_FALSE(site.api.all("networkinterfaces").at({"", first})["spec"].has("attachment"));
}

TEST(Interfaces, WhatIsDeletedLeavesItsNodeFirst) {
  InterfaceSite site;
  site.node("w0");
  site.interface(first);
  site.instance("i-0a1b2c3d4e5f60718", "w0");
  site.attach(first, "i-0a1b2c3d4e5f60718");
  site.settle();
  site.act("w0");
  site.settle();
  ASSERT_TRUE(site.api.remove(api::kNetworkInterfaces, {"", first}));
  site.settle();
  EXPECT_EQ(site.status(first), "Detaching w0");
  site.act("w0");
  site.settle();
  EXPECT_FALSE(site.api.all("networkinterfaces").contains({"", first}));
}

TEST(Interfaces, NodesThatAreGoneHaveNothing) {
  InterfaceSite site;
  site.node("w0");
  site.interface(first);
  site.instance("i-0a1b2c3d4e5f60718", "w0");
  site.attach(first, "i-0a1b2c3d4e5f60718");
  site.settle();
  site.act("w0");
  site.settle();
  ASSERT_TRUE(site.api.remove(resources::nodes, {"", "w0"}));
  site.settle();
  EXPECT_EQ(site.status(first), "Attaching w0");
  ASSERT_TRUE(site.api.remove(api::kInstances, {"", "i-0a1b2c3d4e5f60718"}));
  site.settle();
  EXPECT_EQ(site.status(first), "Available");
}

TEST(Interfaces, WhatCannotBeIsSaid) {
  InterfaceSite site;
  site.node("k0", "v1.33.2");
  site.interface(first, "10.0.3.7");
  site.interface(other);
  site.instance("i-0a1b2c3d4e5f60718", "k0");
  site.attach(first, "i-0a1b2c3d4e5f60718");
  site.attach(other, "i-0a1b2c3d4e5f60718");
  site.settle();
  EXPECT_EQ(site.status(first), "Invalid");
  EXPECT_THAT(site.message(first), HasSubstr("no address with the length of its network"));
  EXPECT_EQ(site.status(other), "Failed");
  EXPECT_THAT(site.message(other), HasSubstr("kubelet of its own"));
  EXPECT_EQ(site.note("k0"), "");
}

// A note that cannot be read is not one that says that nothing is there.
TEST(Interfaces, UnknownIsNotGone) {
  InterfaceSite site;
  site.node("w0");
  site.interface(first);
  site.instance("i-0a1b2c3d4e5f60718", "w0");
  site.attach(first, "i-0a1b2c3d4e5f60718");
  site.settle();
  ASSERT_TRUE(site.api.remove(api::kInstances, {"", "i-0a1b2c3d4e5f60718"}));
  ASSERT_TRUE(site.api.patch(resources::nodes, {"", "w0"}, kube::PatchType::Merge, *kube::parse_json(R"({"metadata": {"annotations": {"fairlead.dev/network-interfaces-state": "?"}}})")));
  site.settle();
  EXPECT_EQ(site.status(first), "Detaching w0");
}

// A node's agent, one step at a time (agent/network_interfaces.h: keep_interfaces). What it has put up stays, whatever becomes of its Node; a Node that is deleted by hand means that its machine is gone.
struct Agent {
  kube::TinyApi& api;
  const std::string node;
  std::set<std::string> has = {};
  std::optional<Json> read = {};
  std::optional<api::InterfaceOrders> claimed = {};
  bool acted = false;
  std::size_t most = 0;
  void step(Rng& rng) {
    const auto tell = [&](const api::InterfaceStates& states, const std::string& version) {
      const std::string text = api::print_interface_states(states);
      Json metadata = Json::object({{"annotations", Json::object({{api::kInterfacesStateNote, text.empty() ? Json() : Json(text)}})}});
      if (!version.empty()) metadata.set("resourceVersion", version);
      return api.patch(resources::nodes, {"", node}, kube::PatchType::Merge, Json::object({{"metadata", std::move(metadata)}})).has_value();
    };
    if (rng.below(8) == 0) {  // it dies, and begins anew
      read.reset();
      claimed.reset();
    } else if (acted) {
      api::InterfaceStates states;
      for (const std::string& id : has) states.emplace(id, "");
      (void)tell(states, "");
      acted = false;
    } else if (claimed) {
      has.clear();
      for (const api::InterfaceOrder& one : *claimed) has.insert(one.id);
      most = std::max(most, has.size());
      claimed.reset();
      acted = true;
    } else if (read) {
      const auto orders = api::parse_interface_orders((*read)["metadata"]["annotations"][api::kInterfacesNote].string());
      auto states = api::read_interface_states(*read);
      if (!orders || !states) return;
      const std::size_t known = states->size();
      for (const api::InterfaceOrder& one : *orders) states->emplace(one.id, api::kInterfaceClaimed);
      if (states->size() == known || tell(*states, kube::version_of(*read))) claimed = *orders;
      read.reset();
    } else if (auto now = api.get(resources::nodes, {"", node})) {
      read = std::move(*now);
    }
  }
};

// Whoever dies when, however old what is known: no address is on two nodes.
TEST(Interfaces, NoAddressIsOnTwoNodes) {
  int moved = 0, put_up = 0;
  const int seeds = test_rounds(400, 400, 40);
  for (std::uint64_t seed = 1; seed <= static_cast<std::uint64_t>(seeds); ++seed) {
    Rng rng(seed);
    InterfaceSite site;
    kube::TinyApi old;  // what caches show: of a while ago
    const char *const instances[] = {"i-00000000000000000", "i-00000000000000001", "i-00000000000000002"}, *const nodes[] = {"w0", "w1", "w2"};
    std::vector<Agent> agents;
    for (const char* const name : nodes) {
      site.node(name);
      agents.push_back({site.api, name});
    }
    for (const char* const id : {first, other}) site.interface(id, id == first ? "10.0.3.7/24" : "10.0.3.8/24");
    const auto reconcile = [&] {
      site.controller->start(old);
      (void)site.controller->reconcile(InterfaceController::kAll);
    };
    static constexpr const char* kinds[] = {"networkinterfaces", "instances", "nodes"};
    const auto catch_up = [&] {
      for (const char* const plural : kinds) old.all(plural) = site.api.all(plural);
    };
    catch_up();
    std::vector<std::pair<kube::ObjectKey, Json>> late;  // sent by a leader that is none any more, and under way
    for (int step = 0; step < 500; ++step) {
      const auto which = rng.below(3);
      const char* const id = rng.below(2) == 0 ? first : other;
      switch (rng.below(14)) {
        case 0:
          if (!site.api.all("instances").contains({"", instances[which]})) site.instance(instances[which], nodes[which]);
          break;
        case 1:
          if (rng.below(3) == 0) (void)site.api.remove(api::kInstances, {"", instances[which]});
          break;
        case 2:
          // As the API does: what is on a node still is not attached.
          if (const Json& now = site.api.all("networkinterfaces").at({"", id}); !now["spec"].has("attachment") && now["status"]["node"].string().empty()) site.attach(id, instances[which]), ++moved;
          break;
        case 3:
          if (rng.below(2) == 0) site.restart(static_cast<int>(rng.below(4)), rng.below(2) == 0 ? MortalApi::Death::Before : MortalApi::Death::After);
          break;
        case 4:
          if (site.mortal->dead) site.restart();
          break;
        case 5:
        case 10:
          if (const char* const plural = kinds[rng.below(3)]; rng.below(3) != 0) old.all(plural) = site.api.all(plural);
          else catch_up();
          break;
        case 11:
          if (late.empty()) site.mortal->patches = &late;
          else if (rng.below(3) == 0) (void)site.api.patch(resources::nodes, late.back().first, kube::PatchType::Merge, late.back().second), late.pop_back();
          break;
        case 6:
        case 7: reconcile(); break;
        default: agents[which].step(rng); break;
      }
      for (const char* const one : {first, other}) {
        int places = 0;
        for (const Agent& agent : agents) places += agent.has.contains(one) ? 1 : 0;
        ASSERT_LE(places, 1) << "seed " << seed << " step " << step;
      }
    }
    for (const Agent& agent : agents) put_up += agent.most > 0 ? 1 : 0;
    // And whatever has happened, it comes to rest.
    site.restart();
    for (int i = 0; i < 6; ++i) {
      for (int rounds = 0; rounds < 6; ++rounds) catch_up(), reconcile();
      for (const char* const name : nodes) site.act(name);
    }
    for (const char* const one : {first, other}) EXPECT_THAT(site.status(one), testing::AnyOf("Available", testing::StartsWith("Attached w"))) << "seed " << seed;
  }
  EXPECT_GT(moved, seeds * 5 / 2) << "it has been tried";
  EXPECT_GT(put_up, seeds);
}

}  // namespace
}  // namespace fairlead::fleet
