// SPDX-License-Identifier: Apache-2.0
// Cluster and Instance (fairlead.dev/v1alpha1) as values: what CreateCluster asks for, and each machine that it gets. `spec` of a Cluster is that request with lower-case first letters, beside three fields of ours (docs/design/050).
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

inline const kube::Resource kClusters{"fairlead.dev", "v1alpha1", "clusters", "Cluster", false};
inline const kube::Resource kInstances{"fairlead.dev", "v1alpha1", "instances", "Instance", false};
inline const kube::Resource kClusterEvents{"fairlead.dev", "v1alpha1", "clusterevents", "ClusterEvent", true};
kube::Json cluster_crd();
kube::Json instance_crd();
kube::Json cluster_event_crd();

inline constexpr const char* kArnBegin = "fairlead.dev/arn-begin";  // annotation of a Cluster: "arn:aws:sagemaker:REGION:ACCOUNT:cluster/"
inline constexpr const char* kClusterFinalizer = "fairlead.dev/cluster";
inline constexpr const char* kInstanceFinalizer = "fairlead.dev/instance";
inline constexpr const char* kClusterLabel = "fairlead.dev/cluster";              // of Instances, Machines, Nodes that a cluster has, and its namespace: the Cluster object
inline constexpr const char* kInstanceLabel = "fairlead.dev/instance";            // of a Node and a Machine: the Instance that has it
inline constexpr const char* kSpareLabel = "fairlead.dev/spare";                  // "true" on a Node: clusters may take it
inline constexpr const char* kReplacedLabel = "fairlead.dev/replaced";            // of a Node that was given back because somebody had it replaced: it is no spare until a person says so
inline constexpr const char* kCordonedByNote = "fairlead.dev/cordoned-by";        // annotation of a Node: the Instance for which it was cordoned; what a person cordons has none
inline constexpr const char* kLogicalIdLabel = "fairlead.dev/node-logical-id";    // of Instances
inline constexpr const char* kClusterNameLabel = "sagemaker.amazonaws.com/cluster-name";         // of a Node, as in HyperPod
inline constexpr const char* kGroupNameLabel = "sagemaker.amazonaws.com/instance-group-name";
inline constexpr const char* kHealthLabel = "sagemaker.amazonaws.com/node-health-status";        // "Schedulable", ...
inline constexpr const char* kDeepCheckLabel = "sagemaker.amazonaws.com/deep-health-check-status";  // "InProgress", "Passed", "Failed"
inline constexpr const char* kComputeTypeLabel = "sagemaker.amazonaws.com/compute-type";         // "hyperpod"
inline constexpr const char* kLifecycleLabel = "fairlead.dev/lifecycle-of";       // of the pod in which a script of that Instance runs
// Of pods, annotations by which their instance is emptied (docs/design/006).
inline constexpr const char* kLeavesFirst = "fairlead.dev/leaves-first";  // when workers become fewer, this one goes before others
inline constexpr const char* kMadeAnew = "fairlead.dev/made-anew";        // it is drained, ended, and made again where there is room; a few at a time
inline constexpr const char* kMadeAnewTogether = "fairlead.dev/made-anew-together";  // so, however many are: their machines are wanted empty at the same time

// Whole numbers from 1 on: "1-3,7". Few ranges however many numbers.
class NumberSet {
 public:
  static Result<NumberSet> parse(std::string_view text);  // Invalid: not such a text
  std::string text() const;
  bool contains(int number) const;
  void add(int number) { add(number, number); }
  void add(int first, int last);
  void add(const NumberSet& other);
  int size() const;
  int last() const { return ranges_.empty() ? 0 : ranges_.back().second; }
  friend bool operator==(const NumberSet&, const NumberSet&) = default;

 private:
  std::vector<std::pair<int, int>> ranges_;  // first and last, ascending, apart from one another
};

enum class SlurmNodeType { Controller, Login, Compute };
std::string_view text(SlurmNodeType type);
enum class Orchestrator { Slurm, Eks };

// LifeCycleConfig: scripts of the group's nodes, each run once on a machine before it is in use, as root (docs/design/051).
struct LifecycleScripts {
  std::string uri;                  // "s3://BUCKET/PREFIX"; empty: there are none
  std::string bucket, prefix;       // prefix: without slashes at its ends, may be empty
  std::string on_create;            // a file below it, before Slurm is there; may be empty
  std::string on_init_complete;     // once Slurm runs on it, or, where Kubernetes orchestrates, the node is ready; may be empty
  std::string sum;                  // of all files there: those that they were then, as they are kept with the cluster; empty: what lies there now
  bool any() const { return !on_create.empty() || !on_init_complete.empty(); }
  std::string source() const { return sum.empty() ? uri : uri + "@" + sum; }  // by which what lies there is told from what lay there
};
bool is_bucket_name(std::string_view name);  // by the rules of S3: nothing else gets into a path
LifecycleScripts read_lifecycle(const kube::Json& config);  // `lifeCycleConfig`, in lower camel case; null, or one that is none: there are none

// Deep health checks by HyperPod's names (docs/design/058).
struct DeepChecks {
  bool stress = false;        // InstanceStress
  bool connectivity = false;  // InstanceConnectivity
  bool any() const { return stress || connectivity; }
};

