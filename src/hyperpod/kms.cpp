// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/kms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "api/volume.h"
#include "base/rng.h"
#include "hyperpod/entity.h"
#include "hyperpod/key_policy.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t kMostKeys = 10'000, kMostAliases = 50, kMostPolicy = 32 << 10;
constexpr int kLeastWindow = 7, kMostWindow = 30;  // days until a key may be deleted

enum class Kind { Text, Number, Flag, List };
struct Field {
  const char* name;
  Kind kind = Kind::Text;
  bool needed = false;
};

std::unexpected<AwsError> wrong_state(const FoundKey& key, const Site& site) { return refuse("KMSInvalidStateException", fmt::format("{} is {}.", key_arn(site, key.key.name), key.key.state() == std::string_view("PendingDeletion") ? "pending deletion" : "not in a state for this")); }

class Kms {
 public:
  Kms(const Json& input, const Call& call, kube::KubeApi& api) : input_(input), call_(call), api_(api) {}

  Answer<Json> create_key() {
    for (const auto& [name, only] : {std::pair("KeyUsage", "ENCRYPT_DECRYPT"), {"KeySpec", "SYMMETRIC_DEFAULT"}, {"CustomerMasterKeySpec", "SYMMETRIC_DEFAULT"}, {"Origin", "AWS_KMS"}})
      if (const std::string given = text(name); !given.empty() && given != only) return refuse("UnsupportedOperationException", fmt::format("{}: keys of volumes are {}", name, only));
    if (input_["MultiRegion"].boolean()) return refuse("UnsupportedOperationException", "MultiRegion: a site has one region");
    const auto tags = read_tags();
    if (!tags) return std::unexpected(tags.error());
    if (auto done = call_.allow("kms:CreateKey", "*", tag_keys(*tags, {})); !done) return std::unexpected(done.error());
    const auto there = api_.list(api::kVolumeKeys, "");
    if (!there) return failed(there.error());
    if (there->items.size() >= kMostKeys) return refuse("LimitExceededException", fmt::format("a site has {} keys at most", kMostKeys));
    FoundKey key{.key = {.name = random_uuid(), .uid = {}, .description = {}, .deletion = {}, .policy = {}, .aliases = {}}, .object = {}};
    Json spec = Json::object({{"enabled", true}, {"grants", "Required"}});
    if (!text("Description").empty()) spec.set("description", text("Description"));
    if (!text("Policy").empty()) {
      if (auto done = check_policy(key, text("Policy")); !done) return std::unexpected(done.error());
      spec.set("policy", text("Policy"));
    }
    if (!tags->empty()) spec.set("tags", as_object(*tags));
    Json object = Json::object({{"apiVersion", api::kVolumeKeys.api_version()}, {"kind", api::kVolumeKeys.kind}, {"metadata", Json::object({{"name", key.key.name}})}, {"spec", std::move(spec)}});
    note(object, maker_note, kube::print_json(as_context(call_)));
    const auto made = api_.create(api::kVolumeKeys, object);
    if (!made) return failed(made.error());
    return Json::object({{"KeyMetadata", metadata({.key = api::read_volume_key(*made), .object = *made})}});
  }

  Answer<Json> describe_key() {
    const auto key = find("kms:DescribeKey");
    if (!key) return std::unexpected(key.error());
    return Json::object({{"KeyMetadata", metadata(*key)}});
  }

  Answer<Json> list_keys() {
    if (auto done = call_.allow("kms:ListKeys", "*"); !done) return std::unexpected(done.error());
    const auto all = all_keys(api_);
    if (!all) return std::unexpected(all.error());
    std::map<std::string, Json> out;
    for (const FoundKey& one : *all) out.emplace(api::key_id(one.key.name), Json::object({{"KeyId", api::key_id(one.key.name)}, {"KeyArn", arn(one)}}));
    return page(out, "Keys", 100);
  }

