#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures volumes with the real server, pool and driver: calls of CSI over sizes, and over the pieces that a volume lies in; I/O of volumes of both classes, and of an encrypted one, beside that of a plain file on the same file system, in turns.
# usage: volumes.sh BUILD_DIR [ROUNDS] [SECONDS]   (as root; needs fio, and 12 GiB free in /var/tmp; what is mounted goes with it)
set -euo pipefail
build=$(realpath "${1:?usage: volumes.sh BUILD_DIR [ROUNDS] [SECONDS]}") rounds=${2:-50} seconds=${3:-4}
[ -n "${FAIRLEAD_BENCH_INSIDE:-}" ] || FAIRLEAD_BENCH_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
command -v fio > /dev/null || { echo 'volumes.sh: fio is missing: apt-get install fio' >&2; exit 1; }
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
bin=$build/bin
clean_up() {
  for pid in $(jobs -p); do kill "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  "$bin/fairlead-volumes" destroy --folder "$work/pool" --image "$work/pool.img" --yes || true
  rm -rf "$work"
}
trap clean_up EXIT
until_says() { for _ in $(seq 300); do ! grep -q "$2" "$1" 2> /dev/null || return 0; sleep 0.1; done; echo "volumes.sh: $1 does not say: $2" >&2; exit 1; }
"$bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
until_says "$work/server.log" ' serving '
config=$work/state/pki/admin.kubeconfig
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: here}\n' | "$bin/fairlead" apply -f - --kubeconfig "$config" > /dev/null
"$bin/fairlead-volumes" run --folder "$work/pool" --image "$work/pool.img" --size 12Ti --sparse --name here --kubeconfig "$config" > "$work/volumes.log" 2>&1 &
daemon=$!
until_says "$work/volumes.log" 'serving a pool'
"$bin/fairlead-csi" serve --endpoint "unix://$work/csi.sock" --controller --node here --pool here --kubeconfig "$config" > "$work/csi.log" 2>&1 &
driver=$!
until_says "$work/csi.log" 'serving CSI'
f() { "$bin/fairlead" volume "$@" --kubeconfig "$config" > /dev/null; }
sleep 2

for gib in 1 100 1000; do "$bin/driver_bench" "$work/csi.sock" here "$rounds" "$gib"; done
# Those with an engine: what is modified is their limits, in force when the call returns.
"$bin/driver_bench" "$work/csi.sock" here "$rounds" 100 --class local-managed

# Pieces: every other block is written, in the order of a shuffle.
f create pieces --size 8Gi
f attach pieces here
device=$("$bin/fairlead" get volume pieces -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["device"])')
for count in 1000 10000 50000; do
  fio --name=p --filename="$device" --rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=32 --size=8g --number_ios="$count" --randrepeat=0 --minimal > /dev/null
  echo "{\"bench\":\"csi\",\"what\":\"extents\",\"count\":$(xfs_io -r -c stat "$work/pool/pieces.volume" | sed -n 's/^fsxattr.nextents = //p')}"
  "$bin/driver_bench" "$work/csi.sock" here 5 8 --source pieces | grep -E '"(snapshot|clone)"'
done
f detach pieces

# I/O: the same, of a file and of a volume, in turns; the median of five of each.
# Of each class: a managed one is served by a process of its own, without a limit here; one that is encrypted, too.
device_of() { "$bin/fairlead" get volume "$1" -o json --kubeconfig "$config" | python3 -c 'import json,sys; print(json.load(sys.stdin)["status"]["device"])'; }
f create io --size 2Gi
f create managed --size 2Gi --class local-managed
f create sealed --size 2Gi --encrypt
for name in io managed sealed; do f attach "$name" here; done
device=$(device_of io) managed=$(device_of managed) sealed=$(device_of sealed)
fallocate -l 2G "$work/pool/.plain"
for target in "$device" "$managed" "$sealed" "$work/pool/.plain"; do fio --name=fill --filename="$target" --rw=write --bs=1M --direct=1 --size=2g --minimal > /dev/null; done
one() { # TARGET RW BS DEPTH: operations a second, both ways together
  fio --name=x --filename="$1" --rw="$2" --bs="$3" --iodepth="$4" --direct=1 --ioengine=libaio --size=2g --runtime="$seconds" --time_based --output-format=json | python3 -c 'import json,sys; j=json.load(sys.stdin)["jobs"][0]; print(round(j["read"]["iops"] + j["write"]["iops"]))'
}
while read -r rw bs depth; do
  file=() volume=() served=() encrypted=()
  for _ in 1 2 3 4 5; do file+=("$(one "$work/pool/.plain" "$rw" "$bs" "$depth")"); volume+=("$(one "$device" "$rw" "$bs" "$depth")"); served+=("$(one "$managed" "$rw" "$bs" "$depth")"); encrypted+=("$(one "$sealed" "$rw" "$bs" "$depth")"); done
  python3 - "$rw" "$bs" "$depth" "${file[*]}" "${volume[*]}" "${served[*]}" "${encrypted[*]}" << 'PY'
import statistics, sys
rw, bs, depth, *runs = sys.argv[1:]
file, volume, managed, sealed = (statistics.median(int(x) for x in s.split()) for s in runs)
print(f'{{"bench":"volume_io","rw":"{rw}","bs":"{bs}","depth":{depth},"file_iops":{file},"volume_iops":{volume},"ratio":{volume / file:.2f},"managed_iops":{managed},"managed_ratio":{managed / file:.2f},"encrypted_iops":{sealed},"encrypted_ratio":{sealed / file:.2f}}}')
PY
done << 'LIST'
randrw 4k 16
randrw 4k 1
read 1M 4
write 1M 4
LIST
rm -f "$work/pool/.plain"
# What was written is what is read: each block carries its own checksum.
for one in "local-fast $device" "local-managed $managed" "encrypted $sealed"; do
  read -r class target <<< "$one"
  fio --name=verify --filename="$target" --rw=randwrite --bsrange=4k-256k --iodepth=16 --direct=1 --ioengine=libaio --size=2g --verify=crc32c --verify_fatal=1 --verify_state_save=0 --minimal > "$work/verify.log" 2>&1 || { cat "$work/verify.log" >&2; exit 1; }
  echo "{\"bench\":\"volume_io\",\"what\":\"2 GiB written at random and read again by crc32c\",\"class\":\"$class\",\"wrong\":0}"
done
engine=$(pgrep -f "fairlead-disk serve --file $work/pool/managed.volume" || true)
engine_kib=$(awk '/VmRSS/ {print $2}' "/proc/$engine/status")
for name in io managed sealed; do f detach "$name"; done
echo "{\"bench\":\"volumes\",\"what\":\"resident\",\"daemon_kib\":$(awk '/VmRSS/ {print $2}' "/proc/$daemon/status"),\"driver_kib\":$(awk '/VmRSS/ {print $2}' "/proc/$driver/status"),\"engine_kib\":$engine_kib}"
