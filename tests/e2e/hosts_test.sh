#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Hosts that join a site by a token: two machines made of namespaces on a link with the server, by the real commands. What runs on them, what they may not do, and what becomes of them.
#   hosts_test.sh BUILD_DIR   (as root)
# shellcheck source=tests/e2e/hosts_lib.sh
. "$(dirname "$0")/hosts_lib.sh"

# A site of one machine says that no other reaches it, and how one would.
up() { f up --node-range 10.187.0.0/16 --pod-range 10.188.0.0/16 --service-range 10.189.0.0/16 "$@"; }
own_server() { cat "$work/state/run/server.pid"; }
says 'a site of this machine' 0 'https://127.0.0.1:6443' up
alone=$(own_server)
says 'a server that nobody reaches' 1 'fairlead up --advertise-address' f node add a
says 'an address that only this machine has' 2 'is not an IPv4 address at which other machines reach this one' up --advertise-address 127.0.0.2
says 'what would be done' 0 'would restart the server, to be reached at 10.44.0.1' up --advertise-address 10.44.0.1 --dry-run
[ "$(own_server)" = "$alone" ] || fail 'a dry run restarted it'
says 'hosts can join it' 0 '' up --advertise-address 10.44.0.1
[ "$(own_server)" != "$alone" ] && gone "$alone" || fail 'the server was not restarted'
says 'which it remembers' 0 'runs already' up
says 'a dry run of a token' 0 'hosts would look for https://10.44.0.1:6443' f node add a --dry-run
# Its keys under a root key, as a program holds it; one that holds nothing leaves the site as it was.
holder() { printf '#!/bin/sh\n%s\n' "$2" > "$work/$1" && chmod 755 "$work/$1"; }
holder broken 'echo "no TPM here" >&2; exit 1'
holder held "case \$1 in wrap) openssl enc -aes-256-cbc -pbkdf2 -pass file:'$work/kek' -a -A ;; unwrap) openssl enc -d -aes-256-cbc -pbkdf2 -pass file:'$work/kek' -a -A ;; esac"
echo secret > "$work/kek"
f apply -f - > /dev/null <<< '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "stringData": {"word": "open-sesame"}}'
says 'a root key that is not there' 1 'no TPM here; the server runs again, as before' up --root-key-command "$work/broken"
[ "$(stat -c %s "$work/state/pki/secrets.key")" = 32 ] || fail 'the keys are not as they were'
says 'a root key' 0 '' up --root-key-command "$work/held"
grep -q 'fairlead sealed key' "$work/state/pki/secrets.key" && grep -q 'fairlead sealed key' "$work/state/pki/ca.key" && ! grep -q PRIVATE "$work/state/pki/ca.key" || fail 'the keys are open'
[ "$(field secret mine data.word | base64 -d)" = open-sesame ] || fail 'a Secret is lost'
says 'which it remembers' 0 'runs already' up
restarted=$(own_server)
kill "$restarted"
wait_until 30 'the server ends' gone "$restarted"
says 'a start without it' 1 'say by --root-key-command what holds it' "$build/bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:6443
says 'a start that knows it' 0 'https://' up
says 'open again' 0 '' up --root-key-command off
grep -q PRIVATE "$work/state/pki/ca.key" && [ ! -e "$work/state/pki/root.json" ] || fail 'the keys are sealed'
[ "$(field secret mine data.word | base64 -d)" = open-sesame ] || fail 'a Secret is lost'
restarted=$(own_server)
kill "$restarted"
wait_until 30 'the server ends' gone "$restarted"
says 'a holder that is not there' 1 'No such file' up --root-key-command "$work/none"
says 'is not asked again' 0 'https://' up
restarted=$(own_server)
kill "$restarted"
wait_until 30 'the server ends' gone "$restarted"
listen
power_on a 10.44.0.11
power_on b 10.44.0.12
echo 'ok    a server and two hosts on one link'

