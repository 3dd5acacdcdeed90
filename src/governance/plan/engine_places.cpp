// SPDX-License-Identifier: Apache-2.0
// Places in the continuous mode: a job starts when it has its quota and every pod a place. docs/design/042-places-in-the-continuous-mode.md.
#include "governance/plan/engine_places.h"

#include <algorithm>

#include "governance/plan/amount.h"
#include "governance/plan/engine_state.h"

namespace fairlead::governance {
namespace {

// How many more pods that need `wanted` fit on a host at most, once `pods` of `given_back` are gone from it: on what limits them there, each amount that is given back is at most so many.
std::int64_t most_more(const PodAmounts& given_back, std::int64_t pods, const PodAmounts& wanted) {
  std::int64_t most = pods;
  for (const auto& [id, amount] : wanted.of) {
    if (amount <= 0) continue;
    for (const auto& [other, each] : given_back.of)
      if (other == id && each > 0) most = std::max(most, plus(times(each, pods), amount - 1) / amount);
  }
  return most;
}

}  // namespace

Sites& Sites::operator=(const Sites& other) {
  if (this == &other) return *this;
  all = other.all;
  nodes = other.nodes;
  others = other.others;
  ids = std::make_shared<ResourceIds>(*other.ids);
  for (Site& site : all) {
    site.now.rebind(ids);
    site.in_use.rebind(ids);
    if (site.claimed) site.claimed->rebind(ids);
  }
  return *this;
}

Site* Sites::find(std::string_view flavor) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const Site& site) { return site.flavor == flavor; });
  return at == all.end() ? nullptr : &*at;
}
const Site* Sites::find(std::string_view flavor) const { return const_cast<Sites*>(this)->find(flavor); }

// Hosts that several flavors see are used in all of them.
void Sites::change(Which which, const EnginePlacement& place, bool add) {
  for (const EnginePlacement::Set& set : place.sets) {
    const Site* own = find(set.flavor);
    if (own == nullptr) continue;
    for (Site& site : all) {
      if (&site != own && !(site.now.by_host() && own->now.by_host())) continue;
      if (which == Which::Claimed && !site.claimed) continue;
      Topology& rows = which == Which::Now ? site.now : which == Which::InUse ? site.in_use : *site.claimed;
      if (add) rows.add(set.uses);
      else rows.remove(set.uses);
    }
  }
}

bool Sites::fits_in_use(const EnginePlacement& place) {
  std::vector<std::size_t> marks;
  for (Site& site : all) marks.push_back(site.in_use.mark());
  const bool out = std::all_of(place.sets.begin(), place.sets.end(), [&](const EnginePlacement::Set& set) {
    const Site* site = find(set.flavor);
    if (site == nullptr || !site->in_use.fits(set.uses, true)) return false;
    change(Which::InUse, {{set}}, true);  // what follows stands beside it
    return true;
  });
  for (std::size_t i = 0; i < all.size(); ++i) all[i].in_use.undo(marks[i]);
  return out;
}

const EnginePlacement* ContinuousEngine::State::place_of(JobId job) const {
  if (placements.empty()) return nullptr;
  const auto at = placements.find(job);
  return at == placements.end() ? nullptr : at->second.get();
}

void ContinuousEngine::State::adopt_place(JobId job, const std::vector<std::vector<std::string>>& flavors, const PlacesOf& places) {
  const EngineClass& what = classes[jobs[job].what].spec;
  auto place = std::make_shared<EnginePlacement>();
  for (std::uint32_t p = 0; p < places.size() && p < what.pod_sets.size(); ++p) {
    if (!places[p] || !what.pod_sets[p].place) continue;
    std::string flavor;
    for (std::size_t r = 0; p < flavors.size() && r < flavors[p].size(); ++r)
      if (flavor.empty() || sites.find(flavor) == nullptr) flavor = flavors[p][r];
    PodAmounts per_pod = amounts_of(what.pod_sets[p].place->per_pod, *sites.ids);
    std::vector<DomainUse> uses = uses_of(*places[p], per_pod);
    place->sets.push_back({.pod_set = p, .flavor = std::move(flavor), .where = *places[p], .per_pod = std::move(per_pod), .uses = std::move(uses)});
  }
  if (!place->sets.empty()) placements[job] = std::move(place);
}

// From the nodes as they are. Waiters go: all of them are to look again.
void ContinuousEngine::State::build_places() {
  sites.all.clear();
  for (const EngineSpec::Places& spec : place_specs) {
    Topology rows(spec.shape, sites.nodes, sites.ids);
    for (const auto& [node, use] : sites.others) rows.add_other(node, use.requests, use.pods);
    sites.all.push_back({.flavor = spec.flavor, .now = rows, .in_use = std::move(rows), .claimed = {}, .waiters = {}});
  }
  if (sites.empty()) return;
  for (const auto& [job, place] : placements) {
    const Stage stage = jobs[job].stage;
    if (stage != Stage::Stopping) sites.change(Sites::Which::Now, *place, true);
    if (stage != Stage::Promised) sites.change(Sites::Which::InUse, *place, true);
  }
  if (claims.empty()) return;
  sites.claim_begins();
  for (const Claim& claim : claims)
    if (claim.place) sites.change(Sites::Which::Claimed, *claim.place, true);
}

