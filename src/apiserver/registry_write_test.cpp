// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <set>
#include <thread>

#include "apiserver/registry_test_kit.h"
#include "base/files.h"

namespace fairlead::apiserver::test {
namespace {

using testing::HasSubstr;
using kube::PatchType;

TEST(RegistryCreate, FillsInWhatTheServerOwns) {
  World world;
  const auto done = world.create("pods", small_pod);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->created);
  const Json pod = object_of(done);
  EXPECT_EQ(pod["apiVersion"].string(), "v1");
  EXPECT_EQ(pod["kind"].string(), "Pod");
  EXPECT_EQ(kube::space_of(pod), "default");
  EXPECT_EQ(kube::uid_of(pod).size(), 36u);
  EXPECT_EQ(kube::version_of(pod), std::to_string(done->object.revision));
  EXPECT_EQ(pod["metadata"]["creationTimestamp"].string(), "2026-01-01T00:00:00Z");
  EXPECT_EQ(pod["metadata"]["generation"].integer(), 1);
  EXPECT_EQ(world.get(*world.kind("pods"), {"default", "web"}), pod);
}

struct DefaultCase {
  const char* name;
  const char* plural;
  const char* body;
  const char* path;
  const char* want;  // JSON
};
class Defaults : public testing::TestWithParam<DefaultCase> {};
TEST_P(Defaults, AreThoseOfKubernetes) {
  World world;
  const auto done = world.create(GetParam().plural, GetParam().body);
  ASSERT_TRUE(done) << done.error().message;
  const Json object = object_of(done);
  const Json* here = &object;
  for (std::string_view rest = GetParam().path; !rest.empty();) {
    const auto dot = rest.find('.');
    const std::string name(rest.substr(0, dot));
    here = name.size() == 1 && std::isdigit(static_cast<unsigned char>(name[0])) ? &here->items().at(static_cast<std::size_t>(name[0] - '0')) : &(*here)[name];
    rest = dot == std::string_view::npos ? "" : rest.substr(dot + 1);
  }
  EXPECT_EQ(print_json(*here), print_json(*kube::parse_json(GetParam().want)));
}
constexpr const char* pod_body = "{metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}, ports: [{containerPort: 80}], readinessProbe: {httpGet: {port: 80}}}], "
                                 "volumes: [{name: v, configMap: {name: x}}]}}";
INSTANTIATE_TEST_SUITE_P(
    All, Defaults,
    testing::Values(DefaultCase{"restart_policy", "pods", pod_body, "spec.restartPolicy", R"("Always")"},
                    DefaultCase{"dns_policy", "pods", pod_body, "spec.dnsPolicy", R"("ClusterFirst")"},
                    DefaultCase{"grace", "pods", pod_body, "spec.terminationGracePeriodSeconds", "30"},
                    DefaultCase{"scheduler", "pods", pod_body, "spec.schedulerName", R"("default-scheduler")"},
                    DefaultCase{"service_account", "pods", pod_body, "spec.serviceAccountName", R"("default")"},
                    DefaultCase{"security_context", "pods", pod_body, "spec.securityContext", "{}"},
                    DefaultCase{"untagged_image_is_pulled", "pods", pod_body, "spec.containers.0.imagePullPolicy", R"("Always")"},
                    DefaultCase{"termination_message", "pods", pod_body, "spec.containers.0.terminationMessagePath", R"("/dev/termination-log")"},
                    DefaultCase{"termination_policy", "pods", pod_body, "spec.containers.0.terminationMessagePolicy", R"("File")"},
                    DefaultCase{"port_protocol", "pods", pod_body, "spec.containers.0.ports.0.protocol", R"("TCP")"},
                    DefaultCase{"requests_from_limits", "pods", pod_body, "spec.containers.0.resources.requests", R"({"cpu":"1","memory":"1Gi"})"},
                    DefaultCase{"probe", "pods", pod_body, "spec.containers.0.readinessProbe",
                                R"({"httpGet":{"port":80,"path":"/","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3})"},
                    DefaultCase{"config_map_mode", "pods", pod_body, "spec.volumes.0.configMap.defaultMode", "420"},
                    DefaultCase{"tolerations", "pods", pod_body, "spec.tolerations",
                                R"([{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
                                    {"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}])"},
                    DefaultCase{"phase_and_qos", "pods", pod_body, "status", R"({"phase":"Pending","qosClass":"Guaranteed"})"},
                    DefaultCase{"best_effort", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: 'i:1'}]}}", "status.qosClass", R"("BestEffort")"},
                    DefaultCase{"tagged_image_is_kept", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: 'r:5000/i:1'}]}}", "spec.containers.0.imagePullPolicy", R"("IfNotPresent")"},
                    DefaultCase{"service_target_port", "services", "{metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80}]}}", "spec.ports.0", R"({"port":80,"protocol":"TCP","targetPort":80})"},
                    DefaultCase{"service_addresses", "services", "{metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80}]}}", "spec.clusterIPs", R"(["None"])"},
                    DefaultCase{"secret_type", "secrets", "{metadata: {name: a}}", "type", R"("Opaque")"},
                    DefaultCase{"string_data", "secrets", "{metadata: {name: a}, stringData: {k: v}, data: {k: eA==, l: eQ==}}", "data", R"({"k":"dg==","l":"eQ=="})"},
                    DefaultCase{"namespace_label", "namespaces", "{metadata: {name: a}}", "metadata.labels", R"({"kubernetes.io/metadata.name":"a"})"},
                    DefaultCase{"namespace_state", "namespaces", "{metadata: {name: a}}", "spec", R"({"finalizers":["kubernetes"]})"},
                    DefaultCase{"claim_state", "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}", "status",
                                R"({"phase":"Pending"})"}),
    [](const auto& row) { return row.param.name; });

