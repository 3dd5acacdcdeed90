// SPDX-License-Identifier: Apache-2.0
// Rights, tokens and admission through the HTTP face: roles made by an administrator, used by others.
#include "apiserver/auth_access.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/api_test_kit.h"
#include "apiserver/local_api.h"
#include "apiserver/rbac_controller.h"
#include "apiserver/rbac_kinds.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::HasSubstr;
const std::string rbac = "/apis/rbac.authorization.k8s.io/v1", reviews = "/apis/authorization.k8s.io/v1";

std::string as_json(const std::string& yaml) { return print_json(kube::parse_yaml(yaml)->at(0)); }

struct World : testing_kit::Api {
  World() : Api(with_keys()) {}
  explicit World(HandlerOptions options) : Api(std::move(options)) {}
  static HandlerOptions with_keys() {
    HandlerOptions options;
    options.token_keys = *TokenKeys::make(*make_token_key());
    return options;
  }
  int status(const std::string& token, const std::string& method, const std::string& target, const std::string& yaml = "", http::Headers headers = {}) {
    return ask(method, target, yaml.empty() ? "" : as_json(yaml), std::move(headers), token).status;
  }
  void must(const std::string& target, const std::string& yaml) {
    const auto response = ask("POST", target, as_json(yaml));
    EXPECT_EQ(response.status, 201) << target << ": " << response.body;
  }
  Json said(const std::string& token, const std::string& method, const std::string& target, const std::string& yaml = "", http::Headers headers = {}) {
    const auto parsed = kube::parse_json(ask(method, target, yaml.empty() ? "" : as_json(yaml), std::move(headers), token).body);
    return parsed ? *parsed : Json();
  }
  void bind_eve(const std::string& rules) {
    must(rbac + "/namespaces/default/roles", "{metadata: {name: eves}, rules: " + rules + "}");
    must(rbac + "/namespaces/default/rolebindings", "{metadata: {name: eves}, roleRef: {kind: Role, name: eves}, subjects: [{kind: User, name: eve}]}");
  }
};

TEST(Access, ARoleIsInForceWhenItsCreateIsAnswered) {
  World world;
  const std::string maps = "/api/v1/namespaces/default/configmaps";
  EXPECT_EQ(world.status("eve-token", "GET", maps), 403);
  world.bind_eve("[{verbs: [list, create], apiGroups: [''], resources: [configmaps]}]");
  EXPECT_EQ(world.status("eve-token", "GET", maps), 200);
  EXPECT_EQ(world.status("eve-token", "POST", maps, "{metadata: {name: c}}"), 201);
  EXPECT_EQ(world.status("eve-token", "GET", maps + "/c"), 403);
  EXPECT_EQ(world.status("eve-token", "GET", "/api/v1/configmaps"), 403);
  EXPECT_EQ(world.status("eve-token", "GET", "/api/v1/namespaces/kube-system/configmaps"), 403);
  EXPECT_EQ(world.status("admin-token", "DELETE", rbac + "/namespaces/default/rolebindings/eves"), 200);
  EXPECT_EQ(world.status("eve-token", "GET", maps), 403);
}

