// SPDX-License-Identifier: Apache-2.0
// EKS of one cluster: the Kubernetes that this server works with, so that `aws eks update-kubeconfig` and `hyp` find it; and who of the identities may enter it (access entries). Source: docs.aws.amazon.com, Amazon EKS API reference.
#pragma once
#include <string>

#include "http/message.h"
#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

struct EksCluster {
  std::string name = "fairlead";
  std::string endpoint, ca_pem;     // as clients reach its API
  std::string version;              // "1.33"
  std::string issuer = {};          // of tokens of its service accounts, as trust policies name it: "https://HOST/PATH"; empty: not known
  std::string authentication_mode = "API";  // access entries let people in (eks_token.h), and there is no aws-auth
  Instant created{};
};
std::string eks_arn(const Site& site, const std::string& cluster);

struct EksAnswer {
  int status = 200;
  Json body;
};
// Method and path as in EKS's REST API: /clusters, /clusters/NAME, its /access-entries, /pod-identity-associations, /addons. Errors have EKS's names and statuses (ResourceNotFoundException 404, ResourceInUseException 409).
Answer<EksAnswer> answer_eks(const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster);
// "DescribeCluster", ... for the audit; empty: no such operation.
std::string eks_operation(const http::Request& request);

}  // namespace fairlead::hyperpod
