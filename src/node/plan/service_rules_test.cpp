// SPDX-License-Identifier: Apache-2.0
#include "node/plan/service_rules.h"

#include <gmock/gmock.h>

namespace fairlead::node {
namespace {
using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }

ServiceRules rules_of(const std::string& spec, const std::string& endpoints, Family family = Family::V4) {
  int count = 0;
  const Json service = yaml("{metadata: {namespace: a, name: web}, spec: {clusterIP: 10.79.0.5, clusterIPs: [10.79.0.5, 'fd00:79::5'], ports: [{name: http, port: 80, nodePort: 30080}], " + spec + "}}");
  const Json slice = yaml(std::string("{metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: ") + (family == Family::V4 ? "IPv4" : "IPv6") +
                          ", ports: [{name: http, port: 8080}], endpoints: [" + endpoints + "]}");
  return service_rules({service}, {slice}, "n1", family, count);
}

const char* two = "{addresses: [10.1.0.2], nodeName: n1}, {addresses: [10.2.0.2], nodeName: n2}";

TEST(ServiceRules, ANodePortGoesWhereTheServiceGoesUnderTheNodesAddress) {
  const ServiceRules rules = rules_of("type: NodePort, externalTrafficPolicy: Cluster", two);
  EXPECT_THAT(rules.addresses, ElementsAre("10.79.0.5 . tcp . 80 : goto service_1"));
  EXPECT_THAT(rules.ports, ElementsAre("tcp . 30080 : goto port_2"));
  EXPECT_THAT(rules.chains, HasSubstr("dnat ip to numgen random mod 2 map { 0 : 10.1.0.2 . 8080, 1 : 10.2.0.2 . 8080 }"));
  EXPECT_THAT(rules.chains, HasSubstr("chain port_2 {\n    ct mark set 0x4000\n    goto service_1\n"));
  EXPECT_THAT(rules_of("type: ClusterIP", two).ports, IsEmpty());
}

TEST(ServiceRules, LocalTrafficStaysOnTheNode) {
  const ServiceRules outside = rules_of("type: NodePort, externalTrafficPolicy: Local", two);
  EXPECT_THAT(outside.ports, ElementsAre("tcp . 30080 : goto service_2")) << "without the mark: the client's address is kept";
  EXPECT_THAT(outside.chains, HasSubstr("chain service_2 {\n    meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 10.1.0.2 . 8080 }"));
  const ServiceRules none = rules_of("type: NodePort, externalTrafficPolicy: Local", "{addresses: [10.2.0.2], nodeName: n2}");
  EXPECT_THAT(none.ports, IsEmpty());
  EXPECT_THAT(none.deserted_ports, ElementsAre("tcp . 30080"));
  EXPECT_THAT(none.deserted, IsEmpty());
  const ServiceRules inside = rules_of("type: NodePort, internalTrafficPolicy: Local", "{addresses: [10.2.0.2], nodeName: n2}");
  EXPECT_THAT(inside.deserted, ElementsAre("10.79.0.5 . tcp . 80"));
  EXPECT_THAT(inside.ports, ElementsAre("tcp . 30080 : goto port_2"));
}

TEST(ServiceRules, EndpointsThatEndServeOnlyWhileNoOtherIsReady) {
  const std::string ending = "{addresses: [10.1.0.3], conditions: {ready: false, serving: true, terminating: true}}", out = "{addresses: [10.1.0.4], conditions: {ready: false, serving: false}}";
  EXPECT_THAT(rules_of("type: ClusterIP", out + ", " + ending).chains, HasSubstr("mod 1 map { 0 : 10.1.0.3 . 8080 }"));
  EXPECT_THAT(rules_of("type: ClusterIP", out + ", " + ending + ", " + two).chains, HasSubstr("mod 2 map { 0 : 10.1.0.2 . 8080, 1 : 10.2.0.2 . 8080 }"));
  EXPECT_THAT(rules_of("type: ClusterIP", out).deserted, ElementsAre("10.79.0.5 . tcp . 80"));
}

TEST(ServiceRules, AClientKeepsItsEndpoint) {
  const ServiceRules rules = rules_of("type: NodePort, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}", two);
  EXPECT_THAT(rules.chains, HasSubstr("update @affinity4 { ip saddr . ip daddr . meta l4proto . th dport timeout 60s : 0x"));
  EXPECT_THAT(rules.chains, HasSubstr("meta mark set ip saddr . ip daddr . meta l4proto . th dport map @affinity4\n"));
  EXPECT_THAT(rules.chains, HasSubstr("dnat ip to 10.2.0.2:8080"));
  ASSERT_EQ(rules.marks.size(), 2U) << "by its address and by its port";
  EXPECT_EQ(rules.marks.at("10.79.0.5 . tcp . 80").size(), 2U);
  EXPECT_EQ(rules.marks.at("tcp . 30080"), rules.marks.at("10.79.0.5 . tcp . 80"));
  EXPECT_THAT(rules_of("type: ClusterIP, sessionAffinity: ClientIP", two).chains, HasSubstr("timeout 10800s"));
  const ServiceRules six = rules_of("type: ClusterIP, sessionAffinity: ClientIP", "{addresses: ['fd00::2']}", Family::V6);
  EXPECT_THAT(six.chains, testing::AllOf(HasSubstr("update @affinity6 { ip6 saddr . ip6 daddr"), HasSubstr("dnat ip6 to [fd00::2]:8080")));
  EXPECT_TRUE(rules_of("type: ClusterIP", two).marks.empty());
}

TEST(ServiceRules, SessionsAreKeptWhileTheirEndpointIsThere) {
  const std::string affine = "type: NodePort, sessionAffinity: ClientIP";
  const ServiceRules one = rules_of(affine, "{addresses: [10.1.0.2]}"), both = rules_of(affine, two);
  const std::uint32_t stays = *one.marks.at("tcp . 30080").begin();
  auto others = both.marks.at("tcp . 30080");
  ASSERT_EQ(others.erase(stays), 1U) << "an endpoint's mark does not depend on the others";
  const std::uint32_t goes = *others.begin();
  const auto text = [](std::uint32_t mark, const char* at, int port) {
    return fmt::format(R"([{{"elem": {{"val": {{"concat": ["10.9.0.1", "{}", "tcp", {}]}}, "timeout": 100, "expires": 40}}}}, {}])", at, port, mark);
  };
  auto sessions = parse_sessions(fmt::format(R"({{"nftables": [{{"metainfo": {{}}}}, {{"map": {{"name": "affinity4", "elem": [{}, {}, {}, {}, ["odd"], {{}}]}}}}]}})", text(stays, "10.79.0.5", 80),
                                             text(goes, "10.79.0.5", 80), text(stays, "10.87.0.3", 30080), text(stays, "10.79.0.9", 80)));
  ASSERT_TRUE(sessions) << sessions.error().message;
  ASSERT_EQ(sessions->size(), 4U);
  EXPECT_EQ((*sessions)[0], (Session{.client = "10.9.0.1", .address = "10.79.0.5", .protocol = "tcp", .port = 80, .mark = stays, .timeout = 100, .expires = 40}));
  EXPECT_EQ(keep_sessions(*sessions, one, Family::V4),
            fmt::format("add element inet fairlead affinity4 {{ 10.9.0.1 . 10.79.0.5 . tcp . 80 timeout 100s expires 40s : {0:#x}, 10.9.0.1 . 10.87.0.3 . tcp . 30080 timeout 100s expires 40s : {0:#x} }}\n", stays));
  EXPECT_EQ(keep_sessions(*sessions, one, Family::V6), "");
  EXPECT_EQ(keep_sessions(*sessions, rules_of("type: NodePort", two), Family::V4), "") << "no affinity any more";
  Session evil = (*sessions)[0];
  evil.protocol = "tcp }; flush ruleset";
  EXPECT_EQ(keep_sessions({evil}, one, Family::V4), "");
  EXPECT_FALSE(parse_sessions("not json"));
  EXPECT_TRUE(parse_sessions("{}")->empty());
}

}  // namespace
}  // namespace fairlead::node
