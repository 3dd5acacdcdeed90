#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The charts with the real helm: lint, render, publish; install, upgrade, roll back, uninstall on a real kube-apiserver and on the embedded engine.
set -euo pipefail
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(realpath "${1:?usage: helm_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
root=$PWD
unset KUBECONFIG
export LC_ALL=C

tools=$(tests/peers/build.sh --print)
for name in helm etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do
  [[ -x $tools/$name ]] || { echo "skipped: $tools/$name is not built (tests/peers/build.sh, or ./test.sh --kubernetes)"; exit 77; }
done
work=$(mktemp -d "$build/helm-XXXXXX")
export HELM=$tools/helm HELM_CACHE_HOME=$work/helm/cache HELM_CONFIG_HOME=$work/helm/config HELM_DATA_HOME=$work/helm/data
server='' web='' operator=''
clean_up() {
  local pid
  for pid in $operator $server $web; do kill "$pid" 2> /dev/null || true; wait "$pid" 2> /dev/null || true; done
  [[ ! -d $work/real ]] || tests/peers/cluster.sh down "$work/real" > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
fail() { echo "FAILED: $*" >&2; [[ ! -s $work/log ]] || tail -n 20 "$work/log" >&2; exit 1; }
ok() { echo "ok: $*"; }
h() { "$HELM" "$@" > "$work/log" 2>&1; }
k() { "$tools/kubectl" --request-timeout=20s "$@"; }
refused() { # WORDS COMMAND...: it fails, and says these words
  local words=$1
  shift
  if "$@" > "$work/log" 2>&1; then fail "accepted: $*"; fi
  grep -qiF -- "$words" "$work/log" || fail "refused without the words \"$words\": $*"
}
eventually() { # SECONDS COMMAND...
  local until=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2}))
  shift
  until "$@" > "$work/eventually" 2>&1; do ((SECONDS < until)) || { cp "$work/eventually" "$work/log"; fail "did not come true in time: $*"; }; read -rt 0.3 <> <(:) || true; done
}
operator_chart=deploy/helm/fairlead cluster_chart=deploy/helm/slurm-cluster
render() { "$HELM" template "$@" --kube-version 1.33.0; }

# ---- without any server

deploy/generate.sh "$build" --check || fail 'generated files are not up to date'
ok 'CustomResourceDefinitions, rules and schema are those of the programs'

version=$(sed -nE 's/^project\(fairlead VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
for chart in $operator_chart $cluster_chart; do
  [[ $(sed -nE 's/^(version|appVersion): //p' $chart/Chart.yaml | sort -u) == "$version" ]] || fail "$chart has not the version $version of the programs"
  h lint --strict --kube-version 1.33.0 $chart || fail "lint $chart"
done
ok 'lint'

# The values of the FPT document: short names become Kubernetes' names, claims' requests stay.
cat > "$work/fpt.yaml" << 'YAML'
clusterName: fpt-hpc
volumeSources:
- {name: controller-spool, persistentVolumeClaim: {claimName: controller-spool-pvc, readOnly: false}}
- {name: jail, persistentVolumeClaim: {claimName: jail-pvc, readOnly: false}}
slurmNodes:
  accounting:
    enabled: true
    mariadbOperator:
      enabled: true
      resources: {cpu: 1000m, memory: 1Gi, ephemeralStorage: 5Gi}
      replicas: 1
      replication: {}
      storage: {ephemeral: false, volumeClaimTemplate: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}, storageClassName: xplat-nfs}}
  controller:
    size: 1
    k8sNodeFilterName: no-gpu
    slurmctld: {port: 6817, resources: {cpu: 1000m, memory: 3Gi, ephemeralStorage: 20Gi}}
    munge: {resources: {cpu: 1000m, memory: 1Gi, ephemeralStorage: 5Gi}}
    volumes: {spool: {volumeSourceName: controller-spool}, jail: {volumeSourceName: jail}}
  worker:
    size: 8
    k8sNodeFilterName: gpu
    cgroupVersion: v2
    slurmd: {port: 6818, resources: {cpu: 110000m, memory: 1220Gi, ephemeralStorage: 55Gi, gpu: 8, rdma: 1}}
    munge: {resources: {cpu: 2000m, memory: 4Gi, ephemeralStorage: 5Gi}}
    volumes:
      spool: {volumeClaimTemplateSpec: {storageClassName: xplat-nfs, accessModes: [ReadWriteOnce], resources: {requests: {storage: 120Gi}}}}
      jail: {volumeSourceName: jail}
  login:
    size: 2
    k8sNodeFilterName: no-gpu
    sshd: {port: 22, resources: {cpu: 3000m, memory: 9Gi, ephemeralStorage: 30Gi}}
    sshRootPublicKeys: [ssh-ed25519 AAAA-placeholder admin@example]
    sshdServiceLoadBalancerIP: ""
    sshdServiceNodePort: 30022
    munge: {resources: {cpu: 500m, memory: 500Mi, ephemeralStorage: 5Gi}}
    volumes: {jail: {volumeSourceName: jail}}
  exporter:
    enabled: true
    size: 1
    k8sNodeFilterName: no-gpu
    exporter: {resources: {cpu: 250m, memory: 256Mi, ephemeralStorage: 500Mi}}
    munge: {resources: {cpu: 1000m, memory: 1Gi, ephemeralStorage: 5Gi}}
    volumes: {jail: {volumeSourceName: jail}}
