// SPDX-License-Identifier: Apache-2.0
// The values that authentication and authorization speak of: who asks, what for, and the verdict. Pure.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kube/object.h"

namespace fairlead::apiserver {

struct User {
  std::string name;
  std::vector<std::string> groups;  // system:authenticated is always there
  std::string uid;
  std::vector<std::pair<std::string, std::vector<std::string>>> extra;
  bool in(std::string_view group) const;
  std::string node() const;  // "w0" of system:node:w0 in group system:nodes; else empty
};

inline constexpr std::string_view masters_group = "system:masters";
inline constexpr std::string_view nodes_group = "system:nodes";
inline constexpr std::string_view authenticated_group = "system:authenticated";
inline constexpr std::string_view unauthenticated_group = "system:unauthenticated";
inline constexpr std::string_view service_accounts_group = "system:serviceaccounts";

// "system:serviceaccount:NAMESPACE:NAME" and back; empty: not the name of a service account.
std::string service_account_user(const kube::ObjectKey& account);
std::optional<kube::ObjectKey> parse_service_account_user(std::string_view user);
// system:serviceaccounts, system:serviceaccounts:NAMESPACE (without system:authenticated).
std::vector<std::string> service_account_groups(const std::string& space);
// {"username", "uid", "groups", "extra"}: authentication.k8s.io UserInfo.
kube::Json to_user_info(const User& user);

struct Attributes {
  std::string verb;
  bool resource_request = true;
  std::string group, resource, subresource, space, name;
  std::string selected_name;  // list and watch: the name that a field selector metadata.name=X limits them to
  std::string path;           // not a resource request
};

struct Verdict {
  bool allowed = false;
  std::string reason;  // why not, beyond Kubernetes' own sentence, or by which binding; may be empty
};

// `pods "x" is forbidden: User "u" cannot get resource "pods" in API group "" in the namespace "default"`.
std::string forbidden_message(const User& user, const Attributes& attributes, const Verdict& verdict);

}  // namespace fairlead::apiserver
