// SPDX-License-Identifier: Apache-2.0
// Mistakes, and what goes wrong under a cluster: each gives a condition with a reason and a remedy, and what runs is left as it is.
#include <gmock/gmock.h>

#include <functional>

#include "slurm/plan/munge_word.h"
#include "slurm/plan/reconcile.h"
#include "slurm/plan/surroundings.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::IsEmpty;
namespace resources = kube::resources;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json yaml(std::string_view text) { return kube::parse_yaml(text)->at(0); }

Snapshot fresh() {
  Snapshot out{.cluster = yaml(R"(
metadata: {name: demo, namespace: lab, uid: u1, generation: 3}
spec:
  k8sNodeFilters: [{name: all}]
  volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}, {name: data, persistentVolumeClaim: {claimName: data-pvc}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 2, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}, jailSubMounts: [{name: data, mountPath: /data, volumeSourceName: data}]}}
    login: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}, jailSubMounts: [{name: data, mountPath: /data, volumeSourceName: data}]}}
)")};
  for (const char* name : {"jail-pvc", "data-pvc"}) out.claims[name] = yaml("{metadata: {namespace: lab}, spec: {accessModes: [ReadWriteMany]}}");
  return out;
}

// A cluster of which everything runs.
Snapshot running() {
  Snapshot out = fresh();
  for (int round = 0; round < 6; ++round) {
    const Plan plan = plan_reconcile(out, {}, "slurm:22.05", kNow);
    out.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      if (const auto* create = std::get_if<Create>(&step)) {
        Json made = create->object;
        made.child("metadata").set("uid", "uid-" + kube::name_of(made));
        auto& table = create->resource == resources::pods ? out.pods : create->resource == resources::services ? out.services : create->resource == resources::config_maps ? out.config_maps : create->resource == kNetworkPolicies ? out.policies : out.claims;
        table[kube::name_of(made)] = std::move(made);
      }
      if (const auto* make = std::get_if<MakeKeys>(&step)) out.secrets[make->secret] = yaml("{data: {munge.key: a2V5}}");
      if (const auto* reload = std::get_if<Reconfigure>(&step)) out.cluster.child("status").set("appliedConfigHash", reload->hash);
    }
    for (auto& [name, pod] : out.pods) pod.set("status", yaml("{phase: Running, conditions: [{type: Ready, status: 'True'}]}"));
  }
  EXPECT_EQ(out.cluster["status"]["phase"].string(), "Available");
  return out;
}

struct Row {
  const char* name;
  std::function<void(Snapshot&)> mistake;
  const char *type, *reason, *message, *remedy;
};
class BadInput : public testing::TestWithParam<Row> {};

TEST_P(BadInput, IsToldWithARemedyAndNothingThatRunsIsTouched) {
  Snapshot world = running();
  GetParam().mistake(world);
  const auto pods_before = world.pods;
  for (int round = 0; round < 3; ++round) {
    const Plan plan = plan_reconcile(world, {}, "slurm:22.05", kNow);
    world.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      EXPECT_FALSE(std::holds_alternative<DeletePod>(step)) << describe(step);
      EXPECT_FALSE(std::holds_alternative<NodeStep>(step)) << describe(step);
      EXPECT_FALSE(std::holds_alternative<MakeKeys>(step)) << describe(step);
      if (const auto* create = std::get_if<Create>(&step)) {
        EXPECT_NE(create->resource, resources::pods) << describe(step);
      }
    }
  }
  const Json* condition = kube::find_condition(world.cluster, GetParam().type);
  ASSERT_NE(condition, nullptr);
  EXPECT_EQ((*condition)["reason"].string(), GetParam().reason);
  EXPECT_THAT((*condition)["message"].string(), testing::AllOf(HasSubstr(GetParam().message), HasSubstr(GetParam().remedy)));
}

