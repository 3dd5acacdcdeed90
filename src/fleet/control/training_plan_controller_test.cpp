// SPDX-License-Identifier: Apache-2.0
// Training plans over clusters, in the small world of cluster_test_site.h.
#include "fleet/control/training_plan_controller.h"

#include <gmock/gmock.h>

#include "base/test_rounds.h"
#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class PlanSite : public ClusterSite {
 public:
  explicit PlanSite(bool makes_machines = false) : ClusterSite(makes_machines) {
    restart_plans();
    began = clock.now();
  }
  void restart_plans() {
    plan_mortal = std::make_unique<MortalApi>(plan_checked);
    plan_fenced = std::make_unique<kube::FencedApi>(*plan_mortal, []() -> Result<std::int64_t> { return 1; });
    plan_controller = std::make_unique<TrainingPlanController>(*plan_fenced, clock);
    plan_controller->start(lagging ? static_cast<const kube::Caches&>(caches) : api);
  }

  Instant minute(int minutes) const { return began + std::chrono::minutes(minutes); }
  void plan(const std::string& name, int count, std::optional<int> from, int to, const char* type = "ml.g5.xlarge") {
    Json spec = Json::object({{"instanceType", type}, {"instanceCount", count}, {"endTime", print_time(minute(to))}});
    if (from) spec.set("startTime", print_time(minute(*from)));
    ASSERT_TRUE(api.create(api::kTrainingPlans, Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", std::move(spec)}})));
  }
  void extend(const std::string& name, const std::string& id, int from, int to) {
    Json object = api.all("trainingplans").at({"", name});
    object.child("spec").set("extensions", Json::array({Json::object({{"id", id}, {"startTime", print_time(minute(from))}, {"endTime", print_time(minute(to))}})}));
    ASSERT_TRUE(api.update(api::kTrainingPlans, object));
  }
  static Json workers(int count, const std::string& of_plan = "") {
    Json group = Json::object({{"instanceGroupName", "workers"}, {"instanceType", "ml.g5.xlarge"}, {"instanceCount", count}});
    if (!of_plan.empty()) group.set("trainingPlanArn", "arn:aws:sagemaker:fairlead-1:111122223333:training-plan/" + of_plan);
    return Json::object({{"nodeProvisioningMode", "Continuous"}, {"orchestrator", Json::object({{"eks", Json::object({{"clusterArn", "arn"}})}})}, {"instanceGroups", Json::array({std::move(group)})}});
  }
  Json plan_status(const std::string& name) { return api.all("trainingplans").at({"", name})["status"]; }
  std::string plan_phase(const std::string& name) { return plan_status(name)["phase"].string(); }
  std::string nodes_of(const std::string& cluster) {
    std::string out;
    for (const auto& [key, node] : api.all("nodes"))
      if (node["metadata"]["labels"][api::kClusterLabel].string() == cluster) out += (out.empty() ? "" : " ") + key.name;
    return out;
  }
  std::string kept_for(const std::string& plan) {
    std::string out;
    for (const auto& [key, node] : api.all("nodes"))
      if (node["metadata"]["labels"][api::kPlanLabel].string() == plan) out += (out.empty() ? "" : " ") + key.name;
    return out;
  }
  std::string message(const std::string& cluster) { return status(cluster)["instanceGroups"].items().empty() ? "" : status(cluster)["instanceGroups"].items().back()["message"].string(); }

  // Of the truth, whatever caches say: nobody without a plan has what is kept for one; no more is promised than there is.
  void guard() {
    check();
    EXPECT_TRUE(plan_checked.refusals().empty()) << plan_checked.refusals().front();
    std::map<std::string, std::string> plan_of;
    for (const auto& [key, cluster] : api.all("clusters"))
      for (const Json& group : cluster["spec"]["instanceGroups"].items()) plan_of[key.name + "/" + group["instanceGroupName"].string()] = api::plan_object_name(group["trainingPlanArn"].string());
    int free_of_others = 0;
    for (const auto& [key, node] : api.all("nodes")) {
      const Json& labels = node["metadata"]["labels"];
      if (labels[api::kSpareLabel].string() != "true" || labels["node.kubernetes.io/instance-type"].string() != "ml.g5.xlarge") continue;
      const std::string &owner = labels[api::kInstanceLabel].string(), &kept = labels[api::kPlanLabel].string();
      const auto instance = api.all("instances").find({"", owner});
      const std::string plan = instance == api.all("instances").end() ? "" : plan_of[instance->second["spec"]["cluster"].string() + "/" + instance->second["spec"]["instanceGroupName"].string()];
      if (instance != api.all("instances").end() && !plan.empty()) by_plan.insert({key.name, owner});
      // What it had by a plan it gives back, whatever its group names by now.
      if (!owner.empty() && instance != api.all("instances").end() && !kube::deleting(instance->second) && plan.empty() && (kept.empty() || !by_plan.contains({key.name, owner}))) {
        EXPECT_EQ(kept, "") << key.name << " is kept for a plan, and a group without one has it";
      } else {
        ++free_of_others;
      }
    }
    EXPECT_LE(api::peak(api::commitments(read_plans(list_plans()), "ml.g5.xlarge"), clock.now(), api::kForever), free_of_others + lost) << "more is promised than there is";
  }
  std::vector<Json> list_plans() {
    std::vector<Json> out;
    for (const auto& [key, object] : api.all("trainingplans")) out.push_back(object);
    return out;
  }
  void round() {
    (void)plan_controller->reconcile(TrainingPlanController::kAll);
    guard();
    reconcile();
    guard();
    tick();
    if (plan_mortal->dead) died = true, plan_writes = plan_mortal->writes, restart_plans();
    if (mortal->dead) died = true, restart();
  }
  void until(int minutes) {
    while (clock.now() < minute(minutes)) round();
  }

  Instant began;
  bool died = false;
  int lost = 0;  // Nodes that were made anew, without the marks that they had
  std::set<std::pair<std::string, std::string>> by_plan;  // Nodes and who has had them by a plan
  int plan_writes = 0;
  kube::CheckedApi plan_checked{api, kube::full_access(TrainingPlanController(api, clock))};
  std::unique_ptr<MortalApi> plan_mortal;
  std::unique_ptr<kube::FencedApi> plan_fenced;
  std::unique_ptr<TrainingPlanController> plan_controller;
};

TEST(TrainingPlans, KeepMachinesForTheGroupsThatNameThem) {
  PlanSite site;
  for (int i = 0; i < 4; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.create("a", PlanSite::workers(1));
  site.until(2);
  EXPECT_EQ(site.nodes_of("a"), "g0");
  site.plan("spring", 2, 10, 20);
  site.until(3);
  EXPECT_EQ(site.plan_phase("spring"), "Scheduled");
  EXPECT_EQ(site.kept_for("spring"), "g1 g2") << "from when it is granted: who has no plan has no end";
  EXPECT_EQ(site.plan_status("spring")["message"].string(), "begins at " + print_time(site.minute(10)));
  site.create("b", PlanSite::workers(3));
  site.create("s", PlanSite::workers(2, "spring"));
  site.until(6);
  EXPECT_EQ(site.nodes_of("b"), "g3");
  EXPECT_THAT(site.message("b"), HasSubstr("no machine of type ml.g5.xlarge is free (2 are in use or not ready, 2 are kept for training plans)"));
  EXPECT_EQ(site.nodes_of("s"), "");
  EXPECT_THAT(site.message("s"), HasSubstr("waits for training plan spring, which begins at " + print_time(site.minute(10))));
  EXPECT_EQ(site.phase("s"), "InService");
  site.until(12);
  EXPECT_EQ(site.plan_phase("spring"), "Active");
  EXPECT_EQ(site.nodes_of("s"), "g1 g2");
  EXPECT_EQ(site.summary("s"), "2/2");
  EXPECT_EQ(site.plan_status("spring")["instances"]["inUse"].integer(), 2);
  site.edit("s", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 3); });
  site.until(14);
  EXPECT_EQ(site.nodes_of("s"), "g1 g2") << "as many as it has";
  EXPECT_THAT(site.message("s"), HasSubstr("no machine of type ml.g5.xlarge is free of those that training plan spring has"));
  site.until(22);
  EXPECT_EQ(site.plan_phase("spring"), "Expired");
  EXPECT_EQ(site.nodes_of("s"), "g1 g2") << "what runs runs on";
  EXPECT_EQ(site.kept_for("spring"), "");
  EXPECT_THAT(site.plan_status("spring")["message"].string(), HasSubstr("2 machines stay with its groups until another plan needs them"));
  site.edit("s", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 1); });
  site.until(26);
  EXPECT_EQ(site.summary("s"), "1/1");
  EXPECT_EQ(site.summary("b"), "2/3") << "what is given back is anybody's again";
}

