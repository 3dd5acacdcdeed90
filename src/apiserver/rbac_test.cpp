// SPDX-License-Identifier: Apache-2.0
#include "apiserver/rbac.h"

#include <gmock/gmock.h>

#include "apiserver/rbac_kinds.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;

Json yaml(const std::string& text) {
  const auto parsed = kube::parse_yaml(text);
  EXPECT_TRUE(parsed.has_value() && parsed->size() == 1) << text;
  return parsed ? parsed->at(0) : Json();
}
Rules rules(const std::string& text) { return parse_rules(yaml(text)); }

// "get pods/log in default named p", "get /healthz".
Attributes ask(const std::string& verb, const std::string& what, const std::string& space = "", const std::string& name = "") {
  Attributes out{.verb = verb, .space = space, .name = name};
  if (what.front() == '/') {
    out.resource_request = false, out.path = what;
    return out;
  }
  std::string resource = what;
  if (const auto slash = resource.find('/'); slash != std::string::npos) out.subresource = resource.substr(slash + 1), resource.resize(slash);
  if (const auto dot = resource.find('.'); dot != std::string::npos) out.group = resource.substr(dot + 1), resource.resize(dot);
  out.resource = resource;
  return out;
}

TEST(Rbac, ARuleAllowsWhatItSays) {
  struct Row {
    const char *rule, *verb, *what, *name;
    bool want;
  };
  const char* pods = "[{verbs: [get, list], apiGroups: [''], resources: [pods, pods/log]}]";
  const char* named = "[{verbs: [get, update], apiGroups: [''], resources: [configmaps], resourceNames: [a, b]}]";
  const char* scales = "[{verbs: ['*'], apiGroups: ['*'], resources: ['*/scale']}]";
  const char* all = "[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]";
  const char* urls = "[{verbs: [get], nonResourceURLs: [/healthz, /api/*]}]";
  for (const Row& row : {
           Row{pods, "get", "pods", "p", true},
           Row{pods, "get", "pods/log", "p", true},
           Row{pods, "get", "pods/exec", "p", false},
           Row{pods, "delete", "pods", "p", false},
           Row{pods, "get", "pods.metrics.k8s.io", "p", false},
           Row{pods, "get", "/pods", "", false},
           Row{named, "get", "configmaps", "a", true},
           Row{named, "get", "configmaps", "c", false},
           Row{named, "get", "configmaps", "", false},
           Row{named, "update", "configmaps", "b", true},
           Row{scales, "update", "deployments.apps/scale", "d", true},
           Row{scales, "update", "deployments.apps", "d", false},
           Row{all, "impersonate", "users", "eve", true},
           Row{all, "get", "pods/log", "p", true},
           Row{all, "get", "/metrics", "", false},
           Row{urls, "get", "/healthz", "", true},
           Row{urls, "get", "/healthz/ping", "", false},
           Row{urls, "get", "/api/v1", "", true},
           Row{urls, "get", "/api", "", false},
           Row{urls, "post", "/healthz", "", false},
           Row{urls, "get", "healthz", "", false},
       }) {
    EXPECT_EQ(any_allows(rules(row.rule), ask(row.verb, row.what, "default", row.name)), row.want) << row.rule << ' ' << row.verb << ' ' << row.what << ' ' << row.name;
  }
}

TEST(Rbac, AListIsLimitedToANameByItsFieldSelector) {
  const Rules named = rules("[{verbs: [list, watch], apiGroups: [''], resources: [secrets], resourceNames: [mine]}]");
  Attributes list = ask("list", "secrets", "default");
  EXPECT_FALSE(any_allows(named, list));
  list.selected_name = "mine";
  EXPECT_TRUE(any_allows(named, list));
  list.selected_name = "other";
  EXPECT_FALSE(any_allows(named, list));
}

