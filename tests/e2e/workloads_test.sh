#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs, services, budgets, claims and pre-emption with a real kubectl against fairlead-server. The node is an object only: this script says what a node would say, so the whole takes seconds.
#   workloads_test.sh BUILD_DIR
set -eu
build=$(realpath "${1:?the build folder}")
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$build/bin/fairlead-server" ] || { echo "workloads_test.sh: $build/bin/fairlead-server is not built" >&2; exit 1; }
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
# shellcheck source=tests/e2e/kubectl_lib.sh
. "$here/kubectl_lib.sh"
kubectl=$(any_kubectl)
[ -n "$kubectl" ] || { echo 'workloads_test.sh: skipped, no kubectl on this machine'; exit 77; }

k() { "$kubectl" --kubeconfig "$admin" "$@"; }
# has NAME PATTERN COMMAND...: within ten seconds it succeeds and its output has a line with the pattern.
has() {
  local name=$1 pattern=$2; shift 2
  for _ in $(seq 50); do
    if "$@" > "$work/out" 2>&1 && grep -qE -- "$pattern" "$work/out"; then tell ok "$name"; return; fi
    sleep 0.2
  done
  tell FAIL "$name (no line has: $pattern)"; show
}
# pods_are PHASE LABEL: what the node says of its pods.
pods_are() {
  for pod in $(k get pods -l "$2" -o name --field-selector spec.nodeName!=); do
    ready=$([ "$1" = Running ] && echo True || echo False)
    k patch "$pod" --subresource=status --type=merge -p "{\"status\":{\"phase\":\"$1\",\"podIP\":\"10.78.1.5\",\"podIPs\":[{\"ip\":\"10.78.1.5\"}],\"conditions\":[{\"type\":\"Ready\",\"status\":\"$ready\"}]}}" > /dev/null 2>&1 || true
  done
}

serve --service-range 10.79.0.0/16

k apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
YAML
k patch node n1 --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Here","message":"x"}],"allocatable":{"cpu":"2","memory":"4Gi","pods":"20"}}}' > /dev/null

# --- Jobs ---
k create job pi --image=busybox:1 -- true > /dev/null
has 'a job makes its pod, which is placed' 'Pending +0 .* n1 ' k get pods -l job-name=pi -o wide
has 'a job tells that it runs' 'pi +Running +0/1' k get jobs
pods_are Succeeded job-name=pi
has 'a job completes' 'pi +Complete +1/1' k get jobs
has 'kubectl waits for it' 'condition met' k wait --for=condition=complete job/pi --timeout=10s
has 'its events tell' 'SuccessfulCreate.*|Completed' k get events --field-selector involvedObject.name=pi
k apply -f - > /dev/null << 'YAML'
apiVersion: batch/v1
kind: Job
metadata: {name: parts}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: "busybox:1"}]}}
YAML
has 'an indexed job makes a pod of each index' 'parts-2-' k get pods -l job-name=parts
pods_are Succeeded job-name=parts
has 'all indexes are done' '^0-2$' k get job parts -o 'jsonpath={.status.completedIndexes}{"\n"}'
k delete job pi > /dev/null
has 'pods go with their job' 'No resources found' k get pods -l job-name=pi
refuses 'a job that restarts always' 'Required value: valid values: "OnFailure", "Never"' k create -f - << 'YAML'
{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x"},"spec":{"template":{"spec":{"restartPolicy":"Always","containers":[{"name":"c","image":"i"}]}}}}
YAML

# --- services, budgets, evictions ---
k run web --image=busybox:1 --labels=app=web > /dev/null
k expose pod web --port=80 > /dev/null
has 'a service has an address' '^web +ClusterIP +10\.79\.' k get service
for _ in $(seq 50); do k get pod web -o 'jsonpath={.spec.nodeName}' | grep -q n1 && break; sleep 0.1; done
pods_are Running app=web
has 'its slice tells who serves' 'IPv4 +80 +10\.78\.1\.5' k get endpointslices
k create pdb web --selector=app=web --min-available=1 > /dev/null
has 'a budget counts' '^web +1 +N/A +0' k get pdb
refuses 'a drain waits for the budget' 'violate the pod.s disruption budget' k drain n1 --force --ignore-daemonsets --delete-emptydir-data --pod-selector=app=web --timeout=2s
k uncordon n1 > /dev/null
k delete pdb web > /dev/null
has 'a drain goes on without it' 'evicted|drained' k drain n1 --force --pod-selector=app=web --timeout=1s --disable-eviction=false --grace-period=0 || true
k uncordon n1 > /dev/null

# --- claims ---
k apply -f - > /dev/null << 'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: later}
provisioner: fairlead.dev/directory
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: home}
spec: {storageClassName: later, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
YAML
has 'a claim waits for its first pod' 'home +Pending' k get pvc
has 'and says so' 'waiting for first consumer' k get events --field-selector involvedObject.name=home
k run user --image=busybox:1 --overrides='{"spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"home"}}]}}' > /dev/null
has 'it is bound when a pod was placed' 'home +Bound +pvc-' k get pvc
has 'the pod goes to its node' ' n1 ' k get pod user -o wide
has 'the volume is there' 'RWX +Delete +Bound +default/home +later' k get pv

# --- priorities ---
k create priorityclass high --value=1000 > /dev/null
k run low --image=busybox:1 --overrides='{"spec":{"containers":[{"name":"low","image":"busybox:1","resources":{"requests":{"cpu":"2"}}}]}}' > /dev/null
has 'the less important one is placed' ' n1 ' k get pod low -o wide
k run urgent --image=busybox:1 --overrides='{"spec":{"priorityClassName":"high","containers":[{"name":"urgent","image":"busybox:1","resources":{"requests":{"cpu":"2"}}}]}}' > /dev/null
has 'the more important one gets its place promised' '^n1$' k get pod urgent -o 'jsonpath={.status.nominatedNodeName}{"\n"}'
has 'the less important one leaves' 'Terminating' k get pod low
k delete pod low --grace-period=0 --force > /dev/null 2>&1 || true
has 'and the other one comes' '^n1$' k get pod urgent -o 'jsonpath={.spec.nodeName}{"\n"}'

# --- namespaces ---
k create namespace team > /dev/null
k apply -n team -f - > /dev/null << 'YAML'
{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.org/hold"]}}
YAML
k delete namespace team --wait=false > /dev/null
has 'a namespace says what holds it' 'example.org/hold in 1 resource instances' k get namespace team -o 'jsonpath={.status.conditions[*].message}'
k patch configmap held -n team --type=merge -p '{"metadata":{"finalizers":null}}' > /dev/null
has 'and goes' 'not found' sh -c "'$kubectl' --kubeconfig '$admin' get namespace team 2>&1; true"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