Json& nodes(Snapshot& of) { return of.cluster.child("spec").child("slurmNodes"); }
void ended(Snapshot& of, const char* pod, const char* container, const char* words) {
  of.pods[pod].set("status", Json::object({{"phase", "Running"},
                                           {"containerStatuses", Json::array({Json::object({{"name", container}, {"ready", false}, {"restartCount", 4},
                                                                                            {"state", Json::object({{"waiting", Json::object({{"reason", "CrashLoopBackOff"}, {"message", "back-off 40s"}})}})},
                                                                                            {"lastState", Json::object({{"terminated", Json::object({{"exitCode", 1}, {"message", words}})}})}})})}}));
}

// worker-1 runs and does not join; its munge was asked.
void running_unready(Snapshot& of, MungeWord word) {
  of.pods["worker-1"].set("status", yaml("{phase: Running, conditions: [{type: Ready, status: 'False'}]}"));
  of.munge_words[kube::uid_of(of.pods["worker-1"])] = std::move(word);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, BadInput,
    testing::Values(
        Row{"typo", [](Snapshot& s) { s.cluster.child("spec").set("pauze", true); }, "FieldsIgnored", "NotInThisVersion", "spec.pauze (no such field", "did you mean pause?"},
        Row{"claim_gone", [](Snapshot& s) { s.claims.erase("data-pvc"); }, "VolumesReady", "ClaimUnfit", "claim data-pvc is not there", "create it"},
        Row{"claim_for_one", [](Snapshot& s) { s.claims["data-pvc"].child("spec").set("accessModes", Json::array({Json("ReadWriteOnce")})); }, "VolumesReady", "ClaimUnfit", "data-pvc is shared by several pods", "ReadWriteMany"},
        Row{"other_paths", [](Snapshot& s) { nodes(s).child("login").child("volumes").child("jailSubMounts").items()[0].set("mountPath", "/elsewhere"); }, "SpecValid", "Invalid", "at /elsewhere on login nodes and at /data on workers",
            "give both the same path"},
        Row{"own_secret_missing", [](Snapshot& s) { s.cluster.child("spec").child("secrets").set("sshdKeysName", "mine"); }, "CommonAvailable", "ObjectMissing", "Secret mine", "make it, or leave the field empty"},
        Row{"no_heads", [](Snapshot& s) { nodes(s).child("controller").set("size", 0); }, "SpecValid", "Invalid", "0 heads asked for", "a cluster needs one"},
        Row{"nine_heads", [](Snapshot& s) { nodes(s).child("controller").set("size", 9); }, "SpecValid", "Invalid", "9 heads asked for", "1 to 3 are possible"},
        Row{"workers_left_out", [](Snapshot& s) { nodes(s).erase("worker"); }, "WorkersAvailable", "Ready", "worker-0, worker-1 run on", "with size 0 if they are to go"},
        Row{"munge_secret_gone", [](Snapshot& s) { s.secrets.erase("demo-munge"); }, "KeysMatch", "SecretMissing", "Secret demo-munge is gone", "put it back"},
        Row{"munge_key_changed", [](Snapshot& s) { s.secrets["demo-munge"] = yaml("{data: {munge.key: b3RoZXI=}}"); }, "KeysMatch", "KeyChanged", "controller-0, login-0, worker-0, worker-1", "Put the old key back"},
        Row{"munge_key_empty", [](Snapshot& s) { s.secrets["demo-munge"] = yaml("{data: {other: b3RoZXI=}}"); }, "KeysMatch", "KeyMissing", "holds no munge.key", "put it back"},
        Row{"clocks_apart", [](Snapshot& s) { s.view = SlurmView{.at = kNow + std::chrono::seconds(400), .nodes = {{"worker-0", {.name = "worker-0", .state = {"IDLE"}}}, {"worker-1", {.name = "worker-1", .state = {"IDLE"}}}}}; }, "ClocksAgree",
            "Apart", "400 s ahead of", "let NTP set both"},
        Row{"state_volume_full", [](Snapshot& s) { s.view = SlurmView{.at = kNow, .nodes = {{"worker-0", {.name = "worker-0", .state = {"IDLE"}}}, {"worker-1", {.name = "worker-1", .state = {"IDLE"}}}}, .state_free = 1 << 20, .state_size = std::uint64_t{1} << 30}; },
            "StateVolumeHasRoom", "NearlyFull", "less than 1 % of 1024 MiB are free", "make room"},
        Row{"image_without_slurm", [](Snapshot& s) { ended(s, "worker-1", "munge", "[error] cannot start error=\"the image has no user munge\"\n"); }, "WorkersAvailable", "ImageWithoutSlurm", "worker-1: munge ended with 1 and was started 4 times",
            "use an image that has Slurm"},
        Row{"image_without_loader", [](Snapshot& s) { ended(s, "worker-1", "slurmd", "exec container process (missing dynamic library?) `/opt/fairlead/bin/fairlead-slurm`: No such file or directory\n"); }, "WorkersAvailable", "ImageWithoutSlurm",
            "worker-1: slurmd ended with 1", "use an image that has Slurm"},
        Row{"key_refused", [](Snapshot& s) { ended(s, "worker-1", "slurmd", "slurmd: error: Munge decode failed: Expired credential\nslurmd: exiting\n"); }, "WorkersAvailable", "ClocksApart", "Expired credential", "let chrony"},
        Row{"state_of_another", [](Snapshot& s) { ended(s, "controller-0", "slurmctld", "fatal: CLUSTER NAME MISMATCH.\nslurmctld has been started with \"ClusterName=demo\"\n"); }, "ControllersAvailable", "StateOfAnotherCluster",
            "CLUSTER NAME MISMATCH", "a volume of its own"},
        Row{"worker_of_another_key", [](Snapshot& s) {
              s.pods["worker-1"].child("metadata").child("annotations").set(kMungeMark, "0123456789abcdef");
              s.pods["worker-1"].set("status", yaml("{phase: Running, conditions: [{type: Ready, status: 'False'}]}"));
            }, "WorkersAvailable", "KeyOrClock", "worker-1: Running, made with another munge key than the head", "see condition KeysMatch, then delete the pod"},
        Row{"worker_clock_ahead", [](Snapshot& s) { running_unready(s, {"Expired credential", std::chrono::seconds(480)}); }, "WorkersAvailable", "ClocksApart",
            "worker-1: Running; munge there says of the head's credential: Expired credential (its clock is about 8 minutes ahead of the head's)", "let chrony"},
        Row{"worker_clock_behind", [](Snapshot& s) { running_unready(s, {"Rewound credential", std::chrono::seconds(-480)}); }, "WorkersAvailable", "ClocksApart", "Rewound credential (its clock is about 8 minutes behind", "let chrony"},
        Row{"worker_key_refused", [](Snapshot& s) { running_unready(s, {"Invalid credential", {}}); }, "WorkersAvailable", "KeyOrClock", "worker-1: Running; munge there says of the head's credential: Invalid credential", "see condition KeysMatch"},
        Row{"worker_waits_otherwise", [](Snapshot& s) { running_unready(s, {"Success", std::chrono::seconds(0)}); }, "WorkersAvailable", "NotReady", "worker-1: Running", ""},
        Row{"state_cut", [](Snapshot& s) { ended(s, "controller-0", "slurmctld", "slurmctld: fatal: Incomplete job state save file, start with '-i' to ignore this. Warning: using -i will lose the data that can't be recovered.\n"); }, "ControllersAvailable",
            "StateUnreadable", "Incomplete job state save file", "Do not start slurmctld with -i"},
        Row{"state_empty", [](Snapshot& s) { ended(s, "controller-0", "slurmctld", "[error] the daemon is not started error=\"slurmctld would begin without what it saved in /var/spool/slurmctld/job_state: it is empty. Put it right\"\n"); }, "ControllersAvailable",
            "StateUnreadable", "job_state: it is empty", "`fairlead slurm restore`"},
        Row{"class_without_many", [](Snapshot& s) {
              s.claims["data-pvc"] = yaml("{metadata: {namespace: lab}, spec: {accessModes: [ReadWriteMany], storageClassName: block}, status: {phase: Pending}}");
              s.pods["worker-1"].set("status", yaml("{phase: Pending}"));
            }, "VolumesReady", "ClaimPending", "claim data-pvc has no volume (storage class block)", "ReadWriteMany, which not every storage class offers"}),
    [](const auto& row) { return row.param.name; });

