// SPDX-License-Identifier: Apache-2.0
// What a node may do: as Kubernetes' node authorizer and its admission plug-in NodeRestriction. An agent reads what it needs to run its pods and to tell names (pods, services
// and nodes, whole), writes its own Node, Lease and the status of pods bound to it, and sees the Secrets, ConfigMaps and claims of those pods alone. Pure but for NodeFacts.
#pragma once
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "apiserver/auth_types.h"
#include "base/result.h"

namespace fairlead::apiserver {

// What authorizing a node must look up.
class NodeFacts {
 public:
  virtual ~NodeFacts() = default;
  virtual bool pod_is_on(const std::string& space, const std::string& pod, const std::string& node) const = 0;
  // Does a pod on this node name this object ("secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts"), or a claim that is bound to it ("persistentvolumes")?
  virtual bool pod_there_uses(const std::string& node, const std::string& resource, const std::string& space, const std::string& name) const = 0;
};
Verdict authorize_node(const std::string& node, const Attributes& attributes, const NodeFacts& facts);

// Does this pod's spec name the object (volumes, projections, env, envFrom, imagePullSecrets, claims, its account)?
bool pod_uses(const kube::Json& pod, std::string_view resource, std::string_view name);

// NodeRestriction for a write of a Node by itself: `old` is null when it registers. Forbidden: labels outside the kubelet's own, taints, owners.
Result<void> check_node_write(const std::string& node, const kube::Json* old, const kube::Json& next);

// Which pods are on which node. One owner; not thread-safe.
class NodePods {
 public:
  void put(const kube::ObjectKey& pod, const std::string& node, const std::string& uid);
  void drop(const kube::ObjectKey& pod);
  bool knows(const kube::ObjectKey& pod, const std::string& uid) const;
  // In the order of their names.
  std::vector<kube::ObjectKey> on(const std::string& node, const std::string& space) const;

 private:
  struct Place {
    std::string node, uid;
  };
  std::map<kube::ObjectKey, Place> pods_;
  std::unordered_map<std::string, std::set<kube::ObjectKey>> nodes_;
};

}  // namespace fairlead::apiserver
