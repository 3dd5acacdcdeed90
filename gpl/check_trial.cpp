// SPDX-License-Identifier: GPL-3.0-or-later
#include "check_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/encoding.h"
#include "checks.h"
#include "nodes.h"

namespace fairlead::companion {
namespace {

constexpr const char* kUser = "nobody";


struct Look {
  NodeRecord node;
  bool there = false;
  std::vector<Trial> trials;
  bool tried_as(const std::string& reservation) const {
    return std::any_of(trials.begin(), trials.end(), [&](const Trial& one) { return one.node == node.name && one.reservation == reservation; });
  }
};
Result<Look> look(const std::string& name) {
  auto trials = look_at_trials();
  if (!trials) return std::unexpected(std::move(trials.error()));
  auto text = ask_slurm({"scontrol", "-o", "-a", "show", "nodes"});
  if (!text) return std::unexpected(std::move(text.error()));
  auto nodes = read_nodes(*text);
  if (!nodes) return std::unexpected(std::move(nodes.error()));
  Look out{.trials = std::move(*trials)};
  for (auto& node : *nodes)
    if (node.name == name) out.node = std::move(node), out.there = true;
  return out;
}

bool out_by_will(const NodeRecord& node) { return node.has("DRAIN") || node.has("FAIL") || node.has("FAILING"); }

}  // namespace

bool trial_name(std::string_view text) {
  if (!text.starts_with(kTrialName)) return false;
  text.remove_prefix(kTrialName.size());
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

Result<std::vector<Trial>> read_trials(std::string_view text) {
  std::vector<Trial> out;
  if (trim(text) == "No reservations in the system") return out;
  if (!text.empty() && text.back() != '\n') return fail(Code::Invalid, "the output is cut off");
  for (const auto& line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    const auto name = value_of(line, "ReservationName="), nodes = value_of(line, "Nodes="), users = value_of(line, "Users=");
    if (!line.starts_with("ReservationName=") || !name || !nodes || !users) return fail(Code::Invalid, "a line without a reservation's name, nodes or users");
    if (!trial_name(*name) || *users != kUser) continue;
    auto list = expand_hosts(*nodes);
    if (!list) return pass(std::move(list.error()), "nodes of reservation " + std::string(*name));
    if (list->size() == 1) out.push_back({list->front(), std::string(*name)});
  }
  return out;
}

Result<std::vector<Trial>> look_at_trials() {
  auto text = ask_slurm({"scontrol", "-o", "show", "reservations"});
  if (!text) return std::unexpected(std::move(text.error()));
  return read_trials(*text);
}

std::size_t out_for_checks(const std::vector<NodeRecord>& nodes, const std::vector<Trial>& trials) {
  std::set<std::string, std::less<>> out;
  for (const auto& node : nodes)
    if (node.has("DRAIN") && node.reason.find(kCheckMark) != node.reason.npos) out.insert(node.name);
  for (const auto& trial : trials) out.insert(trial.node);
  return out.size();
}

int begin_trial(const std::string& name, const std::string& reservation, const std::string& reason) {
  auto seen = look(name);
  if (!seen) return slurm_failed(seen.error());
  if (!seen->there) return not_as_supposed("Slurm has no node " + name);
  const bool reserved = seen->tried_as(reservation);
  if (!out_by_will(seen->node)) return reserved ? 0 : not_as_supposed(name + " is in service: nothing is tried on it");
  if (!seen->node.has("DRAIN") || seen->node.has("FAIL") || seen->node.has("FAILING") || seen->node.reason != reason) return not_as_supposed(fmt::format("{} was taken out of service by somebody else: {}", name, seen->node.reason));
  if (!reserved) {
    // Without an end: what is to be in service again is said by us, not by a clock. No flags: where jobs are, or another reservation, Slurm refuses.
    if (const int status = tell_slurm({"scontrol", "create", "reservation", "ReservationName=" + reservation, "StartTime=now", "Duration=UNLIMITED", std::string("Users=") + kUser, "Nodes=" + name}); status != 0) return status;
    auto trials = look_at_trials();
    if (!trials) return slurm_failed(trials.error());
    if (std::none_of(trials->begin(), trials->end(), [&](const Trial& one) { return one.node == name && one.reservation == reservation; })) return not_as_supposed(fmt::format("reservation {} is not over {} alone", reservation, name));
  }
  return tell_slurm({"scontrol", "update", "nodename=" + name, "state=undrain"});
}

int settle(const std::string& name, const std::string& reservation, const std::string& reason, const std::string& next) {
  auto seen = look(name);
  if (!seen) return slurm_failed(seen.error());
  const bool reserved = reservation != "-" && seen->tried_as(reservation);
  if (seen->there) {
    const NodeRecord& node = seen->node;
    const bool ours = node.has("DRAIN") && !node.has("FAIL") && !node.has("FAILING") && node.reason == reason;
    // Not yet drained: only while nobody could use it, which the reservation sees to.
    if (next != "-" && (ours || (reserved && !out_by_will(node) && !node.has("DOWN"))))
      if (const int status = tell_slurm({"scontrol", "update", "nodename=" + name, "state=drain", "reason=" + next}); status != 0) return status;
    if (next == "-" && ours)
      if (const int status = tell_slurm({"scontrol", "update", "nodename=" + name, "state=undrain"}); status != 0) return status;
  }
  return reserved ? tell_slurm({"scontrol", "delete", "reservation=" + reservation}) : 0;
}

}  // namespace fairlead::companion
