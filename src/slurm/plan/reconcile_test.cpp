// SPDX-License-Identifier: Apache-2.0
#include "base/test_rounds.h"
#include "slurm/plan/reconcile.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "api/node_identity.h"
#include "base/rng.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json demo() {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 3}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}}]
  volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 2, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {cpu: "1"}}, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"], volumes: {jail: {volumeSourceName: jail}}}
)");
  return parsed->at(0);
}

Json claim(std::string name, const char* mode) {
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "lab"}})}, {"spec", Json::object({{"accessModes", Json::array({Json(mode)})}})}});
}

// A namespace that takes whatever the plan says, as an API server would.
struct World {
  Snapshot snapshot{.cluster = demo()};
  World() { snapshot.claims["jail-pvc"] = claim("jail-pvc", "ReadWriteMany"); }

  // The daemon that tries configurations takes them all, unless a test says otherwise.
  Verdict verdict = Verdict::Good;
  std::string words;
  Plan look() {
    snapshot.trial.reset();
    if (const auto wanted = wants_trial(snapshot, {}, "slurm:22.05", now)) snapshot.trial = Trial{wanted->hash, verdict, words};
    return plan_reconcile(snapshot, {}, "slurm:22.05", now);
  }
  Instant now = kNow;
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
      if (const auto* make = std::get_if<MakeKeys>(&step)) snapshot.secrets[make->secret] = Json::object();
      if (const auto* gone = std::get_if<Remove>(&step)) table(gone->resource).erase(gone->key.name);
      if (const auto* remove = std::get_if<DeletePod>(&step)) snapshot.pods.erase(remove->key.name);
      if (const auto* reload = std::get_if<Reconfigure>(&step)) {
        for (const auto& [name, pod] : snapshot.pods) snapshot.seen_configs[kube::uid_of(pod)] = reload->hash;
        snapshot.cluster.child("status").set("appliedConfigHash", reload->hash);
        if (!reload->term.empty()) snapshot.cluster.child("status").set("appliedConfigTerm", reload->term);
      }
    }
  }
  void settle() {
    for (int i = 0; i < 10; ++i) {
      const Plan plan = look();
      apply(plan);
      if (plan.steps.empty()) return;
    }
    ADD_FAILURE() << "the plan never comes to rest";
  }
  void ready(const std::string& pod) {
    snapshot.pods[pod].set("status", Json::object({{"phase", "Running"}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
  }
  std::string phase() { return look().status["phase"].string(); }
  std::string condition(const char* type) {
    Json object = Json::object({{"status", look().status}});
    const Json* found = kube::find_condition(object, type);
    return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "absent";
  }
  std::string reason(const char* type) {
    Json object = Json::object({{"status", look().status}});
    const Json* found = kube::find_condition(object, type);
    return found ? (*found)["reason"].string() : "absent";
  }

 private:
  static Json with_uid(Json object) {
    object.child("metadata").set("uid", "uid-" + kube::name_of(object));
    return object;
  }
  std::map<std::string, Json>& table(const kube::Resource& resource) {
    if (resource == kube::resources::pods) return snapshot.pods;
    if (resource == kube::resources::services) return snapshot.services;
    if (resource == kube::resources::config_maps) return snapshot.config_maps;
    if (resource == kube::resources::claims) return snapshot.claims;
    if (resource == kNetworkPolicies) return snapshot.policies;
    return snapshot.secrets;
  }
};

Json changed_template(const char* value) { return Json::object({{"customEnv", Json::array({Json::object({{"name", "CHANGED"}, {"value", value}})})}}); }

TEST(SlurmReconcile, MakesKeysConfigurationAndServicesBeforePods) {
  World world;
  EXPECT_THAT(world.steps(), ElementsAre("make keys demo-munge", "make keys demo-sshd-keys", "make keys demo-ssh-client-key", "create configmaps demo-slurm-configs", "create configmaps demo-ssh-configs",
                                         "create configmaps demo-ssh-root-keys", "create services demo-controller-svc", "create services demo-worker-svc", "create services demo-login-svc",
                                         "create networkpolicies demo-network-closed", "create networkpolicies demo-network-controller", "create networkpolicies demo-network-worker",
                                         "create networkpolicies demo-network-login"));
  world.apply(world.look());
  EXPECT_THAT(world.steps(), ElementsAre("create pods controller-0", "create pods worker-0", "create pods worker-1", "create pods login-0"));
}

TEST(SlurmReconcile, AClusterThatIsImportedHasNoHeadBeforeItsVolumesAreFilled) {
  World world;
  world.snapshot.cluster.child("metadata").child("annotations").set("fairlead.dev/import", "e1");
  world.settle();
  EXPECT_FALSE(world.snapshot.pods.contains("controller-0"));
  EXPECT_TRUE(world.snapshot.pods.contains("login-0"));
  EXPECT_THAT(world.condition("ControllersAvailable"), HasSubstr("waits until the volumes are filled by import e1"));
  world.snapshot.cluster.child("metadata").child("annotations").erase("fairlead.dev/import");
  world.settle();
  EXPECT_TRUE(world.snapshot.pods.contains("controller-0"));
  // What runs is left alone, whatever somebody writes there.
  world.ready("controller-0");
  world.settle();
  world.snapshot.cluster.child("metadata").child("annotations").set("fairlead.dev/import", "e2");
  EXPECT_THAT(world.steps(), IsEmpty());
}

TEST(SlurmReconcile, IsAvailableWhenEveryPodIsReady) {
  World world;
  world.settle();
  EXPECT_EQ(world.phase(), "Reconciling");
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  EXPECT_EQ(world.phase(), "Available");
  EXPECT_THAT(world.condition("WorkersAvailable"), "True 2 of 2 ready");
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
  EXPECT_THAT(world.condition("StepsConfined"), HasSubstr("True"));
}

TEST(SlurmReconcile, PoliciesAreKeptAsTheTableSaysAndTakenAwayOnRequest) {
  World world;
  world.settle();
  EXPECT_THAT(world.condition("NetworkIsolated"), HasSubstr("True"));
  // Opened by hand: closed again.
  world.snapshot.policies["demo-network-worker"].child("spec").set("ingress", Json::array({Json::object()}));
  world.snapshot.policies.erase("demo-network-login");
  EXPECT_THAT(world.steps(), ElementsAre("update networkpolicies demo-network-worker", "create networkpolicies demo-network-login"));
  world.settle();
  // A policy of somebody's own is none of ours, and one that has our name is not overwritten.
  world.snapshot.policies["own"] = Json::object({{"metadata", Json::object({{"name", "own"}})}});
  EXPECT_THAT(world.steps(), IsEmpty());
  const Json ours = world.snapshot.policies["demo-network-worker"];
  world.snapshot.policies["demo-network-worker"].child("metadata").set("ownerReferences", Json::array());
  world.snapshot.policies["demo-network-worker"].child("spec").set("ingress", Json::array());
  EXPECT_THAT(world.steps(), IsEmpty());
  EXPECT_THAT(world.condition("NetworkIsolated"), HasSubstr("demo-network-worker"));
  world.snapshot.policies["demo-network-worker"] = ours;
  world.snapshot.cluster.child("metadata").set("annotations", Json::object({{"fairlead.dev/network-isolation", "Off"}}));
  EXPECT_THAT(world.steps(), testing::UnorderedElementsAre("delete networkpolicies demo-network-closed: the cluster does without it", "delete networkpolicies demo-network-controller: the cluster does without it",
                                                           "delete networkpolicies demo-network-login: the cluster does without it", "delete networkpolicies demo-network-worker: the cluster does without it"));
  EXPECT_THAT(world.condition("NetworkIsolated"), HasSubstr("False"));
  world.settle();
  EXPECT_TRUE(world.snapshot.policies.contains("own"));
}

TEST(SlurmReconcile, ALostPodComesBackUnderItsName) {
  World world;
  world.settle();
  world.snapshot.pods.erase("worker-1");
  EXPECT_THAT(world.steps(), ElementsAre("create pods worker-1"));
}

// Three heads over one volume.
struct Heads : World {
  Heads() {
    snapshot.claims["spool-pvc"] = claim("spool-pvc", "ReadWriteMany");
    snapshot.cluster.find("spec")->find("volumeSources")->push(Json::object({{"name", "spool"}, {"persistentVolumeClaim", Json::object({{"claimName", "spool-pvc"}})}}));
    snapshot.cluster.find("spec")->find("slurmNodes")->find("controller")->find("volumes")->set("spool", Json::object({{"volumeSourceName", "spool"}}));
    size(3);
  }
  void size(int heads) { snapshot.cluster.find("spec")->find("slurmNodes")->find("controller")->set("size", heads); }
  void all_ready() {
    for (auto& [name, pod] : snapshot.pods) ready(name);
  }
  void serves(int head, std::uint64_t term) {
    const std::string name = "controller-" + std::to_string(head);
    snapshot.pods[name].child("status").set("podIP", "10.0.0.1");
    const Json* have = snapshot.slices.contains("demo-controller-active") ? &snapshot.slices["demo-controller-active"] : nullptr;
    auto slice = desired_slice(api::read_slurm_cluster(snapshot.cluster, "i"), {{name, {"active", term}}}, snapshot.pods, have);
    ASSERT_TRUE(slice);
    snapshot.slices["demo-controller-active"] = *slice;
  }
  void refuses(int head, std::string why) {
    const Json* have = snapshot.slices.contains("demo-controller-active") ? &snapshot.slices["demo-controller-active"] : nullptr;
    auto slice = desired_slice(api::read_slurm_cluster(snapshot.cluster, "i"), {{"controller-" + std::to_string(head), {"standby", 5, std::move(why)}}}, snapshot.pods, have);
    ASSERT_TRUE(slice);
    snapshot.slices["demo-controller-active"] = *slice;
  }
};

TEST(SlurmReconcile, ThreeHeadsShareAStateAndAName) {
  Heads world;
  world.settle();
  for (const char* pod : {"controller-0", "controller-1", "controller-2"}) EXPECT_TRUE(world.snapshot.pods.contains(pod)) << pod;
  EXPECT_TRUE(world.snapshot.secrets.contains("demo-quorum"));
  EXPECT_TRUE(world.snapshot.services["demo-controller-active"]["spec"]["selector"].is_null());
  const std::string& conf = world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string();
  EXPECT_THAT(conf, HasSubstr("SlurmctldHost=controller(demo-controller-active.lab.svc.cluster.local)\n"));
  EXPECT_THAT(conf, HasSubstr("StateSaveLocation=/run/slurm/state\n"));
  world.all_ready();
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False no head has been elected yet"));
  EXPECT_THAT(world.steps(), IsEmpty()) << "nobody to be told of the configuration";
  world.serves(1, 4);
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("True controller-1 serves (term 4), 3 heads are ready"));
  EXPECT_THAT(world.condition("HAReady"), Not(HasSubstr("without that machine")));
  for (const char* pod : {"controller-0", "controller-2"}) world.snapshot.pods[pod].child("spec").set("nodeName", "m-1");
  world.snapshot.pods["controller-1"].child("spec").set("nodeName", "m-2");
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("; controller-0 and controller-2 are on m-1, and without that machine nobody serves"));
  // The daemon that serves is told of its configuration, and so is the next one.
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("reconfigure controller-1 to ")));
  world.settle();
  world.serves(2, 5);
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("reconfigure controller-2 to ")));
  world.settle();
  world.snapshot.pods.erase("controller-0");
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False controller-2 serves (term 5), and 2 of 3 heads are ready"));
  // None of them can read the saved state: which file, and what to do.
  world.refuses(1, "slurmctld would begin without what it saved in /run/slurm/state/job_state: it is empty");
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False no head serves; controller-1: slurmctld would begin without what it saved in /run/slurm/state/job_state: it is empty; nothing is begun without it"));
  EXPECT_EQ(world.reason("HAReady"), "StateUnreadable");
  world.refuses(1, "the volume does not answer");
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False no head serves; controller-1: the volume does not answer"));
  EXPECT_EQ(world.reason("HAReady"), "NobodyServes");
  world.serves(2, 6);
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False controller-2 serves (term 6), and 2 of 3 heads are ready"));
}

