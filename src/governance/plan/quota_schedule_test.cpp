// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/quota_schedule.h"

#include <gmock/gmock.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/books_lab.h"
#include "governance/plan/eta.h"
#include "governance/plan/explain.h"
#include "governance/plan/explain_lab.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using testing::HasSubstr;
using namespace std::chrono;

constexpr const char* kNight = R"([{"name":"night","days":["Mon","Tue","Wed","Thu","Fri"],"from":"20:00","to":"06:00","quotas":[{"flavor":"default","resource":"cpu","nominalQuota":8}]},
  {"name":"weekend","days":["Sat","Sun"],"quotas":[{"flavor":"default","resource":"cpu","nominalQuota":"12","borrowingLimit":null}]}])";

Instant when(const char* text) { return *parse_time(text); }
QuotaSchedule read(const std::string& text) {
  auto out = read_quota_schedule(text);
  EXPECT_TRUE(out) << out.error().message;
  return out ? std::move(*out) : QuotaSchedule{};
}
std::string window(const QuotaSchedule& schedule, const char* now) {
  const QuotaWindow* found = window_at(schedule, when(now));
  return found == nullptr ? "" : found->name;
}

TEST(QuotaSchedules, WindowsBeginOnTheirDaysAndMayEndOnTheNext) {
  const QuotaSchedule schedule = read(kNight);  // 2026-11-23 is a Monday
  EXPECT_EQ(window(schedule, "2026-11-23T05:59:59Z"), "");  // Sunday night is the weekend's, which ends at midnight
  EXPECT_EQ(window(schedule, "2026-11-23T12:00:00Z"), "");
  EXPECT_EQ(window(schedule, "2026-11-23T19:59:59Z"), "");
  EXPECT_EQ(window(schedule, "2026-11-23T20:00:00Z"), "night");
  EXPECT_EQ(window(schedule, "2026-11-24T05:59:59Z"), "night");
  EXPECT_EQ(window(schedule, "2026-11-24T06:00:00Z"), "");
  EXPECT_EQ(window(schedule, "2026-11-28T05:00:00Z"), "night");    // of Friday: the first in the list counts
  EXPECT_EQ(window(schedule, "2026-11-28T06:00:00Z"), "weekend");
  EXPECT_EQ(window(schedule, "2026-11-29T23:59:59Z"), "weekend");
  EXPECT_EQ(next_change(schedule, when("2026-11-23T12:00:00Z")), when("2026-11-23T20:00:00Z"));
  EXPECT_EQ(next_change(schedule, when("2026-11-23T20:00:00Z")), when("2026-11-24T06:00:00Z"));
  EXPECT_EQ(next_change(schedule, when("2026-11-27T23:00:00Z")), when("2026-11-28T06:00:00Z"));  // not at midnight, when the weekend begins beneath it
}

TEST(QuotaSchedules, ADayIsThatOfItsOffset) {
  const QuotaSchedule east = read(R"([{"name":"w","days":["Mon"],"from":"00:00","to":"08:00","utcOffset":"+09:00","quotas":[{"flavor":"f","resource":"cpu","nominalQuota":1}]}])");
  EXPECT_EQ(window(east, "2026-11-22T14:59:00Z"), "");
  EXPECT_EQ(window(east, "2026-11-22T15:00:00Z"), "w");
  EXPECT_EQ(window(east, "2026-11-22T23:00:00Z"), "");
  const QuotaSchedule west = read(R"([{"name":"w","days":["Mon"],"from":"22:00","utcOffset":"-08:00","quotas":[{"flavor":"f","resource":"cpu","nominalQuota":1}]}])");
  EXPECT_EQ(window(west, "2026-11-24T06:00:00Z"), "w");
  EXPECT_EQ(next_change(west, when("2026-11-24T06:00:00Z")), when("2026-11-24T08:00:00Z"));
}

TEST(QuotaSchedules, OneThatAlwaysHoldsNeverChanges) {
  const QuotaSchedule always = read(R"([{"name":"w","quotas":[{"flavor":"f","resource":"cpu","nominalQuota":1}]}])");
  EXPECT_EQ(window(always, "2026-11-23T05:59:59Z"), "w");
  EXPECT_EQ(next_change(always, when("2026-11-23T05:59:59Z")), std::nullopt);
  EXPECT_EQ(next_change({}, when("2026-11-23T05:59:59Z")), std::nullopt);
}

