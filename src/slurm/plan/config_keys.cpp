// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/config_keys.h"

#include <algorithm>
#include <array>
#include <vector>

#include "slurm/plan/config_text.h"

namespace fairlead::slurm {
namespace {

using enum KeyKind;

constexpr const char* kNoTls = "traffic between the daemons is confined by policies, and their TLS is not set up in this version; leave it out";

constexpr ConfigKey kKeys[] = {
    {"AccountingStorageBackupHost", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; set spec.extensions.accounting.replicas"},
    {"AccountingStorageEnforce", Text, KeyUse::Restart},
    {"AccountingStorageExternalHost", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; leave it out"},
    {"AccountingStorageHost", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; leave it out"},
    {"AccountingStorageLoc", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; leave it out", "22.05", "25.11"}, {"AccountingStorageParameters"},
    {"AccountingStoragePass", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; leave it out"},
    {"AccountingStoragePort", Number16, KeyUse::Owned, "set spec.slurmNodes.accounting.slurmdbd.port"},
    {"AccountingStorageTRES", Text, KeyUse::Restart},
    {"AccountingStorageType", Text, KeyUse::Owned, "set spec.slurmNodes.accounting.enabled"},
    {"AccountingStorageUser", Text, KeyUse::Owned, "records go to the slurmdbd of spec.slurmNodes.accounting; leave it out"}, {"AccountingStoreFlags"},
    {"AccountingStoreJobComment", YesNo}, {"AcctGatherEnergyType", Text, KeyUse::Workers},
    {"AcctGatherFilesystemType", Text, KeyUse::Workers}, {"AcctGatherInfinibandType", Text, KeyUse::Workers},
    {"AcctGatherInterconnectType", Text, KeyUse::Workers}, {"AcctGatherNodeFreq", Number16},
    {"AcctGatherProfileType", Text, KeyUse::Workers}, {"AllowSpecResourcesUsage", YesNo},
    {"AuthAltParameters", Text, KeyUse::Owned, "tokens come with spec.slurmNodes.rest; leave it out"},
    {"AuthAltTypes", Text, KeyUse::Owned, "set spec.slurmNodes.rest.enabled: tokens come with it"},
    {"AuthInfo", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"},
    {"AuthType", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"},
    {"BackupAddr", Text, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"BackupController", Text, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"BatchStartTimeout", Number16}, {"BcastExclude"}, {"BcastParameters"},
    {"BurstBufferParameters", Text, KeyUse::Owned, "Slurm has no use for it here; leave it out"},
    {"BurstBufferType", Text, KeyUse::Owned, "Slurm has no use for it here; leave it out"}, {"CliFilterPlugins"},
    {"ClusterName", Text, KeyUse::Owned, "it is metadata.name of the SlurmCluster"}, {"CommunicationParameters"},
    {"CompleteWait", Number16},
    {"ControlAddr", Text, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"ControlMachine", Text, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"CoreSpecPlugin", Text, KeyUse::Workers}, {"CpuFreqDef"}, {"CpuFreqGovernors"},
    {"CredType", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"},
    {"CryptoType", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"}, {"DebugFlags"},
    {"DefCPUPerGPU", Number64}, {"DefMemPerCPU", Number64}, {"DefMemPerGPU", Number64},
    {"DefMemPerNode", Number64}, {"DependencyParameters"}, {"DisableRootJobs", YesNo},
    {"DownNodes", Line, KeyUse::Owned, "nodes register themselves as spec.slurmNodes.worker describes them; set that, or use scontrol update for a node's state"},
    {"EioTimeout", Number16}, {"EnforcePartLimits"}, {"Epilog"}, {"EpilogMsgTime", Number32}, {"EpilogSlurmctld"},
    {"ExtSensorsFreq", Number16}, {"ExtSensorsType", Text, KeyUse::Restart}, {"FairShareDampeningFactor", Number16},
    {"FastSchedule", Number16, KeyUse::Owned, "Slurm has no use for it here; leave it out"}, {"FederationParameters"},
    {"FirstJobId", Number32, KeyUse::Restart},
    {"FrontendName", Line, KeyUse::Owned, "nodes register themselves as spec.slurmNodes.worker describes them; set that, or use scontrol update for a node's state", "22.05", "25.05"},
    {"GetEnvTimeout", Number16}, {"GpuFreqDef"},
    {"GresTypes", Text, KeyUse::Owned, "GPUs follow spec.slurmNodes.worker.slurmd.resources"}, {"GroupUpdateForce", Number16},
    {"GroupUpdateTime", Number16}, {"HealthCheckInterval", Number16}, {"HealthCheckNodeState"}, {"HealthCheckProgram"},
    {"InactiveLimit", Number16}, {"InteractiveStepOptions"}, {"JobAcctGatherFrequency"}, {"JobAcctGatherParams"},
    {"JobAcctGatherType", Text, KeyUse::Owned, "it follows spec.slurmNodes.worker.cgroupVersion; with accounting set spec.slurmNodes.accounting.slurmConfig.jobAcctGatherType"},
    {"JobCompHost", Text, KeyUse::Restart}, {"JobCompLoc", Text, KeyUse::Restart}, {"JobCompParams"},
    {"JobCompPass", Text, KeyUse::Owned, "secrets do not go into slurm.conf, which every user can read; leave it out"},
    {"JobCompPort", Number32, KeyUse::Restart}, {"JobCompType", Text, KeyUse::Restart},
    {"JobCompUser", Text, KeyUse::Restart}, {"JobContainerType", Text, KeyUse::Workers},
    {"JobCredentialPrivateKey", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"},
    {"JobCredentialPublicCertificate", Text, KeyUse::Owned, "authentication is by munge with the key in Secret NAME-munge; leave it out"},
    {"JobFileAppend", Number16}, {"JobRequeue", Number16}, {"JobSubmitPlugins", Text, KeyUse::Restart},
    {"KeepAliveTime", Number32}, {"KillOnBadExit", Number16}, {"KillWait", Number16}, {"LaunchParameters"},
    {"LaunchType"}, {"Licenses"}, {"LogTimeFormat"}, {"MailDomain"}, {"MailProg"}, {"MaxArraySize", Number32, KeyUse::Restart},
    {"MaxDBDMsgs", Number32}, {"MaxJobCount", Number32, KeyUse::Restart}, {"MaxJobId", Number32},
    {"MaxMemPerCPU", Number64}, {"MaxMemPerNode", Number64}, {"MaxNodeCount", Number32, KeyUse::Restart},
    {"MaxStepCount", Number32}, {"MaxTasksPerNode", Number16}, {"MCSParameters"}, {"MCSPlugin", Text, KeyUse::Restart},
    {"MessageTimeout", Number16}, {"MinJobAge", Number32}, {"MpiDefault"}, {"MpiParams"},
    {"NodeFeaturesPlugins", Text, KeyUse::Workers},
    {"NodeName", Line, KeyUse::Owned, "nodes register themselves as spec.slurmNodes.worker describes them; set that, or use scontrol update for a node's state"},
    {"NodeSet", Line}, {"OverTimeLimit", Number16}, {"PartitionName", Line},
    {"PluginDir", Text, KeyUse::Owned, "plug-ins are those of the image; leave it out"},
    {"PlugStackConfig", Text, KeyUse::Owned, "plug-ins are those of the image; leave it out"}, {"PowerParameters"},
    {"PowerPlugin", Text, KeyUse::Restart}, {"PreemptExemptTime"}, {"PreemptMode"}, {"PreemptType", Text, KeyUse::Restart},
    {"PrEpParameters"}, {"PrEpPlugins", Text, KeyUse::Restart}, {"PriorityCalcPeriod"}, {"PriorityDecayHalfLife"},
    {"PriorityFavorSmall", YesNo}, {"PriorityFlags"}, {"PriorityMaxAge"}, {"PriorityParameters"}, {"PrioritySiteFactorParameters"},
    {"PrioritySiteFactorPlugin", Text, KeyUse::Restart}, {"PriorityType", Text, KeyUse::Restart}, {"PriorityUsageResetPeriod"},
    {"PriorityWeightAge", Number32}, {"PriorityWeightAssoc", Number32}, {"PriorityWeightFairshare", Number32},
    {"PriorityWeightJobSize", Number32}, {"PriorityWeightPartition", Number32}, {"PriorityWeightQOS", Number32},
    {"PriorityWeightTRES"}, {"PrivateData"}, {"ProctrackType", Text, KeyUse::Owned, "set spec.slurmNodes.worker.cgroupVersion"},
    {"Prolog"}, {"PrologEpilogTimeout", Number16}, {"PrologFlags"}, {"PrologSlurmctld"}, {"PropagatePrioProcess", Number16},
    {"PropagateResourceLimits"}, {"PropagateResourceLimitsExcept"},
    {"RebootProgram", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"ReconfigFlags"}, {"RequeueExit"}, {"RequeueExitHold"},
    {"ResumeFailProgram", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"ResumeProgram", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"ResumeRate", Number16, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"ResumeTimeout", Number16, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"ResvEpilog"}, {"ResvOverRun", Number16}, {"ResvProlog"}, {"ReturnToService", Number16},
    {"RoutePlugin", Text, KeyUse::Restart}, {"SallocDefaultCommand"}, {"SbcastParameters"},
    {"SchedulerAuth", Text, KeyUse::Owned, "Slurm has no use for it here; leave it out", "22.05", "24.05"}, {"SchedulerParameters"},
    {"SchedulerTimeSlice", Number16}, {"SchedulerType", Text, KeyUse::Restart}, {"ScronParameters"},
    {"SelectType", Text, KeyUse::Owned, "workers that register themselves need it as it is; leave it out"},
    {"SelectTypeParameters", Text, KeyUse::Restart},
    {"SlurmctldAddr", Text, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"SlurmctldDebug"},
    {"SlurmctldHost", Line, KeyUse::Owned, "set spec.slurmNodes.controller.size; the heads are named by the operator"},
    {"SlurmctldLogFile", Text, KeyUse::Owned, "the daemons log to their containers: kubectl logs; set SlurmctldDebug or SlurmdDebug for more"},
    {"SlurmctldParameters"}, {"SlurmctldPidFile", Text, KeyUse::Owned, "the operator's programs rely on it; leave it out"},
    {"SlurmctldPlugstack", Text, KeyUse::Owned, "plug-ins are those of the image; leave it out", "22.05", "23.02"},
    {"SlurmctldPort", Text, KeyUse::Owned, "set spec.slurmNodes.controller.slurmctld.port"}, {"SlurmctldPrimaryOffProg"},
    {"SlurmctldPrimaryOnProg"},
    {"SlurmctldSyslogDebug", Text, KeyUse::Owned, "the daemons log to their containers: kubectl logs; set SlurmctldDebug or SlurmdDebug for more"},
    {"SlurmctldTimeout", Number16}, {"SlurmdDebug"},
    {"SlurmdLogFile", Text, KeyUse::Owned, "the daemons log to their containers: kubectl logs; set SlurmctldDebug or SlurmdDebug for more"},
    {"SlurmdParameters"}, {"SlurmdPidFile", Text, KeyUse::Owned, "the operator's programs rely on it; leave it out"},
    {"SlurmdPort", Number32, KeyUse::Owned, "set spec.slurmNodes.worker.slurmd.port"},
    {"SlurmdSpoolDir", Text, KeyUse::Owned, "set spec.slurmNodes.worker.volumes.spool"},
    {"SlurmdSyslogDebug", Text, KeyUse::Owned, "the daemons log to their containers: kubectl logs; set SlurmctldDebug or SlurmdDebug for more"},
    {"SlurmdTimeout", Number16}, {"SlurmdUser", Text, KeyUse::Owned, "the daemons' users are those of the image; leave it out"},
    {"SlurmSchedLogFile", Text, KeyUse::Owned, "the daemons log to their containers: kubectl logs; set SlurmctldDebug or SlurmdDebug for more"},
    {"SlurmSchedLogLevel", Number16},
    {"SlurmUser", Text, KeyUse::Owned, "the daemons' users are those of the image; leave it out"}, {"SrunEpilog"}, {"SrunPortRange"},
    {"SrunProlog"}, {"StateSaveLocation", Text, KeyUse::Owned, "set spec.slurmNodes.controller.volumes.spool"},
    {"SuspendExcNodes", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SuspendExcParts", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SuspendProgram", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SuspendRate", Number16, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SuspendTime", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SuspendTimeout", Number16, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes"},
    {"SwitchParameters"}, {"SwitchType", Text, KeyUse::Owned, "workers that register themselves need it as it is; leave it out"},
    {"TaskEpilog"}, {"TaskPlugin", Text, KeyUse::Owned, "set spec.slurmNodes.worker.cgroupVersion and spec.extensions.bindCores"},
    {"TaskPluginParam"}, {"TaskProlog"}, {"TCPTimeout", Number16}, {"TmpFS"},
    {"TopologyParam", Text, KeyUse::Owned, "it needs topology.conf, which is not rendered in this version; leave it out"},
    {"TopologyPlugin", Text, KeyUse::Owned, "it needs topology.conf, which is not rendered in this version; leave it out"},
    {"TrackWCKey", YesNo, KeyUse::Restart},
    {"TreeWidth", Number16, KeyUse::Owned, "workers that register themselves need it as it is; leave it out"}, {"UnkillableStepProgram"},
    {"UnkillableStepTimeout", Number16}, {"UsePAM", YesNo}, {"VSizeFactor", Number16}, {"WaitTime", Number16},
    {"X11Parameters", Text, KeyUse::Workers},
    // Later than 22.05.
    {"CertgenParameters", Text, KeyUse::Owned, kNoTls, "25.05"}, {"CertgenType", Text, KeyUse::Owned, kNoTls, "25.05"},
    {"CertmgrParameters", Text, KeyUse::Owned, kNoTls, "24.11"}, {"CertmgrType", Text, KeyUse::Owned, kNoTls, "24.11"},
    {"CliFilterParameters", Text, KeyUse::Reload, "", "25.11"}, {"DataParserParameters", Text, KeyUse::Reload, "", "24.11"},
    {"EpilogTimeout", Number16, KeyUse::Reload, "", "25.05"},
    {"HashPlugin", Text, KeyUse::Owned, "all daemons and commands have to agree on it, those that run too; leave it out", "24.05"},
    {"HttpParserType", Text, KeyUse::Restart, "", "25.11"},
    {"JobCompPassScript", Text, KeyUse::Owned, "it is of a site that keeps secrets on the heads; leave it out", "25.11"},
    {"MaxBatchRequeue", Number32, KeyUse::Reload, "", "23.02"}, {"MetricsType", Text, KeyUse::Restart, "", "25.11"},
    {"NamespaceType", Text, KeyUse::Owned, "such a plug-in reads namespace.yaml, which workers are not given; leave it out", "25.11"},
    {"PreemptParameters", Text, KeyUse::Reload, "", "23.02"}, {"PrologTimeout", Number16, KeyUse::Reload, "", "25.05"},
    {"SuspendExcStates", Text, KeyUse::Owned, "workers are pods: set spec.slurmNodes.worker.size instead of powering nodes", "23.02"},
    {"TLSParameters", Text, KeyUse::Owned, kNoTls, "24.05"}, {"TLSType", Text, KeyUse::Owned, kNoTls, "24.05"},
    {"UrlParserType", Text, KeyUse::Restart, "", "25.11"},
};

constexpr ConfigKey kPartition[] = {
    {"AllocNodes"}, {"AllowAccounts"}, {"AllowGroups"}, {"AllowQos"}, {"Alternate"}, {"CpuBind"}, {"DefCPUPerGPU", Number64},
    {"DefMemPerCPU", Number64}, {"DefMemPerGPU", Number64}, {"DefMemPerNode", Number64}, {"Default", YesNo},
    {"DefaultTime"}, {"DenyAccounts"}, {"DenyQos"}, {"DisableRootJobs", YesNo}, {"ExclusiveUser", YesNo},
    {"GraceTime", Number32}, {"Hidden", YesNo}, {"LLN", YesNo}, {"MaxCPUsPerNode", Number32},
    {"MaxMemPerCPU", Number64}, {"MaxMemPerNode", Number64}, {"MaxTime"}, {"MaxNodes", Number32},
    {"MinNodes", Number32}, {"Nodes"}, {"OverSubscribe"}, {"OverTimeLimit"}, {"PreemptMode"}, {"Priority", Number16},
    {"PriorityJobFactor", Number16}, {"PriorityTier", Number16}, {"QOS"}, {"RootOnly", YesNo},
    {"ReqResv", YesNo}, {"ResumeTimeout", Number16}, {"SelectTypeParameters"}, {"Shared"}, {"State"}, {"SuspendTime"},
    {"SuspendTimeout", Number16}, {"TRESBillingWeights"},
    // Later than 22.05.
    {"ExclusiveTopo", YesNo, KeyUse::Reload, "", "24.05"}, {"MaxCPUsPerSocket", Number32, KeyUse::Reload, "", "23.02"}, {"PowerDownOnIdle", YesNo, KeyUse::Reload, "", "23.02"},
    {"Topology", Text, KeyUse::Reload, "", "25.05"},
};

constexpr ConfigKey kNodeSet[] = {
    {"Feature"}, {"Nodes"},
};

constexpr ConfigOptions kOptions[] = {
    {"SchedulerParameters",
     "allow_zero_lic assoc_limit_stop batch_sched_delay= bb_array_stage_cnt= bf_busy_nodes bf_continue bf_hetjob_immediate "
     "bf_hetjob_prio=min|avg|max bf_interval= bf_job_part_count_reserve= bf_licenses bf_max_job_array_resv= bf_max_job_assoc= "
     "bf_max_job_part= bf_max_job_start= bf_max_job_test= bf_max_job_user= bf_max_job_user_part= bf_max_time= bf_min_age_reserve= "
     "bf_min_prio_reserve= bf_node_space_size= bf_one_resv_per_job bf_resolution= bf_running_job_reserve bf_window= "
     "bf_window_linear= bf_yield_interval= bf_yield_sleep= build_queue_timeout= correspond_after_task_cnt= default_queue_depth= "
     "defer delay_boot= disable_hetjob_steps disable_job_shrink enable_hetjob_steps enable_user_top Ignore_NUMA "
     "ignore_prefer_validation max_array_tasks= max_rpc_cnt= max_sched_time= max_script_size= max_switch_wait= no_backup_scheduling "
     "no_env_cache nohold_on_prolog_fail pack_serial_at_end partition_job_depth= permit_job_expansion preempt_reorder_count= "
     "preempt_strict_order preempt_youngest_first reduce_completing_frag requeue_setup_env_fail salloc_wait_nodes sbatch_wait_nodes "
     "sched_interval= sched_max_job_start= sched_min_interval= spec_cores_first step_retry_count= step_retry_time= whole_hetjob",
     "", "", "sched_interval=5,bf_interval=10"},
    {"SlurmctldParameters",
     "allow_user_triggers cloud_reg_addrs enable_configless idle_on_node_suspend max_dbd_msg_action=exit|discard "
     "node_reg_mem_percent= preempt_send_user_signal user_resv_delete",
     "enable_rpc_queue:with it a submission would be confirmed before it is on disk (durable acknowledgement)\n"
     "cloud_dns:workers are found by the address that they register with\n"
     "reboot_from_controller:workers are pods\n"
     "power_save_interval:workers are pods\n"
     "power_save_min_interval:workers are pods", "enable_configless,cloud_reg_addrs", ""},
    {"SlurmdParameters",
     "config_overrides l3cache_as_socket numa_node_as_socket shutdown_on_reboot",
     "", "config_overrides", ""},
    {"LaunchParameters",
     "batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm lustre_no_flush mem_sort mpir_use_nodeaddr "
     "send_gids slurmstepd_memlock slurmstepd_memlock_all test_exec use_interactive_step",
     "", "", ""},
    {"CommunicationParameters",
     "CheckGhalQuiesce DisableIPv4 EnableIPv6 NoAddrCache NoCtldInAddrAny NoInAddrAny block_null_hash block_zero_hash "
     "keepaliveinterval= keepaliveprobes= keepalivetime=",
     "DisableIPv4:the heads reach one another by IPv4\n"
     "NoCtldInAddrAny:the address of an elected head is the service's\n"
     "NoInAddrAny:the address of an elected head is the service's", "NoAddrCache", ""},
    {"DependencyParameters",
     "disable_remote_singleton kill_invalid_depend max_depend_depth=",
     "", "", ""},
    {"BcastParameters",
     "DestDir=* Compression=lz4|none send_libs send_libs=yes|no",
     "", "", ""},
    {"DebugFlags",
     "Accrue Agent Backfill BackfillMap BurstBuffer cgroup CPU_Bind Data DB_Archive DB_Assoc DB_TRES DB_Event DB_Job DB_QOS "
     "DB_Query DB_Reservation DB_Resource DB_Step DB_Usage DB_WCKey Dependency Elasticsearch Energy ExtSensors Federation FrontEnd "
     "Gang Gres Hetjob Interconnect JobAccountGather JAG JobContainer License MPI Network Net NetworkRaw NetRaw NodeFeatures "
     "Priority Profile Protocol Reservation Route Script SelectType Steps Switch Task TraceJobs Trigger Triggers CpuFrequency Power "
     "PowerSave TimeCray WorkQueue WorkQ",
     "NO_CONF_HASH:the operator verifies by that hash what each node runs", "", ""},
    {"PrologFlags",
     "Alloc Contain DeferBatch NoHold Serial X11",
     "", "", ""},
    {"ReconfigFlags",
     "KeepPartInfo KeepPartState",
     "", "", ""},
    {"PriorityFlags",
     "ACCRUE_ALWAYS CALCULATE_RUNNING DEPTH_OBLIVIOUS INCR_ONLY MAX_TRES NO_FAIR_TREE NO_NORMAL_ALL NO_NORMAL_ASSOC NO_NORMAL_PART "
     "NO_NORMAL_QOS NO_NORMAL_TRES SMALL_RELATIVE_TO_TIME",
     "", "", ""},
    {"PrivateData",
     "accounts all cloud events jobs nodes none partitions reservations usage users",
     "", "", ""},
    {"SelectTypeParameters",
     "CR_CPU CR_CPU_Memory CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory CR_Memory CR_ONE_TASK_PER_CORE "
     "CR_CORE_DEFAULT_DIST_BLOCK CR_LLN CR_Pack_Nodes",
     "OTHER_CONS_RES:it is for Cray nodes\n"
     "OTHER_CONS_TRES:it is for Cray nodes", "", ""},
    {"JobAcctGatherParams",
     "NoShared UsePss OverMemoryKill DisableGPUAcct",
     "", "", ""},
    {"HealthCheckNodeState",
     "ALLOC ANY CYCLE IDLE MIXED",
     "", "", ""},
    {"AccountingStoreFlags",
     "job_comment job_env job_script",
     "", "", ""},
    {"ScronParameters",
     "enable",
     "", "", ""},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Levenshtein's distance, upper and lower case alike.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

const ConfigKey* find_config_key(std::string_view name) {
  const auto found = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const ConfigKey& key) { return same_key(key.name, name); });
  return found == std::end(kKeys) ? nullptr : &*found;
}

bool has_config_key(const ConfigKey& key, std::string_view release) { return key.since <= release && (key.until.empty() || release < key.until); }

std::span<const ConfigKey> keys_of_line(std::string_view name) {
  if (same_key(name, "PartitionName")) return kPartition;
  if (same_key(name, "NodeSet")) return kNodeSet;
  return {};
}

const ConfigOptions* find_config_options(std::string_view key) {
  const auto found = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const ConfigOptions& options) { return same_key(options.key, key); });
  return found == std::end(kOptions) ? nullptr : &*found;
}

std::string nearest(std::string_view wrong, std::span<const std::string_view> names) {
  if (wrong.size() > 64) return "";  // no name is so long, and the work grows with it
  std::size_t best = std::max<std::size_t>(2, wrong.size() / 3) + 1;
  std::string_view found;
  for (const std::string_view name : names)
    if (const std::size_t far = distance(wrong, name); far < best && far < name.size()) {
      best = far;
      found = name;
    }
  return std::string(found);
}

std::string nearest_key(std::string_view wrong, std::string_view release) {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : kKeys)
    if (has_config_key(key, release)) names.push_back(key.name);
  return nearest(wrong, names);
}

}  // namespace fairlead::slurm