TEST(SlurmReconcile, HeadsAreRenewedOneByOneTheServingOneLast) {
  Heads world;
  world.settle();
  world.all_ready();
  world.serves(1, 4);
  world.settle();
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("controller")->set("slurmctld", changed_template("other"));
  for (const char* expected : {"controller-0", "controller-2", "controller-1"}) {
    EXPECT_THAT(world.steps(), ElementsAre(HasSubstr(std::string("delete pod ") + expected)));
    world.apply(world.look());
    EXPECT_THAT(world.steps(), ElementsAre(std::string("create pods ") + expected)) << "the others wait";
    world.apply(world.look());
    EXPECT_THAT(world.steps(), IsEmpty()) << "until it is ready";
    world.ready(expected);
  }
  EXPECT_THAT(world.steps(), IsEmpty());
}

// A template that does not work must not keep the one that does away.
TEST(SlurmReconcile, HeadsThatAreNotReadyAreRenewedFirst) {
  Heads world;
  world.settle();
  world.all_ready();
  world.serves(1, 4);
  world.settle();
  const auto change = [&](const char* value) { world.snapshot.cluster.find("spec")->find("slurmNodes")->find("controller")->set("slurmctld", changed_template(value)); };
  change("bad");
  world.apply(world.look());
  world.apply(world.look());  // controller-0 is there anew, and never becomes ready
  EXPECT_THAT(world.steps(), IsEmpty());
  change("good");
  EXPECT_THAT(world.steps(), ElementsAre("delete pod controller-0: its template has changed"));
  world.apply(world.look());
  world.apply(world.look());
  EXPECT_THAT(world.steps(), IsEmpty());
  world.snapshot.pods["controller-0"].set("status", Json::object({{"phase", "Pending"}}));
  change("better");
  EXPECT_THAT(world.steps(), ElementsAre("delete pod controller-0: its template has changed"));
}

