#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: install-packages.sh LIST...
# Installs the Debian packages named in the lists (one a line, # comments) that are not installed yet. Does nothing, fast, when none is missing.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
missing=()
for list in "$@"; do
  while read -r package _; do
    case $package in '' | '#'*) continue ;; esac
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)" = installed ] || missing+=("$package")
  done < "$list"
done
[ "${#missing[@]}" -gt 0 ] || { echo "all packages are there"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "install-packages.sh: these packages are missing and only root may install them: ${missing[*]}" >&2; exit 1; }
command -v apt-get > /dev/null || { echo "install-packages.sh: this is not Debian (no apt-get); install by hand: ${missing[*]}" >&2; exit 1; }
echo "installing ${#missing[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Asked to end: what only reads and downloads ends at once. dpkg is never interrupted, that would leave packages half installed; we end behind it.
download='' interrupted=''
trap 'interrupted=yes; [ -z "$download" ] || kill "$download" 2> /dev/null || true' INT TERM
stoppable() {
  local status=0
  [ -z "$interrupted" ] || return 1
  "$@" >> "$log" 2>&1 &
  download=$!
  wait "$download" || status=$?
  [ -z "$interrupted" ] || wait "$download" || true
  download=''
  return "$status"
}
# An interrupted run, or the system's own updates, may be at work: apt would fail at once for its lists, and without a word to the user for the rest.
apt_at_work() { lslocks --noheadings --raw --output PID,PATH 2> /dev/null | awk '$2 ~ "^/var/lib/(dpkg/lock(-frontend)?|apt/lists/lock)$" { print $1; exit }'; }
wait_for_apt() {
  local pid until=$((SECONDS + 900))
  pid=$(apt_at_work)
  [ -n "$pid" ] || return 0
  echo "waiting: $(tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | cut -c1-60) (process $pid) installs packages"
  while [ -n "$(apt_at_work)" ]; do
    [ -z "$interrupted" ] || return 1
    [ "$SECONDS" -lt "$until" ] || { echo "install-packages.sh: process $pid has held the lock of apt for 15 minutes: wait until it is done, or end it, then run this again" >&2; exit 1; }
    sleep 1
  done
}
attempt() {
  [ -z "$interrupted" ] || return 1
  : > "$log"
  # The lists may be old or absent on a fresh machine.
  wait_for_apt && stoppable apt-get update && stoppable apt-get install -y --no-install-recommends --download-only "${missing[@]}" &&
    wait_for_apt && [ -z "$interrupted" ] && apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "${missing[@]}" >> "$log" 2>&1
}
attempt || { [ -n "$interrupted" ] || sleep 2; attempt; } || {
  [ -z "$interrupted" ] || { echo "install-packages.sh: interrupted; run it again to go on" >&2; exit 130; }
  tail -n 15 "$log" >&2
  echo "install-packages.sh: installing failed; is the network up, and do the package sources work (apt-get update)?" >&2
  exit 1
}
