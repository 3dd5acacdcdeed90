// SPDX-License-Identifier: Apache-2.0
#include "governance/control/owner_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/team_crds.h"
#include "base/log.h"
#include "governance/plan/pods_ready.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using What = OwnerStep::What;
namespace queues = api::queues;

std::vector<kube::Controller::Source> OwnerController::sources_of_stuck() const {
  const auto who_waits = [this](const kube::Change&) {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> out;
    for (const auto& [key, why] : stuck_) out.push_back(key);
    return out;
  };
  const auto who_has_it = [this](const kube::Change& change) {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> out;
    for (const auto& [key, why] : stuck_) out.push_back(key);
    const auto users = users_.find(kube::name_of(change.object()));
    if (users == users_.end()) return out;
    for (const auto& [workload, owner] : users->second) out.push_back(owner);
    return out;
  };
  return {{queues::flavors, "", who_waits}, {queues::priority_classes, "", who_has_it}, {kPriorityClasses, "", who_waits}};
}

kube::Controller::Source OwnerController::source_of_ready_rules(std::function<std::vector<ObjectKey>()> owners) const {
  return {api::teams::configs, "", [owners = std::move(owners)](const kube::Change& change) {
            const auto rules = [](const std::optional<Json>& state) { return state ? (*state)["spec"]["waitForPodsReady"] : Json(); };
            return rules(change.before) == rules(change.after) ? std::vector<ObjectKey>() : owners();
          }};
}

bool OwnerController::tells_ready() const { return ready_rules(caches_->of(api::teams::configs).list("")).has_value(); }

void OwnerController::note_class(const kube::Change& change, const ObjectKey& owner) const {
  const auto class_of = [](const std::optional<Json>& state) {
    if (!state) return std::string();
    const Json& ref = (*state)["spec"]["priorityClassRef"];
    return ref["kind"].string() == queues::priority_classes.kind ? ref["name"].string() : std::string();
  };
  const ObjectKey workload = kube::key_of(change.object());
  const std::string before = class_of(change.before), after = class_of(change.after);
  if (const auto at = users_.find(before); before != after && at != users_.end()) {
    at->second.erase(workload);
    if (at->second.empty()) users_.erase(at);
  }
  if (!after.empty()) users_[after].insert_or_assign(workload, owner);
}

kube::Access OwnerController::shared_access() {
  kube::Access access;
  return access.may({"get", "create", "update", "delete"}, queues::workloads).may({"update"}, queues::workloads, "status").may({"create"}, kube::resources::events);
}

JobPriority OwnerController::priority_of(const std::string& label, const std::string& class_of_pods, const std::string& where) const {
  const auto of = [this](const std::string& kind) -> const kube::Reader& { return caches_->of(kind == kPriorityClasses.kind ? kPriorityClasses : queues::priority_classes); };
  return priority_from({.find = [&](const std::string& kind, const std::string& name) { return of(kind).get({"", name}); },
                        .each = [&](const std::string& kind, const std::function<void(const Json&)>& to) { of(kind).each("", to); }},
                       label, class_of_pods, where);
}

FlavorsByName OwnerController::flavors_of(const std::vector<Json>& workloads) const {
  FlavorsByName out;
  for (const Json& workload : workloads)
    for (const Json& assignment : workload["status"]["admission"]["podSetAssignments"].items())
      for (const auto& [resource, flavor] : assignment["flavors"].members())
        if (!out.contains(flavor.string())) out[flavor.string()] = caches_->of(queues::flavors).get({"", flavor.string()}).value_or(Json());
  return out;
}

Json OwnerController::newest(const kube::Resource& resource, const ObjectKey& key) const {
  const Json cached = caches_->of(resource).get(key).value_or(Json());
  const std::lock_guard lock(mutex_);
  const auto at = written_.find({resource.plural, key});
  if (at == written_.end()) return cached;
  if (!cached.is_null() && version_before(kube::version_of(cached), kube::version_of(at->second))) return at->second;
  written_.erase(at);
  return cached;
}

void OwnerController::remember(const kube::Resource& resource, const Json& object) {
  const std::lock_guard lock(mutex_);
  written_.insert_or_assign({resource.plural, kube::key_of(object)}, object);
}

void OwnerController::forget(const kube::Resource& resource, const ObjectKey& key) const {
  const std::lock_guard lock(mutex_);
  written_.erase({resource.plural, key});
}

bool OwnerController::problem_is_new(const ObjectKey& key, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (problem.empty()) {
    stuck_.erase(key);
    return false;
  }
  std::string& last = stuck_[key];
  if (last == problem) return false;
  last = problem;
  return true;
}

