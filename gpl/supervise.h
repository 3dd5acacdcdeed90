// SPDX-License-Identifier: GPL-3.0-or-later
// First process of a container: runs one daemon, passes signals on, reaps orphans.
#pragma once
#include <chrono>
#include <functional>
#include <initializer_list>

#include "base/process.h"

namespace fairlead::companion {

struct Supervised {
  Command command;
  std::chrono::seconds stop_limit{15};            // SIGTERM, then SIGKILL after this
  std::chrono::seconds steady_after{10};          // a daemon that lived longer is started again in place; a shorter life ends the container, so that the failure is seen
  bool restart_in_place = false;
  std::function<void()> before_start;             // each time
  std::function<bool(bool runs)> kept;            // asked before each start and twice a second: true keeps the daemon from running; it is ended in an orderly way, and asked again with false
  std::function<Result<void>(Command&)> prepare;  // after that; where it fails, the container ends
  std::function<void()> after_end;                // each time
};

// Orphans of the daemon come to a container's first process. Children of its own are left to their owners.
void reap_orphans(std::initializer_list<pid_t> ours);

// Returns the container's exit status when the daemon has ended for good.
int supervise(Supervised supervised);

}  // namespace fairlead::companion
