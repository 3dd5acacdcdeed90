// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/actions.h"

#include <fmt/format.h>

#include <cctype>

#include "base/encoding.h"

namespace fairlead::slurm {

using kube::Json;

namespace {

const char* word(NodeAction action) { return action == NodeAction::Reboot ? "Reboot" : "Replace"; }

const Json* find(const std::map<std::string, const Json*>& objects, const std::string& name) {
  const auto found = objects.find(name);
  return found == objects.end() ? nullptr : found->second;
}

struct Machine {
  std::string uid, boot;
};
Machine machine_of(const ActionsInput& input, const Json* pod) {
  const Json* node = pod == nullptr ? nullptr : find(input.nodes, (*pod)["spec"]["nodeName"].string());
  return node == nullptr ? Machine{} : Machine{kube::uid_of(*node), (*node)["status"]["nodeInfo"]["bootID"].string()};
}

bool is_done(const Json& entry, const Machine& now) {
  if (now.uid.empty() || entry["node"].string().empty()) return false;
  if (now.uid != entry["node"].string()) return true;
  return entry["action"].string() == word(NodeAction::Reboot) && !now.boot.empty() && !entry["boot"].string().empty() && now.boot != entry["boot"].string();
}

}  // namespace

ActionWord action_of_reason(std::string_view reason) {
  if (reason == "Action:Reboot") return {NodeAction::Reboot, true};
  if (reason == "Action:Replace") return {NodeAction::Replace, true};
  std::string plain;
  for (const char c : reason)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (plain == "actionreboot") return {NodeAction::Reboot, false};
  if (plain == "actionreplace" || plain == "actionreplacement") return {NodeAction::Replace, false};
  return {};
}

ActionsPlan plan_actions(const ActionsInput& input) {
  ActionsPlan out;
  if (!input.view) {
    out.memory = input.memory;
    return out;
  }
  Json memory = Json::object();
  for (const auto& [name, node] : input.view->nodes) {
    // Of a node in service a reason says nothing.
    const ActionWord asked = node.drained() || node.has("DOWN") ? action_of_reason(node.reason) : ActionWord{};
    if (asked.action == NodeAction::None) continue;
    const Json* pod = find(input.pods, name);
    const Json& before = input.memory[name];
    Json entry;
    // As long as the word stands it is one request: Slurm tells another time for it when we write it down again (a death, a drain).
    if (before.is_object() && before["action"].string() == word(asked.action) && before["reason"].string() == node.reason) {
      entry = before;
    } else {
      const Machine machine = machine_of(input, pod);
      if (pod == nullptr || machine.uid.empty()) continue;  // of which machine this was said is not known
      entry = Json::object({{"action", word(asked.action)}, {"id", hex(sha256(fmt::format("{}/{}/{}/{}", kube::uid_of(*pod), node.since, node.reason, name))).substr(0, 16)}, {"uid", kube::uid_of(*pod)}, {"node", machine.uid}, {"boot", machine.boot}, {"since", node.since}, {"by", node.by}, {"reason", node.reason}, {"exact", asked.exact}});
    }
    if (pod != nullptr && !kube::deleting(*pod) && kube::condition_is_true(*pod, "Ready") && is_done(entry, machine_of(input, pod))) {
      out.steps.push_back(TellSlurm{NodeVerb::Lift, name, {node.reason}});
      out.notes.push_back(fmt::format("{} is back after {}: its state in Slurm is lifted", name, entry["action"].string()));
    } else {
      out.notes.push_back(asked.exact ? fmt::format("{} is to be {} (reason {} in Slurm)", name, asked.action == NodeAction::Reboot ? "rebooted" : "replaced", node.reason)
                                      : fmt::format("{}: reason \"{}\" in Slurm is taken for Action:{}", name, node.reason, word(asked.action)));
    }
    memory.set(name, std::move(entry));
  }
  if (!memory.members().empty()) out.memory = std::move(memory);
  return out;
}

}  // namespace fairlead::slurm
