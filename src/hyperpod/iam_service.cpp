// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/iam_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>

#include "base/encoding.h"
#include "hyperpod/entity.h"
#include "hyperpod/paging.h"
#include "hyperpod/query_protocol.h"

namespace fairlead::hyperpod {
namespace {

namespace names = api::identities;
using names::AccessKey;
using names::Type;

constexpr std::size_t most_policies = 50;  // of one identity, as its definition says

AwsError iam_error(const Error& error, const std::string& what) {
  switch (error.code) {
    case Code::NotFound: return {"NoSuchEntity", what + " cannot be found.", 404};
    case Code::Exists: return {"EntityAlreadyExists", what + " already exists.", 409};
    case Code::Conflict: return {"ConcurrentModification", what + " was changed at the same time; try again.", 409};
    default: return aws_error(error, what);
  }
}
std::unexpected<AwsError> none(const std::string& what) { return refuse("NoSuchEntity", what + " cannot be found.", 404); }

class Iam {
 public:
  Iam(const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space) : form_(form), call_(call), api_(api), space_(space) {}

  Answer<std::string> create(Type type) {
    const std::string name = text("Name", type), path = given("Path", "/");
    if (!names::is_name(name)) return bad_name(type, name);
    if (!is_path(path)) return invalid(fmt::format("Path '{}': it begins and ends with / and has printable characters", cut(path, 128)));
    const auto tags = given_tags();
    if (!tags) return std::unexpected(tags.error());
    for (const std::string& action : {action_for("Create", type), action_for("Tag", type)})
      if (action != action_for("Tag", type) || !tags->empty())
        if (auto done = call_.allow(action, arn(type, path, name), tag_keys(*tags, {})); !done) return std::unexpected(done.error());
    Json spec = Json::object({{"type", std::string(names::text(type))}, {"name", name}});
    if (path != "/") spec.set("path", path);
    if (const std::string description = given("Description"); !description.empty()) spec.set("description", cut(description, 1000));
    if (type == Type::Role) {
      auto trust = document("AssumeRolePolicyDocument", iam::PolicyKind::Resource);
      if (!trust) return std::unexpected(trust.error());
      spec.set("trustPolicy", std::move(*trust));
      const auto longest = session_duration();
      if (!longest) return std::unexpected(longest.error());
      if (*longest != 0) spec.set("maxSessionSeconds", *longest);
    }
    if (!given("PermissionsBoundary").empty()) return invalid("PermissionsBoundary is not served here: an Identity's spec.permissionsBoundary is a document of its own");
    Json list = Json::array();
    for (const auto& [key, value] : *tags) list.push(Json::object({{"key", key}, {"value", value}}));
    if (!list.items().empty()) spec.set("tags", std::move(list));
    const auto made = api_.create(names::identities, Json::object({{"apiVersion", names::identities.api_version()}, {"kind", "Identity"}, {"metadata", Json::object({{"name", names::object_name(type, name)}})}, {"spec", std::move(spec)}}));
    if (!made) return std::unexpected(iam_error(made.error(), title(type, name)));
    return "<" + std::string(names::text(type)) + ">" + picture(*made) + "</" + std::string(names::text(type)) + ">";
  }

  Answer<std::string> get(Type type) {
    const auto object = find("Get", type);
    if (!object) return std::unexpected(object.error());
    return "<" + std::string(names::text(type)) + ">" + picture(*object) + "</" + std::string(names::text(type)) + ">";
  }

  Answer<std::string> list(Type type) {
    if (auto done = call_.allow(fmt::format("iam:List{}s", names::text(type)), fmt::format("arn:aws:iam::{}:{}/", call_.site.account, type == Type::User ? "user" : "role")); !done) return std::unexpected(done.error());
    const auto objects = api_.list(names::identities, "");
    if (!objects) return std::unexpected(aws_error(objects.error(), "list identities"));
    const std::string prefix = given("PathPrefix", "/");
    std::vector<const Json*> chosen;
    std::vector<std::string> all;
    for (const Json& object : objects->items)
      if (object["spec"]["type"].string() == names::text(type) && object["spec"]["path"].string_or("/").starts_with(prefix)) chosen.push_back(&object), all.push_back(object["spec"]["name"].string());
    return page(all, [&](std::size_t i) { return "<member>" + picture(*chosen[i]) + "</member>"; }, fmt::format("{}s", names::text(type)), "list of " + std::string(names::text(type)) + prefix);
  }

  Answer<std::string> remove(Type type) {
    const auto object = find("Delete", type);
    if (!object) return std::unexpected(object.error());
    const std::string name = (*object)["spec"]["name"].string();
    if (!(*object)["spec"]["policies"].items().empty()) return refuse("DeleteConflict", fmt::format("Cannot delete entity, must delete policies first: {}.", (*object)["spec"]["policies"].items().front()["name"].string()), 409);
    if (!(*object)["spec"]["attachedPolicies"].items().empty()) return refuse("DeleteConflict", "Cannot delete entity, must detach all policies first.", 409);
    if (type == Type::User) {
      const auto keys = keys_of(*object);
      if (!keys) return std::unexpected(keys.error());
      if (!keys->empty()) return refuse("DeleteConflict", fmt::format("Cannot delete entity, must delete access keys first: {}.", keys->front().second.id), 409);
    }
    const auto gone = api_.remove(names::identities, kube::key_of(*object), {.grace_seconds = {}, .uid = kube::uid_of(*object), .resource_version = {}});
    if (!gone) return std::unexpected(iam_error(gone.error(), title(type, name)));
    return "";
  }