  Answer<Json> enable_key(bool enabled) {
    auto key = find(enabled ? "kms:EnableKey" : "kms:DisableKey");
    if (!key) return std::unexpected(key.error());
    return change(*key, [&](Json& spec, const api::VolumeKey& now) -> Answer<void> {
      if (now.deletion) return wrong_state(*key, call_.site);
      spec.set("enabled", enabled);
      return {};
    });
  }

  Answer<Json> schedule_deletion() {
    const std::int64_t days = input_.has("PendingWindowInDays") ? input_["PendingWindowInDays"].integer() : kMostWindow;
    if (days < kLeastWindow || days > kMostWindow) return invalid(fmt::format("1 validation error detected: Value '{}' at 'pendingWindowInDays' failed to satisfy constraint: Member must have value from {} to {}", days, kLeastWindow, kMostWindow));
    auto key = find("kms:ScheduleKeyDeletion");
    if (!key) return std::unexpected(key.error());
    const Instant end = std::chrono::floor<std::chrono::seconds>(call_.now + std::chrono::hours(24) * days);
    const auto done = change(*key, [&](Json& spec, const api::VolumeKey& now) -> Answer<void> {
      if (now.deletion) return wrong_state(*key, call_.site);
      spec.set("deletionDate", print_time(end));
      return {};
    });
    if (!done) return done;
    return Json::object({{"KeyId", arn(*key)}, {"DeletionDate", epoch(end)}, {"KeyState", "PendingDeletion"}, {"PendingWindowInDays", days}});
  }

  Answer<Json> cancel_deletion() {
    auto key = find("kms:CancelKeyDeletion");
    if (!key) return std::unexpected(key.error());
    const auto done = change(*key, [&](Json& spec, const api::VolumeKey& now) -> Answer<void> {
      if (!now.deletion) return refuse("KMSInvalidStateException", fmt::format("{} is not pending deletion.", arn(*key)));
      spec.erase("deletionDate");
      spec.set("enabled", false);  // as in KMS: EnableKey is a step of its own
      return {};
    });
    if (!done) return done;
    return Json::object({{"KeyId", arn(*key)}});
  }

  Answer<Json> update_description() {
    auto key = find("kms:UpdateKeyDescription");
    if (!key) return std::unexpected(key.error());
    return change(*key, [&](Json& spec, const api::VolumeKey&) -> Answer<void> { return spec.set("description", text("Description")), Answer<void>(); });
  }

  Answer<Json> rotate() {
    auto key = find("kms:RotateKeyOnDemand");
    if (!key) return std::unexpected(key.error());
    const auto done = change(*key, [&](Json& spec, const api::VolumeKey& now) -> Answer<void> {
      if (!now.enabled) return refuse("DisabledException", fmt::format("{} is disabled.", arn(*key)));
      if (now.deletion) return wrong_state(*key, call_.site);
      spec.set("version", now.version + 1);
      return {};
    });
    if (!done) return done;
    return Json::object({{"KeyId", arn(*key)}});
  }
  Answer<Json> rotation_status() {
    const auto key = find("kms:GetKeyRotationStatus");
    if (!key) return std::unexpected(key.error());
    return Json::object({{"KeyId", arn(*key)}, {"KeyRotationEnabled", false}});
  }

  Answer<Json> get_policy() {
    const auto key = find("kms:GetKeyPolicy");
    if (!key) return std::unexpected(key.error());
    if (auto done = check_policy_name(); !done) return std::unexpected(done.error());
    return Json::object({{"Policy", key_policy_text(call_, *key)}, {"PolicyName", "default"}});
  }
  Answer<Json> put_policy() {
    auto key = find("kms:PutKeyPolicy");
    if (!key) return std::unexpected(key.error());
    if (auto done = check_policy_name(); !done) return std::unexpected(done.error());
    if (auto done = check_policy(*key, text("Policy")); !done) return std::unexpected(done.error());
    return change(*key, [&](Json& spec, const api::VolumeKey&) -> Answer<void> { return spec.set("policy", text("Policy")), Answer<void>(); });
  }
  Answer<Json> list_policies() {
    const auto key = find("kms:ListKeyPolicies");
    if (!key) return std::unexpected(key.error());
    return Json::object({{"PolicyNames", Json::array({Json("default")})}, {"Truncated", false}});
  }

