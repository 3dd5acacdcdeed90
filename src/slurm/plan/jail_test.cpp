// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/jail.h"

#include <gmock/gmock.h>

#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json site(const std::string& populate = "{image: \"tools:1\", k8sNodeFilterName: all}") {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 3}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}}]
  volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}, {name: data, persistentVolumeClaim: {claimName: data-pvc}}]
  populateJail: )" + populate + R"(
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 1, k8sNodeFilterName: all, cgroupVersion: v1, volumes: {jail: {volumeSourceName: jail}, jailSubMounts: [{name: data, mountPath: /mnt/data, volumeSourceName: data}]}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"], volumes: {jail: {volumeSourceName: jail}}}
)");
  EXPECT_TRUE(parsed);
  return parsed->at(0);
}
api::SlurmCluster cluster(const std::string& populate = "{image: \"tools:1\", k8sNodeFilterName: all}") { return api::read_slurm_cluster(site(populate), "slurm:22.05"); }

Json pod_in(const char* phase, const std::string& word = "", Instant finished = kNow) {
  Json pod = populate_pod(cluster(), {});
  pod.child("metadata").set("uid", "p1");
  Json state = Json::object({{"terminated", Json::object({{"exitCode", 1}, {"message", word}, {"finishedAt", print_time(finished)}})}});
  pod.set("status", Json::object({{"phase", phase}, {"containerStatuses", Json::array({Json::object({{"name", "populate"}, {"state", std::string_view(phase) == "Running" ? Json::object() : state}})})}}));
  return pod;
}

TEST(SlurmJail, IsNothingWithoutAnImage) {
  const auto plan = plan_jail(cluster("{}"), {}, nullptr, kNow);
  EXPECT_TRUE(plan.ready);
  EXPECT_FALSE(plan.condition);
  EXPECT_FALSE(plan.make_pod);
  const Json worker = desired_pod(cluster("{}"), Role::Worker, 0, {});
  EXPECT_THAT(kube::print_json(worker), HasSubstr(R"("mountPath":"/mnt/jail")"));
  EXPECT_THAT(kube::print_json(worker), Not(HasSubstr("FAIRLEAD_JAIL")));
  EXPECT_THAT(render_config(cluster("{}"), {}).at("slurm.conf"), Not(HasSubstr("PlugStackConfig")));
}

struct Case {
  const char* name;
  const char* phase;  // of the pod; "": none
  const char* word;
  const char* reason;
  bool ready, make, end;
};
class SlurmJailPod : public testing::TestWithParam<Case> {};

TEST_P(SlurmJailPod, Decides) {
  const Case& c = GetParam();
  const Json pod = pod_in(c.phase, c.word, kNow - std::chrono::seconds(30));
  // A failed one was first seen so half a minute ago.
  const Json memory = Json::object({{"clusterUid", "u1"}, {"failedPod", "p1"}, {"failedAt", print_time(kNow - std::chrono::seconds(30))}, {"attempts", 1}});
  const auto plan = plan_jail(cluster(), memory, *c.phase ? &pod : nullptr, kNow);
  EXPECT_EQ(plan.ready, c.ready);
  ASSERT_TRUE(plan.condition);
  EXPECT_EQ(plan.condition->reason, c.reason);
  EXPECT_EQ(plan.make_pod, c.make);
  EXPECT_EQ(!plan.end_pod.empty(), c.end);
  // Asked again with what it remembers it says the same, and counts nothing twice.
  const auto again = plan_jail(cluster(), plan.memory, *c.phase ? &pod : nullptr, kNow);
  EXPECT_EQ(again.memory, plan.memory);
  EXPECT_EQ(again.condition->message, plan.condition->message);
}
INSTANTIATE_TEST_SUITE_P(Pods, SlurmJailPod,
                         testing::Values(Case{"none", "", "", "Populating", false, true, false}, Case{"pending", "Pending", "", "Populating", false, false, false},
                                         Case{"running", "Running", "", "Populating", false, false, false},
                                         Case{"filled", "Succeeded", R"({"layout":"versions","version":"abc"})", "Populated", true, false, false},
                                         Case{"adopted", "Succeeded", R"({"layout":"adopted","version":""})", "Adopted", true, false, false},
                                         Case{"no_word", "Succeeded", "", "PopulateFailed", false, false, true}, Case{"no_version", "Succeeded", R"({"layout":"versions"})", "PopulateFailed", false, false, true},
                                         Case{"failed", "Failed", "no space", "PopulateFailed", false, false, true}),
                         [](const auto& of) { return of.param.name; });

