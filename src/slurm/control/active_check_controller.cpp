// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/machine.h"
#include "api/network_ways.h"
#include "api/node_set.h"
#include "base/encoding.h"
#include "base/log.h"
#include "kube/object.h"
#include "slurm/plan/check_jobs.h"

namespace fairlead::slurm {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

bool belongs(const Json& pod, const std::string& cluster_uid, const char* role) {
  const Json* owner = kube::controller_of(pod);
  return owner && (*owner)["uid"].string() == cluster_uid && pod["metadata"]["labels"][api::kSlurmRoleLabel].string() == role;
}

std::vector<std::string> companion(std::vector<std::string> words) {
  words.insert(words.begin(), "/opt/fairlead/bin/fairlead-slurm");
  return words;
}

}  // namespace

std::vector<kube::Controller::Source> ActiveCheckController::sources() const {
  const auto checks_of_namespace = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    if (!caches_ || (change.before && change.after)) return keys;  // only whether it is there counts; the rest is looked at in time
    for (const Json& check : caches_->of(api::kActiveChecks).list(kube::space_of(change.object()))) keys.push_back(kube::key_of(check));
    return keys;
  };
  // Pods and scripts are read when a check looks at them; no change of theirs is worth a look of its own.
  const auto nothing = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };
  return {{api::kActiveChecks, space_, kube::key_itself}, {resources::slurm_clusters, space_, checks_of_namespace}, {resources::pods, space_, nothing}, {resources::config_maps, space_, nothing}};
}

std::optional<kube::Access> ActiveCheckController::access() const {
  kube::Access access;
  // Of machines: those of drained workers that are to be rebooted. They are nobody's namespace.
  if (space_.empty()) access.may({"get"}, resources::nodes).may({"get", "update"}, resources::machines);
  return access
      .may({"update"}, api::kActiveChecks, "", space_)  // kTrialFinalizer
      .may({"update"}, api::kActiveChecks, "status", space_)
      .may({"create"}, resources::events, "", space_)
      .may({"update"}, api::kActiveChecks, "finalizers", space_)  // of Jobs that it owns, where owners are checked
      .may({"get", "create"}, resources::pods, "exec", space_)
      .may({"list"}, resources::pods, "", space_)
      .may({"create", "delete", "get", "list"}, kJobs, "", space_);
}

ActiveCheckController::Seen ActiveCheckController::observe(const Json& check) const {
  Seen seen{.input = {.rules = read_check(check), .object = check, .now = clock_.now()}};
  CheckInput& in = seen.input;
  const std::string space = kube::space_of(check);
  const auto waits = [&](const char* reason, std::string why) {
    if (!in.waits_for.empty()) return;
    in.waits_reason = reason;
    in.waits_for = std::move(why);
  };
  const Json& spec = check["spec"];
  const auto cluster = caches_->of(resources::slurm_clusters).get({space, in.rules.cluster});
  if (!cluster) waits("NoCluster", fmt::format("there is no SlurmCluster {} in this namespace: make it, or name another one in spec.slurmClusterRefName", in.rules.cluster));
  else if (kube::deleting(*cluster) || (*cluster)["spec"]["pause"].boolean()) waits("ClusterPaused", fmt::format("cluster {} is paused or being deleted", in.rules.cluster));
  const bool pods = in.rules.pods;
  if (!pods) seen.script = spec["slurmJobSpec"]["sbatchScript"].string();
  const char* ref = pods ? "spec.k8sJobSpec.scriptRefName" : "spec.slurmJobSpec.sbatchScriptRefName";
  if (const std::string& named = pods ? spec["k8sJobSpec"]["scriptRefName"].string() : spec["slurmJobSpec"]["sbatchScriptRefName"].string(); seen.script.empty() && !named.empty()) {
    const auto map = caches_->of(resources::config_maps).get({space, named});
    if (!map) waits("NothingToRun", fmt::format("there is no ConfigMap {} ({})", named, ref));
    else if ((*map)["data"].members().size() != 1) waits("NothingToRun", fmt::format("ConfigMap {} has {} keys; one with the script is wanted", named, (*map)["data"].members().size()));
    else seen.script = pods ? (*map)["data"].members().begin()->first : (*map)["data"].members().begin()->second.string();
  }
  if (seen.script.empty() && !pods) waits("NothingToRun", "spec.slurmJobSpec names no script: give sbatchScript or sbatchScriptRefName");
  if (!cluster) return seen;
  caches_->of(resources::pods).each(space, [&](const Json& pod) {
    if (kube::deleting(pod)) return;
    if (belongs(pod, kube::uid_of(*cluster), "worker")) {
      in.workers.push_back(kube::name_of(pod));
      if (const std::string& machine = pod["spec"]["nodeName"].string(); pods && !machine.empty()) in.machines[kube::name_of(pod)] = machine;
    }
    // Slurm's tools on any head reach the slurmctld that serves.
    if (belongs(pod, kube::uid_of(*cluster), "controller") && kube::condition_is_true(pod, "Ready") && (seen.head.name.empty() || kube::name_of(pod) < seen.head.name)) seen.head = kube::key_of(pod);
  });
  std::sort(in.workers.begin(), in.workers.end());
  if (seen.head.name.empty() && needs_nodes(in)) waits("NoHead", fmt::format("no head of cluster {} is ready", in.rules.cluster));
  for (const auto& name : in.rules.depends_on) {
    const auto other = caches_->of(api::kActiveChecks).get({space, name});
    const bool of_slurm = other && (*other)["spec"]["checkType"].string() == "slurmJob";
    if (!other || (of_slurm ? (*other)["status"]["slurmJobsStatus"]["lastRunStatus"] : (*other)["status"]["k8sJobsStatus"]["lastJobStatus"]).string() != "Complete") in.unmet.push_back(name);
  }
  return seen;
}

