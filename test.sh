#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, runs all tests. Prints the seconds of each phase and closes with the test runner's own lines.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat << 'TEXT'
usage: sudo ./test.sh [--full] [--unit] [--kubernetes | --no-kubernetes] [--no-sanitizers] [-R REGEX]
  (nothing)         set-up, release build, each header and library alone, unit tests plain and under sanitizers, integration and end-to-end tests, on a real Kubernetes too
                    (built from Go modules once, which takes a quarter of an hour; left out where there is no Go)
  --full            longer matrices too (ten times the crash points, more seeds, every version of the clients), clang-tidy, five seconds of each fuzz target
  --unit            unit tests only
  --kubernetes      only what runs on a real Kubernetes: the scenarios on both engines, the clients, the charts, the corpus
  --no-kubernetes   leave that out
  --no-sanitizers   leave out the asan and tsan builds
  -R REGEX          only tests whose name matches, as ctest understands it: unit.kube, 'asan\.', e2e.slurm ...
TEXT
}
die() { echo "test.sh: $*" >&2; exit 1; }

full=0 unit=0 kubernetes=1 only_kubernetes=0 sanitizers=1 checks=1 pattern=''
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=1 ;;
    --unit) unit=1 sanitizers=0 checks=0 kubernetes=0 ;;
    --no-kubernetes) kubernetes=0 ;;
    --kubernetes) only_kubernetes=1 sanitizers=0 checks=0 pattern='^(e2e\.(kubernetes|helm|chart|corpus|clients)|integration\.(install|leader|kubernetes_faults))$' ;;
    --no-sanitizers) sanitizers=0 ;;
    -R)
      [ -n "${2:-}" ] || { echo 'test.sh: -R needs a pattern (see --help)' >&2; exit 2; }
      pattern=$2 checks=0
      case $pattern in *asan* | *tsan*) ;; *) sanitizers=0 ;; esac
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "test.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || die 'the tests make namespaces, mounts and cgroups: run it as root (sudo ./test.sh)'
exec < /dev/null
mkdir -p build
exec 9> build/test.lock
flock -n 9 || die 'another run is at work in this checkout; wait for it or stop it first'
[ "$full" = 0 ] || export FAIRLEAD_FULL=1
# A miss in the compiler cache costs no extra run of the preprocessor this way.
export CCACHE_DEPEND=1

phases='' running='' began=$SECONDS
trap 'status=$?; [ -z "$running" ] || { printf "seconds per phase:%s\n" "$phases"; echo "test.sh: failed in phase \"$running\"" >&2; exit "$status"; }' EXIT
phase() { # NAME COMMAND...
  local start=$SECONDS
  running=$1
  shift
  echo "== $running"
  "$@"
  phases+=$(printf '\n  %-28s %5d s' "$running" $((SECONDS - start)))
  echo "-- $running: $((SECONDS - start)) s"
  running=''
}

