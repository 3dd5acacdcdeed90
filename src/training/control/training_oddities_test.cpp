// SPDX-License-Identifier: Apache-2.0
// What comes to training jobs from outside: odd specs, pods and agents of others, containers beside the training, refusals of the API.
#include <gmock/gmock.h>

#include "training/training_test_site.h"

namespace fairlead::training {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(TrainingOddities, FormsThatNoPodHas) {
  const std::vector<std::pair<const char*, Json>> odd{{"affinity", Json("x")},
                                                      {"affinity", Json::object({{"nodeAffinity", Json::array()}})},
                                                      {"affinity", Json::object({{"nodeAffinity", Json::object({{"requiredDuringSchedulingIgnoredDuringExecution", "x"}})}})},
                                                      {"affinity", Json::object({{"nodeAffinity", Json::object({{"requiredDuringSchedulingIgnoredDuringExecution", Json::object({{"nodeSelectorTerms", Json::object({})}})}})}})},
                                                      {"affinity", Json::object({{"nodeAffinity", Json::object({{"requiredDuringSchedulingIgnoredDuringExecution", Json::object({{"nodeSelectorTerms", Json::array({"x"})}})}})}})},
                                                      {"containers", Json::array({"x"})},
                                                      {"containers", Json::object({{"a", 1}})}};
  for (const auto& [field, value] : odd) {
    Site site;
    Json job = Site::job_of("t", 1);
    job.child("spec").child("replicaSpecs").items()[0].child("template").child("spec").set(field, value);
    site.add(job);
    site.run(2s);
    EXPECT_THAT(site.message("Created"), HasSubstr(field)) << kube::print_json(value);
    EXPECT_THAT(site.pods(), IsEmpty());
  }
  // Odd, and not ours to judge: the API does.
  for (const char* field : {"volumes", "tolerations", "hostNetwork", "initContainers"}) {
    Site site;
    Json job = Site::job_of("t", 1);
    Json& pod = job.child("spec").child("replicaSpecs").items()[0].child("template");
    pod.child("spec").set(field, "odd");
    pod.set("metadata", "odd");
    pod.child("spec").child("containers").items()[0].set("env", "odd");
    site.add(job);
    site.run(2s);
    EXPECT_EQ(site.pods().size(), 1u) << field;
  }
}

TEST(TrainingOddities, AContainerBesideTheTrainingHidesNothing) {
  for (const int code : {0, 1}) {
    Site site;
    site.agent_images = false;
    site.add(Site::job_of("t", 1, "torchrun train.py", Json::object({{"jobMaxRetryCount", 0}})));
    site.run(6s);
    ASSERT_EQ(site.shown(), "Running");
    Json pod = site.pod("t-pod-0");
    pod.child("status").set("containerStatuses", Json::array({Json::object({{"name", "dashboard"}, {"state", Json::object({{"running", Json::object({})}})}}), Json::object({{"name", "pytorch"}, {"state", Json::object({{"terminated", Json::object({{"exitCode", code}})}})}})}));
    Site::must(site.store.put(resources::pods, pod));
    site.run(10s);
    EXPECT_EQ(site.shown(), code == 0 ? "Completed" : "Failed");
    EXPECT_THAT(site.pods(), IsEmpty()) << "what still runs is ended";
  }
}

TEST(TrainingOddities, AnAgentThatLeavesHasTimeToDoIt) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  for (const char* pod : {"t-pod-0", "t-pod-1"}) site.agents->complete(site.at(pod));
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(site.reconcile());
    site.clock.advance(1s);
  }
  ASSERT_EQ(site.shown(), "Completed");
  // Its port is closed, and the kubelet has not told of its end yet.
  site.agents->all.clear();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(site.reconcile());
    site.clock.advance(1s);
  }
  EXPECT_EQ(site.pods().size(), 2u) << "their logs can be read";
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(site.reconcile());
    site.clock.advance(1s);
  }
  EXPECT_THAT(site.pods(), IsEmpty()) << "and it has not all time";
}

TEST(TrainingOddities, HeldAndLetGoWhilePodsTakeTheirTimeToGo) {
  Site site;
  site.agent_images = false;
  site.add(Site::job_of("t", 2, "torchrun train.py", Json::object({{"jobMaxRetryCount", 0}})));
  site.run(6s);
  for (const std::string& name : site.pods()) {
    site.hold(name);
  }
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", true); });
  site.run(2s);
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", false); });
  site.run(3s);
  EXPECT_NE(site.shown(), "Failed");
  for (const std::string& name : site.pods()) {
    site.let_go(name);
  }
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
}

