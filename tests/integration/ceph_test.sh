#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Volumes in a Ceph pool, on a real Ceph of one monitor, one manager and one OSD, with cephx: the pool's suite; then a site on the embedded engine with fairlead-volumes, whose user may use one namespace alone: volumes, snapshots,
# copies, growth, limits, encryption; daemon, store and engine are killed; a second daemon is refused, and takes over. A further machine is a mount namespace with a /run and a /dev of its own, in which `fairlead-volumes host` runs: its volumes come and go,
# are moved, have names, are read there and here at once, go on through a take-over,
# wait while it is silent, are taken from it by force, and are given to it by AttachClusterNodeVolume.
#   ceph_test.sh BUILD_DIR [suite|site]     as root. In a mount namespace of its own: no mount is left. Loop devices, engines and Ceph are ended at the end.
set -euo pipefail
build=$(realpath "${1:?usage: ceph_test.sh BUILD_DIR [suite|site]}")
part=${2:-}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/ceph_lib.sh
. "$top/tests/ceph_lib.sh"
if [ -z "${FAIRLEAD_CEPH_INSIDE:-}" ]; then
  skip() { echo "skipped: $*"; exit 77; }
  [ "$(id -u)" = 0 ] || skip 'it mounts and makes loop devices: needs root'
  [ -x "$build/bin/fairlead-rbd" ] || skip 'fairlead-rbd is not built: librbd-dev or libradospp-dev was not there'
  missing=$(ceph_missing)
  [ -z "$missing" ] || skip "there is no $missing here (tools/packages-test.txt)"
  unshare --mount --propagation private true 2> /dev/null || skip 'no mount namespace can be made here'
  for place in /dev/loop-control /dev/fuse; do [ -e "$place" ] || skip "there is no $place here"; done
  for program in python3 mkfs.xfs xfs_growfs sha256sum; do command -v "$program" > /dev/null || skip "there is no $program here"; done
  [ "$(df --output=avail -B1M /var/tmp | tail -n 1)" -gt 6000 ] || skip 'needs 6 GiB free in /var/tmp'
  FAIRLEAD_CEPH_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
fi
export NO_COLOR=1
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
say() { printf 'ok    %s\n' "$*"; }