TEST(Troubles, LastWordsAreOneLineOfBoundedLength) {
  EXPECT_EQ(last_words(""), "");
  EXPECT_EQ(last_words("a\nslurmd: fatal: no\nb\n\n"), "slurmd: fatal: no");
  EXPECT_EQ(last_words("a\nb \n"), "b");
  EXPECT_EQ(last_words("error \x1b[31mred\x07"), "error [31mred");
  EXPECT_EQ(last_words("error " + std::string(400, 'x')).size(), 300U);
  const std::string cut = last_words("error" + std::string(294, 'x') + "\xc3\xa4\xc3\xa4");
  EXPECT_EQ(cut.size(), 299U) << "no half of a character";
}

TEST(Troubles, WhatIsNotKnownIsToldAsItIs) {
  EXPECT_FALSE(known_trouble("Segmentation fault"));
  EXPECT_STREQ(known_trouble("exec: /opt/fairlead/bin/fairlead-slurm: no such file or directory")->reason, "ImageWithoutSlurm");
  EXPECT_STREQ(known_trouble("error: Can't save state, No space left on device")->reason, "VolumeFull");
}

TEST(Troubles, AKeysMarkTellsTwoKeysApartAndNothingElse) {
  const Json one = yaml("{data: {munge.key: a2V5}}"), two = yaml("{data: {munge.key: a2V6}}");
  EXPECT_EQ(munge_mark(one).size(), 16U);
  EXPECT_NE(munge_mark(one), munge_mark(two));
  EXPECT_EQ(munge_mark(yaml("{data: {}}")), "");
}

