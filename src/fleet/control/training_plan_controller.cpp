// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/training_plan_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/cluster.h"
#include "api/instance_types.h"
#include "base/log.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

const kube::ObjectKey TrainingPlanController::kAll{"", "all"};

kube::Access training_plan_access() { return kube::Access().may({"list"}, api::kTrainingPlans).may({"update"}, api::kTrainingPlans, "status").may({"list", "update"}, resources::nodes); }

namespace {

// What decides of a Node whether plans may count on it, and what is marked on it.
Json as_machine(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  return Json::array({node["metadata"]["labels"], node["metadata"]["annotations"][api::kWantedBack], node["metadata"]["deletionTimestamp"], node["spec"]["unschedulable"], node["spec"]["taints"], node["status"]["capacity"], ready == nullptr ? Json() : (*ready)["status"]});
}
Json as_holder(const Json& instance) { return Json::array({instance["status"]["node"], instance["metadata"]["deletionTimestamp"], instance["spec"]["replace"]}); }
Json as_owner(const Json& cluster) { return Json::array({cluster["metadata"]["generation"], cluster["metadata"]["deletionTimestamp"], cluster["status"]["failed"]}); }

bool is_of(const Json& node) {
  const Json& labels = node["metadata"]["labels"];
  return labels[api::kSpareLabel].string() == "true" || labels.has(api::kPlanLabel) || node["metadata"]["annotations"].has(api::kWantedBack);
}

}  // namespace

std::vector<kube::Controller::Source> TrainingPlanController::sources() const {
  // Where nobody plans, nothing is done at all; a mark that is left from then is seen at the node that has it.
  const auto where = [this](const kube::Change& change, bool news) {
    std::vector<kube::ObjectKey> out;
    if (news && (change.object()["metadata"]["labels"].has(api::kPlanLabel) || any_)) out.push_back(kAll);
    return out;
  };
  const auto of = [where](Json (*seen)(const Json&)) {
    return [where, seen](const kube::Change& change) { return where(change, !change.before || !change.after || seen(*change.before) != seen(*change.after)); };
  };
  const auto of_node = [where](const kube::Change& change) {
    const bool ours = (change.before && is_of(*change.before)) || (change.after && is_of(*change.after));
    return where(change, ours && (!change.before || !change.after || as_machine(*change.before) != as_machine(*change.after)));
  };
  const auto of_plan = [this](const kube::Change&) {
    any_ = true;
    return std::vector<kube::ObjectKey>{kAll};
  };
  return {{api::kTrainingPlans, "", of_plan}, {resources::nodes, "", of_node}, {api::kInstances, "", of(as_holder)}, {api::kClusters, "", of(as_owner)}};
}

std::vector<api::PlanMachine> TrainingPlanController::machines(const api::Plans& plans, Instant now, const std::vector<Json>* nodes, std::optional<Instant>& look_again, std::map<std::string, int>& waiting) const {
  api::Inventory inventory(plans, now);
  caches_->of(api::kClusters).each("", [&](const Json& object) { inventory.cluster(object); });
  caches_->of(api::kInstances).each("", [&](const Json& object) { inventory.instance(object); });
  if (nodes != nullptr)
    for (const Json& object : *nodes) inventory.node(object);
  else
    caches_->of(resources::nodes).each("", [&](const Json& object) { inventory.node(object); });
  look_again = inventory.look_again();
  waiting = inventory.waiting();
  return inventory.machines();
}

// By the version on which it was decided: a cluster that took the machine meanwhile keeps it, and the next round sees that.
Result<void> TrainingPlanController::mark(const ReservationPlan::Mark& mark) {
  auto node = caches_->of(resources::nodes).get({"", mark.node});
  // The cache may have gone on since.
  if (!node || kube::version_of(*node) != mark.version) return fail(Code::Conflict, fmt::format("Node {} has changed", mark.node));
  // Not kept: a member that is added moves the others.
  const auto put = [&](const char* part, const char* name, const std::string& value) {
    Json& metadata = node->child("metadata");
    if (!value.empty()) metadata.child(part).set(name, value);
    else if (Json* all = metadata.find(part); all != nullptr && all->is_object()) all->erase(name);
  };
  put("labels", api::kPlanLabel, mark.plan);
  put("annotations", api::kWantedBack, mark.wanted_back);
  log_info("a machine and its plan", {{"node", mark.node}, {"plan", mark.plan}, {"wanted_back", mark.wanted_back}});
  auto done = api_.update(resources::nodes, *node);
  if (!done) return std::unexpected(std::move(done.error()).in("mark Node " + mark.node));
  return {};
}

