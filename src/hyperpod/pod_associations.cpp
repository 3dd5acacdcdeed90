// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/pod_associations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "api/pod_identity.h"
#include "base/encoding.h"
#include "hyperpod/entity.h"
#include "hyperpod/paging.h"
#include "hyperpod/trust.h"

namespace fairlead::hyperpod {
namespace {

namespace names = api::pod_identity;

constexpr const char* service = "pods.eks.amazonaws.com";
constexpr std::chrono::hours longest_life{6};  // as EKS has it; a role's own limit may be shorter
constexpr std::size_t most_tags = 50;

std::unexpected<AwsError> not_found(const std::string& what) { return refuse("ResourceNotFoundException", what, 404); }
std::unexpected<AwsError> bad(const std::string& why) { return refuse("InvalidParameterException", why); }

std::string id_of(const Json& object) { return "a-" + hex(sha256(kube::uid_of(object))).substr(0, 17); }

// What stops pods from having this role; empty: nothing. Both actions, as EKS asks of a trust policy.
std::string why_not(const Identity& role, const std::string& cluster_arn, const Site& site, Instant now) {
  for (const char* const action : {"sts:AssumeRole", "sts:TagSession"}) {
    iam::Keys keys;
    keys.set("aws:SourceArn", {cluster_arn});
    if (const std::string why = why_not_trusted(role, service, action, std::move(keys), site, now); !why.empty()) return fmt::format("{} of {}: {}", action, service, why);
  }
  return "";
}

class Associations {
 public:
  Associations(const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster) : request_(request), call_(call), api_(api), cluster_(cluster), path_(request.target.segments) {}

  Answer<EksAnswer> run(const std::string& operation) {
    const bool one = path_.size() > 3;
    Json input = Json::object();
    if (request_.method == "POST") {
      auto read = kube::parse_json(request_.body.empty() ? "{}" : request_.body, {.depth_limit = 16});
      if (!read || !read->is_object()) return bad("the body is no JSON object");
      input = std::move(*read);
    }
    const std::string resource = one ? arn_of_id(path_[3]) : eks_arn(call_.site, path_[1]);
    iam::Keys keys;
    Tags tags;
    // What is asked about it may depend on its tags; whether it is there is told to those alone who may.
    auto there = one ? by_id(path_[3]) : Answer<Json>(not_found(""));
    if (there) keys = tag_keys({}, tags_of(*there));
    if (operation == "CreatePodIdentityAssociation") {
      for (const auto& [key, value] : input["tags"].members()) tags[key] = value.string();
      keys = tag_keys(tags, {});
    }
    keys.set("eks:clusterName", {path_[1]});
    if (auto done = call_.allow("eks:" + operation, resource, keys); !done) return std::unexpected(done.error());
    if (path_[1] != cluster_.name) return not_found(fmt::format("No cluster found for name: {}.", cut(path_[1], 100)));
    if (operation == "ListPodIdentityAssociations") return list();
    if (operation == "CreatePodIdentityAssociation") return create(input, tags, keys);
    if (!there) return std::unexpected(there.error());
    if (operation == "DescribePodIdentityAssociation") return EksAnswer{200, Json::object({{"association", picture(*there)}})};
    if (operation == "DeletePodIdentityAssociation") {
      const auto done = api_.remove(names::associations, kube::key_of(*there), {.grace_seconds = {}, .uid = kube::uid_of(*there), .resource_version = {}});
      if (!done && done.error().code != Code::NotFound) return std::unexpected(aws_error(done.error(), operation));
      return EksAnswer{200, Json::object({{"association", picture(*there)}})};
    }
    return update(std::move(*there), input);
  }

 private:
  std::string arn_of_id(const std::string& id) const { return fmt::format("arn:aws:eks:{}:{}:podidentityassociation/{}/{}", call_.site.region, call_.site.account, path_[1], id); }

  Json picture(const Json& object) const {
    const Json& spec = object["spec"];
    Json tags = Json::object();
    for (const auto& [key, value] : tags_of(object)) tags.set(key, value);
    const std::string changed = object["metadata"]["annotations"][changer_note].string();
    const auto change = kube::parse_json(changed.empty() ? "{}" : changed);
    const Instant modified = change ? parse_time((*change)["Time"].string()).value_or(created_at(object)) : created_at(object);
    return Json::object({{"clusterName", cluster_.name}, {"namespace", spec["namespace"]}, {"serviceAccount", spec["serviceAccount"]}, {"roleArn", spec["roleArn"]}, {"associationArn", arn_of_id(id_of(object))}, {"associationId", id_of(object)}, {"tags", std::move(tags)},
                         {"createdAt", epoch(created_at(object))}, {"modifiedAt", epoch(modified)}, {"disableSessionTags", spec["disableSessionTags"].boolean()}});
  }

