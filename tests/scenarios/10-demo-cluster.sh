#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster comes up from one manifest, and applying it again changes nothing.
. "$(dirname "$0")/lib.sh"

# A kind that the manifest brings may be asked for before its definition is served: what is refused for that is applied again.
until_true 60 'the manifest is applied' k apply -f "$SCENARIO_SITE"
for node in head-0 login-0 worker-0 worker-1; do
  until_true 120 "node $node is there" k get node "$node"
  k wait --for=condition=Ready "node/$node" --timeout=120s > /dev/null || fail "node $node is not ready"
done
note 'four nodes are ready'
until_true 240 'the cluster is available' same Available kd get slurmcluster demo -o 'jsonpath={.status.phase}'
kd wait --for=condition=Ready pod/controller-0 pod/worker-0 pod/worker-1 pod/login-0 --timeout=60s > /dev/null || fail 'not all pods are ready'
for pair in controller-0:head-0 login-0:login-0; do
  same "${pair#*:}" kd get pod "${pair%:*}" -o 'jsonpath={.spec.nodeName}' || fail "${pair%:*} is not on ${pair#*:}"
done
note 'head, workers and login node are ready, each where its node filter says'
# Where nodes have ranges of both families, pods have addresses of both.
if [[ $(k get node worker-0 -o 'jsonpath={.spec.podCIDRs[*]}') == *:* ]]; then
  for pod in controller-0 worker-0 worker-1 login-0; do
    [[ $(kd get pod "$pod" -o 'jsonpath={.status.podIPs[*].ip}') =~ ^[0-9.]+\ [0-9a-f:]+$ ]] || fail "$pod has not an address of each family: $(kd get pod "$pod" -o 'jsonpath={.status.podIPs}')"
  done
  note 'nodes and pods have addresses of both families'
fi

until_true 60 'Slurm has two idle workers' same 2 idle_workers
says 'GPU 0: Fairlead Mock GPU' login srun --nodes=2 --gres=gpu:1 nvidia-smi -L || fail 'srun over two nodes'
same $'worker-0\nworker-1' bash -c "$(declare -f login kd k); login srun --nodes=2 hostname | sort" || fail 'srun runs on both workers'
note 'srun reaches both workers and their GPUs'

says 'slurmctld' kd logs controller-0 -c slurmctld --tail=50 || fail 'logs of the head'
note 'logs can be read'
again=$(k apply -f "$SCENARIO_SITE")
[ -z "$(grep -v unchanged <<< "$again" || true)" ] || fail "applying it again changed something: $again"
note 'applying the manifest again changes nothing'
