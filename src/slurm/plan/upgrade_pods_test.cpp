// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/upgrade_pods.h"

#include <gtest/gtest.h>

#include "slurm/plan/inputs.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

Json cluster_with(const char* image) {
  return *kube::parse_json(std::string(R"({"apiVersion":"slurm.nebius.ai/v1","kind":"SlurmCluster","metadata":{"name":"demo","namespace":"d","uid":"u-1","generation":1},"spec":{"slurmNodes":{
    "controller":{"size":1,"slurmctld":{"image":")") + image + R"("}},"worker":{"size":1,"slurmd":{"image":")" + image + R"("}},"login":{"size":1,"sshd":{"image":")" + image + R"("}}}}})");
}
Json pod(const char* name, const char* role, const char* container, const std::string& image, const char* message = nullptr, const char* finished = nullptr) {
  Json status = *kube::parse_json(R"({"phase":"Running","conditions":[{"type":"Ready","status":"True"}]})");
  if (message) {
    status.set("phase", "Succeeded").set("containerStatuses", Json::array({Json::object({{"name", container}, {"state", Json::object({{"terminated", Json::object({{"message", message}, {"exitCode", 0}, {"finishedAt", finished ? finished : ""}})}})}})}));
  }
  return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "d"}, {"uid", std::string("uid-") + name}, {"labels", Json::object({{kRoleLabel, role}, {kClusterLabel, "demo"}})},
                                                  {"ownerReferences", Json::array({Json::object({{"uid", "u-1"}, {"controller", true}, {"kind", "SlurmCluster"}, {"name", "demo"}})})}})},
                       {"spec", Json::object({{"containers", Json::array({Json::object({{"name", "munged"}, {"image", "munge:1"}}), Json::object({{"name", container}, {"image", image}})})}})},
                       {"status", std::move(status)}});
}

struct Site {
  Snapshot snapshot;
  explicit Site(const char* image) {
    snapshot.cluster = cluster_with(image);
    snapshot.pods = {{"controller-0", pod("controller-0", "controller", "slurmctld", "slurm:22.05")}, {"worker-0", pod("worker-0", "worker", "slurmd", "slurm:22.05")}, {"login-0", pod("login-0", "login", "sshd", "slurm:22.05")}};
  }
  void answers(const std::string& image, const char* words, const char* finished = "2026-01-01T00:00:00Z") {
    const std::string name = version_pod_name(read_as_written(snapshot, "x"), image);
    snapshot.pods[name] = pod(name.c_str(), kVersionRole, kVersionRole, image, words, finished);
  }
  UpgradePlan plan() { return upgrade_of(snapshot, read_as_written(snapshot, "x"), Instant{}); }
};

TEST(UpgradePods, TheDaemonsContainerCountsAndEveryKindIsThere) {
  Site site("slurm:22.05");
  const UpgradePlan plan = site.plan();
  EXPECT_TRUE(plan.ask.empty());
  EXPECT_EQ(plan.images, (std::map<std::string, std::string>{{"slurmctld", "slurm:22.05"}, {"workers of worker", "slurm:22.05"}, {"login", "slurm:22.05"}}));
}

TEST(UpgradePods, UntilAnswersAreThereTheClusterHasItsImages) {
  Site site("slurm:23.02");
  EXPECT_EQ(site.plan().ask, (std::vector<std::string>{"slurm:22.05", "slurm:23.02"}));
  EXPECT_EQ(read_cluster(site.snapshot, "x").controller.main.image, "slurm:22.05");
  EXPECT_EQ(read_cluster(site.snapshot, "x").worker.main.image, "slurm:22.05");
  EXPECT_EQ(read_cluster(site.snapshot, "x").worker.munge.image, "slurm:22.05") << "it is the daemon's where none is given";
  EXPECT_EQ(read_cluster(site.snapshot, "x").controller.munge.image, "slurm:22.05");
  site.answers("slurm:22.05", "slurm-wlm 22.05.8\n");
  site.answers("slurm:23.02", "slurm 23.02.1\n");
  EXPECT_TRUE(site.plan().ask.empty());
  EXPECT_EQ(read_cluster(site.snapshot, "x").controller.main.image, "slurm:23.02") << "heads first: nothing is before them";
  EXPECT_EQ(read_cluster(site.snapshot, "x").worker.main.image, "slurm:22.05");
  site.snapshot.cluster.child("status").set("upgrade", site.plan().memory);
  site.snapshot.pods["controller-0"] = pod("controller-0", "controller", "slurmctld", "slurm:23.02");
  EXPECT_EQ(read_cluster(site.snapshot, "x").worker.main.image, "slurm:23.02");
  EXPECT_EQ(read_cluster(site.snapshot, "x").login.main.image, "slurm:23.02");
}

