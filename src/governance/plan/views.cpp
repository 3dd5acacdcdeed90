// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/views.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/encoding.h"
#include "governance/plan/admission_checks.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/teams.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

std::vector<Column> columns_of(const Ledger& ledger, NodeId node, const QueueSpec* spec) {
  std::vector<Column> out;
  if (spec != nullptr) {
    for (const ResourceGroup& group : spec->groups)
      for (const QueueFlavor& flavor : group.flavors)
        for (const auto& [resource, limits] : flavor.resources)
          if (const Column column = ledger.column(node, flavor.name, resource); column != no_column) out.push_back(column);
    return out;
  }
  for (Column column = 0; column < ledger.width(node); ++column)
    if (ledger.defined(node, column)) out.push_back(column);
  std::sort(out.begin(), out.end(), [&](Column a, Column b) { return std::tie(ledger.name(node, a).flavor, a) < std::tie(ledger.name(node, b).flavor, b); });
  return out;
}

struct Sum {
  Amount nominal = 0, used = 0;
};
Sum sum_below(const Ledger& ledger, NodeId node, Column column) {
  if (ledger.is_leaf(node)) return {ledger.limits(node, column).nominal, ledger.usage(node, column)};
  Sum out{ledger.limits(node, column).nominal, 0};
  for (const NodeId child : ledger.children(node)) {
    const Sum below = sum_below(ledger, child, column);
    out.nominal = plus(out.nominal, below.nominal), out.used = plus(out.used, below.used);
  }
  return out;
}

Amount borrowed_by(const Ledger& ledger, NodeId node, Column column) { return ledger.has_parent(node) ? std::max<Amount>(0, minus(ledger.usage(node, column), ledger.subtree(node, column))) : 0; }

// What a node has to lend and does not use: beyond the part that others never see.
Amount to_lend(const Ledger& ledger, NodeId node, Column column) {
  return std::max<Amount>(0, minus(ledger.subtree(node, column), std::max(ledger.usage(node, column), ledger.local(node, column))));
}

// What a child of a cohort has lent: its part of what its brothers and sisters have borrowed, in proportion to what each has to lend; the cohort's own quota is one of them. The parts add up.
Amount lent_by(const Ledger& ledger, NodeId node, Column column) {
  if (!ledger.has_parent(node)) return 0;
  const NodeId above = ledger.parent(node);
  Amount borrowed = 0, lendable = ledger.limits(above, column).nominal, before = lendable;
  bool passed = false;
  for (const NodeId child : ledger.children(above)) {
    borrowed = plus(borrowed, borrowed_by(ledger, child, column));
    passed = passed || child == node;
    const Amount has = to_lend(ledger, child, column);
    lendable = plus(lendable, has);
    if (!passed) before = plus(before, has);
  }
  const Amount here = std::min(minus(borrowed, borrowed_by(ledger, above, column)), lendable);
  if (here <= 0 || lendable <= 0) return 0;
  if (lendable == unlimited) return std::min(here, to_lend(ledger, node, column));
  const auto part = [&](Amount up_to) { return static_cast<Amount>(static_cast<__int128>(here) * up_to / lendable); };
  return part(before + to_lend(ledger, node, column)) - part(before);
}

Json amounts_of(const Ledger& ledger, NodeId node, Column column) {
  const FlavorResource& name = ledger.name(node, column);
  const auto text = [&](Amount amount) { return Json(amount == unlimited ? std::string("unlimited") : amount_text(name.resource, amount)); };
  const Sum sum = sum_below(ledger, node, column);
  const Limits limits = ledger.limits(node, column);
  Json out = Json::object({{"flavor", name.flavor}, {"resource", name.resource}, {"nominal", text(sum.nominal)}, {"used", text(sum.used)}, {"borrowed", text(borrowed_by(ledger, node, column))}, {"lent", text(lent_by(ledger, node, column))}});
  if (limits.borrow != unlimited) out.set("borrowingLimit", text(limits.borrow));
  if (limits.lend != unlimited) out.set("lendingLimit", text(limits.lend));
  return out;
}

