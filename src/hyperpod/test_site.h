// SPDX-License-Identifier: Apache-2.0
// For tests: a site with identities, and a client that signs as SDKs do.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/cluster.h"
#include "api/team_crds.h"
#include "base/encoding.h"
#include "hyperpod/cloudformation.h"
#include "hyperpod/ec2.h"
#include "hyperpod/eks.h"
#include "hyperpod/eks_token.h"
#include "hyperpod/iam_service.h"
#include "hyperpod/kms.h"
#include "hyperpod/logs.h"
#include "hyperpod/operations.h"
#include "hyperpod/pod_associations.h"
#include "hyperpod/pod_credentials.h"
#include "hyperpod/s3.h"
#include "hyperpod/secrets_manager.h"
#include "hyperpod/sns.h"
#include "kube/tiny_api.h"

namespace fairlead::hyperpod {

inline constexpr const char* everything = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}})";

inline constexpr const char* trusts_sagemaker = R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}})";

// The API of a test with something in its way.
struct Racing : kube::KubeApi {
  kube::TinyApi& api;
  std::function<void()> before_create;
  std::function<void(const kube::Resource& resource, const Json& object)> after_get;  // of what was read a moment ago
  std::string unreadable;  // a plural that cannot be listed
  explicit Racing(kube::TinyApi& of) : api(of) {}
  Result<Json> get(const kube::Resource& resource, const kube::ObjectKey& key) override {
    auto out = api.get(resource, key);
    if (out && after_get) after_get(resource, *out);
    return out;
  }
  Result<kube::List> list(const kube::Resource& resource, const std::string& space, const kube::ListOptions& options) override {
    if (resource.plural == unreadable) return fail(Code::Unavailable, "no answer");
    return api.list(resource, space, options);
  }
  Result<std::unique_ptr<kube::Watch>> watch(const kube::Resource& resource, const std::string& space, const kube::WatchOptions& options) override { return api.watch(resource, space, options); }
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (auto act = std::exchange(before_create, nullptr)) act();
    return api.create(resource, object);
  }
  Result<Json> update(const kube::Resource& resource, const Json& object) override { return api.update(resource, object); }
  Result<Json> update_status(const kube::Resource& resource, const Json& object) override { return api.update_status(resource, object); }
  Result<Json> patch(const kube::Resource& resource, const kube::ObjectKey& key, kube::PatchType type, const Json& patch, const std::string& subresource) override { return api.patch(resource, key, type, patch, subresource); }
  Result<Json> post(const kube::Resource& resource, const kube::ObjectKey& key, const std::string& subresource, const Json& body) override { return api.post(resource, key, subresource, body); }
  Result<void> remove(const kube::Resource& resource, const kube::ObjectKey& key, const kube::DeleteOptions& options) override { return api.remove(resource, key, options); }
  Result<kube::ExecResult> exec(const kube::ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override { return fail(Code::Unsupported, "exec"); }
};

// Its TokenReviews are answered as a kube-apiserver that has issued `tokens` does.
struct Reviewing final : Racing {
  std::map<std::string, Json> tokens;  // their status, by token
  int asked = 0;
  bool away = false;
  explicit Reviewing(kube::TinyApi& of) : Racing(of) {}
  Result<Json> create(const kube::Resource& resource, const Json& object) override {
    if (resource.plural != api::pod_identity::token_reviews.plural) return Racing::create(resource, object);
    ++asked;
    if (away) return fail(Code::Unavailable, "no answer");
    Json out = object;
    const auto found = tokens.find(object["spec"]["token"].string());
    return out.set("status", found == tokens.end() ? *kube::parse_json(R"({"user": {}, "error": "invalid bearer token"})") : found->second);
  }
  // A token that holds for this pod's account.
  std::string issue(const std::string& space, const std::string& account, const std::string& audience, Instant expires, const std::string& issuer = "https://kubernetes.default.svc.cluster.local") {
    const auto url = [](const std::string& bytes) {
      std::string text = base64(bytes);
      while (text.ends_with('=')) text.pop_back();
      for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
      return text;
    };
    const std::string name = "system:serviceaccount:" + space + ":" + account;
    const std::string token = url(R"({"alg":"ES256"})") + "." + url(kube::print_json(Json::object({{"iss", issuer}, {"sub", name}, {"aud", Json::array({Json(audience)})}, {"exp", std::chrono::duration_cast<std::chrono::seconds>(expires.time_since_epoch()).count()}}))) + "." + url(fmt::format("signature {}", tokens.size()));
    tokens[token] = Json::object({{"authenticated", true}, {"audiences", Json::array({Json(audience)})}, {"user", Json::object({{"username", name}, {"uid", "u1"}, {"extra", *kube::parse_json(R"({"authentication.kubernetes.io/pod-name": ["train-0"], "authentication.kubernetes.io/pod-uid": ["pod-uid-1"]})")}})}});
    return token;
  }
};

