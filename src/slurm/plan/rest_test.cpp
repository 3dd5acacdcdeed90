// SPDX-License-Identifier: Apache-2.0
// Pods rest-0.., tokens and their key, from the resource to their end.
#include "slurm/plan/rest.h"

#include <gmock/gmock.h>

#include "slurm/plan/accounting.h"
#include "slurm/plan/custom_config.h"
#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

Json cluster_with(const std::string& rest, const std::string& more = "") {
  auto parsed = kube::parse_yaml(R"(
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, uid: u1, generation: 1}
spec:
  k8sNodeFilters: [{name: all}]
  volumeSources: [{name: jail, hostPath: {path: /srv/jail}}]
  slurmNodes:
    controller: {k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    worker: {size: 1, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 0, k8sNodeFilterName: all, volumes: {jail: {volumeSourceName: jail}}}
)" + more + "\n    rest: " + rest + "\n");
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return parsed ? parsed->at(0) : Json();
}

Plan look(Snapshot& snapshot) {
  snapshot.trial.reset();
  if (const auto wanted = wants_trial(snapshot, {}, "slurm:22.05", kNow)) snapshot.trial = Trial{wanted->hash, Verdict::Good, ""};
  return plan_reconcile(snapshot, {}, "slurm:22.05", kNow);
}
std::vector<std::string> steps_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const auto& step : plan.steps) out.push_back(describe(step));
  return out;
}
void make_ready(Json& pod) { pod.set("status", Json::object({{"phase", "Running"}, {"conditions", Json::array({Json::object({{"type", "Ready"}, {"status", "True"}})})}})); }
// What an API and its kubelets would do; every configuration comes to be in force.
void settle(Snapshot& snapshot, int keys = 1) {
  for (int i = 0; i < 10; ++i) {
    const Plan plan = look(snapshot);
    snapshot.cluster.set("status", plan.status);
    for (const auto& step : plan.steps) {
      if (const auto* made = std::get_if<Create>(&step)) {
        Json object = made->object;
        object.child("metadata").set("uid", "uid-" + kube::name_of(object));
        if (made->resource == kube::resources::pods) make_ready(object);
        auto& table = made->resource == kube::resources::pods ? snapshot.pods : made->resource == kube::resources::services ? snapshot.services : made->resource == kNetworkPolicies ? snapshot.policies : snapshot.config_maps;
        table[kube::name_of(object)] = std::move(object);
      }
      if (const auto* changed = std::get_if<Update>(&step); changed && changed->resource == kube::resources::config_maps) snapshot.config_maps[kube::name_of(changed->object)] = changed->object;
      if (const auto* end = std::get_if<DeletePod>(&step)) snapshot.pods.erase(end->key.name);
      if (const auto* gone = std::get_if<Remove>(&step)) (gone->resource == kNetworkPolicies ? snapshot.policies : snapshot.services).erase(gone->key.name);
      if (const auto* made = std::get_if<MakeKeys>(&step)) snapshot.secrets[made->secret] = made->keys == Keys::Tokens ? Json::object({{"data", Json::object({{kTokenKeyFile, "key" + std::to_string(keys)}})}}) : Json::object();
      if (const auto* told = std::get_if<Reconfigure>(&step)) snapshot.cluster.child("status").set("appliedConfigHash", told->hash);
    }
  }
}
std::string condition(const Plan& plan, const char* type) {
  const Json object = Json::object({{"status", plan.status}});
  const Json* found = kube::find_condition(object, type);
  return found ? (*found)["status"].string() + " " + (*found)["message"].string() : "absent";
}
std::string conf_of(const Snapshot& snapshot) { return snapshot.config_maps.at("demo-slurm-configs")["data"]["slurm.conf"].string(); }

