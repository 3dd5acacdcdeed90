#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training jobs as HyperPod's users submit them: `hyp` as it is sends the training example over two nodes into a queue, and it learns. Then jobs whose pods have an agent: their processes begin anew in their pods, a node that is to
# go is left, a log that says nothing is found, and a job is taken back from its nodes and goes on.
. "$(dirname "$0")/lib.sh"

hyp=$("$top/tests/peers/hyp/hyp.sh") || { [ $? != 77 ] || { note 'left out: hyp cannot be had here'; exit 0; }; fail 'hyp'; }
# hyperpodrun itself where it was made (tests/peers/hyp/hyp.sh agent), else what stands in for it: one suite runs on both.
agent=$(FAIRLEAD_ONLY_THERE=1 "$top/tests/peers/hyp/hyp.sh" agent 2> /dev/null || true)
folder=$SCENARIO_WORK/hyp
mkdir -p "$folder"
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || {
    t get hyperpodpytorchjobs -o yaml || true
    t get pods -o wide || true
    t get events --sort-by=.metadata.creationTimestamp || true
    for pod in $(t get pods -o name); do t logs --tail=20 "$pod" || true; done
  } >&2
  k label nodes --all sagemaker.amazonaws.com/node-health-status- > /dev/null || true
  t delete hyperpodpytorchjobs --all --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete namespace team-hyp --ignore-not-found --timeout=60s > /dev/null || status=1
  k delete clusterqueue team-hyp --ignore-not-found --timeout=30s > /dev/null || status=1
  k delete resourceflavor pool-hyp --ignore-not-found --timeout=30s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT
t() { k -n team-hyp "$@"; }
# A context named as `aws eks update-kubeconfig` names it: hyp reads the region in it, and reports to its makers unless it is one that AWS does not have.
cp "$KUBECONFIG" "$folder/config"
KUBECONFIG=$folder/config k config rename-context "$(k config current-context)" arn:aws:eks:on-premise-1:123456789012:cluster/fairlead > /dev/null
h() { KUBECONFIG=$folder/config HOME=$folder PATH=$(dirname "$SCENARIO_KUBECTL"):$PATH PYTHONWARNINGS=ignore timeout 120 "$hyp/bin/hyp" "$@"; }
status_of() { t get hyperpodpytorchjob "$1" -o "jsonpath={.status.$2}"; }
shown() { h list hyp-pytorch-job --namespace team-hyp 2>&1 | awk '$2 == "team-hyp" { print $3 }' | sort; }
uid_of() { t get pod "$1" -o 'jsonpath={.metadata.uid}'; }
is_gone() { [ -z "$(t get pod "$1" --ignore-not-found -o name)" ]; }

