#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm's metrics are read from a namespace that is allowed to, and from no other; a check drains the worker whose GPU is gone, and only that one, as a job of Slurm and as a Job of Kubernetes; one that reboots has the worker's machine rebooted and brings it back when it has passed.
. "$(dirname "$0")/lib.sh"

space=monitoring
exporter() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"exporter\":$1}}}" > /dev/null; }
undrain() { login scontrol update nodename=worker-1 state=undrain; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || kd get activechecks -o 'jsonpath={range .items[*]}{.status}{"\n"}{end}' >&2 || true
  kd delete activecheck gpu fabric twice cure --ignore-not-found > /dev/null || status=1
  kd delete configmap fabric-script --ignore-not-found > /dev/null || status=1
  kd exec worker-1 -c slurmd -- sh -c 'echo 1 > /run/fairlead/gpus' || status=1
  undrain 2> /dev/null || true
  exporter null || status=1
  k delete namespace "$space" --timeout=120s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

k create namespace "$space" > /dev/null
k -n "$space" apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: prometheus}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "slurm:22.05", command: [sleep, "100000"]}]
YAML
exporter '{"enabled":true,"k8sNodeFilterName":"login","collectionInterval":"2s","exporter":{"image":"slurm:22.05"},"munge":{"image":"slurm:22.05"},"volumes":{"jail":{"volumeSourceName":"jail"}}}'
until_true 90 'the exporter is ready' same True kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="ExporterAvailable")].status}'
k -n "$space" wait --for=condition=Ready pod/prometheus --timeout=120s > /dev/null || fail 'a pod of another namespace'
scrape() { k -n "$space" exec prometheus -- python3 -c 'import sys, urllib.request; print(urllib.request.urlopen("http://" + sys.argv[1] + ":8080/metrics", timeout=5).read().decode())' "$(kd get pod exporter-0 -o 'jsonpath={.status.podIP}')"; }
if scrape > "$SCENARIO_WORK/metrics" 2>&1; then fail 'a namespace without the label reads the metrics'; fi
k label namespace "$space" fairlead.dev/monitoring=allowed > /dev/null
until_true 30 'metrics of both workers' bash -c "$(declare -f scrape kd k); space=$space; m=\$(scrape) && grep -q '^slurm_node_info{.*\"worker-0\"' <<< \"\$m\" && grep -q '^slurm_node_info{.*\"worker-1\"' <<< \"\$m\""
note 'metrics are read from the namespace that is allowed to, and only then'

workers=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.worker.size}') # scenarios before may have left more than two
until_true 60 'the workers are idle' same "$workers" idle_workers
kd exec worker-1 -c slurmd -- sh -c 'echo 0 > /run/fairlead/gpus'
# A check of which nobody knows how it ended is no result (Error): nothing follows from it, and another run is to be asked for.
result_of() { kd get activecheck "$1" -o 'jsonpath={.status.slurmJobsStatus.lastRunStatus}{.status.k8sJobsStatus.lastJobStatus}' | grep -xE 'Failed|Error'; }
fails() { # SECONDS CHECK COMMAND...: the check that the command makes fails
  local limit=$1 check=$2 try
  shift 2
  for try in 1 2 3; do
    "$@"
    until_true "$limit" "check $check has ended" result_of "$check"
    [ "$(result_of "$check")" = Error ] || return 0
    note "try $try: $(kd get activecheck "$check" -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}')"
    kd delete activecheck "$check" > /dev/null
  done
  fail "check $check has no result"
}
of_gpus() { # NAME [EXTENSIONS]
  kd apply -f - > /dev/null << YAML
apiVersion: slurm.nebius.ai/v1alpha1
kind: ActiveCheck
metadata: {name: $1}
spec:
  name: $1
  slurmClusterRefName: demo
  checkType: slurmJob
  suspend: true
  slurmJobSpec:
    eachWorkerJobs: true
    sbatchScript: |
      #!/bin/bash
      #SBATCH --gres=gpu:1
      timeout 30 nvidia-smi -L | grep -q '^GPU 0'
  failureReactions: {drainSlurmNode: {drainReasonPrefix: "[node_problem]"}}
  ${2:-}
YAML
}
fails 90 gpu of_gpus gpu
says "$((workers - 1)) passed, 1 failed: worker-1 (job" kd get activecheck gpu -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}' || fail 'the check says something else'
same 'NAME TYPE INIT SUSPEND SCHEDULE K8S STATUS SLURM STATUS SLURM SUBMIT TIME SLURM ID AGE' columns activechecks || fail "columns of ActiveChecks: $(columns activechecks)"
same False kd get activecheck gpu -o 'jsonpath={.status.conditions[?(@.type=="FieldsIgnored")].status}' || fail 'a field of the check has no effect'
until_true 20 'worker-1 is drained' says '[node_problem] fairlead: check gpu: 1 of its last 1 results failed' login sinfo -h -N -n worker-1 -o %E
same "$((workers - 1))" idle_workers || fail "another worker is not idle: $(login sinfo -N)"
kd delete activecheck gpu > /dev/null
kd exec worker-1 -c slurmd -- sh -c 'echo 1 > /run/fairlead/gpus'
undrain
until_true 30 'a person brings it back' same "$workers" idle_workers
note 'a check drained the worker whose GPU is gone, and only that one'

