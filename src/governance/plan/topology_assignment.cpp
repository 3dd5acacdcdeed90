// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/topology_assignment.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <string_view>

namespace fairlead::governance {
namespace {

using kube::Json;
constexpr std::size_t most_domains_a_slice = 100'000, most_slices = 1'000;
constexpr std::size_t most_domains = 1'000'000;  // read at all: a few bytes of slices can stand for any number

std::string packed_value(const Json& values, std::size_t index) {
  if (values["universal"].is_string()) return values["universal"].string();
  const Json& each = values["individual"];
  const auto& roots = each["roots"].items();
  return each["prefix"].string() + (index < roots.size() ? roots[index].string() : std::string()) + each["suffix"].string();
}

std::int32_t packed_count(const Json& counts, std::size_t index) {
  const auto& each = counts["individual"].items();
  const std::int64_t count = counts.has("universal") ? counts["universal"].integer() : index < each.size() ? each[index].integer() : 0;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(count, 0, std::numeric_limits<std::int32_t>::max()));
}

Json strings(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& one : list) out.push(one);
  return out;
}

// One value for all, or a common prefix and suffix around what differs.
Json packed_values(std::span<const DomainPods> domains, std::size_t level) {
  std::string_view prefix = domains[0].values[level], suffix = prefix;
  std::size_t shortest = prefix.size(), longest = shortest;
  for (const DomainPods& domain : domains) {
    const std::string_view value = domain.values[level];
    shortest = std::min(shortest, value.size());
    longest = std::max(longest, value.size());
    const auto same = std::mismatch(prefix.begin(), prefix.end(), value.begin(), value.end()).first;
    prefix = prefix.substr(0, static_cast<std::size_t>(same - prefix.begin()));
    const auto same_end = std::mismatch(suffix.rbegin(), suffix.rend(), value.rbegin(), value.rend()).first;
    suffix.remove_prefix(suffix.size() - static_cast<std::size_t>(same_end - suffix.rbegin()));
  }
  if (prefix.size() == longest) return Json::object({{"universal", std::string(prefix)}});
  if (prefix.size() + suffix.size() > shortest) prefix = prefix.substr(0, shortest - suffix.size());  // "aba", "ababa": they may not overlap
  Json each = Json::object();
  if (!prefix.empty()) each.set("prefix", std::string(prefix));
  Json roots = Json::array();
  for (const DomainPods& domain : domains) {
    const std::string& value = domain.values[level];
    roots.push(value.substr(prefix.size(), value.size() - prefix.size() - suffix.size()));
  }
  each.set("roots", std::move(roots));
  if (!suffix.empty()) each.set("suffix", std::string(suffix));
  return Json::object({{"individual", std::move(each)}});
}

Json slice_of(std::size_t levels, std::span<const DomainPods> domains) {
  Json counts = Json::object();
  if (std::all_of(domains.begin(), domains.end(), [&](const DomainPods& domain) { return domain.count == domains[0].count; })) {
    counts.set("universal", std::int64_t{domains[0].count});
  } else {
    Json each = Json::array();
    for (const DomainPods& domain : domains) each.push(std::int64_t{domain.count});
    counts.set("individual", std::move(each));
  }
  Json values = Json::array();
  for (std::size_t level = 0; level < levels; ++level) values.push(packed_values(domains, level));
  return Json::object({{"domainCount", static_cast<std::int64_t>(domains.size())}, {"podCounts", std::move(counts)}, {"valuesPerLevel", std::move(values)}});
}

// For each host the prefix, up to a '-', that it shares with another; the longest ones that give few enough slices. Empty: none do.
std::vector<std::string> shared_prefixes(const std::vector<DomainPods>& domains) {
  std::map<std::string_view, int> seen;
  std::vector<std::vector<std::string_view>> prefixes(domains.size());
  std::size_t deepest = 0;
  for (std::size_t i = 0; i < domains.size(); ++i) {
    const std::string_view host = domains[i].values.back();
    for (std::size_t at = host.find('-'); at != host.npos && at + 1 < host.size(); at = host.find('-', at + 1)) prefixes[i].push_back(host.substr(0, at + 1));
    for (const std::string_view prefix : prefixes[i]) ++seen[prefix];
    deepest = std::max(deepest, prefixes[i].size());
  }
  for (; deepest > 0; --deepest) {
    std::vector<std::string> keys(domains.size());
    std::size_t slices = 0, start = 0;
    for (std::size_t i = 0; i < domains.size(); ++i) {
      for (std::size_t depth = std::min(deepest, prefixes[i].size()); depth-- > 0;) {
        if (seen[prefixes[i][depth]] < 2) continue;
        keys[i] = prefixes[i][depth];
        break;
      }
      if (i > 0 && keys[i] != keys[start]) {
        slices += (i - start + most_domains_a_slice - 1) / most_domains_a_slice;
        start = i;
      }
    }
    slices += (domains.size() - start + most_domains_a_slice - 1) / most_domains_a_slice;
    if (slices <= most_slices) return keys;
  }
  return {};
}

