// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/slurm_workload.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/run_time.h"
#include "kube/object.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using What = LedgerStep::What;

Json yaml(const std::string& text) {
  auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed) << parsed.error().message << "\n" << text;
  return parsed->at(0);
}
Json cluster() {
  return yaml(R"({metadata: {name: demo, namespace: slurm, uid: u1}, spec: {extensions: {quota: {accounts: [{account: Red, namespace: lab, queue: red}, {account: blue, team: blue}, {account: old, queue: own, priorityClass: high}]}}}})");
}
LedgerJob job(const std::string& id, const std::string& state, const std::string& reason = "None", const std::string& account = "red") {
  return {.id = id, .state = state, .reason = reason, .user = "ada", .account = account, .comment = "", .parts = {{.nodes = 2, .cpus = 4, .memory_mib = 1024, .gpus = 2}}, .is_held = reason == "JobHeldAdmin", .is_held_by_user = reason == "JobHeldUser"};
}
void hold(LedgerJob& job, bool is) {
  job.reason = is ? "JobHeldAdmin" : "Priority";
  job.is_held = is;
  job.is_held_by_user = false;
}
Admission admission() { return {.queue = "red-queue", .pod_sets = {{.name = "main", .flavors = {{"cpu", "h200"}}, .usage = {{"cpu", 4000}}, .count = 2, .topology = {}}}}; }

// A cluster with one job and its Workload; steps are taken on them as Slurm and the API would.
class LedgerPlans : public testing::Test {
 protected:
  LedgerPlans() {
    in_.cluster = cluster();
    in_.quota = api::read_slurm_quota(in_.cluster);
    in_.now = *parse_time("2026-11-22T10:00:00Z");
    in_.jobs.emplace();
    in_.asked = {"7"};
  }
  void is(LedgerJob job) { in_.jobs->insert_or_assign(job.id, std::move(job)); }
  LedgerJob& slurm() { return in_.jobs->at("7"); }
  Json& workload() { return in_.workloads.at(0); }
  std::vector<What> run() {
    std::vector<What> out;
    for (int round = 0; round < 20; ++round) {
      plan_ = plan_ledger(in_);
      if (plan_.steps.empty()) return out;
      const LedgerStep step = plan_.steps.front();
      out.push_back(step.what);
      take(step);
    }
    ADD_FAILURE() << "does not come to an end";
    return out;
  }
  void take(const LedgerStep& step) {
    switch (step.what) {
      case What::CreateWorkload: in_.workloads.push_back(step.object); break;
      case What::UpdateWorkload:
      case What::WorkloadStatus:
        workload() = step.object;
        if (kube::deleting(workload()) && !kube::has_finalizer(workload(), kSlurmJob)) in_.workloads.clear();
        break;
      case What::DeleteWorkload:
        if (kube::has_finalizer(workload(), kSlurmJob)) workload().child("metadata").set("deletionTimestamp", "2026-11-22T10:00:00Z");
        else in_.workloads.clear();
        break;
      case What::Hold: hold(slurm(), true); break;
      case What::Release: hold(slurm(), false); break;
      case What::Requeue: slurm().state = "COMPLETING"; break;
      case What::Comment: in_.jobs->at(step.job).comment = step.text; break;
    }
  }
  void admit() { tell_admitted(workload(), admission(), {}, in_.now); }
  void evict() { tell_evicted(workload(), "Preempted", "for another", VictimReason::InCohortReclamation, in_.now); }

  LedgerInput in_;
  LedgerPlan plan_;
};

TEST_F(LedgerPlans, AHeldJobBecomesAWorkloadOfItsAccountsQueue) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  EXPECT_THAT(run(), ElementsAre(What::CreateWorkload, What::Comment));
  EXPECT_EQ(kube::space_of(workload()), "lab");
  EXPECT_EQ(kube::print_json(workload()["spec"]),
            R"({"queueName":"red","podSets":[{"name":"main","count":2,"template":{"spec":{"containers":[{"name":"slurm","resources":{"requests":{"cpu":"2","memory":"512Mi","nvidia.com/gpu":"1"}}}]}}}],"priority":0})");
  EXPECT_THAT(kube::name_of(workload()), testing::StartsWith("slurm-demo-7-"));
  EXPECT_EQ(job_of_workload(workload()), "7");
  EXPECT_EQ(*cluster_of_workload(workload()), (kube::ObjectKey{"slurm", "demo"}));
  EXPECT_EQ(slurm().comment, "fairlead: waits for quota of queue lab/red");
}

