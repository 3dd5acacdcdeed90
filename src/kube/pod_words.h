// SPDX-License-Identifier: Apache-2.0
// A pod in a few words, as kubectl's users know them. One place for tables and pictures, so that they say the same.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::kube {

struct PodWords {
  std::string status;  // "Running", "OOMKilled", "Init:1/2", "ExitCode:3", "Terminating"; empty: a pod without a phase
  std::int64_t ready = 0, total = 0, restarts = 0;  // of its containers; while it initialises: restarts of the init containers
  std::optional<Instant> last_restart;
};
// By the rules of kubectl's own table (pkg/printers/internalversion/printers.go, printPod).
PodWords words_of_pod(const Json& pod);

}  // namespace fairlead::kube
