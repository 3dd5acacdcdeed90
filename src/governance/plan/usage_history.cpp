// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/usage_history.h"

#include <cmath>
#include <limits>

namespace fairlead::governance {

double UsageHistory::alpha(double seconds) const { return rules_.half_life_seconds == 0 ? 0 : 1 - std::pow(0.5, seconds / rules_.half_life_seconds); }

void UsageHistory::decay(const std::string& local_queue, const Values& used, double elapsed_seconds) {
  const double share = alpha(elapsed_seconds);
  Values& consumed = queues_[local_queue].consumed;
  for (auto& [resource, value] : consumed) value *= 1 - share;
  for (const auto& [resource, value] : used) consumed[resource] += share * value;
}

void UsageHistory::push_penalty(const std::string& local_queue, const std::string& workload, const Values& request) {
  Values penalty = request;
  for (auto& [resource, value] : penalty) value *= alpha(rules_.sampling_seconds);
  queues_[local_queue].penalties[workload] = std::move(penalty);
}

void UsageHistory::drop_penalty(const std::string& local_queue, const std::string& workload) {
  if (const auto at = queues_.find(local_queue); at != queues_.end()) at->second.penalties.erase(workload);
}

double UsageHistory::use(const std::string& local_queue, double weight) const {
  if (weight <= 0) return std::numeric_limits<double>::infinity();
  const auto at = queues_.find(local_queue);
  if (at == queues_.end()) return 0;
  Values all = at->second.consumed;
  for (const auto& [workload, penalty] : at->second.penalties)
    for (const auto& [resource, value] : penalty) all[resource] += value;
  double sum = 0;
  for (const auto& [resource, value] : all) {
    const auto own = rules_.resource_weights.find(resource);
    sum += (own == rules_.resource_weights.end() ? 1 : own->second) * value;
  }
  return sum / weight;
}

}  // namespace fairlead::governance
