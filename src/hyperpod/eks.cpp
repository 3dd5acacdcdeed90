// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/eks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "hyperpod/access_policies.h"
#include "hyperpod/eks_token.h"
#include "hyperpod/entity.h"
#include "hyperpod/paging.h"
#include "hyperpod/pod_associations.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t most_groups = 50, most_policies = 20, most_namespaces = 50;

std::unexpected<AwsError> not_found(const std::string& what) { return refuse("ResourceNotFoundException", what, 404); }
std::unexpected<AwsError> bad(const std::string& why) { return refuse("InvalidParameterException", why); }

// The identity that an ARN of IAM names, by its object.
std::optional<std::string> object_of(std::string_view arn, const Site& site) {
  for (const auto type : {api::identities::Type::User, api::identities::Type::Role}) {
    const std::string begin = fmt::format("arn:aws:iam::{}:{}/", site.account, type == api::identities::Type::User ? "user" : "role");
    if (!arn.starts_with(begin)) continue;
    const std::string_view name = arn.substr(arn.rfind('/') + 1);
    if (api::identities::is_name(name)) return api::identities::object_name(type, name);
  }
  return std::nullopt;
}

class Eks {
 public:
  Eks(const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster) : request_(request), call_(call), api_(api), cluster_(cluster) {}

  Answer<EksAnswer> run() {
    const std::string operation = eks_operation(request_);
    const auto& path = request_.target.segments;
    if (operation.empty()) return refuse("UnknownOperationException", "EKS: clusters, their access entries and policies, pod identity associations and add-ons are served here", 404);
    if (operation == "ListClusters") return list_clusters();
    if (operation == "ListAccessPolicies") return list_policies();
    if (!association_operation(request_).empty()) return answer_association(operation, request_, call_, api_, cluster_);
    const std::string arn = eks_arn(call_.site, path[1]);
    const bool entries = path.size() > 2 && path[2] == "access-entries";
    std::string principal = path.size() > 3 && entries ? path[3] : "";
    iam::Keys keys;
    keys.set("eks:clusterName", {path[1]});
    const bool policies = path.size() > 4 && entries;
    Json input = Json::object();
    if (entries && request_.method == "POST") {
      auto read = body();
      if (!read) return std::unexpected(read.error());
      input = std::move(*read);
      if (policies) {
        keys.set("eks:policyArn", {input["policyArn"].string()});
        keys.set("eks:accessScope", {input["accessScope"]["type"].string()});
        std::vector<std::string> spaces;
        for (const Json& space : input["accessScope"]["namespaces"].items()) spaces.push_back(space.string());
        if (!spaces.empty()) keys.set("eks:namespaces", spaces);
      }
      if (principal.empty() && operation == "CreateAccessEntry") principal = input["principalArn"].string();
    }
    if (operation == "DisassociateAccessPolicy") keys.set("eks:policyArn", {path[5]});
    // What the entry is or would be, as conditions ask for it: of whatever changes it.
    if (entries && request_.method != "GET") {
      auto before = operation == "CreateAccessEntry" ? Answer<Json>(Json()) : identity_of(principal);
      if (!before && before.error().code != "InvalidParameterException") return std::unexpected(before.error());  // a Deny could be about it
      const Json none;
      const Json& entry = before ? (*before)["spec"]["accessEntry"] : none;
      std::vector<std::string> groups;
      const bool given = !policies && !input["kubernetesGroups"].is_null();
      for (const Json& group : (given ? input["kubernetesGroups"] : entry["groups"]).items()) groups.push_back(group.string());
      if (!groups.empty()) keys.set("eks:kubernetesGroups", groups);
      if (const std::string name = input["username"].string_or(entry["username"].string()); !name.empty()) keys.set("eks:username", {name});
      keys.set("eks:accessEntryType", {input["type"].string_or("STANDARD")});
    }
    if (!principal.empty()) keys.set("eks:principalArn", {principal});
    if (auto done = call_.allow("eks:" + operation, path.size() > 3 && entries ? access_arn(principal) : arn, keys); !done) return std::unexpected(done.error());
    if (path[1] != cluster_.name) return not_found(fmt::format("No cluster found for name: {}.", cut(path[1], 100)));
    if (operation == "DescribeCluster") return EksAnswer{200, Json::object({{"cluster", picture()}})};
    if (operation == "ListAddons") return EksAnswer{200, Json::object({{"addons", Json::array()}})};
    if (operation == "DescribeAddon") return not_found(fmt::format("No addon: {} found in cluster: {}", cut(path[3], 100), cluster_.name));
    if (operation == "ListAccessEntries") return list_entries();
    if (operation == "CreateAccessEntry") return create_entry(input);
    return one_entry(operation, principal, input);
  }

