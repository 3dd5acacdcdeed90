#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A release's life with helm, one line per check: "ok NAME" or "FAIL NAME: why". It works in a namespace of its own, needs no node, and removes what it made.
#   helm.sh HELM KUBECONFIG       exit status 1 when a check failed
set -euo pipefail
helm=${1:?helm.sh HELM KUBECONFIG}
export KUBECONFIG=${2:?helm.sh HELM KUBECONFIG}
work=$(mktemp -d)
export HOME=$work HELM_CACHE_HOME=$work/cache HELM_CONFIG_HOME=$work/config HELM_DATA_HOME=$work/data
ns=helm-$(printf %04x $RANDOM)
failed=0
trap '"$helm" uninstall r -n "$ns" > /dev/null 2>&1 || true; rm -rf "$work"' EXIT
tell() { if [ "$1" = 0 ]; then echo "ok $2"; else failed=1; echo "FAIL $2: $(tail -n 2 "$work/out" | tr '\n' ' ' | cut -c1-300)"; fi; }
does() { local name=$1 status=0; shift; "$helm" "$@" -n "$ns" > "$work/out" 2>&1 || status=1; tell $status "$name"; }
says() { local name=$1 words=$2 status=0; shift 2; { "$helm" "$@" -n "$ns" > "$work/out" 2>&1 && grep -qE -- "$words" "$work/out"; } || status=1; tell $status "$name"; }
refuses() { local name=$1 words=$2 status=0; shift 2; if "$helm" "$@" -n "$ns" > "$work/out" 2>&1 || ! grep -qE -- "$words" "$work/out"; then status=1; fi; tell $status "$name"; }
mkdir -p "$work/chart/templates" "$work/chart/crds"
printf 'apiVersion: v2\nname: tiny\nversion: 1.0.0\nkubeVersion: ">= 1.30.0-0"\n' > "$work/chart/Chart.yaml"
printf 'colour: red\nservice: true\nport: 80\n' > "$work/chart/values.yaml"
cat > "$work/chart/templates/all.yaml" << 'YAML'
{{- if not (.Capabilities.APIVersions.Has "batch/v1/Job") }}{{ fail "no jobs" }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app.kubernetes.io/managed-by: "{{ .Release.Service }}"}}
data: {colour: "{{ .Values.colour }}", seen: "{{ lookup "v1" "Namespace" "" "default" | dig "metadata" "name" "nothing" }}"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: worker}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: worker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: worker}
subjects: [{kind: ServiceAccount, name: worker, namespace: "{{ .Release.Namespace }}"}]
{{- if .Values.service }}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: web}, ports: [{port: {{ .Values.port }}}]}
{{- end }}
---
apiVersion: v1
kind: Secret
metadata: {name: before, annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}}
stringData: {a: b}
YAML
says version '^v3\.' version --short
does dry_run install r "$work/chart" --create-namespace --dry-run=client
does install install r "$work/chart" --create-namespace --wait --timeout 60s
says status 'STATUS: deployed' status r
says get_manifest 'kind: RoleBinding' get manifest r
says lookup 'seen: "?default' get manifest r
refuses install_twice 'cannot re-use a name' install r "$work/chart"
says upgrade 'REVISION: 2' upgrade r "$work/chart" --set colour=blue,service=false --wait
says get_values 'colour: blue' get values r
says dry_run_of_an_upgrade 'colour: "green"' upgrade r "$work/chart" --set colour=green --dry-run=server
does rollback rollback r 1 --wait
says history '^3\s.*deployed\s+tiny-1.0.0.*Rollback to 1' history r
says list '^r\s' list
refuses bad_object 'must be between 1 and 65535' upgrade r "$work/chart" --set port=70000
does atomic_upgrade upgrade r "$work/chart" --atomic --timeout 60s
does uninstall uninstall r --wait
refuses gone 'not found' status r
exit "$failed"
