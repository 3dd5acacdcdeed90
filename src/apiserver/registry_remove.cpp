// SPDX-License-Identifier: Apache-2.0
// Deleting: preconditions, finalizers, grace, and containers (namespaces, CRDs) that go last.
#include <fmt/format.h>

#include <algorithm>

#include "apiserver/crd.h"
#include "apiserver/registry_write.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::string_view foreground = "foregroundDeletion", orphan = "orphan";

std::int64_t grace_of(const Json& pod, const kube::DeleteOptions& options) {
  const std::string& phase = pod["status"]["phase"].string();
  // Nobody has to be told to stop.
  if (pod["spec"]["nodeName"].string().empty() || phase == "Succeeded" || phase == "Failed") return 0;
  const std::int64_t grace = options.grace_seconds.value_or(pod["spec"]["terminationGracePeriodSeconds"].integer(30));
  return grace < 0 ? 1 : grace;
}

void set_propagation(Json& next, kube::DeleteOptions::Propagation propagation) {
  using Propagation = kube::DeleteOptions::Propagation;
  kube::remove_finalizer(next, foreground);
  kube::remove_finalizer(next, orphan);
  if (propagation == Propagation::Foreground) kube::add_finalizer(next, foreground);
  if (propagation == Propagation::Orphan) kube::add_finalizer(next, orphan);
}

void mark_deleting(Json& next, Instant deadline, std::int64_t grace) {
  Json& metadata = next.child("metadata");
  metadata.set("deletionTimestamp", print_time(deadline));
  metadata.set("deletionGracePeriodSeconds", grace);
  if (const auto generation = metadata["generation"].integer(); generation > 0) metadata.set("generation", generation + 1);
}

}  // namespace

Result<void> EmbeddedRegistry::nothing_inside(const kube::Resource& resource, const Json& container) const {
  const std::string& name = kube::name_of(container);
  const auto in_use = [&] { return cannot_fulfil(resource, name, "objects are still inside; they are removed first"); };
  if (is_namespace(resource)) {
    // Busy first: a create that left the gate is visible in the store by now, one that enters later sees the deletion.
    if (gate_.busy("namespace/" + name)) return in_use();
    std::string last;
    for (const auto& kind : kinds()->kinds) {
      const std::string prefix = store_prefix(kind->resource, name);
      if (!kind->resource.namespaced || prefix == last) continue;
      last = prefix;
      const auto any = store_.range(prefix, "", 1, 0);
      if (!any || !any->entries.empty()) return in_use();
    }
  }
  if (is_crd(resource)) {
    const Json& spec = container["spec"];
    const kube::Resource instances{spec["group"].string(), "", spec["names"]["plural"].string(), "", false};
    if (gate_.busy("crd/" + name)) return in_use();
    const auto any = store_.range(store_prefix(instances), "", 1, 0);
    if (!any || !any->entries.empty()) return in_use();
  }
  return {};
}

Result<Decision> EmbeddedRegistry::decide_remove(const Kind& kind, const Json& current, Revision revision, const kube::DeleteOptions& options) const {
  const kube::Resource& resource = kind.resource;
  const std::string& name = kube::name_of(current);
  kube::Resource named = resource;
  named.plural = resource.kind;  // Kubernetes names the kind here
  if (!options.uid.empty() && options.uid != kube::uid_of(current))
    return cannot_fulfil(named, name,
                         fmt::format("the UID in the precondition ({}) does not match the UID in record ({}). The object might have been deleted and then recreated", options.uid, kube::uid_of(current)));
  if (!options.resource_version.empty() && options.resource_version != std::to_string(revision))
    return cannot_fulfil(named, name,
                         fmt::format("the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). The object might have been modified", options.resource_version, revision));
  if (is_namespace(resource) && (name == "default" || name == "kube-system" || name == "kube-public")) return forbidden(resource, name, "this namespace may not be deleted");

  Json next = current;
  set_propagation(next, options.propagation);
  if (is_crd(resource)) kube::add_finalizer(next, crd_finalizer);
  const bool already = kube::deleting(current);
  if (already && is_crd(resource) && !kube::has_finalizer(current, crd_finalizer)) kube::remove_finalizer(next, crd_finalizer);  // its cleaning is over
  const std::int64_t grace = is_pod(resource) ? grace_of(current, options) : 0;
  if (!already) {
    mark_deleting(next, clock_.now() + std::chrono::seconds(grace), grace);
    if (is_namespace(resource)) next.child("status").set("phase", "Terminating");
  } else if (const std::int64_t left = current["metadata"]["deletionGracePeriodSeconds"].integer(); grace < left) {
    // A second delete can only shorten the grace; the deadline counts from the first one.
    const auto deadline = parse_time(current["metadata"]["deletionTimestamp"].string());
    const Instant started = deadline ? *deadline - std::chrono::seconds(left) : clock_.now();
    next.child("metadata").set("deletionTimestamp", print_time(started + std::chrono::seconds(grace)));
    next.child("metadata").set("deletionGracePeriodSeconds", grace);
  }
  if (is_crd(resource)) set_crd_status(next, others_than(name), clock_.now());
  auto decision = complete(kind, std::move(next), {});
  // Only a pod's delete goes by way of an update in Kubernetes, which its answer shows.
  if (decision && decision->what == Decision::What::Remove && !is_pod(resource)) decision->next = Json();
  return decision;
}

void EmbeddedRegistry::remove_unasked(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply) {
  const auto served = current(kind);
  if (!served) return reply(not_served());
  mutate(context, *served, key, true, [this, served, options](const CurrentObject& now) { return decide_remove(*served, now.object, now.revision, options); }, std::move(reply));
}

void EmbeddedRegistry::remove(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply) {
  const auto served = current(kind);
  if (!served) return reply(not_served());
  // Preconditions are looked at again on each attempt, so trying again is always right.
  mutate(context, *served, key, true, [this, context, served, key, options](const CurrentObject& now) -> Result<Decision> {
    auto decision = decide_remove(*served, now.object, now.revision, options);
    if (!decision) return decision;
    auto asked = ask_policies({context, *served, "DELETE", "", key, nullptr, &now.object});
    if (!asked) return std::unexpected(std::move(asked.error()));
    for (std::string& warning : *asked) decision->warnings.push_back(std::move(warning));
    return decision;
  }, std::move(reply));
}

}  // namespace fairlead::apiserver