// As by a webhook of a kube-apiserver: others say whose a token is; what they may do is decided here, and nobody of the system comes that way.
TEST(Access, OthersMayVouchForATokenAndMakeNoAdministrator) {
  for (const bool with_tokens_of_our_own : {true, false}) {
    HandlerOptions options = World::with_keys();
    if (!with_tokens_of_our_own) options.token_keys.reset();
    options.foreign_tokens = [](std::string_view token) -> Result<User> {
      if (token == "foreign-eve") return User{.name = "eve", .groups = {"guests"}};
      if (token == "foreign-masters") return User{.name = "mallory", .groups = {"system:masters"}};
      if (token == "foreign-node") return User{.name = "system:node:w0"};
      return fail(Code::Unauthorized, "none of ours");
    };
    World world(std::move(options));
    const std::string maps = "/api/v1/namespaces/default/configmaps";
    EXPECT_EQ(world.status("foreign-eve", "GET", maps), 403);
    world.bind_eve("[{verbs: [list], apiGroups: [''], resources: [configmaps]}]");
    EXPECT_EQ(world.status("foreign-eve", "GET", maps), 200);
    for (const char* const token : {"foreign-masters", "foreign-node", "foreign-nobody", "a.b.c"}) EXPECT_EQ(world.status(token, "GET", maps), 401) << token;
    // It is for this API: nobody else is told that it is good for him.
    const auto review = [&](const std::string& audiences) { return world.said("admin-token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "{kind: TokenReview, apiVersion: authentication.k8s.io/v1, spec: {token: foreign-eve" + audiences + "}}")["status"]["authenticated"].boolean(); };
    EXPECT_TRUE(review(""));
    EXPECT_TRUE(review(", audiences: ['https://kubernetes.default.svc.cluster.local', vault]"));
    EXPECT_FALSE(review(", audiences: [vault]"));
    EXPECT_EQ(world.said("foreign-eve", "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{kind: SelfSubjectReview, apiVersion: authentication.k8s.io/v1}")["status"]["userInfo"]["groups"], *kube::parse_json(R"(["guests", "system:authenticated"])"));
  }
}

TEST(Access, NobodyGrantsWhatTheyDoNotHold) {
  World world;
  world.bind_eve("[{verbs: [get, create, patch], apiGroups: [rbac.authorization.k8s.io], resources: [roles, rolebindings]}, {verbs: [get], apiGroups: [''], resources: [pods]}]");
  const std::string roles = rbac + "/namespaces/default/roles", bindings = rbac + "/namespaces/default/rolebindings";
  EXPECT_EQ(world.status("eve-token", "POST", roles, "{metadata: {name: fine}, rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]}"), 201);
  const Json refused = world.said("eve-token", "POST", roles, "{metadata: {name: more}, rules: [{verbs: [get, list], apiGroups: [''], resources: [secrets]}]}");
  EXPECT_EQ(refused["code"].integer(), 403);
  EXPECT_EQ(refused["message"].string(),
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"eve\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n"
            "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}");
  const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  EXPECT_EQ(world.status("eve-token", "PATCH", roles + "/fine", "{rules: [{verbs: ['*'], apiGroups: [''], resources: [pods]}]}", merge), 403);
  EXPECT_EQ(world.status("eve-token", "PATCH", roles + "/fine", "{metadata: {labels: {a: b}}}", merge), 200);
  EXPECT_EQ(world.status("eve-token", "POST", bindings, "{metadata: {name: me}, roleRef: {kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, name: eve}]}"), 403);
  EXPECT_EQ(world.status("eve-token", "POST", bindings, "{metadata: {name: ok}, roleRef: {kind: Role, name: fine}, subjects: [{kind: User, name: bob}]}"), 201);
  EXPECT_EQ(world.status("eve-token", "POST", bindings, "{metadata: {name: gone}, roleRef: {kind: Role, name: gone}, subjects: [{kind: User, name: bob}]}"), 404);
  EXPECT_EQ(world.status("eve-token", "POST", rbac + "/clusterroles", "{metadata: {name: x}, rules: []}"), 403);
  // With the verbs bind and escalate they may.
  world.must(roles, "{metadata: {name: binder}, rules: [{verbs: [bind], apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [cluster-admin]}, "
                    "{verbs: [escalate], apiGroups: [rbac.authorization.k8s.io], resources: [roles]}]}");
  world.must(bindings, "{metadata: {name: binder}, roleRef: {kind: Role, name: binder}, subjects: [{kind: User, name: eve}]}");
  EXPECT_EQ(world.status("eve-token", "POST", bindings, "{metadata: {name: me}, roleRef: {kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, name: eve}]}"), 201);
  EXPECT_EQ(world.status("eve-token", "POST", roles, "{metadata: {name: more}, rules: [{verbs: [get], apiGroups: [''], resources: [secrets]}]}"), 201);
}

TEST(Access, AnApplyThatMakesTheObjectIsACreate) {
  World world;
  world.bind_eve("[{verbs: [get, patch], apiGroups: [''], resources: [configmaps]}]");
  const std::string target = "/api/v1/namespaces/default/configmaps/c?fieldManager=t", body = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}";
  const http::Headers apply{{"Content-Type", "application/apply-patch+yaml"}};
  const Json refused = world.said("eve-token", "PATCH", target, body, apply);
  EXPECT_EQ(refused["message"].string(), "configmaps \"c\" is forbidden: User \"eve\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"");
  EXPECT_EQ(world.status("admin-token", "PATCH", target, body, apply), 201);
  EXPECT_EQ(world.status("eve-token", "PATCH", target, body, apply), 200);
}

TEST(Access, ABindingKeepsItsRole) {
  World world;
  world.bind_eve("[{verbs: [get], apiGroups: [''], resources: [pods]}]");
  const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  const Json refused = world.said("admin-token", "PATCH", rbac + "/namespaces/default/rolebindings/eves", "{roleRef: {name: other}}", merge);
  EXPECT_EQ(refused["code"].integer(), 422);
  EXPECT_THAT(refused["message"].string(), HasSubstr("cannot change roleRef"));
}

TEST(Access, ImpersonationIsAPermission) {
  World world;
  const auto as = [](const char* user) { return http::Headers{{"Impersonate-User", user}}; };
  EXPECT_EQ(world.status("admin-token", "GET", "/api/v1/pods", "", as("eve")), 403);
  EXPECT_EQ(world.status("admin-token", "GET", "/api", "", as("eve")), 200);
  const Json refused = world.said("eve-token", "GET", "/api", "", as("admin"));
  EXPECT_EQ(refused["message"].string(), "users \"admin\" is forbidden: User \"eve\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope");
  EXPECT_EQ(world.status("admin-token", "GET", "/api/v1/pods", "", {{"Impersonate-Group", "system:masters"}}), 400);
  EXPECT_EQ(world.status("admin-token", "GET", "/api/v1/pods", "", {{"Impersonate-User", "eve"}, {"Impersonate-Group", "system:masters"}}), 200);
  world.must(rbac + "/clusterroles", "{metadata: {name: actor}, rules: [{verbs: [impersonate], apiGroups: [''], resources: [users], resourceNames: [bob]}]}");
  world.must(rbac + "/clusterrolebindings", "{metadata: {name: actor}, roleRef: {kind: ClusterRole, name: actor}, subjects: [{kind: User, name: eve}]}");
  EXPECT_EQ(world.status("eve-token", "GET", "/api", "", as("bob")), 200);
  EXPECT_EQ(world.status("eve-token", "GET", "/api", "", as("admin")), 403);
  EXPECT_EQ(world.status("eve-token", "GET", "/api", "", {{"Impersonate-User", "bob"}, {"Impersonate-Group", "system:masters"}}), 403);
}

TEST(Access, ReviewsAnswerForOthers) {
  World world;
  world.bind_eve("[{verbs: [get], apiGroups: [''], resources: [pods]}]");
  const Json one = world.said("admin-token", "POST", reviews + "/subjectaccessreviews", "{spec: {user: eve, resourceAttributes: {verb: get, resource: pods, namespace: default}}}");
  EXPECT_TRUE(one["status"]["allowed"].boolean()) << print_json(one);
  EXPECT_EQ(one["status"]["reason"].string(), "RBAC: allowed by RoleBinding \"eves/default\" of Role \"eves\" to User \"eve\"");
  const Json two = world.said("admin-token", "POST", reviews + "/subjectaccessreviews", "{spec: {user: eve, resourceAttributes: {verb: get, resource: pods, namespace: other}}}");
  EXPECT_FALSE(two["status"]["allowed"].boolean(true));
  const Json local = world.said("admin-token", "POST", reviews + "/namespaces/default/localsubjectaccessreviews",
                                "{metadata: {namespace: default}, spec: {user: eve, resourceAttributes: {verb: get, resource: pods, namespace: default}}}");
  EXPECT_TRUE(local["status"]["allowed"].boolean()) << print_json(local);
  const Json rules = world.said("eve-token", "POST", reviews + "/selfsubjectrulesreviews", "{spec: {namespace: default}}");
  EXPECT_THAT(print_json(rules["status"]["resourceRules"]), HasSubstr("selfsubjectreviews"));
  EXPECT_THAT(print_json(rules["status"]["resourceRules"]), HasSubstr("\"pods\""));
  EXPECT_THAT(print_json(rules["status"]["nonResourceRules"]), HasSubstr("/api/*"));
  struct Row {
    const char *path, *body;
    int want;
  };
  for (const Row& row : {
           Row{"/subjectaccessreviews", "{spec: {user: eve}}", 422},
           Row{"/subjectaccessreviews", "{spec: {resourceAttributes: {verb: get}}}", 422},
           Row{"/subjectaccessreviews", "{spec: {user: 3, resourceAttributes: {verb: get}}}", 400},
           Row{"/subjectaccessreviews", "{kind: Pod, apiVersion: v1}", 400},
           Row{"/selfsubjectrulesreviews", "{}", 400},
           Row{"/namespaces/default/localsubjectaccessreviews", "{spec: {user: eve, resourceAttributes: {verb: get, resource: pods, namespace: other}}}", 422},
           Row{"/localsubjectaccessreviews", "{spec: {user: eve}}", 404},
           Row{"/namespaces/default/subjectaccessreviews", "{spec: {user: eve}}", 404},
       }) {
    EXPECT_EQ(world.status("admin-token", "POST", reviews + row.path, row.body), row.want) << row.path << ' ' << row.body;
  }
  EXPECT_EQ(world.status("eve-token", "POST", reviews + "/subjectaccessreviews", "{spec: {user: eve}}"), 403);
}

TEST(Access, ServiceAccountsHaveTokens) {
  World world;
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: bot}}");
  const std::string path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
  const Json issued = world.said("admin-token", "POST", path, "{spec: {expirationSeconds: 600}}");
  const std::string token = issued["status"]["token"].string();
  ASSERT_FALSE(token.empty()) << print_json(issued);
  EXPECT_EQ(world.status(token, "GET", "/api"), 200);
  EXPECT_EQ(world.status(token, "GET", "/.well-known/openid-configuration"), 200);
  EXPECT_EQ(world.status(token, "GET", "/openid/v1/jwks"), 200);
  EXPECT_EQ(world.status("eve-token", "GET", "/openid/v1/jwks"), 403);
  EXPECT_EQ(world.said(token, "GET", "/api/v1/namespaces/default/pods")["message"].string(),
            "pods is forbidden: User \"system:serviceaccount:default:bot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"");
  world.must(rbac + "/namespaces/default/rolebindings", "{metadata: {name: bot}, roleRef: {kind: ClusterRole, name: system:aggregate-to-view}, subjects: [{kind: ServiceAccount, name: bot}]}");
  EXPECT_EQ(world.status(token, "GET", "/api/v1/namespaces/default/pods"), 200);
  EXPECT_EQ(world.status("eve-token", "POST", path, "{}"), 403);
  EXPECT_EQ(world.said("admin-token", "POST", path, "{spec: {expirationSeconds: 10}}")["code"].integer(), 422);

  const Json review = world.said("admin-token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "{spec: {token: " + token + "}}");
  EXPECT_TRUE(review["status"]["authenticated"].boolean()) << print_json(review);
  EXPECT_EQ(review["status"]["user"]["username"].string(), "system:serviceaccount:default:bot");
  EXPECT_EQ(review["status"]["audiences"].items().size(), 1u);
  const Json foreign = world.said("admin-token", "POST", "/apis/authentication.k8s.io/v1/tokenreviews", "{spec: {token: " + token + ", audiences: [vault]}}");
  EXPECT_FALSE(foreign["status"]["authenticated"].boolean());
  EXPECT_FALSE(foreign["status"]["error"].string().empty());
  std::string forged = token;
  forged[token.size() / 2] = forged[token.size() / 2] == 'A' ? 'B' : 'A';
  EXPECT_EQ(world.status(forged, "GET", "/api"), 401);

  // Made anew under the same name it is another account.
  EXPECT_EQ(world.status("admin-token", "DELETE", "/api/v1/namespaces/default/serviceaccounts/bot"), 200);
  EXPECT_EQ(world.status(token, "GET", "/api"), 401);
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: bot}}");
  EXPECT_EQ(world.status(token, "GET", "/api"), 401);
}

