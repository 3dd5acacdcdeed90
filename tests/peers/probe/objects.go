// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/retry"

	"k8s.io/apimachinery/pkg/runtime"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func settings(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"probe": "yes"}}, Data: data}
}

// want is an error unless the condition holds.
func want(condition bool, format string, arguments ...any) error {
	if condition {
		return nil
	}
	return fmt.Errorf(format, arguments...)
}

func discovery(ctx context.Context, w *world) error {
	version, err := w.typed.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	groups, resources, err := w.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, list := range resources {
		for _, resource := range list.APIResources {
			found[list.GroupVersion+"/"+resource.Name] = true
		}
	}
	for _, name := range []string{"v1/pods", "v1/pods/eviction", "v1/pods/log", "coordination.k8s.io/v1/leases", "batch/v1/jobs", "rbac.authorization.k8s.io/v1/roles",
		"policy/v1/poddisruptionbudgets", "discovery.k8s.io/v1/endpointslices", "scheduling.k8s.io/v1/priorityclasses", "authorization.k8s.io/v1/selfsubjectaccessreviews",
		"authentication.k8s.io/v1/tokenreviews", "v1/serviceaccounts/token", "networking.k8s.io/v1/networkpolicies"} {
		if !found[name] {
			return fmt.Errorf("%s is not there (%d groups, server %s)", name, len(groups), version.GitVersion)
		}
	}
	// The client falls back to one request per group silently: that would be 20 requests more.
	return want(!w.asked.has("GET /apis/coordination.k8s.io/v1 "), "discovery was not aggregated: the client asked each group version")
}

func openAPI(ctx context.Context, w *world) error {
	paths, err := w.typed.Discovery().OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	core, ok := paths["api/v1"]
	if !ok {
		return errors.New("no document api/v1")
	}
	document, err := core.Schema("application/json")
	if err != nil {
		return err
	}
	return want(strings.Contains(string(document), `"x-kubernetes-group-version-kind"`), "the document of api/v1 names no kinds")
}

func protobuf(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	made, err := client.Create(ctx, settings("protobuf", map[string]string{"a": "1"}), metav1.CreateOptions{FieldManager: "probe"})
	if err != nil {
		return err
	}
	if !w.asked.has("POST ", "/configmaps", "application/vnd.kubernetes.protobuf") {
		return errors.New("the client did not send protobuf")
	}
	made.Data["b"] = "2"
	made.BinaryData = map[string][]byte{"c": {0, 255, 10}}
	changed, err := client.Update(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	if err := want(changed.ResourceVersion != made.ResourceVersion && changed.Data["b"] == "2" && len(changed.BinaryData["c"]) == 3, "the update came back as %v", changed); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "protobuf"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.UnixMicro(1700000000123456)}}}
	leased, err := w.typed.CoordinationV1().Leases(w.ns).Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := want(leased.Spec.RenewTime.UnixMicro() == 1700000000123456, "microseconds of a Lease were lost: %v", leased.Spec.RenewTime); err != nil {
		return err
	}
	uid := made.UID
	return client.Delete(ctx, "protobuf", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

func statusErrors(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	_, err := client.Get(ctx, "absent", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("absent: %v", err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status); status.Status().Details == nil || status.Status().Details.Name != "absent" || status.Status().Details.Kind != "configmaps" {
		return fmt.Errorf("NotFound lacks details: %v", status.Status())
	}
	made, err := client.Create(ctx, settings("errors", nil), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := client.Create(ctx, settings("errors", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a second create: %v", err)
	}
	stale := made.DeepCopy()
	made.Data = map[string]string{"x": "1"}
	if _, err := client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err := client.Update(ctx, stale.DeepCopy(), metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update: %v", err)
	} else if err == nil {
		stale.Data = map[string]string{"y": "2"}
		if _, err := client.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return fmt.Errorf("a stale update that changes something: %v", err)
		}
	}
	if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := client.Get(ctx, "errors", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Labels["again"] = "yes"
		_, err = client.Update(ctx, now, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	_, err = w.typed.CoreV1().Pods(w.ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "Not_A_Name"}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("an invalid pod: %v", err)
	}
	fields := map[string]bool{}
	if errors.As(err, &status); status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fields[cause.Field] = true
		}
	}
	if err := want(fields["metadata.name"] && fields["spec.containers"], "causes name %v, not metadata.name and spec.containers", fields); err != nil {
		return err
	}
	foreign := types.UID("00000000-0000-0000-0000-000000000000")
	if err := client.Delete(ctx, "errors", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &foreign}}); !apierrors.IsConflict(err) {
		return fmt.Errorf("a delete with another uid: %v", err)
	}
	return client.Delete(ctx, "errors", metav1.DeleteOptions{})
}

