// SPDX-License-Identifier: GPL-3.0-or-later
// What Slurm knows of its nodes and of the jobs on them, for the operator that takes workers away and brings them back (docs/design/006).
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

// CPUs, MiB of memory, GPUs: what decides whether a job fits (docs/design/016).
struct Room {
  std::int64_t cpus = 0, memory = 0, gpus = 0;
};

struct NodeRecord {
  std::string name;
  std::vector<std::string> state;  // base state, then flags, in Slurm's words: IDLE, DRAIN, ...; '*' becomes NOT_RESPONDING
  int cpus_given = 0;              // CPUAlloc
  std::string address;             // NodeAddr
  std::string started;             // SlurmdStartTime (UTC, RFC 3339), by the worker's clock; empty: no slurmd has registered
  std::string reason, by, since;   // who set it, when (UTC); empty: none
  std::string extra;               // Extra, which nobody but us writes (gpl/mark.h)
  Room total, given;               // what it has, and what of it jobs have
  std::vector<std::string> partitions, features;
  bool has(std::string_view flag) const;
};

struct JobRecord {
  std::string id;  // as squeue's %i: "7", "7_3"; the only form that names one task of an array
  std::string user, state;
  std::vector<std::string> nodes, requested;  // where it is; nodes it insists on
  std::string end;                            // in UTC as RFC 3339, empty: none is set
};

// A job that waits, with what it asks for in all; in the order of Slurm's queue.
struct QueuedJob {
  std::string id;  // as squeue's %i: of an array, all tasks that wait are one line ("7_[0-3%2]")
  std::string user, reason, reservation, features;
  int nodes = 0;
  bool exclusive = false;  // shares its nodes with nobody
  Room room;
  std::vector<std::string> partitions, requested, excluded;
};

inline constexpr const char* kQueueFormat = "%i|%D|%C|%u|%P|%n|%x|%v|%h|%r|%f";  // what read_queue reads first
inline constexpr const char* kQueueRoom = "JobArrayID:128,tres-alloc:160,tres-per-node:80,tres-per-job:80,tres-per-task:80,NumTasks:20";  // and then, in columns of these widths; a TRES of GPUs is known only where accounting runs
inline constexpr const char* kJobFormat = "%i|%T|%N|%n|%e|%u";  // what read_jobs reads

// One of Slurm's tools, with times in UTC. Unavailable: no slurmctld answered. Conflict: it refused. Exhausted: the answer is longer than is read (32 MiB).
Result<std::string> ask_slurm(std::vector<std::string> argv);
struct SlurmLook {
  std::vector<NodeRecord> nodes;
  std::vector<JobRecord> jobs;
};
// All nodes and jobs, now. Errors as above; Invalid: the answer was not understood.
Result<SlurmLook> look_at_slurm();
// The value of KEY= in a line of KEY=VALUE, as `scontrol -o` prints them; the first one counts, since free text comes last.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key);

// Output of `scontrol -o show nodes` and of `squeue -h -a -o kJobFormat`, both with TZ=UTC. Invalid: a line was not understood, so the answer as a whole is unknown.
Result<std::vector<NodeRecord>> read_nodes(std::string_view text);
Result<std::vector<JobRecord>> read_jobs(std::string_view text);
// Output of `squeue -h -a -t PENDING -S -p,i` with -o kQueueFormat and with -O kQueueRoom. A job that only one of them has is left out: it came or began in between. Invalid as above.
Result<std::vector<QueuedJob>> read_queue(std::string_view jobs, std::string_view rooms);
// What jobs ask for in all, by squeue's JobArrayID, of the output of -O kQueueRoom.
struct AskedRoom {
  Room room;
  std::int64_t gpus_per_node = 0;
  Room of(int nodes) const { return {room.cpus, room.memory, std::max(room.gpus, gpus_per_node * nodes)}; }
};
Result<std::map<std::string, AskedRoom>> read_rooms(std::string_view rooms);
// "cpu=4,mem=2G,node=1,gres/gpu=2". Nothing: not understood.
std::optional<Room> read_tres(std::string_view text);
// "worker-[0-2,5],login-0" one by one. Invalid: not a host list, or more than 65,536 names.
Result<std::vector<std::string>> expand_hosts(std::string_view list);

// Slurm has nothing running there and gives out nothing.
bool is_empty(const NodeRecord& node, const std::vector<JobRecord>& jobs);
bool reason_is_ours(std::string_view reason);
// With what a node that is not drained is to be drained: `wanted`, but whoever set a node DOWN with a reason keeps that reason, and the drain is then not ours.
std::string reason_of_drain(const NodeRecord& node, const std::string& wanted);
inline constexpr std::string_view kDied = "fairlead: the worker";  // begins the reason of a node that we set DOWN
// With what a node is set DOWN whose processes are gone, so that Slurm gives up the jobs that died with it: `ours`, but a node that is drained, failing or set DOWN by somebody keeps its reason: it says whose doing that is.
std::string reason_of_death(const NodeRecord& node, const std::string& ours);

// Of what Slurm's tools print: no slurmctld answered, or one that does not serve. Everything else is its answer.
bool says_no_answer(std::string_view text);

// JSON for the operator: a string of printable ASCII, in which anything else is '?'; a list of such.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, const std::vector<std::string>& list);

// The commands nodes, drain, undrain, lift, forget, expect, requeue and cancel. `lift NODE REASON` puts a node in service again that is out of it, whoever did that, for exactly this reason. `nodes --nodes LIST` prints all nodes, but only the jobs that run on those of the list or insist on them; with `--queue N` also the first N jobs that
// wait. `expect NODE DEFINITION` makes the record of a worker that is not there, DOWN, so that jobs may wait for it; one that is there and serves or has jobs is left alone.
bool is_node_command(std::string_view command);
// Exit status 0: done, or it was so already. 1: Slurm refused: stderr says what. 2: usage. 3: the node is not as the command supposes; nothing was done. 4: Slurm did not answer, or not to its end: what was done is
// unknown, and a look gave nothing.
int run_node_command(const std::vector<std::string>& arguments);
inline constexpr int kNoAnswer = 4;
// What such commands print to stderr and return: 3; 1 or 4; and, of what is told to Slurm, 0.
int not_as_supposed(const std::string& why);
int slurm_failed(const Error& error);
int tell_slurm(std::vector<std::string> argv);

}  // namespace fairlead::companion
