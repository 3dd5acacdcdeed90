// SPDX-License-Identifier: Apache-2.0
#include "base/test_rounds.h"
#include "slurm/plan/scale.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>
#include <set>

#include "slurm/plan/scale_test_pods.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};

// A Slurm and a Kubernetes that behave, an operator that dies at any step, and people who do what they like
class Site {
 public:
  Site(std::uint32_t seed, bool strict) : random_(seed) {
    rules_.strict_ordinals = strict;
    const auto dice = pick(3);
    rules_.policy = dice == 0 ? api::SlurmScaleDown::Policy::Requeue : dice == 1 ? api::SlurmScaleDown::Policy::Kill : api::SlurmScaleDown::Policy::Wait;
    rules_.after = 15s;
  }

  void live(int events) {
    for (int i = 0; i < events; ++i) {
      now_ += std::chrono::seconds(pick(4));
      switch (pick(13)) {
        case 0: resize(); break;
        case 12: if (pick(3) == 0) ++mounts_, ++generation_; break;
        case 1: submit(); break;
        case 2: finish_job(); break;
        case 3: drain_by_hand(); break;
        case 4: undrain_by_hand(); break;
        case 5: silent_ = pick(3) == 0; break;
        case 6: delete_pod_by_hand(); break;
        case 7: notice_the_dead(); break;
        case 8: kubelet(); break;
        default: operate(pick(4) == 0 ? pick(4) : 1000); break;
      }
    }
  }

  // Nobody interferes any more, jobs end: everything comes to rest, and all is as it should be.
  void rest() {
    silent_ = false;
    resting_ = true;
    jobs_.clear();
    for (int i = 0; i < 120; ++i) {
      now_ += 10s;  // a record that nobody knows stays for minutes
      kubelet(true);
      notice_the_dead();
      operate(1000);
    }
    resting_ = false;
    std::set<std::string> pods, records;
    for (const auto& [ordinal, pod] : pods_) {
      pods.insert(fmt::format("worker-{}", ordinal));
      EXPECT_EQ(pod["metadata"]["mounts"].integer(), mounts_) << "worker-" << ordinal << " was not made anew";
    }
    for (const auto& [name, node] : nodes_) {
      records.insert(name);
      EXPECT_FALSE(node.drained && node.reason.starts_with(kScaleDownReason)) << name << " stays drained by us";
    }
    EXPECT_EQ(pods.size(), static_cast<std::size_t>(size_));
    EXPECT_EQ(records, pods);
    EXPECT_TRUE(memory_["workers"].is_null()) << kube::print_json(memory_);
    if (rules_.strict_ordinals && size_ > 0) {
      EXPECT_TRUE(pods.contains(fmt::format("worker-{}", size_ - 1)));
    }
  }