TEST(Access, ANodeGetsTokensOfItsPodsOnly) {
  World world;
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: bot}}");
  world.must("/api/v1/namespaces/default/pods", "{metadata: {name: here}, spec: {serviceAccountName: bot, nodeName: w0, containers: [{name: c, image: i}]}}");
  world.must("/api/v1/namespaces/default/pods", "{metadata: {name: there}, spec: {nodeName: w1, containers: [{name: c, image: i}]}}");
  const auto uid = [&](const char* pod) { return kube::uid_of(world.json("GET", std::string("/api/v1/namespaces/default/pods/") + pod)); };
  const auto body = [&](const char* pod) { return fmt::format("{{spec: {{boundObjectRef: {{apiVersion: v1, kind: Pod, name: {}, uid: {}}}}}}}", pod, uid(pod)); };
  const std::string accounts = "/api/v1/namespaces/default/serviceaccounts/";
  const Json issued = world.said("node-token", "POST", accounts + "bot/token", body("here"));
  const std::string token = issued["status"]["token"].string();
  ASSERT_FALSE(token.empty()) << print_json(issued);
  EXPECT_EQ(world.status("node-token", "POST", accounts + "bot/token", "{}"), 403);
  EXPECT_EQ(world.status("node-token", "POST", accounts + "bot/token", body("there")), 403);
  EXPECT_EQ(world.status("node-token", "POST", accounts + "default/token", body("there")), 403);
  EXPECT_EQ(world.status(token, "GET", "/api"), 200);
  EXPECT_EQ(world.status("admin-token", "DELETE", "/api/v1/namespaces/default/pods/here?gracePeriodSeconds=0"), 200);
  EXPECT_EQ(world.status(token, "GET", "/api"), 401);
}

