#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pods that are to be near one another: a Job goes to one rack or waits, each pod has its own host, and pods of a lost node get another place while the rest runs on.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_KILL_NODE:?}" "${SCENARIO_HEAL_NODE:?}"

killed=
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k get nodes -L example.com/rack -o wide || true
    k -n team-t get workloads,jobs,pods -o wide || true
    k -n team-t get workloads -o 'jsonpath={range .items[*]}{.metadata.name}: {.status.admission.podSetAssignments[0].topologyAssignment} {range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}{"\n"}{end}' || true
    k -n team-t get events | tail -n 40 || true
    k get clusterqueue team-t -o yaml || true
  } >&2
  [ -z "$killed" ] || $SCENARIO_HEAL_NODE "$killed" || status=1
  k delete namespace team-t --ignore-not-found --timeout=90s > /dev/null || status=1
  k delete clusterqueue team-t --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor racks --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete topologies.kueue.x-k8s.io racks --ignore-not-found --timeout=30s > /dev/null || status=1
  k label nodes --all example.com/rack- > /dev/null || status=1
  [ -z "$killed" ] || k wait --for=condition=Ready "node/$killed" --timeout=120s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

t() { k -n team-t "$@"; }
# The demo leaves 900m to 1400m of cpu on each host: one of these fits.
share=800m

ring() { # NAME PODS ANNOTATION
  t create -f - > /dev/null << YAML
apiVersion: batch/v1
kind: Job
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  parallelism: $2
  completions: $2
  completionMode: Indexed
  backoffLimit: 100
  suspend: true
  template:
    metadata: {annotations: {$3}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: work, image: 'busybox:1', imagePullPolicy: IfNotPresent, command: [sh, -c, 'until [ -e /tmp/end ]; do sleep 1; done'], resources: {requests: {cpu: $share}}}
YAML
}
near='kueue.x-k8s.io/podset-required-topology: example.com/rack'
workload_of() { t get workloads -o "jsonpath={.items[?(@.metadata.ownerReferences[0].name==\"$1\")].metadata.name}"; }
why() { t get workload "$(workload_of "$1")" -o "jsonpath={.status.conditions[?(@.type==\"$2\")].message}"; }
pods_of() { t get pods -l "batch.kubernetes.io/job-name=$1" --field-selector status.phase=Running -o "jsonpath={range .items[*]}$2{'\n'}{end}" | sort -u; }
hosts_of() { pods_of "$1" '{.spec.nodeName}'; }
racks_of() { for host in $(hosts_of "$1"); do k get node "$host" -o 'jsonpath={.metadata.labels.example\.com/rack}{"\n"}'; done | sort -u; }
run_on() { [ "$(hosts_of "$1" | wc -l)" = "$2" ]; }
finish() { # NAME
  local pod
  for pod in $(t get pods -l "batch.kubernetes.io/job-name=$1" --field-selector status.phase=Running -o name); do t exec "$pod" -- touch /tmp/end; done
  until_true 40 "$1 ends" same True t get job "$1" -o 'jsonpath={.status.conditions[?(@.type=="Complete")].status}'
}

k create namespace team-t > /dev/null
k label node head-0 worker-0 example.com/rack=a > /dev/null
k label node login-0 worker-1 example.com/rack=b > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: racks}
spec: {topologyName: racks}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-t}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-t}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: racks, resources: [{name: cpu, nominalQuota: 1000}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: team-t}
spec: {clusterQueue: team-t}
YAML
ring r1 2 "$near"
until_true 20 'without the Topology the queue is inactive' says 'there is no Topology "racks" for TAS flavor "racks"' k get clusterqueue team-t -o 'jsonpath={.status.conditions[?(@.type=="Active")].message}'
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: example.com/rack}, {nodeLabel: kubernetes.io/hostname}]}
YAML

# ---- one rack, or not at all
until_true 60 'r1 runs on two hosts' run_on r1 2
[ "$(racks_of r1 | wc -l)" = 1 ] || fail "r1 is in several racks: $(hosts_of r1)"
ring r2 2 "$near"
until_true 60 'r2 runs on two hosts' run_on r2 2
[ "$(racks_of r1)$(racks_of r2)" = ab ] || [ "$(racks_of r1)$(racks_of r2)" = ba ] || fail "r1 is in $(racks_of r1), r2 in $(racks_of r2)"
ring r3 2 "$near"
until_true 20 'r3 is told why it waits' says 'topology "racks" doesn'"'"'t allow to fit any of 2 pod(s)' why r3 QuotaReserved
says 'topology "racks"' f explain -n team-t job/r3 || fail 'fairlead explain does not tell what r3 waits for'
says 'a place' f queue --queue team-t || fail 'fairlead queue does not tell what r3 waits for'
finish r1
until_true 60 'r3 runs where r1 was' run_on r3 2
note 'Jobs go to one rack each, and who finds none waits and says so'

# ---- each pod has its place
assigned=$(t get workload "$(workload_of r3)" -o 'jsonpath={.status.admission.podSetAssignments[0].topologyAssignment.levels[0]}')
[ "$assigned" = kubernetes.io/hostname ] || fail "the assignment of r3 is of level $assigned"
is_empty pods_of r3 '{.spec.schedulingGates[*].name}' || fail 'a pod of r3 runs behind a gate'
# Rank 0 is on the first host, by name.
first=$(t get pods -l batch.kubernetes.io/job-name=r3,batch.kubernetes.io/job-completion-index=0 -o 'jsonpath={.items[0].spec.nodeName}')
[ "$first" = "$(hosts_of r3 | head -n 1)" ] || fail "rank 0 of r3 is on $first, and the hosts are $(hosts_of r3)"
note 'ranks are in the order of the hosts'

# ---- a node is lost
finish r2
finish r3
ring r4 2 "kueue.x-k8s.io/podset-preferred-topology: example.com/rack"
until_true 60 'r4 runs' run_on r4 2
lost=$(hosts_of r4 | grep '^worker-')
stays=$(hosts_of r4 | grep -v "^$lost\$")
stayed=$(t get pods -l batch.kubernetes.io/job-name=r4 --field-selector "spec.nodeName=$stays" -o 'jsonpath={.items[0].metadata.uid}')
killed=$lost
$SCENARIO_KILL_NODE "$lost"
until_true 150 'its pod has another place' says 'NodeReplaced' t get events
until_true 60 'it runs there' bash -c "$(declare -f t k hosts_of pods_of); hosts_of r4 | grep -v '^$lost\$' | grep -qv '^$stays\$'"
same "$stayed" t get pods -l batch.kubernetes.io/job-name=r4 --field-selector "spec.nodeName=$stays" -o 'jsonpath={.items[0].metadata.uid}' || fail 'the pod on the other node was not left alone'
$SCENARIO_HEAL_NODE "$lost"
k wait --for=condition=Ready "node/$lost" --timeout=120s > /dev/null || fail "$lost is not ready again"
killed=
until_true 60 'nothing is left of the pod that was there' is_empty t get pods -l batch.kubernetes.io/job-name=r4 --field-selector "spec.nodeName=$lost" -o name
note 'the pod of a lost node runs on another, the others stay'
finish r4
until_true 120 'the pod of the worker is ready again' kd wait --for=condition=Ready "pod/$lost" --timeout=5s