  Answer<Json> by_id(const std::string& id) const {
    auto all = api_.list(names::associations, "");
    if (!all) return std::unexpected(aws_error(all.error(), "list associations"));
    for (Json& one : all->items)
      if (id_of(one) == id && meant(one)) return std::move(one);
    return not_found(fmt::format("No association found for ID: {}", cut(id, 100)));
  }
  static bool meant(const Json& object) { return kube::name_of(object) == names::association_name(object["spec"]["namespace"].string(), object["spec"]["serviceAccount"].string()); }

  // He hands this role to pods: he has to be allowed to, and the role has to let the service have it.
  Answer<void> check_role(const std::string& arn) const {
    const auto object = role_object(arn, call_.site);
    const auto role = object ? api_.get(api::identities::identities, {"", *object}) : Result<Json>(fail(Code::NotFound, ""));
    Tags tags;
    if (role)
      for (const Json& tag : (*role)["spec"]["tags"].items()) tags[tag["key"].string()] = tag["value"].string();
    iam::Keys keys = tag_keys({}, tags);
    keys.set("iam:PassedToService", {service});
    if (auto done = call_.allow("iam:PassRole", arn, keys); !done) return done;
    if (!role && role.error().code != Code::NotFound) return std::unexpected(aws_error(role.error(), "read role"));
    if (!role || identity_arn(*role, call_.site) != arn) return bad(fmt::format("Role provided in the request does not exist: {}", cut(arn, 256)));
    Json trusted = *role;
    trusted.child("spec").erase("attachedPolicies");  // who may have it is asked, not what it may do
    const std::string why = why_not(read_identity(trusted, call_.site, {}), eks_arn(call_.site, cluster_.name), call_.site, call_.now);
    if (!why.empty())
      return bad(fmt::format("Trust policy of role is not valid for EKS Pod Identity ({}): add {{\"Effect\": \"Allow\", \"Principal\": {{\"Service\": \"{}\"}}, \"Action\": [\"sts:AssumeRole\", \"sts:TagSession\"]}} to the trust policy of {}", why, service, cut(arn, 256)));
    return {};
  }

  Answer<void> check_members(const Json& input, std::initializer_list<std::string_view> served) const {
    for (const auto& [name, value] : input.members())
      if (!value.is_null() && std::find(served.begin(), served.end(), name) == served.end())
        return bad(fmt::format("{} is not served here{}", cut(name, 100), name == "targetRoleArn" ? ": give the role of this account the rights itself, or let the program assume the other role" : ""));
    if (!input["disableSessionTags"].is_null() && !input["disableSessionTags"].is_bool()) return bad("disableSessionTags: true or false is expected");
    if (!input["roleArn"].is_null() && !input["roleArn"].is_string()) return bad("roleArn: an ARN is expected");
    return {};
  }

  Answer<EksAnswer> create(const Json& input, const Tags& tags, const iam::Keys& keys) {
    if (auto done = check_members(input, {"namespace", "serviceAccount", "roleArn", "clientRequestToken", "tags", "disableSessionTags"}); !done) return std::unexpected(done.error());
    const std::string &space = input["namespace"].string(), &account = input["serviceAccount"].string(), &role = input["roleArn"].string();
    if (!is_kubernetes_name(space, 63, false)) return bad("namespace: the name of a Kubernetes namespace is expected");
    if (!is_kubernetes_name(account, 253, true)) return bad("serviceAccount: the name of a Kubernetes service account is expected");
    if (role.empty()) return bad("roleArn is missing");
    if (tags.size() > most_tags) return bad(fmt::format("tags: {} at most", most_tags));
    if (auto done = check_case(tags); !done) return bad(done.error().message);
    for (const auto& [key, value] : tags)
      if (key.empty() || key.size() > 128 || value.size() > 256 || iam::lower(key).starts_with("aws:")) return bad(fmt::format("tags: {} is no tag", cut(key, 128)));
    if (!tags.empty())
      if (auto done = call_.allow("eks:TagResource", arn_of_id("*"), keys); !done) return std::unexpected(done.error());
    if (auto done = check_role(role); !done) return std::unexpected(done.error());
    Json object = Json::object({{"apiVersion", names::associations.api_version()}, {"kind", names::associations.kind}, {"metadata", Json::object({{"name", names::association_name(space, account)}})}, {"spec", Json::object({{"namespace", space}, {"serviceAccount", account}, {"roleArn", role}, {"disableSessionTags", input["disableSessionTags"].boolean()}})}});
    set_tags(object, tags);
    note(object, maker_note, kube::print_json(as_context(call_)));
    // An SDK that got no answer asks again with the same token: it is told what it has made.
    const std::string token = hex(sha256(call_.who.arn + "\n" + input["clientRequestToken"].string() + "\n" + role)).substr(0, 32);
    if (!input["clientRequestToken"].string().empty()) note(object, "fairlead.dev/aws-client-token", token);
    const auto made = api_.create(names::associations, object);
    if (made) return EksAnswer{200, Json::object({{"association", picture(*made)}})};
    if (made.error().code != Code::Exists) return std::unexpected(aws_error(made.error(), "CreatePodIdentityAssociation"));
    const auto there = api_.get(names::associations, kube::key_of(object));
    if (there && !input["clientRequestToken"].string().empty() && (*there)["metadata"]["annotations"]["fairlead.dev/aws-client-token"].string() == token) return EksAnswer{200, Json::object({{"association", picture(*there)}})};
    return refuse("ResourceInUseException", fmt::format("Association already exists: {}", there ? id_of(*there) : "of this service account"), 409);
  }

