// SPDX-License-Identifier: Apache-2.0
#include "placement/plan/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/rng.h"
#include "placement/plan/match.h"

namespace fairlead::placement {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json parsed(const std::string& text) {
  auto documents = kube::parse_yaml(text);
  if (!documents || documents->size() != 1) {
    ADD_FAILURE() << "bad test input: " << (documents ? "not one document" : documents.error().message) << '\n' << text;
    return Json::object();
  }
  return documents->front();
}

// A node that is ready, with 4 CPUs and 8 GiB, and what `more` (flow YAML of spec) and `labels` say.
Node node(const std::string& name, const std::string& spec = "{}", const std::string& labels = "{}", const std::string& extra = "") {
  return read_node(parsed("metadata: {name: " + name + ", uid: u-" + name + ", labels: " + labels + "}\nspec: " + spec +
                          "\nstatus:\n  conditions: [{type: Ready, status: 'True'}]\n  allocatable: {cpu: '4', memory: 8Gi, pods: '10'" + extra + "}\n"));
}

struct PodText {
  std::string name;
  std::string cpu = "100m";
  std::string memory = "64Mi";
  std::string spec = "";       // further lines of spec, in flow form: "nodeName: a, priority: 5"
  std::string labels = "{}";
  std::string created = "2026-01-01T00:00:00Z";
  std::string extended = "";   // ", nvidia.com/gpu: 1"
};
Pod pod(const PodText& text) {
  const std::string spec = text.spec.empty() ? "" : ", " + text.spec;
  return read_pod(parsed("metadata: {name: " + text.name + ", namespace: default, uid: u-" + text.name + ", labels: " + text.labels + ", creationTimestamp: '" +
                         text.created + "'}\nspec: {containers: [{name: c, resources: {requests: {cpu: " + text.cpu + ", memory: " + text.memory + text.extended +
                         "}}}]" + spec + "}\n"));
}

std::string where(const Plan& plan, const std::string& name) {
  for (const Place& place : plan.places) {
    if (place.pod.name == name) return place.node;
  }
  for (const Wait& wait : plan.waits) {
    if (wait.pod.name == name) return wait.why;
  }
  return "not mentioned";
}

struct Case {
  const char* name;
  std::vector<Node> nodes;
  std::vector<Pod> pods;  // the one called "p" is asked about
  std::string want;       // a node, or the reason
};

class PlacementTable : public testing::TestWithParam<Case> {};

TEST_P(PlacementTable, GivesANodeOrTheReason) {
  const Case& row = GetParam();
  EXPECT_EQ(where(plan_placement({row.nodes, row.pods}), "p"), row.want);
}

const std::string affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [";
const std::string end_of_affinity = "]}]}}}";
const std::string apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}]}}";
const std::string near = "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}]}}";
const std::string no_match = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.";

