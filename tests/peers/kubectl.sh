#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What people and scripts do with kubectl, one line per check: "ok NAME" or "FAIL NAME: why". It works in a namespace of its own, needs no node, and removes what it made.
#   kubectl.sh KUBECTL KUBECONFIG       exit status 1 when a check failed
set -euo pipefail
kubectl=${1:?kubectl.sh KUBECTL KUBECONFIG}
export KUBECONFIG=${2:?kubectl.sh KUBECTL KUBECONFIG}
work=$(mktemp -d)
export HOME=$work # its cache of discovery is of this server alone
ns=kubectl-$(printf %04x $RANDOM)
failed=0
k() { "$kubectl" --request-timeout=30s "$@"; }
n() { k -n "$ns" "$@"; }
trap 'k delete namespace "$ns" --wait=false > /dev/null 2>&1 || true; k delete crd "gears.$ns.example.com" --wait=false > /dev/null 2>&1 || true; k delete node "$ns" > /dev/null 2>&1 || true; rm -rf "$work"' EXIT
tell() { # STATUS NAME WHY
  if [ "$1" = 0 ]; then echo "ok $2"; else failed=1; echo "FAIL $2: $3: $(tail -n 2 "$work/out" | tr '\n' ' ' | cut -c1-300)"; fi
}
does() { local name=$1 status=0; shift; "$@" > "$work/out" 2>&1 || status=1; tell $status "$name" "$*"; }
says() { local name=$1 words=$2 status=0; shift 2; { "$@" > "$work/out" 2>&1 && grep -qE -- "$words" "$work/out"; } || status=1; tell $status "$name" "does not say $words"; }
refuses() { local name=$1 words=$2 status=0; shift 2; if "$@" > "$work/out" 2>&1 || ! grep -qE -- "$words" "$work/out"; then status=1; fi; tell $status "$name" "is not refused with $words"; }
eventually() { local end=$((SECONDS + 30)); until "$@" > "$work/out" 2>&1; do [ $SECONDS -lt $end ] || return 1; read -rt 0.2 <> <(:) || true; done; }
settings() { printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s, labels: {set: both}}\ndata: {a: "%s"}\n' "$1" "$ns" "$2"; }
settings one 1 > "$work/one.yaml"
settings one 2 > "$work/changed.yaml"
{ settings one 1; echo ---; settings two 1; } > "$work/both.yaml"
cat > "$work/pod.yaml" << YAML
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: $ns, labels: {app: web}}
spec:
  schedulerName: nobody
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "busybox:1", command: [sleep, "1000"], ports: [{containerPort: 80}]}]
YAML
cat > "$work/crd.yaml" << YAML
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.$ns.example.com}
spec:
  group: $ns.example.com
  scope: Namespaced
  names: {plural: gears, singular: gear, kind: Gear, shortNames: [gr]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.teeth, statusReplicasPath: .status.teeth}}
    additionalPrinterColumns: [{name: Teeth, type: integer, jsonPath: .spec.teeth}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, required: [teeth], properties: {teeth: {type: integer, minimum: 1, description: How many there are.}, metal: {type: string, default: iron}}}, status: {type: object, properties: {teeth: {type: integer}}}}}}
YAML
printf 'apiVersion: %s.example.com/v1\nkind: Gear\nmetadata: {name: small, namespace: %s}\nspec: {teeth: 8}\n' "$ns" "$ns" > "$work/gear.yaml"