# --- what must be gone ---
pool_id='' space='' host='' daemon=''
there() { nsenter --mount="/proc/$space/ns/mnt" "$@"; } # on the further machine
far_pid() { there "$build/bin/fairlead-rbd" status --folder "/run/fairlead-volumes/${pool_id:0:8}/$1" | sed -n 's/.* pid=\([0-9]*\).*/\1/p'; }
end_volumes() {
  [ -n "$pool_id" ] || return 0
  local file device control status=0
  # Who would make anew what is taken away.
  for file in $host $daemon; do kill -9 "$file" 2> /dev/null || true; done
  umount "$work"/mnt-* 2> /dev/null || true
  [ -z "$space" ] || there umount "$work/mnt-far" 2> /dev/null || true
  for file in /sys/block/loop*/loop/backing_file; do
    grep -q "\.$pool_id\.disk" "$file" 2> /dev/null || continue
    device=$(basename "${file%/loop/backing_file}")
    losetup --detach "/dev/$device" || status=1
  done
  for control in /run/fairlead-volumes/"${pool_id:0:8}"/*/control; do
    [ -e "$control" ] || continue
    timeout 10 "$build/bin/fairlead-rbd" stop --folder "$(dirname "$control")" > /dev/null || kill -9 "$(engine_pid "$(basename "$(dirname "$control")")")" 2> /dev/null || true
  done
  for file in $([ -z "$space" ] || there find /run/fairlead-volumes -name control 2> /dev/null); do
    there timeout 10 "$build/bin/fairlead-rbd" stop --folder "$(dirname "$file")" > /dev/null || kill -9 "$(far_pid "$(basename "$(dirname "$file")")")" 2> /dev/null || status=1
  done
  [ -z "$space" ] || kill -9 "$space" 2> /dev/null || true
  # Of an engine that was killed; a look at it gives nothing but an error.
  for file in $(awk -v below="/run/fairlead-volumes/${pool_id:0:8}/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo); do umount --lazy "$file" || status=1; done
  rm -rf "/run/fairlead-volumes/${pool_id:0:8}"
  return "$status"
}
before_end() { end_volumes; }
after_end() { ceph_stop; }

ceph_start "$work/ceph" 30G || fail 'Ceph does not start'
say 'a Ceph with cephx'

if [ "$part" != site ]; then
  FAIRLEAD_TEST_CEPH=$work/ceph "$build/volumes_test" --gtest_brief=1 --gtest_filter='*Ceph*' > "$work/out" 2>&1 || fail "the pool's suite"
  grep -q 'PASSED' "$work/out" && ! grep -q 'SKIPPED' "$work/out" || fail "the pool's suite did not run"
  FAIRLEAD_TEST_CEPH=$work/ceph "$build/ceph_test" --gtest_brief=1 --gtest_filter='Stores.*' > "$work/stores" 2>&1 || { cat "$work/stores"; fail "the store's suite"; }
  ! grep -q 'needs FAIRLEAD_TEST_CEPH' "$work/stores" || fail "the store's suite did not run"
  say "the pool's suite: $(sed -n 's/^\[==========\] \([0-9]* tests\).*ran.*/\1/p' "$work/out")"
fi
[ "$part" != suite ] || exit 0

# --- a site ---
fairlead() { "$build/bin/fairlead" "$@" --kubeconfig "$admin"; }
field() { fairlead get "$1" "$2" -o json | python3 -c "import json,sys; o=json.load(sys.stdin); print($3)"; }
phase_is() { [ "$(field "$1" "$2" "o['status'].get('phase','')" 2> /dev/null)" = "$3" ]; }
gone_is() { ! fairlead get "$1" "$2" > /dev/null 2>&1; }
v() { fairlead volume "$@" > "$work/out" 2>&1 || fail "fairlead volume $*"; }
refused() { # WORDS COMMAND...
  local words=$1
  shift
  ! "$@" > "$work/out" 2>&1 || fail "not refused: $*"
  grep -qF -- "$words" "$work/out" || fail "the refusal of '$*' does not say: $words"
}
device_of() { field attachment "$1.${2:-here}" "o['status']['device']"; }
engine_pid() { "$build/bin/fairlead-rbd" status --folder "/run/fairlead-volumes/${pool_id:0:8}/$1" | sed -n 's/.* pid=\([0-9]*\).*/\1/p'; }
sum_of() { dd if="$1" bs=1M count="${2:-64}" iflag=direct status=none | sha256sum | cut -d' ' -f1; }
fill() { dd if=/dev/urandom of="$1" bs=1M count="${2:-64}" oflag=direct conv=fsync status=none; }
volumes() { # LOG FOLDER
  start "$1" "$build/bin/fairlead-volumes" run --folder "$2" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --name shared --nodes site=yes --host-silence 12 --metrics off --kubeconfig "$admin"
}
serve --no-cluster-machines  # a cluster's nodes are those that there are
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: here, labels: {site: "yes"}}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: other, labels: {site: "yes"}}\n' | fairlead apply -f - > /dev/null
volumes volumes.log "$work/host"
daemon=$last
wait_until 30 'the pool is served' grep -q 'serving a pool' "$work/volumes.log"
pool_is_known() { fairlead get volumepool shared -o json | grep -q '"heard"'; }
wait_until 20 'the pool is known' pool_is_known
pool_id=$(field volumepool shared "o['status']['id']")
[ "$(field volumepool shared "','.join(o['status']['classes'])")" = distributed ] || fail 'its classes'
[ -z "$(tr '\0' '\n' < "/proc/$daemon/cmdline" | grep -F "$(sed -n 's/.*key = //p' "$work/ceph/keyring")")" ] || fail 'the key is an argument'
say 'fairlead-volumes serves a pool in Ceph'

v create data --size 1Gi
[ "$(field volume data "o['spec']['class'], o['spec']['pool']")" = "('distributed', 'shared')" ] || [ "$(field volume data "o['spec']['class'] + ' ' + o['spec']['pool']")" = 'distributed shared' ] || fail 'where there is no other pool that is what is meant'
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Volume\nmetadata: {name: fast}\nspec: {pool: shared, size: 1Gi}\n' | fairlead apply -f - > /dev/null
wait_until 20 'another class is refused' phase_is volume fast Failed
[[ $(field volume fast "o['status']['message']") == *'lies in Ceph: its volumes are of class distributed'* ]] || fail "$(field volume fast "o['status']['message']")"
fairlead delete volume fast > /dev/null
v attach data here
refused 'attached to' fairlead volume attach data other --timeout 3
fill "$(device_of data)"
first=$(sum_of "$(device_of data)")
v snapshot data --name then
fill "$(device_of data)"
second=$(sum_of "$(device_of data)")
v restore then back
v attach back here
[ "$(sum_of "$(device_of back)")" = "$first" ] || fail 'the snapshot does not hold what was there'
[ "$(sum_of "$(device_of data)")" = "$second" ] || fail 'the volume does not hold what was written'
say 'a volume, its snapshot, and what is restored of it'

# --- a file system that grows while it is used, limits
mkdir "$work/mnt-data"
mkfs.xfs -q -f "$(device_of data)"
mount "$(device_of data)" "$work/mnt-data"
v grow data 2Gi
xfs_growfs "$work/mnt-data" > /dev/null
[ "$(df --output=size -B1M "$work/mnt-data" | tail -n 1)" -gt 1900 ] || fail 'the file system has not grown'
v modify data --iops 800 --throughput 40
grep -q '800 operations and 40 MiB a second' "$work/out" || fail 'limits'
v modify data --iops 0 --throughput 0
say 'grown while it is mounted; limits'