YAML
render c $cluster_chart -n c -f "$work/fpt.yaml" > "$work/fpt-rendered.yaml"
/usr/bin/python3 - "$work/fpt-rendered.yaml" "$version" << 'PYTHON'
import sys, yaml
documents = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
assert [d["kind"] for d in documents] == ["SlurmCluster"], documents
cluster = documents[0]
nodes = cluster["spec"]["slurmNodes"]
assert cluster["metadata"]["name"] == "fpt-hpc"
assert cluster["metadata"]["annotations"]["fairlead.dev/chart"] == "slurm-cluster-" + sys.argv[2]
assert nodes["worker"]["slurmd"]["resources"] == {"cpu": "110000m", "memory": "1220Gi", "ephemeral-storage": "55Gi", "nvidia.com/gpu": 8, "rdma/ib": 1}, nodes["worker"]["slurmd"]
assert nodes["worker"]["volumes"]["spool"]["volumeClaimTemplateSpec"]["resources"] == {"requests": {"storage": "120Gi"}}
assert nodes["accounting"]["mariadbOperator"]["storage"]["volumeClaimTemplate"]["resources"] == {"requests": {"storage": "10Gi"}}
assert nodes["worker"]["size"] == 8 and nodes["login"]["size"] == 2
text = open(sys.argv[1]).read()
assert "ephemeralStorage" not in text and "e+" not in text
PYTHON
ok "the FPT document's values"
refused 'is there twice' render c $cluster_chart --set slurmNodes.worker.slurmd.resources.gpu=8 --set 'slurmNodes.worker.slurmd.resources.nvidia\.com/gpu=8'
refused 'slurmNodes/controller/size' render c $cluster_chart --set slurmNodes.controller.size=4
refused 'sizee' render c $cluster_chart --set slurmNodes.worker.sizee=4
refused 'clusterName' render c $cluster_chart --set clusterName=Not_A_Name
refused 'sshd/port' render c $cluster_chart --set slurmNodes.login.sshd.port=70000
refused 'replicaas' render f $operator_chart --set server.replicaas=3
refused 'hostDir' render f $operator_chart --set agent.hostDir=relative/dir
refused 'serviceAccount.name' render f $operator_chart --set serviceAccount.create=false
refused 'does not go with server.watchNamespace' render f $operator_chart --set server.aws.enabled=true --set server.watchNamespace=lab
refused 'aws/endpoint' render f $operator_chart --set server.aws.enabled=true --set server.aws.endpoint=http://plain
ok 'wrong values are refused by name'
! render f $operator_chart | grep -q aws-listen || fail 'AWS clients are served without being asked for'
render f $operator_chart -n lab --set server.aws.enabled=true > "$work/aws.yaml"
grep -qF -- '--aws-endpoint=https://f-fairlead-aws.lab.svc' "$work/aws.yaml" || fail 'no endpoint for AWS clients'
render f $operator_chart --set server.aws.enabled=true --set server.aws.scripts.persistentVolumeClaim.claimName=scripts --set server.decisionLogMiB=0 > "$work/scripts.yaml"
for line in '--s3-directory=/srv/s3' '{name: scripts, mountPath: /srv/s3, readOnly: true}' 'claimName: scripts'; do grep -qF -- "$line" "$work/scripts.yaml" || fail "no $line where lifecycle scripts lie in a volume"; done
! grep -q s3-directory "$work/aws.yaml" || fail 'a folder of scripts that nobody named'
[[ $(grep -c '^  name: f-fairlead-aws$' "$work/aws.yaml") == 5 ]] || fail 'not a Service, two roles and two bindings for AWS clients'
ok 'AWS clients are served where that is asked for, with rights for that'
[[ $(render f $operator_chart --set metrics.serviceMonitor.enabled=true | grep -c '^kind: ServiceMonitor$') == 1 ]] || fail 'no ServiceMonitor'
exporter=slurmNodes.exporter.enabled=true
[[ $(render c $cluster_chart --set $exporter,podMonitor.create=true -a monitoring.coreos.com/v1 | grep -c '^kind: PodMonitor$') == 1 ]] || fail 'no PodMonitor'
! { render c $cluster_chart --set $exporter,podMonitor.create=true; render c $cluster_chart --set $exporter -a monitoring.coreos.com/v1; render c $cluster_chart --set podMonitor.create=true -a monitoring.coreos.com/v1; } | grep -q '^kind: PodMonitor$' || fail 'a PodMonitor that nobody asked for, or that nobody knows'
[[ $(render f $operator_chart --set agent.enabled=false,networkPolicy.enabled=false,podDisruptionBudget.enabled=false,crds.install=false,rbac.create=false | grep '^kind: ' | sort | tr -d '\n') == \
  'kind: Deploymentkind: Servicekind: Servicekind: ServiceAccount' ]] || fail 'switches do not switch off'