Json node_view(const Books& books, NodeId node) {
  const Ledger& ledger = books.in_use();
  const std::string& name = ledger.name(node);
  const bool leaf = ledger.is_leaf(node);
  const auto queue = leaf ? books.queue_view(name) : std::nullopt;
  Json out = Json::object({{"kind", leaf ? "ClusterQueue" : "Cohort"}, {"name", name}});
  if (const std::string team = leaf ? team_of_queue(name) : ""; !team.empty()) out.set("team", team);
  if (queue && !queue->spec->cohort.empty()) out.set("cohort", queue->spec->cohort);
  if (ledger.has_parent(node)) out.set("weight", ledger.weight(node)).set("share", ledger.share(node).rounded());
  if (const auto past = books.past_weight(name, leaf); past && ledger.has_parent(node)) {
    const double written = leaf ? (queue ? queue->spec->weight : 1) : books.cohort_weight(name);
    out.set("writtenWeight", written).set("usedLately", std::round(past->used * 1'000) / 1'000).set("due", std::round(past->due * 1'000) / 1'000);
  }
  if (queue) out.set("active", queue->active).set("reason", queue->reason).set("message", queue->message);
  if (const std::string window = leaf ? (queue ? queue->window : "") : books.cohort_window(name); !window.empty()) out.set("window", window);
  std::int64_t pending = queue ? queue->pending : 0, reserving = queue ? queue->reserving : 0, admitted = queue ? queue->admitted : 0;
  Json children = Json::array();
  if (!leaf)
    for (const NodeId child : ledger.children(node)) {
      Json below = node_view(books, child);
      pending += below["pending"].integer(), reserving += below["reserving"].integer(), admitted += below["admitted"].integer();
      children.push(std::move(below));
    }
  out.set("pending", pending).set("reserving", reserving).set("admitted", admitted);
  Json quotas = Json::array();
  for (const Column column : columns_of(ledger, node, queue ? queue->spec : nullptr)) quotas.push(amounts_of(ledger, node, column));
  out.set("quotas", std::move(quotas));
  if (!leaf) out.set("children", std::move(children));
  return out;
}

Json workload_view(const Books& books, const ObjectKey& key, const Books::Standing& standing, int position) {
  Json out = Json::object({{"queue", standing.queue}});
  if (position > 0) out.set("position", std::int64_t{position});
  out.set("namespace", key.space).set("name", key.name);
  if (const Json* owner = kube::controller_of(standing.object)) out.set("owner", Json::object({{"kind", (*owner)["kind"].string()}, {"name", (*owner)["name"].string()}}));
  out.set("localQueue", standing.spec->local_queue).set("priority", standing.spec->priority).set("created", standing.object["metadata"]["creationTimestamp"]).set("state", state_text(standing.place));
  if (standing.spec->reserved.is) out.set("since", print_time(standing.spec->reserved.since));
  if (!standing.reason.empty()) out.set("reason", standing.reason);
  if (!standing.message.empty()) out.set("message", standing.message);
  if (std::string words = waits_text(books, standing); !words.empty()) out.set("waitsFor", std::move(words));
  std::map<std::string, Amount> asks;
  std::map<std::string, std::vector<std::string>> flavors;
  const bool holds = standing.place != Books::Place::Out && standing.place != Books::Place::Waiting;
  const auto chosen = holds ? books.engine().flavors_of(standing.job) : std::vector<std::vector<std::string>>{};
  for (std::size_t p = 0; p < standing.what->pod_sets.size(); ++p)
    for (std::size_t r = 0; r < standing.what->pod_sets[p].total.size(); ++r) {
      const auto& [resource, amount] = standing.what->pod_sets[p].total[r];
      asks[resource] = plus(asks[resource], amount);
      if (p >= chosen.size() || r >= chosen[p].size() || chosen[p][r].empty()) continue;
      auto& list = flavors[resource];
      if (std::find(list.begin(), list.end(), chosen[p][r]) == list.end()) list.push_back(chosen[p][r]);
    }
  Json asked = Json::object(), on = Json::object();
  for (const auto& [resource, amount] : asks) asked.set(resource, amount_text(resource, amount));
  for (const auto& [resource, list] : flavors) {
    Json names = Json::array();
    for (const std::string& one : list) names.push(one);
    on.set(resource, std::move(names));
  }
  out.set("asks", std::move(asked));
  if (!flavors.empty()) out.set("flavors", std::move(on));
  return out;
}

}  // namespace

const char* state_text(Books::Place place) {
  switch (place) {
    case Books::Place::Out: return "NotQueued";
    case Books::Place::Waiting: return "Waiting";
    case Books::Place::Promised: return "Promised";
    case Books::Place::Running: return "Running";
    case Books::Place::Stopping: return "Stopping";
  }
  return "";
}

std::string owner_of(const Json& object) {
  const Json* owner = kube::controller_of(object);
  if (owner == nullptr) return "";
  std::string kind = (*owner)["kind"].string();
  for (char& one : kind) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return kind + "/" + (*owner)["name"].string();
}

bool tell_books(Books& books, const std::string& kind, const ObjectKey& key, const Json& object) {
  if (kind == "ClusterQueue") books.set_queue(key.name, object);
  else if (kind == "Cohort") books.set_cohort(key.name, object);
  else if (kind == "ResourceFlavor") books.set_flavor(key.name, object);
  else if (kind == "Topology") books.set_topology(key.name, object);
  else if (kind == "Node") books.set_node(key.name, object);
  else if (kind == "Pod") books.set_pod(key, object);
  else if (kind == "AdmissionCheck") books.set_check(key.name, object);
  else if (kind == "LocalQueue") books.set_local_queue(key, object);
  else if (kind == "Namespace") books.set_space(key.name, object);
  else if (kind == "Workload") books.set_workload(key, object);
  else return false;
  return true;
}

Books books_of(const std::vector<Json>& objects, std::optional<Instant> now) {
  Books books;
  std::vector<Json> policies;
  for (const Json& object : objects)
    if (object["kind"].string() == "SchedulerConfig") policies.push_back(object);
  books.set_fair(shares_fairly(policies));
  if (now) {  // before the rest: what statuses say of the past is as of now
    books.set_time(*now);
    books.set_time_rules(time_rules_of(policies));
  }
  for (const Json& object : objects) (void)tell_books(books, object["kind"].string(), kube::key_of(object), object);
  books.decide(now);
  return books;
}

Json quota_view(const Books& books) {
  const Ledger& ledger = books.in_use();
  std::vector<NodeId> roots;
  for (NodeId node = 0; node < ledger.size(); ++node)
    if (!ledger.has_parent(node)) roots.push_back(node);
  std::sort(roots.begin(), roots.end(), [&](NodeId a, NodeId b) { return std::tuple(ledger.is_leaf(a), ledger.name(a)) < std::tuple(ledger.is_leaf(b), ledger.name(b)); });
  Json tree = Json::array();
  for (const NodeId root : roots) tree.push(node_view(books, root));
  return Json::object({{"tree", std::move(tree)}});
}

Json queue_view(const Books& books) {
  Json out = Json::array();
  std::map<std::string, std::vector<std::pair<ObjectKey, Books::Standing>>> others, running;
  std::map<std::string, bool> named;  // all queues, those that are gone but hold work too
  for (const std::string& name : books.queues()) named[name] = true;
  for (const ObjectKey& key : books.workloads()) {
    auto standing = books.standing(key);
    if (!standing || standing->spec->finished.is) continue;
    named[standing->queue] = true;
    if (standing->place == Books::Place::Out) others[standing->queue].emplace_back(key, std::move(*standing));
    else if (standing->place == Books::Place::Running || standing->place == Books::Place::Stopping) running[standing->queue].emplace_back(key, std::move(*standing));
  }
  auto lines = books.engine().lines();
  for (const auto& [queue, is] : named) {
    int position = 0;
    for (const JobId job : lines[queue])
      if (const ObjectKey* key = books.workload_of(job))
        if (const auto standing = books.standing(*key)) out.push(workload_view(books, *key, *standing, ++position));
    for (const auto& [key, standing] : others[queue]) out.push(workload_view(books, key, standing, 0));
  }
  for (auto& [queue, list] : running) {
    const auto since = [](const auto& one) { return std::tuple(!one.second.spec->reserved.is, one.second.spec->reserved.since, one.first); };
    std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) { return since(a) < since(b); });
    for (const auto& [key, standing] : list) out.push(workload_view(books, key, standing, 0));
  }
  return Json::object({{"workloads", std::move(out)}});
}

