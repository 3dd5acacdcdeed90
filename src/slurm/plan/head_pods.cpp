// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/head_pods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "slurm/plan/inputs.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {

using kube::Json;

std::vector<int> HeadPods::order() const {
  std::vector<int> order;
  for (int i = 0; i < voters(cluster_); ++i) order.push_back(i);
  std::stable_partition(order.begin(), order.end(), [&](int i) { return !active_ || pod_name(Role::Controller, i) != active_->pod; });
  return order;
}

bool HeadPods::may_renew(int ordinal) const {
  if (first_is_alone()) return ordinal == 0;
  const Json* mine = find(snapshot_.pods, pod_name(Role::Controller, ordinal));
  const bool useful = mine && pod_ready(*mine);
  for (int i = 0; i < voters(cluster_); ++i) {
    if (i == ordinal) continue;
    const Json* other = find(snapshot_.pods, pod_name(Role::Controller, i));
    if (!other || kube::deleting(*other) || (useful && !pod_ready(*other))) return false;
  }
  return true;
}

bool HeadPods::first_is_alone() const {
  const Json* first = find(snapshot_.pods, pod_name(Role::Controller, 0));
  if (!first || !owned_by(*first, cluster_)) return false;
  return cluster_.controller.size > 1 && setting_of_pod(*first, "FAIRLEAD_HEADS").find(',') == std::string::npos;
}

std::optional<HeadPods::Fewer> HeadPods::become_one(const ObjectOptions& options, bool may_begin) const {
  if (cluster_.controller.size > 1) return std::nullopt;
  const Json* first = find(snapshot_.pods, pod_name(Role::Controller, 0));
  const Json* last = nullptr;
  int heads = 0;
  for (int i = 1; i < api::kMaxHeads; ++i)
    if (const Json* other = find(snapshot_.pods, pod_name(Role::Controller, i)); other && owned_by(*other, cluster_)) {
      last = other;
      const std::string names = setting_of_pod(*other, "FAIRLEAD_HEADS");
      heads = std::max(heads, static_cast<int>(std::count(names.begin(), names.end(), ',')) + 1);
    }
  if (!last) return std::nullopt;
  Fewer out;
  out.first_ready = first && owned_by(*first, cluster_) && pod_ready(*first);
  const std::string name = kube::name_of(*last), only = pod_name(Role::Controller, 0);
  api::SlurmCluster before = cluster_;  // as one of them
  before.controller.size = std::clamp(heads, 2, api::kMaxHeads);
  if (first && !owned_by(*first, cluster_)) out.foreign.push_back(only);
  else if (!first && may_begin) out.make = desired_pod(before, Role::Controller, 0, options);
  else if (first && !kube::deleting(*first) && pod_over(*first)) out.end.push_back({kube::key_of(*first), kube::uid_of(*first), "it has ended", kube::version_of(*first)});
  if (!first || !owned_by(*first, cluster_) || kube::deleting(*first) || !pod_ready(*first)) out.trouble.push_back(fmt::format("{} stays until {} is ready to serve alone", name, only));
  else if (!may_begin) out.trouble.push_back(fmt::format("{} stays until {} may be made anew to serve alone: see conditions ConfigValid and JailReady", name, only));
  else if (kube::deleting(*last)) out.trouble.push_back(fmt::format("{} is ending; {} serves alone when no other is left", name, only));
  else {
    out.end.push_back({kube::key_of(*last), kube::uid_of(*last), "one head is asked for", kube::version_of(*last)});
    out.trouble.push_back(fmt::format("{} goes, for one head is asked for", name));
  }
  return out;
}

kube::Condition HeadPods::condition(const Seen& seen) const {
  const auto no = [](const char* reason, std::string message) { return kube::Condition{"HAReady", "False", reason, std::move(message)}; };
  const bool two = voters(cluster_) > seen.wanted;
  if (const std::string trouble = head_trouble(find(snapshot_.slices, active_service(cluster_))); !trouble.empty()) {
    const auto known = known_trouble(trouble);
    return no(known ? known->reason : "NobodyServes", fmt::format("no head serves; {}{}", trouble, known ? fmt::format("; {}", known->remedy) : ""));
  }
  if (!active_) return no("NobodyServes", "no head has been elected yet");
  if (seen.ready < seen.wanted) return no("Degraded", fmt::format("{} serves (term {}), and {} of {} heads are ready: {}", active_->pod, active_->term, seen.ready, seen.wanted, fmt::join(seen.trouble, "; ")));
  if (two && !seen.witness_ready) return no("Degraded", fmt::format("{} serves (term {}), and the witness of the two heads is not ready: {}", active_->pod, active_->term, fmt::join(seen.trouble, "; ")));
  if (seen.wanted == 1 && !seen.trouble.empty()) return no("Degraded", fmt::format("{} serves (term {}); {}", active_->pod, active_->term, fmt::join(seen.trouble, "; ")));
  if (seen.wanted == 1) return no("OneHead", fmt::format("{} serves (term {}), and there is no other", active_->pod, active_->term));
  return {"HAReady", "True", "Ready", fmt::format("{} serves (term {}), {} heads {}are ready{}", active_->pod, active_->term, seen.ready, two ? "and their witness " : "", shared_machine())};
}

// Of three voters two on one machine are all that it takes.
std::string HeadPods::shared_machine() const {
  std::map<std::string, std::vector<std::string>> by_machine;
  for (const auto& [name, pod] : snapshot_.pods)
    if (const std::string& machine = pod["spec"]["nodeName"].string(); owned_by(pod, cluster_) && !machine.empty() && of_role(pod, cluster_, Role::Controller)) by_machine[machine].push_back(name);
  for (const auto& [machine, pods] : by_machine)
    if (pods.size() > 1) return fmt::format("; {} are on {}, and without that machine nobody serves: when another has room, delete the one of them that does not serve", fmt::join(pods, " and "), machine);
  return "";
}

}  // namespace fairlead::slurm
