// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pods that no scheduler touches: a server without nodes, or with some, treats them alike.
func sleeper(name string, labels map[string]string) *corev1.Pod {
	grace := int64(0)
	no := false
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{SchedulerName: "nobody", TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{{Name: "main", Image: "busybox:1", Command: []string{"sleep", "3600"}}}}}
}

func remove(w *world, pod string) {
	now := int64(0)
	w.typed.CoreV1().Pods(w.ns).Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// Plays a kubelet for one pod: bound to a node, running, ready, with an address.
func runningPod(ctx context.Context, w *world, name string, labels map[string]string) error {
	pods := w.typed.CoreV1().Pods(w.ns)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, Spec: corev1.NodeSpec{Unschedulable: true}}
	if _, err := w.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := pods.Create(ctx, sleeper(name, labels), metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: w.ns}}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding: %w", err)
	}
	pod, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.PodIP = "10.1.2.3"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.1.2.3"}}
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized} {
		kept := pod.Status.Conditions[:0]
		for _, one := range pod.Status.Conditions {
			if one.Type != condition {
				kept = append(kept, one)
			}
		}
		pod.Status.Conditions = append(kept, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

func removeNode(w *world) {
	w.typed.CoreV1().Nodes().Delete(context.Background(), w.ns, metav1.DeleteOptions{})
}

func eviction(ctx context.Context, w *world) error {
	if err := runningPod(ctx, w, "guarded", map[string]string{"guard": "yes"}); err != nil {
		return err
	}
	defer removeNode(w)
	defer remove(w, "guarded")
	one := intstr.FromInt32(1)
	budgets := w.typed.PolicyV1().PodDisruptionBudgets(w.ns)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guard"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"guard": "yes"}}}}
	if _, err := budgets.Create(ctx, budget, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Second, func() string {
		now, err := budgets.Get(ctx, "guard", metav1.GetOptions{})
		if err != nil || now.Status.ObservedGeneration != now.Generation || now.Status.CurrentHealthy != 1 || now.Status.DisruptionsAllowed != 0 {
			return fmt.Sprintf("the budget's status is %+v, %v", now.Status, err)
		}
		return ""
	}); err != nil {
		return err
	}
	evict := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "guarded", Namespace: w.ns}}
	err := w.typed.PolicyV1().Evictions(w.ns).Evict(ctx, evict)
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		return fmt.Errorf("an eviction that the budget forbids: %v", err)
	}
	if err := budgets.Delete(ctx, "guard", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := until(ctx, 10*time.Second, func() string {
		if err := w.typed.PolicyV1().Evictions(w.ns).Evict(ctx, evict); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return err
	}
	pod, err := w.typed.CoreV1().Pods(w.ns).Get(ctx, "guarded", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return want(err == nil && pod.DeletionTimestamp != nil, "the evicted pod is not being deleted: %v", err)
}

func endpoints(ctx context.Context, w *world) error {
	if err := runningPod(ctx, w, "behind", map[string]string{"app": "behind"}); err != nil {
		return err
	}
	defer removeNode(w)
	defer remove(w, "behind")
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "behind"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}}}
	made, err := w.typed.CoreV1().Services(w.ns).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := want(made.Spec.ClusterIP != "" && made.Spec.ClusterIP != "None" && len(made.Spec.ClusterIPs) > 0, "the service has the address %q", made.Spec.ClusterIP); err != nil {
		return err
	}
	return until(ctx, 20*time.Second, func() string {
		slices, err := w.typed.DiscoveryV1().EndpointSlices(w.ns).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=front"})
		if err != nil {
			return err.Error()
		}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if endpoint.TargetRef != nil && endpoint.TargetRef.Name == "behind" && endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready && *slice.Ports[0].Port == 8080 {
					return ""
				}
			}
		}
		return fmt.Sprintf("%d slices, none with the pod ready", len(slices.Items))
	})
}