TEST(TrainingPlans, ThatDoNotFitAreRefusedAndTheOthersStay) {
  PlanSite site;
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 2, std::nullopt, 20);
  site.clock.advance(1s);
  site.plan("two", 2, 10, 30);
  site.plan("three", 1, 10, 30);
  site.plan("four", 3, 30, 40);
  site.until(2);
  EXPECT_EQ(site.plan_phase("one"), "Active") << "without a start it begins at once";
  EXPECT_EQ(site.plan_phase("two"), site.plan_phase("three") == "Failed" ? "Scheduled" : "Failed");
  EXPECT_THAT(site.plan_status("two")["message"].string(), HasSubstr("3 can be promised, and 3 of them are"));
  EXPECT_EQ(site.plan_phase("four"), "Scheduled");
  site.until(4);
  EXPECT_EQ(site.plan_phase("two"), "Failed");
}

TEST(TrainingPlans, AnEndTakesNoJobAndAnotherPlanWaitsForIt) {
  PlanSite site;
  site.spare("c0", "ml.c5.large", 2, 4, 0), site.spare("l0", "ml.t3.medium", 2, 4, 0), site.spare("g0", "ml.g5.xlarge", 4, 16, 1), site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 2, std::nullopt, 10);
  Json spec = site.spec(2);
  site.group_of(spec, "gpu").set("trainingPlanArn", "one");
  site.create("ml", spec);
  site.until(5);
  EXPECT_EQ(site.summary("ml"), "4/4");
  site.plan("two", 1, 10, 30);
  site.create("k", PlanSite::workers(1, "two"));
  site.busy = {"cluster-ml/gpu-0", "cluster-ml/gpu-1"};
  site.until(15);
  EXPECT_EQ(site.plan_phase("two"), "Active");
  EXPECT_EQ(site.nodes_of("k"), "");
  EXPECT_THAT(site.plan_status("two")["message"].string(), HasSubstr("1 machines are yet to be given back"));
  EXPECT_EQ(site.draining.size(), 1u) << "one is asked for, and one is emptied";
  site.busy.clear();
  site.until(20);
  EXPECT_EQ(site.summary("k"), "1/1");
  EXPECT_EQ(site.summary("ml"), "3/3");
  EXPECT_EQ(site.numbers("gpu").size(), 1u);
}

