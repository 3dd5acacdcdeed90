// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <tuple>

#include "training/plan/training_planner.h"

namespace fairlead::training {
namespace planner {

namespace {

std::string ended_words(const Json& pod) {
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    const Json& end = container["state"]["terminated"];
    if (end.is_null() || end["exitCode"].integer() == 0) continue;
    return fmt::format("container {} ended with exit code {}{}", container["name"].string(), end["exitCode"].integer(), end["reason"].string().empty() || end["reason"].string() == "Error" ? "" : " (" + end["reason"].string() + ")");
  }
  const std::string &reason = pod["status"]["reason"].string(), &message = pod["status"]["message"].string();
  return reason.empty() ? "it has failed" : fmt::format("{}{}{}", reason, message.empty() ? "" : ": ", message.substr(0, 200));
}

}  // namespace

void Planner::add(std::optional<Fault>& to, int weight, const std::string& reason, const std::string& message, int rank, const Member* member) {
  if (!to) to.emplace();
  if (weight > to->weight) std::tie(to->weight, to->reason, to->message) = std::tuple(weight, reason, message);
  to->ranks[rank] = reason;
  if (member != nullptr) to->members.push_back(member);
}

std::optional<Fault> Planner::find_fault() const {
  std::optional<Fault> out;
  for (int rank = 0; rank < job_.nodes; ++rank) {
    const Member* const one = ranks_[static_cast<std::size_t>(rank)];
    if (one == nullptr) {
      add(out, 1, "PodLost", fmt::format("The pod of rank {} is not there any more", rank), rank, nullptr);
    } else if (one->sick && !one->succeeded) {
      add(out, 5, "NodeFault", fmt::format("Found unhealthy node {}", one->node()), rank, one);
    } else if (one->going && !one->succeeded) {
      add(out, 2, "PodLost", fmt::format("Pod {} is deleted", one->name()), rank, one);
    } else if (one->succeeded && launcher_ == Launcher::Agent) {
      add(out, 2, "PodEnded", fmt::format("Pod {} has ended before its agent was told to", one->name()), rank, one);
    } else if (one->failed) {
      add(out, 3, "PodFailed", fmt::format("Pod {}: {}", one->name(), ended_words(*one->pod)), rank, one);
    } else if (one->answers() && one->agent.report.attempt == word() && one->is(AgentState::Faulted)) {
      const AgentReport& said = one->agent.report;
      add(out, 4, said.reason.empty() ? "WorkerFault" : reason_of(said.reason), fmt::format("Pod {}: {}", one->name(), said.message.empty() ? "its processes have failed" : said.message), rank, one);
    } else if (holds("Running") && one->answers() && (one->is(AgentState::Init) || one->is(AgentState::Ready))) {
      add(out, 3, "AgentRestarted", fmt::format("Pod {}: its processes do not run any more", one->name()), rank, one);
    }
  }
  return out;
}

std::optional<Fault> Planner::crashed_early() const {
  std::optional<Fault> out;
  for (const Member& one : members_) {
    if (one.made != attempt() || one.replica == nullptr || one.going) continue;
    else if (one.failed) add(out, 3, "PodFailed", fmt::format("Pod {}: {}", one.name(), ended_words(*one.pod)), one.rank, &one);
    else if (one.succeeded && launcher_ == Launcher::Agent) add(out, 2, "PodEnded", fmt::format("Pod {} has ended before its agent was told anything: does its command end in hyperpodrun?", one.name()), one.rank, &one);
  }
  return out;
}

std::string Planner::reason_of(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 128))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') out += c;
  return out.empty() || std::isalpha(static_cast<unsigned char>(out[0])) == 0 ? "WorkerFault" : out;
}