struct RefusedCase {
  const char* name;
  const char* plural;
  const char* body;
  Code code;
  const char* message;
};
class Refused : public testing::TestWithParam<RefusedCase> {};
TEST_P(Refused, WithTheWordsOfKubernetes) {
  World world;
  world.must(world.create("pods", "{metadata: {name: there}, spec: {containers: [{name: c, image: i}]}}"));
  const auto done = world.create(GetParam().plural, GetParam().body, "default", {.validation = FieldValidation::Strict});
  ASSERT_FALSE(done) << print_json(object_of(done));
  EXPECT_EQ(done.error().code, GetParam().code) << done.error().message;
  EXPECT_THAT(done.error().message, HasSubstr(GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        RefusedCase{"exists", "pods", "{metadata: {name: there}, spec: {containers: [{name: c, image: i}]}}", Code::Exists, "pods \"there\" already exists"},
        RefusedCase{"no_name", "configmaps", "{metadata: {labels: {a: b}}}", Code::Invalid, "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"},
        RefusedCase{"bad_name", "configmaps", "{metadata: {name: A_b}}", Code::Invalid, "ConfigMap \"A_b\" is invalid: metadata.name: Invalid value: \"A_b\": "},
        RefusedCase{"bad_label", "configmaps", "{metadata: {name: a, labels: {'-x': yy}}}", Code::Invalid, "metadata.labels: Invalid value: \"-x\""},
        RefusedCase{"bad_service_name", "services", "{metadata: {name: 1a}, spec: {clusterIP: None}}", Code::Invalid, "a DNS-1035 label must consist of"},
        RefusedCase{"other_namespace", "configmaps", "{metadata: {name: a, namespace: b}}", Code::Invalid, "the namespace of the provided object does not match the namespace sent on the request"},
        RefusedCase{"version_set", "configmaps", "{metadata: {name: a, resourceVersion: '5'}}", Code::Invalid, "resourceVersion should not be set on objects to be created"},
        RefusedCase{"other_kind", "configmaps", "{kind: Secret, metadata: {name: a}}", Code::Invalid, "Secret in version \"v1\" cannot be handled as a ConfigMap"},
        RefusedCase{"unknown_field", "pods", "{metadata: {name: a}, spec: {foo: 1, containers: [{name: c, image: i, imag: x}]}}", Code::Invalid,
                    "strict decoding error: unknown field \"spec.foo\", unknown field \"spec.containers[0].imag\""},
        RefusedCase{"wrong_type", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: 5}]}}", Code::Invalid, "Pod in version \"v1\" cannot be handled as a Pod: "},
        RefusedCase{"no_containers", "pods", "{metadata: {name: a}, spec: {}}", Code::Invalid, "Pod \"a\" is invalid: spec.containers: Required value"},
        RefusedCase{"no_image", "pods", "{metadata: {name: a}, spec: {containers: [{name: c}]}}", Code::Invalid, "spec.containers[0].image: Required value"},
        RefusedCase{"same_container_twice", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}, {name: c, image: i}]}}", Code::Invalid, "spec.containers[1].name: Duplicate value: \"c\""},
        RefusedCase{"restart_policy", "pods", "{metadata: {name: a}, spec: {restartPolicy: No, containers: [{name: c, image: i}]}}", Code::Invalid, "cannot be handled as a Pod"},
        RefusedCase{"bad_restart_policy", "pods", "{metadata: {name: a}, spec: {restartPolicy: Sometimes, containers: [{name: c, image: i}]}}", Code::Invalid,
                    "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\""},
        RefusedCase{"mount_of_nothing", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}}", Code::Invalid,
                    "spec.containers[0].volumeMounts[0].name: Not found: \"v\""},
        RefusedCase{"requests_above_limits", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1}, requests: {cpu: 2}}}]}}", Code::Invalid,
                    "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1"},
        RefusedCase{"nfs_volume", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, nfs: {server: s, path: /}}]}}", Code::Invalid,
                    "spec.volumes[0].nfs: Forbidden: not supported by the embedded engine; volumes are configMap"},
        RefusedCase{"two_volume_types", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}]}}", Code::Invalid,
                    "may not specify more than 1 volume type"},
        RefusedCase{"pod_affinity_operator", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Frob}]}]}}}}}", Code::Invalid, "nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"Frob\": not a valid selector operator"},
        RefusedCase{"pod_affinity_without_terms", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}}}", Code::Invalid, "nodeSelectorTerms: Required value: must have at least one node selector term"},
        RefusedCase{"pod_anti_affinity_without_key", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {}}]}}}}", Code::Invalid, "podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty"},
        RefusedCase{"pod_gate_twice", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], schedulingGates: [{name: x.dev/a}, {name: x.dev/a}]}}", Code::Invalid, "spec.schedulingGates[1]: Duplicate value: \"x.dev/a\""},
        RefusedCase{"pod_user_below_zero", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], securityContext: {runAsUser: -1}}}", Code::Invalid, "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
        RefusedCase{"pod_host_path_that_climbs", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, hostPath: {path: ../x}}]}}", Code::Invalid, "spec.volumes[0].hostPath.path: Invalid value: \"../x\": must not contain '..'"},
        RefusedCase{"pod_item_that_climbs", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, configMap: {name: m, items: [{key: k, path: ../x}]}}]}}", Code::Invalid, "spec.volumes[0].configMap.items[0].path: Invalid value: \"../x\": must not contain '..'"},
        RefusedCase{"pod_alias_without_address", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], hostAliases: [{ip: x, hostnames: [h]}]}}", Code::Invalid, "spec.hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address"},
        RefusedCase{"pod_spread_without_key", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]}}", Code::Invalid, "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty"},
        RefusedCase{"service_with_balancer", "services", "{metadata: {name: a}, spec: {type: LoadBalancer, ports: [{port: 80}]}}", Code::Invalid, "spec.type: Forbidden: not supported by the embedded engine; type LoadBalancer needs a real cluster: use type ClusterIP or NodePort"},
        RefusedCase{"service_elsewhere", "services", "{metadata: {name: a}, spec: {type: ExternalName, externalName: x.org}}", Code::Invalid, "spec.type: Forbidden: not supported by the embedded engine; type ExternalName needs a real cluster"},
        RefusedCase{"service_with_too_long_sessions", "services", "{metadata: {name: a}, spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}, ports: [{port: 80}]}}", Code::Invalid, "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"},
        RefusedCase{"service_with_node_port", "services", "{metadata: {name: a}, spec: {ports: [{port: 80, nodePort: 30000}]}}", Code::Invalid, "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
        RefusedCase{"service_with_policy_for_others", "services", "{metadata: {name: a}, spec: {externalTrafficPolicy: Local, ports: [{port: 80}]}}", Code::Invalid, "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services"},
        RefusedCase{"headless_service_with_node_ports", "services", "{metadata: {name: a}, spec: {type: NodePort, clusterIP: None, ports: [{port: 80}]}}", Code::Invalid, "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services"},
        RefusedCase{"load_balancer", "services", "{metadata: {name: a}, spec: {type: LoadBalancer, clusterIP: None, ports: [{port: 80}]}}", Code::Invalid, "spec.type: Forbidden"},
        RefusedCase{"bad_secret_data", "secrets", "{metadata: {name: a}, data: {k: '%%'}}", Code::Invalid, ""},
        RefusedCase{"bad_data_key", "configmaps", "{metadata: {name: a}, data: {'a/b': x}}", Code::Invalid, "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of"},
        RefusedCase{"claim_without_size", "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce]}}", Code::Invalid, "spec.resources[storage]: Required value"},
        RefusedCase{"bad_taint", "nodes", "{metadata: {name: a}, spec: {taints: [{key: k, effect: Never}]}}", Code::Invalid, "metadata.taints[0].effect: Unsupported value: \"Never\""},
        RefusedCase{"two_controllers", "configmaps",
                    "{metadata: {name: a, ownerReferences: [{apiVersion: v1, kind: Pod, name: x, uid: u, controller: true}, {apiVersion: v1, kind: Pod, name: yy, uid: w, controller: true}]}}", Code::Invalid,
                    "Only one reference can have Controller set to true"}),
    [](const auto& row) { return row.param.name; });