TEST(TrainingOddities, WhatMakesNoSenseAnyMoreIsHeldAllTheSame) {
  Site site;
  site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{"activeDeadlineSeconds", 100}})));
  site.run(6s);
  site.change([](Json& job) { job.child("spec").child("replicaSpecs").items()[0].child("template").child("spec").set("containers", Json::array()); });
  site.run(5s);
  EXPECT_EQ(site.pods().size(), 2u) << "what runs, runs";
  site.change([](Json& job) { job.child("spec").child("runPolicy").set("suspend", true); });
  site.run(5s);
  EXPECT_THAT(site.pods(), IsEmpty()) << "a queue takes back what it gave";
}

// An API in which a quota refuses new pods.
struct Refusing final : kube::KubeApi {
  kube::KubeApi& api;
  explicit Refusing(kube::KubeApi& over) : api(over) {}
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (resource.plural == "pods") return fail(Code::Forbidden, "exceeded quota: team");
    return api.create(resource, object);
  }
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override { return api.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api.watch(resource, space, options); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return api.update(resource, object); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return api.update_status(resource, object); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override { return api.patch(resource, key, type, patch, subresource); }
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override { return api.post(resource, key, subresource, body); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return api.remove(resource, key, options); }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input, std::chrono::milliseconds limit) override { return api.exec(pod, container, command, input, limit); }
};

TEST(TrainingOddities, ASpareDoesNotWaitForAPodThatIsRefused) {
  Site site;
  Json job = Site::job_of("t", 2);
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(8s);
  ASSERT_EQ(site.shown(), "Running");
  Refusing refusing(*site.api);
  site.restart(&refusing);
  site.end_pod("t-pod-0", 1);
  for (int i = 0; i < 30; ++i) {
    site.kubelet();
    (void)site.reconcile();
    site.clock.advance(1s);
  }
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.agent("t-pod-2").rank, 0);
  const auto events = site.events();
  EXPECT_EQ(std::ranges::count(events, "FailedCreate"), 1) << "said once";
}

TEST(TrainingOddities, SizesOfTwoGroups) {
  Site site;
  Json job = Site::job_of("t", 2);
  Json second = job["spec"]["replicaSpecs"].items()[0];
  second.set("name", "big").set("replicas", 1);
  job.child("spec").child("replicaSpecs").push(second);
  site.add(job);
  site.run(8s);
  ASSERT_EQ(site.shown(), "Running");
  for (const int nodes : {3, 1, 2}) {
    site.change([&](Json& changed) { changed.child("spec").child("replicaSpecs").items()[0].set("replicas", nodes); });
    site.run(25s);
    EXPECT_EQ(site.shown(), "Running") << nodes;
    EXPECT_EQ(site.pods().size(), static_cast<std::size_t>(nodes + 1));
    EXPECT_EQ(site.agent("t-big-0").rank, nodes);
  }
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingOddities, SparesAreGivenUp) {
  Site site;
  Json job = Site::job_of("t", 2);
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(8s);
  site.end_pod("t-pod-0", 1);
  site.run(15s);
  ASSERT_EQ(site.pod("t-pod-2")["metadata"]["labels"][kRankLabel].string(), "0");
  site.change([&](Json& changed) { changed.child("spec").child("replicaSpecs").items()[0].set("spares", 0); });
  site.run(15s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_THAT(site.pods(), ElementsAre("t-pod-1", "t-pod-2")) << "those that train stay";
  EXPECT_EQ(site.status()["restartCount"].integer(), 1);
}

TEST(TrainingOddities, AMasterOfItsOwn) {
  Site site;
  site.agent_images = false;
  Json job = Site::job_of("t", 2, "torchrun train.py");
  job.child("spec").child("replicaSpecs").items()[0].child("template").child("spec").child("containers").items()[0].set("env", Json::array({Json::object({{"name", "PET_MASTER_ADDR"}, {"value", "master.example.com"}})}));
  site.add(job);
  site.run(10s);
  EXPECT_EQ(site.shown(), "Running");
}

TEST(TrainingOddities, SomebodyElsesPodHasTheName) {
  Site site;
  Site::must(site.store.create(resources::pods, Json::object({{"metadata", Json::object({{"name", "t-pod-1"}, {"namespace", "team"}})}, {"status", Json::object({{"phase", "Running"}})}})));
  site.add(Site::job_of("t", 2));
  for (int i = 0; i < 10; ++i) {
    site.kubelet();
    (void)site.reconcile();
    site.clock.advance(1s);
  }
  EXPECT_THAT(site.events(), Contains("FailedCreate"));
  EXPECT_THAT(site.message("PodsRunning"), HasSubstr("rank 1 has no pod"));
  EXPECT_TRUE(kube::controller_of(site.pod("t-pod-1")) == nullptr) << "it stays";
  ASSERT_TRUE(site.store.remove(resources::pods, {"team", "t-pod-1"}));
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
}

TEST(TrainingOddities, AnAgentThatNeverComesBack) {
  for (const AgentState state : {AgentState::Stopping, AgentState::Init}) {
    Site site;
    site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 20}})));
    site.run(6s);
    site.agents->fault(site.at("t-pod-0"));
    site.run(1s);
    site.agent("t-pod-0").state = state;
    site.agent("t-pod-0").stopping = 1'000'000;
    site.run(100s);
    EXPECT_EQ(site.shown(), "Running") << name(state) << ": its pod is made anew";
  }
  // One whose new pod does not come either ends by the limits.
  Site site;
  site.add(Site::job_of("t", 1, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 2}})));
  site.run(6s);
  site.agent_images = false;
  site.end_pod("t-pod-0", 1);
  site.run(900s);
  EXPECT_EQ(site.shown(), "Failed");
  EXPECT_THAT(site.message("Failed"), HasSubstr("its agent does not answer"));
}

