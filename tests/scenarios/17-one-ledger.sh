#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two teams, Jobs and Slurm jobs under one quota: a Slurm job borrows, the lender's Job takes it back, the Slurm job waits held and comes back.
. "$(dirname "$0")/lib.sh"

follow() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"extensions\":{\"quota\":$1}}}" > /dev/null; }
on_head() { kd exec controller-0 -c slurmctld -- "$@"; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k get clusterqueues,localqueues,workloads,jobs,pods -A -o wide | grep -E 'NAME|team-' || true
    k get workloads -A -o 'jsonpath={range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}{"\n"}{end}'
    kd get events | tail -n 20
    login squeue -a -O 'JobArrayID,State,Reason:40,Account,admin_comment:200' || true
  } >&2 || true
  login scancel -u root 2> /dev/null || true
  follow null || status=1
  until_true 120 'no Workload of a Slurm job is left' is_empty k get workloads -A -l fairlead.dev/slurm-cluster-uid -o name || status=1
  k delete namespace team-a team-b --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterqueue team-a team-b --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor pool-cpu --ignore-not-found --timeout=30s > /dev/null || status=1
  until_true 180 'submissions are not held any more' is_empty on_head sh -c 'ls /etc/slurm/fairlead-admission 2> /dev/null; true' || status=1
  until_true 240 'the cluster is at rest' at_rest || status=1
  exit "$status"
}
trap clean_up EXIT

team() { # NAME CPU
  k apply -f - > /dev/null << YAML
apiVersion: v1
kind: Namespace
metadata: {name: $1}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: $1}
spec:
  cohortName: everybody
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $1}}
  preemption: {reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors: [{name: pool-cpu, resources: [{name: cpu, nominalQuota: $2}, {name: memory, nominalQuota: 1Ti}, {name: nvidia.com/gpu, nominalQuota: 0}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: $1}
spec: {clusterQueue: $1}
YAML
}
submit() { login sbatch --parsable -A "$1" "${@:2}" -n 1 --mem=50M -o /dev/null --wrap 'sleep 1000' | tr -d '[:space:]'; } # ACCOUNT [OPTION...]
slurm() { login squeue -h -r -t all -j "$1" -O "$2" | sed -E 's/ +$//'; }
workload() { k -n "$1" get workloads -o "jsonpath={.items[?(@.metadata.annotations.fairlead\.dev/slurm-job==\"demo/demo/$2\")].$3}"; }

k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool-cpu}
spec: {nodeLabels: {example.com/pool: cpu}}
YAML
team team-a 1100m
team team-b 1
until_true 240 'the cluster is at rest' at_rest
follow '{"accounts":[{"account":"team-a","namespace":"team-a","queue":"queue"},{"account":"team-b","namespace":"team-b","queue":"queue"}]}'
until_true 180 'submissions are held' on_head test -e /etc/slurm/fairlead-admission

lost=$(submit nobody-s)
until_true 60 'an account without a queue is told' same 'fairlead: account nobody-s has no queue in this cluster; there are: team-a, team-b' slurm "$lost" admin_comment:200
same 'PENDING' slurm "$lost" State || fail 'a job without a queue runs'
login scancel "$lost"
b1=$(submit team-b)
until_true 30 'the queue has to let the cluster in' says 'lets this cluster in with annotation fairlead.dev/slurm-clusters=demo/demo' slurm "$b1" admin_comment:200
same 'JobHeldAdmin' slurm "$b1" Reason:40 || fail 'a job is not held by an administrator'
k annotate localqueue queue -n team-a fairlead.dev/slurm-clusters=demo/demo > /dev/null
k annotate localqueue queue -n team-b fairlead.dev/slurm-clusters=demo/demo > /dev/null
until_true 120 'b1 runs' same RUNNING slurm "$b1" State
until_true 30 'and says by whom' same 'fairlead: admitted by queue team-b/queue' slurm "$b1" admin_comment:200
note 'a Slurm job is held until the queue of its account admits it'

b2=$(submit team-b -t 45)
until_true 120 'b2 borrows and runs' same RUNNING slurm "$b2" State
until_true 20 'the queue tells what is borrowed' same 1 of_queue team-b 'flavorsUsage[0].resources[?(@.name=="cpu")].borrowed'
says '2 of 1  1 borrowed' f quota team-b || fail "fairlead quota: $(f quota team-b)"
queued_job team-b b3 200m
until_true 20 'a Job of the same team finds its quota used by Slurm jobs' says 'insufficient unused quota' k -n team-b get workloads -o 'jsonpath={.items[*].status.conditions[?(@.type=="QuotaReserved")].message}'
until_true 20 'its time limit is known' same 2700s workload team-b "$b2" 'metadata.annotations.fairlead\.dev/time-limit'
says 'time limit 2700' f eta -n team-b job/b3 || fail "fairlead eta of who waits for a Slurm job: $(f eta -n team-b job/b3 2>&1)"
says 'has its quota' f explain -n demo "slurm/demo/$b2" || fail "fairlead explain of a Slurm job: $(f explain -n demo "slurm/demo/$b2" 2>&1)"
k -n team-b delete job b3 --wait=false > /dev/null
note 'Slurm jobs borrow, and Jobs of the same team see what they use'

queued_job team-a a1 200m
until_true 90 'the lender has its own back' held team-a a1 false
until_true 90 'b2 is back in the queue, held' same JobHeldAdmin slurm "$b2" Reason:40
same InCohortReclamation workload team-b "$b2" 'status.conditions[?(@.type=="Preempted")].reason' || fail 'why b2 was stopped is not told'
until_true 30 'its user is told' same 'fairlead: taken back (Preempted), waits for quota of queue team-b/queue' slurm "$b2" admin_comment:200
same RUNNING slurm "$b1" State || fail 'b1 was stopped, too'
note 'a Job of the lender takes back what a Slurm job borrowed'

k -n team-a delete job a1 --wait=false > /dev/null
until_true 90 'b2 comes back' says 'fairlead: admitted by queue' slurm "$b2" admin_comment:200
login scancel "$b1" "$b2"
until_true 90 'the quota is given back' same 0 of_queue team-b admittedWorkloads
note 'it comes back, and quota is given back at the end'
