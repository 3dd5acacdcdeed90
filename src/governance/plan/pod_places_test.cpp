// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_places.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "governance/plan/topology_assignment.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

struct AskRow {
  const char *name, *annotations, *request, *problem;
};
class AskOfPods : public testing::TestWithParam<AskRow> {};

TEST_P(AskOfPods, IsReadFromTheirAnnotations) {
  Json pod_set = Json::object();
  const std::string problem = put_topology_request(pod_set, yaml(fmt::format("{{annotations: {}}}", GetParam().annotations)));
  EXPECT_THAT(problem, HasSubstr(GetParam().problem));
  EXPECT_EQ(problem.empty(), *GetParam().problem == '\0') << problem;
  EXPECT_EQ(kube::print_json(pod_set["topologyRequest"]), GetParam().request);
}

INSTANTIATE_TEST_SUITE_P(Rows, AskOfPods, testing::Values(
    AskRow{"none", "{a: b}", "null", ""},
    AskRow{"required", "{kueue.x-k8s.io/podset-required-topology: cloud/rack}", R"({"required":"cloud/rack"})", ""},
    AskRow{"preferred", "{kueue.x-k8s.io/podset-preferred-topology: cloud/rack, kueue.x-k8s.io/podset-group-name: g}", R"({"preferred":"cloud/rack","podSetGroupName":"g"})", ""},
    AskRow{"unconstrained", "{kueue.x-k8s.io/podset-unconstrained-topology: 'true'}", R"({"unconstrained":true})", ""},
    AskRow{"slices", "{kueue.x-k8s.io/podset-slice-required-topology: cloud/rack, kueue.x-k8s.io/podset-slice-size: '4'}", R"({"podSetSliceRequiredTopology":"cloud/rack","podSetSliceSize":4})", ""},
    AskRow{"layers", R"({kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"topology":"a","size":4},{"topology":"b","size":2}]'})", R"({"podsetSliceRequiredTopologyConstraints":[{"topology":"a","size":4},{"topology":"b","size":2}]})", ""},
    AskRow{"both", "{kueue.x-k8s.io/podset-required-topology: a, kueue.x-k8s.io/podset-preferred-topology: b}", "null", "both are given"},
    AskRow{"no_label", "{kueue.x-k8s.io/podset-required-topology: 'a b'}", "null", "podset-required-topology]: \"a b\" is given, and a label of nodes"},
    AskRow{"no_boolean", "{kueue.x-k8s.io/podset-unconstrained-topology: yes please}", "null", "true or false is expected"},
    AskRow{"no_size", "{kueue.x-k8s.io/podset-slice-required-topology: a, kueue.x-k8s.io/podset-slice-size: '0'}", "null", "a number of pods"},
    AskRow{"no_list", "{kueue.x-k8s.io/podset-slice-required-topology-constraints: '{}'}", "null", "one to three layers"},
    AskRow{"four_layers", R"({kueue.x-k8s.io/podset-slice-required-topology-constraints: '[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]'})", "null", "one to three layers"}),
    [](const auto& row) { return row.param.name; });

// On h1 two pods and on h2 one.
Json workload(const std::string& request = "{}", int count = 3) {
  Json out = yaml(fmt::format("{{metadata: {{name: w, namespace: lab}}, spec: {{podSets: [{{name: main, count: {1}, topologyRequest: {0}}}]}}, status: {{admission: {{clusterQueue: q, podSetAssignments: [{{name: main, count: {1}}}]}}}}}}", request, count));
  out.child("status").child("admission").child("podSetAssignments").items()[0].set("topologyAssignment", v1beta2_json({.levels = {"kubernetes.io/hostname"}, .domains = {{{"h1"}, 2}, {{"h2"}, 1}}}));
  return out;
}
Json pod(const std::string& name, const std::string& labels = "{}", const std::string& host = "") {
  return yaml(fmt::format("{{metadata: {{name: {}, namespace: lab, labels: {}}}, spec: {}}}", name, labels, host.empty() ? "{schedulingGates: [{name: kueue.x-k8s.io/topology}]}" : "{nodeSelector: {kubernetes.io/hostname: " + host + "}}"));
}
std::string given(const Json& of, const std::vector<Json>& pods) {
  std::vector<const Json*> all;
  for (const Json& one : pods) all.push_back(&one);
  std::string out;
  for (const PodPlace& one : places_for(of, "main", all, [](const Json& one) { return !waits_for_place(one); })) out += fmt::format("{}={} ", one.pod.name, one.selector.at("kubernetes.io/hostname"));
  return out;
}
std::string index(int i) { return fmt::format("{{batch.kubernetes.io/job-completion-index: '{}'}}", i); }

