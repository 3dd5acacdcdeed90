// SPDX-License-Identifier: Apache-2.0
// Updates of software that alarms watch, and their way back (docs/design/065), in the small world of cluster_test_site.h.
#include <gmock/gmock.h>

#include "base/test_rounds.h"
#include "fleet/control/cluster_test_site.h"

namespace fairlead::fleet {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;
using State = api::Alarm::State;

struct SoftwareRollbacks : testing::Test {
  ClusterSite site;
  static ScriptFiles files(const std::string& version) { return {{"on_create.sh", "#!/bin/sh\necho " + version + "\n"}, {"on_init.sh", "#!/bin/sh\n"}}; }
  SoftwareRollbacks() { site.scripts->buckets["sagemaker-x"] = files("one"); }
  Json scripted(int workers, bool continuous = true) {
    Json out = site.spec(workers, continuous);
    Json& group = site.group_of(out, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh");
    return out;
  }
  void begin(int workers, bool continuous = true) {
    site.create("ml", scripted(workers, continuous));
    site.settle();
    ASSERT_EQ(site.phase("ml"), "InService");
    one = sums();
    site.scripts->buckets["sagemaker-x"] = files("two");
    two = bundle_scripts(files("two")).sum;
  }
  static constexpr const char* kOneByOne = R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"INSTANCE_COUNT","value":1},"rollbackMaximumBatchSize":{"type":"INSTANCE_COUNT","value":1}},"waitIntervalInSeconds":60,"autoRollbackConfiguration":[{"alarmName":"slow"},{"alarmName":"hot"}]})";
  void ask(const std::string& id, const std::string& deployment = kOneByOne) {
    site.edit("ml", [&](Json& spec) { spec.set("softwareUpdate", Json::object({{"id", id}, {"instanceGroups", Json::array({Json("gpu")})}, {"deploymentConfig", *kube::parse_json(deployment)}})); });
  }
  Json update() { return site.status("ml")["softwareUpdate"]; }
  std::string phase() { return update()["phase"].string(); }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) site.reconcile(), site.tick();
  }
  // By which files each of the group was prepared.
  std::map<std::string, std::string> sums() {
    std::map<std::string, std::string> out;
    for (const Json& each : site.instances("gpu")) out[kube::name_of(each)] = each["status"]["lifecycle"]["onCreate"]["sum"].string() + each["status"]["lifecycle"]["onInitComplete"]["sum"].string();
    return out;
  }
  int updated() {
    const Json told = update();
    return told["phase"].string() == "InProgress" && told["instanceGroups"].items().size() == 1 ? static_cast<int>(told["instanceGroups"].items()[0]["updated"].integer()) : -1;
  }
  bool until(const std::function<bool()>& holds, int most = 400) {
    for (int i = 0; i < most; ++i) {
      if (holds()) return true;
      site.reconcile();
      site.tick();
    }
    return holds();
  }
  std::vector<std::string> kinds() {
    std::vector<std::string> out;
    for (const auto& [key, event] : site.api.all("clusterevents"))
      if (event["spec"]["kind"].string().starts_with("SoftwareUpdate")) out.push_back(event["spec"]["resourceType"].string() + " " + event["spec"]["kind"].string() + " " + event["spec"]["metadata"]["failureMessage"].string());
    return out;
  }
  std::map<std::string, std::string> one;
  std::string two;
};

