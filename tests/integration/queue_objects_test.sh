#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The objects of task governance with kubectl, on the embedded engine and, with FAIRLEAD_KUBERNETES=1, on a real kube-apiserver: defaults, columns, short names, refusals; what is written in v1beta1 is read in
# v1beta2 and back with nothing lost; definitions that belong to somebody else are left as they are.
#   queue_objects_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: queue_objects_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
fairlead=$build/bin/fairlead
export NO_COLOR=1
# shellcheck source=tests/e2e/kubectl_lib.sh
. "$top/tests/e2e/kubectl_lib.sh"
programs=$("$peers/build.sh" --print 2> /dev/null || true)
kubectl=$(any_kubectl)
[ ! -x "$programs/kubectl" ] || kubectl=$programs/kubectl
[ -n "$kubectl" ] || { echo 'skipped: there is no kubectl'; exit 77; }

# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
peer=''
after_end() { [ -z "$peer" ] || "$peers/cluster.sh" down "$peer" > /dev/null 2>&1; }
server=''
k() { "$kubectl" --request-timeout=20s "$@"; }

objects() {
  cat << 'TEXT'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: h200}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: racks}
spec: {nodeLabels: {machine: h200}, topologyName: datacenter, nodeTaints: [{key: gpu, value: "yes", effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: datacenter}
spec: {levels: [{nodeLabel: rack}, {nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high-priority}
value: 100
description: first
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: everybody}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-a}
spec:
  cohortName: everybody
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h200, resources: [{name: nvidia.com/gpu, nominalQuota: 6}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue-a, namespace: default}
spec: {clusterQueue: team-a}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: train, namespace: default}
spec:
  queueName: queue-a
  podSets:
  - count: 2
    template: {spec: {containers: [{name: main, image: x, resources: {requests: {nvidia.com/gpu: 1}}}]}}
TEXT
}

