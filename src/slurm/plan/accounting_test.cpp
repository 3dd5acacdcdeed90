// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/accounting.h"

#include <gmock/gmock.h>

#include "slurm/plan/accounting_test_world.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {
namespace {

using namespace test;

using kube::Json;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Accounting, MakesADatabaseWithAClaimAndSlurmdbd) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}", "{replicas: 2}"));
  world.settle();
  EXPECT_THAT(names(world.snapshot.pods), ElementsAre("accounting-0", "accounting-1", "controller-0", "demo-acct-db-0", "login-0", "worker-0"));
  EXPECT_THAT(names(world.snapshot.claims), ElementsAre("backup-demo-acct-db-0", "data-demo-acct-db-0", "jail-pvc"));
  EXPECT_THAT(names(world.snapshot.services), testing::IsSupersetOf({"demo-accounting-svc", "demo-accounting-0", "demo-accounting-1"}));
  EXPECT_THAT(names(world.snapshot.policies), Contains("demo-network-database"));
  EXPECT_FALSE(world.snapshot.claims["data-demo-acct-db-0"]["metadata"].has("ownerReferences")) << "records outlive the cluster";
  EXPECT_EQ(world.snapshot.pods["demo-acct-db-0"]["spec"]["containers"].items()[0]["image"].string(), "registry/mariadb:10.11");
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr("False DatabaseAway"));
  world.all_ready();
  EXPECT_EQ(world.condition("AccountingAvailable"), "True Ready 2 of 2 slurmdbd, the cluster's own database by TLS");
  EXPECT_THAT(world.condition("BackupFresh"), HasSubstr("True Fresh"));
  EXPECT_EQ(world.look().status["phase"].string(), "Available");
  world.snapshot.pods["accounting-1"].erase("status");
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr("True Degraded 1 of 2"));
}

TEST(Accounting, SecretsReachThePodsThatNeedThemAlone) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}", "{replicas: 2}"));
  world.settle();
  for (const auto& [name, pod] : world.snapshot.pods) {
    const std::string spec = kube::print_json(pod["spec"]);
    const bool may = name.starts_with("accounting-") || name == "demo-acct-db-0";
    EXPECT_EQ(spec.find("\"secretName\":\"demo-acct-db\"") != std::string::npos, may) << name;
    if (name.starts_with("accounting-")) {
      EXPECT_EQ(spec.find("tls.key"), std::string::npos) << "the server's key stays with the server";
    }
    EXPECT_EQ(spec.find("StoragePass"), std::string::npos);
  }
  for (const auto& [name, map] : world.snapshot.config_maps) EXPECT_EQ(kube::print_json(map).find("StoragePass"), std::string::npos) << name;
}

TEST(Accounting, SlurmConfNamesBothAndTheKindsThatAreCounted) {
  const auto cluster = read(demo("enabled: true, mariadbOperator: {enabled: true}, slurmConfig: {priorityWeightAge: 100, jobAcctGatherType: jobacct_gather/linux}", "{replicas: 2, enforce: \"associations,limits\"}"));
  const std::string conf = render_config(cluster, {}).at("slurm.conf");
  for (const char* line : {"AccountingStorageType=accounting_storage/slurmdbd\n", "AccountingStorageHost=demo-accounting-0.lab.svc.cluster.local\n", "AccountingStorageBackupHost=demo-accounting-1.lab.svc.cluster.local\n",
                           "AccountingStorageTRES=gres/gpu\n", "PriorityType=priority/multifactor\nPriorityWeightAge=100\n", "JobAcctGatherType=jobacct_gather/linux\n", "AccountingStorageEnforce=associations,limits\n"})
    EXPECT_THAT(conf, HasSubstr(line));
  EXPECT_EQ(start_settings(conf), "AccountingStorageType=accounting_storage/slurmdbd");
  const auto without = read(demo("enabled: false"));
  const std::string none = render_config(without, {}).at("slurm.conf");
  EXPECT_THAT(none, HasSubstr("AccountingStorageType=accounting_storage/none\n"));
  EXPECT_EQ(start_settings(none), "");
}

