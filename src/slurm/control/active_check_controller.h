// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <mutex>

#include "base/clock.h"
#include "kube/controller.h"
#include "slurm/plan/checks.h"

namespace fairlead::slurm {

// Runs ActiveChecks (slurm.nebius.ai/v1alpha1, type slurmJob): observe, plan (plan/checks.h), act through a ready head, write the status. What was done is written last, so that a result whose reaction did not go
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
    std::string script;
    kube::ObjectKey head;
  };
  Seen observe(const kube::Json& check) const;
  std::optional<CheckView> look(const kube::ObjectKey& head, const std::string& uid, CheckInput& in);
  // Unavailable: not done, or nobody knows. What Slurm refuses is told in `object`.
  Result<void> apply(const CheckStep& step, const Seen& seen, kube::Json& object);
  Result<void> submit(const SubmitJobs& jobs, const Seen& seen, kube::Json& object);

  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string space_;
  const kube::Caches* caches_ = nullptr;
  std::mutex draining_;  // how many are out of service is asked, and one more taken out, by one check at a time
};

}  // namespace fairlead::slurm