  // The alias is a thing of its own, and both have to be allowed.
  Answer<Json> create_alias() {
    const std::string alias = text("AliasName");
    auto key = find_for_alias("kms:CreateAlias", alias, text("TargetKeyId"));
    if (!key) return std::unexpected(key.error());
    const auto all = all_keys(api_);
    if (!all) return std::unexpected(all.error());
    for (const FoundKey& one : *all)
      if (has(one.key.aliases, alias)) return refuse("AlreadyExistsException", fmt::format("An alias with the name {} already exists", alias_arn(call_.site, alias)));
    return change(*key, [&](Json& spec, const api::VolumeKey& now) { return set_aliases(spec, now.aliases, "", alias); });
  }
  Answer<Json> delete_alias() {
    const std::string alias = text("AliasName");
    auto key = find_for_alias("kms:DeleteAlias", alias, alias);
    if (!key) return std::unexpected(key.error());
    return change(*key, [&](Json& spec, const api::VolumeKey& now) { return set_aliases(spec, now.aliases, alias, ""); });
  }
  // Taken from one first: between the two writes the alias names none rather than two.
  Answer<Json> update_alias() {
    const std::string alias = text("AliasName");
    auto before = find_for_alias("kms:UpdateAlias", alias, alias);
    if (!before) return std::unexpected(before.error());
    auto after = find_for_alias("kms:UpdateAlias", alias, text("TargetKeyId"));
    if (!after) return std::unexpected(after.error());
    if (before->key.name == after->key.name) return Json::object();
    if (after->key.aliases.size() >= kMostAliases) return refuse("LimitExceededException", fmt::format("a key has {} aliases at most", kMostAliases));
    if (after->service()) return of_administrators();
    if (auto done = change(*before, [&](Json& spec, const api::VolumeKey& now) { return set_aliases(spec, now.aliases, alias, ""); }); !done) return done;
    return change(*after, [&](Json& spec, const api::VolumeKey& now) { return set_aliases(spec, now.aliases, "", alias); });
  }
  Answer<Json> list_aliases() {
    if (auto done = call_.allow("kms:ListAliases", "*"); !done) return std::unexpected(done.error());
    std::optional<FoundKey> of;
    if (!text("KeyId").empty()) {
      auto found = find_key(api_, call_.site, text("KeyId"));
      if (!found) return std::unexpected(found.error());
      of = std::move(*found);
    }
    const auto all = all_keys(api_);
    if (!all) return std::unexpected(all.error());
    std::map<std::string, Json> out;
    for (const FoundKey& one : *all)
      if (!of || of->key.name == one.key.name)
        for (const std::string& alias : one.key.aliases) out.emplace(alias, Json::object({{"AliasName", alias}, {"AliasArn", alias_arn(call_.site, alias)}, {"TargetKeyId", api::key_id(one.key.name)}}));
    return page(out, "Aliases", 50);
  }

