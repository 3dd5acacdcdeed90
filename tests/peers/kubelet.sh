#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries a real kubelet on containerd as a node of a cluster of cluster.sh: it registers, becomes ready, runs one pod to its end. Says what this machine refuses.
#   kubelet.sh CLUSTER-DIR        as root; exit status 0: the pod ran; 1: refused, with the kubelet's or containerd's own words
#   kubelet.sh --prepare          fetches and builds only; 77: the packages cannot be fetched
#   PEER_KUBELET_ADDRESS=ADDRESS  of the node, one that this machine has and that is not of loopback: the API server reaches it there (logs, exec)
#   PEER_KUBELET_DNS=ADDRESS      of a name server (dns.py) for pods; without it they have this machine's
#   PEER_KUBELET_THEN=SCRIPT      run at the end, in its mount namespace, with PEER_KUBELET_ROOT (--root-dir) and PEER_KUBELET_NODE; its exit status counts
# containerd and runc are Debian's packages, unpacked into the cache and not installed; the kubelet is built by build.sh. Mounts stay in a namespace of its own. The kubelet leaves chains in
# the packet filter: call it inside a network namespace of one's own (unshare --net), in which the cluster was started too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ "${1:?the folder of the cluster, or --prepare}" = --prepare ] || cluster=$(cd "$1" && pwd)
cache=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}
programs=$("$here/build.sh" kubelet | tail -n 1)
kubectl=$programs/kubectl
node=kubelet-0
address=${PEER_KUBELET_ADDRESS:-127.0.0.1}

# --- containerd and runc, unpacked
runtime=$cache/containerd
if [ ! -x "$runtime/usr/bin/containerd" ]; then
  folder=$(mktemp -d)
  chmod 755 "$folder"
  (cd "$folder" && apt-get download -q containerd runc > /dev/null 2>&1) || { echo 'kubelet.sh: the packages containerd and runc cannot be fetched' >&2; exit 77; }
  mkdir -p "$runtime"
  for package in "$folder"/*.deb; do dpkg-deb -x "$package" "$runtime"; done
  rm -rf "$folder"
fi
[ "$1" != --prepare ] || exit 0
export KUBECONFIG=$cluster/admin.kubeconfig
if [ -z "${PEER_KUBELET_INSIDE:-}" ]; then
  export PEER_KUBELET_INSIDE=1
  exec unshare --mount --propagation private bash "$0" "$@"
fi
export PATH=$runtime/usr/bin:$runtime/usr/sbin:$PATH

work=$(mktemp -d /var/tmp/fairlead-kubelet-XXXXXX)
pids=()
clean_up() {
  local status=$? pid shim
  trap - EXIT
  "$kubectl" delete pod kubelet-try --grace-period=0 --force > /dev/null 2>&1 || true
  "$kubectl" delete node "$node" > /dev/null 2>&1 || true
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
  # Shims and sandboxes outlive containerd; they are known by our folder in their command line.
  while read -r shim; do kill -KILL "$shim" 2> /dev/null || true; done < <(pgrep -f "containerd-shim.*$work" || true)
  while read -r pid; do kill -KILL "$pid" 2> /dev/null || true; done < <(find /sys/fs/cgroup -path "*$group*" -name cgroup.procs -exec cat {} + 2> /dev/null | sort -un)
  grep -F "$work" /proc/self/mounts | cut -d' ' -f2 | sort -r | while read -r mount; do umount -l "$mount" 2> /dev/null || true; done
  find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2> /dev/null || true
  ip link delete "cni-$node" 2> /dev/null || true
  rm -rf "$work"
  exit "$status"
}
group=fairlead-kubelet-$$
trap clean_up EXIT
mkdir -p "$work"/{root,state,cni,kubelet,image}

# --- the image of sandbox and pod: one static busybox
static=''
for candidate in /usr/bin/busybox /bin/busybox /var/lib/fairlead/images/busybox/1/rootfs/bin/busybox; do
  if [ -x "$candidate" ] && ! ldd "$candidate" > /dev/null 2>&1; then
    static=$candidate
    break
  fi
done
[ -n "$static" ] || { echo 'kubelet.sh: no static busybox (package busybox-static)' >&2; exit 77; }
python3 - "$static" "$work/image/image.tar" << 'PYTHON'
import hashlib, io, json, sys, tarfile
binary, out = sys.argv[1:]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    for name in ("bin", "tmp", "etc"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
    info = tarfile.TarInfo("bin/busybox")
    data = open(binary, "rb").read()
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))
    for name in ("sh", "sleep", "echo", "cat"):
        link = tarfile.TarInfo("bin/" + name)
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
layer = layer.getvalue()
digest = "sha256:" + hashlib.sha256(layer).hexdigest()
config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": None, "Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]}, "rootfs": {"type": "layers", "diff_ids": [digest]}}).encode()
manifest = json.dumps([{"Config": "config.json", "RepoTags": ["fairlead.local/try:1"], "Layers": ["layer.tar"]}]).encode()
with tarfile.open(out, "w") as tar:
    for name, data in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
PYTHON

# --- containerd: what lacks CAP_SYS_RESOURCE cannot lower oom_score_adj
cat > "$work/containerd.toml" << TEXT
version = 2
root = "$work/root"
state = "$work/state"
[grpc]
  address = "$work/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "fairlead.local/try:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$work/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
TEXT
cat > "$work/cni/10-try.conf" << TEXT
{"cniVersion": "0.4.0", "name": "try", "type": "ptp", "ipam": {"type": "host-local", "dataDir": "$work/ipam", "ranges": [[{"subnet": "10.89.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
TEXT
containerd --config "$work/containerd.toml" > "$work/containerd.log" 2>&1 &
pids+=($!)
refused() {
  echo "refused: $1"
  grep -hE '^[EF][0-9]{4}|level=(error|fatal)' "$work/kubelet.log" "$work/containerd.log" 2> /dev/null | cut -c1-400 | sort -u -k5 | tail -n 12
  exit 1
}
for _ in $(seq 100); do
  ctr -a "$work/containerd.sock" version > /dev/null 2>&1 && break
  read -rt 0.2 <> <(:) || true
done
ctr -a "$work/containerd.sock" -n k8s.io images import "$work/image/image.tar" > "$work/import.log" 2>&1 || { cat "$work/import.log" >&2; refused 'containerd does not take an image'; }

# --- the kubelet
"$here/cluster.sh" node "$cluster" "$node" "$address" > /dev/null
cat > "$work/kubelet.yaml" << TEXT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /$group
cgroupsPerQOS: true
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
oomScoreAdj: 0
address: $address
port: 0
readOnlyPort: 0
healthzPort: 0
containerRuntimeEndpoint: unix://$work/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $cluster/pki/ca.crt}}
authorization: {mode: AlwaysAllow}
tlsCertFile: $cluster/nodes/$node.crt
tlsPrivateKeyFile: $cluster/nodes/$node.key
evictionHard: {memory.available: 10Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
TEXT
[ -z "${PEER_KUBELET_DNS:-}" ] || printf 'clusterDNS: ["%s"]\nclusterDomain: cluster.local\n' "$PEER_KUBELET_DNS" >> "$work/kubelet.yaml"
# One that nobody has, as client or as server: others choose by chance as well.
port=$(python3 -c '
import random, socket
for _ in range(200):
    port = random.randrange(20000, 32000)
    try:
        with socket.socket() as one: one.bind(("0.0.0.0", port))
    except OSError: continue
    print(port)
    break')
sed -i "s/^port: 0/port: ${port:?no port is free}/" "$work/kubelet.yaml"
for hierarchy in /sys/fs/cgroup /sys/fs/cgroup/*/; do
  if [ -e "$hierarchy/cgroup.procs" ]; then mkdir -p "$hierarchy/$group" 2> /dev/null || true; fi
