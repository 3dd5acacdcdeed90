#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The scenarios on the embedded engine: a part of kubernetes_test.sh, so that both engines' can run side by side.
exec bash "$(dirname "${BASH_SOURCE[0]}")/kubernetes_test.sh" "${1:?usage: embedded_test.sh BUILD_DIR}" embedded
