// SPDX-License-Identifier: Apache-2.0
#include "api/reservations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "api/cluster.h"
#include "api/instance_types.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr std::chrono::minutes kSilent{5};  // as long as a cluster waits for a node that does not answer

std::int64_t seconds_of(Instant at) { return std::chrono::duration_cast<std::chrono::seconds>(at.time_since_epoch()).count(); }

// A plain decimal of the seconds that times in objects can hold; without a sign, without zeros in front.
std::optional<std::int64_t> take_number(std::string_view& rest, std::int64_t most) {
  std::int64_t out = 0;
  const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), out);
  if (read.ec != std::errc() || out < 1 || out > most || rest.front() == '0' || rest.front() == '-') return std::nullopt;
  rest.remove_prefix(static_cast<std::size_t>(read.ptr - rest.data()));
  return out;
}
bool take_dash(std::string_view& rest) {
  if (rest.empty() || rest.front() != '-') return false;
  rest.remove_prefix(1);
  return true;
}
constexpr std::int64_t kLatest = 9'000'000'000;  // what nanoseconds in 64 bits hold

// Searches are for whole hours.
std::optional<PlanWindow> take_window(std::string_view& rest, std::int64_t most_hours) {
  const auto start = take_number(rest, kLatest);
  if (!start || !take_dash(rest)) return std::nullopt;
  const auto end = take_number(rest, kLatest);
  if (!end || *end <= *start || (*end - *start) % 3600 != 0 || *end - *start > most_hours * 3600) return std::nullopt;
  return PlanWindow{Instant(std::chrono::seconds(*start)), Instant(std::chrono::seconds(*end))};
}

}  // namespace

// ---- machines

void Inventory::cluster(const Json& object) {
  const Json spec = spec_in_force(object);
  clusters_.insert(kube::uid_of(object));
  if (kube::deleting(object)) gone_.insert(kube::uid_of(object));
  for (const Json& group : spec["instanceGroups"].items()) plan_of_[{kube::uid_of(object), group["instanceGroupName"].string()}] = plan_object_name(group["trainingPlanArn"].string());
}

void Inventory::instance(const Json& object) {
  const Json& spec = object["spec"];
  Seen seen{.id = kube::name_of(object), .node = object["status"]["node"].string(), .cluster_uid = spec["clusterUid"].string(), .group = spec["instanceGroupName"].string(), .leaves = kube::deleting(object), .replaced = !spec["replace"]["id"].string().empty()};
  if (seen.node.empty()) {
    if (!seen.leaves && !seen.replaced) ++waiting_[{seen.cluster_uid, seen.group}];
    return;
  }
  on_.emplace(seen.node, seen.id);
  instances_[seen.id] = std::move(seen);
}

