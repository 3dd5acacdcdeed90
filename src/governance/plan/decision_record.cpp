// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/decision_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "governance/plan/decision_places.h"

namespace fairlead::governance {

using kube::Json;

namespace {

Json number(std::uint32_t value) { return static_cast<std::int64_t>(value); }

Json names(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& one : list) out.push(one);
  return out;
}
Json flavors_json(const std::vector<std::vector<std::string>>& flavors) {
  Json out = Json::array();
  for (const auto& one : flavors) out.push(names(one));
  return out;
}

constexpr std::pair<PreemptionPolicy, std::string_view> policies[] = {{PreemptionPolicy::Never, "Never"}, {PreemptionPolicy::LowerPriority, "LowerPriority"}, {PreemptionPolicy::LowerOrNewerEqualPriority, "LowerOrNewerEqualPriority"}, {PreemptionPolicy::Any, "Any"}};
constexpr std::pair<EngineWait::Rule, std::string_view> rules[] = {{EngineWait::Rule::None, "None"},         {EngineWait::Rule::NoQueue, "NoQueue"},       {EngineWait::Rule::Stopped, "Stopped"}, {EngineWait::Rule::NoQuota, "NoQuota"},
                                                                  {EngineWait::Rule::NoFlavor, "NoFlavor"}, {EngineWait::Rule::ExceedsMax, "ExceedsMax"}, {EngineWait::Rule::Short, "Short"},     {EngineWait::Rule::Behind, "Behind"},
                                                                  {EngineWait::Rule::Kept, "Kept"},         {EngineWait::Rule::NoPlace, "NoPlace"}};
template <class Value, std::size_t N>
std::string_view name_of(const std::pair<Value, std::string_view> (&table)[N], Value value) {
  for (const auto& [one, name] : table)
    if (one == value) return name;
  return "";
}

Json given_json(const ContinuousEngine& engine, const char* word, JobId job) {
  Json out = Json::array({word, number(job), flavors_json(engine.flavors_of(job))});
  const EngineClass& gets = engine.what(engine.class_of(job));
  if (std::any_of(gets.pod_sets.begin(), gets.pod_sets.end(), [](const EnginePodSet& pods) { return pods.count > 0; })) {
    Json counts = Json::array();
    for (const EnginePodSet& pods : gets.pod_sets) counts.push(std::int64_t{pods.count});
    out.push(std::move(counts));
  }
  if (const PlacesOf places = engine.places_of(job); !places.empty()) out.push(Json::object({{"places", to_json(places)}}));
  return out;
}

Json wait_json(const ContinuousEngine& engine, const EngineWait& wait) {
  Json out = Json::object({{"rule", name_of(rules, wait.rule)}});
  const Ledger& ledger = engine.ledger();
  if (wait.node != no_node) {
    out.set("node", ledger.name(wait.node));
    if (wait.column != no_column) out.set("flavor", ledger.name(wait.node, wait.column).flavor).set("resource", ledger.name(wait.node, wait.column).resource).set("missing", wait.missing);
  }
  if (!wait.resource.empty()) out.set("resource", wait.resource);
  if (!wait.detail.empty()) out.set("detail", wait.detail);
  if (wait.rule == EngineWait::Rule::Kept) out.set("by", number(wait.by));
  return out;
}

std::unexpected<Error> wrong(std::string_view field, std::string_view expected) { return fail(Code::Invalid, fmt::format("{}: {} is expected", field, expected)); }

Result<std::vector<std::string>> read_names(const Json& json, std::string_view field) {
  std::vector<std::string> out;
  if (!json.is_array() && !json.is_null()) return wrong(field, "a list of names");
  for (const Json& one : json.items()) {
    if (!one.is_string()) return wrong(field, "a list of names");
    out.push_back(one.string());
  }
  return out;
}

}  // namespace

std::string decision_log_header(Instant at, std::string_view by) {
  Json out = Json::object({{"log", kDecisionLog}, {"version", kDecisionLogVersion}, {"at", print_time(at)}});
  if (!by.empty()) out.set("by", std::string(by));
  return kube::print_json(out) + "\n";
}

std::string text(Uid uid) { return fmt::format("{:016x}{:016x}", uid.high, uid.low); }

