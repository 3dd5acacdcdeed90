#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A release from install to uninstall, recorded by record.py. $HELM: the program.
set -eu
helm="${HELM:?}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/c/templates"
printf 'apiVersion: v2\nname: c\nversion: 0.1.0\n' > "$dir/c/Chart.yaml"
printf 'value: one\n' > "$dir/c/values.yaml"
cat > "$dir/c/templates/all.yaml" << 'YAML'
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-config"}
data: {value: "{{ .Values.value }}"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: "{{ .Release.Name }}"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "{{ .Release.Name }}"}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
YAML
$helm install rel "$dir/c" --wait --timeout 20s
$helm upgrade rel "$dir/c" --set value=two --wait --timeout 20s
$helm list
$helm get values rel > /dev/null
$helm history rel
$helm rollback rel 1 --wait --timeout 20s
$helm status rel > /dev/null
$helm uninstall rel
