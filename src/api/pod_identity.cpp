// SPDX-License-Identifier: Apache-2.0
#include "api/pod_identity.h"

#include "api/crds.h"
#include "base/encoding.h"

namespace fairlead::api::pod_identity {
namespace {

constexpr const char* kCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podidentityassociations.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: podidentityassociations, singular: podidentityassociation, kind: PodIdentityAssociation, listKind: PodIdentityAssociationList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Namespace, type: string, jsonPath: .spec.namespace}
    - {name: Account, type: string, jsonPath: .spec.serviceAccount}
    - {name: Role, type: string, jsonPath: .spec.roleArn}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: That pods of a service account have a role. Made by CreatePodIdentityAssociation of EKS, whose callers have to be allowed to pass the role; who may write these by Kubernetes' rights can give pods any role that trusts pods.eks.amazonaws.com.
        required: [spec]
        properties:
          spec:
            type: object
            required: [namespace, serviceAccount, roleArn]
            properties:
              namespace: {type: string, minLength: 1, maxLength: 63, x-kubernetes-validations: [{rule: "self == oldSelf", message: "an association stays with its service account"}]}
              serviceAccount: {type: string, minLength: 1, maxLength: 253, x-kubernetes-validations: [{rule: "self == oldSelf", message: "an association stays with its service account"}]}
              roleArn: {type: string, minLength: 1, maxLength: 2048}
              disableSessionTags: {type: boolean, default: false, description: "Sessions carry no tags of cluster, namespace, account and pod."}
)yaml";

}  // namespace

kube::Json association_crd() { return parse_crd(kCrd); }

std::string association_name(std::string_view space, std::string_view account) { return "pods-" + hex(sha256(std::string(space) + "/" + std::string(account))).substr(0, 40); }

}  // namespace fairlead::api::pod_identity
