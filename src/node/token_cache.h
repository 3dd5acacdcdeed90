// SPDX-License-Identifier: Apache-2.0
// Tokens of pods' service accounts: asked for with the node's own certificate, bound to the pod, asked for anew before they end.
#pragma once
#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "kube/kube_api.h"

namespace fairlead::node {

// When a token that was given out at `given` and ends at `ends` is to be replaced: after 80 % of its life, at the latest after a day. Pure.
Instant token_refresh_time(Instant given, Instant ends);

class TokenCache {
 public:
  TokenCache(kube::KubeApi& api, const Clock& clock) : api_(api), clock_(clock) {}
  // The same token until it is to be replaced; the old one while no new one can be had and it has not ended. NotFound: no such account.
  Result<std::string> token(const kube::Json& pod, const std::string& audience, std::int64_t seconds);
  void forget(const std::string& pod_uid);

 private:
  struct Entry {
    std::string token;
    Instant refresh{}, ends{}, next_try{};
  };
  Result<Entry> ask(const kube::Json& pod, const std::string& audience, std::int64_t seconds) const;
  kube::KubeApi& api_;
  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, std::map<std::string, Entry>> entries_;  // under mutex_; by pod's uid, then audience and seconds
};

}  // namespace fairlead::node
