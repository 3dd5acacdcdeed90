// SPDX-License-Identifier: Apache-2.0
// The first process of a local node: a machine made of namespaces. Killing it is a power cut: the kernel ends everything in it.
#pragma once
#include <string>

#include "base/result.h"
#include "node/config.h"

namespace fairlead::agent {

// Enters new namespaces and forks the first process. Returns in the caller's process once that process is written down in node_dir/init.json and
// has set its mounts up; on error nothing is left. In the first process it never returns: it waits for the link's address, keeps
// `PROGRAM run --config FILE` running, reaps orphans, and on SIGTERM ends everything. Call it on the only thread of a program.
Result<void> start_node(const node::NodeConfig& config, const std::string& program, const std::string& config_path);

}  // namespace fairlead::agent
