// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/past_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kube/selector.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

constexpr double largest = 9e15;  // as exact as a double counts

double seconds_between(Instant from, Instant to) { return std::chrono::duration<double>(to - from).count(); }

}  // namespace

std::chrono::nanoseconds PastRules::every() const { return std::clamp<std::chrono::nanoseconds>(std::chrono::nanoseconds(half_life) / 100, std::chrono::seconds(1), std::chrono::minutes(5)); }

double PastRules::part_of_next() const { return half_life.count() <= 0 ? 0 : 1 - std::exp2(-std::chrono::duration<double>(every()).count() / static_cast<double>(half_life.count())); }

double PastUse::kept(Instant from, Instant to) const { return to <= from || half_life_.count() <= 0 ? 1 : std::exp2(-seconds_between(from, to) / static_cast<double>(half_life_.count())); }

void PastUse::advance(Entry& entry, Instant now) const {
  if (now <= entry.at) return;
  const double stays = kept(entry.at, now);
  for (auto& [resource, value] : entry.consumed) value *= stays;
  for (const auto& [resource, value] : entry.using_now) entry.consumed[resource] += value * (1 - stays);
  entry.at = now;
}

void PastUse::set_half_life(std::chrono::seconds half_life, Instant now) {
  if (half_life == half_life_) return;
  for (auto& [key, entry] : entries_) {
    advance(entry, now);
    if (half_life.count() <= 0) entry.consumed.clear();
  }
  half_life_ = half_life;
}

void PastUse::restore(const ObjectKey& local, const Json& status, Instant now) {
  Entry& entry = entries_[local];
  if (entry.restored) return;
  entry.restored = now;
  const Json& told = status["fairSharing"]["admissionFairSharingStatus"];
  const auto at = parse_time(told["lastUpdate"].string());
  if (!at || *at > now) {
    entry.at = std::max(entry.at, now);
    return;
  }
  entry.restored = *at;
  entry.consumed.clear();
  for (const auto& [resource, text] : told["consumedResources"].members())
    if (const auto value = kube::Quantity::from_json(text); value && value->milli_value() > 0)
      entry.consumed[resource] = std::min(largest, static_cast<double>(value->milli_value()) / (resource == "cpu" ? 1 : 1'000));
  entry.at = *at;  // and what is held already has been held since
  advance(entry, now);
}

void PastUse::use(const ObjectKey& local, const PastAmounts& more, Instant since, Instant now) {
  Entry& entry = entries_[local];
  if (entry.at == Instant{}) entry.at = now;
  advance(entry, now);
  const double stays = kept(entry.restored ? std::max(since, *entry.restored) : since, now);
  for (const auto& [resource, amount] : more) {
    double& held = entry.using_now[resource];
    held = std::clamp(held + amount, 0.0, largest);
    if (amount > 0 && stays < 1) entry.consumed[resource] += amount * (1 - stays);
    if (held == 0) entry.using_now.erase(resource);
  }
}

void PastUse::forget(const ObjectKey& local) {
  const auto at = entries_.find(local);
  if (at == entries_.end()) return;
  at->second.consumed.clear();
  at->second.restored.reset();
  if (at->second.using_now.empty()) entries_.erase(at);
}

PastAmounts PastUse::at(const ObjectKey& local, Instant now) const {
  const auto found = entries_.find(local);
  if (found == entries_.end()) return {};
  Entry entry = found->second;
  advance(entry, now);
  return entry.consumed;
}

Json PastUse::status(const ObjectKey& local, Instant now) const {
  Json consumed = Json::object();
  for (const auto& [resource, value] : at(local, now)) {
    const double thousandths = std::round(resource == "cpu" ? value : value * 1'000);
    if (thousandths < 1) continue;
    if (thousandths < largest) consumed.set(resource, fmt::format("{}m", static_cast<std::int64_t>(thousandths)));
    else consumed.set(resource, fmt::format("{}", static_cast<std::int64_t>(std::min(largest, resource == "cpu" ? value / 1'000 : value))));
  }
  return Json::object({{"consumedResources", std::move(consumed)}, {"lastUpdate", print_time(now)}});
}

std::vector<PastWeight> weights_by_past(const std::vector<PastNode>& nodes, double strength) {
  // Cohorts that are only named are nodes, too.
  struct Inner {
    std::string parent;
    double weight = 1;
    PastAmounts used;
    std::map<std::string, double> nominal;
  };
  std::map<std::string, Inner> cohorts;
  for (const PastNode& node : nodes) {
    if (!node.parent.empty()) cohorts.try_emplace(node.parent);
    if (node.leaf) continue;
    Inner& own = cohorts[node.name];
    own.parent = node.parent, own.weight = node.weight;
  }
  const std::size_t deepest = cohorts.size();
  const auto each_above = [&](const std::string& parent, const auto& visit) {  // false: a cycle
    std::size_t steps = 0;
    for (const std::string* at = &parent; !at->empty(); at = &cohorts.at(*at).parent) {
      if (++steps > deepest) return false;
      visit(*at);
    }
    return true;
  };
  const auto root_of = [&](const std::string& name) {
    std::string root = name;
    return each_above(name, [&](const std::string& at) { root = at; }) ? root : std::string();
  };
  for (const PastNode& node : nodes) {
    if (!root_of(node.leaf ? node.parent : node.name).empty())
      for (const auto& [resource, amount] : node.nominal) cohorts.at(root_of(node.leaf ? node.parent : node.name)).nominal[resource] += amount;
    if (!node.leaf || root_of(node.parent).empty()) continue;
    (void)each_above(node.parent, [&](const std::string& at) {
      for (const auto& [resource, amount] : node.used) cohorts.at(at).used[resource] += amount;
    });
  }
  const auto dominant = [](const PastAmounts& used, const std::map<std::string, double>& nominal) {
    double most = 0;
    for (const auto& [resource, amount] : used)
      if (const auto all = nominal.find(resource); all != nominal.end() && all->second > 0) most = std::max(most, amount / all->second);
    return most;
  };
  struct Siblings {
    double used = 0, weights = 0;
  };
  std::map<std::string, Siblings> of_parent;
  const auto add = [&](const std::string& parent, double weight, const PastAmounts& used) {
    const std::string root = parent.empty() ? "" : root_of(parent);
    if (root.empty()) return;
    Siblings& sum = of_parent[parent];
    sum.used += dominant(used, cohorts.at(root).nominal);
    sum.weights += weight;
  };
  for (const PastNode& node : nodes)
    if (node.leaf) add(node.parent, node.weight, node.used);
  for (const auto& [name, one] : cohorts) add(one.parent, one.weight, one.used);

  std::vector<PastWeight> out;
  out.reserve(nodes.size());
  for (const PastNode& node : nodes) {
    PastWeight& into = out.emplace_back();
    const std::string root = node.parent.empty() ? "" : root_of(node.parent);
    if (root.empty()) continue;
    const Siblings& all = of_parent.at(node.parent);
    if (all.used > 0) into.used = dominant(node.leaf ? node.used : cohorts.at(node.name).used, cohorts.at(root).nominal) / all.used;
    if (all.weights > 0) into.due = node.weight / all.weights;
    if (all.used <= 0 || into.due <= 0) continue;
    into.factor = (1 + strength) / (1 + strength * into.used / into.due);
  }
  return out;
}

}  // namespace fairlead::governance