TEST(Rbac, CoveringIsByOneRuleForEachPart) {
  struct Row {
    const char *owned, *wanted, *missing;
  };
  for (const Row& row : {
           Row{"[{verbs: [get, list], apiGroups: [''], resources: [pods]}]", "[{verbs: [get], apiGroups: [''], resources: [pods]}]", ""},
           Row{"[{verbs: [get], apiGroups: [''], resources: [pods]}]", "[{verbs: [get, list, watch], apiGroups: [''], resources: [pods]}]",
               R"({APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]})"},
           Row{"[{verbs: [get], apiGroups: [''], resources: [pods], resourceNames: [a]}]", "[{verbs: [get], apiGroups: [''], resources: [pods]}]",
               R"({APIGroups:[""], Resources:["pods"], Verbs:["get"]})"},
           Row{"[{verbs: [get], apiGroups: [''], resources: [pods]}]", "[{verbs: [get], apiGroups: [''], resources: [pods], resourceNames: [a]}]", ""},
           Row{"[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]", "[{verbs: [get], apiGroups: [apps], resources: [deployments/scale]}]", ""},
           Row{"[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]", "[{verbs: [get], nonResourceURLs: [/metrics]}]", R"({NonResourceURLs:["/metrics"], Verbs:["get"]})"},
           Row{"[{verbs: [update], apiGroups: [apps], resources: ['*/scale']}]", "[{verbs: [update], apiGroups: [apps], resources: [deployments/scale]}]", ""},
           Row{"[{verbs: [update], apiGroups: [apps], resources: ['*/scale']}]", "[{verbs: [update], apiGroups: [apps], resources: [deployments]}]",
               R"({APIGroups:["apps"], Resources:["deployments"], Verbs:["update"]})"},
           Row{"[{verbs: [get], nonResourceURLs: [/api/*]}]", "[{verbs: [get], nonResourceURLs: [/api/v1, /api/*]}]", ""},
           Row{"[{verbs: [get], nonResourceURLs: [/api/*]}]", "[{verbs: [get], nonResourceURLs: ['*']}]", R"({NonResourceURLs:["*"], Verbs:["get"]})"},
           Row{"[]", "[{verbs: ['*'], apiGroups: ['*'], resources: ['*']}]", R"({APIGroups:["*"], Resources:["*"], Verbs:["*"]})"},
           Row{"[]", "[{verbs: [get], apiGroups: [b, a], resources: [x], resourceNames: [one]}]",
               "{APIGroups:[\"a\"], Resources:[\"x\"], ResourceNames:[\"one\"], Verbs:[\"get\"]}\n{APIGroups:[\"b\"], Resources:[\"x\"], ResourceNames:[\"one\"], Verbs:[\"get\"]}"},
       }) {
    EXPECT_EQ(describe(not_covered(rules(row.owned), rules(row.wanted))), row.missing) << row.owned << " / " << row.wanted;
  }
}

RoleIndex site() {
  RoleIndex index;
  index.set_role("", "viewer", rules("[{verbs: [get, list, watch], apiGroups: [''], resources: [pods]}]"));
  index.set_role("", "discovery", rules("[{verbs: [get], nonResourceURLs: [/api, /api/*]}]"));
  index.set_role("team", "editor", rules("[{verbs: ['*'], apiGroups: [''], resources: [configmaps]}]"));
  index.set_role("other", "editor", rules("[{verbs: ['*'], apiGroups: [''], resources: [secrets]}]"));
  const auto bind = [&](const char* text) { index.set_binding(parse_binding(yaml(text))); };
  bind("{metadata: {name: all}, roleRef: {kind: ClusterRole, name: discovery}, subjects: [{kind: Group, name: 'system:authenticated'}]}");
  bind("{metadata: {name: ops}, roleRef: {kind: ClusterRole, name: viewer}, subjects: [{kind: Group, name: ops}, {kind: User, name: ann}]}");
  bind("{metadata: {name: eve, namespace: team}, roleRef: {kind: Role, name: editor}, subjects: [{kind: User, name: eve}]}");
  bind("{metadata: {name: bot, namespace: team}, roleRef: {kind: ClusterRole, name: viewer}, subjects: [{kind: ServiceAccount, name: bot}]}");
  bind("{metadata: {name: lost, namespace: team}, roleRef: {kind: Role, name: gone}, subjects: [{kind: User, name: lost}]}");
  return index;
}
User user(const std::string& name, std::vector<std::string> groups = {}) {
  groups.emplace_back(authenticated_group);
  return {name, std::move(groups)};
}

TEST(Rbac, BindingsGiveRolesToUsersGroupsAndAccounts) {
  const RoleIndex index = site();
  struct Row {
    User who;
    Attributes what;
    bool want;
    const char* reason;
  };
  for (const Row& row : {
           Row{user("eve"), ask("update", "configmaps", "team", "c"), true, R"(RBAC: allowed by RoleBinding "eve/team" of Role "editor" to User "eve")"},
           Row{user("eve"), ask("update", "configmaps", "other", "c"), false, ""},
           Row{user("eve"), ask("list", "configmaps"), false, ""},
           Row{user("eve"), ask("get", "secrets", "team", "s"), false, ""},
           Row{user("eve"), ask("get", "/api/v1"), true, R"(RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "discovery" to Group "system:authenticated")"},
           Row{user("eve"), ask("get", "/metrics"), false, ""},
           Row{user("bob", {"ops"}), ask("list", "pods"), true, R"(RBAC: allowed by ClusterRoleBinding "ops" of ClusterRole "viewer" to Group "ops")"},
           Row{user("bob", {"ops"}), ask("list", "pods", "team"), true, R"(RBAC: allowed by ClusterRoleBinding "ops" of ClusterRole "viewer" to Group "ops")"},
           Row{user("ops"), ask("list", "pods"), false, ""},  // a user is not a group of the same name
           Row{user("system:serviceaccount:team:bot"), ask("list", "pods", "team"), true, R"(RBAC: allowed by RoleBinding "bot/team" of ClusterRole "viewer" to ServiceAccount "bot/team")"},
           Row{user("system:serviceaccount:team:bot"), ask("list", "pods"), false, ""},
           Row{user("lost"), ask("get", "pods", "team", "p"), false, R"(RBAC: role.rbac.authorization.k8s.io "gone" not found)"},
       }) {
    const Verdict verdict = index.authorize(row.who, row.what, true);
    EXPECT_EQ(verdict.allowed, row.want) << row.who.name << ' ' << row.what.verb << ' ' << row.what.resource << row.what.path;
    EXPECT_EQ(verdict.reason, row.reason);
  }
}

