#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Versions of the clients that people use, against both servers: kubectl, helm, client-go, the Python client against a real kube-apiserver with its controllers, and against the embedded engine.
# Prints what fails, and a table: passed checks of all.
#   matrix.sh BUILD_DIR [FILE]       the table goes to FILE too. Exit status 1: a check failed; 77: the real programs are not built
# Everything is on loopback; no node is needed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "${1:?matrix.sh BUILD_DIR [FILE]}")
out=${2:-}
programs=$("$here/build.sh" --print)
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm; do
  [ -x "$programs/$name" ] || { echo "skipped: $programs/$name is not built (tests/peers/build.sh, or ./test.sh --kubernetes)"; exit 77; }
done
gos=(0.31.14 0.34.13)
"$here/build.sh" probe "${gos[@]/#/probe-}" > /dev/null || { status=$?; echo 'matrix.sh: the Go probes cannot be built' >&2; exit "$status"; }
pythons=('' 29.0.0 31.0.0 32.0.1 37.0.2)
for version in "${pythons[@]}"; do FAIRLEAD_PYTHON_CLIENT=$version "$here/python/run.sh" --prepare; done
declare -A kubectls=()
for minor in 30 31 32 33; do
  for candidate in "$(command -v "kubectl.1.$minor" || true)" "/usr/lib/google-cloud-sdk/bin/kubectl.1.$minor" "${FAIRLEAD_KUBECTL_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/kubectl}/kubectl.1.$minor"; do
    if [ -x "$candidate" ]; then
      kubectls[$minor]=$candidate
      break
    fi
  done
done
[ -n "${kubectls[33]:-}" ] || kubectls[33]=$programs/kubectl

work=$(mktemp -d /var/tmp/fairlead-matrix-XXXXXX)
server=''
clean_up() {
  local status=$?
  trap - EXIT
  [ -z "$server" ] || { kill -TERM "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; }
  "$here/cluster.sh" down "$work/peer" > /dev/null 2>&1 || true
  [ "$status" -eq 0 ] || tail -n 10 "$work"/*.log >&2 2> /dev/null || true
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
mkdir "$work/site" "$work/lines"
"$here/cluster.sh" up "$work/peer" > "$work/peer.log" 2>&1 || { cat "$work/peer.log" >&2; exit 1; }
"$build/bin/fairlead-server" --state-dir "$work/site" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
server=$!
for _ in $(seq 150); do
  grep -q ' serving ' "$work/server.log" && break
  read -rt 0.2 <> <(:) || true
done
declare -A config=([real]=$work/peer/admin.kubeconfig [embedded]=$work/site/pki/admin.kubeconfig)
status=0 rows=''
row() { # CLIENT VERSION COMMAND...: CONFIG in the command becomes the kubeconfig
  local client=$1 version=$2 engine passed all cells='' word words
  shift 2
  for engine in real embedded; do
    words=()
    for word in "$@"; do words+=("${word/CONFIG/"${config[$engine]}"}"); done
    if ! "${words[@]}" > "$work/lines/$client-$version-$engine" 2> "$work/err"; then
      status=1
      grep '^FAIL' "$work/lines/$client-$version-$engine" | sed "s/^/$client $version, $engine: /" || { echo "$client $version, $engine: it ended before its checks"; tail -n 5 "$work/err"; }
    fi
    passed=$(grep -c '^ok' "$work/lines/$client-$version-$engine" || true)
    all=$(grep -cE '^(ok|FAIL)' "$work/lines/$client-$version-$engine" || true)
    [ "$all" -gt 0 ] || status=1
    cells+=" $passed of $all |"
  done
  rows+="| $client | $version |$cells"$'\n'
  echo "-- $client $version:$cells"
}
for minor in 30 31 32 33; do
  if [ -z "${kubectls[$minor]:-}" ]; then
    echo "-- kubectl 1.$minor: left out, not on this machine"
    continue
  fi
  version=$("${kubectls[$minor]}" version --client -o json | sed -nE 's/.*"gitVersion": "v([0-9.]+).*/\1/p' | head -n 1)
  row kubectl "$version" "$here/kubectl.sh" "${kubectls[$minor]}" CONFIG
done
row helm "$("$programs/helm" version --template '{{.Version}}' | tr -d v)" "$here/helm.sh" "$programs/helm" CONFIG
row client-go "$(sed -nE 's/^\tk8s.io\/client-go v(.*)/\1/p' "$here/probe/go.mod")" "$programs/probe" --kubeconfig CONFIG
for version in "${gos[@]}"; do row client-go "$version" "$programs/probe-$version" --kubeconfig CONFIG; done
for version in "${pythons[@]}"; do
  row 'Python client' "${version:-$(sed -nE 's/^kubernetes==([0-9.]+).*/\1/p' "$here/python/requirements.txt")}" env FAIRLEAD_PYTHON_CLIENT="$version" "$here/python/run.sh" CONFIG
done
table() {
  echo "| client | version | kube-apiserver $("$programs/kubectl" --kubeconfig "${config[real]}" get --raw /version | sed -nE 's/.*"gitVersion": "v([^"]*)".*/\1/p') | embedded engine |"
  echo '|---|---|---|---|'
  printf %s "$rows"
}
table
[ -z "$out" ] || table > "$out"
exit "$status"