TEST(SlurmJail, FailuresAreTriedAgainMoreAndMoreSlowly) {
  Json memory;
  std::vector<int> waits;
  for (int attempt = 1; attempt <= 7; ++attempt) {
    Json pod = pod_in("Failed", "no space", kNow);
    pod.child("metadata").set("uid", "p" + std::to_string(attempt));
    const auto plan = plan_jail(cluster(), memory, &pod, kNow);
    EXPECT_THAT(plan.condition->message, HasSubstr("attempt " + std::to_string(attempt) + ": no space"));
    EXPECT_TRUE(plan.end_pod.empty());
    ASSERT_TRUE(plan.look_again);
    waits.push_back(static_cast<int>(*plan.look_again / std::chrono::seconds(1)));
    EXPECT_FALSE(plan_jail(cluster(), plan.memory, &pod, kNow + *plan.look_again).end_pod.empty());
    memory = plan.memory;
  }
  EXPECT_THAT(waits, testing::ElementsAre(10, 20, 40, 80, 160, 300, 300));
}

// NodeAffinity, OutOfcpu, UnexpectedAdmissionError, Evicted: the kubelet starts no container and gives no time of an end. Without a pause it would be deleted and made as fast as the API answers.
TEST(SlurmJail, APodThatAKubeletRejectedWaitsAsLong) {
  Json memory;
  Instant now = kNow;
  std::vector<int> waits;
  for (int attempt = 1; attempt <= 7; ++attempt) {
    Json pod = populate_pod(cluster(), {});
    pod.child("metadata").set("uid", "p" + std::to_string(attempt));
    pod.set("status", Json::object({{"phase", "Failed"}, {"reason", "OutOfcpu"}, {"message", "Pod was rejected: not enough cpu"}}));
    const Instant first = now;
    for (auto plan = plan_jail(cluster(), memory, &pod, now); plan.end_pod.empty(); plan = plan_jail(cluster(), memory, &pod, now)) {
      EXPECT_THAT(plan.condition->message, HasSubstr("not enough cpu"));
      ASSERT_TRUE(plan.look_again);
      memory = plan.memory;
      now += std::min<std::chrono::nanoseconds>(*plan.look_again, std::chrono::seconds(7));  // other events bring it sooner
    }
    waits.push_back(static_cast<int>((now - first) / std::chrono::seconds(1)));
  }
  EXPECT_THAT(waits, testing::ElementsAre(10, 20, 40, 80, 160, 300, 300));
}

TEST(SlurmJail, AClockThatWasSetBackHoldsNothingUp) {
  const Json memory = Json::object({{"clusterUid", "u1"}, {"failedPod", "p1"}, {"failedAt", print_time(kNow + std::chrono::hours(48))}, {"attempts", 1}});
  const Json pod = pod_in("Failed", "no space");
  const auto plan = plan_jail(cluster(), memory, &pod, kNow);
  ASSERT_TRUE(plan.look_again);
  EXPECT_EQ(*plan.look_again, std::chrono::seconds(10));
  EXPECT_FALSE(plan_jail(cluster(), plan.memory, &pod, kNow + std::chrono::seconds(10)).end_pod.empty());
}

TEST(SlurmJail, WhatWasFilledForAnotherClusterIsNotBelieved) {
  const Json memory = Json::object({{"clusterUid", "another"}, {"layout", "versions"}, {"version", "abc"}});
  const auto plan = plan_jail(cluster(), memory, nullptr, kNow);
  EXPECT_FALSE(plan.ready);
  EXPECT_TRUE(plan.make_pod);  // which finds the volume filled and says so
}

TEST(SlurmJail, AnotherImageIsNoNewVersion) {
  const Json memory = Json::object({{"clusterUid", "u1"}, {"layout", "versions"}, {"version", "abc"}});
  const auto plan = plan_jail(cluster("{image: \"tools:2\", k8sNodeFilterName: all}"), memory, nullptr, kNow);
  EXPECT_TRUE(plan.ready);
  EXPECT_THAT(plan.condition->message, HasSubstr("abc"));
}

api::SlurmCluster asking(const std::string& version, const std::string& populate = "{image: \"tools:2\", k8sNodeFilterName: all}") {
  Json object = site(populate);
  if (!version.empty()) object.child("metadata").set("annotations", Json::object({{api::kJailVersion, version}}));
  return api::read_slurm_cluster(object, "slurm:22.05");
}
Json filled(const std::string& layout = "versions") { return Json::object({{"clusterUid", "u1"}, {"layout", layout}, {"version", layout == "versions" ? "one" : ""}}); }

