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
