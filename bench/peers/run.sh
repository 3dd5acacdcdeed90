#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The embedded engine beside kube-apiserver with etcd, one after the other on the same machine, under the same load: TLS, RBAC,
# a service account's token, an audit log of every request's metadata, no limit for one client. Prints one JSON line per figure.
#   run.sh BUILD_DIR [SECONDS per cell] [PODS] [WATCHERS]
set -euo pipefail
build=$(realpath "${1:?usage: run.sh BUILD_DIR [SECONDS] [PODS] [WATCHERS]}")
shift
top=$(cd "$(dirname "$0")/../.." && pwd)
cluster=$top/tests/peers/cluster.sh
programs=$("$top/tests/peers/build.sh" etcd kube-apiserver kubectl | tail -n 1)
kubectl=$programs/kubectl
work=$(mktemp -d /var/tmp/fairlead-peer-bench-XXXXXX)
server=''
stop_server() {
  [ -z "$server" ] || { kill -TERM "$server" 2> /dev/null && wait "$server" 2> /dev/null; } || true
  server=''
}
clean_up() {
  stop_server
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
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }
first_answer() { # ADMIN-KUBECONFIG-FILE
  until "$kubectl" --kubeconfig "$1" get --raw /readyz > /dev/null 2>&1; do read -rt 0.05 <> <(:) || true; done
}

begin=$EPOCHREALTIME
"$build/bin/fairlead-server" --state-dir "$work/site" --listen 127.0.0.1:0 --node-range 10.99.0.0/16 --pod-range 10.100.0.0/16 --client-rate 0 --audit-log "$work/site-audit.jsonl" --log-level error > "$work/server.log" 2>&1 &
server=$!
until [ -e "$work/site/pki/admin.kubeconfig" ]; do
  [ -e "/proc/$server" ] || { cat "$work/server.log" >&2; exit 1; }
  read -rt 0.02 <> <(:) || true
done
first_answer "$work/site/pki/admin.kubeconfig"
echo "{\"engine\": \"embedded\", \"what\": \"start to first answer, keys made\", \"seconds\": $(since "$begin")}"
identity "$work/site/pki/admin.kubeconfig" "$work/embedded.kubeconfig"
"$build/bin/peer_probe" "$work/embedded.kubeconfig" embedded "$server" "$@"
stop_server
rm -rf "$work/site"

# The time is taken from the launch of etcd: keys and certificates are there already, while the embedded server's own are within its figure.
"$cluster" up "$work/peer" --only-api > /dev/null
echo "{\"engine\": \"kube-apiserver and etcd\", \"what\": \"start to first answer, keys made before\", \"seconds\": $(< "$work/peer/run/first-answer")}"
identity "$work/peer/admin.kubeconfig" "$work/peer.kubeconfig"
"$build/bin/peer_probe" "$work/peer.kubeconfig" 'kube-apiserver and etcd' "$(cut -d' ' -f1 "$work/peer/run/kube-apiserver.pid"),$(cut -d' ' -f1 "$work/peer/run/etcd.pid")" "$@"
