#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures volumes in a Ceph pool beside librbd itself (fio's engine rbd), on the same Ceph of one monitor and one OSD in the same run, in turns; medians of ROUNDS, of ratios those of each round's own. And how long a volume, a snapshot, a copy and an attachment take, and what memory they need (share: what is shared, by how many share it).
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
  for name in io sealed more4 more5 c1 c2 c3 c4 c5 c6 c7; do f detach "$name" 2> /dev/null || true; done
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

kib() { awk -v what="$2:" '$1 == what { print $2 }' "/proc/$1/smaps_rollup"; }
resident() { # WHAT PID
  echo "{\"bench\":\"ceph\",\"what\":\"$1\",\"resident_kib\":$(kib "$2" Rss),\"share_kib\":$(kib "$2" Pss),\"private_kib\":$(kib "$2" Private_Dirty)}"
}
engine_pid() { "$bin/fairlead-rbd" status --folder "/run/fairlead-volumes/$pool/$1" | sed -n 's/.* pid=\([0-9]*\).*/\1/p'; }
device_of() { "$bin/fairlead" get attachment "$1.here" -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["device"])'; }
f create io --size 2Gi --class distributed
f create sealed --size 2Gi --class distributed --encrypt
for name in io sealed; do f attach "$name" here; done
pool=$("$bin/fairlead" get volumepool here -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["id"][:8])')
resident 'engine, idle, one of two' "$(engine_pid io)"
for i in 4 5; do
  f create "more$i" --size 1Gi --class distributed
  f attach "more$i" here
done
resident 'engine, idle, one of four' "$(engine_pid io)"
for i in 4 5; do f detach "more$i"; done
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
  # Each comes first, second and last: the OSD is slower after what it has just been made to write.
  for turn in $(seq "$rounds"); do
    for place in 0 1 2; do
      case $(((turn + place) % 3)) in
        0) plain+=("$(one "$rw" "$bs" "$depth" "${librbd[@]}")") ;;
        1) ours+=("$(one "$rw" "$bs" "$depth" "${device[@]}")") ;;
        2) encrypted+=("$(one "$rw" "$bs" "$depth" "${sealed[@]}")") ;;
      esac
    done
  done
  python3 - "$rw" "$bs" "$depth" "${plain[*]}" "${ours[*]}" "${encrypted[*]}" << 'PY'
import statistics, sys
rw, bs, depth, *runs = sys.argv[1:]
all = [[int(x) for x in s.split()] for s in runs]
plain, ours, sealed = (statistics.median(one) for one in all)
# Of each round by itself, whose runs follow one another: from the first round to the last librbd itself falls by half, as the store behind it fills.
rounds = [[round(one / before, 2) for before, one in zip(all[0], of)] for of in all[1:]]
ratio, sealed_ratio = (statistics.median(one) for one in rounds)
print(f'{{"bench":"ceph_io","rw":"{rw}","bs":"{bs}","depth":{depth},"librbd_iops":{plain},"volume_iops":{ours},"ratio":{ratio:.2f},"encrypted_iops":{sealed},"encrypted_ratio":{sealed_ratio:.2f},"ratios":{rounds},"runs":{all}}}')
PY
done << 'LIST'
randrw 4k 16
randrw 4k 1
read 1M 4
write 1M 4
LIST
# What was written is what is read: each block carries its own checksum.
for target in device sealed; do
  declare -n words=$target
  fio --name=verify "${words[@]}" --rw=randwrite --bsrange=4k-256k --iodepth=16 --size=2g --verify=crc32c --verify_fatal=1 --verify_state_save=0 --minimal > "$work/verify.log" 2>&1 || { cat "$work/verify.log" >&2; exit 1; }
  echo "{\"bench\":\"ceph_io\",\"what\":\"2 GiB written at random and read again by crc32c\",\"volume\":\"$target\",\"wrong\":0}"
done
# Memory as soon as the load has ended; and once an engine has given back what it left.
for target in io sealed; do
  fio --name=load --ioengine=libaio --direct=1 "--filename=$(device_of $target)" --rw=write --bs=1M --iodepth=4 --size=2g --minimal > /dev/null
  resident "engine, loaded, $target" "$(engine_pid $target)"
done
sleep 15
for target in io sealed; do resident "engine, at rest again, $target" "$(engine_pid $target)"; done
resident daemon "$daemon"
resident store "$(pgrep -P "$daemon")"
