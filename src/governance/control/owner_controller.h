// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "governance/control/queue_kinds.h"
#include "governance/plan/owner_workload.h"

namespace fairlead::governance {

// What was observed about one key; steps change it as they change the API.
struct OwnerCase {
  virtual ~OwnerCase() = default;
  virtual OwnerPlan plan() const = 0;
  virtual const kube::Json& about() const = 0;           // whom events are about; null: nobody
  virtual std::vector<kube::Json>& workloads() = 0;
  virtual void take(kube::Json owner) = 0;               // as a step has made it
  virtual kube::ObjectKey workload_key() const = 0;      // of the Workload that it has or is to have
  virtual int steps_at_once() const { return 12; }
  Instant now{};
};

// Owners as Workloads: observe, plan (plan/owner_workload.h), one step after the other. All state is in the objects.
class OwnerController : public kube::Controller {
 public:
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 protected:
  OwnerController(kube::KubeApi& api, const Clock& clock, const kube::Resource& owners) : api_(api), clock_(clock), owners_(owners) {}
  virtual Result<std::unique_ptr<OwnerCase>> observe(const kube::ObjectKey& key) = 0;
  // Asked of the API itself: what a cache or an owner's status says may be older.
  virtual Result<bool> has_pods(const kube::Json& workload) = 0;

  // Sources of what an owner may wait for: a class or a flavor is there now; a class has another value.
  std::vector<Source> sources_of_stuck() const;
  void note_class(const kube::Change& workload, const kube::ObjectKey& owner) const;  // under mutex_: of each change of a Workload
  // A SchedulerConfig that now has other words about pods that are to be ready: who it may mean.
  Source source_of_ready_rules(std::function<std::vector<kube::ObjectKey>()> owners) const;
  bool tells_ready() const;
  // What every adapter does to Workloads and events.
  static kube::Access shared_access();
  JobPriority priority_of(const std::string& label, const std::string& class_of_pods, const std::string& where) const;
  FlavorsByName flavors_of(const std::vector<kube::Json>& workloads) const;
  // As the cache has it, or as it was after our own last write where the cache is behind that: on an older state we would start what we have just stopped.
  kube::Json newest(const kube::Resource& resource, const kube::ObjectKey& key) const;
  void remember(const kube::Resource& resource, const kube::Json& object);
  void forget(const kube::Resource& resource, const kube::ObjectKey& key) const;  // it is gone

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Resource owners_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;

 private:
  bool problem_is_new(const kube::ObjectKey& key, const std::string& problem);
  Result<bool> is_as_decided(const OwnerCase& now, const std::vector<kube::Json>& workloads);
  Result<kube::Json> apply(const OwnerStep& step, const OwnerCase& now);

  mutable std::map<std::pair<std::string, kube::ObjectKey>, kube::Json> written_;  // by plural and key: newer than the cache when last looked at
  mutable std::map<std::string, std::map<kube::ObjectKey, kube::ObjectKey>> users_;  // by WorkloadPriorityClass: Workloads, with the key of their owner
  std::map<kube::ObjectKey, std::string> stuck_;                                   // what something else keeps from going on, with what its users were told
};

}  // namespace fairlead::governance
