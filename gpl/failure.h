// SPDX-License-Identifier: GPL-3.0-or-later
// A worker whose processes are known to be gone (docs/design/012): Slurm is told at once, and what it puts back into the queue starts again without its usual delay.
//
// Slurm 22.05 gives a requeued job the begin time now + cred_expire (120 s), so that messages meant for its first run find no second one (job_mgr.c). Messages to a node that is DOWN are not repeated
// (agent.c, _queue_agent_retry), and those to start and end jobs never are; what is repeated, each 60 s, are signals to the steps of a job that were under way before the node was DOWN. Only a job with
// other nodes has anybody who sends such signals. So its dead worker is kept out for 65 s, and everything else goes on at once.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "nodes.h"

namespace fairlead::companion {

struct Loss {
  std::vector<std::string> jobs;  // that had processes on the node
  bool several = false;           // one of them had other nodes, too
};
Loss lost_with(const std::string& node, const std::vector<JobRecord>& jobs);

// `why` completes the sentence "the worker ...".
std::string reason_of_death(const NodeRecord& node, const std::string& why, const Loss& loss);
// What is written behind its mark with it (gpl/mark.h), so that a worker which starts again knows: `extra` from now on.
std::string extra_of_death(const NodeRecord& node, const Loss& loss);
inline constexpr std::chrono::seconds kKeepOut{65};  // Slurm's RPC_RETRY_INTERVAL is 60 s
// How long a worker that starts now must stay out, by the reason and the time with which its node was set DOWN.
std::chrono::seconds keep_out(const NodeRecord& node, Instant now);

// What becomes of a job that was lost, by `scontrol -o show job`: starts again now, is not there yet, or needs nothing (it runs, has ended, is held, or waits for something else).
enum class Requeued { Hurry, Wait, Nothing };
Requeued requeued(std::string_view job);

// In a process of its own that belongs to the container's first; returns at once. What it prints goes nowhere.
void in_background(const std::function<void()>& work);
// Sees to it that these jobs start again at once when Slurm has put them back into the queue; returns at once, a process of its own waits for them (150 s at most: later Slurm's own delay is over).
void restart_in_background(const std::vector<std::string>& jobs);

// died NODE ENDED WHY [OF]. OF: whose death is proven (gpl/mark.h); a slurmd of another pod or machine is not theirs, and nothing is done. ENDED: when its processes were gone, by the clock of their machine (RFC 3339); a slurmd that started then or later is not theirs, and nothing is done. "-": none can have started.
// Exit status as in run_node_command.
int run_died(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
