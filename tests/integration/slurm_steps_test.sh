#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that runs on while slurmctld is killed and started again goes on to start steps, in its script and from another node; its credentials tell where the workers are (docs/design/028).
# Proof that this test can fail: without our library (FAIRLEAD_DURABLE=off) the same srun finds no address.
#   slurm_steps_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_steps_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
# Workers as the operator makes them: they register themselves.
sed -i '/^NodeName=/d; /^PartitionName=/d' "$root/etc/slurm/slurm.conf"
cat >> "$root/etc/slurm/slurm.conf" << 'TEXT'
MaxNodeCount=64
TreeWidth=65533
SlurmctldParameters=enable_configless,cloud_reg_addrs
NodeSet=worker Feature=worker
PartitionName=main Nodes=worker Default=YES MaxTime=INFINITE State=UP
TEXT
start_controller
inside slurmd -D -Z -N worker-0 --conf 'CPUs=8 Feature=worker' > "$work/slurmd.log" 2>&1 &
until_true 30 'worker-0 is idle' grep_in idle inside sinfo -h -o %T

# Each line of the script's log is a step, and how it ended.
mkdir -m 1777 "$root/tmp/steps"
cat > "$root/tmp/steps/job" << 'TEXT'
#!/bin/sh
n=0
while :; do
  timeout 20 srun --overlap -n1 true 2>> /tmp/steps/errors
  echo "$n $?"
  n=$((n + 1))
  sleep 0.3
done
TEXT
chmod +x "$root/tmp/steps/job"
steps() { wc -l < "$root/tmp/steps/log"; }
good_ones() { grep -c ' 0$' "$root/tmp/steps/log"; }
more_than() { (($("$1") > $2)); }
step_into() { timeout 20 chroot "$root" srun --jobid="$job" --overlap -n1 "$@" > "$work/step.log" 2>&1; }
job=$(inside sbatch --parsable -o /tmp/steps/log -n2 /tmp/steps/job)
running=$(inside sbatch --parsable -o /dev/null -n1 --wrap 'sleep 1000')
until_true 30 'its first step' more_than good_ones 0
step_into hostname || fail "a step from another node: $(cat "$work/step.log")"

again() { # VARIABLE=VALUE...
  kill_controller
  start_controller "$@"
}
after_it() { # a step that began after slurmctld did
  local now
  now=$(steps)
  until_true 60 'the job starts another step' more_than steps $((now + 1))
}
for round in 1 2 3; do
  again FAIRLEAD_DURABLE=on
  failed=$(grep -vc ' 0$' "$root/tmp/steps/log" || true)
  after_it
  after_it
  [ "$(grep -vc ' 0$' "$root/tmp/steps/log" || true)" = "$failed" ] || fail "round $round: a step of a job that ran on: $(tail -n 3 "$root/tmp/steps/errors")"
  step_into hostname || fail "round $round: a step from another node: $(cat "$work/step.log")"
  job=$running step_into hostname || fail "round $round: the first step of another job: $(cat "$work/step.log")"
done
! grep -q "can't find address" "$root/tmp/steps/errors" || fail "$(tail -n 3 "$root/tmp/steps/errors")"
# One that began meanwhile has its list from the beginning.
out=$(timeout 30 chroot "$root" srun -n1 printenv SLURM_NODE_ALIASES)
[[ $out == 'worker-0:[10.99.0.1]:'* ]] || fail "a job that began later: $out"
ok "$(good_ones) steps of a job that ran through three restarts, and steps into it and into another from elsewhere"

again FAIRLEAD_DURABLE=off
! step_into hostname || fail 'stock Slurm finds the worker, too: this test shows nothing'
grep -q "can't find address for host worker-0" "$work/step.log" || fail "stock Slurm fails otherwise: $(cat "$work/step.log")"
ok 'the same without our library finds no address'
