#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A real Kubernetes control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler with certificates of their own, all state in one folder.
#   cluster.sh up DIR [--bind ADDRESS] [--advertise ADDRESS] [--san DNS:NAME|IP:ADDRESS] [--only-api] [--grace SECONDS] [--api-option OPTION]...
#                                   starts it on free ports (again after `down`: with the objects it had); done when it is ready to schedule
#   cluster.sh down DIR             ends the processes that it started, and no others; the folder stays
#   cluster.sh status DIR           one line per program; exit status 1 unless all run
#   cluster.sh signal DIR PROGRAM NAME      sends a signal to one of its programs; with KILL it waits until the program is gone
#   cluster.sh start DIR PROGRAM [OPTION...]  one program that has ended, as it was started before and with further options; returns at once
#   cluster.sh compact DIR          etcd forgets all history up to now; prints the revision
#   cluster.sh user DIR NAME [GROUP...]     a client certificate: DIR/NAME.kubeconfig
#   cluster.sh node DIR NODE [ADDRESS...]   a node's certificate, for its kubelet as client and, with addresses, as server: DIR/nodes/NODE.{crt,key,kubeconfig}
# --bind       address that kube-apiserver listens on; 127.0.0.1 unless told. 0.0.0.0 only inside a network namespace of one's own
# --advertise  address at which pods reach it (endpoint of the Service kubernetes); without it there is no such endpoint
# --only-api   etcd and kube-apiserver alone, as the benchmark compares them
# --api-option a further option of kube-apiserver, as --api-option --watch-cache=false
# --grace      seconds without a heartbeat until a node is unknown; 20 unless told (Kubernetes' default is 50)
# In DIR: admin.kubeconfig, pki/, log/*.log, log/audit.jsonl (metadata of every request), run/*.pid (pid and start time), etcd/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
die() { echo "cluster.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || { sed -n '3,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
command=$1
dir=$2
shift 2
programs=$("$here/build.sh" --print)
kubectl=$programs/kubectl
[ -x "$kubectl" ] || kubectl=$(command -v kubectl || true)

# --- processes: known by pid and start time, so that a pid that was given out again is never signalled ---
start_time() { sed -E 's/.*\) //' "/proc/$1/stat" 2> /dev/null | cut -d' ' -f20; }
pid_of() { # NAME: its pid if it runs
  local pid='' began=''
  [ -e "$dir/run/$1.pid" ] || return 1
  read -r pid began < "$dir/run/$1.pid" || return 1
  [ -n "$pid" ] && [ "$(start_time "$pid")" = "$began" ] && ! grep -q '^State:.*Z' "/proc/$pid/status" && echo "$pid"
}
launch() { # NAME COMMAND...
  local name=$1
  shift
  printf '%q ' "$@" > "$dir/run/$name.command"
  # setsid: a Ctrl-C in the test's terminal reaches the test, which calls `down`. No lock of the caller may live on in it.
  setsid "$@" < /dev/null >> "$dir/log/$name.log" 2>&1 3>&- 8>&- 9>&- &
  local pid=$!
  echo "$pid $(start_time "$pid")" > "$dir/run/$name.pid"
}
wait_for() { # SECONDS NAME WHAT COMMAND...
  local end=$((SECONDS + $1)) name=$2 what=$3
  shift 3
  until "$@" > /dev/null 2>&1; do
    pid_of "$name" > /dev/null || { tail -n 5 "$dir/log/$name.log" >&2; die "$name ended while starting (whole log: $dir/log/$name.log)"; }
    [ $SECONDS -lt $end ] || { tail -n 5 "$dir/log/$name.log" >&2; die "$what: not in time (log: $dir/log/$name.log)"; }
    read -rt 0.2 <> <(:) || true
  done
}
all='kube-scheduler kube-controller-manager kube-apiserver etcd'
stop() { # NAME
  local pid end=$((SECONDS + 15))
  pid=$(pid_of "$1") || { rm -f "$dir/run/$1.pid"; return 0; }
  kill -TERM "$pid" 2> /dev/null || true
  kill -CONT "$pid" 2> /dev/null || true
  while pid_of "$1" > /dev/null; do
    [ $SECONDS -lt $end ] || { kill -KILL "$pid" 2> /dev/null || true; end=$((SECONDS + 5)); }
    read -rt 0.1 <> <(:) || true
  done
  rm -f "$dir/run/$1.pid"
}

# --- certificates ---
key() { [ -e "$1" ] || (umask 077 && openssl ecparam -name prime256v1 -genkey -noout -out "$1"); }
certificate() { # FILE-STEM SUBJECT USAGE [SAN]
  local stem=$1 subject=$2 usage=$3 san=${4:-} extensions
  key "$stem.key"
  extensions=$(printf 'basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$usage")
  [ -z "$san" ] || extensions+=$(printf '\nsubjectAltName=%s\n' "$san")
  openssl req -new -key "$stem.key" -subj "$subject" 2> /dev/null |
    openssl x509 -req -CA "$dir/pki/ca.crt" -CAkey "$dir/pki/ca.key" -set_serial "0x$(openssl rand -hex 12)" -days 30 -sha256 -extfile <(printf '%s\n' "$extensions") -out "$stem.crt" 2> /dev/null ||
    die "no certificate could be made for $subject"
}
kubeconfig() { # FILE CERTIFICATE-STEM
  local file=$1 stem=$2
  (umask 077 && cat > "$file" << TEXT
apiVersion: v1
kind: Config
clusters:
- name: peer
  cluster:
    server: $(< "$dir/run/address")
    certificate-authority-data: $(base64 -w0 "$dir/pki/ca.crt")
users:
- name: $(basename "$stem")
  user:
    client-certificate-data: $(base64 -w0 "$stem.crt")
    client-key-data: $(base64 -w0 "$stem.key")
contexts:
- name: peer
  context: {cluster: peer, user: $(basename "$stem")}
current-context: peer
TEXT
  )
}
identity() { # NAME SUBJECT: a client of the control plane and its kubeconfig
  certificate "$dir/pki/$1" "$2" clientAuth
  kubeconfig "$dir/$1.kubeconfig" "$dir/pki/$1"
}

# Below the range from which the kernel hands out ports by itself, so that no client's connection can sit on it.
is_free() { [ -z "$(ss -Hltn "sport = :$1")" ]; }
free_port() {
  local port
  for _ in $(seq 200); do
    port=$((20000 + RANDOM % 12000))
    if is_free "$port"; then
      echo "$port"
      return
    fi
  done
  die 'no free port between 20000 and 32000'
}

up() {
  local bind=127.0.0.1 advertise='' sans='' only_api=0 grace=20 api_options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --bind) bind=$2; shift ;;
      --advertise) advertise=$2; shift ;;
      --san) sans="$sans,$2"; shift ;;
      --only-api) only_api=1 ;;
      --api-option) api_options+=("$2"); shift ;;
      --grace) grace=$2; shift ;;
      *) die "unknown option $1" ;;
    esac
    shift
  done
  command -v openssl > /dev/null || die 'openssl is needed'
  command -v ss > /dev/null || die 'ss (iproute2) is needed'
  local name
  local needed=(etcd kube-apiserver)
  [ "$only_api" = 1 ] || needed+=(kube-controller-manager kube-scheduler)
  for name in "${needed[@]}"; do [ -x "$programs/$name" ] || die "$name is not built: run $here/build.sh"; done
  [ -n "$kubectl" ] || die "kubectl is not built: run $here/build.sh"
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  chmod 700 "$dir"
  for name in $all; do ! pid_of "$name" > /dev/null || die "$name of $dir runs already (cluster.sh down $dir)"; done
  mkdir -p "$dir/pki" "$dir/log" "$dir/run" "$dir/nodes" "$dir/etcd"
  chmod 700 "$dir/etcd" "$dir/pki"

  # The same ports as last time, where they are still free: kubeconfigs that were given out stay good.
  local api_port='' etcd_port='' peer_port='' manager_port='' scheduler_port='' port
  [ ! -e "$dir/run/ports" ] || read -r api_port etcd_port peer_port manager_port scheduler_port < "$dir/run/ports"
  for port in $api_port $etcd_port $peer_port $manager_port $scheduler_port; do is_free "$port" || api_port=''; done
  if [ -z "$api_port" ]; then
    # None of them listens yet, so two might be the same.
    until [ "$(printf '%s\n' "$api_port" "$etcd_port" "$peer_port" "$manager_port" "$scheduler_port" | sort -u | grep -c .)" = 5 ]; do
      api_port=$(free_port) etcd_port=$(free_port) peer_port=$(free_port) manager_port=$(free_port) scheduler_port=$(free_port)
    done
    echo "$api_port $etcd_port $peer_port $manager_port $scheduler_port" > "$dir/run/ports"
  fi
  echo "https://127.0.0.1:$api_port" > "$dir/run/address"
  if [ ! -e "$dir/pki/ca.crt" ]; then
    key "$dir/pki/ca.key"
    openssl req -x509 -new -key "$dir/pki/ca.key" -subj '/CN=fairlead-peer-ca' -days 30 -sha256 -addext 'basicConstraints=critical,CA:TRUE' -addext 'keyUsage=critical,keyCertSign,cRLSign' \
      -out "$dir/pki/ca.crt" 2> /dev/null
    (umask 077 && openssl genrsa -out "$dir/pki/service-accounts.key" 2048 2> /dev/null)
    openssl rsa -in "$dir/pki/service-accounts.key" -pubout -out "$dir/pki/service-accounts.pub" 2> /dev/null
  fi
  [ -z "$advertise" ] || sans="$sans,IP:$advertise"
  case $bind in 127.0.0.1 | 0.0.0.0 | ::) ;; *) sans="$sans,IP:$bind" ;; esac
  certificate "$dir/pki/apiserver" /CN=kube-apiserver serverAuth \
    "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:0:0:0:0:0:0:0:1,IP:10.96.0.1$sans"
  certificate "$dir/pki/etcd" /CN=etcd serverAuth,clientAuth DNS:localhost,IP:127.0.0.1
  certificate "$dir/pki/apiserver-etcd" /CN=kube-apiserver-etcd clientAuth
  certificate "$dir/pki/apiserver-kubelet" /O=fairlead:kubelet-clients/CN=kube-apiserver clientAuth
  identity admin /O=system:masters/CN=admin
  identity controller-manager /CN=system:kube-controller-manager
  identity scheduler /CN=system:kube-scheduler
  cat > "$dir/audit-policy.yaml" << 'TEXT'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
