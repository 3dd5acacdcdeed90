#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two teams with Jobs under one quota: the worked example of borrowing (and that it waits at the default limit), take-back by pre-emption, return, shares and counts in the status of the queues.
. "$(dirname "$0")/lib.sh"

clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || {
    k get clusterqueues,localqueues,workloads,jobs,pods -A -o wide | grep -E 'NAME|team-' || true
    k get workloads -A -o 'jsonpath={range .items[*]}{.metadata.name}: {range .status.conditions[*]}{.type}={.status} {.reason} {.message}; {end}{"\n"}{end}'
    k get clusterqueue -o yaml | tail -n 80
  } >&2 || true
  k delete namespace team-a team-b --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterqueue team-a team-b --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor pool-cpu --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete admissioncheck budget --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete workloadpriorityclass urgent-priority --ignore-not-found --timeout=30s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

team() { # NAME CPU BORROWING-LIMIT
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
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: pool-cpu, resources: [{name: cpu, nominalQuota: $2, borrowingLimit: $3}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: $1}
spec: {clusterQueue: $1}
YAML
}
condition() { k -n "$1" get workloads -o "jsonpath={.items[?(@.metadata.ownerReferences[0].name==\"$2\")].status.conditions[?(@.type==\"$3\")].$4}"; }
running() { same Running k -n "$1" get pods -l "batch.kubernetes.io/job-name=$2" -o 'jsonpath={.items[*].status.phase}'; }

# ---- A owns 6 and uses 2, B owns 5 and uses 4; B asks for 4 more (here in units of 10m)
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool-cpu}
spec: {nodeLabels: {example.com/pool: cpu}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent-priority}
value: 90
YAML
team team-a 60m 30m
team team-b 50m 25m # the default: 50 % of what is the team's own
queued_job team-a a1 20m
queued_job team-b b1 40m
until_true 20 'both are admitted' held team-b b1 false
until_true 20 'a1 is admitted' held team-a a1 false
queued_job team-b b2 40m
until_true 20 'b2 is told what it waits for' same "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor pool-cpu, 5m more needed" condition team-b b2 QuotaReserved message
held team-b b2 true || fail 'b2 runs at the default limit'
until_true 10 'the queue counts it' same 1 of_queue team-b pendingWorkloads
says '5m cpu in pool-cpu: borrowingLimit of ClusterQueue team-b (25m)' f queue -n team-b || fail 'fairlead queue does not name the limit'
says 'borrowingLimit of cpu in pool-cpu in ClusterQueue team-b: 30m instead of 25m' f explain -n team-b job/b2 || fail 'fairlead explain does not tell what would start it'
says 'position: 1' f queue --queue team-b -o yaml || fail 'fairlead queue -o yaml'
says 'when it starts is unknown' f eta -n team-b job/b2 || fail 'fairlead eta makes up a time'
k -n team-b annotate job b1 fairlead.dev/run-time=500h > /dev/null
k -n team-a annotate job a1 fairlead.dev/run-time=600h > /dev/null
says 'ends in' f eta -n team-b job/b2 || fail 'fairlead eta does not read the declared times'
says '"known": true' f eta -n team-b job/b2 -o json || fail 'fairlead eta leaves the range open'
note 'the worked example waits at the default borrowing limit of 50 %; its start is unknown until the others say how long they run'

# ---- what would be, before it is
cat > "$SCENARIO_WORK/limit.yaml" << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-b}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: pool-cpu, resources: [{name: cpu, nominalQuota: 50m, borrowingLimit: 30m}]}]
YAML
shifts() { # ARGUMENTS...: whom whatif names as started and stopped
  f whatif "$@" -o json | python3 -c 'import json, sys
view = json.load(sys.stdin)
print(" ".join(kind + ":" + one["owner"] for kind in ("starts", "stops") for one in view[kind]))'
}
same starts:job/b2 shifts -f "$SCENARIO_WORK/limit.yaml" || fail 'fairlead whatif does not tell that b2 would start'
same starts:job/b2 shifts -n team-b --without job/b1 || fail 'fairlead whatif --without'
sed 's/borrowingLimit/borrowinglimit/' "$SCENARIO_WORK/limit.yaml" > "$SCENARIO_WORK/misspelt.yaml"
! f whatif -f "$SCENARIO_WORK/misspelt.yaml" > "$SCENARIO_WORK/last" 2>&1 || fail 'a misspelt field is no change without effect'
says borrowinglimit cat "$SCENARIO_WORK/last" || fail 'the misspelt field is not named'
same 25m k get clusterqueue team-b -o 'jsonpath={.spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit}' || fail 'fairlead whatif wrote'
held team-b b2 true || fail 'b2 runs'
note 'what another limit would do is told, and nothing is written'