  Answer<std::string> update_role() {
    auto object = find("Update", Type::Role);
    if (!object) return std::unexpected(object.error());
    const auto longest = session_duration();
    if (!longest) return std::unexpected(longest.error());
    if (*longest != 0) object->child("spec").set("maxSessionSeconds", *longest);
    if (const std::string description = given("Description"); !description.empty()) object->child("spec").set("description", cut(description, 1000));
    return write(*object);
  }

  Answer<std::string> update_trust() {
    auto object = find_for("iam:UpdateAssumeRolePolicy", Type::Role);
    if (!object) return std::unexpected(object.error());
    auto trust = document("PolicyDocument", iam::PolicyKind::Resource);
    if (!trust) return std::unexpected(trust.error());
    object->child("spec").set("trustPolicy", std::move(*trust));
    return write(*object);
  }

  Answer<std::string> put_policy(Type type) {
    auto object = find_policy_owner("Put", type);
    if (!object) return std::unexpected(object.error());
    const std::string name = given("PolicyName");
    if (name.empty() || name.size() > 128 || name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+=,.@_-") != name.npos) return invalid(fmt::format("PolicyName '{}': 1 to 128 of letters, digits and +=,.@_-", cut(name, 128)));
    auto text = document("PolicyDocument", iam::PolicyKind::Identity);
    if (!text) return std::unexpected(text.error());
    Json policies = Json::array();
    bool found = false;
    for (const Json& one : (*object)["spec"]["policies"].items()) {
      const bool same = one["name"].string() == name;
      found = found || same;
      policies.push(same ? Json::object({{"name", name}, {"document", *text}}) : one);
    }
    if (!found) policies.push(Json::object({{"name", name}, {"document", *text}}));
    if (policies.items().size() > most_policies) return refuse("LimitExceeded", fmt::format("An identity has at most {} policies.", most_policies), 409);
    object->child("spec").set("policies", std::move(policies));
    return write(*object);
  }

  Answer<std::string> get_policy(Type type) {
    const auto object = find_policy_owner("Get", type);
    if (!object) return std::unexpected(object.error());
    const std::string name = given("PolicyName");
    for (const Json& one : (*object)["spec"]["policies"].items())
      if (one["name"].string() == name) return xml_element(fmt::format("{}Name", names::text(type)), (*object)["spec"]["name"].string()) + xml_element("PolicyName", name) + xml_element("PolicyDocument", http::escape(document_text(one["document"])));
    return none("The policy " + cut(name, 128));
  }

  Answer<std::string> list_policies(Type type) {
    const auto object = find_for(fmt::format("iam:List{}Policies", names::text(type)), type);
    if (!object) return std::unexpected(object.error());
    std::vector<std::string> all;
    for (const Json& one : (*object)["spec"]["policies"].items()) all.push_back(one["name"].string());
    return page(all, [&](std::size_t i) { return xml_element("member", all[i]); }, "PolicyNames", "policies of " + kube::uid_of(*object));
  }

  Answer<std::string> delete_policy(Type type) {
    auto object = find_policy_owner("Delete", type);
    if (!object) return std::unexpected(object.error());
    Json policies = Json::array();
    const std::string name = given("PolicyName");
    for (const Json& one : (*object)["spec"]["policies"].items())
      if (one["name"].string() != name) policies.push(one);
    if (policies.items().size() == (*object)["spec"]["policies"].items().size()) return none("The policy " + cut(name, 128));
    object->child("spec").set("policies", std::move(policies));
    return write(*object);
  }

  Answer<std::string> create_managed() {
    const std::string name = given("PolicyName"), path = given("Path", "/"), arn = policy_arn(path, name);
    if (!names::is_policy_name(name)) return invalid(fmt::format("PolicyName '{}': 1 to 128 of letters, digits and +=,.@_-", cut(name, 128)));
    if (!is_path(path)) return invalid(fmt::format("Path '{}': it begins and ends with / and has printable characters", cut(path, 128)));
    if (auto done = call_.allow("iam:CreatePolicy", arn); !done) return std::unexpected(done.error());
    if (!given("Tags.member.1.Key").empty()) return invalid("Tags of policies are not served here");
    auto text = document("PolicyDocument", iam::PolicyKind::Identity);
    if (!text) return std::unexpected(text.error());
    // Whoever was given what had this name before is not given this.
    const auto left = attachments(arn);
    if (!left) return std::unexpected(left.error());
    if (!left->empty()) {
      const Json& holder = left->front().second["spec"];
      return refuse("EntityAlreadyExists", fmt::format("{} {} still has {} attached, which was deleted: this policy would be theirs at once. Detach it first (Detach{}Policy){}.", holder["type"].string(), holder["name"].string(), arn, holder["type"].string(), left->size() > 1 ? fmt::format("; {} others have it, too", left->size() - 1) : ""), 409);
    }
    Json spec = Json::object({{"name", name}, {"document", std::move(*text)}, {"version", "v1"}, {"versionCreated", print_time(call_.now)}, {"lastVersion", 1}});
    if (path != "/") spec.set("path", path);
    if (const std::string description = given("Description"); !description.empty()) spec.set("description", cut(description, 1000));
    const auto made = api_.create(names::managed_policies, Json::object({{"apiVersion", names::managed_policies.api_version()}, {"kind", "ManagedPolicy"}, {"metadata", Json::object({{"name", names::policy_object_name(name)}})}, {"spec", std::move(spec)}}));
    if (!made) return std::unexpected(iam_error(made.error(), "A policy called " + name));
    return "<Policy>" + policy_picture(*made, 0) + "</Policy>";
  }

  Answer<std::string> get_managed() {
    const auto policy = find_managed("iam:GetPolicy");
    if (!policy) return std::unexpected(policy.error());
    const auto count = attachments(given("PolicyArn"));
    if (!count) return std::unexpected(count.error());
    return "<Policy>" + policy_picture(*policy, count->size(), true) + "</Policy>";
  }

  Answer<std::string> list_managed() {
    if (auto done = call_.allow("iam:ListPolicies", "*"); !done) return std::unexpected(done.error());
    const std::string scope = given("Scope", "All"), prefix = given("PathPrefix", "/"), attached = given("OnlyAttached", "false");
    if (scope != "All" && scope != "AWS" && scope != "Local") return invalid("Scope: All, AWS or Local is expected");
    if (const std::string usage = given("PolicyUsageFilter", "PermissionsPolicy"); usage != "PermissionsPolicy") return invalid("PolicyUsageFilter: PermissionsPolicy is served here: a boundary is a document of its Identity");
    auto objects = api_.list(names::managed_policies, "");
    if (!objects) return std::unexpected(aws_error(objects.error(), "list policies"));
    if (scope == "AWS") objects->items.clear();
    if (scope != "Local")
      for (const std::string& arn : names::aws_policies()) objects->items.push_back(aws_policy(arn));
    const auto counts = attachments("");
    if (!counts) return std::unexpected(counts.error());
    std::vector<const Json*> chosen;
    std::vector<std::string> all;
    std::vector<std::size_t> used;
    for (const Json& object : objects->items) {
      const std::string arn = arn_of_policy(object);
      const auto count = static_cast<std::size_t>(std::count_if(counts->begin(), counts->end(), [&](const auto& one) { return one.first == arn; }));
      if (!object["spec"]["path"].string_or("/").starts_with(prefix) || (attached == "true" && count == 0)) continue;
      chosen.push_back(&object), all.push_back(arn), used.push_back(count);
    }
    return page(all, [&](std::size_t i) { return "<member>" + policy_picture(*chosen[i], used[i]) + "</member>"; }, "Policies", "policies " + scope + prefix + attached);
  }

  Answer<std::string> delete_managed() {
    const auto policy = find_managed("iam:DeletePolicy", true);
    if (!policy) return std::unexpected(policy.error());
    const auto count = attachments(given("PolicyArn"));
    if (!count) return std::unexpected(count.error());
    if (!count->empty()) return refuse("DeleteConflict", "Cannot delete a policy attached to entities.", 409);
    if (!(*policy)["spec"]["otherVersions"].items().empty()) return refuse("DeleteConflict", "This policy has more than one version. Before you delete a policy, you must delete the policy's versions. The default version is deleted with the policy.", 409);
    const auto gone = api_.remove(names::managed_policies, kube::key_of(*policy), {.grace_seconds = {}, .uid = kube::uid_of(*policy), .resource_version = kube::version_of(*policy)});
    if (!gone) return std::unexpected(iam_error(gone.error(), "Policy " + given("PolicyArn")));
    return "";
  }

  Answer<std::string> create_version() {
    auto policy = find_managed("iam:CreatePolicyVersion", true);
    if (!policy) return std::unexpected(policy.error());
    auto text = document("PolicyDocument", iam::PolicyKind::Identity);
    if (!text) return std::unexpected(text.error());
    Json& spec = policy->child("spec");
    const Json before = spec;
    Json others = before["otherVersions"].is_array() ? before["otherVersions"] : Json::array();
    if (others.items().size() + 2 > names::most_versions) return refuse("LimitExceeded", fmt::format("A managed policy can have up to {} versions. Before you create a new version, you must delete an existing version.", names::most_versions), 409);
    // Numbers are given once. One that came by a file may not say which was the last.
    std::int64_t last = std::max<std::int64_t>(before["lastVersion"].integer(1), number_of(before["version"].string_or("v1")));
    for (const Json& one : others.items()) last = std::max(last, number_of(one["id"].string()));
    const std::string id = fmt::format("v{}", last + 1), now = print_time(call_.now);
    const bool chosen = given("SetAsDefault") == "true";
    if (chosen) {
      others.push(default_version(*policy));
      spec.set("document", std::move(*text)).set("version", id).set("versionCreated", now);
    } else {
      others.push(Json::object({{"id", id}, {"created", now}, {"document", std::move(*text)}}));
    }
    spec.set("lastVersion", last + 1).set("otherVersions", std::move(others));
    if (auto done = write_policy(*policy); !done) return std::unexpected(done.error());
    return "<PolicyVersion>" + xml_element("VersionId", id) + xml_element("IsDefaultVersion", chosen ? "true" : "false") + xml_element("CreateDate", now) + "</PolicyVersion>";
  }

  Answer<std::string> get_version() {
    const auto policy = find_managed("iam:GetPolicyVersion");
    if (!policy) return std::unexpected(policy.error());
    for (const auto& [version, chosen] : versions(*policy))
      if (version["id"].string() == given("VersionId")) return "<PolicyVersion>" + xml_element("Document", http::escape(document_text(version["document"]))) + version_picture(version, chosen) + "</PolicyVersion>";
    return no_version();
  }

  Answer<std::string> list_versions() {
    const auto policy = find_managed("iam:ListPolicyVersions");
    if (!policy) return std::unexpected(policy.error());
    const auto all = versions(*policy);
    std::vector<std::string> ids;
    for (const auto& [version, chosen] : all) ids.push_back(version["id"].string());
    return page(ids, [&](std::size_t i) { return "<member>" + version_picture(all[i].first, all[i].second) + "</member>"; }, "Versions", "versions of " + given("PolicyArn"));
  }

  Answer<std::string> change_versions(bool remove) {
    auto policy = find_managed(remove ? "iam:DeletePolicyVersion" : "iam:SetDefaultPolicyVersion", true);
    if (!policy) return std::unexpected(policy.error());
    const std::string id = given("VersionId");
    const Json was = default_version(*policy);
    if (was["id"].string() == id) return remove ? Answer<std::string>(refuse("DeleteConflict", "Cannot delete the default version of a policy.", 409)) : Answer<std::string>("");
    Json others = Json::array(), chosen;
    for (const Json& one : (*policy)["spec"]["otherVersions"].items())
      if (one["id"].string() == id) chosen = one;
      else others.push(one);
    if (chosen.is_null()) return no_version();
    Json& spec = policy->child("spec");
    if (!remove) {
      others.push(was);
      spec.set("document", chosen["document"]).set("version", id).set("versionCreated", chosen["created"].is_string() ? chosen["created"] : Json(print_time(created_at(*policy))));
    }
    spec.set("otherVersions", std::move(others));
    return write_policy(*policy);
  }

  Answer<std::string> attach(Type type, bool detach) {
    const std::string arn = given("PolicyArn");
    iam::Keys keys;
    keys.set("iam:PolicyARN", {arn});
    auto object = find_for(fmt::format("iam:{}{}Policy", detach ? "Detach" : "Attach", names::text(type)), type, std::move(keys));
    if (!object) return std::unexpected(object.error());
    const auto& there = (*object)["spec"]["attachedPolicies"].items();
    const bool has = std::any_of(there.begin(), there.end(), [&](const Json& one) { return one.string() == arn; });
    if (detach && !has) return none("Policy " + cut(arn, 256) + " was not found, or is not attached: it");
    if (!detach && has) return "";
    Json attached = Json::array();
    for (const Json& one : there)
      if (one.string() != arn) attached.push(one);
    std::string uid;
    if (!detach) {
      const auto policy = read_managed(arn);
      if (!policy) return std::unexpected(policy.error());
      uid = kube::uid_of(*policy);
      if (there.size() >= names::most_attached) return refuse("LimitExceeded", fmt::format("Cannot exceed quota for PoliciesPer{}: {}", names::text(type), names::most_attached), 409);
      attached.push(arn);
    }
    if (attached.items().empty()) object->child("spec").erase("attachedPolicies");
    else object->child("spec").set("attachedPolicies", std::move(attached));
    auto done = write(*object);
    if (!done || detach) return done;
    // Deleted meanwhile by who did not see this attachment: another policy of its name is not to be theirs.
    const auto after = read_managed(arn);
    if (after ? kube::uid_of(*after) == uid : after.error().code != "NoSuchEntity") return after ? done : std::unexpected(after.error());
    if (auto undone = take_back(kube::key_of(*object), arn); !undone) return std::unexpected(undone.error());
    return after ? Answer<std::string>(refuse("ConcurrentModification", fmt::format("Policy {} was deleted and made anew at the same time; try again.", arn), 409)) : std::unexpected(after.error());
  }

  Answer<std::string> list_attached(Type type) {
    const auto object = find_for(fmt::format("iam:ListAttached{}Policies", names::text(type)), type);
    if (!object) return std::unexpected(object.error());
    std::vector<std::string> all;
    for (const Json& one : (*object)["spec"]["attachedPolicies"].items())
      if (const std::string& arn = one.string(); arn.substr(std::min(arn.size(), arn.find(":policy/") + 7)).starts_with(given("PathPrefix", "/"))) all.push_back(arn);
    return page(all, [&](std::size_t i) { return "<member>" + xml_element("PolicyName", all[i].substr(all[i].rfind('/') + 1)) + xml_element("PolicyArn", all[i]) + "</member>"; }, "AttachedPolicies", "attached " + kube::uid_of(*object) + given("PathPrefix", "/"));
  }

  Answer<std::string> list_entities() {
    const auto policy = find_managed("iam:ListEntitiesForPolicy");
    if (!policy) return std::unexpected(policy.error());
    const std::string filter = given("EntityFilter");
    if (!filter.empty() && filter != "User" && filter != "Role" && filter != "Group") return invalid("EntityFilter: User, Role or Group is expected");
    const auto found = attachments(given("PolicyArn"));
    if (!found) return std::unexpected(found.error());
    // Users and roles have lists of their own and one marker.
    std::vector<std::string> names_of_all;
    for (const auto& [arn, object] : *found)
      if (const std::string& type = object["spec"]["type"].string(); (filter.empty() || filter == type) && object["spec"]["path"].string_or("/").starts_with(given("PathPrefix", "/"))) names_of_all.push_back(type + " " + object["spec"]["name"].string());
    const auto rows = page(names_of_all, [&](std::size_t i) { return names_of_all[i] + "\n"; }, "rows", "entities of " + given("PolicyArn") + filter);
    if (!rows) return rows;
    std::map<std::string, std::string> lists;
    const auto end = rows->find("</rows>");
    for (const std::string& row : split(std::string_view(*rows).substr(6, end - 6), '\n'))
      if (const auto space = row.find(' '); space != row.npos) {
        const std::string type = row.substr(0, space), name = row.substr(space + 1);
        std::string id;
        for (const auto& [arn, object] : *found)
          if (object["spec"]["type"].string() == type && object["spec"]["name"].string() == name) id = read_identity(object, call_.site, {}).id;
        lists[type] += "<member>" + xml_element(type + "Name", name) + xml_element(type + "Id", id) + "</member>";
      }
    return "<PolicyGroups></PolicyGroups><PolicyUsers>" + lists["User"] + "</PolicyUsers><PolicyRoles>" + lists["Role"] + "</PolicyRoles>" + rows->substr(end + 7);
  }

  Answer<std::string> create_key() {
    const auto object = find_for("iam:CreateAccessKey", Type::User);
    if (!object) return std::unexpected(object.error());
    const auto there = keys_of(*object);
    if (!there) return std::unexpected(there.error());
    if (there->size() >= names::most_keys) return refuse("LimitExceeded", fmt::format("Cannot exceed quota for AccessKeysPerUser: {}", names::most_keys), 409);
    const AccessKey key = names::new_key(kube::name_of(*object), kube::uid_of(*object));
    const auto made = api_.create(kube::resources::secrets, names::write_key(key, space_));
    if (!made) return std::unexpected(iam_error(made.error(), "The access key"));
    return "<AccessKey>" + key_picture(*object, key, *made) + xml_element("SecretAccessKey", key.secret) + "</AccessKey>";
  }

  Answer<std::string> list_keys() {
    const auto object = find_for("iam:ListAccessKeys", Type::User);
    if (!object) return std::unexpected(object.error());
    const auto keys = keys_of(*object);
    if (!keys) return std::unexpected(keys.error());
    std::vector<std::string> all;
    for (const auto& [secret, key] : *keys) all.push_back(key.id);
    return page(all, [&](std::size_t i) { return "<member>" + key_picture(*object, (*keys)[i].second, (*keys)[i].first) + "</member>"; }, "AccessKeyMetadata", "keys of " + kube::uid_of(*object));
  }

  Answer<std::string> update_key() {
    const std::string status = given("Status");
    if (status != "Active" && status != "Inactive") return invalid("Status: Active or Inactive is expected");
    const auto key = find_key("iam:UpdateAccessKey");
    if (!key) return std::unexpected(key.error());
    const auto done = api_.patch(kube::resources::secrets, kube::key_of(*key), kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*key)}})}, {"data", Json::object({{"status", base64(status)}})}}));
    if (!done) return std::unexpected(iam_error(done.error(), "The access key " + given("AccessKeyId")));
    return "";
  }

  Answer<std::string> delete_key() {
    const auto key = find_key("iam:DeleteAccessKey");
    if (!key) return std::unexpected(key.error());
    const auto gone = api_.remove(kube::resources::secrets, kube::key_of(*key), {.grace_seconds = {}, .uid = kube::uid_of(*key), .resource_version = {}});
    if (!gone) return std::unexpected(iam_error(gone.error(), "The access key " + given("AccessKeyId")));
    return "";
  }

 private:
  Answer<void> take_back(const kube::ObjectKey& identity, const std::string& arn) const {
    for (int tries = 0;; ++tries) {
      auto object = api_.get(names::identities, identity);
      if (!object && object.error().code == Code::NotFound) return {};
      if (!object) return std::unexpected(aws_error(object.error(), "take back the attachment of " + arn));
      Json left = Json::array();
      for (const Json& one : (*object)["spec"]["attachedPolicies"].items())
        if (one.string() != arn) left.push(one);
      if (left.items().size() == (*object)["spec"]["attachedPolicies"].items().size()) return {};
      if (left.items().empty()) object->child("spec").erase("attachedPolicies");
      else object->child("spec").set("attachedPolicies", std::move(left));
      const auto done = api_.update(names::identities, *object);
      if (done) return {};
      if (done.error().code != Code::Conflict || tries >= 9) return std::unexpected(iam_error(done.error(), "The identity"));
    }
  }
  std::string given(std::string_view name, std::string_view otherwise = "") const {
    const auto value = http::find(form_, name);
    return std::string(value.empty() ? otherwise : value);
  }
  std::string text(const char* suffix, Type type) const { return given(std::string(names::text(type)) + suffix); }
  static std::string action_for(const char* verb, Type type) { return fmt::format("iam:{}{}", verb, names::text(type)); }
  std::string arn(Type type, const std::string& path, const std::string& name) const { return fmt::format("arn:aws:iam::{}:{}{}{}", call_.site.account, type == Type::User ? "user" : "role", path, name); }
  static std::string title(Type type, const std::string& name) { return fmt::format("The {} with name {}", type == Type::User ? "user" : "role", name); }
  static std::unexpected<AwsError> bad_name(Type type, const std::string& name) { return invalid(fmt::format("{}Name '{}': 1 to 64 of letters, digits and +=,.@_-", names::text(type), cut(name, 128))); }

  Answer<Tags> given_tags() const {
    Json list = Json::array();
    for (int i = 1; i <= 51 && !given(fmt::format("Tags.member.{}.Key", i)).empty(); ++i) {
      const std::string key = given(fmt::format("Tags.member.{}.Key", i)), value = given(fmt::format("Tags.member.{}.Value", i));
      if (code_points(key) > 128 || code_points(value) > 256) return invalid("a tag's key has at most 128 characters, its value 256");
      list.push(Json::object({{"Key", key}, {"Value", value}}));
    }
    if (list.items().size() > 50) return refuse("LimitExceeded", "at most 50 tags", 409);
    return read_tags(list);
  }

  Answer<std::int64_t> session_duration() const {
    const std::string text = given("MaxSessionDuration");
    if (text.empty()) return std::int64_t{0};
    std::int64_t seconds = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size() || seconds < 3600 || seconds > 43200) return invalid("MaxSessionDuration: 3600 to 43200 seconds");
    return seconds;
  }

  Answer<std::string> document(const char* parameter, iam::PolicyKind kind) const {
    std::string text = given(parameter);
    if (text.empty()) return invalid(fmt::format("1 validation error detected: Value null at '{}' failed to satisfy constraint: Member must not be null", parameter));
    if (auto policy = iam::read_policy(text, kind); !policy) return refuse("MalformedPolicyDocument", policy.error().message);
    return text;
  }

  static bool is_path(const std::string& path) { return path.size() <= 512 && path.starts_with('/') && path.ends_with('/') && std::none_of(path.begin(), path.end(), [](char c) { return c < '!' || c > '~'; }) && path.find("//") == path.npos; }
  std::string policy_arn(const std::string& path, const std::string& name) const { return fmt::format("arn:aws:iam::{}:policy{}{}", call_.site.account, path, name); }
  // One of AWS's, as the others are: it says nothing, so it allows nothing.
  static Json aws_policy(const std::string& arn) {
    return Json::object({{"metadata", Json::object({{"uid", arn}, {"creationTimestamp", "2023-01-01T00:00:00Z"}})}, {"spec", Json::object({{"arn", arn}, {"name", arn.substr(arn.rfind('/') + 1)}, {"document", R"({"Version":"2012-10-17","Statement":[]})"}, {"description", "A name of AWS's; here it allows nothing"}})}});
  }
  std::string arn_of_policy(const Json& object) const { return object["spec"]["arn"].string_or(managed_policy_arn(object, call_.site)); }
  // NoSuchEntity: it is not there, or its object is another's.
  Answer<Json> read_managed(const std::string& arn) const {
    if (names::is_aws_policy(arn)) return aws_policy(arn);
    const std::string name = arn.substr(arn.rfind('/') + 1), missing = fmt::format("Policy {} does not exist or is not attachable{}", cut(arn, 256), arn.starts_with("arn:aws:iam::aws:") ? " here: of AWS's own, ListPolicies names those that are. It" : ": it");
    if (!names::is_policy_name(name)) return none(missing);
    auto object = api_.get(names::managed_policies, {"", names::policy_object_name(name)});
    if (!object && object.error().code != Code::NotFound) return std::unexpected(aws_error(object.error(), "read policy"));
    if (!object || managed_policy_arn(*object, call_.site) != arn) return none(missing);
    return std::move(*object);
  }
  Answer<Json> find_managed(const char* action, bool changes = false) const {
    const std::string arn = given("PolicyArn");
    if (arn.size() < 20 || arn.size() > 2048 || !arn.starts_with("arn:aws:iam::") || arn.find(":policy/") == arn.npos) return invalid("PolicyArn: arn:aws:iam::ACCOUNT:policy/NAME is expected");
    if (auto done = call_.allow(action, arn); !done) return std::unexpected(done.error());
    if (changes && arn.starts_with("arn:aws:iam::aws:")) return refuse("AccessDenied", "Policies of AWS's own are not changed.", 403);
    return read_managed(arn);
  }
  Answer<std::string> write_policy(const Json& object) const {
    const auto done = api_.update(names::managed_policies, object);
    if (!done) return std::unexpected(iam_error(done.error(), "Policy " + given("PolicyArn")));
    return "";
  }
  // Of all identities, or of this policy: (ARN, Identity object).
  Answer<std::vector<std::pair<std::string, Json>>> attachments(const std::string& arn) const {
    const auto objects = api_.list(names::identities, "");
    if (!objects) return std::unexpected(aws_error(objects.error(), "list identities"));
    std::vector<std::pair<std::string, Json>> out;
    for (const Json& object : objects->items)
      for (const Json& one : object["spec"]["attachedPolicies"].items())
        if (arn.empty() || one.string() == arn) out.emplace_back(one.string(), object);
    return out;
  }
  static std::unexpected<AwsError> no_version() { return none("The version of the policy"); }
  static std::int64_t number_of(const std::string& id) { return id.size() > 1 && id.size() < 11 ? std::atoll(id.c_str() + 1) : 0; }
  static Json default_version(const Json& policy) {
    const Json& spec = policy["spec"];
    return Json::object({{"id", spec["version"].string_or("v1")}, {"created", spec["versionCreated"].string_or(print_time(created_at(policy)))}, {"document", spec["document"]}});
  }
  // Newest first, and whether it is the default.
  static std::vector<std::pair<Json, bool>> versions(const Json& policy) {
    std::vector<std::pair<Json, bool>> out{{default_version(policy), true}};
    for (const Json& one : policy["spec"]["otherVersions"].items()) out.emplace_back(one, false);
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return number_of(a.first["id"].string()) > number_of(b.first["id"].string()); });
    return out;
  }
  static std::string version_picture(const Json& version, bool chosen) { return xml_element("VersionId", version["id"].string()) + xml_element("IsDefaultVersion", chosen ? "true" : "false") + (version["created"].is_string() ? xml_element("CreateDate", version["created"].string()) : ""); }
  std::string policy_picture(const Json& object, std::size_t attached, bool whole = false) const {
    const Json& spec = object["spec"];
    std::string letters = hex(sha256(kube::uid_of(object))).substr(0, 17);
    std::transform(letters.begin(), letters.end(), letters.begin(), [](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c); });
    std::string out = xml_element("PolicyName", spec["name"].string()) + xml_element("PolicyId", "ANPA" + letters) + xml_element("Arn", arn_of_policy(object)) + xml_element("Path", spec["path"].string_or("/")) + xml_element("DefaultVersionId", spec["version"].string_or("v1")) +
                      xml_element("AttachmentCount", std::to_string(attached)) + xml_element("PermissionsBoundaryUsageCount", "0") + xml_element("IsAttachable", "true") + xml_element("CreateDate", print_time(created_at(object))) + xml_element("UpdateDate", spec["versionCreated"].string_or(print_time(created_at(object))));
    if (whole && spec.has("description")) out += xml_element("Description", spec["description"].string());
    return out;
  }

  // The identity of the form, if the caller may do this to it. Without a UserName: who asks. `more`: condition keys.
  Answer<Json> find_for(const std::string& action, Type type, iam::Keys more = {}) const {
    std::string name = text("Name", type);
    if (name.empty() && type == Type::User) {
      if (call_.who.identity->type != Type::User) return invalid("Must specify userName when calling with non-User credentials");
      name = call_.who.identity->name;
    }
    if (!names::is_name(name)) return bad_name(type, name);
    auto object = api_.get(names::identities, {"", names::object_name(type, name)});
    if (!object && object.error().code != Code::NotFound) return std::unexpected(aws_error(object.error(), "read identity"));
    const std::string path = object ? (*object)["spec"]["path"].string_or("/") : "/";
    Tags tags;
    if (object)
      for (const Json& tag : (*object)["spec"]["tags"].items()) tags[tag["key"].string()] = tag["value"].string();
    iam::Keys keys = tag_keys({}, tags);
    if (const auto* policy = more.find("iam:policyarn"); policy != nullptr) keys.set("iam:PolicyARN", *policy);
    if (object && !(*object)["spec"]["permissionsBoundary"].is_null()) keys.set("iam:PermissionsBoundary", {"inline"});  // it is there, and has no ARN
    // A name and nothing else: a path would tell that it is there.
    if (auto done = call_.allow(action, arn(type, path, name), keys, fmt::format("{} {}", type == Type::User ? "user" : "role", name)); !done) return std::unexpected(done.error());
    if (!object) return none(title(type, name));
    if (read_identity(*object, call_.site, {}).name != name) return none(title(type, name));  // names are told apart by case when they are asked for
    return std::move(*object);
  }
  Answer<Json> find(const char* verb, Type type) const { return find_for(action_for(verb, type), type); }
  Answer<Json> find_policy_owner(const char* verb, Type type) const { return find_for(fmt::format("iam:{}{}Policy", verb, names::text(type)), type); }

  Answer<std::string> write(const Json& object) const {
    const auto done = api_.update(names::identities, object);
    if (!done) return std::unexpected(iam_error(done.error(), title(*names::read_type(object["spec"]["type"].string()), object["spec"]["name"].string())));
    return "";
  }

  Answer<std::vector<std::pair<Json, AccessKey>>> keys_of(const Json& user) const {
    auto secrets = api_.list(kube::resources::secrets, space_);
    if (!secrets) return std::unexpected(aws_error(secrets.error(), "list keys"));
    std::vector<std::pair<Json, AccessKey>> out;
    for (Json& secret : secrets->items)
      if (auto key = names::read_key(secret); key && key->identity == kube::name_of(user) && key->identity_uid == kube::uid_of(user)) out.emplace_back(std::move(secret), std::move(*key));
    return out;
  }
  Answer<Json> find_key(const std::string& action) const {
    const auto object = find_for(action, Type::User);
    if (!object) return object;
    const std::string id = given("AccessKeyId");
    const bool sensible = id.size() >= 16 && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); });
    auto secret = sensible ? api_.get(kube::resources::secrets, {space_, names::key_object_name(id)}) : Result<Json>(fail(Code::NotFound, ""));
    if (!secret && secret.error().code != Code::NotFound) return std::unexpected(aws_error(secret.error(), "read key"));
    const auto key = secret ? names::read_key(*secret) : std::nullopt;
    if (!key || key->id != id || key->identity != kube::name_of(*object) || key->identity_uid != kube::uid_of(*object)) return none("The Access Key with id " + cut(id, 128));
    return std::move(*secret);
  }

  std::string picture(const Json& object) const {
    const Identity identity = read_identity(object, call_.site, {});
    const std::string word(names::text(identity.type));
    std::string out = xml_element("Path", identity.path) + xml_element(word + "Name", identity.name) + xml_element(word + "Id", identity.id) + xml_element("Arn", identity.arn) + xml_element("CreateDate", print_time(created_at(object)));
    if (identity.type == Type::Role) {
      out += xml_element("AssumeRolePolicyDocument", http::escape(document_text(object["spec"]["trustPolicy"]))) + xml_element("MaxSessionDuration", std::to_string(identity.longest_session.count()));
      if (object["spec"].has("description")) out += xml_element("Description", object["spec"]["description"].string());
    }
    if (!identity.tags.empty()) {
      out += "<Tags>";
      for (const auto& [key, value] : identity.tags) out += "<member>" + xml_element("Key", key) + xml_element("Value", value) + "</member>";
      out += "</Tags>";
    }
    return out;
  }
  static std::string key_picture(const Json& user, const AccessKey& key, const Json& secret) {
    return xml_element("UserName", user["spec"]["name"].string()) + xml_element("AccessKeyId", key.id) + xml_element("Status", key.active ? "Active" : "Inactive") + xml_element("CreateDate", print_time(created_at(secret)));
  }

  // Entries by their names, from the marker on.
  Answer<std::string> page(const std::vector<std::string>& all, const std::function<std::string(std::size_t)>& show, const std::string& element, const std::string& question) const {
    std::int64_t most = 100;
    if (const std::string items = given("MaxItems"); !items.empty()) {
      const auto read = std::from_chars(items.data(), items.data() + items.size(), most);
      if (read.ec != std::errc() || read.ptr != items.data() + items.size() || most < 1 || most > 1000) return invalid("MaxItems: 1 to 1000");
    }
    std::vector<Entry> rows;
    for (std::size_t i = 0; i < all.size(); ++i) rows.push_back({.name = all[i], .id = all[i], .created = {}, .status = {}, .cluster = {}, .at = i});
    Json input = Json::object({{"SortBy", "Name"}, {"MaxResults", most}, {"of", question}});
    if (const std::string marker = given("Marker"); !marker.empty()) input.set("NextToken", marker);
    const auto some = page_of(std::move(rows), input, [&](const Entry& one) { return Json(show(one.at)); });
    if (!some) return std::unexpected(some.error());
    std::string out = "<" + element + ">";
    for (const Json& one : some->items.items()) out += one.string();
    out += "</" + element + ">" + xml_element("IsTruncated", some->next.empty() ? "false" : "true");
    return some->next.empty() ? out : out + xml_element("Marker", some->next);
  }

  const http::Query& form_;
  const Call& call_;
  kube::KubeApi& api_;
  const std::string& space_;
};