// The others would elect one of themselves while the first, which knows of no election, still serves.
TEST(SlurmReconcile, ALoneHeadGivesUpBeforeOthersBegin) {
  Heads world;
  world.size(1);
  world.settle();
  world.all_ready();
  world.settle();
  EXPECT_THAT(world.steps(), IsEmpty());
  world.size(3);
  world.apply(world.look());  // configuration, service, key
  for (int i = 0; i < 3 && world.snapshot.pods.contains("controller-0"); ++i) {
    EXPECT_FALSE(world.snapshot.pods.contains("controller-1"));
    world.apply(world.look());
  }
  EXPECT_FALSE(world.snapshot.pods.contains("controller-0"));
  world.settle();
  EXPECT_TRUE(world.snapshot.pods.contains("controller-0") && world.snapshot.pods.contains("controller-1") && world.snapshot.pods.contains("controller-2"));
}

std::string setting(const Json& pod, const char* name) {
  for (const Json& container : pod["spec"]["containers"].items())
    for (const Json& one : container["env"].items())
      if (one["name"].string() == name) return one["value"].string();
  return "";
}

TEST(SlurmReconcile, TwoHeadsHaveAWitness) {
  Heads world;
  world.size(2);
  world.settle();
  const Json& witness = world.snapshot.pods["controller-2"];
  EXPECT_TRUE(is_witness(witness));
  EXPECT_FALSE(is_witness(world.snapshot.pods["controller-1"]));
  EXPECT_EQ(setting(witness, "FAIRLEAD_VOTER"), "2");
  for (const char* pod : {"controller-0", "controller-1", "controller-2"}) {
    EXPECT_EQ(setting(world.snapshot.pods[pod], "FAIRLEAD_HEADS"), "controller-0.demo-controller-svc.lab.svc.cluster.local:6821,controller-1.demo-controller-svc.lab.svc.cluster.local:6821");
    EXPECT_EQ(setting(world.snapshot.pods[pod], "FAIRLEAD_WITNESSES"), "controller-2.demo-controller-svc.lab.svc.cluster.local:6821");
    EXPECT_EQ(setting(world.snapshot.pods[pod], "FAIRLEAD_RELAY_PORT"), pod == std::string_view("controller-0") ? "6817" : "") << "the name that a lone head has is passed on from";
  }
  for (const Json& volume : witness["spec"]["volumes"].items()) EXPECT_EQ(volume["persistentVolumeClaim"], Json()) << "it has no state";
  world.all_ready();
  world.serves(1, 4);
  world.settle();
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("True controller-1 serves (term 4), 2 heads and their witness are ready"));
  EXPECT_THAT(world.condition("ControllersAvailable"), HasSubstr("2 of 2 ready"));
  world.snapshot.pods["controller-2"].set("status", Json::object({{"phase", "Pending"}}));
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False controller-1 serves (term 4), and the witness of the two heads is not ready"));
  world.ready("controller-2");
  // A third head in place of the witness, and back: one voter at a time, the one that serves last.
  for (const int size : {3, 2}) {
    world.size(size);
    for (const char* expected : {"controller-0", "controller-2", "controller-1"}) {
      EXPECT_THAT(world.steps(), ElementsAre(HasSubstr(std::string("delete pod ") + expected)));
      world.apply(world.look());
      EXPECT_THAT(world.steps(), ElementsAre(std::string("create pods ") + expected)) << "the others wait";
      world.apply(world.look());
      world.ready(expected);
    }
    EXPECT_THAT(world.steps(), IsEmpty());
    EXPECT_EQ(is_witness(world.snapshot.pods["controller-2"]), size == 2);
  }
}

TEST(SlurmReconcile, ElectedHeadsBecomeOne) {
  Heads world;
  world.settle();
  world.all_ready();
  world.serves(1, 1);
  world.settle();
  const std::string conf = world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string();
  world.size(1);
  world.snapshot.pods["controller-0"].set("status", Json::object({{"phase", "Pending"}}));
  EXPECT_THAT(world.steps(), IsEmpty());
  EXPECT_THAT(world.condition("ControllersAvailable"), HasSubstr("controller-2 stays until controller-0 is ready to serve alone"));
  world.ready("controller-0");
  for (const char* expected : {"delete pod controller-2: one head is asked for", "delete pod controller-1: one head is asked for", "delete pod controller-0: its template has changed", "create pods controller-0"}) {
    EXPECT_THAT(world.steps(), ElementsAre(expected));
    world.apply(world.look());
  }
  world.ready("controller-0");
  EXPECT_EQ(setting(world.snapshot.pods["controller-0"], "FAIRLEAD_HEADS"), "controller-0.demo-controller-svc.lab.svc.cluster.local:6821");
  EXPECT_EQ(setting(world.snapshot.pods["controller-0"], "FAIRLEAD_RELAY_PORT"), "") << "to nobody";
  world.serves(0, 2);
  world.settle();
  EXPECT_THAT(world.condition("HAReady"), HasSubstr("False controller-0 serves (term 2), and there is no other"));
  EXPECT_EQ(world.snapshot.config_maps["demo-slurm-configs"]["data"]["slurm.conf"].string(), conf) << "its name and its address stay";
}

TEST(SlurmReconcile, AHeadThatHasEndedIsMadeAnewBeforeTheOthersGo) {
  Heads world;
  world.settle();
  world.all_ready();
  world.serves(1, 1);
  world.settle();
  world.size(1);
  world.snapshot.pods["controller-0"].set("status", Json::object({{"phase", "Failed"}}));
  EXPECT_THAT(world.steps(), ElementsAre("delete pod controller-0: it has ended"));
  world.apply(world.look());
  EXPECT_THAT(world.steps(), ElementsAre("create pods controller-0"));
  world.apply(world.look());
  EXPECT_THAT(setting(world.snapshot.pods["controller-0"], "FAIRLEAD_HEADS"), HasSubstr("controller-2")) << "as one of three";
  EXPECT_THAT(world.steps(), IsEmpty());
}

// A volume of its own would be empty, or as old as the day on which the others came.
TEST(SlurmReconcile, OneHeadOfSeveralKeepsTheirVolume) {
  Heads world;
  world.settle();
  world.all_ready();
  world.serves(1, 1);
  world.settle();
  world.size(1);
  auto& controller = *world.snapshot.cluster.find("spec")->find("slurmNodes")->find("controller");
  controller.child("volumes").set("spool", *kube::parse_json(R"({"volumeClaimTemplateSpec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}})"));
  EXPECT_THAT(world.steps(), IsEmpty());
  EXPECT_THAT(world.condition("SpecValid"), HasSubstr("name it in volumeSourceName"));
}

