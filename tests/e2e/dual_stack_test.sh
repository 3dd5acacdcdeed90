#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A site of both families with the real programs: two machines, pods with two addresses, services by both, by name and by port of a node, a policy that closes both, a power cut.
# usage: dual_stack_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: dual_stack_test.sh BUILD_DIR}
if [ ! -e /proc/net/ipv6_route ]; then
  echo "dual_stack_test: this machine has no IPv6: nothing was tested"
  exit 77
fi
# shellcheck source=tests/e2e/site_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/site_lib.sh"
links() { ip -o link show | cut -d: -f2 | tr -d '\n'; }
links_before=$(links)
# What an expression says of an object, as JSON; texts without quotes.
of() { run get "$1" "$2" -o json | python3 -c 'import json, sys
value = eval(sys.argv[1], {"o": json.load(sys.stdin)})
print(value if isinstance(value, str) else json.dumps(value))' "$3"; }
is() { [[ $(of "$1" "$2" "$3") == "$4" ]]; }
# From a pod.
asks() { run exec "$1" -- sh -c "printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 $2 $3 | tail -n 1"; }
answered() { [[ $(asks "$1" "$2" "$3" 2> /dev/null) == web-* ]]; }
closed() { ! answered "$1" "$2" "$3"; }

# ---- options that cannot be are told in a sentence
refused() { # TEXT OPTION...
  local text=$1 out status=0
  shift
  out=$("$build/bin/fairlead-server" --state-dir "$work/other" "$@" 2>&1) || status=$?
  [[ $status == 2 && $out == *"$text"* ]] || fail "$*: status $status, $out"
}
refused 'begins with IPv6' --pod-range fd00:190::/56,10.190.0.0/16
refused 'names IPv4 twice' --service-range 10.191.0.0/16,10.192.0.0/16
refused 'a /56 or larger is needed' --pod-range 10.190.0.0/16,fd00:190::/64
refused 'pods need one, too' --node-range 10.189.0.0/16,fd00:189::/64

# ---- up; not over a network that is there
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: node-%s}\nspec: {local: {cpu: "1", memory: 512Mi}, labels: {which: %s}}\n---\n' a a b b > "$work/site.yaml"
ranges=(--node-range "10.189.0.0/16,fd00:189::/64" --pod-range "10.190.0.0/16,fd00:190::/56" --service-range "10.191.0.0/16,fd00:191::/112")
ip link add other0 type bridge && ip link set other0 up && ip -6 route add fd00:190:0:3::/64 dev other0
out=$(run up -f "$work/site.yaml" --port 16444 "${ranges[@]}" --timeout 60 2>&1) && fail "up over a network that is there"
[[ $out == *'fd00:190::/56 is in use here (other0 leads to fd00:190:0:3::/64)'* ]] || fail "the conflict is not told: $out"
ip link del other0
run up -f "$work/site.yaml" --port 16444 "${ranges[@]}" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "up"; }
# Ranges of pods are given in the order in which the nodes report.
third() { of node "$1" 'o["spec"]["podCIDRs"]' | sed -nE 's|^\["10\.190\.([12])\.0/24", "fd00:190:0:\1::/64"\]$|\1|p'; }
third_a=$(third node-a) third_b=$(third node-b)
[[ -n $third_a && -n $third_b && $third_a != "$third_b" ]] || fail "ranges of pods: $(of node node-a 'o["spec"]') $(of node node-b 'o["spec"]')"
# So are addresses of machines.
last() { of node "$1" '[a["address"] for a in o["status"]["addresses"] if a["type"] == "InternalIP"]' | sed -nE 's|^\["10\.189\.1\.([12])", "fd00:189::10\1"\]$|\1|p'; }
last_a=$(last node-a) last_b=$(last node-b)
[[ -n $last_a && -n $last_b && $last_a != "$last_b" ]] || fail "addresses: $(of node node-a 'o["status"]["addresses"]') $(of node node-b 'o["status"]["addresses"]')"
reached "fd00:189::10$last_b" || fail "this machine does not reach a node by IPv6"
note "two machines of both families are nodes"

# ---- pods
cat > "$work/pods.yaml" <<'TEXT'
apiVersion: v1
kind: Pod
metadata: {name: one, labels: {role: friend}}
spec:
  nodeSelector: {which: a}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "busybox:1"
    command: [sleep, "100000"]
    env:
    - {name: OWN, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}
    - {name: FIRST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIPs}}}
