// SPDX-License-Identifier: Apache-2.0
// What does a question about rights cost beside 10 000 roles and bindings of others? With callgrind for instructions, which do not depend on the machine.
//   rbac_bench [ROLES [QUESTIONS]]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "apiserver/rbac.h"
#include "apiserver/rbac_defaults.h"

using namespace fairlead;
using namespace fairlead::apiserver;

namespace {

RoleIndex make(int roles) {
  RoleIndex index;
  for (const kube::Json& role : default_cluster_roles()) index.set_role("", kube::name_of(role), parse_rules(role["rules"]));
  for (const kube::Json& binding : default_cluster_role_bindings()) index.set_binding(parse_binding(binding));
  for (int i = 0; i < roles; ++i) {
    const std::string space = fmt::format("team-{}", i % 100), name = fmt::format("role-{}", i);
    index.set_role(space, name, {{.verbs = {"get", "list", "watch"}, .groups = {""}, .resources = {"pods", "pods/log", "configmaps"}},
                                 {.verbs = {"*"}, .groups = {"batch"}, .resources = {"jobs"}}});
    index.set_binding({.space = space, .name = name, .cluster_role = false, .role = name, .subjects = {user_key(fmt::format("user-{}", i)), group_key(fmt::format("group-{}", i % 1000))}});
  }
  return index;
}

}  // namespace

int main(int count, char** words) {
  const int roles = count > 1 ? std::atoi(words[1]) : 10'000, questions = count > 2 ? std::atoi(words[2]) : 100'000;
  const RoleIndex index = make(roles);
  const User user{"user-7", {"group-7", std::string(authenticated_group)}};
  const Attributes yes{.verb = "list", .resource = "pods", .space = "team-7"}, no{.verb = "delete", .resource = "pods", .space = "team-7", .name = "p"};
  if (!index.authorize(user, yes).allowed || index.authorize(user, no).allowed) return 1;
  for (const Attributes* asked : {&yes, &no}) {
    const auto begin = std::chrono::steady_clock::now();
    int allowed = 0;
    for (int i = 0; i < questions; ++i) allowed += index.authorize(user, *asked).allowed ? 1 : 0;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (allowed != (asked == &yes ? questions : 0)) return 1;
    fmt::print("{} roles, {}: {:.2f} us a question\n", roles, asked == &yes ? "allowed" : "refused", took.count() / questions);
  }
}
