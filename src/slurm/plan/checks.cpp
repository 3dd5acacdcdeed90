// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/check_fields.h"
#include "base/encoding.h"
#include "slurm/plan/check_jobs.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using namespace std::chrono_literals;

constexpr std::size_t kAtOnce = 50;       // jobs asked for in one step: each takes sbatch some tens of milliseconds
constexpr std::size_t kNamed = 20;        // of failures and the like in the status
constexpr std::size_t kWords = 300;       // of a reason
constexpr const char* kAnywhere = "-";

void add_to(Json& run, const char* list, Json what) {
  if (!run[list].is_array()) run.set(list, Json::array());
  if (run[list].items().size() < kNamed) run.child(list).push(std::move(what));
  else {
    if (!run["more"].is_object()) run.set("more", Json::object());
    run.child("more").set(list, run["more"][list].integer() + 1);
  }
}

std::string epoch(Instant at) { return std::to_string(std::chrono::floor<std::chrono::seconds>(at).time_since_epoch().count()); }

// In front of our own words; it must not look like the reason of a drain that something else of ours made.
std::string clean_prefix(const std::string& text) {
  std::string out;
  for (const char c : std::string(trim(text)).substr(0, 100))
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out += c;
  return out.starts_with("fairlead:") ? "" : out;
}

// Takes work now, or will when it has room.
bool in_service(const SlurmNode& node) {
  static const std::set<std::string, std::less<>> out = {"DOWN", "UNKNOWN", "ERROR", "FUTURE", "NOT_RESPONDING", "MAINT", "MAINTENANCE", "RESERVED", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP",
                                                         "POWER_DOWN", "POWER_UP", "INVALID_REG", "INVAL", "PERFCTRS"};
  return !node.drained() && std::none_of(node.state.begin(), node.state.end(), [](const std::string& flag) { return out.contains(flag); });
}
bool busy(const SlurmNode& node) { return node.state.empty() || node.state[0] == "ALLOCATED" || node.has("COMPLETING"); }

constexpr std::size_t kMostName = 120;  // of a check, in reasons
std::string name_of_check(const CheckRules& rules) { return rules.name.substr(0, kMostName); }

RebootInput reboot_input(const CheckInput& in, const Json& memory) {
  return {.check = name_of_check(in.rules), .uid = in.rules.uid, .rules = in.rules.reboot, .pods = in.rules.pods, .deadline = in.rules.deadline, .memory = memory["reboots"], .machines = in.reboots, .view = in.view ? &*in.view : nullptr, .now = in.now};
}

class Planner {
 public:
  explicit Planner(const CheckInput& in) : in_(in), rules_(in.rules), plan_{.object = in.object}, memory_(in.object["status"]["checks"]) {
    if (!memory_.is_object()) memory_ = Json::object();
  }

  bool needs_nodes() const { return !rules_.pods || rules_.each_worker || !memory_["nodes"].members().empty() || !memory_["reboots"].members().empty(); }

  bool due_or_going() {
    keep_base();
    // While failures are remembered, somebody may take the node out and bring it back: seen, it begins anew.
    return memory_["run"].is_object() || due_run() || !memory_["nodes"].members().empty() || !memory_["reboots"].members().empty();
  }

  CheckPlan end_trials() {
    Json tried = Json::object();
    for (const auto& [worker, entry] : memory_["reboots"].members())
      if (is_tried(entry)) tried.set(worker, entry);
    memory_.set("reboots", std::move(tried));
    RebootInput input = reboot_input(in_, memory_);
    input.rules.reset();
    reboot(input);
    say_reboots();
    return finish();
  }

