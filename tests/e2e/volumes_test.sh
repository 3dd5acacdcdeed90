#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pods with block volumes on a site of local machines: a claim becomes a volume, is attached, formatted and mounted; its data is there for the next pod on another node; it grows under a running pod; a second
# node waits; a volume is restored from a snapshot; the daemon is killed in between; deleting the claim deletes the volume.
#   volumes_test.sh BUILD_DIR
set -euo pipefail
build=${1:?the build folder}
here=$(cd "$(dirname "$0")" && pwd)
# The room of a pool is set aside at once.
[ "$(df --output=avail -B1M /tmp | tail -n 1)" -gt 10500 ] || { echo 'skipped: needs 10 GiB free in /tmp for a pool of volumes'; exit 77; }
# shellcheck source=tests/e2e/site_lib.sh
. "$here/site_lib.sh"

apply() { run apply -f - > "$work/out" 2>&1 || { cat "$work/out"; fail "apply"; }; }
phase_is() { [ "$(run get "$1" "$2" -o json 2> /dev/null | python3 -c "import json,sys; print(json.load(sys.stdin)['status'].get('phase',''))")" = "$3" ]; }
field() { run get "$1" "$2" -o json | python3 -c "import json,sys; o=json.load(sys.stdin); print($3)"; }
gone() { ! run get "$1" "$2" > /dev/null 2>&1; }
change_claim() { # NAME, and what is done to its `spec`
  run get pvc "$1" -o json | python3 -c "
import json, sys
claim = json.load(sys.stdin)
spec = claim['spec']
$2
print(json.dumps({'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', 'metadata': {'name': '$1', 'namespace': 'default'}, 'spec': spec}))" > "$work/claim.json"
  run apply -f "$work/claim.json" > "$work/out" 2>&1 || { cat "$work/out"; fail "change claim $1"; }
}
says() { run get "$1" "$2" -o json 2> /dev/null | grep -qF -- "$3"; }

printf '%s\n' "$(cat << 'YAML'
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: m0}
spec: {local: {cpu: 2, memory: 1Gi}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: m1}
spec: {local: {cpu: 2, memory: 1Gi}}
YAML
)" > "$work/site.yaml"
run up -f "$work/site.yaml" --volumes 9Gi > "$work/out" 2>&1 || { cat "$work/out"; fail 'up'; }
grep -q 'volumes' "$work/out" || { cat "$work/out"; fail 'up does not tell of the pool'; }
note 'up with a pool'
until_true 20 'both nodes reach the pool' bash -c "[ \"\$('$fairlead' get volumepool local -o json | python3 -c \"import json,sys; print(len(json.load(sys.stdin)['status'].get('nodes',[])))\")\" = 2 ]"

# --- a claim, a pod, data
apply << 'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.fairlead.dev
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: xfs, class: local-managed, iops: "5000", encrypted: "true"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
YAML
# pod NAME NODE COMMAND
pod() { apply << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: $2}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox:1
    command: [sh, -c, "$3"]
    volumeMounts: [{name: v, mountPath: /data}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: ${4:-data}}}]
YAML
}
pod writer m0 'echo first > /data/file && sync && while sleep 0.2; do date +%s%N >> /data/log; done'
until_true 60 'the writer runs' phase_is pod writer Running
[ "$(field pvc data "o['status']['phase'], o['status']['capacity']['storage']")" = 'Bound 1Gi' ] || fail "the claim: $(run get pvc data -o json)"
volume=$(field pvc data "o['spec']['volumeName']")
[ "$(field pv "$volume" "o['spec']['csi']['driver'], o['spec']['csi']['volumeHandle'] == '$volume'")" = 'csi.fairlead.dev True' ] || fail 'the PersistentVolume'
[ "$(run exec writer -n default -- cat /data/file)" = first ] || fail 'what was written is not there'
run exec writer -n default -- sh -c 'df -k /data | tail -n 1' > "$work/df"
note "a claim is a volume, attached, formatted and mounted: $(awk '{print $2}' "$work/df") KiB"
says node m0 '"topology.fairlead.dev/pool"' || fail 'the node has no topology'

