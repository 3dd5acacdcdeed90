// SPDX-License-Identifier: Apache-2.0
// EndpointSlices by table; addresses of services; budgets and evictions on the real registry.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/budget_controller.h"
#include "apiserver/budget_plan.h"
#include "apiserver/endpoints_controller.h"
#include "apiserver/endpoints_plan.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/registry_test_kit.h"
#include "apiserver/service_addresses.h"
#include "apiserver/status.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json service(std::string_view spec = "clusterIP: None, selector: {app: web}, ipFamilies: [IPv4], ports: [{name: http, port: 80, targetPort: web, protocol: TCP}]") {
  return json(fmt::format("{{apiVersion: v1, kind: Service, metadata: {{name: web, namespace: default, uid: s, labels: {{team: red}}}}, spec: {{{}}}}}", spec));
}
Json pod(const std::string& name, std::string_view ips = "[{ip: 10.0.0.1}]", std::string_view ready = "'True'", std::string_view more = "") {
  return json(fmt::format("{{metadata: {{name: {}, namespace: default, uid: u-{}, labels: {{app: web}}{}}}, spec: {{nodeName: n1, hostname: h, subdomain: web, containers: [{{name: c, ports: [{{name: web, "
                          "containerPort: 8080}}]}}]}}, status: {{phase: Running, podIPs: {}, conditions: [{{type: Ready, status: {}}}]}}}}", name, name, more, ips, ready));
}

TEST(Slices, TellWhoServesAndWho) {
  const SlicePlan plan = plan_slices(service(), {pod("a"), pod("b", "[{ip: 10.0.0.2}]", "'False'"), pod("c", "[{ip: 10.0.0.3}]", "'True'", ", deletionTimestamp: '2026-01-01T00:00:00Z'"), pod("d", "[]")}, {});
  ASSERT_EQ(plan.create.size(), 1u);
  const Json& slice = plan.create[0];
  EXPECT_EQ(slice["metadata"]["labels"], json("{team: red, kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io, service.kubernetes.io/headless: ''}"));
  EXPECT_EQ(slice["ports"], json("[{name: http, protocol: TCP, port: 8080}]"));
  EXPECT_EQ(slice["addressType"].string(), "IPv4");
  ASSERT_EQ(slice["endpoints"].items().size(), 3u);
  EXPECT_EQ(slice["endpoints"].items()[0], json("{addresses: [10.0.0.1], conditions: {ready: true, serving: true, terminating: false}, hostname: h, nodeName: n1, targetRef: {kind: Pod, namespace: default, name: a, uid: u-a}}"));
  EXPECT_EQ(slice["endpoints"].items()[1]["conditions"], json("{ready: false, serving: false, terminating: false}"));
  EXPECT_EQ(slice["endpoints"].items()[2]["conditions"], json("{ready: false, serving: true, terminating: true}"));
}

TEST(Slices, AreOnePerFamilyAndKeepWhoIsInThem) {
  const Json of = service("clusterIP: 10.79.0.5, selector: {app: web}, ipFamilies: [IPv4, IPv6], ports: [{port: 80, targetPort: 80, protocol: TCP}]");
  std::vector<Json> pods;
  for (int i = 0; i < 150; ++i) pods.push_back(pod(fmt::format("p{:03}", i), fmt::format("[{{ip: 10.0.1.{}}}, {{ip: 'fd00::{:x}'}}]", i, i + 1)));
  SlicePlan plan = plan_slices(of, pods, {});
  ASSERT_EQ(plan.create.size(), 4u);
  std::vector<Json> slices;
  for (std::size_t i = 0; i < plan.create.size(); ++i) {
    plan.create[i].child("metadata").set("name", fmt::format("web-{}", i));
    slices.push_back(plan.create[i]);
  }
  EXPECT_TRUE(plan_slices(of, pods, slices).empty()) << "nothing changed";
  pods.erase(pods.begin() + 3);
  const SlicePlan after = plan_slices(of, pods, slices);
  EXPECT_TRUE(after.create.empty() && after.remove.empty());
  EXPECT_EQ(after.update.size(), 2u) << "only the slices where it was change";
  const SlicePlan none = plan_slices(of, {}, slices);
  EXPECT_EQ(none.remove.size(), 4u);
  EXPECT_EQ(none.create.size(), 2u) << "an empty one of each family tells that somebody looked";
}

