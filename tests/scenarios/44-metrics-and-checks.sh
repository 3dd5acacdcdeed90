#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Slurm's metrics are read from a namespace that is allowed to, and from no other; a check drains the worker whose GPU is gone, and only that one.
. "$(dirname "$0")/lib.sh"

space=monitoring
exporter() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"exporter\":$1}}}" > /dev/null; }
undrain() { login scontrol update nodename=worker-1 state=undrain; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || kd get activechecks -o 'jsonpath={range .items[*]}{.status}{"\n"}{end}' >&2 || true
  kd delete activecheck gpu --ignore-not-found > /dev/null || status=1
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
status_of_check() { kd get activecheck gpu -o 'jsonpath={.status.slurmJobsStatus.lastRunStatus}'; }
has_ended() { status_of_check | grep -xE 'Failed|Error'; }
# A job of which nobody knows how it ended is no result (Error): nothing follows from it, and another run is to be asked for.
for try in 1 2 3; do
  kd apply -f - > /dev/null << 'YAML'
apiVersion: slurm.nebius.ai/v1alpha1
kind: ActiveCheck
metadata: {name: gpu}
spec:
  name: gpu
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
YAML
  until_true 90 'the check has ended' has_ended
  [ "$(status_of_check)" = Error ] || break
  note "try $try: $(kd get activecheck gpu -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}')"
  kd delete activecheck gpu > /dev/null
done
says "$((workers - 1)) passed, 1 failed: worker-1 (job" kd get activecheck gpu -o 'jsonpath={.status.conditions[?(@.type=="Passed")].message}' || fail 'the check says something else'
until_true 20 'worker-1 is drained' says '[node_problem] fairlead: check gpu: 1 of its last 1 results failed' login sinfo -h -N -n worker-1 -o %E
same "$((workers - 1))" idle_workers || fail "another worker is not idle: $(login sinfo -N)"
kd delete activecheck gpu > /dev/null
kd exec worker-1 -c slurmd -- sh -c 'echo 1 > /run/fairlead/gpus'
undrain
until_true 30 'a person brings it back' same "$workers" idle_workers
note 'a check drained the worker whose GPU is gone, and only that one'
exporter '{"enabled":false}'
until_true 60 'the exporter goes' is_empty kd get pod exporter-0 --ignore-not-found -o name
note 'switched off, the exporter goes'
