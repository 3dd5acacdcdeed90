// SPDX-License-Identifier: Apache-2.0
// Keeps the node's packet filter as plan/network.h says.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::node {

// pods_with_role() of now. Thread-safe.
class PodsWithRole {
 public:
  void set(std::map<std::string, std::string> now) {
    const std::lock_guard lock(mutex_);
    by_address_ = std::move(now);
  }
  std::string of(const std::string& address) const {  // "NAMESPACE/NAME"; empty: no such pod has it
    const std::lock_guard lock(mutex_);
    const auto at = by_address_.find(address);
    return at == by_address_.end() ? "" : at->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> by_address_;
};

struct NetworkOptions {
  std::string node_name;
  std::vector<std::string> own_ranges, own_gateways;
  bool metadata = false;  // NetworkSeen
  bool masquerade = false;
  std::shared_ptr<PodsWithRole> with_role{};  // told of them; may be null
  std::string nft = "/usr/sbin/nft";
};

class NetworkController final : public kube::Controller {
 public:
  NetworkController(NetworkOptions options, const Clock& clock) : options_(std::move(options)), clock_(clock) {}
  std::string name() const override { return "network"; }
  std::vector<Source> sources() const override;
  void start(const kube::Caches& caches) override { caches_ = &caches; }
  // NotFound: nft is not installed.
  Result<kube::Next> reconcile(const kube::ObjectKey& key) override;

 private:
  Result<kube::Next> settle();
  const NetworkOptions options_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  std::string applied_;
  std::chrono::nanoseconds applied_at_{}, rests_until_{};
};

// Kinds that an older or smaller API does not have, or of those that only the filter needs does not show, are taken for empty until it does.
std::unique_ptr<kube::KubeApi> without_missing_kinds(kube::KubeApi& api);

}  // namespace fairlead::node