# The same on each engine; $KUBECONFIG says which.
try_objects() {
  does 'all kinds are taken' k apply --server-side -f <(objects)
  has 'a queue has its defaults' '^BestEffortFIFO None Never Never Never MayStopSearch TryNextFlavor$' k get clusterqueue team-a \
    -o 'jsonpath={.spec.queueingStrategy} {.spec.stopPolicy} {.spec.preemption.reclaimWithinCohort} {.spec.preemption.withinClusterQueue} {.spec.preemption.borrowWithinCohort.policy} {.spec.flavorFungibility.whenCanBorrow} {.spec.flavorFungibility.whenCanPreempt}{"\n"}'
  has 'a workload has its defaults' '^main true$' k get workload train -o 'jsonpath={.spec.podSets[0].name} {.spec.active}{"\n"}'
  has 'templates are kept whole' '^1$' k get workload train -o 'jsonpath={.spec.podSets[0].template.spec.containers[0].resources.requests.nvidia\.com/gpu}{"\n"}'
  has 'columns of queues' '^NAME +COHORT +PENDING WORKLOADS$' k get cq
  has 'wide columns of queues' '^NAME +COHORT +STRATEGY +PENDING WORKLOADS +ADMITTED WORKLOADS$' k get cq -o wide
  has 'columns of local queues' '^NAME +CLUSTERQUEUE +PENDING WORKLOADS +ADMITTED WORKLOADS$' k get lq
  has 'columns of workloads' '^NAME +QUEUE +RESERVED IN +ADMITTED +FINISHED +AGE$' k get kwl
  local short
  for short in rf flavor topo wpc ac co queue kueueworkloads; do does "short name $short" k get "$short"; done
  refuses 'an unknown policy' 'spec.queueingStrategy: Unsupported value: "Random"' k patch cq team-a --type=merge -p '{"spec":{"queueingStrategy":"Random"}}'
  refuses 'a quota that is no number' 'nominalQuota' k patch cq team-a --type=json -p '[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"six"}]'
  refuses 'an unknown field' 'unknown field "spec.cohort"' k apply --validate=strict -f - << 'TEXT'
{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue","metadata":{"name":"wrong"},"spec":{"cohort":"everybody"}}
TEXT
  refuses 'a topology without levels' 'spec.levels' k create -f - << 'TEXT'
{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Topology","metadata":{"name":"flat"},"spec":{"levels":[]}}
TEXT
  does 'a status is written apart' k patch cq team-a --subresource=status --type=merge -p '{"status":{"pendingWorkloads":3}}'
  has 'and read' '^3$' k get cq team-a -o 'jsonpath={.status.pendingWorkloads}{"\n"}'
  does 'all go again' k delete -f <(objects)
}

# Everything that v1beta1 has, v1beta2 has not or calls by another name.
old_objects() {
  cat << 'TEXT'
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team-b, labels: {a: b}}
spec:
  cohort: everybody
  admissionChecks: [budget]
  namespaceSelector: {}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: Preempt}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h200, resources: [{name: nvidia.com/gpu, nominalQuota: 5, borrowingLimit: 3}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: slow}
spec: {controllerName: example.com/slow, retryDelayMinutes: 7}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: old, namespace: default}
spec:
  queueName: queue-b
  priority: 100
  priorityClassName: high-priority
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  podSets: [{name: main, count: 2, template: {spec: {containers: [{name: main, image: x}]}}}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: queue-b, namespace: default}
spec: {clusterQueue: team-b}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Topology
metadata: {name: racks}
spec: {levels: [{nodeLabel: rack}]}
TEXT
}
in_v1beta1() { k get "$1.v1beta1.kueue.x-k8s.io" "${@:3}" -o "jsonpath=$2{\"\\n\"}"; }
in_v1beta2() { k get "$1.v1beta2.kueue.x-k8s.io" "${@:3}" -o "jsonpath=$2{\"\\n\"}"; }
try_versions() {
  does 'v1beta1 is written' k create -f <(old_objects)
  has 'a queue in v1beta2' '^everybody budget MayStopSearch MayStopSearch $' in_v1beta2 clusterqueues '{.spec.cohortName} {.spec.admissionChecksStrategy.admissionChecks[0].name} {.spec.flavorFungibility.whenCanBorrow} {.spec.flavorFungibility.whenCanPreempt} {.spec.cohort}' team-b
  has 'and back' '^everybody budget Borrow Preempt 3 $' in_v1beta1 clusterqueues '{.spec.cohort} {.spec.admissionChecks[0]} {.spec.flavorFungibility.whenCanBorrow} {.spec.flavorFungibility.whenCanPreempt} {.spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit} {.spec.cohortName}' team-b
  has 'a workload in v1beta2' '^WorkloadPriorityClass high-priority $' in_v1beta2 workloads '{.spec.priorityClassRef.kind} {.spec.priorityClassRef.name} {.spec.priorityClassName}' old
  has 'and back' '^high-priority kueue.x-k8s.io/workloadpriorityclass $' in_v1beta1 workloads '{.spec.priorityClassName} {.spec.priorityClassSource} {.spec.priorityClassRef}' old
  has 'what v1beta2 has no place for' '^ example.com/slow$' in_v1beta2 admissionchecks '{.spec.retryDelayMinutes} {.spec.controllerName}' slow
  has 'comes back' '^7$' in_v1beta1 admissionchecks '{.spec.retryDelayMinutes}' slow
  does 'a write in v1beta2' k patch clusterqueues.v1beta2.kueue.x-k8s.io team-b --type=merge -p '{"spec":{"stopPolicy":"Hold"}}'
  has 'loses nothing of v1beta1' '^Borrow Preempt budget Hold$' in_v1beta1 clusterqueues '{.spec.flavorFungibility.whenCanBorrow} {.spec.flavorFungibility.whenCanPreempt} {.spec.admissionChecks[0]} {.spec.stopPolicy}' team-b
  does 'a write in v1beta1' k patch clusterqueues.v1beta1.kueue.x-k8s.io team-b --type=merge -p '{"spec":{"cohort":"others"}}'
  has 'is seen in v1beta2' '^others Hold$' in_v1beta2 clusterqueues '{.spec.cohortName} {.spec.stopPolicy}' team-b
  does 'an apply in v1beta1' k apply --server-side --force-conflicts -f <(old_objects | sed -n '1,/^---/p' | sed 's/borrowingLimit: 3/borrowingLimit: 4/; /^---/d')
  has 'is seen in v1beta2, too' '^everybody 4$' in_v1beta2 clusterqueues '{.spec.cohortName} {.spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit}' team-b
  does 'a status in v1beta1' k patch clusterqueues.v1beta1.kueue.x-k8s.io team-b --subresource=status --type=merge -p '{"status":{"pendingWorkloads":2}}'
  has 'a list in v1beta1' '^everybody$' in_v1beta1 clusterqueues '{.items[?(@.metadata.name=="team-b")].spec.cohort}'
  has 'columns of v1beta1' '^team-b +everybody +[0-9]+$' k get clusterqueues.v1beta1.kueue.x-k8s.io
  refuses 'the schema of v1beta1' 'whenCanBorrow' k patch clusterqueues.v1beta1.kueue.x-k8s.io team-b --type=merge -p '{"spec":{"flavorFungibility":{"whenCanBorrow":"Frob"}}}'
  does 'v1beta1 is deleted' k delete -f <(old_objects)
}