ok 'switches'
# Block volumes: off unless asked for, and what cannot work without is asked for by name.
! render f $operator_chart | grep -q '^kind: CSIDriver$\|privileged: true' || fail 'volumes that nobody asked for'
sidecars=volumes.controller.images.provisioner=r/p:1,volumes.controller.images.attacher=r/a:1,volumes.controller.images.resizer=r/r:1
volumes=volumes.enabled=true,volumes.size=50Gi,$sidecars
snapshots=volumes.snapshots.enabled=true,volumes.controller.images.snapshotter=r/s:1
refused 'volumes.size: say how large' render f $operator_chart --set volumes.enabled=true,$sidecars
refused 'volumes.controller.images.provisioner: say where' render f $operator_chart --set volumes.enabled=true,volumes.size=50Gi
refused 'volumes.controller.images.snapshotter: say where' render f $operator_chart --set $volumes,volumes.snapshots.enabled=true
refused 'volumes/size' render f $operator_chart --set $volumes,volumes.size=large
refused 'volumes/image' render f $operator_chart --set $volumes,volumes.image=../pool.img
refused 'deletionPolicy' render f $operator_chart --set $volumes,volumes.snapshots.class.deletionPolicy=Keep
refused 'kubeletDir' render f $operator_chart --set $volumes,volumes.kubeletDir=kubelet
render f $operator_chart -n lab --set "$volumes,$snapshots,volumes.storageClass.create=true,volumes.snapshots.class.create=true,volumes.snapshots.class.default=true,volumes.nodeSelector.disk=pool,volumes.kubeletDir=/data/kubelet" > "$work/volumes.yaml"
render f $operator_chart --set "$volumes,volumes.image=,volumes.size=,volumes.snapshots.class.create=true,volumes.controller.replicas=1" > "$work/volumes-xfs.yaml"
/usr/bin/python3 - "$work/volumes.yaml" "$work/volumes-xfs.yaml" << 'PYTHON'
import sys, yaml
read = lambda path: {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(open(path)) if d}
all, xfs = read(sys.argv[1]), read(sys.argv[2])
pod = all["DaemonSet", "f-fairlead-volumes"]["spec"]["template"]["spec"]
pool, driver = pod["containers"]
assert pod["nodeSelector"] == {"disk": "pool"} and not pod["automountServiceAccountToken"]
assert {"--engine=unix:///run/fairlead-volumes/engines.sock", "--image=/var/lib/fairlead-volumes/pool.img", "--size=50Gi"} <= set(pool["args"]), pool["args"]
assert {"--own-pool", "--seen-as=unix:///data/kubelet/plugins/csi.fairlead.dev/csi.sock"} <= set(driver["args"]), driver["args"]
tokens = [c["name"] for c in pod["containers"] if any("serviceaccount" in m["mountPath"] for m in c["volumeMounts"])]
assert tokens == ["pool"], tokens
assert not any(arg.startswith(("--image", "--size")) for arg in xfs["DaemonSet", "f-fairlead-volumes"]["spec"]["template"]["spec"]["containers"][0]["args"])
names = lambda of: [c["name"] for c in of["Deployment", "f-fairlead-volumes-controller"]["spec"]["template"]["spec"]["containers"]]
assert names(all) == ["driver", "provisioner", "attacher", "resizer", "snapshotter"] and names(xfs) == names(all)[:-1]
assert ("StorageClass", "fairlead") in all and ("StorageClass", "fairlead") not in xfs
# A class of snapshots only where there are any.
of_snapshots = all["VolumeSnapshotClass", "fairlead"]
assert of_snapshots["driver"] == "csi.fairlead.dev" and of_snapshots["deletionPolicy"] == "Delete" and of_snapshots["metadata"]["annotations"] == {"snapshot.storage.kubernetes.io/is-default-class": "true"}, of_snapshots
assert ("VolumeSnapshotClass", "fairlead") not in xfs
# A drain takes one controller at a time; of one it takes that.
budget = lambda of: of["PodDisruptionBudget", "f-fairlead-volumes-controller"]["spec"]
assert (budget(all)["minAvailable"], budget(xfs)["minAvailable"]) == (1, 0)
assert budget(all)["selector"] == all["Deployment", "f-fairlead-volumes-controller"]["spec"]["selector"]
# Each account has its own role and no other.
bound = sorted((d["subjects"][0]["name"], d["roleRef"]["name"]) for d in all.values() if d["kind"].endswith("RoleBinding") and "volumes" in d["subjects"][0]["name"])
assert bound == [("f-fairlead-volumes",) * 2] + [("f-fairlead-volumes-controller",) * 2] * 2, bound
policies = {name for kind, name in all if kind == "NetworkPolicy"}
assert {"f-fairlead-volumes", "f-fairlead-volumes-controller"} <= policies, policies
PYTHON
ok 'block volumes are there where that is asked for, with rights for that'