std::string team_of_queue(const std::string& queue) {
  constexpr std::string_view before = "hyperpod-ns-", behind = "-clusterqueue";
  if (queue.size() <= before.size() + behind.size() || !queue.starts_with(before) || !queue.ends_with(behind)) return "";
  return queue.substr(before.size(), queue.size() - before.size() - behind.size());
}

std::string limit_text(const Ledger& ledger, NodeId node, Column column) {
  const Limits limits = ledger.limits(node, column);
  const std::string& resource = ledger.name(node, column).resource;
  const std::string whose = fmt::format("{} {}", ledger.is_leaf(node) ? "ClusterQueue" : "Cohort", ledger.name(node));
  if (ledger.has_parent(node)) return fmt::format("borrowingLimit of {} ({})", whose, amount_text(resource, limits.borrow));
  if (ledger.is_leaf(node)) return fmt::format("nominalQuota of {} ({})", whose, amount_text(resource, limits.nominal));
  return fmt::format("quota of {} ({})", whose, amount_text(resource, ledger.subtree(node, column)));
}

std::string waits_text(const Books& books, const Books::Standing& standing) {
  if (standing.place == Books::Place::Running) return standing.reason == "UnsatisfiedAdmissionChecks" ? "admission checks: " + unready_checks(standing.object) : "";
  if (standing.place == Books::Place::Stopping) return standing.reason.empty() ? "is being stopped" : fmt::format("is being stopped: {}", standing.reason);
  if (standing.place == Books::Place::Out) return standing.message.empty() ? standing.reason : standing.message;
  if (standing.place == Books::Place::Promised) return "those that were pre-empted for it to stop";
  const EngineWait& wait = books.engine().wait(standing.class_id);
  const Ledger& ledger = books.engine().ledger();
  const NodeId leaf = ledger.leaf(standing.what->queue);
  const auto missing = [&] {
    const FlavorResource& name = ledger.name(leaf, wait.column);
    return fmt::format("{} {} in {}", amount_text(name.resource, wait.missing), name.resource, name.flavor);
  };
  switch (wait.rule) {
    case EngineWait::Rule::None: return "its turn";
    case EngineWait::Rule::NoQueue: return fmt::format("ClusterQueue {}, which is not there", standing.what->queue);
    case EngineWait::Rule::Stopped: return fmt::format("ClusterQueue {}, which is stopped or inactive", standing.what->queue);
    case EngineWait::Rule::NoQuota: return fmt::format("a quota of {} in ClusterQueue {}", wait.resource, standing.what->queue);
    case EngineWait::Rule::NoFlavor: return fmt::format("a flavor that it may run on (of {})", wait.resource);
    case EngineWait::Rule::Kept: {
      const ObjectKey* by = books.workload_of(wait.by);
      return fmt::format("its turn: what is free is kept for {}, which has waited longer", by == nullptr ? "another" : by->text());
    }
    case EngineWait::Rule::NoPlace: return "a place: " + wait.detail;
    case EngineWait::Rule::Behind: return "an earlier one of its StrictFIFO queue";
    case EngineWait::Rule::ExceedsMax: return leaf == no_node || wait.column == no_column ? "a larger quota" : fmt::format("never fits: {} above all quota", missing());
    case EngineWait::Rule::Short: return leaf == no_node || wait.column == no_column || wait.node == no_node ? "quota" : fmt::format("{}: {}", missing(), limit_text(ledger, wait.node, wait.column));
  }
  return "";
}

std::vector<Use> uses_of(const ContinuousEngine& engine, const EngineClass& what, JobId job) {
  std::vector<Use> out;
  const Ledger& ledger = engine.ledger();
  const NodeId leaf = ledger.leaf(what.queue);
  if (leaf == no_node) return out;
  const auto flavors = engine.flavors_of(job);
  for (std::size_t p = 0; p < flavors.size() && p < what.pod_sets.size(); ++p)
    for (std::size_t r = 0; r < flavors[p].size() && r < what.pod_sets[p].total.size(); ++r) {
      const Column column = ledger.column(leaf, flavors[p][r], what.pod_sets[p].total[r].first);
      if (column == no_column) continue;
      const auto same = std::find_if(out.begin(), out.end(), [&](const Use& use) { return use.column == column; });
      if (same == out.end()) out.push_back({column, what.pod_sets[p].total[r].second});
      else same->amount = plus(same->amount, what.pod_sets[p].total[r].second);
    }
  return out;
}

}  // namespace fairlead::governance
