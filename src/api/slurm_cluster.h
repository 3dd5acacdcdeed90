// SPDX-License-Identifier: Apache-2.0
// SlurmCluster (slurm.nebius.ai/v1, the 1.14.10 shape) as a value: read once, with defaults; what is wrong and what has no effect is named, never dropped in silence.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/slurm_accounting.h"
#include "api/slurm_backup.h"
#include "api/slurm_container.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline constexpr const char* kNoConfig = "none";  // status.appliedConfigHash of a SlurmCluster: the nodes were or may have been told of something else

struct SlurmSubMount {
  std::string name, path, source_name, sub_path;
  bool read_only = false;
  kube::Json claim_template;  // where no source is named: one claim per pod
};
struct SlurmRole {
  int size = 1;
  std::string node_filter;
  SlurmContainer main, munge;
  SlurmVolume spool, jail;
  std::vector<SlurmSubMount> sub_mounts;
  std::string shared_memory;  // of /dev/shm on workers
  std::string priority_class;
  kube::Json pull_secrets, init_containers;  // arrays as in a pod; null: none
};
// How people reach sshd from outside. No type: by `fairlead ssh`, or by what the site builds itself.
struct SlurmLoginService {
  std::string type;  // "LoadBalancer", "NodePort", "ClusterIP"
  std::string load_balancer_ip;
  int node_port = 0;  // 0: chosen by Kubernetes
  std::map<std::string, std::string> annotations;
  std::vector<std::string> source_ranges;
};
struct NodeFilter {
  std::string name;
  kube::Json affinity, node_selector, tolerations;  // null if not given
};

// spec.extensions.scaleDown: how workers beyond the size are taken away (docs/design/006).
struct SlurmScaleDown {
  enum class Policy { Wait, Requeue, Kill };
  bool strict_ordinals = true;  // workers are always worker-[0, size-1]
  Policy policy = Policy::Wait;  // for the jobs of a worker that leaves
  std::chrono::nanoseconds after = std::chrono::hours(1);  // how long they may still run
};
// What is not given is as in `otherwise`. Problems begin with "spec.extensions.scaleDown".
SlurmScaleDown read_scale_down(const kube::Json& from, const SlurmScaleDown& otherwise, std::vector<std::string>& problems);

// spec.extensions.autoscale.sets[]: the number of workers of one kind follows the queue (docs/design/016).
struct SlurmAutoscale {
  std::string set = "worker";
  int min = 0, max = 0;
  std::chrono::nanoseconds idle = std::chrono::minutes(10);         // a worker that nobody needs goes after that
  std::chrono::nanoseconds place_within = std::chrono::minutes(10);  // what has not come by then is given back
};

// Workers of one kind: a NodeSet (slurm.nebius.ai/v1alpha1, api/node_set.h).
struct WorkerSet {
  std::string name, uid;
  std::int64_t generation = 0;
  bool deleting = false, held = false;           // held: of a view (api/node_set.h)
  SlurmRole role;
  bool gpus = true;                              // spec.gpu.enabled: false keeps them out of Gres
  std::vector<std::string> features;             // beside its name
  std::string definition;                        // further words for slurmd --conf: "Weight=10"
  std::vector<std::string> gres;                 // lines for gres.conf; none: its GPUs
  std::map<std::string, std::string> annotations;  // of its pods
  std::optional<SlurmScaleDown> scale_down;      // spec.extensions.scaleDown of the set; none: that of the cluster
  std::vector<std::string> problems, ignored;
};

// spec.populateJail: the shared root file system that every step and session lives in. Without an image the jail volume holds users and homes only.
struct SlurmJail {
  std::string image;        // whose root it becomes
  std::string node_filter;  // where it is filled
  std::string source;       // of volumeSources: the volume, for all nodes
  std::string version;      // that is to be current: annotation kJailVersion; empty: none is asked for
  bool overwrite = false;   // a changed image is such a request
  bool wanted() const { return !image.empty(); }
};
inline constexpr const char* kJailVersion = "fairlead.dev/jail-version";
// Of a SlurmCluster, by its name.
inline std::string munge_secret_of(const std::string& cluster) { return cluster + "-munge"; }
inline std::string config_map_of(const std::string& cluster) { return cluster + "-slurm-configs"; }
inline constexpr const char* kJailVolume = "/mnt/jail-volume";  // where pods have the volume then; /mnt/jail is the root in it

