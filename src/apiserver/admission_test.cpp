// SPDX-License-Identifier: Apache-2.0
#include "apiserver/admission.h"

#include <gmock/gmock.h>

#include "apiserver/admission_priority.h"

namespace fairlead::apiserver {
namespace {

using kube::Json;
Json yaml(const std::string& text) { return kube::parse_yaml(text)->at(0); }

TEST(Admission, APodGetsTheTokenOfItsAccountUnlessOneOfThemDeclines) {
  struct Row {
    const char *pod, *account;
    bool want;
  };
  for (const Row& row : {
           Row{"{}", "{}", true},
           Row{"{}", "{automountServiceAccountToken: false}", false},
           Row{"{automountServiceAccountToken: true}", "{automountServiceAccountToken: false}", true},
           Row{"{automountServiceAccountToken: false}", "{automountServiceAccountToken: true}", false},
       }) {
    Json pod = Json::object({{"spec", yaml(row.pod)}});
    pod.child("spec").set("containers", yaml("[{name: a}, {name: b, volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]"));
    pod.set("metadata", yaml("{uid: 0f9cb6c0-3d2b-4f60-9d7c-9ec7d8a5a4f1}"));
    apply_service_account(pod, yaml(row.account));
    const Json& spec = pod["spec"];
    EXPECT_EQ(spec["volumes"].items().size(), row.want ? 1u : 0u) << row.pod << row.account;
    EXPECT_EQ(spec["containers"].items()[0]["volumeMounts"].items().size(), row.want ? 1u : 0u);
    EXPECT_EQ(spec["containers"].items()[1]["volumeMounts"].items().size(), 1u) << "what is mounted there stays";
    if (!row.want) continue;
    EXPECT_THAT(spec["volumes"].items()[0]["name"].string(), testing::MatchesRegex("kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}"));
    EXPECT_EQ(spec["volumes"].items()[0]["projected"],
              yaml("{defaultMode: 420, sources: [{serviceAccountToken: {expirationSeconds: 3607, path: token}}, {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, "
                   "{downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}"));
    EXPECT_EQ(spec["containers"].items()[0]["volumeMounts"].items()[0]["name"], spec["volumes"].items()[0]["name"]);
    EXPECT_TRUE(spec["containers"].items()[0]["volumeMounts"].items()[0]["readOnly"].boolean());
  }
}

TEST(Admission, InitContainersGetTheTokenTooAndAPodThatWasReadKeepsItsVolume) {
  Json pod = yaml("{metadata: {uid: u}, spec: {initContainers: [{name: i}], containers: [{name: a}]}}");
  apply_service_account(pod, yaml("{}"));
  EXPECT_EQ(pod["spec"]["initContainers"].items()[0]["volumeMounts"], pod["spec"]["containers"].items()[0]["volumeMounts"]);
  Json again = pod;
  again.child("metadata").set("uid", "another");
  apply_service_account(again, yaml("{}"));
  EXPECT_EQ(again["spec"], pod["spec"]);
  again.child("spec").child("containers").items()[0].erase("volumeMounts");
  apply_service_account(again, yaml("{}"));
  EXPECT_EQ(again["spec"], pod["spec"]) << "the volume that is there is mounted";
}

TEST(Admission, AMirrorPodHasNoAccount) {
  const char* annotated = "{metadata: {annotations: {kubernetes.io/config.mirror: h}}, spec: ";
  EXPECT_FALSE(is_mirror_pod(yaml("{metadata: {annotations: {kubernetes.io/config.source: api}}}")));
  EXPECT_TRUE(is_mirror_pod(yaml(std::string(annotated) + "{}}")));
  EXPECT_EQ(mirror_pod_refusal(yaml(std::string(annotated) + "{nodeName: n1}}")), "");
  EXPECT_THAT(mirror_pod_refusal(yaml(std::string(annotated) + "{}}")), testing::HasSubstr("spec.nodeName"));
  EXPECT_THAT(mirror_pod_refusal(yaml(std::string(annotated) + "{nodeName: n1, volumes: [{projected: {sources: [{serviceAccountToken: {path: t}}]}}]}}")),
              testing::HasSubstr("ServiceAccountToken"));
}

TEST(Admission, PullSecretsComeFromTheAccountWhereThePodNamesNone) {
  const Json account = yaml("{imagePullSecrets: [{name: registry}]}");
  Json plain = yaml("{spec: {automountServiceAccountToken: false, containers: [{name: a}]}}"), own = yaml("{spec: {imagePullSecrets: [{name: own}]}}");
  apply_service_account(plain, account);
  apply_service_account(own, account);
  EXPECT_EQ(plain["spec"]["imagePullSecrets"], yaml("[{name: registry}]"));
  EXPECT_EQ(own["spec"]["imagePullSecrets"], yaml("[{name: own}]"));
}

TEST(AdmissionPriority, ComesFromTheClassOrTheDefault) {
  const Json high = yaml("{metadata: {name: high}, value: 100, preemptionPolicy: Never}"), usual = yaml("{metadata: {name: usual}, value: 5, preemptionPolicy: PreemptLowerPriority}");
  struct Row {
    const char* spec;
    const Json *named, *otherwise;
    const char* want;
  };
  for (const Row& row : {
           Row{"{}", nullptr, nullptr, "{priority: 0, preemptionPolicy: PreemptLowerPriority}"},
           Row{"{}", nullptr, &usual, "{priorityClassName: usual, priority: 5, preemptionPolicy: PreemptLowerPriority}"},
           Row{"{priorityClassName: high}", &high, &usual, "{priorityClassName: high, priority: 100, preemptionPolicy: Never}"},
           Row{"{priorityClassName: high, priority: 100}", &high, nullptr, "{priorityClassName: high, priority: 100, preemptionPolicy: Never}"},
           Row{"{priorityClassName: high, priority: 7}", &high, nullptr, nullptr},
           Row{"{priorityClassName: high, preemptionPolicy: PreemptLowerPriority}", &high, nullptr, nullptr},
           Row{"{priorityClassName: gone}", nullptr, &usual, nullptr},
           Row{"{priority: 3}", nullptr, nullptr, nullptr},
       }) {
    Json pod = Json::object({{"spec", yaml(row.spec)}});
    const auto done = admit_pod_priority(pod, row.named, row.otherwise);
    EXPECT_EQ(done.has_value(), row.want != nullptr) << row.spec;
    if (row.want != nullptr) {
      EXPECT_EQ(pod["spec"], yaml(row.want)) << row.spec;
    }
  }
}

TEST(AdmissionPriority, OfTwoDefaultsTheLowerCounts) {
  const std::vector<Json> classes{yaml("{metadata: {name: a}, value: 9, globalDefault: true}"), yaml("{metadata: {name: b}, value: 1}"),
                                  yaml("{metadata: {name: c}, value: 5, globalDefault: true}")};
  EXPECT_EQ(kube::name_of(*choose_default(classes)), "c");
  EXPECT_EQ(choose_default({}), nullptr);
}

}  // namespace
}  // namespace fairlead::apiserver
