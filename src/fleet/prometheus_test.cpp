// SPDX-License-Identifier: Apache-2.0
#include "fleet/prometheus.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;
using State = api::Alarm::State;

const Instant now = *parse_time("2026-11-27T06:00:00Z");

std::string rule(const std::string& name, const std::string& state, const std::string& more = "", const std::string& health = "ok", const std::string& last = "2026-11-27T06:59:50.123456789+01:00") {
  return fmt::format(R"({{"state":"{}","name":"{}","query":"up == 0","duration":60,"labels":{{}},"annotations":{{}},"alerts":[{}],"health":"{}","lastEvaluation":"{}","type":"alerting"}})", state, name, more, health, last);
}
std::string answer(const std::string& rules) { return fmt::format(R"({{"status":"success","data":{{"groups":[{{"name":"g","file":"/x","interval":15,"rules":[{}]}}]}}}})", rules); }
api::Alarm one(const std::string& rules) {
  const auto all = read_alert_rules(answer(rules), {"Slow"}, now);
  return all ? all->at("Slow") : api::Alarm{.state = State::Unknown, .message = "error: " + all.error().message};
}

TEST(Prometheus, StatesOfRulesAreThoseOfAlarms) {
  EXPECT_EQ(one(rule("Slow", "inactive")).state, State::Ok);
  EXPECT_EQ(one(rule("Slow", "inactive")).message, "");
  EXPECT_EQ(one(rule("Slow", "pending")).state, State::Pending);
  EXPECT_EQ(one(rule("Slow", "firing")).state, State::Firing);
  EXPECT_EQ(one(rule("Slow", "someday")).state, State::Unknown);
  EXPECT_EQ(one(rule("Other", "firing")).state, State::Missing);
  EXPECT_EQ(one("").state, State::Missing);
  EXPECT_EQ(one(R"({"name":"Slow","type":"recording","health":"ok"})").state, State::Missing);
}

TEST(Prometheus, WordsAreThoseOfTheFirstAlertThatIsSoFar) {
  EXPECT_EQ(one(rule("Slow", "firing", R"({"state":"pending","annotations":{"summary":"soon"}},{"state":"firing","annotations":{"summary":"p99 is 2 s\n"},"labels":{"alertname":"Slow"}})")).message, "p99 is 2 s ");
  EXPECT_EQ(one(rule("Slow", "firing", R"({"state":"firing","annotations":{},"labels":{"alertname":"Slow","node":"n1","job":"j"}})")).message, R"(node="n1", job="j")");
}

// What it said last is no answer once it is not looked after any more.
TEST(Prometheus, ARuleThatIsNotEvaluatedIsNotKnown) {
  EXPECT_THAT(one(rule("Slow", "inactive", "", "err")).message, HasSubstr("cannot evaluate it"));
  EXPECT_THAT(one(rule("Slow", "firing", "", "err")).message, HasSubstr("cannot evaluate it"));
  EXPECT_THAT(one(rule("Slow", "inactive", "", "unknown")).message, HasSubstr("not evaluated it yet"));
  EXPECT_THAT(one(rule("Slow", "inactive", "", "ok", "0001-01-01T00:00:00Z")).message, HasSubstr("does not say when"));
  EXPECT_EQ(one(rule("Slow", "inactive", "", "ok", "2026-11-27T05:59:01Z")).state, State::Ok);
  EXPECT_EQ(one(rule("Slow", "inactive", "", "ok", "2026-11-27T05:58:59Z")).message, "Prometheus has not evaluated it since 2026-11-27T05:58:59Z");
  EXPECT_EQ(one(rule("Slow", "firing", "", "ok", "2026-11-27T05:58:59Z")).state, State::Unknown);
}

TEST(Prometheus, OfSeveralRulesTheWorstCounts) {
  const std::vector<std::pair<std::string, State>> all{{rule("Slow", "inactive"), State::Ok}, {rule("Slow", "pending"), State::Pending}, {rule("Slow", "inactive", "", "err"), State::Unknown}, {rule("Slow", "firing"), State::Firing}};
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = 0; b < all.size(); ++b) EXPECT_EQ(one(all[a].first + "," + all[b].first).state, all[std::max(a, b)].second) << a << " " << b;
}

TEST(Prometheus, WhatIsNoAnswerIsAnError) {
  for (const char* const body : {"", "[]", "{}", R"({"status":"error","error":"query timed out"})", R"({"status":"success","data":{}})", R"({"status":"success","data":{"groups":{}}})"}) EXPECT_FALSE(read_alert_rules(body, {"Slow"}, now)) << body;
  EXPECT_THAT(read_alert_rules(R"({"status":"error","error":"query timed out"})", {"Slow"}, now).error().message, HasSubstr("query timed out"));
}

TEST(Prometheus, OptionsThatCannotBeAreRefused) {
  const SystemClock clock;
  EXPECT_THAT(make_prometheus_alarms({.url = "ftp://x", .ca_file = {}, .token_file = {}}, clock).error().message, HasSubstr("--prometheus-url"));
  // A file that is not there keeps no server from starting.
  const auto without = make_prometheus_alarms({.url = "https://127.0.0.1:1", .ca_file = "/nonexistent", .token_file = {}}, clock);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_THAT((*without)->look({"Slow"}).at("Slow").message, HasSubstr("--prometheus-ca"));
  EXPECT_THAT(make_prometheus_alarms({.url = "http://prometheus.example.com:9090", .ca_file = {}, .token_file = "/t"}, clock).error().message, HasSubstr("in the clear"));
  // Nobody answers: unknown, with the reason, and soon.
  const auto alarms = make_prometheus_alarms({.url = "http://127.0.0.1:1", .ca_file = {}, .token_file = {}}, clock);
  ASSERT_TRUE(alarms) << alarms.error().message;
  const auto told = (*alarms)->look({"Slow"});
  EXPECT_EQ(told.at("Slow").state, State::Unknown);
  EXPECT_THAT(told.at("Slow").message, HasSubstr("Prometheus at http://127.0.0.1:1: "));
}

}  // namespace
}  // namespace fairlead::fleet