std::optional<CheckView> ActiveCheckController::look(const kube::ObjectKey& head, const std::string& uid, CheckInput& in) {
  std::vector<std::string> words = {"check-look", uid};
  for (auto& worker : reboot_workers(in)) words.push_back(std::move(worker));
  auto ran = api_.exec(head, "slurmctld", companion(std::move(words)), "", 25s);
  std::string why = !ran ? ran.error().message : ran->exit_code != 0 ? std::string(trim(ran->err)) : "";
  // Its usage: the companion comes with the pod, and this one was made before there were checks.
  if (ran && ran->exit_code == 2) {
    in.waits_reason = "OldHead";
    in.waits_for = fmt::format("pod {} was made by a version that runs no checks: delete it when its cluster can do without it for a moment, and it is made anew", head.name);
  }
  if (why.empty()) {
    auto view = read_check_view(ran->out);
    if (view) return std::move(*view);
    why = view.error().message;
  }
  log_info("what Slurm knows of a check is unknown", {{"head", head.text()}, {"reason", why}});
  return std::nullopt;
}

// The Jobs first: what a pod says is then at least as new as what its Job says. Asked of the API itself, for a cache may not have what the last round made.
std::optional<CheckView> ActiveCheckController::look_at_jobs(const Seen& seen, CheckInput& in) {
  CheckView view;
  if (needs_nodes(in)) {
    auto slurm = look(seen.head, in.rules.uid, in);
    if (!slurm) return std::nullopt;
    view.nodes = std::move(slurm->nodes);
  }
  const kube::ListOptions own{.label_selector = fmt::format("{}={}", kCheckLabel, in.rules.uid)};
  const std::string space = kube::space_of(in.object);
  auto jobs = api_.list(kJobs, space, own);
  auto pods = jobs ? api_.list(resources::pods, space, own) : Result<kube::List>(kube::List{});
  if (!jobs || !pods) {
    in.waits_reason = "JobsUnknown";
    in.waits_for = "what became of its Jobs is unknown: " + (jobs ? pods : jobs).error().message;
    log_warn("what became of a check's Jobs is unknown", {{"check", kube::key_of(in.object).text()}, {"reason", (jobs ? pods : jobs).error().message}});
    return std::nullopt;
  }
  view.jobs = read_check_jobs(in.rules, jobs->items, pods->items);
  return view;
}

