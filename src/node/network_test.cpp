// SPDX-License-Identifier: Apache-2.0
// The packet filter's rules, as text and in a kernel: real pods, real connections.
#include "node/plan/network.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/node_identity.h"
#include "base/encoding.h"
#include "kube/object.h"
#include "node/node_fixture.h"

namespace fairlead::node {
namespace {
using kube::Json;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

Json parse(std::string_view text) {
  auto json = kube::parse_yaml(text);
  EXPECT_TRUE(json) << json.error().message;
  return json && !json->empty() ? json->front() : Json();
}

Json pod(const std::string& space, const std::string& name, const std::string& ip, const std::string& group, const std::string& node = "n1") {
  Json out = parse("{metadata: {labels: {}}, spec: {containers: [{name: main, ports: [{name: web, containerPort: 80}]}]}, status: {phase: Running}}");
  out.child("metadata").set("name", name).set("namespace", space).set("labels", Json::object({{"group", group}}));
  out.child("spec").set("nodeName", node);
  Json all = Json::array();
  for (const std::string& one : split(ip, ',')) all.push(Json::object({{"ip", one}}));
  out.child("status").set("podIP", ip.substr(0, ip.find(','))).set("podIPs", std::move(all));
  return out;
}
Json space(const std::string& name, const std::string& team) {
  return Json::object({{"metadata", Json::object({{"name", name}, {"labels", Json::object({{"team", team}})}})}});
}

TEST(NetworkRules, AServiceGoesToItsReadyEndpointsAndIsRejectedWithoutAny) {
  NetworkSeen seen{.node_name = "n1", .own_ranges = {"10.1.0.0/24"}};
  seen.services = {parse("{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.79.0.5, clusterIPs: [10.79.0.5, 'fd00:79::5'], ports: [{name: "
                         "http, port: 80}]}}"),
                   parse("{metadata: {namespace: a, name: none}, spec: {clusterIP: 10.79.0.6, ports: [{port: 53, protocol: UDP}]}}"),
                   parse("{metadata: {namespace: a, name: headless}, spec: {clusterIP: None, ports: [{port: 53}]}}")};
  seen.endpoint_slices = {parse("{metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: http, port: "
                                "8080}, {name: other, port: 1}], "
                                "endpoints: [{addresses: [10.1.0.2], conditions: {ready: true}}, {addresses: [10.1.0.3], conditions: {ready: "
                                "false}}, {addresses: [10.1.0.4]}]}"),
                          parse("{metadata: {namespace: b, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: http, port: "
                                "9}], endpoints: [{addresses: "
                                "[10.1.0.9]}]}")};
  const std::string rules = network_rules(seen);
  EXPECT_THAT(rules, HasSubstr("10.79.0.5 . tcp . 80 : goto service_1"));
  EXPECT_THAT(rules, HasSubstr("meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.1.0.2 . 8080, 1 : 10.1.0.4 . 8080 }"));
  EXPECT_THAT(rules, HasSubstr("10.79.0.6 . udp . 53 }"));
  EXPECT_THAT(rules, HasSubstr("fd00:79::5 . tcp . 80 }"));  // no endpoint of version 6
  EXPECT_THAT(rules, Not(HasSubstr("10.1.0.9")));
  EXPECT_EQ(rules, network_rules(seen));
}

// Tokens of pods are sent to the node's own relay there: no pod and no service gets them by asking for the port or the address.
TEST(NetworkRules, TheAddressOfCredentialsIsTheNodesAlone) {
  NetworkSeen seen{.node_name = "n1", .own_ranges = {"10.1.0.0/24"}};
  seen.pods = {pod("a", "thief", "10.1.0.2", "thief"), pod("a", "other", "10.1.0.3", "other")};
  seen.pods[0].child("spec").set("containers", parse("{a: [{name: main, ports: [{containerPort: 80, hostPort: 80}]}]}")["a"]);
  seen.pods[1].child("spec").set("containers", parse("{a: [{name: main, ports: [{containerPort: 80, hostPort: 80, hostIP: 169.254.170.23}]}]}")["a"]);
  const std::string rules = network_rules(seen);
  const auto chain = rules.find("chain addresses {");
  ASSERT_NE(chain, std::string::npos);
  const auto own = rules.find("ip daddr { 169.254.169.254, 169.254.170.23 } return", chain);
  ASSERT_NE(own, std::string::npos);
  for (const char* const other : {"vmap @services", "dnat ip to 10.1.0.2:80", "dnat ip to 10.1.0.3:80"}) {
    ASSERT_NE(rules.find(other, chain), std::string::npos) << other;
    EXPECT_LT(own, rules.find(other, chain)) << other;
  }
}

TEST(NetworkRules, TheMachinesMetadataIsForItsOwnProcesses) {
  const std::string rules = network_rules({.node_name = "n1", .own_ranges = {"10.1.0.0/24"}});
  for (const char* const rule : {"iifname != \"lo\" ip saddr @cluster4 ip daddr 169.254.169.254 meta l4proto tcp reject", "iifname != \"lo\" ip6 saddr @cluster6 ip6 daddr fd00:ec2::254 meta l4proto tcp reject", "    ip saddr @own4 ip daddr 169.254.169.254 meta l4proto { tcp, udp } th dport 53 accept\n    ip saddr @own4 ip daddr 169.254.169.254 meta l4proto tcp reject", "    ip6 saddr @own6 ip6 daddr fd00:ec2::254 meta l4proto != tcp reject"}) EXPECT_THAT(rules, HasSubstr(rule));
}

// Nodes of a Slurm cluster of instances: by what the cluster made, on this node, and where the node answers.
TEST(NetworkRules, PodsThatAreTheMachinesNodeReachItsMetadata) {
  NetworkSeen seen{.node_name = "n1", .own_ranges = {"10.1.0.0/24"}, .metadata = true};
  const auto worker = [](const char* name, const char* ip) {
    Json out = pod("a", name, ip, "worker");
    out.child("metadata").set("annotations", Json::object({{api::node_identity::pods_note, "true"}}));
    out.child("metadata").set("ownerReferences", parse("{a: [{apiVersion: slurm.nebius.ai/v1, kind: SlurmCluster, name: one, uid: u, controller: true}]}")["a"]);
    return out;
  };
  EXPECT_EQ(kube::resources::slurm_clusters.api_version(), "slurm.nebius.ai/v1");
  seen.pods.assign(7, Json());
  for (int i = 0; i < 7; ++i) seen.pods[static_cast<std::size_t>(i)] = worker(fmt::format("w{}", i).c_str(), fmt::format("10.1.0.{}", i + 2).c_str());
  seen.pods[1].child("metadata").child("annotations").set(api::node_identity::pods_note, "false");
  seen.pods[2].child("metadata").child("ownerReferences").items()[0].set("controller", false);
  seen.pods[3].child("metadata").child("ownerReferences").items()[0].set("kind", "StatefulSet");
  seen.pods[4].child("spec").set("nodeName", "n2");
  seen.pods[5].child("spec").set("hostNetwork", true);
  seen.pods[6].child("status").set("phase", "Failed");
  EXPECT_EQ(pods_with_role(seen.pods, "n1"), (std::map<std::string, std::string>{{"10.1.0.2", "a/one"}}));
  const std::string lets = "    ip saddr @with_role ip daddr 169.254.169.254 tcp dport 80 accept\n", rules = network_rules(seen);
  EXPECT_THAT(rules, HasSubstr("  set with_role {\n    type ipv4_addr\n    elements = { 10.1.0.2 }\n"));
  EXPECT_LT(rules.find(lets), rules.find("ip saddr @cluster4 ip daddr 169.254.169.254"));
  seen.metadata = false;
  EXPECT_THAT(network_rules(seen), HasSubstr("  set with_role {\n    type ipv4_addr\n  }\n")) << "what answers there is a cloud's";
}

TEST(NetworkRules, NothingOfAnObjectsTextGetsIn) {
  NetworkSeen seen{.node_name = "n1", .own_ranges = {"10.1.0.0/24; flush ruleset"}, .cluster_ranges = {"} evil", "10.0.0.0/8x"}};
  seen.services = {
      parse("{metadata: {namespace: a, name: evil}, spec: {clusterIP: '1.2.3.4 evil', ports: [{port: 80, protocol: evil}, {port: 99999}]}}")};
  seen.pods = {pod("a", "evil", "10.1.0.2 evil", "evil }")};
  seen.policies = {
      parse("{metadata: {namespace: a, name: evil}, spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 'evil/8', except: ['evil']}}], ports: "
            "[{port: evil}]}]}}")};
  EXPECT_THAT(network_rules(seen), Not(HasSubstr("evil")));
  EXPECT_THAT(network_rules(seen), Not(HasSubstr("flush")));
}

struct PolicyCase {
  const char *name, *policy, *want;
};
class PolicyText : public testing::TestWithParam<PolicyCase> {};
TEST_P(PolicyText, SaysWhoMayEnter) {
  NetworkSeen seen{.node_name = "n1"};
  seen.pods = {pod("a", "db", "10.1.0.2", "db"), pod("a", "web", "10.1.0.3", "web"), pod("b", "web", "10.2.0.3", "web", "n2")};
  seen.namespaces = {space("a", "red"), space("b", "blue")};
  seen.policies = {parse(GetParam().policy)};
  const std::string rules = network_rules(seen);
  const auto at = rules.find("  chain ingress_");
  const std::string chain = at == std::string::npos ? "" : rules.substr(at, rules.find("  }\n", at) - at);
  if (std::string_view(GetParam().want).empty())
    EXPECT_EQ(chain, "");
  else
    EXPECT_THAT(chain, HasSubstr(GetParam().want));
}
INSTANTIATE_TEST_SUITE_P(
    Ingress, PolicyText,
    testing::Values(
        PolicyCase{"own_namespace",
                   "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}, ingress: [{from: [{podSelector: "
                   "{matchLabels: {group: web}}}]}]}}",
                   "ip saddr { 10.1.0.3 } accept"},
        PolicyCase{"another_namespace",
                   "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}, ingress: [{from: [{podSelector: "
                   "{matchLabels: {group: web}}, namespaceSelector: {matchLabels: {team: blue}}}]}]}}",
                   "ip saddr { 10.2.0.3 } accept"},
        PolicyCase{
            "any_namespace",
            "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}, ingress: [{from: [{namespaceSelector: {}}]}]}}",
            "ip saddr { 10.1.0.2, 10.1.0.3, 10.2.0.3 } accept"},
        PolicyCase{"block_with_exception",
                   "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}, ingress: [{from: [{ipBlock: {cidr: "
                   "10.9.0.0/16, except: [10.9.1.0/24]}}], ports: [{port: 5432}]}]}}",
                   "ip saddr 10.9.0.0/16 ip saddr != { 10.9.1.0/24 } tcp dport 5432 accept"},
        PolicyCase{"ports",
                   "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}, ingress: [{ports: [{port: web}, {port: 10, "
                   "endPort: 20, protocol: UDP}]}]}}",
                   "    tcp dport 80 accept\n    udp dport 10-20 accept\n    meta l4proto tcp reject with tcp reset\n    reject"},
        PolicyCase{"nobody", "{metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {group: db}}}}",
                   "ip saddr 10.1.0.2 accept\n    meta l4proto tcp reject with tcp reset\n    reject"},
        PolicyCase{"egress_only", "{metadata: {namespace: a, name: p}, spec: {podSelector: {}, policyTypes: [Egress]}}", ""},
        PolicyCase{"of_another_namespace", "{metadata: {namespace: c, name: p}, spec: {podSelector: {}}}", ""}),
    [](const auto& row) { return row.param.name; });

class NetworkTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(exists("/usr/sbin/nft")) << "install nftables (tools/packages.txt)";
    open_runtime();
    ASSERT_TRUE(ensure_bridge("flt0", "10.99.7.1/24"));
    ASSERT_TRUE(write_file_atomically("/proc/sys/net/ipv4/ip_forward", "1", 0644) || exists("/proc/sys/net/ipv4/ip_forward"));
  }
  // A pod of this group that answers its name on ports 80 and 81.
  std::string start(const std::string& name, const std::string& group) {
    EXPECT_TRUE(runtime_->accept({.uid = name, .space = "a", .name = name, .accepted = clock_.now()}));
    auto sandbox = runtime_->ensure_sandbox({.pod_uid = name, .hostname = name, .limits = {}});
    EXPECT_TRUE(sandbox) << sandbox.error().message;
    ContainerSpec spec;
    spec.pod_uid = name;
    spec.name = "main";
    spec.id = container_id(name, "main", 0);
    spec.image = *find_image(images_dir(), busybox());
    spec.argv = {"/bin/sh", "-c", "mkdir /www; hostname > /www/index.html; httpd -p 80 -h /www; httpd -p 81 -h /www; touch /up; exec sleep 600"};
    spec.env = {"PATH=/bin:/sbin:/usr/bin:/usr/sbin"};
    spec.capabilities = {"CAP_NET_BIND_SERVICE"};
    auto started = runtime_->start(spec);
    EXPECT_TRUE(started) << started.error().message;
    EXPECT_TRUE(run_in_container(*runtime_, name, "main", {"/bin/sh", "-c", "while ! test -e /up; do sleep 0.05; done"}, 20s));
    seen_.pods.push_back(pod("a", name, sandbox ? sandbox->ip : "", group));
    return sandbox ? sandbox->ip : "";
  }
  void apply() {
    auto told = run_checked({.argv = {"/usr/sbin/nft", "-j", "list", "map", "inet", "fairlead", "affinity4"}}, 20s);
    const auto sessions = told ? parse_sessions(*told) : Result<std::vector<Session>>(std::vector<Session>());
    ASSERT_TRUE(sessions) << sessions.error().message;
    kept_ = keep_sessions(seen_, *sessions);
    auto done = run_checked({.argv = {"/usr/sbin/nft", "-f", "-"}}, 20s, network_rules(seen_) + kept_);
    ASSERT_TRUE(done) << done.error().message << "\n" << network_rules(seen_);
  }
  // What a GET from one pod gives: the name of who answered; empty: no connection.
  std::string get(const std::string& from, const std::string& ip, int port) {
    // Not wget, which crashes in a static busybox without name services.
    const std::string script = fmt::format("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {} {} | tail -n 1", ip, port);
    auto output = run_in_container(*runtime_, from, "main", {"/bin/sh", "-c", script}, 20s);
    return output && output->exit.code == 0 ? std::string(trim(output->out)) : "";
  }
  std::string kept_;
  NetworkSeen seen_{.node_name = "n1", .own_ranges = {"10.99.7.0/24"}, .own_gateways = {"10.99.7.1"}, .namespaces = {space("a", "red")}};
};

