// SPDX-License-Identifier: Apache-2.0
// Pods' network by the CNI plug-ins `ptp` and `host-local` (CNI 1.0.0), run as child processes. Each pod has a link of its own to the node, which routes: so
// every packet between pods passes the node's packet filter, with the sender's own address.
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead::node {

struct CniOptions {
  std::string plugins_dir = "/usr/lib/cni";
  std::string pod_cidr;              // "10.78.3.0/24"
  std::string pod_cidr6{};           // "fd00:78:0:3::/64"; empty: IPv4 alone
  std::string state_dir;             // where host-local writes which address is whose
};

class Cni {
 public:
  explicit Cni(CniOptions options) : options_(std::move(options)) {}
  // Gives the namespace an eth0 and returns its addresses: IPv4 and perhaps, after a comma, IPv6. After a call that was cut off, call remove() first.
  Result<std::string> add(const std::string& sandbox, const std::string& netns) const;
  // Repeatable; `netns` may be gone.
  Result<void> remove(const std::string& sandbox, const std::string& netns) const;
  // The node's own address among its pods: the first of pod_cidr, or of pod_cidr6.
  Result<std::string> gateway() const;
  Result<std::string> gateway6() const;

 private:
  Result<std::string> call(const char* command, const std::string& sandbox, const std::string& netns) const;
  CniOptions options_;
};

}  // namespace fairlead::node
