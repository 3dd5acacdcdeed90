// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/sharing.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/accounting_test_world.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using namespace test;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kOf = "{of: {namespace: lab, name: demo}}";
constexpr const char* kShares = "{replicas: 2, sharedWith: [{namespace: field, name: tent}]}";

Json cluster(const std::string& space, const std::string& name, const std::string& accounting, const std::string& extensions) {
  Json out = demo(accounting, extensions);
  out.child("metadata").set("name", name).set("namespace", space).set("uid", space + "-" + name);
  return out;
}
Json host_cluster(const std::string& extensions = kShares) { return cluster("lab", "demo", "enabled: true, slurmdbd: {port: 7819}, mariadbOperator: {enabled: true}", extensions); }
Json guest_cluster(const std::string& extensions = kOf, const std::string& accounting = "enabled: true") { return cluster("field", "tent", accounting, extensions); }

// Two clusters, each of which sees the other as it is now.
struct Site {
  World host{host_cluster()}, guest{guest_cluster()};
  bool host_there = true;
  void see() {
    auto& seen = guest.snapshot.neighbours;
    seen.host = host_there ? host.snapshot.cluster : Json();
    const auto key = host.snapshot.secrets.find("demo-munge");
    seen.host_mark = host_there && key != host.snapshot.secrets.end() ? munge_mark(key->second) : "";
    const auto named = host_of(guest.snapshot.cluster);
    host.snapshot.neighbours.guests.clear();
    if (named == api::ClusterRef{"lab", "demo"}) host.snapshot.neighbours.guests.push_back(guest.snapshot.cluster);
  }
  void settle() {
    for (int i = 0; i < 12; ++i) {
      see();
      if (host_there) host.settle(), host.all_ready_in("demo");
      see();
      guest.settle();
      guest.all_ready_in("tent");
    }
    see();
  }
  bool held() const { return kube::has_finalizer(host.snapshot.cluster, kSharingFinalizer); }
  bool joined() const { return guest.snapshot.cluster["status"]["sharedAccounting"].is_object(); }
  std::string key_of_guest() { return guest.snapshot.secrets.contains("tent-munge") ? guest.snapshot.secrets["tent-munge"]["data"]["munge.key"].string() : "none"; }
  std::string conf() { return guest.snapshot.config_maps["tent-slurm-configs"]["data"]["slurm.conf"].string(); }
  std::string policy(World& of, const std::string& name) { return kube::print_json(of.snapshot.policies[name]["spec"]); }
};

TEST(Sharing, AGuestWritesToTheHostsSlurmdbd) {
  Site site;
  site.settle();
  EXPECT_EQ(site.guest.condition("AccountingAvailable"), "True Shared slurmdbd of lab/demo takes the records");
  EXPECT_EQ(site.host.condition("AccountingShared"), "True InUse keeps the records of field/tent");
  EXPECT_EQ(site.key_of_guest(), "lab/demo");
  EXPECT_TRUE(site.held());
  EXPECT_THAT(names(site.guest.snapshot.pods), testing::ElementsAre("controller-0", "login-0", "worker-0"));
  EXPECT_THAT(site.conf(), HasSubstr("AccountingStorageHost=demo-accounting-0.lab.svc.cluster.local\nAccountingStorageBackupHost=demo-accounting-1.lab.svc.cluster.local\nAccountingStoragePort=7819\n"));
  EXPECT_THAT(kube::print_json(site.guest.snapshot.cluster["status"]["sharedAccounting"]), R"({"namespace":"lab","name":"demo","port":7819,"replicas":2,"addresses":true})");
  EXPECT_THAT(site.guest.condition("FieldsIgnored"), HasSubstr("False"));
}

// Services of the host's pods are there only once its operator made them; pods' own names are always good.
TEST(Sharing, AGuestNamesAddressesOnceTheHostHasThem) {
  Site site;
  site.settle();
  const std::string by_pod = "AccountingStorageHost=accounting-0.demo-accounting-svc.lab.svc.cluster.local\nAccountingStorageBackupHost=accounting-1.demo-accounting-svc.lab.svc.cluster.local\n";
  const std::string by_address = "AccountingStorageHost=demo-accounting-0.lab.svc.cluster.local\nAccountingStorageBackupHost=demo-accounting-1.lab.svc.cluster.local\n";
  // As an earlier release left both.
  site.host.snapshot.cluster.child("status").erase("accountingAddresses");
  site.guest.snapshot.cluster.child("status").child("sharedAccounting").erase("addresses");
  site.see();
  site.guest.settle();
  EXPECT_THAT(site.conf(), HasSubstr(by_pod));
  site.settle();
  EXPECT_THAT(site.conf(), HasSubstr(by_address));
  // What is remembered stays, whatever the host says later.
  site.host.snapshot.cluster.child("status").erase("accountingAddresses");
  site.see();
  site.guest.settle();
  EXPECT_THAT(site.conf(), HasSubstr(by_address));
}