TEST(Access, ANodeCannotChangeItsTaintsOrForeignLabels) {
  World world;
  EXPECT_EQ(world.status("node-token", "POST", "/api/v1/nodes", "{metadata: {name: w0, labels: {node-role.kubernetes.io/master: ''}}}"), 403);
  EXPECT_EQ(world.status("node-token", "POST", "/api/v1/nodes", "{metadata: {name: w0, labels: {kubernetes.io/hostname: w0}}, spec: {taints: [{key: a, effect: NoSchedule}]}}"), 201);
  const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};
  const Json refused = world.said("node-token", "PATCH", "/api/v1/nodes/w0", "{spec: {taints: []}}", merge);
  EXPECT_EQ(refused["message"].string(), "nodes \"w0\" is forbidden: node \"w0\" is not allowed to modify taints");
  EXPECT_EQ(world.status("node-token", "PATCH", "/api/v1/nodes/w0", "{metadata: {labels: {kubernetes.io/tier: gold}}}", merge), 403);
  EXPECT_EQ(world.status("node-token", "PATCH", "/api/v1/nodes/w0", "{metadata: {labels: {site: gold}}}", merge), 200);
  EXPECT_EQ(world.status("admin-token", "PATCH", "/api/v1/nodes/w0", "{spec: {taints: []}}", merge), 200);
}