TEST_F(SoftwareRollbacks, BringBackTheScriptsThatWereThere) {
  for (const bool continuous : {true, false}) {
    if (!continuous && test_stride() > 1) continue;  // memory is watched
    SCOPED_TRACE(continuous);
    site.alarms->told.clear();
    site.scripts->buckets["sagemaker-x"] = files("one");
    begin(3, continuous);
    ask(continuous ? "u" : "v");
    ASSERT_TRUE(until([&] { return updated() == 2; }));
    EXPECT_EQ(phase(), "InProgress");
    site.alarms->told["hot"] = {State::Firing, "90 degrees"};
    ASSERT_TRUE(until([&] { return phase() == "RollbackInProgress"; }));
    EXPECT_EQ(site.phase("ml"), "SystemUpdating");
    EXPECT_EQ(update()["instanceGroups"].items()[0]["status"].string(), "RollbackInProgress");
    // What fires still, or is not known any more, does not keep it from going back.
    site.alarms->told["slow"] = {State::Unknown, "no answer"};
    site.settle();
    EXPECT_EQ(phase(), "RollbackComplete") << kube::print_json(update());
    EXPECT_EQ(update()["message"].string(), "alarm hot fires: 90 degrees");
    EXPECT_EQ(update()["instanceGroups"].items()[0]["status"].string(), "RollbackComplete");
    EXPECT_EQ(site.phase("ml"), "InService");
    EXPECT_EQ(site.summary("ml"), "5/5");
    EXPECT_EQ(sums(), one);
    EXPECT_THAT(kinds(), Contains("Cluster SoftwareUpdateRollbackStarted alarm hot fires: 90 degrees"));
    EXPECT_THAT(kinds(), Contains("Cluster SoftwareUpdateRollbackCompleted alarm hot fires: 90 degrees"));
    EXPECT_THAT(kinds(), Contains("Instance SoftwareUpdateRollbackCompleted "));
    // At rest nothing is written.
    const auto picture = site.picture();
    for (int i = 0; i < 5; ++i) site.reconcile();
    EXPECT_EQ(site.picture(), picture);
    // What comes later is prepared as the others were, until an update says otherwise.
    site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 4); });
    site.settle();
    EXPECT_EQ(site.summary("ml"), "6/6");
    for (const auto& [id, sum] : sums()) EXPECT_EQ(sum, one.begin()->second) << id;
    site.alarms->told.clear();
    ask(continuous ? "again" : "anew");
    site.settle();
    EXPECT_EQ(phase(), "Succeeded");
    for (const auto& [id, sum] : sums()) EXPECT_EQ(sum, two + two) << id;
    EXPECT_FALSE(site.status("ml").has("scripts"));
    site.remove("ml");
    site.settle();
    EXPECT_TRUE(site.nothing_left()) << site.picture();
  }
}

TEST_F(SoftwareRollbacks, GoInBatchesOfTheirOwn) {
  begin(4);
  ask("u", R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"CAPACITY_PERCENTAGE","value":100},"rollbackMaximumBatchSize":{"type":"CAPACITY_PERCENTAGE","value":50}},"waitIntervalInSeconds":600,"autoRollbackConfiguration":[{"alarmName":"slow"}]})");
  ASSERT_TRUE(until([&] { return updated() == 4; }));
  rounds(20);
  EXPECT_EQ(phase(), "InProgress") << "the last batch is watched, too";
  EXPECT_EQ(update()["instanceGroups"].items()[0]["status"].string(), "InProgress");
  site.alarms->told["slow"] = {State::Firing, ""};
  int most = 0;
  ASSERT_TRUE(until([&] {
    int away = 0;
    for (const Json& each : site.instances("gpu")) away += each["status"]["phase"].string() != "Running";
    most = std::max(most, away);
    return phase() == "RollbackComplete";
  }));
  EXPECT_EQ(most, 2);
  EXPECT_EQ(sums(), one);
}

TEST_F(SoftwareRollbacks, EndWellWhereNoAlarmFiresUntilTheLastBatchWasWatched) {
  begin(1);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  EXPECT_EQ(phase(), "InProgress");
  rounds(14);
  EXPECT_EQ(phase(), "Succeeded");
}

