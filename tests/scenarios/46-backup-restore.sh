#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A set of the whole cluster, then more jobs and fewer, then the set again: the queue is that of the set, and no job id is given a second time.
. "$(dirname "$0")/lib.sh"

condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
slurm() { f slurm "$@" --cluster demo -n demo; }
submit() { until_true 60 'a submission' bash -c "$(declare -f login kd k); login timeout 8 sbatch -H --parsable -o /dev/null --wrap true > '$SCENARIO_WORK/id'"; tr -d '[:space:]' < "$SCENARIO_WORK/id"; }
in_queue() { same "$1" login squeue -h -t all -j "$1" -o %i; }

kd patch slurmcluster demo --type=merge -p '{"spec":{"extensions":{"backup":{"schedule":"0 */6 * * *","keep":3,"volumeClaimTemplateSpec":{"accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"20Gi"}}}}}}}' > /dev/null
until_true 180 'the first set' same True condition BackupFresh status
until_true 60 'the condition tells it' says 'was read back' condition BackupFresh message
until_true 30 'every given field has its effect, the schedule too' same False condition FieldsIgnored status
note "sets are made: $(condition BackupFresh message)"

kept=$(submit)
set_name=$(slurm backup now | sed -nE 's/^set ([^ ]+) of Slurm cluster demo is made and was read back$/\1/p')
[ -n "$set_name" ] || fail 'no set was made'
same "set $set_name is whole" slurm backup check "$set_name" || fail 'it is not whole'
says "$set_name" slurm backup list || fail 'it is not in the list'
later=$(submit)
login scancel "$kept"
note "set $set_name has job $kept; $later was submitted since"

slurm restore "$set_name" --parts state --yes > "$SCENARIO_WORK/restore" 2>&1 || fail "the restore: $(cat "$SCENARIO_WORK/restore")"
until_true 120 'slurmctld answers' says 'is UP' login scontrol ping
until_true 60 "job $kept is in the queue again" in_queue "$kept"
if in_queue "$later" > /dev/null; then fail "job $later was submitted after the set and is there"; fi
fresh=$(submit)
((fresh > later)) || fail "id $fresh is given a second time; $later was given before"
until_true 120 'the workers are there' bash -c "$(declare -f login kd k); [ \"\$(login sinfo -h -N -o %t | grep -c -E 'idle|mix|alloc')\" -ge 1 ]"
login scancel "$kept" "$fresh"
note "restored: job $kept waits again, ids go on at $fresh above $later"

kd patch slurmcluster demo --type=merge -p '{"spec":{"extensions":{"backup":null}}}' > /dev/null
until_true 60 'the pod of the sets goes' is_empty kd get pod demo-backup-0 --ignore-not-found -o name
kd get pvc demo-backup > /dev/null || fail 'the claim of the sets went with the wish for them'
note 'switched off: the sets stay'
