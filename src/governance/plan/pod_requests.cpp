// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fairlead::governance {
namespace {

using kube::Json;

std::string item(const std::string& path, std::string_view list, std::size_t index) { return fmt::format("{}.{}[{}]", path, list, index); }

using Amounts = NamedAmounts;
void plus_into(Amounts& sum, const Amounts& more) {
  for (const auto& [name, value] : more) sum[name] = plus(sum[name], value);
}
void max_into(Amounts& most, const Amounts& other) {
  for (const auto& [name, value] : other) {
    const auto [at, fresh] = most.emplace(name, value);
    if (!fresh) at->second = std::max(at->second, value);
  }
}

// Requests must not pass limits: where they do. Empty: nowhere.
Result<std::string> above_limits(const Json& resources, const std::string& path) {
  auto requests = read_amounts(resources["requests"], path + ".resources.requests");
  if (!requests) return std::unexpected(std::move(requests.error()));
  auto limits = read_amounts(resources["limits"], path + ".resources.limits");
  if (!limits) return std::unexpected(std::move(limits.error()));
  for (const auto& [name, amount] : *requests)
    if (const auto limit = limits->find(name); limit != limits->end() && amount > limit->second) return fmt::format("{}: the request for {} exceeds its limit", path, name);
  return std::string();
}

double as_double(std::string_view resource, Amount amount) { return resource == "cpu" ? static_cast<double>(amount) / 1000.0 : static_cast<double>(amount); }

// The first name whose amount is above the limit of that name.
std::string first_above(const Amounts& amounts, const Amounts& limits) {
  for (const auto& [name, amount] : amounts)
    if (const auto limit = limits.find(name); limit != limits.end() && amount > limit->second) return name;
  return {};
}

}  // namespace

// Where a limit is said and no request, the limit is the request, as the API makes it in a pod; in a template nobody has done that.
static Result<Amounts> asked_by(const Json& resources, const std::string& path) {
  auto requests = read_amounts(resources["requests"], path + ".resources.requests", Negative::Refused);
  if (!requests || resources["limits"].is_null()) return requests;
  auto limits = read_amounts(resources["limits"], path + ".resources.limits", Negative::Refused);
  if (!limits) return limits;
  requests->insert(limits->begin(), limits->end());
  return requests;
}

Result<NamedAmounts> pod_requests(const Json& spec, const std::string& path) {
  Amounts running, most_init, sidecars;
  const auto of = [&](const Json& container, const char* list, std::size_t i) { return asked_by(container["resources"], item(path, list, i)); };
  for (std::size_t i = 0; i < spec["containers"].items().size(); ++i) {
    auto amounts = of(spec["containers"].items()[i], "containers", i);
    if (!amounts) return amounts;
    plus_into(running, *amounts);
  }
  for (std::size_t i = 0; i < spec["initContainers"].items().size(); ++i) {
    const Json& container = spec["initContainers"].items()[i];
    auto amounts = of(container, "initContainers", i);
    if (!amounts) return amounts;
    if (container["restartPolicy"].string() == "Always") {
      plus_into(running, *amounts);
      plus_into(sidecars, *amounts);
      max_into(most_init, sidecars);
    } else {
      plus_into(*amounts, sidecars);
      max_into(most_init, *amounts);
    }
  }
  max_into(running, most_init);
  if (!spec["resources"].is_null()) {  // of the pod as a whole: these count instead
    auto whole = read_amounts(spec["resources"]["requests"], path + ".resources.requests", Negative::Refused);
    if (!whole) return whole;
    auto limits = read_amounts(spec["resources"]["limits"], path + ".resources.limits", Negative::Refused);
    if (!limits) return limits;
    for (const auto& [name, value] : *limits)
      if (!running.contains(name)) whole->emplace(name, value);  // where its containers ask for some, that is what the pod asks
    for (const auto& [name, value] : *whole)
      if (name == "cpu" || name == "memory" || name.starts_with("hugepages-")) running[name] = value;
  }
  if (!spec["overhead"].is_null()) {
    auto overhead = read_amounts(spec["overhead"], path + ".overhead", Negative::Refused);
    if (!overhead) return overhead;
    plus_into(running, *overhead);
  }
  return running;
}