void Inventory::node(const Json& object) {
  const Json &labels = object["metadata"]["labels"], &annotations = object["metadata"]["annotations"];
  PlanMachine out{.node = kube::name_of(object), .version = kube::version_of(object), .type = labels[kInstanceTypeLabel].string(), .label = labels[kPlanLabel].string(), .wanted_back = annotations[kWantedBack].string()};
  const InstanceType* type = find_instance_type(out.type);
  if (labels[kSpareLabel].string() != "true" || type == nullptr) {
    // No machine of anybody's plan; a label that it has is to go.
    out.holder = PlanMachine::Holder::Others;
    if (!out.label.empty() || !out.wanted_back.empty()) machines_.push_back(std::move(out));
    return;
  }
  const std::string& owner = labels[kInstanceLabel].string();
  // Who has chosen it takes it next, unless it is kept for a plan: then only that plan's groups can, whatever was chosen before.
  const auto chosen = out.label.empty() ? on_.find(out.node) : on_.end();
  const std::string& id = !owner.empty() || chosen == on_.end() ? owner : chosen->second;
  bool replaced = labels.has(kReplacedLabel);
  if (!id.empty()) {
    out.instance = id;
    const auto seen = instances_.find(id);
    const auto named = seen == instances_.end() ? plan_of_.end() : plan_of_.find({seen->second.cluster_uid, seen->second.group});
    const auto plan = named == plan_of_.end() ? plans_.end() : plans_.find(named->second);
    replaced = replaced || (seen != instances_.end() && seen->second.replaced);
    const bool kept = !out.label.empty();
    const bool in_time = plan != plans_.end() && plan->second.active(now_) && plan->second.granted->type == out.type;
    const bool ended = plan != plans_.end() && plan->second.phase(now_) == PlanPhase::Expired;
    // One that is kept for a plan was taken by a group of a plan: no other can. Whatever that group names by now, it is not the group's for ever: others were promised it.
    if (seen == instances_.end() || !clusters_.contains(seen->second.cluster_uid)) out.holder = kept ? PlanMachine::Holder::Unknown : PlanMachine::Holder::Others;
    else if (seen->second.leaves || gone_.contains(seen->second.cluster_uid) || (kept && named == plan_of_.end())) out.holder = PlanMachine::Holder::Leaving;
    else if (in_time) out.holder = PlanMachine::Holder::Plan;
    else out.holder = ended || kept ? PlanMachine::Holder::Ended : PlanMachine::Holder::Others;
    if (in_time || ended) out.plan = plan->first;
    if (out.holder != PlanMachine::Holder::Plan && out.holder != PlanMachine::Holder::Ended) out.plan.clear();
  }
  const bool cordoned = object["spec"]["unschedulable"].boolean() && (id.empty() || annotations[kCordonedByNote].string() != id);
  const bool closed = id.empty() && closed_by_taints(object);  // those of the group that has it are its own business
  // What its group found out about it is worth as much to the next one.
  const bool failed = labels[kDeepCheckLabel].string() == "Failed" || labels[kHealthLabel].string() == "UnschedulablePendingReplacement";
  const Json* ready = kube::find_condition(object, "Ready");
  bool answers = ready != nullptr && (*ready)["status"].string() == "True";
  if (ready != nullptr && !answers)
    if (const auto since = parse_time((*ready)["lastTransitionTime"].string()); since && now_ < *since + kSilent) {
      answers = true;
      look_again_ = std::min(look_again_.value_or(kForever), *since + kSilent);
    }
  out.replaced = replaced || failed;
  out.healthy = answers && !cordoned && !closed && !out.replaced && !kube::deleting(object) && why_not_of_type(*type, object).empty();
  machines_.push_back(std::move(out));
}

std::vector<PlanMachine> Inventory::machines() {
  std::sort(machines_.begin(), machines_.end(), [](const PlanMachine& a, const PlanMachine& b) { return a.node < b.node; });
  std::map<std::string, std::vector<PlanMachine*>> of;
  for (PlanMachine& one : machines_)
    if (one.holder == PlanMachine::Holder::Plan && one.healthy) of[one.plan].push_back(&one);
  for (auto& [name, held] : of) {
    const auto most = static_cast<std::size_t>(std::max(0, plans_.at(name).granted->count));
    if (held.size() <= most) continue;
    std::stable_sort(held.begin(), held.end(), [&, plan = &name](const PlanMachine* a, const PlanMachine* b) { return (a->label == *plan) > (b->label == *plan); });
    for (std::size_t i = most; i < held.size(); ++i) held[i]->holder = held[i]->label.empty() ? PlanMachine::Holder::Others : PlanMachine::Holder::Ended, held[i]->plan.clear();
  }
  return std::move(machines_);
}

std::map<std::string, int> Inventory::waiting() const {
  std::map<std::string, int> out;
  for (const auto& [group, count] : waiting_)
    if (const auto plan = plan_of_.find(group); plan != plan_of_.end() && !plan->second.empty() && !gone_.contains(group.first)) out[plan->second] += count;
  return out;
}

int promisable(const std::vector<PlanMachine>& machines, std::string_view type) {
  return static_cast<int>(std::count_if(machines.begin(), machines.end(), [&](const PlanMachine& one) { return one.type == type && one.promisable(); }));
}

