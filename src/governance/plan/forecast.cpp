// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/forecast.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "base/rng.h"

namespace fairlead::governance {

namespace {

constexpr std::size_t nobody = ~std::size_t{0};

class Run {
 public:
  Run(const ContinuousEngine& engine, const std::vector<ForecastJob>& jobs, ForecastRun how, std::optional<std::size_t> until, const std::vector<QuotasAhead>& ahead)
      : engine_(engine), jobs_(jobs), ahead_(ahead), how_(how), until_(until), rng_(how.seed), starts_(jobs.size()), states_(jobs.size()) {
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      bind(jobs[i].job, i);
      states_[i].job = jobs[i].job;
    }
  }

  Forecast go() {
    // What is being stopped is gone; what runs will end.
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (engine_.running(jobs_[i].job)) {
        starts_[i] = 0;
        begin(i);
      } else if (engine_.stopping(jobs_[i].job)) {
        requeue(i);
      }
    }
    if (how_.ends == Ends::Soonest) engine_.expose_all();  // how long they are nobody's victims yet is not known here
    decide();
    while (!over() && (!ends_.empty() || changed_ < ahead_.size())) {
      const bool change = changed_ < ahead_.size() && (ends_.empty() || ahead_[changed_].at <= std::get<0>(ends_.top()));
      now_ = change ? std::max(now_, ahead_[changed_].at) : std::get<0>(ends_.top());
      if (change) engine_.configure(ahead_[changed_++].spec);
      // All that ends in this second, then what follows.
      while (!ends_.empty() && std::get<0>(ends_.top()) == now_) {
        const auto [at, i, turn] = ends_.top();
        ends_.pop();
        if (states_[i].turn != turn) continue;  // it was stopped meanwhile
        ++states_[i].turn;
        leave(i);
      }
      decide();
    }
    return {.starts = std::move(starts_), .gave_up = exhausted()};
  }

 private:
  struct JobState {
    JobId job = 0;
    std::uint32_t turn = 0;  // moves when it ends or is stopped
    bool was_stopped = false;
  };

  bool exhausted() const { return steps_ > 20 * jobs_.size() + 1'000; }
  bool over() const { return exhausted() || (until_ && starts_[*until_]); }
  void bind(JobId job, std::size_t i) {
    if (index_.size() <= job) index_.resize(job + 1, nobody);
    index_[job] = i;
  }
  void leave(std::size_t i) {
    engine_.leave(states_[i].job);
    index_[states_[i].job] = nobody;
  }
  void begin(std::size_t i) {
    ++steps_;
    const Span& span = states_[i].was_stopped ? jobs_[i].again : jobs_[i].left;
    const bool soon = how_.ends == Ends::Soonest || (how_.ends == Ends::Mixed && rng_.below(2) == 0);
    if (soon) ends_.emplace(now_ + span.least.count(), i, states_[i].turn);
    else if (span.most) ends_.emplace(now_ + span.most->count(), i, states_[i].turn);
  }
  void requeue(std::size_t i) {
    ++steps_;
    ++states_[i].turn;
    states_[i].was_stopped = true;
    const Uid uid = engine_.uid(states_[i].job);
    leave(i);
    if (!jobs_[i].asks) return;
    states_[i].job = engine_.submit(*jobs_[i].asks, uid, jobs_[i].created);
    bind(states_[i].job, i);
  }
  void decide() {
    while (!over()) {
      decisions_.clear();
      engine_.drain(decisions_);
      if (decisions_.empty()) return;
      std::vector<std::size_t> stopped;
      for (const EngineDecision& decision : decisions_) {
        if (decision.kind == EngineDecision::Kind::Waits || decision.kind == EngineDecision::Kind::Promised) continue;
        const std::size_t i = decision.job < index_.size() ? index_[decision.job] : nobody;
        if (i == nobody) continue;
        if (decision.kind == EngineDecision::Kind::Preempted) {
          stopped.push_back(i);
        } else {
          if (!starts_[i]) starts_[i] = now_;
          begin(i);
        }
      }
      for (const std::size_t i : stopped) requeue(i);
    }
  }

  ContinuousEngine engine_;
  const std::vector<ForecastJob>& jobs_;
  const std::vector<QuotasAhead>& ahead_;
  std::size_t changed_ = 0;  // of those
  const ForecastRun how_;
  const std::optional<std::size_t> until_;
  Rng rng_;
  std::vector<std::optional<std::int64_t>> starts_;
  std::vector<JobState> states_;
  std::vector<std::size_t> index_;  // by JobId
  using End = std::tuple<std::int64_t, std::size_t, std::uint32_t>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::vector<EngineDecision> decisions_;
  std::int64_t now_ = 0;
  std::size_t steps_ = 0;
};

}  // namespace

Forecast forecast(const ContinuousEngine& engine, const std::vector<ForecastJob>& jobs, ForecastRun run, std::optional<std::size_t> until, const std::vector<QuotasAhead>& ahead) {
  return Run(engine, jobs, run, until, ahead).go();
}

}  // namespace fairlead::governance
