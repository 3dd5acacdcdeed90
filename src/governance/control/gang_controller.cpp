// SPDX-License-Identifier: Apache-2.0
#include "governance/control/gang_controller.h"

#include <algorithm>

#include "base/log.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;

namespace {

constexpr std::chrono::seconds kLookEvery{15};

struct GangCase final : OwnerCase {
  explicit GangCase(const GangKind& of) : kind(of) {}
  OwnerPlan plan() const override { return plan_gang(kind, in); }
  const Json& about() const override { return in.gang; }
  std::vector<Json>& workloads() override { return in.workloads; }
  void take(Json owner) override { in.gang = std::move(owner); }
  ObjectKey workload_key() const override { return {kube::space_of(in.gang), gang_workload_name(kind, in.gang)}; }
  const GangKind& kind;
  GangInput in;
};

std::string definition_of(const GangKind& kind) { return kind.resource.plural + "." + kind.resource.group; }

bool serves(const Json& definition, const std::string& version) {
  const auto& versions = definition["spec"]["versions"].items();
  return !kube::deleting(definition) && std::any_of(versions.begin(), versions.end(), [&](const Json& one) { return one["name"].string() == version && one["served"].boolean(); });
}

}  // namespace

std::vector<kube::Controller::Source> GangController::sources() const {
  std::vector<Source> out = sources_of_stuck();
  out.push_back(source_of_ready_rules([this] {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectKey> owners;
    for (const auto& [owner, workloads] : owned_) owners.push_back(owner);
    return owners;
  }));
  out.push_back({kind_.resource, "", [](const kube::Change& change) {
                   for (const auto* state : {&change.before, &change.after})
                     if (*state && !(**state)["metadata"]["labels"][kQueueLabel].string().empty()) return std::vector<ObjectKey>{kube::key_of(change.object())};
                   return std::vector<ObjectKey>();
                 }});
  out.push_back({queues::workloads, "", [this](const kube::Change& change) { return note_workload(change); }});
  return out;
}

std::optional<kube::Access> GangController::access() const {
  kube::Access access = shared_access();
  return access.may({"get", "update"}, kind_.resource).may({"update"}, kind_.resource, "finalizers").may({"list"}, kube::resources::pods);
}

std::vector<ObjectKey> GangController::note_workload(const kube::Change& change) const {
  const Json* owner = kube::controller_of(change.object());
  const ObjectKey workload = kube::key_of(change.object());
  if (owner == nullptr || (*owner)["kind"].string() != kind_.resource.kind || !(*owner)["apiVersion"].string().starts_with(kind_.resource.group + "/")) return {};
  const ObjectKey gang{workload.space, (*owner)["name"].string()};
  const std::lock_guard lock(mutex_);
  note_class(change, gang);
  if (change.after) {
    owned_[gang].insert(workload);
  } else if (const auto at = owned_.find(gang); at != owned_.end()) {
    at->second.erase(workload);
    if (at->second.empty()) owned_.erase(at);
  }
  return {gang};
}

Result<std::unique_ptr<OwnerCase>> GangController::observe(const ObjectKey& key) {
  auto out = std::make_unique<GangCase>(kind_);
  GangInput& in = out->in;
  in.now = out->now = clock_.now();
  in.tells_ready = tells_ready();
  in.gang = newest(kind_.resource, key);
  std::set<ObjectKey> owned;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = owned_.find(key); at != owned_.end()) owned = at->second;
  }
  if (in.gang.is_null() && !owned.empty()) {  // is it gone, or has the cache not seen it yet?
    auto now = api_.get(kind_.resource, key);
    if (now) in.gang = std::move(*now);
    else if (now.error().code != Code::NotFound) return pass(std::move(now.error()), "read " + kind_.resource.kind + " " + key.text());
  }
  if (!in.gang.is_null()) owned.insert({key.space, gang_workload_name(kind_, in.gang)});
  for (const ObjectKey& one : owned) {
    Json workload = newest(queues::workloads, one);
    const Json* owner = workload.is_null() ? nullptr : kube::controller_of(workload);
    if (owner == nullptr || (*owner)["name"].string() != key.name || (*owner)["kind"].string() != kind_.resource.kind) continue;
    in.workloads.push_back(std::move(workload));
  }
  in.flavors = flavors_of(in.workloads);
  if (!in.gang.is_null()) in.priority = priority_of(in.gang["metadata"]["labels"][kPriorityLabel].string(), priority_class_of_pods(kind_, in.gang), kind_.parts);
  return out;
}