  Answer<EksAnswer> update(Json object, const Json& input) {
    if (auto done = check_members(input, {"roleArn", "clientRequestToken", "disableSessionTags"}); !done) return std::unexpected(done.error());
    if (input["roleArn"].is_string()) {
      if (auto done = check_role(input["roleArn"].string()); !done) return std::unexpected(done.error());
      object.child("spec").set("roleArn", input["roleArn"]);
    }
    if (input["disableSessionTags"].is_bool()) object.child("spec").set("disableSessionTags", input["disableSessionTags"]);
    note(object, changer_note, kube::print_json(as_context(call_).set("Time", print_time(call_.now))));
    const auto done = api_.update(names::associations, object);
    if (!done && done.error().code == Code::Conflict) return refuse("ResourceInUseException", "it was changed at the same time; try again", 409);
    if (!done) return std::unexpected(aws_error(done.error(), "UpdatePodIdentityAssociation"));
    return EksAnswer{200, Json::object({{"association", picture(*done)}})};
  }

  Answer<EksAnswer> list() const {
    const auto all = api_.list(names::associations, "");
    if (!all) return std::unexpected(aws_error(all.error(), "list associations"));
    const auto& query = request_.target.query;
    const std::string space(http::find(query, "namespace")), account(http::find(query, "serviceAccount"));
    std::vector<Entry> rows;
    for (std::size_t i = 0; i < all->items.size(); ++i) {
      const Json& spec = all->items[i]["spec"];
      if (!meant(all->items[i]) || (!space.empty() && spec["namespace"].string() != space) || (!account.empty() && spec["serviceAccount"].string() != account)) continue;
      rows.push_back({.name = spec["namespace"].string() + "/" + spec["serviceAccount"].string(), .id = id_of(all->items[i]), .created = {}, .status = {}, .cluster = {}, .at = i});
    }
    std::int64_t most = 100;
    const auto asked = http::find(query, "maxResults");
    if (!asked.empty() && (std::from_chars(asked.data(), asked.data() + asked.size(), most).ptr != asked.data() + asked.size() || most < 1 || most > 100)) return bad("maxResults: 1 to 100");
    Json question = Json::object({{"SortBy", "Name"}, {"MaxResults", most}, {"of", space + "/" + account}});
    if (const auto token = http::find(query, "nextToken"); !token.empty()) question.set("NextToken", std::string(token));
    auto page = page_of(std::move(rows), question, [&](const Entry& one) {
      const Json& spec = all->items[one.at]["spec"];
      return Json::object({{"clusterName", cluster_.name}, {"namespace", spec["namespace"]}, {"serviceAccount", spec["serviceAccount"]}, {"associationArn", arn_of_id(one.id)}, {"associationId", one.id}});
    });
    if (!page) return bad(page.error().message);
    Json out = Json::object({{"associations", std::move(page->items)}});
    if (!page->next.empty()) out.set("nextToken", page->next);
    return EksAnswer{200, std::move(out)};
  }

