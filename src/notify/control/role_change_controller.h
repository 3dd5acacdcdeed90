// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kube/controller.h"
#include "notify/plan/roles.h"

namespace fairlead::notify {

// Makes a Notification for each change of a head's role, of the Slurm clusters that name topics, and remembers in their status what was told of. It sends nothing.
class RoleChangeController final : public kube::Controller {
 public:
  struct Options {
    std::string space;  // only clusters of this namespace; empty: all
  };
  RoleChangeController(kube::KubeApi& api, const Clock& clock, Options options) : api_(api), clock_(clock), options_(std::move(options)) {}
  std::string name() const override { return "notify-roles"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  // What came of queueing events for the topics, each by itself.
  struct Queued {
    Refusals refused;             // for good: such an event is not made again
    std::optional<Error> passing; // the API could not answer: the same events are made again
  };
  Queued queue(const std::vector<Event>& events, const api::SlurmCluster& cluster, Refusals refused);
  kube::Condition delivered(const api::SlurmCluster& cluster, const Queued& queued) const;
  kube::KubeApi& api_;
  const Clock& clock_;
  const Options options_;
  const kube::Caches* caches_ = nullptr;
};

}  // namespace fairlead::notify