class TestSite {
 public:
  struct Said {
    int status = 0;
    std::string body;
    Json json;              // null where it is none
    std::string code;       // "" where it went well
    std::string message;
    std::string text(const std::string& element) const {  // of XML: the first
      const auto begin = body.find("<" + element + ">");
      const auto end = body.find("</" + element + ">");
      return begin == body.npos || end == body.npos ? "" : body.substr(begin + element.size() + 2, end - begin - element.size() - 2);
    }
  };

  TestSite() {
    api.stamp = [this] { return print_time(clock.now()); };
    front = std::make_unique<Front>(model(), directory, seal, all_operations(sources(api)), clock, FrontOptions{.per_second = 0, .iam = [this](const std::string& action, const http::Query& form, const Call& call) { return answer_iam(action, form, call, api, "fairlead-system"); }, .cloudformation = [this](const std::string& action, const http::Query& form, const Call& call) { return answer_cloudformation(action, form, call, sources(api)); }, .sns = [this](const std::string& action, const http::Query& form, const Call& call) { return answer_sns(action, form, call, api, "fairlead-system", kept); }, .ec2 = [this](const std::string& action, const http::Query& form, const Call& call) { return answer_ec2(action, form, call, sources(api)); }, .eks = [this](const http::Request& request, const Call& call) { return answer_eks(request, call, api, eks); }, .eks_cluster = "fairlead", .s3 = [this](const http::Request& request, const Call& call, std::optional<AwsError>& error) { return answer_s3(request, call, Buckets(s3_folder), error); }, .secrets = [this](const std::string& operation, const Json& input, const Call& call) { return answer_secrets(operation, input, call, api, "fairlead-system"); }, .kms = [this](const std::string& operation, const Json& input, const Call& call) { return answer_kms(operation, input, call, api); }, .review_account = [this](std::string_view token, const std::string& audience) { return review_account_token(reviews, token, audience, clock.now()); }, .association = [this](const std::string& space, const std::string& account) { return find_association(api, space, account); }, .pod_review = [this](const Json& review) { return answer_pod_review(review, [this](const kube::Resource& resource, const kube::ObjectKey& key) { return reviews.get(resource, key); }, pod_site); }, .pod_review_secret = "5ec4e7", .logs = [this](const std::string& operation, const Json& input, const Call& call) { return answer_logs(operation, input, call, {sources(api), logs, clock}); }, .audit = [this](const Json& record) { audit.push_back(record); }});
  }

  Sources sources(kube::KubeApi& through) { return {through, model(), api.of(kube::resources::slurm_clusters), index, api.of(kube::resources::nodes), api.of(api::kClusters), api.of(api::kInstances), directory, "fairlead", eks.version, eks.authentication_mode, "fairlead-system", [this](const std::string& bucket, const std::string& key) { return read_object(bucket, key); }, alarms.get()}; }
  ReadObject read_object = [](const std::string&, const std::string&) -> Result<std::string> { return fail(Code::NotFound, "there is no such object"); };
  std::shared_ptr<const api::Alarms> alarms;
  static const Model& model() {
    static const Model one = *Model::load_own();
    return one;
  }

  void identity(const std::string& type, const std::string& name, std::vector<std::string> policies, Json more = Json::object()) {
    Json list = Json::array();
    for (std::string& policy : policies) list.push(Json::object({{"name", fmt::format("p{}", list.items().size())}, {"document", std::move(policy)}}));
    Json spec = Json::object({{"type", type}, {"name", name}, {"policies", std::move(list)}});
    for (const auto& [key, value] : more.members()) spec.set(key, value);
    const std::string object = api::identities::object_name(*api::identities::read_type(type), name);
    uids_[object] = fmt::format("uid-{}-{}", object, ++made_);
    directory.put_identity(Json::object({{"metadata", Json::object({{"name", object}, {"uid", uids_[object]}})}, {"spec", std::move(spec)}}));
  }
  // A role that machines may be given.
  void node_role(const std::string& name, Json more = Json::object()) { identity("Role", name, {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::*"}})"}, more.set("trustPolicy", trusts_sagemaker)); }
  Credentials key_of(const std::string& user, bool active = true) {
    const std::string object = api::identities::object_name(api::identities::Type::User, user);
    auto key = api::identities::new_key(object, uids_.contains(object) ? uids_[object] : "none");
    key.active = active;
    directory.put_key(api::identities::write_key(key, "fairlead-system"));
    return {key.id, key.secret, ""};
  }
  Credentials user(const std::string& name, std::vector<std::string> policies) {
    identity("User", name, std::move(policies));
    return key_of(name);
  }