TEST(RegistryCreate, UnknownFieldsAreToldOrDroppedSilently) {
  World world;
  const char* body = "{metadata: {name: NAME}, spec: {foo: 1, containers: [{name: c, image: i}]}}";
  const auto named = [&](const std::string& name) { return std::string(body).replace(std::string(body).find("NAME"), 4, name); };
  const auto warned = world.create("pods", named("a"), "default", {.validation = FieldValidation::Warn, .duplicates = {"spec.x"}});
  ASSERT_TRUE(warned);
  EXPECT_THAT(warned->warnings, testing::ElementsAre("duplicate field \"spec.x\"", "unknown field \"spec.foo\""));
  EXPECT_FALSE(object_of(warned)["spec"].has("foo"));
  const auto silent = world.create("pods", named("b"), "default", {.validation = FieldValidation::Ignore});
  ASSERT_TRUE(silent);
  EXPECT_TRUE(silent->warnings.empty());
  EXPECT_FALSE(object_of(silent)["spec"].has("foo"));
}

TEST(RegistryCreate, GeneratedNamesAreFreshAndLookLikeThoseOfKubernetes) {
  World world;
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) names.insert(kube::name_of(object_of(world.create("configmaps", "{metadata: {generateName: job-}}"))));
  EXPECT_EQ(names.size(), 50u);
  for (const std::string& name : names) EXPECT_THAT(name, testing::MatchesRegex("job-[bcdfghjklmnpqrstvwxz2-9]+")) << name;
  EXPECT_EQ(names.begin()->size(), 9u);
}

