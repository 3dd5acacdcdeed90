// SPDX-License-Identifier: Apache-2.0
// spec.extensions.quota of a SlurmCluster as a value: whose queue gives the jobs of an account their quota (docs/design/033-slurm-jobs-in-the-ledger.md).
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

struct SlurmQuotaLine {
  std::string account;         // "*": all that have no line of their own, and jobs without an account
  std::string space, queue;    // LocalQueue
  std::string priority_class;  // WorkloadPriorityClass; empty: none
};

struct SlurmQuota {
  bool on = false;                    // the field is there: no job starts before a queue has admitted it
  std::vector<SlurmQuotaLine> lines;  // those that can be understood, each account once
  std::vector<std::string> problems;  // sentences that begin with the field

  const SlurmQuotaLine* line_of(const std::string& account) const;  // null: none
};
SlurmQuota read_slurm_quota(const kube::Json& cluster);

// On a LocalQueue: clusters of other namespaces that may use it, "NAMESPACE/NAME, ..."
inline constexpr const char* kSlurmClustersOfQueue = "fairlead.dev/slurm-clusters";

}  // namespace fairlead::api