TEST(UpgradePods, SlurmrestdComesBehindTheHeadsThatItAsks) {
  Site site("slurm:23.02");
  site.snapshot.cluster.child("spec").child("slurmNodes").set("rest", *kube::parse_json(R"({"enabled":true,"rest":{"image":"slurm:23.02"}})"));
  site.snapshot.pods["rest-0"] = pod("rest-0", "rest", "rest", "slurm:22.05");
  site.answers("slurm:22.05", "slurm-wlm 22.05.8");
  site.answers("slurm:23.02", "slurm 23.02.1");
  EXPECT_EQ(read_cluster(site.snapshot, "x").rest.main.image, "slurm:22.05");
  site.snapshot.cluster.child("status").set("upgrade", site.plan().memory);
  site.snapshot.pods["controller-0"] = pod("controller-0", "controller", "slurmctld", "slurm:23.02");
  EXPECT_EQ(read_cluster(site.snapshot, "x").rest.main.image, "slurm:23.02");
}

TEST(UpgradePods, SetsOfTheClusterAreABackupToWaitFor) {
  Site site("slurm:23.02");
  site.answers("slurm:22.05", "slurm-wlm 22.05.8\n");
  site.answers("slurm:23.02", "slurm 23.02.1\n");
  site.snapshot.cluster.child("spec").child("extensions").set("backup", *kube::parse_json(R"({"interval":"1h"})"));
  ASSERT_TRUE(read_as_written(site.snapshot, "x").backup.enabled);
  EXPECT_EQ(read_cluster(site.snapshot, "x").controller.main.image, "slurm:22.05") << "no set has been made yet";
  kube::set_condition(site.snapshot.cluster, {"BackupFresh", "True", "Fresh", ""}, Instant{});
  EXPECT_EQ(read_cluster(site.snapshot, "x").controller.main.image, "slurm:23.02");
}

TEST(UpgradePods, AnImageThatCannotBePulledIsTold) {
  Site site("nowhere:1");
  site.answers("slurm:22.05", "slurm-wlm 22.05.8");
  site.answers("nowhere:1", "");
  Json& asked = site.snapshot.pods[version_pod_name(read_as_written(site.snapshot, "x"), "nowhere:1")];
  asked.set("status", *kube::parse_json(R"({"phase":"Pending","containerStatuses":[{"name":"version","state":{"waiting":{"reason":"ErrImagePull","message":"no such image"}}}]})"));
  const UpgradePlan plan = site.plan();
  ASSERT_TRUE(plan.condition);
  EXPECT_EQ(plan.condition->reason, "VersionUnknown");
  EXPECT_NE(plan.condition->message.find("no such image"), std::string::npos) << plan.condition->message;
}

TEST(UpgradePods, AForeignPodOfTheNameIsTold) {
  Site site("slurm:23.02");
  site.answers("slurm:23.02", "slurm 23.02.1");
  const std::string name = version_pod_name(read_as_written(site.snapshot, "x"), "slurm:22.05");
  site.snapshot.pods[name] = *kube::parse_json(R"({"metadata":{"name":")" + name + R"(","namespace":"d","uid":"u-9"},"spec":{"containers":[{"name":"x","image":"y"}]}})");
  const auto condition = site.plan().condition;
  ASSERT_TRUE(condition);
  EXPECT_EQ(condition->reason, "VersionUnknown");
  EXPECT_NE(condition->message.find(name + " is to ask it, and a pod of that name is not of this cluster: remove that one"), std::string::npos) << condition->message;
}

TEST(UpgradePods, PodsThatHaveToldGoAndThoseThatFailedAreAskedAgainLater) {
  Site site("slurm:23.02");
  site.answers("slurm:23.02", "sh: not found", "2026-01-01T00:00:00Z");
  site.answers("other:1", "slurm 23.02.1");
  const auto cluster = read_as_written(site.snapshot, "x");
  const Instant then = *parse_time("2026-01-01T00:00:10Z");
  auto ends = version_pods_to_end(site.snapshot, cluster, {"slurm:23.02", "slurm:22.05"}, then);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(kube::name_of(*ends[0].pod), version_pod_name(cluster, "other:1"));
  EXPECT_EQ(version_pods_to_end(site.snapshot, cluster, {"slurm:23.02", "slurm:22.05"}, then + std::chrono::seconds(25)).size(), 2u);
}

TEST(UpgradePods, AskIsBoundedAndHasNoRights) {
  Site site("slurm:23.02");
  const Json made = version_pod(read_as_written(site.snapshot, "x"), "slurm:23.02");
  EXPECT_FALSE(made["spec"]["automountServiceAccountToken"].boolean());
  EXPECT_GT(made["spec"]["activeDeadlineSeconds"].integer(), 0);
  EXPECT_LE(kube::name_of(made).size(), 63u);
  EXPECT_NE(kube::name_of(made), version_pod_name(read_as_written(site.snapshot, "x"), "slurm:22.05"));
}

}  // namespace
}  // namespace fairlead::slurm
