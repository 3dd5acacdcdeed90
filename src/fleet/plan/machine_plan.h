// SPDX-License-Identifier: Apache-2.0
// What is due for one machine: from what is asked (its object) and what is (the host's observation), the steps, the phase and the conditions.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "api/machine.h"
#include "base/clock.h"
#include "base/process.h"

namespace fairlead::fleet {

// How a node hangs on the fabric.
enum class Wire {
  None,  // no link, or one that does not end in the living node
  Cut,   // there, taken down
  Up,
};

// What the host sees of one machine, by its name. Never from memory: what is, survives us.
struct Observation {
  bool leftovers = false;  // anything of it besides a running process: folders, cgroups, links
  std::optional<ProcessIdentity> process;  // its first process, alive
  std::optional<Instant> started_at;       // when the newest first process was started, dead or alive
  Wire wire = Wire::None;
  friend bool operator==(const Observation&, const Observation&) = default;
};

enum class Step {
  Start,    // folders, certificate, cgroups, config; then the first process
  Connect,  // a new link into the living node
  Cut,
  Heal,
  Kill,     // at once: a power cut
  Stop,     // asked to end, killed after a grace
  Remove,   // everything that is left of it on the host
  Forget,   // its Node object and our finalizer
};
const char* name(Step step);

struct MachinePlan {
  std::vector<Step> steps;  // in order; a failed step ends the round
  std::string phase;        // once they are done: Pending, Running, Off, Cut, Removing, Refused
  std::string why;          // one sentence
  std::optional<std::chrono::nanoseconds> look_again_after;
  friend bool operator==(const MachinePlan&, const MachinePlan&) = default;
};

struct MachinePlanOptions {
  // A node that died is started again, but not more often than this.
  std::chrono::seconds between_starts{10};
};

// Must a request to reboot be written down, before anything is done? The record is then complete but for the times; nothing is done in that round.
std::optional<api::RebootRecord> note_reboot(const api::Machine& machine, const Observation& seen);
// Has the one that is written down happened? Then the first process is another.
bool has_rebooted(const api::Machine& machine, const Observation& seen);

// Equal arguments give equal plans. Idempotent: after the steps have done their work, the plan has no steps (except that Forget ends the object).
MachinePlan plan_machine(const api::Machine& machine, const Observation& seen, Instant now, const MachinePlanOptions& options = {});

}  // namespace fairlead::fleet