---
apiVersion: v1
kind: Pod
metadata: {name: wide}
spec:
  nodeSelector: {which: b}
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox:1", command: [sleep, "100000"]}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, ipFamilyPolicy: PreferDualStack, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: all}
spec: {clusterIP: None, ipFamilyPolicy: RequireDualStack, selector: {app: web}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: plain}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
TEXT
{ web a; web b; } >> "$work/pods.yaml"
run up -f "$work/pods.yaml" --timeout 60 2> "$work/up.log" || { cat "$work/up.log"; fail "pods and services"; }
read -r one4 one6 <<< "$(of pod one '" ".join(i["ip"] for i in o["status"]["podIPs"])')"
read -r web4 web6 <<< "$(of pod web-b '" ".join(i["ip"] for i in o["status"]["podIPs"])')"
[[ $one4 == 10.190.$third_a.* && $one6 == fd00:190:0:$third_a::* && $web4 == 10.190.$third_b.* && $web6 == fd00:190:0:$third_b::* ]] || fail "addresses of pods: $one4 $one6, $web4 $web6"
is pod one 'o["status"]["podIP"]' "$one4" || fail "podIP is not the first of podIPs"
is pod one '[i["ip"] for i in o["status"]["hostIPs"]]' '["10.189.1.'"$last_a"'", "fd00:189::10'"$last_a"'"]' || fail "hostIPs: $(of pod one 'o["status"]["hostIPs"]')"
is pod wide '[i["ip"] for i in o["status"]["podIPs"]]' '["10.189.1.'"$last_b"'", "fd00:189::10'"$last_b"'"]' || fail "addresses of a pod in the node's network: $(of pod wide 'o["status"]["podIPs"]')"
[[ $(run exec one -- sh -c 'echo $OWN $FIRST $HOST') == "$one4,$one6 $one4 10.189.1.$last_a,fd00:189::10$last_a" ]] || fail "a pod is told: $(run exec one -- env)"
[[ $(run exec one -- grep -cE "^($one4|$one6)[[:space:]]+one\$" /etc/hosts) == 2 ]] || fail "/etc/hosts: $(run exec one -- cat /etc/hosts)"
run exec one -- ping -c 1 -W 3 "$web6" > /dev/null || fail "a pod does not reach one on another node by IPv6"
run exec web-b -- ping -c 1 -W 3 "$one6" > /dev/null || fail "nor the other way round"
reached "$one6" || fail "this machine does not reach a pod by IPv6"
note "pods have two addresses and meet by both"

# ---- services: both addresses, the name, a port of each node
read -r at4 at6 <<< "$(of service web '" ".join(o["spec"]["clusterIPs"])')"
[[ $at4 == 10.191.* && $at6 == fd00:191::* ]] || fail "addresses of the service: $at4 $at6"
is service plain 'o["spec"]["ipFamilies"]' '["IPv4"]' || fail "a service that says nothing is not of one family"
families() { run get endpointslices -o json | python3 -c 'import json, sys
print(*sorted(s["addressType"] for s in json.load(sys.stdin)["items"] if s["metadata"]["labels"].get("kubernetes.io/service-name") == sys.argv[1]))' "$1"; }
two_slices() { [[ $(families web) == 'IPv4 IPv6' && $(families plain) == IPv4 ]]; }
until_true 30 "a slice of each family" two_slices
for at in "$at4" "$at6" web.default.svc.cluster.local; do until_true 30 "the service at $at" answered one "$at" 80; done
resolved() { local out; out=$(run exec one -- nslookup -type=aaaa "$1.default.svc.cluster.local" 2>&1) && [[ $out == *"$2"* ]]; }
until_true 20 "the service's name in IPv6" resolved web "$at6"
until_true 20 "the name of a service without an address in IPv6" resolved all "$web6"
port=$(of service web 'o["spec"]["ports"][0]["nodePort"]')
for node in 1 2; do
  until_true 30 "the port of the service on node $node by IPv6" ask "fd00:189::10$node" "$port"
  both() { [[ $(for _ in {1..24}; do ask "fd00:189::10$node" "$port"; done | sort -u | tr '\n' ' ') == 'web-a web-b ' ]]; }
  until_true 30 "both endpoints by that port" both
done
note "a service by both addresses, its name and ports of nodes"

# ---- a policy closes both
cat > "$work/policy.yaml" <<'TEXT'
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: shut}
spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}
TEXT
for at in "$web4" "$web6"; do answered one "$at" 8080 || fail "the pod does not answer at $at before it is closed"; done
run apply -f "$work/policy.yaml" > /dev/null
until_true 30 "IPv6 closed" closed one "$web6" 8080
until_true 30 "IPv4 closed" closed one "$web4" 8080
for at in "$at4" "$at6"; do closed one "$at" 80 || fail "closed, but open at $at"; done
printf 'apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: friends}\nspec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]}\n' > "$work/friends.yaml"
run apply -f "$work/friends.yaml" > /dev/null
for at in "$web4" "$web6"; do until_true 30 "open for a friend at $at" answered one "$at" 8080; done
[[ -z $(run exec web-a -- sh -c "printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 2 $web6 8080" 2> /dev/null) ]] || fail "a stranger gets in by IPv6"
note "a policy closes and opens both"

# ---- a power cut
run node kill node-b --no-wait 2> /dev/null
run node heal node-b --timeout 120 2> /dev/null
is pod web-b 'o["status"]["phase"]' Running || until_true 60 "the pod again" is pod web-b 'o["status"]["phase"]' Running
again() { web6=$(of pod web-b 'o["status"]["podIPs"][1]["ip"]') && answered one "$web6" 8080; }
until_true 60 "the pod by IPv6 again" again
note "killed and healed"

run down --yes > "$work/down.log" 2>&1 || { cat "$work/down.log"; fail "down"; }
left=$(ip -6 route show; ip route show)
[[ $left != *fd00:1[89]* && $left != *10.1[89]* ]] || fail "a route is left: $(ip -6 route show)"
[[ $(links) == "$links_before" ]] || fail "a link is left: $(ip -o link show)"
note "down left nothing"
echo "dual_stack_test: all checks passed"
