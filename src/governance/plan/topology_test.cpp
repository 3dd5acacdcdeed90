// SPDX-License-Identifier: Apache-2.0
// What the recorded cases leave out: every reason, several flavors, two spellings of an assignment, updates of admission checks.
#include "governance/plan/topology.h"

#include <gtest/gtest.h>

namespace fairlead::governance {
namespace {

const std::string block = "block", rack = "rack", host = "kubernetes.io/hostname";

// Two blocks of two racks of two hosts ("b1-r1-h1" ...), each with four cpus and ten pods.
std::vector<TopologyNode> eight_hosts() {
  std::vector<TopologyNode> nodes;
  for (const char* b : {"b1", "b2"}) {
    for (const char* r : {"r1", "r2"}) {
      for (const char* h : {"h1", "h2"}) {
        TopologyNode node;
        node.name = std::string(b) + "-" + r + "-" + h;
        node.ready = true;
        node.labels = {{block, b}, {rack, r}, {host, node.name}};
        node.allocatable = {{"cpu", 4'000}, {"pods", 10}};
        nodes.push_back(std::move(node));
      }
    }
  }
  return nodes;
}

struct Try {
  std::shared_ptr<ResourceIds> ids = std::make_shared<ResourceIds>();
  Topology topology{{.name = "t", .levels = {block, rack, host}, .flavor_labels = {}, .tolerations = {}}, eight_hosts(), ids};
  TopologyPodSet set = [this] {
    TopologyPodSet one;
    one.name = "main";
    one.count = 4;
    one.per_pod = amounts_of({{"cpu", 2'000}}, *ids);
    return one;
  }();
  // The assignment, or the reason.
  std::string answer(const std::string& unhealthy = {}) {
    const auto answers = topology.find({.pod_sets = std::span(&set, 1), .unhealthy_node = unhealthy});
    if (answers.empty()) return "nothing";
    return answers[0].assignment ? text(*answers[0].assignment) : text(answers[0].reason);
  }
};

TEST(Topology, TheTightestDomainIsTaken) {
  Try one;
  one.set.ask.required = rack;
  const DomainUse busy{.values = {"b2-r1-h2"}, .per_pod = one.set.per_pod, .count = 1};
  EXPECT_EQ(one.answer(), "b1-r1-h1:2 b1-r1-h2:2");
  one.set.count = 3;
  one.topology.add(std::span(&busy, 1));
  EXPECT_EQ(one.answer(), "b2-r1-h1:2 b2-r1-h2:1");
}

TEST(Topology, EachReasonSaysWhatIsMissing) {
  Try one;
  EXPECT_EQ(one.answer(), "topology level not specified");
  one.set.ask.required = "zone";
  EXPECT_EQ(one.answer(), "no requested topology level: zone");
  one.set.ask.required = rack;
  one.set.count = 5;
  EXPECT_EQ(one.answer(), "topology \"t\" allows to fit only 4 out of 5 pod(s)");
  one.set.needs.selector = {{rack, "r9"}};
  EXPECT_EQ(one.answer(), "topology \"t\" doesn't allow to fit any of 5 pod(s). Total nodes: 8; excluded: nodeSelector: 8");
  one.set.needs.selector.clear();
  one.set.needs.required = {{{.key = block, .op = "In", .values = {"b2"}}}};
  EXPECT_EQ(one.answer(), "topology \"t\" allows to fit only 4 out of 5 pod(s). Total nodes: 8; excluded: affinity: 4");
  one.set.needs = {};
  one.set.per_pod = amounts_of({{"cpu", 5'000}}, *one.ids);
  EXPECT_EQ(one.answer(), "topology \"t\" doesn't allow to fit any of 5 pod(s). Total nodes: 8; excluded: resource \"cpu\": 8");
  one.set.conflict = merge_update(one.set.needs = {.tolerations = {}, .selector = {{"a", "1"}}, .required = {}, .preferred = {}}, {.tolerations = {}, .selector = {{"a", "2"}}, .required = {}, .preferred = {}});
  EXPECT_EQ(one.answer(), "invalid podSetUpdate for PodSet main, error: invalid admission check PodSetUpdate: conflict for nodeSelector: conflict for key=a, value1=1, value2=2");
}

TEST(Topology, LayersOfSlicesMustFitIntoOneAnother) {
  Try one;
  one.set.count = 8;
  one.set.ask.required = rack;
  one.set.ask.slices = {{block, 4}};
  EXPECT_EQ(one.answer(), "podset slice topology block is above the podset topology rack");
  one.set.ask.required = block;
  one.set.ask.slices = {{"zone", 4}};
  EXPECT_EQ(one.answer(), "no requested topology level for slices: zone");
  one.set.ask.slices = {{rack, 0}};
  EXPECT_EQ(one.answer(), "slice topology requested, but slice size not provided");
  one.set.ask.slices = {{rack, 4}, {"zone", 2}};
  EXPECT_EQ(one.answer(), "no requested topology level for additional slice layer: zone");
  one.set.ask.slices = {{rack, 4}, {rack, 2}};
  EXPECT_EQ(one.answer(), "additional slice layer topology rack must be at a lower level than rack");
  one.set.ask.slices = {{rack, 4}, {host, 3}};
  EXPECT_EQ(one.answer(), "additional slice layer size 3 must evenly divide parent layer size 4");
  one.set.ask.slices = {{rack, 4}, {host, 2}};
  EXPECT_EQ(one.answer(), "b1-r1-h1:2 b1-r1-h2:2 b1-r2-h1:2 b1-r2-h2:2");
  one.set.count = 12;
  EXPECT_EQ(one.answer(), "topology \"t\" doesn't allow to fit; 2/3 slice(s) fit on level rack; 4/6 slice(s) fit on level kubernetes.io/hostname");
}

TEST(Topology, ALostNodeHasItsReasonsToo) {
  Try one;
  one.set.ask.required = rack;
  one.set.count = 3;
  one.set.current = TopologyAssignment{.levels = {host}, .domains = {{{"b1-r1-h1"}, 2}, {{"gone"}, 1}}};
  for (DomainUse& use : uses_of({.levels = {host}, .domains = {{{"b1-r1-h1"}, 2}}}, one.set.per_pod)) one.topology.add(std::span(&use, 1));
  EXPECT_EQ(one.answer("gone"), "b1-r1-h1:2 b1-r1-h2:1");
  EXPECT_EQ(one.answer("b1-r1-h1"), "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain gone");
  one.set.current->domains = {{{"b1-r1-h1"}, 2}};
  EXPECT_EQ(one.answer("gone"), "cannot find replacement assignment for unhealthy node: gone");
}

TEST(Topology, FlavorsThatSeeTheSameHostsShareThem) {
  auto ids = std::make_shared<ResourceIds>();
  std::vector<TopologyNode> nodes = eight_hosts();
  nodes.resize(1);
  const TopologyShape shape{.name = "t", .levels = {host}, .flavor_labels = {}, .tolerations = {}};
  Topology first(shape, nodes, ids), second(shape, nodes, ids);
  TopologyPodSet set;
  set.ask.required = host;
  set.count = 1;
  set.per_pod = amounts_of({{"cpu", 3'000}}, *ids);
  std::vector<FlavorQuestion> questions(2);
  questions[0] = {.flavor = "a", .topology = &first, .pod_sets = {set}};
  questions[1] = {.flavor = "b", .topology = &second, .pod_sets = {set}};
  TopologyGates gates;
  auto answers = find_for_workload(questions, {}, gates);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(answers[0].assignment);
  EXPECT_EQ(text(answers[1].reason), "topology \"t\" doesn't allow to fit any of 1 pod(s). Total nodes: 1; excluded: resource \"cpu\": 1");
  EXPECT_EQ(answers[1].flavor, "b");
  gates.overlapping_flavors = false;
  answers = find_for_workload(questions, {}, gates);
  EXPECT_TRUE(answers[1].assignment);
}

TEST(TopologyAssignment, RunsOfHostsArePackedByTheirPrefix) {
  TopologyAssignment one{.levels = {host}, .domains = {}};
  for (int i = 1; i <= 3; ++i) one.domains.push_back({{"node-" + std::to_string(i)}, 2});
  EXPECT_EQ(kube::print_json(v1beta2_json(one)),
            R"({"levels":["kubernetes.io/hostname"],"slices":[{"domainCount":3,"podCounts":{"universal":2},"valuesPerLevel":[{"individual":{"prefix":"node-","roots":["1","2","3"]}}]}]})");
  one.domains = {{{"ababa"}, 1}, {{"aba"}, 2}};
  EXPECT_EQ(kube::print_json(v1beta2_json(one)["slices"].items()[0]["valuesPerLevel"]), R"([{"individual":{"roots":["ab",""],"suffix":"aba"}}])");
  one.domains.clear();
  EXPECT_EQ(kube::print_json(v1beta2_json(one)), R"({"levels":["kubernetes.io/hostname"],"slices":[]})");
  for (int pool = 0; pool < 40; ++pool) {
    for (int i = 0; i < 30; ++i) one.domains.push_back({{"pool-" + std::to_string(pool * 7'777'777) + "-machine-of-a-long-name-" + std::to_string(i)}, 1 + pool % 2});
  }
  const auto packed = v1beta2_json(one);
  EXPECT_EQ(packed["slices"].items().size(), 40U);
  EXPECT_EQ(read_topology_assignment(packed), one);
  EXPECT_EQ(read_topology_assignment(v1beta1_json(one)), one);
}

TEST(TopologyAsk, BothSpellingsOfSlices) {
  const auto read = [](const char* words) { return read_topology_ask(*kube::parse_json(words)); };
  EXPECT_EQ(read(R"({"podSetSliceRequiredTopology":"rack","podSetSliceSize":2})").slices, (std::vector<SliceLayer>{{"rack", 2}}));
  EXPECT_EQ(read(R"({"podsetSliceRequiredTopologyConstraints":[{"topology":"block","size":4},{"topology":"rack","size":2}]})").slices, (std::vector<SliceLayer>{{"block", 4}, {"rack", 2}}));
  EXPECT_FALSE(read(R"({"podSetGroupName":"g"})").explicit_ask());
  EXPECT_TRUE(read(R"({"unconstrained":false})").explicit_ask());
  EXPECT_FALSE(read("null").present);
}

}  // namespace
}  // namespace fairlead::governance
