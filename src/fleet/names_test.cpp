// SPDX-License-Identifier: Apache-2.0
// What is found by name on the machine: command lines, mounts, cgroup hierarchies, routes.
#include <gmock/gmock.h>

#include "fleet/cgroups.h"
#include "fleet/fabric.h"
#include "fleet/processes.h"
#include "fleet/site.h"

namespace fairlead::fleet {
namespace {

using testing::ElementsAre;

TEST(Site, ItsNamesFollowFromTheFolder) {
  const Site site = site_of("/srv/none/../cluster/");
  EXPECT_EQ(site.dir, "/srv/cluster");
  EXPECT_EQ(site.id.size(), 6u);
  EXPECT_EQ(site.id, site_of("/srv/cluster").id);
  EXPECT_NE(site.id, site_of("/srv/cluster2").id);
  EXPECT_LE(site.host_link().size(), 15u);  // IFNAMSIZ
}

struct Line {
  const char* name;
  std::vector<std::string> argv;
  const char* want;  // "server", "node X" or ""
};
class CommandLines : public testing::TestWithParam<Line> {};
TEST_P(CommandLines, AreOursOrNot) {
  const auto process = classify_process(site_of("/srv/cluster"), GetParam().argv);
  EXPECT_EQ(!process ? "" : process->role == Role::Server ? "server" : "node " + process->node, GetParam().want);
}
INSTANTIATE_TEST_SUITE_P(
    Fleet, CommandLines,
    testing::Values(Line{"node", {"/usr/bin/fairlead-agent", "node-init", "--config", "/srv/cluster/nodes/a/agent.json"}, "node a"},
                    Line{"node_equals", {"fairlead-agent", "node-init", "--config=/srv/cluster/nodes/a/agent.json"}, "node a"},
                    Line{"other_site", {"fairlead-agent", "node-init", "--config", "/srv/cluster2/nodes/a/agent.json"}, ""},
                    Line{"no_node_name", {"fairlead-agent", "node-init", "--config", "/srv/cluster/nodes/agent.json"}, ""},
                    Line{"agent_on_a_real_node", {"fairlead-agent", "run", "--config", "/srv/cluster/nodes/a/agent.json"}, ""},
                    Line{"server", {"/opt/fairlead-server", "--state-dir", "/srv/cluster"}, "server"}, Line{"server_equals", {"fairlead-server", "--state-dir=/srv/cluster/"}, "server"},
                    Line{"other_server", {"fairlead-server", "--state-dir", "/srv"}, ""}, Line{"server_of_nothing", {"fairlead-server"}, ""},
                    Line{"an_editor", {"vi", "/srv/cluster/nodes/a/agent.json"}, ""}, Line{"empty", {}, ""}),
    [](const auto& row) { return row.param.name; });

TEST(Mounts, BelowAFolderComeDeepestFirst) {
  constexpr std::string_view kText =
      "22 1 0:20 / / rw - ext4 /dev/vda rw\n"
      "30 22 0:30 / /srv/cluster/run/netns/fabric rw - nsfs nsfs rw\n"
      "31 22 0:31 / /srv/cluster/a\\040b rw shared:3 - tmpfs tmpfs rw\n"
      "32 22 0:32 / /srv/cluster2/x rw - tmpfs tmpfs rw\n"
      "33 22 0:33 / /srv/cluster/run rw - tmpfs tmpfs rw\n";
  EXPECT_THAT(mounts_below(kText, "/srv/cluster"), ElementsAre("/srv/cluster/run/netns/fabric", "/srv/cluster/a b", "/srv/cluster/run"));
}

TEST(Cgroups, HierarchiesOfAHybridMachine) {
  constexpr std::string_view kText =
      "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
      "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
      "42 31 0:39 / /proc rw,relatime - proc proc rw\n";
  const auto all = parse_hierarchies(kText);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1].mount, "/sys/fs/cgroup/memory");
  EXPECT_THAT(all[1].controllers, ElementsAre("memory"));
  EXPECT_FALSE(all[2].v2);
  EXPECT_TRUE(all[3].v2);
}

TEST(Routes, AreReadFromProc) {
  constexpr std::string_view kText =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      "flabc\t00004E0A\t02004D0A\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
  const auto routes = parse_routes(kText);
  ASSERT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes[0].to.bits, 0);
  EXPECT_EQ(print_network(routes[1].to), "10.78.0.0/16");
  EXPECT_EQ(routes[1].device, "flabc");
}

TEST(Routes, OfIpv6AreReadFromProc) {
  constexpr std::string_view kText =
      "fd000078000000030000000000000000 40 00000000000000000000000000000000 00 fd000077000000000000000000000103 00000400 00000001 00000000 00000007      br0\n"
      "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n"
      "fd00 40 half a line\n"
      "fd000077000000000000000000000002 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000003 00000000 80200001      br0\n";
  const auto routes = parse_routes6(kText);
  ASSERT_EQ(routes.size(), 3u);
  EXPECT_EQ(print_network(routes[0].to), "fd00:78:0:3::/64");
  EXPECT_EQ(routes[0].device, "br0");
  EXPECT_EQ(routes[1].to.bits, 0);
  EXPECT_EQ(print_network(routes[2].to), "fd00:77::2/128");
}

}  // namespace
}  // namespace fairlead::fleet