# As many compilers at once as memory holds, never more than cores.
jobs_for() { # MB-EACH
  local free_mb cores fit
  free_mb=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  cores=$(nproc)
  fit=$((free_mb / $1))
  [ "$fit" -ge 1 ] || fit=1
  echo $((fit < cores ? fit : cores))
}
configure() { # PRESET
  local dir=build/$1
  # A build folder that came with a copied checkout belongs to the original.
  if [ -e "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$dir/CMakeCache.txt"; then rm -rf "$dir"; fi
  local tests=()
  [ "$1" != release ] || tests=(-DFAIRLEAD_TESTS=ON)  # the quickstart may have configured it without
  cmake --preset "$1" ${tests[@]+"${tests[@]}"} > "build/$1.log" 2>&1 || { cat "build/$1.log"; return 1; }
}
build() { # PRESET MB-EACH TARGET...: every tenth line of progress; what failed, whole
  local preset=$1 jobs log=build/$1.log
  jobs=$(jobs_for "$2")
  shift 2
  configure "$preset"
  if ! cmake --build "build/$preset" -j "$jobs" --target "$@" 2>&1 | tee "$log" | awk '/^\[[0-9]*0\// { print substr($0, 1, 150); fflush() }'; then
    grep -A 60 -m 3 -E '^(FAILED|ninja: error)' "$log" || tail -n 40 "$log"
    echo "(the whole output is in $log)"
    return 1
  fi
}

setup() {
  local lists=(tools/packages.txt tools/packages-test.txt)
  [ "$full" = 0 ] || lists+=(tools/packages-full.txt)
  tools/install-packages.sh "${lists[@]}"
}
# The price of changing one file: compiler, archive, every program that links it.
changed() { # FILE
  [ -e "$1" ] || die "$1 is gone: name another file here"
  touch "$1"
  CCACHE_DISABLE=1 build release 700 all
}
tidy() {
  configure tidy
  find src/base src/kube src/slurm src/api -name '*.cpp' ! -name '*_beast.cpp' ! -name '*_test.cpp' ! -name '*_fuzz.cpp' ! -name '*_bench.cpp' -print0 | sort -z |
    xargs -0 -n 2 -P "$(jobs_for 1000)" clang-tidy-19 -p build/tidy --quiet 2> build/tidy.log
}
fuzz_smoke() {
  local target corpus status=0
  corpus=$(mktemp -d)
  for target in build/fuzz/fuzz/*_fuzz; do
    echo "-- $(basename "$target")"
    "$target" -max_total_time=5 -rss_limit_mb=4096 -timeout=10 -artifact_prefix=build/fuzz/ -print_final_stats=0 "$corpus" > build/fuzz.log 2>&1 || { tail -n 40 build/fuzz.log; status=1; }
  done
  rm -rf "$corpus"
  return "$status"
}

# Containers of the tests run from these; built once a machine, checked by their checksum.
images() {
  local name names=(busybox)
  [ "$only_kubernetes" = 0 ] || names+=(slurm)
  [ "$unit" = 1 ] || [ -n "$pattern" ] || names+=(slurm)
  for name in "${names[@]}"; do images/build.sh "images/$name" /var/lib/fairlead/images 2>&1 | tail -n 3; done
}
phase 'set-up' setup
phase 'node images' images
# kube-apiserver and its companions, kept by version; a machine without a Go client leaves their tests out, and ctest says so.
peers() {
  local status=0
  tests/peers/build.sh || status=$?
  [ "$status" = 77 ] || return "$status"
}
programs() { find apps -name '*.cpp' ! -name '*_*' -exec basename {} .cpp \;; }
if [ "$only_kubernetes" = 1 ]; then
  phase 'release build, programs' build release 700 $(programs) fairlead-slurm
else
  phase 'release build' build release 700 all
fi
# Without it these tests are skipped and say so. The first build takes a quarter of an hour and 4 GB; a run of named tests takes what is there.
if [ "$kubernetes" = 1 ]; then
  export FAIRLEAD_KUBERNETES=1
  [ "$only_kubernetes" = 0 ] && [ -n "$pattern" ] || phase 'real Kubernetes' peers
fi
if [ "$checks" = 1 ]; then
  phase 'one file changed' changed src/slurm/plan/render.cpp
  phase 'one Beast file changed' changed src/http/client_beast.cpp
  phase 'headers, libraries alone' build release 700 checks
fi
builds=(release)
if [ "$sanitizers" = 1 ]; then
  phase 'asan build' build asan 1500 unit_tests
  phase 'tsan build' build tsan 1500 unit_tests
  builds+=(asan tsan)
fi
if [ "$full" = 1 ]; then
  phase 'clang-tidy' tidy
  phase 'fuzz build' build fuzz 1500 fuzzers
  phase 'fuzz smoke' fuzz_smoke
fi

# One run of ctest over all builds, so that its closing lines speak of every test. Unit tests run side by side, scripts one at a time.
rm -rf build/ctest
mkdir build/ctest
for name in "${builds[@]}"; do echo "subdirs(\"$PWD/build/$name\")"; done > build/ctest/CTestTestfile.cmake
select=()
[ "$unit" = 0 ] || select+=(-L '^unit$')
[ -z "$pattern" ] || select+=(-R "$pattern")
echo '== tests'
started=$SECONDS status=0
closing='^[0-9]*% tests passed, [0-9]* tests* failed out of [0-9]*$'
ctest --test-dir build/ctest -j "$(nproc)" --output-on-failure --no-tests=error ${select[@]+"${select[@]}"} 2>&1 9>&- | tee build/ctest.log | sed -u "/$closing/,\$d" || status=${PIPESTATUS[0]}
printf 'seconds per phase:%s\n  %-28s %5d s\n  %-28s %5d s\n' "$phases" 'tests' $((SECONDS - started)) 'all' $((SECONDS - began))
sed -n "/$closing/,\$p" build/ctest.log
exit "$status"
