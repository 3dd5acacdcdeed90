// SPDX-License-Identifier: Apache-2.0
#include "apiserver/admission_priority.h"

#include <fmt/format.h>

#include "apiserver/columns.h"

namespace fairlead::apiserver {

using kube::Json;

const kube::Resource priority_classes{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false};

namespace {

constexpr std::int64_t highest_user_priority = 1'000'000'000;
constexpr std::string_view system_prefix = "system-";
struct System {
  const char* name;
  std::int64_t value;
  const char* description;
};
constexpr System systems[] = {
    {"system-node-critical", 2'000'001'000, "Used for system critical pods that must not be moved from their current node."},
    {"system-cluster-critical", 2'000'000'000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."},
};

// Why this is none of the system's own classes; empty: it is one.
std::string why_not_system(const Json& object) {
  const std::string& name = kube::name_of(object);
  for (const System& known : systems) {
    if (name != known.name) continue;
    if (object["value"].integer() != known.value) return fmt::format("value of {} PriorityClass must be {}", name, known.value);
    if (object["globalDefault"].boolean()) return fmt::format("globalDefault of {} PriorityClass must be false", name);
    return {};
  }
  return fmt::format("{} is not a known system priority class", name);
}

}  // namespace

void default_priority_class(Json& object) {
  if (object["preemptionPolicy"].is_null()) object.set("preemptionPolicy", "PreemptLowerPriority");
  if (!object.has("value")) object.set("value", 0);
  if (Json* metadata = object.find("metadata"); metadata != nullptr && metadata->is_object() && !metadata->has("generation")) metadata->set("generation", 1);
}

void check_priority_class(const Json& object, FieldErrors& errors) {
  if (kube::name_of(object).starts_with(system_prefix)) {
    if (const auto why = why_not_system(object); !why.empty())
      errors.forbidden("metadata.name", fmt::format("priority class names with 'system-' prefix are reserved for system use only. error: {}", why));
  } else if (object["value"].integer() > highest_user_priority) {
    errors.forbidden("value", fmt::format("maximum allowed value of a user defined priority is {}", highest_user_priority));
  }
  const std::string& policy = object["preemptionPolicy"].string();
  if (policy != "PreemptLowerPriority" && policy != "Never") errors.unsupported_value("preemptionPolicy", policy, {"PreemptLowerPriority", "Never"});
}

void check_priority_class_change(const Json& old, const Json& next, FieldErrors& errors) {
  if (!(old["value"] == next["value"])) errors.forbidden("value", "may not be changed in an update.");
  if (!(old["preemptionPolicy"] == next["preemptionPolicy"])) errors.invalid("preemptionPolicy", next["preemptionPolicy"], "field is immutable");
}

std::vector<Column> priority_class_columns() {
  return {name_column(),
          Column{.name = "Value", .type = "integer", .cell = [](const Json& o, Instant) { return Json(o["value"].integer()); }},
          Column{.name = "Global-Default", .type = "boolean", .cell = [](const Json& o, Instant) { return Json(o["globalDefault"].boolean()); }},
          age_column(),
          Column{.name = "PreemptionPolicy", .priority = 1, .cell = [](const Json& o, Instant) { return Json(o["preemptionPolicy"].string()); }}};
}

std::vector<Json> system_priority_classes() {
  std::vector<Json> out;
  for (const System& one : systems) {
    Json object = Json::object({{"metadata", Json::object({{"name", one.name}})}, {"value", one.value}});
    object.set("description", one.description).set("preemptionPolicy", "PreemptLowerPriority");
    out.push_back(std::move(object));
  }
  return out;
}

Result<void> admit_pod_priority(Json& pod, const Json* named, const Json* otherwise) {
  Json& spec = pod.child("spec");
  if (!spec.is_object()) return {};
  const std::string name = spec["priorityClassName"].string();
  if (!name.empty() && named == nullptr) return fail(Code::Forbidden, fmt::format("no PriorityClass with name {} was found", name));
  const Json* from = name.empty() ? otherwise : named;
  const std::int64_t value = from == nullptr ? 0 : (*from)["value"].integer();
  const std::string policy = from == nullptr ? "PreemptLowerPriority" : (*from)["preemptionPolicy"].string_or("PreemptLowerPriority");
  if (!spec["priority"].is_null() && spec["priority"].integer() != value) {
    return fail(Code::Forbidden, fmt::format("the integer value of priority ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                                             spec["priority"].integer(), value));
  }
  if (const std::string& sent = spec["preemptionPolicy"].string(); !sent.empty() && sent != policy) {
    return fail(Code::Forbidden, fmt::format("the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority admission controller computed {} from the given "
                                             "PriorityClass name", sent, policy));
  }
  if (name.empty() && from != nullptr) spec.set("priorityClassName", kube::name_of(*from));
  spec.set("priority", value).set("preemptionPolicy", policy);
  return {};
}

const Json* choose_default(const std::vector<Json>& classes) {
  const Json* chosen = nullptr;
  for (const Json& one : classes) {
    if (one["globalDefault"].boolean() && (chosen == nullptr || (*chosen)["value"].integer() > one["value"].integer())) chosen = &one;
  }
  return chosen;
}

}  // namespace fairlead::apiserver
