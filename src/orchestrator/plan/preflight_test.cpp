// SPDX-License-Identifier: Apache-2.0
#include "orchestrator/plan/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace fairlead::orchestrator {
namespace {

using kube::Json;
using testing::HasSubstr;

Facts good_facts() {
  Facts out;
  out.version = "1.33";
  out.authentication_mode = "API";
  out.plugins = {{"Cilium", "kube-system/cilium", "1.16.1"}};
  out.other_nodes = out.other_ready = 2;
  out.ipv4 = true;
  out.networks.emplace();
  out.networks->emplace("subnet-1", Network{.is_private = true, .ipv4 = true, .ipv6 = false});
  return out;
}
Asked good_asked() { return {.subnets = {"subnet-1"}, .nodes = {{.of = "group a", .arn = "role/node"}}, .autoscaler = {}}; }

Finding finding(const std::string& name, const Facts& facts, const Asked& asked) {
  for (const Finding& one : check(facts, asked))
    if (one.check == name) return one;
  ADD_FAILURE() << name;
  return {};
}

TEST(Preflight, AGoodOneHasNothingAgainstIt) {
  const auto findings = check(good_facts(), good_asked());
  for (const Finding& one : findings) {
    EXPECT_EQ(one.verdict, Verdict::Ok) << one.check << ": " << one.what;
    EXPECT_EQ(one.advice, "") << one.check;
  }
  EXPECT_EQ(findings.size(), 7u);
  EXPECT_EQ(objections(findings), "");
  EXPECT_TRUE(to_json(findings)["ready"].boolean());
}

struct Case {
  const char* name;
  std::function<void(Facts&, Asked&)> change;
  const char* check;
  Verdict verdict;
  const char* says;
};
struct PreflightChecks : testing::TestWithParam<Case> {};

TEST_P(PreflightChecks, IsJudged) {
  Facts facts = good_facts();
  Asked asked = good_asked();
  GetParam().change(facts, asked);
  const Finding found = finding(GetParam().check, facts, asked);
  EXPECT_EQ(text(found.verdict), text(GetParam().verdict)) << found.what;
  EXPECT_THAT(found.what + "; " + found.advice, HasSubstr(GetParam().says));
  EXPECT_EQ(found.advice.empty(), found.verdict == Verdict::Ok) << "each says what to do";
  // Only what is known to be wrong keeps anybody from anything.
  const auto all = check(facts, asked);
  EXPECT_EQ(!objections(all).empty(), GetParam().verdict == Verdict::Failed) << objections(all);
}

INSTANTIATE_TEST_SUITE_P(
    All, PreflightChecks,
    testing::Values(
        Case{"no_charts", [](Facts& f, Asked&) { f.missing = {"clusters.fairlead.dev"}; }, "charts", Verdict::Failed, "clusters.fairlead.dev is not installed; install Fairlead's chart: helm repo add"},
        Case{"charts_unseen", [](Facts& f, Asked&) { f.unknown["charts"] = "Forbidden"; }, "charts", Verdict::Unknown, "Forbidden"},
        Case{"less_served", [](Facts& f, Asked&) { f.missing_extras = {"computequotas.fairlead.dev"}; }, "charts", Verdict::Warning, "computequotas.fairlead.dev is not installed: clusters run"},
        Case{"too_old", [](Facts& f, Asked&) { f.version = "1.29"; }, "version", Verdict::Failed, "lacks ValidatingAdmissionPolicy v1"},
        Case{"not_tested", [](Facts& f, Asked&) { f.version = "1.30"; }, "version", Verdict::Warning, "not tested with"},
        Case{"newer", [](Facts& f, Asked&) { f.version = "1.34"; }, "version", Verdict::Warning, "newer than"},
        Case{"whole_version", [](Facts& f, Asked&) { f.version = "1.33.13"; }, "version", Verdict::Ok, "1.33.13"},
        Case{"no_version", [](Facts& f, Asked&) { f.version = ""; }, "version", Verdict::Unknown, "does not tell its version"},
        Case{"config_map", [](Facts& f, Asked&) { f.authentication_mode = "CONFIG_MAP"; }, "authentication", Verdict::Failed, "access entries do not count"},
        Case{"both_modes", [](Facts& f, Asked&) { f.authentication_mode = "API_AND_CONFIG_MAP"; }, "authentication", Verdict::Ok, "API_AND_CONFIG_MAP"},
        Case{"no_mode", [](Facts& f, Asked&) { f.authentication_mode = ""; }, "authentication", Verdict::Unknown, "is not told"},
        Case{"vpc_cni_old", [](Facts& f, Asked&) { f.plugins = {{"Amazon VPC CNI", "kube-system/aws-node", "1.18.2"}}; }, "cni", Verdict::Failed, "is 1.18.2; 1.18.3 or newer is needed; update it"},
        Case{"vpc_cni_new", [](Facts& f, Asked&) { f.plugins = {{"Amazon VPC CNI", "kube-system/aws-node", "1.18.3"}}; }, "cni", Verdict::Ok, "Amazon VPC CNI 1.18.3"},
        Case{"vpc_cni_newer", [](Facts& f, Asked&) { f.plugins = {{"Amazon VPC CNI", "kube-system/aws-node", "1.20.0"}}; }, "cni", Verdict::Ok, "1.20.0"},
        Case{"vpc_cni_by_digest", [](Facts& f, Asked&) { f.plugins = {{"Amazon VPC CNI", "kube-system/aws-node", ""}}; }, "cni", Verdict::Unknown, "does not tell its version"},
        Case{"own_nodes", [](Facts& f, Asked&) { f.plugins.clear(), f.other_nodes = f.other_ready = 0, f.own_nodes = 3; }, "cni", Verdict::Ok, "Fairlead's agent"},
        Case{"unrecognised", [](Facts& f, Asked&) { f.plugins.clear(); }, "cni", Verdict::Unknown, "2 of 2 nodes are ready"},
        Case{"no_network", [](Facts& f, Asked&) { f.plugins.clear(), f.other_ready = 0, f.without_network = {{"a", "cni plugin not initialized"}, {"b", "x"}}; }, "cni", Verdict::Failed, "a says \"cni plugin not initialized\"; install a network plug-in"},
        Case{"plugin_broken", [](Facts& f, Asked&) { f.other_ready = 0, f.without_network = {{"a", "cni plugin not initialized"}, {"b", "x"}}; }, "cni", Verdict::Failed, "kubectl -n kube-system logs daemonset/cilium"},
        Case{"one_without_network", [](Facts& f, Asked&) { f.other_ready = 1, f.without_network = {{"a", "cni plugin not initialized"}}; }, "cni", Verdict::Ok, "Cilium 1.16.1"},
        Case{"none_ready", [](Facts& f, Asked&) { f.plugins.clear(), f.other_ready = 0; }, "cni", Verdict::Unknown, "no node is ready"},
        Case{"no_nodes", [](Facts& f, Asked&) { f.plugins.clear(), f.other_nodes = f.other_ready = 0; }, "cni", Verdict::Unknown, "no node yet"},
        Case{"daemon_sets_hidden", [](Facts& f, Asked&) { f.plugins.clear(), f.unknown["cni"] = "Forbidden"; }, "cni", Verdict::Unknown, "Forbidden"},
        Case{"nothing_of_networks", [](Facts& f, Asked&) { f.networks.reset(); }, "subnets", Verdict::Unknown, "whether subnet-1 is private is not known: this site says nothing of its networks; say it in ConfigMap fairlead-networks"},
        Case{"public_subnet", [](Facts& f, Asked&) { f.networks->at("subnet-1")->is_private = false; }, "subnets", Verdict::Failed, "subnet-1 is public"},
        Case{"strange_subnet", [](Facts&, Asked& a) { a.subnets.push_back("subnet-2"); }, "subnets", Verdict::Failed, "has no subnet-2"},
        Case{"unreadable_subnet", [](Facts& f, Asked&) { f.networks->at("subnet-1") = read_network("open"); }, "subnets", Verdict::Failed, "\"open\" is neither private, public nor a range"},
        Case{"no_subnets", [](Facts&, Asked& a) { a.subnets.clear(); }, "subnets", Verdict::Unknown, "no subnets are named"},
        Case{"ipv6_subnet_ipv4_cluster", [](Facts& f, Asked&) { f.networks->at("subnet-1") = Network{.is_private = true, .ipv4 = false, .ipv6 = true}; }, "ipv6", Verdict::Failed, "subnet-1 has IPv6 alone"},
        Case{"ipv6_cluster_ipv4_subnet", [](Facts& f, Asked&) { f.ipv4 = false, f.ipv6 = f.ipv6_first = true; }, "ipv6", Verdict::Failed, "subnet-1 has no IPv6"},
        Case{"ipv6_cluster_ipv4_node", [](Facts& f, Asked&) { f.ipv4 = false, f.ipv6 = f.ipv6_first = true, f.networks->at("subnet-1")->ipv6 = true, f.nodes_without_ipv6 = {"a"}; }, "ipv6", Verdict::Failed, "nodes without an address of IPv6: a"},
        Case{"ipv6_everywhere", [](Facts& f, Asked&) { f.ipv6 = f.ipv6_first = true, f.networks->at("subnet-1")->ipv6 = true; }, "ipv6", Verdict::Ok, "cluster, nodes and subnets have IPv6"},
        Case{"ipv6_unsaid", [](Facts& f, Asked&) { f.ipv6 = f.ipv6_first = true, f.networks->at("subnet-1")->ipv4 = false; }, "ipv6", Verdict::Unknown, "whether the subnets do is not said"},
        Case{"dual_stack_ipv4_node", [](Facts& f, Asked&) { f.ipv6 = true, f.networks->at("subnet-1")->ipv6 = true, f.nodes_without_ipv6 = {"a"}; }, "ipv6", Verdict::Warning, "Services may have both families"},
        Case{"absent_role", [](Facts&, Asked& a) { a.nodes[0].found = false; }, "roles", Verdict::Failed, "role role/node not found"},
        Case{"same_roles", [](Facts&, Asked& a) { a.autoscaler = Role{.of = "the cluster", .arn = "role/node"}; }, "roles", Verdict::Failed, "ClusterRole is the ExecutionRole of group a"},
        Case{"other_roles", [](Facts&, Asked& a) { a.autoscaler = Role{.of = "the cluster", .arn = "role/scaler"}; }, "roles", Verdict::Ok, ""},
        Case{"shared_by_kinds", [](Facts&, Asked& a) { a.nodes.push_back({.of = "group gpu", .arn = "role/node", .accelerated = true}); }, "roles", Verdict::Warning, "group a (plain nodes) and group gpu (accelerated ones) share role role/node"},
        Case{"two_of_a_kind", [](Facts&, Asked& a) { a.nodes.push_back({.of = "group b", .arn = "role/node"}); }, "roles", Verdict::Ok, ""}),
    [](const auto& row) { return row.param.name; });

TEST(Preflight, NetworksAreRead) {
  EXPECT_EQ(*read_network("private 10.0.0.0/16 fd00::/64"), (Network{.is_private = true, .ipv4 = true, .ipv6 = true}));
  EXPECT_EQ(*read_network(" public  192.168.0.0/24"), (Network{.is_private = false, .ipv4 = true, .ipv6 = false}));
  EXPECT_EQ(*read_network("private"), (Network{.is_private = true, .ipv4 = false, .ipv6 = false}));
  for (const char* const wrong : {"", "10.0.0.0/16", "private public", "private 10.0.0.0", "private /16", "private x/y"}) EXPECT_FALSE(read_network(wrong)) << wrong;
}

Json daemon_set(const char* name, const char* container, const char* image) {
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "kube-system"}})}, {"spec", Json::object({{"template", Json::object({{"spec", Json::object({{"containers", Json::array({Json::object({{"name", container}, {"image", image}})})}})}})}})}});
}

