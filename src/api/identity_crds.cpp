// SPDX-License-Identifier: Apache-2.0
#include "api/identity_crds.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"
#include "api/crds.h"
#include "api/node_set.h"
#include "api/notification.h"
#include "api/pod_identity.h"
#include "api/stack.h"
#include "api/team_crds.h"
#include "api/network_interface.h"
#include "api/training_plan.h"
#include "api/volume.h"
#include "api/volume_key.h"
#include "api/user_roles.h"
#include "base/encoding.h"
#include "base/rng.h"

namespace fairlead::api {
namespace {

constexpr const char* kCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: identities.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: identities, singular: identity, kind: Identity, listKind: IdentityList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Type, type: string, jsonPath: .spec.type}
    - {name: Name, type: string, jsonPath: .spec.name}
    - {name: Path, type: string, priority: 1, jsonPath: .spec.path}
    - {name: Disabled, type: boolean, jsonPath: .spec.disabled}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A user or a role of the AWS face, with what it may do. What it has no policy for is refused.
        required: [spec]
        properties:
          spec:
            type: object
            required: [type, name]
            properties:
              type: {type: string, enum: [User, Role], description: "A User has access keys; a Role is assumed by those whom its trustPolicy names."}
              name: {type: string, pattern: "^[A-Za-z0-9+=,.@_-]{1,64}$", description: "As in its ARN. The object is named TYPE-NAME in lower case, with a hash where that is no name of Kubernetes; another object's identity is not believed."}
              path: {type: string, pattern: "^/([!-~]+/)?$", maxLength: 512, default: /}
              description: {type: string, maxLength: 1000}
              policies:
                type: array
                maxItems: 50
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name, document]
                  properties:
                    name: {type: string, pattern: "^[A-Za-z0-9+=,.@_-]{1,128}$"}
                    document: &document {x-kubernetes-preserve-unknown-fields: true, description: "A policy in the grammar of IAM: the JSON as text, or the same as an object. While one of them cannot be understood, the identity may do nothing."}
              attachedPolicies:
                type: array
                maxItems: 20
                x-kubernetes-list-type: set
                description: "ARNs of ManagedPolicies. While one of them is not there, the identity may do nothing."
                items: {type: string, minLength: 20, maxLength: 2048}
              permissionsBoundary: *document
              trustPolicy: *document
              maxSessionSeconds: {type: integer, minimum: 3600, maximum: 43200, default: 3600, description: "Of a Role: how long it may be assumed."}
              accessEntry:
                type: object
                description: "That it may enter Kubernetes by a token of `aws eks get-token`. What it may do there, roles bound to its user name and groups say."
                properties:
                  username: {type: string, maxLength: 253, pattern: "^[^:]*(:.*)?$", description: "Its ARN, if it is left out; of a session {{SessionName}} stands for its name. behind a colon. Not system:, eks:, aws:, amazon:, iam:, kubeadm:, fairlead: at the beginning, nor for groups."}
                  groups: {type: array, maxItems: 50, x-kubernetes-list-type: set, items: {type: string, minLength: 1, maxLength: 253}}
                  policies:
                    type: array
                    maxItems: 20
                    x-kubernetes-list-type: map
                    x-kubernetes-list-map-keys: [policyArn]
                    description: "Access policies of EKS (AssociateAccessPolicy). Each gives a group to which an administrator has bound a role: fairlead:access:view, or fairlead:access:view:NAMESPACE."
                    items:
                      type: object
                      required: [policyArn]
                      properties:
                        policyArn: {type: string, minLength: 1, maxLength: 200}
                        namespaces: {type: array, minItems: 1, maxItems: 50, x-kubernetes-list-type: set, items: {type: string, minLength: 1, maxLength: 63}, description: "Where; left out: in the whole cluster."}
                        associatedAt: {type: string, format: date-time}
                        modifiedAt: {type: string, format: date-time}
              disabled: {type: boolean, default: false, description: "Its keys and sessions are refused at once; nothing of it is lost."}
              tags:
                type: array
                maxItems: 50
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [key]
                items:
                  type: object
                  required: [key, value]
                  properties:
                    key: {type: string, minLength: 1, maxLength: 128}
                    value: {type: string, maxLength: 256}
)yaml";

