// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A client that is somebody else: a service account with a token of its own.
func account(ctx context.Context, w *world, name string) (*kubernetes.Clientset, string, error) {
	accounts := w.typed.CoreV1().ServiceAccounts(w.ns)
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return nil, "", err
	}
	seconds := int64(600)
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("token: %w", err)
	}
	if token.Status.Token == "" || time.Until(token.Status.ExpirationTimestamp.Time) < 5*time.Minute {
		return nil, "", fmt.Errorf("the token expires at %s", token.Status.ExpirationTimestamp)
	}
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	return client, token.Status.Token, err
}

func tokens(ctx context.Context, w *world) error {
	client, token, err := account(ctx, w, "bearer")
	if err != nil {
		return err
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	name := "system:serviceaccount:" + w.ns + ":bearer"
	if err := want(me.Status.UserInfo.Username == name, "the token speaks for %q", me.Status.UserInfo.Username); err != nil {
		return err
	}
	review, err := w.typed.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := want(review.Status.Authenticated && review.Status.User.Username == name, "the review says %v", review.Status); err != nil {
		return err
	}
	forged := rest.AnonymousClientConfig(w.config)
	forged.BearerToken = token[:len(token)-8] + "AAAAAAAA"
	stranger, err := kubernetes.NewForConfig(forged)
	if err != nil {
		return err
	}
	if _, err = stranger.CoreV1().ConfigMaps(w.ns).List(ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		return fmt.Errorf("a forged token: %v", err)
	}
	if err := w.typed.CoreV1().ServiceAccounts(w.ns).Delete(ctx, "bearer", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, 20*time.Second, func() string {
		_, err := client.CoreV1().ConfigMaps(w.ns).List(ctx, metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Sprintf("the token of a deleted account: %v", err)
		}
		return ""
	})
}

func roles(ctx context.Context, w *world) error {
	client, _, err := account(ctx, w, "reader")
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps(w.ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("without a role: %v", err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}}}
	if _, err := w.typed.RbacV1().Roles(w.ns).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: w.ns}}}
	if _, err := w.typed.RbacV1().RoleBindings(w.ns).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, 10*time.Second, func() string {
		if _, err := client.CoreV1().ConfigMaps(w.ns).List(ctx, metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	}); err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps(w.ns).Create(ctx, settings("mine", nil), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("a create beyond the role: %v", err)
	}
	if _, err := client.CoreV1().Secrets(w.ns).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		return fmt.Errorf("secrets beyond the role: %v", err)
	}
	ask := func(verb string) (bool, error) {
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.ns, Verb: verb, Resource: "configmaps"}}}, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
	if may, err := ask("list"); err != nil || !may {
		return fmt.Errorf("may it list? %v, %v", may, err)
	}
	if may, err := ask("delete"); err != nil || may {
		return fmt.Errorf("may it delete? %v, %v", may, err)
	}
	rules, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: w.ns}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	found := false
	for _, rule := range rules.Status.ResourceRules {
		found = found || len(rule.Resources) == 1 && rule.Resources[0] == "configmaps" && len(rule.Verbs) == 2
	}
	if !found {
		return fmt.Errorf("its rules lack the role: %v", rules.Status.ResourceRules)
	}
	// Nobody grants what he lacks: with the right to make roles, still no right that is not held.
	grant := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "grantor"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create"}}}}
	if _, err := w.typed.RbacV1().Roles(w.ns).Create(ctx, grant, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding = &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "grantor"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "grantor"}, Subjects: binding.Subjects}
	if _, err := w.typed.RbacV1().RoleBindings(w.ns).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	all := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if err := until(ctx, 10*time.Second, func() string {
		mine := role.DeepCopy()
		mine.Name = "within"
		if _, err := client.RbacV1().Roles(w.ns).Create(ctx, mine, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Sprintf("a role within its rights: %v", err)
		}
		return ""
	}); err != nil {
		return err
	}
	_, err = client.RbacV1().Roles(w.ns).Create(ctx, all, metav1.CreateOptions{})
	return want(apierrors.IsForbidden(err), "a role beyond its rights: %v", err)
}

func aggregatedRoles(ctx context.Context, w *world) error {
	client := w.typed.RbacV1().ClusterRoles()
	label := map[string]string{"probe.fairlead.dev/" + w.ns: "true"}
	whole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-whole"}, AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: label}}}}
	part := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.ns + "-part", Labels: label}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
	for _, role := range []*rbacv1.ClusterRole{whole, part} {
		if _, err := client.Create(ctx, role, metav1.CreateOptions{}); err != nil {
			return err
		}
		defer client.Delete(context.Background(), role.Name, metav1.DeleteOptions{})
	}
	return until(ctx, 10*time.Second, func() string {
		now, err := client.Get(ctx, whole.Name, metav1.GetOptions{})
		if err != nil || len(now.Rules) != 1 {
			return fmt.Sprintf("the aggregated role: %v, %v", now, err)
		}
		return ""
	})
}

func impersonation(ctx context.Context, w *world) error {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "somebody", Groups: []string{"crew"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := want(me.Status.UserInfo.Username == "somebody", "impersonation speaks for %q", me.Status.UserInfo.Username); err != nil {
		return err
	}
	_, err = client.CoreV1().Secrets(w.ns).List(ctx, metav1.ListOptions{})
	return want(apierrors.IsForbidden(err), "the impersonated user lists secrets: %v", err)
}