INSTANTIATE_TEST_SUITE_P(Resources, PlacementTable, testing::Values(
    Case{"fits", {node("a")}, {pod({"p"})}, "a"},
    Case{"fits_exactly", {node("a")}, {pod({"p", "4", "8Gi"})}, "a"},
    Case{"too_much_cpu", {node("a")}, {pod({"p", "4001m"})}, "0/1 nodes are available: 1 Insufficient cpu."},
    Case{"too_much_of_both", {node("a")}, {pod({"p", "5", "9Gi"})}, "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."},
    Case{"what_is_used_counts", {node("a")}, {pod({"x", "3", "1Gi", "nodeName: a"}), pod({"p", "2"})}, "0/1 nodes are available: 1 Insufficient cpu."},
    Case{"finished_pods_hold_nothing", {node("a")}, {[] { Pod x = pod({"x", "3", "1Gi", "nodeName: a"}); x.finished = true; return x; }(), pod({"p", "2"})}, "a"},
    Case{"dying_pods_still_hold", {node("a")}, {[] { Pod x = pod({"x", "3", "1Gi", "nodeName: a"}); x.deleting = true; return x; }(), pod({"p", "2"})}, "0/1 nodes are available: 1 Insufficient cpu."},
    Case{"no_request_fits_a_full_node", {node("a")}, {pod({"x", "4", "8Gi", "nodeName: a"}), pod({"p", "0", "0"})}, "a"},
    Case{"pods_are_counted", {read_node(parsed("{metadata: {name: a}, status: {conditions: [{type: Ready, status: 'True'}], allocatable: {cpu: 4, memory: 8Gi, pods: 1}}}"))}, {pod({"x", "0", "0", "nodeName: a"}), pod({"p"})}, "0/1 nodes are available: 1 Too many pods."},
    Case{"extended_fits", {node("a"), node("b", "{}", "{}", ", nvidia.com/gpu: '2'")}, {pod({.name = "p", .extended = ", nvidia.com/gpu: 2"})}, "b"},
    Case{"extended_short", {node("a"), node("b", "{}", "{}", ", nvidia.com/gpu: '2'")}, {pod({.name = "p", .extended = ", nvidia.com/gpu: 3"})}, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."},
    Case{"no_nodes", {}, {pod({"p"})}, "no nodes available to schedule pods"}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(Nodes, PlacementTable, testing::Values(
    Case{"cordoned", {node("a", "{unschedulable: true}")}, {pod({"p"})}, "0/1 nodes are available: 1 node(s) were unschedulable."},
    Case{"cordon_tolerated", {node("a", "{unschedulable: true}")}, {pod({"p", "1", "1Gi", "tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]"})}, "a"},
    Case{"not_ready", {read_node(parsed("{metadata: {name: a}, status: {conditions: [{type: Ready, status: Unknown}], allocatable: {cpu: 4, memory: 8Gi, pods: 9}}}"))}, {pod({"p"})}, "0/1 nodes are available: 1 node(s) were not ready."},
    Case{"tainted", {node("a", "{taints: [{key: k, value: v, effect: NoSchedule}]}")}, {pod({"p"})}, "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."},
    Case{"taint_without_value", {node("a", "{taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}")}, {pod({"p"})}, "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."},
    Case{"tolerated_by_value", {node("a", "{taints: [{key: k, value: v, effect: NoSchedule}]}")}, {pod({"p", "1", "1Gi", "tolerations: [{key: k, value: v}]"})}, "a"},
    Case{"tolerated_by_existence", {node("a", "{taints: [{key: k, value: v, effect: NoExecute}]}")}, {pod({"p", "1", "1Gi", "tolerations: [{key: k, operator: Exists}]"})}, "a"},
    Case{"tolerates_everything", {node("a", "{taints: [{key: k, value: v, effect: NoExecute}, {key: l, effect: NoSchedule}]}")}, {pod({"p", "1", "1Gi", "tolerations: [{operator: Exists}]"})}, "a"},
    Case{"other_value_not_tolerated", {node("a", "{taints: [{key: k, value: v, effect: NoSchedule}]}")}, {pod({"p", "1", "1Gi", "tolerations: [{key: k, value: w}]"})}, "0/1 nodes are available: 1 node(s) had untolerated taint {k: v}."},
    Case{"other_effect_not_tolerated", {node("a", "{taints: [{key: k, effect: NoExecute}]}")}, {pod({"p", "1", "1Gi", "tolerations: [{key: k, operator: Exists, effect: NoSchedule}]"})}, "0/1 nodes are available: 1 node(s) had untolerated taint {k: }."},
    Case{"disliked_taint_is_avoided", {node("a", "{taints: [{key: k, effect: PreferNoSchedule}]}"), node("b")}, {pod({"x", "3", "6Gi", "nodeName: b"}), pod({"p"})}, "b"},
    Case{"disliked_taint_is_used_if_need_be", {node("a", "{taints: [{key: k, effect: PreferNoSchedule}]}")}, {pod({"p"})}, "a"},
    Case{"each_node_its_reason", {node("a"), node("b"), node("c", "{taints: [{key: k, value: v, effect: NoSchedule}]}")}, {pod({.name = "p", .extended = ", nvidia.com/gpu: 1"})}, "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 2 Insufficient nvidia.com/gpu."}),
    [](const auto& row) { return row.param.name; });

INSTANTIATE_TEST_SUITE_P(Selectors, PlacementTable, testing::Values(
    Case{"selector", {node("a"), node("b", "{}", "{disk: ssd}")}, {pod({"p", "1", "1Gi", "nodeSelector: {disk: ssd}"})}, "b"},
    Case{"selector_other_value", {node("b", "{}", "{disk: hdd}")}, {pod({"p", "1", "1Gi", "nodeSelector: {disk: ssd}"})}, no_match},
    Case{"in", {node("a"), node("b", "{}", "{z: two}")}, {pod({"p", "1", "1Gi", affinity + "{key: z, operator: In, values: [one, two]}" + end_of_affinity})}, "b"},
    Case{"not_in", {node("a", "{}", "{z: one}"), node("b", "{}", "{z: two}")}, {pod({"p", "1", "1Gi", affinity + "{key: z, operator: NotIn, values: [one]}" + end_of_affinity})}, "b"},
    Case{"not_in_when_absent", {node("a")}, {pod({"p", "1", "1Gi", affinity + "{key: z, operator: NotIn, values: [one]}" + end_of_affinity})}, "a"},
    Case{"exists", {node("a"), node("b", "{}", "{z: ''}")}, {pod({"p", "1", "1Gi", affinity + "{key: z, operator: Exists}" + end_of_affinity})}, "b"},
    Case{"does_not_exist", {node("a", "{}", "{z: ''}"), node("b")}, {pod({"p", "1", "1Gi", affinity + "{key: z, operator: DoesNotExist}" + end_of_affinity})}, "b"},
    Case{"greater", {node("a", "{}", "{num: '5'}"), node("b", "{}", "{num: '6'}")}, {pod({"p", "1", "1Gi", affinity + "{key: num, operator: Gt, values: ['5']}" + end_of_affinity})}, "b"},
    Case{"less", {node("a", "{}", "{num: '5'}"), node("b", "{}", "{num: '4'}")}, {pod({"p", "1", "1Gi", affinity + "{key: num, operator: Lt, values: ['5']}" + end_of_affinity})}, "b"},
    Case{"greater_than_text", {node("a", "{}", "{num: 'x5'}")}, {pod({"p", "1", "1Gi", affinity + "{key: num, operator: Gt, values: ['5']}" + end_of_affinity})}, no_match},
    Case{"all_expressions_of_a_term", {node("a", "{}", "{w: '1'}"), node("b", "{}", "{w: '1', z: '1'}")}, {pod({"p", "1", "1Gi", affinity + "{key: w, operator: Exists}, {key: z, operator: Exists}" + end_of_affinity})}, "b"},
    Case{"an_empty_term_matches_nothing", {node("a")}, {pod({"p", "1", "1Gi", affinity + end_of_affinity})}, no_match},
    Case{"node_name_as_field", {node("a"), node("b")}, {pod({"p", "1", "1Gi", "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [b]}]}]}}}"})}, "b"},
    Case{"preferred", {node("a"), node("b", "{}", "{z: '1'}")}, {pod({"x", "3", "6Gi", "nodeName: b"}), pod({"p", "100m", "64Mi", "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 10, preference: {matchExpressions: [{key: z, operator: Exists}]}}]}}"})}, "b"}),
    [](const auto& row) { return row.param.name; });

const std::string on_a = "{kubernetes.io/hostname: a}", on_b = "{kubernetes.io/hostname: b}";
INSTANTIATE_TEST_SUITE_P(Neighbours, PlacementTable, testing::Values(
    Case{"apart_from_those_there", {node("a", "{}", on_a), node("b", "{}", on_b)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"y", "3", "6Gi", "nodeName: b"}), pod({"p", "100m", "64Mi", apart, "{app: db}"})}, "b"},
    Case{"apart_and_no_room", {node("a", "{}", on_a)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "100m", "64Mi", apart})}, "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."},
    Case{"those_there_want_to_be_apart", {node("a", "{}", on_a)}, {pod({"x", "0", "0", "nodeName: a, " + apart, "{app: db}"}), pod({"p", "100m", "64Mi", "", "{app: db}"})}, "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
    Case{"near", {node("a", "{}", on_a), node("b", "{}", on_b)}, {pod({"x", "3", "6Gi", "nodeName: b", "{app: db}"}), pod({"p", "100m", "64Mi", near})}, "b"},
    Case{"near_nobody", {node("a", "{}", on_a)}, {pod({"p", "100m", "64Mi", near})}, "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
    Case{"the_first_of_its_kind_may_be_alone", {node("a", "{}", on_a)}, {pod({"p", "100m", "64Mi", near, "{app: db}"})}, "a"},
    Case{"host_port_taken", {node("a"), node("b")}, {[] { Pod x = pod({"x", "0", "0", "nodeName: a"}); x.host_ports = {{"TCP", 80}}; return x; }(), pod({"y", "3", "6Gi", "nodeName: b"}), [] { Pod p = pod({"p"}); p.host_ports = {{"TCP", 80}}; return p; }()}, "b"},
    Case{"a_bad_quantity_is_said", {node("a")}, {[] { Pod p = pod({"p"}); p.problems = {"resources of container c.cpu: bad"}; return p; }()}, "this pod cannot be placed: resources of container c.cpu: bad."}),
    [](const auto& row) { return row.param.name; });

const std::string in_x = "{zone: x}", in_y = "{zone: north}";
const std::string by_zone = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}";
const std::string skewed = "node(s) didn't match pod topology spread constraints";
INSTANTIATE_TEST_SUITE_P(Spreads, PlacementTable, testing::Values(
    Case{"goes_to_the_emptier_zone", {node("a", "{}", in_x), node("b", "{}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"y", "3", "6Gi", "nodeName: b"}), pod({"p", "1", "1Gi", by_zone + "}]", "{app: db}"})}, "b"},
    Case{"too_skewed", {node("a", "{}", in_x), node("b", "{unschedulable: true}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", by_zone + "}]", "{app: db}"})}, "0/2 nodes are available: 1 " + skewed + ", 1 node(s) were unschedulable."},
    Case{"honoured_taints_make_a_domain_not_count", {node("a", "{}", in_x), node("b", "{unschedulable: true, taints: [{key: k, effect: NoSchedule}]}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", by_zone + ", nodeTaintsPolicy: Honor}]", "{app: db}"})}, "a"},
    Case{"one_that_does_not_count_itself_may_join", {node("a", "{}", in_x), node("b", "{unschedulable: true}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", by_zone + "}]"})}, "a"},
    Case{"a_node_without_the_label", {node("a")}, {pod({"p", "1", "1Gi", by_zone + "}]", "{app: db}"})}, "0/1 nodes are available: 1 " + skewed + " (missing required label)."},
    Case{"too_few_domains", {node("a", "{}", in_x)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", by_zone + ", minDomains: 2}]", "{app: db}"})}, "0/1 nodes are available: 1 " + skewed + "."},
    Case{"nodes_it_may_not_choose_do_not_count", {node("a", "{}", in_x), node("b", "{}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", "nodeSelector: {zone: x}, " + by_zone + "}]", "{app: db}"})}, "a"},
    Case{"unless_it_says_so", {node("a", "{}", in_x), node("b", "{}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "1", "1Gi", "nodeSelector: {zone: x}, " + by_zone + ", nodeAffinityPolicy: Ignore}]", "{app: db}"})}, "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 " + skewed + "."},
    Case{"dying_pods_do_not_count", {node("a", "{}", in_x), node("b", "{unschedulable: true}", in_y)}, {[] { Pod x = pod({"x", "0", "0", "nodeName: a", "{app: db}"}); x.deleting = true; return x; }(), pod({"p", "1", "1Gi", by_zone + "}]", "{app: db}"})}, "a"},
    Case{"only_its_own_revision", {node("a", "{}", in_x), node("b", "{unschedulable: true}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db, rev: '1'}"}), pod({"p", "1", "1Gi", by_zone + ", matchLabelKeys: [rev]}]", "{app: db, rev: '2'}"})}, "a"},
    Case{"anyway_prefers", {node("a", "{}", in_x), node("b", "{}", in_y)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"y", "1", "2Gi", "nodeName: b"}), pod({"p", "1", "1Gi", "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: db}}}]"})}, "b"}),
    [](const auto& row) { return row.param.name; });

