#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs whose quotas are kept by Fairlead (docs/design/033), on a real slurmctld: held from their first moment, through a kill in a burst of submissions; nobody but an administrator lets one go; what the companion says and does.
#   slurm_admission_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_admission_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
companion() { inside /opt/fairlead/bin/fairlead-slurm "$@"; }
as() { # USER COMMAND...
  local user=$1
  shift
  inside setpriv --reuid "$user" --regid "$(inside id -g "$user")" --clear-groups "$@"
}
submit() { as daemon sbatch --parsable -o /dev/null -D /tmp "$@" --wrap 'sleep 1000' 2> /dev/null; }
is() { # STATE REASON JOB
  local now
  now=$(inside squeue -h -r -t all -j "$3" -o '%T %r' | sort -u)
  [ "$now" = "$1 $2" ] || { echo "job $3: $now"; return 1; }
}
refused() { ! "$@" > "$work/refused.log" 2>&1; }

start_controller
inside slurmd -D > "$work/slurmd.log" 2>&1 &
until_true 30 'the node is there' grep_in '^(idle|mixed|allocated)$' inside sinfo -h -o %T
free=$(submit)
until_true 30 'without the file a job begins by itself' is RUNNING None "$free"
inside scancel "$free"

touch "$root/etc/slurm/fairlead-admission"
job=$(submit)
is PENDING JobHeldAdmin "$job" || fail 'a job that was submitted is not held by an administrator'
refused as daemon scontrol release "$job" || fail 'a user lets his own job go'
refused as daemon scontrol update "jobid=$job" priority=1000 || fail 'a user gives his own job a priority'
as daemon scontrol uhold "$job" > /dev/null 2>&1 || true
refused as daemon scontrol release "$job" || fail 'a user lets his own job go by way of his own hold'
is PENDING JobHeldAdmin "$job" || fail 'it is not held any more'
refused as daemon sbatch -H -o /dev/null -D /tmp --wrap true || fail 'a hold of the user was taken'
grep -q 'leave out --hold' "$work/refused.log" || fail "the user is not told why: $(cat "$work/refused.log")"
ok 'a submission is held as by an administrator, and its user cannot let it go'

array=$(submit -a 0-2)
both=$(submit -n 1 : -n 2)
as daemon srun -n 1 -D /tmp true > "$work/srun.log" 2>&1 &
srun=$!
as daemon salloc -n 1 -D /tmp true > "$work/salloc.log" 2>&1 &
salloc=$!
until_true 30 'srun and salloc wait' bash -c "[ \$(chroot '$root' squeue -h -r -o %r | grep -c '^JobHeldAdmin\$') = 8 ]"
check=$(as nobody sbatch --parsable -o /dev/null -D /tmp --wrap 'sleep 1000')
until_true 30 'a check of nodes is not held' is RUNNING None "$check"
inside scancel "$check"
ok 'so are arrays, several components, srun and salloc; checks of nodes are not'

look() { # PYTHON EXPRESSION over j (job id -> record)
  companion queue-look "${@:2}" > "$work/look.log" && python3 -c 'import json,sys; j={x["id"]: x for x in json.load(open(sys.argv[1]))["jobs"]}; sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/look.log" "$1"
}
until_true 30 'jobs are seen with what they ask for' look "{'$job', '${array}_0', '${array}_2', '$both'} <= set(j) and len(j) == 7 and j['$job']['reason'] == 'JobHeldAdmin' and j['$job']['parts'][0]['cpus'] == 1 and [p['cpus'] for p in j['$both']['parts']] == [1, 2]"
look "'$free' not in j" || fail 'a job that is over'
look "j['$free']['state'] == 'CANCELLED' and '99999' not in j" --of "$free,99999" || fail 'a job that is over and was asked for'
companion queue-comment "$job" 'fairlead: waits for quota of queue a/b'
look "j['$job']['comment'] == 'fairlead: waits for quota of queue a/b'" || fail 'the comment'
refused companion queue-release 99999 || fail 'a job that is not there was released'
companion queue-release "$job"
companion queue-release "$job"
until_true 30 'it runs' is RUNNING None "$job"
companion queue-release "${array}_1"
until_true 30 'one task runs' is RUNNING None "${array}_1"
is PENDING JobHeldAdmin "${array}_2" || fail 'another task was let go, too'
companion queue-release "$both"
until_true 30 'both components are let go' look "j['$both']['state'] == 'PENDING' and j['$both']['reason'] != 'JobHeldAdmin'"  # they wait for a node each, and there is one
companion queue-requeue "$both"
is PENDING JobHeldAdmin "$both" || fail 'components that wait were not held again'
ok 'jobs are seen with what they ask for, and let go one by one'

for one in "$job" "${array}_1"; do
  companion queue-requeue "$one"
  companion queue-requeue "$one"
  until_true 60 'it is back in the queue, held' is PENDING JobHeldAdmin "$one"
done
refused as daemon scontrol release "$job" || fail 'a user lets a job go that was taken back'
inside scancel -u daemon
wait "$srun" "$salloc" || true
as daemon srun -n 1 -D /tmp sleep 1000 > "$work/srun.log" 2>&1 &
srun=$!
until_true 30 'srun waits' look "len(j) == 1 and list(j.values())[0]['reason'] == 'JobHeldAdmin'"
id=$(inside squeue -h -o %i)
companion queue-release "$id"
until_true 30 'srun runs' is RUNNING None "$id"
companion queue-requeue "$id"
until_true 90 'what cannot go back is cancelled' look "'$id' not in j"
wait "$srun" || true
ok 'what is taken back waits, held; what Slurm cannot put back is cancelled'

# A kill in the middle of a burst: whoever is there afterwards is held.
: > "$work/burst.run"
clients=()
for _ in 1 2 3 4 5 6; do
  (while [ -e "$work/burst.run" ]; do submit >> "$work/burst.ids" || true; done) &
  clients+=($!)
done
enough() { [ "$(wc -l < "$work/burst.ids")" -ge 40 ]; }
until_true 60 '40 submissions' enough
kill_controller
rm -f "$work/burst.run"
wait "${clients[@]}" || true
start_controller
until_true 30 'the node is there' grep_in '^(idle|mixed|allocated)$' inside sinfo -h -o %T
[ "$(inside squeue -h -r -o '%T %r' | sort -u)" = 'PENDING JobHeldAdmin' ] || fail "after a kill: $(inside squeue -h -r -o '%i %T %r' | grep -v JobHeldAdmin | head -n 5)"
[ "$(inside squeue -h -r | wc -l)" -ge 40 ] || fail 'confirmed jobs are gone'
ok 'a kill in a burst of submissions lets none through'
