// SPDX-License-Identifier: Apache-2.0
// Who may speak with whom: the one table of ports and groups (spec R0.7). The NetworkPolicies of each SlurmCluster, those of the chart (deploy/generate.sh) and the table in docs/network.md come
// from it. A connection passes if a line opens it; between groups that policies stand around, everything else is closed.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

// Groups of a SlurmCluster (Heads, Workers, Login, Accounting, Database, Exporter, Rest, Scripts) mean those of one cluster: those of another are nothing but Anybody to it, unless both share accounting
// (SharingHeads, SharingLogin, Guests, OtherAccounting; docs/design/021).
enum class Group { Anybody, People, Nodes, Server, Agents, Volumes, Pods, Names, ClusterApi, Monitoring, RestClients, Heads, Workers, Login, Accounting, Database, SiteDatabase, Exporter, Rest, Scripts, SharingHeads, SharingLogin, Guests, OtherAccounting, World };
std::string_view text(Group group);
std::string_view meaning(Group group);  // for people: which pods or addresses

enum class Protocol { Tcp, Udp };
std::string_view text(Protocol protocol);  // "TCP"
// Where the first port really comes from; the table has the default.
enum class PortOf { Table, Slurmctld, Slurmd, Sshd, Slurmdbd, Database, SiteDatabase, Metrics, Rest, Health, ApiServer };
// What keeps the rest closed: nothing but that nobody listens there; policies of each SlurmCluster; policies of the chart.
enum class Kept { Listener, SlurmPolicy, ChartPolicy };

struct Way {
  Group from, to;
  Protocol protocol = Protocol::Tcp;
  int first = 0, last = 0;  // 0: any port of the protocol
  PortOf port_of = PortOf::Table;
  Kept kept = Kept::SlurmPolicy;
  std::string_view what_for;
};
std::span<const Way> network_ways();

// Between groups of one SlurmCluster, with default ports. Anybody means these groups, too, as far as they may leave.
bool way_open(Group from, Group to, Protocol protocol, int port);

inline constexpr int kQuorumPort = 6821;  // UDP, between the heads of a SlurmCluster

inline constexpr const char* kSlurmClusterLabel = "fairlead.dev/slurm-cluster";
inline constexpr const char* kSlurmRoleLabel = "fairlead.dev/slurm-role";
inline constexpr const char* kScriptRole = "script";  // of a pod in which a lifecycle script runs (fleet/plan/lifecycle.h)
// Of a namespace; "allowed": its pods read the metrics of every SlurmCluster. Who may change namespaces says so, nobody else.
inline constexpr const char* kMonitoringLabel = "fairlead.dev/monitoring";
// Of a namespace; "allowed": its pods may speak to slurmrestd of every SlurmCluster, which asks them for a token.
inline constexpr const char* kRestLabel = "fairlead.dev/slurm-rest";
// Of a SlurmCluster; "Off": its policies are taken away.
inline constexpr const char* kNetworkIsolation = "fairlead.dev/network-isolation";

// Another cluster that shares accounting with this one: a guest of its slurmdbd, or, where it serves, the one whose slurmdbd this cluster uses.
struct SharingNetwork {
  std::string cluster, space;
  int slurmctld_port = 6817, slurmdbd_port = 6819;
  bool serves = false;
};
struct SlurmNetwork {
  std::string cluster, space;
  int slurmctld_port = 6817, slurmd_port = 6818, sshd_port = 22, slurmdbd_port = 6819, database_port = 3306, metrics_port = 8080, rest_port = 6820;
  bool accounting = false, database = false;  // pods with slurmdbd; a database of the cluster's own
  bool exporter = false;                      // a pod with Slurm's metrics
  bool rest = false;                          // pods with slurmrestd
  bool scripts = false;                       // pods in which lifecycle scripts run
  int external_database_port = 0;             // 0: slurmdbd speaks to no database but the cluster's own
  std::vector<SharingNetwork> sharing;
  // Ranges that are no part of the world although any address may be spoken to there: nodes, pods of others, the API server. Those of either family.
  std::vector<std::string> closed_ranges;
};
// NetworkPolicies by name and spec, complete as an API server would store them; the caller adds labels and owner. Equal arguments give equal policies.
struct PolicySpec {
  std::string name;
  kube::Json spec;
};
std::vector<PolicySpec> slurm_network_policies(const SlurmNetwork& network);
bool is_address_range(const std::string& text);  // "10.0.0.0/8" or "fd00::/8"

// The table for people (docs/network.md has it between two marks) and for programs: [{from, to, protocol, first, last, portOf, keptBy, for}].
std::string print_ways_markdown();
kube::Json ways_json();

}  // namespace fairlead::api
