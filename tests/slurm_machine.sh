#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# One machine with the real munged, slurmctld and (if started) slurmd under our companion, in namespaces of its own. To be sourced, with `set -eu` in force, after `own_machine`.

# own_machine SCRIPT BUILD_DIR: goes on in the script, inside the namespaces and with the folder $work, when they have been made; what is started and mounted there ends with them, however they end. Exit status 77: skipped.
own_machine() {
  ((EUID == 0)) || { echo 'skipped: needs root'; exit 77; }
  work=${FAIRLEAD_TEST_INSIDE:-}
  [ -z "$work" ] || return 0
  local tool out status=0 top
  top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  for tool in mkfs.xfs xfs_io; do command -v $tool > /dev/null || { echo "skipped: $tool is missing (tools/packages-test.txt)"; exit 77; }; done
  out=$("$top/images/build.sh" "$top/images/slurm" /var/lib/fairlead/images 2>&1) || { printf '%s\n' "$out" 'FAIL: the image was not built' >&2; exit 1; }
  FAIRLEAD_TEST_INSIDE=$(mktemp -d "${FAIRLEAD_MACHINES:-/var/tmp}/fairlead-slurm-machine-XXXXXX")
  export FAIRLEAD_TEST_INSIDE
  unshare --net --mount --pid --uts --ipc --fork --kill-child --mount-proc --propagation private bash "$@" || status=$?
  rm -rf --one-file-system "$FAIRLEAD_TEST_INSIDE"
  exit "$status"
}
fail() {
  echo "FAIL: $*" >&2
  local log
  for log in "$work"/*.log; do echo "--- $(basename "$log")"; tail -n 15 "$log"; done >&2
  exit 1
}
ok() { echo "ok: $*"; }
until_true() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2})) what=$2
  shift 2
  until "$@" > "$work/last.log" 2>&1; do
    ((SECONDS < end)) || fail "not in time: $what"
    read -rt 0.05 <> <(:) || true
  done
}
grep_in() { local want=$1 out; shift; out=$("$@" 2>&1); printf '%s\n' "$out"; grep -qE "$want" <<< "$out"; }
nothing_in() { local out; out=$("$@") && [ -z "$out" ]; }

# make_machine BUILD_DIR: the image under an overlay in $root, its name, its configuration, the state of slurmctld in $state; munged runs.
make_machine() {
  local image=/var/lib/fairlead/images/slurm
  root=$work/root state=$work/root/var/spool/slurmctld controller=''
  ip link set lo up
  ip addr add 10.99.0.1/32 dev lo  # names are not resolved on a machine that has a loopback address alone
  hostname head
  mkdir -p "$work/over" "$root"
  mount -t tmpfs over "$work/over"
  mkdir "$work/over"/{upper,work}
  mount -t overlay -o "lowerdir=$image/$(ls "$image" | head -n 1)/rootfs,upperdir=$work/over/upper,workdir=$work/over/work" overlay "$root"
  mount --rbind /proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --rbind /sys "$root/sys"
  mount -t tmpfs run "$root/run"
  mkdir -p "$root/opt/fairlead/bin" "$root/etc/fairlead/munge" "$root/etc/slurm" "$state" "$root/var/spool/slurmd" "$root/run/slurm" "$root/var/log/slurm"
  cp "$1/bin/fairlead-slurm" "$root/opt/fairlead/bin/"
  head -c 1024 /dev/urandom > "$root/etc/fairlead/munge/munge.key"
  printf '127.0.0.1 localhost\n10.99.0.1 head\n' > "$root/etc/hosts"
  cat > "$root/etc/slurm/slurm.conf" << 'TEXT'
ClusterName=durable
SlurmctldHost=head(10.99.0.1)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=head NodeAddr=10.99.0.1 CPUs=64 State=UNKNOWN
MaxJobCount=100000
PartitionName=main Nodes=head Default=YES MaxTime=INFINITE State=UP
TEXT
  printf 'CgroupAutomount=no\nCgroupPlugin=cgroup/v1\n' > "$root/etc/slurm/cgroup.conf"
  inside /opt/fairlead/bin/fairlead-slurm munge > "$work/munge.log" 2>&1 &
  until_true 30 'munge answers' chroot "$root" munge -n
}
inside() { chroot "$root" "$@"; }

begin_controller() { # VARIABLE=VALUE...      it may still end by itself
  env "$@" chroot "$root" /opt/fairlead/bin/fairlead-slurm controller >> "$work/controller.log" 2>&1 &
  controller=$!
}
start_controller() { # VARIABLE=VALUE...
  begin_controller "$@"
  until_true 30 'slurmctld answers' grep_in 'is UP' inside scontrol ping
}
# The daemon dies at once, the companion after it. They and all that they started (slurmctld has slurmscriptd, which ends by itself a moment later) have left their files when this returns: a daemon that was killed in the
# middle of a write to the disk is there until that write ends.
kill_controller() {
  local all
  all=$(descendants_of "$controller")
  pkill -KILL -P "$controller" || true
  kill -KILL "$controller" 2> /dev/null || true
  wait "$controller" 2> /dev/null || true
  # shellcheck disable=SC2086  # one word each
  until_true 30 'what the killed daemon ran is gone' nobody_of $all
}
descendants_of() { # PID
  local child
  for child in $(pgrep -P "$1" || true); do
    echo "$child"
    descendants_of "$child"
  done
}
nobody_of() { # PID...      a zombie may have threads that still write: gone means reaped (by the first process of this namespace)
  local pid
  for pid in "$@"; do [ ! -e "/proc/$pid" ] || return 1; done
}