TEST(Accounting, SlurmdbdConfHasNoPassword) {
  const std::string conf = render_slurmdbd_conf(read(demo("enabled: true, mariadbOperator: {enabled: true}, slurmdbdConfig: {debugLevel: debug2, privateData: \"jobs,usage\"}", "{replicas: 2}")), 1, {});
  for (const char* line : {"DbdHost=accounting-0\n", "DbdAddr=demo-accounting-0.lab.svc.cluster.local\n", "DbdBackupHost=accounting-1\n", "CommunicationParameters=keepalivetime=2,keepaliveinterval=2,keepaliveprobes=3\n", "StorageHost=demo-acct-db-0.demo-acct-db.lab.svc.cluster.local\n", "StorageParameters=SSL_CA=/run/slurm/database-ca.crt\n", "DebugLevel=debug2\n", "PrivateData=jobs,usage\n"})
    EXPECT_THAT(conf, HasSubstr(line));
  EXPECT_THAT(conf, Not(HasSubstr("StoragePass")));
}

// Controllers wait for nobody: what is wrong with accounting leaves the rest of the cluster as it is.
struct BadCase {
  const char *name, *accounting, *extensions, *reason, *message;
};
class Bad : public testing::TestWithParam<BadCase> {};
TEST_P(Bad, IsToldAndTheClusterGoesOn) {
  World world(demo(GetParam().accounting, GetParam().extensions));
  world.settle();
  world.all_ready();
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr(std::string("False ") + GetParam().reason));
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr(GetParam().message));
  EXPECT_THAT(world.condition("ControllersAvailable"), HasSubstr("True"));
  EXPECT_THAT(world.condition("SpecValid"), HasSubstr("True"));
  EXPECT_THAT(names(world.snapshot.pods), ElementsAre("controller-0", "login-0", "worker-0"));
}
INSTANTIATE_TEST_SUITE_P(
    Accounting, Bad,
    testing::Values(BadCase{"no_database", "enabled: true", "{}", "Invalid", "none of mariadbOperator"},
                    BadCase{"two_databases", "enabled: true, mariadbOperator: {enabled: true}, externalDB: {enabled: true, host: h, user: u, passwordSecretKeyRef: {name: s}}", "{externalTLS: {mode: Disabled}}", "Invalid", "both of mariadbOperator"},
                    BadCase{"small_claim", "enabled: true, mariadbOperator: {enabled: true, storage: {size: 10Mi}}", "{}", "Invalid", "too small for a database; give it 512 MiB or more"},
                    BadCase{"three_slurmdbd", "enabled: true, mariadbOperator: {enabled: true}", "{replicas: 3}", "Invalid", "3 is neither 1 nor 2"},
                    BadCase{"unknown_nodes", "enabled: true, k8sNodeFilterName: none, mariadbOperator: {enabled: true}", "{}", "Invalid", "not among spec.k8sNodeFilters"},
                    BadCase{"second_line", "enabled: true, mariadbOperator: {enabled: true}", "{enforce: \"limits\\nSlurmUser=root\"}", "Invalid", "is not one word"},
                    BadCase{"no_secret", "enabled: true, externalDB: {enabled: true, host: db.example, user: slurm, passwordSecretKeyRef: {name: db-password, key: pw}}", "{externalTLS: {mode: Disabled}}", "SecretMissing", "Secret db-password (externalDB.passwordSecretKeyRef) is not there; create it with key pw"},
                    BadCase{"no_certificate", "enabled: true, externalDB: {enabled: true, host: db.example, user: slurm, passwordSecretKeyRef: {name: db-password}}", "{}", "Invalid", "externalTLS.mode: Disabled"},
                    BadCase{"bad_interval", "enabled: true, mariadbOperator: {enabled: true}", "{backup: {interval: often}}", "Invalid", "\"often\" is not a duration"}),
    [](const auto& row) { return row.param.name; });

