// SPDX-License-Identifier: Apache-2.0
// The controller of Slurm jobs on an API in memory with a head that answers: what is asked of Slurm, on which state of a Workload, and who is believed to be gone.
#include "governance/control/slurm_ledger_controller.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "kube/tiny_api.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace queues = api::queues;
namespace resources = kube::resources;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}

class SlurmLedger : public testing::Test {
 protected:
  SlurmLedger() {
    put(resources::slurm_clusters, "{apiVersion: slurm.nebius.ai/v1, kind: SlurmCluster, metadata: {name: demo, namespace: slurm, uid: u1}, spec: {extensions: {quota: {accounts: [{account: red, namespace: lab, queue: queue}]}}}}");
    put(queues::local_queues, "{metadata: {name: queue, namespace: lab, annotations: {fairlead.dev/slurm-clusters: 'a/b, slurm/demo'}}, spec: {clusterQueue: red}}");
    put(resources::pods, R"({metadata: {name: controller-0, namespace: slurm, labels: {fairlead.dev/slurm-cluster: demo, fairlead.dev/slurm-role: controller}, ownerReferences: [{uid: u1, controller: true}]},
      spec: {containers: [{name: munge}, {name: slurmctld}]}, status: {conditions: [{type: Ready, status: 'True'}]}})");
    api_.answer = [this](const std::vector<std::string>& command) { return answer(command); };
    controller_.start(api_);
    for (const auto& source : controller_.sources()) sources_.push_back(source);
  }
  void put(const kube::Resource& resource, const std::string& text) { (void)api_.put(resource, yaml(text)); }
  kube::ExecResult answer(const std::vector<std::string>& command) {
    if (command.at(1) == "queue-look") return {.exit_code = look_, .out = fmt::format(R"({{"jobs":[{}]}})", jobs_), .err = ""};
    acts_.push_back(fmt::format("{}", fmt::join(command.begin() + 1, command.end(), " ")));
    return {.exit_code = act_, .out = "", .err = act_ == 0 ? "" : "no"};
  }
  static std::string job(const std::string& id, const std::string& state, const std::string& reason, const std::string& account = "red") {
    return fmt::format(R"({{"id":"{}","state":"{}","reason":"{}","user":"ada","account":"{}","held":{},"parts":[{{"nodes":1,"cpus":1,"memory":0,"gpus":0}}]}})", id, state, reason, account, reason == "JobHeldAdmin");
  }
  Result<kube::Next> look() {
    acts_.clear();
    for (const auto& [key, workload] : api_.all(queues::workloads.plural))
      for (const auto& source : sources_)
        if (source.resource == queues::workloads) (void)source.keys({.before = {}, .after = workload});
    return controller_.reconcile({"slurm", "demo"});
  }
  std::map<ObjectKey, Json> workloads() { return api_.all(queues::workloads.plural); }
  Json only() {
    EXPECT_EQ(workloads().size(), 1u);
    return workloads().empty() ? Json() : workloads().begin()->second;
  }
  void admit() {
    Json workload = only();
    tell_admitted(workload, {.queue = "red", .pod_sets = {{.name = "main", .flavors = {{"cpu", "x"}}, .usage = {{"cpu", 1000}}, .count = 1, .topology = {}}}}, {}, clock_.now());
    ASSERT_TRUE(api_.put(queues::workloads, workload));
  }

  ManualClock clock_{*parse_time("2026-11-22T10:00:00Z")};
  kube::TinyApi api_;
  SlurmLedgerController controller_{api_, clock_};
  std::vector<kube::Controller::Source> sources_;
  std::string jobs_;
  std::vector<std::string> acts_;
  int look_ = 0, act_ = 0;
};

TEST_F(SlurmLedger, AJobIsQueuedReleasedAndTakenBack) {
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  EXPECT_EQ(only()["spec"]["queueName"].string(), "queue");
  EXPECT_THAT(acts_, IsEmpty());
  admit();
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, ElementsAre("queue-release 7"));
  jobs_ = job("7", "RUNNING", "None");
  Json workload = only();
  tell_evicted(workload, "Preempted", "for another", VictimReason::InCohortReclamation, clock_.now());
  ASSERT_TRUE(api_.put(queues::workloads, workload));
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, ElementsAre("queue-requeue 7"));
  EXPECT_TRUE(holds_quota(only()));
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  EXPECT_FALSE(holds_quota(only()));
}

