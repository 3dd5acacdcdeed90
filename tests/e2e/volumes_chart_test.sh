#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Volumes by the chart on a real kubelet: its pods make the pool and the driver from the image of images/fairlead, the standard sidecars run beside the controller, a pod's claim becomes a volume, grows, is
# copied by a VolumeSnapshot, and is gone with the claim. So does that of a Slurm worker, under a job (examples/volumes). The chart's pods are deleted and come again: the pod that uses the volume goes on. No request is refused, and an uninstall leaves the pool's data.
#   volumes_chart_test.sh BUILD_DIR     as root; everything happens in namespaces of its own
set -euo pipefail
build=$(realpath "${1:?usage: volumes_chart_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
programs=$("$peers/build.sh" --print)
sidecars=$("$peers/csi.sh" --print)
version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' "$top/CMakeLists.txt")
host=10.87.0.1
case ${FAIRLEAD_KUBELET_STAGE:-} in
'')
  for name in kube-apiserver kubectl helm; do [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh)"; exit 77; }; done
  # They take a quarter of an hour to build: with --full, else where they are there.
  [ -z "${FAIRLEAD_FULL:-}" ] || { "$peers/csi.sh" && "$peers/kubelet.sh" --prepare; } > /dev/null || true
  [ -x "$programs/kubelet" ] || { echo "skipped: the kubelet is not built (tests/peers/kubelet.sh --prepare)"; exit 77; }
  for name in csi-provisioner csi-attacher csi-resizer csi-snapshotter snapshot-controller; do [ -x "$sidecars/$name" ] || { echo "skipped: $name is not built (tests/peers/csi.sh)"; exit 77; }; done
  for tool in umoci skopeo nft; do command -v $tool > /dev/null || { echo "skipped: $tool is missing (tools/packages-test.txt)"; exit 77; }; done
  # While there is a network: the image's packages may have to be fetched.
  FAIRLEAD_TEST_IMAGES=$(mktemp -d /var/tmp/fairlead-volumes-chart-images-XXXXXX)
  export FAIRLEAD_TEST_IMAGES
  trap 'rm -rf "$FAIRLEAD_TEST_IMAGES"' EXIT
  "$top/images/build.sh" "$top/images/slurm" /var/lib/fairlead/images > "$FAIRLEAD_TEST_IMAGES/log" 2>&1 || { tail -n 20 "$FAIRLEAD_TEST_IMAGES/log" >&2; exit 1; }
  "$top/images/fairlead/build.sh" "$build" "$FAIRLEAD_TEST_IMAGES" --only fairlead-volumes > "$FAIRLEAD_TEST_IMAGES/log" 2>&1 || { tail -n 20 "$FAIRLEAD_TEST_IMAGES/log" >&2; exit 1; }
  # shellcheck source=tests/e2e/slim_image.sh
  . "$top/tests/e2e/slim_image.sh"
  mkdir "$FAIRLEAD_TEST_IMAGES/store"
  cp -al /var/lib/fairlead/images/slurm "$FAIRLEAD_TEST_IMAGES/store/"
  training_image "$FAIRLEAD_TEST_IMAGES/store" lean 1
  FAIRLEAD_KUBELET_STAGE=cluster unshare --net --mount --propagation private bash "$0" "$build"
  exit
  ;;
cluster)
  # shellcheck source=tests/lib.sh
  . "$top/tests/lib.sh"
  after_end() { "$peers/cluster.sh" down "$work/peer" > /dev/null 2>&1; }
  mkdir -p /var/log/pods
  mount -t tmpfs none /var/log/pods
  ip link set lo up
  ip address add $host/32 dev lo
  export KUBECONFIG=$work/peer/admin.kubeconfig
  "$peers/cluster.sh" up "$work/peer" --bind 0.0.0.0 --advertise $host > "$work/up.log" 2>&1 || fail "the cluster does not start: $(tail -n 5 "$work/up.log")"
  # What kube-proxy would do: pods reach the API server at its service address.
  nft -f - << TEXT || fail 'the packet filter takes no rule'
table ip service {
  chain prerouting { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 tcp dport 443 dnat to $host:$(sed -E 's/.*://' "$work/peer/run/address"); }
}
TEXT
  cat > "$work/then.sh" << TEXT
