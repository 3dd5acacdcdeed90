// SPDX-License-Identifier: Apache-2.0
// Keys of volumes as KMS calls them, and who may use them: the policy of the key and those of the caller, in the words of AWS KMS (docs.aws.amazon.com, "Key policies", "AWS KMS condition keys"). docs/design/076-volume-keys.md.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "api/volume_key.h"
#include "hyperpod/front.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

using api::kServiceAlias;

struct FoundKey {
  api::VolumeKey key;
  kube::Json object;       // null: the site's own key, which needs none
  std::string alias = {};  // by which it was asked for
  bool service() const;
};
std::string key_arn(const Site& site, std::string_view name);
std::string alias_arn(const Site& site, std::string_view alias);
// All that there are, the site's own among them, with kServiceAlias, whether it has an object or not.
Answer<std::vector<FoundKey>> all_keys(kube::KubeApi& api);
// By id, ARN, alias or ARN of an alias. NotFoundException: none, of another account, or several of that alias. O(keys).
Answer<FoundKey> find_key(kube::KubeApi& api, const Site& site, const std::string& asked);
// By its name as volumes have it; nothing: no VolumeKey of that name, so no policy.
Answer<std::optional<FoundKey>> named_key(kube::KubeApi& api, const std::string& name);
// AccessDeniedException: the key's policy, or the caller's where that leaves it to the account, does not allow it.
Answer<void> allow_key(const Call& call, std::string_view action, const FoundKey& key, const iam::Keys& keys = {});
// The policy in force; without one, what KMS gives to a key: that of the account.
std::string key_policy_text(const Call& call, const FoundKey& key);
// The same with `policy` in place of the key's own: may the caller change it afterwards?
bool keeps_control(const Call& call, const FoundKey& key, const std::string& policy);
// What EC2 does with it in the caller's name; of the site's own key anybody may have it done. `volume`: its id.
Answer<void> allow_new_volume(const Call& call, const FoundKey& key);   // kms:GenerateDataKeyWithoutPlaintext
Answer<void> allow_copy(const Call& call, const FoundKey& key);         // kms:ReEncryptFrom, kms:ReEncryptTo
Answer<void> allow_attach(const Call& call, const FoundKey& key, const std::string& volume);  // kms:DescribeKey, and kms:CreateGrant for [Decrypt] with aws:ebs:id

}  // namespace fairlead::hyperpod
