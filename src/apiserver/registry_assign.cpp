// SPDX-License-Identifier: Apache-2.0
// What the server chooses for an object before it is checked: addresses of services, the class of a claim. And evictions, which budgets have a say in.
#include <fmt/format.h>

#include "apiserver/budget_plan.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/registry_write.h"
#include "base/log.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;
using workloads::is;

Result<void> EmbeddedRegistry::follow_services() {
  if (options_.service_ranges.empty()) return {};
  auto made = ServiceAddresses::make(options_.service_ranges);
  if (!made) return std::unexpected(std::move(made.error()));
  addresses_ = std::move(*made);
  const auto note = [this](const std::string& key, const Value& value) {
    const auto service = value ? kube::parse_json(*value.bytes()) : Result<Json>(fail(Code::NotFound, ""));
    addresses_->note(key, service ? &*service : nullptr);
  };
  const std::string prefix = store_prefix(kube::resources::services);
  auto services = store_.range(prefix, "", 0, 0);
  if (!services) return pass(std::move(services.error()), "load Services");
  for (const Entry& entry : services->entries) note(entry.key, entry.value);
  auto watching = store_.watch(prefix, services->revision, [note](const StoreEvent& event) { note(event.key, event.value); });
  if (!watching) return pass(std::move(watching.error()), "watch Services");
  service_watch_ = std::move(*watching);
  return {};
}

void EmbeddedRegistry::assign(const kube::Resource& resource, Json& object, const Json* old, FieldErrors& errors) const {
  if (is(resource, kube::resources::services) && addresses_) return addresses_->assign(object, old, errors);
  if (is(resource, kube::resources::services) && object["spec"]["clusterIP"].string() != "None")
    return errors.not_supported_here("spec.clusterIP", "this server has no service addresses: set clusterIP: None (a headless service, whose name resolves to the addresses of its pods)");
  if (!is(resource, kube::resources::claims) || old != nullptr || object["spec"].has("storageClassName") || object["metadata"]["annotations"].has("volume.beta.kubernetes.io/storage-class")) return;
  // The youngest of those that are marked as default, as Kubernetes' DefaultStorageClass.
  const auto kind = kinds()->find(workloads::storage_classes.group, workloads::storage_classes.version, workloads::storage_classes.plural);
  const auto classes = kind ? list(*kind, "", {}) : Result<ListPage>(fail(Code::NotFound, ""));
  std::string chosen, created;
  if (!classes) return;
  for (const Listed& one : classes->objects) {
    const auto storage = kube::parse_json(*one.value.bytes());
    if (!storage || (*storage)["metadata"]["annotations"][workloads::default_class_annotation].string() != "true") continue;
    const std::string& time = (*storage)["metadata"]["creationTimestamp"].string();
    if (!chosen.empty() && time <= created) continue;
    chosen = kube::name_of(*storage);
    created = time;
  }
  if (!chosen.empty() && object["spec"].is_object()) object.child("spec").set("storageClassName", chosen);
}

Reply EmbeddedRegistry::forgetting(const kube::Resource& resource, const Json& object, bool dry_run, Reply reply) const {
  if (!is(resource, kube::resources::services) || !addresses_) return reply;
  return [this, uid = kube::uid_of(object), dry_run, reply = std::move(reply)](Result<Written> done) {
    if (!done || dry_run) addresses_->forget(uid);
    reply(std::move(done));
  };
}

Result<std::optional<Json>> EmbeddedRegistry::budget_of(const kube::ObjectKey& key, const Json& pod) const {
  const auto kind = kinds()->find(workloads::budgets.group, workloads::budgets.version, workloads::budgets.plural);
  const auto budgets = kind ? list(*kind, key.space, {}) : Result<ListPage>(ListPage{});
  if (!budgets) return std::unexpected(budgets.error());
  std::optional<Json> found;
  for (const Listed& one : budgets->objects) {
    auto budget = kube::parse_json(*one.value.bytes());
    if (!budget || (*budget)["spec"]["selector"].is_null()) continue;
    const auto selector = kube::LabelSelector::from_object((*budget)["spec"]["selector"]);
    if (!selector || !selector->matches(pod["metadata"]["labels"])) continue;
    if (found) return fail(Code::Internal, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.");
    found = std::move(*budget);
  }
  return found;
}

// Charges the budget first, then deletes: of two evictions at once the budget decides. If the delete comes to nothing, the budget's controller forgets the charge.
void EmbeddedRegistry::evict(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply) {
  const auto object = get(kind, key);
  if (!object) return reply(std::unexpected(object.error()));
  const auto pod = kube::parse_json(*object->bytes);
  if (!pod) return reply(std::unexpected(pod.error()));
  if (!options.uid.empty() && options.uid != kube::uid_of(*pod)) return remove(context, kind, key, options, std::move(reply));  // it says why not
  auto budget = budget_of(key, *pod);
  if (!budget) return reply(std::unexpected(std::move(budget.error())));
  const auto budgets = kinds()->find(workloads::budgets.group, workloads::budgets.version, workloads::budgets.plural);
  const auto go = [this, context, served = current(kind), key, options, reply] {
    if (context.dry_run || !served) return served ? remove_unasked(context, *served, key, options, reply) : reply(not_served());
    mutate(context, *served, key, true, [this](const CurrentObject& now) {
      Json next = now.object;
      // Who watches the pod learns that nobody meant it in particular.
      kube::set_condition(next, {.type = "DisruptionTarget", .status = "True", .reason = "EvictionByEvictionAPI", .message = "Eviction API: evicting"}, clock_.now());
      for (Json& condition : next.child("status").child("conditions").items()) condition.erase("observedGeneration");  // pods have none
      return Result<Decision>(Decision{kube::deleting(now.object) ? Decision::What::Keep : Decision::What::Put, std::move(next), {}});
    }, [this, context, served, key, options, reply](Result<Written> told) {
      if (!told) return reply(std::move(told));
      remove_unasked(context, *served, key, options, reply);  // policies were asked about the eviction
    });
  };
  if (!*budget) return go();
  mutate(context, *budgets, kube::key_of(**budget), true, [this, pod = *pod](const CurrentObject& now) -> Result<Decision> {
    const EvictionVerdict verdict = judge_eviction(pod, now.object);
    if (verdict.what == EvictionVerdict::What::Refuse) return fail(Code::Exhausted, verdict.why);
    if (verdict.what == EvictionVerdict::What::Delete) return Decision{Decision::What::Keep, Json(), {}};
    Json next = now.object;
    next.set("status", charge_budget(now.object, kube::name_of(pod), clock_.now()));
    return Decision{Decision::What::Put, std::move(next), {}};
  }, [go, reply](Result<Written> charged) {
    if (!charged && charged.error().code != Code::NotFound) return reply(std::move(charged));
    go();
  });
}

}  // namespace fairlead::apiserver
