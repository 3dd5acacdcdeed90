#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test script, and once more if all that failed was a limit of time within its first ten minutes: on a machine that others load too, such a limit says little. Any other failure counts at once, and with FAIRLEAD_FULL each one does.
#   again.sh SCRIPT BUILD_DIR     The log of a first run is kept in BUILD_DIR/first-runs/SCRIPT.log, and ./test.sh names those that passed only at their second.
# A script that is made of many (tests/scenarios/run.sh) runs such a one of them once more by itself, and writes a line about it to the file that FAIRLEAD_SECOND_RUNS names.
set -u
[ -z "${FAIRLEAD_FULL:-}" ] || exec bash "$@"
name=$(basename "$1" .sh) kept=$2/first-runs began=$SECONDS status=0
mkdir -p "$kept"
rm -f "$kept/$name.log" "$kept/$name.passed" "$kept/$name.parts"
export FAIRLEAD_SECOND_RUNS=$kept/$name.parts
log=$(mktemp "$kept/$name-XXXXXX")
trap 'rm -f "$log"' EXIT
# What failed, and what was wanted and found, is told once more at the end: the logs of daemons come after it, and a reader sees the last lines of all.
end() {
  [ ! -s "$FAIRLEAD_SECOND_RUNS" ] || [ "$status" != 0 ] || cat "$FAIRLEAD_SECOND_RUNS" >> "$kept/$name.passed"
  rm -f "$FAIRLEAD_SECOND_RUNS"
  if ((status != 0 && status != 77)); then
    awk '/^FAIL/ { tells = 1; print; next } tells && /^ +\|/ { print; next } { tells = 0 }' "$log" | head -n 24 | cut -c1-1000
    echo "== $name failed after $((SECONDS - began)) s: $(grep -E '^FAIL' "$log" | tail -n 1 | grep . || echo 'without a word')"
  fi
  exit "$status"
}
attempt() {
  status=0
  bash "$@" > "$log" 2>&1 || status=$?
  cat "$log"
}
attempt "$@"
((status != 0 && status != 77)) || end
# The first word of failure decides: what is told after it are logs.
first=$(grep -m 1 -E '^FAIL' "$log")
[[ $first =~ ^FAIL(ED)?:?\ (not\ in\ time|not\ within\ |did\ not\ come\ true\ in\ time) ]] && ((SECONDS - began <= 600)) || end
cp "$log" "$kept/$name.log"
echo "== run once more after: $first"
rm -f "$FAIRLEAD_SECOND_RUNS"
attempt "$@"
[ "$status" != 0 ] || printf '%s (%s)\n' "$name" "${first#FAIL*: }" > "$kept/$name.passed"
end
