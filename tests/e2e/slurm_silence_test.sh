#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A worker that nobody reaches any more, and whose pod is deleted by force: its job runs on there, and nowhere else, until its machine is off.
# usage: slurm_silence_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own; a minute and a half, most of it the 40 s for which a node may be silent; with FAIRLEAD_FULL=1 the job is watched longer)
set -euo pipefail
build=${1:?usage: slurm_silence_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"

site=$work/demo.yaml
{ cat "$top/examples/demo.yaml"; printf -- '---\n'; sed -n '/^kind: Machine/,/^---/p' "$top/examples/demo.yaml" | awk '/name: worker-1/ { on = 1; print "apiVersion: fairlead.dev/v1alpha1\nkind: Machine" } on && /^---/ { exit } on' | sed 's/worker-1/worker-2/'; } > "$site"
run up -f "$site" --port 16443 --node-range 10.87.0.0/16 --pod-range 10.88.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
machine_of() { run get pods -n demo worker-1 -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"].get("nodeName", ""))'; }
uid_of() { run get pods -n demo worker-1 -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["metadata"]["uid"])'; }
job_says() { login scontrol -o show job "$job" | grep "JobState=$1 .* Restarts=$2 " > /dev/null; }
first=$(machine_of)
login mkdir -p /home/lab
# shellcheck disable=SC2016
job=$(login sbatch --parsable -o /dev/null -w worker-1 --wrap 'while :; do echo "${SLURM_RESTART_COUNT:-0} $(date +%s.%N)" >> /home/lab/beats; sleep 0.2; done' | tr -d '[:space:]')
until_true 60 'the job writes' login grep -q '^0 ' /home/lab/beats
note "job $job writes on worker-1, whose machine is $first"

run node cut "$first" > "$work/cut.log" 2>&1 || { cat "$work/cut.log" >&2; fail 'node cut'; }
before=$(uid_of)
run delete pod -n demo worker-1 --grace-period 0 > "$work/delete.log" 2>&1 || { cat "$work/delete.log" >&2; fail 'delete by force'; }
another() { [ "$(uid_of)" != "$before" ]; }
until_true 60 'another pod of that name' another
waits() { run logs -n demo worker-1 -c slurmd | grep 'another pod had this node'; }
until_true 150 'it waits' waits
[ "$(machine_of)" != "$first" ] || fail 'it is on the machine that is cut off'
until_true 60 'the condition says for what' bash -c "'$fairlead' get slurmclusters -n demo demo -o yaml | grep 'nobody could reach its machine $first'"
count() { login sh -c 'wc -l < /home/lab/beats'; }
at=$(count)
for ((i = 0; i < ${FAIRLEAD_FULL:+6}5; ++i)); do
  read -rt 1 <> <(:) || true
  job_says RUNNING 0 || fail "the job of a worker that may live: $(login scontrol -o show job "$job")"
done
[ "$(count)" -gt "$at" ] || fail 'the job does not write any more: nothing was tried here'
! login grep -q '^1 ' /home/lab/beats || fail 'the job runs twice'
note 'the worker made in its place waits; the job runs on where nobody reaches it'

switched_off=$EPOCHREALTIME
run node kill "$first" > "$work/kill.log" 2>&1 || { cat "$work/kill.log" >&2; fail 'node kill'; }
until_true 120 'the job runs again' job_says RUNNING 1
note "its machine was switched off: the job runs again after $(since "$switched_off") s"
until_true 30 'it writes again' login grep -q '^1 ' /home/lab/beats
login cat /home/lab/beats > "$work/beats"
python3 - "$work/beats" << 'PY' || fail "the job ran twice: $(grep -n -B3 -A3 '^1 ' "$work/beats" | head -20)"
import sys
beats = [line.split() for line in open(sys.argv[1])]
last = max(float(at) for run, at in beats if run == '0')
first = min(float(at) for run, at in beats if run == '1')
sys.exit(0 if last < first else 1)
PY
note 'at no time two of them wrote'
run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
echo "$passed passed"
