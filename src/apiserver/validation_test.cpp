// SPDX-License-Identifier: Apache-2.0
// Refusals and warnings in the words of kube-apiserver 1.33, by table. The answers were compared with a real one (tests/peers/corpus).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/go_text.h"
#include "apiserver/registry_test_kit.h"
#include "apiserver/status.h"
#include "apiserver/validation.h"
#include "apiserver/warnings.h"
#include "http/pki.h"
#include "kube/patch.h"

namespace fairlead::apiserver::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct WordsCase {
  const char* name;
  const char* plural;
  const char* body;
  const char* message;  // behind "is invalid: "
  const char* group = "";
};
class Words : public testing::TestWithParam<WordsCase> {};
TEST_P(Words, AreThoseOfKubernetes) {
  World world;
  const auto done = world.create(*world.kind(GetParam().plural, GetParam().group), json(GetParam().body), "default");
  ASSERT_FALSE(done) << print_json(object_of(done));
  EXPECT_THAT(done.error().message, HasSubstr(std::string(" is invalid: ") + GetParam().message));
}
INSTANTIATE_TEST_SUITE_P(
    All, Words,
    testing::Values(
        WordsCase{"finalizer", "configmaps", "{metadata: {name: a, finalizers: [x.dev/y, no.dots]}}",
                  "metadata.finalizers[1]: Invalid value: \"no.dots\": name is neither a standard finalizer name nor is it fully qualified"},
        WordsCase{"owner", "configmaps", "{metadata: {name: a, ownerReferences: [{name: x}]}}",
                  "[metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty, metadata.ownerReferences.kind: Invalid value: \"\": kind must not be empty, "
                  "metadata.ownerReferences.uid: Invalid value: \"\": uid must not be empty]"},
        WordsCase{"owner_version", "configmaps", "{metadata: {name: a, ownerReferences: [{apiVersion: a/b/c, kind: K, uid: u, name: x}]}}",
                  "metadata.ownerReferences.apiVersion: Invalid value: \"a/b/c\": version must not be empty"},
        WordsCase{"service_type", "services", "{metadata: {name: a}, spec: {type: Frob, clusterIP: None}}",
                  "spec.type: Unsupported value: \"Frob\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""},
        WordsCase{"service_affinity", "services", "{metadata: {name: a}, spec: {clusterIP: None, sessionAffinity: Frob}}",
                  "spec.sessionAffinity: Unsupported value: \"Frob\": supported values: \"ClientIP\", \"None\""},
        WordsCase{"service_without_ports", "services", "{metadata: {name: a}, spec: {selector: {a: b}}}", "spec.ports: Required value"},
        WordsCase{"service_port_twice", "services", "{metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80, name: a}, {port: 80, name: b}]}}",
                  "spec.ports[1]: Duplicate value: core.ServicePort{Name:\"\", Protocol:\"TCP\", AppProtocol:(*string)(nil), Port:80, TargetPort:intstr.IntOrString{Type:0, IntVal:0, StrVal:\"\"}, "
                  "NodePort:0}"},
        WordsCase{"service_address", "services", "{metadata: {name: a}, spec: {clusterIP: x, ports: [{port: 80}]}}",
                  "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"},
        WordsCase{"claim_mode", "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], volumeMode: Frob, resources: {requests: {storage: 1Gi}}}}",
                  "spec.volumeMode: Unsupported value: \"Frob\": supported values: \"Block\", \"Filesystem\""},
        WordsCase{"claim_source", "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}, dataSource: {kind: PersistentVolumeClaim, name: b}, dataSourceRef: {kind: PersistentVolumeClaim, name: c}}}",
                  "spec: Invalid value: \"b\": must match dataSourceRef"},
        WordsCase{"claim_source_without_name", "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], volumeMode: Filesystem, resources: {requests: {storage: 1Gi}}, dataSourceRef: {apiGroup: fairlead.dev, kind: Snapshot}}}",
                  "spec.dataSourceRef.name: Required value"},
        WordsCase{"token_secret", "secrets", "{metadata: {name: a}, type: kubernetes.io/service-account-token}", "metadata.annotations[kubernetes.io/service-account.name]: Required value"},
        WordsCase{"taint_twice", "nodes", "{metadata: {name: a}, spec: {taints: [{key: k, effect: NoSchedule}, {key: k, effect: NoSchedule}]}}",
                  "metadata.taints[1]: Duplicate value: core.Taint{Key:\"k\", Value:\"\", Effect:\"NoSchedule\", TimeAdded:<nil>}: taints must be unique by key and effect pair"},
        WordsCase{"probe_two", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i, livenessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}}]}}",
                  "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type"},
        WordsCase{"sub_path", "pods", "{metadata: {name: a}, spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v, subPath: ../x}]}]}}",
                  "spec.containers[0].volumeMounts.subPath: Invalid value: \"../x\": must not contain '..'"},
        WordsCase{"device_of_no_claim", "pods", "{metadata: {name: a}, spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: c, image: i, volumeDevices: [{name: v, devicePath: /dev/xvda}]}]}}",
                  "spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"},
        WordsCase{"device_and_mount", "pods", "{metadata: {name: a}, spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: x}}], containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}], volumeDevices: [{name: v, devicePath: /dev/../v}]}]}}",
                  "[spec.containers[0].volumeDevices[0].name: Invalid value: \"v\": must not already exist in volumeMounts, spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/dev/../v\": can not contain backsteps ('..')]"},
        WordsCase{"device_of_nothing", "pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i, volumeDevices: [{name: v}]}]}}",
                  "[spec.containers[0].volumeDevices[0].name: Not found: \"v\", spec.containers[0].volumeDevices[0].devicePath: Required value]"},
        WordsCase{"budget_text", "poddisruptionbudgets", "{metadata: {name: a}, spec: {minAvailable: x}}",
                  "spec.minAvailable: Invalid value: intstr.IntOrString{Type:1, IntVal:0, StrVal:\"x\"}: a valid percent string must be", "policy"},
        WordsCase{"job_selector", "jobs",
                  "{metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}",
                  "[spec.selector: Invalid value: v1.LabelSelector{MatchLabels:map[string]string{\"a\":\"b\", \"batch.kubernetes.io/controller-uid\":\"", "batch"}),
    [](const auto& row) { return row.param.name; });

