// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "kube/controller.h"
#include "training/agents.h"

namespace fairlead::training {

// HyperPodPyTorchJobs: observes pods, nodes and agents, plans (plan/training_plan.h), writes the status, then acts. All state is in the objects and in the agents.
class TrainingController final : public kube::Controller {
 public:
  static constexpr const char* kName = "training-jobs";
  // Queues: task governance is on here; a job that names a queue begins when its Workload is admitted.
  enum class Queues { None, Ours };
  TrainingController(kube::KubeApi& api, const Clock& clock, std::unique_ptr<Agents> agents, Queues queues) : api_(api), clock_(clock), agents_(std::move(agents)), queues_(queues) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  struct Seen;
  struct Index {  // what a job may have; looked up again when it is used
    std::set<std::string> pods, workloads;
  };
  std::vector<kube::ObjectKey> note(const kube::Change& change, std::set<std::string> Index::*list) const;
  Result<void> make_pods(const kube::Json& job, const Seen& seen);
  Result<void> give_orders(const kube::Json& job, const Seen& seen, bool& again);
  Seen observe(kube::Json job);
  bool is_admitted(const kube::Json& job) const;
  Result<void> act(const kube::Json& job, const Seen& seen, bool& again);

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::unique_ptr<Agents> agents_;
  const Queues queues_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<kube::ObjectKey, Index> index_;                         // by job
  mutable std::map<std::string, std::set<kube::ObjectKey>> by_node_;       // jobs with a pod on it
  struct Silence {
    int looks = 0;
    std::chrono::nanoseconds ask_at{}, since{};  // monotonic
  };
  struct Refusal {
    int times = 0;
    std::chrono::nanoseconds again_at{};  // monotonic
  };
  std::map<kube::ObjectKey, Refusal> refused_;                             // of each job: pods that the API does not take
  std::map<kube::ObjectKey, std::map<AgentAt, Silence>> silent_;           // of each job: agents that do not answer are asked less often
};

// Why training jobs cannot be run here: their definition is not there, or it is somebody else's (SageMaker's own operator works with it). Empty: they can.
Result<std::string> why_training_is_off(kube::KubeApi& api);

}  // namespace fairlead::training