// What the user wrote for slurm.conf, as given: slurm/plan/custom_config.h says what is wrong with it, and what was in force stays so (docs/slurm-config.md).
struct SlurmConfigSetting {
  std::string path, key, value;  // "spec.slurmConfig.minJobAge", "MinJobAge", "300"
};
struct SlurmConfigChoices {
  std::vector<SlurmConfigSetting> settings;  // spec.slurmConfig
  std::string custom;                        // spec.customSlurmConfig
  std::string partitions = "default";        // spec.partitionConfiguration.configType
  std::vector<std::string> raw_partitions;   // spec.partitionConfiguration.rawConfig
  bool any() const { return !settings.empty() || !custom.empty() || partitions != "default" || !raw_partitions.empty(); }
};

struct SlurmCluster {
  std::string name, space, uid;
  std::string worker_set = "worker";  // whose workers `worker` describes: a cluster with NodeSets is looked at set by set (api/node_set.h)
  std::int64_t generation = 0;
  bool deleting = false, paused = false;
  bool was_elected = false;                          // its state is that of elected heads (terms), so that one head alone is elected, too; not of the resource, see plan/inputs.cpp
  std::map<std::string, NodeFilter> filters;
  std::map<std::string, kube::Json> volume_sources;  // name -> the pod volume source beside it
  SlurmRole controller, worker, login;
  SlurmRole exporter;                // size 0: none is asked for
  std::chrono::seconds exporter_interval{30};  // between two looks at Slurm
  SlurmRole rest;                    // spec.slurmNodes.rest: slurmrestd, and tokens for it; size 0: neither is asked for
  int rest_threads = 3;              // of each slurmrestd
  bool has_workers = true;           // spec.slurmNodes.worker is given; else its size is 0
  std::vector<WorkerSet> sets;       // by name; those with problems, too: what runs of them goes on
  WorkerSet set;                     // of a view: whose workers `worker` describes, beside what `worker` says
  SlurmLoginService login_service;
  std::string sshd_config_map;       // with the user's own sshd_config; empty: ours
  std::string nccl_topology;         // a file for NCCL on the workers; empty: none
  SlurmJail jail;
  std::vector<std::string> root_keys;
  std::string sshd_keys_secret;      // named by the user; empty: ours
  std::string cgroup_version;        // "v1", "v2"
  bool gpus = true;                  // spec.clusterType: "cpu" keeps GPUs out of Gres
  bool mock_gpus = false;            // spec.extensions.mockGpus: Gres without hardware, for trying out
  bool bind_cores = true;            // spec.extensions.bindCores: false where several nodes share the same cores (local nodes)
  SlurmScaleDown scale_down;         // spec.extensions.scaleDown
  std::vector<SlurmAutoscale> autoscale;  // spec.extensions.autoscale.sets, each set once
  bool holds_jobs = false;           // spec.extensions.quota is there: jobs are held until their queue admits them (api/slurm_quota.h)
  SlurmAccounting accounting;        // spec.slurmNodes.accounting, spec.extensions.accounting
  SlurmBackup backup;                // spec.extensions.backup
  SlurmConfigChoices config;
  bool has_machines = false;         // label fairlead.dev/cluster: it was made for CreateCluster, and scripts of its machines speak to it
  bool role_of_instance = false;     // annotation of api/node_identity.h: its pods have the role of the machine that they are on
  bool isolated = true;              // annotation fairlead.dev/network-isolation: "Off" takes the policies of api/network_ways.h away
  std::vector<std::string> notification_topics;  // spec.extensions.notifications[].topic: NotificationTopics of this namespace
  std::vector<std::string> notification_problems;  // entries of it that name no topic, with their field; among `ignored`, too
  kube::Json owner;                  // ownerReference for everything made for this cluster

  std::vector<std::string> problems;  // what must be changed before anything is made; sentences
  std::vector<std::string> ignored;   // paths of the spec that have no effect in this version
};

// Never fails: what cannot be read becomes a problem. `default_image` stands where an image is not given.
SlurmCluster read_slurm_cluster(const kube::Json& object, const std::string& default_image);

// Does a field below spec ("slurmNodes.login.size") change anything? With nothing of its own, but with members that do: Some.
enum class InEffect { No, Some, Yes };
InEffect field_in_effect(std::string_view path);

inline constexpr int kMaxSize = 10'000;  // of each role
inline constexpr int kMaxHeads = 3;  // spec R0.1
inline constexpr int kMaxRest = 8;   // pods with slurmrestd

}  // namespace fairlead::api
