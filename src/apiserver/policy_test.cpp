// SPDX-License-Identifier: Apache-2.0
// What policies say, from tables: matching, verdicts, complaints about policies. Words were compared with those of kube-apiserver 1.33 (tests/scenarios/15-policies.sh does so for a part).
#include "apiserver/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "apiserver/policy_kinds.h"
#include "apiserver/kinds/resources.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace r = kube::resources;

Json yaml(const std::string& text) {
  auto read = kube::parse_yaml(text);
  EXPECT_TRUE(read) << (read ? "" : read.error().message) << "\n" << text;
  return read && !read->empty() ? std::move(read->front()) : Json();
}

struct MatchRow {
  const char* name;
  const char* match;
  bool want;
  const kube::Resource* resource = &r::pods;
  const char* operation = "CREATE";
  const char* subresource = "";
};
void PrintTo(const MatchRow& row, std::ostream* out) { *out << row.name; }
class Matching : public testing::TestWithParam<MatchRow> {};

TEST_P(Matching, IsThatOfKubernetes) {
  const MatchRow& row = GetParam();
  const Json object = yaml("{metadata: {name: web, labels: {tier: front}}}");
  Json match = Json::object({{"matchConstraints", yaml(row.match)}});
  Json policy = Json::object({{"spec", match}});
  default_policy(r::admission_policies, policy);
  const MatchRules rules(policy["spec"]["matchConstraints"]);
  PolicyCall call{.operation = row.operation, .resource = *row.resource, .other_versions = {}, .subresource = row.subresource, .name = "web", .space = row.resource->namespaced ? "sea" : ""};
  call.object = &object;
  const Json space = yaml("{metadata: {name: sea, labels: {team: red}}}");
  bool found = rules.version(call).has_value();
  if (found && rules.asks_for_space(call)) found = rules.fits_space(space);
  EXPECT_EQ(found, row.want);
}

