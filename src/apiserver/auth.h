// SPDX-License-Identifier: Apache-2.0
// Who asks and what they may do. Pure but for NodeFacts. Default: deny.
//   system:masters            everything
//   system:nodes, NAME        reads what a node needs; writes its own Node and Lease, the status of pods bound to it (and their deletion), events
//   everybody with an identity  discovery, OpenAPI, and asking about themselves
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/api_handler.h"
#include "apiserver/auth_types.h"
#include "apiserver/routes.h"
#include "base/result.h"
#include "http/message.h"
#include "kube/json.h"

namespace fairlead::apiserver {

// By a verified client certificate or a bearer token. Unauthorized: neither, or an unknown token.
Result<User> authenticate(const http::Request& request, const std::vector<TokenUser>& tokens);

// What authorizing a node must look up.
class NodeFacts {
 public:
  virtual ~NodeFacts() = default;
  virtual bool pod_is_on(const std::string& space, const std::string& pod, const std::string& node) const = 0;
  // Does a pod on this node mount or read this Secret or ConfigMap ("secrets", "configmaps")?
  virtual bool pod_there_uses(const std::string& node, const std::string& resource, const std::string& space, const std::string& name) const = 0;
};
Verdict authorize(const User& user, const Attributes& attributes, const NodeFacts& facts);
// status.resourceRules and nonResourceRules of a SelfSubjectRulesReview.
kube::Json rules_of(const User& user);

// Does this pod's spec name the Secret or ConfigMap (volumes, projections, env, envFrom, imagePullSecrets)?
bool pod_uses(const kube::Json& pod, std::string_view resource, std::string_view name);

}  // namespace fairlead::apiserver
