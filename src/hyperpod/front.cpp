// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/front.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/node_identity.h"
#include "api/pod_identity.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "hyperpod/cloudformation.h"
#include "hyperpod/ec2.h"
#include "hyperpod/eks.h"
#include "hyperpod/eks_token.h"
#include "hyperpod/iam_service.h"
#include "hyperpod/kms.h"
#include "hyperpod/logs.h"
#include "hyperpod/pod_associations.h"
#include "hyperpod/query_protocol.h"
#include "hyperpod/s3.h"
#include "hyperpod/secrets_manager.h"
#include "hyperpod/sns.h"
#include "hyperpod/sts.h"
#include "hyperpod/text.h"
#include "iam/simulate.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::string_view target_prefix = "SageMaker.";
constexpr const char* json_type = "application/x-amz-json-1.1";
constexpr std::size_t most_review_bytes = 32 << 10;
constexpr std::size_t most_exchange_bytes = 32 << 10;  // of a form with a token, or of the headers that matter
constexpr double exchanges_per_second = 50;            // of tokens, from one bucket of addresses: each asks the API
constexpr std::size_t exchange_buckets = 256;
constexpr double documents_per_second = 2;             // of one node
constexpr int most_exchanges = 6;                      // at once: others have workers left, however slow the API answers
constexpr std::size_t most_told = 1024;     // of each text in the audit
constexpr double nobodys_per_second = 20;   // refusals of nobody that the audit is told of; the rest is counted

const std::vector<std::string_view> known_services{"sagemaker", "sts", "iam", "eks", "ec2", "s3", "ssm", "sns", "secretsmanager", "cloudformation", "logs", "kms"};

// For the audit; what a client makes up is not written down.
std::string source_of(const std::string& service) { return std::find(known_services.begin(), known_services.end(), service) == known_services.end() ? "unknown" : service + ".amazonaws.com"; }

// As EKS says it: a code in a header, and statuses of HTTP.
http::Response rest_error(const AwsError& error, const std::string& id) {
  int status = error.status;
  for (const char* const denied : {"UnrecognizedClientException", "InvalidSignatureException", "AccessDeniedException", "MissingAuthenticationTokenException", "ExpiredTokenException"})
    if (error.code == denied) status = 403;
  if (error.code == "ThrottlingException") status = 429;
  return {.status = status, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}, {"x-amzn-ErrorType", error.code}}, .body = kube::print_json(Json::object({{"message", error.message}})), .parts = {}};
}

bool speaks_query(std::string_view service) { return service == "sts" || service == "iam" || service == "cloudformation" || service == "sns" || service == "ec2"; }

// A null is as if it were not there; what comes after need not think of it.
Json without_nulls(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value.items()) out.push(without_nulls(item));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [name, part] : value.members())
    if (!part.is_null()) out.set(name, without_nulls(part));
  return out;
}

http::Response json_error(const AwsError& error, const std::string& id) {
  Json body = Json::object({{"__type", error.code}, {"message", error.message}, {"Message", error.message}});
  return {.status = error.status, .headers = {{"Content-Type", json_type}, {"x-amzn-RequestId", id}, {"x-amzn-ErrorType", error.code}}, .body = kube::print_json(body), .parts = {}};
}

http::Response error_of(const std::string& service, const AwsError& error, const std::string& id) { return speaks_query(service) ? query_error(service, error, id) : service == "eks" ? rest_error(error, id) : service == "s3" ? s3_error(error, "", id) : json_error(error, id); }

// Of a query or an Authorization header, unverified: it only chooses the form of the answer.
std::string service_of(const http::Request& request) {
  const auto signature = read_signature(request);
  if (signature) return signature->service;
  return http::find(request.headers, "x-amz-target").empty() && http::find(request.headers, "content-type").starts_with("application/x-www-form-urlencoded") ? "sts" : "sagemaker";
}

