// SPDX-License-Identifier: Apache-2.0
// Admission policies through the HTTP face and in the registry: when they count, whom they ask about, what clients read.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/api_test_kit.h"
#include "apiserver/local_api.h"
#include "apiserver/workload_kinds.h"
#include "base/files.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::HasSubstr;
const std::string policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
const std::string maps = "/api/v1/namespaces/default/configmaps", pods = "/api/v1/namespaces/default/pods";
const http::Headers merge{{"Content-Type", "application/merge-patch+json"}};

std::string as_json(const std::string& yaml) {
  const auto read = kube::parse_yaml(yaml);
  EXPECT_TRUE(read) << yaml;
  return print_json(read->at(0));
}

struct World : testing_kit::Api {
  using Api::Api;
  http::Response said(const std::string& method, const std::string& target, const std::string& yaml = "", http::Headers headers = {}) { return ask(method, target, yaml.empty() ? "" : as_json(yaml), std::move(headers)); }
  int status(const std::string& method, const std::string& target, const std::string& yaml = "", http::Headers headers = {}) { return said(method, target, yaml, std::move(headers)).status; }
  void must(const std::string& target, const std::string& yaml) {
    const auto response = said("POST", target, yaml);
    EXPECT_EQ(response.status, 201) << target << ": " << response.body;
  }
  // A policy of that name with its binding.
  void policy(const std::string& name, const std::string& resources, const std::string& operations, const std::string& rest, const std::string& actions = "[Deny]", const std::string& group = "''") {
    must(policies, fmt::format("{{metadata: {{name: {}}}, spec: {{matchConstraints: {{resourceRules: [{{operations: {}, apiGroups: [{}], apiVersions: ['*'], resources: {}}}]}}, {}}}}}", name, operations, group, resources, rest));
    must(bindings, fmt::format("{{metadata: {{name: {}}}, spec: {{policyName: {}, validationActions: {}}}}}", name, name, actions));
  }
};
const std::string labelled = "validations: [{expression: \"has(object.metadata.labels) && 'owner' in object.metadata.labels\", message: an owner is needed}]";

TEST(PolicyApi, ARefusalReadsAsKubernetesWritesIt) {
  World world;
  world.policy("owners", "[configmaps]", "[CREATE, UPDATE]", labelled);
  const auto refused = world.said("POST", maps, "{metadata: {name: c}}");
  EXPECT_EQ(refused.status, 422);
  EXPECT_EQ(*kube::parse_json(refused.body), *kube::parse_json(R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",
    "message":"configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: an owner is needed","reason":"Invalid",
    "details":{"name":"c","kind":"configmaps","causes":[{"message":"ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: an owner is needed"}]},"code":422})"));
  EXPECT_EQ(world.status("GET", maps + "/c"), 404);
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: c, labels: {owner: me}}}"), 201);
  EXPECT_EQ(world.status("PATCH", maps + "/c", "{metadata: {labels: {owner: null}}}", merge), 422);
  EXPECT_EQ(world.status("PATCH", maps + "/c", "{data: {a: b}}", merge), 200);
  EXPECT_EQ(world.status("PUT", maps + "/c", "{metadata: {name: c}}"), 422);
  EXPECT_EQ(world.status("DELETE", maps + "/c"), 200) << "not asked about deletes";
  // Its binding gone, it does nothing; with it, at once something.
  EXPECT_EQ(world.status("DELETE", bindings + "/owners"), 200);
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: d}}"), 201);
}