# --- it grows while the pod runs
change_claim data "spec['resources']['requests']['storage'] = '2Gi'"
grown() { [ "$(run exec writer -n default -- sh -c 'df -k /data | tail -n 1' | awk '{print $2}')" -gt 1900000 ]; }
until_true 60 'the file system in the pod has grown' grown
until_true 20 'the claim tells its size' says pvc data '"storage": "2Gi"'
note 'grown under the running pod'

# --- its limits change while the pod runs
[ "$(field volume "$volume" "o['status']['iops']")" = 5000 ] || fail 'the limit of the storage class'
run volume modify "$volume" --iops 800 --throughput 40 > "$work/out" 2>&1 || { cat "$work/out"; fail 'modify'; }
grep -q '800 operations and 40 MiB a second' "$work/out" || { cat "$work/out"; fail 'modify says what is in force'; }
if run volume modify "$volume" --iops 7 > "$work/out" 2>&1; then fail 'a limit that is too low is taken'; fi
grep -q '100 to 10000000 are expected' "$work/out" || { cat "$work/out"; fail 'what would do is not said'; }
# By the class that the claim names, too.
apply << 'YAML'
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: silver}
driverName: csi.fairlead.dev
parameters: {iops: "2000", throughput: "30"}
---
apiVersion: storage.k8s.io/v1beta1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: csi.fairlead.dev
parameters: {iops: "9000"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: tin}
driverName: csi.fairlead.dev
parameters: {iops: "7"}
YAML
attributes_are() { [ "$(field pvc "$1" "o['status'].get('currentVolumeAttributesClassName'), json.dumps(o['status'].get('modifyVolumeStatus'), sort_keys=True)")" = "$2" ]; }
change_claim data "spec['volumeAttributesClassName'] = 'silver'"
until_true 20 'the claim has the attributes of its class' attributes_are data 'silver null'
[ "$(field volume "$volume" "o['status']['iops'], o['status']['throughputBytes'] >> 20")" = '2000 30' ] || fail 'and so has its volume'
change_claim data "spec['volumeAttributesClassName'] = 'tin'"
until_true 20 'what cannot be is told' attributes_are data 'silver {"status": "Infeasible", "targetVolumeAttributesClassName": "tin"}'
change_claim data "spec['volumeAttributesClassName'] = 'silver'"
until_true 20 'and taken back' attributes_are data 'silver null'
note 'limits change under the running pod, by hand and by a VolumeAttributesClass'

# --- a snapshot under the running pod, while the daemon is killed
run volume snapshot "$volume" --name then > "$work/out" 2>&1 || { cat "$work/out"; fail 'snapshot'; }
run exec writer -n default -- sh -c 'echo second > /data/file && sync'
daemon=$(sed -n 's/^\([0-9]*\).*/\1/p' "$FAIRLEAD_STATE_DIR/pool.pid")
kill -9 "$daemon"
before=$(run exec writer -n default -- wc -l /data/log | awk '{print $1}')
sleep 1
after=$(run exec writer -n default -- wc -l /data/log | awk '{print $1}')
[ "$after" -gt "$before" ] || fail 'I/O stops without the daemon'
run up > "$work/out" 2>&1 || { cat "$work/out"; fail 'up again'; }
until_true 20 'the daemon is back' run volume create spare --size 1Gi --timeout 5
run volume rm spare --yes > /dev/null
note 'the daemon was killed; I/O went on, and it is back'

# --- a second node waits, and has it when the first lets go
pod reader m1 'cat /data/file; sleep 3600'
until_true 30 'the second pod is told why it waits' bash -c "'$fairlead' get events -n default -o json | grep -q 'Multi-Attach error'"
for _ in 1 2 3 4 5 6 7 8; do
  ! phase_is pod reader Running || fail 'two nodes have it'
  sleep 0.5
done
run delete pod writer -n default > /dev/null
until_true 60 'the second pod runs' phase_is pod reader Running
until_true 20 'it reads what the first wrote' bash -c "'$fairlead' logs reader -n default | grep -qx second"
note 'from node to node'

