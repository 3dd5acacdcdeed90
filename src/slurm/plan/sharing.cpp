// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/sharing.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kube/selector.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {
namespace {

using api::ClusterRef;
using api::SlurmCluster;
using kube::Json;

constexpr std::size_t kMostTold = 5;

ClusterRef ref_of(const Json& cluster) { return {kube::space_of(cluster), kube::name_of(cluster)}; }
ClusterRef ref_of(const SlurmCluster& cluster) { return {cluster.space, cluster.name}; }

std::string told(const std::vector<std::string>& names) {
  const std::size_t count = std::min(names.size(), kMostTold);
  std::string out = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (names.size() > count) out += fmt::format(" and {} more", names.size() - count);
  return out;
}

struct Refusal {
  std::string reason, message;
};
// Why the host that a guest names does not take its records. None: it does, as far as the resources say.
std::optional<Refusal> refusal(const Neighbours& around, const SlurmCluster& guest, const std::string& default_image) {
  const std::string there = guest.accounting.of->text();
  if (!around.readable)
    return Refusal{"OneNamespace", fmt::format("spec.extensions.accounting.of names {}, and this operator sees the namespace {} alone; accounting is shared where one operator serves all namespaces", there, guest.space)};
  if (around.host.is_null()) return Refusal{"NoSuchCluster", fmt::format("spec.extensions.accounting.of: there is no SlurmCluster {}; make it, or name another", there)};
  const SlurmCluster host = api::read_slurm_cluster(around.host, default_image);
  if (host.accounting.of) return Refusal{"NoAccountingThere", fmt::format("spec.extensions.accounting.of: {} has no slurmdbd of its own, its records go to {}; name that cluster", there, host.accounting.of->text())};
  // It stays for those that use it already.
  if (!host.accounting.enabled && !guest.accounting.sharing.joined) return Refusal{"NoAccountingThere", fmt::format("spec.extensions.accounting.of: accounting of {} is switched off; set spec.slurmNodes.accounting.enabled there", there)};
  if (!shares_with(host, ref_of(guest))) {
    const auto& list = host.accounting.shared_with;
    if (std::find(list.begin(), list.end(), ref_of(guest)) == list.end())
      return Refusal{"NotAllowed", fmt::format("{} does not share its accounting with this cluster: its owner adds {{namespace: {}, name: {}}} to spec.extensions.accounting.sharedWith there", there, guest.space, guest.name)};
    return Refusal{"NameTaken", fmt::format("another cluster of the name {} keeps its records at {}, and Slurm tells clusters by their names alone; this cluster needs another name", guest.name, there)};
  }
  return std::nullopt;
}

bool is_noted(const Json& host, const SlurmCluster& guest) {
  const auto& noted = host["status"]["accountingGuests"].items();
  return std::any_of(noted.begin(), noted.end(), [&](const Json& one) { return one["namespace"].string() == guest.space && one["name"].string() == guest.name; });
}

// Whether a guest that is not refused may join now, and why not.
std::optional<Refusal> not_yet(const Snapshot& snapshot, SlurmCluster& guest) {
  const Neighbours& around = snapshot.neighbours;
  const std::string there = guest.accounting.of->text();
  const Json* own = find(snapshot.secrets, munge_secret(guest));
  const std::string secret = munge_secret(guest);
  if (own && munge_mark(*own) != around.host_mark && !around.host_mark.empty())
    return Refusal{"KeyDiffers", fmt::format("the munge key of this cluster is not that of {}, so that its slurmdbd would take no record. A cluster gets the other's key when it is made. To change it while no job runs: "
                                             "`kubectl -n {} delete secret {}`, then delete all pods of the cluster", there, guest.space, secret)};
  if (kube::deleting(around.host)) return Refusal{"HostGoes", fmt::format("{} is being deleted", there)};
  if (!kube::has_finalizer(around.host, kSharingFinalizer) || around.host_mark.empty() || !is_noted(around.host, guest)) return Refusal{"Waiting", fmt::format("waits until {} has its keys and has noted that this cluster uses its accounting", there)};
  if (own) return std::nullopt;
  // slurmctld that never met slurmdbd starts by a guess of how its kinds of resources are numbered (docs/design/008), which fits a database of its own.
  if (!kube::condition_is_true(around.host, "AccountingAvailable")) return Refusal{"Waiting", fmt::format("waits until accounting of {} is available: see its condition AccountingAvailable", there)};
  guest.accounting.sharing.key_ready = true;
  return Refusal{"Waiting", fmt::format("the key of {} is being copied", there)};
}

void settle_guest(const Snapshot& snapshot, SlurmCluster& cluster, const std::string& default_image) {
  auto& accounting = cluster.accounting;
  auto& sharing = accounting.sharing;
  const Neighbours& around = snapshot.neighbours;
  const Json& memory = snapshot.cluster["status"]["sharedAccounting"];
  sharing.joined = memory["namespace"].string() == accounting.of->space && memory["name"].string() == accounting.of->name;
  if (sharing.joined) {
    sharing.port = static_cast<int>(memory["port"].integer(sharing.port));
    sharing.replicas = static_cast<int>(memory["replicas"].integer(sharing.replicas));
    sharing.addressed = memory["addresses"].boolean();
  }
  if (!accounting.problems.empty()) return;
  auto why = refusal(around, cluster, default_image);
  if (!why) {
    const SlurmCluster host = api::read_slurm_cluster(around.host, default_image);
    if (host.accounting.enabled && host.accounting.problems.empty()) {
      sharing.port = host.accounting.dbd.port;
      sharing.replicas = host.accounting.replicas;
      // Once there, they stay: by names that change back and forth slurmctld would be told to read its file again and again.
      sharing.addressed = sharing.addressed || around.host["status"]["accountingAddresses"].boolean();
    }
    why = not_yet(snapshot, cluster);
    sharing.joined = sharing.joined || !why;
    // Nothing is open to a cluster that takes nothing from this one.
    if (sharing.joined) sharing.partners = {{*accounting.of, host.controller.main.port, sharing.port, true}};
    if (!why && !kube::condition_is_true(around.host, "AccountingAvailable")) {
      const Json* condition = kube::find_condition(around.host, "AccountingAvailable");
      why = Refusal{"HostAway", fmt::format("accounting of {} is not available{}", accounting.of->text(), condition ? ": " + (*condition)["message"].string() : "")};
    }
  }
  if (!why) return;
  sharing.reason = std::move(why->reason);
  sharing.message = std::move(why->message);
  if (!sharing.joined) accounting.problems.push_back(sharing.message);
}

}  // namespace


