// SPDX-License-Identifier: Apache-2.0
// One look at a SlurmCluster and everything that belongs to it gives the steps to take now and the status to show. Pure: asked again after each change.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "slurm/plan/failure.h"
#include "slurm/plan/heads.h"
#include "slurm/plan/login_renewal.h"
#include "slurm/plan/objects.h"
#include "slurm/plan/rollout.h"
#include "slurm/plan/scale.h"
#include "slurm/plan/sharing.h"

namespace fairlead::slurm {

// What munge on a worker says of a credential that the head's munge has just made (plan/munge_word.h).
struct MungeWord {
  std::string status;                         // munge's own: "Success", "Expired credential", "Rewound credential", "Invalid credential"
  std::optional<std::chrono::seconds> ahead;  // of the worker's clock to the head's
};

struct Snapshot {
  kube::Json cluster;  // the object as read
  std::map<std::string, kube::Json> pods, services, config_maps, secrets, claims, policies, slices, node_sets;  // of its namespace, by name
  std::map<std::string, Proof> ended;       // workers whose pods went after their end was confirmed (plan/failure.h)
  std::map<std::string, kube::Json> nodes;  // of Kubernetes, that have its pods; none where the operator may not read them, and then no machine counts as dead
  bool only_cluster = true;       // of its namespace: NodeSets that name none are its own
  std::optional<SlurmView> view;  // where wants_look asked for it and Slurm answered
  std::optional<Trial> trial;     // where wants_trial asked for it
  // The configuration that each pod was seen to run, by its uid: its hash. Of other pods nothing is known.
  std::map<std::string, std::string> seen_configs;
  std::map<std::string, Instant> other_configs;  // by the pod's uid: since when it was seen to run another one than it is to
  std::map<std::string, Sessions> sessions;  // of login pods by uid, where wants_sessions asked and the pod answered
  std::map<std::string, MungeWord> munge_words;  // of workers that are not ready by uid, where wants_munge_words asked and the pod answered
  std::optional<kube::Json> sets;  // where wants_sets (backup.h) asked for it and the pod answered
  Neighbours neighbours;          // clusters of other namespaces that this one shares accounting with
  bool look_due = false;          // Slurm was not looked at for long, or not yet by this operator: what it never wrote down, or what was carried out late, is found only so
};

inline const kube::Resource kNetworkPolicies{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true};

struct Create { kube::Resource resource; kube::Json object; };
struct Update { kube::Resource resource; kube::Json object; };                 // carries the resourceVersion it was decided on
struct OfSet { std::string name; std::int64_t generation = 0; };               // the NodeSet, as it was when this was decided; no name: the SlurmCluster alone
struct WriteStatus { kube::Resource resource; kube::Json object; };
struct DeletePod { kube::ObjectKey key; std::string uid; std::string why; std::string version; bool leaves = false; OfSet set = {}; bool forget = false; };  // the one, in the state, that it was decided on; leaves: a worker beyond the size; forget: its machine is dead, nobody confirms its end
struct Remove { kube::Resource resource; kube::ObjectKey key; std::string uid; std::string why; std::string version; };  // what belongs to the cluster and is not wanted any more
enum class Keys { Munge, Quorum, HostKeys, ClientKey, Database, Tokens };
// Generated where chance is allowed, or copied from that cluster's Secret if it still shares its accounting with this one; then created once.
struct MakeKeys { Keys keys; std::string secret; std::optional<api::ClusterRef> copy_of = {}; };
// Tell slurmctld to read the files again, or to start anew, once they show this hash. `others`: heads that must have the files before one of them is made to serve.
struct Reconfigure { kube::ObjectKey head; std::string hash, term; bool always = false, restart = false; std::vector<kube::ObjectKey> others; };
// To a worker that slurmctld told of it in vain: the files themselves.
struct GiveConfig { kube::ObjectKey worker; std::string uid, hash; std::map<std::string, std::string> files; };
struct NodeStep { kube::ObjectKey head; TellSlurm tell; std::string pod_uid; OfSet set; };  // by fairlead-slurm, which looks once more before it acts; the worker's pod, where it has one
using Step = std::variant<Create, Update, WriteStatus, Remove, DeletePod, MakeKeys, Reconfigure, GiveConfig, NodeStep>;
std::string describe(const Step& step);

struct Plan {
  std::vector<Step> steps;
  kube::Json status;   // to be written if it differs from the cluster's
  std::vector<std::string> waiting_for;  // reasons, for people
  std::vector<std::string> ends_known;   // of Snapshot::ended: need not be remembered any more
  std::optional<std::chrono::nanoseconds> look_again;  // while workers leave or come back
};

// Does the chart that made this resource (annotation fairlead.dev/chart: NAME-VERSION) fit this operator? They go together by major and minor version. A
// warning: the cluster goes on. None: it was not made by a chart.
inline constexpr const char* kChart = "fairlead.dev/chart";
std::optional<kube::Condition> chart_condition(const kube::Json& cluster, const std::string& operator_version);

// Has somebody the machines of its workers who reboots and replaces them? Then Slurm is looked at so often, for what people ask for there (plan/actions.h): every 30 seconds, and every 5 while something is asked for. None: nobody has.
std::optional<std::chrono::seconds> action_look(const kube::Json& cluster);

// Does the plan need to know what Slurm knows? Then the head named is to be asked: `fairlead-slurm nodes`.
struct Look { kube::ObjectKey head; int slurmd_port = 0; std::string nodes; int queue = 0; };  // nodes: whose jobs are asked for; empty: all; queue: so many of the jobs that wait, too
// Is a configuration to be tried on the daemon before it may be given to the pods? Then in the head named: `fairlead-slurm check-config`.
struct TrialWanted { kube::ObjectKey head; std::string hash; std::map<std::string, std::string> files; };
std::optional<TrialWanted> wants_trial(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now);
// Pods whose configuration in use is to be asked for (`fairlead-slurm generation`), with the container to ask in.
struct ConfigOf { kube::ObjectKey pod; std::string uid, container; };
std::vector<ConfigOf> wants_configs(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now);
// Login pods of which the plan must know whether people are in them (`fairlead-slurm sessions`).
std::vector<ConfigOf> wants_sessions(const Snapshot& snapshot, const std::string& default_image);
std::optional<Look> wants_look(const Snapshot& snapshot, const std::string& default_image, Instant now);

// Never deletes a login pod in which somebody is (plan/login_renewal.h), and a worker only when Slurm showed it drained and empty twice (plan/scale.h): what would end jobs or sessions is held back and named in a condition.
Plan plan_reconcile(const Snapshot& snapshot, const ObjectOptions& options, const std::string& default_image, Instant now);

}  // namespace fairlead::slurm
