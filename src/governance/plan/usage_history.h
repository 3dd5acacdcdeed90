// SPDX-License-Identifier: Apache-2.0
// What local queues used lately: decays by half-lives; what was just admitted counts at once as a penalty, so that a burst does not slip in.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "governance/plan/model.h"

namespace fairlead::governance {

struct HistoryRules {
  double half_life_seconds = 0, sampling_seconds = 0;
  std::map<std::string, double> resource_weights;  // 1 where there is none
};

class UsageHistory {
 public:
  using Values = std::map<std::string, double>;  // whole units: cores, bytes

  explicit UsageHistory(HistoryRules rules = {}) : rules_(std::move(rules)) {}
  void set(const std::string& local_queue, Values consumed) { queues_[local_queue].consumed = std::move(consumed); }
  // consumed <- (1 - alpha) consumed + alpha used, alpha = 1 - 0.5^(elapsed / half-life)
  void decay(const std::string& local_queue, const Values& used, double elapsed_seconds);
  // request x alpha(sampling interval), until it is settled or taken back
  void push_penalty(const std::string& local_queue, const std::string& workload, const Values& request);
  void drop_penalty(const std::string& local_queue, const std::string& workload);
  // Sum over resources of weight x (consumed + penalties), over the queue's weight; infinite for weight 0.
  double use(const std::string& local_queue, double weight) const;

 private:
  struct Entry {
    Values consumed;
    std::map<std::string, Values> penalties;  // by workload
  };
  double alpha(double seconds) const;
  HistoryRules rules_;
  std::map<std::string, Entry> queues_;
};

}  // namespace fairlead::governance
