// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/reboot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "base/encoding.h"
#include "slurm/plan/checks.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using namespace std::chrono_literals;

constexpr int kTries = 3;
constexpr std::size_t kNamedPods = 5;

std::string mark_of(const RebootInput& in) { return std::string(kCheckMark) + in.check + ": "; }
// The last mark counts: what stands before it is the prefix that a user chose.
bool ours(const RebootInput& in, const std::string& reason) {
  const auto at = reason.rfind(kCheckMark);
  return at != reason.npos && reason.ends_with(kThenReboot) && reason.compare(at, mark_of(in).size(), mark_of(in)) == 0;
}
bool failing(const SlurmNode& node) { return node.has("FAIL") || node.has("FAILING"); }
std::string id_of(const RebootInput& in, const std::string& worker, const std::string& reason) { return hex(sha256(in.uid + '/' + worker + '/' + reason)).substr(0, 16); }
std::string try_run(Instant now) { return fmt::format("9{:09}", std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count() % 1'000'000'000); }

class Planner {
 public:
  explicit Planner(const RebootInput& in) : in_(in), plan_{.memory = Json::object()} {}

  RebootPlan run() {
    for (const auto& worker : reboots_in_question(in_)) {
      worker_ = worker;
      entry_ = in_.memory[worker];
      const auto found = in_.view->nodes.find(worker);
      node_ = found == in_.view->nodes.end() ? nullptr : &found->second;
      const auto known = in_.machines.find(worker);
      machine_ = known == in_.machines.end() ? nullptr : &known->second;
      keep_ = true;
      one();
      if (keep_) plan_.memory.set(worker, entry_);
    }
    return std::move(plan_);
  }

 private:
  void one() {
    // What is remembered may be of an earlier drain.
    if (!entry_.is_object() || stage() == "New") {
      if (!in_.rules || !node_ || !node_->has("DRAIN") || failing(*node_) || !ours(in_, node_->reason)) return drop("");
      entry_ = Json::object({{"stage", "Empty"}, {"reason", node_->reason}, {"id", id_of(in_, worker_, node_->reason)}, {"since", print_time(in_.now)}});
      return look_again(2s);
    }
    const std::string now = stage();
    if (now == "Empty") return wait_until_empty();
    if (now == "Ask") return ask();
    if (now == "Wait") return wait_until_back();
    if (now == "Try") return try_it();
    if (now == "Settle") return settle();
    if (now == "GivenUp") {
      if (taken_over()) return;
      return note(entry_["words"].string(), 60s);
    }
    drop("");  // of another version: the drain stays
  }

  // ---- until it may be asked for
  void wait_until_empty() {
    if (taken_over()) return;
    const std::string why = hindrance();
    if (why.empty()) {
      entry_.set("stage", "Ask").set("machine", machine_->machine).set("boot", machine_->boot);
      return note(fmt::format("machine {} is asked to reboot", machine_->machine), 1s);
    }
    if (const auto since = parse_time(entry_["since"].string()); !since || in_.now - *since > in_.rules->drain)
      return give_up(fmt::format("was not rebooted within {} s: {}. It stays drained: look at it, then scontrol update nodename={} state=undrain", in_.rules->drain.count(), why, worker_));
    note("is not rebooted yet: " + why, 10s);
  }

  void ask() {
    if (machine_ && machine_->noted == id()) {
      entry_.set("stage", "Wait").set("asked", print_time(in_.now));
      return note("its machine reboots", 2s);
    }
    if (taken_over()) return;
    if (machine_ && machine_->unknown.empty() && machine_->asked == id()) return note(fmt::format("machine {} has not taken up the request yet", entry_["machine"].string()), 2s);
    // Each time anew: it may be long ago that the machine was seen to be empty.
    if (const std::string why = hindrance(); !why.empty() || machine_->machine != entry_["machine"].string()) {
      entry_.set("stage", "Empty");
      return note("is not rebooted yet: " + why, 2s);
    }
    plan_.steps.push_back(AskReboot{worker_, machine_->machine, id(), entry_["reason"].string()});
    note(fmt::format("machine {} is asked to reboot", machine_->machine), 2s);
  }

  // Why it must not be rebooted now; empty: nothing of anybody's ends by it.
  std::string hindrance() const {
    if (!in_.view->knows_trials) return "the head's pod was made by a version that cannot try a check on a drained worker: delete it when its cluster can do without it for a moment, and it is made anew";
    if (!machine_) return "nothing is known of its machine";
    if (!machine_->unknown.empty()) return machine_->unknown;
    if (!machine_->cannot.empty()) return machine_->cannot;
    if (!machine_->ready || machine_->boot.empty()) return fmt::format("node {} is not ready", machine_->machine);
    if (!in_.view->empty.contains(worker_)) return "jobs are on it";
    if (const auto& others = machine_->others; !others.empty())
      return fmt::format("other pods run on machine {}: {}{}", machine_->machine, fmt::join(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(std::min(others.size(), kNamedPods)), ", "),
                         others.size() > kNamedPods ? fmt::format(", {} more", others.size() - kNamedPods) : "");
    if (machine_->phase == "Rebooting" || (!machine_->asked.empty() && machine_->asked != machine_->noted && machine_->asked != id())) return fmt::format("machine {} is asked to reboot by somebody else", machine_->machine);
    int recent = 0;
    std::string last;
    for (const auto& [other, at] : machine_->reboots)
      if (other != id() && in_.now - at < 24h) ++recent, last = print_time(at);
    if (recent >= in_.rules->per_day) return fmt::format("machine {} was rebooted {} times in the last 24 hours, last at {}, and may be {} times (spec.extensions.reboot.perDay)", machine_->machine, recent, last, in_.rules->per_day);
    return "";
  }

  // ---- until it is back
  void wait_until_back() {
    if (node_ && !drained_so()) return drop(fmt::format("{}: somebody else took it over while its machine rebooted", worker_));
    const std::string machine = entry_["machine"].string();
    const auto asked = parse_time(entry_["asked"].string());
    const bool late = in_.rules && asked && in_.now - *asked > in_.rules->back;
    const auto still = [&](const std::string& why) {
      note(late ? fmt::format("machine {} is not back since {}: {}. Look at it", machine, entry_["asked"].string(), why) : fmt::format("machine {} reboots: {}", machine, why), late ? 30s : 3s);
    };
    if (!machine_ || !machine_->unknown.empty()) return still(machine_ ? machine_->unknown : "nothing is known of it");
    if (machine_->noted == id() && machine_->phase == "Refused") return give_up(fmt::format("was not rebooted: machine {}: {}", machine, machine_->message));
    const bool done = machine_->noted == id() ? machine_->phase == "Done" : std::any_of(machine_->reboots.begin(), machine_->reboots.end(), [&](const auto& one) { return one.first == id(); });
    if (!done) return still("it has not been started again");
    if (machine_->boot.empty() || machine_->boot == entry_["boot"].string()) return still("its node has not reported since");
    if (!machine_->ready) return still("its node is not ready");
    if (!machine_->worker_ready) return still("the worker's pod is not ready");
    if (!node_ || node_->has("DOWN") || node_->has("NOT_RESPONDING") || node_->has("UNKNOWN")) return still("Slurm has not heard from the worker");
    if (!in_.rules) return drop(fmt::format("{}: machine {} was rebooted; the check reboots no more, and the worker stays drained", worker_, machine));
    entry_.set("stage", "Try").set("tries", 0);
    next_run();
    note(fmt::format("machine {} was rebooted; the check is tried", machine), 1s);
  }

  // ---- the check, once more
  std::string reservation() const { return in_.pods ? "-" : "fairlead-check-" + id(); }
  bool reserved() const {
    const auto found = in_.view->trials.find(worker_);
    return found != in_.view->trials.end() && found->second == reservation();
  }
  const CheckJob* job_of_run() const {
    const auto found = std::find_if(in_.view->jobs.begin(), in_.view->jobs.end(), [&](const CheckJob& one) { return one.run == entry_["run"].string() && one.requested == std::vector{worker_}; });
    return found == in_.view->jobs.end() ? nullptr : &*found;
  }
  void next_run() {
    std::string run = try_run(in_.now);
    if (const std::string& before = entry_["run"].string(); is_try(before) && run <= before) run = std::to_string(std::strtoll(before.c_str(), nullptr, 10) + 1);
    entry_.set("run", run).set("tried", print_time(in_.now));
    entry_.erase("refused");
  }

  void try_it() {
    if (!in_.rules) return settle_as("off", "the check reboots no more");
    if (!node_) return note("Slurm does not know it just now", 10s);
    if (failing(*node_) || (node_->has("DRAIN") && !drained_so())) return settle_as("theirs", "somebody else took it out of service");
    if (!in_.pods && !node_->has("DRAIN") && !reserved()) return drop(fmt::format("{}: somebody else brought it back before the check had passed", worker_));
    if (in_.pods && !node_->has("DRAIN")) return drop(fmt::format("{}: somebody else brought it back before the check had passed", worker_));
    if (!in_.pods && node_->has("DRAIN")) {
      plan_.steps.push_back(BeginTrial{worker_, reservation(), entry_["reason"].string()});
      return note("is reserved, so that the check can be tried on it", 2s);
    }
    const std::string& run = entry_["run"].string();
    const CheckJob* job = job_of_run();
    if (!job) {
      if (!entry_["refused"].string().empty()) return no_result(entry_["refused"].string());
      // Undrained it must register anew; a job that is submitted before that waits for Slurm's next full round, a minute later.
      if (!in_.pods && (node_->has("NOT_RESPONDING") || node_->has("DOWN"))) return note("Slurm has not heard from it since the drain was lifted", 2s);
      plan_.steps.push_back(TryJob{worker_, run, in_.pods ? "" : reservation()});
      return note("the check is tried after the reboot", 3s);
    }
    const CheckResult result = verdict_of(*job);
    if (result == CheckResult::Going) {
      const auto tried = parse_time(entry_["tried"].string());
      if (job->state == "PENDING" && !in_.pods && tried && in_.now - *tried > in_.deadline) plan_.steps.push_back(CancelTry{job->id});
      return note("the check is tried after the reboot", 3s);
    }
    if (result == CheckResult::Good) return settle_as("passed", "job " + job->id);
    if (result == CheckResult::Bad) return settle_as("failed", fmt::format("job {}, exit status {}", job->id, job->exit_code));
    no_result(fmt::format("job {}, {}", job->id, job->why.empty() ? job->state : job->why));
  }
  void no_result(const std::string& words) {
    const auto tries = entry_["tries"].integer() + 1;
    entry_.set("tries", tries);
    if (tries >= kTries) return settle_as("unknown", words);
    next_run();
    note(fmt::format("the check had no result after the reboot ({}); it is tried again", words), 5s);
  }

  // ---- what follows
  void settle_as(const char* result, const std::string& words) {
    entry_.set("stage", "Settle").set("result", result).set("words", words.substr(0, 120));
    note("the check has ended after the reboot", 1s);
  }
  std::string next_reason() const {
    const std::string& result = entry_["result"].string();
    if (result == "passed" || result == "theirs") return "-";
    const std::string& reason = entry_["reason"].string();
    const auto at = reason.rfind(kCheckMark);
    const std::string begin = (at == reason.npos ? std::string() : reason.substr(0, at)) + mark_of(in_);
    if (result == "failed") return fmt::format("{}failed again after the reboot of {} ({})", begin, entry_["machine"].string(), entry_["words"].string());
    if (result == "off") return fmt::format("{}was not tried after the reboot of {}", begin, entry_["machine"].string());
    return fmt::format("{}had no result after the reboot of {} ({})", begin, entry_["machine"].string(), entry_["words"].string());
  }
  void settle() {
    if (reserved() || drained_so()) {
      // One that nobody waits for any more: Slurm deletes no reservation in which a job runs.
      if (const CheckJob* job = job_of_run(); job && !in_.pods && verdict_of(*job) == CheckResult::Going) plan_.steps.push_back(CancelTry{job->id});
      plan_.steps.push_back(SettleTrial{worker_, reservation(), entry_["reason"].string(), next_reason()});
      return note("the check has ended after the reboot", 2s);
    }
    const std::string& result = entry_["result"].string();
    const std::string what = fmt::format("machine {} was rebooted", entry_["machine"].string());
    if (result == "passed") return drop(fmt::format("{} serves again: {}, and the check has passed ({})", worker_, what, entry_["words"].string()));
    if (result == "theirs") return drop(fmt::format("{}: {}; somebody else took it out of service", worker_, what));
    drop(fmt::format("{} stays drained: {}, and the check {} ({}). Look at it, then scontrol update nodename={} state=undrain", worker_, what, result == "failed" ? "failed again" : result == "off" ? "was not tried" : "had no result", entry_["words"].string(), worker_));
  }

  // ---- common to them
  std::string stage() const { return entry_["stage"].string(); }
  std::string id() const { return entry_["id"].string(); }
  bool drained_so() const { return node_ && node_->has("DRAIN") && !failing(*node_) && node_->reason == entry_["reason"].string(); }
  // True, and the entry is gone: it is not ours any more.
  bool taken_over() {
    if (drained_so() && in_.rules) return false;
    if (drained_so() || !node_) drop("");
    else drop(node_->has("DRAIN") || failing(*node_) ? fmt::format("{}: somebody else took it over; its machine is not rebooted", worker_) : fmt::format("{}: somebody brought it back; its machine is not rebooted", worker_));
    return true;
  }
  void give_up(const std::string& words) {
    entry_.set("stage", "GivenUp").set("words", words.substr(0, 600));
    note(words, 60s);
  }
  void drop(const std::string& words) {
    keep_ = false;
    if (!words.empty()) plan_.ended.push_back(words);
  }
  void note(const std::string& words, std::chrono::nanoseconds again) {
    plan_.notes.push_back(worker_ + ": " + words);
    look_again(again);
  }
  void look_again(std::chrono::nanoseconds in) {
    if (!plan_.look_again || in < *plan_.look_again) plan_.look_again = in;
  }

  const RebootInput& in_;
  RebootPlan plan_;
  std::string worker_;
  Json entry_;
  const SlurmNode* node_ = nullptr;
  const RebootMachine* machine_ = nullptr;
  bool keep_ = true;
};

}  // namespace

RebootRules read_reboot_rules(const Json& spec, std::vector<std::string>& problems) {
  RebootRules out;
  const char* where = "spec.extensions.reboot";
  if (!spec.is_object()) {
    problems.push_back(fmt::format("{}: an object is wanted, e.g. {{perDay: 1}} or {{}}", where));
    return out;
  }
  const auto number = [&](const char* field, std::int64_t usual, std::int64_t least, std::int64_t most) {
    const std::int64_t value = spec[field].is_null() ? usual : spec[field].integer(-1);
    if (value >= least && value <= most) return value;
    problems.push_back(fmt::format("{}.{}: {} is not between {} and {}", where, field, kube::print_json(spec[field]), least, most));
    return usual;
  };
  out.drain = std::chrono::seconds(number("drainSeconds", 86'400, 1, 30 * 86'400));
  out.back = std::chrono::seconds(number("backSeconds", 1'800, 1, 86'400));
  out.per_day = static_cast<int>(number("perDay", 1, 1, 20));
  for (const auto& [name, value] : spec.members())
    if (name != "drainSeconds" && name != "backSeconds" && name != "perDay") problems.push_back(fmt::format("{}.{}: there is no such field; there are drainSeconds, backSeconds and perDay", where, name));
  return out;
}

std::vector<std::string> reboots_in_question(const RebootInput& input) {
  std::vector<std::string> out;
  for (const auto& [worker, what] : input.memory.members()) out.push_back(worker);
  if (input.rules && input.view)
    for (const auto& [worker, node] : input.view->nodes)
      if (node.has("DRAIN") && ours(input, node.reason) && !input.memory.has(worker)) out.push_back(worker);
  std::sort(out.begin(), out.end());
  return out;
}

RebootPlan plan_reboots(const RebootInput& input) { return Planner(input).run(); }

bool is_tried(const Json& entry) { return entry["stage"].string() == "Try" || entry["stage"].string() == "Settle"; }

bool is_try(const std::string& run) { return run.size() == 10 && run[0] == '9' && run.find_first_not_of("0123456789") == run.npos; }

}  // namespace fairlead::slurm
