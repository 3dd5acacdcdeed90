#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A saved state that slurmctld cannot read is never the beginning of an empty queue: it is empty, another user's, cut or gone, and nothing is started; put right, the jobs are there. That of a slurmctld that ran as root is taken over.
# Proof that this test can fail: slurmctld alone begins on the same files with no job, and writes over the last whole save.
#   slurm_state_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_state_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
stop_controller() {
  kill "$controller"
  wait "$controller" || true
}
refused() { # WORDS
  local status=0
  : > "$work/refused.log"
  timeout 60 chroot "$root" /opt/fairlead/bin/fairlead-slurm controller > "$work/refused.log" 2>&1 || status=$?
  [ "$status" = 1 ] || fail "wanted \"$1\", and the companion ended with $status"
  grep -qF "$1" "$work/refused.log" || fail "wanted \"$1\", got: $(tail -n 3 "$work/refused.log")"
  ! pgrep -x slurmctld > /dev/null || fail 'slurmctld runs'
}
queue() { inside squeue -h -t all -o %i | sort -n; }
back() { # WHAT: the state of before has come back
  cp -a "$work/good/." "$state/"
  start_controller
  [ "$(queue)" = "$before" ] || fail "$1: the queue is $(queue | tr '\n' ' ')instead of $(tr '\n' ' ' <<< "$before")"
  stop_controller
}

start_controller
for n in 1 2 3; do inside sbatch -H --parsable -o /dev/null --wrap true > /dev/null; done
before=$(queue)
until_true 10 'the volume is marked' test -e "$state/fairlead-saved"
stop_controller
cp -a "$state" "$work/good"

: > "$state/job_state"
refused "slurmctld would begin without what it saved in /var/spool/slurmctld/job_state: it is empty"
[ ! -s "$state/job_state" ] && [ -s "$state/job_state.old" ] || fail 'something was written'
back 'an empty job_state'
chown daemon: "$state/job_state" && chmod 600 "$state/job_state"
refused "cannot open it: Permission denied"
back 'a job_state of another user'
: > "$state/node_state"
refused "node_state: it is empty"
back 'an empty node_state'
rm "$state/job_state" "$state/job_state.old"
refused "neither job_state nor job_state.old"
back 'no job_state'
head -c 100 "$work/good/job_state" > "$state/job_state"
chown --reference="$work/good/job_state" "$state/job_state"
refused "Incomplete job state save file"
back 'a job_state that was cut'
ok 'a state that is empty, cut, gone or of another user starts nothing; put back, every job is there'

rm "$state/job_state"
start_controller
stop_controller
ok 'a save that was cut between two renames goes on with the one before'
cp -a "$work/good/." "$state/"

# A slurmctld that was killed between the last two steps of a save: job_state and job_state.new are one file, which the next save empties before it writes.
one_file() { # sets $sum; the file has a third name, by which it is seen later
  ln -f "$state/job_state" "$state/job_state.new"
  ln -f "$state/job_state" "$state/.seen"
  sum=$(sha256sum < "$state/.seen")
}
one_file
start_controller
inside sbatch -H --parsable -o /dev/null --wrap true > /dev/null
stop_controller
[ "$(sha256sum < "$state/.seen")" = "$sum" ] || fail 'the last whole save was written over'
ok 'a save that was cut before its last step is not written over by the next'
rm -f "$state/.seen"
rm -rf "${state:?}"/*
cp -a "$work/good/." "$state/"

# As an older operator leaves it, whose slurmctld ran as root.
chown -R root: "$state"
rm "$state/fairlead-saved"
start_controller
[ "$(queue)" = "$before" ] || fail "the state of root: the queue is $(queue | tr '\n' ' ')"
id=$(head -n 1 <<< "$before")
inside scontrol write batch_script "$id" - | grep -q wrap || fail "the script of job $id cannot be read"
inside scancel -u root
stop_controller
ok 'the state of a slurmctld that ran as root is taken over, scripts too'

# ---- and this test can fail
rm -rf "${state:?}"/*
cp -a "$work/good/." "$state/"
one_file
chroot "$root" slurmctld -D > "$work/stock.log" 2>&1 &
controller=$!
until_true 30 'slurmctld alone answers' grep_in 'is UP' inside scontrol ping
inside sbatch -H --parsable -o /dev/null --wrap true > /dev/null
stop_controller
[ "$(sha256sum < "$state/.seen")" != "$sum" ] || fail 'slurmctld alone does not write over the last whole save: this test proves nothing'
rm -f "$state/.seen"
for way in empty missing; do
  rm -rf "${state:?}"/*
  cp -a "$work/good/." "$state/"
  rm -f "$state"/job_state.old
  case $way in empty) : > "$state/job_state" ;; missing) rm "$state/job_state" ;; esac
  chroot "$root" slurmctld -D > "$work/stock.log" 2>&1 &
  controller=$!
  until_true 30 'slurmctld alone answers' grep_in 'is UP' inside scontrol ping
  [ -z "$(queue)" ] || fail "slurmctld alone refuses or keeps jobs with job_state $way: this test proves nothing"
  kill_controller
done
ok 'slurmctld alone begins with an empty queue on the same files'
