#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: instead.sh COMMAND... -- REPLACED ARGS...
# Runs COMMAND with ARGS: a compiler launcher by which some files are compiled by another compiler than the rest.
command=()
while [[ $# -gt 0 && $1 != -- ]]; do
  command+=("$1")
  shift
done
[[ $# -ge 2 ]] || { echo "instead.sh: COMMAND... -- REPLACED ARGS... is expected" >&2; exit 2; }
shift 2
exec "${command[@]}" "$@"
