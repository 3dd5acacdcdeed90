// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/forecast.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/eta.h"
#include "governance/plan/explain_lab.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using std::chrono::seconds;
using testing::HasSubstr;
using Place = Books::Place;

// What Lab::work() made was admitted shortly after midnight.
const Instant now = *parse_time("2026-11-22T01:00:00Z");

void annotate(Lab& lab, const std::string& workload, const std::string& time) { lab.at("Workload", workload).child("metadata").child("annotations").set(kRunTime, time); }
void limit(Lab& lab, const std::string& workload, std::int64_t time) { lab.at("Workload", workload).child("spec").set("maximumExecutionTimeSeconds", time); }
Eta ask(const Lab& lab, const std::string& name, const std::vector<Json>& jobs = {}, Instant at = now) {
  auto out = eta(lab.books(), jobs, {"lab", name}, at);
  EXPECT_TRUE(out);
  return out ? std::move(*out) : Eta{};
}
// "600-1200", "600-?", "never": minutes and seconds since midnight do not matter: what was admitted ran for nearly an hour.
std::string range(const Eta& it) {
  if (!it.not_before) return "never";
  return fmt::format("{}-{}", it.not_before->count(), it.not_after ? fmt::format("{}", it.not_after->count()) : "?");
}
std::int64_t ran(const Lab& lab, const std::string& name) {
  const auto books = lab.books();
  return std::chrono::duration_cast<seconds>(now - books.standing({"lab", name})->spec->admitted.since).count();
}

// One queue of 4 whose two jobs have 2 each; a third waits for 2.
Lab full() {
  Lab lab;
  lab.queue("q", "4");
  lab.work("one", "q", "2", 0, "f0"), lab.work("two", "q", "2", 0, "f0"), lab.work("next", "q", "2");
  return lab;
}

