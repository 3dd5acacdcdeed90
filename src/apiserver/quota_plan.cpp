// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace fairlead::apiserver {

using kube::Json;
using kube::Quantity;

namespace {

constexpr std::string_view count_prefix = "count/", requests_prefix = "requests.", pages_prefix = "hugepages-", by_class = ".storageclass.storage.k8s.io/";
// Kubernetes calls it a mistake of its own that these must be stated; others need not be.
constexpr std::array<std::string_view, 6> must_be_stated{"cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"};
constexpr std::array<std::string_view, 4> aliases{"configmaps", "resourcequotas", "replicationcontrollers", "secrets"};

bool is_native(std::string_view name) { return name.find('/') == std::string_view::npos || name.find("kubernetes.io/") != std::string_view::npos; }

std::optional<Quantity> amount(const Json* value) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  const auto read = Quantity::from_json(*value);
  return read ? std::optional(read->capped()) : std::nullopt;
}

Usage amounts(const Json& list) {
  Usage out;
  for (const auto& [name, value] : list.members())
    if (const auto read = amount(&value)) out.emplace(name, *read);
  return out;
}

void add(Usage& to, const Usage& from) {
  for (const auto& [name, value] : from) to[name] += value;
}

void raise(Usage& to, const Usage& from) {
  for (const auto& [name, value] : from) {
    const auto [at, fresh] = to.try_emplace(name, value);
    if (!fresh && at->second < value) at->second = value;
  }
}

// What a pod needs at once: its containers and sidecars, or an init container beside the sidecars before it, whichever is more; and its overhead.
Usage pod_amounts(const Json& spec, const char* list) {
  Usage all, sidecars, start;
  for (const Json& container : spec["containers"].items()) add(all, amounts(container["resources"][list]));
  for (const Json& container : spec["initContainers"].items()) {
    Usage one = amounts(container["resources"][list]);
    if (container["restartPolicy"].string() == "Always") {
      add(all, one);
      add(sidecars, one);
      one = sidecars;
    } else {
      add(one, sidecars);
    }
    raise(start, one);
  }
  raise(all, start);
  const bool limits = std::string_view(list) == "limits";
  for (const auto& [name, value] : amounts(spec["overhead"])) {
    // What has no limit gets none from the overhead.
    if (const auto at = all.find(name); limits && (at == all.end() || at->second.is_zero())) continue;
    all[name] += value;
  }
  for (auto& [name, value] : all) value = value.capped();
  return all;
}

bool looks_elsewhere(const Json& affinity) {
  const auto term = [](const Json& one) { return !one["namespaces"].items().empty() || !one["namespaceSelector"].is_null(); };
  for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
    for (const Json& one : affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"].items())
      if (term(one)) return true;
    for (const Json& one : affinity[kind]["preferredDuringSchedulingIgnoredDuringExecution"].items())
      if (term(one["podAffinityTerm"])) return true;
  }
  return false;
}

// Whether what `must_be_stated` names stands in a container.
bool stated(const Json& resources, std::string_view name) {
  if (name.starts_with("limits.")) return resources["limits"].has(name.substr(7));
  return resources["requests"].has(name.starts_with(requests_prefix) ? name.substr(requests_prefix.size()) : name);
}

void measure_pod(const Json& pod, Instant now, Measured& out) {
  const Json &spec = pod["spec"], &metadata = pod["metadata"];
  out.pod = true;
  out.terminating = !spec["activeDeadlineSeconds"].is_null();
  out.best_effort = pod["status"]["qosClass"].string() == "BestEffort";
  out.cross_namespace = looks_elsewhere(spec["affinity"]);
  out.priority_class = spec["priorityClassName"].string();
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : spec[list].items())
      for (const std::string_view name : must_be_stated)
        if (!stated(container["resources"], name)) out.unstated[std::string(name)].insert(container["name"].string());
  }
  // A pod that ended, or should have been gone for as long as its grace, counts as an object alone.
  if (const std::string& phase = pod["status"]["phase"].string(); phase == "Succeeded" || phase == "Failed") return;
  if (const auto deleted = parse_time(metadata["deletionTimestamp"].string()); deleted && metadata.has("deletionGracePeriodSeconds")) {
    out.until = *deleted + std::chrono::seconds(metadata["deletionGracePeriodSeconds"].integer());
    if (now > *out.until) {
      out.until = std::nullopt;
      return;
    }
  }
  out.usage["pods"] = Quantity::count(1);
  for (const auto& [name, value] : pod_amounts(spec, "requests")) {
    const bool basic = name == "cpu" || name == "memory" || name == "ephemeral-storage" || name.starts_with(pages_prefix);
    if (basic) out.usage[name] = value;
    if (basic || (!is_native(name) && !name.starts_with(requests_prefix))) out.usage[std::string(requests_prefix) + name] = value;
  }
  for (const auto& [name, value] : pod_amounts(spec, "limits"))
    if (name == "cpu" || name == "memory" || name == "ephemeral-storage") out.usage["limits." + name] = value;
}

