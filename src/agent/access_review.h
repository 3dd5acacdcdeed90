// SPDX-License-Identifier: Apache-2.0
// May this user ask the node? Answered by the API server, as a kubelet has it answered (authorization mode Webhook).
#pragma once
#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "http/message.h"
#include "kube/kube_api.h"

namespace fairlead::agent {

// Whoever may `create nodes/proxy` of this node in the API may ask it. A yes is remembered for five minutes, a no for thirty seconds; no answer is a
// no.
class AccessReview {
 public:
  AccessReview(kube::KubeApi& api, const Clock& clock, std::string node_name) : api_(api), clock_(clock), node_name_(std::move(node_name)) {}
  bool allows(const http::Peer& peer);

 private:
  struct Verdict {
    bool allowed = false;
    std::chrono::nanoseconds until{};
  };
  kube::KubeApi& api_;
  const Clock& clock_;
  const std::string node_name_;
  std::mutex mutex_;
  std::map<std::string, Verdict> verdicts_;  // under mutex_; at most 1000
};

}  // namespace fairlead::agent
