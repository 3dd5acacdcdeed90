#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian's Prometheus, unpacked once into a cache folder (no service is installed), and its folder: prometheus, promtool in it.
#   prometheus.sh        exit status 77: it cannot be had here; with FAIRLEAD_ONLY_THERE=1: it was not fetched before
set -euo pipefail
home=${FAIRLEAD_PEERS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/fairlead/peers}/prometheus
if [ ! -x "$home/usr/bin/prometheus" ]; then
  [ -z "${FAIRLEAD_ONLY_THERE:-}" ] || exit 77
  mkdir -p "$(dirname "$home")"
  exec 8> "$home.lock"
  flock 8
  if [ ! -x "$home/usr/bin/prometheus" ]; then
    rm -rf "$home" "$home.new"
    mkdir -p "$home.new"
    # A user of its own fetches packages where root runs apt; it has to get into the folder.
    (cd "$home.new" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } && dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb) > "$home.log" 2>&1 ||
      { tail -n 3 "$home.log" >&2; rm -rf "$home.new"; echo 'prometheus.sh: the package cannot be had here' >&2; exit 77; }
    mv "$home.new" "$home"
  fi
fi
"$home/usr/bin/prometheus" --version > /dev/null 2>&1 || { echo 'prometheus.sh: it does not run here' >&2; exit 77; }
echo "$home/usr/bin"