TEST(Slices, FollowPodsOnTheRealRegistry) {
  World world;
  EndpointsController controller(*world.api);
  world.must(world.create("services", "{metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}"));
  world.must(world.create("pods", "{metadata: {name: a, labels: {app: web}}, spec: {nodeName: n1, containers: [{name: c, image: i}]}}"));
  world.must(world.patch(*world.kind("pods"), {"default", "a"}, "{status: {phase: Running, podIP: 10.1.1.1, podIPs: [{ip: 10.1.1.1}], conditions: [{type: Ready, status: 'True'}]}}", kube::PatchType::Merge, "status"));
  ASSERT_TRUE(controller.reconcile({"default", "web"}));
  ASSERT_TRUE(controller.reconcile({"default", "web"}));
  auto slices = world.api->list(workloads::endpoint_slices, "default");
  ASSERT_EQ(slices->items.size(), 1u);
  EXPECT_EQ(slices->items[0]["endpoints"].items()[0]["addresses"], json("[10.1.1.1]"));
  ASSERT_TRUE(world.api->remove(kube::resources::services, {"default", "web"}));
  ASSERT_TRUE(controller.reconcile({"default", "web"}));
  EXPECT_TRUE(world.api->list(workloads::endpoint_slices, "default")->items.empty());
}

TEST(AddressRanges, AreReadAndCounted) {
  EXPECT_FALSE(AddressRange::parse("10.79.0.1/16"));
  EXPECT_FALSE(AddressRange::parse("10.79.0.0/30"));
  EXPECT_FALSE(AddressRange::parse("10.79.0.0"));
  EXPECT_FALSE(AddressRange::parse("x/16"));
  const auto four = AddressRange::parse("10.79.8.0/24"), six = AddressRange::parse("fd00:79::/64");
  ASSERT_TRUE(four && six);
  EXPECT_EQ(four->at(200), "10.79.8.200");
  EXPECT_EQ(four->offset_of("10.79.8.200"), 200u);
  EXPECT_EQ(four->offset_of("10.79.9.200"), std::nullopt);
  EXPECT_EQ(six->at(0x1234), "fd00:79::1234");
  EXPECT_EQ(six->offset_of("fd00:79::1:1234"), std::nullopt);
}

TEST(Services, GetAddressesOfTheirFamilies) {
  World world;
  const auto make = [&](const std::string& name, std::string_view more) { return world.create("services", fmt::format("{{metadata: {{name: {}}}, spec: {{ports: [{{port: 80}}]{}}}}}", name, more)); };
  const Json a = object_of(make("a", "")), b = object_of(make("b", ""));
  EXPECT_THAT(a["spec"]["clusterIP"].string(), testing::StartsWith("10.79."));
  EXPECT_EQ(a["spec"]["clusterIPs"].items().size(), 1u);
  EXPECT_NE(a["spec"]["clusterIP"], b["spec"]["clusterIP"]);
  const Json both = object_of(make("both", ", ipFamilyPolicy: PreferDualStack"));
  EXPECT_EQ(both["spec"]["ipFamilies"], json("[IPv4, IPv6]"));
  EXPECT_THAT(both["spec"]["clusterIPs"].items()[1].string(), testing::StartsWith("fd00:79::"));
  EXPECT_THAT(object_of(make("six", ", ipFamilies: [IPv6]"))["spec"]["clusterIP"].string(), testing::StartsWith("fd00:79::"));
  EXPECT_EQ(object_of(make("own", ", clusterIP: 10.79.0.9"))["spec"]["clusterIP"].string(), "10.79.0.9");
  EXPECT_THAT(message_of(make("again", ", clusterIP: 10.79.0.9")), HasSubstr("failed to allocate IP 10.79.0.9: provided IP is already allocated"));
  EXPECT_THAT(message_of(make("far", ", clusterIP: 10.1.0.9")), HasSubstr("is not in the valid range. The range of valid IPs is 10.79.0.0/16"));
  EXPECT_EQ(object_of(make("none", ", clusterIP: None"))["spec"]["clusterIPs"], json("[None]"));
  // It keeps its address through updates and gives it back at the end.
  Json next = a;
  for (const char* field : {"clusterIP", "clusterIPs"}) next.child("spec").erase(field);
  EXPECT_EQ(object_of(world.update(*world.kind("services"), next))["spec"]["clusterIP"], a["spec"]["clusterIP"]);
  next.child("spec").set("clusterIP", "10.79.0.77").set("clusterIPs", Json::array({"10.79.0.77"}));
  EXPECT_THAT(message_of(world.update(*world.kind("services"), next)), HasSubstr("may not change once set"));
  world.must(world.remove(*world.kind("services"), {"default", "own"}));
  EXPECT_EQ(object_of(make("heir", ", clusterIP: 10.79.0.9"))["spec"]["clusterIP"].string(), "10.79.0.9");
}