  const http::Request& request_;
  const Call& call_;
  kube::KubeApi& api_;
  const EksCluster& cluster_;
  const std::vector<std::string>& path_;
};

// "eks-CLUSTER-POD-...", of the letters and the length that session names have.
std::string session_name(const std::string& cluster, const AccountToken& who) {
  const auto fit = [](std::string text, std::size_t most) {
    text.resize(std::min(text.size(), most));
    return text;
  };
  std::string out = fmt::format("eks-{}-{}-{}", fit(cluster, 20), fit(who.pod.empty() ? who.account : who.pod, 26), hex(sha256(who.pod_uid + who.subject())).substr(0, 8));
  for (char& c : out)
    if (!api::identities::is_name(std::string_view(&c, 1))) c = '-';
  return out;
}

}  // namespace

bool is_kubernetes_name(std::string_view name, std::size_t most, bool dots) {
  const auto plain = [&](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || (dots && c == '.'); };
  return !name.empty() && name.size() <= most && std::all_of(name.begin(), name.end(), plain) && name.front() != '-' && name.back() != '-' && name.front() != '.' && name.back() != '.';
}

std::string association_operation(const http::Request& request) {
  const auto& path = request.target.segments;
  const std::string& method = request.method;
  if (path.size() < 3 || path[0] != "clusters" || path[2] != "pod-identity-associations") return "";
  if (path.size() == 3) return method == "GET" ? "ListPodIdentityAssociations" : method == "POST" ? "CreatePodIdentityAssociation" : "";
  if (path.size() == 4) return method == "GET" ? "DescribePodIdentityAssociation" : method == "POST" ? "UpdatePodIdentityAssociation" : method == "DELETE" ? "DeletePodIdentityAssociation" : "";
  return "";
}

Answer<EksAnswer> answer_association(const std::string& operation, const http::Request& request, const Call& call, kube::KubeApi& api, const EksCluster& cluster) { return Associations(request, call, api, cluster).run(operation); }

Result<std::optional<Json>> find_association(kube::KubeApi& api, const std::string& space, const std::string& account) {
  auto there = api.get(names::associations, {"", names::association_name(space, account)});
  if (!there && there.error().code == Code::NotFound) return std::optional<Json>();
  if (!there) return std::unexpected(std::move(there.error()));
  if ((*there)["spec"]["namespace"].string() != space || (*there)["spec"]["serviceAccount"].string() != account) return std::optional<Json>();
  return std::optional<Json>(std::move(*there));
}

Answer<PodSession> container_credentials(std::string_view token, const ReviewToken& review, const FindAssociation& find, const Directory& directory, const SessionSeal& seal, const std::string& cluster, Instant now) {
  const Site& site = directory.site();
  if (token.empty() || token.size() > most_account_token_bytes) return refuse("AccessDeniedException", "the token of the pod is expected in the Authorization header");
  const auto who = review(token, names::container_audience);
  if (!who) return std::unexpected(who.error());
  const auto association = find(who->space, who->account);
  if (!association) return refuse("ServiceUnavailableException", "the associations of service accounts cannot be read; try again", 503);
  if (!*association) return refuse("AccessDeniedException", fmt::format("service account {}/{} has no pod identity association", who->space, who->account));
  const Json& spec = (**association)["spec"];
  const std::string& arn = spec["roleArn"].string();
  const auto object = role_object(arn, site);
  const auto role = object ? directory.identity(*object) : nullptr;
  if (!role || role->arn != arn) return refuse("AccessDeniedException", fmt::format("the role of the association of {}/{} does not exist: {}", who->space, who->account, cut(arn, 256)));
  const std::string cluster_arn = eks_arn(site, cluster);
  if (const std::string why = why_not(*role, cluster_arn, site, now); !why.empty()) return refuse("AccessDeniedException", fmt::format("{} may not be had by pods: {}", arn, why));
  Session session{.role = {}, .role_id = {}, .name = session_name(cluster, *who), .key_id = {}, .secret = {}, .policies = {}, .issued = now, .expires = std::chrono::floor<std::chrono::seconds>(now) + std::min<std::chrono::seconds>(longest_life, role->longest_session)};
  if (!spec["disableSessionTags"].boolean()) {
    session.tags = {{"eks-cluster-arn", cluster_arn}, {"eks-cluster-name", cluster}, {"kubernetes-namespace", who->space}, {"kubernetes-service-account", who->account}};
    if (!who->pod.empty()) session.tags.emplace_back("kubernetes-pod-name", who->pod);
    if (!who->pod_uid.empty()) session.tags.emplace_back("kubernetes-pod-uid", who->pod_uid);
  }
  const auto made = open_session(*role, std::move(session), seal);
  if (!made) return std::unexpected(made.error());
  const Session& of = made->session;
  return PodSession{.body = Json::object({{"AccessKeyId", of.key_id}, {"SecretAccessKey", of.secret}, {"Token", made->token}, {"AccountId", site.account}, {"Expiration", print_time(of.expires)}}), .arn = session_arn(*role, of.name, site), .user_id = who->issuer + ":" + who->audience + ":" + who->subject()};
}

}  // namespace fairlead::hyperpod