TEST(Rest, KnowsNoSecretAndTheHeadsTheKey) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true, size: 2, k8sNodeFilterName: all, rest: {image: r:1, port: 7820}, threadCount: 9}")};
  settle(snapshot);
  ASSERT_TRUE(snapshot.pods.contains("rest-0") && snapshot.pods.contains("rest-1"));
  const Json& pod = snapshot.pods["rest-0"];
  EXPECT_EQ(kube::print_json(pod).find("secret"), std::string::npos) << "neither munge's key nor that of tokens";
  ASSERT_EQ(pod["spec"]["containers"].items().size(), 1U);
  const Json& main = pod["spec"]["containers"].items()[0];
  EXPECT_EQ(main["image"].string(), "r:1");
  EXPECT_FALSE(main["securityContext"]["allowPrivilegeEscalation"].boolean(true));
  EXPECT_THAT(kube::print_json(main["env"]), HasSubstr(R"({"name":"FAIRLEAD_REST_THREADS","value":"9"})"));
  const Json& service = snapshot.services["demo-rest-svc"];
  EXPECT_FALSE(service["spec"].has("clusterIP")) << "it has an address, behind which only those stand that answer";
  EXPECT_EQ(service["spec"]["ports"].items()[0]["port"].integer(), 7820);
  EXPECT_TRUE(snapshot.policies.contains("demo-network-rest"));
  const std::string head = kube::print_json(snapshot.pods["controller-0"]);
  EXPECT_THAT(head, HasSubstr(R"({"name":"token-key","secret":{"secretName":"demo-rest-jwt-key","defaultMode":256}})"));
  EXPECT_EQ(kube::print_json(snapshot.pods["worker-0"]).find("demo-rest-jwt-key"), std::string::npos);
  EXPECT_THAT(conf_of(snapshot), HasSubstr("AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/run/slurm/rest_jwt.key\n"));
  EXPECT_THAT(condition(look(snapshot), "RestAvailable"), HasSubstr("True 2 of 2 ready"));
  EXPECT_THAT(condition(look(snapshot), "FieldsIgnored"), HasSubstr("False"));
}

TEST(Rest, SlurmdbdTakesTokensToo) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true}", "    accounting: {enabled: true, mariadbOperator: {enabled: true, storage: {ephemeral: true}}}")};
  const auto cluster = api::read_slurm_cluster(snapshot.cluster, "slurm:22.05");
  EXPECT_THAT(render_slurmdbd_conf(cluster, 0, {}), HasSubstr("AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/run/slurm/rest_jwt.key\n"));
  EXPECT_THAT(kube::print_json(accounting_pod(cluster, 0, {})), HasSubstr("demo-rest-jwt-key"));
  EXPECT_EQ(kube::print_json(database_pod(cluster, {})).find("demo-rest-jwt-key"), std::string::npos);
  EXPECT_EQ(start_settings(render_config(cluster, {}).at("slurm.conf")).find("AuthAltTypes=auth/jwt;AccountingStorageType="), 0U);
}

TEST(Rest, WithoutItNothingOfItIsThere) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: false, size: 1}")};
  settle(snapshot);
  EXPECT_EQ(conf_of(snapshot).find("AuthAlt"), std::string::npos);
  EXPECT_FALSE(snapshot.secrets.contains("demo-rest-jwt-key"));
  EXPECT_FALSE(snapshot.services.contains("demo-rest-svc"));
  EXPECT_EQ(condition(look(snapshot), "RestAvailable"), "absent");
}

TEST(Rest, TurnedOnLaterTheHeadIsMadeAnewWithTheKeyAndThenRestIsStarted) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: false}")};
  settle(snapshot);
  snapshot.cluster.child("spec").child("slurmNodes").set("rest", Json::object({{"enabled", true}}));
  EXPECT_THAT(steps_of(look(snapshot)), Contains("make keys demo-rest-jwt-key"));
  EXPECT_THAT(condition(look(snapshot), "RestAvailable"), HasSubstr("False slurmrestd is started once"));
  const std::string worker = kube::print_json(snapshot.pods["worker-0"]);
  settle(snapshot);
  EXPECT_THAT(kube::print_json(snapshot.pods["controller-0"]), HasSubstr(R"("FAIRLEAD_CONF_NEEDS","value":"AuthAltTypes=auth/jwt")"));
  EXPECT_TRUE(snapshot.pods.contains("rest-0"));
  EXPECT_EQ(kube::print_json(snapshot.pods["worker-0"]), worker) << "no worker is touched, nor what runs there";
  // And off again.
  snapshot.cluster.child("spec").child("slurmNodes").set("rest", Json::object({{"enabled", false}}));
  EXPECT_THAT(steps_of(look(snapshot)), testing::IsSupersetOf({"delete pod rest-0: it is beyond the size", "delete services demo-rest-svc: no REST is asked for any more"}));
  settle(snapshot);
  EXPECT_EQ(kube::print_json(snapshot.pods["controller-0"]).find("token-key"), std::string::npos);
  EXPECT_EQ(kube::print_json(snapshot.pods["worker-0"]), worker);
}

