// SPDX-License-Identifier: Apache-2.0
#include "training/control/training_controller.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "training/training_test_site.h"

namespace fairlead::training {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

std::string env(const Json& pod, const std::string& name) {
  for (const Json& one : pod["spec"]["containers"].items()[0]["env"].items())
    if (one["name"].string() == name) return one["value"].string() + one["valueFrom"]["fieldRef"]["fieldPath"].string();
  return "-";
}

TEST(TrainingJob, RunsAndCompletesWithAgents) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(1s);
  EXPECT_THAT(site.pods(), ElementsAre("t-pod-0", "t-pod-1"));
  EXPECT_EQ(site.shown(), "Created");
  const Json pod = site.pod("t-pod-1");
  EXPECT_EQ(pod["metadata"]["labels"][kJobLabel].string(), "t");
  EXPECT_EQ(pod["metadata"]["labels"]["team"].string(), "a");
  EXPECT_EQ(pod["metadata"]["labels"][kRankLabel].string(), "1");
  EXPECT_EQ(pod["spec"]["restartPolicy"].string(), "Never");
  EXPECT_EQ(env(pod, "NNODES"), "2");
  EXPECT_EQ(env(pod, "NPROC_PER_NODE"), "2");
  EXPECT_EQ(env(pod, "PET_NNODES"), "2");
  EXPECT_EQ(env(pod, "MASTER_ADDR"), "-") << "an agent is told";
  EXPECT_EQ(env(pod, "MINE"), "$(NNODES)") << "and comes after what it may be made of";
  EXPECT_EQ(kube::controller_of(pod)->operator[]("uid").string(), kube::uid_of(site.job()));
  site.run(5s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.agent("t-pod-1").rank, 1);
  EXPECT_EQ(site.agent("t-pod-1").nodes, 2);
  EXPECT_EQ(site.status()["masterAddr"].string(), site.at("t-pod-0").address);
  EXPECT_EQ(site.status()["masterPort"].string(), "29500");
  site.agents->complete(site.at("t-pod-0"));
  site.run(6s);
  EXPECT_EQ(site.shown(), "Running") << "one is not all";
  site.agents->complete(site.at("t-pod-1"));
  site.run(8s);
  EXPECT_EQ(site.shown(), "Completed");
  EXPECT_EQ(site.message("Completed"), "All 2 nodes have completed");
  EXPECT_THAT(site.pods(), ElementsAre("t-pod-0", "t-pod-1")) << "their logs can be read";
  EXPECT_EQ(site.pod("t-pod-0")["status"]["phase"].string(), "Succeeded") << "its agent was told to leave";
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
  EXPECT_THAT(site.agents->broken, IsEmpty());
  EXPECT_THAT(site.api->refusals(), IsEmpty());
}