// Unknown never permits a further step, nor one back.
TEST_F(SoftwareRollbacks, NothingMoreBeginsWhileAnAlarmIsNotKnown) {
  begin(3);
  for (const auto& [alarm, words] : {std::pair(api::Alarm{State::Unknown, "it does not answer"}, "alarm slow is not known to be well: it does not answer; no further batch begins until that is over"), {api::Alarm{State::Missing, ""}, "alarm slow is not there; no further batch"}, {api::Alarm{State::Pending, "p99"}, "alarm slow is about to fire: p99; no further batch"}}) {
    SCOPED_TRACE(words);
    site.taken_down.clear();
    site.alarms->told.clear();
    ask(words);
    ASSERT_TRUE(until([&] { return phase() == "InProgress" && updated() == 1; }));
    const auto before = site.taken_down;
    site.alarms->told["slow"] = alarm;
    rounds(15);  // more than the interval between batches
    EXPECT_EQ(site.taken_down, before);
    EXPECT_EQ(phase(), "InProgress");
    EXPECT_THAT(update()["message"].string(), HasSubstr(words));
    site.alarms->told.clear();
    site.settle();
    EXPECT_EQ(phase(), "Succeeded");
    EXPECT_FALSE(update().has("message"));
  }
}

// Without Continuous mode: it goes on once a change that came meanwhile is taken back, although nothing of that had to be undone.
TEST_F(SoftwareRollbacks, GoOnAfterAChangeThatIsTakenBack) {
  ClusterSite few(false);
  few.spare("c", "ml.c5.large", 2, 4, 0);
  few.spare("l", "ml.t3.medium", 2, 4, 0);
  few.spare("g", "ml.g5.xlarge", 4, 16, 1);
  few.create("ml", few.spec(1, false));
  few.settle();
  few.alarms->told["slow"] = {State::Unknown, "no answer"};
  few.edit("ml", [](Json& spec) { spec.set("softwareUpdate", *kube::parse_json(R"({"id": "u", "deploymentConfig": {"autoRollbackConfiguration": [{"alarmName": "slow"}]}})")); });
  for (int i = 0; i < 10; ++i) few.reconcile(), few.tick();
  ASSERT_EQ(few.phase("ml"), "SystemUpdating");
  few.edit("ml", [&](Json& spec) { few.group_of(spec, "gpu").set("instanceCount", 3); });
  for (int i = 0; i < 60; ++i) few.reconcile(), few.tick();
  EXPECT_THAT(few.status("ml")["failed"]["message"].string(), HasSubstr("no machine of type"));
  few.alarms->told.clear();
  few.settle();
  EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "Succeeded") << kube::print_json(few.status("ml"));
  EXPECT_EQ(few.phase("ml"), "InService");
}

TEST_F(SoftwareRollbacks, AnAlarmThatFiresBeforeTheFirstBatchTouchesNothing) {
  begin(2);
  site.alarms->told["slow"] = {State::Firing, ""};
  site.taken_down.clear();
  ask("u");
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete");
  EXPECT_THAT(site.taken_down, IsEmpty());
  EXPECT_EQ(sums(), one);
}

TEST_F(SoftwareRollbacks, AnInstanceThatFailsIsAReason) {
  begin(3);
  site.script = [this](const Json& pod) { return pod["metadata"]["annotations"][kScriptSum].string() == two ? 3 : 0; };
  ask("u");
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete") << kube::print_json(update());
  EXPECT_THAT(update()["message"].string(), HasSubstr("no route"));
  EXPECT_EQ(site.summary("ml"), "5/5");
  for (const auto& [id, sum] : sums()) EXPECT_EQ(sum, one.begin()->second) << id;
}

// A job is not ended for the way back, either; and one whose machine only was to be emptied is let go.
TEST_F(SoftwareRollbacks, WaitForJobsAndLetGoOfWhatWasNotTouched) {
  begin(3);
  site.busy.insert("cluster-ml/gpu-0");
  site.busy.insert("cluster-ml/gpu-2");
  ask("u", R"({"rollingUpdatePolicy":{"maximumBatchSize":{"type":"CAPACITY_PERCENTAGE","value":100}},"autoRollbackConfiguration":[{"alarmName":"slow"}]})");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.busy.insert("cluster-ml/gpu-1");
  site.taken_down.clear();
  site.alarms->told["slow"] = {State::Firing, ""};
  rounds(100);
  EXPECT_EQ(phase(), "RollbackInProgress");
  EXPECT_THAT(site.taken_down, IsEmpty());
  site.busy.erase("cluster-ml/gpu-0");
  site.busy.erase("cluster-ml/gpu-1");
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete");
  EXPECT_EQ(sums(), one);
  EXPECT_EQ(site.taken_down.size(), 1u);
  for (const auto& [key, node] : site.api.all("nodes")) EXPECT_FALSE(node["spec"]["unschedulable"].boolean()) << key.name;
}

