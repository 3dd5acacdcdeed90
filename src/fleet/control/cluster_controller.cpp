// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/cluster_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/network_ways.h"
#include "api/node_set.h"
#include "base/log.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

kube::Access cluster_access() {
  return kube::Access()
      .may({"get", "update"}, api::kClusters)
      .may({"update"}, api::kClusters, "status")
      .may({"get", "create", "update", "delete"}, api::kInstances)
      .may({"update"}, api::kInstances, "status")
      .may({"get", "create", "update", "delete"}, resources::machines)
      .may({"get", "update"}, resources::nodes)
      .may({"get", "create", "delete"}, resources::namespaces)
      .may({"list", "create", "delete"}, resources::claims)
      .may({"create", "delete"}, api::kClusterEvents)
      .may({"list", "create", "update"}, resources::config_maps)
      .may({"get", "create"}, resources::secrets)
      .may({"create", "update", "delete"}, resources::slurm_clusters)
      .may({"create", "update", "delete"}, api::kNodeSets)
      .may({"list", "create", "update", "delete"}, resources::pods)
      .may({"create"}, resources::pods, "eviction");
}

std::vector<kube::ObjectKey> ClusterController::in_space(const std::string& space) const {
  std::vector<kube::ObjectKey> out;
  if (!space.starts_with("cluster-")) return out;
  caches_->of(api::kClusters).each("", [&](const Json& cluster) {
    if (api::space_of_cluster(kube::name_of(cluster)) == space) out.push_back(kube::key_of(cluster));
  });
  return out;
}

// What decides whether a spare machine is taken.
static Json as_spare(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  return Json::array({node["metadata"]["labels"], node["spec"]["unschedulable"], node["spec"]["taints"], node["status"]["capacity"], ready == nullptr ? Json() : (*ready)["status"]});
}

std::vector<kube::Controller::Source> ClusterController::sources() const {
  const auto of_label = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
      if (object != nullptr)
        if (const std::string& cluster = (*object)["metadata"]["labels"][api::kClusterLabel].string(); !cluster.empty()) out.push_back({"", cluster});
    return out;
  };
  const auto of_space = [this](const kube::Change& change) { return in_space(kube::space_of(change.object())); };
  const auto of_pod = [this](const kube::Change& change) {
    const Json& pod = change.object();
    const Json& labels = pod["metadata"]["labels"];
    return labels[api::kSlurmRoleLabel].is_null() && labels[api::kLifecycleLabel].is_null() ? std::vector<kube::ObjectKey>() : in_space(kube::space_of(pod));
  };
  // A node that a cluster has; of one that is spare any that waits may want to know.
  const auto of_node = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    std::set<std::string> instances;
    bool spare = false;
    for (const auto* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr}) {
      if (object == nullptr) continue;
      const Json& labels = (*object)["metadata"]["labels"];
      if (!labels[api::kInstanceLabel].string().empty()) instances.insert(labels[api::kInstanceLabel].string());
      spare = spare || (labels[api::kSpareLabel].string() == "true" && labels[api::kInstanceLabel].is_null());
    }
    spare = spare && (!change.before || !change.after || as_spare(*change.before) != as_spare(*change.after));
    for (const std::string& id : instances)
      if (const auto instance = caches_->of(api::kInstances).get({"", id})) out.push_back({"", (*instance)["spec"]["cluster"].string()});
    if (spare) caches_->of(api::kClusters).each("", [&](const Json& cluster) { out.push_back(kube::key_of(cluster)); });
    return out;
  };
  // One that was made for a cluster says so; of a host that was taken as a spare one its Node does.
  const auto of_machine = [this, of_label](const kube::Change& change) {
    std::vector<kube::ObjectKey> out = of_label(change);
    if (const auto node = caches_->of(resources::nodes).get({"", kube::name_of(change.object())}))
      if (const auto instance = caches_->of(api::kInstances).get({"", (*node)["metadata"]["labels"][api::kInstanceLabel].string()})) out.push_back({"", (*instance)["spec"]["cluster"].string()});
    return out;
  };
  const auto of_plan = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> out;
    caches_->of(api::kClusters).each("", [&](const Json& cluster) {
      const auto& groups = cluster["spec"]["instanceGroups"].items();
      if (std::any_of(groups.begin(), groups.end(), [&](const Json& group) { return api::plan_object_name(group["trainingPlanArn"].string()) == kube::name_of(change.object()); })) out.push_back(kube::key_of(cluster));
    });
    return out;
  };
  return {{api::kClusters, "", kube::key_itself}, {api::kTrainingPlans, "", of_plan}, {api::kInstances, "", of_label}, {resources::machines, "", of_machine}, {resources::nodes, "", of_node}, {resources::slurm_clusters, "", of_space}, {api::kNodeSets, "", of_space}, {resources::pods, "", of_pod}, {api::kClusterEvents, "", [](const kube::Change&) { return std::vector<kube::ObjectKey>(); }}};
}

