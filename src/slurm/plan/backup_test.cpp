// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/backup.h"

#include <gmock/gmock.h>

#include "slurm/plan/accounting.h"
#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

Json cluster_with(const std::string& backup, const std::string& more = "") {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 1}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}}]
  volumeSources:
  - {name: jail, persistentVolumeClaim: {claimName: jail-pvc}}
  - {name: state, persistentVolumeClaim: {claimName: state-pvc}}
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}, spool: {volumeSourceName: state}}}
    worker: {size: 0, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 0, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
)" + more + "  extensions: {backup: " + backup + "}\n");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}
const char* const kDatabase = "    accounting: {enabled: true, k8sNodeFilterName: all, mariadbOperator: {enabled: true}}\n";

Json claim(const std::string& name, const char* mode) {
  return Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", Json::object({{"name", name}, {"namespace", "lab"}})}, {"spec", Json::object({{"accessModes", Json::array({Json(mode)})}})}});
}

struct Look {
  Snapshot snapshot;
  api::SlurmCluster cluster;

  explicit Look(const Json& object) : cluster(api::read_slurm_cluster(object, "slurm:22.05")) {
    snapshot.cluster = object;
    for (const char* name : {"jail-pvc", "state-pvc", "demo-backup"}) snapshot.claims[name] = claim(name, "ReadWriteMany");
  }
  BackupPlan plan() const { return plan_backup(snapshot, cluster, {}, true); }
  void run_pod(bool ready) {
    Json pod = backup_pod(cluster, {});
    pod.child("metadata").set("uid", "p1");
    pod.set("status", Json::object({{"phase", "Running"}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready ? "True" : "False"}})})}}));
    snapshot.pods["demo-backup-0"] = std::move(pod);
  }
  void say(const std::string& text) { snapshot.sets = kube::parse_json(text).value(); }
};

std::string value_of(const Json& container, const std::string& name) {
  for (const Json& one : container["env"].items())
    if (one["name"].string() == name) return one["value"].string();
  return "none";
}
bool mounts(const Json& container, const std::string& path) {
  for (const Json& one : container["volumeMounts"].items())
    if (one["mountPath"].string() == path) return true;
  return false;
}

TEST(Backup, NoneIsMadeUnlessAskedFor) {
  const Look look(cluster_with("null"));
  EXPECT_FALSE(look.cluster.backup.enabled);
  EXPECT_FALSE(look.plan().tells);
  EXPECT_THAT(look.plan().create, IsEmpty());
  EXPECT_THAT(backup_claims(look.cluster), IsEmpty());
  EXPECT_FALSE(Look(cluster_with("{enabled: false}")).cluster.backup.enabled);
}

TEST(Backup, ThePodHasTheVolumesAndNoRightsAndNoKeys) {
  const Look look(cluster_with("{interval: 1h, keep: 3}", kDatabase));
  EXPECT_THAT(look.cluster.backup.problems, IsEmpty());
  EXPECT_THAT(look.cluster.ignored, IsEmpty());
  ASSERT_THAT(look.plan().create, SizeIs(1));
  const Json pod = look.plan().create[0];
  const Json& main = pod["spec"]["containers"].items()[0];
  EXPECT_EQ(kube::name_of(pod), "demo-backup-0");
  EXPECT_FALSE(pod["spec"]["automountServiceAccountToken"].boolean(true));
  EXPECT_EQ(value_of(main, "FAIRLEAD_SET_SECONDS"), "3600");
  EXPECT_EQ(value_of(main, "FAIRLEAD_SET_KEEP"), "3");
  EXPECT_EQ(value_of(main, "FAIRLEAD_SET_PARTS"), "state,database,jail");
  for (const char* path : {"/var/backups/cluster", "/var/spool/slurmctld", "/mnt/jail-volume"}) EXPECT_TRUE(mounts(main, path)) << path;
  EXPECT_THAT(kube::print_json(pod), Not(HasSubstr("munge")));
  EXPECT_THAT(kube::print_json(pod), Not(HasSubstr("\"secret\"")));
  ASSERT_THAT(backup_claims(look.cluster), SizeIs(1));
  EXPECT_FALSE(backup_claims(look.cluster)[0]["metadata"].has("ownerReferences"));
}

TEST(Backup, AScheduleIsTold) {
  const auto environment = [](const char* backup) {
    const Look look(cluster_with(backup));
    EXPECT_THAT(look.cluster.backup.problems, IsEmpty());
    return value_of(look.plan().create.at(0)["spec"]["containers"].items()[0], "FAIRLEAD_SET_SCHEDULE");
  };
  EXPECT_EQ(environment("{schedule: \"30 3 * * 1-5\"}"), "30 3 * * 1-5");
  EXPECT_EQ(environment("{interval: 1h}"), "none");
}

TEST(Backup, TheDatabasesContainerSeesTheSets) {
  const auto sees = [](const Json& object) {
    const Json pod = database_pod(api::read_slurm_cluster(object, "slurm:22.05"), {});
    return std::pair(mounts(pod["spec"]["containers"].items()[0], kSetsFolder), mounts(pod["spec"]["containers"].items()[1], kSetsFolder));
  };
  EXPECT_EQ(sees(cluster_with("{}", kDatabase)), std::pair(false, true));
  EXPECT_EQ(sees(cluster_with("{parts: [state]}", kDatabase)), std::pair(false, false));
  EXPECT_EQ(sees(cluster_with("null", kDatabase)), std::pair(false, false));
}

