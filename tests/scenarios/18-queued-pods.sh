#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pods without a Job in a queue: behind their gate until they have quota, then on the nodes of their flavor; a group whole or not at all; who is pre-empted is deleted; who has no gate is told.
. "$(dirname "$0")/lib.sh"

clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k -n team-p get localqueues,workloads,pods -o wide || true
    k -n team-p get workloads -o 'jsonpath={range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}{"\n"}{end}' || true
    k -n team-p get events || true
    k -n team-p get pods -o yaml | tail -n 120 || true
  } >&2
  k delete namespace team-p --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterqueue team-p --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor pool-pods --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete workloadpriorityclass pressing-priority --ignore-not-found --timeout=30s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

p() { k -n team-p "$@"; }
pod() { # NAME CPU [LABELS [ANNOTATIONS [GATES]]]
  local gates='[{name: kueue.x-k8s.io/admission}]'
  [ $# -lt 5 ] || gates=$5
  p create -f - > /dev/null << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: queue${3:+, $3}}, annotations: {${4:-}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  schedulingGates: $gates
  containers:
  - {name: work, image: 'busybox:1', imagePullPolicy: IfNotPresent, command: [sh, -c, 'until [ -e /tmp/end ]; do sleep 1; done'], resources: {requests: {cpu: $2}}}
YAML
}
member() { pod "$1" 10m 'kueue.x-k8s.io/pod-group-name: ring' 'kueue.x-k8s.io/pod-group-total-count: "3"'; }
phase() { p get pod "$1" -o 'jsonpath={.status.phase}'; }
gated() { same kueue.x-k8s.io/admission p get pod "$1" -o 'jsonpath={.spec.schedulingGates[*].name}'; }
gone() { is_empty p get pod "$1" --ignore-not-found -o name; }
workload_of() { p get workloads -o "jsonpath={.items[?(@.metadata.ownerReferences[0].name==\"$1\")].status.conditions[?(@.type==\"$2\")].$3}"; }

k create namespace team-p > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool-pods}
spec: {nodeLabels: {example.com/pool: cpu}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: pressing-priority}
value: 90
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-p}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-p}}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: pool-pods, resources: [{name: cpu, nominalQuota: 60m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: team-p}
spec: {clusterQueue: team-p}
YAML

# ---- alone
pod p1 40m
until_true 40 'p1 runs' same Running phase p1
same cpu p get pod p1 -o 'jsonpath={.spec.nodeSelector.example\.com/pool}' || fail 'p1 is not bound to the nodes of its flavor'
same kueue.x-k8s.io/managed p get pod p1 -o 'jsonpath={.metadata.finalizers[*]}' || fail 'p1 has not the finalizer'
until_true 10 'the queue counts it' same 1 k get clusterqueue team-p -o 'jsonpath={.status.admittedWorkloads}'
pod p2 40m
until_true 20 'p2 is told what it waits for' same "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor pool-pods, 20m more needed" workload_of p2 QuotaReserved message
gated p2 || fail 'p2 has lost its gate'
says '20m cpu in pool-pods' f explain -n team-p pod/p2 || fail 'fairlead explain does not tell why a pod waits'
p exec p1 -- touch /tmp/end
until_true 30 'p1 ends' same Succeeded phase p1
until_true 20 'its Workload has finished' same Succeeded workload_of p1 Finished reason
until_true 40 'p2 runs' same Running phase p2
until_true 10 'p1 is held by nobody' is_empty p get pod p1 -o 'jsonpath={.metadata.finalizers[*]}'
note 'a pod waits behind its gate, runs on its quota, and gives it back with its end'

# ---- together
member r1
member r2
until_true 20 'an event tells that one is missing' says "'ring' group has fewer runnable pods than expected: 3 are needed" p get events
member r3
until_true 20 'the group waits as a whole' says '10m more needed' p get workload ring -o 'jsonpath={.status.conditions[?(@.type=="QuotaReserved")].message}'
for name in r1 r2 r3; do gated "$name" || fail "$name has lost its gate"; done
p delete pod p2 --wait=false > /dev/null
for name in r1 r2 r3; do until_true 40 "$name runs" same Running phase "$name"; done
gone p2 || fail 'the quota of p2 was given away before it was gone'
p exec r1 -- touch /tmp/end
until_true 30 'what has succeeded gives its part back' same 1 p get workload ring -o 'jsonpath={.status.reclaimablePods[0].count}'
note 'a group of pods runs whole or not at all'

# ---- taken back
pod p3 50m 'kueue.x-k8s.io/priority-class: pressing-priority'
until_true 40 'p3 runs' same Running phase p3
for name in r2 r3; do gone "$name" || fail "$name is there still"; done
says 'Preempted to accommodate a workload' p get events || fail 'no event tells why the group was stopped'
note 'a group that is pre-empted is deleted'

# ---- without a gate
pod p4 1m '' '' '[]'
until_true 20 'an event tells that it has no gate' says 'It has a queue but no scheduling gate' p get events
until_true 40 'p4 runs' same Running phase p4
# What is left of the group would take the quota again.
p delete pod r1 --wait=false > /dev/null
until_true 30 'nothing holds r1' gone r1
until_true 30 'its Workload goes with the last of the group' is_empty p get workload ring --ignore-not-found -o name
p delete pod p3 --wait=false > /dev/null
until_true 30 'nothing holds p3' gone p3
until_true 20 'its quota is free' same 0 k get clusterqueue team-p -o 'jsonpath={.status.admittedWorkloads}'
note 'a pod without a gate is told, not stopped'