TEST(PolicyApi, EveryWayToWriteIsAskedAbout) {
  World world;
  world.must(pods, "{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}");
  world.must("/api/v1/nodes", "{metadata: {name: pier}}");
  world.must(maps, "{metadata: {name: keep, labels: {kept: 'yes'}}}");
  world.policy("no-apply", "[secrets]", "[CREATE]", "validations: [{expression: 'false', message: no secrets}]");
  world.policy("no-status", "[pods/status]", "[UPDATE]", "validations: [{expression: \"object.status.phase != 'Failed'\", message: no failure}]");
  world.policy("no-binding", "[pods/binding]", "[CREATE]", "validations: [{expression: \"object.target.name != 'pier'\", message: not there}]");
  world.policy("no-eviction", "[pods/eviction]", "[CREATE]", "validations: [{expression: 'false', message: stays}]");
  world.policy("no-delete", "[configmaps]", "[DELETE]", "validations: [{expression: \"!has(oldObject.metadata.labels) || !('kept' in oldObject.metadata.labels)\", message: it is kept, reason: Forbidden}]");
  EXPECT_THAT(world.said("PATCH", "/api/v1/namespaces/default/secrets/s?fieldManager=me", "{apiVersion: v1, kind: Secret, metadata: {name: s}}", {{"Content-Type", "application/apply-patch+yaml"}}).body, HasSubstr("no secrets"));
  EXPECT_THAT(world.said("POST", "/api/v1/namespaces/default/secrets", "{metadata: {generateName: s-}}").body, HasSubstr("secrets \\\"s-")) << "by the name that it would have had";
  EXPECT_EQ(world.status("POST", "/api/v1/namespaces/default/secrets?dryRun=All", "{metadata: {name: s}}"), 422);
  EXPECT_THAT(world.said("PATCH", pods + "/web/status", "{status: {phase: Failed}}", merge).body, HasSubstr("no failure"));
  EXPECT_EQ(world.status("PATCH", pods + "/web/status", "{status: {phase: Running}}", merge), 200);
  EXPECT_THAT(world.said("POST", pods + "/web/binding", "{target: {kind: Node, name: pier}}").body, HasSubstr("not there"));
  EXPECT_EQ(world.status("POST", pods + "/web/binding", "{target: {kind: Node, name: m}}"), 201);
  EXPECT_THAT(world.said("POST", pods + "/web/eviction", "{metadata: {name: web}}").body, HasSubstr("stays"));
  EXPECT_EQ(world.status("DELETE", maps + "/keep"), 403);
  EXPECT_EQ(world.status("DELETE", maps), 403) << "also among many";
  EXPECT_EQ(world.status("GET", maps + "/keep"), 200);
}

TEST(PolicyApi, TheScaleOfACustomResourceIsAskedAbout) {
  World world;
  world.must("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", R"({metadata: {name: ships.sea.org}, spec: {group: sea.org, scope: Namespaced, names: {plural: ships, kind: Ship}, versions: [
    {name: v1, served: true, storage: true, subresources: {scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}},
    {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}})");
  world.must("/apis/sea.org/v1/namespaces/default/ships", "{metadata: {name: a}, spec: {crew: 1}}");
  world.policy("small", "[ships/scale]", "[UPDATE]", "validations: [{expression: 'object.spec.replicas <= 3 && oldObject.spec.replicas == 1', message: too many}]", "[Deny]", "sea.org");
  EXPECT_EQ(world.status("PATCH", "/apis/sea.org/v1/namespaces/default/ships/a/scale", "{spec: {replicas: 4}}", merge), 422);
  EXPECT_EQ(world.status("PATCH", "/apis/sea.org/v1/namespaces/default/ships/a", "{spec: {crew: 9}}", merge), 200) << "the whole object is another resource";
  // Of the other version, as the policy's author knows it.
  world.must(policies, "{metadata: {name: old}, spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [sea.org], apiVersions: [v1], resources: [ships]}]}, validations: [{expression: \"false\", messageExpression: \"object.apiVersion + ' ' + request.kind.version + ' ' + request.requestKind.version\"}]}}");
  world.must(bindings, "{metadata: {name: old}, spec: {policyName: old, validationActions: [Deny]}}");
  EXPECT_THAT(world.said("POST", "/apis/sea.org/v2/namespaces/default/ships", "{metadata: {name: b}}").body, HasSubstr("denied request: sea.org/v1 v1 v2"));
}

TEST(PolicyApi, NobodyLocksHimselfOut) {
  World world;
  world.policy("nothing", "['*/*']", "['*']", "validations: [{expression: 'false', message: nothing goes}]", "[Deny]", "'*'");
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: c}}"), 422);
  EXPECT_EQ(world.status("PATCH", policies + "/nothing", "{metadata: {labels: {a: b}}}", merge), 200);
  // It holds for the controllers in this process, and does not keep a server from starting.
  const auto api = make_local_api(*world.registry);
  const auto made = api->create(kube::resources::config_maps, Json::object({{"metadata", Json::object({{"name", "c"}, {"namespace", "default"}})}}));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("nothing goes"));
  const auto server = make_local_api(*world.registry, {}, server_user);
  EXPECT_TRUE(server->create(kube::resources::config_maps, Json::object({{"metadata", Json::object({{"name", "s"}, {"namespace", "default"}})}}))) << "what it writes before it serves";
  world.handler.reset();
  world.registry.reset();
  auto again = Registry::open(*world.store, world.clock, {.secret_key = std::string(32, 'k')});
  ASSERT_TRUE(again) << again.error().message;
  world.registry = std::move(*again);
  ASSERT_TRUE(reconcile_default_objects(*world.registry));
  HandlerOptions options;
  options.tokens = {{sha256("admin-token"), "admin", {"system:masters"}}};
  world.handler = ApiHandler::make(*world.registry, world.clock, std::move(options));
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: c}}"), 422) << "what is stored counts after a restart";
  EXPECT_EQ(world.status("DELETE", bindings + "/nothing"), 200);
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: c}}"), 201);
}