# --- kill -9 of the daemon, its store, and the engine
dd if=/dev/urandom of="$work/mnt-data/kept" bs=1M count=32 conv=fsync status=none
kept=$(sha256sum < "$work/mnt-data/kept")
store=$(pgrep -P "$daemon")
kill -9 "$store"
v create after-store --size 1Gi
"$build/bin/fairlead" volume snapshot data --name cut --kubeconfig "$admin" > /dev/null 2>&1 &
cut=$!
sleep 0.3
kill -9 "$daemon"
kill "$cut" 2> /dev/null || true
wait "$cut" 2> /dev/null || true
dd if=/dev/urandom of="$work/mnt-data/more" bs=1M count=8 conv=fsync status=none || fail 'I/O stops without the daemon'
volumes volumes2.log "$work/host"
daemon=$last
wait_until 30 'the daemon is back' grep -q 'serving a pool' "$work/volumes2.log"
wait_until 30 'what was cut off has come about' phase_is snapshot cut Ready
ended=$(engine_pid data)
kill -9 "$ended"
tells_of_end() { fairlead get volume data -o json && fairlead get attachment data.here -o json && [[ $(field volume data "o['status'].get('message','')") == *'has ended'* ]]; }
wait_until 30 'it is told' tells_of_end
umount "$work/mnt-data"
again() { phase_is attachment data.here Attached && [ -n "$(engine_pid data)" ] && mount "$(device_of data)" "$work/mnt-data"; }
wait_until 40 'it is attached anew' again
[ "$(sha256sum < "$work/mnt-data/kept")" = "$kept" ] || fail 'what was synced is not there'
umount "$work/mnt-data"
say 'daemon, store and engine were killed: all that was synced is there'

# --- encrypted
v create sealed --size 1Gi --encrypt
v attach sealed here
printf 'a text that is looked for' | dd of="$(device_of sealed)" bs=4096 conv=sync,fsync oflag=direct status=none
[ "$(dd if="$(device_of sealed)" bs=4096 count=1 iflag=direct status=none | tr -d '\0')" = 'a text that is looked for' ] || fail 'what was written to an encrypted volume'
v snapshot sealed --name sealed-then
v restore sealed-then sealed-back
v attach sealed-back here
[ "$(dd if="$(device_of sealed-back)" bs=4096 count=1 iflag=direct status=none | tr -d '\0')" = 'a text that is looked for' ] || fail 'the copy of an encrypted volume'
{ rbd_admin export --no-progress volumes/fairlead/sealed - 2> /dev/null || true; } | head -c 8388608 > "$work/raw"
! grep -qaF 'a text that is looked for' "$work/raw" || fail 'it lies there in the clear'
[ "$(wc -c < "$work/raw")" = 8388608 ] && [ -n "$(tail -c +1048577 "$work/raw" | tr -d '\0' | head -c 1)" ] || fail 'the image was not looked at'
say 'encrypted: nothing of it lies in Ceph in the clear'

# --- what is not ours
rbd_admin create volumes/fairlead/theirs --size 10M 2> /dev/null
refused 'is not ours' fairlead volume create theirs --size 1Gi --timeout 3
fairlead delete volume theirs > /dev/null 2>&1 || true
wait_until 20 'the object is gone' gone_is volume theirs
rbd_admin info volumes/fairlead/theirs > /dev/null 2>&1 || fail 'an image of others is gone'
rbd_admin rm --no-progress volumes/fairlead/theirs 2> /dev/null
v create held --size 1Gi
rbd_admin snap create volumes/fairlead/held@theirs 2> /dev/null
fairlead volume rm held --yes --timeout 3 > /dev/null 2>&1 || true
rbd_admin snap ls volumes/fairlead/held 2> /dev/null | grep -q theirs || fail 'a snapshot of others is gone'
rbd_admin snap rm --no-progress volumes/fairlead/held@theirs 2> /dev/null
wait_until 40 'without it the volume goes' gone_is volume held
# Somebody writes to an image of ours: it is taken from nobody who lives.
v create busy --size 1Gi
rbd --conf "$work/ceph/ceph.conf" --name client.admin bench volumes/fairlead/busy --io-type write --io-size 4K --io-threads 1 --io-total 1T > /dev/null 2>&1 &
bench=$!
is_held() { rbd_admin lock ls volumes/fairlead/busy 2> /dev/null | grep -q client; }
wait_until 20 'somebody has the image' is_held
refused "none of this pool's engines" fairlead volume attach busy here --timeout 8
alive "$bench" || fail 'who had the image is dead'
kill -9 "$bench"
busy_is_attached() { fairlead volume attach busy here --timeout 5; }
wait_until 60 'it is attached once that one has gone' busy_is_attached
v detach busy
v rm busy --yes
say 'images, snapshots and holders of others stay'

