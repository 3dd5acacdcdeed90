// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_fields.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace fairlead::api {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SlurmCluster read(std::string_view login_and_more) {
  auto parsed = kube::parse_yaml(login_and_more);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return read_slurm_cluster(Json::object({{"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}})}, {"spec", parsed ? parsed->at(0) : Json()}}), "slurm:22.05");
}

TEST(SlurmFields, OfContainersAndRolesOfBothShapes) {
  const auto cluster = read(R"(
slurmNodes:
  controller:
    priorityClass: high
    slurmctld: {imagePullPolicy: Always, imagePullSecrets: [{name: a}, {name: b}], securityLimitsConfig: "* - nofile 1000000", customEnv: [{name: TZ, value: UTC}], livenessProbe: {exec: {command: [true]}}}
    munge: {imagePullSecrets: [{name: b}, {name: c}], appArmorProfile: unconfined}
  login: {customInitContainers: [{name: one, image: busybox}], volumes: {customMounts: [{name: data, mountPath: /data, subPath: x, readOnly: true, volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce]}}]}}
  worker: {size: 0}
)");
  EXPECT_THAT(cluster.problems, IsEmpty());
  EXPECT_THAT(cluster.ignored, IsEmpty());
  EXPECT_EQ(cluster.controller.priority_class, "high");
  EXPECT_EQ(cluster.controller.main.pull_policy, "Always");
  EXPECT_EQ(kube::print_json(cluster.controller.pull_secrets), R"([{"name":"a"},{"name":"b"},{"name":"c"}])");
  EXPECT_EQ(cluster.controller.main.limits, "* - nofile 1000000");
  EXPECT_EQ(cluster.controller.munge.app_armor, "unconfined");
  EXPECT_TRUE(cluster.controller.main.liveness.is_object());
  EXPECT_EQ(cluster.login.init_containers.items().size(), 1U);
  ASSERT_EQ(cluster.login.sub_mounts.size(), 1U);
  EXPECT_TRUE(cluster.login.sub_mounts[0].read_only);
  EXPECT_EQ(cluster.login.sub_mounts[0].sub_path, "x");
}

TEST(SlurmFields, WhatHappensAnywayIsNotNamed) {
  EXPECT_THAT(read("{maintenance: none, slurmNodes: {worker: {}}}").ignored, IsEmpty());
  EXPECT_THAT(read("{maintenance: downscale, slurmNodes: {worker: {}}}").ignored, ElementsAre("spec.maintenance"));
}

TEST(SlurmFields, TheWayInFromOutside) {
  const auto cluster = read("slurmNodes: {controller: {}, login: {sshdServiceType: LoadBalancer, sshdServiceAnnotations: {a/b: c}, sshdServiceLoadBalancerIP: 192.0.2.7, sshdServiceNodePort: 30022, "
                            "sshdServiceLoadBalancerSourceRanges: [198.51.100.0/24]}}");
  EXPECT_THAT(cluster.ignored, IsEmpty());
  EXPECT_EQ(cluster.login_service.type, "LoadBalancer");
  EXPECT_EQ(cluster.login_service.load_balancer_ip, "192.0.2.7");
  EXPECT_EQ(cluster.login_service.node_port, 30022);
  EXPECT_EQ(cluster.login_service.annotations.at("a/b"), "c");
  EXPECT_THAT(cluster.login_service.source_ranges, ElementsAre("198.51.100.0/24"));
}

// Every field of ours that a reader reads. A new one is added here, where it fails until it counts as one that is in effect.
TEST(SlurmFields, OwnOnesAreInEffect) {
  const std::string_view base = R"(
volumeSources: [{name: data, persistentVolumeClaim: {claimName: a}}, {name: spool, persistentVolumeClaim: {claimName: b}}]
slurmNodes:
  controller: {volumes: {jail: {volumeSourceName: data}, spool: {volumeSourceName: spool}}}
)";
  const std::string_view at_work[] = {
      R"(
  accounting: {enabled: true, mariadbOperator: {enabled: true, storage: {size: 10Gi}}}
extensions:
  mockGpus: true
  bindCores: true
  scaleDown: {policy: requeue, after: 30m, strictOrdinals: true}
  notifications: [{topic: operators}]
  quota: {accounts: [{account: vision, team: vision}]}
  autoscale: {sets: [{name: worker, min: 1, max: 8, idleAfter: 30m, placeWithin: 15m}]}
  backup: {enabled: true, schedule: "0 3 * * *", keep: 3, parts: [state, database, jail], volumeSourceName: data}
  accounting: {replicas: 2, enforce: limits, sharedWith: [{namespace: field, name: beta}], backup: {enabled: true, interval: 24h, keep: 7, volumeSourceName: data}}
)",
      R"(
  accounting: {enabled: true, externalDB: {enabled: true, host: db, port: 3306, user: slurm, passwordSecretKeyRef: {name: a, key: b}}}
extensions:
  backup: {interval: 12h, volumeClaimTemplateSpec: {accessModes: [ReadWriteMany]}}
  accounting: {externalTLS: {mode: Required, caSecretKeyRef: {name: ca, key: ca.crt}}, backup: {enabled: true, volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce]}}}
)",
      R"(
  accounting: {enabled: true}