// A cache may be behind; what cannot be undone is decided on what is there.
Result<bool> OwnerController::is_as_decided(const OwnerCase& now, const std::vector<Json>& workloads) {
  const ObjectKey key = now.workload_key();
  auto there = api_.get(queues::workloads, key);
  if (!there && there.error().code != Code::NotFound) return pass(std::move(there.error()), "read Workload " + key.text());
  const auto same = std::find_if(workloads.begin(), workloads.end(), [&](const Json& one) { return kube::key_of(one) == key; });
  if (!there || same == workloads.end()) return !there && same == workloads.end();
  return kube::version_of(*there) == kube::version_of(*same);
}

Result<Json> OwnerController::apply(const OwnerStep& step, const OwnerCase& now) {
  const ObjectKey key = kube::key_of(step.object);
  switch (step.what) {
    case What::CreateWorkload: {
      auto made = api_.create(queues::workloads, step.object);
      if (made || made.error().code != Code::Exists) return made;
      auto there = api_.get(queues::workloads, key);
      if (!there) return there;
      const auto &owners = (*there)["metadata"]["ownerReferences"].items(), &wanted = step.object["metadata"]["ownerReferences"].items();
      const bool ours = std::any_of(owners.begin(), owners.end(), [&](const Json& one) {
        return std::any_of(wanted.begin(), wanted.end(), [&](const Json& other) { return one["uid"].string() == other["uid"].string() && one["controller"].boolean() == other["controller"].boolean(); });
      });
      if (ours) return there;  // made by a round that this one has not seen
      return fail(Code::Internal, fmt::format("a Workload {} is there that does not belong to this {}: delete it", key.name, owners_.kind));
    }
    case What::UpdateWorkload: return api_.update(queues::workloads, step.object);
    case What::WorkloadStatus: return api_.update_status(queues::workloads, step.object);
    case What::UpdateOwner: return api_.update(owners_, step.object);
    case What::OwnerStatus: return api_.update_status(owners_, step.object);
    case What::DeleteWorkload:
    case What::DeleteOwner: {
      const bool owner = of_owner(step.what);
      auto gone = api_.remove(owner ? owners_ : queues::workloads, key, {.grace_seconds = {}, .uid = kube::uid_of(step.object), .resource_version = kube::version_of(step.object), .propagation = kube::DeleteOptions::Propagation::Background});
      if (!gone) return std::unexpected(std::move(gone.error()));
      if (!owner) return Json();
      auto going = api_.get(owners_, key);
      if (going || going.error().code != Code::NotFound) return going;
      return Json(step.object).set("metadata", Json(step.object["metadata"]).set("deletionTimestamp", print_time(now.now)).set("finalizers", Json::array()));
    }
  }
  return Json();
}

Result<kube::Next> OwnerController::reconcile(const ObjectKey& key) {
  auto observed = observe(key);
  if (!observed) return std::unexpected(std::move(observed.error()));
  if (*observed == nullptr) {
    (void)problem_is_new(key, "");
    return kube::Next{};
  }
  OwnerCase& now = **observed;
  for (int round = 0, most = now.steps_at_once(); round < most; ++round) {
    const OwnerPlan plan = now.plan();
    if (problem_is_new(key, plan.problem) && !now.about().is_null()) tell(api_, owners_, now.about(), {true, "NotQueued", plan.problem}, now.now);
    if (!plan.step) return kube::Next{};
    const OwnerStep& step = *plan.step;
    if (step.gives_back) {
      const auto any = has_pods(step.object);
      if (!any) return std::unexpected(any.error());
      if (*any) return kube::Next{500ms};
    }
    if (step.stops) {
      const auto same = is_as_decided(now, now.workloads());
      if (!same) return std::unexpected(same.error());
      if (!*same) return kube::Next{100ms};
    }
    auto done = apply(step, now);
    if (!done && done.error().code == Code::NotFound) return kube::Next{};  // its deletion will be told
    if (!done) return pass(std::move(done.error()), fmt::format("{} {}", text(step.what, owners_.kind), kube::key_of(step.object).text()));
    if (const Json& about = of_owner(step.what) ? step.object : now.about(); step.note && !about.is_null()) tell(api_, owners_, about, *step.note, now.now);
    log_debug("step of a workload's owner", {{"owner", key.text()}, {"step", text(step.what, owners_.kind)}});
    if (done->is_null()) return kube::Next{};
    const bool gone = kube::deleting(*done) && (*done)["metadata"]["finalizers"].items().empty();
    if (step.what == What::DeleteOwner && gone) {
      now.take(std::move(*done));
      continue;
    }
    if (kube::version_of(*done) == kube::version_of(step.object) || gone) return kube::Next{};  // the API takes it as it was
    remember(of_owner(step.what) ? owners_ : queues::workloads, *done);
    if (of_owner(step.what)) {
      now.take(std::move(*done));
      continue;
    }
    auto& workloads = now.workloads();
    const auto same = std::find_if(workloads.begin(), workloads.end(), [&](const Json& one) { return kube::key_of(one) == kube::key_of(*done); });
    if (same != workloads.end()) *same = std::move(*done);
    else workloads.push_back(std::move(*done));
  }
  return kube::Next{1s};
}

}  // namespace fairlead::governance
