// SPDX-License-Identifier: Apache-2.0
// Which role the pods of a service account have: by an annotation of the account (token file), or by a PodIdentityAssociation (fairlead.dev/v1alpha1; container credentials). docs/design/061-credentials.md.
// Names of annotations, volumes and files are those of Amazon EKS, so that its manuals hold.
#pragma once
#include <string>
#include <string_view>

#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api::pod_identity {

// Cluster-wide, as an association may be there before its namespace: spec {namespace, serviceAccount, roleArn, disableSessionTags}.
inline const kube::Resource associations{"fairlead.dev", "v1alpha1", "podidentityassociations", "PodIdentityAssociation", false};
kube::Json association_crd();
// Of the object: an account has one association, so its name is made of both. What another object says of this account is not believed.
std::string association_name(std::string_view space, std::string_view account);

inline constexpr const char* role_note = "eks.amazonaws.com/role-arn";                    // of service accounts
inline constexpr const char* expiration_note = "eks.amazonaws.com/token-expiration";      // of service accounts and pods: seconds
inline constexpr const char* skip_note = "eks.amazonaws.com/skip-containers";             // of pods: names, with commas between them
inline constexpr const char* authority_note = "fairlead.dev/aws-ca.crt";                  // of pods: the authority of the site's AWS face, from where a volume has it

inline constexpr const char *web_audience = "sts.amazonaws.com", *container_audience = "pods.eks.amazonaws.com";
inline constexpr const char *web_folder = "/var/run/secrets/eks.amazonaws.com/serviceaccount", *web_volume = "aws-iam-token", *web_file = "token";
inline constexpr const char *container_folder = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount", *container_volume = "eks-pod-identity-token", *container_file = "eks-pod-identity-token";

// Where nodes answer pods that ask for container credentials, as in EKS: SDKs take plain HTTP from no other host but loopback.
inline constexpr const char* credentials_host = "169.254.170.23";
inline constexpr const char* credentials_path = "/v1/credentials";

inline const kube::Resource token_reviews{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};
inline const kube::Resource mutating_webhooks{"admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false};
inline constexpr const char* webhook_name = "fairlead-pod-credentials";      // the configuration, where the engine asks by webhooks
inline constexpr const char* webhook_secret = "fairlead-aws-webhook";         // Secret: path, without which nobody is answered

}  // namespace fairlead::api::pod_identity