Result<ClusterSnapshot> ClusterController::look(Json object) const {
  const api::Cluster cluster = api::read_cluster(object);
  ClusterSnapshot out;
  out.instances = caches_->of(api::kInstances).list("");
  caches_->of(api::kTrainingPlans).each("", [&](const Json& plan) { out.plans.emplace(kube::name_of(plan), api::read_training_plan(plan)); });
  std::set<std::string> named;
  for (const Json& one : out.instances)
    if (one["spec"]["clusterUid"].string() == cluster.uid) named.insert(one["status"]["node"].string());
  caches_->of(resources::nodes).each("", [&](const Json& node) {
    if (named.contains(kube::name_of(node)) || node["metadata"]["labels"][api::kSpareLabel].string() == "true") out.nodes.emplace(kube::name_of(node), node);
  });
  for (const std::string& name : named)
    if (auto machine = name.empty() ? std::nullopt : caches_->of(resources::machines).get({"", name})) out.machines.emplace(name, std::move(*machine));
  if (auto space = api_.get(resources::namespaces, {"", cluster.space})) out.space = std::move(*space);
  else if (space.error().code != Code::NotFound) return pass(std::move(space.error()), "read namespace " + cluster.space);
  const bool ours = is_namespace_of(out.space, cluster);
  if (ours) out.events = caches_->of(api::kClusterEvents).list(cluster.space);
  if (ours && cluster.orchestrator == api::Orchestrator::Slurm) {
    auto claims = api_.list(resources::claims, cluster.space);
    if (!claims) return pass(std::move(claims.error()), "read the claims in " + cluster.space);
    out.claims = std::move(claims->items);
    if (auto slurm = caches_->of(resources::slurm_clusters).get({cluster.space, cluster.slurm_name})) out.slurm = std::move(*slurm);
    out.node_sets = caches_->of(api::kNodeSets).list(cluster.space);
    out.pods = caches_->of(resources::pods).list(cluster.space);
  }
  if (cluster.orchestrator == api::Orchestrator::Eks)
    caches_->of(resources::pods).each("", [&](const Json& pod) {
      if (const std::string& node = pod["spec"]["nodeName"].string(); !node.empty() && named.contains(node)) out.pods.push_back(pod);
    });
  if (const auto needed = needed_sources(cluster, out.instances, out.pods); !needed.empty() && ours) {
    auto configs = api_.list(resources::config_maps, cluster.space, {.label_selector = fmt::format("{}={}", api::kClusterLabel, cluster.name), .field_selector = {}, .limit = 0, .continue_token = {}, .resource_version = {}});
    if (!configs) return pass(std::move(configs.error()), "read the ConfigMaps in " + cluster.space);
    out.configs = std::move(configs->items);
    for (const auto& [uri, scripts] : needed) out.sources.emplace(uri, source_of(scripts, cluster.space));
  }
  if (const auto asked = needed_alarms(object, cluster.software); !asked.empty()) {
    if (alarms_ != nullptr) out.alarms = alarms_->look(asked);
    else
      for (const std::string& name : asked) out.alarms[name] = {.state = api::Alarm::State::Unknown, .message = "this server knows of no alarms: run `fairlead up --prometheus-url URL`, or start fairlead-server with that option"};
  }
  out.cluster = std::move(object);
  return out;
}

