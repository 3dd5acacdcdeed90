// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/machine_plan.h"

#include <gmock/gmock.h>

#include "base/rng.h"

namespace fairlead::fleet {
namespace {

using api::Link;
using api::Machine;
using api::Power;
using testing::ElementsAreArray;
using testing::IsEmpty;

const Instant kNow = Instant(std::chrono::hours(1000));
const ProcessIdentity kAlive{.pid = 42, .start_ticks = 7};

struct Case {
  const char* name;
  Power power = Power::On;
  Link link = Link::Connected;
  bool deleting = false, alive = false, leftovers = false;
  Wire wire = Wire::None;
  std::optional<std::chrono::seconds> started_ago;
  std::vector<Step> want;
  const char* phase = "Running";
};

Machine machine_of(const Case& row) {
  Machine machine;
  machine.name = "worker-0";
  machine.spec.power = row.power;
  machine.spec.link = row.link;
  machine.deleting = row.deleting;
  return machine;
}
Observation seen_in(const Case& row) {
  Observation seen{.leftovers = row.leftovers, .process = {}, .started_at = {}, .wire = row.wire};
  if (row.alive) seen.process = kAlive;
  if (row.started_ago) seen.started_at = kNow - *row.started_ago;
  return seen;
}

class MachineSteps : public testing::TestWithParam<Case> {};
TEST_P(MachineSteps, FollowFromWhatIsAskedAndWhatIs) {
  const MachinePlan plan = plan_machine(machine_of(GetParam()), seen_in(GetParam()), kNow);
  EXPECT_THAT(plan.steps, ElementsAreArray(GetParam().want));
  EXPECT_EQ(plan.phase, GetParam().phase);
  EXPECT_FALSE(plan.why.empty());
}
INSTANTIATE_TEST_SUITE_P(
    Fleet, MachineSteps,
    testing::Values(Case{.name = "new_one", .want = {Step::Start, Step::Connect}},
                    Case{.name = "half_made_before", .leftovers = true, .want = {Step::Start, Step::Connect}},
                    Case{.name = "stale_link_of_a_dead_node", .leftovers = true, .wire = Wire::Up, .started_ago = std::chrono::seconds(60), .want = {Step::Start, Step::Connect}},
                    Case{.name = "died_long_after_its_start", .started_ago = std::chrono::seconds(10), .want = {Step::Start, Step::Connect}},
                    Case{.name = "died_at_once", .started_ago = std::chrono::seconds(3), .want = {}, .phase = "Pending"},
                    Case{.name = "clock_went_back", .started_ago = std::chrono::seconds(-60), .want = {Step::Start, Step::Connect}},
                    Case{.name = "adopted", .alive = true, .leftovers = true, .wire = Wire::Up, .want = {}},
                    Case{.name = "started_but_not_connected", .alive = true, .leftovers = true, .want = {Step::Connect}},
                    Case{.name = "cut", .link = Link::Cut, .alive = true, .wire = Wire::Up, .want = {Step::Cut}, .phase = "Cut"},
                    Case{.name = "cut_already", .link = Link::Cut, .alive = true, .wire = Wire::Cut, .want = {}, .phase = "Cut"},
                    Case{.name = "started_while_cut", .link = Link::Cut, .want = {Step::Start, Step::Connect, Step::Cut}, .phase = "Cut"},
                    Case{.name = "healed", .alive = true, .wire = Wire::Cut, .want = {Step::Heal}},
                    Case{.name = "power_cut", .power = Power::Off, .alive = true, .wire = Wire::Up, .want = {Step::Kill}, .phase = "Off"},
                    Case{.name = "off_already", .power = Power::Off, .leftovers = true, .want = {}, .phase = "Off"},
                    Case{.name = "deleted_while_running", .deleting = true, .alive = true, .leftovers = true, .wire = Wire::Up, .want = {Step::Stop, Step::Remove, Step::Forget}, .phase = "Removing"},
                    Case{.name = "deleted_when_dead", .deleting = true, .leftovers = true, .want = {Step::Remove, Step::Forget}, .phase = "Removing"},
                    Case{.name = "deleted_before_anything", .deleting = true, .want = {Step::Forget}, .phase = "Removing"},
                    Case{.name = "deleted_while_off", .power = Power::Off, .deleting = true, .leftovers = true, .want = {Step::Remove, Step::Forget}, .phase = "Removing"}),
    [](const auto& row) { return row.param.name; });

TEST(MachinePlan, WaitsExactlyUntilTheNextStartIsAllowed) {
  const MachinePlan plan = plan_machine(machine_of({}), seen_in({.name = "", .started_ago = std::chrono::seconds(3), .want = {}}), kNow);
  EXPECT_EQ(plan.look_again_after, std::chrono::seconds(7));
}

TEST(MachinePlan, AMistakeInAnEditIsNoPowerCut) {
  Machine machine = machine_of({});
  machine.problems = {"spec.local.cpu: \"two\" is not an amount", "another"};
  const MachinePlan plan = plan_machine(machine, {.leftovers = true, .process = kAlive, .started_at = {}, .wire = Wire::Up}, kNow);
  EXPECT_THAT(plan.steps, IsEmpty());
  EXPECT_EQ(plan.phase, "Refused");
  EXPECT_EQ(plan.why, "spec.local.cpu: \"two\" is not an amount (and 1 more)");
}

// What each step does to the world, in the simplest terms.
void apply(Step step, Observation& world) {
  switch (step) {
    case Step::Start: world.process = kAlive; world.leftovers = true; world.wire = Wire::None; world.started_at = kNow; break;
    case Step::Connect: world.wire = Wire::Up; break;
    case Step::Cut: world.wire = Wire::Cut; break;
    case Step::Heal: world.wire = Wire::Up; break;
    case Step::Kill:
    case Step::Stop: world.process.reset(); world.wire = Wire::None; break;
    case Step::Remove: world = {}; break;
    case Step::Forget: break;
  }
}

TEST(MachinePlanProperty, StepsLeadToWhatIsAskedAndThenNothingIsDue) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed);
    Case row{.name = "", .want = {}};
    row.power = rng.below(2) ? Power::On : Power::Off;
    row.link = rng.below(2) ? Link::Connected : Link::Cut;
    row.deleting = rng.below(4) == 0;
    row.alive = rng.below(2);
    row.leftovers = rng.below(2);
    row.wire = static_cast<Wire>(rng.below(3));
    Observation world = seen_in(row);
    const Machine machine = machine_of(row);
    for (const Step step : plan_machine(machine, world, kNow).steps) apply(step, world);
    const MachinePlan after = plan_machine(machine, world, kNow);
    if (row.deleting) {
      EXPECT_EQ(world, Observation{}) << "seed " << seed;
      EXPECT_THAT(after.steps, testing::ElementsAre(Step::Forget)) << "seed " << seed;
    } else {
      EXPECT_THAT(after.steps, IsEmpty()) << "seed " << seed;
      EXPECT_EQ(world.process.has_value(), row.power == Power::On) << "seed " << seed;
      if (row.power == Power::On) {
        EXPECT_EQ(world.wire, row.link == Link::Cut ? Wire::Cut : Wire::Up) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace fairlead::fleet
