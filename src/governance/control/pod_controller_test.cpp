// SPDX-License-Identifier: Apache-2.0
// Pods and groups of pods in queues: what users see, death at every step, and caches that are behind.
#include "governance/control/control_lab.h"

namespace fairlead::governance {
namespace {

using namespace lab;
using testing::HasSubstr;

std::string events(Site& site) {
  std::string out;
  for (const auto& [key, event] : site.api_.all("events")) out += event["involvedObject"]["name"].string() + " " + event["reason"].string() + ": " + event["message"].string() + "\n";
  return out;
}

TEST(QueuedPods, ThoseThatAreNotReadyInTimeGiveTheirQuotaBack) {
  Site site;
  site.get_ready_ = 0;
  site.put(api::teams::configs, "{metadata: {name: policy, uid: p}, spec: {waitForPodsReady: {timeoutSeconds: 100}}}");
  site.pod("alone", "a"), site.pod("g0", "a", "gang", 2), site.pod("g1", "a", "gang", 2);
  site.settle();
  const auto ready = [&](const std::string& name) {
    const Json* told = kube::find_condition(site.api_.all("workloads").at({"lab", name}), "PodsReady");
    return told == nullptr ? "none" : (*told)["reason"].string();
  };
  const std::string alone = pod_workload_name(site.api_.all("pods").at({"lab", "alone"}));
  EXPECT_EQ(ready(alone) + " " + ready("gang"), "WaitForStart WaitForStart");
  // One of two is ready: the group is not.
  Json first = site.api_.all("pods").at({"lab", "g0"});
  kube::set_condition(first, {.type = "Ready", .status = "True"}, site.clock_.now());
  site.put(kube::resources::pods, kube::print_json(first));
  site.settle();
  EXPECT_EQ(ready("gang"), "WaitForStart");
  site.clock_.advance(101s);
  site.settle();
  for (const char* name : {"alone", "g0", "g1"}) EXPECT_EQ(site.pod_state(name), "gone") << name;
}
TEST(QueuedPods, ThoseThatAreReadySayAndStay) {
  Site site;
  site.put(api::teams::configs, "{metadata: {name: policy, uid: p}, spec: {waitForPodsReady: {timeoutSeconds: 100}}}");
  site.pod("alone", "a"), site.pod("g0", "a", "gang", 2), site.pod("g1", "a", "gang", 2);
  site.settle(), site.settle();
  EXPECT_EQ((*kube::find_condition(site.api_.all("workloads").at({"lab", "gang"}), "PodsReady"))["reason"].string(), "Started");
  site.clock_.advance(1000s);
  site.settle();
  for (const char* name : {"alone", "g0", "g1"}) EXPECT_EQ(site.pod_state(name), "Running") << name;
}
TEST(QueuedPods, OneRunsOnItsQuotaAndIsTakenBack) {
  Site site;
  for (int i = 1; i <= 9; ++i) site.pod(fmt::format("b{}", i), "b");
  site.settle();
  for (int i = 1; i <= 9; ++i) EXPECT_EQ(site.pod_state(fmt::format("b{}", i)), "Running");
  EXPECT_EQ(site.api_.all("pods").at({"lab", "b1"})["spec"]["nodeSelector"]["kind"].string(), "h200");
  EXPECT_EQ(site.api_.all("clusterqueues").at({"", "b"})["status"]["admittedWorkloads"].integer(), 9);
  site.job("a1", "a", 6);
  site.settle();
  EXPECT_EQ(site.state("a1"), "runs");
  EXPECT_EQ(site.pod_state("b5"), "Running");
  EXPECT_EQ(site.pod_state("b6") + site.pod_state("b9"), "gonegone") << "the latest ones";
  EXPECT_EQ(site.api_.all("workloads").size(), 6U) << "five pods and the Job";
  site.end_pod("b1", "Succeeded");
  site.settle();
  EXPECT_THAT(site.says("b1", "Finished"), HasSubstr("True Succeeded"));
  site.pod("b10", "b");
  site.settle();
  EXPECT_EQ(site.pod_state("b10"), "Running");
  for (const char* told : {"b1 CreatedWorkload", "b1 Started: Admitted by clusterQueue b", "b9 Stopped: Preempted to accommodate a workload", "b1 FinishedWorkload"}) EXPECT_THAT(events(site), HasSubstr(told));
}

TEST(QueuedPods, AGroupRunsWholeOrNotAtAll) {
  Site site;
  for (int i = 1; i <= 8; ++i) site.pod(fmt::format("r{}", i), "a", "ring", 8);
  site.pod("s1", "b", "star", 4), site.pod("s2", "b", "star", 4), site.pod("s3", "b", "star", 4);
  site.settle();
  EXPECT_EQ(site.pod_state("r1") + site.pod_state("r8"), "RunningRunning");
  EXPECT_EQ(site.pod_state("s1"), "held");
  EXPECT_THAT(events(site), HasSubstr("s1 NotQueued: 'star' group has fewer runnable pods than expected: 4 are needed"));
  site.pod("s4", "b", "star", 4);
  site.settle();
  for (const char* name : {"s1", "s2", "s3", "s4"}) EXPECT_EQ(site.pod_state(name), "Running") << "the other one borrowed";
  for (int i = 1; i <= 8; ++i) EXPECT_EQ(site.pod_state(fmt::format("r{}", i)), "gone");
  EXPECT_FALSE(site.api_.all("workloads").contains({"lab", "ring"}));
  site.end_pod("s1", "Failed");
  site.settle();
  site.pod("s5", "b", "star", 4);
  site.settle();
  EXPECT_EQ(site.pod_state("s5"), "Running");
  for (const char* name : {"s2", "s3", "s4", "s5"}) site.end_pod(name, "Succeeded");
  site.settle();
  EXPECT_TRUE(kube::condition_is_true(site.api_.all("workloads").at({"lab", "star"}), "Finished"));
  for (const char* name : {"s1", "s2", "s5"}) EXPECT_FALSE(kube::has_finalizer(site.api_.all("pods").at({"lab", name}), kManaged)) << name;
}

TEST(QueuedPods, TheWorkloadOfAGroupIsNotAnOrphan) {
  Site site;
  site.pod("r1", "a", "ring", 2), site.pod("r2", "a", "ring", 2);
  site.settle();
  ASSERT_TRUE(site.api_.remove(queues::workloads, {"lab", "ring"}));
  for (int step = 0; step < 20; ++step) {  // nodes do nothing meanwhile
    site.refresh_all();
    site.one(0);
  }
  EXPECT_EQ(site.pod_state("r1") + site.pod_state("r2"), "endsends");
  EXPECT_TRUE(site.api_.all("workloads").contains({"lab", "ring"})) << "its quota is held until they are gone";
  site.settle();
  EXPECT_EQ(site.pod_state("r1"), "gone");
  EXPECT_FALSE(site.api_.all("workloads").contains({"lab", "ring"}));
}

TEST(QueuedPods, ThoseOfAQueuedJobAreItsOwnBusiness) {
  Site site;
  site.job("a1", "a", 2);
  site.settle();
  for (const char* gates : {"[]", "[{name: kueue.x-k8s.io/admission}]"}) {
    site.put(resources::pods, fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: odd, namespace: lab, uid: uid-odd, labels: {{kueue.x-k8s.io/queue-name: team-a, batch.kubernetes.io/controller-uid: uid-a1}}, ownerReferences: [{{apiVersion: batch/v1, kind: Job, "
                                          "name: a1, uid: uid-a1, controller: true}}]}}, spec: {{schedulingGates: {}, containers: []}}, status: {{phase: Pending}}}}",
                                          gates));
    site.refresh_all();
    for (int step = 0; step < 20; ++step) site.one(0);
    EXPECT_EQ(site.api_.all("workloads").size(), 1U);
  }
  EXPECT_THAT(events(site), HasSubstr("odd NotQueued: It is of Job a1, which is queued as a whole"));
  EXPECT_THAT(events(site), testing::Not(HasSubstr("no scheduling gate")));
}

// docs/design/055: what an elastic job grows by has a quota of its own, and is taken back alone; the rest of its pods is its own business.
TEST(QueuedPods, AMemberOfAnElasticJobIsQueuedByItself) {
  Site site;
  const auto put = [&](const char* name, const char* label) {
    site.put(resources::pods, fmt::format("{{apiVersion: v1, kind: Pod, metadata: {{name: {0}, namespace: lab, uid: uid-{0}, creationTimestamp: '{2}', finalizers: [node], labels: {{kueue.x-k8s.io/queue-name: team-b{1}}}, ownerReferences: [{{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, "
                                          "name: own, uid: uid-own, controller: true}}]}}, spec: {{schedulingGates: [{{name: kueue.x-k8s.io/admission}}], containers: [{{name: c, resources: {{requests: {{cpu: 1}}}}}}]}}, status: {{phase: Pending}}}}",
                                          name, label, print_time(site.clock_.now())));
  };
  site.put(Site::gangs().resource, "{apiVersion: sagemaker.amazonaws.com/v1, kind: HyperPodPyTorchJob, metadata: {name: own, namespace: lab, uid: uid-own}, spec: {replicaSpecs: [{name: pod, replicas: 1, template: {spec: {containers: [{name: c}]}}}]}}");
  put("own-pod-1", "");
  put("own-pod-2", ", fairlead.dev/elastic-member: 'true'");
  site.settle();
  EXPECT_EQ(site.pod_state("own-pod-1"), "held") << "it goes with its job";
  EXPECT_EQ(site.pod_state("own-pod-2"), "Running");
  EXPECT_EQ(site.api_.all("clusterqueues").at({"", "b"})["status"]["admittedWorkloads"].integer(), 1);
  const std::string workload = pod_workload_name(site.api_.all("pods").at({"lab", "own-pod-2"}));
  ASSERT_TRUE(site.api_.all("workloads").contains({"lab", workload}));
  Json off = site.api_.all("workloads").at({"lab", workload});
  off.child("spec").set("active", false);
  site.put(queues::workloads, kube::print_json(off));
  site.settle();
  EXPECT_EQ(site.pod_state("own-pod-2"), "gone") << "taken back";
  EXPECT_EQ(site.pod_state("own-pod-1"), "held");
}

// A leader that has just started: its cache has the pod as it is, and its Workload from before it was admitted, or not at all.
TEST(QueuedPods, NobodyIsStoppedOnAnOldStateOfItsWorkload) {
  for (const bool known : {false, true}) {
    Site site;
    if (known) {
      site.refresh_all();
      site.queue("a", "0"), site.queue("b", "0");
    }
    site.pod("a1", "a");
    if (known) site.settle();
    const auto before = site.api_.all("workloads");
    if (known) site.queue("a", "6"), site.queue("b", "5");
    site.settle();
    ASSERT_EQ(site.pod_state("a1"), "Running");
    const auto now = site.api_.all("workloads");
    site.api_.all("workloads") = before;
    site.start();
    site.api_.all("workloads") = now;
    for (int step = 0; step < 40; ++step) {
      site.refresh(resources::pods);
      site.controllers_[2].keys.insert({"lab", "a1"});
      site.one(2);
    }
    EXPECT_EQ(site.pod_state("a1"), "Running");
    EXPECT_EQ(kube::find_condition(site.api_.all("pods").at({"lab", "a1"}), "TerminationTarget"), nullptr);
    site.settle();
    EXPECT_EQ(site.pod_state("a1"), "Running");
  }
}

// A leader that has just started: its cache has the pod behind its gate; it runs by now.
TEST(QueuedPods, QuotaIsNotGivenBackOnAnOldStateOfThePod) {
  for (const char* group : {"", "ring"}) {
    Site site;
    site.queue("a", "0"), site.queue("b", "0");
    site.pod("a1", "a", group);
    site.settle();
    const auto before = site.api_.all("pods");
    site.queue("a", "6"), site.queue("b", "5");
    site.settle();
    ASSERT_EQ(site.pod_state("a1"), "Running");
    const auto now = site.api_.all("pods");
    site.api_.all("pods") = before;
    site.start();
    site.api_.all("pods") = now;
    Json off = site.api_.all("workloads").begin()->second;
    off.child("spec").set("active", false);
    ASSERT_TRUE(site.api_.put(queues::workloads, off));
    for (int step = 0; step < 60; ++step) {
      site.refresh(queues::workloads);
      site.one(static_cast<std::uint64_t>(step));
    }
    EXPECT_TRUE(kube::condition_is_true(site.api_.all("workloads").begin()->second, "Evicted"));
    EXPECT_TRUE(holds_quota(site.api_.all("workloads").begin()->second)) << group;
    site.settle();
    EXPECT_EQ(site.pod_state("a1"), "gone");
  }
}

// Somebody took the queue's label from a pod of a group that runs: it uses its quota all the same.
TEST(QueuedPods, APodWithoutItsLabelKeepsTheQuotaOfItsGroup) {
  Site site;
  site.pod("r1", "b", "ring", 2), site.pod("r2", "b", "ring", 2);
  site.settle();
  ASSERT_EQ(site.pod_state("r1") + site.pod_state("r2"), "RunningRunning");
  Json bare = site.api_.all("pods").at({"lab", "r1"});
  bare.child("metadata").child("labels").erase(kQueueLabel);
  ASSERT_TRUE(site.api_.put(resources::pods, bare));
  Json off = site.api_.all("workloads").at({"lab", "ring"});
  off.child("spec").set("active", false);
  ASSERT_TRUE(site.api_.put(queues::workloads, off));
  for (int round = 0; round < 10; ++round) {
    site.nodes_step();
    site.refresh_all();
    for (int steps = 0; steps < 40 && site.one(static_cast<std::uint64_t>(steps)); ++steps) site.refresh_all();
  }
  EXPECT_EQ(site.pod_state("r1") + site.pod_state("r2"), "Runninggone");
  EXPECT_TRUE(holds_quota(site.api_.all("workloads").at({"lab", "ring"})));
  site.end_pod("r1", "Succeeded");
  site.settle();
  EXPECT_TRUE(!site.api_.all("workloads").contains({"lab", "ring"}) || !holds_quota(site.api_.all("workloads").at({"lab", "ring"})));
}

std::string outcome(Site& site) {
  std::string out;
  for (const char* name : {"b1", "b2", "b3", "r1", "r2", "r3", "r4", "r5", "s1", "s2", "s3", "s4", "s5", "s6"}) out += std::string(name) + " " + site.pod_state(name) + "\n";
  for (const auto& [key, object] : site.api_.all("workloads")) {
    out += fmt::format("{} reserved={} ", key.name, holds_quota(object));
    for (const Json& condition : object["status"]["conditions"].items()) out += condition["type"].string() + "=" + condition["status"].string() + " ";
    out += kube::print_json(object["status"]["reclaimablePods"]) + "\n";
  }
  return out;
}

void story(Site& site, const std::function<void()>& settle) {
  for (const char* name : {"b1", "b2", "b3"}) site.pod(name, "b");
  for (const char* name : {"r1", "r2", "r3", "r4"}) site.pod(name, "b", "ring", 4);
  settle();
  for (const char* name : {"s1", "s2", "s3", "s4", "s5", "s6"}) site.pod(name, "a", "star", 6);
  settle();
  if (site.pod_state("b1") == "Running") site.end_pod("b1", "Succeeded");
  if (site.pod_state("s1") == "Running") site.end_pod("s1", "Succeeded");
  settle();
  if (site.pod_state("b2") != "gone") site.remove_pod("b2");
  if (site.pod_state("s2") == "Running") site.end_pod("s2", "Failed");
  settle();
}

TEST(QueuedPods, DeathAtAnyStepChangesNothingOfTheEnd) {
  const std::string wanted = expect_death_changes_nothing(story, outcome, 60);
  EXPECT_THAT(wanted, HasSubstr("r1 gone\n"));
  EXPECT_THAT(wanted, HasSubstr("s3 Running\n"));
  EXPECT_THAT(wanted, HasSubstr("WaitingForReplacementPods=True"));
}

TEST(QueuedPods, StaleCachesNeverLetTooMuchRun) {
  expect_stale_caches_break_nothing(story, test_rounds<std::uint64_t>(40, 2'000), &Site::nodes_step, [](Site& site, std::uint64_t seed) {
    EXPECT_THAT(outcome(site), HasSubstr("s3 Running")) << "seed " << seed;
    EXPECT_THAT(outcome(site), HasSubstr("b2 gone")) << "seed " << seed;
  });
}

}  // namespace
}  // namespace fairlead::governance
