// SPDX-License-Identifier: Apache-2.0
#include "training/plan/training_planner.h"

namespace fairlead::training {
namespace planner {

bool Planner::is_outdated(const Member& one) const {
  if (launcher_ == Launcher::Plain && (one.made < attempt() || is_of_other_size(one))) return true;
  if (launcher_ != Launcher::Agent && is_led_elsewhere(one)) return true;
  return one.made < attempt() && status_["latestFaultyPodInstanceList"]["restartType"].string() == "JLR" && holds("Faulted");
}

bool Planner::is_led_elsewhere(const Member& one) const {
  const Member* const first = ranks_[0];
  const std::string& told = (*one.pod)["metadata"]["annotations"][kMasterOf].string();
  return !told.empty() && !one.ended() && first != nullptr && first != &one && first->live() && !first->address().empty() && first->address() != told;
}

void Planner::prepare() {
  for (const Member& one : members_)
    if (one.replica != nullptr && !one.going && !is_done(one) && (one.ended() || one.sick || is_outdated(one)) && names_.contains(one.name())) remove(one);
  for (const Member& one : members_)
    if (usable(one) || one.going) settle(one);
  give_ranks();
  make_missing();
  if (launcher_ == Launcher::Agent && !(holds("Faulted") && now() < since("Faulted") + back_off(status_))) start();
  again(kPollStarting);
}

void Planner::keep_spares() {
  give_ranks();  // none is free; what a spare has of an earlier place is taken off
  for (const Member& one : members_)
    if (one.rank < 0 && one.replica != nullptr && names_.contains(one.name()) && (one.sick || (one.ended() && one.age(now()) >= kAgentGrace))) remove(one);
  make_missing();
}

void Planner::settle(const Member& one) {
  if (one.replica == nullptr) return;
  // It cannot be told, or does not do it, and its processes may be those of an attempt that the others have left.
  const bool idles = !one.answers() || one.is(AgentState::Stopping) || one.is(AgentState::Init);
  const auto from = restless();
  const bool was_there = from && one.age(now()) > now() - *from;
  if (idles && !one.going && launcher_ == Launcher::Agent && was_there && anybody_or_one() && one.running && now() - *from >= kAgentGrace + patience()) {
    note(true, "AgentSilent", fmt::format("Pod {} is made anew: its agent has not been ready for {} s", one.name(), kAgentGrace.count()));
    return remove(one);
  }
  if (!is_busy(one) || in_attempt(one)) return;
  out_.orders.push_back({.pod = one.name(), .what = Agents::Order::What::Stop, .at = at(one), .stop = stop_of(one)});
}

StopOrder Planner::stop_of(const Member& one, bool gently) const {
  StopOrder out{.graceful = gently || (one.is(AgentState::Running) && is_of_other_size(one))};
  if (out.graceful && job_.elastic && job_.elastic->write_down) out.timeout_seconds = static_cast<int>(job_.elastic->write_down->count());
  return out;
}

void Planner::give_ranks() {
  if (launcher_ != Launcher::Agent) return;
  std::vector<Member*> free;
  for (Member& one : members_)
    if (usable(one) && one.rank < 0 && one.replica != nullptr && one.is(AgentState::Ready)) free.push_back(&one);
  const auto give = [&](Member& one, int rank) {
    one.rank = rank;
    ranks_[static_cast<std::size_t>(rank)] = &one;
    out_.ranks[one.name()] = rank;
  };
  const auto is_free = [&](int rank) {
    const Member* const holder = ranks_[static_cast<std::size_t>(rank)];
    return holder == nullptr || !usable(*holder);
  };
  for (Member* one : free)
    if (one->index < one->replica->count && is_free(one->replica->first_rank + one->index)) give(*one, one->replica->first_rank + one->index);
  for (Member* one : free)
    for (int i = 0; one->rank < 0 && i < one->replica->count; ++i)
      if (is_free(one->replica->first_rank + i)) give(*one, one->replica->first_rank + i);
  for (const Member& one : members_)
    if (usable(one) && one.rank < 0 && one.told_rank >= 0) out_.ranks[one.name()] = -1;
}

void Planner::make_missing() {
  if (!in_.admitted) return;
  if (holds("Faulted"))
    if (const Instant from = since("Faulted") + back_off(status_); now() < from) return again_at(from);
  // Of a job whose processes begin by themselves the others are told where the first one is.
  const Member* const first = ranks_[0];
  const bool tells_master = launcher_ != Launcher::Agent;
  const std::string master = first != nullptr && (usable(*first) || is_done(*first)) ? first->address() : "";
  for (const Replica& replica : job_.replicas) {
    // Before an agent is seen: no spares, and nothing beyond what the job has quota for.
    const int count = launcher_ == Launcher::Agent ? replica.seats : std::min(replica.count, replica.base);
    int seats = seats_[&replica];
    // Those for which the job has quota come first.
    auto own = std::ranges::count_if(members_, [&](const Member& one) { return one.replica == &replica && !one.elastic && names_.contains(one.name()); });
    for (int index = 0; index < count && seats < count; ++index) {
      if (names_.contains(pod_name(in_.job, replica, index)) || is_stray(pod_name(in_.job, replica, index))) continue;
      const int rank = replica.first_rank + index;
      if (tells_master && rank != 0 && master.empty()) continue;
      ++seats;
      const bool elastic = job_.elastic && own++ >= replica.base + replica.spares;
      // With spares, and where another has the rank of its name, it is given when it is ready.
      const bool late = late_ranks() || (launcher_ == Launcher::Agent && ranks_[static_cast<std::size_t>(rank)] != nullptr);
      Json pod = make_pod(in_.job, job_, replica, {.index = index, .rank = late ? -1 : rank, .attempt = attempt(), .elastic = elastic, .queued = elastic && in_.in_queue, .master_address = tells_master && rank != 0 ? master : ""});
      out_.create.push_back(std::move(pod));
    }
  }
}

void Planner::let_go(const Member& one) {
  if (one.replica != nullptr && one.live() && one.is(AgentState::Stopping)) return;
  if (one.replica != nullptr && one.live() && one.is(AgentState::Running)) out_.orders.push_back({.pod = one.name(), .what = Agents::Order::What::Stop, .at = at(one), .stop = stop_of(one, true)});
  else remove(one);
}

void Planner::start() {
  // A pod that goes, or is not wanted any more, may still train. Of one whose agent does not answer nobody knows; its node may be dead, and it has lost the others.
  if (std::ranges::any_of(members_, [&](const Member& one) { return (is_busy(one) && !in_attempt(one)) || one.is(AgentState::Stopping); })) return;
  const auto waits = [&](const Member* one) { return one == nullptr || !usable(*one) || out_.ranks.contains(one->name()) || one->address().empty() || !(one->is(AgentState::Ready) || in_attempt(*one)); };
  if (std::ranges::any_of(ranks_, waits)) return;
  StartOrder order{.nodes = job_.nodes, .restarts = static_cast<int>(attempt()), .attempt = word(), .master_address = ranks_[0]->address(), .master_port = static_cast<int>(kMasterPort + attempt() % 100), .rules = job_.rules};
  auto addresses = std::make_shared<std::vector<std::string>>();
  for (const Member* one : ranks_) addresses->push_back(one->address());
  order.addresses = std::move(addresses);
  for (const Member* one : ranks_) {
    order.rank = one->rank;
    if (!in_attempt(*one)) out_.orders.push_back({.pod = one->name(), .what = Agents::Order::What::Start, .at = at(*one), .start = order});
  }
}

}  // namespace planner
}  // namespace fairlead::training
