#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same requests to a real kube-apiserver and to the embedded engine; the answers must be equal, but for what docs/kubernetes-subset.md explains and tests/peers/corpus/known.txt lists.
#   corpus_test.sh BUILD_DIR        exit status 77: the real programs are not built (tests/peers/build.sh builds them)
set -eu
[ -n "${FAIRLEAD_KUBERNETES:-}" ] || { echo "skipped: needs a real Kubernetes (./test.sh --kubernetes, or FAIRLEAD_KUBERNETES=1)"; exit 77; }
build=$(cd "${1:?the build folder}" && pwd)
peers=$(cd "$(dirname "$0")/../peers" && pwd)
programs=$("$peers/build.sh" --print)
for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
  [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh)"; exit 77; }
done

tmp=$(mktemp -d)
server=''
cleanup() {
  status=$?
  if [ -n "$server" ]; then
    kill -TERM "$server" 2> /dev/null || true
    wait "$server" 2> /dev/null || true
  fi
  "$peers/cluster.sh" down "$tmp/real" > /dev/null 2>&1 || true
  [ "$status" = 0 ] || { echo '--- last lines of our server:'; tail -n 5 "$tmp/server.log" 2> /dev/null; }
  rm -rf "$tmp"
}
trap cleanup EXIT
"$peers/cluster.sh" up "$tmp/real" > "$tmp/up.log" 2>&1 || { cat "$tmp/up.log"; exit 1; }
"$build/bin/fairlead-server" --state-dir "$tmp/state" --listen 127.0.0.1:0 > "$tmp/server.log" 2>&1 &
server=$!
for _ in $(seq 200); do
  grep -q ' serving ' "$tmp/server.log" && break
  kill -0 "$server" 2> /dev/null || { cat "$tmp/server.log"; exit 1; }
  sleep 0.1
done
/usr/bin/python3 "$peers/corpus/corpus.py" run --real "$tmp/real/admin.kubeconfig" --ours "$tmp/state/pki/admin.kubeconfig"
