// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/kueue_convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "governance/plan/topology_assignment.h"

namespace fairlead::governance {
namespace {

using kube::Json;

constexpr std::string_view group = "kueue.x-k8s.io/";

bool present(const Json& object, std::string_view key) { return object.find(key) != nullptr; }

void rename(Json& object, std::string_view from, std::string_view to) {
  Json* value = object.find(from);
  if (value == nullptr || object.find(to) != nullptr) return;
  Json moved = std::move(*value);
  object.erase(from);
  object.set(to, std::move(moved));
}

// ---- fields that have a peer under another name or in another shape; the rest stays and is kept or pruned
void queue_forward(Json& object) {
  Json* spec = object.find("spec");
  if (spec != nullptr && spec->is_object()) {
    rename(*spec, "cohort", "cohortName");
    if (const Json* checks = spec->find("admissionChecks"); checks != nullptr && checks->is_array() && !present(*spec, "admissionChecksStrategy")) {
      Json rules = Json::array();
      for (const Json& name : checks->items()) rules.push(Json::object({{"name", name}}));
      spec->erase("admissionChecks");
      if (!rules.items().empty()) spec->set("admissionChecksStrategy", Json::object({{"admissionChecks", std::move(rules)}}));
    }
    spec->erase("admissionChecks");
    if (Json* fungibility = spec->find("flavorFungibility"); fungibility != nullptr && fungibility->is_object())
      for (const auto& [field, old] : {std::pair{"whenCanPreempt", "Preempt"}, {"whenCanBorrow", "Borrow"}})
        if (Json* value = fungibility->find(field); value != nullptr && value->string() == old) *value = Json("MayStopSearch");
  }
  if (Json* status = object.find("status"); status != nullptr && status->is_object()) {
    status->erase("pendingWorkloadsStatus");
    if (Json* fair = status->find("fairSharing"); fair != nullptr && fair->is_object()) fair->erase("admissionFairSharingStatus");
  }
}
void queue_back(Json& object) {
  Json* spec = object.find("spec");
  if (spec == nullptr || !spec->is_object()) return;
  rename(*spec, "cohortName", "cohort");
  spec->erase("concurrentAdmissionPolicy");
}

void local_queue_forward(Json& object) {
  Json* status = object.find("status");
  if (status == nullptr || !status->is_object()) return;
  rename(*status, "flavorUsage", "flavorsUsage");
  status->erase("flavors");
}
void local_queue_back(Json& object) {
  if (Json* status = object.find("status"); status != nullptr && status->is_object()) rename(*status, "flavorsUsage", "flavorUsage");
}

struct ClassSource {
  const char *source, *group, *kind;
};
constexpr ClassSource sources[] = {{"kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"}, {"scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"}};

template <class Change>
void each_placement(Json& object, const Change& change) {
  Json* status = object.find("status");
  Json* admission = status != nullptr && status->is_object() ? status->find("admission") : nullptr;
  Json* sets = admission != nullptr && admission->is_object() ? admission->find("podSetAssignments") : nullptr;
  if (sets == nullptr || !sets->is_array()) return;
  for (Json& one : sets->items())
    if (Json* placement = one.is_object() ? one.find("topologyAssignment") : nullptr; placement != nullptr && placement->is_object()) change(*placement);
}

void workload_forward(Json& object) {
  if (Json* spec = object.find("spec"); spec != nullptr && spec->is_object()) {
    for (const ClassSource& one : sources)
      if ((*spec)["priorityClassSource"].string() == one.source && (*spec)["priorityClassName"].is_string())
        spec->set("priorityClassRef", Json::object({{"group", one.group}, {"kind", one.kind}, {"name", (*spec)["priorityClassName"]}}));
    spec->erase("priorityClassSource");
    spec->erase("priorityClassName");
  }
  if (Json* status = object.find("status"); status != nullptr && status->is_object()) rename(*status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds");
  each_placement(object, [](Json& placement) {
    if (present(placement, "domains")) placement = v1beta2_json(read_topology_assignment(placement));
  });
}
void workload_back(Json& object) {
  if (Json* spec = object.find("spec"); spec != nullptr && spec->is_object()) {
    const Json ref = (*spec)["priorityClassRef"];
    for (const ClassSource& one : sources)
      if (ref["group"].string() == one.group && ref["kind"].string() == one.kind) spec->set("priorityClassSource", one.source).set("priorityClassName", ref["name"]);
    spec->erase("priorityClassRef");
    spec->erase("preemptionGates");
    if (Json* sets = spec->find("podSets"); sets != nullptr && sets->is_array())
      for (Json& one : sets->items())
        if (Json* ask = one.is_object() ? one.find("topologyRequest") : nullptr; ask != nullptr && ask->is_object()) ask->erase("podsetSliceRequiredTopologyConstraints");
  }
  if (Json* status = object.find("status"); status != nullptr && status->is_object()) {
    status->erase("preemptionGates");
    rename(*status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds");
  }
  each_placement(object, [](Json& placement) {
    if (present(placement, "slices")) placement = v1beta1_json(read_topology_assignment(placement));
  });
}

void check_forward(Json& object) {
  if (Json* spec = object.find("spec"); spec != nullptr && spec->is_object()) spec->erase("retryDelayMinutes");
}

Json mapped(const Json& object, bool forward) {
  Json out = object;
  const std::string kind = object["kind"].string();
  if (kind == "ClusterQueue") forward ? queue_forward(out) : queue_back(out);
  if (kind == "LocalQueue") forward ? local_queue_forward(out) : local_queue_back(out);
  if (kind == "Workload") forward ? workload_forward(out) : workload_back(out);
  if (kind == "AdmissionCheck" && forward) check_forward(out);
  out.set("apiVersion", std::string(group) + (forward ? "v1beta2" : "v1beta1"));
  return out;
}

// ---- what is kept: places of the earlier version, what stood there and what the way there and back makes of it
struct Kept {
  std::string at;  // a JSON pointer
  const Json* is = nullptr;   // nullptr: nothing
  const Json* was = nullptr;
};

std::size_t bytes_of(const Kept& one) { return (one.is != nullptr ? kube::print_json(*one.is).size() : 0) + (one.was != nullptr ? kube::print_json(*one.was).size() : 0); }

std::string step(const std::string& at, std::string_view key) {
  std::string out = at + "/";
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

void differences(const Json& is, const Json& was, const std::string& at, std::vector<Kept>& out) {
  if (is == was) return;
  if (is.is_object() && was.is_object()) {
    for (const auto& [key, value] : is.members()) {
      const Json* other = was.find(key);
      if (other == nullptr) out.push_back({step(at, key), &value, nullptr});
      else differences(value, *other, step(at, key), out);
    }
    for (const auto& [key, value] : was.members())
      if (is.find(key) == nullptr) out.push_back({step(at, key), nullptr, &value});
    return;
  }
  if (is.is_array() && was.is_array() && is.items().size() == was.items().size()) {
    for (std::size_t i = 0; i < is.items().size(); ++i) differences(is.items()[i], was.items()[i], step(at, std::to_string(i)), out);
    return;
  }
  out.push_back({at, &is, &was});
}

// Fields that say one thing together: they go back together or not at all.
std::string bundle(const std::string& at) {
  if (at.starts_with("/spec/admissionChecks")) return "/spec/admissionChecks";
  if (at.starts_with("/spec/priorityClass")) return "/spec/priorityClass";
  return at;
}

Json written(const std::vector<Kept>& all) {
  Json out = Json::array();
  for (const Kept& one : all) {
    Json entry = Json::object({{"at", one.at}});
    if (one.is != nullptr) entry.set("is", *one.is);
    if (one.was != nullptr) entry.set("was", *one.was);
    out.push(std::move(entry));
  }
  return out;
}

// The parent of a place, and its last key; nullptr: there is no such place.
Json* parent_of(Json& object, std::string_view at, std::string& key) {
  Json* here = &object;
  while (!at.empty() && at.front() == '/') {
    at.remove_prefix(1);
    const std::size_t end = std::min(at.find('/'), at.size());
    key.clear();
    for (std::size_t i = 0; i < end; ++i) {
      if (at[i] != '~' || i + 1 == end) key += at[i];
      else key += at[++i] == '0' ? '~' : '/';
    }
    at.remove_prefix(end);
    if (at.empty()) return here;
    if (here->is_array()) {
      std::size_t index = 0;
      for (const char c : key) {
        if (c < '0' || c > '9' || index > here->items().size()) return nullptr;
        index = index * 10 + static_cast<std::size_t>(c - '0');
      }
      if (key.empty() || index >= here->items().size()) return nullptr;
      here = &here->items()[index];
    } else {
      here = here->is_object() ? here->find(key) : nullptr;
    }
    if (here == nullptr) return nullptr;
  }
  return nullptr;
}

// Where the entry's place is as the conversion leaves it: nobody has changed it in the other version.
bool untouched(Json& object, const Json& entry) {
  std::string key;
  Json* parent = parent_of(object, entry["at"].string(), key);
  if (parent == nullptr) return false;
  if (parent->is_array()) {
    const std::size_t index = key.size() < 9 ? static_cast<std::size_t>(std::strtoul(key.c_str(), nullptr, 10)) : parent->items().size();
    return index < parent->items().size() && entry.has("is") && entry.has("was") && parent->items()[index] == entry["was"];
  }
  if (!parent->is_object()) return false;
  const Json *now = parent->find(key), *was = entry.find("was");
  return now == nullptr || was == nullptr ? now == was : *now == *was;
}
void restore(Json& object, const Json& entry) {
  std::string key;
  Json* parent = parent_of(object, entry["at"].string(), key);
  if (parent->is_array()) parent->items()[static_cast<std::size_t>(std::strtoul(key.c_str(), nullptr, 10))] = entry["is"];
  else if (entry.has("is")) parent->set(key, entry["is"]);
  else parent->erase(key);
}

// Takes the annotation off; what it says of `version`, else null.
Json take_kept(Json& object, std::string_view version) {
  Json* metadata = object.find("metadata");
  Json* annotations = metadata != nullptr && metadata->is_object() ? metadata->find("annotations") : nullptr;
  Json* text = annotations != nullptr && annotations->is_object() ? annotations->find(kept_annotation) : nullptr;
  if (text == nullptr) return {};
  auto parsed = text->string().size() <= most_kept ? kube::parse_json(text->string()) : Result<Json>(fail(Code::Invalid, "too long"));
  annotations->erase(kept_annotation);
  if (annotations->members().empty()) metadata->erase("annotations");
  return parsed && parsed->is_object() ? (*parsed)[version] : Json();
}

// Users may write the annotation as they like: only what conversions can have put there goes anywhere.
bool may_keep(const Json& entry) {
  const std::string& at = entry["at"].string();
  return at.starts_with("/spec/") || at.starts_with("/status/");
}

}  // namespace

Result<Json> convert_kueue(const Json& object, std::string_view to) {
  const std::string from = object["apiVersion"].string();
  const auto known = [](std::string_view version) { return version == "kueue.x-k8s.io/v1beta1" || version == "kueue.x-k8s.io/v1beta2"; };
  if (!object.is_object() || !known(from)) return fail(Code::Invalid, fmt::format("apiVersion: \"{}\" is neither kueue.x-k8s.io/v1beta1 nor v1beta2", from));
  if (!known(to)) return fail(Code::Invalid, fmt::format("\"{}\" is neither kueue.x-k8s.io/v1beta1 nor v1beta2", to));
  if (from == to) return object;
  const bool forward = to.ends_with("v1beta2");
  Json plain = object;
  const Json kept = take_kept(plain, to.substr(group.size()));
  Json out = mapped(plain, forward);
  // What this version cannot say, by what the way back would make of it.
  const Json back = mapped(out, !forward);
  std::vector<Kept> lost;
  for (const char* part : {"spec", "status"}) {
    const Json *is = plain.find(part), *was = back.find(part);
    if (is != nullptr && was != nullptr) differences(*is, *was, std::string("/") + part, lost);
  }
  std::sort(lost.begin(), lost.end(), [](const Kept& x, const Kept& y) { return x.at < y.at; });  // the same text, in whatever order fields came
  // What the other version had said before, where it still fits.
  std::vector<const Json*> returning;
  for (const Json& entry : kept.items()) {
    if (!may_keep(entry)) continue;
    const std::string with = bundle(entry["at"].string());
    const bool whole = std::all_of(kept.items().begin(), kept.items().end(), [&](const Json& one) { return bundle(one["at"].string()) != with || (may_keep(one) && untouched(out, one)); });
    if (whole) returning.push_back(&entry);
  }
  for (const Json* entry : returning) restore(out, *entry);
  // No API server has objects like that; there is no place for an annotation.
  const Json* metadata = out.find("metadata");
  const Json* annotations = metadata != nullptr ? metadata->find("annotations") : nullptr;
  if ((metadata != nullptr && !metadata->is_object()) || (annotations != nullptr && !annotations->is_null() && !annotations->is_object())) lost.clear();
  while (!lost.empty()) {
    const std::string text = kube::print_json(Json::object({{from.substr(group.size()), written(lost)}}));
    if (text.size() <= most_kept) {
      out.child("metadata").child("annotations").set(kept_annotation, text);
      break;
    }
    lost.erase(std::max_element(lost.begin(), lost.end(), [](const Kept& a, const Kept& b) { return bytes_of(a) < bytes_of(b); }));
  }
  return out;
}

Json answer_conversion(const Json& review) {
  const Json& request = review["request"];
  Json response = Json::object({{"uid", request["uid"]}});
  Json objects = Json::array();
  std::string failure = request["objects"].is_array() ? "" : "the review has no list request.objects";
  for (const Json& object : request["objects"].items()) {
    auto converted = convert_kueue(object, request["desiredAPIVersion"].string());
    if (!converted) {
      failure = fmt::format("{} {}: {}", object["kind"].string(), object["metadata"]["name"].string(), converted.error().message);
      break;
    }
    objects.push(std::move(*converted));
  }
  if (failure.empty()) response.set("convertedObjects", std::move(objects)).set("result", Json::object({{"status", "Success"}}));
  else response.set("result", Json::object({{"status", "Failed"}, {"message", failure}}));
  return Json::object({{"apiVersion", "apiextensions.k8s.io/v1"}, {"kind", "ConversionReview"}, {"response", std::move(response)}});
}

}  // namespace fairlead::governance
