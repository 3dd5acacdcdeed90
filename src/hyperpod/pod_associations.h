// SPDX-License-Identifier: Apache-2.0
// EKS Pod Identity: associations of service accounts with roles, and the credentials that their pods fetch. Source: docs.aws.amazon.com, Amazon EKS API reference (CreatePodIdentityAssociation and its kin), user guide "EKS Pod Identity". docs/design/061-credentials.md.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "hyperpod/eks.h"
#include "hyperpod/sts.h"
#include "hyperpod/web_identity.h"

namespace fairlead::hyperpod {

// A label of DNS of at most `most` characters, or with `dots` several: the name of a namespace, of a service account.
bool is_kubernetes_name(std::string_view name, std::size_t most, bool dots);

// "CreatePodIdentityAssociation", ... of /clusters/NAME/pod-identity-associations[/ID]; empty: none of them.
std::string association_operation(const http::Request& request);
// `operation`: one of these, for this cluster's name (the path's may be another). Errors as EKS has them.
Answer<EksAnswer> answer_association(const std::string& operation, const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster);

// The association of an account, read anew: who is dissociated gets nothing from then on. Nothing: it has none.
using FindAssociation = std::function<Result<std::optional<Json>>(const std::string& space, const std::string& account)>;
Result<std::optional<Json>> find_association(kube::KubeApi& api, const std::string& space, const std::string& account);

// GET /v1/credentials with a token of audience pods.eks.amazonaws.com: {AccessKeyId, SecretAccessKey, Token, AccountId, Expiration}. The session is named after cluster and pod, and has the tags that EKS gives it.
// AccessDeniedException: no association, or its role trusts pods.eks.amazonaws.com no more.
struct PodSession {
  Json body;
  std::string arn, user_id;
};
Answer<PodSession> container_credentials(std::string_view token, const ReviewToken& review, const FindAssociation& find, const Directory& directory, const SessionSeal& seal, const std::string& cluster, Instant now);

}  // namespace fairlead::hyperpod