# --- a further machine
unshare --mount --propagation private sh -c 'mount -t tmpfs tmpfs /run && mkdir /run/dev && mount -t tmpfs -o mode=755 tmpfs /run/dev && cd /dev && cp -a null zero full random urandom tty fuse loop-control /run/dev/ && ln -s /proc/self/fd /run/dev/fd && mkdir /run/dev/shm && mount --move /run/dev /dev && touch /dev/of-m2 && exec sleep infinity' &
space=$!
is_made() { there test -e /dev/of-m2; }
wait_until 10 'a further machine' is_made
further() { # LOG
  start "$1" nsenter --mount="/proc/$space/ns/mnt" "$build/bin/fairlead-volumes" host --folder "$work/m2" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --pool shared --name m2 --nodes machine=two --metrics off --kubeconfig "$admin"
}
printf 'apiVersion: v1\nkind: Node\nmetadata: {name: far, labels: {machine: two}}\n' | fairlead apply -f - > /dev/null
v create moved --size 1Gi
printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Attachment\nmetadata: {name: moved.far}\nspec: {volume: moved, pool: shared, node: far}\n' | fairlead apply -f - > /dev/null
wait_until 10 'without the machine its nodes do not reach the pool' phase_is attachment moved.far Failed
further m2.log
host=$last
wait_until 30 'it is attached on the further machine' phase_is attachment moved.far Attached
[ "$(field attachment moved.far "o['status']['host']")" = m2 ] || fail 'where it is'
far_is_reached() { [[ $(field volumepool shared "','.join(o['status']['nodes'])") == *far* ]]; }
wait_until 10 'its nodes reach the pool' far_is_reached
serves_far() { there test -e "/run/fairlead-volumes/${pool_id:0:8}/$1/control" && [ ! -e "/run/fairlead-volumes/${pool_id:0:8}/$1" ]; }
serves_far moved.1 || fail 'its engine is not there, or here'
far_sum() { there sha256sum "$work/mnt-far/kept" | cut -d' ' -f1; }
far_device() { device_of "$1" far; }
refused 'attached to' fairlead volume attach moved here --timeout 3
fill "$(far_device moved)"
first=$(sum_of "$(far_device moved)")
v snapshot moved --name moved-then
fill "$(far_device moved)"
v restore moved-then moved-back
v attach moved-back here
[ "$(sum_of "$(device_of moved-back)")" = "$first" ] || fail 'a snapshot of what is attached there'
there mkdir -p "$work/mnt-far"
mkfs.xfs -q -f "$(far_device moved)"
there mount "$(far_device moved)" "$work/mnt-far"
v grow moved 2Gi
there xfs_growfs "$work/mnt-far" > /dev/null
[ "$(there df --output=size -B1M "$work/mnt-far" | tail -n 1)" -gt 1900 ] || fail 'the file system there has not grown'
v modify moved --iops 800 --throughput 40
there "$build/bin/fairlead-rbd" status --folder "/run/fairlead-volumes/${pool_id:0:8}/moved.1" > "$work/out"
grep -q 'iops=800' "$work/out" || fail "limits there: $(cat "$work/out")"
v modify moved --iops 0 --throughput 0
there dd if=/dev/urandom of="$work/mnt-far/kept" bs=1M count=16 conv=fsync status=none
kept=$(far_sum)
say 'a further machine: attached, copied, grown and limited there'

refused 'mounted, or open' fairlead volume detach moved --timeout 3
there umount "$work/mnt-far"
wait_until 20 'it is let go once nobody uses it' gone_is attachment moved.far
[ -z "$(grep -l "/moved\..*$pool_id" /sys/block/loop*/loop/backing_file 2> /dev/null)" ] || fail 'its device is there still'
v attach moved here
mount "$(device_of moved)" "$work/mnt-data"
[ "$(sha256sum "$work/mnt-data/kept" | cut -d' ' -f1)" = "$kept" ] || fail 'what was written there is not here'
dd if=/dev/urandom of="$work/mnt-data/kept" bs=1M count=16 conv=fsync status=none
kept=$(sha256sum "$work/mnt-data/kept" | cut -d' ' -f1)
umount "$work/mnt-data"
v detach moved
v attach moved far
# As a pod has it there.
start far-csi.log nsenter --mount="/proc/$space/ns/mnt" "$build/bin/fairlead-csi" serve --endpoint "unix://$work/far.sock" --node far --pool shared
csi() { "$build/bin/fairlead-csi" call "$1" --endpoint "unix://$work/far.sock" > "$work/out" 2>&1 || fail "CSI's $1"; }
wait_until 20 'the CSI driver serves there' test -S "$work/far.sock"
printf '{"volume_id": "moved", "staging_target_path": "%s/staged", "volume_capability": {"mount": {"fs_type": "xfs"}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}}' "$work" | csi NodeStageVolume
[ "$(there sha256sum "$work/staged/kept" | cut -d' ' -f1)" = "$kept" ] || fail 'what a pod there has'
printf '{"volume_id": "moved", "staging_target_path": "%s/staged"}' "$work" | csi NodeUnstageVolume
there mount "$(far_device moved)" "$work/mnt-far"
[ "$(far_sum)" = "$kept" ] || fail 'what was written here is not there'
v detach sealed-back
v attach sealed-back far
[ "$(dd if="$(far_device sealed-back)" bs=4096 count=1 iflag=direct status=none | tr -d '\0')" = 'a text that is looked for' ] || fail 'an encrypted volume there'
v detach sealed-back
v attach sealed-back here
say 'moved there and back; an encrypted one'

