// SPDX-License-Identifier: Apache-2.0
// Training jobs under faults: a server that dies at any write or order, orders that are lost, pods and nodes that go, and processes that fail, at random. Never: two attempts at once, an agent that is told twice. In the end: it runs, or has failed for its limits.
#include <gmock/gmock.h>

#include <cstdlib>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "training/training_test_site.h"

namespace fairlead::training {
namespace {

using testing::IsEmpty;

// An API whose n-th write is the last one that this server makes: it is done, or it is not, and the server never learns which.
class DyingApi final : public kube::KubeApi {
 public:
  struct Died {};
  DyingApi(kube::KubeApi& api, int& left, bool done) : api_(api), left_(left), done_(done) {}
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override { return api_.get(resource, key); }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override { return api_.list(resource, space, options); }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api_.watch(resource, space, options); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.create(resource, object); }); }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.update(resource, object); }); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return write([&] { return api_.update_status(resource, object); }); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override { return write([&] { return api_.patch(resource, key, type, patch, subresource); }); }
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override { return api_.post(resource, key, subresource, body); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return write([&] { return api_.remove(resource, key, options); }); }
  Result<kube::ExecResult> exec(const kube::ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input, std::chrono::milliseconds limit) override { return api_.exec(pod, container, command, input, limit); }

 private:
  template <class F>
  auto write(const F& f) -> decltype(f()) {
    if (left_ == 0 && !done_) throw Died();
    auto out = f();
    if (left_ == 0) throw Died();
    --left_;
    return out;
  }
  kube::KubeApi& api_;
  int& left_;
  const bool done_;
};

struct FaultySite : Site {
  int left = -1;  // writes until the server dies
  int deaths = 0;
  std::optional<DyingApi> dying;
  void arm(int writes, bool done) {
    left = writes;
    dying.emplace(*api, left, done);
    restart(&*dying);
  }
  void step() {
    kubelet();
    try {
      auto done = reconcile();
      if (!done && done.error().code != Code::Conflict) throw std::runtime_error(done.error().message);
    } catch (const DyingApi::Died&) {
      ++deaths;
      dying.reset();
      restart();
    }
    clock.advance(1s);
  }
};

