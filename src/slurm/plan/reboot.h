// SPDX-License-Identifier: Apache-2.0
// The machine of a worker that a check has drained is rebooted once, and the worker serves again after the check has passed on it (docs/design/022). Pure; part of plan_check (checks.h), whose steps and memory it shares.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kube/object.h"
#include "slurm/plan/check_view.h"

namespace fairlead::slurm {

// spec.extensions.reboot of an ActiveCheck.
struct RebootRules {
  std::chrono::seconds drain{86'400};  // for so long a machine is waited for until nothing runs on it; then a person is to look
  std::chrono::seconds back{1'800};    // later than that, the machine that is not back is told of
  int per_day = 1;                     // reboots of one machine in 24 hours, whoever asked
};
// What is wrong with it goes to `problems`.
RebootRules read_reboot_rules(const kube::Json& spec, std::vector<std::string>& problems);

// What is known of the machine that a worker's pod stands on. Whatever could not be read is in `unknown`, and then nothing follows.
struct RebootMachine {
  std::string machine;            // Node
  std::string unknown;            // why nothing is known just now
  std::string cannot;             // why it is not ours to reboot
  bool ready = false;             // its Node is
  bool worker_ready = false;      // the worker's pod is
  std::string boot;               // boot id of its Node
  std::string asked, noted, phase, message;  // spec.reboot.id of the Machine; status.reboot: id, Rebooting, Done or Refused, and why
  std::vector<std::pair<std::string, Instant>> reboots;  // ids and times
  std::vector<std::string> others;  // pods there whose work would end, besides the worker's
};

struct AskReboot { std::string worker, machine, id, reason; };
struct BeginTrial { std::string node, reservation, reason; };
struct SettleTrial { std::string node, reservation, reason, next; };  // reservation "-": none; next "-": it passed
struct TryJob { std::string node, run, reservation; };                // one job of the check there, where this run has none; reservation empty: none
struct CancelTry { std::string id; };
using RebootStep = std::variant<AskReboot, BeginTrial, SettleTrial, TryJob, CancelTry>;

struct RebootInput {
  std::string check, uid;                  // the check's name and uid
  std::optional<RebootRules> rules;        // none: it reboots nothing (any more)
  bool pods = false;                       // its jobs are Kubernetes', which a drain does not keep away
  std::chrono::seconds deadline{1800};     // of its jobs
  kube::Json memory;                       // status.checks.reboots
  std::map<std::string, RebootMachine> machines;  // by worker: those of reboots_in_question
  const CheckView* view = nullptr;         // never null in plan_reboots
  Instant now;
};
struct RebootPlan {
  std::vector<RebootStep> steps;
  kube::Json memory;
  std::vector<std::string> notes;   // for condition Rebooting
  std::vector<std::string> ended;   // what has come to its end now, for the log and status.checks.rebooted
  std::optional<std::chrono::nanoseconds> look_again;
};

inline constexpr std::string_view kThenReboot = "; then its machine is rebooted";  // ends the reason of a drain after which the machine may be
// Has a check that looks got to know more of these workers? They are remembered, or drained by it for a reboot.
std::vector<std::string> reboots_in_question(const RebootInput& input);
RebootPlan plan_reboots(const RebootInput& input);
// Of what is remembered of one worker: may a reservation lie over it?
bool is_tried(const kube::Json& entry);
// The run ids of tries; no scheduled run has such a one before the year 2286.
bool is_try(const std::string& run);

}  // namespace fairlead::slurm
