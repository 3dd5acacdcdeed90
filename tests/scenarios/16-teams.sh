#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A policy and quotas of teams become queues: HyperPod's names and percentages, the worked example of borrowing through them, a quota that would promise machines twice, members and what they may do and ask, a team that goes.
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
  until_true 30 'the queues of teams go' is_empty k get clusterqueues,cohorts,resourceflavors,workloadpriorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings -l fairlead.dev/teams=true -o name || status=1
  k -n default delete serviceaccount ada --ignore-not-found > /dev/null || status=1
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

# ada is a service account here, for which both engines make tokens.
k -n default create serviceaccount ada > /dev/null
export ADA="$SCENARIO_WORK/ada.kubeconfig"
(umask 077 && k config view --minify --flatten --raw > "$ADA")
token=$(k -n default create token ada)
"$SCENARIO_KUBECTL" --kubeconfig "$ADA" config set-credentials ada --token "$token" > /dev/null
"$SCENARIO_KUBECTL" --kubeconfig "$ADA" config set-context --current --user ada --namespace hyperpod-ns-blue > /dev/null
ka() { "$SCENARIO_KUBECTL" --kubeconfig "$ADA" "$@"; }
fa() { COLUMNS=160 "$SCENARIO_FAIRLEAD" "$@" --kubeconfig "$ADA"; }
may() { # yes|no VERB WHAT...
  local answer
  answer=$(ka auth can-i "${@:2}" 2> /dev/null) || true # "no" is a failure, too
  [ "$answer" = "$1" ]
}

may no create jobs || fail 'a stranger may make Jobs'
f team add-member nobody ada > /dev/null 2>&1 && fail 'a member of no team'
says 'is a member of team blue' f team add-member blue serviceaccount:default/ada || fail 'add-member'
says 'is a member already' f team add-member blue serviceaccount:default/ada || fail 'add-member again'
same serviceaccount:default/ada f team members blue || fail 'members'
until_true 10 'a member may make Jobs' may yes create jobs
until_true 10 'a member may see the queues' may yes list clusterqueues
for what in 'create jobs -n hyperpod-ns-red' 'list workloads -A' 'get secrets -n hyperpod-ns-red' 'create rolebindings' 'update localqueues' 'update workloads' 'patch computequotas' 'delete namespace/hyperpod-ns-blue' 'update nodes'; do
  # shellcheck disable=SC2086
  may no $what || fail "a member may $what"
done
quota blue 'vCpu: 0.05' 50
job blue b3 40m
until_true 20 'b3 waits' says ' 45m more needed' k -n hyperpod-ns-blue get workloads -o 'jsonpath={.items[*].status.conditions[?(@.type=="QuotaReserved")].message}'
is_empty k -n hyperpod-ns-blue get inquiries -o name || fail 'inquiries before anybody asked'
f explain -n hyperpod-ns-blue job/b3 > "$SCENARIO_WORK/of-admin"
fa explain job/b3 > "$SCENARIO_WORK/of-member" || fail 'a member cannot ask why his job waits'
cmp "$SCENARIO_WORK/of-admin" "$SCENARIO_WORK/of-member" || fail 'a member is told something else'
says 'b3' fa queue || fail 'a member cannot see his line'
says 'hyperpod-ns-red' fa quota || fail 'a member cannot see who has what'
says 'b3' fa eta job/b3 || fail 'a member cannot ask when'
says 'b3' fa whatif --without job/b1 --without job/b2 || fail 'a member cannot ask what if'
fa explain -n hyperpod-ns-red job/r1 > /dev/null 2>&1 && fail 'a member asks about another team'
is_empty k -n hyperpod-ns-blue get inquiries -o name || fail 'an inquiry was left behind'
ka create -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: Inquiry
metadata: {name: why}
spec: {ttlSeconds: 8, explain: {workload: job/b3}}
YAML
until_true 10 'a question in plain YAML is answered' same 45m ka get inquiry why -o 'jsonpath={.status.answer.missing[0].missing}'
until_true 20 'its time takes it away' is_empty k -n hyperpod-ns-blue get inquiries -o name

