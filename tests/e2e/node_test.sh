#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Local nodes with the real programs: two machines, pods on them, power cuts, partitions, a killed server and agent, and down leaves nothing.
# usage: node_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: node_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/site_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/site_lib.sh"
id=$(printf '%s' "$FAIRLEAD_STATE_DIR" | sha256sum | cut -c1-6)
# Does the output hold this text? The whole output is taken first: a program whose reader leaves early ends with an error.
says() { local text=$1 out; shift; out=$(run "$@" 2>&1) && [[ $out == *"$text"* ]]; }
field() { run get "$1" "$2" -o json | python3 -c 'import json, sys; value = json.load(sys.stdin)
for key in sys.argv[1].split("."): value = value.get(key, "") if isinstance(value, dict) else ""
print(value)' "$3"; }
is() { [[ $(field "$1" "$2" "$3") == "$4" ]]; }
container_start() { run exec "$1" -- sh -c 'cut -d" " -f22 /proc/1/stat'; }

cat > "$work/site.yaml" <<'TEXT'
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: node-a}
spec: {local: {cpu: "1", memory: 512Mi}, labels: {which: a}}
---
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: node-b}
spec: {local: {cpu: "1", memory: 512Mi, resources: {nvidia.com/gpu: 2}}, labels: {which: b}}
TEXT
pod() { cat <<TEXT
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  nodeSelector: {which: $2}
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:1", command: [sh, -c, "echo started; exec sleep 100000"]}
TEXT
}

# ---- an option beats the environment
! says x status --state-dir "$work/other" || fail "status of a site that is not there"
out=$(run status --state-dir "$work/other" 2>&1) || true
[[ $out == *"$work/other"* ]] || fail "--state-dir loses against FAIRLEAD_STATE_DIR: $out"

# ---- up, from nothing and again
says 'machine/node-a would be created' up -f "$work/site.yaml" --dry-run || fail "a dry run does not tell what it would do"
[[ ! -e $FAIRLEAD_STATE_DIR/run ]] || fail "a dry run made something"
run up -f "$work/site.yaml" --port 16443 --node-range 10.187.0.0/16 --pod-range 10.188.0.0/16 --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "up"; }
note "two machines are nodes"
says '2 unchanged' up -f "$work/site.yaml" --timeout 60 || fail "a second up changes something"
says '"nvidia.com/gpu": "2"' get node node-b -o json || fail "the node does not declare its resources"

# ---- pods
pod one a > "$work/one.yaml" && pod two b > "$work/two.yaml"
run up -f "$work/one.yaml" -f "$work/two.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "pods"; }
[[ $(run logs one) == started ]] || fail "logs"
status=0
out=$(run exec one -- sh -c 'echo out; echo err >&2; exit 7' 2> "$work/err") || status=$?
[[ $status == 7 && $out == out && $(< "$work/err") == err ]] || fail "exec: status $status, out $out"
[[ $(echo through | run exec -i two -- cat) == through ]] || fail "exec with stdin"
two_ip=$(field pod two status.podIP)
run exec one -- ping -c 1 -W 3 "$two_ip" > /dev/null || fail "a pod does not reach one on another node"
reached "$two_ip" || fail "this machine does not reach a pod"
note "pods run, log, exec and reach one another"

# ---- pods speak to the API as their service accounts: kubectl finds address, certificate and token where Kubernetes puts them
kubectl=''
for candidate in "$(command -v kubectl || true)" /usr/lib/google-cloud-sdk/bin/kubectl.1.33 "${FAIRLEAD_KUBECTL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/kubectl}"/kubectl.1.33; do
  if [[ -n $candidate && -x $candidate ]]; then kubectl=$candidate; break; fi
