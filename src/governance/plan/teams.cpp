// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/teams.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "api/queue_crds.h"
#include "api/user_roles.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/quota_schedule.h"
#include "governance/plan/team_policy.h"
#include "kube/patch.h"

namespace fairlead::governance {

using kube::Json;

namespace {

using Amounts = std::map<std::string, Amount>;     // by resource
using ByType = std::map<std::string, Amounts>;     // by instance type

constexpr std::array kAccelerators{"nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neurondevice", "habana.ai/gaudi", "google.com/tpu", "gpu.intel.com/xe", "gpu.intel.com/i915"};
constexpr const char* kManaged = "sagemaker.amazonaws.com/sagemaker-managed-queue";
constexpr const char* kQuotaLabel = "fairlead.dev/compute-quota";
constexpr std::int64_t kBorrowPercent = 50;

bool counts(const std::string& resource) {
  return resource == "cpu" || resource == "memory" || (resource.find('/') != std::string::npos && !resource.starts_with("hugepages-") && !resource.starts_with("attachable-volumes"));
}

// amount * part / whole, rounded down; 0 of nothing.
Amount share_of(Amount amount, Amount part, Amount whole) {
  if (whole <= 0 || amount <= 0 || part <= 0) return 0;
  if (amount == unlimited) return unlimited;
  const __int128 out = static_cast<__int128>(amount) * part / whole;
  return out > unlimited - 1 ? unlimited - 1 : static_cast<Amount>(out);
}
Amount at(const Amounts& amounts, const std::string& resource) {
  const auto found = amounts.find(resource);
  return found == amounts.end() ? 0 : found->second;
}
std::string accelerator_of(const InstanceType& type) {
  for (const char* name : kAccelerators)
    if (at(type.smallest, name) > 0) return name;
  return "";
}

// A merge patch replaces lists whole, with what is null in their objects.
Json without_nulls(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& one : value.items()) out.push(without_nulls(one));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [key, one] : value.members())
    if (!one.is_null()) out.set(key, without_nulls(one));
  return out;
}

std::vector<const Json*> by_age(const std::vector<Json>& objects) {
  std::vector<const Json*> out;
  for (const Json& object : objects)
    if (!kube::deleting(object)) out.push_back(&object);
  std::sort(out.begin(), out.end(), [](const Json* a, const Json* b) {
    const auto key = [](const Json& one) { return std::pair(one["metadata"]["creationTimestamp"].string(), kube::name_of(one)); };
    return key(*a) < key(*b);
  });
  return out;
}

std::string class_named(const Json& priority_class) { return priority_class["name"].string() + "-priority"; }

bool is_fair(const Json* policy) { return policy == nullptr || (*policy)["spec"]["fairShare"].string() != "Disabled"; }

kube::Condition accepted(std::string message) { return {"Accepted", "True", "Accepted", std::move(message)}; }
kube::Condition refused(std::string reason, std::string message) { return {"Accepted", "False", std::move(reason), std::move(message)}; }

struct Refusal {
  std::string reason, message;
};

// A whole number of whole units of `scale`, as its users may write fractions; -1: it is none.
Amount scaled(const Json& value, double scale) {
  const double number = value.number(-1) * scale;
  return number >= 0 && number < 9e18 ? static_cast<Amount>(std::floor(number)) : -1;
}