 private:
  struct Node {
    bool drained = false, failing = false, down = false, silent = false;
    std::string reason, since;
    bool closed() const { return drained || failing; }
    int empty_looks = 0;  // in a row, drained and empty
  };
  // Also larger and smaller again, or the other way round, before anybody looks.
  void resize() {
    for (int edits = 1 + pick(3); edits > 0; --edits) {
      size_ = pick(5), ++generation_;
      for (int i = 0; i < 5; ++i) {
        if (i < size_) beyond_since_.erase(i);
        else beyond_since_.emplace(i, now_);
      }
    }
  }
  int pick(int below) { return static_cast<int>(random_() % static_cast<std::uint32_t>(below)); }
  static std::string name(int ordinal) { return fmt::format("worker-{}", ordinal); }
  bool busy(const std::string& node) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) { return job.second == node; });
  }
  template <class Map>
  auto any(Map& map) {
    auto at = map.begin();
    if (!map.empty()) std::advance(at, pick(static_cast<int>(map.size())));
    return at;
  }

  void submit() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    if (!at->second.closed() && !at->second.down && !at->second.silent && alive(at->first)) jobs_[++last_job_] = at->first;
  }
  bool alive(const std::string& node) {
    return slurmds_.contains(*worker_ordinal(node));
  }
  void finish_job() {
    if (!jobs_.empty()) jobs_.erase(any(jobs_));
  }
  void drain_by_hand() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    (pick(3) == 0 ? at->second.failing : at->second.drained) = true, at->second.reason = "a person's", by_hand_.insert(at->first);
    at->second.since = print_time(now_);
    closed_since_.emplace(at->first, now_);
  }
  void undrain_by_hand() {
    if (nodes_.empty()) return;
    const auto at = any(nodes_);
    at->second.drained = at->second.failing = false, at->second.reason = "", by_hand_.erase(at->first), closed_since_.erase(at->first);
  }
  void delete_pod_by_hand() {
    if (!pods_.empty() && pick(3) == 0) any(pods_)->second.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  }
  // Slurm's time-out: a node without a slurmd is down, and its jobs are over there.
  void notice_the_dead() {
    for (auto& [node, its] : nodes_)
      if (!alive(node)) {
        its.down = its.silent = true;
        if (its.reason.empty()) its.reason = "Not responding";
        std::erase_if(jobs_, [&](const auto& job) { return job.second == node; });
      }
  }
  void kubelet(bool all = false) {
    for (auto at = pods_.begin(); at != pods_.end();) {
      auto& [ordinal, pod] = *at;
      if (!all && pick(2) == 0) {
        ++at;
        continue;
      }
      if (kube::deleting(pod)) {
        slurmds_.erase(ordinal);
        at = pods_.erase(at);
        continue;
      }
      const bool pending = pod["status"]["phase"].string() == "Pending";
      if (!slurmds_.contains(ordinal)) {
        slurmds_.insert(ordinal);
        pod.set("spec", Json::object({{"nodeName", "n1"}}));
        const int told = all ? 2 : pick(4);  // what Kubernetes shows of it: nothing yet, or Pending for a sidecar's sake, or all
        pod.set("status", told == 0 ? pod["status"] : told == 1 ? half_started(ordinal, "", true)["status"] : pod_object(ordinal, "Running", false, "")["status"]);
      } else if (!nodes_.contains(name(ordinal)) || nodes_[name(ordinal)].down || !kube::condition_is_true(pod, "Ready")) {
        Node& node = nodes_[name(ordinal)];  // registers; ReturnToService=2
        if (node.down && !node.closed()) node.reason = "";
        node.down = node.silent = false;
        if (!pending || all || pick(3) == 0) pod.set("status", pod_object(ordinal, "Running", true, "")["status"]);
      }
      ++at;
    }
  }

  SlurmView look() {
    SlurmView view{.at = now_};
    for (auto& [node, its] : nodes_) {
      SlurmNode out{.name = node, .state = {its.down ? "DOWN" : busy(node) ? "MIXED" : "IDLE"}, .cpus = busy(node), .reason = its.reason, .by = "root", .since = its.since, .answers = alive(node)};
      if (its.drained) out.state.push_back("DRAIN");
      if (its.failing) out.state.push_back("FAIL");
      if (its.silent) out.state.push_back("NOT_RESPONDING");
      view.nodes[node] = out;
    }
    for (const auto& [id, node] : jobs_)
      if (!rules_.strict_ordinals || !stale().empty() || *worker_ordinal(node) >= size_) view.jobs.push_back({.id = std::to_string(id), .user = "u", .state = "RUNNING", .nodes = {node}, .end = now_ + 100s});
    return view;
  }

  std::set<int> stale() const {
    std::set<int> out;
    for (const auto& [ordinal, pod] : pods_)
      if (!kube::deleting(pod) && pod["metadata"]["mounts"].integer() != mounts_) out.insert(ordinal);
    return out;
  }

  // One round of the operator, which dies after `lives` things done: the status is the first.
  void operate(int lives) {
    ScaleInput in{.cluster_uid = "u1", .generation = generation_, .size = size_, .rules = rules_, .memory = memory_, .now = now_};
    for (const auto& [ordinal, pod] : pods_) in.pods[ordinal] = &pod;
    in.renew = stale();
    const bool asked = needs_look(in);
    if (asked && !silent_) in.view = look();
    const ScalePlan plan = plan_scale(in);
    if (in.view && !rules_.strict_ordinals) idle_ones_first(plan, *in.view);
    if (lives-- <= 0) return;
    memory_ = plan.memory;
    if (in.view)  // what a look showed counts when it was written down
      for (auto& [node, its] : nodes_) its.empty_looks = its.closed() && is_empty(*in.view, in.view->nodes.at(node)) ? its.empty_looks + 1 : 0;
    if (!resting_) submit();  // in the meantime
    for (const auto& step : plan.steps) {
      if (lives-- <= 0) return;
      if (const auto* end = std::get_if<EndPod>(&step)) end_pod(end->ordinal, in.view.has_value());
      else tell(std::get<TellSlurm>(step), in.view.has_value());
    }
    for (const int ordinal : plan.ordinals)
      if (!pods_.contains(ordinal)) {
        pods_[ordinal] = pod_object(ordinal, "Pending", false, fmt::format("uid-{}", ++last_uid_));
        pods_[ordinal].child("metadata").set("mounts", mounts_);
      }
  }

  void idle_ones_first(const ScalePlan& plan, const SlurmView& view) {
    for (const auto& [ordinal, pod] : pods_) {
      if (kube::deleting(pod) || std::find(plan.ordinals.begin(), plan.ordinals.end(), ordinal) != plan.ordinals.end() || !busy(name(ordinal))) continue;
      for (const int stays : plan.ordinals) {
        const auto node = view.nodes.find(name(stays));
        EXPECT_TRUE(node != view.nodes.end() && !is_empty(view, node->second)) << name(ordinal) << " is busy and leaves, " << name(stays) << " idles and stays";
      }
    }
  }

  void end_pod(int ordinal, bool answered) {
    Json& pod = pods_.at(ordinal);
    if (slurmds_.contains(ordinal)) {
      EXPECT_TRUE(answered);
      EXPECT_FALSE(busy(name(ordinal))) << "a pod with a job is deleted";
      if (nodes_.contains(name(ordinal))) {
        EXPECT_TRUE(nodes_[name(ordinal)].closed());
        EXPECT_GE(nodes_[name(ordinal)].empty_looks, 2);
      }
    }
    pod.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  }

  // As fairlead-slurm does it.
  void tell(const TellSlurm& step, bool answered) {
    EXPECT_TRUE(answered);
    const auto found = nodes_.find(step.node);
    if (found == nodes_.end()) return;
    Node& node = found->second;
    switch (step.verb) {
      case NodeVerb::Drain:
        EXPECT_FALSE(node.failing);
        if (!node.drained) node.drained = true, node.reason = step.arguments.at(0), node.since = print_time(now_), closed_since_.emplace(step.node, now_);
        break;
      case NodeVerb::Undrain:
        EXPECT_THAT(node.reason, testing::StartsWith(kScaleDownReason));
        EXPECT_FALSE(by_hand_.contains(step.node));
        node.drained = false, node.reason = "", closed_since_.erase(step.node);
        break;
      case NodeVerb::Forget:
        EXPECT_FALSE(busy(step.node));
        EXPECT_FALSE(pods_.contains(*worker_ordinal(step.node)));
        nodes_.erase(found), by_hand_.erase(step.node), closed_since_.erase(step.node);
        break;
      case NodeVerb::Requeue:
      case NodeVerb::Cancel:
        EXPECT_NE(rules_.policy, api::SlurmScaleDown::Policy::Wait);
        EXPECT_TRUE(node.closed());
        EXPECT_GE(now_ - closed_since_.at(step.node), rules_.after);
        if (rules_.strict_ordinals) {
          EXPECT_GE(now_ - beyond_since_.at(*worker_ordinal(step.node)), rules_.after);
        }
        for (const auto& id : step.arguments) jobs_.erase(std::stoi(id));
        break;
      case NodeVerb::Died: ADD_FAILURE() << "no scale-down says that a worker died"; break;
      case NodeVerb::Lift: ADD_FAILURE() << "no scale-down lifts what people asked for"; break;
      case NodeVerb::Expect: ADD_FAILURE() << "no number here follows the queue"; break;
    }
  }

  std::mt19937 random_;
  api::SlurmScaleDown rules_;
  Instant now_ = kNow;
  int size_ = 2, last_job_ = 0, last_uid_ = 0;
  std::int64_t mounts_ = 0;
  std::int64_t generation_ = 1;
  bool silent_ = false, resting_ = false;
  Json memory_;
  std::map<int, Json> pods_;
  std::map<std::string, Node> nodes_;
  std::map<int, std::string> jobs_;  // id -> node
  std::set<std::string> by_hand_;    // drained by people
  std::set<int> slurmds_;            // that run, whatever Kubernetes shows of their pods
  std::map<int, Instant> beyond_since_;          // the size
  std::map<std::string, Instant> closed_since_;  // nodes that get no new jobs
};

TEST(Property, NoJobIsLostNoForeignDrainUndoneAndAllComesToRest) {
  const auto seeds = test_rounds<std::uint32_t>(80, 5000);
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Site site(seed, seed % 2 == 0);
    for (int part = 0; part < 3; ++part) {
      site.live(150);
      site.rest();
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace fairlead::slurm