TEST(Services, HaveOneFamilyOrBothAsTheirPolicySays) {
  World world;
  const auto make = [&](const std::string& name, std::string_view more) { return world.create("services", fmt::format("{{metadata: {{name: {}}}, spec: {{ports: [{{port: 80}}]{}}}}}", name, more)); };
  const auto patch = [&](const std::string& name, std::string_view change) { return world.patch(*world.kind("services"), {"default", name}, std::string(change)); };
  const Json both = object_of(make("both", ", ipFamilyPolicy: RequireDualStack"));
  ASSERT_EQ(both["spec"]["clusterIPs"].items().size(), 2u);
  EXPECT_EQ(both["spec"]["clusterIP"], both["spec"]["clusterIPs"].items()[0]);
  EXPECT_EQ(object_of(make("six-first", ", ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv6]"))["spec"]["ipFamilies"], json("[IPv6, IPv4]"));
  // From one to two and back: the first address stays.
  const Json one = object_of(make("one", ""));
  const Json two = object_of(patch("one", "{spec: {ipFamilyPolicy: PreferDualStack}}"));
  ASSERT_EQ(two["spec"]["clusterIPs"].items().size(), 2u);
  EXPECT_EQ(two["spec"]["clusterIP"], one["spec"]["clusterIP"]);
  Json silent = two;  // an update that does not speak of families
  for (const char* field : {"ipFamilies", "ipFamilyPolicy"}) silent.child("spec").erase(field);
  EXPECT_EQ(object_of(world.update(*world.kind("services"), silent))["spec"], two["spec"]);
  EXPECT_THAT(message_of(patch("one", "{spec: {ipFamilies: [IPv4]}}")), HasSubstr("spec.ipFamilyPolicy: Invalid value: \"PreferDualStack\": must be 'SingleStack' to release the secondary IP family"));
  const Json again = object_of(patch("one", "{spec: {ipFamilyPolicy: SingleStack}}"));
  EXPECT_EQ(again["spec"]["clusterIPs"], one["spec"]["clusterIPs"]);
  EXPECT_EQ(again["spec"]["ipFamilies"], json("[IPv4]"));
  // Refusals.
  EXPECT_THAT(message_of(make("a", ", ipFamilies: [IPv4, IPv6]")), HasSubstr("spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"));
  EXPECT_THAT(message_of(make("a", ", clusterIPs: [10.79.3.3, 'fd00:79::33'], clusterIP: 10.79.3.3")), HasSubstr("when multiple cluster IPs are specified"));
  EXPECT_THAT(message_of(make("a", ", ipFamilyPolicy: Both")), HasSubstr("spec.ipFamilyPolicy: Unsupported value: \"Both\": supported values: \"PreferDualStack\", \"RequireDualStack\", \"SingleStack\""));
  EXPECT_THAT(message_of(make("a", ", ipFamilies: [IPv5]")), HasSubstr("spec.ipFamilies[0]: Unsupported value: \"IPv5\""));
  EXPECT_THAT(message_of(make("a", ", ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv4]")), HasSubstr("spec.ipFamilies[1]: Duplicate value: \"IPv4\""));
  EXPECT_THAT(message_of(make("a", ", ipFamilies: [IPv6], clusterIP: 10.79.3.3, clusterIPs: [10.79.3.3]")), HasSubstr("spec.clusterIPs[0]: Invalid value: \"10.79.3.3\": expected an IPv6 value as indicated by `ipFamilies[0]`"));
  EXPECT_THAT(message_of(make("a", ", ipFamilyPolicy: PreferDualStack, clusterIP: 10.79.3.4, clusterIPs: [10.79.3.4, 10.79.3.5]")),
              HasSubstr("spec.clusterIPs: Invalid value: []string{\"10.79.3.4\", \"10.79.3.5\"}: may specify no more than one IP for each IP family"));
  // Named addresses tell their families.
  const Json named = object_of(make("named", ", ipFamilyPolicy: PreferDualStack, clusterIP: 'fd00:79::33', clusterIPs: ['fd00:79::33', 10.79.3.3]"));
  EXPECT_EQ(named["spec"]["ipFamilies"], json("[IPv6, IPv4]"));
}