#define RULE(more) "{resourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]" more "}]}"
INSTANTIATE_TEST_SUITE_P(
    All, Matching,
    testing::Values(
        MatchRow{"plain", RULE(""), true}, MatchRow{"operation", RULE(""), false, &r::pods, "UPDATE"}, MatchRow{"resource", RULE(""), false, &r::services},
        MatchRow{"subresource", RULE(""), false, &r::pods, "CREATE", "binding"}, MatchRow{"named", RULE(", resourceNames: [web]"), true}, MatchRow{"other_name", RULE(", resourceNames: [db]"), false},
        MatchRow{"namespaced", RULE(", scope: Namespaced"), true}, MatchRow{"cluster", RULE(", scope: Cluster"), false},
        MatchRow{"node_is_cluster", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], scope: Cluster}]}", true, &r::nodes},
        MatchRow{"star", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", true, &r::pods, "DELETE"},
        MatchRow{"star_without_subresources", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", false, &r::pods, "UPDATE", "status"},
        MatchRow{"all", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*']}]}", true, &r::pods, "UPDATE", "status"},
        MatchRow{"every_status", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/status']}]}", true, &r::pods, "UPDATE", "status"},
        MatchRow{"pods_and_below", "{resourceRules: [{operations: ['*'], apiGroups: [''], apiVersions: ['*'], resources: ['pods/*']}]}", true, &r::pods, "UPDATE"},
        MatchRow{"excluded", "{resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}], excludeResourceRules: [{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}", false},
        MatchRow{"space", "{namespaceSelector: {matchLabels: {team: red}}, resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", true},
        MatchRow{"other_space", "{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [red]}]}, resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", false},
        MatchRow{"node_has_no_space", "{namespaceSelector: {matchLabels: {team: blue}}, resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", true, &r::nodes},
        MatchRow{"object", "{objectSelector: {matchLabels: {tier: front}}, resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", true},
        MatchRow{"other_object", "{objectSelector: {matchLabels: {tier: back}}, resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}", false}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(Matching, AnotherVersionOfTheResourceCountsUnlessExactIsSaid) {
  const kube::Resource queues{"kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", true};
  PolicyCall call{.operation = "CREATE", .resource = queues, .other_versions = {"v1beta1"}, .subresource = "", .name = "q", .space = "sea"};
  for (const auto& [policy, want] : {std::pair("Equivalent", true), std::pair("Exact", false)}) {
    const MatchRules rules(yaml(fmt::format("{{matchPolicy: {}, resourceRules: [{{operations: [CREATE], apiGroups: [kueue.x-k8s.io], apiVersions: [v1beta1], resources: [localqueues], scope: '*'}}]}}", policy)));
    EXPECT_EQ(rules.version(call), want ? std::optional<std::string>("v1beta1") : std::nullopt);
  }
}

// A namespace, and objects as parameters.
struct World : PolicyWorld {
  Json space_object = yaml("{apiVersion: v1, kind: Namespace, metadata: {name: sea, labels: {team: red}}}");
  std::vector<Json> there;
  int asked_for_space = 0;
  Result<const Json*> space() override {
    ++asked_for_space;
    return &space_object;
  }
  Result<Params> params(const ParamQuery& query) override {
    if (query.kind != "ConfigMap") return fail(Code::NotFound, "failed to find resource referenced by paramKind: '" + query.api_version + ", Kind=" + query.kind + "'");
    return Params{true, there};
  }
  Result<Json> in_version(const Json& object, const std::string& version) override {
    Json out = object;
    out.set("apiVersion", "kueue.x-k8s.io/" + version);
    return out;
  }
};

struct Case {
  std::string policy;            // its spec, without matchConstraints
  std::string binding = "validationActions: [Deny]";
  std::string object = "{metadata: {name: web, labels: {tier: front}}, spec: {replicas: 3}}";
  std::string old = {};
  std::string operation = "CREATE";
};

PolicyVerdict verdict_of(const Case& given, World& world) {
  Json policy = yaml(fmt::format("{{metadata: {{name: p}}, spec: {{matchConstraints: {{resourceRules: [{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}]}}, {}}}}}", given.policy));
  Json binding = yaml(fmt::format("{{metadata: {{name: b}}, spec: {{policyName: p, {}}}}}", given.binding));
  default_policy(r::admission_policies, policy);
  default_policy(r::admission_policy_bindings, binding);
  FieldErrors errors;
  check_policy(r::admission_policies, policy, errors);
  check_policy(r::admission_policy_bindings, binding, errors);
  EXPECT_THAT(errors.texts(), IsEmpty());
  PolicySet set;
  set.policies.emplace("p", std::make_shared<const Policy>(policy));
  set.bindings.emplace("b", std::make_shared<const PolicyBinding>(binding));
  const Json object = given.object.empty() ? Json() : yaml(given.object), old = given.old.empty() ? Json() : yaml(given.old);
  PolicyCall call{.operation = given.operation, .resource = workloads::jobs, .other_versions = {}, .subresource = "", .name = "web", .space = "sea"};
  call.object = given.object.empty() ? nullptr : &object;
  call.old = given.old.empty() ? nullptr : &old;
  const User user{.name = "eve", .groups = {"devs", "system:authenticated"}, .uid = {}, .extra = {}};
  return judge(set, call, {user, false}, world);
}
std::string refusal_of(const Case& given) {
  World world;
  const auto verdict = verdict_of(given, world);
  return verdict.refusal ? verdict.refusal->reason + ": " + verdict.refusal->message : "";
}
const std::string denied = "Invalid: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

TEST(Policies, SayWhyTheyRefuse) {
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'object.spec.replicas <= 5'}]"}), "");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: ' object.spec.replicas <= 2 '}]"}), denied + "failed expression: object.spec.replicas <= 2");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'object.spec.replicas <= 2', message: too many, reason: Forbidden}]"}), "Forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: too many");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'false', message: m, messageExpression: \"'of ' + object.metadata.name\"}]"}), denied + "of web");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'false', message: m, messageExpression: object.metadata.missing}]"}), denied + "m") << "what cannot be told is told plainly";
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'object.spec.missing == 1'}]"}), denied + "expression 'object.spec.missing == 1' resulted in error: no such key: missing");
  EXPECT_EQ(refusal_of({.policy = "failurePolicy: Ignore, validations: [{expression: 'object.spec.missing == 1'}]"}), "");
  EXPECT_EQ(refusal_of({.policy = "failurePolicy: Ignore, validations: [{expression: 'object.spec.replicas == 1', message: refused}]"}), denied + "refused") << "an answer is no failure";
}

