// SPDX-License-Identifier: Apache-2.0
// A whole cluster on a virtual clock: it comes up, a node dies, it heals; on many seeds, and some of them twice.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/log.h"
#include "base/test_rounds.h"
#include "sim/world.h"

namespace fairlead::sim {
namespace {

using kube::Json;
namespace resources = kube::resources;

constexpr std::string_view kSite = R"(
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: head-0, labels: {}}
spec: {local: {cpu: "2", memory: 2Gi}, labels: {pool: cpu}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: worker-a}
spec: {local: {cpu: "2", memory: 2Gi}, labels: {pool: gpu}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: worker-b}
spec: {local: {cpu: "2", memory: 2Gi}, labels: {pool: gpu}}
---
apiVersion: v1
kind: Namespace
metadata: {name: lab}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: jail-pvc, namespace: lab}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
---
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab}
spec:
  k8sNodeFilters: [{name: gpu, nodeSelector: {pool: gpu}}, {name: no-gpu, nodeSelector: {pool: cpu}}]
  volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: no-gpu, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 2, k8sNodeFilterName: gpu, cgroupVersion: v1, slurmd: {resources: {cpu: "2", memory: 1Gi}}, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 1, k8sNodeFilterName: no-gpu, sshRootPublicKeys: ["ssh-ed25519 AAAA me"], volumes: {jail: {volumeSourceName: jail}}}
)";

void apply_site(World& world) {
  auto documents = kube::parse_yaml(kSite);
  ASSERT_TRUE(documents);
  const std::map<std::string, const kube::Resource*> by_kind = {{"Machine", &resources::machines}, {"Namespace", &resources::namespaces}, {"PersistentVolumeClaim", &resources::claims}, {"SlurmCluster", &resources::slurm_clusters}};
  for (const Json& document : *documents) {
    auto made = world.api().create(*by_kind.at(document["kind"].string()), document);
    ASSERT_TRUE(made) << made.error().message;
  }
}

std::string phase(World& world) {
  auto cluster = world.api().get(resources::slurm_clusters, {"lab", "demo"});
  return cluster ? (*cluster)["status"]["phase"].string() : cluster.error().message;
}

std::string node_ready(World& world, const std::string& name) {
  auto node = world.api().get(resources::nodes, {"", name});
  if (!node) return "absent";
  const Json* ready = kube::find_condition(*node, "Ready");
  return ready ? (*ready)["status"].string() : "unset";
}

void set_power(World& world, const std::string& machine, const char* power) {
  auto done = world.api().patch(resources::machines, {"", machine}, kube::PatchType::Merge, Json::object({{"spec", Json::object({{"power", power}})}}));
  ASSERT_TRUE(done) << done.error().message;
}

// No node holds more than it has, and every pod of the cluster is bound to a node of its pool.
void expect_promises(World& world) {
  auto pods = world.api().list(resources::pods, "");
  ASSERT_TRUE(pods);
  std::map<std::string, int> workers_on;
  for (const Json& pod : pods->items) {
    const std::string& node = pod["spec"]["nodeName"].string();
    if (kube::name_of(pod).starts_with("worker-") && !node.empty()) {
      EXPECT_THAT(node, testing::StartsWith("worker-"));
      EXPECT_EQ(++workers_on[node], 1) << "two workers that each need the whole of " << node;
    }
  }
}

// The trace tells more than the log, and thousands of lines of it would hide a failure.
const bool quiet = (start_logging("sim", "error"), true);