TEST(TrainingJob, ProcessesBeginAnewInTheirPods) {
  Site site;
  site.add(Site::job_of("t", 3));
  site.run(6s);
  ASSERT_EQ(site.shown(), "Running");
  const std::string uid = kube::uid_of(site.pod("t-pod-1"));
  site.agents->fault(site.at("t-pod-1"), "LogHang_JobStart", "The job is hanging");
  site.run(2s);
  EXPECT_EQ(site.shown(), "Faulted");
  EXPECT_THAT(site.message("Faulted"), HasSubstr("Pod t-pod-1: The job is hanging. Restart 1 is under way: of the processes in their pods"));
  site.run(10s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_THAT(site.message("Running"), StartsWith("The fault of reason LogHang_JobStart was remediated in "));
  EXPECT_EQ(kube::uid_of(site.pod("t-pod-1")), uid);
  EXPECT_EQ(site.agent("t-pod-0").starts, 2);
  EXPECT_EQ(site.agent("t-pod-0").restarts, 1);
  EXPECT_EQ(site.status()["restartCount"].integer(), 1);
  EXPECT_EQ(site.status()["restartStatus"]["restartCount"].integer(), 1);
  EXPECT_EQ(site.status()["masterPort"].string(), "29501") << "nobody of the first attempt joins";
  const Json faulty = site.status()["latestFaultyPodInstanceList"];
  EXPECT_EQ(faulty["restartType"].string(), "PLR");
  EXPECT_EQ(faulty["faultyPodList"].items()[0].string(), "t-pod-1");
  EXPECT_EQ(faulty["faultyRankList"].items()[0].string(), "1");
  EXPECT_EQ(faulty["faultyInstanceIdList"].items()[0].string(), site.pod("t-pod-1")["spec"]["nodeName"].string());
  EXPECT_THAT(site.events(), Contains("LogHang_JobStart"));
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingJob, APodThatEndsIsMadeAnewAndTheOthersStay) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  const std::string stays = kube::uid_of(site.pod("t-pod-0")), goes = kube::uid_of(site.pod("t-pod-1"));
  site.end_pod("t-pod-1", 137);
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(kube::uid_of(site.pod("t-pod-0")), stays);
  EXPECT_NE(kube::uid_of(site.pod("t-pod-1")), goes);
  EXPECT_EQ(site.status()["restartCount"].integer(), 1);
  EXPECT_THAT(site.message("Running"), HasSubstr("PodFailed"));
  // Of one that is deleted by somebody the same.
  ASSERT_TRUE(site.store.remove(resources::pods, {"team", "t-pod-0"}));
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.status()["restartCount"].integer(), 2);
  EXPECT_EQ(site.status()["masterAddr"].string(), site.at("t-pod-0").address);
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingJob, LeavesANodeThatIsToGo) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  const std::string node = site.pod("t-pod-1")["spec"]["nodeName"].string();
  site.mark_node(node, "UnschedulablePendingReboot");
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_NE(site.pod("t-pod-1")["spec"]["nodeName"].string(), node);
  EXPECT_THAT(site.message("Running"), HasSubstr("NodeFault"));
  const Json moved = site.pod("t-pod-1");
  const Json& rules = moved.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
  EXPECT_EQ(rules.items()[0]["matchExpressions"].items()[0]["operator"].string(), "NotIn");
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingJob, RestartsAreLimitedByWindow) {
  Site site;
  site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{"restartPolicy", Json::object({{"numRestartBeforeFullJobRestart", 2}, {"maxFullJobRestarts", 1}, {"evalPeriodSeconds", 36000}})}})));
  site.run(6s);
  const std::string first = kube::uid_of(site.pod("t-pod-0"));
  for (int i = 1; i <= 2; ++i) {
    site.agents->fault(site.at("t-pod-0"));
    site.run(60s);
    ASSERT_EQ(site.shown(), "Running") << i;
    EXPECT_EQ(kube::uid_of(site.pod("t-pod-0")), first);
  }
  site.agents->fault(site.at("t-pod-0"));
  site.run(60s);
  ASSERT_EQ(site.shown(), "Running");
  EXPECT_NE(kube::uid_of(site.pod("t-pod-0")), first) << "of the whole job: with new pods";
  EXPECT_EQ(site.status()["restartStatus"]["fullJobRestartCount"].integer(), 1);
  EXPECT_EQ(site.status()["restartStatus"]["restartCount"].integer(), 0);
  for (int i = 0; i < 3; ++i) {
    site.agents->fault(site.at("t-pod-0"));
    site.run(120s);
    ASSERT_EQ(site.shown(), i < 2 ? "Running" : "Failed") << i;
  }
  EXPECT_EQ(site.shown(), "Failed");
  EXPECT_THAT(site.message("Failed"), HasSubstr("2 restarts and 1 of the whole job within 36000 s"));
  EXPECT_EQ(site.status()["restartCount"].integer(), 5);
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingJob, AWindowThatIsOverForgets) {
  Site site;
  site.add(Site::job_of("t", 1, "hyperpodrun train.py", Json::object({{"restartPolicy", Json::object({{"numRestartBeforeFullJobRestart", 1}, {"maxFullJobRestarts", 0}, {"evalPeriodSeconds", 3600}})}})));
  site.run(6s);
  for (int i = 0; i < 3; ++i) {
    site.agents->fault(site.at("t-pod-0"));
    site.run(60s);
    ASSERT_EQ(site.shown(), "Running");
    site.clock.advance(3600s);
  }
  EXPECT_EQ(site.status()["restartCount"].integer(), 3);
  EXPECT_EQ(site.status()["restartStatus"]["restartCount"].integer(), 1);
  site.run(2s);
  site.agents->fault(site.at("t-pod-0"));
  site.run(20s);
  site.agents->fault(site.at("t-pod-0"));
  site.run(20s);
  EXPECT_EQ(site.shown(), "Failed");
}

