#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The number of workers follows the queue: none, two for a job of two, none again; no worker for part of a job.
. "$(dirname "$0")/lib.sh"

follow() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"extensions\":{\"autoscale\":$1}}}" > /dev/null; }
condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
workers() { kd get pods -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}' | grep -E '^worker-[0-9]+$' || true; }
size=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.worker.size}')
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { kd get slurmcluster demo -o 'jsonpath={.status.autoscale}{"\n"}{range .status.conditions[*]}{.type}={.status} {.message}{"\n"}{end}'; login squeue -a; login sinfo -N -o '%N %t %E'; } >&2 || true
  login scancel -u root 2> /dev/null || true
  follow null || status=1
  exit "$status"
}
trap clean_up EXIT

follow '{"sets":[{"name":"worker","min":0,"max":2,"idleAfter":"5s"}]}'
until_true 180 'no worker is left' is_empty workers
until_true 30 'and the number says so' same 0 kd get slurmcluster demo -o 'jsonpath={.status.autoscale.sets[0].size}'
note 'idle workers go, to the last one'

large=$(login sbatch --parsable -N 3 -o /dev/null --wrap true | tr -d '[:space:]')
held=$(login sbatch --parsable -H -N 1 -o /dev/null --wrap true | tr -d '[:space:]')
until_true 90 'the job that is too large is named' says "job $large of root (3 nodes" condition Autoscaling message
same JobsTooLarge condition Autoscaling reason || fail "$(condition Autoscaling reason)"
same PENDING job_state "$large" || fail 'the job that is too large does not wait'
is_empty workers || fail 'workers came for a job that is too large, or is held'
login scancel "$large" "$held"
note 'a job that is too large waits and is named; it brings no worker, and neither does one that is held'

job=$(login sbatch --parsable -N 2 -o /mnt/jail/home/elastic.out --wrap 'srun hostname' | tr -d '[:space:]')
until_true 60 'both workers are asked for at once' same 2 kd get slurmcluster demo -o 'jsonpath={.status.autoscale.sets[0].size}'
until_true 240 'the job has run' same COMPLETED job_state "$job"
note 'a job of two nodes brings two workers and runs'
until_true 180 'they go when they are idle' is_empty workers
note 'they go when they are idle'

follow null
until_true 180 'the workers of the resource are back' same "$size" idle_workers
note "without it the resource's own number is in force again"