void measure_claim(const Json& claim, Measured& out) {
  const Json &spec = claim["spec"], &status = claim["status"];
  const std::string& old_place = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].string();
  const std::string& storage_class = old_place.empty() ? spec["storageClassName"].string() : old_place;
  const auto count = [&](std::string_view name, const Quantity& value) {
    out.usage[std::string(name)] = value;
    if (!storage_class.empty()) out.usage[fmt::format("{}{}{}", storage_class, by_class, name)] = value;
  };
  count("persistentvolumeclaims", Quantity::count(1));
  auto asked = amount(spec["resources"]["requests"].find("storage"));
  // An expansion that is being taken back has its room until it is.
  if (const auto given = amount(status["allocatedResources"].find("storage")); asked && given && *given > *asked) asked = given;
  if (asked) count("requests.storage", asked->whole());
}

void measure_service(const Json& service, Measured& out) {
  const Json& spec = service["spec"];
  const std::string& type = spec["type"].string();
  const auto& ports = spec["ports"].items();
  std::size_t node_ports = type == "NodePort" || type == "LoadBalancer" ? ports.size() : 0;
  if (type == "LoadBalancer" && !spec["allocateLoadBalancerNodePorts"].boolean(true))
    node_ports = static_cast<std::size_t>(std::count_if(ports.begin(), ports.end(), [](const Json& port) { return port["nodePort"].integer() != 0; }));
  out.usage["services"] = Quantity::count(1);
  if (type == "LoadBalancer") out.usage["services.loadbalancers"] = Quantity::count(1);
  if (node_ports > 0) out.usage["services.nodeports"] = Quantity::count(static_cast<std::int64_t>(node_ports));
}

// A name, or none (""), as a label with the scope's name would be selected.
bool selects(const QuotaScope& scope, const std::string& name) {
  if (scope.op == "Exists") return !name.empty();
  if (scope.op == "DoesNotExist") return name.empty();
  const bool listed = !name.empty() && std::find(scope.values.begin(), scope.values.end(), name) != scope.values.end();
  return scope.op == "In" ? listed : scope.op == "NotIn" && !listed;
}

// All scopes are about pods: that of VolumeAttributesClass is behind a feature gate that is off in Kubernetes 1.33, where no claim is in it.
bool in_scope(const QuotaScope& scope, const Measured& object) {
  if (!object.pod) return false;
  if (scope.name == "Terminating") return object.terminating;
  if (scope.name == "NotTerminating") return !object.terminating;
  if (scope.name == "BestEffort") return object.best_effort;
  if (scope.name == "NotBestEffort") return !object.best_effort;
  if (scope.name == "CrossNamespacePodAffinity") return object.cross_namespace;
  return scope.name == "PriorityClass" && selects(scope, object.priority_class);
}

bool concerns(const Quota& quota, const Measured& object) {
  return std::all_of(quota.scopes.begin(), quota.scopes.end(), [&](const QuotaScope& scope) { return in_scope(scope, object); });
}

std::string print(const Usage& usage) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : usage) parts.push_back(fmt::format("{}={}", name, value.text()));
  return fmt::format("{}", fmt::join(parts, ","));
}

Quantity value_of(const Usage& usage, std::string_view name) {
  const auto at = usage.find(name);
  return at == usage.end() ? Quantity() : at->second;
}

}  // namespace

bool is_looked_into(const kube::Resource& resource) {
  return std::any_of(looked_into.begin(), looked_into.end(), [&](const kube::Resource* one) { return one->group == resource.group && one->plural == resource.plural; });
}

Measured measure(const kube::Resource& resource, const Json& object, Instant now) {
  Measured out;
  const std::string text = resource.group.empty() ? resource.plural : resource.plural + "." + resource.group;
  out.usage[std::string(count_prefix) + text] = Quantity::count(1);
  if (!resource.group.empty()) return out;
  if (resource.plural == kube::resources::pods.plural) measure_pod(object, now, out);
  else if (resource.plural == kube::resources::claims.plural) measure_claim(object, out);
  else if (resource.plural == kube::resources::services.plural) measure_service(object, out);
  else if (std::find(aliases.begin(), aliases.end(), resource.plural) != aliases.end()) out.usage[resource.plural] = Quantity::count(1);
  return out;
}