// Whom nobody has signed for, and who shows a token of his pod instead.
bool is_web_identity(const http::Request& request) {
  if (request.method != "POST" || request.target.path != "/" || !http::find(request.headers, "authorization").empty() || !http::find(request.headers, "content-type").starts_with("application/x-www-form-urlencoded")) return false;
  return request.body.starts_with("Action=AssumeRoleWithWebIdentity&") || request.body.find("&Action=AssumeRoleWithWebIdentity") != request.body.npos;
}
// Not a bucket "v1" of S3: that is signed.
bool is_credentials(const http::Request& request) { return request.target.path == api::pod_identity::credentials_path && request.method == "GET" && request.target.query.empty() && !http::find(request.headers, "authorization").starts_with("AWS4-"); }

// Not a bucket "v1" of S3: that is signed.
bool is_node_document(const http::Request& request) { return request.target.path == api::node_identity::document_path && request.method == "GET" && request.target.query.empty() && http::find(request.headers, "authorization").empty(); }

// As agents of EKS say it: SDKs show people the text.
http::Response credentials_error(const AwsError& error, const std::string& id) {
  int status = error.status;
  for (const char* const denied : {"AccessDeniedException", "InvalidIdentityToken", "ExpiredTokenException"})
    if (error.code == denied) status = 403;
  if (error.code == "ThrottlingException") status = 429;
  if (error.code == "IDPCommunicationError") status = 503;
  return {.status = status, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}, {"x-amzn-ErrorType", error.code}, {"Cache-Control", "no-store"}}, .body = kube::print_json(Json::object({{"code", error.code}, {"message", error.message}})), .parts = {}};
}

}  // namespace

struct Front::Said {
  std::string source = "sagemaker.amazonaws.com", name = "Unknown";
  std::string arn, user_id, key_id;
  bool role = false, web = false;  // web: a pod showed its token
  std::optional<AwsError> error;
};

iam::Call Call::question(std::string_view action, const std::string& resource, iam::Keys keys) const {
  // ARNs of buckets and of snapshots name no account: all are this site's.
  const bool unnamed = resource == "*" || resource.starts_with("arn:aws:s3:::") || resource.starts_with(fmt::format("arn:aws:ec2:{}::snapshot/", site.region));
  iam::Call out{.caller = {}, .action = std::string(action), .resource = resource, .resource_account = unnamed ? site.account : "", .keys = std::move(keys)};
  const bool role = who.identity->type == api::identities::Type::Role;
  out.caller = {.type = role ? iam::Caller::Type::Role : iam::Caller::Type::User, .arn = who.arn, .role_arn = role ? who.identity->arn : "", .role_guessed = false, .account = site.account};
  out.keys.set("aws:CurrentTime", {print_time(now)});
  out.keys.set("aws:EpochTime", {std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count())});
  out.keys.set("aws:SecureTransport", {tls ? "true" : "false"});
  out.keys.set("aws:RequestedRegion", {who.region});
  std::map<std::string, std::vector<std::string>> tags;  // keys of conditions know no case: two that differ in it are two values, of which nobody knows which is meant
  for (const auto& [key, value] : who.identity->tags) tags[iam::lower("aws:PrincipalTag/" + key)].push_back(value);
  if (who.session) {
    std::map<std::string, std::vector<std::string>> own;  // what the session brought goes before
    for (const auto& [key, value] : who.session->tags) own[iam::lower("aws:PrincipalTag/" + key)].push_back(value);
    for (auto& [key, values] : own) tags[key] = std::move(values);
    if (!who.session->provider.empty()) out.keys.set("aws:FederatedProvider", {who.session->provider});
  }
  for (auto& [key, values] : tags) out.keys.set(key, std::move(values));
  if (who.session) out.keys.set("aws:MultiFactorAuthPresent", {"false"});
  out.keys.set("aws:userid", {who.user_id});
  if (!source.empty()) out.keys.set("aws:SourceIp", {source});
  if (!agent.empty()) out.keys.set("aws:UserAgent", {agent});
  if (who.session) out.keys.set("aws:TokenIssueTime", {print_time(who.session->issued)});
  iam::fill_keys(out);
  return out;
}