ScriptSource ClusterController::kept_source(const api::LifecycleScripts& scripts, const std::string& space) const {
  ScriptSource out;
  std::vector<Json> secrets;
  while (true) {
    auto secret = api_.get(resources::secrets, {space, bundle_secret_name(scripts.sum, secrets.size())});
    if (secret) {
      secrets.push_back(std::move(*secret));
    } else if (secret.error().code != Code::NotFound) {
      out.problem = fmt::format("{} as it was: {}", scripts.uri, secret.error().message);
      return out;
    }
    auto bundle = kept_bundle(scripts.sum, secrets);
    if (bundle) {
      out.bundle = std::move(*bundle);
      return out;
    }
    if (!secret) {
      out.problem = fmt::format("{} as it was: {}; have it updated, or change its LifeCycleConfig", scripts.uri, bundle.error().message);
      out.missing = true;
      return out;
    }
  }
}

ScriptSource ClusterController::source_of(const api::LifecycleScripts& scripts, const std::string& space) const {
  if (!scripts.sum.empty()) return kept_source(scripts, space);
  ScriptSource out;
  auto files = scripts_ == nullptr ? Result<ScriptFiles>(fail(Code::NotFound, "this server has no place for lifecycle scripts: start it with --s3-directory")) : scripts_->read(scripts.bucket, scripts.prefix);
  if (files) {
    out.bundle = bundle_scripts(*files);
    return out;
  }
  out.problem = fmt::format("{}: {}", scripts.uri, files.error().message);
  const Code code = files.error().code;
  out.missing = code == Code::NotFound || code == Code::Invalid || code == Code::Forbidden || code == Code::Exhausted;
  return out;
}

// Caches may be behind. Nothing: the step may be taken; else why not yet.
Result<std::optional<std::string>> ClusterController::objection(const ClusterStep& step, const std::string& space, api::Orchestrator orchestrator) {
  const auto no = [](std::string why) { return std::optional<std::string>(std::move(why)); };
  if (!step.if_gone.empty()) {
    const auto machine = api_.get(resources::machines, {"", step.if_gone});
    if (machine) return no(fmt::format("machine {} is there", step.if_gone));
    if (machine.error().code != Code::NotFound) return std::unexpected(machine.error());
  }
  for (const std::string& name : {step.if_not_of, step.if_silent}) {
    if (name.empty()) continue;
    const auto node = api_.get(resources::nodes, {"", name});
    if (!node && node.error().code != Code::NotFound) return std::unexpected(node.error());
    if (!node) continue;
    if (name == step.if_not_of && (*node)["metadata"]["labels"][api::kInstanceLabel].string() == kube::name_of(step.object)) return no(fmt::format("{} is still its machine", name));
    // One that answered in between counts anew.
    if (name == step.if_silent)
      if (const auto since = silent_since(*node); !since || clock_.now() < *since + options_.silent) return no(fmt::format("{} has answered meanwhile", name));
  }
  if (!step.if_no_instance.empty()) {
    const auto instance = api_.get(api::kInstances, {"", step.if_no_instance});
    if (instance) return no(fmt::format("{} is there", step.if_no_instance));
    if (instance.error().code != Code::NotFound) return std::unexpected(instance.error());
  }
  if (!step.if_live.empty()) {
    const auto instance = api_.get(api::kInstances, {"", step.if_live});
    if (!instance && instance.error().code == Code::NotFound) return no(fmt::format("{} is gone", step.if_live));
    if (!instance) return std::unexpected(instance.error());
    if (kube::deleting(*instance) || (*instance)["status"]["node"].string() != (step.live_node.empty() ? kube::name_of(step.object) : step.live_node)) return no(fmt::format("{} has changed", step.if_live));
    if (!step.stages.is_null() && stages_of((*instance)["status"]) != step.stages) return no(fmt::format("{} is at another stage", step.if_live));
    if (!step.unrun.empty() && !(*instance)["status"]["lifecycle"][step.unrun].is_null()) return no(fmt::format("{} has run it", step.if_live));
  }
  if (!step.if_empty.empty()) {
    const bool slurm = orchestrator == api::Orchestrator::Slurm;
    const auto pods = slurm ? api_.list(resources::pods, space) : api_.list(resources::pods, "", {.label_selector = {}, .field_selector = "spec.nodeName=" + step.if_empty, .limit = 0, .continue_token = {}, .resource_version = {}});
    if (!pods) return std::unexpected(pods.error());
    for (const Json& pod : pods->items)
      if (pod["spec"]["nodeName"].string() == step.if_empty && holds_machine(pod, orchestrator)) return no(fmt::format("{} came to {} meanwhile", kube::name_of(pod), step.if_empty));
  }
  return std::optional<std::string>();
}