TEST(Sharing, OpensTheWaysOfTheseTwoAndNoOthers) {
  Site site;
  site.settle();
  const std::string dbd = site.policy(site.host, "demo-network-accounting");
  for (const char* role : {"controller", "worker", "login"})
    EXPECT_THAT(dbd, HasSubstr(std::string(R"({"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"field"}},"podSelector":{"matchLabels":{"fairlead.dev/slurm-cluster":"tent","fairlead.dev/slurm-role":")") + role));
  EXPECT_THAT(site.policy(site.guest, "tent-network-login"), HasSubstr(R"({"ports":[{"protocol":"TCP","port":7819}],"to":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"lab"}})"));
  EXPECT_THAT(site.policy(site.guest, "tent-network-controller"), HasSubstr(R"("fairlead.dev/slurm-cluster":"demo","fairlead.dev/slurm-role":"accounting")"));
  EXPECT_THAT(names(site.guest.snapshot.policies), Not(Contains("tent-network-accounting")));
  EXPECT_THAT(site.policy(site.host, "demo-network-database"), Not(HasSubstr("field")));
}

struct RefusalCase {
  const char* name;
  Json host, guest;
  const char* reason;
  const char* message;
};
class Refused : public testing::TestWithParam<RefusalCase> {};
TEST_P(Refused, BeginsNothingAndSaysWhatToDo) {
  Site site{World{GetParam().host}, World{GetParam().guest}};
  site.host_there = !GetParam().host.is_null();
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr(std::string("False ") + GetParam().reason));
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr(GetParam().message));
  EXPECT_THAT(site.guest.condition("CommonAvailable"), HasSubstr(GetParam().message));
  EXPECT_EQ(site.key_of_guest(), "none") << "a key of its own would keep it out for ever";
  EXPECT_THAT(site.guest.snapshot.pods, IsEmpty());
  EXPECT_FALSE(site.joined());
}
INSTANTIATE_TEST_SUITE_P(
    Sharing, Refused,
    testing::Values(RefusalCase{"no_such_cluster", Json(), guest_cluster(), "NoSuchCluster", "there is no SlurmCluster lab/demo; make it, or name another"},
                    RefusalCase{"not_allowed", host_cluster("{}"), guest_cluster(), "NotAllowed", "its owner adds {namespace: field, name: tent} to spec.extensions.accounting.sharedWith there"},
                    RefusalCase{"of_another_space", host_cluster("{sharedWith: [{namespace: meadow, name: tent}]}"), guest_cluster(), "NotAllowed", "{namespace: field, name: tent}"},
                    RefusalCase{"switched_off", cluster("lab", "demo", "enabled: false", kShares), guest_cluster(), "NoAccountingThere", "set spec.slurmNodes.accounting.enabled there"},
                    RefusalCase{"second_hand", cluster("lab", "demo", "enabled: true", "{of: {namespace: moon, name: base}}"), guest_cluster(), "NoAccountingThere", "its records go to moon/base; name that cluster"},
                    RefusalCase{"second_of_its_name", host_cluster("{sharedWith: [{namespace: meadow, name: tent}, {namespace: field, name: tent}]}"), guest_cluster(), "NameTaken", "this cluster needs another name"},
                    RefusalCase{"no_name", host_cluster(), guest_cluster("{of: {namespace: lab}}"), "Invalid", "name a SlurmCluster by namespace and name"},
                    RefusalCase{"bad_name", host_cluster(), guest_cluster("{of: {namespace: lab, name: De_mo}}"), "Invalid", "spec.extensions.accounting.of.name"},
                    RefusalCase{"own_namespace", host_cluster(), guest_cluster("{of: {namespace: field, name: demo}}"), "Invalid", "is this cluster's own namespace"},
                    RefusalCase{"a_database_too", host_cluster(), guest_cluster(kOf, "enabled: true, mariadbOperator: {enabled: true}"), "Invalid", "mariadbOperator names a database of this one; switch one of them off"},
                    RefusalCase{"shares_on", host_cluster(), guest_cluster("{of: {namespace: lab, name: demo}, sharedWith: [{namespace: moon, name: base}]}"), "Invalid", "has none to share"}),
    [](const auto& row) { return row.param.name; });

