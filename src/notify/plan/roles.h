// SPDX-License-Identifier: Apache-2.0
// Which events follow from how the heads of a Slurm cluster stood when they were last told of, and how they stand now. Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/slurm_cluster.h"
#include "notify/plan/event.h"

namespace fairlead::notify {

// Off: no pod, or one that has ended, is ending or is not ready. Unknown: its node does not report; nobody can tell.
enum class HeadState { Off, Unknown, Standby, On };
std::string_view text(HeadState state);

struct Head {
  HeadState state = HeadState::Off;
  std::string why;  // of Off and Unknown, where it can be told
};
struct HeadsNow {
  std::map<std::string, Head> heads;  // all that are asked for, by pod name
  std::optional<Head> witness;        // of two heads: pod controller-2, which votes and serves never
  std::string serves;                 // by the election, or the only head; empty: nobody has yet
  std::uint64_t term = 0;
  int wanted = 1;
};
// `pods`: of the cluster's namespace by name; `slice`: the one that names the elected head (CLUSTER-controller-active), if there is one.
HeadsNow read_heads(const api::SlurmCluster& cluster, const std::map<std::string, kube::Json>& pods, const kube::Json* slice);

// What was told of, kept in status.notifications.heads of the SlurmCluster: {"controller-0": {"state": "On", "seq": 4}}; the witness as "witness".
struct Told {
  HeadState state = HeadState::Off;
  std::int64_t seq = 0;
  friend bool operator==(const Told&, const Told&) = default;
};
using Record = std::map<std::string, Told>;
std::optional<Record> read_record(const kube::Json& cluster);  // nothing: there is none
kube::Json record_json(const Record& record);

// Events that the API did not take for a topic (a quota, a policy, a name that is none), kept in status.notifications.refused until one is taken again.
struct Refusal {
  std::int64_t events = 0;
  std::string why;  // the API's last answer, at most 300 characters
  friend bool operator==(const Refusal&, const Refusal&) = default;
};
using Refusals = std::map<std::string, Refusal>;  // by topic
Refusals read_refusals(const kube::Json& cluster);
kube::Json refusals_json(const Refusals& refusals);

struct RolePlan {
  std::vector<Event> events;  // losses before gains, by head
  Record record;              // to be written once the events are safe
};
// A first look tells nothing but remembers; so does the first look at a witness. Asked again with the same record, it gives the same ids.
RolePlan plan_events(const api::SlurmCluster& cluster, const std::optional<Record>& told, const HeadsNow& now, Instant time);

}  // namespace fairlead::notify
