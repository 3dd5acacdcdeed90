#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pods of a real kubelet use volumes: the driver registers with it, the standard sidecars make and attach the volume of a claim, the kubelet has it staged and published, a pod writes to it, it grows under the pod,
# outlives it, and is gone with the claim. A driver that dies is there again, and mounts stay meanwhile.
#   csi_kubelet_test.sh BUILD_DIR     as root
set -euo pipefail
build=$(realpath "${1:?usage: csi_kubelet_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
programs=$("$peers/build.sh" --print)
sidecars=$("$peers/csi.sh" --print)
case ${FAIRLEAD_KUBELET_STAGE:-} in
'')
  [ -x "$programs/kube-apiserver" ] && [ -x "$programs/kubectl" ] || { echo "skipped: $programs has no kube-apiserver and kubectl (tests/peers/build.sh builds them)"; exit 77; }
  # They take a quarter of an hour to build: with --full, else where they are there.
  [ -z "${FAIRLEAD_FULL:-}" ] || { "$peers/csi.sh" && "$peers/kubelet.sh" --prepare; } > /dev/null || true
  [ -x "$programs/kubelet" ] || { echo "skipped: the kubelet is not built (tests/peers/kubelet.sh --prepare)"; exit 77; }
  for name in csi-provisioner csi-attacher csi-resizer; do [ -x "$sidecars/$name" ] || { echo "skipped: $name is not built (tests/peers/csi.sh)"; exit 77; }; done
  FAIRLEAD_KUBELET_STAGE=cluster exec unshare --net --mount --propagation private bash "$0" "$build"
  ;;
cluster)
  # shellcheck source=tests/lib.sh
  . "$top/tests/lib.sh"
  after_end() { "$peers/cluster.sh" down "$work/peer" > /dev/null 2>&1; }
  ip link set lo up
  "$peers/cluster.sh" up "$work/peer" > "$work/up.log" 2>&1 || fail "the cluster does not start: $(tail -n 5 "$work/up.log")"
  cat > "$work/then.sh" << TEXT
exec env FAIRLEAD_KUBELET_STAGE=pods bash $(printf '%q' "$top/tests/integration/$(basename "$0")") $(printf '%q' "$build")
TEXT
  status=0
  PEER_KUBELET_THEN=$work/then.sh "$peers/kubelet.sh" "$work/peer" || status=$?
  [ "$status" = 0 ] || fail "exit status $status"
  exit 0
  ;;
esac

# --- beside the kubelet, in its mount namespace
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
node=$PEER_KUBELET_NODE plugins=$PEER_KUBELET_ROOT/plugins/csi.fairlead.dev registry=$PEER_KUBELET_ROOT/plugins_registry
after_end() { "$build/bin/fairlead-volumes" destroy --folder "$work/pool" --image "$work/pool.img" --yes; }
say() { printf 'ok  %s\n' "$*"; }
k() { "$programs/kubectl" "$@"; }
field() { k get "$1" "$2" -o "jsonpath=$3" 2> /dev/null; }
is() { [ "$(field "$1" "$2" "$3")" = "$4" ]; }
gone() { ! k get "$1" "$2" > /dev/null 2>&1; }
for kind in volumepools volumes snapshots attachments; do k apply -f "$top/deploy/helm/fairlead/files/crds/$kind.fairlead.dev.yaml" > /dev/null; done
k wait --for=condition=established crd --all --timeout=60s > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.fairlead.dev}
spec: {attachRequired: true, podInfoOnMount: false, fsGroupPolicy: File}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.fairlead.dev
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
parameters: {csi.storage.k8s.io/fstype: xfs}
YAML
start volumes.log "$build/bin/fairlead-volumes" run --folder "$work/pool" --image "$work/pool.img" --size 20Gi --sparse --name here --nodes "kubernetes.io/hostname=$node" --kubeconfig "$KUBECONFIG" --metrics off
mkdir -p "$plugins" "$registry"
start_node() {
  start node.log "$build/bin/fairlead-csi" serve --endpoint "unix://$plugins/csi.sock" --node "$node" --pool here --register "$registry"
  driver=$last
}
start_node
start controller.log "$build/bin/fairlead-csi" serve --endpoint "unix://$work/csi.sock" --controller --kubeconfig "$KUBECONFIG"
wait_until 60 'the pool is known' is volumepool here '{.status.nodes[0]}' "$node"
wait_until 60 'the kubelet knows the driver' is csinode "$node" '{.spec.drivers[0].name} {.spec.drivers[0].topologyKeys[0]} {.spec.drivers[0].allocatable.count}' 'csi.fairlead.dev topology.fairlead.dev/pool 128'
wait_until 30 'the node says which pool it reaches' is node "$node" '{.metadata.labels.topology\.fairlead\.dev/pool}' here
grep -q 'the kubelet knows the driver' "$work/node.log" || fail 'the driver is not told'
say 'the kubelet has found the driver: the node has its topology and its limit'