// Its state lies in terms: as one that knows of no election it would not start.
TEST(SlurmReconcile, OneHeadStaysElectedWithoutItsService) {
  Heads world;
  world.settle();
  world.size(1);
  world.snapshot.services.erase("demo-controller-active");
  world.snapshot.slices.clear();
  EXPECT_THAT(world.steps(), testing::Contains("create services demo-controller-active"));
  world.snapshot.secrets.clear();
  EXPECT_THAT(world.steps(), testing::Contains("create services demo-controller-active")) << "its pods say so";
}

TEST(SlurmReconcile, ALoneVoterAndOthersAreApart) {
  Heads three, one;
  three.settle();
  one.size(2);
  one.settle();
  for (const char* name : {"controller-0", "controller-1", "controller-2"}) EXPECT_FALSE(votes_apart(three.snapshot.pods["controller-1"], one.snapshot.pods[name])) << "of two or three heads, the voters are the same";
  Json lone = three.snapshot.pods["controller-0"];
  for (Json& container : lone.child("spec").child("containers").items())
    if (container["name"].string() == "slurmctld") container.set("env", Json::array());
  EXPECT_FALSE(votes_apart(lone, three.snapshot.pods["controller-0"])) << "the same name: there is one pod of it";
  EXPECT_THAT(votes_apart(lone, one.snapshot.pods["controller-2"]).value_or(""), HasSubstr("both could have a majority"));
  EXPECT_THAT(votes_apart(three.snapshot.pods["controller-1"], lone).value_or(""), HasSubstr("controller-0 is there"));
}

// Whatever is asked for next, wherever the operator is killed, however long pods take to end: a pod that needs nobody's vote but its own is never there beside another voter, and all others vote among the same three.
TEST(SlurmReconcileProperty, NeverTwoMajorities) {
  for (std::uint64_t seed = 0, seeds = test_rounds<std::uint64_t>(8, 240); seed < seeds; ++seed) {
    Rng chance(seed);
    Heads world;
    world.size(1 + static_cast<int>(chance.below(3)));
    int term = 0;
    for (int step = 0; step < 60; ++step) {
      Plan plan = world.look();
      if (chance.below(3) == 0) plan.steps.resize(std::min<std::size_t>(plan.steps.size(), chance.below(4)));  // killed in between
      std::vector<std::string> ending;
      std::erase_if(plan.steps, [&](const Step& one) {
        const auto* pod = std::get_if<DeletePod>(&one);
        if (pod) ending.push_back(pod->key.name);
        return pod != nullptr;
      });
      world.apply(plan);
      for (const auto& name : ending) world.snapshot.pods[name].child("metadata").set("deletionTimestamp", "2026-11-22T00:00:00Z");
      std::erase_if(world.snapshot.pods, [&](const auto& one) { return (kube::deleting(one.second) && chance.below(2) == 0) || chance.below(40) == 0; });
      for (auto& [name, pod] : world.snapshot.pods)
        if (chance.below(2) == 0) world.ready(name);
        else if (chance.below(20) == 0) pod.set("status", Json::object({{"phase", "Pending"}}));
      if (const int head = static_cast<int>(chance.below(3)); chance.below(4) == 0 && world.snapshot.pods.contains("controller-" + std::to_string(head)) && !is_witness(world.snapshot.pods["controller-" + std::to_string(head)]))
        world.serves(head, static_cast<std::uint64_t>(++term));
      if (chance.below(12) == 0) world.size(1 + static_cast<int>(chance.below(3)));

      bool alone = false;
      int others = 0;
      for (int i = 0; i < 3; ++i) {
        const auto pod = world.snapshot.pods.find("controller-" + std::to_string(i));
        if (pod == world.snapshot.pods.end()) continue;
        const std::string voters = setting(pod->second, "FAIRLEAD_HEADS") + "," + setting(pod->second, "FAIRLEAD_WITNESSES");
        const auto count = std::count(voters.begin(), voters.end(), ':');
        if (count < 2) {
          EXPECT_EQ(i, 0) << "seed " << seed << " step " << step;
          alone = true;
        } else {
          EXPECT_EQ(count, 3) << "seed " << seed << " step " << step;
          ++others;
        }
      }
      ASSERT_FALSE(alone && others > 0) << "seed " << seed << " step " << step;
    }
    // And it comes to rest with what is asked for.
    world.size(1 + static_cast<int>(seed % 3));
    for (int round = 0; round < 16; ++round) {
      std::erase_if(world.snapshot.pods, [](const auto& one) { return kube::deleting(one.second); });
      world.all_ready();
      world.apply(world.look());
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(world.snapshot.pods.contains("controller-" + std::to_string(i)), i < (seed % 3 == 0 ? 1 : 3)) << "seed " << seed;
  }
}

TEST(SlurmReconcile, HeadsOverAVolumeForOneAreRefused) {
  Heads world;
  world.snapshot.claims["spool-pvc"] = claim("spool-pvc", "ReadWriteOnce");
  world.settle();
  EXPECT_FALSE(world.snapshot.pods.contains("controller-0"));
  EXPECT_THAT(world.condition("VolumesReady"), HasSubstr("claim spool-pvc is shared by several pods but is not ReadWriteMany"));
}

TEST(SlurmReconcile, RunningWorkersAreNeverDeleted) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 1);
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("delete pod worker"))));
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("worker-1 is beyond the size and kept: Slurm does not say"));
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 2).set("slurmd", changed_template("next"));
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("delete pod worker"))));
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("older template"));
}

// A cluster that runs, whose workers are asked to have another mount, from this volume.
World with_new_mount(const char* source) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  SlurmView view{.at = kNow};
  for (const char* name : {"worker-0", "worker-1"}) view.nodes[name] = {.name = name, .state = {"IDLE"}, .by = "root", .answers = true};
  world.snapshot.view = view;
  world.snapshot.cluster.child("metadata").set("generation", 4);
  Json& spec = world.snapshot.cluster.child("spec");
  spec.child("volumeSources").push(Json::object({{"name", "lost"}, {"persistentVolumeClaim", Json::object({{"claimName", "nowhere"}})}}));
  spec.child("slurmNodes").child("worker").child("volumes").set("jailSubMounts", Json::array({Json::object({{"name", "data"}, {"mountPath", "/data"}, {"volumeSourceName", source}})}));
  if (std::string(source) == "jail") spec.child("volumeSources").items().pop_back();
  return world;
}