TEST_F(SoftwareRollbacks, OfAGroupWhoseScriptsCameMeanwhileIsPreparedWithout) {
  site.create("ml", site.spec(1));
  site.settle();
  site.edit("ml", [&](Json& spec) {
    Json& group = site.group_of(spec, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh");
  });
  site.settle();
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  EXPECT_FALSE(site.instances("gpu")[0]["status"]["lifecycle"]["onCreate"].is_null());
  site.alarms->told["slow"] = {State::Firing, ""};
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete");
  EXPECT_TRUE(site.instances("gpu")[0]["status"]["lifecycle"]["onCreate"].is_null());
  EXPECT_EQ(site.summary("ml"), "3/3");
  // What people change then counts.
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").child("lifeCycleConfig").set("onInitComplete", "on_init.sh"); });
  site.settle();
  site.ask(kube::name_of(site.instances("gpu")[0]), "replace", "r");
  site.settle();
  EXPECT_FALSE(site.instances("gpu")[0]["status"]["lifecycle"]["onInitComplete"].is_null());
}

TEST_F(SoftwareRollbacks, WhereTheScriptsOfBeforeAreNotKeptItEndsAndSaysSo) {
  begin(2);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  const std::string sum = one.begin()->second.substr(0, 64);
  ASSERT_EQ(site.api.all("secrets").erase({"cluster-ml", bundle_secret_name(sum, 0)}), 1u);
  site.alarms->told["slow"] = {State::Firing, ""};
  ASSERT_TRUE(until([&] { return phase() == "Failed"; }));
  EXPECT_THAT(update()["message"].string(), HasSubstr("are not kept any more: their first Secret is not there; have it updated, or change its LifeCycleConfig; the rollback ends here"));
  // An update without a way back is the way out.
  site.alarms->told.clear();
  ask("again", "{}");
  site.settle();
  EXPECT_EQ(phase(), "Succeeded");
  EXPECT_EQ(site.summary("ml"), "4/4");
}

// ---- what the new files do to the way back

TEST_F(SoftwareRollbacks, AreNotEndedByWhatFailedOnwards) {
  // A file that the new version lacks: no script has run of which there would be a record.
  begin(3);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.scripts->buckets["sagemaker-x"] = {{"readme", "the rest was not uploaded"}};
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete") << kube::print_json(update());
  EXPECT_THAT(update()["message"].string(), HasSubstr("there is no file on_create.sh below"));
  EXPECT_EQ(site.summary("ml"), "5/5");
  EXPECT_EQ(sums(), one);
}

TEST_F(SoftwareRollbacks, DoNotWaitForWhatTheNewSoftwareBroke) {
  begin(2);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  const auto broken = [&] {
    for (const Json& each : site.instances("gpu"))
      if (each["status"]["software"]["stage"].string() == "Done" && each["status"]["software"]["id"].string() == "u") {
        Json node = site.api.all("nodes").at({"", each["status"]["node"].string()});
        kube::set_condition(node, {"Ready", "False", "KubeletNotReady", "the new software"}, site.clock.now());
        ASSERT_TRUE(site.api.put(resources::nodes, node));
      }
  };
  broken();
  site.reconcile();
  site.alarms->told["hot"] = {State::Firing, ""};
  for (int i = 0; i < 120 && phase() != "RollbackComplete"; ++i) {
    site.reconcile();
    broken();  // the world would make it well
    site.clock.advance(5s);
    site.run_machines();
    broken();
    site.run_slurm();
    site.run_scripts();
  }
  EXPECT_EQ(phase(), "RollbackComplete") << kube::print_json(update());
  site.settle();
  EXPECT_EQ(sums(), one);
}

// The alarm fires in each round of the update of an instance in turn: what was prepared by the new files is never taken for gone back.
TEST_F(SoftwareRollbacks, AtAnyMomentNothingKeepsTheNewFiles) {
  const int rounds_of_one = 40;
  for (int at = 1; at < rounds_of_one; at += test_rounds(1, 1, 7)) {
    SCOPED_TRACE(at);
    ClusterSite world;
    world.scripts->buckets["sagemaker-x"] = files("one");
    Json spec = world.spec(2);
    Json& group = world.group_of(spec, "gpu");
    group = ClusterSite::with_scripts(group, at % 3 == 0 ? "" : "on_create.sh", "on_init.sh");
    world.create("ml", spec);
    world.settle();
    world.scripts->buckets["sagemaker-x"] = files("two");
    world.edit("ml", [&](Json& all) {
      all.set("softwareUpdate", *kube::parse_json(std::string(R"({"id":"u","instanceGroups":["gpu"],"deploymentConfig":)") + kOneByOne + "}"));
      if (at % 2 == 0) world.group_of(all, "gpu").set("instanceCount", 3);  // one comes meanwhile
    });
    for (int i = 0; i < at; ++i) world.reconcile(), world.tick();
    world.alarms->told["hot"] = {State::Firing, ""};
    world.settle();
    EXPECT_EQ(world.status("ml")["softwareUpdate"]["phase"].string(), "RollbackComplete") << kube::print_json(world.status("ml")["softwareUpdate"]);
    const std::string wanted = bundle_scripts(files("one")).sum;
    for (const Json& each : world.instances("gpu"))
      for (const char* const stage : {"onCreate", "onInitComplete"})
        if (const Json& record = each["status"]["lifecycle"][stage]; !record.is_null()) {
          EXPECT_EQ(record["sum"].string(), wanted) << kube::name_of(each) << " " << stage;
        }
    for (const auto& [machine, times] : world.taken_down) EXPECT_LE(times, 2) << machine;
    if (HasFailure()) return;
  }
}

TEST_F(SoftwareRollbacks, ReachOneThatWaitedForItsMachine) {
  ClusterSite few(false);
  few.scripts = site.scripts;
  few.restart();
  few.spare("c", "ml.c5.large", 2, 4, 0);
  few.spare("l", "ml.t3.medium", 2, 4, 0);
  few.spare("g0", "ml.g5.xlarge", 4, 16, 1);
  few.create("ml", scripted(2));
  few.settle();
  ASSERT_EQ(few.summary("ml"), "3/4");
  const std::string before = few.instances("gpu")[0]["status"]["lifecycle"]["onCreate"]["sum"].string();
  few.scripts->buckets["sagemaker-x"] = files("two");
  few.busy.insert("cluster-ml/gpu-0");
  few.edit("ml", [&](Json& spec) { spec.set("softwareUpdate", *kube::parse_json(std::string(R"({"id":"u","instanceGroups":["gpu"],"deploymentConfig":)") + kOneByOne + "}")); });
  for (int i = 0; i < 5; ++i) few.reconcile(), few.tick();
  few.spare("g1", "ml.g5.xlarge", 4, 16, 1);
  for (int i = 0; i < 20; ++i) few.reconcile(), few.tick();
  for (const Json& each : few.instances("gpu")) ASSERT_FALSE(each["status"]["lifecycle"]["onCreate"].is_null()) << "it was made before the update, and prepared in it";
  few.alarms->told["hot"] = {State::Firing, ""};
  few.busy.clear();
  few.settle();
  EXPECT_EQ(few.status("ml")["softwareUpdate"]["phase"].string(), "RollbackComplete");
  for (const Json& each : few.instances("gpu")) EXPECT_EQ(each["status"]["lifecycle"]["onCreate"]["sum"].string(), before);
}

TEST_F(SoftwareRollbacks, KeepThePinOfAGroupThatHasNobody) {
  begin(1);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.alarms->told["slow"] = {State::Firing, ""};
  site.settle();
  ASSERT_EQ(phase(), "RollbackComplete");
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 0); });
  site.settle();
  site.alarms->told.clear();
  site.alarms->told["hot"] = {State::Pending, ""};
  ask("again");
  rounds(5);
  site.alarms->told["hot"] = {State::Firing, ""};
  site.settle();
  ASSERT_EQ(phase(), "RollbackComplete");
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 1); });
  site.settle();
  EXPECT_EQ(sums().begin()->second, one.begin()->second);
}