TEST(TrainingOddities, AnAgentThatDoesNotComeBackAfterAChangeOfSize) {
  for (const bool silent : {false, true}) {
    Site site;
    site.add(Site::job_of("t", 2, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 20}})));
    site.run(6s);
    site.change([](Json& job) { job.child("spec").child("replicaSpecs").items()[0].set("replicas", 3); });
    site.run(2s);
    site.agent("t-pod-1").silent = silent;
    site.agent("t-pod-1").state = AgentState::Stopping;
    site.agent("t-pod-1").stopping = 1'000'000;
    site.run(120s);
    EXPECT_EQ(site.shown(), "Running") << silent;
    EXPECT_EQ(site.agent("t-pod-0").nodes, 3);
    EXPECT_EQ(site.status()["restartCount"].integer(), 0);
  }
}

TEST(TrainingOddities, AnEntryPointWhoseAgentsAreAllSilent) {
  Site site;
  Json job = Site::job_of("t", 2, "");
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(15s);
  site.end_pod("t-pod-0", 1);
  site.run(20s);
  ASSERT_EQ(site.shown(), "Running");
  const auto before = site.pods();
  std::vector<std::string> uids;
  for (const std::string& pod : before) uids.push_back(kube::uid_of(site.pod(pod)));
  const auto restarts = site.status()["restartCount"].integer();
  for (auto& [at, agent] : site.agents->all) agent.silent = true;
  site.run(400s);
  for (auto& [at, agent] : site.agents->all) agent.silent = false;
  site.run(20s);
  std::vector<std::string> after;
  for (const std::string& pod : site.pods()) after.push_back(kube::uid_of(site.pod(pod)));
  EXPECT_EQ(after, uids) << "we were cut off, and they trained";
  EXPECT_EQ(site.status()["restartCount"].integer(), restarts);
}

TEST(TrainingOddities, CutOffInTheMiddleOfARestart) {
  Site site;
  site.add(Site::job_of("t", 3));
  site.run(6s);
  site.agents->fault(site.at("t-pod-0"));
  site.run(1s);
  std::vector<std::string> uids;
  for (const std::string& pod : site.pods()) uids.push_back(kube::uid_of(site.pod(pod)));
  for (auto& [at, agent] : site.agents->all) agent.silent = true;
  site.run(400s);
  for (auto& [at, agent] : site.agents->all) agent.silent = false;
  site.run(30s);
  std::vector<std::string> after;
  for (const std::string& pod : site.pods()) after.push_back(kube::uid_of(site.pod(pod)));
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(after, uids) << "nobody was there to say who is silent";
}

TEST(TrainingOddities, ToEndWellWhenToldToEndIsNoCompletion) {
  for (const char* command : {"torchrun train.py", "hyperpodrun train.py"}) {
    Site site;
    site.agent_images = std::string_view(command).starts_with("hyperpodrun");
    site.add(Site::job_of("t", 1, command));
    site.run(6s);
    ASSERT_EQ(site.shown(), "Running");
    site.hold("t-pod-0");
    ASSERT_TRUE(site.store.remove(resources::pods, {"team", "t-pod-0"}));
    site.end_pod("t-pod-0", 0);
    Json pod = site.pod("t-pod-0");
    pod.child("status").child("containerStatuses").items()[0].child("state").child("terminated").set("finishedAt", print_time(site.clock.now()));
    Site::must(site.store.put(resources::pods, pod));
    site.run(2s);
    EXPECT_NE(site.shown(), "Completed") << command;
    site.let_go("t-pod-0");
    site.run(15s);
    EXPECT_EQ(site.shown(), "Running") << command;
    EXPECT_EQ(site.status()["restartCount"].integer(), 1);
  }
}

