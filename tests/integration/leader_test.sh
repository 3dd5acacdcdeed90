#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two servers on one cluster: one leads, the other stands by. The leader is stopped (SIGSTOP) in the middle of its work until the other leads, then continued: it ends without
# a single accepted write. On the embedded engine and, where its programs are built, on a real kube-apiserver, whose audit log is the witness.
#   leader_test.sh BUILD_DIR [embedded] [kubernetes]
set -euo pipefail
build=$(realpath "${1:?usage: leader_test.sh BUILD_DIR [embedded] [kubernetes]}")
shift
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
[ $# -gt 0 ] || set -- embedded kubernetes
fairlead=$build/bin/fairlead
export NO_COLOR=1

# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
after_end() { [ ! -d "$work/peer" ] || "$peers/cluster.sh" down "$work/peer" > /dev/null; }
workers=400
engine='set up'
say() { printf 'ok  %s: %s\n' "$engine" "$*"; }
epochs() { # of all pods, in the order in which they were made
  "$fairlead" get pods -n lab -o json --kubeconfig "$admin" | python3 -c '
import json, sys
pods = json.load(sys.stdin)
pods = pods["items"] if "items" in pods else pods if isinstance(pods, list) else [pods]
pods.sort(key=lambda p: int(p["metadata"]["name"].split("-")[-1]))
print(" ".join(p["metadata"]["name"] + "=" + p["metadata"]["annotations"].get("fairlead.dev/leader-epoch", "none") for p in pods))'
}
holder() { "$fairlead" get lease fairlead-server -n fairlead-system -o json --kubeconfig "$admin" | python3 -c '
import json, sys
lease = json.load(sys.stdin)
lease = lease["items"][0] if "items" in lease else lease
print(lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"])'; }
holds() { [ "$(holder)" = "$1" ]; }
has_worker() { "$fairlead" get pod "worker-$1" -n lab --kubeconfig "$admin"; }
cluster() { # WORKERS
  cat << TEXT
apiVersion: v1
kind: Namespace
metadata: {name: fairlead-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: lab}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: lab}
---
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: demo, namespace: lab}
spec:
  k8sNodeFilters: [{name: all, nodeSelector: {pool: none}}]
  slurmNodes:
    controller: {size: 1, k8sNodeFilterName: all}
    worker: {size: $1, k8sNodeFilterName: all, cgroupVersion: v1, slurmd: {resources: {cpu: "1"}}}
    login: {size: 1, k8sNodeFilterName: all, sshRootPublicKeys: ["ssh-ed25519 AAAA me"]}
TEXT
}
candidate() { # NAME KUBECONFIG
  start "$engine-$1.log" "$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$2" --namespace fairlead-system --identity "$1" --health-listen 127.0.0.1:0
}

contest() { # KUBECONFIG_OF_A KUBECONFIG_OF_B
  local a b status=0
  cluster 1 > "$work/demo.yaml"
  "$fairlead" up --no-wait -f "$work/demo.yaml" --kubeconfig "$admin" > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "$engine: the objects are not there"; }
  candidate a "$1"; a=$last
  wait_until 30 'a leads' holds 'a 1'
  candidate b "$2"; b=$last
  wait_until 30 'the cluster is made' has_worker 0
  wait_until 20 'b stands by' grep -q 'running on a cluster' "$work/$engine-b.log"
  say 'a leads, b stands by'

  # More work than a fast machine does between a line of a's log and the signal: a is stopped somewhere inside it.
  cluster "$workers" > "$work/demo.yaml"
  "$fairlead" up --no-wait -f "$work/demo.yaml" --kubeconfig "$admin" > "$work/up.log" 2>&1
  timeout 30 tail -n +1 -s 0.01 -F "$work/$engine-a.log" 2> /dev/null | grep -q -m 1 'create pods worker-3"' || [ "${PIPESTATUS[1]}" = 0 ] || fail 'a does not work'
  kill -STOP "$a"
  if has_worker $((workers - 1)) > "$work/out" 2>&1; then fail "a made $workers pods before it was stopped: the test needs more of them"; fi
  wait_until 40 'b leads' holds 'b 2'
  wait_until 60 'b ends the work' has_worker $((workers - 1))
  say "b leads and has finished what a began"
  kill -CONT "$a"
  wait_until 20 'a ends' gone "$a"
  wait "$a" || status=$?
  [ "$status" = 1 ] || fail "a ended with status $status"
  grep -q 'no longer leading' "$work/$engine-a.log" || fail 'a does not say why it ends'
  pods=$(epochs)
  grep -q "worker-$((workers - 1))=2" <<< "$pods" || fail "the last worker is not b's: $pods"
  if grep -q 'none' <<< "$pods"; then fail "a pod without an epoch: $pods"; fi
  say 'a, continued, has ended by itself'

  candidate a2 "$1"; a=$last
  wait_until 20 'another stands by' grep -q 'running on a cluster' "$work/$engine-a2.log"
  kill -TERM "$b"
  wait_until 20 'b stops' gone "$b"
  wait_until 10 'a lease that was given back is taken at once' holds 'a2 3'
  kill -TERM "$a"
  wait "$a" || fail 'a leader that is asked to stop does not end well'
  say 'a leader that goes in order gives the lease back'
}

for engine in "$@"; do
  case $engine in
    embedded)
      serve --controllers engine
      contest "$admin" "$admin"
      ;;
    kubernetes)
      programs=$("$peers/build.sh" --print)
      if [ ! -x "$programs/kube-apiserver" ]; then
        echo "kubernetes: left out, $programs has no kube-apiserver (tests/peers/build.sh builds it)"
        continue
      fi
      admin=$("$peers/cluster.sh" up "$work/peer" --only-api | tail -n 1)
      for user in server-a server-b; do "$peers/cluster.sh" user "$work/peer" "$user" system:masters > /dev/null; done
      contest "$work/peer/server-a.kubeconfig" "$work/peer/server-b.kubeconfig"
      python3 - "$work/peer/log/audit.jsonl" << 'TEXT' || fail 'the audit log has a write of the old leader'
# No write of server-a was accepted between the first one of server-b and the end of that process (its successor writes only in term 3, which begins with its own lease).
import json, sys
events = [json.loads(line) for line in open(sys.argv[1])]
writes = [e for e in events if e.get("stage") == "ResponseComplete" and e["verb"] in ("create", "update", "patch", "delete") and e["user"]["username"] in ("server-a", "server-b")
          and e.get("responseStatus", {}).get("code", 500) < 300]
writes.sort(key=lambda e: e["stageTimestamp"])
first_b = next(i for i, e in enumerate(writes) if e["user"]["username"] == "server-b")
last_b = max(i for i, e in enumerate(writes) if e["user"]["username"] == "server-b")
late = [e for e in writes[first_b:last_b] if e["user"]["username"] == "server-a"]
assert first_b > 5, "server-a has hardly written"
assert last_b - first_b > 5, "server-b has hardly written"
for e in late: print("late:", e["stageTimestamp"], e["verb"], e["requestURI"])
print(f"     audit: {first_b} writes of the first leader, then {last_b - first_b + 1} of the second, {len(late)} of the first among them")
sys.exit(1 if late else 0)
TEXT
      say 'the audit log has no write of the old leader after the first of the new one'
      ;;
    *) fail 'no such engine' ;;
  esac
done
