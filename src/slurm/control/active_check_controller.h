// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <mutex>

#include "base/clock.h"
#include "kube/controller.h"
#include "slurm/plan/checks.h"

namespace fairlead::slurm {

// Runs ActiveChecks (slurm.nebius.ai/v1alpha1), as jobs of Slurm or of Kubernetes: observe, plan (plan/checks.h), act through a ready head, write the status. What was done is written last, so that a result whose reaction did not go
// through is looked at again.
class ActiveCheckController final : public kube::Controller {
 public:
  ActiveCheckController(kube::KubeApi& api, const Clock& clock, std::string space = "") : api_(api), clock_(clock), space_(std::move(space)) {}
  std::string name() const override { return "slurm-active-check"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  struct Seen {
    CheckInput input;
    std::string script;      // of a check of type k8sJob: the key of its ConfigMap
    kube::ObjectKey head;
  };
  Seen observe(const kube::Json& check) const;
  std::optional<CheckView> look(const kube::ObjectKey& head, const std::string& uid, CheckInput& in);
  std::optional<CheckView> look_at_jobs(const Seen& seen, CheckInput& in);
  RebootMachine look_at_machine(const std::string& space, const std::string& worker);
  Result<void> ask_reboot(const AskReboot& ask, const kube::Json& check);
  // An Event about the check; losing one loses no work.
  void tell(const kube::Json& check, bool warning, const char* reason, const std::string& message);
  // Unavailable: not done, or nobody knows. What Slurm refuses is told in `object`.
  Result<void> apply(const CheckStep& step, const Seen& seen, kube::Json& object);
  Result<void> submit(const SubmitJobs& jobs, const Seen& seen, kube::Json& object);
  Result<void> create_jobs(const SubmitJobs& jobs, const Seen& seen, kube::Json& object);
  Result<void> carry_out(CheckPlan& plan, const Seen& seen, const kube::Json& check);
  Result<kube::Next> hold(kube::Json check, bool held);  // with kTrialFinalizer, or without
  Result<kube::Next> end_of(const kube::Json& check);

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string space_;
  const kube::Caches* caches_ = nullptr;
  std::mutex draining_;  // how many are out of service is asked, and one more taken out, by one check at a time
};

}  // namespace fairlead::slurm