TEST(JobSelector, BothComplaintsAreTold) {
  World world;
  const auto done = world.create(*world.kind("jobs", "batch"),
                                 json("{metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), "default");
  ASSERT_FALSE(done);
  const Status status = status_of(done.error());
  ASSERT_EQ(status.details.causes.size(), 2u);
  EXPECT_EQ(status.details.causes[0].field, "spec.selector");
  EXPECT_EQ(status.details.causes[1].field, "spec.template.metadata.labels");
  EXPECT_THAT(status.details.causes[1].message, testing::EndsWith(", \"job-name\":\"a\"}: `selector` does not match template `labels`"));
}

struct ChangeCase {
  const char* name;
  const char* old_spec;
  const char* patch;    // a merge patch of the spec
  const char* message;  // "": allowed
};
class PodChange : public testing::TestWithParam<ChangeCase> {};
TEST_P(PodChange, IsJudgedAsByKubernetes) {
  const Json old = Json::object({{"metadata", json("{name: p}")}, {"spec", json(GetParam().old_spec)}});
  const Json next = kube::merge_patch(old, Json::object({{"spec", json(GetParam().patch)}}));
  FieldErrors errors;
  check_pod_change(old, next, errors);
  if (std::string_view(GetParam().message).empty()) EXPECT_TRUE(errors.empty()) << errors.texts().front();
  else EXPECT_THAT(errors.texts(), ElementsAre(HasSubstr(GetParam().message)));
}
constexpr const char* plain_spec = "{containers: [{name: c, image: a:1}], tolerations: [{key: t, operator: Exists, tolerationSeconds: 300}]}";
INSTANTIATE_TEST_SUITE_P(
    All, PodChange,
    testing::Values(
        ChangeCase{"image", plain_spec, "{containers: [{name: c, image: a:2}]}", ""},
        ChangeCase{"init_image", "{containers: [{name: c, image: i}], initContainers: [{name: i, image: a}]}", "{initContainers: [{name: i, image: b}]}", ""},
        ChangeCase{"env", plain_spec, "{containers: [{name: c, image: a:1, env: [{name: A, value: b}]}]}", "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"},
        ChangeCase{"what_changed_is_told", plain_spec, "{nodeName: n, restartPolicy: Never}", "\nchanged: spec.nodeName, spec.restartPolicy"},
        ChangeCase{"one_more_container", plain_spec, "{containers: [{name: c, image: a:1}, {name: d, image: x}]}", "spec.containers: Forbidden: pod updates may not add or remove containers"},
        ChangeCase{"no_more_init_container", "{containers: [{name: c, image: i}], initContainers: [{name: i, image: a}]}", "{initContainers: null}", "spec.initContainers: Forbidden: pod updates may not add or remove"},
        ChangeCase{"a_deadline_comes", plain_spec, "{activeDeadlineSeconds: 5}", ""},
        ChangeCase{"a_deadline_shrinks", "{activeDeadlineSeconds: 9, containers: []}", "{activeDeadlineSeconds: 5}", ""},
        ChangeCase{"a_deadline_grows", "{activeDeadlineSeconds: 5, containers: []}", "{activeDeadlineSeconds: 9}", "spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"},
        ChangeCase{"one_more_toleration", plain_spec, "{tolerations: [{key: t, operator: Exists, tolerationSeconds: 300}, {key: u, operator: Exists}]}", ""},
        ChangeCase{"a_toleration_lasts_longer", plain_spec, "{tolerations: [{key: t, operator: Exists, tolerationSeconds: 900}]}", ""},
        ChangeCase{"a_toleration_goes", plain_spec, "{tolerations: null}", "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
        ChangeCase{"a_gate_is_lifted", "{containers: [], schedulingGates: [{name: a}, {name: b}]}", "{schedulingGates: [{name: b}]}", ""},
        ChangeCase{"a_gate_comes", plain_spec, "{schedulingGates: [{name: a}]}", "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate 'a'"},
        ChangeCase{"narrowed_behind_a_gate", "{containers: [], schedulingGates: [{name: a}]}", "{nodeSelector: {zone: x}, affinity: {nodeAffinity: {}}}", ""},
        ChangeCase{"widened_behind_a_gate", "{containers: [], nodeSelector: {zone: x}, schedulingGates: [{name: a}]}", "{nodeSelector: {zone: 'y'}}", "spec.nodeSelector: Invalid value: "},
        ChangeCase{"narrowed_without_a_gate", plain_spec, "{nodeSelector: {zone: x}}", "spec: Forbidden: pod updates may not change fields other than"},
        ChangeCase{"a_grace_that_was_negative", "{containers: [], terminationGracePeriodSeconds: -1}", "{terminationGracePeriodSeconds: 1}", ""},
        ChangeCase{"a_grace_that_was_not", "{containers: [], terminationGracePeriodSeconds: 30}", "{terminationGracePeriodSeconds: 1}", "spec: Forbidden: pod updates may not change fields other than"}),
    [](const auto& row) { return row.param.name; });

TEST(Written, AsGoWouldHaveIt) {
  World world;
  EXPECT_EQ(object_of(world.create("configmaps", "{metadata: {name: a, generation: 9}, data: {k: null}}"))["metadata"]["generation"].integer(), 9);
  const Json map = object_of(world.create(*world.kind("configmaps"), *kube::parse_json(R"({"metadata":{"name":"b"},"data":{"k":null}})"), "default"));
  EXPECT_EQ(print_json(map["data"]), R"({"k":""})");
  const Json claim = object_of(world.create("persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"));
  EXPECT_EQ(claim["metadata"]["finalizers"], json("[kubernetes.io/pvc-protection]"));
  const Json node = object_of(world.create("nodes", "{metadata: {name: a}, spec: {taints: [{key: k, effect: NoSchedule}]}}"));
  EXPECT_EQ(node["spec"]["taints"], json("[{key: k, effect: NoSchedule}, {key: node.kubernetes.io/not-ready, effect: NoSchedule}]"));
  const Json open = object_of(world.create("services", "{metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80}]}}"));
  EXPECT_EQ(open["spec"]["ipFamilyPolicy"].string(), "RequireDualStack");
  EXPECT_EQ(open["spec"]["ipFamilies"], json("[IPv4, IPv6]"));
}

TEST(Written, TheLastFinalizerTakesItsEntryWithIt) {
  World world;
  const auto maps = world.kind("configmaps");
  world.must(world.create("configmaps", "{metadata: {name: a, finalizers: [x.dev/y]}, data: {k: v}}", "default", {.field_manager = "m"}));
  world.must(world.remove(*maps, {"default", "a"}));
  const Json last = object_of(world.patch(*maps, {"default", "a"}, "{metadata: {finalizers: null}}", kube::PatchType::Merge, "", {.field_manager = "m"}));
  ASSERT_EQ(last["metadata"]["managedFields"].items().size(), 1u);
  EXPECT_FALSE(last["metadata"]["managedFields"].items()[0]["fieldsV1"].has("f:metadata")) << print_json(last);
}

TEST(GoText, IsWhatFieldErrorsShow) {
  EXPECT_EQ(go_string_map(json("{b: '2', a: '1'}")), "map[string]string{\"a\":\"1\", \"b\":\"2\"}");
  EXPECT_EQ(go_string_map(Json()), "map[string]string(nil)");
  EXPECT_EQ(go_int_or_string(Json(7)), "intstr.IntOrString{Type:0, IntVal:7, StrVal:\"\"}");
  EXPECT_EQ(go_label_selector(json("{matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Exists}]}")),
            "v1.LabelSelector{MatchLabels:map[string]string(nil), MatchExpressions:[]v1.LabelSelectorRequirement{v1.LabelSelectorRequirement{Key:\"a\", Operator:\"In\", Values:[]string{\"b\"}}, "
            "v1.LabelSelectorRequirement{Key:\"c\", Operator:\"Exists\", Values:[]string(nil)}}}");
}

TEST(Warnings, OfKeyPairsThatFitNot) {
  const Instant now = *parse_time("2026-01-01T00:00:00Z");
  const auto one = http::make_ca("a", now), two = http::make_ca("b", now);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(key_pair_error(one->certificate_pem, one->key_pem), "");
  EXPECT_EQ(key_pair_error(one->certificate_pem, two->key_pem), "tls: private key does not match public key");
  EXPECT_EQ(key_pair_error("", ""), "tls: failed to find any PEM data in certificate input");
  EXPECT_EQ(key_pair_error(one->certificate_pem, "x"), "tls: failed to find any PEM data in key input");
  EXPECT_THAT(key_pair_error(one->key_pem, one->certificate_pem), HasSubstr("PEM inputs may have been switched"));
  EXPECT_EQ(key_pair_error(one->certificate_pem, one->certificate_pem), "tls: found a certificate rather than a key in the PEM for the private key");
  World world;
  const auto made = world.create("secrets", "{metadata: {name: a}, type: kubernetes.io/tls, data: {tls.crt: '', tls.key: ''}}");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->warnings, ElementsAre("tls: failed to find any PEM data in certificate input"));
}

TEST(StatusOf, WhatIsMissingIsNamedWhateverWasAskedFor) {
  const Status status = status_of(Error{Code::NotFound, "namespaces \"nowhere\" not found"}, {.name = "a", .kind = "configmaps"});
  EXPECT_EQ(status.details.kind, "namespaces");
  EXPECT_EQ(status.details.name, "nowhere");
  const Status grouped = status_of(Error{Code::NotFound, "jobs.batch \"j\" not found"}, {.name = "j", .kind = "pods"});
  EXPECT_EQ(grouped.details.kind, "jobs");
  EXPECT_EQ(grouped.details.group, "batch");
}

}  // namespace
}  // namespace fairlead::apiserver::test