// Slurm tells clusters by their names alone: whoever edits the list must not hand one's records over to another.
TEST(Sharing, AnotherOrderOfTheListMovesNoName) {
  Site site{World{host_cluster("{sharedWith: [{namespace: field, name: tent}, {namespace: meadow, name: tent}]}")}};
  site.settle();
  ASSERT_TRUE(site.joined());
  EXPECT_EQ(kube::print_json(site.host.snapshot.cluster["status"]["accountingGuests"]), R"([{"namespace":"field","name":"tent"}])");
  auto parsed = kube::parse_yaml("[{namespace: meadow, name: tent}, {namespace: field, name: tent}]");
  ASSERT_TRUE(parsed);
  site.host.snapshot.cluster.child("spec").child("extensions").child("accounting").set("sharedWith", parsed->at(0));
  site.settle();
  EXPECT_EQ(site.guest.condition("AccountingAvailable"), "True Shared slurmdbd of lab/demo takes the records");
  World other{cluster("meadow", "tent", "enabled: true", kOf)};
  const auto other_asks = [&] {
    site.see();
    other.snapshot.neighbours.host = site.host.snapshot.cluster;
    other.snapshot.neighbours.host_mark = munge_mark(site.host.snapshot.secrets["demo-munge"]);
    other.settle();
    return other.condition("AccountingAvailable");
  };
  EXPECT_THAT(other_asks(), HasSubstr("False NameTaken"));
  // The first of them is gone: the name is free.
  site.guest.snapshot.cluster.child("spec").child("extensions").child("accounting").erase("of");
  site.settle();
  EXPECT_TRUE(site.host.snapshot.cluster["status"]["accountingGuests"].is_null());
  EXPECT_THAT(other_asks(), HasSubstr("Waiting"));
}

TEST(Sharing, TheHostsNameIsTakenToo) {
  Site site{World{cluster("lab", "demo", "enabled: true, mariadbOperator: {enabled: true}", "{sharedWith: [{namespace: field, name: demo}]}")}, World{cluster("field", "demo", "enabled: true", kOf)}};
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False NameTaken"));
}

TEST(Sharing, AnOperatorOfOneNamespaceSaysSo) {
  Site site;
  site.guest.snapshot.neighbours.readable = false;
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False OneNamespace"));
  Json held = host_cluster("{}");
  kube::add_finalizer(held, kSharingFinalizer);
  held.set("status", Json::object());
  EXPECT_FALSE(plan_hold({.cluster = held, .neighbours = {.readable = false}}, "slurm:22.05")) << "who sees no guests does not know that there are none";
}

// Whatever comes first, and wherever an operator dies: a guest joins a host that is held, with the host's key, and in the end both are as wanted.
TEST(SharingProperty, AnyOrderAndAnyCrashEndsTheSame) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(30, 300); ++seed) {
    Rng rng(seed);
    Site site;
    const Json consent = site.host.snapshot.cluster["spec"]["extensions"];
    if (rng.below(2) == 0) site.host.snapshot.cluster.child("spec").set("extensions", Json::object());
    site.host_there = rng.below(2) == 0;
    for (int i = 0; i < 60; ++i) {
      site.see();
      const bool at_host = rng.below(2) == 0;
      if (at_host && !site.host_there) {
        site.host_there = rng.below(3) == 0;
        continue;
      }
      World& world = at_host ? site.host : site.guest;
      Plan plan = world.look();
      if (rng.below(4) == 0) plan.steps.resize(rng.below(plan.steps.size() + 1));  // it died here
      if (!plan.status.is_null()) world.apply(plan);
      if (rng.below(6) == 0) site.host.snapshot.cluster.child("spec").set("extensions", consent);
      if (rng.below(3) == 0) site.host.all_ready_in("demo");
      EXPECT_TRUE(!site.joined() || site.held()) << "seed " << seed;
      EXPECT_TRUE(site.key_of_guest() == "none" || site.key_of_guest() == "lab/demo") << "seed " << seed;
      EXPECT_TRUE(site.guest.snapshot.pods.empty() || site.joined()) << "seed " << seed;
    }
    site.host_there = true;
    site.host.snapshot.cluster.child("spec").set("extensions", consent);
    site.settle();
    EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("True Shared")) << "seed " << seed;
  }
}