# --- what the snapshot holds
run volume restore then back > "$work/out" 2>&1 || { cat "$work/out"; fail 'restore'; }
apply << 'YAML'
apiVersion: v1
kind: PersistentVolume
metadata: {name: back}
spec:
  capacity: {storage: 2Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: static
  csi: {driver: csi.fairlead.dev, volumeHandle: back}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: back, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: static, volumeName: back, resources: {requests: {storage: 1Gi}}}
YAML
pod restored m0 'cat /data/file; sleep 3600' back
until_true 60 'the restored volume is read' bash -c "'$fairlead' logs restored -n default | grep -qx first"
note 'a volume made of the snapshot holds what was there then (static provisioning)'

# --- claims that begin with a snapshot, or with another claim: copies, beside what they are of
copy() { # NAME NAMESPACE SOURCE
  apply << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1, namespace: $2}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 2Gi}}, $3}
YAML
}
drop_copy() { # NAME: and the room that it is promised
  local of
  of=$(field pvc "$1" "o['spec']['volumeName']")
  run delete pod "$1" -n default > /dev/null
  run delete pvc "$1" -n default > /dev/null
  until_true 60 "the copy $1 goes" gone volume "$of"
}
copy of-then default 'dataSourceRef: {apiGroup: fairlead.dev, kind: Snapshot, name: then}'
pod of-then m1 'cat /data/file; echo mine > /data/file; sync; sleep 3600' of-then
until_true 60 'the claim of a snapshot holds what was there then' bash -c "'$fairlead' logs of-then -n default | grep -qx first"
drop_copy of-then
copy of-data default 'dataSource: {kind: PersistentVolumeClaim, name: data}'
pod of-data m1 'cat /data/file; echo mine > /data/file; sync; sleep 3600' of-data
until_true 60 'the claim of a claim holds what that holds' bash -c "'$fairlead' logs of-data -n default | grep -qx second"
[ "$(run exec reader -n default -- cat /data/file)" = second ] || fail 'what a copy writes is seen in what it was made of'
drop_copy of-data
# A copy that pods of several nodes read at once: what was synced before the snapshot is there, though its log was never replayed, and nobody writes.
apply << 'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: library, namespace: default}
spec: {accessModes: [ReadOnlyMany], storageClassName: fast, resources: {requests: {storage: 2Gi}}, dataSourceRef: {apiGroup: fairlead.dev, kind: Snapshot, name: then}}
YAML
for reader in a:m0 b:m0 c:m1; do pod "reads-${reader%:*}" "${reader#*:}" 'cat /data/file; echo mine > /data/file; sleep 3600' library; done
for reader in a b c; do
  until_true 60 "pod $reader reads what many read" bash -c "'$fairlead' logs reads-$reader -n default | grep -qx first"
  until_true 10 "and does not write" bash -c "'$fairlead' logs reads-$reader -n default | grep -q 'Read-only file system'"
done
[ "$(field volume "$(field pvc library "o['spec']['volumeName']")" "o['status']['node']")" = 'm0, m1' ] || fail 'two nodes have what many read'
library=$(field pvc library "o['spec']['volumeName']")
run delete pod reads-a reads-b reads-c -n default > /dev/null
run delete pvc library -n default > /dev/null
until_true 60 'what many read goes' gone volume "$library"
apply <<< '{apiVersion: v1, kind: Namespace, metadata: {name: strangers}}'
copy stolen strangers 'dataSourceRef: {apiGroup: fairlead.dev, kind: Snapshot, name: then}'
apply << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: thief, namespace: strangers}
spec:
  containers: [{name: c, image: "busybox:1", command: [sleep, "3600"], volumeMounts: [{name: v, mountPath: /data}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: stolen}}]
YAML
until_true 30 'a snapshot of another namespace is not there' bash -c "'$fairlead' get events -n strangers -o json | grep -q 'there is no snapshot then of a claim in namespace strangers'"
[ -z "$(run get pvc stolen -n strangers -o json | python3 -c "import json, sys; print(json.load(sys.stdin)['spec'].get('volumeName', ''))")" ] || fail 'a namespace got what is not its own'
run delete namespace strangers > /dev/null
# One that lives and dies with its pod.
apply << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: short, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: m1}
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "busybox:1", command: [sh, -c, "df /cache | tail -n 1; sleep 3600"], volumeMounts: [{name: cache, mountPath: /cache}]}]
  volumes: [{name: cache, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}}}}]
