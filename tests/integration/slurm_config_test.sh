#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A changed slurm.conf on a real slurmctld: tried on one of its own that disturbs nothing, taken over in place or by a restart, and told apart from one that the daemon does not survive.
#   slurm_config_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_config_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
sed -i '/^NodeName=/d; /^PartitionName=/d; /^MaxJobCount/d' "$root/etc/slurm/slurm.conf"
cat >> "$root/etc/slurm/slurm.conf" << 'TEXT'
MaxNodeCount=64
TreeWidth=65533
SlurmctldParameters=enable_configless,cloud_reg_addrs
NodeSet=worker Feature=worker
PartitionName=main Nodes=worker Default=YES MaxTime=INFINITE State=UP
TEXT
cp "$root/etc/slurm/slurm.conf" "$work/plain.conf"
companion() { inside /opt/fairlead/bin/fairlead-slurm "$@"; }
config() { # GENERATION LINE...: the plain configuration and these lines, as the operator gives them to a head
  echo "# Generation $1"
  sed "${EDIT:-}" "$work/plain.conf"
  printf '%s\n' "${@:2}"
}
give() { config "$@" > "$root/etc/slurm/slurm.conf.new" && mv "$root/etc/slurm/slurm.conf.new" "$root/etc/slurm/slurm.conf" && echo "$1" > "$root/etc/slurm/generation"; }
try() { # LINE...: exit status of the trial, its words in trial.log
  config trial "$@" > "$work/trial.conf"
  local status=0
  { printf 'cgroup.conf %s\n' "$(stat -c %s "$root/etc/slurm/cgroup.conf")"; cat "$root/etc/slurm/cgroup.conf"; printf 'slurm.conf %s\n' "$(stat -c %s "$work/trial.conf")"; cat "$work/trial.conf"; } |
    companion check-config > "$work/trial.log" 2>&1 || status=$?
  echo "$status"
}
shown() { grep_in "^$1 += $2" inside scontrol show config; }
daemon() { cat "$root/run/slurm/slurmctld.pid"; }
trials() { grep -lz '^SLURM_CONF=/run/slurm/trial' /proc/[0-9]*/environ 2> /dev/null || true; }
no_trial() { [ -z "$(trials)" ]; }
old_enough() { [ "$(ps -o etimes= -p "$(daemon)")" -gt 10 ]; }

give one
start_controller
job=$(inside sbatch --parsable -o /dev/null -H --wrap true)
serving=$(daemon)
before=$(find "$state" -type f ! -name '*.old' ! -name heartbeat ! -name last_config_lite ! -name clustername -newer "$work/plain.conf" | wc -l)
[ "$(try)" = 0 ] || fail "the configuration that runs: $(cat "$work/trial.log")"
[ "$(try MinJobAge=300 'PartitionName=second Nodes=worker')" = 0 ] || fail "a good one: $(cat "$work/trial.log")"
for row in 'NoSuchKey=1|NoSuchKey' 'PreemptMode=SUSPEND|PreemptMode' 'PartitionName=x Nodes=nobody-7|nobody-7' 'PriorityType=priority/nonsense|priority/nonsense' 'JobContainerType=job_container/nonsense|JobContainerType'; do
  [ "$(try "${row%%|*}")" = 1 ] || fail "${row%%|*} was not refused: $(cat "$work/trial.log")"
  grep -q "${row##*|}" "$work/trial.log" || fail "${row%%|*}: its words do not name it: $(cat "$work/trial.log")"
done
[ "$(printf 'x' | companion check-config > /dev/null 2>&1; echo $?)" = 3 ] || fail 'nonsense is an answer'
[ "$(daemon)" = "$serving" ] && inside scontrol ping | grep -q 'is UP' && inside squeue -h -j "$job" -o %i | grep -qx "$job" || fail 'a trial disturbed the daemon that runs'
no_trial && [ ! -e "$root/run/slurm/trial" ] || fail 'a trial left its folder'
((before > 0)) || fail 'the state was not looked at'
ok 'configurations are tried beside the daemon that runs: good ones start, bad ones are refused with their words, nothing is left'

