// SPDX-License-Identifier: Apache-2.0
// The bearer token that `aws eks get-token` gives kubectl: "k8s-aws-v1." and a presigned GetCallerIdentity of STS, base64url. Who made it is found by its signature here; nothing is asked of STS. Pure.
// Source of the rules: aws-iam-authenticator's verifier (which parameters there may be, 15 minutes at most, header x-k8s-aws-id).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "hyperpod/front.h"

namespace fairlead::hyperpod {

inline constexpr std::string_view eks_token_prefix = "k8s-aws-v1.";
inline constexpr std::chrono::minutes longest_eks_token{15};

// The request that was signed. InvalidIdentityToken: not such a token, or one for another cluster.
Answer<http::Request> read_eks_token(std::string_view token, std::string_view cluster);

// A user of Kubernetes, as an identity's access entry says.
struct KubernetesUser {
  std::string name, uid;
  std::vector<std::string> groups;
  std::string arn, session;  // for extra
};
// AccessDeniedException: the identity has no access entry.
Answer<KubernetesUser> kubernetes_user(const Principal& who);
// What no access entry may give: names and groups that Kubernetes, EKS or this site use themselves.
bool is_reserved_name(std::string_view name);
// {{SessionName}} is what a caller chooses: it stands once, behind a colon, and in the entry of a role alone. Empty: fine.
std::string problem_of_username(std::string_view name, bool role);

}  // namespace fairlead::hyperpod
