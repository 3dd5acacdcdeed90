#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The wide matrix of clients against both servers (tests/peers/matrix.sh), with --full alone: it takes several minutes.
#   clients_test.sh BUILD_DIR
set -euo pipefail
[ -n "${FAIRLEAD_KUBERNETES:-}" ] && [ -n "${FAIRLEAD_FULL:-}" ] || { echo 'skipped: the wide matrix of clients needs a real Kubernetes and time (./test.sh --full)'; exit 77; }
exec "$(cd "$(dirname "$0")/../peers" && pwd)/matrix.sh" "${1:?usage: clients_test.sh BUILD_DIR}"