Answer<void> Call::allow(std::string_view action, const std::string& resource, const iam::Keys& keys, const std::string& named) const {
  const iam::Call asked = question(action, resource, keys);
  const iam::Decision decision = iam::decide(asked, {.identity = who.identity->policies.get(), .boundary = who.identity->boundary.get(), .session = who.session_policies.get(), .resource = nullptr});
  if (decision.allowed()) return {};
  if (!named.empty()) return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: {} on resource: {}", who.arn, action, named));
  return refuse("AccessDeniedException", fmt::format("User: {} is not authorized to perform: {} on resource: {}: {}", who.arn, action, resource, decision.reason));
}

Front::Front(const Model& model, const Directory& directory, const SessionSeal& seal, Operations operations, const Clock& clock, FrontOptions options)
    : model_(model), directory_(directory), seal_(seal), operations_(std::move(operations)), clock_(clock), options_(std::move(options)) {}

Answer<Principal> Front::principal_of(const Signature& signature, std::string& secret) const {
  Principal out;
  out.key_id = signature.key_id;
  out.region = signature.region;
  const auto unknown = [] { return refuse("UnrecognizedClientException", "The security token included in the request is invalid."); };
  if (!signature.token.empty()) {
    auto session = seal_.open(signature.token);
    if (!session || session->key_id != signature.key_id) return unknown();
    if (clock_.now() >= session->expires) return refuse("ExpiredTokenException", "The security token included in the request is expired");
    out.identity = directory_.identity(session->role);
    if (!out.identity || out.identity->id != session->role_id) return unknown();
    secret = session->secret;
    if (!session->policies.empty()) {
      std::vector<iam::Document> documents;
      for (const std::string& text : session->policies) {
        auto policy = iam::read_policy(text, iam::PolicyKind::Identity);
        if (!policy) return unknown();
        documents.push_back({"session policy", std::move(*policy)});
      }
      out.session_policies = std::make_shared<const iam::Bundle>(std::move(documents), iam::PolicyKind::Identity);
    }
    out.arn = session_arn(*out.identity, session->name, directory_.site());
    out.user_id = out.identity->id + ":" + session->name;
    out.session = std::move(session);
  } else {
    auto key = directory_.key(signature.key_id);
    // One that is not active is told like one that does not exist, as AWS does.
    if (!key || !key->active || !key->who || key->who->type != api::identities::Type::User) return unknown();
    secret = std::move(key->secret);
    out.identity = std::move(key->who);
    out.arn = out.identity->arn;
    out.user_id = out.identity->id;
  }
  return out;
}

Answer<Principal> Front::authenticate(const http::Request& request, Said& said) const {
  const auto signature = read_signature(request);
  if (!signature) return std::unexpected(signature.error());
  said.key_id = signature->key_id;
  if (auto done = check_time(*signature, clock_.now()); !done) return std::unexpected(done.error());
  std::string secret;
  auto who = principal_of(*signature, secret);
  if (!who) return who;
  if (auto done = check_signature(*signature, request, secret); !done) return std::unexpected(done.error());
  said.arn = who->arn;
  said.user_id = who->user_id;
  said.role = who->session.has_value();
  if (who->identity->disabled) return refuse("AccessDeniedException", fmt::format("{} is disabled", who->identity->arn));
  if (!who->identity->problem.empty()) return refuse("AccessDeniedException", fmt::format("{} may do nothing until its Identity {} is mended: {}", who->identity->arn, who->identity->object, who->identity->problem));
  if (auto done = spend(who->identity->object, options_.per_second); !done) return std::unexpected(done.error());
  return who;
}

Answer<KubernetesUser> Front::kubernetes_user_of(std::string_view token) const {
  const auto request = read_eks_token(token, options_.eks_cluster);
  if (!request) return std::unexpected(request.error());
  const auto signature = read_signature(*request);
  if (!signature) return std::unexpected(signature.error());
  // kubectl keeps a token for 14 minutes, whatever the presigned request says of its own end.
  if (const Instant now = clock_.now(); signature->at - now > clock_window || now - signature->at > longest_eks_token) return refuse("ExpiredTokenException", "the token is older than 15 minutes, or a clock is wrong");
  std::string secret;
  const auto who = principal_of(*signature, secret);
  if (!who) return std::unexpected(who.error());
  if (auto done = check_signature(*signature, *request, secret); !done) return std::unexpected(done.error());
  if (who->identity->disabled || !who->identity->problem.empty()) return refuse("AccessDeniedException", who->identity->arn + " is disabled, or its Identity has to be mended");
  return kubernetes_user(*who);
}