TEST(Policies, KnowTheRequestItsNamespaceAndWhatWasThere) {
  const auto holds = [](const std::string& expression) { return refusal_of({.policy = fmt::format("validations: [{{expression: \"{}\"}}]", expression)}); };
  EXPECT_EQ(holds("request.operation == 'CREATE' && request.resource == {'group': 'batch', 'version': 'v1', 'resource': 'jobs'} && request.kind.kind == 'Job'"), "");
  EXPECT_EQ(holds("request.name == 'web' && request.namespace == 'sea' && !request.dryRun && !has(request.subResource)"), "");
  EXPECT_EQ(holds("request.userInfo.username == 'eve' && 'devs' in request.userInfo.groups"), "");
  EXPECT_EQ(holds("namespaceObject.metadata.labels.team == 'red'"), "");
  EXPECT_EQ(holds("oldObject == null"), "");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'object == null && oldObject.spec.replicas == 3'}]", .object = "", .old = "{spec: {replicas: 3}}", .operation = "DELETE"}), "");
  EXPECT_EQ(refusal_of({.policy = "validations: [{expression: 'object.spec.replicas >= oldObject.spec.replicas', message: shrinks}]", .old = "{spec: {replicas: 4}}", .operation = "UPDATE"}), denied + "shrinks");
}

TEST(Policies, LookUpTheNamespaceOnlyWhereItMatters) {
  World world;
  verdict_of({.policy = "validations: [{expression: 'object.spec.replicas == 3 || namespaceObject.metadata.name == \"x\"'}]"}, world);
  EXPECT_EQ(world.asked_for_space, 0);
  verdict_of({.policy = "validations: [{expression: 'namespaceObject.metadata.name == \"sea\"'}]"}, world);
  EXPECT_EQ(world.asked_for_space, 1);
}

TEST(Policies, WorkOutVariablesOnceAndOnlyWhenTheyAreNamed) {
  const std::string variables = "variables: [{name: labels, expression: object.metadata.labels}, {name: tier, expression: variables.labels.tier}, {name: broken, expression: object.nothing.at.all}], ";
  EXPECT_EQ(refusal_of({.policy = variables + "validations: [{expression: \"variables.tier == 'front' && has(variables.tier)\"}]"}), "");
  EXPECT_EQ(refusal_of({.policy = variables + "validations: [{expression: \"variables.tier == 'front' || variables.broken == 1\"}]"}), "") << "one side decides";
  EXPECT_EQ(refusal_of({.policy = variables + "validations: [{expression: 'variables.broken == 1'}]"}),
            denied + "expression 'variables.broken == 1' resulted in error: composited variable \"broken\" fails to evaluate: no such key: nothing");
}

