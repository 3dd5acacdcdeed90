#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: instead.sh COMMAND... -- REPLACED ARGS...
# Runs COMMAND with ARGS: a compiler launcher by which some files are compiled by another compiler than the rest.
command=()
while [[ $1 != -- ]]; do
  command+=("$1")
  shift
done
shift 2
exec "${command[@]}" "$@"