const std::string like = "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 50, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}}]}}";
const std::string dislike = "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 50, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}}]}}";
INSTANTIATE_TEST_SUITE_P(Preferences, PlacementTable, testing::Values(
    Case{"likes_company", {node("a", "{}", on_a), node("b", "{}", on_b)}, {pod({"x", "1", "2Gi", "nodeName: b", "{app: db}"}), pod({"p", "100m", "64Mi", like})}, "b"},
    Case{"avoids_company", {node("a", "{}", on_a), node("b", "{}", on_b)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"y", "1", "2Gi", "nodeName: b"}), pod({"p", "100m", "64Mi", dislike})}, "b"},
    Case{"is_liked", {node("a", "{}", on_a), node("b", "{}", on_b)}, {pod({"x", "1", "2Gi", "nodeName: b, " + like}), pod({"p", "100m", "64Mi", "", "{app: db}"})}, "b"},
    Case{"a_preference_forbids_nothing", {node("a", "{}", on_a)}, {pod({"x", "0", "0", "nodeName: a", "{app: db}"}), pod({"p", "100m", "64Mi", dislike})}, "a"}),
    [](const auto& row) { return row.param.name; });

TEST(Placement, NamespacesOfATermMayBeChosenByTheirLabels) {
  const std::string spec = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {}, namespaceSelector: {matchLabels: {team: red}}}]}}";
  Pod other = pod({"x", "0", "0", "nodeName: a"});
  other.key.space = "elsewhere";
  Snapshot snapshot{.nodes = {node("a", "{}", on_a)}, .pods = {other, pod({"p", "1", "1Gi", spec})}};
  snapshot.spaces = {{"elsewhere", {{"team", "blue"}}}};
  EXPECT_EQ(where(plan_placement(snapshot), "p"), "a");
  snapshot.spaces = {{"elsewhere", {{"team", "red"}}}};
  EXPECT_EQ(where(plan_placement(snapshot), "p"), "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.");
}