void Planner::restart(const Fault& fault) {
  const RestartLimits& limits = job_.limits;
  const Instant start = parse_time(status_["startTime"].string()).value_or(now());
  const std::int64_t window = std::max<std::int64_t>(0, std::chrono::floor<seconds>(now() - start).count() / limits.window.count());
  const Json& counts = status_["restartStatus"];
  const bool same = counts["currentEvalPeriod"].integer() == window;
  std::int64_t standard = same ? counts["restartCount"].integer() : 0, full = same ? counts["fullJobRestartCount"].integer() : 0;
  const std::string what = fmt::format("{}: {}", fault.reason, fault.message);
  note(true, fault.reason, fault.message);
  tell_faulty(fault);
  if (limits.retries && attempt() >= *limits.retries) return end(false, "RetriesExhausted", fmt::format("{} (restarted {} times, and spec.runPolicy.jobMaxRetryCount is {})", what, attempt(), *limits.retries));
  bool whole = false;
  if (!limits.windows || standard < limits.before_full) {
    ++standard;
  } else if (full < limits.full) {
    whole = true;
    standard = 0;
    ++full;
  } else {
    return end(false, "RestartLimitExceeded", fmt::format("{} ({} restarts and {} of the whole job within {} s: spec.runPolicy.restartPolicy allows no more)", what, standard, full, limits.window.count()));
  }
  const bool new_pods = whole || launcher_ != Launcher::Agent;
  status_.set("restartStatus", Json::object({{"currentEvalPeriod", window}, {"fullJobRestartCount", full}, {"restartCount", standard}}));
  status_.set("restartCount", attempt() + 1);
  status_.child("latestFaultyPodInstanceList").set("restartType", new_pods ? "JLR" : "PLR");
  set("Running", false, fault.reason, fault.message);
  set("Faulted", false, "", "");  // a fault while one is mended is another one, with a time of its own
  set("Faulted", true, fault.reason, fmt::format("{}. Restart {} is under way: {}", fault.message, attempt(), new_pods ? "with new pods" : "of the processes in their pods"));
  again(1s);
}

void Planner::tell_faulty(const Fault& fault) {
  Json pods = Json::array(), nodes = Json::array(), ranks = Json::array();
  std::set<std::string> once;
  for (const Member* one : fault.members) {
    pods.push(one->name());
    if (!one->node().empty() && once.insert(one->node()).second) nodes.push(one->node());
  }
  for (const auto& [rank, why] : fault.ranks) ranks.push(std::to_string(rank));
  if (!status_["latestFaultyPodInstanceList"].is_object()) status_.set("latestFaultyPodInstanceList", Json::object({}));
  Json& list = status_.child("latestFaultyPodInstanceList");
  list.set("faultyInstanceIdList", std::move(nodes)).set("faultyPodList", std::move(pods)).set("faultyRankList", std::move(ranks));
}

bool Planner::is_of_other_size(const Member& one) const {
  if (launcher_ != Launcher::Agent) return number_of((*one.pod)["metadata"]["annotations"][kNodesOf].string(), job_.nodes) != job_.nodes;
  const std::string& said = one.agent.report.attempt;
  return one.answers() && said != word() && said.starts_with(word().substr(0, word().find('x') + 1));
}

bool Planner::rescaled() {
  if (!holds("Running") || std::ranges::none_of(ranks_, [&](const Member* one) { return one != nullptr && is_of_other_size(*one); })) return false;
  note(false, "Rescaling", fmt::format("The job goes on with {} nodes", job_.nodes));
  set("Running", false, "Rescaling", fmt::format("It goes on with {} nodes", job_.nodes));
  again(1s);
  return true;
}

bool Planner::astray() {
  if (!holds("Running") || std::ranges::none_of(ranks_, [&](const Member* one) { return one != nullptr && is_busy(*one) && !in_attempt(*one); })) return false;
  note(true, "Resync", "An agent is at another attempt than the job: its processes begin anew");
  set("Running", false, "Resync", "");
  again(1s);
  return true;
}

std::optional<Fault> Planner::stuck_agents() const {
  const auto from = restless();
  if (launcher_ != Launcher::Agent || !anybody_or_one() || !from || now() - *from < kStuck + patience()) return std::nullopt;
  std::optional<Fault> out;
  for (const Member& one : members_)
    if (one.live() && one.running && one.rank >= 0 && one.replica != nullptr && one.age(now()) >= kStuck && !one.is(AgentState::Ready) && !in_attempt(one))
      add(out, 3, "AgentStuck", fmt::format("Pod {}: its agent {}", one.name(), one.answers() ? fmt::format("is {} for too long", name(one.agent.report.state)) : "does not answer"), one.rank, &one);
  return out;
}

