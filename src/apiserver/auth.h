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
#include "apiserver/routes.h"
#include "base/result.h"
#include "http/message.h"
#include "kube/json.h"

namespace fairlead::apiserver {

struct User {
  std::string name;
  std::vector<std::string> groups;  // system:authenticated is always there
  bool in(std::string_view group) const;
  std::string node() const;  // "w0" of system:node:w0 in group system:nodes; else empty
};
// By a verified client certificate or a bearer token. Unauthorized: neither, or an unknown token.
Result<User> authenticate(const http::Request& request, const std::vector<TokenUser>& tokens);

struct Attributes {
  std::string verb;
  bool resource_request = true;
  std::string group, resource, subresource, space, name;
  std::string selected_name;  // list and watch: the name that a field selector metadata.name=X limits them to
  std::string path;           // not a resource request
};

// What authorizing a node must look up.
class NodeFacts {
 public:
  virtual ~NodeFacts() = default;
  virtual bool pod_is_on(const std::string& space, const std::string& pod, const std::string& node) const = 0;
  // Does a pod on this node mount or read this Secret or ConfigMap ("secrets", "configmaps")?
  virtual bool pod_there_uses(const std::string& node, const std::string& resource, const std::string& space, const std::string& name) const = 0;
};
struct Verdict {
  bool allowed = false;
  std::string reason;  // why not, beyond Kubernetes' own sentence; may be empty
};
Verdict authorize(const User& user, const Attributes& attributes, const NodeFacts& facts);
// `pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "default"`.
std::string forbidden_message(const User& user, const Attributes& attributes, const Verdict& verdict);

// status.resourceRules and nonResourceRules of a SelfSubjectRulesReview.
kube::Json rules_of(const User& user);

// Does this pod's spec name the Secret or ConfigMap (volumes, projections, env, envFrom, imagePullSecrets)?
bool pod_uses(const kube::Json& pod, std::string_view resource, std::string_view name);

}  // namespace fairlead::apiserver