TEST(Placement, WaitsForClaims) {
  const Pod p = pod({"p", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: home}}]"});
  const auto plan = [&](std::vector<Claim> claims, bool known = true) { return plan_placement(Snapshot{.nodes = {node("a")}, .pods = {p}, .claims = std::move(claims), .claims_known = known}); };
  const kube::ObjectKey home{"default", "home"};
  EXPECT_EQ(where(plan({}, false), "p"), "a");
  EXPECT_EQ(where(plan({}), "p"), "0/1 nodes are available: persistentvolumeclaim \"home\" not found.");
  EXPECT_EQ(where(plan({{.key = home}}), "p"), "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.");
  EXPECT_EQ(where(plan({{.key = home, .bound = true, .deleting = true}}), "p"), "0/1 nodes are available: persistentvolumeclaim \"home\" is being deleted.");
  EXPECT_EQ(where(plan({{.key = home, .bound = true}}), "p"), "a");
  const Plan later = plan({{.key = home, .waits_for_pod = true}});
  EXPECT_THAT(later.claims, ElementsAre(ChooseNode{home, "a"}));
  EXPECT_TRUE(later.places.empty() && later.waits.empty());
}

TEST(Placement, GoesWhereThePoolHasRoomForItsVolume) {
  const Pod p = pod({"p", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: home}}]"}), q = pod({"q", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: other}}]"});
  const kube::ObjectKey home{"default", "home"}, other{"default", "other"};
  const std::vector<Node> nodes{node("b", "{}", "{topology.fairlead.dev/pool: b}"), node("c", "{}", "{topology.fairlead.dev/pool: c}")};
  const auto claim = [](const kube::ObjectKey& key, std::int64_t bytes) { return Claim{.key = key, .waits_for_pod = true, .wants_pool = true, .classes = {"local-fast"}, .bytes = bytes}; };
  const auto plan = [&](std::vector<Claim> claims, const std::map<std::string, std::int64_t>& left) {
    Pools room;
    for (const auto& [name, bytes] : left) room[name] = {.left = bytes};
    return plan_placement(Snapshot{.nodes = nodes, .pods = {p, q}, .claims = std::move(claims), .claims_known = true, .pools = std::move(room)});
  };
  EXPECT_THAT(plan({claim(home, 60)}, {{"b", 50}, {"c", 100}}).claims, ElementsAre(ChooseNode{home, "c"}));
  EXPECT_EQ(where(plan({claim(home, 60)}, {{"b", 50}, {"c", 59}}), "p"), "0/2 nodes are available: 2 node(s) did not have enough free storage.");
  EXPECT_THAT(plan({claim(home, 60)}, {{"b", 50}}).claims, ElementsAre(ChooseNode{home, "c"})) << "of a pool that does not say it is not known";
  EXPECT_THAT(plan({claim(home, 60), claim(other, 60)}, {{"b", 100}, {"c", 100}}).claims, testing::UnorderedElementsAre(ChooseNode{home, "b"}, ChooseNode{other, "c"})) << "what the first takes is counted";
  EXPECT_EQ(where(plan({claim(home, 60), claim(other, 60)}, {{"b", 100}, {"c", 50}}), "q"), "0/2 nodes are available: 2 node(s) did not have enough free storage.");
  EXPECT_EQ(plan({claim(home, 0)}, {{"b", 0}, {"c", 0}}).claims.size(), 1u) << "it was chosen before, and may be counted";
}

