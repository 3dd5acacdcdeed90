// SPDX-License-Identifier: Apache-2.0
// NodeRecovery: the label of a node's health asks for its reboot or its replacement, whoever set it; so does the reason of its worker in Slurm (docs/design/053). The words are HyperPod's.
#include <cctype>

#include "base/encoding.h"
#include "fleet/plan/cluster_planner.h"

namespace fairlead::fleet {

RecoveryAsked recovery_of(std::string_view word) {
  std::string plain;  // near misses count: a label that somebody typed and that does nothing would be found out late
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (plain == "unschedulablependingreboot") return RecoveryAsked::Reboot;
  if (plain == "unschedulablependingreplacement" || plain == "unschedulablependingreplace") return RecoveryAsked::Replace;
  return RecoveryAsked::None;
}

namespace planner {

// What Slurm says is asked for of the machine under the worker that is here now (SlurmCluster's status.nodeActions); null: nothing. Of another machine, or of a boot before this one, it is done.
const Json* Planner::slurm_action(const One& one, const Json& node) const {
  const InstanceGroup* group = cluster_.group(one.value.group);
  const auto found = pods_on_.find(one.value.node);
  if (!slurm_ || group == nullptr || group->node_type != SlurmNodeType::Compute || found == pods_on_.end()) return nullptr;
  for (const Json* pod : found->second) {
    if (!has_role(*pod, *group)) continue;
    const Json& entry = in_.slurm["status"]["nodeActions"][kube::name_of(*pod)];
    if (!entry.is_object() || entry["node"].string() != kube::uid_of(node)) continue;
    if (entry["action"].string() != "Reboot" || entry["boot"].string() == node["status"]["nodeInfo"]["bootID"].string()) return &entry;
  }
  return nullptr;
}

void Planner::recover(One& one, const Json& node) {
  const Instance& value = one.value;
  const std::string& label = node["metadata"]["labels"][api::kHealthLabel].string();
  const std::string& noted = node["metadata"]["annotations"][kRecovery].string();
  const Json* const by_slurm = slurm_action(one, node);
  const std::string slurm_id = by_slurm == nullptr ? "" : "slurm-" + (*by_slurm)["id"].string();
  const RecoveryAsked of_slurm = by_slurm == nullptr ? RecoveryAsked::None : (*by_slurm)["action"].string() == "Reboot" ? RecoveryAsked::Reboot : RecoveryAsked::Replace;
  const auto write = [&](const std::string& note, const char* health, std::string why) {
    Json changed = node;
    Json& metadata = changed.child("metadata");
    if (note.empty()) metadata.child("annotations").erase(kRecovery);
    else metadata.child("annotations").set(kRecovery, note);
    if (health != nullptr) changed.child("metadata").child("labels").set(api::kHealthLabel, health);
    add(Verb::Update, resources::nodes, std::move(changed), std::move(why));
    last().if_live = value.id;
  };
  if (noted.empty()) {
    const InstanceGroup* group = cluster_.group(value.group);
    const bool in_slurm = of_slurm != RecoveryAsked::None && value.reboot != slurm_id && value.replace != slurm_id && one.status["slurmAction"].string() != slurm_id;
    const RecoveryAsked asked = in_slurm ? of_slurm : recovery_of(label);
    if (asked == RecoveryAsked::None || group == nullptr || !value.replace.empty()) return;
    const std::string what = in_slurm ? fmt::format("reason \"{}\" in Slurm", (*by_slurm)["reason"].string()) : fmt::format("label {}={}", api::kHealthLabel, label);
    if (!cluster_.recovers) {
      one.message = fmt::format("its Node has {}, and nodeRecovery None leaves it so", what);
    } else if (asked == RecoveryAsked::Replace && slurm_ && group->node_type == SlurmNodeType::Controller) {
      one.message = fmt::format("its Node has {}: a Slurm controller is not replaced", what);
    } else if (!is_to_reboot(value) && !value.updating()) {  // one after the other
      // By the version that has the label, or by Slurm's word: once for each time that it is set.
      const std::string id = in_slurm ? slurm_id : "health-" + hex(sha256(kube::uid_of(node) + "/" + kube::version_of(node))).substr(0, 16);
      const char* const health = asked == RecoveryAsked::Reboot ? "UnschedulablePendingReboot" : "UnschedulablePendingReplacement";
      write((asked == RecoveryAsked::Reboot ? kRebootNote : kReplaceNote) + id + (in_slurm || label == health ? "" : " " + label), health, what + " asks for it");
    }
    return;
  }
  const bool replace = noted.starts_with(kReplaceNote);
  const auto words = split(noted, ' ');
  const std::string id = words.size() > 1 ? words[1] : "", written = words.size() > 2 ? words[2] : "";  // as somebody had written the label
  const bool in_slurm = id.starts_with("slurm-");
  const RecoveryAsked asked = !in_slurm ? recovery_of(label) : id == slurm_id ? of_slurm : RecoveryAsked::None;
  const auto ask = [&](const char* what) {
    const std::string by = in_slurm ? fmt::format("reason \"{}\" in Slurm, by {}{}", (*by_slurm)["reason"].string(), (*by_slurm)["by"].string(), (*by_slurm)["exact"].boolean(true) ? "" : " (taken for Action:" + (*by_slurm)["action"].string() + ")") : fmt::format("label {}={} of Node {}{}", api::kHealthLabel, written.empty() ? label : written, kube::name_of(node), written.empty() ? "" : " (taken for " + label + ")");
    Json request = *one.object;
    request.child("spec").set(what, Json::object({{"id", id}, {"by", by}}));
    add(Verb::Update, api::kInstances, std::move(request), by);
  };
  // Somebody took it back in Slurm before anything was done: so does the label that was set for it.
  const auto withdraw = [&] { write("", in_slurm && recovery_of(label) != RecoveryAsked::None ? "Schedulable" : nullptr, "nobody asks for it any more"); };
  if (replace) {
    if (!value.replace.empty()) return;  // it goes, and the note with its Node
    if (asked != RecoveryAsked::Replace) return withdraw();
    return ask("replace");
  }
  if (value.reboot == id) {
    if (is_to_reboot(value)) return;
    const bool done = value.reboot_stage == "Done";
    if (in_slurm) one.status.set("slurmAction", id);  // answered, whatever is asked for after it
    return write("", recovery_of(label) == RecoveryAsked::Reboot ? done ? "Schedulable" : "Unschedulable" : nullptr, done ? "it was rebooted" : "it could not be rebooted");
  }
  if (asked != RecoveryAsked::Reboot) return withdraw();
  if (!is_to_reboot(value)) ask("reboot");
}

}  // namespace planner

}  // namespace fairlead::fleet