TEST(SlurmReconcile, WorkersWithOtherSubMountsAreMadeAnewOneAfterTheOther) {
  World world = with_new_mount("jail");
  world.apply(world.look());  // it says whether the volumes are there
  EXPECT_TRUE(wants_look(world.snapshot, "slurm:22.05", world.now));
  EXPECT_THAT(world.steps(), Contains("drain worker-0: fairlead: scale-down of u1 generation 4, made anew for other mounts"));
  world.apply(world.look());
  SlurmNode& node = world.snapshot.view->nodes["worker-0"];
  node.state = {"IDLE", "DRAIN"}, node.reason = "fairlead: scale-down of u1 generation 4, made anew for other mounts";
  world.apply(world.look());
  world.snapshot.view->at += std::chrono::seconds(3);
  EXPECT_THAT(world.steps(), Contains("delete pod worker-0: it is to be made anew for other mounts, and Slurm showed it empty twice"));
  world.apply(world.look());
  world.apply(world.look());
  ASSERT_TRUE(world.snapshot.pods.contains("worker-0"));
  EXPECT_THAT(kube::print_json(world.snapshot.pods["worker-0"]["spec"]), HasSubstr("/data"));
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("drain worker-1"))));
  world.ready("worker-0");
  EXPECT_THAT(world.steps(), Contains("undrain worker-0"));
  world.apply(world.look());
  world.snapshot.view->nodes["worker-0"].state = {"IDLE"};
  EXPECT_THAT(world.steps(), Contains(HasSubstr("drain worker-1")));
}

TEST(SlurmReconcile, AMountWhoseVolumeIsNotThereMovesNobody) {
  World world = with_new_mount("lost");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("delete pod"))));
    world.apply(world.look());
  }
  EXPECT_THAT(world.condition("VolumesReady"), HasSubstr("claim nowhere is not there"));
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("drain worker"))));
}

TEST(SlurmReconcile, ALoginNodeGetsOtherSubMountsWhenNobodyIsInIt) {
  World world = with_new_mount("jail");
  Json& nodes = world.snapshot.cluster.child("spec").child("slurmNodes");
  nodes.child("login").child("volumes").set("jailSubMounts", nodes.child("worker").child("volumes")["jailSubMounts"]);
  nodes.child("worker").child("volumes").erase("jailSubMounts");
  EXPECT_THAT(wants_sessions(world.snapshot, "slurm:22.05"), IsEmpty()) << "nobody has looked yet whether the volumes are there";
  world.apply(world.look());
  ASSERT_EQ(wants_sessions(world.snapshot, "slurm:22.05").size(), 1U);
  const std::string uid = kube::uid_of(world.snapshot.pods["login-0"]);
  const auto look = [&](std::optional<Sessions> sessions) {
    world.snapshot.sessions.clear();
    if (sessions) world.snapshot.sessions[uid] = *sessions;
    world.now += std::chrono::seconds(6);
    const auto steps = world.steps();
    world.apply(world.look());
    return steps;
  };
  const std::string end = "delete pod login-0: it is to have other sub-mounts, and nobody is logged in";
  for (int i = 0; i < 3; ++i) EXPECT_THAT(look(std::nullopt), Not(Contains(end)));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(look(Sessions{1, {"ada"}}), Not(Contains(end)));
  EXPECT_THAT(world.condition("LoginAvailable"), HasSubstr("True 1 of 1 ready; login-0 is made anew for other mounts when nobody is logged in; there are ada"));
  EXPECT_THAT(look(Sessions{}), Not(Contains(end)));
  EXPECT_THAT(look(Sessions{}), Contains(end));
  world.apply(world.look());
  EXPECT_THAT(kube::print_json(world.snapshot.pods["login-0"]["spec"]), HasSubstr("/data"));
  world.ready("login-0");
  world.apply(world.look());
  EXPECT_FALSE(world.snapshot.cluster["status"].has("loginRenewal"));
  EXPECT_THAT(world.condition("LoginAvailable"), Not(HasSubstr("made anew")));
}

// slurmd reads gres.conf at each reload, and ends with its jobs where a device of it is not in its container.
TEST(SlurmReconcile, OtherGpusReachNoWorkerThatRuns) {
  World world;
  const auto gpus = [&](const char* count) { world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->child("slurmd").child("resources").set("nvidia.com/gpu", count); };
  const auto gres = [&] { return world.snapshot.config_maps["demo-slurm-configs"]["data"]["gres.conf"].string(); };
  gpus("4");
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  EXPECT_EQ(gres(), "Name=gpu File=/dev/nvidia[0-3]\n");
  gpus("8");
  world.settle();
  EXPECT_EQ(gres(), "NodeName=worker-[0-1] Name=gpu File=/dev/nvidia[0-3]\nNodeName=worker-[2-9999] Name=gpu File=/dev/nvidia[0-7]\n");
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("changed GPUs or gresConfig count on 2 workers once their pods are made anew"));
  world.snapshot.pods.erase("worker-0");
  world.settle();
  EXPECT_EQ(gres(), "NodeName=worker-[1] Name=gpu File=/dev/nvidia[0-3]\nNodeName=worker-[0,2-9999] Name=gpu File=/dev/nvidia[0-7]\n");
  world.snapshot.pods.erase("worker-1");
  world.settle();
  EXPECT_EQ(gres(), "Name=gpu File=/dev/nvidia[0-7]\n");
}

TEST(SlurmReconcile, AWorkerBeyondTheSizeLeavesStepByStep) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  EXPECT_TRUE(wants_look(world.snapshot, "slurm:22.05", kNow)) << "once for this generation";
  SlurmView view{.at = kNow};
  for (const char* name : {"worker-0", "worker-1"}) view.nodes[name] = {.name = name, .state = {"IDLE"}};
  world.snapshot.view = view;
  world.settle();
  EXPECT_FALSE(wants_look(world.snapshot, "slurm:22.05", kNow));

  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 1);
  const auto look = wants_look(world.snapshot, "slurm:22.05", kNow);
  ASSERT_TRUE(look);
  EXPECT_EQ(look->head.name, "controller-0");
  EXPECT_EQ(look->slurmd_port, 6818);
  EXPECT_EQ(look->nodes, "worker-[1-10000]") << "the jobs of workers that stay are not asked for";
  EXPECT_THAT(world.steps(), ElementsAre("drain worker-1: fairlead: scale-down of u1 generation 3"));
  EXPECT_TRUE(world.look().look_again);
  world.apply(world.look());
  world.snapshot.view->nodes["worker-1"].state = {"IDLE", "DRAIN"};
  world.snapshot.view->nodes["worker-1"].reason = "fairlead: scale-down of u1 generation 3";
  EXPECT_THAT(world.steps(), IsEmpty()) << "seen once";
  world.apply(world.look());
  EXPECT_THAT(world.condition("WorkersAvailable"), "True 1 of 1 ready; worker-1 is drained and empty");
  world.snapshot.view->at += std::chrono::seconds(3);
  EXPECT_THAT(world.steps(), ElementsAre("delete pod worker-1: it is beyond the size, and Slurm showed it empty twice"));
  world.apply(world.look());
  EXPECT_THAT(world.steps(), ElementsAre("forget worker-1"));
  world.snapshot.view->nodes.erase("worker-1");
  world.settle();
  EXPECT_FALSE(wants_look(world.snapshot, "slurm:22.05", kNow));
  EXPECT_FALSE(world.look().look_again);
  EXPECT_THAT(world.condition("WorkersAvailable"), "True 1 of 1 ready");
  EXPECT_THAT(world.condition("JobsCanStart"), HasSubstr("True"));

  world.snapshot.view->jobs.push_back({.id = "7", .user = "ada", .state = "PENDING", .requested = {"worker-1"}});
  EXPECT_THAT(world.condition("JobsCanStart"), testing::AllOf(testing::StartsWith("False"), HasSubstr("job 7 of ada asks for worker-1")));
}

