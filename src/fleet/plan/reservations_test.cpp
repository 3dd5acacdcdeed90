// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/reservations.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "kube/object.h"

namespace fairlead::fleet {
namespace {

using api::PlanMachine;
using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Holder = PlanMachine::Holder;
using Mark = ReservationPlan::Mark;

const Instant now = *parse_time("2026-11-26T12:00:00Z");
Instant at(int hours) { return now + std::chrono::hours(hours); }

Json asked(const std::string& name, int count, int start, int end, const std::string& created = "2026-11-26T11:00:00Z") {
  return *kube::parse_json(fmt::format(R"({{"metadata": {{"name": "{}", "creationTimestamp": "{}"}}, "spec": {{"instanceType": "ml.g5.xlarge", "instanceCount": {}, "startTime": "{}", "endTime": "{}"}}}})", name, created, count, print_time(at(start)), print_time(at(end))));
}
Json granted(const std::string& name, int count, int start, int end) {
  Json out = asked(name, count, start, end);
  return out.set("status", granted_status(out, {.plan = name, .extension = "", .type = "ml.g5.xlarge", .wanted = {count, {at(start), at(end)}}}, now));
}
Json extending(Json plan, const std::string& id, int from, int to) {
  if (!plan["spec"].has("extensions")) plan.child("spec").set("extensions", Json::array());
  plan.child("spec").child("extensions").push(Json::object({{"id", id}, {"startTime", print_time(at(from))}, {"endTime", print_time(at(to))}, {"requestedAt", print_time(now)}}));
  return plan;
}
PlanMachine machine(const std::string& node, const std::string& label = "", Holder holder = Holder::Nobody, const std::string& plan = "", bool healthy = true) {
  return {.node = node, .type = "ml.g5.xlarge", .label = label, .wanted_back = "", .holder = holder, .plan = plan, .instance = holder == Holder::Nobody ? "" : "i-" + node, .healthy = healthy};
}
const Json& status_of(const ReservationPlan& plan, const std::string& name) {
  static const Json none;
  for (const ReservationPlan::Status& one : plan.statuses)
    if (one.plan == name) return one.status;
  return none;
}

// Of every plan somebody waits, for more than it has.
ReservationPlan plan_reservations(const std::vector<Json>& objects, const std::vector<PlanMachine>& machines, Instant when) {
  std::map<std::string, int> waiting;
  for (const Json& one : objects) waiting[kube::name_of(one)] = 100;
  return fleet::plan_reservations(objects, machines, waiting, when);
}

TEST(Reservations, AreMarkedBeforeTheyAreGranted) {
  const std::vector<Json> plans{asked("spring", 2, 1, 3)};
  std::vector<PlanMachine> machines{machine("a", "", Holder::Others), machine("b"), machine("c"), machine("d")};
  ReservationPlan plan = plan_reservations(plans, machines, now);
  EXPECT_THAT(plan.marks, ElementsAre(Mark{"b", "spring", ""}, Mark{"c", "spring", ""}));
  ASSERT_EQ(plan.due.size(), 1u);
  EXPECT_FALSE(is_secured(plan.due.front(), read_plans(plans), machines, now));
  EXPECT_EQ(status_of(plan, "spring")["phase"].string(), "Pending");
  machines[1].label = machines[2].label = "spring";
  plan = plan_reservations(plans, machines, now);
  EXPECT_THAT(plan.marks, IsEmpty());
  EXPECT_TRUE(is_secured(plan.due.front(), read_plans(plans), machines, now));
  machines[2].holder = Holder::Others;
  EXPECT_FALSE(is_secured(plan.due.front(), read_plans(plans), machines, now)) << "what somebody else has counts for nothing";
}

TEST(Reservations, WhatThereIsNoRoomForIsRefusedWithTheNumbers) {
  const std::vector<PlanMachine> machines{machine("a", "", Holder::Others), machine("b", "winter"), machine("c")};
  const auto plan = plan_reservations({granted("winter", 1, 0, 2), asked("spring", 2, 1, 3)}, machines, now);
  EXPECT_THAT(plan.due, IsEmpty());
  const Json& status = status_of(plan, "spring");
  EXPECT_EQ(status["phase"].string(), "Failed");
  EXPECT_TRUE(status["failed"].boolean());
  EXPECT_EQ(status["message"].string(), "2 machines of type ml.g5.xlarge are asked for from 2026-11-26T13:00:00Z to 2026-11-26T15:00:00Z; 2 can be promised, and 1 of them are (1 more are in use by groups without a plan, which have no end)");
  EXPECT_FALSE(plan_reservations({granted("winter", 1, 0, 2), asked("spring", 2, 2, 3)}, machines, now).due.empty()) << "when the other is over there is room";
  EXPECT_THAT(status_of(plan_reservations({asked("past", 1, -3, -1)}, machines, now), "past")["message"].string(), HasSubstr("has passed"));
}

TEST(Reservations, WhoAskedFirstIsFirst) {
  const std::vector<PlanMachine> machines{machine("a"), machine("b")};
  const auto plan = plan_reservations({asked("a", 2, 1, 2, "2026-11-26T11:00:01Z"), asked("b", 2, 1, 2, "2026-11-26T11:00:00Z")}, machines, now);
  ASSERT_EQ(plan.due.size(), 1u);
  EXPECT_EQ(plan.due.front().plan, "b");
  EXPECT_FALSE(status_of(plan, "a")["failed"].boolean()) << "it is decided when the other one is";
}

TEST(Reservations, MachinesGoFromPlanToPlan) {
  const std::vector<Json> plans{granted("one", 2, -2, 1), granted("two", 2, 1, 3)};
  std::vector<PlanMachine> machines{machine("a", "one", Holder::Plan, "one"), machine("b", "one"), machine("c")};
  EXPECT_THAT(plan_reservations(plans, machines, now).marks, IsEmpty()) << "two suffice for both, one after the other";
  machines[0].holder = Holder::Ended;  // as the inventory sees it after the end
  const auto after = plan_reservations(plans, machines, at(1));
  EXPECT_THAT(after.marks, ElementsAre(Mark{"a", "", ""}, Mark{"b", "two", ""}, Mark{"c", "two", ""})) << "free ones first: what runs runs on";
  machines.pop_back();
  const auto fewer = plan_reservations(plans, machines, at(1));
  EXPECT_THAT(fewer.marks, ElementsAre(Mark{"a", "two", "i-a"}, Mark{"b", "two", ""})) << "it is needed: its instance is to give it back";
  EXPECT_THAT(status_of(fewer, "two")["message"].string(), HasSubstr("1 machines are yet to be given back"));
  machines[0].label = "two", machines[0].wanted_back = "i-a", machines[1].label = "two";
  EXPECT_THAT(plan_reservations(plans, machines, at(1)).marks, IsEmpty()) << "and nothing else is asked of anybody";
}

TEST(Reservations, AShortPlanFillsTheTimeBeforeALaterOne) {
  std::vector<PlanMachine> machines{machine("a", "later"), machine("b", "later")};
  const auto plan = plan_reservations({granted("later", 2, 5, 9), asked("now", 1, 0, 5)}, machines, now);
  ASSERT_EQ(plan.due.size(), 1u);
  EXPECT_TRUE(is_secured(plan.due.front(), read_plans({granted("later", 2, 5, 9)}), machines, now));
  const auto then = plan_reservations({granted("later", 2, 5, 9), granted("now", 1, 0, 5)}, machines, now);
  EXPECT_THAT(then.marks, ElementsAre(Mark{"a", "now", ""}));
}

TEST(Reservations, AMachineThatIsOutOfOrderIsMadeUpFor) {
  const std::vector<Json> plans{granted("one", 2, -2, 1)};
  std::vector<PlanMachine> machines{machine("a", "one", Holder::Plan, "one", false), machine("b", "one"), machine("c")};
  EXPECT_THAT(plan_reservations(plans, machines, now).marks, ElementsAre(Mark{"c", "one", ""})) << "the broken one stays its own";
  machines[2].holder = Holder::Others;
  const auto lacking = plan_reservations(plans, machines, now);
  EXPECT_THAT(lacking.marks, IsEmpty());
  EXPECT_THAT(status_of(lacking, "one")["message"].string(), HasSubstr("1 of 2 machines are lacking"));
  EXPECT_EQ(kube::print_json(status_of(lacking, "one")["instances"]), R"({"kept":2,"inUse":1,"available":1,"unhealthy":1})");
}

TEST(Reservations, AMachineThatRebootsComesBackAsWhatItWas) {
  std::vector<PlanMachine> machines{machine("a", "later", Holder::Nobody, "", false), machine("b", "later"), machine("c", "", Holder::Others)};
  EXPECT_THAT(plan_reservations({granted("later", 2, 1, 3)}, machines, now).marks, IsEmpty()) << "before it begins, too";
  machines[2] = machine("c");
  EXPECT_THAT(plan_reservations({granted("later", 2, 1, 3)}, machines, now).marks, ElementsAre(Mark{"a", "", ""}, Mark{"c", "later", ""})) << "unless another makes up for it";
  machines[2] = machine("c", "other");
  EXPECT_THAT(plan_reservations({granted("later", 1, 1, 3), granted("other", 2, 1, 3)}, machines, now).marks, ElementsAre(Mark{"a", "other", ""})) << "it goes to who lacks one";
}

TEST(Reservations, AMachineThatIsOutOfOrderGoesOnWithItsGroup) {
  const std::vector<PlanMachine> machines{machine("a", "over", Holder::Plan, "next", false)};
  EXPECT_THAT(plan_reservations({granted("over", 1, -2, -1), granted("next", 1, -1, 3)}, machines, now).marks, ElementsAre(Mark{"a", "next", ""}));
}

TEST(Reservations, NoGroupGivesBackForWhatMayBeOverInAMoment) {
  const std::vector<Json> plans{granted("one", 2, -1, 9), granted("over", 1, -5, -1)};
  std::vector<PlanMachine> machines{machine("a", "one", Holder::Plan, "one", false), machine("b", "one", Holder::Plan, "one"), machine("c", "", Holder::Ended, "over")};
  const auto asked_back = [&] {
    const auto plan = plan_reservations(plans, machines, now);
    for (const Mark& mark : plan.marks)
      if (mark.node == "c") return mark.wanted_back;
    return machines[2].wanted_back;
  };
  EXPECT_EQ(asked_back(), "") << "its own may come back";
  machines[0].replaced = true;
  EXPECT_EQ(asked_back(), "i-c") << "this one will not";
  for (const Mark& mark : fleet::plan_reservations(plans, machines, {{"over", 5}}, now).marks) EXPECT_EQ(mark.wanted_back, "") << "of its own nobody waits for one";
  machines[0] = machine("a", "one", Holder::Nobody, "", false);
  EXPECT_EQ(asked_back(), "i-c");
  machines[0].lately = true;
  EXPECT_EQ(asked_back(), "") << "one that is free has its time to come back";
  machines.push_back(machine("d"));
  EXPECT_EQ(plan_reservations(plans, machines, now).marks, (std::vector<Mark>{{"a", "", "", ""}, {"d", "one", "", ""}})) << "a free one makes up for it at once";
}

TEST(Reservations, WhatAnUnknownInstanceHasIsKeptAndPromisedToNobody) {
  std::vector<PlanMachine> machines{machine("a", "one", Holder::Unknown), machine("b")};
  const Json one = granted("one", 1, -1, 9);
  const auto alone = plan_reservations({one}, machines, now);
  EXPECT_THAT(alone.marks, IsEmpty());
  EXPECT_EQ(kube::print_json(status_of(alone, "one")["instances"]), R"({"kept":1,"inUse":0,"available":0,"unhealthy":0})");
  EXPECT_THAT(status_of(alone, "one")["message"].string(), HasSubstr("1 machines have label fairlead.dev/instance of an Instance that is not known here"));
  const auto more = plan_reservations({one, asked("two", 1, 1, 2)}, machines, now);
  EXPECT_THAT(more.due, IsEmpty());
  EXPECT_EQ(status_of(more, "two")["phase"].string(), "Pending") << "it may be known in a moment";
  EXPECT_THAT(status_of(more, "two")["message"].string(), HasSubstr("waits: there is room if 1 machines count"));
  EXPECT_EQ(status_of(plan_reservations({one, asked("two", 2, 1, 2)}, machines, now), "two")["phase"].string(), "Failed");
}

TEST(Reservations, AnExtensionThatDoesNotSayWhenItCameIsInLineFromWhenItWasSeen) {
  const std::vector<PlanMachine> machines{machine("a", "one")};
  Json one = extending(granted("one", 1, -1, 2), "x", 2, 4);
  one.child("spec").child("extensions").items()[0].erase("requestedAt");
  const std::string before = "2026-11-26T11:30:00Z";
  const auto first = plan_reservations({one, asked("two", 1, 3, 5, before)}, machines, now);
  ASSERT_EQ(first.due.size(), 1u);
  EXPECT_EQ(first.due.front().plan, "two") << "however old the plan that is to be longer";
  ASSERT_EQ(status_of(first, "one")["extensions"].items().size(), 1u);
  EXPECT_EQ(status_of(first, "one")["extensions"].items()[0]["seenAt"].string(), print_time(now));
  one.set("status", status_of(first, "one"));
  EXPECT_FALSE(api::read_training_plan(one).extended.contains("x"));
  const auto then = plan_reservations({one, asked("two", 1, 3, 5, print_time(now + 1s))}, machines, now + 2s);
  ASSERT_EQ(then.due.size(), 1u);
  EXPECT_EQ(then.due.front().extension, "x");
  EXPECT_EQ(granted_status(one, then.due.front(), now)["extensions"].items().size(), 1u);
}

TEST(Reservations, OneTypeWaitsForNoOther) {
  Json other = asked("other", 1, 1, 2, "2026-11-26T11:30:00Z");
  other.child("spec").set("instanceType", "ml.p5.48xlarge");
  std::vector<PlanMachine> machines{machine("a"), machine("b")};
  machines[1].type = "ml.p5.48xlarge";
  EXPECT_EQ(plan_reservations({asked("one", 1, 1, 2), other}, machines, now).due.size(), 2u);
}

TEST(Reservations, WhatIsLeftOfPlansThatAreGoneIsTakenAway) {
  std::vector<PlanMachine> machines{machine("a", "gone"), machine("b", "over", Holder::Ended, "over"), machine("c", "x", Holder::Others)};
  machines[1].wanted_back = "i-b";
  EXPECT_THAT(plan_reservations({granted("over", 1, -2, -1)}, machines, now).marks, ElementsAre(Mark{"a", "", ""}, Mark{"b", "", ""}, Mark{"c", "", ""}));
}

TEST(Reservations, AnExtensionTakesTheMachinesThatNobodyElseHas) {
  const std::vector<PlanMachine> machines{machine("a", "one"), machine("b", "one")};
  const Json one = granted("one", 2, -1, 2);
  const auto plan = plan_reservations({extending(one, "x", 2, 4), granted("later", 1, 4, 6)}, machines, now);
  ASSERT_EQ(plan.due.size(), 1u);
  EXPECT_EQ(plan.due.front().extension, "x");
  EXPECT_TRUE(is_secured(plan.due.front(), read_plans({one}), machines, now));
  Json status = granted_status(extending(one, "x", 2, 4), plan.due.front(), now);
  EXPECT_EQ(status["endTime"].string(), print_time(at(4)));
  Json done = extending(one, "x", 2, 4);
  done.set("status", status);
  EXPECT_TRUE(plan_reservations({done}, machines, now).due.empty()) << "once";
  const auto message = [&](const Json& of, const std::vector<Json>& others) {
    std::vector<Json> all{of};
    all.insert(all.end(), others.begin(), others.end());
    const auto said = plan_reservations(all, machines, now);
    EXPECT_THAT(said.due, IsEmpty());
    const Json& told = status_of(said, "one");
    EXPECT_EQ(told["phase"].string(), kube::print_json(of["status"]["endTime"]) == "\"2026-11-26T11:00:00Z\"" ? "Expired" : "Active") << "the plan itself goes on";
    return told["extensions"].items().empty() ? "" : told["extensions"].items().back()["message"].string();
  };
  EXPECT_THAT(message(extending(one, "x", 2, 4), {granted("later", 1, 3, 6)}), HasSubstr("2 can be promised, and 1 of them are"));
  EXPECT_THAT(message(extending(one, "x", 1, 4), {}), HasSubstr("the plan ends at 2026-11-26T14:00:00Z by now"));
  EXPECT_THAT(message(extending(granted("one", 2, -3, -1), "x", -1, 4), {}), HasSubstr("the plan ended at"));
}

// Random sites, carried out to the end: at any hour as many are marked as are granted, by counting, though machines break and heal, groups let go of their plans, and others take whatever is not marked; nothing of others is marked; machines that groups with a plan have in its time stay theirs; the whole comes to rest.
TEST(ReservationsProperty, NothingIsPromisedTwice) {
  for (std::uint64_t seed = 0, seeds = test_rounds<std::uint64_t>(800, 3000); seed < seeds; ++seed) {
    Rng rng(seed);
    std::vector<Json> plans;
    std::vector<PlanMachine> machines;
    for (int i = 0, most = static_cast<int>(rng.below(6)); i < most; ++i) machines.push_back(machine(fmt::format("m{}", i), "", rng.below(4) == 0 ? Holder::Others : Holder::Nobody, "", rng.below(6) != 0));
    for (int i = 0; i < 6; ++i) {
      const int start = static_cast<int>(rng.below(8)) - 1;
      plans.push_back(asked(fmt::format("p{}", i), 1 + static_cast<int>(rng.below(3)), start, start + 1 + static_cast<int>(rng.below(5)), print_time(now + std::chrono::seconds(rng.below(3)))));
    }
    Instant clock = now;
    for (int hour = 0; hour < 14; ++hour, clock += 1h) {
      int round = 0;
      for (;; ++round) {
        ASSERT_LT(round, 40) << "seed " << seed << " does not come to rest";
        const ReservationPlan plan = plan_reservations(plans, machines, clock);
        ASSERT_EQ(kube::print_json(status_of(plan, "p0")), kube::print_json(status_of(plan_reservations(plans, machines, clock), "p0")));
        for (const Mark& mark : plan.marks)
          for (PlanMachine& one : machines) {
            if (one.node != mark.node) continue;
            ASSERT_TRUE(mark.plan.empty() || one.promisable() || (!one.label.empty() && one.holder != Holder::Others)) << "seed " << seed;
            ASSERT_FALSE(one.holder == Holder::Plan && one.healthy && mark.plan != one.plan) << "seed " << seed << ": in its time a machine stays with its plan";
            one.label = mark.plan, one.wanted_back = mark.wanted_back;
          }
        bool wrote = !plan.marks.empty();
        for (Json& object : plans) {
          const std::string& name = kube::name_of(object);
          if (!plan.due.empty() && plan.due.front().plan == name && is_secured(plan.due.front(), read_plans(plans), machines, clock)) {
            object.set("status", granted_status(object, plan.due.front(), clock)), wrote = true;
            continue;
          }
          for (const auto& one : plan.statuses)
            if (one.plan == name) object.set("status", one.status), wrote = true;
        }
        if (!wrote) {
          ASSERT_THAT(plan.due, IsEmpty()) << "seed " << seed << ": there is room, and it is not granted";
          break;
        }
      }
      // By counting: each hour from now on.
      for (int later = 0; later < 20; ++later) {
        int sum = 0;
        for (const auto& [name, plan] : read_plans(plans))
          if (plan.granted && plan.granted->window.start <= clock + std::chrono::hours(later) && clock + std::chrono::hours(later) < plan.granted->window.end) sum += plan.granted->count;
        const auto marked = std::count_if(machines.begin(), machines.end(), [](const PlanMachine& one) { return !one.label.empty() && one.holder != Holder::Others; });
        ASSERT_GE(marked, sum) << "seed " << seed << " hour " << hour << "+" << later << ": what is promised is kept from others, and comes back as what it was";
      }
      // Groups take, and give back; plans end and their groups stay.
      const api::Plans read = read_plans(plans);
      for (PlanMachine& one : machines) {
        const auto plan = read.find(one.label);
        const Instant next = clock + 1h;
        if (one.holder == Holder::Nobody && one.healthy && plan != read.end() && plan->second.active(clock) && rng.below(2) == 0) one.holder = Holder::Plan, one.plan = one.label, one.instance = "i-" + one.node;
        if (!one.wanted_back.empty() && rng.below(2) == 0) {
          ASSERT_EQ(one.wanted_back, one.instance);
          one.holder = Holder::Nobody, one.plan = one.instance = "";
        }
        if (one.holder == Holder::Plan && !read.at(one.plan).active(next)) one.holder = Holder::Ended;
        if ((one.holder == Holder::Plan || one.holder == Holder::Ended) && rng.below(6) == 0) one.holder = one.label.empty() ? Holder::Others : Holder::Ended, one.plan.clear();
        if (one.holder == Holder::Nobody && one.healthy && one.label.empty() && rng.below(3) == 0) one.holder = Holder::Others;
        else if (one.holder == Holder::Others && rng.below(4) == 0) one.holder = Holder::Nobody, one.instance.clear();
        if (rng.below(5) == 0) one.healthy = !one.healthy;
      }
      // As the inventory counts: more than a plan has are none of its machines.
      std::map<std::string, int> held;
      for (PlanMachine& one : machines)
        if (one.holder == Holder::Plan && one.healthy && ++held[one.plan] > read.at(one.plan).granted->count) one.holder = one.label.empty() ? Holder::Others : Holder::Ended, one.plan.clear();
    }
  }
}

}  // namespace
}  // namespace fairlead::fleet
