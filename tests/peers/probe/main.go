// SPDX-License-Identifier: Apache-2.0

// probe asks of any Kubernetes API what programs written with client-go rely on, and prints one line per check: "ok NAME" or "FAIL NAME: why".
//
//	probe --kubeconfig FILE [--only REGEX] [--list]
//
// It works in namespaces of its own, needs no node, and removes what it made. Exit status 1 when a check failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// One run's connection to the server: typed clients speak protobuf as controllers do, dynamic ones JSON.
type world struct {
	config  *rest.Config
	typed   *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
	ns      string
	asked   *recorder
}

type check struct {
	name string
	run  func(ctx context.Context, w *world) error
}

// What was asked, as "VERB PATH?QUERY CONTENT-TYPE", so that a check knows that its client did what the check is about.
type recorder struct {
	mutex sync.Mutex
	lines []string
}

func (r *recorder) forget() {
	r.mutex.Lock()
	r.lines = nil
	r.mutex.Unlock()
}

func (r *recorder) has(parts ...string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, line := range r.lines {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(line, part)
		}
		if all {
			return true
		}
	}
	return false
}

func connect(path string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 1000
	config.UserAgent = "fairlead-probe"
	asked := &recorder{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &recording{recorder: asked, next: next} })
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	w := &world{config: config, ns: "probe-" + rand.String(5), asked: asked}
	if w.typed, err = kubernetes.NewForConfig(typed); err != nil {
		return nil, err
	}
	w.dynamic, err = dynamic.NewForConfig(config)
	return w, err
}

// Several clients share one recorder, each with a transport of its own.
type recording struct {
	recorder *recorder
	next     http.RoundTripper
}

func (r *recording) RoundTrip(request *http.Request) (*http.Response, error) {
	r.recorder.mutex.Lock()
	r.recorder.lines = append(r.recorder.lines, request.Method+" "+request.URL.RequestURI()+" "+request.Header.Get("Content-Type"))
	r.recorder.mutex.Unlock()
	return r.next.RoundTrip(request)
}

// until asks again until the answer is "", which means yes; the last answer is the error.
func until(ctx context.Context, limit time.Duration, ask func() string) error {
	end := time.Now().Add(limit)
	for {
		answer := ask()
		if answer == "" {
			return nil
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("not within %s: %s", limit, answer)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// The watch-list protocol is a feature gate read once per process, so its checks run in a second one.
const watchListGate = "KUBE_FEATURE_WatchListClient"

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "the cluster to ask")
	only := flag.String("only", "", "only checks whose name matches")
	list := flag.Bool("list", false, "names of the checks")
	limit := flag.Duration("limit", 60*time.Second, "time for one check")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	checks := allChecks()
	klog.SetOutput(io.Discard) // what client-go says by the way would stand between the checks
	klog.LogToStderr(false)
	second := os.Getenv(watchListGate) == "true"
	if second {
		checks = watchListChecks()
	}
	if *list {
		for _, c := range checks {
			fmt.Println(c.name)
		}
		return
	}
	w, err := connect(*kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(2)
	}
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	if _, err := w.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		fmt.Println("FAIL namespace:", err)
		os.Exit(1)
	}
	failed := 0
	for _, c := range checks {
		if !chosen.MatchString(c.name) {
			continue
		}
		inside, cancel := context.WithTimeout(ctx, *limit)
		err := c.run(inside, w)
		cancel()
		if err != nil {
			failed++
			fmt.Printf("FAIL %s: %s\n", c.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok   " + c.name)
		}
	}
	w.typed.CoreV1().Namespaces().Delete(ctx, w.ns, metav1.DeleteOptions{})
	if !second {
		self, _ := os.Executable()
		again := exec.Command(self, os.Args[1:]...)
		again.Env = append(os.Environ(), watchListGate+"=true")
		again.Stdout, again.Stderr = os.Stdout, os.Stderr
		if err := again.Run(); err != nil {
			failed++
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}
