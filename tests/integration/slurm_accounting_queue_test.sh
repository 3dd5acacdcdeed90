#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Steps that end while slurmdbd is away are in accounting afterwards, although slurmctld is killed, its disk loses power, or it ends in an orderly way, again and again before slurmdbd is back (docs/design/034).
# Proof that this test can fail: without the library, and with the library but without syncing, steps are lost.
#   slurm_accounting_queue_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_accounting_queue_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
# shellcheck source=tests/slurm_database.sh
. "$(dirname "$0")/../slurm_database.sh"
prepare_database "$build"
sed -i -e '/^AccountingStorage/d' -e 's/^ClusterName=.*/ClusterName=heads/' "$root/etc/slurm/slurm.conf"
accounting_lines >> "$root/etc/slurm/slurm.conf"
# Without its associations a slurmctld leaves new jobs to backfill, which looks every 30 s.
sed -i 's/^SchedulerParameters=.*/&,bf_interval=1/' "$root/etc/slurm/slurm.conf"
start_accounting
truncate -s 512M "$work/disk"
mkfs.xfs -q "$work/disk"
mount -o loop "$work/disk" "$state"
chown "$(inside id -u slurm):$(inside id -g slurm)" "$state"
mkdir -m 1777 "$root/tmp/steps"
start_controller
inside slurmd -D > "$work/slurmd.log" 2>&1 &
until_true 30 'the node is there' grep_in '^(idle|mixed|allocated)$' inside sinfo -h -o %T

records() { inside sacct -n -P -j "$1" -o jobid,state | sort; }
first=$(inside sbatch --parsable -o /dev/null --wrap true)
until_true 60 'the first job is in accounting' grep_in "^$first\\|COMPLETED" records "$first"
# Their connection sends at once: else each message waits for an acknowledgement that the other side puts off (gpl/durable/nodelay.cpp).
sends_at_once() { # NAME: every TCP socket of the daemon has TCP_NODELAY, and there is one between the two
  python3 - "$(pgrep -xo "$1")" << 'PYTHON'
import ctypes, os, socket, sys
pid = int(sys.argv[1])
process, libc, ports = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True), set()
for name in os.listdir(f"/proc/{pid}/fd"):
    fd = libc.syscall(438, process, int(name), 0)  # pidfd_getfd
    try: one = socket.socket(fileno=fd)
    except OSError: continue
    if one.family not in (socket.AF_INET, socket.AF_INET6) or one.type != socket.SOCK_STREAM: continue
    if not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY): sys.exit(f"descriptor {name}: {one}")
    try: ports |= {one.getsockname()[1], one.getpeername()[1]}
    except OSError: pass
sys.exit(0 if 6819 in ports else f"no connection of the two: {ports}")
PYTHON
}
for daemon in slurmctld slurmdbd; do sends_at_once "$daemon" || fail "$daemon keeps its messages back"; done
ok 'slurmctld and slurmdbd send at once'
kill -KILL "$slurmdbd_job"
wait "$slurmdbd_job" 2> /dev/null || true

# A job of which five steps have ended; it runs on.
declare -A job=()
five_steps() { # ROUND
  job[$1]=$(inside sbatch --parsable -o "/tmp/steps/$1" --wrap 'for n in 1 2 3 4 5; do srun --overlap -n1 true && echo "$n"; done; sleep 1000')
  until_true 60 "$1: five steps have ended" grep_in '^5$' cat "$root/tmp/steps/$1"
}
power_cut() {
  xfs_io -x -c shutdown "$state"
  kill_controller
  umount "$state"
  mount -o loop "$work/disk" "$state"
}

five_steps killed
kill_controller
start_controller
five_steps 'killed again'
kill_controller
start_controller
five_steps 'power cut'
power_cut
start_controller
# Each slurmctld that begins asks again for the records of all jobs that have ended: that does not add up (but for those of the last one that began).
at_most_twice() {
  python3 - "$state/fairlead-accounting" << 'PYTHON'
import collections, struct, sys
data, at, seen = open(sys.argv[1], "rb").read(), 0, collections.Counter()
while at + 24 <= len(data):
    _, kind, _, size, _, _ = struct.unpack_from("<4sHHIIQ", data, at)
    if kind == 1: seen[data[at + 24:at + 24 + size]] += 1
    at += 24 + size
most = max(seen.values(), default=0)
print(f"{sum(seen.values())} messages, {len(seen)} different, one of them {most} times")
sys.exit(0 if len(seen) > 10 and most == 2 else 1)
PYTHON
}
at_most_twice || fail "the queue of accounting grows with each start: $(at_most_twice || true)"
five_steps 'orderly end'
inside scontrol shutdown slurmctld
until_true 30 'slurmctld has ended' grep_in 'Terminate signal .* received' tail -n 200 "$work/controller.log"
kill_controller

# ---- what loses steps
start_controller FAIRLEAD_DURABLE=off
! sends_at_once slurmctld 2> /dev/null || fail 'it sends at once without the library, too: the test proves nothing'
five_steps off
kill_controller
printf 'int fdatasync(int fd) { (void)fd; return 0; }\n' | cc -shared -fPIC -x c -o "$root/usr/lib/no-sync.so" -
start_controller LD_PRELOAD=/usr/lib/no-sync.so
five_steps unsynced
power_cut
start_controller

# ---- slurmdbd is back
start_slurmdbd
ended() { grep_in '^5$' bash -c "grep -cE '^${job[$1]}\\.[0-4]\\|COMPLETED\$' <<< '$(records "${job[$1]}")'"; }
for round in killed 'killed again' 'power cut' 'orderly end'; do until_true 60 "$round: all steps are in accounting" ended "$round"; done
for round in off unsynced; do
  until_true 30 "$round: the job is in accounting" grep_in "^${job[$round]}\\|RUNNING" records "${job[$round]}"
  ! ended "$round" > /dev/null || fail "$round: nothing was lost: the test proves nothing"
done
twice=$(inside sacct -D -a -n -P -o jobid | sort | uniq -d)
[ -z "$twice" ] || fail "there twice: $twice"
ok 'steps that ended while slurmdbd was away are in accounting after a kill, two, a power cut and an orderly end; without the library and without syncing they are lost'
inside scancel -u root
taken() { [ ! -s "$state/fairlead-accounting" ]; }
until_true 60 'what slurmdbd has taken leaves the disk' taken
kill_controller
umount "$state"