TEST(Placement, GoesWhereItsVolumeIsReached) {
  const Pod p = pod({"p", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: home}}]"}), q = pod({"q", "1", "1Gi"});
  const kube::ObjectKey home{"default", "home"};
  const std::vector<Node> nodes{node("a", "{}", "{}"), node("b", "{}", "{topology.fairlead.dev/pool: b}"), node("c", "{}", "{topology.fairlead.dev/pool: c}")};
  const auto plan = [&](Claim claim, std::vector<Node> on) { return plan_placement(Snapshot{.nodes = std::move(on), .pods = {p, q}, .claims = {std::move(claim)}, .claims_known = true}); };
  EXPECT_EQ(where(plan({.key = home, .bound = true, .pool = "c"}, nodes), "p"), "c");
  EXPECT_EQ(where(plan({.key = home, .bound = true, .pool = "d"}, nodes), "p"), "0/3 nodes are available: 3 node(s) had volume node affinity conflict.");
  const Plan later = plan({.key = home, .waits_for_pod = true, .wants_pool = true, .classes = {"local-fast"}}, {nodes[0], nodes[1]});
  EXPECT_THAT(later.claims, ElementsAre(ChooseNode{home, "b"})) << "one that reaches some pool";
  EXPECT_EQ(where(plan({.key = home, .waits_for_pod = true, .wants_pool = true, .classes = {"local-fast"}}, {nodes[0]}), "p"), "0/1 nodes are available: 1 node(s) reached no pool of volumes.");
  EXPECT_EQ(where(plan({.key = home, .bound = true, .pool = "d"}, {nodes[0]}), "q"), "a") << "who has no claim is not asked";
}

TEST(Placement, KnowsAllPoolsThatANodeReaches) {
  const auto labelled = [](const char* name, const char* labels) { return node(name, "{}", labels); };
  EXPECT_THAT(labelled("x", "{topology.fairlead.dev/pool: b, pool.fairlead.dev/a: 'true', pool.fairlead.dev/b: 'true', pool.fairlead.dev/c: 'false', pool.fairlead.dev/d: 'true', pool.fairlead.devious/e: 'true'}").pools, ElementsAre("b", "a", "d"));
  EXPECT_THAT(labelled("x", "{}").pools, IsEmpty());
}

