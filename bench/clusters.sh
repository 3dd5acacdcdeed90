#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures clusters of instance groups with real daemons: CreateCluster of 50 local nodes until all of them run, a node more, a node replaced, the whole deleted.
# usage: clusters.sh BUILD_DIR [NODES]   (as root; makes a site of its own in a network of its own and removes it)
set -euo pipefail
build=$(realpath "${1:?usage: clusters.sh BUILD_DIR [NODES]}") nodes=${2:-50}
top=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${FAIRLEAD_BENCH_INSIDE:-}" ]; then
  "$top/images/build.sh" "$top/images/slurm" /var/lib/fairlead/images > /dev/null
  FAIRLEAD_BENCH_INSIDE=1 exec unshare --net --mount --propagation private bash "$0" "$build" "$nodes"
fi
ip link set lo up
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
export FAIRLEAD_STATE_DIR=$work/site NO_COLOR=1
clean_up() {
  "$build/bin/fairlead" down --yes --purge > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
f() { "$build/bin/fairlead" "$@"; }
mkdir -p "$FAIRLEAD_STATE_DIR/images"
cp -al /var/lib/fairlead/images/slurm "$FAIRLEAD_STATE_DIR/images/"
f up --node-range 10.93.0.0/16 --pod-range 10.94.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
cluster() { # COUNT
  cat << YAML
apiVersion: fairlead.dev/v1alpha1
kind: Cluster
metadata: {name: big}
spec:
  nodeProvisioningMode: Continuous
  instanceGroups:
  - {instanceGroupName: head, instanceType: ml.c5.large, instanceCount: 1, slurmConfig: {nodeType: Controller}}
  - {instanceGroupName: cpu, instanceType: ml.c5.large, instanceCount: $1, slurmConfig: {nodeType: Compute, partitionNames: [train]}}
YAML
}
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
say() { echo "{\"bench\":\"clusters\",\"nodes\":$nodes,\"what\":\"$1\",\"seconds\":$2}"; }

begin=$EPOCHREALTIME
cluster $((nodes - 1)) | f up -f - --timeout 600 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
say 'CreateCluster until all instances run' "$(since "$begin")"
begin=$EPOCHREALTIME
cluster "$nodes" | f up -f - --timeout 300 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
say 'one node more until it runs' "$(since "$begin")"
# replaced NUMBER WHAT: the compute node of that number, idle, gets another machine.
replaced() {
  local victim begin
  victim=$(f get instances -o json | python3 -c 'import json, sys
print(next(one["metadata"]["name"] for one in json.load(sys.stdin)["items"] if one["spec"]["instanceGroupName"] == "cpu" and one["spec"]["number"] == int(sys.argv[1])))' "$1")
  begin=$EPOCHREALTIME
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Instance\nmetadata: {name: %s}\nspec: {replace: {id: bench}}\n' "$victim" | f apply -f - > /dev/null
  until f get instances -o json | python3 -c 'import json, sys
items = [one for one in json.load(sys.stdin)["items"] if one["spec"]["number"] == int(sys.argv[1]) and one["spec"]["instanceGroupName"] == "cpu"]
sys.exit(not (len(items) == 1 and items[0]["spec"]["attempt"] == 2 and items[0]["status"]["phase"] == "Running"))' "$1"; do read -rt 0.1 <> <(:) || true; done
  say "$2" "$(since "$begin")"
}
first=$((nodes / 7 + 1))
replaced "$first" 'an idle node replaced, no spare there: the new one runs, the old machine is gone'
for spare in 1 2 3; do
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: spare-%s}\nspec: {local: {cpu: "2", memory: 4Gi}, labels: {fairlead.dev/spare: "true", node.kubernetes.io/instance-type: ml.c5.large}}\n' "$spare" | f up -f - --timeout 120 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
  replaced "$((first + spare))" 'an idle node replaced from a spare: the new one runs, the old machine is gone'
done
server=$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")
echo "{\"bench\":\"clusters\",\"nodes\":$nodes,\"what\":\"fairlead-server\",\"rss_mb\":$(awk '/VmRSS/ {printf "%.0f", $2 / 1024}' "/proc/$server/status"),\"cpu_seconds\":$(ps -o cputimes= -p "$server" | tr -d ' ')}"
begin=$EPOCHREALTIME
f delete cluster big --timeout 300 > "$work/delete.log" 2>&1 || { cat "$work/delete.log" >&2; exit 1; }
say 'DeleteCluster until nothing is left' "$(since "$begin")"