# Published, then read by helm from a web server.
deploy/publish.sh "$work/repo" > "$work/log" || fail 'publish'
sha256sum "$work"/repo/*.tgz > "$work/published"
deploy/publish.sh "$work/repo" > "$work/log" || fail 'publish again'
sha256sum --quiet -c "$work/published" || fail 'publishing again changed a chart'
cp -r deploy "$work/deploy"
echo '# another line' >> "$work/deploy/helm/fairlead/values.yaml"
refused 'raise the version' "$work/deploy/publish.sh" "$work/repo"
# The next version: one more field in a definition, one more label, to see what an upgrade brings.
sed -i -E 's/^(version|appVersion): .*/\1: 99.1.0/' "$work"/deploy/helm/*/Chart.yaml
sed -i 's/^    shortNames:$/    categories: [next]\n    shortNames:/' "$work/deploy/helm/fairlead/files/crds/slurmclusters.slurm.nebius.ai.yaml"
"$work/deploy/publish.sh" "$work/repo" > "$work/log" || fail 'publish the next version'
/usr/bin/python3 -u -c '
import functools, http.server
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="'"$work"'/repo")
handler.log_message = lambda *a: None
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()' > "$work/port" 2> "$work/web.log" &
web=$!
eventually 10 test -s "$work/port"
h repo add site "http://127.0.0.1:$(cat "$work/port")" || fail 'repo add'
"$HELM" search repo site -l -o json > "$work/found.json"
/usr/bin/python3 - "$work/found.json" "$version" << 'PYTHON'
import json, sys
found = sorted((item["name"], item["version"]) for item in json.load(open(sys.argv[1])))
assert found == [("site/fairlead", sys.argv[2]), ("site/fairlead", "99.1.0"), ("site/slurm-cluster", sys.argv[2]), ("site/slurm-cluster", "99.1.0")], found
PYTHON
ok 'published once, found by helm repo add'

# ---- clusters as releases: the same on both engines

