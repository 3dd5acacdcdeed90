#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs scenarios in order against the cluster that the environment names (README.md); stops at the first that fails.
#   run.sh [NAME...]       e.g. run.sh 10-demo-cluster 20-training-job; without names all
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ $# = 0 ]; then
  for file in "$here"/[0-9]*.sh; do set -- "$@" "$(basename "$file" .sh)"; done
fi
for name in "$@"; do
  began=$SECONDS
  echo "-- scenario $name"
  bash "$here/$name.sh" || { echo "scenario $name failed after $((SECONDS - began)) s" >&2; exit 1; }
  echo "-- scenario $name passed in $((SECONDS - began)) s"
done