TEST_F(NetworkTest, EveryPairOfGroupsThatIsClosedIsClosedAndEveryOpenOneIsOpen) {
  const std::map<std::string, std::string> ips{
      {"login", start("login", "login")}, {"head", start("head", "head")}, {"worker", start("worker", "worker")}};
  for (const auto& [from, unused] : ips)
    for (const auto& [to, ip] : ips) EXPECT_EQ(get(from, ip, 80), to) << "open without a policy: " << from << " to " << to;
  // Nobody may enter; then the head on port 80 from all groups, the worker on 80 and 81 from the head alone.
  seen_.policies = {parse("{metadata: {namespace: a, name: closed}, spec: {podSelector: {}, policyTypes: [Ingress]}}"),
                    parse("{metadata: {namespace: a, name: head}, spec: {podSelector: {matchLabels: {group: head}}, ingress: [{from: [{podSelector: "
                          "{}}], ports: [{port: web}]}]}}"),
                    parse("{metadata: {namespace: a, name: worker}, spec: {podSelector: {matchLabels: {group: worker}}, ingress: [{from: "
                          "[{podSelector: {matchLabels: {group: head}}}]}]}}")};
  apply();
  const auto open = [](const std::string& from, const std::string& to, int port) {
    return from == to || (to == "head" && port == 80) || (to == "worker" && from == "head");
  };
  for (const auto& [from, unused] : ips)
    for (const auto& [to, ip] : ips)
      for (const int port : {80, 81}) EXPECT_EQ(get(from, ip, port), open(from, to, port) ? to : "") << from << " to " << to << " port " << port;
  // A pod that may not leave: only replies do.
  seen_.policies = {parse("{metadata: {namespace: a, name: shut}, spec: {podSelector: {matchLabels: {group: worker}}, policyTypes: [Egress]}}")};
  apply();
  EXPECT_EQ(get("worker", ips.at("head"), 80), "");
  EXPECT_EQ(get("head", ips.at("worker"), 80), "worker");
  seen_.policies.clear();
  apply();
  EXPECT_EQ(get("worker", ips.at("head"), 80), "head");
}

