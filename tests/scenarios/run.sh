#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs scenarios in order against the cluster that the environment names (README.md); stops at the first that fails. Where FAIRLEAD_SECOND_RUNS names a file (tests/again.sh), a scenario that failed by
# nothing but a limit of time is run once more, and the file says which; all must pass at once without it.
#   run.sh [NAME...]       e.g. run.sh 10-demo-cluster 20-training-job; without names all
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
  for file in "$here"/[0-9]*.sh; do set -- "$@" "$(basename "$file" .sh)"; done
fi
word=${SCENARIO_WORK:?}/first-failure # lib.sh writes it
only_too_slow() { [[ -n ${FAIRLEAD_SECOND_RUNS:-} && $(cat "$word") == 'not within '* ]] && ((SECONDS - began <= 600)); }
for name in "$@"; do
  began=$SECONDS status=0
  echo "-- scenario $name"
  : > "$word"
  bash "$here/$name.sh" || status=$?
  if [ $status != 0 ] && only_too_slow; then
    echo "== run once more after: FAIL: $(cat "$word")"
    printf 'scenario %s (%s)\n' "$name" "$(cat "$word")" >> "$FAIRLEAD_SECOND_RUNS"
    : > "$word"
    status=0
    bash "$here/$name.sh" || status=$?
  fi
  [ $status = 0 ] || { echo "FAIL: scenario $name after $((SECONDS - began)) s: $(cat "$word")" >&2; exit 1; }
  echo "-- scenario $name passed in $((SECONDS - began)) s"
done
