// SPDX-License-Identifier: Apache-2.0
// A container as the runtime needs it, from the pod and everything that it refers to.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "kube/json.h"

namespace fairlead::node {

// What image.json of the local store says.
struct ImageConfig {
  std::string reference;  // as the pod names it
  std::string id;         // "sha256:..." or the reference
  std::string rootfs;     // folder
  std::vector<std::string> entrypoint, cmd, env;
  std::string user, working_dir;
};

struct MountSpec {
  std::string source;  // path on the node; for "tmpfs", "proc", ... the type's name
  std::string target;  // path in the container
  std::string type = "bind";
  std::vector<std::string> options;
  friend bool operator==(const MountSpec&, const MountSpec&) = default;
};

struct Device {
  std::string path;  // in the container
  char type = 'c';   // 'c' or 'b'
  std::int64_t major = 0, minor = 0;
  std::uint32_t mode = 0666;
  std::int64_t uid = 0, gid = 0;
  std::string permissions = "rwm";  // of "r", "w", "m"
  std::string volume{};  // that the device shows: the container's monitor holds it open, and while it does the number is no other's
  friend bool operator==(const Device&, const Device&) = default;
};

// A program that the runtime runs on the node at a stage of the container's start or end (OCI runtime specification, hooks).
struct ContainerHook {
  std::string stage;  // "createContainer"
  std::string path;
  std::vector<std::string> args, env;
  std::int64_t timeout_seconds = 0;  // 0: none
  friend bool operator==(const ContainerHook&, const ContainerHook&) = default;
};

// A device that a container alone has. Its name may mean another one in a later file; its nodes tell.
struct GrantedDevice {
  std::string name;                // "0", "GPU-5c..."
  std::vector<std::string> nodes;  // on the machine, sorted: "/dev/nvidia0"
  friend bool operator==(const GrantedDevice&, const GrantedDevice&) = default;
};
using Granted = std::map<std::string, std::vector<GrantedDevice>>;  // by resource

struct Limits {
  std::optional<std::int64_t> cpu_shares;  // v1 scale, 1024 is one CPU
  std::optional<MilliCpu> cpu;             // quota; empty: none
  std::optional<Bytes> memory;             // empty: none
  std::optional<std::int64_t> pids;
  friend bool operator==(const Limits&, const Limits&) = default;
};

struct ContainerSpec {
  std::string pod_uid, name;
  int attempt = 0;
  std::string id;  // of the runtime
  ImageConfig image;
  std::vector<std::string> argv;
  std::vector<std::string> env;  // "KEY=value"
  std::string cwd = "/";
  std::int64_t uid = 0, gid = 0;
  std::vector<std::int64_t> groups;
  std::vector<std::string> capabilities;  // "CAP_CHOWN"
  bool privileged = false, no_new_privileges = false, read_only_root = false;
  bool seccomp = true;  // the default profile
  bool unmasked_proc = false;
  bool host_network = false, host_pid = false, host_ipc = false;
  std::map<std::string, std::string> sysctls;
  std::vector<MountSpec> mounts;
  std::vector<Device> devices;  // beyond the usual ones
  std::vector<ContainerHook> hooks;
  Granted granted;
  Limits limits;
  std::string termination_path = "/dev/termination-log";
  bool termination_from_log = false;  // FallbackToLogsOnError
  int backoff_seconds = 0;
  bool in = false, in_once = false, terminal = false;  // stdin, stdinOnce, tty
  bool share_processes = false;
};

// What environment variables may refer to. ConfigMap and Secret objects by name; null: not there.
struct EnvironmentSources {
  std::function<Result<kube::Json>(const std::string& name)> config_map, secret;  // NotFound: no such object
  std::string pod_ip, host_ip, node_name;  // addresses: the first one, then others after commas
  std::vector<std::pair<std::string, std::string>> services = {};  // what comes before all else in an environment
  MilliCpu node_cpu;  // for resourceFieldRef without a limit
  Bytes node_memory, node_storage;
};
// env and envFrom in order, later ones win, $(VAR) expanded. Invalid: the reason ("secret \"x\" not found"), which becomes
// CreateContainerConfigError.
Result<std::vector<std::pair<std::string, std::string>>> make_environment(const kube::Json& pod, const kube::Json& container,
                                                                          const EnvironmentSources& sources);

// NAME_SERVICE_HOST and its like for the services with an address in the pod's namespace, if `links`, and always for default/kubernetes.
std::vector<std::pair<std::string, std::string>> service_variables(const std::vector<kube::Json>& services, const std::string& space, bool links);

// $(NAME) of known names; $$( gives $( ; unknown ones stay as they are.
std::string expand(const std::string& text, const std::vector<std::pair<std::string, std::string>>& variables);

// metadata.name, metadata.labels['x'], spec.nodeName, status.podIP, ...; Invalid: not a field that the downward API knows.
Result<std::string> field_value(const kube::Json& pod, const std::string& path, const EnvironmentSources& sources);
Result<std::string> resource_value(const kube::Json& pod, const std::string& own_container, const kube::Json& reference,
                                   const EnvironmentSources& sources);

// Users and groups of an image, as text of its /etc/passwd and /etc/group.
struct Accounts {
  std::string passwd, group;
};
// Fills everything but mounts and devices. `held` are the capabilities that this node can give (names with CAP_).
Result<ContainerSpec> make_container_spec(const kube::Json& pod, const kube::Json& container, int attempt, const ImageConfig& image,
                                          const Accounts& accounts, const EnvironmentSources& sources, const std::vector<std::string>& held);

// 32 hexadecimal digits: short enough for socket paths.
std::string container_id(const std::string& pod_uid, const std::string& name, int attempt);

Limits container_limits(const kube::Json& container);
// Of the pod's cgroup: the sums, each only if every container has that limit.
Limits pod_limits(const kube::Json& pod, std::int64_t pids);

}  // namespace fairlead::node
