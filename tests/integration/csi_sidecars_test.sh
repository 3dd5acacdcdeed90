#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a real Kubernetes the standard sidecars turn claims into calls of our driver: provisioned, attached, grown, snapshotted, restored, copied, deleted. kube-apiserver with its controllers and scheduler, the
# sidecars, the driver and the pool are real; the node is an object alone, so nothing is mounted.
#   csi_sidecars_test.sh BUILD_DIR     as root
set -euo pipefail
build=$(realpath "${1:?usage: csi_sidecars_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
[ -n "${FAIRLEAD_SIDECARS_INSIDE:-}" ] || {
  programs=$("$peers/build.sh" --print)
  [ -x "$programs/kube-apiserver" ] && [ -x "$programs/kubectl" ] || { echo "skipped: $programs has no kube-apiserver and kubectl (tests/peers/build.sh builds them)"; exit 77; }
  # They take a quarter of an hour to build: with --full, else where they are there.
  [ -z "${FAIRLEAD_FULL:-}" ] || "$peers/csi.sh" > /dev/null || true
  sidecars=$("$peers/csi.sh" --print)
  for name in csi-provisioner csi-attacher csi-resizer csi-snapshotter snapshot-controller; do [ -x "$sidecars/$name" ] || { echo "skipped: $name is not built (tests/peers/csi.sh)"; exit 77; }; done
  FAIRLEAD_SIDECARS_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$build"
}
programs=$("$peers/build.sh" --print)
sidecars=$("$peers/csi.sh" --print)
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
server=''
after_end() {
  "$build/bin/fairlead-volumes" destroy --folder "$work/pool" --image "$work/pool.img" --yes || return 1
  "$peers/cluster.sh" down "$work/peer" > /dev/null 2>&1
}
say() { printf 'ok  %s\n' "$*"; }
"$peers/cluster.sh" up "$work/peer" > "$work/up.log"
export KUBECONFIG=$work/peer/admin.kubeconfig
k() { "$programs/kubectl" "$@"; }
field() { k get "$1" "$2" -o "jsonpath=$3" 2> /dev/null; }
is() { [ "$(field "$1" "$2" "$3")" = "$4" ]; }
gone() { ! k get "$1" "$2" > /dev/null 2>&1; }

for kind in volumepools volumes snapshots attachments; do k apply -f "$top/deploy/helm/fairlead/files/crds/$kind.fairlead.dev.yaml" > /dev/null; done
k apply -f "$sidecars/crds" > /dev/null
k wait --for=condition=established crd --all --timeout=60s > /dev/null
k apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Node
metadata: {name: here, labels: {topology.fairlead.dev/pool: here}}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: here}
spec: {drivers: [{name: csi.fairlead.dev, nodeID: here, topologyKeys: [topology.fairlead.dev/pool]}]}
---
apiVersion: v1
kind: Node
metadata: {name: there, labels: {topology.fairlead.dev/pool: here}}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: there}
spec: {drivers: [{name: csi.fairlead.dev, nodeID: there, topologyKeys: [topology.fairlead.dev/pool]}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.fairlead.dev}
spec: {attachRequired: true, podInfoOnMount: false}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.fairlead.dev
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: xfs}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: fast}
driver: csi.fairlead.dev
deletionPolicy: Delete
YAML
start volumes.log "$build/bin/fairlead-volumes" run --folder "$work/pool" --image "$work/pool.img" --size 20Gi --sparse --name here --nodes topology.fairlead.dev/pool=here --kubeconfig "$KUBECONFIG" --metrics off
wait_until 30 'the pool is known' is volumepool here '{.status.nodes[0]}' here
socket=$work/csi.sock
start driver.log "$build/bin/fairlead-csi" serve --endpoint "unix://$socket" --controller --kubeconfig "$KUBECONFIG"
wait_until 20 'the driver serves' test -S "$socket"
common=(--csi-address="$socket" --kubeconfig="$KUBECONFIG" --leader-election=false)
start provisioner.log "$sidecars/csi-provisioner" "${common[@]}" --feature-gates=Topology=true --extra-create-metadata --default-fstype=ext4
start attacher.log "$sidecars/csi-attacher" "${common[@]}"
start resizer.log "$sidecars/csi-resizer" "${common[@]}"
start snapshotter.log "$sidecars/csi-snapshotter" "${common[@]}"
start snapshots.log "$sidecars/snapshot-controller" --kubeconfig="$KUBECONFIG" --leader-election=false

