// SPDX-License-Identifier: Apache-2.0
#include "api/training_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"
#include "api/crds.h"
#include "api/instance_types.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trainingplans.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: trainingplans, singular: trainingplan, kind: TrainingPlan, listKind: TrainingPlanList, shortNames: [tp]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Status, type: string, jsonPath: .status.phase}
    - {name: Type, type: string, jsonPath: .spec.instanceType}
    - {name: Machines, type: integer, jsonPath: .spec.instanceCount}
    - {name: InUse, type: integer, jsonPath: .status.instances.inUse}
    - {name: Start, type: string, jsonPath: .status.startTime}
    - {name: End, type: string, jsonPath: .status.endTime}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, priority: 1, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: So many machines of a type, kept from one time to another for the groups of clusters that name it. Made by HyperPod's API, or by hand.
        required: [spec]
        properties:
          spec:
            type: object
            required: [instanceType, instanceCount, endTime]
            x-kubernetes-validations:
            - {rule: "!has(oldSelf.extensions) || (has(self.extensions) && oldSelf.extensions.all(e, e in self.extensions))", message: "an extension that was asked for neither changes nor goes: ask for another"}
            - {rule: "self.instanceType == oldSelf.instanceType && self.instanceCount == oldSelf.instanceCount && self.endTime == oldSelf.endTime && has(self.startTime) == has(oldSelf.startTime) && (!has(self.startTime) || self.startTime == oldSelf.startTime)", message: "a plan does not change: extend it, or make another"}
            properties:
              instanceType: {type: string, maxLength: 64, description: An ml.* type of the API.}
              instanceCount: {type: integer, minimum: 1, maximum: 256}
              startTime: {type: string, format: date-time, description: "Not given, it begins as soon as it is granted."}
              endTime: {type: string, format: date-time}
              extensions:
                type: array
                maxItems: 100
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id]
                description: Later ends that were asked for; each is granted or not as a whole.
                items:
                  type: object
                  required: [id, startTime, endTime]
                  properties:
                    id: {type: string, minLength: 1, maxLength: 256}
                    startTime: {type: string, format: date-time, description: The end of before.}
                    endTime: {type: string, format: date-time}
                    requestedAt: {type: string, format: date-time}
          status:
            type: object
            properties:
              phase: {type: string, description: "Pending, Scheduled, Active, Expired or Failed."}
              message: {type: string}
              startTime: {type: string, format: date-time}
              endTime: {type: string, format: date-time, description: With the extensions that were granted.}
              decidedAt: {type: string, format: date-time}
              granted:
                type: object
                description: What is in force.
                properties:
                  instanceType: {type: string}
                  instanceCount: {type: integer}
              failed: {type: boolean, description: It was refused; that stays so.}
              instances:
                type: object
                properties:
                  kept: {type: integer, description: Machines that are kept for it now.}
                  inUse: {type: integer, description: Those that groups with this plan have.}
                  available: {type: integer}
                  unhealthy: {type: integer}
              extensions:
                type: array
                items:
                  type: object
                  required: [id]
                  properties:
                    id: {type: string}
                    granted: {type: boolean, description: Not there before it is decided.}
                    seenAt: {type: string, format: date-time, description: "When it was seen first, if it does not say when it was asked for: its place in the queue."}
                    message: {type: string}
                    decidedAt: {type: string, format: date-time}
)yaml";

constexpr std::size_t kLongestName = 63;  // it is the value of a label

std::optional<Instant> time_of(const Json& value) {
  const auto at = parse_time(value.string());
  return at ? std::optional<Instant>(std::chrono::floor<std::chrono::seconds>(*at)) : std::nullopt;
}

}  // namespace

Json training_plan_crd() { return parse_crd(kCrd); }

std::string_view text(PlanPhase phase) {
  switch (phase) {
    case PlanPhase::Pending: return "Pending";
    case PlanPhase::Scheduled: return "Scheduled";
    case PlanPhase::Active: return "Active";
    case PlanPhase::Expired: return "Expired";
    case PlanPhase::Failed: return "Failed";
  }
  return "?";
}