Answer<void> Front::spend(const std::string& bucket_of, double per_second) const {
  if (per_second <= 0) return {};
  const auto now = clock_.monotonic();
  const double most = 2 * per_second;
  const std::lock_guard lock(buckets_mutex_);
  auto [at, fresh] = buckets_.try_emplace(bucket_of, Bucket{most, now});
  Bucket& bucket = at->second;
  bucket.tokens = std::min(most, bucket.tokens + per_second * std::chrono::duration<double>(now - bucket.at).count());
  bucket.at = now;
  if (bucket.tokens < 1) return refuse("ThrottlingException", "Rate exceeded");
  bucket.tokens -= 1;
  return {};
}

Call Front::call_of(const http::Request& request, const Principal& who, const std::string& id) const {
  const std::string_view invocation = http::find(request.headers, "amz-sdk-invocation-id"), signature = http::find(request.headers, "authorization");
  const std::string once = invocation.empty() && signature.empty() ? id : hex(sha256(fmt::format("{}\n{}", who.arn, invocation.empty() ? signature : invocation))).substr(0, 32);
  return {.who = who, .site = directory_.site(), .now = clock_.now(), .request_id = id, .source = request.peer.address, .agent = std::string(http::find(request.headers, "user-agent")).substr(0, 512), .tls = options_.tls, .invocation = std::string(invocation).substr(0, 128), .once = once};
}

Answer<Json> Front::sagemaker(const http::Request& request, const Call& call) const {
  const std::string_view target = http::find(request.headers, "x-amz-target");
  const std::string name(target.starts_with(target_prefix) ? target.substr(target_prefix.size()) : "");
  const Operation* operation = model_.operation(name);
  if (request.method != "POST" || operation == nullptr) return refuse("UnknownOperationException", fmt::format("X-Amz-Target \"{}\" is no operation of this service; clusters, nodes, scheduler policies, compute quotas, tags and training plans are", cut(std::string(target), 128)));
  if (!http::find(request.headers, "content-type").starts_with(json_type)) return refuse("SerializationException", fmt::format("Content-Type must be {}", json_type));
  auto body = kube::parse_json(request.body.empty() ? "{}" : request.body, {.depth_limit = 64});
  if (!body) return refuse("SerializationException", body.error().message);
  if (auto done = model_.check(model_.shape(operation->input), *body); !done) return std::unexpected(done.error());
  const auto found = operations_.find(name);
  if (found == operations_.end()) return refuse("UnknownOperationException", fmt::format("{} is not served yet by this version of Fairlead (docs/hyperpod-compatibility.md says what is)", name));
  return found->second(call, without_nulls(*body));
}

http::Response Front::answer_json(const http::Request& request, const std::string& id, Said& said) const {
  const std::string_view target = http::find(request.headers, "x-amz-target");
  if (target.starts_with(target_prefix) && model_.operation(target.substr(target_prefix.size())) != nullptr) said.name = target.substr(target_prefix.size());
  const auto who = authenticate(request, said);
  Answer<Json> answer = Json();
  if (!who) answer = std::unexpected(who.error());
  else answer = sagemaker(request, call_of(request, *who, id));
  if (answer) return {.status = 200, .headers = {{"Content-Type", json_type}, {"x-amzn-RequestId", id}}, .body = answer->is_null() ? "{}" : kube::print_json(*answer), .parts = {}};
  said.error = answer.error();
  return json_error(answer.error(), id);
}