TEXT

  local launched=$EPOCHREALTIME
  launch etcd "$programs/etcd" --name peer --data-dir "$dir/etcd" --logger zap --log-level warn \
    --listen-client-urls "https://127.0.0.1:$etcd_port" --advertise-client-urls "https://127.0.0.1:$etcd_port" \
    --listen-peer-urls "https://127.0.0.1:$peer_port" --initial-advertise-peer-urls "https://127.0.0.1:$peer_port" --initial-cluster "peer=https://127.0.0.1:$peer_port" --force-new-cluster \
    --cert-file "$dir/pki/etcd.crt" --key-file "$dir/pki/etcd.key" --client-cert-auth --trusted-ca-file "$dir/pki/ca.crt" \
    --peer-cert-file "$dir/pki/etcd.crt" --peer-key-file "$dir/pki/etcd.key" --peer-client-cert-auth --peer-trusted-ca-file "$dir/pki/ca.crt"
  local endpoint=(--endpoint-reconciler-type=none --advertise-address=127.0.0.1)
  [ -z "$advertise" ] || endpoint=(--advertise-address="$advertise")
  launch kube-apiserver "$programs/kube-apiserver" --bind-address "$bind" --secure-port "$api_port" "${endpoint[@]}" \
    --etcd-servers "https://127.0.0.1:$etcd_port" --etcd-cafile "$dir/pki/ca.crt" --etcd-certfile "$dir/pki/apiserver-etcd.crt" --etcd-keyfile "$dir/pki/apiserver-etcd.key" \
    --tls-cert-file "$dir/pki/apiserver.crt" --tls-private-key-file "$dir/pki/apiserver.key" --client-ca-file "$dir/pki/ca.crt" --anonymous-auth=true \
    --kubelet-client-certificate "$dir/pki/apiserver-kubelet.crt" --kubelet-client-key "$dir/pki/apiserver-kubelet.key" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged=true \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/pki/service-accounts.pub" --service-account-signing-key-file "$dir/pki/service-accounts.key" \
    --service-cluster-ip-range 10.96.0.0/16 --feature-gates WatchList=true --kubelet-preferred-address-types InternalIP,Hostname \
    --audit-policy-file "$dir/audit-policy.yaml" --audit-log-path "$dir/log/audit.jsonl" --audit-log-maxsize 1000 --profiling=false ${api_options[@]+"${api_options[@]}"}
  wait_for 120 kube-apiserver 'kube-apiserver is ready' "$kubectl" --kubeconfig "$dir/admin.kubeconfig" get --raw /readyz
  awk -v a="$launched" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f\n", b - a }' > "$dir/run/first-answer" # seconds, for the benchmark
  if [ "$only_api" = 0 ]; then
    local common=(--leader-elect=false --bind-address 127.0.0.1 --profiling=false)
    launch kube-controller-manager "$programs/kube-controller-manager" "${common[@]}" --secure-port "$manager_port" --kubeconfig "$dir/controller-manager.kubeconfig" \
      --use-service-account-credentials --root-ca-file "$dir/pki/ca.crt" --service-account-private-key-file "$dir/pki/service-accounts.key" \
      --cluster-signing-cert-file "$dir/pki/ca.crt" --cluster-signing-key-file "$dir/pki/ca.key" --node-monitor-grace-period "${grace}s" --node-monitor-period 2s
    launch kube-scheduler "$programs/kube-scheduler" "${common[@]}" --secure-port "$scheduler_port" --kubeconfig "$dir/scheduler.kubeconfig"
    # The controllers that make service accounts and root certificates work once these are there.
    wait_for 60 kube-controller-manager 'the controllers work' "$kubectl" --kubeconfig "$dir/admin.kubeconfig" get -n default serviceaccount/default configmap/kube-root-ca.crt
    wait_for 60 kube-scheduler 'the scheduler works' curl -fsk "https://127.0.0.1:$scheduler_port/healthz"
  fi
  # The API server's client certificate may do at kubelets what it needs for logs and exec, where a kubelet asks.
  "$kubectl" --kubeconfig "$dir/admin.kubeconfig" apply -f - > /dev/null << 'TEXT'
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: peer-apiserver-to-kubelets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kubelet-api-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "fairlead:kubelet-clients"}]
TEXT
  echo "$dir/admin.kubeconfig"
}

