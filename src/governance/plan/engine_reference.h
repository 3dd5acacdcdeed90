// SPDX-License-Identifier: Apache-2.0
// For tests: the continuous mode as one would write it with no care for time. All queues and classes are looked at again after each change; only the ledger's arithmetic is shared
// (it has a reference of its own).
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "governance/plan/engine.h"

namespace fairlead::governance {

class EngineReference {
 public:
  explicit EngineReference(EngineSpec spec) { configure(std::move(spec)); }

  void configure(EngineSpec spec) {
    spec_ = std::move(spec);
    ledger_ = Ledger(spec_.nodes);
    for (auto& [uid, job] : jobs_)
      if (job.runs) take(job);
  }
  void set_nodes(std::vector<TopologyNode> nodes) { nodes_ = std::move(nodes); }
  void set_others(const std::string& node, const ContinuousEngine::OtherUse& use) { others_[node] = use; }
  PlacesOf places_of(Uid uid) const { return jobs_.at(uid).runs ? jobs_.at(uid).places : PlacesOf{}; }
  void submit(const EngineClass& what, Uid uid, std::int64_t created) { jobs_[uid] = {what, what, uid, created, false, {}, {}}; }
  void leave(Uid uid) {
    Job& job = jobs_.at(uid);
    if (job.runs)
      for (const Use& use : uses(job.gets, job.flavors)) ledger_.remove(ledger_.leaf(job.what.queue), use.column, use.amount);
    jobs_.erase(uid);
  }
  std::size_t running() const {
    return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& one) { return one.second.runs; }));
  }
  const EngineClass& gets(Uid uid) const { return jobs_.at(uid).gets; }
  std::vector<std::vector<std::string>> flavors_of(Uid uid) const { return jobs_.at(uid).runs ? jobs_.at(uid).flavors : std::vector<std::vector<std::string>>{}; }

  std::vector<std::uint64_t> drain() {
    std::vector<std::uint64_t> out;
    nominees_.clear();
    skipped_.clear();
    for (const EngineQueue& queue : spec_.queues) nominate(queue);
    std::set<std::uint32_t> trees;
    for (NodeId n = 0; n < ledger_.size(); ++n) trees.insert(ledger_.tree(n));
    for (const std::uint32_t tree : trees) {
      while (auto best = first(tree)) {
        Nominee& nominee = nominees_.at(*best);
        const EngineQueue& queue = queue_named(*best);
        auto now = fit_some(queue, jobs_.at(nominee.uid).what);
        if (!now) {
          skip(queue, nominee.uid);
          nominees_.erase(*best);
          if (!queue.strict_fifo) nominate(queue);
          continue;
        }
        if (now->flavors != nominee.fit.flavors || now->level != nominee.fit.level || !(now->gets == nominee.fit.gets)) {
          nominee.fit = *now;
          continue;
        }
        Job& job = jobs_.at(nominee.uid);
        job.runs = true;
        job.flavors = now->flavors;
        job.places = now->places;
        job.gets = now->gets;
        take(job);
        out.push_back(job.uid.low);
        nominees_.erase(*best);
        nominate(queue);
      }
    }
    return out;
  }

  // "": every usage is the same.
  std::string compare(const Ledger& other) const {
    if (other.size() != ledger_.size()) return "other nodes";
    for (NodeId n = 0; n < ledger_.size(); ++n)
      for (Column c = 0; c < ledger_.width(n); ++c)
        if (ledger_.usage(n, c) != other.usage(n, c)) return fmt::format("{} column {}: {} here, {} there", ledger_.name(n), c, ledger_.usage(n, c), other.usage(n, c));
    return "";
  }

 private:
  struct Job {
    EngineClass what, gets;  // gets: what it asked, with fewer pods perhaps
    Uid uid;
    std::int64_t created = 0;
    bool runs = false;
    std::vector<std::vector<std::string>> flavors;
    PlacesOf places;
  };
  struct Fit {
    std::vector<std::vector<std::string>> flavors;
    PlacesOf places;
    int level = 0;
    EngineClass gets;
  };
  struct Nominee {
    Uid uid;
    Fit fit;
  };

  const EngineQueue& queue_named(const std::string& name) const {
    return *std::find_if(spec_.queues.begin(), spec_.queues.end(), [&](const EngineQueue& queue) { return queue.name == name; });
  }
  std::vector<Use> uses(const EngineClass& what, const std::vector<std::vector<std::string>>& flavors) const {
    std::map<Column, Amount> sum;
    const NodeId leaf = ledger_.leaf(what.queue);
    for (std::size_t p = 0; leaf != no_node && p < what.pod_sets.size(); ++p)
      for (std::size_t r = 0; r < what.pod_sets[p].total.size(); ++r)
        if (const Column c = ledger_.column(leaf, flavors[p][r], what.pod_sets[p].total[r].first); c != no_column) sum[c] = plus(sum[c], what.pod_sets[p].total[r].second);
    std::vector<Use> out;
    for (const auto& [column, amount] : sum) out.push_back({column, amount});
    return out;
  }
  void take(const Job& job) {
    const NodeId leaf = ledger_.leaf(job.what.queue);
    if (leaf == no_node) return;
    for (const Use& use : uses(job.gets, job.flavors)) ledger_.add(leaf, use.column, use.amount);
  }

  // What takes one flavor: the resources of one group, for one pod set.
  struct Part {
    std::size_t pods = 0;
    std::vector<std::size_t> resources;
    std::vector<std::string> flavors;
  };
  // All pods, or as many as fit: one after the other is left away, of several pod sets in the same proportion.
  std::optional<Fit> fit_some(const EngineQueue& queue, const EngineClass& what) const {
    if (auto all = fit(queue, what)) return all;
    std::int64_t can_go = 0;
    for (const EnginePodSet& pods : what.pod_sets)
      if (pods.least > 0) can_go += pods.count - pods.least;
    for (std::int64_t gone = 1; gone <= can_go; ++gone) {
      EngineClass fewer = what;
      for (EnginePodSet& pods : fewer.pod_sets) {
        if (pods.count == 0) continue;
        pods.count -= static_cast<std::int32_t>((pods.count - pods.least) * gone / can_go);
        pods.least = pods.count;
        if (pods.place) pods.place->count = pods.count;
        for (std::size_t r = 0; r < pods.total.size(); ++r) pods.total[r].second = pods.each[r] * pods.count;
      }
      if (auto some = fit(queue, fewer)) return some;
    }
    return std::nullopt;
  }
  std::optional<Fit> fit(const EngineQueue& queue, const EngineClass& what) const {
    Fit out;
    out.gets = what;
    std::vector<Part> parts;
    for (std::size_t p = 0; p < what.pod_sets.size(); ++p) {
      const EnginePodSet& pods = what.pod_sets[p];
      out.flavors.emplace_back(pods.total.size());
      std::set<std::size_t> left;
      for (std::size_t r = 0; r < pods.total.size(); ++r) left.insert(r);
      for (const auto& group : queue.groups) {
        Part part{.pods = p, .resources = {}, .flavors = {}};
        for (const std::size_t r : left)
          if (std::count(group.resources.begin(), group.resources.end(), pods.total[r].first) != 0) part.resources.push_back(r);
        for (const std::size_t r : part.resources) left.erase(r);
        for (const std::string& flavor : group.flavors)
          if (std::count(pods.barred.begin(), pods.barred.end(), flavor) == 0) part.flavors.push_back(flavor);
        if (!part.resources.empty()) parts.push_back(part);
      }
      for (const std::size_t r : left)
        if (pods.total[r].second != 0) return std::nullopt;
    }
    std::map<Column, Amount> taken;
    return place(queue, what, parts, 0, taken, out) ? std::optional(out) : std::nullopt;
  }
  bool place(const EngineQueue& queue, const EngineClass& what, const std::vector<Part>& parts, std::size_t at, std::map<Column, Amount> taken, Fit& out) const {
    if (at == parts.size()) return find_places(what, out);
    const NodeId leaf = ledger_.leaf(queue.name);
    std::vector<std::pair<int, std::string>> options;
    for (const std::string& flavor : parts[at].flavors) {
      bool fits = true;
      for (std::size_t other = 0; other < at; ++other)
        if (group_of(what, parts[other].pods) && group_of(what, parts[other].pods) == group_of(what, parts[at].pods) && parts[other].flavors == parts[at].flavors)
          fits = fits && out.flavors[parts[other].pods][parts[other].resources.front()] == flavor;
      if (!fits) continue;
      int level = 0;
      for (const std::size_t r : parts[at].resources) {
        const auto& [resource, amount] = what.pod_sets[parts[at].pods].total[r];
        const Column c = ledger_.column(leaf, flavor, resource);
        if (c == no_column || !ledger_.defined(leaf, c)) {
          fits = false;
          break;
        }
        const Amount want = plus(amount, taken.contains(c) ? taken.at(c) : 0);
        if (want > ledger_.available(leaf, c) || want > ledger_.potential(leaf, c)) fits = false;
        level = std::max(level, ledger_.borrow_level(leaf, c, want).height);
      }
      if (fits) options.emplace_back(level, flavor);
    }
    if (queue.policies.next_if_borrowing) std::stable_sort(options.begin(), options.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [level, flavor] : options) {
      std::map<Column, Amount> then = taken;
      for (const std::size_t r : parts[at].resources) {
        const auto& [resource, amount] = what.pod_sets[parts[at].pods].total[r];
        Amount& sum = then[ledger_.column(leaf, flavor, resource)];
        sum = plus(sum, amount);
      }
      Fit rest = out;
      rest.level = std::max(rest.level, level);
      for (const std::size_t r : parts[at].resources) rest.flavors[parts[at].pods][r] = flavor;
      if (!place(queue, what, parts, at + 1, then, rest)) continue;
      out = rest;
      return true;
    }
    return false;
  }

  static std::optional<std::string> group_of(const EngineClass& what, std::size_t pods) { return what.pod_sets[pods].place ? what.pod_sets[pods].place->ask.group : std::nullopt; }
  const EngineSpec::Places* spec_of(const std::string& flavor) const {
    for (const EngineSpec::Places& one : spec_.places)
      if (one.flavor == flavor) return &one;
    return nullptr;
  }
  std::string placed_on(const EngineClass& what, const std::vector<std::vector<std::string>>& flavors, std::size_t p) const {
    std::set<std::string> found;
    for (const std::string& flavor : flavors[p])
      if (spec_of(flavor) != nullptr) found.insert(flavor);
    for (std::size_t other = 0; found.empty() && group_of(what, p) && other < flavors.size(); ++other)
      if (group_of(what, other) == group_of(what, p))
        for (const std::string& flavor : flavors[other])
          if (spec_of(flavor) != nullptr) found.insert(flavor);
    return found.size() == 1 ? *found.begin() : "";
  }
  // Every topology is made anew, with what runs in it.
  bool find_places(const EngineClass& what, Fit& out) const {
    if (std::none_of(what.pod_sets.begin(), what.pod_sets.end(), [](const EnginePodSet& pods) { return pods.place.has_value(); })) return true;
    const auto ids = std::make_shared<ResourceIds>();
    std::map<std::string, Topology> rows;
    for (const EngineSpec::Places& one : spec_.places) {
      Topology& made = rows.emplace(one.flavor, Topology(one.shape, nodes_, ids)).first->second;
      for (const auto& [node, use] : others_) made.add_other(node, use.requests, use.pods);
    }
    for (const auto& [uid, job] : jobs_)
      for (std::size_t p = 0; job.runs && p < job.places.size(); ++p) {
        if (!job.places[p]) continue;
        const std::string on = placed_on(job.gets, job.flavors, p);
        if (!rows.contains(on)) continue;
        const auto used = uses_of(*job.places[p], amounts_of(job.gets.pod_sets[p].place->per_pod, *ids));
        for (auto& [flavor, made] : rows)
          if (flavor == on || (made.by_host() && rows.at(on).by_host())) made.add(used);
      }
    std::map<std::string, FlavorQuestion> questions;
    for (std::size_t p = 0; p < what.pod_sets.size(); ++p) {
      if (!what.pod_sets[p].place) continue;
      const PlaceAsk& asked = *what.pod_sets[p].place;
      const std::string on = placed_on(what, out.flavors, p);
      if (on.empty()) return false;
      FlavorQuestion& question = questions[on];
      question.flavor = on, question.topology = &rows.at(on);
      question.pod_sets.push_back({.name = std::to_string(p), .ask = asked.ask, .implied = asked.implied, .count = asked.count, .per_pod = amounts_of(asked.per_pod, *ids), .needs = asked.needs, .conflict = {}, .current = {}});
    }
    std::vector<FlavorQuestion> list;
    for (auto& [flavor, question] : questions) list.push_back(std::move(question));
    out.places.assign(what.pod_sets.size(), std::nullopt);
    for (const FlavorAnswer& answer : find_for_workload(list, {.pod_sets = {}, .unhealthy_node = {}, .assumed = nullptr}, {})) {
      if (!answer.reason.none()) return false;
      out.places[std::stoul(answer.pod_set)] = answer.assignment;
    }
    return true;
  }

  bool older(Uid a, Uid b) const {
    const Job &x = jobs_.at(a), &y = jobs_.at(b);
    if (x.what.priority != y.what.priority) return x.what.priority > y.what.priority;
    return x.created != y.created ? x.created < y.created : x.uid < y.uid;
  }
  // All of its kind do not fit, and will not before something is given back.
  void skip(const EngineQueue& queue, Uid uid) {
    for (const auto& [other, job] : jobs_)
      if (!job.runs && job.what == jobs_.at(uid).what && !queue.strict_fifo) skipped_.insert(other);
  }
  void nominate(const EngineQueue& queue) {
    if (queue.stopped || ledger_.leaf(queue.name) == no_node || !ledger_.active(ledger_.leaf(queue.name))) return;
    std::vector<Uid> waiting;
    for (const auto& [uid, job] : jobs_)
      if (!job.runs && job.what.queue == queue.name && !skipped_.contains(uid)) waiting.push_back(uid);
    std::sort(waiting.begin(), waiting.end(), [&](Uid a, Uid b) { return older(a, b); });
    for (const Uid uid : waiting) {
      if (skipped_.contains(uid)) continue;
      if (auto found = fit_some(queue, jobs_.at(uid).what)) {
        nominees_[queue.name] = {uid, *found};
        return;
      }
      if (queue.strict_fifo) return;
      skip(queue, uid);
    }
  }

  struct Bid {
    bool borrows;
    Share share;
    Uid uid;
    std::string queue;
  };
  std::optional<std::string> first(std::uint32_t tree) {
    std::optional<std::string> best;
    NodeId root = no_node;
    for (NodeId n = 0; n < ledger_.size(); ++n)
      if (ledger_.tree(n) == tree && !ledger_.has_parent(n)) root = n;
    if (spec_.fair) return nominee_of(root);
    for (const auto& [queue, nominee] : nominees_) {
      if (ledger_.tree(ledger_.leaf(queue)) != tree) continue;
      if (!best) {
        best = queue;
        continue;
      }
      const Nominee& other = nominees_.at(*best);
      if (nominee.fit.level != other.fit.level ? nominee.fit.level < other.fit.level : older(nominee.uid, other.uid)) best = queue;
    }
    return best;
  }
  std::optional<std::string> nominee_of(NodeId node) {
    if (ledger_.is_leaf(node)) return nominees_.contains(ledger_.name(node)) ? std::optional(ledger_.name(node)) : std::nullopt;
    std::optional<Bid> best;
    for (const NodeId child : ledger_.children(node)) {
      const auto queue = nominee_of(child);
      if (!queue) continue;
      const Nominee& nominee = nominees_.at(*queue);
      const std::vector<Use> more = uses(nominee.fit.gets, nominee.fit.flavors);
      const Ledger::Trial trial(ledger_);
      ledger_.add(ledger_.leaf(*queue), more);
      const Bid bid{ledger_.borrowing_on(child, more), ledger_.share(child), nominee.uid, *queue};
      const auto before = [&](const Bid& a, const Bid& b) {
        if (a.borrows != b.borrows) return b.borrows;
        if (const int order = governance::compare(a.share, b.share); order != 0) return order < 0;
        return older(a.uid, b.uid);
      };
      if (!best || before(bid, *best)) best = bid;
    }
    return best ? std::optional(best->queue) : std::nullopt;
  }

  EngineSpec spec_;
  std::vector<TopologyNode> nodes_;
  std::map<std::string, ContinuousEngine::OtherUse> others_;
  Ledger ledger_;
  std::map<Uid, Job> jobs_;
  std::map<std::string, Nominee> nominees_;
  std::set<Uid> skipped_;
};

}  // namespace fairlead::governance
