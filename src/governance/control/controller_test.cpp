// SPDX-License-Identifier: Apache-2.0
// Both controllers on an API in memory, with a controller of Jobs that makes pods: what users see, death at every step, and caches that are behind.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/team_crds.h"
#include "governance/control/control_lab.h"

namespace fairlead::governance {
namespace {

using namespace lab;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(TaskGovernance, TwoTeamsBorrowAndTakeBack) {
  Site site;
  site.job("b1", "b", 5), site.job("b2", "b", 4);
  site.settle();
  EXPECT_EQ(site.state("b1") + site.state("b2"), "runsruns");
  EXPECT_EQ(site.api_.all("pods").size(), 9U);
  const Json status = site.api_.all("clusterqueues").at({"", "b"})["status"];
  EXPECT_EQ(kube::print_json(status["flavorsUsage"]), R"([{"name":"h200","resources":[{"name":"cpu","total":"9","borrowed":"4"}]}])");
  EXPECT_EQ(status["fairSharing"]["weightedShare"].integer(), 364);
  EXPECT_EQ(site.api_.all("localqueues").at({"lab", "team-b"})["status"]["admittedWorkloads"].integer(), 2);
  EXPECT_EQ(kube::print_json(site.api_.all("jobs").at({"lab", "b1"})["spec"]["template"]["spec"]["nodeSelector"]), R"({"kind":"h200"})");
  site.job("a1", "a", 6);
  site.settle();
  EXPECT_EQ(site.state("a1"), "runs");
  EXPECT_EQ(site.state("b2"), "held") << "the later of the two";
  EXPECT_THAT(site.says("b2", "Preempted"), StartsWith("True InCohortReclamation: "));
  EXPECT_THAT(site.says("b2", "QuotaReserved"), StartsWith("False WaitingForQuota: "));
  EXPECT_TRUE(site.api_.all("jobs").at({"lab", "b2"})["spec"]["template"]["spec"]["nodeSelector"].is_null());
  site.complete("a1");
  site.settle();
  EXPECT_EQ(site.state("b2"), "runs");
  EXPECT_THAT(site.says("a1", "Finished"), StartsWith("True Succeeded"));
  std::string told;
  for (const auto& [key, event] : site.api_.all("events")) told += event["reason"].string() + " ";
  for (const char* reason : {"CreatedWorkload", "QuotaReserved", "Admitted", "Started", "Pending", "Preempted", "EvictedDueToPreempted", "Stopped", "FinishedWorkload"}) EXPECT_THAT(told, HasSubstr(reason));
}

// Nine pods are asked for and one will do: as many run as there is quota for, whoever dies on the way; taken back it asks for all of them again.
TEST(TaskGovernance, FewerPodsRunThanWereAskedFor) {
  const auto pods = [](Site& site) { return site.api_.all("jobs").at({"lab", "b2"})["spec"]["parallelism"].integer(); };
  std::vector<std::int64_t> seen;
  const Story story = [&](Site& site, const std::function<void()>& settle) {
    seen.clear();
    site.job("b1", "b", 5), site.job("b2", "b", 9, "", "kueue.x-k8s.io/job-min-parallelism: '1'");
    settle();
    seen.push_back(pods(site));
    site.job("a1", "a", 6);
    settle();
    seen.push_back(pods(site));
    site.complete("b1");
    settle();
    seen.push_back(pods(site));
  };
  const std::string end = expect_death_changes_nothing(story, [&](Site& site) { return site.outcome() + fmt::format("\n{} pods", fmt::join(seen, ", ")); }, 20);
  EXPECT_THAT(end, HasSubstr("\n6, 9, 5 pods")) << end;
  EXPECT_THAT(end, HasSubstr("b2 runs workload reserved=true")) << end;
}

TEST(TaskGovernance, WhoHasWaitedLongGetsWhatIsGivenBack) {
  const Story story = [](Site& site, const std::function<void()>& settle) {
    site.api_.stamp = [&] { return print_time(site.clock_.now()); };
    site.put(api::teams::configs, "{metadata: {name: policy, uid: p1}, spec: {reservation: {afterSeconds: 60, holdSeconds: 1000}}}");
    site.job("b1", "b", 5), site.job("a1", "a", 4), site.job("b2", "b", 7);
    settle();
    site.clock_.advance(61s);
    settle();
    site.job("a2", "b", 1);  // would fit
    settle();
  };
  Site site;
  story(site, [&] { site.settle(); });
  EXPECT_EQ(site.state("a2"), "held");
  EXPECT_EQ(site.says("a2", "QuotaReserved"), "False WaitingForQuota: what is free is kept for workload lab/" + workload_name(site.api_.all("jobs").at({"lab", "b2"})) + ", which has waited longer");
  EXPECT_THAT(site.says("b2", "QuotaReserved"), HasSubstr("5 more needed; what is given back is kept for it"));
  site.complete("a1");
  site.settle();
  EXPECT_EQ(site.state("a2"), "held") << "six are free, and seven are needed";
  site.queue("a", "5"), site.queue("b", "6");  // other quotas: what was kept stays kept
  site.settle();
  EXPECT_EQ(site.state("a2"), "held");
  site.complete("b1");
  site.settle();
  EXPECT_EQ(site.state("a2") + site.state("b2"), "runsruns") << site.says("a2", "QuotaReserved");

  const Story whole = [&](Site& one, const std::function<void()>& settle) {
    story(one, settle);
    one.complete("b1");
    settle();
  };
  const std::string end = expect_death_changes_nothing(whole, [](Site& one) { return one.outcome(); }, 10);
  EXPECT_THAT(end, HasSubstr("b2 runs")) << end;
  EXPECT_THAT(end, HasSubstr("a2 held")) << end;

  // Given up after its time: others have their turn, and it begins again.
  Site other;
  story(other, [&] { other.settle(); });
  other.clock_.advance(1'000s);
  other.settle();
  EXPECT_EQ(other.state("a2"), "runs");
  EXPECT_THAT(other.says("b2", "QuotaReserved"), EndsWith("more needed"));
  other.clock_.advance(61s);
  other.settle();
  EXPECT_THAT(other.says("b2", "QuotaReserved"), HasSubstr("what is given back is kept for it"));
}

TEST(TaskGovernance, NobodyIsPreEmptedBeforeItHasRunForSoLong) {
  const Story story = [](Site& site, const std::function<void()>& settle) {
    site.api_.stamp = [&] { return print_time(site.clock_.now()); };
    site.put(api::teams::configs, "{metadata: {name: policy, uid: p1}, spec: {preemption: {minRunSeconds: 600}}}");
    settle();
    site.job("b1", "b", 5), site.job("b2", "b", 4);
    settle();
    site.job("a1", "a", 6);
    settle();
    site.clock_.advance(590s);
    settle();
  };
  Site site;
  story(site, [&] { site.settle(); });
  EXPECT_EQ(site.state("b2") + site.state("a1"), "runsheld") << "not yet";
  site.clock_.advance(11s);
  site.settle();
  EXPECT_EQ(site.state("b2") + site.state("a1"), "heldruns");
  expect_death_changes_nothing([&](Site& one, const std::function<void()>& settle) {
    story(one, settle);
    EXPECT_EQ(one.state("b2"), "runs");
    one.clock_.advance(11s);
    settle();
  }, [](Site& one) { return one.outcome(); }, 10);
}

// The quota of the hour needs no event but time, and outlives the server.
// What was used is in the status of the LocalQueue; a server that comes after another counts on from there.
TEST(TaskGovernance, HistorySurvivesAnotherServer) {
  const auto used = [](Site& site) { return site.api_.all("localqueues").at({"lab", "team-a"})["status"]["fairSharing"]["admissionFairSharingStatus"]["consumedResources"]["cpu"].string(); };
  const auto story = [](Site& site) {
    site.put(api::teams::configs, "{metadata: {name: policy, uid: p1}, spec: {fairShareHistory: {halfLifeSeconds: 3600}}}");
    site.settle();
    site.job("a1", "a", 4);
    site.settle();
  };
  Site one;
  story(one);
  for (int i = 0; i < 60; ++i) one.clock_.advance(60s), one.settle();
  const double whole = std::stod(used(one));
  EXPECT_NEAR(whole, 2'000, 40) << "thousandths of 4 cores for one half-life: " << used(one);
  Site other;
  story(other);
  for (int i = 0; i < 60; ++i) {
    if (i % 20 == 10) other.start();
    other.clock_.advance(60s), other.settle();
  }
  EXPECT_NEAR(std::stod(used(other)), whole, 40) << used(other);
}

TEST(TaskGovernance, QuotasFollowTheClock) {
  const Story story = [](Site& site, const std::function<void()>& settle) {
    Json queue = site.api_.all("clusterqueues").at({"", "a"});
    queue.child("metadata").set("annotations", Json::object({{kQuotaScheduleNote, R"([{"name":"evening","from":"10:05","to":"10:10","quotas":[{"flavor":"h200","resource":"cpu","nominalQuota":9}]}])"}}));
    ASSERT_TRUE(site.api_.put(queues::cluster_queues, queue));
    queue = site.api_.all("clusterqueues").at({"", "b"});
    queue.child("spec").child("resourceGroups").items()[0].child("flavors").items()[0].child("resources").items()[0].set("lendingLimit", 0);
    ASSERT_TRUE(site.api_.put(queues::cluster_queues, queue));
    settle();
    site.job("a1", "a", 6), site.job("a2", "a", 3);
    settle();
  };
  const auto message = [](Site& site) { return (*kube::find_condition(site.api_.all("clusterqueues").at({"", "a"}), "Active"))["message"].string(); };
  Site site;
  story(site, [&] { site.settle(); });
  EXPECT_EQ(site.state("a1") + site.state("a2"), "runsheld");
  EXPECT_EQ(message(site), "Can admit new workloads");
  site.clock_.advance(*parse_time("2026-11-22T10:05:00Z") - site.clock_.now());
  site.settle();
  EXPECT_EQ(site.state("a1") + site.state("a2"), "runsruns");
  EXPECT_EQ(message(site), "Can admit new workloads; quotas of window \"evening\" until 2026-11-22T10:10:00Z");
  site.clock_.advance(5min);
  site.settle();
  EXPECT_EQ(site.state("a1") + site.state("a2"), "runsruns") << "what the window let in goes on";
  EXPECT_EQ(message(site), "Can admit new workloads");
  expect_death_changes_nothing([&](Site& one, const std::function<void()>& settle) {
    story(one, settle);
    one.clock_.advance(*parse_time("2026-11-22T10:05:00Z") - one.clock_.now());
    settle();
  }, [](Site& one) { return one.outcome(); }, 10);
}

TEST(TaskGovernance, UnknownPriorityClassesAreToldAndWaitedFor) {
  Site site;
  site.put(queues::priority_classes, "{metadata: {name: low-priority}, value: 10}");
  site.job("a1", "a", 2, ", kueue.x-k8s.io/priority-class: high-priority");
  site.settle();
  EXPECT_TRUE(site.workload_of("a1").is_null());
  std::string told;
  for (const auto& [key, event] : site.api_.all("events")) told += event["message"].string() + " ";
  EXPECT_THAT(told, HasSubstr("metadata.labels[kueue.x-k8s.io/priority-class]: there is no WorkloadPriorityClass high-priority; there are: low-priority"));
  site.put(queues::priority_classes, "{metadata: {name: high-priority}, value: 90}");
  site.settle();
  EXPECT_EQ(site.state("a1"), "runs");
  EXPECT_EQ(site.workload_of("a1")["spec"]["priority"].integer(), 90);
}

// Whoever dies is followed by another, who goes on.
void settle_with_successors(Site& site) {
  for (int tries = 0; tries < 3; ++tries) try {
      return site.settle();
    } catch (const Died&) {
      site.start();
    }
}

// Of a time: admitted, pre-empted and admitted again; it is the sum that counts.
void limited_story(Site& site, const std::function<void()>& settle) {
  site.job("b2", "b", 7, ", kueue.x-k8s.io/max-exec-time-seconds: '60'");
  settle();
  site.clock_.advance(40s);
  site.job("a1", "a", 6);
  settle();
  site.clock_.advance(500s);
  if (site.state("a1") == "runs") site.complete("a1");
  settle();
  site.clock_.advance(15s);
  settle();
}
TEST(TaskGovernance, AWorkloadThatHasRunForItsTimeIsDeactivated) {
  int writes = 0;
  std::string wanted;
  for (int n = 0; n <= 2 * writes; n += n == 0 ? 1 : test_stride()) {
    Site site;
    site.cut_.die_at = (n + 1) / 2, site.cut_.after = n % 2 == 0;
    const auto settle = [&] { settle_with_successors(site); };
    limited_story(site, settle);
    ASSERT_EQ(site.state("b2"), "runs") << n << " " << site.says("b2", "QuotaReserved");
    site.clock_.advance(10s);
    settle();
    ASSERT_EQ(site.state("b2"), "held") << "died at " << n;
    ASSERT_FALSE(site.workload_of("b2")["spec"]["active"].boolean(true));
    ASSERT_EQ(site.says("b2", "Evicted"), "True Deactivated: The workload is deactivated due to exceeding the maximum execution time");
    ASSERT_EQ(site.says("b2", "DeactivationTarget"), "none");
    if (n == 0) wanted = site.outcome(), writes = site.cut_.writes;
    ASSERT_EQ(site.outcome(), wanted) << "died at " << n;
  }
  EXPECT_GT(writes, 20);
}
// Pods that do not become ready, one that is lost, and one try too many.
void ready_story(Site& site, const std::function<void()>& settle) {
  site.put(api::teams::configs, "{metadata: {name: policy, uid: p}, spec: {waitForPodsReady: {timeoutSeconds: 100, recoveryTimeoutSeconds: 50, requeuingStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 60, backoffMaxSeconds: 600}}}}");
  site.get_ready_ = 10;
  site.job("a1", "a", 11);
  settle();
  site.job("a2", "a", 6);
  settle();
  site.clock_.advance(102s);
  settle();  // a1 is out of line, and a2 runs although it came later
  site.clock_.advance(61s);
  settle();
}
TEST(TaskGovernance, PodsThatAreNotReadyInTimeGiveTheirQuotaToOthers) {
  int writes = 0;
  std::string wanted;
  for (int n = 0; n <= 2 * writes; n += n == 0 ? 1 : test_stride()) {
    Site site;
    site.cut_.die_at = (n + 1) / 2, site.cut_.after = n % 2 == 0;
    const auto settle = [&] { settle_with_successors(site); };
    ready_story(site, settle);
    const std::string when = fmt::format("died at {}", n);
    ASSERT_EQ(site.state("a1"), "held") << when;
    ASSERT_EQ(site.state("a2"), "runs") << when;
    ASSERT_EQ(site.says("a1", "Evicted"), "True PodsReadyTimeout: Exceeded the PodsReady timeout lab/" + workload_name(site.api_.all("jobs").at({"lab", "a1"}))) << when;
    ASSERT_EQ(site.says("a1", "Requeued"), "True BackoffFinished: The workload backoff was finished") << when;
    ASSERT_EQ(site.workload_of("a1")["status"]["requeueState"]["count"].integer(), 1) << when << ": a time-out counts once";
    ASSERT_EQ(site.says("a2", "PodsReady"), "True Started: All pods reached readiness and the workload is running") << when;
    site.complete("a2");
    site.get_ready_ = 100;
    settle();
    ASSERT_EQ(site.state("a1"), "runs") << when;
    ASSERT_EQ(site.says("a1", "PodsReady"), "True Started: All pods reached readiness and the workload is running") << when;
    site.get_ready_ = 3;
    settle();
    ASSERT_EQ(site.says("a1", "PodsReady"), "False WaitForRecovery: At least one pod has failed, waiting for recovery") << when;
    site.clock_.advance(51s);
    settle();
    ASSERT_EQ(site.state("a1"), "held") << when;
    ASSERT_EQ(site.workload_of("a1")["status"]["requeueState"]["count"].integer(), 2) << when;
    ASSERT_THAT(site.says("a1", "QuotaReserved"), HasSubstr("Its pods were not all ready in time: it stands in line again at ")) << when;
    site.clock_.advance(121s);
    settle();
    ASSERT_EQ(site.state("a1"), "runs") << when << " " << site.says("a1", "QuotaReserved");
    ASSERT_EQ(site.says("a1", "PodsReady"), "False WaitForStart: Not all pods are ready or succeeded") << when;
    site.clock_.advance(101s);
    settle();
    ASSERT_EQ(site.state("a1"), "held") << when;
    ASSERT_EQ(site.says("a1", "Evicted"), "True Deactivated: The workload is deactivated due to exceeding the maximum number of re-queuing retries") << when;
    ASSERT_TRUE(site.workload_of("a1")["status"]["requeueState"].is_null()) << when;
    if (n == 0) wanted = site.outcome(), writes = site.cut_.writes;
    ASSERT_EQ(site.outcome(), wanted) << when;
  }
  EXPECT_GT(writes, 40);
}
TEST(TaskGovernance, WithoutAPolicyNobodyTellsOfReadiness) {
  Site site;
  site.get_ready_ = 0;
  site.job("a1", "a", 2);
  site.settle();
  EXPECT_EQ(site.says("a1", "PodsReady"), "none");
  site.put(api::teams::configs, "{metadata: {name: policy, uid: p}, spec: {waitForPodsReady: {timeoutSeconds: 100}}}");
  site.settle();
  EXPECT_EQ(site.says("a1", "PodsReady"), "False WaitForStart: Not all pods are ready or succeeded") << "of what runs already, too";
  site.clock_.advance(101s);
  site.settle();
  EXPECT_EQ(site.state("a1"), "held");
}
TEST(TaskGovernance, AMisspeltTimeIsToldAndNothingRuns) {
  Site site;
  site.job("a1", "a", 2, ", kueue.x-k8s.io/max-exec-time-seconds: soon");
  site.settle();
  EXPECT_TRUE(site.workload_of("a1").is_null());
  std::string told;
  for (const auto& [key, event] : site.api_.all("events")) told += event["message"].string() + " ";
  EXPECT_THAT(told, HasSubstr("label kueue.x-k8s.io/max-exec-time-seconds: \"soon\" is no number of seconds"));
}

// Of those that wait and those that run.
TEST(TaskGovernance, AClassOfAnotherValueIsFollowed) {
  Site site;
  site.put(queues::priority_classes, "{metadata: {name: low}, value: 10}");
  site.put(queues::priority_classes, "{metadata: {name: other}, value: 10}");
  site.job("a1", "a", 6, ", kueue.x-k8s.io/priority-class: low"), site.job("b1", "b", 5, ", kueue.x-k8s.io/priority-class: low");
  site.job("a2", "a", 3, ", kueue.x-k8s.io/priority-class: low"), site.job("b2", "b", 3, ", kueue.x-k8s.io/priority-class: other");
  site.pod("p1", "b");
  site.pod("r1", "b", "ring", 1);
  Json pod = site.api_.all("pods").at({"lab", "p1"}), member = site.api_.all("pods").at({"lab", "r1"});
  for (Json* one : {&pod, &member}) {
    one->child("metadata").child("labels").set(kPriorityLabel, "low");
    ASSERT_TRUE(site.api_.put(resources::pods, *one));
  }
  site.settle();
  ASSERT_EQ(site.state("a1") + site.state("a2"), "runsheld");
  site.put(queues::priority_classes, "{metadata: {name: low}, value: 70}");
  site.settle();
  std::map<std::string, std::int64_t> priorities;
  for (const auto& [key, object] : site.api_.all("workloads")) priorities[key.name.substr(0, key.name.find_last_of('-'))] = object["spec"]["priority"].integer();
  EXPECT_THAT(priorities, testing::UnorderedElementsAre(testing::Pair("job-a1", 70), testing::Pair("job-b1", 70), testing::Pair("job-a2", 70), testing::Pair("job-b2", 10), testing::Pair("pod-p1", 70), testing::Pair("ring", 70)));
  EXPECT_EQ(site.state("a1") + site.state("a2"), "runsheld");
}

// A decision that the API does not take is taken back, and others get the quota.
TEST(TaskGovernance, ARefusedAdmissionIsTakenBack) {
  Site site;
  site.cut_.refuse = [](const char* verb, const kube::Resource& resource, const Json& object) -> std::optional<Error> {
    if (std::string_view(verb) == "update_status" && resource.plural == "workloads" && kube::name_of(object).starts_with("job-a1") && kube::condition_is_true(object, "Admitted")) return Error{Code::Forbidden, "denied by policy"};
    return std::nullopt;
  };
  site.job("a1", "a", 8), site.job("a2", "a", 8);
  Rng rng(1);
  for (int round = 0; round < 8; ++round) {
    site.jobs_step();
    site.refresh_all();
    for (int steps = 0; steps < 30 && site.one(rng.next()); ++steps) site.refresh_all();
  }
  EXPECT_EQ(site.state("a1"), "held");
  EXPECT_EQ(site.state("a2"), "runs") << site.says("a2", "QuotaReserved") << "\n" << site.says("a1", "QuotaReserved") << "\n" << site.last_error_;
  site.cut_.refuse = {};
  site.complete("a2");
  site.settle();
  EXPECT_EQ(site.state("a1"), "runs");
}

// The Job is deleted: its quota is others' when its pods are gone, too.
TEST(TaskGovernance, APodThatOutlivesItsJobKeepsItsQuota) {
  Site site;
  site.job("b1", "b", 8);
  site.settle();
  site.remove_job("b1");
  site.job("a1", "a", 6);
  for (int round = 0; round < 5; ++round) {  // no garbage is collected meanwhile
    site.refresh_all();
    for (int steps = 0; steps < 30 && site.one(0); ++steps) site.refresh_all();
  }
  EXPECT_EQ(site.state("a1"), "held");
  EXPECT_FALSE(site.workload_of("b1").is_null());
  site.settle();
  EXPECT_EQ(site.state("a1"), "runs");
  EXPECT_TRUE(site.workload_of("b1").is_null());
}

TEST(TaskGovernance, AWorkloadWhoseJobLeftItBehindCanBeDeleted) {
  Site site;
  site.job("b1", "b", 2);
  site.settle();
  Json alone = site.workload_of("b1");
  alone.child("metadata").erase("ownerReferences");
  ASSERT_TRUE(site.api_.put(queues::workloads, alone));
  site.api_.all("jobs").clear();
  ASSERT_TRUE(site.api_.remove(queues::workloads, kube::key_of(alone)));
  site.settle();
  EXPECT_TRUE(site.api_.all("workloads").empty());
}

// A queue is deleted under load: it stays until nothing of it runs, and admits nothing.
TEST(TaskGovernance, AQueueGoesWhenNothingOfItRuns) {
  Site site;
  site.job("b1", "b", 3);
  site.settle();
  EXPECT_TRUE(kube::has_finalizer(site.api_.all("clusterqueues").at({"", "b"}), kInUse));
  EXPECT_FALSE(kube::has_finalizer(site.api_.all("clusterqueues").at({"", "a"}), kInUse)) << "nothing was ever admitted there";
  ASSERT_TRUE(site.api_.remove(queues::cluster_queues, {"", "b"}));
  site.job("b2", "b", 1);
  site.settle();
  EXPECT_EQ(site.state("b1") + site.state("b2"), "runsheld");
  EXPECT_EQ(site.says("b2", "QuotaReserved"), "False Suspended: ClusterQueue b is inactive");
  EXPECT_EQ((*kube::find_condition(site.api_.all("clusterqueues").at({"", "b"}), "Active"))["reason"].string(), "Terminating");
  site.complete("b1");
  site.settle();
  EXPECT_FALSE(site.api_.all("clusterqueues").contains({"", "b"}));
  EXPECT_EQ(site.says("b2", "QuotaReserved"), "False Misconfigured: ClusterQueue b doesn't exist");
}

// The cache of Jobs has not seen that we started it.
TEST(TaskGovernance, QuotaIsNotGivenBackOnAnOldStateOfTheJob) {
  Site site;
  Rng rng(1);
  site.job("b1", "b", 8);
  const auto run = [&](std::initializer_list<kube::Resource> seen) {
    for (int round = 0; round < 20; ++round) {
      for (const auto& kind : seen) site.refresh(kind);
      for (int steps = 0; steps < 20 && site.one(rng.next()); ++steps) {}
    }
  };
  site.refresh(kBatchJobs);
  run({queues::workloads, queues::cluster_queues});
  ASSERT_EQ(site.state("b1"), "runs");
  Json off = site.workload_of("b1");
  off.child("spec").set("active", false);
  ASSERT_TRUE(site.api_.put(queues::workloads, off));
  run({queues::workloads, queues::cluster_queues});
  EXPECT_EQ(site.state("b1"), "held");
  EXPECT_FALSE(holds_quota(site.workload_of("b1")));
}

// What the definitions are decides whether it runs at all.
TEST(TaskGovernance, IsOffWhereTheDefinitionsAreNotOurs) {
  kube::TinyApi api;
  EXPECT_THAT(*why_governance_is_off(api), HasSubstr("there is no definition"));
  for (const auto& some : {api::queue_crds(), api::team_crds()})
    for (const Json& crd : some) ASSERT_TRUE(api.create(resources::crds, crd));
  for (auto& [key, crd] : api.all("customresourcedefinitions")) crd.child("metadata").child("labels").set("app.kubernetes.io/part-of", "fairlead");
  EXPECT_EQ(*why_governance_is_off(api), "");
  api.all("customresourcedefinitions").begin()->second.child("metadata").set("labels", Json::object());
  EXPECT_THAT(*why_governance_is_off(api), HasSubstr("belongs to somebody else"));
}

void story(Site& site, const std::function<void()>& settle) {
  site.job("b1", "b", 5), site.job("b2", "b", 4);
  settle();
  site.job("a1", "a", 6);
  settle();
  site.job("a2", "a", 1);
  site.complete("b1");
  settle();
  site.remove_job("a1");
  settle();
}

TEST(TaskGovernance, DeathAtAnyStepChangesNothingOfTheEnd) {
  const std::string wanted = expect_death_changes_nothing(story, [](Site& site) { return site.outcome(); }, 30);
  EXPECT_THAT(wanted, HasSubstr("b2 runs"));
}

// A program of the site has a say: it refuses one, puts one off, lets the others through, and changes its mind about one that runs.
void checked_story(Site& site, const std::function<void()>& settle) {
  const auto budget = [&](bool active) {
    site.put(queues::checks, fmt::format("{{metadata: {{name: budget, uid: c1}}, spec: {{controllerName: example.com/budget}}, status: {{conditions: [{{type: Active, status: '{}', reason: R, message: ''}}]}}}}", active ? "True" : "False"));
  };
  budget(false);
  Json queue = site.api_.all("clusterqueues").at({"", "b"});
  queue.child("spec").set("admissionChecks", Json::array({"budget"}));
  (void)site.api_.put(queues::cluster_queues, queue);
  site.job("b1", "b", 5), site.job("b2", "b", 4);
  settle();
  budget(true);
  settle();
  site.answer("b1", "budget", "Ready", ", podSetUpdates: [{name: main, annotations: {cost: '5'}, nodeSelector: {zone: z}}]");
  site.answer("b2", "budget", "Retry", ", requeueAfterSeconds: 30");
  settle();
  site.clock_.advance(31s);
  settle();
  site.answer("b2", "budget", "Ready");
  settle();
  site.job("a1", "a", 6);  // takes its own back: b2 stops, and is asked about anew
  settle();
  site.answer("b1", "budget", "Rejected");
  settle();
  site.answer("b2", "budget", "Ready");
  settle();
}

TEST(TaskGovernance, ChecksHaveTheirSayWheneverTheServerDies) {
  const auto outcome = [](Site& site) {
    std::string out = site.outcome();
    for (const char* name : {"b1", "b2"}) out += fmt::format("\n{} {} {}", name, kube::print_json(site.workload_of(name)["spec"]["active"]), kube::print_json(site.api_.all("jobs").at({"lab", name})["spec"]["template"]["metadata"]["annotations"]));
    return out;
  };
  const std::string wanted = expect_death_changes_nothing(checked_story, outcome, 30);
  EXPECT_THAT(wanted, HasSubstr("b1 held"));
  EXPECT_THAT(wanted, HasSubstr("b2 runs"));
  EXPECT_THAT(wanted, HasSubstr("a1 runs"));
  EXPECT_THAT(wanted, HasSubstr("b1 false null")) << "what its check added is taken out again";
}

// Pods of each Job on the hosts that its Workload was given, as many on each as it says; whatever its template was before is there again when it stops.
std::string places(Site& site) {
  std::map<std::string, std::map<std::string, int>> on;
  for (const auto& [key, pod] : site.api_.all("pods")) ++on[key.name.substr(0, key.name.find('-'))][waits_for_place(pod) ? "gate" : pod["spec"]["nodeName"].string()];
  std::string out;
  for (const auto& [job, hosts] : on) {
    out += job;
    for (const auto& [host, count] : hosts) out += fmt::format(" {}:{}", host, count);
    const Json workload = site.workload_of(job);
    const Json& sets = workload["status"]["admission"]["podSetAssignments"];
    out += fmt::format(" as {}\n", sets.items().empty() ? "" : text(read_topology_assignment(sets.items()[0]["topologyAssignment"])));
  }
  for (const auto& [key, job] : site.api_.all("jobs"))
    if (job["spec"]["suspend"].boolean()) out += fmt::format("{} held: {} {}\n", key.name, kube::print_json(job["spec"]["template"]["spec"]["schedulingGates"]), kube::print_json(job["spec"]["template"]["metadata"]["annotations"]));
  return out;
}

void placed_story(Site& site, const std::function<void()>& settle) {
  site.racks();
  settle();
  site.job("b1", "b", 5, "", "", "kueue.x-k8s.io/podset-required-topology: cloud/rack");
  settle();
  site.job("b2", "b", 4);
  settle();
  site.node("n1", false);
  settle();
  site.clock_.advance(31s);
  settle();
  site.node("n1", true);
  settle();
  site.job("a1", "a", 6, "", "", "kueue.x-k8s.io/podset-preferred-topology: cloud/rack");  // takes its own back
  settle();
}

TEST(TaskGovernance, PodsGetTheirPlacesWheneverTheServerDies) {
  const std::string wanted = expect_death_changes_nothing(placed_story, [](Site& site) { return site.outcome() + "\n" + places(site); }, 30);
  EXPECT_THAT(wanted, HasSubstr("a1 runs"));
  EXPECT_THAT(wanted, HasSubstr("a1 n1:3 n4:3 as n1:3 n4:3\nb2 n2:1 n3:3 as n2:1 n3:3\n"));
  EXPECT_THAT(wanted, HasSubstr("b1 held: null {\"kueue.x-k8s.io/podset-required-topology\":\"cloud/rack\"}\n")) << "its template is as it was";
}

TEST(TaskGovernance, StaleCachesPutNoTwoPodsInOnePlace) {
  expect_stale_caches_break_nothing(placed_story, test_rounds<std::uint64_t>(40, 2'000), &Site::jobs_step, [](Site& site, std::uint64_t seed) {
    std::map<std::string, int> on;
    for (const auto& [key, pod] : site.api_.all("pods")) ++on[pod["spec"]["nodeName"].string()];
    for (const auto& [host, count] : on) EXPECT_LE(count, 3) << "seed " << seed << " " << host << "\n" << places(site);
  });
}

// A HyperPodPyTorchJob beside Jobs: held before it has made a pod, run, taken back, run again where there is room, and ended.
void gang_story(Site& site, const std::function<void()>& settle) {
  site.racks();
  settle();
  site.put(Site::gangs().resource, "{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, metadata: {name: own, namespace: lab, uid: uid-own}, spec: {replicaSpecs: [{name: pod, replicas: 0, template: {spec: {containers: [{name: c}]}}}]}}");
  site.gang("g1", "b", 5, "kueue.x-k8s.io/podset-required-topology: cloud/rack"), site.gang("g2", "b", 4);
  settle();
  site.job("a1", "a", 6);  // takes its own back: g2, which came later, stops
  settle();
  site.complete("a1");
  settle();
  Json done = site.api_.all(Site::gangs().resource.plural).at({"lab", "g1"});
  done.set("status", yaml("{conditions: [{type: Completed, status: 'True', message: done}]}"));
  (void)site.api_.put(Site::gangs().resource, done);
  settle();
}

TEST(TaskGovernance, AHyperPodPyTorchJobWaitsRunsAndEndsWheneverTheServerDies) {
  const std::string wanted = expect_death_changes_nothing(gang_story, [](Site& site) {
    std::string out;
    for (const auto& [key, gang] : site.api_.all(Site::gangs().resource.plural)) {
      const Json workload = site.workload_of(key.name);
      out += fmt::format("{} suspended={} reserved={} finished={} {}\n", key.name, kube::print_json(gang["spec"]["runPolicy"]["suspend"]), holds_quota(workload), kube::condition_is_true(workload, "Finished"), kube::print_json(gang["spec"]["replicaSpecs"].items()[0]["template"]["spec"]["nodeSelector"]));
    }
    return out + places(site);
  }, 25);
  EXPECT_THAT(wanted, HasSubstr("g1 suspended=false reserved=true finished=true"));
  EXPECT_THAT(wanted, HasSubstr("g2 suspended=false reserved=true finished=false {\"kind\":\"h200\"}"));
  EXPECT_THAT(wanted, HasSubstr("own suspended=null reserved=false"));
}

TEST(TaskGovernance, StaleCachesNeverLetTooMuchRun) {
  expect_stale_caches_break_nothing(story, test_rounds<std::uint64_t>(75, 3'000), &Site::jobs_step, [](Site& site, std::uint64_t seed) {
    EXPECT_THAT(site.outcome(), HasSubstr("b2 runs")) << "seed " << seed;
    EXPECT_THAT(site.outcome(), HasSubstr("a2 runs")) << "seed " << seed;
  });
}

}  // namespace
}  // namespace fairlead::governance