// Each node of a group has a number, given once: 1 to `issued`; those of `retired` are gone or to go. So a name never comes back.
struct InstanceGroup {
  std::string name;                 // as in the request
  std::string set;                  // of its workers in Slurm, a name of Kubernetes
  std::string type;                 // "ml.g5.xlarge"
  int target = 0, min = 0;
  std::string role;                 // ExecutionRole: an ARN
  SlurmNodeType node_type = SlurmNodeType::Compute;
  std::vector<std::string> partitions;
  std::map<std::string, std::string> labels;  // KubernetesConfig, of nodes that Kubernetes orchestrates
  kube::Json taints = kube::Json::array();     // as in Node.spec.taints
  LifecycleScripts scripts;
  int volume_gib = 0;               // instanceStorageConfigs: at /opt/sagemaker of each node (docs/design/063); 0: none
  std::string volume_key;           // volumeKmsKeyId: by which it is encrypted, in a pool (docs/design/081); empty: it is a file of the machine's own disk
  DeepChecks checks_on_start;       // onStartDeepHealthChecks: a machine is in use once it has passed (docs/design/058)
  std::string plan;                 // trainingPlanArn: the TrainingPlan object out of which its machines come; empty: none
  int issued = 0;                   // of the spec and the status: the greater
  NumberSet retired;                // of both
  int live() const { return issued - retired.size(); }
};

// UpdateClusterSoftware: machines of these groups are made anew and prepared again, so many at a time, each once it is empty. A new id asks for it once.
struct CapacitySize {
  int value = 0;                    // 0: all
  bool percent = false;             // of the instances of a group
  int of(int instances) const;      // at least one
};
struct SoftwareUpdate {
  std::string id;                   // empty: none was asked for
  std::vector<std::string> groups;  // empty: all
  CapacitySize batch, back_batch;   // of a group, at a time: onwards, and of a rollback
  std::chrono::seconds wait{0};     // between batches; where there are alarms, after the last one, too
  std::vector<std::string> alarms;  // one that fires, or an instance that fails, rolls it back; empty: nothing does
  bool of(std::string_view group) const;
  std::string back_id() const { return id + kBack; }  // what its instances are told of its rollback as
  static constexpr const char* kBack = ".back";
};

struct Cluster {
  std::string name, title, uid;     // title: ClusterName as it was given
  std::string arn;                  // empty: it did not come by the API
  std::string space, slurm_name;    // of what is made for it: namespace, SlurmCluster
  std::int64_t generation = 0;
  bool deleting = false, finalizer = false;
  Orchestrator orchestrator = Orchestrator::Slurm;
  bool continuous = false;          // nodeProvisioningMode; else all or nothing
  SoftwareUpdate software;          // the last that was asked for
  bool recovers = true;             // nodeRecovery: what labels of its nodes' health ask for is done
  std::vector<InstanceGroup> groups;  // as given
  std::vector<std::string> problems;  // sentences; nothing is changed while there are any
  const InstanceGroup* group(std::string_view name) const;
  bool has_scripts() const;
};
// By what machines of a group are prepared: its lifeCycleConfig, or, after a rollback and until that is changed or updated, the one of before with the sum of its files (status.scripts, docs/design/065). `spec`: spec_in_force. Valid as long as both.
const kube::Json& lifecycle_in_force(const kube::Json& object, const kube::Json& spec, std::string_view group);
// The spec that is acted on: the object's own, or, of a change that was taken back, the last good one with the numbers that were given out since.
kube::Json spec_in_force(const kube::Json& object);
// What a group that is asked for anew keeps of the one that is there: the numbers that were given out, and its place in Slurm where nothing is said of it.
void keep_of_group(kube::Json& group, const kube::Json& there);
// Never fails. `spec`: spec_in_force.
Cluster read_cluster(const kube::Json& object, const kube::Json& spec);
inline Cluster read_cluster(const kube::Json& object) { return read_cluster(object, spec_in_force(object)); }
std::string space_of_cluster(const std::string& name);
// EventMetadata of a ClusterEvent, as HyperPod's API and its copies have it.
kube::Json event_metadata(const kube::Json& event);

struct Instance {
  std::string id;                   // the object's name: "i-" and 17 of 0-9a-f
  std::string cluster, cluster_uid, group, type, logical_id;
  int number = 0, attempt = 0;      // attempt: of the machines that this node of the cluster has had
  std::string reboot, replace, health_check;  // id of the last request
  DeepChecks health_checks;         // what the last request asks for
  bool deleting = false, finalizer = false;
  // From status.
  std::string phase, message, node, reboot_id, reboot_stage;
  std::string check_id, check_stage;  // of the last deep health check ("start": of the one before it was in use): Emptying, Checking, Passed, Failed
  bool checking() const { return check_stage == "Emptying" || check_stage == "Checking"; }
  std::string software_id, software_stage;  // of the last update: Emptying, Renewing (its machine goes), Preparing, Done
  bool updating() const { return !software_stage.empty() && software_stage != "Done"; }
  bool made = false;                // the machine is ours, and goes with it
  std::optional<LifecycleScripts> scripts;  // that it runs, since its machine was chosen or the first of them began; none: its group's, as these are
  bool ran = false;                 // it was Running once: its scripts are behind it for good
};
Instance read_instance(const kube::Json& object);

std::string logical_id_of(const std::string& cluster_uid, const std::string& group, int number);           // in the form of a UUID
std::string instance_id_of(const std::string& cluster_uid, const std::string& group, int number, int attempt);

// What stands behind the kind in an ARN: 12 of 0-9a-z, from an object's uid.
std::string entity_id(std::string_view uid);

// A DNS label for any name: itself, else in lower case, cut, with a hash of the whole. Different names give different labels.
std::string plain_label(std::string_view name, std::size_t longest);

}  // namespace fairlead::api
