// SPDX-License-Identifier: Apache-2.0
// Training plans become machines that are kept: grants what there is room for, marks Nodes, tells how plans stand. All plans are one key, decided by one thread; what it decides by is read anew in each round (docs/design/059).
#pragma once
#include <atomic>
#include <map>
#include <optional>
#include <string>

#include "fleet/plan/reservations.h"
#include "kube/controller.h"

namespace fairlead::fleet {

// What it asks of the API beside its sources.
kube::Access training_plan_access();

class TrainingPlanController final : public kube::Controller {
 public:
  TrainingPlanController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}

  std::string name() const override { return "training-plan"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override { return training_plan_access(); }
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;
  static const kube::ObjectKey kAll;  // the one key

 private:
  // Clusters and instances of the caches; of the nodes given, or of all.
  std::vector<api::PlanMachine> machines(const api::Plans& plans, Instant now, const std::vector<kube::Json>* nodes, std::optional<Instant>& look_again, std::map<std::string, int>& waiting) const;
  // Says of what is out of order whether that is so lately.
  void remember(std::vector<api::PlanMachine>& all, Instant now, std::optional<Instant>& look_again);
  Result<void> mark(const ReservationPlan::Mark& mark);
  Result<bool> grant(const ReservationPlan::Due& due, const std::vector<kube::Json>& objects, const api::Plans& plans, Instant now);

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::atomic<bool> any_ = false;  // there is a plan, for all that is known
  std::map<std::string, Instant> broken_;  // Nodes: since when they are seen to be out of order
  // Thousands of machines that change one after the other are looked at together, a second later.
  std::size_t seen_ = 0;
  std::chrono::nanoseconds looked_{};
};

}  // namespace fairlead::fleet
