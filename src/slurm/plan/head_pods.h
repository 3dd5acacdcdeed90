// SPDX-License-Identifier: Apache-2.0
// The pods of several heads (docs/design/005): in which order they are made and renewed, how several become one, and what condition HAReady says of them. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "kube/object.h"
#include "slurm/plan/heads.h"
#include "slurm/plan/reconcile.h"

namespace fairlead::slurm {

class HeadPods {
 public:
  // All three are to outlive it.
  HeadPods(const Snapshot& snapshot, const api::SlurmCluster& cluster, const std::optional<ActiveHead>& active) : snapshot_(snapshot), cluster_(cluster), active_(active) {}

  // The one that serves comes last: of those that run an older template one is renewed at a time, and then its turn is a planned change.
  std::vector<int> order() const;
  // A head that is not ready adds nothing: it may go while no other is being made anew. One that is ready goes when all others are.
  bool may_renew(int ordinal) const;
  // Made when the cluster had one head: it knows of no election, or of one by itself, so the others must not begin one while it runs.
  bool first_is_alone() const;

  // Several heads become one. The voters of before are three, and two of them a majority: as long as one of the others may be there, the first stays a voter among three, and only when they are known to be gone does it become
  // the only one. So at no time could both kinds have a majority. Nothing: that is not under way; otherwise nothing else is done with heads.
  struct Fewer {
    bool first_ready = false;
    std::vector<std::string> foreign, trouble;
    std::optional<kube::Json> make;
    std::vector<DeletePod> end;
  };
  std::optional<Fewer> become_one(const ObjectOptions& options, bool may_begin) const;

  // Does one serve, and could another?
  struct Seen {
    int wanted = 0, ready = 0;
    bool witness_ready = false;  // of two heads
    const std::vector<std::string>& trouble;
  };
  kube::Condition condition(const Seen& seen) const;

 private:
  std::string shared_machine() const;

  const Snapshot& snapshot_;
  const api::SlurmCluster& cluster_;
  const std::optional<ActiveHead>& active_;
};

}  // namespace fairlead::slurm