YAML
until_true 60 'a pod has a volume of its own' bash -c "'$fairlead' logs short -n default | grep -q '^/dev/loop.* /cache'"
own=$(field pvc short-cache "o['spec']['volumeName']")
run delete pod short -n default > /dev/null
until_true 60 'its claim goes with it' gone pvc short-cache
until_true 60 'so does the volume' gone volume "$own"
note 'claims begin with a snapshot or another claim of their namespace; pods of two nodes read one; one lives and dies with its pod'

# --- it goes with its claim, and not before its pod
run delete pvc data -n default --no-wait > /dev/null 2>&1 || run delete pvc data -n default > /dev/null 2>&1 || true
sleep 1
phase_is pod reader Running || fail 'the pod lost its volume'
run get volume "$volume" > /dev/null || fail 'the volume went under its pod'
run delete pod reader -n default > /dev/null
until_true 60 'the volume goes with its claim' gone volume "$volume"
until_true 10 'and its PersistentVolume' gone pv "$volume"
run delete pod restored -n default > /dev/null
run delete pvc back -n default > /dev/null
until_true 30 'a retained volume is free again' phase_is volume back Available
note 'deleted with the claim; a retained one stays'

# --- a second pool, which one of the nodes reaches beside the first
[ "$(cat "/sys/block/$(basename "$(findmnt -n -o SOURCE "$FAIRLEAD_STATE_DIR/pool" || losetup -n -O NAME -j "$FAIRLEAD_STATE_DIR/pool.img")")/loop/dio")" = 1 ] || fail "the pool's image is read and written through the page cache"
"$build/bin/fairlead-volumes" run --folder "$work/far" --image "$work/far.img" --size 4Gi --sparse --name far --nodes kubernetes.io/hostname=m1 --metrics off --kubeconfig "$FAIRLEAD_STATE_DIR/pki/admin.kubeconfig" > "$work/far.log" 2>&1 &
far=$!
end_far() {
  local status=$?
  [ -z "$far" ] || { kill "$far" 2> /dev/null; wait "$far" 2> /dev/null; far=''; "$build/bin/fairlead-volumes" destroy --folder "$work/far" --image "$work/far.img" --yes || status=1; }
  return "$status"
}
trap 'end_far; clean_up' EXIT
until_true 20 'its node tells that it reaches both' says node m1 '"pool.fairlead.dev/far": "true"'
[ "$(field node m1 "o['metadata']['labels']['topology.fairlead.dev/pool']") $(field node m0 "o['metadata']['labels'].get('pool.fairlead.dev/far')")" = 'local None' ] || fail "the labels of the nodes: $(run get nodes -o json)"
# claim NAME CLASS [MORE]
claim() { apply << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: $2, resources: {requests: {storage: 1Gi}}${3:+, $3}}
YAML
}
apply <<< '{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: far}, provisioner: csi.fairlead.dev, volumeBindingMode: WaitForFirstConsumer, parameters: {pool: far, csi.storage.k8s.io/fstype: xfs}}'
claim near fast
claim away far
# Where both are to be had, though nobody says where that is.
apply << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: both, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "busybox:1", command: [sh, -c, "echo near > /near/file; echo away > /away/file; sync; sleep 3600"], volumeMounts: [{name: near, mountPath: /near}, {name: away, mountPath: /away}]}]
  volumes: [{name: near, persistentVolumeClaim: {claimName: near}}, {name: away, persistentVolumeClaim: {claimName: away}}]