std::optional<ClusterRef> host_of(const Json& cluster) {
  const Json& spec = cluster["spec"];
  const Json& of = spec["extensions"]["accounting"]["of"];
  if (!spec["slurmNodes"]["accounting"]["enabled"].boolean() || of.is_null()) return std::nullopt;
  for (const Json* named : {&of, &cluster["status"]["sharedAccounting"]})
    if (const ClusterRef ref{(*named)["namespace"].string(), (*named)["name"].string()}; !ref.space.empty() && kube::check_dns_label(ref.space).empty() && !ref.name.empty() && kube::check_dns_label(ref.name).empty()) return ref;
  return std::nullopt;
}

bool shares_with(const SlurmCluster& host, const ClusterRef& guest) {
  if (host.accounting.of || guest.name == host.name) return false;
  const auto& list = host.accounting.shared_with;
  const auto first = std::find_if(list.begin(), list.end(), [&](const ClusterRef& one) { return one.name == guest.name; });
  return first != list.end() && *first == guest;
}

void settle_sharing(const Snapshot& snapshot, SlurmCluster& cluster, const std::string& default_image) {
  if (cluster.accounting.enabled && cluster.accounting.of) return settle_guest(snapshot, cluster, default_image);
  // Of accounting that is switched off only those that use it already.
  for (const Json& guest : snapshot.neighbours.guests)
    if (const Json& joined = guest["status"]["sharedAccounting"]; shares_with(cluster, ref_of(guest)) && (cluster.accounting.enabled || (joined["namespace"].string() == cluster.space && joined["name"].string() == cluster.name))) cluster.accounting.sharing.partners.push_back({ref_of(guest), api::read_slurm_cluster(guest, default_image).controller.main.port, 0, false});
}