TEST(Services, AreOfOneFamilyWhereTheSiteHasOne) {
  ManualClock clock{*parse_time("2026-01-01T00:00:00Z")};
  const auto store = make_memory_store();
  const auto registry = Registry::open(*store, clock, {.secret_key = std::string(32, 'k'), .service_ranges = {"10.79.0.0/16"}});
  ASSERT_TRUE(registry);
  const auto api = make_local_api(**registry);
  const auto make = [&](const char* name, std::string_view more) {
    return api->create(kube::resources::services, json(fmt::format("{{metadata: {{name: {}, namespace: default}}, spec: {{ports: [{{port: 80}}]{}}}}}", name, more)));
  };
  const auto refused = make("a", ", ipFamilyPolicy: RequireDualStack");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services"));
  const auto six = make("a", ", ipFamilies: [IPv6]");
  ASSERT_FALSE(six);
  EXPECT_THAT(six.error().message, HasSubstr("spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"));
  const auto named = make("a", ", clusterIP: 'fd00:79::33', clusterIPs: ['fd00:79::33']");
  ASSERT_FALSE(named);
  EXPECT_THAT(named.error().message, HasSubstr("spec.clusterIPs[0]: Invalid value: []string{\"fd00:79::33\"}: IPv6 is not configured on this cluster"));
  const auto preferred = make("a", ", ipFamilyPolicy: PreferDualStack");
  ASSERT_TRUE(preferred) << preferred.error().message;
  EXPECT_EQ((*preferred)["spec"]["ipFamilies"], json("[IPv4]"));
  EXPECT_EQ((*preferred)["spec"]["clusterIPs"].items().size(), 1u);
}

struct RangesCase {
  const char* name;
  std::vector<std::string> texts;
  const char* want;  // joined by blanks; what begins with "!" is part of the refusal
};
class ServiceRanges : public testing::TestWithParam<RangesCase> {};
TEST_P(ServiceRanges, AreAnIpv4RangeAndPerhapsAnIpv6One) {
  const auto parsed = parse_service_ranges(GetParam().texts);
  if (*GetParam().want == '!') {
    ASSERT_FALSE(parsed);
    EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().want + 1));
  } else {
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(fmt::format("{}", fmt::join(*parsed, " ")), GetParam().want);
  }
}
INSTANTIATE_TEST_SUITE_P(Services, ServiceRanges,
                         testing::Values(RangesCase{"one", {"10.79.0.0/16"}, "10.79.0.0/16"}, RangesCase{"both", {"10.79.0.0/16,fd00:79::/112"}, "10.79.0.0/16 fd00:79::/112"},
                                         RangesCase{"twice_said", {"10.79.0.0/16", "fd00:79::/112"}, "10.79.0.0/16 fd00:79::/112"}, RangesCase{"order", {"fd00:79::/112,10.79.0.0/16"}, "!begins with IPv6"},
                                         RangesCase{"only_six", {"fd00:79::/112"}, "!has no IPv4"}, RangesCase{"ipv4_twice", {"10.79.0.0/16,10.80.0.0/16"}, "!names IPv4 twice"},
                                         RangesCase{"three", {"10.79.0.0/16,fd00::/112", "fd01::/112"}, "!more than two parts"}, RangesCase{"too_small", {"10.79.0.0/16,fd00:79::/126"}, "!is not a range of service addresses"},
                                         RangesCase{"empty", {""}, "!is not a range of service addresses"}),
                         [](const auto& row) { return row.param.name; });

