// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/run_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/slurm_container.h"
#include "kube/object.h"

namespace fairlead::governance {

using kube::Json;
using std::chrono::seconds;

namespace {

constexpr const char* kMaxTime = "kueue.x-k8s.io/max-exec-time-seconds";
constexpr std::int64_t longest = 10LL * 366 * 86'400;  // ten years: beyond it nothing is said

std::optional<seconds> positive(std::int64_t value) { return value > 0 ? std::optional(seconds(std::min(value, longest))) : std::nullopt; }

}  // namespace

std::optional<std::int64_t> max_execution_seconds(const Json& owner, std::string& problem) {
  const std::string& label = owner["metadata"]["labels"][kMaxTime].string();
  if (label.empty()) return std::nullopt;
  std::int32_t value = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
  if (error == std::errc{} && end == label.data() + label.size() && value > 0) return value;
  problem = fmt::format("label {}: \"{}\" is no number of seconds", kMaxTime, label.substr(0, 40));
  return std::nullopt;
}

RunTime run_time_of(const Json& workload, const Json& job) {
  RunTime out;
  const auto tell = [&](const std::string& what) { out.from += (out.from.empty() ? "" : ", ") + what; };
  for (const Json* const object : {&job, &workload}) {
    const Json& text = (*object)["metadata"]["annotations"][kRunTime];
    if (text.is_null()) continue;
    if (const auto read = api::read_duration(text.string()); read && *read > seconds(0)) {
      out.declared = *read;
      tell(fmt::format("{} {}", kRunTime, text.string()));
    } else {
      out.problem = fmt::format("annotation {}: \"{}\" is no duration such as 90s, 45m or 2h30m", kRunTime, text.string().substr(0, 40));
    }
    break;
  }
  const auto limit = [&](std::optional<seconds> value, const char* field) {
    if (!value) return;
    if (!out.limit || *value < *out.limit) out.limit = value;
    tell(fmt::format("{} {}", field, value->count()));
  };
  limit(positive(job["spec"]["activeDeadlineSeconds"].integer()), "activeDeadlineSeconds");
  if (const auto read = api::read_duration(workload["metadata"]["annotations"][kTimeLimit].string())) limit(positive(read->count()), "time limit");
  // A pod alone ends with its deadline; a Job may make another, and so may whoever made a group.
  const Json* owner = kube::controller_of(workload);
  if (const auto& sets = workload["spec"]["podSets"].items(); owner != nullptr && (*owner)["kind"].string() == "Pod" && sets.size() == 1)
    limit(positive(sets.front()["template"]["spec"]["activeDeadlineSeconds"].integer()), "activeDeadlineSeconds");
  if (const auto told = positive(workload["spec"]["maximumExecutionTimeSeconds"].integer())) {
    limit(told, "maximumExecutionTimeSeconds");
  } else {
    std::string problem;
    if (const auto seconds_of = max_execution_seconds(job, problem)) limit(positive(*seconds_of), kMaxTime);
    if (out.problem.empty()) out.problem = std::move(problem);
  }
  return out;
}

bool put_time_limit(Json& workload, std::int64_t most) {
  const std::string wanted = most > 0 ? fmt::format("{}s", std::min(most, longest)) : "";
  if (workload["metadata"]["annotations"][kTimeLimit].string() == wanted) return false;
  if (!wanted.empty()) workload.child("metadata").child("annotations").set(kTimeLimit, wanted);
  else workload.child("metadata").child("annotations").erase(kTimeLimit);
  return true;
}

void read_checkpoints(const Json& annotations, std::optional<seconds>& every, std::optional<Instant>& at) {
  every.reset(), at.reset();
  if (const std::string& text = annotations[kCheckpointEvery].string(); !text.empty())
    if (const auto read = api::read_duration(text); read && *read > seconds(0)) every = *read;
  if (const std::string& text = annotations[kCheckpointedAt].string(); !text.empty())
    if (const auto read = parse_time(text)) at = *read;
}

Instant last_saved(Instant started, std::optional<seconds> every, std::optional<Instant> at, Instant now) {
  Instant out = started;
  if (every && now > started) out = started + (now - started) / *every * *every;
  if (at && *at <= now) out = std::max(out, *at);
  return out;
}

Span whole(const RunTime& time) {
  Span out{.least = time.declared.value_or(seconds(0)), .most = time.limit ? time.limit : time.declared};
  if (out.most && out.least > *out.most) out.least = *out.most;
  return out;
}

Span left(const RunTime& time, std::chrono::nanoseconds since) {
  const seconds ran = std::chrono::duration_cast<seconds>(std::max(since, std::chrono::nanoseconds(0)));
  // A time that is over told nothing.
  const auto rest = [&](const std::optional<seconds>& of) { return of && *of > ran ? std::optional(*of - ran) : std::nullopt; };
  return whole({.declared = rest(time.declared), .limit = rest(time.limit), .from = {}, .problem = {}});
}

}  // namespace fairlead::governance
