#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three heads in place of one, under a running job: then the pod of whichever serves is deleted, and its slurmctld killed, and nothing that was confirmed is lost.
. "$(dirname "$0")/lib.sh"

condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
active() { kd get endpointslice demo-controller-active -o 'jsonpath={.endpoints[0].targetRef.name}'; }
term() { kd get endpointslice demo-controller-active -o 'jsonpath={.metadata.annotations.fairlead\.dev/term}'; }
later_term() { local now; now=$(term) && ((now > $1)); }
submits() { login timeout 8 sbatch -H --parsable -o /dev/null -J "$1" --wrap true; }
confirmed=()
submit() { local id; until_true 60 "a submission ($1)" bash -c "$(declare -f submits login kd k); submits $1 > '$SCENARIO_WORK/id'"; id=$(tr -d '[:space:]' < "$SCENARIO_WORK/id"); confirmed+=("$id $1"); }

job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 10000' | tr -d '[:space:]')
until_true 60 'the job runs' same RUNNING job_state "$job"
submit before
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":3}}}}' > /dev/null
until_true 180 'three heads, of which one serves' same True condition HAReady status
until_true 60 'the configuration is in force' same True condition ConfigApplied status
submit three
for pod in 'login-0 sshd' 'worker-0 slurmd' 'controller-0 slurmctld' 'controller-1 slurmctld' 'controller-2 slurmctld'; do
  until_true 30 "scontrol ping on $pod" says 'is UP' kd exec "${pod% *}" -c "${pod#* }" -- scontrol ping
done
same RUNNING job_state "$job" || fail 'the job does not run any more'
note "one head became three: $(active) serves, and every role reaches it"

now=$(term)
kd delete pod "$(active)" --wait=false > /dev/null
until_true 60 'another head serves' later_term "$now"
submit deleted
until_true 120 'three heads again' same True condition HAReady status
note "its pod deleted: $(active) serves"

kd exec "$(active)" -c slurmctld -- pkill -9 slurmctld || fail 'kill slurmctld'
submit killed
until_true 60 'srun' login srun --nodes=1 hostname
note 'its slurmctld killed: submissions and steps go on'

until_true 30 'squeue' login squeue -h -t all -o '%i %j'
there=$(cat "$SCENARIO_WORK/last")
for one in "${confirmed[@]}"; do grep -qx "$one" <<< "$there" || fail "confirmed and gone: $one"; done
until_true 30 'the job runs on' same RUNNING job_state "$job"
login scancel -u root
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":1}}}}' > /dev/null
until_true 30 'one head in place of three is refused' same False condition SpecValid status
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":3}}}}' > /dev/null
until_true 30 'the cluster goes on' same True condition SpecValid status
note 'nothing was lost, the job ran on; going back to one head is refused'
