// SPDX-License-Identifier: Apache-2.0
#include "api/network_ways.h"

#include <gmock/gmock.h>

#include "base/files.h"

namespace fairlead::api {
namespace {
using kube::Json;
using testing::HasSubstr;
using enum Group;

TEST(NetworkWays, TheDocumentHasTheTable) {
  auto text = read_file(SOURCE_DIR "/docs/network.md", 1_MiB);
  ASSERT_TRUE(text);
  EXPECT_NE(text->find("<!-- ways: begin, written by deploy/generate.sh -->\n" + print_ways_markdown() + "<!-- ways: end -->"), std::string::npos) << "docs/network.md is old: run deploy/generate.sh";
}

TEST(NetworkWays, EveryLineIsWellFormedAndSaidOnce) {
  for (const Way& way : network_ways()) {
    EXPECT_FALSE(way.what_for.empty());
    EXPECT_TRUE((way.first == 0 && way.last == 0) || (way.first >= 1 && way.first <= way.last && way.last <= 65535)) << way.first << "-" << way.last;
    int same = 0;
    for (const Way& other : network_ways())
      same += way.from == other.from && way.to == other.to && way.protocol == other.protocol && way.first == other.first && way.last == other.last && way.kept == other.kept;
    EXPECT_EQ(same, 1) << text(way.from) << " to " << text(way.to) << " " << way.first;
    // A policy stands around groups of a SlurmCluster alone: a line that it should keep names one of them.
    const auto slurm = [](Group group) { return group == Heads || group == Workers || group == Login || group == Accounting || group == Database || group == Exporter || group == Rest || group == Scripts; };
    EXPECT_EQ(way.kept == Kept::SlurmPolicy, slurm(way.from) || slurm(way.to));
  }
}

struct OpenCase {
  const char* name;
  Group from, to;
  Protocol protocol;
  int port;
  bool open;
};
class Open : public testing::TestWithParam<OpenCase> {};
TEST_P(Open, AsSlurmNeedsAndNoMore) {
  const auto& row = GetParam();
  EXPECT_EQ(way_open(row.from, row.to, row.protocol, row.port), row.open);
}
INSTANTIATE_TEST_SUITE_P(Ways, Open,
                         testing::Values(OpenCase{"worker_registers", Workers, Heads, Protocol::Tcp, 6817, true}, OpenCase{"head_starts_jobs", Heads, Workers, Protocol::Tcp, 6818, true},
                                         OpenCase{"output_of_steps", Workers, Login, Protocol::Tcp, 40000, true}, OpenCase{"ssh", People, Login, Protocol::Tcp, 22, true},
                                         OpenCase{"no_other_port_of_heads", Workers, Heads, Protocol::Tcp, 6819, false}, OpenCase{"heads_do_not_log_in", Heads, Login, Protocol::Tcp, 22, false},
                                         OpenCase{"jobs_use_udp_among_themselves", Workers, Workers, Protocol::Udp, 5000, true}, OpenCase{"not_from_login", Login, Workers, Protocol::Udp, 5000, false},
                                         OpenCase{"strangers_do_not_reach_heads", Anybody, Heads, Protocol::Tcp, 6817, false}, OpenCase{"low_ports_of_workers", Login, Workers, Protocol::Tcp, 22, false},
                                         OpenCase{"records_reach_slurmdbd", Heads, Accounting, Protocol::Tcp, 6819, true}, OpenCase{"slurmdbd_asks_its_database", Accounting, Database, Protocol::Tcp, 3306, true},
                                         OpenCase{"heads_do_not_ask_the_database", Heads, Database, Protocol::Tcp, 3306, false}, OpenCase{"nor_do_people", Login, Database, Protocol::Tcp, 3306, false},
                                         OpenCase{"the_database_asks_nobody", Database, World, Protocol::Tcp, 443, false}, OpenCase{"nor_names", Database, Names, Protocol::Udp, 53, false},
                                         OpenCase{"heads_do_not_leave", Heads, World, Protocol::Tcp, 443, false},
                                         OpenCase{"prometheus_reads", Monitoring, Exporter, Protocol::Tcp, 8080, true},
                                         OpenCase{"strangers_read_no_metrics", Anybody, Exporter, Protocol::Tcp, 8080, false}, OpenCase{"jobs_read_no_metrics", Workers, Exporter, Protocol::Tcp, 8080, false},
                                         OpenCase{"exporter_asks_slurmctld", Exporter, Heads, Protocol::Tcp, 6817, true}, OpenCase{"exporter_does_not_leave", Exporter, World, Protocol::Tcp, 443, false},
                                         OpenCase{"login_asks_rest", Login, Rest, Protocol::Tcp, 6820, true}, OpenCase{"jobs_do_not_ask_rest", Workers, Rest, Protocol::Tcp, 6820, false},
                                         OpenCase{"strangers_do_not_ask_rest", Anybody, Rest, Protocol::Tcp, 6820, false}, OpenCase{"rest_asks_slurmctld", Rest, Heads, Protocol::Tcp, 6817, true},
                                         OpenCase{"rest_asks_slurmdbd", Rest, Accounting, Protocol::Tcp, 6819, true}, OpenCase{"rest_asks_no_database", Rest, Database, Protocol::Tcp, 3306, false},
                                         OpenCase{"rest_does_not_leave", Rest, World, Protocol::Tcp, 443, false}, OpenCase{"rest_reaches_no_worker", Rest, Workers, Protocol::Tcp, 6818, false},
                                         OpenCase{"exporter_reaches_no_worker", Exporter, Workers, Protocol::Tcp, 6818, false}),
                         [](const auto& row) { return row.param.name; });

TEST(NetworkWays, PoliciesSayWhatTheTableSays) {
  const auto policies = slurm_network_policies({.cluster = "c", .space = "s", .slurmctld_port = 7000, .exporter = true, .closed_ranges = {"10.77.0.0/16", "fd77::/48"}});
  ASSERT_EQ(policies.size(), 5U);
  EXPECT_EQ(slurm_network_policies({.cluster = "c", .space = "s"}).size(), 4U) << "a group that is not there has no policy, and nobody a way to it";
  EXPECT_EQ(policies[0].name, "c-network-closed");
  EXPECT_FALSE(policies[0].spec.has("ingress"));
  const Json& head = policies[1].spec;
  EXPECT_EQ(policies[1].name, "c-network-controller");
  EXPECT_EQ(head["podSelector"]["matchLabels"][kSlurmRoleLabel].string(), "controller");
  EXPECT_EQ(kube::print_json(head["policyTypes"]), R"(["Ingress","Egress"])");
  ASSERT_EQ(head["ingress"].items().size(), 4U);
  EXPECT_EQ(kube::print_json(head["ingress"].items()[1]),
            R"({"ports":[{"protocol":"TCP","port":7000}],"from":[{"podSelector":{"matchLabels":{"fairlead.dev/slurm-cluster":"c","fairlead.dev/slurm-role":"worker"}}}]})");
  // The head reaches nothing outside; names it may ask for anywhere.
  EXPECT_EQ(kube::print_json(head["egress"]).find("ipBlock"), std::string::npos);
  EXPECT_THAT(kube::print_json(head["egress"]), HasSubstr(R"({"ports":[{"protocol":"UDP","port":53},{"protocol":"TCP","port":53}]})"));
  const std::string worker = kube::print_json(policies[2].spec["egress"]);
  EXPECT_THAT(worker, HasSubstr(R"({"cidr":"0.0.0.0/0","except":["169.254.0.0/16","10.77.0.0/16"]})"));
  EXPECT_THAT(worker, HasSubstr(R"({"cidr":"::/0","except":["fe80::/10","fd00:ec2::254/128","fd77::/48"]})"));
  EXPECT_THAT(worker, HasSubstr(R"({"protocol":"TCP","port":1024,"endPort":65535})"));
  EXPECT_EQ(kube::print_json(policies[4].spec["ingress"]), R"([{"ports":[{"protocol":"TCP","port":8080}],"from":[{"namespaceSelector":{"matchLabels":{"fairlead.dev/monitoring":"allowed"}}}]}])");
  // Anybody may log in: a rule without a sender.
  const std::string login = kube::print_json(policies[3].spec["ingress"]);
  EXPECT_THAT(login, HasSubstr(R"({"ports":[{"protocol":"TCP","port":22}]})"));
}

TEST(NetworkWays, PoliciesAroundAccountingStandWhereThereIsOne) {
  const auto policies = slurm_network_policies({.cluster = "c", .space = "s", .accounting = true, .database = true});
  ASSERT_EQ(policies.size(), 6U);
  EXPECT_EQ(policies[5].name, "c-network-database");
  EXPECT_EQ(kube::print_json(policies[5].spec["ingress"]), R"([{"ports":[{"protocol":"TCP","port":3306}],"from":[{"podSelector":{"matchLabels":{"fairlead.dev/slurm-cluster":"c","fairlead.dev/slurm-role":"accounting"}}}]}])");
  EXPECT_FALSE(policies[5].spec.has("egress")) << "an API server keeps no empty list, and the two would differ for ever";
  const auto external = slurm_network_policies({.cluster = "c", .space = "s", .accounting = true, .external_database_port = 4406});
  ASSERT_EQ(external.size(), 5U) << "no pod of ours is a database";
  EXPECT_THAT(kube::print_json(external[4].spec["egress"]), HasSubstr(R"({"ports":[{"protocol":"TCP","port":4406}]})"));
  EXPECT_EQ(kube::print_json(external[4].spec["egress"]).find("3306"), std::string::npos);
}

TEST(NetworkWays, RestIsAskedFromNamespacesThatAreAllowedTo) {
  const auto policies = slurm_network_policies({.cluster = "c", .space = "s", .rest_port = 7820, .rest = true});
  ASSERT_EQ(policies.size(), 5U);
  EXPECT_EQ(policies[4].name, "c-network-rest");
  EXPECT_EQ(kube::print_json(policies[4].spec["ingress"]),
            R"([{"ports":[{"protocol":"TCP","port":7820}],"from":[{"podSelector":{"matchLabels":{"fairlead.dev/slurm-cluster":"c","fairlead.dev/slurm-role":"login"}}}]},{"ports":[{"protocol":"TCP","port":7820}],"from":[{"namespaceSelector":{"matchLabels":{"fairlead.dev/slurm-rest":"allowed"}}}]}])");
  EXPECT_EQ(kube::print_json(policies[4].spec["egress"]).find("6819"), std::string::npos) << "no slurmdbd is there";
}

TEST(NetworkWays, ClustersThatShareAccountingOpenItToEachOtherAlone) {
  const auto print = [](const std::vector<PolicySpec>& policies, const std::string& name, const char* direction) {
    for (const auto& policy : policies)
      if (policy.name == name) return kube::print_json(policy.spec[direction]);
    return std::string("none");
  };
  const auto peer = [](const char* space, const char* cluster, const char* role) {
    return std::string(R"({"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":")") + space + R"("}},"podSelector":{"matchLabels":{"fairlead.dev/slurm-cluster":")" + cluster + R"(","fairlead.dev/slurm-role":")" + role + R"("}}})";
  };
  const auto host = slurm_network_policies({.cluster = "h", .space = "hs", .slurmdbd_port = 7819, .accounting = true, .sharing = {{"g", "gs", 7817, 0, false}}});
  EXPECT_THAT(print(host, "h-network-accounting", "ingress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7819}],"from":[)" + peer("gs", "g", "controller") + "," + peer("gs", "g", "worker") + "," + peer("gs", "g", "login") + "]}"));
  EXPECT_THAT(print(host, "h-network-accounting", "egress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7817}],"to":[)" + peer("gs", "g", "controller") + "]}"));
  EXPECT_THAT(print(host, "h-network-login", "egress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7817}],"to":[)" + peer("gs", "g", "controller") + "]}"));
  EXPECT_THAT(print(host, "h-network-controller", "ingress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":6817}],"from":[)" + peer("gs", "g", "login") + "]}"));
  EXPECT_EQ(print(host, "h-network-worker", "ingress").find("gs"), std::string::npos);
  const auto guest = slurm_network_policies({.cluster = "g", .space = "gs", .slurmctld_port = 7817, .sharing = {{"h", "hs", 6817, 7819, true}}});
  for (const char* name : {"g-network-controller", "g-network-worker", "g-network-login"})
    EXPECT_THAT(print(guest, name, "egress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7819}],"to":[)" + peer("hs", "h", "accounting") + "]}")) << name;
  EXPECT_THAT(print(guest, "g-network-controller", "ingress"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7817}],"from":[)" + peer("hs", "h", "accounting") + "]}"));
  EXPECT_EQ(print(guest, "g-network-login", "ingress").find("hs"), std::string::npos);
  EXPECT_EQ(print(guest, "g-network-accounting", "ingress"), "none");
}

TEST(NetworkWays, RangesAreCheckedBeforeTheyReachAPolicy) {
  for (const char* good : {"10.0.0.0/8", "::/0", "fd77:1::/48"}) EXPECT_TRUE(is_address_range(good)) << good;
  for (const char* bad : {"", "10.0.0.0", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "x/8", "10.0.0.0/", "10.0.0.0/8x", "/8"}) EXPECT_FALSE(is_address_range(bad)) << bad;
}

}  // namespace
}  // namespace fairlead::api
