#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A policy and quotas of teams become queues: HyperPod's names and percentages, the worked example of borrowing through them, a quota that would promise machines twice, a team that goes.
. "$(dirname "$0")/lib.sh"

type=node.kubernetes.io/instance-type
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k get schedulerconfigs,computequotas,clusterqueues,localqueues,workloads,jobs -A -o wide || true
    k get computequotas -o yaml | tail -n 80
  } >&2 || true
  k delete computequota red blue green --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete schedulerconfig policy --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete namespace hyperpod-ns-red hyperpod-ns-blue --ignore-not-found --timeout=60s > /dev/null || status=1
  until_true 30 'the queues of teams go' is_empty k get clusterqueues,cohorts,resourceflavors,workloadpriorityclasses -l fairlead.dev/teams=true -o name || status=1
  k label nodes -l example.com/pool=cpu "$type-" > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

quota() { # TEAM RESOURCES BORROW-LIMIT
  k apply -f - > /dev/null << YAML
apiVersion: fairlead.dev/v1alpha1
kind: ComputeQuota
metadata: {name: $1}
spec:
  teamName: $1
  fairShareWeight: 20
  computeQuotaResources: [{instanceType: demo.cpu, $2}]
  resourceSharingConfig: {strategy: LendAndBorrow, borrowLimit: $3}
YAML
}
job() { queued_job "hyperpod-ns-$1" "$2" "$3" 'kueue.x-k8s.io/priority-class: training-priority' "hyperpod-ns-$1-localqueue"; } # TEAM NAME CPU
accepted() { k get computequota "$1" -o "jsonpath={.status.conditions[?(@.type==\"Accepted\")].$2}"; }
limit() { k get clusterqueue "hyperpod-ns-$1-clusterqueue" -o 'jsonpath={.spec.resourceGroups[0].flavors[0].resources[?(@.name=="cpu")].borrowingLimit}'; }

k label nodes -l example.com/pool=cpu "$type=demo.cpu" --overwrite > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerConfig
metadata: {name: policy}
spec:
  priorityClasses: [{name: training, weight: 90}, {name: inference, weight: 40}]
YAML
quota red 'vCpu: 0.06' 50
quota blue 'vCpu: 0.05' 50
until_true 20 'both quotas are accepted' bash -c "$(declare -f accepted k same); same True accepted red status && same True accepted blue status"
until_true 20 'the queue is there' same 25m limit blue
same hyperpod-ns-blue-clusterqueue k -n hyperpod-ns-blue get localqueue hyperpod-ns-blue-localqueue -o 'jsonpath={.spec.clusterQueue}' || fail 'the LocalQueue'
same 'true Enabled' k get namespace hyperpod-ns-blue -o 'jsonpath={.metadata.labels.sagemaker\.amazonaws\.com/sagemaker-managed-queue} {.metadata.labels.sagemaker\.amazonaws\.com/activate-quota}' || fail 'the labels of the namespace'
same 90 k get workloadpriorityclass training-priority -o 'jsonpath={.value}' || fail 'the priority class'
note 'policy and quotas became queues with the names that follow from the teams'

job red r1 20m
job blue b1 40m
until_true 20 'r1 is admitted' held hyperpod-ns-red r1 false
until_true 20 'b1 is admitted' held hyperpod-ns-blue b1 false
job blue b2 40m
until_true 20 'b2 is told what it waits for' says '5m more needed' k -n hyperpod-ns-blue get workloads -o 'jsonpath={.items[*].status.conditions[?(@.type=="QuotaReserved")].message}'
held hyperpod-ns-blue b2 true || fail 'b2 runs at the default limit'
quota blue 'vCpu: 0.05' 60
until_true 20 'b2 borrows at 60 %' held hyperpod-ns-blue b2 false
note 'a team borrows up to so many per cent of its own'

quota green 'count: 1000' 50
until_true 20 'the sum is refused' same OverCapacity accepted green reason
says 'red has 60m' accepted green message || fail "the numbers are not told: $(accepted green message)"
is_empty k get namespace hyperpod-ns-green --ignore-not-found -o name || fail 'a namespace for a refused quota'
until_true 10 'an unknown type is refused with those there are' bash -c "$(declare -f quota k accepted says); k patch computequota green --type=merge -p '{\"spec\":{\"computeQuotaResources\":[{\"instanceType\":\"ml.x\",\"count\":1}]}}' > /dev/null; says 'there are' accepted green message"
note 'machines are not promised twice, and a type that is not there is named'

k delete computequota red --timeout=30s > /dev/null
until_true 20 'its queue goes or waits for what runs' same Disabled k get namespace hyperpod-ns-red -o 'jsonpath={.metadata.labels.sagemaker\.amazonaws\.com/activate-quota}'
same Active k get namespace hyperpod-ns-red -o 'jsonpath={.status.phase}' || fail 'the namespace of people went with the quota'
note 'a team that goes leaves its namespace'
