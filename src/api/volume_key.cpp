// SPDX-License-Identifier: Apache-2.0
#include "api/volume_key.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/crds.h"
#include "api/volume.h"
#include "base/encoding.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kKeyCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumekeys.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: volumekeys, singular: volumekey, kind: VolumeKey, listKind: VolumeKeyList, shortNames: [vkey]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Enabled, type: boolean, jsonPath: .spec.enabled}
    - {name: Grants, type: string, jsonPath: .spec.grants}
    - {name: Version, type: integer, jsonPath: .spec.version}
    - {name: Aliases, type: string, jsonPath: .spec.aliases}
    - {name: Deletion, type: date, jsonPath: .spec.deletionDate}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A key that opens the keys of encrypted volumes, and who may use it. Its material is a Secret of the same name in namespace fairlead-volume-keys, made when the key is first used.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", message: "metadata.name: 1 to 63 of a-z 0-9 and - are expected"}
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "self.version >= oldSelf.version", message: "spec.version: a key's versions only rise"}
            properties:
              description: {type: string, maxLength: 8192}
              enabled: {type: boolean, default: true, description: "If not, nothing is opened by it any more; what is attached goes on."}
              grants: {type: string, enum: [Implied, Required], default: Implied, description: "Required: a volume is attached only by who was allowed kms:CreateGrant (AttachClusterNodeVolume)."}
              policy: {x-kubernetes-preserve-unknown-fields: true, description: "The key's policy, in the grammar of IAM: the JSON as text, or the same as an object. Left out: the policies of the site's identities decide. While it cannot be understood, nobody may do anything by the AWS face."}
              aliases:
                type: array
                maxItems: 50
                x-kubernetes-list-type: set
                items: {type: string, maxLength: 256, pattern: "^alias/[A-Za-z0-9/_-]+$"}
              tags: {type: object, maxProperties: 50, additionalProperties: {type: string, maxLength: 256}}
              version: {type: integer, format: int64, minimum: 1, maximum: 1000000, default: 1, description: "That it has at least: a higher number rotates it, and pools wrap their volumes' keys anew."}
              deletionDate: {type: string, format: date-time, description: "Its deletion was asked for: nothing is opened by it. Its material goes when an administrator deletes this and the Secret, and with it all that it opened."}
)yaml";

}  // namespace

Json volume_key_crd() { return parse_crd(kKeyCrd); }

VolumeKey read_volume_key(const Json& object) {
  const Json& spec = object["spec"];
  VolumeKey out{.name = kube::name_of(object), .uid = kube::uid_of(object), .description = spec["description"].string(), .enabled = true, .grants = spec["grants"].string_or("Implied") != "Implied", .deletion = {}, .policy = spec["policy"], .aliases = {}, .version = std::max<std::int64_t>(1, spec["version"].integer())};
  if (spec.has("enabled")) out.enabled = spec["enabled"].is_bool() && spec["enabled"].boolean();
  if (spec.has("deletionDate")) out.deletion = spec["deletionDate"].string();
  for (const Json& alias : spec["aliases"].items()) out.aliases.push_back(alias.string());
  return out;
}

std::string why_closed(const VolumeKey& key) {
  if (key.deletion) return fmt::format("key {} waits for its deletion ({}): CancelKeyDeletion, or taking spec.deletionDate out of VolumeKey {}, ends that", key.name, *key.deletion, key.name);
  if (!key.enabled) return fmt::format("key {} is disabled (spec.enabled of VolumeKey {})", key.name, key.name);
  return "";
}

Result<VolumeKey> key_called(const std::vector<VolumeKey>& keys, std::string_view text) {
  std::string_view wanted = text;
  if (wanted.starts_with("arn:")) {
    const auto begin = wanted.find(":key/"), alias = wanted.find(":alias/");
    wanted = begin != wanted.npos ? wanted.substr(begin + 5) : alias != wanted.npos ? wanted.substr(alias + 1) : std::string_view();
  }
  const VolumeKey* found = nullptr;
  const VolumeKey own{.name = kServiceKey, .uid = {}, .description = {}, .deletion = {}, .policy = {}, .aliases = {}};
  const bool service = wanted == kServiceAlias || wanted == key_id(kServiceKey);
  for (const VolumeKey& one : keys) {
    if (service ? one.name != kServiceKey : key_id(one.name) != wanted && std::find(one.aliases.begin(), one.aliases.end(), wanted) == one.aliases.end()) continue;
    if (found != nullptr) return fail(Code::Conflict, fmt::format("{} and {} both have {} (kubectl get volumekeys)", found->name, one.name, wanted.substr(0, 256)));
    found = &one;
  }
  if (found == nullptr && service) found = &own;
  return found != nullptr ? Result<VolumeKey>(*found) : fail(Code::NotFound, fmt::format("there is no key {} (kubectl get volumekeys)", text));
}

bool is_key_id(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::string_view("0123456789abcdef").find(text[i]) == std::string_view::npos) return false;
  }
  return true;
}

std::string key_id(std::string_view name) {
  if (is_key_id(name)) return std::string(name);
  const std::string digest = hex(sha256("volume key " + std::string(name)));
  return fmt::format("{}-{}-{}-{}-{}", digest.substr(0, 8), digest.substr(8, 4), digest.substr(12, 4), digest.substr(16, 4), digest.substr(20, 12));
}

std::optional<KeyGrant> read_grant(const Json& attachment) {
  const Json& grant = attachment["spec"]["grant"];
  if (!grant.is_object() || grant["id"].string().empty()) return std::nullopt;
  // What is written in any other way revokes it, too.
  const Json& revoked = attachment["metadata"]["annotations"][kGrantRevokedNote];
  return KeyGrant{.id = grant["id"].string(), .key = grant["key"].string(), .issuer = grant["issuer"].string(), .revoked = !revoked.is_null() && revoked.string() != "false"};
}

void set_grant(Json& attachment, const std::string& key, const std::string& issuer) {
  const std::string id = hex(sha256(fmt::format("grant {} {} {}", kube::name_of(attachment), key, issuer)));
  attachment.child("spec").set("grant", Json::object({{"id", id}, {"key", key}, {"operations", Json::array({Json("Decrypt")})}, {"issuer", issuer}}));
}

bool is_granted(const std::vector<Json>& attachments, std::string_view volume, std::string_view key) {
  return std::any_of(attachments.begin(), attachments.end(), [&](const Json& one) {
    const auto grant = read_grant(one);
    return one["spec"]["volume"].string() == volume && !kube::deleting(one) && grant && !grant->revoked && grant->key == key;
  });
}

}  // namespace fairlead::api
