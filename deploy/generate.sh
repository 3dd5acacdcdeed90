#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Brings the generated files of the charts up to date with the programs of BUILD_DIR, or checks them.
#   generate.sh BUILD_DIR [--check]
set -euo pipefail
(($# >= 1)) || { echo 'usage: deploy/generate.sh BUILD_DIR [--check]' >&2; exit 2; }
"$1/bin/fairlead" install --dry-run -o yaml | "$(dirname "$0")/generate.py" "${@:2}"
