// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/node_sets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "api/network_ways.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kWithoutSlurm = std::chrono::minutes(5);

bool long_ago(const Json& object, Instant now) {
  auto since = parse_time(object["metadata"]["deletionTimestamp"].string());
  return since && now >= *since + kWithoutSlurm;
}

}  // namespace

SetStep plan_node_set(const Json& object, const SetState& state) {
  const api::WorkerSet& set = state.view.set;
  SetStep out{.object = object};
  const bool held_by_us = kube::has_finalizer(object, api::kNodeSetFinalizer);
  const bool records = !state.memory["workers"].items().empty();
  if (set.deleting && held_by_us && !state.any_pod && (state.slurm_answered ? !records : long_ago(object, state.now))) {
    kube::remove_finalizer(out.object, api::kNodeSetFinalizer);
    out.finalizers = true;
    return out;
  }
  // One that cannot be carried out has made nothing; workers that it made before are kept by the finalizer that it has.
  if (!set.deleting && !held_by_us && set.problems.empty()) {
    kube::add_finalizer(out.object, api::kNodeSetFinalizer);
    out.finalizers = true;
    return out;
  }
  const auto say = [&](const char* type, bool yes, const char* reason, std::string message) { kube::set_condition(out.object, {type, yes ? "True" : "False", reason, std::move(message)}, state.now); };
  const int wanted = state.view.worker.size;
  say("SpecValid", set.problems.empty(), set.problems.empty() ? "Valid" : "Invalid", set.problems.empty() ? "the resource can be carried out" : fmt::format("{}", fmt::join(set.problems, "; ")));
  say("FieldsIgnored", !set.ignored.empty(), set.ignored.empty() ? "AllInEffect" : "NotInThisVersion",
      set.ignored.empty() ? "every given field has its effect" : fmt::format("without effect in this version: {}", fmt::join(set.ignored, ", ")));
  const std::string count = fmt::format("{} of {} ready", state.ready, wanted);
  if (set.held) say("WorkersAvailable", false, "Held", "nothing is made or taken away until the spec is valid; what runs goes on");
  else say("WorkersAvailable", state.ready >= wanted, state.ready >= wanted ? "Ready" : "NotReady", state.notes.empty() ? count : fmt::format("{}; {}", count, fmt::join(state.notes, "; ")));
  Json& status = out.object.child("status");
  status.set("phase", set.deleting ? "Terminating" : !set.problems.empty() ? "Pending" : state.ready >= wanted ? "Ready" : "Provisioning");
  status.set("clusterName", state.view.name);
  if (!set.held) status.set("replicas", state.ready);
  else if (!status.has("replicas")) status.set("replicas", 0);
  status.set("labelSelector", fmt::format("{}={},{}={}", api::kSlurmClusterLabel, state.view.name, api::kNodeSetLabel, set.name));
  status.set("observedGeneration", set.generation);
  if (state.memory.is_object()) status.set("scaleDown", state.memory);
  return out;
}

SetStep plan_lonely_node_set(const Json& object, const std::string& cluster, Instant now) {
  SetStep out{.object = object};
  if (kube::deleting(object)) {
    out.finalizers = kube::has_finalizer(object, api::kNodeSetFinalizer);
    kube::remove_finalizer(out.object, api::kNodeSetFinalizer);
    return out;
  }
  kube::set_condition(out.object, {"WorkersAvailable", "False", "NoCluster",
                                   cluster.empty() ? "no SlurmCluster is in this namespace; make one, or name one in spec.clusterName" : fmt::format("there is no SlurmCluster {} in this namespace; make it, or name another one in spec.clusterName", cluster)}, now);
  Json& status = out.object.child("status");
  status.erase("clusterName");  // another cluster may take it up
  status.set("phase", "Pending").set("replicas", 0).set("observedGeneration", object["metadata"]["generation"]);
  return out;
}

}  // namespace fairlead::slurm