says 'a type that there is not' 1 'no such type' f node add a --type ml.x9.large
says 'a spare one of no type' 1 'say --type' f node add a --spare
says 'made nothing' 1 'not found' f get machine a
says 'what a host does with a token' 0 'fairlead join flj1.' f node add a
first=$(token_of a)
wait_until 10 'it waits' has machine a status.phase Waiting
says 'which is told' 0 'is to be run on it before' f node list
second=$(token_of a)
says 'a token that was replaced' 1 'is not known here' join a "$first"
says 'half a token' 1 'is not a token to join by' join a "${second:0:200}"
says 'a dry run on the host' 0 'nothing was asked or written' join a "$second" --dry-run
[ ! -e "$work/a/etc/node.key" ] || fail 'a dry run wrote a key'
says 'a host without the GPUs that it is to have' 1 'ml.g5.xlarge has 1 of nvidia.com/gpu; this machine has 0' join b "$(token_of b --type ml.g5.xlarge)"
lie=$(token_of b --type ml.c5.18xlarge)
says 'a host that is not what it is to be' 1 "ml.c5.18xlarge has 72 CPUs; this machine has $(nproc)" join b "$lie"
wait_until 10 'it is not in' has machine b status.phase Waiting
says 'it joins' 0 'joined https://10.44.0.1:6443 as a at 10.44.0.11' join a "$second"
wait_until 30 'its node is ready' ready a
wait_until 10 'its machine runs' is machine a status.phase Running
says 'twice' 0 'had joined https://10.44.0.1:6443 as a' join a "$second"
[ "$(stat -c %a "$work/a/etc/node.key")" = 600 ] || fail 'others read its key'
! grep -rqF -- "$(cut -c6-60 <<< "$second")" "$work/state" "$work/a" "$work/server.log" || fail 'a token is kept somewhere'

# Somebody else with the same token; one who takes another's address; one with no token.
says 'a stolen token' 1 'this token was used before' join b "$second"
says "another's address" 1 'comes from 10.44.0.12, not from 10.44.0.11' join b "$(token_of b --type ml.t3.medium)" --address 10.44.0.11
says "the server's address" 1 'comes from 10.44.0.12, not from 10.44.0.1' join b "$(token_of b --type ml.t3.medium)" --address 10.44.0.1
says 'an address that is taken, even if an administrator says it' 1 'has the address 10.44.0.11 already' join b "$(token_of b --type ml.t3.medium --address 10.44.0.11)" --address 10.44.0.11
f delete machine b > /dev/null
says 'it is told what to do' 1 'fairlead node remove a' join b "$second"
says 'with a token of its own' 0 'as b at 10.44.0.12' join b "$(token_of b --type ml.t3.medium --spare --label rack=r1)" --metadata
wait_until 30 'b is ready' ready b
is node b 'metadata.labels' "{}" && fail 'b has no labels'
has node b metadata.labels "'fairlead.dev/spare': 'true'" && has node b metadata.labels "'node.kubernetes.io/instance-type': 'ml.t3.medium'" && has node b metadata.labels "'rack': 'r1'" || fail "labels of b: $(field node b metadata.labels)"
says 'both in the list' 0 'b ' f node list
# Who the site believes is told so, also that it is in no cluster: else nothing at all is told.
# shellcheck disable=SC2016
metadata() { at "$1" sh -c 'curl -sSf -m 9 -H "X-aws-ec2-metadata-token: $(curl -sSf -m 9 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" http://169.254.169.254/latest/api/token)" "http://169.254.169.254/latest/meta-data/$0"' "$2"; }
says 'its own programs are told of the host' 0 '10.44.0.12' metadata b local-ipv4
says 'which is no instance' 22 '404' metadata b iam/security-credentials/
! at a ip -4 addr | grep -q 169.254.169.254 || fail 'a host that did not ask for it has the address of a metadata service'
says 'a token for a machine that has joined' 1 'has joined already' f node add b

# What runs on them reaches the other, and the server reaches both.
pod() { cat << YAML
apiVersion: v1
kind: Pod
metadata: {name: on-$1, labels: {app: echo}}
spec:
  nodeName: $1
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:1", command: [sh, -c, "while :; do echo from-$1 | nc -l -p 8080; done"]}
YAML
}
{ pod a; echo ---; pod b; } > "$work/pods.yaml"
cat > "$work/service.yaml" << 'YAML'
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
YAML
f apply -f "$work/pods.yaml" > /dev/null
f apply -f "$work/service.yaml" > /dev/null
for name in a b; do wait_until 60 "a pod on $name" is pod "on-$name" status.phase Running; done
ip_of() { field pod "on-$1" status.podIP; }
wait_until 30 'a pod reaches one on the other host' answers from-b f exec on-a -- nc -w 3 "$(ip_of b)" 8080
wait_until 30 'and back' answers from-a f exec on-b -- nc -w 3 "$(ip_of a)" 8080
wait_until 30 'by a service, by its name' answers from- f exec on-b -- nc -w 3 echo.default.svc.cluster.local 80
wait_until 30 'the server reaches a pod' answers from-b timeout 5 bash -c "exec 3<> /dev/tcp/$(ip_of b)/8080; cat <&3"
says 'logs and commands go through the agents' 0 on-a f exec on-a -- hostname