TEST_F(NetworkTest, ServicesAndHostPortsReachPods) {
  const std::string ip = start("one", "web");
  (void)start("two", "client");
  seen_.services = {parse("{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.79.0.5, ports: [{port: 8000}]}}"),
                    parse("{metadata: {namespace: a, name: none}, spec: {clusterIP: 10.79.0.6, ports: [{port: 8000}]}}")};
  seen_.endpoint_slices = {parse(
      "{metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 80}], endpoints: [{addresses: [" + ip +
      "]}]}")};
  seen_.pods[0].child("spec").set("containers", parse("{a: "
                                                      "[{name: main, ports: [{containerPort: 81, hostPort: 8181}]}]"
                                                      "}")["a"]);
  apply();
  EXPECT_EQ(get("two", "10.79.0.5", 8000), "one");
  EXPECT_EQ(get("one", "10.79.0.5", 8000), "one") << "a pod reaches itself by its service";
  EXPECT_EQ(get("two", "10.79.0.6", 8000), "") << "no endpoint";
  EXPECT_EQ(get("two", "10.99.7.1", 8181), "one") << "by the port of the host";
}

TEST_F(NetworkTest, ClientsOfAServiceWithAffinityKeepTheirEndpointAlsoWhenRulesChange) {
  const std::string one = start("one", "web"), two = start("two", "web");
  (void)start("client", "client");
  const auto slice = [](const std::string& endpoints) {
    return parse("{metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{port: 80}], endpoints: [" + endpoints + "]}");
  };
  const auto endpoint = [](const std::string& ip) { return "{addresses: [" + ip + "], nodeName: n1}"; };
  seen_.services = {parse("{metadata: {namespace: a, name: web}, spec: {type: NodePort, sessionAffinity: ClientIP, clusterIP: 10.79.0.5, ports: [{port: 8000, nodePort: 30080}]}}")};
  seen_.endpoint_slices = {slice(endpoint(one) + ", " + endpoint(two))};
  apply();
  EXPECT_EQ(kept_, "");
  const std::string chosen = get("client", "10.79.0.5", 8000), by_port = get("client", "10.99.7.1", 30080);
  ASSERT_THAT(chosen, testing::AnyOf("one", "two"));
  ASSERT_THAT(by_port, testing::AnyOf("one", "two"));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(get("client", "10.79.0.5", 8000), chosen) << i;
    EXPECT_EQ(get("client", "10.99.7.1", 30080), by_port) << i;
    if (i == 3) apply();  // all rules anew
  }
  EXPECT_THAT(kept_, HasSubstr("10.79.0.5 . tcp . 8000 timeout 10800s expires"));
  // Its endpoint goes: it gets the other one.
  seen_.endpoint_slices = {slice(endpoint(chosen == "one" ? two : one))};
  apply();
  EXPECT_EQ(get("client", "10.79.0.5", 8000), chosen == "one" ? "two" : "one");
}