team team-b 50m 30m
until_true 20 'b2 borrows' held team-b b2 false
until_true 10 'the queue tells what is borrowed' same 30m of_queue team-b 'flavorsUsage[0].resources[0].borrowed'
until_true 10 'and its share' same 273 of_queue team-b fairSharing.weightedShare
same cpu k -n team-b get job b2 -o 'jsonpath={.spec.template.spec.nodeSelector.example\.com/pool}' || fail 'b2 is not bound to the nodes of its flavor'
until_true 40 'its pod runs' running team-b b2
says 'weightedShare: 273' k get clusterqueue team-b -o yaml || fail 'the share is not in kubectl get clusterqueue -o yaml'
says '80m of 50m  30m borrowed of 30m' f quota team-b || fail 'fairlead quota does not tell what is borrowed'
says '30m lent' f quota team-a || fail 'fairlead quota does not tell what is lent'
says '30m of it borrowed' f explain -n team-b job/b2 || fail 'fairlead explain does not tell what is borrowed'
says 'ClusterQueue team-a, which gets its own quota back' f explain -n team-b job/b2 || fail 'fairlead explain does not tell who could take it back'
! f quota nobody > /dev/null 2>&1 || fail 'fairlead quota of a name that is not there'
note 'with 60 % three are borrowed; the share stands in the status, the bars in fairlead quota'

# ---- the lender takes its own back; what that would do is known before
cat > "$SCENARIO_WORK/a2.yaml" << 'YAML'
apiVersion: batch/v1
kind: Job
metadata: {name: a2, labels: {kueue.x-k8s.io/queue-name: queue, kueue.x-k8s.io/priority-class: urgent-priority}}
spec:
  suspend: true
  template:
    spec: {restartPolicy: Never, containers: [{name: work, image: 'busybox:1', resources: {requests: {cpu: 40m}}}]}
YAML
same 'starts:job/a2 stops:job/b2' shifts -n team-a -f "$SCENARIO_WORK/a2.yaml" || fail 'fairlead whatif does not tell whom a2 would stop'
is_empty k -n team-a get job a2 --ignore-not-found -o name || fail 'fairlead whatif made the Job'
queued_job team-a a2 40m 'kueue.x-k8s.io/priority-class: urgent-priority'
until_true 20 'b2 is pre-empted' same InCohortReclamation condition team-b b2 Preempted reason
until_true 20 'b2 is held again' held team-b b2 true
until_true 30 'a2 has its quota' held team-a a2 false
until_true 40 'a2 runs' running team-a a2
is_empty k -n team-b get pods -l batch.kubernetes.io/job-name=b2 -o name || fail 'pods of b2 are left'
is_empty k -n team-b get job b2 -o 'jsonpath={.spec.template.spec.nodeSelector}' || fail 'b2 is bound to the flavor still'
same 90 k -n team-a get workloads -o 'jsonpath={.items[?(@.spec.priority==90)].spec.priority}' || fail 'a2 has not the priority of its class'
until_true 20 'an event tells why' says 'Preempted to accommodate a workload' k -n team-b get events
note 'the lender took its own back; the borrower waits in the queue'

k -n team-a delete job a2 --wait=false > /dev/null
until_true 30 'b2 comes back' held team-b b2 false
until_true 20 'the counts say so' same 2 of_queue team-b admittedWorkloads
note 'the borrower came back'

# ---- a limit of time
sed 's/name: a2, labels: {/name: short, labels: {kueue.x-k8s.io\/max-exec-time-seconds: "2", /; s/, kueue.x-k8s.io\/priority-class: urgent-priority//; s/cpu: 40m/cpu: 5m/; s/image: /command: [sleep, '"'1000'"'], image: /' "$SCENARIO_WORK/a2.yaml" > "$SCENARIO_WORK/short.yaml"
k -n team-a apply -f "$SCENARIO_WORK/short.yaml" > /dev/null
until_true 30 'short has run for its time' same 'The workload is deactivated due to exceeding the maximum execution time' condition team-a short Evicted message
until_true 20 'short is held' held team-a short true
until_true 10 'an event tells why' says 'The maximum execution time (2s) exceeded' k -n team-a get events
k -n team-a delete job short --wait=false > /dev/null
note 'a job that has run for its max-exec-time-seconds is deactivated'

