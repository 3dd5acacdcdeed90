// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/node_sets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace resources = kube::resources;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json yaml(std::string_view text) { return kube::parse_yaml(text)->at(0); }

Json cluster_without_workers() {
  return yaml(R"(
metadata: {name: demo, namespace: lab, uid: u1, generation: 3}
spec:
  slurmNodes: {controller: {size: 1}, login: {size: 0, sshRootPublicKeys: []}}
)");
}
Json set(const std::string& name, int replicas, const char* more = "") {
  Json out = yaml("{apiVersion: slurm.nebius.ai/v1alpha1, kind: NodeSet, metadata: {namespace: lab, generation: 1, resourceVersion: \"1\"}, spec: {slurmd: {resources: {cpu: \"1\"" + std::string(more) + "}}}}");
  out.child("metadata").set("name", name).set("uid", "uid-" + name);
  out.child("spec").set("replicas", replicas);
  return out;
}

// A namespace that takes whatever the plan says, and a Slurm in which every ready worker is idle.
struct World {
  Snapshot snapshot{.cluster = cluster_without_workers()};
  Instant now = kNow;

  Plan look() {
    snapshot.trial.reset();
    if (const auto wanted = wants_trial(snapshot, {}, "slurm:22.05", now)) snapshot.trial = Trial{wanted->hash, Verdict::Good, ""};
    return plan_reconcile(snapshot, {}, "slurm:22.05", now);
  }
  std::vector<std::string> steps() {
    std::vector<std::string> out;
    for (const auto& step : look().steps) out.push_back(describe(step));
    return out;
  }
  void apply(const Plan& plan) {
    snapshot.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      if (const auto* create = std::get_if<Create>(&step)) table(create->resource)[kube::name_of(create->object)] = with_uid(create->object);
      if (const auto* update = std::get_if<Update>(&step)) table(update->resource)[kube::name_of(update->object)] = update->object;
      if (const auto* status = std::get_if<WriteStatus>(&step)) table(status->resource)[kube::name_of(status->object)] = status->object;
      if (const auto* make = std::get_if<MakeKeys>(&step)) snapshot.secrets[make->secret] = Json::object();
      if (const auto* gone = std::get_if<Remove>(&step)) table(gone->resource).erase(gone->key.name);
      if (const auto* remove = std::get_if<DeletePod>(&step)) snapshot.pods.erase(remove->key.name);
      if (const auto* reload = std::get_if<Reconfigure>(&step)) snapshot.cluster.child("status").set("appliedConfigHash", reload->hash);
      if (const auto* node = std::get_if<NodeStep>(&step); node && snapshot.view) {
        SlurmNode& of = snapshot.view->nodes[node->tell.node];
        if (node->tell.verb == NodeVerb::Drain) of.state = {"IDLE", "DRAIN"}, of.reason = node->tell.arguments.at(0);
        if (node->tell.verb == NodeVerb::Forget) snapshot.view->nodes.erase(node->tell.node);
      }
    }
    // A set that is being deleted goes when nothing holds it.
    std::erase_if(snapshot.node_sets, [](const auto& one) { return kube::deleting(one.second) && !kube::has_finalizer(one.second, api::kNodeSetFinalizer); });
    if (snapshot.view) snapshot.view->at += std::chrono::seconds(2);
  }
  void settle() {
    for (int i = 0; i < 20; ++i) {
      const Plan plan = look();
      apply(plan);
      if (plan.steps.empty()) return;
    }
    ADD_FAILURE() << "the plan never comes to rest: " << testing::PrintToString(steps());
  }
  void run_all() {
    for (auto& [name, pod] : snapshot.pods) {
      pod.child("spec").set("nodeName", "n");
      pod.set("status", Json::object({{"phase", "Running"}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
    }
  }
  void slurm_knows_all() {
    snapshot.view = SlurmView{.at = kNow};
    for (const auto& [name, pod] : snapshot.pods)
      if (kube::labels_of(pod)[kRoleLabel] == "worker") snapshot.view->nodes[name] = {.name = name, .state = {"IDLE"}};
  }
  std::string condition(const char* type) {
    const Json object = Json::object({{"status", look().status}});
    const Json* found = kube::find_condition(object, type);
    return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "absent";
  }
  std::vector<std::string> pods() {
    std::vector<std::string> out;
    for (const auto& [name, pod] : snapshot.pods) out.push_back(name);
    return out;
  }

 private:
  static Json with_uid(Json object) {
    object.child("metadata").set("uid", "uid-" + kube::name_of(object));
    return object;
  }
  std::map<std::string, Json>& table(const kube::Resource& resource) {
    if (resource == resources::pods) return snapshot.pods;
    if (resource == resources::services) return snapshot.services;
    if (resource == resources::config_maps) return snapshot.config_maps;
    if (resource == resources::claims) return snapshot.claims;
    if (resource == kNetworkPolicies) return snapshot.policies;
    if (resource == api::kNodeSets) return snapshot.node_sets;
    return snapshot.secrets;
  }
};

class NodeSets : public testing::Test {
 protected:
  NodeSets() {
    world.snapshot.node_sets["cpu"] = set("cpu", 2);
    world.snapshot.node_sets["gpu"] = set("gpu", 1, ", nvidia.com/gpu: 2");
    world.settle();
    world.run_all();
    world.settle();
  }
  const Json& status(const char* name) { return world.snapshot.node_sets.at(name)["status"]; }
  World world;
};

TEST_F(NodeSets, SeveralSetsAreWorkersOfOneCluster) {
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "cpu-0", "cpu-1", "gpu-0"));
  EXPECT_EQ(world.look().status["phase"].string(), "Available");
  EXPECT_EQ(world.look().status["workers"].integer(), 3);
  EXPECT_EQ(status("cpu")["phase"].string(), "Ready");
  EXPECT_EQ(status("cpu")["replicas"].integer(), 2);
  EXPECT_EQ(status("gpu")["labelSelector"].string(), "fairlead.dev/slurm-cluster=demo,fairlead.dev/node-set=gpu");
  EXPECT_TRUE(kube::has_finalizer(world.snapshot.node_sets["gpu"], api::kNodeSetFinalizer));
  const std::string conf = world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string();
  EXPECT_THAT(conf, HasSubstr("NodeSet=worker Feature=worker\nNodeSet=cpu Feature=cpu\nNodeSet=gpu Feature=gpu\nPartitionName=main Nodes=worker,cpu,gpu "));
  EXPECT_THAT(conf, HasSubstr("GresTypes=gpu\n"));
  EXPECT_EQ(world.snapshot.config_maps["demo-slurm-configs"]["data"]["gres.conf"].string(), "NodeName=gpu-[0-9999] Name=gpu File=/dev/nvidia[0-1]\n");
  const auto definition = [&](const char* pod) {
    for (const Json& variable : world.snapshot.pods[pod]["spec"]["containers"].items()[1]["env"].items())
      if (variable["name"].string() == "FAIRLEAD_NODE_DEFINITION") return variable["value"].string();
    return std::string();
  };
  EXPECT_THAT(definition("gpu-0"), HasSubstr("Feature=gpu Gres=gpu:2"));
  EXPECT_THAT(definition("cpu-1"), testing::EndsWith("Feature=cpu"));
  EXPECT_EQ(kube::labels_of(world.snapshot.pods["gpu-0"])[api::kNodeSetLabel], "gpu");
}

