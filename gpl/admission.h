// SPDX-License-Identifier: GPL-3.0-or-later
// Jobs of a cluster whose quotas are kept by Fairlead (docs/design/033-slurm-jobs-in-the-ledger.md): what there is, for who decides, and the steps that carry a decision out. That jobs are held when they are submitted is the matter
// of durable/admission.cpp.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "nodes.h"

namespace fairlead::companion {

struct GovernedJob {
  std::string id;       // "7", "7_3": one task of an array; of several components, that of the first
  std::string state;    // in Slurm's words; of several components that of the one that is furthest from waiting
  std::string reason, user, account, comment;  // comment: AdminComment
  std::int64_t priority = 0;                    // 0: held; what Slurm says as reason may be something else then (a dependency, a begin time)
  bool depends = false;                         // waits for other jobs
  std::int64_t limit_seconds = 0;               // at most so long it runs; of several components the longest; 0: no end, or it is not known yet
  bool held_by_user() const { return state == "PENDING" && priority == 0 && reason == "JobHeldUser"; }
  bool held() const { return state == "PENDING" && priority == 0 && !held_by_user(); }
  struct Part {
    int nodes = 1;
    Room room;          // in all
  };
  std::vector<Part> parts;  // components, in order
};

inline constexpr const char* kGovernedFormat = "%i|%T|%r|%D|%C|%Q|%E|%u|%l|%a";  // behind a word that nobody can know; the account may be any text, lines included
// Output of `squeue -h -a -r -S i` with -o WORD+kGovernedFormat, and with -O kGovernedRoom. A job that only one of them has is left out: it came or went in between. Invalid: a line was not understood, so the answer as a whole is unknown.
inline constexpr std::size_t kCommentAt = 548, kCommentWidth = 220;
std::string governed_room();  // the argument of -O
// A time limit in Slurm's words: "5:00", "1:00:00", "2-00:00:00", in seconds; 0 of all others (UNLIMITED, Partition_Limit, INVALID).
std::int64_t read_time_limit(std::string_view text);
Result<std::vector<GovernedJob>> read_governed(std::string_view jobs, std::string_view rooms, std::string_view word);

// queue-look [--of JOB,JOB...] prints the jobs that are not over, and those of the list that Slurm still knows. queue-hold JOB | queue-release JOB: as an administrator; who is not held that way is not released. queue-requeue JOB: held, then back
// in the queue; cancelled where Slurm cannot put it back. queue-comment JOB TEXT: for its user to read. Exit status as in nodes.h; all may be repeated.
bool is_admission_command(std::string_view command);
int run_admission_command(const std::vector<std::string>& arguments);

}  // namespace fairlead::companion