// A job with a spare through its whole life: it begins, its processes fail, a pod goes, a node goes, it is held, goes on and completes.
void live(FaultySite& site) {
  Json job = Site::job_of("t", 3, "hyperpodrun train.py", Json::object({{"jobMaxRetryCount", 50}}));
  job.child("spec").child("replicaSpecs").items()[0].set("spares", 1);
  site.add(job);
  const auto for_a_while = [&](int steps) {
    for (int i = 0; i < steps; ++i) site.step();
  };
  const auto first_running = [&] {
    for (const std::string& pod : site.pods())
      if (const auto agent = site.agents->all.find(site.at(pod)); agent != site.agents->all.end() && agent->second.state == AgentState::Running) return pod;
    return std::string();
  };
  for_a_while(14);
  if (const std::string pod = first_running(); !pod.empty()) site.agents->fault(site.at(pod));
  for_a_while(16);
  if (const std::string pod = first_running(); !pod.empty()) site.end_pod(pod, 1);
  for_a_while(25);
  if (const std::string pod = first_running(); !pod.empty()) site.mark_node(site.pod(pod)["spec"]["nodeName"].string(), "UnschedulablePendingReboot");
  for_a_while(60);
  site.change([](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", true); });
  for_a_while(4);
  site.change([](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", false); });
  for_a_while(16);
  for (const std::string& pod : site.pods())
    if (!site.pod(pod)["metadata"]["labels"][kRankLabel].is_null() && site.agents->all.contains(site.at(pod))) site.agents->complete(site.at(pod));
  for_a_while(90);
}

TEST(TrainingFaults, AServerThatDiesAtAnyWriteIsFollowedByOneThatGoesOn) {
  int last = 0;
  for (int at = 0;; at += test_stride()) {
    for (const bool done : {false, true}) {
      FaultySite site;
      site.arm(at, done);
      live(site);
      if (site.deaths == 0) {
        last = at;
        break;
      }
      EXPECT_EQ(site.shown(), "Completed") << "write " << at << (done ? ", done" : ", not done") << ": " << kube::print_json(site.status());
      EXPECT_EQ(site.status()["restartCount"].integer(), 3) << "write " << at << ": each fault counts once";
      EXPECT_THAT(site.agents->broken, IsEmpty()) << "write " << at;
      for (const std::string& pod : site.pods()) EXPECT_NE(site.pod(pod)["status"]["phase"].string(), "Running") << "write " << at;
    }
    if (last > 0) break;
  }
  EXPECT_GT(last, 30) << "writes of a life";
}

TEST(TrainingFaults, AtRandom) {
  const char* only = std::getenv("FAIRLEAD_SEED");
  const std::uint64_t from = only != nullptr ? std::strtoull(only, nullptr, 10) : 0, to = only != nullptr ? from + 1 : test_rounds<std::uint64_t>(80, 20'000);
  for (std::uint64_t seed = from; seed < to; ++seed) {
    Rng rng(seed);
    FaultySite site;
    site.agent_images = rng.below(4) != 0;
    const int nodes = 1 + static_cast<int>(rng.below(3));
    Json job = Site::job_of("t", nodes, site.agent_images ? (rng.below(3) == 0 ? "" : "hyperpodrun train.py") : "torchrun train.py", Json::object({{"jobMaxRetryCount", 10'000}}));
    if (site.agent_images) job.child("spec").child("replicaSpecs").items()[0].set("spares", static_cast<int>(rng.below(2)));
    if (rng.below(3) == 0) job.child("spec").child("runPolicy").set("restartPolicy", Json::object({{"numRestartBeforeFullJobRestart", 2}, {"maxFullJobRestarts", 10'000}}));
    site.add(job);
    for (int i = 0; i < 300; ++i) {
      if (site.deaths < 20 && rng.below(40) == 0) site.arm(static_cast<int>(rng.below(12)), rng.below(2) == 0);
      const auto pods = site.pods();
      const std::string pod = pods.empty() ? "" : pods[rng.below(pods.size())];
      const bool runs = !pod.empty() && site.pod(pod)["status"]["phase"].string() == "Running";
      switch (rng.below(60)) {
        case 0: if (runs && site.agents->all.contains(site.at(pod))) site.agents->fault(site.at(pod)); break;
        case 1: if (runs) site.end_pod(pod, 1); break;
        case 2: if (!pod.empty()) (void)site.store.remove(resources::pods, {"team", pod}); break;
        case 3: site.mark_node(fmt::format("node-{}", rng.below(6)), rng.below(3) == 0 ? "UnschedulablePendingReboot" : ""); break;
        case 4: site.agents->lost = static_cast<int>(rng.below(3)); break;
        case 5: if (runs && site.agents->all.contains(site.at(pod))) site.agent(pod).silent = rng.below(2) == 0; break;
        case 6: site.change([&](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", rng.below(2) == 0); }); break;
        case 7: if (rng.below(2) == 0) site.change([&](Json& changed) { changed.child("spec").child("replicaSpecs").items()[0].set("replicas", 1 + static_cast<int>(rng.below(4))); }); break;
        case 8: {  // a pod that takes its time to go
          if (pod.empty()) break;
          site.hold(pod);
          break;
        }
        case 9: {
          for (const std::string& one : pods) {
            site.let_go(one);
          }
          break;
        }
        default: break;
      }
      site.step();
      ASSERT_THAT(site.agents->broken, IsEmpty()) << "seed " << seed << ", step " << i;
    }
    // No more faults.
    site.dying.reset();
    site.restart();
    site.agents->lost = 0;
    for (auto& [at, agent] : site.agents->all) agent.silent = false;
    for (int i = 0; i < 6; ++i) site.mark_node(fmt::format("node-{}", i), "");
    for (const std::string& one : site.pods()) {
      site.let_go(one);
    }
    site.change([](Json& changed) { changed.child("spec").child("runPolicy").set("suspend", false); });
    for (int i = 0, calm = 0; i < 900 && calm < 60; ++i) {
      site.step();
      calm = site.shown() == "Running" ? calm + 1 : 0;
    }
    std::string agents;
    for (const auto& [at, agent] : site.agents->all) agents += fmt::format(" {} {} {} rank {};", at.address, name(agent.state), agent.attempt, agent.rank);
    for (const std::string& pod : site.pods()) agents += fmt::format(" {} at {}: {};", pod, site.at(pod).address, kube::print_json(site.pod(pod)["metadata"]));
    ASSERT_EQ(site.shown(), "Running") << "seed " << seed << ": " << kube::print_json(site.status()) << agents;
    const auto wanted = static_cast<std::size_t>(site.job()["spec"]["replicaSpecs"].items()[0]["replicas"].integer() + site.job()["spec"]["replicaSpecs"].items()[0]["spares"].integer());
    ASSERT_EQ(site.pods().size(), wanted) << "seed " << seed;
    std::set<std::string> ranks;
    for (const std::string& pod : site.pods())
      if (const Json one = site.pod(pod); !one["metadata"]["labels"][kRankLabel].is_null()) {
        ranks.insert(one["metadata"]["labels"][kRankLabel].string());
        if (!site.agent_images) continue;
        ASSERT_EQ(site.agent(pod).state, AgentState::Running) << "seed " << seed << " " << pod;
        ASSERT_EQ(site.agent(pod).attempt, attempt_word(site.job(), site.status()["restartCount"].integer())) << "seed " << seed << " " << pod;
        ASSERT_EQ(std::to_string(site.agent(pod).rank), one["metadata"]["labels"][kRankLabel].string()) << "seed " << seed << " " << pod;
      }
    ASSERT_EQ(static_cast<std::int64_t>(ranks.size()), site.job()["spec"]["replicaSpecs"].items()[0]["replicas"].integer()) << "seed " << seed;
    ASSERT_THAT(site.agents->broken, IsEmpty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace fairlead::training