  CheckPlan run() {
    keep_base();
    say_ignored();
    if (!rules_.problems.empty()) {
      say("Scheduled", false, "Invalid", fmt::format("{}", fmt::join(rules_.problems, "; ")));
      return finish();
    }
    if (!in_.waits_for.empty()) {
      say("Scheduled", false, in_.waits_reason, in_.waits_for);
      look_again(15s);
      return finish();
    }
    if (const bool needed = due_or_going(); needed && !in_.view) {
      say("Scheduled", false, "SlurmSilent", "Slurm does not answer: nothing is run, and nothing concluded");
      look_again(10s);
      return finish();
    }
    if (in_.view) {
      const std::string before = memory_["run"]["id"].string();
      if (!memory_["run"].is_object()) begin();
      // Not those of a run whose results are not written down yet.
      remove_old(before, memory_["run"]["id"].string());
      if (memory_["run"].is_object()) go_on();
      reboot(reboot_input(in_, memory_));
      forget_the_drained();
      drain();
    }
    say_schedule();
    say_reboots();
    return finish();
  }

 private:
  // A schedule that was switched off for a while does not make up for what it missed.
  void keep_base() {
    if (!rules_.schedule) memory_.erase("base");
    else if (memory_["base"].string().empty()) memory_.set("base", print_time(in_.now));
  }
  std::optional<Instant> next_run() const {
    const auto base = parse_time(memory_["base"].string());
    return rules_.schedule && base ? next_after(*rules_.schedule, *base) : std::nullopt;
  }
  // By the time at which it is due, so that two operators in a row mean the same run.
  std::optional<std::string> due_run() const {
    if (rules_.after_creation && !memory_["first"].boolean()) return in_.unmet.empty() ? std::optional(epoch(rules_.created)) : std::nullopt;
    const auto next = next_run();
    return next && *next <= in_.now && in_.unmet.empty() ? std::optional(epoch(*next)) : std::nullopt;
  }

  void begin() {
    const auto id = due_run();
    if (!id) return;
    std::vector<std::string> nodes = rules_.each_worker ? in_.workers : std::vector<std::string>{kAnywhere};
    // Not the same ones each time.
    const std::size_t most = rules_.most_jobs > 0 ? std::min(kMostTargets, static_cast<std::size_t>(rules_.most_jobs)) : kMostTargets;
    if (rules_.each_worker && most < nodes.size()) {
      std::sort(nodes.begin(), nodes.end(), [&](const auto& a, const auto& b) { return std::pair(sha256(*id + a), a) < std::pair(sha256(*id + b), b); });
      nodes.resize(most);
      std::sort(nodes.begin(), nodes.end());
    }
    Json waiting = Json::array();
    for (const auto& node : nodes) waiting.push(node);
    memory_.set("run", Json::object({{"id", *id}, {"since", print_time(in_.now)}, {"waiting", std::move(waiting)}, {"running", Json::object()}, {"good", 0}, {"left", Json::array()}, {"failed", Json::array()}, {"unknown", Json::array()}, {"cancelled", Json::array()}}));
    memory_.set("first", true);
    if (rules_.schedule) memory_.set("base", print_time(in_.now));
  }

  const CheckJob* job_of(const std::string& node) const {
    const auto found = jobs_.find(node);
    return found == jobs_.end() ? nullptr : found->second;
  }

  void go_on() {
    run_ = memory_["run"];
    for (const auto& job : in_.view->jobs)
      if (job.run == run_["id"].string() && job.requested.size() <= 1) jobs_.emplace(job.requested.empty() ? kAnywhere : job.requested[0], &job);
    SubmitJobs submit{run_["id"].string(), {}};
    Json running = Json::object(), waiting = Json::array();
    for (const auto& [node, since] : run_["running"].members()) {
      const CheckJob* job = job_of(node);
      if (!job) note("unknown", node, "", rules_.pods ? "its Job is gone" : "Slurm knows its job no more");
      else if (!ended(node, *job)) {
        running.set(node, since);
        const auto at = parse_time(since.string());
        if (job->state == "PENDING" && at && in_.now - *at > rules_.deadline) plan_.steps.push_back(CancelJob{job->id});
      }
    }
    // The next run takes them up where this one could not.
    const auto next = next_run();
    const bool over = next && *next <= in_.now;
    for (const Json& name : run_["waiting"].items()) {
      const std::string& node = name.string();
      if (const CheckJob* job = job_of(node)) {
        if (!ended(node, *job)) running.set(node, print_time(in_.now));
        continue;
      }
      if (node != kAnywhere) {
        const auto found = in_.view->nodes.find(node);
        if (found == in_.view->nodes.end() || !in_service(found->second) || over || (rules_.pods && !in_.machines.contains(node))) {
          add("left", node);
          continue;
        }
        if (busy(found->second)) {
          waiting.push(node);
          continue;
        }
      }
      if (submit.nodes.size() == kAtOnce) waiting.push(node);
      else {
        submit.nodes.push_back(node);
        running.set(node, print_time(in_.now));
      }
    }
    const bool going = !running.members().empty();
    if (going || !waiting.items().empty()) look_again(submit.nodes.size() == kAtOnce ? 1s : going ? 5s : 15s);
    run_.set("running", std::move(running)).set("waiting", std::move(waiting));
    if (!submit.nodes.empty()) plan_.steps.push_back(std::move(submit));
    sum_up();
  }

