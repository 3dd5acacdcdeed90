// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <tuple>

#include "training/plan/training_planner.h"

namespace fairlead::training {
namespace planner {

std::int64_t number_of(const std::string& text, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

int Planner::spares() const {
  int sum = 0;
  for (const Replica& one : job_.replicas) sum += one.spares;
  return sum;
}

void Planner::gather() {
  ranks_.assign(static_cast<std::size_t>(job_.nodes), nullptr);
  members_.reserve(in_.pods.size());
  for (const Json& pod : in_.pods) members_.push_back(read_member(pod));
  const auto answers = [](const Member& one) { return one.live() && one.answers(); };
  anybody_ = std::ranges::any_of(members_, answers);
  // Of an entry point that nobody told us of the address of rank 0 is written down once its agents have begun: that they are silent now changes nothing.
  launcher_ = job_.launcher == Launcher::Unknown && (anybody_ || !status_["masterAddr"].string().empty()) ? Launcher::Agent : job_.launcher;
  // Those that live first, of them those with a rank.
  std::ranges::sort(members_, {}, [](const Member& one) { return std::tuple(one.going, one.ended(), one.rank < 0, one.index, one.name()); });
  std::map<const Replica*, int> seats;  // how many are taken
  for (Member& one : members_) {
    if (one.replica != nullptr && one.rank >= 0 && taken(one)) one.rank = -1;
    // An agent's pod may have any rank of its replica; where there is none the name is the rank.
    const bool fits = one.replica != nullptr && one.index >= 0 && (launcher_ != Launcher::Plain || (one.index < one.replica->count && one.rank == one.replica->first_rank + one.index));
    if (!fits || seats[one.replica] >= seats_of(*one.replica)) {
      strays_.push_back(one);
      continue;
    }
    ++seats[one.replica];
    names_.insert(one.name());
    if (one.rank >= 0) ranks_[static_cast<std::size_t>(one.rank)] = &one;
  }
  seats_ = std::move(seats);
}

bool Planner::ended_by_itself(const Json& pod) {
  const auto until = parse_time(pod["metadata"]["deletionTimestamp"].string());  // the end of its grace
  for (const Json& container : pod["status"]["containerStatuses"].items())
    if (const auto end = parse_time(container["state"]["terminated"]["finishedAt"].string()); end && until && *end < *until - seconds(std::clamp<std::int64_t>(pod["metadata"]["deletionGracePeriodSeconds"].integer(), 0, 86'400))) return true;
  return false;
}

Member Planner::read_member(const Json& pod) const {
  Member one{.pod = &pod, .rank = static_cast<int>(number_of(pod["metadata"]["labels"][kRankLabel].string(), -1)), .made = number_of(pod["metadata"]["annotations"][kMadeFor].string(), 0)};
  for (const Replica& replica : job_.replicas) {
    const std::string start = fmt::format("{}-{}-", kube::name_of(in_.job), replica.name);
    if (pod["metadata"]["labels"][kReplicaLabel].string() != replica.name || !one.name().starts_with(start)) continue;
    one.replica = &replica;
    one.index = static_cast<int>(number_of(one.name().substr(start.size()), -1));
  }
  one.told_rank = one.rank;
  one.elastic = !pod["metadata"]["labels"][kElasticLabel].is_null();
  const std::string& phase = pod["status"]["phase"].string();
  one.going = kube::deleting(pod);
  one.succeeded = phase == "Succeeded";
  one.failed = phase == "Failed";
  one.running = phase == "Running";
  if (one.going && one.succeeded && !ended_by_itself(pod)) one.succeeded = false;  // told to end, it ended well: that is no completion
  if (one.running && one.replica != nullptr)
    for (const Json& container : pod["status"]["containerStatuses"].items()) {
      const Json& end = container["state"]["terminated"];
      if (end.is_null() || container["name"].string() != one.replica->main) continue;
      one.left_others = true;
      one.running = false;
      (end["exitCode"].integer() == 0 ? one.succeeded : one.failed) = true;
    }
  if (!one.node().empty())
    if (const auto node = in_.nodes.find(one.node()); node != in_.nodes.end()) one.sick = is_unhealthy(node->second);
  if (const auto said = in_.agents.find(one.name()); said != in_.agents.end()) one.agent = said->second;
  if (const std::string& attempt = one.agent.report.attempt; (is_busy(one) || one.is(AgentState::Stopping)) && !attempt.empty() && !attempt.starts_with(kube::uid_of(in_.job).substr(0, 8) + "-")) {
    // On a node's own network another job's agent may have the port. (One that is ready may have read the word in a folder that an earlier job had, too.)
    one.foreign = true;
    one.agent = {.how = AgentSeen::How::Silent, .report = {}};
  }
  return one;
}

bool Planner::is_plain() const {
  if (launcher_ != Launcher::Unknown) return launcher_ == Launcher::Plain;
  // Nobody has told us, and nobody answers: as soon as one has ended by itself, or none has come for so long, there is no agent.
  return std::ranges::all_of(ranks_, [&](const Member* one) {
    if (one == nullptr || one->going) return false;
    if (one->ended()) return true;
    return one->running && one->age(now()) >= kAgentGrace;
  });
}

bool Planner::begun() const {
  if (holds("Running")) return true;
  if (launcher_ == Launcher::Agent) return std::ranges::any_of(ranks_, [&](const Member* one) { return one != nullptr && in_attempt(*one); });
  return std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && !one->going && one->made == attempt() && !is_of_other_size(*one) && (one->ended() || (one->running && launcher_ == Launcher::Plain)); });
}

}  // namespace planner
}  // namespace fairlead::training
