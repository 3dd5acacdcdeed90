#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Brings the generated files of charts and docs up to date with the programs of BUILD_DIR, or checks them.
#   generate.sh BUILD_DIR [--check]
set -euo pipefail
(($# >= 1)) || { echo 'usage: deploy/generate.sh BUILD_DIR [--check]' >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1/bin/fairlead" ports -o json > "$work/ways.json"
"$1/bin/fairlead" ports --markdown > "$work/table.md"
"$1/bin/fairlead" install --aws --dry-run -o yaml > "$work/aws.yaml"
# Rights do not depend on sizes and images.
volumes=(--volumes 1Gi --csi-provisioner-image p --csi-attacher-image a --csi-resizer-image r)
"$1/bin/fairlead" install "${volumes[@]}" --volumes-encryption --dry-run -o yaml > "$work/volumes.yaml"
"$1/bin/fairlead" install "${volumes[@]}" --csi-snapshotter-image s --dry-run -o yaml > "$work/snapshots.yaml"
"$1/bin/fairlead" install --dry-run -o yaml | "$(dirname "$0")/generate.py" --aws "$work/aws.yaml" --volumes "$work/volumes.yaml" --snapshots "$work/snapshots.yaml" --ways "$work/ways.json" --table "$work/table.md" "${@:2}"
