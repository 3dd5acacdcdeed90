// SPDX-License-Identifier: Apache-2.0
#include "agent/heartbeat.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "kube/object.h"
#include "node/memory_api.h"

namespace fairlead::agent {
namespace {
using kube::Json;
using namespace std::chrono_literals;

const Instant epoch = *parse_time("2026-01-02T03:04:05Z");

node::NodeConfig config() {
  return {.node_name = "n1",
          .node_ip = "10.0.0.1",
          .pod_cidr = "10.1.0.0/24",
          .api_server = {},
          .ca_file = {},
          .cert_file = {},
          .key_file = {},
          .node_dir = "/tmp",
          .run_dir = "/tmp",
          .images_dir = {},
          .volumes_dir = {},
          .cgroup_parent = {},
          .labels = {{"role", "x"}},
          .annotations = {},
          .taints = Json::array({Json::object({{"key", "k"}, {"effect", "NoSchedule"}})}),
          .capacity = {{"cpu", "2"}, {"nvidia.com/gpu", "1"}}};
}
const Machine machine{
    .boot_id = "b", .machine_id = "m", .kernel = "6", .os_image = "Debian", .runtime = "crun://1", .cpu = "8", .memory = "1000Ki", .storage = ""};

TEST(NodeObject, DevicesAreThoseThatFilesNameNow) {
  char folder[] = "/tmp/fairlead-cdi-XXXXXX";
  node::NodeConfig own = config();
  own.cdi_dirs = {::mkdtemp(folder)};
  own.capacity = {{"cpu", "2"}, {"declared.example/x", "3"}};
  const Json before = *kube::parse_json(R"({"status": {"capacity": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "8", "gone.example/y": "1", "declared.example/x": "9"}}})");
  std::vector<std::string> complaints;
  EXPECT_EQ(device_capacity(own, before, complaints), (std::map<std::string, std::string>{{"cpu", "2"}, {"declared.example/x", "3"}, {"gone.example/y", "0"}, {"nvidia.com/gpu", "0"}}));
  ASSERT_TRUE(write_file_atomically(std::string(folder) + "/a.json", R"({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "1"}, {"name": "all"}]})", 0644));
  ASSERT_TRUE(write_file_atomically(std::string(folder) + "/b.json", "{", 0644));
  EXPECT_EQ(device_capacity(own, before, complaints).at("nvidia.com/gpu"), "2");
  EXPECT_EQ(complaints.size(), 1U);
  own.cdi_dirs.clear();
  EXPECT_EQ(device_capacity(own, before, complaints), own.capacity);  // what others say of a Node stays theirs
  ASSERT_TRUE(remove_tree(folder));
}

TEST(NodeObject, TakesAsManyPodsAsItsClusterSays) {
  const auto pods = [](const node::NodeConfig& own, const char* asked) {
    const Json status = make_node_status(own, machine, Json::object({{"metadata", Json::object({{"annotations", Json::object({{"fairlead.dev/max-pods", asked}})}})}}), epoch);
    EXPECT_EQ(status["capacity"]["pods"], status["allocatable"]["pods"]);
    return status["allocatable"]["pods"].string();
  };
  EXPECT_EQ(pods(config(), "14"), "14");
  for (const char* const strange : {"", "0", "-3", "many", "200", "1e99"}) EXPECT_EQ(pods(config(), strange), "110") << strange;
  node::NodeConfig own = config();
  own.capacity["pods"] = "9";
  EXPECT_EQ(pods(own, "14"), "9") << "its own limit is not lifted";
}

TEST(NodeObject, AHostThatJoinedLeavesLabelsToItsMachine) {
  node::NodeConfig own = config();
  own.joined = true;
  own.labels = {{"fairlead.dev/host", "true"}, {"fairlead.dev/pool", "as-it-was"}, {"rack", "r1"}};
  const Json labels = make_node(own, machine, epoch)["metadata"]["labels"];
  EXPECT_EQ(labels["fairlead.dev/host"].string(), "true");
  EXPECT_FALSE(labels.has("fairlead.dev/pool"));
  EXPECT_FALSE(labels.has("rack"));
  EXPECT_TRUE(labels.has("kubernetes.io/hostname"));
}

TEST(NodeObject, SaysWhatTheConfigurationAndTheMachineSay) {
  const Json node = make_node(config(), machine, epoch);
  EXPECT_EQ(node["status"]["capacity"]["cpu"].string(), "2");  // the configuration wins
  EXPECT_EQ(node["status"]["capacity"]["memory"].string(), "1000Ki");
  EXPECT_EQ(node["status"]["allocatable"]["nvidia.com/gpu"].string(), "1");
  EXPECT_EQ(node["spec"]["taints"].items()[0]["key"].string(), "k");
  EXPECT_TRUE(kube::condition_is_true(node, "Ready"));
  for (const char* field : {"architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID",
                            "operatingSystem", "osImage", "systemUUID"})
    EXPECT_TRUE(node["status"]["nodeInfo"][field].is_string()) << field;
}

TEST(NodeObject, TellsOfBothFamilies) {
  const Json one = make_node(config(), machine, epoch);
  EXPECT_EQ(kube::print_json(one["spec"]["podCIDRs"]), R"(["10.1.0.0/24"])");
  EXPECT_EQ(one["status"]["addresses"].items().size(), 2u);
  node::NodeConfig both = config();
  both.node_ip6 = "fd00:77::103";
  both.pod_cidr6 = "fd00:78:0:3::/64";
  const Json node = make_node(both, machine, epoch);
  EXPECT_EQ(node["spec"]["podCIDR"].string(), "10.1.0.0/24");
  EXPECT_EQ(kube::print_json(node["spec"]["podCIDRs"]), R"(["10.1.0.0/24","fd00:78:0:3::/64"])");
  EXPECT_EQ(kube::print_json(node["status"]["addresses"]),
            R"([{"type":"InternalIP","address":"10.0.0.1"},{"type":"InternalIP","address":"fd00:77::103"},{"type":"Hostname","address":"n1"}])");
}

TEST(NodeObject, KeepsTransitionTimesAndTheConditionsOfOthers) {
  Json node = make_node(config(), machine, epoch);
  node.child("status").child("conditions").push(Json::object({{"type", "Other"}, {"status", "True"}}));
  const Json later = make_node_status(config(), machine, node, epoch + 1h);
  const Json holder = Json::object({{"status", later}});
  EXPECT_EQ((*kube::find_condition(holder, "Ready"))["lastTransitionTime"].string(), print_time(epoch));
  EXPECT_EQ((*kube::find_condition(holder, "Ready"))["lastHeartbeatTime"].string(), print_time(epoch + 1h));
  EXPECT_NE(kube::find_condition(holder, "Other"), nullptr);
}

TEST(Heartbeats, RegisterRepairAndRenew) {
  node::MemoryApi api;
  ManualClock clock(epoch);
  Heartbeat heartbeat(api, clock, config(), machine);
  const auto has_lease = [](const auto& objects) { return objects.contains({"leases", {"kube-node-lease", "n1"}}); };
  ASSERT_TRUE(api.wait_until(has_lease));
  // Somebody thought us dead, and somebody added a label.
  const Json dead = Json::object({{"status", Json::object({{"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "Unknown"}})})}})},
                                  {"metadata", Json::object({{"labels", Json::object({{"mine", "y"}, {"role", "changed"}})}})}});
  ASSERT_TRUE(api.patch(kube::resources::nodes, {"", "n1"}, kube::PatchType::Merge, dead, ""));
  ASSERT_TRUE(heartbeat.beat());
  const Json node = *api.get(kube::resources::nodes, {"", "n1"});
  EXPECT_TRUE(kube::condition_is_true(node, "Ready"));
  EXPECT_EQ(node["metadata"]["labels"]["mine"].string(), "y");
  EXPECT_EQ(node["metadata"]["labels"]["role"].string(), "x");
  // A beat without news writes the Lease and nothing else.
  const std::string version = kube::version_of(node);
  const std::string renewed = (*api.get(kube::resources::leases, {"kube-node-lease", "n1"}))["spec"]["renewTime"].string();
  clock.advance(10s);
  ASSERT_TRUE(heartbeat.beat());
  EXPECT_EQ(kube::version_of(*api.get(kube::resources::nodes, {"", "n1"})), version);
  EXPECT_NE((*api.get(kube::resources::leases, {"kube-node-lease", "n1"}))["spec"]["renewTime"].string(), renewed);
  // A deleted Node comes back.
  ASSERT_TRUE(api.remove(kube::resources::nodes, {"", "n1"}, {}));
  ASSERT_TRUE(heartbeat.beat());
  EXPECT_TRUE(api.get(kube::resources::nodes, {"", "n1"}));
}

}  // namespace
}  // namespace fairlead::agent
