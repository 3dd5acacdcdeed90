// SPDX-License-Identifier: Apache-2.0
// The AWS face as a function: an HTTP request in, its answer out. Who signs is found in the directory, what he may is decided by his policies, what he asks for is a translation to objects and back: nothing is stored here, so any number of
// servers may answer. docs/design/049-aws-face.md.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "http/message.h"
#include "hyperpod/directory.h"
#include "hyperpod/model.h"
#include "hyperpod/node_identity.h"
#include "hyperpod/session_token.h"
#include "hyperpod/web_identity.h"
#include "kube/kube_api.h"

namespace fairlead::hyperpod {

// Who is asking, proven.
struct Principal {
  std::shared_ptr<const Identity> identity;
  std::optional<Session> session;
  std::shared_ptr<const iam::Bundle> session_policies;  // null: none
  std::string arn, user_id, key_id;                     // user_id: "AIDA...", "AROA...:session"
  std::string region;                                   // that was signed for: any will do
};

// One call, while it is answered.
struct Call {
  const Principal& who;
  const Site& site;
  Instant now;
  std::string request_id;
  std::string source, agent;  // of the client
  bool tls = true;
  std::string invocation;     // by which SDKs tell that they send a request again (amz-sdk-invocation-id); empty: they do not
  std::string once = {};      // the same for a request that is sent again, by an SDK or by who has seen it: what it asks for is done once

  // AccessDeniedException in AWS's words, with what decided. `resource`: an ARN, or "*". `keys`: beside those that every call has. `named`: what the caller called it, where that is no ARN: he is told that, and no more, so that he does not
  // learn what is there.
  Answer<void> allow(std::string_view action, const std::string& resource, const iam::Keys& keys = {}, const std::string& named = {}) const;
  iam::Call question(std::string_view action, const std::string& resource, iam::Keys keys = {}) const;
};

using Operations = std::map<std::string, std::function<Answer<Json>(const Call&, const Json& input)>, std::less<>>;  // by name

struct EksAnswer;
struct KubernetesUser;

struct FrontOptions {
  double per_second = 100;       // calls of one identity; bursts of twice that; 0: no limit
  bool tls = true;
  // Answers the actions of IAM; null: they are not served.
  std::function<Answer<std::string>(const std::string& action, const http::Query& form, const Call& call)> iam;
  // Answers the actions of CloudFormation; null: they are not served.
  std::function<Answer<std::string>(const std::string& action, const http::Query& form, const Call& call)> cloudformation;
  // Answers the actions of SNS; null: they are not served.
  std::function<Answer<std::string>(const std::string& action, const http::Query& form, const Call& call)> sns;
  // Answers the actions of EC2 about volumes; null: they are not served.
  std::function<Answer<std::string>(const std::string& action, const http::Query& form, const Call& call)> ec2;
  // Answers what comes for EKS; null: it is not served. And the cluster's name, for which tokens are signed.
  std::function<Answer<EksAnswer>(const http::Request& request, const Call& call)> eks;
  std::string eks_cluster;
  // Answers what comes for S3, and says what was wrong; null: it is not served.
  std::function<http::Response(const http::Request& request, const Call& call, std::optional<AwsError>& error)> s3;
  // Answers operations of Secrets Manager; null: it is not served.
  std::function<Answer<Json>(const std::string& operation, const Json& input, const Call& call)> secrets;
  // The same of KMS.
  std::function<Answer<Json>(const std::string& operation, const Json& input, const Call& call)> kms;
  // Says whose token of a service account this is; null: web identities and container credentials are not served.
  ReviewToken review_account;
  // The association of a service account (FindAssociation); null: container credentials are not served.
  std::function<Result<std::optional<Json>>(const std::string& space, const std::string& account)> association;
  // The document of the node whose client certificate this is, of http::Peer's proof; null: nodes are told nothing.
  std::function<Answer<NodeDocument>(const http::Peer& peer)> node_document;
  // Answers an AdmissionReview about a pod; null: none is served. And what stands behind pod_review_path: who does not know it is not answered, as the answer names roles.
  std::function<std::optional<Json>(const Json& review)> pod_review;
  std::string pod_review_secret;
  // The same of CloudWatch Logs.
  std::function<Answer<Json>(const std::string& operation, const Json& input, const Call& call)> logs;
  std::function<void(const Json&)> audit;  // a record of each call, as CloudTrail's; nothing secret in it. Null: none. Any thread
};

class Front {
 public:
  // All of it must outlive the front. Thread-safe; `answer` blocks as long as the API behind it does.
  Front(const Model& model, const Directory& directory, const SessionSeal& seal, Operations operations, const Clock& clock, FrontOptions options);
  http::Response answer(const http::Request& request) const;
  // What nobody known can have signed is refused at once, without a hash over its body and without a place in any queue; nothing: it may be good.
  std::optional<http::Response> turn_away(const http::Request& request) const;
  // Whose token of `aws eks get-token` this is, and who that is in Kubernetes. InvalidIdentityToken, AccessDeniedException and what a bad signature says.
  Answer<KubernetesUser> kubernetes_user_of(std::string_view token) const;
  // POST token_review_path: a TokenReview of authentication.k8s.io/v1, as a kube-apiserver sends to its webhook. Needs no signature: who asks has the token.
  static constexpr std::string_view token_review_path = "/kubernetes/token-review";
  // POST pod_review_path SECRET: an AdmissionReview of admission.k8s.io/v1 about a pod that is made.
  static constexpr std::string_view pod_review_path = "/kubernetes/pods/";
  // 503, in the form of the service that is asked.
  static http::Response busy(const http::Request& request, const std::string& why);