// BatchAdd tells ids of nodes: those wait for the plan and get their machines, under the same numbers.
TEST(TrainingPlans, NodesThatWereToldOfWaitForThePlan) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 1, 10, 30);
  site.create("k", PlanSite::workers(0, "one"));
  site.until(2);
  site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 1).set("issued", 1); });
  site.until(4);
  EXPECT_EQ(site.numbers("workers"), "1");
  EXPECT_THAT(site.instances("workers").at(0)["status"]["message"].string(), HasSubstr("waits for training plan one"));
  EXPECT_EQ(site.phase("k"), "InService");
  site.until(12);
  EXPECT_EQ(site.numbers("workers"), "1");
  EXPECT_EQ(site.nodes_of("k"), "g0");
}

// All or nothing: nothing is taken back because a plan is yet to begin.
TEST(TrainingPlans, AllOrNothingWaitsForThePlan) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1), site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 2, 60, 90);
  Json spec = PlanSite::workers(2, "one");
  spec.erase("nodeProvisioningMode");
  site.create("k", spec);
  site.until(50);
  EXPECT_EQ(site.phase("k"), "InService");
  EXPECT_FALSE(site.status("k").has("failed"));
  EXPECT_EQ(site.summary("k"), "0/0");
  site.until(65);
  EXPECT_EQ(site.phase("k"), "InService");
  EXPECT_EQ(site.summary("k"), "2/2");
}

