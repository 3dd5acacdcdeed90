// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet::planner {

std::optional<Instant> Planner::tries_again_at(const One& one) const {
  const bool under_way = !cluster_.continuous && !taken_back_ && status_["good"]["generation"].integer(-1) != cluster_.generation;
  const Json* failed = under_way ? nullptr : failed_script(one);
  if (failed == nullptr) return std::nullopt;
  const auto at = parse_time((*failed)["at"].string());
  if (!at) return std::nullopt;
  return *at + std::min<std::chrono::seconds>(std::chrono::minutes(30), std::chrono::seconds(60) * (1 << std::clamp(one.value.attempt - 1, 0, 10)));
}

void Planner::run_script(One& one, ScriptStage stage) {
  const Instance& value = one.value;
  const InstanceGroup* group = cluster_.group(value.group);
  if (group == nullptr) return;  // it goes
  if (held_.contains(value.id)) {
    one.message = "is to be prepared as before";
    return;
  }
  const api::LifecycleScripts& scripts = scripts_of(one);
  const std::string& file = file_of(scripts, stage);
  if (const Json& record = script_record(one, stage); record["phase"].string() == "Failed") {
    const auto again = tries_again_at(one);
    return fail_instance(one, record["message"].string() + (again ? fmt::format(" (another machine tries it at {})", print_time(*again)) : ""));
  }
  const std::string pod_name = script_pod_name(value.id, stage);
  const Json* pod = script_pod_named(pod_name);
  if (pod != nullptr && (!is_script_of(*pod, *one.object) || (*pod)["spec"]["nodeName"].string() != value.node)) {
    one.message = fmt::format("{} waits: pod {} is not its own; delete it", file, kube::key_of(*pod).text());
    return look_again(std::chrono::seconds(15));
  }
  if (pod != nullptr && (*pod)["metadata"]["annotations"][kScriptUpdate].string() != value.software_id) {
    one.message = fmt::format("{} waits for its pod of before to go", file);
    if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "the machine is prepared again");
    return look_again(std::chrono::seconds(2));
  }
  if (pod != nullptr) {
    const ScriptEnd end = end_of_script(*pod);
    const auto note = [&](const char* phase) {
      Json record = Json::object({{"phase", phase}, {"exitCode", end.exit_code}, {"at", print_time(now_)}, {"sum", (*pod)["metadata"]["annotations"][kScriptSum]}});
      if (!end.message.empty()) record.set("message", fmt::format("{}: {}", file, end.message));
      one.status.child("lifecycle").set(field_of(stage), std::move(record));
    };
    switch (end.kind) {
      case ScriptEnd::Kind::Going:
        ++scripts_going_[value.group];  // it has its own limit
        [[fallthrough]];
      case ScriptEnd::Kind::Waiting:
        one.message = fmt::format("{}: {} (kubectl logs -n {} {} -c lifecycle)", file, end.message, cluster_.space, pod_name);
        return;
      case ScriptEnd::Kind::Succeeded:
        note("Succeeded");
        one.message = fmt::format("{} has run", file);
        return look_again(std::chrono::seconds(1));
      case ScriptEnd::Kind::Failed:
        note("Failed");
        return fail_instance(one, fmt::format("{}: {}", file, end.message));
      case ScriptEnd::Kind::Lost:
        one.message = fmt::format("{}: {}; it is run again", file, end.message);
        if (const Json& lost = one.status["lifecycle"]["lost"]; lost["pod"].string() != kube::uid_of(*pod)) one.status.child("lifecycle").set("lost", Json::object({{"count", lost["count"].integer() + 1}, {"at", print_time(now_)}, {"pod", kube::uid_of(*pod)}}));
        else if (!kube::deleting(*pod)) add(Verb::Delete, resources::pods, *pod, "what became of the script is not known");
        return look_again(std::chrono::seconds(2));
    }
  }
  if (const Json& lost = one.status["lifecycle"]["lost"]; lost["count"].integer() > 1) {
    const Instant next = parse_time(lost["at"].string()).value_or(now_) + std::min<std::chrono::seconds>(std::chrono::minutes(5), std::chrono::seconds(10) * (1 << std::clamp<std::int64_t>(lost["count"].integer() - 2, 0, 10)));
    if (now_ < next) {
      one.message = fmt::format("{}: what became of {} pods of it is not known; it is run again at {}", file, lost["count"].integer(), print_time(next));
      return look_again(next - now_);
    }
  }
  if (in_.space.is_null() || kube::deleting(in_.space)) {
    one.message = fmt::format("{} waits for namespace {}", file, cluster_.space);
    return;
  }
  if (const Json* ready = kube::find_condition(in_.slurm, "JailReady"); slurm_ && (ready == nullptr || (*ready)["status"].string() != "True")) {
    one.message = fmt::format("{} waits for the shared root{}", file, ready == nullptr ? "" : ": " + (*ready)["message"].string());
    return;
  }
  const auto source = in_.sources.find(scripts.source());
  if (source == in_.sources.end()) return look_again(std::chrono::seconds(1));
  if (!source->second.bundle) {
    if (source->second.missing && renew_scripts(one, *group)) return;
    if (source->second.missing) fail_instance(one, source->second.problem);
    else one.message = source->second.problem;
    return look_again(std::chrono::seconds(15));
  }
  const ScriptBundle& bundle = *source->second.bundle;
  if (std::find(bundle.paths.begin(), bundle.paths.end(), file) == bundle.paths.end()) {
    if (renew_scripts(one, *group)) return;
    fail_instance(one, fmt::format("there is no file {} below {}", file, scripts.uri));
    return look_again(std::chrono::seconds(15));
  }
  // From now on it runs by these, whatever its group's become.
  if (!value.scripts) {
    fix_scripts(one);
    one.message = fmt::format("{} starts", file);
    return look_again(std::chrono::seconds(1));
  }
  if (!configs_stored(one)) {
    one.message = fmt::format("{} waits for what it is to read of the cluster", file);
    return;
  }
  for (Json secret : bundle.secrets)
    if (secrets_.insert(kube::name_of(secret)).second) {
      secret.child("metadata").set("namespace", cluster_.space).set("labels", Json::object({{api::kClusterLabel, cluster_.name}})).set("ownerReferences", Json::array({kube::owner_reference(object_)}));
      add(Verb::Create, resources::secrets, std::move(secret), fmt::format("scripts of {}", scripts.uri));
    }
  const Json* machine = machine_of(value.node);
  // One that was made shares its root with the machine that it is made on, whether its object is seen just now or not.
  const ScriptRoot root = slurm_ ? ScriptRoot::Shared : value.made || (machine != nullptr && (*machine)["spec"]["local"].is_object()) ? ScriptRoot::Container : ScriptRoot::Machine;
  add(Verb::Create, resources::pods, script_pod(cluster_, *group, scripts, value, *one.object, stage, root, bundle, options_.scripts), fmt::format("{} on {}", file, value.node));
  last().if_live = value.id;
  last().live_node = value.node;
  last().unrun = field_of(stage);
  if (value.software_stage == "Preparing" && stage == ScriptStage::OnCreate) last().if_empty = value.node;
  one.message = fmt::format("{} starts", file);
}

