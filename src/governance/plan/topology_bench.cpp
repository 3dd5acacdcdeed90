// SPDX-License-Identifier: Apache-2.0
// How long do building a topology, a search and a trial take on 640 and on 10 000 hosts?
//   topology_bench [ROUNDS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "base/result.h"
#include "governance/plan/topology.h"

using namespace fairlead;
using namespace fairlead::governance;

namespace {

double micros(auto&& work, int rounds) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < rounds; ++i) work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / rounds;
}

void measure(int blocks, int racks, int hosts, int rounds) {
  const std::vector<std::string> levels = {"block", "rack", "kubernetes.io/hostname"};
  std::vector<TopologyNode> nodes;
  for (int i = 0; i < blocks * racks * hosts; ++i) {
    TopologyNode node;
    node.name = fmt::format("host-{:05}", i);
    node.ready = true;
    node.labels = {{levels[0], fmt::format("b{}", i / hosts / racks)}, {levels[1], fmt::format("r{}", i / hosts)}, {levels[2], node.name}};
    node.allocatable = {{"cpu", 96'000}, {"memory", std::int64_t{1} << 40}, {"nvidia.com/gpu", 8}, {"pods", 110}};
    nodes.push_back(std::move(node));
  }
  auto ids = std::make_shared<ResourceIds>();
  const TopologyShape shape{.name = "t", .levels = levels, .flavor_labels = {}, .tolerations = {}};
  const double build = micros([&] { Topology(shape, nodes, ids); }, 3);
  Topology topology(shape, nodes, ids);
  const PodAmounts pod = amounts_of({{"cpu", 8'000}, {"memory", std::int64_t{64} << 30}, {"nvidia.com/gpu", 8}}, *ids);
  std::vector<DomainUse> busy;  // every third host
  for (std::size_t i = 0; i < nodes.size(); i += 3) busy.push_back({.values = {nodes[i].name}, .per_pod = pod, .count = 1});
  topology.add(busy);

  const auto search = [&](TopologyAsk ask, int count, bool fits) {
    std::vector<TopologyPodSet> sets(1);
    sets[0].ask = std::move(ask);
    sets[0].count = count;
    sets[0].per_pod = pod;
    INVARIANT((failure(topology.find({.pod_sets = sets})) == nullptr) == fits);
    return micros([&] { INVARIANT(topology.find({.pod_sets = sets}).size() == 1); }, rounds);
  };
  TopologyAsk rack, block, anywhere;
  rack.required = levels[1];
  block.preferred = levels[0];
  anywhere.unconstrained = true;
  const int in_rack = hosts / 2, in_block = racks * hosts / 2;
  const double required = search(rack, in_rack, true), refused = search(rack, hosts + 1, false), preferred = search(block, in_block, true), unbound = search(anywhere, in_block, true);
  const double trial = micros(
      [&] {
        const std::size_t mark = topology.mark();
        topology.remove(std::span(busy).first(32));
        topology.undo(mark);
      },
      rounds);
  fmt::print("{:>6} hosts: build {:.1f} ms; search required {} pods {:.0f} us, refused {:.0f} us, preferred {} pods {:.0f} us, unconstrained {:.0f} us; trial of 32 hosts {:.1f} us\n",
             nodes.size(), build / 1'000, in_rack, required, refused, in_block, preferred, unbound, trial);
}

}  // namespace

int main(int count, char** words) {
  const int rounds = count > 1 ? std::max(1, std::atoi(words[1])) : 200;
  measure(1, 10, 64, rounds);
  measure(10, 10, 100, rounds);
  return 0;
}