TEST(MungeWords, AreAskedOfWorkersThatRunAndDoNotJoin) {
  Snapshot world = running();
  EXPECT_FALSE(wants_munge_words(world, "slurm:22.05", kNow)) << "all are ready";
  const auto status = [&](const char* text) { world.pods["worker-1"].set("status", yaml(text)); };
  const char* joins_not = "{phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: [{name: slurmd, ready: false, state: {running: {}}}, {name: munge, ready: true, state: {running: {}}}]}";
  status(joins_not);
  world.pods["worker-1"].child("metadata").set("creationTimestamp", print_time(kNow - std::chrono::seconds(10)));
  const auto newcomer = wants_munge_words(world, "slurm:22.05", kNow);
  ASSERT_TRUE(newcomer);
  EXPECT_TRUE(newcomer->workers.empty()) << "it may come yet";
  EXPECT_LE(plan_reconcile(world, {}, "slurm:22.05", kNow).look_again.value_or(std::chrono::hours(1)), kAskMungeAgain);
  const auto ask = wants_munge_words(world, "slurm:22.05", kNow + std::chrono::seconds(60));
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->head.name, "controller-0");
  ASSERT_EQ(ask->workers.size(), 1U);
  EXPECT_EQ(ask->workers[0].pod.name, "worker-1");
  EXPECT_EQ(ask->workers[0].container, "munge");
  status("{phase: Running, conditions: [{type: Ready, status: 'False'}], containerStatuses: [{name: slurmd, ready: false, state: {running: {}}}, {name: munge, ready: false, state: {running: {}}}]}");
  EXPECT_FALSE(wants_munge_words(world, "slurm:22.05", kNow + std::chrono::seconds(60))) << "its munge does not answer";
  status(joins_not);
  world.pods["worker-1"].child("spec").set("nodeName", "machine-1");
  world.nodes["machine-1"] = yaml("{metadata: {name: machine-1}, status: {conditions: [{type: Ready, status: Unknown}]}}");
  EXPECT_FALSE(wants_munge_words(world, "slurm:22.05", kNow + std::chrono::seconds(60))) << "nobody reaches its machine";
  world.nodes["machine-1"] = yaml("{metadata: {name: machine-1}, status: {conditions: [{type: Ready, status: 'True'}]}}");
  EXPECT_TRUE(wants_munge_words(world, "slurm:22.05", kNow + std::chrono::seconds(60)));
  world.pods.erase("controller-0");
  EXPECT_FALSE(wants_munge_words(world, "slurm:22.05", kNow + std::chrono::seconds(60))) << "no head makes a credential";
}

}  // namespace
}  // namespace fairlead::slurm