func pagination(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	for i := range 25 {
		made := settings(fmt.Sprintf("page-%02d", i), nil)
		made.Labels["page"] = "yes"
		if _, err := client.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	first, err := client.List(ctx, metav1.ListOptions{LabelSelector: "page", Limit: 10})
	if err != nil {
		return err
	}
	// A snapshot: what is added between two pages is not on the later one.
	late := settings("page-99", nil)
	late.Labels["page"] = "yes"
	if _, err := client.Create(ctx, late, metav1.CreateOptions{}); err != nil {
		return err
	}
	names, token, version := len(first.Items), first.Continue, first.ResourceVersion
	for token != "" {
		page, err := client.List(ctx, metav1.ListOptions{LabelSelector: "page", Limit: 10, Continue: token})
		if err != nil {
			return err
		}
		if page.ResourceVersion != version {
			return fmt.Errorf("pages have resourceVersion %s and %s", version, page.ResourceVersion)
		}
		names += len(page.Items)
		token = page.Continue
	}
	if names != 25 {
		return fmt.Errorf("the pages of one list hold %d objects of 25", names)
	}
	whole := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	pages.PageSize = 7
	if err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: "page"}, func(runtime.Object) error { whole++; return nil }); err != nil {
		return err
	}
	if err := want(whole == 26, "the pager saw %d of 26", whole); err != nil {
		return err
	}
	count, err := client.List(ctx, metav1.ListOptions{Limit: 5})
	if err != nil {
		return err
	}
	if err := want(count.RemainingItemCount != nil && *count.RemainingItemCount >= 21, "remainingItemCount is %v", count.RemainingItemCount); err != nil {
		return err
	}
	if err := client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "page"}); err != nil {
		return err
	}
	return until(ctx, 10*time.Second, func() string {
		left, err := client.List(ctx, metav1.ListOptions{LabelSelector: "page"})
		if err != nil || len(left.Items) > 0 {
			return fmt.Sprintf("deletecollection left %d, %v", len(left.Items), err)
		}
		return ""
	})
}

