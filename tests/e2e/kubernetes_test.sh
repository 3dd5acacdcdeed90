#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The scenarios of tests/scenarios on both engines: the embedded one, and a real kube-apiserver with etcd, its controllers and its scheduler (tests/peers), on which fairlead-agent
# plays the kubelet. Then the clients: kubectl, the Go and the Python client ask the same of both servers.
#   kubernetes_test.sh BUILD_DIR [PART...]     as root; parts: embedded kubernetes kubelet clients; without parts all but embedded (embedded_test.sh)
# Everything happens in a network namespace of its own, so that ranges and ports of a running site are not touched. Exit status 77: the real programs are not built (tests/peers/build.sh builds them).
set -euo pipefail
build=$(realpath "${1:?usage: kubernetes_test.sh BUILD_DIR [PART...]}")
shift
[ $# -gt 0 ] || set -- kubernetes kubelet clients
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
# shellcheck source=tests/e2e/slim_image.sh
. "$top/tests/e2e/slim_image.sh"
cluster=$peers/cluster.sh
[ "$(id -u)" = 0 ] || { echo 'kubernetes_test.sh: nodes are made of namespaces: run it as root' >&2; exit 1; }

[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
if [ -z "${FAIRLEAD_TEST_INSIDE:-}" ]; then
  # Outside, while there is a network, what else is missing is fetched once.
  programs=$("$peers/build.sh" --print)
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
    [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh, or ./test.sh --kubernetes)"; exit 77; }
  done
  for image in busybox slurm mariadb; do
    [ -d "/var/lib/fairlead/images/$image" ] || "$top/images/build.sh" "$top/images/$image" /var/lib/fairlead/images > /dev/null 2>&1 || { echo "the image $image could not be built" >&2; exit 1; }
  done
  "$peers/python/run.sh" --prepare || echo 'the Python client is left out'
  "$peers/hyp/hyp.sh" > /dev/null || echo 'hyp is left out'
  "$peers/prometheus.sh" > /dev/null || echo 'Prometheus is left out'
  "$peers/kubelet.sh" --prepare || echo 'the kubelet is left out'
  export FAIRLEAD_TEST_INSIDE=1
  exec unshare --net --mount --propagation private bash "$0" "$build" "$@"
fi
ip link set lo up
programs=$("$peers/build.sh" --print)
export SCENARIO_KUBECTL=$programs/kubectl NO_COLOR=1
[ -x "$SCENARIO_KUBECTL" ] || SCENARIO_KUBECTL=$(command -v kubectl)

work=$(mktemp -d /var/tmp/fairlead-kubernetes-test-XXXXXX)
site=$work/site   # the state folder of the engine at work; one at a time
server=''
tell() { printf '== %s\n' "$*"; }
fail() { echo "FAIL: $*" >&2; exit 1; }
stop_server() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2> /dev/null || true
  wait "$server" 2> /dev/null || true
  server=''
}
# Kept for the reader of a failed run.
show() {
  local file
  "$SCENARIO_KUBECTL" get nodes,pods,machines,slurmclusters -A 2>&1 | head -n 40 || true
  "$SCENARIO_KUBECTL" get slurmclusters -A -o 'jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}' 2>&1 | head -n 40 || true
  "$SCENARIO_KUBECTL" get events -A --sort-by=.metadata.creationTimestamp 2>&1 | tail -n 25 || true
  for file in "$work"/server.log "$site"/nodes/*/agent.log "$work"/peer/log/kube-controller-manager.log; do
    [ ! -s "$file" ] || { echo "--- $file"; tail -n 15 "$file"; }
  done
}
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || show >&2
  stop_server
  [ ! -d "$site" ] || "$build/bin/fairlead" down --yes --purge --state-dir "$site" > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; status=1; }
  [ ! -d "$work/peer" ] || "$cluster" down "$work/peer" || status=1
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
wait_until() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2})) what=$2
  shift 2
  until "$@" > "$work/last" 2>&1; do
    [ $SECONDS -lt $end ] || { tail -n 5 "$work/last" >&2; fail "not in time: $what"; }
    [ -z "$server" ] || [ -e "/proc/$server" ] || { tail -n 20 "$work/server.log" >&2; fail "the server ended before: $what"; }
    read -rt 0.3 <> <(:) || true
  done
}

# ---- hooks of the scenarios that are the same on both engines
hook() { # NAME: a script from stdin
  { echo '#!/usr/bin/env bash'; cat; } > "$work/$1"
  chmod +x "$work/$1"
}
hook kill-node << 'TEXT'
exec "$SCENARIO_KUBECTL" patch machine "$1" --type=merge -p '{"spec":{"power":"Off"}}'
TEXT
hook heal-node << 'TEXT'
exec "$SCENARIO_KUBECTL" patch machine "$1" --type=merge -p '{"spec":{"power":"On","link":"Connected"}}'
TEXT
# What a site leaves on the machine. /sys/class/net would show the host's links, so `ip` is asked.
hook left-here << 'TEXT'
site=$1 id=$(printf '%s' "$1" | sha256sum | cut -c1-6)
pgrep -af "fairlead-agent.*$site" || true
ip -o link show "fl$id" 2> /dev/null || true
find /sys/fs/cgroup -maxdepth 2 -name "fairlead-$id" 2> /dev/null
grep -F "$site" /proc/self/mounts || true
TEXT
# Where a Prometheus is, once a scenario has started it.
export SCENARIO_ALARMS=http://127.0.0.1:19095
export SCENARIO_FAIRLEAD=$build/bin/fairlead SCENARIO_WORK=$work SCENARIO_SITE=$work/demo.yaml SCENARIO_STATE=$site SCENARIO_KILL_NODE=$work/kill-node SCENARIO_HEAL_NODE=$work/heal-node
cp "$top/examples/demo.yaml" "$SCENARIO_SITE"
# On a host with cgroup v1 each step is confined to its own memory.
[ ! -d /sys/fs/cgroup/memory ] || sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$SCENARIO_SITE"
ranges=(--node-range 10.87.0.0/16 --pod-range 10.88.0.0/16)
# On the real control plane nodes and pods are of both families, where this machine is.
both_ranges=("${ranges[@]}")
[ ! -e /proc/net/ipv6_route ] || both_ranges=(--node-range "10.87.0.0/16,fd00:87::/64" --pod-range "10.88.0.0/16,fd00:88::/56")
host=10.87.0.1
fresh_site() {
  mkdir -p "$site/images"
  cp -al /var/lib/fairlead/images/{slurm,busybox,mariadb} "$site/images/"
  image_but "$site/images" slurm 22.05-again # another image of the same version
  clock_image "$site/images" 22.05-ahead 600
  clock_image "$site/images" 22.05-behind -600
  slim_image "$site/images" slim 1 # for a shared root
}
# All of them run on both engines with --full. Else what the demo's own life is made of does, and each of the others runs on one of the two, on the other for another commit.
on_both=(10-demo-cluster 20-training-job 30-kill-worker 40-scale-workers 50-uninstall)
sample() { # ENGINE
  local share=0 dealt=() name file
  [ "$1" = embedded ] || share=1
  for file in "$top"/tests/scenarios/[0-9]*.sh; do
    name=$(basename "$file" .sh)
    [[ " ${on_both[*]} " == *" $name "* ]] || dealt+=("$name")
  done
  { printf '%s\n' "${on_both[@]}" && "$top/tests/sample.sh" "$share" 2 "${dealt[@]}"; } | sort
}
scenarios() { # ENGINE
  local began=$SECONDS names=${FAIRLEAD_SCENARIOS:-}
  [ -n "$names${FAIRLEAD_FULL:-}" ] || names=$(sample "$1")
  tell "scenarios, engine: $1${names:+, of $(find "$top/tests/scenarios" -name '[0-9]*.sh' | wc -l) these $(wc -w <<< "$names"): $(paste -sd ' ' <<< "$names")}"
  # shellcheck disable=SC2086 -- names of some of them
  "$top/tests/scenarios/run.sh" $names
  tell "scenarios, engine: $1: passed in $((SECONDS - began)) s"
}

start_embedded() { # OPTIONS of fairlead-server
  fresh_site
  "$build/bin/fairlead-server" --state-dir "$site" --listen 127.0.0.1:0 --notify-local --deep-health-check-seconds 6 --prometheus-url "$SCENARIO_ALARMS" "${ranges[@]}" "$@" > "$work/server.log" 2>&1 &
  server=$!
  export KUBECONFIG=$site/pki/admin.kubeconfig
  wait_until 30 'the embedded server answers' "$SCENARIO_KUBECTL" get --raw /readyz
}
run_embedded() {
  hook uninstall << TEXT
kill -TERM $server
while [ -e /proc/$server ] && ! grep -q '^State:.*Z' /proc/$server/status; do read -rt 0.1 <> <(:) || true; done
"$build/bin/fairlead" down --yes --purge --state-dir "$site"
TEXT
  export SCENARIO_UNINSTALL=$work/uninstall SCENARIO_LEFT="$work/left-here $site; ls -A $site 2> /dev/null || true" SCENARIO_PROVIDE=true
  scenarios embedded
  stop_server
}

start_peer() { # OPTIONS of cluster.sh up
  local began=$SECONDS
  "$cluster" up "$work/peer" "$@" > "$work/peer.log" 2>&1 || { cat "$work/peer.log" >&2; fail 'the real control plane did not start'; }
  export KUBECONFIG=$work/peer/admin.kubeconfig
  tell "kube-apiserver $("$SCENARIO_KUBECTL" get --raw /version | sed -nE 's/.*"gitVersion": "([^"]*)".*/\1/p'), etcd, controllers and scheduler are ready after $((SECONDS - began)) s"
}
# Volumes as an administrator of any cluster provides them: folders on the machine, bound to claims by name, for a claim that is made by somebody.
hook provide << 'TEXT'
work=$1 source=${5:-} name=$2-$3
mkdir -p "$work/disks/$name"
[ -n "$source" ] || source="hostPath: {path: $work/disks/$name, type: Directory}"
"$SCENARIO_KUBECTL" create -f - > /dev/null << YAML
apiVersion: v1
kind: PersistentVolume
metadata: {name: $name, labels: {scenario: volume}}
spec:
  capacity: {storage: $4}
  accessModes: [ReadWriteMany, ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: $2, name: $3}
  $source
YAML
TEXT
provide_volume() { # CLAIM SIZE [SOURCE]: of the demo, and the claim, too
  "$work/provide" "$work" demo "$@"
  "$SCENARIO_KUBECTL" create -f - > /dev/null << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1, namespace: demo}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: $2}}}
