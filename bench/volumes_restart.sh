#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures how long a pool's daemon needs to know all of its volumes again after kill -9 in the middle of work: from its start until it serves, until each object says what is so, and until what was under way has come to its end.
# usage: volumes_restart.sh BUILD_DIR [VOLUMES] [ATTACHED] [ROUNDS]   (as root; needs 4 GiB free in /var/tmp; what is mounted goes with it)
set -euo pipefail
build=$(realpath "${1:?usage: volumes_restart.sh BUILD_DIR [VOLUMES] [ATTACHED] [ROUNDS]}") volumes=${2:-1000} attached=${3:-100} rounds=${4:-5}
[ -n "${FAIRLEAD_BENCH_INSIDE:-}" ] || FAIRLEAD_BENCH_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
before=$(ls /sys/block)
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
bin=$build/bin
clean_up() {
  for pid in $(jobs -p); do kill "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  for name in $(losetup --list --noheadings --raw --output NAME,BACK-FILE | awk -v of="$work/" 'index($2, of) { print $1 }'); do losetup --detach "$name" || true; done
  # The kernel keeps devices that nobody uses, and each look at the machine's would take longer from then on.
  python3 -c 'import fcntl, os, re, sys
control = os.open("/dev/loop-control", os.O_RDWR)
for name in set(os.listdir("/sys/block")) - set(sys.argv[1].split()):
    if re.fullmatch("loop[0-9]+", name) and not os.path.exists(f"/sys/block/{name}/loop"):
        try: fcntl.ioctl(control, 0x4C81, int(name[4:]))  # LOOP_CTL_REMOVE
        except OSError: pass' "$before" || true
  "$bin/fairlead-volumes" destroy --folder "$work/pool" --image "$work/pool.img" --yes || true
  rm -rf "$work"
}
trap clean_up EXIT
until_says() { for _ in $(seq 600); do ! grep -q "$2" "$1" 2> /dev/null || return 0; sleep 0.1; done; echo "volumes_restart.sh: $1 does not say: $2" >&2; tail -n 5 "$1" >&2; exit 1; }
"$bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
until_says "$work/server.log" ' serving '
config=$work/state/pki/admin.kubeconfig
apply() { "$bin/fairlead" apply -f - --kubeconfig "$config" > /dev/null; }
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: here}\n' | apply
run() { # LOG
  "$bin/fairlead-volumes" run --folder "$work/pool" --image "$work/pool.img" --size 4Ti --sparse --name here --kubeconfig "$config" > "$1" 2>&1 &
  daemon=$!
}
run "$work/volumes-0.log"
until_says "$work/volumes-0.log" 'serving a pool'
volume() { printf -- '---\napiVersion: fairlead.dev/v1alpha1\nkind: Volume\nmetadata: {name: %s}\nspec: {pool: here, size: 1Gi}\n' "$1"; }
attachment() { printf -- '---\napiVersion: fairlead.dev/v1alpha1\nkind: Attachment\nmetadata: {name: %s.here}\nspec: {volume: %s, pool: here, node: here}\n' "$1" "$1"; }
# phases RESOURCE: "COUNT PHASE" a line
phases() { "$bin/fairlead" get "$1" -o json --kubeconfig "$config" | python3 -c 'import collections, json, sys; print(" ".join(f"{n} {p}" for p, n in sorted(collections.Counter(o.get("status", {}).get("phase", "-") for o in json.load(sys.stdin)["items"]).items())))'; }
until_are() { for _ in $(seq 3000); do [ "$(phases "$1")" != "$2" ] || return 0; sleep 0.1; done; echo "volumes_restart.sh: $1 are $(phases "$1")" >&2; exit 1; }
for i in $(seq "$volumes"); do volume "v$i"; done | apply
until_are volumes "$volumes Available"
for i in $(seq "$attached"); do attachment "v$i"; done | apply
until_are attachments "$attached Attached"
for round in $(seq "$rounds"); do
  # Twenty more are being made as it dies.
  for i in $(seq 20); do volume "r$round-$i"; done | apply
  kill -9 "$daemon" && wait "$daemon" 2> /dev/null || true
  began=$(date +%s%N)
  run "$work/volumes-$round.log"
  until [ "$(grep -c 'serving a pool' "$work/volumes-$round.log" 2> /dev/null)" = 1 ]; do sleep 0.005; done
  serves=$(date +%s%N)
  # A change to a volume that was there is carried out once all before it are known.
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Volume\nmetadata: {name: probe-%s}\nspec: {pool: here, size: 1Gi}\n' "$round" | apply
  until [ "$("$bin/fairlead" get volume "probe-$round" -o json --kubeconfig "$config" | python3 -c 'import json, sys; print(json.load(sys.stdin).get("status", {}).get("phase"))')" = Available ]; do sleep 0.01; done
  works=$(date +%s%N)
  until_are volumes "$((volumes - attached + round * 21)) Available $attached InUse"
  ended=$(date +%s%N)
  echo "{\"bench\":\"volumes_restart\",\"volumes\":$((volumes + round * 21)),\"attached\":$attached,\"serves_ms\":$(((serves - began) / 1000000)),\"new_volume_ms\":$(((works - began) / 1000000)),\"all_ms\":$(((ended - began) / 1000000))}"
done
echo "{\"bench\":\"volumes_restart\",\"what\":\"resident\",\"daemon_kib\":$(awk '/VmRSS/ {print $2}' "/proc/$daemon/status")}"
