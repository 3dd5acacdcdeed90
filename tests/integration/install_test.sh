#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fairlead install, upgrade and uninstall on a real kube-apiserver: idempotent; the server works with exactly the rights that it was given (the audit log shows no refusal); what belongs
# to somebody else is left alone; uninstall leaves users' objects, --purge leaves nothing.
#   install_test.sh BUILD_DIR     as root
set -euo pipefail
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(realpath "${1:?usage: install_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
fairlead=$build/bin/fairlead
export NO_COLOR=1
programs=$("$peers/build.sh" --print)
if [ ! -x "$programs/kube-apiserver" ] || [ ! -x "$programs/kubectl" ]; then
  echo "install_test.sh: $programs has no kube-apiserver and kubectl (tests/peers/build.sh builds them)"
  exit 77
fi

# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
after_end() { "$peers/cluster.sh" down "$work/peer" > /dev/null 2>&1; }
server=''
say() { printf 'ok  %s\n' "$*"; }
does() { "$@" > "$work/out" 2>&1 || fail "$*"; }
refuses() { ! "$@" > "$work/out" 2>&1 || fail "was allowed: $*"; }
says() { grep -qE -- "$1" "$work/out" || fail "does not say: $1"; }
never_says() { ! grep -qE -- "$1" "$work/out" || fail "says: $1"; }

"$peers/cluster.sh" up "$work/peer" > "$work/up.log"
export KUBECONFIG=$work/peer/admin.kubeconfig
kubectl=$programs/kubectl

# --- install ---
does "$fairlead" install --dry-run
says '^namespace/fairlead-system would be created'
refuses "$kubectl" get namespace fairlead-system
does "$fairlead" install
says '^deployment/fairlead-server in fairlead-system created'
does "$fairlead" install
never_says ' (created|changed)$'
says '^clusterrole/fairlead-server unchanged'
does "$kubectl" get crd slurmclusters.slurm.nebius.ai machines.fairlead.dev
say 'install makes everything once; again it changes nothing'
refuses "$fairlead" upgrade -n elsewhere
says 'not installed in namespace elsewhere'
does "$fairlead" upgrade
never_says ' (created|changed)$'
say 'upgrade to the same version changes nothing'

# --- the server, with the rights that it was given ---
# As in a pod: by its service account, where a kubelet would put it. The mounts are in a namespace of their own.
mkdir "$work/account"
"$kubectl" create token fairlead-server -n fairlead-system --duration=1h > "$work/account/token"
cp "$work/peer/pki/ca.crt" "$work/account/ca.crt"
printf fairlead-system > "$work/account/namespace"
url=$("$kubectl" config view --raw -o jsonpath='{.clusters[0].cluster.server}')
start server.log env -u KUBECONFIG POD_NAME=fairlead-server-0 KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT="${url##*:}" unshare --mount --propagation private bash -c '
  mount -t tmpfs none /run
  mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
  mount --bind "$1" /var/run/secrets/kubernetes.io/serviceaccount
  exec "$2" --engine=kubernetes --health-listen 127.0.0.1:0' - "$work/account" "$build/bin/fairlead-server"
server=$last
wait_until 30 'it leads' grep -q ' leading ' "$work/server.log"
port=$(sed -n 's/.*health_port=\([0-9]*\).*/\1/p' "$work/server.log" | head -n 1)
grep -q 'identity=fairlead-server-0_' "$work/server.log" || fail 'its identity is not that of the pod'
wait_until 30 'it is ready' curl -sf "http://127.0.0.1:$port/readyz"
does curl -sf "http://127.0.0.1:$port/metrics"
says '^fairlead_leader 1$'
cluster() { # WORKERS LABELS
  cat << TEXT
apiVersion: v1
kind: Namespace
metadata: {name: lab}
---
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab, labels: {$2}}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: none}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all, volumes: {spool: {volumeClaimTemplateSpec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}
    worker: {size: $1, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {cpu: "1"}}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"]}
TEXT
}
cluster 2 'team: vision, stage: trial' > "$work/demo.yaml"
does "$fairlead" up --no-wait -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
wait_until 60 'its pods are made' "$kubectl" get pod -n lab controller-0 worker-0 worker-1 login-0
wait_until 20 'its status is told' "$kubectl" wait -n lab slurmcluster/demo --for=condition=CommonAvailable --timeout=1s
say 'the server makes a cluster with the rights that install gave it'