done
# cpuset groups start empty on cgroup v1.
for file in cpuset.cpus cpuset.mems; do [ ! -e "/sys/fs/cgroup/cpuset/$group/$file" ] || cat "/sys/fs/cgroup/cpuset/$file" > "/sys/fs/cgroup/cpuset/$group/$file"; done
"$programs/kubelet" --config "$work/kubelet.yaml" --kubeconfig "$cluster/nodes/$node.kubeconfig" --root-dir "$work/kubelet" --cert-dir "$work/kubelet/pki" --hostname-override "$node" --node-ip "$address" \
  > "$work/kubelet.log" 2>&1 &
kubelet=$!
pids+=("$kubelet")
until_true() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" > /dev/null 2>&1; do
    [ -e "/proc/$kubelet" ] && ! grep -q '^State:.*Z' "/proc/$kubelet/status" || refused "the kubelet ended before: $what"
    [ $SECONDS -lt $end ] || refused "not in time: $what"
    read -rt 0.5 <> <(:) || true
  done
}
until_true 60 'the node registers' "$kubectl" get node "$node"
echo 'the node is registered'
until_true 90 'the node is ready' "$kubectl" wait --for=condition=Ready "node/$node" --timeout=2s
echo 'the node is ready'
"$kubectl" apply -f - > /dev/null << TEXT
apiVersion: v1
kind: Pod
metadata: {name: kubelet-try}
spec:
  nodeName: $node
  restartPolicy: Never
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: "fairlead.local/try:1", imagePullPolicy: Never, command: [sh, -c, "echo ran on a kubelet"]}]
TEXT
until_true 120 'the pod succeeds' "$kubectl" wait --for=jsonpath='{.status.phase}'=Succeeded pod/kubelet-try --timeout=2s
echo 'the pod ran to its end'
[ -z "${PEER_KUBELET_THEN:-}" ] || PEER_KUBELET_ROOT=$work/kubelet PEER_KUBELET_NODE=$node bash "$PEER_KUBELET_THEN"
