#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sets up, builds, runs all tests. Prints the seconds of each phase and closes with the test runner's own lines.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat << 'TEXT'
usage: sudo ./test.sh [--full] [--unit] [--kubernetes | --no-kubernetes] [--no-sanitizers] [-R REGEX]
  (nothing)         set-up, release build, each header and library alone, unit tests, those of a quarter of the folders under sanitizers too, integration and end-to-end tests, each
                    scenario on one engine or both: a real Kubernetes is built from Go modules once, which takes a quarter of an hour, and left out where there is no Go.
                    What is left to chance follows from the commit, or from FAIRLEAD_SAMPLE=SEED. With FAIRLEAD_MINUTES=N what is compiled last (sanitizers, headers alone) is begun in the
                    first half of so many minutes, or left out: a machine that has compiled nothing before takes an hour for the rest
  --full            all of it whole, and longer matrices (ten times the crash points, more seeds, every version of the clients), clang-tidy, five seconds of each fuzz target
  --unit            unit tests only
  --kubernetes      only what runs on a real Kubernetes: the scenarios of both engines, the clients, the charts, the corpus
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
    --kubernetes) only_kubernetes=1 sanitizers=0 checks=0 pattern='^(e2e\.(embedded|kubernetes|helm|chart|corpus|clients)|integration\.(install|leader|kubernetes_faults))$' ;;
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