// What its status says may be older than its pods, and it may be gone before them.
Result<bool> GangController::has_pods(const Json& workload) {
  const Json* owner = kube::controller_of(workload);
  if (owner == nullptr) return false;
  const std::string &name = (*owner)["name"].string(), &uid = (*owner)["uid"].string();
  kube::ListOptions options;
  if (!kind_.pods_label.empty()) options.label_selector = kind_.pods_label + "=" + name;
  auto pods = api_.list(kube::resources::pods, kube::space_of(workload), options);
  if (!pods) return pass(std::move(pods.error()), "list the pods of Workload " + kube::key_of(workload).text());
  return std::any_of(pods->items.begin(), pods->items.end(), [&](const Json& pod) {
    const std::string& phase = pod["status"]["phase"].string();
    if (phase == "Succeeded" || phase == "Failed") return false;
    if (!kind_.pods_label.empty()) return true;
    // Of the operator that SageMaker has: its pods are NAME-pod-...
    const auto& owners = pod["metadata"]["ownerReferences"].items();
    return std::any_of(owners.begin(), owners.end(), [&](const Json& one) { return one["uid"].string() == uid; }) || kube::name_of(pod).starts_with(name + "-pod-");
  });
}

std::vector<kube::Controller::Source> GangKindsController::sources() const {
  // There is always some namespace; all of them are one key.
  return {{kube::resources::namespaces, "", [](const kube::Change&) { return std::vector<ObjectKey>{{"", "kinds"}}; }}};
}

std::optional<kube::Access> GangKindsController::access() const {
  kube::Access access;
  std::vector<std::string> definitions;
  for (const GangKind& kind : gang_kinds()) {
    definitions.push_back(definition_of(kind));
    access.add(kube::full_access(GangController(api_, clock_, kind)));
  }
  return access.may({"get"}, kube::resources::crds, "", "", definitions);
}

Result<kube::Next> GangKindsController::reconcile(const ObjectKey&) {
  for (const GangKind& kind : gang_kinds()) {
    const auto definition = api_.get(kube::resources::crds, {"", definition_of(kind)});
    if (!definition && definition.error().code != Code::NotFound) return pass(Error(definition.error()), "read definition " + definition_of(kind));
    const bool there = definition && serves(*definition, kind.resource.version);
    std::unique_ptr<kube::Runner> ends;
    const std::lock_guard lock(mutex_);
    const auto at = runners_.find(kind.resource.plural);
    if (there && at == runners_.end()) {
      auto runner = std::make_unique<kube::Runner>(api_, clock_, seed_ ^ std::hash<std::string>()(kind.resource.plural));
      runner->add(std::make_unique<GangController>(api_, clock_, kind));
      runner->start();
      runners_[kind.resource.plural] = std::move(runner);
      log_info("objects of another kind are queued from now on", {{"kind", kind.resource.kind}});
    } else if (!there && at != runners_.end()) {
      ends = std::move(at->second);
      runners_.erase(at);
      log_info("a kind is gone: its objects are queued no more", {{"kind", kind.resource.kind}});
    }
  }
  return kube::Next{kLookEvery};
}

std::vector<std::string> GangKindsController::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> out;
  for (const auto& [plural, runner] : runners_) out.push_back(plural);
  return out;
}

}  // namespace fairlead::governance