TEST(RunTimes, AreReadFromWherePeopleSayThem) {
  const auto time = [](const std::string& workload, const std::string& job) { return run_time_of(kube::parse_yaml(workload)->at(0), kube::parse_yaml(job)->at(0)); };
  EXPECT_EQ(whole(time("{metadata: {name: x}}", "{metadata: {name: x}}")), (Span{seconds(0), std::nullopt}));
  const RunTime all = time("{spec: {maximumExecutionTimeSeconds: 900}}", "{metadata: {annotations: {fairlead.dev/run-time: 10m}}, spec: {activeDeadlineSeconds: 1200}}");
  EXPECT_EQ(whole(all), (Span{seconds(600), seconds(900)}));
  EXPECT_EQ(all.from, "fairlead.dev/run-time 10m, activeDeadlineSeconds 1200, maximumExecutionTimeSeconds 900");
  EXPECT_EQ(left(all, seconds(100)), (Span{seconds(500), seconds(800)}));
  EXPECT_EQ(left(all, seconds(700)), (Span{seconds(0), seconds(200)}));        // what was declared is over
  EXPECT_EQ(left(all, seconds(5000)), (Span{seconds(0), std::nullopt}));       // and so is the limit: nobody knows
  EXPECT_EQ(left(all, -seconds(50)), (Span{seconds(600), seconds(900)}));      // clocks differ
  EXPECT_EQ(whole(time("{}", "{metadata: {labels: {kueue.x-k8s.io/max-exec-time-seconds: '30'}}}")), (Span{seconds(0), seconds(30)}));
  EXPECT_EQ(whole(time("{}", "{metadata: {annotations: {fairlead.dev/run-time: 1h}}}")), (Span{seconds(3600), seconds(3600)}));
  EXPECT_EQ(whole(time("{}", "{metadata: {annotations: {fairlead.dev/run-time: 1h}}, spec: {activeDeadlineSeconds: 60}}")), (Span{seconds(60), seconds(60)}));
  EXPECT_THAT(time("{}", "{metadata: {annotations: {fairlead.dev/run-time: soon}}}").problem, HasSubstr("\"soon\" is no duration"));
  EXPECT_THAT(time("{}", "{metadata: {labels: {kueue.x-k8s.io/max-exec-time-seconds: 1h}}}").problem, HasSubstr("no number of seconds"));
  EXPECT_EQ(whole(time("{metadata: {annotations: {fairlead.dev/time-limit: 3600s}}}", "{}")), (Span{seconds(0), seconds(3600)}));
  EXPECT_EQ(time("{metadata: {annotations: {fairlead.dev/time-limit: 3600s}}}", "{}").from, "time limit 3600");
  EXPECT_EQ(whole(time("{metadata: {annotations: {fairlead.dev/time-limit: soon}}}", "{}")), (Span{seconds(0), std::nullopt}));
  EXPECT_EQ(whole(time("{}", "{spec: {activeDeadlineSeconds: -3}}")), (Span{seconds(0), std::nullopt}));
  EXPECT_EQ(whole(time("{spec: {maximumExecutionTimeSeconds: 9223372036854775807}}", "{}")).most, seconds(10LL * 366 * 86'400));
}

// A Job makes another pod when one has come to its deadline; a pod alone is over.
TEST(RunTimes, APodAloneEndsWithItsDeadline) {
  const auto time = [](const char* owner) {
    return whole(run_time_of(kube::parse_yaml(fmt::format("{{metadata: {{ownerReferences: [{{kind: {}, controller: true}}]}}, spec: {{podSets: [{{template: {{spec: {{activeDeadlineSeconds: 60}}}}}}]}}}}", owner))->at(0), {}));
  };
  EXPECT_EQ(time("Pod"), (Span{seconds(0), seconds(60)}));
  EXPECT_EQ(time("Job"), (Span{seconds(0), std::nullopt}));
}

TEST(Eta, WithoutAnyTimeItIsUnknown) {
  const Eta it = ask(full(), "next");
  EXPECT_EQ(range(it), "0-?");
  EXPECT_EQ(it.position, 1);
  EXPECT_EQ(it.unknown, 2U);
  ASSERT_EQ(it.others.size(), 2U);
  EXPECT_FALSE(it.others[0].time.most);
}

TEST(Eta, DeclaredTimesGiveANumber) {
  Lab lab = full();
  annotate(lab, "one", "2h"), annotate(lab, "two", "3h");
  EXPECT_EQ(range(ask(lab, "next")), fmt::format("{}-{}", 7200 - ran(lab, "one"), 7200 - ran(lab, "one")));
}

TEST(Eta, ALimitGivesAnEndOfTheRangeAlone) {
  Lab lab = full();
  limit(lab, "one", 7200), limit(lab, "two", 10800);
  EXPECT_EQ(range(ask(lab, "next")), fmt::format("0-{}", 7200 - ran(lab, "one")));
}

TEST(Eta, OneKnownEndThatIsEnoughClosesTheRange) {
  Lab lab = full();
  annotate(lab, "one", "2h");  // nobody knows of the other, which may end sooner
  EXPECT_EQ(range(ask(lab, "next")), fmt::format("0-{}", 7200 - ran(lab, "one")));
}

TEST(Eta, OneUnknownThatIsNeededLeavesItOpen) {
  Lab lab = full();
  lab.queue("q", "4", "", "", "pool", "", "{withinClusterQueue: Never, reclaimWithinCohort: Never}");
  lab.work("wide", "q", "4", 1);
  annotate(lab, "one", "2h");
  EXPECT_EQ(range(ask(lab, "wide")), fmt::format("{}-?", 7200 - ran(lab, "one")));
}

TEST(Eta, ThoseBeforeItRunFirst) {
  Lab lab = full();
  lab.work("last", "q", "4");  // needs all, behind `next`
  annotate(lab, "one", "2h"), annotate(lab, "two", "2h"), annotate(lab, "next", "10m");
  const Eta it = ask(lab, "last");
  const std::int64_t first = 7200 - ran(lab, "one"), second = 7200 - ran(lab, "two");
  EXPECT_EQ(range(it), fmt::format("{0}-{0}", std::max(std::min(first, second) + 600, std::max(first, second))));
  ASSERT_EQ(it.others.size(), 3U);
  EXPECT_FALSE(it.others[2].runs);
}

TEST(Eta, WhatNeverFitsNeverStarts) {
  Lab lab = full();
  lab.work("huge", "q", "40");
  const Eta it = ask(lab, "huge");
  EXPECT_EQ(range(it), "never");
  EXPECT_THAT(it.waits_for, HasSubstr("never fits"));
}

TEST(Eta, OfOneThatRunsItsEnd) {
  Lab lab = full();
  EXPECT_EQ(range(ask(lab, "one")), "0-?");
  annotate(lab, "one", "2h");
  const Eta it = ask(lab, "one");
  EXPECT_EQ(range(it), fmt::format("{0}-{0}", 7200 - ran(lab, "one")));
  EXPECT_EQ(it.from, "fairlead.dev/run-time 2h");
  const Json json = to_json(it, now);
  EXPECT_EQ(json["state"].string(), "Running");
  EXPECT_EQ(json["ends"]["notAfter"].string(), print_time(now + *it.not_after));
}

TEST(Eta, WhoTakesFromOthersStartsAtOnceAndTheyRunAnew) {
  Lab lab = full();
  annotate(lab, "one", "2h"), annotate(lab, "two", "2h");
  lab.work("urgent", "q", "2", 5);
  EXPECT_EQ(range(ask(lab, "urgent")), "0-0");
  // Its victim stands before `next`: by age. How long the urgent one runs is unknown, but the other running one ends.
  const Eta it = ask(lab, "next");
  EXPECT_EQ(it.place, Place::Waiting);
  EXPECT_TRUE(it.not_before);
}

TEST(Eta, JobsTellTimesOfTheirWorkloads) {
  Lab lab = full();
  for (const char* name : {"one", "two"})
    lab.at("Workload", name).child("metadata").set("ownerReferences", Json::array({Json::object({{"kind", "Job"}, {"name", name}, {"uid", std::string("j-") + name}, {"controller", true}})}));
  const auto job = [](const std::string& name, const std::string& spec, const std::string& start) { return kube::parse_yaml(fmt::format("{{kind: Job, metadata: {{name: {0}, namespace: lab, uid: j-{0}}}, spec: {{{1}}}, status: {{startTime: '{2}'}}}}", name, spec, start))->at(0); };
  const Eta it = ask(lab, "next", {job("one", "activeDeadlineSeconds: 1800", "2026-11-22T00:45:00Z"), job("two", "activeDeadlineSeconds: 7200", "2026-11-22T00:45:00Z")});
  EXPECT_EQ(range(it), "0-900");
  EXPECT_EQ(it.unknown, 0U);
  EXPECT_EQ(it.others[0].from, "activeDeadlineSeconds 1800");
}

TEST(Eta, WhatStandsInNoLineHasNone) {
  Lab lab = full();
  lab.work("lost", "nowhere", "1");
  const Eta it = ask(lab, "lost");
  EXPECT_EQ(it.place, Place::Out);
  EXPECT_FALSE(to_json(it, now).has("starts"));
  EXPECT_FALSE(eta(lab.books(), {}, {"lab", "none"}, now));
}

// Random sites with random knowledge: equal answers twice; where all is known the range is closed for all that can start, and holds the starts of runs with the same ends; what nobody ends is never given a bound that needs its end.
TEST(EtaProperty, RangesHoldAndNothingIsInvented) {
  const Instant soon_after = *parse_time("2025-12-18T00:30:00Z");  // Lab::random() admits at midnight
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(150, 10'000); ++seed) {
    Lab lab = Lab::random(seed);
    Rng rng(seed);
    const bool all_known = seed % 2 == 0;
    std::vector<std::string> names;
    for (const Json& object : lab.objects())
      if (object["kind"].string() == "Workload") names.push_back(kube::name_of(object));
    for (const std::string& name : names) {
      const std::int64_t most = 4'000 + static_cast<std::int64_t>(rng.below(5'000));
      if (all_known || rng.below(2) == 0) limit(lab, name, most);
      if (rng.below(2) == 0) annotate(lab, name, fmt::format("{}s", most - static_cast<std::int64_t>(rng.below(300))));
    }
    const Books books = lab.books();
    for (const std::string& name : names) {
      const auto it = eta(books, {}, {"lab", name}, soon_after), again = eta(books, {}, {"lab", name}, soon_after);
      ASSERT_TRUE(it);
      EXPECT_EQ(kube::print_json(to_json(*it, soon_after)), kube::print_json(to_json(*again, soon_after))) << "seed " << seed;
      if (it->place == Place::Out) continue;
      if (it->not_before && it->not_after) { EXPECT_LE(*it->not_before, *it->not_after) << "seed " << seed; }
      if (all_known && it->place != Place::Running && it->not_before) { EXPECT_TRUE(it->not_after) << "seed " << seed << ' ' << name << '\n' << lab.text(); }
    }
  }
}

