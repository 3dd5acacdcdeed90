// SPDX-License-Identifier: Apache-2.0
#include "api/node_set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "api/field_names.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json yaml(std::string_view text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}
Json set(const char* name, std::string_view spec) { return Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "lab"}, {"uid", "s1"}, {"generation", 2}})}, {"spec", yaml(spec)}}); }

SlurmCluster with(const std::vector<Json>& sets, const char* worker = "") {
  SlurmCluster cluster = read_slurm_cluster(Json::object({{"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}})},
                                                          {"spec", yaml(fmt::format("slurmNodes: {{controller: {{}}, login: {{volumes: {{jailSubMounts: [{{name: data, mountPath: /data, volumeSourceName: d}}]}}}}{}}}\nvolumeSources: [{{name: d, emptyDir: {{}}}}]", worker))}}),
                                            "slurm:22.05");
  std::vector<const Json*> all;
  for (const Json& one : sets) all.push_back(&one);
  add_node_sets(cluster, all, "slurm:22.05", true);
  return cluster;
}

constexpr const char* kWhole = R"(
clusterName: demo
replicas: 3
slurmd:
  image: {repository: registry.example/slurmd, tag: "24", pullPolicy: Always}
  resources: {cpu: "4", memory: 8Gi, nvidia.com/gpu: 2}
  security: {limitsConfig: "* - memlock unlimited", appArmorProfile: unconfined}
  customEnv: [{name: TZ, value: UTC}]
  volumes: {jail: {persistentVolumeClaim: {claimName: jail-pvc}}, spool: {emptyDir: {}}, sharedMemorySize: 1Gi, jailSubMounts: [{name: data, mountPath: /data, subPath: a, readOnly: true, hostPath: {path: /srv}}]}
munge: {image: {repository: registry.example/munge}, resources: {cpu: 100m}}
nodeConfig: {features: [big, fast], static: "Weight=10", dynamic: "CoreSpecCount=1", gresConfig: ["Name=gpu File=/dev/nvidia[0-1] Cores=0-3"]}
gpu: {enabled: true, nvidia: {gdrCopyEnabled: true}}
nodeSelector: {pool: big}
tolerations: [{key: gpu, operator: Exists}]
priorityClass: high
imagePullSecrets: [{name: pull}]
workerAnnotations: {a/b: c}
topology: {fabric: root}
updateStrategy: rollingUpdate
)";

