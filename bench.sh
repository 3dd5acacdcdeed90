#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmarks and prints what bench/RESULTS.md records. Numbers are for comparing on one machine, side by side; nothing here is a test.
#   bench.sh            everything of our own, and bare and stock Slurm beside it (bench/slurm_failover.sh alone takes a quarter of an hour)
#   bench.sh --peers    the embedded engine beside kube-apiserver with etcd, which are built from Go modules once
set -euo pipefail
cd "$(dirname "$0")"
[ "$(id -u)" = 0 ] || { echo "bench.sh: run it as root (sudo ./bench.sh)" >&2; exit 1; }
tools/install-packages.sh tools/packages.txt tools/packages-test.txt
cmake --preset release > /dev/null
cmake --build build/release -j "$(nproc)" > /dev/null
echo "machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr), $(awk -F: '/model name/ {print $2; exit}' /proc/cpuinfo | xargs)"
echo "commit:  $(git rev-parse --short HEAD 2> /dev/null || echo unknown), $(date -u +%Y-%m-%d)"
if [ "${1:-}" = --peers ]; then
  tests/peers/build.sh etcd kube-apiserver kube-scheduler kubectl
  exec bash bench/peers/run.sh build/release "${@:2}"
fi
for program in build/release/bin/*_bench; do
  [ -x "$program" ] || continue
  echo "== $(basename "$program")"
  "$program"
done
for script in bench/*.sh; do
  [ -e "$script" ] || continue
  echo "== $(basename "$script" .sh)"
  bash "$script" build/release
done