RebootMachine ActiveCheckController::look_at_machine(const std::string& space, const std::string& worker) {
  RebootMachine out;
  const auto unknown = [&](const std::string& why) {
    out.unknown = why;
    return out;
  };
  if (!space_.empty()) {
    out.cannot = fmt::format("this server looks after namespace {} alone and has no right to machines (--watch-namespace): reboot it yourself", space_);
    return out;
  }
  const auto pod = caches_->of(resources::pods).get({space, worker});
  if (!pod) return unknown("it has no pod just now");
  out.machine = (*pod)["spec"]["nodeName"].string();
  if (out.machine.empty()) return unknown("its pod has no machine just now");
  out.worker_ready = !kube::deleting(*pod) && kube::condition_is_true(*pod, "Ready");
  auto node = api_.get(resources::nodes, {"", out.machine});
  if (!node) return unknown(fmt::format("node {}: {}", out.machine, node.error().message));
  out.ready = kube::condition_is_true(*node, "Ready");
  out.boot = (*node)["status"]["nodeInfo"]["bootID"].string();
  auto machine = api_.get(resources::machines, {"", out.machine});
  if (!machine && machine.error().code == Code::NotFound) {
    out.cannot = fmt::format("node {} is not a machine that Fairlead brought up, so it reboots only by your hand: do so, see that the check would pass, then scontrol update nodename={} state=undrain", out.machine, worker);
    return out;
  }
  if (!machine) return unknown(fmt::format("machine {}: {}", out.machine, machine.error().message));
  const api::Machine read = api::read_machine(*machine);
  out.asked = read.spec.reboot;
  out.noted = read.reboot.id;
  out.phase = read.reboot.phase;
  out.message = read.reboot.message;
  for (const Json& one : (*machine)["status"]["reboots"].items())
    if (const auto at = parse_time(one["at"].string())) out.reboots.emplace_back(one["id"].string(), *at);
  // What is of the machine itself (a DaemonSet's, the kubelet's own) goes down with it as ever; what has ended has nothing to lose.
  caches_->of(resources::pods).each("", [&](const Json& other) {
    const std::string& phase = other["status"]["phase"].string();
    if (other["spec"]["nodeName"].string() != out.machine || kube::key_of(other) == kube::key_of(*pod) || phase == "Succeeded" || phase == "Failed") return;
    if (const Json* owner = kube::controller_of(other); owner && ((*owner)["kind"].string() == "DaemonSet" || (*owner)["kind"].string() == "Node")) return;
    out.others.push_back(kube::key_of(other).text());
  });
  std::sort(out.others.begin(), out.others.end());
  return out;
}

// The request is written on the state of the machine that was read last; who asks twice for the same asks once.
Result<void> ActiveCheckController::ask_reboot(const AskReboot& ask, const Json& check) {
  auto machine = api_.get(resources::machines, {"", ask.machine});
  if (!machine) return std::unexpected(std::move(machine.error()));
  const api::Machine now = api::read_machine(*machine);
  if (now.spec.reboot == ask.id || now.reboot.id == ask.id) return {};
  // Somebody else's that is not done: the next look says so.
  if (!now.spec.reboot.empty() && now.spec.reboot != now.reboot.id) return {};
  machine->child("spec").set("reboot", Json::object({{"id", ask.id}, {"by", fmt::format("ActiveCheck {} for {}", kube::key_of(check).text(), ask.worker)}, {"why", ask.reason}}));
  auto written = api_.update(resources::machines, *machine);
  if (!written) return std::unexpected(std::move(written.error()));
  tell(check, false, "RebootRequested", fmt::format("machine {} of {} is asked to reboot (request {})", ask.machine, ask.worker, ask.id));
  return {};
}

void ActiveCheckController::tell(const Json& check, bool warning, const char* reason, const std::string& message) {
  const std::string now = print_time(clock_.now());
  // The same is told once: by this name.
  const Json event = Json::object({{"apiVersion", "v1"},
                                   {"kind", "Event"},
                                   {"metadata", Json::object({{"name", fmt::format("{}.{}", kube::name_of(check), hex(sha256(kube::uid_of(check) + reason + message)).substr(0, 16))}, {"namespace", kube::space_of(check)}})},
                                   {"involvedObject", Json::object({{"apiVersion", "slurm.nebius.ai/v1alpha1"}, {"kind", "ActiveCheck"}, {"name", kube::name_of(check)}, {"namespace", kube::space_of(check)}, {"uid", kube::uid_of(check)}})},
                                   {"reason", reason},
                                   {"message", message.substr(0, 1000)},
                                   {"type", warning ? "Warning" : "Normal"},
                                   {"source", Json::object({{"component", "fairlead-server"}})},
                                   {"firstTimestamp", now},
                                   {"lastTimestamp", now},
                                   {"count", 1}});
  if (auto made = api_.create(resources::events, event); !made && made.error().code != Code::Exists) log_debug("event was not written", {{"reason", made.error().message}});
}

