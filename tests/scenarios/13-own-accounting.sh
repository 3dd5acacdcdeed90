#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster with a database of its own and two slurmdbd: the second serves while the first has no node to run on. Sets of state, database and shared root are made on time and by hand, and one is put back whole.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_PROVIDE:?}"
# Four minutes on each engine, nearly all of them waiting for Slurm's own time-outs: with --full alone.
[ -n "${FAIRLEAD_FULL:-}" ] || { note 'left out: ./test.sh --full runs it'; exit 0; }

field() { k -n own get slurmcluster own -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
on() { k -n own exec login-0 -c sshd -- "$@"; }
state() { on scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
record() { on sacct -n -P -X -j "$1" -o jobid,cluster,state; }
accounts() { on sacctmgr -n -P list account format=account; }
submit() { on timeout 8 sbatch --parsable -o /dev/null -D /tmp "$@" > "$SCENARIO_WORK/id"; }
submitted() { until_true 60 'a submission' submit "$@"; job=$(tr -d '[:space:]' < "$SCENARIO_WORK/id"); }
clean_up() {
  local status=$? pod
  trap - EXIT
  [ $status = 0 ] || {
    k -n own get slurmcluster own -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'
    k -n own get pods,pvc -o wide
    for pod in accounting-0 accounting-1 controller-0 own-backup-0 own-acct-db-0; do k -n own logs "$pod" --all-containers --prefix --tail=12; done
  } >&2 || true
  [ -z "${cordoned:-}" ] || k uncordon "$cordoned" > /dev/null || status=1
  k -n own delete slurmcluster own --ignore-not-found --timeout=120s > /dev/null || status=1
  k delete namespace own --ignore-not-found --timeout=120s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

k create namespace own > /dev/null
shared_claim own state 1Gi
shared_claim own jail 40Gi
for claim in 'own-backup 20Gi' 'data-own-acct-db-0 1Gi' 'backup-own-acct-db-0 1Gi'; do $SCENARIO_PROVIDE own $claim; done # the operator makes these claims
jail='persistentVolumeClaim: {claimName: jail}' state='persistentVolumeClaim: {claimName: state}' login=cpu extensions='{bindCores: false, accounting: {replicas: 2}}' \
  accounting='{enabled: true, k8sNodeFilterName: login, slurmdbd: {image: "slurm:22.05", resources: {cpu: 50m, memory: 128Mi}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, mariadbOperator: {enabled: true, image: "mariadb:10.11", resources: {cpu: 50m, memory: 384Mi}, storage: {size: 1Gi}}}' small_cluster own
until_true 240 'the cluster' same Available k -n own get slurmcluster own -o 'jsonpath={.status.phase}'
until_true 180 'accounting' same Ready field AccountingAvailable reason
says "2 of 2 slurmdbd, the cluster's own database by TLS" field AccountingAvailable message || fail "AccountingAvailable: $(field AccountingAvailable message)"
submitted --wrap 'sleep 1'
first=$job
until_true 120 'a job' same COMPLETED state "$first"
until_true 60 'its record' same "$first|own|COMPLETED" record "$first"
note 'two slurmdbd and a database run, and have the record of a job'

# ---- the first slurmdbd is away: its node takes no pods, and its pod is deleted
cordoned=$(k -n own get pod accounting-0 -o 'jsonpath={.spec.nodeName}')
k cordon "$cordoned" > /dev/null
k -n own delete pod accounting-0 --timeout=120s > /dev/null || fail 'the pod of the first slurmdbd does not go'
until_true 60 'the condition tells it' says '1 of 2 slurmdbd: accounting-0' field AccountingAvailable message
same True field AccountingAvailable status && same Degraded field AccountingAvailable reason || fail 'it is not told as degraded'
# The address of the first is there without it, and refuses. Slurm would ask ten times, a second apart, for a name that is unknown, and say so.
until_true 60 'sacct asks the second' same "$first|own|COMPLETED" record "$first"
said=$(on sacctmgr -n -P list cluster format=cluster 2>&1) || fail "sacctmgr: $said"
[ "$said" = own ] || fail "sacctmgr does not find the second as it should: $said"
until_true 60 'an account is made by the second' on sacctmgr -i add account by-the-second
submitted --wrap 'sleep 1'
second=$job
until_true 120 'a job meanwhile' same COMPLETED state "$second"
until_true 60 'the second takes its record' same "$second|own|COMPLETED" record "$second"
is_empty k -n own get pod accounting-0 -o 'jsonpath={.spec.nodeName}' || fail 'the first slurmdbd has a node'
note 'while the first slurmdbd is away the second answers sacct and sacctmgr, and takes records'
k uncordon "$cordoned" > /dev/null
cordoned=''
until_true 120 'both are there again' same Ready field AccountingAvailable reason
says by-the-second accounts || fail 'the account is gone'
for id in "$first" "$second"; do until_true 30 "the record of job $id" same "$id|own|COMPLETED" record "$id"; done
submitted --wrap 'sleep 1'
third=$job
until_true 120 'a job' same COMPLETED state "$third"
until_true 60 'its record' same "$third|own|COMPLETED" record "$third"
note 'the first is back, and nothing was lost'

# ---- sets of everything: the first at once, another when its time has come
slurm() { f slurm "$@" --cluster own -n own; }
if slurm backup list > "$SCENARIO_WORK/list" 2>&1; then fail 'sets of a cluster that makes none'; fi
grep -q 'add spec.extensions.backup' "$SCENARIO_WORK/list" || fail "without the wish for sets: $(cat "$SCENARIO_WORK/list")"
on sh -c 'mkdir -p /home/ada && echo draft > /home/ada/paper'
k -n own patch slurmcluster own --type=merge -p '{"spec":{"extensions":{"backup":{"interval":"20s","keep":20,"volumeClaimTemplateSpec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"20Gi"}}}}}}}' > /dev/null
sets() { slurm backup list -o json | python3 -c 'import json, sys
for one in json.load(sys.stdin)["sets"]: print(one["name"], ",".join(one["parts"]))'; }
at_least() { local out; out=$(sets) && [ "$(wc -l <<< "$out")" -ge "$1" ] && [ -n "$out" ]; }
until_true 180 'the first set' at_least 1
until_true 120 'another, at its time' at_least 2
sets > "$SCENARIO_WORK/sets"
if grep -v ' state,database,jail$' "$SCENARIO_WORK/sets" >&2; then fail 'a set lacks a part'; fi
until_true 60 'the condition tells it' same True field BackupFresh status
note "sets are made on time: $(field BackupFresh message)"

submitted -H --wrap true
kept=$job
slurm backup now -o json > "$SCENARIO_WORK/now" || fail 'slurm backup now'
set_name=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["set"])' < "$SCENARIO_WORK/now")
says "set $set_name is whole" slurm backup check "$set_name" || fail 'it is not whole'
says "$set_name" slurm backup list || fail 'it is not in the list'
# Since then: another job that waits, one whose record is written, an account, a file that is changed.
submitted -H --wrap true
later=$job
on scancel "$kept"
submitted --wrap 'sleep 1'
ended=$job
until_true 120 'a job after the set' same COMPLETED state "$ended"
until_true 60 'its record' same "$ended|own|COMPLETED" record "$ended"
on sacctmgr -i add account after-the-set > /dev/null || fail 'an account after the set'
on sh -c 'echo final > /home/ada/paper'
says 'nothing is changed' slurm restore "$set_name" --dry-run || fail "the trial: $(slurm restore "$set_name" --dry-run 2>&1)"
if slurm restore "$set_name" > "$SCENARIO_WORK/restore" 2>&1; then fail 'restored without --yes'; fi
grep -q 'Say --yes to do it' "$SCENARIO_WORK/restore" || fail "without --yes: $(cat "$SCENARIO_WORK/restore")"
says after-the-set accounts || fail 'a trial changed something'
slurm restore "$set_name" --yes > "$SCENARIO_WORK/restore" 2>&1 || fail "the restore: $(cat "$SCENARIO_WORK/restore")"
until_true 60 'slurmctld answers' says 'is UP' on scontrol ping
in_queue() { same "$1" on squeue -h -t all -j "$1" -o %i; }
until_true 60 "job $kept waits again" in_queue "$kept"
if in_queue "$later" > /dev/null; then fail "job $later was submitted after the set and is there"; fi
until_true 120 'both slurmdbd are there' same Ready field AccountingAvailable reason
until_true 60 'the records of the set' same "$first|own|COMPLETED" record "$first"
is_empty record "$ended" || fail "the record of job $ended, which is newer than the set, is there"
says by-the-second accounts || fail 'an account of the set is gone'
if says after-the-set accounts > /dev/null; then fail 'an account that is newer than the set is there'; fi
submitted --wrap 'sleep 1'
((job > ended)) || fail "id $job is given a second time; $ended was given before"
until_true 120 'a new job' same COMPLETED state "$job"
until_true 60 'its record' same "$job|own|COMPLETED" record "$job"
note "a set was restored: queue and database are its, ids go on at $job above $ended"
same final on cat /home/ada/paper || fail 'a file of the shared root was overwritten'
slurm restore "$set_name" --parts jail --yes > "$SCENARIO_WORK/restore" 2>&1 || fail "the files: $(cat "$SCENARIO_WORK/restore")"
same draft k -n own exec worker-0 -c slurmd -- cat "/mnt/jail/restored/$set_name/home/ada/paper" || fail 'the file of the set is not beside'
same final on cat /home/ada/paper || fail 'a file of the shared root was overwritten by its part'
note 'files of the shared root come beside what is there'
