#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sets of a whole cluster and their way back, with the real slurmctld, slurmd, slurmdbd and MariaDB under our companion: a set under submissions; a restore after which the queue is that of the set, no id is given a second
# time and the database has no job that runs for ever; a restore whose program is killed again and again; a head that starts while it is held.
#   slurm_backup_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_backup_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
# shellcheck source=tests/slurm_database.sh
. "$(dirname "$0")/../slurm_database.sh"
prepare_database "$build"
sed -i -e '/^AccountingStorageType/d' -e 's/^ClusterName=.*/ClusterName=heads/' "$root/etc/slurm/slurm.conf"
accounting_lines >> "$root/etc/slurm/slurm.conf"
cp "$root/etc/slurm/slurm.conf" "$root/run/slurm/slurm.conf"

# The volume of the sets, seen by both, and a shared root.
mkdir -p "$work/sets" "$root/var/backups/cluster" "$database_root/var/backups/cluster" "$root/mnt/jail-volume/home/ada"
mount --bind "$work/sets" "$root/var/backups/cluster"
mount --bind "$work/sets" "$database_root/var/backups/cluster"
echo draft > "$root/mnt/jail-volume/home/ada/paper"

start_accounting
FAIRLEAD_BACKUP_SECONDS=86400 chroot "$database_root" /opt/fairlead/bin/fairlead-slurm backups >> "$work/backups.log" 2>&1 &
start_controller
inside slurmd -D >> "$work/slurmd.log" 2>&1 &
until_true 60 'the node is idle' grep_in idle inside sinfo -h -o %T
ok 'slurmctld, slurmd, slurmdbd and MariaDB run'

keeper=''
start_keeper() {
  FAIRLEAD_SLURM_CLUSTER=heads FAIRLEAD_SET_SECONDS=86400 FAIRLEAD_SET_KEEP=3 FAIRLEAD_SET_PARTS=state,database,jail chroot "$root" /opt/fairlead/bin/fairlead-slurm keep-sets >> "$work/keeper.log" 2>&1 &
  keeper=$!
}
kill_keeper() { kill -KILL "$keeper"; wait "$keeper" 2> /dev/null || true; }
companion() { FAIRLEAD_SLURM_CLUSTER=heads FAIRLEAD_SET_SECONDS=86400 inside /opt/fairlead/bin/fairlead-slurm "$@"; }
submit() { inside sbatch -H --parsable -o /dev/null --wrap true; }
queue() { inside squeue -h -t all -o '%i %t' | sort -n; }
runaway() { inside sacctmgr -n -P show runaway < /dev/null 2>&1 | grep -c '|' || true; }

first=$(submit)
running=$(inside sbatch --parsable -o /dev/null --wrap 'sleep 1000')
until_true 30 'the job runs' grep_in RUNNING inside squeue -h -j "$running" -o %T
start_keeper
until_true 90 'the first set is made by itself' grep_in '"fresh":true' companion sets

# Under submissions.
( while [ ! -e "$work/enough" ]; do submit >> "$work/submitted" || true; done ) &
burst=$!
until_true 30 'submissions' test -s "$work/submitted"
kill -0 "$burst"
set_name=$(companion make-set) || fail "no set: $(cat "$work/keeper.log")"
: > "$work/enough"
wait "$burst" || true
[ "$(companion check-set "$set_name")" = "set $set_name is whole" ] || fail 'the set is not whole'
companion sets > "$work/list"
grep -q "\"name\":\"$set_name\".*\"parts\":\\[\"state\",\"database\",\"jail\"\\]" "$work/list" || fail "the list says: $(cat "$work/list")"
[ "$(cat "$work/sets/sets/$set_name/jail/home/ada/paper")" = draft ] || fail 'the shared root is not in the set'
next=$(grep -o "\"name\":\"$set_name\"[^}]*" "$work/list" | grep -o '"nextJobId":[0-9]*' | cut -d: -f2)
last=$(tail -n 1 "$work/submitted")
((next > first && next <= last + 1)) || fail "the set's next id is $next; $first was given before and $last last"
# Every job of the queue in it has its script.
for id in $(seq "$first" $((next - 1))); do
  [ -s "$work/sets/sets/$set_name/state/hash.$((id % 10))/job.$id/script" ] || fail "job $id is in the set without its script"
