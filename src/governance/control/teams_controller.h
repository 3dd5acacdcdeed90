// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "governance/control/queue_kinds.h"
#include "governance/plan/teams.h"

namespace fairlead::governance {

// Makes of the policy and the quotas of teams what plan/teams.h says. One key, for what one team may have depends on all. A promise is written down (status.inForce) before anything is made of it. It deletes only what carries its
// label, and never a namespace.
class TeamsController final : public kube::Controller {
 public:
  static constexpr const char* kName = "teams";
  TeamsController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return kName; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<void> say(const kube::Resource& resource, const Verdict& verdict);
  Result<void> make(const TeamObject& wanted);
  Result<void> take_away(const TeamsPlan& plan);
  std::string self();

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  std::optional<std::string> self_;  // the user that it is for the API; asked once
};

}  // namespace fairlead::governance