// Pending for the sake of another container, while slurmd (or sshd) runs.
TEST(SlurmReconcile, APendingPodWhoseContainersRunIsNotDeletedForItsTemplate) {
  World world;
  world.settle();
  world.ready("controller-0");
  world.settle();
  const auto container = [](const char* name, const char* state) { return Json::object({{"name", name}, {"state", Json::object({{state, Json::object()}})}}); };
  for (const char* pod : {"worker-0", "login-0"})
    world.snapshot.pods[pod].set("status", Json::object({{"phase", "Pending"}, {"containerStatuses", Json::array({container("sidecar", "waiting"), container("main", "running")})}}));
  world.snapshot.pods["worker-1"].set("status", Json::object({{"phase", "Pending"}, {"containerStatuses", Json::array({container("sidecar", "waiting"), container("main", "waiting")})}}));
  for (const char* role : {"worker", "login"}) world.snapshot.cluster.find("spec")->find("slurmNodes")->find(role)->set(*role == 'w' ? "slurmd" : "sshd", changed_template("next"));
  EXPECT_THAT(world.steps(), Contains("delete pod worker-1: its template has changed"));
  EXPECT_THAT(world.steps(), Not(Contains(testing::AnyOf(HasSubstr("delete pod worker-0"), HasSubstr("delete pod login-0")))));
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("login")->set("size", 0);
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("delete pod login-0"))));
}

TEST(SlurmReconcile, AWorkerWhoseLabelWasEditedAwayKeepsItsRecord) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  SlurmView view{.at = kNow};
  view.nodes["worker-0"] = {.name = "worker-0", .state = {"IDLE"}};
  view.nodes["worker-1"] = {.name = "worker-1", .state = {"IDLE", "DRAIN"}, .reason = "fairlead: scale-down of u1 generation 3"};
  world.snapshot.view = view;
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 1);
  world.settle();
  world.snapshot.pods["worker-1"].child("metadata").child("labels").erase(kRoleLabel);
  world.snapshot.view->at += 1000s;
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("worker-1"))));
  world.snapshot.pods.erase("worker-1");
  EXPECT_THAT(world.steps(), Contains("forget worker-1"));
}

TEST(SlurmReconcile, PodsAreEndedBeforeSlurmIsToldAnything) {
  World world;
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 3);
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "worker-2", "login-0"}) world.ready(pod);
  SlurmView view{.at = kNow};
  view.nodes["worker-0"] = {.name = "worker-0", .state = {"IDLE"}};
  view.nodes["worker-1"] = {.name = "worker-1", .state = {"IDLE"}};
  view.nodes["worker-2"] = {.name = "worker-2", .state = {"IDLE", "DRAIN"}, .reason = "fairlead: scale-down"};
  world.snapshot.view = view;
  world.settle();
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("size", 1);
  world.apply(world.look());
  world.snapshot.view->at += 3s;
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("delete pod worker-2"), HasSubstr("drain worker-1")));
}

TEST(SlurmReconcile, ALookThatIsDueIsTakenAndFindsADrainThatCameBack) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  SlurmView view{.at = kNow};
  view.nodes["worker-0"] = {.name = "worker-0", .state = {"IDLE"}};
  view.nodes["worker-1"] = {.name = "worker-1", .state = {"IDLE"}};
  world.snapshot.view = view;
  world.settle();
  EXPECT_FALSE(wants_look(world.snapshot, "slurm:22.05", kNow));
  world.snapshot.look_due = true;
  EXPECT_TRUE(wants_look(world.snapshot, "slurm:22.05", kNow));
  auto& node = world.snapshot.view->nodes["worker-1"];
  node.state = {"IDLE", "DRAIN"}, node.reason = "fairlead: scale-down of u1 generation 2", node.answers = true;
  EXPECT_THAT(world.steps(), ElementsAre("undrain worker-1"));
  EXPECT_EQ(std::get<NodeStep>(world.look().steps.at(0)).pod_uid, "uid-worker-1");
}

// A slip in the name of an image is mended by naming another: nobody has run it, so nobody is asked what it held.
TEST(SlurmReconcile, AnImageThatNeverRanGivesWayAtOnce) {
  World world;
  for (const char* role : {"controller", "worker", "login"}) world.snapshot.cluster.find("spec")->find("slurmNodes")->find(role)->child(*role == 'c' ? "slurmctld" : *role == 'w' ? "slurmd" : "sshd").set("image", "slurm:22.5");
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.snapshot.pods[pod].set("status", Json::object({{"phase", "Pending"}}));
  for (const char* role : {"controller", "worker", "login"}) world.snapshot.cluster.find("spec")->find("slurmNodes")->find(role)->child(*role == 'c' ? "slurmctld" : *role == 'w' ? "slurmd" : "sshd").set("image", "slurm:22.05");
  EXPECT_THAT(world.steps(), testing::IsSupersetOf({"delete pod controller-0: its template has changed", "delete pod worker-0: its template has changed", "delete pod login-0: its template has changed"}));
  EXPECT_THAT(world.steps(), Not(Contains(HasSubstr("version"))));
}

TEST(SlurmReconcile, AHeadWithANewTemplateIsReplaced) {
  World world;
  world.settle();
  world.ready("controller-0");
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("controller")->set("slurmctld", changed_template("next"));
  EXPECT_THAT(world.steps(), Contains("delete pod controller-0: its template has changed"));
}

TEST(SlurmReconcile, ChangedConfigurationIsReloadedInPlace) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  world.snapshot.cluster.find("spec")->find("slurmNodes")->find("worker")->set("cgroupVersion", "v2");
  EXPECT_THAT(world.steps(), ElementsAre("update configmaps demo-slurm-configs"));
  world.apply(world.look());
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("restart controller-0 to "))) << "ProctrackType counts from the next start";
  world.apply(world.look());
  world.settle();
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "MinJobAge=300");
  EXPECT_THAT(world.steps(), ElementsAre("update configmaps demo-slurm-configs"));
  world.apply(world.look());
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("reconfigure controller-0 to ")));
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("False"));
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
}

