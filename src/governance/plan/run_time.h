// SPDX-License-Identifier: Apache-2.0
// How long a workload runs, as far as its objects tell: declared by its user, or limited. Pure. docs/design/032-foresee.md.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kube/json.h"

namespace fairlead::governance {

inline constexpr const char *kCheckpointEvery = "fairlead.dev/checkpoint-every", *kCheckpointedAt = "fairlead.dev/checkpointed-at";  // of a Job, a pod or a Workload: "30m"; a time
inline constexpr const char* kRunTime = "fairlead.dev/run-time";  // annotation of a Job, a pod or a Workload: "2h30m"
inline constexpr const char* kTimeLimit = "fairlead.dev/time-limit";  // annotation of a Workload, by who made it: at most so long; seconds: "3600s"

// An interval of time; no end: nobody knows.
struct Span {
  std::chrono::seconds least{0};
  std::optional<std::chrono::seconds> most;
  friend bool operator==(const Span&, const Span&) = default;
};

struct RunTime {
  std::optional<std::chrono::seconds> declared, limit;
  std::string from;     // the fields that tell, as people know them: "fairlead.dev/run-time 2h, activeDeadlineSeconds 9000"; empty: none does
  std::string problem;  // what of it cannot be read
};
// `job`: the Job it belongs to; null: none, or it is not known.
RunTime run_time_of(const kube::Json& workload, const kube::Json& job);

// Label kueue.x-k8s.io/max-exec-time-seconds of a Job or pod; none: it has none, or `problem` says what is wrong with it.
std::optional<std::int64_t> max_execution_seconds(const kube::Json& owner, std::string& problem);

// The Workload with this limit, or without one where that is 0 or less. True: it was another.
bool put_time_limit(kube::Json& workload, std::int64_t seconds);

// What annotations say of checkpoints; what cannot be read is not said.
void read_checkpoints(const kube::Json& annotations, std::optional<std::chrono::seconds>& every, std::optional<Instant>& at);
// When it last saved its work, of one that has run since `started`: what it says, if that is not in the future, or as often as it says; or its start.
Instant last_saved(Instant started, std::optional<std::chrono::seconds> every, std::optional<Instant> at, Instant now);

Span whole(const RunTime& time);                                 // of one that has not begun
Span left(const RunTime& time, std::chrono::nanoseconds since);  // of one that runs since then

}  // namespace fairlead::governance
