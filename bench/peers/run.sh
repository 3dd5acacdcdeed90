#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The embedded engine beside kube-apiserver with etcd, one after the other on the same machine, under the same load: TLS, RBAC,
# a service account's token, an audit log of every request's metadata, no limit for one client, every write on the disk before its answer.
# Each server begins anew for each of the loads that peer_probe knows. Prints one JSON line per figure, in the end a table with the ratios.
#   run.sh BUILD_DIR [SECONDS per cell, 3] [LOAD...]
set -euo pipefail
build=$(realpath "${1:?usage: run.sh BUILD_DIR [SECONDS] [LOAD...]}")
seconds=${2:-3}
loads=("${@:3}")
[ ${#loads[@]} -gt 0 ] || loads=(requests list place)
top=$(cd "$(dirname "$0")/../.." && pwd)
cluster=$top/tests/peers/cluster.sh
programs=$("$top/tests/peers/build.sh" etcd kube-apiserver kube-scheduler kubectl | tail -n 1)
kubectl=$programs/kubectl
work=$(mktemp -d /var/tmp/fairlead-peer-bench-XXXXXX)
server='' scheduler=''
stop() { # PID
  [ -z "$1" ] || { kill -TERM "$1" 2> /dev/null && wait "$1" 2> /dev/null; } || true
}
clean_up() {
  stop "$scheduler"
  stop "$server"
  [ ! -d "$work/peer" ] || "$cluster" down "$work/peer" || true
  rm -rf "$work"
}
trap clean_up EXIT
ulimit -n "$(ulimit -Hn)"

# The same rights on both: a service account that may do what the load does, in one namespace.
identity() { # ADMIN-KUBECONFIG INTO
  local KUBECONFIG=$1 token
  export KUBECONFIG
  "$kubectl" create namespace bench > /dev/null
  "$kubectl" -n bench get serviceaccount default > /dev/null 2>&1 || "$kubectl" -n bench create serviceaccount default > /dev/null 2>&1 || true
  "$kubectl" -n bench create serviceaccount load > /dev/null
  "$kubectl" -n bench create role load --verb=get,list,watch,create --resource=pods > /dev/null
  "$kubectl" -n bench create rolebinding load --role=load --serviceaccount=bench:load > /dev/null
  token=$("$kubectl" -n bench create token load --duration 2h)
  (
    umask 077
    "$kubectl" config view --raw --minify -o json | python3 -c '
import json, sys
config = json.load(sys.stdin)
config["users"] = [{"name": "load", "user": {"token": sys.argv[1]}}]
config["contexts"][0]["context"].update(user="load", namespace="bench")
json.dump(config, sys.stdout)' "$token" > "$2"
  )
}
# Its programs are started in sessions of their own, which the kernel gives their own share of the machine: the same for all.
same_priority() { # PID...
  local mine pid
  mine=$(awk '{print $3}' /proc/self/autogroup 2> /dev/null) || return 0
  for pid in "$@"; do echo "$mine" 2> /dev/null > "/proc/$pid/autogroup" || true; done
}
figure() { tee -a "$work/figures.jsonl"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }
first_answer() { # ADMIN-KUBECONFIG-FILE
  until "$kubectl" --kubeconfig "$1" get --raw /readyz > /dev/null 2>&1; do read -rt 0.05 <> <(:) || true; done
}

embedded() { # LOAD
  local begin=$EPOCHREALTIME user=$work/embedded.kubeconfig
  "$build/bin/fairlead-server" --state-dir "$work/site" --listen 127.0.0.1:0 --node-range 10.99.0.0/16 --pod-range 10.100.0.0/16 --client-rate 0 --audit-log "$work/site-audit.jsonl" --log-level error \
    > "$work/server.log" 2>&1 &
  server=$!
  until [ -e "$work/site/pki/admin.kubeconfig" ]; do
    [ -e "/proc/$server" ] || { cat "$work/server.log" >&2; exit 1; }
    read -rt 0.02 <> <(:) || true
  done
  first_answer "$work/site/pki/admin.kubeconfig"
  echo "{\"engine\": \"embedded\", \"what\": \"start to first answer\", \"seconds\": $(since "$begin")}" | figure
  identity "$work/site/pki/admin.kubeconfig" "$user"
  [ "$1" != place ] || user=$work/site/pki/admin.kubeconfig
  "$build/bin/peer_probe" "$user" embedded "$server" "$1" "$seconds" | figure
  stop "$server"
  server=''
  rm -rf "$work/site" "$work/site-audit.jsonl"
}

# The time is taken from the launch of etcd: keys and certificates are there already, while the embedded server's own are within its figure.
peer() { # LOAD
  local user=$work/peer.kubeconfig pids
  "$cluster" up "$work/peer" --only-api > /dev/null
  echo "{\"engine\": \"kube-apiserver and etcd\", \"what\": \"start to first answer\", \"seconds\": $(< "$work/peer/run/first-answer")}" | figure
  identity "$work/peer/admin.kubeconfig" "$user"
  pids=$(cut -d' ' -f1 "$work/peer/run/kube-apiserver.pid"),$(cut -d' ' -f1 "$work/peer/run/etcd.pid")
  # shellcheck disable=SC2086
  same_priority ${pids//,/ }
  if [ "$1" = place ]; then
    user=$work/peer/admin.kubeconfig
    # By default it asks the API 50 times a second at most, which would be all that is measured.
    "$programs/kube-scheduler" --kubeconfig "$work/peer/scheduler.kubeconfig" --leader-elect=false --secure-port 0 --kube-api-qps 20000 --kube-api-burst 20000 > "$work/scheduler.log" 2>&1 &
    scheduler=$!
    same_priority "$scheduler"
    pids+=,$scheduler
  fi
  "$build/bin/peer_probe" "$user" 'kube-apiserver and etcd' "$pids" "$1" "$seconds" | figure
  stop "$scheduler"
  scheduler=''
  "$cluster" down "$work/peer"
  rm -rf "$work/peer"
}

for load in "${loads[@]}"; do
  embedded "$load"
  peer "$load"
done

python3 - "$work/figures.jsonl" << 'TABLE'
import json, sys
more_is_better = {"per_second"}
rows = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    engine, what = row.pop("engine"), row.pop("what")
    for unit, value in row.items():
        if unit not in ("requests", "creating_them_seconds"):
            rows.setdefault((what, unit), {}).setdefault(engine, value)
print()
print("| what | unit | embedded | kube-apiserver + etcd | better by |\n|---|---|---|---|---|")
for (what, unit), by in rows.items():
    ours, theirs = by.get("embedded"), by.get("kube-apiserver and etcd")
    ratio = "-"
    if ours and theirs and ours > 0 and theirs > 0:
        ratio = f"{ours / theirs if unit in more_is_better else theirs / ours:.1f}"
    print(f"| {what} | {unit} | {ours} | {theirs} | {ratio} |")
TABLE