std::shared_ptr<const EnginePlacement> ContinuousEngine::State::find_place(const Class& k, From from, NoPlace* why) {
  struct Asked {
    const PlaceSet* set;
    std::uint32_t index;
  };
  std::map<std::string_view, std::vector<Asked>> by_flavor;
  const auto fail = [&](std::uint32_t site, TopologyReason reason) {
    if (why != nullptr) *why = {.site = site, .missing = 1, .of = nothing, .reason = std::move(reason)};
    return nullptr;
  };
  // The flavor of a pod set that has places: one, and of resources that are in no such flavor it does not matter. One that asks for nothing goes where its group leads.
  const auto flavor_of = [&](std::uint32_t pod_set, std::uint32_t& flavor) {
    for (std::size_t a = 0; a < k.asks.size(); ++a) {
      if (k.asks[a].pod_set != pod_set || chosen[a] == nothing || chosen[a] == flavor || sites.find(names[chosen[a]]) == nullptr) continue;
      if (flavor != nothing) return false;
      flavor = chosen[a];
    }
    return true;
  };
  for (std::uint32_t i = 0; i < k.places.size(); ++i) {
    std::uint32_t flavor = nothing;
    bool one = flavor_of(k.places[i].pod_set, flavor);
    for (const PlaceSet& other : k.places)
      if (flavor == nothing && one && other.ask.ask.group && other.ask.ask.group == k.places[i].ask.ask.group) one = flavor_of(other.pod_set, flavor);
    if (!one || flavor == nothing) return fail(nothing, {.kind = TopologyReason::Kind::Unplaceable, .topology = {}, .level = {}, .other = {}, .layers = {}, .exclusions = {}});
    by_flavor[names[flavor]].push_back({&k.places[i], i});
  }
  std::vector<FlavorQuestion> questions;
  for (const auto& [flavor, asked] : by_flavor) {
    Site& site = *sites.find(flavor);
    FlavorQuestion& question = questions.emplace_back();
    question.flavor = flavor;
    question.topology = from == From::Seen && !claims.empty() && site.claimed ? &*site.claimed : &site.now;
    for (const Asked& one : asked) question.pod_sets.push_back(one.set->ask);
  }
  auto answers = find_for_workload(questions, {.pod_sets = {}, .simulate_empty = from == From::Empty, .unhealthy_node = {}, .assumed = nullptr}, {});
  auto out = std::make_shared<EnginePlacement>();
  for (FlavorAnswer& answer : answers) {
    const auto index = static_cast<std::uint32_t>(std::stoul(answer.pod_set));
    if (answer.reason.none() && answer.assignment) {
      const PodAmounts& per_pod = k.places[index].ask.per_pod;
      out->sets.push_back({.pod_set = k.places[index].pod_set, .flavor = answer.flavor, .where = *answer.assignment, .per_pod = per_pod, .uses = uses_of(*answer.assignment, per_pod)});
      continue;
    }
    if (why == nullptr) return nullptr;
    why->site = static_cast<std::uint32_t>(sites.find(answer.flavor) - sites.all.data());
    why->missing = 1, why->of = nothing;
    using Kind = TopologyReason::Kind;
    // With one pod set alone, what it misses is known: its best domain (or all together) holds so many.
    if (k.places.size() == 1 && (answer.reason.kind == Kind::NoFit || answer.reason.kind == Kind::NoFitLayers)) why->missing = std::max<std::int64_t>(1, answer.reason.wanted - answer.reason.fit), why->of = 0;
    why->reason = std::move(answer.reason);
    return nullptr;
  }
  std::sort(out->sets.begin(), out->sets.end(), [](const EnginePlacement::Set& a, const EnginePlacement::Set& b) { return a.pod_set < b.pod_set; });
  return out;
}

bool ContinuousEngine::State::placed(const Class& k) {
  if (k.places.empty()) return true;
  NoPlace why;
  if (found_place = find_place(k, From::Seen, &why); found_place) return true;
  no_place.push_back(std::move(why));
  return false;
}

std::int64_t ContinuousEngine::State::pods_more(const EnginePlacement& given_back, const Class& k) const {
  std::int64_t most = 0;
  for (const EnginePlacement::Set& set : given_back.sets) {
    std::int64_t pods = 0, more = 0;
    for (const DomainUse& use : set.uses) pods += use.count;
    for (const PlaceSet& wanted : k.places) more = std::max(more, most_more(set.per_pod, pods, wanted.ask.per_pod));
    most = plus(most, more);
  }
  return most;
}

void ContinuousEngine::State::freed_on(Site& site, const PodAmounts& per_pod, std::int64_t pods) {
  for (std::size_t i = 0; i < site.waiters.size();) {
    PlaceWaiter& one = site.waiters[i];
    const bool stale = classes[one.what].generation != one.generation;
    if (!stale) one.missing -= one.counted ? most_more(per_pod, pods, one.per_pod) : one.missing;
    if (!stale && one.missing > 0) {
      ++i;
      continue;
    }
    const ClassId what = one.what;
    if (i + 1 < site.waiters.size()) site.waiters[i] = std::move(site.waiters.back());
    site.waiters.pop_back();
    if (!stale) wake(what);
  }
}

