// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// next takes one event of a watch, or tells that none came.
func next(w watch.Interface, limit time.Duration) (watch.Event, error) {
	select {
	case event, open := <-w.ResultChan():
		if !open {
			return event, errors.New("the watch was closed")
		}
		return event, nil
	case <-time.After(limit):
		return watch.Event{}, fmt.Errorf("no event within %s", limit)
	}
}

func nameOf(event watch.Event) string {
	if object, ok := event.Object.(metav1.Object); ok {
		return object.GetName()
	}
	return fmt.Sprintf("%T", event.Object)
}

func expectEvents(w watch.Interface, wanted ...string) error {
	for _, one := range wanted {
		event, err := next(w, 10*time.Second)
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", one, err)
		}
		if got := string(event.Type) + " " + nameOf(event); got != one {
			return fmt.Errorf("wanted %q, got %q", one, got)
		}
	}
	return nil
}

func watchAndResume(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	start, err := client.List(ctx, metav1.ListOptions{LabelSelector: "watched"})
	if err != nil {
		return err
	}
	options := metav1.ListOptions{LabelSelector: "watched", ResourceVersion: start.ResourceVersion}
	live, err := client.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer live.Stop()
	made := settings("w-1", nil)
	made.Labels["watched"] = "yes"
	if made, err = client.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	middle := made.ResourceVersion
	made.Data = map[string]string{"a": "1"}
	if made, err = client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	delete(made.Labels, "watched") // leaves the selection: DELETED for this watcher
	if made, err = client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	made.Labels["watched"] = "again" // enters it: ADDED
	if _, err = client.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err = client.Delete(ctx, "w-1", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := expectEvents(live, "ADDED w-1", "MODIFIED w-1", "DELETED w-1", "ADDED w-1", "DELETED w-1"); err != nil {
		return fmt.Errorf("live: %w", err)
	}
	options.ResourceVersion = middle
	resumed, err := client.Watch(ctx, options)
	if err != nil {
		return err
	}
	defer resumed.Stop()
	if err := expectEvents(resumed, "MODIFIED w-1", "DELETED w-1", "ADDED w-1", "DELETED w-1"); err != nil {
		return fmt.Errorf("resumed: %w", err)
	}
	return nil
}

func watchEnds(ctx context.Context, w *world) error {
	seconds := int64(2)
	began := time.Now()
	live, err := w.typed.CoreV1().ConfigMaps(w.ns).Watch(ctx, metav1.ListOptions{LabelSelector: "nothing", TimeoutSeconds: &seconds})
	if err != nil {
		return err
	}
	defer live.Stop()
	for {
		event, err := next(live, 10*time.Second)
		if err != nil {
			return want(err.Error() == "the watch was closed" && time.Since(began) > time.Second, "timeoutSeconds=2: %v after %s", err, time.Since(began))
		}
		if event.Type == watch.Error {
			return fmt.Errorf("timeoutSeconds=2 ended with an error: %v", event.Object)
		}
	}
}

// Kubernetes answers 500 to the first, which nobody needs to copy.
func badVersion(ctx context.Context, w *world) error {
	_, err := w.typed.CoreV1().ConfigMaps(w.ns).Watch(ctx, metav1.ListOptions{ResourceVersion: "abc"})
	if err := want(err != nil, "a watch from resourceVersion abc was taken"); err != nil {
		return err
	}
	_, err = w.typed.CoreV1().ConfigMaps(w.ns).List(ctx, metav1.ListOptions{Continue: "nonsense"})
	return want(apierrors.IsBadRequest(err), "a broken continue token: %v", err)
}

func initialEvents(ctx context.Context, w *world) error {
	client := w.typed.CoreV1().ConfigMaps(w.ns)
	for _, name := range []string{"init-1", "init-2"} {
		made := settings(name, nil)
		made.Labels["init"] = "yes"
		if _, err := client.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	yes := true
	live, err := client.Watch(ctx, metav1.ListOptions{LabelSelector: "init", SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer live.Stop()
	if err := expectEvents(live, "ADDED init-1", "ADDED init-2"); err != nil {
		return err
	}
	end, err := next(live, 10*time.Second)
	if err != nil {
		return err
	}
	mark, ok := end.Object.(*corev1.ConfigMap)
	return want(end.Type == watch.Bookmark && ok && mark.Annotations[metav1.InitialEventsAnnotationKey] == "true" && mark.ResourceVersion != "", "the initial events end with %s %v", end.Type, end.Object)
}

func informer(expectStream bool) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		client := w.typed.CoreV1().ConfigMaps(w.ns)
		w.asked.forget()
		for _, name := range []string{"i-1", "i-2", "i-3"} {
			if _, err := client.Create(ctx, settings(name, nil), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		inside, stop := context.WithCancel(ctx)
		defer stop()
		var mutex sync.Mutex
		seen := map[string]int{}
		count := func(what string, object any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			mutex.Lock()
			seen[what+" "+key]++
			mutex.Unlock()
		}
		has := func(what, name string) func() string {
			return func() string {
				mutex.Lock()
				defer mutex.Unlock()
				if seen[what+" "+w.ns+"/"+name] == 0 {
					return fmt.Sprintf("%s %s was not seen: %v", what, name, seen)
				}
				return ""
			}
		}
		handlers := cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { count("add", o) }, UpdateFunc: func(_, o any) { count("update", o) }, DeleteFunc: func(o any) { count("delete", o) }}
		typed := informers.NewSharedInformerFactoryWithOptions(w.typed, 0, informers.WithNamespace(w.ns))
		shared := typed.Core().V1().ConfigMaps().Informer()
		shared.AddEventHandler(handlers)
		generic := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.dynamic, 0, w.ns, nil)
		untyped := generic.ForResource(configMaps).Informer()
		typed.Start(inside.Done())
		generic.Start(inside.Done())
		if !cache.WaitForCacheSync(ctx.Done(), shared.HasSynced, untyped.HasSynced) {
			return errors.New("the caches did not fill")
		}
		if got := len(untyped.GetStore().List()); got < 3 {
			return fmt.Errorf("the dynamic informer holds %d objects", got)
		}
		if streamed := w.asked.has("sendInitialEvents=true", "/configmaps?"); streamed != expectStream {
			return fmt.Errorf("the informer used sendInitialEvents: %v, wanted %v", streamed, expectStream)
		}
		changed, err := client.Get(ctx, "i-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed.Data = map[string]string{"now": "changed"}
		if _, err := client.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if err := client.Delete(ctx, "i-2", metav1.DeleteOptions{}); err != nil {
			return err
		}
		for _, ask := range []func() string{has("add", "i-3"), has("update", "i-1"), has("delete", "i-2")} {
			if err := until(ctx, 10*time.Second, ask); err != nil {
				return err
			}
		}
		lister := typed.Core().V1().ConfigMaps().Lister().ConfigMaps(w.ns)
		now, err := lister.Get("i-1")
		if err != nil || now.Data["now"] != "changed" {
			return fmt.Errorf("the cache has %v, %v", now, err)
		}
		for _, name := range []string{"i-1", "i-3"} {
			if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
}

func leaderElection(ctx context.Context, w *world) error {
	var leader atomic.Value
	leader.Store("")
	candidate := func(name string) (context.CancelFunc, chan struct{}, error) {
		inside, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "probe-leader"}, Client: w.typed.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock, LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 300 * time.Millisecond,
			ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leader.Store(name) }, OnStoppedLeading: func() {}}})
		if err != nil {
			cancel()
			return nil, nil, err
		}
		go func() { elector.Run(inside); close(done) }()
		return cancel, done, nil
	}
	leads := func(name string) func() string {
		return func() string {
			if leader.Load() != name {
				return fmt.Sprintf("%q leads", leader.Load())
			}
			return ""
		}
	}
	stopFirst, firstDone, err := candidate("first")
	if err != nil {
		return err
	}
	defer stopFirst()
	if err := until(ctx, 10*time.Second, leads("first")); err != nil {
		return err
	}
	stopSecond, secondDone, err := candidate("second")
	if err != nil {
		return err
	}
	defer stopSecond()
	stopFirst()
	<-firstDone
	if err := until(ctx, 15*time.Second, leads("second")); err != nil {
		return err
	}
	lease, err := w.typed.CoordinationV1().Leases(w.ns).Get(ctx, "probe-leader", metav1.GetOptions{})
	if err != nil {
		return err
	}
	stopSecond()
	<-secondDone
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != "second" || lease.Spec.LeaseTransitions == nil || *lease.Spec.LeaseTransitions < 1 {
		return fmt.Errorf("the lease says %v", lease.Spec)
	}
	return nil
}