// A claim for each worker, which stays when the worker goes and comes.
TEST_F(NodeSets, WorkersHaveVolumesOfTheirOwn) {
  const auto claim = [&](const char* size) {
    world.snapshot.node_sets["cpu"].child("spec").child("slurmd").set("volumes", yaml(fmt::format(R"({{spool: {{volumeClaimTemplateSpec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}}},
      jailSubMounts: [{{name: scratch, mountPath: /scratch, volumeClaimTemplateSpec: {{storageClassName: fast, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {}}}}}}}}}]}})", size)));
  };
  claim("1Gi");
  world.snapshot.pods.erase("cpu-0");
  world.snapshot.pods.erase("cpu-1");
  world.settle();
  const auto size = [&](const char* name) { return world.snapshot.claims[name]["spec"]["resources"]["requests"]["storage"].string(); };
  for (const char* name : {"spool-demo-cpu-0", "spool-demo-cpu-1", "sub-scratch-demo-cpu-0", "sub-scratch-demo-cpu-1"}) {
    ASSERT_TRUE(world.snapshot.claims.contains(name)) << name;
    EXPECT_TRUE(world.snapshot.claims[name]["metadata"]["ownerReferences"].is_null()) << "data outlives the cluster";
  }
  EXPECT_FALSE(world.snapshot.claims.contains("sub-scratch-demo-gpu-0"));
  EXPECT_THAT(kube::print_json(world.snapshot.pods["cpu-1"]["spec"]["volumes"]), HasSubstr(R"({"name":"sub-scratch","persistentVolumeClaim":{"claimName":"sub-scratch-demo-cpu-1"}})"));
  // A larger template: the claims grow once they are bound, and no worker is made anew for it.
  world.run_all();
  world.slurm_knows_all();
  world.settle();
  world.snapshot.claims["sub-scratch-demo-cpu-1"].set("status", Json::object({{"phase", "Bound"}}));
  claim("3Gi");
  EXPECT_THAT(world.steps(), ElementsAre("update persistentvolumeclaims sub-scratch-demo-cpu-1"));
  const Json before = world.snapshot.pods["cpu-1"], other = world.snapshot.pods["gpu-0"];
  world.snapshot.pods.erase("gpu-0");
  EXPECT_THAT(world.steps(), Contains("create pods gpu-0"));
  EXPECT_EQ(world.steps().back(), "update persistentvolumeclaims sub-scratch-demo-cpu-1") << "a class may refuse it: nothing waits for that";
  world.snapshot.pods["gpu-0"] = other;
  world.settle();
  EXPECT_EQ(size("sub-scratch-demo-cpu-1"), "3Gi");
  EXPECT_EQ(size("sub-scratch-demo-cpu-0"), "1Gi") << "it has no volume yet, and Kubernetes takes no change";
  EXPECT_EQ(world.snapshot.pods["cpu-1"], before);
  // One that a user has made larger, or put in the place of ours, stays as it is; nothing shrinks.
  for (auto& [name, one] : world.snapshot.claims) one.set("status", Json::object({{"phase", "Bound"}}));
  world.snapshot.claims["sub-scratch-demo-cpu-0"].child("metadata").erase("labels");
  claim("2Gi");
  EXPECT_THAT(world.steps(), IsEmpty());
  world.snapshot.node_sets["cpu"].child("spec").set("replicas", 1);
  world.snapshot.node_sets["cpu"].child("metadata").set("generation", 2);
  world.slurm_knows_all();
  world.settle();
  EXPECT_THAT(world.pods(), Not(Contains("cpu-1")));
  EXPECT_TRUE(world.snapshot.claims.contains("sub-scratch-demo-cpu-1")) << "it may come back";
}