PlanPhase TrainingPlan::phase(Instant now) const {
  if (granted) return now < granted->window.start ? PlanPhase::Scheduled : now < granted->window.end ? PlanPhase::Active : PlanPhase::Expired;
  return failed ? PlanPhase::Failed : PlanPhase::Pending;
}

TrainingPlan read_training_plan(const Json& object) {
  TrainingPlan out;
  const Json &spec = object["spec"], &status = object["status"];
  out.name = kube::name_of(object);
  out.uid = kube::uid_of(object);
  out.created = parse_time(object["metadata"]["creationTimestamp"].string()).value_or(Instant());
  out.deleting = kube::deleting(object);
  const auto problem = [&](std::string what) { out.problems.push_back(std::move(what)); };
  if (out.name.size() > kLongestName) problem(fmt::format("metadata.name: {} characters at most, since Nodes are labelled with it", kLongestName));
  out.type = spec["instanceType"].string();
  if (find_instance_type(out.type) == nullptr) problem(fmt::format("spec.instanceType: \"{}\" is no type of the API", out.type));
  const std::int64_t count = spec["instanceCount"].integer();
  out.count = static_cast<int>(std::clamp<std::int64_t>(count, 0, kMostPlanned));
  if (count < 1 || count > kMostPlanned) problem(fmt::format("spec.instanceCount: {} is not a whole number from 1 to {}", count, kMostPlanned));
  out.start = time_of(spec["startTime"]);
  if (spec.has("startTime") && !out.start) problem(fmt::format("spec.startTime: \"{}\" is no time such as 2026-11-30T08:00:00Z", spec["startTime"].string()));
  if (const auto end = time_of(spec["endTime"])) out.end = *end;
  else problem(fmt::format("spec.endTime: \"{}\" is no time such as 2026-11-30T08:00:00Z", spec["endTime"].string()));
  if (out.start && *out.start >= out.end) problem("spec.endTime: it is not after spec.startTime");
  for (const Json& one : spec["extensions"].items()) {
    const auto from = time_of(one["startTime"]), to = time_of(one["endTime"]);
    const std::string& id = one["id"].string();
    // One that cannot be read is refused under its id: its window is empty.
    if (!id.empty()) out.extensions.push_back({.id = id, .window = {from.value_or(Instant()), from && to ? *to : Instant()}, .asked = time_of(one["requestedAt"])});
  }
  out.failed = status["failed"].boolean();
  const auto start = time_of(status["startTime"]), end = time_of(status["endTime"]);
  if (const Json& granted = status["granted"]; granted.is_object() && start && end && !out.failed)
    out.granted = TrainingPlan::Grant{.type = granted["instanceType"].string(), .count = static_cast<int>(std::clamp<std::int64_t>(granted["instanceCount"].integer(), 0, kMostPlanned)), .window = {*start, *end}};
  for (const Json& one : status["extensions"].items()) {
    if (one.has("granted")) out.extended[one["id"].string()] = one["granted"].boolean();
    for (TrainingPlan::Extension& asked : out.extensions)
      if (asked.id == one["id"].string() && !asked.asked) asked.asked = time_of(one["seenAt"]);
  }
  return out;
}

std::string plan_object_name(std::string_view arn_or_name) {
  constexpr std::string_view kind = ":training-plan/";
  if (arn_or_name.starts_with("arn:")) {
    const auto at = arn_or_name.find(kind);
    if (at == arn_or_name.npos) return "";
    arn_or_name.remove_prefix(at + kind.size());
  }
  // A name that an object may have is the object's; with a dot it comes from no AWS.
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; };
  if (!arn_or_name.empty() && arn_or_name.size() <= kLongestName && std::all_of(arn_or_name.begin(), arn_or_name.end(), plain)) return std::string(arn_or_name);
  return arn_or_name.empty() ? "" : plain_label(arn_or_name, kLongestName);
}

}  // namespace fairlead::api