# Devices: a file of the host says which there are and what a container needs for one (CDI); two pods have one each, a third waits.
mkdir -p "$work/a/cdi"
cat > "$work/a/cdi/gpus.yaml" << YAML
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/zero}], env: [GPU=first]}}
- {name: "1", containerEdits: {deviceNodes: [{path: /dev/nvidia1, hostPath: /dev/full}], env: [GPU=second]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/zero}, {path: /dev/nvidia1, hostPath: /dev/full}]}}
containerEdits:
  mounts: [{hostPath: $work/a/cdi, containerPath: /driver, options: [ro, bind]}]
  hooks: [{hookName: createRuntime, path: /bin/touch, args: [touch, $work/a/hook-ran]}]
YAML
at a kill -HUP "$(at a pgrep -f 'fairlead-agent run')"
counted() { has node a status.allocatable "'nvidia.com/gpu': '2'"; }
wait_until 30 'its node counts two' counted
gpu() { pod a | sed "s/name: on-a/name: gpu-$1/; s/app: echo/app: gpu/; s/command: .*/resources: {limits: {nvidia.com\/gpu: 1}}, command: [sleep, \"100000\"]}/"; }
{ gpu 1; echo ---; gpu 2; } > "$work/gpus.yaml"
f apply -f "$work/gpus.yaml" > /dev/null
for name in 1 2; do wait_until 30 "the pod gpu-$name" is pod "gpu-$name" status.phase Running; done
[ "$(for name in 1 2; do f exec "gpu-$name" -- sh -c 'echo $GPU'; done | sort | tr '\n' ' ')" = 'first second ' ] || fail 'two pods have the same device'
one=$(f exec gpu-1 -- sh -c 'echo $GPU')
case $one in first) device=/dev/nvidia0 other=/dev/nvidia1 ;; *) device=/dev/nvidia1 other=/dev/nvidia0 ;; esac
says 'it has its device, and not the other' 0 "$device" f exec gpu-1 -- sh -c "test -c $device && head -c 4 $device > /dev/null && ! test -e $other && test -e /driver/gpus.yaml && echo $device"
[ -e "$work/a/hook-ran" ] || fail 'the hook did not run'
gpu 3 > "$work/gpu.yaml"
f apply -f "$work/gpu.yaml" > /dev/null
wait_until 30 'a third is told why it waits' has pod gpu-3 status '1 of nvidia.com/gpu are asked for, 0 are free on this node'
# What an agent gave out, the next one knows.
at a pkill -9 -f 'fairlead-agent run' || true
wait_until 60 'its pods can be reached again' f exec gpu-1 -- true
read -rt 4 <> <(:) || true
has pod gpu-3 status 'are free on this node' || fail "a device was given out twice: $(field pod gpu-3 status)"
f delete pod gpu-2 > /dev/null
wait_until 30 'it gets the one that is free again' is pod gpu-3 status.phase Running
[ "$(f exec gpu-3 -- sh -c 'echo $GPU')" != "$one" ] || fail 'it has the other one'
f delete pod gpu-1 > /dev/null
f delete pod gpu-3 > /dev/null
echo 'ok    devices of a host: each pod has its own'

# A token for the certificate: it may do what a node may, as itself alone.
by() { curl -sS --max-time 10 --cacert "$work/$1/etc/ca.crt" --cert "$work/$1/etc/node.crt" --key "$work/$1/etc/node.key" "https://10.44.0.1:6443$2" "${@:3}"; }
says 'a host reads its node' 0 '"name":"a"' by a /api/v1/nodes/a
says "not another's to write" 0 'cannot' by a /api/v1/nodes/b -X PATCH -H 'Content-Type: application/merge-patch+json' --data '{"metadata": {"labels": {"x": "y"}}}'
write() { by a "/api/v1/nodes/a$1" -X PATCH -H 'Content-Type: application/merge-patch+json' --data "$2"; }
says 'nor the range of its pods' 0 'the range of its pods is 10.188.1.0/24' write '' '{"spec": {"podCIDR": "10.44.0.1/32", "podCIDRs": ["10.44.0.1/32"]}}'
says 'nor its address' 0 'its address is 10.44.0.11' write /status '{"status": {"addresses": [{"type": "InternalIP", "address": "10.44.0.1"}]}}'
says 'nor what it is sold as' 0 'is given by its Machine' write '' '{"metadata": {"labels": {"fairlead.dev/spare": "true"}}}'
says 'nor secrets' 0 'cannot list' by a /api/v1/secrets
says 'without a certificate nothing is renewed' 0 'is expected' curl -sS --cacert "$work/a/etc/ca.crt" https://10.44.0.1:6443/fairlead/renew -X POST --data '{}'
before=$(sha256sum < "$work/a/etc/node.crt")
says 'a certificate is renewed' 0 'the certificate holds until' at a "$build/bin/fairlead-agent" renew --config "$work/a/etc/agent.json"
[ "$before" != "$(sha256sum < "$work/a/etc/node.crt")" ] || fail 'it is the same certificate'