YAML
until_true 60 'a pod with claims in both runs' phase_is pod both Running
[ "$(field pod both "o['spec']['nodeName']") $(field volume "$(field pvc near "o['spec']['volumeName']")" "o['spec']['pool']") $(field volume "$(field pvc away "o['spec']['volumeName']")" "o['spec']['pool']")" = 'm1 local far' ] || fail 'where they are'
until_true 20 'it has written' run exec both -n default -- grep -qx away /away/file
# A copy is where its source is, and so its pod. Its class names no pool.
apply <<< '{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: any}, provisioner: csi.fairlead.dev, volumeBindingMode: WaitForFirstConsumer, parameters: {csi.storage.k8s.io/fstype: xfs}}'
claim away-too any 'dataSource: {kind: PersistentVolumeClaim, name: away}'
apply << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: copies, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "busybox:1", command: [sh, -c, "cat /data/file; sleep 3600"], volumeMounts: [{name: v, mountPath: /data}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: away-too}}]
YAML
until_true 60 'a copy in the second pool is read' bash -c "'$fairlead' logs copies -n default | grep -qx away"
[ "$(field pod copies "o['spec']['nodeName']")" = m1 ] || fail 'the pod of a copy is elsewhere'
# What no node can give is told.
pod nowhere m0 'sleep 3600' away
until_true 30 'a pod on the other node is told that it cannot be' bash -c "'$fairlead' get events -n default -o json | grep -q 'volume node affinity conflict'"
run delete pod both copies nowhere -n default > /dev/null
volumes_of_two=$(for one in near away away-too; do field pvc $one "o['spec']['volumeName']"; done)
run delete pvc near away away-too -n default > /dev/null
for one in $volumes_of_two; do until_true 60 'the volumes of both go' gone volume "$one"; done
end_far || fail 'the second pool does not go'
run delete volumepool far > /dev/null
until_true 20 'the node does not tell of it any more' bash -c "! '$fairlead' get node m1 -o json | grep -q pool.fairlead.dev/far"
[ "$(field node m1 "o['metadata']['labels']['topology.fairlead.dev/pool']")" = local ] || fail 'the first pool'
note 'a node that reaches two pools: a pod with a claim in each, and a copy goes to where its source is'

# --- a block device, without a file system
apply << 'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw, namespace: default}
spec: {accessModes: [ReadWriteOncePod], volumeMode: Block, volumeAttributesClassName: gold, storageClassName: fast, resources: {requests: {storage: 1Gi}}}
YAML
# raw_pod NAME NODE READONLY COMMAND
raw_pod() { apply << YAML
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec:
  nodeSelector: {kubernetes.io/hostname: $2}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: c
    image: busybox:1
    command: [sh, -c, "$4"]
    volumeDevices: [{name: v, devicePath: /dev/xvda}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: raw, readOnly: $3}}]