TEST_F(LedgerPlans, IsReleasedWhenAdmittedAndGivesBackWhenNoNodeRunsIt) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit();
  EXPECT_THAT(run(), ElementsAre(What::Release, What::Comment));
  slurm().state = "RUNNING";
  EXPECT_THAT(run(), IsEmpty());
  evict();
  EXPECT_THAT(run(), ElementsAre(What::Requeue)) << "its nodes are not free yet";
  EXPECT_TRUE(holds_quota(workload()));
  slurm().state = "PENDING", hold(slurm(), true);
  EXPECT_THAT(run(), ElementsAre(What::WorkloadStatus, What::Comment));
  EXPECT_FALSE(holds_quota(workload()));
  EXPECT_THAT(slurm().comment, HasSubstr("taken back (Preempted)"));
  admit();
  EXPECT_THAT(run(), ElementsAre(What::Release, What::Comment));
}

TEST_F(LedgerPlans, OneThatHasNotBegunIsHeldAgain) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run(), evict();
  EXPECT_THAT(run(), ElementsAre(What::Hold, What::WorkloadStatus, What::Comment));
}

TEST_F(LedgerPlans, SlurmThatDoesNotAnswerChangesNothing) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run(), evict();
  in_.jobs.reset();
  EXPECT_THAT(plan_ledger(in_).steps, IsEmpty());
  in_.jobs.emplace();
  in_.asked.clear();
  EXPECT_THAT(plan_ledger(in_).steps, IsEmpty()) << "nobody asked for it by number";
}

TEST_F(LedgerPlans, WhatIsNotHeldIsHeldBeforeItIsQueued) {
  is(job("7", "PENDING", "Resources"));
  EXPECT_THAT(run(), ElementsAre(What::Hold, What::CreateWorkload, What::Comment));
  hold(slurm(), false);  // somebody let it go
  EXPECT_THAT(run(), ElementsAre(What::Hold));
}

TEST_F(LedgerPlans, WhatRunsUnadmittedGoesOnAndIsTold) {
  is(job("7", "RUNNING"));
  EXPECT_THAT(run(), ElementsAre(What::CreateWorkload, What::Comment));
  EXPECT_THAT(plan_.runs_unadmitted, ElementsAre("7"));
  EXPECT_EQ(slurm().comment, "fairlead: runs although no queue admitted it");
  admit();
  EXPECT_THAT(run(), ElementsAre(What::Comment));
  EXPECT_THAT(plan_.runs_unadmitted, IsEmpty());
}

TEST_F(LedgerPlans, AJobOfItsUsersOwnHoldWaitsWithThat) {
  is(job("7", "PENDING", "JobHeldUser"));
  EXPECT_THAT(run(), IsEmpty());
}

TEST_F(LedgerPlans, TheEndIsToldAndForgottenLater) {
  struct Row { const char* state; const char* reason; };
  for (const Row row : {Row{"COMPLETED", "Succeeded"}, Row{"OUT_OF_MEMORY", "Failed"}, Row{"", "Failed"}}) {
    in_.jobs->clear(), in_.workloads.clear();
    is(job("7", "PENDING", "JobHeldAdmin"));
    run(), admit(), run();
    if (*row.state == 0) in_.jobs->clear();
    else slurm().state = row.state;
    EXPECT_THAT(run(), ElementsAre(What::WorkloadStatus, What::UpdateWorkload));
    EXPECT_EQ((*kube::find_condition(workload(), "Finished"))["reason"].string(), row.reason);
    in_.now += std::chrono::minutes(11);
    EXPECT_THAT(run(), ElementsAre(What::DeleteWorkload));
    EXPECT_THAT(in_.workloads, IsEmpty());
  }
}

TEST_F(LedgerPlans, AChangeWhileItWaitsGoesToTheWorkload) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run();
  slurm().parts[0].nodes = 4;
  EXPECT_THAT(run(), ElementsAre(What::UpdateWorkload));
  EXPECT_EQ(workload()["spec"]["podSets"].items()[0]["count"].integer(), 1) << "GPUs have no halves";
  EXPECT_EQ(workload()["spec"]["podSets"].items()[0]["template"]["spec"]["containers"].items()[0]["resources"]["requests"]["cpu"].string(), "4");
  slurm().account = "blue";
  EXPECT_THAT(run(), ElementsAre(What::DeleteWorkload, What::UpdateWorkload, What::CreateWorkload, What::Comment));
  EXPECT_EQ(kube::key_of(workload()).space, "hyperpod-ns-blue");
}