TEST_F(SoftwareRollbacks, APinThatPeopleHaveChangedAwayFromDoesNotComeBack) {
  begin(1);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.alarms->told["slow"] = {State::Firing, ""};
  site.settle();
  ASSERT_TRUE(site.status("ml").has("scripts"));
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").child("lifeCycleConfig").erase("onInitComplete"); });
  site.settle();
  EXPECT_FALSE(site.status("ml").has("scripts"));
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").child("lifeCycleConfig").set("onInitComplete", "on_init.sh"); });
  site.ask(kube::name_of(site.instances("gpu")[0]), "replace", "r");
  site.settle();
  EXPECT_EQ(sums().begin()->second, two + two);
}

TEST_F(SoftwareRollbacks, ThePinOfBeforeIsThereAgainWhenTheNextUpdateIsTakenBackUnbegun) {
  begin(2);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.alarms->told["hot"] = {State::Firing, "90 degrees"};
  site.settle();
  ASSERT_EQ(phase(), "RollbackComplete");
  const Json pins = site.status("ml")["scripts"];
  ASSERT_FALSE(pins.is_null());
  site.alarms->told = {{"slow", {State::Unknown, "no answer"}}};  // nothing begins
  ask("w");
  rounds(5);
  ASSERT_EQ(update()["id"].string(), "w");
  EXPECT_FALSE(site.status("ml").has("scripts"));
  site.edit("ml", [](Json& spec) { spec.erase("softwareUpdate"); });
  site.settle();
  EXPECT_EQ(phase(), "Failed");
  EXPECT_EQ(site.status("ml")["scripts"], pins);
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").set("instanceCount", 3); });
  site.settle();
  EXPECT_EQ(sums().size(), 3u);
  for (const auto& [id, sum] : sums()) EXPECT_EQ(sum, one.begin()->second) << id;
  // Of one that had begun it stays lifted: its machines are of the new files.
  site.alarms->told.clear();
  ask("x");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.edit("ml", [](Json& spec) { spec.erase("softwareUpdate"); });
  site.settle();
  EXPECT_EQ(phase(), "Failed");
  EXPECT_FALSE(site.status("ml").has("scripts"));
}

