// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func crates(ns string) (schema.GroupVersionResource, *unstructured.Unstructured) {
	group := ns + ".probe.fairlead.dev"
	text := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"crates.GROUP"},"spec":{"group":"GROUP","scope":"Namespaced",
"names":{"plural":"crates","singular":"crate","kind":"Crate","listKind":"CrateList","shortNames":["crt"]},"versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}},
"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.replicas"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","required":["replicas"],"properties":{
"replicas":{"type":"integer","minimum":0,"maximum":10},"mode":{"type":"string","enum":["soft","hard"],"default":"soft"},"limit":{"x-kubernetes-int-or-string":true},
"free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
"items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"value":{"type":"string"}}}}}},
"status":{"type":"object","properties":{"replicas":{"type":"integer"},"selector":{"type":"string"}}}}}}}]}}`
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "GROUP", group)), &object.Object); err != nil {
		panic(err)
	}
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: "crates"}, object
}

func crate(resource schema.GroupVersionResource, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": "Crate", "metadata": map[string]any{"name": name}, "spec": spec}}
}

func customResources(ctx context.Context, w *world) error {
	resource, definition := crates(w.ns)
	all := w.dynamic.Resource(definitions)
	if _, err := all.Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer all.Delete(context.Background(), definition.GetName(), metav1.DeleteOptions{})
	if err := until(ctx, 20*time.Second, func() string {
		now, err := all.Get(ctx, definition.GetName(), metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		for _, condition := range conditions {
			if one := condition.(map[string]any); one["type"] == "Established" && one["status"] == "True" {
				return ""
			}
		}
		return fmt.Sprintf("conditions are %v", conditions)
	}); err != nil {
		return err
	}
	client := w.dynamic.Resource(resource).Namespace(w.ns)
	var made *unstructured.Unstructured
	if err := until(ctx, 10*time.Second, func() (answer string) {
		var err error
		spec := map[string]any{"replicas": int64(2), "dropped": "x", "free": map[string]any{"kept": "y"}, "limit": "10%"}
		if made, err = client.Create(ctx, crate(resource, "one", spec), metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return err
	}
	spec := made.Object["spec"].(map[string]any)
	_, dropped := spec["dropped"]
	kept, _, _ := unstructured.NestedString(made.Object, "spec", "free", "kept")
	if err := want(spec["mode"] == "soft" && !dropped && kept == "y" && made.GetGeneration() == 1, "defaults and pruning gave %v, generation %d", spec, made.GetGeneration()); err != nil {
		return err
	}
	_, err := client.Create(ctx, crate(resource, "bad", map[string]any{"replicas": int64(11), "mode": "odd"}), metav1.CreateOptions{})
	if err := want(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.replicas") && strings.Contains(err.Error(), "spec.mode"), "an invalid object: %v", err); err != nil {
		return err
	}
	// Status is a part of its own: neither write touches the other's, and it leaves the generation alone.
	made.Object["status"] = map[string]any{"replicas": int64(1), "selector": "a=b"}
	made.Object["spec"].(map[string]any)["replicas"] = int64(9)
	status, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	size, _, _ := unstructured.NestedInt64(status.Object, "spec", "replicas")
	if err := want(size == 2 && status.GetGeneration() == 1, "a status update made spec.replicas %d, generation %d", size, status.GetGeneration()); err != nil {
		return err
	}
	scale, err := client.Get(ctx, "one", metav1.GetOptions{}, "scale")
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	replicas, _, _ := unstructured.NestedInt64(scale.Object, "spec", "replicas")
	selector, _, _ := unstructured.NestedString(scale.Object, "status", "selector")
	if err := want(scale.GetKind() == "Scale" && replicas == 2 && selector == "a=b", "scale is %v", scale.Object); err != nil {
		return err
	}
	if _, err := client.Patch(ctx, "one", types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}, "scale"); err != nil {
		return fmt.Errorf("patch of scale: %w", err)
	}
	now, err := client.Get(ctx, "one", metav1.GetOptions{})
	if err != nil {
		return err
	}
	size, _, _ = unstructured.NestedInt64(now.Object, "spec", "replicas")
	if err := want(size == 4 && now.GetGeneration() == 2, "after scaling spec.replicas is %d, generation %d", size, now.GetGeneration()); err != nil {
		return err
	}
	if _, err := client.Patch(ctx, "one", types.StrategicMergePatchType, []byte(`{}`), metav1.PatchOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		return fmt.Errorf("a strategic patch of a custom resource: %v", err)
	}
	// Apply merges lists by the schema's keys.
	item := func(name, value string) []any { return []any{map[string]any{"name": name, "value": value}} }
	apply := func(manager string, items []any, force bool) (*unstructured.Unstructured, error) {
		return client.Apply(ctx, "one", crate(resource, "one", map[string]any{"items": items}), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("one", item("a", "1"), false); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	merged, err := apply("two", item("b", "2"), false)
	if err != nil {
		return fmt.Errorf("apply by a second manager: %w", err)
	}
	items, _, _ := unstructured.NestedSlice(merged.Object, "spec", "items")
	if err := want(len(items) == 2, "two managers' items became %v", items); err != nil {
		return err
	}
	if _, err := apply("two", item("a", "3"), false); !apierrors.IsConflict(err) {
		return fmt.Errorf("apply against another's item: %v", err)
	}
	forced, err := apply("two", item("a", "3"), true)
	if err != nil {
		return err
	}
	items, _, _ = unstructured.NestedSlice(forced.Object, "spec", "items")
	return want(len(items) == 1 && items[0].(map[string]any)["value"] == "3", "after force items are %v", items)
}

func allChecks() []check {
	return []check{
		{"discovery-aggregated", discovery}, {"openapi-v3", openAPI}, {"typed-protobuf", protobuf}, {"status-errors", statusErrors}, {"generate-name", generateName},
		{"pagination-and-deletecollection", pagination}, {"selectors", selectors}, {"patches", patches}, {"dry-run-and-strict-fields", dryRunAndStrict}, {"server-side-apply", serverSideApply},
		{"custom-resources", customResources}, {"watch-and-resume", watchAndResume}, {"watch-timeout", watchEnds}, {"bad-versions-and-tokens", badVersion}, {"watch-initial-events", initialEvents},
		{"informer-list-then-watch", informer(false)}, {"leader-election", leaderElection}, {"finalizers", finalizers}, {"deletion-policies", deletionPolicies}, {"eviction-and-budget", eviction},
		{"endpoint-slices", endpoints}, {"job-suspend-indexed-foreground", jobs}, {"priority-classes", priorities}, {"service-account-tokens", tokens}, {"roles-and-access-reviews", roles},
		{"aggregated-cluster-roles", aggregatedRoles}, {"impersonation", impersonation}, {"namespace-deletion", namespaceDeletion},
	}
}

func watchListChecks() []check { return []check{{"informer-watch-list", informer(true)}} }