TEST(PolicyApi, NamespacesChooseByTheirLabels) {
  World world;
  world.must("/api/v1/namespaces", "{metadata: {name: red, labels: {team: red}}}");
  world.must(policies, "{metadata: {name: p}, spec: {matchConstraints: {namespaceSelector: {matchLabels: {team: red}}, resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps, namespaces]}]}, validations: [{expression: 'false', messageExpression: \"namespaceObject == null ? 'a namespace' : 'in ' + namespaceObject.metadata.name\"}]}}");
  world.must(bindings, "{metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}");
  EXPECT_EQ(world.status("POST", maps, "{metadata: {name: c}}"), 201);
  EXPECT_THAT(world.said("POST", "/api/v1/namespaces/red/configmaps", "{metadata: {name: c}}").body, HasSubstr("denied request: in red"));
  EXPECT_EQ(world.status("POST", "/api/v1/namespaces", "{metadata: {name: blue, labels: {team: blue}}}"), 201);
  EXPECT_THAT(world.said("POST", "/api/v1/namespaces", "{metadata: {name: rose, labels: {team: red}}}").body, HasSubstr("denied request: a namespace"));
  EXPECT_EQ(world.status("PATCH", "/api/v1/namespaces/red", "{metadata: {labels: {team: null}}}", merge), 200);
  EXPECT_EQ(world.status("POST", "/api/v1/namespaces/red/configmaps", "{metadata: {name: c}}"), 201) << "its labels as they are now";
}

TEST(PolicyApi, ParametersAreReadWhereTheBindingSays) {
  World world;
  world.must("/api/v1/namespaces", "{metadata: {name: rules}}");
  world.must("/api/v1/namespaces/rules/configmaps", "{metadata: {name: most}, data: {length: '3'}}");
  world.must(policies, "{metadata: {name: p}, spec: {paramKind: {apiVersion: v1, kind: ConfigMap}, matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [secrets]}]}, validations: [{expression: 'size(object.metadata.name) <= int(params.data.length)', message: too long}]}}");
  world.must(bindings, "{metadata: {name: b}, spec: {policyName: p, validationActions: [Deny], paramRef: {name: most, namespace: rules, parameterNotFoundAction: Deny}}}");
  const std::string secrets = "/api/v1/namespaces/default/secrets";
  EXPECT_EQ(world.status("POST", secrets, "{metadata: {name: abc}}"), 201);
  EXPECT_THAT(world.said("POST", secrets, "{metadata: {name: abcd}}").body, HasSubstr("too long"));
  EXPECT_EQ(world.status("PATCH", "/api/v1/namespaces/rules/configmaps/most", "{data: {length: '4'}}", merge), 200);
  EXPECT_EQ(world.status("POST", secrets, "{metadata: {name: abcd}}"), 201);
  EXPECT_EQ(world.status("DELETE", "/api/v1/namespaces/rules/configmaps/most"), 200);
  EXPECT_THAT(world.said("POST", secrets, "{metadata: {name: a}}").body, HasSubstr("no params found for policy binding with `Deny` parameterNotFoundAction"));
}

// A policy tells its author what stands in its parameters.
TEST(PolicyApi, WhoMayNotReadParametersMakesNoPolicyOfThem) {
  World world;
  const std::string rbac = "/apis/rbac.authorization.k8s.io/v1";
  world.must(rbac + "/clusterroles", "{metadata: {name: policies}, rules: [{verbs: ['*'], apiGroups: [admissionregistration.k8s.io], resources: ['*']}]}");
  world.must(rbac + "/clusterrolebindings", "{metadata: {name: policies}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: policies}, subjects: [{kind: User, name: eve, apiGroup: rbac.authorization.k8s.io}]}");
  const auto as_eve = [&](const std::string& method, const std::string& target, const std::string& yaml, http::Headers headers = {}) { return world.ask(method, target, as_json(yaml), std::move(headers), "eve-token"); };
  const auto policy = [](const std::string& name, const std::string& more) {
    return fmt::format("{{metadata: {{name: {}}}, spec: {{{}matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}}]}}, validations: [{{expression: 'true'}}]}}}}", name, more);
  };
  const std::string secret = "paramKind: {apiVersion: v1, kind: Secret}, ";
  EXPECT_EQ(as_eve("POST", policies, policy("plain", "")).status, 201);
  const auto refused = as_eve("POST", policies, policy("nosy", secret));
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("must have \\\"get\\\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"));
  EXPECT_EQ(as_eve("PATCH", policies + "/plain", "{spec: {paramKind: {apiVersion: v1, kind: Secret}}}", merge).status, 403);
  world.must(policies, policy("with", secret));
  EXPECT_EQ(as_eve("PATCH", policies + "/with", "{metadata: {labels: {a: b}}}", merge).status, 200) << "its parameters are as they were";
  const std::string binding = "{metadata: {name: b}, spec: {policyName: with, validationActions: [Deny], paramRef: {name: s, namespace: default, parameterNotFoundAction: Deny}}}";
  EXPECT_EQ(as_eve("POST", bindings, binding).status, 403);
  world.must(rbac + "/namespaces/default/roles", "{metadata: {name: one}, rules: [{verbs: [get], apiGroups: [''], resources: [secrets], resourceNames: [s]}]}");
  world.must(rbac + "/namespaces/default/rolebindings", "{metadata: {name: one}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: one}, subjects: [{kind: User, name: eve, apiGroup: rbac.authorization.k8s.io}]}");
  EXPECT_EQ(as_eve("POST", bindings, binding).status, 201);
}

