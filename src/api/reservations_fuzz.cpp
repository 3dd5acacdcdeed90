// SPDX-License-Identifier: Apache-2.0
// Ids of offerings, names of plans, and whole TrainingPlans as people may write them.
#include "api/reservations.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "kube/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto offering = api::parse_offering_id(text); offering && (api::offering_id(*offering) != text || offering->window.start >= offering->window.end)) std::abort();
  if (const auto offering = api::parse_extension_id(text); offering && api::extension_id(*offering) != text) std::abort();
  if (api::plan_object_name(text).size() > 63) std::abort();
  if (const auto object = kube::parse_json(text)) {
    const api::TrainingPlan plan = api::read_training_plan(*object);
    if (plan.count > api::kMostPlanned) std::abort();
    for (const Instant now : {Instant(), Instant(std::chrono::hours(500'000))}) (void)plan.phase(now);
    api::Plans plans{{plan.name, plan}};
    api::Inventory inventory(plans, Instant(std::chrono::hours(500'000)));
    inventory.cluster(*object);
    inventory.instance(*object);
    inventory.node(*object);
    (void)inventory.machines();
  }
  return 0;
}
