#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One more worker: a machine, a number, and jobs run on three nodes.
. "$(dirname "$0")/lib.sh"

k apply -f - > /dev/null << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: worker-2}
spec:
  local: {cpu: "2", memory: 3Gi, resources: {nvidia.com/gpu: 1}}
  labels: {example.com/pool: gpu}
YAML
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"worker":{"size":3}}}}' > /dev/null
until_true 180 'the third pod is there' kd get pod worker-2
kd wait --for=condition=Ready pod/worker-2 --timeout=180s > /dev/null || fail 'worker-2 is not ready'
until_true 120 'Slurm has three idle workers' same 3 idle_workers
# At once: a worker offers itself to Slurm when the other nodes let its packets through.
same $'worker-0\nworker-1\nworker-2' bash -c "$(declare -f login kd k); login srun --nodes=3 hostname | sort" || fail 'srun over three nodes'
note 'a job runs on three nodes'

# One worker less, while a job runs there: the worker is drained and waits for the job.
resize() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"worker\":{\"size\":$1}}}}" > /dev/null; }
condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
node_of_slurm() { login scontrol -o show node worker-2; }
job=$(login sbatch --parsable -o /dev/null -w worker-2 -t 10 --wrap 'until [ -e /mnt/jail/home/scale-on ]; do sleep 1; done' | tr -d '[:space:]')
until_true 60 'the job runs on worker-2' same RUNNING job_state "$job"
uid=$(kd get pod worker-2 -o 'jsonpath={.metadata.uid}')
login scontrol update nodename=worker-1 state=drain reason='a person looks at its disk'
resize 2
until_true 60 'worker-2 is drained for the scale-down' says 'Reason=fairlead: scale-down' node_of_slurm
until_true 60 'the condition names the job' says "worker-2 is drained and waits for job $job of root (until " condition WorkersAvailable message
note 'worker-2 is drained and waits for its job, and the condition says so'

# Three again: the same pod and the same job go on.
resize 3
until_true 60 'worker-2 is in service again' bash -c "$(declare -f login kd k node_of_slurm says); out=\$(node_of_slurm) && [[ \$out != *DRAIN* ]]"
same "$uid" kd get pod worker-2 -o 'jsonpath={.metadata.uid}' || fail 'the pod was replaced'
same RUNNING job_state "$job" || fail 'the job does not run any more'
note 'more workers again before it is gone take everything back'

resize 2
until_true 60 'worker-2 is drained again' says '+DRAIN' node_of_slurm
named=$(login sbatch --parsable -o /dev/null -w worker-2 -t 10 --wrap true | tr -d '[:space:]')
login touch /home/scale-on
until_true 120 'the pod is gone' bash -c "$(declare -f kd k is_empty); is_empty kd get pod worker-2 --ignore-not-found -o name"
until_true 120 'Slurm has forgotten worker-2' same $'worker-0\nworker-1' login sinfo -h -N -o %N
same COMPLETED job_state "$job" || fail "the job did not end by itself: $(job_state "$job")"
note 'when the job had ended, the pod went, and then the node record'
until_true 60 'the job that insists on worker-2 is named' says "job $named of root asks for worker-2" condition JobsCanStart message
login scancel "$named"
until_true 90 'and no more when it is cancelled' same True condition JobsCanStart status
says 'Reason=a person looks at its disk' login scontrol -o show node worker-1 || fail 'a drain set by a person was touched'
login scontrol update nodename=worker-1 state=resume
login rm -f /home/scale-on
note 'a job that insists on the worker is named; the drain that a person set stays'

resize 3
until_true 180 'the third pod is there again' kd get pod worker-2
until_true 180 'Slurm has three idle workers again' same 3 idle_workers
same worker-2 login srun -w worker-2 hostname || fail 'srun on the new worker-2'
note 'a new worker-2 takes jobs'
