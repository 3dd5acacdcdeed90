// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/roles.h"

#include <gmock/gmock.h>

namespace fairlead::notify {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Instant kNow = *parse_time("2026-03-04T05:06:07Z");

api::SlurmCluster cluster(int heads = 3) {
  api::SlurmCluster out{.name = "demo", .space = "lab", .uid = "u1"};
  out.controller.size = heads;
  return out;
}

Json pod(int i, const char* ready, const char* more = "{}") {
  auto out = kube::parse_yaml(more)->at(0);
  Json& meta = out.child("metadata");
  const std::string n = std::to_string(i);
  meta.set("name", "controller-" + n).set("uid", "p" + n).set("ownerReferences", Json::array({Json::object({{"uid", "u1"}, {"controller", true}})}));
  out.child("spec").set("nodeName", "node-" + n);
  out.child("status").set("conditions", Json::array({Json::object({{"type", "Ready"}, {"status", ready}})}));
  return out;
}
std::map<std::string, Json> pods(const std::vector<Json>& all) {
  std::map<std::string, Json> out;
  for (const auto& one : all) out[kube::name_of(one)] = one;
  return out;
}
Json slice(int i, int term) {
  const std::string n = std::to_string(i);
  return Json::object({{"metadata", Json::object({{"annotations", Json::object({{"fairlead.dev/term", std::to_string(term)}})}})},
                       {"endpoints", Json::array({Json::object({{"targetRef", Json::object({{"name", "controller-" + n}, {"uid", "p" + n}})}})})}});
}
HeadsNow three(int serves, int term, const std::vector<Json>& of) {
  const Json s = slice(serves, term);
  return read_heads(cluster(), pods(of), &s);
}
const std::vector<Json>& all_ready() {
  static const std::vector<Json> all = {pod(0, "True"), pod(1, "True"), pod(2, "True")};
  return all;
}
std::vector<std::string> lines(const std::vector<Event>& events) {
  std::vector<std::string> out;
  for (const auto& e : events) out.push_back(std::string(text(e.type)) + " " + e.head + " " + e.old_state + ">" + e.new_state);
  return out;
}
Record record_of(const HeadsNow& now) { return plan_events(cluster(), std::nullopt, now, kNow).record; }

TEST(Roles, AFirstLookTellsNothingButRemembers) {
  const auto plan = plan_events(cluster(), std::nullopt, three(0, 1, all_ready()), kNow);
  EXPECT_THAT(plan.events, IsEmpty());
  EXPECT_EQ(plan.record.at("controller-0").state, HeadState::On);
  EXPECT_EQ(plan.record.at("controller-2").state, HeadState::Standby);
  const Json kept = Json::object({{"status", Json::object({{"notifications", Json::object({{"heads", record_json(plan.record)}})}})}});
  EXPECT_EQ(read_record(kept), plan.record);
  EXPECT_EQ(read_record(Json::object()), std::nullopt);
}

struct Row {
  const char* name;
  HeadsNow before, after;
  std::vector<std::string> want;
  const char* cause;  // of the first
};
class RoleChanges : public testing::TestWithParam<Row> {};
TEST_P(RoleChanges, AreTold) {
  const auto plan = plan_events(cluster(), record_of(GetParam().before), GetParam().after, kNow);
  EXPECT_EQ(lines(plan.events), GetParam().want);
  if (!plan.events.empty()) {
    EXPECT_THAT(plan.events[0].cause, HasSubstr(GetParam().cause));
    EXPECT_FALSE(plan.events[0].next_step.empty());
  }
  EXPECT_THAT(plan_events(cluster(), plan.record, GetParam().after, kNow).events, IsEmpty()) << "told once";
}
INSTANTIATE_TEST_SUITE_P(
    Roles, RoleChanges,
    testing::Values(
        Row{"nothing", three(0, 1, all_ready()), three(0, 1, all_ready()), {}, ""},
        Row{"new_term_same_head", three(0, 1, all_ready()), three(0, 2, all_ready()), {}, ""},
        Row{"planned", three(0, 1, all_ready()), three(1, 2, all_ready()), {"PrimaryOff controller-0 On>Standby", "PrimaryOn controller-1 Standby>On"}, "controller-1 was elected in term 2"},
        Row{"pod_gone", three(0, 1, all_ready()), three(1, 2, {pod(1, "True"), pod(2, "True")}), {"PrimaryOff controller-0 On>Off", "PrimaryOn controller-1 Standby>On"}, "its pod is gone; controller-1"},
        Row{"pod_ending", three(0, 1, all_ready()), three(0, 1, {pod(0, "True", "{metadata: {deletionTimestamp: \"2026-01-01T00:00:00Z\"}}"), pod(1, "True"), pod(2, "True")}), {"PrimaryOff controller-0 On>Off"}, "being deleted"},
        Row{"backup_lost", three(0, 1, all_ready()), three(0, 1, {pod(0, "True"), pod(1, "False", "{status: {containerStatuses: [{name: slurmctld, ready: false, lastState: {terminated: {exitCode: 137}}, restartCount: 2}]}}"), pod(2, "True")}), {"BackupLost controller-1 Standby>Off"}, "slurmctld ended with status 137 and was started again 2 times"},
        Row{"backup_back", three(0, 1, {pod(0, "True"), pod(1, "True")}), three(0, 1, all_ready()), {"BackupReady controller-2 Off>Standby"}, "its pod is ready"},
        Row{"node_silent", three(0, 1, all_ready()), three(0, 1, {pod(0, "Unknown"), pod(1, "True"), pod(2, "True")}), {"PrimaryOff controller-0 On>Unknown"}, "node node-0 does not report"},
        Row{"unknown_then_off", three(0, 1, {pod(0, "Unknown")}), three(0, 1, {}), {}, ""},
        Row{"made_anew_is_not_elected", three(0, 1, {pod(1, "True")}), three(0, 1, {[] { Json p = pod(0, "True"); p.child("metadata").set("uid", "p9"); return p; }(), pod(1, "True")}), {"BackupReady controller-0 Off>Standby"}, "its pod is ready"},
        Row{"losses_first", three(2, 1, all_ready()), three(0, 2, {pod(0, "True")}), {"BackupLost controller-1 Standby>Off", "PrimaryOff controller-2 On>Off", "PrimaryOn controller-0 Standby>On"}, "its pod is gone"}),
    [](const auto& row) { return row.param.name; });

TEST(Roles, OneHeadServesWhenItIsReady) {
  const auto now = [](const std::vector<Json>& of) { return read_heads(cluster(1), pods(of), nullptr); };
  const auto off = plan_events(cluster(1), std::nullopt, now({}), kNow);
  const auto on = plan_events(cluster(1), off.record, now({pod(0, "True")}), kNow);
  EXPECT_THAT(lines(on.events), ElementsAre("PrimaryOn controller-0 Off>On"));
  EXPECT_EQ(on.events[0].ready, 1);
  const auto lost = plan_events(cluster(1), on.record, now({pod(0, "False")}), kNow);
  EXPECT_THAT(lines(lost.events), ElementsAre("PrimaryOff controller-0 On>Off"));
  EXPECT_THAT(lost.events[0].next_step, HasSubstr("kubectl -n lab describe pod controller-0"));
}

// Two heads and their witness, which votes and serves never.
constexpr const char* kWitness = "{spec: {containers: [{name: witness}]}}";
HeadsNow two(const std::vector<Json>& of) {
  const Json s = slice(0, 3);
  return read_heads(cluster(2), pods(of), &s);
}
RolePlan plan_two(const std::optional<Record>& told, const std::vector<Json>& of) { return plan_events(cluster(2), told, two(of), kNow); }

TEST(Roles, TheLossOfAWitnessIsTold) {
  const std::vector<Json> whole = {pod(0, "True"), pod(1, "True"), pod(2, "True", kWitness)};
  const auto first = plan_two(std::nullopt, whole);
  EXPECT_THAT(first.events, IsEmpty());
  const auto lost = plan_two(first.record, {pod(0, "True"), pod(1, "True")});
  EXPECT_THAT(lines(lost.events), ElementsAre("BackupLost controller-2 Standby>Off"));
  const Event& event = lost.events.at(0);
  EXPECT_EQ(summary(event), "Slurm cluster lab/demo: witness controller-2 is OFF (was STANDBY)");
  EXPECT_EQ(event.cause, "its pod is gone");
  EXPECT_THAT(event.next_step, HasSubstr("no third voter"));
  EXPECT_EQ(event.ready, 2) << "it is no head";
  EXPECT_EQ(event_json(*read_event(event_json(event))), event_json(event));
  EXPECT_EQ(plan_two(first.record, {pod(0, "True"), pod(1, "True")}).events.at(0).id, event.id) << "a restart between event and record";
  EXPECT_THAT(plan_two(lost.record, {pod(0, "True"), pod(1, "True")}).events, IsEmpty()) << "told once";
  const auto back = plan_two(lost.record, whole);
  EXPECT_THAT(lines(back.events), ElementsAre("BackupReady controller-2 Off>Standby"));
  EXPECT_EQ(back.events[0].next_step, "None.");
  EXPECT_NE(plan_two(back.record, {pod(0, "True"), pod(1, "True")}).events.at(0).id, event.id) << "it happened again";
  EXPECT_THAT(lines(plan_two(back.record, {pod(0, "True"), pod(1, "True"), pod(2, "Unknown", kWitness)}).events), ElementsAre("BackupLost controller-2 Standby>Unknown"));
}

TEST(Roles, AWitnessComesAndGoesWithTheNumberOfHeads) {
  // A record of before anybody looked at witnesses: it is remembered, not told.
  Record old = record_of(three(0, 1, all_ready()));
  EXPECT_THAT(plan_two(old, {pod(0, "True"), pod(1, "True"), pod(2, "True", kWitness)}).events, IsEmpty());
  // Three heads become two: the third's pod is no witness, and what comes in its place is.
  const auto going = plan_two(old, all_ready());
  EXPECT_THAT(going.events, IsEmpty());
  const auto made = plan_two(going.record, {pod(0, "True"), pod(1, "True"), pod(2, "True", kWitness)});
  EXPECT_THAT(lines(made.events), ElementsAre("BackupReady controller-2 Off>Standby"));
  // Three again: nobody waits for a witness.
  const auto three_again = plan_events(cluster(3), made.record, three(0, 1, all_ready()), kNow);
  EXPECT_FALSE(three_again.record.contains("witness"));
  EXPECT_THAT(three_again.events, IsEmpty());
}

TEST(Roles, IdsAreEqualForTheSameChangeAndOnlyForIt) {
  const Record before = record_of(three(0, 1, all_ready()));
  const HeadsNow lost = three(0, 1, {pod(0, "True"), pod(2, "True")});
  const auto once = plan_events(cluster(), before, lost, kNow), again = plan_events(cluster(), before, lost, kNow + 1h);
  ASSERT_EQ(once.events.size(), 1u);
  EXPECT_EQ(once.events[0].id, again.events[0].id) << "a restart between event and record";
  // Seen later with more changes: the loss keeps its id.
  const auto later = plan_events(cluster(), before, three(2, 2, {pod(2, "True")}), kNow);
  EXPECT_TRUE(std::any_of(later.events.begin(), later.events.end(), [&](const Event& e) { return e.id == once.events[0].id; }));
  const auto back = plan_events(cluster(), once.record, three(0, 1, all_ready()), kNow);
  const auto twice = plan_events(cluster(), back.record, lost, kNow);
  EXPECT_NE(twice.events[0].id, once.events[0].id) << "it happened again";
  auto other = cluster();
  other.uid = "u2";
  EXPECT_NE(event_id("u1", "controller-0", 1, "On", "Off"), event_id("u2", "controller-0", 1, "On", "Off"));
  EXPECT_NE(event_id("u1", "a", 1, "b", "c"), event_id("u1", "ab", 1, "", "c"));
}

TEST(Roles, CausesHoldNoWordsOfARuntime) {
  const auto plan = plan_events(cluster(), record_of(three(0, 1, all_ready())),
                                three(0, 1, {pod(0, "True"), pod(1, "False", "{status: {containerStatuses: [{name: slurmctld, ready: false, state: {waiting: {reason: CreateContainerError, message: \"env PASSWORD=hidden\"}}}]}}"), pod(2, "True")}), kNow);
  EXPECT_THAT(plan.events[0].cause, HasSubstr("CreateContainerError"));
  EXPECT_THAT(plan.events[0].cause, testing::Not(HasSubstr("hidden")));
}

TEST(Events, ComeBackFromTheirObject) {
  const auto plan = plan_events(cluster(), record_of(three(0, 1, all_ready())), three(1, 7, all_ready()), kNow);
  const Json object = notification_object(plan.events[0], "operators", Json());
  EXPECT_EQ(kube::name_of(object), plan.events[0].id + ".operators");
  const auto read = read_event(object["spec"]["event"]);
  ASSERT_TRUE(read);
  EXPECT_EQ(event_json(*read), event_json(plan.events[0]));
  EXPECT_FALSE(read_event(Json::object({{"id", "evt-x"}, {"type", "Test"}})));
}

}  // namespace
}  // namespace fairlead::notify