YAML
}
run_kubernetes() {
  rm -rf "$site"
  fresh_site
  # It believes tokens of `aws eks get-token` (docs/identities.md): it asks fairlead-server, whose authority is made here, before both.
  local aws_port=16444
  (umask 077 && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=fairlead-aws -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$work/aws-ca.key" -out "$work/aws-ca.crt" 2> /dev/null)
  cat > "$work/token-review.yaml" << TEXT
apiVersion: v1
kind: Config
clusters: [{name: fairlead, cluster: {server: "https://127.0.0.1:$aws_port/kubernetes/token-review", certificate-authority: "$work/aws-ca.crt"}}]
users: [{name: kube-apiserver, user: {}}]
contexts: [{name: review, context: {cluster: fairlead, user: kube-apiserver}}]
current-context: review
TEXT
  start_peer --bind 0.0.0.0 --advertise "$host" --api-option --authentication-token-webhook-version=v1 --api-option "--authentication-token-webhook-config-file=$work/token-review.yaml"
  "$SCENARIO_KUBECTL" create namespace demo > /dev/null
  provide_volume jail-pvc 40Gi
  # Local volumes say where they are: these nodes are all on one machine.
  provide_volume controller-spool-pvc 1Gi "local: {path: $work/disks/demo-controller-spool-pvc}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]}]}}"
  "$work/provide" "$work" demo demo-backup 20Gi # the operator makes the claim
  "$build/bin/fairlead" install --local-machines --aws --kubeconfig "$KUBECONFIG" > "$work/install.log" 2>&1 || { cat "$work/install.log" >&2; fail 'fairlead install'; }
  tell 'fairlead install: done'
  "$SCENARIO_KUBECTL" -n fairlead-system create secret generic fairlead-aws-ca --from-file=ca.crt="$work/aws-ca.crt" --from-file=ca.key="$work/aws-ca.key" > /dev/null
  # The controllers act under rights of their own, not the administrator's.
  server_kubeconfig
  "$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$work/server.kubeconfig" --state-dir "$site" "${both_ranges[@]}" --namespace fairlead-system --health-listen 127.0.0.1:18080 --aws-listen 127.0.0.1:$aws_port --notify-local --deep-health-check-seconds 6 --prometheus-url "$SCENARIO_ALARMS" --local-machines --node-ca-cert "$work/peer/pki/ca.crt" --node-ca-key "$work/peer/pki/ca.key" \
    > "$work/server.log" 2>&1 &
  server=$!
  # Objects with finalizers need the controllers until they are gone, so the server ends last.
  hook uninstall << TEXT
date -u +%FT%T.%6NZ > "$work/uninstall-began"
"$build/bin/fairlead" uninstall --purge --yes --kubeconfig "$KUBECONFIG" || exit 1
kill -TERM $server
while [ -e /proc/$server ] && ! grep -q '^State:.*Z' /proc/$server/status; do read -rt 0.1 <> <(:) || true; done
"$SCENARIO_KUBECTL" delete persistentvolumes -l scenario=volume > /dev/null
"$build/bin/fairlead" down --yes --purge --state-dir "$site"
TEXT
  hook left-in-cluster << 'TEXT'
"$SCENARIO_KUBECTL" get crds,clusterroles,clusterrolebindings,namespaces,priorityclasses,persistentvolumes -o name | grep -iE 'fairlead|nebius|demo' || true
"$SCENARIO_KUBECTL" get roles,rolebindings,leases,serviceaccounts,secrets -A -o name | grep -iE 'fairlead|slurm' || true
TEXT
  export SCENARIO_UNINSTALL=$work/uninstall SCENARIO_LEFT="$work/left-in-cluster; $work/left-here $site" SCENARIO_PROVIDE="$work/provide $work"
  scenarios kubernetes
  stop_server
  audit
}
# The server's identity: the service account that `fairlead install` made, by a token.
server_kubeconfig() {
  local token
  token=$("$SCENARIO_KUBECTL" -n fairlead-system create token fairlead-server --duration 4h) || fail 'no token for the service account of fairlead-server'
  (umask 077 && sed '/^users:/,$d' "$KUBECONFIG" > "$work/server.kubeconfig" && cat >> "$work/server.kubeconfig" << TEXT
users:
- name: fairlead-server
  user: {token: $token}
contexts:
- name: peer
  context: {cluster: peer, user: fairlead-server}
current-context: peer
TEXT
  )
}
# The API server's own record: what the controllers and nodes asked for beyond their rights, and whether a Secret's data was written down.
audit() {
  python3 - "$work/peer/log/audit.jsonl" "$work/uninstall-began" << 'PYTHON' || fail 'the audit log tells of requests beyond what was granted'
import collections, json, os, sys
asked, refused = collections.Counter(), {}
ended = open(sys.argv[2]).read().strip() if os.path.exists(sys.argv[2]) else "9"  # some scenarios by name: without the one that uninstalls
for line in open(sys.argv[1]):
    event = json.loads(line)
    user = event["user"].get("username", "")  # none: the credentials themselves were refused
    # Once uninstall has taken the roles away, the server that still runs is refused: that is meant.
    if not (user.startswith("system:node:") or "fairlead" in user) or event["stageTimestamp"] >= ended:
        continue
    asked["nodes" if user.startswith("system:node:") else user] += 1
    about = event.get("objectRef", {})
    key = (user, event["verb"], about.get("apiGroup", ""), about.get("resource", ""), about.get("subresource", ""), about.get("namespace", ""), about.get("name", ""))
    status = event.get("responseStatus", {})
    # Objects inside a namespace that is being deleted may not be created: that is no matter of rights.
    if status.get("code") == 403 and "being terminated" not in status.get("message", ""):
        refused[key] = refused.get(key, 0) + 1
    elif status.get("code", 500) < 400:
        refused.pop(key, None)  # the node authoriser learns of a new pod a moment after the node does
for user, count in sorted(asked.items()):
    print(f"   {count} requests by {user}")
for key, count in sorted(refused.items()):
    print("   refused", count, *key)
sys.exit(1 if refused or not asked else 0)
PYTHON
}

# The same questions to both servers.
matrix() { # ENGINE
  local status=0
  tell "clients, engine: $1"
  "$programs/probe" --kubeconfig "$KUBECONFIG" > "$work/go.txt" 2>&1 || status=1
  sed 's/^/   go      /' "$work/go.txt"
  "$peers/python/run.sh" "$KUBECONFIG" > "$work/python.txt" 2>&1 || { [ $? = 77 ] || status=1; }
  sed 's/^/   python  /' "$work/python.txt"
  return "$status"
}
run_clients() {
  local status=0
  rm -rf "$site"
  start_embedded --service-range 10.79.0.0/16
  matrix embedded || status=1
  stop_server
  "$cluster" status "$work/peer" > /dev/null 2>&1 || start_peer
  export KUBECONFIG=$work/peer/admin.kubeconfig
  matrix kubernetes || status=1
  [ "$status" = 0 ] || fail 'a client got an answer that it cannot use'
}

# Our agent plays the kubelet above. Where a real one runs beside it, the same control plane takes it: the peer is whole.
run_kubelet() {
  local status=0
  "$cluster" status "$work/peer" > /dev/null 2>&1 || start_peer
  tell 'a real kubelet on containerd'
  "$peers/kubelet.sh" "$work/peer" || status=$?
  case $status in
    0) ;;
    77) tell 'the kubelet is left out: its packages are not there' ;;
    *) fail 'this machine refuses a kubelet' ;;
  esac
}

for part in "$@"; do
  case $part in
    embedded)
      start_embedded
      run_embedded
      ;;
    kubernetes) run_kubernetes ;;
    kubelet) run_kubelet ;;
    clients) run_clients ;;
    *) fail "unknown part $part" ;;
  esac
done
echo "kubernetes_test: all passed ($*)"