# Its process, its engine and the daemon.
kill -9 "$host"
there dd if=/dev/urandom of="$work/mnt-far/more" bs=1M count=8 conv=fsync status=none || fail 'I/O stops without the process'
kill -9 "$(far_pid moved.3)"
v create late --size 1Gi
"$build/bin/fairlead" volume attach late far --kubeconfig "$admin" > /dev/null 2>&1 &
cut=$!
is_asked() { fairlead get attachment late.far; }
wait_until 10 'it is asked for' is_asked
kill -9 "$daemon"
kill "$cut" 2> /dev/null || true
wait "$cut" 2> /dev/null || true
wait_until 10 'both are gone' gone "$daemon"
wait_until 10 'both are gone' gone "$host"
further m2-2.log
host=$last
volumes volumes-3.log "$work/host"
daemon=$last
wait_until 40 'what was cut off has come about' phase_is attachment late.far Attached
tells_of_end() { [[ $(field volume moved "o['status'].get('message','')") == *'has ended'* ]]; }
wait_until 30 'it is told' tells_of_end
there umount "$work/mnt-far"
again() { phase_is attachment moved.far Attached && [ -n "$(far_pid moved.3)" ] && there mount "$(far_device moved)" "$work/mnt-far"; }
wait_until 40 'it is attached anew there' again
[ "$(far_sum)" = "$kept" ] || fail 'what was synced there is not there'
there umount "$work/mnt-far"
v detach late
say 'its process, its engine and the daemon were killed'

# --- names of devices there
named() { # VOLUME NODE NAME
  printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Attachment\nmetadata: {name: %s.%s}\nspec: {volume: %s, pool: shared, node: %s, deviceName: %s}\n' "$1" "$2" "$1" "$2" "$3" | fairlead apply -f - > /dev/null
}
says_that() { [[ $(field attachment "$1" "o['status'].get('message','')") == *"$2"* ]]; }
leads_to() { [ "$(there readlink "$1")" = "fairlead/$2" ] && [ "$(there readlink -f "$1")" = "$(far_device "$2")" ]; }
for name in called other-one; do v create "$name" --size 1Gi; done
named called far /dev/xvdz
wait_until 30 'a device with a name' phase_is attachment called.far Attached
leads_to /dev/xvdz called || fail 'the name leads elsewhere'
[ "$(readlink /dev/xvdz)" != fairlead/called ] || fail 'the name is on this machine'
fill "$(far_device called)" 16
called=$(sum_of "$(far_device called)" 16)
[ "$(there dd if=/dev/xvdz bs=1M count=16 iflag=direct status=none | sha256sum | cut -d' ' -f1)" = "$called" ] || fail 'what is read by the name'
named other-one far /dev/xvdz
wait_until 20 'that the name is taken' says_that other-one.far 'on the machine m2: there is a /dev/xvdz on this machine already'
phase_is attachment other-one.far Attaching || fail 'a volume that is not found by its name counts as attached'
# Its process and its engine are killed: the name follows, or is not there.
kill -9 "$host" "$(far_pid called.1)"
wait_until 10 'it is gone' gone "$host"
further m2-3.log
host=$last
again() { phase_is attachment called.far Attached && [ -n "$(far_pid called.1)" ] && leads_to /dev/xvdz called && [ "$(there dd if=/dev/xvdz bs=1M count=16 iflag=direct status=none | sha256sum | cut -d' ' -f1)" = "$called" ]; }
wait_until 40 'the name leads to the volume as it is shown anew' again
fairlead delete attachment called.far > /dev/null
wait_until 20 'it is detached' gone_is attachment called.far
wait_until 30 'who waited for the name has it' phase_is attachment other-one.far Attached
leads_to /dev/xvdz other-one || fail 'the name leads elsewhere'
there sh -c 'echo theirs > /dev/sdy'
named called far /dev/sdy
wait_until 20 'that the name is taken' says_that called.far 'there is a /dev/sdy on this machine already'
for name in called other-one; do fairlead delete attachment "$name.far" > /dev/null; done
for name in called other-one; do wait_until 20 'it is detached' gone_is attachment "$name.far"; done
[ "$(there cat /dev/sdy)" = theirs ] || fail 'a file of others is gone'
! there test -e /dev/fairlead && ! there test -L /dev/xvdz || fail 'links are left'
for name in called other-one; do v rm "$name" --yes; done
say 'names of devices there: they follow, are not taken from others, and go'