TEST_F(NetworkTest, ANodePortIsOpenOnEachAddressOfTheNode) {
  const std::string ip = start("one", "web");
  (void)start("two", "client");
  ASSERT_TRUE(run_checked({.argv = {"/sbin/ip", "addr", "add", "10.98.0.1/32", "dev", "lo"}}, 10s));
  seen_.services = {parse("{metadata: {namespace: a, name: web}, spec: {type: NodePort, clusterIP: 10.79.0.5, ports: [{port: 8000, nodePort: 30080}]}}"),
                    parse("{metadata: {namespace: a, name: near}, spec: {type: NodePort, externalTrafficPolicy: Local, clusterIP: 10.79.0.7, ports: [{port: 8000, nodePort: 30082}]}}"),
                    parse("{metadata: {namespace: a, name: none}, spec: {type: NodePort, clusterIP: 10.79.0.6, ports: [{port: 8000, nodePort: 30081}]}}")};
  for (const char* name : {"web", "near"})
    seen_.endpoint_slices.push_back(parse(fmt::format("{{metadata: {{namespace: a, labels: {{kubernetes.io/service-name: {}}}}}, addressType: IPv4, ports: [{{port: 80}}], endpoints: [{{addresses: [{}], "
                                                      "nodeName: n1}}]}}", name, ip)));
  apply();
  for (const char* at : {"10.99.7.1", "10.98.0.1"}) {
    EXPECT_EQ(get("two", at, 30080), "one") << at;
    EXPECT_EQ(get("one", at, 30080), "one") << "a pod reaches itself " << at;
    EXPECT_EQ(get("two", at, 30082), "one") << at;
    EXPECT_EQ(get("two", at, 30081), "") << "no endpoint";
    EXPECT_EQ(get("two", at, 8000), "") << "that is the port of its own address";
  }
  // The node itself.
  auto said = run_checked({.argv = {"/bin/bash", "-c", "exec 3<> /dev/tcp/10.98.0.1/30080; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; tail -n 1 <&3"}}, 10s);
  ASSERT_TRUE(said) << said.error().message;
  EXPECT_EQ(trim(*said), "one");
  ASSERT_TRUE(run_checked({.argv = {"/sbin/ip", "addr", "del", "10.98.0.1/32", "dev", "lo"}}, 10s));
}