// What one entry of a quota asks for. `where`: its path, for words.
std::expected<Amounts, Refusal> read_entry(const Json& entry, const std::map<std::string, InstanceType>& types, const std::string& where) {
  const std::string& name = entry["instanceType"].string();
  const auto wrong = [&](const std::string& why) { return std::unexpected(Refusal{"Invalid", fmt::format("{}: {}", where, why)}); };
  const auto found = types.find(name);
  if (found == types.end()) {
    std::vector<std::string> known;
    for (const auto& [type, nodes] : types) known.push_back(type);
    return std::unexpected(Refusal{"UnknownInstanceType", fmt::format("{}.instanceType: no node has the label {}={}; {}", where, kInstanceType, name, known.empty() ? "no node has that label at all" : fmt::format("there are {}", fmt::join(known, ", ")))});
  }
  const InstanceType& type = found->second;
  const bool count = entry.has("count"), devices = entry.has("accelerators"), cpu = entry.has("vCpu"), memory = entry.has("memoryInGiB"), partition = entry.has("acceleratorPartition");
  if (!count && !devices && !cpu && !memory && !partition) return wrong("say count, accelerators, vCpu, memoryInGiB or acceleratorPartition");
  if (count && (devices || cpu || memory || partition)) return wrong("count is whole machines and stands alone; leave it out, or the amounts");
  Amounts out;
  const auto whole_of = [&](Amount part, Amount whole) {
    for (const auto& [resource, amount] : type.smallest) out[resource] = share_of(amount, part, whole);
  };
  if (count) {
    if (entry["count"].integer(-1) < 0) return wrong("count is a number of machines");
    whole_of(entry["count"].integer(), 1);
    return out;
  }
  const std::string accelerator = accelerator_of(type);
  const std::string sliced = partition ? "nvidia.com/" + entry["acceleratorPartition"]["type"].string() : "";
  const Amount wanted_devices = entry["accelerators"].integer(), wanted_slices = entry["acceleratorPartition"]["count"].integer();
  const Amount wanted_cpu = scaled(entry["vCpu"], 1000), wanted_memory = scaled(entry["memoryInGiB"], 1024.0 * 1024 * 1024);
  if (devices && accelerator.empty()) return wrong(fmt::format("accelerators: nodes of {} have none", name));
  if (partition && at(type.smallest, sliced) == 0) return wrong(fmt::format("acceleratorPartition.type: nodes of {} offer no {}", name, sliced));
  if (wanted_devices < 0 || wanted_slices < 0 || (cpu && wanted_cpu < 0) || (memory && wanted_memory < 0)) return wrong("amounts are not below 0");
  // The rest pro rata of the scarcest that is named.
  if (devices) whole_of(wanted_devices, at(type.smallest, accelerator));
  else if (partition) whole_of(wanted_slices, at(type.smallest, sliced));
  else if (cpu) whole_of(wanted_cpu, at(type.smallest, "cpu"));
  else whole_of(wanted_memory, at(type.smallest, "memory"));
  if (partition && !devices && !accelerator.empty()) out[accelerator] = 0;  // slices are of other devices than whole ones
  if (devices) out[accelerator] = wanted_devices;
  if (partition) out[sliced] = wanted_slices;
  if (cpu) out["cpu"] = wanted_cpu;
  if (memory) out["memory"] = wanted_memory;
  return out;
}

std::expected<ByType, Refusal> read_entries(const Json& list, const std::map<std::string, InstanceType>& types, const std::string& where) {
  ByType out;
  for (std::size_t i = 0; i < list.items().size(); ++i) {
    auto amounts = read_entry(list.items()[i], types, fmt::format("{}[{}]", where, i));
    if (!amounts) return std::unexpected(std::move(amounts.error()));
    Amounts& sum = out[list.items()[i]["instanceType"].string()];
    for (const auto& [resource, amount] : *amounts) sum[resource] = plus(at(sum, resource), amount);
  }
  return out;
}

Json print_amounts(const ByType& amounts) {
  Json out = Json::array();
  for (const auto& [type, resources] : amounts) {
    Json list = Json::object();
    for (const auto& [resource, amount] : resources) list.set(resource, amount_text(resource, amount));
    out.push(Json::object({{"instanceType", type}, {"resources", std::move(list)}}));
  }
  return out;
}
ByType parse_amounts(const Json& list) {
  ByType out;
  for (const Json& one : list.items())
    for (const auto& [resource, text] : one["resources"].members())
      if (auto amount = read_quota(text, resource, "")) out[one["instanceType"].string()][resource] = *amount;
  return out;
}
// Of a queue that is still there: what it takes by its nominal quotas.
ByType promised_by(const Json& queue) {
  ByType out;
  for (const Json& group : queue["spec"]["resourceGroups"].items())
    for (const Json& flavor : group["flavors"].items())
      for (const Json& resource : flavor["resources"].items())
        if (auto amount = read_quota(resource["nominalQuota"], resource["name"].string(), "")) {
          Amount& sum = out[flavor["name"].string()][resource["name"].string()];
          sum = plus(sum, *amount);
        }
  return out;
}

// At times a team has other amounts of the types that a window names.
struct Timed {
  Json when;  // name, days, from, to, utcOffset
  ByType amounts;
};
struct Quota {
  const Json* object = nullptr;
  std::string name, team;
  Json in_force;      // null: none
  ByType allocated;
  std::vector<Timed> windows;
  QuotaSchedule times;  // of those
  kube::Condition verdict;
};

constexpr const char* kTimes[] = {"name", "days", "from", "to", "utcOffset"};

