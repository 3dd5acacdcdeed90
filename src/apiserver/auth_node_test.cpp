// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_node.h"

#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

class Facts final : public NodeFacts {
 public:
  bool pod_is_on(const std::string&, const std::string& pod, const std::string& node) const override { return pod == "on-" + node; }
  bool pod_there_uses(const std::string& node, const std::string& resource, const std::string&, const std::string& name) const override {
    return node == "w0" && resource != "pods" && name == "used";
  }
};

User stranger() { return {"eve", {"system:authenticated"}}; }

Attributes ask(const char* verb, const char* group, const char* resource, const char* subresource, const char* space, const char* name) {
  Attributes out;
  out.verb = verb, out.group = group, out.resource = resource, out.subresource = subresource, out.space = space, out.name = name;
  return out;
}

TEST(AuthNode, NodesWriteOnlyWhatIsTheirs) {
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
           Row{"create", "", "pods", "attach", "a", "on-w0", false},
           Row{"get", "", "pods", "attach", "a", "on-w0", false},
           Row{"get", "", "pods", "log", "a", "on-w0", false},
           Row{"create", "", "events", "", "a", "", true},
           Row{"delete", "", "events", "", "a", "e", false},
           Row{"create", "", "secrets", "", "a", "s", false},
           Row{"get", "", "persistentvolumeclaims", "", "a", "used", true},
           Row{"get", "", "persistentvolumeclaims", "", "a", "other", false},
           Row{"list", "", "persistentvolumeclaims", "", "", "", false},
           Row{"get", "", "persistentvolumes", "", "", "used", true},
           Row{"get", "", "persistentvolumes", "", "", "other", false},
           Row{"list", "", "persistentvolumes", "", "", "", false},
           Row{"patch", "", "persistentvolumes", "", "", "used", false},
           Row{"update", "", "persistentvolumeclaims", "", "a", "used", false},
           Row{"create", "", "serviceaccounts", "token", "a", "used", true},
           Row{"create", "", "serviceaccounts", "token", "a", "other", false},
           Row{"create", "", "serviceaccounts", "", "a", "used", false},
           Row{"create", "", "pods", "eviction", "a", "on-w0", true},
           Row{"create", "", "pods", "eviction", "a", "on-w1", false},
           Row{"get", "rbac.authorization.k8s.io", "roles", "", "a", "r", false},
           Row{"list", "apiextensions.k8s.io", "customresourcedefinitions", "", "", "", false},
       }) {
    const Attributes attributes = ask(row.verb, row.group, row.resource, row.subresource, row.space, row.name);
    EXPECT_EQ(authorize_node("w0", attributes, Facts()).allowed, row.want) << row.verb << ' ' << row.resource << '/' << row.subresource << ' ' << row.name;
  }
  Attributes selected = ask("watch", "", "secrets", "", "a", "");
  selected.selected_name = "used";
  EXPECT_TRUE(authorize_node("w0", selected, Facts()).allowed);
}

TEST(AuthNode, ACommonNameAloneMakesNoNode) {
  EXPECT_EQ((User{"system:node:w0", {"system:authenticated"}}.node()), "");
  EXPECT_EQ((User{"w0", {"system:nodes"}}.node()), "");
  EXPECT_EQ((User{"system:node:", {"system:nodes"}}.node()), "");
  EXPECT_EQ((User{"system:node:w0", {"system:nodes"}}.node()), "w0");
}