// The number of an instance that goes is the one without a machine afterwards: no other instance goes for it.
TEST(TrainingPlans, AfterTheEndAnInstanceThatGoesTakesNoOtherWithIt) {
  for (const bool continuous : {true, false}) {
    PlanSite site;
    for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
    site.plan("one", 3, std::nullopt, 10);
    Json spec = PlanSite::workers(3, "one");
    if (!continuous) spec.erase("nodeProvisioningMode");
    site.create("k", spec);
    site.until(5);
    ASSERT_EQ(site.summary("k"), "3/3");
    site.until(12);
    ASSERT_EQ(site.plan_phase("one"), "Expired");
    const auto running = [&] {
      std::set<std::int64_t> out;
      for (const Json& one : site.instances("workers"))
        if (!kube::deleting(one) && !one["status"]["node"].string().empty()) out.insert(one["spec"]["number"].integer());
      return out;
    };
    const std::set<std::int64_t> all{1, 2, 3}, rest{2, 3};
    ASSERT_EQ(running(), all);
    std::string first;
    for (const Json& one : site.instances("workers"))
      if (one["spec"]["number"].integer() == 1) first = kube::name_of(one);
    ASSERT_TRUE(site.api.remove(api::kInstances, {"", first}));
    for (int i = 0; i < 40; ++i) {
      site.round();
      ASSERT_EQ(running(), rest) << (continuous ? "each for itself" : "all or nothing") << ", round " << i;
    }
    EXPECT_EQ(site.summary("k"), continuous ? "2/3" : "2/2");
  }
}

// However a group lets go of its plan: what it had by it is promised to the next.
TEST(TrainingPlans, WhatAPlanGaveOutGoesToTheNextOneWhateverTheGroupNames) {
  for (const char* way : {"no plan", "the plan is deleted", "a later plan", "no plan, after the end", "a later plan, after the end"}) {
    PlanSite site;
    site.spare("g0", "ml.g5.xlarge", 4, 16, 1), site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
    site.plan("one", 2, std::nullopt, 10);
    site.create("k", PlanSite::workers(2, "one"));
    site.until(3);
    ASSERT_EQ(site.nodes_of("k"), "g0 g1");
    site.plan("two", 2, 10, 60);
    site.plan("three", 2, 60, 90);
    site.create("n", PlanSite::workers(2, "two"));
    site.until(std::string_view(way).ends_with("end") ? 10 : 5);
    ASSERT_EQ(site.plan_phase("three"), "Scheduled");
    if (way[0] == 'n') site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").erase("trainingPlanArn"); });
    else if (way[0] == 'a') site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("trainingPlanArn", "three"); });
    else (void)site.api.remove(api::kTrainingPlans, {"", "one"});
    site.until(9);
    if (!std::string_view(way).ends_with("end")) {
      EXPECT_EQ(site.nodes_of("k"), "g0 g1") << way << ": nobody needs them yet";
    }
    site.until(25);
    EXPECT_EQ(site.nodes_of("n"), "g0 g1") << way;
    EXPECT_EQ(site.plan_status("two")["instances"]["inUse"].integer(), 2) << way;
  }
}