TEST(SlurmReconcile, WhatTheDaemonRefusesReachesNoPodAndTheRestGoesOn) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  const Json before = world.snapshot.config_maps.at("demo-slurm-configs");
  for (const auto& [custom, verdict, condition] : {std::tuple{"MinJobAeg=300", Verdict::Good, "False spec.customSlurmConfig, line 1, MinJobAeg"}, {"PreemptMode=SUSPEND", Verdict::Refused, "False spec.customSlurmConfig, line 1, PreemptMode"},
                                                   {"KillWait=7", Verdict::Unknown, "Unknown configuration"}}) {
    world.verdict = verdict;
    world.words = "fatal: PreemptMode";
    world.snapshot.cluster.child("spec").set("customSlurmConfig", custom);
    world.snapshot.cluster.child("spec").child("slurmNodes").child("login").set("size", std::string_view(custom) == "KillWait=7" ? 3 : 2);
    world.settle();
    EXPECT_THAT(world.condition("ConfigValid"), HasSubstr(condition));
    EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("stays in force: see condition ConfigValid"));
    EXPECT_EQ(world.snapshot.config_maps.at("demo-slurm-configs"), before) << custom;
    EXPECT_TRUE(world.snapshot.pods.contains("login-1")) << "other changes go on";
    for (const char* pod : {"login-1", "login-2"})
      if (world.snapshot.pods.contains(pod)) world.ready(pod);
  }
  world.verdict = Verdict::Good;
  world.settle();
  EXPECT_THAT(world.snapshot.config_maps.at("demo-slurm-configs")["data"]["slurm.conf"].string(), HasSubstr("\nKillWait=7\n"));
  EXPECT_THAT(world.condition("ConfigValid"), HasSubstr("True"));
}

TEST(SlurmReconcile, AConfigurationThatTheDaemonDoesNotSurviveIsTakenBack) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  const Json before = world.snapshot.config_maps.at("demo-slurm-configs");
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "MaxNodeCount=7");
  world.apply(world.look());
  ASSERT_NE(world.snapshot.config_maps.at("demo-slurm-configs"), before);
  ASSERT_THAT(world.steps(), ElementsAre(HasSubstr("restart controller-0 to ")));
  // What the controller notes when the daemon is gone.
  const std::string hash = world.snapshot.config_maps.at("demo-slurm-configs")["metadata"]["annotations"][kConfigHash].string();
  world.snapshot.cluster.child("status").set("appliedConfigHash", "none").set("configCheck", gone_down(hash, "slurm:22.05", "fatal: MaxNodeCount too small"));
  EXPECT_THAT(world.steps(), ElementsAre("update configmaps demo-slurm-configs"));
  world.apply(world.look());
  EXPECT_EQ(world.snapshot.config_maps.at("demo-slurm-configs")["data"], before["data"]);
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("False spec.customSlurmConfig, line 1, MaxNodeCount"));
  EXPECT_THAT(world.steps(), ElementsAre(HasSubstr("restart controller-0 to ")));
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("is in force again"));
  EXPECT_THAT(world.condition("ConfigValid"), AllOf(HasSubstr("False"), HasSubstr("stays in force")));
  EXPECT_THAT(world.steps(), IsEmpty()) << "not tried again by itself";
  // Set back and given once more it is tried again.
  world.snapshot.cluster.child("spec").erase("customSlurmConfig");
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "MaxNodeCount=7");
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
}

TEST(SlurmReconcile, HeadsThatDoNotComeBackGetTheEarlierConfiguration) {
  World world;
  world.settle();
  for (const char* pod : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(pod);
  world.settle();
  const Json before = world.snapshot.config_maps.at("demo-slurm-configs");
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "KillWait=7");
  world.apply(world.look());
  world.snapshot.pods["controller-0"].child("status").set("conditions", Json::array());
  world.settle();
  EXPECT_NE(world.snapshot.config_maps.at("demo-slurm-configs"), before);
  EXPECT_EQ(world.look().look_again, std::chrono::seconds(10));
  world.now += std::chrono::minutes(2);
  world.settle();
  EXPECT_EQ(world.snapshot.config_maps.at("demo-slurm-configs")["data"], before["data"]);
  EXPECT_THAT(world.condition("ConfigValid"), AllOf(HasSubstr("False"), HasSubstr("stays in force")));
}

TEST(SlurmReconcile, AForeignPodOfTheNameIsLeftAlone) {
  World world;
  world.snapshot.pods["worker-0"] = Json::object({{"metadata", Json::object({{"name", "worker-0"}, {"uid", "x"}})}});
  world.settle();
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("belong to somebody else: worker-0"));
}

TEST(SlurmReconcile, ASharedClaimMustBeWritableByMany) {
  World world;
  world.snapshot.claims["jail-pvc"] = claim("jail-pvc", "ReadWriteOnce");
  world.settle();
  EXPECT_THAT(world.snapshot.pods, IsEmpty());
  EXPECT_THAT(world.condition("VolumesReady"), HasSubstr("False claim jail-pvc is shared by several pods but is not ReadWriteMany"));
  world.snapshot.claims.clear();
  EXPECT_THAT(world.condition("VolumesReady"), HasSubstr("claim jail-pvc is not there; create it"));
}

TEST(SlurmReconcile, PausedOrDeletedMeansHandsOff) {
  World world;
  world.snapshot.cluster.find("spec")->set("pause", true);
  EXPECT_THAT(world.steps(), IsEmpty());
  world.snapshot.cluster.find("spec")->set("pause", false);
  world.snapshot.cluster.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  EXPECT_THAT(world.steps(), IsEmpty());
  EXPECT_TRUE(world.look().status.is_null());
}

TEST(SlurmReconcile, EqualSnapshotsGiveEqualPlans) {
  World a, b;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(a.steps(), b.steps());
    EXPECT_EQ(kube::print_json(a.look().status), kube::print_json(b.look().status));
    a.apply(a.look());
    b.apply(b.look());
  }
}

TEST(Chart, FitsByMajorAndMinorVersion) {
  const auto said = [](const std::string& chart) {
    Json cluster = demo();
    if (!chart.empty()) cluster.child("metadata").set("annotations", Json::object({{kChart, chart}}));
    const auto condition = chart_condition(cluster, "0.2.3");
    return condition ? condition->status + " " + condition->message : "none";
  };
  EXPECT_EQ(said(""), "none");
  EXPECT_THAT(said("slurm-cluster-0.2.9"), testing::StartsWith("True"));
  EXPECT_THAT(said("slurm-cluster-0.2.0-rc.1"), testing::StartsWith("True"));
  EXPECT_THAT(said("slurm-cluster-0.1.0"), testing::AllOf(testing::StartsWith("False"), HasSubstr("chart 0.1.0, the operator is 0.2.3"), HasSubstr("--version 0.2.3")));
  EXPECT_THAT(said("slurm-cluster-1.2.0"), testing::StartsWith("False"));
  EXPECT_THAT(said("slurm-cluster"), testing::StartsWith("False"));
  EXPECT_THAT(said("slurm-cluster-0.20.3"), testing::StartsWith("False"));
}

