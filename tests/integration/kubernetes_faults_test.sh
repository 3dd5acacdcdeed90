#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fairlead-server on a real kube-apiserver that fails: watches cut while etcd forgets history (410), 429 with Retry-After, an API server that hangs for 5 s, one that is killed and away
# for 20 s; a service account's token that is renewed and revoked, a client certificate that is renewed. Nothing that runs may be deleted, one server leads at a time, work goes on.
# The audit log of the API server is the witness.
#   kubernetes_faults_test.sh BUILD_DIR [PART...]     as root; parts: history busy hang death token certificate; without parts all
set -euo pipefail
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(realpath "${1:?usage: kubernetes_faults_test.sh BUILD_DIR [PART...]}")
shift
[ $# -gt 0 ] || set -- history busy hang death token certificate
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
fairlead=$build/bin/fairlead
export NO_COLOR=1
programs=$("$peers/build.sh" --print)
if [ ! -x "$programs/kube-apiserver" ] || [ ! -x "$programs/kubectl" ]; then
  echo "skipped: $programs has no kube-apiserver and kubectl (tests/peers/build.sh builds them)"
  exit 77
fi

work=$(mktemp -d /var/tmp/fairlead-faults-test-XXXXXX)
peer=$work/peer
declare -A keeper=()  # of each server: the process that starts it again
proxy='' hog=''
say() { printf 'ok  %s: %s\n' "$part" "$*"; }
fail() { printf 'FAIL %s: %s\n' "$part" "$*" >&2; [ ! -s "$work/out" ] || sed 's/^/    | /' "$work/out" | tail -n 30 >&2; exit 1; }
part='set up'
clean_up() {
  local status=$? name
  trap - EXIT
  for name in "${!keeper[@]}"; do kill -TERM "${keeper[$name]}" 2> /dev/null || true; done
  for name in "${!keeper[@]}"; do wait "${keeper[$name]}" 2> /dev/null || true; done
  for name in $proxy $hog; do kill "$name" 2> /dev/null || true; wait "$name" 2> /dev/null || true; done
  [ "$status" -eq 0 ] || tail -n 25 "$work"/*.log >&2 || true
  "$peers/cluster.sh" down "$peer" > /dev/null 2>&1 || true
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
wait_until() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1 * ${FAIRLEAD_PATIENCE:-2})) what=$2
  shift 2
  until "$@" > "$work/out" 2>&1; do
    [ $SECONDS -lt $end ] || fail "not in time: $what"
    read -rt 0.2 <> <(:) || true
  done
}
does() { "$@" > "$work/out" 2>&1 || fail "$*"; }
k() { "$programs/kubectl" --request-timeout=10s "$@"; }
lasts() { read -rt "$1" <> <(:) || true; } # the fault itself takes this long

# --- servers, kept up as a kubelet keeps them
keep() { # NAME COMMAND...
  local name=$1
  shift
  : > "$work/$name.starts"
  (
    trap 'kill -TERM "$child" 2> /dev/null; wait "$child"; exit 0' TERM
    while :; do
      echo start >> "$work/$name.starts"
      "$@" >> "$work/$name.log" 2>&1 &
      child=$!
      wait "$child" || true
      read -rt 1 <> <(:) || true
    done
  ) &
  keeper[$name]=$!
}
starts() { wc -l < "$work/$1.starts"; }
stop() { # NAME
  kill -TERM "${keeper[$1]}"
  wait "${keeper[$1]}" || true
  unset "keeper[$1]"
}
holder() { k get lease fairlead-server -n fairlead-system -o jsonpath='{.spec.holderIdentity} {.spec.leaseTransitions}'; }
epoch() { holder | cut -d' ' -f2; }
holds() { [[ $(holder) == "$1"_*\ "$2" || $(holder) == "$1 $2" ]]; } # NAME EPOCH
scale() { # WORKERS
  cat > "$work/demo.yaml" << TEXT
apiVersion: v1
kind: Namespace
metadata: {name: lab}
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
  does "$fairlead" up --no-wait -f "$work/demo.yaml" --kubeconfig "$KUBECONFIG"
  workers=$1
}
made() { k get pod -n lab "worker-$((workers - 1))"; }
grow() { # one more worker: whoever leads reacts
  scale $((workers + 1))
  wait_until "${1:-40}" "worker-$((workers - 1)) is made" made
}
pods() { k get pods -n lab --sort-by=.metadata.name -o jsonpath='{range .items[*]}{.metadata.name}={.metadata.uid}{"\n"}{end}'; }
remember() { pods > "$work/pods.before"; }
unharmed() { # every pod of before is there, the same one
  pods > "$work/pods.now"
  sort "$work/pods.before" > "$work/out"
  [ -z "$(comm -23 "$work/out" <(sort "$work/pods.now"))" ] || fail "pods are gone: $(comm -23 "$work/out" <(sort "$work/pods.now") | tr '\n' ' ')"
}
# audit WORDS...: a Python expression over `mine` (requests of fairlead-server since $since, oldest first) that must be true; `print` what it is about.
since=''
mark() { since=$(date -u +%FT%T.%6NZ); }
audit() { # PROGRAM
  python3 -c '
import collections, datetime, json, sys
when = lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
since = when(sys.argv[2])
mine = []
for line in open(sys.argv[1]):
    try: event = json.loads(line)
    except ValueError: continue  # a line cut by the death of the API server
    if event.get("userAgent", "").startswith("fairlead-server/") and when(event["requestReceivedTimestamp"]) >= since: mine.append(event)
code = lambda e: e.get("responseStatus", {}).get("code", 0)
at = lambda e: when(e["requestReceivedTimestamp"])
mine.sort(key=at)
work = [e for e in mine if e.get("objectRef", {}).get("resource") != "leases"]
'"$1" "$peer/log/audit.jsonl" "$since" > "$work/out" 2>&1 || fail 'the audit log says otherwise'
  [ ! -s "$work/out" ] || sed 's/^/    audit: /' "$work/out"
}

# Straight from etcd: what etcd forgets, watches cannot resume. (With its watch cache the API server would remember for a while longer.)
"$peers/cluster.sh" up "$peer" --only-api --api-option --watch-cache=false > "$work/up.log"
export KUBECONFIG=$peer/admin.kubeconfig
does "$fairlead" install
# No controllers run here: what they would make of a namespace is made by hand.
does k create namespace lab
does k create serviceaccount default -n lab
mkdir "$work/account"
token() { # N: of the service account, good while the Secret badge-N is there
  k create secret generic "badge-$1" -n fairlead-system > /dev/null
  k create token fairlead-server -n fairlead-system --duration=1h --bound-object-kind Secret --bound-object-name "badge-$1"
}
token 0 > "$work/account/token"
"$peers/cluster.sh" node "$peer" proxy 127.0.0.1 > /dev/null
url=$(< "$peer/run/address")
python3 "$peers/proxy.py" "${url##*:}" "$peer/pki/ca.crt" "$peer/nodes/proxy.crt" "$peer/nodes/proxy.key" > "$work/ports" 2> "$work/proxy.log" &
proxy=$!
wait_until 10 'the proxy listens' test -s "$work/ports"
read -r proxy_port control_port < "$work/ports"
connection() { does curl -sSf "http://127.0.0.1:$control_port/$1"; } # cut | heal
kubeconfig() { # URL USER
  cat << TEXT
apiVersion: v1
kind: Config
clusters: [{name: peer, cluster: {server: "$1", certificate-authority: $peer/pki/ca.crt}}]
users: [{name: me, user: {$2}}]
contexts: [{name: peer, context: {cluster: peer, user: me}}]
current-context: peer
TEXT
}
serve() { # NAME KUBECONFIG
  keep "$1" env -u KUBECONFIG POD_NAME="$1" "$build/bin/fairlead-server" --engine=kubernetes --kubeconfig "$2" --namespace fairlead-system --health-listen 127.0.0.1:0
}
scale 2
wants() { local name; for name in "$@"; do case " $parts " in *" $name "*) return 0 ;; esac; done; return 1; }
parts="$*"
if wants history busy hang death; then
  kubeconfig "https://127.0.0.1:$proxy_port" "tokenFile: $work/account/token" > "$work/proxied.kubeconfig"
  serve a "$work/proxied.kubeconfig"
  wait_until 30 'a leads' holds a 1
  serve b "$work/proxied.kubeconfig"
  wait_until 30 'the cluster is made' made
  wait_until 20 'b stands by' grep -q 'running on a cluster' "$work/b.log"
  say 'a leads and has made the cluster, b stands by'
fi

if wants history; then
  part=history
  mark
  connection cut
  scale 3
  does k delete pod -n lab worker-1 --grace-period=0 --force
  "$peers/cluster.sh" compact "$peer" > "$work/out" || fail 'etcd does not compact'
  if made > "$work/out" 2>&1; then fail 'the cut connection lets requests through'; fi
  connection heal
  wait_until 60 'worker-2 is made' made
  wait_until 30 'worker-1, lost meanwhile, is made again' k get pod -n lab worker-1
  grep -q 'history is gone' "$work/a.log" || fail 'no watch was refused for its age'
  holds a 1 || fail "the lease changed hands: $(holder)"
  [ "$(starts a)$(starts b)" = 11 ] || fail 'a server ended'
  audit '
lists = collections.Counter(e["requestURI"].split("?")[0] for e in work if e["verb"] == "list")
print(f"{len(work)} requests, {sum(lists.values())} lists of {len(lists)} resources, at most {max(lists.values())} of one")
assert lists and max(lists.values()) <= 3, lists'
  say 'watches that cannot resume begin again with one list; what happened meanwhile is acted upon'
fi

if wants busy; then
  part=busy
  # A priority level without seats lets one request in at a time. The place is taken by a list that is longer than the buffers between and that nobody reads.
  head -c 700000 /dev/zero | tr '\0' x > "$work/ballast"
  does k create namespace ballast
  for n in $(seq 12); do does k create configmap -n ballast "ballast-$n" --from-file="$work/ballast"; done
  k apply -f - > "$work/out" 2>&1 << 'TEXT' || fail 'flow control is not to be had'
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: nothing-at-all}
spec: {type: Limited, limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: fairlead-server}
spec:
  matchingPrecedence: 2
  priorityLevelConfiguration: {name: nothing-at-all}
  rules:
  - subjects: [{kind: ServiceAccount, serviceAccount: {namespace: fairlead-system, name: fairlead-server}}]
    # All but leases: a server that cannot renew its own gives way, as it must.
    resourceRules: [{apiGroups: ["", slurm.nebius.ai], resources: ["*"], verbs: ["*"], namespaces: ["*"], clusterScope: true}]
TEXT
  schema=$(k get flowschema fairlead-server -o jsonpath='{.metadata.uid}')
  governed() { curl -s -o /dev/null -D - --cacert "$peer/pki/ca.crt" -H "Authorization: Bearer $(< "$work/account/token")" "$url/api/v1/namespaces/lab/pods" | grep -i "flowschema-uid: $schema"; }
  put_off() { curl -s -o /dev/null -D - --cacert "$peer/pki/ca.crt" -H "Authorization: Bearer $(< "$work/account/token")" "$url/api/v1/namespaces/lab/pods" | tr -d '\r' > "$work/head" && grep -q '^HTTP.* 429' "$work/head"; }
  hog() {
    exec python3 -c '
import signal, socket, ssl, sys
raw = socket.socket()
raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
raw.connect(("127.0.0.1", int(sys.argv[1])))
connection = ssl.create_default_context(cafile=sys.argv[2]).wrap_socket(raw, server_hostname="127.0.0.1")
connection.sendall(f"GET /api/v1/namespaces/ballast/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {open(sys.argv[3]).read()}\r\n\r\n".encode())
print(connection.recv(100), flush=True)
signal.pause()' "${url##*:}" "$peer/pki/ca.crt" "$work/account/token"
  }
  wait_until 20 'flow control counts' governed
  hog > "$work/hog" 2>&1 &
  hog=$!
  wait_until 20 'the place is taken' grep -q '200 OK' "$work/hog"
  wait_until 20 'requests are put off' put_off
  pause=$(sed -nE 's/^[Rr]etry-[Aa]fter: ([0-9]+)$/\1/p' "$work/head")
  [ -n "$pause" ] || fail 'the API server names no time'
  mark
  scale $((workers + 1))
  lasts 8
  if made > "$work/out" 2>&1; then fail 'a request was let through'; fi
  kill "$hog"
  wait "$hog" 2> /dev/null || true
  hog=''
  does k delete flowschema fairlead-server
  wait_until 60 'the worker is made' made
  does k delete prioritylevelconfiguration nothing-at-all
  audit '
pause = '"$pause"'
refused = [e for e in work if code(e) == 429]
assert len(refused) >= 3, f"only {len(refused)} requests were put off"
# The same request again not before the time that the answer named (a hundredth is the clocks of two processes).
early = []
for e in refused:
    again = next((n for n in work if at(n) > at(e) and (n["verb"], n["requestURI"]) == (e["verb"], e["requestURI"])), None)
    if again and (at(again) - when(e["stageTimestamp"])).total_seconds() < pause - 0.01: early.append((e["verb"], e["requestURI"], (at(again) - when(e["stageTimestamp"])).total_seconds()))
print(f"{len(refused)} requests were put off by {pause} s, {len(early)} came again too early")
assert not early, early[:5]'
  holds a 1 || fail "the lease changed hands: $(holder)"
  [ "$(starts a)$(starts b)" = 11 ] || fail 'a server ended'
  say "429: nothing is asked again before Retry-After ($pause s)"
fi

if wants hang; then
  part=hang
  remember
  before=$(holder)
  "$peers/cluster.sh" signal "$peer" kube-apiserver STOP
  lasts 5
  "$peers/cluster.sh" signal "$peer" kube-apiserver CONT
  grow
  unharmed
  [ "$(holder)" = "$before" ] || fail "the lease changed hands: $before, now $(holder)"
  [ "$(starts a)$(starts b)" = 11 ] || fail 'a server ended'
  say 'an API server that does not answer for 5 s: the same server leads on'
fi

if wants death; then
  part=death
  remember
  before=$(epoch)
  mark
  "$peers/cluster.sh" signal "$peer" kube-apiserver KILL
  lasts 20
  "$peers/cluster.sh" start "$peer" kube-apiserver
  wait_until 90 'kube-apiserver is ready' k get --raw /readyz
  returned=$SECONDS
  wait_until 40 'a server leads again' eval '[ "$(epoch)" -gt "$before" ]'
  leads=$(holder)
  grow
  unharmed
  # A whole lease long nobody else takes it.
  while [ $((SECONDS - returned)) -lt 25 ]; do
    [ "$(holder)" = "$leads" ] || fail "two servers fight: $leads, then $(holder)"
    read -rt 1 <> <(:) || true
  done
  [ "$(epoch)" = $((before + 1)) ] || fail "the lease changed hands $(($(epoch) - before)) times"
  [ "$(starts a)" -le 2 ] && [ "$(starts b)" = 1 ] || fail "starts: a $(starts a), b $(starts b)"
  audit '
deleted = [e["requestURI"] for e in work if e["verb"] in ("delete", "deletecollection")]
assert not deleted, deleted
busiest = collections.Counter(at(e).replace(microsecond=0) for e in mine)
print(f"{len(mine)} requests, in the busiest second {max(busiest.values())}; none deletes; a was started {'"$(starts a)"'} times")
assert len(work) < 300, len(work)
assert max(busiest.values()) < 100, busiest.most_common(3)'
  say 'killed and away for 20 s: the lease passes on once, nothing is deleted, work goes on'
fi
for name in a b; do [ -z "${keeper[$name]:-}" ] || stop "$name"; done

if wants token; then
  part=token
  # As a kubelet projects it: a link to a folder that is swapped.
  project() { # FOLDER TOKEN
    mkdir "$work/account/$1"
    printf %s "$2" > "$work/account/$1/token"
    cp "$peer/pki/ca.crt" "$work/account/$1/ca.crt"
    printf fairlead-system > "$work/account/$1/namespace"
    ln -sfn "$1" "$work/account/..data_tmp"
    mv -T "$work/account/..data_tmp" "$work/account/..data"
  }
  rm -f "$work/account/token"
  project ..1 "$(token 1)"
  for name in token ca.crt namespace; do ln -s "..data/$name" "$work/account/$name"; done
  keep c env -u KUBECONFIG POD_NAME=c KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT="${url##*:}" unshare --mount --propagation private bash -c '
    mount -t tmpfs none /run
    mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
    mount --bind "$1" /var/run/secrets/kubernetes.io/serviceaccount
    exec "$2" --engine=kubernetes --health-listen 127.0.0.1:0' - "$work/account" "$build/bin/fairlead-server"
  wait_until 60 'c leads' eval '[[ $(holder) == c_* ]]'
  before=$(holder)
  remember
  grow
  answer() { curl -s -o /dev/null -w '%{http_code}' --cacert "$peer/pki/ca.crt" -H "Authorization: Bearer $(< "$1")" "$url/api/v1/namespaces/lab/pods"; }
  is_refused() { [ "$(answer "$1")" = 401 ]; }
  project ..2 "$(token 2)"
  mark
  does k delete secret -n fairlead-system badge-1
  wait_until 40 'the old token is refused' is_refused "$work/account/..1/token"
  grow
  unharmed
  audit '
shown = {tuple(e["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", ["?"])) for e in mine if (at(e) - since).total_seconds() > 5}
print(f"{len(mine)} requests, {sum(code(e) == 401 for e in mine)} refused, by {len(shown)} token")
assert len(shown) == 1 and not any(code(e) == 401 for e in mine), shown'
  say 'a renewed token is used; the revoked one is not shown again'
  # The worse order: revoked first, renewed when it has been refused already.
  next=$(token 3)
  does k delete secret -n fairlead-system badge-2
  wait_until 40 'the token is refused' is_refused "$work/account/..2/token"
  lasts 4
  project ..3 "$next"
  grow 60
  unharmed
  [ "$(holder)" = "$before" ] || fail "the lease changed hands: $before, now $(holder)"
  [ "$(starts c)" = 1 ] || fail 'the server ended'
  say 'a token revoked before its successor comes costs nothing but the time between'
  stop c
fi

if wants certificate; then
  part=certificate
  badge() { # makes a new pair for the same user
    rm -f "$peer/pki/server-d".*
    "$peers/cluster.sh" user "$peer" server-d system:masters > /dev/null
  }
  mkdir "$work/badge"
  badge
  cp "$peer/pki/server-d.crt" "$peer/pki/server-d.key" "$work/badge/"
  kubeconfig "$url" "client-certificate: $work/badge/server-d.crt, client-key: $work/badge/server-d.key" > "$work/badge.kubeconfig"
  serve d "$work/badge.kubeconfig"
  wait_until 60 'd leads' eval '[[ $(holder) == d_* ]]'
  before=$(holder)
  remember
  grow
  badge
  for file in server-d.crt server-d.key; do # one after the other: between them the pair does not fit
    cp "$peer/pki/$file" "$work/badge/.$file"
    mv "$work/badge/.$file" "$work/badge/$file"
    lasts 1.5
  done
  mark
  grow
  unharmed
  renewed() { audit 'assert any(e["verb"] == "update" for e in mine)'; }
  lasts 5
  renewed
  print=$(openssl x509 -in "$work/badge/server-d.crt" -outform DER | sha256sum | cut -d' ' -f1)
  audit '
shown = collections.Counter(e["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", ["?"])[0] for e in mine if (at(e) - since).total_seconds() > 3)
print(f"{len(mine)} requests, since then by {dict(shown)}")
assert list(shown) == ["X509SHA256='"$print"'"], shown'
  [ "$(holder)" = "$before" ] || fail "the lease changed hands: $before, now $(holder)"
  [ "$(starts d)" = 1 ] || fail 'the server ended'
  say 'a renewed client certificate is used by all new requests'
  stop d
fi
echo "kubernetes_faults_test: all passed ($parts)"
