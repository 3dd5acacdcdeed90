// SPDX-License-Identifier: Apache-2.0
// elasticPolicy: a job grows by pods that find room, and goes on with those that are left.
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "training/training_test_site.h"

namespace fairlead::training {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Json elastic_job(int replicas, Json policy, Json run = Json::object({{"jobMaxRetryCount", 10}})) {
  Json job = Site::job_of("t", replicas, "hyperpodrun train.py", std::move(run));
  job.child("spec").set("elasticPolicy", std::move(policy));
  return job;
}
Json sizes(int least, int most, int step) { return Json::object({{"minReplicas", least}, {"maxReplicas", most}, {"replicaIncrementStep", step}, {"scalingTimeoutInSeconds", 20}, {"gracefulShutdownTimeoutInSeconds", 90}, {"faultyScaleDownTimeoutInSeconds", 15}}); }
void close_nodes(Site& site, int from) {
  site.full.clear();
  for (int i = from; i < 6; ++i) site.full.insert(fmt::format("node-{}", i));
}
int nodes_of(Site& site) { return site.agent("t-pod-0").nodes; }

TEST(TrainingElastic, GrowsWhenThereIsRoom) {
  Site site;
  close_nodes(site, 2);
  site.add(elastic_job(2, sizes(2, 6, 2)));
  site.run(30s);
  ASSERT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 2);
  EXPECT_EQ(site.pods().size(), 4u) << "those that it could go on with wait for room";
  EXPECT_EQ(site.pod("t-pod-3")["metadata"]["labels"][kElasticLabel].string(), "true");
  EXPECT_TRUE(site.pod("t-pod-1")["metadata"]["labels"][kElasticLabel].is_null());
  close_nodes(site, 3);
  site.run(60s);
  EXPECT_EQ(nodes_of(site), 2) << "one more is no size";
  close_nodes(site, 4);
  site.run(15s);
  EXPECT_EQ(nodes_of(site), 2) << "they are up for too short a time";
  site.run(30s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 4);
  EXPECT_TRUE(site.agent("t-pod-0").graceful) << "it could write down where it was";
  EXPECT_EQ(site.status()["elasticScalingStatus"]["targetReplicas"]["pod"].integer(), 4);
  EXPECT_THAT(site.events(), Contains("ScalingUp"));
  site.full.clear();
  site.run(60s);
  EXPECT_EQ(nodes_of(site), 6);
  EXPECT_EQ(site.pods().size(), 6u);
  EXPECT_EQ(site.status()["restartCount"].integer(), 0) << "to grow is no restart";
  EXPECT_THAT(site.agents->broken, IsEmpty());
  EXPECT_THAT(site.api->refusals(), IsEmpty());
}

TEST(TrainingElastic, SizesThatAreGiven) {
  Site site;
  Json policy = sizes(1, 6, 1);
  policy.set("replicaDiscreteValues", Json::array({1, 3, 5, 9}));
  site.add(elastic_job(1, policy));
  site.run(200s);
  EXPECT_EQ(nodes_of(site), 5) << "9 is more than maxReplicas";
  EXPECT_EQ(site.pods().size(), 5u);
}

TEST(TrainingElastic, GoesOnWithThoseThatAreLeft) {
  Site site;
  site.add(elastic_job(4, sizes(2, 4, 1)));
  site.run(10s);
  ASSERT_EQ(nodes_of(site), 4);
  close_nodes(site, 0);
  site.end_pod("t-pod-2", 1);
  site.run(10s);
  EXPECT_EQ(site.shown(), "Faulted") << "it may come back";
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 3);
  EXPECT_EQ(site.status()["restartCount"].integer(), 1);
  EXPECT_TRUE(site.status()["elasticScalingStatus"]["isFaultyPodScaleDown"].boolean());
  std::set<std::string> ranks;
  for (const std::string& pod : site.pods())
    if (site.pod(pod)["status"]["phase"].string() == "Running") ranks.insert(site.pod(pod)["metadata"]["labels"][kRankLabel].string());
  EXPECT_THAT(ranks, ElementsAre("0", "1", "2"));
  site.full.clear();
  site.run(40s);
  EXPECT_EQ(nodes_of(site), 4) << "and grows again: it has its quota";
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

TEST(TrainingElastic, BelowTheLeastItWaits) {
  Site site;
  site.add(elastic_job(3, sizes(3, 6, 1)));
  close_nodes(site, 2);
  site.run(200s);
  EXPECT_NE(site.shown(), "Running");
  close_nodes(site, 3);
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 3);
}

TEST(TrainingElastic, BeginsWithThoseThatFindRoom) {
  Site site;
  close_nodes(site, 2);
  site.add(elastic_job(4, sizes(2, 4, 1)));
  site.run(10s);
  EXPECT_NE(site.shown(), "Running");
  site.run(30s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 2);
  EXPECT_EQ(site.status()["restartCount"].integer(), 0);
}