exec env FAIRLEAD_KUBELET_STAGE=pods FAIRLEAD_PEER=$(printf '%q' "$work/peer") bash $(printf '%q' "$top/tests/e2e/$(basename "$0")") $(printf '%q' "$build")
TEXT
  status=0
  start dns.log python3 "$peers/dns.py" "$host" "$programs/kubectl"
  PEER_KUBELET_ADDRESS=$host PEER_KUBELET_DNS=$host PEER_KUBELET_THEN=$work/then.sh "$peers/kubelet.sh" "$work/peer" || status=$?
  [ "$status" = 0 ] || fail "exit status $status"
  exit 0
  ;;
esac

# --- beside the kubelet, in its mount namespace
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
node=$PEER_KUBELET_NODE containerd=${PEER_KUBELET_ROOT%/*}/containerd.sock folder=$work/volumes
export HELM_CACHE_HOME=$work/helm/cache HELM_CONFIG_HOME=$work/helm/config HELM_DATA_HOME=$work/helm/data NO_COLOR=1
say() { printf '%4d s  ok  %s\n' "$SECONDS" "$*"; }
export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false # its client loses what a command that ends at once has said ("Unknown stream id 1")
k() { "$programs/kubectl" --request-timeout=20s "$@"; }
field() { k get "$1" -o "jsonpath=$2" "${@:3}" 2> /dev/null; } # KIND/NAME PATH [-n NAMESPACE]
is() { [ "$(field "$1/$2" "$3" "${@:5}")" = "$4" ]; }            # KIND NAME PATH WORDS [-n NAMESPACE]
gone() { ! k get "$1" "$2" > /dev/null 2>&1; }
before_end() {
  local log
  if [ "$1" != 0 ]; then
    { k get events -A --sort-by=.metadata.creationTimestamp | tail -n 12; k get pods,pvc,pv,volumes,volumepools,attachments,csinodes -A -o wide; k get slurmclusters -A -o 'jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'; } > "$work/objects.log" 2>&1 || true
    for log in /var/log/pods/fairlead-system_*/*/*.log; do tail -n 8 "$log" > "$work/$(basename "${log%/*}")-of-$(basename "${log%/*/*}" | sed -E 's/_[0-9a-f-]*$//; s/.*-//').log" || true; done
    # As far as it still works: what is mounted would outlive the test.
    { k delete namespace demo --timeout=60s; k delete pods --all --timeout=60s; k delete pvc --all --timeout=60s; "$programs/helm" uninstall f -n fairlead-system --wait --timeout 2m; } > /dev/null 2>&1 || true
  fi
}
after_end() {
  "$build/bin/fairlead-volumes" destroy --folder "$folder/pool" --image "$folder/pool.img" --yes
}