# --- read on both machines at once
v create shown --size 1Gi
v attach shown far
refused 'is attached to far' fairlead volume attach shown here --read-only --timeout 3
fill "$(far_device shown)" 64
shown=$(sum_of "$(far_device shown)")
v detach shown
v attach shown here --read-only
v attach shown far --read-only
serves_far "shown.$(field attachment shown.far "o['status']['generation']")" || fail 'its engine is not there'
[ -n "$(engine_pid shown)" ] || fail 'its engine is not here'
[ "$(sum_of "$(device_of shown)")" = "$shown" ] && [ "$(sum_of "$(far_device shown)")" = "$shown" ] || fail 'what is read'
refused 'is attached to far, here' fairlead volume attach shown other --timeout 3
for device in "$(device_of shown)" "$(far_device shown)"; do ! dd if=/dev/zero of="$device" bs=1M count=1 oflag=direct conv=fsync status=none 2> /dev/null || fail 'one that reads writes'; done
v grow shown 2Gi
for device in "$(device_of shown)" "$(far_device shown)"; do [ "$(blockdev --getsize64 "$device")" = 2147483648 ] || fail 'it has not grown on both machines'; done
v snapshot shown --name shown-then
# The engine there is killed, then its process: the other machine's goes on.
far_shown() { far_pid "shown.$(field attachment shown.far "o['status']['generation']")"; }
kill -9 "$(far_shown)"
[ "$(sum_of "$(device_of shown)")" = "$shown" ] || fail 'what is read here when the engine there dies'
again() { phase_is attachment shown.far Attached && [ -n "$(far_shown)" ] && [ "$(sum_of "$(far_device shown)")" = "$shown" ]; }
wait_until 40 'it is read there anew' again
v detach shown far
v detach shown here
v attach shown here
fill "$(device_of shown)" 64
shown=$(sum_of "$(device_of shown)")
v detach shown
v attach shown here --read-only
v attach shown far --read-only
[ "$(sum_of "$(far_device shown)")" = "$shown" ] || fail 'what was written in between'
say 'read on two machines at once, written on none meanwhile'

# --- another machine
refused 'is the pool of another fairlead-volumes' "$build/bin/fairlead-volumes" run --folder "$work/host2" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --name shared --nodes site=yes --metrics off --kubeconfig "$admin"
refused 'say --yes' "$build/bin/fairlead-volumes" take-over --folder "$work/host2" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf"
before=$(sum_of "$(device_of back)")
far_before=$(sum_of "$(far_device moved)" 1024)
kill -STOP "$daemon" "$host"
"$build/bin/fairlead-volumes" take-over --folder "$work/host2" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --yes > "$work/out" 2>&1 || fail 'take over'
! dd if=/dev/zero of="$(device_of back)" bs=1M count=8 oflag=direct conv=fsync status=none 2> /dev/null || fail 'an engine that was shut out writes'
kill -9 "$daemon"
for name in back sealed sealed-back data moved-back shown; do
  file=$(grep -l "/$name\.$pool_id\.disk" /sys/block/loop*/loop/backing_file) || continue
  losetup --detach "/dev/$(basename "${file%/loop/backing_file}")"
  kill -9 "$(engine_pid "$name")"
done
volumes volumes3.log "$work/host2"
daemon=$last
wait_until 30 'the pool is served by the other' grep -q 'serving a pool' "$work/volumes3.log"
again() { phase_is attachment back.here Attached && [ -n "$(engine_pid back)" ] && [ "$(sum_of "$(device_of back)")" = "$before" ]; }
wait_until 60 'it is attached anew, and nothing was written after it was shut out' again
refused 'is the pool of another fairlead-volumes' "$build/bin/fairlead-volumes" run --folder "$work/host" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --name shared --metrics off --kubeconfig "$admin"
[ -n "$(far_pid moved.3)" ] && dd if="$(far_device moved)" bs=1M count=1 iflag=direct status=none | dd of="$(far_device moved)" bs=1M oflag=direct conv=fsync status=none || fail 'an engine of a further machine was shut out, too'
[ "$(sum_of "$(far_device shown)")" = "$shown" ] || fail 'what is read on a further machine'
again() { phase_is attachment shown.here Attached && [ -n "$(engine_pid shown)" ] && [ "$(sum_of "$(device_of shown)")" = "$shown" ]; }
wait_until 60 'it is read here again, too' again
say 'taken over: the one before is shut out, and stays so; the further machine goes on'