json() { /usr/bin/python3 -c 'import json, sys; print(eval(sys.argv[1], {"o": json.load(sys.stdin)}))' "$1"; }
size() { k -n site get slurmcluster fpt-hpc -o jsonpath='{.spec.slurmNodes.worker.size}'; }
uid_of() { k -n site get slurmcluster fpt-hpc -o jsonpath='{.metadata.uid}'; }
condition() { k -n site get slurmcluster fpt-hpc -o json | json "[c['$2'] for c in o.get('status', {}).get('conditions', []) if c['type'] == '$1'][0]"; }
says() { condition "$1" "$2" | grep -qF -- "$3"; } # TYPE FIELD WORDS
cluster_releases() {
  local uid
  # The claims of the defaults do not exist, so an operator only says what is missing; nothing is started.
  h install c site/slurm-cluster --version "$version" -n site --create-namespace -f "$work/fpt.yaml" --set slurmNodes.worker.size=2 || fail 'install the cluster'
  [[ $(size) == 2 ]] || fail "size is $(size)"
  uid=$(uid_of)
  eventually 30 says VolumesReady message jail-pvc
  eventually 10 says ChartSupported status True
  h upgrade c site/slurm-cluster --version 99.1.0 -n site --reuse-values --set slurmNodes.worker.size=3 --set claims.create=true || fail 'upgrade the cluster'
  [[ $(size) == 3 && $(uid_of) == "$uid" ]] || fail 'the upgrade made another cluster'
  [[ $(k -n site get slurmcluster fpt-hpc -o jsonpath='{.metadata.annotations.fairlead\.dev/chart}') == slurm-cluster-99.1.0 ]] || fail 'the chart version is not on the cluster'
  eventually 30 says ChartSupported message 'chart 99.1.0'
  says ChartSupported status False || fail 'a chart of another version is said to fit'
  [[ $(k -n site get pvc jail-pvc -o jsonpath='{.spec.resources.requests.storage}') == 40Gi ]] || fail 'no claim'
  refused 'clusterName is fixed' "$HELM" upgrade c site/slurm-cluster --version "$version" -n site --reuse-values --set clusterName=another
  [[ $(uid_of) == "$uid" && $(size) == 3 ]] || fail 'a refused upgrade changed the cluster'
  h rollback c 1 -n site || fail 'roll back'
  eventually 30 says ChartSupported status True
  [[ $(size) == 2 && $(uid_of) == "$uid" ]] || fail 'rolled back to something else'
  [[ $("$HELM" history c -n site -o json | json '[i["status"] for i in o][-1] + " " + str(len(o))') == 'deployed 3' ]] || fail "history: $("$HELM" history c -n site)"
  h get manifest c -n site || fail 'get manifest'
  h uninstall c -n site || fail 'uninstall the cluster'
  eventually 60 bash -c "! '$tools/kubectl' -n site get slurmcluster fpt-hpc -o name"
  [[ -z $(k -n site get secret -l owner=helm -o name) ]] || fail 'helm left a release'
  k -n site get pvc jail-pvc -o name > "$work/log" 2>&1 || fail 'the shared claim went with the release'
  k delete namespace site --wait=false > /dev/null
  eventually 90 bash -c "! '$tools/kubectl' get namespace site -o name"
}

# ---- the real API server

tests/peers/cluster.sh up "$work/real" > "$work/log" 2>&1 || fail 'the real API server does not start'
KUBECONFIG=$(tail -n 1 "$work/log")
export KUBECONFIG
ok "a real Kubernetes: $(k version -o json | json 'o["serverVersion"]["gitVersion"]')"

for values in '' "$volumes,$snapshots,volumes.storageClass.create=true,volumes.storageClass.default=true" "$volumes,volumes.image=,volumes.sparse=true" server.replicas=1,crds.keep=false,networkPolicy.apiServerCIDRs={10.0.0.0/8} 'image.registry=registry.example/x,server.slurmImage=registry.example/slurm:1,imagePullSecrets[0].name=s'; do
  render f $operator_chart -n default ${values:+--set "$values"} > "$work/rendered.yaml"
  k apply --dry-run=server --validate=strict -f "$work/rendered.yaml" > "$work/log" 2>&1 || fail "the API server refuses what the chart renders with \"$values\""
done
ok 'the API server takes every object, no field unknown'

