// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/access_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "api/user_roles.h"
#include "kube/object.h"

namespace fairlead::hyperpod {
namespace {

using kube::Json;

constexpr std::string_view arn_begin = "arn:aws:eks::aws:cluster-access-policy/";
constexpr std::array<AccessPolicy, 4> all{{{"AmazonEKSAdminPolicy", "admin"}, {"AmazonEKSClusterAdminPolicy", "cluster-admin"}, {"AmazonEKSEditPolicy", "edit"}, {"AmazonEKSViewPolicy", "view"}}};

bool binds(const Json& binding, const std::string& group) {
  const auto& subjects = binding["subjects"].items();
  return std::any_of(subjects.begin(), subjects.end(), [&](const Json& one) { return one["kind"].string() == "Group" && one["name"].string() == group; });
}

}  // namespace

std::string AccessPolicy::arn() const { return std::string(arn_begin) + name; }
std::string AccessPolicy::group(std::string_view space) const { return fmt::format("fairlead:access:{}{}{}", role, space.empty() ? "" : ":", space); }

std::span<const AccessPolicy> access_policies() { return all; }
const AccessPolicy* find_access_policy(std::string_view arn) {
  const auto at = std::find_if(all.begin(), all.end(), [&](const AccessPolicy& one) { return one.arn() == arn; });
  return at == all.end() ? nullptr : &*at;
}

std::vector<std::string> groups_of_policies(const Json& policies) {
  std::vector<std::string> out;
  for (const Json& one : policies.items()) {
    const AccessPolicy* policy = find_access_policy(one["policyArn"].string());
    if (policy == nullptr) continue;
    // Namespaces that are not a list are not the whole cluster.
    if (one["namespaces"].is_null()) out.push_back(policy->group());
    for (const Json& space : one["namespaces"].items())
      if (!space.string().empty()) out.push_back(policy->group(space.string()));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Answer<void> check_offered(kube::KubeApi& api, const AccessPolicy& policy, const std::vector<std::string>& spaces) {
  const auto check = [&](const std::string& space) -> Answer<void> {
    const std::string group = policy.group(space);
    const auto bindings = api.list(space.empty() ? api::rbac::cluster_role_bindings : api::rbac::role_bindings, space);
    if (!bindings) return std::unexpected(aws_error(bindings.error(), "read who is bound to roles"));
    if (std::any_of(bindings->items.begin(), bindings->items.end(), [&](const Json& one) { return binds(one, group); })) return {};
    return refuse("InvalidParameterException", space.empty() ? fmt::format("{} is not offered here: an administrator of the cluster offers it by `kubectl create clusterrolebinding fairlead-access-{} --clusterrole={} --group={}`", policy.name, policy.role, policy.role, group)
                                                              : fmt::format("{} is not offered in namespace {}: an administrator of the cluster offers it by `kubectl -n {} create rolebinding fairlead-access-{} --clusterrole={} --group={}`", policy.name, space, space, policy.role, policy.role, group));
  };
  if (spaces.empty()) return check("");
  for (const std::string& space : spaces)
    if (auto done = check(space); !done) return done;
  return {};
}

}  // namespace fairlead::hyperpod