# As systemd makes it on a node: what is mounted in a container is to be seen outside. What engines serve is there as well, and not the machine's own.
mkdir -p /run/fairlead-volumes
mount -t tmpfs none /run/fairlead-volumes
mount --make-rshared /
# archive OUT NAME:TAG=FILES...: images of one layer each. FILES is a folder, or a program.
archive() {
  python3 - "$@" << 'PYTHON'
import hashlib, io, json, os, subprocess, sys, tarfile
out, *images = sys.argv[1:]
manifest = []
with tarfile.open(out, "w") as tar:
    def put(name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    for image in images:
        name, root = image.split("=", 1)
        short = name.split(":")[0]
        whole = not os.path.isfile(root)
        subprocess.run(["tar", "--numeric-owner", "-C", root if whole else os.path.dirname(root), "-cf", out + ".layer", "." if whole else os.path.basename(root)], check=True)
        with open(out + ".layer", "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        tar.add(out + ".layer", short + ".layer.tar")
        os.unlink(out + ".layer")
        settings = {"Env": ["PATH=/opt/fairlead/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]} if whole else {"Entrypoint": ["/" + os.path.basename(root)]}
        put(short + ".json", json.dumps({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": {"type": "layers", "diff_ids": ["sha256:" + digest]}}).encode())
        manifest.append({"Config": short + ".json", "RepoTags": ["fairlead.local/" + name], "Layers": [short + ".layer.tar"]})
    put("manifest.json", json.dumps(manifest).encode())
PYTHON
}
archive "$work/images.tar" "csi-provisioner:1=$sidecars/csi-provisioner" "csi-attacher:1=$sidecars/csi-attacher" "csi-resizer:1=$sidecars/csi-resizer" "csi-snapshotter:1=$sidecars/csi-snapshotter" "slurm:22.05=$FAIRLEAD_TEST_IMAGES/store/lean/1/rootfs"
for archive in "$work/images.tar" "$FAIRLEAD_TEST_IMAGES/fairlead-volumes.docker.tar"; do ctr -a "$containerd" -n k8s.io images import "$archive" > "$work/out" 2>&1 || fail "containerd does not take $archive"; done
rm "$work/images.tar"

cat > "$work/values.yaml" << YAML
server: {replicas: 0}
agent: {enabled: false}
volumes:
  enabled: true
  folder: $folder
  size: 16Gi
  sparse: true
  kubeletDir: $PEER_KUBELET_ROOT
  tolerations: [{operator: Exists}]
  storageClass: {create: true}
  engines: {encryption: true, terminationGracePeriodSeconds: 3}
  snapshots: {enabled: true, class: {create: true}}
  controller:
    tolerations: [{operator: Exists}]
    images: {provisioner: "fairlead.local/csi-provisioner:1", attacher: "fairlead.local/csi-attacher:1", resizer: "fairlead.local/csi-resizer:1", snapshotter: "fairlead.local/csi-snapshotter:1"}
YAML
# Of VolumeSnapshots the cluster has its own controller.
k apply -f "$sidecars/crds" > /dev/null
k wait --for=condition=established crd --all --timeout=60s > /dev/null
start snapshots.log "$sidecars/snapshot-controller" --kubeconfig="$KUBECONFIG" --leader-election=false
"$programs/helm" install f "$top/deploy/helm/fairlead" -n fairlead-system --create-namespace -f "$work/values.yaml" > "$work/out" 2>&1 || fail 'helm install'
pods_of() { k -n fairlead-system get pods -l "app.kubernetes.io/component=$1" -o name; }
ready() { k -n fairlead-system wait --for=condition=Ready pod -l "app.kubernetes.io/component=$1" --timeout=2s; }
wait_until 120 "the node's pod is ready" ready volumes
wait_until 60 "the engines' pod is ready" ready volumes-engines
wait_until 120 "the controller's pods are ready" ready volumes-controller
wait_until 60 'the pool is known' is volumepool "$node" '{.status.nodes[0]}' "$node"
wait_until 60 'the kubelet knows the driver' is csinode "$node" '{.spec.drivers[0].name} {.spec.drivers[0].topologyKeys[0]}' 'csi.fairlead.dev topology.fairlead.dev/pool'
# What the scheduler goes by: the pool's room, per class.
has_capacity() { k -n fairlead-system get csistoragecapacities -o 'jsonpath={range .items[*]}{.storageClassName} {.capacity} {.nodeTopology.matchLabels}{"\n"}{end}' > "$work/capacity" && grep -qE '^[a-z-]+ [0-9]+(Mi|Gi|Ki)? .*topology.fairlead.dev/pool' "$work/capacity"; }
wait_until 90 'the room of the pool is told to the scheduler' has_capacity
[ "$(stat -f -c %T "$folder/pool")" = xfs ] || fail 'the pool is not mounted where the node sees it'
say "the chart's pods run: a pool on the node, and its driver is known"

# A Slurm cluster whose workers have a volume each, by the server's own account. Its pods come up while the rest goes on.
mkdir "$work/companion"
cp "$build/bin/fairlead-slurm" "$work/companion/"
(umask 077 && sed '/^users:/,$d' "$KUBECONFIG" > "$work/server.kubeconfig" && cat >> "$work/server.kubeconfig" << TEXT
users: [{name: server, user: {token: $(k -n fairlead-system create token f-fairlead-server)}}]
contexts: [{name: peer, context: {cluster: peer, user: server}}]
current-context: peer
TEXT
)
start server.log "$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$work/server.kubeconfig" --state-dir "$work/server" --namespace fairlead-system --health-listen 127.0.0.1:0 --companion-dir "$work/companion" --slurm-image fairlead.local/slurm:22.05
server=$last
kd() { k -n demo "$@"; }
k create namespace demo > /dev/null
kd apply -f - > "$work/out" 2>&1 << 'YAML' || fail 'a Slurm cluster'
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo}
spec:
  k8sNodeFilters: [{name: all, tolerations: [{operator: Exists}]}]
  volumeSources: [{name: jail, emptyDir: {}}, {name: state, emptyDir: {}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, slurmctld: {resources: {cpu: 100m, memory: 256Mi}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, volumes: {spool: {volumeSourceName: state}, jail: {volumeSourceName: jail}}}
    login: {size: 0, k8sNodeFilterName: all, sshRootPublicKeys: [], volumes: {jail: {volumeSourceName: jail}}}
  extensions: {bindCores: false}
YAML
# The example, for this cluster: it has one node, its own image and no shared volume.
example() { sed -e 's#repository: slurm,#repository: fairlead.local/slurm,#' -e 's/^  nodeSelector: .*/  tolerations: [{operator: Exists}]/' -e 's/jail: {persistentVolumeClaim.*/jail: {emptyDir: {}}/' "${@:2}" "$top/examples/volumes/$1" | k apply -f - > "$work/out" 2>&1 || fail "examples/volumes/$1"; }
example workers.yaml

k apply -f - > "$work/out" 2>&1 << YAML || fail 'a claim and its pod'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: fairlead, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "fairlead.local/try:1", imagePullPolicy: Never, command: [sh, -c, "while :; do echo alive > /data/beat; sleep 1; done"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
YAML
wait_until 120 'the pod runs' is pod writer '{.status.phase}' Running
pv=$(field pvc/data '{.spec.volumeName}')
volume=$(field "pv/$pv" '{.spec.csi.volumeHandle}')
mounted=$PEER_KUBELET_ROOT/pods/$(field pod/writer '{.metadata.uid}')/volumes/kubernetes.io~csi/$pv/mount
wait_until 20 'the pod writes' test -s "$mounted/beat"
[ "$(stat -f -c %T "$mounted")" = xfs ] || fail "the file system is $(stat -f -c %T "$mounted")"
say 'a pod writes to the volume of its claim'

# One that is encrypted and held to limits, by an engine in a pod of its own.
k apply -f - > "$work/out" 2>&1 << YAML || fail 'a claim of an encrypted volume'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: sealed}
provisioner: csi.fairlead.dev
volumeBindingMode: WaitForFirstConsumer
parameters: {class: local-managed, encrypted: "true", iops: "2000", csi.storage.k8s.io/fstype: xfs}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: sealed}
spec: {accessModes: [ReadWriteOnce], storageClassName: sealed, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: sealer}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "fairlead.local/try:1", imagePullPolicy: Never, command: [sh, -c, "echo in-nobodys-hands > /data/kept; sync; while :; do echo alive > /data/beat && sync; sleep 1; done"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: sealed}}]
YAML
wait_until 120 'the pod with the encrypted volume runs' is pod sealer '{.status.phase}' Running
sealed_pv=$(field pvc/sealed '{.spec.volumeName}')
sealed=$(field "pv/$sealed_pv" '{.spec.csi.volumeHandle}')
sealed_at=$PEER_KUBELET_ROOT/pods/$(field pod/sealer '{.metadata.uid}')/volumes/kubernetes.io~csi/$sealed_pv/mount
wait_until 20 'it writes' test -s "$sealed_at/beat"
engine=$(pgrep -f "^.?usr/bin/fairlead-disk serve --file $folder/pool/$sealed.volume ") || fail 'no engine serves it'
grep -q -a -m 1 LUKS "$folder/pool/$sealed.volume" || fail 'it has no header of an encrypted volume'
! grep -q -a in-nobodys-hands "$folder/pool/$sealed.volume" || fail 'what was written lies readable on the disk'
[ "$(field "volume/$sealed" '{.status.iops}')" = 2000 ] || fail "its limits are $(field "volume/$sealed" '{.status}')"
say 'an encrypted volume with limits is served by an engine in a pod of its own'

slurm() { kd exec controller-0 -c slurmctld -- "$@"; }
worker_is_idle() { [ "$(slurm sinfo -h -N -n "$1" -o %t | tr -d '[:space:]')" = idle ]; }
wait_until 120 'the Slurm worker is idle' worker_is_idle data-0
of_worker=$PEER_KUBELET_ROOT/pods/$(field pod/data-0 '{.metadata.uid}' -n demo)/volumes/kubernetes.io~csi/$(field pvc/sub-data-demo-data-0 '{.spec.volumeName}' -n demo)/mount
cp -r "$top/tests/data/blocks.py" "$top/examples/train-gpt" "$top/examples/volumes/train.sbatch" "$of_worker/"
sync -f "$of_worker" # a snapshot holds what was synced
# There is no shared home: the training's folder is on the volume, too. It begins when it is told to.
train='SLURM_SUBMIT_DIR=/data/train-gpt bash train.sbatch --steps 100 --batch 8 --checkpoint-every 10 --print-every 10'
job=$(slurm sbatch --parsable -D /data -C data -c 1 -t 20 -o train.out --wrap "python3 -u blocks.py write /data > write.out 2>&1 & until [ -e go ]; do sleep 0.2; done; $train && wait \$!" | tr -d '[:space:]')
job_is() { slurm scontrol show job "$job" | grep -q "JobState=$1"; }
blocks() { awk '$1 ~ /^[0-9]+$/ { n = $1 } END { print n + 0 }' "$of_worker/write.out"; }
has_written() { [ "$(blocks)" -gt "$1" ]; }
wait_until 60 'the Slurm job writes' has_written 20
say 'a Slurm job writes to the volume of its worker'

example workers.yaml -e 's/storage: 1Gi/storage: 2Gi/'
k patch pvc data -p '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}' > /dev/null
wait_until 60 'the template makes the claim larger' is pvc sub-data-demo-data-0 '{.spec.resources.requests.storage}' 2Gi -n demo
grows() { is pvc "$1" '{.status.allocatedResourceStatuses.storage}' NodeResizePending "${@:2}" || is pvc "$1" '{.status.capacity.storage}' 2Gi "${@:2}"; }
wait_until 90 'the volumes have grown' eval 'grows data && grows sub-data-demo-data-0 -n demo'
# The kubelet looks after a pod's volumes when something about the pod changes, else once in a minute or so.
k annotate pod writer look=now > /dev/null
kd annotate pod data-0 look=now > /dev/null
wait_until 150 'the claim has grown' is pvc data '{.status.capacity.storage}' 2Gi
[ "$(($(stat -f -c '%b * %S' "$mounted")))" -gt 1900000000 ] || fail "the file system has not grown: $(stat -f "$mounted")"
say 'it has grown under the pod'
wait_until 150 'the Slurm job has more room' grep -qx grown "$of_worker/write.out"
wait_until 60 'its claim tells the size' is pvc sub-data-demo-data-0 '{.status.capacity.storage}' 2Gi -n demo
job_is RUNNING || fail "the Slurm job does not run any more: $(tail -n 5 "$of_worker/write.out")"
say "a larger template has made the volume of the Slurm worker larger under its job, which has filled more than it had before"

k apply -f - > "$work/out" 2>&1 << 'YAML' || fail 'a snapshot and a claim of it'
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then}
spec: {volumeSnapshotClassName: fairlead, source: {persistentVolumeClaimName: data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: restored}
spec: {accessModes: [ReadWriteOnce], storageClassName: fairlead, resources: {requests: {storage: 2Gi}}, dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then}}
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "fairlead.local/try:1", imagePullPolicy: Never, command: [sh, -c, "cat /data/beat"], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: restored}}]
YAML
touch "$of_worker/go"
wait_until 120 'a checkpoint is saved' eval 'ls "$of_worker"/checkpoints/step-*.pt'
before=$(blocks)
kd apply -f - > "$work/out" 2>&1 << 'YAML' || fail 'a snapshot under the Slurm job'
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: then}
spec: {volumeSnapshotClassName: fairlead, source: {persistentVolumeClaimName: sub-data-demo-data-0}}
YAML
example restored.yaml -e 's/dataSourceRef: .*/dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: then}/'
wait_until 60 'the snapshot is taken' is volumesnapshot then '{.status.readyToUse}' true -n demo
! grep -q '^final loss' "$of_worker/train.out" || fail 'the training was over before the snapshot'
wait_until 60 'the Slurm job writes on' has_written "$((before + 50))"
touch "$of_worker/stop"
wait_until 180 'the Slurm job ends by itself' job_is COMPLETED
written=$(awk '$1 == "written" { print $2 }' "$of_worker/write.out")
[ "$(python3 "$top/tests/data/blocks.py" check "$of_worker")" = "$written" ] || fail "not all of $written blocks are there"
wait_until 150 'a pod has read what the snapshot holds' is pod reader '{.status.phase}' Succeeded
k delete pod reader --timeout=60s > /dev/null
k delete pvc restored > /dev/null
k delete volumesnapshot then --timeout=60s > /dev/null
say 'a claim begins with a VolumeSnapshot'
# So it does after files of ConfigMaps: the head is to know the new set.
wait_until 60 'the configuration has the set' eval 'kd get configmap demo-slurm-configs -o yaml | grep -q NodeSet=restored'
kd annotate pod controller-0 look=now > /dev/null
wait_until 150 'the Slurm worker with a copy is idle' worker_is_idle restored-0
copied=$(slurm srun -D / -C restored python3 /data/blocks.py check /data) || fail "the copy is not whole: $copied"
((copied >= before && copied < written)) || fail "the copy has $copied blocks; $before were written before the snapshot, $written in all"
say "the Slurm job wrote $written blocks without an error; a worker with a copy of the snapshot, taken after $before, has $copied whole ones"
job=$(slurm sbatch --parsable -D /data -C restored -c 1 -t 20 -o again.out --wrap "$train" | tr -d '[:space:]')
wait_until 180 'the second training ends' job_is COMPLETED
slurm srun -D / -C restored cat /data/again.out > "$work/again.out"
step=$(sed -nE 's/^resumed from .*\(step ([0-9]+)\)$/\1/p' "$work/again.out")
{ [ -n "$step" ] && ((step >= 10 && step < 100)); } || fail "the second training did not go on from the checkpoint: $(tail -n 5 "$work/again.out")"
[ "$(grep '^final loss' "$work/again.out")" = "$(grep '^final loss' "$of_worker/train.out")" ] || fail "the trainings end differently: $(tail -n 5 "$work/again.out")"
say "a training on the copy went on from step $step and came to the same $(grep '^final loss' "$work/again.out")"
uid=$(field pod/data-0 '{.metadata.uid}' -n demo)
kd delete pod data-0 --timeout=60s > /dev/null
wait_until 120 'the worker is made anew' eval '[ "$(field pod/data-0 "{.metadata.uid}" -n demo)" != "$uid" ] && worker_is_idle data-0'
[ "$(slurm srun -D / -C data python3 /data/blocks.py check /data)" = "$written" ] || fail 'the worker that was made anew has other data'
kd delete nodesets --all --timeout=90s > "$work/out" 2>&1 || fail 'delete the NodeSets'
kd delete slurmcluster demo --timeout=60s > "$work/out" 2>&1 || fail 'delete the SlurmCluster'
[ "$(kd get pvc -o name | wc -l)" = 2 ] || fail "the workers' claims went with them"
k delete namespace demo --timeout=120s > "$work/out" 2>&1 || fail 'delete the namespace'
stop "$server" || fail 'the server'
server=''
say "a worker that was made anew has its data; claims stay until they are deleted"