# --- the further machine is silent
far_is_silent() { [[ $(field attachment moved.far "o['status'].get('message','')") == *'the machine m2 is silent since'* ]]; }
wait_until 60 'that it is silent is told' far_is_silent
phase_is attachment moved.far Attached || fail 'what a silent machine has is as it was'
refused 'is silent since' fairlead volume snapshot moved --name never --timeout 3
fairlead delete snapshot never > /dev/null
refused 'is silent since' fairlead volume detach moved --timeout 3
refused 'say --yes' fairlead volume detach moved --force
kill -0 "$(far_pid moved.3)" || fail 'something was done to it'
refused 'is silent since' fairlead volume detach shown far --timeout 3
[ "$(sum_of "$(far_device shown)")" = "$shown" ] || fail 'something was done to one that reads'
late=$(far_device shown)
v detach shown far --force --yes
! dd if="$late" bs=1M count=8 iflag=direct of=/dev/null status=none 2> /dev/null || fail 'an engine that was shut out there reads'
[ "$(sum_of "$(device_of shown)")" = "$shown" ] || fail 'the one that reads here was shut out, too'
v detach shown
v attach shown here
fill "$(device_of shown)" 8
v detach shown
late=$(far_device moved)
v detach moved --force --yes
! dd if=/dev/zero of="$late" bs=1M count=8 oflag=direct conv=fsync status=none 2> /dev/null || fail 'an engine that was shut out there writes'
v attach moved here
[ "$(sum_of "$(device_of moved)" 1024)" = "$far_before" ] || fail 'something was written after it was taken from there'
kill -CONT "$host"
nothing_there() { ! there test -e "/run/fairlead-volumes/${pool_id:0:8}/moved.3/control" && [ -z "$(grep -lE "/(moved|shown)\.[0-9]*\.$pool_id" /sys/block/loop*/loop/backing_file 2> /dev/null)" ]; }
wait_until 30 'what is left there is taken away once it is back' nothing_there
[ "$(sum_of "$(device_of moved)" 1024)" = "$far_before" ] || fail 'the machine that is back has written'
v detach moved
v attach moved far
[ "$(sum_of "$(far_device moved)" 1024)" = "$far_before" ] || fail 'the volume there again'
v detach moved
say 'a silent machine is waited for; by force it is shut out, and nothing is written from there'