done
ok "a set under submissions: next id $next, $last was given meanwhile; every job in it has its script"

# The cluster goes on.
for _ in 1 2 3; do later=$(submit); done
inside scancel "$first"
echo final > "$root/mnt/jail-volume/home/ada/paper"
companion restore-set "$set_name" --dry-run > "$work/dry" || fail "the trial refuses: $(cat "$work/dry")"
grep -q 'nothing is changed' "$work/dry" || fail "the trial says: $(cat "$work/dry")"
companion restore-set 20200101T000000Z > "$work/wrong.log" 2>&1 && fail 'a set that is not there is restored'

# Restored while whoever does it is killed again and again.
companion restore-set "$set_name" --parts state,database,jail > "$work/restore.log" 2>&1 &
restore=$!
kills=0
while kill -0 "$restore" 2> /dev/null; do
  kill_keeper
  kills=$((kills + 1))
  start_keeper
  read -rt 0.$((RANDOM % 9 + 1)) <> <(:) || true
  ((kills < 400)) || fail 'the restore does not end'
done
wait "$restore" || fail "the restore fails: $(cat "$work/restore.log")"
grep -q 'is restored' "$work/restore.log" || fail "the restore says: $(cat "$work/restore.log")"
until_true 60 'slurmctld answers again' grep_in 'is UP' inside scontrol ping
until_true 30 'the job of the set is there' grep_in "^$first PD" queue
queue > "$work/queue"
grep -q "^$later " "$work/queue" && fail "job $later was submitted after the set and is there"
fresh=$(submit)
((fresh > later)) || fail "id $fresh is given a second time: $later was given before"
[ "$(cat "$root/mnt/jail-volume/home/ada/paper")" = final ] || fail 'a file of the shared root was overwritten'
[ "$(cat "$root/mnt/jail-volume/restored/$set_name/home/ada/paper")" = draft ] || fail 'the files of the set are not beside'
find "$state/.fairlead-replaced" -name job_state | grep -q . || fail 'what was replaced is not kept'
[ ! -e "$state/.fairlead-hold" ] || fail 'the hold is still there'
ok "restored under $kills kills: the queue is that of the set, ids go on at $fresh above $later, nothing of the shared root was overwritten"

# slurmdbd remembers what was before: renewed, as `fairlead slurm restore` does.
kill -KILL "$slurmdbd_job" 2> /dev/null || true
wait "$slurmdbd_job" 2> /dev/null || true
start_slurmdbd
until_true 60 'slurmdbd answers' grep_in '^root$' inside sacctmgr -n -P list user format=user
inside sacctmgr -i show runaway > "$work/runaway.log" 2>&1 < /dev/null || true
until_true 30 'no runaway jobs' test "$(runaway)" = 0
until_true 30 'the history is there' grep_in "^$first" inside sacct -n -X -j "$first" -o jobid
ok 'accounting has the history and no job that runs for ever'

# A hold: slurmctld ends, and none starts, also after the companion was killed.
printf 'of a later version\n' > "$state/.fairlead-hold"
until_true 30 'slurmctld ends' bash -c "! chroot '$root' scontrol ping 2>&1 | grep -q 'is UP'"
kill_controller
chroot "$root" /opt/fairlead/bin/fairlead-slurm controller >> "$work/controller.log" 2>&1 &
controller=$!
read -rt 5 <> <(:) || true
grep_in 'is UP' inside scontrol ping > /dev/null && fail 'slurmctld runs though it is held'
rm "$state/.fairlead-hold"
until_true 60 'slurmctld answers when the hold is gone' grep_in 'is UP' inside scontrol ping
ok 'a hold keeps slurmctld from running, whoever starts it'