TEST(PodPlaces, RanksGoToDomainsInTheirOrder) { EXPECT_EQ(given(workload(), {pod("a", index(2)), pod("b", index(0)), pod("c", index(1))}), "a=h2 b=h1 c=h1 "); }
TEST(PodPlaces, APodThatComesAgainGoesWhereItsRankWas) { EXPECT_EQ(given(workload(), {pod("a", index(0), "h1"), pod("b2", index(1)), pod("c", index(2), "h2")}), "b2=h1 "); }
TEST(PodPlaces, WithoutRanksByNameToWhatIsFree) {
  EXPECT_EQ(given(workload(), {pod("c"), pod("a"), pod("b")}), "a=h1 b=h1 c=h2 ");
  EXPECT_EQ(given(workload(), {pod("c"), pod("a", "{}", "h1"), pod("b", "{}", "h2")}), "c=h1 ");
  EXPECT_EQ(given(workload(), {pod("a", "{}", "h1"), pod("b", "{}", "h1"), pod("c", "{}", "h2"), pod("d")}), "") << "no more than there are places";
}
TEST(PodPlaces, RanksThatAreTwiceOrTooLargeOrWhereOthersAreDoNotCount) {
  EXPECT_EQ(given(workload(), {pod("a", index(1)), pod("b", index(1)), pod("c", index(0))}), "a=h1 b=h1 c=h2 ");
  EXPECT_EQ(given(workload(), {pod("a", index(7)), pod("b", index(1)), pod("c", index(0))}), "a=h1 b=h1 c=h2 ");
  EXPECT_EQ(given(workload(), {pod("a", index(0), "h2"), pod("b", index(2)), pod("c", index(1))}), "b=h1 c=h1 ") << "index 0 sits where index 2 was to";
}
TEST(PodPlaces, RanksOfSeveralJobsFollowEachOther) {
  const Json of = workload("{podIndexLabel: i, subGroupIndexLabel: job, subGroupCount: 3}");
  EXPECT_EQ(given(of, {pod("a", "{i: '0', job: '2'}"), pod("b", "{i: '0', job: '0'}"), pod("c", "{i: '0', job: '1'}")}), "a=h2 b=h1 c=h1 ");
}
TEST(PodPlaces, WhoIsLedComesBehindItsLeader) {
  Json of = workload("{required: cloud/rack, podSetGroupName: g, podIndexLabel: i}");
  of.child("spec").child("podSets").push(yaml("{name: leader, count: 1, topologyRequest: {required: cloud/rack, podSetGroupName: g, podIndexLabel: i}}"));
  of.child("status").child("admission").child("podSetAssignments").push(yaml("{name: leader, count: 1}"));
  EXPECT_EQ(given(of, {pod("a", "{i: '1'}"), pod("b", "{i: '3'}"), pod("c", "{i: '2'}")}), "a=h1 b=h2 c=h1 ");
}
TEST(PodPlaces, ATemplateGetsGateAndNotesOnce) {
  Json pods = yaml("{metadata: {annotations: {a: b}}, spec: {}}");
  put_place_gate(pods, workload(), "main"), put_place_gate(pods, workload(), "main");
  EXPECT_EQ(kube::print_json(pods), R"({"metadata":{"annotations":{"a":"b","kueue.x-k8s.io/workload":"w","kueue.x-k8s.io/podset-unconstrained-topology":"true"}},"spec":{"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}})");
  Json other = yaml("{spec: {}}");
  put_place_gate(other, workload(), "other");
  EXPECT_EQ(kube::print_json(other), R"({"spec":{}})");
}
TEST(PodPlaces, WhoIsOnANodeThatItsWorkloadHasNoPlaceOnIsAstray) {
  EXPECT_TRUE(is_astray(workload(), "main", pod("a", "{}", "h9")));
  EXPECT_FALSE(is_astray(workload(), "main", pod("a", "{}", "h1")));
  EXPECT_FALSE(is_astray(workload(), "main", pod("a")));
  EXPECT_FALSE(is_astray(workload(), "other", pod("a", "{}", "h9")));
}

}  // namespace
}  // namespace fairlead::governance
