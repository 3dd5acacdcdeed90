// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/surroundings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "slurm/plan/trouble.h"

namespace fairlead::slurm {

using kube::Json;

namespace {

// Figures in conditions are coarse: each look would change the status, which would bring the next look at once.

// A look takes up to 25 s, so that the operator's clock is read that much later.
constexpr auto kApart = std::chrono::seconds(60);
constexpr std::uint64_t kLeast = std::uint64_t{64} << 20;

std::string some(const std::vector<std::string>& names) {
  if (names.size() <= 5) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + 5, ", "), names.size() - 5);
}

}  // namespace

kube::Condition keys_condition(const std::string& name, const Json* secret, const std::vector<const Json*>& pods) {
  const auto no = [](const char* reason, std::string message) { return kube::Condition{"KeysMatch", "False", reason, std::move(message)}; };
  if (!secret) return no("SecretMissing", fmt::format("Secret {} is gone while pods run with its key: put it back. No new one is made, for new pods would not understand the others; to begin with a new key, delete all pods of the cluster", name));
  const std::string mark = munge_mark(*secret);
  if (mark.empty() && secret->has("data")) return no("KeyMissing", fmt::format("Secret {} holds no munge.key: put it back; pods that run go on until their munge restarts", name));
  std::vector<std::string> others;
  for (const Json* pod : pods)
    if (const std::string& its = (*pod)["metadata"]["annotations"][kMungeMark].string(); !its.empty() && its != mark) others.push_back(kube::name_of(*pod));
  if (others.empty()) return {"KeysMatch", "True", "Same", "every pod was started with the munge key that the Secret holds"};
  return no("KeyChanged", fmt::format("Secret {} holds another key than {} had at their start; once their munge restarts they and the others do not understand one another. Put the old key back, or, when no job runs, delete all pods of the "
                                      "cluster to begin with the new one",
                                      name, some(others)));
}

std::optional<kube::Condition> clocks_condition(const std::optional<SlurmView>& view, Instant now) {
  if (!view) return std::nullopt;
  const auto apart = std::chrono::duration_cast<std::chrono::seconds>(view->at - now);
  if (apart < kApart && apart > -kApart) return kube::Condition{"ClocksAgree", "True", "Together", "the head's clock and the operator's agree"};
  return kube::Condition{"ClocksAgree", "False", "Apart",
                         fmt::format("the head's clock is about {} s {} the operator's: let NTP set both machines. Munge refuses what is more than 300 s old or from the future, so nodes that differ as much cannot speak with one another",
                                     (std::abs(apart.count()) + 5) / 10 * 10, apart.count() > 0 ? "ahead of" : "behind")};
}

std::optional<kube::Condition> state_condition(const std::optional<SlurmView>& view) {
  if (!view || !view->state_size) return std::nullopt;
  const std::uint64_t free = view->state_free.value_or(0), size = *view->state_size;
  if (free >= std::min(size / 20, std::uint64_t{1} << 30) && free >= std::min(kLeast, size / 4)) return kube::Condition{"StateVolumeHasRoom", "True", "Room", "the volume of Slurm's state has room"};
  return kube::Condition{"StateVolumeHasRoom", "False", "NearlyFull",
                         fmt::format("less than {} % of {} MiB are free on the volume of Slurm's state: make room or a larger claim. When it is full, slurmctld confirms no new job; what runs goes on", free * 100 / std::max<std::uint64_t>(size, 1) + 1, size >> 20)};
}

std::vector<std::string> claims_waited_for(const std::vector<const Json*>& pods) {
  std::vector<std::string> out;
  for (const Json* pod : pods) {
    if ((*pod)["status"]["phase"].string() != "Pending" || kube::deleting(*pod)) continue;
    for (const Json& volume : (*pod)["spec"]["volumes"].items())
      if (const std::string& claim = volume["persistentVolumeClaim"]["claimName"].string(); !claim.empty()) out.push_back(claim);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::string> unbound_claims(const std::map<std::string, Json>& claims, const std::vector<std::string>& mounted) {
  std::vector<std::string> out;
  for (const auto& name : mounted) {
    const auto found = claims.find(name);
    if (found == claims.end() || found->second["status"]["phase"].string() != "Pending") continue;
    const Json& spec = found->second["spec"];
    const Json* of_class = spec.find("storageClassName");
    bool many = false;
    for (const Json& mode : spec["accessModes"].items()) many = many || mode.string() == "ReadWriteMany";
    out.push_back(fmt::format("claim {} has no volume ({}): `kubectl describe pvc {}` tells why{}", name,
                              of_class && !of_class->string().empty() ? "storage class " + of_class->string() : of_class ? "no storage class" : "the default storage class", name,
                              many ? "; it asks for ReadWriteMany, which not every storage class offers (block volumes do not, NFS and the like do)" : ""));
  }
  return out;
}

}  // namespace fairlead::slurm
