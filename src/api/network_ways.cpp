// SPDX-License-Identifier: Apache-2.0
#include "api/network_ways.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

namespace fairlead::api {
namespace {
using kube::Json;
using enum Group;

constexpr int kAnyJobPort = 1024, kLastPort = 65535;

// In the order in which people read it. Lines that differ in nothing but the sender stand together.
constexpr Way kWays[] = {
    {.from = People, .to = Server, .first = 6443, .last = 6443, .kept = Kept::Listener, .what_for = "the API of the embedded engine (HTTPS)"},
    {.from = Nodes, .to = Server, .first = 6443, .last = 6443, .kept = Kept::Listener, .what_for = "watching pods, status, leases, tokens (HTTPS)"},
    {.from = People, .to = Server, .first = 6444, .last = 6444, .kept = Kept::Listener, .what_for = "AWS clients (HTTPS)"},
    {.from = Pods, .to = Server, .first = 6444, .last = 6444, .kept = Kept::Listener, .what_for = "AWS clients in pods that have a role (HTTPS)"},
    {.from = Nodes, .to = Server, .first = 6444, .last = 6444, .kept = Kept::Listener, .what_for = "container credentials of their pods, and their own role (HTTPS)"},
    {.from = ClusterApi, .to = Server, .first = 6444, .last = 6444, .kept = Kept::Listener, .what_for = "what new pods get, and tokens of AWS's clients (HTTPS)"},
    {.from = Pods, .to = Nodes, .first = 80, .last = 80, .kept = Kept::Listener, .what_for = "container credentials, at 169.254.170.23"},
    {.from = Server, .to = Nodes, .first = 10250, .last = 10250, .kept = Kept::Listener, .what_for = "logs, exec, attach (HTTPS, certificate of the server)"},
    {.from = Pods, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .kept = Kept::Listener, .what_for = "names"},
    {.from = Pods, .to = Names, .first = 53, .last = 53, .kept = Kept::Listener, .what_for = "names"},
    {.from = Monitoring, .to = Server, .first = 8080, .last = 8080, .port_of = PortOf::Health, .kept = Kept::ChartPolicy, .what_for = "metrics"},
    {.from = ClusterApi, .to = Server, .first = 9443, .last = 9443, .kept = Kept::ChartPolicy, .what_for = "conversion between versions of queues (HTTPS); from any address, as the API may run outside the cluster's network"},
    {.from = Server, .to = ClusterApi, .first = 6443, .last = 6443, .port_of = PortOf::ApiServer, .kept = Kept::ChartPolicy, .what_for = "the API of the cluster that the server is installed in"},
    {.from = Server, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .kept = Kept::ChartPolicy, .what_for = "names"},
    {.from = Server, .to = Names, .first = 53, .last = 53, .kept = Kept::ChartPolicy, .what_for = "names"},
    {.from = Server, .to = Pods, .first = 8080, .last = 8080, .kept = Kept::ChartPolicy, .what_for = "agents (hyperpodrun) in the pods of training jobs; one with another --server-port needs a way of its own"},
    {.from = Server, .to = World, .first = 443, .last = 443, .kept = Kept::ChartPolicy, .what_for = "notifications by webhook"},
    {.from = Server, .to = World, .first = 465, .last = 465, .kept = Kept::ChartPolicy, .what_for = "notifications by mail, TLS"},
    {.from = Server, .to = World, .first = 587, .last = 587, .kept = Kept::ChartPolicy, .what_for = "notifications by mail, STARTTLS"},
    {.from = Monitoring, .to = Volumes, .first = 8080, .last = 8080, .port_of = PortOf::Health, .kept = Kept::ChartPolicy, .what_for = "metrics of pools"},
    {.from = Volumes, .to = ClusterApi, .first = 6443, .last = 6443, .port_of = PortOf::ApiServer, .kept = Kept::ChartPolicy, .what_for = "volumes, claims, attachments"},
    {.from = Volumes, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .kept = Kept::ChartPolicy, .what_for = "names"},
    {.from = Volumes, .to = Names, .first = 53, .last = 53, .kept = Kept::ChartPolicy, .what_for = "names"},
    {.from = Heads, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld"},
    {.from = Heads, .to = Heads, .protocol = Protocol::Udp, .first = kQuorumPort, .last = kQuorumPort, .what_for = "which of several heads serves"},
    {.from = Workers, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld: registration, configuration, steps, commands in jobs"},
    {.from = Login, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld: commands"},
    {.from = Heads, .to = Workers, .first = 6818, .last = 6818, .port_of = PortOf::Slurmd, .what_for = "slurmd: starting and ending jobs"},
    {.from = Workers, .to = Workers, .first = 6818, .last = 6818, .port_of = PortOf::Slurmd, .what_for = "slurmd: messages handed on, srun in jobs"},
    {.from = Login, .to = Workers, .first = 6818, .last = 6818, .port_of = PortOf::Slurmd, .what_for = "slurmd: srun starts its steps"},
    {.from = Heads, .to = Workers, .first = kAnyJobPort, .last = kLastPort, .what_for = "slurmctld answers srun in jobs, which listens where it likes"},
    {.from = Workers, .to = Workers, .first = kAnyJobPort, .last = kLastPort, .what_for = "ports of a running job"},
    {.from = Workers, .to = Workers, .protocol = Protocol::Udp, .first = kAnyJobPort, .last = kLastPort, .what_for = "ports of a running job"},
    {.from = Login, .to = Workers, .first = kAnyJobPort, .last = kLastPort, .what_for = "ports of a running job: input of steps, notebooks, dashboards"},
    {.from = Heads, .to = Login, .first = kAnyJobPort, .last = kLastPort, .what_for = "slurmctld answers srun and salloc, which listen where they like"},
    {.from = Workers, .to = Login, .first = kAnyJobPort, .last = kLastPort, .what_for = "output of steps to srun"},
    {.from = Anybody, .to = Login, .first = 22, .last = 22, .port_of = PortOf::Sshd, .what_for = "ssh"},
    {.from = Workers, .to = Login, .first = 22, .last = 22, .port_of = PortOf::Sshd, .what_for = "ssh"},
    {.from = Login, .to = Login, .first = 22, .last = 22, .port_of = PortOf::Sshd, .what_for = "ssh"},
    {.from = Heads, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd: records of jobs, associations"},
    {.from = Workers, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd: sacct in jobs"},
    {.from = Login, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd: sacct, sreport, sacctmgr"},
    {.from = Accounting, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "which of two slurmdbd serves"},
    {.from = Accounting, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "changes of accounts, users and limits"},
    {.from = Accounting, .to = Database, .first = 3306, .last = 3306, .port_of = PortOf::Database, .what_for = "the cluster's own database (TLS)"},
    {.from = Accounting, .to = SiteDatabase, .first = 3306, .last = 3306, .port_of = PortOf::SiteDatabase, .what_for = "a database of the site's, where one is named"},
    {.from = Guests, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd of a cluster that shares it: records, sacct, sacctmgr"},
    {.from = Accounting, .to = SharingHeads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "changes of accounts, users and limits, to clusters that use this slurmdbd"},
    {.from = Heads, .to = OtherAccounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd of another cluster that shares it: records of jobs, associations"},
    {.from = Workers, .to = OtherAccounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd of another cluster that shares it: sacct in jobs"},
    {.from = Login, .to = OtherAccounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd of another cluster that shares it: sacct, sreport, sacctmgr"},
    {.from = OtherAccounting, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "changes of accounts, users and limits, from the slurmdbd that this cluster uses"},
    {.from = Login, .to = SharingHeads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "commands with `-M`, where clusters share accounting"},
    {.from = SharingLogin, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "commands with `-M`, where clusters share accounting"},
    {.from = Exporter, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld: what it knows of nodes and jobs"},
    {.from = Monitoring, .to = Exporter, .first = 8080, .last = 8080, .port_of = PortOf::Metrics, .what_for = "metrics of Slurm, with names of users and jobs"},
    {.from = Login, .to = Rest, .first = 6820, .last = 6820, .port_of = PortOf::Rest, .what_for = "slurmrestd, by token (HTTP, not encrypted)"},
    {.from = RestClients, .to = Rest, .first = 6820, .last = 6820, .port_of = PortOf::Rest, .what_for = "slurmrestd, by token (HTTP, not encrypted)"},
    {.from = Rest, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld: what a token's owner asks"},
    {.from = Rest, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd: what a token's owner asks"},
    {.from = Scripts, .to = Heads, .first = 6817, .last = 6817, .port_of = PortOf::Slurmctld, .what_for = "slurmctld: commands in lifecycle scripts"},
    {.from = Scripts, .to = Accounting, .first = 6819, .last = 6819, .port_of = PortOf::Slurmdbd, .what_for = "slurmdbd: sacctmgr in lifecycle scripts"},
    {.from = Heads, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Heads, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Workers, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Workers, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Login, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Login, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Accounting, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Accounting, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Exporter, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Exporter, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Rest, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Rest, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Scripts, .to = Names, .protocol = Protocol::Udp, .first = 53, .last = 53, .what_for = "names"},
    {.from = Scripts, .to = Names, .first = 53, .last = 53, .what_for = "names"},
    {.from = Workers, .to = World, .what_for = "packages, data, containers, experiment trackers"},
    {.from = Workers, .to = World, .protocol = Protocol::Udp, .what_for = "packages, data, containers, experiment trackers"},
    {.from = Login, .to = World, .what_for = "packages, data, containers, experiment trackers"},
    {.from = Login, .to = World, .protocol = Protocol::Udp, .what_for = "packages, data, containers, experiment trackers"},
    {.from = Scripts, .to = World, .what_for = "packages, data, containers, experiment trackers"},
    {.from = Scripts, .to = World, .protocol = Protocol::Udp, .what_for = "packages, data, containers, experiment trackers"},
};

// Where clouds answer questions about the machine and hand out its credentials: for nobody but pods in the node's own network (spec R1.7).
const std::vector<std::string>& metadata_ranges() {
  static const std::vector<std::string> list = {"169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128"};
  return list;
}

bool is_slurm(Group group) { return group == Heads || group == Workers || group == Login || group == Accounting || group == Database || group == Exporter || group == Rest || group == Scripts; }
const char* role_of(Group group) {
  switch (group) {
    case Heads: return "controller";
    case Workers: return "worker";
    case Accounting: return "accounting";
    case Database: return "database";
    case Exporter: return "exporter";
    case Rest: return "rest";
    case Scripts: return kScriptRole;
    default: return "login";
  }
}

Json selector_of(const SlurmNetwork& network, Group group) {
  return Json::object({{"matchLabels", Json::object({{kSlurmClusterLabel, network.cluster}, {kSlurmRoleLabel, role_of(group)}})}});
}

bool is_sharing(Group group) { return group == SharingHeads || group == SharingLogin || group == Guests || group == OtherAccounting; }
// Guests are clusters that do not serve, slurmdbd is of the one that does.
bool stands_for(Group group, const SharingNetwork& other) { return group == Guests ? !other.serves : group == OtherAccounting ? other.serves : true; }
Json sharing_peers(const SharingNetwork& other, Group group) {
  const Json space = Json::object({{"matchLabels", Json::object({{"kubernetes.io/metadata.name", other.space}})}});
  const auto roles = group == SharingHeads ? std::vector{Heads} : group == SharingLogin ? std::vector{Login} : group == OtherAccounting ? std::vector{Accounting} : std::vector{Heads, Workers, Login};
  Json out = Json::array();
  for (const Group role : roles)
    out.push(Json::object({{"namespaceSelector", space}, {"podSelector", Json::object({{"matchLabels", Json::object({{kSlurmClusterLabel, other.cluster}, {kSlurmRoleLabel, role_of(role)}})}})}}));
  return out;
}

bool within(const std::string& range, bool six) { return (range.find(':') != std::string::npos) == six; }

// The other end of a way, as a list of peers; null: anybody.
Json peers_of(const SlurmNetwork& network, Group group) {
  if (is_slurm(group)) return Json::array({Json::object({{"podSelector", selector_of(network, group)}})});
  if (group == Monitoring || group == RestClients)
    return Json::array({Json::object({{"namespaceSelector", Json::object({{"matchLabels", Json::object({{group == Monitoring ? kMonitoringLabel : kRestLabel, "allowed"}})}})}})});
  if (group != World) return {};
  Json out = Json::array();
  for (const bool six : {false, true}) {
    Json except = Json::array();
    for (const auto* list : {&metadata_ranges(), &network.closed_ranges})
      for (const std::string& range : *list)
        if (within(range, six)) except.push(range);
    Json block = Json::object({{"cidr", six ? "::/0" : "0.0.0.0/0"}});
    block.set("except", std::move(except));
    out.push(Json::object({{"ipBlock", std::move(block)}}));
  }
  return out;
}

int port_of(const SlurmNetwork& network, const Way& way) {
  switch (way.port_of) {
    case PortOf::Slurmctld: return network.slurmctld_port;
    case PortOf::Slurmd: return network.slurmd_port;
    case PortOf::Sshd: return network.sshd_port;
    case PortOf::Slurmdbd: return network.slurmdbd_port;
    case PortOf::Database: return network.database_port;
    case PortOf::SiteDatabase: return network.external_database_port;
    case PortOf::Metrics: return network.metrics_port;
    case PortOf::Rest: return network.rest_port;
    default: return way.first;
  }
}

Json port_json(const SlurmNetwork& network, const Way& way) {
  Json out = Json::object({{"protocol", std::string(text(way.protocol))}});
  if (way.first == 0) return out;
  const int first = port_of(network, way);
  out.set("port", first);
  if (way.last > way.first) out.set("endPort", way.last);
  return out;
}

bool has(const SlurmNetwork& network, Group group) {
  switch (group) {
    case Accounting: return network.accounting;
    case Database: return network.accounting && network.database;
    case Exporter: return network.exporter;
    case Rest: return network.rest;
    case Scripts: return network.scripts;
    case SharingHeads:
    case SharingLogin:
    case Guests:
    case OtherAccounting: return std::any_of(network.sharing.begin(), network.sharing.end(), [&](const auto& other) { return stands_for(group, other); });
    case SiteDatabase: return network.accounting && network.external_database_port > 0;
    default: return true;
  }
}

// One rule for each other end, with all its ports.
Json rules_of(const SlurmNetwork& network, Group group, bool in) {
  std::vector<std::pair<Group, Json>> by_peer;
  for (const Way& way : kWays) {
    if (way.kept != Kept::SlurmPolicy || (in ? way.to : way.from) != group) continue;
    if (!has(network, way.from) || !has(network, way.to)) continue;
    const Group other = in ? way.from : way.to;
    if (is_sharing(other)) continue;
    auto at = std::find_if(by_peer.begin(), by_peer.end(), [&](const auto& one) { return one.first == other; });
    if (at == by_peer.end()) at = by_peer.insert(by_peer.end(), {other, Json::array()});
    at->second.push(port_json(network, way));
  }
  Json out = Json::array();
  for (auto& [other, ports] : by_peer) {
    Json rule = Json::object({{"ports", std::move(ports)}});
    if (Json peers = peers_of(network, other); peers.is_array()) rule.set(in ? "from" : "to", std::move(peers));
    out.push(std::move(rule));
  }
  // Of each other cluster by itself: its ports are its own.
  for (const auto& sharing : network.sharing) {
    SlurmNetwork theirs = network;
    theirs.slurmctld_port = sharing.slurmctld_port;
    theirs.slurmdbd_port = sharing.slurmdbd_port;
    for (const Way& way : kWays) {
      if ((in ? way.to : way.from) != group || !is_sharing(in ? way.from : way.to)) continue;
      const Group other = in ? way.from : way.to;
      if (!stands_for(other, sharing) || !has(network, way.from) || !has(network, way.to)) continue;
      Json rule = Json::object({{"ports", Json::array({port_json(in ? network : theirs, way)})}});
      rule.set(in ? "from" : "to", sharing_peers(sharing, other));
      out.push(std::move(rule));
    }
  }
  return out;
}

std::string ports_text(const Way& way) {
  if (way.first == 0) return "any";
  if (way.last > way.first) return fmt::format("{}-{}", way.first, way.last);
  switch (way.port_of) {
    case PortOf::Slurmctld: return fmt::format("{} (`slurmctld.port`)", way.first);
    case PortOf::Slurmd: return fmt::format("{} (`slurmd.port`)", way.first);
    case PortOf::Sshd: return fmt::format("{} (`sshd.port`)", way.first);
    case PortOf::Slurmdbd: return fmt::format("{} (`slurmdbd.port`)", way.first);
    case PortOf::Database: return fmt::format("{} (`mariadbOperator.port`)", way.first);
    case PortOf::SiteDatabase: return fmt::format("{} (`externalDB.port`)", way.first);
    case PortOf::Metrics: return fmt::format("{} (`exporter.port`)", way.first);
    case PortOf::Rest: return fmt::format("{} (`rest.port`)", way.first);
    case PortOf::ApiServer: return fmt::format("443, {} (`networkPolicy.apiServerPorts`)", way.first);
    default: return std::to_string(way.first);
  }
}

std::string_view kept_text(Kept kept) {
  switch (kept) {
    case Kept::Listener: return "who listens";
    case Kept::SlurmPolicy: return "the cluster's policies";
    case Kept::ChartPolicy: return "the chart's policies";
  }
  return "";
}
std::string_view port_of_text(PortOf port) {
  switch (port) {
    case PortOf::Table: return "";
    case PortOf::Slurmctld: return "slurmctld";
    case PortOf::Slurmd: return "slurmd";
    case PortOf::Sshd: return "sshd";
    case PortOf::Slurmdbd: return "slurmdbd";
    case PortOf::Database: return "database";
    case PortOf::SiteDatabase: return "siteDatabase";
    case PortOf::Metrics: return "metrics";
    case PortOf::Rest: return "rest";
    case PortOf::Health: return "health";
    case PortOf::ApiServer: return "apiServer";
  }
  return "";
}

}  // namespace

std::span<const Way> network_ways() { return kWays; }

std::string_view text(Protocol protocol) { return protocol == Protocol::Tcp ? "TCP" : "UDP"; }
std::string_view text(Group group) {
  switch (group) {
    case Anybody: return "anybody";
    case People: return "people";
    case Nodes: return "nodes";
    case Server: return "server";
    case Agents: return "agents";
    case Volumes: return "volumes";
    case Pods: return "pods";
    case Names: return "names";
    case ClusterApi: return "cluster API";
    case Monitoring: return "monitoring";
    case Heads: return "heads";
    case Workers: return "workers";
    case Login: return "login";
    case Accounting: return "accounting";
    case Database: return "database";
    case SiteDatabase: return "site's database";
    case Exporter: return "exporter";
    case Rest: return "rest";
    case RestClients: return "REST clients";
    case Scripts: return "scripts";
    case SharingHeads: return "sharing heads";
    case SharingLogin: return "sharing login";
    case Guests: return "guests";
    case OtherAccounting: return "other accounting";
    case World: return "world";
  }
  return "";
}
std::string_view meaning(Group group) {
  switch (group) {
    case Anybody: return "any address, also pods of other clusters";
    case People: return "who has credentials, from any address that the server listens for";
    case Nodes: return "machines with an agent or kubelet, and pods in their network";
    case Server: return "`fairlead-server`, on a machine or in the chart's pods";
    case Agents: return "the chart's pods that put the companion program on nodes; no way leads to or from them";
    case Volumes: return "the chart's pods of block volumes: pools and the CSI driver with its sidecars, where `volumes.enabled` says so";
    case Pods: return "pods that no policy stands around";
    case Names: return "the name server of the node or of the cluster";
    case ClusterApi: return "the kube-apiserver of the cluster that the chart is installed in";
    case Monitoring: return "who reads metrics: the server's by `networkPolicy.metricsFrom` (else any pod), a cluster's from namespaces with the label `fairlead.dev/monitoring: allowed` (else nobody)";
    case Heads: return "pods with slurmctld; of two heads, their witness, too";
    case Workers: return "pods with slurmd, and the jobs in them";
    case Login: return "pods with sshd, and the sessions in them";
    case Accounting: return "pods with slurmdbd";
    case Database: return "the pod with the cluster's own MariaDB";
    case SiteDatabase: return "a database server that the resource names (`externalDB.host`); any address, at that port alone";
    case RestClients: return "pods of namespaces with the label `fairlead.dev/slurm-rest: allowed`";
    case Rest: return "pods with slurmrestd, where there are any";
    case Scripts: return "pods in which lifecycle scripts of CreateCluster run";
    case Exporter: return "the pod that serves Slurm's metrics, where there is one";
    case SharingHeads: return "pods with slurmctld of a cluster that shares accounting with this one (`extensions.accounting.of`, `sharedWith`)";
    case SharingLogin: return "pods with sshd of a cluster that shares accounting with this one";
    case Guests: return "heads, workers and login nodes of a cluster whose records this cluster's slurmdbd keeps";
    case OtherAccounting: return "pods with slurmdbd of the cluster that keeps this one's records";
    case World: return "any address but link-local ones (the machine's metadata service) and, where they are known, nodes and pods of the site (`--closed-range`)";
  }
  return "";
}

bool way_open(Group from, Group to, Protocol protocol, int port) {
  return std::any_of(std::begin(kWays), std::end(kWays), [&](const Way& way) {
    const bool sender = way.from == from || (way.from == Anybody && !is_slurm(from));
    return sender && way.to == to && way.protocol == protocol && (way.first == 0 || (port >= way.first && port <= way.last));
  });
}

bool is_address_range(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return false;
  const bool six = text.find(':') != std::string::npos;
  unsigned char bytes[16];
  if (::inet_pton(six ? AF_INET6 : AF_INET, text.substr(0, slash).c_str(), bytes) != 1) return false;
  const std::string bits = text.substr(slash + 1);
  if (bits.empty() || bits.size() > 3 || bits.find_first_not_of("0123456789") != std::string::npos) return false;
  return std::stoi(bits) <= (six ? 128 : 32);
}

std::vector<PolicySpec> slurm_network_policies(const SlurmNetwork& network) {
  const Json both = Json::array({Json("Ingress"), Json("Egress")});
  const std::string prefix = network.cluster + "-network-";
  std::vector<PolicySpec> out;
  // Whatever else gets the cluster's label is closed until somebody opens it.
  out.push_back({prefix + "closed", Json::object({{"podSelector", Json::object({{"matchLabels", Json::object({{kSlurmClusterLabel, network.cluster}})}})}, {"policyTypes", both}})});
  for (const Group group : {Heads, Workers, Login, Accounting, Database, Exporter, Rest, Scripts})
    if (has(network, group)) {
      Json spec = Json::object({{"podSelector", selector_of(network, group)}});
      // An empty list is not kept by an API server, and would look like a change for ever.
      for (const auto& [list, inward] : {std::pair("ingress", true), std::pair("egress", false)})
        if (Json rules = rules_of(network, group, inward); !rules.items().empty()) spec.set(list, std::move(rules));
      spec.set("policyTypes", both);
      out.push_back({prefix + role_of(group), std::move(spec)});
    }
  return out;
}

std::string print_ways_markdown() {
  std::string out = "| from | to | port | for | the rest is kept closed by |\n|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < std::size(kWays); ++i) {
    const Way& way = kWays[i];
    // The same way by two protocols is one line for people.
    const auto same = [&](const Way& other) {
      return other.from == way.from && other.to == way.to && other.first == way.first && other.last == way.last && other.kept == way.kept && other.what_for == way.what_for;
    };
    const bool first = std::none_of(std::begin(kWays), std::begin(kWays) + static_cast<std::ptrdiff_t>(i), same);
    if (!first) continue;
    std::string protocols;
    for (const Protocol protocol : {Protocol::Tcp, Protocol::Udp})
      if (std::any_of(std::begin(kWays), std::end(kWays), [&](const Way& other) { return same(other) && other.protocol == protocol; }))
        protocols += (protocols.empty() ? "" : ", ") + std::string(text(protocol));
    out += fmt::format("| {} | {} | {} {} | {} | {} |\n", text(way.from), text(way.to), protocols, ports_text(way), way.what_for, kept_text(way.kept));
  }
  out += "\n| group | who |\n|---|---|\n";
  for (const Group group : {Anybody, People, Nodes, Server, Agents, Pods, Names, ClusterApi, Monitoring, RestClients, Heads, Workers, Login, Accounting, Database, SiteDatabase, Exporter, Rest, Scripts, SharingHeads, SharingLogin, Guests, OtherAccounting, World}) out += fmt::format("| {} | {} |\n", text(group), meaning(group));
  return out;
}

Json ways_json() {
  Json out = Json::array();
  for (const Way& way : kWays)
    out.push(Json::object({{"from", std::string(text(way.from))},
                           {"to", std::string(text(way.to))},
                           {"protocol", std::string(text(way.protocol))},
                           {"first", way.first},
                           {"last", way.last},
                           {"portOf", std::string(port_of_text(way.port_of))},
                           {"keptBy", std::string(kept_text(way.kept))},
                           {"for", std::string(way.what_for)}}));
  return out;
}

}  // namespace fairlead::api
