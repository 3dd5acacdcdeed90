#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real kubectls against fairlead-server: every command a user types for the kinds that are served, for kubectl 1.30 to 1.33. No node is needed: pods stay pending.
#   kubectl_test.sh BUILD_DIR
set -eu
build=$(realpath "${1:?the build folder}")
here=$(cd "$(dirname "$0")" && pwd)
server_program=$build/bin/fairlead-server
[ -x "$server_program" ] || { echo "kubectl_test.sh: $server_program is not built" >&2; exit 1; }
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
# shellcheck source=tests/e2e/kubectl_lib.sh
. "$here/kubectl_lib.sh"

# --- the server ---
serve --log-level debug
url=$(sed -n 's/.*server: *"\{0,1\}\(https:[^"]*\)"\{0,1\} *$/\1/p' "$admin")
[ -n "$url" ] || { echo "no server address in $admin" >&2; exit 1; }

# --- kubectls: those of this machine; built from their module where fewer than two are there ---
kubectls=$(kubectls_here)
plain=$(command -v kubectl || true)
if [ -n "$plain" ] && [ "$(echo "$kubectls" | wc -w)" -lt 2 ]; then
  minor=$("$plain" version --client -o json 2> /dev/null | sed -n 's/.*"minor": "\([0-9]*\).*/\1/p' | head -1)
  case " $kubectls" in *" 1.$minor="*) ;; *) case $minor in 30 | 31 | 32 | 33) kubectls="$kubectls 1.$minor=$plain" ;; esac ;; esac
fi
for minor in 33 31; do
  [ "$(echo "$kubectls" | wc -w)" -lt 2 ] || break
  case " $kubectls" in *" 1.$minor="*) continue ;; esac
  program=$kubectl_cache/kubectl.1.$minor
  if [ ! -x "$program" ] && command -v go > /dev/null; then
    echo "building kubectl 1.$minor from its Go module (once, some minutes)"
    mkdir -p "$(dirname "$program")"
    (cd "$here/kubectl" && CGO_ENABLED=0 go build -trimpath -modfile="go.1.$minor.mod" -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.$minor.5 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor" -o "$program" .) || true
  fi
  [ ! -x "$program" ] || kubectls="$kubectls 1.$minor=$program"
done

pem() { sed -n "s/.*$1: *\"\{0,1\}\([A-Za-z0-9+\/=]*\)\"\{0,1\} *\$/\1/p" "$admin" | base64 -d; }
pem certificate-authority-data > "$work/ca.crt"

manifests() { # into $dir
  cat > "$dir/pod.yaml" << 'YAML'
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web, tier: front}
spec:
  containers:
  - name: main
    image: slurm
    command: [sleep, "1000"]
    env:
    - {name: COLOUR, value: red}
  - name: side
    image: slurm
YAML
  cat > "$dir/two.yaml" << 'YAML'
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {set: two}}
data: {a: "1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, labels: {set: two}}
data: {a: "2"}
YAML
  cat > "$dir/crd.yaml" << YAML
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$group}
spec:
  group: $group
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Colour, type: string, jsonPath: .spec.colour, priority: 1}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget of the test.
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 9, description: How large it is.}
              colour: {type: string, default: green, enum: [green, red]}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
YAML
  cat > "$dir/widget.yaml" << YAML
apiVersion: $group/v1
kind: Widget
metadata: {name: w1}
spec: {size: 3}
YAML
}

