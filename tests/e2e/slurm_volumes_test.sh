#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers with a block volume each, as examples/volumes has them: a job writes while its volume grows and a snapshot is taken, and what a worker with a copy of the snapshot finds is a whole beginning of it; a worker that
# is made anew has its data again. A training saves on its volume, and another one on a volume made of a snapshot of it goes on from there, to the same end.
# usage: slurm_volumes_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_volumes_test.sh BUILD_DIR}
# The room of a pool is set aside at once.
[ "$(df --output=avail -B1M /var/tmp | tail -n 1)" -gt 12500 ] || { echo 'skipped: needs 12 GiB free in /var/tmp for a pool of volumes'; exit 77; }
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
# shellcheck disable=SC2034
told_pods=(controller-0 data-0 restored-0 login-0)

apply() { run apply -f - > "$work/out" 2>&1 || { cat "$work/out" >&2; fail "apply"; }; }
field() { run get "$1" "$2" -n demo -o json | python3 -c "import json,sys; o=json.load(sys.stdin); print($3)"; }
idle() { [ "$(login sinfo -h -N -n "$1" -o %t | tr -d '[:space:]')" = idle ]; }
state_is() { login scontrol show job "$1" | grep -q "JobState=$2"; }
log_of() { login cat "/home/lab/$1"; }
volume_of() { field pvc "$1" "o['spec']['volumeName']"; }
gone() { ! run get "$1" "$2" -n demo > /dev/null 2>&1; }

# The cluster has no workers but these.
sed '/^    worker:/,/size: 2/ s/size: 2/size: 0/' "$top/examples/demo.yaml" > "$work/demo.yaml"
[ ! -d /sys/fs/cgroup/memory ] || sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$work/demo.yaml"
run up -f "$work/demo.yaml" --volumes 11Gi --port 16447 --node-range 10.83.0.0/16 --pod-range 10.84.0.0/16 --timeout 180 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
apply < "$top/examples/volumes/workers.yaml"
until_true 90 'the worker with a volume is idle' idle data-0
volume=$(volume_of sub-data-demo-data-0)
# As docs/volumes.md says it.
tar -C "$top/examples" -c train-gpt -C volumes train.sbatch | run exec -i -n demo login-0 -- sh -c 'mkdir -p /home/lab && cd /home/lab && tar -x && mv train.sbatch train-gpt/'
run exec -i -n demo login-0 -- sh -c 'cat > /home/lab/blocks.py' < "$top/tests/data/blocks.py"
note 'a cluster whose worker has a block volume'

# --- a job writes; its volume grows, and a snapshot is taken
job=$(login sh -c 'cd /home/lab && sbatch --parsable -C data -t 20 -o write.out --wrap "exec python3 -u blocks.py write /data"' | tr -d '[:space:]')
blocks() { log_of write.out | awk '$1 ~ /^[0-9]+$/ { n = $1 } END { print n + 0 }'; }
has_written() { [ "$(blocks)" -gt "$1" ]; }
until_true 60 'the job writes' has_written 20
[ "$(log_of write.out | awk 'NR == 1 { print ($2 < 1100000000) }')" = 1 ] || fail "the file system is larger than the claim: $(log_of write.out | head -n 1)"
sed 's/storage: 1Gi/storage: 2Gi/' "$top/examples/volumes/workers.yaml" | apply
until_true 60 'the job has more room' bash -c "'$fairlead' exec -n demo login-0 -- grep -qx grown /home/lab/write.out"
until_true 20 'the claim tells its size' bash -c "'$fairlead' get pvc sub-data-demo-data-0 -n demo -o json | grep -q '\"storage\": \"2Gi\"'"
state_is "$job" RUNNING || fail "the job does not run any more: $(log_of write.out)"
note 'the volume has grown under the job, which has filled more than the old one had'
before=$(blocks)
run volume snapshot "$volume" --name then > "$work/out" 2>&1 || { cat "$work/out" >&2; fail 'snapshot'; }
until_true 30 'the job writes on' has_written "$((before + 50))"
worker data-0 touch /data/stop
until_true 30 'the job ends by itself' state_is "$job" COMPLETED
written=$(log_of write.out | awk '$1 == "written" { print $2 }')
[ "$(login srun -C data python3 /home/lab/blocks.py check /data)" = "$written" ] || fail "not all of $written blocks are there"
note "the job wrote $written blocks without an error; the snapshot was taken after $before"