TEST_F(NodeSets, EachIsScaledByItself) {
  world.slurm_knows_all();
  world.snapshot.node_sets["cpu"].child("spec").set("replicas", 1);
  world.snapshot.node_sets["cpu"].child("metadata").set("generation", 2);
  EXPECT_THAT(world.steps(), Contains(HasSubstr("drain cpu-1: fairlead: scale-down of u1 generation 2")));
  world.settle();
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "cpu-0", "gpu-0"));
  EXPECT_EQ(world.snapshot.view->nodes.size(), 2U) << "the record is gone, those of others are there";
  EXPECT_EQ(status("cpu")["scaleDown"]["generation"].integer(), 2);
  EXPECT_EQ(status("cpu")["phase"].string(), "Ready");
}

// The deadline of a set is its own: the cluster's workers wait for jobs, however long they run.
TEST_F(NodeSets, EachHasItsOwnDeadlineForJobs) {
  world.slurm_knows_all();
  for (const char* name : {"cpu", "gpu"}) {
    Json& one = world.snapshot.node_sets[name];
    one.child("spec").set("replicas", 0);
    one.child("metadata").set("generation", 2);
  }
  world.snapshot.node_sets["cpu"].child("spec").child("extensions").set("scaleDown", Json::object({{"policy", "requeue"}, {"after", "1s"}}));
  for (const char* node : {"cpu-0", "gpu-0"}) {
    world.snapshot.view->nodes[node].state = {"ALLOCATED"};
    world.snapshot.view->nodes[node].cpus = 1;
  }
  world.snapshot.view->jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"cpu-0"}}, {.id = "8", .user = "ada", .state = "RUNNING", .nodes = {"gpu-0"}}};
  std::vector<std::string> told;
  for (int round = 0; round < 6; ++round) {
    world.now += std::chrono::seconds(2);
    Plan plan = world.look();
    for (const auto& step : plan.steps) told.push_back(describe(step));
    world.apply(plan);
    for (const char* node : {"cpu-0", "gpu-0"})
      if (SlurmNode& of = world.snapshot.view->nodes[node]; !of.reason.empty()) of.state = {"ALLOCATED", "DRAIN"};
  }
  EXPECT_THAT(told, Contains(HasSubstr("requeue cpu-0: 7")));
  EXPECT_THAT(told, Not(Contains(HasSubstr("gpu-0: 8"))));
}