TEST(Backup, WhatIsWrongIsNamedAndStopsNothingElse) {
  struct Case {
    const char *backup, *want;
  };
  for (const Case& row : {Case{"{interval: often}", "interval"}, Case{"{keep: 0}", "keep"}, Case{"{parts: [database]}", "without the state"}, Case{"{parts: [state, jail, homes]}", "\"homes\""}, Case{"{parts: [state, database]}", "no database of its own"},
                          Case{"{volumeSourceName: nowhere}", "volumeSourceName"}, Case{"{schedule: \"0 25 * * *\"}", "spec.extensions.backup.schedule: hour \"25\""}, Case{"{schedule: \"0 3 30 2 *\"}", "names no day"},
                          Case{"{schedule: \"@daily\", interval: 1h}", "leave one of them out"}}) {
    const Look look(cluster_with(row.backup));
    EXPECT_THAT(look.cluster.problems, IsEmpty());
    const auto plan = look.plan();
    EXPECT_EQ(plan.reason, "Invalid");
    EXPECT_THAT(plan.message, HasSubstr(row.want));
    EXPECT_FALSE(plan.fresh);
    EXPECT_THAT(plan.create, IsEmpty());
  }
  EXPECT_THAT(Look(cluster_with("{}", "    accounting: {enabled: true, k8sNodeFilterName: all, mariadbOperator: {enabled: true}}\n")).cluster.backup.problems, IsEmpty());
}

TEST(Backup, AClaimThatOnePodAloneCanHaveIsNamed) {
  Look look(cluster_with("{}"));
  look.snapshot.claims["state-pvc"] = claim("state-pvc", "ReadWriteOnce");
  const auto plan = look.plan();
  EXPECT_EQ(plan.reason, "ClaimUnfit");
  EXPECT_THAT(plan.message, HasSubstr("state-pvc"));
  EXPECT_THAT(plan.create, IsEmpty());
}

TEST(Backup, TheConditionTellsTheNewestSetAndWhatFails) {
  Look look(cluster_with("{}"));
  look.run_pod(true);
  EXPECT_EQ(look.plan().reason, "Fresh");  // it did not answer, and is ready
  look.say(R"({"fresh":true,"sets":[{"name":"20261122T001500Z","time":"2026-11-22T00:15:00Z","bytes":3145728,"nextJobId":41,"parts":["state","jail"]}]})");
  auto plan = look.plan();
  EXPECT_TRUE(plan.fresh);
  EXPECT_EQ(plan.reason, "Fresh");
  EXPECT_THAT(plan.message, AllOf(HasSubstr("20261122T001500Z"), HasSubstr("3 MiB"), HasSubstr("state, jail")));
  EXPECT_EQ(plan.status["newest"].string(), "20261122T001500Z");
  look.say(R"({"fresh":true,"sets":[{"name":"20261122T001500Z"}],"error":"no room","failingSince":"2026-11-22T01:00:00Z"})");
  plan = look.plan();
  EXPECT_TRUE(plan.fresh);
  EXPECT_EQ(plan.reason, "Failing");
  EXPECT_THAT(plan.message, AllOf(HasSubstr("no room"), HasSubstr("01:00:00")));
  look.say(R"({"fresh":false,"sets":[],"error":"no room","failingSince":"2026-11-22T01:00:00Z"})");
  EXPECT_FALSE(look.plan().fresh);
  look.say(R"({"fresh":true,"sets":[],"restore":{"set":"X","step":"out","began":"B"}})");
  EXPECT_FALSE(look.plan().fresh);
  EXPECT_EQ(look.plan().reason, "Restoring");
  for (const auto& [step, reason] : {std::pair<std::string, std::string>{"hold", "Exporting"}, {"ready", "Exporting"}, {"moving", "Moved"}, {"moved", "Moved"}}) {
    look.say(R"({"fresh":true,"sets":[],"export":{"id":"e1","step":")" + step + R"(","began":"B"}})");
    EXPECT_FALSE(look.plan().fresh);
    EXPECT_EQ(look.plan().reason, reason) << step;
  }
  look.say(R"({"fresh":true,"sets":[],"import":{"id":"e1","step":"filled"}})");
  EXPECT_EQ(look.plan().reason, "Importing");
  EXPECT_THAT(look.plan().message, HasSubstr("waits for its code"));
  look.say(R"({"fresh":true,"sets":[],"import":{"id":"e1","step":"open"}})");
  EXPECT_TRUE(look.plan().fresh);
  look.say(R"({"fresh":true,"sets":[],"restore":{"set":"X","step":"out","began":"B"}})");
  EXPECT_THAT(look.plan().end, IsEmpty());
}

TEST(Backup, ThePodIsAskedWhileItRunsAndGoesWhenItIsNotWanted) {
  Look look(cluster_with("{}"));
  EXPECT_FALSE(wants_sets(look.snapshot, "slurm:22.05"));
  look.run_pod(false);
  ASSERT_TRUE(wants_sets(look.snapshot, "slurm:22.05"));
  EXPECT_EQ(wants_sets(look.snapshot, "slurm:22.05")->name, "demo-backup-0");
  Look off(cluster_with("null"));
  off.snapshot.pods = look.snapshot.pods;
  EXPECT_THAT(off.plan().end, SizeIs(1));
  Look changed(cluster_with("{keep: 9}"));
  changed.snapshot.pods = look.snapshot.pods;
  EXPECT_THAT(changed.plan().end, SizeIs(1));
  // Of somebody else's nothing is touched.
  Look foreign(cluster_with("{}"));
  foreign.snapshot.pods["demo-backup-0"] = Json::object({{"metadata", Json::object({{"name", "demo-backup-0"}, {"uid", "x"}})}});
  EXPECT_EQ(foreign.plan().reason, "PodOfSomebodyElse");
  EXPECT_THAT(foreign.plan().end, IsEmpty());
}

}  // namespace
}  // namespace fairlead::slurm
