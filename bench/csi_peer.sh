#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures our CSI driver beside another one whose raw block volumes lie in files of a folder too (csi-driver-host-path), on one XFS file system in one run, in turns: what each call takes, by the same client,
# and I/O through the published devices beside a plain file. Of each figure the median of TURNS.
# usage: csi_peer.sh BUILD_DIR PEER [TURNS] [ROUNDS] [SECONDS]     PEER: its program, hostpathplugin   (as root; needs fio and xfsprogs, and 24 GiB free in /var/tmp; what is mounted goes with it)
set -euo pipefail
usage='usage: csi_peer.sh BUILD_DIR PEER [TURNS] [ROUNDS] [SECONDS]'
build=$(realpath "${1:?$usage}") peer=$(realpath "${2:?$usage}") turns=${3:-5} rounds=${4:-5} seconds=${5:-3}
[ -n "${FAIRLEAD_BENCH_INSIDE:-}" ] || FAIRLEAD_BENCH_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
for program in fio mkfs.xfs losetup; do command -v "$program" > /dev/null || { echo "csi_peer.sh: $program is missing" >&2; exit 1; }; done
[ -x "$peer" ] || { echo "csi_peer.sh: $peer is no program" >&2; exit 1; }
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
bin=$build/bin
declare -A socket=([ours]=$work/ours.sock [peer]=$work/peer.sock) source=()
call() { "$bin/fairlead-csi" call "$2" --endpoint "unix://${socket[$1]}" --timeout 120; } # DRIVER METHOD, the request comes in
down() { # DRIVER: its source
  local id=${source[$1]:-}
  [ -n "$id" ] || return 0
  call "$1" NodeUnpublishVolume <<< "{\"volume_id\":\"$id\",\"target_path\":\"$work/$1/target\"}" > /dev/null || true
  call "$1" NodeUnstageVolume <<< "{\"volume_id\":\"$id\",\"staging_target_path\":\"$work/$1/staging\"}" > /dev/null || true
  call "$1" ControllerUnpublishVolume <<< "{\"volume_id\":\"$id\",\"node_id\":\"here\"}" > /dev/null || true
  call "$1" DeleteVolume <<< "{\"volume_id\":\"$id\"}" > /dev/null || true
}
disk=''
clean_up() {
  local device
  for driver in ours peer; do down "$driver"; done
  for pid in $(jobs -p); do kill "$pid" 2> /dev/null || true; done
  wait 2> /dev/null || true
  # What a run that failed left.
  for device in /sys/block/loop*; do ! grep -qs "^$work/" "$device/loop/backing_file" || [ "/dev/${device##*/}" = "$disk" ] || losetup --detach "/dev/${device##*/}" || true; done
  umount "$work/disk" 2> /dev/null || true
  [ -z "$disk" ] || losetup --detach "$disk" || true
  rm -rf --one-file-system "$work"
}
trap clean_up EXIT
until_says() { for _ in $(seq 300); do ! grep -q "$2" "$1" 2> /dev/null || return 0; sleep 0.1; done; echo "csi_peer.sh: $1 does not say: $2" >&2; exit 1; }

truncate -s 48G "$work/disk.img"
mkfs.xfs -q -m reflink=1 "$work/disk.img"
mkdir "$work/disk" "$work/ours" "$work/peer"
disk=$(losetup --find --show --direct-io=on "$work/disk.img")
mount -o discard "$disk" "$work/disk"

"$bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 > "$work/server.log" 2>&1 &
until_says "$work/server.log" ' serving '
config=$work/state/pki/admin.kubeconfig
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: here}\n' | "$bin/fairlead" apply -f - --kubeconfig "$config" > /dev/null
"$bin/fairlead-volumes" run --folder "$work/disk/pool" --name here --metrics off --kubeconfig "$config" > "$work/volumes.log" 2>&1 &
daemon=$!
until_says "$work/volumes.log" 'serving a pool'
"$bin/fairlead-csi" serve --endpoint "unix://${socket[ours]}" --controller --node here --pool here --kubeconfig "$config" > "$work/csi.log" 2>&1 &
driver=$!
until_says "$work/csi.log" 'serving CSI'
"$peer" --endpoint "unix://${socket[peer]}" --statedir "$work/disk/peer" --nodeid here --enable-attach --enable-controller-modify-volume --v=0 > "$work/peer.log" 2>&1 &
other=$!
for _ in $(seq 100); do [ ! -S "${socket[peer]}" ] || break; sleep 0.1; done
sleep 2