// A machine that breaks in use takes none from another group; one that is free has five minutes to come back.
TEST(TrainingPlans, ARebootDrainsNobody) {
  PlanSite site;
  for (int i = 0; i < 3; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.plan("over", 1, std::nullopt, 5);
  site.create("o", PlanSite::workers(1, "over"));
  site.until(2);
  site.plan("one", 2, std::nullopt, 100);
  site.create("k", PlanSite::workers(1, "one"));
  site.until(8);
  ASSERT_EQ(site.summary("k"), "1/1");
  ASSERT_EQ(site.nodes_of("o") + "," + site.nodes_of("k") + "," + site.kept_for("one"), "g0,g1,g1 g2");
  const auto gpus = [&](const char* count) {
    Json node = site.api.all("nodes").at({"", "g2"});
    node.child("status").child("capacity").set("nvidia.com/gpu", count);
    ASSERT_TRUE(site.api.update_status(resources::nodes, node));
  };
  gpus("0");
  site.until(9);
  site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 2); });
  site.until(12);
  EXPECT_EQ(site.summary("o"), "1/1");
  EXPECT_EQ(site.kept_for("one"), "g0 g1 g2");
  gpus("1");
  site.until(20);
  EXPECT_EQ(site.nodes_of("o"), "g0");
  EXPECT_EQ(site.nodes_of("k"), "g1 g2");
  EXPECT_EQ(site.kept_for("one"), "g1 g2");
  site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 1); });
  site.until(22);
  ASSERT_EQ(site.nodes_of("k"), "g1");
  gpus("0");
  site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", 2); });
  site.until(30);
  EXPECT_EQ(site.nodes_of("o"), "") << "after five minutes it is no moment any more";
}

TEST(TrainingPlans, ANodeThatCannotBeWrittenHoldsUpNoGrant) {
  PlanSite site;
  site.lagging = true;
  site.restart(), site.restart_plans();
  site.spare("c0", "ml.c5.large", 2, 4, 0), site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  Json node = site.api.all("nodes").at({"", "c0"});
  node.child("metadata").child("labels").set(api::kPlanLabel, "gone");
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.caches.refresh_all();
  node = site.api.all("nodes").at({"", "c0"});
  node.child("metadata").child("labels").set("mine", "x");
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.plan("one", 1, 10, 100);
  EXPECT_FALSE(site.plan_controller->reconcile(TrainingPlanController::kAll)) << "it is tried again";
  EXPECT_EQ(site.plan_phase("one"), "Scheduled");
}

TEST(TrainingPlans, AGroupGoesOnWithTheNextPlan) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1), site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 2, std::nullopt, 10);
  site.create("k", PlanSite::workers(2, "one"));
  site.until(3);
  site.plan("two", 2, 10, 30);
  site.until(5);
  const std::string instances = site.numbers("workers");
  site.edit("k", [&](Json& spec) { site.group_of(spec, "workers").set("trainingPlanArn", "two"); });
  site.until(20);
  EXPECT_EQ(site.numbers("workers"), instances) << "nothing was made anew";
  EXPECT_EQ(site.kept_for("two"), "g0 g1");
  EXPECT_EQ(site.plan_status("two")["instances"]["inUse"].integer(), 2);
  EXPECT_EQ(site.status("k")["instanceGroups"].items()[0]["message"].string(), "");
}

TEST(TrainingPlans, AreExtendedWhereNobodyElseHasTheMachines) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 1, std::nullopt, 10);
  site.create("k", PlanSite::workers(1, "one"));
  site.until(3);
  site.extend("one", "x", 10, 20);
  site.until(4);
  EXPECT_EQ(site.plan_status("one")["endTime"].string(), print_time(site.minute(20)));
  EXPECT_TRUE(site.plan_status("one")["extensions"].items().at(0)["granted"].boolean());
  site.until(15);
  EXPECT_EQ(site.plan_phase("one"), "Active");
  site.plan("two", 1, 20, 30);
  site.until(16);
  EXPECT_EQ(site.plan_phase("two"), "Scheduled");
  site.extend("one", "y", 20, 25);
  site.until(17);
  EXPECT_EQ(site.plan_status("one")["endTime"].string(), print_time(site.minute(20)));
  EXPECT_THAT(site.plan_status("one")["extensions"].items().back()["message"].string(), HasSubstr("1 can be promised, and 1 of them are"));
}