 private:
  std::string access_arn(const std::string& principal) const {
    // In EKS: access-entry/CLUSTER/TYPE/ACCOUNT/NAME/UUID.
    const bool role = principal.find(":role/") != std::string::npos;
    return fmt::format("arn:aws:eks:{}:{}:access-entry/{}/{}/{}/{}/{}", call_.site.region, call_.site.account, cluster_.name, role ? "role" : "user", call_.site.account, principal.substr(principal.rfind('/') + 1), hex(sha256(principal)).substr(0, 12));
  }

  Json picture() const {
    Json identity = Json::object();
    if (!cluster_.issuer.empty()) identity.set("oidc", Json::object({{"issuer", cluster_.issuer}}));
    return Json::object({{"name", cluster_.name}, {"identity", std::move(identity)}, {"arn", eks_arn(call_.site, cluster_.name)}, {"createdAt", epoch(cluster_.created)}, {"version", cluster_.version}, {"endpoint", cluster_.endpoint}, {"status", "ACTIVE"},
                         {"certificateAuthority", Json::object({{"data", base64(cluster_.ca_pem)}})}, {"accessConfig", Json::object({{"authenticationMode", cluster_.authentication_mode}})}, {"tags", Json::object()}});
  }

  Answer<EksAnswer> list_clusters() {
    if (auto done = call_.allow("eks:ListClusters", "*"); !done) return std::unexpected(done.error());
    return EksAnswer{200, Json::object({{"clusters", Json::array({Json(cluster_.name)})}})};
  }

  Json entry_picture(const Json& object) const {
    const Identity identity = read_identity(object, call_.site, {});
    Json groups = Json::array();
    for (const std::string& group : identity.access_entry->groups) groups.push(group);
    const bool role = identity.type == api::identities::Type::Role;
    const std::string fallback = role ? fmt::format("arn:aws:sts::{}:assumed-role/{}/{{{{SessionName}}}}", call_.site.account, identity.name) : identity.arn;
    return Json::object({{"clusterName", cluster_.name}, {"principalArn", identity.arn}, {"kubernetesGroups", std::move(groups)}, {"accessEntryArn", access_arn(identity.arn)}, {"createdAt", epoch(created_at(object))}, {"modifiedAt", epoch(created_at(object))}, {"tags", Json::object()},
                         {"username", identity.access_entry->username.empty() ? fallback : identity.access_entry->username}, {"type", "STANDARD"}});
  }

  Answer<Json> body() const {
    auto json = kube::parse_json(request_.body.empty() ? "{}" : request_.body, {.depth_limit = 16});
    if (!json || !json->is_object()) return bad("the body is no JSON object");
    return std::move(*json);
  }