http::Response Front::answer_service(const std::string& service, std::string_view prefix, bool (*known)(std::string_view operation), const Service& work, const http::Request& request, const std::string& id, Said& said) const {
  said.source = service + ".amazonaws.com";
  const std::string_view target = http::find(request.headers, "x-amz-target");
  const std::string operation(target.starts_with(prefix) ? target.substr(prefix.size()) : "");
  if (known(operation)) said.name = operation;
  Answer<Json> answer = Json();
  if (const auto who = authenticate(request, said); !who) {
    answer = std::unexpected(who.error());
  } else if (request.method != "POST" || !http::find(request.headers, "content-type").starts_with(json_type)) {
    answer = refuse("SerializationException", fmt::format("POST with Content-Type {} is expected", json_type));
  } else if (auto body = kube::parse_json(request.body.empty() ? "{}" : request.body, {.depth_limit = 8}); !body || !body->is_object()) {
    answer = refuse("SerializationException", "the body is no JSON object");
  } else {
    answer = work(operation, without_nulls(*body), call_of(request, *who, id));
  }
  if (answer) return {.status = 200, .headers = {{"Content-Type", json_type}, {"x-amzn-RequestId", id}, {"Cache-Control", "no-store"}}, .body = kube::print_json(*answer), .parts = {}};
  said.error = answer.error();
  return json_error(answer.error(), id);
}

http::Response Front::answer_query(const std::string& service, const http::Request& request, const std::string& id, Said& said) const {
  said.source = service + ".amazonaws.com";
  auto form = read_form(request);
  const std::string action(form ? http::find(*form, "Action") : "");
  if (service == "sts" ? is_sts_action(action) : service == "iam" ? is_iam_action(action) : service == "sns" ? is_sns_action(action) : service == "ec2" ? is_ec2_action(action) : is_cloudformation_action(action)) said.name = action;
  Answer<std::string> answer = std::string();
  if (!form) {
    answer = std::unexpected(form.error());
  } else if (const auto who = authenticate(request, said); !who) {
    answer = std::unexpected(who.error());
  } else {
    const Call call = call_of(request, *who, id);
    answer = service == "sts" ? answer_sts(action, *form, call, directory_, seal_) : service == "iam" ? options_.iam(action, *form, call) : service == "sns" ? options_.sns(action, *form, call) : service == "ec2" ? options_.ec2(action, *form, call) : options_.cloudformation(action, *form, call);
  }
  if (answer) return query_answer(service, action, *answer, id);
  said.error = answer.error();
  return query_error(service, answer.error(), id);
}

http::Response Front::busy(const http::Request& request, const std::string& why) {
  const AwsError error{"ServiceUnavailable", why, 503};
  return error_of(service_of(request), error, random_uuid());
}