TEST(Rbac, ChangesTakeEffect) {
  RoleIndex index = site();
  const Attributes list = ask("list", "pods");
  EXPECT_TRUE(index.authorize(user("ann"), list).allowed);
  index.set_binding(parse_binding(yaml("{metadata: {name: ops}, roleRef: {kind: ClusterRole, name: viewer}, subjects: [{kind: Group, name: ops}]}")));
  EXPECT_FALSE(index.authorize(user("ann"), list).allowed);
  EXPECT_TRUE(index.authorize(user("bob", {"ops"}), list).allowed);
  index.drop_role("", "viewer");
  EXPECT_FALSE(index.authorize(user("bob", {"ops"}), list).allowed);
  index.set_role("", "viewer", rules("[{verbs: [list], apiGroups: [''], resources: [pods]}]"));
  EXPECT_TRUE(index.authorize(user("bob", {"ops"}), list).allowed);
  index.drop_binding("", "ops");
  EXPECT_FALSE(index.authorize(user("bob", {"ops"}), list).allowed);
  // Bindings without subjects come and go, too.
  for (const char* name : {"b1", "b2"}) index.set_binding(parse_binding(yaml(std::string("{metadata: {namespace: some, name: ") + name + "}, roleRef: {kind: Role, name: r}}")));
  for (const char* name : {"b1", "b2", "eve", "bot", "lost"}) index.drop_binding(std::string(name).size() == 2 ? "some" : "team", name);
  index.drop_binding("", "all");
  EXPECT_EQ(index.bindings(), 0u);
}

TEST(Rbac, RulesOfAUserAreThoseOfTheirBindings) {
  const RoleIndex index = site();
  EXPECT_EQ(index.rules_for(user("eve"), "team").size(), 2u);
  EXPECT_EQ(index.rules_for(user("eve"), "").size(), 1u);
  EXPECT_EQ(index.rules_for(user("ann", {"ops"}), "").size(), 2u);  // bound twice by one binding
  std::vector<std::string> problems;
  EXPECT_EQ(index.rules_for(user("lost"), "team", &problems).size(), 1u);
  EXPECT_THAT(problems, testing::ElementsAre(R"(role.rbac.authorization.k8s.io "gone" not found)"));
}

TEST(RbacKinds, RefusesWhatKubernetesRefuses) {
  struct Row {
    const kube::Resource& resource;
    const char *object, *want;
  };
  namespace r = rbac_resources;
  for (const Row& row : {
           Row{r::roles, "{rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}", ""},
           Row{r::roles, "{rules: [{verbs: [], apiGroups: [''], resources: [pods]}]}", "rules[0].verbs: Required value: verbs must contain at least one value"},
           Row{r::roles, "{rules: [{verbs: [get], resources: [pods]}]}", "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
           Row{r::roles, "{rules: [{verbs: [get], nonResourceURLs: [/a]}]}",
               R"(rules[0].nonResourceURLs: Invalid value: []string{"/a"}: namespaced rules cannot apply to non-resource URLs)"},
           Row{r::cluster_roles, "{rules: [{verbs: [get], nonResourceURLs: [/a]}]}", ""},
           Row{r::cluster_roles, "{rules: [{verbs: [get], nonResourceURLs: [/a], resources: [x]}]}",
               R"(rules[0].nonResourceURLs: Invalid value: []string{"/a"}: rules cannot apply to both regular resources and non-resource URLs)"},
           Row{r::cluster_roles, "{aggregationRule: {}}", "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"},
           Row{r::role_bindings, "{roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}]}", ""},
           Row{r::cluster_role_bindings, "{roleRef: {kind: Role, name: r}}", R"(roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole")"},
           Row{r::cluster_role_bindings, "{roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: ServiceAccount, name: a}]}", "subjects[0].namespace: Required value"},
           Row{r::role_bindings, "{roleRef: {kind: Role}}", "roleRef.name: Required value"},
           Row{r::role_bindings, "{roleRef: {kind: Role, name: a/b}}", R"(roleRef.name: Invalid value: "a/b": may not contain '/')"},
           Row{r::role_bindings, "{roleRef: {kind: Role, name: r}, subjects: [{kind: Robot, name: x}]}",
               R"(subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group")"},
       }) {
    Json object = yaml(row.object);
    default_rbac(row.resource, object);
    FieldErrors errors;
    check_rbac(row.resource, object, errors);
    EXPECT_EQ(errors.texts().empty() ? "" : errors.texts().front(), row.want) << row.object;
  }
}

}  // namespace
}  // namespace fairlead::apiserver