Json when_of(const Json& window) {
  Json out = Json::object();
  for (const char* field : kTimes)
    if (!window[field].is_null()) out.set(field, window[field]);
  return out;
}
std::vector<Timed> parse_windows(const Json& list) {
  std::vector<Timed> out;
  for (const Json& one : list.items()) out.push_back({when_of(one), parse_amounts(one["allocated"])});
  return out;
}
// As an annotation of the queue has it.
Json with_quotas(const Timed& window, const std::function<Json(const std::string& type, const std::string& resource, Amount nominal)>& quota) {
  Json out = window.when, list = Json::array();
  for (const auto& [type, resources] : window.amounts)
    for (const auto& [resource, amount] : resources) list.push(quota(type, resource, amount));
  return out.set("quotas", std::move(list));
}
Result<QuotaSchedule> times_of(const std::vector<Timed>& windows) {
  Json list = Json::array();
  for (const Timed& window : windows)
    list.push(with_quotas(window, [](const std::string& type, const std::string& resource, Amount) { return Json::object({{"flavor", type}, {"resource", resource}, {"nominalQuota", "0"}}); }));
  return read_quota_schedule(kube::print_json(list));
}

const Instant some_sunday = *parse_time("2026-01-04T00:00:00Z");
const ByType& in_force_at(const ByType& base, const std::vector<Timed>& windows, const QuotaSchedule& times, Instant at, ByType& scratch) {
  const QuotaWindow* const window = window_at(times, at);
  if (window == nullptr) return base;
  scratch = base;
  for (const auto& [type, amounts] : windows[static_cast<std::size_t>(window - times.data())].amounts) scratch[type] = amounts;
  return scratch;
}

class Planner {
 public:
  explicit Planner(const TeamsInput& in) : in_(in), types_(read_instance_types(in.nodes)) {}

  TeamsPlan run() {
    choose_policy();
    for (const Json* object : by_age(in_.quotas)) {
      Quota quota{.object = object, .name = kube::name_of(*object), .team = (*object)["spec"]["teamName"].string(), .in_force = (*object)["status"]["inForce"], .allocated = parse_amounts((*object)["status"]["allocated"]), .verdict = {}};
      if (!quota.in_force.is_object()) quota.in_force = Json(), quota.allocated.clear();
      else quota.team = quota.in_force["teamName"].string();  // a team is not renamed: its queue would be another
      if (!quota.in_force.is_null()) quota.windows = parse_windows((*object)["status"]["schedule"]);
      if (auto times = times_of(quota.windows)) quota.times = std::move(*times);
      else quota.windows.clear();
      quotas_.push_back(std::move(quota));
    }
    claim_teams();
    count_what_leaves();
    for (const Quota& quota : quotas_) promise(quota.allocated, 1);
    for (Quota& quota : quotas_) judge(quota);
    make_policy();
    make_admission_policy();
    for (const Quota& quota : quotas_)
      if (!quota.in_force.is_null()) make_team(quota);
    for (const Quota& quota : quotas_) plan_.quotas.push_back({kube::key_of(*quota.object), quota.verdict, capacity_of(quota), quota.in_force, print_amounts(quota.allocated), schedule_of(quota)});
    return std::move(plan_);
  }

 private:
  void choose_policy() {
    for (const Json* config : by_age(in_.configs)) {
      Verdict verdict{kube::key_of(*config), accepted("it is in force"), {}, {}, {}};
      if (policy_) verdict.accepted = refused("AnotherInForce", fmt::format("SchedulerConfig {} is older and in force; delete one of them", kube::name_of(*policy_)));
      else policy_ = config;
      plan_.configs.push_back(std::move(verdict));
    }
  }
  bool fair() const { return is_fair(policy_); }

  // Who has a queue keeps it; else the older one.
  void claim_teams() {
    for (const bool with_queue : {true, false})
      for (const Quota& quota : quotas_)
        if (quota.in_force.is_null() != with_queue) team_of_.try_emplace(quota.team, &quota);
  }
  void count_what_leaves() {
    for (const auto& [name, queue] : in_.queues) {
      if (queue["metadata"]["labels"][kTeamsLabel].string() != "true") continue;
      const bool wanted = std::any_of(quotas_.begin(), quotas_.end(), [&of = name](const Quota& quota) { return !quota.in_force.is_null() && queue_of_team(quota.team) == of; });
      if (wanted) continue;
      promise(promised_by(queue), 1);
      for (const auto& [type, resources] : promised_by(queue))
        for (const auto& [resource, amount] : resources) leaving_[type][resource] = plus(at(leaving_[type], resource), amount);
    }
  }
  void promise(const ByType& amounts, int sign) {
    for (const auto& [type, resources] : amounts)
      for (const auto& [resource, amount] : resources) {
        Amount& sum = promised_[type][resource];
        sum = sign > 0 ? plus(sum, amount) : minus(sum, amount);
      }
  }