Json slices_by(const TopologyAssignment& assignment, const std::vector<std::string>& keys) {
  Json slices = Json::array();
  const std::span<const DomainPods> domains(assignment.domains);
  for (std::size_t start = 0; start < domains.size();) {
    std::size_t end = start + 1;
    while (end < domains.size() && end - start < most_domains_a_slice && (keys.empty() || keys[end] == keys[start])) ++end;
    slices.push(slice_of(assignment.levels.size(), domains.subspan(start, end - start)));
    start = end;
  }
  return slices;
}

}  // namespace

std::int64_t pods_in(const TopologyAssignment& assignment) {
  std::int64_t sum = 0;
  for (const DomainPods& domain : assignment.domains) sum += domain.count;
  return sum;
}

TopologyAssignment first_pods(const TopologyAssignment& assignment, std::int32_t count) {
  TopologyAssignment out{.levels = assignment.levels, .domains = {}};
  for (const DomainPods& domain : assignment.domains) {
    if (count <= 0) break;
    out.domains.push_back({domain.values, std::min(domain.count, count)});
    count -= domain.count;
  }
  return out;
}

std::string text(const TopologyAssignment& assignment) {
  std::string out;
  for (const DomainPods& domain : assignment.domains) {
    if (!out.empty()) out += ' ';
    out += fmt::format("{}:{}", fmt::join(domain.values, "/"), domain.count);
  }
  return out;
}

TopologyAssignment read_topology_assignment(const Json& assignment) {
  TopologyAssignment out;
  for (const Json& level : assignment["levels"].items()) out.levels.push_back(level.string());
  for (const Json& domain : assignment["domains"].items()) {
    DomainPods one;
    for (const Json& value : domain["values"].items()) one.values.push_back(value.string());
    one.values.resize(out.levels.size());
    one.count = static_cast<std::int32_t>(std::clamp<std::int64_t>(domain["count"].integer(), 0, std::numeric_limits<std::int32_t>::max()));
    out.domains.push_back(std::move(one));
  }
  for (const Json& slice : assignment["slices"].items()) {
    const auto& per_level = slice["valuesPerLevel"].items();
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(slice["domainCount"].integer(), 0, most_domains_a_slice));
    for (std::size_t i = 0; i < count && out.domains.size() < most_domains; ++i) {
      DomainPods one{.values = {}, .count = packed_count(slice["podCounts"], i)};
      for (std::size_t level = 0; level < out.levels.size(); ++level) one.values.push_back(level < per_level.size() ? packed_value(per_level[level], i) : std::string());
      out.domains.push_back(std::move(one));
    }
  }
  return out;
}

Json v1beta1_json(const TopologyAssignment& assignment) {
  Json domains = Json::array();
  for (const DomainPods& domain : assignment.domains) domains.push(Json::object({{"values", strings(domain.values)}, {"count", std::int64_t{domain.count}}}));
  return Json::object({{"levels", strings(assignment.levels)}, {"domains", std::move(domains)}});
}

Json v1beta2_json(const TopologyAssignment& assignment) {
  const bool by_host = !assignment.levels.empty() && assignment.levels.back() == "kubernetes.io/hostname";
  const std::vector<std::string> keys = by_host && assignment.domains.size() > 1 ? shared_prefixes(assignment.domains) : std::vector<std::string>{};
  const auto whole = [&](Json slices) { return Json::object({{"levels", strings(assignment.levels)}, {"slices", std::move(slices)}}); };
  Json packed = whole(slices_by(assignment, keys));
  if (packed["slices"].items().size() <= 1 || assignment.domains.size() > most_domains_a_slice) return packed;
  Json single = whole(slices_by(assignment, {}));
  return kube::print_json(single).size() < kube::print_json(packed).size() ? single : packed;
}

}  // namespace fairlead::governance