TEST(TrainingElastic, InAQueueWhatItGrowsByHasAQuotaOfItsOwn) {
  Site site;
  Json job = elastic_job(2, sizes(2, 4, 1));
  job.child("metadata").child("labels").set("kueue.x-k8s.io/queue-name", "queue").set("kueue.x-k8s.io/priority-class", "low");
  site.add(job);
  Json workload = Json::object({{"metadata", Json::object({{"name", "w"}, {"namespace", "team"}, {"ownerReferences", Json::array({kube::owner_reference(site.job())})}})}});
  workload.child("metadata").child("ownerReferences").items()[0].set("uid", kube::uid_of(site.job()));
  workload.set("status", Json::object({{"conditions", Json::array({Json::object({{"type", "Admitted"}, {"status", "True"}})})}}));
  Site::must(site.store.put({"kueue.x-k8s.io", "v1beta2", "workloads", "Workload", true}, workload));
  site.run(10s);
  ASSERT_EQ(nodes_of(site), 2);
  const Json joining = site.pod("t-pod-2");
  EXPECT_EQ(joining["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].string(), "queue");
  EXPECT_EQ(joining["metadata"]["labels"]["kueue.x-k8s.io/priority-class"].string(), "low");
  EXPECT_EQ(joining["spec"]["schedulingGates"].items()[0]["name"].string(), "kueue.x-k8s.io/admission");
  EXPECT_TRUE(site.pod("t-pod-0")["spec"]["schedulingGates"].is_null());
  site.run(100s);
  ASSERT_EQ(nodes_of(site), 4);
  // Its queue takes it back: it has a while to end.
  site.hold("t-pod-3");
  close_nodes(site, 0);
  ASSERT_TRUE(site.store.remove(resources::pods, {"team", "t-pod-3"}));
  site.run(3s);
  EXPECT_TRUE(site.agent("t-pod-0").graceful);
  site.let_go("t-pod-3");
  site.run(12s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 3);
  EXPECT_EQ(site.status()["restartCount"].integer(), 0) << "that is no fault";
  EXPECT_THAT(site.events(), Contains("ScalingDown"));
  EXPECT_THAT(site.agents->broken, IsEmpty());
}

// The only pod that trained was an elastic one, and its place is taken at once: nobody is there who could be at another size.
TEST(TrainingElastic, TheLastOneIsTakenBack) {
  Site site;
  site.add(elastic_job(1, sizes(1, 3, 2)));
  site.run(8s);
  site.end_pod("t-pod-0", 1);
  site.run(15s);
  ASSERT_EQ(site.shown(), "Running");
  std::string ranked;
  for (const std::string& pod : site.pods())
    if (!site.pod(pod)["metadata"]["labels"][kRankLabel].is_null()) ranked = pod;
  ASSERT_NE(ranked, "");
  ASSERT_TRUE(site.store.remove(resources::pods, {"team", ranked}));
  site.run(15s);
  EXPECT_EQ(site.shown(), "Running");
  site.run(60s);
  for (const std::string& pod : site.pods()) EXPECT_EQ(site.agent(pod).state, AgentState::Running) << pod;
  EXPECT_EQ(site.pods().size(), 3u);
}

TEST(TrainingElastic, WaitsAfterItHasBegun) {
  Site site;
  site.add(elastic_job(1, sizes(1, 2, 1), Json::object({{"restartPolicy", Json::object({{"scaleUpSnoozeTimeInSeconds", 300}})}})));
  site.run(200s);
  EXPECT_EQ(nodes_of(site), 1);
  site.run(150s);
  EXPECT_EQ(nodes_of(site), 2);
}

TEST(TrainingElastic, WhatMakesNoSense) {
  for (const auto& [policy, words] : std::vector<std::pair<Json, const char*>>{{Json::object({{"minReplicas", 4}, {"maxReplicas", 2}}), "minReplicas 4 and maxReplicas 2"}, {Json::object({{"minReplicas", 2}, {"maxReplicas", 4}, {"replicaDiscreteValues", Json::array({8})}}), "replicaDiscreteValues"}}) {
    Site site;
    site.add(elastic_job(2, policy));
    site.run(2s);
    EXPECT_THAT(site.message("Created"), HasSubstr(words));
    EXPECT_THAT(site.pods(), IsEmpty());
  }
  // Where processes begin by themselves nobody can be told another size.
  Site site;
  site.agent_images = false;
  Json job = Site::job_of("t", 2, "torchrun train.py");
  job.child("spec").set("elasticPolicy", sizes(1, 4, 1));
  site.add(job);
  site.run(60s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(site.pods().size(), 2u);
}

TEST(TrainingElastic, NumbersThatAreNone) {
  for (const std::int64_t step : {std::int64_t{9'223'372'036'854'775'807}, std::int64_t{-5}, std::int64_t{0}}) {
    Site site;
    Json policy = sizes(1, 4, 1);
    policy.set("replicaIncrementStep", step);
    site.add(elastic_job(2, policy));
    site.run(10s);
    for (const Json& target : {Json(-1), Json(0), Json(99), Json("x"), Json(1)}) {
      site.change([&](Json& job) { job.child("status").set("elasticScalingStatus", Json::object({{"targetReplicas", Json::object({{"pod", target}})}})); });
      site.run(5s);
    }
    site.change([&](Json& job) { job.child("status").set("elasticScalingStatus", "x"); });
    site.run(100s);
    EXPECT_EQ(site.shown(), "Running") << step;
  }
}

TEST(TrainingElastic, WhatIsHeldBeginsWithItsOwnQuota) {
  for (const char* command : {"hyperpodrun train.py", ""}) {
    Site site;
    Json job = elastic_job(2, sizes(1, 4, 1));
    if (*command == 0) job.child("spec").child("replicaSpecs").items()[0].child("template").child("spec").child("containers").items()[0].set("command", Json::array());
    site.add(job);
    site.run(100s);
    ASSERT_EQ(nodes_of(site), 4) << command;
    site.change([](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", true); });
    site.run(3s);
    ASSERT_THAT(site.pods(), IsEmpty());
    close_nodes(site, 2);
    site.change([](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", false); });
    ASSERT_TRUE(site.reconcile());
    int own = 0;
    for (const std::string& pod : site.pods()) own += site.pod(pod)["metadata"]["labels"][kElasticLabel].is_null() ? 1 : 0;
    EXPECT_LE(own, 2) << "no more than it has quota for: " << command;
    site.run(12s);
    EXPECT_EQ(site.shown(), "Running") << command;
    EXPECT_EQ(nodes_of(site), 2) << command;
  }
}

TEST(TrainingElastic, WhatQueuesPutIntoTheTemplateIsTheJobsOwn) {
  Site site;
  Json job = elastic_job(1, sizes(1, 2, 1));
  job.child("metadata").child("labels").set("kueue.x-k8s.io/queue-name", "queue");
  Json& pod = job.child("spec").child("replicaSpecs").items()[0].child("template");
  pod.child("metadata").child("labels").set("kueue.x-k8s.io/podset", "pod").set("kueue.x-k8s.io/local-queue-name", "queue").set("mine", "stays");
  pod.child("metadata").child("annotations").set("kueue.x-k8s.io/workload", "w").set("kueue.x-k8s.io/podset-required-topology", "rack");
  pod.child("spec").set("schedulingGates", Json::array({Json::object({{"name", "kueue.x-k8s.io/topology"}}), Json::object({{"name", "example.com/own"}})}));
  const Json full = job;
  const TrainingJob read = read_training_job(full);
  const Json made = make_pod(full, read, read.replicas[0], {.index = 1, .elastic = true, .queued = true});
  const Json labels = made["metadata"]["labels"], gates = made["spec"]["schedulingGates"];
  EXPECT_TRUE(labels["kueue.x-k8s.io/podset"].is_null());
  EXPECT_EQ(labels["kueue.x-k8s.io/queue-name"].string(), "queue");
  EXPECT_EQ(labels["mine"].string(), "stays");
  EXPECT_TRUE(made["metadata"]["annotations"]["kueue.x-k8s.io/workload"].is_null());
  ASSERT_EQ(gates.items().size(), 2u);
  EXPECT_EQ(gates.items()[0]["name"].string(), "example.com/own");
  EXPECT_EQ(gates.items()[1]["name"].string(), "kueue.x-k8s.io/admission");
  const Json own = make_pod(full, read, read.replicas[0], {.index = 0});
  EXPECT_EQ(own["metadata"]["annotations"]["kueue.x-k8s.io/workload"].string(), "w");
}

TEST(TrainingElastic, AMomentsSilenceShrinksNothing) {
  Site site;
  site.add(elastic_job(4, sizes(1, 4, 1)));
  site.run(10s);
  ASSERT_EQ(nodes_of(site), 4);
  site.clock.advance(3600s);
  // As if it had been about to begin for a while.
  site.change([&](Json& job) { job.child("status").child("conditions").items()[2].set("status", "False").set("reason", "Rescaling").set("lastTransitionTime", print_time(site.clock.now() - 40s)); });
  for (const char* pod : {"t-pod-1", "t-pod-2", "t-pod-3"}) site.agent(pod).silent = true;
  site.run(3s);
  for (const char* pod : {"t-pod-1", "t-pod-2", "t-pod-3"}) site.agent(pod).silent = false;
  site.run(20s);
  EXPECT_EQ(site.shown(), "Running");
  EXPECT_EQ(nodes_of(site), 4);
  EXPECT_TRUE(site.status()["elasticScalingStatus"].is_null());
}

TEST(TrainingElastic, WhatIsTakenBackIsNoFaultHoweverItIsSeen) {
  for (const int how : {0, 1, 2, 3}) {
    Site site;
    site.add(elastic_job(2, sizes(2, 4, 1)));
    site.run(130s);
    ASSERT_EQ(nodes_of(site), 4);
    close_nodes(site, 0);
    std::string elastic = "t-pod-3";
    if (how == 1) {  // gone before anybody looked
      ASSERT_TRUE(site.store.remove(resources::pods, {"team", elastic}));
    } else {
      site.hold(elastic);
      ASSERT_TRUE(site.store.remove(resources::pods, {"team", elastic}));
      if (how == 2) site.agents->fault(site.at("t-pod-0"));  // it has lost the other
      if (how == 3) site.end_pod(elastic, 0);                 // told to end, it ended well
    }
    site.run(3s);
    if (how != 1) {
      site.let_go(elastic);
    }
    site.run(15s);
    EXPECT_EQ(site.shown(), "Running") << how;
    EXPECT_EQ(nodes_of(site), 3) << how;
    EXPECT_EQ(site.status()["restartCount"].integer(), 0) << how;
    EXPECT_THAT(site.agents->broken, IsEmpty()) << how;
  }
}

TEST(TrainingElastic, AtRandom) {
  const char* only = std::getenv("FAIRLEAD_SEED");
  const std::uint64_t from = only != nullptr ? std::strtoull(only, nullptr, 10) : 0, to = only != nullptr ? from + 1 : test_rounds<std::uint64_t>(25, 5'000);
  for (std::uint64_t seed = from; seed < to; ++seed) {
    Rng rng(seed);
    Site site;
    const int least = 1 + static_cast<int>(rng.below(3)), most = least + static_cast<int>(rng.below(4));
    Json job = elastic_job(least + static_cast<int>(rng.below(static_cast<std::uint64_t>(most - least) + 1)), sizes(least, most, 1 + static_cast<int>(rng.below(2))), Json::object({{"jobMaxRetryCount", 100'000}}));
    job.child("spec").child("replicaSpecs").items()[0].set("spares", static_cast<int>(rng.below(2)));
    site.add(job);
    for (int i = 0; i < 400; ++i) {
      const auto pods = site.pods();
      const std::string pod = pods.empty() ? "" : pods[rng.below(pods.size())];
      const bool runs = !pod.empty() && site.pod(pod)["status"]["phase"].string() == "Running" && site.agents->all.contains(site.at(pod));
      switch (rng.below(80)) {
        case 0: if (runs) site.agents->fault(site.at(pod)); break;
        case 1: if (runs) site.end_pod(pod, 1); break;
        case 2: if (!pod.empty()) (void)site.store.remove(resources::pods, {"team", pod}); break;
        case 3: close_nodes(site, static_cast<int>(rng.below(7))); break;
        case 4: site.restart(); break;
        case 5: site.agents->lost = 1; break;
        default: break;
      }
      site.run(1s);
      ASSERT_THAT(site.agents->broken, IsEmpty()) << "seed " << seed << ", step " << i;
    }
    site.agents->lost = 0;
    site.full.clear();
    for (int i = 0, calm = 0; i < 1200 && calm < 150; ++i) {
      site.run(1s);
      calm = site.shown() == "Running" ? calm + 1 : 0;
    }
    ASSERT_EQ(site.shown(), "Running") << "seed " << seed << ": " << kube::print_json(site.status());
    const TrainingJob read = read_training_job(site.job());
    const int spares = read.replicas[0].spares;
    std::string there;
    for (const std::string& one : site.pods()) there += fmt::format("\n{}: {} agent {}", one, kube::print_json(site.pod(one)["metadata"]["labels"]), site.agents->all.contains(site.at(one)) ? std::string(name(site.agent(one).state)) : "none");
    // As large as six nodes let it be.
    ASSERT_EQ(read.nodes, std::max(read.elastic->at_most(6 - spares), std::min(read.nodes, read.replicas[0].base))) << "seed " << seed << there << kube::print_json(site.status()) << kube::print_json(site.job()["spec"]["elasticPolicy"]);
    int ranked = 0;
    for (const std::string& one : site.pods())
      if (!site.pod(one)["metadata"]["labels"][kRankLabel].is_null()) {
        ++ranked;
        ASSERT_EQ(site.agent(one).state, AgentState::Running) << "seed " << seed << " " << one;
        ASSERT_EQ(site.agent(one).nodes, read.nodes) << "seed " << seed << " " << one;
      }
    ASSERT_EQ(ranked, read.nodes) << "seed " << seed;
    ASSERT_THAT(site.agents->broken, IsEmpty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::training