TEST(RegistryCreate, TriesAnotherNameWhenTheGeneratedOneIsTaken) {
  auto store = make_memory_store();
  const ManualClock clock(*parse_time("2026-01-01T00:00:00Z"));
  int suffixes = 0;
  auto registry = Registry::open(*store, clock, {.random = [&](std::size_t count) { return count == 5 ? std::string(5, static_cast<char>(suffixes++ / 2)) : std::string(count, 'u'); }});
  ASSERT_TRUE(registry);
  const auto kind = (*registry)->kinds()->find("", "v1", "configmaps");
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    Waiter waiter;
    (*registry)->create({}, *kind, "default", json("{metadata: {generateName: a-}}"), waiter.reply());
    names.insert(kube::name_of(object_of(waiter.wait())));
  }
  EXPECT_EQ(names.size(), 3u);
  EXPECT_GT(suffixes, 3);
}

TEST(RegistryCreate, NeedsTheNamespace) {
  World world;
  const auto done = world.create("configmaps", "{metadata: {name: a}}", "nowhere");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error(), (Error{Code::NotFound, "namespaces \"nowhere\" not found"}));
}

TEST(RegistryCreate, ADryRunChangesNothing) {
  World world;
  const Revision before = world.registry->revision();
  const auto done = world.create("pods", small_pod, "default", {.dry_run = true});
  ASSERT_TRUE(done);
  const Json pod = object_of(done);
  EXPECT_EQ(kube::name_of(pod), "web");
  EXPECT_EQ(kube::version_of(pod), "");
  EXPECT_EQ(pod["spec"]["restartPolicy"].string(), "Always");
  EXPECT_EQ(world.registry->revision(), before);
}

