// SPDX-License-Identifier: Apache-2.0
// What a host has, and what it lacks to be a node. Reads the kernel's files; changes nothing.
#pragma once
#include <string>
#include <vector>

#include "api/join.h"
#include "base/result.h"

namespace fairlead::agent {

struct HostFiles {
  std::string root;                                 // before /proc, /dev, /etc, /sys; tests have their own
  std::vector<std::string> path{"/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin", "/usr/local/sbin"};  // where programs are looked for
  std::vector<std::string> cdi_dirs{};              // whose files say which devices pods may have; as they are, without `root`
};

// `address` is taken as it is. Unavailable: the kernel's files cannot be read.
Result<api::HostFacts> look_at_host(const std::string& address, const HostFiles& files = {});

// What keeps it from being a node, each with what to do; empty: nothing.
struct Lack {
  std::string what, remedy;
};
std::vector<Lack> what_host_lacks(const HostFiles& files = {});

// The address by which this machine reaches a server ("https://10.0.0.5:6443"): others on its way reach it at that. Unavailable: there is no route.
Result<std::string> address_towards(const std::string& server);

}  // namespace fairlead::agent