  // Of kubernetesGroups and username, what is given.
  Answer<Json> entry_of(const Json& identity, const Json& input, Json entry) const {
    if (const Json& groups = input["kubernetesGroups"]; !groups.is_null()) {
      if (!groups.is_array() || groups.items().size() > most_groups) return bad(fmt::format("kubernetesGroups: a list of at most {} names", most_groups));
      for (const Json& group : groups.items())
        if (!group.is_string() || is_reserved_name(group.string()) || group.string().size() > 253) return bad(fmt::format("The kubernetes group name {} is invalid, it cannot start with any of [system:, eks:, aws:, amazon:, iam:, kubeadm:, fairlead:]", cut(kube::print_json(group), 100)));
      entry.set("groups", groups);
    }
    if (const Json& name = input["username"]; !name.is_null()) {
      if (!name.is_string() || is_reserved_name(name.string()) || name.string().size() > 253) return bad("The username is invalid: it cannot start with any of [system:, eks:, aws:, amazon:, iam:, kubeadm:, fairlead:]");
      if (const std::string why = problem_of_username(name.string(), identity["spec"]["type"].string() == "Role"); !why.empty()) return bad("The username is invalid: " + why);
      entry.set("username", name);
    }
    for (const auto& [name, value] : input.members())
      if (name != "kubernetesGroups" && name != "username" && name != "principalArn" && name != "clientRequestToken" && !(name == "type" && value.string() == "STANDARD") && !value.is_null()) return bad(fmt::format("{} is not served here", cut(name, 100)));
    return entry;
  }

  Answer<Json> identity_of(const std::string& principal) const {
    const auto object = object_of(principal, call_.site);
    auto there = object ? api_.get(api::identities::identities, {"", *object}) : Result<Json>(fail(Code::NotFound, ""));
    if (!there && there.error().code != Code::NotFound) return std::unexpected(aws_error(there.error(), "read identity"));
    if (!there || identity_arn(*there, call_.site) != principal) return bad(fmt::format("The specified principalArn is invalid: invalid principal: {}", cut(principal, 256)));
    return std::move(*there);
  }

  Answer<EksAnswer> create_entry(const Json& input) {
    const std::string& principal = input["principalArn"].string();
    if (principal.empty()) return bad("principalArn is missing");
    auto identity = identity_of(principal);
    if (!identity) return std::unexpected(identity.error());
    if ((*identity)["spec"].has("accessEntry")) return refuse("ResourceInUseException", "The specified access entry resource is already in use on this cluster.", 409);
    auto entry = entry_of(*identity, input, Json::object());
    if (!entry) return std::unexpected(entry.error());
    identity->child("spec").set("accessEntry", std::move(*entry));
    return write(std::move(*identity), true);
  }

  Answer<EksAnswer> write(Json identity, bool told) const {
    const auto done = api_.update(api::identities::identities, identity);
    if (!done && done.error().code == Code::Conflict) return refuse("ResourceInUseException", "it was changed at the same time; try again", 409);
    if (!done) return std::unexpected(aws_error(done.error(), "change identity"));
    return EksAnswer{200, told ? Json::object({{"accessEntry", entry_picture(*done)}}) : Json::object()};
  }

  Answer<EksAnswer> list_entries() {
    const auto objects = api_.list(api::identities::identities, "");
    if (!objects) return std::unexpected(aws_error(objects.error(), "list identities"));
    std::vector<Entry> entries;
    for (const Json& object : objects->items)
      if (object["spec"].has("accessEntry")) {
        const std::string arn = identity_arn(object, call_.site);
        entries.push_back({.name = arn, .id = arn, .created = {}, .status = {}, .cluster = {}});
      }
    Json question = Json::object({{"SortBy", "Name"}});
    std::int64_t most = 100;
    const auto asked = http::find(request_.target.query, "maxResults");
    if (!asked.empty() && (std::from_chars(asked.data(), asked.data() + asked.size(), most).ptr != asked.data() + asked.size() || most < 1 || most > 100)) return bad("maxResults: 1 to 100");
    question.set("MaxResults", most);
    if (const auto token = http::find(request_.target.query, "nextToken"); !token.empty()) question.set("NextToken", std::string(token));
    auto page = page_of(std::move(entries), question, [](const Entry& one) { return Json(one.name); });
    if (!page) return bad(page.error().message);
    Json out = Json::object({{"accessEntries", std::move(page->items)}});
    if (!page->next.empty()) out.set("nextToken", page->next);
    return EksAnswer{200, std::move(out)};
  }

