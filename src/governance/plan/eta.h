// SPDX-License-Identifier: Apache-2.0
// When a workload starts, as a range; of one that runs, when it ends. Found by running a fork of the engine forward (forecast.h) with what is known of how long jobs run (run_time.h). Pure. docs/design/032-foresee.md.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "governance/plan/books.h"
#include "governance/plan/run_time.h"
#include "kube/json.h"

namespace fairlead::governance {

struct Eta {
  struct Other {  // one whose end it may wait for, or that is before it in its line
    kube::ObjectKey workload;
    std::string owner, queue;
    bool runs = false;
    Span time;         // until its end: of one that runs from now, else from its start
    std::string from;  // which fields tell; empty: none
    std::string problem;
  };
  kube::ObjectKey workload;
  std::string owner, queue;
  Books::Place place = Books::Place::Out;
  bool finished = false;
  int position = 0;  // in the line of its queue; 0: in none
  std::string reason, message, waits_for;
  // From now on until its start; of one that runs until its end. Not before: none: it does not start, whatever ends. Not after: none: unknown.
  std::optional<std::chrono::seconds> not_before, not_after;
  bool settled = true;          // false: jobs would go on stopping one another, and nothing is known of its start
  std::string from, problem;    // of its own run time: of one that runs
  std::vector<Other> others;    // at most 20, those first whose time is unknown
  std::size_t unknown = 0;      // of all others
  std::size_t more_others = 0;  // beyond those
};

// `jobs`: the Jobs of the workloads, as far as they could be read. None: there is no such workload.
std::optional<Eta> eta(const Books& books, const std::vector<kube::Json>& jobs, const kube::ObjectKey& workload, Instant now);
kube::Json to_json(const Eta& answer, Instant now);

}  // namespace fairlead::governance