Result<void> ActiveCheckController::create_jobs(const SubmitJobs& jobs, const Seen& seen, Json& object) {
  const CheckInput& in = seen.input;
  for (const auto& worker : jobs.nodes) {
    const auto machine = in.machines.find(worker);
    const Json wanted = check_job(object, in.rules, jobs.run, worker, machine == in.machines.end() ? "" : machine->second, seen.script);
    auto made = api_.create(kJobs, wanted);
    if (made) continue;
    if (made.error().code == Code::Exists) {
      // By a round whose status was not written. Somebody else's of this name is none of ours.
      auto there = api_.get(kJobs, kube::key_of(wanted));
      if (!there) return std::unexpected(std::move(there.error()));
      const Json* owner = kube::controller_of(*there);
      if (owner && (*owner)["uid"].string() == in.rules.uid) continue;
      note_refused(object, worker, fmt::format("a Job {} of somebody else is there", kube::name_of(wanted)), jobs.run);
      continue;
    }
    // A quota, a pod security level, a field that is none: no result, told.
    if (made.error().code != Code::Invalid && made.error().code != Code::Forbidden) return std::unexpected(std::move(made.error()));
    note_refused(object, worker, made.error().message, jobs.run);
  }
  return {};
}

Result<void> ActiveCheckController::submit(const SubmitJobs& jobs, const Seen& seen, Json& object) {
  const auto minutes = (seen.input.rules.deadline + 59s) / 60s;
  std::vector<std::string> words = {"check-run", seen.input.rules.uid, jobs.run, std::to_string(minutes)};
  if (!jobs.reservation.empty()) words.insert(words.end(), {"--reservation", jobs.reservation});
  words.insert(words.end(), jobs.nodes.begin(), jobs.nodes.end());
  auto ran = api_.exec(seen.head, "slurmctld", companion(std::move(words)), seen.script, 120s);
  if (!ran) return std::unexpected(std::move(ran.error()));
  const auto refused = [&](const std::string& node, const std::string& why) { note_refused(object, node, why.substr(0, 300), jobs.run); };
  if (ran->exit_code == 1 || ran->exit_code == 2 || ran->exit_code == 3) {
    for (const auto& node : jobs.nodes) refused(node, std::string(trim(ran->err)));
    return {};
  }
  if (ran->exit_code != 0) return fail(Code::Unavailable, std::string(trim(ran->err)));
  auto answer = kube::parse_json(ran->out);
  if (!answer) return pass(std::move(answer.error()), "what became of the jobs is not understood");
  for (const Json& job : (*answer)["jobs"].items())
    if (job["id"].string().empty()) refused(job["node"].string(), job["error"].string());
  return {};
}

Result<void> ActiveCheckController::apply(const CheckStep& step, const Seen& seen, Json& object) {
  if (const auto* jobs = std::get_if<SubmitJobs>(&step)) return seen.input.rules.pods ? create_jobs(*jobs, seen, object) : submit(*jobs, seen, object);
  if (const auto* old = std::get_if<RemoveJob>(&step)) {
    auto gone = api_.remove(kJobs, {kube::space_of(object), old->name}, {.grace_seconds = {}, .uid = old->uid, .resource_version = {}, .propagation = kube::DeleteOptions::Propagation::Background});
    return gone || gone.error().code == Code::NotFound || gone.error().code == Code::Conflict ? Result<void>() : std::move(gone);
  }
  if (const auto* ask = std::get_if<AskReboot>(&step)) return ask_reboot(*ask, object);
  std::vector<std::string> words;
  if (const auto* begin = std::get_if<BeginTrial>(&step)) words = {"check-try", begin->node, begin->reservation, begin->reason};
  if (const auto* end = std::get_if<SettleTrial>(&step)) words = {"check-settle", end->node, end->reservation, end->reason, end->next};
  if (const auto* cancel = std::get_if<CancelJob>(&step)) words = {"check-cancel", seen.input.rules.uid, cancel->id};
  if (const auto* drain = std::get_if<DrainNode>(&step)) words = {"check-drain", drain->node, std::to_string(drain->most), drain->reason};
  if (const auto* comment = std::get_if<CommentNode>(&step)) words = {"check-comment", comment->node, comment->text};
  std::unique_lock<std::mutex> lock;
  if (std::holds_alternative<DrainNode>(step) || std::holds_alternative<BeginTrial>(step) || std::holds_alternative<SettleTrial>(step)) lock = std::unique_lock(draining_);
  auto ran = api_.exec(seen.head, "slurmctld", companion(std::move(words)), "", 60s);
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (ran->exit_code == 0) return {};
  const std::string why(trim(ran->err));
  // 2: what it was told is nothing that it takes; it would not take it the next time.
  if (ran->exit_code < 1 || ran->exit_code > 3) return fail(Code::Unavailable, why);
  // Somebody else's comment, a node that is down by now, no more room in the budget: the next look decides again.
  log_info("step of a check refused", {{"check", kube::key_of(object).text()}, {"step", describe(step)}, {"reason", why}});
  return {};
}

