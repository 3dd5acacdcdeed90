// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/eta.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "governance/plan/forecast.h"
#include "governance/plan/views.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using Place = Books::Place;
using std::chrono::seconds;

namespace {

constexpr std::size_t most_named = 20, most_changes_ahead = 64;
constexpr std::chrono::days kAhead{10};
constexpr std::uint64_t mixed_runs = 6;

// Since when it runs: as its Job says (it may have waited for nodes), else since its quota was reserved.
Instant running_since(const WorkloadSpec& spec, const Json& job) {
  if (const auto start = parse_time(job["status"]["startTime"].string()); start && !job["spec"]["suspend"].boolean()) return *start;
  return spec.admitted.is ? spec.admitted.since : spec.reserved.since;
}

struct Known {
  ObjectKey key;
  Books::Standing standing;
  RunTime time;
  Span left;
};

std::vector<Known> known_of(const Books& books, const std::vector<Json>& jobs, Instant now) {
  std::map<std::string, const Json*> by_uid;
  for (const Json& job : jobs) by_uid[kube::uid_of(job)] = &job;
  std::vector<Known> out;
  const Json none;
  for (const ObjectKey& key : books.workloads()) {
    auto standing = books.standing(key);
    if (!standing || standing->place == Place::Out || standing->spec->finished.is) continue;
    const Json* owner = kube::controller_of(standing->object);
    const auto at = owner == nullptr ? by_uid.end() : by_uid.find((*owner)["uid"].string());
    const Json& job = at == by_uid.end() ? none : *at->second;
    Known one{.key = key, .standing = std::move(*standing), .time = {}, .left = {}};
    one.time = run_time_of(one.standing.object, job);
    const bool runs = one.standing.place == Place::Running && one.standing.spec->reserved.is;
    // Who waits for its checks has not begun, and nobody knows when it will.
    if (runs && !one.standing.spec->admitted.is) {
      one.left = whole(one.time);
      one.left.most.reset();
      out.push_back(std::move(one));
      continue;
    }
    one.left = runs ? left(one.time, now - running_since(*one.standing.spec, job)) : whole(one.time);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::optional<Eta> eta(const Books& books, const std::vector<Json>& jobs, const ObjectKey& workload, Instant now) {
  const auto standing = books.standing(workload);
  if (!standing) return std::nullopt;
  Eta out{.workload = workload, .owner = owner_of(standing->object), .queue = standing->queue, .place = standing->place, .finished = standing->spec->finished.is};
  if (out.finished) return out;
  out.reason = standing->reason, out.message = standing->message, out.waits_for = waits_text(books, *standing);
  if (out.place == Place::Out) return out;
  const ContinuousEngine& engine = books.engine();
  const auto line = engine.in_line(standing->queue);
  std::unordered_map<JobId, int> position;
  for (const JobId job : line) position.emplace(job, static_cast<int>(position.size()) + 1);
  const auto position_of = [&](JobId job) {
    const auto at = position.find(job);
    return at == position.end() ? static_cast<int>(line.size()) + 1 : at->second;
  };
  if (position.contains(standing->job)) out.position = position_of(standing->job);

  const std::vector<Known> all = known_of(books, jobs, now);
  std::vector<ForecastJob> forecast_of;
  ContinuousEngine fork(engine);  // knows the classes that they ask for anew, too
  std::size_t target = 0;
  for (const Known& one : all) {
    if (one.key == workload) target = forecast_of.size();
    ForecastJob job{.job = one.standing.job, .created = one.standing.spec->created.time_since_epoch().count(), .left = one.left, .again = whole(one.time), .asks = {}};
    job.again.least = std::min(job.again.least, one.left.least);  // it may go on from a checkpoint
    if (auto asks = books.asks_of(one.key)) job.asks = fork.define(*asks);
    forecast_of.push_back(std::move(job));
  }
  if (out.place == Place::Running) {
    out.not_before = all[target].left.least, out.not_after = all[target].left.most;
    out.from = all[target].time.from, out.problem = all[target].time.problem;
    return out;
  }

  std::vector<QuotasAhead> ahead;
  for (auto& [at, spec] : books.quotas_ahead(now + kAhead, most_changes_ahead)) ahead.push_back({.at = std::max<std::int64_t>(0, std::chrono::ceil<seconds>(at - now).count()), .spec = std::move(spec)});
  bool open = false;
  const auto run = [&](ForecastRun how) {
    const Forecast runs = forecast(fork, forecast_of, how, target, ahead);
    const auto start = runs.starts[target];
    if (!start) {
      open = true;
      if (runs.gave_up) out.settled = false, out.not_before = seconds(0);
      return;
    }
    const seconds at(*start);
    out.not_before = out.not_before ? std::min(*out.not_before, at) : at;
    out.not_after = out.not_after ? std::max(*out.not_after, at) : at;
  };
  run({.ends = Ends::Soonest, .seed = 0});
  run({.ends = Ends::Latest, .seed = 0});
  for (std::uint64_t seed = 1; seed <= mixed_runs; ++seed) run({.ends = Ends::Mixed, .seed = seed});
  if (open) out.not_after.reset();

  // Whose end it may wait for: what runs in its tree, and what is before it in its line.
  const Ledger& ledger = engine.ledger();
  const NodeId leaf = ledger.leaf(standing->queue);
  for (const Known& one : all) {
    if (one.key == workload) continue;
    const NodeId other = ledger.leaf(one.standing.queue);
    const bool holds = one.standing.place == Place::Running && leaf != no_node && other != no_node && ledger.tree(other) == ledger.tree(leaf);
    const bool before = one.standing.queue == standing->queue && position_of(one.standing.job) < position_of(standing->job);
    if (!holds && !before) continue;
    if (!one.left.most) ++out.unknown;
    out.others.push_back({.workload = one.key, .owner = owner_of(one.standing.object), .queue = one.standing.queue, .runs = holds, .time = one.left, .from = one.time.from,
                          .problem = one.time.problem.empty() ? "" : "what it says of how long it runs cannot be read"});  // in no words of its own: it may be another team's
  }
  std::sort(out.others.begin(), out.others.end(), [](const Eta::Other& a, const Eta::Other& b) {
    const auto rank = [](const Eta::Other& one) { return std::tuple(!one.runs, one.time.most.has_value(), one.time.most.value_or(seconds(0)), one.workload); };
    return rank(a) < rank(b);
  });
  if (out.others.size() > most_named) {
    out.more_others = out.others.size() - most_named;
    out.others.resize(most_named);
  }
  return out;
}

Json to_json(const Eta& it, Instant now) {
  Json out = Json::object({{"namespace", it.workload.space}, {"name", it.workload.name}});
  if (!it.owner.empty()) out.set("owner", it.owner);
  out.set("queue", it.queue).set("state", it.finished ? "Finished" : state_text(it.place));
  if (it.position > 0) out.set("position", std::int64_t{it.position});
  if (!it.reason.empty()) out.set("reason", it.reason);
  if (!it.message.empty()) out.set("message", it.message);
  if (!it.waits_for.empty()) out.set("waitsFor", it.waits_for);
  const auto span = [](const Span& time) {
    Json one = Json::object({{"leastSeconds", static_cast<std::int64_t>(time.least.count())}});
    if (time.most) one.set("mostSeconds", static_cast<std::int64_t>(time.most->count()));
    return one;
  };
  const auto range = [&](const char* name) {
    Json one = Json::object();
    if (it.not_before) one.set("notBefore", print_time(now + *it.not_before)).set("notBeforeSeconds", static_cast<std::int64_t>(it.not_before->count()));
    if (it.not_after) one.set("notAfter", print_time(now + *it.not_after)).set("notAfterSeconds", static_cast<std::int64_t>(it.not_after->count()));
    one.set("known", it.not_after.has_value());
    out.set(name, std::move(one));
  };
  if (it.finished || it.place == Place::Out) return out;
  range(it.place == Place::Running ? "ends" : "starts");
  if (it.place != Place::Running) out.set("possible", it.not_before.has_value());
  if (!it.settled) out.set("settled", false);
  if (!it.from.empty()) out.set("from", it.from);
  if (!it.problem.empty()) out.set("problem", it.problem);
  if (it.place == Place::Running) return out;
  Json others = Json::array();
  for (const Eta::Other& one : it.others) {
    Json entry = Json::object({{"namespace", one.workload.space}, {"name", one.workload.name}});
    if (!one.owner.empty()) entry.set("owner", one.owner);
    entry.set("queue", one.queue).set("state", one.runs ? "Running" : "Waiting").set("runs", span(one.time)).set("known", one.time.most.has_value());
    if (!one.from.empty()) entry.set("from", one.from);
    if (!one.problem.empty()) entry.set("problem", one.problem);
    others.push(std::move(entry));
  }
  out.set("dependsOn", std::move(others)).set("unknown", static_cast<std::int64_t>(it.unknown));
  if (it.more_others > 0) out.set("dependsOnMore", static_cast<std::int64_t>(it.more_others));
  return out;
}

}  // namespace fairlead::governance