common=(--csi-address="$work/csi.sock" --kubeconfig="$KUBECONFIG" --leader-election=false)
start provisioner.log "$sidecars/csi-provisioner" "${common[@]}" --feature-gates=Topology=true --extra-create-metadata --default-fstype=ext4
start attacher.log "$sidecars/csi-attacher" "${common[@]}"
start resizer.log "$sidecars/csi-resizer" "${common[@]}"
pod() { # NAME COMMAND
  k apply -f - > /dev/null << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "fairlead.local/try:1", imagePullPolicy: Never, command: [sh, -c, $(printf '%s' "$2" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))')], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
YAML
}
k apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
YAML
pod writer 'echo of the first pod > /data/word; while :; do echo alive > /data/beat; sleep 1; done'
wait_until 120 'the pod runs' is pod writer '{.status.phase}' Running
pv=$(field pvc data '{.spec.volumeName}')
volume=$(field pv "$pv" '{.spec.csi.volumeHandle}')
is volume "$volume" '{.status.phase} {.status.node}' "InUse $node" || fail "the volume: $(k get volume "$volume" -o yaml)"
uid=$(field pod writer '{.metadata.uid}')
mounted=$PEER_KUBELET_ROOT/pods/$uid/volumes/kubernetes.io~csi/$pv/mount
wait_until 20 'the pod writes' test -s "$mounted/beat"
[ "$(stat -f -c %T "$mounted")" = xfs ] || fail "the file system is $(stat -f -c %T "$mounted")"
say 'a pod of the kubelet writes to the volume of a claim that waited for it'

stop_hard() { kill -KILL "$driver" && wait "$driver" 2> /dev/null || true; }
stop_hard
rm -f "$mounted/beat"
wait_until 20 'the pod goes on without the driver' test -s "$mounted/beat"
start_node
wait_until 60 'the kubelet knows the driver again' grep -q 'the kubelet knows the driver' "$work/node.log"
say 'a driver that died is registered again, and the pod went on'

k patch pvc data -p '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}' > /dev/null
wait_until 150 'the claim has grown' is pvc data '{.status.capacity.storage}' 2Gi
[ "$(($(stat -f -c '%b * %S' "$mounted")))" -gt 1900000000 ] || fail "the file system has not grown: $(stat -f "$mounted")"
is pod writer '{.status.phase}' Running || fail 'the pod does not run any more'
say 'it has grown under the pod'

k delete pod writer --timeout=60s > /dev/null
wait_until 120 'it is detached' gone attachment "$volume.$node"
pod reader 'cat /data/word > /dev/null && [ "$(cat /data/word)" = "of the first pod" ]'
wait_until 120 'the next pod has read it' is pod reader '{.status.phase}' Succeeded
k delete pod reader --timeout=60s > /dev/null
k delete pvc data > /dev/null
wait_until 120 'the volume goes with the claim' gone volume "$volume"
[ -z "$(k get volumes,snapshots,attachments -o name)" ] && [ -z "$(find "$work/pool" -name '*.volume')" ] || fail 'something is left'
say 'it outlived its pod, and is gone with the claim'