# claim NAME SIZE [SOURCE-YAML [MODE]]
claim() {
  local source=''
  [ -z "${3:-}" ] || source=", dataSource: {$3}"
  k apply -f - > /dev/null << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec: {accessModes: [${4:-ReadWriteOnce}], storageClassName: fast, resources: {requests: {storage: $2}}$source}
YAML
}
claim data 1Gi
wait_until 60 'the claim is bound' is pvc data '{.status.phase}' Bound
pv=$(field pvc data '{.spec.volumeName}')
volume=$(field pv "$pv" '{.spec.csi.volumeHandle}')
is volume "$volume" '{.status.phase}' Available || fail "the volume behind it: $(k get volume "$volume" -o yaml)"
is volume "$volume" '{.spec.tags.pvc/name}' data || fail 'the volume does not say whose it is'
is pv "$pv" '{.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}' here || fail "where it is: $(k get pv "$pv" -o yaml)"
say 'a claim is a volume, with its topology'

k apply -f - > /dev/null << YAML
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: try}
spec: {attacher: csi.fairlead.dev, nodeName: here, source: {persistentVolumeName: $pv}}
YAML
wait_until 60 'it is attached' is volumeattachment try '{.status.attached}' true
device=$(field volumeattachment try '{.status.attachmentMetadata.device}')
[ -b "$device" ] && [ "$(blockdev --getsize64 "$device")" = 1073741824 ] || fail "the device $device"
say "attached as $device"

k patch pvc data -p '{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}' > /dev/null
wait_until 60 'the volume has grown' is volume "$volume" '{.status.sizeBytes}' 3221225472
[ "$(blockdev --getsize64 "$device")" = 3221225472 ] || fail 'the device has not grown'
wait_until 60 'the PersistentVolume tells it' is pv "$pv" '{.spec.capacity.storage}' 3Gi
say 'grown while it is attached'

printf 'what was there' | dd of="$device" bs=4096 conv=sync,fsync oflag=direct status=none
k apply -f - > /dev/null << 'YAML'
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then}
spec: {volumeSnapshotClassName: fast, source: {persistentVolumeClaimName: data}}
YAML
wait_until 60 'the snapshot is ready' is volumesnapshot then '{.status.readyToUse}' true
printf 'what came later' | dd of="$device" bs=4096 conv=sync,fsync oflag=direct status=none
claim restored 3Gi 'apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then'
claim twin 3Gi 'kind: PersistentVolumeClaim, name: data'
for name in restored twin; do wait_until 60 "the claim $name is bound" is pvc "$name" '{.status.phase}' Bound; done
holds() { # CLAIM: the first bytes of its volume
  local of
  of=$(field pv "$(field pvc "$1" '{.spec.volumeName}')" '{.spec.csi.volumeHandle}')
  dd if="$work/pool/$of.volume" bs=4096 count=1 status=none | tr -d '\0'
}
[ "$(holds restored)" = 'what was there' ] || fail "restored: $(holds restored)"
[ "$(holds twin)" = 'what came later' ] || fail "the copy: $(holds twin)"
say 'a snapshot, a volume made of it, and a copy'

claim many 3Gi 'apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then' ReadOnlyMany
wait_until 60 'what many are to read is bound' is pvc many '{.status.phase}' Bound
many=$(field pvc many '{.spec.volumeName}')
for node in here there; do
  k apply -f - > /dev/null << YAML
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: many-$node}
spec: {attacher: csi.fairlead.dev, nodeName: $node, source: {persistentVolumeName: $many}}
YAML
done
for node in here there; do wait_until 60 "$node reads it" is volumeattachment "many-$node" '{.status.attached}' true; done
device=$(field volumeattachment many-here '{.status.attachmentMetadata.device}')
[ "$(field volumeattachment many-there '{.status.attachmentMetadata.device}')" = "$device" ] && [ "$(blockdev --getro "$device")" = 1 ] || fail "two nodes do not read one device: $(k get volumeattachments -o yaml)"
[ "$(dd if="$device" bs=4096 count=1 status=none | tr -d '\0')" = 'what was there' ] || fail 'what many read is not what the snapshot holds'
k delete volumeattachment many-here many-there > /dev/null
say 'two nodes read one copy of a snapshot'

k delete pvc restored twin many > /dev/null
k delete volumesnapshot then > /dev/null
k delete volumeattachment try --wait=false > /dev/null
wait_until 60 'it is detached' gone volumeattachment try
wait_until 20 'its Attachment is gone' gone attachment "$volume.here"
k delete pvc data > /dev/null
wait_until 60 'the volume goes with the claim' gone volume "$volume"
nothing_left() { [ -z "$(k get volumes,snapshots,attachments -o name)" ] && [ -z "$(find "$work/pool" -name '*.volume' -o -name '*.snapshot' -o -name '*.part')" ]; }
wait_until 60 'nothing is left' nothing_left
say 'deleted with what asked for it'