TEST(Services, HaveNodePortsAndSessionsAsTheirTypeSays) {
  World world;
  const auto make = [&](const std::string& name, std::string_view more) { return world.create("services", fmt::format("{{metadata: {{name: {}}}, spec: {{ports: [{{port: 80}}]{}}}}}", name, more)); };
  const Json open = object_of(make("open", ", type: NodePort, sessionAffinity: ClientIP"));
  EXPECT_EQ(open["spec"]["ports"].items()[0]["nodePort"].integer(), 30086);
  EXPECT_EQ(open["spec"]["externalTrafficPolicy"].string(), "Cluster");
  EXPECT_EQ(open["spec"]["sessionAffinityConfig"], json("{clientIP: {timeoutSeconds: 10800}}"));
  EXPECT_THAT(message_of(make("again", ", type: NodePort, externalTrafficPolicy: Odd")), HasSubstr("spec.externalTrafficPolicy: Unsupported value: \"Odd\""));
  // A patch of the type alone takes the port away, which is free for others then.
  const Json closed = object_of(world.patch(*world.kind("services"), {"default", "open"}, "{spec: {type: ClusterIP, sessionAffinity: None}}"));
  EXPECT_FALSE(closed["spec"]["ports"].items()[0].has("nodePort"));
  EXPECT_FALSE(closed["spec"].has("externalTrafficPolicy"));
  EXPECT_FALSE(closed["spec"].has("sessionAffinityConfig"));
  EXPECT_EQ(closed["spec"]["clusterIP"], open["spec"]["clusterIP"]);
  const Json own = object_of(world.create("services", "{metadata: {name: own}, spec: {type: NodePort, ports: [{port: 80, nodePort: 30086}]}}"));
  EXPECT_EQ(own["spec"]["ports"].items()[0]["nodePort"].integer(), 30086);
}

