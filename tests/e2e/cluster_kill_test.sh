#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A cluster of instance groups while the server is killed again and again: when it is made, when a node is replaced and one is added, and when it is deleted. In the end all is as asked for, each machine is there once, and nothing is left.
#   cluster_kill_test.sh BUILD_DIR   (as root; a site of its own in a network of its own; FAIRLEAD_FULL=1: more kills, closer together; FAIRLEAD_SEED: other moments)
set -euo pipefail
build=${1:?usage: cluster_kill_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=()
RANDOM=${FAIRLEAD_SEED:-$(cksum < <(git -C "$top" rev-parse HEAD 2> /dev/null || date) | cut -d' ' -f1)}
kills=4
[ -z "${FAIRLEAD_FULL:-}" ] || kills=20
up() { run up "$@" --port 16443 --node-range 10.95.0.0/16 --pod-range 10.96.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail 'up'; }; }
# Kills the server at moments of the next few seconds, and starts another each time.
die() {
  local i pid
  for ((i = 0; i < kills; ++i)); do
    read -rt "$(awk -v r=$RANDOM 'BEGIN { printf "%.2f", 0.05 + 1.6 * r / 32768 }')" <> <(:) || true
    pid=$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")
    kill -KILL "$pid"
    while [ -e "/proc/$pid" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2> /dev/null; do read -rt 0.02 <> <(:) || true; done
    up
  done
}
cluster() { # WORKERS
  cat << YAML
apiVersion: fairlead.dev/v1alpha1
kind: Cluster
metadata: {name: ml}
spec:
  nodeProvisioningMode: Continuous
  instanceGroups:
  - {instanceGroupName: head, instanceType: ml.c5.large, instanceCount: 1, slurmConfig: {nodeType: Controller}}
  - {instanceGroupName: cpu, instanceType: ml.c5.large, instanceCount: $1, slurmConfig: {nodeType: Compute, partitionNames: [train]}}
YAML
}
# as_asked WORKERS: each number once and running, each on a machine of its own, and no other machine there.
as_asked() {
  { run get instances -o json; run get machines -o json; } | python3 -c '
import json, sys
decoder, text, parts = json.JSONDecoder(), sys.stdin.read(), []
while text.strip():
    value, end = decoder.raw_decode(text.lstrip())
    parts.append(value["items"])
    text = text.lstrip()[end:]
instances, machines = parts
want, nodes = int(sys.argv[1]), [one["status"].get("node") for one in instances]
phases = [one["status"].get("phase") for one in instances]
assert phases == ["Running"] * (want + 1), phases
assert len(set(nodes)) == want + 1, nodes
assert sorted(one["metadata"]["name"] for one in machines) == sorted(nodes), (nodes, [one["metadata"]["name"] for one in machines])
' "$1"
}
none() { # WHAT...: none of it is there
  local out
  out=$(run get "$@" -o name) && [ -z "$out" ]
}
on() { run exec -n cluster-ml cpu-0 -c slurmd -- "$@"; }

up
cluster 2 | run apply -f - > /dev/null
die
until_true 120 'the cluster is as asked for' as_asked 2
until_true 60 'it runs a job on both' on srun -p train -N2 hostname
note "made, and the server killed $kills times meanwhile: each node is there once"

victim=$(run get instances -o json | python3 -c 'import json, sys
print(next(one["metadata"]["name"] for one in json.load(sys.stdin)["items"] if one["spec"]["instanceGroupName"] == "cpu" and one["spec"]["number"] == 2))')
cluster 3 | run apply -f - > /dev/null
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Instance\nmetadata: {name: %s}\nspec: {replace: {id: once}}\n' "$victim" | run apply -f - > /dev/null
die
until_true 120 'one more, and one replaced' as_asked 3
run get instance "$victim" > /dev/null 2>&1 && fail 'the one that was replaced is there'
until_true 60 'it runs a job on all' on srun -p train -N3 hostname
note 'a node added and another replaced, with as many kills: once each'

run delete cluster ml --no-wait > /dev/null
die
until_true 120 'the cluster is gone' none clusters
until_true 60 'its instances are gone' none instances
until_true 60 'its machines are gone' none machines
none pods -n cluster-ml || fail 'pods are left'
none pvc -n cluster-ml || fail 'claims are left'
note 'deleted, with as many kills: nothing is left'