TEST(TrainingOddities, WhatIsRefusedSlowsNothingElse) {
  Site site;
  Json job = Site::job_of("t", 1);
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(8s);
  ASSERT_TRUE(site.store.remove(resources::pods, {"team", "t-pod-1"}));
  Refusing refusing(*site.api);
  site.restart(&refusing);
  for (int i = 0; i < 50; ++i) {
    const auto next = site.reconcile();
    ASSERT_TRUE(next) << next.error().message;
    ASSERT_TRUE(next->again_after);
    ASSERT_LE(*next->again_after, 5s) << "faults are found by looking";
    site.clock.advance(5s);
  }
}

TEST(TrainingOddities, TheAgentOfAnotherJobIsLeftAlone) {
  Site site;
  site.add(Site::job_of("a", 1));
  site.run(6s, "a");
  const AgentAt shared = site.at("a-pod-0");
  site.agent_images = false;
  site.add(Site::job_of("t", 1));
  site.run(2s);
  Json pod = site.pod("t-pod-0");
  pod.child("status").set("podIP", shared.address);
  Site::must(site.store.put(resources::pods, pod));
  site.run(100s);
  EXPECT_NE(site.shown(), "Running");
  EXPECT_THAT(site.message("PodsRunning"), HasSubstr("the agent of another job answers"));
  EXPECT_EQ(site.agents->all.at(shared).state, AgentState::Running);
  EXPECT_EQ(site.agents->all.at(shared).starts, 1);
}

TEST(TrainingOddities, AStatusThatWasPutBack) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(6s);
  site.agents->fault(site.at("t-pod-0"));
  site.run(12s);
  ASSERT_EQ(site.status()["restartCount"].integer(), 1);
  site.change([](Json& job) { job.child("status").set("restartCount", 0).set("latestFaultyPodInstanceList", "odd"); });
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.agent("t-pod-0").attempt, attempt_word(site.job(), 0));
  for (const char* pod : {"t-pod-0", "t-pod-1"}) site.agents->complete(site.at(pod));
  site.run(10s);
  EXPECT_EQ(site.shown(), "Completed");
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingOddities, WindowsBeginAnewWithTheJob) {
  Site site;
  site.add(Site::job_of("t", 1, "hyperpodrun train.py", Json::object({{"restartPolicy", Json::object({{"numRestartBeforeFullJobRestart", 1}, {"maxFullJobRestarts", 0}})}})));
  site.run(6s);
  for (int i = 0; i < 4; ++i) {
    site.agents->fault(site.at("t-pod-0"));
    site.run(30s);
    ASSERT_EQ(site.shown(), "Running") << i;
    for (const bool held : {true, false}) {
      site.change([&](Json& job) { job.child("spec").child("runPolicy").set("suspend", held); });
      site.run(8s);
    }
    ASSERT_EQ(site.shown(), "Running") << i;
  }
}

TEST(TrainingOddities, WhoIsWaitedForIsSaid) {
  Site site;
  site.agent_images = false;
  for (int i = 1; i < 6; ++i) site.full.insert(fmt::format("node-{}", i));
  site.add(Site::job_of("t", 3));
  site.run(5s);
  EXPECT_EQ(site.message("PodsRunning"), "Waits: no agent answers at port 8080 of pod t-pod-0, and 2 more");
  site.full.clear();
  site.agent_images = true;
  site.agents->all[site.at("t-pod-0")] = {};
  site.run(30s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.message("PodsRunning"), "");
}

TEST(TrainingOddities, APodThatLostItsLabelIsToldAllTheSame) {
  Site site;
  site.add(Site::job_of("t", 2));
  site.run(1s);
  Json pod = site.pod("t-pod-1");
  pod.child("metadata").child("labels").erase(kJobLabel);
  Site::must(site.store.put(resources::pods, pod));
  site.run(8s);
  EXPECT_EQ(site.shown(), "Running");
}

TEST(TrainingOddities, ASpareThatCrashesIsNotMadeAllTheTime) {
  Site site;
  Json job = Site::job_of("t", 1);
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  site.run(8s);
  ASSERT_EQ(site.shown(), "Running");
  std::set<std::string> uids;
  for (int i = 0; i < 600; ++i) {
    site.run(1s);
    if (site.pod("t-pod-1").is_null() || site.pod("t-pod-1")["status"]["phase"].string() != "Running") continue;
    uids.insert(kube::uid_of(site.pod("t-pod-1")));
    site.end_pod("t-pod-1", 1);
  }
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_LT(uids.size(), 12u);
  EXPECT_GT(uids.size(), 5u);
}

}  // namespace
}  // namespace fairlead::training