TEST(RegistryUpdate, ComparesTheVersion) {
  World world;
  const auto maps = world.kind("configmaps");
  const Json first = object_of(world.create("configmaps", "{metadata: {name: a}, data: {k: '1'}}"));
  Json second = first;
  second.child("data").set("k", "2");
  world.must(world.update(*maps, second));
  const auto stale = world.update(*maps, second);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error(), (Error{Code::Conflict, "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again"}));
  second.child("metadata").erase("resourceVersion");
  EXPECT_TRUE(world.update(*maps, second));
}

TEST(RegistryUpdate, WithoutAChangeNothingIsWritten) {
  World world;
  const Json pod = object_of(world.create("pods", small_pod));
  const Revision before = world.registry->revision();
  const auto done = world.update(*world.kind("pods"), pod);
  ASSERT_TRUE(done);
  EXPECT_EQ(object_of(done), pod);
  EXPECT_EQ(world.registry->revision(), before);
}

TEST(RegistryUpdate, SystemFieldsAreTheServers) {
  World world;
  Json pod = object_of(world.create("pods", small_pod));
  Json sent = pod;
  sent.child("metadata").set("creationTimestamp", "2000-01-01T00:00:00Z").set("generation", 9).set("deletionTimestamp", "2000-01-01T00:00:00Z");
  sent.child("metadata").child("labels").set("x", "y");
  sent.child("status").set("phase", "Failed");
  const Json done = object_of(world.update(*world.kind("pods"), sent));
  EXPECT_EQ(done["metadata"]["creationTimestamp"], pod["metadata"]["creationTimestamp"]);
  EXPECT_EQ(done["metadata"]["generation"].integer(), 1);
  EXPECT_FALSE(kube::deleting(done));
  EXPECT_EQ(done["status"]["phase"].string(), "Pending");
  EXPECT_EQ(done["metadata"]["labels"]["x"].string(), "y");
}

