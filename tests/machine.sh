#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command as root of a virtual machine with a Linux of Debian's, for what the kernel that is here does not do or does not allow: growth of an ext4 that is mounted needs CAP_SYS_RESOURCE, which
# containers and some virtual machines lack. What it sees is this machine's root; what it writes is lost with it, but for /var/tmp, a disk of its own of 40 GiB (sparse), which has room for direct I/O.
# No network but loopback. FAIRLEAD_MACHINE_SUITE=sid: the kernel is that of another release of Debian than this machine's, for what came later. Its processors are emulated unless FAIRLEAD_MACHINE_ACCEL=kvm: an hour of waiting for a clock is an hour, computing takes ten to thirty times as long as here.
#   machine.sh COMMAND...     its output is the command's, and its exit status; as root, for the disk's file and to read all of this machine
#   machine.sh --prepare      fetches the kernel only; 77: the packages cannot be fetched, or there is no emulator (qemu-system-x86, tools/packages-full.txt)
set -euo pipefail
[ $# -gt 0 ] || { sed -n '3,7s/^# *//p' "$0" >&2; exit 2; }
cache=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/machine${FAIRLEAD_MACHINE_SUITE:+-$FAIRLEAD_MACHINE_SUITE}
skip() { echo "machine.sh: $*" >&2; exit 77; }
command -v qemu-system-x86_64 > /dev/null || skip 'there is no qemu-system-x86_64 here (tools/packages-full.txt)'

# --- the kernel, its modules and a shell for its first process, unpacked and not installed
if [ ! -e "$cache/ready" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  chmod 755 "$folder"
  apt=()
  if [ -n "${FAIRLEAD_MACHINE_SUITE:-}" ]; then
    # From where this machine's own packages are, beside its lists: nothing here is installed or upgraded by it.
    from=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | grep -v security | sort -u | head -n 1)
    mkdir -p "$folder/lists/partial" "$folder/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $FAIRLEAD_MACHINE_SUITE main" > "$folder/list"
    apt=(-o "Dir::Etc::sourcelist=$folder/list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder" -o APT::Sandbox::User=root)
    apt-get "${apt[@]}" update > /dev/null 2>&1 || skip "packages of Debian's $FAIRLEAD_MACHINE_SUITE are not to be had here"
  fi
  depends() { apt-cache "${apt[@]}" depends "$1" 2> /dev/null | sed -nE "s/.*Depends: ($2)\$/\1/p"; }
  kernel=$(depends linux-image-amd64 'linux-image-[^ ]*' | head -n 1)
  [ -n "$kernel" ] || skip 'the package linux-image-amd64 is not known here'
  mapfile -t parts < <(depends "$kernel" 'linux-(binary|modules)-[^ ]*') # since 2026 it is of several
  rm -rf "$cache" && mkdir -p "$cache"
  (cd "$folder" && apt-get "${apt[@]}" download -q "$kernel" "${parts[@]}" busybox-static > /dev/null 2>&1) || skip "the packages $kernel and busybox-static cannot be fetched"
  for package in "$folder"/*.deb; do dpkg-deb -x "$package" "$cache"; done
  [ -e "$cache/lib" ] || ln -s usr/lib "$cache/lib"
  depmod=$(command -v depmod || command -v /sbin/depmod) || skip 'there is no depmod here (kmod)'
  release=$(basename "$cache"/lib/modules/*)
  find "$cache/lib/modules/" -name '*.ko.xz' -exec unxz {} +
  "$depmod" -b "$cache" "$release"
  rm -rf "$folder"
  trap - EXIT
  touch "$cache/ready"
fi
[ "$1" != --prepare ] || exit 0
[ "$(id -u)" = 0 ] || skip 'needs root'

work=$(mktemp -d /var/tmp/fairlead-machine-XXXXXX)
trap 'rm -rf "$work"' EXIT
release=$(basename "$cache"/lib/modules/*)
# --- its first file system: modules to reach this machine's root, and the way there
first=$work/first
mkdir -p "$first"/{bin,dev,proc,sys,host,over,root,modules}
cp "$(find "$cache" -path '*bin/busybox' | head -n 1)" "$first/bin/busybox"
modules=() # in an order in which each has what it needs
for one in virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4; do
  while read -r word path; do
    [ "$word" = insmod ] || continue # what is built in is there
    name=$(basename "$path")
    [ -e "$first/modules/$name" ] || { cp "$path" "$first/modules/$name" && modules+=("$name"); }
  done < <("$(command -v modprobe || echo /sbin/modprobe)" -d "$cache" -S "$release" --show-depends --ignore-install "$one" 2> /dev/null)
done
printf '%q ' "$@" > "$first/command"
pwd > "$first/folder"
env | grep -E '^FAIRLEAD_' > "$first/environment" || true
cat > "$first/init" << INIT
#!/bin/busybox sh
bb() { /bin/busybox "\$@"; }
bb mount -t proc proc /proc; bb mount -t sysfs sys /sys; bb mount -t devtmpfs dev /dev
for one in ${modules[*]}; do bb insmod /modules/\$one || echo "machine: no module \$one"; done
bb mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /host || echo 'machine: no root'
bb mount -t tmpfs tmpfs /over; bb mkdir /over/upper /over/work
bb mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work overlay /root
for one in proc sys dev run tmp; do bb mkdir -p /root/\$one; done
bb mount --move /proc /root/proc; bb mount --move /sys /root/sys; bb mount --move /dev /root/dev
bb mount -t tmpfs tmpfs /root/run; bb mount -t tmpfs tmpfs /root/tmp
bb ln -s /proc/self/fd /root/dev/fd; bb ln -s fd/0 /root/dev/stdin; bb ln -s fd/1 /root/dev/stdout; bb ln -s fd/2 /root/dev/stderr; bb hostname machine
bb mkdir -p /root/dev/pts /root/dev/shm; bb mount -t devpts devpts /root/dev/pts; bb mount -t tmpfs tmpfs /root/dev/shm
bb mkdir -p /root/run/machine; bb cp /command /folder /environment /main /root/run/machine/
exec /bin/busybox switch_root /root /bin/bash /run/machine/main
INIT
cat > "$first/main" << MAIN
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
[ -d /lib/modules/$release ] || { mkdir -p /lib/modules && ln -s "$cache/lib/modules/$release" /lib/modules/$release; }
mkfs.ext4 -q -F /dev/vda && mount -t ext4 /dev/vda /var/tmp && chmod 1777 /var/tmp
ip link set lo up
for one in loop fuse xfs ublk_drv; do modprobe -q \$one; done
while read -r one; do export "\$one"; done < /run/machine/environment
cd "\$(< /run/machine/folder)"
status=0
setsid bash -c "\$(< /run/machine/command)" < /dev/null || status=\$?
echo
echo "machine: exit status \$status"
sync
echo o > /proc/sysrq-trigger
while :; do :; done # by the shell alone, until the power is off: programs may be gone
MAIN
chmod +x "$first/init"
(cd "$first" && find . | "$first/bin/busybox" cpio -o -H newc 2> /dev/null) > "$work/initramfs"
truncate -s 40G "$work/disk"
accel=${FAIRLEAD_MACHINE_ACCEL:-tcg}
[ "$accel" != tcg ] || accel=tcg,thread=multi
[ "$accel" = "${accel#kvm}" ] || cpu=host
# It ends with this script, however that ends.
setpriv --pdeathsig KILL qemu-system-x86_64 -accel "$accel" -cpu "${cpu:-max}" -smp 2 -m 3072 -nodefaults -no-user-config -display none -no-reboot -serial stdio \
  -kernel "$(ls "$cache"/boot/vmlinuz-* "$cache/lib/modules/$release/vmlinuz" 2> /dev/null | head -n 1)" -initrd "$work/initramfs" -append 'console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init mitigations=off' \
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
  -drive "file=$work/disk,if=none,id=disk,format=raw,cache=unsafe,discard=unmap" -device virtio-blk-pci,drive=disk < /dev/null 2> "$work/emulator" |
  tr -d '\r' | tee "$work/said" | sed -u '/^machine: exit status [0-9]*$/d' || true # what it came to is what the machine has said
status=$(sed -n 's/^machine: exit status \([0-9]*\)$/\1/p' "$work/said" | tail -n 1)
[ -n "$status" ] || { echo 'machine.sh: it ended without an exit status' >&2; cat "$work/emulator" >&2; exit 1; }
exit "$status"
