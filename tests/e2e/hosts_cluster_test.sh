#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster of HyperPod's API on hosts that joined: Slurm runs over them, one of them is rebooted after its job has ended, and all of them are spare again in the end.
#   hosts_cluster_test.sh BUILD_DIR   (as root)
# shellcheck source=tests/e2e/hosts_lib.sh
. "$(dirname "$0")/hosts_lib.sh"

[ -d "$images/slurm" ] || { echo 'skipped: there is no image slurm'; exit 77; }
listen --no-cluster-machines
for one in 'a 11' 'b 12' 'c 13'; do
  read -r name last_byte <<< "$one"
  power_on "$name" "10.44.0.$last_byte"
  says "$name joins" 0 "as $name at 10.44.0.$last_byte" join "$name" "$(token_of "$name" --type ml.t3.medium --spare)"
done
for name in a b c; do wait_until 30 "$name is ready" ready "$name"; done

cat > "$work/cluster.yaml" << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: Cluster
metadata: {name: ml}
spec:
  nodeProvisioningMode: Continuous
  instanceGroups:
  - {instanceGroupName: head, instanceType: ml.t3.medium, instanceCount: 1, slurmConfig: {nodeType: Controller}}
  - {instanceGroupName: cpu, instanceType: ml.t3.medium, instanceCount: 2, slurmConfig: {nodeType: Compute, partitionNames: [train]}}
YAML
f apply -f "$work/cluster.yaml" > /dev/null
wait_until 180 'the cluster is in service' is cluster ml status.phase InService
running() { [ "$(f get instances -o json | python3 -c 'import json, sys; print(sum(i.get("status", {}).get("phase") == "Running" for i in json.load(sys.stdin)["items"]))')" = 3 ]; }
wait_until 120 'all three run' running
slurm() { f exec -n cluster-ml cpu-0 -c slurmd -- "$@"; }
over_both() {
  local out
  out=$(slurm timeout 20 srun -p train -N2 hostname 2>&1 < /dev/null | sort) || true
  [ "$out" = $'cpu-0\ncpu-1' ] || { printf '%s\n' "$out"; slurm sinfo; return 1; }
}
wait_until 60 'a job over two hosts' over_both
echo 'ok    Slurm runs on three hosts, a job over two of them'

# A machine is rebooted as the API does it: when its job has ended, and Slurm has it again.
victim=$(f get instances -o json | python3 -c 'import json, sys; print(next(i["metadata"]["name"] for i in json.load(sys.stdin)["items"] if i["status"].get("slurmNode") == "cpu-1"))')
machine=$(field instance "$victim" status.node)
boot=$(field node "$machine" status.nodeInfo.bootID)
job=$(slurm sbatch --parsable -p train -w cpu-1 -o /dev/null -D /tmp --wrap 'sleep 8')
runs() { [ "$(slurm scontrol show job "$job" | sed -nE 's/.*JobState=([A-Z]+).*/\1/p')" = RUNNING ]; }
wait_until 60 'its job runs' runs # one that waits is kept waiting by the reboot, and runs after it
cat > "$work/instance.yaml" << YAML
apiVersion: fairlead.dev/v1alpha1
kind: Instance
metadata: {name: $victim}
spec: {reboot: {id: once, by: somebody}}
YAML
says 'a reboot is asked for' 0 '' f apply -f "$work/instance.yaml" --force-conflicts
rebooted() { [ "$(field node "$machine" status.nodeInfo.bootID)" != "$boot" ]; }
wait_until 120 "$machine has booted anew" rebooted
state=$(slurm sacct -n -j "$job" 2> /dev/null | head -n 1 || true)
wait_until 120 'its instance runs again' is instance "$victim" status.reboot.stage Done
wait_until 120 'Slurm has both again' over_both
[ "$(slurm scontrol show job "$job" | sed -nE 's/.*JobState=([A-Z]+).*/\1/p')" = COMPLETED ] || fail "its job: $(slurm scontrol show job "$job") $state"
echo 'ok    a host is rebooted after its job has ended'

says 'a host of a cluster is not removed by mistake' 1 'is instance' f node remove "$machine"
f delete cluster ml > /dev/null
spare() { [ "$(f get nodes -o json | python3 -c 'import json, sys; print(sum("fairlead.dev/instance" not in n["metadata"]["labels"] and not n["spec"].get("unschedulable") for n in json.load(sys.stdin)["items"]))')" = 3 ]; }
wait_until 120 'all three are spare again' spare
none() { f get pods -A | grep -q cluster-ml && return 1; return 0; }
wait_until 60 'nothing of it is left' none
says 'a spare host may go' 0 'is removed' f node remove "$machine"
echo 'hosts_cluster_test: all passed'