http::Response Front::review_token(const http::Request& request, const std::string& id, Said& said) const {
  said.source = "eks.amazonaws.com";
  said.name = "ReviewToken";
  const auto answer = [&](int status, const Json& body) { return http::Response{.status = status, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}}, .body = kube::print_json(body), .parts = {}}; };
  const auto review = kube::parse_json(request.body, {.depth_limit = 16});
  if (request.method != "POST" || !review || (*review)["apiVersion"].string() != "authentication.k8s.io/v1" || (*review)["kind"].string() != "TokenReview") {
    said.error = AwsError{"ValidationException", "a TokenReview of authentication.k8s.io/v1 is posted"};
    return answer(400, Json::object({{"message", said.error->message}}));
  }
  const auto user = kubernetes_user_of((*review)["spec"]["token"].string());
  Json status = Json::object({{"authenticated", user.has_value()}});
  if (user) {
    said.arn = user->arn, said.user_id = user->uid, said.role = !user->session.empty();
    Json groups = Json::array();
    for (const std::string& group : user->groups) groups.push(group);
    Json extra = Json::object({{"arn", Json::array({Json(user->arn)})}});
    if (!user->session.empty()) extra.set("sessionName", Json::array({Json(user->session)}));
    status.set("user", Json::object({{"username", user->name}, {"uid", user->uid}, {"groups", std::move(groups)}, {"extra", std::move(extra)}}));
  } else {
    said.error = user.error();
    status.set("error", user.error().message);
  }
  return answer(200, Json::object({{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenReview"}, {"status", std::move(status)}}));
}

Answer<void> Front::spend_of_source(const http::Request& request) const { return spend(fmt::format("from {}", std::hash<std::string>()(request.peer.address) % exchange_buckets), exchanges_per_second); }

http::Response Front::answer_web_identity(const http::Request& request, const std::string& id, Said& said) const {
  said.source = "sts.amazonaws.com";
  said.name = web_identity_action;
  Answer<WebSession> answer;
  if (const auto form = read_form(request); !form) answer = std::unexpected(form.error());
  else if (const auto done = spend_of_source(request); !done) answer = std::unexpected(done.error());
  else answer = assume_with_web_identity(*form, options_.review_account, directory_, seal_, request.peer.address, clock_.now());
  if (answer) {
    said.arn = answer->arn, said.user_id = answer->user_id, said.web = true;
    return query_answer("sts", web_identity_action, answer->xml, id);
  }
  said.error = answer.error();
  return query_error("sts", answer.error(), id);
}

http::Response Front::answer_credentials(const http::Request& request, const std::string& id, Said& said) const {
  said.source = "eks-auth.amazonaws.com";
  said.name = "AssumeRoleForPodIdentity";
  Answer<PodSession> answer;
  if (const auto done = spend_of_source(request); !done) answer = std::unexpected(done.error());
  else answer = container_credentials(trim(http::find(request.headers, "authorization")), options_.review_account, options_.association, directory_, seal_, options_.eks_cluster, clock_.now());
  if (answer) {
    said.arn = answer->arn, said.user_id = answer->user_id, said.web = true;
    return {.status = 200, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}, {"Cache-Control", "no-store"}}, .body = kube::print_json(answer->body), .parts = {}};
  }
  said.error = answer.error();
  return credentials_error(answer.error(), id);
}

http::Response Front::answer_node(const http::Request& request, const std::string& id, Said& said) const {
  said.source = "sts.amazonaws.com";
  said.name = "AssumeRole";
  Answer<NodeDocument> answer;
  if (const auto done = spend("node " + node_of(request.peer) + " " + request.peer.key, documents_per_second); !done) answer = std::unexpected(done.error());
  else answer = options_.node_document(request.peer);
  if (answer) {
    said.arn = answer->arn, said.user_id = answer->user_id, said.role = true;
    return {.status = 200, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}, {"Cache-Control", "no-store"}}, .body = kube::print_json(answer->body), .parts = {}};
  }
  said.error = answer.error();
  return credentials_error(answer.error(), id);
}

http::Response Front::exchange(const http::Request& request, const std::string& id, Said& said, bool web) const {
  struct Place {
    explicit Place(std::atomic<int>& of) : count(of), number(of.fetch_add(1) + 1) {}
    Place(const Place&) = delete;
    ~Place() { count.fetch_sub(1); }
    std::atomic<int>& count;
    const int number;
  };
  const Place place(exchanges_);
  if (place.number <= most_exchanges) return web ? answer_web_identity(request, id, said) : answer_credentials(request, id, said);
  said.source = web ? "sts.amazonaws.com" : "eks-auth.amazonaws.com";
  said.name = web ? web_identity_action : "AssumeRoleForPodIdentity";
  said.error = AwsError{web ? "Throttling" : "ThrottlingException", "Rate exceeded: many tokens are exchanged at once", 400};
  return web ? query_error("sts", *said.error, id) : credentials_error(*said.error, id);
}

http::Response Front::review_pod(const http::Request& request, const std::string& id) const {
  const auto answer = [&](int status, const Json& body) { return http::Response{.status = status, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}}, .body = kube::print_json(body), .parts = {}}; };
  const std::string_view secret = std::string_view(request.target.path).substr(pod_review_path.size());
  if (!options_.pod_review || options_.pod_review_secret.empty() || !equal_in_constant_time(secret, options_.pod_review_secret)) return answer(404, Json::object({{"message", "nothing is served here"}}));
  const auto review = request.method == "POST" ? kube::parse_json(request.body, {.depth_limit = 100}) : Result<Json>(fail(Code::Invalid, ""));
  const auto said = review ? options_.pod_review(*review) : std::nullopt;
  return said ? answer(200, *said) : answer(400, Json::object({{"message", "an AdmissionReview of admission.k8s.io/v1 is posted"}}));
}