constexpr const char* kPolicyCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: managedpolicies.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: managedpolicies, singular: managedpolicy, kind: ManagedPolicy, listKind: ManagedPolicyList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Name, type: string, jsonPath: .spec.name}
    - {name: Path, type: string, priority: 1, jsonPath: .spec.path}
    - {name: Version, type: string, jsonPath: .spec.version}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A policy that several Identities have; attached by its ARN in their spec.attachedPolicies.
        required: [spec]
        properties:
          spec:
            type: object
            required: [name, document]
            properties:
              name: {type: string, pattern: "^[A-Za-z0-9+=,.@_-]{1,128}$", description: "As in its ARN. The object is named policy-NAME in lower case, with a hash where that is no name of Kubernetes; another object's policy is not believed."}
              path: {type: string, pattern: "^/([!-~]+/)?$", maxLength: 512, default: /}
              description: {type: string, maxLength: 1000}
              document: &document {x-kubernetes-preserve-unknown-fields: true, description: "In the grammar of IAM: the JSON as text, or the same as an object. While it cannot be understood, nobody to whom it is attached may do anything."}
              version: {type: string, pattern: "^v[1-9][0-9]{0,8}$", default: v1, description: "Of the document."}
              versionCreated: {type: string, format: date-time}
              lastVersion: {type: integer, minimum: 1, description: "The highest number that a version had."}
              otherVersions:
                type: array
                maxItems: 4
                description: "That are kept, and decide nothing."
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id]
                items:
                  type: object
                  required: [id, document]
                  properties:
                    id: {type: string, pattern: "^v[1-9][0-9]{0,8}$"}
                    created: {type: string, format: date-time}
                    document: *document
)yaml";

// Source: docs.aws.amazon.com, "AWS managed policies for SageMaker HyperPod", "Prerequisites for using SageMaker HyperPod"; awsome-distributed-training's set-up of roles.
const std::vector<std::string>& names_of_aws() {
  static const std::vector<std::string> all{"AmazonEC2ContainerRegistryReadOnly", "AmazonEKSClusterPolicy", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonFSxReadOnlyAccess", "AmazonPrometheusRemoteWriteAccess", "AmazonS3FullAccess", "AmazonS3ReadOnlyAccess", "AmazonSSMManagedInstanceCore", "AmazonSageMakerClusterInstanceRolePolicy", "AmazonSageMakerFullAccess", "CloudWatchAgentServerPolicy", "CloudWatchLogsFullAccess"};
  return all;
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

kube::Json identity_crd() { return parse_crd(kCrd); }
kube::Json managed_policy_crd() { return parse_crd(kPolicyCrd); }

namespace identities {

const kube::Resource identities{"fairlead.dev", "v1alpha1", "identities", "Identity", false};

const kube::Resource managed_policies{"fairlead.dev", "v1alpha1", "managedpolicies", "ManagedPolicy", false};

const std::vector<std::string>& aws_policies() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> out;
    for (const std::string& name : names_of_aws()) out.push_back("arn:aws:iam::aws:policy/" + name);
    return out;
  }();
  return all;
}
bool is_aws_policy(std::string_view arn) { return std::find(aws_policies().begin(), aws_policies().end(), arn) != aws_policies().end(); }

std::string_view text(Type type) { return type == Type::User ? "User" : "Role"; }

std::optional<Type> read_type(std::string_view text) {
  if (text == "User") return Type::User;
  if (text == "Role") return Type::Role;
  return std::nullopt;
}

static bool has_name(std::string_view name, std::size_t most) {
  static constexpr std::string_view others = "+=,.@_-";
  return !name.empty() && name.size() <= most &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || others.find(c) != others.npos; });
}

bool is_name(std::string_view name) { return has_name(name, 64); }
bool is_policy_name(std::string_view name) { return has_name(name, 128); }

static std::string object_name_of(const std::string& begin, std::string_view name) {
  std::string plain, lower;
  bool same = true;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    lower += c;
    if (!is_word(c) && c != '-') same = false, c = '-';
    plain += c;
  }
  while (!plain.empty() && plain.back() == '-') plain.pop_back(), same = false;
  // "a-" and "a", "a.b" and "a-b" are different people: what was changed to fit carries a hash of the name.
  return same ? begin + plain : fmt::format("{}{}.{}", begin, plain.empty() ? "x" : plain, hex(sha256(lower)).substr(0, 10));
}

std::string object_name(Type type, std::string_view name) { return object_name_of(type == Type::User ? "user-" : "role-", name); }
std::string policy_object_name(std::string_view name) { return object_name_of("policy-", name); }

std::string key_object_name(std::string_view key_id) {
  std::string out = "access-key-";
  for (const char c : key_id) out += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return out;
}

std::optional<AccessKey> read_key(const kube::Json& secret) {
  if (secret["type"].string() != key_type) return std::nullopt;
  AccessKey key;
  std::string status;
  for (const auto& [name, into] : {std::pair<const char*, std::string*>{"accessKeyId", &key.id}, {"secretAccessKey", &key.secret}, {"identity", &key.identity}, {"identityUid", &key.identity_uid}, {"status", &status}}) {
    auto bytes = parse_base64(secret["data"][name].string());
    if (!bytes) return std::nullopt;
    *into = std::move(*bytes);
  }
  // The name is made of the id, so that no id is there twice.
  if (key.id.size() < 16 || key.secret.size() < 16 || key.identity.empty() || key.identity_uid.empty() || kube::name_of(secret) != key_object_name(key.id)) return std::nullopt;
  key.active = status == "Active";
  return key;
}

