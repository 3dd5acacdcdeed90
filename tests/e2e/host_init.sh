#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The first process of a machine that tests make of namespaces, as a stand-in for a host with a kernel of its own: it keeps the agent running as systemd would, and ends (with all that is on it) when it is to reboot.
#   host_init.sh DIR NAME AGENT     DIR: what stays over reboots; DIR/up says that commands may come
set -eu
dir=$1 name=$2 agent=$3
mount -t proc proc /proc
mount --make-rprivate /
mount -t tmpfs -o mode=755 run /run
# crun refuses to see both versions.
if [ -e /sys/fs/cgroup/unified/cgroup.procs ]; then
  umount -l /sys/fs/cgroup/unified
  mount -t tmpfs -o mode=755 none /sys/fs/cgroup/unified
fi
tr -d '\n' < /proc/sys/kernel/random/uuid > /run/boot-id
hostname "$name"
ip link set lo up
until ip -4 -o addr show dev eth0 2> /dev/null | grep -q inet; do read -rt 0.1 <> <(:) || true; done
touch "$dir/up"
pid=''
while [ ! -e "$dir/reboot" ] && [ ! -e "$dir/off" ]; do
  if [ -e "$dir/etc/agent.json" ] && [ ! -e "$dir/no-agent" ] && { [ -z "$pid" ] || ! kill -0 "$pid" 2> /dev/null; }; then
    "$agent" run --config "$dir/etc/agent.json" >> "$dir/agent.log" 2>&1 &
    pid=$!
  fi
  [ ! -e "$dir/no-agent" ] || [ -z "$pid" ] || { kill -KILL "$pid" 2> /dev/null || true; wait "$pid" 2> /dev/null || true; pid=''; }
  read -rt 0.2 <> <(:) || true
done
rm -f "$dir/reboot" "$dir/up"
