#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm.conf by the resource: what is wrong is said with line and key and reaches no node; what is good is in force, by a reload or, where its key needs one, a restart.
. "$(dirname "$0")/lib.sh"

condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
custom() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"customSlurmConfig\":\"$1\"}}" > /dev/null; }
shown() { grep -E "^$1 += $2" <<< "$(login scontrol show config)"; }
in_force() { same "$(kd get slurmcluster demo -o 'jsonpath={.metadata.generation}')" kd get slurmcluster demo -o 'jsonpath={.status.observedGeneration}' && same True condition ConfigApplied status; }

until_true 120 'the configuration is in force' in_force
mounted=$(kd get configmap demo-slurm-configs -o 'jsonpath={.data.generation}')
custom '# ours\nMinJobAeg=300'
until_true 30 'a typo is told with its line' says 'line 2, MinJobAeg: ' condition ConfigValid message
says 'did you mean MinJobAge?' condition ConfigValid message || fail 'no remedy is told'
custom 'PreemptMode=SUSPEND'
until_true 60 'what only the daemon refuses is told with its line' says 'line 1, PreemptMode: slurmctld refuses' condition ConfigValid message
same "$mounted" kd get configmap demo-slurm-configs -o 'jsonpath={.data.generation}' || fail 'a bad configuration was given to the nodes'
same main login sinfo -h -o %R || fail 'sinfo'
note 'a typo, and a value that only the daemon refuses: told with line and key, and the cluster goes on'
kd patch slurmcluster demo --type=merge -p '{"spec":{"customSlurmConfig":null,"partitionConfiguration":{"configType":"custom","rawConfig":["PartitionName=odd Nodes=ghost-7 Default=YES"]}}}' > /dev/null
until_true 30 'a partition over a node that is not there is told' says 'there is no node set ghost-7 for partition odd' condition ConfigValid message
same Refused condition ConfigValid reason || fail "the reason is $(condition ConfigValid reason)"
same "$mounted" kd get configmap demo-slurm-configs -o 'jsonpath={.data.generation}' || fail 'a bad partition was given to the nodes'
same main login sinfo -h -o %R || fail 'sinfo'
says worker- login srun hostname || fail 'no job runs'
kd patch slurmcluster demo --type=merge -p '{"spec":{"partitionConfiguration":null}}' > /dev/null
until_true 60 'the configuration is good again' same True condition ConfigValid status
note 'a partition over a node that is not there: told, and the cluster goes on'

custom 'KillWait=47'
until_true 150 'a good one is in force' in_force
shown KillWait '47 sec' || fail "KillWait: $(login scontrol show config | grep KillWait)"
says 'KillWait=47' kd exec worker-0 -c slurmd -- cat /etc/slurm/slurm.conf || fail 'the worker has another one'
note 'a good one is in force on every node'

began=$(login scontrol show config | grep BOOT_TIME)
job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 60 'a job runs' same RUNNING job_state "$job"
custom 'KillWait=47\nMaxNodeCount=600'
until_true 150 'one that needs a restart is in force' in_force
shown MaxNodeCount 600 || fail 'MaxNodeCount'
[[ $(login scontrol show config | grep BOOT_TIME) != "$began" ]] || fail 'slurmctld was not started anew'
same RUNNING job_state "$job" || fail 'the job does not run any more'
login scancel "$job"
note 'one that needs a restart is in force, and the job runs on'

# What the operator does for a worker that slurmctld told in vain: slurmd takes files that are put into its folder, and no job ends.
job=$(login sbatch --parsable -w worker-1 -o /dev/null --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 60 'a job runs' same RUNNING job_state "$job"
hash=$(kd get configmap demo-slurm-configs -o 'jsonpath={.data.generation}')
files() { # HASH LINE: as the companion reads them, of that generation and with that line more
  kd get configmap demo-slurm-configs -o json | python3 -c '
import json, sys
for name, text in json.load(sys.stdin)["data"].items():
    if not name.endswith(".conf"): continue
    if name == "slurm.conf": text = "# Generation " + sys.argv[1] + "\n" + text.split("\n", 1)[1] + sys.argv[2] + "\n"
    sys.stdout.buffer.write(b"%s %d\n%s" % (name.encode(), len(text.encode()), text.encode()))
' "$1" "$2"
}
give() { kd exec -i worker-1 -c slurmd -- /opt/fairlead/bin/fairlead-slurm take-config "$1" > "$SCENARIO_WORK/given" 2>&1; }
debug_is() { slurmd scontrol show slurmd > "$SCENARIO_WORK/slurmd" && grep -E "^Slurmd Debug += $1\$" "$SCENARIO_WORK/slurmd"; }
slurmd() { kd exec worker-1 -c slurmd -- "$@"; }
# Of the files that slurmd itself reads; those in /etc/slurm, which the commands read and `generation` is about, follow within a second.
own_is() { same "# Generation $1" slurmd head -n 1 /run/slurm/conf/slurm.conf; }
process=$(slurmd cat /run/slurm/slurmd.pid)
if files "$hash" '' | give 0123456789abcdef; then fail 'files of another generation are taken'; fi
own_is "$hash" || fail 'files of another generation were written'
files 0123456789abcdef SlurmdDebug=debug3 | give 0123456789abcdef || fail "files are not taken: $(cat "$SCENARIO_WORK/given")"
until_true 30 'slurmd has read them' debug_is 7
files "$hash" '' | give "$hash" || fail "the files are not taken: $(cat "$SCENARIO_WORK/given")"
until_true 30 'slurmd has read its own again' debug_is 3
own_is "$hash" || fail 'slurmd has other files'
until_true 30 'the commands there have the same' same "$hash" slurmd /opt/fairlead/bin/fairlead-slurm generation
same "$process" slurmd cat /run/slurm/slurmd.pid || fail 'slurmd was started anew'
same RUNNING job_state "$job" || fail 'the job does not run any more'
login scancel "$job"
note 'a worker takes a configuration that slurmctld told it in vain, and its job runs on'

# What a trial cannot see, for it has no nodes in its state: fewer nodes allowed than there are. slurmctld 22.05 ends at its start. Minutes of waiting, so with --full alone.
[ -n "${FAIRLEAD_FULL:-}" ] || exit 0
job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 60 'a job runs' same RUNNING job_state "$job"
custom 'KillWait=47\nMaxNodeCount=1'
until_true 300 'one that the heads do not stand is taken back' same RolledBack condition ConfigApplied reason
until_true 300 'the one before is in force again' says 'is in force again' condition ConfigApplied message
until_true 60 'slurmctld answers' shown MaxNodeCount 600
same RUNNING job_state "$job" || fail 'the job does not run any more'
login scancel "$job"
custom 'KillWait=47\nMaxNodeCount=600'
until_true 150 'the resource is in force' in_force
note 'one that passes the trial and that the heads do not stand is taken back by itself, and the job runs on'
