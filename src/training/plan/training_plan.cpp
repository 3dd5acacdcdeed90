// SPDX-License-Identifier: Apache-2.0
#include "training/plan/training_plan.h"

#include "training/plan/training_planner.h"

namespace fairlead::training {
namespace planner {

seconds back_off(const Json& status) {
  const std::int64_t count = status["restartStatus"]["restartCount"].integer() + 4 * status["restartStatus"]["fullJobRestartCount"].integer();
  return count <= 1 ? 0s : std::min(300s, seconds(5LL << std::min<std::int64_t>(count - 2, 6)));
}

std::string word_of(const Json& job, const Json& status, std::int64_t attempt, int nodes) {
  const Instant began = std::max(parse_time(status["startTime"].string()).value_or(Instant()), parse_time(status["elasticScalingStatus"]["lastScalingTime"].string()).value_or(Instant()));
  return fmt::format("{}-{}x{}-{}", kube::uid_of(job).substr(0, 8), attempt, nodes, std::chrono::floor<seconds>(began).time_since_epoch().count());
}

TrainingPlan Planner::plan() {
  if (kube::deleting(in_.job)) return {};  // its pods go with it
  decide();
  if (!(status_ == in_.job["status"])) out_.status = std::move(status_);
  return std::move(out_);
}

void Planner::decide() {
  if (holds("Completed") || holds("Failed")) return wind_down();
  if (!job_.problem.empty()) {
    refuse();
    gather();
    if (job_.suspended) suspend();
    else if (!status_["startTime"].string().empty()) (void)late();
    return;
  }
  if (!holds("Created")) {
    if (job_.suspended || !in_.admitted) note(false, "JobInitiallySuspended", "The job was suspended when it was created. It goes on when its queue admits it, or when spec.runPolicy.suspend is taken back");
    else note(false, "Created", fmt::format("{} pods are made, {} of them spare", job_.nodes + spares(), spares()));
    set("Created", true, "Created", "");
  }
  // A queue may not have seen it yet: until it has, nothing is made. What is there is taken away by spec.runPolicy.suspend alone.
  const bool held = job_.suspended || (!in_.admitted && in_.pods.empty());
  if (!held && holds("Suspended")) {
    set("Suspended", false, "Resumed", "");
    status_.erase("startTime");
    status_.erase("restartStatus");         // windows are counted from the start
    status_.erase("elasticScalingStatus");  // it begins with what it has quota for
    job_ = read_training_job(Json(in_.job).set("status", status_));
  }
  gather();
  if (held) return suspend();
  if (status_["startTime"].string().empty()) status_.set("startTime", print_time(in_.now));
  word_ = word_of(in_.job, status_, attempt(), job_.nodes);
  if (late()) return;
  if (holds("Running") && (*condition("Running"))["reason"].string() == kNoAgent && launcher_ == Launcher::Agent) set("Running", false, "AgentFound", "An agent answers after all");
  for (const Member& one : strays_) let_go(one);
  if (begun()) {
    if (completed()) return complete();
    if (rescaled() || astray()) return;
    const auto fault = find_fault();
    if (fault && taken_back(*fault)) return;
    if (fault) return restart(*fault);
    if (grows()) return;
  } else if (const auto crash = crashed_early()) {
    return restart(*crash);
  } else if (const auto stuck = stuck_agents()) {
    return restart(*stuck);
  }
  if (!holds("Running") && shrinks()) return;
  if (!holds("Running")) prepare();
  else if (late_ranks()) keep_spares();
  tell_state();
}

const Json* Planner::condition(const char* type) const {
  for (const Json& one : status_["conditions"].items())
    if (one["type"].string() == type) return &one;
  return nullptr;
}

void Planner::set(const char* type, bool value, const std::string& reason, const std::string& message) {
  const Json* const found = condition(type);
  if (found == nullptr && !value) return;
  const bool flips = found == nullptr || ((*found)["status"].string() == "True") != value;
  Json made = Json::object({{"type", type}, {"status", value ? "True" : "False"}, {"lastTransitionTime", flips ? print_time(now()) : (*found)["lastTransitionTime"].string()}, {"reason", reason}});
  if (!message.empty()) made.set("message", message);
  Json all = Json::array();
  for (const char* one : kConditions) {
    if (std::string_view(one) == type) all.push(made);
    else if (const Json* const other = condition(one)) all.push(*other);
  }
  status_.set("conditions", std::move(all));
}

void Planner::tell_state() {
  const bool pods_run = std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && !one->going && (one->running || one->succeeded) && !removed_.contains(one->name()); });
  if (pods_run) set("PodsRunning", true, "PodsRunning", holds("Running") ? "" : waits_for());
  else if (!holds("Running")) tell_false("PodsRunning", "PodsPending", waits_for());
  if (holds("Running")) return again(launcher_ == Launcher::Agent ? kPollRunning : kPollPlain);
  const bool started = launcher_ == Launcher::Agent ? std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && in_attempt(*one); }) : pods_run && is_plain();
  if (!started) return;
  std::string message;
  if (holds("Faulted")) {
    message = fmt::format("The fault of reason {} was remediated in {} milliseconds.", (*condition("Faulted"))["reason"].string(), std::chrono::floor<std::chrono::milliseconds>(now() - since("Faulted")).count());
    set("Faulted", false, "Remediated", message);
  }
  note(false, "Running", message.empty() ? fmt::format("{} nodes have begun", job_.nodes) : message);
  set("Running", true, launcher_ == Launcher::Unknown ? kNoAgent : "Running", message);
  if (ranks_[0] != nullptr && launcher_ != Launcher::Unknown) status_.set("masterAddr", ranks_[0]->address()).set("masterPort", std::to_string(kMasterPort + attempt() % 100));
  again(launcher_ == Launcher::Agent ? kPollRunning : kPollPlain);
}

