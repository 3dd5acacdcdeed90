#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What slurmctld confirms is on disk: it is killed, or the disk under it loses power, in the middle of a burst of submissions and of starting jobs. Then every confirmed job is there under its id, and what ran still runs.
# Proof that this test can fail: the same without the library, and with the library but without syncing, loses jobs.
#   slurm_durable_test.sh BUILD_DIR   (as root)     FAIRLEAD_FULL=1: 200 rounds of each kind
set -euo pipefail
build=$(realpath "${1:?usage: slurm_durable_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
rounds=3
[ -z "${FAIRLEAD_FULL:-}" ] || rounds=200
make_machine "$build"

# Eight clients submit held jobs with names that occur once; what is confirmed is a line "name id".
burst() { # ROUND ENOUGH
  local client
  : > "$work/confirmed"
  : > "$work/burst.run"
  for client in 1 2 3 4 5 6 7 8; do
    (
      n=0
      while [ -e "$work/burst.run" ]; do
        n=$((n + 1))
        id=$(timeout 15 chroot "$root" sbatch -H --parsable -o /dev/null -J "r$1-c$client-n$n" --wrap true 2> /dev/null) && echo "r$1-c$client-n$n $id" >> "$work/confirmed"
      done
    ) &
    clients+=($!)
  done
  until_true 60 "$2 confirmed submissions" confirmed "$2"
}
confirmed() { [ "$(wc -l < "$work/confirmed")" -ge "$1" ]; }
end_burst() {
  rm -f "$work/burst.run"
  wait "${clients[@]}" || true
  clients=()
}
clients=()
: > "$work/ever"
# Confirmed jobs that are not there by name and id, with their script.
lost() {
  chroot "$root" squeue -h -t all -o '%j %i' | sort > "$work/there"
  sort "$work/confirmed" | comm -23 - "$work/there"
  local name id
  while read -r name id; do grep -q 'wrap' "$state/hash.$((id % 10))/job.$id/script" 2> /dev/null || echo "$name $id has no script"; done < "$work/confirmed"
}
forget() { chroot "$root" scancel -u root; }

# ---- bursts
for ((round = 1; round <= rounds; ++round)); do
  start_controller
  burst "$round" 40
  kill_controller
  end_burst
  start_controller
  gone=$(lost)
  [ -z "$gone" ] || fail "round $round: confirmed and gone: $gone"
  cat "$work/confirmed" >> "$work/ever"
  forget
  kill_controller
done
twice=$(cut -d' ' -f2 "$work/ever" | sort | uniq -d)
[ -z "$twice" ] || fail "job ids were given out twice: $twice"
ok "$rounds kills in a burst: $(wc -l < "$work/ever") confirmed submissions, none lost, no id twice"

# ---- started jobs
inside slurmd -D > "$work/slurmd.log" 2>&1 &
for ((round = 1; round <= rounds; ++round)); do
  start_controller
  until_true 30 'the node is there' grep_in '^(idle|mixed|allocated)$' inside sinfo -h -o %T
  ids=()
  for n in 1 2 3 4; do ids+=("$(inside sbatch --parsable -o /dev/null -n 1 -J "start-$round-$n" --wrap 'sleep 1000')"); done
  until_true 30 'a job runs' grep_in . inside squeue -h -t running
  running=$(inside squeue -h -t running -o %i | sort)
  kill_controller
  start_controller
  until_true 30 'the node has said what it runs' grep_in '^(mixed|allocated)$' inside sinfo -h -o %T
  # Slurm ends what the node reports and it does not know within its first look; a new job that runs after that look proves that it is over.
  inside srun -Q -n 1 true || fail 'srun'
  still=$(inside squeue -h -t running -o %i | sort)
  [ -z "$(comm -23 <(echo "$running") <(echo "$still"))" ] || fail "round $round: ran before the kill: $running, after it: $still"
  forget
  until_true 30 'the jobs are gone' nothing_in inside squeue -h
  kill_controller
done
ok "$rounds kills just after jobs started: all run on"

# ---- files of jobs that nobody knows any more do not hold up the beginning
printf '#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\nint rmdir(const char* p) { usleep(100000); return ((int (*)(const char*))dlsym(RTLD_NEXT, "rmdir"))(p); }\n' | cc -shared -fPIC -x c -o "$root/usr/lib/slow-rmdir.so" -
for id in {900001..900100}; do
  mkdir -p "$state/hash.$((id % 10))/job.$id"
  echo old > "$state/hash.$((id % 10))/job.$id/script"
done
inside chown -R slurm: /var/spool/slurmctld
old_ones() { find "$state" -type d -name 'job.9000*' -o -type d -name job.900100 | wc -l; }
start_controller LD_PRELOAD=/usr/lib/slow-rmdir.so
there=$(old_ones)
((there > 0)) || fail 'what nobody knows was removed before slurmctld answered'
none_left() { [ "$(old_ones)" = 0 ]; }
until_true 30 'what nobody knows is removed' none_left
kill_controller
ok "slurmctld answers while $there of 100 folders of forgotten jobs are still to be removed, which they are"

# ---- the disk loses power: what was not synced is gone
truncate -s 512M "$work/disk"
mkfs.xfs -q "$work/disk"
power_cut_round() { # ROUND VARIABLE=VALUE...      to the disk as it is after the cut
  local round=$1
  shift
  mount -o loop "$work/disk" "$state"
  chown "$(inside id -u slurm):$(inside id -g slurm)" "$state"
  start_controller "$@"
  burst "$round" 40
  xfs_io -x -c shutdown "$state"
  kill_controller
  end_burst
  umount "$state"
  mount -o loop "$work/disk" "$state"
}
for ((round = 1; round <= rounds; ++round)); do
  power_cut_round "p$round"
  start_controller
  gone=$(lost)
  [ -z "$gone" ] || fail "power cut $round: confirmed and gone: $gone"
  forget
  kill_controller
  umount "$state"
done
ok "$rounds power cuts of the disk in a burst: no confirmed submission lost"

# ---- and this test can fail
power_cut_round off FAIRLEAD_DURABLE=off
start_controller FAIRLEAD_DURABLE=off
[ -n "$(lost)" ] || fail 'stock slurmctld lost nothing: the power cut proves nothing'
stock=$(lost | wc -l)
forget
kill_controller
umount "$state"
ok "without the library: $stock confirmed submissions lost"
printf 'int fsync(int fd) { (void)fd; return 0; }\n' | cc -shared -fPIC -x c -o "$root/usr/lib/no-sync.so" -
power_cut_round unsynced LD_PRELOAD=/usr/lib/no-sync.so
# What such a disk keeps is chance: an older save, or a file without content, from which the companion does not let slurmctld begin.
answers_or_ended() { ! kill -0 "$controller" 2> /dev/null || grep_in 'is UP' inside scontrol ping; }
begin_controller
until_true 30 'slurmctld answers or is not started' answers_or_ended
if kill -0 "$controller" 2> /dev/null; then
  unsynced="$(lost | wc -l)"
  ((unsynced > 0)) || fail 'without syncing nothing was lost: the power cut proves nothing'
  unsynced+=' confirmed submissions lost'
  forget
else
  tail -n 3 "$work/controller.log" | grep -q 'would begin without what it saved' || fail 'the companion ended, and does not say that the saved state is gone'
  unsynced='the saved state is gone, and slurmctld is kept from beginning anew'
fi
kill_controller
umount "$state"
ok "without syncing: $unsynced"

# ---- a disk that is full, and a state that cannot be written: nothing is confirmed, and it goes on afterwards
mkfs.xfs -qf "$work/disk"
mount -o loop "$work/disk" "$state"
chown "$(inside id -u slurm):$(inside id -g slurm)" "$state"
start_controller FAIRLEAD_DURABLE_LIMIT_MS=1500
before=$(inside sbatch -H --parsable -o /dev/null -J before --wrap true)
refused() { ! inside sbatch -H --parsable -o /dev/null -J refused --wrap true > "$work/refused.log" 2>&1 || fail "$1: a submission was confirmed"; }
dd if=/dev/zero of="$state/fill" bs=64k 2> /dev/null || true
dd if=/dev/zero of="$state/fill2" bs=512 2> /dev/null || true
refused 'a full disk'
rm -f "$state"/fill*
inside sbatch -H --parsable -o /dev/null -J between --wrap true > /dev/null || fail 'no submission after the disk had space again'
until_true 10 'no save is under way' mkdir "$state/job_state.new"
refused 'a state that cannot be written'
grep -q 'the state could not be saved' "$work/controller.log" || fail 'the log does not say why a submission was not confirmed'
rmdir "$state/job_state.new"
after=$(inside sbatch -H --parsable -o /dev/null -J after --wrap true) || fail 'no submission after the state could be written again'
((after > before)) || fail "ids went back: $before, then $after"
kill_controller
umount "$state"
ok 'a full disk, a state that cannot be written: nothing is confirmed, the log says why, and it goes on afterwards'