void ContinuousEngine::State::freed_place(const EnginePlacement& place) {
  for (const EnginePlacement::Set& set : place.sets) {
    const Site* own = sites.find(set.flavor);
    if (own == nullptr) continue;
    std::int64_t pods = 0;
    for (const DomainUse& use : set.uses) pods += use.count;
    for (Site& site : sites.all)
      if (&site == own || (site.now.by_host() && own->now.by_host())) freed_on(site, set.per_pod, pods);
  }
}

void ContinuousEngine::State::wake_all_for_places() {
  for (ClassId c = 0; c < classes.size(); ++c)
    if (!classes[c].places.empty()) wake(c);
}

void ContinuousEngine::set_nodes(std::vector<TopologyNode> nodes) {
  state_->sites.nodes = std::move(nodes);
  state_->build_places();
  state_->wake_all_for_places();
  state_->stopped_some = true;
}

void ContinuousEngine::set_others(const std::string& node, const OtherUse& use) {
  State& s = *state_;
  OtherUse& before = s.sites.others[node];
  if (before == use) return;
  bool less = use.pods < before.pods;
  for (const auto& [name, amount] : before.requests) {
    const auto now = use.requests.find(name);
    less = less || (now == use.requests.end() ? 0 : now->second) < amount;
  }
  for (Site& site : s.sites.all)
    for (Topology* rows : {&site.now, &site.in_use, site.claimed ? &*site.claimed : nullptr}) {
      if (rows == nullptr) continue;
      rows->remove_other(node, before.requests, before.pods);
      rows->add_other(node, use.requests, use.pods);
    }
  before = use;
  if (use == OtherUse{}) s.sites.others.erase(node);
  if (!less) return;
  s.wake_all_for_places();
  s.stopped_some = true;
}

std::string ContinuousEngine::replace(JobId job, const std::string& host) {
  State& s = *state_;
  const EnginePlacement* before = s.place_of(job);
  if (before == nullptr || s.jobs[job].stage != State::Stage::Running) return "it does not run";
  const State::Class& k = s.classes[s.jobs[job].what];
  std::map<std::string_view, FlavorQuestion> by_flavor;
  for (std::size_t i = 0; i < before->sets.size(); ++i) {
    const EnginePlacement::Set& set = before->sets[i];
    Site* site = s.sites.find(set.flavor);
    const std::optional<PlaceAsk>& asked = k.spec.pod_sets[set.pod_set].place;
    if (site == nullptr || !asked) return "its flavor has no topology any more";
    const bool there = std::any_of(set.where.domains.begin(), set.where.domains.end(), [&](const DomainPods& domain) { return !domain.values.empty() && domain.values.back() == host; });
    if (!there) continue;
    FlavorQuestion& question = by_flavor[set.flavor];
    question.flavor = set.flavor, question.topology = &site->now;
    question.pod_sets.push_back({.name = std::to_string(i), .ask = asked->ask, .implied = asked->implied, .count = asked->count, .per_pod = set.per_pod, .needs = asked->needs, .conflict = {}, .current = set.where});
  }
  std::vector<FlavorQuestion> questions;
  for (auto& [flavor, question] : by_flavor) questions.push_back(std::move(question));
  auto after = std::make_shared<EnginePlacement>(*before);
  for (FlavorAnswer& answer : find_for_workload(questions, {.pod_sets = {}, .unhealthy_node = host, .assumed = nullptr}, {})) {
    if (!answer.reason.none() || !answer.assignment) return text(answer.reason);
    EnginePlacement::Set& set = after->sets[std::stoul(answer.pod_set)];
    set.where = std::move(*answer.assignment);
    set.uses = uses_of(set.where, set.per_pod);
  }
  for (const auto& [place, add] : {std::pair{before, false}, {static_cast<const EnginePlacement*>(after.get()), true}})
    for (const auto which : {Sites::Which::Now, Sites::Which::InUse, Sites::Which::Claimed}) s.sites.change(which, *place, add);
  s.placements[job] = std::move(after);
  return "";
}

PlacesOf ContinuousEngine::places_of(JobId job) const {
  const EnginePlacement* place = state_->place_of(job);
  if (place == nullptr) return {};
  PlacesOf out(state_->classes[state_->jobs[job].what].spec.pod_sets.size());
  for (const EnginePlacement::Set& set : place->sets)
    if (set.pod_set < out.size()) out[set.pod_set] = set.where;
  return out;
}

bool ContinuousEngine::misplaced(JobId job) const {
  const EnginePlacement* place = state_->place_of(job);
  if (place == nullptr) return false;
  return std::any_of(place->sets.begin(), place->sets.end(), [&](const EnginePlacement::Set& set) {
    const Site* site = state_->sites.find(set.flavor);
    return site == nullptr || std::any_of(set.uses.begin(), set.uses.end(), [&](const DomainUse& use) { return !site->now.has_domain(use.values); });
  });
}

}  // namespace fairlead::governance