 private:
  struct Said;  // what the audit is told
  mutable std::atomic<int> exchanges_{0};  // of tokens, at this moment
  Answer<Principal> authenticate(const http::Request& request, Said& said) const;
  Answer<Principal> principal_of(const Signature& signature, std::string& secret) const;
  Answer<void> spend(const std::string& bucket, double per_second) const;
  void tell(const http::Request& request, const std::string& id, const Said& said, int status) const;
  Answer<Json> sagemaker(const http::Request& request, const Call& call) const;
  Answer<std::string> sts(const std::string& action, const http::Query& form, const Call& call) const;
  http::Response review_token(const http::Request& request, const std::string& id, Said& said) const;
  http::Response review_pod(const http::Request& request, const std::string& id) const;
  http::Response answer_web_identity(const http::Request& request, const std::string& id, Said& said) const;
  http::Response answer_credentials(const http::Request& request, const std::string& id, Said& said) const;
  http::Response answer_node(const http::Request& request, const std::string& id, Said& said) const;
  Answer<void> spend_of_source(const http::Request& request) const;
  http::Response exchange(const http::Request& request, const std::string& id, Said& said, bool web) const;
  using Service = std::function<Answer<Json>(const std::string& operation, const Json& input, const Call& call)>;
  // JSON 1.1 of another service; `prefix`: of X-Amz-Target. What `known` does not know is not written into the audit.
  http::Response answer_service(const std::string& service, std::string_view prefix, bool (*known)(std::string_view operation), const Service& work, const http::Request& request, const std::string& id, Said& said) const;
  http::Response answer_json(const http::Request& request, const std::string& id, Said& said) const;
  http::Response answer_query(const std::string& service, const http::Request& request, const std::string& id, Said& said) const;
  Call call_of(const http::Request& request, const Principal& who, const std::string& id) const;

  const Model& model_;
  const Directory& directory_;
  const SessionSeal& seal_;
  const Operations operations_;
  const Clock& clock_;
  const FrontOptions options_;
  struct Bucket {
    double tokens = 0;
    std::chrono::nanoseconds at{};
  };
  mutable std::mutex buckets_mutex_;
  mutable std::map<std::string, Bucket, std::less<>> buckets_;  // by identity; "": of those who are nobody
  mutable std::uint64_t untold_ = 0;                            // refusals of nobody that the audit was not told of
};

// What the server refuses before anybody has read it (400, 413, 431), in AWS's form: JSON, since of which service it is nobody knows.
http::Response refused_unread(const http::Response& plain);

}  // namespace fairlead::hyperpod