TEST(RegistryUpdate, StatusAndSpecDoNotTouchEachOther) {
  World world;
  const auto pods = world.kind("pods");
  Json pod = object_of(world.create("pods", small_pod));
  pod.child("spec").set("nodeName", "evil");
  pod.child("metadata").child("labels").set("x", "y");
  pod.set("status", json("{phase: Running, podIP: 10.0.0.1}"));
  const Json done = object_of(world.update(*pods, pod, "status"));
  EXPECT_EQ(done["status"]["phase"].string(), "Running");
  EXPECT_EQ(done["status"]["qosClass"].string(), "BestEffort");
  EXPECT_FALSE(done["spec"].has("nodeName"));
  EXPECT_FALSE(done["metadata"]["labels"].has("x"));
  EXPECT_EQ(done["metadata"]["generation"].integer(), 1);
  EXPECT_EQ(world.update(*world.kind("configmaps"), json("{metadata: {name: a, namespace: default}}"), "status").error().message, "the server could not find the requested resource");
}

struct FixedCase {
  const char* name;
  const char* plural;
  const char* body;
  const char* patch;
  const char* message;  // empty: allowed
};
class Immutable : public testing::TestWithParam<FixedCase> {};
TEST_P(Immutable, Fields) {
  World world;
  const auto& row = GetParam();
  world.must(world.create(row.plural, row.body));
  const auto kind = world.kind(row.plural);
  const auto done = world.patch(*kind, {kind->resource.namespaced ? "default" : "", "a"}, row.patch);
  if (*row.message == '\0') EXPECT_TRUE(done) << message_of(done);
  else EXPECT_THAT(message_of(done), HasSubstr(row.message));
}
constexpr const char* plain_pod = "{metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}";
constexpr const char* plain_claim = "{metadata: {name: a}, spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}}";
INSTANTIATE_TEST_SUITE_P(
    All, Immutable,
    testing::Values(FixedCase{"pod_node", "pods", plain_pod, "{spec: {nodeName: x}}", "spec: Forbidden: pod updates may not change fields other than"},
                    FixedCase{"pod_container", "pods", plain_pod, "{spec: {containers: [{name: c, image: i, command: [x]}]}}", "spec: Forbidden: pod updates may not change"},
                    FixedCase{"pod_labels_may", "pods", plain_pod, "{metadata: {labels: {x: yy}}}", ""},
                    FixedCase{"pod_tolerations_may_grow", "pods", plain_pod,
                              "{spec: {tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, "
                              "{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 300}, {key: x, operator: Exists}]}}",
                              ""},
                    FixedCase{"pod_tolerations_may_not_shrink", "pods", "{metadata: {name: a}, spec: {tolerations: [{key: x, operator: Exists}], containers: [{name: c, image: i}]}}", "{spec: {tolerations: []}}", "spec.tolerations: Forbidden: existing toleration can not be modified"},
                    FixedCase{"config_map", "configmaps", "{metadata: {name: a}, immutable: true, data: {k: v}}", "{data: {k: w}}", "data: Forbidden: field is immutable when `immutable` is set"},
                    FixedCase{"config_map_stays_immutable", "configmaps", "{metadata: {name: a}, immutable: true, data: {k: v}}", "{immutable: false}", "immutable: Forbidden: field is immutable when `immutable` is set"},
                    FixedCase{"config_map_labels_may", "configmaps", "{metadata: {name: a}, immutable: true}", "{metadata: {labels: {x: yy}}}", ""},
                    FixedCase{"secret_type", "secrets", "{metadata: {name: a}}", "{type: other}", "type: Invalid value: \"other\": field is immutable"},
                    FixedCase{"claim_grows", "persistentvolumeclaims", plain_claim, "{spec: {resources: {requests: {storage: 2Gi}}}}", ""},
                    FixedCase{"claim_never_shrinks", "persistentvolumeclaims", plain_claim, "{spec: {resources: {requests: {storage: 1Mi}}}}", "field can not be less than previous value"},
                    FixedCase{"claim_modes", "persistentvolumeclaims", plain_claim, "{spec: {accessModes: [ReadWriteOnce]}}", "spec is immutable after creation except resources.requests"},
                    FixedCase{"name", "configmaps", "{metadata: {name: a}}", "{metadata: {name: b}}", "the name of the object (b) does not match the name on the URL (a)"},
                    FixedCase{"uid", "configmaps", "{metadata: {name: a}}", "{metadata: {uid: b}}", "Precondition failed: UID in precondition: b"},
                    FixedCase{"namespace_spec_is_kept", "namespaces", "{metadata: {name: a}}", "{spec: {finalizers: []}}", ""}),
    [](const auto& row) { return row.param.name; });