Result<void> ClusterController::take(const ClusterStep& step) {
  const auto forget = [](auto result) -> Result<void> {
    if (!result) return std::unexpected(std::move(result.error()));
    return {};
  };
  switch (step.verb) {
    case ClusterStep::Verb::Create: {
      // Names follow from what a thing is for: one that is there was made by a round whose end we have not seen.
      auto done = api_.create(step.resource, step.object);
      if (!done && done.error().code == Code::Exists) return {};
      return forget(std::move(done));
    }
    // Of an instance that has gone there is nothing left to say.
    case ClusterStep::Verb::Update:
    case ClusterStep::Verb::UpdateStatus: {
      auto done = step.verb == ClusterStep::Verb::Update ? api_.update(step.resource, step.object) : api_.update_status(step.resource, step.object);
      if (!done && done.error().code == Code::NotFound && step.resource == api::kInstances) return {};
      return forget(std::move(done));
    }
    case ClusterStep::Verb::Evict: {
      const Json eviction = Json::object({{"apiVersion", "policy/v1"}, {"kind", "Eviction"}, {"metadata", Json::object({{"name", kube::name_of(step.object)}, {"namespace", kube::space_of(step.object)}})},
                                          {"deleteOptions", Json::object({{"preconditions", Json::object({{"uid", kube::uid_of(step.object)}})}})}});
      auto done = api_.post(step.resource, kube::key_of(step.object), "eviction", eviction);
      if (!done && done.error().code == Code::NotFound) return {};
      return forget(std::move(done));
    }
    case ClusterStep::Verb::Delete: {
      auto done = api_.remove(step.resource, kube::key_of(step.object), {.grace_seconds = step.force ? std::optional<std::int64_t>(0) : std::nullopt, .uid = kube::uid_of(step.object), .resource_version = step.force ? "" : kube::version_of(step.object)});
      if (!done && done.error().code == Code::NotFound) return {};
      return done;
    }
  }
  return {};
}

bool ClusterController::may_withhold(const std::string& cluster) {
  const std::lock_guard lock(mutex_);
  const auto [since, fresh] = unanswered_.try_emplace(cluster, clock_.now());
  return clock_.now() < since->second + std::chrono::minutes(1);
}
void ClusterController::told(const std::string& cluster) {
  const std::lock_guard lock(mutex_);
  unanswered_.erase(cluster);
}