func jobs(ctx context.Context, w *world) error {
	jobs := w.typed.BatchV1().Jobs(w.ns)
	two := int32(2)
	yes := true
	mode := batchv1.IndexedCompletion
	pod := sleeper("", nil)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "two"}, Spec: batchv1.JobSpec{Parallelism: &two, Completions: &two, CompletionMode: &mode, Suspend: &yes, Template: corev1.PodTemplateSpec{Spec: pod.Spec}}}
	if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return err
	}
	suspended := func(wanted corev1.ConditionStatus) func() string {
		return func() string {
			now, err := jobs.Get(ctx, "two", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			for _, condition := range now.Status.Conditions {
				if condition.Type == batchv1.JobSuspended && condition.Status == wanted {
					return ""
				}
			}
			return fmt.Sprintf("conditions are %v", now.Status.Conditions)
		}
	}
	if err := until(ctx, 20*time.Second, suspended(corev1.ConditionTrue)); err != nil {
		return err
	}
	if err := until(ctx, 10*time.Second, func() string {
		now, err := jobs.Get(ctx, "two", metav1.GetOptions{})
		if err == nil {
			no := false
			now.Spec.Suspend = &no
			_, err = jobs.Update(ctx, now, metav1.UpdateOptions{})
		}
		if err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Second, func() string {
		pods, err := w.typed.CoreV1().Pods(w.ns).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=two"})
		if err != nil {
			return err.Error()
		}
		indexes := map[string]bool{}
		for _, pod := range pods.Items {
			indexes[pod.Annotations["batch.kubernetes.io/job-completion-index"]] = metav1.IsControlledBy(&pod, &metav1.ObjectMeta{UID: pod.OwnerReferences[0].UID})
		}
		if len(pods.Items) != 2 || !indexes["0"] || !indexes["1"] {
			return fmt.Sprintf("%d pods with indexes %v", len(pods.Items), indexes)
		}
		return ""
	}); err != nil {
		return err
	}
	policy := metav1.DeletePropagationForeground
	if err := jobs.Delete(ctx, "two", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		return err
	}
	return until(ctx, 30*time.Second, func() string {
		pods, err := w.typed.CoreV1().Pods(w.ns).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=two"})
		_, gone := jobs.Get(ctx, "two", metav1.GetOptions{})
		if err != nil || len(pods.Items) > 0 || !apierrors.IsNotFound(gone) {
			return fmt.Sprintf("%d pods are left, the job: %v, %v", len(pods.Items), gone, err)
		}
		return ""
	})
}

func deletionPolicies(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := "owner-" + strings.ToLower(string(policy))
		owner, err := client.Create(ctx, settings(name, nil), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		yes := true
		owned := settings(name+"-owned", nil)
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &yes}}
		if _, err := client.Create(ctx, owned, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			return err
		}
		err = until(ctx, 30*time.Second, func() string {
			_, ownerErr := client.Get(ctx, name, metav1.GetOptions{})
			left, leftErr := client.Get(ctx, owned.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(ownerErr) {
				return fmt.Sprintf("the owner: %v", ownerErr)
			}
			if policy == metav1.DeletePropagationOrphan {
				if leftErr != nil || len(left.OwnerReferences) != 0 {
					return fmt.Sprintf("the orphan: %v, %v", left.OwnerReferences, leftErr)
				}
				return ""
			}
			if !apierrors.IsNotFound(leftErr) {
				return fmt.Sprintf("the dependent is still there: %v", leftErr)
			}
			return ""
		})
		if err != nil {
			return fmt.Errorf("%s: %w", policy, err)
		}
	}
	return nil
}

func finalizers(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	held := settings("held", nil)
	held.Finalizers = []string{"fairlead.dev/probe"}
	if _, err := client.Create(ctx, held, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := client.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		return err
	}
	now, err := client.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || now.DeletionTimestamp == nil {
		return fmt.Errorf("the held object: %v, %v", now, err)
	}
	now.Finalizers = nil
	if _, err := client.Update(ctx, now, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = client.Get(ctx, "held", metav1.GetOptions{})
	return want(apierrors.IsNotFound(err), "without finalizers it is still there: %v", err)
}

func priorities(ctx context.Context, w *world) error {
	name := w.ns + "-high"
	classes := w.typed.SchedulingV1().PriorityClasses()
	if _, err := classes.Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 1234}, metav1.CreateOptions{}); err != nil {
		return err
	}
	defer classes.Delete(context.Background(), name, metav1.DeleteOptions{})
	pod := sleeper("ranked", nil)
	pod.Spec.PriorityClassName = name
	var made *corev1.Pod
	err := until(ctx, 10*time.Second, func() string { // admission learns of a new class from its cache
		var err error
		if made, err = w.typed.CoreV1().Pods(w.ns).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	if err != nil {
		return err
	}
	defer remove(w, "ranked")
	if err := want(made.Spec.Priority != nil && *made.Spec.Priority == 1234, "the pod's priority is %v", made.Spec.Priority); err != nil {
		return err
	}
	unknown := sleeper("unranked", nil)
	unknown.Spec.PriorityClassName = "no-such-class"
	_, err = w.typed.CoreV1().Pods(w.ns).Create(ctx, unknown, metav1.CreateOptions{})
	return want(apierrors.IsForbidden(err), "an unknown priority class: %v", err)
}

func namespaceDeletion(ctx context.Context, w *world) error {
	name := w.ns + "-gone"
	namespaces := w.typed.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, 20*time.Second, func() string {
		_, account := w.typed.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		_, roots := w.typed.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		if account != nil || roots != nil {
			return fmt.Sprintf("%v, %v", account, roots)
		}
		return ""
	}); err != nil {
		return err
	}
	held := settings("held", nil)
	held.Finalizers = []string{"fairlead.dev/probe"}
	if _, err := w.typed.CoreV1().ConfigMaps(name).Create(ctx, held, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := w.typed.CoreV1().ConfigMaps(name).Create(ctx, settings("late", nil), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("a create in a terminating namespace: %v", err)
	}
	if err := until(ctx, 20*time.Second, func() string {
		now, err := w.typed.CoreV1().ConfigMaps(name).Get(ctx, "held", metav1.GetOptions{})
		if err == nil && now.DeletionTimestamp != nil {
			now.Finalizers = nil
			_, err = w.typed.CoreV1().ConfigMaps(name).Update(ctx, now, metav1.UpdateOptions{})
			if err == nil {
				return ""
			}
		}
		return fmt.Sprintf("the object inside: %v", err)
	}); err != nil {
		return err
	}
	return until(ctx, 40*time.Second, func() string {
		if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the namespace: %v", err)
		}
		return ""
	})
}