  std::optional<Refusal> obstacle(const Quota& quota) const {
    const Json& spec = (*quota.object)["spec"];
    if (!quota.in_force.is_null() && spec["teamName"].string() != quota.team)
      return Refusal{"TeamIsFixed", fmt::format("spec.teamName: this quota is of team {}, whose queue and namespace carry that name; make another quota for team {}", quota.team, spec["teamName"].string())};
    if (const Quota* other = team_of_.at(quota.team); other != &quota) return Refusal{"TeamTaken", fmt::format("spec.teamName: ComputeQuota {} is that of team {}; change it, or delete one of them", other->name, quota.team)};
    if (const auto space = in_.spaces.find(space_of_team(quota.team)); space != in_.spaces.end() && space->second["metadata"]["labels"][kTeamsLabel].string() != "true")
      return Refusal{"NamespaceTaken", fmt::format("namespace {} is there and was not made for a team; it is left alone. Choose another team name", space->first)};
    if (const auto queue = in_.queues.find(queue_of_team(quota.team)); queue != in_.queues.end() && queue->second["metadata"]["labels"][kTeamsLabel].string() != "true")
      return Refusal{"QueueTaken", fmt::format("ClusterQueue {} is there and was not made for a team; it is left alone. Choose another team name", queue->first)};
    return std::nullopt;
  }

  static Json schedule_of(const Quota& quota) {
    if (quota.windows.empty()) return {};
    Json out = Json::array();
    for (const Timed& window : quota.windows) {
      Json one = window.when;
      out.push(one.set("allocated", print_amounts(window.amounts)));
    }
    return out;
  }