# All of the chart's pods anew, as at an upgrade.
old=$(pods_of volumes)
k -n fairlead-system delete pod -l 'app.kubernetes.io/component in (volumes, volumes-controller)' --timeout=60s > "$work/out" 2>&1 || fail "delete the chart's pods"
rm -f "$mounted/beat" "$sealed_at/beat"
wait_until 20 'the pod goes on without them' test -s "$mounted/beat"
wait_until 20 'so does that with an engine' test -s "$sealed_at/beat"
wait_until 60 'others are there' eval '[ -n "$(pods_of volumes)" ] && [ "$(pods_of volumes)" != "$old" ]'
wait_until 120 "the node's pod is ready again" ready volumes
wait_until 120 "the controller's pods are ready again" ready volumes-controller
wait_until 60 'the volume is known as in use' is volume "$volume" '{.status.phase} {.status.node}' "InUse $node"
[ "$(grep -c " $folder/pool " /proc/self/mountinfo)" = 1 ] || fail "the pool is mounted otherwise than once: $(grep " $folder/pool " /proc/self/mountinfo)"
kill -0 "$engine" || fail 'the engine has ended with them'
# The new daemon changes the limits of an engine that it did not start.
k patch volume "$sealed" --type=merge -p '{"spec":{"iops":3000}}' > /dev/null
wait_until 30 'the limits have changed' is volume "$sealed" '{.status.iops}' 3000
say "the chart's pods were made anew; the pods went on, that with an engine, too, whose limits the new one changed"
# Nor are they taken away by a choice while they serve.
for choice in volumes.engines.enabled=false volumes.enabled=false; do
  ! "$programs/helm" upgrade f "$top/deploy/helm/fairlead" -n fairlead-system -f "$work/values.yaml" --set "$choice" > "$work/out" 2>&1 || fail "an upgrade with $choice takes the engines away"
  grep -q "$sealed on node $node would lose its disk" "$work/out" || fail "the upgrade with $choice does not say why it is refused"
