// SPDX-License-Identifier: Apache-2.0
// The records of the OCI driver as JSON, read and written in one place.
#pragma once
#include <optional>
#include <string>

#include "base/process.h"
#include "base/result.h"
#include "node/runtime.h"

namespace fairlead::node {

// process.json: who runs an attempt, told apart from later processes of the same number.
struct ContainerProcesses {
  ProcessIdentity container, monitor;
};

std::string print_attempt(const Attempt& attempt);
Result<Attempt> parse_attempt(const std::string& text);
std::string print_pod_record(const PodRecord& record);
Result<PodRecord> parse_pod_record(const std::string& text);
std::string print_sandbox(const Sandbox& sandbox);
Result<Sandbox> parse_sandbox(const std::string& text);
std::string print_processes(const ContainerProcesses& processes);
Result<ContainerProcesses> parse_processes(const std::string& text);

}  // namespace fairlead::node