// For forecasts alone: it costs nobody a place in a line.
TEST_F(LedgerPlans, ItsTimeLimitIsToldAndFollowed) {
  LedgerJob limited = job("7", "PENDING", "JobHeldAdmin");
  limited.limit_seconds = 3600;
  is(limited);
  run();
  EXPECT_EQ(workload()["metadata"]["annotations"][kTimeLimit].string(), "3600s");
  slurm().limit_seconds = 7200;
  EXPECT_THAT(run(), ElementsAre(What::UpdateWorkload));
  EXPECT_EQ(workload()["metadata"]["annotations"][kTimeLimit].string(), "7200s");
  admit(), run();
  slurm().limit_seconds = 0;
  EXPECT_THAT(run(), ElementsAre(What::UpdateWorkload));
  EXPECT_FALSE(workload()["metadata"]["annotations"].has(kTimeLimit));
  EXPECT_TRUE(holds_quota(workload()));
}

TEST_F(LedgerPlans, AChangeAfterItsAdmissionQueuesItAnew) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run();
  slurm().parts[0].cpus = 40;
  EXPECT_THAT(run(), ElementsAre(What::Hold, What::DeleteWorkload, What::UpdateWorkload, What::CreateWorkload, What::Comment));
  EXPECT_FALSE(holds_quota(workload()));
}

TEST_F(LedgerPlans, AWorkloadThatIsDeletedStopsItsJobFirst) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run();
  slurm().state = "RUNNING";
  workload().child("metadata").set("deletionTimestamp", "2026-11-22T10:00:00Z");
  EXPECT_THAT(run(), ElementsAre(What::Requeue));
  EXPECT_EQ(in_.workloads.size(), 1u);
  slurm().state = "PENDING", hold(slurm(), true);
  EXPECT_THAT(run(), ElementsAre(What::UpdateWorkload, What::CreateWorkload, What::Comment));
}

TEST_F(LedgerPlans, OnePutBackIntoTheQueueAfterItsEndIsQueuedAnew) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run();
  slurm().state = "COMPLETED";
  run();
  slurm().state = "PENDING", hold(slurm(), false);
  EXPECT_THAT(run(), ElementsAre(What::Hold, What::DeleteWorkload, What::CreateWorkload, What::Comment));
}

TEST_F(LedgerPlans, AnAccountWithoutAQueueIsTold) {
  is(job("7", "PENDING", "JobHeldAdmin", "gr\"een"));
  EXPECT_THAT(run(), ElementsAre(What::Comment));
  EXPECT_EQ(slurm().comment, "fairlead: account gr?een has no queue in this cluster; there are: red, blue, old");
  slurm().account = "red";
  in_.barred[{"lab", "red"}] = "there is no LocalQueue lab/red";
  EXPECT_THAT(run(), ElementsAre(What::Comment));
  EXPECT_EQ(plan_.no_queue.at("7"), "there is no LocalQueue lab/red");
  slurm().account = "old";
  EXPECT_THAT(run(), ElementsAre(What::Comment)) << "no such class";
  in_.priorities["high"] = {.value = 9, .ref = yaml("{name: high}"), .problem = ""};
  EXPECT_THAT(run(), ElementsAre(What::CreateWorkload, What::Comment));
  EXPECT_EQ(workload()["spec"]["priority"].integer(), 9);
}

TEST_F(LedgerPlans, WithoutATableWhatWaitsIsLetGoAndWhatRunsGoesOn) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run();
  in_.quota = {};
  EXPECT_THAT(run(), ElementsAre(What::Release, What::DeleteWorkload, What::UpdateWorkload));
  EXPECT_THAT(in_.workloads, IsEmpty());
  in_.quota = api::read_slurm_quota(in_.cluster);
  hold(slurm(), true);
  run(), admit(), run();
  slurm().state = "RUNNING";
  in_.quota = {};
  EXPECT_THAT(run(), ElementsAre(What::DeleteWorkload, What::UpdateWorkload));
  EXPECT_EQ(slurm().state, "RUNNING");
}

TEST_F(LedgerPlans, OneThatDependsOnOthersIsQueuedWhenTheyHaveEnded) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  slurm().depends = true;
  EXPECT_THAT(run(), ElementsAre(What::Comment));
  EXPECT_THAT(in_.workloads, IsEmpty());
  slurm().depends = false;
  EXPECT_THAT(run(), ElementsAre(What::CreateWorkload, What::Comment));
}

