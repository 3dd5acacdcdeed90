// SPDX-License-Identifier: Apache-2.0
// What Slurm knows of its nodes and jobs, as `fairlead-slurm nodes` prints it inside the head.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fairlead::slurm {

// CPUs, MiB of memory, GPUs.
struct SlurmRoom {
  std::int64_t cpus = 0, memory = 0, gpus = 0;
  friend bool operator==(const SlurmRoom&, const SlurmRoom&) = default;
};
struct SlurmNode {
  std::string name;
  std::vector<std::string> state;  // base state first (IDLE, MIXED, ALLOCATED, DOWN, ...), then flags (DRAIN, COMPLETING, NOT_RESPONDING, ...)
  int cpus = 0;                    // given out to jobs
  std::string reason, by, since;   // why it is drained or down, who said so, and when; since as it is written, to be compared with itself only
  bool answers = false;            // a slurmd takes connections at the record's address; asked for nodes with a drain of ours only
  std::string pod, machine;        // whose slurmd it is: UID and Node, as the worker itself wrote it (gpl/mark.h); empty: not known
  SlurmRoom total, given;        // asked for with the queue only
  std::vector<std::string> partitions, features;
  bool has(std::string_view flag) const;
  // Given no new jobs by somebody's will: DRAIN, or FAIL, which people set on hardware that they expect to fail.
  bool drained() const;
  bool failing() const;
};
struct SlurmJob {
  std::string id, user, state;
  std::vector<std::string> nodes, requested;  // where it is; nodes it insists on
  std::optional<Instant> end;                 // none: nobody knows
};
// A job that waits, or several tasks of an array that do ("7_[0-3]").
struct SlurmQueued {
  std::string id, user, reason, reservation, features;
  int nodes = 1;
  bool exclusive = false;
  SlurmRoom room;  // in all
  std::vector<std::string> partitions, requested, excluded;
};
struct SlurmView {
  Instant at;  // by the head's clock; compared with other looks only
  std::map<std::string, SlurmNode> nodes;
  std::vector<SlurmJob> jobs;
  bool has_queue = false;           // it was asked for, and the companion knows how to tell
  std::vector<SlurmQueued> queue;   // the first of the jobs that wait, in Slurm's order
  std::optional<std::uint64_t> state_free, state_size;  // bytes of the volume of Slurm's state; none: the head did not say
  std::vector<const SlurmJob*> jobs_on(const std::string& node) const;
};

// Invalid: not the whole answer of a Slurm that answered. The caller then knows nothing.
Result<SlurmView> read_slurm_view(std::string_view json);

// Nothing runs there and nothing is given out.
bool is_empty(const SlurmView& view, const SlurmNode& node);

}  // namespace fairlead::slurm