func selectors(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().Pods(w.ns)
	for _, name := range []string{"chosen", "other"} {
		if _, err := client.Create(ctx, sleeper(name, map[string]string{"pick": name}), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	defer func() {
		for _, name := range []string{"chosen", "other"} {
			remove(w, name)
		}
	}()
	for selector, fields := range map[string]string{"pick in (chosen)": "", "pick notin (other),pick": "", "pick": "metadata.name=chosen", "pick!=other,pick": "status.phase!=Running,metadata.name!=none"} {
		list, err := client.List(ctx, metav1.ListOptions{LabelSelector: selector, FieldSelector: fields})
		if err != nil {
			return fmt.Errorf("%s %s: %w", selector, fields, err)
		}
		if len(list.Items) != 1 || list.Items[0].Name != "chosen" {
			return fmt.Errorf("%q with %q found %d pods", selector, fields, len(list.Items))
		}
	}
	if _, err := client.List(ctx, metav1.ListOptions{FieldSelector: "spec.restartPolicyx=Always"}); !apierrors.IsBadRequest(err) {
		return fmt.Errorf("an unknown field selector: %v", err)
	}
	_, err := client.List(ctx, metav1.ListOptions{LabelSelector: "a in (b"})
	return want(apierrors.IsBadRequest(err), "a broken label selector: %v", err)
}

func patches(ctx context.Context, w *world) error {
	pods := w.typed.CoreV1().Pods(w.ns)
	if _, err := pods.Create(ctx, sleeper("patched", map[string]string{"a": "1"}), metav1.CreateOptions{}); err != nil {
		return err
	}
	defer remove(w, "patched")
	// A list with a merge key: the port that is named is changed, the other stays. (A pod's image cannot be changed on the embedded engine, as its subset says.)
	services := w.typed.CoreV1().Services(w.ns)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "patched"}, Spec: corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 81}}}}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	changed, err := services.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(`{"spec":{"ports":[{"name":"c","port":81}]}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("strategic: %w", err)
	}
	names := ""
	for _, port := range changed.Spec.Ports {
		names += port.Name
	}
	if err := want(len(names) == 2 && strings.Contains(names, "a") && strings.Contains(names, "c"), "strategic merge made ports %v", changed.Spec.Ports); err != nil {
		return err
	}
	var pod *corev1.Pod
	if pod, err = pods.Patch(ctx, "patched", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":null,"b":"2"}}}`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if err := want(pod.Labels["b"] == "2" && pod.Labels["a"] == "", "merge patch made labels %v", pod.Labels); err != nil {
		return err
	}
	if _, err = pods.Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/labels/b","value":"2"},{"op":"add","path":"/metadata/labels/c~1d","value":"3"}]`), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("json: %w", err)
	}
	_, err = pods.Patch(ctx, "patched", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/labels/b","value":"3"}]`), metav1.PatchOptions{})
	if err := want(apierrors.IsInvalid(err), "a JSON patch whose test fails: %v", err); err != nil {
		return err
	}
	_, err = pods.Patch(ctx, "patched", types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"1"}}`), metav1.PatchOptions{})
	return want(apierrors.IsConflict(err), "a merge patch with a stale resourceVersion: %v", err)
}

func dryRunAndStrict(ctx context.Context, w *world) error {
	client := w.dynamic.Resource(configMaps).Namespace(w.ns)
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "dry"}, "data": map[string]any{"a": "1"}}}
	made, err := client.Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if err := want(made.GetUID() != "", "a dry run answers no uid"); err != nil {
		return err
	}
	if _, err := client.Get(ctx, "dry", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("a dry run was kept: %v", err)
	}
	unknown := object.DeepCopy()
	unknown.Object["frob"] = "x"
	_, err = client.Create(ctx, unknown, metav1.CreateOptions{FieldValidation: "Strict"})
	if err := want(err != nil && apierrors.IsBadRequest(err) && strings.Contains(err.Error(), `unknown field "frob"`), "strict: %v", err); err != nil {
		return err
	}
	_, err = client.Create(ctx, unknown, metav1.CreateOptions{FieldValidation: "Ignore", DryRun: []string{metav1.DryRunAll}})
	return err
}

func serverSideApply(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	first := applycore.ConfigMap("applied", w.ns).WithData(map[string]string{"a": "1", "b": "1"}).WithLabels(map[string]string{"kept": "yes"})
	made, err := client.Apply(ctx, first, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	owned := false
	for _, entry := range made.ManagedFields {
		owned = owned || entry.Manager == "one" && entry.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(string(entry.FieldsV1.Raw), `"f:a"`)
	}
	if !owned {
		return fmt.Errorf("managedFields: %v", made.ManagedFields)
	}
	same, err := client.Apply(ctx, first, metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	if err := want(same.ResourceVersion == made.ResourceVersion, "applying the same again wrote a new version"); err != nil {
		return err
	}
	second := applycore.ConfigMap("applied", w.ns).WithData(map[string]string{"a": "2", "c": "2"})
	_, err = client.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("a conflicting apply: %v", err)
	}
	causes := 0
	var status apierrors.APIStatus
	if errors.As(err, &status); status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == metav1.CauseTypeFieldManagerConflict && cause.Field == ".data.a" && strings.Contains(cause.Message, `"one"`) {
				causes++
			}
		}
	}
	if err := want(causes == 1, "the conflict does not name .data.a and its manager: %v", err); err != nil {
		return err
	}
	forced, err := client.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil {
		return err
	}
	if err := want(forced.Data["a"] == "2" && forced.Data["b"] == "1" && forced.Data["c"] == "2", "after force data is %v", forced.Data); err != nil {
		return err
	}
	// What a manager no longer names goes, unless another one owns it too.
	less, err := client.Apply(ctx, applycore.ConfigMap("applied", w.ns).WithLabels(map[string]string{"kept": "yes"}), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		return err
	}
	if _, there := less.Data["b"]; there || less.Data["a"] != "2" {
		return fmt.Errorf("after giving up a and b, data is %v", less.Data)
	}
	// An ordinary update takes ownership, and the next apply then conflicts.
	less.Data["c"] = "3"
	if _, err := client.Update(ctx, less, metav1.UpdateOptions{FieldManager: "three"}); err != nil {
		return err
	}
	_, err = client.Apply(ctx, second, metav1.ApplyOptions{FieldManager: "two"})
	if err := want(apierrors.IsConflict(err), "apply after another's update: %v", err); err != nil {
		return err
	}
	// Lists with keys are merged by key.
	service := applycore.Service("applied", w.ns).WithSpec(applycore.ServiceSpec().WithClusterIP("None").WithPorts(applycore.ServicePort().WithName("a").WithPort(80)))
	if _, err := w.typed.CoreV1().Services(w.ns).Apply(ctx, service, metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	other := applycore.Service("applied", w.ns).WithSpec(applycore.ServiceSpec().WithPorts(applycore.ServicePort().WithName("b").WithPort(81)))
	both, err := w.typed.CoreV1().Services(w.ns).Apply(ctx, other, metav1.ApplyOptions{FieldManager: "two"})
	if err != nil {
		return fmt.Errorf("service, second manager: %w", err)
	}
	if err := want(len(both.Spec.Ports) == 2, "two managers' ports became %v", both.Spec.Ports); err != nil {
		return err
	}
	none := applycore.Service("applied", w.ns)
	back, err := w.typed.CoreV1().Services(w.ns).Apply(ctx, none, metav1.ApplyOptions{FieldManager: "two"})
	if err != nil {
		return err
	}
	return want(len(back.Spec.Ports) == 1 && back.Spec.Ports[0].Name == "a", "after giving up port b: %v", back.Spec.Ports)
}

func generateName(ctx context.Context, w *world) error {
	made, err := w.typed.CoreV1().ConfigMaps(w.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-" + rand.String(3) + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return want(strings.HasPrefix(made.Name, made.GenerateName) && len(made.Name) == len(made.GenerateName)+5, "generateName gave %s", made.Name)
}