  Answer<Json> list_grants() {
    const auto key = find("kms:ListGrants");
    if (!key) return std::unexpected(key.error());
    const auto attachments = api_.list(api::kAttachments, "");
    if (!attachments) return failed(attachments.error());
    std::map<std::string, Json> out;
    for (const Json& one : attachments->items) {
      const auto grant = api::read_grant(one);
      if (!grant || grant->revoked || grant->key != key->key.name || (!text("GrantId").empty() && text("GrantId") != grant->id)) continue;
      out.emplace(grant->id, Json::object({{"KeyId", arn(*key)}, {"GrantId", grant->id}, {"Name", kube::name_of(one)}, {"CreationDate", epoch(created_at(one))}, {"GranteePrincipal", "ec2.amazonaws.com"}, {"IssuingAccount", fmt::format("arn:aws:iam::{}:root", call_.site.account)}, {"Operations", Json::array({Json("Decrypt")})},
                                           {"Constraints", Json::object({{"EncryptionContextSubset", Json::object({{"aws:ebs:id", api::ec2_id(one["spec"]["volume"].string(), "vol-")}})}})}}));
    }
    return page(out, "Grants", 50);
  }
  // What is served goes on; the next opening finds no grant.
  Answer<Json> revoke_grant(const char* action) {
    const auto key = find(action);
    if (!key) return std::unexpected(key.error());
    for (int tries = 0;; ++tries) {
      const auto attachments = api_.list(api::kAttachments, "");
      if (!attachments) return failed(attachments.error());
      const auto one = std::find_if(attachments->items.begin(), attachments->items.end(), [&](const Json& each) {
        const auto grant = api::read_grant(each);
        return grant && !grant->revoked && grant->key == key->key.name && grant->id == text("GrantId");
      });
      if (one == attachments->items.end()) return refuse("NotFoundException", fmt::format("Grant {} was not found", cut(text("GrantId"), 128)));
      Json changed = *one;
      note(changed, api::kGrantRevokedNote, "true");
      const auto done = api_.update(api::kAttachments, changed);
      if (done) return Json::object();
      if (done.error().code != Code::Conflict || tries >= 20) return failed(done.error());
    }
  }

  Answer<Json> tag() {
    const auto tags = read_tags();
    if (!tags) return std::unexpected(tags.error());
    auto key = find("kms:TagResource", tag_keys(*tags, {}));
    if (!key) return std::unexpected(key.error());
    return change(*key, [&](Json& spec, const api::VolumeKey&) -> Answer<void> {
      Tags now = tags_of_spec(spec);
      for (const auto& [name, value] : *tags) now[name] = value;
      if (now.size() > 50) return refuse("LimitExceededException", "50 tags at most");
      if (auto done = check_case(now); !done) return std::unexpected(AwsError{"TagException", done.error().message});
      spec.set("tags", as_object(now));
      return {};
    });
  }
  Answer<Json> untag() {
    iam::Keys keys;
    std::vector<std::string> names;
    for (const Json& name : input_["TagKeys"].items()) names.push_back(name.string());
    keys.set("aws:TagKeys", names);
    auto key = find("kms:UntagResource", keys);
    if (!key) return std::unexpected(key.error());
    return change(*key, [&](Json& spec, const api::VolumeKey&) -> Answer<void> {
      Tags now = tags_of_spec(spec);
      for (const std::string& name : names) now.erase(name);
      spec.set("tags", as_object(now));
      return {};
    });
  }
  Answer<Json> list_tags() {
    const auto key = find("kms:ListResourceTags");
    if (!key) return std::unexpected(key.error());
    std::map<std::string, Json> out;
    for (const auto& [name, value] : tags_of_spec(key->object["spec"])) out.emplace(name, Json::object({{"TagKey", name}, {"TagValue", value}}));
    return page(out, "Tags", 50);
  }

 private:
  std::string text(std::string_view name) const { return input_[name].string(); }
  std::string arn(const FoundKey& key) const { return key_arn(call_.site, key.key.name); }
  static bool has(const std::vector<std::string>& all, const std::string& one) { return std::find(all.begin(), all.end(), one) != all.end(); }
  static std::unexpected<AwsError> failed(const Error& error) { return std::unexpected(aws_error(error, "keys of volumes")); }
  static std::unexpected<AwsError> of_administrators() { return refuse("AccessDeniedException", "the site's own key is an administrator's (docs/volumes.md)"); }