  // The result of one that has ended is taken down. False: it has not.
  bool ended(const std::string& wanted, const CheckJob& job) {
    const CheckResult result = verdict_of(job);
    if (result == CheckResult::Going) return false;
    const std::string node = wanted != kAnywhere ? wanted : job.nodes.size() == 1 ? job.nodes[0] : "";
    const std::string where = node.empty() ? fmt::format("{}", fmt::join(job.nodes, ",")) : node;
    if (result == CheckResult::Good) run_.set("good", run_["good"].integer() + 1);
    if (result == CheckResult::Bad) note("failed", where, job.id, fmt::format("exit status {}", job.exit_code));
    if (result == CheckResult::Unknown && job.state == "CANCELLED") add("cancelled", job.id);
    if (result == CheckResult::Unknown) note("unknown", where, job.id, !job.why.empty() ? job.why : job.state == "FAILED" ? fmt::format("its script was not run to its end (exit status {}, signal {})", job.exit_code, job.signal) : job.state);
    // Of several nodes nobody knows which one it was.
    if (node.empty() || result == CheckResult::Unknown) return true;
    remember(node, result, job.id);
    const bool bad = result == CheckResult::Bad;
    if (bad ? rules_.comment : rules_.comment_success) {
      const std::string& prefix = bad ? rules_.comment_prefix : rules_.success_prefix;
      plan_.steps.push_back(CommentNode{node, fmt::format("{}{}{}{} {} in job {} at {}", prefix, prefix.empty() ? "" : " ", kCheckMark, name_of_check(rules_), bad ? "failed" : "passed", job.id, print_time(in_.now))});
    }
    return true;
  }
  void note(const char* list, const std::string& node, const std::string& job, const std::string& why) {
    add(list, Json::object({{"node", node}, {"jobID", job}, {"reason", why.substr(0, kWords)}}));
  }
  // The first ones are named, the others counted.
  void add(const char* list, Json what) { add_to(run_, list, std::move(what)); }
  void remember(const std::string& node, CheckResult result, const std::string& job) {
    if (!memory_["nodes"].is_object()) memory_.set("nodes", Json::object());
    std::string history = (result == CheckResult::Bad ? "b" : "g") + memory_["nodes"][node]["last"].string();
    history.resize(std::min<std::size_t>(history.size(), static_cast<std::size_t>(rules_.of)));
    Json& nodes = memory_.child("nodes");
    if (history.find('b') == history.npos) nodes.erase(node);
    else if (nodes.has(node) || nodes.members().size() < kMostTargets) nodes.set(node, Json::object({{"last", history}, {"job", result == CheckResult::Bad ? job : memory_["nodes"][node]["job"].string()}}));
  }