TEST(TrainingJob, RetriesAloneLimit) {
  Site site;
  site.add(Site::job_of("t", 1, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 5}, {"cleanPodPolicy", "All"}})));
  site.run(6s);
  for (int i = 0; i < 5; ++i) {
    site.agents->fault(site.at("t-pod-0"));
    site.run(400s);
    ASSERT_EQ(site.shown(), "Running") << i;
  }
  site.agents->fault(site.at("t-pod-0"));
  site.run(10s);
  EXPECT_EQ(site.shown(), "Failed");
  EXPECT_THAT(site.message("Failed"), HasSubstr("jobMaxRetryCount is 5"));
  EXPECT_THAT(site.pods(), IsEmpty());
}

TEST(TrainingJob, ASpareTakesTheRankOfOneThatFails) {
  Site site;
  Json job = Site::job_of("t", 2);
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(8s);
  ASSERT_EQ(site.shown(), "Running");
  EXPECT_THAT(site.pods(), ElementsAre("t-pod-0", "t-pod-1", "t-pod-2"));
  EXPECT_EQ(site.agent("t-pod-2").state, AgentState::Ready);
  for (int i = 3; i < 6; ++i) site.full.insert(fmt::format("node-{}", i));  // no room for another
  site.mark_node(site.pod("t-pod-0")["spec"]["nodeName"].string(), "UnschedulablePendingReplacement");
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.pod("t-pod-2")["metadata"]["labels"][kRankLabel].string(), "0");
  EXPECT_EQ(site.agent("t-pod-2").rank, 0);
  EXPECT_EQ(site.status()["masterAddr"].string(), site.at("t-pod-2").address);
  EXPECT_EQ(site.pod("t-pod-0")["status"]["phase"].string(), "") << "it waits for room, and is the spare then";
  site.full.clear();
  site.run(5s);
  EXPECT_EQ(site.agent("t-pod-0").state, AgentState::Ready);
  EXPECT_THAT(site.agents->broken, IsEmpty());
  EXPECT_THAT(site.api->refusals(), IsEmpty());
}

TEST(TrainingJob, IsHeldAndGoesOn) {
  Site site;
  site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{"suspend", true}})));
  site.run(3s);
  EXPECT_EQ(site.shown(), "Suspended");
  EXPECT_THAT(site.pods(), IsEmpty());
  EXPECT_THAT(site.events(), ElementsAre("JobInitiallySuspended"));
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", false); });
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
  site.agents->fault(site.at("t-pod-0"));
  site.run(10s);
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", true); });
  site.run(3s);
  EXPECT_EQ(site.shown(), "Suspended");
  EXPECT_THAT(site.pods(), IsEmpty());
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", false); });
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.status()["restartCount"].integer(), 1) << "to be held is no fault";
}

TEST(TrainingJob, InAQueueItWaitsUntilThatHasSeenIt) {
  Site site;
  Json job = Site::job_of("t", 2);
  job.child("metadata").child("labels").set("kueue.x-k8s.io/queue-name", "queue");
  site.add(job);
  site.run(3s);
  EXPECT_EQ(site.shown(), "Suspended") << "nobody has suspended it, and nobody has admitted it";
  EXPECT_THAT(site.pods(), IsEmpty());
  const auto workload = [&](const char* condition) {
    Json one = Json::object({{"metadata", Json::object({{"name", "w"}, {"namespace", "team"}, {"ownerReferences", Json::array({kube::owner_reference(site.job())})}})}});
    one.child("metadata").child("ownerReferences").items()[0].set("uid", kube::uid_of(site.job()));
    one.set("status", Json::object({{"conditions", Json::array({Json::object({{"type", condition}, {"status", "True"}})})}}));
    Site::must(site.store.put({"kueue.x-k8s.io", "v1beta2", "workloads", "Workload", true}, one));
  };
  workload("QuotaReserved");
  site.run(3s);
  EXPECT_THAT(site.pods(), IsEmpty());
  workload("Admitted");
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
  // What it has is taken by suspend alone: a cache that does not know its Workload any more is no reason.
  site.store.all("workloads").clear();
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.pods().size(), 2u);
  EXPECT_THAT(site.api->refusals(), IsEmpty());
}

TEST(TrainingJob, APodThatWasTakenAwayIsNoFaultOfWhatComesThen) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  site.hold("t-pod-1");
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", true); });
  site.run(2s);
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", false); });
  site.run(2s);
  site.end_pod("t-pod-1", 137);
  site.run(2s);
  site.let_go("t-pod-1");
  site.run(10s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
}