# ---- pods that do not become ready
k apply -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerConfig
metadata: {name: in-time}
spec: {waitForPodsReady: {timeoutSeconds: 4, requeuingStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 2}}}
YAML
sed 's/name: a2, labels: {/name: stuck, labels: {/; s/, kueue.x-k8s.io\/priority-class: urgent-priority//; s/cpu: 40m/cpu: 5m/; s/image: /command: [sleep, '"'1000'"'], readinessProbe: {exec: {command: ['"'false'"']}, periodSeconds: 1}, image: /' "$SCENARIO_WORK/a2.yaml" > "$SCENARIO_WORK/stuck.yaml"
k -n team-a apply -f "$SCENARIO_WORK/stuck.yaml" > /dev/null
until_true 30 'its Workload tells that it is not ready' same WaitForStart condition team-a stuck PodsReady reason
until_true 60 'after its last try it is deactivated' same 'The workload is deactivated due to exceeding the maximum number of re-queuing retries' condition team-a stuck Evicted message
until_true 20 'stuck is held' held team-a stuck true
until_true 10 'events tell of the first try' says 'Exceeded the PodsReady timeout team-a/job-stuck-' k -n team-a get events
same false k -n team-a get workloads -o 'jsonpath={.items[?(@.spec.active==false)].spec.active}' || fail 'it is not the only one that is deactivated'
k -n team-a delete job stuck --wait=false > /dev/null
k delete schedulerconfig in-time > /dev/null
note 'a job whose pods are not ready in time gives its quota back, and is deactivated after its last try'

# ---- partial admission: of four pods two fit, and one would do
k -n team-b delete job b2 --wait=false > /dev/null
cat > "$SCENARIO_WORK/some.yaml" << 'YAML'
apiVersion: batch/v1
kind: Job
metadata: {name: some, labels: {kueue.x-k8s.io/queue-name: queue}, annotations: {kueue.x-k8s.io/job-min-parallelism: '9'}}
spec:
  suspend: true
  parallelism: 4
  completions: 4
  template:
    spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: work, image: 'busybox:1', command: [sleep, '1000'], resources: {requests: {cpu: 15m}}}]}
YAML
until_true 30 'b2 is gone' same 1 of_queue team-b reservingWorkloads
k -n team-b create -f "$SCENARIO_WORK/some.yaml" > /dev/null
until_true 20 'an event tells what cannot be' says '"9" is given, and a number from 1 to 3, less than the 4 pods that run at once, is expected' k -n team-b get events
k -n team-b annotate job some --overwrite kueue.x-k8s.io/job-min-parallelism=1 > /dev/null
until_true 30 'some of it is admitted' held team-b some false
parallel() { k -n team-b get job some -o 'jsonpath={.spec.parallelism}'; }
same 2 parallel || fail "it runs with $(parallel) pods"
same '2 30m' k -n team-b get workloads -o 'jsonpath={range .items[?(@.spec.podSets[0].minCount==1)]}{.status.admission.podSetAssignments[0].count} {.status.admission.podSetAssignments[0].resourceUsage.cpu}{end}' || fail 'its admission says something else'
until_true 40 'two pods run' same 'Running Running' k -n team-b get pods -l batch.kubernetes.io/job-name=some -o 'jsonpath={.items[*].status.phase}'
says 'has 2 of 4 pods' f explain -n team-b job/some || fail 'fairlead explain does not tell how many pods it has'
k -n team-b patch localqueue queue --type=merge -p '{"spec":{"stopPolicy":"HoldAndDrain"}}' > /dev/null
until_true 30 'it is held' held team-b some true
until_true 30 'and asks for all of them again' same 4 parallel
k -n team-b delete job some --wait=false > /dev/null
k -n team-b patch localqueue queue --type=merge -p '{"spec":{"stopPolicy":"None"}}' > /dev/null
until_true 30 'b1 is back' held team-b b1 false
note 'a Job that will do with fewer pods runs with as many as there is quota for'