case $command in
  up) up "$@" ;;
  down) for name in $all; do stop "$name"; done ;;
  status)
    status=0
    for name in $all; do
      if pid=$(pid_of "$name"); then
        echo "$name runs, pid $pid, $(awk '/VmRSS/ { printf "%d MB", $2 / 1024 }' "/proc/$pid/status")"
      else
        echo "$name does not run"
        status=1
      fi
    done
    exit "$status"
    ;;
  signal)
    name=${1:?signal DIR PROGRAM NAME} signal=${2:?signal DIR PROGRAM NAME}
    pid=$(pid_of "$name") || die "$name of $dir does not run"
    kill "-$signal" "$pid"
    while [ "$signal" = KILL ] && pid_of "$name" > /dev/null; do read -rt 0.05 <> <(:) || true; done
    ;;
  start)
    name=${1:?start DIR PROGRAM}
    shift
    [ -e "$dir/run/$name.command" ] || die "$name of $dir was never started"
    ! pid_of "$name" > /dev/null || die "$name of $dir runs already"
    # shellcheck disable=SC2154
    eval "words=($(< "$dir/run/$name.command"))"
    launch "$name" "${words[@]}" "$@"
    ;;
  compact)
    read -r _ etcd_port _ < "$dir/run/ports"
    etcd() { curl -sS --fail-with-body --cacert "$dir/pki/ca.crt" --cert "$dir/pki/apiserver-etcd.crt" --key "$dir/pki/apiserver-etcd.key" "https://127.0.0.1:$etcd_port/v3/kv/$1" -d "$2"; }
    revision=$(etcd range '{"key": "AA==", "limit": 1}' | sed -nE 's/.*"revision": ?"([0-9]+)".*/\1/p')
    [ -n "$revision" ] || die 'etcd does not tell its revision'
    etcd compaction "{\"revision\": \"$revision\", \"physical\": true}" > /dev/null || die 'etcd refuses to compact'
    echo "$revision"
    ;;
  user)
    [ -e "$dir/run/address" ] || die "$dir is no cluster"
    name=${1:?user NAME}
    shift
    subject=''
    for group in "$@"; do subject="$subject/O=$group"; done
    identity "$name" "$subject/CN=$name"
    echo "$dir/$name.kubeconfig"
    ;;
  node)
    [ -e "$dir/run/address" ] || die "$dir is no cluster"
    name=${1:?node NAME}
    shift
    san="DNS:$name"
    for address in "$@"; do san="$san,IP:$address"; done
    certificate "$dir/nodes/$name" "/O=system:nodes/CN=system:node:$name" serverAuth,clientAuth "$san"
    kubeconfig "$dir/nodes/$name.kubeconfig" "$dir/nodes/$name"
    echo "$dir/nodes/$name.kubeconfig"
    ;;
  *) die "unknown command $command" ;;
esac
