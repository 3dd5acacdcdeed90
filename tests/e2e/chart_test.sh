#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The operator's chart on nodes: `helm install` with the OCI images of images/fairlead on a real Kubernetes, where fairlead-agent plays the kubelet. Two replicas become ready, one leads and makes
# the objects of a SlurmCluster by its service account, over the cluster's own service address and through the chart's NetworkPolicies. The leading pod is killed: the other one leads.
#   chart_test.sh BUILD_DIR     as root; everything happens in a network namespace of its own
set -euo pipefail
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(realpath "${1:?usage: chart_test.sh BUILD_DIR}")
top=$(cd "$(dirname "$0")/../.." && pwd)
peers=$top/tests/peers
[ "$(id -u)" = 0 ] || { echo 'chart_test.sh: nodes are made of namespaces: run it as root' >&2; exit 1; }
programs=$("$peers/build.sh" --print)
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm; do
  [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh, or ./test.sh --kubernetes)"; exit 77; }
done
for tool in umoci skopeo; do command -v $tool > /dev/null || { echo "skipped: $tool is missing (tools/packages-test.txt)"; exit 77; }; done
version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' "$top/CMakeLists.txt")

if [ -z "${FAIRLEAD_TEST_INSIDE:-}" ]; then
  # Outside, while there is a network: the images' base may have to be fetched.
  FAIRLEAD_TEST_INSIDE=$(mktemp -d /var/tmp/fairlead-chart-test-XXXXXX)
  export FAIRLEAD_TEST_INSIDE
  if ! "$top/images/fairlead/build.sh" "$build" "$FAIRLEAD_TEST_INSIDE/oci" > "$FAIRLEAD_TEST_INSIDE/images.log" 2>&1; then
    tail -n 20 "$FAIRLEAD_TEST_INSIDE/images.log" >&2
    rm -rf "$FAIRLEAD_TEST_INSIDE"
    exit 1
  fi
  exec unshare --net --mount --propagation private bash "$0" "$build"