std::string Planner::waits_for() const {
  std::string first;
  int others = 0;
  for (int rank = 0; rank < job_.nodes; ++rank) {
    const Member* const one = ranks_[static_cast<std::size_t>(rank)];
    std::string why;
    if (one == nullptr) why = fmt::format("rank {} has no pod", rank);
    else if (one->going) why = fmt::format("pod {} is deleted", one->name());
    else if (!one->running && !one->succeeded) why = fmt::format("pod {} is {}", one->name(), pending_words(*one->pod));
    else if (launcher_ == Launcher::Plain || one->succeeded || one->is(AgentState::Ready) || in_attempt(*one)) continue;
    else if (one->foreign) why = fmt::format("at port {} of pod {} the agent of another job answers", one->replica->agent_port, one->name());
    else if (!one->answers()) why = fmt::format("no agent answers at port {} of pod {}", one->replica->agent_port, one->name());
    else why = fmt::format("the agent of pod {} is {}", one->name(), name(one->agent.report.state));
    if (first.empty()) first = why;
    else ++others;
  }
  if (first.empty()) return "";
  return fmt::format("Waits: {}{}", first, others == 0 ? "" : fmt::format(", and {} more", others));
}

std::string Planner::pending_words(const Json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& one : pod["status"][list].items())
      if (const std::string& reason = one["state"]["waiting"]["reason"].string(); !reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing") return reason;
  const std::string& node = pod["spec"]["nodeName"].string();
  return node.empty() ? "not on a node yet" : "Pending";
}

void Planner::refuse() {
  const Json* const before = condition("Created");
  if (before == nullptr || (*before)["message"].string() != job_.problem) note(true, "InvalidSpec", job_.problem);
  if (before == nullptr) set("Created", true, "", "");  // so that it can be told as false
  set("Created", false, "InvalidSpec", job_.problem);
}

void Planner::end(bool good, const std::string& reason, const std::string& message) {
  note(!good, good ? "Completed" : "Failed", message);
  set("Running", false, reason, "");
  set("Faulted", false, reason, "");
  set(good ? "Completed" : "Failed", true, reason, message);
  status_.set("completionTime", print_time(now()));
  out_.create.clear();
  out_.orders.clear();
  out_.ranks.clear();
  again(1s);
}