Result<kube::Next> ClusterController::reconcile(const kube::ObjectKey& key) {
  auto object = caches_->of(api::kClusters).get(key);
  if (!object) return kube::Next{};
  const api::Cluster cluster = api::read_cluster(*object);
  auto snapshot = look(std::move(*object));
  if (!snapshot) return std::unexpected(std::move(snapshot.error()));
  const ClusterPlan plan = plan_cluster(*snapshot, clock_.now(), options_);
  // What is made for a cluster that is gone would stay for ever.
  if (!plan.steps.empty()) {
    const auto now = api_.get(api::kClusters, key);
    if (!now && now.error().code == Code::NotFound) return kube::Next{};
    if (!now) return std::unexpected(now.error());
    if (kube::version_of(*now) != kube::version_of(snapshot->cluster)) return fail(Code::Conflict, fmt::format("cluster {} has changed", key.name));
  }
  // One that fails holds up no other: each says itself on what it depends.
  std::optional<Error> failed;
  bool waits = false;
  // What could not be told now is told in the next round, if it still is news then: its status is not written. Not for ever, though: an API that takes everything but events holds up nothing.
  std::set<std::string> untold;
  bool no_answer = false, refused = false;
  int failures = 0;
  constexpr int most_failures = 20;  // an API that does not answer is not asked ten thousand times
  for (const ClusterStep& step : plan.steps) {
    const std::string what = fmt::format("{} {} {}", fleet::name(step.verb), step.resource.kind, kube::key_of(step.object).text());
    if (step.verb == ClusterStep::Verb::UpdateStatus && untold.contains(kube::name_of(step.object))) continue;
    if (no_answer && step.resource == api::kClusterEvents) {
      if (step.verb == ClusterStep::Verb::Create) untold.insert(step.tells_of);
      continue;
    }
    if (refused && step.resource == api::kClusterEvents) continue;  // each would wait for an answer, and hold up what comes after
    const auto why_not = objection(step, cluster.space, cluster.orchestrator);
    if (why_not && *why_not) {
      waits = true;
      continue;
    }
    const bool event = step.resource == api::kClusterEvents;
    if (step.verb != ClusterStep::Verb::UpdateStatus && !event) log_info("cluster step", {{"cluster", key.name}, {"step", what}, {"why", step.why}});
    auto done = why_not ? take(step) : Result<void>(std::unexpected(why_not.error()));
    if (done) continue;
    if (step.verb == ClusterStep::Verb::Evict && done.error().code == Code::Exhausted) {
      waits = true;  // a disruption budget has its say
      continue;
    }
    // A quota or a policy that is against it holds up nothing.
    const bool later = done.error().code == Code::Unavailable || done.error().code == Code::Exhausted;
    if (event && (!later || !may_withhold(key.name))) {
      refused = refused || later;
      if (done.error().code != Code::Conflict && step.verb == ClusterStep::Verb::Create) log_warn("an event was not written", {{"cluster", key.name}, {"event", step.object["spec"]["description"].string()}, {"error", done.error().message}});
      continue;
    }
    if (event) {
      no_answer = true;
      if (step.verb == ClusterStep::Verb::Create) untold.insert(step.tells_of);
      if (!failed || failed->code == Code::Conflict) failed = std::move(done.error()).in(what);
      continue;
    }
    if (!failed || failed->code == Code::Conflict) failed = std::move(done.error()).in(what);
    if (++failures >= most_failures) break;
  }
  if (!no_answer && !refused) told(key.name);
  // The last: who reads it finds what it tells of.
  Json status = plan.status.is_null() ? snapshot->cluster["status"] : plan.status;
  if (failed && failed->code != Code::Conflict && status.is_object()) status.set("message", failed->message.substr(0, 1000));
  if (status != snapshot->cluster["status"] && !untold.contains("")) {
    Json changed = snapshot->cluster;
    if (changed["status"]["phase"] != status["phase"] || changed["status"]["message"] != status["message"]) log_info("cluster", {{"cluster", key.name}, {"status", status["phase"].string()}, {"message", status["message"].string()}});
    changed.set("status", std::move(status));
    if (auto done = api_.update_status(api::kClusters, changed); !done && !failed) return std::unexpected(std::move(done.error()).in("write the status of cluster " + key.name));
  }
  if (failed) return std::unexpected(std::move(*failed).in("cluster " + key.name));
  const auto soon = std::chrono::nanoseconds(std::chrono::seconds(1));
  return kube::Next{waits ? std::min(plan.look_again.value_or(soon), soon) : plan.look_again};
}

}  // namespace fairlead::fleet