extensions:
  accounting: {of: {namespace: research, name: alpha}}
)"};
  for (const auto& more : at_work) {
    const auto cluster = read(std::string(base) + std::string(more));
    EXPECT_THAT(cluster.problems, IsEmpty()) << more;
    EXPECT_THAT(cluster.backup.problems, IsEmpty()) << more;
    EXPECT_THAT(cluster.accounting.problems, IsEmpty()) << more;
    EXPECT_THAT(cluster.ignored, IsEmpty()) << more;
  }
}

TEST(SlurmFields, OwnOnesThatAreMistypedAreNamed) {
  EXPECT_THAT(read("extensions: {backup: {schedul: x, keep: 3}, scaledown: {policy: wait}, colour: blue}").ignored,
              ElementsAre("spec.extensions.backup.schedul (no such field; did you mean schedule?)", "spec.extensions.colour (no such field)", "spec.extensions.scaledown (no such field; did you mean scaleDown?)"));
}

// What the pages show of spec.extensions of a SlurmCluster.
TEST(SlurmFields, OwnOnesOfThePagesAreInEffect) {
  int seen = 0;
  for (const char* page : {"notifications", "slurm-accounting", "slurm-backup", "slurm-elasticity", "slurm-scaling"}) {
    std::ostringstream text;
    text << std::ifstream(SOURCE_DIR "/docs/" + std::string(page) + ".md").rdbuf();
    const std::string all = text.str(), open = "```yaml\n";
    for (auto from = all.find(open); from != all.npos; from = all.find(open, from + 1)) {
      const std::string block = all.substr(from + open.size(), all.find("```", from + open.size()) - from - open.size());
      const auto parsed = kube::parse_yaml(block);
      ASSERT_TRUE(parsed) << page << ": " << parsed.error().message;
      for (const Json& one : *parsed) {
        const Json& own = one["spec"]["extensions"];
        if (!own.is_object() || one["kind"].string_or("SlurmCluster") != "SlurmCluster") continue;
        const auto cluster = read_slurm_cluster(Json::object({{"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}})}, {"spec", Json::object({{"extensions", own}})}}), "i");
        EXPECT_THAT(cluster.ignored, IsEmpty()) << page << ": " << block;
        ++seen;
      }
    }
  }
  EXPECT_GE(seen, 7);
}

struct Bad {
  const char *name, *yaml, *want;
};
class SlurmFieldProblems : public testing::TestWithParam<Bad> {};
TEST_P(SlurmFieldProblems, SayWhatIsPossible) { EXPECT_THAT(read(GetParam().yaml).problems, ElementsAre(HasSubstr(GetParam().want))); }
INSTANTIATE_TEST_SUITE_P(
    Rows, SlurmFieldProblems,
    testing::Values(Bad{"service_type", "slurmNodes: {login: {sshdServiceType: Loadbalancer}}", "\"Loadbalancer\" is none of LoadBalancer, NodePort, ClusterIP"},
                    Bad{"node_port", "slurmNodes: {login: {sshdServiceNodePort: 300220}}", "300220 is not a port"},
                    Bad{"topology", "{ncclSettings: {topologyType: custom}, slurmNodes: {}}", "give the topology file's text here"},
                    Bad{"pull_policy", "slurmNodes: {worker: {slurmd: {imagePullPolicy: Sometimes}}}", "none of Always, Never, IfNotPresent"},
                    Bad{"profile", "slurmNodes: {worker: {slurmd: {appArmorProfile: localhost/}}}", "none of unconfined"},
                    Bad{"limits", "slurmNodes: {controller: {slurmctld: {securityLimitsConfig: \"* - nofile 1000\\n* hard memlock much\"}}}", "slurmctld.securityLimitsConfig: \"* hard memlock much\": much is no limit"},
                    Bad{"own_variable", "slurmNodes: {worker: {slurmd: {customEnv: [{name: FAIRLEAD_LIMITS, value: x}]}}}", "is set by Fairlead"},
                    Bad{"mount_twice", "{volumeSources: [{name: v, emptyDir: {}}], slurmNodes: {login: {volumes: {jailSubMounts: [{name: a, mountPath: /a, volumeSourceName: v}, {name: a, mountPath: /b, volumeSourceName: v}]}}}}",
                        "the name a is there twice"}),
    [](const auto& row) { return row.param.name; });

// Every scalar field of both shapes, given alone, is either in effect or named: what the table says is what the reader does.
TEST(SlurmFields, OfBothShapesAreInEffectOrNamed) {
  std::istringstream lines(
#include "api/slurm_fields.inc"
  );
  std::string path, marks;
  int in_effect = 0, named = 0;
  while (lines >> path >> marks) {
    if (path.find("[]") != path.npos) continue;
    Json value = "x";
    std::string_view rest = path;
    std::vector<std::string> parts;
    for (auto dot = rest.find('.'); dot != rest.npos; dot = rest.find('.')) {
      parts.emplace_back(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    Json spec = Json::object({{std::string(rest), value}});
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) spec = Json::object({{*part, std::move(spec)}});
    const auto read = read_slurm_cluster(Json::object({{"metadata", Json::object({{"name", "demo"}, {"namespace", "lab"}})}, {"spec", std::move(spec)}}), "i");
    const bool told = std::any_of(read.ignored.begin(), read.ignored.end(), [&](const std::string& one) { return ("spec." + path).starts_with(one); });
    // A section of which some members count says nothing by itself.
    if (field_in_effect(path) != InEffect::No) {
      EXPECT_TRUE(!told || field_in_effect(path) == InEffect::Some) << path;
      ++in_effect;
    } else {
      EXPECT_TRUE(told) << path;
      ++named;
    }
  }
  EXPECT_GT(in_effect, 60);
  EXPECT_GT(named + in_effect, 400);
}

// docs/slurm.md prints the table between two marks. FAIRLEAD_UPDATE=1 writes it.
TEST(SlurmFields, TheTableInTheDocumentationIsThisOne) {
  const std::string path = SOURCE_DIR "/docs/slurm.md", begin = "<!-- fields: begin, written by FAIRLEAD_UPDATE=1 api_test -->\n", end = "<!-- fields: end -->";
  std::ostringstream read;
  read << std::ifstream(path).rdbuf();
  std::string text = read.str();
  const auto from = text.find(begin), to = text.find(end);
  ASSERT_TRUE(from != text.npos && to != text.npos && from < to) << "the marks are missing in " << path;
  const std::string next = text.substr(0, from) + begin + fields_markdown() + text.substr(to);
  if (std::getenv("FAIRLEAD_UPDATE") != nullptr) std::ofstream(path) << next;
  else EXPECT_TRUE(next == text) << "fields have changed: run FAIRLEAD_UPDATE=1 BUILD_DIR/api_test --gtest_filter='SlurmFields.TheTable*' and commit docs/slurm.md";
}

}  // namespace
}  // namespace fairlead::api
