// SPDX-License-Identifier: Apache-2.0
// What an admission policy costs a write: one that is not meant, one in another namespace, one that is looked at in full (three variables, two rules, as that of teams' namespaces has), beside a hundred policies for other kinds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apiserver/policy.h"
#include "apiserver/policy_kinds.h"

namespace {

using namespace fairlead;
using namespace fairlead::apiserver;
using kube::Json;

Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }

struct World : PolicyWorld {
  Json space_object;
  Result<const Json*> space() override { return &space_object; }
  Result<Params> params(const ParamQuery&) override { return Params{}; }
  Result<Json> in_version(const Json& object, const std::string&) override { return object; }
};

void add(PolicySet& set, const std::string& name, const std::string& plural) {
  Json policy = yaml(fmt::format(R"yaml({{metadata: {{name: {}}}, spec: {{matchConstraints: {{namespaceSelector: {{matchExpressions: [{{key: team, operator: Exists}}]}}, resourceRules: [{{operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: ['*'], resources: [{}]}}]}},
    variables: [{{name: queued, expression: "has(object.metadata.labels) && 'queue' in object.metadata.labels && object.metadata.labels['queue'] != ''"}},
                {{name: controller, expression: "'system:masters' in request.userInfo.groups || request.userInfo.username.startsWith('system:')"}},
                {{name: follows, expression: "variables.controller && has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'Job')"}}],
    validations: [{{expression: "request.operation == 'UPDATE' ? variables.queued || !has(oldObject.metadata.labels) : variables.queued || variables.follows", message: refused}},
                  {{expression: "request.kind.kind != 'Pod' || !variables.queued || variables.follows || (has(object.spec.schedulingGates) && object.spec.schedulingGates.exists(g, g.name == 'gate'))", message: gate}}]}}}})yaml",
                                 name, plural));
  Json binding = yaml(fmt::format("{{metadata: {{name: {}}}, spec: {{policyName: {}, validationActions: [Deny]}}}}", name, name));
  default_policy(kube::resources::admission_policies, policy);
  default_policy(kube::resources::admission_policy_bindings, binding);
  set.policies.emplace(name, std::make_shared<const Policy>(policy));
  set.bindings.emplace(name, std::make_shared<const PolicyBinding>(binding));
}

void measure(const char* what, const PolicySet& set, const Json& pod, const char* space) {
  World world;
  world.space_object = yaml(space);
  const User user{.name = "ada", .groups = {"team", "system:authenticated"}, .uid = {}, .extra = {}};
  PolicyCall call{.operation = "CREATE", .resource = kube::resources::pods, .other_versions = {}, .subresource = "", .name = "web", .space = "lab"};
  call.object = &pod;
  constexpr int rounds = 20'000, times = 5;
  double best = 1e9;
  bool refused = false;
  for (int time = 0; time < times; ++time) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) refused = judge(set, call, {user, false}, world).refusal.has_value();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / rounds);
  }
  std::printf("%s\n", fmt::format("{{\"bench\": \"policy\", \"what\": \"{}\", \"policies\": {}, \"us\": {:.2f}, \"refused\": {}}}", what, set.policies.size(), best, refused).c_str());
}

}  // namespace

int main() {
  const Json queued = yaml("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: lab, labels: {queue: a}}, spec: {schedulingGates: [{name: gate}], containers: [{name: c, image: i}]}}");
  const Json bare = yaml("{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: lab}, spec: {containers: [{name: c, image: i}]}}");
  PolicySet one, many;
  add(one, "pods", "pods");
  for (int i = 0; i < 100; ++i) add(many, fmt::format("other-{:03d}", i), "secrets");
  measure("of other kinds", many, queued, "{metadata: {name: lab, labels: {team: red}}}");
  measure("of other namespaces", one, queued, "{metadata: {name: lab}}");
  measure("looked at and taken", one, queued, "{metadata: {name: lab, labels: {team: red}}}");
  measure("looked at and refused", one, bare, "{metadata: {name: lab, labels: {team: red}}}");
}
