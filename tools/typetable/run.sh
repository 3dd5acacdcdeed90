#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes src/kube/type_table_data.inc from the Go modules pinned in go.mod. With --check: fails if the committed file differs.
# With --testdata: writes the bodies and patches under src/kube/testdata instead.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../src/kube/type_table_data.inc
cd "$here"
if [ "${1:-}" = "--check" ]; then
  fresh=$(mktemp)
  trap 'rm -f "$fresh"' EXIT
  go run . -out "$fresh"
  if ! cmp -s "$fresh" "$target"; then
    echo "src/kube/type_table_data.inc is not what tools/typetable writes; run tools/typetable/run.sh" >&2
    exit 1
  fi
  echo "src/kube/type_table_data.inc is current"
elif [ "${1:-}" = "--testdata" ]; then
  go run ./bodies -out "$here/../../src/kube/testdata/protobuf_bodies.txt"
  go run ./patches -out "$here/../../src/kube/testdata/strategic_patches.jsonl"
else
  go run . -out "$target"
fi