std::optional<http::Response> Front::turn_away(const http::Request& request) const {
  // Recorded as others are that nobody has proven to be somebody.
  const auto turned = [&](const char* source, std::string_view name, AwsError error, const auto& form) {
    const std::string id = random_uuid();
    http::Response response = form(error, id);
    Said said;
    said.source = source, said.name = name, said.error = std::move(error);
    tell(request, id, said, response.status);
    return response;
  };
  const auto as_query = [](const AwsError& error, const std::string& id) { return query_error("sts", error, id); };
  if (request.target.path.starts_with(pod_review_path)) {
    // A kube-apiserver's own; its pods may be as large as the door takes.
    if (!options_.pod_review_secret.empty() && equal_in_constant_time(std::string_view(request.target.path).substr(pod_review_path.size()), options_.pod_review_secret)) return std::nullopt;
    return rest_error({"ResourceNotFoundException", "nothing is served here", 404}, random_uuid());
  }
  if (options_.review_account && is_web_identity(request)) {
    if (request.body.size() > most_exchange_bytes) return turned("sts.amazonaws.com", web_identity_action, {"RequestEntityTooLarge", "a request with a token has no more than 32 KiB", 413}, as_query);
    // What cannot be such a token asks nobody; what is no form, or has none, is told so there.
    const auto form = read_form(request);
    const std::string_view token = form ? http::find(*form, "WebIdentityToken") : std::string_view();
    const auto claims = token.empty() ? std::nullopt : read_token_claims(token);
    if (token.empty() || token.size() > most_account_token_bytes || claims) return std::nullopt;
    return turned("sts.amazonaws.com", web_identity_action, {"InvalidIdentityToken", "WebIdentityToken is no token of a service account", 400}, as_query);
  }
  if (options_.review_account && options_.association && is_credentials(request)) {
    // What cannot be such a token asks nobody.
    const auto claims = read_token_claims(trim(http::find(request.headers, "authorization")));
    if (claims && claims->has_audience(api::pod_identity::container_audience)) return std::nullopt;
    return turned("eks-auth.amazonaws.com", "AssumeRoleForPodIdentity", {"AccessDeniedException", fmt::format("the Authorization header is the token of a pod for {}", api::pod_identity::container_audience), 400}, credentials_error);
  }
  if (options_.node_document && is_node_document(request)) {
    if (!node_of(request.peer).empty()) return std::nullopt;
    return turned("sts.amazonaws.com", "AssumeRole", {"AccessDeniedException", "the client certificate of a node is expected", 400}, credentials_error);
  }
  if (request.target.path == token_review_path) {
    if (request.body.size() <= most_review_bytes) return std::nullopt;
    return turned("eks.amazonaws.com", "ReviewToken", {"RequestEntityTooLarge", "a TokenReview has no more than 32 KiB", 413}, rest_error);
  }
  const auto signature = read_signature(request);
  Answer<void> done;
  if (!signature) done = std::unexpected(signature.error());
  else if (done = check_time(*signature, clock_.now()); done) {
    std::string secret;
    if (const auto who = principal_of(*signature, secret); !who) done = std::unexpected(who.error());
  }
  if (done) return std::nullopt;
  Said said;
  if (signature) said.key_id = signature->key_id;
  const std::string service = service_of(request);
  said.source = source_of(service);
  said.error = done.error();
  const std::string id = random_uuid();
  http::Response response = error_of(service, done.error(), id);
  tell(request, id, said, response.status);
  return response;
}

void Front::tell(const http::Request& request, const std::string& id, const Said& said, int status) const {
  if (!options_.audit) return;
  std::uint64_t untold = 0;
  if (said.arn.empty()) {  // nobody must be able to fill the audit
    const bool room = spend("", nobodys_per_second).has_value();
    const std::lock_guard lock(buckets_mutex_);
    if (!room) {
      ++untold_;
      return;
    }
    untold = std::exchange(untold_, 0);
  }
  Json identity = Json::object({{"type", said.arn.empty() ? "Unknown" : said.web ? "WebIdentityUser" : said.role ? "AssumedRole" : "IAMUser"}});
  if (!said.arn.empty()) identity.set("arn", said.arn).set("principalId", said.user_id).set("accountId", directory_.site().account);
  if (!said.key_id.empty()) identity.set("accessKeyId", said.key_id);
  Json record = Json::object({{"eventTime", print_micro_time(clock_.now())}, {"eventSource", said.source}, {"eventName", said.name}, {"userIdentity", std::move(identity)}, {"sourceIPAddress", request.peer.address}, {"userAgent", cut(std::string(http::find(request.headers, "user-agent")), 512)},
                              {"requestID", id}, {"responseCode", status}});
  if (said.error) record.set("errorCode", said.error->code).set("errorMessage", cut(said.error->message, most_told));
  if (untold > 0) record.set("othersLikeItLeftOut", static_cast<std::int64_t>(untold));
  options_.audit(record);
}