TEST_F(NodeSets, ABusyWorkerOfASetThatIsDeletedIsWaitedFor) {
  world.slurm_knows_all();
  world.snapshot.view->nodes["gpu-0"] = {.name = "gpu-0", .state = {"ALLOCATED", "DRAIN"}, .cpus = 1, .reason = "fairlead: scale-down of u1 generation 1"};
  world.snapshot.view->jobs = {{.id = "7", .user = "ada", .state = "RUNNING", .nodes = {"gpu-0"}}};
  world.snapshot.node_sets["gpu"].child("metadata").set("deletionTimestamp", "2027-01-15T08:00:00Z");
  world.settle();
  EXPECT_THAT(world.pods(), Contains("gpu-0"));
  EXPECT_EQ(status("gpu")["phase"].string(), "Terminating");
  EXPECT_THAT(kube::print_json(status("gpu")["conditions"]), HasSubstr("waits for job 7 of ada"));
  world.snapshot.view->jobs.clear();
  world.snapshot.view->nodes["gpu-0"] = {.name = "gpu-0", .state = {"IDLE", "DRAIN"}, .reason = "fairlead: scale-down of u1 generation 1"};
  world.settle();
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "cpu-0", "cpu-1"));
  EXPECT_FALSE(world.snapshot.node_sets.contains("gpu"));
  world.settle();
  EXPECT_THAT(world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string(), Not(HasSubstr("NodeSet=gpu")));
}

TEST_F(NodeSets, ASilentSlurmHoldsASetForFiveMinutesButNeverAWorker) {
  Json& gpu = world.snapshot.node_sets["gpu"];
  gpu.child("metadata").set("deletionTimestamp", print_time(kNow - std::chrono::minutes(20)));
  world.settle();
  EXPECT_THAT(world.pods(), Contains("gpu-0")) << "what runs there nobody knows";
  ASSERT_TRUE(world.snapshot.node_sets.contains("gpu"));
  world.snapshot.pods.erase("gpu-0");
  gpu.child("metadata").set("deletionTimestamp", print_time(kNow - std::chrono::minutes(4)));
  world.settle();
  EXPECT_TRUE(world.snapshot.node_sets.contains("gpu"));
  gpu.child("metadata").set("deletionTimestamp", print_time(kNow - std::chrono::minutes(6)));
  world.settle();
  EXPECT_FALSE(world.snapshot.node_sets.contains("gpu"));
}