TEST(PolicyApi, WarningsAboutEvictionsAndBindingsAreHeaders) {
  World world;
  world.must(pods, "{metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}");
  world.must("/api/v1/nodes", "{metadata: {name: pier}}");
  world.policy("bound", "[pods/binding, pods/eviction]", "[CREATE]", "validations: [{expression: 'false', message: think twice}]", "[Warn]");
  EXPECT_THAT(std::string(http::find(world.said("POST", pods + "/web/binding", "{apiVersion: v1, kind: Binding, metadata: {name: web}, target: {kind: Node, name: pier}}").headers, "Warning")), HasSubstr("think twice"));
  EXPECT_THAT(std::string(http::find(world.said("POST", pods + "/web/eviction", "{apiVersion: policy/v1, kind: Eviction, metadata: {name: web}}").headers, "Warning")), HasSubstr("think twice"));
}

TEST(PolicyApi, WarningsAreHeadersAndAuditsAreAnnotations) {
  char name[] = "/tmp/fairlead-policy-XXXXXX";
  const std::string folder = ::mkdtemp(name), file = folder + "/audit.log";
  {
    HandlerOptions options;
    options.audit = std::shared_ptr<AuditLog>(*AuditLog::open({.path = file}));
    World world(std::move(options));
    world.policy("owners", "[configmaps]", "[CREATE]", labelled + ", auditAnnotations: [{key: who, valueExpression: request.userInfo.username}]", "[Warn, Audit]");
    const auto taken = world.said("POST", maps, "{metadata: {name: c}}");
    EXPECT_EQ(taken.status, 201);
    EXPECT_EQ(http::find(taken.headers, "Warning"), "299 - \"Validation failed for ValidatingAdmissionPolicy 'owners' with binding 'owners': an owner is needed\"");
  }
  const auto text = read_file(file);
  ASSERT_TRUE(text);
  const auto line = text->substr(text->rfind('\n', text->size() - 2) + 1);
  const auto event = kube::parse_json(line.substr(0, line.size() - 1));
  ASSERT_TRUE(event) << line;
  EXPECT_EQ((*event)["annotations"]["owners/who"].string(), "admin");
  EXPECT_THAT((*event)["annotations"]["validation.policy.admission.k8s.io/validation_failure"].string(), HasSubstr("an owner is needed"));
  EXPECT_EQ((*event)["annotations"]["authorization.k8s.io/decision"].string(), "allow");
  ::unlink(file.c_str());
  ::rmdir(folder.c_str());
}

TEST(PolicyApi, WhatCannotBeEvaluatedIsRefusedWhenItIsWritten) {
  World world;
  const auto refused = world.said("POST", policies, "{metadata: {name: p}, spec: {matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}, validations: [{expression: 'objekt.spec'}]}}");
  EXPECT_EQ(refused.status, 422);
  EXPECT_THAT(refused.body, HasSubstr("spec.validations[0].expression: Invalid value"));
  world.policy("p", "[pods]", "[CREATE]", "validations: [{expression: 'true'}]");
  const Json stored = world.json("GET", policies + "/p");
  EXPECT_EQ(stored["spec"]["failurePolicy"].string(), "Fail");
  EXPECT_EQ(stored["spec"]["matchConstraints"]["matchPolicy"].string(), "Equivalent");
  EXPECT_EQ(stored["spec"]["matchConstraints"]["resourceRules"].items()[0]["scope"].string(), "*");
  EXPECT_EQ(stored["metadata"]["generation"].integer(), 1);
  EXPECT_EQ(stored["status"]["observedGeneration"].integer(), 1);
  EXPECT_EQ(world.json("PATCH", policies + "/p", as_json("{spec: {failurePolicy: Ignore}}"), merge)["status"]["observedGeneration"].integer(), 2);
}

}  // namespace
}  // namespace fairlead::apiserver
