// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth.h"

#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::apiserver {
namespace {

class Facts final : public NodeFacts {
 public:
  bool pod_is_on(const std::string&, const std::string& pod, const std::string& node) const override { return pod == "on-" + node; }
  bool pod_there_uses(const std::string& node, const std::string& resource, const std::string&, const std::string& name) const override {
    return node == "w0" && (resource == "secrets" || resource == "configmaps") && name == "used";
  }
};

User node_user() { return {"system:node:w0", {"system:nodes", "system:authenticated"}}; }
User admin() { return {"admin", {"system:masters"}}; }
User stranger() { return {"eve", {"system:authenticated"}}; }

Attributes ask(const char* verb, const char* group, const char* resource, const char* subresource, const char* space, const char* name) {
  Attributes out;
  out.verb = verb, out.group = group, out.resource = resource, out.subresource = subresource, out.space = space, out.name = name;
  return out;
}

TEST(Auth, NodesWriteOnlyWhatIsTheirs) {
  struct Row {
    const char *verb, *group, *resource, *subresource, *space, *name;
    bool want;
  };
  for (const Row& row : {
           Row{"list", "", "pods", "", "", "", true},
           Row{"get", "", "nodes", "", "", "w1", true},
           Row{"watch", "", "services", "", "", "", true},
           Row{"get", "", "secrets", "", "a", "used", true},
           Row{"get", "", "secrets", "", "a", "other", false},
           Row{"list", "", "secrets", "", "a", "", false},
           Row{"get", "", "configmaps", "", "a", "used", true},
           Row{"create", "", "nodes", "", "", "w0", true},
           Row{"create", "", "nodes", "", "", "w1", false},
           Row{"patch", "", "nodes", "status", "", "w0", true},
           Row{"patch", "", "nodes", "status", "", "w1", false},
           Row{"delete", "", "nodes", "", "", "w0", false},
           Row{"update", "coordination.k8s.io", "leases", "", "kube-node-lease", "w0", true},
           Row{"update", "coordination.k8s.io", "leases", "", "kube-node-lease", "w1", false},
           Row{"update", "coordination.k8s.io", "leases", "", "kube-system", "w0", false},
           Row{"patch", "", "pods", "status", "a", "on-w0", true},
           Row{"patch", "", "pods", "status", "a", "on-w1", false},
           Row{"patch", "", "pods", "", "a", "on-w0", false},
           Row{"delete", "", "pods", "", "a", "on-w0", true},
           Row{"delete", "", "pods", "", "a", "on-w1", false},
           Row{"create", "", "pods", "", "a", "x", false},
           Row{"create", "", "pods", "exec", "a", "on-w0", false},
           Row{"get", "", "pods", "log", "a", "on-w0", false},
           Row{"create", "", "events", "", "a", "", true},
           Row{"delete", "", "events", "", "a", "e", false},
           Row{"create", "", "secrets", "", "a", "s", false},
           Row{"create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", "", true},
           Row{"list", "apiextensions.k8s.io", "customresourcedefinitions", "", "", "", false},
       }) {
    const Attributes attributes = ask(row.verb, row.group, row.resource, row.subresource, row.space, row.name);
    EXPECT_EQ(authorize(node_user(), attributes, Facts()).allowed, row.want) << row.verb << ' ' << row.resource << '/' << row.subresource << ' ' << row.name;
    EXPECT_TRUE(authorize(admin(), attributes, Facts()).allowed);
  }
  Attributes selected = ask("watch", "", "secrets", "", "a", "");
  selected.selected_name = "used";
  EXPECT_TRUE(authorize(node_user(), selected, Facts()).allowed);
}

TEST(Auth, ACommonNameAloneMakesNoNode) {
  const User fake{"system:node:w0", {"system:authenticated"}};
  EXPECT_EQ(fake.node(), "");
  EXPECT_FALSE(authorize(fake, ask("list", "", "pods", "", "", ""), Facts()).allowed);
}

TEST(Auth, StrangersMayOnlyAskAboutThemselves) {
  EXPECT_FALSE(authorize(stranger(), ask("list", "", "pods", "", "a", ""), Facts()).allowed);
  EXPECT_TRUE(authorize(stranger(), ask("create", "authentication.k8s.io", "selfsubjectreviews", "", "", ""), Facts()).allowed);
  Attributes path;
  path.verb = "get", path.resource_request = false;
  for (const char* open : {"/api", "/apis/apps", "/openapi/v3", "/version"}) {
    path.path = open;
    EXPECT_TRUE(authorize(stranger(), path, Facts()).allowed) << open;
  }
  for (const char* closed : {"/metrics", "/apiary", "/"}) {
    path.path = closed;
    EXPECT_FALSE(authorize(stranger(), path, Facts()).allowed) << closed;
  }
}

TEST(Auth, RefusalsReadAsInKubernetes) {
  EXPECT_EQ(forbidden_message(stranger(), ask("list", "", "pods", "", "default", ""), {}),
            "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"");
  EXPECT_EQ(forbidden_message(stranger(), ask("get", "apps", "deployments", "scale", "", "d"), {}),
            "deployments.apps \"d\" is forbidden: User \"eve\" cannot get resource \"deployments/scale\" in API group \"apps\" at the cluster scope");
}

TEST(Auth, IdentifiesByCertificateOrToken) {
  const std::vector<TokenUser> tokens{{sha256("right"), "bob", {"system:masters"}}};
  http::Request request;
  EXPECT_EQ(authenticate(request, tokens).error().code, Code::Unauthorized);
  request.headers = {{"authorization", "Bearer right"}};
  ASSERT_TRUE(authenticate(request, tokens));
  EXPECT_EQ(authenticate(request, tokens)->name, "bob");
  for (const char* bad : {"Bearer wrong", "Bearer ", "Basic right", "right", "Bearer rightx"}) {
    request.headers = {{"Authorization", bad}};
    EXPECT_FALSE(authenticate(request, tokens)) << bad;
  }
  request.headers.clear();
  request.peer.common_name = "system:node:w0";
  request.peer.organizations = {"system:nodes"};
  EXPECT_EQ(authenticate(request, tokens)->node(), "w0");
}

TEST(Auth, FindsTheSecretsThatAPodUses) {
  const kube::Json pod = *kube::parse_json(R"({"spec":{"imagePullSecrets":[{"name":"pull"}],
    "containers":[{"envFrom":[{"secretRef":{"name":"s1"}},{"configMapRef":{"name":"c1"}}],"env":[{"valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}}]}],
    "initContainers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":"c2","key":"k"}}}]}],
    "volumes":[{"secret":{"secretName":"s3"}},{"configMap":{"name":"c3"}},{"projected":{"sources":[{"secret":{"name":"s4"}},{"configMap":{"name":"c4"}}]}}]}})");
  for (const char* name : {"pull", "s1", "s2", "s3", "s4"}) {
    EXPECT_TRUE(pod_uses(pod, "secrets", name)) << name;
    EXPECT_FALSE(pod_uses(pod, "configmaps", name)) << name;
  }
  for (const char* name : {"c1", "c2", "c3", "c4"}) EXPECT_TRUE(pod_uses(pod, "configmaps", name)) << name;
}

}  // namespace
}  // namespace fairlead::apiserver
