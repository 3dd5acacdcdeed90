// SPDX-License-Identifier: Apache-2.0
#include "api/network_interface.h"

#include <gtest/gtest.h>

namespace fairlead::api {
namespace {

using kube::Json;

TEST(NetworkInterfaces, OrdersAreReadAsTheyWereWritten) {
  const InterfaceOrders orders{{.id = "eni-0a1b2c3d", .addresses = {"10.0.3.7/24", "fd00::7/64"}, .mac = "02:00:5e:00:53:01", .link = "eth1"}, {.id = "eni-0a1b2c3d4e5f60718", .addresses = {"10.0.4.7/32"}, .mac = "0a:00:5e:00:53:01", .link = {}}};
  const auto read = parse_interface_orders(print_interface_orders(orders));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, orders);
  EXPECT_TRUE(parse_interface_orders("")->empty());
  EXPECT_EQ((*parse_interface_orders(R"([{"id": "eni-0a1b2c3d", "addresses": ["FD00:0:0::7/64"]}])"))[0].addresses[0], "fd00::7/64");
  EXPECT_EQ(print_interface_orders({}), "");
  for (const char* const bad : {"{}", "[1]", "x", R"([{"id": "eni-1", "addresses": ["10.0.0.1/8"]}])", R"([{"id": "eni-0a1b2c3d", "addresses": []}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1"]}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/33"]}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8 dev lo"]}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/024"]}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["fd00::1/64", "fd00:0::1/64"]}])",
                                R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8"], "link": "-x"}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8"], "link": "a/b"}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8"], "mac": "01:00:5e:00:53:01"}])", R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8"], "mac": "00:00:5e:00:53:01"}])",
                                R"([{"id": "eni-0a1b2c3d", "addresses": ["10.0.0.1/8"]}, {"id": "eni-0a1b2c3d", "addresses": ["10.0.0.2/8"]}])"})
    EXPECT_FALSE(parse_interface_orders(bad)) << bad;
}

TEST(NetworkInterfaces, TheMacGoesWithTheId) {
  const auto read = [](const char* id) { return read_network_interface(Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", *kube::parse_json(R"({"addresses": ["10.0.3.7/24"]})")}})); };
  EXPECT_EQ(read("eni-0a1b2c3d").order.mac, read("eni-0a1b2c3d").order.mac);
  EXPECT_NE(read("eni-0a1b2c3d").order.mac, read("eni-0a1b2c3e").order.mac);
  EXPECT_TRUE(read("eni-0a1b2c3d").order.mac.starts_with("02:"));
  EXPECT_EQ(read("eni-0a1b2c3d").problem, "");
  EXPECT_NE(read("eth0").problem, "");
}

TEST(NetworkInterfaces, StatesOfANode) {
  Json node = Json::object();
  EXPECT_TRUE(read_interface_states(node)->empty());
  node.child("metadata").child("annotations").set(kInterfacesStateNote, print_interface_states({{"eni-0a1b2c3d", ""}, {"eni-0a1b2c3e", "no link"}}));
  EXPECT_EQ(*read_interface_states(node), (InterfaceStates{{"eni-0a1b2c3d", ""}, {"eni-0a1b2c3e", "no link"}}));
  node.child("metadata").child("annotations").set(kInterfacesStateNote, "?");
  EXPECT_FALSE(read_interface_states(node)) << "nothing is known: that is not that none is there";
}

}  // namespace
}  // namespace fairlead::api