// In a forecast of everything, quota is never exceeded: what it says starts is what the engine started, and all that fits alone starts once all ends are known.
TEST(ForecastProperty, AllThatFitsStartsWhenAllEnd) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(200, 10'000); ++seed) {
    const Lab lab = Lab::random(seed);
    const Books books = lab.books();
    ContinuousEngine engine(books.engine());
    Rng rng(seed);
    std::vector<ForecastJob> jobs;
    std::vector<ObjectKey> keys;
    for (const ObjectKey& key : books.workloads()) {
      const auto standing = books.standing(key);
      if (standing->place == Place::Out) continue;
      const seconds time(1 + rng.below(1'000));
      ForecastJob job{.job = standing->job, .created = standing->spec->created.time_since_epoch().count(), .left = {time, time}, .again = {time, time}, .asks = {}};
      if (const auto asks = books.asks_of(key)) job.asks = engine.define(*asks);
      jobs.push_back(std::move(job)), keys.push_back(key);
    }
    const auto soon = forecast(engine, jobs, {.ends = Ends::Soonest, .seed = 0}).starts, late = forecast(engine, jobs, {.ends = Ends::Latest, .seed = 0}).starts;
    EXPECT_EQ(soon, late) << "seed " << seed;  // intervals without a width
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const auto standing = books.standing(keys[i]);
      if (standing->place == Place::Running) { EXPECT_EQ(soon[i], 0) << "seed " << seed; }
      // In a StrictFIFO queue it may stand behind one that never fits.
      if (standing->place != Place::Waiting || books.queue_view(standing->queue)->spec->strict_fifo) continue;
      const auto rule = engine.wait(standing->class_id).rule;
      if (rule == EngineWait::Rule::Short) { EXPECT_TRUE(soon[i]) << "seed " << seed << ' ' << keys[i].name << '\n' << lab.text(); }
      if (rule == EngineWait::Rule::ExceedsMax) { EXPECT_FALSE(soon[i]) << "seed " << seed << ' ' << keys[i].name; }
    }
  }
}

}  // namespace
}  // namespace fairlead::governance
