// SPDX-License-Identifier: Apache-2.0
// Pod exporter-0, from the resource to its end.
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

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json cluster_with(const std::string& exporter, const std::string& more = "") {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 1}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: cpu}, tolerations: [{key: pool, operator: Exists}]}]
  volumeSources: [{name: jail, hostPath: {path: /srv/jail}}]
)" + more + R"(
  slurmNodes:
    controller: {k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 0, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 0, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    exporter: )" + exporter + "\n");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}

Plan look(Snapshot& snapshot) {
  if (const auto wanted = wants_trial(snapshot, {}, "slurm:22.05", kNow)) snapshot.trial = Trial{wanted->hash, Verdict::Good, ""};
  return plan_reconcile(snapshot, {}, "slurm:22.05", kNow);
}
std::vector<std::string> steps_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const auto& step : plan.steps) out.push_back(describe(step));
  return out;
}
void settle(Snapshot& snapshot) {
  for (int i = 0; i < 6; ++i) {
    const Plan plan = look(snapshot);
    snapshot.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      if (const auto* made = std::get_if<Create>(&step)) {
        Json object = made->object;
        object.child("metadata").set("uid", "uid-" + kube::name_of(object));
        auto& table = made->resource == kube::resources::pods ? snapshot.pods : made->resource == kube::resources::services ? snapshot.services : made->resource == kNetworkPolicies ? snapshot.policies : snapshot.config_maps;
        table[kube::name_of(object)] = std::move(object);
      }
      if (const auto* keys = std::get_if<MakeKeys>(&step)) snapshot.secrets[keys->secret] = Json::object();
    }
  }
}
std::string condition(const Plan& plan, const char* type) {
  const Json object = Json::object({{"status", plan.status}});
  const Json* found = kube::find_condition(object, type);
  return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "absent";
}

constexpr const char* kFull = "{enabled: true, size: 1, k8sNodeFilterName: all, exporter: {image: e:1, port: 9341, resources: {cpu: 250m, memory: 256Mi}}, munge: {image: m:1}, volumes: {jail: {volumeSourceName: jail}}, collectionInterval: 1m}";

TEST(Exporter, IsAPodThatReadsAndNoMore) {
  Snapshot snapshot{.cluster = cluster_with(kFull)};
  settle(snapshot);
  ASSERT_TRUE(snapshot.pods.contains("exporter-0"));
  const Json& spec = snapshot.pods["exporter-0"]["spec"];
  EXPECT_EQ(spec["nodeSelector"]["pool"].string(), "cpu");
  EXPECT_EQ(spec["tolerations"].items().size(), 1U) << "nobody's work is on it: it leaves a silent machine as any pod does";
  EXPECT_FALSE(spec["automountServiceAccountToken"].boolean(true));
  ASSERT_EQ(spec["containers"].items().size(), 2U);
  EXPECT_EQ(spec["containers"].items()[0]["image"].string(), "m:1");
  const Json& main = spec["containers"].items()[1];
  EXPECT_EQ(main["image"].string(), "e:1");
  EXPECT_EQ(kube::print_json(main["command"]), R"(["/opt/fairlead/bin/fairlead-slurm","exporter","--pod","--port","9341","--interval","60"])");
  EXPECT_EQ(kube::print_json(main["securityContext"]), R"({"runAsUser":0,"runAsGroup":0,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"],"add":["SETGID","SETUID"]}})");
  for (const char* probe : {"readinessProbe", "livenessProbe"}) EXPECT_EQ(kube::print_json(main[probe]["httpGet"]), R"({"path":"/healthz","port":9341})");
  EXPECT_EQ(main["resources"]["limits"]["memory"].string(), "256Mi");
  // The shared root read-only, Slurm's configuration, munge's socket: no key, no Secret, no database.
  std::vector<std::string> mounts;
  for (const Json& mount : main["volumeMounts"].items()) mounts.push_back(mount["mountPath"].string() + (mount["readOnly"].boolean() ? " read-only" : ""));
  EXPECT_THAT(mounts, ElementsAre("/run/munge", "/run/slurm", "/mnt/jail read-only", "/etc/slurm read-only"));
  for (const Json& volume : spec["volumes"].items()) EXPECT_TRUE(volume["secret"].is_null() || volume["name"].string() == "munge-key") << kube::print_json(volume);
  EXPECT_EQ(snapshot.services["demo-exporter-svc"]["spec"]["ports"].items()[0]["port"].integer(), 9341);
  EXPECT_THAT(kube::print_json(snapshot.policies["demo-network-exporter"]), HasSubstr(R"({"protocol":"TCP","port":9341}],"from":[{"namespaceSelector":{"matchLabels":{"fairlead.dev/monitoring":"allowed"}})"));
  EXPECT_THAT(condition(look(snapshot), "FieldsIgnored"), HasSubstr("False"));
  EXPECT_THAT(condition(look(snapshot), "ExporterAvailable"), HasSubstr("False 0 of 1 ready"));
}