TEST_F(SoftwareRollbacks, LeaveAGroupWhoseConfigurationWasChangedMeanwhile) {
  begin(2);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 1; }));
  site.edit("ml", [&](Json& spec) { site.group_of(spec, "gpu").child("lifeCycleConfig").erase("onInitComplete"); });
  rounds(2);
  site.alarms->told["slow"] = {State::Firing, ""};
  site.taken_down.clear();
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete");
  EXPECT_THAT(update()["reason"].string(), HasSubstr("(not group gpu: its lifeCycleConfig has been changed since)"));
  EXPECT_THAT(site.taken_down, IsEmpty());
}

TEST_F(SoftwareRollbacks, OneThatIsReplacedIsNotMadeAnewBefore) {
  begin(2);
  ask("u");
  ASSERT_TRUE(until([&] { return updated() == 2; }));
  const Json replaced = site.instances("gpu")[0];
  site.ask(kube::name_of(replaced), "replace", "r");
  site.taken_down.clear();
  site.alarms->told["slow"] = {State::Firing, ""};
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete");
  EXPECT_EQ(site.taken_down[replaced["status"]["node"].string()], 1) << "it goes, and no more";
  for (const auto& [id, sum] : sums()) EXPECT_EQ(sum, one.begin()->second) << id;
}

