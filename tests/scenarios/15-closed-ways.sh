#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From inside the cluster's pods, and from those of another tenant, every pair of groups is tried: what the table of docs/network.md opens is open, all else is closed. Names, ssh and jobs over two nodes work.
. "$(dirname "$0")/lib.sh"

space=tenant
container_of() { case $1 in controller-*) echo slurmctld ;; worker-*) echo slurmd ;; login-*) echo sshd ;; *) echo main ;; esac; }
space_of() { case $1 in stranger) echo "$space" ;; *) echo demo ;; esac; }
in_pod() { # POD COMMAND...
  local pod=$1
  shift
  k -n "$(space_of "$pod")" exec -i "$pod" -c "$(container_of "$pod")" -- "$@"
}
listeners=()
clean_up() {
  local status=$? one
  trap - EXIT
  for one in "${listeners[@]}"; do in_pod "${one%:*}" kill "${one#*:}" < /dev/null || true; done
  k delete namespace "$space" --timeout=120s > /dev/null 2>&1 || status=1
  exit "$status"
}
trap clean_up EXIT

same True kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="NetworkIsolated")].status}' || fail 'the cluster is not isolated'
k create namespace "$space" > /dev/null
k -n "$space" apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "slurm:22.05", command: [sleep, "100000"]}]
YAML
k -n "$space" wait --for=condition=Ready pod/stranger --timeout=120s > /dev/null || fail 'the other tenant has no pod'
pods=(controller-0 worker-0 worker-1 login-0 stranger)
note 'a pod of another tenant runs'

# Where no daemon listens, one of ours does: a port that is closed is closed by a policy.
for pod in "${pods[@]}"; do
  pid=$(in_pod "$pod" python3 - << 'PYTHON'
import os, socket
held = []
for port in (22, 80, 1023, 1024, 5000, 6817, 6818, 6819):
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            one = socket.socket(family)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
        except OSError:
            continue  # a daemon's, or a family that is not there
        one.listen(64)
        held.append(one)
child = os.fork()
if child:
    print(child, flush=True)
    os._exit(0)
os.setsid()
for fd in (0, 1, 2):
    os.dup2(os.open("/dev/null", os.O_RDWR), fd)
import signal
signal.pause()
PYTHON
  )
  [[ $pid =~ ^[0-9]+$ ]] || fail "$pod does not listen: $pid"
  listeners+=("$pod:$pid")
done

targets=''
for pod in "${pods[@]}"; do
  for ip in $(k -n "$(space_of "$pod")" get pod "$pod" -o 'jsonpath={.status.podIPs[*].ip}'); do
    for port in 22 80 1023 1024 5000 6817 6818 6819; do targets+="$pod $ip $port "; done
  done
done
targets+='metadata 169.254.169.254 80'
for ip in $(k get node worker-0 -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'); do targets+=" node $ip 10250"; done
# The policies of a pod that has just got its address reach the nodes a moment later, so what differs is asked again.
try_all() {
  local pod
  for pod in "${pods[@]}"; do
    # shellcheck disable=SC2086
    in_pod "$pod" python3 - "$pod" $targets << 'PYTHON' || return 1
import socket, sys
own, rest = sys.argv[1], sys.argv[2:]
for name, ip, port in zip(rest[::3], rest[1::3], rest[2::3]):
    if name == own:
        continue
    try:
        socket.create_connection((ip, int(port)), timeout=5).close()
        print(own, name, port, "IPv6" if ":" in ip else "IPv4")
    except OSError:
        pass
PYTHON
  done > "$SCENARIO_WORK/open-ways"
  python3 - "$top/docs/network.md" "$SCENARIO_WORK/open-ways" "${pods[@]}" << 'PYTHON'
import sys
document, lines, pods = open(sys.argv[1]).read(), [line.split() for line in open(sys.argv[2])], sys.argv[3:]
seen = {tuple(line[:3]) for line in lines}  # by either family: what is closed is closed in both
ways = []
for line in document[document.index("<!-- ways: begin"):document.index("<!-- ways: end")].splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if len(cells) == 5 and cells[4] == "the cluster's policies" and cells[2].startswith("TCP"):
        ports = cells[2].split(" (")[0].split()[-1]
        low, _, high = ports.partition("-")
        ways.append((cells[0], cells[1], 1 if low == "any" else int(low), 65535 if low == "any" else int(high or low)))
group = {"controller": "heads", "worker": "workers", "login": "login", "stranger": "anybody", "metadata": "metadata", "node": "nodes"}
of = lambda name: group[name.split("-")[0]]
is_open = lambda a, b, port: any(way[0] == a and way[1] == b and way[2] <= port <= way[3] for way in ways)
wrong, count = [], [0, 0]
for a in pods:
    for b in pods + ["metadata", "node"]:
        for port in (22, 80, 1023, 1024, 5000, 6817, 6818, 6819) if b in pods else (80,) if b == "metadata" else (10250,):
            if a == b or a == "stranger" and b in ("metadata", "node"):
                continue
            want, have = is_open(of(a), of(b), port), (a, b, str(port)) in seen
            count[have] += 1
            if want != have:
                wrong.append(f"{a} to {b} port {port} is {'open' if have else 'closed'}")
six = sum(line[3] == "IPv6" for line in lines)
print(f"{count[1]} open, {count[0]} closed" + (f", {six} open by IPv6" if six else ""), *wrong, sep="\n")
sys.exit(1 if wrong or min(count) < 10 else 0)
PYTHON
}
until_true 60 'every pair of groups is open or closed as the table says' try_all
note "every pair of groups is as the table says: $(head -n 1 "$SCENARIO_WORK/last")"

says 'controller-0' login getent hosts controller-0.demo-controller-svc.demo.svc.cluster.local || fail 'names are not answered'
says 'SSH-2.0' python3 -c 'import socket, sys; print(socket.create_connection((sys.argv[1], 22), timeout=10).recv(64).decode())' "$(kd get pod login-0 -o 'jsonpath={.status.podIP}')" || fail 'ssh does not answer people'
same $'worker-0\nworker-1' bash -c "$(declare -f login kd k); login srun --nodes=2 hostname | sort" || fail 'srun over two nodes'
note 'names, ssh and a job over two nodes work'

# Off and on again.
kd annotate slurmcluster demo fairlead.dev/network-isolation=Off > /dev/null
until_true 60 'the policies are gone' is_empty kd get networkpolicy -o name
kd annotate slurmcluster demo fairlead.dev/network-isolation- > /dev/null
until_true 60 'the policies are back' same 4 bash -c "$(declare -f kd k); kd get networkpolicy -o name | wc -l"
note 'isolation can be switched off and on'