TEST(Policies, VariablesOfVariablesHaveABottom) {
  std::string chain = "variables: [{name: v0, expression: '1'}";
  for (int i = 1; i < 5'000; ++i) chain += fmt::format(", {{name: v{}, expression: variables.v{}}}", i, i - 1);
  EXPECT_EQ(refusal_of({.policy = chain + "], validations: [{expression: 'variables.v90 == 1'}]"}), "");
  EXPECT_THAT(refusal_of({.policy = chain + "], validations: [{expression: 'variables.v4999 == 1'}]"}), HasSubstr("variables name one another 100 deep"));
}

TEST(Policies, ConditionsDecideWhetherTheyAreAsked) {
  const std::string no = "validations: [{expression: 'false', message: asked}]";
  EXPECT_EQ(refusal_of({.policy = "matchConditions: [{name: a, expression: \"request.userInfo.username != 'eve'\"}], " + no}), "");
  EXPECT_EQ(refusal_of({.policy = "matchConditions: [{name: a, expression: \"request.userInfo.username == 'eve'\"}], " + no}), denied + "asked");
  EXPECT_EQ(refusal_of({.policy = "matchConditions: [{name: a, expression: object.nothing == 1}, {name: b, expression: 'false'}], " + no}), "") << "one that is false decides over errors";
  EXPECT_EQ(refusal_of({.policy = "matchConditions: [{name: a, expression: object.nothing == 1}], " + no}), denied + "expression 'object.nothing == 1' resulted in error: no such key: nothing");
  EXPECT_EQ(refusal_of({.policy = "failurePolicy: Ignore, matchConditions: [{name: a, expression: object.nothing == 1}], " + no}), "");
}

TEST(Policies, AreAskedOnceForEachParameter) {
  const std::string policy = "paramKind: {apiVersion: v1, kind: ConfigMap}, validations: [{expression: 'object.spec.replicas <= int(params.data.most)', messageExpression: \"'more than ' + params.data.most\"}]";
  const std::string binding = "validationActions: [Deny], paramRef: {selector: {}, parameterNotFoundAction: ";
  World world;
  world.there = {yaml("{data: {most: '5'}}"), yaml("{data: {most: '2'}}")};
  const auto verdict = verdict_of({.policy = policy, .binding = binding + "Deny}"}, world);
  ASSERT_TRUE(verdict.refusal);
  EXPECT_THAT(verdict.refusal->message, HasSubstr("denied request: more than 2"));
  EXPECT_EQ(refusal_of({.policy = policy, .binding = binding + "Allow}"}), "");
  EXPECT_EQ(refusal_of({.policy = policy, .binding = binding + "Deny}"}), denied + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction");
  EXPECT_EQ(refusal_of({.policy = "paramKind: {apiVersion: v9, kind: Gone}, validations: [{expression: 'true'}]", .binding = binding + "Allow}"}),
            denied + "failed to configure binding: failed to find resource referenced by paramKind: 'v9, Kind=Gone'");
}

TEST(Policies, WarnAndNoteWhereTheBindingSaysSo) {
  World world;
  const auto verdict = verdict_of({.policy = "validations: [{expression: 'true'}, {expression: 'false', message: refused}], auditAnnotations: [{key: replicas, valueExpression: 'string(object.spec.replicas)'}, {key: none, valueExpression: 'null'}]",
                                   .binding = "validationActions: [Warn, Audit]"},
                                  world);
  EXPECT_FALSE(verdict.refusal);
  EXPECT_THAT(verdict.warnings, ElementsAre("Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': refused"));
  EXPECT_THAT(verdict.notes, ElementsAre(testing::Pair("validation.policy.admission.k8s.io/validation_failure",
                                                       R"([{"message":"refused","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Warn","Audit"]}])"),
                                         testing::Pair("p/replicas", "3")));
  EXPECT_EQ(refusal_of({.policy = "auditAnnotations: [{key: a, valueExpression: '1'}]"}), denied + "valueExpression '1' resulted in unsupported return type: int. Return type must be either string or null.");
}

TEST(Policies, WithoutABindingDoNothingAndOneThatDoesNotCompileFailsAsItSays) {
  World world;
  PolicySet set;
  const auto policy = [&](const char* failure) { return std::make_shared<const Policy>(yaml(fmt::format("{{metadata: {{name: p}}, spec: {{failurePolicy: {}, matchConstraints: {{resourceRules: [{{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}}]}}, validations: [{{expression: 'of_tomorrow(object)'}}]}}}}", failure))); };
  set.policies["p"] = policy("Fail");
  const Json object = yaml("{metadata: {name: web}}");
  PolicyCall call{.operation = "CREATE", .resource = workloads::jobs, .other_versions = {}, .subresource = "", .name = "web", .space = "sea"};
  call.object = &object;
  const User user{.name = "eve", .groups = {}, .uid = {}, .extra = {}};
  EXPECT_FALSE(judge(set, call, {user, false}, world).refusal);
  set.bindings["b"] = std::make_shared<const PolicyBinding>(yaml("{metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}"));
  ASSERT_TRUE(judge(set, call, {user, false}, world).refusal);
  EXPECT_THAT(judge(set, call, {user, false}, world).refusal->message, HasSubstr("ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: 'of_tomorrow(object)'"));
  set.policies["p"] = policy("Ignore");
  EXPECT_FALSE(judge(set, call, {user, false}, world).refusal);
}

struct Complaint {
  const char* what;
  const char* spec;
  const char* want;
  bool binding = false;
};
TEST(Policies, ComplaintsNameTheField) {
#define ALL "matchConstraints: {resourceRules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*']}]}"
  for (const Complaint& row : {
           Complaint{"nothing", "{}", "spec.matchConstraints: Required value"},
           Complaint{"no rules", "{matchConstraints: {}, validations: [{expression: 'true'}]}", "spec.matchConstraints.resourceRules: Required value"},
           Complaint{"no validations", "{" ALL "}", "spec.validations: Required value: validations or auditAnnotations must contain at least one item"},
           Complaint{"failure", "{failurePolicy: Maybe, " ALL ", validations: [{expression: 'true'}]}", "spec.failurePolicy: Unsupported value: \"Maybe\": supported values: \"Fail\", \"Ignore\""},
           Complaint{"syntax", "{" ALL ", validations: [{expression: 'object.'}]}", "spec.validations[0].expression: Invalid value: \"object.\": compilation failed: ERROR"},
           Complaint{"unknown name", "{" ALL ", validations: [{expression: 'objekt.a'}]}", "undeclared reference to 'objekt'"},
           Complaint{"unknown variable", "{" ALL ", variables: [{name: a, expression: '1'}], validations: [{expression: 'variables.b == 1'}]}", "undefined field 'b'"},
           Complaint{"later variable", "{" ALL ", variables: [{name: a, expression: variables.b}, {name: b, expression: '1'}], validations: [{expression: 'true'}]}", "spec.variables[0].expression: Invalid value"},
           Complaint{"params without kind", "{" ALL ", validations: [{expression: 'params == null'}]}", "undeclared reference to 'params'"},
           Complaint{"not ours", "{" ALL ", validations: [{expression: \"authorizer.group('')\"}]}", "spec.validations[0].expression: Forbidden: not supported by the embedded engine"},
           Complaint{"connect", "{matchConstraints: {resourceRules: [{operations: [CONNECT], apiGroups: [''], apiVersions: [v1], resources: [pods/exec]}]}, validations: [{expression: 'true'}]}", "operations[0]: Forbidden"},
           Complaint{"reason", "{" ALL ", validations: [{expression: 'true', reason: Bad}]}", "spec.validations[0].reason: Unsupported value: \"Bad\""},
           Complaint{"line break", "{" ALL ", validations: [{expression: 'true', message: \"a\\nb\"}]}", "spec.validations[0].message: Invalid value: \"a\\nb\": message must not contain line breaks"},
           Complaint{"same condition", "{" ALL ", matchConditions: [{name: a, expression: 'true'}, {name: a, expression: 'true'}], validations: [{expression: 'true'}]}", "spec.matchConditions[1].name: Duplicate value: \"a\""},
           Complaint{"word", "{" ALL ", variables: [{name: for, expression: '1'}], validations: [{expression: 'true'}]}", "spec.variables[0].name: Invalid value: \"for\": name is not a valid CEL identifier"},
           Complaint{"no actions", "{policyName: p}", "spec.validationActions: Required value: at least one validation action is required", true},
           Complaint{"deny and warn", "{policyName: p, validationActions: [Deny, Warn]}", "spec.validationActions: Invalid value: []admissionregistration.ValidationAction{\"Deny\", \"Warn\"}: must not contain both Deny and Warn", true},
           Complaint{"no policy", "{validationActions: [Deny]}", "spec.policyName: Required value", true},
           Complaint{"params", "{policyName: p, validationActions: [Deny], paramRef: {name: a, selector: {}}}", "spec.paramRef.name: Forbidden: name and selector are mutually exclusive", true},
       }) {
    const kube::Resource& resource = row.binding ? r::admission_policy_bindings : r::admission_policies;
    Json object = Json::object({{"metadata", yaml("{name: p}")}, {"spec", yaml(row.spec)}});
    default_policy(resource, object);
    FieldErrors errors;
    check_policy(resource, object, errors);
    EXPECT_THAT(fmt::format("{}", fmt::join(errors.texts(), "\n")), HasSubstr(row.want)) << row.what;
  }
}

TEST(Policies, ARefusalIsTheStatusOfItsReason) {
  const auto status = [](const char* reason) { return policy_status(policy_refusal(workloads::jobs, "web", {reason, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: \"no\" is invalid: x"}).error()); };
  for (const auto& [reason, code] : {std::pair("Invalid", 422), std::pair("Forbidden", 403), std::pair("Unauthorized", 401), std::pair("RequestEntityTooLarge", 413)}) {
    const auto got = status(reason);
    ASSERT_TRUE(got) << reason;
    EXPECT_EQ(got->code, code);
    EXPECT_EQ(got->reason, reason);
    EXPECT_EQ(got->name, "web");
    EXPECT_EQ(got->cause, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: \"no\" is invalid: x");
  }
  EXPECT_FALSE(policy_status({Code::Invalid, "Pod \"web\" is invalid: spec: Invalid value: \"x\" is forbidden: ValidatingAdmissionPolicy 'p'"})) << "words of a user make no status";
}

}  // namespace
}  // namespace fairlead::apiserver