TEST(TrainingJob, WithoutAgentsNodesAreToldTheFirstOne) {
  Site site;
  site.agent_images = false;
  site.add(Site::job_of("t", 2, "torchrun train.py"));
  ASSERT_TRUE(site.reconcile());
  EXPECT_THAT(site.pods(), ElementsAre("t-pod-0")) << "its address is not known yet";
  EXPECT_EQ(env(site.pod("t-pod-0"), "MASTER_ADDR"), "status.podIP");
  site.run(6s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(env(site.pod("t-pod-1"), "PET_MASTER_ADDR"), site.at("t-pod-0").address);
  EXPECT_EQ(env(site.pod("t-pod-1"), "PET_NODE_RANK"), "1");
  const std::string first = kube::uid_of(site.pod("t-pod-0"));
  site.end_pod("t-pod-1", 1);
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_NE(kube::uid_of(site.pod("t-pod-0")), first) << "its processes cannot be told to begin anew";
  EXPECT_EQ(site.status()["latestFaultyPodInstanceList"]["restartType"].string(), "JLR");
  EXPECT_EQ(env(site.pod("t-pod-1"), "MASTER_PORT"), "29501");
  site.end_pod("t-pod-0", 0);
  site.run(3s);
  EXPECT_EQ(site.shown(), "Running");
  site.end_pod("t-pod-1", 0);
  site.run(3s);
  EXPECT_EQ(site.shown(), "Completed");
}

TEST(TrainingJob, WhatIsDoneAtOnceIsDoneOnce) {
  for (const char* command : {"torchrun train.py", ""}) {
    Site site;
    site.agent_images = false;
    site.add(Site::job_of("t", 3, command));
    for (int i = 0; i < 3; ++i) {
      site.run(2s);
      ASSERT_THAT(site.pods(), Contains(fmt::format("t-pod-{}", i))) << command;
      site.end_pod(fmt::format("t-pod-{}", i), 0);
    }
    site.run(3s);
    EXPECT_EQ(site.shown(), "Completed") << command;
    EXPECT_EQ(site.status()["restartCount"].integer(), 0) << command;
  }
}

TEST(TrainingJob, AnEntryPointThatNobodyToldUsOf) {
  Site site;
  site.agent_images = false;
  site.add(Site::job_of("t", 2, ""));
  site.run(30s);
  EXPECT_EQ(site.shown(), "PodsRunning");
  site.run(50s);
  EXPECT_EQ(site.shown(), "Running") << "no agent has come";
  // One that was slow: it is told, and nothing counts as a fault.
  for (const char* pod : {"t-pod-0", "t-pod-1"}) site.agents->all[site.at(pod)] = {};
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.agent("t-pod-1").rank, 1);
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
}

TEST(TrainingJob, AnAgentThatSaysNothingIsWaitedFor) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  site.agent("t-pod-1").silent = true;
  site.run(300s);
  EXPECT_EQ(site.shown(), "Running") << "to be silent is no fault";
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
  // With a fault of another it is in the way.
  const std::string silent = kube::uid_of(site.pod("t-pod-1"));
  site.agents->fault(site.at("t-pod-0"));
  site.run(30s);
  EXPECT_EQ(kube::uid_of(site.pod("t-pod-1")), silent);
  site.run(60s);
  EXPECT_NE(kube::uid_of(site.pod("t-pod-1")), silent);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_THAT(site.events(), Contains("AgentSilent"));
}

TEST(TrainingJob, Deadlines) {
  struct Case { const char *field, *reason; std::function<void(Site&)> before; };
  for (const Case& row : {Case{"startupDeadlineSeconds", "StartupDeadlineExceeded", [](Site& site) { for (int i = 0; i < 6; ++i) site.full.insert(fmt::format("node-{}", i)); }},
                          Case{"activeDeadlineSeconds", "DeadlineExceeded", [](Site&) {}},
                          Case{"faultDeadlineSeconds", "FaultDeadlineExceeded", [](Site& site) {
                                 site.run(6s);
                                 for (int i = 0; i < 6; ++i) site.full.insert(fmt::format("node-{}", i));
                                 site.end_pod("t-pod-0", 1);
                               }}}) {
    Site site;
    site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{row.field, 40}})));
    row.before(site);
    site.run(30s);
    EXPECT_NE(site.shown(), "Failed") << row.field;
    site.run(30s);
    EXPECT_EQ(site.shown(), "Failed") << row.field;
    EXPECT_THAT(site.message("Failed"), HasSubstr(row.field));
    site.run(70s);
    for (const std::string& pod : site.pods()) EXPECT_NE(site.pod(pod)["status"]["phase"].string(), "Running") << pod;
  }
}

