#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For scripts that try a site of local machines with the real programs; to be sourced, with `set -euo pipefail` in force and $build, the folder with the built programs. Runs the script again in a network
# of its own: what another site, or a killed run, left on this machine is not in the way. There it has the folder $work and an empty site in it, which `run` speaks to; both go however the script ends.

# shellcheck disable=SC2154
# (of the variables, $build comes from the script)
fairlead=$(realpath "$build/bin/fairlead")
work=${FAIRLEAD_TEST_INSIDE:-}
if [ -z "$work" ]; then
  # The image is built before, while there is a way to the packages.
  work=$(mktemp -d "/tmp/fairlead-$(basename "$0" .sh | tr _ -)-XXXXXX")
  out=$("$fairlead" image build busybox --state-dir "$work/site" 2>&1) || { printf '%s\n' "$out"; rm -rf "$work"; exit 1; }
  export FAIRLEAD_TEST_INSIDE=$work
  exec unshare --net --mount --propagation private bash "$0" "$build"
fi
ip link set lo up
export FAIRLEAD_STATE_DIR=$work/site NO_COLOR=1

run() { "$fairlead" "$@"; }
started=$EPOCHREALTIME
note() { printf '%6.1f s  %s\n' "$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" "$*"; }
fail() {
  echo "FAILED: $*" >&2
  tail -n 20 "$FAIRLEAD_STATE_DIR/run/server.log" >&2 || true
  tail -n 10 "$FAIRLEAD_STATE_DIR"/nodes/*/logs/node.log >&2 || true
  exit 1
}
clean_up() {
  local status=$?
  run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log"; status=1; }
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
# until_true SECONDS WHAT COMMAND...: tries a condition until it holds; every try asks anew.
until_true() {
  local limit=$1 what=$2 end
  shift 2
  end=$((SECONDS + limit * ${FAIRLEAD_PATIENCE:-2}))
  until "$@" > /dev/null 2>&1; do
    ((SECONDS < end)) || fail "not within $limit s: $what"
    read -rt 0.1 <> <(:) || true
  done
}

# From this machine, without ping: is an address reached? A closed port that refuses was reached; a partition says nothing.
reached() { local answer; answer=$(timeout 2 bash -c "exec 3<> /dev/tcp/$1/9" 2>&1) || true; [[ $answer == *refused* ]]; }
# ask ADDRESS PORT: which web pod answers this machine.
ask() { timeout 5 bash -c "exec 3<> /dev/tcp/$1/$2; printf 'GET / HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3" 2> /dev/null; }
# web X: the pod web-X on the machine with the label which=X; it answers on port 8080 with its name.
web() { cat <<TEXT
---
apiVersion: v1
kind: Pod
metadata: {name: web-$1, labels: {app: web}}
spec:
  nodeSelector: {which: $1}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: "busybox:1"
    command: [sh, -c, "mkdir /www; hostname > /www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
TEXT
}