phases='' running='' began=$SECONDS
images_under_way=''
trap 'status=$?; [ -z "$images_under_way" ] || kill "$images_under_way" 2> /dev/null || true; [ -z "$running" ] || { printf "seconds per phase:%s\n" "$phases"; echo "test.sh: failed in phase \"$running\"" >&2; exit "$status"; }' EXIT
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
# The folders whose tests are built with these sanitizers this time: a quarter, and another one for tsan than for asan.
share_of_folders() { # PRESET
  local all share=0
  all=$(sed -nE "s/.*\"name\": \"$1\".*\"FAIRLEAD_TEST_FOLDERS\": \"([^\"]*)\".*/\1/p" CMakePresets.json | tr ';' '\n')
  [ -n "$all" ] || all=$(find src sim gpl -name '*_test.cpp' | sed -E 's|^src/||; s|/.*||' | sort -u)
  [ "$1" != tsan ] || share=1
  # shellcheck disable=SC2086 -- names of folders
  tests/sample.sh "$share" 4 $all | paste -sd ';'
}
configure() { # PRESET
  local dir=build/$1
  # A build folder that came with a copied checkout belongs to the original.
  if [ -e "$dir/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$dir/CMakeCache.txt"; then rm -rf "$dir"; fi
  local tests=()
  [ "$1" != release ] || tests=(-DFAIRLEAD_TESTS=ON "-DFAIRLEAD_LONG_TESTS=$full")  # the quickstart may have configured it without
  case $1 in asan | tsan) [ "$full" = 1 ] || [ -n "$pattern" ] || tests=("-DFAIRLEAD_TEST_FOLDERS=$(share_of_folders "$1")") ;; esac
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
programs() { find apps -name '*.cpp' ! -name '*_*' -exec basename {} .cpp \;; }
# The price of changing one file: compiler, archive, every program that links it.
changed() { # FILE
  [ -e "$1" ] || die "$1 is gone: name another file here"
  touch "$1"
  CCACHE_DISABLE=1 build release 700 $(programs) fairlead-slurm
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
# Fetching packages for images is mostly waiting, compiling is not.
images > build/images.log 2>&1 9>&- &
images_under_way=$!
await_images() {
  local status=0
  wait "$images_under_way" || status=$?
  images_under_way=''
  cat build/images.log
  return "$status"
}
# Scripts ask for the programs; unit tests and benchmarks are compiled beside those of them that wait, but where unit tests alone or tests by name are to run.
if [ "$unit" = 1 ] || { [ "$only_kubernetes" = 0 ] && [ -n "$pattern" ]; }; then
  phase 'release build' build release 700 all
else
  phase 'release build, programs' build release 700 $(programs) fairlead-slurm
fi
phase 'node images' await_images
if [ "$checks" = 1 ]; then
  phase 'one file changed' changed src/slurm/plan/render.cpp
  phase 'one Beast file changed' changed src/http/client_beast.cpp
fi
if [ "$full" = 1 ]; then
  phase 'clang-tidy' tidy
  phase 'fuzz build' build fuzz 1500 fuzzers
  phase 'fuzz smoke' fuzz_smoke
fi

# One run of ctest over all builds, so that its closing lines speak of every test. What else is to be built is a test, too: one after the other in what processor time the tests leave
# over, since scripts mostly wait, and who needs it waits for it. Scripts and unit tests run three at a time: `machine` is what they ask for.
rm -rf build/ctest build/release/first-runs
mkdir build/ctest
plan=build/ctest/CTestTestfile.cmake cost=9000 latest=0
[ -z "${FAIRLEAD_MINUTES:-}" ] || latest=$(($(date +%s) - (SECONDS - began) + FAIRLEAD_MINUTES * 30))
build_as_test() { # NAME COMMAND...
  local name=build.$1 rank='chrt --idle 0' until=$latest mark=$PWD/build/$1/left-out
  case $1 in peers | unit) rank='nice -n 5' until=0 ;; esac # much waits for them
  shift
  set -- bash "$PWD/tests/in_time.sh" begin "$until" "$mark" "$@"
  printf 'add_test([=[%s]=] %s%s)\n' "$name" "$rank" "$(printf ' [=[%s]=]' "$@")" >> "$plan"
  printf 'set_tests_properties([=[%s]=] PROPERTIES FIXTURES_SETUP %s RESOURCE_LOCK builder SKIP_RETURN_CODE 77 TIMEOUT 4800 WORKING_DIRECTORY [=[%s]=] COST %s)\n' \
    "$name" "$name" "$PWD" "$cost" >> "$plan"
  cost=$((cost - 1000))
}
for name in release $([ "$sanitizers" = 0 ] || echo asan tsan); do
  configure "$name"
  echo "subdirs([=[$PWD/build/$name]=])" >> "$plan"
done
# kube-apiserver and its companions, kept by version. Without FAIRLEAD_KUBERNETES their tests are skipped and say so. The first build takes a quarter of an hour and 4 GB; a run of
# named tests takes what is there.
if [ "$kubernetes" = 1 ]; then
  export FAIRLEAD_KUBERNETES=1
  [ "$only_kubernetes" = 0 ] && [ -n "$pattern" ] || build_as_test peers tests/peers/build.sh
fi
[ "$only_kubernetes" = 1 ] || build_as_test unit cmake --build build/release -j "$(jobs_for 700)" --target all unit_tests
[ "$sanitizers" = 0 ] || for name in asan tsan; do build_as_test "$name" cmake --build "build/$name" -j "$(jobs_for 1500)" --target unit_tests; done
[ "$checks" = 0 ] || build_as_test alone cmake --build build/release -j "$(jobs_for 700)" --target checks
echo '{"version": {"major": 1, "minor": 0}, "local": [{"machine": [{"id": "0", "slots": 3}]}]}' > build/ctest/machine.json
select=()
[ "$unit" = 0 ] || select+=(-L '^unit$')
[ -z "$pattern" ] || select+=(-R "$pattern")
echo '== tests'
started=$SECONDS status=0
closing='^[0-9]*% tests passed, [0-9]* tests* failed out of [0-9]*$'
# A line for each test; of what a failed one printed the end, which says why. (In bash, for Debian's awk reads ahead: nothing would be seen for minutes.)
in_short() {
  local line lines=() said=() failed=0 most=40
  end_of_failed() {
    ((${#lines[@]} <= most)) || echo "    (its last $most lines; all of it is in $PWD/build/ctest/Testing/Temporary/LastTest.log)"
    ((${#lines[@]} <= most || ${#said[@]} == 0)) || printf '%s\n' "${said[@]:0:5}" '    ...' # a script says what failed before it tells of all that it ran
    ((${#lines[@]} == 0)) || printf '%s\n' "${lines[@]: -$((${#lines[@]} < most ? ${#lines[@]} : most))}"
    lines=() said=() failed=0
  }
  while IFS= read -r line; do
    if [[ $line =~ ^\ *Start\ +[0-9]+:\  ]]; then
      end_of_failed
    elif [[ $line =~ ^\ *[0-9]+/[0-9]+\ Test\ +# || $line =~ ^[0-9]+%\ tests\ passed ]]; then
      end_of_failed
      [[ ! $line =~ \*\*\*(Failed|Timeout|Exception) ]] || failed=1
      printf '%s\n' "$line"
    elif ((failed)); then
      lines+=("$line")
      [[ ! $line =~ FAIL: ]] || said+=("$line")
    else
      printf '%s\n' "$line"
    fi
  done
  end_of_failed
}
ctest --test-dir build/ctest -j 4 --resource-spec-file "$PWD/build/ctest/machine.json" --output-on-failure --no-tests=error ${select[@]+"${select[@]}"} 2>&1 9>&- | tee build/ctest.log | in_short | sed -u "/$closing/,\$d" || status=${PIPESTATUS[0]}
printf 'seconds per phase:%s\n  %-28s %5d s\n  %-28s %5d s\n' "$phases" 'tests' $((SECONDS - started)) 'all' $((SECONDS - began))
cat build/release/first-runs/*.passed 2> /dev/null | sed 's/^/passed at its second run alone, too slow at the first (log in build\/release\/first-runs): /' || true
sed -n "/$closing/,\$p" build/ctest.log
exit "$status"
