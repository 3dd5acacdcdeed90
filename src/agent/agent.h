// SPDX-License-Identifier: Apache-2.0
// The agent of one node: wires runtime, controllers, names, access and heartbeat together over a KubeApi.
#pragma once
#include <memory>

#include "base/clock.h"
#include "kube/kube_api.h"
#include "node/config.h"
#include "node/oci_runtime.h"

namespace fairlead::agent {

struct AgentOptions {
  node::NodeConfig config;
  bool answer_names = true;                       // DNS on the pods' bridge, port 53
  bool serve = true;                              // HTTPS on node_ip:listen_port
  bool answer_credentials = true;                 // container credentials for pods, at 169.254.170.23:80; where that is taken, pods go without
  std::function<void(std::string_view)> at_step;  // see OciRuntimeOptions
};

class Agent {
 public:
  // Everything runs when this returns; pods are adopted as soon as the API answers. On destruction containers go on.
  static Result<std::unique_ptr<Agent>> start(kube::KubeApi& api, const Clock& clock, AgentOptions options);
  virtual ~Agent() = default;
};

}  // namespace fairlead::agent