TEST(Access, PodsGetAccountAndPriority) {
  World world;
  const std::string pods = "/api/v1/namespaces/default/pods";
  const auto pod = [](const char* name, const char* more) { return fmt::format("{{metadata: {{name: {}}}, spec: {{{} containers: [{{name: c, image: i}}]}}}}", name, more); };
  const Json refused = world.said("admin-token", "POST", pods, pod("lost", "serviceAccountName: gone,"));
  EXPECT_EQ(refused["message"].string(), "pods \"lost\" is forbidden: error looking up service account default/gone: serviceaccount \"gone\" not found");
  world.must(pods, pod("plain", ""));
  EXPECT_EQ(world.json("GET", pods + "/plain")["spec"]["priority"].integer(-1), 0);
  EXPECT_EQ(world.json("GET", "/api/v1/namespaces/default/serviceaccounts/default")["kind"].string(), "ServiceAccount") << "made when first needed";
  const std::string classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
  world.must(classes, "{metadata: {name: high}, value: 1000, preemptionPolicy: Never}");
  world.must(classes, "{metadata: {name: usual}, value: 10, globalDefault: true}");
  EXPECT_EQ(world.said("admin-token", "POST", classes, "{metadata: {name: second}, value: 10, globalDefault: true}")["message"].string(),
            "priorityclasses.scheduling.k8s.io \"second\" is forbidden: PriorityClass usual is already marked as default. Only one default can exist");
  world.must(pods, pod("high", "priorityClassName: high,"));
  world.must(pods, pod("usual", ""));
  world.must(pods, pod("system", "priorityClassName: system-node-critical,"));
  const Json high = world.json("GET", pods + "/high")["spec"], usual = world.json("GET", pods + "/usual")["spec"];
  EXPECT_EQ(high["priority"].integer(), 1000);
  EXPECT_EQ(high["preemptionPolicy"].string(), "Never");
  EXPECT_EQ(usual["priorityClassName"].string(), "usual");
  EXPECT_EQ(usual["priority"].integer(), 10);
  EXPECT_EQ(world.json("GET", pods + "/system")["spec"]["priority"].integer(), 2'000'001'000);
  EXPECT_EQ(world.status("admin-token", "POST", pods, pod("none", "priorityClassName: none,")), 403);
  EXPECT_EQ(world.status("admin-token", "POST", pods, pod("own", "priority: 7,")), 403);
  EXPECT_EQ(world.status("admin-token", "POST", classes, "{metadata: {name: system-mine}, value: 5}"), 422);
  EXPECT_EQ(world.status("admin-token", "POST", classes, "{metadata: {name: huge}, value: 1000000001}"), 422);
}

TEST(Access, TooManyRequestsAreToldToWait) {
  HandlerOptions options;
  options.limits = {.per_second = 0.001, .burst = 2, .in_flight = 0};
  testing_kit::Api api(std::move(options));
  EXPECT_EQ(api.ask("GET", "/api", "", {}, "eve-token").status, 200);
  EXPECT_EQ(api.ask("GET", "/api", "", {}, "eve-token").status, 200);
  const auto refused = api.ask("GET", "/api", "", {}, "eve-token");
  EXPECT_EQ(refused.status, 429);
  EXPECT_FALSE(http::find(refused.headers, "Retry-After").empty());
  EXPECT_THAT(refused.body, HasSubstr("TooManyRequests"));
  EXPECT_EQ(api.ask("GET", "/api", "", {}, "admin-token").status, 200);
  EXPECT_EQ(api.ask("GET", "/readyz", "", {}, "").status, 200);
}

TEST(RbacDefaults, AreKeptAndLeaveWhatWasAdded) {
  const Json wanted = default_cluster_roles().at(1);
  EXPECT_FALSE(reconciled_role(wanted, wanted));
  Json less = wanted, more = wanted, mine = wanted;
  less.set("rules", Json::array());
  ASSERT_TRUE(reconciled_role(less, wanted));
  EXPECT_EQ((*reconciled_role(less, wanted))["rules"], wanted["rules"]);
  more.child("rules").push(to_json(Rule{.verbs = {"get"}, .urls = {"/metrics"}}));
  EXPECT_FALSE(reconciled_role(more, wanted));
  mine.set("rules", Json::array());
  mine.child("metadata").child("annotations").set("rbac.authorization.kubernetes.io/autoupdate", "false");
  EXPECT_FALSE(reconciled_role(mine, wanted));
  const Json binding = default_cluster_role_bindings().at(1);
  Json nobody = binding, elsewhere = binding;
  nobody.erase("subjects");
  ASSERT_TRUE(reconciled_binding(nobody, binding));
  EXPECT_EQ((*reconciled_binding(nobody, binding))["subjects"], binding["subjects"]);
  elsewhere.child("roleRef").set("name", "x");
  EXPECT_FALSE(reconciled_binding(elsewhere, binding));
}

// The server's own questions go the way of everybody's, and find a token of an account that is for somebody else.
TEST(Tokens, TheServerItselfAsksWhoseTheyAre) {
  World world;
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: train}}");
  const std::string token = world.said("admin-token", "POST", "/api/v1/namespaces/default/serviceaccounts/train/token", "{spec: {audiences: [sts.amazonaws.com]}}")["status"]["token"].string();
  ASSERT_FALSE(token.empty());
  const kube::Resource reviews_of_tokens{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};
  const auto api = make_local_api(*world.registry, {}, controllers_user, [&](const kube::Resource& resource, const Json& body) { return world.handler->review(resource, body); });
  const auto ask = [&](const std::string& of, const char* audience) { return api->create(reviews_of_tokens, Json::object({{"spec", Json::object({{"token", of}, {"audiences", Json::array({Json(audience)})}})}})); };
  const auto good = ask(token, "sts.amazonaws.com");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_TRUE((*good)["status"]["authenticated"].boolean());
  EXPECT_EQ((*good)["status"]["user"]["username"].string(), "system:serviceaccount:default:train");
  EXPECT_EQ((*good)["status"]["audiences"], *kube::parse_json(R"(["sts.amazonaws.com"])"));
  EXPECT_FALSE((*ask(token, "pods.eks.amazonaws.com"))["status"]["authenticated"].boolean());
  EXPECT_FALSE((*ask("x.y.z", "sts.amazonaws.com"))["status"]["authenticated"].boolean());
  EXPECT_EQ(api->create({"authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false}, Json::object()).error().code, Code::NotFound);
  EXPECT_EQ(make_local_api(*world.registry)->create(reviews_of_tokens, Json::object()).error().code, Code::NotFound);
}

TEST(PodAdmission, NewPodsGetWhatTheSiteHasForTheirAccounts) {
  HandlerOptions options = World::with_keys();
  options.equip_pod = [](const std::string& space, const Json& account, Json& pod, const FindObject& look) {
    if (!account["metadata"]["annotations"].has("equip")) return;
    const auto map = look(kube::resources::config_maps, {space, "site"});
    pod.child("metadata").child("annotations").set("equipped", map ? (*map)["data"]["word"].string() : std::string("nothing"));
  };
  World world(std::move(options));
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: default}}");
  world.must("/api/v1/namespaces/default/serviceaccounts", "{metadata: {name: train, annotations: {equip: 'yes'}}}");
  world.must("/api/v1/namespaces/default/configmaps", "{metadata: {name: site}, data: {word: hello}}");
  const auto pod = [&](const std::string& name, const std::string& account, const std::string& more = "") {
    return world.said("admin-token", "POST", "/api/v1/namespaces/default/pods", "{metadata: {name: " + name + more + "}, spec: {" + account + "containers: [{name: c, image: i}]}}")["metadata"]["annotations"]["equipped"].string();
  };
  EXPECT_EQ(pod("one", "serviceAccountName: train, "), "hello");
  EXPECT_EQ(pod("two", ""), "");
  // By the controllers of the server itself, too.
  const auto made = make_local_api(*world.registry)->create(kube::resources::pods, kube::parse_yaml("{metadata: {name: three, namespace: default}, spec: {serviceAccountName: train, containers: [{name: c, image: i}]}}")->at(0));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ((*made)["metadata"]["annotations"]["equipped"].string(), "hello");
  // Only when they are made.
  EXPECT_EQ(world.status("admin-token", "PATCH", "/api/v1/namespaces/default/pods/two", "{metadata: {labels: {a: b}}}", {{"Content-Type", "application/merge-patch+json"}}), 200);
  EXPECT_TRUE(world.said("admin-token", "GET", "/api/v1/namespaces/default/pods/two")["metadata"]["annotations"]["equipped"].is_null());
}

TEST(RbacDefaults, AggregatesWhatItSelects) {
  const std::vector<Json> all = default_cluster_roles();
  const auto named = [&](const char* name) { return *std::find_if(all.begin(), all.end(), [&](const Json& role) { return kube::name_of(role) == name; }); };
  const Json view = aggregated_rules(named("view"), all);
  EXPECT_EQ(view, named("system:aggregate-to-view")["rules"]);
  const Rules rules = parse_rules(view);
  EXPECT_TRUE(any_allows(rules, {.verb = "get", .resource = "pods"}));
  EXPECT_FALSE(any_allows(rules, {.verb = "get", .resource = "secrets"}));
  // "edit" selects the role of its own and "view", whose rules come when they are there.
  const Rules edit = parse_rules(aggregated_rules(named("edit"), all));
  EXPECT_TRUE(any_allows(edit, {.verb = "create", .resource = "pods"}));
  EXPECT_FALSE(any_allows(edit, {.verb = "create", .group = std::string(rbac_group), .resource = "roles"}));
}

}  // namespace
}  // namespace fairlead::apiserver