TEST(Placement, ChoosesAmongThePoolsOfANode) {
  const Pod p = pod({"p", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: fast}}, {name: w, persistentVolumeClaim: {claimName: far}}]"}), q = pod({"q", "1", "1Gi", "volumes: [{name: v, persistentVolumeClaim: {claimName: other}}]"});
  const std::vector<Node> nodes{node("a", "{}", "{topology.fairlead.dev/pool: a}"), node("b", "{}", "{topology.fairlead.dev/pool: b, pool.fairlead.dev/ceph: 'true'}"), node("c", "{}", "{topology.fairlead.dev/pool: ceph}")};
  const auto claim = [](const char* name, const char* klass, std::int64_t bytes, std::string pool = {}) { return Claim{.key = {"default", name}, .waits_for_pod = true, .pool = std::move(pool), .wants_pool = true, .classes = {klass}, .bytes = bytes}; };
  const auto copy = [&](const char* of_claim, const char* of_snapshot) {
    Claim out = claim("other", "local-fast", 10);
    out.source_claim = of_claim, out.source_snapshot = of_snapshot;
    return out;
  };
  const auto plan = [&](std::vector<Claim> claims, std::vector<Pod> pods, std::int64_t left = 100) {
    return plan_placement(Snapshot{.nodes = nodes, .pods = std::move(pods), .claims = std::move(claims), .claims_known = true, .pools = {{"a", {.left = left, .classes = {"local-fast"}}}, {"b", {.left = left, .classes = {"local-fast"}}}, {"ceph", {.left = 50, .classes = {"distributed"}}}}, .snapshots = {{"of-b", "b"}}});
  };
  // Of both kinds, only b has them.
  EXPECT_THAT(plan({claim("fast", "local-fast", 60), claim("far", "distributed", 50)}, {p}).claims, testing::UnorderedElementsAre(ChooseNode{{"default", "fast"}, "b"}, ChooseNode{{"default", "far"}, "b"}));
  EXPECT_EQ(where(plan({claim("fast", "local-fast", 60), claim("far", "distributed", 51)}, {p}), "p"), "0/3 nodes are available: 1 node(s) did not have enough free storage, 1 node(s) reached no pool with class distributed, 1 node(s) reached no pool with class local-fast.");
  // The room of a pool is for all claims in it.
  EXPECT_EQ(where(plan({claim("fast", "local-fast", 60), claim("far", "local-fast", 60)}, {p}), "p"), "0/3 nodes are available: 1 node(s) reached no pool with class local-fast, 2 node(s) did not have enough free storage.");
  // A bound claim keeps the other in reach of its pool, first or further.
  Claim bound = claim("fast", "", 0, "ceph");
  bound.bound = true, bound.wants_pool = false;
  EXPECT_THAT(plan({bound, claim("far", "local-fast", 60)}, {p}).claims, ElementsAre(ChooseNode{{"default", "far"}, "b"}));
  // Whoever names no class has what there is: a machine's own disk before Ceph, and Ceph where nothing else is.
  Claim any = claim("other", "local-fast", 10);
  any.classes.emplace_back("distributed");
  EXPECT_THAT(plan({any}, {q}).claims, ElementsAre(ChooseNode{{"default", "other"}, "a"}));
  any.bytes = 70, any.pool = "ceph";
  EXPECT_EQ(where(plan({any}, {q}), "q"), "0/3 nodes are available: 1 node(s) did not reach pool ceph, where the volume is to be, 2 node(s) did not have enough free storage.");
  any.bytes = 50;
  EXPECT_EQ(plan({any}, {q}).claims.size(), 1u);
  // A class that names its pool.
  EXPECT_THAT(plan({claim("other", "local-fast", 10, "b")}, {q}).claims, ElementsAre(ChooseNode{{"default", "other"}, "b"}));
  EXPECT_EQ(where(plan({claim("other", "local-fast", 10, "d")}, {q}), "q"), "0/3 nodes are available: 3 node(s) did not reach pool d, where the volume is to be.");
  // Copies are where their source is; of one that is not there nothing is known.
  Claim source = claim("fast", "", 0, "b");
  source.bound = true, source.wants_pool = false;
  EXPECT_THAT(plan({copy("", "of-b")}, {q}).claims, ElementsAre(ChooseNode{{"default", "other"}, "b"}));
  EXPECT_THAT(plan({copy("fast", ""), source}, {q}).claims, ElementsAre(ChooseNode{{"default", "other"}, "b"}));
  EXPECT_THAT(plan({copy("", "none")}, {q}).claims, ElementsAre(ChooseNode{{"default", "other"}, "a"}));
}

TEST(Placement, LeavesOthersAlone) {
  Pod named = pod({"named", "1", "1Gi", "nodeName: nowhere"}), foreign = pod({"foreign", "1", "1Gi", "schedulerName: mine"}),
      gated = pod({"gated", "1", "1Gi", "schedulingGates: [{name: g}]"}), dying = pod({"dying"}), finished = pod({"finished"});
  dying.deleting = true;
  finished.finished = true;
  const Plan plan = plan_placement({{node("a")}, {named, foreign, gated, dying, finished}});
  EXPECT_EQ(plan, Plan{}) << print(plan);
}

TEST(Placement, PriorityThenAgeThenNameDecideWhoGoesFirst) {
  const std::vector<Pod> pods = {
      pod({"b-young", "1", "1Gi", "", "{}", "2026-01-02T00:00:00Z"}), pod({"d-old", "1", "1Gi", "", "{}", "2026-01-01T00:00:00Z"}),
      pod({"c-old", "1", "1Gi", "", "{}", "2026-01-01T00:00:00Z"}), pod({"z-first", "1", "1Gi", "priority: 7", "{}", "2026-01-09T00:00:00Z"}),
  };
  const Plan plan = plan_placement({{node("a")}, pods});
  std::vector<std::string> order;
  for (const Place& place : plan.places) order.push_back(place.pod.name);
  EXPECT_THAT(order, ElementsAre("z-first", "c-old", "d-old", "b-young"));
}

