// SPDX-License-Identifier: Apache-2.0
// Identity: who may call the AWS face, and what for (docs/identities.md). Access keys are Secrets beside it.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/access.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::api {

kube::Json identity_crd();
kube::Json managed_policy_crd();

namespace identities {

extern const kube::Resource identities;  // fairlead.dev/v1alpha1, cluster-wide
inline constexpr const char* default_space = "fairlead-system";   // where keys and the site's settings are
inline constexpr const char* settings_name = "fairlead-aws";      // ConfigMap: account, region, endpoint, ca.crt
inline constexpr const char* sessions_name = "fairlead-aws-sessions";  // Secret: current, previous: keys of session tokens, 32 bytes each
inline constexpr const char* authority_name = "fairlead-aws-ca";     // Secret, where the engine has no authority of its own: ca.crt, ca.key
inline constexpr const char* key_type = "fairlead.dev/access-key";  // of Secrets: accessKeyId, secretAccessKey, identity, identityUid, status (Active, Inactive)
inline constexpr const char* key_label = "fairlead.dev/access-key";  // "true" on such Secrets, for people; what is one, its type says
inline constexpr std::size_t most_keys = 2;  // of one user, as in IAM: the new one and the one that it replaces

enum class Type { User, Role };
std::string_view text(Type type);
std::optional<Type> read_type(std::string_view text);
// ManagedPolicy: a document that several identities have, attached by its ARN (spec.attachedPolicies). `spec.document` is the default version.
extern const kube::Resource managed_policies;  // fairlead.dev/v1alpha1, cluster-wide
inline constexpr std::size_t most_attached = 20, most_versions = 5;
bool is_policy_name(std::string_view name);            // 1 to 128 of the same letters
std::string policy_object_name(std::string_view name); // "policy-trainers"; where it is no name of Kubernetes, with a hash
// Of AWS's own policies (arn:aws:iam::aws:policy/...) those that scripts for HyperPod attach to roles. They only allow, and what they allow are AWS's services: here they are names that allow nothing. Others may deny, so they are not taken.
bool is_aws_policy(std::string_view arn);
const std::vector<std::string>& aws_policies();        // their ARNs, sorted

// Names are IAM's: 1 to 64 of letters, digits and +=,.@_-, unique without regard to case.
bool is_name(std::string_view name);
// The object that holds it: "user-ada"; where the name is no name of Kubernetes, with a hash: "role-slurm-login-1a2b3c4d".
std::string object_name(Type type, std::string_view name);
std::string key_object_name(std::string_view key_id);  // of the Secret

struct AccessKey {
  std::string id, secret;
  std::string identity;      // the object
  std::string identity_uid;  // of that one: a user of the same name that is made later does not have its keys
  bool active = false;
};
// Nothing: not such a Secret, or one that is not whole.
std::optional<AccessKey> read_key(const kube::Json& secret);
kube::Json write_key(const AccessKey& key, const std::string& space);
// What the AWS face asks of a cluster's API (settings and keys in `space`): roles are made from it.
kube::Access aws_access(const std::string& space);
// A Role and its RoleBinding: nodes read the site's settings, to hand their pods' questions for credentials on. Nothing in them is secret.
std::vector<kube::Json> node_settings_role(const std::string& space);
inline constexpr const char* aws_service = "fairlead-aws";  // by which it is reached in a cluster
inline constexpr int aws_port = 6444;                       // of pods
inline constexpr const char* networks_name = "fairlead-networks";  // ConfigMap of the server's namespace: what the site's networks are (docs/clusters.md)

std::string random_key_id(std::string_view begin);  // "AKIA" of users, "ASIA" of sessions, and 16 of A-Z2-7
AccessKey new_key(std::string identity, std::string identity_uid);  // from the kernel's randomness, in AWS's form: AKIA and 16 of A-Z2-7; 40 of base64

}  // namespace identities
}  // namespace fairlead::api
