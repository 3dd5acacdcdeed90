// SPDX-License-Identifier: Apache-2.0
// One slurmdbd for clusters of several namespaces (docs/design/021): a guest names the cluster whose accounting it uses, a host names the guests that may, and both words count together. Pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/slurm_cluster.h"
#include "kube/json.h"

namespace fairlead::slurm {

struct Snapshot;

inline constexpr const char* kSharingFinalizer = "fairlead.dev/shared-accounting";  // of a host that guests use

// What lies in other namespaces.
struct Neighbours {
  bool readable = true;             // false: the operator sees one namespace
  kube::Json host;                  // that the cluster names; null: it is not there
  std::string host_mark;            // munge_mark of its key (trouble.h); empty: none is there
  std::vector<kube::Json> guests;   // clusters that name this one, by namespace and name
};
// Whom a SlurmCluster names; where that is no name, whose slurmdbd it uses. Of the object as it is.
std::optional<api::ClusterRef> host_of(const kube::Json& cluster);
// Does this cluster's list hold that one, and first of its name?
bool shares_with(const api::SlurmCluster& host, const api::ClusterRef& guest);
// The Secret with a cluster's munge key.
using api::munge_secret_of;

// Fills cluster.accounting.sharing; a guest that may not join gets a problem of accounting, so that what it has stays as it is.
void settle_sharing(const Snapshot& snapshot, api::SlurmCluster& cluster, const std::string& default_image);
// A guest whose wishes for accounting hold a mistake: what it has stays, its ways to slurmdbd and what is remembered too.
inline bool sharing_unclear(const api::SlurmCluster& cluster) { return cluster.accounting.enabled && cluster.accounting.of && !cluster.accounting.problems.empty() && cluster.accounting.sharing.reason.empty(); }
// Of status: whose slurmdbd takes the records. Null: nobody else's.
kube::Json sharing_memory(const api::SlurmCluster& cluster);
// Of a host's status (accountingGuests): who uses its accounting now. They come before others of their name, whatever the order of the list becomes (api/slurm_cluster.h). Nullopt: it is not known; null: nobody.
std::optional<kube::Json> guests_memory(const Snapshot& snapshot, const api::SlurmCluster& cluster);
// The object with the finalizer that it lacks, or without the one that nobody needs any more; none: it is as it should be.
std::optional<kube::Json> plan_hold(const Snapshot& snapshot, const std::string& default_image);

struct SharingState {
  bool tells = false, used = false;
  std::string reason, message;  // of condition AccountingShared
};
SharingState tell_sharing(const Snapshot& snapshot, const api::SlurmCluster& cluster);

}  // namespace fairlead::slurm