TEST_F(NodeSets, ASetThatCannotBeCarriedOutKeepsWhatRuns) {
  world.slurm_knows_all();
  world.snapshot.node_sets["cpu"].child("spec").set("replicas", 99'999);
  const Json before = world.snapshot.pods["cpu-1"];
  world.settle();
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "cpu-0", "cpu-1", "gpu-0"));
  EXPECT_EQ(world.snapshot.pods["cpu-1"], before);
  EXPECT_EQ(status("cpu")["phase"].string(), "Pending");
  EXPECT_EQ(status("cpu")["replicas"].integer(), 2) << "as last seen";
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("NodeSet cpu: spec.replicas: 99999 is not"));
  EXPECT_THAT(world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string(), HasSubstr("Nodes=worker,cpu,gpu"));
}

TEST_F(NodeSets, AreFixedToTheirCluster) {
  world.slurm_knows_all();
  const Json before = world.snapshot.config_maps["demo-slurm-configs"];
  world.snapshot.node_sets["gpu"].child("spec").set("clusterName", "other");
  world.settle();
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "cpu-0", "cpu-1", "gpu-0"));
  EXPECT_EQ(world.snapshot.config_maps["demo-slurm-configs"], before);
  EXPECT_THAT(kube::print_json(status("gpu")["conditions"]), HasSubstr("the workers are in cluster demo and stay there"));
}

TEST(NodeSetTakeover, TheSectionsWorkersGoOnUnderASetOfTheirName) {
  World world;
  world.snapshot.cluster.child("spec").child("slurmNodes").set("worker", yaml("{size: 2, slurmd: {resources: {cpu: \"1\"}}}"));
  world.settle();
  world.run_all();
  world.settle();
  world.slurm_knows_all();
  const Json before = world.snapshot.pods["worker-1"];
  // First the set, which says that it waits; then the section goes.
  world.snapshot.node_sets["worker"] = set("worker", 2);
  world.settle();
  EXPECT_THAT(kube::print_json(world.snapshot.node_sets["worker"]["status"]), HasSubstr("takes them over as they run"));
  world.snapshot.cluster.child("spec").child("slurmNodes").erase("worker");
  world.settle();
  EXPECT_EQ(world.snapshot.pods["worker-1"], before);
  EXPECT_EQ(world.snapshot.node_sets["worker"]["status"]["phase"].string(), "Ready");
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("True"));
  // And back: the section has them again, and the set goes without waiting for anybody.
  World back = world;
  back.snapshot.cluster.child("spec").child("slurmNodes").set("worker", yaml("{size: 2, slurmd: {resources: {cpu: \"1\"}}}"));
  back.snapshot.node_sets["worker"].child("metadata").set("deletionTimestamp", "2027-01-15T08:00:00Z");
  back.settle();
  EXPECT_FALSE(back.snapshot.node_sets.contains("worker"));
  EXPECT_EQ(back.snapshot.pods["worker-1"], before);
  // Without either nobody is sent away.
  world.snapshot.node_sets.clear();
  world.settle();
  EXPECT_THAT(world.pods(), ElementsAre("controller-0", "worker-0", "worker-1"));
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("worker-0, worker-1 run on, though neither"));
}

TEST(NodeSetAlone, WaitsForItsClusterAndForNothingWhenItGoes) {
  Json alone = set("gpu", 1);
  kube::add_finalizer(alone, api::kNodeSetFinalizer);
  const auto waits = plan_lonely_node_set(alone, "demo", kNow);
  EXPECT_FALSE(waits.finalizers);
  EXPECT_EQ(waits.object["status"]["phase"].string(), "Pending");
  EXPECT_THAT(kube::print_json(waits.object["status"]), HasSubstr("there is no SlurmCluster demo"));
  EXPECT_EQ(plan_lonely_node_set(waits.object, "demo", kNow).object, waits.object);
  alone.child("metadata").set("deletionTimestamp", "2027-01-15T08:00:00Z");
  const auto goes = plan_lonely_node_set(alone, "demo", kNow);
  EXPECT_TRUE(goes.finalizers);
  EXPECT_FALSE(kube::has_finalizer(goes.object, api::kNodeSetFinalizer));
}

}  // namespace
}  // namespace fairlead::slurm