# Definitions of another owner stay as they are.
k create -f $operator_chart/files/crds/machines.fairlead.dev.yaml > /dev/null
refused 'invalid ownership metadata' "$HELM" install f site/fairlead --version "$version" -n fairlead-system --create-namespace
k delete crd machines.fairlead.dev > /dev/null
# That of training jobs may be SageMaker's operator's: everything else is installed.
sed '/app.kubernetes.io\/part-of/d; /^  labels:$/d' $operator_chart/files/crds/hyperpodpytorchjobs.sagemaker.amazonaws.com.yaml | k create -f - > /dev/null
h install f site/fairlead --version "$version" -n fairlead-system --create-namespace || fail 'install the operator beside another training operator'
same_owner=$(k get crd hyperpodpytorchjobs.sagemaker.amazonaws.com -o jsonpath='{.metadata.labels}')
[ -z "$same_owner" ] || fail "the definition of training jobs was taken over: $same_owner"
h uninstall f -n fairlead-system || fail 'uninstall'
k delete crd hyperpodpytorchjobs.sagemaker.amazonaws.com > /dev/null
h install f site/fairlead --version "$version" -n fairlead-system --create-namespace || fail 'install the operator'
eventually 30 k get slurmclusters -A
[[ $(k -n fairlead-system get deployment f-fairlead-server -o jsonpath='{.spec.replicas}') == 2 ]] || fail 'not 2 replicas'
ok 'the operator chart installs; another owner of a definition is left alone'

# What the account may do is what the programs declare, and nothing beyond.
account=system:serviceaccount:fairlead-system:f-fairlead-server
may() { k auth can-i "$@" --as="$account" > "$work/log" 2>&1; }
may list slurmclusters.slurm.nebius.ai -A || fail 'the server may not see clusters'
may create pods -n anywhere || fail 'the server may not create pods'
may update leases.coordination.k8s.io/fairlead-server -n fairlead-system || fail 'the server cannot lead'
for forbidden in 'update leases.coordination.k8s.io/fairlead-server -n default' 'update leases.coordination.k8s.io/another -n fairlead-system' 'create clusterroles.rbac.authorization.k8s.io' 'delete namespaces' 'delete nodes' 'delete crd' 'impersonate users' \
  'create serviceaccounts --subresource=token -n default' 'delete slurmclusters.slurm.nebius.ai -n default'; do
  # shellcheck disable=SC2086
  ! may $forbidden || fail "the server may $forbidden"
done
! k auth can-i get secrets -n fairlead-system --as=system:serviceaccount:fairlead-system:f-fairlead-agent > /dev/null 2>&1 || fail 'the agent may read secrets'
ok 'least privilege'

# Pods of nodes follow volumes and make none; the controller makes them and reads no Secret.
h upgrade f site/fairlead --version "$version" -n fairlead-system --reuse-values --set "$volumes,volumes.storageClass.create=true" || fail 'volumes'
[[ $(k get csidriver csi.fairlead.dev -o jsonpath='{.spec.attachRequired}') == true && $(k get storageclass fairlead -o jsonpath='{.volumeBindingMode}') == WaitForFirstConsumer ]] || fail 'no CSIDriver, or no StorageClass'
server_account=$account
account=system:serviceaccount:fairlead-system:f-fairlead-volumes
may update volumes.fairlead.dev/x --subresource=status || fail 'a pool cannot tell of a volume'
may create volumepools.fairlead.dev || fail 'a pool cannot make itself known'
for forbidden in 'create volumes.fairlead.dev' 'delete volumes.fairlead.dev' 'create attachments.fairlead.dev' 'get secrets -n fairlead-system' 'get persistentvolumes' 'patch volumeattachments.storage.k8s.io' 'update nodes' 'update leases.coordination.k8s.io/csi-fairlead-dev -n fairlead-system'; do
  # shellcheck disable=SC2086
  ! may $forbidden || fail "a pod of a node may $forbidden"
done
account=$account-controller
may create volumes.fairlead.dev || fail 'the driver cannot make a volume'
may patch volumeattachments.storage.k8s.io/x --subresource=status || fail 'csi-attacher cannot tell'
may update leases.coordination.k8s.io/external-resizer-csi-fairlead-dev -n fairlead-system || fail 'csi-resizer cannot lead'
for forbidden in 'get secrets -n fairlead-system' 'update volumes.fairlead.dev/x --subresource=status' 'update leases.coordination.k8s.io/fairlead-server -n fairlead-system' 'create leases.coordination.k8s.io -n default' 'get volumesnapshotcontents.snapshot.storage.k8s.io' 'create pods -n default' 'update nodes'; do
  # shellcheck disable=SC2086
  ! may $forbidden || fail "the volumes' controller may $forbidden"
