// SPDX-License-Identifier: Apache-2.0
#include "training/plan/training_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "base/encoding.h"

namespace fairlead::training {

using kube::Json;
using namespace std::chrono_literals;
using std::chrono::seconds;

namespace {

constexpr seconds kPollStarting{1}, kPollRunning{5}, kPollPlain{15};
constexpr seconds kStuck{300};         // after a fault: so long an agent may need to be ready again
constexpr seconds kAgentGrace{60};     // so long an entry point may need before we believe that no agent comes, and an agent that is asked to stop to answer again
constexpr const char* kNoAgent = "RunningWithoutAgent";  // reason of Running where nobody has told us who starts the processes
constexpr seconds kShutdownGrace{60};  // so long agents of a job that has ended may need to leave by themselves
// In this order they stand in the status: of those that hold, `hyp list` shows the last.
constexpr std::array<const char*, 7> kConditions{"Created", "Suspended", "PodsRunning", "Running", "Faulted", "Completed", "Failed"};

std::int64_t number_of(const std::string& text, std::int64_t otherwise) {
  std::int64_t value = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : otherwise;
}

// Before new pods are made after a fault: nothing, 5 s, 10 s, ... 5 min. By the restarts of this window, so that what failed once a day waits for nothing.
seconds back_off(const Json& status) {
  const std::int64_t count = status["restartStatus"]["restartCount"].integer() + 4 * status["restartStatus"]["fullJobRestartCount"].integer();
  return count <= 1 ? 0s : std::min(300s, seconds(5LL << std::min<std::int64_t>(count - 2, 6)));
}

std::string ended_words(const Json& pod) {
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    const Json& end = container["state"]["terminated"];
    if (end.is_null() || end["exitCode"].integer() == 0) continue;
    return fmt::format("container {} ended with exit code {}{}", container["name"].string(), end["exitCode"].integer(), end["reason"].string().empty() || end["reason"].string() == "Error" ? "" : " (" + end["reason"].string() + ")");
  }
  const std::string &reason = pod["status"]["reason"].string(), &message = pod["status"]["message"].string();
  return reason.empty() ? "it has failed" : fmt::format("{}{}{}", reason, message.empty() ? "" : ": ", message.substr(0, 200));
}

// With the moment at which it last began, or was given another size: after it was held, processes that take their time to end are those of another run.
std::string word_of(const Json& job, const Json& status, std::int64_t attempt, int nodes) {
  const Instant began = std::max(parse_time(status["startTime"].string()).value_or(Instant()), parse_time(status["elasticScalingStatus"]["lastScalingTime"].string()).value_or(Instant()));
  return fmt::format("{}-{}x{}-{}", kube::uid_of(job).substr(0, 8), attempt, nodes, std::chrono::floor<seconds>(began).time_since_epoch().count());
}

struct Member {
  const Json* pod = nullptr;
  const Replica* replica = nullptr;
  int index = 0, rank = -1;
  int told_rank = -1;  // of its label, which may be another's by now
  std::int64_t made = 0;
  bool going = false, succeeded = false, failed = false, running = false, sick = false;
  bool elastic = false;      // it has a quota of its own
  bool left_others = false;  // its main container has ended, and others run on
  bool foreign = false;      // what answers at its address is the agent of another job
  AgentSeen agent;
  bool ended() const { return succeeded || failed; }
  bool live() const { return !going && !ended(); }
  bool answers() const { return agent.how == AgentSeen::How::Answered; }
  bool is(AgentState state) const { return answers() && agent.report.state == state; }
  const std::string& name() const { return kube::name_of(*pod); }
  seconds age(Instant now) const {  // since it was started on its node
    const auto started = parse_time((*pod)["status"]["startTime"].string());
    return started && now > *started ? std::chrono::floor<seconds>(now - *started) : 0s;
  }
  const std::string& node() const { return (*pod)["spec"]["nodeName"].string(); }
  const std::string& address() const { return (*pod)["status"]["podIP"].string(); }
};

struct Fault {
  int weight = 0;  // the heaviest gives its name: what broke a node explains what its processes say
  std::string reason, message;
  std::vector<const Member*> members;
  std::map<int, std::string> ranks;  // and why
};

class Planner {
 public:
  explicit Planner(const TrainingInput& input) : in_(input), job_(read_training_job(input.job)), status_(input.job["status"].is_object() ? input.job["status"] : Json::object({})) {}