# --- a worker whose volume begins with the snapshot, with another one that lives and dies with it
scratch='      - {name: scratch, mountPath: /scratch, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}'
sed "s#^      customVolumeMounts:#&\n$scratch#" "$top/examples/volumes/restored.yaml" | apply
until_true 90 'the worker with the copy is idle' idle restored-0
copied=$(login srun -C restored python3 /home/lab/blocks.py check /data) || fail 'the copy is not whole'
((copied >= before && copied < written)) || fail "the copy has $copied blocks; $before were written before the snapshot, $written in all"
login srun -C restored sh -c '[ ! -e /data/stop ] && echo mine > /data/mine' || fail 'the copy is of another time, or cannot be written'
login srun -C restored sh -c 'grep -q " /scratch xfs " /proc/mounts && echo mine > /scratch/mine' || fail 'there is no volume of its own at /scratch'
login srun -C data test ! -e /data/mine || fail 'what is written to a copy is in what it is of'
note "a worker with a copy of the snapshot has $copied whole blocks"

# --- a worker that is made anew has its volume; one that goes leaves its claim
uid=$(field pod data-0 "o['metadata']['uid']")
run delete pod data-0 -n demo > /dev/null
is_new() { [ "$(field pod data-0 "o['metadata']['uid']")" != "$uid" ] && idle data-0; }
until_true 90 'the worker is back' is_new
[ "$(login srun -C data python3 /home/lab/blocks.py check /data)" = "$written" ] || fail 'the worker that was made anew has other data'
run delete nodeset restored -n demo > "$work/out" 2>&1 || { cat "$work/out" >&2; fail 'delete the set'; }
copy=$(volume_of sub-data-demo-restored-0)
until_true 30 'the volume that was to die with the worker is gone' gone pvc restored-0-sub-scratch
run get volume "$copy" > /dev/null || fail 'the volume went with its worker'
run delete pvc sub-data-demo-restored-0 -n demo > /dev/null
until_true 60 'the volume goes with its claim' gone volume "$copy"
run volume rm then --yes > "$work/out" 2>&1 || { cat "$work/out" >&2; fail "delete the snapshot"; }
note 'a worker that was made anew has its data; a set that is deleted leaves its claims'

# --- a training's checkpoint on a volume made of a snapshot
steps=100
first=$(login sh -c "cd /home/lab/train-gpt && sbatch --parsable -C data -o first.out train.sbatch --steps $steps --batch 8 --checkpoint-every 10 --print-every 10" | tr -d '[:space:]')
until_true 180 'a checkpoint is saved' bash -c "'$fairlead' exec -n demo data-0 -c slurmd -- sh -c 'ls /data/checkpoints/step-*.pt'"
run volume snapshot "$volume" --name then > "$work/out" 2>&1 || { cat "$work/out" >&2; fail 'snapshot of a training'; }
state_is "$first" RUNNING || fail 'the training was over before the snapshot'
apply < "$top/examples/volumes/restored.yaml"
until_true 90 'the worker with the copy is idle' idle restored-0
second=$(login sh -c "cd /home/lab/train-gpt && sbatch --parsable -C restored -o second.out train.sbatch --steps $steps --batch 8 --checkpoint-every 10 --print-every 10" | tr -d '[:space:]')
until_true 240 'the training ends' state_is "$first" COMPLETED
until_true 240 'the second one ends' state_is "$second" COMPLETED
for run_of in first second; do log_of "train-gpt/$run_of.out" > "$work/$run_of"; done
step=$(sed -nE 's/^resumed from .*\(step ([0-9]+)\)$/\1/p' "$work/second")
[ -n "$step" ] && ((step >= 10 && step < steps)) || { cat "$work/second" >&2; fail 'the second training did not go on from the checkpoint'; }
! grep -q '^resumed' "$work/first" || fail 'the first training went on from something'
[ "$(grep '^final loss' "$work/first")" = "$(grep '^final loss' "$work/second")" ] || { cat "$work/first" "$work/second" >&2; fail 'the trainings end differently'; }
note "a training on a copy of the snapshot went on from step $step and came to the same $(grep '^final loss' "$work/second")"

image=$FAIRLEAD_STATE_DIR/pool.img
run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
! grep -lF "$image" /sys/block/loop*/loop/backing_file > /dev/null 2>&1 || fail 'a device shows the pool still'
echo "$passed passed"
