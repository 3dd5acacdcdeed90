// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_cluster.h"

#include <gmock/gmock.h>

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json cluster(std::string_view spec) {
  auto parsed = kube::parse_yaml(spec);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return Json::object({{"apiVersion", "slurm.nebius.ai/v1"}, {"kind", "SlurmCluster"},
                       {"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}, {"uid", "u1"}})}, {"spec", parsed ? parsed->at(0) : Json()}});
}

constexpr std::string_view kSmall = R"(
k8sNodeFilters: [{name: all}]
volumeSources: [{name: jail, persistentVolumeClaim: {claimName: jail-pvc}}]
slurmNodes:
  controller: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
  worker: {size: 2, k8sNodeFilterName: all, slurmd: {resources: {cpu: "2", memory: 1Gi, nvidia.com/gpu: 1}}, volumes: {jail: {volumeSourceName: jail}}}
  login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"], volumes: {jail: {volumeSourceName: jail}}}
)";

TEST(SlurmClusterView, ReadsAWholeSpecWithDefaults) {
  const SlurmCluster read = read_slurm_cluster(cluster(kSmall), "slurm:22.05");
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_THAT(read.ignored, IsEmpty());
  EXPECT_EQ(read.worker.size, 2);
  EXPECT_EQ(read.worker.main.port, 6818);
  EXPECT_EQ(read.worker.main.image, "slurm:22.05");
  EXPECT_EQ(read.worker.main.resources.at("nvidia.com/gpu"), "1");
  EXPECT_EQ(read.cgroup_version, "v2");
  EXPECT_THAT(read.root_keys, ElementsAre("ssh-ed25519 AAAA me"));
}

TEST(SlurmClusterView, NamesWhatHasNoEffect) {
  Json object = cluster(kSmall);
  object.find("spec")->set("clusterType", "gpu").set("ncclSettings", Json::object({{"topologyType", "H100 GPU cluster"}})).set("periodicChecks", Json::object({{"ncclBenchmark", Json::object({{"enabled", false}, {"schedule", "x"}})}}));
  object.find("spec")->find("slurmNodes")->find("login")->set("sssdDebugLevel", 3);
  object.find("spec")->set("madeUp", 3).set("pauze", true);
  object.find("spec")->find("slurmNodes")->find("worker")->find("volumes")->set("spol", Json::object({{"volumeSourceName", "jail"}}));
  object.find("spec")->find("k8sNodeFilters")->items()[0].set("nodeselector", Json::object({{"a", "b"}}));
  EXPECT_THAT(read_slurm_cluster(object, "i").ignored,
              ElementsAre("spec.k8sNodeFilters[].nodeselector (no such field; did you mean nodeSelector?)", "spec.madeUp (no such field)",
                          "spec.ncclSettings.topologyType: \"H100 GPU cluster\" (give the topology as topologyType: custom with topologyData)", "spec.pauze (no such field; did you mean pause?)",
                          "spec.slurmNodes.login.sssdDebugLevel", "spec.slurmNodes.worker.volumes.spol (no such field; did you mean spool?)"));
}

TEST(SlurmNotifications, ANameThatNoTopicCanHaveIsToldAndLeftOut) {
  Json object = cluster(kSmall);
  Json topics = Json::array();
  for (const std::string& name : {std::string("operators"), std::string("Ops Team"), std::string(), std::string("a/../b"), std::string(201, 'a'), std::string("night.shift-2"), std::string("operators")}) topics.push(Json::object({{"topic", name}}));
  object.child("spec").child("extensions").set("notifications", std::move(topics));
  const SlurmCluster read = read_slurm_cluster(object, "i");
  EXPECT_THAT(read.notification_topics, ElementsAre("operators", "night.shift-2"));
  EXPECT_THAT(read.problems, IsEmpty()) << "what is wrong with a notification does not hold up a cluster";
  EXPECT_THAT(read.ignored, ElementsAre(HasSubstr("spec.extensions.notifications[1].topic: \"Ops Team\""), HasSubstr("notifications[2].topic: the name of a NotificationTopic is expected"), HasSubstr("notifications[3].topic: \"a/../b\""),
                                        HasSubstr("notifications[4].topic: 201 characters")));
}

TEST(SlurmScaleDown, IsReadWithItsDefaults) {
  const auto read = [](Json scale) {
    Json object = cluster(kSmall);
    if (!scale.is_null()) object.child("spec").child("extensions").set("scaleDown", std::move(scale));
    return read_slurm_cluster(object, "i");
  };
  const auto none = read({});
  EXPECT_TRUE(none.scale_down.strict_ordinals);
  EXPECT_EQ(none.scale_down.policy, SlurmScaleDown::Policy::Wait);
  const auto all = read(Json::object({{"strictOrdinals", false}, {"policy", "requeue"}, {"after", "1h30m5s"}}));
  EXPECT_FALSE(all.scale_down.strict_ordinals);
  EXPECT_EQ(all.scale_down.policy, SlurmScaleDown::Policy::Requeue);
  EXPECT_EQ(all.scale_down.after, std::chrono::seconds(5405));
  EXPECT_EQ(all.ignored, none.ignored);
  EXPECT_EQ(all.problems, none.problems);
  EXPECT_EQ(read(Json::object({{"policy", "kill"}})).scale_down.policy, SlurmScaleDown::Policy::Kill);
  EXPECT_THAT(read(Json::object({{"policy", "later"}})).problems, ElementsAre(HasSubstr("\"later\" is none of wait, requeue, kill")));
  for (const char* bad : {"", "5", "m", "5m1h", "1h1h", "-5m", "1.5h", "99999999999h", "9000h", "5 m"})
    EXPECT_THAT(read(Json::object({{"after", bad}})).problems, ElementsAre(HasSubstr("is not a duration"))) << bad;
  EXPECT_THAT(read(Json::object({{"victims", "none"}})).ignored, testing::Contains("spec.extensions.scaleDown.victims (no such field)"));
}

TEST(SlurmAutoscale, IsReadWithItsDefaults) {
  const auto read = [](const std::string& sets) {
    Json object = cluster(kSmall);
    object.child("spec").child("extensions").set("autoscale", kube::parse_yaml("sets: " + sets)->at(0));
    return read_slurm_cluster(object, "i");
  };
  const auto good = read("[{name: worker, max: 4}, {name: gpu, min: 1, max: 2, idleAfter: 30s, placeWithin: 1h}]");
  EXPECT_THAT(good.problems, IsEmpty());
  EXPECT_THAT(good.ignored, testing::Not(testing::Contains(HasSubstr("autoscale"))));
  ASSERT_EQ(good.autoscale.size(), 2u);
  EXPECT_EQ(good.autoscale[0].min, 0);
  EXPECT_EQ(good.autoscale[0].max, 4);
  EXPECT_EQ(good.autoscale[0].idle, std::chrono::minutes(10));
  EXPECT_EQ(good.autoscale[1].set, "gpu");
  EXPECT_EQ(good.autoscale[1].idle, std::chrono::seconds(30));
  EXPECT_EQ(good.autoscale[1].place_within, std::chrono::hours(1));
  for (const auto& [sets, words] : {std::pair("[{name: worker}]", "max: null is not"), std::pair("[{max: 3}]", "the name of a NodeSet"), std::pair("[{name: a, max: 3, min: 4}]", "from 0 to max (3)"), std::pair("[{name: a, max: 20000}]", "from 1 to 10000"),
                                    std::pair("[{name: a, max: 1, idle: 3s}]", "idle: there is no such field"), std::pair("[{name: a, max: 1, idleAfter: 3}]", "not a duration"), std::pair("[{name: a, max: 1}, {name: a, max: 2}]", "there twice"),
                                    std::pair("[{name: a, max: 9000}, {name: b, max: 9000}]", "18000 workers in all"), std::pair("3", "a list is expected")})
    EXPECT_THAT(read(sets).problems, testing::Contains(HasSubstr(words))) << sets;
}

struct Bad {
  const char* name;
  const char* path;  // below spec.slurmNodes
  Json value;
  const char* want;
};
class SlurmClusterProblems : public testing::TestWithParam<Bad> {};
TEST_P(SlurmClusterProblems, AreSentencesWithTheValue) {
  Json object = cluster(kSmall);
  Json* at = object.find("spec")->find("slurmNodes");
  std::string_view path = GetParam().path;
  for (auto dot = path.find('.'); dot != path.npos; dot = path.find('.')) {
    at = &at->child(path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  at->set(path, GetParam().value);
  EXPECT_THAT(read_slurm_cluster(object, "i").problems, ElementsAre(HasSubstr(GetParam().want)));
}
INSTANTIATE_TEST_SUITE_P(Rows, SlurmClusterProblems,
                         testing::Values(Bad{"four_heads", "controller.size", 4, "1 to 3 are possible"}, Bad{"two_heads_over_no_volume", "controller.size", 2, "name a volume of spec.volumeSources that is ReadWriteMany"},
                                         Bad{"no_head", "controller.size", 0, "needs one"}, Bad{"negative", "worker.size", -1, "worker.size: -1 is not a whole number from 0 to 10000"},
                                         Bad{"too_many", "worker.size", 10001, "not a whole number from 0"}, Bad{"no_zero_when_narrowed", "worker.size", std::int64_t{4294967296}, "worker.size: 4294967296 is not"},
                                         Bad{"no_number", "worker.size", "3", "not a whole number"},
                                         Bad{"filter", "worker.k8sNodeFilterName", "nope", "\"nope\" is not among spec.k8sNodeFilters"},
                                         Bad{"quantity", "worker.slurmd.resources", Json::object({{"cpu", "two"}}), "resources.cpu"},
                                         Bad{"key", "login.sshRootPublicKeys", Json::array({Json("a\nb")}), "line break"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::api