// Kubernetes asks every machine's kubelet to confirm the end of a pod; a dead one never does.
TEST(Reconcile, PodsOfADeadMachineAreForgottenWhenSlurmKnows) {
  World world;
  world.settle();
  for (const char* name : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(name);
  world.settle();
  const auto on = [&](const char* name, const char* machine) { world.snapshot.pods[name].child("spec").set("nodeName", machine); };
  on("worker-1", "m1");
  on("login-0", "m1");
  auto machine = kube::parse_json(R"({"metadata":{"name":"m1"},"spec":{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]},"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}})");
  world.snapshot.nodes["m1"] = *machine;
  ASSERT_TRUE(wants_look(world.snapshot, "slurm:22.05", kNow));
  SlurmView view;
  view.nodes["worker-0"] = {.name = "worker-0", .state = {"IDLE"}};
  view.nodes["worker-1"] = {.name = "worker-1", .state = {"ALLOCATED"}};
  world.snapshot.view = view;
  EXPECT_THAT(world.steps(), ElementsAre("died worker-1: - died: machine m1 is out of service"));
  EXPECT_THAT(world.condition("WorkersAvailable"), HasSubstr("worker-1 died (machine m1 is out of service); Slurm is told"));
  for (const char* name : {"worker-1", "login-0"}) world.snapshot.pods[name].child("metadata").set("deletionTimestamp", "2026-11-21T20:10:00Z");
  EXPECT_THAT(world.steps(), ElementsAre("died worker-1: - died: machine m1 is out of service", "delete pod login-0: machine m1 is out of service"));
  world.snapshot.view->nodes["worker-1"].state = {"DOWN"};
  EXPECT_THAT(world.steps(), ElementsAre("delete pod login-0: machine m1 is out of service", "delete pod worker-1: machine m1 is out of service"));
  EXPECT_TRUE(std::get<DeletePod>(world.look().steps.at(1)).forget);
}

// While a thousand workers start, their names would not fit into the address of a request.
TEST(Reconcile, ManyNodesOfInterestAreAllNodes) {
  World world;
  world.settle();
  for (const char* name : {"controller-0", "worker-0", "worker-1", "login-0"}) world.ready(name);
  world.settle();
  const auto waits = [&](const std::string& name) {
    Json pod = world.snapshot.pods["worker-1"];
    pod.child("metadata").set("name", name);
    pod.child("status").set("conditions", Json::array());
    pod.child("status").set("containerStatuses", *kube::parse_json(R"([{"name":"slurmd","state":{"running":{"startedAt":"2020-01-01T00:00:00Z"}}}])"));
    world.snapshot.pods[name] = std::move(pod);
  };
  waits("worker-1");
  const auto few = wants_look(world.snapshot, "slurm:22.05", kNow);
  ASSERT_TRUE(few);
  EXPECT_THAT(few->nodes, HasSubstr("worker-1"));
  for (int i = 2; i < 120; ++i) waits("worker-" + std::to_string(i));
  const auto many = wants_look(world.snapshot, "slurm:22.05", kNow);
  ASSERT_TRUE(many);
  EXPECT_EQ(many->nodes, "");
}

// Kubernetes would delete the pods of a machine that is silent for five minutes, and end them when it is heard again.
// Who is a node of a cluster of instances has its machine's role; what serves them beside has not.
TEST(Objects, NodesOfInstancesHaveTheirRole) {
  Json cluster = demo();
  const auto roles = [&] {
    std::string out;
    const auto read = api::read_slurm_cluster(cluster, "x");
    for (const Role role : {Role::Controller, Role::Worker, Role::Login, Role::Exporter, Role::Rest})
      if (desired_pod(read, role, 0, {})["metadata"]["annotations"][api::node_identity::pods_note].string() == "true") out += std::string(text(role)) + " ";
    return out;
  };
  EXPECT_EQ(roles(), "");
  cluster.child("metadata").set("annotations", Json::object({{api::node_identity::pods_note, "true"}}));
  EXPECT_EQ(roles(), "controller worker login ");
}

TEST(Objects, SilenceDeletesNoWorkersAndNoSessions) {
  Json cluster = demo();
  cluster.child("spec").set("k8sNodeFilters", *kube::parse_json(R"([{"name":"all","tolerations":[{"key":"mine","operator":"Exists"}]}])"));
  const auto read = api::read_slurm_cluster(cluster, "slurm:22.05");
  const auto tolerated = [&](Role role) { return kube::print_json(desired_pod(read, role, 0, {})["spec"]["tolerations"]); };
  const std::string silence = R"({"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute"},{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute"})";
  EXPECT_EQ(tolerated(Role::Worker), R"([{"key":"mine","operator":"Exists"},)" + silence + "]");
  EXPECT_EQ(tolerated(Role::Login), R"([{"key":"mine","operator":"Exists"},)" + silence + "]");
  EXPECT_EQ(tolerated(Role::Controller), R"([{"key":"mine","operator":"Exists"}])");
}

TEST(SlurmReconcile, TheNumberOfWorkersFollowsTheQueueWhereAsked) {
  World world;
  world.snapshot.cluster.child("spec").child("extensions").set("autoscale", kube::parse_yaml("sets: [{name: worker, max: 3}, {name: gpu, max: 2}]")->at(0));
  world.settle();
  EXPECT_FALSE(world.snapshot.pods.contains("worker-0")) << "none to begin with, whatever the size says";
  world.ready("controller-0");
  const auto look = wants_look(world.snapshot, "slurm:22.05", kNow);
  ASSERT_TRUE(look);
  EXPECT_GT(look->queue, 0);
  EXPECT_EQ(look->nodes, "worker-[0-10000]");
  world.snapshot.view = SlurmView{.at = kNow, .has_queue = true};
  for (int i = 0; i < 3; ++i) {
    const std::string name = "worker-" + std::to_string(i);
    world.snapshot.view->nodes[name] = {.name = name, .state = {"DOWN", "NOT_RESPONDING"}, .total = {1, 1024, 0}, .partitions = {"main"}};
  }
  world.snapshot.view->queue.push_back({.id = "7", .user = "ada", .reason = "Resources", .nodes = 2, .room = {2, 0, 0}, .partitions = {"main"}});
  const Plan plan = world.look();
  EXPECT_EQ(plan.status["workers"].integer(), 2);
  EXPECT_TRUE(plan.look_again);
  world.apply(plan);
  EXPECT_TRUE(world.snapshot.pods.contains("worker-1"));
  EXPECT_FALSE(world.snapshot.pods.contains("worker-2"));
  EXPECT_THAT(world.condition("Autoscaling"), AllOf(HasSubstr("worker: 2 workers (0 to 3)"), HasSubstr("no workers of that name that could follow the queue: gpu")));
  world.snapshot.view.reset();  // Slurm is silent: the number stays
  EXPECT_EQ(world.look().status["workers"].integer(), 2);
  world.snapshot.cluster.child("spec").child("extensions").erase("autoscale");
  EXPECT_THAT(world.condition("Autoscaling"), HasSubstr("the number of workers is what the resource says"));
  EXPECT_EQ(world.look().status["workers"].integer(), 2);
  EXPECT_TRUE(world.look().status["autoscale"].is_null());
}

}  // namespace
}  // namespace fairlead::slurm
