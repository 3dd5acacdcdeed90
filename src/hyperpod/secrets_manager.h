// SPDX-License-Identifier: Apache-2.0
// Secrets Manager, as far as scripts read from it: GetSecretValue. What is served are Secrets of one namespace that somebody has marked for it, and no others. Source: docs.aws.amazon.com, AWS Secrets Manager API reference.
#pragma once
#include <string>

#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

inline constexpr const char* kServedSecret = "fairlead.dev/secrets-manager";   // label, "true"
inline constexpr const char* kSecretName = "fairlead.dev/secret-name";         // annotation: a name that is none of Kubernetes ("prod/db"); else the object's

// The ARN of a secret; its last six characters follow from the name, so that a policy may be written before the secret.
std::string secret_arn(const Site& site, const std::string& name);
// A Secret as GetSecretValue tells it. Of key SecretString, or SecretBinary, its bytes; else all keys as one JSON object, as AWS's console keeps pairs. ResourceNotFoundException: it holds no text.
Answer<Json> secret_picture(const Json& secret, const std::string& name, const Site& site);
// ResourceNotFoundException, AccessDeniedException, InvalidParameterException.
Answer<Json> answer_secrets(const std::string& operation, const Json& input, const Call& call, kube::KubeApi& api, const std::string& space);
bool is_secrets_operation(std::string_view operation);

}  // namespace fairlead::hyperpod