Result<kube::Next> ActiveCheckController::hold(Json check, bool held) {
  if (held) kube::add_finalizer(check, kTrialFinalizer);
  else kube::remove_finalizer(check, kTrialFinalizer);
  if (auto done = api_.update(api::kActiveChecks, check); !done && !(done.error().code == Code::NotFound && !held)) return pass(std::move(done.error()), fmt::format("{} ActiveCheck {} while it is tried", held ? "hold" : "let go of", kube::key_of(check).text()));
  return kube::Next{1s};
}

// Deleted while a worker is tried. Without its cluster there is nothing to be put in order.
Result<kube::Next> ActiveCheckController::end_of(const Json& check) {
  const kube::ObjectKey key = kube::key_of(check);
  const auto cluster = caches_->of(resources::slurm_clusters).get({key.space, read_check(check).cluster});
  if (!cluster || kube::deleting(*cluster) || !is_trying(check)) return hold(check, false);
  Seen seen = observe(check);
  if (seen.head.name.empty()) {
    log_info("a deleted check waits for a head, to end what it tries", {{"check", key.text()}});
    return kube::Next{10s};
  }
  seen.input.view = look(seen.head, seen.input.rules.uid, seen.input);
  if (!seen.input.view) return kube::Next{10s};
  CheckPlan plan = plan_end_of_trials(seen.input);
  if (auto done = carry_out(plan, seen, check); !done) return std::unexpected(std::move(done.error()));
  return kube::Next{plan.look_again ? *plan.look_again : std::chrono::nanoseconds(1s)};
}

// The steps, then what is remembered of them.
Result<void> ActiveCheckController::carry_out(CheckPlan& plan, const Seen& seen, const Json& check) {
  const kube::ObjectKey key = kube::key_of(check);
  for (const auto& step : plan.steps) {
    if (auto done = apply(step, seen, plan.object); !done) return pass(std::move(done.error()), describe(step));
    log_info("step of a check", {{"check", key.text()}, {"step", describe(step)}});
  }
  if (plan.object != check)
    if (auto done = api_.update_status(api::kActiveChecks, plan.object); !done) return pass(std::move(done.error()), "write status of ActiveCheck " + key.text());
  for (const auto& text : plan.told) {
    log_info("reboot for a check", {{"check", key.text()}, {"what", text}});
    tell(check, text.find("serves again") == text.npos, "RebootEnded", text);
  }
  return {};
}

Result<kube::Next> ActiveCheckController::reconcile(const kube::ObjectKey& key) {
  const auto check = caches_->of(api::kActiveChecks).get(key);
  if (!check) return kube::Next{};
  const bool held = kube::has_finalizer(*check, kTrialFinalizer);
  if (kube::deleting(*check)) return held ? end_of(*check) : kube::Next{};
  if (held != is_trying(*check)) return hold(*check, !held);
  Seen seen = observe(*check);
  if (needs_look(seen.input)) seen.input.view = seen.input.rules.pods ? look_at_jobs(seen, seen.input) : look(seen.head, seen.input.rules.uid, seen.input);
  if (seen.input.view)
    for (const auto& worker : reboot_workers(seen.input)) seen.input.reboots[worker] = look_at_machine(key.space, worker);
  CheckPlan plan = plan_check(seen.input);
  if (auto done = carry_out(plan, seen, *check); !done) return std::unexpected(std::move(done.error()));
  return kube::Next{plan.look_again};
}

}  // namespace fairlead::slurm