# The same by a Kubernetes Job on each worker's machine: what its container says of its worker drains that one.
fabric() {
  kd apply -f - > /dev/null << YAML
apiVersion: slurm.nebius.ai/v1alpha1
kind: ActiveCheck
metadata: {name: fabric}
spec:
  name: fabric
  slurmClusterRefName: demo
  checkType: k8sJob
  suspend: true
  activeDeadlineSeconds: 120
  k8sJobSpec: {scriptRefName: fabric-script, jobContainer: {image: "slurm:22.05"}}
  failureReactions: {drainSlurmNode: {drainReasonPrefix: "[hardware_problem]"}}
  extensions: {eachWorker: true}
YAML
}
kd create configmap fabric-script --from-literal=run="$(printf '#!/bin/sh\n[ "$FAIRLEAD_CHECK_WORKER" != worker-1 ] || exit 3\n')" > /dev/null
fails 150 fabric fabric
says "$((workers - 1)) passed, 1 failed: worker-1 (job fabric-" kd get activecheck fabric -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}' || fail 'the check in pods says something else'
until_true 20 'worker-1 is drained again' says '[hardware_problem] fairlead: check fabric: 1 of its last 1 results failed' login sinfo -h -N -n worker-1 -o %E
same "$((workers - 1))" idle_workers || fail "another worker is not idle: $(login sinfo -N)"
same "$workers" bash -c "$(declare -f kd k); kd get jobs -o name | grep -c /fabric-" || fail "not one Job for each worker: $(kd get jobs)"
kd delete activecheck fabric > /dev/null
until_true 60 'its Jobs go with it' is_empty kd get jobs -o name
kd delete configmap fabric-script > /dev/null
undrain
until_true 30 'a person brings it back again' same "$workers" idle_workers
note 'a check in pods drained the worker that its pod said no of, and only that one'

# With --full: one bad result of three is told and nothing follows; the second drains. The runs are a minute apart, as crontab's are.
if [ -n "${FAIRLEAD_FULL:-}" ]; then
  results() { kd get activecheck twice -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}'; }
  kd exec worker-1 -c slurmd -- sh -c 'echo 0 > /run/fairlead/gpus'
  of_gpus twice 'extensions: {failures: 2, of: 3}'
  kd patch activecheck twice --type=merge -p '{"spec":{"suspend":false,"schedule":"* * * * *"}}' > /dev/null
  until_true 150 'the first bad result' says 'failed: worker-1 (job' results
  first=$(results)
  pause 5
  same "$workers" idle_workers || fail "one bad result of three has drained: $(login sinfo -N)"
  until_true 150 'the second drains' says 'fairlead: check twice: 2 of its last ' login sinfo -h -N -n worker-1 -o %E
  [ "$(results)" != "$first" ] || fail "drained by one result: $first"
  kd delete activecheck twice > /dev/null
  kd exec worker-1 -c slurmd -- sh -c 'echo 1 > /run/fairlead/gpus'
  undrain
  until_true 30 'a person brings it back once more' same "$workers" idle_workers
  note 'one bad result of three is told, and the second drains'
fi

# What goes with a reboot: drained, the machine is stopped and started (another first process, another boot id), the check passes, and only then the worker takes jobs again.
k -n "$space" delete pod prometheus > /dev/null # it may be on that machine, which then is not rebooted
machine=$(kd get pod worker-1 -o 'jsonpath={.spec.nodeName}')
boot_id() { k get node "$machine" -o 'jsonpath={.status.nodeInfo.bootID}'; }
first_process() { k get machine "$machine" -o 'jsonpath={.status.startTicks}'; }
reboots() { k get machine "$machine" -o 'jsonpath={range .status.reboots[*]}{.id}{"\n"}{end}' | grep -c .; }
cure() { kd get activecheck cure -o "jsonpath={.status.conditions[?(@.type==\"Rebooting\")].$1}"; }
boot=$(boot_id) process=$(first_process)
other=$(k get machine "$(kd get pod worker-0 -o 'jsonpath={.spec.nodeName}')" -o 'jsonpath={.status.startTicks}')
kd exec worker-1 -c slurmd -- sh -c 'echo 0 > /run/fairlead/gpus'
fails 90 cure of_gpus cure 'extensions: {maxDrained: 1, reboot: {drainSeconds: 600, backSeconds: 300}}'
until_true 30 'its machine is to be rebooted' says True cure status
until_true 240 'the worker serves again' says "worker-1 serves again: machine $machine was rebooted, and the check has passed" cure message
[ "$(boot_id)" != "$boot" ] && [ "$(first_process)" != "$process" ] || fail 'the machine was not rebooted'
same 1 reboots || fail "not one reboot: $(reboots)"
same "$other" k get machine "$(kd get pod worker-0 -o 'jsonpath={.spec.nodeName}')" -o 'jsonpath={.status.startTicks}' || fail 'another machine was rebooted'
is_empty login sh -c 'scontrol -o show reservations | grep fairlead-check || true' || fail 'a reservation is left'
until_true 30 'the worker is idle' same "$workers" idle_workers
same worker-1 login srun -Q -w worker-1 --gres=gpu:1 --immediate=60 printenv SLURMD_NODENAME || fail 'no job runs on the worker'
kd delete activecheck cure > /dev/null
note 'a machine was rebooted once for a check, and its worker served again after the check had passed'
exporter '{"enabled":false}'
until_true 60 'the exporter goes' is_empty kd get pod exporter-0 --ignore-not-found -o name
note 'switched off, the exporter goes'
