// SPDX-License-Identifier: Apache-2.0
// Who asks and what they may do, over a live Registry: certificates, bearer tokens and service account tokens become users; masters, the node rules and RBAC decide. Roles and
// the places of pods are followed by watches, whose events come before the answer to their write: a role that was made is in force when its create is answered.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "apiserver/auth_node.h"
#include "apiserver/auth_types.h"
#include "apiserver/rbac.h"
#include "apiserver/registry.h"
#include "apiserver/token_accounts.h"
#include "apiserver/token_jwt.h"
#include "http/message.h"

namespace fairlead::apiserver {

struct TokenUser {
  std::string token_sha256;  // 32 raw bytes; tokens themselves are not kept
  std::string name;
  std::vector<std::string> groups;
};

struct AccessOptions {
  std::vector<TokenUser> tokens;
  std::optional<TokenKeys> keys;  // none: service accounts get no tokens
  TokenSite site;
  // Asked of a bearer token that is none of ours, as Kubernetes asks its webhook; an error: it is none of theirs either. Any thread; must not block long.
  std::function<Result<User>(std::string_view token)> foreign;
};

// Who a request comes from.
struct Caller {
  std::shared_ptr<const User> user;  // who it acts as
  std::shared_ptr<const User> real;  // the one who impersonates; null: nobody
};

// Thread-safe. The registry must outlive it.
class Access final : public NodeFacts {
 public:
  Access(Registry& registry, const Clock& clock, AccessOptions options);
  ~Access() override;

  // By client certificate or bearer token, then as whom the headers say. Unauthorized: neither, or not a token of this site. Forbidden: may not act as that one.
  Result<Caller> authenticate(const http::Request& request) const;
  // `audiences`: whom a service account's token must be for; empty: this API. The matching ones are left in it.
  Result<User> authenticate_token(std::string_view token, std::vector<std::string>& audiences) const;
  // A question costs the bindings of this user in this namespace. `explain`: the verdict names the binding.
  Verdict authorize(const User& user, const Attributes& attributes, bool explain = false) const;
  // status of a SelfSubjectRulesReview.
  kube::Json rules_review(const User& user, const std::string& space) const;
  // Escalation: may this user write a role with these rules, or bind a role, there? Forbidden with what they lack.
  Result<void> may_grant(const User& user, const kube::Resource& role, const kube::ObjectKey& key, const kube::Json* old, const kube::Json& next) const;
  Result<void> may_bind(const User& user, const kube::Json& binding) const;

  // The answer to a TokenRequest, signed. Unsupported: no keys.
  Result<kube::Json> request_token(const kube::Json& request, const kube::ObjectKey& account, const User& caller) const;
  const std::optional<TokenKeys>& keys() const { return options_.keys; }
  const TokenSite& site() const { return options_.site; }

  bool pod_is_on(const std::string& space, const std::string& pod, const std::string& node) const override;
  bool pod_there_uses(const std::string& node, const std::string& resource, const std::string& space, const std::string& name) const override;

 private:
  void follow(const kube::Resource& resource, std::function<void(kube::EventType, const Object&)> sink);
  void on_role(const kube::Resource& resource, kube::EventType type, const Object& object);
  void on_pod(kube::EventType type, const Object& object);
  std::optional<kube::Json> find(const kube::Resource& resource, const kube::ObjectKey& key) const;
  std::optional<Standing> standing(const kube::Resource& resource, const kube::ObjectKey& key) const;
  Result<std::shared_ptr<const kube::Json>> verified_claims(std::string_view token, const std::string& hash) const;
  Rules rules_of_user(const User& user, const std::string& space) const;

  Registry& registry_;
  const Clock& clock_;
  const AccessOptions options_;
  mutable std::shared_mutex roles_mutex_;
  RoleIndex roles_;
  mutable std::shared_mutex pods_mutex_;
  NodePods pods_;
  mutable std::mutex claims_mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const kube::Json>> claims_;  // by SHA-256 of the token: a signature is verified once
  std::vector<std::unique_ptr<Subscription>> subscriptions_;  // last: ended first
};

}  // namespace fairlead::apiserver
