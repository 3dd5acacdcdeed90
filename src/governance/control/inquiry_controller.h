// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <vector>
#include <string>
#include <mutex>
#include <map>
#include "base/clock.h"
#include "governance/control/queue_kinds.h"

namespace fairlead::governance {

// Answers Inquiries (plan/inquiry.h), once each, and deletes them when their time is over. What it costs falls on its own threads: O(all objects of task governance) for an answer.
class InquiryController final : public kube::Controller {
 public:
  InquiryController(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  std::string name() const override { return "inquiry"; }
  std::vector<Source> sources() const override;
  std::optional<kube::Access> access() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

  static constexpr std::size_t most_waiting = 100;  // of one namespace; those that come later are refused ...
  static constexpr std::size_t most_there = 200;    // ... as are those that come while there are so many with their answers

 private:
  struct Seen {
    std::string created;
    bool answered = false;
  };
  std::vector<kube::ObjectKey> note(const kube::Change& change) const;

  kube::KubeApi& api_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::map<std::string, Seen>> seen_;  // by namespace and name; under mutex_
  std::mutex one_at_a_time_;                                         // an answer takes time and memory
};

}  // namespace fairlead::governance
