// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/addresses.h"

#include <gmock/gmock.h>

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;

struct Text {
  const char* name;
  const char* text;
  const char* want;  // printed; empty: refused
};
class Networks : public testing::TestWithParam<Text> {};
TEST_P(Networks, ParseAndPrint) {
  const auto parsed = parse_network(GetParam().text);
  EXPECT_EQ(parsed ? print_network(*parsed) : "", GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(Fleet, Networks,
                         testing::Values(Text{"usual", "10.77.0.0/16", "10.77.0.0/16"}, Text{"address", "10.1.2.3", "10.1.2.3/32"}, Text{"all", "0.0.0.0/0", "0.0.0.0/0"},
                                         Text{"low_bits", "10.77.0.1/16", ""}, Text{"three_parts", "10.77.0/16", ""}, Text{"too_large", "10.256.0.0/16", ""},
                                         Text{"too_many_bits", "10.0.0.0/33", ""}, Text{"empty", "", ""}, Text{"letters", "a.b.c.d/8", ""}, Text{"blank", "10.0.0.0/ 8", ""}),
                         [](const auto& row) { return row.param.name; });

class Networks6 : public testing::TestWithParam<Text> {};
TEST_P(Networks6, ParseAndPrint) {
  const auto parsed = parse_network6(GetParam().text);
  EXPECT_EQ(parsed ? print_network(*parsed) : "", GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(Fleet, Networks6,
                         testing::Values(Text{"usual", "fd00:77::/64", "fd00:77::/64"}, Text{"address", "fd00::5", "fd00::5/128"}, Text{"long_form", "fd00:0078:0000::/56", "fd00:78::/56"},
                                         Text{"all", "::/0", "::/0"}, Text{"low_bits", "fd00:77::1/64", ""}, Text{"too_many_bits", "fd00::/129", ""}, Text{"ipv4", "10.77.0.0/16", ""},
                                         Text{"empty", "", ""}, Text{"no_bits", "fd00::/", ""}, Text{"zone", "fe80::%eth0/64", ""}, Text{"two_gaps", "fd::1::/64", ""}),
                         [](const auto& row) { return row.param.name; });

TEST(FourNetworks, OneAddressIsARangeOfOne) {
  const auto net = [](const char* text) { return *parse_network(text); };
  EXPECT_EQ(net("10.44.0.11").last(), net("10.44.0.11").base);
  EXPECT_FALSE(overlap(net("10.77.0.0/16"), net("10.44.0.11")));
  EXPECT_TRUE(overlap(net("10.77.0.0/16"), net("10.77.3.4/32")));
  EXPECT_EQ(net("0.0.0.0/0").last(), ~0U);
}

TEST(Networks6, OverlapWhereOneHoldsTheOther) {
  const auto net = [](const char* text) { return *parse_network6(text); };
  EXPECT_TRUE(overlap(net("fd00::/8"), net("fd00:77::/64")));
  EXPECT_TRUE(overlap(net("fd00:77::/64"), net("::/0")));
  EXPECT_FALSE(overlap(net("fd00:77::/64"), net("fd00:77:0:1::/64")));
}

struct Two {
  const char* name;
  const char* nodes;
  const char* pods;
  const char* want;  // of nodes and pods, printed; what begins with "!" is part of the refusal
};
class TwoFamilies : public testing::TestWithParam<Two> {};
TEST_P(TwoFamilies, AreAnIpv4RangeAndAnIpv6Range) {
  const auto parsed = parse_ranges(GetParam().nodes, GetParam().pods);
  if (*GetParam().want == '!') {
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, Code::Invalid);
    EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().want + 1));
  } else {
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(print_nodes(*parsed) + " " + print_pods(*parsed), GetParam().want);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Fleet, TwoFamilies,
    testing::Values(Two{"one_family", "10.77.0.0/16", "10.78.0.0/16", "10.77.0.0/16 10.78.0.0/16"},
                    Two{"both", "10.77.0.0/16,fd00:1::/64", "10.78.0.0/16,fd00:2::/48", "10.77.0.0/16,fd00:1::/64 10.78.0.0/16,fd00:2::/48"},
                    Two{"nodes_get_one", "10.77.0.0/16", "10.78.0.0/16,fd00:78::/56", "10.77.0.0/16,fd00:77::/64 10.78.0.0/16,fd00:78::/56"},
                    Two{"pods_have_none", "10.77.0.0/16,fd00:1::/64", "10.78.0.0/16", "!pods need one, too"}, Two{"wrong_order", "10.77.0.0/16", "fd00:78::/56,10.78.0.0/16", "!begins with IPv6"},
                    Two{"only_ipv6", "fd00:77::/64", "10.78.0.0/16", "!has no IPv4"}, Two{"ipv4_twice", "10.77.0.0/16,10.79.0.0/16", "10.78.0.0/16", "!names IPv4 twice"},
                    Two{"ipv6_twice", "10.77.0.0/16", "fd00:1::/56,fd00:2::/56", "!names IPv6 twice"}, Two{"three", "10.77.0.0/16", "10.78.0.0/16,fd00::/56,fd01::/56", "!more than two parts"},
                    Two{"pods_too_small", "10.77.0.0/16", "10.78.0.0/16,fd00:78::/64", "!a /56 or larger is needed"},
                    Two{"nodes_too_small", "10.77.0.0/16,fd00:77::/120", "10.78.0.0/16,fd00:78::/56", "!a /112 or larger is needed"},
                    Two{"ipv4_too_small", "10.77.0.0/24,fd00:77::/64", "10.78.0.0/16,fd00:78::/56", "!are each a /16"}, Two{"low_bits", "10.77.0.0/16", "10.78.0.0/16,fd00:78::1/56", "!has bits set after its first 56"},
                    Two{"overlap", "10.77.0.0/16,fd00:77::/64", "10.78.0.0/16,fd00:77::/48", "!the IPv6 ranges of nodes (fd00:77::/64) and pods (fd00:77::/48) overlap"},
                    Two{"link_local", "10.77.0.0/16", "10.78.0.0/16,fe80::/56", "!not of addresses that a machine can have"}, Two{"multicast", "10.77.0.0/16", "10.78.0.0/16,ff02::/56", "!not of addresses"},
                    Two{"comma_at_the_end", "10.77.0.0/16", "10.78.0.0/16,", "!names IPv4 twice"}, Two{"nonsense", "10.77.0.0/16", "10.78.0.0/16,a:b", "!pod range: \"a:b\" is not a network"}),
    [](const auto& row) { return row.param.name; });

TEST(Seats, HaveAddressesOfBothFamilies) {
  const auto ranges = parse_ranges("10.77.0.0/16,fd00:77::/64", "10.78.0.0/16,fd00:78::/56");
  ASSERT_TRUE(ranges);
  EXPECT_EQ(host_address6(*ranges->six), "fd00:77::1");
  EXPECT_EQ(fabric_address6(*ranges->six), "fd00:77::2");
  EXPECT_EQ(seat_of(*ranges, 3), (api::Seat{3, "10.77.1.3", "10.78.3.0/24", "fd00:77::103", "fd00:78:0:3::/64"}));
  EXPECT_EQ(seat_of(*ranges, 254).pod_cidr6, "fd00:78:0:fe::/64");
}

TEST(RouteConflict6, IsToldInASentence) {
  const auto ranges = parse_ranges("10.77.0.0/16", "10.78.0.0/16,fd00:78::/56");
  ASSERT_TRUE(ranges && ranges->six);
  const auto told = [&](const char* to, const char* device) { return route_conflict(*ranges->six, {{*parse_network6(to), device}}, "flabc123"); };
  EXPECT_EQ(told("::/0", "lo"), "");
  EXPECT_EQ(told("fd00::/64", "eth0"), "");
  EXPECT_EQ(told("fd00:77::/64", "flabc123"), "");
  EXPECT_THAT(told("fd00:78:0:3::/64", "wg0"), HasSubstr("the network fd00:78::/56 is in use here (wg0 leads to fd00:78:0:3::/64); choose another range with --pod-range"));
  EXPECT_THAT(told("fd00:77::/32", "fl000000"), HasSubstr("another site's fl000000"));
}

TEST(Ranges, AreTwoSixteens) {
  ASSERT_TRUE(parse_ranges("172.20.0.0/16", "172.21.0.0/16"));
  EXPECT_FALSE(parse_ranges("172.20.0.0/16", "172.20.0.0/16"));
  EXPECT_FALSE(parse_ranges("172.20.0.0/24", "172.21.0.0/16"));
  EXPECT_FALSE(parse_ranges("nonsense", "172.21.0.0/16"));
}

TEST(Seats, AreNumberedFromOne) {
  EXPECT_EQ(host_address(Ranges{}), "10.77.0.1");
  EXPECT_EQ(fabric_address(Ranges{}), "10.77.0.2");
  EXPECT_EQ(seat_of(Ranges{}, 3), (api::Seat{3, "10.77.1.3", "10.78.3.0/24"}));
}

TEST(Seats, TheLowestFreeOneIsChosen) {
  EXPECT_EQ(choose_seat(Ranges{}, {})->index, 1);
  EXPECT_EQ(choose_seat(Ranges{}, {1, 2, 4})->index, 3);
  std::set<int> all;
  for (int i = 1; i <= kLastSeat; ++i) all.insert(i);
  const auto none = choose_seat(Ranges{}, all);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::Exhausted);
}

struct Routes {
  const char* name;
  std::vector<Route> routes;
  const char* want;  // part of the sentence; empty: free
};
class RouteConflict : public testing::TestWithParam<Routes> {};
TEST_P(RouteConflict, IsToldInASentence) {
  const std::string told = route_conflict(Ranges{}, GetParam().routes, "flabc123");
  if (*GetParam().want == '\0')
    EXPECT_EQ(told, "");
  else
    EXPECT_THAT(told, HasSubstr(GetParam().want));
}
INSTANTIATE_TEST_SUITE_P(Fleet, RouteConflict,
                         testing::Values(Routes{"none", {}, ""}, Routes{"default_route", {{Network{0, 0}, "eth0"}}, ""}, Routes{"own", {{*parse_network("10.77.0.0/16"), "flabc123"}}, ""},
                                         Routes{"elsewhere", {{*parse_network("192.168.0.0/16"), "eth0"}}, ""},
                                         Routes{"vpn_over_nodes", {{*parse_network("10.77.3.0/24"), "wg0"}}, "wg0 leads to 10.77.3.0/24"},
                                         Routes{"wide_net", {{*parse_network("10.0.0.0/8"), "eth0"}}, "--node-range"}, Routes{"pods", {{*parse_network("10.78.1.0/24"), "fl000000"}}, "--pod-range"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::fleet