http::Response Front::answer(const http::Request& request) const {
  const std::string id = random_uuid();
  Said said;
  http::Response response;
  if (request.target.path == token_review_path) {
    response = review_token(request, id, said);
    tell(request, id, said, response.status);
    return response;
  }
  if (request.target.path.starts_with(pod_review_path)) return review_pod(request, id);  // of each new pod: the audit is of calls
  if (options_.node_document && is_node_document(request)) {
    response = answer_node(request, id, said);
    tell(request, id, said, response.status);
    return response;
  }
  const bool web = options_.review_account && is_web_identity(request);
  if (web || (options_.review_account && options_.association && is_credentials(request))) {
    response = exchange(request, id, said, web);
    tell(request, id, said, response.status);
    return response;
  }
  const std::string service = service_of(request);
  if (service == "sts" || (service == "iam" && options_.iam) || (service == "cloudformation" && options_.cloudformation) || (service == "sns" && options_.sns) || (service == "ec2" && options_.ec2)) {
    response = answer_query(service, request, id, said);
  } else if (service == "sagemaker") {
    response = answer_json(request, id, said);
  } else if (service == "secretsmanager" && options_.secrets) {
    response = answer_service(service, "secretsmanager.", is_secrets_operation, options_.secrets, request, id, said);
  } else if (service == "kms" && options_.kms) {
    response = answer_service(service, "TrentService.", is_kms_operation, options_.kms, request, id, said);
  } else if (service == "logs" && options_.logs) {
    response = answer_service(service, "Logs_20140328.", is_logs_operation, options_.logs, request, id, said);
  } else if (service == "eks" && options_.eks) {
    said.source = "eks.amazonaws.com";
    if (const std::string operation = eks_operation(request); !operation.empty()) said.name = operation;
    Answer<EksAnswer> answer;
    if (const auto who = authenticate(request, said)) answer = options_.eks(request, call_of(request, *who, id));
    else answer = std::unexpected(who.error());
    if (answer) {
      response = {.status = answer->status, .headers = {{"Content-Type", "application/json"}, {"x-amzn-RequestId", id}}, .body = kube::print_json(answer->body), .parts = {}};
    } else {
      said.error = answer.error();
      response = rest_error(answer.error(), id);
    }
  } else if (service == "s3" && options_.s3) {
    said.source = "s3.amazonaws.com";
    if (const std::string operation = s3_operation(request); !operation.empty()) said.name = operation;
    if (const auto who = authenticate(request, said)) {
      response = options_.s3(request, call_of(request, *who, id), said.error);
    } else {
      said.error = who.error();
      response = s3_error(who.error(), request.target.path, id);
    }
  } else {
    said.source = source_of(service);
    // Only who is known learns what is served.
    const auto who = authenticate(request, said);
    said.error = who ? AwsError{"UnknownOperationException", fmt::format("service \"{}\" is not served here: sagemaker, sts, iam, eks, ec2, kms, s3, secretsmanager, logs, sns and cloudformation are", cut(service, 64))} : who.error();
    response = json_error(*said.error, id);
  }
  tell(request, id, said, response.status);
  return response;
}

http::Response refused_unread(const http::Response& plain) {
  // "Common Error Types" of AWS, and S3's names for what is too large.
  const char* const code = plain.status == 413 ? "RequestEntityTooLarge" : plain.status == 431 ? "RequestHeaderSectionTooLarge" : "MalformedHttpRequestException";
  return json_error({.code = code, .message = std::string(trim(plain.body)), .status = plain.status}, random_uuid());
}

}  // namespace fairlead::hyperpod
