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
attempt() {
  # The lists may be old or absent on a fresh machine.
  apt-get update > "$log" 2>&1 && apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" >> "$log" 2>&1
}
attempt || { sleep 2; attempt; } || {
  tail -n 15 "$log" >&2
  echo "install-packages.sh: installing failed; is the network up, and do the package sources work (apt-get update)?" >&2
  exit 1
}
