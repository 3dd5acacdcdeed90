// SPDX-License-Identifier: Apache-2.0
// The engine run forward: jobs end, what follows is decided, what starts ends in its turn. On a fork; equal input gives equal output. docs/design/032-foresee.md.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "governance/plan/engine.h"
#include "governance/plan/run_time.h"

namespace fairlead::governance {

struct ForecastJob {
  JobId job = 0;                // of the engine
  std::int64_t created = 0;     // as it was submitted
  Span left;                    // until it ends: of one that holds quota from now on, else from its start
  Span again;                   // until it ends once it has been pre-empted and starts anew
  std::optional<ClassId> asks;  // what it asks then; none: it does not come back
};

struct QuotasAhead {
  std::int64_t at = 0;  // seconds from now
  EngineSpec spec;
};

enum class Ends : std::uint8_t { Soonest, Latest, Mixed };  // each at the begin of its interval, at the end, or by chance at one of them
struct ForecastRun {
  Ends ends = Ends::Soonest;
  std::uint64_t seed = 0;  // of Mixed
};

struct Forecast {
  std::vector<std::optional<std::int64_t>> starts;
  bool gave_up = false;  // jobs went on stopping one another: what did not start might
};

// When each of `jobs` starts, in seconds from now; those that run: 0; of one that is being stopped, when it starts anew; none: not in this run. With `until`, the run ends when that one (an index) has started.
// `ahead`: quotas that change by the clock, by time. O(decisions) beside a copy of the engine. A job that ends stops at once, and so does one that is pre-empted.
Forecast forecast(const ContinuousEngine& engine, const std::vector<ForecastJob>& jobs, ForecastRun run, std::optional<std::size_t> until = std::nullopt,
                  const std::vector<QuotasAhead>& ahead = {});

}  // namespace fairlead::governance
