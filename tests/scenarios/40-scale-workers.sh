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