  Said send(http::Request request) {
    const http::Response response = front->answer(request);
    Said out{.status = response.status, .body = response.body, .json = {}, .code = {}, .message = {}};
    if (auto json = kube::parse_json(response.body)) {
      out.json = std::move(*json);
      out.code = out.json["__type"].string();
      out.message = out.json["message"].string();
    } else {
      out.code = out.text("Code");
      out.message = out.text("Message");
    }
    EXPECT_FALSE(http::find(response.headers, "x-amzn-requestid").empty());
    return out;
  }
  http::Request request(const std::string& operation, const std::string& body) const {
    return {.method = "POST", .target = *http::parse_target("/"), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/x-amz-json-1.1"}, {"X-Amz-Target", "SageMaker." + operation}, {"User-Agent", "test"}}, .body = body, .peer = {.address = "127.0.0.1", .common_name = {}, .organizations = {}}};
  }
  Said kms(const Credentials& who, const std::string& operation, const Json& input = Json::object()) {
    http::Request of = request("x", kube::print_json(input));
    for (auto& [name, value] : of.headers)
      if (name == "X-Amz-Target") value = "TrentService." + operation;
    sign_request(of, who, "fairlead-1", "kms", clock.now());
    return send(std::move(of));
  }
  Said call(const Credentials& who, const std::string& operation, const Json& input = Json::object()) {
    http::Request of = request(operation, kube::print_json(input));
    sign_request(of, who, "fairlead-1", "sagemaker", clock.now());
    return send(std::move(of));
  }
  // A form that nobody has signed.
  Said unsigned_form(const std::vector<std::pair<std::string, std::string>>& form) {
    std::string body = "Version=2011-06-15";
    for (const auto& [name, value] : form) body += "&" + name + "=" + http::escape(value);
    return send({.method = "POST", .target = *http::parse_target("/"), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}}, .body = body, .peer = {.address = "10.78.3.7", .common_name = {}, .organizations = {}}});
  }
  Said sts(const Credentials& who, const std::vector<std::pair<std::string, std::string>>& form) { return query(who, "sts", "2011-06-15", form); }
  // What it made or changed is known to the directory afterwards, as by its watches.
  Said iam(const Credentials& who, const std::vector<std::pair<std::string, std::string>>& form) {
    Said said = query(who, "iam", "2010-05-08", form);
    for (const auto& [key, object] : api.all("managedpolicies")) directory.put_policy(object);
    for (const auto& [key, object] : api.all("identities")) directory.put_identity(object);
    for (const auto& [key, object] : api.all("secrets")) directory.put_key(object);
    return said;
  }
  Said query(const Credentials& who, const char* service, const char* version, const std::vector<std::pair<std::string, std::string>>& form) {
    std::string body = fmt::format("Version={}", version);
    for (const auto& [name, value] : form) body += "&" + name + "=" + http::escape(value);
    http::Request of{.method = "POST", .target = *http::parse_target("/"), .headers = {{"Host", "127.0.0.1:6444"}, {"Content-Type", "application/x-www-form-urlencoded; charset=utf-8"}}, .body = body, .peer = {.address = "127.0.0.1", .common_name = {}, .organizations = {}}};
    sign_request(of, who, "fairlead-1", service, clock.now());
    return send(std::move(of));
  }
  Credentials assumed(const Said& said) const { return {said.text("AccessKeyId"), said.text("SecretAccessKey"), said.text("SessionToken")}; }

  Json cluster(const std::string& space, const std::string& name, bool applied = true) {
    Json object = Json::object({{"metadata", Json::object({{"name", name}, {"namespace", space}, {"generation", 1}})}, {"spec", *kube::parse_json(R"({"slurmNodes": {"controller": {"size": 1}, "login": {"size": 1}, "worker": {"size": 2}}})")}});
    if (applied) object.set("status", Json::object({{"appliedConfigHash", "abc"}}));
    Json made = *api.create(kube::resources::slurm_clusters, object);
    index.put(made);
    return made;
  }
  std::string arn(const Json& cluster) const { return cluster_arn(site, cluster); }

  ManualClock clock{*parse_time("2026-11-25T12:00:00Z")};
  KeptMessages kept{clock};
  kube::TinyApi api;
  Reviewing reviews{api};
  PodSite pod_site{.endpoint = "https://10.77.1.1:6444", .region = "fairlead-1", .ca_pem = "PEM"};
  Site site{"111122223333", "fairlead-1", {}};
  EksCluster eks{.endpoint = "https://api:6443", .ca_pem = "PEM", .version = "1.33"};
  Directory directory{site};
  ClusterIndex index;
  SessionSeal seal = *SessionSeal::make({std::string(32, 'k')});
  std::vector<Json> audit;
  kube::PodLog logs;  // of containers
  std::string s3_folder = "/nonexistent";
  std::unique_ptr<Front> front;

 private:
  int made_ = 0;
  std::map<std::string, std::string> uids_;
};

}  // namespace fairlead::hyperpod
