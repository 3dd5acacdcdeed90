// SPDX-License-Identifier: Apache-2.0
// Keeps the node's packet filter as plan/network.h says.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/controller.h"

namespace fairlead::node {

struct NetworkOptions {
  std::string node_name;
  std::vector<std::string> own_ranges, own_gateways;
  bool masquerade = false;
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
  const NetworkOptions options_;
  const Clock& clock_;
  const kube::Caches* caches_ = nullptr;
  std::string applied_;
  std::chrono::nanoseconds applied_at_{};
};

// Kinds that an older or smaller API does not have, or of those that only the filter needs does not show, are taken for empty until it does.
std::unique_ptr<kube::KubeApi> without_missing_kinds(kube::KubeApi& api);

}  // namespace fairlead::node