  Answer<EksAnswer> one_entry(const std::string& operation, const std::string& principal, const Json& input) {
    auto identity = identity_of(principal);
    // What could not be read is not told to be gone.
    if (!identity && identity.error().code != "InvalidParameterException") return std::unexpected(identity.error());
    if (!identity || !(*identity)["spec"].has("accessEntry")) return not_found(fmt::format("The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'."));
    if (operation == "DescribeAccessEntry") return EksAnswer{200, Json::object({{"accessEntry", entry_picture(*identity)}})};
    if (operation == "DeleteAccessEntry") {
      identity->child("spec").erase("accessEntry");
      return write(std::move(*identity), false);
    }
    if (operation == "ListAssociatedAccessPolicies") {
      Json list = Json::array();
      for (const Json& one : (*identity)["spec"]["accessEntry"]["policies"].items()) list.push(policy_picture(one));
      return EksAnswer{200, Json::object({{"clusterName", cluster_.name}, {"principalArn", principal}, {"associatedAccessPolicies", std::move(list)}})};
    }
    if (operation == "AssociateAccessPolicy") return associate(std::move(*identity), principal, input);
    if (operation == "DisassociateAccessPolicy") return dissociate(std::move(*identity), request_.target.segments[5]);
    auto entry = entry_of(*identity, input, (*identity)["spec"]["accessEntry"]);
    if (!entry) return std::unexpected(entry.error());
    identity->child("spec").set("accessEntry", std::move(*entry));
    return write(std::move(*identity), true);
  }

  Answer<EksAnswer> list_policies() const {
    if (auto done = call_.allow("eks:ListAccessPolicies", "*"); !done) return std::unexpected(done.error());
    Json out = Json::array();
    for (const AccessPolicy& one : access_policies()) out.push(Json::object({{"name", one.name}, {"arn", one.arn()}}));
    return EksAnswer{200, Json::object({{"accessPolicies", std::move(out)}})};
  }

  static Json policy_picture(const Json& one) {
    const bool whole = one["namespaces"].is_null();
    const auto time = [&](const char* field) { return epoch(parse_time(one[field].string()).value_or(Instant{})); };
    return Json::object({{"policyArn", one["policyArn"]}, {"accessScope", Json::object({{"type", whole ? "cluster" : "namespace"}, {"namespaces", whole ? Json::array() : one["namespaces"]}})}, {"associatedAt", time("associatedAt")}, {"modifiedAt", time("modifiedAt")}});
  }