Json to_json(const EngineSpec& spec) {
  Json nodes = Json::array(), queues = Json::array();
  for (const NodeSpec& node : spec.nodes) {
    Json quotas = Json::array();
    for (const auto& [column, limits] : node.quotas) quotas.push(Json::array({column.flavor, column.resource, limits.nominal, limits.borrow, limits.lend}));
    nodes.push(Json::object({{"name", node.name}, {"parent", node.parent}, {"leaf", node.leaf}, {"weight", node.weight}, {"quotas", std::move(quotas)}}));
  }
  for (const EngineQueue& queue : spec.queues) {
    Json groups = Json::array();
    for (const EngineQueue::Group& group : queue.groups) groups.push(Json::object({{"resources", names(group.resources)}, {"flavors", names(group.flavors)}}));
    Json one = Json::object({{"name", queue.name},
                             {"strict", queue.strict_fifo},
                             {"stopped", queue.stopped},
                             {"within", name_of(policies, queue.policies.within_queue)},
                             {"reclaim", name_of(policies, queue.policies.reclaim)},
                             {"borrow", queue.policies.borrow_within_cohort},
                             {"nextIfBorrowing", queue.policies.next_if_borrowing},
                             {"groups", std::move(groups)}});
    if (queue.policies.borrow_threshold) one.set("borrowThreshold", *queue.policies.borrow_threshold);
    if (!queue.policies.next_if_preempting) one.set("stopIfPreempting", true);
    if (queue.policies.preempt_rather_than_borrow) one.set("preemptRatherThanBorrow", true);
    queues.push(std::move(one));
  }
  Json out = Json::object({{"fair", spec.fair}, {"finalShare", spec.final_share}, {"initialShare", spec.initial_share}, {"initialFirst", spec.initial_first}, {"nodes", std::move(nodes)}, {"queues", std::move(queues)}});
  if (spec.shields) out.set("shields", true);
  if (spec.places.empty()) return out;
  Json places = Json::array();
  for (const EngineSpec::Places& one : spec.places) places.push(to_json(one));
  out.set("places", std::move(places));
  return out;
}

Json to_json(const EngineClass& what) {
  Json pod_sets = Json::array();
  for (const EnginePodSet& pods : what.pod_sets) {
    Json total = Json::array();
    for (const auto& [resource, amount] : pods.total) total.push(Json::array({resource, amount}));
    Json one = Json::object({{"total", std::move(total)}, {"barred", names(pods.barred)}});
    if (pods.count > 0) {
      Json each = Json::array();
      for (const Amount amount : pods.each) each.push(amount);
      one.set("count", std::int64_t{pods.count}).set("least", std::int64_t{pods.least}).set("each", std::move(each));
    }
    if (pods.place) one.set("place", to_json(*pods.place));
    pod_sets.push(std::move(one));
  }
  Json out = Json::object({{"queue", what.queue}, {"priority", what.priority}, {"podSets", std::move(pod_sets)}});
  if (!what.line.empty()) out.set("line", what.line);
  return out;
}

Result<EngineSpec> read_engine_spec(const Json& json) {
  EngineSpec out{.fair = json["fair"].boolean(), .final_share = json["finalShare"].boolean(true), .initial_share = json["initialShare"].boolean(true), .initial_first = json["initialFirst"].boolean(), .shields = json["shields"].boolean()};
  if (!json["nodes"].is_array()) return wrong("spec.nodes", "a list");
  for (const Json& node : json["nodes"].items()) {
    if (!node["name"].is_string() || !node["weight"].is_number()) return wrong("spec.nodes", "a name and a weight");
    NodeSpec into{.name = node["name"].string(), .parent = node["parent"].string(), .leaf = node["leaf"].boolean(), .weight = node["weight"].number(), .quotas = {}};
    for (const Json& quota : node["quotas"].items()) {
      const auto& items = quota.items();
      if (items.size() != 5) return wrong("spec.nodes.quotas", "[flavor, resource, nominal, borrow, lend]");
      into.quotas.push_back({{items[0].string(), items[1].string()}, {items[2].integer(), items[3].integer(), items[4].integer()}});
    }
    out.nodes.push_back(std::move(into));
  }
  const auto policy = [](const Json& name) -> Result<PreemptionPolicy> {
    for (const auto& [value, known] : policies)
      if (known == name.string()) return value;
    return wrong("spec.queues: within, reclaim", "a policy");
  };
  for (const Json& queue : json["queues"].items()) {
    if (!queue["name"].is_string()) return wrong("spec.queues", "a name");
    EngineQueue into{.name = queue["name"].string(), .strict_fifo = queue["strict"].boolean(), .policies = {}, .stopped = queue["stopped"].boolean(), .groups = {}};
    const auto within = policy(queue["within"]), reclaim = policy(queue["reclaim"]);
    if (!within) return std::unexpected(within.error());
    if (!reclaim) return std::unexpected(reclaim.error());
    into.policies.within_queue = *within, into.policies.reclaim = *reclaim;
    into.policies.borrow_within_cohort = queue["borrow"].boolean(), into.policies.next_if_borrowing = queue["nextIfBorrowing"].boolean();
    into.policies.next_if_preempting = !queue["stopIfPreempting"].boolean(), into.policies.preempt_rather_than_borrow = queue["preemptRatherThanBorrow"].boolean();
    if (queue["borrowThreshold"].is_number()) into.policies.borrow_threshold = queue["borrowThreshold"].integer();
    for (const Json& group : queue["groups"].items()) {
      auto resources = read_names(group["resources"], "spec.queues.groups.resources"), flavors = read_names(group["flavors"], "spec.queues.groups.flavors");
      if (!resources) return std::unexpected(std::move(resources.error()));
      if (!flavors) return std::unexpected(std::move(flavors.error()));
      into.groups.push_back({std::move(*resources), std::move(*flavors)});
    }
    out.queues.push_back(std::move(into));
  }
  for (const Json& one : json["places"].items()) {
    auto places = read_places(one);
    if (!places) return std::unexpected(std::move(places.error()));
    out.places.push_back(std::move(*places));
  }
  return out;
}

