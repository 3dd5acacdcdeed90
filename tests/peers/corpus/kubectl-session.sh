#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a person does with kubectl on an evening, recorded by record.py. $KUBECTL: the program.
set -eu
k="${KUBECTL:?}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat > "$dir/pod.yaml" << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  automountServiceAccountToken: false
  nodeSelector: {corpus/none: x}
  containers:
  - {name: main, image: "busybox:1", command: [sleep, "60"], env: [{name: A, value: b}]}
YAML
cat > "$dir/config.yaml" << 'YAML'
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: "1", b: "2"}
YAML
$k create configmap made --from-literal=x=y
$k create secret generic hidden --from-literal=p=q
$k create serviceaccount robot
$k apply -f "$dir/config.yaml"
sed -i 's/b: "2"/c: "3"/' "$dir/config.yaml"
$k apply -f "$dir/config.yaml"
$k diff -f "$dir/config.yaml" || true
$k apply --server-side --force-conflicts -f "$dir/config.yaml"
$k apply --server-side --field-manager=other -f "$dir/config.yaml"
$k create -f "$dir/pod.yaml"
$k create -f "$dir/pod.yaml" || true
$k get pods
$k get pods,configmaps,secrets -o wide
$k get pod web -o yaml
$k get pods -l app=web -o name
$k get pods --field-selector=status.phase=Pending -o jsonpath='{.items[*].metadata.name}'
$k describe pod web > /dev/null
$k label pod web tier=front
$k label pod web tier=back --overwrite
$k annotate pod web note=hello
$k patch pod web -p '{"metadata":{"labels":{"patched":"yes"}}}'
$k patch pod web --type=json -p '[{"op":"remove","path":"/metadata/labels/patched"}]'
$k patch configmap settings --type=merge -p '{"data":{"a":null}}'
KUBE_EDITOR="sed -i s/tier:.back/tier:\ edited/" $k edit pod web
$k replace -f "$dir/config.yaml"
$k wait --for=jsonpath='{.status.phase}'=Pending pod/web --timeout=5s
$k auth can-i create pods
$k auth can-i --list > /dev/null
$k explain pod.spec.containers > /dev/null
$k api-resources > /dev/null
$k get events
$k create role reader --verb=get --resource=pods
$k create rolebinding readers --role=reader --serviceaccount=corpusrecord:robot
$k create service clusterip hidden --clusterip=None --tcp=80:80
$k run quick --image=busybox:1 --dry-run=server -o name
$k delete pod web --grace-period=0 --force
$k delete configmap made settings
$k delete secret hidden --wait=false
$k delete role,rolebinding,service --all
$k get all