  // The machines of workers that this check has drained.
  void reboot(const RebootInput& input) {
    RebootPlan plan = plan_reboots(input);
    for (auto& step : plan.steps) {
      if (auto* job = std::get_if<TryJob>(&step)) plan_.steps.push_back(SubmitJobs{job->run, {job->node}, job->reservation});
      else if (auto* cancel = std::get_if<CancelTry>(&step)) plan_.steps.push_back(CancelJob{cancel->id});
      else if (auto* ask = std::get_if<AskReboot>(&step)) plan_.steps.push_back(*ask);
      else if (auto* begin = std::get_if<BeginTrial>(&step)) plan_.steps.push_back(*begin);
      else if (auto* end = std::get_if<SettleTrial>(&step)) plan_.steps.push_back(*end);
    }
    memory_.set("reboots", std::move(plan.memory));
    reboots_ = std::move(plan.notes);
    plan_.told = std::move(plan.ended);
    if (plan.look_again) look_again(*plan.look_again);
    if (plan_.told.empty()) return;
    Json ended = memory_["rebooted"].is_array() ? memory_["rebooted"] : Json::array();
    for (const auto& text : plan_.told) ended.push(Json::object({{"at", print_time(in_.now)}, {"what", text}}));
    Json last = Json::array();
    for (std::size_t i = ended.items().size() - std::min(kNamed, ended.items().size()); i < ended.items().size(); ++i) last.push(ended.items()[i]);
    memory_.set("rebooted", std::move(last));
  }
  void say_reboots() {
    if (const std::size_t named = std::min(reboots_.size(), kNamed); named > 0)
      return say("Rebooting", true, "UnderWay", fmt::format("{}{}", fmt::join(reboots_.begin(), reboots_.begin() + static_cast<std::ptrdiff_t>(named), "; "), reboots_.size() > named ? fmt::format("; {} more", reboots_.size() - named) : ""));
    const auto& ended = memory_["rebooted"].items();
    if (!rules_.reboot && ended.empty()) return;
    say("Rebooting", false, "None", ended.empty() ? std::string("no machine is rebooted for this check") : fmt::format("the last one, at {}: {}", ended.back()["at"].string(), ended.back()["what"].string()));
  }

