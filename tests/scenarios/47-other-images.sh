#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Another image for heads, workers and login nodes in one edit, while a job runs: of the same version of Slurm it counts at once, of none it changes nothing.
. "$(dirname "$0")/lib.sh"

job=
images() { # SLURMCTLD SLURMD SSHD
  kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"controller\":{\"slurmctld\":{\"image\":\"$1\"}},\"worker\":{\"slurmd\":{\"image\":\"$2\"}},\"login\":{\"sshd\":{\"image\":\"$3\"}}}}}" > /dev/null
}
upgraded() { kd get slurmcluster demo -o 'jsonpath={range .status.conditions[?(@.type=="Upgraded")]}{.status} {.reason}: {.message}{end}'; }
image_of() { kd get pod "$1" -o "jsonpath={.spec.containers[?(@.name==\"$2\")].image}"; }
uid_of() { kd get pod "$1" -o 'jsonpath={.metadata.uid}'; }
head_is_ready() { same "$1 true" kd get pod controller-0 -o 'jsonpath={.spec.containers[?(@.name=="slurmctld")].image} {.status.containerStatuses[?(@.name=="slurmctld")].ready}'; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { upgraded; kd get pods; kd get slurmcluster demo -o 'jsonpath={.status.upgrade}'; } >&2 || true
  images slurm:22.05 slurm:22.05 slurm:22.05 || status=1
  [ -z "$job" ] || login scancel "$job" || true
  exit "$status"
}
trap clean_up EXIT

job=$(login sbatch --parsable -N1 --wrap 'sleep 1000')
until_true 60 'the job runs' same RUNNING job_state "$job"
worker=$(login squeue -h -j "$job" -o %N)
before=$(uid_of "$worker") head=$(uid_of controller-0)

images busybox:1 busybox:1 busybox:1
until_true 90 'an image without Slurm is told' says 'Unknown VersionUnknown: the image busybox:1 does not tell its version of Slurm: there is no Slurm in it' upgraded
same "$head" uid_of controller-0 || fail 'the head was renewed with an image without Slurm'
says slurm:22.05 image_of controller-0 slurmctld || fail 'the image of the head'
note 'an image without Slurm changes nothing that runs'

images slurm:22.05-again slurm:22.05-again slurm:22.05-again
until_true 120 'the head has the other image of the same version' head_is_ready slurm:22.05-again
until_true 30 'the condition tells the version' says 'True Done: every pod runs the version of Slurm that the resource names: slurmctld 22.05' upgraded
until_true 60 'Slurm answers' login scontrol ping
same "$before" uid_of "$worker" || fail "the pod of $worker, which has a job, was renewed"
same RUNNING job_state "$job" || fail 'the job has ended'
until_true 30 'workers that are not renewed are named' says 'run an older template' kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="WorkersAvailable")].message}'
until_true 30 'the pods that were asked for a version are gone' is_empty kd get pods -l fairlead.dev/slurm-role=version -o name
note 'another image of the same version counts for the head at once, and for workers that have jobs later'

images slurm:22.05 slurm:22.05 slurm:22.05
until_true 120 'the head has its image again' head_is_ready slurm:22.05
until_true 60 'Slurm answers' login scontrol ping
same RUNNING job_state "$job" || fail 'the job has ended'
note 'and back'