agent=$(at a pgrep -f 'fairlead-agent run')
at a kill -HUP "$agent"
wait_until 20 'its agent starts anew' grep -q 'starts anew' "$work/a/agent.log"
wait_until 30 'and is reached by the new certificate' answers on-a f exec on-a -- hostname
[ "$(at a pgrep -f 'fairlead-agent run')" = "$agent" ] || fail 'it is another process'
echo 'ok    its agent takes it up'

# kill -9 of the server and of an agent: pods go on, the host needs no token again.
started=$(f exec on-a -- sh -c 'cut -d" " -f22 /proc/1/stat')
{ kill -9 "$server" && wait "$server"; } 2> /dev/null || true
at a pkill -9 -f 'fairlead-agent run' || true
listen
wait_until 60 'the pod on a can be reached again' f exec on-a -- true
[ "$(f exec on-a -- sh -c 'cut -d" " -f22 /proc/1/stat')" = "$started" ] || fail 'its container was started anew'
wait_until 30 'a is ready' ready a
echo 'ok    kill -9 of the server and of an agent: what runs goes on'

# A reboot: by its agent, once for each request.
boot=$(field node a status.nodeInfo.bootID)
says 'a dry run of a reboot' 0 'default/on-a' f node reboot a --dry-run
says 'a reboot' 0 '' f node reboot a --timeout 90
[ "$(field node a status.nodeInfo.bootID)" != "$boot" ] || fail 'it is the same boot'
wait_until 60 'its pod is back' f exec on-a -- true
is machine a status.reboot.phase Done || fail "reboot: $(field machine a status.reboot)"
boot=$(field node a status.nodeInfo.bootID)
read -rt 8 <> <(:) || true
[ "$(field node a status.nodeInfo.bootID)" = "$boot" ] || fail 'it rebooted again'
echo 'ok    once'

# A silent host cannot be rebooted, and is told of; it comes back by itself.
touch "$work/b/no-agent"
wait_until 120 'b is silent' is machine b status.phase Silent
says 'a silent host' 1 'it is silent' f node reboot b
says 'nor is its power ours' 1 'fairlead node bmc b' f node kill b

# By its board it can (Redfish): restarted once, cut off, switched on; and a board that lies is not believed.
board b 8443
says 'a board without TLS' 1 'the password would be seen' f node bmc b http://127.0.0.1:8443 --user admin --password-file "$work/b/bmc-password"
says 'a board that nobody trusts yet' 1 'nobody has said whom to trust' f node bmc b https://127.0.0.1:8443 --user admin --password-file "$work/b/bmc-password"
key=$(grep -oE '[0-9a-f]{64}' "$work/out" | head -n 1)
[ "$key" = "$(openssl x509 -in "$work/b/bmc.crt" -noout -pubkey | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1)" ] || fail "it tells another key: $key"
echo wrong > "$work/wrong"
says 'a wrong password' 1 'refuses user "admin"' f node bmc b --key "$key" --user admin --password-file "$work/wrong"
says 'the right one' 0 'power On' f node bmc b --user admin --password-file "$work/b/bmc-password"
! grep -rqF "word-of-b" "$work/server.log" "$work/state/audit.log" 2> /dev/null || fail 'the password of a board is in a log'
boot=$(field node b status.nodeInfo.bootID)
f node reboot b --no-wait --timeout 1 > /dev/null 2>&1 || true
wait_until 30 'its board restarts it' grep -q ForceRestart "$work/b/bmc.log"
rm "$work/b/no-agent"
wait_until 60 'it has rebooted' is machine b status.reboot.phase Done
[ "$(field node b status.nodeInfo.bootID)" != "$boot" ] && [ "$(grep -c ForceRestart "$work/b/bmc.log")" = 1 ] || fail 'it was not restarted once'
wait_until 60 'b is back' is machine b status.phase Running
wait_until 60 'its pod, too' f exec on-b -- true
says 'not while pods are on it' 1 'say --force' f node kill b
says 'cut off' 0 'power off' f node kill b --force --no-wait
off_for_certain() { has node b spec.taints machine-off && is machine b status.power.proven True && ! ready b; }
wait_until 60 'it is dead for certain' off_for_certain
says 'switched on' 0 'power on' f node heal b
has node b spec.taints machine-off && fail 'it is still said to be off'
wait_until 60 'its pod is back' f exec on-b -- true
touch "$work/b/bmc-lies"
f node kill b --force --no-wait > /dev/null
wait_until 60 'a board that says Off of a host that reports' has machine b status.power.message 'not believed'
has node b spec.taints machine-off && fail 'a board that lies was believed'
rm "$work/b/bmc-lies"
says 'the truth' 0 'power on' f node heal b
says 'without a board' 0 'has no BMC' f node bmc b --remove