TEST(Placement, APodThatFitsNowhereDoesNotHoldUpOthers) {
  const Plan plan = plan_placement({{node("a")}, {pod({"big", "100", "1Gi", "priority: 9"}), pod({"small"})}});
  EXPECT_EQ(where(plan, "small"), "a");
  EXPECT_EQ(plan.waits.size(), 1U);
}

TEST(Placement, SpreadsSiblings) {
  std::vector<Pod> pods;
  for (int i = 0; i < 6; ++i) {
    Pod one = pod({.name = "w" + std::to_string(i), .labels = "{app: w}"});
    pods.push_back(one);
  }
  const Plan plan = plan_placement({{node("a"), node("b"), node("c")}, pods});
  std::map<std::string, int> per_node;
  for (const Place& place : plan.places) ++per_node[place.node];
  EXPECT_EQ(per_node, (std::map<std::string, int>{{"a", 2}, {"b", 2}, {"c", 2}}));
}

TEST(Placement, PrefersTheEmptierNodeThenTheName) {
  EXPECT_EQ(where(plan_placement({{node("b"), node("a")}, {pod({"p"})}}), "p"), "a");
  EXPECT_EQ(where(plan_placement({{node("b"), node("a")}, {pod({"x", "1", "1Gi", "nodeName: a"}), pod({"p"})}}), "p"), "b");
}

struct RequestsCase {
  const char* name;
  std::string spec;
  std::int64_t cpu, memory_mib;
};
class EffectiveRequests : public testing::TestWithParam<RequestsCase> {};
TEST_P(EffectiveRequests, AreTheLargestThatEverRunsTogether) {
  const Pod read = read_pod(parsed("metadata: {name: p, namespace: d}\nspec: " + GetParam().spec + "\n"));
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_EQ(read.requests.cpu.value, GetParam().cpu);
  EXPECT_EQ(read.requests.memory.value, GetParam().memory_mib << 20);
  EXPECT_EQ(read.requests.pods, 1);
}
INSTANTIATE_TEST_SUITE_P(Sums, EffectiveRequests, testing::Values(
    RequestsCase{"none", "{containers: [{name: a}]}", 0, 0},
    RequestsCase{"containers_add_up", "{containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Mi}}}, {name: b, resources: {requests: {cpu: 500m, memory: 2Mi}}}]}", 1500, 3},
    RequestsCase{"a_limit_is_a_request", "{containers: [{name: a, resources: {limits: {cpu: 2}}}]}", 2000, 0},
    RequestsCase{"a_request_wins_over_a_limit", "{containers: [{name: a, resources: {limits: {cpu: 2}, requests: {cpu: 1}}}]}", 1000, 0},
    RequestsCase{"init_is_a_maximum", "{initContainers: [{name: i, resources: {requests: {cpu: 3}}}, {name: j, resources: {requests: {memory: 9Mi}}}], containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Mi}}}]}", 3000, 9},
    RequestsCase{"sidecars_run_beside", "{initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 3}}}], containers: [{name: a, resources: {requests: {cpu: 2}}}]}", 4000, 0},
    RequestsCase{"overhead_adds", "{overhead: {cpu: 250m}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}", 1250, 0}),
    [](const auto& row) { return row.param.name; });

// Random clusters: small numbers so that things collide.
Snapshot random_snapshot(Rng rng) {
  Snapshot out;
  const auto nodes = rng.below(5);
  for (std::uint64_t i = 0; i < nodes; ++i) {
    Node one{.name = "n" + std::to_string(i), .uid = "u"};
    one.labels = {{"zone", rng.below(2) == 0 ? "x" : "y"}, {"kubernetes.io/hostname", one.name}};
    one.ready = rng.below(8) != 0;
    one.unschedulable = rng.below(8) == 0;
    if (rng.below(4) == 0) one.taints.push_back({"k", "v", static_cast<Effect>(rng.below(3)), std::nullopt});
    one.allocatable = {.cpu = {static_cast<std::int64_t>(rng.below(9)) * 500}, .memory = {static_cast<std::int64_t>(rng.below(9)) << 30}, .pods = static_cast<std::int64_t>(rng.below(8)), .extended = {}};
    if (rng.below(2) == 0) one.allocatable.extended["nvidia.com/gpu"] = static_cast<std::int64_t>(rng.below(5));
    out.nodes.push_back(one);
  }
  const auto pods = rng.below(25);
  for (std::uint64_t i = 0; i < pods; ++i) {
    Pod one{.key = {"d", "p" + std::to_string(i)}, .uid = "u" + std::to_string(i)};
    one.created = Instant(std::chrono::seconds(rng.below(3)));
    one.priority = static_cast<std::int64_t>(rng.below(3));
    one.labels = {{"app", rng.below(2) == 0 ? "a" : "b"}};
    if (rng.below(3) == 0) one.owner = "o" + std::to_string(rng.below(3));
    one.requests = {.cpu = {static_cast<std::int64_t>(rng.below(4)) * 500}, .memory = {static_cast<std::int64_t>(rng.below(3)) << 30}, .pods = 1, .extended = {}};
    if (rng.below(3) == 0) one.requests.extended["nvidia.com/gpu"] = static_cast<std::int64_t>(rng.below(3));
    if (rng.below(5) == 0 && nodes > 0) one.node = "n" + std::to_string(rng.below(nodes));
    if (rng.below(5) == 0) one.node_selector = {{"zone", "x"}};
    if (rng.below(4) == 0) one.tolerations.push_back({.key = "k", .exists = true, .value = "", .effect = {}, .seconds = {}});
    if (rng.below(6) == 0) {
      auto selector = kube::LabelSelector::parse("app=a");
      INVARIANT(selector);
      one.apart.push_back({*selector, {"d"}, "kubernetes.io/hostname", std::nullopt});
    }
    if (rng.below(8) == 0) one.host_ports = {{"TCP", 80}};
    out.pods.push_back(one);
  }
  return out;
}