// What is done for another version, by the pod that is there. Whatever it is, the root in use stays ready.
struct Asked {
  const char* name;
  const char *version, *of, *phase, *word;  // asked for; of the pod, "": the first filling; "": no pod
  const char *reason, *current;
  bool make, end;
};
class SlurmJailVersion : public testing::TestWithParam<Asked> {};
TEST_P(SlurmJailVersion, Decides) {
  const Asked& c = GetParam();
  Json pod = pod_in(c.phase, c.word);
  if (*c.of) pod.child("metadata").set("annotations", Json::object({{api::kJailVersion, c.of}}));
  Json memory = filled();
  if (std::string_view(c.phase) == "Failed") memory.set("failedPod", "p1").set("failedAt", print_time(kNow - std::chrono::seconds(30))).set("attempts", 1);
  const auto plan = plan_jail(asking(c.version), memory, *c.phase ? &pod : nullptr, kNow);
  EXPECT_TRUE(plan.ready);
  EXPECT_EQ(plan.condition->status, "True");
  EXPECT_EQ(plan.updated ? plan.updated->reason : "", c.reason);
  EXPECT_EQ(plan.memory["version"].string(), c.current);
  EXPECT_EQ(plan.make_pod, c.make);
  EXPECT_EQ(plan.renew, c.make);
  EXPECT_EQ(!plan.end_pod.empty(), c.end);
  const auto again = plan_jail(asking(c.version), plan.memory, *c.phase ? &pod : nullptr, kNow);
  EXPECT_EQ(again.memory, plan.memory);
}
constexpr const char* kDone = R"({"layout":"versions","version":"two","versions":["one","two"],"from":"one","built":true,"files":3,"recordCount":1,"conflictCount":2,"conflicts":["/etc/a: x"]})";
INSTANTIATE_TEST_SUITE_P(Requests, SlurmJailVersion,
                         testing::Values(Asked{"nothing_asked", "", "", "", "", "", "one", false, false}, Asked{"the_one_that_is", "one", "", "Succeeded", "", "Current", "one", false, false},
                                         Asked{"no_pod", "two", "", "", "", "Updating", "one", true, false}, Asked{"the_pod_that_filled_it", "two", "", "Succeeded", "", "Updating", "one", false, true},
                                         Asked{"pending", "two", "two", "Pending", "", "Updating", "one", false, false}, Asked{"running", "two", "two", "Running", "", "Updating", "one", false, false},
                                         Asked{"another_request_meanwhile", "three", "two", "Running", "", "Updating", "one", false, true}, Asked{"done", "two", "two", "Succeeded", kDone, "Current", "two", false, false},
                                         Asked{"done_for_another", "two", "two", "Succeeded", R"({"layout":"versions","version":"one"})", "UpdateFailed", "one", false, false},
                                         Asked{"failed", "two", "two", "Failed", "no space", "UpdateFailed", "one", false, true}, Asked{"no_name", "../x", "", "", "", "InvalidName", "one", false, false}),
                         [](const auto& of) { return of.param.name; });

// Taken back by asking for the version in use, or by no request at all: the pod at work must not flip behind everybody's back, and whether it did is seen on the volume.
TEST(SlurmJailUpdate, ARequestThatIsTakenBackEndsItsPod) {
  for (const char* asked : {"one", ""}) {
    Json pod = pod_in("Running");
    pod.child("metadata").set("annotations", Json::object({{api::kJailVersion, "two"}}));
    auto plan = plan_jail(asking("two"), filled(), nullptr, kNow);
    ASSERT_TRUE(plan.renew);
    for (const Json& memory : {plan.memory, filled()}) {  // that of an older operator knows nothing of it
      plan = plan_jail(asking(asked), memory, &pod, kNow);
      EXPECT_FALSE(plan.end_pod.empty()) << asked;
      EXPECT_TRUE(plan.ready);
      EXPECT_EQ(plan.updated->reason, "Updating");
    }
    plan = plan_jail(asking(asked), plan.memory, nullptr, kNow);
    EXPECT_TRUE(plan.make_pod);
    EXPECT_FALSE(plan.renew) << "it looks, and changes nothing";
    // It had flipped already: that is known then, and the way back is an ordinary request.
    const Json looked = pod_in("Succeeded", R"({"layout":"versions","version":"two","versions":["one","two"]})");
    const auto flipped = plan_jail(asking(asked), plan.memory, &looked, kNow);
    EXPECT_EQ(flipped.memory["version"].string(), "two");
    if (*asked) {
      EXPECT_FALSE(flipped.end_pod.empty());
      EXPECT_TRUE(plan_jail(asking(asked), flipped.memory, nullptr, kNow).renew);
    } else {
      EXPECT_THAT(flipped.updated->message, HasSubstr("two"));
      EXPECT_FALSE(plan_jail(asking(asked), flipped.memory, nullptr, kNow).make_pod);
    }
    // It had not.
    const Json same = pod_in("Succeeded", R"({"layout":"versions","version":"one","versions":["one"]})");
    const auto done = plan_jail(asking(asked), plan.memory, &same, kNow);
    EXPECT_EQ(done.updated->reason, "Current");
    EXPECT_FALSE(plan_jail(asking(asked), done.memory, nullptr, kNow).make_pod);
    // Unreadable: asked again, with pauses.
    const Json lost = pod_in("Failed", "no volume");
    const auto failed = plan_jail(asking(asked), plan.memory, &lost, kNow);
    EXPECT_TRUE(failed.look_again);
    EXPECT_TRUE(failed.memory["unsure"].boolean());
  }
}