# discovery, documentation
says version 'Server Version' k version
says api_resources '^configmaps +cm +v1 ' k api-resources
says api_versions '^rbac.authorization.k8s.io/v1$' k api-versions
does cluster_info k cluster-info
says explain 'containers' k explain pod.spec
says explain_recursive 'imagePullPolicy' k explain pod.spec.containers --recursive
says get_raw '"gitVersion"' k get --raw /version
# apply, as client and as server
does create_namespace k create namespace "$ns"
eventually n get serviceaccount default || true
says apply_creates 'configmap/one created' k apply -f "$work/both.yaml"
says apply_unchanged 'configmap/one unchanged' k apply -f "$work/both.yaml"
refuses diff '\+  a: "2"' k diff -f "$work/changed.yaml"
says apply_changes 'configmap/one configured' k apply -f "$work/changed.yaml"
says apply_server_side 'serverside-applied' k apply --server-side --field-manager=first -f <(settings three 1)
refuses apply_conflict 'conflict with "first"' k apply --server-side --field-manager=second -f <(settings three 2)
says apply_force 'serverside-applied' k apply --server-side --field-manager=second --force-conflicts -f <(settings three 2)
says apply_view_last '"data": ?\{|a: "2"' n apply view-last-applied configmap/one
says apply_dry_run 'server dry run' k apply --dry-run=server -f <(settings four 1)
refuses dry_run_writes_nothing 'NotFound' n get configmap four
refuses validation 'unknown field "dat"' k apply --validate=strict -f <(settings one 1 | sed 's/^data:/dat:/')
mkdir "$work/kustom"
cp "$work/one.yaml" "$work/kustom/"
printf 'namePrefix: k-\nresources: [one.yaml]\n' > "$work/kustom/kustomization.yaml"
says kustomize 'configmap/k-one created' k apply -k "$work/kustom"
says apply_prune 'configmap/two pruned' n apply --prune -l set=both --prune-allowlist=core/v1/ConfigMap -f "$work/one.yaml"
# reading
says get '^one +1 ' n get configmap one
says get_wide '^NAME +DATA +AGE' n get configmaps -o wide
says get_name '^configmap/one$' n get cm -o name
says get_labels 'set=both' n get cm --show-labels -l set=both
says get_columns '^one +1' n get cm one -o 'custom-columns=N:.metadata.name,A:.data.a'
says get_jsonpath '^1$' n get cm one -o 'jsonpath={.data.a}'
says get_yaml '^kind: ConfigMap$' n get cm one -o yaml
says get_pages '^one ' n get cm --chunk-size=1
says get_field_selector '^one ' n get cm --field-selector metadata.name=one
says get_sorted '^NAME' n get cm --sort-by=.metadata.creationTimestamp
says describe '^Name: +one$' n describe cm one
# changing
does label n label cm one colour=red
does annotate n annotate cm one note=here
says patch_strategic 'patched' n patch cm one -p '{"data":{"b":"2"}}'
says patch_merge 'patched' n patch cm one --type=merge -p '{"data":{"b":null}}'
says patch_json 'patched' n patch cm one --type=json -p '[{"op":"replace","path":"/data/a","value":"9"}]'
does replace k replace -f "$work/one.yaml"
says edit 'configmap/one edited' env EDITOR="sed -i 's/^  a: .*/  a: \"5\"/'" "$kubectl" -n "$ns" edit cm one
does create_secret n create secret generic hidden --from-literal=k=v
does create_quantity n create configmap made --from-literal=k=v
does create_service n create service clusterip plain --tcp=80:8080
does create_job n create job once --image=busybox:1 -- sh -c true
says get_job '^once ' n get jobs
# pods that nobody schedules
does create_pod k create -f "$work/pod.yaml"
says get_pod '^web +0/1 +Pending' n get pod web
says describe_pod '^Status: +Pending' n describe pod web
says get_status_path 'Pending' n get pod web -o 'jsonpath={.status.phase}'
does wait_jsonpath n wait --for=jsonpath='{.status.phase}'=Pending pod/web --timeout=10s
says expose 'exposed' n expose pod web --port=80
does events n get events
does delete_pod n delete pod web
does wait_deleted n wait --for=delete pod/web --timeout=10s
says delete_by_label 'deleted' n delete cm -l set=both
# rights
says can_i '^yes$' k auth can-i '*' '*'
does whoami k auth whoami
does create_role n create role reader --verb=get,list --resource=configmaps
does create_binding n create rolebinding readers --role=reader --serviceaccount="$ns:default"
says can_i_as '^yes$' n auth can-i list configmaps --as="system:serviceaccount:$ns:default"
says reconcile 'reconciled' n auth reconcile -f <(n get role reader -o yaml | sed '/resourceVersion\|uid:/d')
says create_token '^ey' n create token default
# nodes, as objects
does create_node k apply -f <(printf 'apiVersion: v1\nkind: Node\nmetadata: {name: %s}\n' "$ns")
says cordon 'cordoned' k cordon "$ns"
says taint 'tainted' k taint node "$ns" probe=kubectl:NoSchedule
says uncordon 'uncordoned' k uncordon "$ns"
says drain_dry_run 'drained' k drain "$ns" --ignore-daemonsets --dry-run=server
does delete_node k delete node "$ns"
# kinds of one's own
does crd k apply -f "$work/crd.yaml"
does crd_established k wait --for=condition=Established "crd/gears.$ns.example.com" --timeout=30s
eventually k apply --server-side -f "$work/gear.yaml" || true
says custom_default '^iron$' n get gear small -o 'jsonpath={.spec.metal}'
says custom_columns '^small +8' n get gr
refuses custom_schema 'should be greater than or equal to 1' n patch gear small --type=merge -p '{"spec":{"teeth":0}}'
says custom_scale 'scaled' n scale --replicas=12 gear/small
says custom_status 'patched' n patch gear small --subresource=status --type=merge -p '{"status":{"teeth":12}}'
says custom_wait 'condition met' n wait --for=jsonpath='{.status.teeth}'=12 gear/small --timeout=10s
eventually k explain "gears.spec.teeth" --api-version="$ns.example.com/v1" || true
says custom_explain 'How many there are' k explain gears.spec.teeth --api-version="$ns.example.com/v1"
# a watch: what was there, then what comes
"$kubectl" -n "$ns" get gears -w --output-watch-events --no-headers > "$work/watched" 2>&1 &
watching=$!
eventually grep -q '^ADDED +\|^ADDED  *small' "$work/watched" || true
n label gear small size=s > "$work/out" 2>&1 || true
eventually grep -q '^MODIFIED' "$work/watched" || true
n delete gear small > "$work/out" 2>&1 || true
eventually grep -q '^DELETED' "$work/watched" || true
kill "$watching" 2> /dev/null || true
wait "$watching" 2> /dev/null || true
says watch '^ADDED MODIFIED DELETED $' sh -c "cut -d' ' -f1 '$work/watched' | uniq | tr '\n' ' '; echo"
does delete_crd k delete crd "gears.$ns.example.com" --timeout=30s
does delete_namespace k delete namespace "$ns" --timeout=60s
exit "$failed"