TEST(Rest, ANewKeyRenewsTheHeads) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true}")};
  settle(snapshot);
  const std::string before = snapshot.pods["controller-0"]["metadata"]["annotations"][kTemplateHash].string();
  snapshot.secrets.erase("demo-rest-jwt-key");
  EXPECT_THAT(steps_of(look(snapshot)), Contains("make keys demo-rest-jwt-key"));
  EXPECT_THAT(steps_of(look(snapshot)), Not(Contains(HasSubstr("delete pod controller-0")))) << "not before there is another";
  settle(snapshot, 2);
  EXPECT_NE(snapshot.pods["controller-0"]["metadata"]["annotations"][kTemplateHash].string(), before);
}

TEST(Rest, ASecretWithoutAKeyIsTold) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true}")};
  snapshot.secrets["demo-rest-jwt-key"] = Json::object();
  settle(snapshot);
  EXPECT_THAT(condition(look(snapshot), "CommonAvailable"), HasSubstr("Secret demo-rest-jwt-key holds no rest_jwt.key: add it, or delete the Secret"));
}

TEST(Rest, OfSeveralOneIsRenewedAtATime) {
  Snapshot snapshot{.cluster = cluster_with("{enabled: true, size: 2}")};
  settle(snapshot);
  snapshot.cluster.child("spec").child("slurmNodes").child("rest").set("threadCount", 5);
  EXPECT_THAT(steps_of(look(snapshot)), Contains("delete pod rest-0: its template has changed"));
  EXPECT_THAT(steps_of(look(snapshot)), Not(Contains(HasSubstr("delete pod rest-1"))));
  snapshot.pods.erase("rest-0");
  EXPECT_THAT(steps_of(look(snapshot)), Not(Contains(HasSubstr("delete pod rest-1")))) << "not while the other is away";
}

TEST(Rest, TokensCountFromTheNextStartOfSlurmctld) {
  EXPECT_THAT(restart_keys("ClusterName=c\n", "ClusterName=c\nAuthAltTypes=auth/jwt\n").head, Contains("AuthAltTypes"));
}

struct Wrong {
  const char *name, *rest, *type, *words;
};
class RestAsked : public testing::TestWithParam<Wrong> {};
TEST_P(RestAsked, SaysWhatItCannot) {
  Snapshot snapshot{.cluster = cluster_with(GetParam().rest)};
  EXPECT_THAT(condition(look(snapshot), GetParam().type), HasSubstr(GetParam().words));
}
INSTANTIATE_TEST_SUITE_P(Rows, RestAsked,
                         testing::Values(Wrong{"many", "{enabled: true, size: 9}", "FieldsIgnored", "spec.slurmNodes.rest.size: 9 (8 run"}, Wrong{"one_thread", "{enabled: true, threadCount: 1}", "FieldsIgnored", "threadCount: 1 (2 to 1024"},
                                         Wrong{"connections", "{enabled: true, maxConnections: 20}", "FieldsIgnored", "spec.slurmNodes.rest.maxConnections"}, Wrong{"as_the_kind_fills_in", "{enabled: true, maxConnections: 10, threadCount: 3}", "FieldsIgnored", "False"},
                                         Wrong{"low_port", "{enabled: true, rest: {port: 80}}", "SpecValid", "spec.slurmNodes.rest.rest.port: slurmrestd has no right"}, Wrong{"filter", "{enabled: true, k8sNodeFilterName: nowhere}", "SpecValid", "\"nowhere\" is not among"}),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::slurm