TEST(TrainingPlans, OfAPlanThatIsDeletedTheMachinesAreAnybodysAndWhatRunsRunsOn) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1), site.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 2, std::nullopt, 100);
  site.create("k", PlanSite::workers(1, "one"));
  site.create("b", PlanSite::workers(1));
  site.until(3);
  EXPECT_EQ(site.nodes_of("b"), "");
  ASSERT_TRUE(site.api.remove(api::kTrainingPlans, {"", "one"}));
  site.until(6);
  EXPECT_EQ(site.kept_for("one"), "");
  EXPECT_EQ(site.nodes_of("b"), "g1");
  EXPECT_EQ(site.nodes_of("k"), "g0");
  EXPECT_THAT(site.message("k"), HasSubstr("there is no training plan one: what the group has stays"));
}

TEST(TrainingPlans, ALabelThatSomebodyTakesAwayComesBackAfterTheEndToo) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 1, std::nullopt, 5);
  site.create("k", PlanSite::workers(1, "one"));
  site.until(8);
  ASSERT_EQ(site.plan_phase("one"), "Expired");
  const std::string instance = kube::name_of(site.instances("workers").at(0));
  Json node = site.api.all("nodes").at({"", "g0"});
  node.child("metadata").child("labels").erase(api::kInstanceLabel);
  ASSERT_TRUE(site.api.update(resources::nodes, node));
  site.until(10);
  EXPECT_EQ(site.api.all("nodes").at({"", "g0"})["metadata"]["labels"][api::kInstanceLabel].string(), instance);
}

TEST(TrainingPlans, NoMachineIsMadeForThem) {
  PlanSite site(true);
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  site.plan("one", 1, std::nullopt, 100);
  site.create("k", PlanSite::workers(2, "one"));
  site.create("b", PlanSite::workers(1));
  site.until(3);
  EXPECT_EQ(site.nodes_of("k"), "g0");
  EXPECT_EQ(site.summary("k"), "1/2");
  EXPECT_EQ(site.summary("b"), "1/1") << "who has no plan gets one made, as before";
  EXPECT_EQ(site.api.all("machines").size(), 1u);
}

TEST(TrainingPlans, HeadsOfSlurmHaveNone) {
  PlanSite site(true);
  Json spec = site.spec(1);
  site.group_of(spec, "controllers").set("trainingPlanArn", "one");
  site.create("ml", spec);
  site.until(1);
  EXPECT_THAT(site.status("ml")["message"].string(), HasSubstr("only groups of compute nodes have a training plan"));
}

TEST(TrainingPlans, WhereNobodyPlansNothingIsLookedAt) {
  PlanSite site;
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  for (const auto& source : site.plan_controller->sources())
    if (source.resource == resources::nodes) {
      EXPECT_THAT(source.keys({.before = {}, .after = site.api.all("nodes").at({"", "g0"})}), IsEmpty());
      Json left = site.api.all("nodes").at({"", "g0"});
      left.child("metadata").child("labels").set(api::kPlanLabel, "gone");
      EXPECT_EQ(source.keys({.before = {}, .after = left}).size(), 1u) << "a mark of a plan that is gone is taken away";
    }
}

// The cache goes on while a round is under way: what was decided on a free Node is not written to one that somebody has by now.
TEST(TrainingPlans, WhatIsDecidedOnOneVersionIsNotWrittenToAnother) {
  PlanSite site;
  site.lagging = true;
  site.restart(), site.restart_plans();
  site.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  site.caches.refresh_all();
  site.plan("one", 1, std::nullopt, 100);
  // The first that is read in a round are plans: then somebody takes the machine, and the cache hears of it behind the inventory.
  struct Late final : kube::Caches {
    const kube::Caches& under;
    mutable int looks = 0;
    std::function<void()> then;
    explicit Late(const kube::Caches& of) : under(of) {}
    const kube::Reader& of(const kube::Resource& resource) const override {
      if (resource == resources::nodes && ++looks == 2) then();
      return under.of(resource);
    }
  } late(site.caches);
  late.then = [&] {
    Json node = site.api.all("nodes").at({"", "g0"});
    node.child("metadata").child("labels").set(api::kInstanceLabel, "i-other");
    ASSERT_TRUE(site.api.update(resources::nodes, node));
    site.caches.refresh("nodes");
  };
  TrainingPlanController controller(*site.plan_fenced, site.clock);
  controller.start(late);
  EXPECT_FALSE(controller.reconcile(TrainingPlanController::kAll));
  EXPECT_EQ(late.looks, 2);
  EXPECT_EQ(site.kept_for("one"), "");
}