# Installed anew: another key takes its place, the old certificate ends.
cp -r "$work/b/etc" "$work/b/old"
says 'pods may run there still' 1 'the host of before may still run' f node add b --again
says 'no token is given out by a dry run' 0 'would wait' f node add b --again --gone --dry-run
says 'a wrong token takes nothing away' 1 'was used before' join b "$second" --again
says 'its agent still works' 0 on-b f exec on-b -- hostname
says 'joins anew' 0 'as b at' join b "$(token_of b --again --gone)" --again
old() { curl -sS --max-time 10 --cacert "$work/b/old/ca.crt" --cert "$work/b/old/node.crt" --key "$work/b/old/node.key" https://10.44.0.1:6443/api/v1/nodes/b; }
says 'the key of before is nobody' 0 Unauthorized old
at b pkill -f 'fairlead-agent run' || true
wait_until 60 'b reports by its new key' answers on-b f exec on-b -- hostname

# Removed: out at once; what runs there goes on, and starts nowhere else, until somebody says that it has ended.
says 'pods are on it' 1 'drain it first' f node remove a
says 'a dry run' 0 'pods are on it' f node remove a --dry-run
says 'by force' 0 'starts nowhere else' f node remove a --force
says 'it is out' 0 Unauthorized by a /api/v1/nodes/a
wait_until 20 'its agent says so' grep -q 'is not of the site any more' "$work/a/agent.log"
wait_until 20 'its machine tells what it waits for' has machine a status.phase Removing
has machine a status.conditions 'fairlead node remove a --gone' || fail "it does not tell what to do: $(field machine a status.conditions)"
says 'no new token meanwhile' 1 'is being deleted' f node add a
f get node a > /dev/null || fail 'its node is gone although pods may run there'
at a pgrep -f 'nc -l -p 8080' > /dev/null || fail 'what ran there has ended'
says 'not while its agent runs' 1 'stop it first' at a "$build/bin/fairlead-agent" leave --yes --config-dir "$work/a/etc"
gone_node() { ! f get node a > /dev/null 2>&1; }
touch "$work/a/no-agent"
no_agent() { ! at a pgrep -f 'fairlead-agent run' > /dev/null; }
wait_until 10 'its agent has ended' no_agent
says 'a host does not leave by mistake' 1 'say --yes' at a "$build/bin/fairlead-agent" leave --config-dir "$work/a/etc"
says 'it leaves' 0 'images and volumes stay' at a "$build/bin/fairlead-agent" leave --yes --config-dir "$work/a/etc"
! at a pgrep -f 'nc -l -p 8080' > /dev/null || fail 'something runs on'
[ ! -e "$work/a/etc/node.key" ] && [ -d "$work/a/state/images/busybox" ] || fail 'what is left of it'
! at a ip link show fairlead0 > /dev/null 2>&1 || fail 'a link is left'
says 'twice' 1 'has not joined' at a "$build/bin/fairlead-agent" leave --yes --config-dir "$work/a/etc"
says 'somebody says so' 0 'is removed' f node remove a --gone
wait_until 20 'its node is gone' gone_node
gone_machine() { ! f get machine a > /dev/null 2>&1; }
wait_until 20 'its machine, too' gone_machine
says 'and may come again' 0 'as a at 10.44.0.11' join a "$(token_of a)"
rm "$work/a/no-agent"
wait_until 60 'a is ready again' ready a
echo 'hosts_test: all passed'
