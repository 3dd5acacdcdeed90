// SPDX-License-Identifier: Apache-2.0
// Lifecycle scripts of a cluster's machines: the pod in which one runs, what it finds there, what it came to. Pure; docs/design/051-lifecycle-scripts.md.
// The contract (files, folders, environment) is HyperPod's: what its agent puts on a node before it runs OnCreate.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "base/result.h"

namespace fairlead::fleet {

// All files below one s3://BUCKET/PREFIX, by their path below it, at one time.
using ScriptFiles = std::map<std::string, std::string>;
inline constexpr std::size_t kMostScriptFiles = 1000, kMostScriptBytes = 8 << 20;

// As objects of the API: Secrets of one namespace, none larger than the API takes, named by what is in them.
struct ScriptBundle {
  std::string sum;                       // of paths and contents
  std::vector<kube::Json> secrets;       // without namespace and owner
  std::vector<std::string> names;        // of these
  std::vector<std::string> paths;        // of the files
};
ScriptBundle bundle_scripts(const ScriptFiles& files);
// The name of one of its Secrets, from 0.
std::string bundle_secret_name(const std::string& sum, std::size_t index);
// The bundle that these Secrets hold, as they are kept (docs/design/065); its `secrets` are empty, for they are there. NotFound: they are not all of it, or not what `sum` says. As many as it has, in order.
Result<ScriptBundle> kept_bundle(const std::string& sum, const std::vector<kube::Json>& secrets);

// What a look at such a place found.
struct ScriptSource {
  std::optional<ScriptBundle> bundle;
  std::string problem;                   // else: one sentence
  bool missing = false;                  // the problem is that there is no such folder, or that what is there cannot be taken: to wait does not help
};

enum class ScriptStage { OnCreate, OnInitComplete };
inline constexpr ScriptStage kStages[] = {ScriptStage::OnCreate, ScriptStage::OnInitComplete};
const char* field_of(ScriptStage stage);                                                        // "onCreate": of the spec and of Instance.status.lifecycle
const std::string& file_of(const api::LifecycleScripts& scripts, ScriptStage stage);
inline constexpr const char* kScriptUpdate = "fairlead.dev/software-update";  // annotation of its pod: the update that it prepares the machine again for; none: the first time
inline constexpr const char* kScriptSum = "fairlead.dev/script-sum";  // annotation of its pod: ScriptBundle::sum
std::string script_pod_name(const std::string& instance, ScriptStage stage);

// Of the Kubernetes that machines become nodes of, as KubernetesConfig tells scripts; what is empty is not told.
struct KubernetesFacts {
  std::string name;                      // as EKS tells of it
  std::string endpoint, authority;       // as nodes reach its API: "https://HOST:PORT"; PEM
  std::string service_range;             // of IPv4: "10.79.0.0/16"
};

struct ScriptPodOptions {
  KubernetesFacts kubernetes{};
  std::string image;                     // of Slurm's containers
  kube::Json companion;                  // a pod volume source that holds fairlead-slurm; null: the image has it
  std::chrono::seconds limit{3600};      // that a script may take
  std::chrono::seconds check{60};        // that a deep health check takes
};
// Where its root is: the cluster's shared root; the machine itself; or the container's own, where the machine is one of ours that shares its root with this machine.
enum class ScriptRoot { Shared, Machine, Container };
kube::Json script_pod(const api::Cluster& cluster, const api::InstanceGroup& group, const api::LifecycleScripts& scripts, const api::Instance& instance, const kube::Json& owner, ScriptStage stage, ScriptRoot root, const ScriptBundle& bundle, const ScriptPodOptions& options);

// The pod that tries a machine (`fairlead-slurm deep-check`); it ends as scripts do. `gpus`: that it is to have.
std::string check_pod_name(const std::string& instance);
inline constexpr const char* kCheckRequest = "fairlead.dev/health-check";  // annotation of it: the id of the request
kube::Json check_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& request, const kube::Json& owner, int gpus, const ScriptPodOptions& options);

// Of a meeting (links.h) whose links are tried: the pod that answers (`fairlead-slurm answer-links`), and the one that tries (`check-links`), whose last word is what it found.
// `peers`: "INSTANCE=ADDRESS INSTANCE=ADDRESS". The meeting is their annotation kCheckRequest.
std::string answering_pod_name(const std::string& instance);
kube::Json answering_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& meeting, const kube::Json& owner, const ScriptPodOptions& options);
std::string links_pod_name(const std::string& instance);
kube::Json links_pod(const api::Cluster& cluster, const api::Instance& instance, const std::string& meeting, const kube::Json& owner, const std::string& peers, const ScriptPodOptions& options);

// The pod is one of ours: made for an Instance that it names, in a cluster's namespace. Anybody may name a pod alike.
bool is_script(const kube::Json& pod);
bool is_script_of(const kube::Json& pod, const kube::Json& instance);

// What scripts read of the cluster, as ConfigMaps: one for the cluster, and for each group one for each 2,000 of its numbers, since 6,758 nodes fit into none together.
struct ScriptNode {
  std::string group, instance;
  std::string machine, address;          // of its machine; of what Slurm has on it, or again the machine's
  int number = 0;
};
inline constexpr int kNodesPerConfig = 2000;
std::vector<kube::Json> script_configs(const api::Cluster& cluster, const kube::Json& owner, const std::vector<ScriptNode>& nodes, const KubernetesFacts& kubernetes);

// What became of a script.
struct ScriptEnd {
  enum class Kind { Waiting, Going, Succeeded, Failed, Lost };  // Waiting: it has not begun; Lost: nobody knows whether it ended; the pod is to be made anew
  Kind kind = Kind::Waiting;
  int exit_code = 0;
  std::string message;                   // its last lines, or what it waits for
};
ScriptEnd end_of_script(const kube::Json& pod);

}  // namespace fairlead::fleet