  // Out of service, by us or by a person: whoever brings it back vouches for it, and it begins anew. One that is gone, too.
  void forget_the_drained() {
    if (!memory_["nodes"].is_object()) return;
    Json kept = Json::object();
    for (const auto& [node, what] : memory_["nodes"].members()) {
      const auto found = in_.view->nodes.find(node);
      if (found != in_.view->nodes.end() && !found->second.drained()) kept.set(node, what);
    }
    memory_.set("nodes", std::move(kept));
    if (!memory_["nodes"].members().empty()) look_again(60s);
  }
  std::vector<std::string> deserving() const {
    std::vector<std::string> out;
    if (!rules_.drain) return out;
    for (const auto& [node, what] : memory_["nodes"].members()) {
      const std::string& last = what["last"].string();
      if (last.starts_with('b') && std::count(last.begin(), last.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(last.size(), static_cast<std::size_t>(rules_.of))), 'b') >= rules_.failures) out.push_back(node);
    }
    return out;
  }
  void drain() {
    std::size_t used = 0;
    for (const auto& [name, node] : in_.view->nodes) used += (node.has("DRAIN") && node.reason.find(kCheckMark) != node.reason.npos) || in_.view->trials.contains(name);
    const std::size_t most = rules_.budget_nodes > 0 ? static_cast<std::size_t>(rules_.budget_nodes) : std::max<std::size_t>(1, in_.workers.size() * static_cast<std::size_t>(rules_.budget_percent) / 100);
    for (const auto& node : deserving()) {
      // Only workers of this cluster, and what is down already is somebody else's business.
      const auto found = in_.view->nodes.find(node);
      if (found == in_.view->nodes.end() || found->second.has("DOWN") || !std::binary_search(in_.workers.begin(), in_.workers.end(), node)) continue;
      if (used >= most) {
        held_.push_back(node);
        continue;
      }
      ++used;
      const Json& what = memory_["nodes"][node];
      const auto bad = std::count(what["last"].string().begin(), what["last"].string().end(), 'b');
      plan_.steps.push_back(DrainNode{node, fmt::format("{}{}{}{}: {} of its last {} results failed, the last one in job {}{}", rules_.drain_prefix, rules_.drain_prefix.empty() ? "" : " ", kCheckMark, name_of_check(rules_), bad, what["last"].string().size(), what["job"].string(), rules_.reboot ? kThenReboot : ""),
                                      static_cast<int>(most)});
      if (rules_.reboot) {
        if (!memory_["reboots"].is_object()) memory_.set("reboots", Json::object());
        memory_.child("reboots").set(node, Json::object({{"stage", "New"}}));
      }
      look_again(3s);
    }
    if (!held_.empty()) look_again(30s);
    held_at_ = most;
  }

  // status.slurmJobsStatus as the source operator writes it, and what people ask.
  void sum_up() {
    const bool over = run_["running"].members().empty() && run_["waiting"].items().empty();
    const auto& failed = run_["failed"].items();
    const auto& unknown = run_["unknown"].items();
    const std::string word = !over ? "InProgress" : !failed.empty() ? "Failed" : !unknown.empty() || run_["good"].integer() == 0 ? "Error" : "Complete";
    if (rules_.pods) sum_up_pods(word);
    else sum_up_jobs(word);
    if (!over) {
      memory_.set("run", run_);
      return;
    }
    memory_.erase("run");
    const auto names = [this](const char* list, auto name) {
      std::vector<std::string> out;
      for (const Json& one : run_[list].items()) out.push_back(name(one));
      if (const auto more = counted(list) - run_[list].items().size(); more > 0) out.push_back(fmt::format("{} more", more));
      return fmt::format("{}", fmt::join(out, ", "));
    };
    const auto told = [](const Json& one) {
      const std::string& node = one["node"].string();
      const std::string job = one["jobID"].string().empty() ? "" : "job " + one["jobID"].string() + ", ";
      return node.empty() ? job + one["reason"].string() : fmt::format("{} ({}{})", node, job, one["reason"].string());
    };
    std::string text = fmt::format("{} passed", run_["good"].integer());
    if (!failed.empty()) text += fmt::format(", {} failed: {}", counted("failed"), names("failed", told));
    if (!unknown.empty()) text += fmt::format("; {} without a result: {}", counted("unknown"), names("unknown", told));
    if (counted("left") > 0) text += fmt::format("; not checked, since they were busy or out of service: {}", names("left", [](const Json& one) { return one.string(); }));
    kube::set_condition(plan_.object, {"Passed", !failed.empty() ? "False" : word == "Complete" ? "True" : "Unknown", word, text}, in_.now);
  }
  std::size_t counted(const char* list) const { return run_[list].items().size() + static_cast<std::size_t>(std::max<std::int64_t>(0, run_["more"][list].integer())); }
  void sum_up_pods(const std::string& word) {
    Json& status = plan_.object.child("status");
    Json jobs = status["k8sJobsStatus"].is_object() ? status["k8sJobsStatus"] : Json::object();
    const std::string name = rules_.name + "-" + run_["id"].string();
    if (jobs["lastJobStatus"].string() != word || jobs["lastJobName"].string() != name) jobs.set("lastTransitionTime", print_time(in_.now));
    jobs.set("lastJobName", name).set("lastJobStatus", word).set("lastJobScheduleTime", run_["since"]);
    if (word == "Complete") jobs.set("lastJobSuccessfulTime", print_time(in_.now));
    status.set("k8sJobsStatus", std::move(jobs));
  }
  void sum_up_jobs(const std::string& word) {
    Json& status = plan_.object.child("status");
    Json jobs = status["slurmJobsStatus"].is_object() ? status["slurmJobsStatus"] : Json::object();
    if (jobs["lastRunStatus"].string() != word || jobs["lastRunId"] != run_["id"]) jobs.set("lastTransitionTime", print_time(in_.now));
    jobs.set("lastRunId", run_["id"]).set("lastRunName", rules_.name).set("lastRunStatus", word).set("lastRunSubmitTime", run_["since"]);
    const auto list = [](const std::vector<Json>& from) {
      Json out = Json::array();
      for (const Json& one : from) out.push(Json::object({{"jobID", one["jobID"]}, {"reason", fmt::format("{}: {}", one["node"].string(), one["reason"].string())}}));
      return out;
    };
    jobs.set("lastRunFailJobsAndReasons", list(run_["failed"].items())).set("lastRunErrorJobsAndReasons", list(run_["unknown"].items())).set("lastRunCancelledJobs", run_["cancelled"]);
    status.set("slurmJobsStatus", std::move(jobs));
  }

  // Kubernetes Jobs of earlier runs, the oldest first; those of this run and of the one that has just ended stay.
  void remove_old(const std::string& before, const std::string& now) {
    if (!rules_.pods) return;
    std::vector<const CheckJob*> good, bad;
    for (const auto& job : in_.view->jobs)
      if (const CheckResult result = verdict_of(job); job.run != before && job.run != now && !(is_try(job.run) && !memory_["reboots"].members().empty()) && result != CheckResult::Going) (result == CheckResult::Good ? good : bad).push_back(&job);
    for (auto& [list, keep] : {std::pair(&good, rules_.keep_good), std::pair(&bad, rules_.keep_bad)}) {
      std::sort(list->begin(), list->end(), [](const auto* a, const auto* b) { return std::tuple(a->run.size(), a->run, a->id) > std::tuple(b->run.size(), b->run, b->id); });
      for (std::size_t i = keep; i < list->size() && i < keep + kAtOnce; ++i) plan_.steps.push_back(RemoveJob{(*list)[i]->id, (*list)[i]->uid});
    }
  }

  void say_schedule() {
    const auto next = next_run();
    std::string budget;
    if (const std::size_t named = std::min(held_.size(), kNamed); named > 0)
      budget = fmt::format("; {}{} failed and stay in service, for {} may be out of service for checks at once (spec.extensions.maxDrained)", fmt::join(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(named), ", "),
                           held_.size() > named ? fmt::format(", {} more", held_.size() - named) : "", held_at_);
    if (memory_["run"].is_object()) {
      const Json& run = memory_["run"];
      say("Scheduled", true, "Running", fmt::format("{} jobs are running, {} workers wait until they have room{}", run["running"].members().size(), run["waiting"].items().size(), budget));
      return;
    }
    if (!in_.unmet.empty() && ((rules_.after_creation && !memory_["first"].boolean()) || (next && *next <= in_.now))) {
      say("Scheduled", false, "WaitsForOthers", fmt::format("waits until these checks have passed: {}{}", fmt::join(in_.unmet, ", "), budget));
      return look_again(15s);
    }
    if (!rules_.schedule) return say("Scheduled", false, "Suspended", fmt::format("spec.suspend is true: it does not run again{}", budget));
    if (!next) return say("Scheduled", false, "Never", fmt::format("spec.schedule names no day that there is{}", budget));
    say("Scheduled", true, "Waiting", fmt::format("runs next at {}{}", print_time(*next), budget));
    look_again(std::clamp<std::chrono::nanoseconds>(*next - in_.now, 1s, 1h));
  }

  void say_ignored() {
    if (rules_.ignored.empty()) say("FieldsIgnored", false, "AllInEffect", "every given field has its effect");
    else say("FieldsIgnored", true, "NotInThisVersion", fmt::format("without effect in this version: {}", fmt::join(rules_.ignored, ", ")));
  }
  void say(const char* type, bool yes, const char* reason, std::string message) { kube::set_condition(plan_.object, {type, yes ? "True" : "False", reason, std::move(message)}, in_.now); }
  void look_again(std::chrono::nanoseconds in) {
    if (!plan_.look_again || in < *plan_.look_again) plan_.look_again = in;
  }
  CheckPlan finish() {
    Json& status = plan_.object.child("status");
    for (const char* list : {"nodes", "reboots"})
      if (memory_[list].is_object() && memory_[list].members().empty()) memory_.erase(list);
    status.set("checks", memory_);
    status.set("observedGeneration", in_.object["metadata"]["generation"].integer());
    return std::move(plan_);
  }

  const CheckInput& in_;
  const CheckRules& rules_;
  CheckPlan plan_;
  Json memory_;  // status.checks
  Json run_;     // the one that goes on
  std::map<std::string, const CheckJob*, std::less<>> jobs_;  // its jobs, by what they insist on
  std::vector<std::string> held_, reboots_;
  std::size_t held_at_ = 0;
};

}  // namespace