# ---- a large job that has waited gets what is given back; a small one behind it does not
k apply -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: SchedulerConfig
metadata: {name: first}
spec: {reservation: {afterSeconds: 2, holdSeconds: 600}}
YAML
queued_job team-b large 60m
until_true 30 'what is given back is kept for it' says 'what is given back is kept for it' condition team-b large QuotaReserved message
queued_job team-b late 10m
until_true 30 'the small one is told for whom' says 'what is free is kept for workload team-b/job-large-' condition team-b late QuotaReserved message
held team-b late true || fail 'the small one has passed'
says team-b/large f explain -n team-b job/late || fail 'fairlead explain does not name the large one'
k -n team-b delete job b1 --wait=false > /dev/null
until_true 30 'the large one starts' held team-b large false
until_true 30 'and the small one beside it' held team-b late false
k delete schedulerconfig first > /dev/null
note 'a large job that has waited gets what is given back'

# ---- a program of the site has a say (kubectl plays it)
k -n team-b delete job large late --ignore-not-found --wait=true --timeout=60s > /dev/null
k -n team-a delete jobs --all --wait=true --timeout=60s > /dev/null
active() { k get clusterqueue team-b -o "jsonpath={.status.conditions[?(@.type==\"Active\")].$1}"; }
k patch clusterqueue team-b --type=merge -p '{"spec":{"admissionChecksStrategy":{"admissionChecks":[{"name":"budget"}]}}}' > /dev/null
until_true 20 'a check that is not there is named' same AdmissionCheckNotFound active reason
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
YAML
until_true 20 'one whose program is not there, too' same AdmissionCheckInactive active reason
k patch admissioncheck budget --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Active","status":"True","reason":"Here","message":"","lastTransitionTime":"2026-11-23T00:00:00Z"}]}}' > /dev/null
until_true 20 'the queue is active' same True active status
queued_job team-b asked 10m
until_true 30 'it has its quota and waits for the check' same UnsatisfiedAdmissionChecks condition team-b asked Admitted reason
held team-b asked true || fail 'it runs before its check is ready'
says 'waits for admission checks: budget (Pending)' f explain -n team-b job/asked || fail 'fairlead explain does not name the check'
workload=$(k -n team-b get workloads -o 'jsonpath={.items[?(@.metadata.ownerReferences[0].name=="asked")].metadata.name}')
verdict() { # STATE MORE
  k -n team-b patch workload "$workload" --subresource=status --type=merge -p "{\"status\":{\"admissionChecks\":[{\"name\":\"budget\",\"state\":\"$1\",\"message\":\"said\",\"lastTransitionTime\":\"$(date -u +%FT%TZ)\"$2}]}}" > /dev/null
}
verdict Retry ',"requeueAfterSeconds":3'
until_true 30 'it is put off, and is back in line' same Pending k -n team-b get workload "$workload" -o 'jsonpath={.status.admissionChecks[0].state}'
until_true 30 'it has its quota again' same UnsatisfiedAdmissionChecks condition team-b asked Admitted reason
verdict Ready ',"podSetUpdates":[{"name":"main","annotations":{"example.com/cost":"7"}}]'
until_true 30 'it starts' held team-b asked false
same 7 k -n team-b get job asked -o 'jsonpath={.spec.template.metadata.annotations.example\.com/cost}' || fail 'what the check added is not in the Job'
verdict Rejected ''
until_true 30 'it is stopped' held team-b asked true
until_true 30 'and stays out' same false k -n team-b get workload "$workload" -o 'jsonpath={.spec.active}'
until_true 60 'what the check added is taken out of the Job' is_empty k -n team-b get job asked -o 'jsonpath={.spec.template.metadata.annotations.example\.com/cost}'
note 'a job starts when the checks of its queue agree'

# ---- what was decided is decided again
replay=$(dirname "$SCENARIO_FAIRLEAD")/fairlead-replay
if [ -x "$replay" ] && [ -n "${SCENARIO_STATE:-}" ]; then
  cp "$SCENARIO_STATE/decisions.log" "$SCENARIO_WORK/decisions.log" || fail 'there is no decision log'
  says 'team-b/job-b2-' grep submit "$SCENARIO_WORK/decisions.log" || fail 'the decision log does not name b2'
  says InCohortReclamation cat "$SCENARIO_WORK/decisions.log" || fail 'the decision log does not tell the take-back'
  says ' 0 failed' "$replay" "$SCENARIO_WORK/decisions.log" || fail 'the decision log is not decided so again'
  note 'the decision log is replayed byte for byte'
fi
