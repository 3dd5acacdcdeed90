// SPDX-License-Identifier: Apache-2.0
// How long does a plan for 2 000 waiting pods take? With callgrind for instructions, which do not depend on the machine.
//   place_bench [NODES [PLACED [plain|apart|spread]]]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "placement/plan/place.h"

using namespace fairlead;
using namespace fairlead::placement;

namespace {

Snapshot make(int nodes, int placed, const std::string& kind) {
  Snapshot out;
  for (int i = 0; i < nodes; ++i) {
    Node node{.name = "node-" + std::to_string(i), .uid = "u"};
    node.ready = true;
    node.labels = {{"kubernetes.io/hostname", node.name}, {"zone", "z" + std::to_string(i % 8)}};
    node.allocatable = {.cpu = {64'000}, .memory = {std::int64_t{256} << 30}, .pods = 110, .extended = {{"nvidia.com/gpu", 8}}};
    out.nodes.push_back(std::move(node));
  }
  auto like = kube::LabelSelector::parse("app=web");
  INVARIANT(like);
  constexpr int waiting = 2'000;
  for (int i = 0; i < placed + waiting; ++i) {
    Pod pod{.key = {"default", "pod-" + std::to_string(i)}, .uid = "u-" + std::to_string(i)};
    pod.owner = "owner-" + std::to_string(i % 50);
    pod.labels = {{"app", i % 2 == 0 ? "web" : "batch"}};
    pod.requests = {.cpu = {100}, .memory = {std::int64_t{64} << 20}, .pods = 1, .extended = {}};
    if (i < placed) pod.node = "node-" + std::to_string(i % nodes);
    else if (kind == "apart" && i % 4 == 0) pod.apart.push_back({.selector = *like, .spaces = {"default"}, .topology_key = "kubernetes.io/hostname", .space_selector = std::nullopt});
    else if (kind == "spread") pod.spreads.push_back({.max_skew = 5, .topology_key = "zone", .selector = *like});
    out.pods.push_back(std::move(pod));
  }
  return out;
}

}  // namespace

int main(int count, char** words) {
  const int nodes = count > 1 ? std::atoi(words[1]) : 1'000, placed = count > 2 ? std::atoi(words[2]) : 0;
  const Snapshot snapshot = make(nodes, placed, count > 3 ? words[3] : "plain");
  const auto begin = std::chrono::steady_clock::now();
  const Plan plan = plan_placement(snapshot);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (plan.places.size() + plan.waits.size() != 2'000) return 1;
  fmt::print("{} nodes, {} placed before: {} placed, {} wait, {:.3f} s, {:.0f} pods/s\n", nodes, placed, plan.places.size(), plan.waits.size(), took.count(), 2'000 / took.count());
  return 0;
}