run_version() { # VERSION PROGRAM
  version=$1
  program=$2
  minor=${version#1.}
  dir=$work/v$minor
  space=t$minor
  group=v$minor.example.com
  mkdir -p "$dir/home"
  manifests
  export HOME=$dir/home KUBECONFIG=$admin
  k() { "$program" -n "$space" "$@"; }

  # discovery
  has 'version' 'v1.33.0\+fairlead' k version
  has 'api-versions' '^v1$' k api-versions
  has 'api-resources' '^pods +po +v1 +true +Pod' k api-resources
  has 'api-resources -o wide with verbs' 'configmaps .*create,delete,deletecollection,get,list,patch,update,watch' k api-resources -o wide
  has 'api-resources of a group' 'machines' k api-resources --api-group=fairlead.dev
  does 'cluster-info' k cluster-info
  has 'get --raw' '"kind": ?"APIVersions"' k get --raw /api
  has 'get --raw of OpenAPI' 'serverRelativeURL' k get --raw /openapi/v3

  # create, the commands that make objects by themselves (protobuf from 1.32 on)
  has 'create namespace' 'created' k create namespace "$space"
  has 'create configmap' 'created' k create configmap settings --from-literal=mode=fast --from-literal=level=7
  has 'create secret' 'created' k create secret generic hidden --from-literal=word=sesame
  has 'create serviceaccount' 'created' k create serviceaccount robot
  has 'a secret keeps its value' 'sesame' sh -c "'$program' -n $space get secret hidden -o jsonpath='{.data.word}' | base64 -d"
  refuses 'create again' 'already exists' k create configmap settings
  has 'create -f' 'pod/web created' k create -f "$dir/pod.yaml"
  has 'create -f of two documents' 'configmap/other created' k create -f "$dir/two.yaml"
  has 'run' 'pod/runner created' k run runner --image=slurm --labels=app=runner --command -- sleep 5
  has 'create --dry-run=server' 'dry run' k create configmap ghost --dry-run=server
  refuses 'a dry run leaves nothing' 'not found' k get configmap ghost
  refuses 'create of a kind that is not served' 'could not find|no matches|not served' k create deployment nope --image=x
  refuses 'create in a namespace that is not there' 'not found' "$program" -n nowhere create configmap x

  # get, all forms
  has 'get' '^web +0/2 +Pending' k get pods
  has 'get -o wide' 'NODE' k get pods -o wide
  has 'get -o yaml' '^kind: Pod' k get pod web -o yaml
  has 'get -o json' '"kind": "List"' k get pods -o json
  has 'get -o name' '^pod/web$' k get pods -o name
  has 'get -o jsonpath' '^main side' k get pod web -o 'jsonpath={.spec.containers[*].name}'
  has 'get -o go-template' '^web$' k get pod web -o 'go-template={{.metadata.name}}'
  has 'get -o custom-columns' '^web +slurm' k get pods -o custom-columns=N:.metadata.name,I:.spec.containers[0].image
  has 'get by short name' '^settings +2 ' k get cm settings
  has 'get of several kinds' 'configmap/settings' k get pods,cm
  has 'get -l' '^web' k get pods -l 'app=web,tier in (front,back)'
  lacks 'get -l leaves out others' '^runner' k get pods -l app=web
  has 'get -l with !=' '^runner' k get pods -l 'app!=web'
  has 'get --show-labels' 'app=web,tier=front' k get pods --show-labels
  has 'get -L' 'front' k get pods -L tier
  has 'get --field-selector' '^web' k get pods --field-selector=status.phase=Pending,metadata.name=web
  lacks 'get --field-selector with !=' '^web' k get pods --field-selector=metadata.name!=web
  has 'get --sort-by' '^runner' sh -c "'$program' -n $space get pods --sort-by=.metadata.name | sed -n 2p"
  has 'get -A' "^$space +web" k get pods -A
  has 'get all' 'pod/web' k get all
  has 'get --chunk-size' '^web' k get pods --chunk-size=1
  has 'get -f' '^web' k get -f "$dir/pod.yaml"
  has 'get namespaces' "^$space +Active" k get namespaces
  has 'the standard namespaces are there' '^kube-system +Active' k get ns
  refuses 'get of what is not there' 'pods "none" not found' k get pod none
  has 'get --ignore-not-found' '' sh -c "'$program' -n $space get pod none --ignore-not-found; echo fine"
  refuses 'get of an unknown kind' "the server doesn't have a resource type" k get gizmos
  refuses 'a bad selector' 'nable to parse|invalid|not a valid|expected:' k get pods -l 'a=b=c'

  # watch
  "$program" -n "$space" get pods -w > "$dir/watch" 2>&1 &
  watch_pid=$!
  "$program" -n "$space" get cm --watch-only --output-watch-events > "$dir/watch_only" 2>&1 &
  watch_only_pid=$!
  eventually grep -q '^web' "$dir/watch" || true
  for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do  # a watch may begin after the first of these
    k label cm other "round=$i" --overwrite > /dev/null 2>&1
    grep -q MODIFIED "$dir/watch_only" && break
    sleep 0.1
  done
  has 'get --watch-only shows events' 'MODIFIED +other' cat "$dir/watch_only"
  k run watched --image=slurm > /dev/null 2>&1
  eventually grep -q '^watched' "$dir/watch" || true
  has 'get -w shows what comes' '^watched' cat "$dir/watch"
  k delete pod watched --now --wait=false > /dev/null 2>&1 || true
  kill "$watch_pid" "$watch_only_pid" 2> /dev/null || true
  wait "$watch_pid" "$watch_only_pid" 2> /dev/null || true

  # describe
  has 'describe pod' 'COLOUR: +red' k describe pod web
  has 'describe configmap' 'fast' k describe cm settings
  has 'describe secret' 'word: +6 bytes' k describe secret hidden
  has 'describe namespace' 'Status: +Active' k describe ns "$space"

  # nodes, as an administrator handles them
  printf 'apiVersion: v1\nkind: Node\nmetadata: {name: n%s}\n' "$minor" > "$dir/node.yaml"
  has 'create node' 'created' k create -f "$dir/node.yaml"
  has 'cordon' 'cordoned' k cordon "n$minor"
  has 'get nodes shows it' 'SchedulingDisabled' k get node "n$minor"
  has 'uncordon' 'uncordoned' k uncordon "n$minor"
  has 'taint' 'tainted' k taint node "n$minor" only=gpu:NoSchedule
  has 'describe node' 'only=gpu:NoSchedule' k describe node "n$minor"
  has 'untaint' 'untainted' k taint node "n$minor" only-
  has 'drain of an empty node' 'drained' k drain "n$minor" --ignore-daemonsets --force
  has 'delete node' 'deleted' k delete node "n$minor"

  # apply
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: "1", b: "2"}\n' > "$dir/applied.yaml"
  has 'apply creates' 'configmap/applied created' k apply -f "$dir/applied.yaml"
  has 'apply again' 'configmap/applied unchanged' k apply -f "$dir/applied.yaml"
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: "9"}\n' > "$dir/applied.yaml"
  refuses 'diff tells a difference' '^\+  a: "9"' k diff -f "$dir/applied.yaml"
  has 'apply changes' 'configmap/applied configured' k apply -f "$dir/applied.yaml"
  has 'apply removes what left the file' '^\{"a":"9"\}$' k get cm applied -o 'jsonpath={.data}'
  has 'apply --dry-run=server' 'server dry run' k apply -f "$dir/applied.yaml" --dry-run=server
  sed 's/name: web/name: web2/' "$dir/pod.yaml" > "$dir/pod2.yaml"
  has 'apply of a pod' 'created' k apply -f "$dir/pod2.yaml"
  sed -i 's/tier: front/tier: back/' "$dir/pod2.yaml"
  has 'apply changes a label of a pod' 'configured' k apply -f "$dir/pod2.yaml"
  has 'the strategic merge kept both containers' '^main side' k get pod web2 -o 'jsonpath={.spec.containers[*].name}'
  has 'apply --server-side' 'serverside-applied' k apply --server-side -f "$dir/applied.yaml"
  sed 's/"9"/"10"/' "$dir/applied.yaml" > "$dir/other.yaml"
  refuses 'apply --server-side of another manager' 'conflict' k apply --server-side --field-manager=other -f "$dir/other.yaml"
  has 'apply --server-side --force-conflicts' 'serverside-applied' k apply --server-side --field-manager=other --force-conflicts -f "$dir/other.yaml"
  has 'apply from stdin' 'unchanged|configured' sh -c "'$program' -n $space apply -f - < '$dir/applied.yaml'"

  # edit, patch, replace, label, annotate
  has 'edit' 'configmap/settings edited' env KUBE_EDITOR='sed -i s/mode:.fast/mode:\ edited/' "$program" -n "$space" edit cm settings
  has 'edit arrived' '^edited$' k get cm settings -o 'jsonpath={.data.mode}'
  has 'patch, strategic' 'patched' k patch pod web --type=strategic -p '{"metadata":{"annotations":{"by":"strategic"}}}'
  has 'patch, merge' 'patched' k patch cm settings --type=merge -p '{"data":{"mode":"slow","level":null}}'
  has 'patch, merge removed a key' '^\{"mode":"slow"\}$' k get cm settings -o 'jsonpath={.data}'
  has 'patch, json' 'patched' k patch cm settings --type=json -p '[{"op":"test","path":"/data/mode","value":"slow"},{"op":"add","path":"/data/extra","value":"x"}]'
  refuses 'patch, json with a failed test' 'test|conflict|onflict|nvalid' k patch cm settings --type=json -p '[{"op":"test","path":"/data/mode","value":"fast"}]'
  has 'patch of a subresource' 'patched' k patch pod web --subresource=status --type=merge -p '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
  has 'patch, strategic on a list by its key' 'patched' k patch pod web --subresource=status --type=strategic -p '{"status":{"conditions":[{"type":"Extra","status":"False"}]}}'
  has 'the other entries of the list stay' 'Ready=True.*Extra=False|Extra=False.*Ready=True' k get pod web -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {end}'
  has 'a status patch arrives' '^Running$' k get pod web -o 'jsonpath={.status.phase}'
  k get cm settings -o yaml > "$dir/settings.yaml"
  sed -i 's/mode: slow/mode: replaced/' "$dir/settings.yaml"
  has 'replace' 'configmap/settings replaced' k replace -f "$dir/settings.yaml"
  refuses 'replace of a stale object' 'the object has been modified' k replace -f "$dir/settings.yaml"
  has 'replace --force' 'replaced' k replace --force -f "$dir/applied.yaml"
  has 'label' 'labeled' k label pod web colour=blue
  refuses 'label that is there' 'overwrite' k label pod web colour=red
  has 'label --overwrite' 'labeled' k label pod web colour=red --overwrite
  has 'label removed' 'unlabeled' k label pod web colour-
  refuses 'a bad label' 'nvalid' k label pod web 'colour=not a label'
  has 'label --all' 'labeled' k label cm --all batch=yes
  has 'annotate' 'annotated' k annotate pod web note='a long text'
  has 'annotate removed' 'annotated' k annotate pod web note-
  refuses 'a pod keeps its spec' 'Forbidden|may not|nvalid' k patch pod web --type=merge -p '{"spec":{"hostname":"else"}}'

  # wait
  has 'wait for a condition' 'condition met' k wait pod/web --for=condition=Ready --timeout=5s
  has 'wait for a value' 'condition met' k wait pod/web --for=jsonpath='{.status.phase}'=Running --timeout=5s
  refuses 'wait ends' 'timed out' k wait pod/runner --for=condition=Ready --timeout=1s

  # logs and exec have no node to go to here
  has 'logs of a pod without a node' '' sh -c "'$program' -n $space logs runner; echo fine"
  refuses 'logs wants a container' 'container name must be specified|choose one of' "$program" -n "$space" get --raw "/api/v1/namespaces/$space/pods/web2/log"
  refuses 'exec in a pod without a node' 'does not have a host assigned|not have a host|unable to upgrade' k exec runner -- true

  # explain
  has 'explain' 'KIND: +Pod' k explain pod
  has 'explain of a field' 'image' k explain pod.spec.containers
  has 'explain --recursive' 'nodeName' k explain pod --recursive
  refuses 'explain of no field' 'does not exist' k explain pod.spec.nothing

  # who am I, what may I do
  has 'auth whoami' 'fairlead-admin' k auth whoami
  has 'auth can-i' '^yes$' k auth can-i create pods
  has 'auth can-i of a subresource' '^yes$' k auth can-i get pods --subresource=log
  has 'auth can-i --list' 'selfsubjectaccessreviews' k auth can-i --list

  # validation by the server
  sed 's/nodeName/x/; s/    image: slurm/    image: slurm\n    imagge: typo/' "$dir/pod.yaml" | sed 's/name: web$/name: bad/' > "$dir/bad.yaml"
  refuses 'an unknown field' 'unknown field "spec.containers\[0\].imagge"' k create -f "$dir/bad.yaml"
  refuses 'an unknown field in apply' 'unknown field "spec.containers\[0\].imagge"' k apply -f "$dir/bad.yaml"
  has 'an unknown field with a warning' 'Warning: unknown field' k create -f "$dir/bad.yaml" --validate=warn
  does 'delete of what was let in' k delete pod bad --now --wait=false
  has 'an unknown field ignored' 'created' k create -f "$dir/bad.yaml" --validate=false
  printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: empty}\nspec: {}\n' > "$dir/empty.yaml"
  refuses 'a required field' 'spec.containers: Required value' k create -f "$dir/empty.yaml"
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "Not A Name"}\n' > "$dir/name.yaml"
  refuses 'a bad name' 'RFC 1123' k create -f "$dir/name.yaml"
  printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: typed}\ndata: {a: [1]}\n' > "$dir/typed.yaml"
  refuses 'a wrong type' 'nvalid|cannot|expected' k create -f "$dir/typed.yaml"

  # custom resources
  has 'create crd' 'created' k create -f "$dir/crd.yaml"
  has 'wait for the crd' 'condition met' k wait --for=condition=Established "crd/widgets.$group" --timeout=5s
  has 'create a custom resource' 'created' k create -f "$dir/widget.yaml"
  has 'printer columns' '^w1 +3 ' k get widgets
  has 'printer columns -o wide, default value' '^w1 +3 +green' k get wd -o wide
  has 'get all has the category' "widget.$group/w1" k get all
  sed -i 's/size: 3/size: 5/' "$dir/widget.yaml"
  has 'apply of a custom resource' 'configured' k apply -f "$dir/widget.yaml"
  has 'apply again' 'unchanged' k apply -f "$dir/widget.yaml"
  has 'patch, merge, of a custom resource' 'patched' k patch widget w1 --type=merge -p '{"spec":{"colour":"red"}}'
  refuses 'patch, strategic, of a custom resource' 'unknown format|not supported|strategic' k patch widget w1 --type=strategic -p '{"spec":{"size":2}}'
  has 'status of a custom resource' 'patched' k patch widget w1 --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
  has 'a column from a filter' '^w1 +5 +True' k get widgets
  has 'wait for a custom resource' 'condition met' k wait widget/w1 --for=condition=Ready --timeout=5s
  refuses 'a value out of range' 'spec.size.*less than or equal to 9' k patch widget w1 --type=merge -p '{"spec":{"size":100}}'
  refuses 'a value not in the enum' 'spec.colour: Unsupported value' k patch widget w1 --type=merge -p '{"spec":{"colour":"blue"}}'
  sed 's/size: 5/size: 5, weight: 1/; s/w1/w2/' "$dir/widget.yaml" > "$dir/widget2.yaml"
  refuses 'an unknown field of a custom resource' 'unknown field "spec.weight"' k create -f "$dir/widget2.yaml"
  has 'explain of a custom resource' 'How large it is' k explain widget.spec.size
  has 'describe a custom resource' 'Size: +5' k describe widget w1
  has 'edit of a custom resource' 'edited' env KUBE_EDITOR='sed -i s/size:.5/size:\ 6/' "$program" -n "$space" edit widget w1
  has 'delete of a custom resource' 'deleted' k delete widget w1
  k create -f "$dir/widget.yaml" > /dev/null 2>&1 || true
  has 'delete crd' 'deleted' k delete crd "widgets.$group"
  refuses 'its kind is gone' "doesn't have a resource type|could not find" k get widgets

  # delete
  has 'delete --wait=false' 'deleted' k delete pod web2 --wait=false
  has 'delete -l' 'configmap "other" deleted' k delete cm -l set=two
  k create configmap held > /dev/null 2>&1
  k patch cm held --type=merge -p '{"metadata":{"finalizers":["example.com/hold"]}}' > /dev/null 2>&1
  has 'delete is held by a finalizer' 'deleted' k delete cm held --wait=false
  has 'deletionTimestamp is set' '^20' k get cm held -o 'jsonpath={.metadata.deletionTimestamp}'
  (k wait --for=delete cm/held --timeout=10s > "$dir/gone" 2>&1; echo "status $?" >> "$dir/gone") &
  gone_pid=$!
  has 'the finalizer goes' 'patched' k patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'
  wait "$gone_pid" || true
  has 'wait --for=delete' 'status 0' cat "$dir/gone"
  has 'delete -f' 'deleted' k delete -f "$dir/applied.yaml"
  has 'delete --force' 'deleted' k delete pod web --force --grace-period=0
  has 'delete --ignore-not-found' '' sh -c "'$program' -n $space delete pod none --ignore-not-found; echo fine"
  refuses 'delete of what is not there' 'not found' k delete pod none
  has 'delete --all' 'deleted' k delete pods --all --force --grace-period=0
  has 'delete --wait' 'deleted' k delete cm settings --wait=true --timeout=10s
  has 'delete namespace' 'deleted' k delete ns "$space" --timeout=20s
  refuses 'the namespace is gone' 'not found' k get ns "$space"

  # strangers
  printf 'apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: "%s", certificate-authority: %s}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {token: wrong}}]\n' "$url" "$work/ca.crt" > "$dir/stranger"
  refuses 'a wrong token' 'Unauthorized|must be logged in|provide credentials' "$program" --kubeconfig "$dir/stranger" get pods
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj '/O=system:masters/CN=eve' -keyout "$dir/eve.key" -out "$dir/eve.crt" 2> /dev/null
  refuses 'a certificate of another CA' 'certificate|tls|Unauthorized|connection|EOF|broken pipe' "$program" --kubeconfig "$dir/stranger" --token= --client-certificate "$dir/eve.crt" --client-key "$dir/eve.key" get pods
}