TEST(Exporter, OfTheSharedRootReadsNamesOnly) {
  Snapshot snapshot{.cluster = cluster_with(kFull, "  populateJail: {image: root:1}")};
  snapshot.cluster.child("status").set("jail", Json::object({{"clusterUid", "u1"}, {"layout", "versions"}, {"version", "v"}}));
  settle(snapshot);
  const Json& main = snapshot.pods["exporter-0"]["spec"]["containers"].items()[1];
  EXPECT_THAT(kube::print_json(main["env"]), HasSubstr(R"({"name":"FAIRLEAD_JAIL","value":"link"})"));
  EXPECT_THAT(kube::print_json(main["volumeMounts"]), HasSubstr(R"({"name":"jail","mountPath":"/mnt/jail-volume","readOnly":true})"));
}

struct Asked {
  const char *name, *exporter;
  bool pod;
  const char* ignored;  // words of FieldsIgnored; empty: nothing is
};
class ExporterAsked : public testing::TestWithParam<Asked> {};
TEST_P(ExporterAsked, IsThereOrNotAndSaysWhatItCannot) {
  Snapshot snapshot{.cluster = cluster_with(GetParam().exporter)};
  settle(snapshot);
  EXPECT_EQ(snapshot.pods.contains("exporter-0"), GetParam().pod);
  EXPECT_EQ(snapshot.services.contains("demo-exporter-svc"), GetParam().pod);
  EXPECT_FALSE(snapshot.pods.contains("exporter-1"));
  const Plan plan = look(snapshot);
  EXPECT_THAT(condition(plan, "SpecValid"), HasSubstr("True")) << "metrics hold up nothing";
  EXPECT_THAT(condition(plan, "FieldsIgnored"), HasSubstr(*GetParam().ignored ? GetParam().ignored : "False"));
  EXPECT_EQ(condition(plan, "ExporterAvailable") == "absent", !GetParam().pod);
}
INSTANTIATE_TEST_SUITE_P(
    Rows, ExporterAsked,
    testing::Values(Asked{"default_size", "{enabled: true}", true, ""}, Asked{"off", "{enabled: false, size: 1, munge: {image: m}}", false, ""}, Asked{"not_said", "{size: 1}", false, ""},
                    Asked{"size_0", "{enabled: true, size: 0}", false, ""}, Asked{"two", "{enabled: true, size: 2}", true, "spec.slurmNodes.exporter.size: 2 (one runs"},
                    Asked{"newer_shape", "{enabled: true, exporterContainer: {image: e:2}, jobSource: controller}", true, ""},
                    Asked{"from_accounting", "{enabled: true, jobSource: accounting}", true, "spec.slurmNodes.exporter.jobSource"},
                    Asked{"interval_of_days", "{enabled: true, collectionInterval: 1d}", true, "collectionInterval: \"1d\" (whole seconds"},
                    Asked{"interval_of_none", "{enabled: true, collectionInterval: 0s}", true, "collectionInterval: \"0s\""},
                    Asked{"monitor_of_the_kind", "{enabled: true, podMonitorConfig: {interval: 30s, jobLabel: slurm-exporter, scrapeTimeout: 20s}}", true, ""},
                    Asked{"own_monitor", "{enabled: true, podMonitorConfig: {interval: 10s}}", true, "spec.slurmNodes.exporter.podMonitorConfig"}),
    [](const auto& row) { return row.param.name; });

TEST(Exporter, IsRenewedAtOnceAndGoesWithTheWish) {
  Snapshot snapshot{.cluster = cluster_with(kFull)};
  settle(snapshot);
  snapshot.pods["exporter-0"].set("status", Json::object({{"phase", "Running"}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}}));
  EXPECT_THAT(condition(look(snapshot), "ExporterAvailable"), HasSubstr("True 1 of 1 ready"));
  EXPECT_THAT(steps_of(look(snapshot)), Not(Contains(HasSubstr("exporter"))));
  Json& exporter = *snapshot.cluster.find("spec")->find("slurmNodes")->find("exporter");
  exporter.child("exporter").set("customEnv", Json::array({Json::object({{"name", "CHANGED"}, {"value", "yes"}})}));
  EXPECT_THAT(steps_of(look(snapshot)), Contains("delete pod exporter-0: its template has changed"));
  exporter.set("enabled", false);
  EXPECT_THAT(steps_of(look(snapshot)), testing::IsSupersetOf({"delete pod exporter-0: no exporter is asked for any more", "delete services demo-exporter-svc: no exporter is asked for any more"}));
  EXPECT_EQ(condition(look(snapshot), "ExporterAvailable"), "absent");
}

TEST(Exporter, LeavesWhatBelongsToSomebodyElse) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: false}")};
  settle(snapshot);
  snapshot.services["demo-exporter-svc"] = Json::object({{"metadata", Json::object({{"name", "demo-exporter-svc"}, {"namespace", "lab"}})}});
  snapshot.pods["exporter-0"] = Json::object({{"metadata", Json::object({{"name", "exporter-0"}, {"namespace", "lab"}})}});
  EXPECT_THAT(steps_of(look(snapshot)), Not(Contains(HasSubstr("exporter"))));
}

TEST(Exporter, AWrongFilterIsSaid) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true, k8sNodeFilterName: nowhere}")};
  EXPECT_THAT(condition(look(snapshot), "SpecValid"), HasSubstr("spec.slurmNodes.exporter.k8sNodeFilterName: \"nowhere\" is not among"));
  snapshot.cluster = cluster_with("{enabled: false, k8sNodeFilterName: nowhere}");
  EXPECT_THAT(condition(look(snapshot), "SpecValid"), HasSubstr("True"));
}

}  // namespace
}  // namespace fairlead::slurm