# Without a queue nobody runs anything in the namespace of a team.
unqueued() { # WHO KIND-AND-MORE SPEC
  printf '%s' "{$2, metadata: {generateName: unqueued-, namespace: hyperpod-ns-blue${4:-}}, spec: $3}" | "$1" create --dry-run=server -f - 2>&1 || true
}
pod_of='{restartPolicy: Never, containers: [{name: main, image: busybox}]}'
until_true 20 'a Job without a queue is refused' says 'kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}"
says 'kueue.x-k8s.io/queue-name is missing' unqueued k 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}" || fail 'an administrator runs a Job past the queue'
says 'kueue.x-k8s.io/queue-name is missing' unqueued ka 'apiVersion: v1, kind: Pod' "$pod_of" || fail 'a pod runs past the queue'
says 'Add {name: kueue.x-k8s.io/admission}' unqueued ka 'apiVersion: v1, kind: Pod' "$pod_of" ', labels: {kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue}' || fail 'a pod with a queue waits behind no gate'
labelled=', labels: {kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue'
until_true 20 'a class that is not there is refused with those that are' says 'there is no such priority class; there are: ' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}" "$labelled, kueue.x-k8s.io/priority-class: mine}"
says 'is no controller of a kind that waits in queues' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}" "$labelled}, ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: x, uid: x, controller: true}]" || fail 'an owner by hand takes a Job out of its queue'
printf '%s' "{apiVersion: v1, kind: Pod, metadata: {name: gated, namespace: hyperpod-ns-blue$labelled}}, spec: {restartPolicy: Never, schedulingGates: [{name: kueue.x-k8s.io/admission}], containers: [{name: main, image: busybox, command: [sleep, '1000'], resources: {requests: {cpu: 40m}}}]}}" | ka create -f - > /dev/null
lift() { ka patch pod gated --type=merge -p '{"spec":{"schedulingGates":null},"metadata":{"labels":{"kueue.x-k8s.io/managed":null},"finalizers":null}}' 2>&1 || true; }
says 'is lifted when the pod is admitted' lift || fail 'a member lifts the gate'
ka delete pod gated --wait=false > /dev/null
unlabel() { ka label job b3 kueue.x-k8s.io/queue-name- --dry-run=server 2>&1 || true; }
says 'kueue.x-k8s.io/queue-name is missing' unlabel || fail 'the label was taken away'
k patch schedulerconfig policy --type=merge -p '{"spec":{"unqueuedWork":"Warn"}}' > /dev/null
until_true 20 'with Warn it is taken with a warning' says 'created (server dry run)' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}"
says 'Warning: Validation failed' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}" || fail 'no warning'
k patch schedulerconfig policy --type=merge -p '{"spec":{"unqueuedWork":"Allow"}}' > /dev/null
until_true 20 'with Allow there is no policy' is_empty k get validatingadmissionpolicies -l fairlead.dev/teams=true -o name
k patch schedulerconfig policy --type=merge -p '{"spec":{"unqueuedWork":null}}' > /dev/null
until_true 20 'without a word it is refused again' says 'is missing' unqueued ka 'apiVersion: batch/v1, kind: Job' "{template: {spec: $pod_of}}"
note 'no work passes by the queue of a team'

says 'is no member any more' f team remove-member blue serviceaccount:default/ada || fail 'remove-member'
until_true 10 'who is no member may nothing' bash -c "$(declare -f may ka); may no create jobs && may no list clusterqueues"
note 'members may work in their namespace and ask why they wait, and nothing beyond'

# A window that always holds: what begins at an hour is tried with clocks that tests move.
schedule() { k annotate clusterqueue hyperpod-ns-blue-clusterqueue --overwrite "fairlead.dev/quota-schedule=[{\"name\":\"always\",\"quotas\":[{\"flavor\":\"demo.cpu\",\"resource\":\"$1\",\"nominalQuota\":\"120m\"}]}]" > /dev/null; }
condition() { k get clusterqueue hyperpod-ns-blue-clusterqueue -o 'jsonpath={.status.conditions[?(@.type=="Active")].message}'; }
schedule paper
until_true 20 'a mistake in a window is told' says 'window "always": spec.resourceGroups has no paper of flavor demo.cpu' condition
held hyperpod-ns-blue b1 false || fail 'a mistake in a window stopped what ran'
schedule cpu
until_true 20 'b3 runs on the quota of the window' held hyperpod-ns-blue b3 false
says 'quotas of window "always"' condition || fail 'the window is not named'
says 'window "always"' f quota blue || fail 'the window is not in the picture'
k annotate clusterqueue hyperpod-ns-blue-clusterqueue fairlead.dev/quota-schedule- > /dev/null
until_true 20 'the quotas are its own again' same 'Can admit new workloads' condition
k patch computequota blue --type=merge -p '{"spec":{"schedule":[{"name":"all-day","computeQuotaResources":[{"instanceType":"demo.cpu","vCpu":1000000}]}]}}' > /dev/null
until_true 20 'more than there is at any hour is refused' says 'UTC on' k get computequota blue -o 'jsonpath={.status.conditions[?(@.type=="Accepted")].message}'
k patch computequota blue --type=merge -p '{"spec":{"schedule":[{"name":"all-day","computeQuotaResources":[{"instanceType":"demo.cpu","vCpu":0.06}]}]}}' > /dev/null
until_true 20 'the schedule of the quota is that of its queue' says 'quotas of window "all-day"' condition
k patch computequota blue --type=merge -p '{"spec":{"schedule":null}}' > /dev/null
until_true 20 'and goes with it' same 'Can admit new workloads' condition
note 'quotas follow a schedule'

k patch schedulerconfig policy --type=merge -p '{"spec":{"fairShareHistory":{"halfLifeSeconds":60}}}' > /dev/null
until_true 30 'weights follow what was used' says 'as written; used ' f quota
until_true 30 'what was used is kept with the queue of the team' bash -c "$(declare -f k); k -n hyperpod-ns-blue get localqueue -o 'jsonpath={.items[0].status.fairSharing.admissionFairSharingStatus.consumedResources.cpu}' | grep -q '^[1-9][0-9]*m\$'"
k patch schedulerconfig policy --type=merge -p '{"spec":{"fairShareHistory":null}}' > /dev/null
until_true 30 'without it they are as written' bash -c "$(declare -f f); ! f quota | grep 'as written' > /dev/null"
note 'weights follow what was used lately, as long as the policy says so'
k -n hyperpod-ns-blue delete job b3 > /dev/null

k delete computequota red --timeout=30s > /dev/null
until_true 20 'its queue goes or waits for what runs' same Disabled k get namespace hyperpod-ns-red -o 'jsonpath={.metadata.labels.sagemaker\.amazonaws\.com/activate-quota}'
same Active k get namespace hyperpod-ns-red -o 'jsonpath={.status.phase}' || fail 'the namespace of people went with the quota'
note 'a team that goes leaves its namespace'
