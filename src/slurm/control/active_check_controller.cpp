// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/active_check_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/network_ways.h"
#include "api/node_set.h"
#include "base/encoding.h"
#include "base/log.h"
#include "kube/object.h"

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
  return kube::Access().may({"update"}, api::kActiveChecks, "status", space_).may({"get", "create"}, resources::pods, "exec", space_);
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
  if (spec["checkType"].string_or("k8sJob") != "slurmJob") waits("NotInEffect", "checkType k8sJob is not run in this version: use slurmJob");
  seen.script = spec["slurmJobSpec"]["sbatchScript"].string();
  if (const std::string& named = spec["slurmJobSpec"]["sbatchScriptRefName"].string(); seen.script.empty() && !named.empty()) {
    const auto map = caches_->of(resources::config_maps).get({space, named});
    if (!map) waits("NothingToRun", fmt::format("there is no ConfigMap {} (spec.slurmJobSpec.sbatchScriptRefName)", named));
    else if ((*map)["data"].members().size() != 1) waits("NothingToRun", fmt::format("ConfigMap {} has {} keys; one with the script is wanted", named, (*map)["data"].members().size()));
    else seen.script = (*map)["data"].members().begin()->second.string();
  }
  if (seen.script.empty()) waits("NothingToRun", "spec.slurmJobSpec names no script: give sbatchScript or sbatchScriptRefName");
  if (!cluster) return seen;
  caches_->of(resources::pods).each(space, [&](const Json& pod) {
    if (kube::deleting(pod)) return;
    if (belongs(pod, kube::uid_of(*cluster), "worker")) in.workers.push_back(kube::name_of(pod));
    // Slurm's tools on any head reach the slurmctld that serves.
    if (belongs(pod, kube::uid_of(*cluster), "controller") && kube::condition_is_true(pod, "Ready") && (seen.head.name.empty() || kube::name_of(pod) < seen.head.name)) seen.head = kube::key_of(pod);
  });
  std::sort(in.workers.begin(), in.workers.end());
  if (seen.head.name.empty()) waits("NoHead", fmt::format("no head of cluster {} is ready", in.rules.cluster));
  for (const auto& name : in.rules.depends_on) {
    const auto other = caches_->of(api::kActiveChecks).get({space, name});
    if (!other || (*other)["status"]["slurmJobsStatus"]["lastRunStatus"].string() != "Complete") in.unmet.push_back(name);
  }
  return seen;
}

std::optional<CheckView> ActiveCheckController::look(const kube::ObjectKey& head, const std::string& uid, CheckInput& in) {
  auto ran = api_.exec(head, "slurmctld", companion({"check-look", uid}), "", 25s);
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

Result<void> ActiveCheckController::submit(const SubmitJobs& jobs, const Seen& seen, Json& object) {
  const auto minutes = (seen.input.rules.deadline + 59s) / 60s;
  std::vector<std::string> words = {"check-run", seen.input.rules.uid, jobs.run, std::to_string(minutes)};
  words.insert(words.end(), jobs.nodes.begin(), jobs.nodes.end());
  auto ran = api_.exec(seen.head, "slurmctld", companion(std::move(words)), seen.script, 120s);
  if (!ran) return std::unexpected(std::move(ran.error()));
  const auto refused = [&](const std::string& node, const std::string& why) { note_refused(object, node, why.substr(0, 300), clock_.now()); };
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
  if (const auto* jobs = std::get_if<SubmitJobs>(&step)) return submit(*jobs, seen, object);
  std::vector<std::string> words;
  if (const auto* cancel = std::get_if<CancelJob>(&step)) words = {"check-cancel", seen.input.rules.uid, cancel->id};
  if (const auto* drain = std::get_if<DrainNode>(&step)) words = {"check-drain", drain->node, std::to_string(drain->most), drain->reason};
  if (const auto* comment = std::get_if<CommentNode>(&step)) words = {"check-comment", comment->node, comment->text};
  std::unique_lock<std::mutex> lock;
  if (std::holds_alternative<DrainNode>(step)) lock = std::unique_lock(draining_);
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

Result<kube::Next> ActiveCheckController::reconcile(const kube::ObjectKey& key) {
  const auto check = caches_->of(api::kActiveChecks).get(key);
  if (!check || kube::deleting(*check)) return kube::Next{};
  Seen seen = observe(*check);
  if (needs_look(seen.input)) seen.input.view = look(seen.head, seen.input.rules.uid, seen.input);
  CheckPlan plan = plan_check(seen.input);
  for (const auto& step : plan.steps) {
    if (auto done = apply(step, seen, plan.object); !done) return pass(std::move(done.error()), describe(step));
    log_info("step of a check", {{"check", key.text()}, {"step", describe(step)}});
  }
  if (plan.object != *check)
    if (auto done = api_.update_status(api::kActiveChecks, plan.object); !done) return pass(std::move(done.error()), "write status of ActiveCheck " + key.text());
  return kube::Next{plan.look_again};
}

}  // namespace fairlead::slurm