# A trial that is killed takes its daemon with it.
for round in 1 2 3; do
  config trial > "$work/trial.conf"
  { printf 'slurm.conf %s\n' "$(stat -c %s "$work/trial.conf")"; cat "$work/trial.conf"; } > "$work/input"
  companion check-config < "$work/input" > "$work/killed.log" 2>&1 &
  trial=$!
  while kill -0 "$trial" 2> /dev/null && no_trial; do :; done
  kill -KILL "$trial" 2> /dev/null || true
  wait "$trial" 2> /dev/null || true
  until_true 5 'the daemon of a killed trial is gone' no_trial
done
[ "$(try)" = 0 ] || fail "after killed trials: $(cat "$work/trial.log")"
ok 'a trial that is killed takes its daemon with it, and the next one is not in its way'

give two MinJobAge=311
companion reconfigure two || fail 'a good configuration'
shown MinJobAge '311 sec' || fail "not in force: $(cat "$work/last.log")"
[ "$(daemon)" = "$serving" ] || fail 'it was started anew'
[ "$(companion generation)" = two ] || fail 'generation'
ok 'a key that can be reloaded is in force in the same daemon'

inside slurmd -D -Z -N worker-0 --conf 'CPUs=4 Feature=worker' > "$work/slurmd.log" 2>&1 &
until_true 30 'worker-0 is idle' grep_in idle inside sinfo -h -o %t
until_true 30 'slurmctld has run for 10 s' old_enough
EDIT='s/^MaxNodeCount=.*/MaxNodeCount=128/' give three MinJobAge=311
companion reconfigure three --always --restart || fail 'a configuration that needs a restart'
shown MaxNodeCount 128 || fail "not in force: $(cat "$work/last.log")"
[ "$(daemon)" != "$serving" ] || fail 'it was not started anew'
inside squeue -h -j "$job" -o %i | grep -qx "$job" || fail 'the job is gone'
ok 'a key that needs a restart is in force after one, and the job is there'

# A dynamic node counts its jobs once more at each reconfigure, and would never be idle again.
until_true 30 'slurmctld has run for 10 s' old_enough
long=$(inside sbatch --parsable -o /dev/null -n 1 --wrap 'sleep 1000')
long_state() { inside squeue -h -j "$long" -o %T; }
until_true 30 'a job runs' grep_in '^RUNNING$' long_state
EDIT='s/^MaxNodeCount=.*/MaxNodeCount=128/' give busy MinJobAge=312
companion reconfigure busy --always || fail 'a configuration while a job runs'
shown MinJobAge '312 sec' || fail "not in force: $(cat "$work/last.log")"
[ "$(long_state)" = RUNNING ] || fail "the job does not run any more: $(long_state)"
inside scancel "$long"
until_true 20 'the node of a job that ran during a reconfigure is idle after it' grep_in ' State=IDLE[+]DYNAMIC_NORM ' inside scontrol -o show node worker-0
ok 'a node whose job ran during a reload is idle when that has ended'

# What must never be given to it: it goes down, and that is told from a head that cannot be asked.
until_true 30 'slurmctld has run for 10 s' old_enough
given_up() { # TEXT: how that ends for what lies in /etc/slurm
  local status=0
  companion reconfigure "$(cat "$root/etc/slurm/generation")" --always > "$work/reconfigure.log" 2>&1 || status=$?
  [ "$status" = 5 ] && grep -q "$1" "$work/reconfigure.log" || fail "status $status: $(cat "$work/reconfigure.log")"
}
EDIT='s/^MaxNodeCount=.*/MaxNodeCount=128/' give four NoSuchKey=1
given_up NoSuchKey
if [ -n "${FAIRLEAD_FULL:-}" ]; then  # 40 s of patience
  EDIT='s/^MaxNodeCount=.*/MaxNodeCount=128/' give five 'PartitionName=x Nodes=nobody-7'
  given_up 'has not answered with configuration five'
fi
ok 'a configuration that the tools cannot read, or that the daemon does not survive, is told apart'