TEST(Accounting, AnExternalDatabaseNeedsNoPodOfOurs) {
  World world(demo("enabled: true, externalDB: {enabled: true, host: db.example, port: 4406, user: acct, passwordSecretKeyRef: {name: pw, key: p}}", "{externalTLS: {caSecretKeyRef: {name: ca}}}"));
  world.snapshot.secrets["pw"] = Json::object({{"data", Json::object({{"p", "x"}})}});
  world.snapshot.secrets["ca"] = Json::object({{"data", Json::object({{"ca.crt", "x"}})}});
  world.settle();
  EXPECT_THAT(names(world.snapshot.pods), ElementsAre("accounting-0", "controller-0", "login-0", "worker-0"));
  const std::string spec = kube::print_json(world.snapshot.pods["accounting-0"]["spec"]);
  EXPECT_THAT(spec, HasSubstr(R"({"key":"p","path":"password"})"));
  EXPECT_THAT(spec, HasSubstr("StorageHost=db.example\\nStoragePort=4406\\nStorageUser=acct"));
  EXPECT_EQ(world.condition("BackupFresh"), "absent") << "the site's database is the site's to keep";
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr("does the database at db.example:4406 take user acct"));
}

World running_without() {
  World world(demo("enabled: false, mariadbOperator: {enabled: true}"));
  world.settle();
  world.all_ready();
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
  return world;
}
void switch_on(World& world) { world.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("enabled", true); }
bool made_for_accounting(const World& world) { return kube::print_json(world.snapshot.pods.at("controller-0")).find("FAIRLEAD_CONF_NEEDS") != std::string::npos; }
const std::string& mounted(const World& world) { return world.snapshot.config_maps.at("demo-slurm-configs")["data"]["slurm.conf"].string(); }

TEST(Accounting, SwitchingItOnRenewsTheHeadBeforeItIsToldOfIt) {
  World world = running_without();
  switch_on(world);
  // The files are there, and the daemon that still runs was started with others.
  for (int i = 0; i < 5; ++i) {
    Plan plan = world.look();
    std::erase_if(plan.steps, [](const Step& step) { return std::holds_alternative<DeletePod>(step); });
    for (const Step& step : plan.steps) EXPECT_FALSE(std::holds_alternative<Reconfigure>(step)) << "slurmctld 22.05 takes another AccountingStorageType at its start alone";
    world.apply(plan);
  }
  ASSERT_THAT(mounted(world), HasSubstr("AccountingStorageType=accounting_storage/slurmdbd\n"));
  EXPECT_THAT(world.steps(), ElementsAre("delete pod controller-0: its template has changed"));
  world.settle();
  EXPECT_TRUE(made_for_accounting(world));
  world.all_ready();
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("True"));
}

// Half of it would switch limits off, and cut a database off that runs.
TEST(Accounting, AMistakeInItTakesNothingBack) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}", "{enforce: \"associations,limits\"}"));
  world.settle();
  world.all_ready();
  world.settle();
  ASSERT_THAT(mounted(world), HasSubstr("AccountingStorageEnforce=associations,limits\n"));
  const auto policies = world.snapshot.policies;
  world.snapshot.cluster.child("spec").child("extensions").child("accounting").set("enforce", "associations, limits");
  world.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("externalDB", *kube::parse_json(R"({"enabled":true,"host":"h","user":"u"})"));
  world.settle();
  EXPECT_THAT(mounted(world), HasSubstr("AccountingStorageEnforce=associations,limits\n"));
  EXPECT_THAT(world.condition("ConfigValid"), testing::AllOf(HasSubstr("False Refused"), HasSubstr("enforce"), HasSubstr("stays in force")));
  EXPECT_EQ(world.snapshot.policies, policies);
  EXPECT_TRUE(world.snapshot.pods.contains("accounting-0"));
}