# --- by HyperPod's call, for a node of a cluster that is on that machine
if clients=$("$top/tests/peers/aws/clients.sh" 2> "$work/out"); then
  clients=${clients##*$'\n'}
  kube() { # METHOD PATH MERGE-PATCH
    python3 - "$admin" "$@" << 'PY'
import base64, re, ssl, sys, tempfile, urllib.request
text = open(sys.argv[1]).read()
part = lambda key: base64.b64decode(re.search(key + r'-data:\s*"?([A-Za-z0-9+/=]+)', text).group(1))
with tempfile.NamedTemporaryFile() as pair:
    pair.write(part('client-certificate') + b'\n' + part('client-key'))
    pair.flush()
    trust = ssl.create_default_context(cadata=part('certificate-authority').decode())
    trust.load_cert_chain(pair.name)
    request = urllib.request.Request(re.search(r'server:\s*"?([^\s"]+)', text).group(1) + sys.argv[3], sys.argv[4].encode(), {'Content-Type': 'application/merge-patch+json'}, method=sys.argv[2])
    urllib.request.urlopen(request, context=trust).read()
PY
  }
  site() { "$build/bin/fairlead" "$@" --state-dir "$work/state"; }
  ada() { HOME=$work "$build/bin/fairlead" aws run --state-dir "$work/state" ada -- "$clients/bin/aws" "$@"; }
  # What an agent would say of the node.
  node_lives() {
    local now size='{"cpu": "2", "memory": "4Gi", "pods": "9"}'
    now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    printf 'apiVersion: v1\nkind: Namespace\nmetadata: {name: kube-node-lease}\n---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: far, namespace: kube-node-lease}\nspec: {holderIdentity: far, leaseDurationSeconds: 40, renewTime: "%s"}\n' "${now%Z}.000000Z" | fairlead apply -f - > /dev/null || return
    kube PATCH /api/v1/nodes/far/status "{\"status\": {\"capacity\": $size, \"allocatable\": $size, \"conditions\": [{\"type\": \"Ready\", \"status\": \"True\", \"reason\": \"KubeletReady\", \"lastHeartbeatTime\": \"$now\", \"lastTransitionTime\": \"$now\"}]}}"
  }
  echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["sagemaker:*", "eks:*", "ec2:*", "iam:PassRole"], "Resource": "*"}}' > "$work/all.json"
  site identity create ada --policy "$work/all.json" > "$work/out" 2>&1 && site identity key add ada > "$work/out" 2>&1 || fail 'make the user'
  account=$(ada sts get-caller-identity --query Account --output text)
  echo '{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}}' > "$work/trust.json"
  site identity create --role nodes --trust "$work/trust.json" > "$work/out" 2>&1 || fail 'make the role'
  kube PATCH /api/v1/nodes/far '{"metadata": {"labels": {"fairlead.dev/spare": "true", "node.kubernetes.io/instance-type": "ml.c5.large"}}}'
  node_lives
  ada sagemaker create-cluster --cluster-name lab --node-provisioning-mode Continuous --orchestrator "Eks={ClusterArn=$(ada eks describe-cluster --name fairlead --query cluster.arn --output text)}" --vpc-config SecurityGroupIds=sg-12345678,Subnets=subnet-12345678 \
    --instance-groups "[{\"InstanceGroupName\": \"workers\", \"InstanceType\": \"ml.c5.large\", \"InstanceCount\": 1, \"ExecutionRole\": \"arn:aws:iam::$account:role/nodes\"}]" > "$work/out" 2>&1 || fail 'make the cluster'
  node_runs() { node_lives && ada sagemaker list-cluster-nodes --cluster-name lab --query 'ClusterNodeSummaries[0].[InstanceStatus.Status, InstanceId]' --output text | tee "$work/node" | grep Running; }
  wait_until 60 'the node runs' node_runs
  node_id=$(cut -f2 < "$work/node")
  cluster=$(ada sagemaker describe-cluster --cluster-name lab --query ClusterArn --output text)
  v create vol-0123456789abcdef0 --size 1Gi
  of_node() { ada sagemaker "$1-cluster-node-volume" --cluster-arn "$cluster" --node-id "$node_id" --volume-id vol-0123456789abcdef0 --query '[Status, DeviceName]' --output text; }
  wait_until 60 'its machine is heard' far_is_reached  # it was begun anew
  of_node attach > "$work/out" 2>&1 || fail 'AttachClusterNodeVolume'
  name=$(cut -f2 < "$work/out")
  is_attached() { node_lives && [ "$(of_node attach)" = "attached"$'\t'"$name" ]; }
  wait_until 30 'the volume is attached to the node' is_attached
  leads_to "$name" vol-0123456789abcdef0 || fail "the name $name leads elsewhere"
  there sh -c "printf 'by its name' | dd of=$name bs=4096 conv=sync,fsync oflag=direct status=none" || fail 'write by the name'
  of_node detach > "$work/out" 2>&1 || fail 'DetachClusterNodeVolume'
  wait_until 20 'it is detached' gone_is attachment vol-0123456789abcdef0.far
  ! there test -L "$name" || fail 'the name is left'
  v attach vol-0123456789abcdef0 here
  [ "$(dd if="$(device_of vol-0123456789abcdef0)" bs=4096 count=1 iflag=direct status=none | tr -d '\0')" = 'by its name' ] || fail 'what was written by the name'
  v detach vol-0123456789abcdef0
  v rm vol-0123456789abcdef0 --yes
  ada sagemaker delete-cluster --cluster-name lab > "$work/out" 2>&1 || fail 'delete the cluster'
  say 'AttachClusterNodeVolume for a node there'
else
  echo 'left out: AttachClusterNodeVolume, as there are no AWS clients here'
fi

# --- the end: sources before copies
for name in data back sealed sealed-back moved-back; do v detach "$name"; done
for name in data sealed; do v rm "$name" --yes; done
v attach sealed-back other
[ "$(dd if="$(device_of sealed-back other)" bs=4096 count=1 iflag=direct status=none | tr -d '\0')" = 'a text that is looked for' ] || fail 'a copy whose source is deleted'
v detach sealed-back
for name in back sealed-back after-store moved moved-back late shown; do v rm "$name" --yes; done
for name in then cut sealed-then moved-then shown-then; do fairlead volume rm "$name" --yes > "$work/out" 2>&1 || fairlead delete snapshot "$name" > "$work/out" 2>&1 || fail "delete $name"; done
for name in then cut sealed-then moved-then shown-then; do wait_until 30 "$name is gone" gone_is snapshot "$name"; done
[ -z "$(rbd_admin ls volumes/fairlead 2> /dev/null)$(rbd_admin trash ls --all volumes/fairlead 2> /dev/null)" ] || fail 'images are left'
# OSDs let go of what snapshots had held in their own time.
nothing_left() { ! rados --conf "$work/ceph/ceph.conf" --name client.admin -p volumes -N fairlead ls 2> /dev/null | grep -vE '^(fairlead\.(pool|journal)|rbd_(directory|children|info|trash|trash_purge_schedule))$'; }
wait_until 60 'nothing is left in Ceph' nothing_left
say 'deleted in any order; nothing is left in Ceph'
