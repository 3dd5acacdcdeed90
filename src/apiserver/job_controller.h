// SPDX-License-Identifier: Apache-2.0
// Jobs: step by step as plan_job says (job_plan.h). Every step is decided on what the API answers at that moment, so a controller that dies anywhere goes on where it was.
// Pods that still carry the tracking finalizer when their Job is gone lose it.
#pragma once
#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::apiserver {

class JobController final : public kube::Controller {
 public:
  JobController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "job-controller"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches&) override {}
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<std::vector<kube::Json>> pods_of(const kube::Json& job);
  Result<void> release(const std::string& space, const std::string& name);
  Result<void> release_orphan(const std::string& space, const std::string& name);
  kube::KubeApi& api_;
  const Clock& clock_;
};

}  // namespace fairlead::apiserver