  Answer<FoundKey> find(const char* action, const iam::Keys& keys = {}) {
    auto key = find_key(api_, call_.site, text("KeyId"));
    if (!key) return std::unexpected(key.error());
    if (auto done = allow_key(call_, action, *key, keys); !done) return std::unexpected(done.error());
    return key;
  }
  Answer<FoundKey> find_for_alias(const char* action, const std::string& alias, const std::string& of) {
    if (!alias.starts_with("alias/") || alias.size() > 256 || alias.size() == 6 || alias.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/_-") != alias.npos) return refuse("InvalidAliasNameException", "AliasName: alias/ and letters, digits, /, _ and - are expected");
    if (alias.starts_with("alias/aws/")) return refuse("InvalidAliasNameException", "alias/aws/ is reserved");
    if (auto done = call_.allow(action, alias_arn(call_.site, alias)); !done) return std::unexpected(done.error());
    auto key = find_key(api_, call_.site, of);
    if (!key) return std::unexpected(key.error());
    if (auto done = allow_key(call_, action, *key); !done) return std::unexpected(done.error());
    return key;
  }
  // As it is now, again where somebody else wrote it meanwhile.
  Answer<Json> change(const FoundKey& key, const std::function<Answer<void>(Json& spec, const api::VolumeKey& now)>& how) {
    if (key.service()) return of_administrators();
    Json object = key.object;
    for (int tries = 0;; ++tries) {
      const Json before = object["spec"];
      if (auto done = how(object.child("spec"), api::read_volume_key(object)); !done) return std::unexpected(done.error());
      if (object["spec"] == before) return Json::object();
      const auto done = api_.update(api::kVolumeKeys, object);
      if (done) return Json::object();
      if (done.error().code != Code::Conflict || tries >= 20) return failed(done.error());
      auto again = api_.get(api::kVolumeKeys, {"", key.key.name});
      if (!again) return failed(again.error());
      // Another one of that name is not what was allowed.
      if (kube::uid_of(*again) != key.key.uid) return refuse("NotFoundException", fmt::format("Key '{}' does not exist", arn(key)));
      object = std::move(*again);
    }
  }
  static Answer<void> set_aliases(Json& spec, const std::vector<std::string>& now, const std::string& without, const std::string& with) {
    Json out = Json::array();
    for (const std::string& alias : now)
      if (alias != without && alias != with) out.push(alias);
    if (!with.empty()) out.push(with);
    if (out.items().size() > kMostAliases) return refuse("LimitExceededException", fmt::format("a key has {} aliases at most", kMostAliases));
    spec.set("aliases", std::move(out));
    return {};
  }
  Answer<void> check_policy_name() const { return text("PolicyName").empty() || text("PolicyName") == "default" ? Answer<void>() : refuse("NotFoundException", "A key has one policy: default"); }
  Answer<void> check_policy(const FoundKey& key, const std::string& policy) const {
    if (policy.size() > kMostPolicy) return refuse("LimitExceededException", fmt::format("a key's policy has {} bytes at most", kMostPolicy));
    if (auto read = iam::read_policy(policy, iam::PolicyKind::Resource); !read) return refuse("MalformedPolicyDocumentException", read.error().message);
    if (!input_["BypassPolicyLockoutSafetyCheck"].boolean() && !keeps_control(call_, key, policy)) return refuse("MalformedPolicyDocumentException", "The new key policy will not allow you to update the key policy in the future.");
    return {};
  }
  Answer<Tags> read_tags() const {
    Json list = Json::array();
    for (const Json& one : input_["Tags"].items()) {
      if (!one["TagKey"].is_string() || !one["TagValue"].is_string() || one["TagKey"].string().empty() || one["TagKey"].string().size() > 128 || one["TagValue"].string().size() > 256) return refuse("TagException", "Tags: TagKey of 1 to 128 characters and TagValue of 256 at most are expected");
      list.push(Json::object({{"Key", one["TagKey"]}, {"Value", one["TagValue"]}}));
    }
    if (list.items().size() > 50) return refuse("LimitExceededException", "50 tags at most");
    auto out = hyperpod::read_tags(list);
    if (!out) return refuse("TagException", out.error().message);
    if (auto done = check_case(*out); !done) return refuse("TagException", done.error().message);
    return out;
  }
  static Tags tags_of_spec(const Json& spec) {
    Tags out;
    for (const auto& [name, value] : spec["tags"].members()) out[name] = value.string();
    return out;
  }
  static Json as_object(const Tags& tags) {
    Json out = Json::object();
    for (const auto& [name, value] : tags) out.set(name, value);
    return out;
  }
  Json metadata(const FoundKey& key) const {
    Json out = Json::object({{"AWSAccountId", call_.site.account}, {"KeyId", api::key_id(key.key.name)}, {"Arn", arn(key)}, {"CreationDate", epoch(key.object.is_null() ? call_.site.founded : created_at(key.object))}, {"Enabled", key.key.opens()}, {"Description", key.key.description}, {"KeyUsage", "ENCRYPT_DECRYPT"}, {"KeyState", key.key.state()},
                             {"Origin", "AWS_KMS"}, {"KeyManager", key.service() ? "AWS" : "CUSTOMER"}, {"CustomerMasterKeySpec", "SYMMETRIC_DEFAULT"}, {"KeySpec", "SYMMETRIC_DEFAULT"}, {"EncryptionAlgorithms", Json::array({Json("SYMMETRIC_DEFAULT")})}, {"MultiRegion", false}});
    if (key.key.deletion)
      if (const auto end = parse_time(*key.key.deletion)) out.set("DeletionDate", epoch(*end));
    return out;
  }
  // A marker names the last one that was told, so it holds whatever comes and goes meanwhile.
  Answer<Json> page(const std::map<std::string, Json>& all, const char* name, std::int64_t usual) const {
    const std::int64_t limit = input_.has("Limit") ? input_["Limit"].integer() : usual;
    if (limit < 1 || limit > 1000) return invalid(fmt::format("1 validation error detected: Value '{}' at 'limit' failed to satisfy constraint: Member must have value from 1 to 1000", limit));
    Json list = Json::array(), out = Json::object();
    auto at = text("Marker").empty() ? all.begin() : all.upper_bound(text("Marker"));
    std::string last;
    for (; at != all.end() && static_cast<std::int64_t>(list.items().size()) < limit; ++at) list.push(at->second), last = at->first;
    out.set(name, std::move(list));
    out.set("Truncated", at != all.end());
    if (at != all.end()) out.set("NextMarker", last);
    return out;
  }

  const Json& input_;
  const Call& call_;
  kube::KubeApi& api_;
};

struct Served {
  std::vector<Field> fields;
  std::function<Answer<Json>(Kms&)> answer;
};

const std::map<std::string, Served, std::less<>>& served() {
  const Field key{"KeyId", Kind::Text, true}, limit{"Limit", Kind::Number}, marker{"Marker"};
  static const std::map<std::string, Served, std::less<>> all{
      {"CreateKey", {{{"Policy"}, {"Description"}, {"KeyUsage"}, {"KeySpec"}, {"CustomerMasterKeySpec"}, {"Origin"}, {"MultiRegion", Kind::Flag}, {"BypassPolicyLockoutSafetyCheck", Kind::Flag}, {"Tags", Kind::List}}, [](Kms& kms) { return kms.create_key(); }}},
      {"DescribeKey", {{key, {"GrantTokens", Kind::List}}, [](Kms& kms) { return kms.describe_key(); }}},
      {"ListKeys", {{limit, marker}, [](Kms& kms) { return kms.list_keys(); }}},
      {"EnableKey", {{key}, [](Kms& kms) { return kms.enable_key(true); }}},
      {"DisableKey", {{key}, [](Kms& kms) { return kms.enable_key(false); }}},
      {"ScheduleKeyDeletion", {{key, {"PendingWindowInDays", Kind::Number}}, [](Kms& kms) { return kms.schedule_deletion(); }}},
      {"CancelKeyDeletion", {{key}, [](Kms& kms) { return kms.cancel_deletion(); }}},
      {"UpdateKeyDescription", {{key, {"Description"}}, [](Kms& kms) { return kms.update_description(); }}},
      {"RotateKeyOnDemand", {{key}, [](Kms& kms) { return kms.rotate(); }}},
      {"GetKeyRotationStatus", {{key}, [](Kms& kms) { return kms.rotation_status(); }}},
      {"GetKeyPolicy", {{key, {"PolicyName"}}, [](Kms& kms) { return kms.get_policy(); }}},
      {"PutKeyPolicy", {{key, {"PolicyName"}, {"Policy", Kind::Text, true}, {"BypassPolicyLockoutSafetyCheck", Kind::Flag}}, [](Kms& kms) { return kms.put_policy(); }}},
      {"ListKeyPolicies", {{key, limit, marker}, [](Kms& kms) { return kms.list_policies(); }}},
      {"CreateAlias", {{{"AliasName", Kind::Text, true}, {"TargetKeyId", Kind::Text, true}}, [](Kms& kms) { return kms.create_alias(); }}},
      {"UpdateAlias", {{{"AliasName", Kind::Text, true}, {"TargetKeyId", Kind::Text, true}}, [](Kms& kms) { return kms.update_alias(); }}},
      {"DeleteAlias", {{{"AliasName", Kind::Text, true}}, [](Kms& kms) { return kms.delete_alias(); }}},
      {"ListAliases", {{{"KeyId"}, limit, marker}, [](Kms& kms) { return kms.list_aliases(); }}},
      {"ListGrants", {{key, {"GrantId"}, limit, marker}, [](Kms& kms) { return kms.list_grants(); }}},
      {"RevokeGrant", {{key, {"GrantId", Kind::Text, true}}, [](Kms& kms) { return kms.revoke_grant("kms:RevokeGrant"); }}},
      {"RetireGrant", {{key, {"GrantId", Kind::Text, true}}, [](Kms& kms) { return kms.revoke_grant("kms:RetireGrant"); }}},
      {"TagResource", {{key, {"Tags", Kind::List, true}}, [](Kms& kms) { return kms.tag(); }}},
      {"UntagResource", {{key, {"TagKeys", Kind::List, true}}, [](Kms& kms) { return kms.untag(); }}},
      {"ListResourceTags", {{key, limit, marker}, [](Kms& kms) { return kms.list_tags(); }}},
  };
  return all;
}

Answer<void> check(const Json& input, const std::vector<Field>& fields) {
  for (const auto& [name, value] : input.members()) {
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& one) { return name == one.name; });
    if (name == "DryRun" && !value.boolean()) continue;
    if (field == fields.end()) return invalid(fmt::format("{} is not served here", cut(name, 64)));
    const bool fits = field->kind == Kind::Text ? value.is_string() && value.string().size() <= 128 << 10 : field->kind == Kind::Number ? value.is_number() : field->kind == Kind::Flag ? value.is_bool() : value.is_array() && value.items().size() <= 100;
    if (!fits) return invalid(fmt::format("1 validation error detected: Value at '{}' failed to satisfy constraint: {} is expected", name, field->kind == Kind::Text ? "a text" : field->kind == Kind::Number ? "a number" : field->kind == Kind::Flag ? "true or false" : "a list"));
  }
  for (const Field& field : fields)
    if (field.needed && (!input.has(field.name) || (field.kind == Kind::Text && input[field.name].string().empty()))) return invalid(fmt::format("1 validation error detected: Value null at '{}' failed to satisfy constraint: Member must not be null", field.name));
  return {};
}

}  // namespace

bool is_kms_operation(std::string_view operation) { return served().contains(operation); }

Answer<Json> answer_kms(const std::string& operation, const Json& input, const Call& call, kube::KubeApi& api) {
  if (operation == "CreateGrant") return refuse("UnsupportedOperationException", "CreateGrant is not served by itself: AttachClusterNodeVolume makes the grant of a volume, and a key's policy says who may do that");
  const auto found = served().find(operation);
  if (found == served().end()) return refuse("UnsupportedOperationException", fmt::format("{} is not served here: of KMS what is about keys of volumes is", cut(operation, 64)));
  if (auto done = check(input, found->second.fields); !done) return std::unexpected(done.error());
  Kms kms(input, call, api);
  return found->second.answer(kms);
}

}  // namespace fairlead::hyperpod
