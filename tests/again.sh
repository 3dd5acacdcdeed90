#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test script, and once more if all that failed was a limit of time within its first ten minutes: on a machine that others load too, such a limit says little. Any other failure counts at once, and with FAIRLEAD_FULL each one does.
#   again.sh SCRIPT BUILD_DIR     The log of a first run is kept in BUILD_DIR/first-runs/SCRIPT.log, and ./test.sh names those that passed only at their second.
set -u
[ -z "${FAIRLEAD_FULL:-}" ] || exec bash "$@"
name=$(basename "$1" .sh) kept=$2/first-runs began=$SECONDS status=0
mkdir -p "$kept"
rm -f "$kept/$name.log" "$kept/$name.passed"
log=$(mktemp "$kept/$name-XXXXXX")
trap 'rm -f "$log"' EXIT
bash "$@" > "$log" 2>&1 || status=$?
cat "$log"
((status != 0 && status != 77)) || exit "$status"
# The first word of failure decides: what is told after it are logs.
first=$(grep -m 1 -E '^FAIL' "$log")
[[ $first =~ ^FAIL(ED)?:?\ (not\ in\ time|not\ within\ |did\ not\ come\ true\ in\ time) ]] && ((SECONDS - began <= 600)) || exit "$status"
mv "$log" "$kept/$name.log"
echo "== run once more after: $first"
status=0
bash "$@" || status=$?
[ "$status" != 0 ] || printf '%s (%s)\n' "$name" "${first#FAIL*: }" > "$kept/$name.passed"
exit "$status"