TEST(Sharing, ConsentIsTakenBackAndTheGuestKeepsWhatItHas) {
  Site site;
  site.settle();
  const std::string conf = site.conf();
  site.host.snapshot.cluster.child("spec").child("extensions").child("accounting").erase("sharedWith");
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False NotAllowed"));
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("the cluster goes on and slurmctld keeps the records until then"));
  EXPECT_EQ(site.conf(), conf) << "another storage of records would throw away what waits for slurmdbd";
  EXPECT_TRUE(site.joined());
  EXPECT_FALSE(site.held());
  EXPECT_THAT(site.policy(site.host, "demo-network-accounting"), Not(HasSubstr("field")));
  EXPECT_THAT(site.policy(site.guest, "tent-network-login"), Not(HasSubstr(R"("lab")")));
  EXPECT_EQ(site.host.condition("AccountingShared"), "False Unused no other cluster keeps its records here; asked for and not allowed: field/tent; spec.extensions.accounting.sharedWith says who is, each by a name of its own");
}

TEST(Sharing, AGuestJoinsNobodyWhoIsNotHeld) {
  Site site;
  const Json consent = site.host.snapshot.cluster["spec"]["extensions"];
  site.host.snapshot.cluster.child("spec").child("extensions").child("accounting").erase("sharedWith");
  site.settle();
  // The host has its key and serves; consent comes, and only the guest looks: nothing keeps the host from going.
  site.host.snapshot.cluster.child("spec").set("extensions", consent);
  for (int i = 0; i < 6; ++i) {
    site.see();
    site.guest.settle();
    EXPECT_FALSE(site.joined());
    EXPECT_EQ(site.key_of_guest(), "none");
    EXPECT_TRUE(site.guest.snapshot.pods.empty());
  }
  site.settle();
  EXPECT_TRUE(site.joined() && site.held());
}

TEST(Sharing, TheSlurmdbdOfAHostThatIsDeletedIsMadeAnew) {
  Site site;
  site.settle();
  site.host.snapshot.cluster.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  for (const char* lost : {"accounting-0", "worker-0", "login-0"}) site.host.snapshot.pods.erase(lost);
  site.see();
  site.host.apply(site.host.look());
  EXPECT_THAT(names(site.host.snapshot.pods), Contains("accounting-0"));
  EXPECT_THAT(names(site.host.snapshot.pods), Not(Contains("worker-0"))) << "its own work is over";
  site.host.all_ready_in("demo");
  EXPECT_THAT(site.host.condition("AccountingAvailable"), HasSubstr("True"));
  EXPECT_THAT(site.host.steps(), IsEmpty()) << "and then it is at rest";
  // An earlier release made no addresses: its pods are kept all the same.
  site.host.snapshot.services.erase("demo-accounting-0");
  EXPECT_THAT(site.host.steps(), testing::ElementsAre("create services demo-accounting-0"));
  site.host.apply(site.host.look());
  EXPECT_THAT(site.host.condition("AccountingAvailable"), HasSubstr("True"));
  // Kubernetes would end it again at once.
  kube::add_finalizer(site.host.snapshot.cluster, "foregroundDeletion");
  site.host.snapshot.pods.erase("accounting-0");
  EXPECT_THAT(site.host.steps(), IsEmpty());
  EXPECT_THAT(site.host.condition("AccountingShared"), HasSubstr("deleted in the foreground"));
}

TEST(Sharing, AHostThatIsDeletedStaysUntilNobodyUsesIt) {
  Site site;
  site.settle();
  site.host.snapshot.cluster.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  site.see();
  Plan plan = site.host.look();
  EXPECT_THAT(plan.steps, IsEmpty());
  site.host.apply(plan);
  EXPECT_THAT(site.host.condition("AccountingShared"), HasSubstr("True DeletionWaits this cluster stays, with its slurmdbd, until field/tent use it no more"));
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False HostGoes lab/demo is being deleted"));
  site.guest.snapshot.cluster.child("spec").child("extensions").child("accounting").erase("of");
  site.see();
  plan = site.host.look();
  ASSERT_EQ(plan.steps.size(), 1U);
  site.host.apply(plan);
  EXPECT_FALSE(site.held());
}