kube::Json write_key(const AccessKey& key, const std::string& space) {
  using kube::Json;
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Secret"},
                       {"metadata", Json::object({{"name", key_object_name(key.id)}, {"namespace", space}, {"labels", Json::object({{key_label, "true"}})}})},
                       {"type", key_type},
                       {"data", Json::object({{"accessKeyId", base64(key.id)}, {"secretAccessKey", base64(key.secret)}, {"identity", base64(key.identity)}, {"identityUid", base64(key.identity_uid)}, {"status", base64(key.active ? "Active" : "Inactive")}})}});
}

kube::Access aws_access(const std::string& space) {
  using namespace kube;
  const std::vector<std::string> all{"get", "list", "create", "update", "patch", "delete"};
  Access access;
  access.may({"get", "list", "watch", "create", "update", "delete"}, identities)
      .may({"get", "list", "watch", "create", "update", "delete"}, managed_policies)
      .may({"get", "list", "watch", "patch"}, resources::slurm_clusters)
      .may({"get", "list", "watch", "create", "update", "patch", "delete"}, kClusters)
      .may({"get", "list", "watch", "update"}, kInstances)
      .may({"get", "list"}, kClusterEvents)
      .may({"get", "list", "create", "update", "patch"}, kTrainingPlans)
      .may({"get", "list", "create", "update"}, kStacks)
      .may({"list", "update"}, kNetworkInterfaces)
      .may({"get", "list", "create", "update", "delete"}, kVolumes)
      .may({"get", "list", "create", "delete"}, kSnapshots)
      .may({"get", "list", "create", "update", "delete"}, kAttachments)
      .may({"get", "list", "create", "update"}, kVolumeKeys)
      .may({"get", "list"}, kVolumePools)
      .may({"list"}, rbac::cluster_role_bindings)
      .may({"list"}, rbac::role_bindings)
      .may({"get", "list", "watch"}, resources::nodes)
      .may({"get", "list"}, resources::pods)
      .may({"get"}, resources::pods, "log")
      .may({"get", "list", "create", "update", "delete"}, kTopics, "", space)
      .may({"update"}, kTopics, "finalizers", space)
      .may({"create", "list"}, kNotifications, "", space)
      .may({"get", "list"}, kNodeSets)
      .may(all, teams::configs)
      .may(all, teams::quotas)
      .may({"get", "list", "watch", "create", "patch", "delete"}, resources::secrets, "", space)
      .may({"create"}, resources::config_maps, "", space)
      .may({"get", "patch"}, resources::config_maps, "", space, {settings_name})
      // Credentials of pods: whose token it is, which role their accounts have, and that the API asks about new ones.
      .may({"create"}, pod_identity::token_reviews)
      .may({"get"}, resources::service_accounts)
      .may({"get", "list", "create", "update", "delete"}, pod_identity::associations)
      .may({"create"}, pod_identity::mutating_webhooks)
      .may({"patch"}, pod_identity::mutating_webhooks, "", "", {pod_identity::webhook_name});
  // What is looked at before Kubernetes is to orchestrate a cluster: its network plug-in, its families of addresses, what the site says of its networks.
  access.may({"list"}, Resource{"apps", "v1", "daemonsets", "DaemonSet", true})
      .may({"get"}, resources::services)
      .may({"get"}, resources::config_maps, "", space, {networks_name});
  return access;
}

std::vector<kube::Json> node_settings_role(const std::string& space) {
  constexpr const char *rbac = "rbac.authorization.k8s.io", *name = "fairlead-aws-settings";
  const auto object = [&](const char* kind) { return kube::Json::object({{"apiVersion", std::string(rbac) + "/v1"}, {"kind", kind}, {"metadata", kube::Json::object({{"name", name}, {"namespace", space}})}}); };
  const kube::Access access = kube::Access().may({"get"}, kube::resources::config_maps, "", space, {settings_name});
  kube::Json binding = object("RoleBinding");
  binding.set("roleRef", kube::Json::object({{"apiGroup", rbac}, {"kind", "Role"}, {"name", name}}));
  binding.set("subjects", kube::Json::array({kube::Json::object({{"apiGroup", rbac}, {"kind", "Group"}, {"name", "system:nodes"}})}));
  return {object("Role").set("rules", kube::role_rules(access, space)), std::move(binding)};
}

std::string random_key_id(std::string_view begin) {
  static constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  std::string out(begin);
  for (const char c : secret_bytes(16)) out += letters[static_cast<unsigned char>(c) % letters.size()];
  return out;
}

AccessKey new_key(std::string identity, std::string identity_uid) {
  AccessKey key{.id = random_key_id("AKIA"), .secret = base64(secret_bytes(30)), .identity = std::move(identity), .identity_uid = std::move(identity_uid), .active = true};
  return key;
}

}  // namespace identities
}  // namespace fairlead::api