done
# Who takes the engines' pod away takes their volumes: it is told, and mended once nobody uses what is broken.
k -n fairlead-system delete pod -l app.kubernetes.io/component=volumes-engines --timeout=60s > "$work/out" 2>&1 || fail "delete the engines' pod"
! kill -0 "$engine" 2> /dev/null || fail 'the engine goes on without its pod'
tells() { field "attachment/$sealed.$node" '{.status.message}' | grep -q .; }
wait_until 30 'it is told at the attachment' tells
k delete pod sealer --timeout=60s > /dev/null
wait_until 120 "another engines' pod is ready" ready volumes-engines
k run opener --image=fairlead.local/try:1 --image-pull-policy=Never --restart=Never --overrides='{"spec":{"automountServiceAccountToken":false,"tolerations":[{"operator":"Exists"}],"containers":[{"name":"main","image":"fairlead.local/try:1","imagePullPolicy":"Never","command":["sh","-c","read words < /data/kept; echo $words; [ $words = in-nobodys-hands ]"],"volumeMounts":[{"name":"data","mountPath":"/data"}]}],"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"sealed"}}]}}' > "$work/out" 2>&1 || fail 'another pod for the encrypted volume'
has_ended() { [[ $(field pod/opener '{.status.phase}') =~ ^(Succeeded|Failed)$ ]]; }
wait_until 150 'the next pod has ended' has_ended
is pod opener '{.status.phase}' Succeeded || fail "the next pod has not what was synced: $(k logs opener 2>&1; k get pod opener -o 'jsonpath={.status.containerStatuses}')"
k delete pod opener --timeout=60s > /dev/null
k delete pvc sealed > /dev/null
wait_until 150 'the encrypted volume goes with its claim' gone volume "$sealed"
say "the engines' pod was deleted: that was told, and the next pod found what was synced"