using Work = std::function<Answer<std::string>(Iam&)>;
const std::map<std::string, Work, std::less<>>& works() {
  static const std::map<std::string, Work, std::less<>> all{
      {"CreateUser", [](Iam& iam) { return iam.create(Type::User); }},
      {"GetUser", [](Iam& iam) { return iam.get(Type::User); }},
      {"ListUsers", [](Iam& iam) { return iam.list(Type::User); }},
      {"DeleteUser", [](Iam& iam) { return iam.remove(Type::User); }},
      {"CreateRole", [](Iam& iam) { return iam.create(Type::Role); }},
      {"GetRole", [](Iam& iam) { return iam.get(Type::Role); }},
      {"ListRoles", [](Iam& iam) { return iam.list(Type::Role); }},
      {"DeleteRole", [](Iam& iam) { return iam.remove(Type::Role); }},
      {"UpdateRole", [](Iam& iam) { return iam.update_role(); }},
      {"UpdateAssumeRolePolicy", [](Iam& iam) { return iam.update_trust(); }},
      {"PutUserPolicy", [](Iam& iam) { return iam.put_policy(Type::User); }},
      {"GetUserPolicy", [](Iam& iam) { return iam.get_policy(Type::User); }},
      {"ListUserPolicies", [](Iam& iam) { return iam.list_policies(Type::User); }},
      {"DeleteUserPolicy", [](Iam& iam) { return iam.delete_policy(Type::User); }},
      {"PutRolePolicy", [](Iam& iam) { return iam.put_policy(Type::Role); }},
      {"GetRolePolicy", [](Iam& iam) { return iam.get_policy(Type::Role); }},
      {"ListRolePolicies", [](Iam& iam) { return iam.list_policies(Type::Role); }},
      {"DeleteRolePolicy", [](Iam& iam) { return iam.delete_policy(Type::Role); }},
      {"CreatePolicy", [](Iam& iam) { return iam.create_managed(); }},
      {"GetPolicy", [](Iam& iam) { return iam.get_managed(); }},
      {"ListPolicies", [](Iam& iam) { return iam.list_managed(); }},
      {"DeletePolicy", [](Iam& iam) { return iam.delete_managed(); }},
      {"CreatePolicyVersion", [](Iam& iam) { return iam.create_version(); }},
      {"GetPolicyVersion", [](Iam& iam) { return iam.get_version(); }},
      {"ListPolicyVersions", [](Iam& iam) { return iam.list_versions(); }},
      {"SetDefaultPolicyVersion", [](Iam& iam) { return iam.change_versions(false); }},
      {"DeletePolicyVersion", [](Iam& iam) { return iam.change_versions(true); }},
      {"AttachUserPolicy", [](Iam& iam) { return iam.attach(Type::User, false); }},
      {"DetachUserPolicy", [](Iam& iam) { return iam.attach(Type::User, true); }},
      {"ListAttachedUserPolicies", [](Iam& iam) { return iam.list_attached(Type::User); }},
      {"AttachRolePolicy", [](Iam& iam) { return iam.attach(Type::Role, false); }},
      {"DetachRolePolicy", [](Iam& iam) { return iam.attach(Type::Role, true); }},
      {"ListAttachedRolePolicies", [](Iam& iam) { return iam.list_attached(Type::Role); }},
      {"ListEntitiesForPolicy", [](Iam& iam) { return iam.list_entities(); }},
      {"CreateAccessKey", [](Iam& iam) { return iam.create_key(); }},
      {"ListAccessKeys", [](Iam& iam) { return iam.list_keys(); }},
      {"UpdateAccessKey", [](Iam& iam) { return iam.update_key(); }},
      {"DeleteAccessKey", [](Iam& iam) { return iam.delete_key(); }},
  };
  return all;
}

}  // namespace

bool is_iam_action(std::string_view action) { return works().contains(action); }

Answer<std::string> answer_iam(const std::string& action, const http::Query& form, const Call& call, kube::KubeApi& api, const std::string& space) {
  const auto found = works().find(action);
  if (found == works().end()) return refuse("UnknownOperationException", fmt::format("Could not find operation {}; users, roles, their policies, managed policies and access keys are served here", action.empty() ? "(no Action)" : cut(action, 128)));
  Iam iam(form, call, api, space);
  return found->second(iam);
}

}  // namespace fairlead::hyperpod