done
folder=/var/run/secrets/kubernetes.io/serviceaccount
teller() { # NAME EXTRA: a pod of the account reader with kubectl in it
  cat <<TEXT
---
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  nodeSelector: {which: a}
  serviceAccountName: reader
  terminationGracePeriodSeconds: 1
  $2
  volumes: [{name: program, hostPath: {path: "$kubectl", type: File}}]
  containers:
  - {name: main, image: "busybox:1", command: [sleep, "100000"], env: [{name: HOME, value: /tmp}], volumeMounts: [{name: program, mountPath: /kubectl, readOnly: true}]}
TEXT
}
if [[ -n $kubectl ]]; then
  cat > "$work/tellers.yaml" <<TEXT
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
$(teller teller 'securityContext: {runAsUser: 1234}')
$(teller host-teller 'hostNetwork: true')
$(teller silent 'automountServiceAccountToken: false')
TEXT
  run up -f "$work/tellers.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "pods with tokens"; }
  for pod in teller host-teller; do
    [[ $(run exec $pod -- /kubectl get pod one -o name 2>&1) == pod/one ]] || fail "$pod cannot read a pod: $(run exec $pod -- /kubectl get pod one 2>&1)"
    out=$(run exec $pod -- /kubectl get secrets 2>&1) && fail "$pod reads secrets"
    [[ $out == *'"system:serviceaccount:default:reader" cannot list resource "secrets"'* ]] || fail "$pod is not its account: $out"
  done
  [[ $(run exec teller -- stat -Lc '%u %a' $folder/token) == '1234 600' ]] || fail "a token is not its only user's: $(run exec teller -- ls -lnL $folder)"
  [[ $(run exec host-teller -- stat -Lc '%u %a' $folder/token) == '0 644' ]] || fail "the mode of a token"
  [[ $(run exec teller -- cat $folder/namespace) == default ]] || fail "a pod is not told its namespace"
  ! run exec silent -- ls $folder > /dev/null 2>&1 || fail "a pod that wants no token has one"
  token=$(run exec teller -- cat $folder/token)
  as_token() { run exec host-teller -- /kubectl --token "$1" get pod one -o name; }
  [[ $(as_token "$token") == pod/one ]] || fail "a token is not good elsewhere"
  run delete pod teller --timeout 30 > /dev/null
  ! as_token "$token" > "$work/out" 2>&1 || fail "a token outlives its pod"
  [[ -z $(grep -rlF -- "${token##*.}" "$FAIRLEAD_STATE_DIR"/nodes/*/logs "$FAIRLEAD_STATE_DIR/run/server.log" 2> /dev/null) ]] || fail "a token is in a log"
  [[ -z $(find "$FAIRLEAD_STATE_DIR/nodes" -name token -path '*kube-api-access*' -newer "$work/site.yaml" -exec grep -lF -- "${token##*.}" {} + 2> /dev/null) ]] || fail "a token outlives its pod on the node"
  run delete pod host-teller --timeout 30 > /dev/null && run delete pod silent --timeout 30 > /dev/null
  note "pods use their tokens"
else
  note "no kubectl here: tokens in pods are left out"
fi

# ---- containers are joined: by a person at a terminal, through pipes, with the oldest and the newest kubectl over both protocols
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
admin=$FAIRLEAD_STATE_DIR/pki/admin.kubeconfig
shell_in_a_pod() { # NAME KUBECTL: a shell of its own, seen at two sizes, left with a status; the pod goes with it. kubectl tells a size one larger first, so that programs draw anew.
  "$top/tests/terminal.py" 33x91 '<command prompt|/ #' '>' '</ # ' \
    ">while ! stty size | grep -q '33 91'; do sleep 0.1; done; echo si''zed" '<sized' '#40x100' \
    ">while ! stty size | grep -q '40 100'; do sleep 0.1; done; echo re''sized" '<resized' '>exit 3' \
    -- "$2" --kubeconfig "$admin" run -it --rm --restart=Never "$1" --image=busybox:1 -- sh
}
for minor in 30 33; do
  joins=''
  for candidate in "$(command -v "kubectl.1.$minor" || true)" "/usr/lib/google-cloud-sdk/bin/kubectl.1.$minor" "${FAIRLEAD_KUBECTL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/kubectl}/kubectl.1.$minor"; do
    if [[ -n $candidate && -x $candidate ]]; then joins=$candidate; break; fi
  done
  [[ -n $joins ]] || { note "no kubectl 1.$minor here: joining with it is left out"; continue; }
  for websockets in true false; do
    export KUBECTL_REMOTE_COMMAND_WEBSOCKETS=$websockets
    status=0
    out=$(shell_in_a_pod "shell-$minor-$websockets" "$joins" 2>&1) || status=$?
    [[ $status == 3 && $out == *'deleted'* ]] || fail "run -it with kubectl 1.$minor, WebSockets: $websockets, status $status: $out"
    ! run get pod "shell-$minor-$websockets" > /dev/null 2>&1 || fail "run --rm left its pod"
    out=$(printf 'one\ntwo' | "$joins" --kubeconfig "$admin" run -i --rm --restart=Never --quiet "pipe-$minor-$websockets" --image=busybox:1 -- sha256sum 2>&1) || fail "run -i with kubectl 1.$minor: $out"
    [[ $out == *"$(printf 'one\ntwo' | sha256sum)"* ]] || fail "run -i with kubectl 1.$minor, WebSockets: $websockets: $out"
  done
  unset KUBECTL_REMOTE_COMMAND_WEBSOCKETS
done
sed -e 's/name: one/name: listener/' -e 's/name: main,/name: main, stdin: true,/' -e 's/command: .*/command: [sh, -c, "while read line; do echo got $line; done"]}/' "$work/one.yaml" > "$work/listener.yaml"
run up -f "$work/listener.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "a pod with stdin"; }
# The stdin of this one is not for one client: the session goes on until it is ended, and the container longer.
heard() { local out; out=$(echo "$1" | timeout 3 "$fairlead" attach -i listener) || true; [[ $out == *"got $1"* ]]; }
until_true 30 "the listener hears" heard first
[[ $(field pod listener status.phase) == Running ]] || fail "a client that left ended the container"
! out=$(run attach listener -c none 2>&1) && [[ $out == *'container none is not valid for pod listener'* ]] || fail "attach to no container: $out"
[[ $(run logs listener --all-containers --prefix --tail 1) == '[pod/listener/main] got first' ]] || fail "logs of all containers: $(run logs listener --all-containers --prefix --tail 1)"
note "containers are joined"

# ---- another image: that container alone is stopped and started anew, whatever the restart policy
changing() { cat <<TEXT
apiVersion: v1
kind: Pod
metadata: {name: changing}
spec:
  nodeSelector: {which: a}
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "$1", command: [sleep, "100000"]}
  - {name: other, image: "busybox:1", command: [sleep, "100000"]}
TEXT
}
# restarts, images and states of its containers, by name
containers() { run get pod changing -o json | python3 -c 'import json, sys
for one in sorted(json.load(sys.stdin)["status"].get("containerStatuses", []), key=lambda c: c["name"]): print(one["name"], one["restartCount"], one["image"], *one["state"])'; }
are() { [[ $(containers) == "$1" ]]; }
changing busybox:1 > "$work/changing.yaml"
run up -f "$work/changing.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "a pod of two containers"; }
until_true 20 "two containers run" are $'main 0 busybox:1 running\nother 0 busybox:1 running'
changing localhost/busybox:1 > "$work/changing.yaml"
run up -f "$work/changing.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "another image"; }
until_true 20 "the changed container runs anew" are $'main 1 localhost/busybox:1 running\nother 0 busybox:1 running'
run delete pod changing > /dev/null 2>&1 || fail "the changed pod cannot be deleted"
note "another image replaces its container alone"

# ---- services: by their address, by a port of every node, and clients that come back to where they were
cat > "$work/services.yaml" <<TEXT
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec: {type: NodePort, sessionAffinity: ClientIP, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
$(web a)
$(web b)
TEXT
run up -f "$work/services.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "services"; }
port_of() { run get service "$1" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"]["ports"][0]["nodePort"])'; }
web_port=$(port_of web) sticky_port=$(port_of sticky) sticky_ip=$(field service sticky spec.clusterIP)
((web_port >= 30000 && web_port <= 32767 && web_port != sticky_port)) || fail "node ports: $web_port $sticky_port"
answers() { # ADDRESS PORT: who answers, of many connections
  local all=''
  for _ in {1..24}; do all+="$(ask "$1" "$2") "; done
  tr ' ' '\n' <<< "$all" | grep . | sort -u | tr '\n' ' '
}
for node in node-a node-b; do
  address=$(field machine $node status.address)
  until_true 30 "the port of the service on $node" ask "$address" "$web_port"
  both() { [[ $(answers "$address" "$web_port") == 'web-a web-b ' ]]; }
  until_true 30 "both endpoints by a port of $node" both
  one_only() { [[ $(answers "$address" "$sticky_port") =~ ^web-[ab]\ $ ]]; }
  until_true 30 "a client that keeps its endpoint, by a port of $node" one_only
done
out=$(run exec one -- sh -c "for i in 1 2 3 4 5 6 7 8; do printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 $sticky_ip 80 | tail -n 1; done" | sort -u)
[[ $out =~ ^web-[ab]$ ]] || fail "a pod does not keep its endpoint: $out"
says '80:'"$web_port"'/TCP' get service web || fail "kubectl's table does not show the node port"
note "services by node ports, with sessions"

# ---- a partition and its end
run node cut node-b --no-wait 2> /dev/null
! reached "$two_ip" || fail "a cut node is reached"
pid_before=$(field machine node-b status.pid)
says 'the cluster has noticed' node cut node-b --timeout 120 || fail "nobody notices that node-b is cut off"
says 'its network link is cut' status || fail "status does not tell of the cut link"
run node heal node-b --timeout 120 2> /dev/null
until_true 30 "node-b reached again" reached "$two_ip"
[[ $(field machine node-b status.pid) == "$pid_before" ]] || fail "a cut killed the node"
note "cut and healed"

# ---- a power cut
first=$(field machine node-b status.pid)
run node kill node-b --no-wait 2> /dev/null
[[ ! -e /proc/$first ]] || grep -q '^State:.*Z' "/proc/$first/status" || fail "the first process lives on after the power cut"
is machine node-b status.phase Off || fail "the machine is not off"
run node heal node-b --timeout 120 2> /dev/null
until_true 60 "pod two again" is pod two status.phase Running
until_true 60 "exec in pod two" run exec two -- true
note "killed and healed"

# ---- rebooted by a person: once, and told whose containers end
says 'default/two' node reboot node-b --dry-run || fail "a dry run does not tell whose containers would end"
first=$(field machine node-b status.pid)
run node reboot node-b --timeout 120 2> /dev/null || fail "node reboot"
[[ $(field machine node-b status.pid) != "$first" ]] || fail "another first process"
is machine node-b status.reboot.phase Done || fail "the reboot is not written down"
until_true 60 "pod two after the reboot" is pod two status.phase Running
until_true 60 "exec in pod two after the reboot" run exec two -- true
note "rebooted"

# ---- its first process dies by itself: the machine starts again
first=$(field machine node-b status.pid)
until_true 30 "the time between two starts" sh -c "[ \$((\$(date +%s) - \$(stat -c %Y '$FAIRLEAD_STATE_DIR/nodes/node-b/init.json'))) -gt 11 ]"
kill -9 "$first"
runs_anew() { local pid; pid=$(field machine node-b status.pid); [[ -n $pid && $pid != "$first" ]] && is machine node-b status.phase Running; }
until_true 60 "a new first process" runs_anew
until_true 60 "exec in pod two" run exec two -- true
note "died and came back"

# ---- the server is killed: everything goes on, and is adopted
server=$(< "$FAIRLEAD_STATE_DIR/run/server.pid")
first=$(field machine node-a status.pid) starts=$(field machine node-a status.starts) before=$(container_start one)
kill -9 "$server"
until_true 10 "the server's end" sh -c "! kill -0 $server"
[[ -e /proc/$first ]] || fail "the node died with the server"
run up -f "$work/site.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "up after the server was killed"; }
[[ $(field machine node-a status.pid) == "$first" && $(field machine node-a status.starts) == "$starts" ]] || fail "the node was not adopted"
until_true 30 "exec in pod one" run exec one -- true
[[ $(container_start one) == "$before" ]] || fail "the container was not adopted"
note "server killed, all adopted"

# ---- an agent is killed: its node starts it again and it adopts its pods
agent=''
for child in $(< "/proc/$first/task/$first/children"); do
  if grep -qsz '^run$' "/proc/$child/cmdline"; then agent=$child; fi
done
[[ -n $agent ]] || fail "node-a has no agent"
kill -9 "$agent"
until_true 30 "a new agent" sh -c "! kill -0 $agent"
until_true 30 "exec in pod one" run exec one -- true
[[ $(container_start one) == "$before" ]] || fail "the new agent did not adopt the container"
until_true 30 "the listener hears by way of the new agent" heard again
note "agent killed, pods adopted"

# ---- a half-finished up: the server dies while a machine starts
sed -e 's/node-a/node-c/' -e '/^---$/,$d' "$work/site.yaml" > "$work/third.yaml"
run apply -f "$work/third.yaml" > /dev/null
kill -9 "$(< "$FAIRLEAD_STATE_DIR/run/server.pid")"
run up -f "$work/third.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "up after a half-finished one"; }
[[ $(field machine node-c status.address) == 10.187.1.3 ]] || fail "the third machine has no third seat"
[[ $(pgrep -fc "node-init --config $FAIRLEAD_STATE_DIR/nodes/node-c/") -ge 1 ]] || fail "node-c does not run"
note "half-finished up completed"

# ---- a machine goes
run delete machine node-c --timeout 60 > /dev/null
! run get node node-c > /dev/null 2>&1 || fail "the node object of a deleted machine is still there"
[[ ! -e $FAIRLEAD_STATE_DIR/nodes/node-c ]] || fail "the folder of a deleted machine is still there"
note "machine deleted"

# ---- a site with a dead server goes, and nothing is left
kill -9 "$(< "$FAIRLEAD_STATE_DIR/run/server.pid")"
run down --yes > "$work/down.log" 2>&1 || { cat "$work/down.log"; fail "down"; }
nothing_left() {
  ! pgrep -f "$FAIRLEAD_STATE_DIR" > /dev/null || fail "processes are left: $(pgrep -af "$FAIRLEAD_STATE_DIR")"
  ! grep -q "$FAIRLEAD_STATE_DIR" /proc/self/mountinfo || fail "mounts are left"
  [[ -z $(find /sys/fs/cgroup -type d -name "fairlead-$id" 2> /dev/null) ]] || fail "cgroups are left"
  [[ ! -e /sys/class/net/fl$id ]] || fail "a link is left"
  ! ip route show | grep -q '10\.18[78]\.' || fail "a route is left"
  [[ $(ls "$FAIRLEAD_STATE_DIR") == images ]] || fail "files are left: $(ls "$FAIRLEAD_STATE_DIR")"
}
nothing_left
says 'Nothing to do' down --yes || fail "a second down finds something"
note "down left nothing"
echo "node_test: all checks passed"