TEST_F(SoftwareRollbacks, OfAControllerComeFirst) {
  begin(2);
  site.edit("ml", [](Json& spec) { spec.set("softwareUpdate", *kube::parse_json(R"({"id": "u", "deploymentConfig": {"autoRollbackConfiguration": [{"alarmName": "slow"}], "waitIntervalInSeconds": 600}})")); });
  ASSERT_TRUE(until([&] { return update()["instanceGroups"].items().size() == 3 && update()["instanceGroups"].items()[2]["updated"].integer() == 2; }));
  site.alarms->told["slow"] = {State::Firing, ""};
  site.settle();
  EXPECT_EQ(phase(), "RollbackComplete") << kube::print_json(update());
  EXPECT_EQ(sums(), one);
  EXPECT_EQ(site.summary("ml"), "4/4");
}

TEST_F(SoftwareRollbacks, AnUpdateWithNoWayBackIsNotBegun) {
  begin(1);
  Json object = site.instances("gpu")[0];
  object.child("status").child("lifecycle").child("onCreate").erase("sum");
  object.child("status").child("lifecycle").child("onInitComplete").erase("sum");
  ASSERT_TRUE(site.api.put(api::kInstances, object));
  ask("u");
  site.settle();
  EXPECT_EQ(phase(), "Failed");
  EXPECT_THAT(update()["message"].string(), HasSubstr("by what machines of group gpu were prepared is not known"));
  EXPECT_EQ(site.phase("ml"), "InService");
}

// A death at each write, before and after its effect, while an update goes back: it comes to the same, and nothing is done twice.
TEST_F(SoftwareRollbacks, DeathAtAnyWrite) {
  int writes = 0;
  const auto run = [&](int dies_at, MortalApi::Death how) {
    ClusterSite world;
    std::swap(world.scripts->buckets, site.scripts->buckets);
    world.scripts->buckets["sagemaker-x"] = files("one");
    Json spec = world.spec(2);
    Json& group = world.group_of(spec, "gpu");
    group = ClusterSite::with_scripts(group, "on_create.sh", "on_init.sh");
    world.create("ml", spec);
    world.settle();
    world.scripts->buckets["sagemaker-x"] = files("two");
    world.taken_down.clear();
    world.edit("ml", [&](Json& all) { all.set("softwareUpdate", *kube::parse_json(std::string(R"({"id":"u","instanceGroups":["gpu"],"deploymentConfig":)") + kOneByOne + "}")); });
    world.mortal->writes = 0;
    world.mortal->dies_at = dies_at;
    world.mortal->how = how;
    for (int i = 0; i < 400; ++i) {
      const Json told = world.status("ml")["softwareUpdate"];
      if (told["instanceGroups"].items().size() == 1 && told["instanceGroups"].items()[0]["updated"].integer() == 1) world.alarms->told["hot"] = {State::Firing, "hot"};
      if (told["phase"].string() == "RollbackComplete") break;
      world.reconcile();
      if (world.mortal->dead) world.restart();
      world.tick();
    }
    if (dies_at < 0) writes = world.mortal->writes;
    world.settle();
    EXPECT_EQ(world.status("ml")["softwareUpdate"]["phase"].string(), "RollbackComplete");
    EXPECT_EQ(world.summary("ml"), "4/4");
    const std::string wanted = bundle_scripts(files("one")).sum;
    for (const Json& each : world.instances("gpu")) EXPECT_EQ(each["status"]["lifecycle"]["onCreate"]["sum"].string(), wanted);
    EXPECT_EQ(world.taken_down.size(), 1u);
    for (const auto& [machine, times] : world.taken_down) EXPECT_EQ(times, 2) << machine << ": to and back";
  };
  run(-1, MortalApi::Death::Before);
  ASSERT_GT(writes, 20);
  const int step = test_rounds(5, 1, 61);
  for (int at = 0; at < writes; at += step)
    for (const auto how : {MortalApi::Death::Before, MortalApi::Death::After}) {
      SCOPED_TRACE(fmt::format("at {}, {}", at, how == MortalApi::Death::Before ? "before" : "after"));
      run(at, how);
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace fairlead::fleet