TEST_F(SlurmLedger, NothingIsDoneWhereSlurmIsSilent) {
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  admit();
  const Json before = only();
  look_ = 4;
  ASSERT_TRUE(look());
  jobs_ = "{}", look_ = 0;  // an answer that is not understood
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, IsEmpty());
  EXPECT_EQ(only(), before);
}

TEST_F(SlurmLedger, AStepInSlurmIsForTheWorkloadAsItIs) {
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  admit();
  // Evicted between the look at the caches and the step.
  api_.answer = [&](const std::vector<std::string>& command) {
    if (command.at(1) == "queue-look") {
      Json workload = only();
      tell_evicted(workload, "Preempted", "for another", VictimReason::InCohortReclamation, clock_.now());
      (void)api_.put(queues::workloads, workload);
    }
    return answer(command);
  };
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, IsEmpty());
}

TEST_F(SlurmLedger, WhoDoesNotAnswerOnceIsNotAskedForEachJob) {
  jobs_ = job("7", "PENDING", "Resources") + "," + job("8", "PENDING", "Resources");
  act_ = 4;
  ASSERT_TRUE(look());
  EXPECT_EQ(acts_.size(), 1u);
  act_ = 3;  // not as supposed: the next one all the same
  ASSERT_TRUE(look());
  EXPECT_EQ(acts_.size(), 2u);
  act_ = 1;  // refused: told, the next one all the same
  EXPECT_FALSE(look());
  EXPECT_EQ(acts_.size(), 2u);
}

TEST_F(SlurmLedger, AQueueOfAnotherNamespaceLetsItIn) {
  put(queues::local_queues, "{metadata: {name: queue, namespace: lab, annotations: {fairlead.dev/slurm-clusters: 'slurm/demo2'}}, spec: {clusterQueue: red}}");
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  EXPECT_THAT(workloads(), IsEmpty());
  EXPECT_THAT(acts_, ElementsAre(HasSubstr("fairlead.dev/slurm-clusters=slurm/demo")));
}

TEST_F(SlurmLedger, OfAClusterThatIsGoneNothingIsGivenBackWhileItsPodsAreThere) {
  jobs_ = job("7", "PENDING", "JobHeldAdmin");
  ASSERT_TRUE(look());
  admit();
  api_.all(resources::slurm_clusters.plural).clear();
  ASSERT_TRUE(look());
  EXPECT_FALSE(kube::deleting(only()));
  api_.all(resources::pods.plural).clear();
  ASSERT_TRUE(look());
  EXPECT_TRUE(kube::deleting(only()));
  ASSERT_TRUE(look());
  EXPECT_THAT(workloads(), IsEmpty());
}

TEST_F(SlurmLedger, WithoutTheFieldWhatIsLeftIsLetGoAndThenNobodyIsAsked) {
  jobs_ = job("7", "PENDING", "JobHeldAdmin", "green");
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, ElementsAre(HasSubstr("account green has no queue")));
  jobs_.insert(jobs_.find("\"held\""), R"("comment":"fairlead: held until a queue admits it",)");
  put(resources::slurm_clusters, "{apiVersion: slurm.nebius.ai/v1, kind: SlurmCluster, metadata: {name: demo, namespace: slurm, uid: u1}, spec: {}}");
  ASSERT_TRUE(look());
  EXPECT_THAT(acts_, ElementsAre("queue-release 7"));
  jobs_.clear();
  for (int round = 0; round < 3; ++round) {
    const auto next = look();
    ASSERT_TRUE(next);
    EXPECT_EQ(next->again_after.has_value(), round < 2) << round;
    api_.commands.clear();
    clock_.advance(std::chrono::minutes(3));
  }
  ASSERT_TRUE(look());
  EXPECT_THAT(api_.commands, IsEmpty());
}

}  // namespace
}  // namespace fairlead::governance