YAML
}
inside() { run exec "$1" -n default -- sh -c "$2"; }
raw_pod raw-writer m0 false 'echo raw-data > /tmp/x && dd if=/tmp/x of=/dev/xvda conv=fsync 2> /dev/null && echo written; sleep 3600'
until_true 60 'a pod writes to its block device' bash -c "'$fairlead' logs raw-writer -n default | grep -qx written"
raw=$(field pvc raw "o['spec']['volumeName']")
[ "$(field pv "$raw" "o['spec']['volumeMode'], 'fsType' in o['spec']['csi']")" = 'Block False' ] || fail 'the PersistentVolume of a block device'
[ "$(inside raw-writer 'blockdev --getsize64 /dev/xvda')" = $((1 << 30)) ] || fail 'the size of the device'
attributes_are raw 'gold null' || fail 'a claim with a class from the beginning'
[ "$(field volume "$raw" "o['status']['iops']")" = 9000 ] || fail 'its volume has the limits of its class'
if inside raw-writer 'ls -l /proc/1/fd' | grep -q loop; then fail 'the container has the descriptor that its monitor holds'; fi
raw_pod raw-second m0 false 'echo in; sleep 3600'
until_true 30 'a second pod is told that it waits' bash -c "'$fairlead' get events -n default -o json | grep -q 'uses the ReadWriteOncePod access mode and is already in use by pod'"
! phase_is pod raw-second Running || fail 'two pods have a volume of ReadWriteOncePod'
run delete pod raw-second -n default > /dev/null
# Another loop device: the container may have its own alone, whatever files it makes.
pool_device=$(basename "$(dirname "$(dirname "$(grep -lF "$FAIRLEAD_STATE_DIR/pool.img" /sys/block/loop*/loop/backing_file | head -n 1)")")")
if inside raw-writer "mknod /tmp/other b 7 ${pool_device#loop} && head -c 4096 /tmp/other" > "$work/out" 2>&1; then fail 'a container reads the device of the whole pool'; fi
grep -q 'Operation not permitted' "$work/out" || { cat "$work/out"; fail 'another device is refused by name'; }
change_claim raw "spec['resources']['requests']['storage'] = '2Gi'"
raw_has_grown() { [ "$(inside raw-writer 'blockdev --getsize64 /dev/xvda')" = $((2 << 30)) ]; }
until_true 60 'the device in the pod has grown' raw_has_grown
# Its number is nobody else's as long as its container lives, whoever takes the attachment away.
device=$(field volume "$raw" "o['status']['device']")
attachment=$(field attachment "$raw.m0" "o['metadata']['uid']")
run volume detach "$raw" m0 --timeout 2 > "$work/out" 2>&1 || true
[ "$(field attachment "$raw.m0" "o['metadata']['uid'] == '$attachment', o['status']['phase']")" = 'True Detaching' ] || fail "a device is taken from under its container: $(run get attachment "$raw.m0" -o json)"
[ "$(inside raw-writer 'head -c 8 /dev/xvda')" = raw-data ] || fail 'the device went under its container'
grep -qF "$raw." "/sys/block/${device#/dev/}/loop/backing_file" || fail "$device is somebody else's"
run delete pod raw-writer -n default > /dev/null
raw_pod raw-reader m1 true 'head -c 8 /dev/xvda; echo; echo spoilt > /tmp/x; dd if=/tmp/x of=/dev/xvda conv=fsync && echo written; sleep 3600'
until_true 60 'the next pod, on another node, reads what was written' bash -c "'$fairlead' logs raw-reader -n default | grep -qx raw-data"
until_true 20 'and does not write where it is to read' bash -c "'$fairlead' logs raw-reader -n default | grep -q 'Operation not permitted'"
[ "$(inside raw-reader 'head -c 8 /dev/xvda')" = raw-data ] || fail 'a read-only device was written to'
run delete pod raw-reader -n default > /dev/null
run delete pvc raw -n default > /dev/null
until_true 60 'the block volume goes with its claim' gone volume "$raw"
note 'a block device: written, grown in the pod, read-only on another node, and no other device'

# --- refused
apply << 'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: many, namespace: default}
spec: {accessModes: [ReadWriteMany], storageClassName: fast, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: huge, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 100Gi}}}
YAML
pod wants-many m0 true many
pod wants-huge m0 true huge
until_true 30 'why there is none is told' bash -c "'$fairlead' get events -n default -o json > $work/events; grep -q 'one node at a time has a volume' $work/events && grep -q 'did not have enough free storage' $work/events"
note 'what cannot be is told at the claim, or at the pod that has no place for it'

# --- stopped and started again: what is in the pool stays; removed: nothing is left
image=$FAIRLEAD_STATE_DIR/pool.img
shown() { grep -lF "$image" /sys/block/loop*/loop/backing_file > /dev/null 2>&1; }
run down --keep-data > "$work/out" 2>&1 || { cat "$work/out"; fail 'down --keep-data'; }
shown && fail 'the pool is mounted still'
run up > "$work/out" 2>&1 || { cat "$work/out"; fail 'up with the old pool'; }
until_true 20 'the volume is there again' phase_is volume back Available
run down --yes > "$work/out" 2>&1 || { cat "$work/out"; fail 'down'; }
[ ! -e "$image" ] || fail 'the pool is there still'
shown && fail 'a device shows the pool still'
[ -z "$(pgrep -f "fairlead-volumes run --folder $FAIRLEAD_STATE_DIR" || true)" ] || fail 'the daemon runs still'
note 'down keeps the pool with --keep-data, and leaves nothing without'