TEST_F(LedgerPlans, WithoutATableOnlyWhatWeHeldIsLetGo) {
  is(job("7", "PENDING", "JobHeldAdmin", "green"));
  run();
  is(job("8", "PENDING", "JobHeldAdmin"));  // by an administrator
  in_.quota = {};
  const LedgerPlan plan = plan_ledger(in_);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].what, What::Release);
  EXPECT_EQ(plan.steps[0].job, "7");
}

TEST_F(LedgerPlans, ChecksOfNodesAreNobodys) {
  is(job("7", "PENDING", "Resources"));
  slurm().user = "nobody";
  EXPECT_THAT(run(), IsEmpty());
}

TEST_F(LedgerPlans, TheClusterIsGone) {
  is(job("7", "PENDING", "JobHeldAdmin"));
  run(), admit(), run();
  LedgerInput gone{.cluster = in_.cluster, .quota = {}, .gone = true, .jobs = {}, .asked = {}, .workloads = in_.workloads, .barred = {}, .priorities = {}, .now = in_.now};
  std::swap(in_, gone);
  EXPECT_THAT(run(), ElementsAre(What::DeleteWorkload, What::UpdateWorkload));
  EXPECT_THAT(in_.workloads, IsEmpty());
}

TEST(LedgerJobs, AreReadOrNothingIs) {
  auto read = read_ledger_jobs(R"({"jobs":[{"id":"7_3","state":"PENDING","reason":"JobHeldAdmin","user":"ada","account":"red","held":true,"limitSeconds":90,"parts":[{"nodes":1,"cpus":2,"memory":3,"gpus":0}]}]})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(read->at("7_3").held());
  EXPECT_EQ(read->at("7_3").parts.at(0).memory_mib, 3);
  EXPECT_EQ(read->at("7_3").limit_seconds, 90);
  for (const char* bad : {"", "{}", R"({"jobs":[{"id":"7;reboot","state":"PENDING","parts":[{"nodes":1,"cpus":1,"memory":1,"gpus":0}]}]})", R"({"jobs":[{"id":"7","state":"PENDING","parts":[]}]})", R"({"jobs":[{"id":"7","state":"PENDING","parts":[{"nodes":0,"cpus":1,"memory":1,"gpus":0}]}]})",
                          R"({"jobs":[{"id":"7","parts":[{"nodes":1,"cpus":1,"memory":1,"gpus":0}]}]})"})
    EXPECT_FALSE(read_ledger_jobs(bad)) << bad;
}

// Slurm, users, a ledger and an operator that dies between any two steps or looks at old Workloads.
class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed) {
    in_.cluster = cluster();
    in_.quota = api::read_slurm_quota(in_.cluster);
    in_.now = *parse_time("2026-11-22T10:00:00Z");
  }
  void live(int rounds, bool troubles) {
    for (int round = 0; round < rounds; ++round) {
      in_.now += std::chrono::seconds(30);
      if (troubles) trouble();
      slurm(troubles);
      ledger(troubles);
      operate(troubles);
    }
  }
  bool rests() const {
    for (const auto& [id, job] : jobs_)
      if (!job.over()) return false;
    return true;
  }
  std::string broken, last;

 private:
  void trouble() {
    if (jobs_.size() < 12 && rng_.below(3) == 0) {
      LedgerJob made = job(std::to_string(jobs_.size() + 1), "PENDING", "JobHeldAdmin", rng_.below(2) == 0 ? "red" : "blue");
      jobs_[made.id] = made;
    }
    for (auto& [id, job] : jobs_) {
      if (!job.waits()) continue;
      if (rng_.below(20) == 0) job.parts[0].cpus = 2 * (1 + static_cast<std::int64_t>(rng_.below(5)));
      if (rng_.below(20) == 0) job.account = job.account == "red" ? "blue" : "red";
      if (rng_.below(30) == 0) job.state = "CANCELLED";
    }
    if (!workloads_.empty() && rng_.below(15) == 0) remove(std::next(workloads_.begin(), static_cast<std::ptrdiff_t>(rng_.below(workloads_.size())))->first);
  }
  const Json* of(const std::string& id) const {
    for (const auto& [key, workload] : workloads_)
      if (job_of_workload(workload) == id) return &workload;
    return nullptr;
  }
  void slurm(bool troubles) {
    for (auto& [id, job] : jobs_) {
      if (job.waits() && !job.held() && rng_.below(2) == 0) {
        const Json* workload = of(id);
        // A change after the admission may be seen too late; nothing else lets a job begin.
        if (workload == nullptr || !holds_quota(*workload)) broken += fmt::format("job {} began without quota; ", id);
        job.state = "RUNNING";
      } else if (job.state == "RUNNING" && rng_.below(4) == 0) {
        job.state = troubles && rng_.below(5) == 0 ? "COMPLETING" : "COMPLETED";
        if (job.cleans_up()) back_.erase(id);
      } else if (job.cleans_up() && rng_.below(3) == 0) {
        if (back_.contains(id)) job.state = "PENDING", hold(job, true);
        else job.state = "FAILED";
      }
    }
  }
  void ledger(bool troubles) {
    for (auto& [key, workload] : workloads_) {
      if (kube::deleting(workload) || kube::condition_is_true(workload, "Finished")) continue;
      if (!holds_quota(workload) && rng_.below(2) == 0) tell_admitted(workload, admission(), {}, in_.now), touch(workload);
      else if (troubles && holds_quota(workload) && !kube::condition_is_true(workload, "Evicted") && rng_.below(6) == 0) tell_evicted(workload, "Preempted", "x", VictimReason::InClusterQueue, in_.now), touch(workload);
    }
  }
  void touch(Json& workload) { workload.child("metadata").set("resourceVersion", std::to_string(++version_)); }
  void remove(const kube::ObjectKey& key) {
    Json& workload = workloads_.at(key);
    if (kube::has_finalizer(workload, kSlurmJob)) workload.child("metadata").set("deletionTimestamp", "2026-11-22T10:00:00Z"), touch(workload);
    else workloads_.erase(key);
  }
  void operate(bool troubles) {
    if (!troubles || rng_.below(3) != 0) seen_ = workloads_;  // else: an old look
    in_.workloads.clear();
    in_.asked.clear();
    for (const auto& [key, workload] : seen_) in_.workloads.push_back(workload), in_.asked.insert(job_of_workload(workload));
    in_.jobs.reset();
    if (!troubles || rng_.below(8) != 0) in_.jobs = jobs_;
    for (const LedgerStep& step : plan_ledger(in_).steps) {
      if (troubles && rng_.below(4) == 0) return;  // died
      take(step);
    }
  }
  void take(const LedgerStep& step) {
    last = fmt::format("{} {}", text(step.what), step.job);
    const kube::ObjectKey key = kube::key_of(step.object);
    const auto at = workloads_.find(key);
    const bool fresh = at != workloads_.end() && kube::version_of(at->second) == kube::version_of(step.object);
    if (step.what == What::CreateWorkload) {
      if (at == workloads_.end()) workloads_[key] = step.object, touch(workloads_[key]);
      return;
    }
    if (!step.object.is_null() && !fresh) return;
    LedgerJob& job = jobs_.at(step.job);
    const bool on_nodes = job.state == "RUNNING" || job.cleans_up();
    switch (step.what) {
      case What::Hold:
        if (job.waits()) hold(job, true);
        break;
      case What::Release:
        if (job.held()) hold(job, false);
        break;
      case What::Requeue:
        if (job.state == "RUNNING") job.state = "COMPLETING", back_.insert(job.id);
        break;
      case What::Comment: job.comment = step.text; break;
      case What::DeleteWorkload:
        if (on_nodes && !kube::has_finalizer(at->second, kSlurmJob) && !kube::condition_is_true(at->second, "Finished")) broken += fmt::format("Workload of job {} went while it runs; ", step.job);
        remove(key);
        break;
      default: {
        const bool gives_back = holds_quota(at->second) && (!holds_quota(step.object) || kube::condition_is_true(step.object, "Finished") || !kube::has_finalizer(step.object, kSlurmJob));
        if (gives_back && on_nodes) broken += fmt::format("quota of job {} was given back while a node runs it; ", step.job);
        at->second = step.object;
        touch(at->second);
        if (kube::deleting(at->second) && !kube::has_finalizer(at->second, kSlurmJob)) workloads_.erase(at);
      }
    }
  }

  Rng rng_;
  LedgerInput in_;
  std::map<std::string, LedgerJob> jobs_;
  std::set<std::string> back_;  // go back into the queue when their nodes are free
  std::map<kube::ObjectKey, Json> workloads_, seen_;
  int version_ = 0;
};

TEST(LedgerWorld, NoJobBeginsWithoutQuotaNorKeepsANodeWithoutIt) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(100, 10'000); ++seed) {
    World world(seed);
    world.live(60, true);
    world.live(200, false);
    ASSERT_EQ(world.broken, "") << "seed " << seed;
    ASSERT_TRUE(world.rests()) << "seed " << seed << ", last step: " << world.last;
  }
}

}  // namespace
}  // namespace fairlead::governance