TEST(QuotaSchedules, WhatIsWrongIsSaidWithItsPlace) {
  const auto why = [](const std::string& text) {
    const auto out = read_quota_schedule(text);
    return out ? std::string("fine") : out.error().message;
  };
  const auto with = [&](const std::string& fields) { return why(R"([{"name":"n","quotas":[{"flavor":"f","resource":"cpu","nominalQuota":1}],)" + fields + "}]"); };
  EXPECT_THAT(why("{"), HasSubstr("JSON list of windows"));
  EXPECT_THAT(why("{}"), HasSubstr("JSON list of windows"));
  EXPECT_THAT(why("[1]"), HasSubstr("[0]: an object"));
  EXPECT_THAT(why("[{}]"), HasSubstr("[0].name"));
  EXPECT_THAT(with(R"("days":["Monday"])"), HasSubstr("[0].days[0]: \"Monday\" is no day"));
  EXPECT_THAT(with(R"("days":[])"), HasSubstr("[0].days"));
  EXPECT_THAT(with(R"("from":"8:00")"), HasSubstr("[0].from: \"8:00\""));
  EXPECT_THAT(with(R"("from":"24:00")"), HasSubstr("[0].from"));
  EXPECT_THAT(with(R"("to":"25:00")"), HasSubstr("[0].to"));
  EXPECT_THAT(with(R"("to":900)"), HasSubstr("[0].to"));
  EXPECT_THAT(with(R"("utcOffset":"Europe/Berlin")"), HasSubstr("[0].utcOffset: \"Europe/Berlin\""));
  EXPECT_THAT(with(R"("utcOffset":"+15:00")"), HasSubstr("[0].utcOffset"));
  EXPECT_THAT(with(R"("until":"9:00")"), HasSubstr("[0].until: unknown"));
  const auto quota = [&](const std::string& one) { return why(R"([{"name":"n","quotas":[)" + one + "]}]"); };
  EXPECT_THAT(quota(""), HasSubstr("[0].quotas"));
  EXPECT_THAT(quota(R"({"resource":"cpu","nominalQuota":1})"), HasSubstr("[0].quotas[0].flavor"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu"})"), HasSubstr("says nothing"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu","nominalQuota":-1})"), HasSubstr("nominalQuota"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu","nominalQuota":"many"})"), HasSubstr("nominalQuota"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu","nominalQuota":null})"), HasSubstr("nominalQuota"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu","nominal":1})"), HasSubstr("nominal: unknown"));
  EXPECT_THAT(quota(R"({"flavor":"f","resource":"cpu","nominalQuota":1},{"flavor":"f","resource":"cpu","nominalQuota":2})"), HasSubstr("twice"));
  EXPECT_THAT(why(std::string(70'000, ' ')), HasSubstr("at most"));
}

// Beside every minute of two weeks.
TEST(QuotaSchedules, ChangesAreThoseOfEveryMinute) {
  const int rounds = test_rounds(40, 2'000);
  for (int round = 0; round < rounds; ++round) {
    Rng rng(0x71756f + static_cast<std::uint64_t>(round));
    QuotaSchedule schedule;
    for (std::size_t i = 0; i < 1 + rng.below(4); ++i) {
      QuotaWindow one{.name = std::to_string(i), .days = std::bitset<7>(rng.below(128)), .from = minutes(rng.below(1440)), .lasts = minutes(1 + rng.below(1440)), .utc_offset = minutes(rng.below(841)) - minutes(420), .quotas = {}};
      schedule.push_back(one);
    }
    const Instant start = when("2026-11-23T00:00:00Z") + minutes(rng.below(10'080));
    const QuotaWindow* now = window_at(schedule, start);
    std::optional<Instant> change;
    for (Instant t = start + minutes(1); t < start + days(9) && !change; t += minutes(1))
      if (window_at(schedule, t) != now) change = t;
    if (const auto told = next_change(schedule, start); change != told) FAIL() << "round " << round << ": " << (told ? print_time(*told) : "never") << " instead of " << (change ? print_time(*change) : "never");
  }
}

class ScheduledQueue : public BooksOf {
 protected:
  void scheduled(const std::string& name, const std::string& cpu, const std::string& schedule, const std::string& limits = "") {
    queue(name, cpu, "", limits);
    Json object = *books_.queue_view(name)->object;
    object.child("metadata").child("annotations").set(kQuotaScheduleNote, schedule);
    books_.set_queue(name, object);
  }
  std::string active(const std::string& name) {
    const auto view = books_.queue_view(name);
    return view->reason + ": " + view->message;
  }
};

TEST_F(ScheduledQueue, HasTheQuotaOfTheHour) {
  books_.set_time(when("2026-11-23T12:00:00Z"));
  scheduled("a", "4", kNight);
  submit("one", "a", "4"), submit("two", "a", "4");
  settle();
  EXPECT_TRUE(admitted("one"));
  EXPECT_FALSE(admitted("two"));
  EXPECT_EQ(active("a"), "Ready: Can admit new workloads");
  EXPECT_EQ(books_.queue_changes_at("a"), when("2026-11-23T20:00:00Z"));
  books_.set_time(when("2026-11-23T19:59:59Z"));
  settle();
  EXPECT_FALSE(admitted("two"));
  books_.set_time(when("2026-11-23T20:00:00Z"));
  settle();
  EXPECT_TRUE(admitted("two"));
  EXPECT_EQ(active("a"), "Ready: Can admit new workloads; quotas of window \"night\" until 2026-11-24T06:00:00Z");
  // What the night let in goes on; nothing more is.
  books_.set_time(when("2026-11-24T06:00:00Z"));
  submit("three", "a", "1");
  settle();
  EXPECT_TRUE(admitted("two"));
  EXPECT_FALSE(admitted("three"));
  // A clock that goes back over the boundary.
  books_.set_time(when("2026-11-23T21:00:00Z"));
  EXPECT_EQ(books_.queue_view("a")->spec->groups[0].flavors[0].resources[0].second.nominal, 8000);
}

TEST_F(ScheduledQueue, WhatTheNightLetInIsTakenBackByItsOwner) {
  books_.set_time(when("2026-11-23T21:00:00Z"));
  scheduled("a", "2", R"([{"name":"night","from":"20:00","to":"06:00","quotas":[{"flavor":"default","resource":"cpu","nominalQuota":8}]}])");
  scheduled("b", "6", R"([{"name":"night","from":"20:00","to":"06:00","quotas":[{"flavor":"default","resource":"cpu","nominalQuota":0}]}])");
  submit("long1", "a", "4"), submit("long2", "a", "4"), submit("day", "b", "4");
  settle();
  EXPECT_TRUE(admitted("long1") && admitted("long2"));
  EXPECT_FALSE(admitted("day"));
  books_.set_time(when("2026-11-24T06:00:00Z"));
  settle();
  EXPECT_TRUE(kube::condition_is_true(at("long2"), "Evicted")) << says("day", "QuotaReserved");
  EXPECT_FALSE(kube::condition_is_true(at("long1"), "Evicted"));
  stopped("long2");
  EXPECT_TRUE(admitted("day"));
}

TEST_F(ScheduledQueue, AMistakeInAnyWindowIsToldAtOnceAndStopsNothing) {
  books_.set_time(when("2026-11-23T12:00:00Z"));
  queue("a", "4");
  submit("one", "a", "2");
  settle();
  for (const auto& [schedule, why] : {std::pair<const char*, const char*>{R"([{"name":"n","quotas":[{"flavor":"default","resource":"gpu","nominalQuota":1}]}])", "metadata.annotations[fairlead.dev/quota-schedule]: window \"n\": spec.resourceGroups has no gpu of flavor default"},
                                      {R"([{"name":"n","from":"20:00","quotas":[{"flavor":"default","resource":"cpu","nominalQuota":1,"lendingLimit":2}]}])", "in window \"n\": spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: more than nominalQuota"},
                                      {"nights", "JSON list"}}) {
    scheduled("a", "4", schedule);
    submit("more", "a", "1");
    settle();
    EXPECT_THAT(active("a"), HasSubstr(why));
    EXPECT_TRUE(admitted("one"));
    EXPECT_FALSE(admitted("more"));
  }
  scheduled("a", "4", kNight);
  settle();
  EXPECT_TRUE(admitted("more"));
}

TEST_F(ScheduledQueue, OfACohortToo) {
  books_.set_time(when("2026-11-23T12:00:00Z"));
  Json pool = yaml("{metadata: {name: pool}, spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: default, resources: [{name: cpu, nominalQuota: '0'}]}]}]}}");
  pool.child("metadata").child("annotations").set(kQuotaScheduleNote, R"([{"name":"night","from":"20:00","quotas":[{"flavor":"default","resource":"cpu","nominalQuota":2}]}])");
  books_.set_cohort("pool", pool);
  queue("a", "1");
  submit("one", "a", "3");
  settle();
  EXPECT_FALSE(admitted("one"));
  books_.set_time(when("2026-11-23T20:00:00Z"));
  settle();
  EXPECT_TRUE(admitted("one"));
  EXPECT_EQ(books_.cohort_changes_at("pool"), when("2026-11-24T00:00:00Z"));
}

// Explain names the window that would let it in, and eta runs through the windows ahead.
TEST(QuotasAheadOfTime, AreExplainedAndForeseen) {
  Lab lab;
  lab.queue("q", "4");
  lab.at("ClusterQueue", "q").child("metadata").child("annotations").set(kQuotaScheduleNote, R"([{"name":"night","from":"20:00","to":"06:00","quotas":[{"flavor":"f0","resource":"cpu","nominalQuota":6}]}])");
  lab.work("one", "q", "4", 0, "f0"), lab.work("next", "q", "2");
  const Instant noon = when("2026-11-23T12:00:00Z");
  const Books books = books_of(lab.objects(), noon);
  const auto told = explain(books, {"lab", "next"});
  ASSERT_TRUE(told);
  const auto remedy = std::ranges::find_if(told->remedies, [](const Remedy& one) { return one.waits_until.has_value(); });
  ASSERT_NE(remedy, told->remedies.end());
  EXPECT_EQ(remedy->waits_until, when("2026-11-23T20:00:00Z"));
  EXPECT_EQ(remedy->window, "night");
  const auto starts = eta(books, {}, {"lab", "next"}, noon);
  ASSERT_TRUE(starts);
  EXPECT_EQ(starts->not_after, seconds(hours(8)));
  EXPECT_EQ(starts->not_before, seconds(0));  // nobody knows how long the other runs
}

}  // namespace
}  // namespace fairlead::governance
