// SPDX-License-Identifier: Apache-2.0
// The config.json of the OCI runtime specification (1.0.2) for one container.
#pragma once
#include <string>

#include "kube/json.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

// Pinned namespaces of the sandbox (files) and where the container's cgroup is. Empty: the node's own namespace.
struct SandboxPaths {
  std::string network, ipc, uts;
  std::string pid;     // of a pod that shares its processes; empty: one of the container's own
  std::string shm;     // folder: the pod's /dev/shm
  std::string cgroup;  // "/fairlead-ab12cd/worker-0/pod<uid>/<container>"
};
// `seccomp` is the default profile (seccomp.h), used unless the container asked for none.
kube::Json make_oci_config(const ContainerSpec& spec, const SandboxPaths& sandbox, const std::string& rootfs, const kube::Json& seccomp);

}  // namespace fairlead::node