TEST(PlacementProperty, NeverOversubscribesAndKeepsEveryRule) {
  int placed = 0, waiting = 0;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    const Snapshot before = random_snapshot(Rng(seed));
    const Plan plan = plan_placement(before);
    SCOPED_TRACE(testing::Message() << "seed " << seed << '\n' << print(plan));
    placed += static_cast<int>(plan.places.size());
    waiting += static_cast<int>(plan.waits.size());

    std::map<std::string, const Node*> nodes;
    for (const Node& one : before.nodes) nodes[one.name] = &one;
    std::map<std::string, const Pod*> pods;
    for (const Pod& one : before.pods) pods[one.key.name] = &one;

    std::map<std::string, Resources> added, there;
    std::map<std::string, std::vector<const Pod*>> on;
    for (const Pod& one : before.pods) {
      if (one.node.empty()) continue;
      there[one.node] += one.requests;
      on[one.node].push_back(&one);
    }
    std::set<std::string> mentioned;
    for (const Place& place : plan.places) {
      EXPECT_TRUE(mentioned.insert(place.pod.name).second);
      const Pod& one = *pods.at(place.pod.name);
      const Node& node_of = *nodes.at(place.node);
      EXPECT_TRUE(pending(one));
      EXPECT_TRUE(node_of.ready && !node_of.unschedulable);
      EXPECT_EQ(first_forbidding_taint(one, node_of), nullptr);
      EXPECT_TRUE(selects(one, node_of));
      for (const Pod* other : on[place.node]) {
        for (const PodTerm& term : one.apart) EXPECT_FALSE(means(term, *other));
        for (const PodTerm& term : other->apart) EXPECT_FALSE(means(term, one));
        for (const auto& port : one.host_ports) EXPECT_FALSE(other->host_ports.contains(port));
      }
      on[place.node].push_back(&one);
      added[place.node] += one.requests;
    }
    for (const auto& [name, extra] : added) {
      Resources sum = there[name];
      sum += extra;
      const Resources& limit = nodes.at(name)->allocatable;
      // What was there before may be over the limit already (placed by hand); what we add must fit.
      EXPECT_TRUE(extra.cpu.value == 0 || sum.cpu <= limit.cpu);
      EXPECT_TRUE(extra.memory.value == 0 || sum.memory <= limit.memory);
      EXPECT_LE(sum.pods, limit.pods);
      for (const auto& [resource, amount] : extra.extended) {
        EXPECT_TRUE(amount == 0 || sum.extended[resource] <= (limit.extended.contains(resource) ? limit.extended.at(resource) : 0));
      }
    }
    for (const Wait& wait : plan.waits) {
      EXPECT_TRUE(mentioned.insert(wait.pod.name).second);
      EXPECT_FALSE(wait.why.empty());
    }
    EXPECT_EQ(mentioned.size(), static_cast<std::size_t>(std::count_if(before.pods.begin(), before.pods.end(), pending))) << "every waiting pod gets an answer";
  }
  EXPECT_GT(placed, 4'000);
  EXPECT_GT(waiting, 5'000);
}

TEST(PlacementProperty, EqualArgumentsGiveEqualPlansInWhateverOrderTheyCome) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Snapshot one = random_snapshot(Rng(seed)), other = one;
    Rng rng(seed + 1);
    const auto shuffle = [&](auto& list) {
      for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
    };
    shuffle(other.nodes);
    shuffle(other.pods);
    EXPECT_EQ(plan_placement(one), plan_placement(other)) << "seed " << seed;
  }
}

TEST(PlacementProperty, WhatWaitsTodayWaitsUntilSomethingChanges) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Snapshot snapshot = random_snapshot(Rng(seed));
    const Plan first = plan_placement(snapshot);
    for (const Place& place : first.places) {
      for (Pod& one : snapshot.pods) {
        if (one.key == place.pod) one.node = place.node;
      }
    }
    const Plan second = plan_placement(snapshot);
    EXPECT_THAT(second.places, IsEmpty()) << "seed " << seed << '\n' << print(first) << print(second);
  }
}

}  // namespace
}  // namespace fairlead::placement
