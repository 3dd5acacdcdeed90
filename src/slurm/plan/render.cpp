// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "api/node_set.h"
#include "kube/selector.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/custom_config.h"
#include "slurm/plan/gres.h"
#include "slurm/plan/rest.h"

namespace fairlead::slurm {
namespace {

std::int64_t quantity_or(const std::map<std::string, std::string>& resources, const std::string& name, std::int64_t otherwise) {
  const auto found = resources.find(name);
  if (found == resources.end()) return otherwise;
  auto quantity = kube::Quantity::parse(found->second);
  return quantity ? quantity->value() : otherwise;
}

// The user's settings in the place of ours, then what else they gave.
std::string with_custom_config(std::vector<ConfigEntry> lines, const std::string& node_sets, const std::string& all_sets, const CustomConfig& custom) {
  for (const ConfigEntry& setting : custom.settings) {
    const std::string value = merge_options(setting.key, setting.value);
    const auto ours = std::find_if(lines.begin(), lines.end(), [&](const ConfigEntry& one) { return same_key(one.key, setting.key); });
    if (ours != lines.end()) ours->value = value;
    else lines.push_back({.key = setting.key, .value = value});
  }
  std::string conf = "# Written by Fairlead from the SlurmCluster resource. Edit the resource, not this file. The line above tells the state of it that this is.\n";
  for (const ConfigEntry& one : lines) conf += print_config(one) + "\n";
  conf += node_sets;
  for (const ConfigEntry& one : custom.lines)
    if (one.key == "NodeSet") conf += print_config(one) + "\n";
  if (!custom.own_partitions) conf += fmt::format("PartitionName=main Nodes={} Default={} MaxTime=INFINITE State=UP OverSubscribe=NO\n", all_sets, custom.own_default ? "NO" : "YES");
  for (const ConfigEntry& one : custom.lines)
    if (one.key == "PartitionName") conf += print_config(one) + "\n";
  return conf;
}

}  // namespace

Confinement confinement_of(const api::SlurmCluster& cluster) {
  if (cluster.cgroup_version == "v1") return {true, "CgroupV1", "job steps are confined by cgroup v1 below each worker's own container"};
  return {false, "CgroupV2NeedsSystemd",
          "Slurm 22.05's cgroup/v2 plug-in needs systemd inside the container; steps are tracked by proctrack/linuxproc and share the worker's own limits. On hosts with cgroup v1 "
          "set spec.slurmNodes.worker.cgroupVersion: v1"};
}

int worker_gpus(const api::SlurmCluster& cluster) {
  if (!cluster.gpus) return 0;
  std::int64_t count = 0;
  for (const char* name : {"nvidia.com/gpu", "amd.com/gpu", "gpu"}) count += quantity_or(cluster.worker.main.resources, name, 0);
  return static_cast<int>(count);
}

std::string controller_address(const api::SlurmCluster& cluster, const RenderFacts& facts) {
  if (elected(cluster)) return fmt::format("{}-controller-active.{}.svc.{}", cluster.name, cluster.space, facts.cluster_domain);
  return fmt::format("controller-0.{}-controller-svc.{}.svc.{}", cluster.name, cluster.space, facts.cluster_domain);
}

std::string worker_definition(const api::SlurmCluster& cluster) {
  const auto& resources = cluster.worker.main.resources;
  const std::int64_t cpus = std::max<std::int64_t>(1, quantity_or(resources, "cpu", 1));
  const std::int64_t memory_mib = std::max<std::int64_t>(64, quantity_or(resources, "memory", std::int64_t{1} << 30) >> 20);
  std::string out = fmt::format("CPUs={0} Boards=1 SocketsPerBoard={0} CoresPerSocket=1 ThreadsPerCore=1 RealMemory={1} Feature={2}", cpus, memory_mib, cluster.worker_set);
  for (const auto& feature : cluster.set.features) out += "," + feature;
  if (const int gpus = worker_gpus(cluster); gpus > 0) out += fmt::format(" Gres=gpu:{}", gpus);
  out += cluster.set.definition;
  return out;
}

std::map<std::string, std::string> render_config(const api::SlurmCluster& cluster, const RenderFacts& facts) {
  const Confinement confinement = confinement_of(cluster);
  const auto views = api::worker_views(cluster);
  const bool gpus = std::any_of(views.begin(), views.end(), [](const auto& view) { return worker_gpus(view) > 0 || !view.set.gres.empty(); });
  std::map<std::string, std::string> files;

  std::vector<ConfigEntry> lines;
  const auto line = [&](std::string_view key, std::string_view value) { lines.push_back({.key = std::string(key), .value = std::string(value)}); };
  line("ClusterName", cluster.name);
  // One host name and one address that only ever stand for the active head: a list would bring back standby daemons and their sleeps.
  line("SlurmctldHost", fmt::format("{}({})", elected(cluster) ? "controller" : "controller-0", controller_address(cluster, facts)));
  line("SlurmctldPort", std::to_string(cluster.controller.main.port));
  line("SlurmdPort", std::to_string(cluster.worker.main.port));
  line("SlurmUser", "slurm");
  line("SlurmdUser", "root");
  line("AuthType", "auth/munge");
  line("CredType", "cred/munge");
  if (wants_rest(cluster))
    for (const auto& [key, value] : token_config()) line(key, value);
  // cred_expire stays at its default of 120 s, which is how long a requeued job waits before it starts again: with 30 s a worker that came back after a power cut was seen to get the late retry of "terminate step 6.0",
  // meant for the job's first run, and to kill step 6.0 of the second. Who knows that no such message can be under way lets the job start at once (gpl/failure.h).
  line("SlurmctldParameters", merge_options("SlurmctldParameters", ""));
  line("CommunicationParameters", merge_options("CommunicationParameters", ""));
  // Of several heads: a link that each companion sets to the state of its own term.
  line("StateSaveLocation", elected(cluster) ? "/run/slurm/state" : "/var/spool/slurmctld");
  line("SlurmdSpoolDir", "/var/spool/slurmd");
  line("SlurmctldPidFile", "/run/slurm/slurmctld.pid");
  line("SlurmdPidFile", "/run/slurm/slurmd.pid");
  line("SlurmctldTimeout", "120");
  // Silence never ends a job: one that runs on beyond a cut link would run twice. 0: slurmctld asks silent nodes again each 100 s (ping_nodes.c), gives them no work and never sets them DOWN. Who has proof of a death says so
  // (docs/design/012).
  line("SlurmdTimeout", "0");
  // With 0 nobody else asks nodes that were not silent yet (ping_nodes.c).
  line("HealthCheckProgram", "/bin/true");
  line("HealthCheckInterval", "30");
  line("HealthCheckNodeState", "ANY");
  line("ReturnToService", "2");
  line("JobRequeue", "1");
  line("MailProg", "/bin/true");  // the image has no mail program, and slurmctld complains at each start
  line("MinJobAge", "86400");
  line("MaxNodeCount", "512");
  line("TreeWidth", "65533");
  line("SwitchType", "switch/none");
  line("MpiDefault", "none");
  line("SelectType", "select/cons_tres");
  line("SelectTypeParameters", "CR_Core_Memory");
  line("SchedulerType", "sched/backfill");
  line("SchedulerParameters", merge_options("SchedulerParameters", ""));
  // The declared size counts, also where local nodes share a smaller machine.
  line("SlurmdParameters", merge_options("SlurmdParameters", ""));
  // Limits of the submitting shell say nothing about a worker's container.
  line("PropagateResourceLimits", "NONE");
  line("ProctrackType", confinement.cgroups ? "proctrack/cgroup" : "proctrack/linuxproc");
  line("TaskPlugin", confinement.cgroups ? (cluster.bind_cores ? "task/cgroup,task/affinity" : "task/cgroup") : (cluster.bind_cores ? "task/affinity" : "task/none"));
  for (auto& [key, value] : accounting_config(cluster, facts, confinement, gpus)) line(key, value);
  line("JobCompType", "jobcomp/none");
  line("SlurmctldDebug", "info");
  line("SlurmdDebug", "info");
  line("LogTimeFormat", "iso8601_ms");
  // Always, for slurmctld 22.05 that was started without forgets the GPUs of dynamic nodes for good, whatever it is told later.
  line("GresTypes", "gpu");
  // A file of the pod, not one that the head hands out: a worker that was made before the cluster had a jail lacks it, and goes on as it is.
  if (cluster.jail.wanted()) line("PlugStackConfig", "/run/fairlead/plugstack.conf");
  std::string sets, node_sets;
  for (const auto& view : views) {
    node_sets += fmt::format("NodeSet={0} Feature={0}\n", view.worker_set);
    sets += (sets.empty() ? "" : ",") + view.worker_set;
  }
  files["slurm.conf"] = with_custom_config(std::move(lines), node_sets, sets, read_custom_config(cluster, {.name = {}, .any = true}));

  // slurmd loads the cgroup plug-in also when nothing is confined, and then v2 ends it if there is no systemd to ask. v1 does nothing until it is used. So one is always named,
  // for Slurm would else choose by what the host has mounted.
  std::string cgroup = "CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n";
  if (confinement.cgroups)
    cgroup += fmt::format("CgroupMountpoint=/sys/fs/cgroup\nConstrainCores={}\nConstrainRAMSpace=yes\nConstrainDevices=no\n", cluster.bind_cores ? "yes" : "no");
  files["cgroup.conf"] = std::move(cgroup);

  // That it is there is what counts: who preloads slurmctld looks for it at each submission (gpl/durable/admission.cpp).
  if (cluster.holds_jobs) files["fairlead-admission"] = "# Jobs of this cluster are held until their queue admits them.\n";

  files["gres.conf"] = render_gres(cluster, facts.running_gres);
  return files;
}

std::string render_sshd_config(const api::SlurmCluster& cluster) {
  return fmt::format(
      "Port {}\n"
      "HostKey /etc/ssh/fairlead/ssh_host_rsa_key\n"
      "HostKey /etc/ssh/fairlead/ssh_host_ecdsa_key\n"
      "HostKey /etc/ssh/fairlead/ssh_host_ed25519_key\n"
      "PermitRootLogin prohibit-password\n"
      "PasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\n"
      "UsePAM yes\n"
      "X11Forwarding no\n"
      "PrintMotd no\n"
      "AcceptEnv LANG LC_*\n"
      // Root's keys are read from the mounted ConfigMap at each login, so that an edit of the resource counts at once.
      "Match User root\n"
      "  AuthorizedKeysCommand /opt/fairlead/bin/fairlead-slurm authorized-keys\n"
      "  AuthorizedKeysCommandUser nobody\n"
      "Match All\n"
      "Subsystem sftp internal-sftp\n",
      cluster.login.main.port);
}

}  // namespace fairlead::slurm
