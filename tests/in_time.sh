#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What is to begin only while there is time for it, and what needs that. Exit status 77: left out, and why is said.
#   in_time.sh begin UNTIL MARK COMMAND...     runs it, if it is not later than UNTIL (seconds of the epoch; 0: whenever); else writes MARK
#   in_time.sh after MARK COMMAND...           runs it, unless MARK is there
set -eu
case $1 in
  begin)
    until=$2 mark=$3
    shift 3
    rm -f "$mark"
    if [ "$until" -gt 0 ] && [ "$(date +%s)" -gt "$until" ]; then
      mkdir -p "$(dirname "$mark")"
      echo "skipped: what came before has taken so long that there is no time for it (FAIRLEAD_MINUTES; ./test.sh without it takes the time)" | tee "$mark"
      exit 77
    fi
    ;;
  after)
    mark=$2
    shift 2
    [ ! -e "$mark" ] || { cat "$mark"; exit 77; }
    ;;
  *) echo "in_time.sh: begin or after is expected, not $1" >&2; exit 2 ;;
esac
exec "$@"