// False: not yet. What caches say is not enough here: a mark that was taken away a moment ago may still be seen there, and its machine be in use by now.
Result<bool> TrainingPlanController::grant(const ReservationPlan::Due& due, const std::vector<Json>& objects, const api::Plans& plans, Instant now) {
  const auto marked = api_.list(resources::nodes, "", {.label_selector = api::kPlanLabel, .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = {}});
  if (!marked) return pass(marked.error(), "read the Nodes that are kept for plans");
  std::optional<Instant> unused;
  std::map<std::string, int> not_needed;
  if (!is_secured(due, plans, machines(plans, now, &marked->items, unused, not_needed), now)) return false;
  for (const Json& object : objects) {
    if (kube::name_of(object) != due.plan) continue;
    Json changed = object;
    changed.set("status", granted_status(object, due, now));
    if (auto done = api_.update_status(api::kTrainingPlans, changed); !done) return pass(std::move(done.error()), "grant plan " + due.plan);
    log_info("a plan is granted", {{"plan", due.plan}, {"extension", due.extension}, {"type", due.type}, {"machines", std::to_string(due.wanted.count)}, {"from", print_time(due.wanted.window.start)}, {"to", print_time(due.wanted.window.end)}});
  }
  return true;
}

// Kept in memory alone: after a restart what is out of order is given its time anew.
void TrainingPlanController::remember(std::vector<api::PlanMachine>& all, Instant now, std::optional<Instant>& look_again) {
  constexpr std::chrono::minutes lately{5};
  std::map<std::string, Instant> broken;
  for (api::PlanMachine& one : all) {
    if (one.healthy) continue;
    const auto before = broken_.find(one.node);
    const Instant since = before == broken_.end() ? now : std::min(now, before->second);
    broken.emplace(one.node, since);
    one.lately = now < since + lately;
    if (one.lately) look_again = std::min(look_again.value_or(since + lately), since + lately);
  }
  broken_ = std::move(broken);
}

Result<kube::Next> TrainingPlanController::reconcile(const kube::ObjectKey&) {
  constexpr std::size_t many = 1000;
  constexpr std::chrono::nanoseconds pace = std::chrono::seconds(1);
  if (const auto since = clock_.monotonic() - looked_; seen_ > many && since < pace) return kube::Next{pace - since};
  // Fresh: what was granted in the last round has to be seen in this one.
  const auto list = api_.list(api::kTrainingPlans, "");
  if (!list) return pass(list.error(), "read the training plans");
  const std::vector<Json>& objects = list->items;
  const Instant now = clock_.now();
  const api::Plans plans = read_plans(objects);
  any_ = !objects.empty();
  std::optional<Instant> look_again;
  std::map<std::string, int> waiting;
  std::vector<api::PlanMachine> all = machines(plans, now, nullptr, look_again, waiting);
  remember(all, now, look_again);
  seen_ = all.size();
  looked_ = clock_.monotonic();
  const ReservationPlan plan = plan_reservations(objects, all, waiting, now);
  // One that fails holds up no other.
  std::optional<Error> failed;
  const auto note = [&](Error error) {
    if (!failed || failed->code == Code::Conflict) failed = std::move(error);
  };
  int failures = 0;
  constexpr int most_failures = 20;  // an API that does not answer is not asked a thousand times
  for (const ReservationPlan::Mark& one : plan.marks)
    if (auto done = mark(one); !done) {
      const Code code = done.error().code;
      note(std::move(done.error()));
      if (code == Code::Unavailable && ++failures >= most_failures) break;
    }
  // A Node that cannot be written holds up nobody for whom there are enough others: that is looked at anew, by the API itself.
  std::set<std::string> granted;  // plans
  for (const ReservationPlan::Due& due : plan.due) {
    auto done = grant(due, objects, plans, now);
    if (!done) note(std::move(done.error()));
    else if (*done) granted.insert(due.plan);
  }
  for (const ReservationPlan::Status& one : plan.statuses) {
    if (granted.contains(one.plan)) continue;  // written a moment ago, with another version
    for (const Json& object : objects) {
      if (kube::name_of(object) != one.plan) continue;
      Json changed = object;
      if (changed["status"]["phase"] != one.status["phase"]) log_info("training plan", {{"plan", one.plan}, {"status", one.status["phase"].string()}, {"message", one.status["message"].string()}});
      changed.set("status", one.status);
      if (auto done = api_.update_status(api::kTrainingPlans, changed); !done) note(std::move(done.error()).in("write the status of training plan " + one.plan));
    }
  }
  if (failed) return std::unexpected(std::move(*failed));
  if (!plan.due.empty()) return kube::Next{std::chrono::nanoseconds(std::chrono::seconds(1))};
  if (plan.look_again) look_again = std::min(look_again.value_or(*plan.look_again), *plan.look_again);
  if (!look_again) return kube::Next{};
  return kube::Next{std::max(std::chrono::nanoseconds(*look_again - now), std::chrono::nanoseconds(std::chrono::milliseconds(1)))};
}

}  // namespace fairlead::fleet