Json sharing_memory(const SlurmCluster& cluster) {
  const auto& accounting = cluster.accounting;
  if (!accounting.enabled || !accounting.of || !accounting.sharing.joined) return {};
  Json out = Json::object({{"namespace", accounting.of->space}, {"name", accounting.of->name}, {"port", accounting.sharing.port}, {"replicas", accounting.sharing.replicas}});
  if (accounting.sharing.addressed) out.set("addresses", true);
  return out;
}

std::optional<Json> guests_memory(const Snapshot& snapshot, const SlurmCluster& cluster) {
  if (!snapshot.neighbours.readable || cluster.accounting.of) return std::nullopt;
  Json out = Json::array();
  for (const Json& guest : snapshot.neighbours.guests)
    if (const ClusterRef ref = ref_of(guest); shares_with(cluster, ref)) out.push(Json::object({{"namespace", ref.space}, {"name", ref.name}}));
  return out.items().empty() ? Json() : out;
}

std::optional<Json> plan_hold(const Snapshot& snapshot, const std::string& default_image) {
  // Who cannot see guests does not know that there are none.
  if (!snapshot.neighbours.readable || !snapshot.cluster["status"].is_object()) return std::nullopt;
  const SlurmCluster cluster = api::read_slurm_cluster(snapshot.cluster, default_image);
  const bool has = kube::has_finalizer(snapshot.cluster, kSharingFinalizer);
  const auto& guests = snapshot.neighbours.guests;
  const bool used = std::any_of(guests.begin(), guests.end(), [&](const Json& guest) { return shares_with(cluster, ref_of(guest)); });
  if (used == has || (used && cluster.deleting)) return std::nullopt;
  Json next = snapshot.cluster;
  if (used) kube::add_finalizer(next, kSharingFinalizer);
  else kube::remove_finalizer(next, kSharingFinalizer);
  return next;
}

SharingState tell_sharing(const Snapshot& snapshot, const SlurmCluster& cluster) {
  SharingState out;
  std::vector<std::string> uses, asks;
  for (const Json& guest : snapshot.neighbours.guests) {
    if (cluster.accounting.of) break;
    (shares_with(cluster, ref_of(guest)) ? uses : asks).push_back(ref_of(guest).text());
  }
  out.tells = !cluster.accounting.of && (!cluster.accounting.shared_with.empty() || !asks.empty());
  out.used = !uses.empty();
  const std::string other = asks.empty() ? "" : fmt::format("; asked for and not allowed: {}; spec.extensions.accounting.sharedWith says who is, each by a name of its own", told(asks));
  if (cluster.deleting && out.used) {
    out.reason = "DeletionWaits";
    out.message = fmt::format("this cluster stays, with its slurmdbd, until {} use it no more: delete them, name another cluster in their spec.extensions.accounting.of, or strike them from this one's sharedWith", told(uses));
    if (kube::has_finalizer(snapshot.cluster, "foregroundDeletion")) out.message += "; it was deleted in the foreground, so Kubernetes ends its pods meanwhile, and slurmdbd is away";
  } else {
    out.reason = out.used ? "InUse" : "Unused";
    out.message = (out.used ? "keeps the records of " + told(uses) : "no other cluster keeps its records here") + other;
  }
  return out;
}

}  // namespace fairlead::slurm