TEST(TrainingJob, WhatStaysOfIt) {
  struct Case { const char* policy; bool good; std::vector<std::string> left; };
  for (const Case& row : {Case{"None", true, {"t-pod-0", "t-pod-1"}}, Case{"All", true, {}}, Case{"OnlyComplete", true, {}}, Case{"OnlyComplete", false, {"t-pod-0"}}}) {
    Site site;
    site.agent_images = false;
    site.add(Site::job_of("t", 2, "torchrun train.py", Json::object({{"cleanPodPolicy", row.policy}, {"jobMaxRetryCount", 0}, {"ttlSecondsAfterFinished", 100}})));
    site.run(6s);
    site.end_pod("t-pod-1", 0);
    site.end_pod("t-pod-0", row.good ? 0 : 1);
    site.run(10s);
    EXPECT_EQ(site.shown(), row.good ? "Completed" : "Failed") << row.policy;
    EXPECT_EQ(site.pods(), row.left) << row.policy;
    site.run(100s);
    EXPECT_TRUE(site.job().is_null()) << "ttlSecondsAfterFinished";
  }
}

TEST(TrainingJob, AnotherNumberOfNodesIsNoFault) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  for (const int nodes : {4, 3, 1}) {
    site.change([&](Json& job) { job.child("spec").child("replicaSpecs").items()[0].set("replicas", nodes); });
    site.run(15s);
    EXPECT_EQ(site.shown(), "Running") << nodes;
    EXPECT_EQ(site.pods().size(), static_cast<std::size_t>(nodes));
    EXPECT_EQ(site.agent("t-pod-0").nodes, nodes);
    EXPECT_TRUE(site.agent("t-pod-0").graceful) << "it may write down where it is";
  }
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingJob, WhatCannotBeMade) {
  struct Case { std::function<void(Json&)> wrong; const char* words; };
  for (const Case& row : {Case{[](Json& job) { job.child("spec").erase("replicaSpecs"); }, "spec.replicaSpecs: at least one"},
                          Case{[](Json& job) { job.child("spec").child("replicaSpecs").items()[0].set("name", "Pod"); }, "spec.replicaSpecs[0].name: \"Pod\""},
                          Case{[](Json& job) { job.child("spec").child("replicaSpecs").push(job["spec"]["replicaSpecs"].items()[0]); }, "there are two of pod"},
                          Case{[](Json& job) { job.child("spec").child("replicaSpecs").items()[0].set("replicas", 0); }, "spec.replicaSpecs[0].replicas: 0"},
                          Case{[](Json& job) { job.child("spec").child("replicaSpecs").items()[0].child("template").erase("spec"); }, "containers"},
                          Case{[](Json& job) { job.child("spec").child("runPolicy").set("cleanPodPolicy", "Some"); }, "cleanPodPolicy: Some"}}) {
    Site site;
    Json job = Site::job_of("t", 2);
    row.wrong(job);
    site.add(job);
    site.run(3s);
    EXPECT_THAT(site.message("Created"), HasSubstr(row.words));
    EXPECT_EQ(site.events().size(), 1u);
    EXPECT_THAT(site.pods(), IsEmpty());
    site.change([](Json& changed) { changed.set("spec", Site::job_of("t", 2)["spec"]); });
    site.run(8s);
    EXPECT_EQ(site.shown(), "Running") << "and it goes on once it is mended: " << row.words;
  }
}

TEST(TrainingJob, ACommandWithoutTheAgentThatItNames) {
  Site site;
  site.agent_images = false;
  site.add(Site::job_of("t", 1, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 1}})));
  for (int i = 0; i < 2; ++i) {
    site.run(20s);
    ASSERT_NE(site.shown(), "Failed");
    site.end_pod("t-pod-0", 127);
  }
  site.run(10s);
  EXPECT_EQ(site.shown(), "Failed");
  EXPECT_THAT(site.message("Failed"), HasSubstr("container pytorch ended with exit code 127"));
}

TEST(TrainingJob, SomebodyElsesDefinitionIsLeftAlone) {
  kube::TinyApi api;
  EXPECT_THAT(*why_training_is_off(api), HasSubstr("there is no definition"));
  Json ours = api::training_crd();
  ASSERT_TRUE(api.put(resources::crds, ours));
  EXPECT_EQ(*why_training_is_off(api), "");
  ours.child("metadata").erase("labels");
  ASSERT_TRUE(api.put(resources::crds, ours));
  EXPECT_THAT(*why_training_is_off(api), HasSubstr("belongs to somebody else"));
}

}  // namespace
}  // namespace fairlead::training
