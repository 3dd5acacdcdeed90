// SPDX-License-Identifier: Apache-2.0
// Access policies of EKS: rights in Kubernetes that an access entry has by name. Source: docs.aws.amazon.com, Amazon EKS user guide, "Associate access policies with access entries". docs/design/067-access-policies.md.
//
// Here one is a group that no access entry can name itself, in the tokens of whom it is associated with. What the group may do, a binding of the site's administrator says; without one the association is refused: who may write access entries
// gives nobody rights that the administrator has not offered in this way.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperpod/aws_error.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

struct AccessPolicy {
  const char *name, *role;  // "AmazonEKSViewPolicy"; the ClusterRole of Kubernetes that means the same
  std::string arn() const;  // "arn:aws:eks::aws:cluster-access-policy/NAME"
  // Of the whole cluster, or of one namespace: "fairlead:access:view", "fairlead:access:view:team-a".
  std::string group(std::string_view space = "") const;
};
std::span<const AccessPolicy> access_policies();
const AccessPolicy* find_access_policy(std::string_view arn);

// The groups that `spec.accessEntry.policies` of an Identity gives. What is not known there gives none.
std::vector<std::string> groups_of_policies(const kube::Json& policies);

// Is there a binding of the group to a role, in the cluster or in each of these namespaces? InvalidParameterException: no; with the command that makes it.
Answer<void> check_offered(kube::KubeApi& api, const AccessPolicy& policy, const std::vector<std::string>& spaces);

}  // namespace fairlead::hyperpod