void Planner::resize(int nodes, bool faulty, const std::string& reason, const std::string& why) {
  note(false, reason, fmt::format("From {} to {} nodes: {}", job_.nodes, nodes, why));
  status_.set("elasticScalingStatus", Json::object({{"targetReplicas", Json::object({{job_.replicas.front().name, nodes}})}, {"lastUpdated", print_time(now())}, {"lastScalingTime", print_time(now())}, {"podsScaled", true}, {"isFaultyPodScaleDown", faulty}}));
  set("Running", false, "Rescaling", fmt::format("It goes on with {} nodes", nodes));  // whoever is left is to begin anew, even if that is nobody
  again(1s);
}

bool Planner::grows() {
  if (!job_.elastic || launcher_ != Launcher::Agent || !holds("Running")) return false;
  const Elastic& elastic = *job_.elastic;
  auto joined = std::ranges::count_if(members_, [&](const Member& one) { return usable(one) && one.rank < 0 && one.is(AgentState::Ready) && one.age(now()) >= elastic.settle; }) - spares();
  const int nodes = elastic.at_most(job_.nodes + static_cast<int>(std::max<std::ptrdiff_t>(joined, 0)));
  if (nodes <= job_.nodes) return false;
  if (const Instant from = since("Running") + elastic.snooze; now() < from) {
    again_at(from);
    return false;
  }
  resize(nodes, false, "ScalingUp", fmt::format("{} more are ready", joined));
  return true;
}

bool Planner::taken_back(const Fault& fault) {
  if (!job_.elastic || launcher_ != Launcher::Agent) return false;
  const Replica& replica = job_.replicas.front();
  const auto own = std::ranges::count_if(members_, [&](const Member& one) { return one.replica == &replica && !one.elastic && one.live(); });
  int lost = 0;
  for (const auto& [rank, why] : fault.ranks) {
    const Member* const one = ranks_[static_cast<std::size_t>(rank)];
    const bool is_gone = one == nullptr ? own >= replica.base + replica.spares : one->going && one->elastic;
    if (why == "PodLost" && is_gone) ++lost;
    else if (one == nullptr || one->going || !one->is(AgentState::Faulted)) return false;
  }
  if (lost == 0) return false;
  const auto idle = std::ranges::count_if(members_, [&](const Member& one) { return usable(one) && one.rank < 0 && one.is(AgentState::Ready); });
  const int nodes = job_.elastic->at_most(std::min(job_.nodes, job_.nodes - lost + static_cast<int>(idle)));
  if (nodes == 0) return false;
  resize(nodes, false, "ScalingDown", fmt::format("{} are taken back by their queue, or by somebody", lost));
  return true;
}

bool Planner::shrinks() {
  if (!job_.elastic || launcher_ != Launcher::Agent) return false;
  const Elastic& elastic = *job_.elastic;
  Instant from = parse_time(status_["startTime"].string()).value_or(now());
  if (condition("Running") != nullptr) from = std::max(from, since("Running"));
  from = holds("Faulted") ? since("Faulted") + back_off(status_) + elastic.give_up : std::max(from, parse_time(status_["elasticScalingStatus"]["lastScalingTime"].string()).value_or(from)) + elastic.settle;
  // Those that end what they did, begin on their node, or were not heard for a moment count, too.
  const auto ready = std::ranges::count_if(members_, [&](const Member& one) {
    if (!usable(one)) return false;
    if (one.running) return one.agent.how != AgentSeen::How::Silent || one.agent.silent_for < kAgentGrace;
    return !one.node().empty() && now() - from < kStuck;
  });
  if (ready >= job_.nodes) return false;
  const int nodes = elastic.at_most(static_cast<int>(ready));
  if (nodes == 0 || nodes >= job_.nodes) return false;
  if (now() < from) {
    again_at(from);
    return false;
  }
  resize(nodes, holds("Faulted"), "ScalingDown", fmt::format("{} of {} are there", ready, job_.nodes));
  return true;
}

}  // namespace planner
}  // namespace fairlead::training