TEST(NodeSet, HasRulesOfItsOwnForWorkersThatLeave) {
  using Policy = SlurmScaleDown::Policy;
  const Json mine = set("spot", "extensions: {scaleDown: {policy: kill, after: 5m}}"), bad = set("bad", "extensions: {scaleDown: {policy: soon, after: later, afetr: 1h}}"), plain = set("plain", "{}");
  std::vector<const Json*> all = {&bad, &mine, &plain};
  SlurmCluster cluster = read_slurm_cluster(Json::object({{"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}})}, {"spec", yaml("slurmNodes: {controller: {}, worker: {size: 1}}\nextensions: {scaleDown: {policy: requeue, after: 2h, strictOrdinals: false}}")}}), "slurm:22.05");
  add_node_sets(cluster, all, "slurm:22.05", true);
  const auto views = worker_views(cluster);
  ASSERT_EQ(views.size(), 4U);
  for (const auto& view : views) {
    const bool spot = view.set.name == "spot";
    EXPECT_EQ(view.scale_down.policy, spot ? Policy::Kill : Policy::Requeue) << view.worker_set;
    EXPECT_EQ(view.scale_down.after, spot ? std::chrono::minutes(5) : std::chrono::hours(2)) << view.worker_set;
    EXPECT_FALSE(view.scale_down.strict_ordinals) << "what a set does not say is the cluster's";
    EXPECT_EQ(view.set.held, view.set.name == "bad") << view.worker_set;
  }
  EXPECT_THAT(cluster.sets[0].problems, ElementsAre(HasSubstr("spec.extensions.scaleDown.policy: \"soon\" is none of wait, requeue, kill"), HasSubstr("scaleDown.after: \"later\" is not a duration")));
  EXPECT_THAT(cluster.sets[0].ignored, ElementsAre("spec.extensions.scaleDown.afetr (no such field; did you mean after?)"));
  EXPECT_THAT(cluster.sets[2].ignored, IsEmpty());
}

TEST(NodeSet, IsReadWhole) {
  const auto cluster = with({set("gpu", kWhole)});
  ASSERT_EQ(cluster.sets.size(), 1U);
  const WorkerSet& read = cluster.sets[0];
  EXPECT_THAT(read.problems, IsEmpty());
  EXPECT_THAT(read.ignored, ElementsAre("spec.updateStrategy"));
  EXPECT_EQ(read.role.size, 3);
  EXPECT_EQ(read.role.main.image, "registry.example/slurmd:24");
  EXPECT_EQ(read.role.main.pull_policy, "Always");
  EXPECT_EQ(read.role.munge.image, "registry.example/munge");
  EXPECT_EQ(read.role.main.env.items().size(), 2U);
  EXPECT_THAT(read.features, ElementsAre("big", "fast"));
  EXPECT_EQ(read.definition, " Weight=10 CoreSpecCount=1");
  EXPECT_EQ(cluster.volume_sources.at(read.role.jail.source_name)["persistentVolumeClaim"]["claimName"].string(), "jail-pvc");
  EXPECT_EQ(cluster.volume_sources.at(read.role.sub_mounts[0].source_name)["hostPath"]["path"].string(), "/srv");
  EXPECT_EQ(cluster.filters.at(read.role.node_filter).node_selector["pool"].string(), "big");
  EXPECT_EQ(read.annotations.at("a/b"), "c");
}

// Every field of the source's table, given alone, is in effect or named.
TEST(NodeSet, EachFieldIsInEffectOrNamed) {
  const FieldNames all = field_names(
#include "api/node_set_fields.inc"
  );
  const std::vector<std::string> effective = {"affinity", "clusterName", "customInitContainers", "gpu.enabled", "gpu.nvidia.gdrCopyEnabled", "imagePullSecrets", "munge.image", "munge.livenessProbe", "munge.resources", "munge.security.appArmorProfile",
                                              "munge.security.limitsConfig", "nodeConfig.dynamic", "nodeConfig.features", "nodeConfig.gresConfig", "nodeConfig.static", "nodeSelector", "priorityClass", "replicas", "slurmd.customEnv",
                                              "slurmd.image", "slurmd.livenessProbe", "slurmd.port", "slurmd.resources", "slurmd.security.appArmorProfile", "slurmd.security.limitsConfig", "slurmd.volumes.customVolumeMounts",
                                              "slurmd.volumes.jail", "slurmd.volumes.jailSubMounts", "slurmd.volumes.sharedMemorySize", "slurmd.volumes.spool", "tolerations", "workerAnnotations"};
  int leaves = 0;
  for (const std::string& path : all) {
    const auto next = all.lower_bound(path + ".");
    if (path.find("[]") != path.npos || (next != all.end() && next->starts_with(path + "."))) continue;
    std::string braces, text = "slurmd: {}";
    if (!path.starts_with("slurmd.")) text += "\n";
    else text.clear();
    for (const char c : path) {
      if (c == '.') text += ": {", braces += '}';
      else text += c;
    }
    if (path == "clusterName") continue;  // names another cluster, whose set is not read here
    const auto told = with({set("gpu", fmt::format("{}: x{}", text, braces))}).sets.at(0).ignored;
    const bool named = std::any_of(told.begin(), told.end(), [&](const std::string& one) { return ("spec." + path).starts_with(one); });
    const bool effect = std::any_of(effective.begin(), effective.end(), [&](const std::string& one) { return path == one || path.starts_with(one + "."); });
    EXPECT_EQ(named, !effect) << path << ": " << testing::PrintToString(told);
    ++leaves;
  }
  EXPECT_GT(leaves, 50);
}

TEST(NodeSet, BelongsToTheClusterThatItNamesOrToTheOnlyOne) {
  EXPECT_THAT(with({set("gpu", "{clusterName: other, slurmd: {}}")}).sets, IsEmpty());
  EXPECT_EQ(with({set("gpu", "{slurmd: {}}")}).sets.size(), 1U);
}

struct Bad {
  const char *name, *set_name, *spec, *want;
};
class NodeSetProblems : public testing::TestWithParam<Bad> {};
TEST_P(NodeSetProblems, AreSentences) {
  const auto cluster = with({set(GetParam().set_name, GetParam().spec)}, ", worker: {size: 1}");
  EXPECT_THAT(cluster.sets.at(0).problems, ElementsAre(HasSubstr(GetParam().want)));
  EXPECT_THAT(cluster.problems, IsEmpty()) << "the cluster goes on";
  EXPECT_THAT(cluster.sets.at(0).gres, IsEmpty()) << "what is wrong comes into no file";
}
INSTANTIATE_TEST_SUITE_P(
    Rows, NodeSetProblems,
    testing::Values(Bad{"role_name", "login", "slurmd: {}", "another part of a cluster"}, Bad{"dots", "a.b", "slurmd: {}", "lower-case letters, digits and dashes"},
                    Bad{"name_of_the_section", "worker", "slurmd: {}", "takes them over as they run"}, Bad{"port", "gpu", "slurmd: {port: 7000}", "7000 here and 6818 elsewhere"},
                    Bad{"replicas", "gpu", "{replicas: -1, slurmd: {}}", "-1 is not a whole number from 0"}, Bad{"two_sources", "gpu", "slurmd: {volumes: {jail: {emptyDir: {}, hostPath: {path: /}}}}", "exactly one source"},
                    Bad{"other_path", "gpu", "slurmd: {volumes: {jailSubMounts: [{name: data, mountPath: /elsewhere, emptyDir: {}}]}}", "give both the same path"},
                    Bad{"no_source", "gpu", "slurmd: {volumes: {jailSubMounts: [{name: x, mountPath: /x}]}}", "x names no source"}, Bad{"claim_and_source", "gpu", "slurmd: {volumes: {spool: {emptyDir: {}, volumeClaimTemplateSpec: {resources: {requests: {storage: 1Gi}}}}}}", "spool names a source and volumeClaimTemplateSpec"},
                    Bad{"claim_without_size", "gpu", "slurmd: {volumes: {jailSubMounts: [{name: x, mountPath: /x, volumeClaimTemplateSpec: {storageClassName: fast}}]}}", "of x says no size"}, Bad{"feature", "gpu", "{slurmd: {}, nodeConfig: {features: ['a b']}}", "\"a b\" is not one word"},
                    Bad{"own_key", "gpu", "{slurmd: {}, nodeConfig: {static: 'Gres=gpu:9'}}", "Gres follows from"}, Bad{"no_key", "gpu", "{slurmd: {}, nodeConfig: {dynamic: 'weight'}}", "is not KEY=VALUE"},
                    Bad{"line_break", "gpu", "{slurmd: {}, nodeConfig: {dynamic: \"Weight=1\\nNodeName=x\"}}", "is not KEY=VALUE"}, Bad{"gres", "gpu", "{slurmd: {}, nodeConfig: {gresConfig: [\"Name=gpu\\nInclude x\"]}}", "gresConfig, line 1: \"Name=gpu"},
                    Bad{"gres_typo", "gpu", "{slurmd: {}, nodeConfig: {gresConfig: [\"Name=gpu Fil=/dev/nvidia[0-3]\"]}}", "spec.nodeConfig.gresConfig, line 1, Fil: gres.conf of Slurm 22.05 has no such key"}),
    [](const auto& row) { return row.param.name; });

TEST(WorkerViews, OneForTheSectionAndOneForEachSet) {
  const auto names = [](const SlurmCluster& cluster) {
    std::vector<std::string> out;
    for (const auto& view : worker_views(cluster)) out.push_back(view.worker_set + (view.set.held ? " held" : "") + " " + std::to_string(view.worker.size));
    return out;
  };
  EXPECT_THAT(names(with({}, ", worker: {size: 2}")), ElementsAre("worker 2"));
  EXPECT_THAT(names(with({set("b", "{replicas: 4, slurmd: {}}"), set("a", "{slurmd: {}}")}, ", worker: {size: 0}")), ElementsAre("worker 0", "a 1", "b 4"));
  EXPECT_THAT(names(with({set("a", "{slurmd: {}}")})), ElementsAre("worker held 0", "a 1")) << "a section that is missing sends nobody away";
  EXPECT_THAT(names(with({set("worker", "{replicas: 2, slurmd: {}}")})), ElementsAre("worker 2")) << "a set takes over the section's workers";
  EXPECT_THAT(names(with({set("worker", "{replicas: 2, slurmd: {}}")}, ", worker: {size: 3}")), ElementsAre("worker 3"));
  EXPECT_THAT(names(with({set("worker", "{replicas: -2, slurmd: {}}")})), ElementsAre("worker held 1"));
  Json going = set("a", "{replicas: -2, slurmd: {}}");
  going.child("metadata").set("deletionTimestamp", "2026-11-22T00:00:00Z");
  EXPECT_THAT(names(with({going}, ", worker: {size: 1}")), ElementsAre("worker 1", "a 0")) << "nothing is wrong with going";
}

}  // namespace
}  // namespace fairlead::api
