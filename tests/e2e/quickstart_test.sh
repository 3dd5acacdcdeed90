#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The quickstart as a newcomer runs it: twice, then --down, and nothing is left. A site of its own, so that a running one is not touched.
# usage: quickstart_test.sh BUILD_DIR   (as root; images are taken from and kept in /var/lib/fairlead/images, or $FAIRLEAD_TEST_IMAGES)
set -euo pipefail
build=$(realpath "${1:?usage: quickstart_test.sh BUILD_DIR}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
images=${FAIRLEAD_TEST_IMAGES:-/var/lib/fairlead/images}
work=$(mktemp -d /tmp/fairlead-quickstart-test-XXXXXX)
site=$work/site id=$(printf '%s' "$work/site" | sha256sum | cut -c1-6)
export FAIRLEAD_BUILD_DIR=$build NO_COLOR=1
fail() {
  echo "FAILED: $*" >&2
  tail -n 45 "$work"/run*.log >&2 2> /dev/null || true
  tail -n 20 "$site/run/server.log" >&2 || true
  "$build/bin/fairlead" status --state-dir "$site" >&2 || true
  exit 1
}
clean_up() {
  local status=$?
  "$build/bin/fairlead" down --yes --purge --state-dir "$site" > "$work/last.log" 2>&1 || { cat "$work/last.log"; status=1; }
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
mkdir -p "$images" "$site"
ln -s "$images" "$site/images"             # down leaves images; --purge takes only the link
# Ranges and a port that nobody has here: another site, or what a killed run of this test left, is not in the way.
for ((net = 189; net < 250; net += 3)); do ip route show | grep -qE "^10\.($net|$((net + 1))|$((net + 2)))\." || break; done
free='import socket
for port in range(17443, 32000, 100):
  try: socket.socket().bind(("127.0.0.1", port)); print(port); break
  except OSError: pass'
at=$(python3 -c "$free")
quickstart() { ./quickstart.sh --yes --state-dir "$site" --port "$at" --node-range "10.$net.0.0/16" --pod-range "10.$((net + 1)).0.0/16" --service-range "10.$((net + 2)).0.0/16" "$@"; }
value() { sed -nE "s/^  $2 +(.*)$/\1/p" "$1" | tail -n 1; }
number() { sed -nE 's/^([0-9.]+).*/\1/p'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# ---- what stops it is one clear sentence, and nothing is made
refused() { # WHAT IT MUST SAY, COMMAND...
  local want=$1 out status=0
  shift
  out=$("$@" 2>&1) || status=$?
  [[ $status != 0 ]] || fail "'$*' was not refused"
  [[ $out == *"$want"* ]] || fail "'$*' says: $out"
}
refused 'unknown option --frob' ./quickstart.sh --frob
for port in abc 0 70000; do refused '--port needs a number' ./quickstart.sh --port "$port"; done
for option in --state-dir --port --node-range --pod-range --service-range --steps; do
  refused "$option needs a value" ./quickstart.sh "$option"
  [[ $(./quickstart.sh --help) == *"  $option "* ]] || fail "--help does not tell of $option"
done
# A copy, since nobody else may read a checkout in root's home.
mkdir "$work/open"
chmod 755 "$work" "$work/open"
cp quickstart.sh "$work/open/"
if command -v runuser > /dev/null; then refused 'run it with sudo' runuser -u nobody -- bash "$work/open/quickstart.sh" --yes; fi
python3 - "$at" "$work/listening" <<'PYTHON' &
import socket, sys, signal
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", int(sys.argv[1])))
server.listen()
open(sys.argv[2], "w").close()
signal.pause()
PYTHON
holder=$!
while [[ ! -e $work/listening ]]; do kill -0 $holder || fail "nothing listens on $at"; read -rt 0.1 <> <(:) || true; done
refused "port $at is taken by python3 (process $holder)" quickstart
kill "$holder"
wait "$holder" 2> /dev/null || true
[[ $(ls "$site") == images ]] || fail "a refused quickstart left something: $(ls "$site")"
# A range that cannot be is the server's to refuse, and what began before goes with --down.
refused 'service range: "10.79.0.0" is not a range of service addresses' ./quickstart.sh --yes --state-dir "$site" --port "$at" --service-range 10.79.0.0
quickstart --down > "$work/down.log" 2>&1 || { cat "$work/down.log"; fail "--down after a refused range"; }
[[ $(ls "$site") == images ]] || fail "a refused range left something: $(ls "$site")"

# ---- from nothing, and again
run_once() { # NUMBER STEPS
  local log=$work/run$1.log first last job
  quickstart --steps "$2" > "$log" 2>&1 || fail "run $1 ended with an error"
  job=$(value "$log" job)
  [[ $job == *'(COMPLETED)' ]] || fail "run $1: the job is $job"
  [[ $(value "$log" nodes) == 'worker-[0-1]' ]] || fail "run $1: the job ran on $(value "$log" nodes)"
  mapfile -t losses < <(sed -nE 's/^ +step +[0-9]+\/[0-9]+ +loss ([0-9.]+).*/\1/p' "$log")
  ((${#losses[@]} >= 3)) || fail "run $1 showed ${#losses[@]} loss lines"
  first=${losses[0]} last=$(value "$log" 'final loss' | number)
  less "$last" "$first" || fail "run $1: the loss did not fall: $first, then $last"
  for next in 'log in' 'look around' 'tear down'; do grep -q "$next" "$log" || fail "run $1 does not say how to $next"; done
  echo "run $1: $job, loss $first -> $last, first loss line after $(value "$log" 'first loss line after')"
}
run_once 1 120
address=$("$build/bin/fairlead" get service kubernetes -o json --state-dir "$site" | python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"]["clusterIP"])')
[[ $address == "10.$((net + 2)).0.1" ]] || fail "services are not in --service-range: $address"
server=$(< "$site/run/server.pid")
run_once 2 60
[[ $(< "$site/run/server.pid") == "$server" ]] || fail "the second run started another server"
grep -q '8 unchanged' "$work/run2.log" || fail "the second run changed the cluster"
second=$(value "$work/run2.log" 'first loss line after' | number)
less "$second" 60 || fail "the second run took $second s to its first loss line"

# ---- down, and nothing is left
quickstart --down > "$work/down.log" 2>&1 || { cat "$work/down.log"; fail "--down"; }
! pgrep -f "$site" > /dev/null || fail "processes are left: $(pgrep -af "$site")"
! grep -q "$site" /proc/self/mountinfo || fail "mounts are left: $(grep "$site" /proc/self/mountinfo)"
[[ -z $(find /sys/fs/cgroup -type d -name "fairlead-$id" 2> /dev/null) ]] || fail "cgroups are left"
[[ ! -e /sys/class/net/fl$id ]] || fail "a link is left"
! ip route show | grep -qE "^10\.($net|$((net + 1))|$((net + 2)))\." || fail "a route is left"
[[ $(ls "$site") == images ]] || fail "files are left: $(ls "$site")"
quickstart --down > "$work/down.log" 2>&1 || fail "a second --down"
echo "quickstart_test: all checks passed"