TEST(Accounting, WhatTheApiRefusesOfItHoldsNothingElseUp) {
  World world = running_without();
  switch_on(world);
  world.snapshot.pods.erase("worker-0");
  const Plan plan = world.look();
  std::vector<std::string> steps;
  for (const Step& step : plan.steps) steps.push_back(describe(step));
  const auto at = [&](const std::string& step) { return std::find(steps.begin(), steps.end(), step) - steps.begin(); };
  ASSERT_THAT(steps, testing::IsSupersetOf({"create persistentvolumeclaims data-demo-acct-db-0", "create services demo-accounting-svc"}));
  // Another round, in which what had to come first is there, and the claim is refused again.
  world.apply(plan);
  world.snapshot.claims.erase("data-demo-acct-db-0");
  world.snapshot.services.erase("demo-accounting-svc");
  steps.clear();
  for (const Step& step : world.look().steps) steps.push_back(describe(step));
  ASSERT_THAT(steps, Contains("create pods worker-0"));
  EXPECT_LT(at("create pods worker-0"), at("create persistentvolumeclaims data-demo-acct-db-0"));
  EXPECT_LT(at("create pods worker-0"), at("create services demo-accounting-svc"));
  EXPECT_THAT(steps, Not(Contains("create pods demo-acct-db-0")));
}

TEST(Accounting, TheHeadIsMadeForWhatItMountsNotForWhatIsAskedFor) {
  World world = running_without();
  world.verdict = Verdict::Refused;
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "SchedulerParameters=defer");
  switch_on(world);
  world.settle();
  EXPECT_THAT(world.condition("ConfigValid"), HasSubstr("False DaemonRefused"));
  EXPECT_FALSE(made_for_accounting(world)) << "it would wait for files that are not given to it";
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "MinJobAeg=1");
  world.settle();
  EXPECT_THAT(world.condition("ConfigValid"), HasSubstr("False Refused"));
  EXPECT_FALSE(made_for_accounting(world));
  world.verdict = Verdict::Good;
  world.snapshot.cluster.child("spec").set("customSlurmConfig", "SchedulerParameters=defer");
  world.snapshot.cluster.child("status").erase("configCheck");
  world.settle();
  EXPECT_TRUE(made_for_accounting(world));
}

TEST(Accounting, WhatIsTakenBackTakesTheHeadBackToo) {
  World world = running_without();
  switch_on(world);
  world.settle();
  ASSERT_TRUE(made_for_accounting(world));
  // It never becomes ready. Its companion waits 45 s for slurmdbd before it starts slurmctld alone.
  world.now += std::chrono::seconds(120);
  world.settle();
  EXPECT_TRUE(made_for_accounting(world)) << "not yet";
  world.now += std::chrono::seconds(60);
  world.settle();
  EXPECT_THAT(mounted(world), HasSubstr("AccountingStorageType=accounting_storage/none\n"));
  EXPECT_FALSE(made_for_accounting(world));
  world.all_ready();
  world.settle();
  EXPECT_THAT(world.condition("ConfigApplied"), HasSubstr("False RolledBack"));
  EXPECT_THAT(world.condition("ControllersAvailable"), HasSubstr("True"));
}

TEST(Accounting, SwitchingItOffKeepsTheData) {
  World world(demo());
  world.settle();
  world.all_ready();
  world.settle();
  world.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("enabled", false);
  world.settle();
  EXPECT_THAT(names(world.snapshot.pods), ElementsAre("controller-0", "login-0", "worker-0"));
  EXPECT_THAT(names(world.snapshot.claims), Contains("data-demo-acct-db-0"));
  EXPECT_THAT(world.condition("AccountingAvailable"), HasSubstr("False TurnedOff"));
}

TEST(Accounting, OfTwoSlurmdbdOneIsRenewedAtATime) {
  World world(demo("enabled: true, mariadbOperator: {enabled: true}", "{replicas: 2}"));
  world.settle();
  world.all_ready();
  world.settle();
  world.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("slurmdbdConfig", Json::object({{"debugLevel", "debug"}}));
  const auto count = [&] {
    int deleted = 0;
    for (const auto& step : world.look().steps) deleted += std::holds_alternative<DeletePod>(step);
    return deleted;
  };
  EXPECT_EQ(count(), 1);
  world.snapshot.pods.erase("accounting-0");
  EXPECT_EQ(count(), 0) << "the other serves alone";
}

}  // namespace
}  // namespace fairlead::slurm
