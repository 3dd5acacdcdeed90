#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How many instructions one request takes within the API server (request_bench): they hardly depend on the machine or on what else runs there.
# Two runs of each operation under callgrind, the difference of which is the operation alone.
#   instructions.sh BUILD_DIR [OPERATION...]
set -euo pipefail
program=$(realpath "${1:?usage: instructions.sh BUILD_DIR [OPERATION...]}")/bin/request_bench
shift
[ $# -gt 0 ] || set -- create get list patch watch
command -v valgrind > /dev/null || { echo 'instructions: valgrind is not installed'; exit 0; }
count() { # OPERATION ROUNDS
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1 | awk '/Collected/ {print $NF}'
}
for operation in "$@"; do
  few=100 many=600
  case $operation in list | watch) few=2 many=12 ;; esac
  echo "$operation $(($(count "$operation" $many) - $(count "$operation" $few))) $((many - few))" |
    awk '{printf "%-7s %10.0f instructions each\n", $1, $2 / $3}'
done