fi
ip link set lo up
work=$FAIRLEAD_TEST_INSIDE
site=$work/site
export HELM_CACHE_HOME=$work/helm/cache HELM_CONFIG_HOME=$work/helm/config HELM_DATA_HOME=$work/helm/data NO_COLOR=1
server=''
say() { printf 'ok  %s\n' "$*"; }
fail() { printf 'FAIL %s\n' "$*" >&2; [ ! -s "$work/out" ] || sed 's/^/    | /' "$work/out" | tail -n 20 >&2; exit 1; }
k() { "$programs/kubectl" --request-timeout=20s "$@"; }
show() {
  k get nodes,pods,machines -A -o wide 2>&1 | head -n 30 || true
  k get events -A --sort-by=.metadata.creationTimestamp 2>&1 | tail -n 25 || true
  k logs -n fairlead-system -l app.kubernetes.io/component=server --tail=15 --prefix 2>&1 || true
  tail -n 15 "$work/machines.log" "$site"/nodes/*/agent.log 2> /dev/null || true
}
clean_up() {
  local status=$?
  trap - EXIT
  [ "$status" = 0 ] || show >&2
  if [ -n "$server" ]; then
    kill -TERM "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
  fi
  [ ! -d "$site" ] || "$build/bin/fairlead" down --yes --purge --state-dir "$site" > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; status=1; }
  "$peers/cluster.sh" down "$work/peer" > /dev/null 2>&1 || true
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
eventually() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2})) what=$2
  shift 2
  until "$@" > "$work/out" 2>&1; do
    [ $SECONDS -lt $end ] || fail "not in time: $what"
    read -rt 0.3 <> <(:) || true
  done
}

host=10.87.0.1
"$peers/cluster.sh" up "$work/peer" --bind 0.0.0.0 --advertise "$host" > "$work/peer.log" 2>&1 || { cat "$work/peer.log" >&2; exit 1; }
export KUBECONFIG=$work/peer/admin.kubeconfig
port=$(sed -E 's/.*://' "$work/peer/run/address")
for name in fairlead-server fairlead-agent; do
  "$top/images/import.sh" "$work/oci/$name.docker.tar" "$site/images" > "$work/out" 2>&1 || fail "the image $name is not taken"
done
say 'images built, imported into the nodes'\'' store'

# What nodes may read beside their own objects; on another cluster its own network needs no such rights.
k apply -f - > "$work/out" 2>&1 << 'TEXT' || fail 'rights of nodes'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: local-nodes}
rules:
- {apiGroups: [""], resources: [nodes, pods, services, namespaces], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: local-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: local-nodes}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
TEXT

# The nodes are there first, as on any cluster. Their kinds are the chart's, which takes the definitions over by Helm's own marks.
crds=$top/deploy/helm/fairlead/files/crds
k create -f "$crds" > "$work/out" 2>&1 && k label -f "$crds" app.kubernetes.io/managed-by=Helm >> "$work/out" 2>&1 &&
  k annotate -f "$crds" meta.helm.sh/release-name=f meta.helm.sh/release-namespace=fairlead-system >> "$work/out" 2>&1 || fail 'the definitions'
# The machines are made by a server beside the cluster that looks after no SlurmCluster: its own Lease, a namespace that holds none.
k create namespace machines > /dev/null
"$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$KUBECONFIG" --state-dir "$site" --node-range 10.87.0.0/16 --pod-range 10.88.0.0/16 --namespace machines --watch-namespace machines \
  --health-listen 127.0.0.1:0 --local-machines --node-ca-cert "$work/peer/pki/ca.crt" --node-ca-key "$work/peer/pki/ca.key" > "$work/machines.log" 2>&1 &
server=$!
for node in node-0 node-1; do
  eventually 20 'machines can be made' k get machines
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: {local: {cpu: "1", memory: 1Gi}}\n' $node | k apply -f - > "$work/out" 2>&1 || fail "machine $node"
done
eventually 90 'two nodes' k wait --for=condition=Ready node/node-0 node/node-1 --timeout=2s
say 'two nodes'

# The ports of the API server differ here from the chart's defaults: a policy sees the real one.
"$programs/helm" install f "$top/deploy/helm/fairlead" -n fairlead-system --create-namespace --set "networkPolicy.apiServerPorts={443,$port},agent.hostDir=$work/host,server.aws.enabled=true" > "$work/out" 2>&1 || fail 'helm install'
deployment=f-fairlead-server
eventually 120 'both replicas are ready' k -n fairlead-system wait --for=jsonpath='{.status.readyReplicas}'=2 "deployment/$deployment" --timeout=2s
holder() { k -n fairlead-system get lease fairlead-server -o jsonpath='{.spec.holderIdentity}' | sed -E 's/_[0-9a-f]+$//'; }
servers() { k -n fairlead-system get pods -l app.kubernetes.io/component=server -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'; }
leads() { [ -n "$(holder)" ] && servers | grep -qx "$(holder)"; }
eventually 60 'one of the pods leads' leads
first=$(holder)
[ "$(k -n fairlead-system get pods -l app.kubernetes.io/component=server -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort -u | wc -l)" = 2 ] || fail 'both replicas are on one node'
eventually 90 "the agents' pods run" eval '[ "$(k -n fairlead-system get daemonset -o jsonpath="{.items[0].status.numberReady}")" = 2 ]'
say "the chart's pods run: $first leads, one on each node"
# Both replicas serve AWS clients, as one site: whichever is asked.
site_of() { k -n fairlead-system get configmap fairlead-aws -o jsonpath='{.data.account} {.data.endpoint}'; }
[[ $(site_of) =~ ^[0-9]{12}\ https://f-fairlead-aws.fairlead-system.svc$ ]] || fail "the site of AWS clients: $(site_of)"
account=$(site_of | cut -d' ' -f1)
for pod in $(servers); do k -n fairlead-system logs "$pod" | grep 'AWS clients are served' | grep -q "account=$account" || fail "pod $pod serves no AWS clients of account $account"; done
say 'both serve AWS clients, of one account'

cluster() { # NAME
  k apply -f - > "$work/out" 2>&1 << TEXT || fail "cluster $1"
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: $1, namespace: $1}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: none}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all}
    worker: {size: 2, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {cpu: "1"}}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"]}
TEXT
}
k create namespace one > /dev/null
k create namespace two > /dev/null
cluster one
eventually 60 'its pods are made' k -n one get pod controller-0 worker-0 worker-1 login-0
say 'a SlurmCluster is made by the leading pod'

# Killed, not asked: it cannot give the lease back.
k -n fairlead-system delete pod "$first" --grace-period=0 --force > "$work/out" 2>&1 || fail 'delete the leader'
passed_on() { leads && [ "$(holder)" != "$first" ]; }
eventually 60 'another pod leads' passed_on
cluster two
eventually 60 'its pods are made' k -n two get pod controller-0 worker-0 worker-1 login-0
eventually 90 'both replicas are ready again' k -n fairlead-system wait --for=jsonpath='{.status.readyReplicas}'=2 "deployment/$deployment" --timeout=2s
say "the leading pod was killed: $(holder) leads and works on"

python3 - "$work/peer/log/audit.jsonl" << 'TEXT' > "$work/out" || fail 'the pods asked for what the chart does not grant'
import json, sys
mine = [e for e in map(json.loads, open(sys.argv[1])) if e["user"].get("username", "").startswith("system:serviceaccount:fairlead-system:")]
refused = [e for e in mine if e.get("responseStatus", {}).get("code") == 403]
for e in refused: print(e["user"]["username"], e["verb"], e["requestURI"])
assert len(mine) > 20, f"only {len(mine)} requests"
sys.exit(1 if refused else 0)
TEXT
say 'the audit log has no refusal'

# Away again, machines last: they end what runs on them.
k delete slurmcluster -n one one --timeout=60s > "$work/out" 2>&1 || fail 'delete a cluster'
k delete slurmcluster -n two two --timeout=60s > "$work/out" 2>&1 || fail 'delete a cluster'
"$programs/helm" uninstall f -n fairlead-system --wait --timeout 2m > "$work/out" 2>&1 || fail 'helm uninstall'
eventually 60 "the chart's pods are gone" eval '[ -z "$(servers)" ]'
k delete machine node-0 node-1 --timeout=90s > "$work/out" 2>&1 || fail 'delete the machines'
say 'uninstalled'
