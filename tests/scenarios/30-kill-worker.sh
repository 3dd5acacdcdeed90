#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A worker's power is cut in the middle of a job: the cluster notices, the job goes back into the queue, resumes from its checkpoint and completes.
. "$(dirname "$0")/lib.sh"
: "${SCENARIO_KILL_NODE:?}" "${SCENARIO_HEAL_NODE:?}"

job=$(login sh -c 'cd /home/lab/train-gpt && sbatch --parsable train.sbatch --steps 70 --print-every 10 --checkpoint-every 10' | tr -d '[:space:]')
out=/home/lab/train-gpt/train-gpt-$job.out
until_true 400 'a checkpoint' login sh -c "ls /home/lab/train-gpt/checkpoints/$job | grep -q 'step-.*pt'"
$SCENARIO_KILL_NODE worker-1
until_true 120 'the cluster notices that worker-1 is gone' bash -c "$(declare -f k); k get node worker-1 -o 'jsonpath={.status.conditions[?(@.type==\"Ready\")].status}' | grep -qxE 'Unknown|False'"
note 'the cluster knows that the node is gone'
$SCENARIO_HEAL_NODE worker-1
k wait --for=condition=Ready node/worker-1 --timeout=120s > /dev/null || fail 'worker-1 is not ready again'
until_true 180 'the pod of worker-1 is ready again' kd wait --for=condition=Ready pod/worker-1 --timeout=5s
note 'node and pod are back'
until_true 300 'the job starts again' login grep -q 'start 2' "$out"
until_true 120 'it resumes from its checkpoint' login grep -qi resum "$out"
note 'the job runs again, from its checkpoint'
until_true 600 'the job completes' same COMPLETED job_state "$job"
note 'the job completed'
