#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What no client should send, and what some send: the real server answers with a proper refusal, goes on serving, and keeps its memory.
#   bad_input_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: bad_input_test.sh BUILD_DIR}")
exec python3 "$(dirname "${BASH_SOURCE[0]}")/bad_input.py" "$build/bin/fairlead-server"