# A volume of each that holds 256 MiB, published: what snapshots and copies are of.
block='{"block":{},"access_mode":{"mode":"SINGLE_NODE_WRITER"}}'
for one in ours peer; do
  id=$(call "$one" CreateVolume <<< "{\"name\":\"source\",\"capacity_range\":{\"required_bytes\":\"$((1 << 30))\"},\"volume_capabilities\":[$block]}" | python3 -c 'import json,sys; print(json.load(sys.stdin)["volume"]["volume_id"])')
  source[$one]=$id
  mkdir "$work/$one/staging"
  context=$(call "$one" ControllerPublishVolume <<< "{\"volume_id\":\"$id\",\"node_id\":\"here\",\"volume_capability\":$block}" | python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin).get("publish_context", {})))')
  call "$one" NodeStageVolume <<< "{\"volume_id\":\"$id\",\"staging_target_path\":\"$work/$one/staging\",\"volume_capability\":$block,\"publish_context\":$context}" > /dev/null
  call "$one" NodePublishVolume <<< "{\"volume_id\":\"$id\",\"staging_target_path\":\"$work/$one/staging\",\"target_path\":\"$work/$one/target\",\"volume_capability\":$block,\"publish_context\":$context}" > /dev/null
  dd if=/dev/urandom of="$work/$one/target" bs=1M count=256 oflag=direct conv=fsync,notrunc status=none
done

# Calls.
for _ in $(seq "$turns"); do
  for one in ours peer; do "$bin/driver_bench" "${socket[$one]}" here "$rounds" 1 --source "${source[$one]}" --block "$work/$one" --name "$one" >> "$work/calls"; done
done
python3 - "$work/calls" << 'PY'
import collections, json, statistics, sys
took = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    one = json.loads(line)
    took[one["call"]][one["driver"]].append(one)
for call, by in took.items():
    p50 = {driver: statistics.median(one["p50_ms"] for one in turns) for driver, turns in by.items()}
    most = {driver: max(one["max_ms"] for one in turns) for driver, turns in by.items()}
    print(json.dumps({"bench": "csi_peer", "call": call, "ours_p50_ms": p50["ours"], "peer_p50_ms": p50["peer"], "ratio": round(p50["peer"] / p50["ours"], 2), "ours_max_ms": most["ours"], "peer_max_ms": most["peer"]}))
PY

# I/O through what was published, each written once before.
fallocate -l 1G "$work/disk/plain"
for target in "$work/disk/plain" "$work/ours/target" "$work/peer/target"; do fio --name=fill --filename="$target" --rw=write --bs=1M --direct=1 --size=1g --minimal > /dev/null; done
one() { # TARGET RW BS DEPTH FSYNC: operations a second, both ways together
  fio --name=x --filename="$1" --rw="$2" --bs="$3" --iodepth="$4" --fsync="$5" --direct=1 --ioengine=libaio --size=1g --runtime="$seconds" --time_based --output-format=json | python3 -c 'import json,sys; j=json.load(sys.stdin)["jobs"][0]; print(round(j["read"]["iops"] + j["write"]["iops"]))'
}
while read -r rw bs depth fsync; do
  file=() ours=() theirs=()
  for _ in $(seq "$turns"); do file+=("$(one "$work/disk/plain" "$rw" "$bs" "$depth" "$fsync")"); ours+=("$(one "$work/ours/target" "$rw" "$bs" "$depth" "$fsync")"); theirs+=("$(one "$work/peer/target" "$rw" "$bs" "$depth" "$fsync")"); done
  python3 - "$rw" "$bs" "$depth" "$fsync" "${file[*]}" "${ours[*]}" "${theirs[*]}" << 'PY'
import json, statistics, sys
rw, bs, depth, fsync, *runs = sys.argv[1:]
file, ours, peer = (statistics.median(int(x) for x in s.split()) for s in runs)
print(json.dumps({"bench": "csi_peer", "rw": rw, "bs": bs, "depth": int(depth), "synced": fsync == "1", "file_iops": file, "ours_iops": ours, "peer_iops": peer, "ours_to_peer": round(ours / peer, 2), "ours_to_file": round(ours / file, 2)}))
PY
done << 'LIST'
randrw 4k 16 0
randrw 4k 1 0
randwrite 4k 1 1
read 1M 4 0
write 1M 4 0
LIST
resident() { awk '/VmRSS/ {print $2}' "/proc/$1/status"; }
echo "{\"bench\":\"csi_peer\",\"what\":\"resident\",\"ours_driver_kib\":$(resident "$driver"),\"ours_daemon_kib\":$(resident "$daemon"),\"peer_kib\":$(resident "$other")}"
