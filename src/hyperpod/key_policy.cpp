// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/key_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/volume.h"
#include "hyperpod/entity.h"
#include "iam/decide.h"

namespace fairlead::hyperpod {
namespace {

std::unexpected<AwsError> no_key(const Site& site, const std::string& asked) { return refuse("NotFoundException", asked.starts_with("alias/") ? fmt::format("Alias {} is not found.", alias_arn(site, cut(asked, 256))) : fmt::format("Key '{}' does not exist", asked.starts_with("arn:") ? cut(asked, 256) : key_arn(site, cut(asked, 64)))); }

FoundKey service_key() { return {.key = {.name = api::kServiceKey, .uid = {}, .description = "The site's own key of volumes", .deletion = {}, .policy = {}, .aliases = {kServiceAlias}}, .object = {}}; }

Answer<void> decide_by(const Call& call, std::string_view action, const FoundKey& key, iam::Keys keys, const std::string& policy) {
  const std::string arn = key_arn(call.site, key.key.name);
  auto read = iam::read_policy(policy, iam::PolicyKind::Resource);
  if (!read) return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: {} on resource: {}: the key's policy has to be mended first: {}", call.who.arn, action, arn, read.error().message));
  std::vector<iam::Document> documents;
  documents.push_back({"key policy", std::move(*read)});
  const iam::Bundle bundle(std::move(documents), iam::PolicyKind::Resource);
  if (!key.key.aliases.empty()) keys.set("kms:ResourceAliases", key.key.aliases);
  if (!key.alias.empty()) keys.set("kms:RequestAlias", {key.alias});
  for (const auto& [name, value] : key.object["spec"]["tags"].members()) keys.set("aws:ResourceTag/" + name, {value.string()});
  const iam::Call asked = call.question(action, arn, std::move(keys));
  const iam::Decision decision = iam::decide(asked, {.identity = call.who.identity->policies.get(), .boundary = call.who.identity->boundary.get(), .session = call.who.session_policies.get(), .resource = &bundle, .resource_must_allow = true});
  if (decision.allowed()) return {};
  return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: {} on resource: {}: {}", call.who.arn, action, arn, decision.reason));
}

// Of a service that acts for the caller. Source: "kms:ViaService" and "kms:EncryptionContextKeys" in the documentation of KMS; EBS's encryption context is aws:ebs:id.
iam::Keys via_ec2(const Call& call, const std::string& volume) {
  iam::Keys keys;
  keys.set("kms:ViaService", {fmt::format("ec2.{}.amazonaws.com", call.site.region)});
  keys.set("kms:EncryptionContextKeys", {"aws:ebs:id"});
  if (!volume.empty()) keys.set("kms:EncryptionContext:aws:ebs:id", {volume});
  return keys;
}

}  // namespace

bool FoundKey::service() const { return key.name == api::kServiceKey; }

std::string key_arn(const Site& site, std::string_view name) { return fmt::format("arn:aws:kms:{}:{}:key/{}", site.region, site.account, api::key_id(name)); }
std::string alias_arn(const Site& site, std::string_view alias) { return fmt::format("arn:aws:kms:{}:{}:{}", site.region, site.account, alias); }

std::string key_policy_text(const Call& call, const FoundKey& key) {
  if (key.key.policy.is_null()) return fmt::format(R"({{"Version":"2012-10-17","Statement":[{{"Sid":"Account","Effect":"Allow","Principal":{{"AWS":"arn:aws:iam::{}:root"}},"Action":"kms:*","Resource":"*"}}]}})", call.site.account);
  return document_text(key.key.policy);
}

Answer<std::vector<FoundKey>> all_keys(kube::KubeApi& api) {
  const auto all = api.list(api::kVolumeKeys, "");
  if (!all) return std::unexpected(aws_error(all.error(), "keys of volumes"));
  std::vector<FoundKey> out;
  for (const Json& object : all->items) out.push_back({.key = api::read_volume_key(object), .object = object});
  const auto own = std::find_if(out.begin(), out.end(), [](const FoundKey& one) { return one.service(); });
  if (own == out.end()) out.push_back(service_key());
  else own->key.aliases.push_back(kServiceAlias);
  return out;
}

Answer<FoundKey> find_key(kube::KubeApi& api, const Site& site, const std::string& asked) {
  std::string wanted = asked;
  if (wanted.starts_with("arn:")) {
    const std::string begin = fmt::format("arn:aws:kms:{}:{}:", site.region, site.account);
    if (!wanted.starts_with(begin)) return no_key(site, asked);
    wanted.erase(0, begin.size());
    if (wanted.starts_with("key/")) wanted.erase(0, 4);
    else if (!wanted.starts_with("alias/")) return no_key(site, asked);
  }
  auto all = all_keys(api);
  if (!all) return std::unexpected(all.error());
  std::vector<api::VolumeKey> keys;
  for (const FoundKey& one : *all) keys.push_back(one.key);
  const auto meant = api::key_called(keys, wanted);
  // Of several which is meant is nobody's guess.
  if (!meant) return meant.error().code == Code::Conflict ? refuse("NotFoundException", meant.error().message) : no_key(site, asked);
  const auto found = std::find_if(all->begin(), all->end(), [&](const FoundKey& one) { return one.key.name == meant->name; });
  if (found == all->end()) return no_key(site, asked);
  if (wanted.starts_with("alias/")) found->alias = wanted;
  return std::move(*found);
}

Answer<std::optional<FoundKey>> named_key(kube::KubeApi& api, const std::string& name) {
  const auto object = api.get(api::kVolumeKeys, {"", name});
  if (object) return std::optional<FoundKey>(FoundKey{.key = api::read_volume_key(*object), .object = *object});
  if (object.error().code != Code::NotFound) return std::unexpected(aws_error(object.error(), "key " + name));
  return std::optional<FoundKey>();
}

Answer<void> allow_key(const Call& call, std::string_view action, const FoundKey& key, const iam::Keys& keys) { return decide_by(call, action, key, keys, key_policy_text(call, key)); }

bool keeps_control(const Call& call, const FoundKey& key, const std::string& policy) { return decide_by(call, "kms:PutKeyPolicy", key, {}, policy).has_value(); }

Answer<void> allow_new_volume(const Call& call, const FoundKey& key) { return key.service() ? Answer<void>() : allow_key(call, "kms:GenerateDataKeyWithoutPlaintext", key, via_ec2(call, "")); }

Answer<void> allow_copy(const Call& call, const FoundKey& key) {
  if (key.service()) return {};
  for (const char* const action : {"kms:ReEncryptFrom", "kms:ReEncryptTo"})
    if (auto done = allow_key(call, action, key, via_ec2(call, "")); !done) return done;
  return {};
}

Answer<void> allow_attach(const Call& call, const FoundKey& key, const std::string& volume) {
  if (key.service()) return {};
  if (auto done = allow_key(call, "kms:DescribeKey", key, via_ec2(call, volume)); !done) return done;
  iam::Keys keys = via_ec2(call, volume);
  keys.set("kms:GrantIsForAWSResource", {"true"});
  keys.set("kms:GrantOperations", {"Decrypt"});
  keys.set("kms:GrantConstraintType", {"EncryptionContextSubset"});
  return allow_key(call, "kms:CreateGrant", key, keys);
}

}  // namespace fairlead::hyperpod