version=embedded
serve --controllers engine
export KUBECONFIG=$admin
try_objects
try_versions
stop_server
serve --controllers engine
does 'v1beta1 works after a restart' k create -f <(old_objects)
has 'and is converted' '^everybody$' in_v1beta2 clusterqueues '{.spec.cohortName}' team-b
does 'all go' k delete -f <(old_objects)

# --- definitions of somebody else: an administrator's of long ago stay, and none of the group is changed ---
does 'one definition is made somebody else'\''s' k label crd clusterqueues.kueue.x-k8s.io app.kubernetes.io/part-of-
does 'and changed by him' k patch crd clusterqueues.kueue.x-k8s.io --type=json -p '[{"op":"replace","path":"/spec/names/shortNames","value":["theirs"]}]'
does 'another one goes' k delete crd workloads.kueue.x-k8s.io
stop_server
serve --controllers engine
has 'the server says whose it is' 'clusterqueues.kueue.x-k8s.io' grep 'task governance is off' "$work/server.log"
has 'it is as it was' '^theirs$' k get crd clusterqueues.kueue.x-k8s.io -o 'jsonpath={.spec.names.shortNames[0]}{"\n"}'
refuses 'the other one does not come back' 'not found' k get crd workloads.kueue.x-k8s.io
does 'it is given to us' k label crd clusterqueues.kueue.x-k8s.io app.kubernetes.io/part-of=fairlead
stop_server
serve --controllers engine
has 'now it is brought up to date' '^cq$' k get crd clusterqueues.kueue.x-k8s.io -o 'jsonpath={.spec.names.shortNames[0]}{"\n"}'
does 'and the other one is back' k get crd workloads.kueue.x-k8s.io
stop_server

if [ -n "${FAIRLEAD_KUBERNETES:-}" ] && [ -x "$programs/kube-apiserver" ]; then
  version=kubernetes
  peer=$work/peer
  "$peers/cluster.sh" up "$peer" > "$work/up.log"
  export KUBECONFIG=$peer/admin.kubeconfig
  # --- Kueue was here first ---
  does 'a definition of somebody else' k apply -f - << 'TEXT'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cohorts.kueue.x-k8s.io, labels: {app.kubernetes.io/name: kueue}}
spec:
  group: kueue.x-k8s.io
  scope: Cluster
  names: {plural: cohorts, singular: cohort, kind: Cohort, listKind: CohortList}
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
TEXT
  has 'install leaves the group alone and says whose it is' '^Task governance stays off: .*cohorts.kueue.x-k8s.io belongs to kubectl-client-side-apply' "$fairlead" install
  refuses 'none of the group is made' 'not found' k get crd clusterqueues.kueue.x-k8s.io
  does 'the rest is there' k get crd slurmclusters.slurm.nebius.ai
  lacks 'uninstall leaves it as well' 'cohorts.kueue.x-k8s.io removed' "$fairlead" uninstall --purge --yes
  does 'it is there' k get crd cohorts.kueue.x-k8s.io
  does 'it is gone' k delete crd cohorts.kueue.x-k8s.io
  has 'without it install makes the group' 'clusterqueues.kueue.x-k8s.io created' "$fairlead" install
  try_objects
  # --- until somebody serves the webhook v1beta1 fails and v1beta2 works ---
  refuses 'nobody converts yet' 'conversion webhook for' k create -f <(old_objects | sed -n '1,/^---/p' | sed '/^---/d')
  start server.log "$build/bin/fairlead-server" --engine=kubernetes --health-listen 127.0.0.1:0 --webhook-listen 127.0.0.1:0
  server=$last
  wait_until 60 'the definitions know the webhook' bash -c "[ \$(grep -c 'knows its conversion webhook' '$work/server.log') = 5 ]"
  wait_until 60 'the API knows it, too' in_v1beta1 workloads '{.items}' -A
  try_versions
  does 'the next install' "$fairlead" install
  wait_until 60 'leaves the webhook told' bash -c "'$kubectl' get crd workloads.kueue.x-k8s.io -o 'jsonpath={.spec.conversion.webhook.clientConfig.url}' | grep -q https://127.0.0.1"
  does 'an object' k create -f <(old_objects | sed -n '1,/^---/p' | sed '/^---/d')
  stop_server
  has 'without a server v1beta2 works' '^everybody$' in_v1beta2 clusterqueues '{.spec.cohortName}' team-b
  refuses 'and v1beta1 fails' 'conversion webhook for' in_v1beta1 clusterqueues '{.spec.cohort}' team-b
  does 'it is deleted in v1beta2' k delete clusterqueues.v1beta2.kueue.x-k8s.io team-b
  does 'uninstall takes the authority away' "$fairlead" uninstall
  refuses 'it is gone' 'not found' k get secret -n fairlead-system fairlead-webhooks
fi
all_passed