Result<EngineClass> read_engine_class(const Json& json) {
  if (!json["queue"].is_string() || !json["podSets"].is_array()) return wrong("class", "a queue and podSets");
  EngineClass out{.queue = json["queue"].string(), .priority = json["priority"].integer(), .line = json["line"].string(), .pod_sets = {}};
  for (const Json& pods : json["podSets"].items()) {
    EnginePodSet& into = out.pod_sets.emplace_back();
    for (const Json& one : pods["total"].items()) {
      if (one.items().size() != 2 || !one.items()[0].is_string()) return wrong("class.podSets.total", "[resource, amount]");
      into.total.emplace_back(one.items()[0].string(), one.items()[1].integer());
    }
    auto barred = read_names(pods["barred"], "class.podSets.barred");
    if (!barred) return std::unexpected(std::move(barred.error()));
    into.barred = std::move(*barred);
    if (pods.has("place")) {
      auto place = read_place_ask(pods["place"]);
      if (!place) return std::unexpected(std::move(place.error()));
      into.place = std::move(*place);
    }
    if (pods["count"].is_null()) continue;
    const std::int64_t count = pods["count"].integer(-1), least = pods["least"].integer(-1);
    if (count < 1 || count > 0x7fffffff || least < 1 || least > count || pods["each"].items().size() != into.total.size()) return wrong("class.podSets", "least <= count, and each as long as total");
    into.count = static_cast<std::int32_t>(count), into.least = static_cast<std::int32_t>(least);
    for (const Json& amount : pods["each"].items()) into.each.push_back(amount.integer());
  }
  return out;
}

Json to_json(const ContinuousEngine::LineUse& use) {
  Json used = Json::object(), per_unit = Json::object();
  for (const auto& [resource, amount] : use.used) used.set(resource, amount);
  for (const auto& [resource, amount] : use.per_unit) per_unit.set(resource, amount);
  Json out = Json::object({{"used", std::move(used)}, {"perUnit", std::move(per_unit)}});
  if (use.last) out.set("last", true);
  return out;
}

Result<ContinuousEngine::LineUse> read_line_use(const Json& json) {
  ContinuousEngine::LineUse out{.last = json["last"].boolean(), .used = {}, .per_unit = {}};
  for (const auto& [field, into] : {std::pair("used", &out.used), std::pair("perUnit", &out.per_unit)})
    for (const auto& [resource, amount] : json[field].members()) {
      if (!amount.is_number() || !(amount.number() >= 0 && amount.number() < 1e18)) return wrong(fmt::format("use.{}", field), "numbers from 0 to 1e18");
      (*into)[resource] = amount.number();
    }
  return out;
}

Result<Uid> read_uid(const Json& json) {
  const std::string& text = json.string();
  Uid out;
  const auto read = [&](std::size_t from, std::uint64_t& into) {
    const auto [end, error] = std::from_chars(text.data() + from, text.data() + from + 16, into, 16);
    return error == std::errc{} && end == text.data() + from + 16;
  };
  if (text.size() != 32 || !read(0, out.high) || !read(16, out.low)) return wrong("uid", "32 hexadecimal digits");
  return out;
}

Result<std::vector<std::vector<std::string>>> read_flavors_of(const Json& json) {
  std::vector<std::vector<std::string>> out;
  if (!json.is_array()) return wrong("flavors", "lists of names");
  for (const Json& one : json.items()) {
    auto list = read_names(one, "flavors");
    if (!list) return std::unexpected(std::move(list.error()));
    out.push_back(std::move(*list));
  }
  return out;
}

