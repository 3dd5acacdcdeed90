#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, runs all tests. Prints the seconds of each phase and closes with the test runner's own line.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
usage: sudo ./test.sh [--full] [--unit] [--no-sanitizers] [-R REGEX]
  (nothing)         set-up, release build, unit tests, asan and tsan runs, integration and end-to-end tests
  --full            longer matrices too (ten times the crash points, more seeds)
  --unit            unit tests only
  --no-sanitizers   leave out the asan and tsan builds
  -R REGEX          only tests whose name matches
TEXT
}

full=0 unit=0 sanitizers=1 select=()
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=1 ;;
    --unit) unit=1 ;;
    --no-sanitizers) sanitizers=0 ;;
    -R) select=(-R "${2:?-R needs a pattern}"); sanitizers=0; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || { echo "test.sh: the tests make namespaces, mounts and cgroups: run it as root (sudo ./test.sh)" >&2; exit 1; }
[ "$full" = 0 ] || export FAIRLEAD_FULL=1

phases=''
phase() { # NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  phases="$phases$(printf '\n  %-28s %5d s' "$name" $((SECONDS - start)))"
}

# A compiler process may need 1.5 GB (4.5 GB under sanitizers): as many at once as memory holds, never more than cores.
jobs_for() {
  local each_mb=$1 free_mb cores
  free_mb=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  cores=$(nproc)
  local fit=$((free_mb / each_mb))
  [ "$fit" -ge 1 ] || fit=1
  echo $((fit < cores ? fit : cores))
}

setup() { tools/install-packages.sh tools/packages.txt tools/packages-test.txt; }
build() { # PRESET MB-EACH TARGETS...
  local preset=$1 each=$2
  shift 2
  cmake --preset "$preset" > "build-$preset.log" 2>&1 || { cat "build-$preset.log"; return 1; }
  rm -f "build-$preset.log"
  cmake --build "build/$preset" -j "$(jobs_for "$each")" ${1:+--target} "$@" | grep -E --line-buffered 'error|warning|FAILED|^\[[0-9]*0/' || [ "${PIPESTATUS[0]}" = 0 ]
}
one_file() { # the price of changing one file
  touch src/slurm/plan/render.cpp
  cmake --build build/release -j "$(jobs_for 1500)" > /dev/null
}
one_beast_file() {
  touch src/http/client_beast.cpp
  cmake --build build/release -j "$(jobs_for 1500)" > /dev/null
}

phase 'set-up' setup
phase 'release build' build release 1500
if [ "$unit" = 0 ] && [ "${#select[@]}" = 0 ]; then
  phase 'one file changed' one_file
  phase 'one Beast file changed' one_beast_file
fi
if [ "$sanitizers" = 1 ]; then
  asan_tests="base_test http_test kube_test api_test apiserver_test placement_test node_test slurm_test fleet_test cli_test sim_test"
  tsan_tests="base_test kube_test apiserver_test node_test"
  present() { local t out=''; for t in $1; do ls src/"${t%_test}"/ sim/ 2> /dev/null | grep -q . && cmake --build "build/$2" --target help 2> /dev/null | grep -q "^$t:" && out="$out $t"; done; echo "$out"; }
  cmake --preset asan > /dev/null && phase 'asan build' build asan 4500 $(present "$asan_tests" asan)
  run_asan() { for t in $(present "$asan_tests" asan); do echo "-- asan $t"; FAIRLEAD_SANITIZED=1 ASAN_OPTIONS=detect_leaks=1 "build/asan/$t" --gtest_brief=1; done; }
  phase 'asan tests' run_asan
  cmake --preset tsan > /dev/null && phase 'tsan build' build tsan 4500 $(present "$tsan_tests" tsan)
  run_tsan() { for t in $(present "$tsan_tests" tsan); do echo "-- tsan $t"; FAIRLEAD_SANITIZED=1 TSAN_OPTIONS=halt_on_error=1 "build/tsan/$t" --gtest_brief=1; done; }
  phase 'tsan tests' run_tsan
fi
echo "== tests"
[ "$unit" = 0 ] || select=(-L unit)
started=$SECONDS
status=0
ctest --test-dir build/release --output-on-failure ${select[@]+"${select[@]}"} > build/ctest.log 2>&1 || status=$?
sed '/tests passed/,$d' build/ctest.log
printf 'seconds per phase:%s\n  %-28s %5d s\n' "$phases" 'tests' $((SECONDS - started))
sed -n '/tests passed/,$p' build/ctest.log
exit "$status"
