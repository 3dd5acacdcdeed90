// SPDX-License-Identifier: Apache-2.0
#include "agent/network_interfaces.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "base/rng.h"
#include "kube/tiny_api.h"

namespace fairlead::agent {
namespace {

using kube::Json;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* id = "eni-0a1b2c3d";
const api::InterfaceOrder order{.id = id, .addresses = {"10.0.3.7/24"}, .mac = "02:00:5e:00:53:01", .link = {}};

LinkView card() { return {.links = {{.name = "lo", .kind = {}, .alias = {}, .mac = {}, .parent = {}, .addresses = {"127.0.0.1/8"}, .up = true}, {.name = "eth0", .kind = {}, .alias = {}, .mac = "52:54:00:00:00:01", .parent = {}, .addresses = {"192.168.1.5/24"}, .up = true}, {.name = "eth1", .kind = {}, .alias = {}, .mac = "52:54:00:00:00:02", .parent = {}, .addresses = {"10.0.3.2/24"}, .up = true}}, .default_link = "eth0", .default_link6 = {}}; }
std::string words(const InterfaceSteps& plan) {
  std::string out;
  for (const auto& step : plan.steps) {
    for (const std::string& word : step.words) out += word + " ";
    out += "\n";
  }
  return out;
}
LinkView with(Link own) {
  LinkView out = card();
  out.links.push_back(std::move(own));
  return out;
}
const Link put_up{.name = id, .kind = "macvlan", .alias = "fairlead eni-0a1b2c3d", .mac = order.mac, .parent = "eth1", .addresses = {"10.0.3.7/24"}, .up = true};

TEST(NodeInterfaces, ArePutUponTheLinkOfTheirNetwork) {
  EXPECT_EQ(words(plan_links({order}, card())),
            "link add link eth1 name eni-0a1b2c3d address 02:00:5e:00:53:01 type macvlan mode bridge \n"
            "link set dev eni-0a1b2c3d alias fairlead eni-0a1b2c3d \n"
            "address add 10.0.3.7/24 dev eni-0a1b2c3d noprefixroute \n"
            "link set dev eni-0a1b2c3d up \n");
  EXPECT_THAT(plan_links({order}, with(put_up)).steps, IsEmpty());
  api::InterfaceOrder elsewhere = order;
  elsewhere.addresses = {"172.16.0.7/16", "fd00::7/64"};
  EXPECT_THAT(words(plan_links({elsewhere}, card())), HasSubstr("link add link eth0 "));
  EXPECT_THAT(words(plan_links({elsewhere}, card())), HasSubstr("address add fd00::7/64 dev eni-0a1b2c3d nodad \n"));
  elsewhere.link = "eth1";
  EXPECT_THAT(words(plan_links({elsewhere}, card())), HasSubstr("link add link eth1 "));
  elsewhere.link = "ib0";
  EXPECT_EQ(plan_links({elsewhere}, card()).failed.at(id), "this node has no link ib0");
  LinkView alone = card();
  alone.default_link.clear();
  elsewhere.link.clear();
  EXPECT_THAT(plan_links({elsewhere}, alone).failed.at(id), HasSubstr("no link of this node is in the network of 172.16.0.7/16"));
}

TEST(NodeInterfaces, WhatDiffersIsMadeAnewAndWhatIsOthersStays) {
  for (const auto& change : std::vector<std::function<void(Link&)>>{[](Link& link) { link.mac = "02:00:5e:00:53:02"; }, [](Link& link) { link.addresses = {"10.0.3.8/24"}; }, [](Link& link) { link.addresses.push_back("10.0.3.8/24"); }, [](Link& link) { link.parent = "eth0"; }, [](Link& link) { link.up = false; }}) {
    Link odd = put_up;
    change(odd);
    EXPECT_THAT(words(plan_links({order}, with(odd))), testing::StartsWith("link delete dev eni-0a1b2c3d \nlink add "));
  }
  EXPECT_EQ(words(plan_links({}, with(put_up))), "link delete dev eni-0a1b2c3d \n");
  Link foreign = put_up;
  foreign.alias = "of somebody";
  EXPECT_THAT(plan_links({}, with(foreign)).steps, IsEmpty());
  EXPECT_THAT(plan_links({order}, with(foreign)).failed.at(id), HasSubstr("that is not ours"));
  // What a death left before its alias was set is made anew, and nothing else.
  Link half = put_up;
  half.alias.clear(), half.addresses.clear(), half.up = false;
  EXPECT_THAT(words(plan_links({order}, with(half))), testing::StartsWith("link delete dev eni-0a1b2c3d \nlink add "));
  half.mac = "02:00:5e:00:53:02";
  EXPECT_THAT(plan_links({order}, with(half)).failed.at(id), HasSubstr("that is not ours"));
  foreign = put_up;
  foreign.kind = "veth";
  EXPECT_THAT(plan_links({}, with(foreign)).steps, IsEmpty());
}

TEST(NodeInterfaces, NamesFitIntoTheKernels) {
  EXPECT_EQ(link_name("eni-0a1b2c3d"), "eni-0a1b2c3d");
  EXPECT_EQ(link_name("eni-0a1b2c3d4e5f60718"), "eni-3d4e5f60718");
}

// ---- with the API

struct Keeping : testing::Test {
  kube::TinyApi api;
  api::InterfaceStates has;
  void SetUp() override { ASSERT_TRUE(api.create(kube::resources::nodes, *kube::parse_json(R"({"metadata": {"name": "w0"}})"))); }
  Json node() { return api.get(kube::resources::nodes, {"", "w0"}).value(); }
  void note(const char* name, const std::string& text) { ASSERT_TRUE(api.patch(kube::resources::nodes, {"", "w0"}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"annotations", Json::object({{name, text.empty() ? Json() : Json(text)}})}})}}))); }
  std::string told() { return node()["metadata"]["annotations"][api::kInterfacesStateNote].string(); }
};