  // When something begins or ends in a week: between two of them nothing changes. Nobody has a window: one moment of all.
  std::vector<Instant> moments(const QuotaSchedule& more) const {
    std::set<std::int64_t> minutes;
    const auto add = [&](const QuotaSchedule& times) {
      for (const QuotaWindow& window : times)
        for (std::int64_t day = 0; day < 7; ++day)
          for (const auto edge : {window.from, window.from + window.lasts})
            if (window.days[static_cast<std::size_t>(day)]) minutes.insert(((day * 1'440 + (edge - window.utc_offset).count()) % 10'080 + 10'080) % 10'080);
    };
    for (const Quota& quota : quotas_) add(quota.times);
    add(more);
    if (minutes.empty()) minutes.insert(0);
    std::vector<Instant> out;
    for (const std::int64_t minute : minutes) out.push_back(some_sunday + std::chrono::minutes(minute));
    return out;
  }
  // What all have together then.
  ByType promised_at(Instant moment, const Quota* but) const {
    ByType out = leaving_, scratch;
    for (const Quota& quota : quotas_) {
      if (&quota == but) continue;
      for (const auto& [type, resources] : in_force_at(quota.allocated, quota.windows, quota.times, moment, scratch))
        for (const auto& [resource, amount] : resources) out[type][resource] = plus(at(out[type], resource), amount);
    }
    return out;
  }
  // The most that they have together at any time.
  const ByType& peak() {
    if (peak_) return *peak_;
    ByType& out = peak_.emplace();
    for (const Instant moment : moments({}))
      for (const auto& [type, resources] : promised_at(moment, nullptr))
        for (const auto& [resource, amount] : resources) out[type][resource] = std::max(at(out[type], resource), amount);
    return out;
  }

  std::expected<std::vector<Timed>, Refusal> read_windows(const Json& list, const ByType& base) const {
    std::vector<Timed> out;
    for (std::size_t i = 0; i < list.items().size(); ++i) {
      const std::string where = fmt::format("spec.schedule[{}]", i);
      auto amounts = read_entries(list.items()[i]["computeQuotaResources"], types_, where + ".computeQuotaResources");
      if (!amounts) return std::unexpected(std::move(amounts.error()));
      for (const auto& [type, resources] : *amounts)
        if (!base.contains(type)) return std::unexpected(Refusal{"Invalid", fmt::format("{}.computeQuotaResources: {} is not among spec.computeQuotaResources: name it there, with count 0 if it is for these hours alone", where, type)});
      out.push_back({when_of(list.items()[i]), std::move(*amounts)});
    }
    if (auto times = times_of(out); !times) return std::unexpected(Refusal{"Invalid", "spec.schedule" + times.error().message});
    return out;
  }

  // As beyond(), at each moment of a week.
  std::string beyond_at_times(const Quota& quota, const ByType& wanted, const std::vector<Timed>& windows) const {
    const QuotaSchedule times = times_of(windows).value_or(QuotaSchedule());
    for (const Instant moment : moments(times)) {
      ByType scratch, scratch_before;
      const ByType others = promised_at(moment, &quota), &before = in_force_at(quota.allocated, quota.windows, quota.times, moment, scratch_before);
      for (const auto& [type, resources] : in_force_at(wanted, windows, times, moment, scratch))
        for (const auto& [resource, amount] : resources) {
          const auto had = before.find(type);
          if (amount <= (had == before.end() ? 0 : at(had->second, resource))) continue;
          const auto sum = others.find(type);
          const Amount taken = sum == others.end() ? 0 : at(sum->second, resource), capacity = at(types_.at(type).capacity, resource);
          if (plus(taken, amount) <= capacity) continue;
          const auto minute = std::chrono::duration_cast<std::chrono::minutes>(moment - some_sunday).count();
          constexpr std::array days{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
          return fmt::format("{} of {}: from {} {:02d}:{:02d} UTC on {} wanted, {} of {} are left", resource, type, days[static_cast<std::size_t>(minute / 1'440)], minute / 60 % 24, minute % 60, amount_text(resource, amount),
                             amount_text(resource, std::max<Amount>(0, minus(capacity, taken))), amount_text(resource, capacity));
        }
    }
    return "";
  }

  // What would be promised beyond its capacity, in words; empty: nothing. Where it takes no more than before, nothing is asked.
  std::string beyond(const Quota& quota, const ByType& wanted) const {
    std::vector<std::string> words;
    for (const auto& [type, resources] : wanted)
      for (const auto& [resource, amount] : resources) {
        const auto before = quota.allocated.find(type);
        const Amount had = before == quota.allocated.end() ? 0 : at(before->second, resource);
        if (amount <= had) continue;
        const auto sum = promised_.find(type);
        const Amount others = minus(sum == promised_.end() ? 0 : at(sum->second, resource), had), capacity = at(types_.at(type).capacity, resource);
        if (plus(others, amount) <= capacity) continue;
        words.push_back(fmt::format("{} of {}: {} wanted, {} of {} are left ({})", resource, type, amount_text(resource, amount), amount_text(resource, std::max<Amount>(0, minus(capacity, others))), amount_text(resource, capacity), holders(quota, type, resource)));
      }
    return fmt::format("{}", fmt::join(words, "; "));
  }
  std::string holders(const Quota& but, const std::string& type, const std::string& resource) const {
    std::vector<std::string> words;
    for (const Quota& quota : quotas_) {
      const auto have = quota.allocated.find(type);
      if (&quota != &but && have != quota.allocated.end() && at(have->second, resource) > 0) words.push_back(fmt::format("{} has {}", quota.team, amount_text(resource, at(have->second, resource))));
    }
    if (words.empty()) return "no other team has any";
    if (words.size() > 5) words.resize(5), words.push_back("...");
    return fmt::format("{}", fmt::join(words, ", "));
  }

  void judge(Quota& quota) {
    const Json& spec = (*quota.object)["spec"];
    const std::string kept = quota.in_force.is_null() ? "" : "; what was accepted before stays in force";
    if (auto why = obstacle(quota)) {
      quota.verdict = refused(why->reason, why->message + kept);
      return;
    }
    auto wanted = read_entries(spec["computeQuotaResources"], types_, "spec.computeQuotaResources");
    if (!wanted) {
      quota.verdict = refused(wanted.error().reason, wanted.error().message + kept);
      return;
    }
    if (auto limits = read_entries(spec["resourceSharingConfig"]["absoluteBorrowLimits"], types_, "spec.resourceSharingConfig.absoluteBorrowLimits"); !limits) {
      quota.verdict = refused(limits.error().reason, limits.error().message + kept);
      return;
    }
    auto windows = read_windows(spec["schedule"], *wanted);
    if (!windows) {
      quota.verdict = refused(windows.error().reason, windows.error().message + kept);
      return;
    }
    const bool timed = !windows->empty() || std::ranges::any_of(quotas_, [](const Quota& one) { return !one.windows.empty(); });
    if (const std::string words = timed ? beyond_at_times(quota, *wanted, *windows) : beyond(quota, *wanted); !words.empty()) {
      quota.verdict = refused("OverCapacity", words + kept);
      return;
    }
    promise(quota.allocated, -1);
    promise(*wanted, 1);
    quota.allocated = std::move(*wanted);
    quota.windows = std::move(*windows);
    quota.times = times_of(quota.windows).value_or(QuotaSchedule());
    quota.in_force = spec;
    quota.verdict = accepted(fmt::format("ClusterQueue {} carries it", queue_of_team(quota.team)));
  }

  kube::Condition capacity_of(const Quota& quota) {
    std::vector<std::string> words;
    for (const auto& [type, resources] : quota.allocated)
      for (const auto& [resource, amount] : resources) {
        const auto there = types_.find(type);
        const Amount capacity = there == types_.end() ? 0 : at(there->second.capacity, resource), sum = at(peak().at(type), resource);
        if (amount > 0 && sum > capacity)
          words.push_back(fmt::format("{} of {}: {} promised, {} there; in proportion this team would have {} instead of {}", resource, type, amount_text(resource, sum), amount_text(resource, capacity), amount_text(resource, share_of(amount, capacity, sum)), amount_text(resource, amount)));
      }
    if (words.empty()) return {"CapacityShort", "False", "Enough", "what is promised is there"};
    return {"CapacityShort", "True", "CapacityShrank", fmt::format("{}", fmt::join(words, "; "))};
  }

  // ---- objects

  static Json meta(const std::string& name, const std::string& quota = "") {
    Json labels = Json::object({{kTeamsLabel, "true"}});
    if (!quota.empty()) labels.set(kQuotaLabel, quota);
    return Json::object({{"name", name}, {"labels", std::move(labels)}});
  }
  void make(const kube::Resource& resource, Json object) {
    Json whole = Json::object({{"apiVersion", resource.api_version()}, {"kind", resource.kind}});
    for (auto& [key, value] : object.members()) whole.set(key, std::move(value));
    plan_.objects.push_back({resource, std::move(whole)});
  }

  void make_policy() {
    if (policy_ != nullptr)
      for (const Json& one : (*policy_)["spec"]["priorityClasses"].items())
        make(api::queues::priority_classes, Json::object({{"metadata", meta(class_named(one))}, {"value", one["weight"].integer()}}));
    std::set<std::string> flavors;
    for (const Quota& quota : quotas_)
      for (const auto& [type, resources] : quota.allocated) flavors.insert(type);
    for (const std::string& type : flavors) make(api::queues::flavors, Json::object({{"metadata", meta(type)}, {"spec", Json::object({{"nodeLabels", Json::object({{kInstanceType, type}})}})}}));
    if (quotas_.empty() && policy_ == nullptr) return;
    Json groups;
    if (policy_ != nullptr && (*policy_)["spec"]["idleResourceSharing"].string() == "Enabled") {
      ByType rest;
      for (const auto& [type, nodes] : types_) {
        if (!flavors.contains(type)) continue;  // nobody could use it
        const auto sum = peak().find(type);
        for (const auto& [resource, amount] : nodes.capacity) rest[type][resource] = std::max<Amount>(0, minus(amount, sum == peak().end() ? 0 : at(sum->second, resource)));
      }
      groups = groups_of(rest, {}, nullptr);
    }
    make(api::queues::cohorts, Json::object({{"metadata", meta(kTeamCohort)}, {"spec", Json::object({{"resourceGroups", std::move(groups)}})}}));
  }

  // As long as there is a queue that work could pass by.
  void make_admission_policy() {
    const std::string mode = policy_ == nullptr ? "Refuse" : (*policy_)["spec"]["unqueuedWork"].string_or("Refuse");
    const bool any = std::any_of(quotas_.begin(), quotas_.end(), [](const Quota& quota) { return !quota.in_force.is_null(); });
    if (!any || mode == "Allow") return;
    TeamPolicyInput input{.classes = in_.other_classes, .controllers = {std::begin(kControllerSpaces), std::end(kControllerSpaces)}, .server = in_.server};
    if (policy_ != nullptr) {
      for (const Json& one : (*policy_)["spec"]["priorityClasses"].items()) input.classes.insert(class_named(one));
      if (const Json& spaces = (*policy_)["spec"]["controllerNamespaces"]; spaces.is_array()) {
        input.controllers.clear();
        for (const Json& one : spaces.items()) input.controllers.insert(one.string());
      }
    }
    make(kube::resources::admission_policies, Json::object({{"metadata", meta(kTeamPolicy)}, {"spec", team_policy_spec(input)}}));
    make(kube::resources::admission_policy_bindings, Json::object({{"metadata", meta(kTeamPolicy)}, {"spec", team_policy_binding_spec(mode)}}));
  }

  static Amount borrow_limit(const Json& sharing, const ByType& absolute, const std::string& type, const std::string& resource, Amount nominal) {
    if (sharing["strategy"].string_or("LendAndBorrow") != "LendAndBorrow") return 0;
    const auto limit = absolute.find(type);
    return limit != absolute.end() ? at(limit->second, resource) : share_of(nominal, sharing["borrowLimit"].integer(kBorrowPercent), 100);
  }
  // The annotation of a team's queue that gives it its windows, and whose it is; nothing is said of one that people wrote.
  void put_schedule(const Quota& quota, const Json& spec, const ByType& absolute, Json& metadata) const {
    const auto have = in_.queues.find(queue_of_team(quota.team));
    const bool ours = have != in_.queues.end() && have->second["metadata"]["annotations"].has(kScheduleOf);
    if (quota.windows.empty() && !ours) return;
    Json list = Json::array();
    for (const Timed& window : quota.windows)
      list.push(with_quotas(window, [&](const std::string& type, const std::string& resource, Amount nominal) {
        return Json::object({{"flavor", type}, {"resource", resource}, {"nominalQuota", amount_text(resource, nominal)}, {"borrowingLimit", amount_text(resource, borrow_limit(spec["resourceSharingConfig"], absolute, type, resource, nominal))}});
      }));
    metadata.set("annotations", Json::object({{kQuotaScheduleNote, quota.windows.empty() ? Json() : Json(kube::print_json(list))}, {kScheduleOf, quota.windows.empty() ? Json() : Json(quota.name)}}));
  }

  // One group over all resources that any of the types has. `sharing`: nullptr: no limits.
  static Json groups_of(const ByType& amounts, const std::vector<std::string>& order, const Json* sharing, const ByType& absolute = {}) {
    std::set<std::string> resources;
    for (const auto& [type, each] : amounts)
      for (const auto& [resource, amount] : each) resources.insert(resource);
    if (resources.empty()) return Json::array();
    Json covered = Json::array(), flavors = Json::array();
    for (const std::string& resource : resources) covered.push(resource);
    std::vector<std::string> names;
    const auto once = [&](const std::string& type) {
      if (std::find(names.begin(), names.end(), type) == names.end()) names.push_back(type);
    };
    for (const std::string& type : order) once(type);
    for (const auto& [type, each] : amounts) once(type);
    for (const std::string& type : names) {
      const auto each = amounts.find(type);
      if (each == amounts.end()) continue;
      Json list = Json::array();
      for (const std::string& resource : resources) {
        const Amount nominal = at(each->second, resource);
        Json one = Json::object({{"name", resource}, {"nominalQuota", amount_text(resource, nominal)}});
        if (sharing != nullptr) {
          one.set("borrowingLimit", amount_text(resource, borrow_limit(*sharing, absolute, type, resource, nominal)));
          one.set("lendingLimit", (*sharing)["strategy"].string() == "DontLend" ? Json("0") : Json());
        }
        list.push(std::move(one));
      }
      flavors.push(Json::object({{"name", type}, {"resources", std::move(list)}}));
    }
    return Json::array({Json::object({{"coveredResources", std::move(covered)}, {"flavors", std::move(flavors)}})});
  }

  void make_team(const Quota& quota) {
    const Json& spec = quota.in_force;
    const bool active = spec["activationState"].string() != "Disabled";
    const std::string space = space_of_team(quota.team), queue = queue_of_team(quota.team);
    Json labels = meta("", quota.name)["labels"];
    labels.set(kManaged, "true");
    labels.set(kQuotaAllocationId, quota.name);
    labels.set(kActivateQuota, active ? "Enabled" : "Disabled");
    make(kube::resources::namespaces, Json::object({{"metadata", Json::object({{"name", space}, {"labels", std::move(labels)}})}}));

    std::vector<std::string> order;
    for (const Json& entry : spec["computeQuotaResources"].items()) order.push_back(entry["instanceType"].string());
    const auto absolute = read_entries(spec["resourceSharingConfig"]["absoluteBorrowLimits"], types_, "");
    Json of_queue = Json::object();
    of_queue.set("cohortName", kTeamCohort);
    of_queue.set("namespaceSelector", Json::object({{"matchLabels", Json::object({{"kubernetes.io/metadata.name", space}})}}));
    of_queue.set("queueingStrategy", "BestEffortFIFO");
    of_queue.set("stopPolicy", active ? "None" : "Hold");
    of_queue.set("preemption", Json::object({{"withinClusterQueue", spec["preemptTeamTasks"].string_or("LowerPriority")},
                                             {"reclaimWithinCohort", "Any"},
                                             {"borrowWithinCohort", Json::object({{"policy", fair() ? "Never" : "LowerPriority"}})}}));
    of_queue.set("fairSharing", fair() ? Json::object({{"weight", fmt::format("{}", spec["fairShareWeight"].integer())}}) : Json());
    of_queue.set("resourceGroups", groups_of(quota.allocated, order, &spec["resourceSharingConfig"], absolute ? *absolute : ByType{}));
    Json about = meta(queue, quota.name);
    put_schedule(quota, spec, absolute ? *absolute : ByType{}, about);
    make(api::queues::cluster_queues, Json::object({{"metadata", std::move(about)}, {"spec", std::move(of_queue)}}));

    Json local = meta(local_queue_of_team(quota.team), quota.name);
    local.set("namespace", space);
    make(api::queues::local_queues, Json::object({{"metadata", std::move(local)}, {"spec", Json::object({{"clusterQueue", queue}})}}));
    make_members(quota);
  }

  // Who is a member is people's to say: the subjects of the binding in the namespace. What they may look at in the cluster follows.
  void make_members(const Quota& quota) {
    const auto refers_to = [](const char* role) { return Json::object({{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", role}}); };
    const std::string space = space_of_team(quota.team);
    Json binding = meta(kTeamMembers, quota.name);
    binding.set("namespace", space);
    make(api::rbac::role_bindings, Json::object({{"metadata", std::move(binding)}, {"roleRef", refers_to(api::team_member_role)}}));
    const auto have = in_.bindings.find(space);
    if (have == in_.bindings.end() || have->second["metadata"]["labels"][kTeamsLabel].string() != "true" || have->second["subjects"].items().empty()) return;
    make(api::rbac::cluster_role_bindings, Json::object({{"metadata", meta(viewers_of_team(quota.team), quota.name)}, {"roleRef", refers_to(api::team_viewer_role)}, {"subjects", have->second["subjects"]}}));
  }

  const TeamsInput& in_;
  const std::map<std::string, InstanceType> types_;
  TeamsPlan plan_;
  const Json* policy_ = nullptr;
  std::vector<Quota> quotas_;
  std::map<std::string, const Quota*> team_of_;
  ByType promised_, leaving_;  // leaving_: by queues that are still there and have no quota
  std::optional<ByType> peak_;
};

}  // namespace

std::map<std::string, InstanceType> read_instance_types(const std::vector<Json>& nodes) {
  std::map<std::string, InstanceType> out;
  for (const Json& node : nodes) {
    const std::string& name = node["metadata"]["labels"][kInstanceType].string();
    if (name.empty() || kube::deleting(node)) continue;
    InstanceType& type = out[name];
    Amounts have;
    for (const auto& [resource, text] : node["status"]["allocatable"].members())
      if (counts(resource))
        if (auto amount = read_quota(text, resource, "")) have[resource] = *amount;
    for (auto& [resource, amount] : type.smallest) amount = std::min(amount, at(have, resource));
    for (const auto& [resource, amount] : have) {
      type.capacity[resource] = plus(at(type.capacity, resource), amount);
      type.smallest.try_emplace(resource, type.nodes == 0 ? amount : 0);  // an earlier node has none of it
    }
    ++type.nodes;
  }
  return out;
}

const Json* policy_in_force(const std::vector<Json>& configs) {
  const auto all = by_age(configs);
  return all.empty() ? nullptr : all.front();
}

bool shares_fairly(const std::vector<Json>& configs) { return is_fair(policy_in_force(configs)); }

TeamsPlan plan_teams(const TeamsInput& input) { return Planner(input).run(); }

std::string space_of_team(const std::string& team) { return "hyperpod-ns-" + team; }
std::string queue_of_team(const std::string& team) { return "hyperpod-ns-" + team + "-clusterqueue"; }
std::string viewers_of_team(const std::string& team) { return "hyperpod-ns-" + team + "-members"; }
std::string local_queue_of_team(const std::string& team) { return "hyperpod-ns-" + team + "-localqueue"; }

bool holds_fields(const Json& have, const Json& wanted) {
  if (wanted.is_object()) return std::ranges::all_of(wanted.members(), [&](const auto& one) { return holds_fields(have[one.first], one.second); });
  if (wanted.is_array())
    return have.items().size() == wanted.items().size() && std::ranges::equal(have.items(), wanted.items(), [](const Json& a, const Json& b) { return holds_fields(a, b); });
  return have == wanted;
}

Json with_fields(Json have, const Json& wanted) { return without_nulls(kube::merge_patch(std::move(have), wanted)); }

}  // namespace fairlead::governance