NamedAmounts transformed(const NamedAmounts& asked, const RequestRules& rules) {
  Amounts kept;
  std::map<std::string, double> made;
  const auto excluded = [&](const std::string& name) {
    return std::any_of(rules.excluded_prefixes.begin(), rules.excluded_prefixes.end(), [&](const std::string& prefix) { return name.starts_with(prefix); });
  };
  for (const auto& [name, value] : asked) {
    if (excluded(name)) continue;
    const auto rule = rules.transformations.find(name);
    if (rule == rules.transformations.end()) {
      kept[name] = plus(kept[name], value);
      continue;
    }
    double input = as_double(name, value);
    if (const auto by = asked.find(rule->second.multiply_by); by != asked.end() && !excluded(by->first)) input *= as_double(by->first, by->second);
    for (const auto& [output, factor] : rule->second.outputs) made[output] += input * static_cast<double>(factor.milli_value()) / 1000.0;
    if (!rule->second.replace) kept[name] = plus(kept[name], value);
  }
  for (const auto& [name, value] : made) {
    const double scaled = std::ceil(std::max(0.0, value) * (name == "cpu" ? 1000.0 : 1.0) - 1e-9);
    kept[name] = plus(kept[name], scaled >= 9.2e18 ? unlimited : static_cast<Amount>(scaled));
  }
  return kept;
}

Result<std::string> contradiction(const Json& spec, const std::string& path) {
  for (const char* list : {"initContainers", "containers"})
    for (std::size_t i = 0; i < spec[list].items().size(); ++i)
      if (auto above = above_limits(spec[list].items()[i]["resources"], item(path, list, i)); !above || !above->empty()) return above;
  return above_limits(spec["resources"], path);
}

Result<std::string> outside_limits(const Json& spec, const LimitRangeSummary& ranges, const std::string& path) {
  for (const char* list : {"initContainers", "containers"}) {
    for (std::size_t i = 0; i < spec[list].items().size(); ++i) {
      const Json& resources = spec[list].items()[i]["resources"];
      auto requests = read_amounts(resources["requests"], item(path, list, i) + ".resources.requests");
      if (!requests) return std::unexpected(std::move(requests.error()));
      auto limits = read_amounts(resources["limits"], item(path, list, i) + ".resources.limits");
      if (!limits) return std::unexpected(std::move(limits.error()));
      Amounts most = *requests, least = *requests;
      max_into(most, *limits);
      for (const auto& [name, value] : *limits) {
        const auto [at, fresh] = least.emplace(name, value);
        if (!fresh) at->second = std::min(at->second, value);
      }
      if (const std::string name = first_above(most, ranges.container_max); !name.empty()) return fmt::format("{}: {} is above the limit range's maximum", item(path, list, i), name);
      if (const std::string name = first_above(ranges.container_min, least); !name.empty()) return fmt::format("{}: {} is below the limit range's minimum", item(path, list, i), name);
    }
  }
  auto whole = pod_requests(spec, path);
  if (!whole) return std::unexpected(std::move(whole.error()));
  if (const std::string name = first_above(*whole, ranges.pod_max); !name.empty()) return fmt::format("{}: {} is above the limit range's maximum", path, name);
  if (const std::string name = first_above(ranges.pod_min, *whole); !name.empty()) return fmt::format("{}: {} is below the limit range's minimum", path, name);
  return std::string();
}

Result<void> add_limit_range(const Json& object, LimitRangeSummary& into) {
  for (std::size_t i = 0; i < object["spec"]["limits"].items().size(); ++i) {
    const Json& limit = object["spec"]["limits"].items()[i];
    const bool container = limit["type"].string() == "Container";
    if (!container && limit["type"].string() != "Pod") continue;
    auto most = read_amounts(limit["max"], item("spec", "limits", i) + ".max");
    if (!most) return std::unexpected(std::move(most.error()));
    auto least = read_amounts(limit["min"], item("spec", "limits", i) + ".min");
    if (!least) return std::unexpected(std::move(least.error()));
    Amounts& max = container ? into.container_max : into.pod_max;
    for (const auto& [name, value] : *most) {
      const auto [at, fresh] = max.emplace(name, value);
      if (!fresh) at->second = std::min(at->second, value);
    }
    max_into(container ? into.container_min : into.pod_min, *least);
  }
  return {};
}

}  // namespace fairlead::governance