TEST_F(Keeping, WhatIsNewIsClaimedBeforeItIsPutUp) {
  const Settle settle = [&](const api::InterfaceOrders& orders) -> Result<api::InterfaceStates> {
    EXPECT_THAT(told(), HasSubstr(id)) << "who takes it back has to know";
    api::InterfaceStates out;
    for (const auto& one : orders) out[one.id] = "";
    return out;
  };
  ASSERT_TRUE(keep_interfaces(api, node(), settle));
  EXPECT_EQ(told(), "");
  note(api::kInterfacesNote, api::print_interface_orders({order}));
  // Taken back between the look and the claim: nothing is put up.
  const Json before = node();
  note(api::kInterfacesNote, "");
  EXPECT_EQ(keep_interfaces(api, before, settle).error().code, Code::Conflict);
  EXPECT_EQ(told(), "");
  note(api::kInterfacesNote, api::print_interface_orders({order}));
  ASSERT_TRUE(keep_interfaces(api, node(), settle));
  EXPECT_EQ(told(), R"({"eni-0a1b2c3d":""})");
  const std::string version = kube::version_of(node());
  ASSERT_TRUE(keep_interfaces(api, node(), settle));
  EXPECT_EQ(kube::version_of(node()), version) << "nothing is written while nothing changes";
}

TEST_F(Keeping, WhatCannotBeSeenIsNotToldToBeGone) {
  note(api::kInterfacesNote, api::print_interface_orders({order}));
  ASSERT_TRUE(keep_interfaces(api, node(), [](const api::InterfaceOrders&) -> Result<api::InterfaceStates> { return api::InterfaceStates{{id, ""}}; }));
  note(api::kInterfacesNote, "");
  EXPECT_FALSE(keep_interfaces(api, node(), [](const api::InterfaceOrders&) -> Result<api::InterfaceStates> { return fail(Code::Unavailable, "no ip"); }));
  EXPECT_EQ(told(), R"({"eni-0a1b2c3d":"no ip"})");
  note(api::kInterfacesNote, "{");
  bool looked = false;
  EXPECT_FALSE(keep_interfaces(api, node(), [&](const api::InterfaceOrders&) -> Result<api::InterfaceStates> { looked = true; return api::InterfaceStates(); }));
  EXPECT_FALSE(looked) << "an order that cannot be read orders nothing, not even that all goes";
}

