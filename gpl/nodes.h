// SPDX-License-Identifier: GPL-3.0-or-later
// What Slurm knows of its nodes and of the jobs on them, for the operator that takes workers away and brings them back (docs/design/006).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct NodeRecord {
  std::string name;
  std::vector<std::string> state;  // base state, then flags, in Slurm's words: IDLE, DRAIN, ...; '*' becomes NOT_RESPONDING
  int cpus_given = 0;              // CPUAlloc
  std::string address;             // NodeAddr
  std::string reason, by, since;   // who set it, when (UTC); empty: none
  bool has(std::string_view flag) const;
};

struct JobRecord {
  std::string id;  // as squeue's %i: "7", "7_3"; the only form that names one task of an array
  std::string user, state;
  std::vector<std::string> nodes, requested;  // where it is; nodes it insists on
  std::string end, limit;                     // end in UTC as RFC 3339, empty: none is set
};

inline constexpr const char* kJobFormat = "%i|%T|%N|%n|%e|%l|%u";  // what read_jobs reads

// Output of `scontrol -o show nodes` and of `squeue -h -a -o kJobFormat`, both with TZ=UTC. Invalid: a line was not understood, so the answer as a whole is unknown.
Result<std::vector<NodeRecord>> read_nodes(std::string_view text);
Result<std::vector<JobRecord>> read_jobs(std::string_view text);
// "worker-[0-2,5],login-0" one by one. Invalid: not a host list, or more than 65,536 names.
Result<std::vector<std::string>> expand_hosts(std::string_view list);

// Slurm has nothing running there and gives out nothing.
bool is_empty(const NodeRecord& node, const std::vector<JobRecord>& jobs);
bool reason_is_ours(std::string_view reason);

// The commands nodes, drain, undrain, forget, requeue and cancel.
bool is_node_command(std::string_view command);
// Exit status 0: done, or it was so already. 1: Slurm did not answer, or refused: stderr says what. 2: usage. 3: the node is not as the command supposes; nothing was done.
int run_node_command(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