  TrainingPlan plan() {
    if (kube::deleting(in_.job)) return {};  // its pods go with it
    decide();
    if (!(status_ == in_.job["status"])) out_.status = std::move(status_);
    return std::move(out_);
  }

 private:
  void decide() {
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

  // ---- the status

  Instant now() const { return in_.now; }
  std::int64_t attempt() const { return std::clamp<std::int64_t>(status_["restartCount"].integer(), 0, 1'000'000'000); }
  const Json* condition(const char* type) const {
    for (const Json& one : status_["conditions"].items())
      if (one["type"].string() == type) return &one;
    return nullptr;
  }
  bool holds(const char* type) const {
    const Json* const found = condition(type);
    return found != nullptr && (*found)["status"].string() == "True";
  }
  Instant since(const char* type) const {
    const Json* const found = condition(type);
    return found == nullptr ? now() : parse_time((*found)["lastTransitionTime"].string()).value_or(now());
  }
  // A condition that never held is not told as False.
  void set(const char* type, bool value, const std::string& reason, const std::string& message) {
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
  void note(bool warning, std::string reason, std::string message) { out_.notes.push_back({warning, std::move(reason), std::move(message)}); }
  void again(seconds after) {
    after = std::max(after, 1s);
    if (!out_.again || after < *out_.again) out_.again = after;
  }
  void again_at(Instant when) { again(std::chrono::ceil<seconds>(when - now())); }

  // ---- what there is

  int spares() const {
    int sum = 0;
    for (const Replica& one : job_.replicas) sum += one.spares;
    return sum;
  }
  bool late_ranks() const { return launcher_ == Launcher::Agent && (spares() > 0 || job_.elastic); }
  int seats_of(const Replica& one) const { return launcher_ == Launcher::Plain ? one.count : one.seats; }
  const std::string& word() const { return word_; }

  void gather() {
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
  static bool ended_by_itself(const Json& pod) {
    const auto until = parse_time(pod["metadata"]["deletionTimestamp"].string());  // the end of its grace
    for (const Json& container : pod["status"]["containerStatuses"].items())
      if (const auto end = parse_time(container["state"]["terminated"]["finishedAt"].string()); end && until && *end < *until - seconds(std::clamp<std::int64_t>(pod["metadata"]["deletionGracePeriodSeconds"].integer(), 0, 86'400))) return true;
    return false;
  }
  bool taken(const Member& one) const { return one.rank < one.replica->first_rank || one.rank >= one.replica->first_rank + one.replica->count || ranks_[static_cast<std::size_t>(one.rank)] != nullptr; }
  Member read_member(const Json& pod) const {
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

  static bool is_busy(const Member& one) { return one.is(AgentState::Running) || one.is(AgentState::Faulted) || one.is(AgentState::Completed); }
  bool in_attempt(const Member& one) const { return is_busy(one) && one.agent.report.attempt == word(); }
  bool is_plain() const {
    if (launcher_ != Launcher::Unknown) return launcher_ == Launcher::Plain;
    // Nobody has told us, and nobody answers: as soon as one has ended by itself, or none has come for so long, there is no agent.
    return std::ranges::all_of(ranks_, [&](const Member* one) {
      if (one == nullptr || one->going) return false;
      if (one->ended()) return true;
      return one->running && one->age(now()) >= kAgentGrace;
    });
  }
  // Processes of this attempt may be there. Of those that begin by themselves: once all are there, since the first one waits for the others.
  bool begun() const {
    if (holds("Running")) return true;
    if (launcher_ == Launcher::Agent) return std::ranges::any_of(ranks_, [&](const Member* one) { return one != nullptr && in_attempt(*one); });
    return std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && !one->going && one->made == attempt() && !is_of_other_size(*one) && (one->ended() || (one->running && launcher_ == Launcher::Plain)); });
  }
  // An agent stays when its processes have completed: one that has ended was ended.
  bool is_complete(const Member& one) const { return launcher_ == Launcher::Agent ? !one.going && one.is(AgentState::Completed) && one.agent.report.attempt == word() : one.succeeded; }
  bool completed() const {
    return std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && is_complete(*one); });
  }

  // ---- faults

  static void add(std::optional<Fault>& to, int weight, const std::string& reason, const std::string& message, int rank, const Member* member) {
    if (!to) to.emplace();
    if (weight > to->weight) std::tie(to->weight, to->reason, to->message) = std::tuple(weight, reason, message);
    to->ranks[rank] = reason;
    if (member != nullptr) to->members.push_back(member);
  }
  std::optional<Fault> find_fault() const {
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
  // Before anything ran: a pod of this very attempt that has failed is a fault of it, one of an earlier is what it began with.
  std::optional<Fault> crashed_early() const {
    std::optional<Fault> out;
    for (const Member& one : members_) {
      if (one.made != attempt() || one.replica == nullptr || one.going) continue;
      else if (one.failed) add(out, 3, "PodFailed", fmt::format("Pod {}: {}", one.name(), ended_words(*one.pod)), one.rank, &one);
      else if (one.succeeded && launcher_ == Launcher::Agent) add(out, 2, "PodEnded", fmt::format("Pod {} has ended before its agent was told anything: does its command end in hyperpodrun?", one.name()), one.rank, &one);
    }
    return out;
  }
  // What an agent calls a fault, as the reason of a condition: letters, digits and '_'.
  static std::string reason_of(const std::string& text) {
    std::string out;
    for (const char c : text.substr(0, 128))
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') out += c;
    return out.empty() || std::isalpha(static_cast<unsigned char>(out[0])) == 0 ? "WorkerFault" : out;
  }

  // One write that says all: which attempt comes, how, and why.
  void restart(const Fault& fault) {
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
    const bool new_pods = whole || is_plain() || launcher_ != Launcher::Agent;
    status_.set("restartStatus", Json::object({{"currentEvalPeriod", window}, {"fullJobRestartCount", full}, {"restartCount", standard}}));
    status_.set("restartCount", attempt() + 1);
    status_.child("latestFaultyPodInstanceList").set("restartType", new_pods ? "JLR" : "PLR");
    set("Running", false, fault.reason, fault.message);
    set("Faulted", false, "", "");  // a fault while one is mended is another one, with a time of its own
    set("Faulted", true, fault.reason, fmt::format("{}. Restart {} is under way: {}", fault.message, attempt(), new_pods ? "with new pods" : "of the processes in their pods"));
    again(1s);
  }
  void tell_faulty(const Fault& fault) {
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

  // Another number of nodes is wished: no fault, and no restart that counts.
  bool is_of_other_size(const Member& one) const {
    if (launcher_ != Launcher::Agent) return number_of((*one.pod)["metadata"]["annotations"][kNodesOf].string(), job_.nodes) != job_.nodes;
    const std::string& said = one.agent.report.attempt;
    return one.answers() && said != word() && said.starts_with(word().substr(0, word().find('x') + 1));
  }
  bool rescaled() {
    if (!holds("Running") || std::ranges::none_of(ranks_, [&](const Member* one) { return one != nullptr && is_of_other_size(*one); })) return false;
    note(false, "Rescaling", fmt::format("The job goes on with {} nodes", job_.nodes));
    set("Running", false, "Rescaling", fmt::format("It goes on with {} nodes", job_.nodes));
    again(1s);
    return true;
  }

  // Running, and yet an agent is at something else than this attempt (a status that was put back): all begin anew, and nothing counts.
  bool astray() {
    if (!holds("Running") || std::ranges::none_of(ranks_, [&](const Member* one) { return one != nullptr && is_busy(*one) && !in_attempt(*one); })) return false;
    note(true, "Resync", "An agent is at another attempt than the job: its processes begin anew");
    set("Running", false, "Resync", "");
    again(1s);
    return true;
  }
  // Since when its processes are to begin anew; none: they have never begun, or are at it.
  std::optional<Instant> restless() const {
    if (condition("Running") == nullptr || holds("Running")) return std::nullopt;
    return std::max({holds("Faulted") ? since("Faulted") : since("Running"), parse_time(status_["startTime"].string()).value_or(Instant())});
  }
  // Those that were asked to write down where they are may take as long as was promised.
  seconds patience() const { return !holds("Faulted") && job_.elastic ? std::min(job_.elastic->write_down.value_or(0s), 86'400s) : 0s; }
  // Silence is judged only where somebody speaks: else it may be us who are cut off.
  bool anybody_or_one() const { return anybody_ || job_.nodes == 1; }
  // After a fault an agent may never come back: processes that cannot be ended, an image that hangs.
  std::optional<Fault> stuck_agents() const {
    const auto from = restless();
    if (launcher_ != Launcher::Agent || !anybody_or_one() || !from || now() - *from < kStuck + patience()) return std::nullopt;
    std::optional<Fault> out;
    for (const Member& one : members_)
      if (one.live() && one.running && one.rank >= 0 && one.replica != nullptr && one.age(now()) >= kStuck && !one.is(AgentState::Ready) && !in_attempt(one))
        add(out, 3, "AgentStuck", fmt::format("Pod {}: its agent {}", one.name(), one.answers() ? fmt::format("is {} for too long", name(one.agent.report.state)) : "does not answer"), one.rank, &one);
    return out;
  }

  // ---- elastic jobs: another size is a write of the target; what follows is a change of `replicas` like any other

  void resize(int nodes, bool faulty, const std::string& reason, const std::string& why) {
    note(false, reason, fmt::format("From {} to {} nodes: {}", job_.nodes, nodes, why));
    status_.set("elasticScalingStatus", Json::object({{"targetReplicas", Json::object({{job_.replicas.front().name, nodes}})}, {"lastUpdated", print_time(now())}, {"lastScalingTime", print_time(now())}, {"podsScaled", true}, {"isFaultyPodScaleDown", faulty}}));
    again(1s);
  }
  bool grows() {
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
  // Quota of its own that is taken back is no fault: it goes on with what is left, at once. Processes that lost the others by it may have failed already.
  bool taken_back(const Fault& fault) {
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
  // Not all come back, or come at all: it begins with those that are ready.
  bool shrinks() {
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

  // ---- towards an attempt that runs

  bool is_outdated(const Member& one) const {
    if (launcher_ == Launcher::Plain && (one.made < attempt() || is_of_other_size(one))) return true;
    if (launcher_ != Launcher::Agent && is_led_elsewhere(one)) return true;
    return one.made < attempt() && status_["latestFaultyPodInstanceList"]["restartType"].string() == "JLR" && holds("Faulted");
  }
  // Its processes look for the first one where it is not any more.
  bool is_led_elsewhere(const Member& one) const {
    const Member* const first = ranks_[0];
    const std::string& told = (*one.pod)["metadata"]["annotations"][kMasterOf].string();
    return !told.empty() && !one.ended() && first != nullptr && first != &one && first->live() && !first->address().empty() && first->address() != told;
  }
  // Nobody is to do again what it has done in this attempt.
  bool is_done(const Member& one) const { return one.succeeded && one.made == attempt() && launcher_ != Launcher::Agent; }
  void prepare() {
    for (const Member& one : members_)
      if (one.replica != nullptr && !one.going && !is_done(one) && (one.ended() || one.sick || is_outdated(one)) && names_.contains(one.name())) remove(one);
    for (const Member& one : members_)
      if (usable(one) || one.going) settle(one);
    give_ranks();
    make_missing();
    if (launcher_ == Launcher::Agent && !(holds("Faulted") && now() < since("Faulted") + back_off(status_))) start();
    again(kPollStarting);
  }
  void keep_spares() {
    give_ranks();  // none is free; what a spare has of an earlier place is taken off
    for (const Member& one : members_)
      if (one.rank < 0 && one.replica != nullptr && names_.contains(one.name()) && (one.sick || (one.ended() && one.age(now()) >= kAgentGrace))) remove(one);
    make_missing();
  }
  bool usable(const Member& one) const { return one.live() && !one.sick && !is_outdated(one) && names_.contains(one.name()) && !removed_.contains(one.name()); }

  // An agent that does something else than waiting for us is stopped, that of a pod that takes its time to go, too.
  void settle(const Member& one) {
    if (one.replica == nullptr) return;
    // It cannot be told, or does not do it, and its processes may be those of an attempt that the others have left.
    const bool idles = !one.answers() || one.is(AgentState::Stopping) || one.is(AgentState::Init);
    const auto from = restless();
    const bool was_there = from && one.age(now()) > now() - *from;
    if (idles && !one.going && launcher_ == Launcher::Agent && was_there && anybody_or_one() && one.running && now() - *from >= kAgentGrace + patience()) {
      note(true, "AgentSilent", fmt::format("Pod {} is made anew: its agent has not been ready for {} s", one.name(), kAgentGrace.count()));
      return remove(one);
    }
    if (!one.answers()) return;
    if (!is_busy(one) || in_attempt(one)) return;
    out_.orders.push_back({.pod = one.name(), .what = Agents::Order::What::Stop, .at = at(one), .stop = stop_of(one)});
  }
  StopOrder stop_of(const Member& one, bool gently = false) const {
    StopOrder out{.graceful = gently || (one.is(AgentState::Running) && is_of_other_size(one))};
    if (out.graceful && job_.elastic && job_.elastic->write_down) out.timeout_seconds = static_cast<int>(job_.elastic->write_down->count());
    return out;
  }
  // Those that are ready first; a pod keeps the number that its name has, if it is free.
  void give_ranks() {
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
  void make_missing() {
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
  // One that is not wanted any more: its processes may write down where they are.
  void let_go(const Member& one) {
    if (one.replica != nullptr && one.live() && one.is(AgentState::Stopping)) return;
    if (one.replica != nullptr && one.live() && one.is(AgentState::Running)) out_.orders.push_back({.pod = one.name(), .what = Agents::Order::What::Stop, .at = at(one), .stop = stop_of(one, true)});
    else remove(one);
  }
  bool is_stray(const std::string& name) const {
    return std::ranges::any_of(strays_, [&](const Member& one) { return one.name() == name; });
  }
  void start() {
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
  AgentAt at(const Member& one) const { return {one.address(), one.replica->agent_port}; }

  // ---- what is told

  void tell_state() {
    const bool pods_run = std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && !one->going && (one->running || one->succeeded) && !removed_.contains(one->name()); });
    if (pods_run) set("PodsRunning", true, "PodsRunning", holds("Running") ? "" : waits_for());
    else if (!holds("Running")) tell_false("PodsRunning", "PodsPending", waits_for());
    if (holds("Running")) return again(launcher_ == Launcher::Agent ? kPollRunning : kPollPlain);
    const bool started = launcher_ == Launcher::Agent ? std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && (in_attempt(*one) || one->succeeded); }) : pods_run && is_plain();
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

  // Who keeps it from running: the first by rank, and how many more.
  std::string waits_for() const {
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
  static std::string pending_words(const Json& pod) {
    for (const char* list : {"initContainerStatuses", "containerStatuses"})
      for (const Json& one : pod["status"][list].items())
        if (const std::string& reason = one["state"]["waiting"]["reason"].string(); !reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing") return reason;
    const std::string& node = pod["spec"]["nodeName"].string();
    return node.empty() ? "not on a node yet" : "Pending";
  }
  // As set(false), also of one that never held.
  void tell_false(const char* type, const std::string& reason, const std::string& message) {
    if (condition(type) == nullptr) set(type, true, reason, message);
    set(type, false, reason, message);
  }

  void refuse() {
    const Json* const before = condition("Created");
    if (before == nullptr || (*before)["message"].string() != job_.problem) note(true, "InvalidSpec", job_.problem);
    if (before == nullptr) set("Created", true, "", "");  // so that it can be told as false
    set("Created", false, "InvalidSpec", job_.problem);
  }

  // ---- ends

  void complete() {
    set("PodsRunning", false, "Completed", "");
    end(true, "Completed", fmt::format("All {} nodes have completed", job_.nodes));
  }
  void end(bool good, const std::string& reason, const std::string& message) {
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
  // A deadline has passed: true.
  bool late() {
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
  void suspend() {
    const bool first = !holds("Suspended");
    if (first && condition("Running") != nullptr) note(false, "Suspended", "Its pods are taken away until it goes on");
    set("Running", false, "Suspended", "");
    set("PodsRunning", false, "Suspended", "");
    set("Faulted", false, "Suspended", "");
    set("Suspended", true, "Suspended", job_.suspended ? "spec.runPolicy.suspend is set: its queue, or somebody, holds it" : "Its queue has not admitted it");
    for (const Member& one : members_) remove(one);
  }
  void wind_down() {
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
  void remove(const Member& one) {
    if (one.going || !removed_.insert(one.name()).second) return;
    out_.remove.push_back(kube::key_of(*one.pod));
    out_.uids[one.name()] = kube::uid_of(*one.pod);
  }

  const TrainingInput& in_;
  TrainingJob job_;
  Json status_;
  TrainingPlan out_;
  Launcher launcher_ = Launcher::Unknown;
  std::vector<Member> members_, strays_;
  std::vector<Member*> ranks_;  // by rank
  std::string word_;
  bool anybody_ = false;  // some agent answers: we are not cut off from all of them
  std::map<const Replica*, int> seats_;
  std::set<std::string> names_, removed_;
};

}  // namespace

std::string attempt_word(const Json& job, std::int64_t attempt) { return word_of(job, job["status"], attempt, read_training_job(job).nodes); }

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

TrainingPlan plan_training(const TrainingInput& input) { return Planner(input).plan(); }

}  // namespace fairlead::training