TEST(AuthNode, RefusalsReadAsInKubernetes) {
  EXPECT_EQ(forbidden_message(stranger(), ask("list", "", "pods", "", "default", ""), {}),
            "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"");
  EXPECT_EQ(forbidden_message(stranger(), ask("get", "apps", "deployments", "scale", "", "d"), {}),
            "deployments.apps \"d\" is forbidden: User \"eve\" cannot get resource \"deployments/scale\" in API group \"apps\" at the cluster scope");
}

TEST(AuthNode, FindsTheSecretsThatAPodUses) {
  const kube::Json pod = *kube::parse_json(R"({"spec":{"imagePullSecrets":[{"name":"pull"}],
    "containers":[{"envFrom":[{"secretRef":{"name":"s1"}},{"configMapRef":{"name":"c1"}}],"env":[{"valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}}]}],
    "initContainers":[{"env":[{"valueFrom":{"configMapKeyRef":{"name":"c2","key":"k"}}}]}],
    "volumes":[{"secret":{"secretName":"s3"}},{"configMap":{"name":"c3"}},{"projected":{"sources":[{"secret":{"name":"s4"}},{"configMap":{"name":"c4"}}]}}]}})");
  for (const char* name : {"pull", "s1", "s2", "s3", "s4"}) {
    EXPECT_TRUE(pod_uses(pod, "secrets", name)) << name;
    EXPECT_FALSE(pod_uses(pod, "configmaps", name)) << name;
  }
  for (const char* name : {"c1", "c2", "c3", "c4"}) EXPECT_TRUE(pod_uses(pod, "configmaps", name)) << name;
  EXPECT_TRUE(pod_uses(pod, "serviceaccounts", "default"));
  EXPECT_FALSE(pod_uses(pod, "serviceaccounts", "bot"));
  const kube::Json other = *kube::parse_json(R"({"spec":{"serviceAccountName":"bot","volumes":[{"persistentVolumeClaim":{"claimName":"data"}}]}})");
  EXPECT_TRUE(pod_uses(other, "serviceaccounts", "bot"));
  EXPECT_FALSE(pod_uses(other, "serviceaccounts", "default"));
  EXPECT_TRUE(pod_uses(other, "persistentvolumeclaims", "data"));
  EXPECT_FALSE(pod_uses(other, "persistentvolumeclaims", "other"));
  const kube::Json own = *kube::parse_json(R"({"metadata":{"name":"train"},"spec":{"volumes":[{"name":"cache","ephemeral":{"volumeClaimTemplate":{"spec":{}}}},{"name":"empty","emptyDir":{}}]}})");
  EXPECT_TRUE(pod_uses(own, "persistentvolumeclaims", "train-cache"));
  for (const char* name : {"train-empty", "cache", ""}) EXPECT_FALSE(pod_uses(own, "persistentvolumeclaims", name)) << name;
}

kube::Json node(const std::string& labels, const std::string& spec = "{}", const std::string& owners = "[]") {
  return *kube::parse_json(R"({"metadata":{"name":"w0","labels":)" + labels + R"(,"ownerReferences":)" + owners + R"(},"spec":)" + spec + "}");
}

TEST(AuthNode, ANodeCannotSteerWorkToItself) {
  struct Row {
    kube::Json old, next;
    const char* want;
  };
  const std::string own = R"({"kubernetes.io/hostname":"w0","site.example/rack":"3"})";
  const kube::Json none;
  for (const Row& row : {
           Row{none, node(own, R"({"taints":[{"key":"gpu","effect":"NoSchedule"}]})"), ""},
           Row{none, node(R"({"node.kubernetes.io/anything":"x","kubelet.kubernetes.io/y":"z"})"), ""},
           Row{none, node(R"({"node-restriction.kubernetes.io/secure":"yes"})"), "node \"w0\" is not allowed to set the following labels: node-restriction.kubernetes.io/secure"},
           Row{none, node(R"({"a.node-restriction.kubernetes.io/secure":"yes","pci.k8s.io/x":"y"})"),
               "node \"w0\" is not allowed to set the following labels: a.node-restriction.kubernetes.io/secure, pci.k8s.io/x"},
           Row{none, node(R"({"node-role.kubernetes.io/control-plane":""})"), "node \"w0\" is not allowed to set the following labels: node-role.kubernetes.io/control-plane"},
           Row{node(own), node(R"({"kubernetes.io/hostname":"w0","site.example/rack":"4"})"), ""},
           Row{node(own), node(R"({"kubernetes.io/hostname":"w0","kubernetes.io/tier":"gold"})"), "is not allowed to modify labels: kubernetes.io/tier"},
           Row{node(R"({"kubernetes.io/tier":"gold"})"), node("{}"), "is not allowed to modify labels: kubernetes.io/tier"},
           Row{node(own, R"({"taints":[{"key":"gpu","effect":"NoSchedule"}]})"), node(own), "node \"w0\" is not allowed to modify taints"},
           Row{node(own, R"({"taints":[]})"), node(own), ""},
           Row{node(own), node(own, R"({"unschedulable":true})"), ""},
           Row{node(own), node(own, "{}", R"([{"kind":"Pod"}])"), "node \"w0\" is not allowed to modify ownerReferences"},
       }) {
    const auto done = check_node_write("w0", row.old.is_null() ? nullptr : &row.old, row.next);
    EXPECT_EQ(done ? "" : done.error().message, row.want);
  }
  EXPECT_FALSE(check_node_write("w1", nullptr, node(own)));
}

TEST(AuthNode, KnowsWhichPodsAreWhere) {
  NodePods pods;
  pods.put({"a", "p"}, "w0", "1");
  pods.put({"a", "q"}, "w0", "2");
  pods.put({"b", "p"}, "w0", "3");
  pods.put({"a", "r"}, "w1", "4");
  EXPECT_THAT(pods.on("w0", "a"), testing::ElementsAre(kube::ObjectKey{"a", "p"}, kube::ObjectKey{"a", "q"}));
  EXPECT_THAT(pods.on("w1", "b"), testing::IsEmpty());
  EXPECT_TRUE(pods.knows({"a", "p"}, "1"));
  EXPECT_FALSE(pods.knows({"a", "p"}, "9"));
  pods.put({"a", "p"}, "w1", "9");  // made anew elsewhere
  EXPECT_THAT(pods.on("w0", "a"), testing::ElementsAre(kube::ObjectKey{"a", "q"}));
  pods.drop({"a", "p"});
  pods.drop({"a", "p"});
  EXPECT_THAT(pods.on("w1", "a"), testing::ElementsAre(kube::ObjectKey{"a", "r"}));
}

}  // namespace
}  // namespace fairlead::apiserver