std::vector<std::string> scenario(std::uint64_t seed) {
  World world({.seed = seed});
  world.add_all_controllers();
  world.start();
  apply_site(world);
  EXPECT_TRUE(world.run_until([&] { return phase(world) == "Available"; }, 120s)) << "seed " << seed << ": never came up, phase " << phase(world);
  expect_promises(world);

  // A power cut that nobody heals at once: Slurm's pod on it is lost, the rest stays.
  set_power(world, "worker-b", "Off");
  EXPECT_TRUE(world.run_until([&] { return node_ready(world, "worker-b") == "Unknown"; }, 120s)) << "seed " << seed << ": a dead node is still shown as " << node_ready(world, "worker-b");
  EXPECT_EQ(node_ready(world, "worker-a"), "True") << "seed " << seed;
  expect_promises(world);

  set_power(world, "worker-b", "On");
  EXPECT_TRUE(world.run_until([&] { return node_ready(world, "worker-b") == "True" && phase(world) == "Available"; }, 900s)) << "seed " << seed << ": did not heal, phase " << phase(world);
  world.run_for(60s);
  EXPECT_EQ(phase(world), "Available") << "seed " << seed;
  expect_promises(world);
  EXPECT_THAT(world.refusals(), testing::IsEmpty()) << "seed " << seed << ": a controller asks for more than it declares";
  return world.trace();
}

TEST(ClusterSim, ComesUpLosesANodeAndHealsOnEverySeed) {
  const auto seeds = test_rounds<std::uint64_t>(10, 200);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) scenario(seed);
}

TEST(ClusterSim, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 7, last = 6 + test_rounds<std::uint64_t>(3, 30); seed <= last; ++seed) {
    const auto first = scenario(seed), second = scenario(seed);
    ASSERT_GT(first.size(), 50U);
    EXPECT_EQ(first, second) << "seed " << seed;
  }
}

TEST(ClusterSim, OtherSeedsAreOtherRuns) { EXPECT_NE(scenario(1), scenario(2)); }

void set_workers(World& world, int size) {
  const Json patch = Json::object({{"spec", Json::object({{"slurmNodes", Json::object({{"worker", Json::object({{"size", size}})}})}})}});
  auto done = world.api().patch(resources::slurm_clusters, {"lab", "demo"}, kube::PatchType::Merge, patch);
  ASSERT_TRUE(done) << done.error().message;
}

TEST(ClusterSim, FewerWorkersAndMoreAgainOnEverySeed) {
  const auto seeds = test_rounds<std::uint64_t>(10, 200);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    World world({.seed = seed});
    world.add_all_controllers();
    world.start();
    apply_site(world);
    using Nodes = std::map<std::string, std::string>;
    const Nodes both = {{"lab/worker-0", ""}, {"lab/worker-1", ""}}, one = {{"lab/worker-0", ""}};
    ASSERT_TRUE(world.run_until([&] { return phase(world) == "Available" && world.slurm_nodes() == both; }, 120s));
    set_workers(world, 1);
    ASSERT_TRUE(world.run_until([&] { return world.slurm_nodes() == one && !world.api().get(resources::pods, {"lab", "worker-1"}); }, 120s));
    set_workers(world, 2);
    ASSERT_TRUE(world.run_until([&] { return phase(world) == "Available" && world.slurm_nodes() == both; }, 120s));
    set_workers(world, 1);
    world.run_for(std::chrono::seconds(seed));  // it is taken back in the middle of what is done
    set_workers(world, 2);
    world.run_for(120s);
    EXPECT_EQ(phase(world), "Available");
    EXPECT_EQ(world.slurm_nodes(), both);
    EXPECT_TRUE((*world.api().get(resources::slurm_clusters, {"lab", "demo"}))["status"]["scaleDown"]["workers"].is_null());
    EXPECT_THAT(world.refusals(), testing::IsEmpty());
  }
}

TEST(ClusterSim, AMachineThatCrashesIsStartedAgain) {
  World world({.seed = 3});
  world.add_all_controllers();
  world.start();
  apply_site(world);
  ASSERT_TRUE(world.run_until([&] { return phase(world) == "Available"; }, 120s));
  world.host().crash("worker-a");
  ASSERT_TRUE(world.run_until([&] { return phase(world) == "Available" && node_ready(world, "worker-a") == "True"; }, 300s));
  world.run_for(300s);
  EXPECT_EQ(phase(world), "Available");
  EXPECT_EQ(node_ready(world, "worker-a"), "True");
}

}  // namespace
}  // namespace fairlead::sim
