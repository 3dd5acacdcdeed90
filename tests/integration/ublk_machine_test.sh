#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Volumes with an engine on a kernel whose ublk has what they need (design 073): shown as devices of their own. Where this machine's has it not, in a virtual machine with the kernel of a later Debian (tests/machine.sh), whose
# emulated processors take a quarter of an hour: there with FAIRLEAD_FULL alone.
#   ublk_machine_test.sh BUILD_DIR [--inside]     as root; with qemu-system-x86 and kmod (tools/packages-full.txt)
set -euo pipefail
build=$(realpath "${1:?usage: ublk_machine_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAIL: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || skip 'needs root'
if [ "${2:-}" != --inside ] && [ ! -e /dev/ublk-control ]; then
  [ -n "${FAIRLEAD_FULL:-}" ] || skip 'this kernel has no ublk, and a virtual machine with one that has takes a quarter of an hour (./test.sh --full)'
  status=0
  FAIRLEAD_MACHINE_SUITE=sid "$top/tests/machine.sh" bash "$top/tests/integration/ublk_machine_test.sh" "$build" --inside || status=$?
  [ "$status" != 77 ] || skip 'there is no virtual machine to be had (above)'
  exit "$status"
fi
work=$(mktemp -d /var/tmp/fairlead-ublk-XXXXXX)
engine() { "$build/bin/fairlead-disk" "$1" --folder "$work/run" "${@:2}"; }
serve() { engine serve --file "$work/volume" --name v.00000000-0000-4000-8000-000000000000.disk --as ublk "$@"; }
pid_of() { engine status | sed -n 's/.* pid=\([0-9]*\).*/\1/p'; }
device_of() { engine status | sed -n 's/.* ublk=\([0-9]*\).*/\/dev\/ublkb\1/p'; }
grow() { python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b"grow\n"); print(s.recv(600).decode())' "$work/run/control"; }
clean_up() {
  local status=$?
  umount "$work/mounted" 2> /dev/null || true
  engine stop > /dev/null 2>&1 || true
  rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT

truncate -s 400M "$work/volume"
status=0
serve > "$work/out" 2>&1 || status=$?
if [ "$status" != 0 ] && grep -q 'too old\|no ublk' "$work/out"; then skip "$(cat "$work/out")"; fi
[ "$status" = 0 ] || fail "an engine: $(cat "$work/out")"
device=$(device_of)
[ -b "$device" ] || fail "no device: $(engine status)"
head -c 8M /dev/urandom > "$work/data"
dd if="$work/data" of="$device" bs=1M oflag=direct conv=fsync 2> /dev/null
cmp -n 8388608 "$work/data" "$work/volume" || fail 'what was written is not in the file'
dd if="$device" bs=64k count=128 iflag=direct 2> /dev/null | cmp - "$work/data" || fail 'what is read is not what was written'
echo 'ok  what is written is in the file, and is read again'
exec 7< "$device"
if engine stop > "$work/out" 2>&1; then fail 'it was taken from who has it open'; fi
grep -q 'device is there still' "$work/out" || fail "$(cat "$work/out")"
exec 7<&-
echo 'ok  nobody loses a device that he has open'
truncate -s 500M "$work/volume"
grow | grep -q 'size=524288000' || fail 'it does not grow'
[ "$(blockdev --getsize64 "$device")" = 524288000 ] || fail 'the device did not grow'
echo 'ok  it grows'
mkfs.xfs -q -f "$device"
mkdir "$work/mounted"
mount "$device" "$work/mounted"
cp "$work/data" "$work/mounted/data"
sync -f "$work/mounted"
kill -9 "$(pid_of)"
for _ in $(seq 50); do ! timeout 20 dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null || { sleep 0.1; continue; }; break; done
if timeout 20 dd if="$device" of=/dev/null bs=4k count=1 iflag=direct 2> /dev/null; then fail 'a device whose engine is dead gives no error'; fi
if serve > "$work/out" 2>&1; then fail 'another engine, while the device of the dead one is mounted'; fi
grep -q 'which an engine that died has left, goes first' "$work/out" || fail "$(cat "$work/out")"
umount "$work/mounted"
serve || fail 'another engine'
device=$(device_of)
mount "$device" "$work/mounted"
cmp "$work/mounted/data" "$work/data" || fail 'what was synced is not there'
umount "$work/mounted"
engine stop > /dev/null || fail 'the end'
for _ in $(seq 50); do [ -e "$device" ] || break; sleep 0.1; done
[ ! -e "$device" ] || fail "$device is left"
[ -z "$(ls /dev/fairlead-ublk)" ] || fail "links are left: $(ls /dev/fairlead-ublk)"
echo 'ok  an engine that is killed gives errors, and all that was synced is there with the next; nothing is left'
timeout 1200 "$build/volumes_test" --gtest_brief=1 --gtest_filter='Kernel/Engines*Xfs*:Kernel/OfUblk*:Kernel/Encrypted*Xfs*' || fail 'the suite of pools'
echo 'ok  the suite of pools, engines and encrypted ones'