TEST(SlurmJailUpdate, TellsWhatWasNotCarriedOver) {
  Json pod = pod_in("Succeeded", kDone);
  pod.child("metadata").set("annotations", Json::object({{api::kJailVersion, "two"}}));
  const auto plan = plan_jail(asking("two"), filled(), &pod, kNow);
  EXPECT_THAT(plan.updated->message, HasSubstr("3 files and folders, 1 records of packages and users"));
  EXPECT_THAT(plan.updated->message, HasSubstr("not carried over: 2, whose old copies are in /var/lib/fairlead/jail-conflicts/one of the shared root (/etc/a: x; ...)"));
  // Said on when the pod is gone.
  EXPECT_EQ(plan_jail(asking("two"), plan.memory, nullptr, kNow).updated->message, plan.updated->message);
}

TEST(SlurmJailUpdate, ThePodKnowsWhichNodesLiveInTheJail) {
  const std::string pod = kube::print_json(populate_pod(asking("two"), {}, std::vector<std::string>{"login-0", "worker-0"}));
  EXPECT_THAT(pod, HasSubstr(R"("--version","two","--renew","--nodes","login-0,worker-0"])"));
  EXPECT_THAT(pod, HasSubstr(R"("annotations":{"fairlead.dev/jail-version":"two"})"));
  EXPECT_THAT(kube::print_json(populate_pod(asking("two"), {})), Not(HasSubstr("--renew")));
}

// Older operators fill the volume again then; here a changed image is a version beside the old one.
TEST(SlurmJailUpdate, OverwriteMakesAChangedImageARequest) {
  const auto changed = asking("", "{image: \"tools:2\", k8sNodeFilterName: all, overwrite: true}");
  EXPECT_TRUE(plan_jail(changed, filled(), nullptr, kNow).make_pod);
  Json same = filled();
  same.set("version", jail_version(changed));
  EXPECT_FALSE(plan_jail(changed, same, nullptr, kNow).make_pod);
  // A version that is named counts more: the way back from it.
  EXPECT_FALSE(plan_jail(asking("one", "{image: \"tools:2\", k8sNodeFilterName: all, overwrite: true}"), filled(), nullptr, kNow).make_pod);
}

TEST(SlurmJailUpdate, AnAdoptedRootHasNoVersions) {
  const auto plan = plan_jail(asking("two"), filled("adopted"), nullptr, kNow);
  EXPECT_EQ(plan.updated->reason, "Adopted");
  EXPECT_FALSE(plan.make_pod);
  EXPECT_EQ(plan.condition->reason, "Adopted");
}

TEST(SlurmJail, ThePodOfSomebodyElseIsLeftAlone) {
  Json pod = pod_in("Failed");
  pod.child("metadata").set("ownerReferences", Json::array());
  const auto plan = plan_jail(cluster(), {}, &pod, kNow);
  EXPECT_EQ(plan.condition->reason, "PodOfSomebodyElse");
  EXPECT_TRUE(plan.end_pod.empty());
}

