#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures volumes in a Ceph pool beside librbd itself (fio's engine rbd), on the same Ceph of one monitor and one OSD in the same run, in turns; the median of ROUNDS of each. And how long a volume, a snapshot, a copy and an attachment take.
# usage: ceph.sh BUILD_DIR [ROUNDS] [SECONDS]   (as root; needs fio with rbd, the packages of tests/ceph_lib.sh, and 16 GiB free in /var/tmp; what is mounted goes with it)
set -euo pipefail
build=$(realpath "${1:?usage: ceph.sh BUILD_DIR [ROUNDS] [SECONDS]}") rounds=${2:-5} seconds=${3:-4}
[ -n "${FAIRLEAD_BENCH_INSIDE:-}" ] || FAIRLEAD_BENCH_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
fio --enghelp 2> /dev/null | grep -qw rbd || { echo 'ceph.sh: a fio with the engine rbd is missing: apt-get install fio' >&2; exit 1; }
# shellcheck source=tests/ceph_lib.sh
. "$(dirname "$0")/../tests/ceph_lib.sh"
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
bin=$build/bin
site=()
clean_up() {
  for name in io sealed c1 c2 c3 c4 c5 c6 c7; do f detach "$name" 2> /dev/null || true; done
  for pid in "${site[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${site[@]}"; do wait "$pid" 2> /dev/null || true; done
  ceph_stop
  rm -rf "$work"
}
trap clean_up EXIT
until_says() { for _ in $(seq 300); do ! grep -q "$2" "$1" 2> /dev/null || return 0; sleep 0.1; done; echo "ceph.sh: $1 does not say: $2" >&2; exit 1; }
ceph_start "$work/ceph" 16G
printf '[client]\nrbd cache = false\n' >> "$work/ceph/ceph.conf" # as the engine has it
export CEPH_CONF=$work/ceph/ceph.conf
"$bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
site+=($!)
until_says "$work/server.log" ' serving '
config=$work/state/pki/admin.kubeconfig
f() { "$bin/fairlead" volume "$@" --kubeconfig "$config" > /dev/null; }
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: here}\n' | "$bin/fairlead" apply -f - --kubeconfig "$config" > /dev/null
"$bin/fairlead-volumes" run --folder "$work/host" --ceph-pool volumes --ceph-conf "$CEPH_CONF" --name here --metrics off --kubeconfig "$config" > "$work/volumes.log" 2>&1 &
daemon=$!
site+=("$daemon")
until_says "$work/volumes.log" 'serving a pool'
sleep 2

# Calls, by the command line: the median of seven.
timed() { # WHAT COMMAND...
  local what=$1 start
  shift
  start=${EPOCHREALTIME/[.,]/}
  "$@"
  echo "$what $((${EPOCHREALTIME/[.,]/} - start))" >> "$work/times"
}
for i in 1 2 3 4 5 6 7; do
  timed create f create "c$i" --size 1Gi --class distributed
  timed attach f attach "c$i" here
  timed grow f grow "c$i" 2Gi
  timed snapshot f snapshot "c$i" --name "s$i"
  timed restore f restore "s$i" "r$i"
  timed detach f detach "c$i"
  timed delete f rm "c$i" --yes
  f rm "r$i" --yes
  f rm "s$i" --yes
done
python3 - "$work/times" << 'PY'
import collections, statistics, sys
all = collections.defaultdict(list)
for line in open(sys.argv[1]):
    what, us = line.split()
    all[what].append(int(us) / 1000)
for what, ms in all.items(): print(f'{{"bench":"ceph_call","what":"{what}","median_ms":{statistics.median(ms):.0f},"most_ms":{max(ms):.0f}}}')
PY

device_of() { "$bin/fairlead" get attachment "$1.here" -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["device"])'; }
f create io --size 2Gi --class distributed
f create sealed --size 2Gi --class distributed --encrypt
for name in io sealed; do f attach "$name" here; done
rbd_admin create volumes/plain --size 2G
librbd=(--ioengine=rbd --clientname=admin --pool=volumes --rbdname=plain)
device=(--ioengine=libaio --direct=1 "--filename=$(device_of io)") sealed=(--ioengine=libaio --direct=1 "--filename=$(device_of sealed)")
for target in librbd device sealed; do
  declare -n words=$target
  fio --name=fill "${words[@]}" --rw=write --bs=1M --iodepth=4 --size=2g --minimal > /dev/null
done
one() { # RW BS DEPTH TARGET...: operations a second, both ways together
  fio --name=x --rw="$1" --bs="$2" --iodepth="$3" --size=2g --runtime="$seconds" --time_based --output-format=json "${@:4}" | python3 -c 'import json,sys; t=sys.stdin.read(); j=json.loads(t[t.index("{"):])["jobs"][0]; print(round(j["read"]["iops"] + j["write"]["iops"]))'
}
while read -r rw bs depth; do
  plain=() ours=() encrypted=()
  for _ in $(seq "$rounds"); do
    plain+=("$(one "$rw" "$bs" "$depth" "${librbd[@]}")") ours+=("$(one "$rw" "$bs" "$depth" "${device[@]}")") encrypted+=("$(one "$rw" "$bs" "$depth" "${sealed[@]}")")
  done
  python3 - "$rw" "$bs" "$depth" "${plain[*]}" "${ours[*]}" "${encrypted[*]}" << 'PY'
import statistics, sys
rw, bs, depth, *runs = sys.argv[1:]
all = [[int(x) for x in s.split()] for s in runs]
plain, ours, sealed = (statistics.median(one) for one in all)
print(f'{{"bench":"ceph_io","rw":"{rw}","bs":"{bs}","depth":{depth},"librbd_iops":{plain},"volume_iops":{ours},"ratio":{ours / plain:.2f},"encrypted_iops":{sealed},"encrypted_ratio":{sealed / plain:.2f},"runs":{all}}}')
PY
done << 'LIST'
randrw 4k 16
randrw 4k 1
read 1M 4
write 1M 4
LIST
pool=$("$bin/fairlead" get volumepool here -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["id"][:8])')
engine=$("$bin/fairlead-rbd" status --folder "/run/fairlead-volumes/$pool/io" | sed -n 's/.* pid=\([0-9]*\).*/\1/p')
kib() { awk '/VmRSS/ {print $2}' "/proc/$1/status"; }
echo "{\"bench\":\"ceph\",\"what\":\"resident\",\"daemon_kib\":$(kib "$daemon"),\"store_kib\":$(kib "$(pgrep -P "$daemon")"),\"engine_kib\":$(kib "$engine")}"
