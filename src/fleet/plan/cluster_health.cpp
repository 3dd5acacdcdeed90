// SPDX-License-Identifier: Apache-2.0
// NodeRecovery: the label of a node's health asks for its reboot or its replacement, whoever set it (docs/design/053). The label's words are HyperPod's.
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

void Planner::recover(One& one, const Json& node) {
  const Instance& value = one.value;
  const std::string& label = node["metadata"]["labels"][api::kHealthLabel].string();
  const std::string& noted = node["metadata"]["annotations"][kRecovery].string();
  const RecoveryAsked asked = recovery_of(label);
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
    if (asked == RecoveryAsked::None || group == nullptr || !value.replace.empty()) return;
    if (!cluster_.recovers) {
      one.message = fmt::format("its Node has label {}={}, and nodeRecovery None leaves it so", api::kHealthLabel, label);
    } else if (asked == RecoveryAsked::Replace && slurm_ && group->node_type == SlurmNodeType::Controller) {
      one.message = fmt::format("its Node has label {}={}: a Slurm controller is not replaced", api::kHealthLabel, label);
    } else if (!is_to_reboot(value) && !value.updating()) {  // one after the other
      // By the version that has the label: once for each time that it is set.
      write(fmt::format("{}health-{}", asked == RecoveryAsked::Reboot ? kRebootNote : kReplaceNote, hex(sha256(kube::uid_of(node) + "/" + kube::version_of(node))).substr(0, 16)), asked == RecoveryAsked::Reboot ? "UnschedulablePendingReboot" : "UnschedulablePendingReplacement", fmt::format("label {}={} asks for it", api::kHealthLabel, label));
    }
    return;
  }
  const bool replace = noted.starts_with(kReplaceNote);
  const std::string id = noted.substr(noted.find(' ') + 1);
  const auto ask = [&](const char* what) {
    Json request = *one.object;
    request.child("spec").set(what, Json::object({{"id", id}, {"by", fmt::format("label {}={} of Node {}", api::kHealthLabel, label, kube::name_of(node))}}));
    add(Verb::Update, api::kInstances, std::move(request), fmt::format("label {}={} of its Node", api::kHealthLabel, label));
  };
  if (replace) {
    if (!value.replace.empty()) return;  // it goes, and the note with its Node
    if (asked != RecoveryAsked::Replace) return write("", nullptr, "nobody asks for it any more");
    return ask("replace");
  }
  if (value.reboot == id) {
    if (is_to_reboot(value)) return;
    const bool done = value.reboot_stage == "Done";
    return write("", asked == RecoveryAsked::Reboot ? done ? "Schedulable" : "Unschedulable" : nullptr, done ? "it was rebooted" : "it could not be rebooted");
  }
  if (asked != RecoveryAsked::Reboot) return write("", nullptr, "nobody asks for it any more");
  if (!is_to_reboot(value)) ask("reboot");
}

}  // namespace planner

}  // namespace fairlead::fleet
