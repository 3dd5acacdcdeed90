// SPDX-License-Identifier: Apache-2.0
// The inside of plan_training, shared by its parts: what is observed (training_members.cpp), what is a fault and what size an elastic job has (training_faults.cpp), how an attempt begins (training_start.cpp); what is decided first, told and ended is in training_plan.cpp.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "training/plan/training_plan.h"

namespace fairlead::training::planner {

using kube::Json;
using namespace std::chrono_literals;
using std::chrono::seconds;

inline constexpr seconds kPollStarting{1}, kPollRunning{5}, kPollPlain{15};
inline constexpr seconds kStuck{300};         // after a fault: so long an agent may need to be ready again
inline constexpr seconds kAgentGrace{60};     // so long an entry point may need before we believe that no agent comes, and an agent that is asked to stop to answer again
inline constexpr const char* kNoAgent = "RunningWithoutAgent";  // reason of Running where nobody has told us who starts the processes
inline constexpr seconds kShutdownGrace{60};  // so long agents of a job that has ended may need to leave by themselves
// In this order they stand in the status: of those that hold, `hyp list` shows the last.
inline constexpr std::array<const char*, 7> kConditions{"Created", "Suspended", "PodsRunning", "Running", "Faulted", "Completed", "Failed"};

std::int64_t number_of(const std::string& text, std::int64_t otherwise);
// Before new pods are made after a fault: nothing, 5 s, 10 s, ... 5 min. By the restarts of this window, so that what failed once a day waits for nothing.
seconds back_off(const Json& status);
// With the moment at which it last began, or was given another size: after it was held, processes that take their time to end are those of another run.
std::string word_of(const Json& job, const Json& status, std::int64_t attempt, int nodes);

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

  TrainingPlan plan();

 private:
  void decide();

  // ---- the status

  Instant now() const { return in_.now; }
  std::int64_t attempt() const { return std::clamp<std::int64_t>(status_["restartCount"].integer(), 0, 1'000'000'000); }
  const Json* condition(const char* type) const;
  bool holds(const char* type) const {
    const Json* const found = condition(type);
    return found != nullptr && (*found)["status"].string() == "True";
  }
  Instant since(const char* type) const {
    const Json* const found = condition(type);
    return found == nullptr ? now() : parse_time((*found)["lastTransitionTime"].string()).value_or(now());
  }
  // A condition that never held is not told as False.
  void set(const char* type, bool value, const std::string& reason, const std::string& message);
  void note(bool warning, std::string reason, std::string message) { out_.notes.push_back({warning, std::move(reason), std::move(message)}); }
  void again(seconds after) {
    after = std::max(after, 1s);
    if (!out_.again || after < *out_.again) out_.again = after;
  }
  void again_at(Instant when) { again(std::chrono::ceil<seconds>(when - now())); }

  // ---- what there is

  int spares() const;
  bool late_ranks() const { return launcher_ == Launcher::Agent && (spares() > 0 || job_.elastic); }
  int seats_of(const Replica& one) const { return launcher_ == Launcher::Plain ? one.count : one.seats; }
  const std::string& word() const { return word_; }

  void gather();
  static bool ended_by_itself(const Json& pod);
  bool taken(const Member& one) const { return one.rank < one.replica->first_rank || one.rank >= one.replica->first_rank + one.replica->count || ranks_[static_cast<std::size_t>(one.rank)] != nullptr; }
  Member read_member(const Json& pod) const;

  static bool is_busy(const Member& one) { return one.is(AgentState::Running) || one.is(AgentState::Faulted) || one.is(AgentState::Completed); }
  bool in_attempt(const Member& one) const { return is_busy(one) && one.agent.report.attempt == word(); }
  bool is_plain() const;
  // Processes of this attempt may be there. Of those that begin by themselves: once all are there, since the first one waits for the others.
  bool begun() const;
  // An agent stays when its processes have completed: one that has ended was ended.
  bool is_complete(const Member& one) const { return launcher_ == Launcher::Agent ? !one.going && one.is(AgentState::Completed) && one.agent.report.attempt == word() : one.succeeded; }
  bool completed() const {
    return std::ranges::all_of(ranks_, [&](const Member* one) { return one != nullptr && is_complete(*one); });
  }

  // ---- faults

  static void add(std::optional<Fault>& to, int weight, const std::string& reason, const std::string& message, int rank, const Member* member);
  std::optional<Fault> find_fault() const;
  // Before anything ran: a pod of this very attempt that has failed is a fault of it, one of an earlier is what it began with.
  std::optional<Fault> crashed_early() const;
  // What an agent calls a fault, as the reason of a condition: letters, digits and '_'.
  static std::string reason_of(const std::string& text);

  // One write that says all: which attempt comes, how, and why.
  void restart(const Fault& fault);
  void tell_faulty(const Fault& fault);

  // Another number of nodes is wished: no fault, and no restart that counts.
  bool is_of_other_size(const Member& one) const;
  bool rescaled();

  // Running, and yet an agent is at something else than this attempt (a status that was put back): all begin anew, and nothing counts.
  bool astray();
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
  std::optional<Fault> stuck_agents() const;

  // ---- elastic jobs: another size is a write of the target; what follows is a change of `replicas` like any other

  void resize(int nodes, bool faulty, const std::string& reason, const std::string& why);
  bool grows();
  // Quota of its own that is taken back is no fault: it goes on with what is left, at once. Processes that lost the others by it may have failed already.
  bool taken_back(const Fault& fault);
  // Not all come back, or come at all: it begins with those that are ready.
  bool shrinks();

  // ---- towards an attempt that runs

  bool is_outdated(const Member& one) const;
  // Its processes look for the first one where it is not any more.
  bool is_led_elsewhere(const Member& one) const;
  // Nobody is to do again what it has done in this attempt.
  bool is_done(const Member& one) const { return one.succeeded && one.made == attempt() && launcher_ != Launcher::Agent; }
  void prepare();
  void keep_spares();
  bool usable(const Member& one) const { return one.live() && !one.sick && !is_outdated(one) && names_.contains(one.name()) && !removed_.contains(one.name()); }

  // An agent that does something else than waiting for us is stopped, that of a pod that takes its time to go, too.
  void settle(const Member& one);
  StopOrder stop_of(const Member& one, bool gently = false) const;
  // Those that are ready first; a pod keeps the number that its name has, if it is free.
  void give_ranks();
  void make_missing();
  // One that is not wanted any more: its processes may write down where they are.
  void let_go(const Member& one);
  bool is_stray(const std::string& name) const {
    return std::ranges::any_of(strays_, [&](const Member& one) { return one.name() == name; });
  }
  void start();
  AgentAt at(const Member& one) const { return {one.address(), one.replica->agent_port}; }

  // ---- what is told

  void tell_state();

  // Who keeps it from running: the first by rank, and how many more.
  std::string waits_for() const;
  static std::string pending_words(const Json& pod);
  // As set(false), also of one that never held.
  void tell_false(const char* type, const std::string& reason, const std::string& message) {
    if (condition(type) == nullptr) set(type, true, reason, message);
    set(type, false, reason, message);
  }

  void refuse();

  // ---- ends

  void complete() {
    set("PodsRunning", false, "Completed", "");
    end(true, "Completed", fmt::format("All {} nodes have completed", job_.nodes));
  }
  void end(bool good, const std::string& reason, const std::string& message);
  // A deadline has passed: true.
  bool late();
  void suspend();
  void wind_down();
  void remove(const Member& one);

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

}  // namespace fairlead::training::planner