TEST(Sharing, AccountingThatOthersUseIsNotSwitchedOff) {
  Site site;
  site.settle();
  site.host.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("enabled", false);
  site.settle();
  EXPECT_THAT(names(site.host.snapshot.pods), Contains("accounting-0"));
  EXPECT_THAT(names(site.host.snapshot.policies), Contains("demo-network-accounting"));
  EXPECT_THAT(site.host.condition("AccountingAvailable"), HasSubstr("True KeptForOthers"));
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("True Shared"));
  site.guest.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("enabled", false);
  site.settle();
  EXPECT_THAT(names(site.host.snapshot.pods), Not(Contains("accounting-0")));
  EXPECT_FALSE(site.joined());
}

TEST(Sharing, AClusterWithAKeyOfItsOwnIsLeftAsItIs) {
  Site site{World{host_cluster()}, World{guest_cluster("{}", "enabled: false")}};
  site.settle();
  EXPECT_EQ(site.key_of_guest(), "field/tent");
  const std::string conf = site.conf();
  const auto pods = names(site.guest.snapshot.pods);
  site.guest.snapshot.cluster.child("spec").child("slurmNodes").child("accounting").set("enabled", true);
  site.guest.snapshot.cluster.child("spec").child("extensions").set("accounting", guest_cluster()["spec"]["extensions"]["accounting"]);
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False KeyDiffers"));
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("kubectl -n field delete secret tent-munge"));
  EXPECT_THAT(site.conf(), HasSubstr("AccountingStorageType=accounting_storage/none"));
  EXPECT_EQ(site.conf(), conf);
  EXPECT_EQ(names(site.guest.snapshot.pods), pods);
  // What it says, done.
  site.guest.snapshot.secrets.erase("tent-munge");
  site.guest.snapshot.pods.clear();
  site.settle();
  EXPECT_EQ(site.key_of_guest(), "lab/demo");
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("True Shared"));
}

TEST(Sharing, AMistakeLaterTakesNothingAway) {
  Site site;
  site.settle();
  const std::string conf = site.conf(), ways = site.policy(site.guest, "tent-network-login");
  site.guest.snapshot.cluster.child("spec").child("extensions").child("accounting").child("of").set("name", "De_mo");
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False Invalid spec.extensions.accounting.of.name"));
  EXPECT_EQ(site.conf(), conf);
  EXPECT_EQ(site.policy(site.guest, "tent-network-login"), ways);
  EXPECT_TRUE(site.joined() && site.held());
}

TEST(Sharing, AGuestWithLinesOfItsOwnComesUp) {
  Json guest = guest_cluster();
  guest.child("spec").set("customSlurmConfig", "MinJobAge=4000");
  Site site{World{host_cluster()}, World{guest}};
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("True Shared"));
  EXPECT_THAT(site.conf(), HasSubstr("AccountingStoragePort=7819"));
}

TEST(Sharing, WhatTheHostLacksTheGuestSays) {
  Site site;
  site.settle();
  site.host.snapshot.pods["demo-acct-db-0"].erase("status");
  site.see();
  site.host.apply(site.host.look());
  site.see();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False HostAway accounting of lab/demo is not available: demo-acct-db-0"));
}

TEST(Sharing, AGuestThatHadItsOwnDatabaseEndsItsPodsOnceItJoined) {
  World before(guest_cluster("{}", "enabled: true, mariadbOperator: {enabled: true}"));
  before.settle();
  EXPECT_THAT(names(before.snapshot.pods), Contains("accounting-0"));
  Site site{World{host_cluster()}, std::move(before)};
  site.guest.snapshot.cluster.set("spec", guest_cluster()["spec"]);
  site.settle();
  EXPECT_THAT(site.guest.condition("AccountingAvailable"), HasSubstr("False KeyDiffers"));
  EXPECT_THAT(names(site.guest.snapshot.pods), Contains("accounting-0")) << "its own goes on";
  site.guest.snapshot.secrets["tent-munge"] = site.host.snapshot.secrets["demo-munge"];
  site.settle();
  EXPECT_THAT(names(site.guest.snapshot.pods), Not(Contains("accounting-0")));
}

}  // namespace
}  // namespace fairlead::slurm
