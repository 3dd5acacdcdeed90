// SPDX-License-Identifier: Apache-2.0
// Pods' network by the CNI plug-ins `bridge` and `host-local` (CNI 1.0.0), run as child processes.
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead::node {

struct CniOptions {
  std::string plugins_dir = "/usr/lib/cni";
  std::string bridge = "fairlead0";  // unique in the node's network namespace
  std::string pod_cidr;              // "10.78.3.0/24"
  std::string state_dir;             // where host-local writes which address is whose
  bool masquerade = false;
};

class Cni {
 public:
  explicit Cni(CniOptions options) : options_(std::move(options)) {}
  // Gives the namespace an eth0 and returns its address. After a call that was cut off, call remove() first.
  Result<std::string> add(const std::string& sandbox, const std::string& netns) const;
  // Repeatable; `netns` may be gone.
  Result<void> remove(const std::string& sandbox, const std::string& netns) const;
  // The bridge's address: the first of pod_cidr.
  Result<std::string> gateway() const;

 private:
  Result<std::string> call(const char* command, const std::string& sandbox, const std::string& netns) const;
  CniOptions options_;
};

}  // namespace fairlead::node
