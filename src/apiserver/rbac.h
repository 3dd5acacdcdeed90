// SPDX-License-Identifier: Apache-2.0
// Role-based access control as rbac.authorization.k8s.io/v1 has it: what rules allow, which rules hold for a user, whether one set of rules covers another. Pure.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apiserver/auth_types.h"

namespace fairlead::apiserver {

inline constexpr std::string_view rbac_group = "rbac.authorization.k8s.io";

// metav1 PolicyRule. Either resources (with groups and perhaps names) or paths.
struct Rule {
  std::vector<std::string> verbs, groups, resources, names, urls;
  friend bool operator==(const Rule&, const Rule&) = default;
};
using Rules = std::vector<Rule>;

Rules parse_rules(const kube::Json& rules);  // the list `rules` of a role
kube::Json to_json(const Rule& rule);
kube::Json to_json(const Rules& rules);

bool allows(const Rule& rule, const Attributes& attributes);
bool any_allows(const Rules& rules, const Attributes& attributes);
// What of `wanted` is not in `owned`, as rules with one verb, resource and name each; empty: all is covered.
// O(owned * broken-down wanted). The same wildcards as Kubernetes: a rule covers by itself or not at all.
Rules not_covered(const Rules& owned, const Rules& wanted);
// As Kubernetes' messages have them: {APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}, one a line, verbs of the same resource together.
std::string describe(const Rules& missing);

// A binding as the index keeps it.
struct RoleBinding {
  std::string space, name;  // of the binding; cluster-wide: no space
  bool cluster_role = true;
  std::string role;
  std::vector<std::string> subjects;  // keys, see subject_key
};
RoleBinding parse_binding(const kube::Json& binding);
std::string user_key(std::string_view name);
std::string group_key(std::string_view name);

// All roles and bindings of a site, by subject: a question costs the bindings of its user and groups in its namespace and their rules, however many others there are.
// Not thread-safe; RoleBook (auth_access.h) locks.
class RoleIndex {
 public:
  void set_role(const std::string& space, const std::string& name, Rules rules);  // space "": a ClusterRole
  void drop_role(const std::string& space, const std::string& name);
  void set_binding(RoleBinding binding);
  void drop_binding(const std::string& space, const std::string& name);

  // `explain`: the reason names the binding that allowed it; of a refusal it names roles that are missing.
  Verdict authorize(const User& user, const Attributes& attributes, bool explain = false) const;
  // All rules that hold for the user in this namespace ("": cluster-wide ones only). `problems`: roles that bindings name but which are not there.
  Rules rules_for(const User& user, const std::string& space, std::vector<std::string>* problems = nullptr) const;
  // Null: there is no such role.
  std::shared_ptr<const Rules> role(bool cluster_role, const std::string& space, const std::string& name) const;

  std::size_t bindings() const { return bindings_.size(); }

 private:
  using BindingPtr = std::shared_ptr<const RoleBinding>;
  using BySubject = std::unordered_map<std::string, std::vector<BindingPtr>>;
  // Calls visit(binding, subject key, rules or null) until it returns false.
  template <class Visit>
  void visit(const User& user, const std::string& space, Visit&& visit) const;
  void unlink(const RoleBinding& binding);

  std::unordered_map<std::string, std::shared_ptr<const Rules>> cluster_roles_;
  std::unordered_map<std::string, std::shared_ptr<const Rules>> roles_;  // "space/name"
  std::unordered_map<std::string, BindingPtr> bindings_;                  // "space/name"
  BySubject cluster_;
  std::unordered_map<std::string, BySubject> spaces_;
};

}  // namespace fairlead::apiserver