bool Planner::late() {
  const Instant start = parse_time(status_["startTime"].string()).value_or(now());
  const auto passed = [&](const std::optional<seconds>& limit, Instant from, const char* reason, const char* field) {
    if (!limit) return false;
    if (now() < from + *limit) {
      again_at(from + *limit);
      return false;
    }
    note(true, reason, fmt::format("spec.runPolicy.{} is {} s", field, limit->count()));
    end(false, reason, fmt::format("spec.runPolicy.{}: {} s are over", field, limit->count()));
    return true;
  };
  if (passed(job_.active_deadline, start, "DeadlineExceeded", "activeDeadlineSeconds")) return true;
  if (holds("Faulted")) return passed(job_.fault_deadline, since("Faulted"), "FaultDeadlineExceeded", "faultDeadlineSeconds");
  return condition("Running") == nullptr && passed(job_.startup_deadline, start, "StartupDeadlineExceeded", "startupDeadlineSeconds");
}

void Planner::suspend() {
  const bool first = !holds("Suspended");
  if (first && condition("Running") != nullptr) note(false, "Suspended", "Its pods are taken away until it goes on");
  set("Running", false, "Suspended", "");
  set("PodsRunning", false, "Suspended", "");
  set("Faulted", false, "Suspended", "");
  set("Suspended", true, "Suspended", job_.suspended ? "spec.runPolicy.suspend is set: its queue, or somebody, holds it" : "Its queue has not admitted it");
  for (const Member& one : members_) remove(one);
}

void Planner::wind_down() {
  gather();
  const Instant ended = parse_time(status_["completionTime"].string()).value_or(now());
  const bool all = job_.clean == "All";
  for (const Member& one : members_) {
    if (one.going) continue;
    if (one.ended() && !one.left_others) {
      if (all || (one.succeeded && job_.clean == "OnlyComplete")) remove(one);
    } else if (!all && one.running && one.replica != nullptr && job_.launcher != Launcher::Plain && now() - ended < kShutdownGrace && !one.left_others) {
      // It leaves by itself, and its log stays; one that does not answer any more may be about to.
      if (one.answers() && !one.is(AgentState::Shutdown) && !one.is(AgentState::Stopping)) out_.orders.push_back({.pod = one.name(), .what = Agents::Order::What::Shutdown, .at = at(one)});
      again(kPollStarting);
    } else {
      remove(one);
    }
  }
  if (!job_.ttl) return;
  if (now() >= ended + *job_.ttl) out_.remove_job = true;
  else again_at(ended + *job_.ttl);
}

void Planner::remove(const Member& one) {
  if (one.going || !removed_.insert(one.name()).second) return;
  out_.remove.push_back(kube::key_of(*one.pod));
  out_.uids[one.name()] = kube::uid_of(*one.pod);
}

}  // namespace planner

using kube::Json;

std::string attempt_word(const Json& job, std::int64_t attempt) { return planner::word_of(job, job["status"], attempt, read_training_job(job).nodes); }

std::map<std::string, AgentAt> agents_to_ask(const Json& job, const std::vector<Json>& pods) {
  std::map<std::string, AgentAt> out;
  const TrainingJob read = read_training_job(job);
  if (read.launcher == Launcher::Plain || !read.problem.empty() || read.suspended || kube::deleting(job)) return out;
  for (const Json& pod : pods) {
    const std::string& address = pod["status"]["podIP"].string();
    if (address.empty() || pod["status"]["phase"].string() != "Running") continue;
    for (const Replica& replica : read.replicas)
      if (pod["metadata"]["labels"][kReplicaLabel].string() == replica.name) out[kube::name_of(pod)] = {address, replica.agent_port};
  }
  return out;
}

TrainingPlan plan_training(const TrainingInput& input) { return planner::Planner(input).plan(); }

}  // namespace fairlead::training