# --- files are applied: what they do not name any more goes ---
cluster 3 'team: vision' > "$work/demo.yaml"
does "$fairlead" apply -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
says 'slurmcluster/demo configured'
does "$kubectl" get slurmcluster demo -n lab -o 'jsonpath={.metadata.labels}'
says 'vision'
never_says 'trial'
does "$fairlead" apply -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
says 'slurmcluster/demo unchanged'
does "$kubectl" label slurmcluster demo -n lab team=robots --overwrite
refuses "$fairlead" apply -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
says 'kubectl-label'
says 'force-conflicts'
does "$fairlead" apply --force-conflicts -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
does "$fairlead" get slurmclusters -n lab --kubeconfig "$KUBECONFIG"
says '^demo'
does "$fairlead" status --kubeconfig "$KUBECONFIG"
says 'demo'
wait_until 30 'the third worker is made' "$kubectl" get pod -n lab worker-2
say 'a field removed from a file is removed; a field of somebody else is a conflict with a name'

python3 - "$work/peer/log/audit.jsonl" << 'TEXT' > "$work/out" || fail 'the server asked for what it has no right to'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
mine = [e for e in events if e["user"]["username"] == "system:serviceaccount:fairlead-system:fairlead-server"]
refused = [e for e in mine if e.get("responseStatus", {}).get("code") == 403]
for e in refused: print(e["verb"], e["requestURI"])
assert len(mine) > 20, f"only {len(mine)} requests"
sys.exit(1 if refused else 0)
TEXT
say 'the audit log has no refusal'
stop_server || fail 'the server did not stop well'

# --- uninstall: users' objects stay ---
does "$fairlead" uninstall --dry-run
does "$kubectl" get deployment -n fairlead-system fairlead-server
does "$fairlead" uninstall
says 'slurmclusters.slurm.nebius.ai stays'
says 'namespace/fairlead-system removed'
does "$kubectl" get slurmcluster demo -n lab
refuses "$kubectl" get namespace fairlead-system
does "$kubectl" get clusterrole,clusterrolebinding,role,rolebinding,serviceaccount,deployment -A -l app.kubernetes.io/part-of=fairlead -o name
[ ! -s "$work/out" ] || [ "$(cat "$work/out")" = 'No resources found' ] || fail 'uninstall left something'
does "$fairlead" uninstall
say 'uninstall takes Fairlead away and leaves clusters and CRDs; again it does nothing'

# --- purge ---
does "$fairlead" install
refuses "$fairlead" uninstall --purge < /dev/null
says 'add --yes'
does "$fairlead" uninstall --purge --yes
refuses "$kubectl" get crd slurmclusters.slurm.nebius.ai
refuses "$kubectl" get crd machines.fairlead.dev
say '--purge --yes leaves nothing'

# --- somebody else's CRD ---
"$fairlead" install --dry-run -o json | python3 -c '
import json, sys
crd = next(o for o in json.load(sys.stdin)["items"] if o["metadata"]["name"] == "slurmclusters.slurm.nebius.ai")
crd["metadata"] = {"name": crd["metadata"]["name"], "labels": {"app.kubernetes.io/managed-by": "Helm"},
                   "annotations": {"meta.helm.sh/release-name": "soperator", "meta.helm.sh/release-namespace": "slurm-system"}}
crd["spec"]["names"]["shortNames"] = ["theirs"]
json.dump(crd, sys.stdout)' > "$work/crd.json"
does "$kubectl" create -f "$work/crd.json"
refuses "$fairlead" install
says 'customresourcedefinition/slurmclusters.slurm.nebius.ai belongs to the Helm release soperator in namespace slurm-system'
refuses "$kubectl" get namespace fairlead-system
now=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)
"$kubectl" create -f - > "$work/out" << TEXT
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: e21479ae.nebius.ai, namespace: default}
spec: {holderIdentity: soperator-0, leaseDurationSeconds: 3600, renewTime: "$now"}
TEXT
refuses "$fairlead" install --adopt
says 'soperator-0 holds the Lease default/e21479ae.nebius.ai: stop it first'
does "$kubectl" delete lease -n default e21479ae.nebius.ai
does "$fairlead" install --adopt
says 'slurmclusters.slurm.nebius.ai adopted'
does "$fairlead" install
never_says ' (created|changed|adopted)$'
does "$fairlead" uninstall --purge --yes
refuses "$kubectl" get crd slurmclusters.slurm.nebius.ai
say "somebody else's CRD is refused with its owner's name, adopted once its controller is stopped"

# --- SageMaker's own training operator is there ---
"$fairlead" install --dry-run -o json | python3 -c '
import json, sys
crd = next(o for o in json.load(sys.stdin)["items"] if o["metadata"]["name"] == "hyperpodpytorchjobs.sagemaker.amazonaws.com")
crd["metadata"] = {"name": crd["metadata"]["name"], "labels": {"app.kubernetes.io/managed-by": "Helm"},
                   "annotations": {"meta.helm.sh/release-name": "hp-training-operator", "meta.helm.sh/release-namespace": "aws-hyperpod"}}