bool Planner::configs_stored(const One& due) {
  if (!configs_) {
    configs_.emplace();
    for (const Json& stored : in_.configs)
      for (const auto& [key, text] : stored["data"].members())
        if (const auto list = kube::parse_json(text.string()); list && list->is_array())
          for (const Json& entry : list->items()) configs_->insert(entry["InstanceId"].string() + "/" + entry["AgentIpAddress"].string());
  }
  const Json* its_node = node_of(due.value.node);
  const std::string machine = its_node == nullptr ? "" : machine_address(*its_node);
  if (machine.empty()) return false;
  const bool there = configs_->contains(due.value.id + "/" + machine);
  if (!wanted_configs_) {
    std::vector<ScriptNode> nodes;
    for (const One& one : mine_) {
      const Json* node = one.leaves || one.value.deleting || one.value.node.empty() ? nullptr : node_of(one.value.node);
      if (node == nullptr) continue;
      if (const std::string address = machine_address(*node); !address.empty()) nodes.push_back({one.value.group, one.value.id, address, slurm_ ? one.status["address"].string_or(address) : address, one.value.number});
    }
    wanted_configs_ = script_configs(cluster_, object_, nodes, options_.scripts.kubernetes);
  }
  const Json* heads = find_named(in_.configs, kube::name_of(wanted_configs_->front()));
  // A pod that mounts one that is not there would wait for ever.
  const bool current = heads != nullptr && (*heads)["data"] == wanted_configs_->front()["data"] && std::all_of(wanted_configs_->begin(), wanted_configs_->end(), [&](const Json& wanted) { return find_named(in_.configs, kube::name_of(wanted)) != nullptr; });
  if (there && current) return true;
  if (configs_written_) return false;
  configs_written_ = true;
  for (const Json& wanted : *wanted_configs_) {
    const Json* stored = find_named(in_.configs, kube::name_of(wanted));
    if (stored == nullptr) add(Verb::Create, resources::config_maps, wanted, "what scripts read of the cluster");
    else if ((*stored)["data"] != wanted["data"]) {
      Json changed = *stored;
      changed.set("data", wanted["data"]);
      add(Verb::Update, resources::config_maps, std::move(changed), "what scripts read of the cluster");
    }
  }
  look_again(std::chrono::seconds(1));  // nobody tells of ConfigMaps
  return false;
}

}  // namespace fairlead::fleet::planner