TEST(RegistryPatch, OfEveryKind) {
  World world;
  const auto maps = world.kind("configmaps");
  world.must(world.create("configmaps", "{metadata: {name: a}, data: {k: '1', l: '2'}}"));
  EXPECT_EQ(object_of(world.patch(*maps, {"default", "a"}, "{data: {k: null, m: '3'}}"))["data"], json("{l: '2', m: '3'}"));
  EXPECT_EQ(object_of(world.patch(*maps, {"default", "a"}, "[{op: replace, path: /data/l, value: '5'}]", PatchType::JsonPatch))["data"]["l"].string(), "5");
  EXPECT_THAT(message_of(world.patch(*maps, {"default", "a"}, "[{op: test, path: /data/l, value: '6'}]", PatchType::JsonPatch)), HasSubstr("the server rejected our request"));
  world.must(world.create("nodes", "{metadata: {name: n1}, spec: {taints: [{key: a, effect: NoSchedule}]}}"));
  const Json node = object_of(world.patch(*world.kind("nodes"), {"", "n1"}, "{spec: {podCIDR: 10.0.0.0/24}}", PatchType::Strategic));
  EXPECT_EQ(node["spec"]["taints"].items().size(), 2u);  // that of nodes which are not ready yet, too
  EXPECT_EQ(node["spec"]["podCIDR"].string(), "10.0.0.0/24");
  const auto stale = world.patch(*maps, {"default", "a"}, "{metadata: {resourceVersion: '1'}, data: {x: yy}}");
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, Code::Conflict);
}

void many_patches_at_once(World& world) {
  world.must(world.create("configmaps", "{metadata: {name: a}}"));
  const auto maps = world.kind("configmaps");
  constexpr int writers = 4, each = 25;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < writers; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) world.must(world.patch(*maps, {"default", "a"}, fmt::format("{{data: {{k{}-{}: x}}}}", t, i)));
      });
  }
  EXPECT_EQ(world.get(*maps, {"default", "a"})["data"].members().size(), static_cast<std::size_t>(writers * each));
}

TEST(RegistryPatch, ManyAtOnceAllCount) {
  World world;
  many_patches_at_once(world);
}

TEST(RegistryPatch, ManyAtOnceAllCountOnDisk) {
  std::string folder = testing::TempDir() + "fairlead-registry-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  auto store = open_sqlite_store({.path = folder + "/store.db"});
  ASSERT_TRUE(store) << store.error().message;
  {
    World world({}, std::move(*store));
    many_patches_at_once(world);
  }
  EXPECT_TRUE(remove_tree(folder));
}

TEST(RegistryBinding, AssignsOnce) {
  World world;
  const auto pods = world.kind("pods");
  world.must(world.create("pods", small_pod));
  const kube::ObjectKey key{"default", "web"};
  EXPECT_THAT(message_of(world.post(*pods, key, "binding", "{target: {kind: Pod, name: x}}")), HasSubstr("target.kind: Unsupported value"));
  const auto done = world.post(*pods, key, "binding", "{metadata: {name: web}, target: {kind: Node, name: n1}}");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(object_of(done)["status"].string(), "Success");
  EXPECT_TRUE(done->created);
  const Json pod = world.get(*pods, key);
  EXPECT_EQ(pod["spec"]["nodeName"].string(), "n1");
  EXPECT_TRUE(kube::condition_is_true(pod, "PodScheduled"));
  const auto again = world.post(*pods, key, "binding", "{target: {name: n2}}");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error(), (Error{Code::Conflict, "Operation cannot be fulfilled on pods/binding \"web\": pod web is already assigned to node \"n1\""}));
}

}  // namespace
}  // namespace fairlead::apiserver::test