json.dump(crd, sys.stdout)' > "$work/crd.json"
does "$kubectl" create -f "$work/crd.json"
does "$fairlead" install
says 'Training jobs are left to their own operator: hyperpodpytorchjobs.sagemaker.amazonaws.com belongs to the Helm release hp-training-operator in namespace aws-hyperpod'
does "$fairlead" uninstall --purge --yes
does "$kubectl" get crd hyperpodpytorchjobs.sagemaker.amazonaws.com
does "$kubectl" delete crd hyperpodpytorchjobs.sagemaker.amazonaws.com
say "the definition of training jobs is left to SageMaker's operator"

# --- block volumes ---
volumes=(--volumes 50Gi --volumes-nodes disk=pool --volumes-class --csi-provisioner-image r/p:1 --csi-attacher-image r/a:1 --csi-resizer-image r/r:1)
refuses "$fairlead" install --volumes 50Gi
says '--csi-provisioner-image: say where'
refuses "$fairlead" install --volumes-class
does "$fairlead" install "${volumes[@]}"
does "$fairlead" install "${volumes[@]}"
never_says ' (created|changed|removed)$'
does "$kubectl" get -n fairlead-system daemonset/fairlead-volumes deployment/fairlead-volumes-controller csidriver/csi.fairlead.dev storageclass/fairlead
may() { "$kubectl" auth can-i "$@" > "$work/out" 2>&1; }
node=(--as system:serviceaccount:fairlead-system:fairlead-volumes) controller=(--as system:serviceaccount:fairlead-system:fairlead-volumes-controller)
may update volumes.fairlead.dev/x --subresource=status "${node[@]}" && may create persistentvolumes "${controller[@]}" || fail 'rights are missing'
for forbidden in 'create volumes.fairlead.dev' 'delete volumes.fairlead.dev' 'create persistentvolumes' 'get secrets -n fairlead-system'; do
  # shellcheck disable=SC2086
  ! may $forbidden "${node[@]}" || fail "pods of nodes may $forbidden"
done
! may get secrets -n fairlead-system "${controller[@]}" && ! may update leases/fairlead-server -n fairlead-system "${controller[@]}" || fail "the volumes' controller may read Secrets, or take the server's Lease"
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Volume\nmetadata: {name: data}\nspec: {pool: box, size: 1Gi}\n' | "$kubectl" apply -f - > "$work/out" 2>&1 || fail 'a volume'
# Engines are not taken away from who uses their volumes.
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Volume\nmetadata: {name: limited}\nspec: {pool: box, size: 1Gi, class: local-managed}\n---\napiVersion: fairlead.dev/v1alpha1\nkind: Attachment\nmetadata: {name: limited.w0}\nspec: {volume: limited, pool: box, node: w0}\n' | "$kubectl" apply -f - > "$work/out" 2>&1 || fail 'a volume with an engine'
for how in "upgrade ${volumes[*]} --no-volumes-engines" upgrade uninstall 'uninstall --purge --yes'; do
  # shellcheck disable=SC2086
  refuses "$fairlead" $how
  says 'fairlead-volumes-engines in fairlead-system keeps engines, and whoever uses these volumes would lose the disk with it: limited on w0\. End the pods'
  never_says ' removed$'
done
does "$kubectl" delete attachment limited.w0
does "$kubectl" delete volume limited
does "$fairlead" upgrade
says 'daemonset/fairlead-volumes in fairlead-system removed'
says 'csidriver/csi.fairlead.dev removed'
does "$fairlead" install "${volumes[@]}"
does "$fairlead" uninstall
says 'storageclass/fairlead removed'
says 'volumes.fairlead.dev stays'
does "$kubectl" get volume data
refuses "$kubectl" get csidriver csi.fairlead.dev
refuses "$fairlead" uninstall --purge --yes
says '--purge deletes no data of volumes, and 1 Volumes and Snapshots are there'
does "$kubectl" get volume data
does "$kubectl" delete volume data
does "$fairlead" uninstall --purge --yes
say 'block volumes come and go with their flag; an uninstall leaves Volumes, and --purge does not delete them'

# --- one namespace only ---
does "$kubectl" get namespace lab
does "$fairlead" install
does "$fairlead" upgrade --watch-namespace lab
says 'clusterrolebinding/fairlead-server removed'
does "$kubectl" get role,rolebinding -n lab fairlead-server
refuses "$kubectl" auth can-i list secrets -A --as system:serviceaccount:fairlead-system:fairlead-server
does "$kubectl" auth can-i list secrets -n lab --as system:serviceaccount:fairlead-system:fairlead-server
does "$fairlead" uninstall --purge --yes
say 'limited to one namespace it has rights in no other'