k create namespace team-hyp > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool-hyp}
spec: {nodeLabels: {example.com/pool: gpu}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-hyp}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-hyp}}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu, pods]
    flavors: [{name: pool-hyp, resources: [{name: cpu, nominalQuota: 10}, {name: nvidia.com/gpu, nominalQuota: 0}, {name: pods, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: team-hyp}
spec: {clusterQueue: team-hyp}
YAML
shared_claim team-hyp checkpoints 1Gi

# ---- hyp, and the example
# Two nodes of one process each, which find one another by what is in their environment.
submit() { # NAME STEPS
  h create hyp-pytorch-job --job-name "$1" --namespace team-hyp --image slurm:22.05 --pull-policy IfNotPresent --replica-count 2 --tasks-per-node 1 --queue-name queue --max-retry 3 \
    --volume "name=code,type=hostPath,mount_path=/code,path=$top/examples/train-gpt,read_only=true" --volume 'name=checkpoints,type=pvc,mount_path=/checkpoints,claim_name=checkpoints,read_only=false' \
    --command "[python3, -u, /code/train_gpt.py, --steps, $2, --print-every, 5, --checkpoint-dir, /checkpoints/$1]"
}
submit train 250 > "$folder/create" 2>&1 || fail "hyp create: $(cat "$folder/create")"
says 'Successfully submitted' cat "$folder/create" || fail 'hyp create'
until_true 60 'it runs' same True status_of train 'conditions[?(@.type=="Running")].status'
says train-pod-0 h exec hyp-pytorch-job --job-name train --namespace team-hyp -p train-pod-0 -- hostname || fail 'hyp exec'
submit second 5 > "$folder/create" 2>&1 || fail "hyp create: $(cat "$folder/create")"
until_true 30 'the second is held' same True status_of second 'conditions[?(@.type=="Suspended")].status'
[[ $(shown) =~ ^(Running|Completed)$'\n'(Suspended|Running|Completed)$ ]] || fail "hyp does not see them: $(shown)"
says 'pods' f explain -n team-hyp hyperpodpytorchjob/second || fail 'fairlead explain does not tell why it waits'
note 'hyp submits two trainings; one runs, one waits for its quota'
until_true 300 'the training completes' same True status_of train 'conditions[?(@.type=="Completed")].status'
h get-logs hyp-pytorch-job --job-name train --pod-name train-pod-0 --namespace team-hyp > "$folder/log" 2>&1 || fail "hyp get-logs: $(tail -n 3 "$folder/log")"
mapfile -t lines < <(losses "$folder/log")
((${#lines[@]} >= 5)) || fail "${#lines[@]} loss lines: $(tail -n 5 "$folder/log")"
awk -v a="${lines[0]}" -v b="${lines[-1]}" 'BEGIN { exit !(b < a - 0.5) }' || fail "the loss did not fall: ${lines[0]}, then ${lines[-1]}"
note "the training completed, its loss fell from ${lines[0]} to ${lines[-1]}; exec and get-logs of hyp"
until_true 60 'the second has its turn' same True status_of second 'conditions[?(@.type=="Completed")].status'
h delete hyp-pytorch-job --job-name train --namespace team-hyp > /dev/null 2>&1 || fail 'hyp delete'
t delete hyperpodpytorchjob second > /dev/null
until_true 60 'their pods go with them' is_empty t get pods -o name
note 'what it gives back is the next one'"'"'s; hyp delete'

# ---- agents
if [ -n "$agent" ]; then
  run="[\"$agent/bin/hyperpodrun\", --nproc-per-node=1, --log-dir=/tmp/hyperpod, --tee=3, /job/steps.py]"
  note 'with hyperpodrun of hyperpod-elastic-agent'
else
  run='[python3, /tests/training_agent.py, --nproc-per-node=1, python3, -u, /job/steps.py]'
fi
# NAME RULES [NODES [MORE]]: nodes that count, and do what files in /tmp of their pods say.
count() {
  t apply -f - > /dev/null << YAML
apiVersion: v1
kind: ConfigMap
metadata: {name: steps}
data:
  steps.py: |
    import os, sys, time
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], "at", os.environ["MASTER_ADDR"], flush=True)
    step = 0
    while not os.path.exists("/tmp/complete"):
        if os.path.exists("/tmp/crash"):
            os.remove("/tmp/crash")
            sys.exit(3)
        if not os.path.exists("/tmp/hang"):
            print("step", step, flush=True)
            step += 1
        time.sleep(0.5)
---
apiVersion: sagemaker.amazonaws.com/v1
kind: HyperPodPyTorchJob
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: queue}, annotations: {fairlead.dev/launcher: hyperpodrun}}
spec:
  nprocPerNode: "1"
  ${4:-}
  runPolicy:
    cleanPodPolicy: All
    jobMaxRetryCount: 10
    logMonitoringConfiguration: [$2]
  replicaSpecs:
  - name: pod
    replicas: ${3:-2}
    template:
      spec:
        terminationGracePeriodSeconds: 2
        containers:
        - name: pytorch
          image: slurm:22.05
          imagePullPolicy: IfNotPresent
          command: $run
          ports: [{containerPort: 8080}]
          resources: {requests: {cpu: 10m}}
          volumeMounts: [{name: steps, mountPath: /job}, {name: tests, mountPath: /tests, readOnly: true}${agent:+, {name: agent, mountPath: "$agent", readOnly: true\}}]
        volumes: [{name: steps, configMap: {name: steps}}, {name: tests, hostPath: {path: "$top/tests"}}${agent:+, {name: agent, hostPath: {path: "$agent"\}\}}]
YAML
}
inside() { local pod=$1; shift; t exec "$pod" -c pytorch -- "$@"; }
count steps '{name: Steps, logPattern: "step \\d+", expectedStartCutOffInSeconds: 120, expectedRecurringFrequencyInSeconds: 8}'
until_true 120 'the agents are told' same True status_of steps 'conditions[?(@.type=="Running")].status'
until_true 30 'both train' says 'rank 1 of 2 attempt 0' t logs steps-pod-1
first=$(uid_of steps-pod-0) second=$(uid_of steps-pod-1)
inside steps-pod-1 touch /tmp/crash
until_true 60 'a crash is a restart' same 1 status_of steps restartCount
until_true 60 'and it is remedied' says 'The fault of reason WorkerCrash was remediated in' status_of steps 'conditions[?(@.type=="Running")].message'
remedy=$(status_of steps 'conditions[?(@.type=="Running")].message')
until_true 30 'of all processes' says 'attempt 1' t logs steps-pod-0
[ "$first $second" = "$(uid_of steps-pod-0) $(uid_of steps-pod-1)" ] || fail 'a pod was made anew for a process that crashed'
note "a process that crashes: all begin anew in their pods (${remedy##* in })"
inside steps-pod-0 touch /tmp/hang
until_true 90 'a log that says nothing is a fault' same 2 status_of steps restartCount
says LogHang_Steps status_of steps 'conditions[?(@.type=="Faulted")].reason' || fail 'the fault has not the rule'"'"'s name'
inside steps-pod-0 rm /tmp/hang
until_true 60 'it runs again' same True status_of steps 'conditions[?(@.type=="Running")].status'
note 'a log that says nothing is found by its rule'

node=$(t get pod steps-pod-1 -o 'jsonpath={.spec.nodeName}')
first=$(uid_of steps-pod-0)
k label node "$node" sagemaker.amazonaws.com/node-health-status=UnschedulablePendingReboot > /dev/null
until_true 60 'the node is left' same 3 status_of steps restartCount
until_true 90 'and the job runs elsewhere' says 'The fault of reason NodeFault was remediated in' status_of steps 'conditions[?(@.type=="Running")].message'
remedy=$(status_of steps 'conditions[?(@.type=="Running")].message')
[ "$node" != "$(t get pod steps-pod-1 -o 'jsonpath={.spec.nodeName}')" ] || fail 'it is on that node still'
[ "$first" = "$(uid_of steps-pod-0)" ] || fail 'the pod of a healthy node was made anew'
says "Found unhealthy node $node" t get events --field-selector reason=NodeFault -o 'jsonpath={.items[*].message}' || fail 'no event of the node'
k label node "$node" sagemaker.amazonaws.com/node-health-status- > /dev/null
note "a node that is to be rebooted is left; the other pod stays (${remedy##* in })"

workload=$(t get workloads -o 'jsonpath={.items[?(@.metadata.ownerReferences[0].name=="steps")].metadata.name}')
t patch workload "$workload" --type=merge -p '{"spec":{"active":false}}' > /dev/null
until_true 60 'a job whose quota is taken back has no pods' is_empty t get pods -o name
t patch workload "$workload" --type=merge -p '{"spec":{"active":true}}' > /dev/null
until_true 90 'and goes on' same True status_of steps 'conditions[?(@.type=="Running")].status'
for pod in steps-pod-0 steps-pod-1; do inside "$pod" touch /tmp/complete; done
until_true 60 'it completes' same True status_of steps 'conditions[?(@.type=="Completed")].status'
until_true 60 'cleanPodPolicy All' is_empty t get pods -o name
same 3 status_of steps restartCount || fail 'to be held counted as a restart'
note 'a job that is taken back goes on, and completes'

count grow '' 1 'elasticPolicy: {minReplicas: 1, maxReplicas: 2, scalingTimeoutInSeconds: 3, gracefulShutdownTimeoutInSeconds: 1}'
until_true 90 'it begins with one node' same True status_of grow 'conditions[?(@.type=="Running")].status'
until_true 90 'and grows' says 'rank 0 of 2 ' t logs grow-pod-0
alone=$(t logs grow-pod-0 | grep -c 'rank 0 of 1 ' || true)
workload=$(t get workloads -o 'jsonpath={.items[?(@.metadata.ownerReferences[0].name=="grow-pod-1")].metadata.name}')
[ -n "$workload" ] || fail 'what it grew by has no quota of its own'
t patch workload "$workload" --type=merge -p '{"spec":{"active":false}}' > /dev/null
times() { (($(t logs grow-pod-0 | grep -c "rank 0 of $1 ") >= $2)); } # NODES TIMES: it has begun so often with so many
until_true 60 'it goes on with one when that is taken back' times 1 $((alone + 1))
until_true 90 'and grows again' times 2 2
is_empty status_of grow restartCount || fail 'to grow and shrink counted as restarts'
for pod in grow-pod-0 grow-pod-1; do inside "$pod" touch /tmp/complete; done
until_true 60 'it completes' same True status_of grow 'conditions[?(@.type=="Completed")].status'
note 'an elastic job grows by a pod with a quota of its own, and goes on when that is taken back'

# ---- bad input
refusal=$(t create -f - 2>&1 << 'YAML'
apiVersion: sagemaker.amazonaws.com/v1
kind: HyperPodPyTorchJob
metadata: {name: bad}
spec: {replicaSpecs: [{name: Pod, replicas: 0, template: {}}], runPolicy: {cleanPodPolicy: Some}}
YAML
) && fail 'a job without sense is taken'
[[ $refusal == *replicas* && $refusal == *cleanPodPolicy* ]] || fail "what is wrong is not said: $refusal"
t create -f - > /dev/null << 'YAML'
apiVersion: sagemaker.amazonaws.com/v1
kind: HyperPodPyTorchJob
metadata: {name: empty, labels: {kueue.x-k8s.io/queue-name: queue}}
spec: {replicaSpecs: [{name: pod, replicas: 1, template: {spec: {}}}]}
YAML
until_true 30 'and one without containers is told so' says 'containers' bash -c "'$SCENARIO_KUBECTL' -n team-hyp get events --field-selector involvedObject.name=empty -o 'jsonpath={.items[*].message}'"
note 'what cannot be made is said, with the field'