TEST(SlurmJail, PodsHaveTheVolumeAsideAndLiveInTheRoot) {
  const std::string worker = kube::print_json(desired_pod(cluster(), Role::Worker, 0, {})), login = kube::print_json(desired_pod(cluster(), Role::Login, 0, {})),
                    head = kube::print_json(desired_pod(cluster(), Role::Controller, 0, {}));
  for (const auto& pod : {worker, login, head}) EXPECT_THAT(pod, HasSubstr(R"("mountPath":"/mnt/jail-volume")"));
  EXPECT_THAT(worker, HasSubstr(R"({"name":"FAIRLEAD_JAIL","value":"mount"})"));
  EXPECT_THAT(worker, HasSubstr(R"({"name":"FAIRLEAD_JAIL_MOUNTS","value":"data=/mnt/data\n"})"));
  EXPECT_THAT(worker, HasSubstr(R"("mountPath":"/mnt/jail-mounts/data")"));
  EXPECT_THAT(login, HasSubstr(R"("SYS_ADMIN","SYS_PTRACE")"));  // the latter for sshd's own processes, whose version root is not shown otherwise
  EXPECT_THAT(login, Not(HasSubstr("privileged")));
  EXPECT_THAT(head, HasSubstr(R"({"name":"FAIRLEAD_JAIL","value":"link"})"));
  EXPECT_THAT(head, Not(HasSubstr("SYS_ADMIN")));
  EXPECT_THAT(render_config(cluster(), {}).at("slurm.conf"), HasSubstr("PlugStackConfig=/run/fairlead/plugstack.conf\n"));
  // Not in this file, which a login node from before the jail reads, too: its companion says it to sshd.
  EXPECT_EQ(render_sshd_config(cluster()), render_sshd_config(cluster("{}")));
}

TEST(SlurmJail, NeedsOneVolumeForAll) {
  Json object = site();
  object.child("spec").child("slurmNodes").child("login").child("volumes").set("jail", Json::object());
  const auto read = api::read_slurm_cluster(object, "slurm:22.05");
  EXPECT_THAT(read.problems, Contains(HasSubstr("name the same one")));
  EXPECT_THAT(cluster("{image: \"tools:1\", k8sNodeFilterName: gone}").problems, Contains(HasSubstr("\"gone\" is not among")));
}

// Nothing that lives in the jail is made, ended or renewed before it is whole.
TEST(SlurmJail, EverythingWaitsForTheRoot) {
  Snapshot snapshot{.cluster = site()};
  for (const char* name : {"jail-pvc", "data-pvc"})
    snapshot.claims[name] = Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", Json::object({{"accessModes", Json::array({Json("ReadWriteMany")})}})}});
  const auto look = [&] { return plan_reconcile(snapshot, {}, "slurm:22.05", kNow); };
  const auto carry_out = [&] {
    const Plan plan = look();
    snapshot.cluster.set("status", plan.status);
    std::vector<std::string> pods;
    for (const auto& step : plan.steps) {
      if (const auto* keys = std::get_if<MakeKeys>(&step)) snapshot.secrets[keys->secret] = Json::object();
      const auto* create = std::get_if<Create>(&step);
      if (!create) continue;
      const std::string name = kube::name_of(create->object);
      if (create->resource == kube::resources::pods) pods.push_back(name);
      auto& table = create->resource == kube::resources::pods       ? snapshot.pods
                    : create->resource == kube::resources::services ? snapshot.services
                    : create->resource == kNetworkPolicies          ? snapshot.policies
                                                                    : snapshot.config_maps;
      table[name] = create->object;
    }
    return pods;
  };
  (void)carry_out();
  EXPECT_THAT(carry_out(), testing::ElementsAre("demo-populate-jail"));
  // A login node from before the cluster had a jail: not ready yet is no reason to end it.
  snapshot.pods["login-0"] = desired_pod(cluster("{}"), Role::Login, 0, {});
  snapshot.pods["login-0"].set("status", Json::object({{"phase", "Pending"}}));
  snapshot.pods["demo-populate-jail"].set("status", Json::object({{"phase", "Running"}}));
  EXPECT_TRUE(look().steps.empty());
  EXPECT_EQ(look().status["phase"].string(), "Reconciling");
  snapshot.pods["demo-populate-jail"] = pod_in("Succeeded", R"({"layout":"versions","version":"abc"})");
  EXPECT_THAT(carry_out(), testing::ElementsAre("controller-0", "worker-0"));
  // Remembered: the pod may be removed, and the filling is not done again.
  snapshot.pods.erase("demo-populate-jail");
  EXPECT_THAT(carry_out(), testing::IsEmpty());
}

}  // namespace
}  // namespace fairlead::slurm
