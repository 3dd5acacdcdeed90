#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CSI driver over a real pool: csi-sanity, then csi_suite.py: what is in the volumes, what is refused, and what is left when programs die; each on the embedded engine and, with FAIRLEAD_KUBERNETES, on
# a real kube-apiserver. In a mount namespace of its own: no mount is left, whatever happens. Loop devices and pools are taken away at the end.
#   csi_test.sh BUILD_DIR [--ceph] [PART...]     as root; --ceph: on a pool in a Ceph that is started for it; parts: sanity, and those of csi_suite.py; without parts all. FAIRLEAD_SEED: of what is random
# FAIRLEAD_FULL: 520 kills instead of 40; without it a real kube-apiserver has the parts that ask it for something, and none of a pool in Ceph.
set -euo pipefail
build=$(realpath "${1:?usage: csi_test.sh BUILD_DIR [--ceph] [PART...]}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
# shellcheck source=tests/ceph_lib.sh
. "$top/tests/ceph_lib.sh"
with_ceph=''
[ "${2:-}" != --ceph ] || with_ceph=yes
if [ -z "${FAIRLEAD_CSI_INSIDE:-}" ]; then
  skip() { echo "skipped: $*"; exit 77; }
  [ "$(id -u)" = 0 ] || skip 'it mounts and makes loop devices: needs root'
  unshare --mount --propagation private true 2> /dev/null || skip 'no mount namespace can be made here'
  [ -e /dev/loop-control ] || skip 'there are no loop devices here'
  grep -qw xfs /proc/filesystems || modprobe xfs 2> /dev/null || skip 'this kernel has no XFS'
  for program in python3 blkid losetup blockdev setpriv mkfs.ext4 e2fsck dumpe2fs resize2fs debugfs mkfs.xfs xfs_growfs xfs_repair mkswap; do
    command -v "$program" > /dev/null || skip "there is no $program here"
  done
  if [ -n "$with_ceph" ]; then
    [ -x "$build/bin/fairlead-rbd" ] || skip 'fairlead-rbd is not built: librbd-dev or libradospp-dev was not there'
    missing=$(ceph_missing)
    [ -z "$missing" ] || skip "there is no $missing here (tools/packages-test.txt)"
    [ -e /dev/fuse ] || skip 'there is no /dev/fuse here'
    [ "$(df --output=avail -B1M /var/tmp | tail -n 1)" -gt 12000 ] || skip 'needs 12 GiB free in /var/tmp'
  fi
  FAIRLEAD_CSI_INSIDE=1 exec unshare --mount --propagation private bash "$0" "$@"
fi
unset FAIRLEAD_CSI_INSIDE
shift
[ -z "$with_ceph" ] || shift
parts=" $* "
export NO_COLOR=1

# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
server='' volumes='' driver=''
say() { printf 'ok  %s\n' "$*"; }
is_wanted() { [ "$parts" = '  ' ] || [[ $parts == *" $1 "* ]]; }

# --- pools, and what must be gone with them ---
# What shows a file of ours; once the pool is unmounted the kernel knows its files by their names within it alone.
our_loops() {
  local file
  for file in /sys/block/loop*/loop/backing_file; do
    [ -e "$file" ] || continue
    grep -q "^$work/" "$file" 2> /dev/null && echo "$(basename "${file%/loop/backing_file}") $(< "$file")"
  done
  return 0
}
our_mounts() { awk -v below="$work/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | sort -r; }
# Takes away all that is mounted, shown and made. Fails if the daemon's own command could not, or if a device is left.
put_away() {
  local status=0 place image device
  for place in $(our_mounts | grep -v '/pool$'); do umount "$place" || umount --lazy "$place" || status=1; done
  for image in "$work"/*/pool.img; do
    [ -e "$image" ] || continue
    # On a machine whose own name no pool could have.
    unshare --uts sh -c 'echo "(none)" > /proc/sys/kernel/hostname && exec "$@"' sh "$build/bin/fairlead-volumes" destroy --folder "${image%.img}" --image "$image" --yes || status=1
  done
  if [ -n "$(our_loops)" ]; then
    echo 'these loop devices were left:' >&2
    our_loops >&2
    for device in $(our_loops | cut -d' ' -f1); do losetup --detach "/dev/$device" || true; done
    status=1
  fi
  for place in $(our_mounts); do
    echo "$place was left mounted" >&2
    umount --lazy "$place" || true
    status=1
  done
  return "$status"
}
# Engines and devices of the pool in Ceph, which has no folder.
put_ceph_away() {
  local status=0 place device pid pool_id
  pool_id=$(timeout 20 rados --conf "$work/ceph/ceph.conf" --id fairlead -p volumes -N fairlead get fairlead.pool - 2> /dev/null) || return 0
  for place in $(our_mounts); do umount "$place" || umount --lazy "$place" || status=1; done
  for device in $(grep -l "\.$pool_id\.disk" /sys/block/loop*/loop/backing_file 2> /dev/null | cut -d/ -f4); do
    echo "/dev/$device was left: $(< "/sys/block/$device/loop/backing_file")" >&2
    losetup --detach "/dev/$device" || true
    status=1
  done
  for pid in $(pgrep -f -- "fairlead-rbd serve .*--pool-id $pool_id" || true); do
    echo "an engine was left: $(tr '\0' ' ' < "/proc/$pid/cmdline")" >&2
    kill -9 "$pid" || true
    status=1
  done
  for place in $(awk -v below="/run/fairlead-volumes/${pool_id:0:8}/" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo); do umount --lazy "$place" || true; done
  rm -rf "/run/fairlead-volumes/${pool_id:0:8}"
  return "$status"
}
before_end() { [ -z "$with_ceph" ] || put_ceph_away; }  # while Ceph is there
after_end() {
  local peer
  for peer in "$work"/*/peer; do [ ! -e "$peer" ] || "$peers/cluster.sh" down "$peer" > /dev/null 2>&1 || true; done
  if [ -n "$with_ceph" ]; then
    ceph_stop
    return
  fi
  put_away
}

# --- csi-sanity ---
start_driver() { # FOLDER KUBECONFIG OPTION...
  local folder=$1 kubeconfig=$2
  shift 2
  start driver.log "$build/bin/fairlead-csi" serve --endpoint "unix://$folder/csi.sock" --controller --node here --pool here --kubeconfig "$kubeconfig" "$@"
  driver=$last
  wait_until 30 'the driver serves' grep -q 'serving CSI' "$work/driver.log"
}
offers_room() { [[ $("$build/bin/fairlead-csi" call GetCapacity --endpoint "unix://$1/csi.sock" < /dev/null) == *'"available_capacity":"'[1-9]* ]]; }
sanity() { # ENGINE NAME OPTION...
  local engine=$1 name=$2 status=0 closing passed log
  shift 2
  log=$work/sanity-$engine-$name.out
  "$programs/csi-sanity" --csi.endpoint="unix://$work/$engine/csi.sock" --csi.mountdir="$work/$engine/mount" --csi.stagingdir="$work/$engine/staging" --csi.testvolumesize=2147483648 \
    --csi.testvolumeexpandsize=3221225472 --csi.testvolumemutableparameters="$work/mutable.yaml" --csi.testvolumeparameters="$work/parameters.yaml" --ginkgo.no-color --ginkgo.seed="${FAIRLEAD_SEED:-1}" "$@" > "$log" 2>&1 || status=$?
  closing=$(grep -E '^(SUCCESS|FAIL)! ' "$log" | tail -n 1)
  passed=$(sed -nE 's/.* ([0-9]+) Passed .*/\1/p' <<< "$closing")
  if [ "$status" != 0 ] || [[ $closing != SUCCESS!* ]]; then
    # What the driver said, then which specs failed.
    grep -E 'rpc error|^ +\[FAILED\]|^ +desc = |^ +code = ' "$log" | cut -c1-400 | tail -n 40 >&2 || true
    sed -n '/^Summarizing /,$p' "$log" >&2
    fail "csi-sanity, $engine, $name: exit status $status: ${closing:-$(tail -n 3 "$log")}"
  fi
  [ "${passed:-0}" -ge 80 ] || fail "csi-sanity, $engine, $name: at least 80 specs passed were expected, and it says: $closing"
  "$build/bin/fairlead" get volumes,snapshots,attachments -o name --kubeconfig "$kubeconfig" > "$work/out" 2>&1 || fail 'what is there cannot be asked'
  [ ! -s "$work/out" ] || [ "$(grep -c / "$work/out")" = 0 ] || fail "csi-sanity, $engine, $name: something was left"
  say "csi-sanity, $engine, $name: $closing"
}
sanity_on() { # ENGINE KUBECONFIG
  local engine=$1 kubeconfig=$2
  mkdir -p "$work/$engine"
  local there=(--image "$work/$engine/pool.img" --size 200Gi --sparse)
  [ -z "$with_ceph" ] || there=(--ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --size 200Gi)
  claim "$work/$engine/pool"
  start volumes.log "$build/bin/fairlead-volumes" run --folder "$work/$engine/pool" "${there[@]}" --name here --metrics off --kubeconfig "$kubeconfig"
  volumes=$last
  wait_until 30 'the pool is served' grep -q 'serving a pool' "$work/volumes.log"
  start_driver "$work/$engine" "$kubeconfig"
  wait_until 30 'the pool offers room' offers_room "$work/$engine"
  sanity "$engine" mount --csi.testvolumeaccesstype=mount
  # The driver sees no other difference than that of the class.
  if [ -n "$with_ceph" ] && [ -z "${FAIRLEAD_FULL:-}" ]; then
    stop "$driver" && stop "$volumes" || fail 'driver and daemon do not end well'
    return
  fi
  sanity "$engine" block --csi.testvolumeaccesstype=block
  stop "$driver" || fail 'the driver does not end well'
  start_driver "$work/$engine" "$kubeconfig" --max-volumes 3
  sanity "$engine" 'at most 3 volumes for each node' --csi.testvolumeaccesstype=mount --csi.testnodevolumeattachlimit
  stop "$driver" || fail 'the driver does not end well'
  stop "$volumes" || fail 'the daemon does not end well'
}
nodes='{apiVersion: v1, kind: Node, metadata: {name: here}}
---
{apiVersion: v1, kind: Node, metadata: {name: other}}'

# A site with two nodes, and nothing else in it.
site() {
  rm -rf "$work/state"
  serve --log-level info
  "$build/bin/fairlead" apply -f - --kubeconfig "$admin" <<< "$nodes" > "$work/out" 2>&1 || fail 'the nodes cannot be made'
}
# The same on a real kube-apiserver, in a folder of that name; $real is its kubeconfig.
real_site() {
  mkdir "$work/$1"
  "$peers/cluster.sh" up "$work/$1/peer" --only-api > "$work/cluster.log" 2>&1 || fail 'kube-apiserver does not start'
  real=$work/$1/peer/admin.kubeconfig
  local kubectl=("$kubernetes/kubectl" --kubeconfig "$real") kind kinds=()
  for kind in volumepools volumes volumehosts volumekeys snapshots attachments; do kinds+=("crd/$kind.fairlead.dev") && "${kubectl[@]}" apply -f "$top/deploy/helm/fairlead/files/crds/$kind.fairlead.dev.yaml"; done > "$work/out" 2>&1 || fail 'the definitions are refused'
  wait_until 30 'the definitions are established' "${kubectl[@]}" wait --for=condition=Established --timeout=2s "${kinds[@]}"
  "${kubectl[@]}" apply -f - <<< "$nodes" > "$work/out" 2>&1 || fail 'the nodes cannot be made'
}
real_site_down() { "$peers/cluster.sh" down "$work/$1/peer" > "$work/out" 2>&1 || fail 'kube-apiserver does not end'; }
# Why there is none; nothing: there is one.
no_real_site() {
  if [ -n "$with_ceph" ] && [ -z "${FAIRLEAD_FULL:-}" ]; then
    echo 'with a pool in Ceph by FAIRLEAD_FULL=1'
  elif [ -z "${FAIRLEAD_KUBERNETES:-}" ]; then
    echo 'FAIRLEAD_KUBERNETES=1'
  elif [ ! -x "$kubernetes/kube-apiserver" ] || [ ! -x "$kubernetes/kubectl" ]; then
    echo "$kubernetes has none (tests/peers/build.sh builds it)"
  fi
}
kubernetes=$("$peers/build.sh" --print)
# What a daemon of another folder had in Ceph is that of another host, as far as this one knows.
claimed=''
claim() { # FOLDER
  [ -n "$with_ceph" ] || return 0
  [ -z "$claimed" ] || "$build/bin/fairlead-volumes" take-over --folder "$1" --ceph-pool volumes --ceph-conf "$work/ceph/ceph.conf" --yes > "$work/out" 2>&1 || fail 'take over'
  claimed=yes
}

if [ -n "$with_ceph" ]; then
  ceph_start "$work/ceph" 60G || fail 'Ceph does not start'
  say 'a Ceph with cephx'
fi
site
if is_wanted sanity; then
  printf 'tagSpecification_1: owner=me\n' > "$work/mutable.yaml"
  printf 'class: %s\n' "$([ -n "$with_ceph" ] && echo distributed || echo local-fast)" > "$work/parameters.yaml"
  status=0
  "$peers/csi.sh" csi-sanity > "$work/out" 2>&1 || status=$?
  programs=$("$peers/csi.sh" --print)
  if [ "$status" = 77 ]; then
    echo "skipped: csi-sanity: $(tail -n 1 "$work/out")"
  elif [ "$status" != 0 ]; then
    fail 'csi-sanity cannot be built'
  else
    sanity_on embedded "$admin"
    if [ -n "$(no_real_site)" ]; then
      echo "skipped: csi-sanity on a real kube-apiserver: $(no_real_site)"
    else
      real_site kubernetes
      sanity_on kubernetes "$real"
      real_site_down kubernetes
    fi
    if [ -n "$with_ceph" ]; then put_ceph_away; else put_away; fi > "$work/out" 2>&1 || fail 'something is left after csi-sanity'
    say 'csi-sanity: no mount and no loop device is left'
  fi
fi

# --- our own ---
suite_on() { # ENGINE FOLDER KUBECONFIG PARTS
  local suite status=0
  mkdir -p "$2"
  claim "$2/pool"
  # In the background: a shell that waits hears signals, one that has a child in the foreground does not.
  "$top/tests/integration/csi_suite.py" --bin "$build/bin" --work "$2" --kubeconfig "$3" --parts "$4" --seed "${FAIRLEAD_SEED:-1}" --kills "$([ -n "${FAIRLEAD_FULL:-}" ] && echo 520 || echo 40)" ${with_ceph:+--ceph "$work/ceph"} &
  suite=$!
  wait "$suite" || status=$?
  if [ "$status" != 0 ]; then
    for log in volumes driver; do cp "$2/$log.log" "$work/$log.log" 2> /dev/null || true; done
    : > "$work/out"
    fail "csi_suite.py, $1: exit status $status"
  fi
  if [ -n "$with_ceph" ]; then put_ceph_away; else put_away; fi > "$work/out" 2>&1 || fail "something is left after csi_suite.py, $1"
  say "csi_suite.py, $1: no mount and no loop device is left"
}
parts=$(sed 's/ sanity / /; s/^ *//; s/ *$//; s/ \+/,/g' <<< "$parts")
if [ -n "$parts" ] || [ $# = 0 ]; then
  stop_server || fail 'the server does not end well'
  site
  suite_on embedded "$work/suite" "$admin" "$parts"
fi
stop_server || fail 'the server does not end well'
if [ -n "$parts" ] || [ $# = 0 ]; then
  if [ -n "$(no_real_site)" ]; then
    echo "skipped: csi_suite.py on a real kube-apiserver: $(no_real_site)"
  else
    real_site suite-kubernetes
    [ -n "$parts" ] || [ -n "${FAIRLEAD_FULL:-}" ] || parts=content,second_node,many_readers,growth,raw_block,requests,at_once,encryption,kills,away
    suite_on kubernetes "$work/suite-kubernetes" "$real" "$parts"
    real_site_down suite-kubernetes
  fi
fi