Measured after_its_end(const Measured& pod) {
  Measured out = pod;
  std::erase_if(out.usage, [](const auto& one) { return !one.first.starts_with(count_prefix); });
  out.until = std::nullopt;
  return out;
}

Quota read_quota(const Json& object) {
  Quota out{.name = kube::name_of(object), .hard = amounts(object["spec"]["hard"]), .scopes = {}};
  for (const Json& name : object["spec"]["scopes"].items()) out.scopes.push_back({name.string(), "Exists", {}});
  for (const Json& one : object["spec"]["scopeSelector"]["matchExpressions"].items()) {
    QuotaScope scope{one["scopeName"].string(), one["operator"].string(), {}};
    for (const Json& value : one["values"].items()) scope.values.push_back(value.string());
    out.scopes.push_back(std::move(scope));
  }
  return out;
}

std::optional<std::string> counted_kind(std::string_view name) {
  if (name.starts_with(count_prefix)) {
    name.remove_prefix(count_prefix.size());
    const auto dot = name.find('.');
    if (dot == std::string_view::npos) return fmt::format("core/{}", name);
    return fmt::format("{}/{}", name.substr(dot + 1), name.substr(0, dot));
  }
  if (std::find(aliases.begin(), aliases.end(), name) != aliases.end()) return fmt::format("core/{}", name);
  if (name == "services" || name == "services.loadbalancers" || name == "services.nodeports") return "core/services";
  if (name == "persistentvolumeclaims" || name == "requests.storage" || name.ends_with(".storageclass.storage.k8s.io/persistentvolumeclaims") ||
      name.ends_with(".storageclass.storage.k8s.io/requests.storage"))
    return "core/persistentvolumeclaims";
  const std::string_view plain = name.starts_with(requests_prefix) ? name.substr(requests_prefix.size()) : name.starts_with("limits.") ? name.substr(7) : name;
  const bool basic = plain == "cpu" || plain == "memory" || plain == "ephemeral-storage" || (plain.starts_with(pages_prefix) && !name.starts_with("limits."));
  if (name == "pods" || basic || (name.starts_with(requests_prefix) && !is_native(name))) return "core/pods";
  return std::nullopt;
}

kube::Resource resource_of(std::string_view counted) {
  const auto slash = counted.find('/');
  const std::string_view group = counted.substr(0, slash);
  return {group == "core" ? std::string() : std::string(group), "", std::string(counted.substr(slash + 1)), "", true};
}

Usage charge(const Quota& quota, const Measured& object) {
  Usage out;
  if (!concerns(quota, object)) return out;
  for (const auto& [name, value] : object.usage)
    if (quota.hard.contains(name)) out.emplace(name, value);
  return out;
}

std::optional<std::string> quota_refusal(const std::vector<QuotaLine>& lines, const Measured& next) {
  for (const QuotaLine& line : lines) {
    if (!concerns(line.quota, next)) continue;
    std::vector<std::string> missing;
    for (const auto& [name, containers] : next.unstated)
      if (line.quota.hard.contains(name)) missing.push_back(fmt::format("{} for: {}", name, fmt::join(containers, ",")));
    if (!missing.empty()) return fmt::format("failed quota: {}: must specify {}", line.quota.name, fmt::join(missing, "; "));
  }
  for (const QuotaLine& line : lines) {
    Usage requested, used, limited;
    for (const auto& [name, value] : charge(line.quota, next)) {
      Quantity growth = value;
      if (const auto before = line.before.find(name); before != line.before.end()) growth -= before->second;
      if (growth.is_zero() || growth.is_negative()) continue;
      Quantity sum = value_of(line.used, name);
      sum += growth;
      const Quantity& limit = line.quota.hard.find(name)->second;
      if (sum <= limit) continue;
      requested.emplace(name, growth);
      used.emplace(name, value_of(line.used, name));
      limited.emplace(name, limit);
    }
    if (!requested.empty()) return fmt::format("exceeded quota: {}, requested: {}, used: {}, limited: {}", line.quota.name, print(requested), print(used), print(limited));
  }
  return std::nullopt;
}

Json print_used(const Quota& quota, const Usage& used) {
  Json out = Json::object({});
  for (const auto& [name, limit] : quota.hard) out.set(name, value_of(used, name).text());
  return out;
}

}  // namespace fairlead::apiserver