// ---- promises

std::vector<Commitment> commitments(const Plans& plans, std::string_view type, std::string_view but) {
  std::vector<Commitment> out;
  for (const auto& [name, plan] : plans)
    if (name != but && plan.granted && plan.granted->type == type) out.push_back({plan.granted->count, plan.granted->window});
  return out;
}

int peak(const std::vector<Commitment>& all, Instant from, Instant to) {
  std::vector<std::pair<Instant, int>> changes;
  for (const Commitment& one : all) {
    const Instant start = std::max(one.window.start, from), end = std::min(one.window.end, to);
    if (start >= end) continue;
    changes.emplace_back(start, one.count);
    changes.emplace_back(end, -one.count);
  }
  // At one time what ends makes room first.
  std::sort(changes.begin(), changes.end());
  int now = 0, out = 0;
  for (const auto& [at, by] : changes) out = std::max(out, now += by);
  return out;
}

std::vector<Offering> offerings(const OfferingQuestion& question, int there, const std::vector<Commitment>& promised, Instant now) {
  std::vector<Offering> out;
  if (question.count < 1 || question.count > there || question.duration <= std::chrono::seconds(0)) return out;
  const Instant first = std::max(std::chrono::ceil<std::chrono::seconds>(question.after), std::chrono::floor<std::chrono::seconds>(now));
  std::set<Instant> starts{first};
  for (const Commitment& one : promised)
    if (one.window.end > first) starts.insert(one.window.end);
  for (const Instant start : starts) {
    if (start > Instant(std::chrono::seconds(kLatest)) - question.duration) break;
    const Instant end = start + question.duration;
    if (question.before && end > *question.before) break;
    if (peak(promised, start, end) + question.count > there) continue;
    out.push_back({question.type, question.count, {start, end}});
    if (out.size() == kMostOfferings) break;
  }
  return out;
}

// ---- ids

std::string offering_id(const Offering& offering) {
  std::string type;
  for (const char c : offering.type) type += c == '.' ? std::string("--") : std::string(1, c);
  return fmt::format("tpo-{}-{}-{}-{}", offering.count, seconds_of(offering.window.start), seconds_of(offering.window.end), type);
}

std::optional<Offering> parse_offering_id(std::string_view id) {
  if (!id.starts_with("tpo-") || id.size() > 256) return std::nullopt;
  std::string_view rest = id.substr(4);
  const auto count = take_number(rest, kMostPlanned);
  if (!count || !take_dash(rest)) return std::nullopt;
  const auto window = take_window(rest, kLongestPlan.count());
  if (!window || !take_dash(rest)) return std::nullopt;
  std::string type;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool dot = rest.substr(i, 2) == "--";
    type += dot ? '.' : rest[i];
    i += dot;
  }
  Offering out{std::move(type), static_cast<int>(*count), *window};
  if (find_instance_type(out.type) == nullptr || offering_id(out) != id) return std::nullopt;
  return out;
}

std::string extension_id(const ExtensionOffering& offering) { return fmt::format("tpe-{}-{}-{}", offering.plan_id, seconds_of(offering.window.start), seconds_of(offering.window.end)); }

std::optional<ExtensionOffering> parse_extension_id(std::string_view id) {
  constexpr std::size_t length = 12;  // of entity_id
  if (!id.starts_with("tpe-") || id.size() > 256 || id.size() < 4 + length + 1) return std::nullopt;
  std::string_view rest = id.substr(4);
  ExtensionOffering out{.plan_id = std::string(rest.substr(0, length)), .window = {}};
  if (!std::all_of(out.plan_id.begin(), out.plan_id.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); })) return std::nullopt;
  rest.remove_prefix(length);
  if (!take_dash(rest)) return std::nullopt;
  const auto window = take_window(rest, kLongestExtension.count());
  if (!window || !rest.empty()) return std::nullopt;
  out.window = *window;
  return extension_id(out) == id ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace fairlead::api