TEST(TrainingPlans, ThousandsOfMachinesAreLookedAtOnceASecond) {
  PlanSite site;
  for (int i = 0; i < 1001; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  const auto look = [&] { return site.plan_controller->reconcile(TrainingPlanController::kAll); };
  site.clock.advance(1s);
  site.plan("one", 1, 10, 20);
  ASSERT_TRUE(look());
  EXPECT_EQ(site.plan_phase("one"), "Scheduled");
  site.plan("two", 1, 10, 20);
  const auto next = look();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->again_after, std::chrono::nanoseconds(1s));
  EXPECT_EQ(site.plan_phase("two"), "");
  site.clock.advance(1s);
  ASSERT_TRUE(look());
  EXPECT_EQ(site.plan_phase("two"), "Scheduled");
}

// A death before or after each write of either controller: the same end.
std::string live(PlanSite& site) {
  std::string out;
  const auto told = [&](const char* what) {
    out += fmt::format("{}:", what);
    for (const auto& [key, plan] : site.api.all("trainingplans")) out += fmt::format(" {} {} [{}]", key.name, plan["status"]["phase"].string(), site.kept_for(key.name));
    for (const char* cluster : {"a", "k", "s"}) out += fmt::format(" {}: {}", cluster, site.nodes_of(cluster));
    out += "\n";
  };
  for (int i = 0; i < 4; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
  site.create("a", PlanSite::workers(1));
  site.until(1);
  site.plan("one", 2, 3, 10);
  site.create("k", PlanSite::workers(2, "one"));
  site.until(2);
  site.plan("two", 3, 14, 30);
  site.plan("three", 2, 5, 15);
  site.until(6);
  told("begun");
  site.extend("one", "x", 10, 12);
  site.create("s", PlanSite::workers(3, "two"));
  site.until(13);
  told("ended");
  site.until(20);
  told("the next one");
  for (const char* cluster : {"a", "k", "s"}) site.remove(cluster);
  for (const char* plan : {"one", "two", "three"}) (void)site.api.remove(api::kTrainingPlans, {"", plan});
  site.until(25);
  told("all gone");
  return out;
}

TEST(TrainingPlans, ADeathAtAnyWriteEndsTheSame) {
  PlanSite whole;
  const std::string wanted = live(whole);
  EXPECT_EQ(wanted,
            "begun: one Active [g1 g2] three Failed [] two Scheduled [g3] a: g0 k: g1 g2 s: \n"
            "ended: one Expired [] three Failed [] two Scheduled [g1 g2 g3] a: g0 k: g1 g2 s: \n"
            "the next one: one Expired [] three Failed [] two Active [g1 g2 g3] a: g0 k:  s: g1 g2 g3\n"
            "all gone: a:  k:  s: \n");
  const int plan_writes = whole.plan_mortal->writes, cluster_writes = whole.mortal->writes;
  ASSERT_GT(plan_writes, 15);
  for (const auto how : {MortalApi::Death::Before, MortalApi::Death::After}) {
    for (int death = 0; death < plan_writes; death += test_stride() > 1 ? plan_writes / 2 : 1) {
      PlanSite site;
      site.plan_mortal->dies_at = death, site.plan_mortal->how = how;
      ASSERT_EQ(live(site), wanted) << "death of plans at write " << death << (how == MortalApi::Death::Before ? ", before it" : ", after it");
      ASSERT_TRUE(site.died);
    }
    for (int death = 0; death < cluster_writes; death += std::getenv("FAIRLEAD_FULL") != nullptr ? 1 : test_stride() > 1 ? cluster_writes / 2 : 3) {
      PlanSite site;
      site.mortal->dies_at = death, site.mortal->how = how;
      ASSERT_EQ(live(site), wanted) << "death of clusters at write " << death << (how == MortalApi::Death::Before ? ", before it" : ", after it");
      ASSERT_TRUE(site.died);
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Caches that are behind, requests at any time, two that want the last machine: guard() looks after each step.
TEST(TrainingPlansProperty, WithCachesBehindNothingIsPromisedTwice) {
  const int seeds = test_rounds(60, 1000, 3);
  for (int seed = 1; seed <= seeds; ++seed) {
    Rng rng(static_cast<std::uint64_t>(seed));
    PlanSite site;
    site.lagging = true;
    site.restart(), site.restart_plans();
    for (int i = 0; i < 5; ++i) site.spare(fmt::format("g{}", i), "ml.g5.xlarge", 4, 16, 1);
    for (const char* cluster : {"a", "b"}) site.create(cluster, PlanSite::workers(static_cast<int>(rng.below(3))));
    int plans = 0;
    for (int step = 0; step < 150; ++step) {
      for (const char* plural : LaggingCaches::kinds)
        if (rng.below(2) == 0) site.caches.refresh(plural);
      if (rng.below(2) == 0) (void)site.plan_controller->reconcile(TrainingPlanController::kAll);
      site.guard();
      if (rng.below(2) == 0) site.reconcile();
      site.guard();
      if (rng.below(3) == 0) site.tick();
      if (rng.below(20) == 0) site.restart(), site.restart_plans();
      if (plans < 8 && rng.below(6) == 0) {
        const int from = static_cast<int>((site.clock.now() - site.began) / 1min) + static_cast<int>(rng.below(4)), to = from + 1 + static_cast<int>(rng.below(6));
        site.plan(fmt::format("p{}", plans++), 1 + static_cast<int>(rng.below(3)), rng.below(3) == 0 ? std::nullopt : std::optional<int>(from), to);
      }
      const std::string cluster = rng.below(2) == 0 ? "a" : "b";
      if (rng.below(10) == 0) site.edit(cluster, [&](Json& spec) { site.group_of(spec, "workers").set("instanceCount", static_cast<int>(rng.below(4))); });
      if (plans > 0 && rng.below(8) == 0) {
        const std::string name = fmt::format("k{}", rng.below(3)), of = fmt::format("p{}", rng.below(static_cast<std::uint64_t>(plans)));
        if (!site.api.all("clusters").contains({"", name})) site.create(name, PlanSite::workers(1 + static_cast<int>(rng.below(3)), of));
        else site.edit(name, [&](Json& spec) { site.group_of(spec, "workers").set("trainingPlanArn", of); });
      }
      if (rng.below(8) == 0) {
        Json node = site.api.all("nodes").at({"", fmt::format("g{}", rng.below(5))});
        node.child("status").child("capacity").set("nvidia.com/gpu", rng.below(3) == 0 ? "0" : "1");
        (void)site.api.update_status(resources::nodes, node);
      }
      if (rng.below(60) == 0) {
        const std::string name = fmt::format("g{}", rng.below(5));
        (void)site.api.remove(resources::nodes, {"", name});
        site.spare(name, "ml.g5.xlarge", 4, 16, 1);
        ++site.lost;
      }
      if (const std::string name = fmt::format("k{}", rng.below(3)); rng.below(15) == 0 && site.api.all("clusters").contains({"", name})) site.edit(name, [&](Json& spec) { site.group_of(spec, "workers").erase("trainingPlanArn"); });
      if (plans > 0 && rng.below(40) == 0) (void)site.api.remove(api::kTrainingPlans, {"", fmt::format("p{}", rng.below(static_cast<std::uint64_t>(plans)))});
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    for (int i = 0; i < 5; ++i) {
      Json node = site.api.all("nodes").at({"", fmt::format("g{}", i)});
      node.child("status").child("capacity").set("nvidia.com/gpu", "1");
      (void)site.api.update_status(resources::nodes, node);
    }
    std::string before;
    for (int round = 0, still = 0; still < 5; ++round) {
      ASSERT_LT(round, 1000) << "seed " << seed << " does not come to rest";
      site.caches.refresh_all();
      site.round();
      const std::string after = site.picture();
      still = after == before ? still + 1 : 0;
      before = after;
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::fleet
