#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A kind that stands for many pods comes to the cluster: from then on its objects are held by their own switch until they have quota, without a restart of the server.
. "$(dirname "$0")/lib.sh"

clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k -n team-k get workloads -o wide || true
    k -n team-k get pytorchjobs -o yaml || true
    k -n team-k get events || true
  } >&2
  k -n team-k delete pytorchjobs --all --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete namespace team-k --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterqueue team-k --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor pool-kinds --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete crd pytorchjobs.kubeflow.org --ignore-not-found --timeout=30s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT
t() { k -n team-k "$@"; }
field() { t get pytorchjob "$1" -o "jsonpath={$2}"; }
train() { # NAME REPLICAS
  t create -f - > /dev/null << YAML
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: queue}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: $2
      template:
        metadata: {labels: {kueue.x-k8s.io/queue-name: queue}}
        spec:
          containers: [{name: pytorch, image: 'busybox:1', resources: {requests: {cpu: 10m}}}]
YAML
}

k create namespace team-k > /dev/null
# The form of the kind alone: what runs its pods is not needed to hold it.
k apply -f - > /dev/null << 'YAML'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec:
  group: kubeflow.org
  scope: Namespaced
  names: {plural: pytorchjobs, singular: pytorchjob, kind: PyTorchJob, listKind: PyTorchJobList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool-kinds}
spec: {nodeLabels: {example.com/pool: cpu}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-k}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-k}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: pool-kinds, resources: [{name: cpu, nominalQuota: 50m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: team-k}
spec: {clusterQueue: team-k}
YAML
until_true 30 'the kind is served' k -n team-k get pytorchjobs
train t1 4
until_true 60 't1 has its quota' same cpu field t1 '.spec.pytorchReplicaSpecs.Worker.template.spec.nodeSelector.example\.com/pool'
same false field t1 .spec.runPolicy.suspend || fail 't1 is not released'
train t2 2
until_true 30 't2 is held' same true field t2 .spec.runPolicy.suspend
says '10m cpu in pool-kinds' f explain -n team-k pytorchjob/t2 || fail 'fairlead explain does not tell why it waits'
note 'a PyTorchJob is held by its own switch until it has quota'
t patch pytorchjob t1 --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Succeeded","status":"True","message":"trained"}]}}' > /dev/null
until_true 30 't2 has what t1 gives back' same false field t2 .spec.runPolicy.suspend
same trained t get workloads -o 'jsonpath={.items[?(@.metadata.ownerReferences[0].name=="t1")].status.conditions[?(@.type=="Finished")].message}' || fail 'the Workload of t1 does not say that it has ended'
note 'its end gives the quota to the next'