Json decisions_json(const ContinuousEngine& engine, const std::vector<EngineDecision>& decisions) {
  Json out = Json::array();
  for (const EngineDecision& one : decisions) {
    switch (one.kind) {
      case EngineDecision::Kind::Admitted: out.push(given_json(engine, "Admitted", one.job)); break;
      case EngineDecision::Kind::Promised: out.push(given_json(engine, "Promised", one.job)); break;
      case EngineDecision::Kind::Preempted: out.push(Json::array({"Preempted", number(one.job), number(one.by), std::string(text(one.reason))})); break;
      case EngineDecision::Kind::Waits: out.push(Json::array({"Waits", number(one.kind_of_job), wait_json(engine, engine.wait(one.kind_of_job))})); break;
    }
  }
  return out;
}

void DecisionRecorder::line(const Json& value) {
  kube::append_json(lines_, value);
  lines_ += '\n';
  told_ = true;
}

void DecisionRecorder::config(const EngineSpec& spec) { line(Json::object({{"e", "config"}, {"revision", ++revision_}, {"spec", to_json(spec)}})); }

void DecisionRecorder::define(ClassId id, const EngineClass& what) {
  if (!classes_.insert(id).second) return;
  line(Json::object({{"e", "class"}, {"id", number(id)}, {"class", to_json(what)}}));
}

void DecisionRecorder::submit(JobId job, ClassId what, Uid uid, std::int64_t created, const kube::ObjectKey& workload) {
  line(Json::object({{"e", "submit"}, {"job", number(job)}, {"class", number(what)}, {"uid", text(uid)}, {"created", created}, {"workload", workload.text()}}));
}

void DecisionRecorder::adopt(JobId job, ClassId what, Uid uid, std::int64_t created, const kube::ObjectKey& workload, const std::vector<std::vector<std::string>>& flavors, ContinuousEngine::Adopted as, const PlacesOf& places) {
  Json out = Json::object({{"e", "adopt"}, {"job", number(job)}, {"class", number(what)}, {"uid", text(uid)}, {"created", created}, {"workload", workload.text()}, {"flavors", flavors_json(flavors)}, {"as", as == ContinuousEngine::Adopted::Running ? "Running" : "Stopping"}});
  if (!places.empty()) out.set("places", assignments_json(places));
  line(out);
}

void DecisionRecorder::nodes(const std::vector<TopologyNode>& all) { line(Json::object({{"e", "nodes"}, {"nodes", to_json(all)}})); }
void DecisionRecorder::others(const std::string& node, const ContinuousEngine::OtherUse& use) { line(Json::object({{"e", "others"}, {"node", node}, {"use", to_json(use)}})); }

void DecisionRecorder::stop(JobId job) { line(Json::object({{"e", "stop"}, {"job", number(job)}})); }
void DecisionRecorder::replace(JobId job, const std::string& host) { line(Json::object({{"e", "replace"}, {"job", number(job)}, {"node", host}})); }
void DecisionRecorder::set_line(const std::string& name, const ContinuousEngine::LineUse& use) { line(Json::object({{"e", "line"}, {"line", name}, {"use", to_json(use)}})); }
void DecisionRecorder::saved(JobId job, std::int64_t at) { line(Json::object({{"e", "saved"}, {"job", number(job)}, {"at", at}})); }
void DecisionRecorder::recount(JobId job, ClassId what) { line(Json::object({{"e", "recount"}, {"job", number(job)}, {"class", number(what)}})); }
void DecisionRecorder::shield(JobId job) { line(Json::object({{"e", "shield"}, {"job", number(job)}})); }
void DecisionRecorder::expose(JobId job) { line(Json::object({{"e", "expose"}, {"job", number(job)}})); }
void DecisionRecorder::keep(JobId job) { line(Json::object({{"e", "keep"}, {"job", number(job)}})); }
void DecisionRecorder::keep_no_more(JobId job) { line(Json::object({{"e", "keepNoMore"}, {"job", number(job)}})); }
void DecisionRecorder::leave(JobId job) { line(Json::object({{"e", "leave"}, {"job", number(job)}})); }

void DecisionRecorder::decided(const ContinuousEngine& engine, const std::vector<EngineDecision>& decisions) {
  if (!told_ && decisions.empty()) return;
  line(Json::object({{"e", "drain"}, {"at", print_time(now_)}, {"decided", decisions_json(engine, decisions)}}));
  told_ = false;
}

void DecisionRecorder::begin_anew() {
  lines_.clear();
  classes_.clear();
  told_ = false;
}

std::string DecisionRecorder::take() { return std::exchange(lines_, {}); }

}  // namespace fairlead::governance
