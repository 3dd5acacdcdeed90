#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A training job over two nodes, submitted as a user does, learns.
. "$(dirname "$0")/lib.sh"

login mkdir -p /home/lab
tar -C "$top/examples" -c train-gpt | kd exec -i login-0 -c sshd -- tar -C /home/lab -x
job=$(login sh -c 'cd /home/lab/train-gpt && sbatch --parsable train.sbatch --steps 30 --print-every 5' | tr -d '[:space:]')
[[ $job =~ ^[0-9]+$ ]] || fail "sbatch says: $job"
note "job $job is submitted"
until_true 600 'the job completes' same COMPLETED job_state "$job"
login cat "/home/lab/train-gpt/train-gpt-$job.out" > "$SCENARIO_WORK/job.out"
mapfile -t lines < <(losses "$SCENARIO_WORK/job.out")
((${#lines[@]} >= 5)) || fail "${#lines[@]} loss lines: $(tail -n 5 "$SCENARIO_WORK/job.out")"
awk -v a="${lines[0]}" -v b="${lines[-1]}" 'BEGIN { exit !(b < a - 0.5) }' || fail "the loss did not fall: ${lines[0]}, then ${lines[-1]}"
note "the job completed, its loss fell from ${lines[0]} to ${lines[-1]}"
