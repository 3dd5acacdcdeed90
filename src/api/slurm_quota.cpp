// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_quota.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/object.h"

namespace fairlead::api {

using kube::Json;

SlurmQuota read_slurm_quota(const Json& cluster) {
  const Json& from = cluster["spec"]["extensions"]["quota"];
  SlurmQuota out;
  if (from.is_null()) return out;
  out.on = true;
  if (!from["accounts"].is_array()) out.problems.push_back("spec.extensions.quota.accounts: a list is expected, such as [{account: research, queue: main}]");
  for (const auto& [name, value] : from.members())
    if (name != "accounts") out.problems.push_back(fmt::format("spec.extensions.quota.{}: there is no such field; there is accounts", name));
  for (std::size_t i = 0; i < from["accounts"].items().size(); ++i) {
    const Json& one = from["accounts"].items()[i];
    const std::string where = fmt::format("spec.extensions.quota.accounts[{}]", i);
    const std::size_t before = out.problems.size();
    for (const auto& [name, value] : one.members())
      if (name != "account" && name != "namespace" && name != "queue" && name != "team" && name != "priorityClass") out.problems.push_back(fmt::format("{}.{}: there is no such field; there are account, namespace, queue, team and priorityClass", where, name));
    SlurmQuotaLine line{.account = one["account"].string(), .space = one["namespace"].string(), .queue = one["queue"].string(), .priority_class = one["priorityClass"].string()};
    // Slurm writes them so.
    std::transform(line.account.begin(), line.account.end(), line.account.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (const std::string& team = one["team"].string(); !team.empty()) {
      if (!line.space.empty() || !line.queue.empty()) out.problems.push_back(where + ".team: stands for namespace and queue; give it alone, or those two");
      line.space = "hyperpod-ns-" + team;
      line.queue = line.space + "-localqueue";
    }
    if (line.space.empty()) line.space = kube::space_of(cluster);
    if (line.account.empty()) out.problems.push_back(where + ".account: the name of an account of Slurm is expected, or \"*\" for all others");
    if (line.queue.empty()) out.problems.push_back(where + ".queue: the name of a LocalQueue is expected, or team with that of a team");
    if (std::any_of(out.lines.begin(), out.lines.end(), [&](const SlurmQuotaLine& other) { return other.account == line.account; })) out.problems.push_back(fmt::format("{}.account: \"{}\" is there twice", where, line.account));
    if (out.problems.size() == before) out.lines.push_back(std::move(line));
  }
  return out;
}

const SlurmQuotaLine* SlurmQuota::line_of(const std::string& account) const {
  const SlurmQuotaLine* all = nullptr;
  for (const SlurmQuotaLine& line : lines) {
    if (!account.empty() && line.account == account) return &line;
    if (line.account == "*") all = &line;
  }
  return all;
}

}  // namespace fairlead::api