TEST(Preflight, PluginsAreRecognisedByTheirDaemonSets) {
  const auto version = [](const char* name, const char* container, const char* image) {
    const auto plugin = plugin_of(daemon_set(name, container, image));
    return plugin ? plugin->name + "|" + plugin->version : "none";
  };
  EXPECT_EQ(version("aws-node", "aws-node", "602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni:v1.18.3-eksbuild.1"), "Amazon VPC CNI|1.18.3");
  EXPECT_EQ(version("cilium", "cilium-agent", "quay.io/cilium/cilium:v1.16.1@sha256:abcd"), "Cilium|1.16.1");
  EXPECT_EQ(version("calico-node", "calico-node", "registry:5000/calico/node:v3.28.1"), "Calico|3.28.1");
  EXPECT_EQ(version("kube-flannel-ds", "kube-flannel", "docker.io/flannel/flannel:v0.25.5"), "flannel|0.25.5");
  EXPECT_EQ(version("kindnet", "kindnet-cni", "kindest/kindnetd:v20240813-c6f155d6"), "kindnet|");
  EXPECT_EQ(version("aws-node", "aws-node", "registry:5000/amazon-k8s-cni@sha256:abcd"), "Amazon VPC CNI|");
  EXPECT_EQ(version("cilium", "web", "nginx:1.25"), "none") << "a name alone is anybody's";
  EXPECT_EQ(version("web", "cilium-agent", "cilium/cilium:v1.16.1"), "none");
  Json labelled = daemon_set("aws-node", "aws-node", "registry:5000/amazon-k8s-cni@sha256:abcd");
  labelled.child("metadata").set("labels", Json::object({{"app.kubernetes.io/version", "v1.15.0"}}));
  EXPECT_EQ(plugin_of(labelled)->version, "1.15.0");
}

}  // namespace
}  // namespace fairlead::orchestrator