  // Namespaces of a scope; none: the whole cluster.
  static Answer<std::vector<std::string>> read_scope(const Json& scope) {
    const std::string& type = scope["type"].string();
    const Json& names = scope["namespaces"];
    if (type == "cluster") return names.items().empty() ? Answer<std::vector<std::string>>(std::vector<std::string>()) : bad("accessScope: namespaces are for a scope of type namespace");
    if (type != "namespace") return bad("accessScope: type is cluster or namespace");
    if (!names.is_array() || names.items().empty() || names.items().size() > most_namespaces) return bad(fmt::format("accessScope: 1 to {} namespaces are expected", most_namespaces));
    std::vector<std::string> out;
    for (const Json& one : names.items()) {
      if (!is_kubernetes_name(one.string(), 63, false)) return bad(fmt::format("accessScope: {} is no name of a namespace (patterns are not served)", cut(kube::print_json(one), 100)));
      out.push_back(one.string());
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  Answer<EksAnswer> associate(Json identity, const std::string& principal, const Json& input) {
    for (const auto& [name, value] : input.members())
      if (name != "policyArn" && name != "accessScope" && !value.is_null()) return bad(fmt::format("{} is not served here", cut(name, 100)));
    const std::string& arn = input["policyArn"].string();
    const AccessPolicy* policy = find_access_policy(arn);
    if (policy == nullptr) return bad(fmt::format("The policyArn parameter format is not valid, or there is no such policy here: {}; list-access-policies tells which there are", cut(arn, 200)));
    auto spaces = read_scope(input["accessScope"]);
    if (!spaces) return std::unexpected(spaces.error());
    if (auto done = check_offered(api_, *policy, *spaces); !done) return std::unexpected(done.error());
    const std::string now = print_time(std::chrono::floor<std::chrono::seconds>(call_.now));
    Json one = Json::object({{"policyArn", arn}, {"associatedAt", now}, {"modifiedAt", now}}), list = Json::array();
    if (!spaces->empty()) {
      Json names = Json::array();
      for (const std::string& space : *spaces) names.push(space);
      one.set("namespaces", std::move(names));
    }
    for (const Json& other : identity["spec"]["accessEntry"]["policies"].items()) {
      if (other["policyArn"].string() == arn) one.set("associatedAt", other["associatedAt"]);
      else list.push(other);
    }
    list.push(one);
    if (list.items().size() > most_policies) return bad(fmt::format("an access entry has at most {} access policies", most_policies));
    identity.child("spec").child("accessEntry").set("policies", std::move(list));
    if (auto done = write(std::move(identity), false); !done) return done;
    return EksAnswer{200, Json::object({{"clusterName", cluster_.name}, {"principalArn", principal}, {"associatedAccessPolicy", policy_picture(one)}})};
  }

  Answer<EksAnswer> dissociate(Json identity, const std::string& arn) {
    Json list = Json::array();
    const auto& before = identity["spec"]["accessEntry"]["policies"].items();
    for (const Json& one : before)
      if (one["policyArn"].string() != arn) list.push(one);
    if (list.items().size() == before.size()) return not_found(fmt::format("No associated policy {} found for the access entry", cut(arn, 200)));
    identity.child("spec").child("accessEntry").set("policies", std::move(list));
    return write(std::move(identity), false);
  }

  const http::Request& request_;
  const Call& call_;
  kube::KubeApi& api_;
  const EksCluster& cluster_;
};

}  // namespace

std::string eks_arn(const Site& site, const std::string& cluster) { return fmt::format("arn:aws:eks:{}:{}:cluster/{}", site.region, site.account, cluster); }

std::string eks_operation(const http::Request& request) {
  const auto& path = request.target.segments;
  const std::string& method = request.method;
  if (path.size() == 1 && path[0] == "access-policies") return method == "GET" ? "ListAccessPolicies" : "";
  if (path.empty() || path[0] != "clusters") return "";
  const bool get = method == "GET", post = method == "POST";
  if (path.size() == 1) return get ? "ListClusters" : "";
  if (path.size() == 2) return get ? "DescribeCluster" : "";
  if (const std::string operation = association_operation(request); !operation.empty()) return operation;
  if (path[2] == "addons") return !get ? "" : path.size() == 3 ? "ListAddons" : path.size() == 4 ? "DescribeAddon" : "";
  if (path[2] != "access-entries") return "";
  if (path.size() == 3) return get ? "ListAccessEntries" : post ? "CreateAccessEntry" : "";
  if (path.size() == 4) return get ? "DescribeAccessEntry" : post ? "UpdateAccessEntry" : method == "DELETE" ? "DeleteAccessEntry" : "";
  if (path.size() == 5 && path[4] == "access-policies") return get ? "ListAssociatedAccessPolicies" : post ? "AssociateAccessPolicy" : "";
  if (path.size() == 6 && path[4] == "access-policies") return method == "DELETE" ? "DisassociateAccessPolicy" : "";
  return "";
}

Answer<EksAnswer> answer_eks(const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster) { return Eks(request, call, api, cluster).run(); }

}  // namespace fairlead::hyperpod
