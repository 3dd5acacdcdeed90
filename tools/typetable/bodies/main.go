// SPDX-License-Identifier: Apache-2.0

// Writes protobuf bodies as client-go sends them, with the JSON that Go makes of the same objects, for the tests of src/kube/protobuf.cpp:
// for every kind of the table a few objects filled at random (fixed seed), and some by hand as kubectl sends them.
// One file: a line of JSON, then a line of the body in base64, and so on.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bodies:", err)
		os.Exit(1)
	}
}

// withoutNulls drops what Go prints as null: absent in protobuf.
func withoutNulls(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		for key, member := range typed {
			if member == nil {
				delete(typed, key)
			} else {
				typed[key] = withoutNulls(member)
			}
		}
	case []any:
		for i := range typed {
			typed[i] = withoutNulls(typed[i])
		}
	}
	return value
}

func write(out *bytes.Buffer, serializer *protobuf.Serializer, object runtime.Object) {
	var body bytes.Buffer
	must(serializer.Encode(object, &body))
	// Through the wire and back first, so that the JSON holds what the wire can carry.
	decoded, _, err := serializer.Decode(body.Bytes(), nil, nil)
	must(err)
	decoded.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
	text, err := json.Marshal(decoded)
	must(err)
	var generic any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	must(decoder.Decode(&generic))
	text, err = json.Marshal(withoutNulls(generic))
	must(err)
	out.Write(text)
	out.WriteByte('\n')
	out.WriteString(base64.StdEncoding.EncodeToString(body.Bytes()))
	out.WriteByte('\n')
}

func main() {
	file := flag.String("out", "", "file to write")
	flag.Parse()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, rbacv1.AddToScheme, eventsv1.AddToScheme, networkingv1.AddToScheme, apiextensionsv1.AddToScheme} {
		must(add(scheme))
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	var out bytes.Buffer

	filler := randfill.NewWithSeed(7).NilChance(0.6).NumElements(1, 2).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = fmt.Sprintf("s%d", c.Intn(1000)) },
		func(t *metav1.Time, c randfill.Continue) { t.Time = time.Unix(int64(c.Int31()), 0).UTC() },
		func(t *metav1.MicroTime, c randfill.Continue) {
			t.Time = time.Unix(int64(c.Int31()), int64(c.Intn(1000000))*1000).UTC()
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(int64(c.Intn(100000)), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			if c.Bool() {
				*v = intstr.FromInt32(c.Int31())
			} else {
				*v = intstr.FromString("http")
			}
		},
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"raw":[1,"two"]}`) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:metadata":{}}`) },
		func(j *apiextensionsv1.JSON, c randfill.Continue) { j.Raw = []byte(`{"any":true}`) },
		func(s *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
			low := 1.5
			s.Type, s.Minimum = "object", &low
			if c.Intn(3) > 0 {
				s.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}}}
				s.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true}
				s.Dependencies = apiextensionsv1.JSONSchemaDependencies{"a": {Property: []string{"b"}}}
			}
		},
		func(r *rand.Rand, c randfill.Continue) {},
	)
	kinds := []schema.GroupVersionKind{}
	for _, gv := range scheme.PrioritizedVersionsAllGroups() {
		for _, name := range []string{"Namespace", "Node", "Pod", "Service", "ConfigMap", "Secret", "ServiceAccount", "Event", "Binding", "PersistentVolumeClaim", "PersistentVolume", "Endpoints",
			"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Lease", "CustomResourceDefinition", "Eviction", "TokenReview", "SelfSubjectReview", "TokenRequest",
			"SelfSubjectAccessReview", "SelfSubjectRulesReview", "Role", "ClusterRoleBinding", "NetworkPolicy"} {
			if gvk := gv.WithKind(name); scheme.Recognizes(gvk) {
				kinds = append(kinds, gvk)
			}
		}
	}
	for _, gvk := range kinds {
		for i := 0; i < 2; i++ {
			object, err := scheme.New(gvk)
			must(err)
			filler.Fill(object)
			object.GetObjectKind().SetGroupVersionKind(gvk)
			write(&out, serializer, object)
		}
	}

	zero, yes, no := int32(0), true, false
	background := metav1.DeletePropagationBackground
	grace := int64(0)
	byHand := []runtime.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cm", Namespace: "default"}, Data: map[string]string{"a": "1", "empty": ""}, BinaryData: map[string][]byte{"b": {0, 255}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"k": []byte("value"), "none": {}}, Immutable: &no},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: &zero, Paused: false,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{AutomountServiceAccountToken: &yes, Containers: []corev1.Container{{Name: "c", Image: "busybox",
				Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "E"}}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1.5"), "memory": resource.MustParse("2Gi")}}}},
				Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}}}}},
		&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Resource: "pods"}}},
		&authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "u", Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}}}},
		&metav1.DeleteOptions{GracePeriodSeconds: &grace, PropagationPolicy: &background, Preconditions: &metav1.Preconditions{}},
	}
	gvks := []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Namespace"),
		appsv1.SchemeGroupVersion.WithKind("Deployment"), authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"),
		coordinationv1.SchemeGroupVersion.WithKind("DeleteOptions")}
	for i, object := range byHand {
		object.GetObjectKind().SetGroupVersionKind(gvks[i])
		write(&out, serializer, object)
	}
	must(os.WriteFile(*file, out.Bytes(), 0o644))
}