// Its Node was deleted while the agent was away: what it had put up is another's by now.
TEST_F(Keeping, WhatAnAgentOfBeforeLeftIsLookedAt) {
  int looked = 0;
  const Settle settle = [&](const api::InterfaceOrders& orders) -> Result<api::InterfaceStates> {
    EXPECT_TRUE(orders.empty());
    ++looked;
    return api::InterfaceStates();
  };
  ASSERT_TRUE(keep_interfaces(api, node(), settle));
  EXPECT_EQ(looked, 0) << "most nodes have none";
  ASSERT_TRUE(keep_interfaces(api, node(), settle, true));
  EXPECT_EQ(looked, 1);
}

// ---- of the kernel, in a network of its own

template <class Work>
void in_own_network(Work work) {
  std::thread([&] {
    ASSERT_EQ(::unshare(CLONE_NEWNET), 0);
    work();
  }).join();
}
std::string ip(const std::string& words) {
  std::vector<std::string> argv{"/usr/sbin/ip"};
  for (std::size_t at = 0; at < words.size();) {
    const auto end = std::min(words.find(' ', at), words.size());
    argv.push_back(words.substr(at, end - at));
    at = end + 1;
  }
  auto done = run_checked({.argv = std::move(argv)}, 20s);
  EXPECT_TRUE(done) << words << ": " << (done ? "" : done.error().message);
  return done.value_or("");
}

TEST(KernelInterfaces, ComeChangeAndGo) {
  if (::geteuid() != 0 || !exists("/usr/sbin/ip")) GTEST_SKIP() << "needs root and iproute2";
  in_own_network([] {
    ip("link set lo up");
    ip("link add eth1 type veth peer name far");
    ip("address add 10.0.3.2/24 dev eth1");
    ip("link set eth1 up");
    ip("link set far up");
    ip("route add default via 10.0.3.1");
    api::InterfaceOrder wanted = order;
    wanted.addresses.push_back("fd00:3::7/64");
    ASSERT_EQ(*settle_interfaces({wanted}), (api::InterfaceStates{{id, ""}}));
    const std::string shown = ip(fmt::format("address show dev {}", id));
    for (const char* const part : {"10.0.3.7/24", "fd00:3::7/64", "02:00:5e:00:53:01"}) EXPECT_THAT(shown, HasSubstr(part));
    EXPECT_THAT(ip(fmt::format("link show dev {}", id)), HasSubstr("alias fairlead eni-0a1b2c3d"));
    // Kept as it is, mended where somebody changed it.
    const std::string index = shown.substr(0, shown.find(':'));
    ASSERT_EQ(*settle_interfaces({wanted}), (api::InterfaceStates{{id, ""}}));
    EXPECT_EQ(ip(fmt::format("address show dev {}", id)).substr(0, index.size()), index);
    ip(fmt::format("address del 10.0.3.7/24 dev {}", id));
    ASSERT_EQ(*settle_interfaces({wanted}), (api::InterfaceStates{{id, ""}}));
    EXPECT_THAT(ip(fmt::format("address show dev {}", id)), HasSubstr("10.0.3.7/24"));
    // A second one, and one that cannot be.
    api::InterfaceOrder second{.id = "eni-0a1b2c3d4e5f60718", .addresses = {"10.0.3.8/24"}, .mac = "02:00:5e:00:53:02", .link = {}}, none = second;
    none.id = "eni-0a1b2c3f", none.link = "ib0";
    const auto all = settle_interfaces({wanted, none, second});
    ASSERT_TRUE(all);
    EXPECT_EQ(all->at(second.id), "");
    EXPECT_EQ(all->at(none.id), "this node has no link ib0");
    EXPECT_EQ(*settle_interfaces({second}), (api::InterfaceStates{{second.id, ""}}));
    EXPECT_EQ(settle_interfaces({}, "").error().code, Code::Unavailable) << "what cannot be taken away is not told to be gone";
    EXPECT_EQ(*settle_interfaces({}), api::InterfaceStates());
    EXPECT_EQ(*settle_interfaces({}, ""), api::InterfaceStates()) << "a node without iproute2 has none";
    EXPECT_THAT(ip("link show"), testing::Not(HasSubstr("macvlan")));
    EXPECT_THAT(ip("link show"), testing::Not(HasSubstr("eni-")));
  });
}

}  // namespace
}  // namespace fairlead::agent