TEST(Services, WithoutRangesAreHeadless) {
  ManualClock clock{*parse_time("2026-01-01T00:00:00Z")};
  const auto store = make_memory_store();
  const auto registry = Registry::open(*store, clock, {});
  ASSERT_TRUE(registry);
  const auto api = make_local_api(**registry);
  const auto refused = api->create(kube::resources::services, json("{metadata: {name: a, namespace: default}, spec: {ports: [{port: 80}]}}"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("spec.clusterIP: Forbidden: not supported by the embedded engine; this server has no service addresses: set clusterIP: None"));
  const auto headless = api->create(kube::resources::services, json("{metadata: {name: a, namespace: default}, spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}}"));
  ASSERT_TRUE(headless) << headless.error().message;
  EXPECT_EQ((*headless)["spec"]["ipFamilies"], json("[IPv4]"));
}

struct BudgetWorld : World {
  BudgetWorld() : controller(*api, clock) {
    for (const char* name : {"a", "b"}) {
      must(create("pods", fmt::format("{{metadata: {{name: {}, labels: {{app: db}}}}, spec: {{nodeName: n1, containers: [{{name: c, image: i}}]}}}}", name)));
      must(patch(*kind("pods"), {"default", name}, "{status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}", kube::PatchType::Merge, "status"));
    }
  }
  void budget(std::string_view spec) {
    must(create(*kind("poddisruptionbudgets", "policy"), json(fmt::format("{{metadata: {{name: db}}, spec: {{selector: {{matchLabels: {{app: db}}}}, {}}}}}", spec)), "default"));
    look();
  }
  void look() { EXPECT_TRUE(controller.reconcile({"default", "db"})); }
  Json status() const { return get(*kind("poddisruptionbudgets", "policy"), {"default", "db"})["status"]; }
  Result<Written> evict(const std::string& name, std::string_view more = "") { return post(*kind("pods"), {"default", name}, "eviction", fmt::format("{{apiVersion: policy/v1, kind: Eviction, metadata: {{name: {}}}{}}}", name, more)); }
  BudgetController controller;
};

TEST(Budgets, CountAndStandInTheWayOfEvictions) {
  BudgetWorld world;
  world.budget("minAvailable: 1");
  EXPECT_EQ(world.status()["disruptionsAllowed"].integer(), 1);
  EXPECT_EQ(world.status()["expectedPods"].integer(), 2);
  EXPECT_EQ(world.status()["conditions"].items()[0]["reason"].string(), "SufficientPods");
  world.must(world.evict("a", ", deleteOptions: {dryRun: [All]}"));
  EXPECT_FALSE(kube::deleting(world.get(*world.kind("pods"), {"default", "a"})));
  EXPECT_EQ(world.status()["disruptionsAllowed"].integer(), 1);
  world.must(world.evict("a"));
  const Json gone = world.get(*world.kind("pods"), {"default", "a"});
  EXPECT_TRUE(kube::deleting(gone));
  EXPECT_EQ((*kube::find_condition(gone, "DisruptionTarget"))["reason"].string(), "EvictionByEvictionAPI");
  EXPECT_EQ(world.status()["disruptionsAllowed"].integer(), 0);
  EXPECT_TRUE(world.status()["disruptedPods"].has("a"));
  const auto refused = world.evict("b");
  ASSERT_FALSE(refused);
  const Status told = status_of(refused.error(), {});
  EXPECT_EQ(told.code, 429);
  EXPECT_EQ(told.reason, "TooManyRequests");
  EXPECT_EQ(told.message, "Cannot evict pod as it would violate the pod's disruption budget.");
  ASSERT_EQ(told.details.causes.size(), 1u);
  EXPECT_EQ(told.details.causes[0].message, "The disruption budget db needs 1 healthy pods and has 2 currently");
  world.look();
  EXPECT_EQ(world.status()["currentHealthy"].integer(), 1);
  EXPECT_FALSE(world.status().has("disruptedPods")) << "it is being deleted";
}

TEST(Budgets, AnEvictionThatCameToNothingIsForgotten) {
  const Json budget = json("{metadata: {name: db, generation: 1}, spec: {maxUnavailable: 1}, status: {disruptedPods: {a: '2026-01-01T00:00:00Z'}}}");
  const Json a = json("{metadata: {name: a}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}");
  const BudgetPlan soon = plan_budget(budget, {a}, *parse_time("2026-01-01T00:01:00Z"));
  EXPECT_EQ(soon.status["currentHealthy"].integer(), 0);
  EXPECT_EQ(soon.look_again_at, parse_time("2026-01-01T00:02:00Z").value());
  EXPECT_EQ(plan_budget(budget, {a}, *parse_time("2026-01-01T00:02:00Z")).status["disruptionsAllowed"].integer(), 1);
}

TEST(Budgets, JudgeAsKubernetesDoes) {
  struct Row {
    const char* name;
    std::string pod, budget;
    EvictionVerdict::What want;
  };
  using What = EvictionVerdict::What;
  const std::string ready = "{metadata: {name: p}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}", sick = "{metadata: {name: p}, status: {phase: Running}}";
  for (const Row& row : std::vector<Row>{
           {"room", ready, "{metadata: {name: b, generation: 1}, status: {observedGeneration: 1, disruptionsAllowed: 1}}", What::Charge},
           {"none", ready, "{metadata: {name: b, generation: 1}, status: {observedGeneration: 1, disruptionsAllowed: 0}}", What::Refuse},
           {"not seen yet", ready, "{metadata: {name: b, generation: 2}, status: {observedGeneration: 1, disruptionsAllowed: 1}}", What::Refuse},
           {"finished", "{metadata: {name: p}, status: {phase: Failed}}", "{metadata: {name: b}, status: {disruptionsAllowed: 0}}", What::Delete},
           {"sick while enough are well", sick, "{metadata: {name: b}, status: {disruptionsAllowed: 0, currentHealthy: 2, desiredHealthy: 2}}", What::Delete},
           {"sick while too few are well", sick, "{metadata: {name: b}, status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 2}}", What::Refuse},
           {"sick and always allowed", sick, "{metadata: {name: b}, spec: {unhealthyPodEvictionPolicy: AlwaysAllow}, status: {disruptionsAllowed: 0, currentHealthy: 1, desiredHealthy: 2}}", What::Delete}})
    EXPECT_EQ(judge_eviction(json(row.pod), json(row.budget)).what, row.want) << row.name;
}

}  // namespace
}  // namespace fairlead::apiserver::test
