// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "governance/plan/engine_state.h"

namespace fairlead::governance {
namespace {

std::string digest(const EngineClass& what) {
  std::string out = fmt::format("{}\n{}", what.queue, what.priority);
  if (!what.line.empty()) out += "\nl" + what.line;
  for (const EnginePodSet& pods : what.pod_sets) {
    out += "\np";
    for (const auto& [resource, amount] : pods.total) out += fmt::format("\n{}={}", resource, amount);
    for (const std::string& flavor : pods.barred) out += "\n!" + flavor;
    if (pods.count > 0) out += fmt::format("\n#{}-{}", pods.least, pods.count);
    if (pods.place) out += fmt::format("\n@{} {} {}", pods.place->count, pods.place->ask.required.value_or(""), pods.place->ask.preferred.value_or(""));
  }
  return out;
}

void merge(std::vector<Use>& uses, Column column, Amount amount) {
  for (Use& use : uses)
    if (use.column == column) {
      use.amount = plus(use.amount, amount);
      return;
    }
  uses.push_back({column, amount});
}

}  // namespace

std::uint32_t ContinuousEngine::State::name_id(std::string_view name) {
  const auto [at, fresh] = name_ids.try_emplace(std::string(name), static_cast<std::uint32_t>(names.size()));
  if (fresh) names.emplace_back(name);
  return at->second;
}

void ContinuousEngine::State::configure(const EngineSpec& spec) {
  fair = spec.fair;
  final_share = spec.final_share, initial_share = spec.initial_share, initial_first = spec.initial_first;
  ledger = Ledger(spec.nodes);
  in_use = ledger;
  shields = spec.shields;
  claims.clear();
  claimed = {};
  place_specs = spec.places;
  std::sort(place_specs.begin(), place_specs.end(), [](const EngineSpec::Places& a, const EngineSpec::Places& b) { return a.flavor < b.flavor; });
  build_places();
  const std::size_t nodes = ledger.size();
  base.resize(nodes);
  std::size_t cell_count = 0, trees = 0;
  for (NodeId n = 0; n < nodes; ++n) {
    base[n] = cell_count;
    cell_count += ledger.width(n);
    trees = std::max<std::size_t>(trees, ledger.tree(n) + 1);
  }
  cells.assign(cell_count, {});
  exact_for.assign(cell_count, false);
  for (NodeId n = 0; n < nodes; ++n)
    for (Column c = 0; ledger.is_leaf(n) && c < ledger.width(n); ++c) {
      bool exact = true;
      for (NodeId at = n; ledger.has_parent(at); at = ledger.parent(at)) exact = exact && ledger.local(at, c) == 0;
      exact_for[base[n] + c] = exact;
    }
  roots.assign(trees, no_node);
  for (NodeId n = 0; n < nodes; ++n)
    if (!ledger.has_parent(n)) roots[ledger.tree(n)] = n;
  versions.assign(trees, 1);
  dirty.assign(trees, {});
  open_cells.assign(trees, {});
  dirty_trees.clear();
  tree_is_dirty.assign(trees, false);
  by_tree.assign(trees, {});
  by_cohort.assign(nodes, {});
  bids.assign(nodes, {});
  node_at.assign(nodes, not_in_heap);
  for (auto* list : {&pruned_in, &path_in, &source_in, &share_in}) list->assign(nodes, 0);
  source_at.assign(nodes, 0);
  share_at.assign(nodes, {});
  looked_at.assign(nodes, 0);
  best_of.assign(nodes, {});
  looks = 0;
  searches = 0;
  lost_to.clear();  // other quotas, other rights
  queue_of.assign(nodes, nothing);

  queues.clear();
  queue_ids.clear();
  for (const EngineQueue& from : spec.queues) {
    const NodeId leaf = ledger.leaf(from.name);
    if (leaf == no_node || queue_of[leaf] != nothing) continue;
    Queue queue;
    queue.leaf = leaf;
    queue.strict = from.strict_fifo, queue.policies = from.policies;
    queue.stopped = from.stopped || !ledger.active(leaf);
    queue.groups = from.groups;
    queue_of[leaf] = static_cast<std::uint32_t>(queues.size());
    queue_ids[from.name] = queue_of[leaf];
    queues.push_back(std::move(queue));
  }
  restless.clear();
  queue_at.assign(queues.size(), not_in_heap);
  class_at.assign(classes.size(), not_in_heap);
  for (ClassId c = 0; c < classes.size(); ++c) {
    Class& k = classes[c];
    ++k.generation;
    k.parked = false;
    k.retold = false;
    k.lacks = no_column;
    k.wait = k.told = {};
    compile(c);
    for (Choice& choice : k.choices) count(k, choice);
    if (k.queue != nothing && drop_stale(k)) queues[k.queue].classes.put(c, class_at, [this](ClassId a, ClassId b) { return class_first(a, b); });
  }
  for (JobId id = 0; id < jobs.size(); ++id) {
    Job& job = jobs[id];
    job.shielded = job.shielded && shields;
    if (job.stage == Stage::Free || job.stage == Stage::Waiting || classes[job.what].queue == nothing) continue;
    const NodeId leaf = queues[classes[job.what].queue].leaf;
    const std::vector<Use>& uses = classes[job.what].choices[job.choice].uses;
    if (job.stage != Stage::Stopping) ledger.add(leaf, uses);
    if (job.stage != Stage::Promised) in_use.add(leaf, uses);
    if (job.stage == Stage::Running) queues[classes[job.what].queue].held.insert(held_of(id));
  }
  stopped_some = true;
  for (std::uint32_t q = 0; q < queues.size(); ++q) mark(q);
}

// What the class asks, in terms of the quotas as they are.
void ContinuousEngine::State::compile(ClassId c) {
  Class& k = classes[c];
  k.asks.clear(), k.order.clear(), k.parts.clear(), k.options.clear(), k.uses.clear(), k.places.clear();
  k.never = {};
  k.simple = false;
  for (std::uint32_t p = 0; p < k.spec.pod_sets.size(); ++p) {
    const std::optional<PlaceAsk>& asked = k.spec.pod_sets[p].place;
    if (!asked || asked->count <= 0) continue;
    k.places.push_back({.pod_set = p, .ask = {.name = std::to_string(k.places.size()), .ask = asked->ask, .implied = asked->implied, .count = asked->count, .per_pod = amounts_of(asked->per_pod, *sites.ids), .needs = asked->needs, .conflict = {}, .current = {}}});
  }
  const auto at = queue_ids.find(k.spec.queue);
  k.queue = at == queue_ids.end() ? nothing : at->second;
  if (k.line != nothing && k.queue != nothing && std::ranges::find(queues[k.queue].lines, k.line) == queues[k.queue].lines.end()) queues[k.queue].lines.push_back(k.line);
  for (std::uint32_t p = 0; p < k.spec.pod_sets.size(); ++p)
    for (const auto& [resource, amount] : k.spec.pod_sets[p].total) k.asks.push_back({p, name_id(resource), std::max<Amount>(0, amount)});
  if (k.queue == nothing) {
    k.never.rule = k.wait.rule = EngineWait::Rule::NoQueue;
    return;
  }
  const Queue& queue = queues[k.queue];
  const auto covers = [&](const EngineQueue::Group& group, std::uint32_t resource) { return std::find(group.resources.begin(), group.resources.end(), names[resource]) != group.resources.end(); };
  std::vector<bool> placed(k.asks.size(), false);
  for (std::uint32_t first = 0; first < k.asks.size(); ++first) {
    if (placed[first]) continue;
    const auto group = std::find_if(queue.groups.begin(), queue.groups.end(), [&](const auto& one) { return covers(one, k.asks[first].resource); });
    if (group == queue.groups.end()) {
      if (k.asks[first].amount == 0) continue;  // nothing is asked of what is not there
      k.never.rule = EngineWait::Rule::NoQuota, k.never.node = queue.leaf, k.never.resource = names[k.asks[first].resource];
      return;
    }
    Part part{.first_ask = static_cast<std::uint32_t>(k.order.size()), .first_option = static_cast<std::uint32_t>(k.options.size())};
    for (std::uint32_t i = first; i < k.asks.size(); ++i) {
      if (placed[i] || k.asks[i].pod_set != k.asks[first].pod_set || !covers(*group, k.asks[i].resource)) continue;
      placed[i] = true;
      k.order.push_back(i);
      ++part.asks;
    }
    const auto group_of = [&](std::uint32_t ask) {
      const std::optional<PlaceAsk>& place = k.spec.pod_sets[k.asks[ask].pod_set].place;
      return place ? place->ask.group : std::nullopt;
    };
    for (std::uint32_t p = 0; group_of(first) && p < k.parts.size() && part.same_as == nothing; ++p) {
      const std::uint32_t other = k.order[k.parts[p].first_ask];
      if (group_of(other) == group_of(first) && covers(*group, k.asks[other].resource)) part.same_as = p;
    }
    const std::vector<std::string>& barred = k.spec.pod_sets[k.asks[first].pod_set].barred;
    for (const std::string& flavor : group->flavors) {
      if (std::find(barred.begin(), barred.end(), flavor) != barred.end()) continue;
      Option option{.flavor = name_id(flavor), .first_use = static_cast<std::uint32_t>(k.uses.size())};
      bool whole = true;
      for (std::uint32_t i = 0; i < part.asks && whole; ++i) {
        const Ask& ask = k.asks[k.order[part.first_ask + i]];
        const Column column = ledger.column(queue.leaf, flavor, names[ask.resource]);
        whole = column != no_column && ledger.defined(queue.leaf, column);
        if (whole) k.uses.push_back({column, ask.amount});
      }
      option.uses = static_cast<std::uint32_t>(k.uses.size()) - option.first_use;
      if (whole) k.options.push_back(option);
      else k.uses.resize(option.first_use);
    }
    part.options = static_cast<std::uint32_t>(k.options.size()) - part.first_option;
    if (part.options == 0) {
      k.never.rule = EngineWait::Rule::NoFlavor, k.never.node = queue.leaf, k.never.resource = names[k.asks[first].resource];
      return;
    }
    k.parts.push_back(part);
  }
  k.simple = k.parts.size() == 1 && k.options.size() == 1 && k.places.empty() && !k.spec.can_be_cut();
}

void ContinuousEngine::State::count(Class& k, Choice& choice) {
  choice.uses.clear();
  if (k.queue == nothing) return;
  for (std::size_t i = 0; i < k.asks.size(); ++i) {
    if (choice.flavors[i] == nothing) continue;
    const Column column = ledger.column(queues[k.queue].leaf, names[choice.flavors[i]], names[k.asks[i].resource]);
    if (column != no_column) merge(choice.uses, column, k.asks[i].amount);
  }
}

std::uint16_t ContinuousEngine::State::choice_of(Class& k, const std::vector<std::uint32_t>& flavors) {
  for (std::size_t i = 0; i < k.choices.size(); ++i)
    if (k.choices[i].flavors == flavors) return static_cast<std::uint16_t>(i);
  INVARIANT(k.choices.size() < 0xffff);
  k.choices.push_back({flavors, {}});
  count(k, k.choices.back());
  return static_cast<std::uint16_t>(k.choices.size() - 1);
}

ClassId ContinuousEngine::State::define(const EngineClass& what) {
  std::vector<ClassId>& same = class_ids[digest(what)];
  for (const ClassId c : same)
    if (classes[c].spec == what) return c;
  const ClassId c = static_cast<ClassId>(classes.size());
  classes.emplace_back().spec = what;
  if (!what.line.empty()) {
    const auto [line, fresh] = line_ids.try_emplace(what.line, static_cast<std::uint32_t>(lines.size()));
    if (fresh) lines.emplace_back();
    classes[c].line = line->second;
    lines[line->second].classes.push_back(c);
  }
  class_at.push_back(not_in_heap);
  same.push_back(c);
  compile(c);
  return c;
}

JobId ContinuousEngine::State::submit(ClassId what, Uid uid, std::int64_t created, Stage stage) {
  JobId id = 0;
  if (free_jobs.empty()) {
    id = static_cast<JobId>(jobs.size());
    jobs.emplace_back();
  } else {
    id = free_jobs.back();
    free_jobs.pop_back();
  }
  Job& job = jobs[id];
  job.uid = uid, job.created = created, job.what = what, job.stage = stage;
  job.shielded = shields && stage == Stage::Running;
  job.saved = latest;
  if (stage == Stage::Running) {
    ++running;
    job.since = ++reservations;
    return id;
  }
  ++waiting;
  Class& k = classes[what];
  k.waiting.push_back({created, uid, id, job.generation});
  std::push_heap(k.waiting.begin(), k.waiting.end(), later);
  ++k.live;
  if (k.queue == nothing) return id;
  Queue& queue = queues[k.queue];
  if (k.parked && !queue.strict) return id;  // as the others of its class: it waits for room
  queue.classes.put(what, class_at, [this](ClassId a, ClassId b) { return class_first(a, b); });
  mark(k.queue);
  return id;
}

void ContinuousEngine::State::leave(JobId id) {
  Job& job = jobs[id];
  if (job.stage == Stage::Free) return;
  if (job.stage == Stage::Waiting) drop_claim(id);
  Class& k = classes[job.what];
  const Stage stage = job.stage;
  if (stage != Stage::Stopping) gone(job.uid);  // who was stopped comes back
  if (stage == Stage::Running && k.queue != nothing) queues[k.queue].held.erase(held_of(id));
  job.stage = Stage::Free;
  ++job.generation;
  free_jobs.push_back(id);
  if (stage != Stage::Waiting) {
    if (stage == Stage::Running) --running;
    if (stage == Stage::Stopping) --stopping;
    if (stage == Stage::Promised) promised.erase(std::find(promised.begin(), promised.end(), id));
    stopped_some = true;
    const auto place = placements.extract(id);
    const EnginePlacement* had = place.empty() ? nullptr : place.mapped().get();
    if (stage != Stage::Promised) vacate(leaf_of(k), k.choices[job.choice].uses, had);
    if (stage != Stage::Stopping) give_back(k, k.choices[job.choice], had);
    return;
  }
  --waiting;
  --k.live;
  const bool led = k.waiting.front().job == id;
  if (!led && k.waiting.size() <= 2 * std::size_t{k.live} + 16) return;
  const bool any = drop_stale(k);
  if (k.queue == nothing) return;
  Queue& queue = queues[k.queue];
  const auto less = [this](ClassId a, ClassId b) { return class_first(a, b); };
  if (class_at[job.what] != not_in_heap) {
    if (any) queue.classes.put(job.what, class_at, less);
    else queue.classes.remove(job.what, class_at, less);
  }
  if (!any && k.parked) {  // nobody waits for room any more; the next of the kind is looked at
    k.parked = false;
    ++k.generation;
    k.wait = {};
  }
  mark(k.queue);  // StrictFIFO: who stood behind it may fit
}

void ContinuousEngine::State::stop(JobId id) {
  Job& job = jobs[id];
  if (job.stage != Stage::Running) return;
  Class& k = classes[job.what];
  if (k.queue != nothing) queues[k.queue].held.erase(held_of(id));
  job.stage = Stage::Stopping;
  --running, ++stopping;
  give_back(k, k.choices[job.choice], place_of(id));
}

void ContinuousEngine::State::expose(JobId id) {
  Job& job = jobs[id];
  if (job.stage != Stage::Running || !job.shielded) return;
  job.shielded = false;
  const Class& k = classes[job.what];
  if (k.queue == nothing) return;
  ++versions[ledger.tree(queues[k.queue].leaf)];
  freed(queues[k.queue].leaf, k.choices[job.choice].uses);  // for those that wait it is as if that were given back
  if (const EnginePlacement* place = place_of(id)) freed_place(*place);
}

void ContinuousEngine::State::saved(JobId id, std::int64_t at) {
  Job& job = jobs[id];
  if (job.stage != Stage::Running || job.saved == at) return;
  const Class& k = classes[job.what];
  if (k.queue != nothing) queues[k.queue].held.erase(held_of(id));
  job.saved = at;
  if (k.queue != nothing) queues[k.queue].held.insert(held_of(id));
}

void ContinuousEngine::State::recount(JobId id, ClassId what) {
  Job& job = jobs[id];
  if (job.what == what || (job.stage != Stage::Running && job.stage != Stage::Stopping)) return;
  const bool runs = job.stage == Stage::Running;
  Class& old = classes[job.what];
  const std::vector<std::uint32_t> flavors = old.choices[job.choice].flavors;
  if (old.queue != nothing) {
    if (runs) queues[old.queue].held.erase(held_of(id));
    vacate(queues[old.queue].leaf, old.choices[job.choice].uses, nullptr);  // its pods stay where they are, and keep their places
    if (runs) give_back(old, old.choices[job.choice], nullptr);
  }
  job.what = what;
  Class& k = classes[what];
  job.choice = choice_of(k, flavors);
  stopped_some = true;
  if (k.queue == nothing) return;
  Queue& queue = queues[k.queue];
  const std::vector<Use>& uses = k.choices[job.choice].uses;
  occupy(queue.leaf, uses, nullptr);
  if (runs) {
    hold(queue.leaf, uses, nullptr);
    queue.held.insert(held_of(id));
  }
  ++versions[ledger.tree(queue.leaf)];
  mark(k.queue);
}

// Room that a job of the class had: who may fit with it is looked at again.
void ContinuousEngine::State::give_back(const Class& k, const Choice& choice, const EnginePlacement* place) {
  const NodeId leaf = leaf_of(k);
  let(leaf, choice.uses, place);
  if (place != nullptr) freed_place(*place);
  if (leaf == no_node) return;
  ++versions[ledger.tree(leaf)];
  mark(k.queue);
  freed(leaf, choice.uses);
}

ContinuousEngine::State::Held ContinuousEngine::State::held_of(JobId id) const {
  const Job& job = jobs[id];
  return {classes[job.what].spec.priority, job.saved, job.since, job.uid, id};
}

void ContinuousEngine::State::freed(NodeId leaf, const std::vector<Use>& uses) {
  for (const Use& use : uses) {
    for (NodeId node = leaf; node != no_node; node = ledger.parent(node)) {
      Cell& cell = cells[base[node] + use.column];
      if (!cell.exact.empty() && cell.exact.front().threshold >= ledger.usage(node, use.column)) {  // who of them is woken, the drain decides
        if (!std::exchange(cell.open, true)) open_cells[ledger.tree(node)].push_back({node, use.column});
        mark_tree(ledger.tree(node));
      }
      if (cell.waiters.empty()) {
        cell.released = 0;
        continue;
      }
      cell.released = plus(cell.released, use.amount);
      while (!cell.waiters.empty() && cell.waiters.front().threshold <= cell.released) {
        const Waiter who = cell.waiters.front();
        std::pop_heap(cell.waiters.begin(), cell.waiters.end(), needs_more);
        cell.waiters.pop_back();
        if (classes[who.what].generation == who.generation && !goes_on_waiting(who.what)) wake(who.what);
      }
    }
  }
}

void ContinuousEngine::State::wake(ClassId c) {
  Class& k = classes[c];
  if (!k.parked) return;
  k.parked = false;
  ++k.generation;
  // Its first job is there: who leaves a parked class as its first is taken off at once. Asking the job would be a look at far memory, for each of many that wake together.
  if (k.live > 0) queues[k.queue].classes.put(c, class_at, [this](ClassId a, ClassId b) { return class_first(a, b); });
  mark(k.queue);
}

void ContinuousEngine::State::mark(std::uint32_t q) {
  Queue& queue = queues[q];
  if (queue.dirty) return;
  queue.dirty = true;
  const std::uint32_t tree = ledger.tree(queue.leaf);
  dirty[tree].push_back(q);
  mark_tree(tree);
}

void ContinuousEngine::State::mark_tree(std::uint32_t tree) {
  if (tree_is_dirty[tree]) return;
  tree_is_dirty[tree] = true;
  dirty_trees.push_back(tree);
}

ContinuousEngine::ContinuousEngine(const EngineSpec& spec) : state_(std::make_unique<State>(spec)) {}
ContinuousEngine::~ContinuousEngine() = default;
ContinuousEngine::ContinuousEngine(ContinuousEngine&&) noexcept = default;
ContinuousEngine& ContinuousEngine::operator=(ContinuousEngine&&) noexcept = default;
ContinuousEngine::ContinuousEngine(const ContinuousEngine& other) : state_(std::make_unique<State>(*other.state_)) {}

void ContinuousEngine::configure(const EngineSpec& spec) { state_->configure(spec); }
ClassId ContinuousEngine::define(const EngineClass& what) { return state_->define(what); }
JobId ContinuousEngine::submit(ClassId what, Uid uid, std::int64_t created) { return state_->submit(what, uid, created, State::Stage::Waiting); }

JobId ContinuousEngine::adopt(ClassId what, Uid uid, std::int64_t created, const std::vector<std::vector<std::string>>& flavors, Adopted as, const PlacesOf& places) {
  State& s = *state_;
  std::vector<std::uint32_t> ids;
  for (std::size_t p = 0; p < s.classes[what].spec.pod_sets.size(); ++p)
    for (std::size_t r = 0; r < s.classes[what].spec.pod_sets[p].total.size(); ++r)
      ids.push_back(p < flavors.size() && r < flavors[p].size() && !flavors[p][r].empty() ? s.name_id(flavors[p][r]) : nothing);
  const JobId id = s.submit(what, uid, created, State::Stage::Running);
  State::Class& k = s.classes[what];
  s.jobs[id].choice = s.choice_of(k, ids);
  s.adopt_place(id, flavors, places);
  const EnginePlacement* place = s.place_of(id);
  s.occupy(s.leaf_of(k), k.choices[s.jobs[id].choice].uses, place);
  if (as == Adopted::Stopping) {
    s.jobs[id].stage = State::Stage::Stopping;
    --s.running, ++s.stopping;
    return id;
  }
  s.hold(s.leaf_of(k), k.choices[s.jobs[id].choice].uses, place);
  if (k.queue == nothing) return id;
  s.queues[k.queue].held.insert(s.held_of(id));
  ++s.versions[s.ledger.tree(s.queues[k.queue].leaf)];
  s.mark(k.queue);
  return id;
}

void ContinuousEngine::expose(JobId job) { state_->expose(job); }
void ContinuousEngine::expose_all() {
  for (JobId job = 0; job < state_->jobs.size(); ++job) state_->expose(job);
}
bool ContinuousEngine::shielded(JobId job) const { return state_->jobs[job].stage == State::Stage::Running && state_->jobs[job].shielded; }
bool ContinuousEngine::keep_for(JobId job) { return state_->keep_for(job); }
void ContinuousEngine::keep_no_more(JobId job) { state_->drop_claim(job); }
std::vector<JobId> ContinuousEngine::kept() const {
  std::vector<JobId> out;
  for (const State::Claim& claim : state_->claims) out.push_back(claim.job);
  return out;
}
std::vector<JobId> ContinuousEngine::firsts(bool unseen) { return state_->firsts(unseen); }
void ContinuousEngine::leave(JobId job) { state_->leave(job); }
void ContinuousEngine::stop(JobId job) { state_->stop(job); }
void ContinuousEngine::recount(JobId job, ClassId what) { state_->recount(job, what); }
void ContinuousEngine::saved(JobId job, std::int64_t at) { state_->saved(job, at); }
void ContinuousEngine::set_line(const std::string& line, const LineUse& use) { state_->set_line(line, use); }
void ContinuousEngine::shield(JobId job) {
  State::Job& one = state_->jobs[job];
  one.shielded = one.stage == State::Stage::Running && state_->shields;
}
void ContinuousEngine::drain(std::vector<EngineDecision>& out) { state_->drain(out); }
bool ContinuousEngine::running(JobId job) const { return state_->jobs[job].stage == State::Stage::Running; }
bool ContinuousEngine::stopping(JobId job) const { return state_->jobs[job].stage == State::Stage::Stopping; }
Uid ContinuousEngine::uid(JobId job) const { return state_->jobs[job].uid; }
ClassId ContinuousEngine::class_of(JobId job) const { return state_->jobs[job].what; }
const EngineClass& ContinuousEngine::what(ClassId id) const { return state_->classes[id].spec; }

std::vector<std::vector<std::string>> ContinuousEngine::flavors_of(JobId job) const {
  const State::Job& j = state_->jobs[job];
  if (j.stage == State::Stage::Free || j.stage == State::Stage::Waiting) return {};
  const State::Class& k = state_->classes[j.what];
  std::vector<std::vector<std::string>> out(k.spec.pod_sets.size());
  for (std::size_t i = 0; i < k.asks.size(); ++i) {
    const std::uint32_t flavor = k.choices[j.choice].flavors[i];
    out[k.asks[i].pod_set].push_back(flavor == nothing ? "" : state_->names[flavor]);
  }
  return out;
}

const EngineWait& ContinuousEngine::wait(ClassId what) const {
  static const EngineWait behind{.rule = EngineWait::Rule::Behind}, stopped{.rule = EngineWait::Rule::Stopped};
  const State::Class& k = state_->classes[what];
  if (k.queue == nothing || k.parked || k.live == 0) return k.wait;
  const State::Queue& queue = state_->queues[k.queue];
  if (queue.stopped) return stopped;
  return queue.strict && !queue.classes.empty() && queue.classes.top() != what && state_->classes[queue.classes.top()].parked ? behind : k.wait;
}

const Ledger& ContinuousEngine::ledger() const { return state_->ledger; }
const Ledger& ContinuousEngine::in_use() const { return state_->in_use; }
std::vector<std::pair<JobId, VictimReason>> ContinuousEngine::victims_of(ClassId what) {
  State& s = *state_;
  if (s.classes[what].queue == nothing) return {};
  if (const auto found = s.find(what); !found || !found->preempts) return {};
  return s.victims;
}
std::vector<JobId> ContinuousEngine::holders() const {
  const State& s = *state_;
  std::vector<JobId> out;
  for (JobId job = 0; job < s.jobs.size(); ++job)
    if (s.jobs[job].stage == State::Stage::Running || s.jobs[job].stage == State::Stage::Stopping) out.push_back(job);
  std::sort(out.begin(), out.end(), [&](JobId a, JobId b) { return s.jobs[a].since < s.jobs[b].since; });
  return out;
}

// Promised ones, then waiting ones as class_first() and later() have them: by priority, then by age. `queue`: null: of all queues.
std::vector<JobId> ContinuousEngine::State::line(const std::string_view* queue) const {
  std::vector<JobId> out = promised, waiters;
  const auto is_other = [&](JobId job) { return queue != nullptr && classes[jobs[job].what].spec.queue != *queue; };
  std::erase_if(out, is_other);
  for (JobId job = 0; job < jobs.size(); ++job)
    if (jobs[job].stage == Stage::Waiting && !is_other(job)) waiters.push_back(job);
  std::sort(waiters.begin(), waiters.end(), [&](JobId a, JobId b) {
    const Job &x = jobs[a], &y = jobs[b];
    if (const int order = compare_lines(classes[x.what].line, classes[y.what].line); order != 0) return order < 0;
    const std::int64_t first = classes[x.what].spec.priority, second = classes[y.what].spec.priority;
    if (first != second) return first > second;
    return x.created != y.created ? x.created < y.created : x.uid < y.uid;
  });
  out.insert(out.end(), waiters.begin(), waiters.end());
  return out;
}

std::vector<JobId> ContinuousEngine::in_line(std::string_view queue) const { return state_->line(&queue); }

std::unordered_map<std::string, std::vector<JobId>> ContinuousEngine::lines() const {
  std::unordered_map<std::string, std::vector<JobId>> out;
  for (const JobId job : state_->line(nullptr)) out[state_->classes[state_->jobs[job].what].spec.queue].push_back(job);
  return out;
}
std::size_t ContinuousEngine::waiting() const { return state_->waiting; }
std::size_t ContinuousEngine::running() const { return state_->running; }

std::size_t ContinuousEngine::bytes() const {
  const State& s = *state_;
  std::size_t out = s.jobs.capacity() * sizeof(State::Job) + s.free_jobs.capacity() * sizeof(JobId) + s.classes.capacity() * sizeof(State::Class) + s.queues.capacity() * sizeof(State::Queue);
  for (const State::Class& k : s.classes) {
    out += k.waiting.capacity() * sizeof(State::Entry) + k.asks.capacity() * sizeof(State::Ask) + k.uses.capacity() * sizeof(Use) + k.options.capacity() * sizeof(State::Option) + k.parts.capacity() * sizeof(State::Part);
    for (const State::Choice& choice : k.choices) out += sizeof choice + choice.flavors.capacity() * 4 + choice.uses.capacity() * sizeof(Use);
  }
  for (const State::Cell& cell : s.cells) out += sizeof cell + (cell.waiters.capacity() + cell.exact.capacity()) * sizeof(State::Waiter);
  return out;
}

}  // namespace fairlead::governance