done
account=$server_account
h upgrade f site/fairlead --version "$version" -n fairlead-system --reset-values || fail 'volumes off again'
! k get csidriver csi.fairlead.dev > "$work/log" 2>&1 || fail 'the CSIDriver stays without volumes'
ok 'least privilege of volumes'

# The server itself with the account's token: it must get along with these rights.
k create token f-fairlead-server -n fairlead-system > "$work/token"
k config view --minify --flatten --raw > "$work/account.kubeconfig"
k --kubeconfig "$work/account.kubeconfig" config set-credentials account --token="$(cat "$work/token")" > /dev/null
k --kubeconfig "$work/account.kubeconfig" config set-context --current --user=account > /dev/null
"$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$work/account.kubeconfig" --namespace fairlead-system --health-listen 127.0.0.1:0 > "$work/operator.log" 2>&1 &
operator=$!
eventually 40 bash -c "'$tools/kubectl' -n fairlead-system get lease fairlead-server -o jsonpath='{.spec.holderIdentity}' | grep -q ."
cluster_releases
denied=$(/usr/bin/python3 - "$work/real/log/audit.jsonl" "$account" << 'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    event = json.loads(line)
    if event["user"]["username"] == sys.argv[2] and event.get("responseStatus", {}).get("code") == 403:
        print(event["verb"], event["requestURI"])
PYTHON
)
[[ -z $denied ]] || fail "the account was refused: $denied"
kill "$operator"
wait "$operator" 2> /dev/null || true
operator=''
ok 'clusters on the real API server: install, upgrade, roll back, uninstall; the server with the rights of the chart'

k create namespace keep > /dev/null
h install c site/slurm-cluster --version "$version" -n keep || fail 'install a cluster'
h upgrade f site/fairlead --version 99.1.0 -n fairlead-system --reuse-values --set server.replicas=3 || fail 'upgrade the operator'
[[ $(k get crd slurmclusters.slurm.nebius.ai -o jsonpath='{.spec.names.categories[0]}') == next ]] || fail 'an upgrade does not bring definitions up to date'
[[ $(k -n fairlead-system get deployment f-fairlead-server -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[0].image}') == '3 fairlead.dev/fairlead-server:99.1.0' ]] || fail 'not upgraded'
h rollback f 1 -n fairlead-system || fail 'roll the operator back'
[[ $(k -n fairlead-system get deployment f-fairlead-server -o jsonpath='{.spec.template.spec.containers[0].image}') == "fairlead.dev/fairlead-server:$version" ]] || fail 'not rolled back'
[[ $(k get crd slurmclusters.slurm.nebius.ai -o jsonpath='{.spec.names.categories}') == '' ]] || fail 'definitions are not rolled back'
h uninstall f -n fairlead-system || fail 'uninstall the operator'
k -n keep get slurmcluster slurm -o name > "$work/log" 2>&1 || fail 'uninstalling the operator deleted a cluster'
[[ -z $(k get clusterrole,clusterrolebinding -o name -l app.kubernetes.io/instance=f) ]] || fail 'uninstall left rights'
eventually 60 bash -c "[[ -z \$('$tools/kubectl' -n fairlead-system get all,networkpolicy,poddisruptionbudget,role,rolebinding -l app.kubernetes.io/instance=f -o name) ]]"
h install f site/fairlead --version "$version" -n fairlead-system || fail 'install again over what was kept'
k -n keep get slurmcluster slurm -o name > "$work/log" 2>&1 || fail 'a second installation deleted a cluster'
h upgrade f site/fairlead --version "$version" -n fairlead-system --set crds.keep=false || fail 'crds.keep=false'
h uninstall f -n fairlead-system || fail 'purge'
eventually 60 bash -c "! '$tools/kubectl' get crd slurmclusters.slurm.nebius.ai -o name"
ok 'the operator: upgrade and roll-back with definitions; uninstall keeps clusters unless told to purge'
tests/peers/cluster.sh down "$work/real" > "$work/log" 2>&1 || fail 'stop the real API server'

# ---- the embedded engine

mkdir "$work/embedded"
"$build/bin/fairlead-server" --state-dir "$work/embedded" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
server=$!
eventually 20 grep -q 'serving' "$work/server.log"
export KUBECONFIG=$work/embedded/pki/admin.kubeconfig
cluster_releases
ok 'clusters on the embedded engine: install, upgrade, roll back, uninstall'