versions=0
for entry in $kubectls; do
  run_version "${entry%%=*}" "${entry#*=}"
  versions=$((versions + 1))
done

# --- not of a kubectl version ---
version=http
code() { curl -sS -o /dev/null -w '%{http_code}' --cacert "$work/ca.crt" "$@"; }
has 'anonymous is refused' '^401$' code "$url/api/v1/pods"
has 'anonymous is refused to discovery' '^401$' code "$url/apis"
has 'health is open' '^200$' code "$url/readyz"
has 'version is open' '^200$' code "$url/version"
has 'a wrong bearer token' '^401$' code -H 'Authorization: Bearer x' "$url/api"
pem client-certificate-data > "$work/admin.crt"
pem client-key-data > "$work/admin.key"
as_admin() { curl -sS --cacert "$work/ca.crt" --cert "$work/admin.crt" --key "$work/admin.key" "$@"; }
has 'OpenAPI v2 is not served' '"code":404' as_admin "$url/openapi/v2"
has 'what only protobuf may answer' '"code":406' as_admin -H 'Accept: application/vnd.kubernetes.protobuf' "$url/api/v1/pods"
has 'a watch ends in time with a bookmark' '"type":"BOOKMARK"' as_admin "$url/api/v1/namespaces?watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
has 'a watch with initial events' 'k8s.io/initial-events-end' as_admin "$url/api/v1/namespaces?watch=1&timeoutSeconds=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
has 'initial events need their match' '"code":422' as_admin "$url/api/v1/namespaces?watch=1&sendInitialEvents=true"
has 'a watch from the future' '"code":|"type":"ERROR"' as_admin "$url/api/v1/namespaces?watch=1&timeoutSeconds=1&resourceVersion=999999999"
has 'a second server on the same state is refused' 'another fairlead-server runs on the state folder' sh -c "'$server_program' --state-dir '$work/state' --listen 127.0.0.1:0 2>&1; true"
port=${url##*:}
has 'a port that is taken' 'taken' sh -c "'$server_program' --state-dir '$work/state2' --listen 127.0.0.1:$port 2>&1; true"
refuses 'the other engine, and no cluster named' 'which cluster' env -u KUBECONFIG -u KUBERNETES_SERVICE_HOST HOME="$work/nobody" "$server_program" --engine=kubernetes
start=$(date +%s)
if stop_server && [ $(($(date +%s) - start)) -le 5 ]; then tell ok 'SIGTERM ends the server in time'; else tell FAIL 'SIGTERM ends the server in time'; fi

[ "$versions" -ge 2 ] || { version=all; tell FAIL "at least two versions of kubectl (ran $versions)"; }
all_passed