k delete pod writer --timeout=60s > /dev/null
k delete pvc data > /dev/null
wait_until 150 'the volume goes with the claim' gone volume "$volume"
[ -z "$(k get volumes,snapshots,attachments -o name)" ] && [ -z "$(find "$folder/pool" -name '*.volume')" ] || fail 'something is left'
say 'it is gone with the claim'

python3 - "$FAIRLEAD_PEER/log/audit.jsonl" << 'TEXT' > "$work/out" || fail 'the pods asked for what the chart does not grant, or too little'
import json, sys
asked = {}
for line in open(sys.argv[1]):
    event = json.loads(line)
    user = event["user"].get("username", "")
    if user.startswith("system:serviceaccount:fairlead-system:"):
        asked[user] = asked.get(user, 0) + 1
        if event.get("responseStatus", {}).get("code") == 403:
            print(user, event["verb"], event["requestURI"])
            asked[""] = 1
print(asked)
# Of the node's pod the pool alone asks; the driver there has no token.
sys.exit("" in asked or len(asked) != 3 or min(asked.values()) < 20)
TEXT
say 'the audit log has no refusal'

"$programs/helm" uninstall f -n fairlead-system --wait --timeout 2m > "$work/out" 2>&1 || fail 'helm uninstall'
wait_until 60 "the chart's pods are gone" eval '[ -z "$(pods_of volumes)$(pods_of volumes-controller)" ]'
gone csidriver csi.fairlead.dev || fail 'the driver is left'
is volumepool "$node" '{.metadata.name}' "$node" || fail 'the VolumePool is gone'
[ -s "$folder/pool/pool.id" ] || fail 'the pool is gone'
say 'uninstalled; the pool is left'
