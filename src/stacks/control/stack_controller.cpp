// SPDX-License-Identifier: Apache-2.0
#include "stacks/control/stack_controller.h"

#include <fmt/format.h>

#include "api/cluster.h"
#include "base/log.h"

namespace fairlead::stacks {

using kube::Json;

kube::Access stack_access() {
  return kube::Access().may({"get", "update", "delete"}, api::kStacks).may({"update"}, api::kStacks, "status").may({"get", "create", "update", "delete"}, api::kClusters);
}

std::vector<kube::Controller::Source> StackController::sources() const {
  const auto of_cluster = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
      if (object != nullptr)
        if (const std::string& stack = (*object)["metadata"]["labels"][api::kStackLabel].string(); !stack.empty()) out.push_back({"", stack});
    return out;
  };
  return {{api::kStacks, "", kube::key_itself}, {api::kClusters, "", of_cluster}};
}

Result<void> StackController::take(const StackStep& step) {
  const auto forget = [](auto result) -> Result<void> {
    if (!result) return std::unexpected(std::move(result.error()));
    return {};
  };
  switch (step.verb) {
    case StackStep::Verb::Create: {
      // One that is there is looked at in the next round: ours, by a round whose end we have not seen, or somebody else's.
      auto done = api_.create(api::kClusters, step.object);
      if (!done && done.error().code == Code::Exists) return fail(Code::Conflict, fmt::format("cluster {} is there already", kube::name_of(step.object)));
      return forget(std::move(done));
    }
    case StackStep::Verb::Update: return forget(api_.update(api::kClusters, step.object));
    case StackStep::Verb::Delete: {
      auto done = api_.remove(api::kClusters, kube::key_of(step.object), {.grace_seconds = {}, .uid = kube::uid_of(step.object), .resource_version = kube::version_of(step.object)});
      if (!done && done.error().code == Code::NotFound) return {};
      return done;
    }
  }
  return {};
}

// Nothing is left of it: the object goes, and with it its name is free.
Result<void> StackController::finish(const Json& stack) {
  if (!kube::deleting(stack)) {
    auto done = api_.remove(api::kStacks, kube::key_of(stack), {.grace_seconds = {}, .uid = kube::uid_of(stack), .resource_version = kube::version_of(stack)});
    if (!done && done.error().code != Code::NotFound) return done;
    return {};
  }
  if (!kube::has_finalizer(stack, api::kStackFinalizer)) return {};
  Json changed = stack;
  kube::remove_finalizer(changed, api::kStackFinalizer);
  const auto done = api_.update(api::kStacks, changed);
  if (!done && done.error().code != Code::NotFound) return std::unexpected(done.error());
  return {};
}

Result<kube::Next> StackController::reconcile(const kube::ObjectKey& key) {
  // Of the API itself, not of caches: what a stack decides on is a handful of objects, and each round is one of a few.
  auto stack = api_.get(api::kStacks, key);
  if (!stack && stack.error().code == Code::NotFound) return kube::Next{};
  if (!stack) return pass(std::move(stack.error()), "read stack " + key.name);
  if (!kube::deleting(*stack) && !kube::has_finalizer(*stack, api::kStackFinalizer)) {
    kube::add_finalizer(*stack, api::kStackFinalizer);
    auto done = api_.update(api::kStacks, *stack);
    if (!done) return pass(std::move(done.error()), "mark stack " + key.name);
    stack = std::move(done);
  }
  StackSnapshot snapshot{.stack = std::move(*stack), .clusters = {}};
  for (const std::string& name : clusters_of(snapshot.stack)) {
    auto cluster = api_.get(api::kClusters, {"", name});
    if (!cluster && cluster.error().code == Code::NotFound) continue;
    if (!cluster) return pass(std::move(cluster.error()), "read cluster " + name);
    snapshot.clusters.emplace(name, std::move(*cluster));
  }
  StackPlan plan = plan_stack(snapshot, clock_.now());
  // First what is to be done is written down, then it is done: a write that comes too late finds another version.
  if (!plan.status.is_null()) {
    const Json before = snapshot.stack["status"];
    snapshot.stack.set("status", std::move(plan.status));
    const Json& after = snapshot.stack["status"];
    if (before["phase"] != after["phase"]) log_info("stack", {{"stack", key.name}, {"status", after["phase"].string()}, {"reason", after["reason"].string()}});
    auto done = api_.update_status(api::kStacks, snapshot.stack);
    if (!done) return pass(std::move(done.error()), "write the status of stack " + key.name);
    snapshot.stack = std::move(*done);
  } else if (!plan.steps.empty() || plan.gone) {
    const auto now = api_.get(api::kStacks, key);
    if (!now) return pass(Error(now.error()), "read stack " + key.name);
    if (kube::version_of(*now) != kube::version_of(snapshot.stack)) return fail(Code::Conflict, fmt::format("stack {} has changed", key.name));
  }
  std::optional<Error> failed;
  for (const StackStep& step : plan.steps) {
    log_info("stack step", {{"stack", key.name}, {"cluster", kube::name_of(step.object)}, {"why", step.why}});
    auto done = take(step);
    if (done) continue;
    // What is refused for good is told, not tried again.
    if (done.error().code == Code::Invalid || done.error().code == Code::Forbidden)
      if (Json status = plan_refused(snapshot.stack, step.resource, done.error().message, clock_.now()); !status.is_null()) {
        snapshot.stack.set("status", std::move(status));
        auto told = api_.update_status(api::kStacks, snapshot.stack);
        if (!told) return pass(std::move(told.error()), "write the status of stack " + key.name);
        snapshot.stack = std::move(*told);
        continue;
      }
    if (!failed || failed->code == Code::Conflict) failed = std::move(done.error()).in("cluster " + kube::name_of(step.object));
  }
  if (failed) return std::unexpected(std::move(*failed).in("stack " + key.name));
  if (plan.gone && plan.status.is_null())
    if (auto done = finish(snapshot.stack); !done) return pass(std::move(done.error()), "end stack " + key.name);
  return kube::Next{plan.look_again};
}

}  // namespace fairlead::stacks
