// SPDX-License-Identifier: Apache-2.0
// Where several heads elect the one that serves (docs/design/005): the service's one endpoint, from what the heads say of themselves. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "api/slurm_cluster.h"
#include "slurm/plan/objects.h"

namespace fairlead::slurm {

inline const kube::Resource kEndpointSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
inline constexpr const char* kTerm = "fairlead.dev/term";           // annotation of the slice
inline constexpr const char* kTrouble = "fairlead.dev/head-trouble";  // another: why no head serves, in the words of one; gone as soon as one does

// What a head's companion says (`fairlead-slurm status`), lately enough to be believed.
struct HeadReport {
  std::string role;  // active, starting, standby
  std::uint64_t term = 0;
  std::string trouble = {};  // why it does not serve although it was elected; empty: nothing is known
  friend bool operator==(const HeadReport&, const HeadReport&) = default;
};
Result<HeadReport> read_head_report(const std::string& json);

// Who serves by the slice: the pod's name and the term. Nothing: nobody yet.
struct ActiveHead {
  std::string pod;
  std::uint64_t term = 0;
  friend bool operator==(const ActiveHead&, const ActiveHead&) = default;
};
std::optional<ActiveHead> active_head(const kube::Json* slice);
// Why none serves, as the slice tells it; empty: one does, or nothing is known.
std::string head_trouble(const kube::Json* slice);

// The slice to be written; nothing: it may stay as it is. Of several that say they serve, the one of the highest term does: another has lost its state and is about to end. An answer of an earlier term than the slice's is late
// and changes nothing; with no answer the endpoint stays, for silence says nothing of who serves. `reports` by pod name.
// While none of those that answer serves or starts, the slice tells why, if one of them says so; a slice that is not there yet is made for that, without an endpoint.
std::optional<kube::Json> desired_slice(const api::SlurmCluster& cluster, const std::map<std::string, HeadReport>& reports, const std::map<std::string, kube::Json>& pods, const kube::Json* have);

// Why a head's pod must not be made while another is there that counts other votes: one that needs no vote but its own is a majority by itself. Nothing: it may. The caller looks afresh, since a cache may be behind.
std::optional<std::string> votes_apart(const kube::Json& wanted, const kube::Json& there);

}  // namespace fairlead::slurm