CheckRules read_check(const Json& object) {
  const Json& spec = object["spec"];
  CheckRules out{.name = kube::name_of(object), .uid = kube::uid_of(object), .cluster = spec["slurmClusterRefName"].string()};
  if (const auto created = parse_time(object["metadata"]["creationTimestamp"].string())) out.created = *created;
  if (!spec["suspend"].boolean(true)) {
    auto cron = read_cron(spec["schedule"].string_or("0 0 1 1 *"));
    if (cron) out.schedule = *cron;
    else out.problems.push_back("spec.schedule: " + cron.error().message);
  }
  out.after_creation = spec["runAfterCreation"].boolean(true);
  out.pods = spec["checkType"].string_or("k8sJob") != "slurmJob";
  const Json& job = spec["slurmJobSpec"];
  out.each_worker = out.pods ? spec["extensions"]["eachWorker"].boolean() : job["eachWorkerJobs"].boolean();
  out.most_jobs = std::max<std::int64_t>(0, out.pods ? spec["extensions"]["maxJobs"].integer() : job["maxNumberOfJobs"].integer());
  if (out.pods)
    for (auto& line : job_problems(spec)) out.problems.push_back(std::move(line));
  const auto keep = [&](const char* field, std::int64_t usual) { return static_cast<std::size_t>(std::clamp<std::int64_t>(spec[field].integer(usual), 0, 1000)); };
  out.keep_good = keep("successfulJobsHistoryLimit", 3);
  out.keep_bad = keep("failedJobsHistoryLimit", 16);
  const std::int64_t deadline = spec["activeDeadlineSeconds"].integer(1800);
  if (deadline < 1 || deadline > 7 * 86'400) out.problems.push_back(fmt::format("spec.activeDeadlineSeconds: {} is not between 1 and 604800", deadline));
  else out.deadline = std::chrono::seconds(deadline);
  const Json& own = spec["extensions"];
  const std::int64_t failures = own["failures"].integer(1), of = own["of"].integer(failures);
  if (failures < 1 || of < failures || of > 20) out.problems.push_back(fmt::format("spec.extensions: {} failures of the last {} results; 1 <= failures <= of <= 20 is possible", failures, of));
  else out.failures = static_cast<int>(failures), out.of = static_cast<int>(of);
  if (const Json& most = own["maxDrained"]; !most.is_null()) {
    const bool percent = most.is_string() && most.string().ends_with('%');
    const std::string text = most.is_string() ? most.string().substr(0, most.string().size() - (percent ? 1 : 0)) : std::to_string(most.integer(-1));
    const bool number = !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos;
    const int value = number ? std::stoi(text) : 0;
    if (value < 1 || (percent && value > 100)) out.problems.push_back(fmt::format("spec.extensions.maxDrained: {} is neither a number of workers from 1 nor a percentage such as \"10%\"", kube::print_json(most)));
    else (percent ? out.budget_percent : out.budget_nodes) = value;
  }
  const Json& bad = spec["failureReactions"];
  const Json& good = spec["successReactions"];
  out.drain = bad["drainSlurmNode"].is_object();
  out.comment = bad["commentSlurmNode"].is_object();
  out.comment_success = good["commentSlurmNode"].is_object();
  out.drain_prefix = clean_prefix(bad["drainSlurmNode"]["drainReasonPrefix"].string());
  out.comment_prefix = clean_prefix(bad["commentSlurmNode"]["commentPrefix"].string());
  out.success_prefix = clean_prefix(good["commentSlurmNode"]["commentPrefix"].string());
  if (!own["reboot"].is_null()) {
    out.reboot = read_reboot_rules(own["reboot"], out.problems);
    if (!out.drain) out.problems.push_back("spec.extensions.reboot: a machine is rebooted after its worker was drained: give spec.failureReactions.drainSlurmNode, too");
    if (out.name.size() > kMostName) out.problems.push_back(fmt::format("metadata.name: of a check that reboots it is at most {} characters long", kMostName));
    // Reasons are compared as Slurm shows them, where anything else becomes '?'.
    for (char& c : out.drain_prefix)
      if (static_cast<unsigned char>(c) > 0x7e) c = '?';
  }
  for (const Json& name : spec["dependsOn"].items()) out.depends_on.push_back(name.string());
  out.ignored = api::ignored_of_check(object);
  return out;
}

std::string describe(const CheckStep& step) {
  return std::visit(
      [](const auto& s) -> std::string {
        using S = std::decay_t<decltype(s)>;
        if constexpr (std::is_same_v<S, SubmitJobs>) return fmt::format("run {} on {}{}{}", s.run, fmt::join(s.nodes, ","), s.reservation.empty() ? "" : " in ", s.reservation);
        if constexpr (std::is_same_v<S, CancelJob>) return fmt::format("cancel {}", s.id);
        if constexpr (std::is_same_v<S, RemoveJob>) return fmt::format("remove {}", s.name);
        if constexpr (std::is_same_v<S, DrainNode>) return fmt::format("drain {} ({} at most): {}", s.node, s.most, s.reason);
        if constexpr (std::is_same_v<S, CommentNode>) return fmt::format("comment {}: {}", s.node, s.text);
        if constexpr (std::is_same_v<S, AskReboot>) return fmt::format("reboot machine {} of {} (request {})", s.machine, s.worker, s.id);
        if constexpr (std::is_same_v<S, BeginTrial>) return fmt::format("try {} in {}", s.node, s.reservation);
        if constexpr (std::is_same_v<S, SettleTrial>) return fmt::format("settle {} in {}: {}", s.node, s.reservation, s.next);
      },
      step);
}

bool needs_look(const CheckInput& input) { return input.rules.problems.empty() && input.waits_for.empty() && Planner(input).due_or_going(); }
bool needs_nodes(const CheckInput& input) { return Planner(input).needs_nodes(); }
std::vector<std::string> reboot_workers(const CheckInput& input) { return reboots_in_question(reboot_input(input, input.object["status"]["checks"])); }
CheckPlan plan_check(const CheckInput& input) { return Planner(input).run(); }
CheckPlan plan_end_of_trials(const CheckInput& input) { return Planner(input).end_trials(); }

bool is_trying(const Json& object) {
  const auto& entries = object["status"]["checks"]["reboots"].members();
  return std::any_of(entries.begin(), entries.end(), [](const auto& entry) { return is_tried(entry.second); });
}

void note_refused(Json& object, const std::string& node, const std::string& words, const std::string& of) {
  if (is_try(of)) {
    if (object["status"]["checks"]["reboots"][node]["run"].string() == of) object.child("status").child("checks").child("reboots").child(node).set("refused", words.substr(0, kWords));
    return;
  }
  Json& run = object.child("status").child("checks").child("run");
  if (!run["running"].is_object() || !run["running"].has(node)) return;
  run.child("running").erase(node);
  const bool pods = object["spec"]["checkType"].string_or("k8sJob") != "slurmJob";
  add_to(run, "unknown", Json::object({{"node", node == kAnywhere ? "" : node}, {"jobID", ""}, {"reason", ((pods ? "Kubernetes refused the Job: " : "Slurm refused the job: ") + words).substr(0, kWords)}}));
}

CheckResult verdict_of(const CheckJob& job) {
  static const std::set<std::string, std::less<>> ended = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"};
  if (job.state == "COMPLETED") return CheckResult::Good;
  // 126 and 127: the shell found nothing to run. Above 128: a signal.
  if (job.state == "FAILED") return job.signal == 0 && job.exit_code >= 1 && job.exit_code <= 125 ? CheckResult::Bad : CheckResult::Unknown;
  return ended.contains(job.state) ? CheckResult::Unknown : CheckResult::Going;
}

}  // namespace fairlead::slurm
