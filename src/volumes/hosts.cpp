// SPDX-License-Identifier: Apache-2.0
#include "volumes/hosts.h"

namespace fairlead::volumes {

void HostBoard::told(api::VolumeHostFacts facts) {
  const auto now = clock_.monotonic();
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = known_.try_emplace(facts.host);
  if (fresh || at->second.facts.heard != facts.heard) at->second.heard = now;
  at->second.facts = std::move(facts);
}
void HostBoard::forget(const std::string& host) {
  const std::lock_guard lock(mutex_);
  known_.erase(host);
}
std::optional<HostSeen> HostBoard::seen(const std::string& host) {
  const auto now = clock_.monotonic();
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(host);
  if (found == known_.end()) return std::nullopt;
  HostSeen out{.facts = found->second.facts, .silent = {}};
  if (out.facts.heard.empty()) out.silent = "it was made";
  else if (now - found->second.heard > patience_) out.silent = out.facts.heard;
  return out;
}

}  // namespace fairlead::volumes