// Pods with addresses of both families, whatever the other tests have.
class BothFamilies : public NetworkTest {
 protected:
  void SetUp() override {
    if (!exists("/proc/net/ipv6_route")) GTEST_SKIP() << "this machine has no IPv6";
    NetworkTest::SetUp();
    if (HasFatalFailure()) return;
    auto with_six = options();
    with_six.cni.pod_cidr6 = "fd00:99:0:7::/64";
    runtime_.reset();
    auto runtime = OciRuntime::open(std::move(with_six), clock_);
    ASSERT_TRUE(runtime) << runtime.error().message;
    runtime_ = std::move(*runtime);
    ASSERT_TRUE(route_ipv6());
    ASSERT_TRUE(ensure_bridge("flt0", "fd00:99:0:7::1/64"));
    seen_.own_ranges.emplace_back("fd00:99:0:7::/64");
    seen_.own_gateways.emplace_back("fd00:99:0:7::1");
  }
  void TearDown() override {
    // Other tests' pods get the same addresses again.
    (void)fairlead::run({.argv = {"/usr/sbin/nft", "delete", "table", "inet", "fairlead"}}, 20s);
    NodeTest::TearDown();
  }
};

TEST_F(BothFamilies, AreServedAndClosedAlike) {
  const std::vector<std::string> web = split(start("one", "web"), ','), client = split(start("two", "client"), ',');
  ASSERT_EQ(web.size(), 2u);
  EXPECT_THAT(web[0], testing::StartsWith("10.99.7."));
  EXPECT_THAT(web[1], testing::StartsWith("fd00:99:0:7::"));
  seen_.services = {parse("{metadata: {namespace: a, name: web}, spec: {type: NodePort, clusterIP: 10.79.0.5, clusterIPs: [10.79.0.5, 'fd00:79::5'], ports: [{port: 8000, nodePort: 30080}]}}")};
  for (const std::size_t i : {0, 1})
    seen_.endpoint_slices.push_back(parse(fmt::format("{{metadata: {{namespace: a, labels: {{kubernetes.io/service-name: web}}}}, addressType: {}, ports: [{{port: 80}}], endpoints: [{{addresses: ['{}'], "
                                                      "nodeName: n1}}]}}", i == 0 ? "IPv4" : "IPv6", web[i])));
  apply();
  for (const std::string& at : web) EXPECT_EQ(get("two", at, 80), "one") << at;
  for (const char* at : {"10.79.0.5", "fd00:79::5"}) {
    EXPECT_EQ(get("two", at, 8000), "one") << at;
    EXPECT_EQ(get("one", at, 8000), "one") << "a pod reaches itself by " << at;
  }
  for (const char* at : {"10.99.7.1", "fd00:99:0:7::1"}) EXPECT_EQ(get("two", at, 30080), "one") << at;
  // Closed for all, then open for one group: in both families.
  seen_.policies = {parse("{metadata: {namespace: a, name: closed}, spec: {podSelector: {matchLabels: {group: web}}, policyTypes: [Ingress]}}")};
  apply();
  for (const char* at : {"10.79.0.5", "fd00:79::5"}) EXPECT_EQ(get("two", at, 8000), "") << at;
  for (const std::string& at : web) EXPECT_EQ(get("two", at, 80), "") << at;
  seen_.policies.push_back(parse("{metadata: {namespace: a, name: open}, spec: {podSelector: {matchLabels: {group: web}}, ingress: [{from: [{podSelector: {matchLabels: {group: client}}}]}]}}"));
  apply();
  for (const std::string& at : web) EXPECT_EQ(get("two", at, 80), "one") << at;
  // What may leave a pod: nothing, neither to pods nor to the node.
  seen_.policies = {parse("{metadata: {namespace: a, name: shut}, spec: {podSelector: {matchLabels: {group: client}}, policyTypes: [Egress]}}")};
  apply();
  for (const std::string& at : web) EXPECT_EQ(get("two", at, 80), "") << at;
  for (const std::string& at : client) EXPECT_EQ(get("one", at, 80), "two") << at;
}

}  // namespace
}  // namespace fairlead::node
